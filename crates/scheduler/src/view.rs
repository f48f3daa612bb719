//! What the scheduler reads: one consistent snapshot of the cluster behind a trait.

use crate::load::Load;
use herdsman_model::{AllocId, Allocation, Deployment, Job, JobType, Node, NodeId};
use std::sync::Arc;

/// How nodes are compared when several could take an allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Fill nodes up, so that others stay free for what is large.
    #[default]
    Binpack,
    /// Even the load out.
    Spread,
}

/// The scheduler's settings that hold for the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub algorithm: Algorithm,
    pub preempt_system: bool,
    pub preempt_sysbatch: bool,
    pub preempt_batch: bool,
    pub preempt_service: bool,
    /// Whether `memory_max` is granted.
    pub memory_oversubscription: bool,
    /// Nodes looked at, at least, when a group has affinities or spreads.
    pub node_limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            algorithm: Algorithm::Binpack,
            preempt_system: true,
            preempt_sysbatch: false,
            preempt_batch: false,
            preempt_service: false,
            memory_oversubscription: false,
            node_limit: DEFAULT_NODE_LIMIT,
        }
    }
}

/// Default of [`Config::node_limit`].
pub const DEFAULT_NODE_LIMIT: usize = 100;

impl Config {
    /// Whether jobs of this type may push out jobs of lower priority.
    pub fn preempts(&self, kind: JobType) -> bool {
        match kind {
            JobType::Service => self.preempt_service,
            JobType::Batch => self.preempt_batch,
            JobType::System => self.preempt_system,
            JobType::Sysbatch => self.preempt_sysbatch,
            JobType::Core => false,
        }
    }
}

/// What a node pool sets differently; unset means as the cluster does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolConfig {
    pub algorithm: Option<Algorithm>,
    pub memory_oversubscription: Option<bool>,
}

/// A consistent snapshot. Every list has an order that depends on nothing but the snapshot's content (by id, say): plans
/// are to be the same on every server that makes them from the same state.
pub trait View {
    /// Index of the newest change the snapshot holds.
    fn index(&self) -> u64;
    /// The newest version of a job.
    fn job(&self, namespace: &str, id: &str) -> Option<Arc<Job>>;
    /// One version of a job, if it is still kept.
    fn job_version(&self, namespace: &str, id: &str, version: u64) -> Option<Arc<Job>>;
    /// Every allocation of a job, terminal ones included.
    fn allocs_by_job(&self, namespace: &str, id: &str) -> Vec<Arc<Allocation>>;
    /// Every allocation on a node; those that are client-terminal may be left out.
    fn allocs_by_node(&self, node: &NodeId) -> Vec<Arc<Allocation>>;
    /// One allocation.
    fn alloc(&self, id: &AllocId) -> Option<Arc<Allocation>>;
    /// One node.
    fn node(&self, id: &NodeId) -> Option<Arc<Node>>;
    /// Calls `visit` for every node, in a stable order.
    fn for_each_node(&self, visit: &mut dyn FnMut(&Arc<Node>));
    /// The newest deployment of a job.
    fn latest_deployment(&self, namespace: &str, job_id: &str) -> Option<Arc<Deployment>>;
    /// The scheduler's settings.
    fn config(&self) -> Config;
    /// What a node pool sets differently.
    fn pool_config(&self, _pool: &str) -> PoolConfig {
        PoolConfig::default()
    }
    /// The load of a node, if the snapshot keeps it; else it is added up from [`View::allocs_by_node`].
    fn load(&self, _node: &NodeId) -> Option<Load> {
        None
    }
}
