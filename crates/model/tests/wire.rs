use crate::shared::{api_body, differences, goldens, read_json};
use herdsman_model::wire;
use herdsman_model::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

fn text(v: &Value, key: &str) -> String {
    v[key].as_str().unwrap_or_default().to_string()
}
fn number(v: &Value, key: &str) -> i64 {
    v[key].as_i64().unwrap_or_default()
}
fn index(v: &Value, key: &str) -> u64 {
    v[key].as_u64().unwrap_or_default()
}
fn id<T: std::str::FromStr>(v: &Value, key: &str) -> Option<T> {
    v[key].as_str().and_then(|s| s.parse().ok())
}
fn read<T: serde::de::DeserializeOwned>(v: &Value) -> T {
    serde_json::from_value(v.clone()).unwrap_or_else(|e| panic!("{e}: {v}"))
}

/// Nanoseconds of an RFC 3339 text in UTC.
fn time(v: &Value) -> Option<Nanos> {
    let text = v.as_str()?;
    let (date, clock) = text.strip_suffix('Z').unwrap().split_once('T').unwrap();
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let parts: Vec<i64> = date.split('-').chain(clock.split(':')).map(|p| p.parse().unwrap()).collect();
    let days =
        (1970..parts[0]).map(|y| if y % 4 == 0 && (y % 100 != 0 || y % 400 == 0) { 366 } else { 365 }).sum::<i64>();
    let leap = parts[0] % 4 == 0 && (parts[0] % 100 != 0 || parts[0] % 400 == 0);
    let months = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days = days + months[..(parts[1] - 1) as usize].iter().sum::<i64>() + parts[2] - 1;
    let seconds = days * 86_400 + parts[3] * 3600 + parts[4] * 60 + parts[5];
    Some(seconds * 1_000_000_000 + format!("{fraction:0<9}").parse::<i64>().unwrap())
}

/// The fact behind a recorded event.
fn event(v: &Value) -> TaskEvent {
    let shown = text(v, "DisplayMessage");
    let fact = match text(v, "Type").as_str() {
        "Received" => TaskFact::Received,
        "Started" => TaskFact::Started,
        "Task Setup" => TaskFact::TaskSetup { message: text(v, "Message") },
        "Terminated" => TaskFact::Terminated {
            exit_code: number(v, "ExitCode") as i32,
            signal: number(v, "Signal") as i32,
            message: text(v, "Message"),
            oom_killed: v["Details"]["oom_killed"] == "true",
        },
        "Killing" => TaskFact::Killing {
            reason: if shown.starts_with("Sent interrupt") { String::new() } else { shown },
            kill_timeout: number(v, "KillTimeout"),
            fails_task: v["FailsTask"] == true,
        },
        "Killed" => TaskFact::Killed { error: text(v, "KillError") },
        "Restarting" => TaskFact::Restarting { reason: text(v, "RestartReason"), delay: number(v, "StartDelay") },
        "Not Restarting" => TaskFact::NotRestarting { reason: text(v, "RestartReason") },
        "Driver" => TaskFact::Driver { message: text(v, "DriverMessage") },
        "Driver Failure" => TaskFact::DriverFailure { error: text(v, "DriverError") },
        "Failed Validation" => TaskFact::FailedValidation { error: text(v, "ValidationError") },
        "Downloading Artifacts" => TaskFact::DownloadingArtifacts,
        "Failed Artifact Download" => TaskFact::FailedArtifactDownload { error: text(v, "DownloadError") },
        "Sibling Task Failed" => TaskFact::SiblingFailed { task: text(v, "FailedSibling").into() },
        "Leader Task Dead" => TaskFact::LeaderDead,
        "Main Tasks Dead" => TaskFact::MainDead,
        "Task hook failed" => {
            let message = text(v, "Message");
            let (hook, error) = message.split_once(": ").unwrap();
            TaskFact::HookFailed { hook: hook.into(), error: error.into() }
        }
        "Signaling" => TaskFact::Signaling { signal: text(&v["Details"], "signal"), reason: String::new() },
        "Template" => TaskFact::Template { message: shown, fails_task: false },
        "Waiting for shutdown delay" => TaskFact::WaitingShutdownDelay { delay: 2_000_000_000 },
        other => panic!("no fact for {other}"),
    };
    TaskEvent { time: number(v, "Time"), fact }
}

