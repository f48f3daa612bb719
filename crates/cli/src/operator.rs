//! The commands for operators: raw calls of the API, the scheduler's settings, the replicated log, metrics.

use crate::command::{Attempt, Call, Command, Failure, JSON, TEMPLATE};
use crate::flags::Flag;
use crate::terminal::{columns, pairs};
use crate::view::{View, pretty};
use herdsman_client::{Options, Query, encode_segment};
use serde_json::{Map, Value, json};
use std::io::IsTerminal;

/// The commands for operators.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "operator api",
        aliases: &[],
        arguments: "<path>",
        synopsis: "Query the HTTP API",
        about: "Sends a request to the agent and prints the answer as it came. What is piped in becomes the body, and the \
                method POST. The exit status is 0 whenever there is an answer.",
        general: true,
        flags: &[
            Flag::switch("dryrun", "Only print the same call for curl."),
            Flag::text("filter", "<expression>", "Only what this filter expression selects."),
            Flag::texts("H", "<header>", "A header, Name: value; may be given several times."),
            Flag::switch("verbose", "Also what is sent and which headers come, on standard error."),
            Flag::text("X", "<method>", "The method."),
        ],
        run: |call| Box::pin(api(call)),
    },
    Command {
        name: "operator autopilot get-config",
        aliases: &[],
        arguments: "",
        synopsis: "Display the current Autopilot configuration",
        about: "Shows how servers that are gone are dealt with.",
        general: true,
        flags: &[JSON, TEMPLATE],
        run: |call| Box::pin(autopilot_config(call)),
    },
    Command {
        name: "operator autopilot health",
        aliases: &[],
        arguments: "",
        synopsis: "Display the current Autopilot health",
        about: "Shows the health of each server; exit status 1 when one is not healthy.",
        general: true,
        flags: &[JSON],
        run: |call| Box::pin(autopilot_health(call)),
    },
    Command {
        name: "operator metrics",
        aliases: &[],
        arguments: "",
        synopsis: "Retrieve metrics",
        about: "Prints the agent's metrics.",
        general: true,
        flags: &[
            Flag::switch("pretty", "Indented JSON."),
            Flag::text("format", "<json|prometheus>", "The format; default json."),
            JSON,
            TEMPLATE,
        ],
        run: |call| Box::pin(metrics(call)),
    },
    Command {
        name: "operator raft list-peers",
        aliases: &[],
        arguments: "",
        synopsis: "Display the current Raft peer configuration",
        about: "Lists the servers that hold the replicated log.",
        general: true,
        flags: &[Flag::switch("stale", "Any server may answer.")],
        run: |call| Box::pin(list_peers(call)),
    },
    Command {
        name: "operator raft remove-peer",
        aliases: &[],
        arguments: "",
        synopsis: "Remove a server from the Raft configuration",
        about: "Takes a server that is gone for good out of the replicated log.",
        general: true,
        flags: &[Flag::text("peer-id", "<id>", "The server.")],
        run: |call| Box::pin(remove_peer(call)),
    },
    Command {
        name: "operator scheduler get-config",
        aliases: &[],
        arguments: "",
        synopsis: "Display the current scheduler configuration",
        about: "Shows the scheduler's settings.",
        general: true,
        flags: &[JSON, TEMPLATE],
        run: |call| Box::pin(get_config(call)),
    },
    Command {
        name: "operator scheduler set-config",
        aliases: &[],
        arguments: "",
        synopsis: "Modify the current scheduler configuration",
        about: "Changes the scheduler's settings that are given; the others stay.",
        general: true,
        flags: &[
            Flag::text("check-index", "<index>", "Only if the settings' modify index is this."),
            Flag::text("scheduler-algorithm", "<binpack|spread>", "How nodes are chosen."),
            Flag::text("memory-oversubscription", "<true|false>", "Tasks may use memory up to memory_max."),
            Flag::text("reject-job-registration", "<true|false>", "Only managers may register jobs."),
            Flag::text("pause-eval-broker", "<true|false>", "Nothing is evaluated."),
            Flag::text("preempt-batch-scheduler", "<true|false>", "Batch jobs may preempt."),
            Flag::text("preempt-service-scheduler", "<true|false>", "Service jobs may preempt."),
            Flag::text("preempt-sysbatch-scheduler", "<true|false>", "Sysbatch jobs may preempt."),
            Flag::text("preempt-system-scheduler", "<true|false>", "System jobs may preempt."),
            Flag::text("node-limit-for-feasibility-checks", "<n>", "How many nodes are looked at, at the least."),
        ],
        run: |call| Box::pin(set_config(call)),
    },
];

