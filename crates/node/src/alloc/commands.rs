//! Carrying out what `lifecycle` commands.

use super::drive;
use super::hooks::{FileHooks, SpecSource, TaskHooks, environment, prestart, setup, start_key, task_spec};
use super::runner::{Done, Runner};
use crate::store::{Op, Stored};
use futures::future::abortable;
use herdsman_drivers::{FsIsolation, Handle};
use herdsman_lifecycle::health::{Criterion, HealthRules, Tracker};
use herdsman_lifecycle::{Command, Event, Key, View};
use herdsman_model::{DeploymentStatus, Name, NetworkStatus, Task, TaskFact};
use herdsman_proto::AllocUpdate;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Runner {
    /// Carries commands out in their order.
    pub(super) async fn carry_out(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::RunSetup => self.begin_setup(),
                Command::CancelSetup => {
                    if let Some(abort) = self.setup.take() {
                        abort.abort();
                    }
                }
                Command::RunHooks { task, key } => self.begin_hooks(task, key),
                Command::CancelHooks { task } => {
                    if let Some(abort) = self.hooks.remove(&task) {
                        abort.abort();
                    }
                }
                Command::DeregisterGroup => self.deregister(&None),
                Command::DeregisterTask { task } => self.deregister(&Some(task)),
                Command::RegisterGroup => self.register(None),
                Command::RegisterTask { task } => self.register(Some(task)),
                Command::Persist { tasks } => self.save(&tasks).await,
                Command::Recover { task, key } => self.begin_recovery(task, key),
                Command::Start { task, key } => self.start(task, key),
                Command::Kill { task, key, signal, timeout } => self.kill(&task, key, signal, timeout),
                Command::Publish { urgent } => self.publish(urgent),
                Command::RunPostrun => self.begin_postrun(),
            }
        }
    }

    /// Every task is dead. Secrets go at once: nobody reads them any more, and each is a file system that costs the kernel
    /// something whenever a memory cgroup ends.
    fn begin_postrun(&mut self) {
        self.deregister_all();
        let (shared, dir, tasks) = (Arc::clone(&self.shared), self.info.dir.clone(), self.info.tasks.clone());
        self.work.push(Box::pin(async move {
            let root = dir.root.clone();
            let gone = shared.disk_work(move || dir.forget_secrets(tasks.iter().map(|t| &**t))).await;
            if let Err(error) = gone {
                tracing::warn!(dir = %root.display(), %error, "secrets stay in memory until the allocation is collected");
            }
            Done::Event(Event::PostrunDone)
        }));
    }

    fn begin_setup(&mut self) {
        let before = self.alloc.previous_allocation.iter().chain(&self.alloc.preempted_allocations);
        let before = before.filter_map(|id| self.shared.terminal_watch(*id)).collect();
        let gone = self.lost_directory;
        let work = setup(Arc::clone(&self.shared), self.info.dir.clone(), before, gone);
        let (work, abort) = abortable(drive::ahead(work));
        self.setup = Some(abort);
        self.work.push(Box::pin(async move { work.await.unwrap_or(Done::Nothing) }));
    }

    fn begin_hooks(&mut self, task: Name, key: Key) {
        let Some(found) = self.group.task(&task) else { return self.unknown_task(task, key) };
        let files = self.file_hooks(&task, found);
        let hooks = TaskHooks {
            files,
            shared: Arc::clone(&self.shared),
            dir: self.info.dir.clone(),
            job: Arc::clone(&self.job),
            capabilities: self.shared.drivers.get(&found.driver).map(|driver| driver.capabilities()),
            task: Arc::clone(found),
            name: Name::clone(&task),
            key,
        };
        if hooks.files.as_ref().is_some_and(|files| files.fetch) && !hooks.task.artifacts.is_empty() {
            self.feed(Event::Note { task: Name::clone(&task), fact: TaskFact::DownloadingArtifacts });
        }
        let (work, abort) = abortable(drive::ahead(prestart(hooks)));
        self.hooks.insert(task, abort);
        self.work.push(Box::pin(async move { work.await.unwrap_or(Done::Nothing) }));
    }

    /// What a task's specification and environment are made from.
    pub(super) fn source<'a>(&'a self, task: &'a Task) -> SpecSource<'a> {
        SpecSource {
            shared: &self.shared,
            dir: &self.info.dir,
            alloc: &self.alloc,
            job: &self.job,
            group: &self.group,
            task,
            rendered: self.rendered.get(task.name.as_str()),
        }
    }

    /// What artifacts and templates of a task need, if it has any.
    fn file_hooks(&self, name: &Name, task: &Arc<Task>) -> Option<FileHooks> {
        if task.artifacts.is_empty() && task.templates.is_empty() {
            return None;
        }
        let source = SpecSource { rendered: None, ..self.source(task) };
        let driver = self.shared.drivers.get(&task.driver);
        let isolation = driver.map_or(FsIsolation::None, |driver| driver.capabilities().fs_isolation);
        let prepared = self.state.tasks.get(name).is_some_and(|record| record.prepared);
        Some(FileHooks {
            env: environment(&source, isolation),
            host: environment(&source, FsIsolation::None),
            fetch: !prepared,
            render: !prepared || task.restart_policy.render_templates,
        })
    }

    /// A task that was recorded but that the job no longer has.
    fn unknown_task(&mut self, task: Name, key: Key) {
        let fact = TaskFact::FailedValidation { error: format!("the job has no task {task:?} any more") };
        self.feed(Event::HooksFailed { task, key, fact, recoverable: false });
    }

    fn begin_recovery(&mut self, task: Name, key: Key) {
        let driver_name = self.group.task(&task).map(|task| task.driver.clone()).unwrap_or_default();
        let handle = self
            .stored_handles
            .remove(&task)
            .filter(|handle| (handle.key.run, handle.key.attempt) == (key.run, key.attempt));
        // A start that was recorded but whose handle was not: its key says which it is.
        let handle = handle.unwrap_or_else(|| Handle {
            driver: driver_name,
            key: start_key(&self.alloc, &task, key),
            pid: 0,
            started_ns: 0,
            data: serde_json::Value::Null,
        });
        let driver = self.shared.drivers.get(&handle.driver).cloned();
        self.work.push(Box::pin(drive::recover(self.shared.world.clone(), driver, handle, task, key)));
    }

    fn start(&mut self, task: Name, key: Key) {
        self.hooks.remove(&task);
        if self.store_failed {
            let fact = TaskFact::DriverFailure {
                error: "the start cannot be recorded: the node store cannot be written".into(),
            };
            return self.feed(Event::StartFailed { task, key, fact, recoverable: true });
        }
        if !self.state.may_start(&task, key) {
            return self.feed(Event::StartSkipped { task, key });
        }
        let Some(found) = self.group.task(&task).cloned() else { return self.unknown_task(task, key) };
        let Some(driver) = self.shared.drivers.get(&found.driver).cloned() else {
            let error = format!("driver {:?} is not on this node", found.driver);
            return self.feed(Event::StartFailed {
                task,
                key,
                fact: TaskFact::DriverFailure { error },
                recoverable: false,
            });
        };
        let source = self.source(&found);
        let events = self.event_sink(&task);
        let spec = task_spec(&source, driver.capabilities(), key, events).and_then(|spec| {
            let checked = driver.check_config(&spec.config);
            checked.map(|()| spec).map_err(|error| TaskFact::FailedValidation { error: error.to_string() })
        });
        match spec {
            Ok(spec) => self.work.push(Box::pin(drive::start(driver, spec, task, key))),
            Err(fact) => self.feed(Event::StartFailed { task, key, fact, recoverable: false }),
        }
    }

    fn kill(&mut self, task: &Name, key: Key, signal: String, timeout: i64) {
        let Some((driver, handle)) = self.running.get(task).cloned() else { return };
        if (handle.key.run, handle.key.attempt) != (key.run, key.attempt) {
            return;
        }
        let timeout = Duration::from_nanos(u64::try_from(timeout).unwrap_or(0));
        self.work.push(Box::pin(drive::stop(self.shared.world.clone(), driver, handle, signal, timeout)));
    }

    /// Makes the state of these tasks, and of the allocation, durable.
    pub(super) async fn save(&mut self, tasks: &[Name]) {
        self.unsaved_tasks.extend(tasks.iter().cloned());
        let id = self.alloc.id;
        let mut ops = Vec::with_capacity(self.unsaved_tasks.len() + 2);
        if self.unsaved_alloc {
            ops.push(Op::PutAlloc(id, Stored::json(&self.alloc)));
            if let Some(op) = self.shared.job_write(&self.info.job_key()) {
                ops.push(op);
            }
        }
        ops.push(Op::PutLife(id, Stored::json(&self.stored_life())));
        self.unsaved_tasks.sort_unstable();
        self.unsaved_tasks.dedup();
        for name in &self.unsaved_tasks {
            if let Some(record) = self.state.tasks.get(name) {
                ops.push(Op::PutTask(id, Name::clone(name), Stored::json(record)));
            }
        }
        for (task, handle) in &self.handle_changes {
            ops.push(match handle {
                // A handle has text keys only, so it has a JSON form.
                Some(handle) => {
                    let bytes = serde_json::to_vec(handle).unwrap_or_default();
                    Op::PutHandle(id, Name::clone(task), Stored::opaque(&bytes))
                }
                None => Op::DropHandle(id, Name::clone(task)),
            });
        }
        match self.shared.store.write(ops).await {
            Ok(()) => {
                self.store_failed = false;
                self.unsaved_alloc = false;
                self.unsaved_tasks.clear();
                self.handle_changes.clear();
            }
            Err(error) => {
                tracing::error!(alloc = %id, %error, "the state of the allocation could not be stored; trying again");
                self.store_failed = true;
                self.shared.store_failed(&error);
            }
        }
    }

    /// Tries again to store what could not be stored, and then tells it.
    pub(super) async fn save_again(&mut self) {
        self.save(&[]).await;
        if !self.store_failed {
            self.publish(true);
        }
    }

    /// Tells the servers, unless what would be told is not stored.
    pub(super) fn publish(&mut self, urgent: bool) {
        if self.store_failed {
            return;
        }
        let View { status, description, outcome, tasks } = View::of(&self.state);
        if status.is_terminal() && !self.info.is_terminal() {
            self.info.terminal_at.store(self.now(), Ordering::Relaxed);
        }
        if status.is_terminal() != self.info.is_terminal() {
            self.info.terminal.send_replace(status.is_terminal());
            self.shared.wake_gc();
        }
        let deployment = self.deployment.clone();
        self.shared.updates.push(
            AllocUpdate {
                id: self.alloc.id,
                client_status: status,
                client_description: description,
                outcome,
                task_states: tasks,
                state_changes: Vec::new(),
                deployment_status: (deployment != DeploymentStatus::default()).then_some(deployment),
                // Host networking: there is no interface of the allocation's own to tell of.
                network_status: Some(NetworkStatus::default()),
            },
            urgent,
        );
    }

    /// Begins to follow health where a deployment or a migration asks for it.
    pub(super) fn track_health(&mut self) {
        let deployed = self.alloc.deployment_id.is_some();
        if self.job.kind.is_batch() || self.deployment.healthy.is_some() || !deployed && self.group.migrate.is_none() {
            return;
        }
        let checks = {
            let group = self.group.services.iter();
            let tasks = self.group.tasks.iter().flat_map(|task| task.services.iter());
            group.chain(tasks).filter(|s| s.provider == crate::services::NATIVE).map(|s| s.checks.len()).sum()
        };
        let rules = match (&self.group.update, &self.group.migrate, deployed) {
            (Some(update), _, true) => HealthRules {
                criterion: Criterion::from_word(&update.health_check),
                min_healthy_time: update.min_healthy_time,
                healthy_deadline: update.healthy_deadline,
                checks,
            },
            (_, Some(migrate), false) => HealthRules {
                criterion: Criterion::from_word(&migrate.health_check),
                min_healthy_time: migrate.min_healthy_time,
                healthy_deadline: migrate.healthy_deadline,
                checks,
            },
            _ => return,
        };
        self.health = Some(Tracker::new(rules, self.now()));
    }

    /// Judges health. Gives whether there is a verdict to store and tell.
    pub(super) fn look_at_health(&mut self) -> bool {
        let now = self.now();
        let Some(tracker) = &mut self.health else { return false };
        if tracker.is_decided() {
            self.health = None;
            return false;
        }
        let tasks = self.state.tasks.iter().map(|(n, t)| (Name::clone(n), (self.state.role(n), &t.state))).collect();
        let Some(verdict) = tracker.observe(&tasks, &self.info.checks.views(), now) else { return false };
        self.health = None;
        self.deployment.healthy = Some(verdict.healthy);
        self.deployment.timestamp = Some(now);
        for (task, message) in verdict.messages {
            self.feed(Event::Note { task, fact: TaskFact::AllocUnhealthy { message } });
        }
        true
    }
}
