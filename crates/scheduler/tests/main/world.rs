//! A cluster in memory: the snapshot a scheduler reads, and what committing a plan does to it.

use herdsman_model::*;
use herdsman_scheduler::{Config, View, allocs_fit};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const NS: &str = "default";
pub const SEC: i64 = 1_000_000_000;

pub struct World {
    pub index: u64,
    pub now: i64,
    pub jobs: BTreeMap<String, Vec<Arc<Job>>>,
    pub allocs: BTreeMap<AllocId, Arc<Allocation>>,
    pub by_job: BTreeMap<String, Vec<AllocId>>,
    pub nodes: BTreeMap<NodeId, Arc<Node>>,
    pub deployments: Vec<Arc<Deployment>>,
    pub config: Config,
    next_id: u64,
}

impl View for World {
    fn index(&self) -> u64 {
        self.index
    }
    fn job(&self, namespace: &str, id: &str) -> Option<Arc<Job>> {
        self.jobs.get(&key(namespace, id))?.last().cloned()
    }
    fn job_version(&self, namespace: &str, id: &str, version: u64) -> Option<Arc<Job>> {
        self.jobs.get(&key(namespace, id))?.iter().find(|j| j.version == version).cloned()
    }
    fn allocs_by_job(&self, namespace: &str, id: &str) -> Vec<Arc<Allocation>> {
        self.by_job.get(&key(namespace, id)).into_iter().flatten().map(|a| self.allocs[a].clone()).collect()
    }
    fn allocs_by_node(&self, node: &NodeId) -> Vec<Arc<Allocation>> {
        self.allocs.values().filter(|a| a.node_id == *node && !a.client_terminal()).cloned().collect()
    }
    fn alloc(&self, id: &AllocId) -> Option<Arc<Allocation>> {
        self.allocs.get(id).cloned()
    }
    fn node(&self, id: &NodeId) -> Option<Arc<Node>> {
        self.nodes.get(id).cloned()
    }
    fn for_each_node(&self, visit: &mut dyn FnMut(&Arc<Node>)) {
        self.nodes.values().for_each(visit);
    }
    fn latest_deployment(&self, _: &str, job_id: &str) -> Option<Arc<Deployment>> {
        self.deployments.iter().rev().find(|d| *d.job_id == *job_id).cloned()
    }
    fn config(&self) -> Config {
        self.config.clone()
    }
}

/// Jobs of the default namespace go by their id.
fn key(namespace: &str, id: &str) -> String {
    if namespace == NS { id.to_owned() } else { format!("{namespace}/{id}") }
}

pub fn id(n: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    bytes
}

impl World {
    pub fn new() -> World {
        World {
            index: 1,
            now: 1_000_000 * SEC,
            jobs: BTreeMap::new(),
            allocs: BTreeMap::new(),
            by_job: BTreeMap::new(),
            nodes: BTreeMap::new(),
            deployments: Vec::new(),
            config: Config::default(),
            next_id: 1000,
        }
    }

    pub fn with_nodes(count: u64) -> World {
        let mut world = World::new();
        for n in 0..count {
            world.add_node(node(n));
        }
        world
    }

    pub fn add_node(&mut self, node: Node) {
        self.index += 1;
        self.nodes.insert(node.id, Arc::new(node));
    }

    pub fn edit_node(&mut self, n: u64, edit: impl FnOnce(&mut Node)) {
        self.index += 1;
        let node = self.nodes.get_mut(&NodeId(id(n))).unwrap();
        edit(Arc::make_mut(node));
    }

    /// Registers a job: a new version if there is one already.
    pub fn register(&mut self, mut job: Job) -> Arc<Job> {
        self.index += 1;
        let versions = self.jobs.entry(key(&job.namespace, &job.id)).or_default();
        if let Some(last) = versions.last() {
            job.version = last.version + 1;
            job.create_index = last.create_index;
        } else {
            job.create_index = self.index;
        }
        job.modify_index = self.index;
        job.job_modify_index = self.index;
        let job = Arc::new(job);
        versions.push(job.clone());
        job
    }

