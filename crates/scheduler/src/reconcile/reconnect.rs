//! Allocations that are back in sight: which of an original and its replacements goes on.

use super::group::{Sets, count};
use super::{Reconciler, stop};
use crate::texts;
use herdsman_model::{Allocation, ClientStatus, DesiredUpdates, Job, Nanos, TaskGroup};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Reconciler<'_> {
    /// Decides for each allocation that is back.
    pub(crate) fn reconnect(&mut self, job: &Job, group: &TaskGroup, sets: &mut Sets, counts: &mut DesiredUpdates) {
        let mut stopped = BTreeSet::new();
        for original in std::mem::take(&mut sets.reconnecting) {
            if original.work_failed() {
                // Its failure is dealt with like any other once its return is noted.
                if self.is_replaced(&original) {
                    self.results.stops.push((Arc::clone(&original), stop(original.id, texts::WAS_RESCHEDULED)));
                    counts.stop = counts.stop.saturating_add(1);
                } else {
                    sets.untainted.push(original);
                }
                continue;
            }
            let transition = &original.desired_transition;
            let outdated = original.job_version < job.version || original.job_create_index != job.create_index;
            if outdated || transition.should_migrate() || transition.should_reschedule() {
                self.results.stops.push((Arc::clone(&original), stop(original.id, texts::NOT_NEEDED)));
                counts.stop = counts.stop.saturating_add(1);
                continue;
            }
            let replacements = self.replacements(&original);
            let keeps = replacements.iter().all(|r| keep_original(group, &original, r));
            if !keeps {
                self.results.stops.push((Arc::clone(&original), stop(original.id, texts::NOT_NEEDED)));
                counts.stop = counts.stop.saturating_add(1);
                continue;
            }
            for replacement in replacements {
                if stopped.insert(replacement.id) {
                    let gone = stop(replacement.id, texts::RECONNECTED);
                    self.results.stops.push((replacement, gone));
                    counts.stop = counts.stop.saturating_add(1);
                }
            }
            counts.reconnect = counts.reconnect.saturating_add(1);
            self.results.reconnected.push(Arc::clone(&original));
            sets.untainted.push(original);
        }
        let before = sets.untainted.len() + sets.migrate.len() + sets.lost.len();
        for set in [&mut sets.untainted, &mut sets.migrate, &mut sets.lost] {
            set.retain(|a| !stopped.contains(&a.id));
        }
        let after = sets.untainted.len() + sets.migrate.len() + sets.lost.len();
        debug_assert!(count(before) >= count(after));
    }

    /// The live allocations that took its place, one after the other.
    fn replacements(&self, original: &Allocation) -> Vec<Arc<Allocation>> {
        let mut chain = BTreeSet::from([original.id]);
        let mut found: Vec<Arc<Allocation>> = Vec::new();
        // Each pass adds at least one or is the last, so there are no more passes than allocations.
        loop {
            let next = self
                .input
                .allocs
                .iter()
                .find(|a| !chain.contains(&a.id) && a.previous_allocation.is_some_and(|p| chain.contains(&p)));
            let Some(next) = next else { break };
            chain.insert(next.id);
            if !next.server_terminal() && !next.work_over() {
                found.push(Arc::clone(next));
            }
        }
        found
    }
}

/// Whether the original goes on rather than its replacement.
fn keep_original(group: &TaskGroup, original: &Allocation, replacement: &Allocation) -> bool {
    if replacement.job_version > original.job_version || replacement.job_create_index > original.job_create_index {
        return false;
    }
    let policy = group.disconnect.as_ref().map_or("", |d| d.reconcile.as_str());
    match policy {
        "keep_original" => true,
        "keep_replacement" => false,
        "longest_running" => longest_running(group, original, replacement),
        _ => best_score(original, replacement),
    }
}

fn max_score(alloc: &Allocation) -> Option<f64> {
    let scores = alloc.metrics.as_ref()?.score_meta_data.iter().map(|s| s.norm_score);
    scores.reduce(f64::max)
}

fn best_score(original: &Allocation, replacement: &Allocation) -> bool {
    let better = match (max_score(original), max_score(replacement)) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(o), Some(r)) => r > o,
    };
    let running = |a: &Allocation| a.client_status == ClientStatus::Running;
    !(better && (running(replacement) || !running(original)))
}

/// When the leader, else the task that runs for the longest, last started.
fn start(group: &TaskGroup, alloc: &Allocation) -> Option<Nanos> {
    let leader = group.tasks.iter().find(|t| t.leader);
    match leader {
        Some(task) => {
            let state = alloc.task_states.iter().find(|(name, _)| ***name == *task.name)?.1;
            state.last_restart.or(state.started_at)
        }
        None => alloc.task_states.values().filter_map(|s| s.last_restart.or(s.started_at)).min(),
    }
}

fn longest_running(group: &TaskGroup, original: &Allocation, replacement: &Allocation) -> bool {
    match (start(group, original), start(group, replacement)) {
        (None, None) => best_score(original, replacement),
        (Some(_), None) => true,
        (None, Some(_)) => false,
        (Some(o), Some(r)) => o <= r,
    }
}
