//! Tables: delays, scores, resources by phase, metrics, and each step of reconciliation once.

use crate::world::*;
use herdsman_model::*;
use herdsman_scheduler::{Algorithm, Capacity, Usage, fit, next_delay, reschedule_allowed, usage_of};
use std::sync::Arc;

fn with_events(delays: &[i64], last_age: i64) -> Allocation {
    let now = 100_000 * SEC;
    let events = delays.iter().map(|d| RescheduleEvent {
        time: now - last_age * SEC,
        prev_alloc: AllocId::default(),
        prev_node: NodeId::default(),
        delay: d * SEC,
    });
    Allocation {
        modify_time: now,
        reschedule_tracker: Some(Arc::new(RescheduleTracker {
            events: events.collect(),
            last_reschedule: "ok".into(),
        })),
        ..Allocation::default()
    }
}

#[test]
fn reschedule_delays() {
    let policy = |function: &str| ReschedulePolicy {
        delay: 5 * SEC,
        delay_function: function.into(),
        max_delay: 100 * SEC,
        unlimited: true,
        ..ReschedulePolicy::default()
    };
    let table: &[(&str, &[i64], i64, i64)] = &[
        ("constant", &[], 1, 5),
        ("constant", &[5, 5], 1, 5),
        ("exponential", &[], 1, 5),
        ("exponential", &[5], 1, 10),
        ("exponential", &[5, 10], 1, 20),
        ("exponential", &[40, 80], 1, 100),
        ("exponential", &[80, 100], 1, 100),
        ("exponential", &[80, 100], 101, 5),
        ("fibonacci", &[], 1, 5),
        ("fibonacci", &[5], 1, 5),
        ("fibonacci", &[5, 5], 1, 10),
        ("fibonacci", &[5, 5, 10], 1, 15),
        ("fibonacci", &[40, 65], 1, 100),
        ("fibonacci", &[65, 100], 101, 5),
        ("fibonacci", &[100, 5], 1, 5),
    ];
    for (function, events, age, want) in table {
        let got = next_delay(&with_events(events, *age), &policy(function));
        assert_eq!(got, want * SEC, "{function} after {events:?}, {age} s ago");
    }
}

#[test]
fn reschedules_are_counted_within_the_interval() {
    let policy = ReschedulePolicy { attempts: 2, interval: 60 * SEC, delay: 5 * SEC, ..ReschedulePolicy::default() };
    assert!(reschedule_allowed(&with_events(&[], 0), &policy));
    assert!(reschedule_allowed(&with_events(&[5], 10), &policy));
    assert!(!reschedule_allowed(&with_events(&[5, 5], 10), &policy));
    assert!(reschedule_allowed(&with_events(&[5, 5], 61), &policy));
    assert!(!reschedule_allowed(&with_events(&[], 0), &ReschedulePolicy::default()));
    let slow = ReschedulePolicy { delay: 61 * SEC, ..policy };
    assert!(!reschedule_allowed(&with_events(&[], 0), &slow), "the delay is longer than the interval");
}

/// The node and scores of `goldens/api`: 4600 MHz, 24105 MB; two allocations of 70 MHz and 48 MB.
#[test]
fn scores_are_those_of_the_goldens() {
    let golden = |name: &str| -> serde_json::Value {
        #[allow(clippy::disallowed_methods)]
        let given = std::env::var("HERDSMAN_SHARED");
        let root = given.unwrap_or_else(|_| format!("{}/../../../shared", env!("CARGO_MANIFEST_DIR")));
        let path = format!("{root}/compat/goldens/api/{name}");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{path}: {e}; set HERDSMAN_SHARED to the directory that holds compat/goldens"));
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["body"].clone()
    };
    let node = golden("045-node-read.json");
    let number = |v: &serde_json::Value| v.as_i64().unwrap();
    let resources = NodeResources {
        cpu_shares: number(&node["NodeResources"]["Cpu"]["CpuShares"]),
        memory_mb: number(&node["NodeResources"]["Memory"]["MemoryMB"]),
        ..NodeResources::default()
    };
    let capacity = Capacity::of(&Node { resources, ..Node::default() });
    let mut used = Usage::default();
    for alloc in golden("121-node-allocations.json").as_array().unwrap() {
        let resources: AllocatedResources = serde_json::from_value(alloc["AllocatedResources"].clone()).unwrap();
        used = used.plus(usage_of(&resources));
        let scores = &alloc["Metrics"]["ScoreMetaData"][0];
        let want = scores["Scores"]["binpack"].as_f64().unwrap();
        let got = fit(Algorithm::Binpack, &capacity, used);
        assert!((got - want).abs() < 1e-12, "{got} {want}");
        let anti = scores["Scores"]["job-anti-affinity"].as_f64().unwrap();
        let norm = if anti == 0.0 { got } else { (got + anti) / 2.0 };
        assert!((norm - scores["NormScore"].as_f64().unwrap()).abs() < 1e-12);
    }
}

