//! The replicated log behind one small interface: commands go in, each server's [`Machine`] gets
//! them in the same order, and the proposer gets the result once the command is durable on a
//! majority and applied.
//!
//! Proposals are grouped: one log entry carries every command that arrived while the one before was
//! being synced, so that many writers share a data sync and a lone one pays for exactly one.
//!
//! Tasks and channels: [`Consensus::open`] starts a group committer (a bounded queue of proposals),
//! a snapshot writer (a bounded queue of requests), a leadership watcher (a watch channel), when it
//! listens one task per connection of another server, and openraft's own core, state machine worker
//! and replication tasks. All end with [`Consensus::shutdown`] or when the last handle is dropped.
//!
//! Architecture invariant: this crate never looks into a command.
//!
//! Architecture invariant: a result is given only after the command is durable; an entry that was
//! acknowledged survives every crash, and one that was never proposed never appears.
//!
//! Architecture invariant: after a failed sync nothing more is written; what the log holds is then
//! only known by opening it again.
//!
//! Architecture invariant: damage in the middle of the log or a snapshot that the log needs refuses
//! the start; only what follows the last complete record of the newest segment is cut off.

#![expect(clippy::result_large_err, reason = "openraft's traits return its own large errors")]

mod api;
mod convert;
mod frame;
mod group;
mod log;
mod log_open;
#[cfg(test)]
mod log_tests;
mod machine;
mod record;
mod snapshot;
mod snapshot_task;
mod store;
mod transport;
mod wire;

pub use api::{Consensus, Leadership, Member, Status};
pub use config::{Applied, Config, MembershipError, NodeId, OpenError, ProposeError, ReadError, SnapshotError};
pub use machine::{Machine, SnapshotWriter};

mod config;

/// Limits of this crate, by name.
pub mod limits {
    pub use crate::config::{MAX_COMMAND_BYTES, MAX_GROUP_BYTES, MAX_GROUP_COMMANDS, MAX_QUEUED_PROPOSALS};
    pub use crate::log::{CACHE_BYTES, FIRST_SEGMENT_BYTES, MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES};
    pub use crate::snapshot::MAX_SNAPSHOT_BYTES;
    pub use crate::transport::{MAX_CONNECTIONS, MAX_MESSAGE_BYTES};
}
