//! Puts proposals together: one log entry carries every command that arrived while the one before
//! was being synced.

use std::sync::Arc;

use bytes::Bytes;
use openraft::error::{ClientWriteError, RaftError};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{Applied, MAX_GROUP_BYTES, MAX_GROUP_COMMANDS, ProposeError};
use crate::convert::{Batch, Raft};
use crate::log::Shared;
use crate::store::LogStore;

/// What the record of an entry takes beside its commands, at most, for each command and in all.
const OVERHEAD_PER_COMMAND: usize = 8;
const OVERHEAD: usize = 256;

/// A command on its way.
pub(crate) struct Proposal {
    pub command: Bytes,
    pub result: oneshot::Sender<Result<Applied, ProposeError>>,
}

impl Proposal {
    fn answer(self, result: Result<Applied, ProposeError>) {
        if self.result.send(result).is_err() {
            tracing::debug!("the proposer has stopped waiting");
        }
    }
}

pub(crate) struct Group {
    pub raft: Raft,
    pub log: LogStore,
    pub shared: Arc<Shared>,
    pub proposals: mpsc::Receiver<Proposal>,
    pub stop: watch::Receiver<bool>,
}

impl Group {
    /// Runs until `stop` or until nobody can propose any more.
    pub async fn run(mut self) {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => {}
            () = self.propose_all() => {}
        }
        self.proposals.close();
        while let Some(proposal) = self.proposals.recv().await {
            proposal.answer(Err(ProposeError::Shutdown));
        }
    }

    async fn propose_all(&mut self) {
        let mut carried: Option<Proposal> = None;
        let mut crowded = false;
        loop {
            let first = match carried.take() {
                Some(first) => first,
                None => match self.proposals.recv().await {
                    Some(first) => first,
                    None => return,
                },
            };
            if crowded {
                // Those that were just answered propose again in a moment: let them get in.
                tokio::task::yield_now().await;
            }
            let group = self.collect(first, &mut carried);
            crowded = group.len() > 1;
            self.propose(group).await;
            self.log.prepare().await;
        }
    }

    fn collect(&mut self, first: Proposal, carried: &mut Option<Proposal>) -> Vec<Proposal> {
        let mut bytes = first.command.len();
        let mut group = vec![first];
        while group.len() < MAX_GROUP_COMMANDS
            && let Ok(next) = self.proposals.try_recv()
        {
            bytes += next.command.len();
            if bytes > MAX_GROUP_BYTES {
                *carried = Some(next);
                break;
            }
            group.push(next);
        }
        group
    }

    async fn propose(&self, group: Vec<Proposal>) {
        let commands: Vec<Bytes> = group.iter().map(|proposal| proposal.command.clone()).collect();
        let bytes = commands.iter().map(|command| command.len() + OVERHEAD_PER_COMMAND).sum::<usize>() + OVERHEAD;
        let outcome = match self.log.reserve(bytes).await {
            Ok(()) => self.write(commands).await,
            Err(error) => Err(match self.failure() {
                Some(reason) => ProposeError::Failed { reason },
                None => ProposeError::Refused { reason: error.to_string() },
            }),
        };
        match outcome {
            Ok((log_index, results)) => {
                for (proposal, result) in group.into_iter().zip(results) {
                    proposal.answer(Ok(Applied { log_index, result }));
                }
            }
            Err(error) => {
                for proposal in group {
                    proposal.answer(Err(error.clone()));
                }
            }
        }
    }

    fn failure(&self) -> Option<String> {
        self.shared.failure.borrow().as_ref().map(ToString::to_string)
    }

    async fn write(&self, commands: Vec<Bytes>) -> Result<(u64, Vec<Bytes>), ProposeError> {
        match self.raft.client_write(Batch(commands)).await {
            Ok(response) => Ok((response.log_id.index, response.data)),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                let address = forward.leader_node.map(|node| node.addr);
                Err(ProposeError::NotLeader { leader: forward.leader_id, address })
            }
            Err(RaftError::APIError(error)) => Err(ProposeError::Refused { reason: error.to_string() }),
            Err(RaftError::Fatal(openraft::error::Fatal::Stopped)) => Err(match self.failure() {
                Some(reason) => ProposeError::Failed { reason },
                None => ProposeError::Shutdown,
            }),
            Err(RaftError::Fatal(fatal)) => {
                let reason = self.failure().unwrap_or_else(|| fatal.to_string());
                Err(ProposeError::Failed { reason })
            }
        }
    }
}
