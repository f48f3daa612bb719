//! The node: what its parts share, and starting and stopping it.

use crate::alloc::{AllocHandle, AllocInfo, Msg, Origin, Runner, job_key, key_of};
use crate::config::{NodeConfig, NodeError, Tuning};
use crate::env::node_keys;
use crate::fingerprint;
use crate::gc;
use crate::identity::{self, Identity};
use crate::services::Registry;
use crate::session::{self, Incoming};
use crate::store::{DirLock, Loaded, LoadedAlloc, Op, Store, Stored};
use crate::updates::Updates;
use herdsman_drivers::{Driver, Drivers, Health};
use herdsman_model::{AllocId, Allocation, ClientStatus, DriverInfo, Job, Node as NodeNoun, NodeEvent, NodeId};
use herdsman_proto::AllocUpdate;
use herdsman_world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, watch};

/// Directory work that goes on at once.
const DISK_SLOTS: usize = 4;
/// Time the parts have to end.
const SHUTDOWN_WAIT: Duration = Duration::from_millis(500);
/// Store key of the boot the state was recorded in.
const BOOT_KEY: &str = "boot_id";
/// Store key of dynamic metadata.
const META_KEY: &str = "dynamic_meta";
/// Jobs kept although no allocation here refers to them any more.
const UNUSED_JOBS: usize = 256;
/// How often drivers look at the host again.
const DRIVER_INTERVAL: Duration = Duration::from_secs(30);

/// Dynamic metadata: what was set, or hidden (`None`).
pub type DynamicMeta = BTreeMap<String, Option<String>>;

/// A job known here.
struct JobEntry {
    job: Arc<Job>,
    stored: bool,
}

/// The node, and what references to it stand for.
type NodeView = (Arc<NodeNoun>, Arc<BTreeMap<String, String>>);

/// What the parts of a node share.
pub struct Shared {
    /// As the node was started; what may change later is in `tuning`.
    pub config: NodeConfig,
    tuning: watch::Sender<Arc<Tuning>>,
    pub world: World,
    pub drivers: Drivers,
    pub store: Store,
    pub updates: Updates,
    pub services: Registry,
    pub identity: Identity,
    /// Counts changes of the node that the servers are to be told.
    pub node_changes: watch::Sender<u64>,
    /// The server a session is open with.
    pub connected: watch::Sender<Option<String>>,
    pub stopping: watch::Sender<bool>,
    node: Mutex<NodeView>,
    dynamic_meta: Mutex<DynamicMeta>,
    allocs: Mutex<BTreeMap<AllocId, AllocHandle>>,
    jobs: Mutex<BTreeMap<String, JobEntry>>,
    servers: Mutex<Vec<String>>,
    new_servers: Notify,
    contact: AtomicBool,
    store_trouble: AtomicBool,
    store_troubled: Notify,
    /// Drivers are to look at the host again.
    look_again: Notify,
    events: mpsc::Sender<NodeEvent>,
    disk_slots: Semaphore,
    /// Places for requests that are being answered.
    pub bulk_slots: Arc<Semaphore>,
    gc: Notify,
    /// Allocations that have begun here.
    begun: AtomicU64,
    alive: Mutex<Option<mpsc::Sender<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder leaves it half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns once the node is being shut down.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone means the same.
    drop(stop.wait_for(|stop| *stop).await);
}

impl Shared {
    /// What may change while the node runs, as it is now.
    pub fn tuning(&self) -> Arc<Tuning> {
        Arc::clone(&self.tuning.borrow())
    }

    /// The same, as it changes.
    pub fn tuning_changes(&self) -> watch::Receiver<Arc<Tuning>> {
        self.tuning.subscribe()
    }

    /// Changes what may change while the node runs. What is under way goes on as it began.
    pub fn retune(&self, tuning: Tuning) {
        self.change_node(|node| node.node_max_allocs = tuning.node_max_allocs);
        self.tuning.send_replace(Arc::new(tuning));
    }

    /// The node as it is now.
    pub fn node(&self) -> Arc<NodeNoun> {
        Arc::clone(&lock(&self.node).0)
    }

