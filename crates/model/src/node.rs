//! The node: a machine that runs allocations, what it offers and where it stands.

use crate::ids::NodeId;
use crate::resources::NetworkResource;
use crate::values::{List, Map, Name, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a node stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    #[default]
    Initializing,
    Ready,
    Down,
    Disconnected,
}

impl NodeStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeStatus::Initializing => "initializing",
            NodeStatus::Ready => "ready",
            NodeStatus::Down => "down",
            NodeStatus::Disconnected => "disconnected",
        }
    }
}

/// Whether new allocations may be placed on a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eligibility {
    #[default]
    Eligible,
    Ineligible,
}

impl Eligibility {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Eligibility::Eligible => "eligible",
            Eligibility::Ineligible => "ineligible",
        }
    }
}

/// A node as the servers know it. Stored as is; the wire form adds the legacy `Drain` field and leaves the secret out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    pub id: NodeId,
    /// Proves that whoever speaks for the node is the node. Never printed.
    pub secret_id: SecretText,
    pub name: Name,
    pub datacenter: String,
    pub node_pool: String,
    pub node_class: String,
    /// Hash over what constraints can see of the node except what is unique to it; equal for nodes of one kind.
    pub computed_class: String,
    pub attributes: BTreeMap<String, String>,
    pub meta: BTreeMap<String, String>,
    pub links: BTreeMap<String, String>,
    pub resources: NodeResources,
    pub reserved: NodeReserved,
    pub drivers: BTreeMap<String, DriverInfo>,
    pub host_volumes: BTreeMap<String, HostVolume>,
    pub host_networks: BTreeMap<String, HostNetwork>,
    pub http_addr: String,
    pub tls_enabled: bool,
    pub cgroup_parent: String,
    pub node_max_allocs: i64,
    pub status: NodeStatus,
    pub status_description: String,
    /// Seconds since the Unix epoch.
    pub status_updated_at: i64,
    pub eligibility: Eligibility,
    pub drain: Option<DrainStrategy>,
    pub last_drain: Option<LastDrain>,
    pub events: Vec<NodeEvent>,
    pub last_missed_heartbeat_index: u64,
    pub last_alloc_update_index: u64,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A secret text: stored and sent between our own processes, never printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<redacted>")
    }
}

/// What a node has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeResources {
    /// Megahertz over all cores.
    pub cpu_shares: i64,
    pub total_cores: u16,
    pub reservable_cores: Vec<u16>,
    /// Base speed of each core in megahertz, by core id.
    pub core_speed_mhz: i64,
    pub memory_mb: i64,
    pub disk_mb: i64,
    pub networks: List<NetworkResource>,
    pub node_networks: Vec<NodeNetwork>,
    pub min_dynamic_port: i64,
    pub max_dynamic_port: i64,
    pub devices: Vec<DeviceGroup>,
}

/// What a node keeps for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReserved {
    pub cpu_shares: i64,
    pub cores: Vec<u16>,
    pub memory_mb: i64,
    pub disk_mb: i64,
    /// Ports and ranges, comma separated.
    pub ports: String,
}

/// A network of a node and the addresses it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeNetwork {
    pub mode: String,
    pub device: String,
    pub mac_address: String,
    pub speed: i64,
    pub addresses: List<NodeAddress>,
}

/// An address of a node network. `alias` is the host network it belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeAddress {
    pub family: String,
    pub alias: String,
    pub address: String,
    pub gateway: String,
    pub reserved_ports: String,
}

/// Devices of one model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceGroup {
    pub vendor: String,
    #[serde(rename = "Type")]
    pub kind: String,
    pub name: String,
    pub attributes: Map<String>,
    pub instances: List<DeviceInstance>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceInstance {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(rename = "Healthy")]
    pub healthy: bool,
    #[serde(rename = "HealthDescription")]
    pub health_description: String,
}

/// What a node's driver said of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverInfo {
    pub detected: bool,
    pub healthy: bool,
    pub health_description: String,
    pub attributes: BTreeMap<String, String>,
    pub update_time: Nanos,
}

/// A host directory offered as a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolume {
    pub name: String,
    pub path: String,
    pub read_only: bool,
    #[serde(rename = "ID")]
    pub id: String,
}

/// A named network of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostNetwork {
    pub name: String,
    #[serde(rename = "CIDR")]
    pub cidr: String,
    pub interface: String,
    pub reserved_ports: String,
}

/// How a node is being drained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainStrategy {
    /// Nanoseconds: above 0 a deadline, 0 none, below 0 at once.
    pub deadline: Nanos,
    pub ignore_system_jobs: bool,
    /// When the remaining allocations are stopped; none without a deadline.
    pub force_deadline: Option<Nanos>,
    pub started_at: Nanos,
}

/// The last drain of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastDrain {
    pub started_at: Nanos,
    pub updated_at: Nanos,
    /// "draining", "complete" or "canceled".
    pub status: String,
    pub accessor_id: String,
    pub meta: BTreeMap<String, String>,
}

/// Something that happened to a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeEvent {
    pub message: String,
    pub subsystem: String,
    pub details: BTreeMap<String, String>,
    pub timestamp: Nanos,
    pub create_index: u64,
}

/// Node events kept, newest last.
pub const NODE_EVENTS_KEPT: usize = 10;

impl Node {
    /// Whether new allocations may be placed on it.
    pub fn is_ready(&self) -> bool {
        self.status == NodeStatus::Ready && self.drain.is_none() && self.eligibility == Eligibility::Eligible
    }

    /// Whether allocations on it cannot be trusted to go on: down, disconnected or draining.
    pub fn is_tainted(&self) -> bool {
        self.drain.is_some() || matches!(self.status, NodeStatus::Down | NodeStatus::Disconnected)
    }
}
