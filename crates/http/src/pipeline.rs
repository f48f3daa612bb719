//! The one way from a request to an answer: authenticate, forward, authorise, measure, then the handler.
//!
//! A handler takes a [`Call`], and only this module can make one, so none of the steps can be skipped.

use crate::answer::{Answer, Body};
use crate::api::Api;
use crate::error::HttpError;
use crate::reads::Read;
use crate::request::{Params, Request, decode};
use crate::routes::{self, Handler, Route};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::Response;
use std::sync::Arc;
use std::time::Instant;

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
    let method = http.method().as_str().to_string();
    let path = decode(http.uri().path(), false);
    let gzip = accepts_gzip(&http);
    let head = method == "HEAD";
    let looked_up = if head { "GET" } else { method.as_str() };
    let outcome = match find(looked_up, &path) {
        Ok((route, parts)) => run(Arc::clone(&api), route, parts, path.clone(), http).await,
        Err(error) => Err(error),
    };
    let pretty = matches!(&outcome, Ok((_, true)));
    let answer = match outcome {
        Ok((answer, _)) => answer,
        Err(error) => error.into_answer(),
    };
    api.measure(answer.status, start.elapsed());
    tracing::debug!(target: "http", method, path, status = answer.status, "request complete");
    let mut response = answer.into_response(pretty, gzip);
    for (name, value) in api.response_headers() {
        if let (Ok(name), Ok(value)) = (name.parse::<hyper::header::HeaderName>(), value.parse()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn accepts_gzip(http: &hyper::Request<Incoming>) -> bool {
    let header = http.headers().get("accept-encoding").and_then(|v| v.to_str().ok()).unwrap_or_default();
    header.split(',').any(|e| e.trim().split(';').next() == Some("gzip"))
}

/// The route of a request and the values at its placeholders.
fn find(method: &str, path: &str) -> Result<(&'static Route, Vec<String>), HttpError> {
    let mut path_is_known = false;
    for route in routes::ROUTES {
        let Some(parts) = crate::route::match_path(route.path, path) else { continue };
        // POST stands for PUT everywhere. Source: `compat/http-api.tsv`.
        let fits = route.methods.contains(&method) || (method == "POST" && route.methods.contains(&"PUT"));
        if fits {
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
    let params = Params::parse(http.uri().query().unwrap_or_default())?;
    let token = token_of(&http);
    let upgrade = if http.headers().contains_key("upgrade") { Some(hyper::upgrade::on(&mut http)) } else { None };
    let websocket_key = http.headers().get("sec-websocket-key").cloned();
    let method = http.method().as_str().to_string();
    let target = http.uri().path_and_query().map_or_else(|| path.clone(), |p| p.as_str().to_string());
    let body = read_body(http.into_body()).await?;
    let request = Request { method, path, parts, params, token, body };
    let pretty = request.pretty();
    if let Some(elsewhere) = api.forward(route, &request, &target).await? {
        return Ok((elsewhere, pretty));
    }
    let authorized = authorise(route.capability, &request)?;
    let call = Call { api, request, authorized };
    let answer = match &route.handler {
        Handler::Read(read) => blocking_read(&call, *read).await?,
        Handler::Operation(run) => run(call).await?,
        Handler::Socket(run) => match (upgrade, websocket_key) {
            (Some(upgrade), Some(key)) => run(call, crate::socket::Upgrade::new(upgrade, &key)).await?,
            _ => return Err(HttpError::bad_request("this route is a websocket: the request must ask for the upgrade")),
        },
    };
    Ok((answer, pretty))
}

async fn read_body(body: Incoming) -> Result<Bytes, HttpError> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(_) => Err(HttpError::new(413, format!("the body is larger than {MAX_BODY_BYTES} bytes, or broke off"))),
    }
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
    let after = call.request.index()?;
    let end = tokio::time::Instant::now() + call.request.wait()?;
    let mut seen = (read.read)(&call.api.snapshot().await?, &call.request)?;
    while after > 0 && seen.index <= after {
        let left = end.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() {
            break;
        }
        let changed = call.api.wait((read.watch)(&call.request), after, left).await;
        seen = (read.read)(&call.api.snapshot().await?, &call.request)?;
        if !changed {
            break;
        }
    }
    let answer = match seen.body {
        Ok(json) => Answer::raw_json(json),
        Err(error) => error.into_answer(),
    };
    let answer = answer.read_at(seen.index);
    Ok(match seen.next_token {
        Some(token) => answer.with_header("X-Nomad-NextToken", token),
        None => answer,
    })
}
