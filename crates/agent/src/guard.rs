//! What cleans up after a development agent that was killed: nobody starts such an agent again, so its tasks would run, and
//! its temporary directory stay, for ever.
//!
//! The guard is a process of its own. It reads from a pipe that the agent holds and never writes to; when that ends and the
//! directory is still there, it ends the agent's tasks by the kill sequence and removes the directory. Containers of an
//! engine are left to the engine.

use crate::dirs::Temporary;
use crate::drivers::RUN_PREFIX;
use herdsman_shim::{Attached, ShimConfig, ShimHost, attach, kill, signal};
use rustix::mount::{UnmountFlags, unmount};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The first argument of a guard; no command of the table.
const WORD: &str = "development-guard";

/// How long a task has between the request to end and the kill. Source: the default of `kill_timeout`.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a kill may take.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The guard of this process. Dropping it changes nothing: the agent removes its directory itself when it ends.
#[derive(Debug)]
pub struct Guard(#[expect(dead_code, reason = "held for its pipe, which ends with this process")] Child);

impl Guard {
    /// Starts the guard of a development agent's directory.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(temporary: &Temporary, cgroup_parent: &str) -> std::io::Result<Guard> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(WORD).arg(temporary.path()).arg(cgroup_parent);
        // An interrupt from the terminal is for the agent, which stops its job in order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Guard)
    }
}

/// The directory and cgroup parent when this process is to be a guard.
pub fn wanted(words: &[String]) -> Option<(PathBuf, String)> {
    match words {
        [word, directory, parent] if word == WORD => Some((PathBuf::from(directory), parent.clone())),
        _ => None,
    }
}

/// Waits for the agent's end and cleans up.
pub async fn run(directory: PathBuf, cgroup_parent: String) {
    // Whether it ends or breaks is the same.
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
    if let Some(run_root) = run_root_in(&directory.join("client"))
        && let Ok(host) = ShimHost::open(ShimConfig { run_root, cgroup_parent }).await
    {
        let runs = host.list();
        futures::future::join_all(runs.iter().map(|run| end(&host, &run.run_file))).await;
        host.end_zygote();
    }
    if directory.is_dir() {
        forget_mounts(&directory);
        let _ = std::fs::remove_dir_all(&directory);
    }
}

/// The directory of run files below a node's state directory.
fn run_root_in(state: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(state).ok()?.flatten();
    let mut names = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(RUN_PREFIX));
    names.next().map(|entry| entry.path())
}

/// Ends one task: asks, waits, kills.
async fn end(host: &ShimHost, run_file: &Path) {
    match attach(run_file).await {
        Ok(Attached::Running(_, mut wait)) => {
            // One that is gone meanwhile has ended.
            let _ = signal(run_file, rustix::process::Signal::INT.as_raw(), true).await;
            if tokio::time::timeout(KILL_TIMEOUT, wait.wait()).await.is_err() {
                let _ = kill(run_file).await;
                let _ = tokio::time::timeout(KILL_LIMIT, wait.wait()).await;
            }
        }
        Ok(Attached::Lost(record)) => drop(host.clean_lost(&record).await),
        Ok(Attached::Exited(_) | Attached::Absent) | Err(_) => {}
    }
}

/// Takes down what is mounted below a directory: secrets of tasks.
fn forget_mounts(directory: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below =
        mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|at| Path::new(at).starts_with(directory));
    // Those made last lie deepest.
    for at in below.collect::<Vec<_>>().into_iter().rev() {
        let _ = unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}
