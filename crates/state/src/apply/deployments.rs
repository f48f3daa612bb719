//! Deployments.

use super::plan::no_deployment;
use super::{Applied, multi_error};
use crate::codec::{Refusal, Reply};
use crate::command::{AllocHealth, PromoteDeployment, SetDeploymentStatus};
use crate::link::deployment_key;
use crate::txn::Txn;
use herdsman_model::{
    AllocId, Allocation, Deployment, DeploymentId, DeploymentState, EvalId, Job, JobType, Trigger, spec_changed,
};
use std::sync::Arc;

/// Counts what a change of an allocation means for the progress of its deployment.
pub(crate) fn count_alloc(txn: &mut Txn<'_>, before: Option<&Allocation>, after: &mut Allocation) {
    let Some(id) = after.deployment_id else { return };
    let before_health = before.filter(|before| before.deployment_id == Some(id)).map(Allocation::healthy);
    let health = after.healthy();
    if before_health == Some(health) {
        return;
    }
    if let Some(status) = &mut after.deployment_status {
        status.modify_index = txn.index;
    }
    let Some(stored) = txn.s.deployments.get(&id).cloned() else { return };
    let mut deployment = Deployment::clone(&stored);
    let canary = after.is_canary();
    let now = txn.now;
    let Some(group) = deployment.task_groups.get_mut(&*after.task_group) else { return };
    let deadline = (group.progress_deadline > 0).then(|| now.saturating_add(group.progress_deadline));
    if before_health.is_none() {
        group.placed_allocs += 1;
        if canary && !group.placed_canaries.contains(&after.id) {
            group.placed_canaries.push(after.id);
        }
        group.require_progress_by = group.require_progress_by.or(deadline);
    }
    match before_health.flatten() {
        Some(true) => group.healthy_allocs -= 1,
        Some(false) => group.unhealthy_allocs -= 1,
        None => {}
    }
    match health {
        Some(true) => {
            group.healthy_allocs += 1;
            group.require_progress_by = deadline.or(group.require_progress_by);
        }
        Some(false) => group.unhealthy_allocs += 1,
        None => {}
    }
    txn.put_deployment(deployment);
}

/// Changes the status of a deployment that is still being worked on; success makes its job version stable.
pub(crate) fn change_status(txn: &mut Txn<'_>, id: DeploymentId, status: DeploymentState, description: &str) -> bool {
    let Some(stored) = txn.s.deployments.get(&id).cloned() else { return false };
    if !stored.is_active() {
        return false;
    }
    let mut deployment = Deployment::clone(&stored);
    // What was paused gets its time again.
    if stored.status == DeploymentState::Paused && status == DeploymentState::Running {
        restart_deadlines(txn, &mut deployment, &[]);
    }
    deployment.status = status;
    deployment.status_description = description.to_owned();
    txn.put_deployment(deployment);
    if status == DeploymentState::Successful {
        let key = deployment_key(&stored);
        let same = txn.s.jobs.get(&key).is_some_and(|job| job.create_index == stored.job_create_index);
        if same {
            // The version may have been dropped since; then there is nothing to mark.
            let _ = super::jobs::set_stable(txn, &key, stored.job_version, true);
        }
    }
    true
}

/// Gives groups that have begun their whole progress deadline again. No names: all groups.
fn restart_deadlines(txn: &Txn<'_>, deployment: &mut Deployment, names: &[String]) {
    for (name, group) in &mut deployment.task_groups {
        let meant = names.is_empty() || names.contains(name);
        if meant && group.require_progress_by.is_some() && group.progress_deadline > 0 {
            group.require_progress_by = Some(txn.now.saturating_add(group.progress_deadline));
        }
    }
}

fn make_eval(txn: &mut Txn<'_>, deployment: &Deployment) -> Option<EvalId> {
    let key = deployment_key(deployment);
    let job = txn.s.jobs.get(&key).cloned();
    let priority =
        if deployment.eval_priority > 0 { deployment.eval_priority } else { super::jobs::priority_of(job.as_ref()) };
    let stand_in =
        Job { namespace: key.namespace.to_string(), id: key.id.to_string(), kind: JobType::Service, ..Job::default() };
    let job = job.unwrap_or_else(|| Arc::new(stand_in));
    let id = deployment.id;
    let eval = txn.make_eval(&job, Trigger::DeploymentWatcher, |eval| {
        eval.priority = priority;
        eval.deployment_id = Some(id);
    });
    Some(eval.id)
}

/// Registers an earlier version of the deployment's job again.
fn revert(txn: &mut Txn<'_>, deployment: &Deployment, version: u64, keep: u64) -> Option<u64> {
    let key = deployment_key(deployment);
    let target = txn.s.job_version_by_key(&key, version).cloned()?;
    let current = txn.s.jobs.get(&key)?;
    if current.stop || current.version != deployment.job_version || !spec_changed(current, &target) {
        return None;
    }
    let text = txn.s.job_submission(&key.namespace, &key.id, version).map(|text| (**text).clone());
    super::jobs::write_version(txn, &key, Job::clone(&target), text, keep);
    Some(version)
}

