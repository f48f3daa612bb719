//! Between openraft's types and the records.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use openraft::{BasicNode, CommittedLeaderId, EntryPayload, StoredMembership};

use crate::config::NodeId;
use crate::record::{
    BatchRecord, BlankRecord, EntryBody, EntryRecord, LogIdRecord, MemberRecord, MembershipRecord, SnapshotRecord,
    VoteRecord, VotersRecord,
};
use crate::snapshot::SnapshotFile;

/// The commands of one log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch(pub Vec<Bytes>);

openraft::declare_raft_types!(
    /// How openraft is used here.
    pub(crate) TypeConfig:
        D = Batch,
        R = Vec<Bytes>,
        NodeId = NodeId,
        Node = BasicNode,
        SnapshotData = SnapshotFile,
);

pub(crate) type Raft = openraft::Raft<TypeConfig>;
pub(crate) type Entry = openraft::Entry<TypeConfig>;
pub(crate) type LogId = openraft::LogId<NodeId>;
pub(crate) type Vote = openraft::Vote<NodeId>;
pub(crate) type Membership = openraft::Membership<NodeId, BasicNode>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<NodeId, BasicNode>;
pub(crate) type StorageError = openraft::StorageError<NodeId>;

/// A record that parses but makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadRecord(pub &'static str);

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadRecord {}

pub(crate) fn log_id(record: LogIdRecord) -> LogId {
    LogId::new(CommittedLeaderId::new(record.term, record.node), record.index)
}

pub(crate) fn log_id_record(id: &LogId) -> LogIdRecord {
    LogIdRecord { term: id.leader_id.term, node: id.leader_id.node_id, index: id.index }
}

pub(crate) fn vote(record: VoteRecord) -> Vote {
    let mut vote = Vote::new(record.term, record.node);
    vote.committed = record.committed;
    vote
}

pub(crate) fn vote_record(vote: &Vote) -> VoteRecord {
    VoteRecord { term: vote.leader_id.term, node: vote.leader_id.node_id, committed: vote.committed }
}

pub(crate) fn membership(record: MembershipRecord) -> Result<Membership, BadRecord> {
    let nodes: BTreeMap<NodeId, BasicNode> =
        record.members.into_iter().map(|member| (member.id, BasicNode::new(member.address))).collect();
    let configs: Vec<BTreeSet<NodeId>> =
        record.configs.into_iter().map(|config| config.ids.into_iter().collect()).collect();
    if configs.iter().flatten().any(|voter| !nodes.contains_key(voter)) {
        return Err(BadRecord("a voter has no address"));
    }
    Ok(Membership::new(configs, nodes))
}

pub(crate) fn membership_record(membership: &Membership) -> MembershipRecord {
    MembershipRecord {
        configs: membership
            .get_joint_config()
            .iter()
            .map(|config| VotersRecord { ids: config.iter().copied().collect() })
            .collect(),
        members: membership.nodes().map(|(&id, node)| MemberRecord { id, address: node.addr.clone() }).collect(),
    }
}

pub(crate) fn entry(record: EntryRecord) -> Result<Entry, BadRecord> {
    let log_id = log_id(record.log_id.ok_or(BadRecord("an entry has no id"))?);
    let payload = match record.body.ok_or(BadRecord("an entry has no body"))? {
        EntryBody::Blank(_) => EntryPayload::Blank,
        EntryBody::Batch(batch) => EntryPayload::Normal(Batch(batch.commands)),
        EntryBody::Membership(record) => EntryPayload::Membership(membership(record)?),
    };
    Ok(Entry { log_id, payload })
}

pub(crate) fn entry_record(entry: &Entry) -> EntryRecord {
    let body = match &entry.payload {
        EntryPayload::Blank => EntryBody::Blank(BlankRecord {}),
        EntryPayload::Normal(batch) => EntryBody::Batch(BatchRecord { commands: batch.0.clone() }),
        EntryPayload::Membership(membership) => EntryBody::Membership(membership_record(membership)),
    };
    EntryRecord { log_id: Some(log_id_record(&entry.log_id)), body: Some(body) }
}

/// About how much memory an entry takes.
pub(crate) fn entry_size(entry: &Entry) -> usize {
    const FIXED: usize = 64;
    match &entry.payload {
        EntryPayload::Normal(batch) => batch.0.iter().map(|command| command.len() + 32).sum::<usize>() + FIXED,
        EntryPayload::Blank | EntryPayload::Membership(_) => FIXED,
    }
}

pub(crate) fn snapshot_meta(record: SnapshotRecord) -> Result<SnapshotMeta, BadRecord> {
    Ok(SnapshotMeta {
        last_log_id: record.last.map(log_id),
        last_membership: StoredMembership::new(
            record.membership_at.map(log_id),
            membership(record.membership.unwrap_or_default())?,
        ),
        snapshot_id: record.id,
    })
}

pub(crate) fn snapshot_record(meta: &SnapshotMeta) -> SnapshotRecord {
    SnapshotRecord {
        format: crate::record::SNAPSHOT_FORMAT,
        last: meta.last_log_id.as_ref().map(log_id_record),
        membership: Some(membership_record(meta.last_membership.membership())),
        membership_at: meta.last_membership.log_id().as_ref().map(log_id_record),
        id: meta.snapshot_id.clone(),
    }
}
