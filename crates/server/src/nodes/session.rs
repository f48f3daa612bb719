//! One node's session: what it should run goes down as it changes, what it says goes to the log.

use super::push::Sent;
use super::updates::Said;
use super::{OPENING_TIMEOUT, codec};
use crate::error::ServerError;
use crate::server::Server;
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, SinkExt};
use herdsman_model::{AllocId, ClientStatus, Node, NodeEvent, NodeId, NodeStatus};
use herdsman_proto::{
    Ack, AllocUpdate, AllocUpdates, Heartbeat, HeartbeatAck, Hello, NodeFrame, NodeMessage, Refused, SESSION_VERSION,
    ServerFrame, ServerMessage, ServiceChanges, ServiceRegistration, Welcome,
};
use herdsman_state::{Body, NodeEvents, SetNodeStatus, UpsertNode, WatchKey};
use herdsman_world::BoxStream;
use prost::Message;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

/// Frames to a node that wait to be written; beyond it the session waits.
const MAX_QUEUED_FRAMES: usize = 64;
/// Messages of a node that are on their way to the log; beyond it the session reads no more.
const MAX_UNACKED: usize = 256;

type Reader = FramedRead<ReadHalf<BoxStream>, LengthDelimitedCodec>;
type Writer = FramedWrite<WriteHalf<BoxStream>, LengthDelimitedCodec>;
type Acks = FuturesUnordered<Pin<Box<dyn Future<Output = Ack> + Send>>>;

/// A session that is open.
struct Session {
    server: Server,
    node: NodeId,
    frames: mpsc::Sender<ServerFrame>,
    sent: Sent,
    acks: Acks,
}

pub(crate) async fn run(server: Server, stream: BoxStream) {
    let (reader, writer) = tokio::io::split(stream);
    let mut reader = FramedRead::new(reader, codec());
    let mut writer = FramedWrite::new(writer, codec());
    let hello = tokio::select! {
        biased;
        hello = read_hello(&mut reader) => hello,
        () = server.world().clock.sleep(OPENING_TIMEOUT) => Err(refused("no hello in time", false)),
    };
    let opened = match hello {
        Ok(hello) => open(&server, hello).await,
        Err(problem) => Err(problem),
    };
    match opened {
        Ok((node, sent)) => serve(server, node, sent, reader, writer).await,
        Err(problem) => {
            tracing::warn!(reason = %problem.message, permanent = problem.permanent, "a node was refused");
            let frame = ServerFrame { message: Some(ServerMessage::Refused(problem)) };
            // The node may be gone already.
            let _ = writer.send(Bytes::from(frame.encode_to_vec())).await;
        }
    }
}

fn refused(message: impl Into<String>, permanent: bool) -> Refused {
    Refused { message: message.into(), permanent }
}

async fn read_hello(reader: &mut Reader) -> Result<Hello, Refused> {
    let frame = match reader.next().await {
        Some(Ok(frame)) => frame,
        Some(Err(error)) => return Err(refused(format!("hello: {error}"), false)),
        None => return Err(refused("connection closed before hello", false)),
    };
    match NodeFrame::decode(frame) {
        Ok(NodeFrame { message: Some(NodeMessage::Hello(hello)) }) => Ok(hello),
        Ok(_) => Err(refused("the first message is no hello", true)),
        Err(error) => Err(refused(format!("hello: {error}"), true)),
    }
}

/// Checks a hello and registers the node.
async fn open(server: &Server, hello: Hello) -> Result<(NodeId, Sent), Refused> {
    if hello.version != SESSION_VERSION {
        let text = format!("node speaks session version {}, this server {SESSION_VERSION}", hello.version);
        return Err(refused(text, true));
    }
    let region = &server.config().region;
    if !hello.region.is_empty() && hello.region != *region {
        return Err(refused(format!("node is of region \"{}\", this server of \"{region}\"", hello.region), true));
    }
    let node: Node =
        serde_json::from_slice(&hello.node_json).map_err(|error| refused(format!("node: {error}"), true))?;
    let known = hello.known.iter().filter_map(|alloc| {
        <[u8; 16]>::try_from(alloc.id.as_slice()).ok().map(|id| (AllocId(id), alloc.alloc_modify_index))
    });
    let sent = Sent::new(known);
    let id = node.id;
    register(server, node).await.map_err(|error| refused(error.message, error.code == 403))?;
    Ok((id, sent))
}

/// Writes a node when it is new, changed or was away. One whose allocations are unknown is ready once it has said what
/// became of them.
async fn register(server: &Server, node: Node) -> Result<(), ServerError> {
    let snapshot = server.snapshot();
    let unknown = snapshot.allocs_by_node(&node.id).any(|alloc| alloc.client_status == ClientStatus::Unknown);
    if let Some(stored) = snapshot.node(&node.id)
        && stored.status == NodeStatus::Ready
        && stored.secret_id == node.secret_id
        && says_nothing_new(stored, &node)
    {
        return Ok(());
    }
    let command = UpsertNode { node, ready: !unknown, seed: server.seed() };
    server.propose(Body::UpsertNode(Box::new(command))).await.map(|_| ())
}

