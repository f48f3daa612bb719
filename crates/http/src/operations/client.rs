//! What nodes know: files, logs, statistics, checks, restarts and signals. Every request goes to the node over its session,
//! whether the node is in this process or far away.

use super::{body, optional_body};
use crate::answer::{Answer, BrokenOff, Content};
use crate::error::HttpError;
use crate::pipeline::Call;
use crate::reads::read_id;
use crate::request::Params;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use herdsman_model::{AllocId, Allocation, NodeId};
use herdsman_proto::NodeRequest;
use herdsman_server::BulkStream;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The longest answer of a node that is not streamed, bytes.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// How often a stream of frames without data shows that it lives. Source: wire-notes section 9.
const FRAME_HEARTBEAT: Duration = Duration::from_secs(1);

/// What pages made of a task's files may do: nothing. Source: `goldens/api/135-fs-cat.json`.
const SANDBOX: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

/// The allocation that a text names.
///
/// # Errors
/// The text is no identifier, no allocation has it, or there is no leader.
pub async fn find_alloc(call: &Call, text: &str) -> Result<Arc<Allocation>, HttpError> {
    let id: AllocId = read_id("alloc", text)?;
    let snapshot = call.api.snapshot(call.request.stale()?).await?;
    snapshot.alloc(&id).cloned().ok_or_else(|| HttpError::not_found(format!("Unknown allocation {text:?}")))
}

async fn ask_alloc(call: &Call, make: impl FnOnce(AllocId) -> NodeRequest) -> Result<BulkStream, HttpError> {
    let alloc = find_alloc(call, call.request.part(0)).await?;
    Ok(call.api.server()?.node_request(alloc.node_id, &make(alloc.id)).await?)
}

/// The JSON that a node answers with, as it is.
async fn json_answer(stream: BulkStream) -> Result<Answer, HttpError> {
    Ok(Answer::raw_json(stream.collect(MAX_ANSWER_BYTES).await?))
}

/// An answer that says only that it was done. Source: `goldens/api/164-alloc-signal.json`.
async fn done(stream: BulkStream) -> Result<Answer, HttpError> {
    stream.collect(MAX_ANSWER_BYTES).await?;
    Answer::json(&json!({"Index": 0}))
}

/// `GET /v1/client/allocation/:id/stats`
///
/// # Errors
/// Allocation or task are unknown, or the node cannot be reached.
pub async fn alloc_stats(call: Call) -> Result<Answer, HttpError> {
    let task = call.request.params.text("task").to_string();
    json_answer(ask_alloc(&call, |alloc_id| NodeRequest::AllocStats { alloc_id, task }).await?).await
}

/// `GET /v1/client/allocation/:id/checks`
///
/// # Errors
/// The allocation is unknown, or the node cannot be reached.
pub async fn alloc_checks(call: Call) -> Result<Answer, HttpError> {
    json_answer(ask_alloc(&call, |alloc_id| NodeRequest::AllocChecks { alloc_id }).await?).await
}

/// `GET /v1/client/allocation/:id/gc`
///
/// # Errors
/// The allocation is unknown or not over, or the node cannot be reached.
pub async fn alloc_gc(call: Call) -> Result<Answer, HttpError> {
    done(ask_alloc(&call, |alloc_id| NodeRequest::AllocGc { alloc_id }).await?).await?;
    Ok(Answer::empty())
}

