//! A typed client of the HTTP API, used by the command line, the tests and the load generator.
//!
//! It owns one background task per open connection; connections are kept for reuse (at most [`MAX_IDLE`]).
//!
//! Architecture invariant: it knows the wire (paths, parameters, headers, bodies) and nothing of servers or nodes.

mod address;
mod connection;
mod exec;
mod query;
mod response;

pub use address::{Address, BadAddress};
pub use connection::MAX_IDLE;
pub use exec::{ExecFrame, ExecSession, ExecStream};
pub use query::{Query, encode_segment};
pub use response::{BodyStream, Meta};

use bytes::Bytes;
use connection::Pool;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The address that is used when none is given. Source: `compat/wire-notes.md` section 12.
pub const DEFAULT_ADDRESS: &str = "http://127.0.0.1:4646";

/// The largest answer that is read into memory as a whole, bytes.
pub const MAX_BODY_BYTES: usize = 256 * 1024 * 1024;

/// Why a request got no useful answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot reach {address}: {cause}; is an agent running there? (-address or NOMAD_ADDR names another one)")]
    Unreachable { address: String, cause: String },
    #[error("the connection to {address} broke: {cause}")]
    Broken { address: String, cause: String },
    #[error("Unexpected response code: {code} ({message})")]
    Refused { code: u16, message: String },
    #[error("the answer of {path} is not what was expected: {cause}")]
    BadAnswer { path: String, cause: String },
    #[error("the answer of {path} is larger than {MAX_BODY_BYTES} bytes")]
    TooLarge { path: String },
    #[error(transparent)]
    BadAddress(#[from] BadAddress),
}

impl ClientError {
    /// The HTTP status of a refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            ClientError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The server's own words of a refusal.
    pub fn message(&self) -> Option<&str> {
        match self {
            ClientError::Refused { message, .. } => Some(message),
            _ => None,
        }
    }
}

/// What every request of a client carries.
#[derive(Clone, Default)]
pub struct Options {
    /// Empty: the agent's own.
    pub region: String,
    /// Empty: `default`.
    pub namespace: String,
    /// Empty: none.
    pub token: String,
    /// `user:password` for a proxy in front of the agent; empty: none.
    pub http_auth: String,
}

/// A client of one agent. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pool: Arc<Pool>,
    options: Options,
}

impl Client {
    /// A client of the agent at an address such as `http://127.0.0.1:4646` or `unix:///run/agent.sock`.
    ///
    /// # Errors
    /// The address cannot be understood.
    pub fn new(address: &str, options: Options) -> Result<Client, ClientError> {
        Ok(Client { pool: Arc::new(Pool::new(address.parse()?)), options })
    }

    /// The address of the agent.
    pub fn address(&self) -> &Address {
        self.pool.address()
    }

    /// What every request carries.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The same connection pool with other options.
    pub fn with_options(&self, options: Options) -> Client {
        Client { pool: Arc::clone(&self.pool), options }
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// The agent cannot be reached, refuses, or answers something else.
    pub async fn get<T: DeserializeOwned>(&self, path: &str, query: &Query) -> Result<(T, Meta), ClientError> {
        self.json("GET", path, query, None).await
    }

    /// Sends JSON and reads JSON.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn put<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
        body: &B,
    ) -> Result<(T, Meta), ClientError> {
        let body = serde_json::to_vec(body)
            .map_err(|e| ClientError::BadAnswer { path: path.to_string(), cause: e.to_string() })?;
        self.json("PUT", path, query, Some(body.into())).await
    }

    /// Deletes, and reads JSON.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str, query: &Query) -> Result<(T, Meta), ClientError> {
        self.json("DELETE", path, query, None).await
    }

    /// Sends a request of any method with a raw body; the answer's bytes as they came. A refusal is an error.
    ///
    /// # Errors
    /// The agent cannot be reached or refuses.
    pub async fn raw(
        &self,
        method: &str,
        path: &str,
        query: &Query,
        body: Option<Bytes>,
    ) -> Result<(Bytes, Meta), ClientError> {
        let stream = self.stream(method, path, query, body).await?;
        let meta = stream.meta().clone();
        Ok((stream.collect(path).await?, meta))
    }

    /// Sends a request and hands out the answer's body as it arrives.
    ///
    /// # Errors
    /// The agent cannot be reached or refuses.
    pub async fn stream(
        &self,
        method: &str,
        path: &str,
        query: &Query,
        body: Option<Bytes>,
    ) -> Result<BodyStream, ClientError> {
        let target = query.target(path, &self.options);
        let stream = self.pool.send(method, &target, &self.options, body).await?;
        if stream.status() < 400 {
            return Ok(stream);
        }
        let code = stream.status();
        let text = stream.collect(path).await.unwrap_or_default();
        Err(ClientError::Refused { code, message: String::from_utf8_lossy(&text).trim().to_string() })
    }

    /// Opens an exec session (`/v1/client/allocation/<id>/exec`, `/v1/job/<id>/action`).
    ///
    /// # Errors
    /// The agent cannot be reached or refuses the upgrade.
    pub async fn exec(&self, path: &str, query: &Query) -> Result<ExecSession, ClientError> {
        let target = query.target(path, &self.options);
        ExecSession::open(self.pool.address(), &target, &self.options).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        query: &Query,
        body: Option<Bytes>,
    ) -> Result<(T, Meta), ClientError> {
        let (bytes, meta) = self.raw(method, path, query, body).await?;
        // Void writes answer with an empty body.
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        let value = serde_json::from_slice(text)
            .map_err(|e| ClientError::BadAnswer { path: path.to_string(), cause: e.to_string() })?;
        Ok((value, meta))
    }
}
