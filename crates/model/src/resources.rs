//! Resources as asked for by tasks, as granted to allocations and as offered by nodes.

use crate::values::{List, Map};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was granted to an allocation; shared by all allocations of one job version and group where equal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedResources {
    pub tasks: BTreeMap<String, AllocatedTaskResources>,
    /// Lifecycle of each task, so that fit can be decided without the job.
    pub task_lifecycles: BTreeMap<String, Option<crate::job::TaskLifecycle>>,
    pub shared: AllocatedSharedResources,
}

/// What was granted to one task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedTaskResources {
    pub cpu: AllocatedCpu,
    pub memory: AllocatedMemory,
    pub networks: List<NetworkResource>,
    pub devices: List<AllocatedDevice>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedCpu {
    /// Megahertz.
    pub cpu_shares: i64,
    pub reserved_cores: List<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatedMemory {
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: i64,
}

/// A device instance granted to a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatedDevice {
    #[serde(rename = "Vendor")]
    pub vendor: String,
    #[serde(rename = "Type")]
    pub kind: String,
    #[serde(rename = "Name")]
    pub name: String,
    #[serde(rename = "DeviceIDs")]
    pub device_ids: List<String>,
}

/// What was granted to the group as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatedSharedResources {
    #[serde(rename = "Networks")]
    pub networks: List<NetworkResource>,
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
    #[serde(rename = "Ports")]
    pub ports: List<AllocatedPort>,
}

/// One host port granted to a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatedPort {
    #[serde(rename = "Label")]
    pub label: String,
    #[serde(rename = "Value")]
    pub value: i64,
    #[serde(rename = "To", skip_serializing_if = "is_zero")]
    pub to: i64,
    #[serde(rename = "HostIP")]
    pub host_ip: String,
    #[serde(rename = "IgnoreCollision", skip_serializing_if = "is_false")]
    pub ignore_collision: bool,
}

fn is_zero(value: &i64) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// A group's network: what was asked for and, in an allocation, what was granted. Empty fields are left out on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkResource {
    #[serde(rename = "Mode", skip_serializing_if = "String::is_empty")]
    pub mode: String,
    #[serde(rename = "Device", skip_serializing_if = "String::is_empty")]
    pub device: String,
    #[serde(rename = "CIDR", skip_serializing_if = "String::is_empty")]
    pub cidr: String,
    #[serde(rename = "IP", skip_serializing_if = "String::is_empty")]
    pub ip: String,
    #[serde(rename = "Hostname", skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    #[serde(rename = "MBits", skip_serializing_if = "is_zero")]
    pub mbits: i64,
    #[serde(rename = "DNS", skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsConfig>,
    #[serde(rename = "CNI", skip_serializing_if = "Option::is_none")]
    pub cni: Option<CniConfig>,
    #[serde(rename = "ReservedPorts", skip_serializing_if = "no_ports")]
    pub reserved_ports: List<Port>,
    #[serde(rename = "DynamicPorts", skip_serializing_if = "no_ports")]
    pub dynamic_ports: List<Port>,
}

fn no_ports(ports: &List<Port>) -> bool {
    ports.is_empty()
}

/// A port of a group. `value` is the host port (static, or granted), `to` the port inside the network namespace
/// (0: none asked for, -1: same as the host port).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    #[serde(rename = "Label")]
    pub label: String,
    #[serde(rename = "Value", skip_serializing_if = "is_zero")]
    pub value: i64,
    #[serde(rename = "To", skip_serializing_if = "is_zero")]
    pub to: i64,
    #[serde(rename = "HostNetwork", skip_serializing_if = "String::is_empty")]
    pub host_network: String,
    #[serde(rename = "IgnoreCollision", skip_serializing_if = "is_false")]
    pub ignore_collision: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DnsConfig {
    pub servers: List<String>,
    pub searches: List<String>,
    pub options: List<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CniConfig {
    pub args: Map<String>,
}
