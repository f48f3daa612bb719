//! `mock_driver`: runs nothing and does as its configuration says. For tests
//! and simulation; tasks live in this process only.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

use crate::config::Config;
use crate::driver::{Capabilities, Driver, DriverError, ExecError, Fingerprint, FsIsolation, RecoverError, StartError};
use crate::executor::key_of;
use crate::schema::{self, ConfigError, Key, Kind, key};
use crate::stats::{TaskStats, unix_ns};
use crate::streams::{ExecInput, ExecOutput, ExecSpec};
use crate::types::{DriverNetwork, ExitResult, Handle, StartKey, TaskSpec};

/// What a mocked command does, for tasks and for commands beside them.
const COMMAND_KEYS: [Key; 10] = [
    key("run_for", Kind::Duration),
    key("exit_code", Kind::Num),
    key("exit_signal", Kind::Num),
    key("exit_err_msg", Kind::Str),
    key("stdout_string", Kind::Str),
    key("stdout_repeat", Kind::Num),
    key("stdout_repeat_duration", Kind::Duration),
    key("stderr_string", Kind::Str),
    key("stderr_repeat", Kind::Num),
    key("stderr_repeat_duration", Kind::Duration),
];

const KEYS: &[Key] = &[
    COMMAND_KEYS[0],
    COMMAND_KEYS[1],
    COMMAND_KEYS[2],
    COMMAND_KEYS[3],
    COMMAND_KEYS[4],
    COMMAND_KEYS[5],
    COMMAND_KEYS[6],
    COMMAND_KEYS[7],
    COMMAND_KEYS[8],
    COMMAND_KEYS[9],
    key("start_error", Kind::Str),
    key("start_error_recoverable", Kind::Bool),
    key("start_block_for", Kind::Duration),
    key("kill_after", Kind::Duration),
    key("plugin_exit_after", Kind::Duration),
    key("driver_ip", Kind::Str),
    key("driver_advertise", Kind::Bool),
    key("driver_port_map", Kind::Str),
    key("signal_error", Kind::Str),
    key("exec_command", Kind::Blocks(&COMMAND_KEYS)),
];

/// Repetitions of an output string.
const MAX_REPEAT: i64 = 1_000_000;

/// A task that runs nothing.
struct Mocked {
    end: watch::Sender<Option<ExitResult>>,
    kill: watch::Sender<bool>,
    config: serde_json::Value,
}

/// The driver.
#[derive(Default)]
pub struct MockDriver {
    tasks: Mutex<BTreeMap<StartKey, Arc<Mocked>>>,
}

impl std::fmt::Debug for MockDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MockDriver")
    }
}

impl MockDriver {
    /// Without tasks.
    pub fn new() -> MockDriver {
        MockDriver::default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<StartKey, Arc<Mocked>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn task(&self, handle: &Handle) -> Option<Arc<Mocked>> {
        self.lock().get(&handle.key).cloned()
    }
}

fn result(config: Config<'_>) -> ExitResult {
    let number = |key| i32::try_from(config.number(key).unwrap_or(0)).unwrap_or(-1);
    ExitResult {
        exit_code: number("exit_code"),
        signal: number("exit_signal"),
        err: config.text("exit_err_msg").filter(|t| !t.is_empty()),
        finished_ns: unix_ns(),
        ..ExitResult::default()
    }
}

/// The output of a stream, string by string with the pause before each.
fn output(config: Config<'_>, stream: &str) -> Vec<(Duration, String)> {
    let text = config.text_or_empty(&format!("{stream}_string"));
    if text.is_empty() {
        return Vec::new();
    }
    let pause = config.span(&format!("{stream}_repeat_duration")).unwrap_or_default();
    let times = config.number(&format!("{stream}_repeat")).unwrap_or(0).clamp(0, MAX_REPEAT);
    (0..=times).map(|n| (if n == 0 { Duration::ZERO } else { pause }, text.clone())).collect()
}

/// Writes the output of a task where its logs are.
async fn write_output(spec: TaskSpec, task: String) {
    let config = Config::new(&spec.config);
    let one = |stream: &'static str| {
        let (lines, path) = (output(config, stream), spec.dirs.logs.join(format!("{task}.{stream}.0")));
        async move {
            for (pause, text) in lines {
                tokio::time::sleep(pause).await;
                let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
                if let Err(error) = file.and_then(|mut f| f.write_all(text.as_bytes())) {
                    tracing::warn!(%error, path = %path.display(), "a mocked task's output cannot be written");
                    return;
                }
            }
        }
    };
    tokio::join!(one("stdout"), one("stderr"));
}

/// Lives the task's life: until it ends by itself or is killed.
async fn live(task: Arc<Mocked>, spec: TaskSpec, name: String) {
    let config = Config::new(&task.config);
    let (run_for, kill_after) =
        (config.span("run_for").unwrap_or_default(), config.span("kill_after").unwrap_or_default());
    let mut killed = task.kill.subscribe();
    let writing = tokio::spawn(write_output(spec, name));
    tokio::select! {
        () = tokio::time::sleep(run_for) => {}
        () = async { drop(killed.wait_for(|k| *k).await) } => tokio::time::sleep(kill_after).await,
    }
    if config.span("run_for").is_some_and(|d| !d.is_zero()) {
        writing.abort();
    }
    let _ = writing.await;
    task.end.send_replace(Some(result(config)));
}

