//! Operations on jobs: parse, validate, plan, register, stop, and what changes a registered one.

use super::{body, optional_body, respell, typed, with_meta};
use crate::answer::Answer;
use crate::error::HttpError;
use crate::pipeline::Call;
use herdsman_jobspec::{Host, Inputs};
use herdsman_model::spec::{canonicalize, normalize, wrong_type};
use herdsman_model::validate::{Limits, multi, validate_words, warnings_text};
use herdsman_model::{Job, diff, gate, wire};
use herdsman_server::Server;
use herdsman_server::ops::{
    DeregisterRequest, JobChanged, Planned, RegisterRequest, RevertRequest, ScaleRequest, TagRequest,
};
use herdsman_state::JobSubmission;
use herdsman_world::Rng;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// What a job file is called in messages.
const INPUT_NAME: &str = "input.hcl";

/// Keys of a body that carries a job.
const JOB_KEYS: [&str; 14] = [
    "Job",
    "Submission",
    "EnforceIndex",
    "JobModifyIndex",
    "PolicyOverride",
    "PreserveCounts",
    "PreserveResources",
    "EvalPriority",
    "Diff",
    "Region",
    "Namespace",
    "SecretID",
    "IdempotencyToken",
    "Forwarded",
];

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct JobBody {
    job: Option<Value>,
    submission: Option<Value>,
    enforce_index: bool,
    job_modify_index: u64,
    preserve_counts: bool,
    preserve_resources: bool,
    eval_priority: i64,
    diff: bool,
    region: String,
    namespace: String,
}

fn field_of<'a>(job: &'a Value, key: &str) -> Option<&'a Value> {
    job.as_object()?.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, value)| value)
}

fn text_of<'a>(job: &'a Value, key: &str) -> &'a str {
    field_of(job, key).and_then(Value::as_str).unwrap_or_default()
}

/// A body with a job, and the job; its region must be one that can be reached.
fn job_body(call: &Call) -> Result<(JobBody, Value), HttpError> {
    let mut wanted: JobBody = body(call, &JOB_KEYS)?;
    let job = wanted.job.take().ok_or_else(|| HttpError::bad_request("Job must be specified"))?;
    if !job.is_object() {
        return Err(HttpError::bad_request("json: Job must be an object"));
    }
    // What decides where a job goes is read before the rest of it.
    for key in ["ID", "Region", "Namespace"] {
        match field_of(&job, key) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                return Err(HttpError::bad_request(wrong_type("Job", &format!("Job.{key}"), other, "string")));
            }
        }
    }
    let own = &call.api.agent().facts().region;
    let asked = [wanted.region.as_str(), call.request.params.text("region"), text_of(&job, "Region")];
    let region = asked.into_iter().find(|r| !r.is_empty()).unwrap_or_default();
    if !region.is_empty() && region != own && region != "global" {
        return Err(HttpError::internal("No path to region"));
    }
    Ok((wanted, job))
}

/// The namespace a job goes to. Source: wire-notes section 4, job register.
fn namespace_of(call: &Call, wanted: &JobBody, job: &Value) -> String {
    let named = [call.request.params.text("namespace"), wanted.namespace.as_str(), text_of(job, "Namespace")];
    named.into_iter().find(|n| !n.is_empty()).unwrap_or(crate::request::DEFAULT_NAMESPACE).to_string()
}

/// What comes of a change of a job, as every job answer shows it.
///
/// # Errors
/// The answer cannot be written.
pub fn registered(done: &JobChanged, known_leader: bool) -> Result<Answer, HttpError> {
    let answer = json!({
        "EvalID": done.eval_id.map(|e| e.to_string()).unwrap_or_default(),
        "EvalCreateIndex": done.eval_create_index, "JobModifyIndex": done.job_modify_index,
        "Warnings": done.warnings,
    });
    Ok(Answer::json(&with_meta(answer, done.index, known_leader))?.written_at(done.index))
}

/// `PUT /v1/jobs`
///
/// # Errors
/// The job is wrong or refused, or there is no leader.
pub async fn register(call: Call) -> Result<Answer, HttpError> {
    put(call, None).await
}

/// `PUT /v1/job/:id`
///
/// # Errors
/// The job has another id, is wrong or refused, or there is no leader.
pub async fn register_named(call: Call) -> Result<Answer, HttpError> {
    let id = call.request.part(0).to_string();
    put(call, Some(id)).await
}

