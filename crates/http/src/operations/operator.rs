//! What operators look at and set: the log's membership, autopilot, the schedulers' configuration, collection.

use super::agent::{address_of, server_id, server_name};
use crate::answer::Answer;
use crate::error::HttpError;
use crate::pipeline::Call;
use crate::request::Params;
use herdsman_server::Server;
use herdsman_state::SchedulerConfig;
use serde_json::{Value, json};

/// Version of the log's protocol that clients expect to be told.
const RAFT_PROTOCOL: &str = "3";

/// `GET /v1/operator/raft/configuration`
///
/// # Errors
/// This agent runs no server.
pub async fn log_members(call: Call) -> Result<Answer, HttpError> {
    let server = call.api.server()?;
    let leader = server.leadership().borrow().leader;
    let own = server.consensus().node_id();
    let servers: Vec<Value> = server
        .consensus()
        .members()
        .iter()
        .map(|m| {
            let name = if m.id == own { server_name(&call.api) } else { "(unknown)".to_string() };
            json!({
                "ID": server_id(m.id), "Node": name, "Address": address_of(server, m), "Leader": leader == Some(m.id),
                "Voter": m.voter, "RaftProtocol": RAFT_PROTOCOL,
            })
        })
        .collect();
    Answer::json(&json!({"Servers": servers, "Index": 0}))
}

/// `DELETE /v1/operator/raft/peer`. Source: `goldens/api/019-raft-remove-peer-none.json` and the next.
///
/// # Errors
/// No member has this id, or it is the last voter.
pub async fn remove_peer(call: Call) -> Result<Answer, HttpError> {
    let server = call.api.leader().await?;
    let id = call.request.params.text("id");
    if id.is_empty() {
        return Err(HttpError::bad_request("Must specify the peer's ID to remove"));
    }
    if !server.consensus().members().iter().any(|m| server_id(m.id) == id) {
        return Err(HttpError::internal(format!("id {id:?} was not found in the Raft configuration")));
    }
    Err(HttpError::internal("the only voter cannot be removed: stop its agent instead"))
}

/// `PUT /v1/operator/raft/transfer-leadership`
///
/// # Errors
/// Not exactly one server is named, it is unknown, or there is no other server.
pub async fn transfer(call: Call) -> Result<Answer, HttpError> {
    let server = call.api.leader().await?;
    let (id, address) = (call.request.params.text("id"), call.request.params.text("address"));
    if id.is_empty() == address.is_empty() {
        return Err(HttpError::bad_request("must specify id or address, and not both"));
    }
    let members = server.consensus().members();
    let found = members.iter().find(|m| server_id(m.id) == id || address_of(server, m) == address);
    let Some(found) = found else {
        let named = if id.is_empty() { format!("address {address:?}") } else { format!("id {id:?}") };
        return Err(HttpError::internal(format!("{named} was not found in the Raft configuration")));
    };
    if found.id == server.consensus().node_id() {
        // Leading already is what was asked for.
        return Answer::json(&json!({
            "From": {"ID": server_id(found.id), "Address": address_of(server, found)},
            "To": {"ID": server_id(found.id), "Address": address_of(server, found)}, "Noop": true, "Err": null,
        }));
    }
    Err(HttpError::internal("leadership cannot be handed over by this version"))
}

/// `GET /v1/operator/autopilot/configuration`: what holds for one server.
///
/// # Errors
/// This agent runs no server.
pub async fn autopilot(call: Call) -> Result<Answer, HttpError> {
    call.api.server()?;
    Answer::json(&json!({
        "CleanupDeadServers": true, "LastContactThreshold": "200ms", "MaxTrailingLogs": 250, "MinQuorum": 0,
        "ServerStabilizationTime": "10s", "EnableRedundancyZones": false, "DisableUpgradeMigration": false,
        "EnableCustomUpgrades": false, "CreateIndex": 0, "ModifyIndex": 0,
    }))
}

/// `PUT /v1/operator/autopilot/configuration`: there is nothing it could act on.
///
/// # Errors
/// Always.
pub async fn set_autopilot(_: Call) -> Result<Answer, HttpError> {
    Err(HttpError::new(501, "autopilot cannot be configured: this version runs clusters of one server"))
}

