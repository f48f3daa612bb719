//! The table (running, cleaning-complete, cleaning-failed, cleaning-stopped) x consumers, for the consumers that state
//! decides: outcome says how the work ended, client status whether anything still runs.

use crate::help::{Cluster, alloc, cleaning, deployment_of, job, says};
use herdsman_model::{ClientStatus, JobStatus, JobType, OutcomeKind, Trigger};
use herdsman_proto::AllocUpdate;
use herdsman_state::{ApplyPlan, Body, DeregisterJob, Gc, JobKey, Reply};
use std::sync::Arc;

/// What the four states of the table mean to each consumer.
#[derive(Debug, PartialEq)]
struct Cells {
    failure_evaluated: bool,
    healthy: Option<bool>,
    unhealthy_counted: i64,
    job: JobStatus,
    summary_running: u64,
    collected: bool,
    stopped_job: JobStatus,
}

fn cells(update: AllocUpdate) -> Cells {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let job = cluster.register(job("web", JobType::Service));
    let mut planned = alloc(7, &job, 1);
    let deployment = deployment_of(&job, 1);
    planned.deployment_id = Some(deployment.id);
    let seed = cluster.seed();
    cluster.must(Body::ApplyPlan(Box::new(ApplyPlan {
        placements: vec![Arc::new(planned)],
        deployment: Some(deployment.clone()),
        seed,
        ..ApplyPlan::default()
    })));
    cluster.client(says(7, ClientStatus::Running));
    let reply: Reply = cluster.client(update);
    let failure_evaluated = reply
        .eval_ids
        .iter()
        .any(|id| cluster.store.snapshot().eval(id).is_some_and(|eval| eval.triggered_by == Trigger::AllocFailure));
    let key = JobKey::of(&job);
    let stored = cluster.store.snapshot().deployment(&deployment.id).unwrap().clone();
    let status = cluster.store.snapshot().job_by_key(&key).unwrap().status;
    let summary_running = cluster.store.snapshot().job_summary("default", "web").unwrap().groups["g"].running;
    let healthy = cluster.alloc(7).healthy();
    let gone = cluster.must(Body::Gc(Gc { allocs: vec![cluster.alloc(7).id], ..Gc::default() }));
    // A stopped job lives as long as anything of it still runs.
    let stop = DeregisterJob { namespace: "default".into(), job_id: "web".into(), ..DeregisterJob::default() };
    cluster.must(Body::DeregisterJob(stop));
    Cells {
        failure_evaluated,
        healthy,
        unhealthy_counted: stored.task_groups["g"].unhealthy_allocs,
        job: status,
        summary_running,
        collected: gone.collected > 0,
        stopped_job: cluster.store.snapshot().job_by_key(&key).unwrap().status,
    }
}

fn alive() -> Cells {
    Cells {
        failure_evaluated: false,
        healthy: None,
        unhealthy_counted: 0,
        job: JobStatus::Running,
        summary_running: 1,
        collected: false,
        stopped_job: JobStatus::Running,
    }
}

#[test]
fn running() {
    assert_eq!(cells(says(7, ClientStatus::Running)), alive());
}

#[test]
fn cleaning_after_success_still_runs_and_fails_nothing() {
    assert_eq!(cells(cleaning(7, OutcomeKind::Complete)), alive());
}

#[test]
fn cleaning_after_failure_counts_as_failed_but_still_runs() {
    let expected = Cells { failure_evaluated: true, healthy: Some(false), unhealthy_counted: 1, ..alive() };
    assert_eq!(cells(cleaning(7, OutcomeKind::Failed)), expected);
}

#[test]
fn cleaning_after_a_stop_still_runs_and_fails_nothing() {
    assert_eq!(cells(cleaning(7, OutcomeKind::Stopped)), alive());
}

#[test]
fn the_end_of_poststop_does_not_report_the_failure_a_second_time() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let job = cluster.register(job("web", JobType::Service));
    cluster.place(vec![alloc(7, &job, 1)]);
    assert_eq!(cluster.client(cleaning(7, OutcomeKind::Failed)).eval_ids.len(), 1);
    let mut end = cleaning(7, OutcomeKind::Failed);
    end.client_status = ClientStatus::Failed;
    assert!(cluster.client(end).eval_ids.is_empty());
    assert_eq!(cluster.alloc(7).client_status, ClientStatus::Failed);
}