    pub fn edit_job(&mut self, id: &str, edit: impl FnOnce(&mut Job)) -> Arc<Job> {
        let mut job = (**self.jobs[id].last().unwrap()).clone();
        edit(&mut job);
        self.register(job)
    }

    pub fn edit_alloc(&mut self, id: AllocId, edit: impl FnOnce(&mut Allocation)) {
        self.index += 1;
        let (index, now) = (self.index, self.now);
        let alloc = Arc::make_mut(self.allocs.get_mut(&id).unwrap());
        edit(alloc);
        alloc.modify_index = index;
        alloc.modify_time = now;
    }

    pub fn edit_deployment(&mut self, edit: impl FnOnce(&mut Deployment)) {
        self.index += 1;
        edit(Arc::make_mut(self.deployments.last_mut().unwrap()));
    }

    pub fn eval(&self, job: &str, trigger: Trigger) -> Evaluation {
        let newest = self.jobs[job].last().unwrap();
        Evaluation {
            id: EvalId(id(self.index * 1000)),
            namespace: newest.namespace.as_str().into(),
            priority: newest.priority,
            kind: newest.kind,
            triggered_by: trigger,
            job_id: newest.id.as_str().into(),
            status: EvalStatus::Pending,
            ..Evaluation::default()
        }
    }

    pub fn plan(&mut self, eval: &Evaluation, seed: u64) -> Decision {
        let mut next = self.next_id;
        let mut ids = || {
            next += 1;
            id(next)
        };
        let decision = herdsman_scheduler::process(self, eval, seed, self.now, &mut ids);
        self.next_id = next;
        decision
    }

    /// Plans and commits, after the linter has agreed.
    pub fn step(&mut self, eval: &Evaluation, seed: u64) -> Decision {
        let decision = self.plan(eval, seed);
        let findings = herdsman_scheduler::lint(self, &decision.plan);
        assert!(findings.is_empty(), "{findings:#?}\n{}", brief_plan(&decision.plan));
        self.commit(&decision.plan);
        decision
    }

    /// Evaluates a job for the usual reason.
    pub fn run(&mut self, job: &str) -> Decision {
        let eval = self.eval(job, Trigger::JobRegister);
        self.step(&eval, self.index)
    }

    /// What the plan applier asks before it commits: no node's part is refused.
    pub fn assert_accepted(&self, plan: &Plan) {
        for (id, placements) in &plan.placements {
            if placements.iter().all(|a| self.allocs.contains_key(&a.id)) {
                continue;
            }
            let stops = plan.stops.get(id).into_iter().chain(plan.preemptions.get(id)).flatten();
            let gone: Vec<AllocId> = stops.filter(|s| s.desired_status.is_terminal()).map(|s| s.id).collect();
            let mut after = self.allocs_by_node(id);
            after.retain(|a| !gone.contains(&a.id) && !placements.iter().any(|p| p.id == a.id));
            after.extend(placements.iter().cloned());
            let node = &self.nodes[id];
            allocs_fit(node, &after).unwrap_or_else(|d| panic!("node {id} refuses: {d}\n{}", brief_plan(plan)));
        }
    }

