//! Answers: status, headers, and a body that is JSON, bytes or a stream.

use crate::error::HttpError;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use futures::stream::BoxStream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::Response;
use hyper::body::Frame;
use serde::Serialize;
use std::io::Write;

/// A body smaller than this is not worth compressing, bytes.
const COMPRESS_FROM: usize = 1024;

/// A stream ended before its end. The connection is closed without the body's end, so that nobody takes it for whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stream broke off: {0}")]
pub struct BrokenOff(pub String);

/// The body type of every answer.
pub type Body = UnsyncBoxBody<Bytes, BrokenOff>;

/// Pieces of a body as they come.
pub type Pieces = BoxStream<'static, Result<Bytes, BrokenOff>>;

/// What goes into the body.
pub enum Content {
    Empty,
    /// Compact JSON; indented on the way out if people read it.
    Json(Vec<u8>),
    Bytes(Bytes),
    /// Pieces as they come; never compressed.
    Stream(Pieces),
}

/// An answer before it is written.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub content: Content,
}

impl Answer {
    /// JSON with status 200.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Answer, HttpError> {
        let body = serde_json::to_vec(value).map_err(|e| HttpError::internal(format!("encoding the answer: {e}")))?;
        Ok(Answer {
            status: 200,
            headers: vec![("Content-Type", "application/json".to_string())],
            content: Content::Json(body),
        })
    }

    /// JSON that is already written, with status 200.
    pub fn raw_json(json: Vec<u8>) -> Answer {
        Answer {
            status: 200,
            headers: vec![("Content-Type", "application/json".to_string())],
            content: Content::Json(json),
        }
    }

    /// Status 200 without a body.
    pub fn empty() -> Answer {
        Answer { status: 200, headers: Vec::new(), content: Content::Empty }
    }

    /// Plain text.
    pub fn text(status: u16, text: impl Into<String>) -> Answer {
        Answer {
            status,
            headers: vec![("Content-Type", "text/plain; charset=utf-8".to_string())],
            content: Content::Bytes(Bytes::from(text.into())),
        }
    }

    /// A stream of bytes of this content type.
    pub fn stream(content_type: &str, pieces: Pieces) -> Answer {
        Answer {
            status: 200,
            headers: vec![("Content-Type", content_type.to_string())],
            content: Content::Stream(pieces),
        }
    }

    /// Adds the headers of a read made from the state at this index.
    #[must_use]
    pub fn read_at(mut self, index: u64, knows_leader: bool) -> Answer {
        self.headers.push(("X-Nomad-Index", index.to_string()));
        self.headers.push(("X-Nomad-KnownLeader", knows_leader.to_string()));
        self.headers.push(("X-Nomad-LastContact", "0".to_string()));
        self
    }

    /// Adds the header of a write that made this index.
    #[must_use]
    pub fn written_at(mut self, index: u64) -> Answer {
        self.headers.push(("X-Nomad-Index", index.to_string()));
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    /// Puts this content type in the place of the one there is.
    #[must_use]
    pub fn with_content_type(mut self, content_type: &str) -> Answer {
        self.headers.retain(|(name, _)| *name != "Content-Type");
        self.with_header("Content-Type", content_type)
    }

    /// Writes the answer as HTTP.
    pub fn into_response(self, pretty: bool, gzip: bool) -> Response<Body> {
        let mut builder = Response::builder().status(self.status).header("Vary", "Accept-Encoding");
        for (name, value) in &self.headers {
            builder = builder.header(*name, value);
        }
        let bytes = match self.content {
            Content::Stream(pieces) => {
                let body = StreamBody::new(pieces.map(|piece| piece.map(Frame::data)));
                return finish(builder, BodyExt::boxed_unsync(body));
            }
            Content::Empty => Bytes::new(),
            Content::Bytes(bytes) => bytes,
            Content::Json(json) if pretty => Bytes::from(indent(&json)),
            Content::Json(json) => Bytes::from(json),
        };
        if gzip && bytes.len() >= COMPRESS_FROM {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            // Writing to memory cannot fail; if it did, the plain body goes out.
            if encoder.write_all(&bytes).is_ok()
                && let Ok(packed) = encoder.finish()
            {
                return finish(builder.header("Content-Encoding", "gzip"), full(Bytes::from(packed)));
            }
        }
        finish(builder, full(bytes))
    }
}

fn full(bytes: Bytes) -> Body {
    BodyExt::boxed_unsync(Full::new(bytes).map_err(|never| match never {}))
}

/// A header that cannot be written becomes an error, not a panic.
fn finish(builder: hyper::http::response::Builder, body: Body) -> Response<Body> {
    builder.body(body).unwrap_or_else(|error| {
        let mut response = Response::new(full(Bytes::from(format!("the answer has a bad header: {error}"))));
        *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// Indents JSON by four spaces and ends it with a newline. Source: wire-notes section 4.
fn indent(json: &[u8]) -> Vec<u8> {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(json) else { return json.to_vec() };
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    if value.serialize(&mut serializer).is_err() {
        return json.to_vec();
    }
    out.push(b'\n');
    out
}
