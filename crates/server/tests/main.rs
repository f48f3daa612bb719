//! A server with nodes that speak the real session protocol, in one simulated process.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod bulk;
mod fake;
mod jobs;
mod leader;
mod operations;
