//! What opening takes, and what can go wrong.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

/// The number of a server in the log's membership; chosen once and never reused.
pub type NodeId = u64;

/// The largest command.
pub const MAX_COMMAND_BYTES: usize = 8 * 1024 * 1024;
/// The most commands in one log entry.
pub const MAX_GROUP_COMMANDS: usize = 1024;
/// An entry takes no further command beyond this many bytes; one command alone may be larger.
pub const MAX_GROUP_BYTES: usize = 1024 * 1024;
/// Proposals that wait for their turn; beyond it a proposer waits before it is queued.
pub const MAX_QUEUED_PROPOSALS: usize = 4096;

/// How to open the log.
#[derive(Clone, Debug)]
pub struct Config {
    /// This server's number.
    pub node_id: NodeId,
    /// Where log and snapshots are; made when missing.
    pub dir: PathBuf,
    /// How other servers reach this one (`host:port`).
    pub address: String,
    /// Where to take other servers' connections; none for a server alone.
    pub listen: Option<SocketAddr>,
    /// The voters of a new cluster, by number, with their addresses. Acts only when the log is
    /// empty; none for a server that others will add to their cluster.
    pub bootstrap: Option<BTreeMap<NodeId, String>>,
    /// A snapshot is taken after this many applied log entries.
    pub snapshot_entries: u64,
    /// A snapshot is taken after this many bytes of applied commands.
    pub snapshot_bytes: u64,
    /// Applied entries kept in the log behind a snapshot, for servers that are a little late.
    pub keep_entries: u64,
    /// Size of a log segment in bytes.
    pub segment_bytes: u64,
    /// How often a leader tells the others that it lives, in milliseconds.
    pub heartbeat_ms: u64,
    /// A server that hears from no leader for a time between this and twice this, in milliseconds,
    /// stands for election. Must be above `heartbeat_ms`.
    pub election_ms: u64,
    /// How long a proposal may take before its proposer is told that its outcome is unknown.
    pub propose_timeout: Duration,
}

impl Config {
    /// A server on its own: the only voter of its cluster, listening to nobody.
    #[must_use]
    pub fn single(node_id: NodeId, dir: impl Into<PathBuf>) -> Config {
        let address = "127.0.0.1:0".to_owned();
        Config {
            node_id,
            dir: dir.into(),
            bootstrap: Some(BTreeMap::from([(node_id, address.clone())])),
            address,
            listen: None,
            snapshot_entries: 8192,
            snapshot_bytes: 64 * 1024 * 1024,
            keep_entries: 1024,
            segment_bytes: 8 * 1024 * 1024,
            heartbeat_ms: 250,
            election_ms: 1000,
            propose_timeout: Duration::from_secs(30),
        }
    }
}

/// A command that has been made durable and applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Index of the log entry that carried it; several commands can share one.
    pub log_index: u64,
    /// What the machine answered.
    pub result: Bytes,
}

/// Why the log was not opened. Nothing was changed unless said.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting is out of range.
    #[error("consensus setting {setting}: {reason}")]
    Config {
        /// The name of the setting.
        setting: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// Another process has the directory open.
    #[error("{dir} is in use by another process; stop it or choose another data directory")]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// Stored bytes are not what was written.
    #[error(
        "{file} is damaged at byte {offset}: {reason}; restore the data directory from a backup, \
         or on a cluster of several servers empty it and let this server join again"
    )]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// Stored by a version of this program that this one does not understand.
    #[error("{file} has format {found}, this version reads up to {supported}; use the newer version that wrote it")]
    Format {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that can be read.
        supported: u32,
    },
    /// The file system or the network refused.
    #[error("{doing}: {error}")]
    Io {
        /// What was tried.
        doing: String,
        /// How it failed.
        error: std::io::Error,
    },
    /// The consensus core did not start.
    #[error("start consensus: {0}")]
    Start(String),
}

impl OpenError {
    pub(crate) fn io(doing: impl Into<String>, error: std::io::Error) -> OpenError {
        OpenError::Io { doing: doing.into(), error }
    }
}

/// Why a proposal has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This server does not lead; the command was not applied. Propose to the leader.
    #[error("this server is not the leader{}", leader_text(.leader, .address))]
    NotLeader {
        /// The leader, when known.
        leader: Option<NodeId>,
        /// Its address, when known.
        address: Option<String>,
    },
    /// The command is larger than the log takes; it was not proposed.
    #[error("a command of {size} bytes is larger than the {limit} allowed")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// No result in time. The command may yet be applied, or not.
    #[error("no result within {} ms; the command may still be applied", .after.as_millis())]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// The disk has no room; the command was not proposed. Later proposals may succeed.
    #[error("the log cannot take more: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// Writing failed and this server has stopped taking commands. Whether the command survives is
    /// known only after a restart.
    #[error("the log has failed: {reason}")]
    Failed {
        /// Why.
        reason: String,
    },
    /// The log is being closed; the command may have been applied if it was already in flight.
    #[error("the log is shutting down")]
    Shutdown,
}

fn leader_text(leader: &Option<NodeId>, address: &Option<String>) -> String {
    match (leader, address) {
        (Some(id), Some(address)) => format!("; the leader is server {id} at {address}"),
        (Some(id), None) => format!("; the leader is server {id}"),
        _ => "; no leader is known".to_owned(),
    }
}

/// Why a read point could not be confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// This server does not lead.
    #[error("this server is not the leader{}", leader_text(.leader, .address))]
    NotLeader {
        /// The leader, when known.
        leader: Option<NodeId>,
        /// Its address, when known.
        address: Option<String>,
    },
    /// Too few servers answered.
    #[error("no majority of servers confirms this leader: {0}")]
    NoQuorum(String),
    /// The log has failed or is closed.
    #[error("the log has stopped: {0}")]
    Stopped(String),
}

/// Why a snapshot was not taken. The one before is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Writing failed.
    #[error("write snapshot: {0}")]
    Write(String),
    /// The log is being closed.
    #[error("the log is shutting down")]
    Shutdown,
}

/// Why the membership was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// This server does not lead.
    #[error("this server is not the leader{}", leader_text(.leader, .address))]
    NotLeader {
        /// The leader, when known.
        leader: Option<NodeId>,
        /// Its address, when known.
        address: Option<String>,
    },
    /// The change is not possible now, or not at all.
    #[error("change the members: {0}")]
    Refused(String),
    /// The log has failed or is closed.
    #[error("the log has stopped: {0}")]
    Stopped(String),
}