#[test]
fn the_metric_of_a_placement_is_the_goldens() {
    let mut world = World::new();
    let mut one = node(1);
    one.resources.cpu_shares = 4600;
    one.resources.memory_mb = 24105;
    world.add_node(one);
    let mut job = service(2);
    edit_group(&mut job, |g| {
        g.tasks = vec![Arc::new(task("server", 50, 32)), Arc::new(task("chatter", 20, 16))].into()
    });
    world.register(job);
    let decision = world.run("j");
    assert_eq!(decision.queued_allocations["g"], 0);
    assert_eq!(decision.evaluation.status, EvalStatus::Complete);
    let allocs = world.of_job("j");
    let first = allocs.iter().find(|a| a.name == "j.g[0]").unwrap().metrics.clone().unwrap();
    let second = allocs.iter().find(|a| a.name == "j.g[1]").unwrap().metrics.clone().unwrap();
    let mut want = serde_json::json!({
        "AllocationTime": 0, "ClassExhausted": null, "ClassFiltered": null, "CoalescedFailures": 0,
        "ConstraintFiltered": null, "DimensionExhausted": null, "NodePool": "default", "NodesAvailable": {"dc1": 1},
        "NodesEvaluated": 1, "NodesExhausted": 0, "NodesFiltered": 0, "NodesInPool": 1, "QuotaExhausted": null,
        "ResourcesExhausted": null, "Scores": null,
    });
    let mut got = serde_json::to_value(&*first).unwrap();
    let scores = got.as_object_mut().unwrap().remove("ScoreMetaData").unwrap();
    assert_eq!(got, want.take());
    let binpack = 0.021_670_657_276_232_36;
    assert_eq!(scores[0]["Scores"].as_object().unwrap().len(), 4);
    assert!((scores[0]["NormScore"].as_f64().unwrap() - binpack).abs() < 1e-12);
    let scores = &second.score_meta_data[0];
    assert_eq!(scores.scores["job-anti-affinity"], -1.0);
    assert!((scores.norm_score + 0.478_664_489_630_064_3).abs() < 1e-12);
}

#[test]
fn tasks_that_never_meet_share_resources() {
    let with = |cpu: i64, hook: Option<(Hook, bool)>| {
        let lifecycle = hook.map(|(hook, sidecar)| TaskLifecycle { hook, sidecar });
        let given = AllocatedTaskResources {
            cpu: AllocatedCpu { cpu_shares: cpu, ..Default::default() },
            memory: AllocatedMemory { memory_mb: cpu * 2, memory_max_mb: 0 },
            ..Default::default()
        };
        (given, lifecycle)
    };
    let total = |tasks: Vec<(AllocatedTaskResources, Option<TaskLifecycle>)>| {
        let mut all = AllocatedResources::default();
        for (n, (given, lifecycle)) in tasks.into_iter().enumerate() {
            all.tasks.insert(n.to_string(), given);
            all.task_lifecycles.insert(n.to_string(), lifecycle);
        }
        let usage = usage_of(&all);
        assert_eq!(usage.memory_mb, usage.cpu * 2);
        usage.cpu
    };
    let (pre, side) = (Some((Hook::Prestart, false)), Some((Hook::Prestart, true)));
    let (post, stop) = (Some((Hook::Poststart, false)), Some((Hook::Poststop, false)));
    assert_eq!(total(vec![with(100, None), with(70, pre), with(60, stop)]), 100);
    assert_eq!(total(vec![with(100, None), with(70, side), with(60, stop)]), 170);
    assert_eq!(total(vec![with(100, None), with(70, side), with(90, pre)]), 170);
    assert_eq!(total(vec![with(10, None), with(70, side), with(90, pre)]), 160);
    assert_eq!(total(vec![with(100, None), with(70, post)]), 170);
    assert_eq!(total(vec![with(100, None), with(300, stop)]), 300);
}

