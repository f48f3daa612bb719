//! A server that speaks the session protocol, keeps the newest states, and hands bulk channels out.

use futures::{SinkExt, StreamExt};
use herdsman_model::{AllocId, Allocation, ClientStatus, DesiredStatus, Job, Node, TaskFact};
use herdsman_proto::*;
use herdsman_world::{BoxStream, World};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// How long anything may take that is to happen in the end.
pub const EVENTUALLY: Duration = Duration::from_secs(30);

pub type Wire = Framed<BoxStream, LengthDelimitedCodec>;

fn wire(stream: BoxStream) -> Wire {
    Framed::new(stream, LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec())
}

#[derive(Default)]
struct Inner {
    jobs: Vec<Arc<Job>>,
    allocs: BTreeMap<AllocId, Allocation>,
    removed: Vec<AllocId>,
    states: BTreeMap<AllocId, AllocUpdate>,
    history: Vec<AllocUpdate>,
    services: BTreeMap<String, ServiceRegistration>,
    node: Option<Node>,
    session: Option<mpsc::UnboundedSender<ServerMessage>>,
    bulk: BTreeMap<Vec<u8>, oneshot::Sender<Wire>>,
    index: u64,
    refuse_states: bool,
}

#[derive(Clone)]
pub struct Server {
    inner: Arc<Mutex<Inner>>,
    pub addr: String,
    changed: Arc<Notify>,
}

