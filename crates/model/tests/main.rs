//! Comparison with what the peer answered, and properties over arbitrary jobs.

mod shared;
mod spec;
mod wire;