/// The path of an argument: a path, or an address of which only the path counts beside where it points.
struct Target {
    address: Option<String>,
    path: String,
    params: Vec<(String, String)>,
}

fn target_of(word: &str) -> Result<Target, Failure> {
    let (address, rest) = if word.starts_with('/') {
        (None, word.to_string())
    } else {
        let with_scheme = if word.contains("://") { word.to_string() } else { format!("http://{word}") };
        let (scheme, rest) = with_scheme.split_once("://").unwrap_or(("http", with_scheme.as_str()));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err(Failure::new(format!("{word:?} is neither a path that begins with / nor an address")));
        }
        (Some(format!("{scheme}://{host}")), format!("/{path}"))
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest.as_str(), ""));
    let params = query
        .split('&')
        .filter(|p| !p.is_empty())
        .map(|p| p.split_once('=').unwrap_or((p, "")))
        .map(|(n, v)| (decode(n), decode(v)))
        .collect();
    Ok(Target { address, path: path.to_string(), params })
}

/// Undoes percent encoding.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let ahead: Vec<u8> = bytes.clone().take(2).collect();
                let value = std::str::from_utf8(&ahead).ok().and_then(|h| u8::from_str_radix(h, 16).ok());
                match value.filter(|_| ahead.len() == 2) {
                    Some(value) => {
                        out.push(value);
                        bytes.nth(1);
                    }
                    None => out.push(b'%'),
                }
            }
            b'+' => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

async fn api(call: &mut Call<'_>) -> Result<u8, Failure> {
    let word = call.one_word()?.to_string();
    let target = target_of(&word)?;
    let mut client = call.client()?;
    if let Some(address) = &target.address {
        client = herdsman_client::Client::new(address, client.options().clone())
            .map_err(|e| Failure::new(format!("Error initializing client: {e}")))?;
    }
    let mut options: Options = client.options().clone();
    for header in call.flags.texts("H") {
        let Some((name, value)) = header.split_once(':') else {
            return Err(Failure::new(format!("-H {header:?} reads Name: value")));
        };
        match name.trim().to_ascii_lowercase().as_str() {
            "x-nomad-token" => options.token = value.trim().to_string(),
            "content-type" | "accept" => {}
            other => {
                return Err(Failure::new(format!(
                    "-H {other}: only X-Nomad-Token, Content-Type and Accept can be sent"
                )));
            }
        }
    }
    let client = client.with_options(options);
    let body = piped_body(call).await?;
    let method = match call.flags.text("X") {
        Some(method) => method.to_ascii_uppercase(),
        None if body.is_some() => "POST".to_string(),
        None => "GET".to_string(),
    };
    let mut query = Query { params: target.params.clone(), ..Query::none() };
    if let Some(filter) = call.flags.text("filter") {
        query = query.with("filter", filter);
    }
    if call.flags.on("dryrun") {
        let text = curl(call, &client, &method, &target, body.is_some());
        call.terminal.line(text);
        return Ok(0);
    }
    let verbose = call.flags.on("verbose");
    if verbose {
        call.terminal
            .error(format!("> {method} {} HTTP/1.1\n>\n* Sending request and receiving response...", target.path));
    }
    let result = client.stream(&method, &target.path, &query, body.map(Into::into)).await;
    match result {
        Ok(mut stream) => {
            if verbose {
                let (status, meta) = (stream.status(), stream.meta().clone());
                call.terminal.error(format!("< HTTP/1.1 {status}\n< Content-Type: {}", meta.content_type));
            }
            while let Some(piece) = stream.next().await.attempt("Error reading response")? {
                call.terminal.raw(&piece);
            }
            Ok(0)
        }
        Err(herdsman_client::ClientError::Refused { code, message }) => {
            if verbose {
                call.terminal.error(format!("< HTTP/1.1 {code}"));
            }
            call.terminal.raw(message.as_bytes());
            Ok(0)
        }
        Err(error) => Err(Failure::of("Error making request", &error)),
    }
}

