//! The plan: what a scheduler wants done about an evaluation, as a value the executor follows without choices.

use crate::alloc::{Allocation, ClientStatus, DesiredStatus};
use crate::deployment::{Deployment, DeploymentUpdate};
use crate::eval::Evaluation;
use crate::ids::{AllocId, EvalId, NodeId, opt_id};
use crate::job::Job;
use crate::values::List;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a scheduler wants done about one evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub eval_id: EvalId,
    pub priority: i64,
    /// Everything or nothing is to be committed.
    pub all_at_once: bool,
    /// The job version planned for; none when the job is gone.
    pub job: Option<Arc<Job>>,
    /// Existing allocations to stop, evict or mark, by node.
    pub stops: BTreeMap<NodeId, Vec<AllocStop>>,
    /// New allocations and in-place updates (an id that exists), by node.
    pub placements: BTreeMap<NodeId, Vec<Arc<Allocation>>>,
    /// Allocations of other jobs that make room, by node.
    pub preemptions: BTreeMap<NodeId, Vec<AllocStop>>,
    /// The deployment this plan starts or changes the group states of.
    pub deployment: Option<Deployment>,
    pub deployment_updates: Vec<DeploymentUpdate>,
    pub annotations: Option<Arc<PlanAnnotations>>,
    /// Index of the snapshot the plan was made from.
    pub snapshot_index: u64,
}

/// What becomes of an existing allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocStop {
    pub id: AllocId,
    pub desired_status: DesiredStatus,
    pub desired_description: String,
    /// Set when the servers decide for an unreachable node (lost, unknown).
    pub client_status: Option<ClientStatus>,
    #[serde(with = "opt_id")]
    pub follow_up_eval: Option<EvalId>,
    /// Set when a new allocation makes room for itself.
    #[serde(with = "opt_id")]
    pub preempted_by: Option<AllocId>,
    /// Notes that the last reschedule found no place.
    pub reschedule_failed: bool,
}

impl Plan {
    /// Nothing would change.
    pub fn is_noop(&self) -> bool {
        self.stops.is_empty()
            && self.placements.is_empty()
            && self.preemptions.is_empty()
            && self.deployment.is_none()
            && self.deployment_updates.is_empty()
    }
}

/// What was committed of a plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanResult {
    /// Nodes whose part of the plan was refused, with the reason.
    pub rejected: BTreeMap<NodeId, String>,
    /// Placements committed, by node.
    pub placed: BTreeMap<NodeId, Vec<AllocId>>,
    /// The scheduler must see this index before it tries again; 0: all was committed.
    pub refresh_index: u64,
    /// Index of the commit.
    pub alloc_index: u64,
}

/// The counts that a plan shows to people.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanAnnotations {
    #[serde(rename = "DesiredTGUpdates")]
    pub desired_tg_updates: BTreeMap<String, DesiredUpdates>,
    #[serde(rename = "PreemptedAllocs")]
    pub preempted_allocs: List<serde_json::Value>,
}

/// How many allocations of a group meet which fate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DesiredUpdates {
    pub ignore: u64,
    pub place: u64,
    pub migrate: u64,
    pub stop: u64,
    pub in_place_update: u64,
    pub destructive_update: u64,
    pub canary: u64,
    pub preemptions: u64,
    pub disconnect: u64,
    pub reconnect: u64,
    pub reschedule_now: u64,
    pub reschedule_later: u64,
}

/// What a scheduler decided about an evaluation: the plan and what becomes of the evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    pub plan: Plan,
    /// The evaluation as it stands once the plan is committed as a whole: status, blocked evaluation, failed groups,
    /// queued allocations, deployment, annotations.
    pub evaluation: Evaluation,
    /// Evaluations to create: blocked, follow-up, delayed.
    pub new_evals: Vec<Evaluation>,
    /// Groups that could not be placed.
    pub failed_groups: BTreeMap<String, Arc<crate::alloc::AllocMetric>>,
    pub queued_allocations: BTreeMap<String, u64>,
}
