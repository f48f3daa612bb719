//! What operations answer, and the texts that clients match.

use crate::fake::{Cluster, Script, count, job};
use herdsman_model::*;
use herdsman_server::ServerError;
use herdsman_server::ops::*;
use herdsman_state::{Namespace, NamespaceCapabilities, NodePool, SchedulerConfig, WatchKey};
use serde_json::json;
use std::time::Duration;

fn text<T: std::fmt::Debug>(result: Result<T, ServerError>) -> (u16, String) {
    let error = result.unwrap_err();
    (error.code, error.message)
}

#[tokio::test(start_paused = true)]
async fn register_answers_like_the_peer() {
    let cluster = Cluster::start(1).await;
    let done = cluster.register(job("web", "service", 1)).await;
    assert_eq!(done.eval_create_index, done.index);
    assert_eq!(done.job_modify_index, done.index);
    let register =
        |job, enforce_index| cluster.server.register_job(RegisterRequest { job, enforce_index, ..Default::default() });
    let stale = register(job("web", "service", 2), Some(1)).await;
    let index = done.job_modify_index;
    let expected = format!("Enforcing job modify index 1: job exists with conflicting job modify index: {index}");
    assert_eq!(text(stale), (500, expected));
    let mut lost = job("web", "service", 1);
    lost["Namespace"] = json!("nope");
    let expected = "1 error occurred:\n\t* job \"web\" is in nonexistent namespace \"nope\"\n\n";
    assert_eq!(text(register(lost, None).await), (500, expected.to_owned()));
    let nothing = register(json!({"ID": "x", "Name": "x", "Type": "service"}), None).await;
    assert!(text(nothing).1.contains("Missing job task groups"));
}

#[tokio::test(start_paused = true)]
async fn nomad_10424_a_parent_that_a_user_names_is_not_believed() {
    let cluster = Cluster::start(1).await;
    let mut child = job("web", "service", 1);
    child["ParentID"] = json!("other");
    cluster.register(child).await;
    assert_eq!(cluster.server.snapshot().job("default", "web").unwrap().parent_id, "");
}

#[tokio::test(start_paused = true)]
async fn texts_of_errors_are_the_ones_clients_match() {
    let cluster = Cluster::start(1).await;
    let server = &cluster.server;
    cluster.register(job("web", "service", 1)).await;
    let mut nightly = job("nightly", "batch", 1);
    nightly["Periodic"] = json!({"Enabled": true, "SpecType": "cron", "Specs": ["0 0 * * *"]});
    cluster.register(nightly).await;
    let revert = |version, prior| RevertRequest {
        namespace: "default".into(),
        job_id: "web".into(),
        version,
        enforce_prior_version: prior,
    };
    let scale = |group: &str, count, error| ScaleRequest {
        namespace: "default".into(),
        job_id: "web".into(),
        group: group.into(),
        count,
        error,
        ..Default::default()
    };
    let dispatch = |id: &str| DispatchRequest { namespace: "default".into(), job_id: id.into(), ..Default::default() };
    let evals_deleted = server.delete_evals(vec![EvalId([1; 16])]).await;
    let cases = [
        (text(server.evaluate_job("default", "ghost", false).await), (500, "job not found")),
        (text(server.evaluate_job("default", "nightly", false).await), (500, "can't evaluate periodic job")),
        (text(server.force_periodic("default", "web").await), (500, "can't force launch non-periodic job")),
        (text(server.revert_job(revert(0, None)).await), (500, "can't revert to current version")),
        (text(server.revert_job(revert(0, Some(7))).await), (500, "Current job has version 0; enforcing version 7")),
        (
            text(server.revert_job(revert(99, None)).await),
            (500, "job \"web\" in namespace \"default\" at version 99 not found"),
        ),
        (text(server.dispatch_job(dispatch("ghost")).await), (500, "parameterized job not found")),
        (text(server.dispatch_job(dispatch("web")).await), (500, "Specified job \"web\" is not a parameterized job")),
        (text(server.scale_job(scale("", Some(1), false)).await), (400, "missing task group name for scaling action")),
        (
            text(server.scale_job(scale("g", Some(1), true)).await),
            (400, "scaling action should not contain count if error is true"),
        ),
        (
            text(server.scale_job(scale("ghost", Some(1), false)).await),
            (400, "task group \"ghost\" specified for scaling does not exist in job"),
        ),
        (text(server.stop_alloc(AllocId([1; 16]), StopAllocRequest::default()).await), (404, "allocation not found")),
        (text(server.drain_node(NodeId([9; 16]), DrainRequest::default()).await), (500, "node not found")),
        (text(server.fail_deployment(DeploymentId([9; 16])).await), (500, "deployment not found")),
        (text(evals_deleted), (500, "eval broker is enabled; eval broker must be paused to delete evals")),
        (text(server.delete_evals(Vec::new()).await), (400, "evals must be deleted by either ID or filter")),
        (text(server.delete_namespace("default").await), (500, "can not delete default namespace")),
        (text(server.delete_namespace("ghost").await), (500, "namespace not found")),
        (
            text(server.upsert_node_pool(NodePool { name: "all".into(), ..Default::default() }).await),
            (400, "modifying node pool \"all\" is not allowed"),
        ),
        (text(server.delete_service("default", "ghost").await), (500, "service registration not found")),
        (
            text(
                server
                    .set_scheduler_config(
                        SchedulerConfig { scheduler_algorithm: "tetris".into(), ..Default::default() },
                        None,
                    )
                    .await,
            ),
            (400, "invalid scheduler algorithm: tetris"),
        ),
    ];
    for ((code, message), (wanted_code, wanted)) in cases {
        assert_eq!((code, message.as_str()), (wanted_code, wanted));
    }
    let unknown = DeregisterRequest { namespace: "default".into(), job_id: "ghost".into(), ..Default::default() };
    assert_eq!(server.deregister_job(unknown).await.unwrap(), JobChanged::default());
}

