//! What nodes and users say of allocations.

use super::{Applied, reschedule::reschedule_eligible};
use crate::codec::Reply;
use crate::command::{AllocTransitions, UpdateAllocs};
use crate::link::alloc_key;
use crate::rows::JobKey;
use crate::txn::Txn;
use herdsman_model::{
    AllocId, AllocStateChange, Allocation, ClientStatus, DesiredStatus, DesiredTransition, EvalId, Job, JobType,
    TaskPhase, TaskRole, TaskState, Trigger,
};
use herdsman_proto::AllocUpdate;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) fn update(txn: &mut Txn<'_>, command: UpdateAllocs) -> Applied {
    txn.seed(command.seed);
    let mut reply = Reply::default();
    let mut wanted: BTreeMap<JobKey, (Trigger, AllocId)> = BTreeMap::new();
    for update in command.updates {
        let Some(stored) = txn.s.allocs.get(&update.id).cloned() else { continue };
        let id = update.id;
        let (alloc, trigger) = take_over(txn, &stored, update);
        if let Some(trigger) = trigger {
            wanted.entry(alloc_key(&alloc)).or_insert((trigger, id));
        }
        txn.put_alloc(alloc);
    }
    for (key, (trigger, alloc)) in wanted {
        let job = txn.s.jobs.get(&key).cloned();
        let kind = match &job {
            Some(job) => job.kind,
            None => kind_of_gone(txn, alloc),
        };
        reply.eval_ids.push(make_eval_for(txn, &key, job.as_ref(), kind, trigger));
    }
    Ok(reply)
}

/// The type of a job that is gone, as its allocation remembers it.
fn kind_of_gone(txn: &Txn<'_>, alloc: AllocId) -> JobType {
    txn.s.allocs.get(&alloc).and_then(|alloc| txn.s.alloc_job(alloc)).map_or(JobType::Service, |job| job.kind)
}

/// Makes an evaluation for a job that may be gone.
pub(crate) fn make_eval_for(
    txn: &mut Txn<'_>,
    key: &JobKey,
    job: Option<&Arc<Job>>,
    kind: JobType,
    trigger: Trigger,
) -> EvalId {
    let id = EvalId(txn.next_id());
    let eval = herdsman_model::Evaluation {
        id,
        namespace: key.namespace.clone(),
        job_id: key.id.clone(),
        priority: super::jobs::priority_of(job),
        kind,
        triggered_by: trigger,
        job_modify_index: job.map_or(0, |job| job.modify_index),
        ..Default::default()
    };
    txn.put_eval(eval);
    id
}

/// The allocation after an update, and whether its job is to be evaluated for it.
fn take_over(txn: &mut Txn<'_>, stored: &Arc<Allocation>, update: AllocUpdate) -> (Allocation, Option<Trigger>) {
    let mut alloc = Allocation::clone(stored);
    let job = txn.s.alloc_job(stored).cloned();
    let begins_anew = begins_new_run(job.as_ref(), &stored.task_group, &update);
    for (task, state) in update.task_states {
        match alloc.task_states.get_mut(&task) {
            Some(known) => merge_task_state(known, state),
            None => {
                let name = txn.intern(&task);
                alloc.task_states.insert(name, state);
            }
        }
    }
    alloc.client_status = update.client_status;
    alloc.client_description = update.client_description;
    match update.outcome {
        Some(outcome) => alloc.outcome = Some(outcome),
        None if begins_anew => alloc.outcome = None,
        None => {}
    }
    merge_state_changes(&mut alloc.state_changes, &update.state_changes);
    if update.network_status.is_some() {
        alloc.network_status = update.network_status;
    }
    // Health is told for deployments, and for migrations, which have none.
    if let Some(said) = &update.deployment_status
        && (said.healthy.is_some() || alloc.deployment_id.is_some())
    {
        let canary = alloc.is_canary();
        let known = alloc.deployment_status.get_or_insert_with(Default::default);
        if said.healthy.is_some() {
            known.healthy = said.healthy;
            known.timestamp = said.timestamp.or(Some(txn.now));
        }
        known.canary = canary;
    }
    decide_health(txn, &mut alloc);
    let trigger = trigger_for(txn, stored, &mut alloc, job.as_ref());
    super::deployments::count_alloc(txn, Some(stored), &mut alloc);
    (alloc, trigger)
}

/// Work that failed, or was cut short, before it was ever healthy was not healthy: the outcome decides, also while
/// poststop still runs.
fn decide_health(txn: &Txn<'_>, alloc: &mut Allocation) {
    let undecided = alloc.healthy().is_none();
    let failed = alloc.work_failed();
    if !undecided || !failed {
        return;
    }
    let active = alloc.deployment_id.and_then(|id| txn.s.deployments.get(&id)).is_some_and(|d| d.is_active());
    if active {
        let status = alloc.deployment_status.get_or_insert_with(Default::default);
        status.healthy = Some(false);
        status.timestamp = Some(txn.now);
    }
}

