//! Histories with a known right outcome, the bug cases of the area among them.

use herdsman_lifecycle::{
    Command, Event, Exit, GroupSpec, Key, Recovery, RestartScope, Stage, State, TaskRules, restart, restore, step,
};
use herdsman_model::{ClientStatus, Name, Nanos, OutcomeKind, RestartPolicy, TaskFact, TaskPhase, TaskRole};
use std::collections::VecDeque;
use std::sync::Arc;

const S: Nanos = 1_000_000_000;

/// A shell whose hooks and starts succeed at once.
struct Play {
    state: State,
    now: Nanos,
    /// Starts and signals in order: `+web`, `-web`.
    log: Vec<String>,
    /// Hooks that do not return.
    slow_hooks: Vec<&'static str>,
    commands: Vec<Command>,
}

fn rules(role: TaskRole) -> TaskRules {
    let restart =
        RestartPolicy { attempts: 0, interval: 60 * S, delay: S, mode: "fail".into(), render_templates: false };
    let (kill_signal, kill_timeout) = ("SIGTERM".into(), 5 * S);
    TaskRules { role, leader: false, restart, kill_timeout, kill_signal, shutdown_delay: 0 }
}

fn group(tasks: &[(&str, TaskRules)]) -> GroupSpec {
    GroupSpec { tasks: tasks.iter().map(|(n, r)| (Name::from(*n), r.clone())).collect(), ..GroupSpec::default() }
}

fn batch(tasks: &[(&str, TaskRules)]) -> GroupSpec {
    GroupSpec { batch: true, ..group(tasks) }
}

impl Play {
    fn new(spec: GroupSpec) -> Play {
        Play::with_slow_hooks(spec, &[])
    }

    fn with_slow_hooks(spec: GroupSpec, slow_hooks: &[&'static str]) -> Play {
        let state = State::new(Arc::new(spec));
        let mut play = Play { state, now: 0, log: vec![], slow_hooks: slow_hooks.to_vec(), commands: vec![] };
        play.feed(Event::Begin);
        play
    }

    fn feed(&mut self, event: Event) {
        let commands = step(&mut self.state, event, self.now, 0);
        self.run(commands);
    }

    fn run(&mut self, commands: Vec<Command>) {
        let mut queue = VecDeque::from(commands);
        while let Some(command) = queue.pop_front() {
            self.commands.push(command.clone());
            let answer = match command {
                Command::RunSetup => Event::SetupDone,
                Command::RunHooks { task, .. } if self.slow_hooks.contains(&&*task) => continue,
                Command::RunHooks { task, key } => Event::HooksDone { task, key },
                Command::Start { task, key } => {
                    assert!(self.state.may_start(&task, key), "{task} must not start");
                    self.log.push(format!("+{task}"));
                    Event::Started { task, key }
                }
                Command::Kill { task, .. } => {
                    self.log.push(format!("-{task}"));
                    continue;
                }
                _ => continue,
            };
            queue.extend(step(&mut self.state, answer, self.now, 0));
        }
    }

    fn exit(&mut self, task: &str, exit_code: i32) {
        let (task, key) = (Name::from(task), self.key(task));
        self.feed(Event::Exited { task, key, exit: Exit { exit_code, ..Exit::default() } });
    }

    fn key(&self, task: &str) -> Key {
        self.state.tasks[task].key
    }

    fn stop(&mut self) {
        self.feed(Event::Stop { reason: "job stopped".into(), no_shutdown_delay: false });
    }

    fn pass(&mut self, span: Nanos) {
        self.now += span;
        self.feed(Event::Tick);
    }

    fn take_log(&mut self) -> String {
        std::mem::take(&mut self.log).join(" ")
    }

    fn status(&self) -> (ClientStatus, &str) {
        (self.state.alloc.status, &self.state.alloc.description)
    }

    fn outcome(&self) -> Option<OutcomeKind> {
        self.state.alloc.outcome.as_ref().map(|o| o.kind)
    }

    fn facts(&self, task: &str) -> Vec<&'static str> {
        self.state.tasks[task].state.events.iter().map(|e| word(&e.fact)).collect()
    }

