//! Real processes under the drivers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod support;

mod agent;
mod commands;
mod docker;
mod exec;
mod mock;
mod raw_exec;
