//! Starting tasks and finding them again.

use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
/// How often a start or an end that is just happening is looked at again.
const SETTLE_TRIES: u32 = 1000;
/// Longest pause between two looks; the first ones are shorter.
const SETTLE_WAIT: Duration = Duration::from_millis(10);
/// End of the name of a file that waits to be removed.
const OLD_SUFFIX: &str = "-old";
/// How long it waits.
const SWEEP_AFTER: Duration = Duration::from_secs(30);
/// End of a run file's name.
const RUN_SUFFIX: &str = ".run";
/// Longest encoded name of an allocation or task in a file name.
const MAX_NAME: usize = 100;
/// Longest record read.
const MAX_RECORD_FILE: u64 = wire::RUN_FILE as u64;
/// Run files listed.
const MAX_RUNS: usize = 1_000_000;

/// What can go wrong with shims.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// The run root cannot be used.
    #[error("the run file {path} cannot be used: {error}; it has to be writable by the agent")]
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
    /// The run file belongs to a living task.
    #[error("the run file {0} belongs to a running task")]
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
    fn file_below(&self, root: &Path) -> PathBuf {
        root.join(format!("{}{RUN_SUFFIX}", self.file_name()))
    }
}

/// Settings of a [`ShimHost`].
#[derive(Debug, Clone)]
pub struct ShimConfig {
    /// Directory of run files and the zygote's socket; made with mode
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
    /// A task that will remove forgotten files is under way.
    sweeping: Arc<AtomicBool>,
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

/// What a run file tells.
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

/// A run file found at restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// The allocation's id, as encoded in file names.
    pub alloc: String,
    /// Where it is.
    pub run_file: PathBuf,
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
        let make = |dir: &Path| DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(&at_root);
        if let Some(above) = root.parent() {
            make(above)?;
            herdsman_world::disk::spread(above);
        }
        make(&root)?;
        let cgroups = Cgroups::prepare(&config.cgroup_parent);
        sweep(&root);
        let mut host = ShimHost {
            config,
            cgroups,
            notes: Vec::new(),
            zygote: Mutex::new(()),
            starts: Semaphore::new(MAX_STARTS),
            sweeping: Arc::new(AtomicBool::new(false)),
        };
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

    /// The key's run file.
    pub fn run_file(&self, key: &StartKey) -> PathBuf {
        key.file_below(&self.config.run_root)
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
        let parent = self.config.cgroup_parent.clone();
        let start = move || {
            if !files.iter().all(|file| file.exists()) {
                // A service manager tidied them away while no zygote was in them.
                Cgroups::prepare(&parent);
            }
            program::start_zygote(&run_root, &files)
        };
        let started = tokio::task::spawn_blocking(start).await;
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

    /// Starts a task, or returns the start that this run file already is.
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
        let run_file = PathBuf::from(std::ffi::OsStr::from_bytes(&request.run_file));
        let Ok(_permit) = self.starts.acquire().await else { return Err(ShimError::Gone) };
        match tokio::time::timeout(START_TIMEOUT, self.ask_start(&body, &run_file)).await {
            Ok(result) => result,
            Err(_) => Err(ShimError::Talk(io::ErrorKind::TimedOut.into())),
        }
    }

