//! Whole clusters in one process, on simulated time, disk and network.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod cluster;
mod story;
