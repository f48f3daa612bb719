//! Views of allocations: the whole one, and the stub of lists.

use super::{EventView, Id, Rows, Time, is_zero};
use crate::alloc::{
    AllocMetric, AllocStateChange, Allocation, ClientStatus, DeploymentStatus, DesiredStatus, DesiredTransition,
    NetworkStatus, Outcome, OutcomeKind, RescheduleEvent, RescheduleTracker, TaskPhase, TaskState,
};
use crate::ids::{AllocId, DeploymentId, EvalId, NodeId};
use crate::job::{Job, JobType};
use crate::resources::{AllocatedDevice, AllocatedResources, AllocatedTaskResources, NetworkResource};
use crate::values::Nanos;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The state of a task as the API shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TaskStateView<'a> {
    pub state: TaskPhase,
    pub failed: bool,
    pub restarts: u64,
    pub last_restart: Time,
    pub started_at: Time,
    pub finished_at: Time,
    pub paused: &'static str,
    pub events: Option<Vec<EventView<'a>>>,
}

/// The state of a task as the API shows it.
pub fn task_state(state: &TaskState) -> TaskStateView<'_> {
    let events: Vec<_> = state.events.iter().map(|e| e.view()).collect();
    TaskStateView {
        state: state.state,
        failed: state.failed,
        restarts: state.restarts,
        last_restart: Time(state.last_restart),
        started_at: Time(state.started_at),
        finished_at: Time(state.finished_at),
        paused: "",
        events: (!events.is_empty()).then_some(events),
    }
}

/// The states of the tasks of an allocation; null when none is known.
#[derive(Debug)]
pub struct TaskStates<'a>(pub &'a BTreeMap<crate::values::Name, TaskState>);

impl Serialize for TaskStates<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() {
            return serializer.serialize_none();
        }
        serializer.collect_map(self.0.iter().map(|(name, state)| (&**name, task_state(state))))
    }
}

impl TaskStates<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Health within a deployment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeploymentStatusView {
    pub canary: bool,
    pub healthy: Option<bool>,
    pub modify_index: u64,
    pub timestamp: Time,
}

fn deployment_status(status: &DeploymentStatus) -> DeploymentStatusView {
    DeploymentStatusView {
        canary: status.canary,
        healthy: status.healthy,
        modify_index: status.modify_index,
        timestamp: Time(status.timestamp),
    }
}

/// The reschedules that led here.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct RescheduleTrackerView<'a> {
    pub events: Vec<RescheduleEventView>,
    pub last_reschedule: &'a str,
}

/// One earlier reschedule.
#[derive(Debug, Serialize)]
pub struct RescheduleEventView {
    #[serde(rename = "RescheduleTime")]
    pub time: Nanos,
    #[serde(rename = "PrevAllocID")]
    pub prev_alloc: AllocId,
    #[serde(rename = "PrevNodeID")]
    pub prev_node: NodeId,
    #[serde(rename = "Delay")]
    pub delay: Nanos,
}

fn reschedule_tracker(tracker: &RescheduleTracker) -> RescheduleTrackerView<'_> {
    let event = |e: &RescheduleEvent| RescheduleEventView {
        time: e.time,
        prev_alloc: e.prev_alloc,
        prev_node: e.prev_node,
        delay: e.delay,
    };
    RescheduleTrackerView {
        events: tracker.events.iter().map(event).collect(),
        last_reschedule: &tracker.last_reschedule,
    }
}

/// How the work ended (additive to the peer).
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct OutcomeView {
    pub kind: OutcomeKind,
    pub time: Nanos,
}

fn outcome(outcome: &Outcome) -> OutcomeView {
    OutcomeView { kind: outcome.kind, time: outcome.time }
}

/// A recorded change of the client status.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct StateChangeView {
    pub field: &'static str,
    pub value: ClientStatus,
    pub time: Time,
}

fn state_change(change: &AllocStateChange) -> StateChangeView {
    StateChangeView { field: "ClientStatus", value: change.value, time: Time(Some(change.time)) }
}

/// Resources in the form of old clients.
#[derive(Debug, Default, Serialize)]
pub struct LegacyResources<'a> {
    #[serde(rename = "CPU")]
    pub cpu: i64,
    #[serde(rename = "Cores")]
    pub cores: i64,
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: i64,
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
    #[serde(rename = "IOPS")]
    pub iops: i64,
    #[serde(rename = "SecretsMB")]
    pub secrets_mb: i64,
    #[serde(rename = "Networks")]
    pub networks: Option<&'a [NetworkResource]>,
    #[serde(rename = "Devices")]
    pub devices: Option<&'a [AllocatedDevice]>,
    #[serde(rename = "NUMA")]
    pub numa: Option<()>,
}

