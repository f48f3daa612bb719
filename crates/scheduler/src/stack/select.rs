//! Looking at nodes one after the other, and choosing among those that can take the group.

use super::{GroupIndex, Stack, in_reach};
use crate::load::{Dimension, Usage};
use crate::rules::{device_score, weight};
use crate::score::{Part, Scores, fit, keep_best};
use crate::{preempt, spread};
use herdsman_model::{AllocMetric, AllocatedResources, Allocation, JobType, Map, Node, NodeId, TaskGroup};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Options with a score of 0 or less that are set aside while better ones are looked for.
const SET_ASIDE: usize = 3;
/// Fewest options compared.
const MIN_LIMIT: usize = 2;

/// What is asked for beside the group itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish {
    /// Index in the allocation's name.
    pub(crate) index: u64,
    /// Nodes where an earlier one failed.
    pub(crate) penalties: BTreeSet<NodeId>,
    /// The node to stay on if it can take it.
    pub(crate) preferred: Option<NodeId>,
}

/// The node found for a placement.
pub(crate) struct Choice {
    pub(crate) candidate: usize,
    pub(crate) resources: Arc<AllocatedResources>,
    pub(crate) metric: AllocMetric,
    /// Who makes room.
    pub(crate) victims: Vec<Arc<Allocation>>,
}

/// Why one node is refused.
enum Refusal {
    Filtered(String),
    Exhausted(Dimension),
}

struct Scored {
    candidate: usize,
    scores: Scores,
    norm: f64,
    victims: Vec<Arc<Allocation>>,
}

