//! What drivers that run processes under shims have in common.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use herdsman_shim::cgroup::Limits;
use herdsman_shim::messages::{Deadline, ExitRecord, LogPlan, PidRecord, StartRequest};
use herdsman_shim::{Attached, ExitWait, ShimError, ShimHost, StartOutcome};
use tokio::sync::mpsc;

use crate::driver::{DriverError, ExecError, RecoverError, StartError};
use crate::signals;
use crate::stats::{LastLook, TaskStats, measure};
use crate::streams::{self, ExecInput, ExecOutput, ExecSpec};
use crate::types::{ExitResult, Handle, LogSettings, StartKey, TaskResources, TaskSpec};
use crate::users::{self, User};

/// Bytes in the megabyte of log settings.
const MIB: u64 = 1 << 20;
/// How long an end may take after SIGKILL before it is called stuck.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);
/// Descendants looked at when there is no cgroup that lists them.
const MAX_DESCENDANTS: usize = 65_536;

/// A task this agent knows.
struct Known {
    record: PidRecord,
    end: tokio::sync::Mutex<End>,
    last_look: Mutex<LastLook>,
}

/// Waiting for the end, or the end. Boxed, since most tasks wait.
enum End {
    Awaited(Box<ExitWait>),
    Seen(ExitResult),
}

/// Runs processes under shims for several drivers.
pub struct Executor {
    host: Arc<ShimHost>,
    known: Mutex<BTreeMap<StartKey, Arc<Known>>>,
    root: bool,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Executor {
    /// Uses this node's shims.
    pub fn new(host: Arc<ShimHost>) -> Executor {
        Executor { host, known: Mutex::default(), root: rustix::process::geteuid().is_root() }
    }

    /// The shims.
    pub fn host(&self) -> &ShimHost {
        &self.host
    }

    /// True when the agent has the rights of root.
    pub(crate) fn is_root(&self) -> bool {
        self.root
    }

    fn run_file(&self, key: &StartKey) -> PathBuf {
        self.host.run_file(&key.shim())
    }

    /// A request with everything that does not depend on the driver.
    pub(crate) fn request(&self, spec: &TaskSpec, key: &StartKey) -> StartRequest {
        let log = (!spec.log.disabled).then(|| log_plan(&spec.log, &spec.dirs.logs, &key.task));
        let deadline = spec.deadline.map(|(at_ns, grace)| Deadline {
            at_ns,
            signal: stop_signal(&spec.kill_signal, signals::number_or_interrupt("SIGINT")),
            grace_ns: u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX),
        });
        StartRequest {
            run_file: bytes(&self.run_file(key)),
            label: format!("{}/{}", key.alloc_id, key.task).into_bytes(),
            env: spec.env.iter().map(|(k, v)| format!("{k}={v}").into_bytes()).collect(),
            log,
            netns: spec.network_namespace.as_deref().map(bytes).unwrap_or_default(),
            deadline,
            ..StartRequest::default()
        }
    }

    /// Sets the user of a request. An agent without privilege runs tasks as
    /// itself only.
    pub(crate) async fn set_user(&self, request: &mut StartRequest, name: &str) -> Result<User, StartError> {
        let refused = |why: String| StartError::fatal(format!("failed driver config validation: {why}"));
        let own = rustix::process::geteuid().as_raw();
        let user = if name.is_empty() {
            users::find(&own.to_string()).await.unwrap_or_else(|_| {
                let gid = rustix::process::getegid().as_raw();
                User { uid: own, gid, groups: vec![gid] }
            })
        } else {
            users::find(name).await.map_err(refused)?
        };
        if !self.root && user.uid != own {
            return Err(refused(format!("user {name:?} needs an agent that runs as root")));
        }
        request.keep_user = !self.root || name.is_empty();
        (request.uid, request.gid, request.groups) = (user.uid, user.gid, user.groups.clone());
        Ok(user)
    }

