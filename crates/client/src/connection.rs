//! Connections to the agent, kept for reuse.

use crate::response::BodyStream;
use crate::{Address, ClientError, Options};
use base64::Engine;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Idle connections kept for reuse.
pub const MAX_IDLE: usize = 8;

/// How long opening a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

type Sender = SendRequest<Full<Bytes>>;

/// A stream to the agent, of either kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Idle connections to one agent.
pub(crate) struct Pool {
    address: Address,
    idle: Arc<Mutex<Vec<Sender>>>,
}

impl Pool {
    pub(crate) fn new(address: Address) -> Pool {
        Pool { address, idle: Arc::default() }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends one request. An idle connection that turns out to be closed is replaced by a new one.
    pub(crate) async fn send(
        &self,
        method: &str,
        target: &str,
        options: &Options,
        body: Option<Bytes>,
    ) -> Result<BodyStream, ClientError> {
        let body = body.unwrap_or_default();
        while let Some(mut sender) = self.take_idle() {
            if sender.ready().await.is_err() {
                continue;
            }
            let request = self.request(method, target, options, body.clone())?;
            match sender.send_request(request).await {
                Ok(response) => return Ok(self.answer(response, sender)),
                // Closed under us before anything of the request was taken: safe to send again.
                Err(error) if error.is_canceled() => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
        let mut sender = self.connect().await?;
        let request = self.request(method, target, options, body)?;
        match sender.send_request(request).await {
            Ok(response) => Ok(self.answer(response, sender)),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while let Some(sender) = idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    fn answer(&self, response: hyper::Response<hyper::body::Incoming>, sender: Sender) -> BodyStream {
        let idle = Arc::clone(&self.idle);
        let give_back = move || {
            let mut idle = idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if idle.len() < MAX_IDLE && !sender.is_closed() {
                idle.push(sender);
            }
        };
        BodyStream::new(response, self.address.to_string(), Box::new(give_back))
    }

    async fn connect(&self) -> Result<Sender, ClientError> {
        let stream = dial(&self.address).await?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(&e))?;
        // Ends when the sender is dropped or the agent closes.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }

    fn broken(&self, error: &hyper::Error) -> ClientError {
        ClientError::Broken { address: self.address.to_string(), cause: error.to_string() }
    }

    fn request(
        &self,
        method: &str,
        target: &str,
        options: &Options,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut builder = Request::builder()
            .method(method)
            .uri(target)
            .header("host", self.address.host_header())
            .header("user-agent", concat!("herdsman/", env!("CARGO_PKG_VERSION")));
        for (name, value) in auth_headers(options) {
            builder = builder.header(name, value);
        }
        if !body.is_empty() {
            builder = builder.header("content-type", "application/json");
        }
        builder
            .body(Full::new(body))
            .map_err(|e| ClientError::BadAnswer { path: target.to_string(), cause: format!("bad request: {e}") })
    }
}

/// The headers that say who asks.
pub(crate) fn auth_headers(options: &Options) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    if !options.token.is_empty() {
        headers.push(("x-nomad-token", options.token.clone()));
    }
    if !options.http_auth.is_empty() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(&options.http_auth);
        headers.push(("authorization", format!("Basic {encoded}")));
    }
    headers
}

/// Opens a stream to the agent.
pub(crate) async fn dial(address: &Address) -> Result<Box<dyn Stream>, ClientError> {
    let unreachable = |cause: String| ClientError::Unreachable { address: address.to_string(), cause };
    let dialling = async {
        match address {
            Address::Tcp { host, port } => {
                let stream = tokio::net::TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            }
            Address::Unix(path) => tokio::net::UnixStream::connect(path).await.map(|s| Box::new(s) as Box<dyn Stream>),
        }
    };
    match tokio::time::timeout(CONNECT_LIMIT, dialling).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err::<_, std::io::Error>(error).map_err(|e| unreachable(e.to_string())),
        Err(_) => Err(unreachable(format!("no answer within {} s", CONNECT_LIMIT.as_secs()))),
    }
}