    fn crash(&mut self) -> Vec<Command> {
        self.reboot(false)
    }

    fn reboot(&mut self, rebooted: bool) -> Vec<Command> {
        let (alloc, tasks) = (self.state.alloc.clone(), self.state.tasks.clone());
        self.state = restore::restore(Arc::clone(&self.state.spec), alloc, tasks);
        restore::resume(&mut self.state, rebooted, self.now)
    }
}

fn word(fact: &TaskFact) -> &'static str {
    match fact {
        TaskFact::Received => "received",
        TaskFact::TaskSetup { .. } => "setup",
        TaskFact::Started => "started",
        TaskFact::Terminated { .. } => "terminated",
        TaskFact::Killing { .. } => "killing",
        TaskFact::Killed { .. } => "killed",
        TaskFact::Restarting { .. } => "restarting",
        TaskFact::NotRestarting { .. } => "not restarting",
        TaskFact::RestartSignaled { .. } => "restart signaled",
        TaskFact::SiblingFailed { .. } => "sibling failed",
        TaskFact::LeaderDead => "leader dead",
        TaskFact::MainDead => "main dead",
        TaskFact::WaitingShutdownDelay { .. } => "waiting",
        TaskFact::SkippingShutdownDelay => "skipping",
        TaskFact::FailedRestore { .. } => "failed restore",
        TaskFact::DriverFailure { .. } => "driver failure",
        TaskFact::SetupFailure { .. } => "setup failure",
        TaskFact::PoststopNotRun { .. } => "poststop not run",
        _ => "other",
    }
}

#[test]
fn all_hooks_run_in_order_and_the_events_are_the_peers() {
    let mut play = Play::new(batch(&[
        ("init", rules(TaskRole::Prestart)),
        ("side", rules(TaskRole::PrestartSidecar)),
        ("main", rules(TaskRole::Main)),
        ("after", rules(TaskRole::Poststart)),
        ("stop", rules(TaskRole::Poststop)),
    ]));
    assert_eq!(play.status(), (ClientStatus::Running, "Tasks are running"));
    play.exit("init", 0);
    play.exit("after", 0);
    play.exit("main", 0);
    assert_eq!(play.take_log(), "+init +side +main +after -side");
    play.exit("side", 137);
    assert_eq!(play.take_log(), "+stop");
    assert_eq!(play.outcome(), Some(OutcomeKind::Complete));
    let text = "Poststop tasks are running: all other tasks have completed";
    assert_eq!(play.status(), (ClientStatus::Running, text));
    play.exit("stop", 0);
    assert_eq!(play.status(), (ClientStatus::Complete, "All tasks have completed"));
    assert_eq!(play.facts("main"), ["received", "setup", "started", "terminated"]);
    let side = ["received", "setup", "started", "main dead", "killing", "terminated", "killed"];
    assert_eq!(play.facts("side"), side);
    assert_eq!(play.commands.iter().filter(|c| **c == Command::RunPostrun).count(), 1);
}

#[test]
fn a_failed_prestart_ends_the_rest_and_poststop_runs() {
    let mut play = Play::new(batch(&[
        ("init", rules(TaskRole::Prestart)),
        ("main", rules(TaskRole::Main)),
        ("stop", rules(TaskRole::Poststop)),
    ]));
    play.exit("init", 5);
    assert_eq!(play.take_log(), "+init +stop");
    assert_eq!(play.facts("main"), ["received", "sibling failed", "killing"]);
    assert!(!play.state.tasks["main"].state.failed);
    assert_eq!(play.outcome(), Some(OutcomeKind::Failed));
    assert_eq!(play.status().0, ClientStatus::Running);
    play.exit("stop", 0);
    assert_eq!(play.status(), (ClientStatus::Failed, "Failed tasks"));
}

