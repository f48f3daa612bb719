//! Health of an allocation, for the deployment or migration that placed it.
//!
//! Healthy once every task that should keep running has been running, unchanged, for the minimum time, and its checks
//! have been passing for as long. Unhealthy as soon as a task failed or ended that should not have, or at the deadline.
//! Poststop tasks and one-shot poststart tasks that ended well do not count.

use crate::text::go_duration;
use herdsman_model::{Name, Nanos, TaskPhase, TaskRole, TaskState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What health is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criterion {
    /// Tasks run and their checks pass.
    Checks,
    /// Tasks run.
    TaskStates,
    /// People say so; nothing is judged here.
    Manual,
}

impl Criterion {
    /// Reads `health_check` of an update or migrate block.
    pub fn from_word(word: &str) -> Criterion {
        match word {
            "task_states" => Criterion::TaskStates,
            "manual" => Criterion::Manual,
            _ => Criterion::Checks,
        }
    }
}

/// The rules of one allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthRules {
    pub criterion: Criterion,
    pub min_healthy_time: Nanos,
    pub healthy_deadline: Nanos,
    /// How many checks the job has.
    pub checks: usize,
}

/// Result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    Success,
    Failure,
    Pending,
}

/// One check as health sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckView {
    pub status: CheckStatus,
    /// A failure does not count (`on_update = "ignore"`); not having run yet does.
    pub ignore_failure: bool,
}

impl CheckView {
    fn passes(self) -> bool {
        match self.status {
            CheckStatus::Success => true,
            CheckStatus::Failure => self.ignore_failure,
            CheckStatus::Pending => false,
        }
    }
}

/// The decision, made once. An unhealthy one says why, per task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub healthy: bool,
    pub messages: Vec<(Name, String)>,
}

/// Follows one allocation until its health is decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracker {
    rules: HealthRules,
    begin: Nanos,
    tasks_since: Option<Nanos>,
    checks_since: Option<Nanos>,
    latest_start: Option<Nanos>,
    decided: bool,
}

impl Tracker {
    /// Begins at `begin`, from which the deadline counts.
    pub fn new(rules: HealthRules, begin: Nanos) -> Tracker {
        let decided = rules.criterion == Criterion::Manual;
        Tracker { rules, begin, tasks_since: None, checks_since: None, latest_start: None, decided }
    }

    /// Nothing is left to decide.
    pub fn is_decided(&self) -> bool {
        self.decided
    }

    /// The allocation is to be stopped: there will be no verdict.
    pub fn cancel(&mut self) {
        self.decided = true;
    }

    /// When to look again, at the latest.
    pub fn next_deadline(&self) -> Option<Nanos> {
        if self.decided {
            return None;
        }
        let deadline = self.begin.saturating_add(self.rules.healthy_deadline);
        let ready = self.ready_at().unwrap_or(deadline);
        Some(ready.min(deadline))
    }

    fn ready_at(&self) -> Option<Nanos> {
        let since = match self.rules.criterion {
            Criterion::Checks => self.tasks_since?.max(self.checks_since?),
            _ => self.tasks_since?,
        };
        Some(since.saturating_add(self.rules.min_healthy_time))
    }

    /// Takes the states as they are at `now`.
    pub fn observe(
        &mut self,
        tasks: &BTreeMap<Name, (TaskRole, &TaskState)>,
        checks: &[CheckView],
        now: Nanos,
    ) -> Option<Verdict> {
        if self.decided {
            return None;
        }
        let broken: Vec<_> = tasks.iter().filter_map(|(name, (role, task))| broken(name, *role, task)).collect();
        if !broken.is_empty() {
            return Some(self.decide(false, broken));
        }
        let latest =
            tasks.values().filter(|(role, _)| *role != TaskRole::Poststop).filter_map(|(_, t)| t.started_at).max();
        let running = tasks.values().all(|(role, task)| settled(*role, task));
        if !running || latest != self.latest_start {
            self.tasks_since = None;
            self.latest_start = latest;
        }
        if running && self.tasks_since.is_none() {
            self.tasks_since = Some(now);
        }
        let passing = checks.len() >= self.rules.checks && checks.iter().all(|check| check.passes());
        self.checks_since = if passing { self.checks_since.or(Some(now)) } else { None };
        if self.ready_at().is_some_and(|at| at <= now) {
            return Some(self.decide(true, Vec::new()));
        }
        if self.begin.saturating_add(self.rules.healthy_deadline) <= now {
            let messages = self.too_late(tasks, checks);
            return Some(self.decide(false, messages));
        }
        None
    }

