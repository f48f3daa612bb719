//! Launching children: periodic jobs by the clock, parameterized jobs by request.

use super::Applied;
use super::jobs::{VERSIONS_KEPT, write_version};
use crate::codec::{Refusal, Reply};
use crate::command::{DispatchJob, LaunchPeriodic};
use crate::rows::JobKey;
use crate::txn::Txn;
use herdsman_model::{Job, Trigger};

/// Writes a child and the evaluation that starts it.
fn launch(txn: &mut Txn<'_>, child: Job, trigger: Trigger, evaluate: bool) -> Applied {
    let key = JobKey::of(&child);
    if txn.s.jobs.contains_key(&key) {
        return Err(Refusal::new(500, format!("job \"{}\" exists already", child.id)));
    }
    let child = write_version(txn, &key, child, None, VERSIONS_KEPT);
    let eval_id = evaluate.then(|| txn.make_eval(&child, trigger, |_| {}).id);
    Ok(Reply {
        eval_id,
        job_id: child.id.clone(),
        job_create_index: child.create_index,
        job_modify_index: child.job_modify_index,
        updated: true,
        ..Reply::default()
    })
}

pub(crate) fn periodic(txn: &mut Txn<'_>, command: LaunchPeriodic) -> Applied {
    txn.seed(command.seed);
    let parent = JobKey::new(&command.namespace, &command.job_id);
    let Some(job) = txn.s.jobs.get(&parent).cloned() else {
        return Err(Refusal::new(500, "job not found"));
    };
    if !job.is_periodic() {
        return Err(Refusal::new(500, "can't force launch non-periodic job"));
    }
    let last = txn.s.launches.get(&parent).map_or(0, |launch| launch.launch);
    txn.put_launch(&parent, command.launch.max(last));
    let busy = || {
        let children: Vec<JobKey> = txn.s.job_children(&parent).map(|child| JobKey::of(child)).collect();
        children.iter().any(|child| txn.s.job_is_live(child))
    };
    if command.prohibit_overlap && busy() {
        return Ok(Reply::default());
    }
    launch(txn, command.child, Trigger::PeriodicJob, true)
}

pub(crate) fn dispatch(txn: &mut Txn<'_>, command: DispatchJob) -> Applied {
    txn.seed(command.seed);
    let parent = JobKey::new(&command.namespace, &command.job_id);
    let Some(job) = txn.s.jobs.get(&parent).cloned() else {
        return Err(Refusal::new(500, "parameterized job not found"));
    };
    if job.stop {
        return Err(Refusal::new(500, format!("Specified job \"{}\" is stopped", command.job_id)));
    }
    if !command.idempotency_token.is_empty()
        && let Some(key) = txn.s.dispatch_tokens.get(&(parent, command.idempotency_token.clone()))
        && let Some(child) = txn.s.jobs.get(key)
    {
        return Ok(Reply {
            job_id: child.id.clone(),
            job_create_index: child.create_index,
            job_modify_index: child.job_modify_index,
            unchanged: true,
            ..Reply::default()
        });
    }
    launch(txn, command.child, Trigger::JobRegister, command.eval)
}
