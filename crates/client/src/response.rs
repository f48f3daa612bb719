//! Answers: their headers, and their bodies as they arrive.

use crate::{ClientError, MAX_BODY_BYTES};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// What the headers of an answer say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Index of the state the answer was made from; 0 when the route has none.
    pub index: u64,
    /// Where the next page begins; empty: there is none.
    pub next_token: String,
    pub content_type: String,
}

impl Meta {
    pub(crate) fn read(headers: &hyper::HeaderMap) -> Meta {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_string();
        Meta {
            index: text("x-nomad-index").parse().unwrap_or(0),
            next_token: text("x-nomad-nexttoken"),
            content_type: text("content-type"),
        }
    }
}

/// What is done with a connection once its answer has been read to the end.
pub(crate) type GiveBack = Box<dyn FnOnce() + Send>;

/// An answer whose body is read as it arrives.
pub struct BodyStream {
    status: u16,
    meta: Meta,
    body: Incoming,
    address: String,
    give_back: Option<GiveBack>,
}

impl BodyStream {
    pub(crate) fn new(response: hyper::Response<Incoming>, address: String, give_back: GiveBack) -> BodyStream {
        BodyStream {
            status: response.status().as_u16(),
            meta: Meta::read(response.headers()),
            body: response.into_body(),
            address,
            give_back: Some(give_back),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// What the headers say.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The next piece of the body; none at its end.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                None => {
                    if let Some(give_back) = self.give_back.take() {
                        give_back();
                    }
                    return Ok(None);
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    return Err(ClientError::Broken { address: self.address.clone(), cause: error.to_string() });
                }
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// The connection broke, or the body is too large.
    pub async fn collect(mut self, path: &str) -> Result<Bytes, ClientError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if all.len() + piece.len() > MAX_BODY_BYTES {
                return Err(ClientError::TooLarge { path: path.to_string() });
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }
}