/// What is piped in, if anything is.
async fn piped_body(call: &Call<'_>) -> Result<Option<Vec<u8>>, Failure> {
    if call.environment.given_input().is_none() {
        let stdin = std::io::stdin();
        let piped = !stdin.is_terminal()
            && rustix::fs::fstat(&stdin).is_ok_and(|s| {
                let kind = rustix::fs::FileType::from_raw_mode(s.st_mode);
                matches!(kind, rustix::fs::FileType::Fifo | rustix::fs::FileType::RegularFile)
            });
        if !piped {
            return Ok(None);
        }
    }
    let bytes = call.input().await?;
    Ok((!bytes.is_empty()).then_some(bytes))
}

fn curl(call: &Call<'_>, client: &herdsman_client::Client, method: &str, target: &Target, body: bool) -> String {
    let mut parts = vec!["curl".to_string()];
    if call.flags.on("verbose") {
        parts.push("--verbose".to_string());
    }
    parts.push(format!("-X {method}"));
    if call.environment.get("NOMAD_HTTP_AUTH").is_some() {
        parts.push("-u \"$NOMAD_HTTP_AUTH\"".to_string());
    }
    if let Some(token) = call.flags.text("token") {
        parts.push(format!("-H 'X-Nomad-Token: {token}'"));
    } else if call.environment.get("NOMAD_TOKEN").is_some() {
        parts.push("-H \"X-Nomad-Token: ${NOMAD_TOKEN}\"".to_string());
    }
    if body {
        parts.push("--data-binary @-".to_string());
    }
    let mut params: Vec<String> =
        target.params.iter().map(|(n, v)| format!("{}={}", encode_segment(n), encode_segment(v))).collect();
    for (name, value) in [("namespace", &client.options().namespace), ("region", &client.options().region)] {
        if !value.is_empty() {
            params.push(format!("{name}={}", encode_segment(value)));
        }
    }
    if let Some(filter) = call.flags.text("filter") {
        params.push(format!("filter={}", encode_segment(filter)));
    }
    let query = if params.is_empty() { String::new() } else { format!("?{}", params.join("&")) };
    parts.push(format!("'{}{}{query}'", client.address(), target.path));
    parts.join(" ")
}

async fn metrics(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let format = call.flags.text_or_empty("format").to_string();
    if format == "prometheus" {
        let query = Query::none().with("format", "prometheus");
        let (bytes, _) = client.raw("GET", "/v1/metrics", &query, None).await.attempt("Error getting metrics")?;
        call.terminal.raw(&bytes);
        return Ok(0);
    }
    let (value, _): (Value, _) = client.get("/v1/metrics", &Query::none()).await.attempt("Error getting metrics")?;
    if call.formatted(&value)? {
        return Ok(0);
    }
    let text = if call.flags.on("pretty") { pretty(&value) } else { value.to_string() };
    call.terminal.line(text);
    Ok(0)
}

async fn autopilot_config(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (config, _): (Value, _) = client
        .get("/v1/operator/autopilot/configuration", &Query::none())
        .await
        .attempt("Error querying Autopilot configuration")?;
    if call.formatted(&config)? {
        return Ok(0);
    }
    for key in [
        "CleanupDeadServers",
        "LastContactThreshold",
        "MaxTrailingLogs",
        "MinQuorum",
        "ServerStabilizationTime",
        "EnableRedundancyZones",
        "DisableUpgradeMigration",
        "EnableCustomUpgrades",
    ] {
        call.terminal.line(format!("{key} = {}", config.at(key).plain()));
    }
    Ok(0)
}

