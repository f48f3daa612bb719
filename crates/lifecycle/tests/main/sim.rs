//! A shell round the lifecycle that does everything at random moments: a driver whose processes outlive crashes, a
//! store that keeps what was persisted, and an eye on every invariant.

use herdsman_lifecycle::{
    AllocRecord, Command, Event, Exit, GroupSpec, Key, Recovery, RestartScope, Stage, State, TaskRecord, TaskRules,
    View, restart, restore, step,
};
use herdsman_model::{Name, Nanos, RestartPolicy, TaskFact, TaskPhase, TaskRole};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const SECOND: Nanos = 1_000_000_000;

/// The invariants that a history can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    Gate,
    Stopping,
    PoststopOnce,
    PoststopLast,
    Terminal,
    OnlyAdded,
    Replay,
    NotRepeated,
    OneProcess,
    KillOrder,
    Ends,
}

#[derive(Debug, Clone)]
enum Process {
    Running,
    Signalled,
    Ended(Exit),
}

pub struct Sim {
    pub state: State,
    pub now: Nanos,
    durable: Option<(AllocRecord, BTreeMap<Name, TaskRecord>)>,
    pending: Vec<Command>,
    processes: BTreeMap<(Name, Key), Process>,
    /// Ends the lifecycle has not heard of.
    unheard: Vec<(Name, Key)>,
    published: Option<View>,
    /// One-shot tasks that ended well since the last restart from prestart.
    done: BTreeSet<Name>,
    cleaned: BTreeSet<(Name, u32)>,
    stop_sent: bool,
    aimed: BTreeSet<Name>,
    pub broken: Vec<(Invariant, String)>,
    jitter: u64,
}

pub fn group(max_tasks: usize) -> impl Strategy<Value = GroupSpec> {
    let role = prop_oneof![
        Just(TaskRole::Main),
        Just(TaskRole::Main),
        Just(TaskRole::Prestart),
        Just(TaskRole::PrestartSidecar),
        Just(TaskRole::Poststart),
        Just(TaskRole::PoststartSidecar),
        Just(TaskRole::Poststop),
    ];
    let rules = (role, 0..6u8, 0..3i64, any::<bool>(), 0..3i64, 0..3i64).prop_map(
        |(role, lead, attempts, delay_mode, delay, shutdown)| TaskRules {
            role,
            leader: lead == 0 && role == TaskRole::Main,
            restart: RestartPolicy {
                attempts,
                interval: 30 * SECOND,
                delay: delay * SECOND,
                mode: if delay_mode { "delay" } else { "fail" }.into(),
                render_templates: false,
            },
            kill_timeout: 5 * SECOND,
            kill_signal: "SIGTERM".into(),
            shutdown_delay: shutdown / 2 * SECOND,
        },
    );
    (prop::collection::vec(rules, 1..=max_tasks), any::<bool>(), 0..8u8, 0..3i64, any::<bool>()).prop_map(
        |(rules, batch, limit, shutdown, has_services)| GroupSpec {
            tasks: rules.into_iter().enumerate().map(|(n, r)| (Name::from(format!("t{n}")), r)).collect(),
            batch,
            create_time: 0,
            max_run_duration: (limit == 0).then_some(40 * SECOND),
            shutdown_delay: shutdown / 2 * 3 * SECOND,
            has_services,
        },
    )
}

pub fn history(len: usize) -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec(any::<(u8, u8)>(), 0..len)
}

impl Sim {
    pub fn new(spec: GroupSpec) -> Sim {
        let mut sim = Sim {
            state: State::new(Arc::new(spec)),
            now: SECOND,
            durable: None,
            pending: Vec::new(),
            processes: BTreeMap::new(),
            unheard: Vec::new(),
            published: None,
            done: BTreeSet::new(),
            cleaned: BTreeSet::new(),
            stop_sent: false,
            aimed: BTreeSet::new(),
            broken: Vec::new(),
            jitter: 7,
        };
        sim.feed(Event::Begin, u8::MAX);
        sim
    }

    fn fault(&mut self, invariant: Invariant, text: impl Into<String>) {
        self.broken.push((invariant, text.into()));
    }

    /// One event. `cut` below the number of commands: the agent is killed after that many of them.
    pub fn feed(&mut self, event: Event, cut: u8) {
        let before = self.state.clone();
        self.jitter = self.jitter.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let commands = step(&mut self.state, event, self.now, self.jitter);
        self.check_added(&before);
        self.check_terminal();
        self.take(commands, cut);
    }

