//! Operations on nodes: eligibility, drain, purge, evaluation.

use super::body;
use crate::answer::Answer;
use crate::error::HttpError;
use crate::pipeline::Call;
use crate::reads::read_id;
use herdsman_model::NodeId;
use herdsman_server::ops::{DrainRequest, NodeChanged};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What comes of a change of a node, as every node answer shows it.
fn changed(done: &NodeChanged) -> Value {
    json!({
        "EvalIDs": if done.eval_ids.is_empty() { Value::Null } else { json!(done.eval_ids) },
        "EvalCreateIndex": done.eval_create_index, "NodeModifyIndex": done.node_modify_index, "Index": done.index,
    })
}

fn answered(done: &NodeChanged) -> Result<Answer, HttpError> {
    Ok(Answer::json(&changed(done))?.written_at(done.index))
}

fn node_of(call: &Call) -> Result<NodeId, HttpError> {
    read_id("node", call.request.part(0))
}

/// A body that may repeat the node's id, which must then be the path's.
fn check_id(call: &Call, id: &str) -> Result<(), HttpError> {
    if id.is_empty() || id == call.request.part(0) {
        return Ok(());
    }
    Err(HttpError::bad_request("Node ID does not match"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EligibilityBody {
    #[serde(rename = "NodeID")]
    node_id: String,
    eligibility: String,
}

/// `PUT /v1/node/:id/eligibility`
///
/// # Errors
/// The word is none, the node drains or does not exist, or there is no leader.
pub async fn eligibility(call: Call) -> Result<Answer, HttpError> {
    let wanted: EligibilityBody = body(&call, &["NodeID", "Eligibility"])?;
    check_id(&call, &wanted.node_id)?;
    let eligible = match wanted.eligibility.as_str() {
        "eligible" => true,
        "ineligible" => false,
        other => return Err(HttpError::internal(format!("invalid scheduling eligibility {other:?}"))),
    };
    let node = node_of(&call)?;
    answered(&call.api.leader().await?.set_eligibility(node, eligible).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DrainBody {
    #[serde(rename = "NodeID")]
    node_id: String,
    drain_spec: Option<Value>,
    mark_eligible: bool,
    meta: BTreeMap<String, String>,
}

/// `PUT /v1/node/:id/drain`: without a specification the drain is cancelled.
///
/// # Errors
/// The specification is wrong, the node does not exist, or there is no leader.
pub async fn drain(call: Call) -> Result<Answer, HttpError> {
    let wanted: DrainBody = body(&call, &["NodeID", "DrainSpec", "MarkEligible", "Meta"])?;
    check_id(&call, &wanted.node_id)?;
    let spec = match wanted.drain_spec {
        None => None,
        Some(mut value) => {
            super::respell(&mut value, &["Deadline", "IgnoreSystemJobs"]);
            let number = |key: &str| value.get(key).map_or(Some(0), Value::as_i64);
            let deadline = number("Deadline").ok_or_else(|| {
                HttpError::bad_request("DrainSpec.Deadline must be a number of nanoseconds; below 0 forces the drain")
            })?;
            let ignore = value.get("IgnoreSystemJobs").and_then(Value::as_bool).unwrap_or(false);
            Some((deadline, ignore))
        }
    };
    let node = node_of(&call)?;
    let request = DrainRequest {
        deadline: spec.map(|(deadline, _)| deadline),
        ignore_system_jobs: spec.is_some_and(|(_, ignore)| ignore),
        mark_eligible: wanted.mark_eligible,
        meta: wanted.meta,
        accessor_id: String::new(),
    };
    answered(&call.api.leader().await?.drain_node(node, request).await?)
}

/// `PUT /v1/node/:id/purge`
///
/// # Errors
/// The node does not exist, or there is no leader.
pub async fn purge(call: Call) -> Result<Answer, HttpError> {
    let node = node_of(&call)?;
    answered(&call.api.leader().await?.purge_node(node).await?)
}

/// `PUT /v1/node/:id/evaluate`
///
/// # Errors
/// The node does not exist, or there is no leader.
pub async fn evaluate(call: Call) -> Result<Answer, HttpError> {
    let id = node_of(&call)?;
    let server = call.api.leader().await?;
    let done = server.evaluate_node(id).await?;
    let snapshot = server.snapshot();
    let node = snapshot.node(&id);
    let mut answer = changed(&done);
    if let Value::Object(fields) = &mut answer {
        let facts = call.api.agent().facts();
        fields.insert("HeartbeatTTL".to_string(), json!(0));
        fields.insert("LeaderRPCAddr".to_string(), json!(super::agent::leader_address(server)));
        fields.insert("NumNodes".to_string(), json!(snapshot.nodes().count()));
        fields.insert(
            "Servers".to_string(),
            json!([{
                "RPCAdvertiseAddr": server.rpc_advertise(), "RPCMajorVersion": 0, "RPCMinorVersion": 0,
                "Datacenter": facts.datacenter,
            }]),
        );
        fields.insert("Features".to_string(), json!(0));
        fields.insert("SchedulingEligibility".to_string(), json!(node.map(|n| n.eligibility)));
        fields.insert("SignedIdentity".to_string(), Value::Null);
    }
    let answer = super::with_meta(answer, done.index, false);
    Ok(Answer::json(&answer)?.written_at(done.index))
}
