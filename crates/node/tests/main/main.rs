//! The node with real processes, against a server that only keeps what it is told.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, its helpers too"
)]

mod files;
#[path = "../../../herdsman/tests/main/folder.rs"]
mod folder;
mod kill9;
mod requests;
mod run;
mod server;
mod setup;