#[test]
fn a_rolling_update_goes_one_by_one_and_waits_for_health() {
    let mut world = World::with_nodes(4);
    world.register(service(3));
    world.run("j");
    assert_eq!(world.live("j").len(), 3);
    assert_eq!(world.deployments.len(), 1);
    assert_eq!(world.deployments[0].task_groups["g"].desired_total, 3);
    world.nodes_act();
    world.run("j");
    assert_eq!(world.deployments[0].status, DeploymentState::Successful);
    world.edit_job("j", |j| edit_task(j, |t| t.user = "u".into()));
    for round in 0..3 {
        let decision = world.run("j");
        let counts = &decision.plan.annotations.as_ref().unwrap().desired_tg_updates["g"];
        assert_eq!((counts.destructive_update, counts.ignore), (1, 2), "round {round}");
        let again = world.run("j");
        assert!(again.plan.is_noop(), "the new one is not healthy yet: {:#?}", again.plan);
        world.nodes_act();
    }
    world.run("j");
    assert_eq!(world.deployments.last().unwrap().status, DeploymentState::Successful);
    assert!(world.live("j").iter().all(|a| a.job_version == 1));
    assert!(world.run("j").plan.is_noop());
}

#[test]
fn canaries_wait_for_promotion_and_then_replace() {
    let mut world = World::with_nodes(5);
    let mut spec = service(3);
    edit_group(&mut spec, |g| g.update = Some(UpdateStrategy { max_parallel: 2, canary: 1, ..Default::default() }));
    world.register(spec);
    world.run("j");
    world.nodes_act();
    world.run("j");
    world.edit_job("j", |j| edit_task(j, |t| t.user = "u".into()));
    let decision = world.run("j");
    let counts = &decision.plan.annotations.as_ref().unwrap().desired_tg_updates["g"];
    assert_eq!((counts.canary, counts.destructive_update, counts.ignore), (1, 0, 3));
    let text = "Deployment is running but requires manual promotion";
    assert_eq!(world.deployments.last().unwrap().status_description, text);
    let canary = world.live("j").into_iter().find(|a| a.is_canary()).unwrap();
    assert_eq!((world.live("j").len(), canary.name.as_str()), (4, "j.g[0]"));
    world.nodes_act();
    assert!(world.run("j").plan.is_noop());
    world.edit_deployment(|d| d.task_groups.get_mut("g").unwrap().promoted = true);
    for _ in 0..4 {
        world.run("j");
        world.nodes_act();
    }
    world.run("j");
    assert_eq!(world.deployments.last().unwrap().status, DeploymentState::Successful);
    let live = world.live("j");
    assert_eq!((live.len(), live.iter().filter(|a| a.job_version == 1).count()), (3, 3));
    let mut names: Vec<_> = live.iter().map(|a| a.name.clone()).collect();
    names.sort();
    assert_eq!(names, ["j.g[0]", "j.g[1]", "j.g[2]"]);
}

