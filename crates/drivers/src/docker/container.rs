//! Containers of starts: made, found again, waited for, ended, removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::client::{CALL_LIMIT, Endpoint, Engine, EngineError, escape};
use super::create::{Facts, Plan, peer_labels, plan};
use super::image::{ImageName, Images, PullRequest, load, local};
use super::logs::{self, LogPlan, PumpState};
use super::options::DockerOptions;
use super::stats::LastLook;
use super::{OWN_LABEL_PREFIX, auth, collect, own_labels, paths};
use crate::config::Config;
use crate::driver::{DriverError, RecoverError, StartError};
use crate::types::{DriverNetwork, ExitResult, Handle, StartKey, TaskSpec};

/// Bytes in the megabyte of log settings.
const MIB: u64 = 1 << 20;
/// How long to wait before asking an engine again that did not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long an ended container's output may take to be copied.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);
/// How long an end may take after SIGKILL before it is called stuck.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the engine may take to start or remove a container.
const SLOW_CALL_LIMIT: Duration = Duration::from_secs(180);
/// The signal of an image that names none.
const DEFAULT_SIGNAL: &str = "SIGTERM";

/// A container this agent knows.
pub(crate) struct Container {
    pub id: String,
    pub last_look: LastLook,
    network: Option<DriverNetwork>,
    handle: Handle,
    pump: Option<(tokio::task::JoinHandle<()>, watch::Receiver<PumpState>)>,
    end: tokio::sync::Mutex<Option<ExitResult>>,
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some((pump, _)) = &self.pump {
            pump.abort();
        }
    }
}

/// What the driver's parts share.
pub(crate) struct Inner {
    pub options: DockerOptions,
    pub engine: Arc<Engine>,
    pub images: Images,
    known: Mutex<BTreeMap<StartKey, Arc<Container>>>,
    /// Starts under way, whose containers are not known yet.
    starting: Mutex<BTreeSet<String>>,
    seen: AtomicBool,
    keeping_house: AtomicBool,
    born: Instant,
}

fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

fn label<'a>(seen: &'a Value, name: &str) -> &'a str {
    text(seen, &format!("/Config/Labels/{OWN_LABEL_PREFIX}{name}"))
}

fn start_error(what: &str, e: &EngineError) -> StartError {
    StartError { recoverable: e.passing(), message: format!("{what}: {e}") }
}

fn driver_error(e: &EngineError) -> DriverError {
    match e {
        EngineError::Refused { status: 404 | 409, .. } => DriverError::NotRunning,
        other => DriverError::Failed(other.to_string()),
    }
}

impl Inner {
    pub fn new(options: DockerOptions) -> Result<Inner, String> {
        let engine = Arc::new(Engine::new(Endpoint::parse(&options.endpoint)?));
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
        let made = builder.create(options.state_dir.join("pins"));
        made.map_err(|e| format!("{}: {e}", options.state_dir.display()))?;
        // What an agent that was killed left mounted between create and start.
        for entry in std::fs::read_dir(options.state_dir.join("pins")).into_iter().flatten().flatten() {
            paths::clear(&entry.path());
        }
        let images = Images::default();
        collect::saved_images(&options.state_dir).iter().for_each(|image| images.brought(image));
        Ok(Inner {
            options,
            engine,
            images,
            known: Mutex::default(),
            starting: Mutex::default(),
            seen: AtomicBool::new(false),
            keeping_house: AtomicBool::new(false),
            born: Instant::now(),
        })
    }

    pub fn seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    pub fn set_seen(&self) {
        self.seen.store(true, Ordering::Relaxed);
    }

    pub fn age(&self) -> Duration {
        self.born.elapsed()
    }

