//! The recorded state of an allocation's lifecycle.

use crate::gates::Gates;
use crate::spec::GroupSpec;
use herdsman_model::{ClientStatus, Name, Nanos, Outcome, TaskPhase, TaskRole, TaskState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names one start of a task within an allocation. Every side effect carries it, so that none happens twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Which run of the allocation; a restart of the whole allocation after it failed begins a new one.
    pub run: u32,
    /// Which start of the task within the run, from 1.
    pub attempt: u32,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// Waits for its gate.
    #[default]
    Waiting,
    /// Its hooks run.
    Hooks,
    /// Its start is recorded and asked for.
    Starting,
    /// Its process runs.
    Running,
    /// Its services are off; it is signalled at `until`.
    ShutdownDelay { until: Nanos },
    /// It is being ended by the kill sequence.
    Stopping,
    /// Started again at `until`.
    Delay { until: Nanos },
    /// Over, with no restart left.
    Dead,
}

impl Stage {
    /// A process may exist, so nothing may take its place.
    pub fn has_process(self) -> bool {
        matches!(self, Stage::Starting | Stage::Running | Stage::ShutdownDelay { .. } | Stage::Stopping)
    }

    /// The state that people see.
    pub fn phase(self) -> TaskPhase {
        match self {
            Stage::Waiting | Stage::Hooks | Stage::Starting | Stage::Delay { .. } => TaskPhase::Pending,
            Stage::Running | Stage::ShutdownDelay { .. } | Stage::Stopping => TaskPhase::Running,
            Stage::Dead => TaskPhase::Dead,
        }
    }
}

/// Why a task is being ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum Ending {
    /// For good.
    Kill,
    /// To be started again. A `failure` counts against the restart policy.
    Restart { reason: String, failure: bool },
}

/// The restart policy's memory: recorded, so that an agent restart does not forgive failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracker {
    /// When the current interval began.
    pub start: Nanos,
    /// Ends counted in it.
    pub count: u64,
}

/// What is recorded of one task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskRecord {
    pub key: Key,
    #[serde(flatten)]
    pub stage: Stage,
    /// Set while the task is being ended.
    pub ending: Option<Ending>,
    pub tracker: Tracker,
    /// It has been running since the gates were last closed.
    pub has_started: bool,
    /// Its directory has been built.
    pub set_up: bool,
    /// Its hooks have been through once: what they fetched and rendered is there, also in later runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prepared: bool,
    /// What is told of it.
    pub state: TaskState,
    /// The driver has not yet said what became of it after an agent restart.
    #[serde(skip)]
    pub recovering: bool,
}

/// Preparing the allocation as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "setup", rename_all = "snake_case")]
pub enum Setup {
    #[default]
    Pending,
    Done,
    /// `dir_built`: the allocation directory is there, so poststop tasks can run.
    Failed {
        dir_built: bool,
    },
}

/// Why the servers, or the node itself, want the allocation stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopCause {
    /// Shown in the status while poststop runs: "job stopped", "allocation is migrating".
    pub reason: String,
    pub time: Nanos,
}

/// Why all tasks but poststop are being ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum KillCause {
    Stopped,
    MaxRunDuration,
    SiblingFailed { task: Name },
    LeaderDead,
    MainDead,
    SetupFailed,
}

/// Registration of the group's services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "services", rename_all = "snake_case")]
pub enum GroupServices {
    #[default]
    On,
    /// Deregistered; tasks are signalled from `until` on.
    Delay {
        until: Nanos,
    },
    Off,
}

/// What is recorded of the allocation as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocRecord {
    pub run: u32,
    pub setup: Setup,
    pub stop: Option<StopCause>,
    pub kill: Option<KillCause>,
    pub services: GroupServices,
    /// Shutdown delays are skipped.
    pub no_shutdown_delay: bool,
    /// Tasks are being ended to be started again; `true`: from prestart on.
    pub restarting: Option<bool>,
    /// The host was rebooted: prestart tasks run again once it is known what became of the others.
    pub rebooted: bool,
    pub outcome: Option<Outcome>,
    pub status: ClientStatus,
    pub description: String,
    /// What follows the last task has been done.
    pub postrun_done: bool,
    /// Lost tasks are not started again before the servers were heard.
    #[serde(skip)]
    pub await_contact: bool,
}

/// The state of an allocation: its rules and what is recorded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub spec: Arc<GroupSpec>,
    pub alloc: AllocRecord,
    pub tasks: BTreeMap<Name, TaskRecord>,
}

impl State {
    /// The state of an allocation that was just received.
    pub fn new(spec: Arc<GroupSpec>) -> State {
        let tasks = spec.tasks.keys().map(|name| (Name::clone(name), TaskRecord::default())).collect();
        State { spec, alloc: AllocRecord::default(), tasks }
    }

    /// The role of a task; one that the job no longer has counts as main.
    pub fn role(&self, task: &str) -> TaskRole {
        self.spec.tasks.get(task).map_or(TaskRole::Main, |rules| rules.role)
    }

    /// Tasks other than poststop, with their roles.
    pub fn workers(&self) -> impl Iterator<Item = (&Name, TaskRole, &TaskRecord)> {
        self.tasks
            .iter()
            .map(|(name, task)| (name, self.role(name), task))
            .filter(|(_, role, _)| *role != TaskRole::Poststop)
    }

    /// Poststop tasks.
    pub fn cleaners(&self) -> impl Iterator<Item = (&Name, &TaskRecord)> {
        self.tasks.iter().filter(|(name, _)| self.role(name) == TaskRole::Poststop)
    }

    /// Every task but poststop is dead with no restart left.
    pub fn work_over(&self) -> bool {
        self.workers().all(|(_, _, task)| task.stage == Stage::Dead)
    }

    /// Every task is dead.
    pub fn all_dead(&self) -> bool {
        self.tasks.values().all(|task| task.stage == Stage::Dead)
    }

    /// No task but poststop may start any more in this run.
    pub fn stopping(&self) -> bool {
        self.alloc.kill.is_some() || self.alloc.stop.is_some()
    }

    /// Names of the tasks that `keep` accepts.
    pub(crate) fn names(&self, keep: impl Fn(TaskRole, &TaskRecord) -> bool) -> Vec<Name> {
        self.tasks
            .iter()
            .filter(|(name, task)| keep(self.role(name), task))
            .map(|(name, _)| Name::clone(name))
            .collect()
    }

    /// Whether the start that `key` names may still be carried out. The shell asks right before it does so: an
    /// allocation may have become known to be stopping since the command was given, and the gate may have closed (an
    /// agent restart found an earlier task gone).
    pub fn may_start(&self, task: &str, key: Key) -> bool {
        self.tasks.get(task).is_some_and(|record| {
            record.stage == Stage::Starting
                && record.key == key
                && record.ending.is_none()
                && (self.role(task) == TaskRole::Poststop || !self.stopping())
                && Gates::of(self).open(self.role(task))
        })
    }

    /// When [`crate::Event::Tick`] has something to do next, if ever.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let run = if self.alloc.kill.is_none() && !self.work_over() { self.spec.run_deadline() } else { None };
        let group = match self.alloc.services {
            GroupServices::Delay { until } => Some(until),
            GroupServices::On | GroupServices::Off => None,
        };
        let tasks = self.tasks.values().filter_map(|task| match task.stage {
            Stage::ShutdownDelay { until } | Stage::Delay { until } => Some(until),
            _ => None,
        });
        tasks.chain(run).chain(group).min()
    }
}
