//! Answering one request on a bulk channel.

use super::channel::{Channel, Refusal, framed};
use super::{FileStream, LogSource, exec, list, read_range, stat, stats, stream_file, stream_logs};
use crate::alloc::{AllocHandle, Msg};
use crate::gc;
use crate::node::Shared;
use crate::session::dial;
use bytes::Bytes;
use futures::SinkExt;
use herdsman_lifecycle::RestartScope;
use herdsman_model::{AllocId, Name};
use herdsman_proto::{BulkHello, BulkMessage, NodeRequest, Purpose};
use prost::Message;
use serde_json::json;
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Dials a channel, takes its request and answers it.
pub async fn answer(shared: &Arc<Shared>, server: &str, token: Vec<u8>) -> io::Result<()> {
    let mut wire = framed(dial(shared, server, Purpose::NodeBulk).await?);
    wire.send(Bytes::from(BulkHello { token }.encode_to_vec())).await?;
    serve(shared, &mut Channel::new(wire)).await
}

/// Takes the request from a channel and answers it.
pub async fn serve(shared: &Arc<Shared>, channel: &mut Channel) -> io::Result<()> {
    let Some(BulkMessage::Request(bytes)) = channel.next().await? else {
        return channel.end(Err(Refusal::bad("the channel began without a request"))).await;
    };
    let result = match serde_json::from_slice::<NodeRequest>(&bytes) {
        Ok(request) => dispatch(shared, channel, request).await,
        Err(error) => Err(Refusal::bad(format!("the node does not know this request: {error}"))),
    };
    channel.end(result).await
}

/// The runner of an allocation.
fn find(shared: &Shared, id: AllocId) -> Result<AllocHandle, Refusal> {
    shared.handle(id).ok_or_else(|| Refusal::missing(format!("Unknown allocation \"{id}\"")))
}

/// Sends a message that is answered.
pub(super) async fn ask<T>(
    handle: &AllocHandle,
    message: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> Msg,
) -> Result<T, Refusal> {
    let gone = || Refusal::missing(format!("Unknown allocation \"{}\"", handle.info.id));
    let (reply, answer) = oneshot::channel();
    handle.sender.send(message(reply)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

async fn dispatch(shared: &Arc<Shared>, channel: &mut Channel, request: NodeRequest) -> Result<(), Refusal> {
    match request {
        NodeRequest::FsList { alloc_id, path } => {
            let root = find(shared, alloc_id)?.info.dir.root.clone();
            let infos = super::files::blocking(move || list(&root, &path)).await??;
            Ok(channel.json(&infos).await?)
        }
        NodeRequest::FsStat { alloc_id, path } => {
            let root = find(shared, alloc_id)?.info.dir.root.clone();
            let info = super::files::blocking(move || stat(&root, &path)).await??;
            Ok(channel.json(&info).await?)
        }
        NodeRequest::FsRead { alloc_id, path, offset, limit } => {
            let root = find(shared, alloc_id)?.info.dir.root.clone();
            read_range(channel, root, &path, offset, limit).await
        }
        NodeRequest::FsStream { alloc_id, path, origin, offset, limit, follow } => {
            let root = find(shared, alloc_id)?.info.dir.root.clone();
            stream_file(channel, FileStream { root, path, origin, offset, limit, follow }).await
        }
        NodeRequest::Logs { alloc_id, task, kind, origin, offset, follow } => {
            logs(shared, channel, alloc_id, task, kind, (origin, offset, follow)).await
        }
        NodeRequest::AllocStats { alloc_id, task } => {
            let handle = find(shared, alloc_id)?;
            let running = ask(&handle, |reply| Msg::Running { task, reply }).await?;
            let usage = stats::alloc(shared, running).await;
            Ok(channel.json(&usage).await?)
        }
        NodeRequest::NodeStats => {
            let config = shared.config.alloc_dir.clone();
            let usage = stats::node(&shared.world, config).await?;
            Ok(channel.json(&usage).await?)
        }
        NodeRequest::AllocChecks { alloc_id } => {
            Ok(channel.json(&find(shared, alloc_id)?.info.checks.results()).await?)
        }
        NodeRequest::Restart { alloc_id, task, all_tasks } => {
            let scope = match (task.as_str(), all_tasks) {
                ("", true) => RestartScope::All,
                ("", false) => RestartScope::Running,
                (_, true) => return Err(Refusal::bad("a task and all tasks cannot be restarted at once")),
                (task, false) => RestartScope::Task(Name::from(task)),
            };
            ask(&find(shared, alloc_id)?, |reply| Msg::Restart { scope, reply }).await
        }
        NodeRequest::Signal { alloc_id, task, signal } => {
            ask(&find(shared, alloc_id)?, |reply| Msg::Signal { task, signal, reply }).await
        }
        NodeRequest::AllocGc { alloc_id } => {
            let handle = shared.handle(alloc_id).ok_or_else(|| Refusal::failed(crate::alloc::NOT_ELIGIBLE))?;
            gc::collect(&handle).await
        }
        NodeRequest::NodeGc => {
            gc::collect_all(shared).await;
            Ok(())
        }
        NodeRequest::Exec { alloc_id, task, command, tty } => {
            if shared.tuning().disable_remote_exec {
                return Err(Refusal::new(403, "Permission denied"));
            }
            exec::run(channel, &find(shared, alloc_id)?, task, command, tty).await
        }
        NodeRequest::Metadata => Ok(channel.json(&metadata(shared)).await?),
        NodeRequest::MetadataApply { meta } => {
            if let Some(key) = meta.keys().find(|key| key.is_empty()) {
                return Err(Refusal::bad(format!("metadata key {key:?} is empty")));
            }
            shared.set_metadata(meta).await.map_err(Refusal::failed)?;
            Ok(channel.json(&metadata(shared)).await?)
        }
    }
}

async fn logs(
    shared: &Shared,
    channel: &mut Channel,
    alloc_id: AllocId,
    task: String,
    kind: String,
    (origin, offset, follow): (String, i64, bool),
) -> Result<(), Refusal> {
    let handle = find(shared, alloc_id)?;
    if task.is_empty() {
        return Err(Refusal::bad("must provide task name"));
    }
    if !matches!(kind.as_str(), "stdout" | "stderr") {
        return Err(Refusal::bad("must provide log type (stdout/stderr)"));
    }
    if !handle.info.tasks.iter().any(|name| **name == *task) {
        return Err(Refusal::bad(format!("unknown task name {task:?}")));
    }
    let (root, over) = (handle.info.dir.root.clone(), handle.info.terminal.subscribe());
    stream_logs(channel, LogSource { root, task, kind, origin, offset, follow, over }).await
}

fn metadata(shared: &Shared) -> serde_json::Value {
    let (fixed, dynamic) = shared.metadata();
    json!({ "Meta": shared.node().meta, "Dynamic": dynamic, "Static": fixed })
}
