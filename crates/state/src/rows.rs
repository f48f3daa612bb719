//! Rows of tables that are no nouns of `model`: what operators configure, counters derived from other rows, and the text
//! a job came from. Field names are the wire form.

use herdsman_model::{AllocId, DeploymentId, EvalId, List, Map, Name, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Names a job: namespace, then id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    pub namespace: Name,
    pub id: Name,
}

impl JobKey {
    /// The key of these two texts.
    pub fn new(namespace: &str, id: &str) -> JobKey {
        JobKey { namespace: Name::from(namespace), id: Name::from(id) }
    }

    /// The key of a job.
    pub fn of(job: &herdsman_model::Job) -> JobKey {
        JobKey::new(&job.namespace, &job.id)
    }
}

/// The name of the namespace that always exists.
pub const DEFAULT_NAMESPACE: &str = "default";
/// The node pool that nodes join when they name none.
pub const DEFAULT_POOL: &str = "default";
/// The node pool that stands for every node.
pub const ALL_POOL: &str = "all";
/// Life of the identity of a node whose pool says nothing: 24 hours.
pub const NODE_IDENTITY_TTL: Nanos = 24 * 3600 * herdsman_model::values::SECOND;
/// Scaling events kept per group.
pub const SCALING_EVENTS_KEPT: usize = 20;

/// A space of job names with limits of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Namespace {
    pub name: String,
    pub description: String,
    pub quota: String,
    pub capabilities: Option<NamespaceCapabilities>,
    pub node_pool_configuration: Option<serde_json::Value>,
    pub vault_configuration: Option<serde_json::Value>,
    pub consul_configuration: Option<serde_json::Value>,
    pub meta: Map<String>,
    pub create_index: u64,
    pub modify_index: u64,
}

/// What jobs of a namespace may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceCapabilities {
    pub enabled_task_drivers: List<String>,
    pub disabled_task_drivers: List<String>,
    pub enabled_network_modes: List<String>,
    pub disabled_network_modes: List<String>,
}

/// A named set of nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodePool {
    pub name: String,
    pub description: String,
    pub meta: Map<String>,
    #[serde(rename = "NodeIdentityTTL")]
    pub node_identity_ttl: Nanos,
    pub scheduler_configuration: Option<PoolSchedulerConfig>,
    pub create_index: u64,
    pub modify_index: u64,
}

/// What a node pool says differently from the cluster's scheduler configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PoolSchedulerConfig {
    pub scheduler_algorithm: String,
    pub memory_oversubscription_enabled: Option<bool>,
}

/// How the schedulers decide, for the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SchedulerConfig {
    /// "binpack" or "spread".
    pub scheduler_algorithm: String,
    pub preemption_config: PreemptionConfig,
    pub memory_oversubscription_enabled: bool,
    pub reject_job_registration: bool,
    pub pause_eval_broker: bool,
    pub node_limit_for_feasibility_checks: i64,
    pub create_index: u64,
    pub modify_index: u64,
}

/// For which kinds of job running work of lower priority is evicted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PreemptionConfig {
    pub system_scheduler_enabled: bool,
    pub sys_batch_scheduler_enabled: bool,
    pub batch_scheduler_enabled: bool,
    pub service_scheduler_enabled: bool,
}

impl Default for SchedulerConfig {
    fn default() -> SchedulerConfig {
        SchedulerConfig {
            scheduler_algorithm: "binpack".to_owned(),
            preemption_config: PreemptionConfig { system_scheduler_enabled: true, ..PreemptionConfig::default() },
            memory_oversubscription_enabled: false,
            reject_job_registration: false,
            pause_eval_broker: false,
            node_limit_for_feasibility_checks: 0,
            create_index: 0,
            modify_index: 0,
        }
    }
}

/// How many allocations of each group of a job stand where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSummary {
    #[serde(rename = "JobID")]
    pub job_id: String,
    #[serde(rename = "Namespace")]
    pub namespace: String,
    #[serde(rename = "Summary")]
    pub groups: BTreeMap<String, GroupSummary>,
    #[serde(rename = "Children")]
    pub children: ChildrenSummary,
    #[serde(rename = "CreateIndex")]
    pub create_index: u64,
    #[serde(rename = "ModifyIndex")]
    pub modify_index: u64,
}

/// How many allocations of a group stand where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GroupSummary {
    pub queued: u64,
    pub complete: u64,
    pub failed: u64,
    pub running: u64,
    pub starting: u64,
    pub lost: u64,
    pub unknown: u64,
}

/// How many launched children of a job stand where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ChildrenSummary {
    pub pending: u64,
    pub running: u64,
    pub dead: u64,
}

/// The text a job version was registered from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSubmission {
    #[serde(rename = "Source")]
    pub source: String,
    /// "hcl2", "hcl1" or "json".
    #[serde(rename = "Format")]
    pub format: String,
    #[serde(rename = "VariableFlags")]
    pub variable_flags: Map<String>,
    #[serde(rename = "Variables")]
    pub variables: String,
    #[serde(rename = "Namespace")]
    pub namespace: String,
    #[serde(rename = "JobID")]
    pub job_id: String,
    #[serde(rename = "Version")]
    pub version: u64,
    #[serde(rename = "JobModifyIndex")]
    pub job_modify_index: u64,
}

/// When a periodic job was last launched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeriodicLaunch {
    pub namespace: String,
    pub job_id: String,
    /// The planned time, nanoseconds since the Unix epoch.
    pub launch: Nanos,
    pub create_index: u64,
    pub modify_index: u64,
}

/// Bounds of a group, with the job it belongs to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScalingPolicyRow {
    pub namespace: String,
    pub job_id: String,
    pub group: String,
    pub policy: herdsman_model::ScalingPolicy,
}

/// One request to scale a group, carried out or only noted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingEvent {
    pub time: Nanos,
    pub count: Option<i64>,
    pub previous_count: i64,
    pub message: String,
    pub error: bool,
    pub meta: Map<serde_json::Value>,
    #[serde(rename = "EvalID")]
    pub eval_id: Option<EvalId>,
    pub create_index: u64,
}

/// The scaling events of a job, newest first, by group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScalingEvents {
    pub namespace: String,
    pub job_id: String,
    pub groups: BTreeMap<String, Vec<ScalingEvent>>,
    pub modify_index: u64,
}

/// Base of the identifiers that one command makes: 16 random bytes that the proposer drew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdSeed(pub u64, pub u64);

impl IdSeed {
    /// A seed from random bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> IdSeed {
        let wide = u128::from_be_bytes(bytes);
        IdSeed(u64::try_from(wide >> 64).unwrap_or(0), u64::try_from(wide & u128::from(u64::MAX)).unwrap_or(0))
    }

    /// The `n`th identifier that follows from this seed: the same on every server.
    pub fn nth(self, n: u64) -> [u8; 16] {
        let high = mix(self.0 ^ mix(n));
        let low = mix(self.1 ^ mix(n.wrapping_add(high)));
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }

    /// The `n`th identifier as an evaluation's.
    pub fn eval(self, n: u64) -> EvalId {
        EvalId(self.nth(n))
    }
}

/// One step of SplitMix64's output function.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Health that somebody or the watcher gives to allocations of a deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthMarks {
    pub healthy: Vec<AllocId>,
    pub unhealthy: Vec<AllocId>,
}

/// Names a deployment and what becomes of it.
pub type DeploymentChange = (DeploymentId, herdsman_model::DeploymentState, String);
