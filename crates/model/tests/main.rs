//! Comparison with what the peer answered, and properties over arbitrary jobs.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod any_job;
mod diff;
mod gate;
mod mini;
mod shared;
mod spec;
mod validate;
mod wire;