    fn take(&mut self, commands: Vec<Command>, cut: u8) {
        for (position, command) in commands.into_iter().enumerate() {
            if position == usize::from(cut) {
                self.crash(false);
                return;
            }
            match command {
                Command::Persist { tasks } => self.persist(&tasks),
                Command::Publish { .. } => self.publish(),
                Command::CancelHooks { task } => {
                    self.pending.retain(|c| !matches!(c, Command::RunHooks { task: t, .. } if *t == task));
                }
                Command::CancelSetup => self.pending.retain(|c| *c != Command::RunSetup),
                Command::RegisterGroup | Command::DeregisterGroup => {}
                Command::RegisterTask { .. } | Command::DeregisterTask { .. } => {}
                other => self.pending.push(other),
            }
        }
    }

    fn persist(&mut self, tasks: &[Name]) {
        let kept = self.durable.get_or_insert_with(|| (AllocRecord::default(), BTreeMap::new()));
        kept.0 = self.state.alloc.clone();
        for name in tasks {
            kept.1.insert(Name::clone(name), self.state.tasks[name].clone());
        }
    }

    fn publish(&mut self) {
        let view = View::of(&self.state);
        if view.tasks.len() != self.state.tasks.len() {
            self.fault(Invariant::OnlyAdded, "a task is missing in what is told");
        }
        self.published = Some(view);
    }

    /// kill -9 of the agent; with `reboot` the processes are gone too.
    pub fn crash(&mut self, reboot: bool) {
        if reboot {
            self.processes.retain(|_, p| matches!(p, Process::Ended(_)));
            // What prestart tasks made may be gone with the reboot, so they run again.
            let spec = Arc::clone(&self.state.spec);
            self.done.retain(|name| spec.tasks[name].role != TaskRole::Prestart);
        }
        self.pending.clear();
        self.unheard.clear();
        let told = self.published.take();
        let spec = Arc::clone(&self.state.spec);
        let Some((alloc, tasks)) = self.durable.clone() else {
            self.state = State::new(spec);
            let commands = step(&mut self.state, Event::Begin, self.now, 3);
            self.take(commands, u8::MAX);
            return;
        };
        let alloc: AllocRecord = serde_json::from_str(&serde_json::to_string(&alloc).unwrap()).unwrap();
        let tasks: BTreeMap<Name, TaskRecord> = serde_json::from_str(&serde_json::to_string(&tasks).unwrap()).unwrap();
        self.state = restore::restore(spec, alloc, tasks);
        if let Some(told) = told {
            self.check_kept(&told);
        }
        let mut again = self.state.clone();
        let commands = restore::resume(&mut self.state, reboot, self.now);
        if restore::resume(&mut again, reboot, self.now) != commands {
            self.fault(Invariant::Replay, "two restores give different commands");
        }
        self.take(commands, u8::MAX);
    }

    /// What was told before the crash is still known.
    fn check_kept(&mut self, told: &View) {
        for (name, task) in &told.tasks {
            let kept = &self.state.tasks[name].state;
            if !extends(task, kept) {
                self.fault(Invariant::OnlyAdded, format!("{name}: told {task:?}, kept {kept:?}"));
            }
        }
    }

    fn check_added(&mut self, before: &State) {
        for (name, task) in &before.tasks {
            let after = &self.state.tasks[name].state;
            if !extends(&task.state, after) {
                self.fault(Invariant::OnlyAdded, format!("{name}: {:?} became {after:?}", task.state));
            }
        }
    }

    fn check_terminal(&mut self) {
        if !self.state.alloc.status.is_terminal() {
            return;
        }
        if self.state.tasks.values().any(|t| t.state.state != TaskPhase::Dead) {
            self.fault(Invariant::Terminal, format!("terminal while {:?}", self.state.tasks));
        }
        let running = self.processes.iter().find(|(_, p)| !matches!(p, Process::Ended(_)));
        if let Some((key, _)) = running {
            let text = format!("terminal while {key:?} runs");
            self.fault(Invariant::Terminal, text);
        }
    }

