//! What a server does with the log and the tables: operations of users, node sessions, and the leader's own work.
//!
//! # What others call
//! - [`Server::start`] opens the log in [`ServerConfig::consensus`], listens for nodes and leads when the log says so.
//! - Reads: [`Server::snapshot`] is the newest published [`herdsman_state::Snapshot`]; [`Server::query`] is a blocking query:
//!   it gives the keys to watch, the index the caller has seen, how long to wait, and a pure function of a snapshot.
//! - Operations ([`Server::register_job`], [`Server::plan_job`], [`Server::stop_alloc`]…): one method each on [`Server`],
//!   typed requests and answers in [`ops`], errors as [`ServerError`] (HTTP code and the text that clients match).
//! - Nodes: [`Server::node_request`] opens a [`BulkStream`] to a node for files, logs, exec, statistics.
//! - [`Server::changes`] is a feed of every change with the command it came from, for the event stream.
//! - [`Server::ready`] waits until this server leads; [`Server::shutdown`] ends everything.
//!
//! # Tasks and channels
//! One task accepts connections of nodes; each session is a task of its own with a bounded queue of frames to send. One task
//! merges what nodes say of their allocations into one proposal at a time. While this server leads: one task feeds the
//! evaluation broker from the change feed, one per core runs schedulers, one checks plans and proposes them (any number in
//! flight), and one each watches heartbeats, deployments, drains, periodic jobs and collection. All of them end when
//! leadership ends or the server shuts down. The change feed is a bounded broadcast: who falls behind reads a snapshot.
//!
//! Architecture invariant: nothing polls; every task waits for a change, a message or a deadline that state gives.
//! Architecture invariant: what only the leader knows (broker, timers, heartbeats) is rebuilt from state when it begins to lead.
//! Architecture invariant: time, randomness, disk and network come from [`herdsman_world::World`].

mod bulk;
mod config;
mod error;
mod feed;
pub mod keyring;
mod leader;
mod loads;
mod machine;
mod nodes;
pub mod ops;
mod server;
mod view;

pub use bulk::{BulkReceiver, BulkSender, BulkStream};
pub use config::{GcConfig, HeartbeatConfig, JobLimits, ServerConfig, Tuning};
pub use error::{ServerError, StartError};
pub use feed::{Batch, QueryAnswer, Watching};
pub use herdsman_state::{PreemptionConfig, SchedulerConfig};
pub use server::{Applied, Server};
pub use view::StateView;
