//! Calls between servers, over the network that was passed in. One call at a time on a connection;
//! a call that is given up on takes its connection with it.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use herdsman_world::{BoxStream, Listener, Net};
use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{BasicNode, OptionalSend, Snapshot};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};

use crate::config::NodeId;
use crate::convert::{self, Raft, TypeConfig, Vote};
use crate::snapshot::{MAX_SNAPSHOT_BYTES, SnapshotFile, SnapshotStore};
use crate::wire::{self, Answer, AnswerKind, Call, CallKind, GREETING, SnapshotCall};

/// The largest message, snapshot data aside.
pub const MAX_MESSAGE_BYTES: usize = 48 * 1024 * 1024;
/// Connections of other servers served at once; further ones wait.
pub const MAX_CONNECTIONS: usize = 64;

/// How long to wait before an unreachable server is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How long the rest of a message may take once it has begun.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection without a call for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// A listener that fails is asked again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Snapshots travel in pieces of this size.
const PIECE_BYTES: usize = 256 * 1024;

type CallError = RPCError<NodeId, BasicNode, RaftError<NodeId>>;

/// Makes connections to other servers.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub net: Arc<dyn Net>,
    pub snapshots: Arc<SnapshotStore>,
}

/// One other server.
pub(crate) struct Peer {
    net: Arc<dyn Net>,
    snapshots: Arc<SnapshotStore>,
    address: String,
    stream: Option<BoxStream>,
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, _target: NodeId, node: &BasicNode) -> Peer {
        Peer {
            net: Arc::clone(&self.net),
            snapshots: Arc::clone(&self.snapshots),
            address: node.addr.clone(),
            stream: None,
        }
    }
}

async fn send(stream: &mut BoxStream, message: &impl Message) -> io::Result<()> {
    let length = message.encoded_len();
    let short = u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE_BYTES).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a message of {length} bytes is larger than the {MAX_MESSAGE_BYTES} allowed"),
        )
    })?;
    let mut bytes = Vec::with_capacity(length + 4);
    bytes.extend_from_slice(&short.to_le_bytes());
    message.encode(&mut bytes).map_err(io::Error::other)?;
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// The length that a message begins with.
async fn receive_length(stream: &mut BoxStream) -> io::Result<usize> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    match usize::try_from(u32::from_le_bytes(length)) {
        Ok(length) if length <= MAX_MESSAGE_BYTES => Ok(length),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message is larger than allowed")),
    }
}

