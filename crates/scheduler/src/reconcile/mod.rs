//! The reconciler: what is to become of each allocation of a job, before any node is looked for.

mod classify;
mod deploy;
mod group;
mod names;
mod reconnect;
mod reschedule;

pub(crate) use classify::{Class, Nodes, classify, expired, last_unknown, needs_reconnect};
pub(crate) use deploy::{GroupDeployment, JobDeployment};
pub(crate) use reschedule::next_tracker;
pub use reschedule::{fail_time, next_delay, reschedule_allowed};

use crate::texts;
use herdsman_model::{
    AllocId, AllocStop, Allocation, ClientStatus, Deployment, DeploymentUpdate, DesiredStatus, DesiredUpdates, EvalId,
    EvalStatus, Evaluation, Job, Nanos, TaskGroup, Trigger,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an existing allocation needs to be of the job's newest version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Update {
    /// Nothing.
    None,
    /// Its record changes, its tasks go on.
    InPlace,
    /// It is replaced.
    Destructive,
}

/// Decides how an allocation is brought to the newest version.
pub(crate) trait Updater {
    fn update(&mut self, alloc: &Arc<Allocation>, group: &Arc<TaskGroup>) -> Update;
}

/// Why an allocation is to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There are too few.
    Missing,
    /// The one before failed.
    Reschedule,
    /// The one before is lost.
    Lost,
    /// The one before must leave its node.
    Migrate,
    /// The one before is out of date.
    Update,
    /// The one before is out of sight.
    Disconnect,
    /// The new version is tried beside the old one.
    Canary,
}

/// One allocation to place.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) group: Arc<TaskGroup>,
    pub(crate) cause: Cause,
    pub(crate) previous: Option<Arc<Allocation>>,
    /// What happens to the one before, if and only if this one is placed.
    pub(crate) stop_previous: Option<AllocStop>,
    pub(crate) canary: bool,
    /// The newest version is not proven yet: a version that is, is to be placed.
    pub(crate) downgrade: bool,
}

/// What is to become of a job's allocations.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Destructive updates first.
    pub(crate) wanted: Vec<Wanted>,
    /// Stopped, lost, marked unknown, or given a follow-up.
    pub(crate) stops: Vec<(Arc<Allocation>, AllocStop)>,
    pub(crate) in_place: Vec<Arc<Allocation>>,
    pub(crate) reconnected: Vec<Arc<Allocation>>,
    pub(crate) deployment: Option<Deployment>,
    pub(crate) deployment_updates: Vec<DeploymentUpdate>,
    pub(crate) desired: BTreeMap<String, DesiredUpdates>,
    pub(crate) follow_ups: Vec<Evaluation>,
}

/// What the reconciler works from.
pub(crate) struct Input<'i> {
    pub(crate) eval: &'i Evaluation,
    /// None: the job is stopped or gone.
    pub(crate) job: Option<Arc<Job>>,
    pub(crate) allocs: &'i [Arc<Allocation>],
    pub(crate) nodes: &'i Nodes,
    pub(crate) deployment: Option<Arc<Deployment>>,
    pub(crate) batch: bool,
    pub(crate) now: Nanos,
}

pub(crate) struct Reconciler<'i> {
    pub(crate) input: Input<'i>,
    pub(crate) updater: &'i mut dyn Updater,
    pub(crate) ids: &'i mut dyn FnMut() -> [u8; 16],
    pub(crate) deployment: JobDeployment,
    pub(crate) results: Results,
}

impl<'i> Reconciler<'i> {
    pub(crate) fn run(input: Input<'i>, updater: &'i mut dyn Updater, ids: &'i mut dyn FnMut() -> [u8; 16]) -> Results {
        let mut results = Results::default();
        let deployment = JobDeployment::sort(&input, &mut results.deployment_updates);
        let mut reconciler = Reconciler { input, updater, ids, deployment, results };
        reconciler.stranded();
        let mut by_group: BTreeMap<String, Vec<Arc<Allocation>>> = BTreeMap::new();
        for alloc in reconciler.input.allocs {
            by_group.entry(alloc.task_group.to_string()).or_default().push(Arc::clone(alloc));
        }
        let Some(job) = reconciler.input.job.clone() else {
            for (group, allocs) in by_group {
                reconciler.stop_all(&group, &allocs);
            }
            return reconciler.results;
        };
        let mut complete = true;
        for group in &job.task_groups {
            let allocs = by_group.remove(&group.name).unwrap_or_default();
            complete &= reconciler.group(&job, group, allocs);
        }
        for (group, allocs) in by_group {
            reconciler.stop_all(&group, &allocs);
        }
        reconciler.finish_deployment(complete);
        // Replacements of what runs come before what is new, as they free what they need.
        reconciler.results.wanted.sort_by_key(|w| w.cause != Cause::Update);
        reconciler.results
    }