    /// One random thing happens.
    pub fn act(&mut self, action: u8, choice: u8) {
        let cut = if choice.is_multiple_of(11) { choice % 5 } else { u8::MAX };
        match action % 16 {
            0..=5 => self.do_pending(choice, cut),
            6..=8 => self.end_process(choice),
            9 | 10 => self.hear(choice, cut),
            11 => {
                let due = self.state.next_deadline().unwrap_or(self.now + SECOND);
                self.now = due.max(self.now);
                self.feed(Event::Tick, cut);
            }
            12 => match choice % 8 {
                0 => self.crash(true),
                1..=3 => self.crash(false),
                4 => self.feed(Event::Reconnected, cut),
                _ => self.feed(Event::Contacted, cut),
            },
            13 => self.restart(choice, cut),
            14 if choice.is_multiple_of(4) => {
                self.stop_sent = true;
                self.feed(
                    Event::Stop { reason: "job stopped".into(), no_shutdown_delay: choice.is_multiple_of(3) },
                    cut,
                );
            }
            14 => {
                let task = self.any_task(choice);
                self.feed(Event::CheckFailed { task, reason: "check".into() }, cut);
            }
            _ if choice.is_multiple_of(5) => {
                let task = self.any_task(choice);
                self.aimed.insert(Name::clone(&task));
                self.feed(Event::StopTask { task, reason: String::new(), fails_task: choice.is_multiple_of(2) }, cut);
            }
            _ => self.do_pending(choice, cut),
        }
    }

    fn any_task(&self, choice: u8) -> Name {
        let names: Vec<_> = self.state.tasks.keys().collect();
        Name::clone(names[usize::from(choice) % names.len()])
    }

    fn restart(&mut self, choice: u8, cut: u8) {
        let scope = match choice % 3 {
            0 => RestartScope::Task(self.any_task(choice / 3)),
            1 => RestartScope::Running,
            _ => RestartScope::All,
        };
        if restart::refuse(&self.state, &scope).is_some() {
            return;
        }
        if scope == RestartScope::All {
            self.done.clear();
        }
        self.feed(Event::Restart { scope, reason: "user".into() }, cut);
    }

    fn do_pending(&mut self, choice: u8, cut: u8) {
        if self.pending.is_empty() {
            return;
        }
        let command = self.pending.remove(usize::from(choice) % self.pending.len());
        match command {
            Command::RunSetup if choice % 13 == 1 => {
                let dir_built = choice.is_multiple_of(2);
                self.feed(Event::SetupFailed { error: "no space".into(), dir_built }, cut);
            }
            Command::RunSetup => self.feed(Event::SetupDone, cut),
            Command::RunHooks { task, key } if choice % 13 == 1 => {
                let fact = TaskFact::HookFailed { hook: "artifacts".into(), error: "404".into() };
                self.feed(Event::HooksFailed { task, key, fact, recoverable: choice.is_multiple_of(2) }, cut);
            }
            Command::RunHooks { task, key } => self.feed(Event::HooksDone { task, key }, cut),
            Command::Start { task, key } => self.start(task, key, choice, cut),
            Command::Recover { task, key } => self.recover(task, key, cut),
            Command::Kill { task, key, .. } => self.signal(task, key),
            Command::RunPostrun => self.feed(Event::PostrunDone, cut),
            other => panic!("{other:?} is carried out at once"),
        }
    }

    fn start(&mut self, task: Name, key: Key, choice: u8, cut: u8) {
        if !self.state.may_start(&task, key) {
            self.feed(Event::StartSkipped { task, key }, cut);
            return;
        }
        if choice % 17 == 3 {
            let fact = TaskFact::DriverFailure { error: "no such file".into() };
            self.feed(Event::StartFailed { task, key, fact, recoverable: choice.is_multiple_of(2) }, cut);
            return;
        }
        self.check_start(&task, key);
        self.processes.insert((Name::clone(&task), key), Process::Running);
        if choice % 7 == 2 {
            // Killed between the start and its report.
            self.crash(false);
        } else {
            self.feed(Event::Started { task, key }, cut);
        }
    }

    fn check_start(&mut self, task: &Name, key: Key) {
        let role = self.state.role(task);
        let tasks = self.state.tasks.clone();
        if self.processes.contains_key(&(Name::clone(task), key)) {
            self.fault(Invariant::OneProcess, format!("{task} {key:?} started twice"));
        }
        let twin = self.processes.iter().any(|((t, _), p)| t == task && !matches!(p, Process::Ended(_)));
        if twin {
            self.fault(Invariant::OneProcess, format!("{task} started beside itself"));
        }
        if self.done.contains(task) {
            self.fault(Invariant::NotRepeated, format!("{task} had ended well"));
        }
        if role == TaskRole::Poststop {
            let live: Vec<_> =
                self.state.workers().filter(|(_, _, t)| t.stage != Stage::Dead).map(|(n, ..)| n.clone()).collect();
            let running: Vec<_> = self
                .processes
                .iter()
                .filter(|((t, _), p)| self.state.role(t) != TaskRole::Poststop && !matches!(p, Process::Ended(_)))
                .map(|(k, _)| k.clone())
                .collect();
            if !live.is_empty() || !running.is_empty() {
                self.fault(Invariant::PoststopLast, format!("{task} started beside {live:?} {running:?}"));
            }
            if self.cleaned.contains(&(Name::clone(task), key.run)) {
                self.fault(Invariant::PoststopOnce, format!("{task} again in run {}", key.run));
            }
            return;
        }
        if self.state.alloc.stop.is_some() || self.state.alloc.kill.is_some() {
            self.fault(Invariant::Stopping, format!("{task} started while {:?}", self.state.alloc));
        }
        let before = |wanted: &[TaskRole], good: &dyn Fn(TaskRole, &TaskRecord) -> bool| {
            tasks.iter().all(|(n, t)| !wanted.contains(&self.state.role(n)) || good(self.state.role(n), t))
        };
        let prestart_over = before(&[TaskRole::Prestart, TaskRole::PrestartSidecar], &|role, t| match role {
            TaskRole::Prestart => t.state.successful(),
            _ => t.state.started_at.is_some(),
        });
        let mains_begun =
            before(&[TaskRole::Main], &|_, t| t.state.started_at.is_some() || t.state.state == TaskPhase::Dead);
        let open = match role {
            TaskRole::Main => prestart_over,
            TaskRole::Poststart | TaskRole::PoststartSidecar => prestart_over && mains_begun,
            _ => true,
        };
        if !open {
            self.fault(Invariant::Gate, format!("{task} ({role:?}) started: {tasks:?}"));
        }
    }

