//! Watches deployments: health, progress deadlines, automatic promotion and reverting (`compat/scheduler.md` section 11).

use super::{more_batches, next_batch, sleep_until};
use crate::feed::Batch;
use crate::server::Server;
use herdsman_model::{
    AllocId, Deployment, DeploymentId, DeploymentState, DesiredTransition, EvalId, Evaluation, Job, Trigger,
    spec_changed,
};
use herdsman_state::{
    Body, JobKey, PromoteDeployment, Row, SetDeploymentStatus, Snapshot, UpsertEvals, reschedule_eligible,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::broadcast;

/// What was last seen of a deployment.
#[derive(Debug, Default)]
struct Seen {
    healthy: i64,
    /// Allocations whose replacement was asked for.
    rescheduled: BTreeSet<AllocId>,
}

/// What is to be done about a deployment.
#[derive(Debug, PartialEq)]
enum Verdict {
    Nothing,
    /// More allocations are healthy, or some may be replaced: the scheduler goes on.
    GoOn(Vec<AllocId>),
    Promote,
    Fail(&'static str),
}

/// Why a deployment fails.
const UNHEALTHY: &str = "Failed due to unhealthy allocations";
const PROGRESS: &str = "Failed due to progress deadline";

pub(crate) async fn run(server: Server, mut changes: broadcast::Receiver<Arc<Batch>>) {
    let mut active: BTreeMap<DeploymentId, Seen> = BTreeMap::new();
    let mut dirty: BTreeSet<DeploymentId> = rebuild(&server, &mut active);
    loop {
        while let Some(id) = dirty.pop_first() {
            look_at(&server, id, &mut active).await;
        }
        let due = next_deadline(&server, active.keys());
        tokio::select! {
            biased;
            batch = next_batch(&mut changes) => match batch.and_then(|batch| more_batches(&mut changes, batch)) {
                Some(batches) => batches.iter().for_each(|batch| note(batch, &mut active, &mut dirty)),
                None => dirty = rebuild(&server, &mut active),
            },
            () = sleep_until(&server, due) => dirty.extend(active.keys().copied()),
        }
    }
}

fn rebuild(server: &Server, active: &mut BTreeMap<DeploymentId, Seen>) -> BTreeSet<DeploymentId> {
    active.clear();
    for deployment in server.snapshot().deployments().filter(|deployment| deployment.is_active()) {
        active.insert(deployment.id, Seen::default());
    }
    active.keys().copied().collect()
}

fn note(batch: &Batch, active: &mut BTreeMap<DeploymentId, Seen>, dirty: &mut BTreeSet<DeploymentId>) {
    for change in &batch.changes {
        match &change.after {
            Some(Row::Deployment(deployment)) => {
                if deployment.is_active() {
                    active.entry(deployment.id).or_default();
                    dirty.insert(deployment.id);
                } else {
                    active.remove(&deployment.id);
                    dirty.remove(&deployment.id);
                }
            }
            Some(Row::Alloc(alloc)) => {
                if let Some(id) = alloc.deployment_id
                    && active.contains_key(&id)
                {
                    dirty.insert(id);
                }
            }
            None => {
                if let Some(Row::Deployment(gone)) = &change.before {
                    active.remove(&gone.id);
                }
            }
            _ => {}
        }
    }
}

/// The earliest progress deadline of a group that is not done.
fn next_deadline<'a>(server: &Server, ids: impl Iterator<Item = &'a DeploymentId>) -> Option<i64> {
    let snapshot = server.snapshot();
    ids.filter_map(|id| snapshot.deployment(id))
        .filter(|deployment| deployment.status == DeploymentState::Running)
        .flat_map(|deployment| deployment.task_groups.values())
        .filter(|group| is_short(group))
        .filter_map(|group| group.require_progress_by)
        .min()
}

/// Whether a group lacks healthy allocations: canaries while it waits for promotion, else all.
fn is_short(group: &herdsman_model::DeploymentGroup) -> bool {
    if group.desired_canaries > 0 && !group.promoted {
        group.healthy_allocs < group.desired_canaries
    } else {
        group.healthy_allocs < group.desired_total
    }
}

async fn look_at(server: &Server, id: DeploymentId, active: &mut BTreeMap<DeploymentId, Seen>) {
    let Some(seen) = active.get_mut(&id) else { return };
    let snapshot = server.snapshot();
    let Some(deployment) = snapshot.deployment(&id).cloned() else { return };
    let done = match judge(&snapshot, &deployment, seen, server.now()) {
        Verdict::Nothing => return,
        Verdict::Promote => {
            let command = PromoteDeployment { deployment_id: id, groups: Vec::new(), seed: server.seed() };
            server.propose(Body::PromoteDeployment(command)).await
        }
        Verdict::Fail(why) => {
            let (description, revert_to) = failure(&snapshot, &deployment, why);
            let command = SetDeploymentStatus {
                deployment_id: id,
                status: DeploymentState::Failed,
                description,
                revert_to,
                eval: true,
                keep_versions: server.config().jobs.tracked_versions,
                seed: server.seed(),
            };
            server.propose(Body::DeploymentStatus(Box::new(command))).await
        }
        Verdict::GoOn(replace) => {
            let transition = DesiredTransition { reschedule: Some(true), ..DesiredTransition::default() };
            let transitions = replace.into_iter().map(|alloc| (alloc, transition.clone())).collect();
            let evals = evaluation(server, &snapshot, &deployment).into_iter().collect();
            server.propose(Body::UpsertEvals(UpsertEvals { evals, transitions })).await
        }
    };
    if let Err(error) = done {
        tracing::warn!(deployment = %id, %error, "a deployment could not be moved on");
    }
}

fn evaluation(server: &Server, snapshot: &Snapshot, deployment: &Deployment) -> Option<Evaluation> {
    let key = JobKey { namespace: deployment.namespace.clone(), id: deployment.job_id.clone() };
    let job = snapshot.job_by_key(&key)?;
    Some(Evaluation {
        id: EvalId(server.world().rng.bytes16()),
        namespace: key.namespace,
        priority: if deployment.eval_priority > 0 { deployment.eval_priority } else { job.priority },
        kind: job.kind,
        triggered_by: Trigger::DeploymentWatcher,
        job_id: key.id,
        job_modify_index: job.modify_index,
        deployment_id: Some(deployment.id),
        ..Evaluation::default()
    })
}

/// What is to be done about a deployment now.
fn judge(snapshot: &Snapshot, deployment: &Deployment, seen: &mut Seen, now: i64) -> Verdict {
    // A paused deployment neither fails nor goes on.
    if deployment.status != DeploymentState::Running {
        return Verdict::Nothing;
    }
    let mut replace = Vec::new();
    for alloc in snapshot.allocs_by_deployment(deployment.id) {
        // One that was healthy and failed later says nothing of the version, but has to be replaced too.
        let unhealthy = alloc.healthy() == Some(false);
        if !(unhealthy || alloc.work_failed()) || alloc.next_allocation.is_some() {
            continue;
        }
        let Some(group) = deployment.task_groups.get(&*alloc.task_group) else { continue };
        if unhealthy && group.progress_deadline == 0 {
            return Verdict::Fail(UNHEALTHY);
        }
        if seen.rescheduled.contains(&alloc.id) || alloc.server_terminal() {
            continue;
        }
        let job = snapshot.alloc_job(alloc);
        let policy = job.and_then(|job| job.group(&alloc.task_group)).and_then(|g| g.reschedule_policy.as_ref());
        match reschedule_eligible(policy, alloc, now) {
            true => replace.push(alloc.id),
            false if unhealthy => return Verdict::Fail(UNHEALTHY),
            false => {}
        }
    }
    let late = deployment
        .task_groups
        .values()
        .any(|group| is_short(group) && group.require_progress_by.is_some_and(|deadline| deadline <= now));
    if late {
        return Verdict::Fail(PROGRESS);
    }
    let waiting = || deployment.task_groups.values().filter(|group| group.desired_canaries > 0 && !group.promoted);
    let ready = |group: &herdsman_model::DeploymentGroup| {
        let healthy = group
            .placed_canaries
            .iter()
            .filter(|id| snapshot.alloc(id).is_some_and(|alloc| alloc.healthy() == Some(true) && !alloc.terminal()));
        i64::try_from(healthy.count()).unwrap_or(i64::MAX) >= group.desired_canaries
    };
    if waiting().next().is_some() && waiting().all(|group| group.auto_promote && ready(group)) {
        return Verdict::Promote;
    }
    let healthy: i64 = deployment.task_groups.values().map(|group| group.healthy_allocs).sum();
    let progressed = healthy > seen.healthy;
    seen.healthy = healthy;
    if progressed || !replace.is_empty() {
        seen.rescheduled.extend(replace.iter().copied());
        return Verdict::GoOn(replace);
    }
    Verdict::Nothing
}

/// How a failure is described, and the job version to return to.
fn failure(snapshot: &Snapshot, deployment: &Deployment, why: &str) -> (String, Option<u64>) {
    let reverts = deployment.task_groups.values().any(|group| group.auto_revert);
    if !reverts {
        return (why.to_owned(), None);
    }
    let (text, version) = revert_text(snapshot, deployment);
    (format!("{why} - {text}"), version)
}

/// What becomes of the job when its deployment failed and is to be reverted.
pub(crate) fn revert_text(snapshot: &Snapshot, deployment: &Deployment) -> (String, Option<u64>) {
    let key = JobKey { namespace: deployment.namespace.clone(), id: deployment.job_id.clone() };
    let current = snapshot.job_by_key(&key);
    match (stable_target(snapshot, &key, deployment.job_version), current) {
        (None, _) => ("no stable job version to auto revert to".to_owned(), None),
        (Some(stable), Some(current)) if !spec_changed(current, &stable) => {
            let version = stable.version;
            let text =
                format!("not rolling back to stable job version {version} as current job has same specification");
            (text, None)
        }
        (Some(stable), _) => (format!("rolling back to job version {}", stable.version), Some(stable.version)),
    }
}

/// The newest stable version older than the one that failed.
fn stable_target(snapshot: &Snapshot, key: &JobKey, failed: u64) -> Option<Arc<Job>> {
    let versions = snapshot.job_versions(&key.namespace, &key.id)?;
    versions.iter().find(|job| job.stable && job.version < failed).cloned()
}
