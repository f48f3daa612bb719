//! Jobs: register, stop, scale, revert, evaluate, tag.

use crate::error::ServerError;
use crate::server::{Applied, Server};
use herdsman_model::gate;
use herdsman_model::spec::{canonicalize, normalize};
use herdsman_model::validate::{Limits, validate_words, warnings_text};
use herdsman_model::{ClientStatus, DesiredTransition, EvalId, Evaluation, Job, JobStatus, Trigger};
use herdsman_state::{
    Body, DeregisterJob, EvalRequest, JobKey, JobStability, JobSubmission, JobVersionTag, RegisterJob, ScaleJob,
    ScalingEvent, UpsertEvals,
};
use serde_json::Value;
use std::sync::Arc;

/// What clients match when the scheduler configuration refuses jobs.
pub const REGISTRATION_DISABLED: &str =
    "job registration, dispatch, and scale are disabled by the scheduler configuration";

/// A job to register, as a client sends it.
#[derive(Debug, Clone, Default)]
pub struct RegisterRequest {
    /// The job in submitted JSON form.
    pub job: Value,
    /// Beats the job's own namespace; empty: the job's own, or the default.
    pub namespace: String,
    /// Only when the job's modify index is this (0: only when there is no such job).
    pub enforce_index: Option<u64>,
    /// Groups that exist keep their count.
    pub preserve_counts: bool,
    /// Tasks that exist keep what they ask for.
    pub preserve_resources: bool,
    /// 0: the job's.
    pub eval_priority: i64,
    pub submission: Option<JobSubmission>,
}

/// What a change of a job led to. Indexes of what was not made are 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobChanged {
    pub eval_id: Option<EvalId>,
    pub eval_create_index: u64,
    pub job_modify_index: u64,
    pub job_create_index: u64,
    pub index: u64,
    pub warnings: String,
}

impl JobChanged {
    pub(crate) fn of(applied: &Applied, warnings: String) -> JobChanged {
        let made = applied.reply.eval_id.is_some();
        JobChanged {
            eval_id: applied.reply.eval_id,
            eval_create_index: if made { applied.index } else { 0 },
            job_modify_index: applied.reply.job_modify_index,
            job_create_index: applied.reply.job_create_index,
            index: applied.index,
            warnings,
        }
    }
}

/// A job ready to register: canonical, admitted and valid.
#[derive(Debug, Clone)]
pub struct PreparedJob {
    pub job: Job,
    /// What is worth knowing.
    pub warnings: Vec<String>,
}

/// A job to stop.
#[derive(Debug, Clone, Default)]
pub struct DeregisterRequest {
    pub namespace: String,
    pub job_id: String,
    pub purge: bool,
    pub no_shutdown_delay: bool,
    /// 0: the job's.
    pub eval_priority: i64,
}

/// A version to return to.
#[derive(Debug, Clone, Default)]
pub struct RevertRequest {
    pub namespace: String,
    pub job_id: String,
    pub version: u64,
    /// Only when this is the current version.
    pub enforce_prior_version: Option<u64>,
}

/// A change of a group's count, or only a note about one.
#[derive(Debug, Clone, Default)]
pub struct ScaleRequest {
    pub namespace: String,
    pub job_id: String,
    pub group: String,
    pub count: Option<i64>,
    pub message: String,
    pub error: bool,
    pub meta: herdsman_model::Map<Value>,
}

/// A name for a version, or the end of it.
#[derive(Debug, Clone, Default)]
pub struct TagRequest {
    pub namespace: String,
    pub job_id: String,
    pub name: String,
    pub description: String,
    /// None: the current version.
    pub version: Option<u64>,
}

/// What only the servers decide about a job is not taken from a user.
fn forget_server_side(job: &mut Job) {
    job.parent_id.clear();
    job.dispatched = false;
    job.dispatch_idempotency_token.clear();
    job.payload = None;
    job.status = JobStatus::Pending;
    job.status_description.clear();
    job.stable = false;
    job.version = 0;
    job.version_tag = None;
    job.create_index = 0;
    job.modify_index = 0;
    job.job_modify_index = 0;
    job.submit_time = 0;
}