    /// Starts, or returns the start this key already is.
    pub(crate) async fn start(
        &self,
        driver: &str,
        key: &StartKey,
        request: &StartRequest,
    ) -> Result<Handle, StartError> {
        let (record, end) = match self.host.start(request).await {
            Ok(StartOutcome::Running(record, wait)) => (record, End::Awaited(Box::new(wait))),
            Ok(StartOutcome::Exited(exit)) => {
                let record = PidRecord { pid: exit.pid, started_ns: exit.started_ns, ..PidRecord::default() };
                (record, End::Seen(exit_result(&exit)))
            }
            Ok(StartOutcome::Lost(record)) => {
                let end = End::Seen(self.lost(&record).await);
                (record, end)
            }
            Err(ShimError::Refused(failure)) => {
                // Lack of memory, processes or descriptors may pass.
                let passing = [11, 12, 23, 24, 28].contains(&failure.errno);
                let message = ShimError::Refused(failure).to_string();
                let message = format!("failed to launch command with executor: {message}");
                return Err(StartError { recoverable: passing, message });
            }
            Err(e) => return Err(StartError::recoverable(e.to_string())),
        };
        let handle = Handle {
            driver: driver.to_owned(),
            key: key.clone(),
            pid: record.pid,
            started_ns: record.started_ns,
            data: serde_json::Value::Null,
        };
        self.remember(key, record, end);
        Ok(handle)
    }

