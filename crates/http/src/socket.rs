//! Websockets: the server side of the upgrade. What goes wrong after it is told in the frame that closes the socket.

use crate::answer::Answer;
use crate::error::HttpError;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

/// The largest websocket message, bytes.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// The most bytes of text in the frame that closes a socket. Source: RFC 6455, section 5.5.
const MAX_REASON_BYTES: usize = 123;

/// An open websocket.
pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// A request to become a websocket.
pub struct Upgrade {
    pub(crate) upgrade: OnUpgrade,
    key: HeaderValue,
}

/// The upgrade that a request asks for.
pub fn asked_for(http: &mut hyper::Request<Incoming>) -> Option<Upgrade> {
    let wants = http.headers().get("upgrade").is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let key = http.headers().get("sec-websocket-key").filter(|_| wants)?.clone();
    Some(Upgrade { upgrade: hyper::upgrade::on(http), key })
}

/// The answer that makes a request a websocket.
pub fn switching(accept: impl Into<String>) -> Answer {
    Answer { status: 101, ..Answer::empty() }
        .with_header("Connection", "Upgrade")
        .with_header("Upgrade", "websocket")
        .with_header("Sec-WebSocket-Accept", accept)
}

impl Upgrade {
    /// The key that the client sent.
    pub fn key(&self) -> &HeaderValue {
        &self.key
    }

    /// Answers the upgrade, and runs `with` on the socket once it is open.
    ///
    /// # Errors
    /// None today; the signature leaves room for refusals before the upgrade.
    pub fn accept<F, T>(self, with: F) -> Result<Answer, HttpError>
    where
        F: FnOnce(Socket) -> T + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let Upgrade { upgrade, key } = self;
        tokio::spawn(async move {
            match upgrade.await {
                Ok(upgraded) => {
                    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE_BYTES));
                    let socket =
                        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
                    with(socket).await;
                }
                Err(error) => tracing::debug!(target: "http", %error, "a websocket upgrade broke off"),
            }
        });
        Ok(switching(derive_accept_key(key.as_bytes())))
    }
}

/// The frame that closes a socket with what went wrong. Source of the codes: wire-notes section 9.
pub fn close_message(error: &HttpError) -> Message {
    let code = if error.code >= 500 { CloseCode::Error } else { CloseCode::Policy };
    let mut end = error.message.len().min(MAX_REASON_BYTES);
    while !error.message.is_char_boundary(end) {
        end -= 1;
    }
    let reason = error.message.get(..end).unwrap_or_default().to_string();
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}