    /// Begins to remove what nobody needs, once.
    pub fn keep_house(self: &Arc<Self>) {
        if !self.keeping_house.swap(true, Ordering::Relaxed) {
            tokio::spawn(collect::run(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<StartKey, Arc<Container>>> {
        // Nothing panics while holding it, and a map of pointers cannot be half changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn known_starts(&self) -> BTreeSet<String> {
        let starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.lock().keys().map(StartKey::file_name).chain(starting).collect()
    }

    fn marks(&self, start: &str) -> PathBuf {
        self.options.state_dir.join(format!("{start}.log"))
    }

    fn pin_dir(&self, start: &str) -> PathBuf {
        self.options.state_dir.join("pins").join(start)
    }

    /// Removes our files of a start.
    pub fn forget_files(&self, start: &str) {
        let _ = std::fs::remove_file(self.marks(start));
        paths::clear(&self.pin_dir(start));
    }

    /// Containers with this node's labels and these.
    pub async fn own_containers(&self, labels: &[(&str, &str)]) -> Result<Vec<Value>, EngineError> {
        let mut wanted: Vec<String> = own_labels(&self.options).iter().map(|(k, v)| format!("{k}={v}")).collect();
        wanted.extend(labels.iter().map(|(k, v)| format!("{k}={v}")));
        let filters = escape(&json!({ "label": wanted }).to_string());
        let list = self.engine.get(&format!("/containers/json?all=1&filters={filters}")).await?;
        Ok(list.as_array().cloned().unwrap_or_default())
    }

    /// The container of a start, as the engine describes it.
    async fn find(&self, key: &StartKey) -> Result<Option<Value>, EngineError> {
        let name = format!("{OWN_LABEL_PREFIX}start");
        let found = self.own_containers(&[(&name, &key.file_name())]).await?;
        match found.first() {
            Some(container) => self.inspect(text(container, "/Id")).await,
            None => Ok(None),
        }
    }

    async fn inspect(&self, id: &str) -> Result<Option<Value>, EngineError> {
        match self.engine.get(&format!("/containers/{}/json", escape(id))).await {
            Ok(seen) => Ok(Some(seen)),
            Err(e) if e.not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// True if a container carries this node's labels.
    fn ours(&self, seen: &Value) -> bool {
        own_labels(&self.options).iter().all(|(name, value)| text(seen, &format!("/Config/Labels/{name}")) == value)
    }

    /// Removes a container of this node, running or not.
    pub async fn remove(&self, id: &str) -> Result<(), EngineError> {
        let path = format!("/containers/{id}?force=1&v=1");
        match self.engine.call_within(SLOW_CALL_LIMIT, Method::DELETE, &path, None).await {
            Ok(_) => Ok(()),
            Err(e) if e.not_found() => Ok(()),
            // Somebody else is at it: done when it is gone.
            Err(e) if e.conflict() => {
                let deadline = Instant::now() + CALL_LIMIT;
                while self.inspect(id).await?.is_some() {
                    if Instant::now() > deadline {
                        return Err(e);
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    pub async fn start(self: &Arc<Self>, spec: TaskSpec) -> Result<(Handle, Option<DriverNetwork>), StartError> {
        let key = crate::executor::key_of(&spec)?;
        if let Some(known) = self.lock().get(&key) {
            return Ok((known.handle.clone(), known.network.clone()));
        }
        let refused = |e: EngineError| start_error("Failed to connect to docker daemon", &e);
        if let Some(seen) = self.find(&key).await.map_err(refused)? {
            if text(&seen, "/State/Status") != "created" {
                let container = self.remember(&key, &seen, Config::new(&spec.config));
                return Ok((container.handle.clone(), container.network.clone()));
            }
            // An agent was killed before it could start it.
            self.remove(text(&seen, "/Id")).await.map_err(refused)?;
        }
        // Holds the image until the container does.
        let under_way = UnderWay::new(self, key.file_name());
        let started = self.start_new(&spec, &key, &under_way.start).await;
        if started.is_err() {
            self.forget_files(&under_way.start);
        }
        let container = started?;
        Ok((container.handle.clone(), container.network.clone()))
    }

    async fn start_new(
        self: &Arc<Self>,
        spec: &TaskSpec,
        key: &StartKey,
        holder: &str,
    ) -> Result<Arc<Container>, StartError> {
        let config = Config::new(&spec.config);
        let image = self.image(spec, config, holder).await?;
        let mut plan = self.plan(spec, key).await?;
        let start = key.file_name();
        let log = self.log_plan(spec, key, config, &plan);
        if let Some(log) = &log {
            let prepared = logs::prepare(&self.marks(&start), log);
            prepared.map_err(|e| StartError::recoverable(format!("cannot open the task's log files: {e}")))?;
        }
        self.set_labels(&mut plan, spec, key, config, log.as_ref());
        if let Some(body) = plan.body.as_object_mut() {
            body.insert("Image".to_owned(), json!(image));
        }
        let id = self.create(key, config, &plan.body).await?;
        let begun =
            self.engine.call_within(SLOW_CALL_LIMIT, Method::POST, &format!("/containers/{id}/start"), None).await;
        let result = match begun {
            Ok(_) => self.started(&id, key, config, &plan).await,
            Err(e) => self.start_failed(&id, key, config, &plan, &e).await,
        };
        if result.is_err()
            && let Err(e) = self.remove(&id).await
        {
            tracing::warn!(container = id, error = %e, "cannot remove a container that did not start");
        }
        result
    }

    /// The engine may have started it although it did not say so.
    async fn start_failed(
        self: &Arc<Self>,
        id: &str,
        key: &StartKey,
        config: Config<'_>,
        plan: &Plan,
        e: &EngineError,
    ) -> Result<Arc<Container>, StartError> {
        let seen = self.inspect(id).await.ok().flatten().unwrap_or_default();
        if matches!(e, EngineError::TimedOut(_) | EngineError::Unreachable(_))
            && text(&seen, "/State/Status") == "running"
        {
            return self.started(id, key, config, plan).await;
        }
        Err(start_error(&format!("Failed to start container {id}"), e))
    }

    async fn started(
        self: &Arc<Self>,
        id: &str,
        key: &StartKey,
        config: Config<'_>,
        plan: &Plan,
    ) -> Result<Arc<Container>, StartError> {
        let seen = self.inspect(id).await.map_err(|e| start_error("Failed to inspect container", &e))?;
        let seen =
            seen.ok_or_else(|| StartError::recoverable(format!("container {id} was removed by somebody else")))?;
        let pid = seen.pointer("/State/Pid").and_then(Value::as_u64).unwrap_or(0);
        if pid > 0 {
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            plan.pins.seen(&root, &plan.pinned).map_err(StartError::fatal)?;
        }
        Ok(self.remember(key, &seen, config))
    }

    async fn plan(&self, spec: &TaskSpec, key: &StartKey) -> Result<Plan, StartError> {
        let refused = |e: EngineError| start_error("Failed to connect to docker daemon", &e);
        let api = self.engine.api_version().await.map_err(refused)?;
        let info = self.engine.get("/info").await.map_err(refused)?;
        let processors = info.get("NCPU").and_then(Value::as_u64).unwrap_or(1);
        let alloc_label = format!("{OWN_LABEL_PREFIX}alloc_id");
        let mut siblings = BTreeMap::new();
        if spec.config.to_string().contains("container:") {
            for other in self.own_containers(&[(&alloc_label, &key.alloc_id)]).await.map_err(refused)? {
                let task = text(&other, &format!("/Labels/{OWN_LABEL_PREFIX}task"));
                siblings.insert(format!("{task}-{}", key.alloc_id), text(&other, "/Id").to_owned());
            }
        }
        let pin_dir = self.pin_dir(&key.file_name());
        plan(spec, &Facts { options: &self.options, api, processors, pin_dir, siblings: &siblings })
    }

    fn log_plan(&self, spec: &TaskSpec, key: &StartKey, config: Config<'_>, plan: &Plan) -> Option<LogPlan> {
        if spec.log.disabled || self.options.disable_log_collection {
            return None;
        }
        if !plan.log_readable {
            let driver = plan.log_driver.as_str();
            let message =
                format!("Output goes to the engine's log driver {driver:?} only; it is not in the allocation's logs");
            spec.events.tell(&message, &[("log_driver", driver)]);
            return None;
        }
        Some(LogPlan {
            dir: spec.dirs.logs.clone(),
            task: key.task.clone(),
            max_files: u64::from(spec.log.max_files.max(1)),
            max_size: u64::from(spec.log.max_file_size_mb.max(1)) * MIB,
            tty: config.flag("tty").unwrap_or(false),
        })
    }

    fn set_labels(&self, plan: &mut Plan, spec: &TaskSpec, key: &StartKey, config: Config<'_>, log: Option<&LogPlan>) {
        let mut labels = config.map("labels");
        labels.extend(peer_labels(spec, &key.alloc_id, &key.task, &self.options.extra_labels));
        labels.extend(own_labels(&self.options));
        let log = log.and_then(|l| serde_json::to_string(l).ok()).unwrap_or_default();
        for (name, value) in
            [("start", key.file_name()), ("alloc_id", key.alloc_id.clone()), ("task", key.task.clone()), ("log", log)]
        {
            labels.insert(format!("{OWN_LABEL_PREFIX}{name}"), value);
        }
        if let Some(body) = plan.body.as_object_mut() {
            body.insert("Labels".to_owned(), json!(labels));
        }
    }

    /// Creates the container, or finds it created. A name in use is made free
    /// if it is ours, else another is taken.
    async fn create(&self, key: &StartKey, config: Config<'_>, body: &Value) -> Result<String, StartError> {
        let own = config.number("container_exists_attempts").and_then(|n| u32::try_from(n).ok());
        let attempts = own.unwrap_or(self.options.container_exists_attempts).max(1);
        let mut name = container_name(key);
        let mut attempt = 1;
        loop {
            let made = self.engine.post(&format!("/containers/create?name={}", escape(&name)), Some(body)).await;
            let error = match made {
                Ok(made) => return Ok(text(&made, "/Id").to_owned()),
                Err(e) => e,
            };
            if attempt >= attempts || !(error.passing() || error.conflict()) {
                return Err(start_error("Failed to create container", &error));
            }
            attempt += 1;
            let failed = |e: EngineError| start_error("Failed to create container", &e);
            if !error.conflict() {
                // It may be there although the answer was lost.
                tokio::time::sleep(RETRY_PAUSE).await;
                if let Ok(Some(seen)) = self.find(key).await {
                    return Ok(text(&seen, "/Id").to_owned());
                }
                continue;
            }
            match self.inspect(&name).await.map_err(failed)? {
                Some(seen) if self.ours(&seen) && label(&seen, "start") == key.file_name() => {
                    return Ok(text(&seen, "/Id").to_owned());
                }
                // An earlier attempt of this task; the node wants it replaced.
                Some(seen)
                    if self.ours(&seen)
                        && label(&seen, "task") == key.task
                        && label(&seen, "alloc_id") == key.alloc_id =>
                {
                    self.remove(text(&seen, "/Id")).await.map_err(failed)?;
                }
                Some(_) => name = format!("{}-{}-{}-{attempt}", container_name(key), key.run, key.attempt),
                None => {}
            }
        }
    }

    /// Makes the image be here and returns what to create from.
    async fn image(self: &Arc<Self>, spec: &TaskSpec, config: Config<'_>, holder: &str) -> Result<String, StartError> {
        let image = config.text_or_empty("image");
        let name = ImageName::parse(&image).map_err(StartError::fatal)?;
        let limit =
            config.span("image_pull_timeout").filter(|l| !l.is_zero()).unwrap_or(self.options.image_pull_timeout);
        let failed = |e: EngineError| start_error(&format!("Failed to inspect image `{name}`"), &e);
        let before = local(&self.engine, &name).await.map_err(failed)?;
        let archive = config.text_or_empty("load");
        if !archive.is_empty() {
            let refused = |e: String| StartError::fatal(format!("Failed to load image from {archive:?}: {e}"));
            let file = paths::open_file(&spec.dirs, &archive).map_err(refused)?;
            load(&self.engine, file, limit).await.map_err(|e| StartError::recoverable(refused(e).message))?;
        } else if before.is_none() || config.flag("force_pull") == Some(true) || name.moving() {
            let blocks = config.blocks("auth");
            let login = match auth::find(&self.options, blocks.first().copied(), name.registry()).await {
                Ok(login) => login,
                Err(e) if config.flag("auth_soft_fail") == Some(true) => {
                    tracing::warn!(error = e, image, "no login for the registry; pulling without");
                    None
                }
                Err(e) => return Err(StartError::fatal(e)),
            };
            let (events, activity_limit) = (&spec.events, self.options.pull_activity_timeout);
            self.images.pull(&self.engine, PullRequest { name: &name, login, limit, activity_limit, events }).await?;
        }
        let after = local(&self.engine, &name).await.map_err(failed)?;
        let id =
            after.ok_or_else(|| StartError::fatal(format!("image `{name}` is not among those that were loaded")))?;
        self.images.in_use(holder, &id);
        if before.as_ref() != Some(&id) {
            self.images.brought(&id);
            collect::save_images(self);
        }
        Ok(name.to_string())
    }

    /// From now on the container is known and its output is copied.
    fn remember(self: &Arc<Self>, key: &StartKey, seen: &Value, config: Config<'_>) -> Arc<Container> {
        let mut all = self.lock();
        if let Some(known) = all.get(key) {
            return Arc::clone(known);
        }
        let id = text(seen, "/Id").to_owned();
        self.images.in_use(&id, text(seen, "/Image"));
        let pump = serde_json::from_str::<LogPlan>(label(seen, "log")).ok().map(|log| {
            let (tell, state) = watch::channel(PumpState::default());
            let marks = self.marks(&key.file_name());
            (tokio::spawn(logs::run(Arc::clone(&self.engine), id.clone(), log, marks, tell)), state)
        });
        let container = Arc::new(Container {
            handle: Handle {
                driver: "docker".to_owned(),
                key: key.clone(),
                pid: seen
                    .pointer("/State/Pid")
                    .and_then(Value::as_u64)
                    .and_then(|p| u32::try_from(p).ok())
                    .unwrap_or(0),
                started_ns: logs::unix_ns(text(seen, "/State/StartedAt")).unwrap_or(0),
                data: json!({ "container_id": id }),
            },
            network: network(seen, config),
            id,
            last_look: LastLook::default(),
            pump,
            end: tokio::sync::Mutex::new(None),
        });
        all.insert(key.clone(), Arc::clone(&container));
        container
    }

    pub async fn recover(self: &Arc<Self>, handle: &Handle) -> Result<Arc<Container>, RecoverError> {
        if let Some(known) = self.lock().get(&handle.key) {
            return Ok(Arc::clone(known));
        }
        let found = self.find(&handle.key).await.map_err(|e| RecoverError::Unknown(e.to_string()))?;
        let id = text(&handle.data, "/container_id");
        match found {
            Some(seen) if text(&seen, "/State/Status") == "created" => Err(RecoverError::NeverStarted),
            Some(seen) => Ok(self.remember(&handle.key, &seen, Config(None))),
            None if id.is_empty() => Err(RecoverError::NeverStarted),
            None => Err(RecoverError::Lost(format!("the task's container {id} was removed by somebody else"))),
        }
    }

    /// The container of an operation on a task.
    pub async fn known(self: &Arc<Self>, handle: &Handle) -> Result<Arc<Container>, DriverError> {
        self.recover(handle).await.map_err(|e| match e {
            RecoverError::Unknown(why) => DriverError::Failed(why),
            RecoverError::NeverStarted | RecoverError::Lost(_) => DriverError::NotRunning,
        })
    }

    pub async fn wait(self: &Arc<Self>, handle: &Handle) -> ExitResult {
        let container = loop {
            match self.recover(handle).await {
                Ok(container) => break container,
                Err(RecoverError::Unknown(why)) => {
                    tracing::warn!(error = why, "cannot ask for a task's end; trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(e) => return ExitResult::unknown(e.to_string()),
            }
        };
        // The first to come waits, the others wait for it; whoever is cancelled
        // leaves the wait to the next.
        let mut end = container.end.lock().await;
        if let Some(seen) = &*end {
            return seen.clone();
        }
        let mut result = self.await_end(&container.id).await;
        result.lost_output = container.drained().await;
        *end = Some(result.clone());
        result
    }

    async fn await_end(&self, id: &str) -> ExitResult {
        loop {
            let waited = async {
                let mut reply = self.engine.open(Method::POST, &format!("/containers/{id}/wait"), &[], None).await?;
                while reply.chunk().await?.is_some() {}
                self.inspect(id).await
            };
            match waited.await {
                Ok(Some(seen)) if matches!(text(&seen, "/State/Status"), "exited" | "dead") => {
                    return exit_result(&seen);
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    return ExitResult::unknown(format!("the task's container {id} was removed by somebody else"));
                }
                Err(e) if e.not_found() => {
                    return ExitResult::unknown(format!("the task's container {id} was removed by somebody else"));
                }
                Err(e) => tracing::warn!(container = id, error = %e, "cannot wait for a container; trying again"),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    pub async fn stop(
        self: &Arc<Self>,
        handle: &Handle,
        timeout: Duration,
        signal: Option<i32>,
    ) -> Result<(), DriverError> {
        let container = match self.known(handle).await {
            Ok(container) => container,
            Err(DriverError::NotRunning) => return Ok(()),
            Err(e) => return Err(e),
        };
        let signal = match signal {
            Some(number) => number.to_string(),
            None => {
                let seen = self.inspect(&container.id).await.ok().flatten().unwrap_or_default();
                let own = text(&seen, "/Config/StopSignal");
                if own.is_empty() { DEFAULT_SIGNAL.to_owned() } else { own.to_owned() }
            }
        };
        match self.signal(handle, &signal).await {
            Ok(()) | Err(DriverError::NotRunning) => {}
            Err(e) => {
                tracing::warn!(error = %e, key = ?handle.key, "cannot send the stop signal; killing after the timeout")
            }
        }
        if tokio::time::timeout(timeout, self.wait(handle)).await.is_ok() {
            return Ok(());
        }
        self.kill(handle).await
    }

    async fn kill(self: &Arc<Self>, handle: &Handle) -> Result<(), DriverError> {
        match self.signal(handle, "KILL").await {
            Ok(()) | Err(DriverError::NotRunning) => {}
            Err(DriverError::Failed(why)) => {
                return Err(DriverError::Failed(format!("failed to kill the task: {why}")));
            }
        }
        match tokio::time::timeout(KILL_TIMEOUT, self.wait(handle)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(DriverError::Failed("the task does not end though it was killed".to_owned())),
        }
    }

    pub async fn signal(self: &Arc<Self>, handle: &Handle, signal: &str) -> Result<(), DriverError> {
        let container = self.known(handle).await?;
        let path = format!("/containers/{}/kill?signal={}", container.id, escape(signal));
        self.engine.post(&path, None).await.map(drop).map_err(|e| driver_error(&e))
    }

    pub async fn destroy(self: &Arc<Self>, handle: &Handle, force: bool) -> Result<(), DriverError> {
        let start = handle.key.file_name();
        let container = match self.recover(handle).await {
            Ok(container) => container,
            Err(RecoverError::Lost(_)) => return self.forget(handle, &start),
            Err(RecoverError::NeverStarted) => {
                let failed = |e: EngineError| DriverError::Failed(e.to_string());
                if let Some(seen) = self.find(&handle.key).await.map_err(failed)? {
                    self.remove(text(&seen, "/Id")).await.map_err(failed)?;
                }
                return self.forget(handle, &start);
            }
            Err(RecoverError::Unknown(why)) => return Err(DriverError::Failed(why)),
        };
        let failed = |e: EngineError| DriverError::Failed(format!("failed to remove container {}: {e}", container.id));
        let seen = self.inspect(&container.id).await.map_err(failed)?.unwrap_or_default();
        if seen.pointer("/State/Running").and_then(Value::as_bool) == Some(true) {
            if !force {
                return Err(DriverError::Failed("cannot destroy running task".to_owned()));
            }
            self.kill(handle).await?;
        }
        container.drained().await;
        if self.options.gc_container {
            self.remove(&container.id).await.map_err(failed)?;
        }
        self.images.released(&container.id);
        self.forget(handle, &start)
    }

    fn forget(&self, handle: &Handle, start: &str) -> Result<(), DriverError> {
        self.forget_files(start);
        self.lock().remove(&handle.key);
        Ok(())
    }
}

/// Says that a start is under way, until it is dropped.
struct UnderWay {
    inner: Arc<Inner>,
    start: String,
}

impl UnderWay {
    fn new(inner: &Arc<Inner>, start: String) -> UnderWay {
        inner.starting.lock().unwrap_or_else(PoisonError::into_inner).insert(start.clone());
        UnderWay { inner: Arc::clone(inner), start }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.inner.images.released(&self.start);
        self.inner.starting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.start);
    }
}

impl Container {
    /// Until the output is copied; how many bytes of it were lost.
    async fn drained(&self) -> u64 {
        let Some((_, state)) = &self.pump else { return 0 };
        let mut state = state.clone();
        let done = tokio::time::timeout(DRAIN_LIMIT, state.wait_for(|s| s.done)).await.is_ok();
        if !done {
            tracing::warn!(container = self.id, "the output of an ended container is not copied in time");
        }
        state.borrow().lost
    }
}

/// `<task>-<alloc id>`, as users' tools expect it, in the engine's alphabet.
fn container_name(key: &StartKey) -> String {
    let name = format!("{}-{}", key.task, key.alloc_id);
    let legal = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
    let name: String = name.chars().map(legal).collect();
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) { name } else { format!("t{name}") }
}

/// The address of a container on a network of its own.
fn network(seen: &Value, config: Config<'_>) -> Option<DriverNetwork> {
    let networks = seen.pointer("/NetworkSettings/Networks")?.as_object()?;
    let (name, network) = networks.iter().next()?;
    let v6 = config.flag("advertise_ipv6_address") == Some(true);
    let ip = text(network, if v6 { "/GlobalIPv6Address" } else { "/IPAddress" });
    // On the default bridge other hosts cannot reach it.
    let auto_advertise = v6 || !["bridge", "nat", "host", "none"].contains(&name.as_str());
    (!ip.is_empty()).then(|| DriverNetwork { port_map: BTreeMap::new(), ip: ip.to_owned(), auto_advertise })
}

/// How an ended container ended. The engine tells no signal: a task that a
/// signal ended has the code 128 plus its number.
fn exit_result(seen: &Value) -> ExitResult {
    let code = seen.pointer("/State/ExitCode").and_then(Value::as_i64).and_then(|c| i32::try_from(c).ok());
    let oom_killed = seen.pointer("/State/OOMKilled").and_then(Value::as_bool).unwrap_or(false);
    let own = text(seen, "/State/Error");
    let exit_code = code.unwrap_or(-1);
    // As the peer puts it; people search for these texts.
    let err = match exit_code {
        _ if oom_killed => Some("OOM Killed".to_owned()),
        0 if own.is_empty() => None,
        _ if own.is_empty() => Some(format!("Docker container exited with non-zero exit code: {exit_code}")),
        _ => Some(format!("Docker container exited with non-zero exit code: {exit_code}; {own}")),
    };
    ExitResult {
        exit_code,
        signal: 0,
        oom_killed,
        err,
        lost_output: 0,
        finished_ns: logs::unix_ns(text(seen, "/State/FinishedAt")).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_in_the_peers_words() {
        let end = |code: i64, oom: bool| exit_result(&json!({ "State": { "ExitCode": code, "OOMKilled": oom } }));
        assert!(end(0, false).success());
        assert_eq!(end(9, false).err.as_deref(), Some("Docker container exited with non-zero exit code: 9"));
        let oom = end(137, true);
        assert_eq!((oom.err.as_deref(), oom.exit_code, oom.oom_killed), (Some("OOM Killed"), 137, true));
    }

    #[test]
    fn names_are_in_the_engines_alphabet() {
        let key = |task: &str| StartKey { alloc_id: "a-1".to_owned(), task: task.to_owned(), run: 0, attempt: 0 };
        assert_eq!(container_name(&key("web")), "web-a-1");
        assert_eq!(container_name(&key("-ö b")), "t-__b-a-1");
    }
}
