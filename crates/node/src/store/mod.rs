//! The node's local store: allocations, jobs, what the lifecycle recorded, and the drivers' handles.
//!
//! One writer task takes writes from a channel; everything that is waiting goes into one transaction with one sync.
//! Stored bytes are [`Stored`] envelopes (see `docs/formats.md`, "Node store").

mod backend;
mod load;
#[cfg(test)]
mod tests;

pub use load::{Loaded, LoadedAlloc};

use crate::config::NodeError;
use herdsman_model::AllocId;
use herdsman_world::World;
use prost::Message;
use redb::{Database, ReadableDatabase, TableDefinition};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Format of the records that this version writes. A record of a higher one is refused.
pub const FORMAT: u32 = 1;
/// Writes that may wait for the writer.
const QUEUE: usize = 1024;
/// Writes that go into one transaction at most.
const BATCH: usize = 512;
/// Memory for cached pages, bytes.
const CACHE_BYTES: usize = 2 * 1024 * 1024;
/// File name below the state directory.
const FILE: &str = "node.redb";

const ALLOCS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("allocs");
const LIVES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("lives");
const TASKS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("tasks");
const HANDLES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("handles");
const JOBS: TableDefinition<&str, &[u8]> = TableDefinition::new("jobs");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// Envelope of every stored record.
#[derive(Clone, PartialEq, Message)]
pub struct Stored {
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// The record as JSON by field name.
    #[prost(bytes = "vec", tag = "2")]
    pub json: Vec<u8>,
    /// Bytes of somebody else: a driver's handle.
    #[prost(bytes = "vec", tag = "3")]
    pub opaque: Vec<u8>,
}

impl Stored {
    /// A record of ours. Types of `model` and `lifecycle` have text keys only, so they always have a JSON form; one that
    /// had none would be an error of its next reader, who says so.
    pub fn json<T: serde::Serialize>(record: &T) -> Vec<u8> {
        let json = serde_json::to_vec(record).unwrap_or_default();
        Stored { format: FORMAT, json, opaque: Vec::new() }.encode_to_vec()
    }

    /// A record that only its maker understands.
    pub fn opaque(bytes: &[u8]) -> Vec<u8> {
        Stored { format: FORMAT, json: Vec::new(), opaque: bytes.to_vec() }.encode_to_vec()
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    PutAlloc(AllocId, Vec<u8>),
    PutLife(AllocId, Vec<u8>),
    PutTask(AllocId, Arc<str>, Vec<u8>),
    PutHandle(AllocId, Arc<str>, Vec<u8>),
    DropHandle(AllocId, Arc<str>),
    PutJob(String, Vec<u8>),
    DropJob(String),
    /// Everything of an allocation.
    DropAlloc(AllocId),
    PutMeta(&'static str, Vec<u8>),
}

/// What the writer is asked for.
enum Ask {
    Write { ops: Vec<Op>, done: oneshot::Sender<Result<(), String>> },
    Close(oneshot::Sender<()>),
}

/// What keeps other agents off a directory while it is held.
pub type DirLock = Box<dyn Send + Sync>;

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    queue: mpsc::Sender<Ask>,
    failing: Arc<AtomicBool>,
}

impl Store {
    /// Opens the store below `state_dir` and reads all of it. One that cannot be read is set aside, so that the node
    /// can go on: the servers send its allocations again, and a start that was carried out is found by its key.
    ///
    /// The lock of the directory is let go when the database is closed, not before: two writers would tear it.
    pub async fn open(world: &World, state_dir: &Path, lock: DirLock) -> Result<(Store, Loaded), NodeError> {
        let path = state_dir.join(FILE);
        let db = match backend::open(world, &path, CACHE_BYTES) {
            Ok(db) => db,
            Err(backend::OpenError::Io(error)) => return Err(NodeError::Io { what: "open", path, error }),
            Err(backend::OpenError::Damaged(error)) => {
                let aside = state_dir.join(format!("{FILE}.damaged-{}", world.clock.now().secs()));
                tracing::error!(%error, aside = %aside.display(), "the node store is damaged; it is set aside and a new one begun");
                let io = |error| NodeError::Io { what: "set aside", path: path.clone(), error };
                world.disk.rename(&path, &aside).map_err(io)?;
                backend::open(world, &path, CACHE_BYTES)
                    .map_err(|error| NodeError::Store { path: path.clone(), error: error.to_string() })?
            }
        };
        let store_error = |error: redb::Error| NodeError::Store { path: path.clone(), error: error.to_string() };
        prepare(&db).map_err(&store_error)?;
        let loaded = load::load(&db.begin_read().map_err(|e| store_error(e.into()))?).map_err(&store_error)?;
        let (queue, writes) = mpsc::channel(QUEUE);
        let failing = Arc::new(AtomicBool::new(false));
        let work = writer(world.clone(), path, db, writes, Arc::clone(&failing));
        tokio::spawn(async move {
            let closing = work.await;
            drop(lock);
            for closed in closing {
                // Whoever asked may have gone.
                let _ = closed.send(());
            }
        });
        Ok((Store { queue, failing }, loaded))
    }

    /// Makes changes durable. On an error nothing of them is stored.
    pub async fn write(&self, ops: Vec<Op>) -> Result<(), String> {
        let (done, result) = oneshot::channel();
        let closed = || "the node store is closed".to_string();
        self.queue.send(Ask::Write { ops, done }).await.map_err(|_| closed())?;
        result.await.map_err(|_| closed())?
    }