fn some_rows<T>(rows: &[T]) -> Option<&[T]> {
    (!rows.is_empty()).then_some(rows)
}

fn legacy_task(task: &AllocatedTaskResources) -> LegacyResources<'_> {
    LegacyResources {
        cpu: task.cpu.cpu_shares,
        cores: i64::try_from(task.cpu.reserved_cores.len()).unwrap_or(i64::MAX),
        memory_mb: task.memory.memory_mb,
        memory_max_mb: task.memory.memory_max_mb,
        networks: some_rows(&task.networks),
        devices: some_rows(&task.devices),
        ..LegacyResources::default()
    }
}

fn legacy_shared(resources: &AllocatedResources) -> LegacyResources<'_> {
    LegacyResources {
        disk_mb: resources.shared.disk_mb,
        networks: some_rows(&resources.shared.networks),
        ..LegacyResources::default()
    }
}

fn legacy_total(resources: &AllocatedResources) -> LegacyResources<'_> {
    let mut total = legacy_shared(resources);
    for task in resources.tasks.values() {
        let one = legacy_task(task);
        total.cpu = total.cpu.saturating_add(one.cpu);
        total.cores = total.cores.saturating_add(one.cores);
        total.memory_mb = total.memory_mb.saturating_add(one.memory_mb);
        // A task without a maximum may use what it asked for.
        let max = if one.memory_max_mb == 0 { one.memory_mb } else { one.memory_max_mb };
        total.memory_max_mb = total.memory_max_mb.saturating_add(max);
    }
    total
}

/// The whole of an allocation as the API shows it, its job inside. Empty fields are left out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AllocView<'a> {
    #[serde(rename = "ID")]
    pub id: AllocId,
    pub namespace: &'a str,
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    pub name: &'a str,
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    pub node_name: &'a str,
    #[serde(rename = "JobID")]
    pub job_id: &'a str,
    pub job: &'a Job,
    pub task_group: &'a str,
    pub resources: LegacyResources<'a>,
    pub shared_resources: LegacyResources<'a>,
    pub task_resources: BTreeMap<&'a str, LegacyResources<'a>>,
    pub allocated_resources: &'a AllocatedResources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<&'a AllocMetric>,
    pub desired_status: DesiredStatus,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub desired_description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_transition: Option<&'a DesiredTransition>,
    pub client_status: ClientStatus,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub client_description: &'a str,
    #[serde(skip_serializing_if = "TaskStates::is_empty")]
    pub task_states: TaskStates<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alloc_states: Vec<StateChangeView>,
    #[serde(rename = "DeploymentID", skip_serializing_if = "Id::is_none")]
    pub deployment_id: Id<DeploymentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_status: Option<DeploymentStatusView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reschedule_tracker: Option<RescheduleTrackerView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_status: Option<&'a NetworkStatus>,
    #[serde(rename = "FollowupEvalID", skip_serializing_if = "Id::is_none")]
    pub followup_eval_id: Id<EvalId>,
    #[serde(skip_serializing_if = "Id::is_none")]
    pub previous_allocation: Id<AllocId>,
    #[serde(skip_serializing_if = "Id::is_none")]
    pub next_allocation: Id<AllocId>,
    #[serde(skip_serializing_if = "Rows::is_empty")]
    pub preempted_allocations: Rows<'a, AllocId>,
    #[serde(skip_serializing_if = "Id::is_none")]
    pub preempted_by_allocation: Id<AllocId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeView>,
    #[serde(skip_serializing_if = "is_zero")]
    pub create_index: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub modify_index: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub alloc_modify_index: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub create_time: Nanos,
    #[serde(skip_serializing_if = "is_zero")]
    pub modify_time: Nanos,
}

