//! Service and batch jobs: so many allocations of a group, wherever they fit best.

use crate::reconcile::{self, Cause, Input, Nodes, Reconciler, Results, Update, Updater, Wanted};
use crate::stack::{Choice, GroupIndex, Stack, Wish};
use crate::view::View;
use crate::{blocked, finished, metric};
use herdsman_model::{
    AllocId, AllocMetric, AllocStop, Allocation, ClientStatus, Decision, DeploymentId, DeploymentStatus, DesiredStatus,
    EvalStatus, Evaluation, Job, JobType, Name, Nanos, Plan, PlanAnnotations, RescheduleTracker, TaskGroup,
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
    let batch = eval.kind == JobType::Batch;
    let deployment = if batch { None } else { view.latest_deployment(&eval.namespace, &eval.job_id) };
    let nodes = Nodes::of(view, &allocs);
    let config = view.config();
    let no_job = Arc::new(Job::default());
    let mut stack = Stack::new(view, job.as_ref().unwrap_or(&no_job), &config, seed);
    for alloc in allocs.iter().filter(|a| !a.terminal() && !a.work_over()) {
        stack.track(alloc.id, &alloc.node_id, &alloc.task_group);
    }
    let input =
        Input { eval, job: job.clone(), allocs: &allocs, nodes: &nodes, deployment: deployment.clone(), batch, now };
    let results = {
        let mut versions = Versions::new(view, job.clone(), &mut stack);
        Reconciler::run(input, &mut versions, ids)
    };
    let planner = Planner {
        view,
        eval,
        now,
        ids,
        stack,
        evict: config.preempts(eval.kind),
        maker: Maker::new(eval, job.clone(), deployment.as_ref().map(|d| d.id), now),
        plan: new_plan(view, eval, registered),
        failed: BTreeMap::new(),
        queued: BTreeMap::new(),
        last_metric: None,
        allocs: &allocs,
    };
    planner.run(results, deployment.as_ref().filter(|d| d.is_active()).map(|d| d.task_groups.keys().cloned().collect()))
}

/// An empty plan for an evaluation.
pub(crate) fn new_plan(view: &dyn View, eval: &Evaluation, job: Option<Arc<Job>>) -> Plan {
    Plan {
        eval_id: eval.id,
        priority: eval.priority,
        all_at_once: job.as_ref().is_some_and(|j| j.all_at_once),
        job,
        snapshot_index: view.index(),
        ..Plan::default()
    }
}

/// Compares allocations with the newest version of their job.
pub(crate) struct Versions<'a, 'v> {
    view: &'v dyn View,
    job: Option<Arc<Job>>,
    stack: &'a mut Stack<'v>,
    /// Whether the group changed destructively since a version.
    known: BTreeMap<(u64, String), bool>,
}

impl<'a, 'v> Versions<'a, 'v> {
    pub(crate) fn new(view: &'v dyn View, job: Option<Arc<Job>>, stack: &'a mut Stack<'v>) -> Versions<'a, 'v> {
        Versions { view, job, stack, known: BTreeMap::new() }
    }

    fn destructive(&mut self, job: &Job, alloc: &Allocation, group: &str) -> bool {
        if alloc.job_create_index != job.create_index {
            return true;
        }
        let key = (alloc.job_version, group.to_owned());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let old = self.view.job_version(&alloc.namespace, &alloc.job_id, alloc.job_version);
        // A version that is kept no more cannot be compared: what it was made from is unknown.
        let changed = old.is_none_or(|old| herdsman_model::destructive(&old, job, group));
        self.known.insert(key, changed);
        changed
    }
}

impl Updater for Versions<'_, '_> {
    fn update(&mut self, alloc: &Arc<Allocation>, group: &Arc<TaskGroup>) -> Update {
        let Some(job) = self.job.clone() else { return Update::None };
        let same_job = alloc.job_create_index == job.create_index;
        if same_job && alloc.job_version == job.version && alloc.job_modify_index == job.job_modify_index {
            return Update::None;
        }
        if self.destructive(&job, alloc, &group.name) {
            return Update::Destructive;
        }
        if alloc.terminal() || alloc.work_over() {
            return Update::None;
        }
        let index = self.stack.group(&job, group);
        if self.stack.may_stay(index, alloc) { Update::InPlace } else { Update::Destructive }
    }
}

/// Makes allocations.
pub(crate) struct Maker {
    eval_id: herdsman_model::EvalId,
    namespace: Name,
    job_id: Name,
    job: Option<Arc<Job>>,
    groups: BTreeMap<String, Name>,
    pub(crate) deployment: Option<DeploymentId>,
    /// Groups that the deployment has a part for.
    pub(crate) deploying: BTreeSet<String>,
    now: Nanos,
}

