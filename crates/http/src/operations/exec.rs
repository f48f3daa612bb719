//! Commands in a running task over a websocket. Source: wire-notes section 9.

use super::client::find_alloc;
use crate::error::HttpError;
use crate::pipeline::Call;
use crate::socket::{Socket, close_message};
use futures::stream::SplitStream;
use futures::{SinkExt, StreamExt};
use herdsman_model::{Allocation, ClientStatus, Job};
use herdsman_proto::NodeRequest;
use herdsman_server::{BulkReceiver, BulkSender};
use herdsman_state::JobKey;
use std::sync::Arc;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

/// How long a client may take to send its token after the upgrade.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);

/// `GET /v1/client/allocation/:id/exec`
pub async fn exec(call: Call, mut socket: Socket) {
    let asked = async {
        handshake(&call, &mut socket).await?;
        let alloc = find_alloc(&call, call.request.part(0)).await?;
        let params = &call.request.params;
        let command: Vec<String> = serde_json::from_str(params.text("command")).map_err(|e| {
            let reason =
                if params.text("command").is_empty() { "unexpected end of JSON input".into() } else { e.to_string() };
            HttpError::internal(format!("failed to marshal command into json: {reason}"))
        })?;
        if command.is_empty() {
            return Err(HttpError::bad_request("command is not present"));
        }
        let task = params.text("task").to_string();
        if task.is_empty() {
            return Err(HttpError::bad_request("task name is not present"));
        }
        open(&call, &alloc, task, command).await
    }
    .await;
    run(socket, asked).await;
}

/// `GET /v1/job/:id/action`: a command that the job names, in one of its allocations.
pub async fn action(call: Call, mut socket: Socket) {
    let asked = async {
        handshake(&call, &mut socket).await?;
        let params = &call.request.params;
        let (task, name) = (params.text("task").to_string(), params.text("action").to_string());
        if task.is_empty() {
            return Err(HttpError::bad_request("task name is not present"));
        }
        if name.is_empty() {
            return Err(HttpError::bad_request("action name is not present"));
        }
        let (alloc, job) = action_alloc(&call).await?;
        let groups = job.task_groups.iter().filter(|g| *g.name == *alloc.task_group);
        let mut actions = groups.flat_map(|g| &g.tasks).filter(|t| *t.name == *task).flat_map(|t| &t.actions);
        let Some(found) = actions.find(|a| *a.name == *name) else {
            return Err(HttpError::not_found(format!("action {name} not found in task {task}")));
        };
        let mut command = vec![found.command.to_string()];
        command.extend(found.args.iter().map(ToString::to_string));
        open(&call, &alloc, task, command).await
    }
    .await;
    run(socket, asked).await;
}

/// The allocation an action runs in: the one that is named, or the first running one of the group.
async fn action_alloc(call: &Call) -> Result<(Arc<Allocation>, Arc<Job>), HttpError> {
    let (params, job_id) = (&call.request.params, call.request.part(0));
    let snapshot = call.api.snapshot(call.request.stale()?).await?;
    let alloc = match params.text("allocID") {
        "" => {
            let group = params.text("group");
            let key = JobKey::new(call.request.namespace(), job_id);
            let mut running = snapshot.allocs_by_job(&key).filter(|a| a.client_status == ClientStatus::Running);
            running
                .find(|a| group.is_empty() || *a.task_group == *group)
                .cloned()
                .ok_or_else(|| HttpError::not_found(format!("no allocation of job {job_id:?} is running")))?
        }
        id => find_alloc(call, id).await?,
    };
    let job =
        snapshot.alloc_job(&alloc).cloned().ok_or_else(|| HttpError::internal(format!("Unknown job {job_id:?}")))?;
    Ok((alloc, job))
}

/// The first frame may carry the token.
async fn handshake(call: &Call, socket: &mut Socket) -> Result<(), HttpError> {
    if call.request.params.text("ws_handshake") != "true" {
        return Ok(());
    }
    let bad = |reason: String| HttpError::bad_request(format!("failed to decode ws handshake: {reason}"));
    let frame = match tokio::time::timeout(HANDSHAKE_LIMIT, socket.next()).await {
        Ok(Some(Ok(Message::Text(text)))) => text,
        Ok(Some(Ok(_))) => return Err(bad("the first frame must be text".into())),
        Ok(Some(Err(error))) => return Err(bad(error.to_string())),
        Ok(None) => return Err(bad("the socket was closed".into())),
        Err(_) => return Err(bad(format!("nothing came within {HANDSHAKE_LIMIT:?}"))),
    };
    let value: serde_json::Value = serde_json::from_str(&frame).map_err(|e| bad(e.to_string()))?;
    match value.get("version").and_then(serde_json::Value::as_i64) {
        Some(1) => Ok(()),
        other => Err(HttpError::bad_request(format!("unexpected ws handshake version: {}", other.unwrap_or(0)))),
    }
}

async fn open(
    call: &Call,
    alloc: &Allocation,
    task: String,
    command: Vec<String>,
) -> Result<(BulkSender, BulkReceiver), HttpError> {
    let tty = match call.request.params.get("tty") {
        None | Some("") => false,
        Some(text) => call.request.params.truth("tty").ok().flatten().ok_or_else(|| {
            HttpError::internal(format!(
                "tty value is not a boolean: strconv.ParseBool: parsing {text:?}: invalid syntax"
            ))
        })?,
    };
    let request = NodeRequest::Exec { alloc_id: alloc.id, task, command, tty };
    Ok(call.api.server()?.node_request(alloc.node_id, &request).await?.split())
}

/// Carries frames both ways until the command has ended or the client left.
async fn run(mut socket: Socket, asked: Result<(BulkSender, BulkReceiver), HttpError>) {
    let (to_node, mut from_node) = match asked {
        Ok(channel) => channel,
        Err(error) => {
            // The client may be gone already.
            let _ = socket.send(close_message(&error)).await;
            return;
        }
    };
    let (mut to_client, from_client) = socket.split();
    let input = tokio::spawn(feed(from_client, to_node));
    let end = loop {
        let piece = match from_node.next().await {
            None => break Message::Close(None),
            Some(Err(error)) => break close_message(&error.into()),
            Some(Ok(piece)) => piece,
        };
        let Ok(text) = String::from_utf8(piece.to_vec()) else {
            break close_message(&HttpError::internal("the node sent a frame that is no text"));
        };
        if to_client.send(Message::text(text)).await.is_err() {
            break Message::Close(None);
        }
    };
    // The client may be gone already; the channel to the node ends with the feeding task.
    let _ = to_client.send(end).await;
    input.abort();
}

/// Gives the client's frames to the node, until the client leaves.
async fn feed(mut from_client: SplitStream<Socket>, mut to_node: BulkSender) {
    while let Some(Ok(message)) = from_client.next().await {
        let data = match message {
            Message::Text(text) => text.as_bytes().to_vec(),
            Message::Binary(data) => data.to_vec(),
            Message::Close(_) => break,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        if to_node.send(data).await.is_err() {
            return;
        }
    }
    // If the node is gone too, there is nobody to tell.
    let _ = to_node.end().await;
}