#[test]
fn a_failing_poststop_fails_the_allocation() {
    let mut play = Play::new(batch(&[("main", rules(TaskRole::Main)), ("stop", rules(TaskRole::Poststop))]));
    play.exit("main", 0);
    play.exit("stop", 1);
    assert_eq!(play.outcome(), Some(OutcomeKind::Complete));
    assert_eq!(play.status(), (ClientStatus::Failed, "Failed tasks"));
}

/// A main task that is dead counts as finished.
#[test]
fn nomad_8193_poststop_of_a_batch_group_starts() {
    let mut play = Play::new(batch(&[("main", rules(TaskRole::Main)), ("stop", rules(TaskRole::Poststop))]));
    play.exit("main", 0);
    assert_eq!(play.take_log(), "+main +stop");
    play.exit("stop", 0);
    assert_eq!(play.status().0, ClientStatus::Complete);
}

/// Mains are ended first, then poststop runs, then the allocation leaves running.
#[test]
fn nomad_8194_job_stop_runs_poststop() {
    let mut play = Play::new(group(&[("main", rules(TaskRole::Main)), ("stop", rules(TaskRole::Poststop))]));
    play.stop();
    assert_eq!(play.take_log(), "+main -main");
    play.exit("main", 143);
    assert_eq!(play.take_log(), "+stop");
    assert_eq!(play.outcome(), Some(OutcomeKind::Stopped));
    assert_eq!(play.status(), (ClientStatus::Running, "Poststop tasks are running: job stopped"));
    play.stop();
    assert_eq!(play.take_log(), "", "a stop does not reach poststop");
    play.exit("stop", 0);
    assert_eq!(play.status(), (ClientStatus::Complete, "All tasks have completed"));
    let main = ["received", "setup", "started", "killing", "terminated", "killed"];
    assert_eq!(play.facts("main"), main);
}

/// A stop between gate and hooks: no start, no driver failure, dead and not failed.
#[test]
fn nomad_18659_no_start_after_skipped_hooks() {
    let mut leader = rules(TaskRole::Main);
    leader.leader = true;
    let spec = group(&[("lead", leader), ("side", rules(TaskRole::PoststartSidecar))]);
    let mut play = Play::with_slow_hooks(spec, &["side"]);
    let key = play.key("side");
    play.stop();
    play.feed(Event::HooksDone { task: "side".into(), key });
    play.exit("lead", 143);
    assert_eq!(play.take_log(), "+lead -lead");
    assert_eq!(play.state.tasks["side"].stage, Stage::Dead);
    assert_eq!(play.facts("side"), ["received", "setup", "killing"]);
    assert_eq!(play.status(), (ClientStatus::Complete, "All tasks have completed"));
}

/// The stop arrives when the start is recorded but not yet carried out.
#[test]
fn nomad_18659_no_start_when_the_stop_overtakes_it() {
    let mut state = State::new(Arc::new(group(&[("main", rules(TaskRole::Main))])));
    step(&mut state, Event::Begin, 0, 0);
    step(&mut state, Event::SetupDone, 0, 0);
    let (task, key) = (Name::from("main"), Key { run: 0, attempt: 1 });
    let commands = step(&mut state, Event::HooksDone { task: task.clone(), key }, 0, 0);
    assert!(commands.contains(&Command::Start { task: task.clone(), key }));
    step(&mut state, Event::Stop { reason: "job stopped".into(), no_shutdown_delay: false }, 0, 0);
    assert!(!state.may_start("main", key));
    step(&mut state, Event::StartSkipped { task, key }, 0, 0);
    assert_eq!(state.alloc.status, ClientStatus::Complete);
    assert!(!state.tasks["main"].state.failed);
}