#[test]
fn a_new_version_cancels_the_deployment_and_its_canaries() {
    let mut world = World::with_nodes(5);
    let mut spec = service(2);
    edit_group(&mut spec, |g| g.update = Some(UpdateStrategy { max_parallel: 1, canary: 2, ..Default::default() }));
    world.register(spec);
    world.run("j");
    world.nodes_act();
    world.run("j");
    world.edit_job("j", |j| edit_task(j, |t| t.user = "u".into()));
    world.run("j");
    world.edit_job("j", |j| edit_task(j, |t| t.user = "v".into()));
    world.run("j");
    let statuses: Vec<_> = world.deployments.iter().map(|d| d.status).collect();
    assert_eq!(statuses, [DeploymentState::Successful, DeploymentState::Cancelled, DeploymentState::Running]);
    assert_eq!(world.deployments[1].status_description, "Cancelled due to newer version of job");
    let canaries: Vec<_> = world.live("j").into_iter().filter(|a| a.is_canary()).collect();
    assert_eq!(canaries.iter().map(|a| a.job_version).collect::<Vec<_>>(), [2, 2]);
    world.edit_job("j", |j| j.stop = true);
    world.run("j");
    assert!(world.live("j").is_empty());
    assert_eq!(world.deployments[2].status_description, "Cancelled because job is stopped");
}

#[test]
fn an_update_in_place_keeps_tasks_and_resources() {
    let mut world = World::with_nodes(2);
    world.register(service(2));
    world.run("j");
    world.nodes_act();
    world.run("j");
    let before = world.live("j");
    world.edit_job("j", |j| edit_task(j, |t| t.kill_timeout = 9 * SEC));
    let decision = world.run("j");
    let counts = &decision.plan.annotations.as_ref().unwrap().desired_tg_updates["g"];
    assert_eq!((counts.in_place_update, counts.destructive_update, counts.place), (2, 0, 0));
    let after = world.live("j");
    for (old, new) in before.iter().zip(&after) {
        assert_eq!((old.id, old.job_version + 1), (new.id, new.job_version));
        assert!(Arc::ptr_eq(&old.resources, &new.resources));
        assert_ne!(old.deployment_id, new.deployment_id);
        assert_eq!(new.healthy(), None);
    }
}

#[test]
fn failures_are_placed_anew_at_once_or_later() {
    let mut world = World::with_nodes(3);
    world.register(service(1));
    world.run("j");
    world.nodes_act();
    world.run("j");
    let first = world.live("j")[0].clone();
    world.finish(first.id, OutcomeKind::Failed, false);
    let decision = world.run("j");
    assert!(decision.plan.placements.is_empty());
    let later = &decision.new_evals[0];
    assert_eq!(later.triggered_by, Trigger::AllocReschedule);
    assert_eq!(later.wait_until, Some(world.now + 30 * SEC));
    assert_eq!(later.status_description, "created for delayed rescheduling");
    assert_eq!(world.allocs[&first.id].follow_up_eval, Some(later.id));
    assert!(world.run("j").new_evals.is_empty(), "one follow-up is enough");
    world.now += 30 * SEC;
    let later = later.clone();
    world.step(&later, 1);
    let second = world.live("j")[0].clone();
    assert_eq!(second.previous_allocation, Some(first.id));
    assert_ne!(second.node_id, first.node_id, "the node where it failed is penalised");
    let tracker = second.reschedule_tracker.clone().unwrap();
    assert_eq!((tracker.events.len(), tracker.events[0].delay), (1, 30 * SEC));
    assert_eq!(world.allocs[&first.id].desired_description, "alloc was rescheduled because it failed");
}

#[test]
fn what_is_lost_is_replaced_and_what_comes_back_is_not_doubled() {
    let mut world = World::with_nodes(3);
    world.register(service(2));
    world.run("j");
    world.nodes_act();
    world.run("j");
    let gone = world.live("j")[0].clone();
    let at = u64::from_be_bytes(gone.node_id.0[8..].try_into().unwrap());
    world.edit_node(at, |n| n.status = NodeStatus::Down);
    world.run("j");
    let old = &world.allocs[&gone.id];
    assert_eq!((old.client_status, old.desired_status), (ClientStatus::Lost, DesiredStatus::Stop));
    assert_eq!(old.desired_description, "alloc is lost since its node is down");
    assert_eq!(world.live("j").len(), 2);
    world.edit_node(at, |n| n.status = NodeStatus::Ready);
    assert!(world.run("j").plan.is_noop());
}

