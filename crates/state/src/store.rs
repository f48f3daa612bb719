//! The state machine: the tables, and applying commands to them.

use crate::apply;
use crate::codec::{Answer, BadCommand, Refusal, Reply};
use crate::command::Command;
use crate::rows::{ALL_POOL, DEFAULT_NAMESPACE, DEFAULT_POOL, NODE_IDENTITY_TTL, Namespace, NodePool, SchedulerConfig};
use crate::snapshot::Snapshot;
use crate::table::Change;
use crate::txn::Txn;
use herdsman_model::Name;
use std::collections::BTreeSet;

/// Names shared between rows that the interner remembers; beyond it the interner starts anew.
pub(crate) const MAX_NAMES: usize = 1_000_000;

/// The tables, and the only way to change them.
#[derive(Debug, Clone)]
pub struct Store {
    snapshot: Snapshot,
    names: BTreeSet<Name>,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Index of the command: one more than the last, also when it was refused.
    pub index: u64,
    pub result: Result<Reply, Refusal>,
    /// Empty when it was refused.
    pub changes: Vec<Change>,
}

impl Outcome {
    /// What goes back to the proposer.
    pub fn answer(&self) -> Answer {
        Answer { index: self.index, result: self.result.clone() }
    }
}

impl Default for Store {
    fn default() -> Store {
        Store::new()
    }
}

impl Store {
    /// A new cluster's tables: the namespace and the node pools that always exist.
    pub fn new() -> Store {
        let mut snapshot = Snapshot { index: 1, ..Snapshot::default() };
        let mut names = BTreeSet::new();
        let mut txn = Txn::new(&mut snapshot, &mut names);
        txn.put_namespace(Namespace {
            name: DEFAULT_NAMESPACE.to_owned(),
            description: "Default shared namespace".to_owned(),
            ..Namespace::default()
        });
        for (name, description) in
            [(ALL_POOL, "Node pool with all nodes in the cluster."), (DEFAULT_POOL, "Default node pool.")]
        {
            txn.put_pool(NodePool {
                name: name.to_owned(),
                description: description.to_owned(),
                node_identity_ttl: NODE_IDENTITY_TTL,
                ..NodePool::default()
            });
        }
        txn.put_scheduler_config(SchedulerConfig::default());
        txn.finish();
        Store { snapshot, names }
    }

    /// The tables as they are. Cheap.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// A store that goes on from a snapshot: for trying commands out without the log.
    pub fn from_snapshot(snapshot: Snapshot) -> Store {
        Store { snapshot, names: BTreeSet::new() }
    }

    /// Applies a command. A refused one raises the index and changes nothing else.
    pub fn apply(&mut self, command: Command) -> Outcome {
        let saved = self.snapshot.clone();
        self.snapshot.index += 1;
        self.snapshot.time = self.snapshot.time.max(command.now);
        let (index, time) = (self.snapshot.index, self.snapshot.time);
        let mut txn = Txn::new(&mut self.snapshot, &mut self.names);
        match apply::apply(&mut txn, command.body) {
            Ok(reply) => {
                let changes = txn.finish();
                Outcome { index, result: Ok(reply), changes }
            }
            Err(refusal) => {
                self.snapshot = saved;
                self.snapshot.index = index;
                self.snapshot.time = time;
                Outcome { index, result: Err(refusal), changes: Vec::new() }
            }
        }
    }

    /// Applies a stored command. One that this build cannot read is refused, raises the index and changes nothing.
    pub fn apply_stored(&mut self, bytes: &[u8]) -> Outcome {
        match Command::decode(bytes) {
            Ok(command) => self.apply(command),
            Err(error) => self.refuse(&error),
        }
    }

    fn refuse(&mut self, error: &BadCommand) -> Outcome {
        self.snapshot.index += 1;
        Outcome { index: self.snapshot.index, result: Err(Refusal::new(500, error.to_string())), changes: Vec::new() }
    }
}
