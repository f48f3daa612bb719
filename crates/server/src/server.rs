//! The handle others hold.

use crate::config::{ServerConfig, Tuning};
use crate::error::{ServerError, StartError};
use crate::feed::{Batch, Feed, QueryAnswer, Watching};
use crate::keyring::Keyring;
use crate::machine::StateMachine;
use crate::nodes::Sessions;
use crate::nodes::updates::Updates;
use bytes::Bytes;
use herdsman_consensus::{Consensus, Leadership};
use herdsman_state::{Answer, Body, Command, IdSeed, Reply, Snapshot, Store, WatchKey};
use herdsman_world::{BoxStream, World};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;

/// A server. Clones are the same server.
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub config: watch::Sender<Arc<ServerConfig>>,
    pub world: World,
    pub feed: Arc<Feed>,
    pub log: Consensus,
    pub sessions: Sessions,
    pub updates: Updates,
    pub leader: crate::leader::Shared,
    keyring: Arc<Keyring>,
    pub rpc_addr: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
    /// Takes connections that carry requests of agents without a server.
    pub forward: OnceLock<ForwardHandler>,
}

/// Takes a connection that carries requests which another agent passes on.
pub(crate) type ForwardHandler = Box<dyn Fn(BoxStream) + Send + Sync>;

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.config().name)
    }
}

/// A command that was carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// Index of the command.
    pub index: u64,
    pub reply: Reply,
}

impl Server {
    /// Opens the log, brings the tables up to date, and listens for nodes.
    ///
    /// # Errors
    /// The log cannot be opened, or the address cannot be listened on.
    pub async fn start(config: ServerConfig, world: World) -> Result<Server, StartError> {
        let store = Store::new();
        let feed = Feed::new(store.snapshot().clone());
        let machine = StateMachine::new(store, Arc::clone(&feed));
        let listener = world.net.listen(config.rpc_listen).await.map_err(StartError::Listen)?;
        let rpc_addr = listener.local_addr().map_err(StartError::Listen)?;
        let log = Consensus::open(config.consensus.clone(), world.clone(), Box::new(machine)).await?;
        let keyring = open_keyring(&config, &world).await.map_err(StartError::Keyring)?;
        let (stop, stopped) = watch::channel(false);
        let (updates, update_queue) = Updates::new();
        let inner = Arc::new(Inner {
            config: watch::Sender::new(Arc::new(config)),
            world,
            feed,
            log,
            sessions: Sessions::default(),
            updates,
            leader: crate::leader::Shared::default(),
            keyring,
            rpc_addr,
            stop,
            tasks: Mutex::new(JoinSet::new()),
            forward: OnceLock::new(),
        });
        let server = Server { inner };
        server.spawn(crate::nodes::listen(server.clone(), listener, stopped.clone()));
        server.spawn(crate::nodes::updates::run(server.clone(), update_queue, stopped.clone()));
        server.spawn(crate::leader::run(server.clone(), stopped));
        Ok(server)
    }

    /// Runs a task until the server shuts down.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Says who takes connections that carry requests which agents without a server pass on. The first one said stays.
    pub fn on_forward(&self, handler: impl Fn(BoxStream) + Send + Sync + 'static) {
        let _ = self.inner.forward.set(Box::new(handler));
    }

    /// The newest published tables.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.inner.feed.snapshot()
    }

    /// How this server is set up now.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.inner.config.borrow())
    }

    /// The set-up, as it changes.
    pub(crate) fn config_changes(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.inner.config.subscribe()
    }

    /// Changes what may change while the server runs. What is under way goes on as it began.
    pub fn retune(&self, tuning: Tuning) {
        self.inner.log.set_snapshot_entries(tuning.snapshot_entries);
        self.inner.config.send_modify(|config| *config = Arc::new(config.with(tuning)));
    }

    /// Clock, randomness, disk and network of this server.
    pub fn world(&self) -> &World {
        &self.inner.world
    }

    /// The log, for membership and where it stands.
    pub fn consensus(&self) -> &Consensus {
        &self.inner.log
    }

    /// The address listened on for nodes.
    pub fn rpc_addr(&self) -> SocketAddr {
        self.inner.rpc_addr
    }

    /// What nodes are told to dial.
    pub fn rpc_advertise(&self) -> String {
        let config = self.config();
        let advertise = &config.rpc_advertise;
        if advertise.is_empty() { self.inner.rpc_addr.to_string() } else { advertise.clone() }
    }

    /// The keys that identities are signed with.
    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.inner.keyring
    }

    /// Who leads, as it changes.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.log.leadership()
    }

    /// Whether this server leads and shows everything that was acknowledged.
    pub fn is_ready(&self) -> bool {
        self.inner.log.leadership().borrow().ready
    }

    /// Returns once this server leads and shows everything that was acknowledged; never, if it shuts down before.
    pub async fn ready(&self) {
        let mut leadership = self.inner.log.leadership();
        if leadership.wait_for(|leadership| leadership.ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Every change from now on. Who falls behind gets `Lagged` and reads a snapshot instead.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Batch>> {
        self.inner.feed.subscribe()
    }

    /// Begins to wait for changes of any of these keys.
    pub fn watch(&self, keys: &[WatchKey]) -> Watching {
        self.inner.feed.watch(keys)
    }

    /// A blocking query: `read` gives the index and the value of what is asked for; returns once that index is past
    /// `after`, or with what there is when `wait` is over. An `after` of 0 does not block.
    pub async fn query<T>(
        &self,
        keys: &[WatchKey],
        after: u64,
        wait: Duration,
        read: impl FnMut(&Snapshot) -> (u64, T),
    ) -> QueryAnswer<T> {
        self.inner.feed.query(&*self.inner.world.clock, keys, after, wait, read).await
    }

    /// Wall clock time, nanoseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        self.inner.world.clock.now().0
    }

    /// A seed for the identifiers of one command.
    pub(crate) fn seed(&self) -> IdSeed {
        IdSeed::from_bytes(self.inner.world.rng.bytes16())
    }

    /// Proposes a command; returns once it is durable and applied.
    ///
    /// # Errors
    /// This server does not lead, the log takes nothing, or the tables refuse it.
    pub async fn propose(&self, body: Body) -> Result<Applied, ServerError> {
        let command = Command { now: self.now(), body };
        let stored = command.encode().map_err(|error| ServerError::refused(error.to_string()))?;
        drop(command);
        let applied = self.inner.log.propose(Bytes::from(stored)).await?;
        let answer = Answer::decode(&applied.result).map_err(|error| ServerError::refused(error.to_string()))?;
        Ok(Applied { index: answer.index, reply: answer.result? })
    }

    /// Ends sessions and all tasks, and closes the log. Nothing that was acknowledged is lost.
    pub async fn shutdown(&self) {
        self.inner.stop.send_replace(true);
        self.inner.sessions.close_all();
        let mut tasks = std::mem::take(&mut *self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        self.inner.log.shutdown().await;
    }
}

/// Returns once a flag is true, or nobody can set it any more.
pub(crate) async fn turned_true(flag: &mut watch::Receiver<bool>) {
    drop(flag.wait_for(|flag| *flag).await);
}

/// Opens the keyring beside the log, whose directory is locked by now.
async fn open_keyring(config: &ServerConfig, world: &World) -> std::io::Result<Arc<Keyring>> {
    let (disk, dir, now) = (Arc::clone(&world.disk), config.consensus.dir.clone(), world.clock.now().0);
    let opened = herdsman_world::disk::run(&*world.disk, move || Keyring::open(disk, &dir, now)).await?;
    Ok(Arc::new(opened))
}
