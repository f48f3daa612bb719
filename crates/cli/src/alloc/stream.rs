//! Printing what arrives, from its beginning or from near its end, to its end or on and on.

use crate::command::{Attempt, Failure};
use crate::terminal::Terminal;
use herdsman_client::{BodyStream, Client, ExecStream, Query};
use serde::Deserialize;
use std::time::Duration;

/// Lines shown by `-tail` when no number is given.
pub const DEFAULT_TAIL: usize = 10;

/// Bytes read for each line that `-tail` shows: lines are rarely longer.
const BYTES_PER_LINE: usize = 1024;
/// The most bytes read to find the last lines.
const MAX_TAIL_BYTES: usize = 8 * 1024 * 1024;
/// So long after its first piece a stream has shown what was there; what comes later is new, however busy the task is.
const QUIET: Duration = Duration::from_millis(250);

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    /// This many bytes before the end.
    Bytes(usize),
    /// This many lines before the end.
    Lines(usize),
}

impl From {
    /// The parameters of this beginning.
    pub fn apply(self, query: Query) -> Query {
        let back = match self {
            From::Start => return query.with("origin", "start").with("offset", "0"),
            From::Bytes(count) => count,
            From::Lines(count) => count.saturating_mul(BYTES_PER_LINE).min(MAX_TAIL_BYTES),
        };
        query.with("origin", "end").with("offset", back.to_string())
    }
}

/// A frame of a stream, as far as its bytes go.
#[derive(Deserialize)]
struct Frame {
    #[serde(rename = "Data", default)]
    data: String,
}

/// Which of our outputs it goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Standard,
    Error,
}

/// A stream that is being printed.
pub struct Printing {
    stream: BodyStream,
    output: Output,
    /// Lines still to be found near the end, and what was read for that.
    tail: Option<(usize, Vec<u8>)>,
    /// When the search for them ends: set by the first piece.
    tail_until: Option<tokio::time::Instant>,
    /// Bytes of a frame that has not arrived whole; none where the bytes come without frames.
    frame: Option<Vec<u8>>,
}

/// How the bytes come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// JSON objects back to back with the bytes in base64.
    Frames,
}

/// The largest frame, bytes; the API's hold 64 KiB.
const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

impl Printing {
    /// Opens a stream of plain bytes.
    ///
    /// # Errors
    /// The agent refuses.
    pub async fn open(
        client: &Client,
        path: &str,
        query: Query,
        from: From,
        output: Output,
        form: Form,
    ) -> Result<Printing, Failure> {
        let query = from.apply(query);
        let query = if form == Form::Plain { query.with("plain", "true") } else { query };
        let stream = client.stream("GET", path, &query, None).await.map_err(|e| Failure::new(e.to_string()))?;
        let tail = match from {
            From::Lines(count) => Some((count, Vec::new())),
            _ => None,
        };
        let frame = (form == Form::Frames).then(Vec::new);
        Ok(Printing { stream, output, tail, tail_until: None, frame })
    }

    /// Waits for the next piece; false at the end. Nothing is lost when the wait is given up.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            let piece = if let Some(until) = self.tail_until {
                match tokio::time::timeout_at(until, self.stream.next()).await {
                    Ok(piece) => piece.attempt("Error reading")?,
                    Err(_) => return Ok(self.found_tail()),
                }
            } else {
                self.stream.next().await.attempt("Error reading")?
            };
            match piece {
                None => return Ok(self.found_tail()),
                Some(piece) => {
                    let bytes = self.unframed(&piece)?;
                    match &mut self.tail {
                        Some((_, held)) => {
                            held.extend_from_slice(&bytes);
                            if !held.is_empty() && self.tail_until.is_none() {
                                self.tail_until = Some(tokio::time::Instant::now() + QUIET);
                            }
                        }
                        None if bytes.is_empty() => {}
                        None => return Ok(Some(bytes)),
                    }
                }
            }
        }
    }

    /// The bytes of a piece; those of frames that are whole by now.
    fn unframed(&mut self, piece: &[u8]) -> Result<Vec<u8>, Failure> {
        let Some(held) = &mut self.frame else { return Ok(piece.to_vec()) };
        held.extend_from_slice(piece);
        let mut out = Vec::new();
        let mut frames = serde_json::Deserializer::from_slice(held).into_iter::<Frame>();
        let mut used = 0;
        while let Some(frame) = frames.next() {
            match frame {
                Ok(frame) => {
                    used = frames.byte_offset();
                    let data = ExecStream { data: frame.data, close: false };
                    out.extend(data.bytes().attempt("Error reading")?);
                }
                Err(error) if error.is_eof() => break,
                Err(error) => return Err(Failure::new(format!("Error reading: {error}"))),
            }
        }
        held.drain(..used);
        if held.len() > MAX_FRAME_BYTES {
            return Err(Failure::new(format!("Error reading: a frame is larger than {MAX_FRAME_BYTES} bytes")));
        }
        Ok(out)
    }

    fn found_tail(&mut self) -> Option<Vec<u8>> {
        self.tail_until = None;
        let (count, held) = self.tail.take()?;
        let kept = last_lines(&held, count).to_vec();
        (!kept.is_empty()).then_some(kept)
    }

    /// Which output it goes to.
    pub fn output(&self) -> Output {
        self.output
    }
}

/// Prints a piece.
pub fn print(terminal: &mut Terminal, output: Output, piece: &[u8]) {
    match output {
        Output::Standard => terminal.raw(piece),
        Output::Error => terminal.raw_error(piece),
    }
}

/// The last lines of a text.
pub fn last_lines(text: &[u8], count: usize) -> &[u8] {
    if count == 0 {
        return &[];
    }
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let ends = body.iter().enumerate().rev().filter(|(_, b)| **b == b'\n').map(|(at, _)| at);
    match ends.take(count).nth(count - 1) {
        Some(at) => text.get(at + 1..).unwrap_or_default(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn the_last_lines_are_whole() {
        assert_eq!(last_lines(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\nc", 1), b"c");
        assert_eq!(last_lines(b"a\nb\n", 5), b"a\nb\n");
        assert_eq!(last_lines(b"a\n", 0), b"");
        assert_eq!(last_lines(b"", 3), b"");
    }
}
