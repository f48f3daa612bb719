//! An independent check of plans: reads what a plan says and what the snapshot says, and nothing of how the plan came to be.
//!
//! Written apart from the planner on purpose: it adds up resources, ports and counts in its own way, so that an error
//! would have to be made twice to pass.

use crate::view::View;
use herdsman_expr::constraint::{Cache, Target, check, distinct_count, distinct_hosts_enabled};
use herdsman_expr::glob;
use herdsman_expr::interpolate::Lookup;
use herdsman_model::{
    AllocId, AllocatedResources, Allocation, ClientStatus, Constraint, DesiredStatus, Eligibility, Hook, Job, Node,
    NodeId, NodeStatus, Plan, TaskGroup,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What a plan must not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A node takes more than it has.
    Overcommit,
    /// Two hold one port, core or device.
    HeldTwice,
    /// The node is gone, not ready, not eligible, or draining.
    NodeNotReady,
    /// The node is in no datacenter or pool of the job.
    OutOfReach,
    /// A constraint, driver or distinct rule does not hold.
    Constraint,
    /// Two new allocations of one name, or a name that is none of the group's.
    Name,
    /// More allocations than wanted.
    Count,
    /// More canaries than wanted, or replacements beside unpromoted ones.
    Canary,
    /// More is replaced at once than the group allows.
    MaxParallel,
    /// It acts on an allocation that is not there, not the job's, or twice on one.
    Reference,
    /// A victim is not of low enough priority.
    Preemption,
}

/// One thing that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub rule: Rule,
    /// What it is about and why it is wrong.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.text)
    }
}

/// Everything that is wrong with a plan made from this snapshot; nothing for a good one.
pub fn lint(view: &dyn View, plan: &Plan) -> Vec<Finding> {
    let mut linter = Linter { view, plan, findings: Vec::new(), ending: BTreeSet::new(), updated: BTreeSet::new() };
    linter.references();
    for (id, placements) in &plan.placements {
        linter.node(id, placements);
    }
    linter.preemptions();
    if let Some(job) = plan.job.clone() {
        linter.job(&job);
    }
    linter.findings
}

struct Linter<'l> {
    view: &'l dyn View,
    plan: &'l Plan,
    findings: Vec<Finding>,
    /// Allocations that the plan ends.
    ending: BTreeSet<AllocId>,
    /// Allocations that the plan updates in place.
    updated: BTreeSet<AllocId>,
}

/// What a node's allocations take, added up.
#[derive(Default)]
struct Sum {
    cpu: i64,
    memory: i64,
    disk: i64,
    allocs: i64,
    held: BTreeMap<String, u64>,
}

impl Sum {
    fn add(&mut self, resources: &AllocatedResources) {
        let mut cpu = [0i64; 3];
        let mut memory = [0i64; 3];
        for (name, task) in &resources.tasks {
            let lifecycle = resources.task_lifecycles.get(name).and_then(Option::as_ref);
            let phases: &[usize] = match lifecycle {
                None => &[1],
                Some(l) => match (l.hook, l.sidecar) {
                    (Hook::Prestart, false) => &[0],
                    (Hook::Prestart, true) => &[0, 1],
                    (Hook::Poststart, _) => &[1],
                    (Hook::Poststop, _) => &[2],
                },
            };
            let pinned = !task.cpu.reserved_cores.is_empty();
            if pinned {
                self.cpu += task.cpu.cpu_shares;
            }
            for phase in phases {
                if let (Some(c), Some(m)) = (cpu.get_mut(*phase), memory.get_mut(*phase)) {
                    *c += if pinned { 0 } else { task.cpu.cpu_shares };
                    *m += task.memory.memory_mb;
                }
            }
            for core in &task.cpu.reserved_cores {
                self.hold(format!("core {core}"));
            }
            for device in &task.devices {
                for id in &device.device_ids {
                    self.hold(format!("device {}/{}/{}/{id}", device.vendor, device.kind, device.name));
                }
            }
            for network in &task.networks {
                for port in network.reserved_ports.iter().chain(network.dynamic_ports.iter()) {
                    self.hold(format!("port {}:{}", network.ip, port.value));
                }
            }
        }
        self.cpu += cpu.into_iter().max().unwrap_or(0);
        self.memory += memory.into_iter().max().unwrap_or(0);
        self.disk += resources.shared.disk_mb;
        self.allocs += 1;
        for port in resources.shared.ports.iter().filter(|p| !p.ignore_collision) {
            self.hold(format!("port {}:{}", port.host_ip, port.value));
        }
    }

    fn hold(&mut self, what: String) {
        *self.held.entry(what).or_insert(0) += 1;
    }
}

