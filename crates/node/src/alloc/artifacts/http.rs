//! Downloads over HTTP.

use super::{Cancel, FetchError};
use crate::tls;
use base64::Engine;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;
use tokio::net::TcpStream;

/// Redirections that are followed.
const MAX_REDIRECTS: usize = 10;
/// Longest wait for a connection, and for the next piece of a body.
const IDLE: Duration = Duration::from_secs(60);

/// How requests are made.
#[derive(Debug, Clone)]
pub struct Client {
    /// Sent to the host of the source only.
    pub headers: Vec<(String, String)>,
    /// Certificates are not looked at.
    pub insecure: bool,
}

impl Client {
    /// Writes what an address holds to a file.
    pub async fn download(&self, url: &str, mut file: File, limit: u64, cancel: &Cancel) -> Result<(), FetchError> {
        let mut body = self.get(url).await?.into_body();
        let mut left = limit;
        while let Some(piece) = piece(&mut body).await? {
            cancel.check()?;
            let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            left = left
                .checked_sub(length)
                .ok_or_else(|| FetchError::lasting(format!("it is larger than {limit} bytes")))?;
            // A piece is small, and the page cache takes it.
            file.write_all(&piece)?;
        }
        Ok(())
    }

    /// A small text.
    pub async fn text(&self, url: &str, limit: u64) -> Result<String, FetchError> {
        let mut body = self.get(url).await?.into_body();
        let mut out = Vec::new();
        while let Some(piece) = piece(&mut body).await? {
            out.extend_from_slice(&piece);
            if u64::try_from(out.len()).unwrap_or(u64::MAX) > limit {
                return Err(FetchError::lasting(format!("{url} is larger than {limit} bytes")));
            }
        }
        String::from_utf8(out).map_err(|_| FetchError::lasting(format!("{url} is no UTF-8 text")))
    }

    async fn get(&self, url: &str) -> Result<Response<Incoming>, FetchError> {
        let mut uri: Uri = url.parse().map_err(|e| FetchError::lasting(format!("address {url:?}: {e}")))?;
        let first = uri.authority().cloned();
        for _ in 0..=MAX_REDIRECTS {
            let own = uri.authority() == first.as_ref();
            let response = self.ask(&uri, own).await?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let moved = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
            match response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).filter(|_| moved) {
                Some(to) => uri = resolved(&uri, to).map_err(FetchError::passing)?,
                None => return Err(FetchError::passing(format!("bad response code: {}", status.as_u16()))),
            }
        }
        Err(FetchError::passing(format!("more than {MAX_REDIRECTS} redirections")))
    }

    async fn ask(&self, uri: &Uri, own: bool) -> Result<Response<Incoming>, FetchError> {
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(FetchError::lasting(format!("address {uri} is neither http nor https"))),
        };
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_string();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let request = self.request(uri, own)?;
        let connect = async {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            if secure {
                let stream = tls::connect(stream, &host, self.insecure).await.map_err(|e| match e.kind() {
                    io::ErrorKind::InvalidInput => FetchError::lasting(e.to_string()),
                    _ => e.into(),
                })?;
                send(stream, request).await
            } else {
                send(stream, request).await
            }
        };
        let answer = tokio::time::timeout(IDLE, connect).await;
        answer.unwrap_or_else(|_| Err(FetchError::passing(format!("{host}:{port} does not answer"))))
    }

    fn request(&self, uri: &Uri, own: bool) -> Result<Request<Empty<Bytes>>, FetchError> {
        let authority = uri.authority().map_or("", |a| a.as_str());
        let (login, place) =
            authority.rsplit_once('@').map_or((None, authority), |(login, place)| (Some(login), place));
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let bad = |error: &dyn std::fmt::Display| FetchError::lasting(format!("address or headers: {error}"));
        let mut request = Request::get(path).body(Empty::new()).map_err(|e| bad(&e))?;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(place).map_err(|e| bad(&e))?);
        headers.insert(USER_AGENT, HeaderValue::from_static("herdsman"));
        if let Some(login) = login {
            let login = base64::engine::general_purpose::STANDARD.encode(login);
            headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Basic {login}")).map_err(|e| bad(&e))?);
        }
        // What may be a secret is not carried to another host.
        for (name, value) in self.headers.iter().filter(|_| own) {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|e| bad(&e))?;
            headers.insert(name, HeaderValue::from_str(value).map_err(|e| bad(&e))?);
        }
        Ok(request)
    }
}

/// Sends a request over a connection.
pub async fn send<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>, FetchError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| FetchError::passing(error.to_string());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // Ends with the response's body, or when that is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(failed)
}

async fn piece(body: &mut Incoming) -> Result<Option<Bytes>, FetchError> {
    loop {
        let frame = tokio::time::timeout(IDLE, body.frame()).await;
        let frame = frame.map_err(|_| FetchError::passing(format!("nothing came for {} s", IDLE.as_secs())))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(FetchError::passing(error.to_string())),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Where a redirection leads.
fn resolved(from: &Uri, to: &str) -> Result<Uri, String> {
    let bad = |error: hyper::http::uri::InvalidUri| format!("redirection to {to:?}: {error}");
    if to.contains("://") {
        return to.parse().map_err(bad);
    }
    let scheme = from.scheme_str().unwrap_or("http");
    if let Some(rest) = to.strip_prefix("//") {
        return format!("{scheme}://{rest}").parse().map_err(bad);
    }
    let authority = from.authority().map_or("", |a| a.as_str());
    let path = match to.strip_prefix('/') {
        Some(_) => to.to_string(),
        None => format!("{}/{to}", from.path().rsplit_once('/').map_or("", |(before, _)| before)),
    };
    format!("{scheme}://{authority}{path}").parse().map_err(bad)
}
