//! Carrying out a plan.

use super::Applied;
use crate::codec::{Refusal, Reply};
use crate::command::ApplyPlan;
use crate::link::alloc_key;
use crate::rows::JobKey;
use crate::txn::Txn;
use herdsman_model::{
    AllocStateChange, AllocStop, Allocation, Deployment, NodeId, NodeStatus, RescheduleTracker, Trigger,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) fn apply(txn: &mut Txn<'_>, command: ApplyPlan) -> Applied {
    txn.seed(command.seed);
    let mut reply = Reply::default();
    let mut by_node: BTreeMap<NodeId, Vec<&Arc<Allocation>>> = BTreeMap::new();
    for alloc in &command.placements {
        by_node.entry(alloc.node_id).or_default().push(alloc);
    }
    for (node, allocs) in &by_node {
        if let Some(reason) = refusal_of_node(txn, *node, allocs) {
            reply.rejected.insert(*node, reason);
        }
    }
    if command.all_at_once && !reply.rejected.is_empty() {
        return Ok(reply);
    }
    if let Some(deployment) = command.deployment {
        write_deployment(txn, deployment);
    }
    for update in command.deployment_updates {
        super::deployments::change_status(txn, update.id, update.status, &update.description);
    }
    for stop in &command.stops {
        carry_out_stop(txn, stop, &reply.rejected);
    }
    let mut victims = BTreeSet::new();
    for stop in &command.preemptions {
        if let Some(key) = carry_out_stop(txn, stop, &reply.rejected) {
            victims.insert(key);
        }
    }
    for alloc in &command.placements {
        if !reply.rejected.contains_key(&alloc.node_id) {
            place(txn, alloc);
        }
    }
    for key in victims {
        if let Some(job) = txn.s.jobs.get(&key).cloned() {
            let eval = txn.make_eval(&job, Trigger::Preemption, |_| {});
            reply.eval_ids.push(eval.id);
        }
    }
    if reply.rejected.is_empty() {
        for eval in command.evals {
            super::evals::write(txn, eval);
        }
    }
    Ok(reply)
}

/// Why a node cannot take its placements now, whatever its resources.
fn refusal_of_node(txn: &Txn<'_>, id: NodeId, allocs: &[&Arc<Allocation>]) -> Option<String> {
    let Some(node) = txn.s.nodes.get(&id) else { return Some("node does not exist".to_owned()) };
    let fresh = allocs.iter().any(|alloc| !txn.s.allocs.contains_key(&alloc.id));
    for alloc in allocs {
        if !version_is_known(txn, alloc) {
            return Some(format!("version {} of job \"{}\" is gone", alloc.job_version, alloc.job_id));
        }
    }
    if !fresh {
        return None;
    }
    match node.status {
        NodeStatus::Down => Some("node is down and contains invalid updates".to_owned()),
        NodeStatus::Disconnected => Some("node is disconnected and contains invalid updates".to_owned()),
        NodeStatus::Initializing => Some("node is not ready for placements".to_owned()),
        NodeStatus::Ready if !node.is_ready() => Some("node is not eligible".to_owned()),
        NodeStatus::Ready => None,
    }
}

/// Whether the job version an allocation is made from is still kept.
fn version_is_known(txn: &Txn<'_>, alloc: &Allocation) -> bool {
    let key = alloc_key(alloc);
    let kept = |versions: &Arc<Vec<Arc<herdsman_model::Job>>>| {
        versions.iter().any(|job| job.version == alloc.job_version && job.create_index == alloc.job_create_index)
    };
    txn.s.versions.get(&key).is_some_and(kept)
        || txn.s.pins.get(&key).is_some_and(|pins| pins.contains_key(&(alloc.job_create_index, alloc.job_version)))
}

