//! System and sysbatch jobs: one allocation of each group on every node that can take it.

use crate::generic::{Maker, Versions, new_plan, preempt, reconnected};
use crate::reconcile::{self, GroupDeployment, Input, JobDeployment, Nodes, Reconciler, Results, Update, Updater};
use crate::stack::{Stack, in_reach};
use crate::view::View;
use crate::{blocked, finished, metric, texts};
use herdsman_model::{
    AllocId, AllocMetric, AllocStop, Allocation, ClientStatus, Decision, DeploymentStatus, DesiredStatus,
    DesiredUpdates, EvalStatus, Evaluation, Job, JobType, Nanos, NodeId, NodeStatus, PlanAnnotations, TaskGroup,
    Trigger, alloc_name,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) fn process(
    view: &dyn View,
    eval: &Evaluation,
    seed: u64,
    now: Nanos,
    ids: &mut dyn FnMut() -> [u8; 16],
) -> Decision {
    let registered = view.job(&eval.namespace, &eval.job_id);
    let job = registered.clone().filter(|j| !j.stop);
    let allocs = view.allocs_by_job(&eval.namespace, &eval.job_id);
    let nodes = Nodes::of(view, &allocs);
    let sysbatch = eval.kind == JobType::Sysbatch;
    let deployment = if sysbatch { None } else { view.latest_deployment(&eval.namespace, &eval.job_id) };
    let no_job = Arc::new(Job::default());
    let mut stack = Stack::new(view, job.as_ref().unwrap_or(&no_job), &view.config(), seed);
    for alloc in allocs.iter().filter(|a| !a.terminal() && !a.work_over()) {
        stack.track(alloc.id, &alloc.node_id, &alloc.task_group);
    }
    let input = Input {
        eval,
        job: job.clone(),
        allocs: &allocs,
        nodes: &nodes,
        deployment: deployment.clone(),
        batch: sysbatch,
        now,
    };
    let mut results = Results::default();
    let sorted = JobDeployment::sort(&input, &mut results.deployment_updates);
    let mut nothing = NoUpdates;
    let reconciler = Reconciler { input, updater: &mut nothing, ids, deployment: sorted, results };
    let mut planner = System {
        view,
        stack,
        sysbatch,
        evict: view.config().preempts(eval.kind),
        maker: Maker::new(eval, job.clone(), deployment.as_ref().map(|d| d.id), now),
        reconciler,
        plan: new_plan(view, eval, registered),
        failed: BTreeMap::new(),
        queued: BTreeMap::new(),
        last_metric: None,
    };
    planner.maker.deploying =
        planner.reconciler.deployment.active().map(|d| d.task_groups.keys().cloned().collect()).unwrap_or_default();
    planner.run(job.as_ref(), &allocs);
    planner.decide(eval, job.as_deref(), now)
}

/// The reconciler's part that system jobs use asks for no update.
struct NoUpdates;

impl Updater for NoUpdates {
    fn update(&mut self, _: &Arc<Allocation>, _: &Arc<TaskGroup>) -> Update {
        Update::None
    }
}

/// What one group needs, before limits.
#[derive(Default)]
struct Needs {
    destructive: Vec<Arc<Allocation>>,
    in_place: Vec<Arc<Allocation>>,
    /// Nodes without the group's allocation.
    missing: Vec<usize>,
    /// Allocations of the newest version.
    current: Vec<Arc<Allocation>>,
    /// Nodes that hold or are to hold an allocation.
    targets: u64,
}

struct System<'s> {
    view: &'s dyn View,
    stack: Stack<'s>,
    sysbatch: bool,
    evict: bool,
    maker: Maker,
    reconciler: Reconciler<'s>,
    plan: herdsman_model::Plan,
    failed: BTreeMap<String, Box<AllocMetric>>,
    queued: BTreeMap<String, u64>,
    last_metric: Option<Arc<AllocMetric>>,
}

