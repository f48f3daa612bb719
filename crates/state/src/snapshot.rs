//! The tables at one index, and every question readers ask of them. Cloning copies pointers only.

use crate::link::alloc_key;
use crate::rows::{
    JobKey, JobSubmission, JobSummary, Namespace, NodePool, PeriodicLaunch, ScalingEvents, ScalingPolicyRow,
    SchedulerConfig,
};
use crate::table::{TABLES, Table};
use herdsman_model::{
    AllocId, Allocation, Deployment, DeploymentId, EvalId, Evaluation, Job, JobStatus, JobType, Nanos, Node, NodeId,
};
use herdsman_proto::ServiceRegistration;
use imbl::{OrdMap, OrdSet};
use std::ops::Bound;
use std::sync::Arc;

/// A job version that allocations refer to, kept as long as they do.
#[derive(Debug, Clone)]
pub(crate) struct Pin {
    pub job: Arc<Job>,
    pub allocs: u64,
}

/// Counts by which the status of a job is decided without looking at its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    /// Allocations that are not over on their node.
    pub live_allocs: u64,
    /// Evaluations that are not over.
    pub live_evals: u64,
    pub evals: u64,
    pub active_deployments: u64,
}

/// All tables at one index.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) index: u64,
    pub(crate) time: Nanos,
    pub(crate) table_indexes: [u64; TABLES],
    pub(crate) jobs: OrdMap<JobKey, Arc<Job>>,
    /// Newest first; the first is the current one.
    pub(crate) versions: OrdMap<JobKey, Arc<Vec<Arc<Job>>>>,
    pub(crate) submissions: OrdMap<JobKey, Arc<Vec<Arc<JobSubmission>>>>,
    pub(crate) summaries: OrdMap<JobKey, Arc<JobSummary>>,
    pub(crate) allocs: OrdMap<AllocId, Arc<Allocation>>,
    pub(crate) evals: OrdMap<EvalId, Arc<Evaluation>>,
    pub(crate) deployments: OrdMap<DeploymentId, Arc<Deployment>>,
    pub(crate) nodes: OrdMap<NodeId, Arc<Node>>,
    pub(crate) pools: OrdMap<String, Arc<NodePool>>,
    pub(crate) namespaces: OrdMap<String, Arc<Namespace>>,
    pub(crate) services: OrdMap<String, Arc<ServiceRegistration>>,
    pub(crate) policies: OrdMap<String, Arc<ScalingPolicyRow>>,
    pub(crate) scaling_events: OrdMap<JobKey, Arc<ScalingEvents>>,
    pub(crate) scheduler_config: Arc<SchedulerConfig>,
    pub(crate) launches: OrdMap<JobKey, Arc<PeriodicLaunch>>,
    // Derived from the tables above.
    pub(crate) pins: OrdMap<JobKey, OrdMap<(u64, u64), Pin>>,
    pub(crate) counts: OrdMap<JobKey, JobCounts>,
    pub(crate) allocs_by_node: OrdMap<NodeId, OrdSet<AllocId>>,
    /// Index of the last change that the servers made to the allocations of a node.
    pub(crate) work_index: OrdMap<NodeId, u64>,
    pub(crate) allocs_by_job: OrdMap<JobKey, OrdSet<AllocId>>,
    pub(crate) allocs_by_eval: OrdSet<(EvalId, AllocId)>,
    pub(crate) allocs_by_deployment: OrdSet<(DeploymentId, AllocId)>,
    pub(crate) evals_by_job: OrdMap<JobKey, OrdSet<EvalId>>,
    pub(crate) blocked_by_job: OrdMap<JobKey, OrdSet<EvalId>>,
    pub(crate) system_jobs: OrdSet<JobKey>,
    pub(crate) deployments_by_job: OrdMap<JobKey, OrdSet<DeploymentId>>,
    pub(crate) children: OrdMap<JobKey, OrdSet<JobKey>>,
    pub(crate) dispatch_tokens: OrdMap<(JobKey, String), JobKey>,
    pub(crate) services_by_name: OrdSet<(Arc<str>, String, String)>,
    pub(crate) services_by_alloc: OrdSet<(AllocId, String)>,
    pub(crate) services_by_job: OrdSet<(JobKey, String)>,
    pub(crate) policies_by_job: OrdSet<(JobKey, String)>,
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot {
            index: 0,
            time: 0,
            table_indexes: [0; TABLES],
            jobs: OrdMap::new(),
            versions: OrdMap::new(),
            submissions: OrdMap::new(),
            summaries: OrdMap::new(),
            allocs: OrdMap::new(),
            evals: OrdMap::new(),
            deployments: OrdMap::new(),
            nodes: OrdMap::new(),
            pools: OrdMap::new(),
            namespaces: OrdMap::new(),
            services: OrdMap::new(),
            policies: OrdMap::new(),
            scaling_events: OrdMap::new(),
            scheduler_config: Arc::new(SchedulerConfig::default()),
            launches: OrdMap::new(),
            pins: OrdMap::new(),
            counts: OrdMap::new(),
            allocs_by_node: OrdMap::new(),
            work_index: OrdMap::new(),
            allocs_by_job: OrdMap::new(),
            allocs_by_eval: OrdSet::new(),
            allocs_by_deployment: OrdSet::new(),
            evals_by_job: OrdMap::new(),
            blocked_by_job: OrdMap::new(),
            system_jobs: OrdSet::new(),
            deployments_by_job: OrdMap::new(),
            children: OrdMap::new(),
            dispatch_tokens: OrdMap::new(),
            services_by_name: OrdSet::new(),
            services_by_alloc: OrdSet::new(),
            services_by_job: OrdSet::new(),
            policies_by_job: OrdSet::new(),
        }
    }
}