    pub fn commit(&mut self, plan: &Plan) {
        self.assert_accepted(plan);
        self.index += 1;
        let (index, now) = (self.index, self.now);
        for stop in plan.stops.values().chain(plan.preemptions.values()).flatten() {
            let alloc = Arc::make_mut(self.allocs.get_mut(&stop.id).unwrap());
            alloc.desired_status = stop.desired_status;
            alloc.desired_description = stop.desired_description.clone();
            if let Some(status) = stop.client_status {
                alloc.client_status = status;
                alloc.state_changes.push(AllocStateChange { value: status, time: now });
            }
            if stop.follow_up_eval.is_some() {
                alloc.follow_up_eval = stop.follow_up_eval;
            }
            alloc.preempted_by = stop.preempted_by;
            if stop.reschedule_failed {
                let mut tracker = alloc.reschedule_tracker.as_deref().cloned().unwrap_or_default();
                tracker.last_reschedule = "no placement".into();
                alloc.reschedule_tracker = Some(Arc::new(tracker));
            }
            alloc.modify_index = index;
            alloc.modify_time = now;
        }
        if let Some(deployment) = &plan.deployment {
            match self.deployments.iter_mut().find(|d| d.id == deployment.id) {
                Some(known) => {
                    let known = Arc::make_mut(known);
                    for (name, group) in &deployment.task_groups {
                        let part = known.task_groups.entry(name.clone()).or_insert_with(|| group.clone());
                        part.desired_canaries = group.desired_canaries;
                    }
                }
                None => self.deployments.push(Arc::new(deployment.clone())),
            }
        }
        for update in &plan.deployment_updates {
            let known = self.deployments.iter_mut().find(|d| d.id == update.id).unwrap();
            let known = Arc::make_mut(known);
            known.status = update.status;
            known.status_description = update.description.clone();
        }
        for alloc in plan.placements.values().flatten() {
            self.place(alloc, index);
        }
    }

    fn place(&mut self, alloc: &Arc<Allocation>, index: u64) {
        let mut alloc = (**alloc).clone();
        alloc.modify_index = index;
        if !self.allocs.contains_key(&alloc.id) {
            alloc.create_index = index;
            self.by_job.entry(key(&alloc.namespace, &alloc.job_id)).or_default().push(alloc.id);
            if let Some(previous) = alloc.previous_allocation.and_then(|p| self.allocs.get_mut(&p)) {
                Arc::make_mut(previous).next_allocation = Some(alloc.id);
            }
            let deployment = self.deployments.iter_mut().find(|d| Some(d.id) == alloc.deployment_id);
            if let Some(part) = deployment.and_then(|d| Arc::make_mut(d).task_groups.get_mut(&*alloc.task_group)) {
                part.placed_allocs += 1;
                if alloc.is_canary() {
                    part.placed_canaries.push(alloc.id);
                }
            }
        }
        self.allocs.insert(alloc.id, Arc::new(alloc));
    }

    /// No node is to carry more than it can. What was just stopped makes room as it ends.
    pub fn assert_fits(&self) {
        for node in self.nodes.values() {
            let mut on = self.allocs_by_node(&node.id);
            on.retain(|a| !a.server_terminal());
            allocs_fit(node, &on).unwrap_or_else(|d| panic!("node {} exceeds {d}", node.id));
        }
    }

    pub fn latest(&self, job: &str) -> Option<Arc<Deployment>> {
        self.latest_deployment(NS, job)
    }

    pub fn of_job(&self, job: &str) -> Vec<Arc<Allocation>> {
        self.allocs_by_job(NS, job)
    }

    /// Allocations that are wanted and whose work is not over.
    pub fn live(&self, job: &str) -> Vec<Arc<Allocation>> {
        self.of_job(job).into_iter().filter(|a| !a.terminal() && !a.work_over()).collect()
    }

    /// The same, for a job that may be gone.
    pub fn live_of(&self, eval: &Evaluation) -> Vec<Arc<Allocation>> {
        let all = self.allocs_by_job(&eval.namespace, &eval.job_id);
        all.into_iter().filter(|a| !a.terminal()).collect()
    }

    pub fn set_health(&mut self, alloc: AllocId, healthy: bool) {
        let now = self.now;
        let known = self.allocs[&alloc].clone();
        let before = known.healthy();
        self.edit_alloc(alloc, |a| {
            let status = a.deployment_status.get_or_insert_default();
            status.healthy = Some(healthy);
            status.timestamp = Some(now);
        });
        let deployment = self.deployments.iter_mut().find(|d| Some(d.id) == known.deployment_id);
        if let Some(part) = deployment.and_then(|d| Arc::make_mut(d).task_groups.get_mut(&*known.task_group)) {
            match before {
                Some(true) => part.healthy_allocs -= 1,
                Some(false) => part.unhealthy_allocs -= 1,
                None => {}
            }
            if healthy { part.healthy_allocs += 1 } else { part.unhealthy_allocs += 1 }
        }
    }