    /// Stopped allocations that a node can no longer end, because it is down or gone, are lost.
    fn stranded(&mut self) {
        let job = self.input.job.clone();
        let mut looks: BTreeMap<String, EvalId> = BTreeMap::new();
        for alloc in self.input.allocs {
            let Some(mut stop) = stranded(alloc, self.input.nodes) else { continue };
            let group = job.as_ref().and_then(|j| j.group(&alloc.task_group));
            if let (Some(group), Some(delay)) = (group, group.and_then(|g| Self::stop_delay(g))) {
                // Its tasks may go on for a while: the group is looked at again when they are sure to have stopped.
                let at = self.input.now.saturating_add(delay);
                let known = looks.get(&group.name).copied();
                let id =
                    known.unwrap_or_else(|| self.follow_up(Trigger::AllocReschedule, at, texts::DELAYED_RESCHEDULE));
                looks.insert(group.name.clone(), id);
                stop.follow_up_eval = Some(id);
            }
            self.results.stops.push((Arc::clone(alloc), stop));
        }
    }

    /// Stops every allocation of a group that the servers have not stopped yet.
    fn stop_all(&mut self, group: &str, allocs: &[Arc<Allocation>]) {
        let live: Vec<_> = allocs.iter().filter(|a| !a.server_terminal()).cloned().collect();
        let counts = self.results.desired.entry(group.to_owned()).or_default();
        counts.stop = counts.stop.saturating_add(u64::try_from(live.len()).unwrap_or(u64::MAX));
        for alloc in live {
            self.stop_unneeded(&alloc);
        }
    }

    /// Stops an allocation that is wanted no more; one on a node that is down or gone is lost.
    pub(crate) fn stop_unneeded(&mut self, alloc: &Arc<Allocation>) {
        let lost = !alloc.client_terminal() && self.input.nodes.is_down(alloc);
        let stop = if lost { lost_stop(alloc.id) } else { stop(alloc.id, texts::NOT_NEEDED) };
        self.results.stops.push((Arc::clone(alloc), stop));
    }

    /// A new evaluation of the same job at a later time.
    pub(crate) fn follow_up(&mut self, trigger: Trigger, at: Nanos, description: &str) -> EvalId {
        let eval = self.input.eval;
        let job_modify_index = self.input.job.as_ref().map_or(0, |j| j.modify_index);
        let follow_up = Evaluation {
            id: EvalId((self.ids)()),
            namespace: Arc::clone(&eval.namespace),
            priority: eval.priority,
            kind: eval.kind,
            triggered_by: trigger,
            job_id: Arc::clone(&eval.job_id),
            job_modify_index,
            status: EvalStatus::Pending,
            status_description: description.to_owned(),
            wait_until: Some(at),
            previous_eval: Some(eval.id),
            create_time: self.input.now,
            modify_time: self.input.now,
            ..Evaluation::default()
        };
        let id = follow_up.id;
        self.results.follow_ups.push(follow_up);
        id
    }
}

/// A stop for the given reason.
pub(crate) fn stop(id: AllocId, description: &str) -> AllocStop {
    AllocStop {
        id,
        desired_status: DesiredStatus::Stop,
        desired_description: description.to_owned(),
        client_status: None,
        follow_up_eval: None,
        preempted_by: None,
        reschedule_failed: false,
    }
}

/// A stop of an allocation whose node is down or gone.
pub(crate) fn lost_stop(id: AllocId) -> AllocStop {
    AllocStop { client_status: Some(ClientStatus::Lost), ..stop(id, texts::LOST) }
}

/// A mark on an allocation that goes on as it is.
pub(crate) fn mark(alloc: &Allocation) -> AllocStop {
    AllocStop { desired_status: alloc.desired_status, ..stop(alloc.id, &alloc.desired_description) }
}

/// The stop that turns an allocation which the servers stopped on a dead node to lost.
pub(crate) fn stranded(alloc: &Allocation, nodes: &Nodes) -> Option<AllocStop> {
    let alive = matches!(alloc.client_status, ClientStatus::Running | ClientStatus::Pending);
    (alloc.server_terminal() && alive && nodes.is_down(alloc)).then(|| lost_stop(alloc.id))
}
