//! The task and what belongs to it.

use crate::job::{Affinity, Constraint, Consul, Hook, RestartPolicy, ScalingPolicy, Service};
use crate::resources::NetworkResource;
use crate::values::{List, Map, Nanos};
use serde::{Deserialize, Serialize};

/// One process or container of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Task {
    pub name: String,
    pub driver: String,
    pub user: String,
    pub lifecycle: Option<TaskLifecycle>,
    pub config: Map<serde_json::Value>,
    pub env: Map<String>,
    pub meta: Map<String>,
    pub services: List<Service>,
    pub resources: Resources,
    pub restart_policy: RestartPolicy,
    pub constraints: List<Constraint>,
    pub affinities: List<Affinity>,
    pub log_config: LogConfig,
    pub artifacts: List<Artifact>,
    pub templates: List<Template>,
    pub dispatch_payload: Option<DispatchPayload>,
    pub volume_mounts: List<VolumeMount>,
    #[serde(rename = "CSIPluginConfig")]
    pub csi_plugin_config: Option<CsiPluginConfig>,
    pub vault: Option<Vault>,
    pub consul: Option<Consul>,
    pub secrets: List<Secret>,
    pub identity: Option<Identity>,
    pub identities: List<Identity>,
    pub actions: List<Action>,
    pub scaling_policies: List<ScalingPolicy>,
    pub schedule: Option<serde_json::Value>,
    pub kill_timeout: Nanos,
    pub kill_signal: String,
    pub shutdown_delay: Nanos,
    pub leader: bool,
    #[serde(rename = "Kind")]
    pub connect_kind: String,
}

/// When a task runs relative to the main tasks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskLifecycle {
    pub hook: Hook,
    pub sidecar: bool,
}

/// Rotation of the logs of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LogConfig {
    pub max_files: i64,
    #[serde(rename = "MaxFileSizeMB")]
    pub max_file_size_mb: i64,
    pub disabled: bool,
}

/// A file or archive fetched before the task starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Artifact {
    pub getter_source: String,
    pub getter_options: Map<String>,
    pub getter_headers: Map<String>,
    pub getter_mode: String,
    pub getter_insecure: bool,
    pub relative_dest: String,
    pub chown: bool,
}

/// A file rendered before the task starts and again on change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Template {
    pub source_path: String,
    pub dest_path: String,
    pub embedded_tmpl: String,
    pub change_mode: String,
    pub change_signal: String,
    pub change_script: Option<ChangeScript>,
    pub once: bool,
    pub splay: Nanos,
    pub perms: String,
    pub uid: Option<i64>,
    pub gid: Option<i64>,
    pub left_delim: String,
    pub right_delim: String,
    pub envvars: bool,
    pub err_missing_key: bool,
    pub vault_grace: Nanos,
    pub wait: Option<WaitConfig>,
}

/// A script run when a template changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ChangeScript {
    pub command: String,
    #[serde(serialize_with = "crate::values::always_list")]
    pub args: List<String>,
    pub timeout: Nanos,
    pub fail_on_error: bool,
    pub run_on_first_render: bool,
}

/// How long rendering waits for quiet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct WaitConfig {
    pub min: Option<Nanos>,
    pub max: Option<Nanos>,
}

/// Where the payload of a dispatch is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DispatchPayload {
    pub file: String,
}

/// Where a volume of the group is mounted in a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeMount {
    pub volume: String,
    pub destination: String,
    pub read_only: bool,
    pub propagation_mode: String,
    #[serde(rename = "SELinuxLabel")]
    pub se_linux_label: String,
}

/// Says that the task is a CSI plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CsiPluginConfig {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(rename = "Type")]
    pub kind: String,
    pub mount_dir: String,
    pub stage_publish_base_dir: String,
    pub health_timeout: Nanos,
}

/// Which Vault token a task gets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Vault {
    pub role: String,
    pub policies: List<String>,
    pub namespace: String,
    pub cluster: String,
    pub env: bool,
    pub disable_file: bool,
    pub change_mode: String,
    pub change_signal: String,
    pub allow_token_expiration: bool,
}

/// A secret of a provider, reachable by interpolation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Secret {
    pub name: String,
    pub provider: String,
    pub path: String,
    pub config: Map<serde_json::Value>,
    pub env: Map<String>,
}

/// A workload identity.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Identity {
    pub name: String,
    pub audience: List<String>,
    pub change_mode: String,
    pub change_signal: String,
    pub env: bool,
    pub extra_claims: List<String>,
    pub file: bool,
    pub filepath: String,
    pub service_name: String,
    #[serde(rename = "TTL")]
    pub ttl: Nanos,
}

/// A named command that may be run inside the task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Action {
    pub name: String,
    pub command: String,
    pub args: List<String>,
}

/// What a task asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Resources {
    #[serde(rename = "CPU")]
    pub cpu: i64,
    pub cores: i64,
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: i64,
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
    #[serde(rename = "IOPS")]
    pub iops: i64,
    #[serde(rename = "SecretsMB")]
    pub secrets_mb: i64,
    pub networks: List<NetworkResource>,
    pub devices: List<RequestedDevice>,
    #[serde(rename = "NUMA")]
    pub numa: Option<Numa>,
}

/// A device a task asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RequestedDevice {
    pub name: String,
    pub count: u64,
    pub constraints: List<Constraint>,
    pub affinities: List<Affinity>,
}

/// How cores of one NUMA node are preferred.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Numa {
    pub affinity: String,
    pub devices: List<String>,
}