    /// What `${node.…}`, `${attr.…}` and `${meta.…}` stand for.
    pub fn node_keys(&self) -> Arc<BTreeMap<String, String>> {
        Arc::clone(&lock(&self.node).1)
    }

    /// Changes the node and tells the servers, if anything changed.
    pub fn change_node(&self, change: impl FnOnce(&mut NodeNoun)) {
        let mut held = lock(&self.node);
        let mut node = (*held.0).clone();
        change(&mut node);
        node.computed_class = fingerprint::computed_class(&node);
        if node == *held.0 {
            return;
        }
        let keys = node_keys(&node, &self.config.region);
        *held = (Arc::new(node), Arc::new(keys));
        drop(held);
        self.node_changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Addresses of servers: those that were configured, then those that servers told of.
    pub fn servers(&self) -> Vec<String> {
        lock(&self.servers).clone()
    }

    pub fn learn_servers(&self, told: Vec<String>) {
        let mut servers = lock(&self.servers);
        for server in told {
            if !server.is_empty() && !servers.contains(&server) {
                servers.push(server);
                self.new_servers.notify_one();
            }
        }
    }

    /// Returns once a server was learnt of.
    pub async fn servers_learnt(&self) {
        self.new_servers.notified().await;
    }

    /// The servers were heard.
    pub fn contacted(&self) {
        if self.contact.swap(true, Ordering::Relaxed) {
            return;
        }
        for handle in self.handles() {
            // A full queue: the runner looks at the flag itself after its next piece of work.
            let _ = handle.sender.try_send(Msg::Contacted);
        }
    }

    pub fn has_contact(&self) -> bool {
        self.contact.load(Ordering::Relaxed)
    }

    /// Allocations here, with the last server-side change seen of each.
    pub fn known(&self) -> Vec<(AllocId, u64)> {
        lock(&self.allocs).iter().map(|(id, handle)| (*id, handle.info.index())).collect()
    }

    pub fn handles(&self) -> Vec<AllocHandle> {
        lock(&self.allocs).values().cloned().collect()
    }

    pub fn handle(&self, id: AllocId) -> Option<AllocHandle> {
        lock(&self.allocs).get(&id).cloned()
    }

    pub fn count(&self) -> usize {
        lock(&self.allocs).len()
    }

    /// Turns true once the allocation is terminal; `None`: it is not here.
    pub fn terminal_watch(&self, id: AllocId) -> Option<watch::Receiver<bool>> {
        lock(&self.allocs).get(&id).map(|handle| handle.info.terminal.subscribe())
    }

    /// Something that lives as long as a part does.
    pub fn alive(&self) -> Option<mpsc::Sender<()>> {
        lock(&self.alive).clone()
    }

    /// Runs directory work off the async threads, a few at a time.
    pub async fn disk_work<T: Send + 'static, E: From<WorkLost> + Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        // The semaphore is never closed.
        let _slot = self.disk_slots.acquire().await;
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(E::from(WorkLost(error.to_string()))),
        }
    }

    /// The write that makes a job durable, the first time it is asked for.
    pub fn job_write(&self, key: &str) -> Option<Op> {
        let mut jobs = lock(&self.jobs);
        let entry = jobs.get_mut(key).filter(|entry| !entry.stored)?;
        entry.stored = true;
        Some(Op::PutJob(key.to_string(), Stored::json(&*entry.job)))
    }

    /// The store cannot be written: say so, and take no new work.
    pub fn store_failed(&self, error: &str) {
        if self.store_trouble.swap(true, Ordering::Relaxed) {
            return;
        }
        // What a failed write held of jobs is written again with the next one.
        for entry in lock(&self.jobs).values_mut() {
            entry.stored = false;
        }
        self.event("Storage", format!("the node store cannot be written: {error}; no new task starts"));
        self.store_troubled.notify_one();
        self.look_again.notify_one();
    }

    /// Notes something for the node's list of events.
    pub fn event(&self, subsystem: &str, message: String) {
        let event = NodeEvent {
            message,
            subsystem: subsystem.into(),
            timestamp: self.world.clock.now().0,
            ..NodeEvent::default()
        };
        if self.events.try_send(event).is_err() {
            tracing::warn!("a node event is dropped because too many wait for a session");
        }
    }

    pub fn wake_gc(&self) {
        self.gc.notify_one();
    }

    /// Allocations that have begun since the agent started.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    pub async fn gc_wanted(&self) {
        self.gc.notified().await;
    }

    /// An allocation is gone from the node.
    pub async fn forget(&self, info: &AllocInfo) {
        let mut ops = vec![Op::DropAlloc(info.id)];
        {
            let mut allocs = lock(&self.allocs);
            allocs.remove(&info.id);
            let key = info.job_key();
            if !allocs.values().any(|other| other.info.job_key() == key) {
                // It stays known for as long as the session may refer to it, but need not be stored.
                if let Some(entry) = lock(&self.jobs).get_mut(&key) {
                    entry.stored = false;
                }
                ops.push(Op::DropJob(key));
            }
        }
        if let Err(error) = self.store.write(ops).await {
            tracing::warn!(alloc = %info.id, %error, "the allocation stays in the store until the next start");
        }
    }

    /// Applies what a server sent.
    ///
    /// # Errors
    /// The server takes the node to know a job that it has forgotten: a new session sends it again.
    pub async fn apply(self: &Arc<Self>, incoming: Incoming) -> Result<(), ForgottenJob> {
        let Incoming { jobs, allocs, removed, complete } = incoming;
        for job in jobs {
            let key = job_key(&job.namespace, &job.id, job.create_index, job.version);
            // A version of a job never changes, so the one that runners hold stays.
            lock(&self.jobs).entry(key).or_insert(JobEntry { job, stored: false });
        }
        for alloc in allocs {
            self.apply_alloc(alloc, complete).await?;
        }
        for id in removed {
            if let Some(handle) = self.handle(id) {
                // A runner that has ended needs no message.
                let _ = handle.sender.send(Msg::Removed).await;
            }
        }
        self.drop_unused_jobs();
        self.wake_gc();
        Ok(())
    }

    async fn apply_alloc(self: &Arc<Self>, alloc: Allocation, complete: bool) -> Result<(), ForgottenJob> {
        let key = key_of(&alloc);
        let job = lock(&self.jobs).get(&key).map(|entry| Arc::clone(&entry.job));
        let known = self.handle(alloc.id);
        let Some(job) = job else {
            if !complete {
                return Err(ForgottenJob(alloc.job_id.to_string()));
            }
            tracing::error!(alloc = %alloc.id, job = %alloc.job_id, "an allocation came without its job");
            if known.is_none() {
                self.refuse_alloc(&alloc, "the servers sent no job for the allocation");
            }
            return Ok(());
        };
        match known {
            Some(handle) => {
                // A runner that has ended was destroyed, which the servers are told of.
                let _ = handle.sender.send(Msg::Update(Box::new(alloc), job)).await;
            }
            // It ended here before and was collected since, or elsewhere.
            None if alloc.client_terminal() => {}
            None => self.launch(alloc, job, Origin::New),
        }
        Ok(())
    }

    fn launch(self: &Arc<Self>, alloc: Allocation, job: Arc<Job>, origin: Origin) {
        let Some(group) = job.group(&alloc.task_group).cloned() else {
            return self.refuse_alloc(&alloc, &format!("the job has no group {:?}", alloc.task_group));
        };
        let id = alloc.id;
        self.begun.fetch_add(1, Ordering::Relaxed);
        let handle = Runner::launch(self, alloc, job, group, origin);
        lock(&self.allocs).insert(id, handle);
    }

    /// An allocation that cannot be run at all.
    fn refuse_alloc(&self, alloc: &Allocation, why: &str) {
        let now = self.world.clock.now().0;
        let update = AllocUpdate {
            id: alloc.id,
            client_status: ClientStatus::Failed,
            client_description: why.to_string(),
            outcome: Some(herdsman_model::Outcome { kind: herdsman_model::OutcomeKind::Failed, time: now }),
            ..AllocUpdate::default()
        };
        self.updates.push(update, true);
    }

    /// Forgets jobs that no allocation here refers to, once there are many.
    fn drop_unused_jobs(&self) {
        if lock(&self.jobs).len() <= UNUSED_JOBS {
            return;
        }
        let used: BTreeSet<_> = lock(&self.allocs).values().map(|handle| handle.info.job_key()).collect();
        lock(&self.jobs).retain(|key, entry| entry.stored || used.contains(key));
    }

    /// Static and dynamic metadata, and what both give.
    pub fn metadata(&self) -> (BTreeMap<String, String>, DynamicMeta) {
        (fingerprint::static_meta(&self.config), lock(&self.dynamic_meta).clone())
    }

    /// Sets or hides dynamic metadata.
    pub async fn set_metadata(&self, changes: DynamicMeta) -> Result<(), String> {
        let fixed = fingerprint::static_meta(&self.config);
        let mut dynamic = lock(&self.dynamic_meta).clone();
        for (key, value) in changes {
            match value {
                Some(value) => drop(dynamic.insert(key, Some(value))),
                // A static key is hidden; one that only ever was dynamic is gone.
                None if fixed.contains_key(&key) => drop(dynamic.insert(key, None)),
                None => drop(dynamic.remove(&key)),
            }
        }
        self.store.write(vec![Op::PutMeta(META_KEY, Stored::json(&dynamic))]).await?;
        *lock(&self.dynamic_meta) = dynamic.clone();
        self.change_node(|node| node.meta = merged(&fixed, &dynamic));
        Ok(())
    }
}

