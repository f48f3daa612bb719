//! Collects what is over (`compat/scheduler.md` section 15).

use crate::error::ServerError;
use crate::server::Server;
use herdsman_model::{Allocation, ClientStatus, Evaluation, Job, JobStatus, NodeStatus};
use herdsman_state::{Body, Gc, GcJob, JobKey, Snapshot};
use std::collections::BTreeSet;
use std::time::Duration;

/// Rows that one command collects.
const ROWS_PER_COMMAND: usize = 4096;

/// How old a row must be, nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Ages {
    eval: i64,
    batch_eval: i64,
    job: i64,
    node: i64,
    deployment: i64,
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

pub(crate) async fn run(server: Server) {
    let mut changes = server.config_changes();
    loop {
        let config = std::sync::Arc::clone(&changes.borrow_and_update());
        let gc = &config.gc;
        tokio::select! {
            biased;
            () = server.world().clock.sleep(gc.interval) => {}
            // The sender lives as long as the server; with another interval the wait begins anew.
            _ = changes.changed() => continue,
        }
        let ages = Ages {
            eval: nanos(gc.eval),
            batch_eval: nanos(gc.batch_eval),
            job: nanos(gc.job),
            node: nanos(gc.node),
            deployment: nanos(gc.deployment),
        };
        if let Err(error) = collect(&server, ages).await {
            tracing::warn!(%error, "what is over could not be collected");
        }
    }
}

/// Collects everything that is over, whatever its age. Gives how many rows went.
///
/// # Errors
/// The log takes nothing.
pub(crate) async fn collect_all(server: &Server) -> Result<u64, ServerError> {
    let none = Ages { eval: 0, batch_eval: 0, job: 0, node: 0, deployment: 0 };
    collect(server, none).await
}

async fn collect(server: &Server, ages: Ages) -> Result<u64, ServerError> {
    let snapshot = server.snapshot();
    let now = server.now();
    let mut gc = Gc::default();
    let mut jobs = BTreeSet::new();
    for job in snapshot.jobs().filter(|job| job_is_over(job)) {
        collect_job(&snapshot, job, ages, now, &mut gc, &mut jobs);
    }
    for eval in snapshot.evals() {
        let key = JobKey { namespace: eval.namespace.clone(), id: eval.job_id.clone() };
        if !jobs.contains(&key) {
            collect_eval(&snapshot, eval, &key, ages, now, &mut gc);
        }
    }
    for deployment in snapshot.deployments().filter(|d| !d.is_active() && is_old(d.modify_time, ages.deployment, now)) {
        if snapshot.allocs_by_deployment(deployment.id).all(|alloc| alloc.terminal()) {
            gc.deployments.push(deployment.id);
        }
    }
    for node in snapshot.nodes().filter(|node| node.status == NodeStatus::Down) {
        let since = node.status_updated_at.saturating_mul(herdsman_model::values::SECOND);
        if is_old(since, ages.node, now) && snapshot.allocs_by_node(&node.id).all(|alloc| alloc.terminal()) {
            gc.nodes.push(node.id);
        }
    }
    let mut collected = 0;
    for part in parts(gc) {
        collected += server.propose(Body::Gc(part)).await?.reply.collected;
    }
    Ok(collected)
}

fn is_old(since: i64, age: i64, now: i64) -> bool {
    now.saturating_sub(since) >= age
}

/// Whether a job is one that can be collected as a whole.
fn job_is_over(job: &Job) -> bool {
    if job.status != JobStatus::Dead || job.version_tag.is_some() {
        return false;
    }
    if job.is_periodic() || job.is_parameterized() { job.stop } else { job.stop || job.kind.is_batch() }
}

