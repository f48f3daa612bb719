//! The coordinator: which roles may start.
//!
//! The gates are a pure function of what is recorded of the tasks, so they open and close any number of times and do not
//! depend on the path by which a state was reached:
//!
//! | gate | open when |
//! |---|---|
//! | prestart, prestart sidecar | some task that is not poststop is not dead |
//! | main | besides, every prestart task ended well and every prestart sidecar has started |
//! | poststart, poststart sidecar | besides, every main task has started or is dead |
//! | poststop | every other task is dead |

use crate::message::{Command, Out};
use crate::state::{Key, Setup, Stage, State, TaskRecord};
use herdsman_model::{Name, Nanos, TaskFact, TaskRole};

/// Which roles may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    pub prestart: bool,
    pub main: bool,
    pub poststart: bool,
    pub poststop: bool,
}

impl Gates {
    /// The gates as the states of the tasks put them.
    pub fn of(state: &State) -> Gates {
        if state.work_over() {
            return Gates { prestart: false, main: false, poststart: false, poststop: true };
        }
        let main = state.workers().all(|(_, role, task)| match role {
            TaskRole::Prestart => task.stage == Stage::Dead && !task.state.failed,
            TaskRole::PrestartSidecar => task.has_started,
            _ => true,
        });
        let begun = |task: &TaskRecord| task.has_started || task.stage == Stage::Dead;
        let poststart = main && state.workers().all(|(_, role, task)| role != TaskRole::Main || begun(task));
        Gates { prestart: true, main, poststart, poststop: false }
    }

    /// Whether a role may start.
    pub fn open(self, role: TaskRole) -> bool {
        match role {
            TaskRole::Prestart | TaskRole::PrestartSidecar => self.prestart,
            TaskRole::Main => self.main,
            TaskRole::Poststart | TaskRole::PoststartSidecar => self.poststart,
            TaskRole::Poststop => self.poststop,
        }
    }
}

/// Whether anything but its gate keeps a waiting task from being started.
fn allowed(state: &State, role: TaskRole, task: &TaskRecord) -> bool {
    if task.recovering || state.alloc.await_contact {
        return false;
    }
    if role == TaskRole::Poststop {
        return matches!(state.alloc.setup, Setup::Done | Setup::Failed { dir_built: true });
    }
    let held = state.alloc.restarting.is_some() || state.alloc.rebooted;
    !held && !state.stopping() && state.alloc.setup == Setup::Done
}

/// Sends waiting tasks through their open gates. Gives whether anything changed.
pub(crate) fn progress(state: &mut State, now: Nanos, out: &mut Out) -> bool {
    let gates = Gates::of(state);
    let unbuilt = state.alloc.setup == Setup::Failed { dir_built: false };
    let waiting = state.names(|role, task| task.stage == Stage::Waiting && gates.open(role));
    let mut changed = false;
    for name in waiting {
        let role = state.role(&name);
        let may = state.tasks.get(&name).is_some_and(|task| allowed(state, role, task));
        let run = state.alloc.run;
        let Some(task) = state.tasks.get_mut(&name) else { continue };
        if may {
            pass(&name, task, run, now, out);
            changed = true;
        } else if unbuilt && role == TaskRole::Poststop {
            let reason = "the allocation directory could not be built".to_string();
            task.note(TaskFact::PoststopNotRun { reason }, now);
            task.stage = Stage::Dead;
            task.show(now);
            out.touch(&name);
            out.publish(true);
            changed = true;
        }
    }
    changed
}

/// A task goes through its gate: a new attempt begins with its hooks.
fn pass(name: &Name, task: &mut TaskRecord, run: u32, now: Nanos, out: &mut Out) {
    let attempt = if task.key.run == run { task.key.attempt.saturating_add(1) } else { 1 };
    task.key = Key { run, attempt };
    task.stage = Stage::Hooks;
    out.touch(name);
    if !task.set_up {
        task.set_up = true;
        task.note(TaskFact::TaskSetup { message: "Building Task Directory".into() }, now);
        out.publish(false);
    }
    out.now(Command::RunHooks { task: Name::clone(name), key: task.key });
}
