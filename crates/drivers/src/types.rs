//! What a driver is told, and what it answers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Names one start of one task: the same key is the same start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StartKey {
    /// The allocation.
    pub alloc_id: String,
    /// The task.
    pub task: String,
    /// Which run of the allocation.
    pub run: u32,
    /// Which attempt in that run.
    pub attempt: u32,
}

impl StartKey {
    pub(crate) fn shim(&self) -> herdsman_shim::StartKey {
        let StartKey { alloc_id, task, run, attempt } = self.clone();
        herdsman_shim::StartKey { alloc_id, task, run, attempt }
    }
    /// The key as one file name.
    pub fn file_name(&self) -> String {
        self.shim().file_name()
    }
}

/// Names a start for its driver in a later life of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handle {
    /// Name of the driver.
    pub driver: String,
    /// The start.
    pub key: StartKey,
    /// Process id of the task, 0 before it is known or where there is none.
    #[serde(default)]
    pub pid: u32,
    /// Unix time of the start in nanoseconds, 0 before it is known.
    #[serde(default)]
    pub started_ns: u64,
    /// The driver's own.
    #[serde(default)]
    pub data: serde_json::Value,
}

/// Directories of a task, absolute host paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskDirs {
    /// `<alloc_dir>/<alloc id>`.
    pub alloc_dir: PathBuf,
    /// `<alloc_dir>/<alloc id>/alloc`, shared by the group's tasks.
    pub shared: PathBuf,
    /// `<alloc_dir>/<alloc id>/<task>`.
    pub task_dir: PathBuf,
    /// `local` in it.
    pub local: PathBuf,
    /// `secrets` in it.
    pub secrets: PathBuf,
    /// `alloc/logs` in the shared one.
    pub logs: PathBuf,
}

/// What a task may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskResources {
    /// MHz, which count as shares.
    pub cpu_shares: u64,
    /// Reserved cores.
    pub cores: Vec<u16>,
    /// Megabytes.
    pub memory_mb: u64,
    /// Megabytes it may rise to, 0 for `memory_mb`, -1 for no limit.
    pub memory_max_mb: i64,
    /// MHz of the whole node, for drivers that need a share of it.
    pub node_cpu_mhz: u64,
}

impl TaskResources {
    /// The hard memory limit and the reservation, in megabytes, 0 for none.
    pub(crate) fn memory(&self) -> (u64, u64) {
        match u64::try_from(self.memory_max_mb) {
            Err(_) => (0, self.memory_mb),
            Ok(max) if max > self.memory_mb => (max, self.memory_mb),
            Ok(_) => (self.memory_mb, 0),
        }
    }
}

/// How the output of a task is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// Files kept per stream.
    pub max_files: u32,
    /// Megabytes per file.
    pub max_file_size_mb: u32,
    /// Keep no output.
    pub disabled: bool,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings { max_files: 10, max_file_size_mb: 10, disabled: false }
    }
}

/// How mounts made later spread between host and task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Propagation {
    /// Not at all.
    #[default]
    Private,
    /// From the host into the task.
    HostToTask,
    /// Both ways.
    Bidirectional,
}

impl Propagation {
    /// From the words of a job file; anything else is private.
    pub fn from_mode(mode: &str) -> Propagation {
        match mode {
            "host-to-task" => Propagation::HostToTask,
            "bidirectional" => Propagation::Bidirectional,
            _ => Propagation::Private,
        }
    }
}

/// A host path shown to the task (volumes and the like).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// On the host.
    pub host_path: PathBuf,
    /// In the task.
    pub task_path: String,
    /// Not writable.
    pub readonly: bool,
    /// How later mounts spread.
    pub propagation: Propagation,
}

/// A device shown to the task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// On the host.
    pub host_path: String,
    /// In the task.
    pub task_path: String,
    /// Some of `rwm`.
    pub permissions: String,
}

/// A port of the group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Port {
    /// Its label.
    pub label: String,
    /// Address on the host.
    pub host_ip: String,
    /// Port on the host.
    pub host_port: u16,
    /// Port in the task, 0 for the host's.
    pub to: u16,
}

/// Name resolution of the group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dns {
    /// Servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

/// Something the driver tells while starting (event type `Driver`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverEvent {
    /// Text.
    pub message: String,
    /// Details.
    pub details: BTreeMap<String, String>,
}

/// Takes [`DriverEvent`]s; must not block.
#[derive(Clone)]
pub struct EventSink(pub Arc<dyn Fn(DriverEvent) + Send + Sync>);

impl EventSink {
    /// Tells an event.
    pub fn tell(&self, message: &str, details: &[(&str, &str)]) {
        let details = details.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        (self.0)(DriverEvent { message: message.to_owned(), details });
    }
}

impl Default for EventSink {
    fn default() -> EventSink {
        EventSink(Arc::new(|_| {}))
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}

/// Everything a driver needs to start a task.
#[derive(Debug, Clone, Default)]
pub struct TaskSpec {
    /// The start.
    pub key: Option<StartKey>,
    /// Name of the allocation.
    pub alloc_name: String,
    /// Id of the job.
    pub job_id: String,
    /// Name of the job.
    pub job_name: String,
    /// Namespace of the job.
    pub namespace: String,
    /// Name of the group.
    pub group: String,
    /// Id of the node.
    pub node_id: String,
    /// Name of the node.
    pub node_name: String,
    /// The task's `config` block, interpolated.
    pub config: serde_json::Value,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Its `user`, empty for the driver's default.
    pub user: String,
    /// Its directories.
    pub dirs: TaskDirs,
    /// What it may use.
    pub resources: TaskResources,
    /// How its output is kept.
    pub log: LogSettings,
    /// Its `kill_signal`, empty for the driver's default.
    pub kill_signal: String,
    /// Volumes.
    pub mounts: Vec<Mount>,
    /// Devices.
    pub devices: Vec<Device>,
    /// Ports of the group.
    pub ports: Vec<Port>,
    /// Name resolution of the group.
    pub dns: Option<Dns>,
    /// Network namespace of the group, a path.
    pub network_namespace: Option<PathBuf>,
    /// Host name wanted by the group's network.
    pub hostname: String,
    /// Unix time in nanoseconds at which the task's shim ends it without being
    /// told, and the time from signal to kill.
    pub deadline: Option<(u64, std::time::Duration)>,
    /// Where the driver tells what it is doing.
    pub events: EventSink,
}

/// The address of a task that has its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverNetwork {
    /// Label to port in the task.
    pub port_map: BTreeMap<String, u16>,
    /// Address.
    pub ip: String,
    /// Services advertise this address by default.
    pub auto_advertise: bool,
}

/// How a task ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitResult {
    /// Exit code; 128 plus the signal if one ended it.
    pub exit_code: i32,
    /// Signal that ended it, or 0.
    pub signal: i32,
    /// Ended, or lost a process, for want of memory.
    pub oom_killed: bool,
    /// Why the end is not known, or what else went wrong.
    pub err: Option<String>,
    /// Bytes of output that could not be kept.
    #[serde(default)]
    pub lost_output: u64,
    /// Unix time of the end in nanoseconds, 0 if not known.
    #[serde(default)]
    pub finished_ns: u64,
}

impl ExitResult {
    /// An end nobody saw.
    pub fn unknown(why: impl Into<String>) -> ExitResult {
        ExitResult { exit_code: -1, err: Some(why.into()), ..ExitResult::default() }
    }
    /// Ended well.
    pub fn success(&self) -> bool {
        self.exit_code == 0 && self.signal == 0 && self.err.is_none()
    }
}