    async fn ask_start(&self, body: &[u8], run_file: &Path) -> Result<StartOutcome, ShimError> {
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
                    return settle(attach(run_file).await?);
                }
                let wait = ExitWait { run_file: run_file.to_owned(), stream: Some(stream), buf };
                Ok(StartOutcome::Running(record, wait))
            }
            Ok(Some((kind::EXITED, body))) => Ok(StartOutcome::Exited(ExitRecord::decode(&body)?)),
            Ok(Some((kind::LOST, body))) => Ok(StartOutcome::Lost(PidRecord::decode(&body)?)),
            Ok(Some((_, body))) => Err(ShimError::Refused(Failure::decode(&body)?)),
            // The shim died while starting, or the zygote before: the run file
            // tells.
            Ok(None) | Err(_) => settle(attach(run_file).await?),
        }
    }

    /// Run files there are, for the restore of a node.
    pub fn list(&self) -> Vec<FoundRun> {
        let entries = std::fs::read_dir(&self.config.run_root).into_iter().flatten().flatten();
        let mut out: Vec<FoundRun> = entries
            .take(MAX_RUNS)
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let alloc = name.strip_suffix(RUN_SUFFIX)?.split('.').next()?.to_owned();
                Some(FoundRun { alloc, run_file: entry.path() })
            })
            .collect();
        out.sort_by(|a, b| a.run_file.cmp(&b.run_file));
        out
    }

    /// Forgets a start whose task is over, its last step: afterwards its key was
    /// never started. The file itself is removed a little later, because file
    /// systems make new files slowly just after others were removed.
    ///
    /// # Errors
    /// [`ShimError::Busy`] while a shim holds the run file.
    pub async fn forget(&self, run_file: &Path) -> Result<(), ShimError> {
        let Some(run) = ended_run(run_file).await? else { return Ok(()) };
        let socket = self.config.run_root.join(run.socket()?);
        move_away(&socket, &socket.with_extension(format!("sock{OLD_SUFFIX}")))?;
        move_away(run_file, &socket.with_extension(format!("run{OLD_SUFFIX}")))?;
        if !self.sweeping.swap(true, Ordering::AcqRel) {
            let (root, sweeping) = (self.config.run_root.clone(), Arc::clone(&self.sweeping));
            tokio::spawn(async move {
                tokio::time::sleep(SWEEP_AFTER).await;
                // Before the sweep, so that a file moved meanwhile has a sweep to come.
                sweeping.store(false, Ordering::Release);
                sweep(&root);
            });
        }
        Ok(())
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
            for round in 0..SETTLE_TRIES {
                let left = process::kill_cgroup(dir);
                found = found.max(left);
                match std::fs::remove_dir(dir) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => settle_pause(round).await,
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
    if let Ok(Some(run)) = RunFile::open(pid_file)
        && let Some(record) = run.pid
    {
        process::kill_exact(record.pid, record.start_ticks);
    }
    let _ = std::fs::remove_file(pid_file.with_extension("sock"));
    let _ = std::fs::remove_file(pid_file);
}

/// What a run file holds.
pub(crate) struct RunFile {
    file: std::fs::File,
    /// Nothing was started, or the start failed.
    empty: bool,
    pid: Option<PidRecord>,
    exit: Option<ExitRecord>,
}

impl RunFile {
    /// Reads it; none when there is no such file. Damaged records read as none.
    fn open(path: &Path) -> Result<Option<RunFile>, ShimError> {
        let mut file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(ShimError::Talk(e)),
        };
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(&mut file, MAX_RECORD_FILE), &mut bytes).map_err(ShimError::Talk)?;
        let pid = wire::open_record(&bytes).ok().and_then(|body| PidRecord::decode(body).ok());
        let exit = bytes.get(wire::EXIT_OFFSET..).and_then(|b| wire::open_record(b).ok());
        let exit = exit.and_then(|body| ExitRecord::decode(body).ok());
        Ok(Some(RunFile { file, empty: bytes.is_empty(), pid, exit }))
    }

    /// True when no shim holds it.
    fn free(&self) -> Result<bool, ShimError> {
        // The lock goes with the file when this value is dropped.
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(ShimError::Talk(e.into())),
        }
    }

    /// Name of the shim's socket beside it.
    fn socket(&self) -> Result<String, ShimError> {
        let meta = self.file.metadata().map_err(ShimError::Talk)?;
        Ok(format!("{}.sock", std::os::unix::fs::MetadataExt::ino(&meta)))
    }
}

/// A pause before looking again, longer each time.
async fn settle_pause(round: u32) {
    let pause = Duration::from_micros(200).saturating_mul(1 << round.min(10));
    tokio::time::sleep(pause.min(SETTLE_WAIT)).await;
}

