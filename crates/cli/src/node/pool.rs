//! The commands about node pools.

use crate::command::{Attempt, Call, Command, FILTER, Failure, JSON, PAGE_TOKEN, PER_PAGE, TEMPLATE, VERBOSE};
use crate::flags::Flag;
use crate::terminal::{cell, columns, pairs};
use crate::view::{View, members};
use herdsman_client::{Client, Query, encode_segment};
use serde_json::{Map, Value, json};

/// The commands about node pools.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "node pool apply",
        aliases: &[],
        arguments: "<input>",
        synopsis: "Create or update a node pool",
        about: "Creates or changes the node pools in a file, or on standard input for \"-\".",
        general: true,
        flags: &[Flag::switch("json", "The input is JSON.")],
        run: |call| Box::pin(apply(call)),
    },
    Command {
        name: "node pool delete",
        aliases: &[],
        arguments: "<node-pool>",
        synopsis: "Delete a node pool",
        about: "Deletes a node pool that no job and no node uses.",
        general: true,
        flags: &[],
        run: |call| Box::pin(delete(call)),
    },
    Command {
        name: "node pool info",
        aliases: &[],
        arguments: "<node-pool>",
        synopsis: "Fetch information on an existing node pool",
        about: "Shows a node pool.",
        general: true,
        flags: &[JSON, TEMPLATE],
        run: |call| Box::pin(info(call)),
    },
    Command {
        name: "node pool jobs",
        aliases: &[],
        arguments: "<node-pool>",
        synopsis: "Fetch a list of jobs in a node pool",
        about: "Lists the jobs that run in a node pool.",
        general: true,
        flags: &[FILTER, JSON, PAGE_TOKEN, PER_PAGE, TEMPLATE],
        run: |call| Box::pin(jobs(call)),
    },
    Command {
        name: "node pool list",
        aliases: &[],
        arguments: "",
        synopsis: "Fetch a list of node pools",
        about: "Lists the node pools.",
        general: true,
        flags: &[FILTER, JSON, PAGE_TOKEN, PER_PAGE, TEMPLATE],
        run: |call| Box::pin(list(call)),
    },
    Command {
        name: "node pool nodes",
        aliases: &[],
        arguments: "<node-pool>",
        synopsis: "Fetch a list of nodes in a node pool",
        about: "Lists the nodes of a node pool.",
        general: true,
        flags: &[FILTER, JSON, PAGE_TOKEN, PER_PAGE, TEMPLATE, VERBOSE],
        run: |call| Box::pin(nodes(call)),
    },
];

/// The pool with this name, or the only one whose name begins so.
async fn find(client: &Client, prefix: &str) -> Result<Value, Failure> {
    let query = Query { prefix: prefix.to_string(), ..Query::none() };
    let (all, _): (Value, _) = client.get("/v1/node/pools", &query).await.attempt("Error retrieving node pool")?;
    if let Some(whole) = members(&all).iter().find(|p| p.text("Name") == prefix) {
        return Ok(whole.clone());
    }
    match members(&all) {
        [one] => Ok(one.clone()),
        [] => Err(Failure::new(format!("Error retrieving node pool: No node pool with prefix {prefix:?} found"))),
        several => Err(Failure::new(format!("Prefix matched multiple node pools\n\n{}", list_text(several)))),
    }
}

fn list_text(pools: &[Value]) -> String {
    let mut lines = vec!["Name|Description".to_string()];
    lines.extend(pools.iter().map(|p| format!("{}|{}", p.text("Name"), cell(p.text("Description")))));
    columns(&lines)
}

async fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (all, meta): (Value, _) =
        client.get("/v1/node/pools", &call.paged()).await.attempt("Error querying node pools")?;
    if call.formatted(&all)? {
        return Ok(0);
    }
    let text = if members(&all).is_empty() { "No node pools".to_string() } else { list_text(members(&all)) };
    call.terminal.line(text);
    crate::eval::next_page(call, &meta.next_token);
    Ok(0)
}

async fn info(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let pool = find(&client, &word).await?;
    if call.formatted(&pool)? {
        return Ok(0);
    }
    let mut lines =
        vec![format!("Name|{}", pool.text("Name")), format!("Description|{}", cell(pool.text("Description")))];
    if pool.int("NodeIdentityTTL") > 0 {
        lines.push(format!("Node Identity TTL|{}", herdsman_expr::duration::format(pool.int("NodeIdentityTTL"))));
    }
    let meta: Vec<String> =
        pool.entries("Meta").iter().map(|(name, value)| format!("{name}|{}", cell(&value.plain()))).collect();
    let meta = if meta.is_empty() { "No metadata".to_string() } else { pairs(&meta) };
    let settings = pool.at("SchedulerConfiguration");
    let settings = if settings.is_object() {
        let mut lines = vec![format!("Scheduler Algorithm|{}", settings.text("SchedulerAlgorithm"))];
        if !settings.at("MemoryOversubscriptionEnabled").is_null() {
            lines.push(format!("Memory Oversubscription|{}", settings.on("MemoryOversubscriptionEnabled")));
        }
        pairs(&lines)
    } else {
        "No scheduler configuration".to_string()
    };
    call.terminal.line(format!("{}\n\nMetadata\n{meta}\n\nScheduler Configuration\n{settings}", pairs(&lines)));
    Ok(0)
}

