//! The replicated state machine, and how openraft drives it.

use std::io::{self, Read, Write};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use openraft::storage::RaftStateMachine;
use openraft::{AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageIOError, StoredMembership};
use tokio::sync::Notify;

use crate::config::{NodeId, OpenError};
use crate::convert::{Entry, LogId, SnapshotMeta, StorageError, TypeConfig};
use crate::snapshot::{PieceReader, SnapshotFile, SnapshotStore};

/// Writes a captured state; see [`Machine::snapshot`].
pub type SnapshotWriter = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// The replicated state machine: every server applies the same commands in the same order.
pub trait Machine: Send + 'static {
    /// Applies the commands of one log entry; gives one result for each, in order. Must not fail:
    /// a command that makes no sense has a result that says so. The same on every server, so
    /// without clock, randomness or network. A panic, or another number of results, stops this
    /// server's log.
    fn apply(&mut self, log_index: u64, commands: Vec<Bytes>) -> Vec<Bytes>;

    /// Captures the state as it is now, without copying it; the returned function writes it, later
    /// and on another thread, while commands go on being applied.
    fn snapshot(&self) -> SnapshotWriter;

    /// Replaces the whole state by one that [`Machine::snapshot`] wrote. Whoever still looks at the
    /// old state keeps it. On an error this server's log does not start, or stops.
    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()>;
}

/// How much has been applied since the last snapshot.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    pub entries: AtomicU64,
    pub bytes: AtomicU64,
    pub entry_limit: AtomicU64,
    pub byte_limit: u64,
    pub due: Notify,
}

impl Pressure {
    fn add(&self, entries: u64, bytes: u64) {
        let entries = self.entries.fetch_add(entries, Ordering::Relaxed) + entries;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if entries >= self.entry_limit.load(Ordering::Relaxed) || bytes >= self.byte_limit {
            self.due.notify_one();
        }
    }