#[async_trait]
impl Driver for MockDriver {
    fn name(&self) -> &'static str {
        "mock_driver"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_signals: true,
            exec: true,
            fs_isolation: FsIsolation::None,
            mounts: false,
            initiates_network: false,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        Fingerprint::healthy("mock_driver")
    }

    fn check_config(&self, config: &serde_json::Value) -> Result<(), ConfigError> {
        schema::check(KEYS, config)
    }

    async fn start(&self, spec: TaskSpec) -> Result<(Handle, Option<DriverNetwork>), StartError> {
        self.check_config(&spec.config).map_err(|e| StartError::fatal(e.to_string()))?;
        let key = key_of(&spec)?;
        let handle = self.handle(&spec).map(|h| Handle { started_ns: unix_ns(), ..h });
        let handle = handle.ok_or_else(|| StartError::fatal("the start has no key"))?;
        if self.lock().contains_key(&key) {
            return Ok((handle, None));
        }
        let config = Config::new(&spec.config);
        if let Some(block) = config.span("start_block_for") {
            tokio::time::sleep(block).await;
        }
        let error = config.text_or_empty("start_error");
        if !error.is_empty() {
            let recoverable = config.flag("start_error_recoverable").unwrap_or(false);
            return Err(StartError { recoverable, message: error });
        }
        let network = network(config)?;
        let task = Arc::new(Mocked {
            end: watch::Sender::new(None),
            kill: watch::Sender::new(false),
            config: spec.config.clone(),
        });
        self.lock().insert(key.clone(), Arc::clone(&task));
        tokio::spawn(live(task, spec, key.task));
        Ok((handle, network))
    }

    async fn recover(&self, handle: &Handle) -> Result<(), RecoverError> {
        match self.task(handle) {
            Some(_) => Ok(()),
            None => Err(RecoverError::Lost("a mocked task ends with its agent".to_owned())),
        }
    }

    async fn wait(&self, handle: &Handle) -> ExitResult {
        let Some(task) = self.task(handle) else { return ExitResult::unknown("task not found") };
        let mut end = task.end.subscribe();
        match end.wait_for(Option::is_some).await.map(|r| r.clone()) {
            Ok(Some(result)) => result,
            _ => ExitResult::unknown("task not found"),
        }
    }

    async fn stop(&self, handle: &Handle, timeout: Duration, _signal: &str) -> Result<(), DriverError> {
        let Some(task) = self.task(handle) else { return Ok(()) };
        task.kill.send_replace(true);
        if tokio::time::timeout(timeout, self.wait(handle)).await.is_err() {
            let killed = ExitResult { exit_code: 137, signal: 9, finished_ns: unix_ns(), ..ExitResult::default() };
            task.end.send_if_modified(|end| end.is_none() && end.replace(killed).is_none());
        }
        Ok(())
    }

    async fn signal(&self, handle: &Handle, _signal: &str) -> Result<(), DriverError> {
        let task = self.task(handle).ok_or(DriverError::NotRunning)?;
        if task.end.borrow().is_some() {
            return Err(DriverError::NotRunning);
        }
        match Config::new(&task.config).text("signal_error").filter(|t| !t.is_empty()) {
            Some(error) => Err(DriverError::Failed(error)),
            None => Ok(()),
        }
    }

    async fn destroy(&self, handle: &Handle, force: bool) -> Result<(), DriverError> {
        let Some(task) = self.task(handle) else { return Ok(()) };
        if task.end.borrow().is_none() {
            if !force {
                return Err(DriverError::Failed("cannot destroy running task".to_owned()));
            }
            self.stop(handle, Duration::ZERO, "").await?;
        }
        self.lock().remove(&handle.key);
        Ok(())
    }

    async fn stats(&self, handle: &Handle) -> Result<TaskStats, DriverError> {
        self.task(handle).ok_or(DriverError::NotRunning)?;
        Ok(TaskStats { timestamp_ns: unix_ns(), ..TaskStats::default() })
    }

    async fn exec(
        &self,
        handle: &Handle,
        _spec: ExecSpec,
        _input: mpsc::Receiver<ExecInput>,
        out: mpsc::Sender<ExecOutput>,
    ) -> Result<i32, ExecError> {
        let task = self.task(handle).ok_or(ExecError::NotRunning)?;
        let blocks = Config::new(&task.config).blocks("exec_command");
        let Some(command) = blocks.first().copied() else {
            return Err(ExecError::Failed("no exec_command in the task's configuration".to_owned()));
        };
        for (pause, text) in output(command, "stdout") {
            tokio::time::sleep(pause).await;
            let _ = out.send(ExecOutput::Stdout(text.into_bytes())).await;
        }
        for (pause, text) in output(command, "stderr") {
            tokio::time::sleep(pause).await;
            let _ = out.send(ExecOutput::Stderr(text.into_bytes())).await;
        }
        tokio::time::sleep(command.span("run_for").unwrap_or_default()).await;
        let end = result(command);
        match end.err {
            Some(error) => Err(ExecError::Failed(error)),
            None => Ok(end.exit_code),
        }
    }
}

/// The address the configuration asks for.
fn network(config: Config<'_>) -> Result<Option<DriverNetwork>, StartError> {
    let ip = config.text_or_empty("driver_ip");
    if ip.is_empty() {
        return Ok(None);
    }
    let mut port_map = BTreeMap::new();
    let ports = config.text_or_empty("driver_port_map");
    if !ports.is_empty() {
        let bad = || StartError::fatal(format!("malformed port map {ports:?}; expected \"label:port\""));
        let (label, port) = ports.split_once(':').ok_or_else(bad)?;
        port_map.insert(label.to_owned(), port.parse().map_err(|_| bad())?);
    }
    let auto_advertise = config.flag("driver_advertise").unwrap_or(false);
    Ok(Some(DriverNetwork { port_map, ip, auto_advertise }))
}
