//! States on their way to the servers.
//!
//! Per allocation only the newest is kept. A batch is sent when none is in flight; it is kept until the servers have it
//! in their log, and goes back into the queue when they refuse it or the session ends.

use herdsman_model::AllocId;
use herdsman_proto::AllocUpdate;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Allocations in one message at most.
const BATCH: usize = 256;

#[derive(Default)]
struct Inner {
    waiting: BTreeMap<AllocId, AllocUpdate>,
    urgent: bool,
    in_flight: BTreeMap<AllocId, AllocUpdate>,
}

/// The queue of states.
#[derive(Default)]
pub struct Updates {
    inner: Mutex<Inner>,
    wake: Notify,
    /// Wakes whoever waits for states to have arrived.
    acked: Notify,
}

impl Updates {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A holder never leaves it half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the newest state of an allocation. One that is not urgent may wait for others.
    pub fn push(&self, update: AllocUpdate, urgent: bool) {
        let mut inner = self.lock();
        inner.waiting.insert(update.id, update);
        inner.urgent |= urgent;
        drop(inner);
        self.wake.notify_one();
    }

    /// Waits until there is something to send. Gives whether it is urgent.
    pub async fn ready(&self) -> bool {
        loop {
            let notified = self.wake.notified();
            {
                let inner = self.lock();
                if inner.in_flight.is_empty() && !inner.waiting.is_empty() {
                    return inner.urgent;
                }
            }
            notified.await;
        }
    }

    /// Returns when a state was added.
    pub async fn grew(&self) {
        self.wake.notified().await;
    }

    /// Whether something urgent waits.
    pub fn is_urgent(&self) -> bool {
        self.lock().urgent
    }

    /// Takes a batch to send; nothing while one is in flight.
    pub fn take(&self) -> Vec<AllocUpdate> {
        let mut inner = self.lock();
        if !inner.in_flight.is_empty() {
            return Vec::new();
        }
        let ids: Vec<_> = inner.waiting.keys().take(BATCH).copied().collect();
        for id in ids {
            if let Some(update) = inner.waiting.remove(&id) {
                inner.in_flight.insert(id, update);
            }
        }
        inner.urgent &= !inner.waiting.is_empty();
        inner.in_flight.values().cloned().collect()
    }

    /// The batch in flight is in the servers' log.
    pub fn acknowledge(&self) {
        self.lock().in_flight.clear();
        self.wake.notify_one();
        self.acked.notify_waiters();
    }

    /// The batch in flight did not arrive: what has not changed since waits again.
    pub fn give_back(&self) {
        let mut inner = self.lock();
        let batch = std::mem::take(&mut inner.in_flight);
        for (id, update) in batch {
            inner.waiting.entry(id).or_insert(update);
        }
        inner.urgent |= !inner.waiting.is_empty();
        drop(inner);
        self.wake.notify_one();
    }

    /// The servers do not have the newest state of this allocation yet.
    pub fn is_pending(&self, id: AllocId) -> bool {
        let inner = self.lock();
        inner.waiting.contains_key(&id) || inner.in_flight.contains_key(&id)
    }

    /// An allocation that the servers no longer know: nobody wants its state.
    pub fn forget(&self, id: AllocId) {
        self.lock().waiting.remove(&id);
    }

    /// Returns at the next acknowledgement.
    pub async fn next_ack(&self) {
        self.acked.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use herdsman_model::ClientStatus;

    fn update(n: u8, status: ClientStatus) -> AllocUpdate {
        AllocUpdate { id: AllocId([n; 16]), client_status: status, ..AllocUpdate::default() }
    }

    #[test]
    fn nothing_is_lost_when_a_session_ends_and_the_newest_wins() {
        let updates = Updates::default();
        updates.push(update(1, ClientStatus::Running), true);
        updates.push(update(2, ClientStatus::Running), true);
        assert_eq!(updates.take().len(), 2);
        assert!(updates.take().is_empty(), "one batch at a time");
        updates.push(update(1, ClientStatus::Complete), true);
        updates.give_back();
        let batch = updates.take();
        assert_eq!(batch, [update(1, ClientStatus::Complete), update(2, ClientStatus::Running)]);
        assert!(updates.is_pending(AllocId([2; 16])));
        updates.acknowledge();
        assert!(!updates.is_pending(AllocId([2; 16])));
    }
}