/// Nothing was started yet: poststop still runs.
#[test]
fn a_stop_while_pending_runs_poststop_once_set_up() {
    let spec = group(&[("main", rules(TaskRole::Main)), ("stop", rules(TaskRole::Poststop))]);
    let mut state = State::new(Arc::new(spec));
    step(&mut state, Event::Begin, 0, 0);
    let commands = step(&mut state, Event::Stop { reason: "job stopped".into(), no_shutdown_delay: false }, 0, 0);
    assert!(!commands.contains(&Command::CancelSetup), "{commands:?}");
    assert_eq!(state.tasks["main"].stage, Stage::Dead);
    let commands = step(&mut state, Event::SetupDone, 0, 0);
    assert!(commands.iter().any(|c| matches!(c, Command::RunHooks { task, .. } if &**task == "stop")));
}

#[test]
fn without_a_directory_poststop_does_not_run_and_says_so() {
    for (dir_built, runs) in [(false, false), (true, true)] {
        let spec = group(&[("main", rules(TaskRole::Main)), ("stop", rules(TaskRole::Poststop))]);
        let mut state = State::new(Arc::new(spec));
        step(&mut state, Event::Begin, 0, 0);
        step(&mut state, Event::SetupFailed { error: "disk full".into(), dir_built }, 0, 0);
        assert!(state.tasks["main"].state.failed);
        assert_eq!(state.tasks["stop"].stage == Stage::Hooks, runs);
        if !runs {
            assert_eq!(state.alloc.status, ClientStatus::Failed);
            assert!(state.tasks["stop"].state.events.iter().any(|e| word(&e.fact) == "poststop not run"));
        }
    }
}

/// Only running tasks are restarted; finished one-shot ones are no error.
#[test]
fn nomad_9464_restart_leaves_finished_tasks_alone() {
    let mut play = Play::new(group(&[
        ("main", rules(TaskRole::Main)),
        ("one", rules(TaskRole::Poststart)),
        ("two", rules(TaskRole::Poststart)),
    ]));
    play.exit("one", 0);
    play.exit("two", 0);
    play.take_log();
    assert_eq!(restart::refuse(&play.state, &RestartScope::Running), None);
    play.feed(Event::Restart { scope: RestartScope::Running, reason: "user".into() });
    play.exit("main", 143);
    assert_eq!(play.take_log(), "-main +main");
    let refusal = restart::refuse(&play.state, &RestartScope::Task("one".into()));
    assert_eq!(refusal.as_deref(), Some("Task not running"));
    let refusal = restart::refuse(&play.state, &RestartScope::Task("ghost".into()));
    assert_eq!(refusal.as_deref(), Some("Could not find task runner for task: ghost"));
}

/// A restart of everything goes through prestart, main and poststart again; poststop does not run.
#[test]
fn nomad_9841_restart_all_begins_at_prestart() {
    let mut play = Play::new(group(&[
        ("init", rules(TaskRole::Prestart)),
        ("main", rules(TaskRole::Main)),
        ("after", rules(TaskRole::Poststart)),
        ("stop", rules(TaskRole::Poststop)),
    ]));
    play.exit("init", 0);
    play.exit("after", 0);
    play.take_log();
    play.feed(Event::Restart { scope: RestartScope::All, reason: "user".into() });
    play.exit("main", 143);
    assert_eq!(play.take_log(), "-main +init");
    play.exit("init", 0);
    assert_eq!(play.take_log(), "+main +after");
    assert_eq!(play.state.alloc.run, 0);
    assert_eq!(play.outcome(), None);
    assert_eq!(play.state.tasks["main"].state.restarts, 1);
}

/// A restart of the whole allocation after it failed begins a new run, poststop included.
#[test]
fn a_failed_allocation_begins_a_new_run() {
    let mut play = Play::new(batch(&[("main", rules(TaskRole::Main)), ("stop", rules(TaskRole::Poststop))]));
    play.exit("main", 1);
    play.exit("stop", 0);
    assert_eq!(play.status().0, ClientStatus::Failed);
    play.feed(Event::Restart { scope: RestartScope::All, reason: "user".into() });
    play.exit("main", 0);
    play.exit("stop", 0);
    assert_eq!(play.take_log(), "+main +stop +main +stop");
    assert_eq!(play.state.alloc.run, 1);
    assert_eq!(play.status().0, ClientStatus::Complete);
}

