//! Tasks that outlive the agent: the shim program and how to talk to it.
//!
//! A *zygote* (one per node data directory, started by [`ShimHost::open`])
//! forks one *shim* per task; the shim starts the task, writes its output to
//! rotated files, reaps it and leaves an exit record. Each start has one *run file*,
//! named after its key, of one disk block:
//!
//! | place | content |
//! |---|---|
//! | the file's lock (`flock`) | held by the shim while its task may live |
//! | offset 0 | [`messages::PidRecord`], first without a process id, before any side effect |
//! | offset [`wire::EXIT_OFFSET`] | [`messages::ExitRecord`], written once, whole or absent (checksum) |
//!
//! One file, because making files is the dearest part of a short task; one
//! block, taken at the start, so that an end can be written on a full disk. The
//! shim's control socket, `<inode of the run file>.sock`, is made once the task
//! is older than a moment; until then its agent is connected anyway.
//!
//! A second start with the same key finds the lock and is the first one
//! returned. Lock free and an exit record: the task ended. Lock free and none:
//! the shim was lost; the task dies with it, and [`ShimHost::clean_lost`] ends
//! what is left.
//!
//! Tasks and channels: at most one short-lived task, which removes forgotten
//! run files; every other call does its work in the caller's task. [`ExitWait`] holds one socket per running task.
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
