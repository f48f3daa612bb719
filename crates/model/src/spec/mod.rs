//! The submitted form of a job, as JSON: reading, canonical form, and the way to the typed job.
//!
//! The path of every job, from a job file or from JSON: [`normalize()`] (full form), [`canonicalize()`] (defaults),
//! [`crate::job::Job::from_spec`] (typed), then validation and what the servers add.

mod canonical;
mod normalize;
mod schema;
mod table;
mod table_mesh;
mod typed;

pub use canonical::canonicalize;
pub use normalize::{MAX_DEPTH, MAX_VALUES, SpecError, SpecErrors, normalize, wrong_type};
pub use schema::{Default as FieldDefault, Field, Kind, Presence, Shape};
pub use table::*;
pub use table_mesh::*;
pub use typed::UnknownWords;
