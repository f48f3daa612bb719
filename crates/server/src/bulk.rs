//! Bulk channels: one connection per request that a server makes of a node.

use crate::error::ServerError;
use crate::nodes::{OPENING_TIMEOUT, codec};
use crate::server::Server;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use herdsman_proto::{BulkEnd, BulkError, BulkFrame, BulkHello, BulkMessage, NodeRequest};
use herdsman_world::BoxStream;
use prost::Message;
use tokio::io::{ReadHalf, WriteHalf};
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

/// An open bulk channel: what the node answers comes out, what exec is fed goes in.
#[derive(Debug)]
pub struct BulkStream {
    sender: BulkSender,
    receiver: BulkReceiver,
}

/// The way to the node.
#[derive(Debug)]
pub struct BulkSender {
    writer: FramedWrite<WriteHalf<BoxStream>, LengthDelimitedCodec>,
}

/// The way from the node.
#[derive(Debug)]
pub struct BulkReceiver {
    reader: FramedRead<ReadHalf<BoxStream>, LengthDelimitedCodec>,
    ended: bool,
}

fn broken(error: impl std::fmt::Display) -> ServerError {
    ServerError::refused(format!("connection to node: {error}"))
}

impl BulkStream {
    pub(crate) async fn ask(&mut self, request: &NodeRequest) -> Result<(), ServerError> {
        let json = serde_json::to_vec(request).map_err(broken)?;
        self.sender.write(BulkMessage::Request(json)).await
    }

    /// The next part of the answer; none when it is complete.
    ///
    /// # Errors
    /// What the node refused with, or the connection broke.
    pub async fn next(&mut self) -> Option<Result<Bytes, ServerError>> {
        self.receiver.next().await
    }

    /// Sends data to the node.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, data: Vec<u8>) -> Result<(), ServerError> {
        self.sender.send(data).await
    }

    /// The two ways apart, for use by two tasks.
    pub fn split(self) -> (BulkSender, BulkReceiver) {
        (self.sender, self.receiver)
    }

    /// The whole answer, of at most `limit` bytes.
    ///
    /// # Errors
    /// What the node refused with, the connection broke, or the answer is longer.
    pub async fn collect(mut self, limit: usize) -> Result<Vec<u8>, ServerError> {
        let mut answer = Vec::new();
        while let Some(part) = self.next().await {
            let part = part?;
            if answer.len() + part.len() > limit {
                return Err(ServerError::refused(format!("node's answer is longer than {limit} bytes")));
            }
            answer.extend_from_slice(&part);
        }
        Ok(answer)
    }
}

impl BulkSender {
    async fn write(&mut self, message: BulkMessage) -> Result<(), ServerError> {
        let frame = BulkFrame { message: Some(message) };
        self.writer.send(Bytes::from(frame.encode_to_vec())).await.map_err(broken)
    }

    /// Sends data to the node.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, data: Vec<u8>) -> Result<(), ServerError> {
        self.write(BulkMessage::Data(data)).await
    }

    /// Says that no more data comes.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn end(&mut self) -> Result<(), ServerError> {
        self.write(BulkMessage::End(BulkEnd {})).await
    }
}

impl BulkReceiver {
    /// The next part of the answer; none when it is complete.
    ///
    /// # Errors
    /// What the node refused with, or the connection broke.
    pub async fn next(&mut self) -> Option<Result<Bytes, ServerError>> {
        if self.ended {
            return None;
        }
        let frame = match self.reader.next().await {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return self.end_with(broken(error)),
            // An answer that is not ended by its last frame is not complete.
            None => return self.end_with(broken("closed before the answer was complete")),
        };
        match BulkFrame::decode(frame) {
            Ok(BulkFrame { message: Some(BulkMessage::Data(data)) }) => Some(Ok(Bytes::from(data))),
            Ok(BulkFrame { message: Some(BulkMessage::End(_)) }) => {
                self.ended = true;
                None
            }
            Ok(BulkFrame { message: Some(BulkMessage::Error(BulkError { code, message })) }) => {
                let code = u16::try_from(code).ok().filter(|code| (400..600).contains(code)).unwrap_or(500);
                self.end_with(ServerError::new(code, message))
            }
            Ok(_) => self.end_with(broken("unexpected message")),
            Err(error) => self.end_with(broken(error)),
        }
    }

    fn end_with(&mut self, error: ServerError) -> Option<Result<Bytes, ServerError>> {
        self.ended = true;
        Some(Err(error))
    }
}

/// Takes a bulk channel that a node dialled and hands it to who waits for it.
pub(crate) async fn accept(server: &Server, stream: BoxStream) {
    let (reader, writer) = tokio::io::split(stream);
    let mut reader = FramedRead::new(reader, codec());
    let hello = tokio::select! {
        biased;
        hello = reader.next() => hello,
        () = server.world().clock.sleep(OPENING_TIMEOUT) => None,
    };
    let Some(Ok(frame)) = hello else { return };
    let Ok(hello) = BulkHello::decode(frame) else {
        return tracing::warn!("a bulk channel did not begin with a hello");
    };
    let writer = FramedWrite::new(writer, codec());
    let stream = BulkStream { sender: BulkSender { writer }, receiver: BulkReceiver { reader, ended: false } };
    server.inner.sessions.dialled(&hello.token, stream);
}
