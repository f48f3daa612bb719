//! Stored bytes of every command. They never change: a log written by an older build must stay readable.

use crate::help::{Cluster, alloc, deployment_of, job, node, says};
use herdsman_model::{
    AllocId, AllocStop, ClientStatus, DesiredStatus, DesiredTransition, DrainStrategy, EvalId, Evaluation, JobType,
    NodeEvent, NodeId, NodeStatus,
};
use herdsman_proto::ServiceRegistration;
use herdsman_state::*;
use std::fmt::Write as _;
use std::sync::Arc;

fn every_body() -> Vec<Body> {
    let seed = IdSeed(1, 2);
    let web = job("web", JobType::Service);
    let stop = AllocStop {
        id: AllocId([1; 16]),
        desired_status: DesiredStatus::Stop,
        desired_description: "alloc not needed due to job update".into(),
        client_status: Some(ClientStatus::Lost),
        follow_up_eval: None,
        preempted_by: None,
        reschedule_failed: false,
    };
    let transition = DesiredTransition { migrate: Some(true), ..DesiredTransition::default() };
    let eval = Evaluation { id: EvalId([3; 16]), priority: 50, ..Evaluation::default() };
    let drain = DrainStrategy { deadline: 60, ..DrainStrategy::default() };
    let event = NodeEvent { message: "m".into(), ..NodeEvent::default() };
    let named = || DeleteNamed { names: vec!["a".into()], region: "global".into() };
    let (ns, id) = (|| "default".to_owned(), || "web".to_owned());
    vec![
        Body::RegisterJob(Box::new(RegisterJob {
            job: web.clone(),
            submission: Some(JobSubmission { source: "job".into(), ..JobSubmission::default() }),
            eval: Some(EvalRequest::default()),
            enforce_index: Some(4),
            keep_versions: 6,
            seed,
        })),
        Body::DeregisterJob(DeregisterJob { namespace: ns(), job_id: id(), purge: true, seed, ..Default::default() }),
        Body::UpsertEvals(UpsertEvals { evals: vec![eval.clone()], ..Default::default() }),
        Body::ApplyPlan(Box::new(ApplyPlan {
            eval_id: eval.id,
            stops: vec![stop],
            placements: vec![Arc::new(alloc(9, &web, 1)), Arc::new(alloc(10, &web, 2))],
            deployment: Some(deployment_of(&web, 2)),
            evals: vec![eval],
            seed,
            ..Default::default()
        })),
        Body::UpdateAllocs(UpdateAllocs { updates: vec![says(9, ClientStatus::Running)], seed }),
        Body::AllocTransitions(AllocTransitions {
            transitions: [(AllocId([9; 16]), transition)].into(),
            triggered_by: None,
            seed,
        }),
        Body::UpsertNode(Box::new(UpsertNode { node: node(1), ready: true, seed })),
        Body::NodeStatus(SetNodeStatus {
            node_ids: vec![NodeId([1; 16])],
            status: NodeStatus::Down,
            event: None,
            seed,
        }),
        Body::NodeEligibility(SetNodeEligibility { node_id: NodeId([1; 16]), seed, ..Default::default() }),
        Body::NodeDrain(SetNodeDrain { node_id: NodeId([1; 16]), drain: Some(drain), seed, ..Default::default() }),
        Body::NodeEvents(NodeEvents { events: [(NodeId([1; 16]), vec![event])].into() }),
        Body::DeleteNodes(DeleteNodes { node_ids: vec![NodeId([1; 16])], seed }),
        Body::DeploymentStatus(Box::new(SetDeploymentStatus { revert_to: Some(1), seed, ..Default::default() })),
        Body::PromoteDeployment(PromoteDeployment { groups: vec!["g".into()], seed, ..Default::default() }),
        Body::AllocHealth(Box::new(AllocHealth { seed, ..Default::default() })),
        Body::JobStability(JobStability { namespace: ns(), job_id: id(), version: 1, stable: true }),
        Body::ScaleJob(ScaleJob {
            namespace: ns(),
            job_id: id(),
            group: "g".into(),
            count: Some(2),
            seed,
            ..Default::default()
        }),
        Body::JobVersionTag(JobVersionTag {
            namespace: ns(),
            job_id: id(),
            name: "t".into(),
            version: Some(0),
            ..Default::default()
        }),
        Body::Services(ServiceUpdates {
            register: vec![ServiceRegistration { id: "s".into(), ..Default::default() }],
            deregister: vec!["o".into()],
            within: None,
        }),
        Body::LaunchPeriodic(Box::new(LaunchPeriodic {
            namespace: ns(),
            job_id: id(),
            launch: 5,
            seed,
            ..Default::default()
        })),
        Body::DispatchJob(Box::new(DispatchJob {
            namespace: ns(),
            job_id: id(),
            idempotency_token: "k".into(),
            seed,
            ..Default::default()
        })),
        Body::SchedulerConfig(SetSchedulerConfig { cas: Some(3), ..Default::default() }),
        Body::UpsertNamespaces(UpsertNamespaces {
            namespaces: vec![Namespace { name: "a".into(), ..Default::default() }],
        }),
        Body::DeleteNamespaces(named()),
        Body::UpsertNodePools(UpsertNodePools { pools: vec![NodePool { name: "a".into(), ..Default::default() }] }),
        Body::DeleteNodePools(named()),
        Body::Gc(Gc { evals: vec![EvalId([3; 16])], ..Default::default() }),
    ]
}

