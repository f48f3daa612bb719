//! What a node is told about itself.

use herdsman_model::{HostNetwork, HostVolume, Nanos, NodeReserved};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Settings of a node. Sizes are megabytes, times nanoseconds.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Identity and local store.
    pub state_dir: PathBuf,
    /// Allocation directories.
    pub alloc_dir: PathBuf,
    /// RPC addresses of servers, `host:port`; tried in turn.
    pub servers: Vec<String>,
    pub region: String,
    pub datacenter: String,
    pub name: String,
    pub node_class: String,
    pub node_pool: String,
    /// Static metadata.
    pub meta: BTreeMap<String, String>,
    /// Client options (`env.denylist` and the like).
    pub options: BTreeMap<String, String>,
    pub host_volumes: BTreeMap<String, HostVolume>,
    pub host_networks: BTreeMap<String, HostNetwork>,
    pub reserved: NodeReserved,
    /// Cores that tasks may reserve; empty: all.
    pub reservable_cores: Vec<u16>,
    /// A node that is new to the servers takes no work before somebody lets it.
    pub default_ineligible: bool,
    /// Services of the native provider may run here.
    pub service_discovery: bool,
    /// Overrides of what is measured; 0: measure.
    pub cpu_total_compute: i64,
    pub memory_total_mb: i64,
    pub disk_total_mb: i64,
    pub disk_free_mb: i64,
    /// Interface whose addresses ports are offered on; empty: that of the default route, else loopback.
    pub network_interface: String,
    pub min_dynamic_port: i64,
    pub max_dynamic_port: i64,
    pub max_kill_timeout: Nanos,
    /// Address of the agent's HTTP API, as others reach it.
    pub http_addr: String,
    /// Allocations the scheduler may place here; 0: no limit.
    pub node_max_allocs: i64,
    pub disable_remote_exec: bool,
    pub cgroup_parent: String,
    /// Version that `attr.nomad.version` reports.
    pub version: String,
    /// Revision that `attr.nomad.revision` reports.
    pub revision: String,
    pub gc: GcConfig,
}

/// What may change while a node runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    pub max_kill_timeout: Nanos,
    pub disable_remote_exec: bool,
    pub node_max_allocs: i64,
    pub gc: GcConfig,
}

/// When terminal allocations are removed from the node.
#[derive(Debug, Clone, PartialEq)]
pub struct GcConfig {
    pub interval: Nanos,
    pub parallel_destroys: usize,
    /// Percent of the file system of the allocation directories.
    pub disk_usage_threshold: f64,
    pub inode_usage_threshold: f64,
    pub max_allocs: usize,
}

impl Default for GcConfig {
    fn default() -> GcConfig {
        GcConfig {
            interval: 60_000_000_000,
            parallel_destroys: 2,
            disk_usage_threshold: 80.0,
            inode_usage_threshold: 70.0,
            max_allocs: 50,
        }
    }
}

impl NodeConfig {
    /// What may change later, as it is at the start.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            max_kill_timeout: self.max_kill_timeout,
            disable_remote_exec: self.disable_remote_exec,
            node_max_allocs: self.node_max_allocs,
            gc: self.gc.clone(),
        }
    }
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        NodeConfig {
            state_dir: PathBuf::new(),
            alloc_dir: PathBuf::new(),
            servers: Vec::new(),
            region: "global".into(),
            datacenter: "dc1".into(),
            name: String::new(),
            node_class: String::new(),
            node_pool: "default".into(),
            meta: BTreeMap::new(),
            options: BTreeMap::new(),
            host_volumes: BTreeMap::new(),
            host_networks: BTreeMap::new(),
            reserved: NodeReserved::default(),
            reservable_cores: Vec::new(),
            default_ineligible: false,
            service_discovery: true,
            cpu_total_compute: 0,
            memory_total_mb: 0,
            disk_total_mb: 0,
            disk_free_mb: 0,
            network_interface: String::new(),
            min_dynamic_port: 20_000,
            max_dynamic_port: 32_000,
            max_kill_timeout: 30_000_000_000,
            http_addr: String::new(),
            node_max_allocs: 0,
            disable_remote_exec: false,
            cgroup_parent: String::new(),
            version: String::new(),
            revision: String::new(),
            gc: GcConfig::default(),
        }
    }
}

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("{what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: std::io::Error },
    #[error("the node's state directory {} is in use by another agent; give each agent a data_dir of its own", path.display())]
    InUse { path: PathBuf },
    #[error("node store {}: {error}", path.display())]
    Store { path: PathBuf, error: String },
}
