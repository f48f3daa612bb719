//! Going on after the agent was restarted: what is to be done follows from the recorded state alone.

use crate::message::{Command, Out};
use crate::spec::GroupSpec;
use crate::state::{AllocRecord, Setup, Stage, State, TaskRecord};
use crate::status;
use herdsman_model::{Name, Nanos};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state as it was recorded. A task of which nothing was recorded is one that has not begun.
pub fn restore(spec: Arc<GroupSpec>, alloc: AllocRecord, tasks: BTreeMap<Name, TaskRecord>) -> State {
    let mut state = State { spec, alloc, tasks };
    for name in state.spec.tasks.keys() {
        state.tasks.entry(Name::clone(name)).or_default();
    }
    state
}

/// What has to be done to go on: hooks that ran are run again, what may have a process is looked for, preparation is
/// made sure of. Finished tasks are not touched, except that prestart tasks run again after a reboot of the host
/// (`rebooted`), which may have taken what they made. Call it once, right after [`restore`].
pub fn resume(state: &mut State, rebooted: bool, now: Nanos) -> Vec<Command> {
    let mut out = Out::default();
    if state.all_dead() {
        if !state.alloc.postrun_done {
            status::finish(state, &mut out);
        }
        return out.into_commands();
    }
    if !matches!(state.alloc.setup, Setup::Failed { .. }) {
        state.alloc.setup = Setup::Pending;
        out.now(Command::RunSetup);
    }
    state.alloc.rebooted |= rebooted;
    for (name, task) in &mut state.tasks {
        if task.stage.has_process() {
            task.recovering = true;
            out.now(Command::Recover { task: Name::clone(name), key: task.key });
        } else if task.stage == Stage::Hooks && rebooted {
            // Prestart tasks go first.
            task.stage = Stage::Waiting;
        } else if task.stage == Stage::Hooks {
            out.now(Command::RunHooks { task: Name::clone(name), key: task.key });
        }
    }
    crate::settle(state, now, &mut out);
    out.into_commands()
}
