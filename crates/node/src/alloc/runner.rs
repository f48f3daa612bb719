//! The loop of a runner.

use super::dir::AllocDir;
use super::{AllocInfo, Msg, QUEUE, Running, StoredLife, key_of};
use crate::checks::CheckNews;
use crate::node::Shared;
use crate::serve::Refusal;
use crate::store::LoadedAlloc;
use futures::StreamExt;
use futures::future::{AbortHandle, BoxFuture};
use futures::stream::FuturesUnordered;
use herdsman_drivers::{Driver, DriverNetwork, Handle};
use herdsman_lifecycle::{
    Event, Exit, GroupSpec, Key, Recovery, RestartScope, Stage, State, health, restart, restore, step,
};
use herdsman_model::{Allocation, ClientStatus, DeploymentStatus, Job, Name, Nanos, TaskFact, TaskGroup, TaskRole};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// News of checks that may wait.
const NEWS_QUEUE: usize = 16;
/// Wait before states that could not be stored are stored again.
pub(super) const STORE_RETRY: Duration = Duration::from_secs(2);
/// A deadline further away than this is looked at again on the way, in case the wall clock was stepped.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// A result of the runner's own work.
pub enum Done {
    Nothing,
    Event(Event),
    /// The hooks of a task are done; its templates gave these variables.
    Prepared {
        task: Name,
        key: Key,
        env: BTreeMap<String, String>,
    },
    Started {
        task: Name,
        key: Key,
        driver: Arc<dyn Driver>,
        handle: Box<Handle>,
        network: Option<DriverNetwork>,
    },
    Recovered {
        task: Name,
        key: Key,
        driver: Arc<dyn Driver>,
        handle: Box<Handle>,
    },
    Exited {
        task: Name,
        key: Key,
        exit: Exit,
        driver: Arc<dyn Driver>,
        handle: Box<Handle>,
    },
    Destroyed {
        task: Name,
        key: Key,
    },
}

/// How a runner comes to be.
pub enum Origin {
    /// The servers sent it.
    New,
    /// It was in the store.
    Stored { loaded: Box<LoadedAlloc>, rebooted: bool },
}

/// One allocation on this node.
pub struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) info: Arc<AllocInfo>,
    pub(super) alloc: Allocation,
    pub(super) job: Arc<Job>,
    pub(super) group: Arc<TaskGroup>,
    pub(super) state: State,
    pub(super) running: BTreeMap<Name, Running>,
    /// Addresses of tasks that have their own.
    pub(super) networks: BTreeMap<Name, DriverNetwork>,
    /// Variables that templates of tasks gave.
    pub(super) rendered: BTreeMap<Name, BTreeMap<String, String>>,
    pub(super) work: FuturesUnordered<BoxFuture<'static, Done>>,
    pub(super) hooks: BTreeMap<Name, AbortHandle>,
    pub(super) setup: Option<AbortHandle>,
    pub(super) health: Option<health::Tracker>,
    pub(super) deployment: DeploymentStatus,
    pub(super) registered: BTreeMap<Option<Name>, (Vec<String>, JoinSet<()>)>,
    pub(super) check_news: mpsc::Sender<CheckNews>,
    /// The allocation as the servers sent it is not stored yet.
    pub(super) unsaved_alloc: bool,
    /// Handles to store or drop with the next write.
    pub(super) handle_changes: BTreeMap<Name, Option<Handle>>,
    /// Tasks whose state could not be stored.
    pub(super) unsaved_tasks: Vec<Name>,
    pub(super) store_failed: bool,
    /// Stored handles of an earlier agent.
    pub(super) stored_handles: BTreeMap<Name, Handle>,
    pub(super) lost_directory: bool,
    /// Told to remove the allocation once it is over.
    removed: bool,
    /// It is gone from the node.
    destroyed: bool,
    events: VecDeque<Event>,
    sender: mpsc::Sender<Msg>,
}