    fn decide(&mut self, healthy: bool, messages: Vec<(Name, String)>) -> Verdict {
        self.decided = true;
        Verdict { healthy, messages }
    }

    /// Why it is not healthy at the deadline.
    fn too_late(&self, tasks: &BTreeMap<Name, (TaskRole, &TaskState)>, checks: &[CheckView]) -> Vec<(Name, String)> {
        let deadline = go_duration(self.rules.healthy_deadline);
        let minimum = go_duration(self.rules.min_healthy_time);
        let counted = tasks.iter().filter(|(_, (role, _))| *role != TaskRole::Poststop);
        let texts = counted.map(|(name, (role, task))| {
            let text = if !settled(*role, task) {
                format!("Task not running by healthy_deadline of {deadline}")
            } else if self.tasks_since.is_some() && self.rules.criterion == Criterion::Checks {
                let passing = checks.iter().filter(|check| check.passes()).count();
                match checks.len() {
                    0 if self.rules.checks > 0 => "Service checks not registered".to_string(),
                    _ => format!("Only {passing} out of {} checks registered and passing", self.rules.checks),
                }
            } else {
                format!("Task not running for min_healthy_time of {minimum} by healthy_deadline of {deadline}")
            };
            (Name::clone(name), text)
        });
        texts.collect()
    }
}

/// Why a task makes the allocation unhealthy at once.
fn broken(name: &Name, role: TaskRole, task: &TaskState) -> Option<(Name, String)> {
    if role == TaskRole::Poststop {
        return None;
    }
    if task.failed {
        return Some((Name::clone(name), "Unhealthy because of failed task".into()));
    }
    let one_shot = matches!(role, TaskRole::Prestart | TaskRole::Poststart);
    (task.state == TaskPhase::Dead && !one_shot).then(|| (Name::clone(name), "Unhealthy because of dead task".into()))
}

