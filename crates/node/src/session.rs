//! The node session: one connection to some server, dialled again whenever it ends.

use crate::node::Shared;
use crate::serve::channel::framed;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use herdsman_model::{Allocation, Job, NodeEvent};
use herdsman_proto::{
    Ack, AllocUpdates, Heartbeat, Hello, KnownAlloc, Leaving, MAGIC, NodeChanged, NodeEventNote, NodeFrame,
    NodeMessage, Purpose, SESSION_VERSION, ServerFrame, ServerMessage, ServiceChanges, Welcome, Work,
};
use herdsman_world::BoxStream;
use prost::Message;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// Time a server has to take the connection and to answer the hello.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// First and longest wait between two attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// States that are not urgent wait this long for others.
const LINGER: Duration = Duration::from_millis(200);
/// Wait before states that the servers refused are sent again.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
/// Heartbeats per time to live.
const BEATS_PER_TTL: u32 = 3;
/// Shortest time between heartbeats.
const MIN_BEAT: Duration = Duration::from_millis(200);
/// Requests answered at once; the server gives up on one that no channel is dialled for.
pub const BULK_CHANNELS: usize = 512;
/// Node events that may wait for a session.
pub const EVENT_QUEUE: usize = 64;

/// Allocations and jobs a server sent.
#[derive(Debug, Default)]
pub struct Incoming {
    pub jobs: Vec<Arc<Job>>,
    pub allocs: Vec<Allocation>,
    pub removed: Vec<herdsman_model::AllocId>,
    /// It says all there is to say.
    pub complete: bool,
}

/// Keeps a session open until the node is shut down.
pub async fn run(shared: Arc<Shared>, mut events: mpsc::Receiver<NodeEvent>) {
    let mut backoff = BACKOFF.0;
    let mut turn = usize::try_from(shared.world.rng.below(1 << 16)).unwrap_or(0);
    let mut stop = shared.stopping.subscribe();
    loop {
        let servers = shared.servers();
        let server = servers.get(turn % servers.len().max(1)).cloned();
        turn = turn.wrapping_add(1);
        let Some(server) = server else {
            tracing::warn!("no server is known yet; set client.servers or server_join");
            tokio::select! {
                () = shared.world.clock.sleep(BACKOFF.1) => continue,
                () = shared.servers_learnt() => continue,
                () = crate::node::stopped(&mut stop) => return,
            }
        };
        let mut opened = false;
        let attempt = one(&shared, &server, &mut events, &mut opened);
        let ended = tokio::select! {
            ended = attempt => ended,
            () = crate::node::stopped(&mut stop) => return,
        };
        shared.updates.give_back();
        shared.connected.send_replace(None);
        if *stop.borrow() {
            return;
        }
        match ended {
            Ok(()) => tracing::debug!(%server, "the session ended"),
            Err(error) => tracing::warn!(%server, %error, "no session with this server"),
        }
        backoff = if opened { BACKOFF.0 } else { backoff.saturating_mul(2).min(BACKOFF.1) };
        let millis = u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX);
        let jitter = Duration::from_millis(shared.world.rng.below(millis / 2 + 1));
        tokio::select! {
            () = shared.world.clock.sleep(backoff / 2 + jitter) => {}
            () = crate::node::stopped(&mut stop) => return,
        }
    }
}

/// Dials a server's RPC port for one purpose.
pub async fn dial(shared: &Shared, server: &str, purpose: Purpose) -> io::Result<BoxStream> {
    let mut stream = shared.world.net.connect(server).await?;
    let [a, b, c, d] = MAGIC;
    stream.write_all(&[a, b, c, d, purpose as u8]).await?;
    Ok(stream)
}

type Wire = Framed<BoxStream, LengthDelimitedCodec>;

async fn send(wire: &mut Wire, message: NodeMessage) -> io::Result<()> {
    let frame = NodeFrame { message: Some(message) };
    wire.send(Bytes::from(frame.encode_to_vec())).await
}

async fn receive(wire: &mut Wire) -> io::Result<Option<ServerMessage>> {
    match wire.next().await.transpose()? {
        None => Ok(None),
        Some(bytes) => Ok(ServerFrame::decode(bytes).map_err(io::Error::other)?.message),
    }
}

fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    // Only types with text keys are sent, and those always have a JSON form.
    serde_json::to_vec(value).unwrap_or_default()
}

