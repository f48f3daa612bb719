//! Real processes under real shims.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod support;

mod ending;
mod logs;
mod starting;