impl Runner {
    /// Makes the runner of an allocation of this group of the job; gives how to reach it.
    pub fn launch(
        shared: &Arc<Shared>,
        mut alloc: Allocation,
        job: Arc<Job>,
        group: Arc<TaskGroup>,
        origin: Origin,
    ) -> super::AllocHandle {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let info = Arc::new(AllocInfo {
            id: alloc.id,
            dir: AllocDir::new(&shared.config.alloc_dir, alloc.id),
            tasks: group.tasks.iter().map(|task| Name::from(task.name.as_str())).collect(),
            job_key: Mutex::new(key_of(&alloc)),
            index: AtomicU64::new(alloc.alloc_modify_index),
            terminal: watch::Sender::new(false),
            terminal_at: AtomicI64::new(0),
            checks: Arc::default(),
        });
        let handle = super::AllocHandle { info: Arc::clone(&info), sender: sender.clone() };
        let deployment = alloc.deployment_status.clone().unwrap_or_default();
        alloc.task_states = BTreeMap::new();
        let limit = shared.tuning().max_kill_timeout;
        let spec = Arc::new(GroupSpec::new(job.kind, &group, alloc.create_time, limit));
        let (check_news, news) = mpsc::channel(NEWS_QUEUE);
        let runner = Runner {
            shared: Arc::clone(shared),
            info,
            alloc,
            job,
            group,
            state: State::new(spec),
            running: BTreeMap::new(),
            networks: BTreeMap::new(),
            rendered: BTreeMap::new(),
            work: FuturesUnordered::new(),
            hooks: BTreeMap::new(),
            setup: None,
            health: None,
            deployment,
            registered: BTreeMap::new(),
            check_news,
            unsaved_alloc: matches!(origin, Origin::New),
            handle_changes: BTreeMap::new(),
            unsaved_tasks: Vec::new(),
            store_failed: false,
            stored_handles: BTreeMap::new(),
            lost_directory: false,
            removed: false,
            destroyed: false,
            events: VecDeque::new(),
            sender,
        };
        let alive = shared.alive();
        tokio::spawn(async move {
            runner.run(receiver, news, origin).await;
            drop(alive);
        });
        handle
    }

    async fn run(mut self, mut messages: mpsc::Receiver<Msg>, mut news: mpsc::Receiver<CheckNews>, origin: Origin) {
        let mut stop = self.shared.stopping.subscribe();
        self.begin(origin).await;
        while !self.destroyed {
            self.settle().await;
            if self.removed && self.is_over() {
                self.destroy().await;
                break;
            }
            let deadline = self.sleep();
            tokio::select! {
                biased;
                () = crate::node::stopped(&mut stop) => return,
                Some(done) = self.work.next(), if !self.work.is_empty() => self.done(done),
                message = messages.recv() => match message {
                    Some(message) => self.take(message).await,
                    None => return,
                },
                Some(news) = news.recv() => self.check_news(news),
                () = deadline => self.events.push_back(Event::Tick),
            }
        }
    }