/// One session, to its end.
async fn one(
    shared: &Arc<Shared>,
    server: &str,
    events: &mut mpsc::Receiver<NodeEvent>,
    opened: &mut bool,
) -> io::Result<()> {
    let timeout = || io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time");
    let open = async {
        let mut wire = framed(dial(shared, server, Purpose::NodeControl).await?);
        let welcome = greet(shared, &mut wire).await?;
        Ok::<_, io::Error>((wire, welcome))
    };
    let (mut wire, welcome) = tokio::time::timeout(OPEN_TIMEOUT, open).await.map_err(|_| timeout())??;
    *opened = true;
    tracing::info!(%server, "session open");
    shared.learn_servers(welcome.servers);
    shared.services.resend_all();
    shared.connected.send_replace(Some(server.to_string()));
    shared.contacted();
    let mut session = Session {
        shared,
        server,
        ttl: ttl(welcome.heartbeat_ttl),
        sequence: 0,
        in_flight: None,
        service_changes: None,
        hold_until: None,
    };
    let result = session.serve(&mut wire, events).await;
    if let Some((_, changes)) = session.service_changes.take() {
        shared.services.give_back(changes);
    }
    result
}

fn ttl(nanos: i64) -> Duration {
    u64::try_from(nanos).ok().filter(|n| *n > 0).map_or(Duration::from_secs(10), Duration::from_nanos)
}

/// Hello and the answer to it.
async fn greet(shared: &Shared, wire: &mut Wire) -> io::Result<Welcome> {
    let known = shared.known();
    let known = known.into_iter().map(|(id, index)| KnownAlloc { id: id.0.to_vec(), alloc_modify_index: index });
    let hello = Hello {
        version: SESSION_VERSION,
        node_json: json(&*shared.node()),
        known: known.collect(),
        region: shared.config.region.clone(),
        send_time: shared.world.clock.now().0,
    };
    send(wire, NodeMessage::Hello(hello)).await?;
    match receive(wire).await? {
        Some(ServerMessage::Welcome(welcome)) if welcome.version == SESSION_VERSION => Ok(welcome),
        Some(ServerMessage::Welcome(welcome)) => {
            let text = format!("the server speaks session version {}, this node {SESSION_VERSION}", welcome.version);
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        Some(ServerMessage::Refused(refused)) => {
            if refused.permanent {
                tracing::error!(message = %refused.message, "the servers refuse this node; trying again cannot help");
            }
            Err(io::Error::new(io::ErrorKind::PermissionDenied, refused.message))
        }
        Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "the server did not answer the hello")),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
    }
}

struct Session<'a> {
    shared: &'a Arc<Shared>,
    server: &'a str,
    ttl: Duration,
    sequence: u64,
    /// Sequence of the states in flight.
    in_flight: Option<u64>,
    service_changes: Option<(u64, crate::services::Changes)>,
    /// States are not sent before, because the servers refused the last ones.
    hold_until: Option<herdsman_world::Moment>,
}

