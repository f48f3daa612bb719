//! Talking to a shim over its control socket.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use crate::codec::Message;
use crate::host::{Attached, ShimError, attach, reach_shim};
use crate::messages::{ExecExit, ExecRequest, ExitRecord, Failure, PidRecord, ShimStats, SignalRequest, kind};
use crate::wire;

/// How long a shim may take to answer a small request. Long, because it may be
/// waiting for a disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Tries while a socket's queue is full, each [`QUEUE_WAIT`] apart.
const QUEUE_TRIES: u32 = 2000;
const QUEUE_WAIT: Duration = Duration::from_millis(5);

/// The task's shim is gone without an exit record: it was killed, or the
/// machine was started anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost(pub PidRecord);

/// Connects to a socket in a directory whose path may be longer than a socket
/// address can be.
pub(crate) async fn connect(dir: &Path, name: &str) -> io::Result<UnixStream> {
    let fd = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{name}", fd.as_raw_fd());
    for _ in 0..QUEUE_TRIES {
        match UnixStream::connect(&path).await {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(QUEUE_WAIT).await,
            other => return other,
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the queue of the socket stays full"))
}

/// Reads one frame; none at the end of the stream.
pub(crate) async fn read_frame(stream: &mut UnixStream, buf: &mut Vec<u8>) -> io::Result<Option<(u8, Vec<u8>)>> {
    loop {
        let bad = |e: wire::WireError| io::Error::new(io::ErrorKind::InvalidData, e);
        if let Some((frame_kind, body, len)) = wire::take_frame(buf).map_err(bad)? {
            let body = body.to_vec();
            buf.drain(..len);
            return Ok(Some((frame_kind, body)));
        }
        if stream.read_buf(buf).await? == 0 {
            return Ok(None);
        }
    }
}

/// The task ended between our question and its answer.
fn gone_or(e: io::Error) -> ShimError {
    match e.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ShimError::Gone,
        _ => ShimError::Talk(e),
    }
}

/// One question, one answer.
async fn ask(run_file: &Path, frame_kind: u8, body: &[u8]) -> Result<(u8, Vec<u8>), ShimError> {
    let talk = async {
        let mut stream = reach_shim(run_file).await?;
        stream.write_all(&wire::frame(frame_kind, body)).await.map_err(gone_or)?;
        read_frame(&mut stream, &mut Vec::new()).await.map_err(gone_or)?.ok_or(ShimError::Gone)
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, talk).await {
        Ok(answer) => answer,
        Err(_) => Err(ShimError::Talk(io::ErrorKind::TimedOut.into())),
    }
}

fn done(answer: (u8, Vec<u8>)) -> Result<(), ShimError> {
    match answer {
        (kind::OK, _) => Ok(()),
        (_, body) => Err(ShimError::Refused(Failure::decode(&body)?)),
    }
}

/// Sends a signal to the task: to its first process, or with `group` to its
/// process group.
///
/// # Errors
/// [`ShimError::Gone`] when the task is over.
pub async fn signal(run_file: &Path, signal: i32, group: bool) -> Result<(), ShimError> {
    done(ask(run_file, kind::SIGNAL, &SignalRequest { signal, group }.encode()).await?)
}

/// Kills the task and everything that belongs to it.
///
/// # Errors
/// [`ShimError::Gone`] when the task is over.
pub async fn kill(run_file: &Path) -> Result<(), ShimError> {
    done(ask(run_file, kind::KILL, &[]).await?)
}

/// Figures of the shim's own work.
///
/// # Errors
/// [`ShimError::Gone`] when the task is over.
pub async fn stats(run_file: &Path) -> Result<ShimStats, ShimError> {
    match ask(run_file, kind::STATS, &[]).await? {
        (kind::STATS_REPLY, body) => Ok(ShimStats::decode(&body)?),
        (_, body) => Err(ShimError::Refused(Failure::decode(&body)?)),
    }
}

/// A command running beside the task. Dropping it kills the command.
#[derive(Debug)]
pub struct ExecSession {
    stream: UnixStream,
    buf: Vec<u8>,
}

impl ExecSession {
    /// Waits for the command's end; its exit code, 128 plus the number when a
    /// signal ended it.
    ///
    /// # Errors
    /// [`ShimError::Gone`] when the task ended first, and the command with it.
    pub async fn wait(&mut self) -> Result<i32, ShimError> {
        loop {
            match read_frame(&mut self.stream, &mut self.buf).await {
                Ok(Some((kind::EXEC_EXITED, body))) => return Ok(ExecExit::decode(&body)?.code),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Err(ShimError::Gone),
            }
        }
    }
}

/// Runs a command beside the task, as its user, in its namespaces, cgroups and
/// working directory. `streams` are standard input, output and error, or one
/// terminal if `tty`.
///
/// # Errors
/// [`ShimError::Refused`] when it cannot be executed, [`ShimError::Gone`] when
/// the task is over.
pub async fn exec(
    run_file: &Path,
    argv: &[String],
    tty: bool,
    streams: &[BorrowedFd<'_>],
) -> Result<ExecSession, ShimError> {
    let argv = argv.iter().map(|a| a.clone().into_bytes()).collect();
    let frame = wire::frame(kind::EXEC, &ExecRequest { argv, tty }.encode());
    let mut stream = reach_shim(run_file).await?;
    let sent = stream
        .async_io(Interest::WRITABLE, || {
            // Room for three descriptors, as u64 for the alignment.
            let mut space = [std::mem::MaybeUninit::<u8>::uninit(); 64];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !control.push(SendAncillaryMessage::ScmRights(streams)) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many streams"));
            }
            let data = [IoSlice::new(&frame)];
            Ok(sendmsg(stream.as_fd(), &data, &mut control, SendFlags::NOSIGNAL)?)
        })
        .await
        .map_err(ShimError::Talk)?;
    stream.write_all(frame.get(sent..).unwrap_or_default()).await.map_err(ShimError::Talk)?;
    let mut buf = Vec::new();
    match read_frame(&mut stream, &mut buf).await.map_err(ShimError::Talk)? {
        Some((kind::OK, _)) => Ok(ExecSession { stream, buf }),
        Some((_, body)) => Err(ShimError::Refused(Failure::decode(&body)?)),
        None => Err(ShimError::Gone),
    }
}

/// Waits for the end of a task.
#[derive(Debug)]
pub struct ExitWait {
    pub(crate) run_file: PathBuf,
    pub(crate) stream: Option<UnixStream>,
    pub(crate) buf: Vec<u8>,
}

impl ExitWait {
    /// Until the task has ended, or its shim is lost. May be called again after
    /// it was cancelled.
    ///
    /// # Errors
    /// [`Lost`] when nobody can tell how the task ended.
    pub async fn wait(&mut self) -> Result<ExitRecord, Lost> {
        loop {
            if let Some(stream) = &mut self.stream {
                match read_frame(stream, &mut self.buf).await {
                    Ok(Some((kind::EXITED, body))) => {
                        if let Ok(record) = ExitRecord::decode(&body) {
                            return Ok(record);
                        }
                    }
                    Ok(Some(_)) => continue,
                    Ok(None) | Err(_) => {}
                }
                self.stream = None;
            }
            match attach(&self.run_file).await {
                Ok(Attached::Exited(record)) => return Ok(record),
                Ok(Attached::Lost(record)) => return Err(Lost(record)),
                Ok(Attached::Absent) => return Err(Lost(PidRecord::default())),
                Ok(Attached::Running(_, again)) => {
                    self.stream = again.stream;
                    self.buf = again.buf;
                }
                Err(error) => {
                    tracing::warn!(%error, run_file = %self.run_file.display(), "cannot reach a task's shim; trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}
