//! `alloc exec` and `job action`: a command in a task, with our standard streams or our terminal.

use super::files::{allocation, running_of};
use crate::command::{Call, Failure};
use crate::find::{in_space_of, task_of};
use crate::terminal::Terminal;
use crate::view::View;
use herdsman_client::{Client, ExecFrame, ExecSession, Query, encode_segment};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::Value;
use std::io::{IsTerminal, Read};
use std::time::Duration;
use tokio::sync::mpsc;

/// How often a sign of life is sent. Source: wire-notes section 9.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The most input read at once, bytes.
const INPUT_PIECE: usize = 2048;
/// Pieces of input read ahead.
const INPUT_QUEUE: usize = 16;

/// How a session is held.
struct Session {
    input: bool,
    tty: bool,
    /// The character that, at the beginning of a line and before a dot, ends the session.
    escape: Option<u8>,
}

fn session_of(call: &Call<'_>) -> Result<Session, Failure> {
    let together = call.flags.on("it") || call.flags.on("ti");
    let terminal = call.environment.given_input().is_none() && std::io::stdin().is_terminal();
    let input = call.flags.on_or("i", true) || together;
    let tty = together || call.flags.on_or("t", terminal && call.terminal.interactive());
    if tty && !input {
        return Err(Failure::new("-i must be enabled if running with tty"));
    }
    let escape = match call.flags.text("e").unwrap_or("~") {
        "none" | "" => None,
        text => match text.as_bytes() {
            [one] => Some(*one),
            _ => return Err(Failure::new("-e requires 'none' or a single character")),
        },
    };
    Ok(Session { input, tty, escape: escape.filter(|_| tty) })
}

/// `alloc exec`.
pub async fn exec(call: &mut Call<'_>) -> Result<u8, Failure> {
    let Some((word, command)) = call.flags.words.split_first().map(|(w, c)| (w.clone(), c.to_vec())) else {
        return Err(call.usage("An allocation ID is required"));
    };
    if command.is_empty() {
        return Err(call.usage("A command is required"));
    }
    let session = session_of(call)?;
    let client = call.client()?;
    let allocation = allocation(call, &client, &word).await?;
    let named = call.flags.text("task").map(str::to_string);
    let task = task_of(&allocation, named.as_deref())?;
    let command = Value::from(command).to_string();
    let query =
        in_space_of(&allocation).with("task", task).with("tty", session.tty.to_string()).with("command", command);
    let path = format!("/v1/client/allocation/{}/exec", encode_segment(allocation.text("ID")));
    run(call, &client, &path, &query, &session).await
}

/// `job action`.
pub async fn action(call: &mut Call<'_>) -> Result<u8, Failure> {
    let name = call.one_word()?.to_string();
    let flag = |name: &str| call.flags.text(name).map(str::to_string).filter(|t| !t.is_empty());
    let (job, alloc, task, group) = (flag("job"), flag("alloc"), flag("task"), flag("group"));
    let Some(job) = job else { return Err(call.usage("A job ID is required: -job")) };
    if alloc.is_none() && (task.is_none() || group.is_none()) {
        return Err(call.usage("Without -alloc, both -group and -task say where the action runs"));
    }
    let session = session_of(call)?;
    let client = call.client()?;
    let found = call.find_job(&client, &job).await?;
    let allocation = match alloc {
        Some(alloc) => call.find_allocation(&client, &alloc).await?,
        None => running_of(&client, &found, group.as_deref(), task.as_deref()).await?,
    };
    let task = task_of(&allocation, task.as_deref())?;
    let query = found
        .query()
        .with("task", task)
        .with("group", allocation.text("TaskGroup"))
        .with("action", name)
        .with("allocID", allocation.text("ID"))
        .with("tty", session.tty.to_string());
    run(call, &client, &format!("{}/action", found.path()), &query, &session).await
}

async fn run(
    call: &mut Call<'_>,
    client: &Client,
    path: &str,
    query: &Query,
    session: &Session,
) -> Result<u8, Failure> {
    let failed = |e: herdsman_client::ClientError| {
        let why = e.message().map_or_else(|| e.to_string(), str::to_string);
        Failure::new(format!("failed to exec into task: {why}"))
    };
    let mut open = client.exec(path, query).await.map_err(failed)?;
    let raw = if session.tty { RawTerminal::enter() } else { None };
    let mut input = input_of(call, session);
    if !session.input {
        open.send(&ExecFrame::end_of_input()).await.map_err(failed)?;
    }
    if session.tty {
        open.send(&size_frame()).await.map_err(failed)?;
    }
    let ended = talk(call.terminal, &mut open, &mut input, session).await;
    drop(raw);
    match ended.map_err(failed)? {
        Some(code) => Ok(u8::try_from(code).unwrap_or(if code == 0 { 0 } else { u8::MAX })),
        None => Err(Failure::new("the session ended before the command did")),
    }
}

