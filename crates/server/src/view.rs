//! The scheduler's view of a snapshot.

use crate::feed::Published;
use crate::loads::Loads;
use herdsman_model::{AllocId, Allocation, Deployment, Job, Node, NodeId};
use herdsman_scheduler::{Algorithm, Config, Load, PoolConfig, View};
use herdsman_state::{JobKey, Snapshot};
use std::sync::Arc;

/// A snapshot as the scheduler reads it.
#[derive(Debug, Clone)]
pub struct StateView {
    snapshot: Arc<Snapshot>,
    /// Kept beside the snapshot where it is a published one.
    loads: Option<Loads>,
}

impl StateView {
    /// A snapshot whose loads are added up as they are asked for.
    pub fn new(snapshot: Arc<Snapshot>) -> StateView {
        StateView { snapshot, loads: None }
    }

    pub(crate) fn published(published: &Published) -> StateView {
        StateView { snapshot: Arc::clone(&published.snapshot), loads: Some(published.loads.clone()) }
    }
}

fn algorithm(word: &str) -> Option<Algorithm> {
    match word {
        "binpack" => Some(Algorithm::Binpack),
        "spread" => Some(Algorithm::Spread),
        _ => None,
    }
}

impl View for StateView {
    fn index(&self) -> u64 {
        self.snapshot.index()
    }

    fn job(&self, namespace: &str, id: &str) -> Option<Arc<Job>> {
        self.snapshot.job(namespace, id).cloned()
    }

    fn job_version(&self, namespace: &str, id: &str, version: u64) -> Option<Arc<Job>> {
        self.snapshot.job_version(namespace, id, version).cloned()
    }

    fn allocs_by_job(&self, namespace: &str, id: &str) -> Vec<Arc<Allocation>> {
        self.snapshot.allocs_by_job(&JobKey::new(namespace, id)).cloned().collect()
    }

    fn allocs_by_node(&self, node: &NodeId) -> Vec<Arc<Allocation>> {
        self.snapshot.allocs_by_node(node).filter(|alloc| !alloc.client_terminal()).cloned().collect()
    }

    fn alloc(&self, id: &AllocId) -> Option<Arc<Allocation>> {
        self.snapshot.alloc(id).cloned()
    }

    fn node(&self, id: &NodeId) -> Option<Arc<Node>> {
        self.snapshot.node(id).cloned()
    }

    fn for_each_node(&self, visit: &mut dyn FnMut(&Arc<Node>)) {
        self.snapshot.nodes().for_each(visit);
    }

    fn latest_deployment(&self, namespace: &str, job_id: &str) -> Option<Arc<Deployment>> {
        self.snapshot.latest_deployment(&JobKey::new(namespace, job_id)).cloned()
    }

    fn config(&self) -> Config {
        let stored = self.snapshot.scheduler_config();
        let preemption = &stored.preemption_config;
        let limit = usize::try_from(stored.node_limit_for_feasibility_checks).unwrap_or(0);
        let default = Config::default();
        Config {
            algorithm: algorithm(&stored.scheduler_algorithm).unwrap_or_default(),
            preempt_system: preemption.system_scheduler_enabled,
            preempt_sysbatch: preemption.sys_batch_scheduler_enabled,
            preempt_batch: preemption.batch_scheduler_enabled,
            preempt_service: preemption.service_scheduler_enabled,
            memory_oversubscription: stored.memory_oversubscription_enabled,
            node_limit: if limit == 0 { default.node_limit } else { limit },
        }
    }

    fn pool_config(&self, pool: &str) -> PoolConfig {
        let stored =
            self.snapshot.node_pool(pool).and_then(|pool| pool.scheduler_configuration.clone()).unwrap_or_default();
        PoolConfig {
            algorithm: algorithm(&stored.scheduler_algorithm),
            memory_oversubscription: stored.memory_oversubscription_enabled,
        }
    }

    fn load(&self, node: &NodeId) -> Option<Load> {
        self.loads.as_ref().map(|loads| loads.get(node).map(|load| Load::clone(load)).unwrap_or_default())
    }
}
