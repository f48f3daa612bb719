//! One bulk channel: the request in, frames out.

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use herdsman_proto::{BulkEnd, BulkError, BulkFrame, BulkMessage, MAX_FRAME_BYTES};
use herdsman_world::BoxStream;
use prost::Message;
use std::io;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// Why a request is refused, with the HTTP status that suits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: u32,
    pub message: String,
}

impl Refusal {
    pub fn new(code: u32, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }

    /// The request is at fault.
    pub fn bad(message: impl Into<String>) -> Refusal {
        Refusal::new(400, message)
    }

    /// What was asked for is not there.
    pub fn missing(message: impl Into<String>) -> Refusal {
        Refusal::new(404, message)
    }

    /// It cannot be done.
    pub fn failed(message: impl Into<String>) -> Refusal {
        Refusal::new(500, message)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        match error.kind() {
            io::ErrorKind::NotFound => Refusal::missing(error.to_string()),
            _ => Refusal::failed(error.to_string()),
        }
    }
}

/// Length-prefixed frames, as sessions and bulk channels carry them.
pub fn framed(stream: BoxStream) -> Framed<BoxStream, LengthDelimitedCodec> {
    let codec = LengthDelimitedCodec::builder().length_field_length(4).max_frame_length(MAX_FRAME_BYTES).new_codec();
    Framed::new(stream, codec)
}

/// A bulk channel, from the node's side.
pub struct Channel {
    framed: Framed<BoxStream, LengthDelimitedCodec>,
}

impl Channel {
    pub fn new(framed: Framed<BoxStream, LengthDelimitedCodec>) -> Channel {
        Channel { framed }
    }

    /// Sends a part of the answer.
    pub async fn data(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.send(BulkMessage::Data(bytes)).await
    }

    /// Sends a part of the answer as JSON. All answers are plain structures, which always have a JSON form.
    pub async fn json<T: serde::Serialize>(&mut self, value: &T) -> io::Result<()> {
        self.data(serde_json::to_vec(value).map_err(io::Error::other)?).await
    }

    /// Ends the answer.
    pub async fn end(&mut self, result: Result<(), Refusal>) -> io::Result<()> {
        self.send(match result {
            Ok(()) => BulkMessage::End(BulkEnd {}),
            Err(Refusal { code, message }) => BulkMessage::Error(BulkError { code, message }),
        })
        .await?;
        SinkExt::<Bytes>::close(&mut self.framed).await
    }

    /// The next message from the server; none once it has closed its side.
    pub async fn next(&mut self) -> io::Result<Option<BulkMessage>> {
        match self.framed.next().await.transpose()? {
            None => Ok(None),
            Some(bytes) => Ok(BulkFrame::decode(bytes).map_err(io::Error::other)?.message),
        }
    }

    async fn send(&mut self, message: BulkMessage) -> io::Result<()> {
        let frame = BulkFrame { message: Some(message) };
        self.framed.send(Bytes::from(frame.encode_to_vec())).await
    }
}
