//! Forwarding: an agent without a server sends requests that need one over a connection to a server's RPC port, and
//! gives the answer back as it comes.

use crate::answer::{Answer, BrokenOff, Content};
use crate::api::Api;
use crate::error::HttpError;
use crate::request::Request;
use crate::socket::{self, Upgrade};
use futures::StreamExt;
use herdsman_proto::{MAGIC, Purpose};
use http_body_util::{BodyDataStream, Full};
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// How long reaching one server may take. Source: `rpc.dial_timeout`.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// Headers of a request that are sent on.
const REQUEST_HEADERS: [&str; 10] = [
    "x-nomad-token",
    "authorization",
    "content-type",
    "accept",
    "x-nomad-csi-secrets",
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
];

/// Headers of an answer that are given back, besides its status.
const ANSWER_HEADERS: [&str; 10] = [
    "Content-Type",
    "X-Nomad-Index",
    "X-Nomad-LastContact",
    "X-Nomad-KnownLeader",
    "X-Nomad-NextToken",
    "Cache-Control",
    "Digest",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "X-XSS-Protection",
];

/// Sends a request to the first server that can be reached.
///
/// # Errors
/// No server can be reached, or the one that was broke the connection off.
pub async fn forward(
    api: &Api,
    request: &Request,
    target: &str,
    headers: &HeaderMap,
    socket: Option<Upgrade>,
) -> Result<Answer, HttpError> {
    let servers = api.agent().servers();
    let mut failed = Vec::new();
    for server in &servers {
        let reached = tokio::time::timeout(DIAL_LIMIT, dial(api, server)).await;
        match reached {
            Ok(Ok(stream)) => return exchange(stream, request, target, headers, socket).await,
            Ok(Err(error)) => failed.push(format!("{server}: {error}")),
            Err(_) => failed.push(format!("{server}: no answer within {DIAL_LIMIT:?}")),
        }
    }
    if failed.is_empty() {
        return Err(HttpError::internal("No known servers: set client.servers or server_join in the configuration"));
    }
    Err(HttpError::internal(format!("no server can be reached: {}", failed.join("; "))))
}

async fn dial(api: &Api, server: &str) -> std::io::Result<herdsman_world::BoxStream> {
    let mut stream = api.world().net.connect(server).await?;
    let [a, b, c, d] = MAGIC;
    stream.write_all(&[a, b, c, d, Purpose::Forward as u8]).await?;
    stream.flush().await?;
    Ok(stream)
}

async fn exchange(
    stream: herdsman_world::BoxStream,
    request: &Request,
    target: &str,
    headers: &HeaderMap,
    socket: Option<Upgrade>,
) -> Result<Answer, HttpError> {
    let broke = |error: hyper::Error| HttpError::internal(format!("rpc error: the server broke off: {error}"));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(target: "http", %error, "a forwarded connection broke off");
        }
    });
    let mut builder = hyper::Request::builder().method(request.method.as_str()).uri(target).header("Host", "server");
    for name in REQUEST_HEADERS {
        // Headers of the connection go on only where the connection itself becomes a websocket.
        let of_connection = matches!(name, "upgrade" | "connection");
        if let Some(value) = headers.get(name).filter(|_| !of_connection || socket.is_some()) {
            builder = builder.header(name, value);
        }
    }
    let outgoing = builder
        .body(Full::new(request.body.clone()))
        .map_err(|error| HttpError::bad_request(format!("the request cannot be forwarded: {error}")))?;
    let mut response = sender.send_request(outgoing).await.map_err(broke)?;
    if response.status() == hyper::StatusCode::SWITCHING_PROTOCOLS
        && let Some(socket) = socket
    {
        return Ok(join(&mut response, socket));
    }
    Ok(given_back(response))
}

/// Joins the client's websocket with the server's, byte by byte.
fn join(response: &mut hyper::Response<Incoming>, socket: Upgrade) -> Answer {
    let accept = response.headers().get("sec-websocket-accept").and_then(|v| v.to_str().ok()).unwrap_or_default();
    let answer = socket::switching(accept);
    let server = hyper::upgrade::on(response);
    tokio::spawn(async move {
        if let (Ok(server), Ok(client)) = (server.await, socket.upgrade.await) {
            // Either end closing is the ordinary end.
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
        }
    });
    answer
}

fn given_back(response: hyper::Response<Incoming>) -> Answer {
    let mut answer = Answer { status: response.status().as_u16(), ..Answer::empty() };
    for name in ANSWER_HEADERS {
        if let Some(value) = response.headers().get(name).and_then(|v| v.to_str().ok()) {
            answer = answer.with_header(name, value);
        }
    }
    let pieces = BodyDataStream::new(response.into_body()).map(|piece| piece.map_err(|e| BrokenOff(e.to_string())));
    answer.content = Content::Stream(Box::pin(pieces));
    answer
}