/// After a reboot the prestart task runs again before the main one does.
#[test]
fn nomad_9840_prestart_runs_again_after_a_reboot() {
    let mut main = rules(TaskRole::Main);
    main.restart.attempts = 3;
    let mut play = Play::new(group(&[("init", rules(TaskRole::Prestart)), ("main", main)]));
    play.exit("init", 0);
    play.take_log();
    let commands = play.reboot(true);
    play.run(commands);
    let key = play.key("main");
    play.feed(Event::Recovered { task: "main".into(), key, found: Recovery::Lost { error: "gone".into() } });
    play.pass(2 * S);
    assert_eq!(play.take_log(), "", "nothing starts before the servers were heard");
    play.feed(Event::Contacted);
    assert_eq!(play.take_log(), "+init");
    play.exit("init", 0);
    assert_eq!(play.take_log(), "+main");
}

/// A change of the sidecar flag acts at once.
#[test]
fn nomad_9542_a_changed_sidecar_flag_acts_at_once() {
    let mut sidecar = rules(TaskRole::PrestartSidecar);
    sidecar.restart.attempts = 5;
    let mut play = Play::new(group(&[("init", sidecar), ("main", rules(TaskRole::Main))]));
    assert_eq!(play.take_log(), "+init +main");
    let mut spec = (*play.state.spec).clone();
    spec.tasks.get_mut("init").unwrap().role = TaskRole::Prestart;
    play.feed(Event::Respec(Arc::new(spec)));
    play.exit("init", 0);
    assert_eq!(play.state.tasks["init"].stage, Stage::Dead);
    assert!(!play.state.tasks["init"].state.failed);
}

/// A restart ends tasks in the order of a stop: leader, other mains, sidecars.
#[test]
fn nomad_19403_restart_keeps_the_kill_order() {
    let mut lead = rules(TaskRole::Main);
    (lead.leader, lead.shutdown_delay) = (true, 3 * S);
    let mut play = Play::new(group(&[
        ("lead", lead),
        ("other", rules(TaskRole::Main)),
        ("side", rules(TaskRole::PrestartSidecar)),
    ]));
    play.take_log();
    play.feed(Event::Restart { scope: RestartScope::Running, reason: "user".into() });
    assert_eq!(play.take_log(), "", "the shutdown delay passes first");
    play.pass(3 * S);
    assert_eq!(play.take_log(), "-lead");
    play.exit("lead", 143);
    assert_eq!(play.take_log(), "-other");
    play.exit("other", 143);
    assert_eq!(play.take_log(), "-side");
    play.exit("side", 143);
    assert_eq!(play.take_log(), "+lead +other +side");
}

/// No sidecar is signalled before every main is dead.
#[test]
fn nomad_10340_sidecars_outlive_mains() {
    let mut play = Play::new(group(&[
        ("main", rules(TaskRole::Main)),
        ("other", rules(TaskRole::Main)),
        ("side", rules(TaskRole::PrestartSidecar)),
    ]));
    play.take_log();
    play.stop();
    assert_eq!(play.take_log(), "-main -other");
    play.exit("other", 143);
    assert_eq!(play.take_log(), "");
    play.exit("main", 143);
    assert_eq!(play.take_log(), "-side");
}

/// A finished one-shot poststart or prestart does not run again after agent restarts.
#[test]
fn nomad_14009_finished_one_shots_stay_finished() {
    let mut play = Play::new(group(&[
        ("init", rules(TaskRole::Prestart)),
        ("main", rules(TaskRole::Main)),
        ("after", rules(TaskRole::Poststart)),
    ]));
    play.exit("init", 0);
    play.exit("after", 0);
    play.take_log();
    for _ in 0..2 {
        let commands = play.crash();
        assert!(commands.iter().any(|c| matches!(c, Command::Recover { task, .. } if &**task == "main")));
        play.run(commands);
        let key = play.key("main");
        play.feed(Event::Recovered { task: "main".into(), key, found: Recovery::Alive });
    }
    assert_eq!(play.take_log(), "");
    assert_eq!(play.status().0, ClientStatus::Running);
}

