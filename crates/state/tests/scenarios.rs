//! Single stories, most of them faults seen elsewhere.

use crate::help::{Cluster, SECOND, alloc, bytes, cleaning, deployment_of, job, says};
use herdsman_model::*;
use herdsman_proto::AllocUpdate;
use herdsman_state::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn stop_of(id: AllocId, status: Option<ClientStatus>) -> AllocStop {
    AllocStop {
        id,
        desired_status: if status == Some(ClientStatus::Unknown) { DesiredStatus::Run } else { DesiredStatus::Stop },
        desired_description: String::new(),
        client_status: status,
        follow_up_eval: None,
        preempted_by: None,
        reschedule_failed: false,
    }
}

fn plan(cluster: &mut Cluster, plan: ApplyPlan) -> Reply {
    let seed = cluster.seed();
    cluster.must(Body::ApplyPlan(Box::new(ApplyPlan { seed, ..plan })))
}

#[test]
fn a_changed_job_is_a_new_version_and_an_unchanged_one_is_not() {
    let mut cluster = Cluster::new();
    let first = cluster.register(job("web", JobType::Service));
    let same = cluster.register(job("web", JobType::Service));
    assert_eq!((first.version, same.version), (0, 0));
    assert_eq!(first.job_modify_index, same.job_modify_index);
    let mut changed = job("web", JobType::Service);
    changed.priority = 60;
    let second = cluster.register(changed);
    assert_eq!(second.version, 1);
    assert_eq!(second.create_index, first.create_index);
    assert!(second.job_modify_index > first.job_modify_index);
}

#[test]
fn six_versions_are_kept_and_tagged_and_stable_ones_besides() {
    let mut cluster = Cluster::new();
    cluster.register(job("web", JobType::Service));
    let tag = JobVersionTag {
        namespace: "default".into(),
        job_id: "web".into(),
        name: "gold".into(),
        version: Some(0),
        ..Default::default()
    };
    cluster.must(Body::JobVersionTag(tag));
    for priority in 51..70 {
        let mut changed = job("web", JobType::Service);
        changed.priority = priority;
        let version = cluster.register(changed).version;
        if version == 2 {
            let stable = JobStability { namespace: "default".into(), job_id: "web".into(), version, stable: true };
            cluster.must(Body::JobStability(stable));
        }
    }
    let kept: Vec<u64> =
        cluster.store.snapshot().job_versions("default", "web").unwrap().iter().map(|j| j.version).collect();
    assert_eq!(kept, [19, 18, 17, 16, 15, 2, 0]);
}

#[test]
fn a_version_lives_as_long_as_an_allocation_refers_to_it() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let first = cluster.register(job("long", JobType::Batch));
    cluster.place(vec![alloc(7, &first, 1)]);
    for priority in 51..70 {
        let mut changed = job("long", JobType::Batch);
        changed.priority = priority;
        cluster.register(changed);
    }
    let old = cluster.alloc(7);
    assert_eq!(cluster.store.snapshot().alloc_job(&old).unwrap().version, 0);
    let stored = cluster.store.snapshot().to_stored().unwrap();
    let restored = Store::read_from(&mut stored.as_slice()).unwrap();
    assert_eq!(restored.snapshot().alloc_job(&old).unwrap().priority, 50);
    cluster.client(says(7, ClientStatus::Complete));
    cluster.must(Body::Gc(Gc { allocs: vec![old.id], ..Gc::default() }));
    assert!(cluster.store.snapshot().job_version("default", "long", 0).is_none());
}

#[test]
fn enforced_indexes_are_checked_in_the_log() {
    let mut cluster = Cluster::new();
    let register =
        |index| RegisterJob { job: job("web", JobType::Service), enforce_index: Some(index), ..Default::default() };
    let refused = cluster.apply(Body::RegisterJob(Box::new(register(7)))).result.unwrap_err();
    assert_eq!(refused.message, "Enforcing job modify index 7: job does not exist");
    let done = cluster.must(Body::RegisterJob(Box::new(register(0))));
    let refused = cluster.apply(Body::RegisterJob(Box::new(register(0)))).result.unwrap_err();
    assert_eq!(refused.message, "Enforcing job modify index 0: job already exists");
    let refused = cluster.apply(Body::RegisterJob(Box::new(register(1)))).result.unwrap_err();
    let index = done.job_modify_index;
    assert_eq!(
        refused.message,
        format!("Enforcing job modify index 1: job exists with conflicting job modify index: {index}")
    );
    cluster.must(Body::RegisterJob(Box::new(register(index))));
}

