//! Scores: what makes one node better than another for an allocation.

use crate::load::{Capacity, Usage};
use crate::view::Algorithm;
use herdsman_model::{AllocMetric, Node, NodeScore};

/// The components of a score, in the order they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Binpack,
    Devices,
    AntiAffinity,
    ReschedulePenalty,
    NodeAffinity,
    Spread,
    Preemption,
}

const NAMES: [&str; 7] = [
    "binpack",
    "devices",
    "job-anti-affinity",
    "node-reschedule-penalty",
    "node-affinity",
    "allocation-spread",
    "preemption",
];

/// Nodes whose scores are kept with an allocation.
const SCORES_KEPT: usize = 5;

/// The scores of one node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scores {
    value: [f64; NAMES.len()],
    shown: [bool; NAMES.len()],
    counted: [bool; NAMES.len()],
}

impl Scores {
    /// Shows a component; it takes part in the mean only if `counted`.
    pub(crate) fn set(&mut self, part: Part, value: f64, counted: bool) {
        let index = part as usize;
        if let (Some(v), Some(s), Some(c)) =
            (self.value.get_mut(index), self.shown.get_mut(index), self.counted.get_mut(index))
        {
            (*v, *s, *c) = (value, true, counted);
        }
    }

    /// The mean of the components that count.
    pub(crate) fn norm(&self) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for (value, counted) in self.value.iter().zip(&self.counted) {
            if *counted {
                sum += value;
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 0.0 }
    }

    fn show(&self, node: &Node) -> NodeScore {
        let parts = NAMES.iter().zip(&self.value).zip(&self.shown);
        NodeScore {
            node_id: node.id,
            scores: parts.filter(|(_, shown)| **shown).map(|((name, value), _)| (*name, *value)).collect(),
            norm_score: self.norm(),
        }
    }
}

/// Keeps the best scores with the metric; among equals the first ones looked at.
pub(crate) fn keep_best<'n>(metric: &mut AllocMetric, scored: impl Iterator<Item = (&'n Node, Scores, f64)>) {
    let mut best: Vec<(&Node, Scores, f64)> = Vec::with_capacity(SCORES_KEPT + 1);
    for one in scored {
        let place = best.partition_point(|other| other.2.total_cmp(&one.2).is_ge());
        if place < SCORES_KEPT {
            best.insert(place, one);
            best.truncate(SCORES_KEPT);
        }
    }
    metric.score_meta_data = best.iter().map(|(node, scores, _)| scores.show(node)).collect();
}

/// Perfect fit, in the terms of [`fit`].
const BEST_FIT: f64 = 18.0;

/// How well a node would be used, 0 to 1, with `used` of it taken after the placement.
pub fn fit(algorithm: Algorithm, capacity: &Capacity, used: Usage) -> f64 {
    let free = |used: i64, total: i64| if total > 0 { 1.0 - ratio(used, total) } else { 0.0 };
    let total =
        10f64.powf(free(used.cpu, capacity.usage.cpu)) + 10f64.powf(free(used.memory_mb, capacity.usage.memory_mb));
    let score = match algorithm {
        Algorithm::Binpack => 20.0 - total,
        Algorithm::Spread => total - 2.0,
    };
    score.clamp(0.0, BEST_FIT) / BEST_FIT
}

/// The quotient of two amounts. Amounts are megahertz and megabytes, so floats hold them exactly.
#[allow(clippy::cast_precision_loss)]
fn ratio(a: i64, b: i64) -> f64 {
    a as f64 / b as f64
}

/// How little it hurts to push out victims of these priorities: 1 nothing, 0 very much.
pub(crate) fn preemption(priorities: &[i64]) -> f64 {
    let max = priorities.iter().copied().max().unwrap_or(0);
    let sum: i64 = priorities.iter().fold(0, |a, b| a.saturating_add(*b));
    let net = if max > 0 { ratio(max, 1) + ratio(sum, max) } else { 0.0 };
    1.0 / (1.0 + (0.0048 * (net - 2048.0)).exp())
}
