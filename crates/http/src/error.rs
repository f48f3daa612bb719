//! Errors as the API answers them: a bare message in plain text. Source: `compat/wire-notes.md` section 6.

use crate::answer::Answer;
use herdsman_server::ServerError;

/// A refusal with the HTTP status it answers with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HttpError {
    /// The HTTP status.
    pub code: u16,
    /// The whole body.
    pub message: String,
}

impl HttpError {
    /// A refusal of this status.
    pub fn new(code: u16, message: impl Into<String>) -> HttpError {
        HttpError { code, message: message.into() }
    }

    /// The request itself is wrong.
    pub fn bad_request(message: impl Into<String>) -> HttpError {
        HttpError::new(400, message)
    }

    /// The named thing does not exist.
    pub fn not_found(message: impl Into<String>) -> HttpError {
        HttpError::new(404, message)
    }

    /// The request was understood and failed.
    pub fn internal(message: impl Into<String>) -> HttpError {
        HttpError::new(500, message)
    }

    /// The method does not exist on this path.
    pub fn bad_method() -> HttpError {
        HttpError::new(405, "Invalid method")
    }

    /// The refusal as an answer.
    pub fn into_answer(self) -> Answer {
        if self.message.is_empty() {
            return Answer { status: self.code, ..Answer::empty() };
        }
        Answer::text(self.code, self.message)
    }
}

impl From<ServerError> for HttpError {
    fn from(error: ServerError) -> HttpError {
        HttpError { code: error.code, message: error.message }
    }
}
