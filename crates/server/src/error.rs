//! Why an operation was not carried out, and why a server did not start.

use herdsman_consensus::ProposeError;
use herdsman_state::Refusal;

/// Why an operation was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServerError {
    /// The HTTP status that suits it.
    pub code: u16,
    /// What clients match.
    pub message: String,
}

impl ServerError {
    /// An error with this status and text.
    pub fn new(code: u16, message: impl Into<String>) -> ServerError {
        ServerError { code, message: message.into() }
    }

    /// The peer's usual status for whatever is wrong with a write.
    pub fn refused(message: impl Into<String>) -> ServerError {
        ServerError::new(500, message)
    }

    /// A coded not-found.
    pub fn not_found(message: impl Into<String>) -> ServerError {
        ServerError::new(404, message)
    }
}

impl From<Refusal> for ServerError {
    fn from(refusal: Refusal) -> ServerError {
        ServerError { code: refusal.code, message: refusal.message }
    }
}

impl From<ProposeError> for ServerError {
    fn from(error: ProposeError) -> ServerError {
        match error {
            ProposeError::NotLeader { .. } => ServerError::refused("No cluster leader"),
            other => ServerError::refused(other.to_string()),
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Log(#[from] herdsman_consensus::OpenError),
    #[error("listen for nodes: {0}")]
    Listen(std::io::Error),
    #[error("open the keyring: {0}")]
    Keyring(std::io::Error),
}
