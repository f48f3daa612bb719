//! The API's JSON: borrowed views of the nouns, in the peer's field names and with its rules for null and empty.

mod event;

pub use event::*;
