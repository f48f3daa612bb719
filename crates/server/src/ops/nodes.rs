//! Nodes and allocations: eligibility, drain, purge, evaluate, stop.

use crate::error::ServerError;
use crate::server::{Applied, Server};
use herdsman_model::{
    AllocId, DesiredTransition, DrainStrategy, Eligibility, EvalId, Evaluation, Nanos, NodeId, Trigger,
};
use herdsman_state::{AllocTransitions, Body, DeleteNodes, SetNodeDrain, SetNodeEligibility, UpsertEvals};
use std::collections::BTreeMap;

/// What a change of a node led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeChanged {
    pub eval_ids: Vec<EvalId>,
    pub eval_create_index: u64,
    pub node_modify_index: u64,
    pub index: u64,
}

impl NodeChanged {
    fn of(applied: Applied) -> NodeChanged {
        NodeChanged {
            eval_create_index: if applied.reply.eval_ids.is_empty() { 0 } else { applied.index },
            eval_ids: applied.reply.eval_ids,
            node_modify_index: applied.reply.node_modify_index,
            index: applied.index,
        }
    }
}

/// A drain to start or change; without a deadline: the end of one.
#[derive(Debug, Clone, Default)]
pub struct DrainRequest {
    /// None cancels. Nanoseconds: above 0 a deadline, 0 none, below 0 at once.
    pub deadline: Option<Nanos>,
    pub ignore_system_jobs: bool,
    /// With a cancel: take new allocations again.
    pub mark_eligible: bool,
    pub meta: BTreeMap<String, String>,
    /// Whose token asked for it.
    pub accessor_id: String,
}

/// An allocation to stop or move.
#[derive(Debug, Clone, Copy, Default)]
pub struct StopAllocRequest {
    pub no_shutdown_delay: bool,
    /// Replace it by the rules of its reschedule block.
    pub reschedule: bool,
}

/// What stopping an allocation led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocStopped {
    pub eval_id: Option<EvalId>,
    pub index: u64,
}

impl Server {
    /// Sets whether new allocations may be placed on a node.
    ///
    /// # Errors
    /// 500 when there is no such node, or it is draining.
    pub async fn set_eligibility(&self, node_id: NodeId, eligible: bool) -> Result<NodeChanged, ServerError> {
        let eligibility = if eligible { Eligibility::Eligible } else { Eligibility::Ineligible };
        let command = SetNodeEligibility { node_id, eligibility, event: None, seed: self.seed() };
        Ok(NodeChanged::of(self.propose(Body::NodeEligibility(command)).await?))
    }

    /// Starts, changes or cancels a drain.
    ///
    /// # Errors
    /// 500 when there is no such node.
    pub async fn drain_node(&self, node_id: NodeId, request: DrainRequest) -> Result<NodeChanged, ServerError> {
        let drain = request.deadline.map(|deadline| DrainStrategy {
            deadline,
            ignore_system_jobs: request.ignore_system_jobs,
            ..DrainStrategy::default()
        });
        let command = SetNodeDrain {
            node_id,
            drain,
            complete: false,
            mark_eligible: request.mark_eligible,
            meta: request.meta,
            accessor_id: request.accessor_id,
            event: None,
            seed: self.seed(),
        };
        Ok(NodeChanged::of(self.propose(Body::NodeDrain(command)).await?))
    }

    /// Removes a node; its jobs are evaluated.
    ///
    /// # Errors
    /// 500 when there is no such node.
    pub async fn purge_node(&self, node_id: NodeId) -> Result<NodeChanged, ServerError> {
        let command = DeleteNodes { node_ids: vec![node_id], seed: self.seed() };
        Ok(NodeChanged::of(self.propose(Body::DeleteNodes(command)).await?))
    }

    /// Makes an evaluation for every job that a change of this node would concern.
    ///
    /// # Errors
    /// 500 when there is no such node.
    pub async fn evaluate_node(&self, node_id: NodeId) -> Result<NodeChanged, ServerError> {
        let snapshot = self.snapshot();
        let node = snapshot.node(&node_id).ok_or_else(|| ServerError::refused("node not found"))?;
        let mut evals = Vec::new();
        for (key, kind) in snapshot.jobs_concerned_by(node) {
            let job = snapshot.job_by_key(&key);
            evals.push(Evaluation {
                id: EvalId(self.world().rng.bytes16()),
                priority: job.map_or(self.config().jobs.default_priority, |job| job.priority),
                job_modify_index: job.map_or(0, |job| job.modify_index),
                namespace: key.namespace,
                job_id: key.id,
                kind,
                triggered_by: Trigger::NodeUpdate,
                node_id: Some(node_id),
                node_modify_index: node.modify_index,
                ..Evaluation::default()
            });
        }
        if evals.is_empty() {
            return Ok(NodeChanged::default());
        }
        let command = UpsertEvals { evals, ..UpsertEvals::default() };
        Ok(NodeChanged::of(self.propose(Body::UpsertEvals(command)).await?))
    }

    /// Stops an allocation; its job is evaluated and places another where one is wanted.
    ///
    /// # Errors
    /// 404 when there is no such allocation.
    pub async fn stop_alloc(&self, id: AllocId, request: StopAllocRequest) -> Result<AllocStopped, ServerError> {
        if self.snapshot().alloc(&id).is_none() {
            return Err(ServerError::not_found("allocation not found"));
        }
        let transition = DesiredTransition {
            migrate: Some(true),
            reschedule: request.reschedule.then_some(true),
            no_shutdown_delay: request.no_shutdown_delay.then_some(true),
            ..DesiredTransition::default()
        };
        let command = AllocTransitions {
            transitions: [(id, transition)].into(),
            triggered_by: Some(Trigger::AllocStop),
            seed: self.seed(),
        };
        let applied = self.propose(Body::AllocTransitions(command)).await?;
        Ok(AllocStopped { eval_id: applied.reply.eval_id, index: applied.index })
    }
}
