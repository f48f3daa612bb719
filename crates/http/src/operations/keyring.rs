//! Keys that identities are signed with.

use super::with_meta;
use crate::answer::Answer;
use crate::error::HttpError;
use crate::pipeline::Call;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use herdsman_server::Server;
use herdsman_server::keyring::KeyInfo;
use serde_json::{Value, json};

/// How long clients may keep the public keys. Source: wire-notes section 2.
const KEYS_MAX_AGE: &str = "max-age=900";

/// An index past 0: the keyring is never empty. Source: wire-notes section 5.
fn index_of(server: &Server) -> u64 {
    server.snapshot().index().max(1)
}

/// `GET /.well-known/jwks.json`
///
/// # Errors
/// There is no leader.
pub async fn public_keys(call: Call) -> Result<Answer, HttpError> {
    let server = call.api.leader().await?;
    let keys: Vec<Value> = server
        .keyring()
        .keys()
        .iter()
        .map(|key| {
            json!({
                "use": "sig", "kty": "OKP", "crv": "Ed25519", "kid": key.id, "alg": "EdDSA",
                "x": BASE64_URL_SAFE_NO_PAD.encode(key.public),
            })
        })
        .collect();
    Ok(Answer::json(&json!({"keys": keys}))?
        .read_at(index_of(server), call.api.knows_leader())
        .with_header("Cache-Control", KEYS_MAX_AGE))
}

fn view(key: &KeyInfo) -> Value {
    json!({
        "KeyID": key.id, "Algorithm": "ed25519", "CreateTime": key.create_time, "CreateIndex": key.create_index,
        "ModifyIndex": key.create_index, "PublishTime": 0, "State": if key.active { "active" } else { "inactive" },
    })
}

/// `GET /v1/operator/keyring/keys`
///
/// # Errors
/// There is no leader.
pub async fn list(call: Call) -> Result<Answer, HttpError> {
    let server = call.api.leader().await?;
    let keys: Vec<Value> = server.keyring().keys().iter().map(view).collect();
    Ok(Answer::json(&keys)?.read_at(index_of(server), call.api.knows_leader()))
}

/// `PUT /v1/operator/keyring/rotate`
///
/// # Errors
/// The key cannot be made or stored, a later time is asked for, or there is no leader.
pub async fn rotate(call: Call) -> Result<Answer, HttpError> {
    call.request.params.truth("full")?;
    if call.request.params.number("publish_time")?.is_some_and(|t| t > 0) {
        return Err(HttpError::new(
            501,
            "keys cannot be published ahead of time by this version; rotate without publish_time",
        ));
    }
    let server = call.api.leader().await?.clone();
    let index = index_of(&server);
    let made = on_disk(move || server.keyring().rotate(server.now(), index)).await?;
    let key = made.map_err(|e| HttpError::internal(format!("failed to rotate root key: {e}")))?;
    Ok(Answer::json(&json!({"Key": view(&key), "Index": index}))?.written_at(index))
}

/// `DELETE /v1/operator/keyring/key/:id`
///
/// # Errors
/// There is no such key, it is active, it cannot be stored, or there is no leader.
pub async fn remove(call: Call) -> Result<Answer, HttpError> {
    if let Some(text) = call.request.params.get("force").filter(|t| !t.is_empty()) {
        text.parse::<bool>().map_err(|_| HttpError::new(422, format!("force {text:?} must be true or false")))?;
    }
    let server = call.api.leader().await?.clone();
    let index = index_of(&server);
    let id = call.request.part(0).to_string();
    on_disk(move || server.keyring().remove(&id)).await?.map_err(|error| HttpError::internal(error.to_string()))?;
    Ok(Answer::json(&with_meta(json!({}), index, false))?.written_at(index))
}

/// Runs what blocks on the disk beside the tasks that serve others.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, HttpError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| HttpError::internal(format!("the keyring broke off: {e}")))
}