#[test]
fn static_ports_collide_and_dynamic_ones_do_not() {
    let mut world = World::with_nodes(1);
    let network = NetworkResource {
        reserved_ports: vec![Port { label: "http".into(), value: 8080, ..Port::default() }].into(),
        dynamic_ports: vec![
            Port { label: "a".into(), to: -1, ..Port::default() },
            Port { label: "b".into(), ..Port::default() },
        ]
        .into(),
        ..NetworkResource::default()
    };
    let mut spec = job(JobType::Batch, group(2));
    edit_group(&mut spec, |g| g.networks = vec![network].into());
    world.register(spec);
    let decision = world.run("j");
    assert_eq!(world.live("j").len(), 1);
    let metric = &decision.failed_groups["g"];
    assert_eq!(metric.dimension_exhausted["network: reserved port collision http=8080"], 1);
    assert_eq!(decision.queued_allocations["g"], 1);
    let blocked = &decision.new_evals[0];
    assert_eq!((blocked.status, blocked.triggered_by), (EvalStatus::Blocked, Trigger::QueuedAllocs));
    assert!(blocked.class_eligibility["v1:1"]);
    assert_eq!(decision.evaluation.blocked_eval, Some(blocked.id));
    let ports = &world.live("j")[0].resources.shared.ports;
    assert_eq!(ports.len(), 3);
    assert_eq!(ports[1].to, ports[1].value);
    assert!(ports[1..].iter().all(|p| (20_000..=32_000).contains(&p.value) && p.host_ip == "10.0.0.0"));
    assert_ne!(ports[1].value, ports[2].value);
}

#[test]
fn filters_name_their_reason() {
    type Edit = Box<dyn Fn(&mut Job)>;
    let table: Vec<(&str, Edit)> = vec![
        ("missing drivers", Box::new(|j| edit_task(j, |t| t.driver = "docker".into()))),
        (
            "${meta.rack} = nope",
            Box::new(|j| {
                let c = Constraint { l_target: "${meta.rack}".into(), operand: "=".into(), r_target: "nope".into() };
                j.constraints.0.push(c);
            }),
        ),
        (
            "missing network",
            Box::new(|j| {
                edit_group(j, |g| g.networks.0.push(NetworkResource { mode: "bridge".into(), ..Default::default() }));
            }),
        ),
        (
            "missing devices",
            Box::new(|j| {
                edit_task(j, |t| {
                    t.resources.devices.0.push(RequestedDevice { name: "gpu".into(), count: 1, ..Default::default() })
                });
            }),
        ),
        (
            "missing compatible host volumes",
            Box::new(|j| {
                edit_group(j, |g| {
                    let v = VolumeRequest { kind: "host".into(), source: "data".into(), ..Default::default() };
                    g.volumes.insert("data".into(), v);
                });
            }),
        ),
    ];
    for (reason, edit) in table {
        let mut world = World::with_nodes(1);
        let mut spec = job(JobType::Batch, group(2));
        edit(&mut spec);
        world.register(spec);
        let decision = world.run("j");
        let metric = &decision.failed_groups["g"];
        assert_eq!(metric.constraint_filtered.get(reason), Some(&1), "{reason}: {metric:?}");
        assert_eq!((metric.nodes_filtered, metric.coalesced_failures, metric.class_filtered["c"]), (1, 1, 1));
    }
}