fn visit(v: &Value, seen: &mut impl FnMut(&Value)) {
    seen(v);
    match v {
        Value::Array(items) => items.iter().for_each(|i| visit(i, seen)),
        Value::Object(map) => map.values().for_each(|i| visit(i, seen)),
        _ => {}
    }
}

#[test]
fn every_recorded_task_event_is_encoded_the_same() {
    let mut count = 0;
    for folder in ["runtime/task-events", "api"] {
        for entry in std::fs::read_dir(goldens().join(folder)).unwrap().filter_map(Result::ok) {
            if entry.path().extension().is_none_or(|e| e != "json") {
                continue;
            }
            visit(&read_json(&entry.path()), &mut |v| {
                if v.get("DisplayMessage").is_none() || v.get("GenericSource").is_none() {
                    return;
                }
                count += 1;
                let mut got = event(v).wire();
                if text(v, "Type") == "Driver" {
                    // Drivers' free details are not kept.
                    got["Details"] = v["Details"].clone();
                }
                assert_eq!(differences(&got, v), Vec::<String>::new(), "{}", entry.path().display());
            });
        }
    }
    assert!(count > 200, "only {count} recorded events");
}

fn task_state(v: &Value) -> TaskState {
    TaskState {
        state: read(&v["State"]),
        failed: v["Failed"] == true,
        restarts: index(v, "Restarts"),
        last_restart: time(&v["LastRestart"]),
        started_at: time(&v["StartedAt"]),
        finished_at: time(&v["FinishedAt"]),
        events: v["Events"].as_array().into_iter().flatten().map(event).collect(),
    }
}

fn allocation(v: &Value) -> Allocation {
    let tracker = v.get("RescheduleTracker").filter(|t| !t.is_null()).map(|t| RescheduleTracker {
        events: t["Events"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|e| RescheduleEvent {
                time: number(e, "RescheduleTime"),
                prev_alloc: id(e, "PrevAllocID").unwrap(),
                prev_node: id(e, "PrevNodeID").unwrap(),
                delay: number(e, "Delay"),
            })
            .collect(),
        last_reschedule: text(t, "LastReschedule"),
    });
    Allocation {
        id: id(v, "ID").unwrap(),
        namespace: text(v, "Namespace").into(),
        name: text(v, "Name"),
        eval_id: id(v, "EvalID").unwrap(),
        node_id: id(v, "NodeID").unwrap(),
        node_name: text(v, "NodeName").into(),
        job_id: text(v, "JobID").into(),
        job_version: index(v, "JobVersion"),
        task_group: text(v, "TaskGroup").into(),
        resources: v.get("AllocatedResources").map(read::<AllocatedResources>).map(Arc::new).unwrap_or_default(),
        metrics: v.get("Metrics").map(|m| Arc::new(read(m))),
        desired_status: read(&v["DesiredStatus"]),
        desired_description: text(v, "DesiredDescription"),
        desired_transition: v.get("DesiredTransition").map(read).unwrap_or_default(),
        client_status: read(&v["ClientStatus"]),
        client_description: text(v, "ClientDescription"),
        task_states: v["TaskStates"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, s)| (k.as_str().into(), task_state(s)))
            .collect(),
        deployment_id: id(v, "DeploymentID"),
        deployment_status: v.get("DeploymentStatus").filter(|d| !d.is_null()).map(|d| DeploymentStatus {
            healthy: d["Healthy"].as_bool(),
            timestamp: time(&d["Timestamp"]),
            canary: d["Canary"] == true,
            modify_index: index(d, "ModifyIndex"),
        }),
        reschedule_tracker: tracker.map(Arc::new),
        network_status: v.get("NetworkStatus").map(read),
        follow_up_eval: id(v, "FollowupEvalID"),
        next_allocation: id(v, "NextAllocation"),
        create_index: index(v, "CreateIndex"),
        modify_index: index(v, "ModifyIndex"),
        alloc_modify_index: index(v, "AllocModifyIndex"),
        create_time: number(v, "CreateTime"),
        modify_time: number(v, "ModifyTime"),
        ..Allocation::default()
    }
}

