//! Processes of the binary, and asking them things through its own command line.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything that happens by itself may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The binary under test.
pub fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_herdsman"))
}

/// Runs the binary to its end.
pub fn herdsman(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).env_remove("NOMAD_ADDR").stdin(Stdio::null()).output().unwrap()
}

/// The text a process printed.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The errors a process printed.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until something holds and gives what it found.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ports that nobody listens on right now.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let held: Vec<_> = (0..N).map(|_| std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap()).collect();
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr().unwrap().port();
    }
    ports
}

/// The API of an agent, asked through the command line.
pub struct Api {
    pub http: u16,
}

/// A running agent; killed when it is dropped.
pub struct Agent {
    child: Child,
    api: Api,
}

impl std::ops::Deref for Agent {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Agent {
    /// Starts an agent with this configuration file; its API listens on `http`.
    pub fn start(config: &Path, http: u16) -> Agent {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(config.with_extension("log")).unwrap();
        let child = Command::new(binary())
            .args(["agent", "-config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Agent { child, api: Api { http } }
    }

    /// Kills the agent at once, as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends the agent a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends the agent a signal and waits for its end; gives the exit status.
    pub fn end(mut self, signal: rustix::process::Signal) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }
}

impl Api {
    /// Waits until the API shows a ready node.
    pub fn wait_ready(&self) {
        eventually("a ready node", || {
            let nodes = self.try_get("/v1/nodes")?;
            nodes.as_array()?.iter().any(|n| n["Status"] == "ready").then_some(())
        });
    }

    /// Runs a command against this agent.
    pub fn command(&self, arguments: &[&str]) -> Output {
        Command::new(binary())
            .args(arguments)
            .env("NOMAD_ADDR", format!("http://127.0.0.1:{}", self.http))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Reads JSON of the API; none while it does not answer.
    pub fn try_get(&self, path: &str) -> Option<Value> {
        let output = self.command(&["operator", "api", path]);
        if !output.status.success() {
            return None;
        }
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Reads JSON of the API.
    pub fn get(&self, path: &str) -> Value {
        self.try_get(path).unwrap_or_else(|| panic!("{path} does not answer"))
    }

    /// The allocations of a job once every one of them is in this state, and there are some.
    pub fn allocs_in(&self, job: &str, status: &str) -> Vec<Value> {
        eventually(&format!("{job} {status}"), || {
            let found = self.try_get(&format!("/v1/job/{job}/allocations"))?;
            let all = found.as_array()?.clone();
            (!all.is_empty() && all.iter().all(|a| a["ClientStatus"] == status)).then_some(all)
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the configuration of an agent that is server and node, with raw_exec; gives its path and HTTP port.
pub fn write_config(folder: &Path) -> (PathBuf, u16) {
    let [http, rpc] = free_ports();
    let path = folder.join("agent.hcl");
    let data = folder.join("data");
    let text = format!(
        r#"
data_dir  = "{}"
bind_addr = "127.0.0.1"
log_level = "DEBUG"
ports {{
  http = {http}
  rpc  = {rpc}
}}
server {{
  enabled = true
}}
client {{
  enabled = true
}}
plugin "raw_exec" {{
  config {{
    enabled = true
  }}
}}
"#,
        data.display()
    );
    std::fs::write(&path, text).unwrap();
    (path, http)
}

/// Writes a job file.
pub fn write_job(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(format!("{name}.nomad.hcl"));
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

/// A raw_exec task of a job file. An empty hook makes it a main task; the arguments are as the file has them.
pub fn task(name: &str, hook: &str, command: &str, arguments: &[&str]) -> String {
    let lifecycle = if hook.is_empty() { String::new() } else { format!("lifecycle {{\n hook = \"{hook}\"\n}}\n") };
    format!(
        "task \"{name}\" {{\n driver = \"raw_exec\"\n {lifecycle} config {{\n command = \"{command}\"\n args = {arguments:?}\n}}\n}}\n"
    )
}

/// What a group says whose tasks run once, however they end.
pub const ONCE: &str = r#"
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
"#;