async fn autopilot_health(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let path = "/v1/operator/autopilot/health";
    let answer: Result<(Value, _), _> = client.get(path, &Query::none()).await;
    let (health, exit) = match answer {
        Ok((health, _)) => (health, 0),
        // Unhealthy servers make the answer a refusal that tells the same.
        Err(herdsman_client::ClientError::Refused { code: 429, message }) => {
            (serde_json::from_str(&message).unwrap_or(Value::Null), 1)
        }
        Err(error) => return Err(Failure::of("Error querying Autopilot health", &error)),
    };
    if call.flags.on("json") {
        call.terminal.line(pretty(&health));
        return Ok(exit);
    }
    let leader = health.text("Leader");
    let voters: Vec<String> = health.list("Voters").iter().map(|v| format!("\t{}", v.plain())).collect();
    let mut lines = vec![
        "ID|Name|Address|SerfStatus|Version|Leader|Voter|Healthy|LastContact|LastTerm|LastIndex|StableSince"
            .to_string(),
    ];
    for server in health.list("Servers") {
        let cells = ["Leader", "Voter", "Healthy", "LastContact", "LastTerm", "LastIndex", "StableSince"];
        let cells: Vec<String> = cells.iter().map(|key| server.at(key).plain()).collect();
        lines.push(format!(
            "{}|{}|{}|{}|{}|{}",
            server.text("ID"),
            server.text("Name"),
            server.text("Address"),
            server.text("SerfStatus"),
            server.text("Version"),
            cells.join("|")
        ));
    }
    call.terminal.line(format!(
        "Healthy: {}\nFailureTolerance: {}\nLeader: {leader}\nVoters:  \n{}\nServers: \n{}\n",
        health.on("Healthy"),
        health.int("FailureTolerance"),
        voters.join("\n"),
        columns(&lines)
    ));
    Ok(exit)
}

async fn list_peers(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let query = Query { stale: call.flags.on("stale"), ..Query::none() };
    let (answer, _): (Value, _) =
        client.get("/v1/operator/raft/configuration", &query).await.attempt("Failed to retrieve raft configuration")?;
    let mut lines = vec!["Node|ID|Address|State|Voter|RaftProtocol".to_string()];
    for server in answer.list("Servers") {
        let state = if server.on("Leader") { "leader" } else { "follower" };
        lines.push(format!(
            "{}|{}|{}|{state}|{}|{}",
            server.text("Node"),
            server.text("ID"),
            server.text("Address"),
            server.on("Voter"),
            server.at("RaftProtocol").plain()
        ));
    }
    call.terminal.line(columns(&lines));
    Ok(0)
}

async fn remove_peer(call: &mut Call<'_>) -> Result<u8, Failure> {
    let Some(peer) = call.flags.text("peer-id").map(str::to_string).filter(|p| !p.is_empty()) else {
        return Err(call.usage("Missing peer id required: -peer-id"));
    };
    let client = call.client()?;
    let query = Query::none().with("id", peer.clone());
    client.raw("DELETE", "/v1/operator/raft/peer", &query, None).await.attempt("Error removing peer")?;
    call.terminal.line(format!("Removed peer with id {peer:?}"));
    Ok(0)
}

const CONFIG_PATH: &str = "/v1/operator/scheduler/configuration";

async fn get_config(call: &mut Call<'_>) -> Result<u8, Failure> {
    let client = call.client()?;
    let (answer, _): (Value, _) =
        client.get(CONFIG_PATH, &Query::none()).await.attempt("Error querying scheduler configuration")?;
    if call.formatted(&answer)? {
        return Ok(0);
    }
    let config = answer.at("SchedulerConfig");
    let preempt = config.at("PreemptionConfig");
    call.terminal.line(pairs(&[
        format!("Scheduler Algorithm|{}", config.text("SchedulerAlgorithm")),
        format!("Memory Oversubscription|{}", config.on("MemoryOversubscriptionEnabled")),
        format!("Reject Job Registration|{}", config.on("RejectJobRegistration")),
        format!("Pause Eval Broker|{}", config.on("PauseEvalBroker")),
        format!("Preemption System Scheduler|{}", preempt.on("SystemSchedulerEnabled")),
        format!("Preemption Service Scheduler|{}", preempt.on("ServiceSchedulerEnabled")),
        format!("Preemption Batch Scheduler|{}", preempt.on("BatchSchedulerEnabled")),
        format!("Preemption SysBatch Scheduler|{}", preempt.on("SysBatchSchedulerEnabled")),
        format!("Node Limit For Feasibility Checks|{}", config.int("NodeLimitForFeasibilityChecks")),
        format!("Modify Index|{}", config.int("ModifyIndex")),
    ]));
    Ok(0)
}