/// `GET /v1/operator/autopilot/health`
///
/// # Errors
/// There is no leader.
pub async fn autopilot_health(call: Call) -> Result<Answer, HttpError> {
    let server = call.api.leader().await?;
    let status = server.consensus().status().await;
    let own = server.consensus().node_id();
    let id = server_id(own);
    let healthy = status.failure.is_none();
    let body = json!({
        "Healthy": healthy, "FailureTolerance": 0, "Leader": id, "Voters": [id],
        "Servers": [{
            "ID": id, "Name": server_name(&call.api), "Address": server.rpc_advertise(), "SerfStatus": "alive",
            "Version": call.api.agent().facts().compatible_version, "Leader": true, "LastContact": "0s",
            "LastTerm": status.term, "LastIndex": status.last_log.unwrap_or(0), "Healthy": healthy, "Voter": true,
            "StableSince": herdsman_model::time_text(call.api.metrics().started()),
        }],
    });
    let mut answer = Answer::json(&body)?;
    if !healthy {
        answer.status = 429;
    }
    Ok(answer)
}

/// The modify index that a write may be bound to.
fn cas(params: &Params) -> Result<Option<u64>, HttpError> {
    match params.get("cas") {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            HttpError::bad_request(format!(
                "Error parsing cas value: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

/// Keys of a scheduler configuration, as they are spelled.
const SCHEDULER_KEYS: [&str; 6] = [
    "SchedulerAlgorithm",
    "PreemptionConfig",
    "MemoryOversubscriptionEnabled",
    "RejectJobRegistration",
    "PauseEvalBroker",
    "NodeLimitForFeasibilityChecks",
];

/// Keys of its preemption part.
const PREEMPTION_KEYS: [&str; 4] =
    ["SystemSchedulerEnabled", "SysBatchSchedulerEnabled", "BatchSchedulerEnabled", "ServiceSchedulerEnabled"];

/// `PUT /v1/operator/scheduler/configuration`. What is left out is off, as the peer has it.
///
/// # Errors
/// The configuration is wrong, or there is no leader.
pub async fn set_schedulers(call: Call) -> Result<Answer, HttpError> {
    let mut value: Value = call.request.json()?;
    super::respell(&mut value, &SCHEDULER_KEYS);
    if let Some(preemption) = value.get_mut("PreemptionConfig") {
        super::respell(preemption, &PREEMPTION_KEYS);
        if let Value::Object(fields) = preemption {
            for key in PREEMPTION_KEYS {
                fields.entry(key.to_string()).or_insert(Value::Bool(false));
            }
        }
    } else if let Value::Object(fields) = &mut value {
        fields.insert("PreemptionConfig".to_string(), json!({"SystemSchedulerEnabled": false}));
    }
    let mut config: SchedulerConfig = super::typed(value, "")
        .map_err(|e| HttpError::bad_request(format!("Error parsing scheduler config: {}", e.message)))?;
    match config.scheduler_algorithm.as_str() {
        "binpack" | "spread" => {}
        "" => config.scheduler_algorithm = "binpack".to_string(),
        other => return Err(HttpError::bad_request(format!("invalid scheduler algorithm: {other}"))),
    }
    let cas = cas(&call.request.params)?;
    let server = call.api.leader().await?;
    let (index, updated) = server.set_scheduler_config(config, cas).await?;
    Ok(Answer::json(&json!({"Updated": updated, "Index": index}))?.written_at(index))
}

/// `PUT /v1/system/gc`
///
/// # Errors
/// There is no leader.
pub async fn collect(call: Call) -> Result<Answer, HttpError> {
    leading(&call).await?.collect_garbage().await?;
    Ok(Answer::empty())
}

/// `PUT /v1/system/reconcile/summaries`: summaries are derived with every change and need no repair.
///
/// # Errors
/// There is no leader.
pub async fn reconcile(call: Call) -> Result<Answer, HttpError> {
    leading(&call).await?;
    Ok(Answer::empty())
}

async fn leading(call: &Call) -> Result<&Server, HttpError> {
    call.api.leader().await
}
