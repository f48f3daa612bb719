//! The log store as openraft sees it.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use herdsman_world::Disk;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogState, OptionalSend, RaftLogReader, StorageIOError};

use crate::config::NodeId;
use crate::convert::{Entry, LogId, StorageError, TypeConfig, Vote};
use crate::log::{SegmentLog, Shared, make_spare};

/// Entries sent to another server at once take at most this many bytes, or are one.
const MAX_READ_BYTES: usize = 1024 * 1024;

/// Shares the log between openraft's core, its readers and the group committer.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    disk: Arc<dyn Disk>,
    log: Arc<Mutex<SegmentLog>>,
    shared: Arc<Shared>,
    /// What openraft takes as committed when it starts; see [`LogStore::trust`].
    committed: Option<LogId>,
}

fn locked(log: &Mutex<SegmentLog>) -> MutexGuard<'_, SegmentLog> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogStore {
    pub fn new(disk: Arc<dyn Disk>, log: SegmentLog, shared: Arc<Shared>) -> LogStore {
        LogStore { disk, log: Arc::new(Mutex::new(log)), shared, committed: None }
    }

    /// Takes the whole log as committed. True for the only voter: its own durable log is the
    /// majority.
    pub fn trust(&mut self) {
        self.committed = locked(&self.log).last();
    }

    /// Nothing is written after this, and another process may open the directory.
    pub fn close(&self) {
        locked(&self.log).close();
    }

    pub fn purged(&self) -> Option<LogId> {
        locked(&self.log).purged()
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut SegmentLog) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let log = Arc::clone(&self.log);
        herdsman_world::disk::run(&*self.disk, move || work(&mut locked(&log))).await
    }

    /// Makes sure that an entry of `bytes` can be appended. Fails without harm when the disk is
    /// full.
    pub async fn reserve(&self, bytes: usize) -> io::Result<()> {
        if bytes as u64 <= self.shared.room.load(Ordering::Acquire) {
            return Ok(());
        }
        self.run(move |log| log.reserve(bytes)).await
    }

    /// Makes the next segment ready in the background when it will be needed soon.
    pub async fn prepare(&self) {
        // Asked after every entry: without a thread of its own unless the log is being written to.
        let free = self.log.try_lock().ok().map(|mut log| log.wants_spare());
        let wanted = match free {
            Some(wanted) => wanted,
            None => self.run(|log| Ok(log.wants_spare())).await.unwrap_or_default(),
        };
        let Some((path, len)) = wanted else { return };
        let disk = Arc::clone(&self.disk);
        let made = herdsman_world::disk::run(&*self.disk, move || make_spare(&*disk, &path, len)).await;
        if let Err(error) = &made {
            tracing::warn!(%error, "the next log segment could not be prepared; it is made when it is needed");
        }
        locked(&self.log).spare_made(made.ok().map(|()| len));
    }

    async fn entries(&self, start: u64, end: u64, bytes: usize) -> Result<Vec<Entry>, StorageError> {
        if start >= end {
            return Ok(Vec::new());
        }
        let cached = self.shared.cache().get(start, end, bytes);
        if let Some(entries) = cached {
            return Ok(entries);
        }
        let read = self.run(move |log| log.read(start, end, bytes)).await;
        read.map_err(|error| StorageIOError::read_logs(AnyError::new(&error)).into())
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.entries(start, end, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, StorageError> {
        self.entries(start, end, MAX_READ_BYTES).await
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let log = locked(&self.log);
        Ok(LogState { last_purged_log_id: log.purged(), last_log_id: log.last() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        let saved = self.run(move |log| log.save_vote(vote)).await;
        saved.map_err(|error| StorageIOError::write_vote(AnyError::new(&error)).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(locked(&self.log).vote())
    }

    // What is committed is not stored: it would cost a write for each entry. The only voter knows
    // it from its log, others learn it from the leader.

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        match self.run(move |log| log.append(entries)).await {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => Err(StorageIOError::<NodeId>::write_logs(AnyError::new(&error)).into()),
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let cut = self.run(move |log| log.truncate(log_id.index)).await;
        cut.map_err(|error| StorageIOError::write_logs(AnyError::new(&error)).into())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let purged = self.run(move |log| log.purge(log_id)).await;
        purged.map_err(|error| StorageIOError::write_logs(AnyError::new(&error)).into())
    }
}
