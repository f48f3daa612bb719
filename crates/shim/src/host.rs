//! Starting tasks and finding them again.

use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, Semaphore};

use crate::cgroup::Cgroups;
use crate::client::{ExitWait, connect, read_frame};
use crate::codec::Message;
use crate::messages::{ExitRecord, Failure, Hello, PidRecord, StartRequest, kind};
use crate::wire::{self, WireError};
use crate::{process, program};

/// Starts under way at once; more wait their turn.
const MAX_STARTS: usize = 64;
/// How long a start may take. Long: mounts and disks can be slow.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a start or an end that is just happening is looked at again, each
/// [`SETTLE_WAIT`] apart.
const SETTLE_TRIES: u32 = 1000;
const SETTLE_WAIT: Duration = Duration::from_millis(10);
/// Longest encoded task name in a directory name.
const MAX_NAME: usize = 180;
/// Longest record read.
const MAX_RECORD_FILE: u64 = wire::MAX_RECORD as u64 + 64;
/// Run directories listed.
const MAX_RUNS: usize = 1_000_000;

/// What can go wrong with shims.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// The run root cannot be used.
    #[error("the run directory {path} cannot be used: {error}; it has to be writable by the agent")]
    RunRoot {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// No zygote could be started.
    #[error("the process that starts tasks cannot be started: {0}")]
    Zygote(io::Error),
    /// The task cannot be started, or a request to its shim cannot be met.
    #[error("{}", describe(.0))]
    Refused(Failure),
    /// The task is over.
    #[error("the task is not running")]
    Gone,
    /// A socket failed.
    #[error("a task's shim cannot be reached: {0}")]
    Talk(io::Error),
    /// A record or message is damaged.
    #[error("a task's record cannot be read: {0}")]
    Wire(#[from] WireError),
    /// The run directory belongs to a living task.
    #[error("the run directory {0} belongs to a running task")]
    Busy(PathBuf),
}

/// "step detail: system error", without what is empty.
fn describe(failure: &Failure) -> String {
    let mut out = String::from_utf8_lossy(&failure.stage).into_owned();
    if !failure.detail.is_empty() {
        out.push(' ');
        out.push_str(&String::from_utf8_lossy(&failure.detail));
    }
    if failure.errno != 0 {
        out.push_str(": ");
        out.push_str(&errno_text(failure.errno));
    }
    out
}

/// The system's text in lower case and without the number, as clients of the
/// peer know it ("no such file or directory").
fn errno_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// Names one start of one task: the same key is the same start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartKey {
    /// The allocation.
    pub alloc_id: String,
    /// The task.
    pub task: String,
    /// Which run of the allocation.
    pub run: u32,
    /// Which attempt in that run.
    pub attempt: u32,
}

impl fmt::Display for StartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} run {} attempt {}", self.alloc_id, self.task, self.run, self.attempt)
    }
}

/// A text as part of a file name: other bytes than letters, digits, `-` and `_`
/// become `%XX`; a text too long for that ends in its checksum.
fn encode_name(text: &str) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b == b'-' || b == b'_' {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    if out.len() > MAX_NAME {
        let sum = wire::checksum(text.as_bytes());
        out.truncate(MAX_NAME - 17); // All ASCII, so this is a character boundary.
        out.push_str(&format!("~{sum:016x}"));
    }
    out
}

impl StartKey {
    /// The key as one file name, unique and safe.
    pub fn file_name(&self) -> String {
        format!("{}.{}.{}.{}", encode_name(&self.alloc_id), encode_name(&self.task), self.run, self.attempt)
    }
    fn dir_below(&self, root: &Path) -> PathBuf {
        let last = format!("{}.{}.{}", encode_name(&self.task), self.run, self.attempt);
        root.join(encode_name(&self.alloc_id)).join(last)
    }
}

/// Settings of a [`ShimHost`].
#[derive(Debug, Clone)]
pub struct ShimConfig {
    /// Directory of run directories and the zygote's socket; made with mode
    /// 0700. On a disk that survives the agent.
    pub run_root: PathBuf,
    /// Cgroup below which shims and tasks live, outside the agent's own.
    pub cgroup_parent: String,
}