    fn recover(&mut self, task: Name, key: Key, cut: u8) {
        let found = match self.processes.get(&(Name::clone(&task), key)) {
            Some(Process::Ended(exit)) => {
                self.unheard.retain(|u| *u != (Name::clone(&task), key));
                Recovery::Exited(exit.clone())
            }
            Some(_) => Recovery::Alive,
            None if self.state.tasks[&task].stage == Stage::Starting => Recovery::NotStarted,
            None => Recovery::Lost { error: "no process".into() },
        };
        self.feed(Event::Recovered { task, key, found }, cut);
    }

    fn signal(&mut self, task: Name, key: Key) {
        self.check_kill_order(&task);
        let entry = (task, key);
        match self.processes.get_mut(&entry) {
            Some(process @ Process::Running) => *process = Process::Signalled,
            Some(Process::Ended(_)) if !self.unheard.contains(&entry) => self.unheard.push(entry),
            _ => {}
        }
    }

    /// No sidecar is signalled while a main task has a process.
    fn check_kill_order(&mut self, task: &Name) {
        if !self.state.role(task).is_sidecar() || self.state.alloc.kill.is_none() || self.aimed.contains(task) {
            return;
        }
        let single = self.state.tasks[task].ending.clone();
        let main = self
            .processes
            .iter()
            .find(|((t, _), p)| self.state.role(t) == TaskRole::Main && matches!(p, Process::Running));
        if let (Some((main, _)), Some(herdsman_lifecycle::Ending::Kill)) = (main, single) {
            let text = format!("{task} signalled while {main:?} runs unsignalled");
            self.fault(Invariant::KillOrder, text);
        }
    }

    fn end_process(&mut self, choice: u8) {
        let live: Vec<_> =
            self.processes.iter().filter(|(_, p)| !matches!(p, Process::Ended(_))).map(|(k, _)| k.clone()).collect();
        if live.is_empty() {
            return;
        }
        let entry = live[usize::from(choice) % live.len()].clone();
        let exit = match (&self.processes[&entry], choice % 4) {
            (Process::Signalled, _) => Exit { exit_code: 143, signal: 15, ..Exit::default() },
            (_, 0) => Exit { exit_code: 1, ..Exit::default() },
            _ => Exit::default(),
        };
        self.processes.insert(entry.clone(), Process::Ended(exit));
        self.unheard.push(entry);
    }

    fn hear(&mut self, choice: u8, cut: u8) {
        if self.unheard.is_empty() {
            return;
        }
        let (task, key) = self.unheard.remove(usize::from(choice) % self.unheard.len());
        if self.state.tasks[&task].recovering {
            return;
        }
        let Some(Process::Ended(exit)) = self.processes.get(&(Name::clone(&task), key)).cloned() else { return };
        self.note_end(&task, key, &exit);
        self.feed(Event::Exited { task, key, exit }, cut);
    }

    fn note_end(&mut self, task: &Name, key: Key, exit: &Exit) {
        let role = self.state.role(task);
        let record = &self.state.tasks[task];
        let current = record.key == key && record.stage.has_process();
        let asked_again = matches!(record.ending, Some(herdsman_lifecycle::Ending::Restart { .. }));
        if !current || asked_again || !exit.success() {
            return;
        }
        if !restart::restarts_on_success(role, self.state.spec.batch) {
            self.done.insert(Name::clone(task));
        }
        if role == TaskRole::Poststop {
            self.cleaned.insert((Name::clone(task), key.run));
        }
    }

