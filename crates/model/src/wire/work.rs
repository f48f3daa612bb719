//! Views of evaluations, deployments and of jobs in lists.

use super::{Id, Rows, Time, is_zero, no_map};
use crate::alloc::AllocMetric;
use crate::deployment::{Deployment, DeploymentGroup, DeploymentState};
use crate::eval::{EvalStatus, Evaluation, Trigger};
use crate::ids::{AllocId, DeploymentId, EvalId, NodeId};
use crate::job::{Job, JobStatus, JobType};
use crate::plan::PlanAnnotations;
use crate::values::{List, Map, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An evaluation as the API shows it. Empty fields are left out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct EvalView<'a> {
    #[serde(rename = "ID")]
    pub id: EvalId,
    pub namespace: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i64,
    #[serde(rename = "Type")]
    pub kind: JobType,
    pub triggered_by: Trigger,
    #[serde(rename = "JobID", skip_serializing_if = "str::is_empty")]
    pub job_id: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    pub job_modify_index: u64,
    #[serde(rename = "NodeID", skip_serializing_if = "Id::is_none")]
    pub node_id: Id<NodeId>,
    #[serde(skip_serializing_if = "is_zero")]
    pub node_modify_index: u64,
    #[serde(rename = "DeploymentID", skip_serializing_if = "Id::is_none")]
    pub deployment_id: Id<DeploymentId>,
    pub status: EvalStatus,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub status_description: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    pub wait: Nanos,
    #[serde(skip_serializing_if = "Time::is_none")]
    pub wait_until: Time,
    #[serde(skip_serializing_if = "Id::is_none")]
    pub next_eval: Id<EvalId>,
    #[serde(skip_serializing_if = "Id::is_none")]
    pub previous_eval: Id<EvalId>,
    #[serde(skip_serializing_if = "Id::is_none")]
    pub blocked_eval: Id<EvalId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related_evals: Vec<RelatedEvalView<'a>>,
    #[serde(rename = "FailedTGAllocs", skip_serializing_if = "no_map")]
    pub failed_groups: &'a BTreeMap<String, Arc<AllocMetric>>,
    #[serde(skip_serializing_if = "no_map")]
    pub class_eligibility: &'a BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "is_zero")]
    pub escaped_computed_class: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub quota_limit_reached: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    pub annotate_plan: bool,
    #[serde(rename = "PlanAnnotations", skip_serializing_if = "Option::is_none")]
    pub annotations: Option<&'a PlanAnnotations>,
    #[serde(skip_serializing_if = "no_map")]
    pub queued_allocations: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "is_zero")]
    pub snapshot_index: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub create_index: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub modify_index: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub create_time: Nanos,
    #[serde(skip_serializing_if = "is_zero")]
    pub modify_time: Nanos,
}

/// An evaluation as its relatives show it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct RelatedEvalView<'a> {
    #[serde(rename = "ID")]
    pub id: EvalId,
    pub namespace: &'a str,
    pub priority: i64,
    #[serde(rename = "Type")]
    pub kind: JobType,
    pub triggered_by: Trigger,
    #[serde(rename = "JobID")]
    pub job_id: &'a str,
    #[serde(rename = "NodeID")]
    pub node_id: Id<NodeId>,
    #[serde(rename = "DeploymentID")]
    pub deployment_id: Id<DeploymentId>,
    pub status: EvalStatus,
    pub status_description: &'a str,
    pub wait_until: Time,
    pub next_eval: Id<EvalId>,
    pub previous_eval: Id<EvalId>,
    pub blocked_eval: Id<EvalId>,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: Nanos,
    pub modify_time: Nanos,
}

/// An evaluation as the API shows it.
pub fn eval(eval: &Evaluation) -> EvalView<'_> {
    EvalView {
        id: eval.id,
        namespace: &eval.namespace,
        priority: eval.priority,
        kind: eval.kind,
        triggered_by: eval.triggered_by,
        job_id: &eval.job_id,
        job_modify_index: eval.job_modify_index,
        node_id: Id(eval.node_id),
        node_modify_index: eval.node_modify_index,
        deployment_id: Id(eval.deployment_id),
        status: eval.status,
        status_description: &eval.status_description,
        wait: eval.wait,
        wait_until: Time(eval.wait_until),
        next_eval: Id(eval.next_eval),
        previous_eval: Id(eval.previous_eval),
        blocked_eval: Id(eval.blocked_eval),
        related_evals: Vec::new(),
        failed_groups: &eval.failed_groups,
        class_eligibility: &eval.class_eligibility,
        escaped_computed_class: eval.escaped_computed_class,
        quota_limit_reached: &eval.quota_limit_reached,
        annotate_plan: eval.annotate_plan,
        annotations: eval.annotations.as_deref(),
        queued_allocations: &eval.queued_allocations,
        snapshot_index: eval.snapshot_index,
        create_index: eval.create_index,
        modify_index: eval.modify_index,
        create_time: eval.create_time,
        modify_time: eval.modify_time,
    }
}

/// An evaluation with those that led to it and followed from it.
pub fn eval_with_related<'a>(of: &'a Evaluation, related: impl IntoIterator<Item = &'a Evaluation>) -> EvalView<'a> {
    let stub = |e: &'a Evaluation| RelatedEvalView {
        id: e.id,
        namespace: &e.namespace,
        priority: e.priority,
        kind: e.kind,
        triggered_by: e.triggered_by,
        job_id: &e.job_id,
        node_id: Id(e.node_id),
        deployment_id: Id(e.deployment_id),
        status: e.status,
        status_description: &e.status_description,
        wait_until: Time(e.wait_until),
        next_eval: Id(e.next_eval),
        previous_eval: Id(e.previous_eval),
        blocked_eval: Id(e.blocked_eval),
        create_index: e.create_index,
        modify_index: e.modify_index,
        create_time: e.create_time,
        modify_time: e.modify_time,
    };
    EvalView { related_evals: related.into_iter().map(stub).collect(), ..eval(of) }
}

