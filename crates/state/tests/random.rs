//! Random commands: what must hold after any of them.

use crate::help::{Cluster, alloc, bytes, cleaning, job, node, says};
use herdsman_model::*;
use herdsman_state::*;
use proptest::prelude::*;
use std::sync::Arc;

const JOBS: [&str; 3] = ["a", "b", "sys"];

fn kind_of(id: &str) -> JobType {
    match id {
        "sys" => JobType::System,
        "b" => JobType::Batch,
        _ => JobType::Service,
    }
}

/// One random step, as small numbers that mean something only together with the cluster.
type Step = (u8, u8, u8, u8);

/// The command of a step. It may make no sense: then it must be refused or do nothing.
fn body(cluster: &mut Cluster, (what, a, b, c): Step) -> Body {
    let seed = cluster.seed();
    let id = JOBS[usize::from(a) % JOBS.len()];
    let (ns, n) = ("default".to_owned(), a % 4 + 1);
    let current = cluster.store.snapshot().job("default", id).cloned();
    let placed = |offset: u8| {
        let base = current.clone().unwrap_or_else(|| Arc::new(job(id, kind_of(id))));
        let mut planned = alloc(b.wrapping_add(offset) % 40, &base, c % 4 + 1);
        planned.eval_id = EvalId(bytes(b % 10));
        if c % 3 == 0 {
            planned.deployment_id = Some(DeploymentId(bytes(a % 5)));
            planned.deployment_status = Some(DeploymentStatus { canary: b % 2 == 0, ..DeploymentStatus::default() });
        }
        Arc::new(planned)
    };
    match what % 22 {
        0..=2 => {
            let mut wanted = job(id, kind_of(id));
            wanted.priority = i64::from(b % 4) + 50;
            wanted.stop = c % 7 == 0;
            let eval = (c % 2 == 0).then(EvalRequest::default);
            Body::RegisterJob(Box::new(RegisterJob { job: wanted, eval, seed, keep_versions: 2, ..Default::default() }))
        }
        3 => Body::DeregisterJob(DeregisterJob {
            namespace: ns,
            job_id: id.into(),
            purge: b % 2 == 0,
            no_shutdown_delay: c % 2 == 0,
            seed,
            ..Default::default()
        }),
        4..=7 => {
            let deployment = (c % 3 == 0).then(|| {
                let base = current.clone().unwrap_or_else(|| Arc::new(job(id, kind_of(id))));
                let mut deployment = crate::help::deployment_of(&base, 3);
                deployment.id = DeploymentId(bytes(a % 5));
                deployment
            });
            let stop = AllocStop {
                id: AllocId(bytes(c % 40)),
                desired_status: DesiredStatus::Stop,
                desired_description: "x".into(),
                client_status: [None, Some(ClientStatus::Lost), Some(ClientStatus::Unknown)][usize::from(b) % 3],
                follow_up_eval: (a % 2 == 0).then_some(EvalId(bytes(b % 10))),
                preempted_by: None,
                reschedule_failed: b % 5 == 0,
            };
            let evals = vec![Evaluation {
                id: EvalId(bytes(b % 10)),
                namespace: "default".into(),
                job_id: Name::from(id),
                status: EvalStatus::Complete,
                ..Evaluation::default()
            }];
            Body::ApplyPlan(Box::new(ApplyPlan {
                all_at_once: a % 9 == 0,
                stops: vec![stop],
                placements: vec![placed(0), placed(1)],
                deployment,
                evals,
                seed,
                ..Default::default()
            }))
        }
        8..=11 => {
            let statuses = [
                ClientStatus::Pending,
                ClientStatus::Running,
                ClientStatus::Complete,
                ClientStatus::Failed,
                ClientStatus::Unknown,
            ];
            let mut update = says(b % 40, statuses[usize::from(c) % 5]);
            if a % 4 == 0 {
                update = cleaning(
                    b % 40,
                    [OutcomeKind::Complete, OutcomeKind::Failed, OutcomeKind::Stopped][usize::from(c) % 3],
                );
            }
            update.deployment_status =
                (a % 3 == 0).then(|| DeploymentStatus { healthy: Some(c % 2 == 0), ..Default::default() });
            Body::UpdateAllocs(UpdateAllocs { updates: vec![update], seed })
        }
        12 => Body::UpsertNode(Box::new(UpsertNode { node: node(n), ready: b % 2 == 0, seed })),
        13 => {
            let status = [NodeStatus::Ready, NodeStatus::Down, NodeStatus::Disconnected, NodeStatus::Initializing]
                [usize::from(b) % 4];
            Body::NodeStatus(SetNodeStatus { node_ids: vec![NodeId(bytes(n))], status, event: None, seed })
        }
        14 => Body::NodeDrain(SetNodeDrain {
            node_id: NodeId(bytes(n)),
            drain: (b % 2 == 0).then(DrainStrategy::default),
            mark_eligible: c % 2 == 0,
            seed,
            ..Default::default()
        }),
        15 => Body::DeleteNodes(DeleteNodes { node_ids: vec![NodeId(bytes(n))], seed }),
        16 => {
            let status = [EvalStatus::Pending, EvalStatus::Blocked, EvalStatus::Complete, EvalStatus::Failed]
                [usize::from(b) % 4];
            Body::UpsertEvals(UpsertEvals {
                evals: vec![Evaluation {
                    id: EvalId(bytes(c % 10)),
                    namespace: "default".into(),
                    job_id: Name::from(id),
                    status,
                    ..Evaluation::default()
                }],
                ..Default::default()
            })
        }
        17 => {
            let status = [
                DeploymentState::Failed,
                DeploymentState::Paused,
                DeploymentState::Running,
                DeploymentState::Successful,
            ][usize::from(b) % 4];
            Body::DeploymentStatus(Box::new(SetDeploymentStatus {
                deployment_id: DeploymentId(bytes(a % 5)),
                status,
                revert_to: (c % 2 == 0).then_some(u64::from(c) % 4),
                eval: true,
                seed,
                ..Default::default()
            }))
        }
        18 => Body::AllocHealth(Box::new(AllocHealth {
            deployment_id: DeploymentId(bytes(a % 5)),
            marks: HealthMarks { healthy: vec![AllocId(bytes(b % 40))], unhealthy: vec![] },
            seed,
            ..Default::default()
        })),
        19 => Body::ScaleJob(ScaleJob {
            namespace: ns,
            job_id: id.into(),
            group: "g".into(),
            count: Some(i64::from(b % 3)),
            seed,
            ..Default::default()
        }),
        20 => {
            let mut child = job(&format!("a/dispatch-{b}"), JobType::Batch);
            child.parent_id = "a".into();
            child.dispatch_idempotency_token = format!("{}", c % 3);
            Body::DispatchJob(Box::new(DispatchJob {
                namespace: ns,
                job_id: "a".into(),
                idempotency_token: format!("{}", c % 3),
                child,
                eval: true,
                seed,
            }))
        }
        _ => Body::Gc(Gc {
            allocs: (0..20).map(|n| AllocId(bytes(n))).collect(),
            evals: (0..5).map(|n| EvalId(bytes(n))).collect(),
            deployments: vec![DeploymentId(bytes(a % 5))],
            jobs: current
                .iter()
                .map(|job| GcJob {
                    namespace: "default".into(),
                    job_id: job.id.clone(),
                    modify_index: job.job_modify_index,
                })
                .collect(),
            nodes: vec![NodeId(bytes(n))],
            force_evals: b % 4 == 0,
        }),
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<Step>(), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn indexes_agree_with_rows_and_the_index_rises(steps in steps()) {
        let mut cluster = Cluster::new();
        for step in steps {
            let before = cluster.store.snapshot().index();
            let body = body(&mut cluster, step);
            let name = body.name();
            let outcome = cluster.apply(body);
            prop_assert_eq!(outcome.index, before + 1);
            prop_assert!(outcome.changes.iter().all(|change| change.index == outcome.index));
            if let Err(what) = cluster.store.snapshot().check() {
                prop_assert!(false, "{} disagree after {} {:?}", what, name, outcome.result);
            }
        }
    }

    #[test]
    fn the_same_commands_give_the_same_bytes_also_across_a_restore(steps in steps(), cut in 0usize..60) {
        let mut cluster = Cluster::new();
        let mut commands = Vec::new();
        for step in steps {
            let body = body(&mut cluster, step);
            let command = Command { now: cluster.now, body };
            commands.push(command.encode().unwrap());
            cluster.now += 1_000_000_000;
            cluster.store.apply(command);
        }
        let first = cluster.store.snapshot().to_stored().unwrap();
        let mut again = Store::new();
        for (place, command) in commands.iter().enumerate() {
            if place == cut {
                let stored = again.snapshot().to_stored().unwrap();
                again = Store::read_from(&mut stored.as_slice()).unwrap();
                prop_assert_eq!(again.snapshot().check(), Ok(()));
                prop_assert_eq!(again.snapshot().to_stored().unwrap(), stored);
            }
            again.apply_stored(command);
        }
        prop_assert!(first == again.snapshot().to_stored().unwrap());
    }
}