/// The task is where it should be for good.
fn settled(role: TaskRole, task: &TaskState) -> bool {
    match role {
        TaskRole::Poststop => true,
        TaskRole::Prestart => task.successful(),
        TaskRole::Poststart => task.successful() || task.state == TaskPhase::Running,
        _ => task.state == TaskPhase::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn rules(criterion: Criterion, checks: usize) -> HealthRules {
        HealthRules { criterion, min_healthy_time: 10 * S, healthy_deadline: 60 * S, checks }
    }

    fn task(state: TaskPhase, started: Option<Nanos>) -> TaskState {
        TaskState { state, started_at: started, ..TaskState::default() }
    }

    fn view(tasks: &[(&str, TaskRole, TaskState)]) -> BTreeMap<Name, (TaskRole, TaskState)> {
        tasks.iter().map(|(n, r, t)| (Name::from(*n), (*r, t.clone()))).collect()
    }

    fn look(
        tracker: &mut Tracker,
        tasks: &[(&str, TaskRole, TaskState)],
        checks: &[CheckView],
        now: Nanos,
    ) -> Option<bool> {
        let owned = view(tasks);
        let borrowed = owned.iter().map(|(n, (r, t))| (Name::clone(n), (*r, t))).collect();
        tracker.observe(&borrowed, checks, now * S).map(|v| v.healthy)
    }

    const PASS: CheckView = CheckView { status: CheckStatus::Success, ignore_failure: false };
    const FAIL: CheckView = CheckView { status: CheckStatus::Failure, ignore_failure: false };

    /// Poststop tasks are pending while the deployment is judged, and do not count.
    #[test]
    fn nomad_9361_poststop_does_not_count() {
        let tasks = [
            ("web", TaskRole::Main, task(TaskPhase::Running, Some(S))),
            ("clean", TaskRole::Poststop, task(TaskPhase::Pending, None)),
        ];
        let mut tracker = Tracker::new(rules(Criterion::Checks, 1), 0);
        assert_eq!(look(&mut tracker, &tasks, &[PASS], 1), None);
        assert_eq!(tracker.next_deadline(), Some(11 * S));
        assert_eq!(look(&mut tracker, &tasks, &[PASS], 11), Some(true));
        assert_eq!(look(&mut tracker, &tasks, &[PASS], 12), None, "decided once");
    }

    /// A poststart task that ends faster than min_healthy_time changes nothing.
    #[test]
    fn nomad_10058_a_short_poststart_is_no_fault() {
        let web = ("web", TaskRole::Main, task(TaskPhase::Running, Some(S)));
        let mut tracker = Tracker::new(rules(Criterion::TaskStates, 0), 0);
        let running = ("after", TaskRole::Poststart, task(TaskPhase::Running, Some(S)));
        let ended = ("after", TaskRole::Poststart, task(TaskPhase::Dead, Some(S)));
        assert_eq!(look(&mut tracker, &[web.clone(), running], &[], 1), None);
        assert_eq!(look(&mut tracker, &[web.clone(), ended.clone()], &[], 2), None);
        assert_eq!(look(&mut tracker, &[web, ended], &[], 11), Some(true));
    }

    #[test]
    fn a_restart_begins_the_wait_anew() {
        let mut tracker = Tracker::new(rules(Criterion::TaskStates, 0), 0);
        let at = |start: Nanos| [("web", TaskRole::Main, task(TaskPhase::Running, Some(start * S)))];
        assert_eq!(look(&mut tracker, &at(1), &[], 1), None);
        assert_eq!(look(&mut tracker, &at(8), &[], 8), None);
        assert_eq!(look(&mut tracker, &at(8), &[], 11), None);
        assert_eq!(look(&mut tracker, &at(8), &[], 18), Some(true));
    }

    #[test]
    fn a_failed_or_ended_task_is_unhealthy_at_once() {
        for (role, phase, failed, expected) in [
            (TaskRole::Main, TaskPhase::Dead, false, Some(false)),
            (TaskRole::PrestartSidecar, TaskPhase::Dead, false, Some(false)),
            (TaskRole::Prestart, TaskPhase::Dead, true, Some(false)),
            (TaskRole::Prestart, TaskPhase::Dead, false, None),
            (TaskRole::Poststop, TaskPhase::Dead, true, None),
        ] {
            let mut state = task(phase, Some(S));
            state.failed = failed;
            let mut tracker = Tracker::new(rules(Criterion::TaskStates, 0), 0);
            assert_eq!(look(&mut tracker, &[("t", role, state)], &[], 2), expected, "{role:?}");
        }
    }

    #[test]
    fn the_deadline_says_what_was_missing() {
        for (state, checks, text) in [
            (task(TaskPhase::Pending, None), vec![], "Task not running by healthy_deadline of 1m0s"),
            (task(TaskPhase::Running, Some(S)), vec![], "Service checks not registered"),
            (task(TaskPhase::Running, Some(S)), vec![FAIL, PASS], "Only 1 out of 2 checks registered and passing"),
        ] {
            let mut tracker = Tracker::new(rules(Criterion::Checks, 2), 0);
            let name = Name::from("web");
            let tasks = BTreeMap::from([(name, (TaskRole::Main, &state))]);
            assert_eq!(tracker.observe(&tasks, &checks, S), None);
            let verdict = tracker.observe(&tasks, &checks, 60 * S).unwrap();
            assert!(!verdict.healthy);
            assert_eq!(verdict.messages[0].1, text);
        }
    }

    #[test]
    fn a_readiness_check_may_fail_but_must_have_run() {
        let ignored = |status| CheckView { status, ignore_failure: true };
        assert!(ignored(CheckStatus::Failure).passes());
        assert!(!ignored(CheckStatus::Pending).passes());
        assert!(Tracker::new(rules(Criterion::Manual, 0), 0).is_decided());
    }
}
