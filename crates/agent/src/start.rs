//! Putting server, node and API together in one process.

use crate::config::settings::{ClientSettings, DrainSettings, ServerSettings, Settings};
use crate::dirs::{self, DirError, Temporary};
use crate::drivers;
use crate::facts::{COMPATIBLE_VERSION, Facts, Listening, SERVER_PORT, VERSION, with_port};
use crate::guard::Guard;
use crate::leave;
use crate::log::Log;
use crate::notify;
use crate::reload::Reloader;
use crate::tune;
use herdsman_http::api::Api;
use herdsman_model::{HostVolume, NodeReserved};
use herdsman_node::{Node, NodeConfig, NodeError};
use herdsman_server::{PreemptionConfig, SchedulerConfig, Server, ServerConfig, StartError};
use herdsman_shim::ShimHost;
use herdsman_world::World;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How long the parts of an agent may take to end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// How long a development agent waits for its tasks to end.
const DEV_STOP_LIMIT: Duration = Duration::from_secs(20);

/// Why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("the address {0:?} is no IP address")]
    Address(String),
    #[error(
        "cannot listen on {address}: {error}; is another agent running there? (ports and bind_addr name other places)"
    )]
    Listen { address: SocketAddr, error: std::io::Error },
    #[error("no randomness: {0}")]
    World(std::io::Error),
    #[error("server: {0}")]
    Server(#[from] StartError),
    #[error("client: {0}")]
    Node(#[from] NodeError),
    #[error("client: {0}")]
    Drivers(String),
    #[error("client: no servers to dial; name them in client.servers (or -servers), or run a server in the same agent")]
    NoServers,
}

/// A running agent.
pub struct Agent {
    settings: Settings,
    facts: Arc<Facts>,
    server: Option<Server>,
    node: Option<Node>,
    /// Starts shims; a development agent ends it with itself.
    shims: Option<Arc<ShimHost>>,
    listening: Listening,
    tasks: JoinSet<()>,
    /// Removed last, when everything that writes there has ended.
    temporary: Option<Temporary>,
    /// Cleans up when this process is killed.
    _guard: Option<Guard>,
}

/// Where an agent keeps its data.
struct Places {
    server: PathBuf,
    state: PathBuf,
    alloc: PathBuf,
    temporary: Option<Temporary>,
}

impl Agent {
    /// Starts everything that the settings ask for. The API listens before the node is ready.
    ///
    /// # Errors
    /// A directory, address or part cannot be had; nothing keeps running.
    pub async fn start(settings: Settings, log: Log, reloader: Reloader) -> Result<Agent, AgentError> {
        let world = World::real().map_err(AgentError::World)?;
        let places = places(&settings, world.rng.u64())?;
        let name = agent_name(&settings);
        let listeners = listen(&settings).await?;
        let http: Vec<SocketAddr> = listeners.iter().filter_map(|l| l.local_addr().ok()).collect();
        let server = match &settings.server {
            Some(server) => Some(start_server(&settings, server, &name, &places, world.clone()).await?),
            None => None,
        };
        let listening = addresses(&settings, http, server.as_ref());
        let facts = Facts::new(settings.clone(), &name, listening.clone(), log, server.clone(), reloader);
        let api = Api::new(server.clone(), facts.clone(), world.clone());
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(herdsman_http::serve::serve(Arc::clone(&api), listener));
        }
        if let Some(server) = &server {
            serve_forwarded(server, &api);
        }
        let guard = start_guard(&settings, &places);
        let (node, shims) = match &settings.client {
            Some(client) => {
                let (node, shims) = start_node(&settings, client, &name, &places, &listening, world).await?;
                (Some(node), Some(shims))
            }
            None => (None, None),
        };
        if let Some(node) = &node {
            facts.set_node(node);
        }
        let temporary = places.temporary;
        Ok(Agent { settings, facts, server, node, shims, listening, tasks, temporary, _guard: guard })
    }

    /// The first address the API listens on.
    pub fn http_addr(&self) -> SocketAddr {
        let first = self.listening.http.first().copied();
        let addr = first.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, self.settings.ports.http)));
        if addr.ip().is_unspecified() { SocketAddr::from((Ipv4Addr::LOCALHOST, addr.port())) } else { addr }
    }

    /// What the agent says when it has started.
    pub fn banner(&self) -> Vec<String> {
        let on = |is: bool| if is { "true" } else { "false" };
        vec![
            "==> Herdsman agent configuration:".to_string(),
            String::new(),
            format!(
                "       Advertise Addrs: HTTP: {}; RPC: {}",
                self.listening.advertise_http, self.listening.advertise_rpc
            ),
            format!("            Bind Addrs: {}", self.listening.bound()),
            format!("                Client: {}", on(self.node.is_some())),
            format!("             Log Level: {}", self.settings.log.level),
            format!("               Node Id: {}", self.node.as_ref().map(|n| n.id().to_string()).unwrap_or_default()),
            format!("                Region: {} (DC: {})", self.settings.region, self.settings.datacenter),
            format!("                Server: {}", on(self.server.is_some())),
            format!("               Version: {VERSION} (compatible with {COMPATIBLE_VERSION})"),
            String::new(),
            "==> Herdsman agent started! Log data will stream in below:".to_string(),
        ]
    }

    /// Reads the configuration again.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn reload(&self) -> Result<(), String> {
        herdsman_http::agent::Agent::reload(&*self.facts)
    }

    /// Ends the agent. Its tasks go on; those of a development agent are stopped first. A graceful end drains the node if
    /// the configuration says so. Neither is waited for any longer once `hurry` comes; gives whether all went as it should.
    pub async fn shutdown(self, graceful: bool, hurry: impl Future<Output = ()>) -> bool {
        let whole = tokio::select! {
            () = self.empty(graceful) => true,
            () = hurry => {
                tracing::warn!(target: "agent", "told to end again: tasks that still run go on without the agent");
                false
            }
        };
        self.end().await;
        whole
    }

    /// Stops or drains what is to be.
    async fn empty(&self, graceful: bool) {
        if self.settings.dev {
            let left = leave::stop_everything(self.server.as_ref(), self.node.as_ref(), DEV_STOP_LIMIT).await;
            if left > 0 {
                tracing::warn!(target: "agent", allocations = left, "tasks did not end in time and go on without the agent");
            }
        } else if graceful && let (Some(node), Some(drain)) = (&self.node, self.drain_settings()) {
            tokio::select! {
                () = leave::drain(self.http_addr(), node, &drain) => {}
                () = notify::ask_for_time() => {}
            }
        }
    }

    async fn end(mut self) {
        // Without tasks the zygote has nothing to wait for; the next agent starts one of its own.
        if let (Some(shims), Some(node)) = (&self.shims, &self.node)
            && node.active_allocs() == 0
        {
            shims.end_zygote();
        }
        self.tasks.abort_all();
        let (server, node) = (self.server.take(), self.node.take());
        let parts = async {
            if let Some(node) = node {
                node.shutdown().await;
            }
            if let Some(server) = server {
                server.shutdown().await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_LIMIT, parts).await.is_err() {
            tracing::warn!(target: "agent", "a part of the agent did not end in time");
        }
        drop(self.temporary.take());
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.facts.settings()
    }

    fn drain_settings(&self) -> Option<DrainSettings> {
        self.settings().client.as_ref().and_then(|c| c.drain_on_shutdown.clone())
    }
}

