//! Checks of native services: probing, the results, and restarts they ask for.
//!
//! The first probe comes half an interval after the service was registered, then one each interval.

use crate::env::join;
use crate::tls;
use herdsman_lifecycle::health::{CheckStatus, CheckView};
use herdsman_model::{Check, Name, Nanos};
use herdsman_world::World;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Bytes kept of what a check says.
const OUTPUT_BYTES: usize = 3 * 1024;
/// Bytes read of an answer: status line, headers and what is kept of the body.
const ANSWER_BYTES: u64 = 16 * 1024;
/// Interval and timeout of a check that sets none.
const DEFAULT_TIME: Duration = Duration::from_secs(10);

/// A result as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CheckResult {
    #[serde(rename = "ID")]
    pub id: String,
    pub mode: &'static str,
    pub status: CheckStatus,
    /// Seconds since the Unix epoch.
    pub timestamp: i64,
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task: String,
    pub service: String,
    pub check: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub status_code: u16,
    pub output: String,
}

fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// Results of one allocation.
#[derive(Default)]
pub struct Board(Mutex<BTreeMap<String, CheckResult>>);

impl Board {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, CheckResult>> {
        // A holder never leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn results(&self) -> BTreeMap<String, CheckResult> {
        self.lock().clone()
    }

    /// What health sees of them.
    pub fn views(&self) -> Vec<CheckView> {
        let view = |result: &CheckResult| CheckView { status: result.status, ignore_failure: result.mode == READINESS };
        self.lock().values().map(view).collect()
    }

    fn put(&self, result: CheckResult) {
        self.lock().insert(result.id.clone(), result);
    }

    fn remove(&self, id: &str) {
        self.lock().remove(id);
    }
}

const READINESS: &str = "readiness";

/// What a check task reports to its allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckNews {
    /// A result changed.
    Changed,
    /// A task is to be restarted; none: those the group's service stands for.
    Restart { task: Option<Name>, reason: String },
}

/// One check to run.
pub struct CheckPlan {
    pub id: String,
    pub check: Check,
    pub address: String,
    pub port: i64,
    /// Allocation name, as results show it.
    pub group: String,
    pub task: Option<Name>,
    pub service: String,
}

