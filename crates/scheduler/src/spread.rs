//! Spread blocks: how well a node's value of an attribute evens out a group.

use crate::rules::{NodeKeys, weight};
use herdsman_expr::constraint::Target;
use herdsman_expr::interpolate::Lookup;
use herdsman_model::{Node, Spread, TaskGroup};
use std::collections::BTreeMap;

/// The value that stands for all values without a target of their own.
const REST: &str = "*";

/// One spread block and how the group stands in it.
#[derive(Debug)]
pub(crate) struct SpreadState {
    attribute: String,
    weight: f64,
    /// Wanted allocations by value; empty: evenly.
    desired: BTreeMap<String, f64>,
    values: BTreeMap<String, usize>,
    /// Allocations by value.
    counts: Vec<u64>,
    /// Wanted allocations by value; none for a value that has no target.
    wanted: Vec<Option<f64>>,
    /// Fewest and most allocations of a value that has any; none when they are to be counted anew.
    bounds: Option<Option<(u64, u64)>>,
    /// Value of each node looked at, by candidate.
    known: Vec<Option<Option<usize>>>,
    /// Lowest boost seen, for values of which none is wanted.
    lowest: f64,
}

/// The spread blocks that hold for a group: its own and the job's; the job's wins where both name an attribute.
pub(crate) fn spreads_of(job: &[Spread], group: &TaskGroup) -> Vec<SpreadState> {
    let mut all: Vec<&Spread> = job.iter().collect();
    for spread in &group.spreads {
        if !all.iter().any(|s| s.attribute == spread.attribute) {
            all.push(spread);
        }
    }
    all.into_iter().map(|s| SpreadState::new(s, group.count)).collect()
}

impl SpreadState {
    fn new(spread: &Spread, count: i64) -> SpreadState {
        let count = weight(count);
        let mut desired = BTreeMap::new();
        let mut sum = 0.0;
        for target in &spread.spread_target {
            let percent = u32::try_from(target.percent).map_or(0.0, f64::from);
            let wanted = percent * count / 100.0;
            desired.insert(target.value.clone(), wanted);
            sum += wanted;
        }
        if !desired.is_empty() && sum < count {
            desired.entry(REST.to_owned()).or_insert(count - sum);
        }
        SpreadState {
            attribute: spread.attribute.clone(),
            weight: weight(spread.weight),
            desired,
            values: BTreeMap::new(),
            counts: Vec::new(),
            wanted: Vec::new(),
            bounds: None,
            known: Vec::new(),
            lowest: -1.0,
        }
    }

    /// The index of the value a node has; none when it has no such attribute.
    fn value(&mut self, candidate: usize, node: &Node) -> Option<usize> {
        if let Some(Some(known)) = self.known.get(candidate) {
            return *known;
        }
        let value = match Target::parse(&self.attribute) {
            Target::Node(key) => NodeKeys(node).get(key).map(|v| v.into_owned()),
            _ => None,
        };
        let index = value.map(|v| {
            if let Some(index) = self.values.get(&v) {
                return *index;
            }
            let index = self.counts.len();
            self.counts.push(0);
            self.wanted.push(self.desired.get(&v).or_else(|| self.desired.get(REST)).copied());
            self.values.insert(v, index);
            index
        });
        if self.known.len() <= candidate {
            self.known.resize(candidate + 1, None);
        }
        if let Some(slot) = self.known.get_mut(candidate) {
            *slot = Some(index);
        }
        index
    }

    /// Notes that an allocation of the group came to a node, or left it.
    pub(crate) fn note(&mut self, candidate: usize, node: &Node, came: bool) {
        self.bounds = None;
        if let Some(count) = self.value(candidate, node).and_then(|i| self.counts.get_mut(i)) {
            *count = if came { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
    }

    fn boost(&mut self, candidate: usize, node: &Node, sum_weights: f64) -> f64 {
        let Some(index) = self.value(candidate, node) else { return -1.0 };
        if self.desired.is_empty() {
            return self.even(index);
        }
        let Some(desired) = self.wanted.get(index).copied().flatten() else { return -1.0 };
        if desired <= 0.0 {
            return self.lowest;
        }
        let used = float(self.counts.get(index).copied().unwrap_or(0)) + 1.0;
        let boost = (desired - used) / desired * (self.weight / sum_weights);
        self.lowest = self.lowest.min(boost);
        boost
    }

    /// The boost without targets: values with the fewest allocations are best.
    fn even(&mut self, index: usize) -> f64 {
        let counts = &self.counts;
        let bounds = *self.bounds.get_or_insert_with(|| {
            let used = counts.iter().copied().filter(|c| *c > 0);
            used.clone().min().zip(used.max())
        });
        let Some((min, max)) = bounds else { return 0.0 };
        // A value that no allocation has yet counts as none, whatever the others have.
        let current = self.counts.get(index).copied().unwrap_or(0);
        let min = if current == 0 { 0 } else { min };
        let (min, max, current) = (float(min), float(max), float(current));
        if current > min {
            return if min == 0.0 { -1.0 } else { (min - current) / min };
        }
        if min == max {
            return -1.0;
        }
        if min == 0.0 { 1.0 } else { (max - min) / min }
    }
}

/// Counts of allocations are far below the integers that floats hold exactly.
fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

/// The sum of the boosts of all blocks.
pub(crate) fn boost(spreads: &mut [SpreadState], candidate: usize, node: &Node) -> f64 {
    let sum: f64 = spreads.iter().map(|s| s.weight).sum();
    let sum = if sum > 0.0 { sum } else { 1.0 };
    spreads.iter_mut().map(|s| s.boost(candidate, node, sum)).sum()
}
