//! Configuration, and putting the parts together in one process.
//!
//! Tasks: one per listener of the API, those of the server and the node, and in a development run those of
//! [`devrun`]. An agent ends them all when it shuts down; the tasks of its jobs go on.
//!
//! Architecture invariant: every key of the configuration is in one table with what comes of it; none is accepted silently
//! without effect.
//! Architecture invariant: development mode differs from a configured agent in its settings only, never in its code.

pub mod commands;
pub mod config;
pub mod devrun;
pub mod dirs;
mod drivers;
mod facts;
pub mod guard;
mod leave;
pub mod log;
mod notify;
mod reload;
mod start;
mod tune;

pub use reload::{Configuration, Reloader};
pub use start::{Agent, AgentError};
