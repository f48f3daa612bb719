//! Deployments: promote, fail, pause, resume, unblock, health by hand.

use crate::error::ServerError;
use crate::leader::revert_text;
use crate::server::{Applied, Server};
use herdsman_model::{AllocId, Deployment, DeploymentId, DeploymentState, EvalId};
use herdsman_state::{AllocHealth, Body, HealthMarks, PromoteDeployment, SetDeploymentStatus};
use std::sync::Arc;

/// What a change of a deployment led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeploymentChanged {
    pub eval_id: Option<EvalId>,
    pub eval_create_index: u64,
    pub deployment_modify_index: u64,
    pub reverted_job_version: Option<u64>,
    pub index: u64,
}

impl DeploymentChanged {
    fn of(applied: &Applied) -> DeploymentChanged {
        DeploymentChanged {
            eval_id: applied.reply.eval_id,
            eval_create_index: if applied.reply.eval_id.is_some() { applied.index } else { 0 },
            deployment_modify_index: applied.reply.deployment_modify_index,
            reverted_job_version: applied.reply.reverted_to,
            index: applied.index,
        }
    }
}

/// Health that somebody gives to allocations.
#[derive(Debug, Clone, Default)]
pub struct HealthRequest {
    pub healthy: Vec<AllocId>,
    pub unhealthy: Vec<AllocId>,
}

impl Server {
    /// A deployment that can still be changed.
    fn active_deployment(&self, id: DeploymentId, verb: &str) -> Result<Arc<Deployment>, ServerError> {
        let deployment =
            self.snapshot().deployment(&id).cloned().ok_or_else(|| ServerError::refused("deployment not found"))?;
        if deployment.is_active() {
            return Ok(deployment);
        }
        Err(ServerError::refused(format!("can't {verb} terminal deployment")))
    }

    async fn set_deployment(&self, command: SetDeploymentStatus) -> Result<DeploymentChanged, ServerError> {
        let applied = self.propose(Body::DeploymentStatus(Box::new(command))).await?;
        Ok(DeploymentChanged::of(&applied))
    }

    /// Promotes the canaries of some groups; no names: of all.
    ///
    /// # Errors
    /// 500 when there is no such deployment, it is over, or canaries are not healthy.
    pub async fn promote_deployment(
        &self,
        id: DeploymentId,
        groups: Vec<String>,
    ) -> Result<DeploymentChanged, ServerError> {
        self.active_deployment(id, "promote")?;
        let command = PromoteDeployment { deployment_id: id, groups, seed: self.seed() };
        let applied = self.propose(Body::PromoteDeployment(command)).await?;
        Ok(DeploymentChanged::of(&applied))
    }

    /// Fails a deployment; its job returns to its stable version where a group asks for that.
    ///
    /// # Errors
    /// 500 when there is no such deployment or it is over.
    pub async fn fail_deployment(&self, id: DeploymentId) -> Result<DeploymentChanged, ServerError> {
        let deployment = self.active_deployment(id, "fail")?;
        let (description, revert_to) = self.failure_of(&deployment, "Deployment marked as failed");
        let command = SetDeploymentStatus {
            deployment_id: id,
            status: DeploymentState::Failed,
            description,
            revert_to,
            eval: true,
            keep_versions: self.config().jobs.tracked_versions,
            seed: self.seed(),
        };
        self.set_deployment(command).await
    }

    fn failure_of(&self, deployment: &Deployment, why: &str) -> (String, Option<u64>) {
        if !deployment.task_groups.values().any(|group| group.auto_revert) {
            return (why.to_owned(), None);
        }
        let (text, version) = revert_text(&self.snapshot(), deployment);
        (format!("{why} - {text}"), version)
    }

    /// Pauses a deployment, or lets it go on.
    ///
    /// # Errors
    /// 500 when there is no such deployment or it is over.
    pub async fn pause_deployment(&self, id: DeploymentId, pause: bool) -> Result<DeploymentChanged, ServerError> {
        let deployment = self.active_deployment(id, if pause { "pause" } else { "resume" })?;
        let (status, description) = if pause {
            (DeploymentState::Paused, "Deployment is paused")
        } else if deployment.requires_promotion() {
            let text = if deployment.has_auto_promote() {
                "Deployment is running pending automatic promotion"
            } else {
                "Deployment is running but requires manual promotion"
            };
            (DeploymentState::Running, text)
        } else {
            (DeploymentState::Running, "Deployment is running")
        };
        let command = SetDeploymentStatus {
            deployment_id: id,
            status,
            description: description.to_owned(),
            eval: !pause,
            seed: self.seed(),
            ..SetDeploymentStatus::default()
        };
        self.set_deployment(command).await
    }

    /// Lets a blocked deployment of several regions go on.
    ///
    /// # Errors
    /// 500 when there is no such deployment, it is over, or it is not blocked.
    pub async fn unblock_deployment(&self, id: DeploymentId) -> Result<DeploymentChanged, ServerError> {
        let deployment = self.active_deployment(id, "unblock")?;
        if deployment.status != DeploymentState::Blocked {
            return Err(ServerError::refused("can't unblock deployment that is not blocked"));
        }
        let command = SetDeploymentStatus {
            deployment_id: id,
            status: DeploymentState::Unblocking,
            description: "Deployment is being unblocked".to_owned(),
            eval: true,
            seed: self.seed(),
            ..SetDeploymentStatus::default()
        };
        self.set_deployment(command).await
    }

    /// Gives health to allocations of a deployment by hand.
    ///
    /// # Errors
    /// 500 when there is no such deployment or allocation, or none is named.
    pub async fn set_alloc_health(
        &self,
        id: DeploymentId,
        request: HealthRequest,
    ) -> Result<DeploymentChanged, ServerError> {
        if request.healthy.is_empty() && request.unhealthy.is_empty() {
            return Err(ServerError::refused("must specify at least one healthy/unhealthy allocation ID"));
        }
        let deployment = self.active_deployment(id, "set health of allocations for a")?;
        let (mut status, mut revert_to) = (None, None);
        if !request.unhealthy.is_empty() {
            let (description, version) = self.failure_of(&deployment, "Failed due to unhealthy allocations");
            status = Some((DeploymentState::Failed, description));
            revert_to = version;
        }
        let command = AllocHealth {
            deployment_id: id,
            marks: HealthMarks { healthy: request.healthy, unhealthy: request.unhealthy },
            status,
            revert_to,
            keep_versions: self.config().jobs.tracked_versions,
            seed: self.seed(),
        };
        let applied = self.propose(Body::AllocHealth(Box::new(command))).await?;
        Ok(DeploymentChanged::of(&applied))
    }
}
