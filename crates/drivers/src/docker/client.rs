//! The calls to the container engine: HTTP over its socket.
//!
//! One connection per call; the version of the API is agreed on with the
//! engine once.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// The newest API version whose calls are used here.
const NEWEST_API: (u32, u32) = (1, 47);
/// The oldest API version whose calls are enough.
const OLDEST_API: (u32, u32) = (1, 40);
/// How long the engine may take to take a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long the engine may take to begin an answer, where it need not wait for
/// anything.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(60);
/// How large an answer that is read whole may be.
const MAX_ANSWER: usize = 32 << 20;
/// How much of a file is sent at once.
const FILE_CHUNK: usize = 64 << 10;

/// A call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineError {
    /// Nobody answers.
    Unreachable(String),
    /// No answer in time.
    TimedOut(String),
    /// The engine says no.
    Refused { status: u16, message: String },
    /// The answer makes no sense.
    Protocol(String),
}

impl EngineError {
    pub fn not_found(&self) -> bool {
        matches!(self, EngineError::Refused { status: 404, .. })
    }
    pub fn conflict(&self) -> bool {
        matches!(self, EngineError::Refused { status: 409, .. })
    }
    /// True if the same call may succeed later.
    pub fn passing(&self) -> bool {
        !matches!(self, EngineError::Refused { status, .. } if *status < 500)
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Unreachable(why) => write!(f, "Cannot connect to the Docker daemon: {why}"),
            EngineError::TimedOut(what) => write!(f, "the container engine did not answer in time: {what}"),
            // As the engine's own client puts it; people search for this text.
            EngineError::Refused { message, .. } => write!(f, "Error response from daemon: {message}"),
            EngineError::Protocol(why) => write!(f, "the container engine's answer cannot be read: {why}"),
        }
    }
}

impl std::error::Error for EngineError {}

/// Where the engine listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Unix(PathBuf),
    Tcp(String),
}

impl Endpoint {
    /// Reads `unix:///path`, `tcp://host:port` or `http://host:port`.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        if let Some(path) = text.strip_prefix("unix://").filter(|p| p.starts_with('/')) {
            return Ok(Endpoint::Unix(PathBuf::from(path)));
        }
        let rest = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://"));
        match rest.map(|r| r.trim_end_matches('/')).filter(|r| r.contains(':') && !r.contains('/')) {
            Some(address) => Ok(Endpoint::Tcp(address.to_owned())),
            None => Err(format!("endpoint {text:?}: expected unix:///path/of/socket or tcp://host:port")),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix://{}", path.display()),
            Endpoint::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// A connection.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

type Body = BoxBody<Bytes, std::io::Error>;

/// A file as the body of a request.
struct FileBody {
    file: tokio::fs::File,
    buf: Box<[u8]>,
}

impl hyper::body::Body for FileBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let FileBody { file, buf } = self.get_mut();
        let mut read = ReadBuf::new(buf);
        match Pin::new(file).poll_read(cx, &mut read) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(e)) => Poll::Ready(Some(Err(e))),
            Poll::Ready(Ok(())) if read.filled().is_empty() => Poll::Ready(None),
            Poll::Ready(Ok(())) => Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(read.filled()))))),
        }
    }
}

/// An answer whose body is still to be read.
pub(crate) struct Reply {
    body: Incoming,
    // The connection lives as long as this.
    _sender: SendRequest<Body>,
}

impl Reply {
    /// The next piece of the body, `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, EngineError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(e)) => return Err(EngineError::Unreachable(format!("the connection broke: {e}"))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The next piece of the body if it is here already.
    pub async fn ready_chunk(&mut self) -> Result<Option<Bytes>, EngineError> {
        let mut next = std::pin::pin!(self.chunk());
        std::future::poll_fn(|cx| match next.as_mut().poll(cx) {
            Poll::Ready(chunk) => Poll::Ready(chunk),
            // Asking again later loses nothing: the body keeps its place.
            Poll::Pending => Poll::Ready(Ok(None)),
        })
        .await
    }

    async fn whole(self) -> Result<Bytes, EngineError> {
        let collected = Limited::new(self.body, MAX_ANSWER).collect().await;
        Ok(collected.map_err(|e| EngineError::Protocol(e.to_string()))?.to_bytes())
    }
}

/// What to ask.
struct Ask<'a> {
    method: Method,
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: Body,
    upgrade: bool,
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// The engine.
#[derive(Debug)]
pub(crate) struct Engine {
    endpoint: Endpoint,
    /// Agreed version, once known.
    version: Mutex<Option<(u32, u32)>>,
}

