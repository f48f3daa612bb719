//! Nodes.

use super::Applied;
use super::allocs::make_eval_for;
use crate::codec::{Refusal, Reply};
use crate::command::{DeleteNodes, NodeEvents, SetNodeDrain, SetNodeEligibility, SetNodeStatus, UpsertNode};
use crate::link::alloc_key;
use crate::rows::{ALL_POOL, DEFAULT_POOL, JobKey, NODE_IDENTITY_TTL, NodePool};
use crate::snapshot::Snapshot;
use crate::txn::Txn;
use herdsman_model::values::SECOND;
use herdsman_model::{
    Eligibility, EvalId, Evaluation, Job, JobType, LastDrain, NODE_EVENTS_KEPT, Node, NodeEvent, NodeId, NodeStatus,
    Trigger,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The subsystem of events that the servers note about a node's membership.
const CLUSTER: &str = "Cluster";

pub(crate) fn no_node() -> Refusal {
    Refusal::new(500, "node not found")
}

/// Notes an event of a node; the oldest of too many go.
fn note(txn: &Txn<'_>, node: &mut Node, mut event: NodeEvent) {
    if event.timestamp == 0 {
        event.timestamp = txn.now;
    }
    event.create_index = txn.index;
    node.events.push(event);
    let surplus = node.events.len().saturating_sub(NODE_EVENTS_KEPT);
    node.events.drain(..surplus);
}

fn cluster_event(message: &str) -> NodeEvent {
    NodeEvent { message: message.to_owned(), subsystem: CLUSTER.to_owned(), ..NodeEvent::default() }
}

/// Whether what constraints, drivers or volumes see of a node differs.
fn offer_changed(before: &Node, after: &Node) -> bool {
    before.datacenter != after.datacenter
        || before.node_pool != after.node_pool
        || before.node_class != after.node_class
        || before.name != after.name
        || before.attributes != after.attributes
        || before.meta != after.meta
        || before.host_volumes != after.host_volumes
        || before.resources != after.resources
        || before.reserved != after.reserved
        || before.drivers.len() != after.drivers.len()
        || before.drivers.iter().any(|(name, driver)| {
            after.drivers.get(name).is_none_or(|other| {
                driver.detected != other.detected
                    || driver.healthy != other.healthy
                    || driver.attributes != other.attributes
            })
        })
}

pub(crate) fn upsert(txn: &mut Txn<'_>, command: UpsertNode) -> Applied {
    txn.seed(command.seed);
    let mut node = command.node;
    if node.node_pool.is_empty() {
        node.node_pool = DEFAULT_POOL.to_owned();
    }
    if txn.s.node_pool(&node.node_pool).is_none() {
        let pool =
            NodePool { name: node.node_pool.clone(), node_identity_ttl: NODE_IDENTITY_TTL, ..NodePool::default() };
        txn.put_pool(pool);
    }
    let existing = txn.s.nodes.get(&node.id).cloned();
    let mut evaluate = false;
    match &existing {
        Some(before) => {
            if before.secret_id != node.secret_id {
                return Err(Refusal::new(403, "node secret ID does not match"));
            }
            keep_server_side(&mut node, before);
            evaluate = before.status == NodeStatus::Ready && offer_changed(before, &node);
            // One that was away and has more to say is neither: its old states decide nothing any more.
            if !command.ready && matches!(before.status, NodeStatus::Down | NodeStatus::Disconnected) {
                node.status = NodeStatus::Initializing;
                node.status_updated_at = txn.now / SECOND;
            }
            if before.status == NodeStatus::Down && command.ready {
                note(txn, &mut node, cluster_event("Node re-registered"));
            }
        }
        None => {
            node.status = NodeStatus::Initializing;
            node.events.clear();
            node.drain = None;
            node.last_drain = None;
            node.status_updated_at = txn.now / SECOND;
            note(txn, &mut node, cluster_event("Node registered"));
        }
    }
    if command.ready && node.status != NodeStatus::Ready {
        node.status = NodeStatus::Ready;
        node.status_updated_at = txn.now / SECOND;
        evaluate = true;
    }
    let id = node.id;
    txn.put_node(node);
    finish(txn, id, evaluate)
}

/// What only the servers decide about a node stays when it registers again.
fn keep_server_side(node: &mut Node, before: &Node) {
    node.status = before.status;
    node.status_description.clone_from(&before.status_description);
    node.status_updated_at = before.status_updated_at;
    node.eligibility = before.eligibility;
    node.drain.clone_from(&before.drain);
    node.last_drain.clone_from(&before.last_drain);
    node.events.clone_from(&before.events);
    node.last_missed_heartbeat_index = before.last_missed_heartbeat_index;
    node.last_alloc_update_index = before.last_alloc_update_index;
}

/// The reply to a change of a node, with evaluations when they are due.
fn finish(txn: &mut Txn<'_>, id: NodeId, evaluate: bool) -> Applied {
    let eval_ids = match txn.s.nodes.get(&id).cloned() {
        Some(node) if evaluate => make_evals(txn, &node, Trigger::NodeUpdate),
        _ => Vec::new(),
    };
    Ok(Reply { eval_id: eval_ids.first().copied(), eval_ids, node_modify_index: txn.index, ..Reply::default() })
}

/// Makes an evaluation for every job that a change of this node concerns (`compat/scheduler.md` section 13).
fn make_evals(txn: &mut Txn<'_>, node: &Node, trigger: Trigger) -> Vec<EvalId> {
    let jobs = txn.s.jobs_concerned_by(node);
    let mut ids = Vec::with_capacity(jobs.len());
    for (key, kind) in jobs {
        let job = txn.s.jobs.get(&key).cloned();
        let id = make_eval_for(txn, &key, job.as_ref(), kind, trigger);
        if let Some(eval) = txn.s.evals.get(&id) {
            let mut eval = Evaluation::clone(eval);
            eval.node_id = Some(node.id);
            eval.node_modify_index = node.modify_index;
            txn.put_eval(eval);
        }
        ids.push(id);
    }
    ids
}

impl Snapshot {
    /// The jobs that a change of this node concerns, with their types (`compat/scheduler.md` section 13).
    pub fn jobs_concerned_by(&self, node: &Node) -> BTreeMap<JobKey, JobType> {
        let mut jobs: BTreeMap<JobKey, JobType> = BTreeMap::new();
        for alloc in self.allocs_by_node(&node.id) {
            let key = alloc_key(alloc);
            if jobs.contains_key(&key) {
                continue;
            }
            let kind = self.alloc_job(alloc).map_or(JobType::Service, |job| job.kind);
            let concerned = match kind {
                JobType::Service => !(alloc.server_terminal() && alloc.client_terminal()),
                JobType::Batch => !alloc.client_terminal(),
                JobType::System | JobType::Sysbatch | JobType::Core => false,
            };
            if concerned {
                jobs.insert(key, kind);
            }
        }
        for key in &self.system_jobs {
            if let Some(job) = self.jobs.get(key)
                && !job.stop
                && wants(job, node)
            {
                jobs.insert(key.clone(), JobType::System);
            }
        }
        jobs
    }
}

/// Whether a system job is meant for this node, by pool and datacenter.
fn wants(job: &Arc<Job>, node: &Node) -> bool {
    (job.node_pool == ALL_POOL || job.node_pool == node.node_pool)
        && herdsman_expr::glob::matches_any(&job.datacenters, &node.datacenter)
}

pub(crate) fn status(txn: &mut Txn<'_>, command: SetNodeStatus) -> Applied {
    txn.seed(command.seed);
    let mut reply = Reply::default();
    for id in command.node_ids {
        let Some(before) = txn.s.nodes.get(&id).cloned() else {
            // Collected in the meantime: nothing is left to tell.
            continue;
        };
        if before.status == command.status {
            continue;
        }
        let mut node = Node::clone(&before);
        node.status = command.status;
        node.status_updated_at = txn.now / SECOND;
        let lost = matches!(command.status, NodeStatus::Down | NodeStatus::Disconnected);
        if lost {
            node.last_missed_heartbeat_index = txn.index;
        }
        if let Some(event) = &command.event {
            note(txn, &mut node, event.clone());
        }
        txn.put_node(node);
        if command.status == NodeStatus::Down {
            delete_services(txn, id);
        }
        // A change to initializing says nothing about what can run.
        let evaluate = command.status != NodeStatus::Initializing;
        let part = finish(txn, id, evaluate)?;
        reply.eval_ids.extend(part.eval_ids);
        reply.node_modify_index = txn.index;
    }
    reply.eval_id = reply.eval_ids.first().copied();
    Ok(reply)
}

/// Services of a node that cannot be reached are offered to nobody.
fn delete_services(txn: &mut Txn<'_>, node: NodeId) {
    let allocs: Vec<_> = txn.s.allocs_by_node(&node).map(|alloc| alloc.id).collect();
    for alloc in allocs {
        txn.delete_services_of(alloc);
    }
}

pub(crate) fn eligibility(txn: &mut Txn<'_>, command: SetNodeEligibility) -> Applied {
    txn.seed(command.seed);
    let before = txn.s.nodes.get(&command.node_id).cloned().ok_or_else(no_node)?;
    if before.drain.is_some() && command.eligibility == Eligibility::Eligible {
        return Err(Refusal::new(500, "can not set node's scheduling eligibility to eligible while it is draining"));
    }
    if before.eligibility == command.eligibility {
        return Ok(Reply { node_modify_index: before.modify_index, ..Reply::default() });
    }
    let mut node = Node::clone(&before);
    node.eligibility = command.eligibility;
    let word = node.eligibility.as_str();
    let event = command.event.unwrap_or_else(|| cluster_event(&format!("Node marked as {word} for scheduling")));
    note(txn, &mut node, event);
    txn.put_node(node);
    finish(txn, command.node_id, command.eligibility == Eligibility::Eligible)
}

pub(crate) fn drain(txn: &mut Txn<'_>, command: SetNodeDrain) -> Applied {
    txn.seed(command.seed);
    let before = txn.s.nodes.get(&command.node_id).cloned().ok_or_else(no_node)?;
    let mut node = Node::clone(&before);
    let second = txn.now / SECOND * SECOND;
    let mut last = match (&command.drain, node.last_drain.take()) {
        (Some(_), Some(last)) if before.drain.is_some() => last,
        (Some(_), _) => LastDrain { started_at: second, ..LastDrain::default() },
        (None, Some(last)) => last,
        (None, None) => LastDrain::default(),
    };
    last.updated_at = second;
    let message = match (&command.drain, command.complete) {
        (Some(_), _) if before.drain.is_some() => "Node drain strategy updated",
        (Some(_), _) => "Node drain strategy set",
        (None, true) => "Node drain complete",
        (None, false) => "Node drain disabled",
    };
    last.status = match (&command.drain, command.complete) {
        (Some(_), _) => "draining",
        (None, true) => "complete",
        (None, false) => "canceled",
    }
    .to_owned();
    if command.drain.is_some() || !command.complete {
        last.accessor_id.clone_from(&command.accessor_id);
        last.meta.clone_from(&command.meta);
    }
    node.last_drain = Some(last);
    let mut eligible_again = false;
    match command.drain {
        Some(mut drain) => {
            drain.started_at = before.drain.as_ref().map_or(txn.now, |drain| drain.started_at);
            drain.force_deadline = (drain.deadline > 0).then(|| txn.now.saturating_add(drain.deadline));
            node.drain = Some(drain);
            node.eligibility = Eligibility::Ineligible;
        }
        None => {
            node.drain = None;
            if command.mark_eligible {
                eligible_again = node.eligibility != Eligibility::Eligible;
                node.eligibility = Eligibility::Eligible;
            }
        }
    }
    let mut event = command.event.unwrap_or_default();
    event.message = message.to_owned();
    event.subsystem = "Drain".to_owned();
    note(txn, &mut node, event);
    txn.put_node(node);
    finish(txn, command.node_id, eligible_again)
}

pub(crate) fn events(txn: &mut Txn<'_>, command: NodeEvents) -> Applied {
    for (id, events) in command.events {
        let Some(before) = txn.s.nodes.get(&id).cloned() else { continue };
        let mut node = Node::clone(&before);
        for event in events {
            note(txn, &mut node, event);
        }
        txn.put_node(node);
    }
    Ok(Reply::default())
}

pub(crate) fn delete(txn: &mut Txn<'_>, command: DeleteNodes) -> Applied {
    txn.seed(command.seed);
    let mut reply = Reply::default();
    for id in &command.node_ids {
        let node = txn.delete_node(id).ok_or_else(no_node)?;
        delete_services(txn, *id);
        reply.eval_ids.extend(make_evals(txn, &node, Trigger::NodeUpdate));
    }
    reply.eval_id = reply.eval_ids.first().copied();
    reply.node_modify_index = txn.index;
    Ok(reply)
}
