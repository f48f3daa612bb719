//! Moving bytes between a caller and a command run beside a task.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use herdsman_shim::{ExecSession, ShimError};
use rustix::termios::Winsize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::driver::ExecError;

/// Bytes moved at once.
const CHUNK: usize = 8 << 10;

/// A command to run beside a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSpec {
    /// Program and arguments.
    pub command: Vec<String>,
    /// On a terminal.
    pub tty: bool,
}

/// From the caller to the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecInput {
    /// Bytes for standard input.
    Data(Vec<u8>),
    /// End of standard input.
    Close,
    /// The caller's terminal has this size now.
    Resize {
        /// Lines.
        rows: u16,
        /// Columns.
        cols: u16,
    },
}

/// From the command to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecOutput {
    /// Bytes of standard output.
    Stdout(Vec<u8>),
    /// Bytes of standard error.
    Stderr(Vec<u8>),
    /// Standard output has ended.
    StdoutClosed,
    /// Standard error has ended.
    StderrClosed,
}

pub(crate) fn exec_error(error: &ShimError) -> ExecError {
    match error {
        ShimError::Gone => ExecError::NotRunning,
        ShimError::Refused(failure) if failure.stage == b"exec" => {
            // As the peer puts it; clients show this text.
            let text = error.to_string();
            let rest = text.strip_prefix("exec ").unwrap_or(&text);
            ExecError::Failed(format!("rpc error: code = Unknown desc = failed to start command: fork/exec {rest}"))
        }
        other => ExecError::Failed(other.to_string()),
    }
}

fn failed(e: io::Error) -> ExecError {
    ExecError::Failed(format!("cannot make streams for the command: {e}"))
}

/// Runs a command beside the task of `run_file`.
pub(crate) async fn run(
    run_file: &std::path::Path,
    spec: &ExecSpec,
    input: mpsc::Receiver<ExecInput>,
    output: mpsc::Sender<ExecOutput>,
) -> Result<i32, ExecError> {
    if spec.command.is_empty() {
        return Err(ExecError::Failed("command is not present".to_owned()));
    }
    if spec.tty {
        on_terminal(run_file, spec, input, output).await
    } else {
        on_pipes(run_file, spec, input, output).await
    }
}

async fn on_pipes(
    run_file: &std::path::Path,
    spec: &ExecSpec,
    mut input: mpsc::Receiver<ExecInput>,
    output: mpsc::Sender<ExecOutput>,
) -> Result<i32, ExecError> {
    let (in_r, in_w) = io::pipe().map_err(failed)?;
    let (out_r, out_w) = io::pipe().map_err(failed)?;
    let (err_r, err_w) = io::pipe().map_err(failed)?;
    let mut stdin = pipe::Sender::from_owned_fd(OwnedFd::from(in_w)).map_err(failed)?;
    let mut stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(out_r)).map_err(failed)?;
    let mut stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(err_r)).map_err(failed)?;
    let mut session = {
        let theirs = [in_r.as_fd(), out_w.as_fd(), err_w.as_fd()];
        herdsman_shim::exec(run_file, &spec.command, false, &theirs).await.map_err(|e| exec_error(&e))?
    };
    drop((in_r, out_w, err_w));
    let feed = async {
        while let Some(message) = input.recv().await {
            match message {
                ExecInput::Data(bytes) => {
                    if stdin.write_all(&bytes).await.is_err() {
                        break; // The command reads no more.
                    }
                }
                ExecInput::Close => break,
                ExecInput::Resize { .. } => {}
            }
        }
        drop(stdin);
        // Stay with the caller: when it goes, the command does too.
        while input.recv().await.is_some() {}
    };
    let out = copy(&mut stdout, &output, ExecOutput::Stdout, ExecOutput::StdoutClosed);
    let err = copy(&mut stderr, &output, ExecOutput::Stderr, ExecOutput::StderrClosed);
    let both = async { tokio::join!(out, err) };
    finish(&mut session, feed, both).await
}

async fn copy(
    from: &mut pipe::Receiver,
    to: &mpsc::Sender<ExecOutput>,
    wrap: fn(Vec<u8>) -> ExecOutput,
    end: ExecOutput,
) {
    let mut buf = vec![0; CHUNK];
    loop {
        match from.read(&mut buf).await {
            Ok(0) | Err(_) => break,
            Ok(n) => {
                if to.send(wrap(buf.get(..n).unwrap_or_default().to_vec())).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = to.send(end).await;
}

/// Waits for the command's end and for its output, both at once. The caller
/// going away ends the command.
async fn finish<T>(
    session: &mut ExecSession,
    feed: impl Future<Output = ()>,
    drain: impl Future<Output = T>,
) -> Result<i32, ExecError> {
    /// What a command's own background children may still write after its end.
    const LINGER: std::time::Duration = std::time::Duration::from_secs(1);
    let mut feed = std::pin::pin!(feed);
    let mut drain = std::pin::pin!(drain);
    let mut drained = false;
    let code = {
        let mut end = std::pin::pin!(session.wait());
        loop {
            tokio::select! {
                code = &mut end => break code.map_err(|e| exec_error(&e)),
                _ = &mut drain, if !drained => drained = true,
                () = &mut feed => return Err(ExecError::Failed("the caller is gone".to_owned())),
            }
        }
    }?;
    if !drained {
        let _ = tokio::time::timeout(LINGER, &mut drain).await;
    }
    Ok(code)
}

/// A new terminal: its two ends.
fn terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
    let status = rustix::fs::fcntl_getfl(&master)?;
    rustix::fs::fcntl_setfl(&master, status | rustix::fs::OFlags::NONBLOCK)?;
    Ok((master, slave))
}

async fn on_terminal(
    run_file: &std::path::Path,
    spec: &ExecSpec,
    mut input: mpsc::Receiver<ExecInput>,
    output: mpsc::Sender<ExecOutput>,
) -> Result<i32, ExecError> {
    let (master, slave) = terminal().map_err(failed)?;
    let size_of = master.try_clone().map_err(failed)?;
    // The pipe types read and write anything that can be waited for; the check
    // they skip is that it is a pipe.
    let mut reader = pipe::Receiver::from_owned_fd_unchecked(master.try_clone().map_err(failed)?).map_err(failed)?;
    let mut writer = pipe::Sender::from_owned_fd_unchecked(master).map_err(failed)?;
    let mut session = {
        let theirs = [slave.as_fd()];
        herdsman_shim::exec(run_file, &spec.command, true, &theirs).await.map_err(|e| exec_error(&e))?
    };
    drop(slave);
    let feed = async {
        while let Some(message) = input.recv().await {
            let bytes = match message {
                ExecInput::Data(bytes) => bytes,
                ExecInput::Close => vec![4], // End of input on a terminal is a character.
                ExecInput::Resize { rows, cols } => {
                    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
                    let _ = rustix::termios::tcsetwinsize(&size_of, size);
                    continue;
                }
            };
            // Fails when the command is gone, which is noticed elsewhere.
            let _ = writer.write_all(&bytes).await;
        }
    };
    // A terminal whose other end is closed reads as an error.
    let drain = copy(&mut reader, &output, ExecOutput::Stdout, ExecOutput::StdoutClosed);
    finish(&mut session, feed, drain).await
}