#[test]
fn a_job_in_a_namespace_that_does_not_exist_is_refused() {
    let mut cluster = Cluster::new();
    let mut lost = job("web", JobType::Service);
    lost.namespace = "nope".into();
    let refused = cluster.apply(Body::RegisterJob(Box::new(RegisterJob { job: lost, ..Default::default() })));
    let text = "1 error occurred:\n\t* job \"web\" is in nonexistent namespace \"nope\"\n\n";
    assert_eq!(refused.result.unwrap_err().message, text);
}

#[test]
fn nomad_26690_one_token_one_child() {
    let mut cluster = Cluster::new();
    let mut parent = job("render", JobType::Batch);
    parent.parameterized_job = Some(ParameterizedConfig::default());
    cluster.register(parent);
    let dispatch = |n: u8| {
        let mut child = job(&format!("render/dispatch-{n}"), JobType::Batch);
        child.parent_id = "render".into();
        child.dispatched = true;
        child.dispatch_idempotency_token = "x".into();
        DispatchJob {
            namespace: "default".into(),
            job_id: "render".into(),
            child,
            idempotency_token: "x".into(),
            eval: true,
            seed: IdSeed(u64::from(n), 5),
        }
    };
    let ids: Vec<String> = (0..10).map(|n| cluster.must(Body::DispatchJob(Box::new(dispatch(n)))).job_id).collect();
    assert!(ids.iter().all(|id| id == "render/dispatch-0"), "{ids:?}");
    let key = JobKey::new("default", "render");
    assert_eq!(cluster.store.snapshot().job_children(&key).count(), 1);
    assert_eq!(cluster.store.snapshot().job_summary("default", "render").unwrap().children.pending, 1);
}

#[test]
fn children_are_counted_through_their_lives() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let mut parent = job("nightly", JobType::Batch);
    parent.periodic = Some(PeriodicConfig { enabled: true, ..PeriodicConfig::default() });
    cluster.register(parent);
    let mut child = job("nightly/periodic-1", JobType::Batch);
    child.parent_id = "nightly".into();
    let launch = LaunchPeriodic {
        namespace: "default".into(),
        job_id: "nightly".into(),
        launch: 1,
        child: child.clone(),
        prohibit_overlap: true,
        seed: cluster.seed(),
    };
    let done = cluster.must(Body::LaunchPeriodic(Box::new(launch.clone())));
    let children = |c: &Cluster| c.store.snapshot().job_summary("default", "nightly").unwrap().children.clone();
    assert_eq!(children(&cluster), ChildrenSummary { pending: 1, ..Default::default() });
    // A second one while the first lives is skipped, and the time is noted all the same.
    let mut second = launch;
    second.child.id = "nightly/periodic-2".into();
    second.launch = 2;
    assert!(!cluster.must(Body::LaunchPeriodic(Box::new(second))).updated);
    let child = cluster.store.snapshot().job("default", "nightly/periodic-1").unwrap().clone();
    cluster.place(vec![alloc(7, &child, 1)]);
    assert_eq!(children(&cluster), ChildrenSummary { running: 1, ..Default::default() });
    let mut eval = Evaluation::clone(cluster.store.snapshot().eval(&done.eval_id.unwrap()).unwrap());
    eval.status = EvalStatus::Complete;
    cluster.must(Body::UpsertEvals(UpsertEvals { evals: vec![eval], ..Default::default() }));
    cluster.client(says(7, ClientStatus::Complete));
    assert_eq!(children(&cluster), ChildrenSummary { dead: 1, ..Default::default() });
}

