//! `node drain` and `node eligibility`.

use crate::command::{Attempt, Call, Failure};
use crate::monitor::{WAIT, pause_without_index};
use crate::view::{View, members};
use herdsman_client::{Client, Query, encode_segment};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The deadline of a drain when none is given, nanoseconds.
const DEFAULT_DEADLINE: i64 = 3_600_000_000_000;
/// The deadline that means: at once.
const FORCE: i64 = -1;

/// `node eligibility`.
pub async fn eligibility(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = match (call.flags.on("enable"), call.flags.on("disable")) {
        (true, false) => "eligible",
        (false, true) => "ineligible",
        _ => return Err(call.usage("Either the '-enable' or '-disable' flag must be set")),
    };
    let client = call.client()?;
    let node = super::named(call, &client).await?;
    let path = format!("/v1/node/{}/eligibility", encode_segment(node.text("ID")));
    let body = json!({ "NodeID": node.text("ID"), "Eligibility": word });
    let _: (Value, _) =
        client.put(&path, &Query::none(), &body).await.attempt("Error updating scheduling eligibility")?;
    call.terminal.line(format!("Node {:?} scheduling eligibility set: {word} for scheduling", node.text("ID")));
    Ok(0)
}

/// `node drain`.
pub async fn drain(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (on, off, only_watch) = (call.flags.on("enable"), call.flags.on("disable"), call.flags.on("monitor"));
    if on == off && !only_watch {
        return Err(call.usage("Either the '-enable' or '-disable' flag must be set, unless using '-monitor'"));
    }
    let deadline = deadline(call)?;
    let client = call.client()?;
    let node = super::named(call, &client).await?;
    let name = node.text("ID").to_string();
    if only_watch && !on && !off {
        if !node.at("DrainStrategy").is_object() {
            call.terminal.line("No drain strategy set");
            return Ok(0);
        }
        return watch(call, &client, &name, node.int("ModifyIndex")).await;
    }
    if !call.flags.on("yes") && call.environment.given_input().is_none() && call.terminal.interactive() {
        let verb = if on { "enable" } else { "disable" };
        let question = format!("Are you sure you want to {verb} drain mode for node {name:?}?");
        if !call.confirm(&question).await? {
            call.terminal.line("Canceling drain toggle");
            return Ok(0);
        }
    }
    let mut meta = Map::new();
    for given in call.flags.texts("meta") {
        let (key, value) = given.split_once('=').unwrap_or((given, ""));
        meta.insert(key.to_string(), json!(value));
    }
    if let Some(message) = call.flags.text("m") {
        meta.insert("message".to_string(), json!(message));
    }
    let spec = if on {
        json!({ "Deadline": deadline, "IgnoreSystemJobs": call.flags.on("ignore-system") })
    } else {
        Value::Null
    };
    let body = json!({
        "NodeID": name, "DrainSpec": spec, "MarkEligible": off && !call.flags.on("keep-ineligible"), "Meta": meta,
    });
    let path = format!("/v1/node/{}/drain", encode_segment(&name));
    let (answer, _): (Value, _) =
        client.put(&path, &Query::none(), &body).await.attempt("Error updating drain specification")?;
    if off || call.flags.on("detach") {
        let what = if on { "set" } else { "unset" };
        call.terminal.line(format!("Node {name:?} drain strategy {what}"));
        return Ok(0);
    }
    let time = call.times().stamp();
    call.terminal.line(format!("{time}: Ctrl-C to stop monitoring: will not cancel the node drain"));
    call.terminal.line(format!("{time}: Node {name:?} drain strategy set"));
    watch(call, &client, &name, answer.int("NodeModifyIndex")).await
}

fn deadline(call: &Call<'_>) -> Result<i64, Failure> {
    let given = call.flags.text("deadline");
    match (call.flags.on("force"), call.flags.on("no-deadline"), given) {
        (true, true, _) | (true, _, Some(_)) | (_, true, Some(_)) => {
            Err(Failure::new("Only one of -deadline, -force and -no-deadline says how long the drain may take"))
        }
        (true, false, None) => Ok(FORCE),
        (false, true, None) => Ok(0),
        (false, false, None) => Ok(DEFAULT_DEADLINE),
        (false, false, Some(text)) => match herdsman_expr::duration::parse(text) {
            Ok(span) if span > 0 => Ok(span),
            Ok(_) => Err(Failure::new("A positive drain duration must be given")),
            Err(error) => Err(Failure::new(format!("Failed to parse deadline {text:?}: {error}"))),
        },
    }
}