impl Engine {
    pub fn new(endpoint: Endpoint) -> Engine {
        Engine { endpoint, version: Mutex::new(None) }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    async fn connect(&self) -> Result<Box<dyn Wire>, EngineError> {
        let connecting = async {
            Ok::<Box<dyn Wire>, std::io::Error>(match &self.endpoint {
                Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await?),
                Endpoint::Tcp(address) => Box::new(TcpStream::connect(address).await?),
            })
        };
        let unreachable = |why: &dyn fmt::Display| EngineError::Unreachable(format!("{}: {why}", self.endpoint));
        match tokio::time::timeout(CONNECT_LIMIT, connecting).await {
            Err(_) => Err(unreachable(&"no connection in time")),
            Ok(Err(e)) => Err(unreachable(&e)),
            Ok(Ok(wire)) => Ok(wire),
        }
    }

    async fn send(&self, ask: Ask<'_>) -> Result<(Response<Incoming>, SendRequest<Body>), EngineError> {
        let wire = TokioIo::new(self.connect().await?);
        let broke = |e: hyper::Error| EngineError::Unreachable(format!("{}: {e}", self.endpoint));
        let (mut sender, connection) = http1::handshake::<_, Body>(wire).await.map_err(broke)?;
        // Ends with the connection, which ends with the reply.
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder().method(ask.method).uri(ask.path).header("Host", "docker");
        for (name, value) in ask.headers {
            request = request.header(*name, *value);
        }
        if ask.upgrade {
            request = request.header("Connection", "Upgrade").header("Upgrade", "tcp");
        }
        let request = request.body(ask.body).map_err(|e| EngineError::Protocol(format!("{}: {e}", ask.path)))?;
        let response = sender.send_request(request).await.map_err(broke)?;
        Ok((response, sender))
    }

    /// Sends and reads the refusal, if it is one.
    async fn ask(&self, ask: Ask<'_>) -> Result<Reply, EngineError> {
        let (response, sender) = self.send(ask).await?;
        let status = response.status();
        let reply = Reply { body: response.into_body(), _sender: sender };
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(reply);
        }
        let text = reply.whole().await.unwrap_or_default();
        Err(refusal(status, &text))
    }

    /// The path with the version agreed on.
    async fn versioned(&self, path: &str) -> Result<String, EngineError> {
        let (major, minor) = self.api_version().await?;
        Ok(format!("/v{major}.{minor}{path}"))
    }

    /// The version agreed on with the engine.
    pub async fn api_version(&self) -> Result<(u32, u32), EngineError> {
        let known = *self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(version) = known {
            return Ok(version);
        }
        let ask = Ask { method: Method::GET, path: "/_ping", headers: &[], body: full(""), upgrade: false };
        let (response, _sender) = limited(CALL_LIMIT, "ping", self.send(ask)).await?;
        let header = response.headers().get("Api-Version").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let theirs = header.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let theirs: (u32, u32) = theirs.ok_or_else(|| EngineError::Protocol("it tells no API version".to_owned()))?;
        if theirs < OLDEST_API {
            let (major, minor) = OLDEST_API;
            return Err(EngineError::Protocol(format!(
                "its API version {header} is too old, {major}.{minor} is needed; install a newer engine"
            )));
        }
        let version = theirs.min(NEWEST_API);
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version);
        Ok(version)
    }

    /// The engine may have been exchanged for another version.
    pub fn forget_version(&self) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Asks without a limit of time.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Reply, EngineError> {
        let path = self.versioned(path).await?;
        let mut headers = headers.to_vec();
        if body.is_some() {
            headers.push(("Content-Type", "application/json"));
        }
        let body = full(body.map(Value::to_string).unwrap_or_default());
        self.ask(Ask { method, path: &path, headers: &headers, body, upgrade: false }).await
    }

    /// Asks and reads the whole answer; no body reads as null.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, EngineError> {
        self.call_within(CALL_LIMIT, method, path, body).await
    }

    pub async fn call_within(
        &self,
        limit: Duration,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, EngineError> {
        let whole = async { self.open(method, path, &[], body).await?.whole().await };
        parse(&limited(limit, path, whole).await?)
    }

    pub async fn get(&self, path: &str) -> Result<Value, EngineError> {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, EngineError> {
        self.call(Method::POST, path, body).await
    }

    pub async fn delete(&self, path: &str) -> Result<Value, EngineError> {
        self.call(Method::DELETE, path, None).await
    }

    /// Sends a file.
    pub async fn send_file(&self, path: &str, file: std::fs::File) -> Result<Reply, EngineError> {
        let path = self.versioned(path).await?;
        let buf = vec![0; FILE_CHUNK].into_boxed_slice();
        let body = FileBody { file: tokio::fs::File::from_std(file), buf }.boxed();
        let headers = [("Content-Type", "application/x-tar")];
        self.ask(Ask { method: Method::POST, path: &path, headers: &headers, body, upgrade: false }).await
    }

    /// Asks for a connection that carries bytes both ways.
    pub async fn upgrade(&self, path: &str, body: &Value) -> Result<TokioIo<hyper::upgrade::Upgraded>, EngineError> {
        let path = self.versioned(path).await?;
        let headers = [("Content-Type", "application/json")];
        let body = full(body.to_string());
        let ask = Ask { method: Method::POST, path: &path, headers: &headers, body, upgrade: true };
        let (response, sender) = limited(CALL_LIMIT, &path, self.send(ask)).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let status = response.status();
            let reply = Reply { body: response.into_body(), _sender: sender };
            return Err(refusal(status, &reply.whole().await.unwrap_or_default()));
        }
        let upgraded = hyper::upgrade::on(response).await;
        Ok(TokioIo::new(upgraded.map_err(|e| EngineError::Unreachable(e.to_string()))?))
    }
}

