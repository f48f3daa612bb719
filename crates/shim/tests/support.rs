//! A host in a temporary directory, and requests for it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use herdsman_shim::messages::{ExitRecord, LogPlan, PidRecord, StartRequest};
use herdsman_shim::{ExitWait, ShimConfig, ShimHost, StartKey, StartOutcome};

/// How long "eventually" may take.
pub const EVENTUALLY: Duration = Duration::from_secs(30);

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub host: ShimHost,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.host.end_zygote();
    }
}

pub async fn open(dir: &Path) -> ShimHost {
    let run_root = dir.join("run");
    ShimHost::open(ShimConfig { run_root, cgroup_parent: "herdsman-test.slice".into() }).await.unwrap()
}

pub async fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("logs")).unwrap();
    let host = open(dir.path()).await;
    Bench { dir, host }
}

pub fn key(task: &str) -> StartKey {
    StartKey { alloc_id: "9b3c0000-aaaa".into(), task: task.into(), run: 0, attempt: 0 }
}

pub fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

impl Bench {
    pub fn request(&self, task: &str, script: &str) -> StartRequest {
        StartRequest {
            run_file: bytes(&self.host.run_file(&key(task))),
            label: task.into(),
            exe: b"/bin/sh".to_vec(),
            argv: vec![b"sh".to_vec(), b"-c".to_vec(), script.as_bytes().to_vec()],
            env: vec![b"PATH=/usr/local/bin:/usr/bin:/bin".to_vec(), b"COLOUR=green".to_vec()],
            cwd: bytes(self.dir.path()),
            keep_user: true,
            log: Some(LogPlan {
                dir: bytes(&self.dir.path().join("logs")),
                stdout: format!("{task}.stdout").into_bytes(),
                stderr: format!("{task}.stderr").into_bytes(),
                max_files: 3,
                max_size: 10 << 20,
            }),
            ..StartRequest::default()
        }
    }
    pub fn run_file(&self, task: &str) -> PathBuf {
        self.host.run_file(&key(task))
    }
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join("logs").join(name)).unwrap()
    }
    /// Starts and expects it to run.
    pub async fn running(&self, request: &StartRequest) -> (PidRecord, ExitWait) {
        match self.host.start(request).await.unwrap() {
            StartOutcome::Running(record, wait) => (record, wait),
            other => panic!("not running: {other:?}"),
        }
    }
    /// Runs to the end.
    pub async fn whole(&self, task: &str, script: &str) -> ExitRecord {
        let (_, mut wait) = self.running(&self.request(task, script)).await;
        end(&mut wait).await
    }
}

pub async fn end(wait: &mut ExitWait) -> ExitRecord {
    tokio::time::timeout(EVENTUALLY, wait.wait()).await.expect("the task ends").expect("the shim lives")
}

pub async fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let start = Instant::now();
    while !test() {
        assert!(start.elapsed() < EVENTUALLY, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn alive(pid: u32) -> bool {
    // A zombie has ended.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Sends a signal by the shell's number.
pub fn kill(pid: u32, signal: i32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