/// The range of 16-byte identifiers whose text begins with `prefix`; none when `prefix` is no beginning of one.
/// An odd number of digits is allowed.
pub fn id_range(prefix: &str) -> Option<([u8; 16], [u8; 16])> {
    let (mut low, mut high) = ([0u8; 16], [0xffu8; 16]);
    let mut digits = 0usize;
    for (position, c) in prefix.bytes().enumerate() {
        if matches!(position, 8 | 13 | 18 | 23) {
            if c != b'-' {
                return None;
            }
            continue;
        }
        let digit = u8::try_from(char::from(c).to_digit(16)?).ok()?;
        let (low, high) = (low.get_mut(digits / 2)?, high.get_mut(digits / 2)?);
        if digits.is_multiple_of(2) {
            *low = digit << 4;
            *high = digit << 4 | 0x0f;
        } else {
            *low = *low & 0xf0 | digit;
            *high = *high & 0xf0 | digit;
        }
        digits += 1;
    }
    Some((low, high))
}

/// All rows of a map whose key lies between two, both included.
fn between<'a, K: Ord + Clone + 'a, V: Clone + 'a>(
    map: &'a OrdMap<K, V>,
    low: K,
    high: K,
) -> impl Iterator<Item = &'a V> {
    map.range((Bound::Included(low), Bound::Included(high))).map(|(_, value)| value)
}

impl Snapshot {
    /// Index of the last command applied.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Time of the last command applied.
    pub fn time(&self) -> Nanos {
        self.time
    }

    /// Index of the last change of a table; 0 when it never changed.
    pub fn table_index(&self, table: Table) -> u64 {
        self.table_indexes.get(table as usize).copied().unwrap_or(0)
    }

    /// The newest of several tables' indexes.
    pub fn tables_index(&self, tables: &[Table]) -> u64 {
        tables.iter().map(|table| self.table_index(*table)).max().unwrap_or(0)
    }

    // Jobs.

    /// The job in its current version.
    pub fn job(&self, namespace: &str, id: &str) -> Option<&Arc<Job>> {
        self.jobs.get(&JobKey::new(namespace, id))
    }

