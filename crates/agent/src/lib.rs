//! Configuration, and putting the parts together in one process.

pub mod config;
pub mod log;