fn says_nothing_new(stored: &Node, said: &Node) -> bool {
    let mut said = said.clone();
    said.status = stored.status;
    said.status_description.clone_from(&stored.status_description);
    said.status_updated_at = stored.status_updated_at;
    said.eligibility = stored.eligibility;
    said.drain.clone_from(&stored.drain);
    said.last_drain.clone_from(&stored.last_drain);
    said.events.clone_from(&stored.events);
    said.last_missed_heartbeat_index = stored.last_missed_heartbeat_index;
    said.last_alloc_update_index = stored.last_alloc_update_index;
    said.create_index = stored.create_index;
    said.modify_index = stored.modify_index;
    if said.node_pool.is_empty() {
        said.node_pool.clone_from(&stored.node_pool);
    }
    said == *stored
}

/// Serves a session until either side ends it.
async fn serve(server: Server, node: NodeId, sent: Sent, reader: Reader, writer: Writer) {
    let (frames, queue) = mpsc::channel(MAX_QUEUED_FRAMES);
    let (close, closed) = watch::channel(false);
    let number = server.inner.sessions.opened(node, frames.clone(), close);
    let mut session = Session { server: server.clone(), node, frames, sent, acks: FuturesUnordered::new() };
    let writing = write_all(queue, writer);
    let serving = async {
        if session.welcome().await.is_some() {
            session.run(reader, closed).await;
        }
    };
    tokio::select! {
        biased;
        () = serving => {}
        () = writing => {}
    }
    server.inner.sessions.closed(node, number);
    tracing::info!(%node, "a node's session ended");
}

/// Writes frames; those that wait together are sent together.
async fn write_all(mut queue: mpsc::Receiver<ServerFrame>, mut writer: Writer) {
    while let Some(frame) = queue.recv().await {
        if writer.feed(Bytes::from(frame.encode_to_vec())).await.is_err() {
            return;
        }
        while let Ok(frame) = queue.try_recv() {
            if writer.feed(Bytes::from(frame.encode_to_vec())).await.is_err() {
                return;
            }
        }
        if SinkExt::<Bytes>::flush(&mut writer).await.is_err() {
            return;
        }
    }
}

impl Session {
    /// Queues a frame; none when the connection is gone.
    async fn send(&mut self, message: ServerMessage) -> Option<()> {
        self.frames.send(ServerFrame { message: Some(message) }).await.ok()
    }

