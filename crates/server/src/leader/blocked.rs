//! Evaluations that wait for room, and what gives room. Memory of the leader only, rebuilt from state.

use herdsman_model::{EvalId, Evaluation, Node, NodeId, Trigger};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Room that a batch of changes gave.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Computed classes of nodes that have more than before.
    pub classes: BTreeSet<String>,
    pub nodes: BTreeSet<NodeId>,
    /// The rules changed: everything may fit now.
    pub everything: bool,
}

impl Room {
    /// Notes that a node has more room than before.
    pub fn node(&mut self, node: &Node) {
        self.classes.insert(node.computed_class.clone());
        self.nodes.insert(node.id);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.nodes.is_empty() && !self.everything
    }
}

/// Evaluations that wait for room.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    evals: BTreeMap<EvalId, Arc<Evaluation>>,
    /// When each class and node last got room, by index.
    class_index: BTreeMap<String, u64>,
    node_index: BTreeMap<NodeId, u64>,
    everything_index: u64,
}

impl Blocked {
    /// Takes an evaluation in. Gives it back when room was made after its scheduler looked.
    pub fn add(&mut self, eval: Arc<Evaluation>) -> Option<Arc<Evaluation>> {
        if self.missed(&eval) {
            return Some(eval);
        }
        self.evals.insert(eval.id, eval);
        None
    }

    /// Forgets an evaluation.
    pub fn remove(&mut self, id: EvalId) {
        self.evals.remove(&id);
    }

    fn missed(&self, eval: &Evaluation) -> bool {
        let seen = eval.snapshot_index;
        if self.everything_index > seen {
            return true;
        }
        if let Some(node) = eval.node_id {
            return self.node_index.get(&node).is_some_and(|index| *index > seen);
        }
        self.class_index.iter().any(|(class, index)| *index > seen && concerns(eval, class))
    }

    /// Room was made: takes out every evaluation that it may help.
    pub fn unblock(&mut self, room: &Room, index: u64) -> Vec<Arc<Evaluation>> {
        if room.everything {
            self.everything_index = index;
        }
        for class in &room.classes {
            self.class_index.insert(class.clone(), index);
        }
        for node in &room.nodes {
            self.node_index.insert(*node, index);
        }
        let helped: Vec<EvalId> = self
            .evals
            .values()
            .filter(|eval| {
                room.everything
                    || match eval.node_id {
                        Some(node) => room.nodes.contains(&node),
                        None => room.classes.iter().any(|class| concerns(eval, class)),
                    }
            })
            .map(|eval| eval.id)
            .collect();
        helped.into_iter().filter_map(|id| self.evals.remove(&id)).collect()
    }

    /// Takes out those that are here only because their plans were refused too often.
    pub fn unblock_refused(&mut self) -> Vec<Arc<Evaluation>> {
        let ids: Vec<EvalId> = self
            .evals
            .values()
            .filter(|eval| eval.triggered_by == Trigger::MaxPlanAttempts)
            .map(|eval| eval.id)
            .collect();
        ids.into_iter().filter_map(|id| self.evals.remove(&id)).collect()
    }

    /// Whether any is here because its plans were refused too often.
    pub fn has_refused(&self) -> bool {
        self.evals.values().any(|eval| eval.triggered_by == Trigger::MaxPlanAttempts)
    }
}

/// Whether room on nodes of a class may help. A class the scheduler has not seen may.
fn concerns(eval: &Evaluation, class: &str) -> bool {
    eval.escaped_computed_class || eval.class_eligibility.get(class).copied().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(n: u8, classes: &[(&str, bool)], escaped: bool) -> Arc<Evaluation> {
        Arc::new(Evaluation {
            id: EvalId([n; 16]),
            class_eligibility: classes.iter().map(|(class, fits)| ((*class).to_owned(), *fits)).collect(),
            escaped_computed_class: escaped,
            snapshot_index: 10,
            ..Evaluation::default()
        })
    }

    fn room(class: &str) -> Room {
        Room { classes: [class.to_owned()].into(), ..Room::default() }
    }

    #[test]
    fn room_helps_those_whose_class_it_is_or_who_have_not_seen_the_class() {
        let mut blocked = Blocked::default();
        blocked.add(eval(1, &[("a", false)], false));
        blocked.add(eval(2, &[("a", true)], false));
        blocked.add(eval(3, &[("b", false)], false));
        blocked.add(eval(4, &[("a", false)], true));
        let helped: Vec<u8> = blocked.unblock(&room("a"), 11).iter().map(|eval| eval.id.0[0]).collect();
        assert_eq!(helped, [2, 3, 4]);
    }

    #[test]
    fn room_made_while_the_scheduler_looked_is_not_missed() {
        let mut blocked = Blocked::default();
        assert!(blocked.unblock(&room("a"), 11).is_empty());
        assert!(blocked.add(eval(1, &[("a", true)], false)).is_some());
        assert!(blocked.add(eval(2, &[("a", false)], false)).is_none());
    }
}