    pub fn reset(&self) {
        self.entries.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

struct State {
    machine: Box<dyn Machine>,
    applied: Option<LogId>,
    membership: StoredMembership<NodeId, openraft::BasicNode>,
}

/// Shares the machine between openraft's worker and the snapshot writer.
#[derive(Clone)]
pub(crate) struct MachineStore {
    state: Arc<Mutex<State>>,
    pub snapshots: Arc<SnapshotStore>,
    pub pressure: Arc<Pressure>,
}

fn write_error(error: &io::Error) -> StorageError {
    StorageIOError::write_snapshot(None, AnyError::new(error)).into()
}

impl MachineStore {
    /// The machine at the current snapshot, or empty when there is none.
    pub fn open(
        mut machine: Box<dyn Machine>,
        snapshots: Arc<SnapshotStore>,
        pressure: Pressure,
    ) -> Result<MachineStore, OpenError> {
        let mut applied = None;
        let mut membership = StoredMembership::default();
        if let Some(current) = snapshots.current() {
            let (meta, mut reader) = PieceReader::open(&*snapshots.disk, &current.path)?;
            machine
                .restore(&mut reader)
                .map_err(|error| OpenError::io(format!("restore {}", current.path.display()), error))?;
            applied = meta.last_log_id;
            membership = meta.last_membership;
        }
        Ok(MachineStore {
            state: Arc::new(Mutex::new(State { machine, applied, membership })),
            snapshots,
            pressure: Arc::new(pressure),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last entry the machine has applied.
    pub fn applied(&self) -> Option<LogId> {
        self.state().applied
    }

    /// Captures the state now; the returned function writes it as the current snapshot. None when
    /// nothing has been applied since the last one.
    pub fn capture(&self) -> Option<(LogId, impl FnOnce() -> io::Result<()> + Send + 'static)> {
        let state = self.state();
        let applied = state.applied?;
        if self.snapshots.current().is_some_and(|current| current.meta.last_log_id >= Some(applied)) {
            return None;
        }
        let meta = SnapshotMeta {
            last_log_id: Some(applied),
            last_membership: state.membership.clone(),
            snapshot_id: format!("{}-{}-{}", applied.leader_id.term, applied.leader_id.node_id, applied.index),
        };
        let body = state.machine.snapshot();
        drop(state);
        self.pressure.reset();
        let snapshots = Arc::clone(&self.snapshots);
        Some((applied, move || snapshots.write(&meta, body)))
    }

    fn apply_entry(&self, entry: Entry) -> Result<Vec<Bytes>, StorageError> {
        let mut state = self.state();
        let log_id = entry.log_id;
        let mut bytes = 0;
        let results = match entry.payload {
            EntryPayload::Blank => Vec::new(),
            EntryPayload::Membership(membership) => {
                state.membership = StoredMembership::new(Some(log_id), membership);
                Vec::new()
            }
            EntryPayload::Normal(batch) => {
                let count = batch.0.len();
                bytes = batch.0.iter().map(Bytes::len).sum();
                let machine = &mut state.machine;
                let applied = std::panic::catch_unwind(AssertUnwindSafe(|| machine.apply(log_id.index, batch.0)));
                let problem = match applied {
                    Ok(results) if results.len() == count => Ok(results),
                    Ok(results) => Err(format!("{} results for {count} commands", results.len())),
                    Err(_) => Err("the state machine panicked".to_owned()),
                };
                problem.map_err(|text| {
                    let text = format!("apply log entry {}: {text}", log_id.index);
                    StorageError::from(StorageIOError::apply(log_id, AnyError::error(text)))
                })?
            }
        };
        state.applied = Some(log_id);
        drop(state);
        self.pressure.add(1, bytes as u64);
        Ok(results)
    }

    fn open_snapshot(&self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        match self.snapshots.open_current() {
            Ok(found) => Ok(found.map(|(meta, file)| Snapshot { meta, snapshot: Box::new(file) })),
            Err(error) => Err(StorageIOError::read_snapshot(None, AnyError::new(&error)).into()),
        }
    }
}

impl RaftStateMachine<TypeConfig> for MachineStore {
    type SnapshotBuilder = MachineStore;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId>, StoredMembership<NodeId, openraft::BasicNode>), StorageError> {
        let state = self.state();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Vec<Bytes>>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        entries.into_iter().map(|entry| self.apply_entry(entry)).collect()
    }

    async fn get_snapshot_builder(&mut self) -> MachineStore {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotFile>, StorageError> {
        let snapshots = Arc::clone(&self.snapshots);
        let begun = herdsman_world::disk::run(&*self.snapshots.disk, move || snapshots.begin_receiving()).await;
        begun.map(Box::new).map_err(|error| write_error(&error))
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Box<SnapshotFile>) -> Result<(), StorageError> {
        let (store, meta) = (self.clone(), meta.clone());
        let installed = herdsman_world::disk::run(&*self.snapshots.disk, move || {
            store.snapshots.install(&snapshot, &meta)?;
            let Some(current) = store.snapshots.current() else {
                return Err(io::Error::other("the snapshot that was installed is gone"));
            };
            let (_, mut reader) = PieceReader::open(&*store.snapshots.disk, &current.path).map_err(io::Error::other)?;
            let mut state = store.state();
            state.machine.restore(&mut reader)?;
            state.applied = current.meta.last_log_id;
            state.membership = current.meta.last_membership;
            drop(state);
            store.pressure.reset();
            Ok(())
        })
        .await;
        installed.map_err(|error| write_error(&error))
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        self.open_snapshot()
    }
}

impl RaftSnapshotBuilder<TypeConfig> for MachineStore {
    /// Normally the snapshot writer has written one already and this only tells openraft of it: an
    /// error here would stop openraft, and a full disk must not.
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        if self.snapshots.current().is_none()
            && let Some((_, write)) = self.capture()
        {
            let written = herdsman_world::disk::run(&*self.snapshots.disk, write).await;
            written.map_err(|error| write_error(&error))?;
        }
        let missing = || StorageIOError::read_snapshot(None, AnyError::error("nothing has been applied yet"));
        self.open_snapshot()?.ok_or_else(|| missing().into())
    }
}
