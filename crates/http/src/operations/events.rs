//! `GET /v1/event/stream`. Source: wire-notes section 9.

use crate::answer::{Answer, BrokenOff};
use crate::error::HttpError;
use crate::events::{EventBuffer, Wanted, begin};
use crate::pipeline::Call;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// How often a stream without events shows that it lives.
pub const HEARTBEAT: Duration = Duration::from_secs(30);

/// What the stream is about to write.
enum Next {
    Heartbeat,
    Groups,
}

/// Streams events from the index that is asked for on.
///
/// # Errors
/// Index or topics cannot be understood, or this agent runs no server.
pub async fn stream(call: Call) -> Result<Answer, HttpError> {
    let request = &call.request;
    let index = match request.params.text("index") {
        "" => 0,
        text => text.parse::<u64>().map_err(|_| {
            HttpError::bad_request(format!("Unable to parse index: strconv.Atoi: parsing {text:?}: invalid syntax"))
        })?,
    };
    let wanted = Wanted::parse(request.params.all("topic"), request.namespace())?;
    let buffer = Arc::clone(call.api.events()?);
    let lines = futures::stream::unfold((buffer, wanted, begin(index), Next::Heartbeat), step);
    let mut answer = Answer::stream("application/json", Box::pin(lines));
    answer.headers.push(("Cache-Control", "no-cache".to_string()));
    answer.headers.push(("Connection", "close".to_string()));
    Ok(answer)
}

type State = (Arc<EventBuffer>, Wanted, u64, Next);

async fn step((buffer, wanted, mut after, next): State) -> Option<(Result<Bytes, BrokenOff>, State)> {
    const EMPTY: &[u8] = b"{}\n";
    if matches!(next, Next::Heartbeat) {
        return Some((Ok(Bytes::from_static(EMPTY)), (buffer, wanted, after, Next::Groups)));
    }
    let end = tokio::time::Instant::now() + HEARTBEAT;
    loop {
        match tokio::time::timeout_at(end, buffer.next(after)).await {
            Err(_) => return Some((Ok(Bytes::from_static(EMPTY)), (buffer, wanted, after, Next::Groups))),
            Ok(None) => return None,
            Ok(Some(group)) => {
                after = group.index;
                if let Some(line) = group.line(&wanted) {
                    return Some((Ok(Bytes::from(line)), (buffer, wanted, after, Next::Groups)));
                }
            }
        }
    }
}