impl Server {
    /// Brings a submitted job into registered form and validates it, without writing anything.
    ///
    /// # Errors
    /// 400 when it is no job, 500 with every fault when it is no valid one.
    pub fn prepare_job(&self, request: &RegisterRequest) -> Result<PreparedJob, ServerError> {
        let (mut job, words, issues) = {
            let mut spec = normalize(request.job.clone()).map_err(|error| ServerError::new(400, error.to_string()))?;
            canonicalize(&mut spec);
            let (job, words) =
                Job::from_spec_with_words(&spec).map_err(|error| ServerError::refused(error.to_string()))?;
            (job, words, gate::gate_spec(&spec))
        };
        forget_server_side(&mut job);
        if !request.namespace.is_empty() {
            job.namespace.clone_from(&request.namespace);
        }
        if job.region.is_empty() || job.region == "global" {
            job.region.clone_from(&self.config().region);
        }
        let rng = &self.world().rng;
        herdsman_model::admit(&mut job, &mut || EvalId(rng.bytes16()).to_string());
        let snapshot = self.snapshot();
        let limits = Limits {
            max_priority: self.config().jobs.max_priority,
            max_count: self.config().jobs.max_count,
            memory_oversubscription: snapshot.scheduler_config().memory_oversubscription_enabled,
        };
        let mut validation = validate_words(&job, &words, &limits);
        // What is a promise that is not kept is refused; what does no harm is told.
        let refused = issues.iter().filter(|issue| issue.severity == gate::Severity::Refuse);
        validation.errors.extend(refused.map(|issue| issue.reason.clone()));
        validation.warnings.extend(gate::warnings(&issues));
        if !validation.errors.is_empty() {
            return Err(ServerError::refused(validation.error_text()));
        }
        self.check_capabilities(&job)?;
        if let Some(existing) = snapshot.job(&job.namespace, &job.id) {
            keep_asked_for(&mut job, existing, request);
        }
        Ok(PreparedJob { job, warnings: validation.warnings })
    }

