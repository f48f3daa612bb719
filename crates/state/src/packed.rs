//! Stored form of placements. What the placements of a plan share - job, version, evaluation, deployment, resources,
//! metrics - is written once, and what a node alone decides is left out, so that a placement costs some 200 bytes.

use herdsman_model::{
    AllocId, AllocMetric, AllocStateChange, AllocatedResources, Allocation, DeploymentId, DeploymentStatus,
    DesiredStatus, DesiredTransition, EvalId, Name, Nanos, NodeId, RescheduleTracker, opt_id,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Packed {
    shared: Vec<Shared>,
    allocs: Vec<One>,
}

/// What a run of placements has in common.
#[derive(PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Shared {
    namespace: Name,
    job_id: Name,
    job_version: u64,
    job_create_index: u64,
    job_modify_index: u64,
    task_group: Name,
    eval_id: EvalId,
    #[serde(with = "opt_id")]
    deployment_id: Option<DeploymentId>,
    desired_status: DesiredStatus,
    desired_description: String,
    resources: Arc<AllocatedResources>,
    metrics: Option<Arc<AllocMetric>>,
}

/// What one placement has of its own. Fields that say nothing are left out.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct One {
    shared: usize,
    id: AllocId,
    name: String,
    node_id: NodeId,
    node_name: Name,
    #[serde(skip_serializing_if = "is_default")]
    desired_transition: DesiredTransition,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    state_changes: Vec<AllocStateChange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deployment_status: Option<DeploymentStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reschedule_tracker: Option<Arc<RescheduleTracker>>,
    #[serde(with = "opt_id", skip_serializing_if = "Option::is_none")]
    follow_up_eval: Option<EvalId>,
    #[serde(with = "opt_id", skip_serializing_if = "Option::is_none")]
    previous_allocation: Option<AllocId>,
    #[serde(with = "opt_id", skip_serializing_if = "Option::is_none")]
    next_allocation: Option<AllocId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    preempted_allocations: Vec<AllocId>,
    #[serde(skip_serializing_if = "is_default")]
    create_time: Nanos,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Shared {
    fn of(alloc: &Allocation) -> Shared {
        Shared {
            namespace: alloc.namespace.clone(),
            job_id: alloc.job_id.clone(),
            job_version: alloc.job_version,
            job_create_index: alloc.job_create_index,
            job_modify_index: alloc.job_modify_index,
            task_group: alloc.task_group.clone(),
            eval_id: alloc.eval_id,
            deployment_id: alloc.deployment_id,
            desired_status: alloc.desired_status,
            desired_description: alloc.desired_description.clone(),
            resources: alloc.resources.clone(),
            metrics: alloc.metrics.clone(),
        }
    }

    /// Whether an allocation fits. Pointers are compared first: what is shared is mostly one object.
    fn fits(&self, alloc: &Allocation) -> bool {
        let same_metrics = match (&self.metrics, &alloc.metrics) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        };
        self.eval_id == alloc.eval_id
            && self.deployment_id == alloc.deployment_id
            && self.job_version == alloc.job_version
            && self.job_create_index == alloc.job_create_index
            && self.job_modify_index == alloc.job_modify_index
            && self.task_group == alloc.task_group
            && self.job_id == alloc.job_id
            && self.namespace == alloc.namespace
            && self.desired_status == alloc.desired_status
            && self.desired_description == alloc.desired_description
            && same_metrics
            && (Arc::ptr_eq(&self.resources, &alloc.resources) || self.resources == alloc.resources)
    }
}

/// How far back a fitting shared part is looked for: what is shared comes in runs.
const LOOK_BACK: usize = 4;

/// Writes placements packed.
///
/// # Errors
/// Whatever the serializer refuses.
pub fn serialize<S: Serializer>(allocs: &[Arc<Allocation>], serializer: S) -> Result<S::Ok, S::Error> {
    let mut packed = Packed { shared: Vec::new(), allocs: Vec::with_capacity(allocs.len()) };
    for alloc in allocs {
        let first = packed.shared.len().saturating_sub(LOOK_BACK);
        let found = packed.shared.iter().skip(first).position(|shared| shared.fits(alloc));
        let shared = match found {
            Some(position) => first + position,
            None => {
                packed.shared.push(Shared::of(alloc));
                packed.shared.len() - 1
            }
        };
        packed.allocs.push(One {
            shared,
            id: alloc.id,
            name: alloc.name.clone(),
            node_id: alloc.node_id,
            node_name: alloc.node_name.clone(),
            desired_transition: alloc.desired_transition.clone(),
            state_changes: alloc.state_changes.clone(),
            deployment_status: alloc.deployment_status.clone(),
            reschedule_tracker: alloc.reschedule_tracker.clone(),
            follow_up_eval: alloc.follow_up_eval,
            previous_allocation: alloc.previous_allocation,
            next_allocation: alloc.next_allocation,
            preempted_allocations: alloc.preempted_allocations.clone(),
            create_time: alloc.create_time,
        });
    }
    packed.serialize(serializer)
}

/// Reads packed placements.
///
/// # Errors
/// The form is another, or refers to a shared part that is not there.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<Allocation>>, D::Error> {
    let packed = Packed::deserialize(deserializer)?;
    let missing = || serde::de::Error::custom("placement refers to a shared part that is not there");
    let mut allocs = Vec::with_capacity(packed.allocs.len());
    for one in packed.allocs {
        let shared = packed.shared.get(one.shared).ok_or_else(missing)?;
        allocs.push(Arc::new(Allocation {
            id: one.id,
            namespace: shared.namespace.clone(),
            name: one.name,
            eval_id: shared.eval_id,
            node_id: one.node_id,
            node_name: one.node_name,
            job_id: shared.job_id.clone(),
            job_version: shared.job_version,
            job_create_index: shared.job_create_index,
            job_modify_index: shared.job_modify_index,
            task_group: shared.task_group.clone(),
            resources: shared.resources.clone(),
            metrics: shared.metrics.clone(),
            desired_status: shared.desired_status,
            desired_description: shared.desired_description.clone(),
            desired_transition: one.desired_transition,
            state_changes: one.state_changes,
            deployment_id: shared.deployment_id,
            deployment_status: one.deployment_status,
            reschedule_tracker: one.reschedule_tracker,
            follow_up_eval: one.follow_up_eval,
            previous_allocation: one.previous_allocation,
            next_allocation: one.next_allocation,
            preempted_allocations: one.preempted_allocations,
            create_time: one.create_time,
            ..Allocation::default()
        }));
    }
    Ok(allocs)
}
