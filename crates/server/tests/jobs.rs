//! Jobs from their registration to their end.

use crate::fake::{Cluster, Script, count, job};
use herdsman_model::*;
use herdsman_server::ops::*;
use herdsman_state::JobKey;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_batch_job_is_placed_runs_and_completes() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1, Script::Completes).await;
    let changed = cluster.register(job("once", "batch", 3)).await;
    cluster.until("all complete", |s| count(s, "once", ClientStatus::Complete) == 3).await;
    cluster.until("dead", |s| s.job("default", "once").unwrap().status == JobStatus::Dead).await;
    let snapshot = cluster.server.snapshot();
    let eval = snapshot.eval(&changed.eval_id.unwrap()).unwrap();
    assert_eq!(eval.status, EvalStatus::Complete);
    assert_eq!(snapshot.job_summary("default", "once").unwrap().groups["g"].complete, 3);
    assert_eq!(node.trace.lock().unwrap().len(), 3);
    snapshot.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_is_marked_down_and_its_allocations_are_replaced() {
    let cluster = Cluster::start(1).await;
    let first = cluster.node(1, Script::Runs).await;
    cluster.register(job("web", "service", 2)).await;
    cluster.until("both run", |s| count(s, "web", ClientStatus::Running) == 2).await;
    let _second = cluster.node(2, Script::Runs).await;
    first.kill();
    cluster
        .until("replaced", |s| {
            let key = JobKey::new("default", "web");
            let moved = s.allocs_by_job(&key).filter(|a| a.node_id == NodeId([2; 16])).count();
            moved == 2 && count(s, "web", ClientStatus::Running) == 2
        })
        .await;
    let snapshot = cluster.server.snapshot();
    assert_eq!(snapshot.node(&first.id).unwrap().status, NodeStatus::Down);
    let key = JobKey::new("default", "web");
    let lost = snapshot.allocs_by_job(&key).filter(|a| a.client_status == ClientStatus::Lost).count();
    assert_eq!(lost, 2);
    snapshot.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_waits_for_room_and_then_runs() {
    let cluster = Cluster::start(1).await;
    let _node = cluster.node(1, Script::Runs).await;
    let mut big = job("big", "service", 1);
    big["TaskGroups"][0]["Tasks"][0]["Resources"]["MemoryMB"] = json!(3000);
    cluster.register(big.clone()).await;
    cluster.until("the first runs", |s| count(s, "big", ClientStatus::Running) == 1).await;
    big["ID"] = json!("other");
    big["Name"] = json!("other");
    cluster.register(big).await;
    cluster.until("blocked", |s| s.evals().any(|e| &*e.job_id == "other" && e.status == EvalStatus::Blocked)).await;
    let stop = DeregisterRequest { namespace: "default".into(), job_id: "big".into(), ..Default::default() };
    cluster.server.deregister_job(stop).await.unwrap();
    cluster.until("the other runs", |s| count(s, "other", ClientStatus::Running) == 1).await;
    assert!(!cluster.server.snapshot().evals().any(|e| e.status == EvalStatus::Blocked));
}

#[tokio::test(start_paused = true)]
async fn a_failed_allocation_is_rescheduled_after_its_delay() {
    let cluster = Cluster::start(1).await;
    let _node = cluster.node(1, Script::Fails).await;
    let mut flaky = job("flaky", "batch", 1);
    flaky["TaskGroups"][0]["ReschedulePolicy"] = json!({
        "Attempts": 2, "Interval": 3_600_000_000_000i64, "Delay": 5_000_000_000i64,
        "DelayFunction": "constant", "Unlimited": false
    });
    cluster.register(flaky).await;
    cluster
        .until("three allocations failed", |s| {
            let key = JobKey::new("default", "flaky");
            s.allocs_by_job(&key).filter(|a| a.client_status == ClientStatus::Failed).count() == 3
        })
        .await;
    cluster.world.clock.sleep(std::time::Duration::from_secs(600)).await;
    let snapshot = cluster.server.snapshot();
    let key = JobKey::new("default", "flaky");
    let mut tried: Vec<usize> = snapshot
        .allocs_by_job(&key)
        .map(|a| a.reschedule_tracker.as_ref().map_or(0, |tracker| tracker.events.len()))
        .collect();
    tried.sort_unstable();
    assert_eq!(tried, [0, 1, 2], "the history grows by one each time, and ends with the attempts");
    assert_eq!(snapshot.job("default", "flaky").unwrap().status, JobStatus::Dead);
}

#[tokio::test(start_paused = true)]
async fn a_restart_from_the_log_loses_nothing_and_goes_on() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1, Script::Runs).await;
    cluster.register(job("web", "service", 2)).await;
    cluster.until("both run", |s| count(s, "web", ClientStatus::Running) == 2).await;
    // Room is missing for this one: its evaluation waits across the restart.
    let mut big = job("big", "service", 1);
    big["TaskGroups"][0]["Tasks"][0]["Resources"]["MemoryMB"] = json!(100_000);
    cluster.register(big).await;
    cluster.until("blocked", |s| s.evals().any(|e| e.status == EvalStatus::Blocked)).await;
    cluster.world.clock.sleep(std::time::Duration::from_secs(1)).await;
    let before = cluster.server.snapshot().to_stored().unwrap();
    node.kill();
    cluster.server.shutdown().await;
    let world = cluster.sim.world_with_disk(crate::fake::SERVER_IP, cluster.world.disk.clone(), 1);
    let server = herdsman_server::Server::start(crate::fake::config(), world.clone()).await.unwrap();
    // What was acknowledged is there before the leader does anything.
    let replayed = server.snapshot().to_stored().unwrap();
    assert!(before == replayed, "the log gives the same tables");
    server.ready().await;
    let cluster = Cluster { sim: cluster.sim, world, server };
    let mut row = crate::fake::node_row(2);
    row.resources.memory_mb = 200_000;
    let _roomy = cluster.node_with(row, 2, Script::Runs).await;
    cluster.until("the waiting one runs", |s| count(s, "big", ClientStatus::Running) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_trace() {
    async fn story() -> (Vec<String>, Vec<u8>) {
        let cluster = Cluster::start(7).await;
        let first = cluster.node(1, Script::Runs).await;
        let second = cluster.node(2, Script::Completes).await;
        cluster.register(job("web", "service", 3)).await;
        cluster.register(job("once", "batch", 4)).await;
        cluster.world.clock.sleep(std::time::Duration::from_secs(30)).await;
        first.kill();
        cluster.world.clock.sleep(std::time::Duration::from_secs(60)).await;
        let trace = [first.trace.lock().unwrap().clone(), second.trace.lock().unwrap().clone()].concat();
        (trace, cluster.server.snapshot().to_stored().unwrap())
    }
    let (first, again) = (story().await, story().await);
    assert!(!first.0.is_empty());
    assert_eq!(first.0, again.0);
    assert!(first.1 == again.1, "the tables are the same to the byte");
}

#[tokio::test(start_paused = true)]
async fn nomad_15483_15144_and_15808_a_reconnected_node_gets_its_allocations_back_as_they_are() {
    use crate::fake::{hear, hello, node_row, say};
    use herdsman_proto::*;
    use herdsman_sim::session::dial;
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1, Script::Runs).await;
    let web = job("web", "service", 2);
    let request = RegisterRequest { job: web, ..RegisterRequest::default() };
    let mut web = cluster.server.prepare_job(&request).unwrap().job;
    let group = std::sync::Arc::make_mut(&mut web.task_groups[0]);
    group.disconnect = Some(DisconnectStrategy {
        lost_after: 3_600_000_000_000,
        replace: Some(false),
        reconcile: "best_score".into(),
        ..DisconnectStrategy::default()
    });
    let eval = Some(herdsman_state::EvalRequest::default());
    let register = herdsman_state::RegisterJob { job: web, eval, ..Default::default() };
    cluster.server.propose(herdsman_state::Body::RegisterJob(Box::new(register))).await.unwrap();
    cluster.until("both run", |s| count(s, "web", ClientStatus::Running) == 2).await;
    node.kill();
    cluster.until("disconnected", |s| s.node(&node.id).unwrap().status == NodeStatus::Disconnected).await;
    cluster.until("unknown", |s| count(s, "web", ClientStatus::Unknown) == 2).await;
    // It comes back: one allocation runs, the other failed while nobody could hear of it.
    let key = JobKey::new("default", "web");
    let allocs: Vec<_> = cluster.server.snapshot().allocs_by_job(&key).cloned().collect();
    let world = cluster.sim.world("10.0.1.1".parse().unwrap());
    let mut frames = dial(&world, cluster.server.rpc_addr(), Purpose::NodeControl).await.unwrap();
    let known =
        allocs.iter().map(|a| KnownAlloc { id: a.id.0.to_vec(), alloc_modify_index: a.alloc_modify_index }).collect();
    say(&mut frames, NodeMessage::Hello(hello(&node_row(1), known))).await;
    assert!(matches!(hear(&mut frames).await, Some(ServerMessage::Welcome(_))));
    cluster.world.clock.sleep(std::time::Duration::from_secs(1)).await;
    let status = cluster.server.snapshot().node(&node.id).unwrap().status;
    assert_ne!(status, NodeStatus::Ready, "nomad 15808: not ready before it has said what became of its allocations");
    let update = |alloc: &Allocation, client_status| {
        serde_json::to_vec(&AllocUpdate { id: alloc.id, client_status, ..AllocUpdate::default() }).unwrap()
    };
    let updates_json = vec![update(&allocs[0], ClientStatus::Running), update(&allocs[1], ClientStatus::Failed)];
    say(&mut frames, NodeMessage::AllocUpdates(AllocUpdates { sequence: 1, updates_json })).await;
    let clock = cluster.world.clock.clone();
    tokio::spawn(async move {
        loop {
            clock.sleep(std::time::Duration::from_secs(5)).await;
            say(&mut frames, NodeMessage::Heartbeat(Heartbeat { send_time: 1 })).await;
        }
    });
    cluster.until("ready", |s| s.node(&node.id).unwrap().status == NodeStatus::Ready).await;
    cluster
        .until("the running one stays", |s| {
            let alloc = s.alloc(&allocs[0].id).unwrap();
            alloc.client_status == ClientStatus::Running && !alloc.server_terminal()
        })
        .await;
    cluster
        .until("the failed one is replaced", |s| {
            s.alloc(&allocs[1].id).unwrap().client_status == ClientStatus::Failed
                && s.allocs_by_job(&key).any(|a| a.previous_allocation == Some(allocs[1].id))
        })
        .await;
    assert!(!cluster.server.snapshot().alloc(&allocs[0].id).unwrap().server_terminal());
}

#[tokio::test(start_paused = true)]
async fn a_restart_from_a_snapshot_and_the_log_behind_it_gives_the_same_tables() {
    let mut config = crate::fake::config();
    config.consensus.snapshot_entries = 8;
    config.consensus.keep_entries = 2;
    let cluster = Cluster::start_with(1, config).await;
    let node = cluster.node(1, Script::Completes).await;
    for n in 0..10 {
        cluster.register(job(&format!("job{n}"), "batch", 1)).await;
    }
    cluster.until("all dead", |s| s.jobs().all(|job| job.status == JobStatus::Dead)).await;
    cluster.server.consensus().snapshot_now().await.unwrap();
    node.kill();
    cluster.world.clock.sleep(std::time::Duration::from_secs(1)).await;
    assert!(cluster.server.consensus().status().await.snapshot.is_some());
    let before = cluster.server.snapshot().to_stored().unwrap();
    let cluster = cluster.restart().await;
    assert!(before == cluster.server.snapshot().to_stored().unwrap());
    cluster.server.snapshot().check().unwrap();
}