    /// Everybody answers from now on, and the job is stopped. Gives how many rounds it took to end.
    pub fn finish(&mut self) {
        for round in 0..2000u32 {
            if self.state.alloc.status.is_terminal() && self.pending.is_empty() {
                return;
            }
            let choice = (round % 6).try_into().unwrap_or(0u8).wrapping_mul(26);
            if round == 0 || self.state.alloc.stop.is_none() {
                self.feed(Event::Stop { reason: "job stopped".into(), no_shutdown_delay: false }, u8::MAX);
                self.feed(Event::Contacted, u8::MAX);
            }
            self.do_pending(choice, u8::MAX);
            self.end_process(2);
            while !self.unheard.is_empty() {
                self.hear(0, u8::MAX);
            }
            self.feed(Event::Contacted, u8::MAX);
            self.now = self.state.next_deadline().unwrap_or(self.now).max(self.now);
            self.feed(Event::Tick, u8::MAX);
        }
        let text = format!("{:?} pending {:?}", self.state, self.pending);
        self.fault(Invariant::Ends, text);
    }

    /// What has been asked for and not answered follows from the state alone.
    pub fn check_replay(&mut self) {
        if self.state.tasks.values().any(|t| t.recovering) || self.durable.is_none() {
            return;
        }
        // A start that is about to be skipped will change more than what is compared here.
        let skipped = |c: &Command| matches!(c, Command::Start { task, key } if !self.state.may_start(task, *key));
        if self.pending.iter().any(skipped) {
            return;
        }
        let text = serde_json::to_string(&(&self.state.alloc, &self.state.tasks)).unwrap();
        let (alloc, tasks) = serde_json::from_str(&text).unwrap();
        let mut copy = restore::restore(Arc::clone(&self.state.spec), alloc, tasks);
        copy.alloc.await_contact = self.state.alloc.await_contact;
        if copy != self.state {
            self.fault(Invariant::Replay, format!("{text} reads as {copy:?}"));
        }
        let mut commands = restore::resume(&mut copy, false, self.now);
        let recovers: Vec<_> = commands.extract_if(.., |c| matches!(c, Command::Recover { .. })).collect();
        for recover in recovers {
            let Command::Recover { task, key } = recover else { continue };
            let entry = (Name::clone(&task), key);
            let starts = self.pending.iter().any(|c| matches!(c, Command::Start { task: t, .. } if *t == task));
            let found =
                if starts || !self.processes.contains_key(&entry) { Recovery::NotStarted } else { Recovery::Alive };
            if found == Recovery::NotStarted && copy.tasks[&task].stage != Stage::Starting {
                return;
            }
            commands.extend(step(&mut copy, Event::Recovered { task, key, found }, self.now, 1));
        }
        let wanted = |c: &&Command| matches!(c, Command::Start { .. } | Command::RunHooks { .. });
        let replayed: BTreeSet<_> = commands.iter().filter(wanted).cloned().collect();
        let outstanding: BTreeSet<_> = self
            .pending
            .iter()
            .filter(wanted)
            .filter(|c| match c {
                Command::Start { task, key } => self.state.may_start(task, *key),
                Command::RunHooks { task, key } => {
                    self.state.tasks[task].key == *key && self.state.tasks[task].stage == Stage::Hooks
                }
                _ => true,
            })
            .cloned()
            .collect();
        if replayed != outstanding {
            self.fault(Invariant::Replay, format!("outstanding {outstanding:?}, replayed {replayed:?}"));
        }
    }
}

/// Everything that was known is still known: events are a prefix, or were elided and counted.
fn extends(old: &herdsman_model::TaskState, new: &herdsman_model::TaskState) -> bool {
    let elided = |s: &herdsman_model::TaskState| {
        s.events.iter().map(|e| if let TaskFact::EventsElided { count } = e.fact { count } else { 0 }).sum::<u64>()
    };
    let total = |s: &herdsman_model::TaskState| {
        elided(s) + s.events.iter().filter(|e| !matches!(e.fact, TaskFact::EventsElided { .. })).count() as u64
    };
    let head = old.events.len().min(10);
    total(new) >= total(old)
        && elided(new) >= elided(old)
        && new.events.get(..head) == old.events.get(..head)
        && (elided(new) > 0 || new.events.starts_with(&old.events))
        && old.events.iter().filter(|e| e.fact.fails_task()).all(|e| new.events.contains(e))
        && new.restarts >= old.restarts
        && (old.started_at.is_none() || new.started_at >= old.started_at)
}
