//! The node: fingerprints, allocation runners and their hooks, the local store, services and checks, garbage
//! collection, and the session with the servers.
//!
//! Tasks and channels:
//!
//! | task | channel in |
//! |---|---|
//! | one per allocation ([`alloc::Runner`]) | [`alloc::QUEUE`] messages |
//! | the session | states ([`updates::Updates`]: the newest per allocation), services, node events |
//! | the store's writer | writes; all that wait go into one transaction |
//! | garbage collection, driver watch, store watch | wake-ups |
//! | one per check, one per open bulk channel | none |
//!
//! Architecture invariant: what a task does follows from `lifecycle`; a runner only carries commands out, in order, and
//! begins nothing that follows a `Persist` before the store has it.
//! Architecture invariant: states are stored before they are sent, and kept until the servers have them in their log.
//! Architecture invariant: no tenant path is opened but through [`alloc::dir`], whose handles nothing leads out of.
//! Architecture invariant: shutting down ends no task.

pub mod alloc;
pub mod checks;
mod config;
pub mod env;
pub mod fingerprint;
mod gc;
mod identity;
mod node;
mod serve;
pub mod services;
mod session;
mod store;
mod tls;
pub mod updates;

pub use config::{GcConfig, NodeConfig, NodeError, Tuning};
pub use identity::load_or_make as identity;
pub use node::{DynamicMeta, Node, Shared};
pub use serve::Refusal;
