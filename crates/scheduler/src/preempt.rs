//! Preemption: which allocations of lower priority make room on a node, as few and as fitting as can be.

use crate::ask::Ask;
use crate::load::{Dimension, Usage, usage_of};
use crate::stack::Candidate;
use crate::view::View;
use herdsman_model::{AllocId, Allocation, Job};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How far below the preempting job the priority of a victim must be.
const PRIORITY_DELTA: i64 = 10;

/// Added to the distance for each victim of a group beyond its `migrate.max_parallel`.
const MAX_PARALLEL_PENALTY: f64 = 50.0;

/// What was chosen in this plan so far.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// Allocations that the plan stops or pushes out already.
    pub(crate) released: BTreeSet<AllocId>,
    /// Victims per namespace, job and group.
    pub(crate) per_group: BTreeMap<(String, String, String), i64>,
}

impl Chosen {
    pub(crate) fn add(&mut self, victim: &Allocation) {
        let count = self.per_group.entry(group_key(victim)).or_insert(0);
        *count = count.saturating_add(1);
    }
}

fn group_key(alloc: &Allocation) -> (String, String, String) {
    (alloc.namespace.to_string(), alloc.job_id.to_string(), alloc.task_group.to_string())
}

struct Victim {
    alloc: Arc<Allocation>,
    usage: Usage,
    priority: i64,
    max_parallel: i64,
}

fn job_of(view: &dyn View, alloc: &Allocation) -> Option<Arc<Job>> {
    view.job_version(&alloc.namespace, &alloc.job_id, alloc.job_version)
        .or_else(|| view.job(&alloc.namespace, &alloc.job_id))
}

/// The priorities of the victims' jobs.
pub(crate) fn priorities(view: &dyn View, victims: &[Arc<Allocation>]) -> Vec<i64> {
    victims.iter().map(|v| job_of(view, v).map_or(0, |j| j.priority)).collect()
}

/// The allocations to push out so that the ask fits; none when that cannot be reached.
pub(crate) fn victims(
    view: &dyn View,
    candidate: &Candidate,
    ask: &Ask,
    job: &Job,
    chosen: &Chosen,
) -> Option<Vec<Arc<Allocation>>> {
    let mut pool = preemptible(view, candidate, job, chosen);
    let wanted = ask.usage(&candidate.capacity);
    let mut load = candidate.load.clone();
    let mut taken: Vec<Victim> = Vec::new();
    let mut counts = chosen.per_group.clone();
    while let Err(dimension) = ask.fits(&candidate.node, &candidate.capacity, &load) {
        let ports = ask.static_ports(&candidate.node);
        let helps = |v: &&Victim| helps(v, &dimension, &ports);
        let lowest = pool.iter().filter(helps).map(|v| v.priority).min()?;
        let best = pool
            .iter()
            .enumerate()
            .filter(|(_, v)| v.priority == lowest && helps(v))
            .min_by(|(_, a), (_, b)| distance(a, wanted, &counts).total_cmp(&distance(b, wanted, &counts)))?
            .0;
        let victim = pool.remove(best);
        load.remove(&victim.alloc.resources);
        *counts.entry(group_key(&victim.alloc)).or_insert(0) += 1;
        taken.push(victim);
    }
    // What was taken first may have become needless through what was taken after it: the most important one goes back
    // first.
    taken.sort_by_key(|v| std::cmp::Reverse(v.priority));
    let mut needed = Vec::new();
    for victim in taken {
        load.add(&victim.alloc.resources);
        if ask.fits(&candidate.node, &candidate.capacity, &load).is_err() {
            load.remove(&victim.alloc.resources);
            needed.push(victim.alloc);
        }
    }
    (!needed.is_empty()).then_some(needed)
}

fn preemptible(view: &dyn View, candidate: &Candidate, job: &Job, chosen: &Chosen) -> Vec<Victim> {
    let mut pool = Vec::new();
    for alloc in view.allocs_by_node(&candidate.node.id) {
        let own = *alloc.job_id == *job.id && *alloc.namespace == *job.namespace;
        if own || alloc.terminal() || chosen.released.contains(&alloc.id) {
            continue;
        }
        let Some(other) = job_of(view, &alloc) else { continue };
        if other.priority > job.priority.saturating_sub(PRIORITY_DELTA) {
            continue;
        }
        let migrate = other.group(&alloc.task_group).and_then(|g| g.migrate.as_ref().map(|m| m.max_parallel));
        let usage = usage_of(&alloc.resources);
        pool.push(Victim { usage, priority: other.priority, max_parallel: migrate.unwrap_or(0), alloc });
    }
    pool
}

/// Whether stopping it brings the exceeded dimension down.
fn helps(victim: &Victim, dimension: &Dimension, static_ports: &[(String, i64)]) -> bool {
    if *dimension == Dimension::CPU {
        victim.usage.cpu > 0
    } else if *dimension == Dimension::MEMORY {
        victim.usage.memory_mb > 0
    } else if *dimension == Dimension::DISK {
        victim.usage.disk_mb > 0
    } else if *dimension == Dimension::CORES {
        victim.alloc.resources.tasks.values().any(|t| !t.cpu.reserved_cores.is_empty())
    } else if *dimension == Dimension::DEVICES {
        victim.alloc.resources.tasks.values().any(|t| !t.devices.is_empty())
    } else if *dimension == Dimension::MAX_ALLOCS {
        true
    } else {
        let shared = victim.alloc.resources.shared.ports.iter();
        static_ports.is_empty()
            || shared.into_iter().any(|p| static_ports.iter().any(|(a, v)| *a == p.host_ip && *v == p.value))
    }
}

/// How far the victim is from what is asked for: 0 is exactly it.
#[allow(clippy::cast_precision_loss)]
fn distance(victim: &Victim, ask: Usage, counts: &BTreeMap<(String, String, String), i64>) -> f64 {
    let part = |ask: i64, used: i64| if ask > 0 { (ask.saturating_sub(used)) as f64 / ask as f64 } else { 0.0 };
    let (memory, cpu, disk) = (
        part(ask.memory_mb, victim.usage.memory_mb),
        part(ask.cpu, victim.usage.cpu),
        part(ask.disk_mb, victim.usage.disk_mb),
    );
    let distance = (memory * memory + cpu * cpu + disk * disk).sqrt();
    let others = counts.get(&group_key(&victim.alloc)).copied().unwrap_or(0);
    if victim.max_parallel > 0 && others >= victim.max_parallel {
        let over = others.saturating_add(1).saturating_sub(victim.max_parallel);
        return distance + MAX_PARALLEL_PENALTY * over as f64;
    }
    distance
}
