//! Load: the jobs that measurements and simulations run, written once.
//!
//! Architecture invariant: load goes through the public API; nothing here reaches into servers or nodes.

pub mod workload;
