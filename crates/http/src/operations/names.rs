//! Namespaces, node pools and registrations of services: things with names that users write.

use super::{respell, typed};
use crate::answer::Answer;
use crate::error::HttpError;
use crate::pipeline::Call;
use herdsman_state::{Namespace, NodePool};
use serde_json::Value;

/// Keys of a namespace, as they are spelled.
const NAMESPACE_KEYS: [&str; 8] = [
    "Name",
    "Description",
    "Quota",
    "Capabilities",
    "NodePoolConfiguration",
    "VaultConfiguration",
    "ConsulConfiguration",
    "Meta",
];

/// Keys of the capabilities of a namespace.
const CAPABILITY_KEYS: [&str; 4] =
    ["EnabledTaskDrivers", "DisabledTaskDrivers", "EnabledNetworkModes", "DisabledNetworkModes"];

/// Keys of a node pool, as they are spelled.
const POOL_KEYS: [&str; 5] = ["Name", "Description", "Meta", "SchedulerConfiguration", "NodeIdentityTTL"];

/// `PUT /v1/namespace`
///
/// # Errors
/// The namespace is wrong, or there is no leader.
pub async fn write_namespace(call: Call) -> Result<Answer, HttpError> {
    put_namespace(call, None).await
}

/// `PUT /v1/namespace/:name`
///
/// # Errors
/// The name in the path is another, the namespace is wrong, or there is no leader.
pub async fn write_named_namespace(call: Call) -> Result<Answer, HttpError> {
    let name = call.request.part(0).to_string();
    put_namespace(call, Some(name)).await
}

async fn put_namespace(call: Call, path: Option<String>) -> Result<Answer, HttpError> {
    let mut value: Value = call.request.json()?;
    respell(&mut value, &NAMESPACE_KEYS);
    if let Some(capabilities) = value.get_mut("Capabilities") {
        respell(capabilities, &CAPABILITY_KEYS);
    }
    let namespace: Namespace = typed(value, "")?;
    if path.is_some_and(|name| name != namespace.name) {
        return Err(HttpError::bad_request("Namespace name does not match request path"));
    }
    if namespace.name.is_empty() {
        return Err(HttpError::bad_request("Namespace must be specified"));
    }
    let index = call.api.leader().await?.upsert_namespace(namespace).await?;
    Ok(Answer::empty().written_at(index))
}

/// `DELETE /v1/namespace/:name`
///
/// # Errors
/// The namespace is in use or does not exist, or there is no leader.
pub async fn delete_namespace(call: Call) -> Result<Answer, HttpError> {
    let index = call.api.leader().await?.delete_namespace(call.request.part(0)).await?;
    Ok(Answer::empty().written_at(index))
}

/// `PUT /v1/node/pools`
///
/// # Errors
/// The pool is wrong, or there is no leader.
pub async fn write_pool(call: Call) -> Result<Answer, HttpError> {
    put_pool(call, None).await
}

/// `PUT /v1/node/pool/:name`
///
/// # Errors
/// The name in the path is another, the pool is wrong, or there is no leader.
pub async fn write_named_pool(call: Call) -> Result<Answer, HttpError> {
    let name = call.request.part(0).to_string();
    put_pool(call, Some(name)).await
}

async fn put_pool(call: Call, path: Option<String>) -> Result<Answer, HttpError> {
    let mut value: Value = call.request.json()?;
    respell(&mut value, &POOL_KEYS);
    if let Value::Object(fields) = &mut value
        && let Some(Value::String(text)) = fields.get("NodeIdentityTTL")
    {
        // Comes as text or as a number. Source: wire-notes section 7.
        let nanos = match text.as_str() {
            "" => 0,
            text => herdsman_expr::duration::parse(text)
                .map_err(|_| HttpError::bad_request(format!("NodeIdentityTTL {text:?} is no duration such as 24h")))?,
        };
        fields.insert("NodeIdentityTTL".to_string(), Value::from(nanos));
    }
    let pool: NodePool = typed(value, "")?;
    if path.is_some_and(|name| name != pool.name) {
        return Err(HttpError::bad_request("Node pool name does not match request path"));
    }
    let index = call.api.leader().await?.upsert_node_pool(pool).await?;
    Ok(Answer::empty().written_at(index))
}

/// `DELETE /v1/node/pool/:name`
///
/// # Errors
/// The pool is in use or does not exist, or there is no leader.
pub async fn delete_pool(call: Call) -> Result<Answer, HttpError> {
    let index = call.api.leader().await?.delete_node_pool(call.request.part(0)).await?;
    Ok(Answer::empty().written_at(index))
}

/// `DELETE /v1/service/:name/:id`
///
/// # Errors
/// There is no such registration in the namespace, or there is no leader.
pub async fn delete_service(call: Call) -> Result<Answer, HttpError> {
    let namespace = call.request.namespace().to_string();
    let index = call.api.leader().await?.delete_service(&namespace, call.request.part(1)).await?;
    Ok(Answer::empty().written_at(index))
}