/// The checked-in bytes, one command a line: kind, name, hex.
fn golden() -> String {
    let mut text = String::new();
    for body in every_body() {
        let (kind, name) = (body.kind(), body.name());
        let stored = Command { now: 1_700_000_000_000_000_000, body }.encode().unwrap();
        write!(text, "{kind} {name} ").unwrap();
        for byte in stored {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands.golden")
}

#[test]
fn every_command_keeps_its_stored_bytes() {
    let now = golden();
    if std::env::var_os("HERDSMAN_WRITE_GOLDEN").is_some() {
        std::fs::write(path(), &now).unwrap();
    }
    let kept = std::fs::read_to_string(path()).unwrap();
    for (now, kept) in now.lines().zip(kept.lines()) {
        let name = now.split(' ').nth(1).unwrap_or_default();
        assert!(now == kept, "the stored form of {name} changed; a log written before could not be read the same way");
    }
    assert_eq!(now.lines().count(), kept.lines().count());
}

#[test]
fn stored_commands_read_back_as_they_were() {
    let bodies = every_body();
    let kinds: Vec<u32> = bodies.iter().map(Body::kind).collect();
    assert_eq!(kinds, (1..=27).collect::<Vec<_>>(), "every kind has its golden bytes");
    for body in bodies {
        let command = Command { now: 5, body };
        assert_eq!(Command::decode(&command.encode().unwrap()).unwrap(), command);
    }
}

#[test]
fn what_this_build_does_not_know_is_refused_and_raises_the_index() {
    let mut cluster = Cluster::new();
    let before = cluster.store.snapshot().to_stored().unwrap();
    // Envelope with version 2; with kind 999; no envelope at all; a body that is no JSON.
    let cases: [(&[u8], &str); 4] = [
        (&[0x08, 2, 0x10, 1, 0x22, 2, b'{', b'}'], "format version 2"),
        (&[0x08, 1, 0x10, 0xe7, 0x07, 0x22, 2, b'{', b'}'], "kind 999"),
        (&[0xff, 0xff, 0xff], "envelope"),
        (&[0x08, 1, 0x10, 2, 0x22, 1, b'?'], "body of command 2"),
    ];
    for (place, (bytes, text)) in cases.into_iter().enumerate() {
        let outcome = cluster.store.apply_stored(bytes);
        let refusal = outcome.result.unwrap_err();
        assert!(refusal.message.contains(text), "{refusal}");
        assert_eq!(outcome.index, 2 + place as u64);
        assert!(outcome.changes.is_empty());
    }
    assert_eq!(before.len(), cluster.store.snapshot().to_stored().unwrap().len());
}

#[test]
fn a_damaged_snapshot_is_refused_whatever_byte_is_damaged() {
    let mut cluster = Cluster::new();
    cluster.add_node(1);
    cluster.register(job("web", JobType::Service));
    let stored = cluster.store.snapshot().to_stored().unwrap();
    Store::read_from(&mut stored.as_slice()).unwrap();
    for place in (0..stored.len()).step_by(7) {
        let mut damaged = stored.clone();
        damaged[place] ^= 0x20;
        assert!(Store::read_from(&mut damaged.as_slice()).is_err(), "byte {place} of {}", stored.len());
        assert!(Store::read_from(&mut &stored[..place]).is_err(), "cut at {place}");
    }
}