impl Stack<'_> {
    fn affinity(&mut self, index: usize, group: GroupIndex) -> Option<f64> {
        let info = self.groups.get_mut(group.0)?;
        if info.affinities.is_empty() {
            return None;
        }
        if let Some(Some(known)) = info.affinity_known.get(index) {
            return Some(*known);
        }
        let node = &self.candidates.get(index)?.node;
        let matched =
            info.affinities.iter().filter(|(c, _)| c.holds(node, &mut self.cache)).map(|(_, w)| w).sum::<f64>();
        let score = if info.affinity_total > 0.0 { matched / info.affinity_total } else { 0.0 };
        if info.affinity_known.len() <= index {
            info.affinity_known.resize(self.candidates.len().max(index + 1), None);
        }
        if let Some(slot) = info.affinity_known.get_mut(index) {
            *slot = Some(score);
        }
        Some(score)
    }

    /// Scores a node with the group on it.
    fn score(&mut self, index: usize, group: GroupIndex, wish: &Wish, used: Usage, evicting: bool) -> Option<Scores> {
        let affinity = self.affinity(index, group);
        let candidate = self.candidates.get(index)?;
        let info = self.groups.get_mut(group.0)?;
        let mut scores = Scores::default();
        let found = match evicting {
            true => fit(self.algorithm, &candidate.capacity, used),
            false => info.fit(index, candidate, self.algorithm, used),
        };
        scores.set(Part::Binpack, found, true);
        if self.job.kind.is_system() {
            return Some(scores);
        }
        if info.has_device_affinities {
            scores.set(Part::Devices, devices(&info.group, &candidate.node), true);
        }
        let collisions = candidate.live.get(info.name).copied().unwrap_or(0);
        let anti = if collisions > 0 {
            -f64::from(collisions.saturating_add(1)) / weight(info.group.count.max(1))
        } else {
            0.0
        };
        scores.set(Part::AntiAffinity, anti, collisions > 0);
        let penalty = wish.penalties.contains(&candidate.node.id);
        scores.set(Part::ReschedulePenalty, if penalty { -1.0 } else { 0.0 }, penalty);
        // Where the job has affinities or spreads, they count for every node: otherwise a node that matches nothing has
        // one part fewer in its mean and passes a node that matches a little.
        scores.set(Part::NodeAffinity, affinity.unwrap_or(0.0), affinity.is_some());
        if !info.spreads.is_empty() {
            let boost = spread::boost(&mut info.spreads, index, &candidate.node);
            scores.set(Part::Spread, boost, true);
        }
        Some(scores)
    }

    /// Looks at one node.
    fn option(&mut self, index: usize, group: GroupIndex, wish: &Wish, evict: bool) -> Result<Scored, Refusal> {
        let gone = || Refusal::Filtered("node does not exist".to_owned());
        if let Some(reason) = self.filtered(index, group, wish.index, false) {
            return Err(Refusal::Filtered(reason));
        }
        self.ensure_load(index);
        let candidate = self.candidates.get(index).ok_or_else(gone)?;
        let info = self.groups.get(group.0).ok_or_else(gone)?;
        let (used, victims) = match info.ask.fits(&candidate.node, &candidate.capacity, &candidate.load) {
            Ok(ask) => (candidate.load.usage.plus(ask), Vec::new()),
            Err(dimension) if evict => {
                let found = preempt::victims(self.view, candidate, &info.ask, &self.job, &self.chosen);
                let victims = found.ok_or(Refusal::Exhausted(dimension))?;
                let freed =
                    victims.iter().fold(candidate.load.usage, |u, v| u.minus(crate::load::usage_of(&v.resources)));
                (freed.plus(info.ask.usage(&candidate.capacity)), victims)
            }
            Err(dimension) => return Err(Refusal::Exhausted(dimension)),
        };
        let mut scores = self.score(index, group, wish, used, !victims.is_empty()).ok_or_else(gone)?;
        if !victims.is_empty() {
            let priorities = preempt::priorities(self.view, &victims);
            scores.set(Part::Preemption, crate::score::preemption(&priorities), true);
        }
        Ok(Scored { candidate: index, scores, norm: scores.norm(), victims })
    }

    fn limit(&self, group: GroupIndex) -> usize {
        let Some(info) = self.groups.get(group.0) else { return MIN_LIMIT };
        if !info.affinities.is_empty() || !info.spreads.is_empty() {
            return usize::try_from(info.group.count).unwrap_or(0).max(self.node_limit);
        }
        if self.job.kind == JobType::Batch {
            return MIN_LIMIT;
        }
        let bits = usize::BITS - self.ready.len().saturating_sub(1).leading_zeros();
        usize::try_from(bits).unwrap_or(MIN_LIMIT).max(MIN_LIMIT)
    }

    fn tally(&self, metric: &mut AllocMetric, index: usize, group: GroupIndex, refusal: Refusal) {
        let Some(candidate) = self.candidates.get(index) else { return };
        let class = &candidate.node.node_class;
        let count = |map: &mut Map<u64>, key: &str| match map.get_mut(key) {
            Some(count) => *count += 1,
            None => _ = map.insert(key.to_owned(), 1),
        };
        match refusal {
            Refusal::Filtered(reason) => {
                metric.nodes_filtered += 1;
                if !class.is_empty() {
                    count(&mut metric.class_filtered, class);
                }
                count(&mut metric.constraint_filtered, &reason);
            }
            Refusal::Exhausted(dimension) => {
                metric.nodes_exhausted += 1;
                if !class.is_empty() {
                    count(&mut metric.class_exhausted, class);
                }
                count(&mut metric.dimension_exhausted, dimension.as_str());
                if let Some(info) = self.groups.get(group.0) {
                    crate::metric::exhausted(metric, &info.group, &dimension);
                }
            }
        }
    }

    /// The best node for one more allocation of the group.
    ///
    /// # Errors
    /// No node can take it; the metric says why.
    pub(crate) fn select(&mut self, group: GroupIndex, wish: &Wish, evict: bool) -> Result<Choice, Box<AllocMetric>> {
        if let Some(preferred) = wish.preferred.and_then(|id| self.candidate_of(&id)) {
            let usable =
                self.candidates.get(preferred).is_some_and(|c| c.node.is_ready() && in_reach(&self.job, &c.node));
            if usable && let Ok(choice) = self.among(&[preferred], group, wish, false) {
                return Ok(choice);
            }
        }
        let ready = std::mem::take(&mut self.ready);
        let mut found = self.among(&ready, group, wish, false);
        if evict && let Err(refused) = found {
            // The metric of the first pass says what the nodes lack; the second one would only repeat it by class.
            found = self.among(&ready, group, wish, true).map_err(|_| refused);
        }
        self.ready = ready;
        found
    }

    /// Looks at one node only.
    ///
    /// # Errors
    /// It cannot take the group; the metric says why.
    pub(crate) fn select_on(
        &mut self,
        index: usize,
        group: GroupIndex,
        evict: bool,
    ) -> Result<Choice, Box<AllocMetric>> {
        let wish = Wish::default();
        let found = self.among(&[index], group, &wish, false);
        if evict && let Err(refused) = found {
            return self.among(&[index], group, &wish, true).map_err(|_| refused);
        }
        found
    }

    fn among(
        &mut self,
        nodes: &[usize],
        group: GroupIndex,
        wish: &Wish,
        evict: bool,
    ) -> Result<Choice, Box<AllocMetric>> {
        let mut metric = self.base.clone();
        let limit = self.limit_for(nodes, group);
        let (mut taken, mut aside): (Vec<Scored>, Vec<Scored>) = (Vec::new(), Vec::new());
        let start = if nodes.len() > 1 { self.offset } else { 0 };
        let mut looked_at = 0;
        for step in 0..nodes.len() {
            let Some(index) = nodes.get((start + step) % nodes.len()).copied() else { break };
            looked_at = step + 1;
            metric.nodes_evaluated += 1;
            match self.option(index, group, wish, evict) {
                Ok(scored) if scored.norm <= 0.0 && aside.len() < SET_ASIDE => aside.push(scored),
                Ok(scored) => taken.push(scored),
                Err(refusal) => self.tally(&mut metric, index, group, refusal),
            }
            if taken.len() >= limit {
                break;
            }
        }
        if nodes.len() > 1 {
            self.offset = (start + looked_at) % nodes.len();
        }
        let missing = limit.saturating_sub(taken.len());
        taken.extend(aside.into_iter().take(missing));
        self.best(metric, taken, group)
    }

    fn limit_for(&self, nodes: &[usize], group: GroupIndex) -> usize {
        if nodes.len() <= 1 || self.job.kind.is_system() { nodes.len().max(1) } else { self.limit(group) }
    }

    fn best(
        &mut self,
        mut metric: AllocMetric,
        mut options: Vec<Scored>,
        group: GroupIndex,
    ) -> Result<Choice, Box<AllocMetric>> {
        let shown = options
            .iter()
            .filter_map(|o| self.candidates.get(o.candidate).map(|c| (c.node.as_ref(), o.scores, o.norm)));
        keep_best(&mut metric, shown);
        while !options.is_empty() {
            let mut best = 0;
            for (position, option) in options.iter().enumerate() {
                if options.get(best).is_some_and(|b| option.norm > b.norm) {
                    best = position;
                }
            }
            let option = options.remove(best);
            match self.grant(&option, group) {
                Ok(resources) => {
                    let Scored { candidate, victims, .. } = option;
                    return Ok(Choice { candidate, resources, metric, victims });
                }
                Err(dimension) => self.tally(&mut metric, option.candidate, group, Refusal::Exhausted(dimension)),
            }
        }
        metric.score_meta_data = Default::default();
        Err(Box::new(metric))
    }

    fn grant(&mut self, option: &Scored, group: GroupIndex) -> Result<Arc<AllocatedResources>, Dimension> {
        let missing = || Dimension(Cow::Borrowed("node does not exist"));
        let candidate = self.candidates.get(option.candidate).ok_or_else(missing)?;
        let info = self.groups.get(group.0).ok_or_else(missing)?;
        if option.victims.is_empty() {
            return info.ask.grant(&candidate.node, &candidate.capacity, &candidate.load, &mut self.random);
        }
        let mut load = candidate.load.clone();
        option.victims.iter().for_each(|v| load.remove(&v.resources));
        info.ask.grant(&candidate.node, &candidate.capacity, &load, &mut self.random)
    }
}

fn devices(group: &TaskGroup, node: &Node) -> f64 {
    let (mut matched, mut total) = (0.0, 0.0);
    for request in group.tasks.iter().flat_map(|t| t.resources.devices.iter()) {
        let scores = node.resources.devices.iter().filter(|g| crate::rules::device_matches(g, request));
        let best = scores.filter_map(|g| device_score(g, request)).max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((m, t)) = best {
            matched += m;
            total += t;
        }
    }
    if total > 0.0 { matched / total } else { 0.0 }
}
