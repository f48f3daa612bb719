//! Commands beside a task: the engine runs them, bytes go over one connection.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::client::{Engine, EngineError, Frames};
use crate::driver::ExecError;
use crate::streams::{ExecInput, ExecOutput, ExecSpec};

/// Bytes moved at once.
const CHUNK: usize = 8 << 10;
/// How often and how long to ask for the exit code after the output's end.
const CODE_PAUSE: Duration = Duration::from_millis(20);
const CODE_LIMIT: Duration = Duration::from_secs(10);

fn failed(e: &EngineError) -> ExecError {
    match e {
        EngineError::Refused { status: 404 | 409, message }
            if message.contains("is not running") || message.contains("No such container") =>
        {
            ExecError::NotRunning
        }
        other => ExecError::Failed(other.to_string()),
    }
}

/// Ends the command unless it has ended by itself: the engine knows no call for
/// that, so its process is killed, after making sure that it is the container's.
struct Guard {
    engine: Arc<Engine>,
    container: String,
    exec: String,
    over: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.over {
            return;
        }
        let (engine, container, exec) = (Arc::clone(&self.engine), self.container.clone(), self.exec.clone());
        // Short: a question and a signal.
        runtime.spawn(async move { end(&engine, &container, &exec).await });
    }
}

async fn end(engine: &Engine, container: &str, exec: &str) {
    // A command may write before the engine knows its process.
    let started = tokio::time::Instant::now();
    while started.elapsed() < CODE_LIMIT {
        let Ok(seen) = engine.get(&format!("/exec/{exec}/json")).await else { return };
        let running = seen.get("Running").and_then(Value::as_bool) == Some(true);
        let pid = seen.get("Pid").and_then(Value::as_i64).and_then(|p| i32::try_from(p).ok());
        if let Some(pid) = pid.filter(|p| running && *p > 1).and_then(rustix::process::Pid::from_raw) {
            kill(pid, container, exec);
            return;
        }
        if seen.get("ExitCode").is_some_and(Value::is_i64) {
            return;
        }
        tokio::time::sleep(CODE_PAUSE).await;
    }
}

fn kill(pid: rustix::process::Pid, container: &str, exec: &str) {
    let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).unwrap_or_default();
    if cgroups.contains(container) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    } else {
        tracing::warn!(exec, "a command in a container goes on: its process cannot be found on this host");
    }
}

/// Runs a command in a container.
pub(crate) async fn run(
    engine: &Arc<Engine>,
    container: &str,
    spec: &ExecSpec,
    input: mpsc::Receiver<ExecInput>,
    output: mpsc::Sender<ExecOutput>,
) -> Result<i32, ExecError> {
    if spec.command.is_empty() {
        return Err(ExecError::Failed("command is not present".to_owned()));
    }
    let body = json!({
        "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Tty": spec.tty, "Cmd": spec.command,
    });
    let made = engine.post(&format!("/containers/{container}/exec"), Some(&body)).await.map_err(|e| failed(&e))?;
    let exec = made.get("Id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let guard = Guard { engine: Arc::clone(engine), container: container.to_owned(), exec: exec.clone(), over: false };
    let body = json!({ "Detach": false, "Tty": spec.tty });
    let wire = engine.upgrade(&format!("/exec/{exec}/start"), &body).await.map_err(|e| failed(&e))?;
    Box::pin(attached(guard, spec.tty, wire, input, output)).await
}

async fn attached(
    mut guard: Guard,
    tty: bool,
    wire: impl AsyncRead + AsyncWrite,
    input: mpsc::Receiver<ExecInput>,
    output: mpsc::Sender<ExecOutput>,
) -> Result<i32, ExecError> {
    let (reader, writer) = tokio::io::split(wire);
    let feed = feed(&guard.engine, &guard.exec, writer, input);
    let drain = drain(reader, tty, &output);
    tokio::select! {
        done = drain => done?,
        () = feed => return Err(ExecError::Failed("the caller is gone".to_owned())),
    }
    let code = exit_code(&guard.engine, &guard.exec).await?;
    guard.over = true;
    Ok(code)
}

/// Returns when the caller is gone.
async fn feed(engine: &Engine, exec: &str, mut writer: impl AsyncWrite + Unpin, mut input: mpsc::Receiver<ExecInput>) {
    let mut closed = false;
    while let Some(message) = input.recv().await {
        match message {
            ExecInput::Data(bytes) if !closed => {
                // The command may read no more; its output still counts.
                closed = writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err();
            }
            ExecInput::Data(_) => {}
            ExecInput::Close => {
                closed = true;
                let _ = writer.shutdown().await;
            }
            ExecInput::Resize { rows, cols } => {
                if let Err(e) = engine.post(&format!("/exec/{exec}/resize?h={rows}&w={cols}"), None).await {
                    tracing::debug!(error = %e, "cannot resize a command's terminal");
                }
            }
        }
    }
}

/// Copies the output until its end.
async fn drain(
    mut reader: impl AsyncRead + Unpin,
    tty: bool,
    output: &mpsc::Sender<ExecOutput>,
) -> Result<(), ExecError> {
    let (mut buf, mut frames) = (vec![0; CHUNK], Frames::default());
    loop {
        let n = reader.read(&mut buf).await.unwrap_or(0);
        let bytes = buf.get(..n).unwrap_or_default();
        if n == 0 {
            break;
        }
        let pieces = if tty { vec![(1, bytes.to_vec())] } else { frames.feed(bytes).map_err(|e| failed(&e))? };
        for (stream, bytes) in pieces {
            let piece = if stream == 2 { ExecOutput::Stderr(bytes) } else { ExecOutput::Stdout(bytes) };
            if output.send(piece).await.is_err() {
                return Err(ExecError::Failed("the caller is gone".to_owned()));
            }
        }
    }
    let _ = output.send(ExecOutput::StdoutClosed).await;
    if !tty {
        let _ = output.send(ExecOutput::StderrClosed).await;
    }
    Ok(())
}

/// The engine may end the output a moment before it knows the code.
async fn exit_code(engine: &Engine, exec: &str) -> Result<i32, ExecError> {
    let started = tokio::time::Instant::now();
    loop {
        let seen = engine.get(&format!("/exec/{exec}/json")).await.map_err(|e| failed(&e))?;
        let running = seen.get("Running").and_then(Value::as_bool) == Some(true);
        if let Some(code) = seen.get("ExitCode").and_then(Value::as_i64).filter(|_| !running) {
            return Ok(i32::try_from(code).unwrap_or(-1));
        }
        if started.elapsed() > CODE_LIMIT {
            return Err(ExecError::Failed("the command's exit code is not known".to_owned()));
        }
        tokio::time::sleep(CODE_PAUSE).await;
    }
}
