//! The replicated state machine: tables, secondary indexes, commands and stored snapshots.
//!
//! - [`Store`] holds the tables. [`Store::apply`] applies a [`Command`] and gives an [`Outcome`]: the index (raised by one
//!   per command, also by a refused one), a [`Reply`] or [`Refusal`] (HTTP code and the text clients match), and the
//!   [`Change`]s. [`Store::apply_stored`] does the same with a command's stored bytes ([`Command::encode`]).
//! - [`Snapshot`] is the tables at one index: cheap to clone, with every question readers ask
//!   (`job`, `jobs_by_prefix`, `job_versions`, `alloc_job`, `allocs_by_job`/`node`/`eval`/`deployment`/`prefix`,
//!   `evals_by_job`, `latest_deployment`, `nodes`, `job_summary`, `job_submission`, `services_by_name`, `table_index`…).
//! - [`WatchKey`] names what a blocking reader waits for; [`Change::keys`] gives the keys of a change.
//! - [`Snapshot::write_to`] and [`Store::read_from`] are the stored form.
//!
//! Derived while applying: job status, summaries, deployment progress and health, evaluations that follow from what nodes
//! say and from nodes coming and going, blocked evaluations that become superfluous, kept job versions.
//!
//! This crate owns no task and no channel.
//!
//! Architecture invariant: nothing here does IO of its own, reads a clock or draws a random number; identifiers made while
//! applying follow from the seed in the command ([`IdSeed`]), time is the command's and never goes back.
//! Architecture invariant: the same commands give byte-identical stored snapshots on every server.
//! Architecture invariant: what the API calls an index is the counter in here, never the log's.
//! Architecture invariant: task states and events of an allocation are only ever added to.
//! Architecture invariant: a job version is kept as long as an allocation refers to it.

mod apply;
mod check;
mod codec;
mod command;
mod link;
mod packed;
mod rows;
mod snapshot;
mod store;
mod stored;
mod table;
mod txn;

pub use apply::reschedule_eligible;
pub use codec::*;
pub use command::*;
pub use rows::*;
pub use snapshot::{Snapshot, id_range};
pub use store::{Outcome, Store};
pub use stored::{BadSnapshot, MAX_RECORD_BYTES, SNAPSHOT_MAGIC, SNAPSHOT_VERSION};
pub use table::{Change, Row, TABLES, Table, WatchKey};