#[test]
fn nomad_27852_a_job_that_waits_for_its_reschedule_is_not_dead() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let job = cluster.register(job("web", JobType::Batch));
    cluster.place(vec![alloc(7, &job, 1)]);
    cluster.client(says(7, ClientStatus::Failed));
    let follow_up = Evaluation {
        id: EvalId(bytes(50)),
        namespace: "default".into(),
        job_id: "web".into(),
        wait_until: Some(cluster.now + 30 * SECOND),
        ..Evaluation::default()
    };
    let evals: Vec<Evaluation> = cluster
        .store
        .snapshot()
        .evals()
        .map(|eval| Evaluation { status: EvalStatus::Complete, ..(**eval).clone() })
        .chain([follow_up])
        .collect();
    cluster.must(Body::UpsertEvals(UpsertEvals { evals, ..Default::default() }));
    assert_eq!(cluster.store.snapshot().job("default", "web").unwrap().status, JobStatus::Pending);
}

#[test]
fn nomad_19605_the_source_of_a_job_survives_a_restore() {
    let mut cluster = Cluster::new();
    let submission = JobSubmission { source: "job \"web\" {}".into(), format: "hcl2".into(), ..Default::default() };
    let register =
        RegisterJob { job: job("web", JobType::Service), submission: Some(submission), ..Default::default() };
    cluster.must(Body::RegisterJob(Box::new(register)));
    let stored = cluster.store.snapshot().to_stored().unwrap();
    let restored = Store::read_from(&mut stored.as_slice()).unwrap();
    assert_eq!(restored.snapshot().job_submission("default", "web", 0).unwrap().source, "job \"web\" {}");
}

#[test]
fn nomad_25923_a_reconnect_ends_the_wait_for_the_disconnect() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let job = cluster.register(job("web", JobType::Service));
    cluster.place(vec![alloc(7, &job, 1)]);
    cluster.client(says(7, ClientStatus::Running));
    let follow_up = Evaluation {
        id: EvalId(bytes(50)),
        namespace: "default".into(),
        job_id: "web".into(),
        triggered_by: Trigger::MaxDisconnectTimeout,
        wait_until: Some(cluster.now + 3600 * SECOND),
        ..Evaluation::default()
    };
    let mut stop = stop_of(AllocId(bytes(7)), Some(ClientStatus::Unknown));
    stop.follow_up_eval = Some(follow_up.id);
    plan(&mut cluster, ApplyPlan { stops: vec![stop], evals: vec![follow_up.clone()], ..Default::default() });
    assert_eq!(cluster.alloc(7).client_status, ClientStatus::Unknown);
    let reply = cluster.client(says(7, ClientStatus::Running));
    let made = cluster.store.snapshot().eval(&reply.eval_ids[0]).unwrap().triggered_by;
    assert_eq!(made, Trigger::Reconnect);
    assert_eq!(cluster.store.snapshot().eval(&follow_up.id).unwrap().status, EvalStatus::Canceled);
    let failed = cluster.client(says(7, ClientStatus::Failed));
    let made = cluster.store.snapshot().eval(&failed.eval_ids[0]).unwrap().triggered_by;
    assert_eq!(made, Trigger::AllocFailure);
}

#[test]
fn nomad_11346_several_victims_on_one_node_are_evicted_once_each() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let small: Vec<Arc<Job>> = ["a", "b", "c"].iter().map(|id| cluster.register(job(id, JobType::Batch))).collect();
    let low: Vec<_> = small.iter().zip(1u8..).map(|(job, n)| alloc(n, job, 1)).collect();
    cluster.place(low);
    let big = cluster.register(job("big", JobType::Service));
    let preemptions = (1u8..=3)
        .map(|n| AllocStop {
            desired_status: DesiredStatus::Evict,
            preempted_by: Some(AllocId(bytes(9))),
            ..stop_of(AllocId(bytes(n)), None)
        })
        .collect();
    let reply = plan(
        &mut cluster,
        ApplyPlan { placements: vec![Arc::new(alloc(9, &big, 1))], preemptions, ..Default::default() },
    );
    let jobs: Vec<String> =
        reply.eval_ids.iter().map(|id| cluster.store.snapshot().eval(id).unwrap().job_id.to_string()).collect();
    assert_eq!(jobs, ["a", "b", "c"]);
    assert!((1u8..=3).all(|n| cluster.alloc(n).desired_status == DesiredStatus::Evict));
}

