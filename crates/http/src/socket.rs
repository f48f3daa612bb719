//! Websockets: the server side of the upgrade.

use crate::answer::Answer;
use crate::error::HttpError;
use hyper::header::HeaderValue;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// The largest websocket message, bytes.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// An open websocket.
pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// A request to become a websocket.
pub struct Upgrade {
    upgrade: OnUpgrade,
    accept: String,
}

impl Upgrade {
    /// From the parts of a request.
    pub fn new(upgrade: OnUpgrade, key: &HeaderValue) -> Upgrade {
        Upgrade { upgrade, accept: derive_accept_key(key.as_bytes()) }
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
        let Upgrade { upgrade, accept } = self;
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
        Ok(Answer { status: 101, headers: Vec::new(), content: crate::answer::Content::Empty }
            .with_header("Connection", "Upgrade")
            .with_header("Upgrade", "websocket")
            .with_header("Sec-WebSocket-Accept", accept))
    }
}
