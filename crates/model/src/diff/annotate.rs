//! What the scheduler would do, written beside the differences.

use super::{DiffType, FieldDiff, JobDiff, TaskGroupDiff};
use crate::job::{Job, task_destructive};
use crate::plan::{DesiredUpdates, PlanAnnotations};
use std::collections::BTreeMap;

/// Adds to a difference what the scheduler would do: counts per group, and what changed counts and tasks force.
pub fn annotate(diff: &mut JobDiff, annotations: &PlanAnnotations, old: Option<&Job>, new: &Job) {
    for group in diff.task_groups.iter_mut() {
        if let Some(desired) = annotations.desired_tg_updates.get(&group.name) {
            group.updates = updates(desired);
        }
        group.fields.iter_mut().filter(|f| f.name == "Count").for_each(annotate_count);
        annotate_tasks(group, old, new);
    }
}

fn updates(desired: &DesiredUpdates) -> Option<BTreeMap<String, u64>> {
    let counts = [
        ("ignore", desired.ignore),
        ("create", desired.place),
        ("migrate", desired.migrate),
        ("destroy", desired.stop),
        ("in-place update", desired.in_place_update),
        ("create/destroy update", desired.destructive_update),
        ("canary", desired.canary),
        ("preemptions", desired.preemptions),
    ];
    let shown: BTreeMap<String, u64> =
        counts.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_string(), n)).collect();
    (!shown.is_empty()).then_some(shown)
}

fn annotate_count(field: &mut FieldDiff) {
    let (old, new) = (field.old.parse::<i64>().unwrap_or(0), field.new.parse::<i64>().unwrap_or(0));
    let text = match field.kind {
        DiffType::Added => "forces create",
        DiffType::Deleted => "forces destroy",
        DiffType::Edited if new > old => "forces create",
        DiffType::Edited if new < old => "forces destroy",
        _ => return,
    };
    field.annotations = vec![text.to_string()].into();
}

fn annotate_tasks(group: &mut TaskGroupDiff, old: Option<&Job>, new: &Job) {
    let (before, after) = (old.and_then(|j| j.group(&group.name)), new.group(&group.name));
    for task in group.tasks.iter_mut() {
        let text = match (group.kind, task.kind) {
            (_, DiffType::None) => continue,
            (DiffType::Added, _) => "forces create",
            (DiffType::Deleted, _) => "forces destroy",
            (_, DiffType::Added | DiffType::Deleted) => "forces create/destroy update",
            (_, DiffType::Edited) => {
                let same_process =
                    match (before.and_then(|g| g.task(&task.name)), after.and_then(|g| g.task(&task.name))) {
                        (Some(a), Some(b)) => !task_destructive(a, b) && a.meta == b.meta,
                        _ => false,
                    };
                if same_process { "forces in-place update" } else { "forces create/destroy update" }
            }
        };
        task.annotations = vec![text.to_string()].into();
    }
}
