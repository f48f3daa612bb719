//! Task drivers: what a task's `driver` names. Each is a [`Driver`]; a node
//! holds them in [`Drivers`].
//!
//! `raw_exec` and `exec` start processes through the shim (`herdsman-shim`), so
//! tasks outlive the agent; `docker` uses the container engine; `mock_driver`
//! runs nothing and is for tests and simulation.
//!
//! The order a node keeps: [`Driver::handle`] (no side effect), store the
//! handle, [`Driver::start`], store the handle it returned. After a restart of
//! the node [`Driver::recover`] with whichever was stored, then
//! [`Driver::wait`]. At the end [`Driver::destroy`], which removes the last
//! trace.
//!
//! Tasks and channels: [`Driver::exec`] moves bytes in the caller's task; the
//! docker driver owns one task per container that copies its log, one per image
//! that is being pulled, one per connection to the engine, and one that removes
//! what nobody needs; nothing else is spawned.
//!
//! Architecture invariant: knows no job, no allocation and no policy; all it
//! needs is in [`TaskSpec`].
//! Architecture invariant: never runs a task less isolated than its driver
//! says: a host that cannot isolate makes the driver undetected.

mod config;
mod docker;
mod driver;
mod exec;
mod executor;
mod mock;
mod process;
mod raw_exec;
mod schema;
pub mod signals;
mod stats;
mod streams;
mod types;
mod users;

pub use docker::{DanglingOptions, DockerDriver, DockerOptions};
pub use driver::{
    Capabilities, Driver, DriverError, Drivers, ExecError, Fingerprint, FsIsolation, Health, RecoverError, StartError,
};
pub use exec::{ExecDriver, ExecOptions};
pub use executor::Executor;
pub use mock::MockDriver;
pub use raw_exec::{RawExecDriver, RawExecOptions};
pub use schema::ConfigError;
pub use stats::{CpuUsage, MemoryUsage, TaskStats, Usage};
pub use streams::{ExecInput, ExecOutput, ExecSpec};
pub use types::{
    Device, Dns, DriverEvent, DriverNetwork, EventSink, ExitResult, Handle, LogSettings, Mount, Port, Propagation,
    StartKey, TaskDirs, TaskResources, TaskSpec,
};
pub use users::user_ids;
