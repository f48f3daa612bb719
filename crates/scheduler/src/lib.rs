//! The pure server brain: (snapshot, evaluation, seed, now) to a [`Decision`], and [`lint()`], a checker of plans that shares
//! no code with the planner beyond the nouns and the constraint language.
//!
//! | module | decides |
//! |---|---|
//! | `reconcile` | what becomes of each existing allocation, and what is missing |
//! | `rules`, `ask`, `load` | which nodes can take a group, and the exact ports, cores and devices |
//! | `stack`, `score`, `spread` | which of them is best |
//! | `preempt` | which allocations of lower priority make room |
//! | `generic`, `system` | the plan |
//! | `lint` | whether a plan is one that may be committed |
//!
//! This crate owns no task and no channel.
//!
//! Architecture invariant: nothing here does IO, reads a clock or draws from a source of chance; time, seed and new ids are
//! arguments, so a plan is a function of (snapshot, evaluation, seed, now).
//! Architecture invariant: iteration order never depends on a hash.
//! Architecture invariant: the load of a node is kept by adding and removing; the cost of a placement does not grow with
//! what is placed already.

mod ask;
mod generic;
mod lint;
mod load;
mod metric;
mod preempt;
mod random;
mod reconcile;
mod rules;
mod score;
mod spread;
mod stack;
mod system;
mod texts;
mod view;

pub use lint::{Finding, Rule, lint};
pub use load::{Capacity, Dimension, Load, PhaseSum, Usage, allocs_fit, usage_of};
pub use reconcile::{fail_time, next_delay, reschedule_allowed};
pub use score::fit;
pub use view::{Algorithm, Config, DEFAULT_NODE_LIMIT, PoolConfig, View};

use herdsman_model::{Decision, EvalId, EvalStatus, Evaluation, Job, JobType, Nanos, PlanResult, Trigger};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tries of a plan without progress before the evaluation of a service or system job is put off.
pub const MAX_ATTEMPTS: u32 = 5;
/// The same for batch and sysbatch jobs, whose plans are small.
pub const MAX_BATCH_ATTEMPTS: u32 = 2;

/// Description of an evaluation that ran out of tries.
pub const MAX_ATTEMPTS_DESCRIPTION: &str = "maximum attempts reached";

/// How often a plan for a job of this type is tried without progress.
pub fn max_attempts(kind: JobType) -> u32 {
    if kind.is_batch() { MAX_BATCH_ATTEMPTS } else { MAX_ATTEMPTS }
}

/// Whether a partly committed plan got something done, so that the tries start anew.
pub fn made_progress(decision: &Decision, result: &PlanResult) -> bool {
    let whole = result.rejected.is_empty();
    whole || !result.placed.is_empty() || decision.plan.stops.keys().any(|node| !result.rejected.contains_key(node))
}

/// Plans for one evaluation.
///
/// `seed` decides every choice among equals; `ids` gives the ids of what is new. When the plan is refused in part, the
/// caller takes a fresher snapshot (at least `refresh_index`) and calls again, at most [`max_attempts`] times without
/// progress; then it gives up with [`give_up`].
///
/// A blocked evaluation that is tried again is passed as it is, its status still blocked: if it fails again it comes back as
/// [`Decision::evaluation`], blocked anew, instead of begetting another one.
///
/// The caller commits the plan, [`Decision::evaluation`] and [`Decision::new_evals`] together. From the plan it appends to
/// an allocation's state changes whatever client status it sets, sets `next_allocation` of the allocation that a placement
/// names as its previous one, adds placements to the counters of their deployment, and takes from [`Plan::deployment`]
/// never a counter of a deployment that exists.
///
/// [`Plan::deployment`]: herdsman_model::Plan::deployment
pub fn process(
    view: &dyn View,
    eval: &Evaluation,
    seed: u64,
    now: Nanos,
    ids: &mut dyn FnMut() -> [u8; 16],
) -> Decision {
    if !accepts(eval.kind, eval.triggered_by) {
        let description = format!("scheduler cannot handle '{}' evaluation reason", eval.triggered_by.as_str());
        return Decision { evaluation: finished(eval, EvalStatus::Failed, &description, now), ..Decision::default() };
    }
    match eval.kind {
        JobType::Service | JobType::Batch => generic::process(view, eval, seed, now, ids),
        JobType::System | JobType::Sysbatch => system::process(view, eval, seed, now, ids),
        JobType::Core => {
            let description = "core evaluations are not planned";
            Decision { evaluation: finished(eval, EvalStatus::Failed, description, now), ..Decision::default() }
        }
    }
}