fn merged(fixed: &BTreeMap<String, String>, dynamic: &DynamicMeta) -> BTreeMap<String, String> {
    let mut meta = fixed.clone();
    for (key, value) in dynamic {
        match value {
            Some(value) => drop(meta.insert(key.clone(), value.clone())),
            None => drop(meta.remove(key)),
        }
    }
    meta
}

/// A server refers to a job that the node has forgotten.
#[derive(Debug, thiserror::Error)]
#[error("job {0:?} is not known any more; a new session sends it again")]
pub struct ForgottenJob(String);

/// Directory work that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("directory work did not finish: {0}")]
pub struct WorkLost(String);

impl From<WorkLost> for std::io::Error {
    fn from(lost: WorkLost) -> std::io::Error {
        std::io::Error::other(lost.to_string())
    }
}

impl From<WorkLost> for String {
    fn from(lost: WorkLost) -> String {
        lost.to_string()
    }
}

impl From<WorkLost> for (&'static str, String) {
    fn from(lost: WorkLost) -> (&'static str, String) {
        ("task_dir", lost.to_string())
    }
}

/// A running node.
pub struct Node {
    shared: Arc<Shared>,
    ended: mpsc::Receiver<()>,
}

impl Node {
    /// Starts the node: takes its directories, reads its store, goes on with what it finds, and opens a session. Returns
    /// as soon as this is under way; drivers that take time to look at the host are told of later.
    ///
    /// # Errors
    /// A directory cannot be made or written, or another agent has it.
    pub async fn start(mut config: NodeConfig, world: World, drivers: Drivers) -> Result<Node, NodeError> {
        let lock = take_directories(&mut config, &world)?;
        let identity = identity::load_or_make(&world, &config.state_dir)?;
        let (store, loaded) = Store::open(&world, &config.state_dir, lock).await?;
        let (events, waiting_events) = mpsc::channel(session::EVENT_QUEUE);
        let (alive, ended) = mpsc::channel(1);
        let dynamic: DynamicMeta =
            loaded.meta.get(META_KEY).and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
        let mut node = fingerprint::node(&config, &identity);
        node.meta = merged(&node.meta, &dynamic);
        quick_drivers(&drivers, &mut node, &world).await;
        node.computed_class = fingerprint::computed_class(&node);
        let keys = node_keys(&node, &config.region);
        let shared = Arc::new(Shared {
            servers: Mutex::new(config.servers.clone()),
            tuning: watch::Sender::new(Arc::new(config.tuning())),
            config,
            world,
            drivers,
            store,
            updates: Updates::default(),
            services: Registry::default(),
            identity,
            node_changes: watch::Sender::new(0),
            connected: watch::Sender::new(None),
            stopping: watch::Sender::new(false),
            node: Mutex::new((Arc::new(node), Arc::new(keys))),
            dynamic_meta: Mutex::new(dynamic),
            allocs: Mutex::default(),
            jobs: Mutex::default(),
            new_servers: Notify::new(),
            contact: AtomicBool::new(false),
            store_trouble: AtomicBool::new(false),
            store_troubled: Notify::new(),
            look_again: Notify::new(),
            events,
            disk_slots: Semaphore::new(DISK_SLOTS),
            bulk_slots: Arc::new(Semaphore::new(session::BULK_CHANNELS)),
            gc: Notify::new(),
            begun: AtomicU64::new(0),
            alive: Mutex::new(Some(alive)),
        });
        restore(&shared, loaded).await;
        let part = |work: futures::future::BoxFuture<'static, ()>| {
            let alive = shared.alive();
            tokio::spawn(async move {
                work.await;
                drop(alive);
            });
        };
        part(Box::pin(session::run(Arc::clone(&shared), waiting_events)));
        part(Box::pin(gc::run(Arc::clone(&shared))));
        part(Box::pin(watch_drivers(Arc::clone(&shared))));
        part(Box::pin(watch_store(Arc::clone(&shared))));
        Ok(Node { shared, ended })
    }

    /// The node's id.
    pub fn id(&self) -> NodeId {
        self.shared.identity.id
    }

    /// Removes every terminal allocation whose states the servers have; gives how many allocations are left.
    pub async fn remove_ended(&self) -> usize {
        crate::gc::collect_all(&self.shared).await;
        self.shared.count()
    }

    /// The node as it is now.
    pub fn noun(&self) -> Arc<NodeNoun> {
        self.shared.node()
    }

    /// The server that a session is open with; changes as sessions come and go.
    pub fn connected(&self) -> watch::Receiver<Option<String>> {
        self.shared.connected.subscribe()
    }

    /// Answers one request, as if a server had asked; for an agent that is client and API at once.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Allocations on this node that are not terminal.
    pub fn active_allocs(&self) -> usize {
        self.shared.handles().iter().filter(|handle| !handle.info.is_terminal()).count()
    }

    /// Adds addresses of servers to dial.
    pub fn add_servers(&self, servers: Vec<String>) {
        self.shared.learn_servers(servers);
    }

    /// Ends the node's part of the agent within half a second. Tasks go on.
    pub async fn shutdown(mut self) {
        self.shared.stopping.send_replace(true);
        lock(&self.shared.alive).take();
        let ended = async { while self.ended.recv().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_WAIT, ended).await.is_err() {
            tracing::debug!("some part of the node did not end in time");
        }
        self.shared.store.close().await;
    }
}

