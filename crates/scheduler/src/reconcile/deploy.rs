//! What planning decides of deployments: when one starts, is superseded, and is complete.

use super::{Input, Reconciler};
use crate::texts;
use herdsman_model::{Deployment, DeploymentGroup, DeploymentId, DeploymentState, DeploymentUpdate, Job, TaskGroup};
use std::sync::Arc;

/// The job's newest deployment, seen from its newest version.
#[derive(Debug, Default)]
pub(crate) struct JobDeployment {
    /// It is of an older version, or done with.
    pub(crate) old: Option<Arc<Deployment>>,
    /// It is of the newest version and not done with.
    pub(crate) current: Option<Arc<Deployment>>,
    /// Nothing new is begun.
    pub(crate) paused: bool,
    pub(crate) failed: bool,
}

/// A group's part of the deployment.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupDeployment {
    pub(crate) state: DeploymentGroup,
    /// The current deployment has it already.
    pub(crate) exists: bool,
}

impl GroupDeployment {
    /// Canaries wait for their promotion.
    pub(crate) fn canarying(&self) -> bool {
        self.exists && self.state.desired_canaries > 0 && !self.state.promoted
    }
}

impl JobDeployment {
    /// Sorts the newest deployment, and cancels it where it is superseded.
    pub(crate) fn sort(input: &Input<'_>, updates: &mut Vec<DeploymentUpdate>) -> JobDeployment {
        let mut sorted = JobDeployment::default();
        let Some(deployment) = &input.deployment else { return sorted };
        let mut cancel = |description: &str| {
            if deployment.is_active() {
                updates.push(DeploymentUpdate {
                    id: deployment.id,
                    status: DeploymentState::Cancelled,
                    description: description.to_owned(),
                });
            }
        };
        let superseded = match &input.job {
            None => {
                cancel(texts::DEPLOYMENT_STOPPED);
                true
            }
            Some(job) if deployment.job_create_index != job.create_index || deployment.job_version != job.version => {
                cancel(texts::DEPLOYMENT_NEWER);
                true
            }
            Some(_) => deployment.status == DeploymentState::Successful,
        };
        if superseded {
            sorted.old = Some(Arc::clone(deployment));
            return sorted;
        }
        sorted.paused = matches!(
            deployment.status,
            DeploymentState::Paused | DeploymentState::Pending | DeploymentState::Initializing
        );
        sorted.failed = deployment.status == DeploymentState::Failed;
        sorted.current = Some(Arc::clone(deployment));
        sorted
    }

    /// The current deployment, if it is still being worked on.
    pub(crate) fn active(&self) -> Option<&Arc<Deployment>> {
        self.current.as_ref().filter(|d| d.is_active())
    }

    /// The group's part, as it is or as it would begin.
    pub(crate) fn group(&self, group: &TaskGroup) -> GroupDeployment {
        if let Some(state) = self.current.as_ref().and_then(|d| d.task_groups.get(&group.name)) {
            return GroupDeployment { state: state.clone(), exists: true };
        }
        let mut state = DeploymentGroup { desired_total: group.count, ..DeploymentGroup::default() };
        if let Some(update) = &group.update {
            state.auto_revert = update.auto_revert;
            state.auto_promote = update.auto_promote;
            state.progress_deadline = update.progress_deadline;
        }
        GroupDeployment { state, exists: false }
    }
}

/// Whether changes of the group go through deployments.
pub(crate) fn deploys(group: &TaskGroup) -> bool {
    group.update.as_ref().is_some_and(|u| u.max_parallel > 0)
}

impl Reconciler<'_> {
    /// Takes the group into a deployment, a new one if there is none, when its allocations change or are the first of
    /// their version; and notes a wish for canaries that is new.
    pub(crate) fn deploy_group(
        &mut self,
        job: &Job,
        group: &TaskGroup,
        part: &GroupDeployment,
        had_version: bool,
        updating: bool,
    ) {
        if self.input.batch || !deploys(group) {
            return;
        }
        if part.exists {
            let current = self.deployment.current.as_ref();
            let known = current.and_then(|d| d.task_groups.get(&group.name)).map_or(0, |g| g.desired_canaries);
            if let (true, Some(current)) = (known != part.state.desired_canaries, current) {
                let current = Arc::clone(current);
                let deployment = self.results.deployment.get_or_insert_with(|| (*current).clone());
                deployment.task_groups.insert(group.name.clone(), part.state.clone());
            }
            return;
        }
        let superseded_here = self.deployment.current.is_some() && self.results.deployment.is_none();
        if part.state.desired_total <= 0 || (had_version && !updating) || superseded_here {
            return;
        }
        if self.results.deployment.is_none() {
            self.results.deployment = Some(Deployment {
                id: DeploymentId((self.ids)()),
                namespace: job.namespace.as_str().into(),
                job_id: job.id.as_str().into(),
                job_version: job.version,
                job_modify_index: job.modify_index,
                job_spec_modify_index: job.job_modify_index,
                job_create_index: job.create_index,
                status: DeploymentState::Running,
                status_description: texts::DEPLOYMENT_RUNNING.to_owned(),
                eval_priority: self.input.eval.priority,
                create_time: self.input.now,
                modify_time: self.input.now,
                ..Deployment::default()
            });
        }
        if let Some(deployment) = &mut self.results.deployment {
            deployment.task_groups.insert(group.name.clone(), part.state.clone());
        }
    }

    /// Names what a new deployment waits for, and ends one that is complete.
    pub(crate) fn finish_deployment(&mut self, complete: bool) {
        if let Some(deployment) = &mut self.results.deployment
            && deployment.status == DeploymentState::Running
        {
            let text = match (deployment.requires_promotion(), deployment.has_auto_promote()) {
                (false, _) => texts::DEPLOYMENT_RUNNING,
                (true, true) => texts::DEPLOYMENT_AUTO,
                (true, false) => texts::DEPLOYMENT_MANUAL,
            };
            deployment.status_description = text.to_owned();
            return;
        }
        let Some(current) = self.deployment.active() else { return };
        let healthy = current.task_groups.values().all(|g| {
            let promoted = g.desired_canaries == 0 || g.promoted;
            promoted && g.healthy_allocs >= g.desired_total.max(g.desired_canaries)
        });
        if complete && healthy && !self.deployment.paused {
            let update = DeploymentUpdate {
                id: current.id,
                status: DeploymentState::Successful,
                description: texts::DEPLOYMENT_SUCCESSFUL.to_owned(),
            };
            self.results.deployment_updates.push(update);
        }
    }
}