    /// Refuses drivers and network modes that the job's namespace does not allow.
    fn check_capabilities(&self, job: &Job) -> Result<(), ServerError> {
        let snapshot = self.snapshot();
        let Some(namespace) = snapshot.namespace(&job.namespace) else { return Ok(()) };
        let Some(capabilities) = &namespace.capabilities else { return Ok(()) };
        let allowed = |enabled: &[String], disabled: &[String], word: &str| {
            (enabled.is_empty() || enabled.iter().any(|other| other == word))
                && !disabled.iter().any(|other| other == word)
        };
        let name = &namespace.name;
        let mut problems = Vec::new();
        for group in job.task_groups.iter() {
            for task in group.tasks.iter() {
                let (on, off) = (&capabilities.enabled_task_drivers, &capabilities.disabled_task_drivers);
                if !allowed(on, off, &task.driver) {
                    let text = format!("used task driver \"{}\" is not allowed in namespace \"{name}\"", task.driver);
                    if !problems.contains(&text) {
                        problems.push(text);
                    }
                }
            }
            for network in group.networks.iter() {
                let mode = if network.mode.is_empty() { "host" } else { network.mode.as_str() };
                let (on, off) = (&capabilities.enabled_network_modes, &capabilities.disabled_network_modes);
                if !allowed(on, off, mode) {
                    problems.push(format!("used group network mode \"{mode}\" is not allowed in namespace \"{name}\""));
                }
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(ServerError::refused(herdsman_model::validate::multi(problems.iter().map(String::as_str))))
    }

    /// Refuses while the scheduler configuration takes no jobs.
    pub(crate) fn check_registration(&self) -> Result<(), ServerError> {
        if self.snapshot().scheduler_config().reject_job_registration {
            return Err(ServerError::new(403, REGISTRATION_DISABLED));
        }
        Ok(())
    }

    /// Registers a job, or a new version of it.
    ///
    /// # Errors
    /// As [`Server::prepare_job`]; or what the tables refuse.
    pub async fn register_job(&self, request: RegisterRequest) -> Result<JobChanged, ServerError> {
        self.check_registration()?;
        let PreparedJob { job, mut warnings } = self.prepare_job(&request)?;
        let mut submission = request.submission;
        let limit = self.config().jobs.max_source_bytes;
        if let Some(text) = submission.as_ref().filter(|text| text.source.len() + text.variables.len() > limit) {
            let size = text.source.len() + text.variables.len();
            if limit > 0 {
                warnings.push(format!(
                    "job source size of {} exceeds maximum of {} and will be discarded",
                    size_text(size),
                    size_text(limit)
                ));
            }
            submission = None;
        }
        let evaluates = !job.is_periodic() && !job.is_parameterized();
        let eval =
            evaluates.then_some(EvalRequest { priority: request.eval_priority, triggered_by: Trigger::JobRegister });
        let applied = self.write_job(job, submission, eval, request.enforce_index).await?;
        Ok(JobChanged::of(&applied, warnings_text(&warnings)))
    }

    async fn write_job(
        &self,
        job: Job,
        submission: Option<JobSubmission>,
        eval: Option<EvalRequest>,
        enforce_index: Option<u64>,
    ) -> Result<Applied, ServerError> {
        let keep_versions = self.config().jobs.tracked_versions;
        let command = RegisterJob { job, submission, eval, enforce_index, keep_versions, seed: self.seed() };
        self.propose(Body::RegisterJob(Box::new(command))).await
    }

    /// Stops a job, or removes it. An unknown job is no error: the answer says that nothing was made.
    ///
    /// # Errors
    /// 400 for a priority out of range; what the log refuses.
    pub async fn deregister_job(&self, request: DeregisterRequest) -> Result<JobChanged, ServerError> {
        let max = self.config().jobs.max_priority;
        if request.eval_priority != 0 && !(1..=max).contains(&request.eval_priority) {
            return Err(ServerError::new(400, format!("Eval priority must be between 1 and {max} inclusively")));
        }
        if self.snapshot().job(&request.namespace, &request.job_id).is_none() {
            return Ok(JobChanged::default());
        }
        let command = DeregisterJob {
            namespace: request.namespace,
            job_id: request.job_id,
            purge: request.purge,
            no_shutdown_delay: request.no_shutdown_delay,
            eval_priority: request.eval_priority,
            seed: self.seed(),
        };
        let applied = self.propose(Body::DeregisterJob(command)).await?;
        Ok(JobChanged::of(&applied, String::new()))
    }

    /// A job, or the error that an operation answers for an unknown one.
    pub(crate) fn job_for_change(&self, namespace: &str, id: &str) -> Result<Arc<Job>, ServerError> {
        self.snapshot().job(namespace, id).cloned().ok_or_else(|| ServerError::refused("job not found"))
    }

    /// Makes an evaluation for a job; may ask for its failed allocations to be rescheduled whatever their policy.
    ///
    /// # Errors
    /// 500 when there is no such job, or it only launches others.
    pub async fn evaluate_job(
        &self,
        namespace: &str,
        job_id: &str,
        force_reschedule: bool,
    ) -> Result<JobChanged, ServerError> {
        let job = self.job_for_change(namespace, job_id)?;
        if job.is_periodic() {
            return Err(ServerError::refused("can't evaluate periodic job"));
        }
        if job.is_parameterized() {
            return Err(ServerError::refused("can't evaluate parameterized job"));
        }
        let key = JobKey::of(&job);
        let snapshot = self.snapshot();
        let transition = DesiredTransition { force_reschedule: Some(true), ..DesiredTransition::default() };
        let transitions = snapshot
            .allocs_by_job(&key)
            .filter(|alloc| force_reschedule && alloc.client_status == ClientStatus::Failed)
            .filter(|alloc| alloc.next_allocation.is_none())
            .map(|alloc| (alloc.id, transition.clone()))
            .collect();
        let eval = Evaluation {
            id: EvalId(self.world().rng.bytes16()),
            namespace: key.namespace,
            priority: job.priority,
            kind: job.kind,
            triggered_by: Trigger::JobRegister,
            job_id: key.id,
            job_modify_index: job.modify_index,
            ..Evaluation::default()
        };
        let applied = self.propose(Body::UpsertEvals(UpsertEvals { evals: vec![eval], transitions })).await?;
        let mut changed = JobChanged::of(&applied, String::new());
        changed.job_modify_index = job.job_modify_index;
        Ok(changed)
    }

    /// Registers an earlier version again.
    ///
    /// # Errors
    /// 500 when there is no such job or version, or another version is current.
    pub async fn revert_job(&self, request: RevertRequest) -> Result<JobChanged, ServerError> {
        let snapshot = self.snapshot();
        let current = self.job_for_change(&request.namespace, &request.job_id)?;
        if let Some(wanted) = request.enforce_prior_version
            && wanted != current.version
        {
            let text = format!("Current job has version {}; enforcing version {wanted}", current.version);
            return Err(ServerError::refused(text));
        }
        if request.version == current.version {
            return Err(ServerError::refused("can't revert to current version"));
        }
        let missing = || {
            ServerError::refused(format!(
                "job \"{}\" in namespace \"{}\" at version {} not found",
                request.job_id, request.namespace, request.version
            ))
        };
        let versions = snapshot.job_versions(&request.namespace, &request.job_id).ok_or_else(missing)?;
        let target = versions.iter().find(|job| job.version == request.version).ok_or_else(missing)?;
        self.check_registration()?;
        let text = snapshot
            .job_submission(&request.namespace, &request.job_id, request.version)
            .map(|text| JobSubmission::clone(text));
        let evaluates = !target.is_periodic() && !target.is_parameterized();
        let eval = evaluates.then(EvalRequest::default);
        let enforced = Some(current.job_modify_index);
        let applied = self.write_job(Job::clone(target), text, eval, enforced).await?;
        Ok(JobChanged::of(&applied, String::new()))
    }

    /// Marks a version as stable or not. Gives the index.
    ///
    /// # Errors
    /// 500 when there is no such job or version.
    pub async fn set_job_stability(
        &self,
        namespace: &str,
        job_id: &str,
        version: u64,
        stable: bool,
    ) -> Result<u64, ServerError> {
        let command = JobStability { namespace: namespace.to_owned(), job_id: job_id.to_owned(), version, stable };
        Ok(self.propose(Body::JobStability(command)).await?.index)
    }

    /// Changes the count of a group, or only notes an event.
    ///
    /// # Errors
    /// 404 for an unknown job; 400 for what is no scaling, or is out of bounds.
    pub async fn scale_job(&self, request: ScaleRequest) -> Result<JobChanged, ServerError> {
        let bad = |text: &str| Err(ServerError::new(400, text));
        if request.group.is_empty() {
            return bad("missing task group name for scaling action");
        }
        if request.error && request.count.is_some() {
            return bad("scaling action should not contain count if error is true");
        }
        if request.count.is_some_and(|count| count < 0) {
            return bad("scaling action count can't be negative");
        }
        if request.count.is_some() {
            self.check_registration()?;
        }
        let limit = self.config().jobs.max_count;
        if let Some(count) = request.count
            && let Some(job) = self.snapshot().job(&request.namespace, &request.job_id)
        {
            let others: i64 =
                job.task_groups.iter().filter(|group| group.name != request.group).map(|group| group.count).sum();
            let total = others.saturating_add(count);
            if total > limit {
                return bad(&format!("total count was greater than configured job_max_count: {total} > {limit}"));
            }
        }
        let event = ScalingEvent {
            message: request.message,
            error: request.error,
            meta: request.meta,
            ..ScalingEvent::default()
        };
        let command = ScaleJob {
            namespace: request.namespace,
            job_id: request.job_id,
            group: request.group,
            count: request.count,
            event,
            keep_versions: self.config().jobs.tracked_versions,
            seed: self.seed(),
        };
        let applied = self.propose(Body::ScaleJob(command)).await?;
        Ok(JobChanged::of(&applied, String::new()))
    }

    /// Names a version. Gives the index and the time.
    ///
    /// # Errors
    /// 500 when the name is another version's, or there is no such version.
    pub async fn tag_job_version(&self, request: TagRequest) -> Result<(u64, i64), ServerError> {
        let current = self.job_for_change(&request.namespace, &request.job_id)?;
        if request.name.is_empty() {
            return Err(ServerError::new(400, "missing tag name"));
        }
        let version = request.version.unwrap_or(current.version);
        let (namespace, job_id, name) = (request.namespace, request.job_id, request.name);
        let command = JobVersionTag {
            namespace: namespace.clone(),
            job_id: job_id.clone(),
            name,
            description: request.description,
            version: Some(version),
        };
        let applied = self.propose(Body::JobVersionTag(command)).await?;
        let time = self
            .snapshot()
            .job_version(&namespace, &job_id, version)
            .and_then(|job| job.version_tag.as_ref().map(|tag| tag.tagged_time))
            .unwrap_or(0);
        Ok((applied.index, time))
    }

    /// Takes a version's name away. Gives the index.
    ///
    /// # Errors
    /// 500 when no version has it.
    pub async fn untag_job_version(&self, namespace: &str, job_id: &str, name: &str) -> Result<u64, ServerError> {
        self.job_for_change(namespace, job_id)?;
        let command = JobVersionTag {
            namespace: namespace.to_owned(),
            job_id: job_id.to_owned(),
            name: name.to_owned(),
            ..JobVersionTag::default()
        };
        Ok(self.propose(Body::JobVersionTag(command)).await?.index)
    }
}

/// A size as warnings show it: `1.1 MB`.
fn size_text(bytes: usize) -> String {
    const UNITS: [(usize, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let Some((unit, name)) = UNITS.iter().find(|(unit, _)| bytes >= *unit) else { return format!("{bytes} B") };
    let tenths = (bytes.saturating_mul(10) + unit / 2) / unit;
    if tenths < 100 { format!("{}.{} {name}", tenths / 10, tenths % 10) } else { format!("{} {name}", tenths / 10) }
}

/// Keeps counts and resources of what exists, when asked to.
fn keep_asked_for(job: &mut Job, existing: &Job, request: &RegisterRequest) {
    for place in job.task_groups.iter_mut() {
        let Some(before) = existing.group(&place.name) else { continue };
        if request.preserve_counts {
            Arc::make_mut(place).count = before.count;
        }
        if request.preserve_resources {
            let group = Arc::make_mut(place);
            for task in group.tasks.iter_mut() {
                if let Some(before) = before.task(&task.name) {
                    Arc::make_mut(task).resources = before.resources.clone();
                }
            }
        }
    }
}
