//! What a run sees: allocations and the job by blocking reads, logs by streams.

use herdsman_client::{Client, Query, encode_segment};
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// How long one blocking read waits.
const WAIT: Duration = Duration::from_secs(60);

/// How long a follower waits after the agent did not answer.
const RETRY: Duration = Duration::from_millis(200);

/// The longest line of a log that is shown in one piece, bytes.
const MAX_LINE: usize = 16 * 1024;

/// Something a run saw.
#[derive(Debug)]
pub enum Seen {
    /// The allocations of the job, as lists show them.
    Allocations(Value),
    /// The job, its newest deployment and its evaluations.
    Job { job: Value, deployment: Value, evaluations: Value },
    /// A line of a task's log.
    Line { task: String, is_error: bool, text: String },
    /// A log came to its end.
    LogEnded,
}

/// Follows the allocations of a job until nobody listens.
pub async fn follow_allocations(client: Client, path: String, sender: Sender<Seen>) {
    let mut index = 0;
    loop {
        let query = Query::none().after(index, WAIT).with("all", "false");
        match client.get::<Value>(&format!("{path}/allocations"), &query).await {
            Ok((allocations, meta)) => {
                index = meta.index.max(1);
                if sender.send(Seen::Allocations(allocations)).await.is_err() {
                    return;
                }
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Follows evaluations, and with them the job and its deployment, until nobody listens.
pub async fn follow_job(client: Client, path: String, sender: Sender<Seen>) {
    let mut index = 0;
    loop {
        let query = Query::none().after(index, WAIT);
        let job = match client.get::<Value>(&path, &query).await {
            Ok((job, meta)) => {
                index = meta.index.max(1);
                job
            }
            Err(_) => {
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let read = |what: &'static str| {
            let (client, path) = (client.clone(), format!("{path}/{what}"));
            async move { client.get::<Value>(&path, &Query::none()).await.map(|(v, _)| v).unwrap_or_default() }
        };
        let seen = Seen::Job { job, deployment: read("deployment").await, evaluations: read("evaluations").await };
        if sender.send(seen).await.is_err() {
            return;
        }
    }
}

/// Follows one log of a task from its beginning to the task's end.
pub async fn follow_log(client: Client, alloc: String, task: String, is_error: bool, sender: Sender<Seen>) {
    let kind = if is_error { "stderr" } else { "stdout" };
    let path = format!("/v1/client/fs/logs/{}", encode_segment(&alloc));
    let query = Query::none()
        .with("task", task.as_str())
        .with("type", kind)
        .with("follow", "true")
        .with("plain", "true")
        .with("origin", "start");
    if let Ok(mut stream) = client.stream("GET", &path, &query, None).await {
        let mut rest: Vec<u8> = Vec::new();
        while let Ok(Some(piece)) = stream.next().await {
            rest.extend_from_slice(&piece);
            while let Some(end) = rest.iter().position(|b| *b == b'\n').or((rest.len() > MAX_LINE).then_some(MAX_LINE))
            {
                let line: Vec<u8> = rest.drain(..=end.min(rest.len() - 1)).collect();
                let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_string();
                if sender.send(Seen::Line { task: task.clone(), is_error, text }).await.is_err() {
                    return;
                }
            }
        }
        if !rest.is_empty() {
            let text = String::from_utf8_lossy(&rest).into_owned();
            let _ = sender.send(Seen::Line { task: task.clone(), is_error, text }).await;
        }
    }
    let _ = sender.send(Seen::LogEnded).await;
}