/// A sidecar is ended once the only main completed.
#[test]
fn nomad_8311_batch_with_a_sidecar_completes() {
    let side = rules(TaskRole::PrestartSidecar);
    let mut play = Play::new(batch(&[("main", rules(TaskRole::Main)), ("side", side)]));
    play.exit("main", 0);
    assert_eq!(play.take_log(), "+side +main -side");
    play.exit("side", 143);
    assert_eq!(play.status().0, ClientStatus::Complete);
}

/// How a sidecar ends does not matter once the mains succeeded.
#[test]
fn kubernetes_25908_completion_is_decided_by_mains() {
    let side = rules(TaskRole::PoststartSidecar);
    let mut play = Play::new(batch(&[("main", rules(TaskRole::Main)), ("side", side)]));
    play.exit("main", 0);
    play.exit("side", 1);
    assert_eq!(play.status(), (ClientStatus::Complete, "All tasks have completed"));
    assert_eq!(play.outcome(), Some(OutcomeKind::Complete));
}

/// A stop during start-up signals everything that runs at once; the pending main ends without a start.
#[test]
fn kubernetes_125880_a_stop_during_start_up_signals_all_helpers() {
    let mut play = Play::new(group(&[
        ("block", rules(TaskRole::Prestart)),
        ("side", rules(TaskRole::PrestartSidecar)),
        ("main", rules(TaskRole::Main)),
    ]));
    assert_eq!(play.take_log(), "+block +side");
    play.stop();
    assert_eq!(play.take_log(), "-block -side");
    assert_eq!(play.facts("main"), ["received", "killing"]);
}

/// A restart request cuts a long delay short.
#[test]
fn nomad_10536_a_restart_request_ends_the_delay() {
    let mut main = rules(TaskRole::Main);
    main.restart =
        RestartPolicy { attempts: 1, interval: 24 * 3600 * S, delay: S, mode: "delay".into(), ..main.restart };
    let mut play = Play::new(group(&[("main", main)]));
    play.exit("main", 1);
    play.pass(S);
    play.exit("main", 1);
    assert_eq!(play.take_log(), "+main +main");
    assert!(matches!(play.state.tasks["main"].stage, Stage::Delay { .. }));
    play.feed(Event::Restart { scope: RestartScope::Task("main".into()), reason: "user".into() });
    assert_eq!(play.take_log(), "+main");
}

/// A new policy is used from the next exit.
#[test]
fn nomad_8350_a_changed_policy_is_used() {
    let mut main = rules(TaskRole::Main);
    (main.restart.attempts, main.restart.mode) = (1, "delay".into());
    let mut play = Play::new(group(&[("main", main)]));
    play.exit("main", 1);
    play.pass(S);
    let mut spec = (*play.state.spec).clone();
    spec.tasks.get_mut("main").unwrap().restart.mode = "fail".into();
    play.feed(Event::Respec(Arc::new(spec)));
    play.exit("main", 1);
    assert_eq!(play.status(), (ClientStatus::Failed, "Failed tasks"));
}

/// A group service does not change the number of restarts.
#[test]
fn nomad_9869_group_services_do_not_eat_restarts() {
    let mut main = rules(TaskRole::Main);
    main.restart.attempts = 3;
    let mut play = Play::new(GroupSpec { has_services: true, ..group(&[("main", main)]) });
    for _ in 0..4 {
        play.exit("main", 1);
        play.pass(S);
    }
    assert_eq!(play.take_log(), "+main +main +main +main");
    assert_eq!(play.state.tasks["main"].state.restarts, 3);
}

