//! The agent and the servers it knows: `/v1/agent/…`, `/v1/status/…`, `/v1/regions`.

use crate::answer::{Answer, BrokenOff};
use crate::api::Api;
use crate::error::HttpError;
use crate::pipeline::Call;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use herdsman_server::Server;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Bytes of log in one frame of a stream. Source: wire-notes section 9.
const MONITOR_CHUNK: usize = 1024;

/// How often a stream of frames without data shows that it lives. Source: wire-notes section 9.
const FRAME_HEARTBEAT: Duration = Duration::from_secs(1);

/// Every kind of scheduler a worker runs, in the order the peer shows them.
const SCHEDULERS: [&str; 5] = ["system", "sysbatch", "service", "batch", "_core"];

/// The identifier that stands for a server in answers: its number in the log, as the last digits of an id.
pub fn server_id(number: u64) -> String {
    format!("00000000-0000-4000-8000-{:012x}", number & 0xffff_ffff_ffff)
}

/// The name of this server among all regions.
pub fn server_name(api: &Api) -> String {
    let facts = api.agent().facts();
    format!("{}.{}", facts.name, facts.region)
}

/// This server as a member of the cluster.
fn member(api: &Api, server: &Server) -> Value {
    let facts = api.agent().facts();
    let rpc = server.rpc_advertise();
    let (host, port) = rpc.rsplit_once(':').unwrap_or((&rpc, ""));
    json!({
        "Name": server_name(api), "Addr": facts.gossip_host, "Port": facts.gossip_port, "Status": "alive",
        "ProtocolMin": 1, "ProtocolMax": 5, "ProtocolCur": 2, "DelegateMin": 2, "DelegateMax": 5, "DelegateCur": 4,
        "Tags": {
            "role": "nomad", "region": facts.region, "dc": facts.datacenter, "build": facts.compatible_version,
            "vsn": "1", "raft_vsn": "3", "revision": "", "bootstrap": "1", "expect": "1",
            "id": server_id(server.consensus().node_id()), "rpc_addr": host, "port": port,
        },
    })
}

/// `GET /v1/agent/self`
///
/// # Errors
/// The answer cannot be written.
pub async fn own(call: Call) -> Result<Answer, HttpError> {
    let api = &call.api;
    let mut stats = Map::new();
    stats.insert("runtime".to_string(), runtime_stats());
    if let Some(client) = api.agent().client_stats() {
        stats.insert("client".to_string(), json!(client));
    }
    if let Some(server) = api.local_server() {
        stats.insert("nomad".to_string(), server_stats(server));
        stats.insert("raft".to_string(), log_stats(server).await);
        stats.insert("serf".to_string(), json!({"members": "1", "failed": "0", "left": "0", "encrypted": "false"}));
    }
    let member = match api.local_server() {
        Some(server) => member(api, server),
        None => json!({
            "Name": "", "Addr": null, "Port": 0, "Tags": null, "Status": "none", "ProtocolMin": 0, "ProtocolMax": 0,
            "ProtocolCur": 0, "DelegateMin": 0, "DelegateMax": 0, "DelegateCur": 0,
        }),
    };
    Answer::json(&json!({"config": api.agent().config(), "member": member, "stats": stats}))
}

fn runtime_stats() -> Value {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).to_string();
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({"kernel.name": std::env::consts::OS, "arch": arch, "cpu_count": cores, "max_procs": cores})
}

fn server_stats(server: &Server) -> Value {
    let leads = server.leadership().borrow().is_leader;
    json!({
        "server": "true", "leader": leads.to_string(), "leader_addr": leader_address(server),
        "bootstrap": "true", "known_regions": "1",
    })
}

async fn log_stats(server: &Server) -> Value {
    let status = server.consensus().status().await;
    let number = |n: Option<u64>| n.unwrap_or(0).to_string();
    let state = if server.leadership().borrow().is_leader { "Leader" } else { "Follower" };
    let members = server.consensus().members();
    let listed: Vec<String> = members
        .iter()
        .map(|m| {
            let kind = if m.voter { "Voter" } else { "Nonvoter" };
            format!("{{Suffrage:{kind} ID:{} Address:{}}}", server_id(m.id), address_of(server, m))
        })
        .collect();
    json!({
        "state": state, "term": status.term.to_string(), "last_log_index": number(status.last_log),
        "commit_index": number(status.committed), "applied_index": number(status.applied),
        "last_snapshot_index": number(status.snapshot), "last_contact": "0", "fsm_pending": "0",
        "num_peers": members.iter().filter(|m| m.voter).count().saturating_sub(1).to_string(),
        "latest_configuration": format!("[{}]", listed.join(" ")), "protocol_version": "3",
    })
}