/// Starts shims through the node's zygote.
#[derive(Debug)]
pub struct ShimHost {
    config: ShimConfig,
    cgroups: Cgroups,
    notes: Vec<String>,
    zygote: Mutex<()>,
    starts: Semaphore,
}

/// What a start came to.
#[derive(Debug)]
pub enum StartOutcome {
    /// The task runs. [`PidRecord::existing`] if it did before.
    Running(PidRecord, ExitWait),
    /// It was started before with this key and has ended.
    Exited(ExitRecord),
    /// It was started before with this key and its shim is gone.
    Lost(PidRecord),
}

/// What a run directory tells.
#[derive(Debug)]
pub enum Attached {
    /// The task runs.
    Running(PidRecord, ExitWait),
    /// The task has ended.
    Exited(ExitRecord),
    /// The shim is gone without an exit record.
    Lost(PidRecord),
    /// No task was started there.
    Absent,
}

/// A run directory found at restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// The allocation's directory name (its id, unless that is no file name).
    pub alloc: String,
    /// Where it is.
    pub run_dir: PathBuf,
}

impl ShimHost {
    /// Prepares the run root and cgroups and starts the zygote, or finds the
    /// one that an earlier agent left. Zygotes of other builds are ended; their
    /// shims are not touched.
    ///
    /// # Errors
    /// When the directory cannot be used or no process can be started.
    pub async fn open(config: ShimConfig) -> Result<ShimHost, ShimError> {
        let root = config.run_root.clone();
        let at_root = |error| ShimError::RunRoot { path: root.clone(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(&root).map_err(&at_root)?;
        let cgroups = Cgroups::prepare(&config.cgroup_parent);
        let mut host =
            ShimHost { config, cgroups, notes: Vec::new(), zygote: Mutex::new(()), starts: Semaphore::new(MAX_STARTS) };
        host.end_other_zygotes();
        let mut stream = host.reach_zygote().await?;
        stream.write_all(&wire::frame(kind::HELLO, &[])).await.map_err(ShimError::Zygote)?;
        let hello = match read_frame(&mut stream, &mut Vec::new()).await.map_err(ShimError::Zygote)? {
            Some((kind::HELLO_REPLY, body)) => Hello::decode(&body)?,
            _ => return Err(ShimError::Zygote(io::Error::other("it does not answer"))),
        };
        host.notes = hello.notes.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect();
        for note in &host.notes {
            tracing::warn!(note, "shims share a cgroup with the agent; stopping its service may end tasks");
        }
        Ok(host)
    }

    /// The cgroups tasks can be given.
    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// Cgroups that could not be left for the agent's service, with the reason.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The key's run directory.
    pub fn run_dir(&self, key: &StartKey) -> PathBuf {
        key.dir_below(&self.config.run_root)
    }

    /// A connection to the zygote, which is started if there is none.
    async fn reach_zygote(&self) -> Result<UnixStream, ShimError> {
        let root = &self.config.run_root;
        let socket = format!("{}.sock", program::zygote_name());
        if let Ok(stream) = connect(root, &socket).await {
            return Ok(stream);
        }
        let _one = self.zygote.lock().await;
        if let Ok(stream) = connect(root, &socket).await {
            return Ok(stream);
        }
        let (run_root, files) = (root.clone(), self.cgroups.shim_control_files());
        let started = tokio::task::spawn_blocking(move || program::start_zygote(&run_root, &files)).await;
        started.map_err(|e| ShimError::Zygote(io::Error::other(e)))?.map_err(ShimError::Zygote)?;
        connect(root, &socket).await.map_err(ShimError::Zygote)
    }

    /// Ends the zygotes of other builds of the program.
    fn end_other_zygotes(&self) {
        let Ok(entries) = std::fs::read_dir(&self.config.run_root) else { return };
        let mine = format!("{}.pid", program::zygote_name());
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with("zygote-") && name.ends_with(".pid") && name != mine {
                end_zygote(&entry.path());
            }
        }
    }

    /// Ends this node's zygote, for an agent that leaves nothing behind. Shims
    /// and tasks are not touched.
    pub fn end_zygote(&self) {
        end_zygote(&self.config.run_root.join(format!("{}.pid", program::zygote_name())));
    }

    /// Starts a task, or returns the start that this run directory already is.
    /// The caller has stored the key before.
    ///
    /// # Errors
    /// [`ShimError::Refused`] with the step that failed; the same key may then
    /// be tried again.
    pub async fn start(&self, request: &StartRequest) -> Result<StartOutcome, ShimError> {
        let body = request.encode();
        if body.len() > wire::MAX_FRAME / 2 {
            let detail = format!("of {} bytes: arguments and environment are too long", body.len()).into_bytes();
            return Err(ShimError::Refused(Failure { stage: b"request".to_vec(), detail, errno: 7 }));
        }
        let run_dir = PathBuf::from(std::ffi::OsStr::from_bytes(&request.run_dir));
        let Ok(_permit) = self.starts.acquire().await else { return Err(ShimError::Gone) };
        match tokio::time::timeout(START_TIMEOUT, self.ask_start(&body, &run_dir)).await {
            Ok(result) => result,
            Err(_) => Err(ShimError::Talk(io::ErrorKind::TimedOut.into())),
        }
    }

    async fn ask_start(&self, body: &[u8], run_dir: &Path) -> Result<StartOutcome, ShimError> {
        let mut stream = self.reach_zygote().await?;
        let mut buf = Vec::new();
        let sent = stream.write_all(&wire::frame(kind::START, body)).await;
        let answer = match sent {
            Ok(()) => read_frame(&mut stream, &mut buf).await,
            Err(e) => Err(e),
        };
        match answer {
            Ok(Some((kind::STARTED, body))) => {
                let record = PidRecord::decode(&body)?;
                if record.existing {
                    return settle(attach(run_dir).await?);
                }
                let wait = ExitWait { run_dir: run_dir.to_owned(), stream: Some(stream), buf };
                Ok(StartOutcome::Running(record, wait))
            }
            Ok(Some((kind::EXITED, body))) => Ok(StartOutcome::Exited(ExitRecord::decode(&body)?)),
            Ok(Some((kind::LOST, body))) => Ok(StartOutcome::Lost(PidRecord::decode(&body)?)),
            Ok(Some((_, body))) => Err(ShimError::Refused(Failure::decode(&body)?)),
            // The shim died while starting, or the zygote before: the run
            // directory tells.
            Ok(None) | Err(_) => settle(attach(run_dir).await?),
        }
    }

    /// Run directories there are, for the restore of a node.
    pub fn list(&self) -> Vec<FoundRun> {
        let dirs = |path: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|e| e.path()).filter(|p| p.is_dir()).collect()
        };
        let mut out = Vec::new();
        for alloc in dirs(&self.config.run_root) {
            let name = alloc.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for run_dir in dirs(&alloc).into_iter().take(MAX_RUNS.saturating_sub(out.len())) {
                out.push(FoundRun { alloc: name.clone(), run_dir });
            }
        }
        out.sort_by(|a, b| a.run_dir.cmp(&b.run_dir));
        out
    }

    /// Ends what a lost shim has left: the task, its session, its cgroups.
    /// Returns how many processes there were.
    pub async fn clean_lost(&self, record: &PidRecord) -> usize {
        if record.boot_id != process::boot_id() {
            return 0; // Another boot: nothing of it lives.
        }
        let mut found = usize::from(process::kill_exact(record.pid, record.start_ticks));
        found = found.max(process::kill_session(record));
        for dir in &record.cgroups {
            let dir = Path::new(std::ffi::OsStr::from_bytes(dir));
            for _ in 0..SETTLE_TRIES {
                let left = process::kill_cgroup(dir);
                found = found.max(left);
                match std::fs::remove_dir(dir) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => tokio::time::sleep(SETTLE_WAIT).await,
                    _ => break,
                }
            }
        }
        found
    }
}

