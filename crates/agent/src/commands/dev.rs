//! `run -dev`: a job file on a server and node of its own in this process.

use crate::config::settings::Settings;
use crate::devrun::{self, EXIT_BAD_FILE};
use crate::log::Log;
use crate::reload::Reloader;
use crate::start::Agent;
use herdsman_cli::{Call, Failure, jobfile};
use herdsman_client::{Client, Options, Query};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Interrupts that wait; more than two mean nothing more.
const INTERRUPTS: usize = 4;

/// How long the node of this process may take to be ready for work.
const NODE_LIMIT: Duration = Duration::from_secs(60);

/// Runs the command.
pub async fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let path = call.one_word()?.to_string();
    let file = match jobfile::read(call, &path).await {
        Ok(file) => file,
        Err(failure) => return Err(Failure::with_exit(EXIT_BAD_FILE, failure.message)),
    };
    let settings = settings(call).map_err(Failure::new)?;
    let log = Log::open(&settings.log).map_err(|e| Failure::new(format!("the log cannot be opened: {e}")))?;
    log.install().map_err(Failure::new)?;
    let interrupts = interrupts().map_err(|e| Failure::new(format!("signals cannot be waited for: {e}")))?;
    let agent = Agent::start(settings, log, Reloader::none())
        .await
        .map_err(|e| Failure::new(format!("Error starting agent: {e}")))?;
    let client = Client::new(&format!("http://{}", agent.http_addr()), Options::default())
        .map_err(|e| Failure::new(e.to_string()))?;
    let exit = match node_ready(&client).await {
        Ok(()) => devrun::run(&client, &file.job, file.submission, call.terminal, interrupts)
            .await
            .map_err(|e| Failure::new(e.to_string())),
        Err(failure) => Err(failure),
    };
    agent.shutdown(true, std::future::pending()).await;
    exit
}

/// Waits for the node: to a job that comes before it, this machine would look full.
async fn node_ready(client: &Client) -> Result<(), Failure> {
    let wait = async {
        let mut index = 0;
        loop {
            let query = Query::none().after(index, NODE_LIMIT);
            let (nodes, meta) =
                client.get::<Value>("/v1/nodes", &query).await.map_err(|e| Failure::new(e.to_string()))?;
            if nodes.as_array().is_some_and(|all| all.iter().any(|node| node["Status"] == "ready")) {
                return Ok(());
            }
            index = meta.index.max(1);
        }
    };
    tokio::time::timeout(NODE_LIMIT, wait).await.unwrap_or_else(|_| {
        Err(Failure::new(format!(
            "the node of this process was not ready within {} s; run again with -verbose to see its log",
            NODE_LIMIT.as_secs()
        )))
    })
}

/// Development settings on free ports, silent unless somebody wants the agent's own log.
fn settings(call: &Call<'_>) -> Result<Settings, String> {
    let level = if call.flags.on("verbose") { call.flags.text("log-level").unwrap_or("INFO") } else { "OFF" };
    let tree = json!({"log_level": level, "ports": {"http": 0, "rpc": 0}});
    let tree: Map<_, _> = tree.as_object().cloned().unwrap_or_default();
    Settings::read(&tree, true).map_err(|e| e.to_string())
}

/// Each Ctrl-C, and each request to end.
fn interrupts() -> std::io::Result<mpsc::Receiver<()>> {
    let (sender, receiver) = mpsc::channel(INTERRUPTS);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if sender.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}
