//! Commits plans. A plan is checked against the newest state and the plans still on their way to the log, so any number
//! of them can be in flight; what a node cannot take is left out and its scheduler looks again.

use crate::error::ServerError;
use crate::feed::Published;
use crate::server::Server;
use herdsman_model::{AllocId, Allocation, Decision, Node, NodeId, Plan, PlanResult};
use herdsman_scheduler::{Capacity, Load};
use herdsman_state::{ApplyPlan, Body};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Placements that one command carries; a larger plan is several commands.
const PLACEMENTS_PER_COMMAND: usize = 12_000;

/// Placements on their way to the log, by node.
#[derive(Debug, Default)]
struct InFlight {
    next_ticket: u64,
    by_node: BTreeMap<NodeId, Vec<(u64, Arc<Allocation>)>>,
}

/// Commits plans.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    in_flight: Mutex<InFlight>,
}

/// Takes a plan's placements out of those in flight when it is committed or given up.
struct Ticket<'a> {
    plans: &'a Plans,
    number: u64,
    nodes: Vec<NodeId>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.plans.in_flight();
        for node in &self.nodes {
            if let Some(placed) = in_flight.by_node.get_mut(node) {
                placed.retain(|(number, _)| *number != self.number);
                if placed.is_empty() {
                    in_flight.by_node.remove(node);
                }
            }
        }
    }
}

impl Plans {
    fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits what can be committed of a decision: plan, evaluation and new evaluations together.
    ///
    /// # Errors
    /// The delivery no longer counts, or the log takes nothing.
    pub async fn commit(&self, server: &Server, decision: &Decision, token: u64) -> Result<PlanResult, ServerError> {
        let plan = &decision.plan;
        let eval = decision.evaluation.id;
        if !server.inner.leader.broker().is_current(eval, token) {
            return Err(ServerError::refused("evaluation was given to another scheduler"));
        }
        let (mut rejected, ticket) = self.check(server, plan);
        let drop_all = plan.all_at_once && !rejected.is_empty();
        let mut index = 0;
        if !drop_all {
            for command in commands(server, decision, &rejected) {
                let complete = rejected.is_empty();
                let mut command = command;
                if !complete {
                    command.evals.clear();
                }
                let done = server.propose(Body::ApplyPlan(Box::new(command))).await?;
                index = done.index;
                rejected.extend(done.reply.rejected);
            }
        }
        drop(ticket);
        let placed = plan
            .placements
            .iter()
            .filter(|(node, _)| !drop_all && !rejected.contains_key(node))
            .map(|(node, allocs)| (*node, allocs.iter().map(|alloc| alloc.id).collect()))
            .collect();
        let refresh_index = if rejected.is_empty() { 0 } else { index.max(server.snapshot().index()) };
        Ok(PlanResult { rejected, placed, refresh_index, alloc_index: index })
    }

    /// Which nodes cannot take their part, and why; the others' parts count as placed until the ticket is dropped.
    fn check(&self, server: &Server, plan: &Plan) -> (BTreeMap<NodeId, String>, Ticket<'_>) {
        let mut in_flight = self.in_flight();
        // Read while nothing can leave the list: what is not in it any more is in the snapshot.
        let published = server.inner.feed.published();
        let mut rejected = BTreeMap::new();
        for (node, placements) in &plan.placements {
            let beside = in_flight.by_node.get(node).map_or(&[][..], Vec::as_slice);
            if let Err(reason) = check_node(&published, plan, *node, placements, beside) {
                rejected.insert(*node, reason);
            }
        }
        in_flight.next_ticket += 1;
        let number = in_flight.next_ticket;
        let mut nodes = Vec::new();
        if !plan.all_at_once || rejected.is_empty() {
            for (node, placements) in plan.placements.iter().filter(|(node, _)| !rejected.contains_key(node)) {
                let placed = in_flight.by_node.entry(*node).or_default();
                placed.extend(placements.iter().map(|alloc| (number, Arc::clone(alloc))));
                nodes.push(*node);
            }
        }
        drop(in_flight);
        (rejected, Ticket { plans: self, number, nodes })
    }
}

