//! What is stored and sent, as tagged records. Tags are never reused; see `docs/formats.md`.

use bytes::Bytes;

/// The newest format of log segments and snapshots; each is numbered on its own.
pub(crate) const LOG_FORMAT: u32 = 1;
pub(crate) const SNAPSHOT_FORMAT: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct LogIdRecord {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(uint64, tag = "2")]
    pub node: u64,
    #[prost(uint64, tag = "3")]
    pub index: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct VoteRecord {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(uint64, tag = "2")]
    pub node: u64,
    #[prost(bool, tag = "3")]
    pub committed: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MemberRecord {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub address: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct VotersRecord {
    #[prost(uint64, repeated, tag = "1")]
    pub ids: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MembershipRecord {
    /// More than one while the voters change.
    #[prost(message, repeated, tag = "1")]
    pub configs: Vec<VotersRecord>,
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<MemberRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BatchRecord {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub commands: Vec<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BlankRecord {}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum EntryBody {
    #[prost(message, tag = "2")]
    Blank(BlankRecord),
    #[prost(message, tag = "3")]
    Batch(BatchRecord),
    #[prost(message, tag = "4")]
    Membership(MembershipRecord),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EntryRecord {
    #[prost(message, optional, tag = "1")]
    pub log_id: Option<LogIdRecord>,
    #[prost(oneof = "EntryBody", tags = "2, 3, 4")]
    pub body: Option<EntryBody>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EntriesRecord {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<EntryRecord>,
}

/// The first record of every segment: where the log stood when the segment was begun.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SegmentRecord {
    #[prost(uint32, tag = "1")]
    pub format: u32,
    #[prost(uint64, tag = "2")]
    pub number: u64,
    #[prost(fixed64, tag = "3")]
    pub salt: u64,
    #[prost(message, optional, tag = "4")]
    pub vote: Option<VoteRecord>,
    #[prost(message, optional, tag = "5")]
    pub purged: Option<LogIdRecord>,
    /// The index the next entry has.
    #[prost(uint64, tag = "6")]
    pub next_index: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct TruncateRecord {
    #[prost(uint64, tag = "1")]
    pub since: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct PurgeRecord {
    #[prost(message, optional, tag = "1")]
    pub upto: Option<LogIdRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SnapshotRecord {
    #[prost(uint32, tag = "1")]
    pub format: u32,
    #[prost(message, optional, tag = "2")]
    pub last: Option<LogIdRecord>,
    #[prost(message, optional, tag = "3")]
    pub membership: Option<MembershipRecord>,
    #[prost(message, optional, tag = "4")]
    pub membership_at: Option<LogIdRecord>,
    #[prost(string, tag = "5")]
    pub id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SnapshotData {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct SnapshotEnd {
    /// Bytes of data in all pieces.
    #[prost(uint64, tag = "1")]
    pub length: u64,
}