fn size_frame() -> ExecFrame {
    let (height, width) = crate::terminal::screen_size();
    ExecFrame::resized(u16::try_from(height).unwrap_or(24), u16::try_from(width).unwrap_or(80))
}

/// Passes input and output until the command ends; its exit status, or none when the user left or the agent closed.
async fn talk(
    terminal: &mut Terminal,
    open: &mut ExecSession,
    input: &mut mpsc::Receiver<Vec<u8>>,
    session: &Session,
) -> Result<Option<i32>, herdsman_client::ClientError> {
    let mut escapes = Escapes::new(session.escape);
    let mut input_open = session.input;
    let mut resized = Resized::watch(session.tty);
    loop {
        tokio::select! {
            frame = open.next() => match frame? {
                None => return Ok(None),
                Some(frame) => {
                    if let Some(piece) = &frame.stdout {
                        terminal.raw(&piece.bytes()?);
                    }
                    if let Some(piece) = &frame.stderr {
                        terminal.raw_error(&piece.bytes()?);
                    }
                    if frame.exited {
                        return Ok(Some(frame.result.map_or(0, |r| r.exit_code)));
                    }
                }
            },
            piece = input.recv(), if input_open => match piece {
                Some(piece) => match escapes.filter(&piece) {
                    None => return Ok(Some(0)),
                    Some(bytes) if bytes.is_empty() => {}
                    Some(bytes) => open.send(&ExecFrame::input(&bytes)).await?,
                },
                None => {
                    input_open = false;
                    open.send(&ExecFrame::end_of_input()).await?;
                }
            },
            () = resized.next() => open.send(&size_frame()).await?,
            () = tokio::time::sleep(HEARTBEAT) => open.send(&ExecFrame::default()).await?,
        }
    }
}

/// Changes of the screen's size.
struct Resized(Option<tokio::signal::unix::Signal>);

impl Resized {
    fn watch(tty: bool) -> Resized {
        use tokio::signal::unix::{SignalKind, signal};
        Resized(if tty { signal(SignalKind::window_change()).ok() } else { None })
    }

    async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Reads our input on a thread of its own: a read of a terminal cannot be given up.
fn input_of(call: &Call<'_>, session: &Session) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel(INPUT_QUEUE);
    if !session.input {
        return receive;
    }
    let given = call.environment.given_input().map(|g| g.to_vec());
    std::thread::spawn(move || {
        if let Some(given) = given {
            let _ = send.blocking_send(given);
            return;
        }
        let mut piece = [0_u8; INPUT_PIECE];
        let mut stdin = std::io::stdin().lock();
        loop {
            match stdin.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    let bytes = piece.get(..count).unwrap_or_default().to_vec();
                    if send.blocking_send(bytes).is_err() {
                        return;
                    }
                }
            }
        }
    });
    receive
}

/// Finds the escape that ends a session.
struct Escapes {
    escape: Option<u8>,
    line_start: bool,
    pending: bool,
}

impl Escapes {
    fn new(escape: Option<u8>) -> Escapes {
        Escapes { escape, line_start: true, pending: false }
    }

    /// What of the input is passed on; none when it ends the session.
    fn filter(&mut self, piece: &[u8]) -> Option<Vec<u8>> {
        let Some(escape) = self.escape else { return Some(piece.to_vec()) };
        let mut out = Vec::with_capacity(piece.len());
        for byte in piece {
            if self.pending {
                self.pending = false;
                match *byte {
                    b'.' => return None,
                    other if other == escape => {}
                    _ => out.push(escape),
                }
            } else if self.line_start && *byte == escape {
                self.pending = true;
                self.line_start = false;
                continue;
            }
            out.push(*byte);
            self.line_start = matches!(*byte, b'\n' | b'\r');
        }
        Some(out)
    }
}

/// Our terminal in raw mode until this is dropped.
struct RawTerminal(Termios);

impl RawTerminal {
    fn enter() -> Option<RawTerminal> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(RawTerminal(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::Escapes;

    #[test]
    fn an_escape_counts_at_the_beginning_of_a_line() {
        let mut escapes = Escapes::new(Some(b'~'));
        assert_eq!(escapes.filter(b"a~.b\n"), Some(b"a~.b\n".to_vec()));
        assert_eq!(escapes.filter(b"~~x\r"), Some(b"~x\r".to_vec()));
        assert_eq!(escapes.filter(b"~q"), Some(b"~q".to_vec()));
        assert_eq!(escapes.filter(b"\n~"), Some(b"\n".to_vec()));
        assert_eq!(escapes.filter(b"."), None);
        assert_eq!(Escapes::new(None).filter(b"~."), Some(b"~.".to_vec()));
    }
}
