//! Starting tasks again: by the restart policy after they ended, or in place because somebody asked.

use crate::kill;
use crate::message::{Command, Out, RestartScope};
use crate::state::{AllocRecord, Ending, GroupServices, Setup, Stage, State, TaskRecord, Tracker};
use crate::text::go_duration;
use herdsman_model::{ClientStatus, Name, Nanos, RestartPolicy, TaskPhase, TaskRole};

/// How a task ended, as far as the policy asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Success,
    Failure,
    /// It did not start.
    StartError {
        recoverable: bool,
    },
}

/// What the policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is done, and well.
    Done,
    /// It is not started again, and that is a failure.
    GiveUp { reason: String },
    /// It is started again after `delay`.
    Again { delay: Nanos, reason: String },
}

/// Whether a task that exits with success is started again.
pub fn restarts_on_success(role: TaskRole, batch: bool) -> bool {
    match role {
        TaskRole::Main => !batch,
        TaskRole::PrestartSidecar | TaskRole::PoststartSidecar => true,
        TaskRole::Prestart | TaskRole::Poststart | TaskRole::Poststop => false,
    }
}

/// Asks the policy about a task that ended by itself. Up to a quarter of the delay is added by `jitter`.
pub fn decide(
    policy: &RestartPolicy,
    on_success: bool,
    tracker: &mut Tracker,
    ended: Ended,
    now: Nanos,
    jitter: u64,
) -> Verdict {
    let done = ended == Ended::Success && !on_success;
    if policy.attempts <= 0 {
        return if done { Verdict::Done } else { Verdict::GiveUp { reason: "Policy allows no restarts".into() } };
    }
    if now > tracker.start.saturating_add(policy.interval) {
        *tracker = Tracker { start: now, count: 0 };
    }
    tracker.count = tracker.count.saturating_add(1);
    if ended == (Ended::StartError { recoverable: false }) {
        return Verdict::GiveUp { reason: "Error was unrecoverable".into() };
    }
    if done {
        return Verdict::Done;
    }
    if tracker.count <= policy.attempts.unsigned_abs() {
        return Verdict::Again { delay: spread(policy.delay, jitter), reason: "Restart within policy".into() };
    }
    if policy.mode == "delay" {
        let end = tracker.start.saturating_add(policy.interval);
        // The restart at the end of the interval is the first of the next one.
        *tracker = Tracker { start: end, count: 1 };
        let delay = end.saturating_sub(now).max(0);
        return Verdict::Again { delay, reason: "Exceeded allowed attempts, applying a delay".into() };
    }
    let (attempts, interval) = (policy.attempts, go_duration(policy.interval));
    Verdict::GiveUp {
        reason: format!(r#"Exceeded allowed attempts {attempts} in interval {interval} and mode is "fail""#),
    }
}

/// `delay` and up to a quarter of it more.
fn spread(delay: Nanos, jitter: u64) -> Nanos {
    const STEPS: u64 = 1 << 20;
    let quarter = i128::from(delay.max(0) / 4);
    let extra = quarter * i128::from(jitter % STEPS) / i128::from(STEPS);
    delay.max(0).saturating_add(Nanos::try_from(extra).unwrap_or(0))
}

/// Why a restart in place cannot be done now, in the words that clients match.
pub fn refuse(state: &State, scope: &RestartScope) -> Option<String> {
    let stopping = || Some("allocation is stopping; its tasks cannot be restarted".to_string());
    if state.tasks.values().any(|task| task.recovering) {
        return Some("the agent has just been restarted and still looks for the tasks; try again".to_string());
    }
    match scope {
        RestartScope::Task(name) => match state.tasks.get(name) {
            None => Some(format!("Could not find task runner for task: {name}")),
            Some(task) => match task.stage {
                Stage::Running | Stage::Delay { .. } if task.ending.is_none() => {
                    if state.stopping() && state.role(name) != TaskRole::Poststop { stopping() } else { None }
                }
                _ => Some("Task not running".to_string()),
            },
        },
        RestartScope::Running if state.stopping() => stopping(),
        RestartScope::Running => None,
        RestartScope::All if state.alloc.stop.is_some() => stopping(),
        RestartScope::All if state.all_dead() => match state.alloc.status {
            ClientStatus::Failed => None,
            _ => Some("allocation is complete; run the job again instead of restarting it".to_string()),
        },
        RestartScope::All if state.work_over() => Some(
            "the work of the allocation is over and its poststop tasks run; it cannot be restarted now".to_string(),
        ),
        RestartScope::All if state.stopping() => stopping(),
        RestartScope::All => None,
    }
}

/// Begins a restart in place that [`refuse`] has no objection to.
pub(crate) fn request(state: &mut State, scope: RestartScope, reason: String, now: Nanos, out: &mut Out) {
    if refuse(state, &scope).is_some() {
        return;
    }
    out.record();
    let ending = Ending::Restart { reason, failure: false };
    match scope {
        RestartScope::Task(name) => match state.tasks.get_mut(&name) {
            Some(task) if matches!(task.stage, Stage::Delay { .. }) => cut_delay(&name, task, &ending, now, out),
            _ => kill::begin(state, &name, ending, now, out),
        },
        RestartScope::Running => {
            state.alloc.restarting = Some(false);
            mark(state, &ending, false, now, out);
        }
        RestartScope::All if state.all_dead() => begin_run(state, now, out),
        RestartScope::All => {
            state.alloc.restarting = Some(true);
            mark(state, &ending, true, now, out);
        }
    }
}

/// A task that waits for its restart is started at once.
fn cut_delay(name: &Name, task: &mut TaskRecord, ending: &Ending, now: Nanos, out: &mut Out) {
    if let Ending::Restart { reason, .. } = ending {
        task.note(herdsman_model::TaskFact::RestartSignaled { reason: reason.clone() }, now);
    }
    task.stage = Stage::Waiting;
    out.touch(name);
    out.publish(false);
}

/// Marks what is to be ended and started again; [`progress`] does it in the kill order.
fn mark(state: &mut State, ending: &Ending, all: bool, now: Nanos, out: &mut Out) {
    for name in state.names(|role, _| role != TaskRole::Poststop) {
        let Some(task) = state.tasks.get_mut(&name) else { continue };
        match task.stage {
            Stage::Running | Stage::ShutdownDelay { .. } | Stage::Stopping => {
                if task.ending.is_none() {
                    task.ending = Some(ending.clone());
                }
            }
            Stage::Starting if all => task.ending = Some(ending.clone()),
            Stage::Delay { .. } => cut_delay(&name, task, ending, now, out),
            Stage::Hooks if all => {
                out.now(Command::CancelHooks { task: Name::clone(&name) });
                task.stage = Stage::Waiting;
            }
            Stage::Dead if all => revive(task, now),
            Stage::Starting | Stage::Hooks | Stage::Waiting | Stage::Dead => {}
        }
        if all {
            task.has_started = false;
        }
        out.touch(&name);
        out.publish(false);
    }
}

/// A dead task waits again. Its events stay.
pub(crate) fn revive(task: &mut TaskRecord, now: Nanos) {
    task.stage = Stage::Waiting;
    task.ending = None;
    task.has_started = false;
    task.state.failed = false;
    task.state.finished_at = None;
    debug_assert_eq!(task.stage.phase(), TaskPhase::Pending);
    task.show(now);
}

/// The allocation failed and begins anew as a whole, poststop included.
fn begin_run(state: &mut State, now: Nanos, out: &mut Out) {
    let run = state.alloc.run.saturating_add(1);
    state.alloc = AllocRecord { run, ..AllocRecord::default() };
    for (name, task) in &mut state.tasks {
        revive(task, now);
        task.tracker = Tracker { start: now, count: 0 };
        out.touch(name);
    }
    state.alloc.setup = Setup::Pending;
    out.publish(true);
    out.durably(Command::RunSetup);
}

/// Carries a restart of several tasks on: ends them in the kill order, lets them start once all are down. After a
/// reboot, prestart tasks whose output may be gone go first. Gives whether anything changed.
pub(crate) fn progress(state: &mut State, now: Nanos, out: &mut Out) -> bool {
    let changed = repeat_prestart(state, now, out);
    if state.alloc.restarting.is_none() || state.alloc.kill.is_some() {
        return changed;
    }
    let marked = |task: &TaskRecord| matches!(task.ending, Some(Ending::Restart { .. }));
    let live = state.names(|role, task| role != TaskRole::Poststop && task.stage.has_process() && marked(task));
    if live.is_empty() {
        state.alloc.restarting = None;
        if state.alloc.services != GroupServices::On {
            state.alloc.services = GroupServices::On;
            if state.spec.has_services {
                out.durably(Command::RegisterGroup);
            }
        }
        out.record();
        return true;
    }
    if !kill::deregistered(state, true, now, out) {
        return changed;
    }
    let mut signalled = false;
    for name in kill::wave(state, &live) {
        let Some(task) = state.tasks.get(&name) else { continue };
        if task.stage == Stage::Running && !task.recovering {
            let Some(ending) = task.ending.clone() else { continue };
            kill::begin(state, &name, ending, now, out);
            signalled = true;
        }
    }
    changed | signalled
}

/// After a reboot that lost running tasks: finished prestart tasks run again before the lost ones do.
fn repeat_prestart(state: &mut State, now: Nanos, out: &mut Out) -> bool {
    if !state.alloc.rebooted || state.tasks.values().any(|task| task.recovering) {
        return false;
    }
    state.alloc.rebooted = false;
    out.record();
    if state.stopping() || state.work_over() {
        return true;
    }
    for name in state.names(|role, _| role != TaskRole::Poststop) {
        let role = state.role(&name);
        let Some(task) = state.tasks.get_mut(&name) else { continue };
        if task.stage.has_process() {
            continue;
        }
        if role == TaskRole::Prestart && task.stage == Stage::Dead {
            revive(task, now);
        }
        task.has_started = task.has_started && task.stage == Stage::Dead;
        out.touch(&name);
    }
    out.publish(false);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn policy(attempts: i64, mode: &str) -> RestartPolicy {
        RestartPolicy { attempts, interval: 20 * S, delay: S, mode: mode.into(), render_templates: false }
    }

    #[test]
    fn the_policy_decides_in_the_documented_order() {
        use Ended::*;
        let again = || Verdict::Again { delay: S, reason: "Restart within policy".into() };
        let none = || Verdict::GiveUp { reason: "Policy allows no restarts".into() };
        let over =
            || Verdict::GiveUp { reason: r#"Exceeded allowed attempts 1 in interval 20s and mode is "fail""#.into() };
        let unrecoverable = || Verdict::GiveUp { reason: "Error was unrecoverable".into() };
        for (attempts, on_success, count, ended, expected) in [
            (0, false, 0, Success, Verdict::Done),
            (0, true, 0, Success, none()),
            (0, false, 0, Failure, none()),
            (1, false, 0, Success, Verdict::Done),
            (1, true, 0, Success, again()),
            (1, true, 1, Success, over()),
            (1, false, 0, Failure, again()),
            (1, false, 1, Failure, over()),
            (1, false, 1, Success, Verdict::Done),
            (1, false, 0, StartError { recoverable: true }, again()),
            (1, false, 1, StartError { recoverable: true }, over()),
            (1, false, 0, StartError { recoverable: false }, unrecoverable()),
        ] {
            let mut tracker = Tracker { start: 0, count };
            let verdict = decide(&policy(attempts, "fail"), on_success, &mut tracker, ended, 5 * S, 0);
            assert_eq!(verdict, expected, "{attempts} {on_success} {count} {ended:?}");
        }
    }

    #[test]
    fn a_new_interval_forgives() {
        let mut tracker = Tracker { start: 0, count: 9 };
        let verdict = decide(&policy(1, "fail"), false, &mut tracker, Ended::Failure, 21 * S, 0);
        assert!(matches!(verdict, Verdict::Again { .. }));
        assert_eq!(tracker, Tracker { start: 21 * S, count: 1 });
    }

    /// mode=delay gives exactly `attempts` restarts in every interval.
    #[test]
    fn nomad_5737_no_extra_restart_after_the_first_interval() {
        let (mut tracker, mut now, mut restarts) = (Tracker { start: 0, count: 0 }, 0, Vec::new());
        for _ in 0..12 {
            let Verdict::Again { delay, .. } = decide(&policy(2, "delay"), false, &mut tracker, Ended::Failure, now, 0)
            else {
                panic!("mode delay never gives up")
            };
            now += delay.max(1);
            restarts.push(now);
        }
        for interval in 0..5 {
            let within = |t: &&Nanos| (interval * 20 * S..(interval + 1) * 20 * S).contains(*t);
            assert_eq!(restarts.iter().filter(within).count(), 2, "interval {interval}: {restarts:?}");
        }
    }

    #[test]
    fn jitter_adds_at_most_a_quarter() {
        for jitter in [0, 1, 77, u64::MAX] {
            let delay = spread(8 * S, jitter);
            assert!((8 * S..=10 * S).contains(&delay));
        }
        assert_eq!(spread(-1, 5), 0);
    }
}
