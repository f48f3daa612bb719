//! `node meta` and `node config`.

use crate::command::{Attempt, Call, Failure};
use crate::terminal::{cell, pairs};
use crate::view::View;
use herdsman_client::{Client, Query};
use serde_json::{Map, Value, json};

async fn query_of(call: &Call<'_>, client: &Client) -> Result<Query, Failure> {
    match call.flags.text("node-id") {
        None => Ok(Query::none()),
        Some(prefix) => {
            let node = call.find_node(client, prefix).await?;
            Ok(Query::none().with("node_id", node.text("ID")))
        }
    }
}

/// `node meta apply`.
pub async fn apply(call: &mut Call<'_>) -> Result<u8, Failure> {
    let mut meta = Map::new();
    for name in call.flags.text_or_empty("unset").split(',').map(str::trim).filter(|n| !n.is_empty()) {
        meta.insert(name.to_string(), Value::Null);
    }
    for given in &call.flags.words {
        match given.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                meta.insert(name.to_string(), json!(value));
            }
            _ => return Err(call.usage(&format!("Metadata reads name=value, not {given:?}"))),
        }
    }
    if meta.is_empty() {
        return Err(call.usage("Nothing to set or to remove: give name=value or -unset"));
    }
    let client = call.client()?;
    let query = query_of(call, &client).await?;
    let _: (Value, _) = client
        .put("/v1/client/metadata", &query, &json!({ "Meta": meta }))
        .await
        .attempt("Error applying dynamic node metadata")?;
    Ok(0)
}

/// `node meta read`.
pub async fn read(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let query = query_of(call, &client).await?;
    let (meta, _): (Value, _) =
        client.get("/v1/client/metadata", &query).await.attempt("Error reading dynamic node metadata")?;
    if call.formatted(&meta)? {
        return Ok(0);
    }
    let part = |key: &str| {
        let lines: Vec<String> =
            meta.entries(key).iter().map(|(name, value)| format!("{name}|{}", cell(&value.plain()))).collect();
        if lines.is_empty() { "<none>".to_string() } else { pairs(&lines) }
    };
    let text =
        format!("All Meta\n{}\n\nDynamic Meta\n{}\n\nStatic Meta\n{}", part("Meta"), part("Dynamic"), part("Static"));
    call.terminal.line(text);
    Ok(0)
}

/// `node config`.
pub async fn config(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    if call.flags.on("update-servers") {
        if call.flags.words.is_empty() {
            return Err(call.usage("If the '-update-servers' flag is set, at least one server address is needed"));
        }
        let mut query = Query::none();
        for address in &call.flags.words {
            query = query.with("address", address.clone());
        }
        client.raw("PUT", "/v1/agent/servers", &query, None).await.attempt("Error updating server list")?;
        return Ok(0);
    }
    if !call.flags.on("servers") {
        return Err(call.usage("One of the '-servers' or '-update-servers' flags must be set"));
    }
    let (servers, _): (Value, _) =
        client.get("/v1/agent/servers", &Query::none()).await.attempt("Error querying server list")?;
    for server in crate::view::members(&servers) {
        call.terminal.line(server.plain());
    }
    Ok(0)
}