fn settle(attached: Attached) -> Result<StartOutcome, ShimError> {
    match attached {
        Attached::Running(record, wait) => Ok(StartOutcome::Running(PidRecord { existing: true, ..record }, wait)),
        Attached::Exited(record) => Ok(StartOutcome::Exited(record)),
        Attached::Lost(record) => Ok(StartOutcome::Lost(record)),
        Attached::Absent => {
            Err(ShimError::Refused(Failure { stage: b"start: the shim ended".to_vec(), ..Failure::default() }))
        }
    }
}

/// Sends the zygote with this lock file away, if it is the one written there.
fn end_zygote(pid_file: &Path) {
    if let Ok(Some(record)) = read_record::<PidRecord>(pid_file) {
        process::kill_exact(record.pid, record.start_ticks);
    }
    let _ = std::fs::remove_file(pid_file.with_extension("sock"));
    let _ = std::fs::remove_file(pid_file);
}

/// Reads a record file; none when there is no such file or nothing in it.
fn read_record<M: Message>(path: &Path) -> Result<Option<M>, ShimError> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ShimError::Talk(e)),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, MAX_RECORD_FILE), &mut bytes).map_err(ShimError::Talk)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(Some(M::decode(wire::open_record(&bytes)?)?))
}

/// True when no shim holds the run directory.
fn lock_free(run_dir: &Path) -> Result<bool, ShimError> {
    let file = match std::fs::File::open(run_dir.join("pid")) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(ShimError::Talk(e)),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(ShimError::Talk(e.into())),
    }
}

