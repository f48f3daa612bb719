//! Which nodes are still heard of.

use super::{next_batch, sleep_until};
use crate::feed::Batch;
use crate::server::Server;
use herdsman_model::{Node, NodeEvent, NodeId, NodeStatus};
use herdsman_state::{Body, Change, Row, SetNodeStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast};

/// When each node must have been heard of again.
#[derive(Debug, Default)]
struct Deadlines {
    by_node: BTreeMap<NodeId, i64>,
    by_time: BTreeSet<(i64, NodeId)>,
}

impl Deadlines {
    fn set(&mut self, node: NodeId, at: i64) {
        if let Some(before) = self.by_node.insert(node, at) {
            self.by_time.remove(&(before, node));
        }
        self.by_time.insert((at, node));
    }

    fn remove(&mut self, node: NodeId) {
        if let Some(at) = self.by_node.remove(&node) {
            self.by_time.remove(&(at, node));
        }
    }

    /// Takes out the nodes whose time is over.
    fn expired(&mut self, now: i64) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        while let Some((at, node)) = self.by_time.first().copied() {
            if at > now {
                break;
            }
            self.by_time.remove(&(at, node));
            self.by_node.remove(&node);
            nodes.push(node);
        }
        nodes
    }
}

/// When each node must have been heard of again. Memory of the leader only.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    deadlines: Mutex<Deadlines>,
    changed: Notify,
}

impl Heartbeats {
    fn lock(&self) -> MutexGuard<'_, Deadlines> {
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.lock() = Deadlines::default();
    }

    /// A node was heard of: gives how long it may be silent now, without the grace.
    pub fn beat(&self, server: &Server, node: NodeId) -> Duration {
        let config = server.config();
        let settings = &config.heartbeat;
        let mut deadlines = self.lock();
        let count = deadlines.by_node.len();
        // A count of nodes is far below where a float loses whole numbers.
        let spread = Duration::from_secs_f64(count as f64 / settings.max_per_second.max(1.0));
        let base = settings.min_ttl.max(spread);
        let jitter = server.world().rng.below(u64::try_from(base.as_nanos()).unwrap_or(u64::MAX));
        let ttl = base + Duration::from_nanos(jitter);
        deadlines.set(node, after(server, ttl + settings.grace));
        drop(deadlines);
        self.changed.notify_one();
        ttl
    }
}

fn after(server: &Server, span: Duration) -> i64 {
    server.now().saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
}

pub(crate) async fn run(server: Server, mut changes: broadcast::Receiver<Arc<Batch>>) {
    rebuild(&server);
    loop {
        let now = server.now();
        let (expired, due) = {
            let mut deadlines = server.inner.leader.heartbeats.lock();
            (deadlines.expired(now), deadlines.by_time.first().map(|(at, _)| *at))
        };
        if !expired.is_empty() {
            mark(&server, expired).await;
            continue;
        }
        tokio::select! {
            biased;
            batch = next_batch(&mut changes) => match batch {
                Some(batch) => batch.changes.iter().for_each(|change| take_in(&server, change)),
                None => rebuild(&server),
            },
            () = server.inner.leader.heartbeats.changed.notified() => {}
            () = sleep_until(&server, due) => {}
        }
    }
}

/// A new leader gives every node time to find it.
fn rebuild(server: &Server) {
    let snapshot = server.snapshot();
    let deadline = after(server, server.config().heartbeat.failover_ttl);
    let mut deadlines = server.inner.leader.heartbeats.lock();
    for node in snapshot.nodes().filter(|node| is_watched(node)) {
        if !deadlines.by_node.contains_key(&node.id) {
            deadlines.set(node.id, deadline);
        }
    }
}

fn is_watched(node: &Node) -> bool {
    matches!(node.status, NodeStatus::Ready | NodeStatus::Initializing)
}

/// A node that is gone or known to be away is not waited for.
fn take_in(server: &Server, change: &Change) {
    match (&change.before, &change.after) {
        (Some(Row::Node(node)), None) => server.inner.leader.heartbeats.lock().remove(node.id),
        (_, Some(Row::Node(node))) if node.status == NodeStatus::Down => {
            server.inner.leader.heartbeats.lock().remove(node.id);
        }
        _ => {}
    }
}

/// Whether allocations of a node are to be waited for when it cannot be reached.
fn waits_for_disconnected(server: &Server, node: NodeId) -> bool {
    let snapshot = server.snapshot();
    snapshot.allocs_by_node(&node).any(|alloc| {
        !alloc.terminal()
            && snapshot
                .alloc_job(alloc)
                .and_then(|job| job.group(&alloc.task_group).map(|group| group.lost_after() > 0))
                .unwrap_or(false)
    })
}

/// Marks silent nodes as down, or as disconnected when their allocations may wait.
async fn mark(server: &Server, nodes: Vec<NodeId>) {
    let (disconnected, down): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| waits_for_disconnected(server, *node));
    for (node_ids, status) in [(down, NodeStatus::Down), (disconnected, NodeStatus::Disconnected)] {
        if node_ids.is_empty() {
            continue;
        }
        tracing::warn!(nodes = node_ids.len(), status = status.as_str(), "nodes have not been heard of in time");
        let event = NodeEvent {
            message: "Node heartbeat missed".to_owned(),
            subsystem: "Cluster".to_owned(),
            ..NodeEvent::default()
        };
        let again = node_ids.clone();
        let body = SetNodeStatus { node_ids, status, event: Some(event), seed: server.seed() };
        if let Err(error) = server.propose(Body::NodeStatus(body)).await {
            tracing::warn!(%error, "silent nodes could not be marked; trying again");
            let retry = after(server, Duration::from_secs(1));
            let mut deadlines = server.inner.leader.heartbeats.lock();
            again.into_iter().for_each(|node| deadlines.set(node, retry));
        }
    }
}