impl Session<'_> {
    async fn serve(&mut self, wire: &mut Wire, events: &mut mpsc::Receiver<NodeEvent>) -> io::Result<()> {
        let shared = self.shared;
        let clock = &shared.world.clock;
        let mut node_version = shared.node_changes.subscribe();
        node_version.mark_unchanged();
        let mut stop = shared.stopping.subscribe();
        let mut last_heard = clock.monotonic();
        let mut next_beat = clock.monotonic().plus(self.beat());
        loop {
            let quiet = clock.monotonic().since(last_heard);
            if quiet > self.ttl.saturating_mul(2) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the server is silent"));
            }
            tokio::select! {
                message = receive(wire) => {
                    last_heard = clock.monotonic();
                    match message? {
                        None => return Ok(()),
                        Some(message) => self.take(message).await?,
                    }
                }
                () = clock.sleep_until(next_beat) => {
                    next_beat = clock.monotonic().plus(self.beat());
                    let send_time = clock.now().0;
                    send(wire, NodeMessage::Heartbeat(Heartbeat { send_time })).await?;
                }
                () = self.states_ready() => self.send_states(wire).await?,
                () = shared.services.ready(), if self.service_changes.is_none() => self.send_services(wire).await?,
                _ = node_version.changed() => {
                    let node_json = json(&*shared.node());
                    send(wire, NodeMessage::NodeChanged(NodeChanged { node_json })).await?;
                }
                Some(event) = events.recv() => {
                    send(wire, NodeMessage::NodeEvent(NodeEventNote { event_json: json(&event) })).await?;
                }
                () = crate::node::stopped(&mut stop) => {
                    send(wire, NodeMessage::Leaving(Leaving {})).await?;
                    return SinkExt::<Bytes>::close(wire).await;
                }
            }
        }
    }

    fn beat(&self) -> Duration {
        (self.ttl / BEATS_PER_TTL).max(MIN_BEAT)
    }

    /// Returns when states are to be sent now.
    async fn states_ready(&self) {
        if self.in_flight.is_some() {
            return std::future::pending().await;
        }
        let clock = &self.shared.world.clock;
        if let Some(until) = self.hold_until {
            clock.sleep_until(until).await;
        }
        if !self.shared.updates.ready().await {
            let until = clock.monotonic().plus(LINGER);
            while !self.shared.updates.is_urgent() {
                tokio::select! {
                    () = clock.sleep_until(until) => break,
                    () = self.shared.updates.grew() => {}
                }
            }
        }
    }

    async fn send_states(&mut self, wire: &mut Wire) -> io::Result<()> {
        self.hold_until = None;
        let batch = self.shared.updates.take();
        if batch.is_empty() {
            return Ok(());
        }
        self.sequence += 1;
        self.in_flight = Some(self.sequence);
        let updates_json = batch.iter().map(json).collect();
        send(wire, NodeMessage::AllocUpdates(AllocUpdates { sequence: self.sequence, updates_json })).await
    }

    async fn send_services(&mut self, wire: &mut Wire) -> io::Result<()> {
        let changes = self.shared.services.take();
        self.sequence += 1;
        let message = ServiceChanges {
            sequence: self.sequence,
            register_json: changes.register.iter().map(json).collect(),
            deregister: changes.deregister.clone(),
        };
        self.service_changes = Some((self.sequence, changes));
        send(wire, NodeMessage::Services(message)).await
    }

    async fn take(&mut self, message: ServerMessage) -> io::Result<()> {
        match message {
            ServerMessage::HeartbeatAck(ack) => self.ttl = ttl(ack.heartbeat_ttl),
            ServerMessage::Work(work) => {
                let incoming = incoming(work).map_err(io::Error::other)?;
                self.shared.apply(incoming).await.map_err(io::Error::other)?;
            }
            ServerMessage::Ack(ack) => self.acknowledged(&ack),
            ServerMessage::OpenBulk(open) => {
                let (shared, server) = (Arc::clone(self.shared), self.server.to_string());
                let Ok(slot) = Arc::clone(&shared.bulk_slots).try_acquire_owned() else {
                    tracing::warn!("{BULK_CHANNELS} requests are being answered; one more is not");
                    return Ok(());
                };
                tokio::spawn(async move {
                    let _slot = slot;
                    if let Err(error) = crate::serve::bulk::answer(&shared, &server, open.token).await {
                        tracing::debug!(%error, "a bulk channel ended early");
                    }
                });
            }
            ServerMessage::Refused(refused) => {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused.message));
            }
            ServerMessage::Welcome(_) => {}
        }
        Ok(())
    }

    fn acknowledged(&mut self, ack: &Ack) {
        if self.in_flight == Some(ack.sequence) {
            self.in_flight = None;
            if ack.error.is_empty() {
                self.shared.updates.acknowledge();
            } else {
                tracing::warn!(error = %ack.error, "the servers refused states; they are sent again");
                self.shared.updates.give_back();
                self.hold_until = Some(self.shared.world.clock.monotonic().plus(REFUSED_WAIT));
            }
        } else if self.service_changes.as_ref().is_some_and(|(sequence, _)| *sequence == ack.sequence)
            && let Some((_, changes)) = self.service_changes.take()
            && !ack.error.is_empty()
        {
            tracing::warn!(error = %ack.error, "the servers refused services; they are sent again");
            self.shared.services.give_back(changes);
        }
    }
}

/// Reads a work message.
fn incoming(work: Work) -> Result<Incoming, serde_json::Error> {
    let jobs = work.jobs_json.iter().map(|bytes| serde_json::from_slice(bytes).map(Arc::new));
    let allocs = work.allocs_json.iter().map(|bytes| serde_json::from_slice(bytes));
    let removed =
        work.removed.iter().filter_map(|bytes| Some(herdsman_model::AllocId(bytes.as_slice().try_into().ok()?)));
    Ok(Incoming {
        jobs: jobs.collect::<Result<_, _>>()?,
        allocs: allocs.collect::<Result<_, _>>()?,
        removed: removed.collect(),
        complete: work.complete,
    })
}
