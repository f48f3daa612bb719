//! The allocation: one placement of a task group on a node, its task states, and its outcome.

use crate::event::TaskEvent;
use crate::ids::{AllocId, DeploymentId, EvalId, NodeId, opt_id};
use crate::resources::AllocatedResources;
use crate::values::{List, Name, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the servers want of an allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredStatus {
    #[default]
    Run,
    Stop,
    Evict,
}

/// What the node last said of an allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientStatus {
    #[default]
    Pending,
    Running,
    Complete,
    Failed,
    Lost,
    Unknown,
}

macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $type {
            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words!(DesiredStatus { Run = "run", Stop = "stop", Evict = "evict" });
words!(ClientStatus {
    Pending = "pending",
    Running = "running",
    Complete = "complete",
    Failed = "failed",
    Lost = "lost",
    Unknown = "unknown",
});

impl DesiredStatus {
    /// The servers want it ended.
    pub fn is_terminal(self) -> bool {
        !matches!(self, DesiredStatus::Run)
    }
}

impl ClientStatus {
    /// Nothing of it runs any more and nothing will. `Unknown` is not terminal.
    pub fn is_terminal(self) -> bool {
        matches!(self, ClientStatus::Complete | ClientStatus::Failed | ClientStatus::Lost)
    }
}

/// How the work of an allocation ended, set once all tasks but poststop are dead with no restart left. The client status
/// becomes terminal only when the poststop tasks are dead too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub kind: OutcomeKind,
    /// When it was decided on the node.
    pub time: Nanos,
}

/// The ways an allocation's work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeKind {
    Complete,
    Failed,
    Stopped,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskPhase {
    #[default]
    Pending,
    Running,
    Dead,
}

words!(TaskPhase { Pending = "pending", Running = "running", Dead = "dead" });

/// What is known of a task. Only ever added to: no path writes an empty state over a known one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskState {
    pub state: TaskPhase,
    pub failed: bool,
    pub restarts: u64,
    pub last_restart: Option<Nanos>,
    pub started_at: Option<Nanos>,
    pub finished_at: Option<Nanos>,
    pub events: Vec<TaskEvent>,
}

impl TaskState {
    /// Dead, and not failed.
    pub fn successful(&self) -> bool {
        self.state == TaskPhase::Dead && !self.failed
    }
}

/// What the servers ask the node and the scheduler to do with a running allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DesiredTransition {
    pub migrate: Option<bool>,
    pub reschedule: Option<bool>,
    pub force_reschedule: Option<bool>,
    pub no_shutdown_delay: Option<bool>,
    pub migrate_disable_placement: Option<bool>,
}

impl DesiredTransition {
    /// Whether it is to be moved elsewhere.
    pub fn should_migrate(&self) -> bool {
        self.migrate == Some(true)
    }
    /// Whether it is to be rescheduled.
    pub fn should_reschedule(&self) -> bool {
        self.reschedule == Some(true)
    }
    /// Whether it is to be rescheduled whatever its policy says.
    pub fn should_force_reschedule(&self) -> bool {
        self.force_reschedule == Some(true)
    }
}

/// Health of an allocation within its deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeploymentStatus {
    /// Unset until health is decided.
    pub healthy: Option<bool>,
    pub timestamp: Option<Nanos>,
    pub canary: bool,
    pub modify_index: u64,
}

/// One earlier reschedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescheduleEvent {
    pub time: Nanos,
    pub prev_alloc: AllocId,
    pub prev_node: NodeId,
    pub delay: Nanos,
}

/// The reschedules that led to an allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RescheduleTracker {
    pub events: Vec<RescheduleEvent>,
    /// "ok" or "no placement".
    pub last_reschedule: String,
}

/// A change of a recorded field of an allocation (today only its client status), with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocStateChange {
    pub value: ClientStatus,
    pub time: Nanos,
}

/// What the node knows of an allocation's network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkStatus {
    pub interface_name: String,
    pub address: String,
    #[serde(rename = "AddressIPv6")]
    pub address_ipv6: String,
    #[serde(rename = "DNS")]
    pub dns: Option<crate::resources::DnsConfig>,
}