/// A restart deregisters the task's services, waits, then signals, and registers again.
#[test]
fn nomad_25289_shutdown_delay_applies_to_restarts() {
    let mut main = rules(TaskRole::Main);
    main.shutdown_delay = 3 * S;
    let mut play = Play::new(group(&[("main", main)]));
    play.take_log();
    play.commands.clear();
    play.feed(Event::Restart { scope: RestartScope::Task("main".into()), reason: "user".into() });
    assert!(play.commands.contains(&Command::DeregisterTask { task: "main".into() }));
    assert_eq!(play.state.tasks["main"].state.state, TaskPhase::Running, "it still runs while it waits");
    play.pass(3 * S);
    play.exit("main", 143);
    assert_eq!(play.take_log(), "-main +main");
    assert_eq!(play.commands.last(), Some(&Command::Publish { urgent: true }));
    assert!(play.commands.contains(&Command::RegisterTask { task: "main".into() }));
}

/// Deregister the group's services, wait, signal.
#[test]
fn nomad_6704_group_shutdown_delay() {
    let spec = GroupSpec { has_services: true, shutdown_delay: 3 * S, ..group(&[("main", rules(TaskRole::Main))]) };
    let mut play = Play::new(spec);
    play.take_log();
    play.stop();
    assert!(play.commands.contains(&Command::DeregisterGroup));
    assert_eq!(play.take_log(), "");
    play.pass(3 * S);
    assert_eq!(play.take_log(), "-main");
}

/// The delay needs no service; on request there is none, and no event says otherwise.
#[test]
fn nomad_7271_task_shutdown_delay_without_services() {
    let mut main = rules(TaskRole::Main);
    main.shutdown_delay = 3 * S;
    let mut play = Play::new(group(&[("main", main.clone())]));
    play.stop();
    assert_eq!(play.facts("main"), ["received", "setup", "started", "killing", "waiting"]);
    let mut play = Play::new(group(&[("main", main)]));
    play.feed(Event::Stop { reason: "job stopped".into(), no_shutdown_delay: true });
    assert_eq!(play.facts("main"), ["received", "setup", "started", "killing"]);
    assert_eq!(play.take_log(), "+main -main");
}

#[test]
fn a_shutdown_delay_is_cut_short_on_request() {
    let mut main = rules(TaskRole::Main);
    main.shutdown_delay = 300 * S;
    let mut play = Play::new(group(&[("main", main)]));
    play.stop();
    play.feed(Event::SkipShutdownDelays);
    assert_eq!(play.take_log(), "+main -main");
    assert_eq!(play.facts("main").last(), Some(&"skipping"));
}

/// The node's maximum bounds the kill timeout, and the event shows it.
#[test]
fn nomad_10005_max_kill_timeout_is_enforced() {
    let mut task = herdsman_model::Task { name: "main".into(), kill_timeout: 60 * S, ..Default::default() };
    task.restart_policy.mode = "fail".into();
    let group = herdsman_model::TaskGroup { tasks: vec![Arc::new(task)].into(), ..Default::default() };
    let spec = GroupSpec::new(herdsman_model::JobType::Service, &group, 0, 2 * S);
    let mut play = Play::new(spec);
    play.stop();
    assert!(play.commands.iter().any(|c| matches!(c, Command::Kill { timeout, .. } if *timeout == 2 * S)));
    let killing = TaskFact::Killing { reason: String::new(), kill_timeout: 2 * S, fails_task: false };
    assert_eq!(play.state.tasks["main"].state.events.last().map(|e| &e.fact), Some(&killing));
}

/// A finished batch task is not run again after an agent restart, and no event is added or lost.
#[test]
fn nomad_5883_finished_tasks_are_not_repeated() {
    let mut play = Play::new(batch(&[("main", rules(TaskRole::Main))]));
    play.exit("main", 0);
    play.feed(Event::PostrunDone);
    let before = play.state.tasks.clone();
    assert_eq!(play.crash(), []);
    assert_eq!(play.state.tasks, before);
}

