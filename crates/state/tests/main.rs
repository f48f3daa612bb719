//! Tests of the state machine as a whole.

mod cells;
mod golden;
mod help;
mod random;
mod scenarios;
