//! Ending tasks: why, and in which order.
//!
//! First the group's services are deregistered and its shutdown delay passes. Then leaders are signalled; once they are
//! dead the other tasks, and once no main or poststart task is left, sidecars. A task that has no process is dead at
//! once. Poststop tasks are not touched.

use crate::message::{Command, Out};
use crate::state::{Ending, GroupServices, KillCause, Setup, Stage, State, TaskRecord};
use herdsman_model::{Name, Nanos, TaskFact, TaskRole};

/// Status text of an allocation that ran into its limit.
pub(crate) const MAX_RUN_TEXT: &str = "allocation exceeded max_run_duration";

/// Notes the first reason there is to end all tasks but poststop.
pub(crate) fn note_causes(state: &mut State, now: Nanos, out: &mut Out) {
    if state.alloc.kill.is_some() {
        return;
    }
    let Some(cause) = find_cause(state, now) else { return };
    let fact = match &cause {
        KillCause::SiblingFailed { task } => Some(TaskFact::SiblingFailed { task: Name::clone(task) }),
        KillCause::LeaderDead => Some(TaskFact::LeaderDead),
        KillCause::MainDead => Some(TaskFact::MainDead),
        KillCause::Stopped | KillCause::MaxRunDuration | KillCause::SetupFailed => None,
    };
    state.alloc.kill = Some(cause);
    state.alloc.restarting = None;
    out.record();
    let Some(fact) = fact else { return };
    for name in state.names(|role, task| role != TaskRole::Poststop && task.stage != Stage::Dead) {
        if let Some(task) = state.tasks.get_mut(&name) {
            task.note(fact.clone(), now);
            out.touch(&name);
            out.publish(false);
        }
    }
}

fn find_cause(state: &State, now: Nanos) -> Option<KillCause> {
    if state.alloc.stop.is_some() {
        return Some(KillCause::Stopped);
    }
    if matches!(state.alloc.setup, Setup::Failed { .. }) {
        return Some(KillCause::SetupFailed);
    }
    if state.work_over() {
        return None;
    }
    if state.spec.run_deadline().is_some_and(|deadline| deadline <= now) {
        return Some(KillCause::MaxRunDuration);
    }
    let dead = || state.workers().filter(|(_, _, task)| task.stage == Stage::Dead);
    let leads = |name: &Name| state.spec.tasks.get(name).is_some_and(|rules| rules.leader);
    if dead().any(|(name, _, task)| leads(name) && !task.state.failed) {
        return Some(KillCause::LeaderDead);
    }
    if let Some((name, _, _)) = dead().find(|(_, _, task)| task.state.failed) {
        return Some(KillCause::SiblingFailed { task: Name::clone(name) });
    }
    // The work is not over, so some task lives: here none of them but sidecars.
    let only_sidecars = state.workers().all(|(_, role, task)| role.is_sidecar() || task.stage == Stage::Dead);
    only_sidecars.then_some(KillCause::MainDead)
}

/// Carries the kill order on. Gives whether anything changed.
pub(crate) fn progress(state: &mut State, now: Nanos, out: &mut Out) -> bool {
    let mut changed = end_delays(state, now, out) | signal_marked(state, out);
    if state.alloc.kill.is_none() {
        return changed;
    }
    withdraw_starts(state, out);
    changed |= bury_processless(state, now, out);
    let live = state.names(|role, task| role != TaskRole::Poststop && task.stage.has_process());
    if !deregistered(state, !live.is_empty(), now, out) {
        return changed;
    }
    for name in wave(state, &live) {
        let ready = state.tasks.get(&name).is_some_and(|task| !task.recovering && task.ending != Some(Ending::Kill));
        if ready && state.tasks.get(&name).is_some_and(|task| task.stage != Stage::Starting) {
            begin(state, &name, Ending::Kill, now, out);
            changed = true;
        }
    }
    changed
}

/// Starts that this same step asked for are not given out once the allocation is being ended.
fn withdraw_starts(state: &mut State, out: &mut Out) {
    for name in state.names(|role, task| role != TaskRole::Poststop && task.stage == Stage::Starting) {
        if out.withdraw_start(&name)
            && let Some(task) = state.tasks.get_mut(&name)
        {
            task.stage = Stage::Waiting;
        }
    }
}

/// A task that was told to end while it was being started is signalled once it runs.
fn signal_marked(state: &mut State, out: &mut Out) -> bool {
    let marked =
        state.names(|_, task| task.stage == Stage::Running && task.ending == Some(Ending::Kill) && !task.recovering);
    for name in &marked {
        out.now(Command::DeregisterTask { task: Name::clone(name) });
        signal(state, name, out);
    }
    !marked.is_empty()
}

/// Tasks without a process are dead as soon as the allocation is being ended.
fn bury_processless(state: &mut State, now: Nanos, out: &mut Out) -> bool {
    let names = state.names(|role, task| {
        role != TaskRole::Poststop && !task.stage.has_process() && task.stage != Stage::Dead && !task.recovering
    });
    let fact = (state.alloc.kill != Some(KillCause::SetupFailed)).then(|| killing_reason(state));
    for name in &names {
        let kill_timeout = state.spec.tasks.get(name).map_or(0, |rules| rules.kill_timeout);
        let Some(task) = state.tasks.get_mut(name) else { continue };
        if let Some(reason) = &fact {
            task.note(TaskFact::Killing { reason: reason.clone(), kill_timeout, fails_task: false }, now);
        }
        bury(name, task, now, out);
    }
    !names.is_empty()
}

