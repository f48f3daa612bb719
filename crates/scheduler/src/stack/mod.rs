//! The candidates for one evaluation: which nodes can take a group, and which of them is best.
//!
//! Everything a placement changes (load of a node, allocations per value of an attribute) is kept up to date by adding
//! and removing, so that the cost of a placement does not grow with what is already placed.

mod select;

pub(crate) use select::{Choice, Wish};

use crate::ask::Ask;
use crate::load::{Capacity, Load, Usage};
use crate::preempt;
use crate::random::Random;
use crate::rules::{Condition, Conditions, DistinctProperty, GroupRules, NodeKeys, weight};
use crate::score::fit;
use crate::spread::{self, SpreadState};
use crate::view::{Algorithm, Config, View};
use herdsman_expr::constraint::Cache;
use herdsman_expr::glob;
use herdsman_model::{AllocId, AllocMetric, Allocation, Job, Node, NodeId, TaskGroup};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pool whose name stands for every pool.
pub(crate) const ALL_POOLS: &str = "all";
/// The pool of a job that names none.
pub(crate) const DEFAULT_POOL: &str = "default";

/// A node and what this evaluation knows of it.
pub(crate) struct Candidate {
    pub(crate) node: Arc<Node>,
    pub(crate) capacity: Capacity,
    pub(crate) load: Load,
    /// Capacity and load are read when first needed: most nodes are never looked at.
    loaded: bool,
    /// Raised with each change of the load.
    generation: u64,
    class: Option<usize>,
    /// Live allocations of the job, by group name.
    live: Vec<u32>,
}

/// What is known of the nodes of one computed class.
struct Class {
    name: String,
    /// By job version in play.
    jobs: Vec<Option<bool>>,
    /// By group in play.
    groups: Vec<Option<bool>>,
}

struct JobInfo {
    version: u64,
    /// An older version's own datacenters and pool; the newest one's are those of the ready nodes.
    reach: Option<Box<Job>>,
    conditions: Conditions,
}

/// A group (of one job version) that is to be placed.
struct GroupInfo {
    job: usize,
    name: usize,
    group: Arc<TaskGroup>,
    rules: GroupRules,
    ask: Ask,
    spreads: Vec<SpreadState>,
    affinities: Vec<(Condition, f64)>,
    affinity_total: f64,
    /// Affinity of each node looked at, by candidate.
    affinity_known: Vec<Option<f64>>,
    has_device_affinities: bool,
    /// Fit of each node looked at, by candidate, with the generation of the load it was found for.
    fit_known: Vec<(u64, f64)>,
}

impl GroupInfo {
    fn fit(&mut self, index: usize, candidate: &Candidate, algorithm: Algorithm, used: Usage) -> f64 {
        if let Some((generation, known)) = self.fit_known.get(index)
            && *generation == candidate.generation
        {
            return *known;
        }
        let found = fit(algorithm, &candidate.capacity, used);
        if self.fit_known.len() <= index {
            self.fit_known.resize(index + 1, (u64::MAX, 0.0));
        }
        if let Some(slot) = self.fit_known.get_mut(index) {
            *slot = (candidate.generation, found);
        }
        found
    }
}

/// Allocations per value of an attribute.
struct Distinct {
    rule: DistinctProperty,
    job: usize,
    /// The group it holds for; none: the job.
    name: Option<usize>,
    counts: BTreeMap<String, u64>,
}

/// Names a group in play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupIndex(usize);

pub(crate) struct Stack<'v> {
    view: &'v dyn View,
    job: Arc<Job>,
    algorithm: Algorithm,
    oversubscription: bool,
    node_limit: usize,
    pub(crate) candidates: Vec<Candidate>,
    by_id: BTreeMap<NodeId, Option<usize>>,
    /// Ready nodes of the job's pool and datacenters, shuffled.
    ready: Vec<usize>,
    offset: usize,
    classes: Vec<Class>,
    class_ids: BTreeMap<String, usize>,
    jobs: Vec<JobInfo>,
    groups: Vec<GroupInfo>,
    distinct: Vec<Distinct>,
    names: BTreeMap<String, usize>,
    /// Live allocations of the job: node and group name.
    live: BTreeMap<AllocId, (usize, usize)>,
    cache: Cache,
    random: Random,
    base: AllocMetric,
    /// What the plan stops and pushes out so far.
    chosen: preempt::Chosen,
}