/// One placement of a task group on a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allocation {
    pub id: AllocId,
    pub namespace: Name,
    /// `<job>.<group>[<index>]`.
    pub name: String,
    pub eval_id: EvalId,
    pub node_id: NodeId,
    pub node_name: Name,
    pub job_id: Name,
    pub job_version: u64,
    /// Create index of the job, so that a job registered anew under the same id is told apart.
    pub job_create_index: u64,
    /// Job modify index that this allocation was last brought up to (placement or in-place update).
    pub job_modify_index: u64,
    pub task_group: Name,
    pub resources: Arc<AllocatedResources>,
    pub metrics: Option<Arc<AllocMetric>>,
    pub desired_status: DesiredStatus,
    pub desired_description: String,
    pub desired_transition: DesiredTransition,
    pub client_status: ClientStatus,
    pub client_description: String,
    pub outcome: Option<Outcome>,
    pub task_states: BTreeMap<Name, TaskState>,
    pub state_changes: Vec<AllocStateChange>,
    #[serde(with = "opt_id")]
    pub deployment_id: Option<DeploymentId>,
    pub deployment_status: Option<DeploymentStatus>,
    pub reschedule_tracker: Option<Arc<RescheduleTracker>>,
    pub network_status: Option<NetworkStatus>,
    #[serde(with = "opt_id")]
    pub follow_up_eval: Option<EvalId>,
    #[serde(with = "opt_id")]
    pub previous_allocation: Option<AllocId>,
    #[serde(with = "opt_id")]
    pub next_allocation: Option<AllocId>,
    pub preempted_allocations: Vec<AllocId>,
    #[serde(with = "opt_id")]
    pub preempted_by: Option<AllocId>,
    pub create_index: u64,
    pub modify_index: u64,
    /// Index of the last change made by the servers (not by the node).
    pub alloc_modify_index: u64,
    pub create_time: Nanos,
    pub modify_time: Nanos,
}

impl Allocation {
    /// The servers want it ended.
    pub fn server_terminal(&self) -> bool {
        self.desired_status.is_terminal()
    }

    /// Nothing of it runs any more.
    pub fn client_terminal(&self) -> bool {
        self.client_status.is_terminal()
    }

    /// Either side has ended it.
    pub fn terminal(&self) -> bool {
        self.server_terminal() || self.client_terminal()
    }

    /// Its work failed: the outcome says so even while poststop still runs.
    pub fn work_failed(&self) -> bool {
        self.client_status == ClientStatus::Failed
            || self.outcome.as_ref().is_some_and(|o| o.kind == OutcomeKind::Failed)
    }

    /// Its work is over, whether or not poststop still runs.
    pub fn work_over(&self) -> bool {
        self.client_terminal() || self.outcome.is_some()
    }

    /// Whether this is a canary of its deployment.
    pub fn is_canary(&self) -> bool {
        self.deployment_status.as_ref().is_some_and(|d| d.canary)
    }

    /// The decided health, if any.
    pub fn healthy(&self) -> Option<bool> {
        self.deployment_status.as_ref().and_then(|d| d.healthy)
    }

    /// The index in the name `<job>.<group>[<index>]`.
    pub fn index(&self) -> Option<u64> {
        let inner = self.name.rsplit_once('[')?.1.strip_suffix(']')?;
        inner.parse().ok()
    }
}

/// The name of an allocation.
pub fn alloc_name(job_id: &str, group: &str, index: u64) -> String {
    format!("{job_id}.{group}[{index}]")
}

/// Why nodes were chosen or refused for a placement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocMetric {
    pub nodes_evaluated: u64,
    pub nodes_filtered: u64,
    pub nodes_in_pool: u64,
    pub node_pool: String,
    /// Ready nodes per datacenter.
    pub nodes_available: std::collections::BTreeMap<String, u64>,
    pub class_filtered: crate::values::Map<u64>,
    pub constraint_filtered: crate::values::Map<u64>,
    pub nodes_exhausted: u64,
    pub class_exhausted: crate::values::Map<u64>,
    pub dimension_exhausted: crate::values::Map<u64>,
    pub quota_exhausted: List<String>,
    pub resources_exhausted: crate::values::Map<serde_json::Value>,
    pub scores: crate::values::Map<f64>,
    pub score_meta_data: List<NodeScore>,
    /// Nanoseconds.
    pub allocation_time: Nanos,
    pub coalesced_failures: u64,
}

/// The scores one node got.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeScore {
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    #[serde(rename = "Scores")]
    pub scores: crate::values::Map<f64>,
    #[serde(rename = "NormScore")]
    pub norm_score: f64,
}