async fn put(call: Call, path: Option<String>) -> Result<Answer, HttpError> {
    let (wanted, job) = job_body(&call)?;
    let id = text_of(&job, "ID");
    if id.is_empty() {
        return Err(HttpError::bad_request("Job ID hasn't been provided"));
    }
    if path.is_some_and(|path| path != id) {
        return Err(HttpError::bad_request("Job ID does not match name"));
    }
    let request = RegisterRequest {
        namespace: namespace_of(&call, &wanted, &job),
        enforce_index: wanted.enforce_index.then_some(wanted.job_modify_index),
        preserve_counts: wanted.preserve_counts,
        preserve_resources: wanted.preserve_resources,
        eval_priority: wanted.eval_priority,
        submission: submission_of(wanted.submission)?,
        job,
    };
    let server = call.api.leader().await?;
    registered(&server.register_job(request).await?, false)
}

fn submission_of(value: Option<Value>) -> Result<Option<JobSubmission>, HttpError> {
    let Some(mut value) = value else { return Ok(None) };
    respell(&mut value, &["Source", "Format", "VariableFlags", "Variables"]);
    typed(value, "Submission").map(Some)
}

/// `POST /v1/job/:id/plan`
///
/// # Errors
/// The job has another id, is wrong or refused, or there is no leader.
pub async fn plan(call: Call) -> Result<Answer, HttpError> {
    let (wanted, job) = job_body(&call)?;
    let id = text_of(&job, "ID");
    if id.is_empty() {
        return Err(HttpError::bad_request("Job must have a valid ID"));
    }
    if id != call.request.part(0) {
        return Err(HttpError::bad_request("Job ID does not match"));
    }
    let with_diff = wanted.diff;
    let request = RegisterRequest {
        namespace: namespace_of(&call, &wanted, &job),
        preserve_counts: wanted.preserve_counts,
        preserve_resources: wanted.preserve_resources,
        job,
        ..RegisterRequest::default()
    };
    let server = call.api.leader().await?.clone();
    // Trying a job out runs a scheduler: beside the tasks that serve others.
    let planned = tokio::task::spawn_blocking(move || server.plan_job(&request))
        .await
        .map_err(|e| HttpError::internal(format!("the plan broke off: {e}")))??;
    planned_answer(&planned, with_diff)
}

fn planned_answer(planned: &Planned, with_diff: bool) -> Result<Answer, HttpError> {
    let difference = with_diff.then(|| {
        let mut difference = diff::diff(planned.old.as_deref(), Some(&planned.new), true);
        if let Some(annotations) = &planned.annotations {
            diff::annotate(&mut difference, annotations, planned.old.as_deref(), &planned.new);
        }
        difference
    });
    let evals: Vec<_> = planned.created_evals.iter().map(wire::eval).collect();
    let body = json!({
        "Annotations": planned.annotations.as_deref(),
        "FailedTGAllocs": if planned.failed_groups.is_empty() { Value::Null } else { json!(planned.failed_groups) },
        "JobModifyIndex": planned.job_modify_index,
        "CreatedEvals": if evals.is_empty() { Value::Null } else { json!(evals) },
        "Diff": difference, "NextPeriodicLaunch": planned.next_periodic_launch.map(herdsman_model::time_text),
        "Warnings": planned.warnings, "Index": planned.job_modify_index,
    });
    Ok(Answer::json(&body)?.written_at(planned.job_modify_index))
}

/// `POST /v1/validate/job`: what is wrong stands in the body of a success.
///
/// # Errors
/// There is no job in the body, or no leader.
pub async fn validate(call: Call) -> Result<Answer, HttpError> {
    let (wanted, job) = job_body(&call)?;
    let namespace = namespace_of(&call, &wanted, &job);
    let server = call.api.leader().await?;
    let (errors, warnings) = faults_of(server, job, namespace)?;
    Answer::json(&json!({
        "DriverConfigValidated": true,
        "ValidationErrors": if errors.is_empty() { Value::Null } else { json!(errors) },
        "Error": if errors.is_empty() { String::new() } else { multi(errors.iter().map(String::as_str)) },
        "Warnings": warnings_text(&warnings),
    }))
}

/// Every fault of a submitted job, one by one, and what is worth knowing.
fn faults_of(server: &Server, job: Value, namespace: String) -> Result<(Vec<String>, Vec<String>), HttpError> {
    let mut spec = normalize(job.clone()).map_err(|e| HttpError::bad_request(e.to_string()))?;
    canonicalize(&mut spec);
    let (mut typed, words) = match Job::from_spec_with_words(&spec) {
        Ok(read) => read,
        Err(errors) => return Ok((errors.0.into_iter().map(|e| e.message).collect(), Vec::new())),
    };
    typed.namespace.clone_from(&namespace);
    let issues = gate::gate_spec(&spec);
    herdsman_model::admit(&mut typed, &mut || herdsman_model::EvalId(server.world().rng.bytes16()).to_string());
    let limits = Limits {
        max_priority: server.config().jobs.max_priority,
        max_count: server.config().jobs.max_count,
        memory_oversubscription: server.snapshot().scheduler_config().memory_oversubscription_enabled,
    };
    let mut found = validate_words(&typed, &words, &limits);
    let refused = issues.iter().filter(|i| i.severity == gate::Severity::Refuse).map(|i| i.reason.clone());
    found.errors.extend(refused);
    found.warnings.extend(gate::warnings(&issues));
    if found.errors.is_empty() {
        // What only the server knows: the drivers its namespaces allow.
        let request = RegisterRequest { job, namespace, ..RegisterRequest::default() };
        if let Err(error) = server.prepare_job(&request) {
            found.errors.push(error.message);
        }
    }
    Ok((found.errors, found.warnings))
}