/// Takes a whole job, when all of it is over and old.
fn collect_job(snapshot: &Snapshot, job: &Job, ages: Ages, now: i64, gc: &mut Gc, jobs: &mut BTreeSet<JobKey>) {
    let key = JobKey::of(job);
    let tagged = snapshot
        .job_versions(&job.namespace, &job.id)
        .is_some_and(|versions| versions.iter().any(|version| version.version_tag.is_some()));
    let over = is_old(job.submit_time, ages.job, now)
        && !tagged
        && snapshot
            .evals_by_job(&key)
            .all(|eval| eval.status.is_terminal() && is_old(eval.modify_time, ages.eval, now))
        && snapshot.allocs_by_job(&key).all(|alloc| alloc.client_terminal());
    if !over {
        return;
    }
    gc.evals.extend(snapshot.evals_by_job(&key).map(|eval| eval.id));
    gc.allocs.extend(snapshot.allocs_by_job(&key).map(|alloc| alloc.id));
    gc.jobs.push(GcJob {
        namespace: job.namespace.clone(),
        job_id: job.id.clone(),
        modify_index: job.job_modify_index,
    });
    jobs.insert(key);
}

/// Takes an evaluation with its allocations, as far as nothing needs them any more.
fn collect_eval(snapshot: &Snapshot, eval: &Evaluation, key: &JobKey, ages: Ages, now: i64, gc: &mut Gc) {
    let job = snapshot.job_by_key(key);
    let age = if eval.kind.is_batch() { ages.batch_eval } else { ages.eval };
    if !eval.status.is_terminal() || !is_old(eval.modify_time, age, now) {
        return;
    }
    // The evaluations of a batch job that still exists remember what has already run.
    let remembers = eval.kind.is_batch() && job.is_some_and(|job| !(job.status == JobStatus::Dead && job.stop));
    let mut all = true;
    let mut allocs = Vec::new();
    for alloc in snapshot.allocs_by_eval(eval.id) {
        let old_version =
            job.is_none_or(|job| job.create_index != alloc.job_create_index || alloc.job_version < job.version);
        let over = alloc_is_over(snapshot, job.map(|job| &**job), alloc, age, now) && (!remembers || old_version);
        if over {
            allocs.push(alloc.id);
        } else {
            all = false;
        }
    }
    gc.allocs.extend(allocs);
    if all && !remembers {
        gc.evals.push(eval.id);
    }
}

/// Whether nothing needs an allocation any more.
fn alloc_is_over(snapshot: &Snapshot, job: Option<&Job>, alloc: &Allocation, age: i64, now: i64) -> bool {
    if !alloc.client_terminal() || !is_old(alloc.modify_time, age, now) {
        return false;
    }
    let Some(job) = job else { return true };
    if job.stop
        || job.status == JobStatus::Dead
        || alloc.server_terminal()
        || alloc.client_status != ClientStatus::Failed
    {
        return true;
    }
    if alloc.next_allocation.is_some() {
        return true;
    }
    // A failed allocation may still be rescheduled: its history is needed.
    let policy = snapshot.alloc_job(alloc).and_then(|job| job.group(&alloc.task_group)?.reschedule_policy.clone());
    match policy {
        None => true,
        Some(policy) if policy.unlimited => false,
        Some(policy) => alloc
            .reschedule_tracker
            .as_ref()
            .and_then(|tracker| tracker.events.last())
            .is_some_and(|last| is_old(last.time, policy.interval, now)),
    }
}

/// Splits what is collected into commands of bounded size. Jobs go first: while one is there, its rows mean something.
fn parts(gc: Gc) -> Vec<Gc> {
    let mut parts: Vec<Gc> = Vec::new();
    parts.extend(gc.jobs.chunks(ROWS_PER_COMMAND).map(|jobs| Gc { jobs: jobs.to_vec(), ..Gc::default() }));
    parts.extend(gc.allocs.chunks(ROWS_PER_COMMAND).map(|ids| Gc { allocs: ids.to_vec(), ..Gc::default() }));
    parts.extend(gc.evals.chunks(ROWS_PER_COMMAND).map(|ids| Gc { evals: ids.to_vec(), ..Gc::default() }));
    parts.extend(gc.deployments.chunks(ROWS_PER_COMMAND).map(|ids| Gc { deployments: ids.to_vec(), ..Gc::default() }));
    parts.extend(gc.nodes.chunks(ROWS_PER_COMMAND).map(|ids| Gc { nodes: ids.to_vec(), ..Gc::default() }));
    parts
}
