//! The newest snapshot, and waking those who wait for a change of it.

use crate::loads::Loads;
use arc_swap::ArcSwap;
use herdsman_state::{Change, Snapshot, WatchKey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast};

/// Batches of changes that a slow subscriber may be behind.
const FEED_BATCHES: usize = 512;

/// The changes of the commands that one log entry carried.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Index of the last command.
    pub index: u64,
    /// Time of the last command, nanoseconds since the Unix epoch.
    pub time: i64,
    /// In order; each names the index of its command.
    pub changes: Vec<Change>,
    /// The kind ([`herdsman_state::Body::kind`]) of each command, by its index.
    pub commands: Vec<(u64, u32)>,
}

/// What a query gave.
#[derive(Debug, Clone)]
pub struct QueryAnswer<T> {
    /// The index to wait for a change past.
    pub index: u64,
    pub value: T,
}

/// Wakes those who wait for one key.
#[derive(Debug)]
struct Waiter {
    notify: Arc<Notify>,
    waiting: usize,
}

/// The tables at one index, and what they make of the nodes.
#[derive(Debug)]
pub(crate) struct Published {
    pub snapshot: Arc<Snapshot>,
    pub loads: Loads,
}

/// The newest snapshot and its changes.
#[derive(Debug)]
pub(crate) struct Feed {
    published: ArcSwap<Published>,
    waiters: Mutex<BTreeMap<WatchKey, Waiter>>,
    batches: broadcast::Sender<Arc<Batch>>,
}

impl Feed {
    pub fn new(snapshot: Snapshot) -> Arc<Feed> {
        let (batches, _) = broadcast::channel(FEED_BATCHES);
        let published = Published { loads: Loads::of(&snapshot), snapshot: Arc::new(snapshot) };
        let published = ArcSwap::from_pointee(published);
        Arc::new(Feed { published, waiters: Mutex::new(BTreeMap::new()), batches })
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.published.load().snapshot)
    }

    /// The newest tables with the loads of their nodes.
    pub fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Batch>> {
        self.batches.subscribe()
    }

    fn waiters(&self) -> MutexGuard<'_, BTreeMap<WatchKey, Waiter>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a new snapshot and wakes whoever its changes concern.
    pub fn publish(&self, snapshot: Snapshot, loads: Loads, batch: Batch) {
        self.published.store(Arc::new(Published { snapshot: Arc::new(snapshot), loads }));
        let waiters = self.waiters();
        if !waiters.is_empty() {
            for change in &batch.changes {
                change.keys(&mut |key| {
                    if let Some(waiter) = waiters.get(&key) {
                        waiter.notify.notify_waiters();
                    }
                });
            }
        }
        drop(waiters);
        // Nobody listening is no fault.
        let _ = self.batches.send(Arc::new(batch));
    }

    /// Shows a restored snapshot: everything may have changed.
    pub fn replace(&self, snapshot: Snapshot, loads: Loads) {
        let batch = Batch { index: snapshot.index(), time: snapshot.time(), changes: Vec::new(), commands: Vec::new() };
        self.published.store(Arc::new(Published { snapshot: Arc::new(snapshot), loads }));
        for waiter in self.waiters().values() {
            waiter.notify.notify_waiters();
        }
        let _ = self.batches.send(Arc::new(batch));
    }

    /// Begins to wait for changes of any of these keys. What changes after this call is not missed.
    pub fn watch(self: &Arc<Feed>, keys: &[WatchKey]) -> Watching {
        let mut waiters = self.waiters();
        let notifies = keys
            .iter()
            .map(|key| {
                let waiter = waiters
                    .entry(key.clone())
                    .or_insert_with(|| Waiter { notify: Arc::new(Notify::new()), waiting: 0 });
                waiter.waiting += 1;
                Arc::clone(&waiter.notify)
            })
            .collect();
        drop(waiters);
        Watching { feed: Arc::clone(self), keys: keys.to_vec(), notifies }
    }

    /// A blocking query: `read` gives an index and a value; returns once the index is past `after`, or with what there
    /// is when `wait` is over. An `after` of 0 does not block.
    pub async fn query<T>(
        self: &Arc<Feed>,
        clock: &dyn herdsman_world::Clock,
        keys: &[WatchKey],
        after: u64,
        wait: Duration,
        mut read: impl FnMut(&Snapshot) -> (u64, T),
    ) -> QueryAnswer<T> {
        let (index, value) = read(&self.snapshot());
        if after == 0 || index > after || wait.is_zero() {
            return QueryAnswer { index, value };
        }
        let mut watching = self.watch(keys);
        let deadline = clock.monotonic().plus(wait);
        loop {
            let changed = watching.prepare();
            let (index, value) = read(&self.snapshot());
            if index > after {
                return QueryAnswer { index, value };
            }
            let changed = std::pin::pin!(changed);
            let timeout = std::pin::pin!(clock.sleep_until(deadline));
            match futures::future::select(changed, timeout).await {
                futures::future::Either::Left(_) => {}
                futures::future::Either::Right(_) => {
                    let (index, value) = read(&self.snapshot());
                    return QueryAnswer { index, value };
                }
            }
        }
    }
}

/// Waits for changes of some keys.
#[derive(Debug)]
pub struct Watching {
    feed: Arc<Feed>,
    keys: Vec<WatchKey>,
    notifies: Vec<Arc<Notify>>,
}

impl Watching {
    /// A future that ends with the first change after this call (not after its first poll), so that a snapshot read in
    /// between misses nothing.
    pub fn prepare(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let mut futures: Vec<_> =
            self.notifies.iter().map(|notify| Box::pin(Arc::clone(notify).notified_owned())).collect();
        for future in &mut futures {
            future.as_mut().enable();
        }
        async move {
            if futures.is_empty() {
                std::future::pending::<()>().await;
            }
            futures::future::select_all(futures).await;
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut waiters = self.feed.waiters();
        for key in &self.keys {
            if let Some(waiter) = waiters.get_mut(key) {
                waiter.waiting = waiter.waiting.saturating_sub(1);
                if waiter.waiting == 0 {
                    waiters.remove(key);
                }
            }
        }
    }
}