/// A task that is gone after an agent restart goes through the restart policy, and an event tells.
#[test]
fn nomad_10849_a_lost_task_meets_the_restart_policy() {
    let mut main = rules(TaskRole::Main);
    main.restart.attempts = 1;
    let mut play = Play::new(group(&[("main", main)]));
    let commands = play.crash();
    play.run(commands);
    let key = play.key("main");
    play.feed(Event::Recovered { task: "main".into(), key, found: Recovery::Lost { error: "no such process".into() } });
    assert_eq!(play.facts("main"), ["received", "setup", "started", "failed restore", "restarting"]);
    play.feed(Event::Contacted);
    play.pass(S);
    assert_eq!(play.take_log(), "+main +main");
}

/// Failing setup at restore ends what runs.
#[test]
fn nomad_17104_failed_setup_at_restore_ends_the_tasks() {
    let mut play = Play::new(group(&[("main", rules(TaskRole::Main))]));
    play.take_log();
    play.crash();
    let key = play.key("main");
    play.feed(Event::Recovered { task: "main".into(), key, found: Recovery::Alive });
    play.feed(Event::SetupFailed { error: "network".into(), dir_built: true });
    assert_eq!(play.take_log(), "-main");
    play.exit("main", 143);
    assert_eq!(play.status(), (ClientStatus::Failed, "Failed tasks"));
}

/// A group with a finished prestart stays running after a reconnect.
#[test]
fn nomad_15483_reconnected_allocation_stays_running() {
    let mut play = Play::new(group(&[("init", rules(TaskRole::Prestart)), ("main", rules(TaskRole::Main))]));
    play.exit("init", 0);
    play.feed(Event::Reconnected);
    assert_eq!(play.status(), (ClientStatus::Running, "Tasks are running"));
}

#[test]
fn max_run_duration_completes_and_runs_poststop() {
    let tasks = [("main", rules(TaskRole::Main)), ("stop", rules(TaskRole::Poststop))];
    let mut play = Play::new(GroupSpec { max_run_duration: Some(10 * S), ..group(&tasks) });
    assert_eq!(play.state.next_deadline(), Some(10 * S));
    play.pass(10 * S);
    assert_eq!(play.take_log(), "+main -main");
    play.exit("main", 137);
    assert_eq!(play.take_log(), "+stop");
    play.exit("stop", 0);
    assert_eq!(play.status(), (ClientStatus::Complete, "allocation exceeded max_run_duration"));
}

#[test]
fn the_leader_goes_first_and_its_end_ends_the_others() {
    let mut lead = rules(TaskRole::Main);
    lead.leader = true;
    let mut play = Play::new(batch(&[("follow", rules(TaskRole::Main)), ("lead", lead.clone())]));
    play.exit("lead", 0);
    assert_eq!(play.take_log(), "+follow +lead -follow");
    play.exit("follow", 137);
    let follow = ["received", "setup", "started", "leader dead", "killing", "terminated", "killed"];
    assert_eq!(play.facts("follow"), follow);
    assert_eq!(play.status().0, ClientStatus::Complete);

    let mut play = Play::new(batch(&[("follow", rules(TaskRole::Main)), ("lead", lead)]));
    play.stop();
    assert_eq!(play.take_log(), "+follow +lead -lead");
    play.exit("lead", 143);
    assert_eq!(play.take_log(), "-follow");
}

#[test]
fn only_sidecars_are_ended_at_once() {
    let mut play = Play::new(group(&[("side", rules(TaskRole::PrestartSidecar))]));
    assert_eq!(play.take_log(), "");
    assert_eq!(play.status().0, ClientStatus::Complete);
    play.stop();
}

#[test]
fn a_stalled_poststop_is_ended_by_name() {
    let mut play = Play::new(batch(&[("main", rules(TaskRole::Main)), ("stop", rules(TaskRole::Poststop))]));
    play.exit("main", 0);
    let reason = "stopped by its user".to_string();
    play.feed(Event::StopTask { task: "stop".into(), reason, fails_task: true });
    assert_eq!(play.take_log(), "+main +stop -stop");
    play.exit("stop", 143);
    assert_eq!(play.status(), (ClientStatus::Failed, "Failed tasks"));
}
