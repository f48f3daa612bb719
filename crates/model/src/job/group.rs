//! The task group and its policies.

use crate::job::{Affinity, Constraint, Service, Spread, Task, UpdateStrategy};
use crate::resources::NetworkResource;
use crate::values::{List, Map, Nanos};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Tasks that run together on one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskGroup {
    pub name: String,
    pub count: i64,
    pub tasks: List<Arc<Task>>,
    pub constraints: List<Constraint>,
    pub affinities: List<Affinity>,
    pub spreads: List<Spread>,
    pub restart_policy: RestartPolicy,
    pub reschedule_policy: Option<ReschedulePolicy>,
    pub ephemeral_disk: EphemeralDisk,
    pub update: Option<UpdateStrategy>,
    pub migrate: Option<MigrateStrategy>,
    pub disconnect: Option<DisconnectStrategy>,
    pub networks: List<NetworkResource>,
    pub services: List<Service>,
    pub volumes: Map<VolumeRequest>,
    pub scaling: Option<ScalingPolicy>,
    pub consul: Option<Consul>,
    pub meta: Map<String>,
    pub shutdown_delay: Option<Nanos>,
    pub max_run_duration: Option<Nanos>,
    pub stop_after_client_disconnect: Option<Nanos>,
    pub max_client_disconnect: Option<Nanos>,
    pub prevent_reschedule_on_lost: bool,
}

/// How often a node starts a task again. Mode: fail or delay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RestartPolicy {
    pub attempts: i64,
    pub interval: Nanos,
    pub delay: Nanos,
    pub mode: String,
    pub render_templates: bool,
}

/// How the servers replace a failed allocation. DelayFunction: constant, exponential or fibonacci.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReschedulePolicy {
    pub attempts: i64,
    pub interval: Nanos,
    pub delay: Nanos,
    pub delay_function: String,
    pub max_delay: Nanos,
    pub unlimited: bool,
}

/// The disk shared by the tasks of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EphemeralDisk {
    pub sticky: bool,
    pub migrate: bool,
    #[serde(rename = "SizeMB")]
    pub size_mb: i64,
}

/// How allocations leave a draining node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MigrateStrategy {
    pub max_parallel: i64,
    pub health_check: String,
    pub min_healthy_time: Nanos,
    pub healthy_deadline: Nanos,
}

/// What happens when node and servers lose each other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DisconnectStrategy {
    pub lost_after: Nanos,
    pub stop_on_client_after: Option<Nanos>,
    pub replace: Option<bool>,
    pub reconcile: String,
}

/// A volume a group asks for. Type: host or csi.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeRequest {
    pub name: String,
    #[serde(rename = "Type")]
    pub kind: String,
    pub source: String,
    pub read_only: bool,
    pub sticky: bool,
    pub access_mode: String,
    pub attachment_mode: String,
    pub mount_options: Option<MountOptions>,
    pub per_alloc: bool,
}

/// How a CSI volume is mounted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MountOptions {
    #[serde(rename = "FSType")]
    pub fs_type: String,
    pub mount_flags: List<String>,
}

/// Bounds within which a group or task may be scaled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingPolicy {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(rename = "Type")]
    pub kind: String,
    pub target: Map<String>,
    pub policy: Map<serde_json::Value>,
    pub min: i64,
    pub max: i64,
    pub enabled: bool,
    pub create_index: u64,
    pub modify_index: u64,
}

/// Which Consul cluster, namespace and partition apply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Consul {
    pub namespace: String,
    pub cluster: String,
    pub partition: String,
}
