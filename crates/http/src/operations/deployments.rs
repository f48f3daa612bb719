//! Operations on deployments, allocations and evaluations.

use super::body;
use crate::answer::Answer;
use crate::error::HttpError;
use crate::pipeline::Call;
use crate::reads::read_id;
use herdsman_expr::filter::Filter;
use herdsman_model::{AllocId, DeploymentId, EvalId, wire};
use herdsman_server::ops::{DeploymentChanged, HealthRequest, StopAllocRequest};
use serde::Deserialize;
use serde_json::json;

fn id_of(call: &Call) -> Result<DeploymentId, HttpError> {
    read_id("deployment", call.request.part(0))
}

/// A body that may repeat the deployment's id, which must then be the path's.
fn check_id(call: &Call, id: &str) -> Result<(), HttpError> {
    if id.is_empty() || id == call.request.part(0) {
        return Ok(());
    }
    Err(HttpError::bad_request("Deployment ID does not match"))
}

fn updated(done: &DeploymentChanged) -> Result<Answer, HttpError> {
    let answer = json!({
        "EvalID": done.eval_id.map(|e| e.to_string()).unwrap_or_default(),
        "EvalCreateIndex": done.eval_create_index, "DeploymentModifyIndex": done.deployment_modify_index,
        "RevertedJobVersion": done.reverted_job_version, "Index": done.index,
    });
    Ok(Answer::json(&answer)?.written_at(done.index))
}

/// `PUT /v1/deployment/fail/:id`
///
/// # Errors
/// The deployment is over or does not exist, or there is no leader.
pub async fn fail(call: Call) -> Result<Answer, HttpError> {
    let id = id_of(&call)?;
    updated(&call.api.leader().await?.fail_deployment(id).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct PauseBody {
    #[serde(rename = "DeploymentID")]
    deployment_id: String,
    pause: bool,
}

/// `PUT /v1/deployment/pause/:id`
///
/// # Errors
/// The deployment is over or does not exist, or there is no leader.
pub async fn pause(call: Call) -> Result<Answer, HttpError> {
    let wanted: PauseBody = body(&call, &["DeploymentID", "Pause"])?;
    check_id(&call, &wanted.deployment_id)?;
    let id = id_of(&call)?;
    updated(&call.api.leader().await?.pause_deployment(id, wanted.pause).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct PromoteBody {
    #[serde(rename = "DeploymentID")]
    deployment_id: String,
    all: bool,
    groups: Vec<String>,
}

/// `PUT /v1/deployment/promote/:id`
///
/// # Errors
/// Canaries are not healthy, the deployment is over or does not exist, or there is no leader.
pub async fn promote(call: Call) -> Result<Answer, HttpError> {
    let wanted: PromoteBody = body(&call, &["DeploymentID", "All", "Groups"])?;
    check_id(&call, &wanted.deployment_id)?;
    if wanted.all != wanted.groups.is_empty() {
        return Err(HttpError::internal("must either promote all or some groups"));
    }
    let id = id_of(&call)?;
    updated(&call.api.leader().await?.promote_deployment(id, wanted.groups).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HealthBody {
    #[serde(rename = "DeploymentID")]
    deployment_id: String,
    #[serde(rename = "HealthyAllocationIDs")]
    healthy: Vec<String>,
    #[serde(rename = "UnhealthyAllocationIDs")]
    unhealthy: Vec<String>,
}

/// `PUT /v1/deployment/allocation-health/:id`
///
/// # Errors
/// No allocation is named or one is unknown, the deployment is over or does not exist, or there is no leader.
pub async fn health(call: Call) -> Result<Answer, HttpError> {
    let wanted: HealthBody = body(&call, &["DeploymentID", "HealthyAllocationIDs", "UnhealthyAllocationIDs"])?;
    check_id(&call, &wanted.deployment_id)?;
    let ids = |texts: &[String]| -> Result<Vec<AllocId>, HttpError> {
        texts.iter().map(|t| t.parse().map_err(|_| HttpError::internal(format!("unknown alloc {t:?}")))).collect()
    };
    let marks = HealthRequest { healthy: ids(&wanted.healthy)?, unhealthy: ids(&wanted.unhealthy)? };
    let id = id_of(&call)?;
    updated(&call.api.leader().await?.set_alloc_health(id, marks).await?)
}

/// `PUT /v1/deployment/unblock/:id`
///
/// # Errors
/// The deployment is over, not blocked or does not exist, or there is no leader.
pub async fn unblock(call: Call) -> Result<Answer, HttpError> {
    let id = id_of(&call)?;
    updated(&call.api.leader().await?.unblock_deployment(id).await?)
}

/// `PUT /v1/allocation/:id/stop`
///
/// # Errors
/// The allocation does not exist, or there is no leader.
pub async fn stop_alloc(call: Call) -> Result<Answer, HttpError> {
    let request = StopAllocRequest {
        no_shutdown_delay: call.request.params.truth("no_shutdown_delay")?.unwrap_or(false),
        reschedule: call.request.params.truth("reschedule")?.unwrap_or(false),
    };
    let id: AllocId = read_id("alloc", call.request.part(0))?;
    let done = call.api.leader().await?.stop_alloc(id, request).await?;
    let eval = done.eval_id.map(|e| e.to_string()).unwrap_or_default();
    Ok(Answer::json(&json!({"EvalID": eval, "Index": done.index}))?.written_at(done.index))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeleteEvalsBody {
    #[serde(rename = "EvalIDs")]
    ids: Vec<String>,
    #[serde(rename = "Filter")]
    filter: String,
}

/// `DELETE /v1/evaluations`
///
/// # Errors
/// Nothing or too much is named, the broker is not paused, an evaluation is unknown or in use, or there is no leader.
pub async fn delete_evals(call: Call) -> Result<Answer, HttpError> {
    let wanted: DeleteEvalsBody = body(&call, &["EvalIDs", "Filter"])?;
    if wanted.ids.is_empty() == wanted.filter.is_empty() {
        return Err(HttpError::bad_request("evals must be deleted by either ID or filter"));
    }
    let server = call.api.leader().await?;
    let snapshot = server.snapshot();
    if !snapshot.scheduler_config().pause_eval_broker {
        return Err(HttpError::internal("eval broker is enabled; eval broker must be paused to delete evals"));
    }
    let mut ids: Vec<EvalId> = Vec::new();
    for text in &wanted.ids {
        let id: EvalId = text.parse().map_err(|_| HttpError::internal("eval not found"))?;
        snapshot.eval(&id).ok_or_else(|| HttpError::internal("eval not found"))?;
        ids.push(id);
    }
    if !wanted.filter.is_empty() {
        let filter = Filter::parse(&wanted.filter)
            .map_err(|e| HttpError::bad_request(format!("failed to read filter expression: {e}")))?;
        for eval in snapshot.evals() {
            let object = serde_json::to_value(wire::eval(eval)).unwrap_or_default();
            let object = crate::reads::filled(object, &crate::reads::work::EVAL_TEXTS);
            if filter.matches(&object).map_err(|e| HttpError::bad_request(e.to_string()))? {
                ids.push(eval.id);
            }
        }
    }
    if ids.is_empty() {
        return Answer::json(&json!({"Count": 0, "Index": snapshot.index()}));
    }
    let done = server.delete_evals(ids).await?;
    Ok(Answer::json(&json!({"Count": done.count, "Index": done.index}))?.written_at(done.index))
}