/// A deployment as the API shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeploymentView<'a> {
    #[serde(rename = "ID")]
    pub id: DeploymentId,
    pub namespace: &'a str,
    #[serde(rename = "JobID")]
    pub job_id: &'a str,
    pub job_version: u64,
    pub job_modify_index: u64,
    pub job_spec_modify_index: u64,
    pub job_create_index: u64,
    pub is_multiregion: bool,
    pub task_groups: BTreeMap<&'a str, DeploymentGroupView<'a>>,
    pub status: DeploymentState,
    pub status_description: &'a str,
    pub eval_priority: i64,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: Nanos,
    pub modify_time: Nanos,
}

/// Progress of one group.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeploymentGroupView<'a> {
    pub auto_revert: bool,
    pub auto_promote: bool,
    pub progress_deadline: Nanos,
    pub require_progress_by: Time,
    pub promoted: bool,
    pub placed_canaries: Rows<'a, AllocId>,
    pub desired_canaries: i64,
    pub desired_total: i64,
    pub placed_allocs: i64,
    pub healthy_allocs: i64,
    pub unhealthy_allocs: i64,
}

/// A deployment as the API shows it.
pub fn deployment(of: &Deployment) -> DeploymentView<'_> {
    let group = |g: &'_ DeploymentGroup| DeploymentGroupView {
        auto_revert: g.auto_revert,
        auto_promote: g.auto_promote,
        progress_deadline: g.progress_deadline,
        require_progress_by: Time(g.require_progress_by),
        promoted: g.promoted,
        placed_canaries: Rows(&[]),
        desired_canaries: g.desired_canaries,
        desired_total: g.desired_total,
        placed_allocs: g.placed_allocs,
        healthy_allocs: g.healthy_allocs,
        unhealthy_allocs: g.unhealthy_allocs,
    };
    DeploymentView {
        id: of.id,
        namespace: &of.namespace,
        job_id: &of.job_id,
        job_version: of.job_version,
        job_modify_index: of.job_modify_index,
        job_spec_modify_index: of.job_spec_modify_index,
        job_create_index: of.job_create_index,
        is_multiregion: of.is_multiregion,
        task_groups: of
            .task_groups
            .iter()
            .map(|(name, g)| {
                (name.as_str(), DeploymentGroupView { placed_canaries: Rows(&g.placed_canaries), ..group(g) })
            })
            .collect(),
        status: of.status,
        status_description: &of.status_description,
        eval_priority: of.eval_priority,
        create_index: of.create_index,
        modify_index: of.modify_index,
        create_time: of.create_time,
        modify_time: of.modify_time,
    }
}

/// How many allocations of a group are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct GroupSummaryView {
    pub queued: u64,
    pub complete: u64,
    pub failed: u64,
    pub running: u64,
    pub starting: u64,
    pub lost: u64,
    pub unknown: u64,
}

/// How many children of a periodic or parameterized job are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChildrenView {
    pub pending: u64,
    pub running: u64,
    pub dead: u64,
}

/// The summary of a job.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct JobSummaryView<'a> {
    #[serde(rename = "JobID")]
    pub job_id: &'a str,
    pub namespace: &'a str,
    pub summary: BTreeMap<&'a str, GroupSummaryView>,
    pub children: ChildrenView,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A job as lists show it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct JobStub<'a> {
    #[serde(rename = "ID")]
    pub id: &'a str,
    #[serde(rename = "ParentID")]
    pub parent_id: &'a str,
    pub name: &'a str,
    pub namespace: &'a str,
    pub datacenters: &'a List<String>,
    pub node_pool: &'a str,
    pub multiregion: Option<&'a serde_json::Value>,
    #[serde(rename = "Type")]
    pub kind: JobType,
    pub priority: i64,
    pub periodic: bool,
    pub parameterized_job: bool,
    pub stop: bool,
    pub status: JobStatus,
    pub status_description: &'a str,
    pub job_summary: Option<JobSummaryView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<&'a Map<String>>,
    pub create_index: u64,
    pub modify_index: u64,
    pub job_modify_index: u64,
    pub submit_time: Nanos,
}

/// A job as lists show it; with its meta when asked for and there is some.
pub fn job_stub<'a>(job: &'a Job, summary: Option<JobSummaryView<'a>>, with_meta: bool) -> JobStub<'a> {
    JobStub {
        id: &job.id,
        parent_id: &job.parent_id,
        name: &job.name,
        namespace: &job.namespace,
        datacenters: &job.datacenters,
        node_pool: &job.node_pool,
        multiregion: job.multiregion.as_ref(),
        kind: job.kind,
        priority: job.priority,
        periodic: job.is_periodic(),
        parameterized_job: job.is_parameterized(),
        stop: job.stop,
        status: job.status,
        status_description: &job.status_description,
        job_summary: summary,
        meta: (with_meta && !job.meta.is_empty()).then_some(&job.meta),
        create_index: job.create_index,
        modify_index: job.modify_index,
        job_modify_index: job.job_modify_index,
        submit_time: job.submit_time,
    }
}
