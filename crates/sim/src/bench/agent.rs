//! An agent process of the measurement's own.

use anyhow::{Context, Result, bail};
use herdsman_client::{Client, Options, Query};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the measurement gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running agent: server and node in one process, durable, on loopback.
pub struct Agent {
    child: Child,
    pub folder: PathBuf,
    pub client: Client,
}

/// Ports that nobody listens on right now.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

impl Agent {
    /// Starts an agent; gives it and how long it took until its node was ready.
    pub async fn start(binary: &Path, folder: &Path) -> Result<(Agent, Duration)> {
        let [http, rpc, serf] = free_ports()?;
        let config = json!({
            "data_dir": folder.join("data"),
            "bind_addr": "127.0.0.1",
            "log_level": "WARN",
            "ports": {"http": http, "rpc": rpc, "serf": serf},
            "server": {"enabled": true, "bootstrap_expect": 1, "job_gc_interval": "1h"},
            "client": {"enabled": true, "gc_max_allocs": 100_000, "gc_disk_usage_threshold": 99, "servers": [format!("127.0.0.1:{rpc}")]},
            "plugin": {"raw_exec": {"config": {"enabled": true}}},
        });
        let file = folder.join("agent.json");
        std::fs::write(&file, serde_json::to_vec(&config)?)?;
        let log = std::fs::File::create(folder.join("agent.log"))?;
        let start = Instant::now();
        let child = Command::new(binary)
            .arg("agent")
            .arg("-config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} could not be started", binary.display()))?;
        let client = Client::new(&format!("http://127.0.0.1:{http}"), Options::default())?;
        let mut agent = Agent { child, folder: folder.to_path_buf(), client };
        agent.wait_ready(start).await?;
        Ok((agent, start.elapsed()))
    }

    async fn wait_ready(&mut self, start: Instant) -> Result<()> {
        loop {
            if let Ok((nodes, _)) = self.client.get::<Value>("/v1/nodes", &Query::none()).await
                && nodes.as_array().is_some_and(|n| n.iter().any(|n| n["Status"] == "ready"))
            {
                return Ok(());
            }
            if start.elapsed() > PATIENCE || self.child.try_wait()?.is_some() {
                let log = std::fs::read_to_string(self.folder.join("agent.log")).unwrap_or_default();
                bail!("the agent did not become ready; its log:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The process id of the agent.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the agent.
    pub fn stop(mut self) -> Result<()> {
        if let Some(pid) = rustix::process::Pid::from_raw(i32::try_from(self.child.id())?) {
            rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        }
        let end = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