#[tokio::test(start_paused = true)]
async fn dispatch_checks_meta_and_payload_and_keeps_its_promise_about_tokens() {
    let cluster = Cluster::start(1).await;
    let _node = cluster.node(1, Script::Completes).await;
    let mut render = job("render", "batch", 1);
    render["ParameterizedJob"] = json!({"Payload": "optional", "MetaRequired": ["input"], "MetaOptional": ["profile"]});
    cluster.register(render).await;
    let request = |meta: &[(&str, &str)]| DispatchRequest {
        namespace: "default".into(),
        job_id: "render".into(),
        meta: meta.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..Default::default()
    };
    let missing = cluster.server.dispatch_job(request(&[])).await;
    assert_eq!(text(missing).1, "Dispatch did not provide required meta keys: [input]");
    let strange = cluster.server.dispatch_job(request(&[("input", "a"), ("other", "x")])).await;
    assert_eq!(text(strange).1, "Dispatch request included unpermitted metadata keys: [other]");
    let large = DispatchRequest { payload: vec![0; 17_000], ..request(&[("input", "a")]) };
    assert_eq!(text(cluster.server.dispatch_job(large).await).1, "Payload exceeds maximum size; 17000 > 16384");
    let with_token = || DispatchRequest { idempotency_token: "tok".into(), ..request(&[("input", "a")]) };
    let all = futures::future::join_all((0..10).map(|_| cluster.server.dispatch_job(with_token()))).await;
    let ids: std::collections::BTreeSet<String> = all.into_iter().map(|d| d.unwrap().job_id).collect();
    assert_eq!(ids.len(), 1, "nomad 26690: one child, and all answers carry its id");
    let id = ids.first().unwrap();
    assert!(id.starts_with("render/dispatch-"), "{id}");
    cluster.until("it completes", |s| s.job_summary("default", "render").unwrap().children.dead == 1).await;
    let prefixed = DispatchRequest { id_prefix: "pre-fix".into(), ..request(&[("input", "a")]) };
    let child = cluster.server.dispatch_job(prefixed).await.unwrap();
    assert!(child.job_id.starts_with("render/dispatch-pre-fix-"), "{}", child.job_id);
}

#[tokio::test(start_paused = true)]
async fn a_plan_says_what_would_change_and_changes_nothing() {
    let cluster = Cluster::start(1).await;
    let _node = cluster.node(1, Script::Runs).await;
    let before = cluster.server.snapshot().index();
    let request = |job| PlanRequest { job, ..Default::default() };
    let planned = cluster.server.plan_job(&request(job("web", "service", 2))).unwrap();
    assert!(planned.old.is_none());
    assert_eq!(planned.annotations.as_ref().unwrap().desired_tg_updates["g"].place, 2);
    assert_eq!(planned.job_modify_index, 0);
    assert_eq!(cluster.server.snapshot().index(), before);
    cluster.register(job("web", "service", 2)).await;
    cluster.until("they run", |s| count(s, "web", ClientStatus::Running) == 2).await;
    let planned = cluster.server.plan_job(&request(job("web", "service", 5))).unwrap();
    assert_eq!(planned.annotations.as_ref().unwrap().desired_tg_updates["g"].place, 3);
    assert_eq!(planned.annotations.as_ref().unwrap().desired_tg_updates["g"].in_place_update, 2);
    assert_eq!(planned.job_modify_index, planned.old.unwrap().job_modify_index);
    let mut big = job("big", "service", 1);
    big["TaskGroups"][0]["Tasks"][0]["Resources"]["MemoryMB"] = json!(100_000);
    let planned = cluster.server.plan_job(&request(big)).unwrap();
    assert_eq!(planned.failed_groups["g"].nodes_exhausted, 1);
}