impl Server {
    pub async fn start(world: &World) -> Server {
        let listener = world.net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let server = Server { inner: Arc::default(), addr, changed: Arc::default() };
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().connection(stream));
            }
        });
        server
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.inner.lock().unwrap())
    }

    async fn connection(self, mut stream: BoxStream) {
        let mut head = [0; 5];
        if stream.read_exact(&mut head).await.is_err() {
            return;
        }
        assert_eq!(head[..4], MAGIC);
        let mut wire = wire(stream);
        match Purpose::try_from(head[4]).unwrap() {
            Purpose::NodeControl => self.session(wire).await,
            Purpose::NodeBulk => {
                let hello = BulkHello::decode(wire.next().await.unwrap().unwrap()).unwrap();
                if let Some(waiting) = self.with(|i| i.bulk.remove(&hello.token)) {
                    drop(waiting.send(wire));
                }
            }
            other => panic!("a node has no business with {other:?}"),
        }
    }

    async fn session(self, wire: Wire) {
        let (mut to, mut from) = wire.split::<prost::bytes::Bytes>();
        let (sender, mut outgoing) = mpsc::unbounded_channel();
        let first = NodeFrame::decode(from.next().await.unwrap().unwrap()).unwrap().message;
        let Some(NodeMessage::Hello(hello)) = first else { panic!("the first message is a hello") };
        let known: BTreeMap<_, _> = hello.known.iter().map(|k| (k.id.clone(), k.alloc_modify_index)).collect();
        let ttl = 3_000_000_000;
        let welcome = Welcome { version: SESSION_VERSION, heartbeat_ttl: ttl, servers: vec![] };
        sender.send(ServerMessage::Welcome(welcome)).unwrap();
        self.with(|inner| {
            inner.node = Some(serde_json::from_slice(&hello.node_json).unwrap());
            let fresh =
                |a: &&Allocation| known.get(a.id.0.as_slice()).is_none_or(|index| *index < a.alloc_modify_index);
            let work = Work {
                index: inner.index,
                jobs_json: inner.jobs.iter().map(|j| serde_json::to_vec(&**j).unwrap()).collect(),
                allocs_json: inner.allocs.values().filter(fresh).map(|a| serde_json::to_vec(a).unwrap()).collect(),
                removed: inner.removed.iter().map(|id| id.0.to_vec()).collect(),
                complete: true,
            };
            sender.send(ServerMessage::Work(work)).unwrap();
            inner.session = Some(sender.clone());
        });
        self.changed.notify_waiters();
        loop {
            tokio::select! {
                Some(message) = outgoing.recv() => {
                    let frame = ServerFrame { message: Some(message) };
                    if to.send(prost::bytes::Bytes::from(frame.encode_to_vec())).await.is_err() {
                        return;
                    }
                }
                frame = from.next() => match frame {
                    Some(Ok(bytes)) => self.take(NodeFrame::decode(bytes).unwrap().message.unwrap(), &sender),
                    _ => return,
                },
            }
        }
    }

    fn take(&self, message: NodeMessage, sender: &mpsc::UnboundedSender<ServerMessage>) {
        self.with(|inner| match message {
            NodeMessage::Heartbeat(beat) => {
                let ack = HeartbeatAck { send_time: beat.send_time, heartbeat_ttl: 3_000_000_000 };
                drop(sender.send(ServerMessage::HeartbeatAck(ack)));
            }
            NodeMessage::AllocUpdates(updates) if inner.refuse_states => {
                inner.refuse_states = false;
                let ack = Ack { sequence: updates.sequence, error: "no leader".into() };
                drop(sender.send(ServerMessage::Ack(ack)));
            }
            NodeMessage::AllocUpdates(updates) => {
                for json in &updates.updates_json {
                    let update: AllocUpdate = serde_json::from_slice(json).unwrap();
                    if let Some(alloc) = inner.allocs.get_mut(&update.id) {
                        alloc.client_status = update.client_status;
                    }
                    inner.history.push(update.clone());
                    inner.states.insert(update.id, update);
                }
                drop(sender.send(ServerMessage::Ack(Ack { sequence: updates.sequence, error: String::new() })));
            }
            NodeMessage::Services(changes) => {
                for json in &changes.register_json {
                    let registration: ServiceRegistration = serde_json::from_slice(json).unwrap();
                    inner.services.insert(registration.id.clone(), registration);
                }
                for id in &changes.deregister {
                    inner.services.remove(id);
                }
                drop(sender.send(ServerMessage::Ack(Ack { sequence: changes.sequence, error: String::new() })));
            }
            NodeMessage::NodeChanged(change) => inner.node = Some(serde_json::from_slice(&change.node_json).unwrap()),
            NodeMessage::Leaving(_) | NodeMessage::NodeEvent(_) | NodeMessage::Hello(_) => {}
        });
        self.changed.notify_waiters();
    }

    pub fn refuse_next_states(&self) {
        self.with(|i| i.refuse_states = true);
    }

    /// Places an allocation of a job's first group.
    pub fn place(&self, job: &Arc<Job>) -> AllocId {
        self.with(|inner| {
            inner.index += 1;
            // Tests share a host: ids must differ between them, too.
            let id = herdsman_world::Rng::uuid(&herdsman_world::SeededRng::from_os().unwrap());
            let group = &job.task_groups[0];
            let mut alloc = Allocation {
                id: AllocId(id),
                namespace: "default".into(),
                name: format!("{}.{}[0]", job.id, group.name),
                job_id: job.id.as_str().into(),
                job_version: job.version,
                job_create_index: job.create_index,
                task_group: group.name.as_str().into(),
                alloc_modify_index: inner.index,
                create_time: 1,
                ..Allocation::default()
            };
            alloc.create_time = now();
            if !inner.jobs.iter().any(|j| Arc::ptr_eq(j, job)) {
                inner.jobs.push(Arc::clone(job));
            }
            inner.allocs.insert(alloc.id, alloc.clone());
            inner.push(vec![alloc]);
            AllocId(id)
        })
    }

    /// Changes an allocation the way servers do.
    pub fn change(&self, id: AllocId, change: impl FnOnce(&mut Allocation)) {
        self.with(|inner| {
            inner.index += 1;
            let index = inner.index;
            let alloc = inner.allocs.get_mut(&id).unwrap();
            alloc.alloc_modify_index = index;
            change(alloc);
            let alloc = alloc.clone();
            inner.push(vec![alloc]);
        });
    }

    pub fn stop(&self, id: AllocId) {
        self.change(id, |alloc| {
            alloc.desired_status = DesiredStatus::Stop;
            alloc.desired_description = "alloc is being stopped by a test".into();
        });
    }

    pub fn remove(&self, id: AllocId) {
        self.with(|inner| {
            inner.allocs.remove(&id);
            inner.removed.push(id);
            let work = Work { removed: vec![id.0.to_vec()], ..Work::default() };
            if let Some(session) = &inner.session {
                drop(session.send(ServerMessage::Work(work)));
            }
        });
    }

    pub fn state(&self, id: AllocId) -> Option<AllocUpdate> {
        self.with(|i| i.states.get(&id).cloned())
    }

    pub fn history(&self) -> Vec<AllocUpdate> {
        self.with(|i| i.history.clone())
    }

    pub fn services(&self) -> Vec<ServiceRegistration> {
        self.with(|i| i.services.values().cloned().collect())
    }

    pub fn node(&self) -> Option<Node> {
        self.with(|i| i.node.clone())
    }

    /// Waits until what the server knows satisfies `wanted`.
    pub async fn until<T>(&self, what: &str, wanted: impl Fn(&Server) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = wanted(self) {
                    return found;
                }
                drop(tokio::time::timeout(Duration::from_millis(100), changed).await);
            }
        };
        match tokio::time::timeout(EVENTUALLY, waiting).await {
            Ok(found) => found,
            Err(_) => panic!("not within {EVENTUALLY:?}: {what}; states: {:#?}", self.with(|i| i.states.clone())),
        }
    }

    pub async fn until_status(&self, id: AllocId, status: ClientStatus) -> AllocUpdate {
        let wanted = |s: &Server| s.state(id).filter(|u| u.client_status == status);
        self.until(&format!("{id} is {status}"), wanted).await
    }

    /// Asks the node; gives the data frames and how it ended.
    pub async fn ask(&self, request: NodeRequest) -> (Vec<Vec<u8>>, Result<(), BulkError>) {
        let mut wire = self.open(request).await;
        let mut data = Vec::new();
        loop {
            match recv(&mut wire).await {
                Some(BulkMessage::Data(bytes)) => data.push(bytes),
                Some(BulkMessage::End(_)) => return (data, Ok(())),
                Some(BulkMessage::Error(error)) => return (data, Err(error)),
                Some(BulkMessage::Request(_)) => panic!("a node sends no requests"),
                None => return (data, Err(BulkError { code: 0, message: "closed".into() })),
            }
        }
    }

    pub async fn json(&self, request: NodeRequest) -> serde_json::Value {
        let (data, result) = self.ask(request).await;
        result.unwrap();
        serde_json::from_slice(&data.concat()).unwrap()
    }

    /// Opens a channel and sends its request.
    pub async fn open(&self, request: NodeRequest) -> Wire {
        let (sender, receiver) = oneshot::channel();
        let session = self.until("a session", |s| s.with(|i| i.session.clone())).await;
        let token = self.with(|inner| {
            inner.index += 1;
            let token = inner.index.to_be_bytes().to_vec();
            inner.bulk.insert(token.clone(), sender);
            token
        });
        session.send(ServerMessage::OpenBulk(OpenBulk { token })).unwrap();
        let mut wire = tokio::time::timeout(EVENTUALLY, receiver).await.unwrap().unwrap();
        send(&mut wire, BulkMessage::Request(serde_json::to_vec(&request).unwrap())).await;
        wire
    }
}