struct Keys<'n>(&'n Node);

impl Lookup for Keys<'_> {
    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        let node = self.0;
        let (space, name) = key.split_once('.')?;
        match (space, name) {
            ("attr", name) => node.attributes.get(name).map(|v| Cow::Borrowed(v.as_str())),
            ("meta", name) => node.meta.get(name).map(|v| Cow::Borrowed(v.as_str())),
            (_, "datacenter") => Some(Cow::Borrowed(node.datacenter.as_str())),
            (_, "class") => Some(Cow::Borrowed(node.node_class.as_str())),
            (_, "pool") => Some(Cow::Borrowed(node.node_pool.as_str())),
            (_, "unique.id") => Some(Cow::Owned(node.id.to_string())),
            (_, "unique.name") => Some(Cow::Borrowed(node.name.as_ref())),
            _ => None,
        }
    }
}

impl Linter<'_> {
    fn find(&mut self, rule: Rule, text: String) {
        self.findings.push(Finding { rule, text });
    }

    fn references(&mut self) {
        let mut acted: BTreeSet<AllocId> = BTreeSet::new();
        let all = self.plan.stops.iter().chain(&self.plan.preemptions);
        for (node, stop) in all.flat_map(|(n, stops)| stops.iter().map(move |s| (n, s))) {
            if !acted.insert(stop.id) {
                self.find(Rule::Reference, format!("allocation {} is acted on twice", stop.id));
            }
            if stop.desired_status != DesiredStatus::Run || stop.client_status == Some(ClientStatus::Lost) {
                self.ending.insert(stop.id);
            }
            match self.view.alloc(&stop.id) {
                None => self.find(Rule::Reference, format!("allocation {} does not exist", stop.id)),
                Some(alloc) if alloc.node_id != *node => {
                    self.find(Rule::Reference, format!("allocation {} is not on node {node}", stop.id));
                }
                Some(_) => {}
            }
        }
        let plan = self.plan;
        for (node, placed) in plan.placements.iter().flat_map(|(n, all)| all.iter().map(move |a| (n, a))) {
            if placed.node_id != *node {
                self.find(Rule::Reference, format!("allocation {} names another node than {node}", placed.id));
            }
            if let Some(known) = self.view.alloc(&placed.id) {
                self.updated.insert(placed.id);
                if known.node_id != *node || known.resources != placed.resources {
                    self.find(Rule::Reference, format!("allocation {} moves in an update in place", placed.id));
                }
            }
            if !acted.insert(placed.id) {
                self.find(Rule::Reference, format!("allocation {} is acted on twice", placed.id));
            }
        }
    }

    fn version(&self, alloc: &Allocation) -> Option<Arc<Job>> {
        let newest = self.plan.job.as_ref().filter(|j| j.version == alloc.job_version);
        newest.cloned().or_else(|| self.view.job_version(&alloc.namespace, &alloc.job_id, alloc.job_version))
    }

    /// The allocations on a node once the plan is committed.
    fn after(&self, id: &NodeId, placements: &[Arc<Allocation>]) -> Vec<Arc<Allocation>> {
        let stays = |a: &Arc<Allocation>| {
            !a.client_status.is_terminal() && !self.ending.contains(&a.id) && !self.updated.contains(&a.id)
        };
        let mut after: Vec<_> = self.view.allocs_by_node(id).into_iter().filter(stays).collect();
        after.extend(placements.iter().cloned());
        after
    }

    fn node(&mut self, id: &NodeId, placements: &[Arc<Allocation>]) {
        let new: Vec<&Arc<Allocation>> = placements.iter().filter(|a| !self.updated.contains(&a.id)).collect();
        let Some(node) = self.view.node(id) else {
            return self.find(Rule::NodeNotReady, format!("node {id} does not exist"));
        };
        if new.is_empty() {
            return;
        }
        let ready =
            node.status == NodeStatus::Ready && node.drain.is_none() && node.eligibility == Eligibility::Eligible;
        if !ready {
            self.find(Rule::NodeNotReady, format!("node {id} takes no allocations"));
        }
        let after = self.after(id, placements);
        self.fits(&node, &after, &new);
        for alloc in new {
            self.placement(&node, alloc);
        }
        if let Some(job) = self.plan.job.clone() {
            self.distinct_hosts(&job, &node, &after);
        }
    }

    fn fits(&mut self, node: &Node, after: &[Arc<Allocation>], new: &[&Arc<Allocation>]) {
        let mut sum = Sum::default();
        after.iter().for_each(|a| sum.add(&a.resources));
        let mut fresh = Sum::default();
        new.iter().for_each(|a| fresh.add(&a.resources));
        let (has, keeps) = (&node.resources, &node.reserved);
        let dimensions = [
            ("cpu", sum.cpu, has.cpu_shares - keeps.cpu_shares),
            ("memory", sum.memory, has.memory_mb - keeps.memory_mb),
            ("disk", sum.disk, has.disk_mb - keeps.disk_mb),
        ];
        for (name, used, offered) in dimensions {
            if used > offered {
                self.find(Rule::Overcommit, format!("node {} has {offered} of {name}, {used} are used", node.id));
            }
        }
        if node.node_max_allocs > 0 && sum.allocs > node.node_max_allocs {
            self.find(Rule::Overcommit, format!("node {} holds {} allocations", node.id, sum.allocs));
        }
        let offered: BTreeSet<String> = has
            .reservable_cores
            .iter()
            .filter(|c| !keeps.cores.contains(c))
            .map(|c| format!("core {c}"))
            .chain(has.devices.iter().flat_map(|g| {
                let healthy = g.instances.iter().filter(|i| i.healthy);
                healthy.map(move |i| format!("device {}/{}/{}/{}", g.vendor, g.kind, g.name, i.id))
            }))
            .collect();
        let reserved: BTreeSet<&str> = keeps.ports.split(',').map(str::trim).collect();
        for (what, count) in &sum.held {
            // What stops hands on what it holds to the one that takes its place; those two may hold it for a while.
            if *count > 1 && fresh.held.contains_key(what) {
                self.find(Rule::HeldTwice, format!("{what} of node {} is held {count} times", node.id));
            }
            let port = what.strip_prefix("port ").and_then(|p| p.rsplit_once(':')).map(|(_, p)| p);
            let missing = match port {
                Some(port) => reserved.contains(port),
                None => !offered.contains(what),
            };
            if missing {
                self.find(Rule::Overcommit, format!("{what} is not node {}'s to give", node.id));
            }
        }
    }

    fn placement(&mut self, node: &Node, alloc: &Allocation) {
        let Some(job) = self.version(alloc) else {
            return self.find(Rule::Reference, format!("allocation {} is of a version that is not kept", alloc.id));
        };
        let Some(group) = job.group(&alloc.task_group).cloned() else {
            return self.find(Rule::Reference, format!("allocation {} is of a group the job has not", alloc.id));
        };
        let pool = if job.node_pool.is_empty() { "default" } else { &job.node_pool };
        let node_pool = if node.node_pool.is_empty() { "default" } else { &node.node_pool };
        let in_pool = pool == "all" || pool == node_pool;
        if !in_pool || !job.datacenters.iter().any(|d| glob::matches(d, &node.datacenter)) {
            self.find(Rule::OutOfReach, format!("node {} is out of reach of job {}", node.id, job.id));
        }
        let lists = [&job.constraints, &group.constraints];
        let tasks = group.tasks.iter().map(|t| &t.constraints);
        for constraint in lists.into_iter().chain(tasks).flat_map(|l| l.iter()) {
            if !holds(node, constraint) {
                let Constraint { l_target, operand, r_target } = constraint;
                let text = format!("{l_target} {operand} {r_target} does not hold on node {}", node.id);
                self.find(Rule::Constraint, text);
            }
        }
        for task in &group.tasks {
            let reported = node.drivers.get(&task.driver).map(|d| d.detected && d.healthy);
            let attribute = node.attributes.get(&format!("driver.{}", task.driver));
            if !reported.unwrap_or_else(|| attribute.is_some_and(|v| v == "1" || v == "true")) {
                self.find(Rule::Constraint, format!("node {} has no driver {}", node.id, task.driver));
            }
        }
        self.granted(&group, alloc);
    }

    /// Every task and port of the group is granted, and as much as it asked for.
    fn granted(&mut self, group: &TaskGroup, alloc: &Allocation) {
        for task in &group.tasks {
            let asked = &task.resources;
            let given = alloc.resources.tasks.get(&task.name);
            let enough = given.is_some_and(|g| {
                let cores = i64::try_from(g.cpu.reserved_cores.len()).unwrap_or(0);
                g.memory.memory_mb >= asked.memory_mb
                    && cores == asked.cores.max(0)
                    && (cores > 0 || g.cpu.cpu_shares >= asked.cpu)
            });
            if !enough {
                self.find(
                    Rule::Overcommit,
                    format!("task {} of allocation {} got less than it asked for", task.name, alloc.id),
                );
            }
        }
        let asked: Vec<(&str, Option<i64>)> = group
            .networks
            .iter()
            .flat_map(|n| {
                let fixed = n.reserved_ports.iter().map(|p| (p.label.as_str(), Some(p.value)));
                fixed.chain(n.dynamic_ports.iter().map(|p| (p.label.as_str(), None)))
            })
            .collect();
        for (label, value) in asked {
            let given = alloc.resources.shared.ports.iter().find(|p| p.label == label);
            if !given.is_some_and(|g| g.value > 0 && value.is_none_or(|v| v == g.value)) {
                self.find(Rule::Overcommit, format!("port {label} of allocation {} is not granted", alloc.id));
            }
        }
    }

    fn distinct_hosts(&mut self, job: &Job, node: &Node, after: &[Arc<Allocation>]) {
        let asks = |list: &[Constraint]| {
            list.iter().any(|c| c.operand == "distinct_hosts" && distinct_hosts_enabled(&c.r_target))
        };
        let live = |a: &&Arc<Allocation>| {
            *a.job_id == *job.id && *a.namespace == *job.namespace && !a.server_terminal() && !a.work_over()
        };
        let own: Vec<&Arc<Allocation>> = after.iter().filter(live).collect();
        if asks(&job.constraints) && own.len() > 1 {
            self.find(Rule::Constraint, format!("distinct_hosts: {} of job {} on node {}", own.len(), job.id, node.id));
        }
        for group in &job.task_groups {
            let of_group = own.iter().filter(|a| *a.task_group == *group.name).count();
            let in_group = asks(&group.constraints) || group.tasks.iter().any(|t| asks(&t.constraints));
            if in_group && of_group > 1 {
                self.find(
                    Rule::Constraint,
                    format!("distinct_hosts: {of_group} of group {} on node {}", group.name, node.id),
                );
            }
        }
    }

    fn preemptions(&mut self) {
        for stop in self.plan.preemptions.values().flatten() {
            let Some(victim) = self.view.alloc(&stop.id) else { continue };
            let of = |job: Option<Arc<Job>>| job.map(|j| j.priority);
            let version = self.view.job_version(&victim.namespace, &victim.job_id, victim.job_version);
            let priority = of(version).or_else(|| of(self.view.job(&victim.namespace, &victim.job_id)));
            let own = self.plan.job.as_ref().map_or(0, |j| j.priority);
            if priority.is_none_or(|p| p > own - 10) {
                self.find(Rule::Preemption, format!("victim {} is not 10 below priority {own}", stop.id));
            }
        }
    }

    fn job(&mut self, job: &Arc<Job>) {
        let mut after: Vec<Arc<Allocation>> = self
            .view
            .allocs_by_job(&job.namespace, &job.id)
            .into_iter()
            .filter(|a| !self.ending.contains(&a.id) && !self.updated.contains(&a.id) && !a.server_terminal())
            .collect();
        let placements = self.plan.placements.values().flatten();
        let new: Vec<Arc<Allocation>> = placements.clone().filter(|a| !self.updated.contains(&a.id)).cloned().collect();
        after.extend(placements.cloned());
        if job.stop && !new.is_empty() {
            self.find(Rule::Count, format!("job {} is stopped", job.id));
        }
        for group in &job.task_groups {
            let of_group = |a: &&Arc<Allocation>| *a.task_group == *group.name;
            let new: Vec<Arc<Allocation>> = new.iter().filter(of_group).cloned().collect();
            if new.is_empty() {
                continue;
            }
            let after: Vec<Arc<Allocation>> = after.iter().filter(of_group).cloned().collect();
            self.distinct_property(job, group, &after, &new);
            if job.kind.is_system() {
                self.one_per_node(group, &after);
            } else {
                self.names(job, group, &new);
                self.counts(job, group, &after, &new);
                self.updates(group, &new);
            }
        }
    }

    fn one_per_node(&mut self, group: &TaskGroup, after: &[Arc<Allocation>]) {
        let mut nodes = BTreeSet::new();
        for alloc in after.iter().filter(|a| !a.work_over()) {
            if !nodes.insert(alloc.node_id) {
                self.find(Rule::Count, format!("two of group {} on node {}", group.name, alloc.node_id));
            }
        }
    }

    fn names(&mut self, job: &Job, group: &TaskGroup, new: &[Arc<Allocation>]) {
        let mut seen = BTreeSet::new();
        for alloc in new {
            let prefix = format!("{}.{}[", job.id, group.name);
            if !alloc.name.starts_with(&prefix) || alloc.index().is_none() {
                self.find(Rule::Name, format!("{} is no name of group {}", alloc.name, group.name));
            }
            let key = (alloc.name.clone(), alloc.is_canary());
            // A job that goes down in count may hold names beyond it, and names of what is out of sight come twice.
            if !seen.insert(key) && alloc.previous_allocation.is_none() {
                self.find(Rule::Name, format!("{} is placed twice", alloc.name));
            }
        }
    }

    fn counts(&mut self, job: &Job, group: &TaskGroup, after: &[Arc<Allocation>], new: &[Arc<Allocation>]) {
        let wanted = usize::try_from(group.count).unwrap_or(0);
        let canaries = usize::try_from(group.update.as_ref().map_or(0, |u| u.canary)).unwrap_or(0);
        // What is done stays done for batch jobs; for services it is to be replaced.
        let present = |a: &&Arc<Allocation>| {
            let done = a.work_over();
            !done && a.client_status != ClientStatus::Unknown && !self.marked_unknown(a)
        };
        let live = after.iter().filter(present).filter(|a| !a.is_canary()).count();
        let bound = if job.kind.is_batch() { wanted } else { wanted.saturating_add(canaries) };
        if live > bound {
            self.find(Rule::Count, format!("group {} wants {wanted}, {live} would be there", group.name));
        }
        let fresh = new.iter().filter(|a| a.is_canary()).count();
        if fresh > canaries {
            self.find(Rule::Canary, format!("group {} wants {canaries} canaries, {fresh} are placed", group.name));
        }
    }

    fn marked_unknown(&self, alloc: &Allocation) -> bool {
        let marks = self.plan.stops.get(&alloc.node_id);
        marks.is_some_and(|m| m.iter().any(|s| s.id == alloc.id && s.client_status == Some(ClientStatus::Unknown)))
    }

    fn updates(&mut self, group: &TaskGroup, new: &[Arc<Allocation>]) {
        let Some(update) = group.update.as_ref().filter(|u| u.max_parallel > 0) else { return };
        let replaced = new
            .iter()
            .filter_map(|a| Some((a, self.view.alloc(&a.previous_allocation?)?)))
            .filter(|(a, previous)| {
                // Replaced because it is out of date, not because it ended or its node went away.
                let elsewhere = previous.work_over() || previous.desired_transition.should_migrate();
                previous.job_version < a.job_version && !elsewhere && self.stopped_well(previous)
            })
            .count();
        let allowed = usize::try_from(update.max_parallel).unwrap_or(0);
        if replaced > allowed {
            self.find(Rule::MaxParallel, format!("group {} replaces {replaced} at once, {allowed} may be", group.name));
        }
        if replaced > 0 && new.iter().any(|a| a.is_canary()) {
            self.find(Rule::Canary, format!("group {} replaces {replaced} beside new canaries", group.name));
        }
    }

    fn stopped_well(&self, alloc: &Allocation) -> bool {
        let stops = self.plan.stops.get(&alloc.node_id);
        stops.is_some_and(|s| {
            s.iter().any(|s| s.id == alloc.id && s.client_status.is_none() && s.desired_status.is_terminal())
        })
    }

    fn distinct_property(&mut self, job: &Job, group: &TaskGroup, after: &[Arc<Allocation>], new: &[Arc<Allocation>]) {
        let lists = [&group.constraints].into_iter().chain(group.tasks.iter().map(|t| &t.constraints));
        let rules: Vec<&Constraint> =
            lists.flat_map(|l| l.iter()).filter(|c| c.operand == "distinct_property").collect();
        for rule in rules {
            let allowed = distinct_count(&rule.r_target).unwrap_or(1);
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for alloc in after.iter().filter(|a| !a.work_over()) {
                let Some(node) = self.view.node(&alloc.node_id) else { continue };
                if let Some(value) = Target::parse(&rule.l_target).resolve(&Keys(&node)) {
                    *counts.entry(value.into_owned()).or_insert(0) += 1;
                }
            }
            for alloc in new {
                let Some(node) = self.view.node(&alloc.node_id) else { continue };
                let keys = Keys(&node);
                let value = Target::parse(&rule.l_target).resolve(&keys);
                let count = value.and_then(|v| counts.get(v.as_ref()).copied());
                if count.is_none_or(|c| c > allowed) {
                    let text = format!("distinct_property {} of job {}: {count:?} of {allowed}", rule.l_target, job.id);
                    self.find(Rule::Constraint, text);
                }
            }
        }
    }
}

fn holds(node: &Node, constraint: &Constraint) -> bool {
    let keys = Keys(node);
    let left = Target::parse(&constraint.l_target).resolve(&keys);
    let right = Target::parse(&constraint.r_target).resolve(&keys);
    check(&constraint.operand, left.as_deref(), right.as_deref(), &mut Cache::default())
}
