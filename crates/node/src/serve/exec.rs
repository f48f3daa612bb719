//! Running a command beside a task.

use super::bulk::ask;
use super::channel::{Channel, Refusal};
use crate::alloc::{AllocHandle, Msg};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use herdsman_drivers::{ExecInput, ExecOutput, ExecSpec};
use herdsman_proto::BulkMessage;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Pieces of input or output that may wait.
const QUEUE: usize = 16;

/// A frame from the caller, as on the public websocket. Empty: a sign of life.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input {
    stdin: Option<Stream>,
    tty_size: Option<Size>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stream {
    data: String,
    close: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Size {
    height: u16,
    width: u16,
}

/// Runs a command and moves its input and output.
pub async fn run(
    channel: &mut Channel,
    handle: &AllocHandle,
    task: String,
    command: Vec<String>,
    tty: bool,
) -> Result<(), Refusal> {
    if task.is_empty() {
        return Err(Refusal::bad("task name is not present"));
    }
    if command.is_empty() {
        return Err(Refusal::bad("command is not present"));
    }
    let mut running = ask(handle, |reply| Msg::Running { task, reply }).await?;
    let (_, (driver, task_handle)) = running.pop().ok_or_else(|| Refusal::failed("Task not running"))?;
    let (input, input_receiver) = mpsc::channel(QUEUE);
    let (output_sender, mut output) = mpsc::channel(QUEUE);
    let execution = driver.exec(&task_handle, ExecSpec { command, tty }, input_receiver, output_sender);
    tokio::pin!(execution);
    let mut input = Some(input);
    let mut code = None;
    loop {
        tokio::select! {
            result = &mut execution, if code.is_none() => {
                code = Some(result.map_err(|error| Refusal::failed(error.to_string()))?);
            }
            piece = output.recv() => match piece {
                Some(piece) => channel.json(&frame(piece)).await?,
                // All output was sent: the command's end is known, or comes with the next turn.
                None => break,
            },
            message = channel.next() => match message? {
                Some(BulkMessage::Data(bytes)) => take(&bytes, &mut input).await?,
                Some(_) => {}
                // The caller is gone: dropping the execution ends the command.
                None => return Ok(()),
            },
        }
    }
    let code = match code {
        Some(code) => code,
        None => execution.await.map_err(|error| Refusal::failed(error.to_string()))?,
    };
    let result = if code == 0 { json!({}) } else { json!({ "exit_code": code }) };
    Ok(channel.json(&json!({ "exited": true, "result": result })).await?)
}

/// Passes a frame of the caller on.
async fn take(bytes: &[u8], input: &mut Option<mpsc::Sender<ExecInput>>) -> Result<(), Refusal> {
    let frame: Input = serde_json::from_slice(bytes).map_err(|error| Refusal::bad(format!("exec frame: {error}")))?;
    let mut pieces = Vec::new();
    if let Some(size) = frame.tty_size {
        pieces.push(ExecInput::Resize { rows: size.height, cols: size.width });
    }
    if let Some(stdin) = frame.stdin {
        if !stdin.data.is_empty() {
            let data = STANDARD.decode(&stdin.data).map_err(|error| Refusal::bad(format!("exec frame: {error}")))?;
            pieces.push(ExecInput::Data(data));
        }
        if stdin.close {
            pieces.push(ExecInput::Close);
        }
    }
    if let Some(sender) = input {
        for piece in pieces {
            if sender.send(piece).await.is_err() {
                // The command reads no more.
                *input = None;
                break;
            }
        }
    }
    Ok(())
}

fn frame(piece: ExecOutput) -> Value {
    match piece {
        ExecOutput::Stdout(bytes) => json!({ "stdout": { "data": STANDARD.encode(bytes) } }),
        ExecOutput::Stderr(bytes) => json!({ "stderr": { "data": STANDARD.encode(bytes) } }),
        ExecOutput::StdoutClosed => json!({ "stdout": { "close": true } }),
        ExecOutput::StderrClosed => json!({ "stderr": { "close": true } }),
    }
}