    /// The job in its current version.
    pub fn job_by_key(&self, key: &JobKey) -> Option<&Arc<Job>> {
        self.jobs.get(key)
    }

    /// All jobs by namespace and id.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// Jobs of a namespace whose id begins with `prefix`, by id.
    pub fn jobs_by_prefix<'a>(&'a self, namespace: &str, prefix: &'a str) -> impl Iterator<Item = &'a Arc<Job>> {
        let first = JobKey::new(namespace, prefix);
        let wanted = first.namespace.clone();
        self.jobs
            .range(first..)
            .take_while(move |(key, _)| key.namespace == wanted && key.id.starts_with(prefix))
            .map(|(_, job)| job)
    }

    /// The kept versions of a job, newest first.
    pub fn job_versions(&self, namespace: &str, id: &str) -> Option<&Arc<Vec<Arc<Job>>>> {
        self.versions.get(&JobKey::new(namespace, id))
    }

    /// One kept version of a job, also one that only allocations keep.
    pub fn job_version(&self, namespace: &str, id: &str, version: u64) -> Option<&Arc<Job>> {
        self.job_version_by_key(&JobKey::new(namespace, id), version)
    }

    /// One kept version of a job, also one that only allocations keep.
    pub fn job_version_by_key(&self, key: &JobKey, version: u64) -> Option<&Arc<Job>> {
        if let Some(job) = self.jobs.get(key)
            && job.version == version
        {
            return Some(job);
        }
        if let Some(versions) = self.versions.get(key)
            && let Some(job) = versions.iter().find(|job| job.version == version)
        {
            return Some(job);
        }
        let pins = self.pins.get(key)?;
        pins.iter().filter(|((_, v), _)| *v == version).map(|(_, pin)| &pin.job).next_back()
    }

    /// The job version an allocation was made from.
    pub fn alloc_job(&self, alloc: &Allocation) -> Option<&Arc<Job>> {
        let pins = self.pins.get(&alloc_key(alloc))?;
        pins.get(&(alloc.job_create_index, alloc.job_version)).map(|pin| &pin.job)
    }

    /// The jobs launched by a periodic or parameterized job.
    pub fn job_children(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Job>> {
        self.children.get(key).into_iter().flat_map(|set| set.iter()).filter_map(|child| self.jobs.get(child))
    }

    /// Whether anything of this job runs or is about to: allocations not over on their node, or evaluations not over.
    pub fn job_is_live(&self, key: &JobKey) -> bool {
        self.counts.get(key).is_some_and(|counts| counts.live_allocs > 0 || counts.live_evals > 0)
    }

    /// The counts of a job's allocations.
    pub fn job_summary(&self, namespace: &str, id: &str) -> Option<&Arc<JobSummary>> {
        self.summaries.get(&JobKey::new(namespace, id))
    }

    /// All summaries.
    pub fn job_summaries(&self) -> impl Iterator<Item = &Arc<JobSummary>> {
        self.summaries.values()
    }

    /// The text that a version of a job came from.
    pub fn job_submission(&self, namespace: &str, id: &str, version: u64) -> Option<&Arc<JobSubmission>> {
        self.submissions.get(&JobKey::new(namespace, id))?.iter().find(|s| s.version == version)
    }

    // Allocations.

    /// One allocation.
    pub fn alloc(&self, id: &AllocId) -> Option<&Arc<Allocation>> {
        self.allocs.get(id)
    }

    /// All allocations by id.
    pub fn allocs(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocs.values()
    }

    /// How many allocations are kept.
    pub fn alloc_count(&self) -> usize {
        self.allocs.len()
    }

    /// Allocations whose id's text begins with `prefix`; none when no id can.
    pub fn allocs_by_prefix(&self, prefix: &str) -> impl Iterator<Item = &Arc<Allocation>> {
        id_range(prefix).into_iter().flat_map(|(low, high)| between(&self.allocs, AllocId(low), AllocId(high)))
    }

    /// Allocations of a job, of every incarnation of it, by id.
    pub fn allocs_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocs_by_job.get(key).into_iter().flat_map(|ids| ids.iter()).filter_map(|id| self.allocs.get(id))
    }

