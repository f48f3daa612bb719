//! Task events as typed facts. Display texts and the peer's flat fields are derived when an event is encoded.

use crate::values::{Name, Nanos};
use serde::{Deserialize, Serialize};

/// One thing that happened to a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// When it happened, nanoseconds since the Unix epoch.
    pub time: Nanos,
    /// What happened.
    #[serde(flatten)]
    pub fact: TaskFact,
}

/// What happened to a task. Names follow the peer's event types (`compat/lifecycle.md` section 7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact")]
pub enum TaskFact {
    /// The node took the task on.
    Received,
    /// A step of preparing the task.
    TaskSetup { message: String },
    /// Preparing the allocation or task failed; fails the task.
    SetupFailure { error: String },
    /// The driver could not start or lost the task.
    DriverFailure { error: String },
    /// A message of the driver (an image is being pulled).
    Driver { message: String },
    /// The task's configuration was refused; fails the task.
    FailedValidation { error: String },
    /// The task runs.
    Started,
    /// The task ended by itself or by a signal.
    Terminated { exit_code: i32, signal: i32, message: String, oom_killed: bool },
    /// The task is about to be ended: by the kill sequence with this much time, or for a reason.
    Killing { reason: String, kill_timeout: Nanos, fails_task: bool },
    /// The kill sequence ended; `error` is empty when it went well.
    Killed { error: String },
    /// The task will be started again after a delay.
    Restarting { reason: String, delay: Nanos },
    /// The task will not be started again; fails the task.
    NotRestarting { reason: String },
    /// Somebody asked for a restart.
    RestartSignaled { reason: String },
    /// A signal is being delivered.
    Signaling { signal: String, reason: String },
    /// Artifacts are being fetched.
    DownloadingArtifacts,
    /// An artifact could not be fetched.
    FailedArtifactDownload { error: String },
    /// The task used more disk than it may.
    DiskExceeded { limit_bytes: i64, message: String },
    /// Another task of the group failed.
    SiblingFailed { task: Name },
    /// The leader task ended.
    LeaderDead,
    /// Every main task ended.
    MainDead,
    /// A hook of the task failed.
    HookFailed { hook: String, error: String },
    /// A hook says something.
    HookMessage { message: String },
    /// The task could not be found again after an agent restart.
    FailedRestore { error: String },
    /// The plugin that this task runs became healthy.
    PluginHealthy { message: String },
    /// The plugin that this task runs became unhealthy.
    PluginUnhealthy { message: String },
    /// The node is back in touch with its servers.
    Reconnected,
    /// The task waits for its shutdown delay before it is ended.
    WaitingShutdownDelay { delay: Nanos },
    /// The shutdown delay was skipped on request.
    SkippingShutdownDelay,
    /// A template says something (missing dependencies, a failed render).
    Template { message: String, fails_task: bool },
    /// The allocation was found unhealthy.
    AllocUnhealthy { message: String },
    /// A poststop task could not run; says why (additive to the peer).
    PoststopNotRun { reason: String },
    /// This many events between the first and the last kept ones were counted instead of kept (additive).
    EventsElided { count: u64 },
}

impl TaskFact {
    /// Whether this fact makes its task failed. Source: `compat/lifecycle.md` section 4, last paragraph.
    pub fn fails_task(&self) -> bool {
        match self {
            TaskFact::SetupFailure { .. } | TaskFact::FailedValidation { .. } | TaskFact::NotRestarting { .. } => true,
            TaskFact::Killing { fails_task, .. } | TaskFact::Template { fails_task, .. } => *fails_task,
            _ => false,
        }
    }
}

/// Events kept from the start of a run of a task.
pub const EVENTS_KEPT_FIRST: usize = 10;
/// Events kept from the end of a run of a task.
pub const EVENTS_KEPT_LAST: usize = 50;
