//! Answers to what servers ask of a node, one bulk channel per request.

pub mod bulk;
pub mod channel;
mod exec;
mod files;
mod frames;
mod logs;
mod stats;
mod watch;

pub use channel::Refusal;
pub(crate) use files::{FileStream, list, read_range, stat, stream_file};
pub(crate) use logs::{LogSource, stream_logs};