/// The RPC address of a member; a server alone is not told its own by the log.
pub fn address_of(server: &Server, member: &herdsman_consensus::Member) -> String {
    if member.id == server.consensus().node_id() { server.rpc_advertise() } else { member.address.clone() }
}

/// RPC address of the leader; empty when none is known.
pub fn leader_address(server: &Server) -> String {
    let Some(leader) = server.leadership().borrow().leader else { return String::new() };
    let members = server.consensus().members();
    members.iter().find(|m| m.id == leader).map(|m| address_of(server, m)).unwrap_or_default()
}

/// `GET /v1/agent/members`
///
/// # Errors
/// This agent runs no server.
pub async fn members(call: Call) -> Result<Answer, HttpError> {
    let facts = call.api.agent().facts();
    let member = member(&call.api, call.api.server()?);
    Answer::json(&json!({
        "ServerName": facts.name, "ServerRegion": facts.region, "ServerDC": facts.datacenter, "Members": [member],
    }))
}

/// `PUT /v1/agent/join`: one server is all this version runs; joining itself is no fault, others cannot be joined.
///
/// # Errors
/// No address is named, or this agent runs no server.
pub async fn join(call: Call) -> Result<Answer, HttpError> {
    let server = call.api.local_server().ok_or_else(|| HttpError::new(501, "Invalid method"))?;
    let addresses: Vec<&str> = call.request.params.all("address").filter(|a| !a.is_empty()).collect();
    if addresses.is_empty() {
        return Err(HttpError::bad_request("missing address to join"));
    }
    let facts = call.api.agent().facts();
    let own = [format!("{}:{}", facts.gossip_host, facts.gossip_port), server.rpc_advertise()];
    let others: Vec<&str> = addresses.iter().copied().filter(|a| !own.iter().any(|o| o == a)).collect();
    let error = match others.as_slice() {
        [] => String::new(),
        some => format!("cannot join {}: this version runs clusters of one server", some.join(", ")),
    };
    let joined = addresses.len() - others.len();
    Answer::json(&json!({"num_joined": joined, "error": error, "warning": ""}))
}

/// `PUT /v1/agent/force-leave`
///
/// # Errors
/// No member is named, it is this server, or this agent runs no server.
pub async fn force_leave(call: Call) -> Result<Answer, HttpError> {
    if call.api.local_server().is_none() {
        return Err(HttpError::new(501, "Invalid method"));
    }
    match call.request.params.text("node") {
        "" => Err(HttpError::bad_request("missing node to force leave")),
        name if name == server_name(&call.api) => {
            Err(HttpError::internal(format!("{name} is this server: stop its agent instead")))
        }
        // A member that does not exist has left already.
        _ => Ok(Answer::empty()),
    }
}

/// `GET /v1/agent/servers`
///
/// # Errors
/// This agent runs no node.
pub async fn servers(call: Call) -> Result<Answer, HttpError> {
    needs_node(&call)?;
    let mut servers = call.api.agent().servers();
    servers.sort();
    Answer::json(&servers)
}

/// `PUT /v1/agent/servers`
///
/// # Errors
/// This agent runs no node, or no address is named that can be used.
pub async fn set_servers(call: Call) -> Result<Answer, HttpError> {
    needs_node(&call)?;
    let servers: Vec<String> =
        call.request.params.all("address").filter(|a| !a.is_empty()).map(str::to_string).collect();
    if servers.is_empty() {
        return Err(HttpError::bad_request("missing server address"));
    }
    call.api.agent().set_servers(servers)?;
    Ok(Answer::empty())
}

fn needs_node(call: &Call) -> Result<(), HttpError> {
    if call.api.agent().node_id().is_some() { Ok(()) } else { Err(HttpError::new(501, "Invalid method")) }
}

