//! The one way from a request to an answer: authenticate, forward, authorise, the handler, measure.
//!
//! A handler takes a [`Call`], and only this module can make one, so none of the steps can be skipped.

use crate::answer::{Answer, Body};
use crate::api::Api;
use crate::error::HttpError;
use crate::reads::Read;
use crate::request::{Params, Request, decode};
use crate::routes::{self, Handler, Place, Route};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may pause while it sends a body.
pub const BODY_PAUSE: Duration = Duration::from_secs(30);

/// How long a client may take to send a body.
pub const BODY_LIMIT: Duration = Duration::from_secs(300);

/// The largest body of a request, bytes.
pub const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// What a route demands of whoever asks. Access control is not acted on yet (an agent configured with it refuses to
/// start), so today every caller may do everything; the handlers are written against it all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Nothing: also without a token.
    Anonymous,
    ReadJob,
    SubmitJob,
    ReadLogs,
    ReadFs,
    AllocLifecycle,
    AllocExec,
    NodeRead,
    NodeWrite,
    AgentRead,
    AgentWrite,
    OperatorRead,
    OperatorWrite,
    Management,
}

/// Proof that the caller may do what the route demands. Only the pipeline makes one.
#[derive(Debug)]
pub struct Authorized {
    capability: Capability,
}

impl Authorized {
    /// What was authorised.
    pub fn capability(&self) -> Capability {
        self.capability
    }
}

/// A request that has passed every step before its handler.
pub struct Call {
    pub api: Arc<Api>,
    pub request: Request,
    pub authorized: Authorized,
}

/// Takes a request through every step.
pub async fn handle(api: Arc<Api>, http: hyper::Request<Incoming>) -> Response<Body> {
    let start = Instant::now();
    api.metrics().request();
    let method = http.method().as_str().to_string();
    let target = http.uri().path_and_query().map(|p| p.as_str().to_string()).unwrap_or_default();
    let path = decode(http.uri().path(), false);
    let gzip = accepts_gzip(&http);
    let cross_origin = http.headers().contains_key("origin");
    let found = find(&method, &path);
    let cors = cross_origin && matches!(&found, Ok((route, _)) if route.cors);
    let outcome = match found {
        Ok((route, _)) if method == "OPTIONS" => Ok((preflight(route, &http), false)),
        Ok((route, parts)) => run(Arc::clone(&api), route, parts, path, http).await,
        Err(error) => Err(error),
    };
    let pretty = matches!(&outcome, Ok((_, true)));
    let answer = match outcome {
        Ok((answer, _)) => answer,
        Err(error) => error.into_answer(),
    };
    let took = start.elapsed();
    api.metrics().measure(answer.status, took);
    tracing::debug!(target: "http", method, path = target, status = answer.status, duration = ?took, "request complete");
    let mut response = answer.into_response(pretty, gzip);
    if cors {
        set(&mut response, "access-control-allow-origin", "*");
        set(&mut response, "access-control-allow-credentials", "true");
    }
    for (name, value) in &*api.agent().response_headers() {
        set(&mut response, name, value);
    }
    response
}

fn set(response: &mut Response<Body>, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (name.parse::<hyper::header::HeaderName>(), value.parse()) {
        response.headers_mut().insert(name, value);
    }
}

/// What a page from elsewhere may do on a route. Source: wire-notes section 2.
fn preflight(route: &Route, http: &hyper::Request<Incoming>) -> Answer {
    let header = |name: &str| http.headers().get(name).and_then(|v| v.to_str().ok());
    let answer = Answer { status: 204, ..Answer::empty() };
    match header("access-control-request-method") {
        Some(method) if route.methods.contains(&method) || method == "HEAD" => answer
            .with_header("Access-Control-Allow-Methods", method)
            .with_header("Access-Control-Allow-Headers", header("access-control-request-headers").unwrap_or("*")),
        _ => answer,
    }
}

fn accepts_gzip(http: &hyper::Request<Incoming>) -> bool {
    let header = http.headers().get("accept-encoding").and_then(|v| v.to_str().ok()).unwrap_or_default();
    header.split(',').any(|e| e.trim().split(';').next() == Some("gzip"))
}

/// The route of a request and the values at its placeholders. HEAD and OPTIONS exist only where pages from elsewhere may
/// read. Source: wire-notes section 2.
fn find(method: &str, path: &str) -> Result<(&'static Route, Vec<String>), HttpError> {
    let mut path_is_known = false;
    for route in routes::ROUTES {
        let Some(parts) = crate::route::match_path(route.path, path) else { continue };
        if route.methods.contains(&method) || (route.cors && matches!(method, "HEAD" | "OPTIONS")) {
            return Ok((route, parts));
        }
        path_is_known = true;
    }
    if path_is_known { Err(HttpError::bad_method()) } else { Err(HttpError::not_found("")) }
}