/// Stops, evicts or marks an allocation. Gives the key of its job when it did.
fn carry_out_stop(txn: &mut Txn<'_>, stop: &AllocStop, rejected: &BTreeMap<NodeId, String>) -> Option<JobKey> {
    let stored = txn.s.allocs.get(&stop.id)?;
    if rejected.contains_key(&stored.node_id) {
        return None;
    }
    // A victim that has ended since makes room all the same.
    if stop.preempted_by.is_some() && stored.client_terminal() {
        return None;
    }
    let mut alloc = Allocation::clone(stored);
    alloc.desired_status = stop.desired_status;
    if !stop.desired_description.is_empty() {
        alloc.desired_description.clone_from(&stop.desired_description);
    }
    if let Some(status) = stop.client_status
        && !alloc.client_terminal()
        && alloc.client_status != status
    {
        alloc.client_status = status;
        alloc.state_changes.push(AllocStateChange { value: status, time: txn.now });
        alloc.client_description.clone_from(&stop.desired_description);
    }
    if stop.follow_up_eval.is_some() {
        alloc.follow_up_eval = stop.follow_up_eval;
    }
    if stop.preempted_by.is_some() {
        alloc.preempted_by = stop.preempted_by;
    }
    if stop.reschedule_failed {
        let mut tracker = alloc.reschedule_tracker.as_deref().cloned().unwrap_or_else(RescheduleTracker::default);
        tracker.last_reschedule = "no placement".to_owned();
        alloc.reschedule_tracker = Some(Arc::new(tracker));
    }
    alloc.alloc_modify_index = txn.index;
    let key = alloc_key(&alloc);
    txn.put_alloc(alloc);
    Some(key)
}

/// Writes a new allocation, or brings one up to a new version in place.
fn place(txn: &mut Txn<'_>, planned: &Arc<Allocation>) {
    let stored = txn.s.allocs.get(&planned.id).cloned();
    let mut alloc = Allocation::clone(planned);
    alloc.alloc_modify_index = txn.index;
    if let Some(stored) = &stored {
        keep_client_side(&mut alloc, stored);
    } else if let Some(previous) = alloc.previous_allocation
        && let Some(before) = txn.s.allocs.get(&previous)
    {
        let mut before = Allocation::clone(before);
        before.next_allocation = Some(alloc.id);
        txn.put_alloc(before);
    }
    super::deployments::count_alloc(txn, stored.as_deref(), &mut alloc);
    txn.put_alloc(alloc);
}

/// What the node said of an allocation is the node's, whatever a plan made from an older snapshot holds.
fn keep_client_side(alloc: &mut Allocation, stored: &Allocation) {
    alloc.client_status = stored.client_status;
    alloc.client_description.clone_from(&stored.client_description);
    alloc.outcome.clone_from(&stored.outcome);
    alloc.task_states.clone_from(&stored.task_states);
    alloc.network_status.clone_from(&stored.network_status);
    alloc.create_index = stored.create_index;
    alloc.create_time = stored.create_time;
    alloc.next_allocation = alloc.next_allocation.or(stored.next_allocation);
    alloc.preempted_by = alloc.preempted_by.or(stored.preempted_by);
    super::allocs::merge_state_changes(&mut alloc.state_changes, &stored.state_changes);
    if alloc.deployment_id == stored.deployment_id {
        alloc.deployment_status.clone_from(&stored.deployment_status);
    }
}

/// Writes the deployment of a plan: one that exists keeps its progress.
fn write_deployment(txn: &mut Txn<'_>, mut deployment: Deployment) {
    if let Some(stored) = txn.s.deployments.get(&deployment.id) {
        let mut merged = Deployment::clone(stored);
        for (name, group) in deployment.task_groups {
            let place = merged.task_groups.entry(name).or_default();
            place.desired_canaries = group.desired_canaries;
            place.desired_total = group.desired_total;
            place.progress_deadline = group.progress_deadline;
            place.auto_promote |= group.auto_promote;
            place.auto_revert |= group.auto_revert;
        }
        txn.put_deployment(merged);
        return;
    }
    // Progress is counted from the allocations that are really placed.
    for group in deployment.task_groups.values_mut() {
        group.placed_canaries.clear();
        group.placed_allocs = 0;
        group.healthy_allocs = 0;
        group.unhealthy_allocs = 0;
        group.require_progress_by = None;
    }
    txn.put_deployment(deployment);
}

/// A refusal for a deployment that is not there.
pub(crate) fn no_deployment() -> Refusal {
    Refusal::new(500, "deployment not found")
}