/// A task without a process becomes dead.
pub(crate) fn bury(name: &Name, task: &mut TaskRecord, now: Nanos, out: &mut Out) {
    if task.stage == Stage::Hooks {
        out.now(Command::CancelHooks { task: Name::clone(name) });
    }
    task.stage = Stage::Dead;
    task.ending = None;
    task.show(now);
    out.touch(name);
    out.publish(true);
}

fn killing_reason(state: &State) -> String {
    if state.alloc.kill == Some(KillCause::MaxRunDuration) { MAX_RUN_TEXT.to_string() } else { String::new() }
}

/// Takes the group's services off and waits its shutdown delay where there is something to wait for. Gives whether
/// tasks may be signalled.
pub(crate) fn deregistered(state: &mut State, any_process: bool, now: Nanos, out: &mut Out) -> bool {
    if state.alloc.services == GroupServices::On {
        if state.spec.has_services {
            out.now(Command::DeregisterGroup);
        }
        let wait = any_process && state.spec.shutdown_delay > 0 && !state.alloc.no_shutdown_delay;
        let until = now.saturating_add(state.spec.shutdown_delay);
        state.alloc.services = if wait { GroupServices::Delay { until } } else { GroupServices::Off };
        out.record();
    }
    if let GroupServices::Delay { until } = state.alloc.services
        && (until <= now || !any_process || state.alloc.no_shutdown_delay)
    {
        state.alloc.services = GroupServices::Off;
        out.record();
    }
    state.alloc.services == GroupServices::Off
}

/// Which of the live tasks are to be signalled now.
pub(crate) fn wave(state: &State, live: &[Name]) -> Vec<Name> {
    let pick = |keep: &dyn Fn(&Name) -> bool| live.iter().filter(|name| keep(name)).cloned().collect::<Vec<_>>();
    let leaders = pick(&|name| state.spec.tasks.get(name).is_some_and(|rules| rules.leader));
    if !leaders.is_empty() {
        return leaders;
    }
    let serves = |name: &Name| matches!(state.role(name), TaskRole::Main | TaskRole::Poststart);
    if live.iter().any(serves) {
        return pick(&|name| !state.role(name).is_sidecar());
    }
    live.to_vec()
}

/// Begins to end a task that has a process: services off, shutdown delay, then the kill sequence.
pub(crate) fn begin(state: &mut State, name: &Name, ending: Ending, now: Nanos, out: &mut Out) {
    let reason = killing_reason(state);
    let skip_delay = state.alloc.no_shutdown_delay;
    let Some(rules) = state.spec.tasks.get(name) else { return };
    let (kill_timeout, delay) = (rules.kill_timeout, rules.shutdown_delay);
    let Some(task) = state.tasks.get_mut(name) else { return };
    out.touch(name);
    out.publish(false);
    match &ending {
        Ending::Kill => task.note(TaskFact::Killing { reason, kill_timeout, fails_task: false }, now),
        Ending::Restart { reason, .. } => task.note(TaskFact::RestartSignaled { reason: reason.clone() }, now),
    }
    task.ending = Some(ending);
    if task.stage != Stage::Running {
        return;
    }
    out.now(Command::DeregisterTask { task: Name::clone(name) });
    if delay > 0 && !skip_delay {
        task.note(TaskFact::WaitingShutdownDelay { delay }, now);
        task.stage = Stage::ShutdownDelay { until: now.saturating_add(delay) };
    } else {
        signal(state, name, out);
    }
}

/// The kill sequence of a task begins.
pub(crate) fn signal(state: &mut State, name: &Name, out: &mut Out) {
    let Some(rules) = state.spec.tasks.get(name) else { return };
    let (signal, timeout) = (rules.kill_signal.clone(), rules.kill_timeout);
    let Some(task) = state.tasks.get_mut(name) else { return };
    task.stage = Stage::Stopping;
    out.touch(name);
    out.durably(Command::Kill { task: Name::clone(name), key: task.key, signal, timeout });
}

/// Signals the tasks whose shutdown delay is over or no longer wanted.
fn end_delays(state: &mut State, now: Nanos, out: &mut Out) -> bool {
    let skip = state.alloc.no_shutdown_delay;
    let mut changed = false;
    for name in state.names(|_, task| matches!(task.stage, Stage::ShutdownDelay { .. }) && !task.recovering) {
        let Some(task) = state.tasks.get_mut(&name) else { continue };
        let Stage::ShutdownDelay { until } = task.stage else { continue };
        if until > now && !skip {
            continue;
        }
        if until > now {
            task.note(TaskFact::SkippingShutdownDelay, now);
            out.publish(false);
        }
        signal(state, &name, out);
        changed = true;
    }
    changed
}