impl Maker {
    pub(crate) fn new(eval: &Evaluation, job: Option<Arc<Job>>, deployment: Option<DeploymentId>, now: Nanos) -> Maker {
        Maker {
            eval_id: eval.id,
            namespace: Arc::clone(&eval.namespace),
            job_id: Arc::clone(&eval.job_id),
            job,
            groups: BTreeMap::new(),
            deployment,
            deploying: BTreeSet::new(),
            now,
        }
    }

    /// Works with this deployment and its groups from here on.
    pub(crate) fn deploy(&mut self, results: &Results, active: Option<BTreeSet<String>>) {
        if let Some(deployment) = &results.deployment {
            self.deployment = Some(deployment.id);
            self.deploying = deployment.task_groups.keys().cloned().collect();
        } else {
            self.deploying = active.unwrap_or_default();
        }
    }

    fn deployment_of(&self, job: &Job, group: &str) -> Option<DeploymentId> {
        let newest = self.job.as_ref().is_some_and(|j| j.version == job.version);
        self.deployment.filter(|_| newest && self.deploying.contains(group))
    }

    /// A new allocation on the node of a choice.
    pub(crate) fn make(
        &mut self,
        id: AllocId,
        job: &Job,
        group: &TaskGroup,
        name: &str,
        node: &herdsman_model::Node,
        choice: &Choice,
    ) -> Allocation {
        let task_group = match self.groups.get(&group.name) {
            Some(known) => Arc::clone(known),
            None => Arc::clone(self.groups.entry(group.name.clone()).or_insert_with(|| group.name.as_str().into())),
        };
        Allocation {
            id,
            namespace: Arc::clone(&self.namespace),
            name: name.to_owned(),
            eval_id: self.eval_id,
            node_id: node.id,
            node_name: Arc::clone(&node.name),
            job_id: Arc::clone(&self.job_id),
            job_version: job.version,
            job_create_index: job.create_index,
            job_modify_index: job.job_modify_index,
            task_group,
            resources: Arc::clone(&choice.resources),
            desired_status: DesiredStatus::Run,
            client_status: ClientStatus::Pending,
            deployment_id: self.deployment_of(job, &group.name),
            preempted_allocations: choice.victims.iter().map(|v| v.id).collect(),
            create_time: self.now,
            modify_time: self.now,
            ..Allocation::default()
        }
    }

    /// The allocation as a member of the newest version, its tasks going on.
    pub(crate) fn in_place(&self, alloc: &Allocation, job: &Job) -> Allocation {
        let mut updated = alloc.clone();
        updated.eval_id = self.eval_id;
        updated.job_version = job.version;
        updated.job_create_index = job.create_index;
        updated.job_modify_index = job.job_modify_index;
        updated.modify_time = self.now;
        if let Some(deployment) = self.deployment_of(job, &alloc.task_group) {
            // Its health is decided anew for the new deployment.
            updated.deployment_id = Some(deployment);
            updated.deployment_status = None;
        }
        updated
    }
}

/// The reconnected allocation, its return noted.
pub(crate) fn reconnected(alloc: &Allocation, now: Nanos) -> Allocation {
    let mut back = alloc.clone();
    back.state_changes.push(herdsman_model::AllocStateChange { value: alloc.client_status, time: now });
    back.follow_up_eval = None;
    back.desired_description = String::new();
    back.modify_time = now;
    back
}

/// Notes in the plan who makes room for an allocation.
pub(crate) fn preempt(plan: &mut Plan, choice: &Choice, id: AllocId) {
    for victim in &choice.victims {
        plan.preemptions.entry(victim.node_id).or_default().push(AllocStop {
            id: victim.id,
            desired_status: DesiredStatus::Evict,
            desired_description: format!("Preempted by alloc ID {id}"),
            client_status: None,
            follow_up_eval: None,
            preempted_by: Some(id),
            reschedule_failed: false,
        });
    }
}

/// An allocation that is stopped needs no mark.
fn drop_marks(plan: &mut Plan) {
    for stops in plan.stops.values_mut() {
        let ended: BTreeSet<AllocId> = stops.iter().filter(|s| s.desired_status.is_terminal()).map(|s| s.id).collect();
        stops.retain(|s| s.desired_status.is_terminal() || !ended.contains(&s.id));
    }
}

