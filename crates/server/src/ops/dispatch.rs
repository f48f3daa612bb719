//! Launching children by request.

use crate::error::ServerError;
use crate::leader::periodic::child_of;
use crate::ops::JobChanged;
use crate::server::Server;
use base64::Engine as _;
use herdsman_model::values::SECOND;
use herdsman_model::{Job, JobStatus};
use herdsman_state::{Body, DispatchJob, LaunchPeriodic};
use std::collections::BTreeMap;

/// The largest payload of a dispatch.
pub const MAX_PAYLOAD_BYTES: usize = 16 * 1024;

/// A child to launch.
#[derive(Debug, Clone, Default)]
pub struct DispatchRequest {
    pub namespace: String,
    pub job_id: String,
    pub payload: Vec<u8>,
    pub meta: BTreeMap<String, String>,
    /// Put before the time in the child's id.
    pub id_prefix: String,
    /// A child launched with the same token before is answered instead.
    pub idempotency_token: String,
    /// 0: the job's.
    pub priority: i64,
}

/// A child that was launched, now or earlier with the same token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dispatched {
    pub job_id: String,
    pub changed: JobChanged,
}

/// The names in a list as error texts print it.
fn list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

/// Checks what a dispatch brings against what the job takes.
fn check(job: &Job, request: &DispatchRequest) -> Result<(), ServerError> {
    let Some(takes) = &job.parameterized_job else {
        return Err(ServerError::refused(format!("Specified job \"{}\" is not a parameterized job", job.id)));
    };
    if job.stop {
        return Err(ServerError::refused(format!("Specified job \"{}\" is stopped", job.id)));
    }
    let size = request.payload.len();
    match takes.payload.as_str() {
        "required" if size == 0 => return Err(ServerError::refused("Payload is not provided but required")),
        "forbidden" if size > 0 => return Err(ServerError::refused("Payload provided but forbidden")),
        _ => {}
    }
    if size > MAX_PAYLOAD_BYTES {
        return Err(ServerError::refused(format!("Payload exceeds maximum size; {size} > {MAX_PAYLOAD_BYTES}")));
    }
    let known = |name: &String| takes.meta_required.contains(name) || takes.meta_optional.contains(name);
    let strange: Vec<&str> = request.meta.keys().filter(|name| !known(name)).map(String::as_str).collect();
    if !strange.is_empty() {
        let text = format!("Dispatch request included unpermitted metadata keys: {}", list(&strange));
        return Err(ServerError::refused(text));
    }
    let mut missing: Vec<&str> =
        takes.meta_required.iter().filter(|name| !request.meta.contains_key(*name)).map(String::as_str).collect();
    missing.sort_unstable();
    if !missing.is_empty() {
        let text = format!("Dispatch did not provide required meta keys: {}", list(&missing));
        return Err(ServerError::refused(text));
    }
    Ok(())
}

impl Server {
    /// Launches a child of a parameterized job.
    ///
    /// # Errors
    /// 500 when there is no such job, or it does not take what is given.
    pub async fn dispatch_job(&self, request: DispatchRequest) -> Result<Dispatched, ServerError> {
        self.check_registration()?;
        let job = self
            .snapshot()
            .job(&request.namespace, &request.job_id)
            .cloned()
            .ok_or_else(|| ServerError::refused("parameterized job not found"))?;
        check(&job, &request)?;
        let max = self.config().jobs.max_priority;
        if request.priority != 0 && !(1..=max).contains(&request.priority) {
            return Err(ServerError::refused(format!("priority must be between 1 and {max}")));
        }
        let mut child = Job::clone(&job);
        let seconds = self.now().div_euclid(SECOND);
        let tail = self.world().rng.u64() & u64::from(u32::MAX);
        let prefix = if request.id_prefix.is_empty() { String::new() } else { format!("{}-", request.id_prefix) };
        child.id = format!("{}/dispatch-{prefix}{seconds}-{tail:08x}", job.id);
        child.name.clone_from(&child.id);
        child.parent_id.clone_from(&job.id);
        child.dispatched = true;
        child.dispatch_idempotency_token.clone_from(&request.idempotency_token);
        child.status = JobStatus::Pending;
        child.status_description.clear();
        child.stable = false;
        child.version_tag = None;
        child.meta.0.extend(request.meta);
        if !request.payload.is_empty() {
            child.payload = Some(base64::engine::general_purpose::STANDARD.encode(&request.payload));
        }
        if request.priority > 0 {
            child.priority = request.priority;
        }
        let command = DispatchJob {
            namespace: request.namespace,
            job_id: request.job_id,
            // A child with a schedule of its own waits for it.
            eval: !child.is_periodic(),
            child,
            idempotency_token: request.idempotency_token,
            seed: self.seed(),
        };
        let applied = self.propose(Body::DispatchJob(Box::new(command))).await?;
        let changed = JobChanged::of(&applied, String::new());
        Ok(Dispatched { job_id: applied.reply.job_id, changed })
    }

    /// Launches a periodic job now, whatever its schedule.
    ///
    /// # Errors
    /// 500 when there is no such job, or it is not periodic.
    pub async fn force_periodic(&self, namespace: &str, job_id: &str) -> Result<JobChanged, ServerError> {
        self.check_registration()?;
        let job = self.job_for_change(namespace, job_id)?;
        if !job.is_periodic() {
            return Err(ServerError::refused("can't force launch non-periodic job"));
        }
        // Launches within one second have one id: the next free second is taken.
        let mut launch = self.now().div_euclid(SECOND).saturating_mul(SECOND);
        let snapshot = self.snapshot();
        while snapshot.job(namespace, &child_of(&job, launch).id).is_some() {
            launch = launch.saturating_add(SECOND);
        }
        let command = LaunchPeriodic {
            namespace: namespace.to_owned(),
            job_id: job_id.to_owned(),
            launch,
            child: child_of(&job, launch),
            prohibit_overlap: job.periodic.as_ref().is_some_and(|periodic| periodic.prohibit_overlap),
            seed: self.seed(),
        };
        let applied = self.propose(Body::LaunchPeriodic(Box::new(command))).await?;
        Ok(JobChanged::of(&applied, String::new()))
    }
}