fn same(got: impl serde::Serialize, want: &Value, what: &str, ours_to_keep: &[&str]) {
    let diffs: Vec<String> = differences(&serde_json::to_value(got).unwrap(), want)
        .into_iter()
        .filter(|d| !ours_to_keep.iter().any(|k| d.starts_with(k)))
        .collect();
    assert!(diffs.is_empty(), "{what}:\n{}", diffs.join("\n"));
}

#[test]
fn recorded_allocations_are_shown_the_same() {
    for call in ["117", "174", "318"] {
        let body = api_body(call);
        let job: Job = read(&body["Job"]);
        // The key that signed the identities is not kept with allocations.
        same(wire::alloc(&allocation(&body), &job), &body, call, &[".SigningKeyID"]);
    }
}

#[test]
fn recorded_allocation_lists_are_shown_the_same() {
    for (call, resources, task_states) in
        [("112", false, true), ("113", true, false), ("088", false, true), ("176", false, true), ("317", false, true)]
    {
        for stub in api_body(call).as_array().unwrap() {
            let fields = wire::StubFields { resources, task_states };
            let alloc = allocation(stub);
            same(wire::alloc_stub(&alloc, read(&stub["JobType"]), fields), stub, call, &[]);
        }
    }
}

fn evaluation(v: &Value) -> Evaluation {
    let map = |key: &str| v.get(key).cloned().unwrap_or_else(|| serde_json::json!({}));
    Evaluation {
        id: id(v, "ID").unwrap(),
        namespace: text(v, "Namespace").into(),
        priority: number(v, "Priority"),
        kind: read(&v["Type"]),
        triggered_by: read(&v["TriggeredBy"]),
        job_id: text(v, "JobID").into(),
        job_modify_index: index(v, "JobModifyIndex"),
        node_id: id(v, "NodeID"),
        node_modify_index: index(v, "NodeModifyIndex"),
        deployment_id: id(v, "DeploymentID"),
        status: read(&v["Status"]),
        status_description: text(v, "StatusDescription"),
        wait_until: v.get("WaitUntil").and_then(time),
        next_eval: id(v, "NextEval"),
        previous_eval: id(v, "PreviousEval"),
        blocked_eval: id(v, "BlockedEval"),
        failed_groups: read::<BTreeMap<String, AllocMetric>>(&map("FailedTGAllocs"))
            .into_iter()
            .map(|(k, m)| (k, Arc::new(m)))
            .collect(),
        class_eligibility: read(&map("ClassEligibility")),
        annotations: v.get("PlanAnnotations").map(|a| Arc::new(read(a))),
        queued_allocations: read(&map("QueuedAllocations")),
        snapshot_index: index(v, "SnapshotIndex"),
        create_index: index(v, "CreateIndex"),
        modify_index: index(v, "ModifyIndex"),
        create_time: number(v, "CreateTime"),
        modify_time: number(v, "ModifyTime"),
        ..Evaluation::default()
    }
}

#[test]
fn recorded_evaluations_are_shown_the_same() {
    for call in ["097", "303", "305"] {
        let body = api_body(call);
        same(wire::eval(&evaluation(&body)), &body, call, &[".FailedTGAllocs.filtered.NodesAvailable"]);
    }
    for call in ["090", "102", "319"] {
        for body in api_body(call).as_array().unwrap() {
            same(wire::eval(&evaluation(body)), body, call, &[]);
        }
    }
}