struct Planner<'p> {
    view: &'p dyn View,
    eval: &'p Evaluation,
    now: Nanos,
    ids: &'p mut dyn FnMut() -> [u8; 16],
    stack: Stack<'p>,
    evict: bool,
    maker: Maker,
    plan: Plan,
    failed: BTreeMap<String, Box<AllocMetric>>,
    queued: BTreeMap<String, u64>,
    last_metric: Option<Arc<AllocMetric>>,
    allocs: &'p [Arc<Allocation>],
}

impl Planner<'_> {
    fn run(mut self, mut results: Results, active: Option<BTreeSet<String>>) -> Decision {
        self.maker.deploy(&results, active);
        for (alloc, stop) in std::mem::take(&mut results.stops) {
            if stop.desired_status.is_terminal() {
                self.stack.release(&alloc);
            }
            self.plan.stops.entry(alloc.node_id).or_default().push(stop);
        }
        if let Some(job) = self.maker.job.clone() {
            for group in &job.task_groups {
                self.queued.insert(group.name.clone(), 0);
            }
            for alloc in &results.in_place {
                let updated = self.maker.in_place(alloc, &job);
                self.plan.placements.entry(alloc.node_id).or_default().push(Arc::new(updated));
            }
            for alloc in &results.reconnected {
                self.reconnect(alloc);
            }
            for wanted in std::mem::take(&mut results.wanted) {
                self.place(&job, &wanted, &mut results);
            }
        }
        self.decide(results)
    }

    /// Notes the return of an allocation, in the record of its update in place if there is one.
    fn reconnect(&mut self, alloc: &Arc<Allocation>) {
        let placed = self.plan.placements.entry(alloc.node_id).or_default();
        match placed.iter_mut().find(|p| p.id == alloc.id) {
            Some(updated) => *updated = Arc::new(reconnected(updated, self.now)),
            None => placed.push(Arc::new(reconnected(alloc, self.now))),
        }
    }

    /// The version to place: the newest, or while that is not proven the newest that others of the group run.
    fn version(&self, job: &Arc<Job>, wanted: &Wanted) -> (Arc<Job>, Arc<TaskGroup>) {
        let newest = (Arc::clone(job), Arc::clone(&wanted.group));
        if !wanted.downgrade {
            return newest;
        }
        let others = self.allocs.iter().filter(|a| {
            *a.task_group == *wanted.group.name
                && a.job_create_index == job.create_index
                && a.job_version < job.version
                && (!a.server_terminal() || wanted.previous.as_ref().is_some_and(|p| p.id == a.id))
        });
        let proven = others.map(|a| a.job_version).max();
        let older = proven.and_then(|v| self.view.job_version(&job.namespace, &job.id, v));
        match older.and_then(|o| o.group(&wanted.group.name).cloned().map(|g| (o, g))) {
            Some(older) => older,
            None => newest,
        }
    }

    fn wish(wanted: &Wanted) -> Wish {
        let index = wanted.name.rsplit_once('[').and_then(|(_, r)| r.strip_suffix(']')).and_then(|i| i.parse().ok());
        let mut wish = Wish { index: index.unwrap_or(0), ..Wish::default() };
        let Some(previous) = &wanted.previous else { return wish };
        if wanted.cause == Cause::Reschedule {
            wish.penalties.insert(previous.node_id);
            let tracker = previous.reschedule_tracker.as_ref();
            wish.penalties.extend(tracker.iter().flat_map(|t| t.events.iter().map(|e| e.prev_node)));
        }
        let sticky = wanted.group.ephemeral_disk.sticky || wanted.group.volumes.values().any(|v| v.sticky);
        wish.preferred = sticky.then_some(previous.node_id);
        wish
    }

    fn place(&mut self, job: &Arc<Job>, wanted: &Wanted, results: &mut Results) {
        let group_name = &wanted.group.name;
        *self.queued.entry(group_name.clone()).or_insert(0) += 1;
        if let Some(metric) = self.failed.get_mut(group_name) {
            metric.coalesced_failures += 1;
            self.not_placed(wanted);
            return;
        }
        let (version, group) = self.version(job, wanted);
        let index = self.stack.group(&version, &group);
        let makes_room = wanted.previous.as_ref().filter(|_| wanted.stop_previous.is_some());
        if let Some(previous) = makes_room {
            self.stack.release(previous);
        }
        match self.stack.select(index, &Self::wish(wanted), self.evict) {
            Ok(choice) => self.placed(&version, &group, index, wanted, choice, results),
            Err(metric) => {
                if let Some(previous) = makes_room {
                    self.stack.retain(previous);
                }
                self.failed.insert(group_name.clone(), metric);
                self.not_placed(wanted);
            }
        }
    }

    /// An allocation that could not be placed anew keeps its record, which says so; it is tried again with the blocked
    /// evaluation, its history unbroken.
    fn not_placed(&mut self, wanted: &Wanted) {
        let (Cause::Reschedule, Some(previous)) = (wanted.cause, &wanted.previous) else { return };
        let stop = AllocStop { reschedule_failed: true, ..reconcile::mark(previous) };
        self.plan.stops.entry(previous.node_id).or_default().push(stop);
    }

    fn placed(
        &mut self,
        job: &Job,
        group: &TaskGroup,
        index: GroupIndex,
        wanted: &Wanted,
        mut choice: Choice,
        results: &mut Results,
    ) {
        let id = AllocId((self.ids)());
        let Some(node) = self.stack.candidates.get(choice.candidate).map(|c| Arc::clone(&c.node)) else { return };
        let mut alloc = self.maker.make(id, job, group, &wanted.name, &node, &choice);
        alloc.metrics = Some(metric::share(&mut self.last_metric, std::mem::take(&mut choice.metric)));
        if wanted.canary {
            alloc.deployment_status = Some(DeploymentStatus { canary: true, ..DeploymentStatus::default() });
        }
        if let Some(previous) = &wanted.previous {
            alloc.previous_allocation = Some(previous.id);
            alloc.reschedule_tracker = self.tracker(wanted, previous);
            if let Some(stop) = &wanted.stop_previous {
                self.plan.stops.entry(previous.node_id).or_default().push(stop.clone());
            }
        }
        if !choice.victims.is_empty() {
            preempt(&mut self.plan, &choice, id);
            let counts = results.desired.entry(group.name.clone()).or_default();
            counts.preemptions += u64::try_from(choice.victims.len()).unwrap_or(0);
        }
        self.stack.commit(index, &choice, id);
        self.plan.placements.entry(node.id).or_default().push(Arc::new(alloc));
        if let Some(queued) = self.queued.get_mut(&group.name) {
            *queued = queued.saturating_sub(1);
        }
    }

    fn tracker(&self, wanted: &Wanted, previous: &Allocation) -> Option<Arc<RescheduleTracker>> {
        match wanted.cause {
            Cause::Reschedule | Cause::Disconnect => {
                let policy = wanted.group.reschedule_policy.as_ref();
                Some(Arc::new(reconcile::next_tracker(previous, policy, self.now)))
            }
            // A node that went away is no failure of the allocation, and does not make its failures undone.
            Cause::Lost | Cause::Migrate => previous.reschedule_tracker.clone(),
            Cause::Missing | Cause::Update | Cause::Canary => None,
        }
    }

    fn decide(mut self, results: Results) -> Decision {
        let failed: BTreeMap<String, Arc<AllocMetric>> =
            std::mem::take(&mut self.failed).into_iter().map(|(k, m)| (k, Arc::new(*m))).collect();
        drop_marks(&mut self.plan);
        self.plan.deployment = results.deployment;
        self.plan.deployment_updates = results.deployment_updates;
        let annotations =
            Arc::new(PlanAnnotations { desired_tg_updates: results.desired, ..PlanAnnotations::default() });
        self.plan.annotations = Some(Arc::clone(&annotations));
        let mut evaluation = finished(self.eval, EvalStatus::Complete, "", self.now);
        evaluation.failed_groups = failed.clone();
        evaluation.queued_allocations = self.queued.clone();
        evaluation.annotations = Some(annotations);
        evaluation.deployment_id = self.maker.deployment.or(self.eval.deployment_id);
        evaluation.snapshot_index = self.view.index();
        let mut new_evals = results.follow_ups;
        if !failed.is_empty() {
            let (eligibility, escaped) = self.stack.eligibility();
            if self.eval.status == EvalStatus::Blocked {
                // It was blocked before and is again.
                evaluation.status = EvalStatus::Blocked;
                evaluation.status_description = self.eval.status_description.clone();
                evaluation.class_eligibility = eligibility;
                evaluation.escaped_computed_class = escaped;
            } else {
                let mut waits = blocked(self.view, self.eval, self.maker.job.as_deref(), self.now, self.ids);
                waits.failed_groups = failed.clone();
                waits.class_eligibility = eligibility;
                waits.escaped_computed_class = escaped;
                waits.annotations = None;
                evaluation.blocked_eval = Some(waits.id);
                new_evals.push(waits);
            }
        }
        Decision { plan: self.plan, evaluation, new_evals, failed_groups: failed, queued_allocations: self.queued }
    }
}
