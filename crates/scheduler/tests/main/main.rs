//! Tests of the scheduler over a cluster in memory.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod cases;
mod properties;
mod tables;
mod world;
