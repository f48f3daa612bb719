//! Comparison with what the peer answered, and properties over arbitrary jobs.

mod diff;
mod mini;
mod shared;
mod spec;
mod validate;
mod wire;
