//! A node without tasks: it answers each allocation as its script says.

use futures::{SinkExt, StreamExt};
use herdsman_model::*;
use herdsman_proto::*;
use herdsman_server::ops::{JobChanged, RegisterRequest};
use herdsman_server::{Server, ServerConfig};
use herdsman_world::{BoxStream, Simulation, World};
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

pub const SERVER_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// How a node answers an allocation it is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// Runs until stopped, and is healthy at once.
    Runs,
    /// Runs, then completes.
    Completes,
    /// Runs, then fails.
    Fails,
    /// Says nothing.
    Silent,
}

/// What a node was told, in order: a readable trace.
pub type Trace = Arc<Mutex<Vec<String>>>;

pub struct FakeNode {
    pub id: NodeId,
    pub trace: Trace,
    task: tokio::task::JoinHandle<()>,
}

impl FakeNode {
    /// Cuts the node off: it says nothing more.
    pub fn kill(&self) {
        self.task.abort();
    }
}

pub fn node_row(n: u8) -> Node {
    let driver = DriverInfo { detected: true, healthy: true, ..DriverInfo::default() };
    let mut node = Node {
        id: NodeId([n; 16]),
        secret_id: SecretText(format!("secret-{n}")),
        name: Name::from(format!("node-{n}")),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        computed_class: "v1:same".into(),
        drivers: [("mock_driver".to_owned(), driver.clone()), ("raw_exec".to_owned(), driver)].into(),
        attributes: [("kernel.name", "linux"), ("driver.raw_exec", "1"), ("driver.mock_driver", "1")]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        ..Node::default()
    };
    node.resources.cpu_shares = 4000;
    node.resources.memory_mb = 4096;
    node.resources.disk_mb = 100_000;
    node.resources.total_cores = 4;
    node.resources.core_speed_mhz = 1000;
    node.resources.min_dynamic_port = 20_000;
    node.resources.max_dynamic_port = 32_000;
    node
}

pub type Frames = Framed<BoxStream, LengthDelimitedCodec>;

pub fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec()
}

pub async fn dial(world: &World, addr: SocketAddr, purpose: Purpose) -> Frames {
    let mut stream = world.net.connect(&addr.to_string()).await.unwrap();
    stream.write_all(&MAGIC).await.unwrap();
    stream.write_all(&[purpose as u8]).await.unwrap();
    Framed::new(stream, codec())
}

pub async fn say(frames: &mut Frames, message: NodeMessage) {
    let frame = NodeFrame { message: Some(message) };
    // The server may have closed the session; the next read tells.
    let _ = frames.send(bytes::Bytes::from(frame.encode_to_vec())).await;
}

pub async fn hear(frames: &mut Frames) -> Option<ServerMessage> {
    let frame = frames.next().await?.ok()?;
    ServerFrame::decode(frame).unwrap().message
}

pub fn hello(node: &Node, known: Vec<KnownAlloc>) -> Hello {
    Hello {
        version: SESSION_VERSION,
        node_json: serde_json::to_vec(node).unwrap(),
        known,
        region: "global".into(),
        send_time: 1,
    }
}

/// One allocation as the fake node sees it.
struct Run {
    alloc: Allocation,
    state: ClientStatus,
}

struct Player {
    frames: Frames,
    script: Script,
    runs: BTreeMap<AllocId, Run>,
    sequence: u64,
    trace: Trace,
    world: World,
    addr: SocketAddr,
}

impl Player {
    async fn update(&mut self, id: AllocId, status: ClientStatus) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.state = status;
        let phase = if status.is_terminal() { TaskPhase::Dead } else { TaskPhase::Running };
        let event = TaskEvent { time: 1, fact: TaskFact::Started };
        let state = TaskState {
            state: phase,
            failed: status == ClientStatus::Failed,
            events: vec![event],
            ..TaskState::default()
        };
        let healthy = match status {
            ClientStatus::Running if self.script == Script::Runs => Some(true),
            ClientStatus::Failed => Some(false),
            _ => None,
        };
        let update = AllocUpdate {
            id,
            client_status: status,
            task_states: [(Name::from("main"), state)].into(),
            deployment_status: Some(DeploymentStatus { healthy, ..Default::default() }),
            ..AllocUpdate::default()
        };
        self.sequence += 1;
        let updates =
            AllocUpdates { sequence: self.sequence, updates_json: vec![serde_json::to_vec(&update).unwrap()] };
        say(&mut self.frames, NodeMessage::AllocUpdates(updates)).await;
    }

    async fn take(&mut self, work: Work) {
        for json in &work.allocs_json {
            let alloc: Allocation = serde_json::from_slice(json).unwrap();
            let id = alloc.id;
            let line = format!("{} {} v{} {}", alloc.name, id.short(), alloc.job_version, alloc.desired_status);
            self.trace.lock().unwrap().push(line);
            let stop = alloc.server_terminal();
            let known = self.runs.contains_key(&id);
            self.runs
                .entry(id)
                .and_modify(|run| run.alloc = alloc.clone())
                .or_insert(Run { alloc, state: ClientStatus::Pending });
            if stop {
                if known && self.runs.get(&id).is_some_and(|run| !run.state.is_terminal()) {
                    self.update(id, ClientStatus::Complete).await;
                }
                continue;
            }
            if known || self.script == Script::Silent {
                continue;
            }
            self.update(id, ClientStatus::Running).await;
            match self.script {
                Script::Completes => self.update(id, ClientStatus::Complete).await,
                Script::Fails => self.update(id, ClientStatus::Failed).await,
                Script::Runs | Script::Silent => {}
            }
        }
        for id in &work.removed {
            let id = AllocId(<[u8; 16]>::try_from(id.as_slice()).unwrap());
            self.trace.lock().unwrap().push(format!("removed {}", id.short()));
            self.runs.remove(&id);
        }
    }

    async fn play(mut self) {
        loop {
            let message = tokio::select! {
                biased;
                message = hear(&mut self.frames) => message,
                () = self.world.clock.sleep(Duration::from_secs(5)) => {
                    say(&mut self.frames, NodeMessage::Heartbeat(Heartbeat { send_time: 1 })).await;
                    continue;
                }
            };
            match message {
                Some(ServerMessage::Work(work)) => self.take(work).await,
                Some(ServerMessage::OpenBulk(open)) => {
                    tokio::spawn(crate::bulk::serve(self.world.clone(), self.addr, open.token));
                }
                Some(ServerMessage::Ack(ack)) => assert_eq!(ack.error, ""),
                Some(_) => {}
                None => return,
            }
        }
    }
}