pub(crate) fn status(txn: &mut Txn<'_>, command: SetDeploymentStatus) -> Applied {
    txn.seed(command.seed);
    let stored = txn.s.deployments.get(&command.deployment_id).cloned().ok_or_else(no_deployment)?;
    if !change_status(txn, command.deployment_id, command.status, &command.description) {
        return Err(Refusal::new(500, "deployment is already terminal"));
    }
    let reverted_to = command.revert_to.and_then(|version| revert(txn, &stored, version, command.keep_versions));
    let eval_id = if command.eval { make_eval(txn, &stored) } else { None };
    Ok(Reply { eval_id, reverted_to, deployment_modify_index: txn.index, ..Reply::default() })
}

pub(crate) fn promote(txn: &mut Txn<'_>, command: PromoteDeployment) -> Applied {
    txn.seed(command.seed);
    let stored = txn.s.deployments.get(&command.deployment_id).cloned().ok_or_else(no_deployment)?;
    if !stored.is_active() {
        return Err(Refusal::new(500, "can't promote terminal deployment"));
    }
    let meant = |name: &String| command.groups.is_empty() || command.groups.contains(name);
    let mut problems = Vec::new();
    for (name, group) in stored.task_groups.iter().filter(|(name, _)| meant(name)) {
        if group.promoted || group.desired_canaries == 0 {
            continue;
        }
        let healthy = group.placed_canaries.iter().filter(|id| canary_is_healthy(txn, id)).count();
        let desired = usize::try_from(group.desired_canaries).unwrap_or(0);
        if healthy < desired {
            problems.push(format!("Task group \"{name}\" has {healthy}/{desired} healthy allocations"));
        }
    }
    if !problems.is_empty() {
        return Err(Refusal::new(500, multi_error(&problems)));
    }
    let mut deployment = Deployment::clone(&stored);
    for (_, group) in deployment.task_groups.iter_mut().filter(|(name, _)| meant(name)) {
        if group.desired_canaries > 0 {
            group.promoted = true;
        }
    }
    restart_deadlines(txn, &mut deployment, &command.groups);
    if !deployment.requires_promotion() && deployment.status == DeploymentState::Running {
        deployment.status_description = "Deployment is running".to_owned();
    }
    let canaries: Vec<AllocId> = deployment
        .task_groups
        .iter()
        .filter(|(name, _)| meant(name))
        .flat_map(|(_, group)| group.placed_canaries.iter().copied())
        .collect();
    txn.put_deployment(deployment);
    for id in canaries {
        clear_canary(txn, id);
    }
    let eval_id = make_eval(txn, &stored);
    Ok(Reply { eval_id, deployment_modify_index: txn.index, ..Reply::default() })
}

fn canary_is_healthy(txn: &Txn<'_>, id: &AllocId) -> bool {
    txn.s.allocs.get(id).is_some_and(|alloc| alloc.healthy() == Some(true) && !alloc.terminal())
}

/// A promoted canary is an allocation like any other.
fn clear_canary(txn: &mut Txn<'_>, id: AllocId) {
    let Some(stored) = txn.s.allocs.get(&id) else { return };
    if !stored.is_canary() {
        return;
    }
    let mut alloc = Allocation::clone(stored);
    if let Some(status) = &mut alloc.deployment_status {
        status.canary = false;
        status.modify_index = txn.index;
    }
    alloc.alloc_modify_index = txn.index;
    txn.put_alloc(alloc);
}

pub(crate) fn health(txn: &mut Txn<'_>, command: AllocHealth) -> Applied {
    txn.seed(command.seed);
    let stored = txn.s.deployments.get(&command.deployment_id).cloned().ok_or_else(no_deployment)?;
    if !stored.is_active() {
        return Err(Refusal::new(500, "can't set health of allocations for a terminal deployment"));
    }
    for (ids, healthy) in [(&command.marks.healthy, true), (&command.marks.unhealthy, false)] {
        for id in ids {
            mark(txn, *id, command.deployment_id, healthy)?;
        }
    }
    let mut reverted_to = None;
    if let Some((status, description)) = &command.status {
        change_status(txn, command.deployment_id, *status, description);
        reverted_to = command.revert_to.and_then(|version| revert(txn, &stored, version, command.keep_versions));
    }
    let eval_id = make_eval(txn, &stored);
    Ok(Reply { eval_id, reverted_to, deployment_modify_index: txn.index, ..Reply::default() })
}

fn mark(txn: &mut Txn<'_>, id: AllocId, deployment: DeploymentId, healthy: bool) -> Result<(), Refusal> {
    let stored = txn.s.allocs.get(&id).cloned();
    let Some(stored) = stored else { return Err(Refusal::new(500, format!("unknown alloc \"{id}\""))) };
    if stored.deployment_id != Some(deployment) {
        return Err(Refusal::new(500, format!("alloc \"{id}\" is not part of deployment \"{deployment}\"")));
    }
    let mut alloc = Allocation::clone(&stored);
    let status = alloc.deployment_status.get_or_insert_with(Default::default);
    status.healthy = Some(healthy);
    status.timestamp = Some(txn.now);
    count_alloc(txn, Some(&stored), &mut alloc);
    alloc.alloc_modify_index = txn.index;
    txn.put_alloc(alloc);
    Ok(())
}
