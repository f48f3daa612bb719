//! The API as clients see it: requests through the real service, over connections in memory, to a real server.

#![allow(clippy::unwrap_used, clippy::panic)]

mod answers;
mod connections;
mod goldens;
mod nodes;
mod operations;
mod support;
