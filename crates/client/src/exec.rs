//! Exec sessions: a websocket with JSON frames in both directions. Source: `compat/wire-notes.md` section 9.

use crate::connection::{Stream, auth_headers, dial};
use crate::{Address, ClientError, Options};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// Bytes of one of the task's streams.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecStream {
    /// Base64.
    pub data: String,
    pub close: bool,
}

/// The size of the user's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TtySize {
    pub height: u16,
    pub width: u16,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecResult {
    pub exit_code: i32,
}

/// One frame of an exec session, of either direction; absent parts are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecFrame {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<ExecStream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<ExecStream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<ExecStream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty_size: Option<TtySize>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exited: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ExecResult>,
}

impl ExecFrame {
    /// Input for the command.
    pub fn input(data: &[u8]) -> ExecFrame {
        ExecFrame { stdin: Some(ExecStream { data: STANDARD.encode(data), close: false }), ..ExecFrame::default() }
    }

    /// The end of the input.
    pub fn end_of_input() -> ExecFrame {
        ExecFrame { stdin: Some(ExecStream { data: String::new(), close: true }), ..ExecFrame::default() }
    }

    /// A new size of the user's terminal.
    pub fn resized(height: u16, width: u16) -> ExecFrame {
        ExecFrame { tty_size: Some(TtySize { height, width }), ..ExecFrame::default() }
    }
}

impl ExecStream {
    /// The bytes of this piece.
    ///
    /// # Errors
    /// The data is not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, ClientError> {
        STANDARD
            .decode(&self.data)
            .map_err(|e| ClientError::BadAnswer { path: "exec frame".to_string(), cause: e.to_string() })
    }
}

/// An open exec session.
pub struct ExecSession {
    socket: WebSocketStream<Box<dyn Stream>>,
    address: String,
}

impl ExecSession {
    pub(crate) async fn open(address: &Address, target: &str, options: &Options) -> Result<ExecSession, ClientError> {
        let broken = |cause: String| ClientError::Broken { address: address.to_string(), cause };
        let stream = dial(address).await?;
        let url = format!("ws://{}{target}", address.host_header());
        let mut request = url.into_client_request().map_err(|e| broken(e.to_string()))?;
        for (name, value) in auth_headers(options) {
            let value = value.parse().map_err(|_| broken("the token has characters a header cannot carry".into()))?;
            request.headers_mut().insert(name, value);
        }
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(ExecSession { socket, address: address.to_string() }),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => Err(ClientError::Refused {
                code: response.status().as_u16(),
                message: String::from_utf8_lossy(response.body().as_deref().unwrap_or_default()).into_owned(),
            }),
            Err(error) => Err(broken(error.to_string())),
        }
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, frame: &ExecFrame) -> Result<(), ClientError> {
        let text = serde_json::to_string(frame)
            .map_err(|e| ClientError::BadAnswer { path: "exec frame".to_string(), cause: e.to_string() })?;
        self.socket.send(Message::text(text)).await.map_err(|e| self.broken(&e))
    }

    /// The next frame; none when the agent closed the session in the ordinary way.
    ///
    /// # Errors
    /// The connection broke, or the agent closed the session with a message.
    pub async fn next(&mut self) -> Result<Option<ExecFrame>, ClientError> {
        loop {
            match self.socket.next().await {
                None => return Ok(None),
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(text.as_str())
                        .map(Some)
                        .map_err(|e| ClientError::BadAnswer { path: "exec frame".to_string(), cause: e.to_string() });
                }
                Some(Ok(Message::Close(Some(close)))) if !close.reason.is_empty() => {
                    let code = if u16::from(close.code) == 1008 { 400 } else { 500 };
                    return Err(ClientError::Refused { code, message: close.reason.as_str().to_string() });
                }
                Some(Ok(Message::Close(_))) => return Ok(None),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(self.broken(&error)),
            }
        }
    }

    fn broken(&self, error: &tokio_tungstenite::tungstenite::Error) -> ClientError {
        ClientError::Broken { address: self.address.clone(), cause: error.to_string() }
    }
}