/// Connects to the shim of a run file. A young shim has no socket yet, so this
/// may take a moment.
///
/// # Errors
/// [`ShimError::Gone`] when no shim holds the file.
pub(crate) async fn reach_shim(run_file: &Path) -> Result<UnixStream, ShimError> {
    let dir = run_file.parent().unwrap_or(Path::new("/"));
    for round in 0..SETTLE_TRIES {
        let Some(run) = RunFile::open(run_file)? else { return Err(ShimError::Gone) };
        if run.exit.is_some() {
            return Err(ShimError::Gone);
        }
        match connect(dir, &run.socket()?).await {
            Ok(stream) => return Ok(stream),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
            Err(e) => return Err(ShimError::Talk(e)),
        }
        if run.free()? {
            return Err(ShimError::Gone);
        }
        drop(run);
        settle_pause(round).await;
    }
    Err(ShimError::Talk(io::Error::new(io::ErrorKind::TimedOut, "it does not listen")))
}

/// Finds out what became of the task of a run file.
///
/// # Errors
/// When the file cannot be read, or its state does not settle.
pub async fn attach(run_file: &Path) -> Result<Attached, ShimError> {
    for round in 0..SETTLE_TRIES {
        let Some(run) = RunFile::open(run_file)? else { return Ok(Attached::Absent) };
        if let Some(exit) = run.exit {
            return Ok(Attached::Exited(exit));
        }
        if run.free()? {
            drop(run);
            // It may have ended between reading and locking; now nobody writes.
            let Some(run) = RunFile::open(run_file)? else { return Ok(Attached::Absent) };
            return Ok(match run {
                RunFile { exit: Some(exit), .. } => Attached::Exited(exit),
                RunFile { empty: true, .. } => Attached::Absent,
                // A damaged record is a lost task too, one nothing is known of.
                RunFile { pid, .. } => Attached::Lost(pid.unwrap_or_default()),
            });
        }
        if let Some(record) = run.pid.filter(|r| r.pid != 0)
            && let Ok(mut stream) = reach_shim(run_file).await
            && stream.write_all(&wire::frame(kind::WAIT, &[])).await.is_ok()
        {
            let wait = ExitWait { run_file: run_file.to_owned(), stream: Some(stream), buf: Vec::new() };
            return Ok(Attached::Running(record, wait));
        }
        settle_pause(round).await;
    }
    Err(ShimError::Busy(run_file.to_owned()))
}

fn absent_is_fine(result: io::Result<()>) -> Result<(), ShimError> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(ShimError::Talk(e)),
        _ => Ok(()),
    }
}

fn move_away(from: &Path, to: &Path) -> Result<(), ShimError> {
    absent_is_fine(std::fs::rename(from, to))
}

/// Removes files that wait for it.
fn sweep(run_root: &Path) {
    for entry in std::fs::read_dir(run_root).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.ends_with(OLD_SUFFIX)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The run file once no shim holds it; none when there is none.
async fn ended_run(run_file: &Path) -> Result<Option<RunFile>, ShimError> {
    for round in 0..SETTLE_TRIES {
        let Some(run) = RunFile::open(run_file)? else { return Ok(None) };
        if run.free()? {
            return Ok(Some(run));
        }
        drop(run);
        settle_pause(round).await;
    }
    Err(ShimError::Busy(run_file.to_owned()))
}

/// Removes a run file whose task is over at once; see [`ShimHost::forget`].
///
/// # Errors
/// [`ShimError::Busy`] while a shim holds it.
pub async fn remove_run(run_file: &Path) -> Result<(), ShimError> {
    let Some(run) = ended_run(run_file).await? else { return Ok(()) };
    let dir = run_file.parent().unwrap_or(Path::new("/"));
    absent_is_fine(std::fs::remove_file(dir.join(run.socket()?)))?;
    absent_is_fine(std::fs::remove_file(run_file))
}
