//! The HTTP API: routes to operations.
//!
//! - [`Api`] is what handlers reach; an agent makes one ([`Api::new`]) from its server, if it runs one, and itself
//!   ([`Agent`]), and gives it listeners ([`serve::serve`]) or single connections ([`serve::serve_stream`]).
//! - [`routes::ROUTES`] is the table of routes. [`pipeline::handle`] takes a request through every step.
//! - [`reads`] are pure functions of a snapshot and a request; [`operations`] is everything else.
//!
//! # Tasks and channels
//! One task per connection, ended with it. One task per server keeps the last events ([`events::EventBuffer`]) and ends
//! with the server's feed. A websocket runs in a task of its own until either side closes it.
//!
//! Architecture invariant: reads are pure functions of a snapshot and a request.
//! Architecture invariant: no handler can be reached but through the pipeline, which alone makes a [`pipeline::Call`].
//! Architecture invariant: what a node knows comes over its session, also when the node is in this process.

pub mod agent;
pub mod answer;
pub mod api;
pub mod error;
pub mod events;
mod forward;
pub mod metrics;
pub mod operations;
pub mod paging;
pub mod pipeline;
pub mod reads;
pub mod request;
pub mod route;
pub mod routes;
pub mod serve;
pub mod socket;

pub use agent::{Agent, AgentFacts};
pub use api::Api;
pub use error::HttpError;