/// The whole of an allocation as the API shows it. `job` is the version the allocation belongs to.
pub fn alloc<'a>(alloc: &'a Allocation, job: &'a Job) -> AllocView<'a> {
    let resources = &*alloc.resources;
    let transition = &alloc.desired_transition;
    AllocView {
        id: alloc.id,
        namespace: &alloc.namespace,
        eval_id: alloc.eval_id,
        name: &alloc.name,
        node_id: alloc.node_id,
        node_name: &alloc.node_name,
        job_id: &alloc.job_id,
        job,
        task_group: &alloc.task_group,
        resources: legacy_total(resources),
        shared_resources: legacy_shared(resources),
        task_resources: resources.tasks.iter().map(|(name, task)| (name.as_str(), legacy_task(task))).collect(),
        allocated_resources: resources,
        metrics: alloc.metrics.as_deref(),
        desired_status: alloc.desired_status,
        desired_description: &alloc.desired_description,
        desired_transition: (*transition != DesiredTransition::default()).then_some(transition),
        client_status: alloc.client_status,
        client_description: &alloc.client_description,
        task_states: TaskStates(&alloc.task_states),
        alloc_states: alloc.state_changes.iter().map(state_change).collect(),
        deployment_id: Id(alloc.deployment_id),
        deployment_status: alloc.deployment_status.as_ref().map(deployment_status),
        reschedule_tracker: alloc.reschedule_tracker.as_deref().map(reschedule_tracker),
        network_status: alloc.network_status.as_ref(),
        followup_eval_id: Id(alloc.follow_up_eval),
        previous_allocation: Id(alloc.previous_allocation),
        next_allocation: Id(alloc.next_allocation),
        preempted_allocations: Rows(&alloc.preempted_allocations),
        preempted_by_allocation: Id(alloc.preempted_by),
        outcome: alloc.outcome.as_ref().map(outcome),
        create_index: alloc.create_index,
        modify_index: alloc.modify_index,
        alloc_modify_index: alloc.alloc_modify_index,
        create_time: alloc.create_time,
        modify_time: alloc.modify_time,
    }
}

/// What a list of allocations shows beyond the plain stub.
#[derive(Debug, Clone, Copy)]
pub struct StubFields {
    /// `resources=true`.
    pub resources: bool,
    /// `task_states`, on unless `false`.
    pub task_states: bool,
}

impl Default for StubFields {
    fn default() -> Self {
        StubFields { resources: false, task_states: true }
    }
}

/// An allocation as lists show it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AllocStub<'a> {
    #[serde(rename = "ID")]
    pub id: AllocId,
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    pub name: &'a str,
    pub namespace: &'a str,
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    pub node_name: &'a str,
    #[serde(rename = "JobID")]
    pub job_id: &'a str,
    pub job_type: JobType,
    pub job_version: u64,
    pub task_group: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<&'a AllocatedResources>,
    pub desired_status: DesiredStatus,
    pub desired_description: &'a str,
    pub desired_transition: &'a DesiredTransition,
    pub client_status: ClientStatus,
    pub client_description: &'a str,
    pub task_states: Option<TaskStates<'a>>,
    pub deployment_status: Option<DeploymentStatusView>,
    #[serde(rename = "FollowupEvalID")]
    pub followup_eval_id: Id<EvalId>,
    pub next_allocation: Id<AllocId>,
    pub reschedule_tracker: Option<RescheduleTrackerView<'a>>,
    pub preempted_allocations: Rows<'a, AllocId>,
    pub preempted_by_allocation: Id<AllocId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeView>,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: Nanos,
    pub modify_time: Nanos,
}

/// An allocation as lists show it.
pub fn alloc_stub(alloc: &Allocation, job_type: JobType, fields: StubFields) -> AllocStub<'_> {
    AllocStub {
        id: alloc.id,
        eval_id: alloc.eval_id,
        name: &alloc.name,
        namespace: &alloc.namespace,
        node_id: alloc.node_id,
        node_name: &alloc.node_name,
        job_id: &alloc.job_id,
        job_type,
        job_version: alloc.job_version,
        task_group: &alloc.task_group,
        allocated_resources: fields.resources.then_some(&*alloc.resources),
        desired_status: alloc.desired_status,
        desired_description: &alloc.desired_description,
        desired_transition: &alloc.desired_transition,
        client_status: alloc.client_status,
        client_description: &alloc.client_description,
        task_states: fields.task_states.then_some(TaskStates(&alloc.task_states)),
        deployment_status: alloc.deployment_status.as_ref().map(deployment_status),
        followup_eval_id: Id(alloc.follow_up_eval),
        next_allocation: Id(alloc.next_allocation),
        reschedule_tracker: alloc.reschedule_tracker.as_deref().map(reschedule_tracker),
        preempted_allocations: Rows(&alloc.preempted_allocations),
        preempted_by_allocation: Id(alloc.preempted_by),
        outcome: alloc.outcome.as_ref().map(outcome),
        create_index: alloc.create_index,
        modify_index: alloc.modify_index,
        create_time: alloc.create_time,
        modify_time: alloc.modify_time,
    }
}