impl System<'_> {
    fn run(&mut self, job: Option<&Arc<Job>>, allocs: &[Arc<Allocation>]) {
        for alloc in allocs {
            if let Some(stop) = reconcile::stranded(alloc, self.reconciler.input.nodes) {
                self.stop(alloc, stop);
            }
        }
        let mut by_group: BTreeMap<&str, Vec<Arc<Allocation>>> = BTreeMap::new();
        for alloc in allocs.iter().filter(|a| !a.server_terminal()) {
            by_group.entry(&alloc.task_group).or_default().push(Arc::clone(alloc));
        }
        let mut complete = true;
        if let Some(job) = job {
            for group in &job.task_groups {
                self.queued.insert(group.name.clone(), 0);
                let allocs = by_group.remove(group.name.as_str()).unwrap_or_default();
                if group.count == 0 {
                    self.stop_group(&group.name, &allocs);
                } else {
                    complete &= self.group(job, group, &allocs);
                }
            }
        }
        for (name, allocs) in by_group {
            self.stop_group(name, &allocs);
        }
        if job.is_some() {
            self.reconciler.finish_deployment(complete);
        }
    }

    fn stop(&mut self, alloc: &Arc<Allocation>, stop: AllocStop) {
        if stop.desired_status.is_terminal() {
            self.stack.release(alloc);
        }
        self.plan.stops.entry(alloc.node_id).or_default().push(stop);
    }

    fn stop_group(&mut self, name: &str, allocs: &[Arc<Allocation>]) {
        for alloc in allocs {
            let lost = !alloc.client_terminal() && self.reconciler.input.nodes.is_down(alloc);
            let stop = if lost { reconcile::lost_stop(alloc.id) } else { reconcile::stop(alloc.id, texts::NOT_NEEDED) };
            self.stop(alloc, stop);
        }
        let counts = self.reconciler.results.desired.entry(name.to_owned()).or_default();
        counts.stop = u64::try_from(allocs.len()).unwrap_or(u64::MAX);
    }

    fn group(&mut self, job: &Arc<Job>, group: &Arc<TaskGroup>, allocs: &[Arc<Allocation>]) -> bool {
        let mut counts = DesiredUpdates::default();
        let needs = self.sort(job, group, allocs, &mut counts);
        let mut part = self.reconciler.deployment.group(group);
        if !part.exists {
            part.state.desired_total = i64::try_from(needs.targets).unwrap_or(i64::MAX);
        }
        let had_version = allocs.iter().any(|a| a.job_version == job.version && a.job_create_index == job.create_index);
        let (now, canaries) = self.let_go(job, group, &mut part, &needs);
        let updating = !needs.destructive.is_empty() || !needs.in_place.is_empty();
        self.reconciler.deploy_group(job, group, &part, had_version, updating);
        if let Some(deployment) = &self.reconciler.results.deployment {
            self.maker.deployment = Some(deployment.id);
            self.maker.deploying = deployment.task_groups.keys().cloned().collect();
        }
        for alloc in &needs.in_place {
            let updated = self.maker.in_place(alloc, job);
            self.plan.placements.entry(alloc.node_id).or_default().push(Arc::new(updated));
        }
        counts.in_place_update += u64::try_from(needs.in_place.len()).unwrap_or(0);
        counts.ignore += u64::try_from(needs.destructive.len().saturating_sub(now)).unwrap_or(0);
        let mut done = needs.destructive.len() <= now;
        for alloc in needs.destructive.iter().take(now) {
            if canaries {
                counts.canary += 1
            } else {
                counts.destructive_update += 1
            }
            self.replace(job, group, alloc, canaries, &mut counts);
        }
        counts.place += u64::try_from(needs.missing.len()).unwrap_or(0);
        for candidate in &needs.missing {
            self.place(job, group, *candidate, None, false, &mut counts);
        }
        done &= needs.missing.is_empty() && needs.in_place.is_empty() && needs.destructive.is_empty();
        self.reconciler.results.desired.insert(group.name.clone(), counts);
        done
    }

    /// What each allocation and each node needs.
    fn sort(
        &mut self,
        job: &Arc<Job>,
        group: &Arc<TaskGroup>,
        allocs: &[Arc<Allocation>],
        counts: &mut DesiredUpdates,
    ) -> Needs {
        let mut needs = Needs::default();
        let mut settled: BTreeSet<NodeId> = BTreeSet::new();
        for alloc in allocs {
            if alloc.work_over() {
                // What ended on its own stands, for jobs that run once.
                let newest = alloc.job_version == job.version && alloc.job_create_index == job.create_index;
                if self.sysbatch && newest {
                    counts.ignore += 1;
                    settled.insert(alloc.node_id);
                }
                continue;
            }
            if !settled.insert(alloc.node_id) {
                // A second one on a node is one too many.
                counts.stop += 1;
                self.stop(alloc, reconcile::stop(alloc.id, texts::NOT_NEEDED));
                continue;
            }
            if alloc.job_version == job.version && alloc.job_create_index == job.create_index {
                needs.current.push(Arc::clone(alloc));
            }
            match self.fate(job, group, alloc) {
                Fate::Ignore => counts.ignore += 1,
                Fate::Stop(stop) => {
                    counts.stop += 1;
                    self.stop(alloc, stop);
                    // Its node has none now; if it can take one again, this or a later evaluation places it.
                    continue;
                }
                Fate::Unknown => {
                    counts.disconnect += 1;
                    self.unknown(group, alloc);
                }
                Fate::Reconnect => {
                    counts.reconnect += 1;
                    let back = reconnected(alloc, self.reconciler.input.now);
                    self.plan.placements.entry(alloc.node_id).or_default().push(Arc::new(back));
                }
                Fate::Update(Update::None) => counts.ignore += 1,
                Fate::Update(Update::InPlace) => needs.in_place.push(Arc::clone(alloc)),
                Fate::Update(Update::Destructive) => needs.destructive.push(Arc::clone(alloc)),
            }
            needs.targets += 1;
        }
        for candidate in self.stack.ready_by_id() {
            let Some(id) = self.stack.candidates.get(candidate).map(|c| c.node.id) else { continue };
            if !settled.contains(&id) {
                needs.missing.push(candidate);
            }
        }
        let index = self.stack.group(job, group);
        let stack = &mut self.stack;
        let could = needs.missing.iter().filter(|c| stack.could_take(**c, index)).count();
        needs.targets += u64::try_from(could).unwrap_or(0);
        needs
    }

    fn fate(&mut self, job: &Arc<Job>, group: &Arc<TaskGroup>, alloc: &Arc<Allocation>) -> Fate {
        let input = &self.reconciler.input;
        if alloc.desired_transition.should_migrate() {
            return Fate::Stop(reconcile::stop(alloc.id, texts::TAINTED));
        }
        if reconcile::expired(alloc, group, input.now) {
            return Fate::Stop(reconcile::lost_stop(alloc.id));
        }
        let Some(node) = input.nodes.get(alloc) else { return Fate::Stop(reconcile::lost_stop(alloc.id)) };
        if node.status == NodeStatus::Down {
            return Fate::Stop(reconcile::lost_stop(alloc.id));
        }
        if alloc.client_status == ClientStatus::Unknown {
            return Fate::Ignore;
        }
        if node.status == NodeStatus::Disconnected {
            return Fate::Unknown;
        }
        if reconcile::needs_reconnect(alloc) {
            return Fate::Reconnect;
        }
        if node.drain.is_some() {
            return Fate::Ignore;
        }
        if !in_reach(job, node) {
            return Fate::Stop(reconcile::stop(alloc.id, texts::NOT_NEEDED));
        }
        if !node.is_ready() {
            let newest = alloc.job_version == job.version && alloc.job_create_index == job.create_index;
            return if newest { Fate::Ignore } else { Fate::Stop(reconcile::stop(alloc.id, texts::NOT_NEEDED)) };
        }
        let update = Versions::new(self.view, Some(Arc::clone(job)), &mut self.stack).update(alloc, group);
        Fate::Update(update)
    }

    fn unknown(&mut self, group: &TaskGroup, alloc: &Arc<Allocation>) {
        let lost_after = group.lost_after();
        let follow_up = (lost_after > 0).then(|| {
            let at = self.reconciler.input.now.saturating_add(lost_after);
            self.reconciler.follow_up(Trigger::MaxDisconnectTimeout, at, texts::DISCONNECT_TIMEOUT)
        });
        let stop = AllocStop {
            desired_status: DesiredStatus::Run,
            desired_description: texts::UNKNOWN.to_owned(),
            client_status: Some(ClientStatus::Unknown),
            follow_up_eval: follow_up,
            ..reconcile::mark(alloc)
        };
        self.plan.stops.entry(alloc.node_id).or_default().push(stop);
    }

    /// How many destructive updates go now, and whether as canaries.
    fn let_go(&self, job: &Job, group: &TaskGroup, part: &mut GroupDeployment, needs: &Needs) -> (usize, bool) {
        let update = group.update.as_ref().filter(|u| u.max_parallel > 0);
        let Some(update) = update.filter(|_| !self.sysbatch) else {
            let limit = usize::try_from(job.update.max_parallel).unwrap_or(0);
            return (if limit > 0 { limit } else { needs.destructive.len() }, false);
        };
        let deployment = &self.reconciler.deployment;
        if deployment.paused || deployment.failed {
            return (0, false);
        }
        let limit = usize::try_from(update.max_parallel).unwrap_or(0);
        let ours = |a: &&Arc<Allocation>| deployment.current.as_ref().is_some_and(|d| a.deployment_id == Some(d.id));
        let unhealthy = needs.current.iter().filter(ours).filter(|a| a.healthy() != Some(true)).count();
        let free = limit.saturating_sub(unhealthy);
        if update.canary <= 0 || job.version == 0 || part.state.promoted || needs.destructive.is_empty() {
            return (free, false);
        }
        let placed = needs.current.iter().filter(|a| a.is_canary()).count();
        let percent = usize::try_from(update.canary).unwrap_or(0).min(100);
        let all = needs.destructive.len().saturating_add(placed);
        let required = percent.saturating_mul(all).div_ceil(100).min(limit);
        if part.state.desired_canaries == 0 {
            part.state.desired_canaries = i64::try_from(required).unwrap_or(i64::MAX);
        }
        (required.saturating_sub(placed), true)
    }

    /// Replaces an outdated allocation on its node; one that the node can no longer take is stopped.
    fn replace(
        &mut self,
        job: &Arc<Job>,
        group: &Arc<TaskGroup>,
        alloc: &Arc<Allocation>,
        canary: bool,
        counts: &mut DesiredUpdates,
    ) {
        let Some(candidate) = self.stack.candidate_of(&alloc.node_id) else { return };
        self.stack.release(alloc);
        let before = self.failed.get(&group.name).map(|m| m.nodes_exhausted);
        if self.place(job, group, candidate, Some(alloc), canary, counts) {
            return;
        }
        let exhausted = self.failed.get(&group.name).map(|m| m.nodes_exhausted) != before;
        if exhausted {
            self.stack.retain(alloc);
        } else {
            self.plan.stops.entry(alloc.node_id).or_default().push(reconcile::stop(alloc.id, texts::NOT_NEEDED));
        }
    }

    fn place(
        &mut self,
        job: &Arc<Job>,
        group: &Arc<TaskGroup>,
        candidate: usize,
        previous: Option<&Arc<Allocation>>,
        canary: bool,
        counts: &mut DesiredUpdates,
    ) -> bool {
        let index = self.stack.group(job, group);
        let mut choice = match self.stack.select_on(candidate, index, self.evict) {
            Ok(choice) => choice,
            Err(metric) => {
                self.refused(group, metric);
                return false;
            }
        };
        let Some(node) = self.stack.candidates.get(candidate).map(|c| Arc::clone(&c.node)) else { return false };
        let id = AllocId((self.reconciler.ids)());
        let mut alloc = self.maker.make(id, job, group, &alloc_name(&job.id, &group.name, 0), &node, &choice);
        alloc.metrics = Some(metric::share(&mut self.last_metric, std::mem::take(&mut choice.metric)));
        if canary {
            alloc.deployment_status = Some(DeploymentStatus { canary: true, ..DeploymentStatus::default() });
        }
        if let Some(previous) = previous {
            alloc.previous_allocation = Some(previous.id);
            let stop = reconcile::stop(previous.id, texts::UPDATING);
            self.plan.stops.entry(previous.node_id).or_default().push(stop);
        }
        if !choice.victims.is_empty() {
            preempt(&mut self.plan, &choice, id);
            counts.preemptions += u64::try_from(choice.victims.len()).unwrap_or(0);
        }
        self.stack.commit(index, &choice, id);
        self.plan.placements.entry(node.id).or_default().push(Arc::new(alloc));
        true
    }

    /// A node that is filtered out is none the job is meant for; one that is full is a failure.
    fn refused(&mut self, group: &TaskGroup, metric: Box<AllocMetric>) {
        if metric.nodes_exhausted == 0 {
            return;
        }
        *self.queued.entry(group.name.clone()).or_insert(0) += 1;
        match self.failed.get_mut(&group.name) {
            None => _ = self.failed.insert(group.name.clone(), metric),
            Some(known) => {
                known.coalesced_failures += 1;
                known.nodes_exhausted += metric.nodes_exhausted;
                known.nodes_evaluated += metric.nodes_evaluated;
                for (class, count) in &metric.class_exhausted {
                    *known.class_exhausted.entry(class.clone()).or_insert(0) += count;
                }
                for (dimension, count) in &metric.dimension_exhausted {
                    *known.dimension_exhausted.entry(dimension.clone()).or_insert(0) += count;
                }
            }
        }
    }

    fn decide(mut self, eval: &Evaluation, job: Option<&Job>, now: Nanos) -> Decision {
        let failed: BTreeMap<String, Arc<AllocMetric>> =
            std::mem::take(&mut self.failed).into_iter().map(|(k, m)| (k, Arc::new(*m))).collect();
        let results = self.reconciler.results;
        self.plan.deployment = results.deployment;
        self.plan.deployment_updates = results.deployment_updates;
        let annotations =
            Arc::new(PlanAnnotations { desired_tg_updates: results.desired, ..PlanAnnotations::default() });
        self.plan.annotations = Some(Arc::clone(&annotations));
        let mut evaluation = finished(eval, EvalStatus::Complete, "", now);
        evaluation.failed_groups = failed.clone();
        evaluation.queued_allocations = self.queued.clone();
        evaluation.annotations = Some(annotations);
        evaluation.deployment_id = self.maker.deployment.or(eval.deployment_id);
        evaluation.snapshot_index = self.view.index();
        let mut new_evals = results.follow_ups;
        if !failed.is_empty() {
            let (eligibility, escaped) = self.stack.eligibility();
            if eval.status == EvalStatus::Blocked {
                evaluation.status = EvalStatus::Blocked;
                evaluation.status_description = eval.status_description.clone();
                evaluation.class_eligibility = eligibility;
                evaluation.escaped_computed_class = escaped;
            } else {
                let mut waits = blocked(self.view, eval, job, now, self.reconciler.ids);
                waits.node_id = eval.node_id;
                waits.failed_groups = failed.clone();
                waits.class_eligibility = eligibility;
                waits.escaped_computed_class = escaped;
                evaluation.blocked_eval = Some(waits.id);
                new_evals.push(waits);
            }
        }
        Decision { plan: self.plan, evaluation, new_evals, failed_groups: failed, queued_allocations: self.queued }
    }
}

/// What becomes of one live allocation.
enum Fate {
    Ignore,
    Stop(AllocStop),
    Unknown,
    Reconnect,
    Update(Update),
}