/// Whether a node can take its part of a plan (`compat/scheduler.md` section 10).
fn check_node(
    published: &Published,
    plan: &Plan,
    id: NodeId,
    placements: &[Arc<Allocation>],
    beside: &[(u64, Arc<Allocation>)],
) -> Result<(), String> {
    let snapshot = &published.snapshot;
    let Some(node): Option<&Arc<Node>> = snapshot.node(&id) else { return Err("node does not exist".to_owned()) };
    // Updates of what runs there already ask for nothing new.
    if placements.iter().all(|alloc| snapshot.alloc(&alloc.id).is_some()) {
        return Ok(());
    }
    if !node.is_ready() {
        return Err(match node.status {
            herdsman_model::NodeStatus::Down => "node is down and contains invalid updates",
            herdsman_model::NodeStatus::Disconnected => "node is disconnected and contains invalid updates",
            herdsman_model::NodeStatus::Initializing => "node is not ready for placements",
            herdsman_model::NodeStatus::Ready => "node is not eligible",
        }
        .to_owned());
    }
    let mut gone: BTreeSet<AllocId> = placements.iter().map(|alloc| alloc.id).collect();
    // A mark (unknown, follow-up, reschedule failed) leaves the allocation where it is, and its load with it.
    let stops = plan.stops.get(&id).into_iter().flatten();
    gone.extend(stops.filter(|stop| stop.desired_status.is_terminal()).map(|stop| stop.id));
    gone.extend(plan.preemptions.get(&id).into_iter().flatten().map(|stop| stop.id));
    // What is there already is added up beside the snapshot, so the check costs what the plan changes.
    let mut load = published.loads.get(&id).map(|load| Load::clone(load)).unwrap_or_default();
    let leaving = gone.iter().filter_map(|alloc| snapshot.alloc(alloc)).filter(|alloc| alloc.node_id == id);
    leaving.filter(|alloc| !alloc.client_terminal()).for_each(|alloc| load.remove(&alloc.resources));
    let beside = beside.iter().map(|(_, alloc)| alloc);
    beside
        .filter(|alloc| !gone.contains(&alloc.id) && snapshot.alloc(&alloc.id).is_none())
        .chain(placements)
        .for_each(|alloc| load.add(&alloc.resources));
    load.check(&Capacity::of(node)).map_err(|dimension| dimension.as_str().to_owned())
}

/// The commands of a decision: one, or for a very large plan several, of which the last ends the evaluation.
fn commands(server: &Server, decision: &Decision, rejected: &BTreeMap<NodeId, String>) -> Vec<ApplyPlan> {
    let plan = &decision.plan;
    let taken = |node: &NodeId| !rejected.contains_key(node);
    let mut placements: Vec<Arc<Allocation>> =
        plan.placements.iter().filter(|(node, _)| taken(node)).flat_map(|(_, allocs)| allocs.iter().cloned()).collect();
    let stops = |by_node: &BTreeMap<NodeId, Vec<herdsman_model::AllocStop>>| {
        by_node.iter().filter(|(node, _)| taken(node)).flat_map(|(_, stops)| stops.iter().cloned()).collect()
    };
    let mut evals = decision.new_evals.clone();
    evals.push(decision.evaluation.clone());
    let mut first = ApplyPlan {
        eval_id: decision.evaluation.id,
        all_at_once: plan.all_at_once,
        stops: stops(&plan.stops),
        preemptions: stops(&plan.preemptions),
        placements: Vec::new(),
        deployment: plan.deployment.clone(),
        deployment_updates: plan.deployment_updates.clone(),
        evals: Vec::new(),
        seed: server.seed(),
    };
    if placements.len() <= PLACEMENTS_PER_COMMAND || plan.all_at_once {
        first.placements = placements;
        first.evals = evals;
        return vec![first];
    }
    let mut commands = Vec::new();
    while placements.len() > PLACEMENTS_PER_COMMAND {
        let rest = placements.split_off(PLACEMENTS_PER_COMMAND);
        first.placements = std::mem::replace(&mut placements, rest);
        let next = ApplyPlan { eval_id: first.eval_id, seed: server.seed(), ..ApplyPlan::default() };
        commands.push(std::mem::replace(&mut first, next));
    }
    first.placements = placements;
    first.evals = evals;
    commands.push(first);
    commands
}
