//! Jobs: register, stop, remove, scale, tag, mark stable.

use super::{Applied, multi_error};
use crate::codec::{Refusal, Reply};
use crate::command::{DeregisterJob, JobStability, JobVersionTag, RegisterJob, ScaleJob};
use crate::rows::{GroupSummary, JobKey, JobSubmission, SCALING_EVENTS_KEPT, ScalingPolicyRow};
use crate::txn::{DEFAULT_PRIORITY, Txn};
use herdsman_model::{EvalId, Job, JobStatus, JobType, Trigger, VersionTag, spec_changed};
use std::sync::Arc;

/// Versions of a job kept when a command says nothing.
pub(crate) const VERSIONS_KEPT: u64 = 6;

/// Refuses a job whose namespace or node pool does not exist.
fn check_places(txn: &Txn<'_>, job: &Job) -> Result<(), Refusal> {
    let mut problems = Vec::new();
    if txn.s.namespace(&job.namespace).is_none() {
        problems.push(format!("job \"{}\" is in nonexistent namespace \"{}\"", job.id, job.namespace));
    }
    if !job.node_pool.is_empty() && txn.s.node_pool(&job.node_pool).is_none() {
        problems.push(format!("job \"{}\" is in nonexistent node pool \"{}\"", job.id, job.node_pool));
    }
    if problems.is_empty() { Ok(()) } else { Err(Refusal::new(500, multi_error(&problems))) }
}

/// Refuses what cannot become of a registered job.
fn check_change(existing: &Job, job: &Job) -> Result<(), Refusal> {
    let (id, mut problem) = (&job.id, None);
    if existing.kind != job.kind {
        let (from, to) = (existing.kind.as_str(), job.kind.as_str());
        problem = Some(format!("job \"{id}\" has type \"{from}\", which cannot become \"{to}\""));
    } else if existing.is_periodic() != job.is_periodic() {
        problem = Some(format!("job \"{id}\" cannot start or stop being periodic; register it under another id"));
    } else if existing.is_parameterized() != job.is_parameterized() {
        problem = Some(format!("job \"{id}\" cannot start or stop being parameterized; register it under another id"));
    } else if existing.dispatched != job.dispatched {
        problem = Some(format!("job \"{id}\" was dispatched, which cannot change"));
    }
    match problem {
        Some(problem) => Err(Refusal::new(500, multi_error(&[problem]))),
        None => Ok(()),
    }
}

/// Refuses a register whose enforced index does not hold.
fn check_enforced(existing: Option<&Arc<Job>>, wanted: Option<u64>) -> Result<(), Refusal> {
    let Some(wanted) = wanted else { return Ok(()) };
    let text = match (wanted, existing) {
        (0, None) => return Ok(()),
        (0, Some(_)) => "job already exists".to_owned(),
        (_, None) => "job does not exist".to_owned(),
        (index, Some(job)) if job.job_modify_index == index => return Ok(()),
        (_, Some(job)) => format!("job exists with conflicting job modify index: {}", job.job_modify_index),
    };
    Err(Refusal::new(500, format!("Enforcing job modify index {wanted}: {text}")))
}

pub(crate) fn register(txn: &mut Txn<'_>, command: RegisterJob) -> Applied {
    txn.seed(command.seed);
    let key = JobKey::of(&command.job);
    check_places(txn, &command.job)?;
    let existing = txn.s.jobs.get(&key).cloned();
    check_enforced(existing.as_ref(), command.enforce_index)?;
    let mut reply = Reply::default();
    let current = match existing {
        Some(existing) if !spec_changed(&existing, &command.job) => {
            reply.unchanged = true;
            existing
        }
        existing => {
            if let Some(existing) = &existing {
                check_change(existing, &command.job)?;
            }
            write_version(txn, &key, command.job, command.submission, command.keep_versions)
        }
    };
    if let Some(request) = command.eval {
        let eval = txn.make_eval(&current, request.triggered_by, |eval| {
            if request.priority > 0 {
                eval.priority = request.priority;
            }
        });
        reply.eval_id = Some(eval.id);
    }
    reply.job_id = current.id.clone();
    reply.job_create_index = current.create_index;
    reply.job_modify_index = current.job_modify_index;
    reply.job_version = current.version;
    Ok(reply)
}

