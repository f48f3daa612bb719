//! The tables as the log drives them.

use crate::feed::{Batch, Feed};
use crate::loads::Loads;
use bytes::Bytes;
use herdsman_consensus::Machine;
use herdsman_state::{Command, Store};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// The tables as the log drives them; what they become is published.
pub(crate) struct StateMachine {
    store: Store,
    loads: Loads,
    feed: Arc<Feed>,
}

impl StateMachine {
    pub fn new(store: Store, feed: Arc<Feed>) -> StateMachine {
        StateMachine { loads: Loads::of(store.snapshot()), store, feed }
    }
}

impl Machine for StateMachine {
    fn apply(&mut self, _log_index: u64, commands: Vec<Bytes>) -> Vec<Bytes> {
        let mut results = Vec::with_capacity(commands.len());
        let mut changes = Vec::new();
        let mut kinds = Vec::with_capacity(commands.len());
        for stored in commands {
            let outcome = match Command::decode(&stored) {
                Ok(command) => {
                    let kind = command.body.kind();
                    let outcome = self.store.apply(command);
                    kinds.push((outcome.index, kind));
                    outcome
                }
                // Says why, and raises the index as on every other server.
                Err(_) => self.store.apply_stored(&stored),
            };
            results.push(Bytes::from(outcome.answer().encode()));
            changes.extend(outcome.changes);
        }
        self.loads.take_in(&changes);
        let snapshot = self.store.snapshot().clone();
        let batch = Batch { index: snapshot.index(), time: snapshot.time(), changes, commands: kinds };
        self.feed.publish(snapshot, self.loads.clone(), batch);
        results
    }

    fn snapshot(&self) -> Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send> {
        let snapshot = self.store.snapshot().clone();
        Box::new(move |mut to| snapshot.write_to(&mut to))
    }

    fn restore(&mut self, mut from: &mut dyn Read) -> io::Result<()> {
        self.store = Store::read_from(&mut from).map_err(io::Error::other)?;
        self.loads = Loads::of(self.store.snapshot());
        self.feed.replace(self.store.snapshot().clone(), self.loads.clone());
        Ok(())
    }
}
