//! The driver trait and the set of a node's drivers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::schema::ConfigError;
use crate::stats::TaskStats;
use crate::streams::{ExecInput, ExecOutput, ExecSpec};
use crate::types::{DriverNetwork, ExitResult, Handle, TaskSpec};

/// What the file system of a driver's tasks is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsIsolation {
    /// The host's; paths in the environment are host paths.
    None,
    /// A root made from host directories.
    Chroot,
    /// An image's.
    Image,
}

/// What a driver can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Signals can be sent.
    pub send_signals: bool,
    /// Commands can be run beside the task.
    pub exec: bool,
    /// File system.
    pub fs_isolation: FsIsolation,
    /// Volumes can be mounted.
    pub mounts: bool,
    /// The driver makes the group's network namespace itself.
    pub initiates_network: bool,
}

/// Whether a driver can be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Not on this host; no attributes are published.
    Undetected,
    /// Here, but not working.
    Unhealthy,
    /// Ready.
    Healthy,
}

/// What a driver finds on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// Whether it can be used.
    pub health: Health,
    /// Why, in words.
    pub description: String,
    /// Node attributes, among them `driver.<name>`.
    pub attributes: BTreeMap<String, String>,
}

impl Fingerprint {
    /// Not on this host.
    pub fn undetected(why: impl Into<String>) -> Fingerprint {
        Fingerprint { health: Health::Undetected, description: why.into(), attributes: BTreeMap::new() }
    }
    /// Here, but not working.
    pub fn unhealthy(why: impl Into<String>) -> Fingerprint {
        Fingerprint { health: Health::Unhealthy, description: why.into(), attributes: BTreeMap::new() }
    }
    /// Ready, with `driver.<name>` set.
    pub fn healthy(name: &str) -> Fingerprint {
        let attributes = BTreeMap::from([(format!("driver.{name}"), "1".to_owned())]);
        Fingerprint { health: Health::Healthy, description: "Healthy".to_owned(), attributes }
    }
    /// True unless undetected.
    pub fn detected(&self) -> bool {
        self.health != Health::Undetected
    }
    /// True if healthy.
    pub fn healthy_now(&self) -> bool {
        self.health == Health::Healthy
    }
}

/// A task could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError {
    /// Trying again may help.
    pub recoverable: bool,
    /// Why.
    pub message: String,
}

impl StartError {
    /// Trying again will not help.
    pub fn fatal(message: impl Into<String>) -> StartError {
        StartError { recoverable: false, message: message.into() }
    }
    /// Trying again may help.
    pub fn recoverable(message: impl Into<String>) -> StartError {
        StartError { recoverable: true, message: message.into() }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StartError {}

/// A stored handle could not be taken up again. What it had left is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoverError {
    /// Nothing was ever started for it: start it.
    NeverStarted,
    /// It ran, and nobody knows how it ended.
    Lost(String),
    /// It cannot be told now.
    Unknown(String),
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::NeverStarted => f.write_str("the task was not started"),
            RecoverError::Lost(why) | RecoverError::Unknown(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RecoverError {}

/// An operation on a task failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverError {
    /// The task is over.
    NotRunning,
    /// Anything else.
    Failed(String),
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::NotRunning => f.write_str("Task not running"),
            DriverError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DriverError {}

/// A command could not be run beside a task.
pub type ExecError = DriverError;

/// A task driver.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Its name in job files.
    fn name(&self) -> &'static str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Looks at the host.
    async fn fingerprint(&self) -> Fingerprint;

    /// Checks a task's `config` block. Needs no host, so that job files can be
    /// checked offline; strings that still hold `${…}` pass where their value
    /// would.
    ///
    /// # Errors
    /// Every unknown key, missing key and wrong type.
    fn check_config(&self, config: &serde_json::Value) -> Result<(), ConfigError>;

    /// The handle of a start before it happens. No side effect.
    fn handle(&self, spec: &TaskSpec) -> Option<Handle> {
        let key = spec.key.clone()?;
        Some(Handle { driver: self.name().to_owned(), key, pid: 0, started_ns: 0, data: serde_json::Value::Null })
    }

    /// Starts a task. A second start with the same key is the first one
    /// returned, also when it has ended.
    async fn start(&self, spec: TaskSpec) -> Result<(Handle, Option<DriverNetwork>), StartError>;

    /// Takes up a start of an earlier agent, running or ended.
    async fn recover(&self, handle: &Handle) -> Result<(), RecoverError>;

    /// Until the task has ended. May be called by several and again.
    async fn wait(&self, handle: &Handle) -> ExitResult;

    /// Sends `signal` (empty: the driver's default), waits up to `timeout`,
    /// kills what is left. Done when the task has ended.
    async fn stop(&self, handle: &Handle, timeout: Duration, signal: &str) -> Result<(), DriverError>;

    /// Sends a signal by name.
    async fn signal(&self, handle: &Handle, signal: &str) -> Result<(), DriverError>;

    /// Removes the last trace of an ended task; with `force` ends it first.
    async fn destroy(&self, handle: &Handle, force: bool) -> Result<(), DriverError>;

    /// What the task uses now.
    async fn stats(&self, handle: &Handle) -> Result<TaskStats, DriverError>;

    /// Runs a command beside the task and returns its exit code. The sender of
    /// `input` is kept until then, also after [`ExecInput::Close`]: when it is
    /// dropped the caller is gone, and the command is ended; so it is when the
    /// returned future is dropped.
    async fn exec(
        &self,
        handle: &Handle,
        spec: ExecSpec,
        input: mpsc::Receiver<ExecInput>,
        output: mpsc::Sender<ExecOutput>,
    ) -> Result<i32, ExecError>;
}

/// A node's drivers by name.
#[derive(Clone, Default)]
pub struct Drivers {
    by_name: BTreeMap<&'static str, Arc<dyn Driver>>,
}

impl Drivers {
    /// None.
    pub fn new() -> Drivers {
        Drivers::default()
    }
    /// Adds one; a later one of the same name takes its place.
    pub fn add(&mut self, driver: Arc<dyn Driver>) {
        self.by_name.insert(driver.name(), driver);
    }
    /// The driver of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Driver>> {
        self.by_name.get(name)
    }
    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Driver>> {
        self.by_name.values()
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}