impl<'v> Stack<'v> {
    pub(crate) fn new(view: &'v dyn View, job: &Arc<Job>, config: &Config, seed: u64) -> Stack<'v> {
        let pool = pool_of(job);
        let differs = view.pool_config(pool);
        let mut stack = Stack {
            view,
            job: Arc::clone(job),
            algorithm: differs.algorithm.unwrap_or(config.algorithm),
            oversubscription: differs.memory_oversubscription.unwrap_or(config.memory_oversubscription),
            node_limit: config.node_limit,
            candidates: Vec::new(),
            by_id: BTreeMap::new(),
            ready: Vec::new(),
            offset: 0,
            classes: Vec::new(),
            class_ids: BTreeMap::new(),
            jobs: Vec::new(),
            groups: Vec::new(),
            distinct: Vec::new(),
            names: BTreeMap::new(),
            live: BTreeMap::new(),
            cache: Cache::default(),
            random: Random::new(seed),
            base: AllocMetric { node_pool: pool.to_owned(), ..AllocMetric::default() },
            chosen: preempt::Chosen::default(),
        };
        let mut available: BTreeMap<String, u64> = BTreeMap::new();
        view.for_each_node(&mut |node| {
            if node.is_ready() && in_reach(job, node) {
                let index = stack.add_candidate(node);
                stack.ready.push(index);
                match available.get_mut(&node.datacenter) {
                    Some(count) => *count += 1,
                    None => _ = available.insert(node.datacenter.clone(), 1),
                }
            }
        });
        stack.base.nodes_in_pool = u64::try_from(stack.ready.len()).unwrap_or(u64::MAX);
        stack.base.nodes_available = available;
        let mut ready = std::mem::take(&mut stack.ready);
        stack.random.shuffle(&mut ready);
        stack.ready = ready;
        stack
    }

    fn add_candidate(&mut self, node: &Arc<Node>) -> usize {
        let index = self.candidates.len();
        let class = (!node.computed_class.is_empty()).then(|| match self.class_ids.get(&node.computed_class) {
            Some(class) => *class,
            None => {
                let class = self.classes.len();
                let (jobs, groups) = (vec![None; self.jobs.len()], vec![None; self.groups.len()]);
                self.classes.push(Class { name: node.computed_class.clone(), jobs, groups });
                self.class_ids.insert(node.computed_class.clone(), class);
                class
            }
        });
        let node = Arc::clone(node);
        self.by_id.insert(node.id, Some(index));
        self.candidates.push(Candidate {
            node,
            capacity: Capacity::default(),
            load: Load::default(),
            loaded: false,
            generation: 0,
            class,
            live: Vec::new(),
        });
        index
    }

    /// The candidate for a node, ready or not; none when the node is gone.
    pub(crate) fn candidate_of(&mut self, id: &NodeId) -> Option<usize> {
        if let Some(known) = self.by_id.get(id) {
            return *known;
        }
        match self.view.node(id) {
            Some(node) => Some(self.add_candidate(&node)),
            None => {
                self.by_id.insert(*id, None);
                None
            }
        }
    }

    /// Candidates that are ready and in reach, by node id.
    pub(crate) fn ready_by_id(&self) -> Vec<usize> {
        let mut all = self.ready.clone();
        all.sort_by_key(|c| self.candidates.get(*c).map(|c| c.node.id));
        all
    }

    fn ensure_load(&mut self, index: usize) {
        let Some(candidate) = self.candidates.get_mut(index) else { return };
        if !candidate.loaded {
            candidate.loaded = true;
            candidate.capacity = Capacity::of(&candidate.node);
            let id = candidate.node.id;
            let known = self.view.load(&id);
            candidate.load = known.unwrap_or_else(|| Load::of(&self.view.allocs_by_node(&id)));
        }
    }

    fn name_index(&mut self, name: &str) -> usize {
        if let Some(index) = self.names.get(name) {
            return *index;
        }
        let index = self.names.len();
        self.names.insert(name.to_owned(), index);
        index
    }

    fn job_index(&mut self, job: &Job) -> usize {
        if let Some(index) = self.jobs.iter().position(|j| j.version == job.version) {
            return index;
        }
        let conditions = Conditions::of_job(job);
        let index = self.jobs.len();
        for rule in &conditions.distinct_properties {
            self.distinct.push(Distinct { rule: rule.clone(), job: index, name: None, counts: BTreeMap::new() });
        }
        let older = job.version != self.job.version;
        let reach = older.then(|| {
            let (datacenters, node_pool) = (job.datacenters.clone(), job.node_pool.clone());
            Box::new(Job { datacenters, node_pool, ..Job::default() })
        });
        self.jobs.push(JobInfo { version: job.version, reach, conditions });
        self.classes.iter_mut().for_each(|c| c.jobs.push(None));
        index
    }

    /// Brings a group of a version of the job into play.
    pub(crate) fn group(&mut self, job: &Job, group: &Arc<TaskGroup>) -> GroupIndex {
        let known = self
            .groups
            .iter()
            .position(|g| g.group.name == group.name && self.jobs.get(g.job).is_some_and(|j| j.version == job.version));
        if let Some(index) = known {
            return GroupIndex(index);
        }
        let first_distinct = self.distinct.len();
        let job_index = self.job_index(job);
        let name = self.name_index(&group.name);
        let rules = GroupRules::of(group);
        for rule in &rules.conditions.distinct_properties {
            let distinct = Distinct { rule: rule.clone(), job: job_index, name: Some(name), counts: BTreeMap::new() };
            self.distinct.push(distinct);
        }
        let affinities: Vec<(Condition, f64)> = job
            .affinities
            .iter()
            .chain(group.affinities.iter())
            .chain(group.tasks.iter().flat_map(|t| t.affinities.iter()))
            .map(|a| (Condition::new(&a.l_target, &a.operand, &a.r_target), weight(a.weight)))
            .collect();
        let mut info = GroupInfo {
            job: job_index,
            name,
            group: Arc::clone(group),
            rules,
            ask: Ask::of(group, self.oversubscription),
            spreads: spread::spreads_of(&job.spreads, group),
            affinity_total: affinities.iter().map(|(_, w)| w.abs()).sum(),
            affinities,
            affinity_known: Vec::new(),
            fit_known: Vec::new(),
            has_device_affinities: group
                .tasks
                .iter()
                .flat_map(|t| t.resources.devices.iter())
                .any(|d| !d.affinities.is_empty()),
        };
        let live: Vec<(usize, usize)> = self.live.values().copied().collect();
        for (candidate, live_name) in live {
            let Some(node) = self.candidates.get(candidate).map(|c| Arc::clone(&c.node)) else { continue };
            if live_name == name {
                info.spreads.iter_mut().for_each(|s| s.note(candidate, &node, true));
            }
            if let Some(new) = self.distinct.get_mut(first_distinct..) {
                new.iter_mut().for_each(|d| d.note(live_name, &node, true));
            }
        }
        self.groups.push(info);
        self.classes.iter_mut().for_each(|c| c.groups.push(None));
        GroupIndex(self.groups.len() - 1)
    }

    /// Counts an allocation of the job as live on its node.
    pub(crate) fn track(&mut self, id: AllocId, node: &NodeId, group: &str) {
        let Some(candidate) = self.candidate_of(node) else { return };
        let name = self.name_index(group);
        if self.live.insert(id, (candidate, name)).is_none() {
            self.note(candidate, name, true);
        }
    }

    fn untrack(&mut self, id: &AllocId) {
        if let Some((candidate, name)) = self.live.remove(id) {
            self.note(candidate, name, false);
        }
    }

    fn note(&mut self, index: usize, name: usize, came: bool) {
        let Some(candidate) = self.candidates.get_mut(index) else { return };
        if candidate.live.len() <= name {
            candidate.live.resize(name + 1, 0);
        }
        if let Some(count) = candidate.live.get_mut(name) {
            *count = if came { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
        let node = Arc::clone(&candidate.node);
        for group in self.groups.iter_mut().filter(|g| g.name == name) {
            group.spreads.iter_mut().for_each(|s| s.note(index, &node, came));
        }
        self.distinct.iter_mut().for_each(|d| d.note(name, &node, came));
    }

    /// The plan stops an allocation of this or another job: its share is free.
    pub(crate) fn release(&mut self, alloc: &Allocation) {
        self.untrack(&alloc.id);
        if !self.chosen.released.insert(alloc.id) {
            return;
        }
        let Some(index) = self.candidate_of(&alloc.node_id) else { return };
        self.ensure_load(index);
        if let (false, Some(candidate)) = (alloc.client_terminal(), self.candidates.get_mut(index)) {
            candidate.load.remove(&alloc.resources);
            candidate.generation += 1;
        }
    }

    /// Takes a [`Stack::release`] back.
    pub(crate) fn retain(&mut self, alloc: &Allocation) {
        if !self.chosen.released.remove(&alloc.id) {
            return;
        }
        let Some(index) = self.candidate_of(&alloc.node_id) else { return };
        if !alloc.client_terminal() {
            self.ensure_load(index);
            if let Some(candidate) = self.candidates.get_mut(index) {
                candidate.load.add(&alloc.resources);
                candidate.generation += 1;
            }
        }
        if !alloc.terminal() && !alloc.work_over() {
            self.track(alloc.id, &alloc.node_id, &alloc.task_group);
        }
    }

    /// Counts a placement that the plan makes.
    pub(crate) fn commit(&mut self, group: GroupIndex, choice: &Choice, id: AllocId) {
        let Some(info) = self.groups.get(group.0) else { return };
        let name = info.name;
        for victim in &choice.victims {
            self.chosen.add(victim);
            self.release(victim);
        }
        if let (Some(candidate), Some(info)) = (self.candidates.get_mut(choice.candidate), self.groups.get(group.0)) {
            candidate.load.add_with(&choice.resources, info.ask.usage(&candidate.capacity));
            candidate.generation += 1;
        }
        self.live.insert(id, (choice.candidate, name));
        self.note(choice.candidate, name, true);
    }

    /// Whether the node of an allocation may keep it under this version of the group, its resources being granted
    /// already: reach, constraints, drivers, networks and volumes.
    pub(crate) fn may_stay(&mut self, group: GroupIndex, alloc: &Allocation) -> bool {
        let Some(index) = self.candidate_of(&alloc.node_id) else { return false };
        let Some(node) = self.candidates.get(index).map(|c| Arc::clone(&c.node)) else { return false };
        in_reach(&self.job, &node) && self.filtered(index, group, alloc.index().unwrap_or(0), true).is_none()
    }

    /// Whether a node may take the group, whatever its load.
    pub(crate) fn could_take(&mut self, index: usize, group: GroupIndex) -> bool {
        self.filtered(index, group, 0, false).is_none()
    }

    /// Why a node may not take the group whatever its load, or none.
    fn filtered(&mut self, index: usize, group: GroupIndex, name_index: u64, stays: bool) -> Option<String> {
        let candidate = self.candidates.get(index)?;
        let info = self.groups.get(group.0)?;
        let job = self.jobs.get(info.job)?;
        if job.reach.as_ref().is_some_and(|older| !in_reach(older, &candidate.node)) {
            return Some("out of reach of the version to place".to_owned());
        }
        let mut class = candidate.class.and_then(|c| self.classes.get_mut(c));
        let known = |class: &Option<&mut Class>| {
            let class = class.as_ref()?;
            Some((class.jobs.get(info.job).copied().flatten(), class.groups.get(group.0).copied().flatten()))
        };
        let (job_known, group_known) = known(&class).unwrap_or((None, None));
        let job_cached = job_known.filter(|_| !job.conditions.escaped);
        let group_cached = group_known.filter(|_| !info.rules.conditions.escaped);
        if job_cached == Some(false) || group_cached == Some(false) {
            return Some("computed class ineligible".to_owned());
        }
        if job_cached.is_none() {
            let refused = job.conditions.refused(&candidate.node, &mut self.cache).map(str::to_owned);
            if let Some(slot) = class.as_mut().and_then(|c| c.jobs.get_mut(info.job)) {
                *slot = Some(refused.is_none());
            }
            if refused.is_some() {
                return refused;
            }
        }
        if group_cached.is_none() {
            let refused = info.rules.refused(&candidate.node, &mut self.cache).map(Cow::into_owned);
            if let Some(slot) = class.as_mut().and_then(|c| c.groups.get_mut(group.0)) {
                *slot = Some(refused.is_none());
            }
            if refused.is_some() {
                return refused;
            }
        }
        if let Some(reason) = info.rules.unavailable(&candidate.node, name_index) {
            return Some(reason.to_owned());
        }
        if stays { None } else { self.not_distinct(index, group) }
    }

    fn not_distinct(&self, index: usize, group: GroupIndex) -> Option<String> {
        let candidate = self.candidates.get(index)?;
        let info = self.groups.get(group.0)?;
        let job = self.jobs.get(info.job)?;
        let of_job = job.conditions.distinct_hosts && candidate.live.iter().any(|c| *c > 0);
        let of_group = info.rules.conditions.distinct_hosts && candidate.live.get(info.name).is_some_and(|c| *c > 0);
        if of_job || of_group {
            return Some("distinct_hosts".to_owned());
        }
        let keys = NodeKeys(&candidate.node);
        for distinct in self.distinct.iter().filter(|d| d.job == info.job && d.name.is_none_or(|n| n == info.name)) {
            let Some(value) = distinct.rule.value(&keys) else {
                return Some(format!("missing property \"{}\"", distinct.rule.attribute));
            };
            let used = distinct.counts.get(value.as_ref()).copied().unwrap_or(0);
            if used >= distinct.rule.allowed {
                return Some(format!("distinct_property: {}={value} used by {used} allocs", distinct.rule.attribute));
            }
        }
        None
    }

    /// Per computed class, whether its nodes could take some group looked at; and whether that says nothing, because some
    /// constraint looks at what is unique to a node.
    pub(crate) fn eligibility(&self) -> (BTreeMap<String, bool>, bool) {
        let escaped =
            self.jobs.iter().any(|j| j.conditions.escaped) || self.groups.iter().any(|g| g.rules.conditions.escaped);
        if escaped {
            return (BTreeMap::new(), true);
        }
        let mut all = BTreeMap::new();
        for class in &self.classes {
            let looked_at = class.groups.iter().flatten().next().is_some();
            if class.jobs.iter().flatten().any(|ok| !ok) && !class.groups.iter().flatten().any(|ok| *ok) {
                all.insert(class.name.clone(), false);
            } else if looked_at {
                all.insert(class.name.clone(), class.groups.iter().flatten().any(|ok| *ok));
            }
        }
        (all, false)
    }
}

impl Distinct {
    fn note(&mut self, name: usize, node: &Node, came: bool) {
        if self.name.is_some_and(|n| n != name) {
            return;
        }
        let keys = NodeKeys(node);
        let Some(value) = self.rule.value(&keys) else { return };
        let count = self.counts.entry(value.into_owned()).or_insert(0);
        *count = if came { count.saturating_add(1) } else { count.saturating_sub(1) };
    }
}

/// The pool a job asks for.
pub(crate) fn pool_of(job: &Job) -> &str {
    if job.node_pool.is_empty() { DEFAULT_POOL } else { &job.node_pool }
}

/// Whether a node is in the job's pool and datacenters.
pub(crate) fn in_reach(job: &Job, node: &Node) -> bool {
    let pool = pool_of(job);
    let node_pool = if node.node_pool.is_empty() { DEFAULT_POOL } else { &node.node_pool };
    (pool == ALL_POOLS || pool == node_pool) && glob::matches_any(&job.datacenters, &node.datacenter)
}
