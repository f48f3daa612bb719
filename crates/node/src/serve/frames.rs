//! Frames of file and log streams, as the API shows them.

use serde::Serialize;

/// Bytes in one frame at most.
pub const FRAME_BYTES: usize = 64 * 1024;

/// A part of a file. All fields empty: a sign of life.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct StreamFrame {
    /// Position after the data.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: i64,
    /// Base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub file_event: &'static str,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl StreamFrame {
    pub fn data(file: &str, bytes: &[u8], offset: u64) -> StreamFrame {
        use base64::Engine;
        StreamFrame {
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            data: base64::engine::general_purpose::STANDARD.encode(bytes),
            file: file.to_string(),
            file_event: "",
        }
    }

    pub fn event(file: &str, file_event: &'static str) -> StreamFrame {
        StreamFrame { file: file.to_string(), file_event, ..StreamFrame::default() }
    }
}

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Start,
    End,
}

impl Origin {
    /// Reads the `origin` parameter; empty is the start.
    pub fn parse(word: &str) -> Option<Origin> {
        match word {
            "" | "start" => Some(Origin::Start),
            "end" => Some(Origin::End),
            _ => None,
        }
    }
}
