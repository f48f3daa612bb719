//! What is derived from rows: secondary indexes, pins of job versions and counts per job. Linking a row adds its part,
//! unlinking takes it away, so that restoring a stored snapshot is linking every row.

use crate::rows::{JobKey, ScalingPolicyRow};
use crate::snapshot::{JobCounts, Pin, Snapshot};
use herdsman_model::{Allocation, Deployment, Evaluation, Job, JobType, NodeId};
use herdsman_proto::ServiceRegistration;
use imbl::{OrdMap, OrdSet};
use std::sync::Arc;

/// The key of the job an allocation belongs to.
pub(crate) fn alloc_key(alloc: &Allocation) -> JobKey {
    JobKey { namespace: alloc.namespace.clone(), id: alloc.job_id.clone() }
}

/// The key of the job an evaluation is about.
pub(crate) fn eval_key(eval: &Evaluation) -> JobKey {
    JobKey { namespace: eval.namespace.clone(), id: eval.job_id.clone() }
}

/// The key of the job a deployment is of.
pub(crate) fn deployment_key(deployment: &Deployment) -> JobKey {
    JobKey { namespace: deployment.namespace.clone(), id: deployment.job_id.clone() }
}

/// The key of the job that launched this one.
pub(crate) fn parent_key(job: &Job) -> Option<JobKey> {
    (!job.parent_id.is_empty()).then(|| JobKey::new(&job.namespace, &job.parent_id))
}

/// Adds an entry to a set that a map holds.
fn add<K: Ord + Clone, V: Ord + Clone>(map: &mut OrdMap<K, OrdSet<V>>, key: K, value: V) {
    map.entry(key).or_default().insert(value);
}

