//! The stages of one task, and what each event does to them.
//!
//! ```text
//! Waiting ─gate─► Hooks ─► Starting ─► Running ─► (ShutdownDelay ─► Stopping) ─► Dead
//!    ▲                                    │                             │
//!    └────────────── Delay ◄── restart ───┴─────────────────────────────┘
//! ```

use crate::kill;
use crate::message::{Command, Event, Exit, Out, Recovery};
use crate::restart::{self, Ended, Verdict};
use crate::state::{Ending, Key, Setup, Stage, State, StopCause, TaskRecord};
use herdsman_model::{Name, Nanos, TaskFact, TaskRole};

/// Applies one event; its consequences for other tasks follow in [`crate::step`].
pub(crate) fn apply(state: &mut State, event: Event, now: Nanos, jitter: u64, out: &mut Out) {
    match event {
        Event::Begin => begin(state, now, out),
        Event::Respec(spec) => state.spec = spec,
        Event::Stop { reason, no_shutdown_delay } => stop(state, reason, no_shutdown_delay, now, out),
        Event::SkipShutdownDelays => {
            state.alloc.no_shutdown_delay = true;
            out.record();
        }
        Event::SetupDone => setup_done(state, out),
        Event::SetupFailed { error, dir_built } => setup_failed(state, &error, dir_built, now, out),
        Event::HooksDone { task, key } => hooks_done(state, &task, key, out),
        Event::HooksFailed { task, key, fact, recoverable } => {
            let ended = Ended::StartError { recoverable };
            start_failed(state, &task, (key, Stage::Hooks), fact, ended, Clock { now, jitter }, out);
        }
        Event::Note { task, fact } => {
            if let Some(record) = state.tasks.get_mut(&task) {
                record.note(fact, now);
                out.touch(&task);
                out.publish(false);
            }
        }
        Event::Started { task, key } => started(state, &task, key, now, out),
        Event::StartFailed { task, key, fact, recoverable } => {
            let ended = Ended::StartError { recoverable };
            start_failed(state, &task, (key, Stage::Starting), fact, ended, Clock { now, jitter }, out);
        }
        Event::StartSkipped { task, key } => back_to_gate(state, &task, key, now, out),
        Event::Exited { task, key, exit } => exited(state, &task, key, &exit, Clock { now, jitter }, out),
        Event::Recovered { task, key, found } => recovered(state, &task, key, found, Clock { now, jitter }, out),
        Event::Tick => tick(state, now, out),
        Event::Restart { scope, reason } => restart::request(state, scope, reason, now, out),
        Event::CheckFailed { task, reason } => check_failed(state, &task, reason, now, out),
        Event::StopTask { task, reason, fails_task } => stop_task(state, &task, reason, fails_task, now, out),
        Event::Contacted => state.alloc.await_contact = false,
        Event::Reconnected => {
            for (name, task) in &mut state.tasks {
                task.note(TaskFact::Reconnected, now);
                out.touch(name);
                out.publish(true);
            }
        }
        Event::PostrunDone => {
            state.alloc.postrun_done = true;
            out.record();
        }
    }
}

/// Time and randomness of one step.
#[derive(Clone, Copy)]
struct Clock {
    now: Nanos,
    jitter: u64,
}

/// The record of a task if this start of it is the current one.
fn current<'a>(state: &'a mut State, task: &str, key: Key) -> Option<&'a mut TaskRecord> {
    state.tasks.get_mut(task).filter(|record| record.key == key)
}

fn begin(state: &mut State, now: Nanos, out: &mut Out) {
    for (name, task) in &mut state.tasks {
        task.tracker.start = now;
        task.note(TaskFact::Received, now);
        out.touch(name);
    }
    out.publish(false);
    out.now(Command::RunSetup);
}

fn stop(state: &mut State, reason: String, no_shutdown_delay: bool, now: Nanos, out: &mut Out) {
    state.alloc.no_shutdown_delay |= no_shutdown_delay;
    out.record();
    if state.alloc.stop.is_none() {
        state.alloc.stop = Some(StopCause { reason, time: now });
    }
}

fn setup_done(state: &mut State, out: &mut Out) {
    if state.alloc.setup == Setup::Pending && !state.all_dead() {
        state.alloc.setup = Setup::Done;
        if state.spec.has_services && !state.stopping() && state.alloc.services == crate::GroupServices::On {
            out.durably(Command::RegisterGroup);
        }
    }
}