/// Makes the directories and takes the state directory for this process alone.
fn take_directories(config: &mut NodeConfig, world: &World) -> Result<DirLock, NodeError> {
    let make = |path: &PathBuf| {
        let io = |error| NodeError::Io { what: "make", path: path.clone(), error };
        world.disk.create_dir_all(path).map_err(io)
    };
    make(&config.state_dir)?;
    let io = |error| NodeError::Io { what: "make", path: config.alloc_dir.clone(), error };
    std::fs::create_dir_all(&config.alloc_dir).map_err(io)?;
    // Paths that tasks see must not depend on the agent's working directory.
    if let Ok(full) = config.alloc_dir.canonicalize() {
        config.alloc_dir = full;
    }
    herdsman_world::disk::spread(&config.alloc_dir);
    let path = config.state_dir.join("lock");
    world.disk.lock(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => NodeError::InUse { path: config.state_dir.clone() },
        _ => NodeError::Io { what: "lock", path, error },
    })
}

/// Goes on with everything that was stored.
async fn restore(shared: &Arc<Shared>, loaded: Loaded) {
    let boot = boot_id();
    let rebooted = loaded
        .meta
        .get(BOOT_KEY)
        .is_some_and(|bytes| serde_json::from_slice::<String>(bytes).ok().as_deref() != Some(boot.as_str()));
    if let Err(error) = shared.store.write(vec![Op::PutMeta(BOOT_KEY, Stored::json(&boot))]).await {
        tracing::warn!(%error, "a reboot of the host could go unnoticed");
    }
    for (key, job) in loaded.jobs {
        lock(&shared.jobs).insert(key, JobEntry { job, stored: true });
    }
    for (id, stored) in loaded.allocs {
        restore_one(shared, id, stored, rebooted);
    }
}

