//! Launching children of jobs: dispatch and periodic force.

use super::body;
use crate::answer::Answer;
use crate::error::HttpError;
use crate::pipeline::Call;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use herdsman_server::ops::DispatchRequest;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DispatchBody {
    #[serde(rename = "JobID")]
    job_id: String,
    #[serde(rename = "Payload")]
    payload: String,
    #[serde(rename = "Meta")]
    meta: BTreeMap<String, String>,
    #[serde(rename = "IdPrefixTemplate")]
    id_prefix: String,
    #[serde(rename = "Priority")]
    priority: i64,
}

/// `PUT /v1/job/:id/dispatch`
///
/// # Errors
/// The job does not exist or does not take what is given, or there is no leader.
pub async fn dispatch(call: Call) -> Result<Answer, HttpError> {
    let wanted: DispatchBody = body(&call, &["JobID", "Payload", "Meta", "IdPrefixTemplate", "Priority"])?;
    if !wanted.job_id.is_empty() && wanted.job_id != call.request.part(0) {
        return Err(HttpError::bad_request("Job ID does not match"));
    }
    let payload = BASE64_STANDARD
        .decode(&wanted.payload)
        .map_err(|e| HttpError::bad_request(format!("Payload is no base64 text: {e}")))?;
    let request = DispatchRequest {
        payload,
        meta: wanted.meta,
        id_prefix: wanted.id_prefix,
        priority: wanted.priority,
        ..base(&call)
    };
    launch(&call, request).await
}

/// `PUT /v1/job/:id/dispatch/payload`: the whole body is the payload.
///
/// # Errors
/// As [`dispatch`].
pub async fn dispatch_payload(call: Call) -> Result<Answer, HttpError> {
    let request = DispatchRequest { payload: call.request.body.to_vec(), ..base(&call) };
    launch(&call, request).await
}

fn base(call: &Call) -> DispatchRequest {
    DispatchRequest {
        namespace: call.request.namespace().to_string(),
        job_id: call.request.part(0).to_string(),
        idempotency_token: call.request.params.text("idempotency_token").to_string(),
        ..DispatchRequest::default()
    }
}

async fn launch(call: &Call, request: DispatchRequest) -> Result<Answer, HttpError> {
    let done = call.api.leader().await?.dispatch_job(request).await?;
    let changed = &done.changed;
    let answer = json!({
        "DispatchedJobID": done.job_id, "EvalID": changed.eval_id.map(|e| e.to_string()).unwrap_or_default(),
        "EvalCreateIndex": changed.eval_create_index, "JobCreateIndex": changed.job_create_index,
        "Index": changed.index,
    });
    Ok(Answer::json(&answer)?.written_at(changed.index))
}

/// `PUT /v1/job/:id/periodic/force`
///
/// # Errors
/// The job does not exist or is not periodic, or there is no leader.
pub async fn force(call: Call) -> Result<Answer, HttpError> {
    let namespace = call.request.namespace().to_string();
    let done = call.api.leader().await?.force_periodic(&namespace, call.request.part(0)).await?;
    let answer = json!({
        "EvalID": done.eval_id.map(|e| e.to_string()).unwrap_or_default(),
        "EvalCreateIndex": done.eval_create_index, "Index": done.index,
    });
    Ok(Answer::json(&answer)?.written_at(done.index))
}