/// Nothing can run. Tasks that were adopted after an agent restart are ended like others.
fn setup_failed(state: &mut State, error: &str, dir_built: bool, now: Nanos, out: &mut Out) {
    if state.alloc.setup != Setup::Pending || state.all_dead() {
        return;
    }
    state.alloc.setup = Setup::Failed { dir_built };
    let stopping = state.stopping();
    for name in state.names(|role, task| role != TaskRole::Poststop && task.stage != Stage::Dead) {
        let Some(task) = state.tasks.get_mut(&name) else { continue };
        if !stopping {
            task.note(TaskFact::SetupFailure { error: format!("failed to setup alloc: {error}") }, now);
        }
        out.touch(&name);
        out.publish(true);
    }
}

fn hooks_done(state: &mut State, name: &Name, key: Key, out: &mut Out) {
    let Some(task) = current(state, name, key) else { return };
    if task.stage == Stage::Hooks {
        task.stage = Stage::Starting;
        task.prepared = true;
        out.touch(name);
        out.durably(Command::Start { task: Name::clone(name), key });
    }
}

/// Hooks or driver failed: the restart policy decides.
fn start_failed(
    state: &mut State,
    name: &Name,
    (key, stage): (Key, Stage),
    fact: TaskFact,
    ended: Ended,
    clock: Clock,
    out: &mut Out,
) {
    let Some(task) = current(state, name, key) else { return };
    if task.stage != stage || task.recovering {
        return;
    }
    // A fact that would fail the task by itself must not take the decision from the policy.
    task.note(fact, clock.now);
    task.state.failed = false;
    out.touch(name);
    out.publish(true);
    over(state, name, ended, clock);
}

fn started(state: &mut State, name: &Name, key: Key, now: Nanos, out: &mut Out) {
    let Some(task) = current(state, name, key) else { return };
    if task.stage != Stage::Starting {
        return;
    }
    task.recovering = false;
    task.stage = Stage::Running;
    task.has_started = true;
    task.note(TaskFact::Started, now);
    task.show(now);
    out.touch(name);
    out.publish(true);
    out.durably(Command::RegisterTask { task: Name::clone(name) });
}

/// A start that was asked for is not carried out.
fn back_to_gate(state: &mut State, name: &Name, key: Key, now: Nanos, out: &mut Out) {
    let Some(task) = current(state, name, key) else { return };
    if task.stage != Stage::Starting || task.recovering {
        return;
    }
    if task.ending == Some(Ending::Kill) {
        kill::bury(name, task, now, out);
    } else {
        task.stage = Stage::Waiting;
        task.ending = None;
        out.touch(name);
        out.record();
    }
}

fn exited(state: &mut State, name: &Name, key: Key, exit: &Exit, clock: Clock, out: &mut Out) {
    let Some(task) = current(state, name, key) else { return };
    if !task.stage.has_process() {
        return;
    }
    if task.stage == Stage::Starting {
        // It ran before anybody heard that it had started.
        task.has_started = true;
        task.stage = Stage::Running;
        task.note(TaskFact::Started, clock.now);
        task.show(clock.now);
    }
    task.recovering = false;
    let Exit { exit_code, signal, oom_killed, .. } = *exit;
    let message = exit.message.clone();
    task.note(TaskFact::Terminated { exit_code, signal, message, oom_killed }, clock.now);
    if task.ending.is_none() || task.stage == Stage::Running {
        out.now(Command::DeregisterTask { task: Name::clone(name) });
    }
    out.touch(name);
    out.publish(true);
    over(state, name, if exit.success() { Ended::Success } else { Ended::Failure }, clock);
}