    /// Nodes do what they are told: what is stopped ends, what is pending runs, and what is deployed is healthy.
    pub fn nodes_act(&mut self) -> bool {
        let mut changed = false;
        let all: Vec<Arc<Allocation>> = self.allocs.values().filter(|a| !a.client_terminal()).cloned().collect();
        for alloc in all {
            let reachable = self.nodes.get(&alloc.node_id).is_some_and(|n| n.status == NodeStatus::Ready);
            if !reachable {
                continue;
            }
            if alloc.server_terminal() {
                let status = if alloc.work_failed() { ClientStatus::Failed } else { ClientStatus::Complete };
                self.edit_alloc(alloc.id, |a| a.client_status = status);
                changed = true;
                continue;
            }
            if alloc.work_over() {
                continue;
            }
            if matches!(alloc.client_status, ClientStatus::Pending | ClientStatus::Unknown) {
                self.edit_alloc(alloc.id, |a| a.client_status = ClientStatus::Running);
                changed = true;
            }
            if alloc.deployment_id.is_some() && alloc.healthy().is_none() {
                self.set_health(alloc.id, true);
                changed = true;
            }
        }
        changed
    }

    pub fn finish(&mut self, alloc: AllocId, kind: OutcomeKind, poststop_runs: bool) {
        let now = self.now;
        self.edit_alloc(alloc, |a| {
            a.outcome = Some(Outcome { kind, time: now });
            if !poststop_runs {
                a.client_status =
                    if kind == OutcomeKind::Failed { ClientStatus::Failed } else { ClientStatus::Complete };
            }
            let state = TaskState {
                state: TaskPhase::Dead,
                failed: kind == OutcomeKind::Failed,
                finished_at: Some(now),
                ..TaskState::default()
            };
            a.task_states.insert("t".into(), state);
        });
    }
}

/// A node like any other.
pub fn node(n: u64) -> Node {
    let addresses = vec![NodeAddress {
        family: "ipv4".into(),
        alias: "default".into(),
        address: format!("10.0.0.{n}"),
        ..NodeAddress::default()
    }];
    Node {
        id: NodeId(id(n)),
        name: format!("node-{n}").into(),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        node_class: "c".into(),
        computed_class: "v1:1".into(),
        attributes: [("driver.raw_exec".to_owned(), "1".to_owned()), ("kernel.name".to_owned(), "linux".to_owned())]
            .into(),
        meta: [("rack".to_owned(), format!("r{}", n % 3))].into(),
        drivers: [("raw_exec".to_owned(), DriverInfo { detected: true, healthy: true, ..DriverInfo::default() })]
            .into(),
        resources: NodeResources {
            cpu_shares: 4000,
            total_cores: 4,
            reservable_cores: vec![0, 1, 2, 3],
            core_speed_mhz: 1000,
            memory_mb: 8000,
            disk_mb: 100_000,
            node_networks: vec![NodeNetwork {
                mode: "host".into(),
                addresses: addresses.into(),
                ..NodeNetwork::default()
            }],
            min_dynamic_port: 20_000,
            max_dynamic_port: 32_000,
            ..NodeResources::default()
        },
        status: NodeStatus::Ready,
        eligibility: Eligibility::Eligible,
        ..Node::default()
    }
}

pub fn task(name: &str, cpu: i64, memory: i64) -> Task {
    Task {
        name: name.into(),
        driver: "raw_exec".into(),
        resources: Resources { cpu, memory_mb: memory, ..Resources::default() },
        ..Task::default()
    }
}

pub fn group(count: i64) -> TaskGroup {
    TaskGroup {
        name: "g".into(),
        count,
        tasks: vec![Arc::new(task("t", 500, 256))].into(),
        ephemeral_disk: EphemeralDisk { size_mb: 300, ..EphemeralDisk::default() },
        ..TaskGroup::default()
    }
}

