//! `agent`: configuration, start, signals, end.

use crate::config::files::{self, Loaded, combine};
use crate::config::settings::Settings;
use crate::config::{flags, hcl, tree};
use crate::log::Log;
use crate::notify;
use crate::reload::{Configuration, Reloader};
use crate::start::Agent;
use herdsman_cli::{Call, Failure};
use std::path::{Path, PathBuf};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How the configuration was given, so that it can be read again.
#[derive(Clone)]
struct Given {
    paths: Vec<PathBuf>,
    flags: serde_json::Map<String, serde_json::Value>,
    dev: bool,
}

impl Given {
    fn read(&self) -> Result<Configuration, String> {
        let mut all: Vec<Loaded> = Vec::new();
        for path in &self.paths {
            all.extend(files::load(path, hcl::read).map_err(|e| e.to_string())?);
        }
        let findings = tree::check(&self.flags);
        let (path, tree) = (PathBuf::from("command line"), self.flags.clone());
        all.push(Loaded { path, tree, findings, lines: hcl::Lines::new() });
        let errors: Vec<String> = all.iter().flat_map(files::errors).collect();
        if !errors.is_empty() {
            return Err(errors.join("\n"));
        }
        let warnings = all.iter().flat_map(files::warnings).collect();
        let tree = combine(&all);
        let settings = Settings::read(&tree, self.dev).map_err(|e| {
            // The last file that says it is the one that counts.
            let place = all.iter().rev().find(|file| file.has(&e.path)).map(|file| file.place(&e.path));
            place.map_or_else(|| e.to_string(), |place| format!("{place}: {e}"))
        })?;
        if settings.server.is_none() && settings.client.is_none() {
            return Err("Must specify either server, client or dev mode for the agent.".to_string());
        }
        Ok(Configuration { tree, settings, warnings })
    }
}

/// What systemd shows of an agent that runs.
const RUNNING: &str = "running";

/// Why the agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Interrupt,
    Terminate,
}

/// Runs the command.
pub async fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    if let Some(word) = call.flags.words.first() {
        return Err(Failure::new(format!("agent takes no arguments, found {word:?}; files are given with -config")));
    }
    let given = Given {
        paths: call.flags.texts("config").iter().map(PathBuf::from).collect(),
        flags: flags::tree(&call.flags).map_err(Failure::new)?,
        dev: call.flags.on("dev"),
    };
    let started = given.read().map_err(Failure::new)?;
    let log = Log::open(&started.settings.log).map_err(|e| Failure::new(format!("the log cannot be opened: {e}")))?;
    log.install().map_err(Failure::new)?;
    for path in &given.paths {
        tracing::info!(target: "agent", path = %path.display(), "configuration read");
    }
    for warning in &started.warnings {
        tracing::warn!(target: "agent", "{warning}");
    }
    let reloader = Reloader::new(&started, Box::new(move || given.read()));
    let mut signals = Signals::listen().map_err(|e| Failure::new(format!("signals cannot be waited for: {e}")))?;
    let agent = Agent::start(started.settings, log, reloader)
        .await
        .map_err(|e| Failure::new(format!("Error starting agent: {e}")))?;
    for line in agent.banner() {
        call.terminal.line(line);
    }
    notify::ready(RUNNING);
    let life = tokio::spawn(notify::live());
    let end = signals.wait(&agent).await;
    notify::stopping();
    let graceful = match end {
        End::Interrupt => agent.settings().leave_on_interrupt,
        End::Terminate => agent.settings().leave_on_terminate,
    };
    let whole = agent.shutdown(graceful, signals.again()).await;
    life.abort();
    Ok(u8::from(!(graceful && whole)))
}

/// Signals that mean something to the agent.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    pipe: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            pipe: signal(SignalKind::pipe())?,
        })
    }

    async fn wait(&mut self, agent: &Agent) -> End {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return End::Interrupt,
                _ = self.terminate.recv() => return End::Terminate,
                _ = self.hangup.recv() => {
                    notify::reloading();
                    let status = match agent.reload() {
                        Ok(()) => RUNNING,
                        Err(error) => {
                            tracing::error!(target: "agent", "the configuration was not read again, the old one stays: {error}");
                            "running; the configuration was not read again, the log says why"
                        }
                    };
                    notify::ready(status);
                }
                _ = self.pipe.recv() => {}
            }
        }
    }

    /// Until the agent is told once more to end.
    async fn again(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Reads configurations as an agent would, together; for `config validate` and `check`.
pub fn try_paths(paths: &[&Path]) -> Result<Vec<String>, String> {
    let given =
        Given { paths: paths.iter().map(|p| p.to_path_buf()).collect(), flags: serde_json::Map::new(), dev: false };
    given.read().map(|ready| ready.warnings)
}
