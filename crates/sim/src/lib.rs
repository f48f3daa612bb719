//! Load and simulated nodes: the jobs that measurements and simulations run, and nodes without tasks that speak the real
//! session protocol over the network of a [`herdsman_world::World`], simulated or real. Whole clusters run in one process
//! in this crate's tests.
//!
//! Tasks and channels: a [`node::SimNode`] owns one task, and one per request that it answers.
//!
//! Architecture invariant: load goes through the public API, nodes through the session protocol; nothing here reaches into
//! servers.

pub mod node;
pub mod session;
pub mod workload;