async fn run(
    api: Arc<Api>,
    route: &'static Route,
    parts: Vec<String>,
    path: String,
    mut http: hyper::Request<Incoming>,
) -> Result<(Answer, bool), HttpError> {
    let query = http.uri().query().unwrap_or_default().to_string();
    let params = Params::parse(&query)?;
    let token = token_of(&http);
    let socket = crate::socket::asked_for(&mut http);
    let target = http.uri().path_and_query().map_or_else(|| path.clone(), |p| p.as_str().to_string());
    let (head, body) = http.into_parts();
    let body = read_body(body).await?;
    let request = Request { method: head.method.as_str().to_string(), path, parts, params, query, token, body };
    let pretty = request.pretty();
    if route.place == Place::Server {
        if api.local_server().is_none() {
            let answer = crate::forward::forward(&api, &request, &target, &head.headers, socket).await?;
            return Ok((answer, false));
        }
        check_region(&api, &request)?;
    }
    let authorized = authorise(route.capability, &request)?;
    let call = Call { api, request, authorized };
    let answer = match &route.handler {
        Handler::Read(read) => blocking_read(&call, *read).await?,
        Handler::Operation(run) => run(call).await?,
        Handler::Socket(run) => match socket {
            Some(socket) => socket.accept(move |open| run(call, open))?,
            None => return Err(HttpError::internal("websocket connection not found in context")),
        },
    };
    Ok((answer, pretty))
}

/// Only this agent's own region can be reached.
fn check_region(api: &Api, request: &Request) -> Result<(), HttpError> {
    let asked = request.params.text("region");
    if asked.is_empty() || asked == api.agent().facts().region {
        return Ok(());
    }
    Err(HttpError::internal("No path to region"))
}

/// The whole body, within its limits of size and time.
async fn read_body(body: Incoming) -> Result<Bytes, HttpError> {
    let mut body = Limited::new(body, MAX_BODY_BYTES);
    let whole = async {
        let mut read = BytesMut::new();
        loop {
            match tokio::time::timeout(BODY_PAUSE, body.frame()).await {
                Ok(None) => return Ok(read.freeze()),
                // Trailers say nothing.
                Ok(Some(Ok(frame))) => read.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Ok(Some(Err(_))) => {
                    let text = format!("the body is larger than {MAX_BODY_BYTES} bytes, or broke off");
                    return Err(HttpError::new(413, text));
                }
                Err(_) => {
                    let text =
                        format!("nothing more of the body came within {} s; send it again", BODY_PAUSE.as_secs());
                    return Err(HttpError::new(408, text));
                }
            }
        }
    };
    tokio::time::timeout(BODY_LIMIT, whole).await.unwrap_or_else(|_| {
        Err(HttpError::new(408, format!("the body was not there within {} s; send it again", BODY_LIMIT.as_secs())))
    })
}

/// The token of a request: its own header wins over a bearer token. Source: wire-notes section 3.
fn token_of(http: &hyper::Request<Incoming>) -> String {
    let header = |name: &str| http.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().trim();
    let own = header("x-nomad-token");
    if !own.is_empty() {
        return own.to_string();
    }
    match header("authorization").split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            token.split_whitespace().next().unwrap_or_default().to_string()
        }
        _ => String::new(),
    }
}

/// The step where access control will decide.
fn authorise(capability: Capability, _request: &Request) -> Result<Authorized, HttpError> {
    Ok(Authorized { capability })
}

/// Reads, and reads again when something it watches changed, until the index is past the one that was given or the time
/// is over. A thing that does not exist yet is waited for too. Source: wire-notes section 4.
async fn blocking_read(call: &Call, read: Read) -> Result<Answer, HttpError> {
    let (api, request) = (&call.api, &call.request);
    let stale = request.stale()?;
    let after = request.index()?;
    let end = tokio::time::Instant::now() + request.wait()?;
    let mut seen = (read.read)(&*api.snapshot(stale).await?, request)?;
    if after > 0 && seen.index <= after {
        let mut watching = api.watch(&(read.watch)(request))?;
        loop {
            let changed = watching.prepare();
            seen = (read.read)(&*api.snapshot(stale).await?, request)?;
            if seen.index > after || tokio::time::timeout_at(end, changed).await.is_err() {
                break;
            }
        }
    }
    let answer = match seen.body {
        Ok(json) => Answer::raw_json(json),
        Err(error) => error.into_answer(),
    };
    let answer = answer.read_at(seen.index, api.knows_leader());
    Ok(match seen.next_token {
        Some(token) => answer.with_header("X-Nomad-NextToken", token),
        None => answer,
    })
}