#[test]
fn a_placement_on_a_node_that_went_down_is_refused_node_by_node() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    cluster.add_node(2);
    let job = cluster.register(job("web", JobType::Service));
    let down = SetNodeStatus { node_ids: vec![NodeId(bytes(2))], status: NodeStatus::Down, ..Default::default() };
    cluster.must(Body::NodeStatus(down));
    let reply = cluster.place(vec![alloc(7, &job, 1), alloc(8, &job, 2), alloc(9, &job, 3)]);
    let reasons: Vec<&str> = reply.rejected.values().map(String::as_str).collect();
    assert_eq!(reasons, ["node is down and contains invalid updates", "node does not exist"]);
    assert!(cluster.store.snapshot().alloc(&AllocId(bytes(7))).is_some());
    assert!(cluster.store.snapshot().alloc(&AllocId(bytes(8))).is_none());
}

#[test]
fn an_empty_state_never_replaces_a_known_one() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let job = cluster.register(job("web", JobType::Batch));
    cluster.place(vec![alloc(7, &job, 1)]);
    let event = TaskEvent { time: 3, fact: TaskFact::Started };
    let state = TaskState {
        state: TaskPhase::Dead,
        started_at: Some(3),
        finished_at: Some(4),
        events: vec![event],
        ..Default::default()
    };
    let full = AllocUpdate {
        task_states: BTreeMap::from([(Name::from("main"), state.clone()), (Name::from("clean"), state.clone())]),
        ..says(7, ClientStatus::Complete)
    };
    cluster.client(full);
    let empty = AllocUpdate {
        task_states: BTreeMap::from([(Name::from("main"), TaskState::default())]),
        ..says(7, ClientStatus::Complete)
    };
    cluster.client(empty);
    cluster.client(says(7, ClientStatus::Complete));
    let kept = cluster.alloc(7);
    assert_eq!(kept.task_states["main"], state);
    assert_eq!(kept.task_states["clean"], state);
}

#[test]
fn a_restart_of_the_whole_allocation_begins_a_new_run() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let job = cluster.register(job("web", JobType::Service));
    cluster.place(vec![alloc(7, &job, 1)]);
    cluster.client(cleaning(7, OutcomeKind::Failed));
    let poststop = TaskState { state: TaskPhase::Running, ..Default::default() };
    let still_cleaning =
        AllocUpdate { task_states: [(Name::from("clean"), poststop)].into(), ..says(7, ClientStatus::Running) };
    cluster.client(still_cleaning);
    assert!(cluster.alloc(7).outcome.is_some(), "poststop is no new run");
    let main = TaskState { state: TaskPhase::Running, ..Default::default() };
    cluster.client(AllocUpdate { task_states: [(Name::from("main"), main)].into(), ..says(7, ClientStatus::Running) });
    assert_eq!(cluster.alloc(7).outcome, None);
}

#[test]
fn nomad_7058_and_27804_deadlines_restart_at_promotion_and_resume() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let job = cluster.register(job("web", JobType::Service));
    let mut deployment = deployment_of(&job, 2);
    deployment.task_groups.get_mut("g").unwrap().desired_canaries = 1;
    let mut canary = alloc(7, &job, 1);
    canary.deployment_id = Some(deployment.id);
    canary.deployment_status = Some(DeploymentStatus { canary: true, ..Default::default() });
    plan(
        &mut cluster,
        ApplyPlan { placements: vec![Arc::new(canary)], deployment: Some(deployment.clone()), ..Default::default() },
    );
    let group = |c: &Cluster| c.store.snapshot().deployment(&deployment.id).unwrap().task_groups["g"].clone();
    assert_eq!(group(&cluster).placed_canaries, [AllocId(bytes(7))]);
    let first = group(&cluster).require_progress_by.unwrap();
    let promote = || Body::PromoteDeployment(PromoteDeployment { deployment_id: deployment.id, ..Default::default() });
    let refused = cluster.apply(promote()).result.unwrap_err();
    assert_eq!(refused.message, "1 error occurred:\n\t* Task group \"g\" has 0/1 healthy allocations\n\n");
    let healthy = DeploymentStatus { healthy: Some(true), ..Default::default() };
    cluster.client(AllocUpdate { deployment_status: Some(healthy), ..says(7, ClientStatus::Running) });
    assert_eq!(group(&cluster).healthy_allocs, 1);
    cluster.now += 1000 * SECOND;
    cluster.must(promote());
    let promoted = group(&cluster).require_progress_by.unwrap();
    assert!(group(&cluster).promoted && promoted > first + 999 * SECOND);
    assert!(!cluster.alloc(7).is_canary());
    let status = |status| {
        Body::DeploymentStatus(Box::new(SetDeploymentStatus {
            deployment_id: deployment.id,
            status,
            ..Default::default()
        }))
    };
    cluster.must(status(DeploymentState::Paused));
    cluster.now += 1000 * SECOND;
    cluster.must(status(DeploymentState::Running));
    assert!(group(&cluster).require_progress_by.unwrap() > promoted + 999 * SECOND);
    cluster.must(status(DeploymentState::Successful));
    assert!(cluster.store.snapshot().job("default", "web").unwrap().stable);
    assert_eq!(cluster.apply(status(DeploymentState::Failed)).result.unwrap_err().code, 500);
}

