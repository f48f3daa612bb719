//! Stored form of commands and of their results: a tagged envelope round a JSON body by field names.

use crate::command::{Body, Command};
use herdsman_model::{EvalId, NodeId};
use prost::Message;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the envelope and of the bodies this build writes. A newer one is refused, not guessed at.
pub const COMMAND_VERSION: u32 = 1;

/// The largest command, bytes of its envelope.
pub const MAX_COMMAND_BYTES: usize = 64 * 1024 * 1024;

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(int64, tag = "3")]
    now: i64,
    #[prost(bytes = "vec", tag = "4")]
    body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ResultEnvelope {
    #[prost(uint64, tag = "1")]
    index: u64,
    /// 0: done.
    #[prost(uint32, tag = "2")]
    code: u32,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(bytes = "vec", tag = "4")]
    reply: Vec<u8>,
}

/// Why stored bytes are no command this build can apply.
#[derive(Debug, thiserror::Error)]
pub enum BadCommand {
    #[error("command of {0} bytes is larger than the {MAX_COMMAND_BYTES} allowed")]
    TooLarge(usize),
    #[error("command envelope: {0}")]
    Envelope(#[from] prost::DecodeError),
    #[error("command has format version {0}; this build knows {COMMAND_VERSION} - upgrade this server")]
    Version(u32),
    #[error("command kind {0} is not known to this build - upgrade this server")]
    Kind(u32),
    #[error("body of command {kind}: {error}")]
    Body { kind: u32, error: serde_json::Error },
}

impl Command {
    /// The stored form.
    ///
    /// # Errors
    /// The command is too large.
    pub fn encode(&self) -> Result<Vec<u8>, BadCommand> {
        let kind = self.body.kind();
        let body = self.body.to_json().map_err(|error| BadCommand::Body { kind, error })?;
        let envelope = Envelope { version: COMMAND_VERSION, kind, now: self.now, body };
        let bytes = envelope.encode_to_vec();
        if bytes.len() > MAX_COMMAND_BYTES {
            return Err(BadCommand::TooLarge(bytes.len()));
        }
        Ok(bytes)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// The bytes are no envelope, of a newer version, of an unknown kind, or hold a body that does not fit its kind.
    pub fn decode(bytes: &[u8]) -> Result<Command, BadCommand> {
        if bytes.len() > MAX_COMMAND_BYTES {
            return Err(BadCommand::TooLarge(bytes.len()));
        }
        let envelope = Envelope::decode(bytes)?;
        if envelope.version != COMMAND_VERSION {
            return Err(BadCommand::Version(envelope.version));
        }
        match Body::from_json(envelope.kind, &envelope.body) {
            None => Err(BadCommand::Kind(envelope.kind)),
            Some(Ok(body)) => Ok(Command { now: envelope.now, body }),
            Some(Err(error)) => Err(BadCommand::Body { kind: envelope.kind, error }),
        }
    }
}

/// What a command that was carried out tells its proposer. Fields that do not concern a command stay empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// The evaluation made, if one.
    pub eval_id: Option<EvalId>,
    /// The evaluations made, if several.
    pub eval_ids: Vec<EvalId>,
    pub job_id: String,
    pub job_create_index: u64,
    pub job_modify_index: u64,
    pub job_version: u64,
    /// The registered job was the one already there.
    pub unchanged: bool,
    /// A compare-and-set took place, or a launch was made.
    pub updated: bool,
    pub node_modify_index: u64,
    pub deployment_modify_index: u64,
    pub reverted_to: Option<u64>,
    /// Nodes that did not take their part of a plan, and why.
    pub rejected: BTreeMap<NodeId, String>,
    /// Rows collected.
    pub collected: u64,
}

/// Why a command was not carried out; the tables are as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status that suits it.
    pub code: u16,
    /// What clients match.
    pub message: String,
}

impl Refusal {
    /// A refusal with this status and text.
    pub fn new(code: u16, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

/// A command's result as its proposer reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Index of the command.
    pub index: u64,
    pub result: Result<Reply, Refusal>,
}

impl Answer {
    /// The form that goes back through the log.
    pub fn encode(&self) -> Vec<u8> {
        let envelope = match &self.result {
            Ok(reply) => ResultEnvelope {
                index: self.index,
                code: 0,
                message: String::new(),
                reply: serde_json::to_vec(reply).unwrap_or_default(),
            },
            Err(refusal) => ResultEnvelope {
                index: self.index,
                code: u32::from(refusal.code.max(1)),
                message: refusal.message.clone(),
                reply: Vec::new(),
            },
        };
        envelope.encode_to_vec()
    }

    /// Reads that form.
    ///
    /// # Errors
    /// The bytes are no result.
    pub fn decode(bytes: &[u8]) -> Result<Answer, BadCommand> {
        let envelope = ResultEnvelope::decode(bytes)?;
        let result = if envelope.code == 0 {
            Ok(serde_json::from_slice(&envelope.reply).map_err(|error| BadCommand::Body { kind: 0, error })?)
        } else {
            let code = u16::try_from(envelope.code).unwrap_or(500);
            Err(Refusal { code, message: envelope.message })
        };
        Ok(Answer { index: envelope.index, result })
    }
}