    async fn welcome(&mut self) -> Option<()> {
        let ttl = self.server.inner.leader.heartbeats.beat(&self.server, self.node);
        let welcome = Welcome {
            version: SESSION_VERSION,
            heartbeat_ttl: i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX),
            servers: vec![self.server.rpc_advertise()],
        };
        self.send(ServerMessage::Welcome(welcome)).await
    }

    async fn run(&mut self, mut reader: Reader, mut closed: watch::Receiver<bool>) -> Option<()> {
        let mut watching = self.server.watch(&[WatchKey::NodeAllocs(self.node)]);
        let mut changed = Box::pin(watching.prepare());
        self.push().await?;
        loop {
            let acks_wait = !self.acks.is_empty();
            let reads = self.acks.len() < MAX_UNACKED;
            tokio::select! {
                biased;
                () = crate::server::turned_true(&mut closed) => return None,
                Some(ack) = self.acks.next(), if acks_wait => self.send(ServerMessage::Ack(ack)).await?,
                () = &mut changed => {
                    changed = Box::pin(watching.prepare());
                    self.push().await?;
                }
                frame = reader.next(), if reads => match frame? {
                    Ok(frame) => self.take(&frame).await?,
                    Err(error) => {
                        tracing::warn!(node = %self.node, %error, "a node's session broke");
                        return None;
                    }
                }
            }
        }
    }

    /// Sends what the node should run that it has not been sent.
    async fn push(&mut self) -> Option<()> {
        let snapshot = self.server.snapshot();
        for frame in self.sent.difference(&snapshot, self.node) {
            self.frames.send(frame).await.ok()?;
        }
        Some(())
    }

    async fn take(&mut self, frame: &[u8]) -> Option<()> {
        let message = match NodeFrame::decode(frame) {
            Ok(frame) => frame.message,
            Err(error) => {
                tracing::warn!(node = %self.node, %error, "a node sent what is no message");
                return None;
            }
        };
        match message {
            Some(NodeMessage::Heartbeat(beat)) => self.heartbeat(&beat).await,
            Some(NodeMessage::AllocUpdates(updates)) => {
                self.alloc_updates(updates).await;
                Some(())
            }
            Some(NodeMessage::Services(changes)) => {
                self.services(changes).await;
                Some(())
            }
            Some(NodeMessage::NodeChanged(changed)) => {
                self.node_changed(&changed.node_json).await;
                Some(())
            }
            Some(NodeMessage::NodeEvent(note)) => {
                self.node_event(&note.event_json).await;
                Some(())
            }
            // The tasks go on; whether the node comes back in time decides.
            Some(NodeMessage::Leaving(_)) => None,
            Some(NodeMessage::Hello(_)) => {
                tracing::warn!(node = %self.node, "a node said hello twice");
                None
            }
            // A message of a newer node that this server need not know.
            None => Some(()),
        }
    }

    /// A heartbeat counts once this server has confirmed that it leads.
    async fn heartbeat(&mut self, beat: &Heartbeat) -> Option<()> {
        if self.server.inner.log.read_barrier().await.is_err() {
            return Some(());
        }
        let ttl = self.server.inner.leader.heartbeats.beat(&self.server, self.node);
        bring_back(&self.server, self.node).await;
        let ack = HeartbeatAck {
            send_time: beat.send_time,
            heartbeat_ttl: i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX),
        };
        self.send(ServerMessage::HeartbeatAck(ack)).await
    }

    async fn alloc_updates(&mut self, message: AllocUpdates) {
        let sequence = message.sequence;
        let bytes = message.updates_json.iter().map(Vec::len).sum();
        let snapshot = self.server.snapshot();
        let node = self.node;
        let mine = |update: &AllocUpdate| snapshot.alloc(&update.id).is_none_or(|alloc| alloc.node_id == node);
        let updates: Vec<AllocUpdate> = match decode_all(&message.updates_json) {
            Ok(updates) => updates,
            Err(error) => return self.acks.push(refuse(sequence, format!("allocation update: {error}"))),
        };
        if let Some(strange) = updates.iter().find(|update| !mine(update)) {
            return self.acks.push(refuse(sequence, format!("allocation {} is not of this node", strange.id)));
        }
        let was_away = snapshot.node(&node).is_some_and(|node| node.status != NodeStatus::Ready);
        let done = self.server.inner.updates.put(Said::Allocs(updates), bytes).await;
        let server = self.server.clone();
        self.acks.push(Box::pin(async move {
            let ack = in_log(sequence, done).await;
            if was_away && ack.error.is_empty() {
                bring_back(&server, node).await;
            }
            ack
        }));
    }

    async fn services(&mut self, message: ServiceChanges) {
        let sequence = message.sequence;
        let bytes = message.register_json.iter().map(Vec::len).sum();
        let register: Vec<ServiceRegistration> = match decode_all(&message.register_json) {
            Ok(register) => register,
            Err(error) => return self.acks.push(refuse(sequence, format!("service registration: {error}"))),
        };
        let said = Said::Services { register, deregister: message.deregister };
        let done = self.server.inner.updates.put(said, bytes).await;
        self.acks.push(Box::pin(in_log(sequence, done)));
    }

    async fn node_changed(&mut self, json: &[u8]) {
        let node: Node = match serde_json::from_slice(json) {
            Ok(node) => node,
            Err(error) => return tracing::warn!(node = %self.node, %error, "a node sent a description that is none"),
        };
        if node.id != self.node {
            return tracing::warn!(node = %self.node, "a node sent another node's description");
        }
        if let Err(error) = register(&self.server, node).await {
            tracing::warn!(node = %self.node, %error, "a node's changes could not be written");
        }
    }

    async fn node_event(&mut self, json: &[u8]) {
        let event: NodeEvent = match serde_json::from_slice(json) {
            Ok(event) => event,
            Err(error) => return tracing::warn!(node = %self.node, %error, "a node sent an event that is none"),
        };
        let command = NodeEvents { events: [(self.node, vec![event])].into() };
        if let Err(error) = self.server.propose(Body::NodeEvents(command)).await {
            tracing::warn!(node = %self.node, %error, "an event of a node could not be written");
        }
    }
}

/// A node that was away and has said everything it had to say is ready.
async fn bring_back(server: &Server, node: NodeId) {
    let away = server.snapshot().node(&node).is_some_and(|stored| stored.status != NodeStatus::Ready);
    if !away {
        return;
    }
    let command = SetNodeStatus {
        node_ids: vec![node],
        status: NodeStatus::Ready,
        event: Some(NodeEvent {
            message: "Node reregistered by heartbeat".to_owned(),
            subsystem: "Cluster".to_owned(),
            ..NodeEvent::default()
        }),
        seed: server.seed(),
    };
    if let Err(error) = server.propose(Body::NodeStatus(command)).await {
        tracing::warn!(%node, %error, "a node that is back could not be marked as ready");
    }
}

fn refuse(sequence: u64, error: String) -> Pin<Box<dyn Future<Output = Ack> + Send>> {
    std::future::ready(Ack { sequence, error }).boxed()
}

async fn in_log(sequence: u64, done: tokio::sync::oneshot::Receiver<Result<(), ServerError>>) -> Ack {
    let error = match done.await {
        Ok(Ok(())) => String::new(),
        Ok(Err(error)) => error.message,
        Err(_) => "server is shutting down".to_owned(),
    };
    Ack { sequence, error }
}

fn decode_all<T: DeserializeOwned>(items: &[Vec<u8>]) -> Result<Vec<T>, serde_json::Error> {
    items.iter().map(|json| serde_json::from_slice(json)).collect()
}
