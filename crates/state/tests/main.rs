//! Tests of the state machine as a whole.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cells;
mod golden;
mod help;
mod random;
mod scenarios;
