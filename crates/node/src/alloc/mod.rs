//! Allocation runners: one task per allocation, the shell round its `lifecycle` state.
//!
//! A runner takes messages and results of its own work (hooks, starts, waits), feeds them to `lifecycle` and carries out
//! the commands that come back, in their order: what follows a `Persist` waits for the store.

mod artifacts;
mod commands;
pub mod dir;
mod drive;
mod hooks;
mod place;
mod register;
mod runner;
mod templates;

pub use runner::{NOT_ELIGIBLE, Origin, Runner};

use crate::checks::Board;
use crate::serve::Refusal;
use dir::AllocDir;
use herdsman_drivers::{Driver, Handle};
use herdsman_lifecycle::{AllocRecord, RestartScope};
use herdsman_model::{AllocId, Allocation, Job, Name, Nanos, TaskFact};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot, watch};

/// Messages that may wait for a runner.
pub const QUEUE: usize = 64;

/// What is stored of an allocation besides its tasks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredLife {
    #[serde(flatten)]
    pub record: AllocRecord,
    /// Health once decided, and when.
    pub healthy: Option<bool>,
    pub healthy_at: Option<Nanos>,
}

/// What others may know of an allocation without asking its runner.
pub struct AllocInfo {
    pub id: AllocId,
    pub dir: AllocDir,
    pub tasks: Vec<Name>,
    /// Key of its job in the store; changes when the servers change the job in place.
    pub job_key: Mutex<String>,
    /// Last server-side change seen.
    pub index: AtomicU64,
    /// Turns true once every task is dead.
    pub terminal: watch::Sender<bool>,
    /// When it became terminal, nanoseconds; 0 before.
    pub terminal_at: AtomicI64,
    pub checks: Arc<Board>,
}

impl AllocInfo {
    pub fn is_terminal(&self) -> bool {
        *self.terminal.borrow()
    }

    pub fn job_key(&self) -> String {
        // Only ever replaced as a whole.
        self.job_key.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn index(&self) -> u64 {
        self.index.load(Ordering::Relaxed)
    }
}

/// A running task and the driver that runs it.
pub type Running = (Arc<dyn Driver>, Handle);

/// What a runner is told or asked.
pub enum Msg {
    /// The servers changed the allocation.
    Update(Box<Allocation>, Arc<Job>),
    /// The servers no longer know the allocation.
    Removed,
    /// The servers were heard since the agent started.
    Contacted,
    /// A driver or hook says something.
    Note(Name, TaskFact),
    Restart {
        scope: RestartScope,
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// An empty task: all running ones.
    Signal {
        task: String,
        signal: String,
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// The tasks that run: all, or one.
    Running {
        task: String,
        reply: oneshot::Sender<Result<Vec<(Name, Running)>, Refusal>>,
    },
    /// Removes a terminal allocation from the node.
    Destroy {
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
}

/// Reaches a runner.
#[derive(Clone)]
pub struct AllocHandle {
    pub info: Arc<AllocInfo>,
    pub sender: mpsc::Sender<Msg>,
}

/// The store's key of the job that an allocation refers to.
pub fn key_of(alloc: &Allocation) -> String {
    job_key(&alloc.namespace, &alloc.job_id, alloc.job_create_index, alloc.job_version)
}

/// The key of a job in the store: a job registered anew under the same id is another one.
pub fn job_key(namespace: &str, id: &str, create_index: u64, version: u64) -> String {
    format!("{namespace}\0{id}\0{create_index}\0{version}")
}