fn restore_one(shared: &Arc<Shared>, id: AllocId, mut stored: LoadedAlloc, rebooted: bool) {
    let alloc = std::mem::take(&mut stored.alloc);
    let Some(job) = lock(&shared.jobs).get(&key_of(&alloc)).map(|entry| Arc::clone(&entry.job)) else {
        tracing::warn!(alloc = %id, "the job of a stored allocation cannot be read; the servers send it again");
        return;
    };
    shared.launch(alloc, job, Origin::Stored { loaded: Box::new(stored), rebooted });
}

/// What drivers say at once; those that take longer are asked again in the background.
async fn quick_drivers(drivers: &Drivers, node: &mut NodeNoun, world: &World) {
    const AT_ONCE: Duration = Duration::from_millis(50);
    let looks = drivers.iter().map(|driver| async move {
        let found = tokio::time::timeout(AT_ONCE, driver.fingerprint()).await;
        (Arc::clone(driver), found.ok())
    });
    for (driver, found) in futures::future::join_all(looks).await {
        if let Some(found) = found {
            note_driver(node, &*driver, &found, world.clock.now().0);
        }
    }
}

fn note_driver(node: &mut NodeNoun, driver: &dyn Driver, found: &herdsman_drivers::Fingerprint, now: i64) {
    let name = driver.name();
    let prefix = format!("driver.{name}");
    let belongs = |key: &String| *key == prefix || key.strip_prefix(&prefix).is_some_and(|rest| rest.starts_with('.'));
    node.attributes.retain(|key, _| !belongs(key));
    node.attributes.extend(found.attributes.clone());
    let healthy = found.health == Health::Healthy;
    let old = node.drivers.get(name);
    let same = old.is_some_and(|old| (old.detected, old.healthy) == (found.detected(), healthy));
    let update_time = if same { old.map_or(now, |old| old.update_time) } else { now };
    node.drivers.insert(
        name.to_string(),
        DriverInfo {
            detected: found.detected(),
            healthy,
            health_description: found.description.clone(),
            attributes: found.attributes.clone(),
            update_time,
        },
    );
}

