//! Empties draining nodes: as many allocations at a time as each group allows, all of them at the deadline
//! (`compat/scheduler.md` section 12).

use super::{more_batches, next_batch, sleep_until};
use crate::feed::Batch;
use crate::server::Server;
use herdsman_model::{AllocId, Allocation, DesiredTransition, JobType, Node, NodeEvent, NodeId, Trigger};
use herdsman_state::{AllocTransitions, Body, JobKey, Row, SetNodeDrain, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::broadcast;

pub(crate) async fn run(server: Server, mut changes: broadcast::Receiver<Arc<Batch>>) {
    let mut draining = rebuild(&server);
    let mut look = true;
    loop {
        if look && !draining.is_empty() {
            pass(&server, &draining).await;
        }
        let due = next_deadline(&server, &draining);
        tokio::select! {
            biased;
            batch = next_batch(&mut changes) => match batch.and_then(|batch| more_batches(&mut changes, batch)) {
                Some(batches) => {
                    look = false;
                    for batch in &batches {
                        look |= note(batch, &mut draining);
                    }
                }
                None => {
                    draining = rebuild(&server);
                    look = true;
                }
            },
            () = sleep_until(&server, due) => look = true,
        }
    }
}

fn rebuild(server: &Server) -> BTreeSet<NodeId> {
    server.snapshot().nodes().filter(|node| node.drain.is_some()).map(|node| node.id).collect()
}

/// Keeps the set of draining nodes; says whether anything that a drain waits for changed.
fn note(batch: &Batch, draining: &mut BTreeSet<NodeId>) -> bool {
    let mut look = false;
    for change in &batch.changes {
        match (&change.before, &change.after) {
            (_, Some(Row::Node(node))) => {
                if node.drain.is_some() {
                    draining.insert(node.id);
                    look = true;
                } else {
                    draining.remove(&node.id);
                }
            }
            (Some(Row::Node(node)), None) => {
                draining.remove(&node.id);
            }
            // An allocation elsewhere that became healthy lets one here go.
            (_, Some(Row::Alloc(_))) => look = true,
            _ => {}
        }
    }
    look && !draining.is_empty()
}

fn next_deadline(server: &Server, draining: &BTreeSet<NodeId>) -> Option<i64> {
    let snapshot = server.snapshot();
    draining
        .iter()
        .filter_map(|id| snapshot.node(id))
        .filter_map(|node| node.drain.as_ref().and_then(|drain| drain.force_deadline))
        .min()
}

/// What is left on a draining node.
#[derive(Default)]
struct Left {
    /// Of service jobs: go as their groups allow.
    service: Vec<Arc<Allocation>>,
    /// Of batch jobs: may end by themselves until the deadline.
    batch: Vec<Arc<Allocation>>,
    /// Of system jobs: go last.
    system: Vec<Arc<Allocation>>,
}

fn left_on(snapshot: &Snapshot, node: &Node) -> Left {
    let mut left = Left::default();
    let ignore_system = node.drain.as_ref().is_some_and(|drain| drain.ignore_system_jobs);
    for alloc in snapshot.allocs_by_node(&node.id).filter(|alloc| !alloc.client_terminal()) {
        let kind = snapshot.alloc_job(alloc).map_or(JobType::Service, |job| job.kind);
        match kind {
            JobType::Service => left.service.push(alloc.clone()),
            JobType::Batch => left.batch.push(alloc.clone()),
            JobType::System if ignore_system => {}
            JobType::System => left.system.push(alloc.clone()),
            // Treated as done while it runs, stopped at the deadline.
            JobType::Sysbatch | JobType::Core => {}
        }
    }
    left
}

/// Looks at every draining node once.
async fn pass(server: &Server, draining: &BTreeSet<NodeId>) {
    let snapshot = server.snapshot();
    let now = server.now();
    let mut transitions: BTreeMap<AllocId, DesiredTransition> = BTreeMap::new();
    let mut finished = Vec::new();
    let mut groups: BTreeSet<(JobKey, Arc<str>)> = BTreeSet::new();
    for node in draining.iter().filter_map(|id| snapshot.node(id)) {
        let Some(drain) = &node.drain else { continue };
        let left = left_on(&snapshot, node);
        let reached = drain.deadline < 0 || drain.force_deadline.is_some_and(|deadline| deadline <= now);
        if reached {
            force(&snapshot, node, &left, &mut transitions);
            finished.push((node.id, true));
            continue;
        }
        if left.service.is_empty() && left.batch.is_empty() {
            if left.system.is_empty() {
                finished.push((node.id, false));
            } else {
                left.system.iter().for_each(|alloc| migrate(alloc, false, &mut transitions));
            }
        }
        for alloc in &left.service {
            groups.insert((key_of(alloc), alloc.task_group.clone()));
        }
    }
    for (key, group) in &groups {
        drain_group(&snapshot, draining, key, group, &mut transitions);
    }
    if !transitions.is_empty() {
        let command = AllocTransitions { transitions, triggered_by: Some(Trigger::NodeDrain), seed: server.seed() };
        if let Err(error) = server.propose(Body::AllocTransitions(command)).await {
            tracing::warn!(%error, "allocations of draining nodes could not be told to move");
            return;
        }
    }
    for (node, reached) in finished {
        finish(server, node, reached).await;
    }
}

fn key_of(alloc: &Allocation) -> JobKey {
    JobKey { namespace: alloc.namespace.clone(), id: alloc.job_id.clone() }
}

fn migrate(alloc: &Allocation, no_replacement: bool, transitions: &mut BTreeMap<AllocId, DesiredTransition>) {
    if alloc.server_terminal() || alloc.desired_transition.should_migrate() {
        return;
    }
    let transition = DesiredTransition {
        migrate: Some(true),
        migrate_disable_placement: no_replacement.then_some(true),
        ..DesiredTransition::default()
    };
    transitions.insert(alloc.id, transition);
}

/// The deadline is here: everything goes.
fn force(snapshot: &Snapshot, node: &Node, left: &Left, transitions: &mut BTreeMap<AllocId, DesiredTransition>) {
    left.service.iter().chain(&left.system).for_each(|alloc| migrate(alloc, false, transitions));
    // A batch allocation that was cut short is placed again elsewhere, as an evaluation of its job finds room.
    left.batch.iter().for_each(|alloc| migrate(alloc, false, transitions));
    for alloc in snapshot.allocs_by_node(&node.id).filter(|alloc| !alloc.client_terminal()) {
        if snapshot.alloc_job(alloc).is_some_and(|job| job.kind == JobType::Sysbatch) {
            migrate(alloc, true, transitions);
        }
    }
}

/// Lets as many allocations of a group leave draining nodes as its migrate block allows.
fn drain_group(
    snapshot: &Snapshot,
    draining: &BTreeSet<NodeId>,
    key: &JobKey,
    group: &str,
    transitions: &mut BTreeMap<AllocId, DesiredTransition>,
) {
    let job = snapshot.job_by_key(key);
    let wanted = job.filter(|job| !job.stop).and_then(|job| job.group(group));
    let parallel = wanted.and_then(|group| group.migrate.as_ref()).map_or(1, |migrate| migrate.max_parallel.max(1));
    let count = wanted.map_or(0, |group| group.count);
    let mut healthy = 0i64;
    let mut candidates = Vec::new();
    for alloc in snapshot.allocs_by_job(key).filter(|alloc| &*alloc.task_group == group && !alloc.terminal()) {
        let moving = alloc.desired_transition.should_migrate();
        // Health that is decided either way counts: what is unhealthy is the deployment's business, not the drain's.
        if !moving && alloc.healthy().is_some() {
            healthy += 1;
        }
        if !moving && draining.contains(&alloc.node_id) {
            candidates.push(alloc.clone());
        }
    }
    let can_go = healthy - (count - parallel);
    let can_go = usize::try_from(can_go.max(0)).unwrap_or(0);
    candidates.iter().take(can_go).for_each(|alloc| migrate(alloc, false, transitions));
}

async fn finish(server: &Server, node_id: NodeId, reached: bool) {
    let event = NodeEvent {
        details: if reached { [("deadline_reached".to_owned(), "true".to_owned())].into() } else { BTreeMap::new() },
        ..NodeEvent::default()
    };
    let command =
        SetNodeDrain { node_id, complete: true, event: Some(event), seed: server.seed(), ..SetNodeDrain::default() };
    if let Err(error) = server.propose(Body::NodeDrain(command)).await {
        tracing::warn!(node = %node_id, %error, "a drain that is complete could not be marked as such");
    }
}