/// A server, its simulated cluster, and how to add nodes to it.
pub struct Cluster {
    pub sim: Simulation,
    pub world: World,
    pub server: Server,
}

pub fn config() -> ServerConfig {
    let consensus = herdsman_consensus::Config::single(1, "/server");
    let mut config = ServerConfig::single(consensus, SocketAddr::new(SERVER_IP, 4647));
    config.schedulers = 2;
    config
}

impl Cluster {
    pub async fn start(seed: u64) -> Cluster {
        Cluster::start_with(seed, config()).await
    }

    pub async fn start_with(seed: u64, config: ServerConfig) -> Cluster {
        let sim = Simulation::new(seed);
        let world = sim.world(SERVER_IP);
        let server = Server::start(config, world.clone()).await.unwrap();
        server.ready().await;
        Cluster { sim, world, server }
    }

    /// Stops the server and starts another on the same disk.
    pub async fn restart(self) -> Cluster {
        self.server.shutdown().await;
        drop(self.server);
        let world = self.sim.world_with_disk(SERVER_IP, Arc::clone(&self.world.disk), 1);
        let server = Server::start(config(), world.clone()).await.unwrap();
        server.ready().await;
        Cluster { sim: self.sim, world, server }
    }

    pub async fn node(&self, n: u8, script: Script) -> FakeNode {
        self.node_with(node_row(n), n, script).await
    }

    pub async fn node_with(&self, row: Node, n: u8, script: Script) -> FakeNode {
        let world = self.sim.world(IpAddr::V4(Ipv4Addr::new(10, 0, 1, n)));
        let addr = self.server.rpc_addr();
        let mut frames = dial(&world, addr, Purpose::NodeControl).await;
        say(&mut frames, NodeMessage::Hello(hello(&row, Vec::new()))).await;
        match hear(&mut frames).await {
            Some(ServerMessage::Welcome(_)) => {}
            other => panic!("not welcomed: {other:?}"),
        }
        let trace = Trace::default();
        let player =
            Player { frames, script, runs: BTreeMap::new(), sequence: 0, trace: Arc::clone(&trace), world, addr };
        FakeNode { id: row.id, trace, task: tokio::spawn(player.play()) }
    }

    pub async fn register(&self, job: Value) -> JobChanged {
        self.server.register_job(RegisterRequest { job, ..RegisterRequest::default() }).await.unwrap()
    }

    /// Waits, in simulated time, until something holds.
    pub async fn until(&self, what: &str, holds: impl Fn(&herdsman_state::Snapshot) -> bool) {
        for _ in 0..6000 {
            if holds(&self.server.snapshot()) {
                return;
            }
            self.world.clock.sleep(Duration::from_millis(100)).await;
        }
        let snapshot = self.server.snapshot();
        for alloc in snapshot.allocs() {
            eprintln!(
                "{} on {} {} {} {}",
                alloc.name, alloc.node_name, alloc.desired_status, alloc.client_status, alloc.desired_description
            );
        }
        for eval in snapshot.evals() {
            eprintln!(
                "{:?} {} {:?} {:?} {:?}",
                eval.triggered_by, eval.job_id, eval.status, eval.status_description, eval.failed_groups
            );
        }
        for deployment in snapshot.deployments() {
            eprintln!("{deployment:?}");
        }
        panic!("never came true: {what}");
    }
}

pub fn count(snapshot: &herdsman_state::Snapshot, job: &str, status: ClientStatus) -> usize {
    let key = herdsman_state::JobKey::new("default", job);
    snapshot.allocs_by_job(&key).filter(|alloc| alloc.client_status == status && !alloc.server_terminal()).count()
}

/// A job in submitted form.
pub fn job(id: &str, kind: &str, count: i64) -> Value {
    json!({
        "ID": id,
        "Name": id,
        "Type": kind,
        "TaskGroups": [{
            "Name": "g",
            "Count": count,
            "Tasks": [{
                "Name": "main",
                "Driver": "mock_driver",
                "Config": {"run_for": "1s"},
                "Resources": {"CPU": 100, "MemoryMB": 64}
            }]
        }]
    })
}
