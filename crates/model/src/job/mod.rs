//! The job and its parts in the registered form: canonical, every default filled in.
//!
//! Field names and their wire names follow `compat/jobspec.tsv`; durations are nanoseconds, sizes megabytes.

mod admit;
mod changes;
mod group;
mod kinds;
mod service;
mod task;

pub use admit::*;
pub(crate) use changes::task_destructive;
pub use changes::*;
pub use group::*;
pub use kinds::*;
pub use service::*;
pub use task::*;

use crate::values::{List, Map, Nanos};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A job: what a user wants to run. The registered form: every default is filled in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Job {
    #[serde(rename = "ID")]
    pub id: String,
    pub name: String,
    pub namespace: String,
    pub region: String,
    #[serde(rename = "Type")]
    pub kind: JobType,
    pub priority: i64,
    pub all_at_once: bool,
    pub datacenters: List<String>,
    pub node_pool: String,
    pub constraints: List<Constraint>,
    pub affinities: List<Affinity>,
    pub spreads: List<Spread>,
    pub task_groups: List<Arc<TaskGroup>>,
    pub update: UpdateStrategy,
    pub periodic: Option<PeriodicConfig>,
    pub parameterized_job: Option<ParameterizedConfig>,
    pub multiregion: Option<serde_json::Value>,
    pub meta: Map<String>,
    #[serde(rename = "UI")]
    pub ui: Option<JobUi>,
    pub payload: Option<String>,
    #[serde(rename = "ParentID")]
    pub parent_id: String,
    pub dispatched: bool,
    pub dispatch_idempotency_token: String,
    pub consul_namespace: String,
    pub vault_namespace: String,
    #[serde(rename = "NomadTokenID")]
    pub nomad_token_id: String,
    pub stop: bool,
    pub stable: bool,
    pub version: u64,
    pub version_tag: Option<VersionTag>,
    pub status: JobStatus,
    pub status_description: String,
    pub submit_time: Nanos,
    pub create_index: u64,
    pub modify_index: u64,
    pub job_modify_index: u64,
}

/// A name given to one version of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VersionTag {
    pub name: String,
    pub description: String,
    pub tagged_time: Nanos,
}

/// What the pages show beside a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobUi {
    pub description: String,
    pub links: List<JobLink>,
}

/// A link shown beside a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobLink {
    pub label: String,
    pub url: String,
}

/// When a periodic job is launched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PeriodicConfig {
    pub enabled: bool,
    pub spec: String,
    #[serde(serialize_with = "crate::values::always_list")]
    pub specs: List<String>,
    pub spec_type: String,
    pub prohibit_overlap: bool,
    pub time_zone: String,
}

/// What a dispatch of a parameterized job takes. Payload: optional, required or forbidden.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ParameterizedConfig {
    pub payload: String,
    pub meta_required: List<String>,
    pub meta_optional: List<String>,
}

/// A condition a node must meet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Constraint {
    pub l_target: String,
    pub r_target: String,
    pub operand: String,
}

/// A preference among nodes; weight -100..100, not 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Affinity {
    pub l_target: String,
    pub r_target: String,
    pub operand: String,
    pub weight: i64,
}

/// Allocations are spread over the values of an attribute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Spread {
    pub attribute: String,
    pub weight: i64,
    pub spread_target: List<SpreadTarget>,
}

/// The share of one value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SpreadTarget {
    pub value: String,
    pub percent: u64,
}

/// How a new version replaces the old one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct UpdateStrategy {
    pub stagger: Nanos,
    pub max_parallel: i64,
    pub health_check: String,
    pub min_healthy_time: Nanos,
    pub healthy_deadline: Nanos,
    pub progress_deadline: Nanos,
    pub auto_revert: bool,
    pub auto_promote: bool,
    pub canary: i64,
}
