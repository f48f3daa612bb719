//! What the lifecycle needs to know of a job: taken from the task group once per version.

use herdsman_model::{JobType, Name, Nanos, RestartPolicy, TaskGroup, TaskRole};
use std::collections::BTreeMap;

/// The rules of one allocation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupSpec {
    pub tasks: BTreeMap<Name, TaskRules>,
    /// Main tasks that exit with success are done (batch, sysbatch) instead of being started again.
    pub batch: bool,
    /// When the allocation was created; `max_run_duration` counts from here.
    pub create_time: Nanos,
    /// The work is ended this long after creation.
    pub max_run_duration: Option<Nanos>,
    /// Time between deregistering the group's services and the first signal.
    pub shutdown_delay: Nanos,
    /// The group has services of its own.
    pub has_services: bool,
}

/// The rules of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRules {
    pub role: TaskRole,
    pub leader: bool,
    pub restart: RestartPolicy,
    /// Time between the kill signal and the forced end, already cut to the node's maximum.
    pub kill_timeout: Nanos,
    pub kill_signal: String,
    /// Time between deregistering the task's services and the kill signal.
    pub shutdown_delay: Nanos,
}

impl GroupSpec {
    /// The rules that a task group sets. `max_kill_timeout` is the node's (0: none).
    pub fn new(kind: JobType, group: &TaskGroup, create_time: Nanos, max_kill_timeout: Nanos) -> GroupSpec {
        let tasks = group.tasks.iter().map(|task| {
            let limit = if max_kill_timeout > 0 { max_kill_timeout } else { Nanos::MAX };
            let rules = TaskRules {
                role: task.role(),
                leader: task.leader,
                restart: task.restart_policy.clone(),
                kill_timeout: task.kill_timeout.clamp(0, limit),
                kill_signal: task.kill_signal.clone(),
                shutdown_delay: task.shutdown_delay.max(0),
            };
            (Name::from(task.name.as_str()), rules)
        });
        GroupSpec {
            tasks: tasks.collect(),
            batch: kind.is_batch(),
            create_time,
            max_run_duration: group.max_run_duration.filter(|d| *d > 0),
            shutdown_delay: group.shutdown_delay.unwrap_or(0).max(0),
            has_services: !group.services.is_empty(),
        }
    }

    /// When the work is ended, if the group sets a limit.
    pub fn run_deadline(&self) -> Option<Nanos> {
        self.max_run_duration.map(|limit| self.create_time.saturating_add(limit))
    }
}
