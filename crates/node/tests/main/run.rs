//! Allocations run with real processes.

use crate::folder::Folder;
use crate::server::{Server, words};
use crate::setup::{SECOND, job, node, sh};
use herdsman_model::*;
use herdsman_world::World;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn all_hooks_run_in_order() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let note = |word: &str| format!("echo {word} >> $NOMAD_ALLOC_DIR/data/order");
    let job = job(
        "hooks",
        JobType::Batch,
        vec![
            sh("init", Some((Hook::Prestart, false)), &note("init")),
            sh("side", Some((Hook::Prestart, true)), &format!("{}; exec sleep 300", note("side"))),
            sh("main", None, &format!("sleep 0.5; {}", note("main"))),
            sh("after", Some((Hook::Poststart, false)), &note("after")),
            sh("stop", Some((Hook::Poststop, false)), &note("stop")),
        ],
    );
    let id = server.place(&job);
    let end = server.until_status(id, ClientStatus::Complete).await;
    assert_eq!(end.client_description, "All tasks have completed");
    assert_eq!(end.outcome.as_ref().map(|o| o.kind), Some(OutcomeKind::Complete));
    let text = std::fs::read_to_string(dir.path().join(format!("alloc/{id}/alloc/data/order"))).unwrap();
    let order: Vec<_> = text.lines().collect();
    let at = |word: &str| order.iter().position(|w| *w == word).unwrap();
    assert!(at("init") < at("main") && at("side") < at("main"), "{order:?}");
    assert!(at("after") < at("stop") && at("main") < at("stop"), "{order:?}");
    assert_eq!(order.len(), 5, "{order:?}");
    assert_eq!(words(&end, "main"), ["Received", "TaskSetup", "Started", "Terminated"]);
    let side = ["Received", "TaskSetup", "Started", "MainDead", "Killing", "Terminated", "Killed"];
    assert_eq!(words(&end, "side"), side);
    assert!(server.history().iter().any(|u| u.client_description.starts_with("Poststop tasks are running")));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_end_with_the_allocation() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let main = sh("main", None, "echo key > secrets/key");
    let after = sh("stop", Some((Hook::Poststop, false)), "cat ../main/secrets/key > $NOMAD_ALLOC_DIR/data/seen");
    let id = server.place(&job("secret", JobType::Batch, vec![main, after]));
    server.until_status(id, ClientStatus::Complete).await;
    let root = dir.path().join(format!("alloc/{id}"));
    assert_eq!(std::fs::read_to_string(root.join("alloc/data/seen")).unwrap(), "key\n", "poststop still has them");
    let mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap();
    server.until("secrets are gone", |_| (!mounts().contains(&format!("{id}/"))).then_some(())).await;
    assert!(root.join("main/secrets").is_dir());
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_restart_policy_acts_and_the_failure_is_told() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let mut main = sh("main", None, "echo run >> $NOMAD_ALLOC_DIR/data/runs; exit 3");
    main.restart_policy.attempts = 2;
    let id = server.place(&job("failing", JobType::Service, vec![main]));
    let end = server.until_status(id, ClientStatus::Failed).await;
    let runs = std::fs::read_to_string(dir.path().join(format!("alloc/{id}/alloc/data/runs"))).unwrap();
    assert_eq!(runs.lines().count(), 3);
    let state = &end.task_states["main"];
    assert_eq!((state.restarts, state.failed), (2, true));
    let exits = state.events.iter().filter_map(|e| match e.fact {
        TaskFact::Terminated { exit_code, .. } => Some(exit_code),
        _ => None,
    });
    assert_eq!(exits.collect::<Vec<_>>(), [3, 3, 3]);
    assert_eq!(words(&end, "main").last().map(String::as_str), Some("NotRestarting"));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nomad_8194_a_stop_ends_the_mains_and_runs_poststop() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let tasks = vec![
        sh(
            "main",
            None,
            "trap 'echo term >> $NOMAD_ALLOC_DIR/data/order; exit 0' TERM INT; while :; do sleep 0.05; done",
        ),
        sh("stop", Some((Hook::Poststop, false)), "echo stop >> $NOMAD_ALLOC_DIR/data/order"),
    ];
    let id = server.place(&job("stopped", JobType::Service, tasks));
    server.until_status(id, ClientStatus::Running).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    server.stop(id);
    let end = server.until_status(id, ClientStatus::Complete).await;
    let order = std::fs::read_to_string(dir.path().join(format!("alloc/{id}/alloc/data/order"))).unwrap();
    assert_eq!(order, "term\nstop\n");
    assert_eq!(end.outcome.map(|o| o.kind), Some(OutcomeKind::Stopped));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_command_fails_and_others_go_on() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let mut missing = sh("main", None, "");
    missing.config.insert("command".into(), serde_json::json!("/no/such"));
    let bad = server.place(&job("missing", JobType::Batch, vec![missing]));
    let good = server.place(&job("good", JobType::Batch, vec![sh("main", None, "exit 0")]));
    let end = server.until_status(bad, ClientStatus::Failed).await;
    assert_eq!(words(&end, "main"), ["Received", "TaskSetup", "DriverFailure", "NotRestarting"]);
    server.until_status(good, ClientStatus::Complete).await;
    let mut wrong = sh("main", None, "");
    wrong.config = [("comand".to_string(), serde_json::json!("/bin/true"))].into_iter().collect();
    let wrong = server.place(&job("wrong", JobType::Batch, vec![wrong]));
    let end = server.until_status(wrong, ClientStatus::Failed).await;
    assert_eq!(words(&end, "main"), ["Received", "TaskSetup", "FailedValidation", "NotRestarting"]);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_the_peers() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let mut main = sh("main", None, "env > $NOMAD_TASK_DIR/env.txt");
    main.env = [
        ("PLAIN", "value"),
        ("REF", "${PLAIN}"),
        ("WHERE", "${node.datacenter}-${NOMAD_GROUP_NAME}"),
        ("KEPT", "[${meta.nope}]"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_string(), v.to_string()))
    .collect();
    main.meta = [("dash-key".to_string(), "dv".to_string())].into_iter().collect();
    let id = server.place(&job("env", JobType::Batch, vec![main]));
    server.until_status(id, ClientStatus::Complete).await;
    let text = std::fs::read_to_string(dir.path().join(format!("alloc/{id}/main/local/env.txt"))).unwrap();
    let root = dir.path().canonicalize().unwrap().join(format!("alloc/{id}"));
    for (key, value) in [
        ("NOMAD_ALLOC_DIR", root.join("alloc").to_str().unwrap()),
        ("NOMAD_TASK_DIR", root.join("main/local").to_str().unwrap()),
        ("NOMAD_SECRETS_DIR", root.join("main/secrets").to_str().unwrap()),
        ("NOMAD_ALLOC_ID", &id.to_string()),
        ("NOMAD_ALLOC_NAME", "env.g[0]"),
        ("NOMAD_ALLOC_INDEX", "0"),
        ("NOMAD_JOB_ID", "env"),
        ("NOMAD_META_DASH_KEY", "dv"),
        ("NOMAD_META_dash_key", "dv"),
        ("NOMAD_DC", "dc1"),
        ("NOMAD_REGION", "global"),
        ("REF", "value"),
        ("WHERE", "dc1-g"),
        ("KEPT", "[${meta.nope}]"),
    ] {
        assert!(text.lines().any(|line| line == format!("{key}={value}")), "{key}={value} in\n{text}");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_states_are_sent_again() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    server.refuse_next_states();
    let id = server.place(&job("again", JobType::Batch, vec![sh("main", None, "exit 0")]));
    server.until_status(id, ClientStatus::Complete).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_come_and_go_with_their_task_and_checks_make_health() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut main = sh("main", None, "exec sleep 300");
    let check =
        Check { name: "alive".into(), kind: "tcp".into(), interval: SECOND / 5, timeout: SECOND, ..Check::default() };
    main.services = vec![Service {
        name: "web".into(),
        provider: "nomad".into(),
        port_label: port.to_string(),
        address: "127.0.0.1".into(),
        tags: vec!["${NOMAD_TASK_NAME}".to_string()].into(),
        checks: vec![check].into(),
        ..Service::default()
    }]
    .into();
    let mut job = (*job("served", JobType::Service, vec![main])).clone();
    let mut group = (*job.task_groups[0]).clone();
    group.update = Some(UpdateStrategy {
        health_check: "checks".into(),
        min_healthy_time: SECOND / 10,
        healthy_deadline: 20 * SECOND,
        ..UpdateStrategy::default()
    });
    job.task_groups = vec![Arc::new(group)].into();
    let id = server.place(&Arc::new(job));
    server.change(id, |alloc| alloc.deployment_id = Some(DeploymentId([9; 16])));
    let healthy = |s: &Server| s.state(id)?.deployment_status?.healthy;
    assert!(server.until("health is decided", healthy).await);
    let services = server.services();
    assert_eq!((services.len(), services[0].port), (1, i64::from(port)));
    assert_eq!(services[0].tags, ["main"]);
    assert_eq!(services[0].id, format!("_nomad-task-{id}-main-web-{port}"));
    let checks = server.json(herdsman_proto::NodeRequest::AllocChecks { alloc_id: id }).await;
    let result = checks.as_object().unwrap().values().next().unwrap();
    assert_eq!((result["Status"].as_str(), result["Output"].as_str()), (Some("success"), Some("nomad: tcp ok")));
    server.stop(id);
    server.until_status(id, ClientStatus::Complete).await;
    server.until("the service is gone", |s| s.services().is_empty().then_some(())).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_over_https_want_a_certificate_that_is_trusted_unless_told_otherwise() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let (address, port) =
        crate::files::secure().await.rsplit_once(':').map(|(a, p)| (a.to_string(), p.to_string())).unwrap();
    let check = |name: &str, tls_skip_verify| Check {
        name: name.into(),
        kind: "http".into(),
        protocol: "https".into(),
        path: "/health".into(),
        tls_skip_verify,
        tls_server_name: "somewhere.example".into(),
        interval: SECOND / 5,
        timeout: 5 * SECOND,
        ..Check::default()
    };
    let mut main = sh("main", None, "exec sleep 300");
    main.services = vec![Service {
        name: "web".into(),
        provider: "nomad".into(),
        port_label: port,
        address,
        checks: vec![check("anyone", true), check("trusted", false)].into(),
        ..Service::default()
    }]
    .into();
    let id = server.place(&job("secured", JobType::Service, vec![main]));
    server.until_status(id, ClientStatus::Running).await;
    let results = async {
        loop {
            let checks = server.json(herdsman_proto::NodeRequest::AllocChecks { alloc_id: id }).await;
            let all: std::collections::BTreeMap<_, _> = checks
                .as_object()
                .unwrap()
                .values()
                .map(|r| (r["Check"].as_str().unwrap().to_string(), r.clone()))
                .collect();
            if all.len() == 2 && all.values().all(|r| r["Status"] != "pending") {
                return all;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let results = tokio::time::timeout(std::time::Duration::from_secs(60), results).await.unwrap();
    assert_eq!(results["anyone"]["Status"], "success", "{results:?}");
    assert_eq!(results["trusted"]["Status"], "failure", "{results:?}");
    assert!(results["trusted"]["Output"].as_str().unwrap().contains("certificate"), "{results:?}");
    server.stop(id);
    server.until_status(id, ClientStatus::Complete).await;
    node.shutdown().await;
}

/// Collection keeps every state and event, and waits for poststop.
#[tokio::test(flavor = "multi_thread")]
async fn nomad_17971_collection_loses_no_state() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let mut config = crate::setup::config(dir.path(), &server.addr);
    config.gc.max_allocs = 1;
    let drivers = crate::setup::drivers(dir.path()).await;
    let node = herdsman_node::Node::start(config, World::real().unwrap(), drivers).await.unwrap();
    let tasks = || {
        let stop = "while [ ! -e $NOMAD_ALLOC_DIR/data/go ]; do sleep 0.05; done";
        vec![sh("main", None, "echo foo"), sh("poststop", Some((Hook::Poststop, false)), stop)]
    };
    let first = server.place(&job("first", JobType::Batch, tasks()));
    let cleaning = |s: &Server| s.state(first).filter(|u| u.task_states["poststop"].state == TaskPhase::Running);
    server.until("poststop runs", cleaning).await;
    let second = server.place(&job("second", JobType::Batch, vec![sh("main", None, "exit 0")]));
    server.until_status(second, ClientStatus::Complete).await;
    let root = dir.path().join(format!("alloc/{first}"));
    assert!(root.exists(), "an allocation whose poststop runs is not collected");
    std::fs::write(root.join("alloc/data/go"), "").unwrap();
    let end = server.until_status(first, ClientStatus::Complete).await;
    let third = server.place(&job("third", JobType::Batch, vec![sh("main", None, "exit 0")]));
    server.until_status(third, ClientStatus::Complete).await;
    server.until("the first is collected", |_| (!root.exists()).then_some(())).await;
    assert_eq!(server.state(first), Some(end.clone()));
    assert_eq!(words(&end, "poststop"), ["Received", "TaskSetup", "Started", "Terminated"]);
    node.shutdown().await;
}

/// What the servers removed is ended, and goes.
#[tokio::test(flavor = "multi_thread")]
async fn nomad_28394_a_removed_allocation_is_ended() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let id = server.place(&job("removed", JobType::Service, vec![sh("main", None, "exec sleep 300")]));
    server.until_status(id, ClientStatus::Running).await;
    let root = dir.path().join(format!("alloc/{id}"));
    server.remove(id);
    server.until("the directory goes", |_| (!root.exists()).then_some(())).await;
    node.shutdown().await;
}

/// A payload is written before the task starts, and never outside of its directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_dispatch_payload_reaches_the_task() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let place = |id: &str, file: &str| {
        let mut main = sh("main", None, "grep -q hello $NOMAD_TASK_DIR/in/data.txt");
        main.dispatch_payload = Some(DispatchPayload { file: file.into() });
        let mut job = (*job(id, JobType::Batch, vec![main])).clone();
        job.payload = Some("aGVsbG8K".into());
        server.place(&Arc::new(job))
    };
    let good = place("good", "in/data.txt");
    let bad = place("bad", "../../../escaped");
    server.until_status(good, ClientStatus::Complete).await;
    let end = server.until_status(bad, ClientStatus::Failed).await;
    assert!(words(&end, "main").contains(&"HookFailed".to_string()));
    assert!(!dir.path().join("escaped").exists() && !dir.path().join("alloc/escaped").exists());
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_tells_what_it_is() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let told = server
        .until("the driver is there", |s| s.node().filter(|n| n.attributes.contains_key("driver.raw_exec")))
        .await;
    assert_eq!(told.id, node.id());
    assert_eq!(&*told.name, "test-node");
    assert!(told.drivers["raw_exec"].healthy);
    assert_eq!(told.computed_class, herdsman_node::fingerprint::computed_class(&told));
    let meta = |meta: &[(&str, Option<&str>)]| herdsman_proto::NodeRequest::MetadataApply {
        meta: meta.iter().map(|(k, v)| (k.to_string(), v.map(str::to_string))).collect(),
    };
    let answer = server.json(meta(&[("added", Some("dyn")), ("connect.log_level", None)])).await;
    assert_eq!(answer["Meta"]["added"], "dyn");
    assert_eq!(answer["Dynamic"]["connect.log_level"], serde_json::Value::Null);
    assert!(answer["Meta"].get("connect.log_level").is_none());
    server.until("the servers know", |s| s.node().filter(|n| n.meta.get("added").is_some_and(|v| v == "dyn"))).await;
    let id = node.id();
    node.shutdown().await;
    let node = crate::setup::node(dir.path(), &server.addr).await;
    assert_eq!(node.id(), id);
    assert_eq!(node.noun().meta["added"], "dyn", "dynamic metadata survives a restart");
    node.shutdown().await;
}