#[tokio::test(start_paused = true)]
async fn scaling_and_stopping_change_what_runs() {
    let cluster = Cluster::start(1).await;
    let _node = cluster.node(1, Script::Runs).await;
    let mut web = job("web", "service", 1);
    web["TaskGroups"][0]["Scaling"] = json!({"Min": 1, "Max": 5, "Enabled": true});
    cluster.register(web).await;
    cluster.until("one runs", |s| count(s, "web", ClientStatus::Running) == 1).await;
    let deployed = |s: &herdsman_state::Snapshot| !s.deployments().any(|d| d.is_active());
    cluster.until("no deployment is active", deployed).await;
    let scale = |count| ScaleRequest {
        namespace: "default".into(),
        job_id: "web".into(),
        group: "g".into(),
        count: Some(count),
        ..Default::default()
    };
    let above = cluster.server.scale_job(scale(99)).await;
    assert_eq!(text(above), (400, "group count was greater than scaling policy maximum: 99 > 5".to_owned()));
    cluster.server.scale_job(scale(3)).await.unwrap();
    cluster.until("three run", |s| count(s, "web", ClientStatus::Running) == 3).await;
    let snapshot = cluster.server.snapshot();
    let key = herdsman_state::JobKey::new("default", "web");
    assert_eq!(snapshot.scaling_events(&key).unwrap().groups["g"].len(), 1);
    let policy = snapshot.scaling_policies_by_job(&key).next().unwrap();
    assert_eq!((policy.policy.min, policy.policy.max), (1, 5));
    let victim = snapshot.allocs_by_job(&key).next().unwrap().id;
    let stopped = cluster.server.stop_alloc(victim, StopAllocRequest::default()).await.unwrap();
    assert!(stopped.eval_id.is_some());
    cluster
        .until("another took its place", |s| {
            s.alloc(&victim).unwrap().client_status == ClientStatus::Complete
                && count(s, "web", ClientStatus::Running) == 3
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn namespaces_limit_drivers() {
    let cluster = Cluster::start(1).await;
    let capabilities =
        NamespaceCapabilities { disabled_task_drivers: List(vec!["mock_driver".into()]), ..Default::default() };
    let namespace = Namespace { name: "team-a".into(), capabilities: Some(capabilities), ..Default::default() };
    cluster.server.upsert_namespace(namespace).await.unwrap();
    let request = RegisterRequest { job: job("web", "service", 1), namespace: "team-a".into(), ..Default::default() };
    let expected = "1 error occurred:\n\t* used task driver \"mock_driver\" is not allowed in namespace \"team-a\"\n\n";
    assert_eq!(text(cluster.server.register_job(request).await), (500, expected.to_owned()));
    let bad = cluster.server.upsert_namespace(Namespace { name: "bad name!".into(), ..Default::default() }).await;
    assert_eq!(
        text(bad).1,
        "Invalid namespace \"bad name!\": 1 error occurred:\n\t* invalid name \"bad name!\". Must match regex ^[a-zA-Z0-9-]{1,128}$\n\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_blocking_query_returns_with_the_change_or_when_its_wait_is_over() {
    let cluster = Cluster::start(1).await;
    let server = cluster.server.clone();
    let read = |s: &herdsman_state::Snapshot| (s.table_index(herdsman_state::Table::Jobs), s.jobs().count());
    let keys = [WatchKey::Table(herdsman_state::Table::Jobs)];
    let start = cluster.world.clock.monotonic();
    let timed_out = server.query(&keys, 1000, Duration::from_secs(5), read).await;
    assert_eq!(timed_out.value, 0);
    assert_eq!(cluster.world.clock.monotonic().since(start), Duration::from_secs(5));
    let waiting = tokio::spawn({
        let server = server.clone();
        async move { server.query(&keys, 1, Duration::from_secs(300), read).await }
    });
    cluster.world.clock.sleep(Duration::from_secs(1)).await;
    let done = cluster.register(job("web", "service", 1)).await;
    let answer = waiting.await.unwrap();
    assert_eq!((answer.value, answer.index), (1, done.job_modify_index));
}

#[tokio::test(start_paused = true)]
async fn search_finds_by_prefix() {
    let cluster = Cluster::start(1).await;
    cluster.register(job("web", "service", 1)).await;
    let found = cluster.server.search("default", "all", "w").unwrap();
    assert_eq!(found.matches["jobs"], ["web"]);
    assert!(found.matches["allocs"].is_empty());
    let error = cluster.server.search("default", "bananas", "w").unwrap_err();
    assert!(error.message.starts_with("context must be one of [allocs jobs nodes"), "{}", error.message);
}