async fn limited<T>(
    limit: Duration,
    what: &str,
    call: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(EngineError::TimedOut(what.to_owned())))
}

fn refusal(status: StatusCode, text: &[u8]) -> EngineError {
    let message = serde_json::from_slice::<Value>(text).ok().and_then(|v| Some(v.get("message")?.as_str()?.to_owned()));
    let message = message.unwrap_or_else(|| format!("{status} {}", String::from_utf8_lossy(text).trim()));
    EngineError::Refused { status: status.as_u16(), message }
}

fn parse(text: &[u8]) -> Result<Value, EngineError> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(text).map_err(|e| EngineError::Protocol(e.to_string()))
}

/// A value for a query, escaped.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Takes apart what the engine sends for two streams in one: frames of a
/// stream's number, a length and bytes.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buf: Vec<u8>,
}

/// No frame is larger.
const MAX_FRAME: usize = 64 << 20;
const FRAME_HEAD: usize = 8;

impl Frames {
    /// Adds bytes and returns the frames that are whole now.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<(u8, Vec<u8>)>, EngineError> {
        self.buf.extend_from_slice(bytes);
        let mut out = Vec::new();
        let mut rest = &self.buf[..];
        while let Some((head, after)) = rest.split_first_chunk::<FRAME_HEAD>() {
            let [stream, _, _, _, length @ ..] = *head;
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            if length > MAX_FRAME {
                return Err(EngineError::Protocol(format!("a frame of {length} bytes")));
            }
            let Some((body, after)) = after.split_at_checked(length) else { break };
            out.push((stream, body.to_vec()));
            rest = after;
        }
        let used = self.buf.len() - rest.len();
        self.buf.drain(..used);
        Ok(out)
    }
}

/// Takes apart lines of JSON.
#[derive(Debug, Default)]
pub(crate) struct JsonLines {
    buf: Vec<u8>,
}

impl JsonLines {
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Value>, EngineError> {
        self.buf.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(at) = self.buf.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.buf.drain(..=at).collect();
            let value = parse(&line)?;
            if !value.is_null() {
                out.push(value);
            }
        }
        if self.buf.len() > MAX_ANSWER {
            return Err(EngineError::Protocol("a line that does not end".to_owned()));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_endpoints() {
        assert_eq!(Endpoint::parse("unix:///run/d.sock"), Ok(Endpoint::Unix(PathBuf::from("/run/d.sock"))));
        assert_eq!(Endpoint::parse("tcp://127.0.0.1:2375"), Ok(Endpoint::Tcp("127.0.0.1:2375".to_owned())));
        for bad in ["", "unix://x", "npipe:////./pipe/docker", "tcp://host", "ssh://a:1/b"] {
            assert!(Endpoint::parse(bad).is_err_and(|e| e.contains("unix:///")), "{bad}");
        }
    }

    #[test]
    fn frames_come_out_whole_however_they_are_cut() {
        let bytes = [&[1, 0, 0, 0, 0, 0, 0, 3][..], b"abc", &[2, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 1], b"d"]
            .concat();
        for step in 1..bytes.len() {
            let mut frames = Frames::default();
            let mut out = Vec::new();
            for piece in bytes.chunks(step) {
                out.extend(frames.feed(piece).unwrap());
            }
            assert_eq!(out, [(1, b"abc".to_vec()), (2, Vec::new()), (1, b"d".to_vec())], "cut every {step}");
        }
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escape("a/b:c d&é"), "a%2Fb%3Ac%20d%26%C3%A9");
    }
}