/// What becomes of an evaluation whose plans were refused [`max_attempts`] times: it fails, and a blocked one takes its
/// place, which is tried again in a while.
pub fn give_up(
    view: &dyn View,
    eval: &Evaluation,
    last: &Decision,
    now: Nanos,
    ids: &mut dyn FnMut() -> [u8; 16],
) -> Decision {
    let mut evaluation = finished(eval, EvalStatus::Failed, MAX_ATTEMPTS_DESCRIPTION, now);
    evaluation.failed_groups = last.failed_groups.clone();
    evaluation.queued_allocations = last.queued_allocations.clone();
    let mut new_evals = Vec::new();
    if !eval.kind.is_system() {
        let mut blocked = blocked(view, eval, view.job(&eval.namespace, &eval.job_id).as_deref(), now, ids);
        blocked.triggered_by = Trigger::MaxPlanAttempts;
        blocked.status_description = texts::BLOCKED_PLAN.to_owned();
        evaluation.blocked_eval = Some(blocked.id);
        new_evals.push(blocked);
    }
    Decision {
        evaluation,
        new_evals,
        failed_groups: last.failed_groups.clone(),
        queued_allocations: last.queued_allocations.clone(),
        ..Decision::default()
    }
}

/// Whether evaluations made for this reason are planned for jobs of this type.
fn accepts(kind: JobType, trigger: Trigger) -> bool {
    match kind {
        JobType::Service | JobType::Batch => trigger != Trigger::Scheduled,
        JobType::System | JobType::Sysbatch => match trigger {
            Trigger::JobRegister
            | Trigger::NodeUpdate
            | Trigger::FailedFollowUp
            | Trigger::JobDeregister
            | Trigger::RollingUpdate
            | Trigger::Preemption
            | Trigger::DeploymentWatcher
            | Trigger::NodeDrain
            | Trigger::AllocStop
            | Trigger::QueuedAllocs
            | Trigger::JobScaling
            // Asked for by the reconciler itself, and by a failed allocation that no node restarts any more.
            | Trigger::AllocFailure
            | Trigger::MaxDisconnectTimeout
            | Trigger::Reconnect => true,
            Trigger::PeriodicJob => kind == JobType::Sysbatch,
            _ => false,
        },
        JobType::Core => true,
    }
}

/// The evaluation at its end.
pub(crate) fn finished(eval: &Evaluation, status: EvalStatus, description: &str, now: Nanos) -> Evaluation {
    Evaluation {
        status,
        status_description: description.to_owned(),
        failed_groups: BTreeMap::new(),
        modify_time: now,
        ..eval.clone()
    }
}

/// An evaluation that waits for room.
pub(crate) fn blocked(
    view: &dyn View,
    eval: &Evaluation,
    job: Option<&Job>,
    now: Nanos,
    ids: &mut dyn FnMut() -> [u8; 16],
) -> Evaluation {
    Evaluation {
        id: EvalId(ids()),
        namespace: Arc::clone(&eval.namespace),
        priority: eval.priority,
        kind: eval.kind,
        triggered_by: Trigger::QueuedAllocs,
        job_id: Arc::clone(&eval.job_id),
        job_modify_index: job.map_or(0, |j| j.modify_index),
        status: EvalStatus::Blocked,
        status_description: texts::BLOCKED_FAILED.to_owned(),
        previous_eval: Some(eval.id),
        snapshot_index: view.index(),
        create_time: now,
        modify_time: now,
        ..Evaluation::default()
    }
}
