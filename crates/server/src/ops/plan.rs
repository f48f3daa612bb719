//! Trying a job out: what a register would change, without the log.

use crate::error::ServerError;
use crate::leader::periodic::next_launch;
use crate::ops::RegisterRequest;
use crate::server::Server;
use crate::view::StateView;
use herdsman_model::{AllocMetric, Evaluation, Job, PlanAnnotations};
use herdsman_scheduler::process;
use herdsman_state::{Body, Command, EvalRequest, RegisterJob, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A job to try out.
pub type PlanRequest = RegisterRequest;

/// What a register would change.
#[derive(Debug, Clone, Default)]
pub struct Planned {
    /// The job as it is registered now.
    pub old: Option<Arc<Job>>,
    /// The job as it would be registered.
    pub new: Arc<Job>,
    pub annotations: Option<Arc<PlanAnnotations>>,
    pub failed_groups: BTreeMap<String, Arc<AllocMetric>>,
    pub created_evals: Vec<Evaluation>,
    /// Nanoseconds since the Unix epoch; none for jobs without a schedule.
    pub next_periodic_launch: Option<i64>,
    /// The modify index to enforce when the job is registered after this plan.
    pub job_modify_index: u64,
    pub warnings: String,
    /// Index of the state it was tried on.
    pub index: u64,
}

impl Server {
    /// Tries out what registering a job would change.
    ///
    /// # Errors
    /// As [`Server::register_job`].
    pub fn plan_job(&self, request: &PlanRequest) -> Result<Planned, ServerError> {
        let prepared = self.prepare_job(request)?;
        let snapshot = self.snapshot();
        let old = snapshot.job(&prepared.job.namespace, &prepared.job.id).cloned();
        let mut trial = Store::from_snapshot(snapshot.as_ref().clone());
        let next_periodic_launch =
            prepared.job.is_periodic_active().then(|| next_launch(&prepared.job, self.now())).flatten();
        let (namespace, id) = (prepared.job.namespace.clone(), prepared.job.id.clone());
        let command = RegisterJob {
            job: prepared.job,
            eval: Some(EvalRequest::default()),
            enforce_index: request.enforce_index,
            keep_versions: self.config().jobs.tracked_versions,
            seed: self.seed(),
            ..RegisterJob::default()
        };
        let outcome = trial.apply(Command { now: self.now(), body: Body::RegisterJob(Box::new(command)) });
        let reply = outcome.result?;
        let missing = || ServerError::refused("job not found");
        let new = trial.snapshot().job(&namespace, &id).cloned().ok_or_else(missing)?;
        let eval = reply.eval_id.and_then(|id| trial.snapshot().eval(&id).cloned());
        let mut planned = Planned {
            job_modify_index: old.as_ref().map_or(0, |job| job.job_modify_index),
            old,
            new: Arc::clone(&new),
            next_periodic_launch,
            warnings: herdsman_model::validate::warnings_text(&prepared.warnings),
            index: snapshot.index(),
            ..Planned::default()
        };
        // What only launches others changes no allocation.
        if new.is_periodic() || new.is_parameterized() {
            planned.annotations = Some(Arc::new(PlanAnnotations::default()));
            return Ok(planned);
        }
        if let Some(eval) = eval {
            let eval = Evaluation { annotate_plan: true, ..Evaluation::clone(&eval) };
            let seed = crate::leader::seed_of(&eval, snapshot.index());
            let rng = &self.world().rng;
            let view = StateView::new(Arc::new(trial.snapshot().clone()));
            let decision = process(&view, &eval, seed, self.now(), &mut || rng.bytes16());
            planned.annotations = decision.plan.annotations.or(decision.evaluation.annotations);
            planned.failed_groups = decision.failed_groups;
            planned.created_evals = decision.new_evals;
        }
        Ok(planned)
    }
}