/// Lets drivers look at the host again, now and then.
async fn watch_drivers(shared: Arc<Shared>) {
    let mut stop = shared.stopping.subscribe();
    loop {
        let looks = shared.drivers.iter().map(|driver| async { (Arc::clone(driver), driver.fingerprint().await) });
        let found = tokio::select! {
            found = futures::future::join_all(looks) => found,
            () = stopped(&mut stop) => return,
        };
        let now = shared.world.clock.now().0;
        shared.change_node(|node| {
            for (driver, found) in &found {
                note_driver(node, &**driver, found, now);
            }
            if shared.store_trouble.load(Ordering::Relaxed) {
                for driver in node.drivers.values_mut().filter(|driver| driver.healthy) {
                    driver.healthy = false;
                    driver.health_description = "the node store cannot be written; no new task starts".into();
                }
            }
        });
        tokio::select! {
            () = shared.look_again.notified() => {}
            () = shared.world.clock.sleep(DRIVER_INTERVAL) => {}
            () = stopped(&mut stop) => return,
        }
    }
}

/// Takes work again once the store can be written again.
async fn watch_store(shared: Arc<Shared>) {
    const PROBE: Duration = Duration::from_secs(5);
    let mut stop = shared.stopping.subscribe();
    loop {
        tokio::select! {
            () = shared.store_troubled.notified() => {}
            () = stopped(&mut stop) => return,
        }
        while shared.store_trouble.load(Ordering::Relaxed) {
            tokio::select! {
                () = shared.world.clock.sleep(PROBE) => {}
                () = stopped(&mut stop) => return,
            }
            if shared.store.write(vec![Op::PutMeta(BOOT_KEY, Stored::json(&boot_id()))]).await.is_ok() {
                shared.store_trouble.store(false, Ordering::Relaxed);
                shared.event("Storage", "the node store can be written again".into());
                shared.look_again.notify_one();
            }
        }
    }
}

/// Names the host's current boot.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}