async fn set_config(call: &mut Call<'_>) -> Result<u8, Failure> {
    let truth = |name: &str| -> Result<Option<bool>, Failure> {
        match call.flags.text(name) {
            None => Ok(None),
            Some(text) => match text.parse::<bool>() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(Failure::new(format!("Error parsing -{name} value {text:?}: it is true or false"))),
            },
        }
    };
    let mut top = Map::new();
    for (flag, key) in [
        ("memory-oversubscription", "MemoryOversubscriptionEnabled"),
        ("reject-job-registration", "RejectJobRegistration"),
        ("pause-eval-broker", "PauseEvalBroker"),
    ] {
        if let Some(value) = truth(flag)? {
            top.insert(key.to_string(), json!(value));
        }
    }
    let mut preempt = Map::new();
    for (flag, key) in [
        ("preempt-batch-scheduler", "BatchSchedulerEnabled"),
        ("preempt-service-scheduler", "ServiceSchedulerEnabled"),
        ("preempt-sysbatch-scheduler", "SysBatchSchedulerEnabled"),
        ("preempt-system-scheduler", "SystemSchedulerEnabled"),
    ] {
        if let Some(value) = truth(flag)? {
            preempt.insert(key.to_string(), json!(value));
        }
    }
    if let Some(text) = call.flags.text("scheduler-algorithm") {
        top.insert("SchedulerAlgorithm".to_string(), json!(text));
    }
    if let Some(text) = call.flags.text("node-limit-for-feasibility-checks") {
        let limit: u64 = text.parse().map_err(|_| {
            Failure::new(format!(
                "Error parsing -node-limit-for-feasibility-checks value {text:?}: it is a whole number"
            ))
        })?;
        top.insert("NodeLimitForFeasibilityChecks".to_string(), json!(limit));
    }
    let client = call.client()?;
    let (answer, _): (Value, _) =
        client.get(CONFIG_PATH, &Query::none()).await.attempt("Error querying for existing scheduler configuration")?;
    let mut config = answer.at("SchedulerConfig").clone();
    let index = match call.flags.text("check-index") {
        Some(text) => text.parse::<u64>().map_err(|_| {
            Failure::new(format!("Error parsing check-index value {text:?}: it is a whole number from 0 on"))
        })?,
        None => u64::try_from(config.int("ModifyIndex")).unwrap_or(0),
    };
    if let Some(object) = config.as_object_mut() {
        object.extend(top);
        if let Some(known) = object.entry("PreemptionConfig").or_insert_with(|| json!({})).as_object_mut() {
            known.extend(preempt);
        }
    }
    let query = Query::none().with("cas", index.to_string());
    let (done, _): (Value, _) =
        client.put(CONFIG_PATH, &query, &config).await.attempt("Error setting scheduler configuration")?;
    if done.get("Updated").and_then(Value::as_bool) == Some(false) {
        return Err(Failure::new("Scheduler configuration could not be atomically updated, please try again"));
    }
    call.terminal.line("Scheduler configuration updated!");
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_addresses_are_told_apart() {
        let target = target_of("/v1/jobs?prefix=a%2Fb&x").unwrap();
        assert_eq!((target.address, target.path.as_str()), (None, "/v1/jobs"));
        assert_eq!(target.params, [("prefix".to_string(), "a/b".to_string()), ("x".to_string(), String::new())]);
        let target = target_of("localhost:4646/v1/jobs").unwrap();
        assert_eq!((target.address.as_deref(), target.path.as_str()), (Some("http://localhost:4646"), "/v1/jobs"));
        assert!(target_of("http:///x").is_err());
    }
}