/// Writes a new job, or a new version of one, and everything that follows from it.
pub(crate) fn write_version(
    txn: &mut Txn<'_>,
    key: &JobKey,
    mut job: Job,
    submission: Option<JobSubmission>,
    keep: u64,
) -> Arc<Job> {
    let existing = txn.s.jobs.get(key).cloned();
    job.create_index = existing.as_ref().map_or(txn.index, |existing| existing.create_index);
    job.version = existing.as_ref().map_or(0, |existing| existing.version + 1);
    job.status = existing.as_ref().map_or(JobStatus::Pending, |existing| existing.status);
    job.modify_index = txn.index;
    job.job_modify_index = txn.index;
    job.stable = false;
    job.version_tag = None;
    job.submit_time = txn.now;
    write_policies(txn, key, &mut job);
    let job = Arc::new(job);

    let mut versions = txn.s.versions.get(key).map(|kept| Vec::clone(kept)).unwrap_or_default();
    versions.insert(0, job.clone());
    drop_old_versions(&mut versions, if keep == 0 { VERSIONS_KEPT } else { keep });
    write_submissions(txn, key, &versions, submission);
    txn.put_versions(key, versions);

    if existing.is_none() {
        txn.new_summary(key);
        if let Some(parent) = crate::link::parent_key(&job) {
            txn.count_new_child(&parent, job.status);
        }
    }
    if let Some(summary) = txn.summary(key) {
        for group in job.task_groups.iter() {
            summary.groups.entry(group.name.clone()).or_insert_with(GroupSummary::default);
        }
    }
    if job.is_periodic_active() && !txn.s.launches.contains_key(key) {
        let now = txn.now;
        txn.put_launch(key, now);
    }
    txn.put_job(job.clone());
    job
}

/// Drops the oldest version until few enough are kept. Tagged ones do not count, the newest stable one is not dropped.
fn drop_old_versions(versions: &mut Vec<Arc<Job>>, keep: u64) {
    let keep = usize::try_from(keep).unwrap_or(usize::MAX).max(1);
    while versions.iter().filter(|job| job.version_tag.is_none()).count() > keep {
        let stable = versions.iter().position(|job| job.stable);
        let oldest = versions
            .iter()
            .enumerate()
            .rev()
            .find(|(place, job)| job.version_tag.is_none() && *place != 0 && Some(*place) != stable)
            .map(|(place, _)| place);
        match oldest {
            Some(place) => drop(versions.remove(place)),
            None => return,
        }
    }
}

/// Keeps the texts of the kept versions, with the new one first.
fn write_submissions(txn: &mut Txn<'_>, key: &JobKey, versions: &[Arc<Job>], submission: Option<JobSubmission>) {
    let kept = txn.s.submissions.get(key).map(|kept| Vec::clone(kept)).unwrap_or_default();
    let before = kept.len();
    let mut kept: Vec<_> =
        kept.into_iter().filter(|text| versions.iter().any(|job| job.version == text.version)).collect();
    let Some(mut submission) = submission else {
        if kept.len() != before {
            txn.put_submissions(key, kept);
        }
        return;
    };
    submission.namespace = key.namespace.to_string();
    submission.job_id = key.id.to_string();
    submission.version = versions.first().map_or(0, |job| job.version);
    submission.job_modify_index = txn.index;
    kept.insert(0, Arc::new(submission));
    txn.put_submissions(key, kept);
}

/// Gives the scaling blocks of a job their identifiers and writes the policies.
fn write_policies(txn: &mut Txn<'_>, key: &JobKey, job: &mut Job) {
    let known: Vec<_> = txn.s.scaling_policies_by_job(key).cloned().collect();
    let mut wanted = Vec::new();
    for place in job.task_groups.iter_mut() {
        let Some(scaling) = &place.scaling else { continue };
        let mut scaling = scaling.clone();
        let before = known.iter().find(|row| row.group == place.name);
        scaling.id = match before {
            Some(row) => row.policy.id.clone(),
            None if !scaling.id.is_empty() => scaling.id,
            None => EvalId(txn.next_id()).to_string(),
        };
        scaling.kind = if scaling.kind.is_empty() { "horizontal".to_owned() } else { scaling.kind };
        scaling.target = [("Namespace", &*key.namespace), ("Job", &*key.id), ("Group", place.name.as_str())]
            .into_iter()
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        scaling.create_index = before.map_or(txn.index, |row| row.policy.create_index);
        scaling.modify_index = txn.index;
        let row = ScalingPolicyRow {
            namespace: key.namespace.to_string(),
            job_id: key.id.to_string(),
            group: place.name.clone(),
            policy: scaling.clone(),
        };
        wanted.push(row.policy.id.clone());
        Arc::make_mut(place).scaling = Some(scaling);
        txn.put_policy(row);
    }
    for row in known {
        if job.stop || !wanted.contains(&row.policy.id) {
            txn.delete_policy(&row.policy.id);
        }
    }
}

