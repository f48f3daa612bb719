//! Listening: connections with limits, each served until it closes.

use crate::api::Api;
use crate::pipeline;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// Connections one address may have open. Source: `limits.http_max_conns_per_client`.
pub const MAX_CONNECTIONS_PER_ADDRESS: usize = 100;

/// How long a client may take to send the head of a request.
pub const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// Open connections by address.
#[derive(Default)]
struct Open(Mutex<BTreeMap<IpAddr, usize>>);

/// One counted connection; uncounts itself.
struct Counted {
    open: Arc<Open>,
    address: IpAddr,
}

impl Open {
    fn count(self: &Arc<Open>, address: IpAddr) -> Option<Counted> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = all.entry(address).or_default();
        if *number >= MAX_CONNECTIONS_PER_ADDRESS {
            return None;
        }
        *number += 1;
        Some(Counted { open: Arc::clone(self), address })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = self.open.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = all.get_mut(&self.address) {
            *number -= 1;
            if *number == 0 {
                all.remove(&self.address);
            }
        }
    }
}

/// Serves connections of a listener until the task is dropped.
pub async fn serve(api: Arc<Api>, listener: TcpListener) {
    let open = Arc::new(Open::default());
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: others will close theirs.
                tracing::warn!(target: "http", %error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        // Local tools open many connections at once and are no danger to the agent.
        let counted = if peer.ip().is_loopback() { None } else { Some(open.count(peer.ip())) };
        if matches!(counted, Some(None)) {
            refuse(stream);
            continue;
        }
        let api = Arc::clone(&api);
        tokio::spawn(async move {
            serve_stream(api, stream).await;
            drop(counted);
        });
    }
}

/// Says on the wire that there are too many connections. Source: wire-notes section 6, code 429.
fn refuse(mut stream: tokio::net::TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nYour IP is issuing too many concurrent connections, please rate limit your calls\n";
    tokio::spawn(async move {
        let _ = stream.write_all(ANSWER).await;
    });
}

/// Serves one connection, whatever it came over.
pub async fn serve_stream<S>(api: Arc<Api>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let api = Arc::clone(&api);
        async move { Ok::<_, Infallible>(pipeline::handle(api, request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(target: "http", %error, "a connection broke off");
    }
}