#[test]
fn recorded_deployments_are_shown_the_same() {
    for call in ["107", "286", "290", "299"] {
        let v = api_body(call);
        let groups = v["TaskGroups"].as_object().unwrap().iter().map(|(name, g)| {
            let group = DeploymentGroup {
                auto_revert: g["AutoRevert"] == true,
                auto_promote: g["AutoPromote"] == true,
                progress_deadline: number(g, "ProgressDeadline"),
                require_progress_by: time(&g["RequireProgressBy"]),
                promoted: g["Promoted"] == true,
                placed_canaries: g["PlacedCanaries"].as_array().into_iter().flatten().map(read).collect(),
                desired_canaries: number(g, "DesiredCanaries"),
                desired_total: number(g, "DesiredTotal"),
                placed_allocs: number(g, "PlacedAllocs"),
                healthy_allocs: number(g, "HealthyAllocs"),
                unhealthy_allocs: number(g, "UnhealthyAllocs"),
            };
            (name.clone(), group)
        });
        let deployment = Deployment {
            id: id(&v, "ID").unwrap(),
            namespace: text(&v, "Namespace").into(),
            job_id: text(&v, "JobID").into(),
            job_version: index(&v, "JobVersion"),
            job_modify_index: index(&v, "JobModifyIndex"),
            job_spec_modify_index: index(&v, "JobSpecModifyIndex"),
            job_create_index: index(&v, "JobCreateIndex"),
            is_multiregion: false,
            task_groups: groups.collect(),
            status: read(&v["Status"]),
            status_description: text(&v, "StatusDescription"),
            eval_priority: number(&v, "EvalPriority"),
            create_index: index(&v, "CreateIndex"),
            modify_index: index(&v, "ModifyIndex"),
            create_time: number(&v, "CreateTime"),
            modify_time: number(&v, "ModifyTime"),
        };
        same(wire::deployment(&deployment), &v, call, &[]);
    }
}

#[test]
fn recorded_jobs_are_shown_the_same() {
    for call in ["081", "300", "335", "341"] {
        let body = api_body(call);
        same(read::<Job>(&body), &body, call, &[]);
    }
}

#[test]
fn recorded_job_lists_are_shown_the_same() {
    for (call, with_meta) in [("073", false), ("074", true), ("338", false)] {
        let body = api_body(call);
        for v in body.as_array().unwrap() {
            let s = &v["JobSummary"];
            let group = |g: &Value| wire::GroupSummaryView {
                queued: index(g, "Queued"),
                complete: index(g, "Complete"),
                failed: index(g, "Failed"),
                running: index(g, "Running"),
                starting: index(g, "Starting"),
                lost: index(g, "Lost"),
                unknown: index(g, "Unknown"),
            };
            let summary = wire::JobSummaryView {
                job_id: s["JobID"].as_str().unwrap(),
                namespace: s["Namespace"].as_str().unwrap(),
                summary: s["Summary"].as_object().unwrap().iter().map(|(k, g)| (k.as_str(), group(g))).collect(),
                children: wire::ChildrenView {
                    pending: index(&s["Children"], "Pending"),
                    running: index(&s["Children"], "Running"),
                    dead: index(&s["Children"], "Dead"),
                },
                create_index: index(s, "CreateIndex"),
                modify_index: index(s, "ModifyIndex"),
            };
            let job = Job {
                id: text(v, "ID"),
                parent_id: text(v, "ParentID"),
                name: text(v, "Name"),
                namespace: text(v, "Namespace"),
                datacenters: read(&v["Datacenters"]),
                node_pool: text(v, "NodePool"),
                kind: read(&v["Type"]),
                priority: number(v, "Priority"),
                periodic: (v["Periodic"] == true).then(PeriodicConfig::default),
                parameterized_job: (v["ParameterizedJob"] == true).then(ParameterizedConfig::default),
                stop: v["Stop"] == true,
                status: read(&v["Status"]),
                meta: v.get("Meta").map(read).unwrap_or_default(),
                create_index: index(v, "CreateIndex"),
                modify_index: index(v, "ModifyIndex"),
                job_modify_index: index(v, "JobModifyIndex"),
                submit_time: number(v, "SubmitTime"),
                ..Job::default()
            };
            same(wire::job_stub(&job, Some(summary), with_meta), v, call, &[]);
        }
    }
}