    /// Allocations of a node, by id.
    pub fn allocs_by_node(&self, node: &NodeId) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocs_by_node.get(node).into_iter().flat_map(|ids| ids.iter()).filter_map(|id| self.allocs.get(id))
    }

    /// Index of the last change that the servers, not the node, made to the allocations of a node. After a restore it is
    /// that of the allocations that are left.
    pub fn work_index(&self, node: &NodeId) -> u64 {
        self.work_index.get(node).copied().unwrap_or(0)
    }

    /// Allocations made by an evaluation.
    pub fn allocs_by_eval(&self, eval: EvalId) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocs_by_eval
            .range((eval, AllocId([0; 16]))..=(eval, AllocId([0xff; 16])))
            .filter_map(|(_, id)| self.allocs.get(id))
    }

    /// Allocations of a deployment.
    pub fn allocs_by_deployment(&self, deployment: DeploymentId) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocs_by_deployment
            .range((deployment, AllocId([0; 16]))..=(deployment, AllocId([0xff; 16])))
            .filter_map(|(_, id)| self.allocs.get(id))
    }

    // Evaluations.

    /// One evaluation.
    pub fn eval(&self, id: &EvalId) -> Option<&Arc<Evaluation>> {
        self.evals.get(id)
    }

    /// All evaluations by id.
    pub fn evals(&self) -> impl Iterator<Item = &Arc<Evaluation>> {
        self.evals.values()
    }

    /// Evaluations whose id's text begins with `prefix`.
    pub fn evals_by_prefix(&self, prefix: &str) -> impl Iterator<Item = &Arc<Evaluation>> {
        id_range(prefix).into_iter().flat_map(|(low, high)| between(&self.evals, EvalId(low), EvalId(high)))
    }

    /// Evaluations of a job, by id.
    pub fn evals_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Evaluation>> {
        self.evals_by_job.get(key).into_iter().flat_map(|ids| ids.iter()).filter_map(|id| self.evals.get(id))
    }

    // Deployments.

    /// One deployment.
    pub fn deployment(&self, id: &DeploymentId) -> Option<&Arc<Deployment>> {
        self.deployments.get(id)
    }

    /// All deployments by id.
    pub fn deployments(&self) -> impl Iterator<Item = &Arc<Deployment>> {
        self.deployments.values()
    }

    /// Deployments whose id's text begins with `prefix`.
    pub fn deployments_by_prefix(&self, prefix: &str) -> impl Iterator<Item = &Arc<Deployment>> {
        id_range(prefix)
            .into_iter()
            .flat_map(|(low, high)| between(&self.deployments, DeploymentId(low), DeploymentId(high)))
    }

    /// Deployments of a job, by id.
    pub fn deployments_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Deployment>> {
        self.deployments_by_job
            .get(key)
            .into_iter()
            .flat_map(|ids| ids.iter())
            .filter_map(|id| self.deployments.get(id))
    }

    /// The newest deployment of a job.
    pub fn latest_deployment(&self, key: &JobKey) -> Option<&Arc<Deployment>> {
        self.deployments_by_job(key).max_by_key(|d| (d.create_index, d.id))
    }

    // Nodes.

    /// One node.
    pub fn node(&self, id: &NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(id)
    }

    /// All nodes by id.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// Nodes whose id's text begins with `prefix`.
    pub fn nodes_by_prefix(&self, prefix: &str) -> impl Iterator<Item = &Arc<Node>> {
        id_range(prefix).into_iter().flat_map(|(low, high)| between(&self.nodes, NodeId(low), NodeId(high)))
    }

    /// A node pool.
    pub fn node_pool(&self, name: &str) -> Option<&Arc<NodePool>> {
        self.pools.get(name)
    }

    /// All node pools by name.
    pub fn node_pools(&self) -> impl Iterator<Item = &Arc<NodePool>> {
        self.pools.values()
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&Arc<Namespace>> {
        self.namespaces.get(name)
    }

    /// All namespaces by name.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.namespaces.values()
    }

    /// How the schedulers decide.
    pub fn scheduler_config(&self) -> &Arc<SchedulerConfig> {
        &self.scheduler_config
    }

    // Services, scaling, launches.

    /// One registration of a service.
    pub fn service(&self, id: &str) -> Option<&Arc<ServiceRegistration>> {
        self.services.get(id)
    }

    /// All registrations by namespace, name and id.
    pub fn services(&self) -> impl Iterator<Item = &Arc<ServiceRegistration>> {
        self.services_by_name.iter().filter_map(|(_, _, id)| self.services.get(id))
    }

    /// Registrations of one service.
    pub fn services_by_name<'a>(
        &'a self,
        namespace: &str,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Arc<ServiceRegistration>> {
        let namespace: Arc<str> = Arc::from(namespace);
        self.services_by_name
            .range((namespace.clone(), name.to_owned(), String::new())..)
            .take_while(move |(ns, service, _)| *ns == namespace && service == name)
            .filter_map(|(_, _, id)| self.services.get(id))
    }

    /// Registrations of an allocation.
    pub fn services_by_alloc(&self, alloc: AllocId) -> impl Iterator<Item = &Arc<ServiceRegistration>> {
        self.services_by_alloc
            .range((alloc, String::new())..)
            .take_while(move |(id, _)| *id == alloc)
            .filter_map(|(_, id)| self.services.get(id))
    }

    /// Registrations of a job.
    pub fn services_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<ServiceRegistration>> {
        let wanted = key.clone();
        self.services_by_job
            .range((key.clone(), String::new())..)
            .take_while(move |(job, _)| *job == wanted)
            .filter_map(|(_, id)| self.services.get(id))
    }

    /// A scaling policy.
    pub fn scaling_policy(&self, id: &str) -> Option<&Arc<ScalingPolicyRow>> {
        self.policies.get(id)
    }

    /// All scaling policies by id.
    pub fn scaling_policies(&self) -> impl Iterator<Item = &Arc<ScalingPolicyRow>> {
        self.policies.values()
    }

    /// Scaling policies of a job.
    pub fn scaling_policies_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<ScalingPolicyRow>> {
        let wanted = key.clone();
        self.policies_by_job
            .range((key.clone(), String::new())..)
            .take_while(move |(job, _)| *job == wanted)
            .filter_map(|(_, id)| self.policies.get(id))
    }

    /// The scaling events of a job.
    pub fn scaling_events(&self, key: &JobKey) -> Option<&Arc<ScalingEvents>> {
        self.scaling_events.get(key)
    }

    /// When a periodic job was last launched.
    pub fn periodic_launch(&self, key: &JobKey) -> Option<&Arc<PeriodicLaunch>> {
        self.launches.get(key)
    }

    /// The status of a job as its rows have it (`compat/scheduler.md` section 4). Client status decides: an allocation
    /// that was told to stop but whose poststop still runs keeps its job from being dead.
    pub(crate) fn derive_job_status(&self, key: &JobKey, job: &Job) -> JobStatus {
        let counts = self.counts.get(key).copied().unwrap_or_default();
        if job.kind == JobType::System || job.is_periodic() || job.is_parameterized() {
            return if job.stop { JobStatus::Dead } else { JobStatus::Running };
        }
        if counts.live_allocs > 0 || counts.active_deployments > 0 {
            return JobStatus::Running;
        }
        if counts.live_evals > 0 {
            return JobStatus::Pending;
        }
        // What is dead does not wait again because its evaluations were collected.
        let over = counts.evals > 0 || job.stop || job.status == JobStatus::Dead;
        if over { JobStatus::Dead } else { JobStatus::Pending }
    }
}
