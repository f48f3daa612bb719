//! One command being applied: rows are written through here, so that indexes, summaries, job status and the list of
//! changes follow.

use crate::link::{alloc_key, deployment_key, eval_key, parent_key};
use crate::rows::{
    ChildrenSummary, GroupSummary, IdSeed, JobKey, JobSubmission, JobSummary, Namespace, NodePool, PeriodicLaunch,
    ScalingEvents, ScalingPolicyRow, SchedulerConfig,
};
use crate::snapshot::Snapshot;
use crate::table::{Change, Row, Table};
use herdsman_model::{
    AllocId, Allocation, ClientStatus, Deployment, EvalId, EvalStatus, Evaluation, Job, JobStatus, Name, Nanos, Node,
    Trigger,
};
use herdsman_proto::ServiceRegistration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Priority of an evaluation whose job is gone.
pub(crate) const DEFAULT_PRIORITY: i64 = 50;

/// One command being applied.
pub(crate) struct Txn<'a> {
    pub s: &'a mut Snapshot,
    pub names: &'a mut BTreeSet<Name>,
    pub index: u64,
    pub now: Nanos,
    pub changes: Vec<Change>,
    seed: IdSeed,
    next_id: u64,
    dirty_jobs: BTreeSet<JobKey>,
    summaries: BTreeMap<JobKey, JobSummary>,
}