/// `GET /v1/agent/health`. Source of the failing form: wire-notes section 6.
///
/// # Errors
/// The answer cannot be written.
pub async fn health(call: Call) -> Result<Answer, HttpError> {
    let api = &call.api;
    let types: Vec<&str> = call.request.params.all("type").collect();
    let asked = |kind: &str| types.is_empty() || types.contains(&kind);
    let mut well = true;
    let mut parts = Map::new();
    let mut part = |name: &str, state: Result<(), String>| {
        well &= state.is_ok();
        let message = state.as_ref().err().map_or("ok", String::as_str);
        parts.insert(name.to_string(), json!({"ok": state.is_ok(), "message": message}));
    };
    if asked("server") {
        match api.local_server() {
            Some(server) if server.leadership().borrow().leader.is_some() => part("server", Ok(())),
            Some(_) => part("server", Err("No cluster leader".to_string())),
            None if !types.is_empty() => part("server", Err("server not enabled".to_string())),
            None => {}
        }
    }
    if asked("client") {
        match api.agent().node_id() {
            Some(_) => part("client", api.agent().client_health()),
            None if !types.is_empty() => part("client", Err("client not enabled".to_string())),
            None => {}
        }
    }
    if well {
        return Answer::json(&parts);
    }
    let text = serde_json::to_string(&parts).map_err(|e| HttpError::internal(e.to_string()))?;
    Err(HttpError::internal(text))
}

/// `GET /v1/agent/schedulers`
///
/// # Errors
/// This agent runs no server.
pub async fn schedulers(call: Call) -> Result<Answer, HttpError> {
    let server = server_or_bad(&call)?;
    let paused = server.snapshot().scheduler_config().pause_eval_broker || !server.is_ready();
    let (status, load) = if paused { ("Paused", "Paused") } else { ("Started", "WaitingToDequeue") };
    let number = server.consensus().node_id();
    let workers: Vec<Value> = (0..server.config().schedulers)
        .map(|n| {
            json!({
                "id": format!("{:08x}-0000-0000-0000-{:012x}", n, number & 0xffff_ffff_ffff),
                "enabled_schedulers": SCHEDULERS, "started": started(&call.api), "status": status,
                "workload_status": load,
            })
        })
        .collect();
    Answer::json(&json!({"server_id": server_name(&call.api), "schedulers": workers}))
}

fn started(api: &Api) -> String {
    herdsman_model::time_text(api.metrics().started())
}

/// `GET /v1/agent/schedulers/config`
///
/// # Errors
/// This agent runs no server.
pub async fn scheduler_workers(call: Call) -> Result<Answer, HttpError> {
    let server = server_or_bad(&call)?;
    Answer::json(&json!({
        "server_id": server_name(&call.api), "num_schedulers": server.config().schedulers,
        "enabled_schedulers": SCHEDULERS,
    }))
}

/// `PUT /v1/agent/schedulers/config`: the number of workers is what the configuration says.
///
/// # Errors
/// The request is wrong, or asks for what differs from what runs.
pub async fn set_scheduler_workers(call: Call) -> Result<Answer, HttpError> {
    let server = server_or_bad(&call)?;
    let wanted: Value = call.request.json().map_err(|_| HttpError::bad_request("Invalid request"))?;
    let number = wanted.get("num_schedulers").and_then(Value::as_u64).ok_or_else(bad_request)?;
    let kinds = wanted.get("enabled_schedulers").and_then(Value::as_array).ok_or_else(bad_request)?;
    let same_kinds = SCHEDULERS.iter().all(|s| kinds.iter().any(|k| k == s)) && kinds.len() == SCHEDULERS.len();
    if usize::try_from(number) == Ok(server.config().schedulers) && same_kinds {
        return scheduler_workers(call).await;
    }
    Err(HttpError::new(
        501,
        "schedulers are changed in the configuration: set server.num_schedulers and reload the agent",
    ))
}

fn bad_request() -> HttpError {
    HttpError::bad_request("Invalid request")
}

fn server_or_bad(call: &Call) -> Result<&Server, HttpError> {
    call.api.local_server().ok_or_else(|| HttpError::bad_request("server not enabled"))
}

/// `PUT /v1/agent/reload`
///
/// # Errors
/// The configuration cannot be read.
pub async fn reload(call: Call) -> Result<Answer, HttpError> {
    call.api.agent().reload().map_err(HttpError::internal)?;
    Ok(Answer::empty())
}