#[test]
fn distinct_property_and_spread() {
    let mut world = World::with_nodes(6);
    let mut spec = job(JobType::Service, group(4));
    let c = Constraint { l_target: "${meta.rack}".into(), operand: "distinct_property".into(), r_target: "1".into() };
    edit_group(&mut spec, |g| g.constraints.0.push(c));
    world.register(spec);
    let decision = world.run("j");
    assert_eq!(world.live("j").len(), 3);
    let reasons = &decision.failed_groups["g"].constraint_filtered;
    assert!(reasons.keys().all(|k| k.contains("distinct_property: ${meta.rack}=r")), "{reasons:?}");

    let mut world = World::with_nodes(6);
    let mut spec = job(JobType::Service, group(12));
    spec.spreads.0.push(Spread { attribute: "${meta.rack}".into(), weight: 100, ..Spread::default() });
    world.register(spec);
    world.run("j");
    let mut racks = std::collections::BTreeMap::new();
    for alloc in world.live("j") {
        *racks.entry(world.nodes[&alloc.node_id].meta["rack"].clone()).or_insert(0) += 1;
    }
    assert_eq!(racks.into_values().collect::<Vec<_>>(), [4, 4, 4]);

    let mut world = World::with_nodes(6);
    let mut spec = job(JobType::Service, group(10));
    let target = |value: &str, percent| SpreadTarget { value: value.into(), percent };
    let spread_target = vec![target("r0", 60), target("r1", 40)].into();
    spec.spreads.0.push(Spread { attribute: "${meta.rack}".into(), weight: 100, spread_target });
    world.register(spec);
    world.run("j");
    let on = |rack: &str| world.live("j").iter().filter(|a| world.nodes[&a.node_id].meta["rack"] == rack).count();
    assert_eq!((on("r0"), on("r1"), on("r2")), (6, 4, 0));
}

#[test]
fn reserved_cores_are_not_shared() {
    let mut world = World::with_nodes(1);
    let mut spec = job(JobType::Batch, group(3));
    edit_task(&mut spec, |t| {
        t.resources.cores = 2;
        t.resources.cpu = 0;
    });
    world.register(spec);
    let decision = world.run("j");
    let mut cores: Vec<u16> = world
        .live("j")
        .iter()
        .flat_map(|a| a.resources.tasks["t"].cpu.reserved_cores.iter().copied().collect::<Vec<_>>())
        .collect();
    cores.sort();
    assert_eq!(cores, [0, 1, 2, 3]);
    assert_eq!(world.live("j")[0].resources.tasks["t"].cpu.cpu_shares, 2000);
    assert_eq!(decision.queued_allocations["g"], 1);
}

#[test]
fn an_unknown_reason_fails_the_evaluation() {
    let mut world = World::with_nodes(1);
    world.register(service(1));
    let decision = world.run("j");
    assert_eq!(decision.evaluation.status, EvalStatus::Complete);
    let eval = world.eval("j", Trigger::Scheduled);
    let decision = world.step(&eval, 0);
    assert_eq!(decision.evaluation.status, EvalStatus::Failed);
    assert_eq!(decision.evaluation.status_description, "scheduler cannot handle 'scheduled' evaluation reason");
}

#[test]
fn a_blocked_evaluation_that_still_fails_blocks_again() {
    let mut world = World::with_nodes(1);
    world.register(job(JobType::Batch, group(20)));
    let decision = world.run("j");
    let blocked = decision.new_evals[0].clone();
    assert_eq!(decision.failed_groups["g"].dimension_exhausted["cpu"], 1);
    assert_eq!(decision.failed_groups["g"].coalesced_failures, 11);
    let again = world.step(&blocked, 1);
    assert!(again.new_evals.is_empty());
    assert_eq!((again.evaluation.id, again.evaluation.status), (blocked.id, EvalStatus::Blocked));
    world.add_node(node(7));
    world.add_node(node(8));
    let done = world.step(&blocked, 1);
    assert_eq!((done.evaluation.status, world.live("j").len()), (EvalStatus::Complete, 20));
}

#[test]
fn equal_grants_and_metrics_are_shared() {
    let mut world = World::with_nodes(2);
    world.register(job(JobType::Batch, group(8)));
    world.run("j");
    let live = world.live("j");
    assert!(live.iter().all(|a| Arc::ptr_eq(&a.resources, &live[0].resources)));
    assert!(live.iter().all(|a| Arc::ptr_eq(&a.task_group, &live[0].task_group)));
}