pub(crate) fn deregister(txn: &mut Txn<'_>, command: DeregisterJob) -> Applied {
    txn.seed(command.seed);
    let key = JobKey::new(&command.namespace, &command.job_id);
    let Some(job) = txn.s.jobs.get(&key).cloned() else {
        return Ok(Reply::default());
    };
    if command.no_shutdown_delay {
        let live: Vec<_> = txn.s.allocs_by_job(&key).filter(|alloc| !alloc.terminal()).cloned().collect();
        for alloc in live {
            let mut alloc = herdsman_model::Allocation::clone(&alloc);
            alloc.desired_transition.no_shutdown_delay = Some(true);
            alloc.alloc_modify_index = txn.index;
            txn.put_alloc(alloc);
        }
    }
    let mut reply = Reply { job_id: job.id.clone(), job_create_index: job.create_index, ..Reply::default() };
    let mut stopped = Job::clone(&job);
    stopped.stop = true;
    if command.purge {
        txn.delete_job(&key);
    } else if !job.stop {
        write_version(txn, &key, stopped.clone(), None, VERSIONS_KEPT);
    }
    reply.job_modify_index = txn.index;
    // What only launches others has nothing to evaluate.
    if !job.is_periodic() && !job.is_parameterized() {
        stopped.modify_index = txn.index;
        let eval = txn.make_eval(&stopped, Trigger::JobDeregister, |eval| {
            if command.eval_priority > 0 {
                eval.priority = command.eval_priority;
            }
        });
        reply.eval_id = Some(eval.id);
    }
    Ok(reply)
}

pub(crate) fn stability(txn: &mut Txn<'_>, command: &JobStability) -> Applied {
    let key = JobKey::new(&command.namespace, &command.job_id);
    if !txn.s.jobs.contains_key(&key) {
        return Err(Refusal::new(500, "job not found"));
    }
    set_stable(txn, &key, command.version, command.stable).map_err(|()| {
        Refusal::new(
            500,
            format!(
                "job \"{}\" in namespace \"{}\" at version {} not found",
                command.job_id, command.namespace, command.version
            ),
        )
    })?;
    Ok(Reply::default())
}

/// Marks a kept version as stable or not.
pub(crate) fn set_stable(txn: &mut Txn<'_>, key: &JobKey, version: u64, stable: bool) -> Result<(), ()> {
    change_version(txn, key, version, |job| {
        let changed = job.stable != stable;
        job.stable = stable;
        changed
    })
}

/// Changes a kept version in place; `change` says whether it did anything.
fn change_version(
    txn: &mut Txn<'_>,
    key: &JobKey,
    version: u64,
    change: impl FnOnce(&mut Job) -> bool,
) -> Result<(), ()> {
    let versions = txn.s.versions.get(key).cloned().ok_or(())?;
    let job = versions.iter().find(|job| job.version == version).ok_or(())?;
    let mut changed = Job::clone(job);
    if !change(&mut changed) {
        return Ok(());
    }
    changed.modify_index = txn.index;
    let current = txn.s.jobs.get(key).is_some_and(|job| job.version == version);
    let changed = Arc::new(changed);
    if current {
        txn.put_job(changed);
    } else {
        txn.replace_version(key, &changed);
    }
    let versions = txn.s.versions.get(key).map(|kept| Vec::clone(kept)).unwrap_or_default();
    txn.put_versions(key, versions);
    Ok(())
}

