//! The nouns of the system and their wire form: jobs, allocations, task states and events, nodes, evaluations,
//! deployments, plans; their canonical form, validation, difference and derived status.
//!
//! | module | holds |
//! |---|---|
//! | `job`, `alloc`, `node`, `eval`, `deployment`, `plan`, `resources`, `event` | the nouns |
//! | [`spec`] | the submitted form of a job: one table of fields, reading, canonical form, the way to the typed job |
//! | `job::admit` | what the servers add on registration |
//! | [`validate`] | every rule of a job, with errors and warnings |
//! | [`gate`] | what a job asks for that is not acted on yet, by one table of decisions |
//! | [`diff`] | the difference of two versions; `job::changes` tells a new version and a replacement |
//! | [`record`] | which task events are kept |
//! | [`wire`] | the JSON of the API |
//!
//! The path of a job: [`spec::normalize`], [`spec::canonicalize`], [`gate::gate_spec`], [`Job::from_spec_with_words`],
//! [`admit`], [`validate::validate_words`].
//!
//! This crate owns no task, no channel and no clock.
//!
//! Architecture invariant: nothing here does IO, reads a clock or draws a random number.
//! Architecture invariant: an allocation refers to its job by (namespace, id, version) and never carries a copy of it.
//! Architecture invariant: task events are typed facts; the texts people read are derived when an event is encoded.

pub mod alloc;
pub mod deployment;
pub mod diff;
pub mod eval;
pub mod event;
pub mod gate;
pub mod ids;
pub mod job;
pub mod node;
pub mod plan;
pub mod record;
pub mod resources;
pub mod spec;
pub mod validate;
pub mod values;
pub mod wire;

pub use alloc::*;
pub use deployment::*;
pub use eval::*;
pub use event::*;
pub use ids::*;
pub use job::*;
pub use node::*;
pub use plan::*;
pub use record::push_event;
pub use resources::*;
pub use values::{List, Map, Name, Nanos, duration_text, instant_text, time_text};
