//! The HTTP API: routes to operations.
//!
//! Architecture invariant: reads are pure functions of a snapshot and a request.

pub mod answer;
pub mod error;
pub mod paging;
pub mod reads;
pub mod request;
pub mod route;
