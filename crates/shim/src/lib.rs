//! Tasks that outlive the agent: the shim program and how to talk to it.
//!
//! A *zygote* (one per node data directory, started by [`ShimHost::open`])
//! forks one *shim* per task; the shim starts the task, writes its output to
//! rotated files, reaps it and leaves an exit record. Each start has a *run
//! directory* made from its key, holding:
//!
//! | file | content |
//! |---|---|
//! | `pid` | [`messages::PidRecord`]; locked (`flock`) by the shim while it lives |
//! | `ctl.sock` | the shim's control socket |
//! | `exit` | [`messages::ExitRecord`], written once, whole or absent |
//!
//! A second start with the same key finds the lock and is the first one
//! returned. Lock free and `exit` present: the task ended. Lock free and no
//! `exit`: the shim was lost; the task dies with it, and
//! [`ShimHost::clean_lost`] ends what is left.
//!
//! Tasks and channels: none of its own; every call does its work in the
//! caller's task. [`ExitWait`] holds one socket per running task.
//!
//! Architecture invariant: knows processes and files, never jobs, drivers or
//! allocations (a key is three texts and two numbers to it).
//! Architecture invariant: nothing here forks or enters namespaces in the
//! agent's threaded process; that happens in the shim program only.

pub mod cgroup;
mod client;
pub mod codec;
mod host;
pub mod messages;
mod process;
mod program;
pub mod wire;

pub use client::{ExecSession, ExitWait, Lost, exec, kill, signal, stats};
pub use host::{Attached, FoundRun, ShimConfig, ShimError, ShimHost, StartKey, StartOutcome, attach, remove_run};
pub use process::{boot_id, children, start_ticks};

#[cfg(test)]
mod tests;