/// The id of a check: the same for the same check of the same allocation.
pub fn check_id(alloc: &str, owner: &str, service: &str, check: &Check) -> String {
    let mut hash = Sha256::new();
    let port = &check.port_label;
    for part in [alloc, owner, service, &check.name, &check.kind, &check.path, &check.method, port, &check.protocol] {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.update(check.interval.to_le_bytes());
    let mut text = String::new();
    for byte in hash.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn span(nanos: Nanos) -> Duration {
    u64::try_from(nanos).ok().filter(|n| *n > 0).map_or(DEFAULT_TIME, Duration::from_nanos)
}

/// Runs one check until it is dropped.
pub async fn run(plan: CheckPlan, world: World, board: Arc<Board>, news: mpsc::Sender<CheckNews>) {
    let mode = if plan.check.on_update == "ignore" { READINESS } else { "healthiness" };
    let mut result = CheckResult {
        id: plan.id.clone(),
        mode,
        status: CheckStatus::Pending,
        timestamp: world.clock.now().secs(),
        group: plan.group.clone(),
        task: plan.task.as_deref().unwrap_or_default().to_string(),
        service: plan.service.clone(),
        check: plan.check.name.clone(),
        status_code: 0,
        output: "nomad: waiting to run".into(),
    };
    board.put(result.clone());
    let _remove = RemoveLater { board: Arc::clone(&board), id: plan.id.clone() };
    let interval = span(plan.check.interval);
    let begun = world.clock.monotonic();
    let mut failing_since = None;
    let mut wait = interval / 2;
    loop {
        world.clock.sleep(wait).await;
        wait = interval;
        let probe = tokio::time::timeout(span(plan.check.timeout), probe(&plan, &world));
        let (status, code, output) = probe.await.unwrap_or_else(|_| {
            (CheckStatus::Failure, 0, format!("nomad: no answer within {:?}", span(plan.check.timeout)))
        });
        let changed = status != result.status;
        result = CheckResult { status, status_code: code, output, timestamp: world.clock.now().secs(), ..result };
        board.put(result.clone());
        if changed && news.send(CheckNews::Changed).await.is_err() {
            return;
        }
        if let Some(restart) = &plan.check.check_restart
            && restart.limit > 0
        {
            let now = world.clock.monotonic();
            let grace = Duration::from_nanos(u64::try_from(restart.grace).unwrap_or(0));
            if status == CheckStatus::Success || now.since(begun) < grace {
                failing_since = None;
                continue;
            }
            let since = *failing_since.get_or_insert(now);
            let times = u32::try_from(restart.limit - 1).unwrap_or(u32::MAX);
            if now.since(since) >= interval.saturating_mul(times) {
                let reason = format!("healthcheck: check {:?} unhealthy", plan.check.name);
                // The check is made anew when the task registers again.
                let _ = news.send(CheckNews::Restart { task: plan.task.clone(), reason }).await;
                return std::future::pending().await;
            }
        }
    }
}

/// Takes a result away when its check ends.
struct RemoveLater {
    board: Arc<Board>,
    id: String,
}

impl Drop for RemoveLater {
    fn drop(&mut self) {
        self.board.remove(&self.id);
    }
}

async fn probe(plan: &CheckPlan, world: &World) -> (CheckStatus, u16, String) {
    let target = join(&plan.address, plan.port);
    match plan.check.kind.as_str() {
        "http" => match http(plan, world, &target).await {
            Ok((code @ 200, _)) => (CheckStatus::Success, code, "nomad: http ok".into()),
            Ok((code, body)) if code < 400 => (CheckStatus::Success, code, body),
            Ok((code, body)) => (CheckStatus::Failure, code, body),
            Err(error) => (CheckStatus::Failure, 0, format!("nomad: {error}")),
        },
        "tcp" => match world.net.connect(&target).await {
            Ok(_) => (CheckStatus::Success, 0, "nomad: tcp ok".into()),
            Err(error) => (CheckStatus::Failure, 0, format!("nomad: {error}")),
        },
        other => (CheckStatus::Failure, 0, format!("nomad: check type {other:?} is not run by the native provider")),
    }
}

/// One request on one connection; gives status and the beginning of the body.
async fn http(plan: &CheckPlan, world: &World, target: &str) -> std::io::Result<(u16, String)> {
    let check = &plan.check;
    let method = if check.method.is_empty() { "GET" } else { check.method.as_str() };
    let path = if check.path.starts_with('/') { check.path.clone() } else { format!("/{}", check.path) };
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n");
    for (name, values) in check.header.iter() {
        for value in values {
            request.push_str(&one_line(&format!("{name}: {value}")));
            request.push_str("\r\n");
        }
    }
    if !check.body.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(request, "Content-Length: {}\r\n", check.body.len());
    }
    request.push_str("\r\n");
    request.push_str(&check.body);
    let stream = world.net.connect(target).await?;
    let answer = if check.protocol == "https" {
        let name = if check.tls_server_name.is_empty() { &plan.address } else { &check.tls_server_name };
        exchange(tls::connect(stream, name, check.tls_skip_verify).await?, &request).await?
    } else {
        exchange(stream, &request).await?
    };
    let text = String::from_utf8_lossy(&answer);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    let invalid = || std::io::Error::new(std::io::ErrorKind::InvalidData, "the answer is not HTTP");
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    Ok((status.ok_or_else(invalid)?, cut(body)))
}

/// Sends a request and reads what is kept of the answer.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES).read_to_end(&mut answer).await {
        // Many servers close without the end of a secure connection; the answer itself says whether it is one.
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

/// A header cannot hold a line break.
fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(OUTPUT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_string()
}
