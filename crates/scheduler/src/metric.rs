//! What a placement metric says about resources.

use crate::load::Dimension;
use herdsman_model::{AllocMetric, Resources, TaskGroup};
use std::sync::Arc;

/// Notes, per task, how much it asked for of what a node had too little of.
pub(crate) fn exhausted(metric: &mut AllocMetric, group: &TaskGroup, dimension: &Dimension) {
    for task in &group.tasks {
        let mut asked = Resources::default();
        if *dimension == Dimension::MEMORY {
            asked.memory_mb = task.resources.memory_mb;
        } else if *dimension == Dimension::CPU {
            asked.cpu = task.resources.cpu;
        } else if *dimension == Dimension::CORES {
            asked.cores = task.resources.cores;
        } else {
            return;
        }
        if metric.resources_exhausted.contains_key(&task.name) && asked == Resources::default() {
            continue;
        }
        if let Ok(value) = serde_json::to_value(&asked) {
            metric.resources_exhausted.insert(task.name.clone(), value);
        }
    }
}

/// Shares a metric with the one before if they are equal, as they are for most allocations of a large group.
pub(crate) fn share(last: &mut Option<Arc<AllocMetric>>, metric: AllocMetric) -> Arc<AllocMetric> {
    match last {
        Some(known) if **known == metric => Arc::clone(known),
        _ => Arc::clone(last.insert(Arc::new(metric))),
    }
}