async fn receive_body<M: Message + Default>(stream: &mut BoxStream, length: usize) -> io::Result<M> {
    // Grows with what arrives, not with what was announced.
    let mut bytes = Vec::new();
    let read = stream.take(length as u64).read_to_end(&mut bytes).await?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    M::decode(bytes.as_slice()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

impl Peer {
    /// Out of the peer while in use, so that a call that is dropped half way drops the connection.
    async fn connection(&mut self) -> io::Result<BoxStream> {
        if let Some(stream) = self.stream.take() {
            return Ok(stream);
        }
        let mut stream = self.net.connect(&self.address).await?;
        stream.write_all(&GREETING).await?;
        Ok(stream)
    }

    async fn finish(&mut self, mut stream: BoxStream) -> io::Result<AnswerKind> {
        let length = receive_length(&mut stream).await?;
        let answer: Answer = receive_body(&mut stream, length).await?;
        self.stream = Some(stream);
        answer.kind.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer says nothing"))
    }

    async fn call(&mut self, kind: CallKind) -> io::Result<AnswerKind> {
        let mut stream = self.connection().await?;
        send(&mut stream, &Call { kind: Some(kind) }).await?;
        self.finish(stream).await
    }

    async fn send_snapshot(&mut self, vote: Vote, snapshot: Snapshot<TypeConfig>) -> io::Result<AnswerKind> {
        let length = snapshot.snapshot.file.len()?;
        let mut stream = self.connection().await?;
        let call = SnapshotCall {
            vote: Some(convert::vote_record(&vote)),
            head: Some(convert::snapshot_record(&snapshot.meta)),
            length,
        };
        send(&mut stream, &Call { kind: Some(CallKind::Snapshot(call)) }).await?;
        let mut at = 0;
        while at < length {
            let file = Arc::clone(&snapshot.snapshot.file);
            let want = usize::try_from(length - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let piece = herdsman_world::disk::run(&*self.snapshots.disk, move || {
                let mut piece = vec![0; want];
                file.read_exact_at(&mut piece, at)?;
                Ok(piece)
            });
            let piece = piece.await?;
            stream.write_all(&piece).await?;
            at += piece.len() as u64;
        }
        stream.flush().await?;
        self.finish(stream).await
    }

    fn unreachable(&self, error: &io::Error) -> Unreachable {
        Unreachable::new(&io::Error::new(error.kind(), format!("{}: {error}", self.address)))
    }

    fn refused(&self, text: String) -> Unreachable {
        self.unreachable(&io::Error::other(text))
    }
}

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, CallError> {
        let answer = self.call(wire::append_call(&rpc)).await;
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        Ok(wire::append_response(answer).map_err(|text| self.refused(text))?)
    }

    async fn vote(&mut self, rpc: VoteRequest<NodeId>, _option: RPCOption) -> Result<VoteResponse<NodeId>, CallError> {
        let answer = self.call(wire::vote_call(&rpc)).await;
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        Ok(wire::vote_response(answer).map_err(|text| self.refused(text))?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<TypeConfig, Fatal<NodeId>>> {
        let answer = tokio::select! {
            biased;
            closed = cancel => return Err(closed.into()),
            answer = self.send_snapshot(vote, snapshot) => answer,
        };
        match answer.map_err(|error| self.unreachable(&error))? {
            AnswerKind::Installed(vote) => Ok(SnapshotResponse::new(convert::vote(vote))),
            other => Err(self.refused(wire::unexpected(other)).into()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(RETRY_AFTER))
    }
}

/// Takes the calls of other servers.
#[derive(Clone)]
pub(crate) struct CallServer {
    pub raft: Raft,
    pub snapshots: Arc<SnapshotStore>,
}

impl CallServer {
    /// Runs until `stop`; connections end with it.
    pub async fn run(self, listener: Box<dyn Listener>, stop: watch::Receiver<bool>) {
        let mut connections = tokio::task::JoinSet::new();
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut stopped = stop.clone();
        loop {
            while connections.try_join_next().is_some() {}
            let taken = tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => break,
                taken = self.accept(&*listener, &places) => taken,
            };
            match taken {
                Ok((stream, place)) => {
                    let server = self.clone();
                    connections.spawn(async move {
                        if let Err(error) = server.serve(stream).await {
                            tracing::debug!(%error, "a server's connection ended");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "taking a server's connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        connections.shutdown().await;
    }

    async fn accept(
        &self,
        listener: &dyn Listener,
        places: &Arc<Semaphore>,
    ) -> io::Result<(BoxStream, tokio::sync::OwnedSemaphorePermit)> {
        let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        Ok((stream, place))
    }

    async fn serve(&self, mut stream: BoxStream) -> io::Result<()> {
        let mut greeting = [0; GREETING.len()];
        timed(MESSAGE_TIMEOUT, stream.read_exact(&mut greeting)).await?;
        if greeting != GREETING {
            let text = "this server speaks version 1 of the log protocol".to_owned();
            send(&mut stream, &Answer { kind: Some(AnswerKind::Error(text)) }).await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "another protocol or version"));
        }
        loop {
            let length = timed(IDLE_TIMEOUT, receive_length(&mut stream)).await?;
            let call: Call = timed(MESSAGE_TIMEOUT, receive_body(&mut stream, length)).await?;
            let answer = match call.kind {
                Some(CallKind::Append(call)) => match wire::append_request(call) {
                    Ok(request) => self.raft.append_entries(request).await.map(wire::append_answer).map_err(text),
                    Err(bad) => Err(bad.to_string()),
                },
                Some(CallKind::Vote(call)) => match wire::vote_request(call) {
                    Ok(request) => self.raft.vote(request).await.map(|vote| wire::vote_answer(&vote)).map_err(text),
                    Err(bad) => Err(bad.to_string()),
                },
                Some(CallKind::Snapshot(call)) => self.snapshot(&mut stream, call).await?,
                None => Err("a call of a kind this version does not know".to_owned()),
            };
            let kind = Some(answer.unwrap_or_else(AnswerKind::Error));
            timed(MESSAGE_TIMEOUT, send(&mut stream, &Answer { kind })).await?;
        }
    }

    async fn snapshot(&self, stream: &mut BoxStream, call: SnapshotCall) -> io::Result<Result<AnswerKind, String>> {
        let bad = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
        let (Some(vote), Some(head)) = (call.vote, call.head) else {
            return Err(bad("a snapshot without vote or head"));
        };
        if call.length > MAX_SNAPSHOT_BYTES {
            return Err(bad("a snapshot is larger than allowed"));
        }
        let meta = convert::snapshot_meta(head).map_err(io::Error::other)?;
        let received = match self.raft.begin_receiving_snapshot().await {
            Ok(received) => received,
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        if let Err(error) = self.receive(stream, &received, call.length).await {
            self.snapshots.discard(&received);
            return Err(error);
        }
        let snapshot = Snapshot { meta, snapshot: received };
        let installed = self.raft.install_full_snapshot(convert::vote(vote), snapshot).await;
        Ok(match installed {
            Ok(response) => Ok(AnswerKind::Installed(convert::vote_record(&response.vote))),
            Err(fatal) => Err(fatal.to_string()),
        })
    }

    async fn receive(&self, stream: &mut BoxStream, received: &SnapshotFile, length: u64) -> io::Result<()> {
        let mut at = 0;
        while at < length {
            let want = usize::try_from(length - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let mut piece = vec![0; want];
            timed(MESSAGE_TIMEOUT, stream.read_exact(&mut piece)).await?;
            let file = Arc::clone(&received.file);
            herdsman_world::disk::run(&*self.snapshots.disk, move || file.write_all_at(&piece, at)).await?;
            at += want as u64;
        }
        Ok(())
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn timed<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
