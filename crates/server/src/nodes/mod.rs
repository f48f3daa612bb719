//! Connections of nodes: accepting them, and who is in session.

pub(crate) mod push;
mod session;
pub(crate) mod updates;

use crate::bulk::BulkStream;
use crate::error::ServerError;
use crate::server::Server;
use herdsman_model::NodeId;
use herdsman_proto::{MAGIC, MAX_FRAME_BYTES, NodeRequest, OpenBulk, Purpose, ServerFrame, ServerMessage};
use herdsman_world::{BoxStream, Listener};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::codec::LengthDelimitedCodec;

/// Connections open at once; beyond it new ones wait to be accepted.
const MAX_CONNECTIONS: usize = 20_000;
/// How long a connection may take to say what it is for.
pub(crate) const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a node may take to dial a bulk channel.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bulk channels that are waited for.
const MAX_PENDING_BULK: usize = 4096;

/// Frames of sessions and bulk channels: a 4-byte big-endian length before each.
pub(crate) fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec()
}

/// A node in session.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    number: u64,
    pub frames: mpsc::Sender<ServerFrame>,
    /// Ends the session when it turns true.
    pub close: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_node: BTreeMap<NodeId, Handle>,
    bulk: BTreeMap<Vec<u8>, oneshot::Sender<BulkStream>>,
}

/// Who is in session.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Mutex<Open>,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node opened a session; an older one of the same node ends. Gives its number.
    pub fn opened(&self, node: NodeId, frames: mpsc::Sender<ServerFrame>, close: watch::Sender<bool>) -> u64 {
        let mut open = self.lock();
        open.next += 1;
        let number = open.next;
        if let Some(older) = open.by_node.insert(node, Handle { number, frames, close }) {
            older.close.send_replace(true);
        }
        number
    }

    /// A session ended.
    pub fn closed(&self, node: NodeId, number: u64) {
        let mut open = self.lock();
        if open.by_node.get(&node).is_some_and(|handle| handle.number == number) {
            open.by_node.remove(&node);
        }
    }

    /// Ends every session.
    pub fn close_all(&self) {
        for handle in self.lock().by_node.values() {
            handle.close.send_replace(true);
        }
    }

    fn handle(&self, node: NodeId) -> Option<Handle> {
        self.lock().by_node.get(&node).cloned()
    }

    /// A node dialled the bulk channel of this token.
    pub fn dialled(&self, token: &[u8], stream: BulkStream) {
        let waiting = self.lock().bulk.remove(token);
        match waiting {
            // Who waited may have given up in between; then the channel closes with the stream.
            Some(waiting) => drop(waiting.send(stream)),
            None => tracing::warn!("a bulk channel was dialled that nobody waits for"),
        }
    }
}

impl Server {
    /// Whether a node is in session with this server.
    pub fn is_connected(&self, node: NodeId) -> bool {
        self.inner.sessions.handle(node).is_some()
    }

    /// Asks something of a node: the node dials a channel of its own for the answer.
    ///
    /// # Errors
    /// 404 when the node is not in session or does not dial in time.
    pub async fn node_request(&self, node: NodeId, request: &NodeRequest) -> Result<BulkStream, ServerError> {
        let no_path = || ServerError::not_found("No path to node");
        let handle = self.inner.sessions.handle(node).ok_or_else(no_path)?;
        let rng = &self.inner.world.rng;
        let token = [rng.bytes16(), rng.bytes16()].concat();
        let (sender, receiver) = oneshot::channel();
        {
            let mut open = self.inner.sessions.lock();
            if open.bulk.len() >= MAX_PENDING_BULK {
                return Err(ServerError::new(429, "too many requests to nodes are waiting; try again"));
            }
            open.bulk.insert(token.clone(), sender);
        }
        let frame = ServerFrame { message: Some(ServerMessage::OpenBulk(OpenBulk { token: token.clone() })) };
        let asked = handle.frames.send(frame).await;
        let dialled = async {
            asked.map_err(|_| no_path())?;
            receiver.await.map_err(|_| no_path())
        };
        let timeout = self.inner.world.clock.sleep(DIAL_TIMEOUT);
        let stream = tokio::select! {
            biased;
            stream = dialled => stream,
            () = timeout => Err(no_path()),
        };
        if stream.is_err() {
            self.inner.sessions.lock().bulk.remove(&token);
        }
        let mut stream = stream?;
        stream.ask(request).await?;
        Ok(stream)
    }
}

/// Accepts connections of nodes until the server stops.
pub(crate) async fn listen(server: Server, listener: Box<dyn Listener>, mut stopped: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await;
        let accepted = tokio::select! {
            biased;
            () = crate::server::turned_true(&mut stopped) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = server.clone();
                server.spawn(async move {
                    welcome(connection, stream).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of file handles, say: those that are open may end.
                tracing::warn!(%error, "a connection of a node could not be accepted");
                server.world().clock.sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Reads what a connection is for and hands it on.
async fn welcome(server: Server, mut stream: BoxStream) {
    let mut opening = [0u8; MAGIC.len() + 1];
    let read = tokio::select! {
        biased;
        read = stream.read_exact(&mut opening) => read.is_ok(),
        () = server.world().clock.sleep(OPENING_TIMEOUT) => false,
    };
    let [m0, m1, m2, m3, purpose] = opening;
    if !read || [m0, m1, m2, m3] != MAGIC {
        tracing::debug!("a connection was closed that did not say what it is for");
        return;
    }
    match Purpose::try_from(purpose) {
        Ok(Purpose::NodeControl) => session::run(server, stream).await,
        Ok(Purpose::NodeBulk) => crate::bulk::accept(&server, stream).await,
        Ok(Purpose::Forward) => match server.inner.forward.get() {
            Some(take) => take(stream),
            None => tracing::warn!("this server takes no requests that others pass on"),
        },
        Ok(Purpose::Consensus) => tracing::warn!(purpose, "connections for this purpose are taken elsewhere"),
        Err(error) => tracing::warn!(%error, "a connection was refused"),
    }
}
