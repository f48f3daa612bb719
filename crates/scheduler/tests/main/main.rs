//! Tests of the scheduler over a cluster in memory.

mod cases;
mod properties;
mod tables;
mod world;
