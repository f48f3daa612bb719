//! The binary as people use it: real agents, real jobs, real signals.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests fail the test

mod agents;
mod crash;
mod dev;
mod folder;
mod reload;
mod support;
mod systemd;
