//! The lifecycle by tables and by random histories with crashes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, its helpers too")]

mod properties;
mod sim;
mod tables;
