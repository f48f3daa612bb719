//! Bulk channels: one connection per request that a server makes of a node (files, logs, exec, statistics).
//!
//! The server asks for a channel on the control stream ([`crate::session::OpenBulk`]); the node dials, sends
//! [`BulkHello`], then reads one [`NodeRequest`] and answers with [`BulkFrame`]s. For exec the server sends
//! [`BulkFrame`]s too. Either side closes by ending the stream.

use herdsman_model::AllocId;
use prost::Message;
use serde::{Deserialize, Serialize};

/// First frame on a bulk channel, from the node.
#[derive(Clone, PartialEq, Message)]
pub struct BulkHello {
    #[prost(bytes = "vec", tag = "1")]
    pub token: Vec<u8>,
}

/// A frame on a bulk channel.
#[derive(Clone, PartialEq, Message)]
pub struct BulkFrame {
    #[prost(oneof = "BulkMessage", tags = "1, 2, 3, 4")]
    pub message: Option<BulkMessage>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum BulkMessage {
    /// The request, from the server: a JSON [`NodeRequest`].
    #[prost(bytes = "vec", tag = "1")]
    Request(Vec<u8>),
    /// An answer or part of one: JSON for plain answers, raw bytes for files, a JSON stream frame otherwise.
    #[prost(bytes = "vec", tag = "2")]
    Data(Vec<u8>),
    /// The request failed; the last frame.
    #[prost(message, tag = "3")]
    Error(BulkError),
    /// The answer is complete; the last frame.
    #[prost(message, tag = "4")]
    End(BulkEnd),
}

/// Why a node refused a request.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BulkError {
    /// The HTTP status that suits the error.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The answer is complete.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BulkEnd {}

/// What a server asks of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum NodeRequest {
    /// Answer: JSON list of file infos.
    FsList { alloc_id: AllocId, path: String },
    /// Answer: JSON file info.
    FsStat { alloc_id: AllocId, path: String },
    /// Answer: raw bytes. `limit` below 0: to the end.
    FsRead { alloc_id: AllocId, path: String, offset: i64, limit: i64 },
    /// Answer: JSON stream frames (`Offset`, `Data`, `File`, `FileEvent`). `origin`: start or end.
    FsStream { alloc_id: AllocId, path: String, origin: String, offset: i64, limit: i64, follow: bool },
    /// Answer: JSON stream frames. `kind`: stdout or stderr.
    Logs { alloc_id: AllocId, task: String, kind: String, origin: String, offset: i64, follow: bool },
    /// Answer: JSON, as the API shows it. An empty task: all.
    AllocStats { alloc_id: AllocId, task: String },
    /// Answer: JSON, as the API shows it.
    NodeStats,
    /// Answer: JSON map of check results by id.
    AllocChecks { alloc_id: AllocId },
    /// An empty task with `all_tasks`: restart in place from prestart; an empty task without: all running ones.
    Restart { alloc_id: AllocId, task: String, all_tasks: bool },
    /// An empty task: all running ones.
    Signal { alloc_id: AllocId, task: String, signal: String },
    /// Destroys one terminal allocation.
    AllocGc { alloc_id: AllocId },
    /// Destroys all terminal allocations.
    NodeGc,
    /// Both ways: JSON exec frames as on the public websocket.
    Exec { alloc_id: AllocId, task: String, command: Vec<String>, tty: bool },
    /// Answer: the node's static and dynamic metadata.
    Metadata,
    /// Sets (null removes) dynamic metadata; answer as [`NodeRequest::Metadata`].
    MetadataApply { meta: std::collections::BTreeMap<String, Option<String>> },
}
