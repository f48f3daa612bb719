//! Areas of the peer's API that are not here: each says so in the way clients expect, and names what is missing.

use crate::answer::Answer;
use crate::error::HttpError;
use crate::pipeline::Call;
use serde_json::json;

/// Access control is off: an agent configured with it does not start. Source: `goldens/api/494-acl-disabled-tokens.json`.
///
/// # Errors
/// Always.
pub async fn acl(_: Call) -> Result<Answer, HttpError> {
    Err(HttpError::bad_request("ACL support disabled"))
}

/// Routes of the peer's paid edition. Source: `goldens/api/487-ce-quotas.json`.
///
/// # Errors
/// Always.
pub async fn enterprise(_: Call) -> Result<Answer, HttpError> {
    Err(HttpError::new(501, "Nomad Enterprise only endpoint"))
}

/// The pause of task schedules is of the paid edition. Source: `goldens/api/170-alloc-pause-ce.json`.
///
/// # Errors
/// Always.
pub async fn pause(_: Call) -> Result<Answer, HttpError> {
    Err(HttpError::internal("Enterprise only"))
}

/// There is no licence to show.
///
/// # Errors
/// None.
pub async fn no_license(_: Call) -> Result<Answer, HttpError> {
    Ok(Answer { status: 204, ..Answer::empty() })
}

/// A list of things that cannot exist here, because nothing makes them.
///
/// # Errors
/// There is no leader.
pub async fn empty_list(call: Call) -> Result<Answer, HttpError> {
    let index = call.api.snapshot(call.request.stale()?).await?.index();
    Ok(Answer::json(&json!([]))?.read_at(index, call.api.knows_leader()))
}

async fn missing(call: Call, what: &str) -> Result<Answer, HttpError> {
    let index = call.api.snapshot(call.request.stale()?).await?.index();
    Ok(HttpError::not_found(format!("{what} not found")).into_answer().read_at(index, call.api.knows_leader()))
}

/// A volume that cannot exist here.
///
/// # Errors
/// There is no leader.
pub async fn no_volume(call: Call) -> Result<Answer, HttpError> {
    missing(call, "volume").await
}

/// A plugin that cannot exist here.
///
/// # Errors
/// There is no leader.
pub async fn no_plugin(call: Call) -> Result<Answer, HttpError> {
    missing(call, "plugin").await
}

/// A variable that cannot exist here.
///
/// # Errors
/// There is no leader.
pub async fn no_variable(call: Call) -> Result<Answer, HttpError> {
    missing(call, "variable").await
}

/// Lists of volumes: none exist. Source: `goldens/api/434-volumes-no-type.json`.
///
/// # Errors
/// The type is none, or there is no leader.
pub async fn volumes(call: Call) -> Result<Answer, HttpError> {
    match call.request.params.text("type") {
        "csi" | "host" => empty_list(call).await,
        "" => Answer::json(&json!([])),
        _ => Err(HttpError::not_found("resource not found")),
    }
}

/// Asking a plugin that cannot exist here. Source: `goldens/api/453-volumes-external-no-plugin.json`.
///
/// # Errors
/// Always.
pub async fn ask_plugin(_: Call) -> Result<Answer, HttpError> {
    Err(HttpError::internal("no such plugin"))
}

fn unsupported(what: &str, instead: &str) -> HttpError {
    HttpError::new(501, format!("{what} are not supported by this version; {instead}"))
}

/// Writing of variables.
///
/// # Errors
/// Always.
pub async fn write_variable(_: Call) -> Result<Answer, HttpError> {
    Err(unsupported("variables", "keep the values in job meta, env or template data"))
}

/// Writing of volumes of storage plugins.
///
/// # Errors
/// Always.
pub async fn write_csi(_: Call) -> Result<Answer, HttpError> {
    Err(unsupported("volumes of storage plugins (CSI)", "use a host_volume in the client's configuration"))
}

/// Writing of dynamic host volumes.
///
/// # Errors
/// Always.
pub async fn write_host_volume(_: Call) -> Result<Answer, HttpError> {
    Err(unsupported("dynamic host volumes", "use a host_volume in the client's configuration"))
}

/// Identities of nodes as signed tokens.
///
/// # Errors
/// Always.
pub async fn node_identity(_: Call) -> Result<Answer, HttpError> {
    Err(unsupported("signed node identities", "nodes prove themselves by their secret"))
}

/// Snapshots of the log through the API.
///
/// # Errors
/// Always.
pub async fn log_snapshot(_: Call) -> Result<Answer, HttpError> {
    Err(unsupported("snapshots through the API", "stop the agent and copy its data directory"))
}

/// Keys of the gossip protocol. Source of the status: `goldens/api/009-agent-keyring-list.json`.
///
/// # Errors
/// Always.
pub async fn gossip_keys(_: Call) -> Result<Answer, HttpError> {
    Err(HttpError::internal("gossip encryption is not in use: this version has one server and no gossip"))
}

/// Profiles of the peer's runtime.
///
/// # Errors
/// Always.
pub async fn profile(call: Call) -> Result<Answer, HttpError> {
    if !call.api.agent().facts().debug {
        return Err(HttpError::not_found("Invalid method"));
    }
    Err(unsupported("profiles of the Go runtime", "use perf on the agent's process"))
}

/// Historic logs.
///
/// # Errors
/// Always.
pub async fn monitor_export(_: Call) -> Result<Answer, HttpError> {
    Err(unsupported("historic logs through the API", "read the agent's log file or journal"))
}

/// Discovery for identity providers. Source: `goldens/api/036-openid-configuration.json`.
///
/// # Errors
/// Always.
pub async fn openid(_: Call) -> Result<Answer, HttpError> {
    Err(HttpError::not_found("OIDC Discovery endpoint disabled"))
}

/// Jobs and nodes that are not ready for identities with Vault: Vault is not supported, so there are none.
///
/// # Errors
/// There is no leader.
pub async fn vault_upgrade(call: Call) -> Result<Answer, HttpError> {
    let index = call.api.snapshot(call.request.stale()?).await?.index();
    let known = call.api.knows_leader();
    let body = super::with_meta(
        json!({"JobsWithoutVaultIdentity": [], "OutdatedNodes": [], "VaultTokens": null}),
        index,
        known,
    );
    Ok(Answer::json(&body)?.read_at(index, known))
}