/// A task has no process any more: it is dead, or started again.
fn over(state: &mut State, name: &Name, ended: Ended, clock: Clock) {
    let role = state.role(name);
    let stopping = role != TaskRole::Poststop && state.stopping();
    let (restarting_all, batch) = (state.alloc.restarting == Some(true), state.spec.batch);
    let policy = state.spec.tasks.get(name).map(|rules| rules.restart.clone()).unwrap_or_default();
    let Some(task) = state.tasks.get_mut(name) else { return };
    let now = clock.now;
    let ending = task.ending.take();
    let killed = ending == Some(Ending::Kill);
    if killed || stopping {
        // Only a process that the kill sequence reached was killed.
        if killed && !matches!(ended, Ended::StartError { .. }) {
            task.note(TaskFact::Killed { error: String::new() }, now);
        }
        task.stage = Stage::Dead;
        task.show(now);
        return;
    }
    let verdict = match ending {
        Some(Ending::Restart { failure: false, .. }) => Verdict::Again { delay: 0, reason: String::new() },
        Some(Ending::Restart { failure: true, reason }) => {
            match restart::decide(&policy, true, &mut task.tracker, Ended::Failure, now, clock.jitter) {
                Verdict::Again { delay, .. } => Verdict::Again { delay, reason },
                verdict => verdict,
            }
        }
        _ => {
            let on_success = restart::restarts_on_success(role, batch);
            restart::decide(&policy, on_success, &mut task.tracker, ended, now, clock.jitter)
        }
    };
    match verdict {
        Verdict::Done => task.stage = Stage::Dead,
        Verdict::GiveUp { reason } => {
            task.note(TaskFact::NotRestarting { reason }, now);
            task.stage = Stage::Dead;
        }
        Verdict::Again { delay, reason } => {
            task.note(TaskFact::Restarting { reason, delay }, now);
            task.stage = if delay > 0 { Stage::Delay { until: now.saturating_add(delay) } } else { Stage::Waiting };
            task.has_started &= !restarting_all;
        }
    }
    task.show(now);
}

fn recovered(state: &mut State, name: &Name, key: Key, found: Recovery, clock: Clock, out: &mut Out) {
    // After a reboot prestart tasks go first.
    let may_start = state.may_start(name, key) && !state.alloc.rebooted;
    let Some(task) = current(state, name, key) else { return };
    if !task.recovering {
        return;
    }
    task.recovering = false;
    match (found, task.stage) {
        (Recovery::Alive, Stage::Starting) => started(state, name, key, clock.now, out),
        (Recovery::Alive, Stage::Running) => out.durably(Command::RegisterTask { task: Name::clone(name) }),
        (Recovery::Alive, Stage::Stopping) => kill::signal(state, name, out),
        (Recovery::Alive, _) => {}
        (Recovery::NotStarted, Stage::Starting) if may_start => {
            out.durably(Command::Start { task: Name::clone(name), key });
        }
        (Recovery::NotStarted, Stage::Starting) => back_to_gate(state, name, key, clock.now, out),
        (Recovery::Exited(exit), _) => exited(state, name, key, &exit, clock, out),
        (Recovery::NotStarted, _) => lost(state, name, "the driver does not know the task", clock, out),
        (Recovery::Lost { error }, _) => lost(state, name, &error, clock, out),
    }
}

/// A task that ran before the agent restart is gone. It is started again, if the policy says so, only once the servers
/// were heard: they may have replaced it.
fn lost(state: &mut State, name: &Name, error: &str, clock: Clock, out: &mut Out) {
    let Some(task) = state.tasks.get_mut(name) else { return };
    task.note(TaskFact::FailedRestore { error: error.to_string() }, clock.now);
    out.touch(name);
    out.publish(true);
    state.alloc.await_contact = true;
    over(state, name, Ended::Failure, clock);
}

fn tick(state: &mut State, now: Nanos, out: &mut Out) {
    for (name, task) in &mut state.tasks {
        if let Stage::Delay { until } = task.stage
            && until <= now
        {
            task.stage = Stage::Waiting;
            out.touch(name);
        }
    }
}

fn check_failed(state: &mut State, name: &Name, reason: String, now: Nanos, out: &mut Out) {
    let ready = !state.stopping()
        && state.alloc.restarting.is_none()
        && state.tasks.get(name).is_some_and(|t| t.stage == Stage::Running && t.ending.is_none() && !t.recovering);
    if ready {
        kill::begin(state, name, Ending::Restart { reason, failure: true }, now, out);
    }
}

/// Ends one task for good.
fn stop_task(state: &mut State, name: &Name, reason: String, fails_task: bool, now: Nanos, out: &mut Out) {
    let kill_timeout = state.spec.tasks.get(name).map_or(0, |rules| rules.kill_timeout);
    let Some(task) = state.tasks.get_mut(name) else { return };
    if task.stage == Stage::Dead || task.recovering {
        return;
    }
    task.note(TaskFact::Killing { reason, kill_timeout, fails_task }, now);
    out.touch(name);
    out.publish(true);
    match task.stage {
        Stage::Running => {
            task.ending = Some(Ending::Kill);
            out.now(Command::DeregisterTask { task: Name::clone(name) });
            kill::signal(state, name, out);
        }
        stage if stage.has_process() => task.ending = Some(Ending::Kill),
        _ => kill::bury(name, task, now, out),
    }
}