pub fn job(kind: JobType, group: TaskGroup) -> Job {
    Job {
        id: "j".into(),
        name: "j".into(),
        namespace: NS.into(),
        kind,
        priority: 50,
        datacenters: vec!["*".to_owned()].into(),
        node_pool: "default".into(),
        task_groups: vec![Arc::new(group)].into(),
        ..Job::default()
    }
}

/// A service whose updates go one by one.
pub fn service(count: i64) -> Job {
    let mut group = group(count);
    group.update = Some(UpdateStrategy { max_parallel: 1, ..UpdateStrategy::default() });
    group.reschedule_policy = Some(unlimited());
    job(JobType::Service, group)
}

pub fn unlimited() -> ReschedulePolicy {
    ReschedulePolicy {
        delay: 30 * SEC,
        delay_function: "exponential".into(),
        max_delay: 3600 * SEC,
        unlimited: true,
        ..ReschedulePolicy::default()
    }
}

pub fn limited(attempts: i64) -> ReschedulePolicy {
    ReschedulePolicy {
        attempts,
        interval: 24 * 3600 * SEC,
        delay: 5 * SEC,
        delay_function: "constant".into(),
        ..ReschedulePolicy::default()
    }
}

pub fn edit_group(job: &mut Job, edit: impl FnOnce(&mut TaskGroup)) {
    edit(Arc::make_mut(&mut job.task_groups.0[0]));
}

pub fn edit_task(job: &mut Job, edit: impl FnOnce(&mut Task)) {
    edit_group(job, |g| edit(Arc::make_mut(&mut g.tasks.0[0])));
}

/// An allocation in one line.
pub fn brief(a: &Allocation) -> String {
    format!(
        "{} {} v{} on {} cores={:?} want={} is={} out={:?} health={:?} canary={} prev={:?} next={:?} follow={:?}",
        a.id.to_string().split_off(30),
        a.name,
        a.job_version,
        a.node_id.to_string().split_off(34),
        a.resources.tasks.values().flat_map(|t| t.cpu.reserved_cores.iter()).collect::<Vec<_>>(),
        a.desired_status,
        a.client_status,
        a.outcome.as_ref().map(|o| o.kind),
        a.healthy(),
        a.is_canary(),
        a.previous_allocation.map(|p| p.to_string().split_off(30)),
        a.next_allocation.map(|p| p.to_string().split_off(30)),
        a.follow_up_eval.map(|p| p.to_string().split_off(30)),
    )
}

/// A plan, a line per change.
pub fn brief_plan(plan: &Plan) -> String {
    let mut text = String::new();
    for stop in plan.stops.values().flatten() {
        let id = stop.id.to_string().split_off(30);
        text += &format!("{id} {} {:?} {}\n", stop.desired_status, stop.client_status, stop.desired_description);
    }
    for stop in plan.preemptions.values().flatten() {
        text += &format!("{} preempted\n", stop.id.to_string().split_off(30));
    }
    for alloc in plan.placements.values().flatten() {
        text += &format!("+ {}\n", brief(alloc));
    }
    text += &format!("{:?} {:?}\n", plan.deployment, plan.deployment_updates);
    text
}

impl World {
    /// Everything of a job, a line each.
    pub fn brief(&self, job: &str) -> String {
        let newest = self.jobs[job].last().unwrap();
        let group = &newest.task_groups[0];
        let mut text = format!(
            "{} v{} stop={} count={} update={:?} reschedule={:?} disconnect={:?}\n",
            newest.kind.as_str(),
            newest.version,
            newest.stop,
            group.count,
            group.update.as_ref().map(|u| (u.max_parallel, u.canary)),
            group.reschedule_policy.as_ref().map(|r| (r.unlimited, r.attempts, r.delay / SEC)),
            group.disconnect
        );
        for node in self.nodes.values() {
            text += &format!("node {} {} {}\n", node.name, node.status.as_str(), node.eligibility.as_str());
        }
        for alloc in self.of_job(job) {
            text += &brief(&alloc);
            text.push('\n');
        }
        text + &format!("{:?}", self.latest(job))
    }
}
