//! The replicated log as its users see it, on simulated and real disks.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;
mod machine;
mod single;