pub async fn send(wire: &mut Wire, message: BulkMessage) {
    wire.send(prost::bytes::Bytes::from(BulkFrame { message: Some(message) }.encode_to_vec())).await.unwrap();
}

pub async fn recv(wire: &mut Wire) -> Option<BulkMessage> {
    let next = tokio::time::timeout(EVENTUALLY, wire.next()).await.expect("a frame in time");
    next.and_then(Result::ok).and_then(|bytes| BulkFrame::decode(bytes).unwrap().message)
}

impl Inner {
    fn push(&mut self, allocs: Vec<Allocation>) {
        let Some(session) = &self.session else { return };
        let work = Work {
            index: self.index,
            jobs_json: self.jobs.iter().map(|j| serde_json::to_vec(&**j).unwrap()).collect(),
            allocs_json: allocs.iter().map(|a| serde_json::to_vec(a).unwrap()).collect(),
            removed: vec![],
            complete: false,
        };
        drop(session.send(ServerMessage::Work(work)));
    }
}

pub fn now() -> i64 {
    use herdsman_world::Clock;
    herdsman_world::RealClock::new().now().0
}

/// The words of a task's events in order.
pub fn words(update: &AllocUpdate, task: &str) -> Vec<String> {
    let state = &update.task_states[task];
    let word = |fact: &TaskFact| serde_json::to_value(fact).unwrap()["fact"].as_str().unwrap().to_string();
    state.events.iter().map(|event| word(&event.fact)).collect()
}