impl<'a> Txn<'a> {
    pub fn new(s: &'a mut Snapshot, names: &'a mut BTreeSet<Name>) -> Txn<'a> {
        let (index, now) = (s.index, s.time);
        Txn {
            s,
            names,
            index,
            now,
            changes: Vec::new(),
            seed: IdSeed::default(),
            next_id: 0,
            dirty_jobs: BTreeSet::new(),
            summaries: BTreeMap::new(),
        }
    }

    /// Identifiers made from now on follow from this seed.
    pub fn seed(&mut self, seed: IdSeed) {
        self.seed = seed;
    }

    /// The next identifier that follows from the command's seed.
    pub fn next_id(&mut self) -> [u8; 16] {
        let id = self.seed.nth(self.next_id);
        self.next_id += 1;
        id
    }

    /// The one copy of a name that rows share.
    pub fn intern(&mut self, name: &Name) -> Name {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        if self.names.len() >= crate::store::MAX_NAMES {
            self.names.clear();
        }
        self.names.insert(name.clone());
        name.clone()
    }

    fn changed(&mut self, table: Table, before: Option<Row>, after: Option<Row>) {
        if let Some(index) = self.s.table_indexes.get_mut(table as usize) {
            *index = self.index;
        }
        self.changes.push(Change { table, before, after, index: self.index });
    }

    // Jobs.

    /// Writes a job in its current version, and the same version among the kept ones.
    pub fn put_job(&mut self, job: Arc<Job>) {
        let key = JobKey::of(&job);
        let before = self.s.jobs.insert(key.clone(), job.clone());
        if before.is_none() {
            self.s.link_job(&job);
        }
        self.replace_version(&key, &job);
        self.dirty_jobs.insert(key);
        self.changed(Table::Jobs, before.map(Row::Job), Some(Row::Job(job)));
    }

    /// Replaces a kept version by one with the same number.
    pub fn replace_version(&mut self, key: &JobKey, job: &Arc<Job>) {
        if let Some(versions) = self.s.versions.get_mut(key)
            && let Some(place) = Arc::make_mut(versions)
                .iter_mut()
                .find(|kept| kept.version == job.version && kept.create_index == job.create_index)
        {
            *place = job.clone();
        }
        if let Some(pin) = self.s.pins.get_mut(key).and_then(|pins| pins.get_mut(&(job.create_index, job.version))) {
            pin.job = job.clone();
        }
    }

    /// Writes the list of kept versions.
    pub fn put_versions(&mut self, key: &JobKey, versions: Vec<Arc<Job>>) {
        let newest = versions.first().cloned().map(Row::Job);
        self.s.versions.insert(key.clone(), Arc::new(versions));
        self.changed(Table::Versions, None, newest);
    }

    /// Removes a job with its versions, texts, summary, launch and scaling rows. Allocations and evaluations stay.
    pub fn delete_job(&mut self, key: &JobKey) {
        let Some(job) = self.s.jobs.remove(key) else { return };
        self.s.unlink_job(&job);
        self.s.versions.remove(key);
        if let Some(submissions) = self.s.submissions.remove(key) {
            for submission in submissions.iter() {
                self.changed(Table::Submissions, Some(Row::Submission(submission.clone())), None);
            }
        }
        self.summaries.remove(key);
        if let Some(summary) = self.s.summaries.remove(key) {
            self.changed(Table::Summaries, Some(Row::Summary(summary)), None);
        }
        if let Some(launch) = self.s.launches.remove(key) {
            self.changed(Table::PeriodicLaunches, Some(Row::PeriodicLaunch(launch)), None);
        }
        if let Some(events) = self.s.scaling_events.remove(key) {
            self.changed(Table::ScalingEvents, Some(Row::ScalingEvents(events)), None);
        }
        let policies: Vec<_> = self.s.scaling_policies_by_job(key).map(|row| row.policy.id.clone()).collect();
        for id in policies {
            self.delete_policy(&id);
        }
        // A child that is collected counts as dead for ever.
        if let Some(parent) = parent_key(&job) {
            self.count_child(&parent, Some(job.status), Some(JobStatus::Dead));
        }
        self.dirty_jobs.remove(key);
        self.changed(Table::Jobs, Some(Row::Job(job)), None);
    }

    /// The status of this job may have changed.
    pub fn touch_job(&mut self, key: JobKey) {
        self.dirty_jobs.insert(key);
    }

    /// Writes the texts kept for a job.
    pub fn put_submissions(&mut self, key: &JobKey, submissions: Vec<Arc<JobSubmission>>) {
        let newest = submissions.first().cloned().map(Row::Submission);
        if submissions.is_empty() {
            self.s.submissions.remove(key);
        } else {
            self.s.submissions.insert(key.clone(), Arc::new(submissions));
        }
        self.changed(Table::Submissions, None, newest);
    }

    // Summaries.

    /// The summary of a job, to be changed; none when the job has none.
    pub fn summary(&mut self, key: &JobKey) -> Option<&mut JobSummary> {
        if !self.summaries.contains_key(key) {
            let stored = self.s.summaries.get(key)?;
            self.summaries.insert(key.clone(), JobSummary::clone(stored));
        }
        self.summaries.get_mut(key)
    }

    /// Starts a summary for a new job.
    pub fn new_summary(&mut self, key: &JobKey) {
        let summary = JobSummary {
            job_id: key.id.to_string(),
            namespace: key.namespace.to_string(),
            create_index: self.index,
            ..JobSummary::default()
        };
        self.summaries.insert(key.clone(), summary);
    }

    fn count_child(&mut self, parent: &JobKey, from: Option<JobStatus>, to: Option<JobStatus>) {
        fn place(children: &mut ChildrenSummary, status: JobStatus) -> &mut u64 {
            match status {
                JobStatus::Pending => &mut children.pending,
                JobStatus::Running => &mut children.running,
                JobStatus::Dead => &mut children.dead,
            }
        }
        let Some(summary) = self.summary(parent) else { return };
        if let Some(from) = from {
            let count = place(&mut summary.children, from);
            *count = count.saturating_sub(1);
        }
        if let Some(to) = to {
            *place(&mut summary.children, to) += 1;
        }
    }

    /// Counts a new child of a job.
    pub fn count_new_child(&mut self, parent: &JobKey, status: JobStatus) {
        self.count_child(parent, None, Some(status));
    }

    fn count_alloc(&mut self, before: Option<&Allocation>, after: &Allocation) {
        fn place(group: &mut GroupSummary, status: ClientStatus) -> &mut u64 {
            match status {
                ClientStatus::Pending => &mut group.starting,
                ClientStatus::Running => &mut group.running,
                ClientStatus::Complete => &mut group.complete,
                ClientStatus::Failed => &mut group.failed,
                ClientStatus::Lost => &mut group.lost,
                ClientStatus::Unknown => &mut group.unknown,
            }
        }
        if before.is_some_and(|before| before.client_status == after.client_status) {
            return;
        }
        let create_index = after.job_create_index;
        let key = alloc_key(after);
        let Some(summary) = self.summary(&key) else { return };
        // Allocations of an earlier job of this name are not this job's.
        if summary.create_index != create_index {
            return;
        }
        let Some(group) = summary.groups.get_mut(&*after.task_group) else { return };
        match before {
            Some(before) => {
                let count = place(group, before.client_status);
                *count = count.saturating_sub(1);
            }
            None => group.queued = group.queued.saturating_sub(1),
        }
        *place(group, after.client_status) += 1;
    }

    // Allocations.

    /// Writes an allocation. Its modify index and time are set here.
    pub fn put_alloc(&mut self, mut alloc: Allocation) {
        alloc.modify_index = self.index;
        alloc.modify_time = self.now;
        let before = self.s.allocs.get(&alloc.id).cloned();
        if before.is_none() {
            alloc.create_index = self.index;
            if alloc.create_time == 0 {
                alloc.create_time = self.now;
            }
            alloc.namespace = self.intern(&alloc.namespace);
            alloc.job_id = self.intern(&alloc.job_id);
            alloc.task_group = self.intern(&alloc.task_group);
            alloc.node_name = self.intern(&alloc.node_name);
        }
        let alloc = Arc::new(alloc);
        match &before {
            Some(before) => self.s.relink_alloc(before, &alloc),
            None => self.s.link_alloc(&alloc),
        }
        if alloc.alloc_modify_index == self.index {
            self.s.note_work(alloc.node_id, self.index);
        }
        self.count_alloc(before.as_deref(), &alloc);
        let ended = alloc.client_terminal() && !before.as_ref().is_some_and(|before| before.client_terminal());
        if before.is_none() || before.as_ref().is_some_and(|b| b.client_terminal() != alloc.client_terminal()) {
            self.touch_job(alloc_key(&alloc));
        }
        if let Some(before) = &before
            && (before.job_id != alloc.job_id || before.namespace != alloc.namespace)
        {
            self.touch_job(alloc_key(before));
            self.touch_job(alloc_key(&alloc));
        }
        self.s.allocs.insert(alloc.id, alloc.clone());
        if ended {
            self.delete_services_of(alloc.id);
        }
        self.changed(Table::Allocs, before.map(Row::Alloc), Some(Row::Alloc(alloc)));
    }

    /// Removes an allocation.
    pub fn delete_alloc(&mut self, id: &AllocId) -> bool {
        let Some(alloc) = self.s.allocs.remove(id) else { return false };
        self.s.unlink_alloc(&alloc);
        self.s.note_work(alloc.node_id, self.index);
        self.touch_job(alloc_key(&alloc));
        self.delete_services_of(alloc.id);
        self.changed(Table::Allocs, Some(Row::Alloc(alloc)), None);
        true
    }

    /// Removes the registrations of an allocation's services.
    pub fn delete_services_of(&mut self, alloc: AllocId) {
        let ids: Vec<String> = self.s.services_by_alloc(alloc).map(|service| service.id.clone()).collect();
        for id in ids {
            self.delete_service(&id);
        }
    }

    // Evaluations.

    /// Writes an evaluation. Its indexes and times are set here.
    pub fn put_eval(&mut self, mut eval: Evaluation) -> Arc<Evaluation> {
        let before = self.s.evals.get(&eval.id).cloned();
        eval.modify_index = self.index;
        eval.modify_time = self.now;
        match &before {
            Some(before) => {
                eval.create_index = before.create_index;
                eval.create_time = before.create_time;
                self.s.unlink_eval(before);
                self.touch_job(eval_key(before));
            }
            None => {
                eval.create_index = self.index;
                eval.create_time = self.now;
            }
        }
        eval.namespace = self.intern(&eval.namespace);
        eval.job_id = self.intern(&eval.job_id);
        self.s.link_eval(&eval);
        let eval = Arc::new(eval);
        self.s.evals.insert(eval.id, eval.clone());
        self.touch_job(eval_key(&eval));
        self.changed(Table::Evals, before.map(Row::Eval), Some(Row::Eval(eval.clone())));
        eval
    }

    /// Removes an evaluation.
    pub fn delete_eval(&mut self, id: &EvalId) -> bool {
        let Some(eval) = self.s.evals.remove(id) else { return false };
        self.s.unlink_eval(&eval);
        self.touch_job(eval_key(&eval));
        self.changed(Table::Evals, Some(Row::Eval(eval)), None);
        true
    }

    /// Makes a pending evaluation for a job.
    pub fn make_eval(
        &mut self,
        job: &Job,
        triggered_by: Trigger,
        adjust: impl FnOnce(&mut Evaluation),
    ) -> Arc<Evaluation> {
        let id = EvalId(self.next_id());
        let mut eval = Evaluation {
            id,
            namespace: Name::from(job.namespace.as_str()),
            priority: job.priority,
            kind: job.kind,
            triggered_by,
            job_id: Name::from(job.id.as_str()),
            job_modify_index: job.modify_index,
            status: EvalStatus::Pending,
            ..Evaluation::default()
        };
        adjust(&mut eval);
        self.put_eval(eval)
    }

    // Deployments.

    /// Writes a deployment. Its indexes and times are set here.
    pub fn put_deployment(&mut self, mut deployment: Deployment) {
        let before = self.s.deployments.get(&deployment.id).cloned();
        deployment.modify_index = self.index;
        deployment.modify_time = self.now;
        match &before {
            Some(before) => {
                deployment.create_index = before.create_index;
                deployment.create_time = before.create_time;
                self.s.unlink_deployment(before);
                self.touch_job(deployment_key(before));
            }
            None => {
                deployment.create_index = self.index;
                deployment.create_time = self.now;
            }
        }
        self.s.link_deployment(&deployment);
        self.touch_job(deployment_key(&deployment));
        let deployment = Arc::new(deployment);
        self.s.deployments.insert(deployment.id, deployment.clone());
        self.changed(Table::Deployments, before.map(Row::Deployment), Some(Row::Deployment(deployment)));
    }

    /// Removes a deployment.
    pub fn delete_deployment(&mut self, id: &herdsman_model::DeploymentId) -> bool {
        let Some(deployment) = self.s.deployments.remove(id) else { return false };
        self.s.unlink_deployment(&deployment);
        self.touch_job(deployment_key(&deployment));
        self.changed(Table::Deployments, Some(Row::Deployment(deployment)), None);
        true
    }

    // Nodes and what operators configure.

    /// Writes a node. Its modify index is set here.
    pub fn put_node(&mut self, mut node: Node) {
        let before = self.s.nodes.get(&node.id).cloned();
        node.modify_index = self.index;
        node.create_index = before.as_ref().map_or(self.index, |before| before.create_index);
        let node = Arc::new(node);
        self.s.nodes.insert(node.id, node.clone());
        self.changed(Table::Nodes, before.map(Row::Node), Some(Row::Node(node)));
    }

    /// Removes a node.
    pub fn delete_node(&mut self, id: &herdsman_model::NodeId) -> Option<Arc<Node>> {
        let node = self.s.nodes.remove(id)?;
        if !self.s.allocs_by_node.contains_key(id) {
            self.s.work_index.remove(id);
        }
        self.changed(Table::Nodes, Some(Row::Node(node.clone())), None);
        Some(node)
    }

    /// Writes a node pool.
    pub fn put_pool(&mut self, mut pool: NodePool) {
        let before = self.s.pools.get(&pool.name).cloned();
        pool.modify_index = self.index;
        pool.create_index = before.as_ref().map_or(self.index, |before| before.create_index);
        let pool = Arc::new(pool);
        self.s.pools.insert(pool.name.clone(), pool.clone());
        self.changed(Table::NodePools, before.map(Row::NodePool), Some(Row::NodePool(pool)));
    }

    /// Removes a node pool.
    pub fn delete_pool(&mut self, name: &str) {
        if let Some(pool) = self.s.pools.remove(name) {
            self.changed(Table::NodePools, Some(Row::NodePool(pool)), None);
        }
    }

    /// Writes a namespace.
    pub fn put_namespace(&mut self, mut namespace: Namespace) {
        let before = self.s.namespaces.get(&namespace.name).cloned();
        namespace.modify_index = self.index;
        namespace.create_index = before.as_ref().map_or(self.index, |before| before.create_index);
        let namespace = Arc::new(namespace);
        self.s.namespaces.insert(namespace.name.clone(), namespace.clone());
        self.changed(Table::Namespaces, before.map(Row::Namespace), Some(Row::Namespace(namespace)));
    }

    /// Removes a namespace.
    pub fn delete_namespace(&mut self, name: &str) {
        if let Some(namespace) = self.s.namespaces.remove(name) {
            self.changed(Table::Namespaces, Some(Row::Namespace(namespace)), None);
        }
    }

    /// Writes the scheduler configuration.
    pub fn put_scheduler_config(&mut self, mut config: SchedulerConfig) {
        let before = self.s.scheduler_config.clone();
        config.modify_index = self.index;
        config.create_index = if before.create_index == 0 { self.index } else { before.create_index };
        let config = Arc::new(config);
        self.s.scheduler_config = config.clone();
        self.changed(Table::SchedulerConfig, Some(Row::SchedulerConfig(before)), Some(Row::SchedulerConfig(config)));
    }

    // Services, scaling, launches.

    /// Writes a registration of a service.
    pub fn put_service(&mut self, mut service: ServiceRegistration) {
        let before = self.s.services.get(&service.id).cloned();
        service.modify_index = self.index;
        service.create_index = before.as_ref().map_or(self.index, |before| before.create_index);
        if let Some(before) = &before {
            self.s.unlink_service(before);
        }
        self.s.link_service(&service);
        let service = Arc::new(service);
        self.s.services.insert(service.id.clone(), service.clone());
        self.changed(Table::Services, before.map(Row::Service), Some(Row::Service(service)));
    }

    /// Removes a registration of a service.
    pub fn delete_service(&mut self, id: &str) -> bool {
        let Some(service) = self.s.services.remove(id) else { return false };
        self.s.unlink_service(&service);
        self.changed(Table::Services, Some(Row::Service(service)), None);
        true
    }

    /// Writes a scaling policy.
    pub fn put_policy(&mut self, row: ScalingPolicyRow) {
        let before = self.s.policies.get(&row.policy.id).cloned();
        if let Some(before) = &before {
            self.s.unlink_policy(before);
        }
        self.s.link_policy(&row);
        let row = Arc::new(row);
        self.s.policies.insert(row.policy.id.clone(), row.clone());
        self.changed(Table::ScalingPolicies, before.map(Row::ScalingPolicy), Some(Row::ScalingPolicy(row)));
    }

    /// Removes a scaling policy.
    pub fn delete_policy(&mut self, id: &str) {
        if let Some(row) = self.s.policies.remove(id) {
            self.s.unlink_policy(&row);
            self.changed(Table::ScalingPolicies, Some(Row::ScalingPolicy(row)), None);
        }
    }

    /// Writes the scaling events of a job.
    pub fn put_scaling_events(&mut self, key: &JobKey, mut events: ScalingEvents) {
        events.modify_index = self.index;
        let events = Arc::new(events);
        let before = self.s.scaling_events.insert(key.clone(), events.clone());
        self.changed(Table::ScalingEvents, before.map(Row::ScalingEvents), Some(Row::ScalingEvents(events)));
    }

    /// Notes when a periodic job was launched.
    pub fn put_launch(&mut self, key: &JobKey, launch: Nanos) {
        let before = self.s.launches.get(key).cloned();
        let row = Arc::new(PeriodicLaunch {
            namespace: key.namespace.to_string(),
            job_id: key.id.to_string(),
            launch,
            create_index: before.as_ref().map_or(self.index, |before| before.create_index),
            modify_index: self.index,
        });
        self.s.launches.insert(key.clone(), row.clone());
        self.changed(Table::PeriodicLaunches, before.map(Row::PeriodicLaunch), Some(Row::PeriodicLaunch(row)));
    }

    /// Brings the status of the touched jobs up to date and writes the summaries that changed.
    pub fn finish(mut self) -> Vec<Change> {
        while let Some(key) = self.dirty_jobs.pop_first() {
            let Some(job) = self.s.jobs.get(&key).cloned() else { continue };
            let status = self.s.derive_job_status(&key, &job);
            if status == job.status {
                continue;
            }
            let before = job.status;
            let mut changed = Job::clone(&job);
            changed.status = status;
            changed.modify_index = self.index;
            if let Some(parent) = parent_key(&changed) {
                self.count_child(&parent, Some(before), Some(status));
            }
            self.put_job(Arc::new(changed));
            self.dirty_jobs.remove(&key);
        }
        for (key, mut summary) in std::mem::take(&mut self.summaries) {
            let before = self.s.summaries.get(&key).cloned();
            if before.as_deref() == Some(&summary) {
                continue;
            }
            summary.modify_index = self.index;
            let summary = Arc::new(summary);
            self.s.summaries.insert(key, summary.clone());
            self.changed(Table::Summaries, before.map(Row::Summary), Some(Row::Summary(summary)));
        }
        self.changes
    }
}
