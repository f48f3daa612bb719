//! What servers send each other: a greeting with the protocol's version, then requests and answers
//! in turn, each a length (u32, little endian) and a tagged message. See `docs/formats.md`.

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};

use crate::config::NodeId;
use crate::convert::{self, BadRecord, TypeConfig};
use crate::record::{EntryRecord, LogIdRecord, SnapshotRecord, VoteRecord};

/// What a connection begins with: the protocol's name and version.
pub(crate) const GREETING: [u8; 8] = *b"HERDLOG\x01";

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AppendCall {
    #[prost(message, optional, tag = "1")]
    pub vote: Option<VoteRecord>,
    #[prost(message, optional, tag = "2")]
    pub before: Option<LogIdRecord>,
    #[prost(message, repeated, tag = "3")]
    pub entries: Vec<EntryRecord>,
    #[prost(message, optional, tag = "4")]
    pub committed: Option<LogIdRecord>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct VoteCall {
    #[prost(message, optional, tag = "1")]
    pub vote: Option<VoteRecord>,
    #[prost(message, optional, tag = "2")]
    pub last: Option<LogIdRecord>,
}

/// `length` bytes of a snapshot file follow.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SnapshotCall {
    #[prost(message, optional, tag = "1")]
    pub vote: Option<VoteRecord>,
    #[prost(message, optional, tag = "2")]
    pub head: Option<SnapshotRecord>,
    #[prost(uint64, tag = "3")]
    pub length: u64,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum CallKind {
    #[prost(message, tag = "1")]
    Append(AppendCall),
    #[prost(message, tag = "2")]
    Vote(VoteCall),
    #[prost(message, tag = "3")]
    Snapshot(SnapshotCall),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Call {
    #[prost(oneof = "CallKind", tags = "1, 2, 3")]
    pub kind: Option<CallKind>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Nothing {}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Matching {
    #[prost(message, optional, tag = "1")]
    pub log_id: Option<LogIdRecord>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct VoteAnswer {
    #[prost(message, optional, tag = "1")]
    pub vote: Option<VoteRecord>,
    #[prost(bool, tag = "2")]
    pub granted: bool,
    #[prost(message, optional, tag = "3")]
    pub last: Option<LogIdRecord>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum AnswerKind {
    /// The other server could not serve the call.
    #[prost(string, tag = "1")]
    Error(String),
    #[prost(message, tag = "2")]
    Success(Nothing),
    #[prost(message, tag = "3")]
    Partial(Matching),
    #[prost(message, tag = "4")]
    Conflict(Nothing),
    #[prost(message, tag = "5")]
    HigherVote(VoteRecord),
    #[prost(message, tag = "6")]
    Voted(VoteAnswer),
    #[prost(message, tag = "7")]
    Installed(VoteRecord),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Answer {
    #[prost(oneof = "AnswerKind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub kind: Option<AnswerKind>,
}

const NO_VOTE: BadRecord = BadRecord("a message has no vote");

pub(crate) fn append_call(request: &AppendEntriesRequest<TypeConfig>) -> CallKind {
    CallKind::Append(AppendCall {
        vote: Some(convert::vote_record(&request.vote)),
        before: request.prev_log_id.as_ref().map(convert::log_id_record),
        entries: request.entries.iter().map(convert::entry_record).collect(),
        committed: request.leader_commit.as_ref().map(convert::log_id_record),
    })
}

pub(crate) fn append_request(call: AppendCall) -> Result<AppendEntriesRequest<TypeConfig>, BadRecord> {
    let request = AppendEntriesRequest {
        vote: convert::vote(call.vote.ok_or(NO_VOTE)?),
        prev_log_id: call.before.map(convert::log_id),
        entries: call.entries.into_iter().map(convert::entry).collect::<Result<_, _>>()?,
        leader_commit: call.committed.map(convert::log_id),
    };
    let first = request.prev_log_id.map_or(0, |before| before.index.saturating_add(1));
    if (first..).zip(&request.entries).any(|(index, entry): (u64, &convert::Entry)| entry.log_id.index != index) {
        return Err(BadRecord("entries do not follow each other"));
    }
    Ok(request)
}

pub(crate) fn append_answer(response: AppendEntriesResponse<NodeId>) -> AnswerKind {
    match response {
        AppendEntriesResponse::Success => AnswerKind::Success(Nothing {}),
        AppendEntriesResponse::PartialSuccess(matching) => {
            AnswerKind::Partial(Matching { log_id: matching.as_ref().map(convert::log_id_record) })
        }
        AppendEntriesResponse::Conflict => AnswerKind::Conflict(Nothing {}),
        AppendEntriesResponse::HigherVote(vote) => AnswerKind::HigherVote(convert::vote_record(&vote)),
    }
}

pub(crate) fn append_response(answer: AnswerKind) -> Result<AppendEntriesResponse<NodeId>, String> {
    match answer {
        AnswerKind::Success(_) => Ok(AppendEntriesResponse::Success),
        AnswerKind::Partial(matching) => {
            Ok(AppendEntriesResponse::PartialSuccess(matching.log_id.map(convert::log_id)))
        }
        AnswerKind::Conflict(_) => Ok(AppendEntriesResponse::Conflict),
        AnswerKind::HigherVote(vote) => Ok(AppendEntriesResponse::HigherVote(convert::vote(vote))),
        other => Err(unexpected(other)),
    }
}

pub(crate) fn vote_call(request: &VoteRequest<NodeId>) -> CallKind {
    CallKind::Vote(VoteCall {
        vote: Some(convert::vote_record(&request.vote)),
        last: request.last_log_id.as_ref().map(convert::log_id_record),
    })
}

pub(crate) fn vote_request(call: VoteCall) -> Result<VoteRequest<NodeId>, BadRecord> {
    Ok(VoteRequest::new(convert::vote(call.vote.ok_or(NO_VOTE)?), call.last.map(convert::log_id)))
}

pub(crate) fn vote_answer(response: &VoteResponse<NodeId>) -> AnswerKind {
    AnswerKind::Voted(VoteAnswer {
        vote: Some(convert::vote_record(&response.vote)),
        granted: response.vote_granted,
        last: response.last_log_id.as_ref().map(convert::log_id_record),
    })
}

pub(crate) fn vote_response(answer: AnswerKind) -> Result<VoteResponse<NodeId>, String> {
    match answer {
        AnswerKind::Voted(VoteAnswer { vote: Some(vote), granted, last }) => Ok(VoteResponse {
            vote: convert::vote(vote),
            vote_granted: granted,
            last_log_id: last.map(convert::log_id),
        }),
        other => Err(unexpected(other)),
    }
}

/// What an answer says that does not belong to the call.
pub(crate) fn unexpected(answer: AnswerKind) -> String {
    match answer {
        AnswerKind::Error(text) => text,
        other => format!("an answer that does not belong to the call: {other:?}"),
    }
}