/// `GET /v1/agent/host`: facts of the host, only for debugging.
///
/// # Errors
/// Debugging is off.
pub async fn host(call: Call) -> Result<Answer, HttpError> {
    let facts = call.api.agent().facts();
    if !facts.debug {
        return Err(HttpError::new(403, "Permission denied"));
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    Answer::json(&json!({
        "OS": std::env::consts::OS, "Hostname": read("/proc/sys/kernel/hostname"),
        "KernelVersion": read("/proc/sys/kernel/osrelease"), "Uptime": read("/proc/uptime"),
        "Memory": read("/proc/meminfo"), "Version": facts.version,
    }))
}

/// `GET /v1/agent/monitor`: the log from now on.
///
/// # Errors
/// The level does not exist, or the log of another agent is asked for.
pub async fn monitor(call: Call) -> Result<Answer, HttpError> {
    let params = &call.request.params;
    let level = level_of(params.text("log_level"))?;
    let json = params.truth("log_json")?.unwrap_or(false);
    let plain = params.truth("plain")?.unwrap_or(false);
    let named = params.text("server_id");
    let own = [server_name(&call.api), "leader".to_string()];
    if !named.is_empty() && (call.api.local_server().is_none() || !own.iter().any(|o| o == named)) {
        return Err(HttpError::internal(format!("unknown Nomad server {named}")));
    }
    let node = params.text("node_id");
    if !node.is_empty() && call.api.agent().node_id().is_none_or(|own| own.to_string() != node) {
        return Err(HttpError::new(501, format!("the log of node {node} can be read from that node's own agent only")));
    }
    // Lines are indented on a terminal only.
    let lines = call.api.agent().log(level, json).map(|line| line.slice(indent_of(&line)..));
    if plain {
        let pieces = lines.map(Ok::<Bytes, BrokenOff>);
        let mut answer = Answer::stream("text/plain", Box::pin(pieces));
        answer.headers.push(("X-Content-Type-Options", "nosniff".to_string()));
        return Ok(answer);
    }
    let frames = lines.flat_map(|line| {
        let chunks: Vec<Bytes> = line.chunks(MONITOR_CHUNK).map(frame).collect();
        futures::stream::iter(chunks)
    });
    Ok(Answer::stream("application/json", Box::pin(with_heartbeats(Box::pin(frames)))))
}

fn indent_of(line: &[u8]) -> usize {
    line.len() - line.trim_ascii_start().len()
}

fn frame(data: &[u8]) -> Bytes {
    Bytes::from(format!("{{\"Data\":\"{}\",\"FileEvent\":\"log\"}}", BASE64_STANDARD.encode(data)))
}

/// Puts an empty frame in wherever nothing came for a while, so that a client that left is noticed.
fn with_heartbeats(
    frames: futures::stream::BoxStream<'static, Bytes>,
) -> impl futures::Stream<Item = Result<Bytes, BrokenOff>> + Send {
    futures::stream::unfold(frames, |mut frames| async move {
        match tokio::time::timeout(FRAME_HEARTBEAT, frames.next()).await {
            Ok(None) => None,
            Ok(Some(piece)) => Some((Ok(piece), frames)),
            Err(_) => Some((Ok(Bytes::from_static(b"{}")), frames)),
        }
    })
}

fn level_of(word: &str) -> Result<tracing::Level, HttpError> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "" | "info" => tracing::Level::INFO,
        "trace" => tracing::Level::TRACE,
        "debug" => tracing::Level::DEBUG,
        "warn" => tracing::Level::WARN,
        "error" => tracing::Level::ERROR,
        _ => return Err(HttpError::bad_request(format!("Unknown log level: {word}"))),
    })
}

/// `GET /v1/status/leader`
///
/// # Errors
/// This agent runs no server.
pub async fn leader(call: Call) -> Result<Answer, HttpError> {
    Answer::json(&leader_address(call.api.server()?))
}

/// `GET /v1/status/peers`
///
/// # Errors
/// This agent runs no server.
pub async fn peers(call: Call) -> Result<Answer, HttpError> {
    let server = call.api.server()?;
    let peers: Vec<String> = server.consensus().members().iter().map(|m| address_of(server, m)).collect();
    Answer::json(&peers)
}

/// `GET /v1/regions`
///
/// # Errors
/// The answer cannot be written.
pub async fn regions(call: Call) -> Result<Answer, HttpError> {
    Answer::json(&[&call.api.agent().facts().region])
}
