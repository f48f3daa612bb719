//! What goes in and what comes out.

use crate::spec::GroupSpec;
use crate::state::Key;
use herdsman_model::{Name, Nanos, TaskFact};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How a process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exit {
    pub exit_code: i32,
    pub signal: i32,
    pub oom_killed: bool,
    /// What the driver says of it; an error of the driver makes the end a failure.
    pub message: String,
    /// The driver could not tell how it ended.
    pub error: bool,
}

impl Exit {
    /// Exit code 0, no signal, no error.
    pub fn success(&self) -> bool {
        self.exit_code == 0 && self.signal == 0 && !self.error
    }
}

/// What the driver found of a task after an agent restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovery {
    /// It runs.
    Alive,
    /// Its start was recorded but never carried out.
    NotStarted,
    /// It ran and cannot be found; nothing of it is left.
    Lost { error: String },
    /// It ended while nobody looked.
    Exited(Exit),
}

/// Which tasks a restart in place is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartScope {
    Task(Name),
    /// Those with a process.
    Running,
    /// Everything again from prestart.
    All,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The allocation was received.
    Begin,
    /// The servers changed the job in place.
    Respec(Arc<GroupSpec>),
    /// The allocation is to stop.
    Stop { reason: String, no_shutdown_delay: bool },
    /// Shutdown delays that run are cut short.
    SkipShutdownDelays,
    /// The allocation is prepared.
    SetupDone,
    /// The allocation could not be prepared.
    SetupFailed { error: String, dir_built: bool },
    /// The hooks of a task are done.
    HooksDone { task: Name, key: Key },
    /// A hook of a task failed; `fact` says which.
    HooksFailed { task: Name, key: Key, fact: TaskFact, recoverable: bool },
    /// A driver or hook says something that is to be kept.
    Note { task: Name, fact: TaskFact },
    /// The process runs.
    Started { task: Name, key: Key },
    /// The driver could not start it; `fact` says why.
    StartFailed { task: Name, key: Key, fact: TaskFact, recoverable: bool },
    /// The start was not carried out because [`crate::State::may_start`] no longer allowed it.
    StartSkipped { task: Name, key: Key },
    /// The process ended.
    Exited { task: Name, key: Key, exit: Exit },
    /// The answer to [`Command::Recover`].
    Recovered { task: Name, key: Key, found: Recovery },
    /// Time passed; at the latest due at [`crate::State::next_deadline`].
    Tick,
    /// Somebody asked for a restart in place, and [`crate::restart::refuse`] had no objection.
    Restart { scope: RestartScope, reason: String },
    /// A check asks for a restart, which counts as a failure.
    CheckFailed { task: Name, reason: String },
    /// One task is to be ended for good, poststop ones too.
    StopTask { task: Name, reason: String, fails_task: bool },
    /// The servers were heard since the agent started.
    Contacted,
    /// The node is back in touch after the servers had given it up.
    Reconnected,
    /// What follows the last task is done.
    PostrunDone,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    /// Prepare the allocation; answer with `SetupDone` or `SetupFailed`.
    RunSetup,
    /// Preparing is no longer wanted.
    CancelSetup,
    /// Run the hooks of a task; answer with `HooksDone` or `HooksFailed`.
    RunHooks {
        task: Name,
        key: Key,
    },
    /// The hooks of a task are no longer wanted.
    CancelHooks {
        task: Name,
    },
    DeregisterGroup,
    DeregisterTask {
        task: Name,
    },
    /// Make the recorded state of these tasks, and of the allocation, durable before going on.
    Persist {
        tasks: Vec<Name>,
    },
    /// Find out what became of a task; answer with `Recovered`.
    Recover {
        task: Name,
        key: Key,
    },
    /// Start the process, once [`crate::State::may_start`] was asked again; answer with `Started`, `StartFailed` or
    /// `StartSkipped`, later with `Exited`.
    Start {
        task: Name,
        key: Key,
    },
    /// End the process: the signal, then after `timeout` by force; answer with `Exited`.
    Kill {
        task: Name,
        key: Key,
        signal: String,
        timeout: Nanos,
    },
    RegisterGroup,
    RegisterTask {
        task: Name,
    },
    /// Tell the servers. `urgent`: the status changed or a task ended.
    Publish {
        urgent: bool,
    },
    /// Every task is dead: undo the preparation (not the directory); answer with `PostrunDone`.
    RunPostrun,
}

/// Collects the commands of one step and what changed in it.
#[derive(Default)]
pub(crate) struct Out {
    before: Vec<Command>,
    after: Vec<Command>,
    dirty: BTreeSet<Name>,
    record: bool,
    publish: Option<bool>,
}

impl Out {
    /// To be begun at once.
    pub fn now(&mut self, command: Command) {
        self.before.push(command);
    }

    /// To be begun once the state is durable.
    pub fn durably(&mut self, command: Command) {
        self.record = true;
        self.after.push(command);
    }

    /// Takes back the start of a task that this step asked for. Gives whether there was one.
    pub fn withdraw_start(&mut self, name: &Name) -> bool {
        let before = self.after.len();
        self.after.retain(|command| !matches!(command, Command::Start { task, .. } if task == name));
        self.after.len() != before
    }

    /// The task changed.
    pub fn touch(&mut self, task: &Name) {
        self.dirty.insert(Name::clone(task));
    }

    /// What people see changed.
    pub fn publish(&mut self, urgent: bool) {
        self.record = true;
        self.publish = Some(self.publish.unwrap_or(false) | urgent);
    }

    /// The state must be recorded, whether or not anything follows from it.
    pub fn record(&mut self) {
        self.record = true;
    }

    /// The commands in order.
    pub fn into_commands(self) -> Vec<Command> {
        let mut commands = self.before;
        if self.record {
            commands.push(Command::Persist { tasks: self.dirty.into_iter().collect() });
        }
        commands.extend(self.after);
        if let Some(urgent) = self.publish {
            commands.push(Command::Publish { urgent });
        }
        commands
    }
}
