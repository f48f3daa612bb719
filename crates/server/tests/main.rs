//! Tests of a server with simulated nodes.

#![allow(clippy::unwrap_used, clippy::panic)]