async fn nodes(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let pool = find(&client, &word).await?;
    let path = format!("/v1/node/pool/{}/nodes", encode_segment(pool.text("Name")));
    let (all, meta): (Value, _) = client.get(&path, &call.paged()).await.attempt("Error querying nodes")?;
    if call.formatted(&all)? {
        return Ok(0);
    }
    let columns = super::Columns { without_pool: true, ..super::Columns::default() };
    let text = match members(&all) {
        [] => "No nodes".to_string(),
        some => super::list_text(some, call.verbose(), &columns),
    };
    call.terminal.line(text);
    crate::eval::next_page(call, &meta.next_token);
    Ok(0)
}

async fn jobs(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let client = call.client()?;
    let pool = find(&client, &word).await?;
    let path = format!("/v1/node/pool/{}/jobs", encode_segment(pool.text("Name")));
    let (all, meta): (Value, _) = client.get(&path, &call.paged()).await.attempt("Error querying jobs")?;
    if call.formatted(&all)? {
        return Ok(0);
    }
    let text = match members(&all) {
        [] => "No jobs".to_string(),
        some => crate::job::status::list_text(some, &call.times(), client.options().namespace == "*"),
    };
    call.terminal.line(text);
    crate::eval::next_page(call, &meta.next_token);
    Ok(0)
}

async fn delete(call: &mut Call<'_>) -> Result<u8, Failure> {
    let name = call.one_word()?.to_string();
    let client = call.client()?;
    let path = format!("/v1/node/pool/{}", encode_segment(&name));
    let _: (Value, _) = client.delete(&path, &Query::none()).await.attempt("Error deleting node pool")?;
    call.terminal.line(format!("Successfully deleted node pool {name:?}!"));
    Ok(0)
}

async fn apply(call: &mut Call<'_>) -> Result<u8, Failure> {
    let path = call.one_word()?.to_string();
    let text = call.file_or_input(&path).await?;
    let json = call.flags.on("json") || path.ends_with(".json");
    let pools = if json { pools_in_json(&text)? } else { pools_in_hcl(&path, &text)? };
    let client = call.client()?;
    for pool in pools {
        let name = pool.text("Name").to_string();
        let _: (Value, _) =
            client.put("/v1/node/pools", &Query::none(), &pool).await.attempt("Error applying node pool")?;
        call.terminal.line(format!("Successfully applied node pool {name:?}!"));
    }
    Ok(0)
}

fn pools_in_json(text: &str) -> Result<Vec<Value>, Failure> {
    let pool: Value =
        serde_json::from_str(text).map_err(|e| Failure::new(format!("Failed to parse input content: {e}")))?;
    let found = match pool {
        Value::Array(pools) => pools,
        pool => vec![pool],
    };
    match found.iter().find(|p| p.text("Name").is_empty()) {
        Some(_) => Err(Failure::new("Failed to parse input content: a node pool needs a Name")),
        None => Ok(found),
    }
}

fn pools_in_hcl(name: &str, text: &str) -> Result<Vec<Value>, Failure> {
    let bad = |why: String| Failure::new(format!("Failed to parse input content: {why}"));
    let spec = crate::spec::read(name, text).map_err(bad)?;
    let mut pools = Vec::new();
    for block in spec.blocks {
        let [label] = block.labels.as_slice() else {
            return Err(bad(format!("a {} block needs one name: node_pool \"name\" {{ }}", block.kind)));
        };
        if block.kind != "node_pool" {
            return Err(bad(format!("a block {:?} is not known here: only node_pool is", block.kind)));
        }
        pools.push(pool_of(label, block.content).map_err(bad)?);
    }
    if pools.is_empty() {
        return Err(bad("there is no node_pool block".to_string()));
    }
    Ok(pools)
}

fn pool_of(name: &str, content: Map<String, Value>) -> Result<Value, String> {
    let mut pool = json!({ "Name": name });
    let Some(fields) = pool.as_object_mut() else { return Ok(pool) };
    for (key, value) in content {
        let (wire, value) = match key.as_str() {
            "description" => ("Description", value),
            "meta" => ("Meta", value),
            "node_identity_ttl" => ("NodeIdentityTTL", value),
            "scheduler_config" => (
                "SchedulerConfiguration",
                json!({
                    "SchedulerAlgorithm": value.at("scheduler_algorithm"),
                    "MemoryOversubscriptionEnabled": value.at("memory_oversubscription_enabled"),
                }),
            ),
            other => {
                return Err(format!(
                    "node_pool {name:?} has {other:?}, which is not known: description, meta, node_identity_ttl and \
                     scheduler_config are"
                ));
            }
        };
        fields.insert(wire.to_string(), value);
    }
    Ok(pool)
}