#[test]
fn one_blocked_evaluation_per_job_and_none_after_success() {
    let mut cluster = Cluster::new();
    cluster.register(job("web", JobType::Service));
    let eval = |n: u8, status| Evaluation {
        id: EvalId(bytes(n)),
        namespace: "default".into(),
        job_id: "web".into(),
        status,
        ..Evaluation::default()
    };
    let write =
        |c: &mut Cluster, eval| c.must(Body::UpsertEvals(UpsertEvals { evals: vec![eval], ..Default::default() }));
    write(&mut cluster, eval(1, EvalStatus::Blocked));
    write(&mut cluster, eval(2, EvalStatus::Blocked));
    let status = |c: &Cluster, n: u8| c.store.snapshot().eval(&EvalId(bytes(n))).unwrap().status;
    assert_eq!((status(&cluster, 1), status(&cluster, 2)), (EvalStatus::Canceled, EvalStatus::Blocked));
    write(&mut cluster, eval(3, EvalStatus::Complete));
    assert_eq!(status(&cluster, 2), EvalStatus::Canceled);
    let text = &cluster.store.snapshot().eval(&EvalId(bytes(2))).unwrap().status_description;
    assert_eq!(*text, format!("evaluation \"{}\" successful", EvalId(bytes(3))));
}

#[test]
fn nomad_11054_system_jobs_of_all_namespaces_are_evaluated_for_a_new_node() {
    let mut cluster = Cluster::new();
    cluster.must(Body::UpsertNamespaces(UpsertNamespaces {
        namespaces: vec![Namespace { name: "b".into(), ..Default::default() }],
    }));
    cluster.register(job("sys", JobType::System));
    let mut other = job("sys", JobType::System);
    other.namespace = "b".into();
    cluster.register(other);
    let seed = cluster.seed();
    let reply = cluster.must(Body::UpsertNode(Box::new(UpsertNode { node: crate::help::node(1), ready: true, seed })));
    assert_eq!(reply.eval_ids.len(), 2);
}

#[test]
fn services_go_with_their_allocation_and_with_their_node() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    let job = cluster.register(job("web", JobType::Service));
    cluster.place(vec![alloc(7, &job, 1), alloc(8, &job, 1)]);
    let service = |n: u8| herdsman_proto::ServiceRegistration {
        id: format!("s{n}"),
        service_name: "web".into(),
        namespace: "default".into(),
        node_id: NodeId(bytes(1)),
        job_id: "web".into(),
        alloc_id: AllocId(bytes(n)),
        ..Default::default()
    };
    cluster.must(Body::Services(ServiceUpdates {
        register: vec![service(7), service(8), service(9)],
        ..Default::default()
    }));
    let names =
        |c: &Cluster| c.store.snapshot().services_by_name("default", "web").map(|s| s.id.clone()).collect::<Vec<_>>();
    assert_eq!(names(&cluster), ["s7", "s8"]);
    cluster.client(says(7, ClientStatus::Complete));
    assert_eq!(names(&cluster), ["s8"]);
    cluster.must(Body::NodeStatus(SetNodeStatus {
        node_ids: vec![NodeId(bytes(1))],
        status: NodeStatus::Down,
        ..Default::default()
    }));
    assert!(names(&cluster).is_empty());
}