/// `GET /v1/client/allocation/:id/snapshot`: the data of an ephemeral disk is moved between nodes, not through the API.
///
/// # Errors
/// Always.
pub async fn alloc_snapshot(_: Call) -> Result<Answer, HttpError> {
    Err(HttpError::bad_request("allocation data can be read only by the node that takes the allocation over"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RestartBody {
    task_name: String,
    all_tasks: bool,
}

/// `PUT /v1/client/allocation/:id/restart`
///
/// # Errors
/// The allocation or the task is unknown, the task does not run, or the node cannot be reached.
pub async fn restart(call: Call) -> Result<Answer, HttpError> {
    let wanted: RestartBody = optional_body(&call, &["TaskName", "AllTasks"])?;
    if wanted.all_tasks && !wanted.task_name.is_empty() {
        return Err(HttpError::bad_request("Can't specify both TaskName and AllTasks"));
    }
    let make = |alloc_id| NodeRequest::Restart { alloc_id, task: wanted.task_name, all_tasks: wanted.all_tasks };
    done(ask_alloc(&call, make).await?).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SignalBody {
    task: String,
    signal: String,
}

/// `PUT /v1/client/allocation/:id/signal`
///
/// # Errors
/// The allocation, the task or the signal is unknown, or the node cannot be reached.
pub async fn signal(call: Call) -> Result<Answer, HttpError> {
    let wanted: SignalBody = body(&call, &["Task", "Signal"])?;
    let make = |alloc_id| NodeRequest::Signal { alloc_id, task: wanted.task, signal: wanted.signal };
    done(ask_alloc(&call, make).await?).await
}

/// The node that a request is about: the one it names, or this agent's own.
async fn node_of(call: &Call, named: &str) -> Result<NodeId, HttpError> {
    if named.is_empty() {
        return call
            .api
            .agent()
            .node_id()
            .ok_or_else(|| HttpError::bad_request("this agent runs no node: say with node_id which node is meant"));
    }
    let unknown = || HttpError::not_found(format!("Unknown node {named}"));
    let id: NodeId = named.parse().map_err(|_| unknown())?;
    let snapshot = call.api.snapshot(call.request.stale()?).await?;
    snapshot.node(&id).map(|n| n.id).ok_or_else(unknown)
}

async fn ask_node(call: &Call, named: &str, request: &NodeRequest) -> Result<BulkStream, HttpError> {
    let node = node_of(call, named).await?;
    Ok(call.api.server()?.node_request(node, request).await?)
}

/// `GET /v1/client/stats`
///
/// # Errors
/// The node is unknown or cannot be reached.
pub async fn node_stats(call: Call) -> Result<Answer, HttpError> {
    json_answer(ask_node(&call, call.request.params.text("node_id"), &NodeRequest::NodeStats).await?).await
}

/// `GET /v1/client/gc`
///
/// # Errors
/// The node is unknown or cannot be reached.
pub async fn node_gc(call: Call) -> Result<Answer, HttpError> {
    done(ask_node(&call, call.request.params.text("node_id"), &NodeRequest::NodeGc).await?).await?;
    Ok(Answer::empty())
}

/// `GET /v1/client/metadata`
///
/// # Errors
/// The node is unknown or cannot be reached.
pub async fn metadata(call: Call) -> Result<Answer, HttpError> {
    json_answer(ask_node(&call, call.request.params.text("node_id"), &NodeRequest::Metadata).await?).await
}

/// `POST /v1/client/metadata`
///
/// # Errors
/// The body is wrong, or the node is unknown or cannot be reached.
pub async fn apply_metadata(call: Call) -> Result<Answer, HttpError> {
    // Nulls mean something here: they take a key away.
    let value: Value = call.request.json()?;
    let field = |name: &str| {
        let fields = value.as_object()?;
        fields.iter().find(|(k, _)| k.eq_ignore_ascii_case(name)).map(|(_, v)| v.clone())
    };
    let meta: BTreeMap<String, Option<String>> = match field("Meta") {
        None | Some(Value::Null) => return Err(HttpError::bad_request("missing required Meta object")),
        Some(meta) => super::typed(meta, "Meta")?,
    };
    let in_body = field("NodeID").and_then(|v| v.as_str().map(str::to_string)).unwrap_or_default();
    let named = match call.request.params.text("node_id") {
        "" => in_body.as_str(),
        text => text,
    };
    json_answer(ask_node(&call, named, &NodeRequest::MetadataApply { meta }).await?).await
}

/// The path that a request names.
fn path_of(call: &Call) -> Result<String, HttpError> {
    match call.request.params.text("path") {
        "" => Err(HttpError::bad_request("must provide a file name")),
        path => Ok(path.to_string()),
    }
}

/// `GET /v1/client/fs/ls/:id`
///
/// # Errors
/// The allocation or the path is unknown, or the node cannot be reached.
pub async fn list(call: Call) -> Result<Answer, HttpError> {
    let path = match call.request.params.text("path") {
        "" => "/".to_string(),
        path => path.to_string(),
    };
    json_answer(ask_alloc(&call, |alloc_id| NodeRequest::FsList { alloc_id, path }).await?).await
}

/// `GET /v1/client/fs/stat/:id`
///
/// # Errors
/// The allocation or the path is unknown, or the node cannot be reached.
pub async fn stat(call: Call) -> Result<Answer, HttpError> {
    let path = path_of(&call)?;
    json_answer(ask_alloc(&call, |alloc_id| NodeRequest::FsStat { alloc_id, path }).await?).await
}

/// `GET /v1/client/fs/cat/:id`. What is wrong with the file is told in the body of a success, as clients expect.
///
/// # Errors
/// The allocation is unknown, or the node cannot be reached.
pub async fn cat(call: Call) -> Result<Answer, HttpError> {
    let path = path_of(&call)?;
    file(ask_alloc(&call, |alloc_id| NodeRequest::FsRead { alloc_id, path, offset: 0, limit: -1 }).await?).await
}

/// `GET /v1/client/fs/readat/:id`
///
/// # Errors
/// As [`cat`].
pub async fn read_at(call: Call) -> Result<Answer, HttpError> {
    let path = path_of(&call)?;
    let number = |name: &str| -> Result<i64, Answer> {
        let text = call.request.params.text(name);
        text.parse().map_err(|_| {
            Answer::text(200, format!("error parsing {name}: strconv.ParseInt: parsing {text:?}: invalid syntax"))
        })
    };
    let offset = match number("offset") {
        Ok(offset) => offset,
        Err(answer) => return Ok(answer),
    };
    let limit = match call.request.params.get("limit") {
        None | Some("") => -1,
        Some(_) => match number("limit") {
            Ok(limit) => limit,
            Err(answer) => return Ok(answer),
        },
    };
    file(ask_alloc(&call, |alloc_id| NodeRequest::FsRead { alloc_id, path, offset, limit }).await?).await
}

/// The bytes of a file, with the type that its beginning shows.
async fn file(mut stream: BulkStream) -> Result<Answer, HttpError> {
    let first = match stream.next().await {
        None => Bytes::new(),
        Some(Ok(piece)) => piece,
        Some(Err(error)) if error.code == 404 && error.message == "No path to node" => return Err(error.into()),
        Some(Err(error)) => return Ok(Answer::text(200, error.message)),
    };
    let kind = sniff(&first);
    let rest = pieces(stream).map(|piece| piece.map_err(|e| BrokenOff(e.message)));
    let whole = futures::stream::iter([Ok(first)]).chain(rest);
    Ok(Answer { content: Content::Stream(Box::pin(whole)), ..Answer::empty() }
        .with_header("Content-Type", kind)
        .with_header("Content-Security-Policy", SANDBOX)
        .with_header("X-Content-Type-Options", "nosniff")
        .with_header("X-XSS-Protection", "1; mode=block"))
}

/// The type of a file by its first bytes. Pages are shown as text. Source: wire-notes section 2.
fn sniff(first: &[u8]) -> &'static str {
    const MAGIC: [(&[u8], &str); 6] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"%PDF-", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x1f\x8b\x08", "application/x-gzip"),
    ];
    if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| first.starts_with(magic)) {
        return kind;
    }
    let head = first.get(..512).unwrap_or(first);
    let binary = |b: &u8| matches!(b, 0x00..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    if head.iter().any(binary) { "application/octet-stream" } else { "text/plain; charset=utf-8" }
}

/// The parts of a node's answer as a stream.
fn pieces(stream: BulkStream) -> BoxStream<'static, Result<Bytes, herdsman_server::ServerError>> {
    Box::pin(futures::stream::unfold(stream, |mut stream| async move {
        let piece = stream.next().await?;
        Some((piece, stream))
    }))
}

/// Where a stream of a file begins.
fn origin_of(params: &Params) -> Result<(String, i64), HttpError> {
    let origin = match params.text("origin") {
        "" => "start",
        word @ ("start" | "end") => word,
        _ => return Err(HttpError::bad_request("origin must be start or end")),
    };
    let offset = params.number("offset").map_err(|_| {
        HttpError::bad_request(format!("error parsing offset: {:?} is no number", params.text("offset")))
    })?;
    Ok((origin.to_string(), offset.unwrap_or(0)))
}

fn follow_of(params: &Params, default: bool) -> Result<bool, HttpError> {
    match params.truth("follow") {
        Ok(follow) => Ok(follow.unwrap_or(default)),
        Err(_) => Err(HttpError::bad_request(format!(
            "failed to parse follow field to boolean: strconv.ParseBool: parsing {:?}: invalid syntax",
            params.text("follow")
        ))),
    }
}

/// `GET /v1/client/fs/stream/:id`
///
/// # Errors
/// The allocation or the file is unknown, a parameter is wrong, or the node cannot be reached.
pub async fn stream(call: Call) -> Result<Answer, HttpError> {
    let params = &call.request.params;
    let path = path_of(&call)?;
    let follow = follow_of(params, true)?;
    let (origin, offset) = origin_of(params)?;
    let make = |alloc_id| NodeRequest::FsStream { alloc_id, path, origin, offset, limit: -1, follow };
    let frames = ask_alloc(&call, make).await?;
    framed(frames, "text/plain; charset=utf-8").await
}

/// `GET /v1/client/fs/logs/:id`
///
/// # Errors
/// The allocation or the task is unknown, a parameter is wrong, or the node cannot be reached.
pub async fn logs(call: Call) -> Result<Answer, HttpError> {
    let params = &call.request.params;
    let task = match params.text("task") {
        "" => return Err(HttpError::bad_request("must provide task name")),
        task => task.to_string(),
    };
    let follow = follow_of(params, false)?;
    let plain = params.truth("plain")?.unwrap_or(false);
    let kind = match params.text("type") {
        kind @ ("stdout" | "stderr") => kind.to_string(),
        _ => return Err(HttpError::bad_request("must provide log type (stdout/stderr)")),
    };
    let (origin, offset) = origin_of(params)?;
    let alloc = find_alloc(&call, call.request.part(0)).await?;
    if !has_task(&call, &alloc, &task).await? {
        return Err(HttpError::bad_request(format!("unknown task name {task:?}")));
    }
    let request = NodeRequest::Logs { alloc_id: alloc.id, task, kind, origin, offset, follow };
    let frames = call.api.server()?.node_request(alloc.node_id, &request).await?;
    if plain { unframed(frames).await } else { framed(frames, "application/json").await }
}

/// Whether an allocation has a task of this name; also when its job is gone by now.
async fn has_task(call: &Call, alloc: &Allocation, task: &str) -> Result<bool, HttpError> {
    let snapshot = call.api.snapshot(true).await?;
    let Some(job) = snapshot.alloc_job(alloc) else { return Ok(true) };
    let group = job.task_groups.iter().find(|g| *g.name == *alloc.task_group);
    Ok(group.is_none_or(|g| g.tasks.iter().any(|t| *t.name == *task)))
}

/// The first part of an answer: what went wrong shows there. None: nothing came for a while.
async fn first(stream: &mut BulkStream) -> Result<Option<Option<Bytes>>, HttpError> {
    match tokio::time::timeout(FRAME_HEARTBEAT, stream.next()).await {
        Err(_) => Ok(None),
        Ok(None) => Ok(Some(None)),
        Ok(Some(Ok(piece))) => Ok(Some(Some(piece))),
        Ok(Some(Err(error))) => Err(error.into()),
    }
}

/// Frames as the node sends them, with an empty one wherever nothing came for a while.
async fn framed(mut stream: BulkStream, content_type: &str) -> Result<Answer, HttpError> {
    let begun = match first(&mut stream).await? {
        None => Bytes::from_static(b"{}"),
        Some(None) => return Ok(Answer::empty().with_header("Content-Type", content_type)),
        Some(Some(piece)) => piece,
    };
    let rest = futures::stream::unfold(pieces(stream), |mut stream| async move {
        match tokio::time::timeout(FRAME_HEARTBEAT, stream.next()).await {
            Ok(None) => None,
            Ok(Some(piece)) => Some((piece.map_err(|e| BrokenOff(e.message)), stream)),
            Err(_) => Some((Ok(Bytes::from_static(b"{}")), stream)),
        }
    });
    Ok(Answer::stream(content_type, Box::pin(futures::stream::iter([Ok(begun)]).chain(rest))))
}

/// The data of the frames alone.
async fn unframed(mut stream: BulkStream) -> Result<Answer, HttpError> {
    let begun = match first(&mut stream).await? {
        None => Bytes::new(),
        Some(None) => return Ok(Answer::empty().with_header("Content-Type", "text/plain")),
        Some(Some(piece)) => data_of(&piece).map_err(|e| HttpError::internal(e.0))?,
    };
    let rest = pieces(stream).map(|piece| match piece {
        Ok(piece) => data_of(&piece),
        Err(error) => Err(BrokenOff(error.message)),
    });
    let whole = futures::stream::iter([Ok(begun)]).chain(rest);
    // An empty piece would end a chunked body.
    let whole = whole.filter(|piece| futures::future::ready(!matches!(piece, Ok(bytes) if bytes.is_empty())));
    Ok(Answer::stream("text/plain", Box::pin(whole)).with_header("X-Content-Type-Options", "nosniff"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Frame {
    #[serde(rename = "Data")]
    data: String,
}

/// The data in the frames of one part; several may stand back to back.
fn data_of(piece: &[u8]) -> Result<Bytes, BrokenOff> {
    let mut data = Vec::new();
    for frame in serde_json::Deserializer::from_slice(piece).into_iter::<Frame>() {
        let frame = frame.map_err(|e| BrokenOff(format!("a frame of the node cannot be read: {e}")))?;
        let bytes = BASE64_STANDARD
            .decode(frame.data)
            .map_err(|e| BrokenOff(format!("the data of a frame cannot be read: {e}")))?;
        data.extend_from_slice(&bytes);
    }
    Ok(Bytes::from(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_joined() {
        let data = data_of(br#"{"Data":"YQ==","Offset":1}{}{"Data":"Yg=="}"#).unwrap();
        assert_eq!(&data[..], b"ab");
        assert!(data_of(b"{\"Data\":\"%\"}").is_err());
        assert!(data_of(b"nonsense").is_err());
    }

    #[test]
    fn pages_are_shown_as_text() {
        assert_eq!(sniff(b"<!doctype html><script>"), "text/plain; charset=utf-8");
        assert_eq!(sniff(b"\x7fELF\x02\x01\x01\x00"), "application/octet-stream");
        assert_eq!(sniff(b"\x89PNG\r\n\x1a\nx"), "image/png");
        assert_eq!(sniff(b""), "text/plain; charset=utf-8");
    }
}