/// Finds out what became of the task of a run directory.
///
/// # Errors
/// When the directory cannot be read, or its state does not settle.
pub async fn attach(run_dir: &Path) -> Result<Attached, ShimError> {
    for _ in 0..SETTLE_TRIES {
        if let Some(exit) = read_exit(run_dir) {
            return Ok(Attached::Exited(exit));
        }
        if let Ok(mut stream) = connect(run_dir, "ctl.sock").await
            && stream.write_all(&wire::frame(kind::WAIT, &[])).await.is_ok()
            && let Ok(Some(record)) = read_record::<PidRecord>(&run_dir.join("pid"))
            && record.pid != 0
        {
            let wait = ExitWait { run_dir: run_dir.to_owned(), stream: Some(stream), buf: Vec::new() };
            return Ok(Attached::Running(record, wait));
        }
        if lock_free(run_dir)? {
            if let Some(exit) = read_exit(run_dir) {
                return Ok(Attached::Exited(exit));
            }
            // A damaged record is a lost task too, one nothing is known of.
            return Ok(match read_record::<PidRecord>(&run_dir.join("pid")) {
                Ok(None) => Attached::Absent,
                Ok(Some(record)) => Attached::Lost(record),
                Err(_) => Attached::Lost(PidRecord::default()),
            });
        }
        tokio::time::sleep(SETTLE_WAIT).await;
    }
    Err(ShimError::Busy(run_dir.to_owned()))
}

fn read_exit(run_dir: &Path) -> Option<ExitRecord> {
    read_record(&run_dir.join("exit")).ok().flatten()
}

/// Removes a run directory whose task is over; the last step of forgetting a
/// start.
///
/// # Errors
/// [`ShimError::Busy`] while a shim holds it.
pub async fn remove_run(run_dir: &Path) -> Result<(), ShimError> {
    for _ in 0..SETTLE_TRIES {
        if lock_free(run_dir)? {
            // The exit record goes last: at every moment before, the run is one that ended.
            for name in ["ctl.sock", "exit.tmp", "pid", "exit"] {
                match std::fs::remove_file(run_dir.join(name)) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(ShimError::Talk(e)),
                    _ => {}
                }
            }
            let _ = std::fs::remove_dir(run_dir);
            // Only succeeds for the last run of an allocation.
            let _ = run_dir.parent().map(std::fs::remove_dir);
            return Ok(());
        }
        tokio::time::sleep(SETTLE_WAIT).await;
    }
    Err(ShimError::Busy(run_dir.to_owned()))
}
