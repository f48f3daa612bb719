//! The evaluation: a request to bring a job's allocations to what is wanted.

use crate::alloc::AllocMetric;
use crate::ids::{DeploymentId, EvalId, NodeId, opt_id};
use crate::job::JobType;
use crate::values::{Name, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where an evaluation stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvalStatus {
    #[default]
    Pending,
    Blocked,
    Complete,
    Failed,
    Canceled,
}

impl EvalStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EvalStatus::Pending => "pending",
            EvalStatus::Blocked => "blocked",
            EvalStatus::Complete => "complete",
            EvalStatus::Failed => "failed",
            EvalStatus::Canceled => "canceled",
        }
    }

    /// Nothing more will be done about it.
    pub fn is_terminal(self) -> bool {
        matches!(self, EvalStatus::Complete | EvalStatus::Failed | EvalStatus::Canceled)
    }
}

/// Why an evaluation was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    #[default]
    JobRegister,
    JobDeregister,
    PeriodicJob,
    NodeDrain,
    NodeUpdate,
    AllocStop,
    Scheduled,
    RollingUpdate,
    DeploymentWatcher,
    FailedFollowUp,
    MaxPlanAttempts,
    AllocFailure,
    QueuedAllocs,
    Preemption,
    JobScaling,
    MaxDisconnectTimeout,
    Reconnect,
    AllocReschedule,
}

impl Trigger {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Trigger::JobRegister => "job-register",
            Trigger::JobDeregister => "job-deregister",
            Trigger::PeriodicJob => "periodic-job",
            Trigger::NodeDrain => "node-drain",
            Trigger::NodeUpdate => "node-update",
            Trigger::AllocStop => "alloc-stop",
            Trigger::Scheduled => "scheduled",
            Trigger::RollingUpdate => "rolling-update",
            Trigger::DeploymentWatcher => "deployment-watcher",
            Trigger::FailedFollowUp => "failed-follow-up",
            Trigger::MaxPlanAttempts => "max-plan-attempts",
            Trigger::AllocFailure => "alloc-failure",
            Trigger::QueuedAllocs => "queued-allocs",
            Trigger::Preemption => "preemption",
            Trigger::JobScaling => "job-scaling",
            Trigger::MaxDisconnectTimeout => "max-disconnect-timeout",
            Trigger::Reconnect => "reconnect",
            Trigger::AllocReschedule => "alloc-reschedule",
        }
    }
}

/// A request to bring a job's allocations to what is wanted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evaluation {
    pub id: EvalId,
    pub namespace: Name,
    pub priority: i64,
    pub kind: JobType,
    pub triggered_by: Trigger,
    pub job_id: Name,
    pub job_modify_index: u64,
    #[serde(with = "opt_id")]
    pub node_id: Option<NodeId>,
    pub node_modify_index: u64,
    #[serde(with = "opt_id")]
    pub deployment_id: Option<DeploymentId>,
    pub status: EvalStatus,
    pub status_description: String,
    /// Not before this long after it becomes pending, nanoseconds.
    pub wait: Nanos,
    /// Not before this time.
    pub wait_until: Option<Nanos>,
    #[serde(with = "opt_id")]
    pub next_eval: Option<EvalId>,
    #[serde(with = "opt_id")]
    pub previous_eval: Option<EvalId>,
    #[serde(with = "opt_id")]
    pub blocked_eval: Option<EvalId>,
    pub related_evals: Vec<EvalId>,
    pub failed_groups: BTreeMap<String, Arc<AllocMetric>>,
    /// Per computed class: whether nodes of the class could take it.
    pub class_eligibility: BTreeMap<String, bool>,
    /// Some constraint looks at what is unique to a node, so classes say nothing.
    pub escaped_computed_class: bool,
    pub quota_limit_reached: String,
    pub annotate_plan: bool,
    pub annotations: Option<Arc<crate::plan::PlanAnnotations>>,
    pub queued_allocations: BTreeMap<String, u64>,
    pub snapshot_index: u64,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: Nanos,
    pub modify_time: Nanos,
}

impl Evaluation {
    /// Belongs in the broker's queue.
    pub fn should_enqueue(&self) -> bool {
        self.status == EvalStatus::Pending
    }
    /// Belongs among the blocked ones.
    pub fn should_block(&self) -> bool {
        self.status == EvalStatus::Blocked
    }
}