/// Whether an update says that the tasks run again after the allocation's work was over.
fn begins_new_run(job: Option<&Arc<Job>>, group: &str, update: &AllocUpdate) -> bool {
    if update.client_status.is_terminal() || update.outcome.is_some() {
        return false;
    }
    let Some(group) = job.and_then(|job| job.group(group)) else { return false };
    update.task_states.iter().any(|(task, state)| {
        state.state != TaskPhase::Dead && group.task(task).is_some_and(|task| task.role() != TaskRole::Poststop)
    })
}

/// Whether the job is to be evaluated because of an update, with what that does to the allocation
/// (`compat/scheduler.md` section 1).
fn trigger_for(
    txn: &mut Txn<'_>,
    stored: &Allocation,
    alloc: &mut Allocation,
    job: Option<&Arc<Job>>,
) -> Option<Trigger> {
    let key = alloc_key(alloc);
    if !txn.s.jobs.contains_key(&key) {
        if alloc.client_terminal() && alloc.server_terminal() {
            return None;
        }
        alloc.desired_status = DesiredStatus::Stop;
        alloc.alloc_modify_index = txn.index;
        return (!alloc.client_terminal()).then_some(Trigger::JobDeregister);
    }
    if stored.client_status == ClientStatus::Unknown && alloc.client_status != ClientStatus::Unknown {
        forget_follow_up(txn, alloc);
        return Some(Trigger::Reconnect);
    }
    if alloc.work_failed() && !stored.work_failed() && alloc.follow_up_eval.is_none() {
        let policy = job.and_then(|job| job.group(&alloc.task_group)).and_then(|group| group.reschedule_policy.clone());
        if reschedule_eligible(policy.as_ref(), alloc, txn.now) {
            return Some(Trigger::AllocFailure);
        }
    }
    None
}

/// A reconnected allocation no longer waits for the end of its disconnect, so that a later failure counts.
fn forget_follow_up(txn: &mut Txn<'_>, alloc: &mut Allocation) {
    let Some(eval) = alloc.follow_up_eval.take() else { return };
    let key = alloc_key(alloc);
    let shared = txn.s.allocs_by_job(&key).any(|other| other.id != alloc.id && other.follow_up_eval == Some(eval));
    if !shared {
        super::evals::cancel(txn, eval, "allocation reconnected");
    }
}

/// States are only ever added to: what a node leaves out or sends empty stays as it was.
pub(crate) fn merge_task_state(known: &mut TaskState, said: TaskState) {
    if said == TaskState::default() {
        return;
    }
    known.state = said.state;
    known.failed = said.failed;
    known.restarts = known.restarts.max(said.restarts);
    known.last_restart = said.last_restart.or(known.last_restart);
    known.started_at = said.started_at.or(known.started_at);
    known.finished_at = match said.state {
        TaskPhase::Dead => said.finished_at.or(known.finished_at),
        _ => said.finished_at,
    };
    if !said.events.is_empty() {
        known.events = said.events;
    }
}

/// Adds the changes that are not yet known, in the order of time.
pub(crate) fn merge_state_changes(known: &mut Vec<AllocStateChange>, said: &[AllocStateChange]) {
    for change in said {
        if !known.contains(change) {
            known.push(change.clone());
        }
    }
    known.sort_by_key(|change| change.time);
}

/// Adds what is asked for to what was asked for before.
pub(crate) fn merge_transition(known: &mut DesiredTransition, asked: &DesiredTransition) {
    known.migrate = asked.migrate.or(known.migrate);
    known.reschedule = asked.reschedule.or(known.reschedule);
    known.force_reschedule = asked.force_reschedule.or(known.force_reschedule);
    known.no_shutdown_delay = asked.no_shutdown_delay.or(known.no_shutdown_delay);
    known.migrate_disable_placement = asked.migrate_disable_placement.or(known.migrate_disable_placement);
}

pub(crate) fn transition(txn: &mut Txn<'_>, command: AllocTransitions) -> Applied {
    txn.seed(command.seed);
    let mut reply = Reply::default();
    let mut jobs: BTreeMap<JobKey, JobType> = BTreeMap::new();
    for (id, asked) in command.transitions {
        let Some(stored) = txn.s.allocs.get(&id).cloned() else { continue };
        let mut alloc = Allocation::clone(&stored);
        merge_transition(&mut alloc.desired_transition, &asked);
        alloc.alloc_modify_index = txn.index;
        let kind = txn.s.alloc_job(&stored).map_or(JobType::Service, |job| job.kind);
        jobs.insert(alloc_key(&alloc), kind);
        txn.put_alloc(alloc);
    }
    let Some(trigger) = command.triggered_by else { return Ok(reply) };
    for (key, kind) in jobs {
        let job = txn.s.jobs.get(&key).cloned();
        let id = make_eval_for(txn, &key, job.as_ref(), kind, trigger);
        reply.eval_ids.push(id);
    }
    reply.eval_id = reply.eval_ids.first().copied();
    Ok(reply)
}