pub(crate) fn tag(txn: &mut Txn<'_>, command: JobVersionTag) -> Applied {
    let key = JobKey::new(&command.namespace, &command.job_id);
    let Some(versions) = txn.s.versions.get(&key).cloned() else {
        return Err(Refusal::new(500, "job not found"));
    };
    let tagged = versions
        .iter()
        .find(|job| job.version_tag.as_ref().is_some_and(|tag| tag.name == command.name))
        .map(|job| job.version);
    match (command.version, tagged) {
        (Some(version), Some(other)) if other != version => Err(Refusal::new(
            500,
            format!("tag \"{}\" already exists on a different version of job \"{}\"", command.name, command.job_id),
        )),
        (Some(version), _) => {
            let tag = VersionTag { name: command.name, description: command.description, tagged_time: txn.now };
            change_version(txn, &key, version, |job| {
                job.version_tag = Some(tag);
                true
            })
            .map_err(|()| Refusal::new(500, format!("job \"{}\" version {version} not found", command.job_id)))?;
            Ok(Reply::default())
        }
        (None, Some(version)) => {
            let untag = |job: &mut Job| {
                job.version_tag = None;
                true
            };
            change_version(txn, &key, version, untag)
                .map_err(|()| Refusal::new(500, format!("job \"{}\" version {version} not found", command.job_id)))?;
            Ok(Reply::default())
        }
        (None, None) => {
            Err(Refusal::new(500, format!("tag \"{}\" not found on job \"{}\"", command.name, command.job_id)))
        }
    }
}

pub(crate) fn scale(txn: &mut Txn<'_>, command: ScaleJob) -> Applied {
    txn.seed(command.seed);
    let key = JobKey::new(&command.namespace, &command.job_id);
    let Some(job) = txn.s.jobs.get(&key).cloned() else {
        return Err(Refusal::new(404, "job not found"));
    };
    let missing =
        || Refusal::new(400, format!("task group \"{}\" specified for scaling does not exist in job", command.group));
    let previous = job.group(&command.group).map(|group| group.count).ok_or_else(missing)?;
    let mut reply = Reply {
        job_id: job.id.clone(),
        job_create_index: job.create_index,
        job_modify_index: job.job_modify_index,
        ..Reply::default()
    };
    let mut event = command.event;
    event.previous_count = previous;
    event.count = command.count;
    event.time = txn.now;
    event.create_index = txn.index;
    if let Some(count) = command.count {
        check_scale(txn, &key, &job, &command.group, count)?;
        let mut scaled = Job::clone(&job);
        for place in scaled.task_groups.iter_mut().filter(|group| group.name == command.group) {
            Arc::make_mut(place).count = count;
        }
        let scaled = if count == previous {
            job.clone()
        } else {
            let text = txn.s.job_submission(&command.namespace, &command.job_id, job.version).cloned();
            write_version(txn, &key, scaled, text.map(|text| JobSubmission::clone(&text)), command.keep_versions)
        };
        reply.job_modify_index = scaled.job_modify_index;
        if !scaled.is_periodic() && !scaled.is_parameterized() {
            let eval = txn.make_eval(&scaled, Trigger::JobScaling, |_| {});
            event.eval_id = Some(eval.id);
            reply.eval_id = Some(eval.id);
        }
    }
    let mut events = txn.s.scaling_events.get(&key).map(|events| (**events).clone()).unwrap_or_default();
    events.namespace = command.namespace;
    events.job_id = command.job_id;
    let list = events.groups.entry(command.group).or_default();
    list.insert(0, event);
    list.truncate(SCALING_EVENTS_KEPT);
    txn.put_scaling_events(&key, events);
    Ok(reply)
}

/// Refuses a count outside the group's bounds, or one that would race a deployment.
fn check_scale(txn: &Txn<'_>, key: &JobKey, job: &Job, group: &str, count: i64) -> Result<(), Refusal> {
    let refuse = |text: String| Err(Refusal::new(400, text));
    if job.kind.is_system() && !(0..=1).contains(&count) {
        return refuse(format!("jobs of type \"{}\" can only be scaled between 0 and 1", job.kind.as_str()));
    }
    if let Some(scaling) = job.group(group).and_then(|group| group.scaling.as_ref()) {
        if count < scaling.min {
            return refuse(format!("group count was less than scaling policy minimum: {count} < {}", scaling.min));
        }
        if count > scaling.max {
            return refuse(format!("group count was greater than scaling policy maximum: {count} > {}", scaling.max));
        }
    }
    if job.kind == JobType::Service && txn.s.latest_deployment(key).is_some_and(|d| d.is_active()) {
        return refuse("job scaling blocked due to active deployment".to_owned());
    }
    Ok(())
}

/// The priority for an evaluation of a job that may be gone.
pub(crate) fn priority_of(job: Option<&Arc<Job>>) -> i64 {
    job.map_or(DEFAULT_PRIORITY, |job| job.priority)
}