fn node(v: &Value) -> Node {
    let r = &v["NodeResources"];
    let reserved = &v["ReservedResources"];
    Node {
        id: id(v, "ID").unwrap(),
        secret_id: SecretText("hidden".into()),
        name: text(v, "Name").into(),
        datacenter: text(v, "Datacenter"),
        node_pool: text(v, "NodePool"),
        node_class: text(v, "NodeClass"),
        computed_class: text(v, "ComputedClass"),
        attributes: read(&v["Attributes"]),
        meta: read(&v["Meta"]),
        links: read(&v["Links"]),
        resources: NodeResources {
            cpu_shares: number(&r["Cpu"], "CpuShares"),
            total_cores: number(&r["Cpu"], "TotalCpuCores") as u16,
            reservable_cores: read(&r["Cpu"]["ReservableCpuCores"]),
            core_speed_mhz: number(&r["Processors"]["Topology"]["Cores"][0], "BaseSpeed"),
            memory_mb: number(&r["Memory"], "MemoryMB"),
            disk_mb: number(&r["Disk"], "DiskMB"),
            networks: read(&r["Networks"]),
            node_networks: read(&r["NodeNetworks"]),
            min_dynamic_port: number(r, "MinDynamicPort"),
            max_dynamic_port: number(r, "MaxDynamicPort"),
            devices: Vec::new(),
        },
        reserved: NodeReserved { cpu_shares: number(&reserved["Cpu"], "CpuShares"), ..NodeReserved::default() },
        drivers: v["Drivers"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, d)| {
                let info = DriverInfo {
                    detected: d["Detected"] == true,
                    healthy: d["Healthy"] == true,
                    health_description: text(d, "HealthDescription"),
                    attributes: read(&d["Attributes"]),
                    update_time: time(&d["UpdateTime"]).unwrap(),
                };
                (name.clone(), info)
            })
            .collect(),
        host_volumes: read(&v["HostVolumes"]),
        http_addr: text(v, "HTTPAddr"),
        cgroup_parent: text(v, "CgroupParent"),
        status: read(&v["Status"]),
        status_updated_at: number(v, "StatusUpdatedAt"),
        eligibility: read(&v["SchedulingEligibility"]),
        events: v["Events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| NodeEvent {
                message: text(e, "Message"),
                subsystem: text(e, "Subsystem"),
                details: e["Details"].as_object().map(|_| read(&e["Details"])).unwrap_or_default(),
                timestamp: time(&e["Timestamp"]).unwrap(),
                create_index: index(e, "CreateIndex"),
            })
            .collect(),
        create_index: index(v, "CreateIndex"),
        modify_index: index(v, "ModifyIndex"),
        ..Node::default()
    }
}

#[test]
fn recorded_nodes_are_shown_the_same() {
    let body = api_body("045");
    // The key that signed the node's identity is not kept with nodes.
    same(wire::node(&node(&body)), &body, "045", &[".IdentitySigningKeyID"]);
    let text = serde_json::to_string(&wire::node(&node(&body))).unwrap();
    assert!(!text.contains("hidden"), "the secret of a node is shown");
    let of = node(&body);
    same(wire::node_stub(&of, wire::NodeStubFields::default()), &api_body("038")[0], "038", &[]);
    let all = wire::NodeStubFields { resources: true, os: true };
    same(wire::node_stub(&of, all), &api_body("039")[0], "039", &[]);
}

#[test]
fn the_nouns_stay_small() {
    assert!(size_of::<TaskEvent>() <= 64, "{}", size_of::<TaskEvent>());
    assert!(size_of::<TaskState>() <= 128, "{}", size_of::<TaskState>());
    assert!(size_of::<Allocation>() <= 800, "{}", size_of::<Allocation>());
    assert_eq!(size_of::<AllocId>(), 16);
}