/// Takes an entry from a set that a map holds, and the set when it is empty.
fn take<K: Ord + Clone, V: Ord + Clone>(map: &mut OrdMap<K, OrdSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

impl Snapshot {
    /// Changes the counts of a job; counts of nothing are not kept.
    fn count(&mut self, key: &JobKey, change: impl FnOnce(&mut JobCounts)) {
        let mut counts = self.counts.get(key).copied().unwrap_or_default();
        change(&mut counts);
        if counts == JobCounts::default() {
            self.counts.remove(key);
        } else {
            self.counts.insert(key.clone(), counts);
        }
    }

    /// Notes that one more allocation refers to its job version.
    fn pin(&mut self, key: &JobKey, alloc: &Allocation) {
        let version = (alloc.job_create_index, alloc.job_version);
        if let Some(pin) = self.pins.get_mut(key).and_then(|pins| pins.get_mut(&version)) {
            pin.allocs += 1;
            return;
        }
        let kept = self.versions.get(key).and_then(|versions| {
            versions.iter().find(|job| job.version == version.1 && job.create_index == version.0).cloned()
        });
        if let Some(job) = kept {
            self.pins.entry(key.clone()).or_default().insert(version, Pin { job, allocs: 1 });
        }
    }

    /// Notes that one allocation fewer refers to its job version, and forgets the version with the last.
    fn unpin(&mut self, key: &JobKey, alloc: &Allocation) {
        let version = (alloc.job_create_index, alloc.job_version);
        let Some(pins) = self.pins.get_mut(key) else { return };
        let Some(pin) = pins.get_mut(&version) else { return };
        pin.allocs = pin.allocs.saturating_sub(1);
        if pin.allocs == 0 {
            pins.remove(&version);
            if pins.is_empty() {
                self.pins.remove(key);
            }
        }
    }

    pub(crate) fn link_alloc(&mut self, alloc: &Arc<Allocation>) {
        let key = alloc_key(alloc);
        self.pin(&key, alloc);
        if !alloc.client_terminal() {
            self.count(&key, |counts| counts.live_allocs += 1);
        }
        add(&mut self.allocs_by_node, alloc.node_id, alloc.id);
        self.note_work(alloc.node_id, alloc.alloc_modify_index);
        add(&mut self.allocs_by_job, key, alloc.id);
        self.allocs_by_eval.insert((alloc.eval_id, alloc.id));
        if let Some(deployment) = alloc.deployment_id {
            self.allocs_by_deployment.insert((deployment, alloc.id));
        }
    }

    pub(crate) fn unlink_alloc(&mut self, alloc: &Allocation) {
        let key = alloc_key(alloc);
        self.unpin(&key, alloc);
        if !alloc.client_terminal() {
            self.count(&key, |counts| counts.live_allocs = counts.live_allocs.saturating_sub(1));
        }
        take(&mut self.allocs_by_node, &alloc.node_id, &alloc.id);
        take(&mut self.allocs_by_job, &key, &alloc.id);
        self.allocs_by_eval.remove(&(alloc.eval_id, alloc.id));
        if let Some(deployment) = alloc.deployment_id {
            self.allocs_by_deployment.remove(&(deployment, alloc.id));
        }
    }

    /// Notes that the servers changed what a node is to run.
    pub(crate) fn note_work(&mut self, node: NodeId, index: u64) {
        if self.work_index.get(&node).is_none_or(|known| *known < index) {
            self.work_index.insert(node, index);
        }
    }

    /// As unlinking one and linking the other, without the work for what is equal.
    pub(crate) fn relink_alloc(&mut self, before: &Allocation, after: &Arc<Allocation>) {
        let same_place = before.node_id == after.node_id
            && before.eval_id == after.eval_id
            && before.deployment_id == after.deployment_id
            && before.job_version == after.job_version
            && before.job_create_index == after.job_create_index
            && before.job_id == after.job_id
            && before.namespace == after.namespace;
        if !same_place {
            self.unlink_alloc(before);
            self.link_alloc(after);
            return;
        }
        if before.client_terminal() != after.client_terminal() {
            let key = alloc_key(after);
            let ended = after.client_terminal();
            self.count(&key, |counts| {
                counts.live_allocs =
                    if ended { counts.live_allocs.saturating_sub(1) } else { counts.live_allocs.saturating_add(1) };
            });
        }
    }

    pub(crate) fn link_eval(&mut self, eval: &Evaluation) {
        let key = eval_key(eval);
        let live = !eval.status.is_terminal();
        self.count(&key, |counts| {
            counts.evals += 1;
            counts.live_evals += u64::from(live);
        });
        if eval.should_block() {
            add(&mut self.blocked_by_job, key.clone(), eval.id);
        }
        add(&mut self.evals_by_job, key, eval.id);
    }

    pub(crate) fn unlink_eval(&mut self, eval: &Evaluation) {
        let key = eval_key(eval);
        let live = !eval.status.is_terminal();
        self.count(&key, |counts| {
            counts.evals = counts.evals.saturating_sub(1);
            counts.live_evals = counts.live_evals.saturating_sub(u64::from(live));
        });
        take(&mut self.blocked_by_job, &key, &eval.id);
        take(&mut self.evals_by_job, &key, &eval.id);
    }

    pub(crate) fn link_deployment(&mut self, deployment: &Deployment) {
        let key = deployment_key(deployment);
        let active = deployment.is_active();
        self.count(&key, |counts| counts.active_deployments += u64::from(active));
        add(&mut self.deployments_by_job, key, deployment.id);
    }

    pub(crate) fn unlink_deployment(&mut self, deployment: &Deployment) {
        let key = deployment_key(deployment);
        let active = deployment.is_active();
        self.count(&key, |counts| {
            counts.active_deployments = counts.active_deployments.saturating_sub(u64::from(active));
        });
        take(&mut self.deployments_by_job, &key, &deployment.id);
    }

    pub(crate) fn link_job(&mut self, job: &Job) {
        if job.kind == JobType::System {
            self.system_jobs.insert(JobKey::of(job));
        }
        let Some(parent) = parent_key(job) else { return };
        let key = JobKey::of(job);
        if !job.dispatch_idempotency_token.is_empty() {
            self.dispatch_tokens.insert((parent.clone(), job.dispatch_idempotency_token.clone()), key.clone());
        }
        add(&mut self.children, parent, key);
    }

    pub(crate) fn unlink_job(&mut self, job: &Job) {
        self.system_jobs.remove(&JobKey::of(job));
        let Some(parent) = parent_key(job) else { return };
        let key = JobKey::of(job);
        if !job.dispatch_idempotency_token.is_empty() {
            self.dispatch_tokens.remove(&(parent.clone(), job.dispatch_idempotency_token.clone()));
        }
        take(&mut self.children, &parent, &key);
    }

    pub(crate) fn link_service(&mut self, service: &ServiceRegistration) {
        let id = service.id.clone();
        self.services_by_name.insert((service.namespace.clone(), service.service_name.clone(), id.clone()));
        self.services_by_alloc.insert((service.alloc_id, id.clone()));
        self.services_by_job.insert((JobKey { namespace: service.namespace.clone(), id: service.job_id.clone() }, id));
    }

    pub(crate) fn unlink_service(&mut self, service: &ServiceRegistration) {
        let id = service.id.clone();
        self.services_by_name.remove(&(service.namespace.clone(), service.service_name.clone(), id.clone()));
        self.services_by_alloc.remove(&(service.alloc_id, id.clone()));
        self.services_by_job.remove(&(JobKey { namespace: service.namespace.clone(), id: service.job_id.clone() }, id));
    }

    pub(crate) fn link_policy(&mut self, row: &ScalingPolicyRow) {
        self.policies_by_job.insert((JobKey::new(&row.namespace, &row.job_id), row.policy.id.clone()));
    }

    pub(crate) fn unlink_policy(&mut self, row: &ScalingPolicyRow) {
        self.policies_by_job.remove(&(JobKey::new(&row.namespace, &row.job_id), row.policy.id.clone()));
    }
}
