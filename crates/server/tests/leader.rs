//! What the leader does by itself: deployments, drains, launches, collection, evaluations that fail.

use crate::fake::{Cluster, Script, count, job, node_row};
use herdsman_model::*;
use herdsman_server::ops::*;
use herdsman_state::JobKey;
use serde_json::{Value, json};
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;

fn with_update(mut job: Value, update: &Value) -> Value {
    job["TaskGroups"][0]["Update"] = update.clone();
    job
}

fn canary_update() -> Value {
    json!({
        "MaxParallel": 1, "Canary": 1, "HealthCheck": "task_states", "MinHealthyTime": 0,
        "HealthyDeadline": 60 * SECOND, "ProgressDeadline": 300 * SECOND, "AutoRevert": true, "AutoPromote": false
    })
}

fn changed(mut job: Value, env: &str) -> Value {
    job["TaskGroups"][0]["Tasks"][0]["Env"] = json!({ "VERSION": env });
    job
}

fn deployment(s: &herdsman_state::Snapshot, id: &str) -> Option<Deployment> {
    s.latest_deployment(&JobKey::new("default", id)).map(|d| (**d).clone())
}

#[tokio::test(start_paused = true)]
async fn a_rolling_deployment_ends_successful_and_makes_its_version_stable() {
    let cluster = Cluster::start(1).await;
    let _nodes = (cluster.node(1, Script::Runs).await, cluster.node(2, Script::Runs).await);
    let update = json!({
        "MaxParallel": 1, "HealthCheck": "task_states", "MinHealthyTime": 0,
        "HealthyDeadline": 60 * SECOND, "ProgressDeadline": 300 * SECOND
    });
    let web = with_update(job("web", "service", 3), &update);
    cluster.register(web.clone()).await;
    let successful = |s: &herdsman_state::Snapshot, version: u64| {
        deployment(s, "web").is_some_and(|d| d.status == DeploymentState::Successful && d.job_version == version)
    };
    cluster.until("the first is successful", |s| successful(s, 0)).await;
    assert!(cluster.server.snapshot().job("default", "web").unwrap().stable);
    cluster.register(changed(web, "2")).await;
    cluster.until("the second is successful", |s| successful(s, 1)).await;
    cluster
        .until("three new ones run", |s| {
            let key = JobKey::new("default", "web");
            s.allocs_by_job(&key).filter(|a| a.job_version == 1 && a.client_status == ClientStatus::Running).count()
                == 3
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn canaries_wait_for_promotion_and_a_failed_deployment_reverts() {
    let cluster = Cluster::start(1).await;
    let _nodes = (cluster.node(1, Script::Runs).await, cluster.node(2, Script::Runs).await);
    let web = with_update(job("web", "service", 2), &canary_update());
    cluster.register(web.clone()).await;
    cluster.until("first version stable", |s| s.job("default", "web").unwrap().stable).await;
    cluster.register(changed(web.clone(), "2")).await;
    cluster
        .until("the canary is healthy", |s| {
            deployment(s, "web").is_some_and(|d| d.job_version == 1 && d.task_groups["g"].healthy_allocs == 1)
        })
        .await;
    cluster.world.clock.sleep(Duration::from_secs(120)).await;
    let waiting = deployment(&cluster.server.snapshot(), "web").unwrap();
    assert!(waiting.requires_promotion());
    assert_eq!(waiting.task_groups["g"].placed_allocs, 1);
    cluster.server.promote_deployment(waiting.id, Vec::new()).await.unwrap();
    cluster
        .until("successful", |s| deployment(s, "web").is_some_and(|d| d.status == DeploymentState::Successful))
        .await;
    let again = cluster.server.promote_deployment(waiting.id, Vec::new()).await.unwrap_err();
    assert_eq!(again.message, "can't promote terminal deployment");
    // A third version that somebody fails: the second comes back as the fourth.
    cluster.register(changed(web, "3")).await;
    cluster.until("its deployment", |s| deployment(s, "web").is_some_and(|d| d.job_version == 2)).await;
    let third = deployment(&cluster.server.snapshot(), "web").unwrap();
    let failed = cluster.server.fail_deployment(third.id).await.unwrap();
    assert_eq!(failed.reverted_job_version, Some(1));
    let snapshot = cluster.server.snapshot();
    let text = "Deployment marked as failed - rolling back to job version 1";
    assert_eq!(snapshot.deployment(&third.id).unwrap().status_description, text);
    assert_eq!(snapshot.job("default", "web").unwrap().version, 3);
    cluster.until("the old canary is gone and two run", |s| count(s, "web", ClientStatus::Running) == 2).await;
}

#[tokio::test(start_paused = true)]
async fn nomad_14001_a_canary_that_was_replaced_is_promoted_all_the_same() {
    let cluster = Cluster::start(1).await;
    let good = cluster.node(1, Script::Runs).await;
    let mut update = canary_update();
    update["AutoPromote"] = json!(true);
    let mut web = with_update(job("web", "service", 2), &update);
    web["TaskGroups"][0]["ReschedulePolicy"] =
        json!({"Unlimited": true, "Delay": 5 * SECOND, "DelayFunction": "constant", "MaxDelay": 10 * SECOND});
    cluster.register(web.clone()).await;
    cluster.until("first version stable", |s| s.job("default", "web").unwrap().stable).await;
    // The canary comes to a node where it fails, its replacement to one where it does not.
    cluster.server.set_eligibility(good.id, false).await.unwrap();
    let bad = cluster.node(2, Script::Fails).await;
    cluster.register(changed(web, "2")).await;
    let failed = |s: &herdsman_state::Snapshot| {
        s.allocs().any(|a| a.node_id == bad.id && a.client_status == ClientStatus::Failed)
    };
    cluster.until("the canary failed", failed).await;
    cluster.server.set_eligibility(bad.id, false).await.unwrap();
    cluster.server.set_eligibility(good.id, true).await.unwrap();
    let promoted = |s: &herdsman_state::Snapshot| {
        deployment(s, "web").is_some_and(|d| d.job_version == 1 && d.status == DeploymentState::Successful)
    };
    cluster.until("promoted and done", promoted).await;
    let snapshot = cluster.server.snapshot();
    assert!(deployment(&snapshot, "web").unwrap().task_groups["g"].promoted);
    assert_eq!(count(&snapshot, "web", ClientStatus::Running), 2);
}

#[tokio::test(start_paused = true)]
async fn nomad_6864_old_allocations_stay_while_the_new_ones_fail() {
    let cluster = Cluster::start(1).await;
    let good = cluster.node(1, Script::Runs).await;
    let update = json!({
        "MaxParallel": 1, "HealthCheck": "task_states", "MinHealthyTime": 0,
        "HealthyDeadline": 60 * SECOND, "ProgressDeadline": 120 * SECOND
    });
    let web = with_update(job("web", "service", 3), &update);
    cluster.register(web.clone()).await;
    cluster.until("three run", |s| count(s, "web", ClientStatus::Running) == 3).await;
    cluster
        .until("successful", |s| deployment(s, "web").is_some_and(|d| d.status == DeploymentState::Successful))
        .await;
    // From now on new ones can only go where they fail.
    cluster.server.set_eligibility(good.id, false).await.unwrap();
    let _bad = cluster.node(2, Script::Fails).await;
    cluster.register(changed(web, "2")).await;
    cluster
        .until("failed", |s| {
            deployment(s, "web").is_some_and(|d| d.job_version == 1 && d.status == DeploymentState::Failed)
        })
        .await;
    let key = JobKey::new("default", "web");
    let snapshot = cluster.server.snapshot();
    let old = snapshot
        .allocs_by_job(&key)
        .filter(|a| a.job_version == 0 && a.client_status == ClientStatus::Running && !a.server_terminal())
        .count();
    assert!(old >= 2, "{old} of three old ones are left");
}

#[tokio::test(start_paused = true)]
async fn a_drain_moves_allocations_and_ends() {
    let cluster = Cluster::start(1).await;
    let first = cluster.node(1, Script::Runs).await;
    cluster.register(job("web", "service", 3)).await;
    cluster.until("three run", |s| count(s, "web", ClientStatus::Running) == 3).await;
    let second = cluster.node(2, Script::Runs).await;
    let drain = DrainRequest { deadline: Some(3600 * SECOND), ..DrainRequest::default() };
    cluster.server.drain_node(first.id, drain).await.unwrap();
    cluster
        .until("all run on the other node", |s| {
            let key = JobKey::new("default", "web");
            s.allocs_by_job(&key).filter(|a| a.node_id == second.id && a.client_status == ClientStatus::Running).count()
                == 3
        })
        .await;
    cluster.until("the drain is complete", |s| s.node(&first.id).unwrap().drain.is_none()).await;
    let snapshot = cluster.server.snapshot();
    let node = snapshot.node(&first.id).unwrap();
    assert_eq!(node.eligibility, Eligibility::Ineligible);
    assert_eq!(node.last_drain.as_ref().unwrap().status, "complete");
    assert_eq!(node.events.last().unwrap().message, "Node drain complete");
}

/// Allocations of a failed deployment are drained like others: moved where there is room, else stopped at the deadline.
#[tokio::test(start_paused = true)]
async fn a_drain_moves_allocations_of_a_failed_deployment() {
    for room in [true, false] {
        let cluster = Cluster::start(1).await;
        let first = cluster.node(1, Script::Unproven).await;
        let update = json!({
            "MaxParallel": 1, "HealthCheck": "task_states", "MinHealthyTime": 0,
            "HealthyDeadline": 600 * SECOND, "ProgressDeadline": 1200 * SECOND
        });
        let web = with_update(job("web", "service", 2), &update);
        cluster.register(web.clone()).await;
        cluster.until("both run", |s| count(s, "web", ClientStatus::Running) == 2).await;
        let running = deployment(&cluster.server.snapshot(), "web").unwrap();
        cluster.server.fail_deployment(running.id).await.unwrap();
        let second = if room { Some(cluster.node(2, Script::Runs).await) } else { None };
        let drain = DrainRequest { deadline: Some(60 * SECOND), ..DrainRequest::default() };
        cluster.server.drain_node(first.id, drain).await.unwrap();
        cluster.until("the drain is complete", |s| s.node(&first.id).unwrap().drain.is_none()).await;
        cluster.world.clock.sleep(Duration::from_secs(5)).await;
        let snapshot = cluster.server.snapshot();
        let key = JobKey::new("default", "web");
        let on = |node: NodeId| {
            snapshot
                .allocs_by_job(&key)
                .filter(|a| a.node_id == node && a.client_status == ClientStatus::Running)
                .count()
        };
        assert_eq!(on(first.id), 0, "room: {room}");
        match second {
            Some(second) => assert_eq!(on(second.id), 2),
            None => assert!(snapshot.evals().any(|e| e.status == EvalStatus::Blocked), "what waits for room is shown"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nomad_17563_a_batch_job_cut_short_by_a_drain_runs_again_when_there_is_room() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1, Script::Runs).await;
    cluster.register(job("work", "batch", 1)).await;
    cluster.until("it runs", |s| count(s, "work", ClientStatus::Running) == 1).await;
    let drain = DrainRequest { deadline: Some(SECOND), ..DrainRequest::default() };
    cluster.server.drain_node(node.id, drain).await.unwrap();
    cluster.until("the drain is complete", |s| s.node(&node.id).unwrap().drain.is_none()).await;
    cluster.until("it waits", |s| s.evals().any(|e| e.status == EvalStatus::Blocked)).await;
    cluster.server.set_eligibility(node.id, true).await.unwrap();
    cluster.until("it runs again", |s| count(s, "work", ClientStatus::Running) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn nomad_3210_a_drain_leaves_work_that_is_done_alone() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1, Script::Completes).await;
    let mut done = job("done", "batch", 2);
    done["TaskGroups"][0]["Tasks"][0]["Leader"] = json!(true);
    cluster.register(done).await;
    let dead = |s: &herdsman_state::Snapshot| s.job("default", "done").is_some_and(|job| job.status == JobStatus::Dead);
    cluster.until("it is done", dead).await;
    let key = JobKey::new("default", "done");
    let before: Vec<_> = cluster.server.snapshot().allocs_by_job(&key).cloned().collect();
    let drain = DrainRequest { deadline: Some(-SECOND), ..DrainRequest::default() };
    cluster.server.drain_node(node.id, drain).await.unwrap();
    cluster.until("the drain is complete", |s| s.node(&node.id).unwrap().drain.is_none()).await;
    cluster.world.clock.sleep(Duration::from_secs(60)).await;
    let snapshot = cluster.server.snapshot();
    assert!(dead(&snapshot), "{:?}", snapshot.job("default", "done").unwrap().status);
    assert_eq!(snapshot.allocs_by_job(&key).cloned().collect::<Vec<_>>(), before);
}

fn periodic(prohibit: bool) -> Value {
    let mut nightly = job("nightly", "batch", 1);
    nightly["Periodic"] = json!({
        "Enabled": true, "SpecType": "cron", "Specs": ["0 * * * *"], "ProhibitOverlap": prohibit, "TimeZone": "UTC"
    });
    nightly
}

fn children(s: &herdsman_state::Snapshot) -> usize {
    s.job_children(&JobKey::new("default", "nightly")).count()
}

#[tokio::test(start_paused = true)]
async fn a_periodic_job_is_launched_by_its_schedule() {
    let cluster = Cluster::start(1).await;
    let _node = cluster.node(1, Script::Completes).await;
    let changed = cluster.register(periodic(false)).await;
    assert_eq!(changed.eval_id, None);
    cluster.world.clock.sleep(Duration::from_secs(3 * 3600 + 60)).await;
    assert_eq!(children(&cluster.server.snapshot()), 3);
    cluster.until("all are dead", |s| s.job_summary("default", "nightly").unwrap().children.dead == 3).await;
    let forced = cluster.server.force_periodic("default", "nightly").await.unwrap();
    assert!(forced.eval_id.is_some());
    assert_eq!(children(&cluster.server.snapshot()), 4);
}

#[tokio::test(start_paused = true)]
async fn nomad_2721_and_16583_a_new_leader_launches_only_what_was_missed() {
    // Nothing runs it: the child lives on, and a second one is forbidden.
    let cluster = Cluster::start(1).await;
    let _node = cluster.node(1, Script::Runs).await;
    cluster.register(periodic(true)).await;
    cluster.world.clock.sleep(Duration::from_secs(3600 + 60)).await;
    cluster.until("its child runs", |s| s.job_summary("default", "nightly").unwrap().children.running == 1).await;
    let cluster = cluster.restart().await;
    cluster.world.clock.sleep(Duration::from_secs(10)).await;
    assert_eq!(children(&cluster.server.snapshot()), 1, "what was launched is not launched again");
    cluster.server.shutdown().await;
    cluster.world.clock.sleep(Duration::from_secs(2 * 3600)).await;
    let world = cluster.sim.world_with_disk(crate::fake::SERVER_IP, cluster.world.disk.clone(), 2);
    let server = herdsman_server::Server::start(crate::fake::config(), world).await.unwrap();
    server.ready().await;
    server.world().clock.sleep(Duration::from_secs(10)).await;
    assert_eq!(children(&server.snapshot()), 1, "overlap is forbidden, also for a launch that was missed");
}

#[tokio::test(start_paused = true)]
async fn nomad_24455_collection_on_request_takes_what_is_over_whatever_its_age() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1, Script::Runs).await;
    cluster.register(job("web", "service", 1)).await;
    cluster.until("it runs", |s| count(s, "web", ClientStatus::Running) == 1).await;
    let stop = DeregisterRequest { namespace: "default".into(), job_id: "web".into(), ..Default::default() };
    cluster.server.deregister_job(stop).await.unwrap();
    cluster.until("dead", |s| s.job("default", "web").unwrap().status == JobStatus::Dead).await;
    cluster.server.collect_garbage().await.unwrap();
    let snapshot = cluster.server.snapshot();
    assert!(snapshot.job("default", "web").is_none());
    assert_eq!((snapshot.alloc_count(), snapshot.evals().count()), (0, 0));
    cluster.world.clock.sleep(Duration::from_secs(1)).await;
    assert!(node.trace.lock().unwrap().iter().any(|line| line.starts_with("removed")), "the node is told");
}

#[tokio::test(start_paused = true)]
async fn nomad_4299_a_batch_job_that_succeeded_does_not_run_again_after_collection() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1, Script::Completes).await;
    cluster.register(job("once", "batch", 1)).await;
    cluster.until("dead", |s| s.job("default", "once").is_some_and(|j| j.status == JobStatus::Dead)).await;
    // Long after its evaluations are old, but while the job is still there.
    cluster.world.clock.sleep(Duration::from_secs(2 * 3600)).await;
    let snapshot = cluster.server.snapshot();
    assert!(snapshot.job("default", "once").is_some());
    cluster.server.evaluate_node(node.id).await.unwrap();
    cluster.server.evaluate_job("default", "once", false).await.unwrap();
    cluster.world.clock.sleep(Duration::from_secs(60)).await;
    let key = JobKey::new("default", "once");
    assert_eq!(cluster.server.snapshot().allocs_by_job(&key).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn nomad_27367_an_evaluation_of_a_purged_job_makes_no_follow_up() {
    let cluster = Cluster::start(1).await;
    cluster.register(job("web", "service", 1)).await;
    let stop =
        DeregisterRequest { namespace: "default".into(), job_id: "web".into(), purge: true, ..Default::default() };
    cluster.server.deregister_job(stop).await.unwrap();
    cluster.world.clock.sleep(Duration::from_secs(1200)).await;
    let snapshot = cluster.server.snapshot();
    assert!(snapshot.evals().all(|e| e.status.is_terminal() && e.triggered_by != Trigger::FailedFollowUp));
}

#[tokio::test(start_paused = true)]
async fn a_node_with_another_secret_or_version_is_refused() {
    use crate::fake::{hear, hello, say};
    use herdsman_proto::*;
    use herdsman_sim::session::dial;
    let cluster = Cluster::start(1).await;
    let _node = cluster.node(1, Script::Runs).await;
    let world = cluster.sim.world("10.0.1.9".parse().unwrap());
    let refuse = async |hello: Hello| {
        let mut frames = dial(&world, cluster.server.rpc_addr(), Purpose::NodeControl).await.unwrap();
        say(&mut frames, NodeMessage::Hello(hello)).await;
        match hear(&mut frames).await {
            Some(ServerMessage::Refused(refused)) => refused,
            other => panic!("{other:?}"),
        }
    };
    let mut impostor = node_row(1);
    impostor.secret_id = SecretText("guess".into());
    let refused = refuse(hello(&impostor, Vec::new())).await;
    assert!(refused.permanent && refused.message.contains("secret"), "{}", refused.message);
    let newer = Hello { version: SESSION_VERSION + 1, ..hello(&node_row(3), Vec::new()) };
    let refused = refuse(newer).await;
    assert!(refused.permanent && refused.message.contains("version"), "{}", refused.message);
}

#[tokio::test(start_paused = true)]
async fn nomad_24112_and_28225_ages_count_from_the_last_change_also_beyond_days() {
    let mut config = crate::fake::config();
    config.gc.job = Duration::from_secs(100 * 3600);
    config.gc.batch_eval = Duration::from_secs(3600);
    // Days of simulated time are quick only when little happens in them.
    config.consensus.heartbeat_ms = 60_000;
    config.consensus.election_ms = 120_000;
    let cluster = Cluster::start_with(1, config).await;
    let node = cluster.node(1, Script::Completes).await;
    cluster.register(job("once", "batch", 1)).await;
    cluster.until("dead", |s| s.job("default", "once").is_some_and(|j| j.status == JobStatus::Dead)).await;
    // Its heartbeats over days would only cost time.
    node.kill();
    cluster.world.clock.sleep(Duration::from_secs(80 * 3600)).await;
    assert!(cluster.server.snapshot().job("default", "once").is_some(), "kept below its threshold");
    cluster.world.clock.sleep(Duration::from_secs(21 * 3600)).await;
    let snapshot = cluster.server.snapshot();
    assert!(snapshot.job("default", "once").is_none(), "gone above it");
    assert_eq!((snapshot.alloc_count(), snapshot.evals().count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn nomad_27499_a_system_job_returns_to_a_node_that_was_drained() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1, Script::Runs).await;
    cluster.register(job("sys", "system", 1)).await;
    cluster.until("it runs", |s| count(s, "sys", ClientStatus::Running) == 1).await;
    let drain = DrainRequest { deadline: Some(-SECOND), ..DrainRequest::default() };
    cluster.server.drain_node(node.id, drain).await.unwrap();
    cluster.until("it is gone", |s| count(s, "sys", ClientStatus::Running) == 0).await;
    cluster.until("the drain is complete", |s| s.node(&node.id).unwrap().drain.is_none()).await;
    cluster.server.set_eligibility(node.id, true).await.unwrap();
    cluster.until("it runs again", |s| count(s, "sys", ClientStatus::Running) == 1).await;
}
