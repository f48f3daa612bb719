//! The crate against the reference tables laid beside the repository.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is all test code")]

mod constraints;
mod cron;
mod filter;

use std::path::PathBuf;

/// The folder of reference tables: `HERDSMAN_SHARED`, or `shared` beside the repository.
fn shared(file: &str) -> String {
    let root = std::env::var_os("HERDSMAN_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = root.join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; set HERDSMAN_SHARED to the folder of reference tables", path.display())
    })
}