/// What was last seen of an allocation.
#[derive(Clone, Default)]
struct Seen {
    status: String,
    migrating: bool,
    stopping: bool,
}

/// Watches a drain until nothing is left to stop. The user may leave with Ctrl-C.
async fn watch(call: &mut Call<'_>, client: &Client, node: &str, index: i64) -> Result<u8, Failure> {
    let done = tokio::signal::ctrl_c();
    tokio::select! {
        result = follow(call, client, node, u64::try_from(index).unwrap_or(0)) => result,
        _ = done => Ok(0),
    }
}

async fn follow(call: &mut Call<'_>, client: &Client, node: &str, from: u64) -> Result<u8, Failure> {
    let node_path = format!("/v1/node/{}", encode_segment(node));
    let list_path = format!("{node_path}/allocations");
    let (mut node_index, mut list_index) = (from.saturating_sub(1), 0_u64);
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    let mut draining = true;
    let mut left = usize::MAX;
    let client = client.clone();
    let read = |path: String, index: u64| {
        let client = client.clone();
        async move { client.get::<Value>(&path, &Query::none().after(index, WAIT)).await.attempt("Error monitoring drain") }
    };
    let mut node_read = Box::pin(read(node_path.clone(), node_index));
    let mut list_read = Box::pin(read(list_path.clone(), list_index));
    while draining || left > 0 {
        tokio::select! {
            answer = &mut node_read, if draining => {
                let (now, meta) = answer?;
                if !now.at("DrainStrategy").is_object() {
                    draining = false;
                    let time = call.times().stamp();
                    let text = match now.at("LastDrain").text("Status") {
                        "canceled" => format!("{time}: Drain canceled for node {node}"),
                        _ => format!("{time}: Drain complete for node {node}"),
                    };
                    call.terminal.line(text);
                    if now.at("LastDrain").text("Status") == "canceled" {
                        return Ok(0);
                    }
                }
                pause_without_index(meta.index).await;
                node_index = meta.index.max(node_index);
                node_read = Box::pin(read(node_path.clone(), node_index));
            }
            answer = &mut list_read => {
                let (now, meta) = answer?;
                left = report(call, members(&now), &mut seen);
                pause_without_index(meta.index).await;
                list_index = meta.index.max(list_index);
                list_read = Box::pin(read(list_path.clone(), list_index));
            }
        }
    }
    let time = call.times().stamp();
    call.terminal.line(format!("{time}: All allocations on node {node:?} have stopped"));
    Ok(0)
}

/// Prints what is new about the allocations; how many the drain still waits for.
fn report(call: &mut Call<'_>, allocations: &[Value], seen: &mut BTreeMap<String, Seen>) -> usize {
    let mut left = 0;
    let first = seen.is_empty();
    for a in allocations {
        let job = a.at("Job").text("Type");
        let ended = matches!(a.text("ClientStatus"), "complete" | "failed" | "lost");
        let system = matches!(job, "system" | "sysbatch") || matches!(a.text("JobType"), "system" | "sysbatch");
        let now = Seen {
            status: a.text("ClientStatus").to_string(),
            migrating: a.at("DesiredTransition").on("Migrate"),
            stopping: a.text("DesiredStatus") == "stop",
        };
        let before = seen.insert(a.text("ID").to_string(), now.clone());
        if !(ended || system && call.flags.on("ignore-system")) {
            left += 1;
        }
        if first && (ended || before.is_none() && !now.migrating && !now.stopping) {
            continue;
        }
        let before = before.unwrap_or_else(|| Seen { status: now.status.clone(), ..Seen::default() });
        let (time, name) = (call.times().stamp(), a.text("ID"));
        if now.migrating && !before.migrating {
            call.terminal.line(format!("{time}: Alloc {name:?} marked for migration"));
        }
        if now.migrating && now.stopping && !before.stopping {
            call.terminal.line(format!("{time}: Alloc {name:?} draining"));
        }
        if now.status != before.status {
            call.terminal.line(format!("{time}: Alloc {name:?} status {} -> {}", before.status, now.status));
        }
    }
    left
}
