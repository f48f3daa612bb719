//! The closed sets of words that jobs use, and questions every reader of a job asks.

use crate::job::{Job, Task, TaskGroup};
use crate::values::Nanos;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What kind of work a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobType {
    /// Runs until stopped.
    #[default]
    Service,
    /// Runs to its end.
    Batch,
    /// Runs on every node until stopped.
    System,
    /// Runs once to its end on every node.
    Sysbatch,
    /// The servers' own work.
    #[serde(rename = "_core")]
    Core,
}

impl JobType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            JobType::Service => "service",
            JobType::Batch => "batch",
            JobType::System => "system",
            JobType::Sysbatch => "sysbatch",
            JobType::Core => "_core",
        }
    }

    /// Whether its allocations are expected to end by themselves.
    pub fn is_batch(self) -> bool {
        matches!(self, JobType::Batch | JobType::Sysbatch)
    }

    /// Whether it runs on every feasible node.
    pub fn is_system(self) -> bool {
        matches!(self, JobType::System | JobType::Sysbatch)
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    #[default]
    Pending,
    Running,
    Dead,
}

impl JobStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            JobStatus::Pending => "pending",
            JobStatus::Running => "running",
            JobStatus::Dead => "dead",
        }
    }
}

/// When a task runs relative to the main tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    #[default]
    Prestart,
    Poststart,
    Poststop,
}

/// The role of a task within its allocation: the one word the lifecycle decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaskRole {
    /// Runs and ends before the main tasks start.
    Prestart,
    /// Starts before the main tasks and ends after them.
    PrestartSidecar,
    Main,
    /// Runs once after every main task has started.
    Poststart,
    /// Starts after the main tasks have started and ends after them.
    PoststartSidecar,
    /// Runs after every other task is dead.
    Poststop,
}

impl Task {
    /// The role that the lifecycle block gives this task. The sidecar flag of a poststop task has no effect.
    pub fn role(&self) -> TaskRole {
        match &self.lifecycle {
            None => TaskRole::Main,
            Some(l) => match (l.hook, l.sidecar) {
                (Hook::Prestart, false) => TaskRole::Prestart,
                (Hook::Prestart, true) => TaskRole::PrestartSidecar,
                (Hook::Poststart, false) => TaskRole::Poststart,
                (Hook::Poststart, true) => TaskRole::PoststartSidecar,
                (Hook::Poststop, _) => TaskRole::Poststop,
            },
        }
    }
}

impl TaskRole {
    /// Whether the task lives beside the main tasks until they are dead.
    pub fn is_sidecar(self) -> bool {
        matches!(self, TaskRole::PrestartSidecar | TaskRole::PoststartSidecar)
    }
}

impl TaskGroup {
    /// The task of this name.
    pub fn task(&self, name: &str) -> Option<&Arc<Task>> {
        self.tasks.iter().find(|t| t.name == name)
    }

    /// How long servers wait before an unreachable allocation is lost; zero when the group does not ask for it.
    pub fn lost_after(&self) -> Nanos {
        self.disconnect.as_ref().map(|d| d.lost_after).or(self.max_client_disconnect).unwrap_or(0)
    }
}

impl Job {
    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<&Arc<TaskGroup>> {
        self.task_groups.iter().find(|g| g.name == name)
    }

    /// Whether this job only launches others by a schedule.
    pub fn is_periodic(&self) -> bool {
        self.periodic.is_some()
    }

    /// Whether this periodic job is enabled and not stopped.
    pub fn is_periodic_active(&self) -> bool {
        self.periodic.as_ref().is_some_and(|p| p.enabled) && !self.stop && !self.is_parameterized()
    }

    /// Whether this job only launches others by dispatch (a dispatched child is not).
    pub fn is_parameterized(&self) -> bool {
        self.parameterized_job.is_some() && !self.dispatched
    }

    /// Whether the user wants none of it to run.
    pub fn is_stopped(&self) -> bool {
        self.stop
    }
}