    /// A future that ends at the next deadline.
    fn sleep(&self) -> impl Future<Output = ()> + 'static {
        let clock = Arc::clone(&self.shared.world.clock);
        let health = self.health.as_ref().and_then(health::Tracker::next_deadline);
        let due = [self.state.next_deadline(), health].into_iter().flatten().min();
        let span = due.map(|due| Duration::from_nanos(u64::try_from(due.saturating_sub(clock.now().0)).unwrap_or(0)));
        let retry = self.store_failed.then_some(STORE_RETRY);
        let span = [span, retry].into_iter().flatten().min();
        async move {
            match span {
                Some(span) => clock.sleep(span.min(LONGEST_SLEEP)).await,
                None => std::future::pending().await,
            }
        }
    }

    pub(super) fn now(&self) -> Nanos {
        self.shared.world.clock.now().0
    }

    async fn begin(&mut self, origin: Origin) {
        match origin {
            Origin::New => {
                self.track_health();
                self.events.push_back(Event::Begin);
                if self.alloc.server_terminal() {
                    self.stop_wanted();
                }
            }
            Origin::Stored { loaded, rebooted } => self.resume(*loaded, rebooted).await,
        }
    }

    /// Goes on with an allocation of an earlier agent.
    async fn resume(&mut self, loaded: LoadedAlloc, rebooted: bool) {
        let life = loaded.life.unwrap_or_default();
        self.deployment.healthy = self.deployment.healthy.or(life.healthy);
        self.deployment.timestamp = self.deployment.timestamp.or(life.healthy_at);
        let begun = !loaded.tasks.is_empty();
        self.state = restore::restore(Arc::clone(&self.state.spec), life.record, loaded.tasks);
        for (task, bytes) in loaded.handles {
            match serde_json::from_slice::<Handle>(&bytes) {
                Ok(handle) => drop(self.stored_handles.insert(task, handle)),
                Err(error) => tracing::warn!(%task, alloc = %self.alloc.id, %error, "a stored handle cannot be read"),
            }
        }
        if !begun && loaded.damage.is_none() {
            self.track_health();
            self.events.push_back(Event::Begin);
            return;
        }
        let over = self.state.all_dead();
        let built = self.state.tasks.values().any(|task| task.set_up);
        self.lost_directory = built && !over && !self.info.dir.exists();
        let now = self.now();
        let commands = restore::resume(&mut self.state, rebooted, now);
        if !over {
            self.track_health();
        }
        self.forget_ended();
        self.carry_out(commands).await;
        // The servers may not have heard the last of it.
        self.publish(true);
        if let Some(error) = loaded.damage {
            let error = format!("the node's record of the allocation is damaged: {error}");
            self.events.push_back(Event::SetupFailed { error, dir_built: true });
        }
        if self.alloc.server_terminal() {
            self.stop_wanted();
        }
    }

    /// Traces of tasks that had ended before the agent was restarted.
    fn forget_ended(&mut self) {
        let ended = |runner: &Runner, task: &Name, handle: &Handle| {
            runner.state.tasks.get(task).is_none_or(|record| {
                let key = Key { run: handle.key.run, attempt: handle.key.attempt };
                !record.stage.has_process() || record.key != key
            })
        };
        let stale: Vec<_> =
            self.stored_handles.iter().filter(|(t, h)| ended(self, t, h)).map(|(t, _)| t.clone()).collect();
        for task in stale {
            let Some(handle) = self.stored_handles.remove(&task) else { continue };
            if let Some(driver) = self.shared.drivers.get(&handle.driver) {
                self.work.push(Box::pin(super::drive::destroy(Arc::clone(driver), handle, task)));
            }
        }
    }

    /// Feeds what waits to the lifecycle until nothing waits.
    async fn settle(&mut self) {
        let mut looked = false;
        loop {
            while let Some(event) = self.events.pop_front() {
                let (now, jitter) = (self.now(), self.shared.world.rng.u64());
                let commands = step(&mut self.state, event, now, jitter);
                self.carry_out(commands).await;
                looked = false;
            }
            if self.store_failed {
                self.save_again().await;
            }
            if looked || !self.look_at_health() {
                return;
            }
            looked = true;
            self.save(&[]).await;
            self.publish(true);
        }
    }

    pub(super) fn feed(&mut self, event: Event) {
        self.events.push_back(event);
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Nothing => {}
            Done::Event(event) => self.feed(event),
            Done::Prepared { task, key, env } => {
                self.rendered.insert(Name::clone(&task), env);
                self.feed(Event::HooksDone { task, key });
            }
            Done::Started { task, key, driver, handle, network } => {
                match network {
                    Some(network) => drop(self.networks.insert(Name::clone(&task), network)),
                    None => drop(self.networks.remove(&task)),
                }
                self.runs(&task, key, driver, *handle);
                self.feed(Event::Started { task, key });
            }
            Done::Recovered { task, key, driver, handle } => {
                self.runs(&task, key, driver, *handle);
                self.feed(Event::Recovered { task, key, found: Recovery::Alive });
            }
            Done::Exited { task, key, exit, driver, handle } => {
                self.running.remove(&task);
                self.feed(Event::Exited { task: Name::clone(&task), key, exit });
                // The trace goes once the end is stored: events are fed before this work is looked at.
                self.work.push(Box::pin(super::drive::destroy(driver, *handle, task)));
            }
            Done::Destroyed { task, key } => {
                let current = self.running.get(&task).map(|(_, handle)| (handle.key.run, handle.key.attempt));
                if current.is_none_or(|current| current == (key.run, key.attempt)) {
                    self.handle_changes.entry(task).or_insert(None);
                }
            }
        }
        if self.shared.has_contact() && self.state.alloc.await_contact {
            self.feed(Event::Contacted);
        }
    }

    /// A task has a process.
    fn runs(&mut self, task: &Name, key: Key, driver: Arc<dyn Driver>, handle: Handle) {
        self.handle_changes.insert(Name::clone(task), Some(handle.clone()));
        self.running.insert(Name::clone(task), (Arc::clone(&driver), handle.clone()));
        self.work.push(Box::pin(super::drive::wait(driver, handle, Name::clone(task), key)));
    }

    fn check_news(&mut self, news: CheckNews) {
        match news {
            CheckNews::Changed => {}
            CheckNews::Restart { task: Some(task), reason } => self.feed(Event::CheckFailed { task, reason }),
            CheckNews::Restart { task: None, reason } => {
                let mains: Vec<_> = self
                    .state
                    .workers()
                    .filter(|(_, _, t)| t.stage == Stage::Running)
                    .map(|(n, ..)| n.clone())
                    .collect();
                for task in mains {
                    self.feed(Event::CheckFailed { task, reason: reason.clone() });
                }
            }
        }
    }

    async fn take(&mut self, message: Msg) {
        match message {
            Msg::Update(alloc, job) => self.update(*alloc, job).await,
            Msg::Removed => {
                self.removed = true;
                self.shared.updates.forget(self.alloc.id);
                if !self.is_over() {
                    self.feed(Event::Stop {
                        reason: "the servers no longer know the allocation".into(),
                        no_shutdown_delay: false,
                    });
                }
            }
            Msg::Contacted => self.feed(Event::Contacted),
            Msg::Note(task, fact) => self.feed(Event::Note { task, fact }),
            Msg::Restart { scope, reply } => {
                let answer = self.restart(scope);
                self.settle().await;
                // Whoever asked may have gone.
                let _ = reply.send(answer);
            }
            Msg::Signal { task, signal, reply } => {
                let answer = self.signal(&task, &signal).await;
                let _ = reply.send(answer);
            }
            Msg::Running { task, reply } => {
                let _ = reply.send(self.running_tasks(&task));
            }
            Msg::Destroy { reply } => {
                let answer = if self.is_over() {
                    self.destroy().await;
                    Ok(())
                } else {
                    Err(Refusal::failed(NOT_ELIGIBLE))
                };
                let _ = reply.send(answer);
            }
        }
    }

    /// The servers changed the allocation.
    async fn update(&mut self, mut alloc: Allocation, job: Arc<Job>) {
        if alloc.alloc_modify_index < self.info.index() {
            return;
        }
        self.info.index.store(alloc.alloc_modify_index, Ordering::Relaxed);
        if alloc.client_status == ClientStatus::Unknown && !self.state.alloc.status.is_terminal() {
            self.feed(Event::Reconnected);
        }
        alloc.task_states = BTreeMap::new();
        if let Some(status) = &alloc.deployment_status {
            self.deployment.canary = status.canary;
        }
        let changed_job = job.version != self.job.version || !Arc::ptr_eq(&job, &self.job);
        if changed_job && let Some(group) = job.group(&alloc.task_group) {
            self.group = Arc::clone(group);
            let limit = self.shared.tuning().max_kill_timeout;
            let spec = GroupSpec::new(job.kind, group, alloc.create_time, limit);
            self.job = job;
            self.feed(Event::Respec(Arc::new(spec)));
        }
        if changed_job {
            *self.info.job_key.lock().unwrap_or_else(PoisonError::into_inner) = key_of(&alloc);
        }
        let new_deployment = alloc.deployment_id != self.alloc.deployment_id;
        self.alloc = alloc;
        self.unsaved_alloc = true;
        if new_deployment {
            self.deployment.healthy = None;
            self.deployment.timestamp = None;
            self.track_health();
        }
        if self.alloc.server_terminal() {
            self.stop_wanted();
        }
        self.settle().await;
        if changed_job && !self.state.stopping() {
            let owners: Vec<_> = self.registered.keys().cloned().collect();
            for owner in owners {
                self.deregister(&owner);
                self.register(owner);
            }
        }
        // What the lifecycle recorded meanwhile took it along.
        if self.unsaved_alloc {
            self.save(&[]).await;
        }
    }

    /// The servers want the allocation stopped.
    fn stop_wanted(&mut self) {
        let transition = &self.alloc.desired_transition;
        let no_shutdown_delay = transition.no_shutdown_delay == Some(true);
        if let Some(health) = &mut self.health {
            health.cancel();
        }
        if self.state.alloc.stop.is_some() {
            if no_shutdown_delay && !self.state.alloc.no_shutdown_delay {
                self.feed(Event::SkipShutdownDelays);
            }
            return;
        }
        let reason = match (transition.should_migrate(), self.alloc.desired_description.as_str()) {
            (true, _) => "allocation is migrating".to_string(),
            (false, "") => "allocation stopped".to_string(),
            (false, text) => text.to_string(),
        };
        self.feed(Event::Stop { reason, no_shutdown_delay });
    }

    fn restart(&mut self, scope: RestartScope) -> Result<(), Refusal> {
        if self.state.alloc.status.is_terminal() {
            return Err(Refusal::failed("the allocation is over; its tasks cannot be restarted"));
        }
        if let Some(text) = restart::refuse(&self.state, &scope) {
            return Err(Refusal::failed(text));
        }
        let reason = match &scope {
            RestartScope::Task(_) => "User requested task to restart",
            RestartScope::Running => "User requested running tasks to restart",
            RestartScope::All => "User requested all tasks to restart",
        };
        self.feed(Event::Restart { scope, reason: reason.into() });
        Ok(())
    }

    async fn signal(&mut self, task: &str, signal: &str) -> Result<(), Refusal> {
        for (name, (driver, handle)) in self.running_tasks_or(task, "Task not found")? {
            let fact = TaskFact::Signaling { signal: signal.to_string(), reason: "user requested signal".into() };
            self.feed(Event::Note { task: Name::clone(&name), fact });
            // A poststop task is ended only by somebody who aims at it; it is not started again then.
            if self.state.role(&name) == TaskRole::Poststop && is_kill(signal) {
                let reason = "user requested the end of this task".to_string();
                self.feed(Event::StopTask { task: name, reason, fails_task: true });
            }
            driver.signal(&handle, signal).await.map_err(|error| Refusal::failed(error.to_string()))?;
        }
        Ok(())
    }

    fn running_tasks(&self, task: &str) -> Result<Vec<(Name, Running)>, Refusal> {
        self.running_tasks_or(task, "task not found")
    }

    /// The tasks that run, or the one of this name.
    fn running_tasks_or(&self, task: &str, unknown: &str) -> Result<Vec<(Name, Running)>, Refusal> {
        if task.is_empty() {
            return Ok(self.running.iter().map(|(name, running)| (Name::clone(name), running.clone())).collect());
        }
        match (self.state.tasks.get_key_value(task), self.running.get(task)) {
            (None, _) => Err(Refusal::failed(unknown)),
            (Some(_), None) => Err(Refusal::failed("Task not running")),
            (Some((name, _)), Some(running)) => Ok(vec![(Name::clone(name), running.clone())]),
        }
    }

    /// Every task is dead and what follows is done.
    fn is_over(&self) -> bool {
        self.state.all_dead()
            && self.state.alloc.status.is_terminal()
            && self.state.alloc.postrun_done
            && self.events.is_empty()
    }

    /// Takes everything of the allocation off the node. States the servers have stay with them.
    async fn destroy(&mut self) {
        self.deregister_all();
        while let Some(done) = self.work.next().await {
            self.done(done);
        }
        let (dir, tasks) = (self.info.dir.clone(), self.info.tasks.clone());
        let removed = self.shared.disk_work(move || dir.destroy(tasks.iter().map(|t| &**t))).await;
        if let Err(error) = removed {
            tracing::warn!(alloc = %self.alloc.id, %error, "the allocation directory could not be removed");
        }
        self.shared.forget(&self.info).await;
        self.destroyed = true;
    }

    /// Where drivers send what they have to say.
    pub(super) fn event_sink(&self, task: &Name) -> herdsman_drivers::EventSink {
        let (sender, task) = (self.sender.clone(), Name::clone(task));
        herdsman_drivers::EventSink(Arc::new(move |event| {
            let fact = TaskFact::Driver { message: event.message };
            // A runner that is that far behind has more important things to hear.
            let _ = sender.try_send(Msg::Note(Name::clone(&task), fact));
        }))
    }

    pub(super) fn stored_life(&self) -> StoredLife {
        StoredLife {
            record: self.state.alloc.clone(),
            healthy: self.deployment.healthy,
            healthy_at: self.deployment.timestamp,
        }
    }
}

/// Answer to a collection of something that still runs.
pub const NOT_ELIGIBLE: &str = "No such allocation on client, or allocation not eligible for GC";

/// Whether a signal ends a task for good.
fn is_kill(signal: &str) -> bool {
    matches!(signal, "SIGKILL" | "KILL" | "9")
}
