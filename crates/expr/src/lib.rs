//! The small languages of job files and the API, as pure functions.
//!
//! | module | language |
//! |---|---|
//! | [`interpolate`] | `${...}` filled in at run time |
//! | [`constraint`] | constraint operators, with [`version`] and [`pattern`] |
//! | [`filter`] | the `filter` parameter of list endpoints |
//! | [`cron`] | cron expressions with time zones |
//! | [`duration`] | `1h2m3.5s` |
//! | [`glob`] | `dc*` |
//! | [`calendar`] | days and dates |
//! | [`json`] | texts as Go's JSON writes them |
//!
//! This crate owns no task and no channel.
//!
//! Architecture invariant: nothing here does IO, reads a clock or the environment, or draws random
//! numbers. Time is an argument, the time zone database is compiled in, and whatever a text refers
//! to is reached through a lookup the caller hands in.
//!
//! Architecture invariant: this crate depends on no other crate of the workspace.
//!
//! Architecture invariant: no text, however long or odd, makes a parser panic, recurse without
//! bound, or run in more than polynomial time; every parser has named limits.

pub mod calendar;
pub mod constraint;
pub mod cron;
pub mod duration;
pub mod filter;
pub mod glob;
pub mod interpolate;
pub mod json;
pub mod pattern;
pub mod version;