    /// Ends all writing. Returns when the database is closed and its directory free for another agent.
    pub async fn close(&self) {
        let (closed, waiting) = oneshot::channel();
        if self.queue.send(Ask::Close(closed)).await.is_ok() {
            // An error means that it is closed already.
            let _ = waiting.await;
        }
    }

    /// The last write failed (a full disk, most likely): no new task may start.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }
}

/// Makes the tables, so that reading finds them.
fn prepare(db: &Database) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    for table in [ALLOCS, LIVES, TASKS, HANDLES] {
        txn.open_table(table)?;
    }
    txn.open_table(JOBS)?;
    txn.open_table(META)?;
    txn.commit()?;
    Ok(())
}

/// The writer: one transaction for all that waits. After an error the store is opened anew, because what a failed sync was
/// for is not known; what was not stored is written again by whoever wanted it. Gives who waits for the end.
async fn writer(
    world: World,
    path: PathBuf,
    db: Database,
    mut asks: mpsc::Receiver<Ask>,
    failing: Arc<AtomicBool>,
) -> Vec<oneshot::Sender<()>> {
    let mut batch = Vec::new();
    let held = Arc::new(Mutex::new(Some(db)));
    let mut closing = Vec::new();
    while closing.is_empty() && asks.recv_many(&mut batch, BATCH).await > 0 {
        let (mut ops, mut waiters) = (Vec::new(), Vec::new());
        for ask in batch.drain(..) {
            match ask {
                Ask::Write { ops: more, done } => {
                    ops.push(more);
                    waiters.push(done);
                }
                Ask::Close(closed) => closing.push(closed),
            }
        }
        if !ops.is_empty() {
            let result = write(&world, &path, &held, ops).await;
            note_result(&failing, &result);
            for waiter in waiters {
                // A waiter that is gone no longer wants to know.
                let _ = waiter.send(result.clone());
            }
        }
    }
    // Closing writes too.
    let closed = herdsman_world::disk::run(&*world.disk, move || {
        drop(held.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    });
    if let Err(error) = closed.await {
        tracing::warn!(%error, "the node store was not closed well; the next agent repairs it");
    }
    closing
}

/// Stores a batch in one transaction.
async fn write(
    world: &World,
    path: &Path,
    held: &Arc<Mutex<Option<Database>>>,
    ops: Vec<Vec<Op>>,
) -> Result<(), String> {
    let (held, on, path) = (Arc::clone(held), world.clone(), path.to_path_buf());
    let work = move || {
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        let db = match held.take() {
            Some(db) => db,
            None => backend::open(&on, &path, CACHE_BYTES).map_err(std::io::Error::other)?,
        };
        commit(&db, &ops).map_err(std::io::Error::other)?;
        *held = Some(db);
        Ok(())
    };
    herdsman_world::disk::run(&*world.disk, work).await.map_err(|error| error.to_string())
}

/// Keeps whether the store can be written, and tells of a change.
fn note_result(failing: &AtomicBool, result: &Result<(), String>) {
    let failed = result.is_err();
    if failing.swap(failed, Ordering::Relaxed) != failed {
        match result {
            Ok(()) => tracing::info!("the node store can be written again"),
            Err(error) => tracing::error!(%error, "the node store cannot be written; no new task starts"),
        }
    }
}

fn commit(db: &Database, batch: &[Vec<Op>]) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    {
        let mut allocs = txn.open_table(ALLOCS)?;
        let mut lives = txn.open_table(LIVES)?;
        let mut tasks = txn.open_table(TASKS)?;
        let mut handles = txn.open_table(HANDLES)?;
        let mut jobs = txn.open_table(JOBS)?;
        let mut meta = txn.open_table(META)?;
        for op in batch.iter().flatten() {
            match op {
                Op::PutAlloc(id, bytes) => drop(allocs.insert(&id.0[..], &bytes[..])?),
                Op::PutLife(id, bytes) => drop(lives.insert(&id.0[..], &bytes[..])?),
                Op::PutTask(id, task, bytes) => drop(tasks.insert(&task_key(*id, task)[..], &bytes[..])?),
                Op::PutHandle(id, task, bytes) => drop(handles.insert(&task_key(*id, task)[..], &bytes[..])?),
                Op::DropHandle(id, task) => drop(handles.remove(&task_key(*id, task)[..])?),
                Op::PutJob(key, bytes) => drop(jobs.insert(key.as_str(), &bytes[..])?),
                Op::DropJob(key) => drop(jobs.remove(key.as_str())?),
                Op::PutMeta(key, bytes) => drop(meta.insert(*key, &bytes[..])?),
                Op::DropAlloc(id) => {
                    drop(allocs.remove(&id.0[..])?);
                    drop(lives.remove(&id.0[..])?);
                    let (from, to) = (id.0.to_vec(), next_prefix(*id));
                    tasks.retain_in(&from[..]..&to[..], |_, _| false)?;
                    handles.retain_in(&from[..]..&to[..], |_, _| false)?;
                }
            }
        }
    }
    txn.commit()?;
    Ok(())
}

/// The id, then the task's name.
fn task_key(id: AllocId, task: &str) -> Vec<u8> {
    [&id.0[..], task.as_bytes()].concat()
}

/// An upper bound of all keys that begin with the id: task names are text, which has no 0xff byte.
fn next_prefix(id: AllocId) -> Vec<u8> {
    [&id.0[..], &[0xff]].concat()
}
