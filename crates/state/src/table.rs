//! The names of the tables, and what a command changed.

use crate::link::{alloc_key, deployment_key, eval_key};
use crate::rows::{
    JobKey, JobSubmission, JobSummary, Namespace, NodePool, PeriodicLaunch, ScalingEvents, ScalingPolicyRow,
    SchedulerConfig,
};
use herdsman_model::{Allocation, Deployment, Evaluation, Job, Node, NodeId};
use herdsman_proto::ServiceRegistration;
use std::sync::Arc;

/// A table of `state`. The number is its place among the indexes of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    Jobs = 0,
    Versions = 1,
    Submissions = 2,
    Summaries = 3,
    Allocs = 4,
    Evals = 5,
    Deployments = 6,
    Nodes = 7,
    NodePools = 8,
    Namespaces = 9,
    Services = 10,
    ScalingPolicies = 11,
    ScalingEvents = 12,
    SchedulerConfig = 13,
    PeriodicLaunches = 14,
}

/// How many tables there are.
pub const TABLES: usize = 15;

/// A row of any table.
#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    Job(Arc<Job>),
    Submission(Arc<JobSubmission>),
    Summary(Arc<JobSummary>),
    Alloc(Arc<Allocation>),
    Eval(Arc<Evaluation>),
    Deployment(Arc<Deployment>),
    Node(Arc<Node>),
    NodePool(Arc<NodePool>),
    Namespace(Arc<Namespace>),
    Service(Arc<ServiceRegistration>),
    ScalingPolicy(Arc<ScalingPolicyRow>),
    ScalingEvents(Arc<ScalingEvents>),
    SchedulerConfig(Arc<SchedulerConfig>),
    PeriodicLaunch(Arc<PeriodicLaunch>),
}

/// What a command did to one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub table: Table,
    /// None: the row is new.
    pub before: Option<Row>,
    /// None: the row is gone.
    pub after: Option<Row>,
    /// Index of the command.
    pub index: u64,
}

/// Something that a reader waits for a change of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WatchKey {
    /// Any row of the table.
    Table(Table),
    /// The job, its versions or its submissions.
    Job(JobKey),
    Summary(JobKey),
    JobAllocs(JobKey),
    JobEvals(JobKey),
    JobDeployments(JobKey),
    NodeAllocs(NodeId),
    Alloc(herdsman_model::AllocId),
    EvalAllocs(herdsman_model::EvalId),
    DeploymentAllocs(herdsman_model::DeploymentId),
    Eval(herdsman_model::EvalId),
    Deployment(herdsman_model::DeploymentId),
    Node(NodeId),
    NodePool(String),
    Namespace(String),
    /// Namespace and service name.
    Service(String, String),
    ScalingPolicy(String),
    JobScaling(JobKey),
}

impl Change {
    /// The row after the change, or before it when it is gone.
    pub fn row(&self) -> Option<&Row> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// The allocation before and after; neither when this is no change of one.
    pub fn alloc(&self) -> (Option<&Arc<Allocation>>, Option<&Arc<Allocation>>) {
        let before = match &self.before {
            Some(Row::Alloc(alloc)) => Some(alloc),
            _ => None,
        };
        let after = match &self.after {
            Some(Row::Alloc(alloc)) => Some(alloc),
            _ => None,
        };
        (before, after)
    }

    /// Calls `wake` with every key whose readers this change concerns.
    pub fn keys(&self, wake: &mut dyn FnMut(WatchKey)) {
        wake(WatchKey::Table(self.table));
        // An in-place update gives an allocation another evaluation and deployment: readers of both are concerned.
        if let (Some(Row::Alloc(before)), Some(Row::Alloc(after))) = (&self.before, &self.after)
            && (before.eval_id != after.eval_id || before.deployment_id != after.deployment_id)
        {
            wake(WatchKey::EvalAllocs(before.eval_id));
            if let Some(id) = before.deployment_id {
                wake(WatchKey::DeploymentAllocs(id));
            }
        }
        if let Some(row) = self.row() {
            row.keys(wake);
        }
    }
}

impl Row {
    fn keys(&self, wake: &mut dyn FnMut(WatchKey)) {
        match self {
            Row::Job(job) => wake(WatchKey::Job(JobKey::of(job))),
            Row::Submission(s) => wake(WatchKey::Job(JobKey::new(&s.namespace, &s.job_id))),
            Row::Summary(s) => wake(WatchKey::Summary(JobKey::new(&s.namespace, &s.job_id))),
            Row::Alloc(alloc) => {
                wake(WatchKey::Alloc(alloc.id));
                wake(WatchKey::NodeAllocs(alloc.node_id));
                wake(WatchKey::EvalAllocs(alloc.eval_id));
                wake(WatchKey::JobAllocs(alloc_key(alloc)));
                if let Some(id) = alloc.deployment_id {
                    wake(WatchKey::DeploymentAllocs(id));
                }
            }
            Row::Eval(eval) => {
                wake(WatchKey::Eval(eval.id));
                wake(WatchKey::JobEvals(eval_key(eval)));
            }
            Row::Deployment(d) => {
                wake(WatchKey::Deployment(d.id));
                wake(WatchKey::JobDeployments(deployment_key(d)));
            }
            Row::Node(node) => wake(WatchKey::Node(node.id)),
            Row::NodePool(pool) => wake(WatchKey::NodePool(pool.name.clone())),
            Row::Namespace(namespace) => wake(WatchKey::Namespace(namespace.name.clone())),
            Row::Service(s) => wake(WatchKey::Service(s.namespace.to_string(), s.service_name.clone())),
            Row::ScalingPolicy(row) => wake(WatchKey::ScalingPolicy(row.policy.id.clone())),
            Row::ScalingEvents(e) => wake(WatchKey::JobScaling(JobKey::new(&e.namespace, &e.job_id))),
            Row::SchedulerConfig(_) => {}
            Row::PeriodicLaunch(p) => wake(WatchKey::Job(JobKey::new(&p.namespace, &p.job_id))),
        }
    }
}