/// Randomness for functions of job files; files of the agent's host are out of reach.
struct ParseHost(Arc<dyn Rng>);

impl Host for ParseHost {
    fn random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.0.u64().to_be_bytes();
            chunk.iter_mut().zip(random).for_each(|(to, from)| *to = from);
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ParseBody {
    #[serde(rename = "JobHCL")]
    text: String,
    #[serde(rename = "Variables")]
    variables: String,
    #[serde(rename = "Canonicalize")]
    canonicalize: bool,
}

/// `POST /v1/jobs/parse`. Source of the texts: `goldens/api/064-job-parse-empty.json` and the next.
///
/// # Errors
/// The job file is wrong.
pub async fn parse(call: Call) -> Result<Answer, HttpError> {
    let wanted: ParseBody = body(&call, &["JobHCL", "Variables", "Canonicalize"])?;
    if wanted.text.is_empty() {
        return Err(HttpError::bad_request("Job spec is empty"));
    }
    let rng = Arc::clone(&call.api.world().rng);
    let read = tokio::task::spawn_blocking(move || {
        let files = match wanted.variables.as_str() {
            "" => Vec::new(),
            text => vec![("variables.hcl".to_string(), text.to_string())],
        };
        let inputs = Inputs { files, ..Inputs::default() };
        let parsed = herdsman_jobspec::parse(INPUT_NAME, &wanted.text, &inputs, &ParseHost(rng));
        parsed.map(|mut parsed| {
            if wanted.canonicalize {
                canonicalize(&mut parsed.job);
            }
            parsed.job
        })
    });
    let read = read.await.map_err(|e| HttpError::internal(format!("reading the job file broke off: {e}")))?;
    match read {
        Ok(job) => Answer::json(&job),
        Err(faults) => Err(HttpError::bad_request(format!("Failed to parse job: {}", faults.compact()))),
    }
}

/// `DELETE /v1/job/:id`. An unknown job is no fault. Source: `goldens/api/472-job-stop-unknown.json`.
///
/// # Errors
/// A parameter is wrong, or there is no leader.
pub async fn deregister(call: Call) -> Result<Answer, HttpError> {
    let params = &call.request.params;
    let request = DeregisterRequest {
        namespace: call.request.namespace().to_string(),
        job_id: call.request.part(0).to_string(),
        purge: params.truth("purge")?.unwrap_or(false),
        no_shutdown_delay: params.truth("no_shutdown_delay")?.unwrap_or(false),
        eval_priority: params.number("eval_priority")?.unwrap_or(0),
    };
    params.truth("global")?;
    let done = call.api.leader().await?.deregister_job(request).await?;
    let answer = json!({
        "EvalID": done.eval_id.map(|e| e.to_string()).unwrap_or_default(),
        "EvalCreateIndex": done.eval_create_index, "JobModifyIndex": done.job_modify_index,
        "VolumeEvalID": "", "VolumeEvalIndex": 0,
    });
    Ok(Answer::json(&with_meta(answer, done.index, false))?.written_at(done.index))
}

/// A body that repeats the job's id, which must then be the path's.
fn check_id(call: &Call, id: &str) -> Result<(), HttpError> {
    if id.is_empty() || id == call.request.part(0) {
        return Ok(());
    }
    Err(HttpError::bad_request("Job ID does not match"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EvaluateBody {
    #[serde(rename = "JobID")]
    job_id: String,
    eval_options: Value,
}

/// `PUT /v1/job/:id/evaluate`
///
/// # Errors
/// The job does not exist or makes no evaluations, or there is no leader.
pub async fn evaluate(call: Call) -> Result<Answer, HttpError> {
    let mut wanted: EvaluateBody = optional_body(&call, &["JobID", "EvalOptions"])?;
    if !wanted.job_id.is_empty() && wanted.job_id != call.request.part(0) {
        return Err(HttpError::bad_request("JobID not same as requested job"));
    }
    respell(&mut wanted.eval_options, &["ForceReschedule"]);
    let force = wanted.eval_options.get("ForceReschedule").and_then(Value::as_bool).unwrap_or(false);
    let namespace = call.request.namespace().to_string();
    let server = call.api.leader().await?;
    registered(&server.evaluate_job(&namespace, call.request.part(0), force).await?, false)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RevertBody {
    #[serde(rename = "JobID")]
    job_id: String,
    job_version: u64,
    enforce_prior_version: Option<u64>,
}

/// `PUT /v1/job/:id/revert`
///
/// # Errors
/// Job or version do not exist, another version is current, or there is no leader.
pub async fn revert(call: Call) -> Result<Answer, HttpError> {
    let wanted: RevertBody = body(&call, &["JobID", "JobVersion", "EnforcePriorVersion"])?;
    if wanted.job_id.is_empty() {
        return Err(HttpError::bad_request("JobID must be specified"));
    }
    check_id(&call, &wanted.job_id)?;
    let request = RevertRequest {
        namespace: call.request.namespace().to_string(),
        job_id: wanted.job_id,
        version: wanted.job_version,
        enforce_prior_version: wanted.enforce_prior_version,
    };
    let done = call.api.leader().await?.revert_job(request).await?;
    Ok(registered(&done, false)?.with_header("X-Nomad-KnownLeader", "false").with_header("X-Nomad-LastContact", "0"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct StableBody {
    #[serde(rename = "JobID")]
    job_id: String,
    job_version: u64,
    stable: bool,
}

/// `PUT /v1/job/:id/stable`
///
/// # Errors
/// Job or version do not exist, or there is no leader.
pub async fn stable(call: Call) -> Result<Answer, HttpError> {
    let wanted: StableBody = body(&call, &["JobID", "JobVersion", "Stable"])?;
    if wanted.job_id.is_empty() {
        return Err(HttpError::bad_request("JobID must be specified"));
    }
    check_id(&call, &wanted.job_id)?;
    let namespace = call.request.namespace().to_string();
    let server = call.api.leader().await?;
    let index = server.set_job_stability(&namespace, &wanted.job_id, wanted.job_version, wanted.stable).await?;
    Ok(Answer::json(&json!({"Index": index}))?.written_at(index))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ScaleBody {
    target: Value,
    count: Option<i64>,
    error: bool,
    message: String,
    meta: Option<std::collections::BTreeMap<String, Value>>,
}

/// `PUT /v1/job/:id/scale`
///
/// # Errors
/// Job or group do not exist, the count is out of bounds, or there is no leader.
pub async fn scale(call: Call) -> Result<Answer, HttpError> {
    let mut wanted: ScaleBody =
        body(&call, &["Target", "Count", "Error", "Message", "Meta", "PolicyOverride", "JobModifyIndex"])?;
    respell(&mut wanted.target, &["Group", "Job", "Namespace", "Task"]);
    let request = ScaleRequest {
        namespace: call.request.namespace().to_string(),
        job_id: call.request.part(0).to_string(),
        group: wanted.target.get("Group").and_then(Value::as_str).unwrap_or_default().to_string(),
        count: wanted.count,
        message: wanted.message,
        error: wanted.error,
        meta: wanted.meta.unwrap_or_default().into(),
    };
    registered(&call.api.leader().await?.scale_job(request).await?, true)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct TagBody {
    version: Option<u64>,
    name: String,
    description: String,
}

/// `PUT /v1/job/:id/versions/:tag/tag`
///
/// # Errors
/// Job or version do not exist, the name is another version's, or there is no leader.
pub async fn tag(call: Call) -> Result<Answer, HttpError> {
    let wanted: TagBody = body(&call, &["Version", "Name", "Description"])?;
    let name = if wanted.name.is_empty() { call.request.part(1).to_string() } else { wanted.name };
    let request = TagRequest {
        namespace: call.request.namespace().to_string(),
        job_id: call.request.part(0).to_string(),
        name: name.clone(),
        description: wanted.description.clone(),
        version: wanted.version,
    };
    let (index, time) = call.api.leader().await?.tag_job_version(request).await?;
    let answer = json!({"Name": name, "Description": wanted.description, "TaggedTime": time});
    Answer::json(&with_meta(answer, index, false))
}

/// `DELETE /v1/job/:id/versions/:tag/tag`
///
/// # Errors
/// No version has this name, or there is no leader.
pub async fn untag(call: Call) -> Result<Answer, HttpError> {
    let namespace = call.request.namespace().to_string();
    let server = call.api.leader().await?;
    let index = server.untag_job_version(&namespace, call.request.part(0), call.request.part(1)).await?;
    Answer::json(&with_meta(json!({"Name": "", "Description": "", "TaggedTime": 0}), index, false))
}