    fn remember(&self, key: &StartKey, record: PidRecord, end: End) -> Arc<Known> {
        let known = Arc::new(Known { record, end: tokio::sync::Mutex::new(end), last_look: Mutex::default() });
        self.lock().insert(key.clone(), Arc::clone(&known));
        known
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<StartKey, Arc<Known>>> {
        // Nothing panics while holding it, and a map of pointers cannot be half changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lost(&self, record: &PidRecord) -> ExitResult {
        let left = self.host.clean_lost(record).await;
        tracing::warn!(pid = record.pid, killed = left, "a task's shim is gone without an exit record");
        ExitResult::unknown("the task's shim was killed or the machine restarted; how the task ended is not known")
    }

    /// The task, known or found again.
    async fn known(&self, key: &StartKey) -> Result<Arc<Known>, RecoverError> {
        if let Some(known) = self.lock().get(key) {
            return Ok(Arc::clone(known));
        }
        match herdsman_shim::attach(&self.run_file(key)).await {
            Ok(Attached::Running(record, wait)) => Ok(self.remember(key, record, End::Awaited(Box::new(wait)))),
            Ok(Attached::Exited(exit)) => {
                let record = PidRecord { pid: exit.pid, started_ns: exit.started_ns, ..PidRecord::default() };
                Ok(self.remember(key, record, End::Seen(exit_result(&exit))))
            }
            Ok(Attached::Lost(record)) => {
                let end = self.lost(&record).await;
                let why = end.err.clone().unwrap_or_default();
                self.remember(key, record, End::Seen(end));
                Err(RecoverError::Lost(why))
            }
            Ok(Attached::Absent) => Err(RecoverError::NeverStarted),
            Err(e) => Err(RecoverError::Unknown(e.to_string())),
        }
    }

    pub(crate) async fn recover(&self, handle: &Handle) -> Result<(), RecoverError> {
        self.known(&handle.key).await.map(drop)
    }

    pub(crate) async fn wait(&self, handle: &Handle) -> ExitResult {
        let known = match self.known(&handle.key).await {
            Ok(known) => known,
            Err(e) => return ExitResult::unknown(e.to_string()),
        };
        // The first to come waits, the others wait for it; whoever is cancelled
        // leaves the wait to the next.
        let mut end = known.end.lock().await;
        let seen = match &mut *end {
            End::Seen(result) => return result.clone(),
            End::Awaited(wait) => match wait.wait().await {
                Ok(exit) => exit_result(&exit),
                Err(lost) => self.lost(&lost.0).await,
            },
        };
        *end = End::Seen(seen.clone());
        seen
    }

    pub(crate) async fn stop(&self, handle: &Handle, timeout: Duration, signal: i32) -> Result<(), DriverError> {
        let run_file = self.run_file(&handle.key);
        match herdsman_shim::signal(&run_file, signal, false).await {
            Ok(()) | Err(ShimError::Gone) => {}
            Err(e) => {
                tracing::warn!(error = %e, key = ?handle.key, "cannot send the stop signal; killing after the timeout")
            }
        }
        if tokio::time::timeout(timeout, self.wait(handle)).await.is_ok() {
            return Ok(());
        }
        self.kill(handle).await
    }

    /// Kills and waits for the end.
    pub(crate) async fn kill(&self, handle: &Handle) -> Result<(), DriverError> {
        match herdsman_shim::kill(&self.run_file(&handle.key)).await {
            Ok(()) | Err(ShimError::Gone) => {}
            Err(e) => return Err(DriverError::Failed(format!("failed to kill the task: {e}"))),
        }
        match tokio::time::timeout(KILL_TIMEOUT, self.wait(handle)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(DriverError::Failed("the task does not end though it was killed".to_owned())),
        }
    }

    pub(crate) async fn signal(&self, handle: &Handle, signal: i32) -> Result<(), DriverError> {
        herdsman_shim::signal(&self.run_file(&handle.key), signal, false).await.map_err(|e| driver_error(&e))
    }

    pub(crate) async fn destroy(&self, handle: &Handle, force: bool) -> Result<(), DriverError> {
        let run_file = self.run_file(&handle.key);
        match self.known(&handle.key).await {
            Ok(known) => {
                let over = known.end.try_lock().is_ok_and(|end| matches!(*end, End::Seen(_)));
                let running = !over && herdsman_shim::signal(&run_file, 0, false).await.is_ok();
                if running && !force {
                    return Err(DriverError::Failed("cannot destroy running task".to_owned()));
                }
                if running {
                    self.kill(handle).await?;
                }
            }
            Err(RecoverError::NeverStarted | RecoverError::Lost(_)) => {}
            Err(RecoverError::Unknown(why)) => return Err(DriverError::Failed(why)),
        }
        self.host.forget(&run_file).await.map_err(|e| driver_error(&e))?;
        self.lock().remove(&handle.key);
        Ok(())
    }

    pub(crate) async fn stats(&self, handle: &Handle) -> Result<TaskStats, DriverError> {
        let known = self.known(&handle.key).await.map_err(|e| DriverError::Failed(e.to_string()))?;
        let pids = processes(&known.record);
        if pids.is_empty() {
            return Err(DriverError::NotRunning);
        }
        let mut last = known.last_look.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(measure(&pids, &mut last))
    }

    pub(crate) async fn exec(
        &self,
        handle: &Handle,
        spec: &ExecSpec,
        input: mpsc::Receiver<ExecInput>,
        output: mpsc::Sender<ExecOutput>,
    ) -> Result<i32, ExecError> {
        streams::run(&self.run_file(&handle.key), spec, input, output).await
    }

    /// Limits of a task as cgroups named after its start.
    pub(crate) fn limits(resources: &TaskResources) -> Limits {
        let (memory_max_mb, memory_low_mb) = resources.memory();
        Limits { cpu_shares: resources.cpu_shares, cores: resources.cores.clone(), memory_max_mb, memory_low_mb }
    }
}

/// The processes of a running task, from a cgroup if it has one, else by
/// descent from its shim.
fn processes(record: &PidRecord) -> Vec<u32> {
    for dir in &record.cgroups {
        let file = Path::new(std::ffi::OsStr::from_bytes(dir)).join("cgroup.procs");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let pids: Vec<u32> = text.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect();
        if !pids.is_empty() {
            return pids;
        }
    }
    if record.shim_pid == 0 || herdsman_shim::start_ticks(record.shim_pid) != Some(record.shim_start_ticks) {
        return Vec::new();
    }
    let mut out: Vec<u32> = herdsman_shim::children(record.shim_pid);
    let mut next = 0;
    while let (Some(pid), true) = (out.get(next).copied(), out.len() < MAX_DESCENDANTS) {
        out.extend(herdsman_shim::children(pid));
        next += 1;
    }
    out
}

pub(crate) fn driver_error(e: &ShimError) -> DriverError {
    match e {
        ShimError::Gone => DriverError::NotRunning,
        other => DriverError::Failed(other.to_string()),
    }
}

/// The number of a configured kill signal, or the driver's default.
pub(crate) fn stop_signal(name: &str, default: i32) -> i32 {
    if name.is_empty() { default } else { signals::number_or_interrupt(name) }
}

pub(crate) fn exit_result(exit: &ExitRecord) -> ExitResult {
    if exit.lost_output > 0 {
        let why = String::from_utf8_lossy(&exit.lost_reason).into_owned();
        tracing::warn!(bytes = exit.lost_output, why, "output of a task could not be kept");
    }
    ExitResult {
        exit_code: if exit.signal == 0 { exit.code } else { 128 + exit.signal },
        signal: exit.signal,
        oom_killed: exit.oom,
        err: None,
        lost_output: exit.lost_output,
        finished_ns: exit.finished_ns,
    }
}

fn log_plan(settings: &LogSettings, dir: &Path, task: &str) -> LogPlan {
    LogPlan {
        dir: bytes(dir),
        stdout: format!("{task}.stdout").into_bytes(),
        stderr: format!("{task}.stderr").into_bytes(),
        max_files: settings.max_files.max(1),
        max_size: u64::from(settings.max_file_size_mb.max(1)) * MIB,
    }
}

pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// The start's key.
pub(crate) fn key_of(spec: &TaskSpec) -> Result<StartKey, StartError> {
    spec.key.clone().ok_or_else(|| StartError::fatal("the start has no key"))
}
