//! Reads: pure functions of a snapshot and a request.
//!
//! A blocking read is the same function called again when something it watches changed, so no handler knows of blocking.

pub mod cluster;
pub mod jobs;
pub mod work;

use crate::error::HttpError;
use crate::request::Request;
use herdsman_state::{Snapshot, WatchKey};
use serde::Serialize;

/// A route that only reads.
#[derive(Clone, Copy)]
pub struct Read {
    /// What a blocking read waits for.
    pub watch: fn(&Request) -> Vec<WatchKey>,
    pub read: fn(&Snapshot, &Request) -> Result<Seen, HttpError>,
}

/// What a read saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Index of what was read; a blocking read answers once this is past the one it was given.
    pub index: u64,
    /// JSON, or why there is nothing (answered only after a blocking read has waited).
    pub body: Result<Vec<u8>, HttpError>,
    /// The token of the next page.
    pub next_token: Option<String>,
}

impl Seen {
    /// A value seen at an index.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn new<T: Serialize + ?Sized>(index: u64, value: &T) -> Result<Seen, HttpError> {
        let body = serde_json::to_vec(value).map_err(|e| HttpError::internal(format!("encoding the answer: {e}")))?;
        Ok(Seen { index, body: Ok(body), next_token: None })
    }

    /// Nothing is there; the table was last changed at this index.
    pub fn missing(index: u64, message: &str) -> Seen {
        Seen { index, body: Err(HttpError::not_found(message)), next_token: None }
    }

    /// One page of a list.
    ///
    /// # Errors
    /// As [`Seen::new`].
    pub fn page<T: Serialize>(index: u64, page: crate::paging::Page<T>) -> Result<Seen, HttpError> {
        let mut seen = Seen::new(index, &page.items)?;
        seen.next_token = page.next_token;
        Ok(seen)
    }
}

/// Whether a row of this namespace belongs into a list that was asked for.
pub fn in_namespace(request: &Request, namespace: &str) -> bool {
    let asked = request.namespace();
    asked == "*" || asked == namespace
}

/// Reads an identifier in a path. Source of the text: `goldens/api/101-evaluation-bad-id.json`.
///
/// # Errors
/// The text is no whole identifier.
pub fn read_id<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, HttpError> {
    text.parse()
        .map_err(|_| HttpError::internal(format!("{what} lookup failed: index error: UUID must be 36 characters")))
}

/// Refuses an id prefix that cannot be the beginning of an id. Source: `goldens/api/115-allocations-odd-prefix.json`.
///
/// # Errors
/// The prefix has an odd number of hex digits, or other characters.
pub fn check_prefix(what: &str, prefix: &str) -> Result<(), HttpError> {
    let digits = prefix.chars().filter(|c| *c != '-').count();
    if prefix.is_empty() || (digits.is_multiple_of(2) && prefix.chars().all(|c| c == '-' || c.is_ascii_hexdigit())) {
        return Ok(());
    }
    let reason = if digits.is_multiple_of(2) {
        "Invalid UUID: only hex digits and hyphens are allowed"
    } else {
        "Input (without hyphens) must be even length"
    };
    Err(HttpError::internal(format!("{what} lookup failed: index error: {reason}")))
}

/// Adds empty texts for fields that the wire form leaves out, so that a filter may name them.
pub fn filled(mut value: serde_json::Value, names: &[&str]) -> serde_json::Value {
    if let serde_json::Value::Object(fields) = &mut value {
        for name in names {
            fields.entry((*name).to_string()).or_insert_with(|| serde_json::Value::String(String::new()));
        }
    }
    value
}
