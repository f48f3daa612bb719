//! Small clusters to test with.

use herdsman_model::{
    AllocId, Allocation, ClientStatus, DeploymentGroup, DeploymentId, EphemeralDisk, EvalId, Hook, Job, JobType, List,
    Name, Node, NodeId, NodeStatus, Outcome, OutcomeKind, ReschedulePolicy, Task, TaskGroup, TaskLifecycle,
};
use herdsman_proto::AllocUpdate;
use herdsman_state::{
    ApplyPlan, Body, Command, EvalRequest, IdSeed, JobKey, Outcome as Applied, RegisterJob, Reply, Store, UpdateAllocs,
    UpsertNode,
};
use std::sync::Arc;

pub const SECOND: i64 = 1_000_000_000;

pub fn bytes(n: u8) -> [u8; 16] {
    [n; 16]
}

pub fn task(name: &str) -> Arc<Task> {
    Arc::new(Task { name: name.into(), driver: "mock_driver".into(), ..Task::default() })
}

pub fn poststop(name: &str) -> Arc<Task> {
    let lifecycle = TaskLifecycle { hook: Hook::Poststop, ..TaskLifecycle::default() };
    Arc::new(Task { name: name.into(), driver: "mock_driver".into(), lifecycle: Some(lifecycle), ..Task::default() })
}

pub fn job(id: &str, kind: JobType) -> Job {
    let group = TaskGroup {
        name: "g".into(),
        count: 1,
        tasks: List(vec![task("main"), poststop("clean")]),
        ephemeral_disk: EphemeralDisk { size_mb: 300, ..EphemeralDisk::default() },
        reschedule_policy: Some(ReschedulePolicy {
            unlimited: true,
            delay: 5 * SECOND,
            delay_function: "constant".into(),
            ..ReschedulePolicy::default()
        }),
        ..TaskGroup::default()
    };
    Job {
        id: id.into(),
        name: id.into(),
        namespace: "default".into(),
        region: "global".into(),
        kind,
        priority: 50,
        datacenters: List(vec!["*".into()]),
        node_pool: "default".into(),
        task_groups: List(vec![Arc::new(group)]),
        ..Job::default()
    }
}

pub fn node(n: u8) -> Node {
    Node {
        id: NodeId(bytes(n)),
        name: Name::from(format!("node-{n}")),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        ..Node::default()
    }
}

pub fn alloc(n: u8, job: &Job, node: u8) -> Allocation {
    Allocation {
        id: AllocId(bytes(n)),
        namespace: Name::from(job.namespace.as_str()),
        name: format!("{}.g[{n}]", job.id),
        eval_id: EvalId(bytes(200)),
        node_id: NodeId(bytes(node)),
        node_name: Name::from(format!("node-{node}")),
        job_id: Name::from(job.id.as_str()),
        job_version: job.version,
        job_create_index: job.create_index,
        job_modify_index: job.job_modify_index,
        task_group: Name::from("g"),
        ..Allocation::default()
    }
}

/// A store with time that passes one second per command.
pub struct Cluster {
    pub store: Store,
    pub now: i64,
    pub seeds: u64,
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster { store: Store::new(), now: 1_700_000_000 * SECOND, seeds: 0 }
    }

    pub fn seed(&mut self) -> IdSeed {
        self.seeds += 1;
        IdSeed(self.seeds, 77)
    }

    pub fn apply(&mut self, body: Body) -> Applied {
        self.now += SECOND;
        self.store.apply(Command { now: self.now, body })
    }

    pub fn must(&mut self, body: Body) -> Reply {
        let name = body.name();
        self.apply(body).result.unwrap_or_else(|refusal| panic!("{name}: {refusal}"))
    }

    pub fn add_node(&mut self, n: u8) {
        let seed = self.seed();
        self.must(Body::UpsertNode(Box::new(UpsertNode { node: node(n), ready: true, seed })));
        assert_eq!(self.store.snapshot().node(&NodeId(bytes(n))).unwrap().status, NodeStatus::Ready);
    }

    pub fn register(&mut self, job: Job) -> Arc<Job> {
        let seed = self.seed();
        let key = JobKey::of(&job);
        let eval = Some(EvalRequest::default());
        self.must(Body::RegisterJob(Box::new(RegisterJob { job, eval, seed, ..RegisterJob::default() })));
        self.store.snapshot().job_by_key(&key).unwrap().clone()
    }

    pub fn place(&mut self, allocs: Vec<Allocation>) -> Reply {
        let seed = self.seed();
        let placements = allocs.into_iter().map(Arc::new).collect();
        self.must(Body::ApplyPlan(Box::new(ApplyPlan { placements, seed, ..ApplyPlan::default() })))
    }

    pub fn client(&mut self, update: AllocUpdate) -> Reply {
        let seed = self.seed();
        self.must(Body::UpdateAllocs(UpdateAllocs { updates: vec![update], seed }))
    }

    pub fn alloc(&self, n: u8) -> Arc<Allocation> {
        self.store.snapshot().alloc(&AllocId(bytes(n))).unwrap().clone()
    }
}

pub fn says(n: u8, status: ClientStatus) -> AllocUpdate {
    AllocUpdate { id: AllocId(bytes(n)), client_status: status, ..AllocUpdate::default() }
}

/// Main tasks over this way, poststop still running.
pub fn cleaning(n: u8, kind: OutcomeKind) -> AllocUpdate {
    AllocUpdate { outcome: Some(Outcome { kind, time: 5 }), ..says(n, ClientStatus::Running) }
}

pub fn deployment_of(job: &Job, total: i64) -> herdsman_model::Deployment {
    let group = DeploymentGroup { desired_total: total, progress_deadline: 600 * SECOND, ..DeploymentGroup::default() };
    herdsman_model::Deployment {
        id: DeploymentId(bytes(99)),
        namespace: Name::from(job.namespace.as_str()),
        job_id: Name::from(job.id.as_str()),
        job_version: job.version,
        job_create_index: job.create_index,
        task_groups: [("g".to_owned(), group)].into(),
        ..Default::default()
    }
}
