//! Simulated nodes: the real session protocol, and tasks that do what a script says.

use crate::session::{Frames, dial, hear, hello, say};
use futures::{SinkExt, StreamExt};
use herdsman_model::{
    AllocId, Allocation, ClientStatus, DeploymentStatus, DriverInfo, Name, Node, NodeId, SecretText, TaskEvent,
    TaskFact, TaskPhase, TaskState,
};
use herdsman_proto::{
    AllocUpdate, AllocUpdates, BulkEnd, BulkError, BulkFrame, BulkHello, BulkMessage, Heartbeat, KnownAlloc,
    NodeMessage, NodeRequest, Purpose, ServerMessage, Work,
};
use herdsman_world::World;
use prost::Message;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Time before a node that lost its server dials again.
const REDIAL: Duration = Duration::from_secs(1);

/// How a node answers each allocation it is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// Runs until stopped, and is healthy at once.
    Runs,
    /// Runs until stopped, and never says whether it is healthy.
    Unproven,
    /// Runs, then completes.
    Completes,
    /// Runs, then fails.
    Fails,
    /// Says nothing.
    Silent,
}

/// What a node was told, in order: a readable trace.
pub type Trace = Arc<Mutex<Vec<String>>>;

/// An ordinary node: four cores, 4 GiB, the drivers `mock_driver` and `raw_exec`.
pub fn row(n: u8) -> Node {
    let driver = DriverInfo { detected: true, healthy: true, ..DriverInfo::default() };
    let attributes = [("kernel.name", "linux"), ("driver.raw_exec", "1"), ("driver.mock_driver", "1")];
    let mut node = Node {
        id: NodeId([n; 16]),
        secret_id: SecretText(format!("secret-{n}")),
        name: Name::from(format!("node-{n}")),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        computed_class: "v1:same".into(),
        drivers: [("mock_driver".to_owned(), driver.clone()), ("raw_exec".to_owned(), driver)].into(),
        attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
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

/// One allocation as a node sees it.
#[derive(Debug, Clone)]
pub struct Run {
    pub alloc: Allocation,
    pub status: ClientStatus,
}

/// What outlives the agent of a node: its tasks, and its record of them.
#[derive(Debug, Default)]
struct Host {
    runs: BTreeMap<AllocId, Run>,
    /// States that no server has confirmed.
    unconfirmed: BTreeMap<AllocId, ClientStatus>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A simulated node.
pub struct SimNode {
    pub id: NodeId,
    pub trace: Trace,
    player: Player,
    task: JoinHandle<()>,
}

impl SimNode {
    /// Introduces a node to a server; the node says nothing more once its session ends.
    ///
    /// # Errors
    /// The server cannot be reached, or does not welcome it.
    pub async fn join(world: World, addr: SocketAddr, row: Node, script: Script) -> io::Result<SimNode> {
        let player = Player::new(world, addr, row, script);
        let frames = player.open().await?;
        let mut once = player.clone();
        let task = tokio::spawn(async move { once.play(frames).await });
        Ok(SimNode { id: player.row.id, trace: Arc::clone(&player.trace), player, task })
    }

    /// Starts a node that dials again whenever it has lost its server.
    pub fn start(world: World, addr: SocketAddr, row: Node, script: Script) -> SimNode {
        let player = Player::new(world, addr, row, script);
        let task = tokio::spawn(player.clone().live());
        SimNode { id: player.row.id, trace: Arc::clone(&player.trace), player, task }
    }

    /// Ends the agent: the node says nothing more, and its tasks go on.
    pub fn kill(&self) {
        self.task.abort();
    }

    /// Starts the agent of a killed node again, with its tasks as they are.
    pub fn revive(&mut self) {
        self.task.abort();
        self.task = tokio::spawn(self.player.clone().live());
    }

    /// Takes all tasks of the host away, as its reboot does. Only of a killed node.
    pub fn reboot(&self) {
        let mut host = lock(&self.player.host);
        let Host { runs, unconfirmed } = &mut *host;
        for (id, run) in runs.iter_mut().filter(|(_, run)| !run.status.is_terminal()) {
            run.status = ClientStatus::Failed;
            unconfirmed.insert(*id, run.status);
        }
    }

    /// The allocations that run here, by name.
    pub fn running(&self) -> Vec<String> {
        let host = lock(&self.player.host);
        let running = host.runs.values().filter(|run| run.status == ClientStatus::Running);
        running.map(|run| run.alloc.name.clone()).collect()
    }
}

/// What plays a node.
#[derive(Clone)]
struct Player {
    world: World,
    addr: SocketAddr,
    row: Arc<Node>,
    script: Script,
    host: Arc<Mutex<Host>>,
    trace: Trace,
    sequence: u64,
}

impl Player {
    fn new(world: World, addr: SocketAddr, row: Node, script: Script) -> Player {
        let (host, trace) = (Arc::default(), Trace::default());
        Player { world, addr, row: Arc::new(row), script, host, trace, sequence: 0 }
    }

    fn note(&self, line: String) {
        lock(&self.trace).push(line);
    }

    async fn open(&self) -> io::Result<Frames> {
        let mut frames = dial(&self.world, self.addr, Purpose::NodeControl).await?;
        let known = lock(&self.host).runs.values().map(known).collect();
        say(&mut frames, NodeMessage::Hello(hello(&self.row, known))).await;
        match hear(&mut frames).await {
            Some(ServerMessage::Welcome(_)) => Ok(frames),
            Some(ServerMessage::Refused(refused)) => Err(io::Error::other(refused.message)),
            _ => Err(io::Error::other("the server did not welcome the node")),
        }
    }

    async fn live(mut self) {
        loop {
            if let Ok(frames) = self.open().await {
                self.play(frames).await;
            }
            self.world.clock.sleep(REDIAL).await;
        }
    }

    /// One session, until it ends.
    async fn play(&mut self, mut frames: Frames) {
        self.sequence = 0;
        self.tell_again(&mut frames).await;
        loop {
            let message = tokio::select! {
                biased;
                message = hear(&mut frames) => message,
                () = self.world.clock.sleep(HEARTBEAT) => {
                    say(&mut frames, NodeMessage::Heartbeat(Heartbeat { send_time: 1 })).await;
                    continue;
                }
            };
            match message {
                Some(ServerMessage::Work(work)) => self.take(&mut frames, work).await,
                Some(ServerMessage::OpenBulk(open)) => {
                    tokio::spawn(answer_bulk(self.world.clone(), self.addr, open.token));
                }
                Some(ServerMessage::Ack(ack)) => {
                    if ack.error.is_empty() && ack.sequence == self.sequence {
                        lock(&self.host).unconfirmed.clear();
                    } else if !ack.error.is_empty() {
                        self.note(format!("refused: {}", ack.error));
                    }
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    /// What no server has confirmed is told again.
    async fn tell_again(&mut self, frames: &mut Frames) {
        let unconfirmed: Vec<_> = lock(&self.host).unconfirmed.iter().map(|(id, status)| (*id, *status)).collect();
        for (id, status) in unconfirmed {
            self.update(frames, id, status).await;
        }
    }

    async fn update(&mut self, frames: &mut Frames, id: AllocId, status: ClientStatus) {
        {
            let mut host = lock(&self.host);
            let Some(run) = host.runs.get_mut(&id) else { return };
            run.status = status;
            host.unconfirmed.insert(id, status);
        }
        self.sequence += 1;
        let update = serde_json::to_vec(&self.told(id, status)).unwrap_or_default();
        let updates = AllocUpdates { sequence: self.sequence, updates_json: vec![update] };
        say(frames, NodeMessage::AllocUpdates(updates)).await;
    }

    fn told(&self, id: AllocId, status: ClientStatus) -> AllocUpdate {
        let state = TaskState {
            state: if status.is_terminal() { TaskPhase::Dead } else { TaskPhase::Running },
            failed: status == ClientStatus::Failed,
            events: vec![TaskEvent { time: 1, fact: TaskFact::Started }],
            ..TaskState::default()
        };
        let healthy = match status {
            ClientStatus::Running if self.script == Script::Runs => Some(true),
            ClientStatus::Failed => Some(false),
            _ => None,
        };
        AllocUpdate {
            id,
            client_status: status,
            task_states: [(Name::from("main"), state)].into(),
            deployment_status: Some(DeploymentStatus { healthy, ..Default::default() }),
            ..AllocUpdate::default()
        }
    }

    async fn take(&mut self, frames: &mut Frames, work: Work) {
        for json in &work.allocs_json {
            match serde_json::from_slice::<Allocation>(json) {
                Ok(alloc) => self.take_alloc(frames, alloc).await,
                Err(error) => self.note(format!("an allocation cannot be read: {error}")),
            }
        }
        for id in work.removed.iter().filter_map(|id| <[u8; 16]>::try_from(id.as_slice()).ok()).map(AllocId) {
            self.note(format!("removed {}", id.short()));
            let mut host = lock(&self.host);
            host.runs.remove(&id);
            host.unconfirmed.remove(&id);
        }
    }

    async fn take_alloc(&mut self, frames: &mut Frames, alloc: Allocation) {
        let (id, stop) = (alloc.id, alloc.server_terminal());
        self.note(format!("{} {} v{} {}", alloc.name, id.short(), alloc.job_version, alloc.desired_status));
        let before = {
            let mut host = lock(&self.host);
            let before = host.runs.get(&id).map(|run| run.status);
            let run = Run { alloc, status: before.unwrap_or(ClientStatus::Pending) };
            host.runs.insert(id, run);
            before
        };
        match before {
            Some(status) if stop && !status.is_terminal() => self.update(frames, id, ClientStatus::Complete).await,
            Some(_) => {}
            None if stop || self.script == Script::Silent => {}
            None => {
                self.update(frames, id, ClientStatus::Running).await;
                match self.script {
                    Script::Completes => self.update(frames, id, ClientStatus::Complete).await,
                    Script::Fails => self.update(frames, id, ClientStatus::Failed).await,
                    Script::Runs | Script::Unproven | Script::Silent => {}
                }
            }
        }
    }
}

fn known(run: &Run) -> KnownAlloc {
    KnownAlloc { id: run.alloc.id.0.to_vec(), alloc_modify_index: run.alloc.alloc_modify_index }
}

/// Answers a request over a channel of its own: statistics in two parts, an error for the rest.
async fn answer_bulk(world: World, addr: SocketAddr, token: Vec<u8>) {
    // A server that is gone wants no answer.
    let _ = try_answer_bulk(&world, addr, token).await;
}

async fn try_answer_bulk(world: &World, addr: SocketAddr, token: Vec<u8>) -> io::Result<()> {
    let mut frames = dial(world, addr, Purpose::NodeBulk).await?;
    frames.send(bytes::Bytes::from(BulkHello { token }.encode_to_vec())).await?;
    let closed = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let frame = BulkFrame::decode(frames.next().await.ok_or_else(closed)??).map_err(io::Error::other)?;
    let Some(BulkMessage::Request(json)) = frame.message else { return Err(closed()) };
    let answers = match serde_json::from_slice(&json)? {
        NodeRequest::NodeStats => vec![
            BulkMessage::Data(b"{\"CPU\":".to_vec()),
            BulkMessage::Data(b"7}".to_vec()),
            BulkMessage::End(BulkEnd {}),
        ],
        _ => vec![BulkMessage::Error(BulkError { code: 404, message: "Unknown allocation".into() })],
    };
    for message in answers {
        let frame = BulkFrame { message: Some(message) };
        frames.send(bytes::Bytes::from(frame.encode_to_vec())).await?;
    }
    Ok(())
}
