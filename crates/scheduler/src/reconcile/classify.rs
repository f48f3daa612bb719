//! What has happened to an allocation, as far as the servers can know.

use crate::view::View;
use herdsman_model::{Allocation, ClientStatus, Nanos, Node, NodeId, NodeStatus, TaskGroup};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The nodes that a job's allocations are on; none where the node is gone.
#[derive(Default)]
pub(crate) struct Nodes(BTreeMap<NodeId, Option<Arc<Node>>>);

impl Nodes {
    pub(crate) fn of(view: &dyn View, allocs: &[Arc<Allocation>]) -> Nodes {
        let mut nodes = BTreeMap::new();
        for alloc in allocs {
            nodes.entry(alloc.node_id).or_insert_with(|| view.node(&alloc.node_id));
        }
        Nodes(nodes)
    }

    pub(crate) fn get(&self, alloc: &Allocation) -> Option<&Arc<Node>> {
        self.0.get(&alloc.node_id).and_then(Option::as_ref)
    }

    /// The node is down or gone.
    pub(crate) fn is_down(&self, alloc: &Allocation) -> bool {
        self.get(alloc).is_none_or(|n| n.status == NodeStatus::Down)
    }
}

/// What has happened to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Nothing that the servers need to act on for its node's sake; it may have ended.
    Untainted,
    /// It is to leave its node.
    Migrate,
    /// Its node is down or gone, or was out of sight for too long.
    Lost,
    /// Its node has just gone out of sight.
    Disconnecting,
    /// Its node is back in sight.
    Reconnecting,
    /// It takes no part any more.
    Ignore,
}

/// The last change to its recorded status left it unknown: the servers have not taken notice of its return yet.
pub(crate) fn needs_reconnect(alloc: &Allocation) -> bool {
    let seen = matches!(alloc.client_status, ClientStatus::Unknown | ClientStatus::Running | ClientStatus::Failed);
    seen && alloc.state_changes.last().is_some_and(|c| c.value == ClientStatus::Unknown)
}

/// When it last became unknown.
pub(crate) fn last_unknown(alloc: &Allocation) -> Option<Nanos> {
    alloc.state_changes.iter().rev().find(|c| c.value == ClientStatus::Unknown).map(|c| c.time)
}

/// It was unknown for longer than its group waits.
pub(crate) fn expired(alloc: &Allocation, group: &TaskGroup, now: Nanos) -> bool {
    let lost_after = group.lost_after();
    alloc.client_status == ClientStatus::Unknown
        && lost_after > 0
        && last_unknown(alloc).is_some_and(|t| t.saturating_add(lost_after) <= now)
}

/// Whether allocations out of sight are replaced.
pub(crate) fn replaces(group: &TaskGroup) -> bool {
    let asked = group.disconnect.as_ref().and_then(|d| d.replace);
    asked != Some(false) && !group.prevent_reschedule_on_lost
}

/// Tells what has happened to an allocation; the first rule that matches decides.
pub(crate) fn classify(alloc: &Allocation, group: &TaskGroup, nodes: &Nodes, now: Nanos) -> Class {
    let reconnect = needs_reconnect(alloc);
    if reconnect && !alloc.server_terminal() && alloc.client_status == ClientStatus::Failed {
        return Class::Reconnecting;
    }
    if alloc.server_terminal() {
        let stays = alloc.desired_transition.migrate_disable_placement == Some(true);
        return if stays { Class::Untainted } else { Class::Ignore };
    }
    if alloc.work_over() && alloc.is_canary() && alloc.desired_transition.should_migrate() {
        return Class::Migrate;
    }
    if alloc.work_over() && (!reconnect || alloc.client_terminal()) {
        return Class::Untainted;
    }
    if expired(alloc, group, now) {
        return Class::Lost;
    }
    let unknown = alloc.client_status == ClientStatus::Unknown;
    let Some(node) = nodes.get(alloc) else { return Class::Lost };
    match node.status {
        NodeStatus::Disconnected if unknown => Class::Untainted,
        NodeStatus::Disconnected if alloc.client_status == ClientStatus::Pending => Class::Lost,
        NodeStatus::Disconnected if group.lost_after() == 0 => Class::Lost,
        NodeStatus::Disconnected => Class::Disconnecting,
        _ if alloc.desired_transition.should_migrate() => Class::Migrate,
        NodeStatus::Down if !replaces(group) && unknown => Class::Untainted,
        NodeStatus::Down if !replaces(group) && alloc.client_status == ClientStatus::Running => Class::Disconnecting,
        NodeStatus::Down => Class::Lost,
        // Until the node has said how it fares, nothing is known of it.
        NodeStatus::Ready | NodeStatus::Initializing if reconnect && !unknown => Class::Reconnecting,
        NodeStatus::Ready | NodeStatus::Initializing => Class::Untainted,
    }
}