/// The guard of an agent that nobody starts again.
fn start_guard(settings: &Settings, places: &Places) -> Option<Guard> {
    let (temporary, client) = (places.temporary.as_ref()?, settings.client.as_ref()?);
    let started = Guard::start(temporary, &drivers::cgroup_parent(client));
    if let Err(error) = &started {
        tracing::warn!(target: "agent", %error, "if this agent is killed, its tasks and directory stay");
    }
    started.ok()
}

/// This host's address for others: the first that is neither loopback nor link-local, private ones first.
fn default_address() -> IpAddr {
    let mut all: Vec<IpAddr> =
        if_addrs::get_if_addrs().unwrap_or_default().iter().filter(|i| !i.is_link_local()).map(|i| i.ip()).collect();
    all.retain(|ip| !ip.is_loopback());
    all.sort_by_key(|ip| match ip {
        IpAddr::V4(v4) => (0, !v4.is_private()),
        IpAddr::V6(_) => (1, false),
    });
    all.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn places(settings: &Settings, unique: u64) -> Result<Places, AgentError> {
    let temporary = match (&settings.data_dir, settings.dev) {
        (None, true) => Some(Temporary::new(unique)?),
        _ => None,
    };
    let client = settings.client.as_ref();
    let data_dir = match (temporary.as_ref(), &settings.data_dir) {
        (Some(temporary), _) => Some(temporary.path().to_path_buf()),
        (None, Some(dir)) if dir.is_absolute() => Some(dir.clone()),
        (None, Some(dir)) => return Err(DirError::Relative(dir.clone()).into()),
        (None, None) => None,
    };
    let below = |own: Option<&PathBuf>, name: &str| -> Result<PathBuf, AgentError> {
        match (own, &data_dir) {
            (Some(own), _) => Ok(own.clone()),
            (None, Some(dir)) => Ok(dir.join(name)),
            (None, None) => Err(DirError::Missing.into()),
        }
    };
    if let Some(dir) = &data_dir {
        dirs::refuse_peers(dir)?;
        dirs::make(dir)?;
    }
    let server = match &settings.server {
        Some(server) => below(server.data_dir.as_ref(), "server")?,
        None => PathBuf::new(),
    };
    let (state, alloc) = match client {
        Some(client) => (below(client.state_dir.as_ref(), "client")?, below(client.alloc_dir.as_ref(), "alloc")?),
        None => (PathBuf::new(), PathBuf::new()),
    };
    for dir in [&server, &state, &alloc].into_iter().filter(|d| !d.as_os_str().is_empty()) {
        dirs::make(dir)?;
    }
    Ok(Places { server, state, alloc, temporary })
}

fn agent_name(settings: &Settings) -> String {
    if !settings.name.is_empty() {
        return settings.name.clone();
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if host.is_empty() { "herdsman".to_string() } else { host }
}

fn ip(text: &str) -> Result<IpAddr, AgentError> {
    text.trim().parse().map_err(|_| AgentError::Address(text.to_string()))
}

/// The addresses that the API is to be listened on: several may be given with spaces between.
async fn listen(settings: &Settings) -> Result<Vec<TcpListener>, AgentError> {
    let given = &settings.addresses.http;
    let texts: Vec<&str> =
        if given.is_empty() { vec![&settings.bind_addr] } else { given.split_whitespace().collect() };
    let mut listeners = Vec::new();
    for text in texts {
        let address = SocketAddr::new(ip(text)?, settings.ports.http);
        listeners.push(TcpListener::bind(address).await.map_err(|error| AgentError::Listen { address, error })?);
    }
    Ok(listeners)
}

/// What others are told: the configured address, else the one listened on, else this host's first private address.
fn addresses(settings: &Settings, http: Vec<SocketAddr>, server: Option<&Server>) -> Listening {
    let rpc = server.map(Server::rpc_addr);
    let told = |given: &str, listened: Option<SocketAddr>, port: u16| {
        let port = listened.map_or(port, |l| l.port());
        match (given, listened) {
            ("", Some(address)) if !address.ip().is_unspecified() => address.to_string(),
            ("", _) => SocketAddr::new(default_address(), port).to_string(),
            (given, _) => with_port(given, port),
        }
    };
    Listening {
        advertise_http: told(&settings.advertise.http, http.first().copied(), settings.ports.http),
        advertise_rpc: told(&settings.advertise.rpc, rpc, settings.ports.rpc),
        http,
        rpc,
    }
}

async fn start_server(
    settings: &Settings,
    server: &ServerSettings,
    name: &str,
    places: &Places,
    world: World,
) -> Result<Server, AgentError> {
    let bind = if settings.addresses.rpc.is_empty() { &settings.bind_addr } else { &settings.addresses.rpc };
    let mut log = herdsman_consensus::Config::single(1, places.server.join("log"));
    let tuning = tune::server(server);
    log.snapshot_entries = tuning.snapshot_entries;
    log.segment_bytes = server.segment_mb.saturating_mul(1024 * 1024);
    let mut config = ServerConfig::single(log, SocketAddr::new(ip(bind)?, settings.ports.rpc));
    config.region = settings.region.clone();
    config.datacenter = settings.datacenter.clone();
    config.name = name.to_string();
    if !settings.advertise.rpc.is_empty() {
        config.rpc_advertise = with_port(&settings.advertise.rpc, settings.ports.rpc);
    }
    config.schedulers = tuning.schedulers;
    config.heartbeat = tuning.heartbeat;
    config.gc = tuning.gc;
    config.jobs = tuning.jobs;
    config.scheduler = first_scheduler_config(server);
    Ok(Server::start(config, world).await?)
}

/// How the schedulers of a new cluster decide.
fn first_scheduler_config(server: &ServerSettings) -> SchedulerConfig {
    let [system, sysbatch, batch, service] = server.preemption;
    SchedulerConfig {
        scheduler_algorithm: server.scheduler_algorithm.clone(),
        memory_oversubscription_enabled: server.memory_oversubscription,
        preemption_config: PreemptionConfig {
            system_scheduler_enabled: system,
            sys_batch_scheduler_enabled: sysbatch,
            batch_scheduler_enabled: batch,
            service_scheduler_enabled: service,
        },
        ..SchedulerConfig::default()
    }
}

/// Requests that agents without a server pass on arrive on the RPC port and are served like any other.
fn serve_forwarded(server: &Server, api: &Arc<Api>) {
    let api = Arc::clone(api);
    server.on_forward(move |stream| {
        tokio::spawn(herdsman_http::serve::serve_stream(Arc::clone(&api), stream));
    });
}

async fn start_node(
    settings: &Settings,
    client: &ClientSettings,
    name: &str,
    places: &Places,
    listening: &Listening,
    world: World,
) -> Result<(Node, Arc<ShimHost>), AgentError> {
    let mut servers: Vec<String> = client.servers.iter().map(|s| with_port(s, SERVER_PORT)).collect();
    if let Some(rpc) = listening.rpc {
        let local = if rpc.ip().is_unspecified() { SocketAddr::from((Ipv4Addr::LOCALHOST, rpc.port())) } else { rpc };
        servers.insert(0, local.to_string());
    }
    if servers.is_empty() {
        return Err(AgentError::NoServers);
    }
    let identity = herdsman_node::identity(&world, &places.state)?;
    let (drivers, shims) =
        drivers::all(settings, client, &places.state, identity.id).await.map_err(AgentError::Drivers)?;
    let config = node_config(settings, client, name, servers, &places.state, &places.alloc, listening);
    Ok((Node::start(config, world, drivers).await?, shims))
}

fn node_config(
    settings: &Settings,
    client: &ClientSettings,
    name: &str,
    servers: Vec<String>,
    state: &Path,
    alloc: &Path,
    listening: &Listening,
) -> NodeConfig {
    let tuning = tune::node(client);
    let volume = |v: &crate::config::settings::HostVolumeSettings| HostVolume {
        name: v.name.clone(),
        path: v.path.to_string_lossy().into_owned(),
        read_only: v.read_only,
        id: String::new(),
    };
    let reservable = drivers::cores(&client.reservable_cores);
    NodeConfig {
        state_dir: state.to_path_buf(),
        alloc_dir: alloc.to_path_buf(),
        servers,
        region: settings.region.clone(),
        datacenter: settings.datacenter.clone(),
        name: name.to_string(),
        node_class: client.node_class.clone(),
        node_pool: client.node_pool.clone(),
        meta: client.meta.clone(),
        options: client.options.clone(),
        host_volumes: client.host_volumes.iter().map(|v| (v.name.clone(), volume(v))).collect(),
        reserved: NodeReserved {
            cpu_shares: client.reserved_cpu,
            // What may be reserved says it all.
            cores: if reservable.is_empty() { drivers::cores(&client.reserved_cores) } else { Vec::new() },
            memory_mb: client.reserved_memory,
            disk_mb: client.reserved_disk,
            ports: client.reserved_ports.clone(),
        },
        reservable_cores: reservable,
        default_ineligible: client.default_ineligible,
        service_discovery: client.service_discovery,
        cpu_total_compute: client.cpu_total_compute,
        memory_total_mb: client.memory_total_mb,
        disk_total_mb: client.disk_total_mb,
        network_interface: client.network_interface.clone(),
        min_dynamic_port: client.dynamic_ports.0,
        max_dynamic_port: client.dynamic_ports.1,
        max_kill_timeout: tuning.max_kill_timeout,
        http_addr: listening.advertise_http.clone(),
        node_max_allocs: tuning.node_max_allocs,
        disable_remote_exec: tuning.disable_remote_exec,
        cgroup_parent: client.cgroup_parent.clone(),
        version: COMPATIBLE_VERSION.to_string(),
        gc: tuning.gc,
        ..NodeConfig::default()
    }
}
