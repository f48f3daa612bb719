//! A node's drivers in a temporary directory, and tasks for them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use herdsman_drivers::{
    Driver, ExecDriver, ExecOptions, Executor, ExitResult, Handle, RawExecDriver, RawExecOptions, StartKey, TaskDirs,
    TaskResources, TaskSpec,
};
use herdsman_shim::{ShimConfig, ShimHost};
use serde_json::{Value, json};

/// How long "eventually" may take.
pub const EVENTUALLY: Duration = Duration::from_secs(30);

pub struct Node {
    pub dir: tempfile::TempDir,
    pub executor: Arc<Executor>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.executor.host().end_zygote();
    }
}

pub async fn executor(dir: &Path) -> Arc<Executor> {
    let config = ShimConfig { run_root: dir.join("run"), cgroup_parent: "herdsman-test.slice".into() };
    Arc::new(Executor::new(Arc::new(ShimHost::open(config).await.unwrap())))
}

pub async fn node() -> Node {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    // Tasks of other users have to be able to look into it.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let executor = executor(dir.path()).await;
    Node { dir, executor }
}

pub fn raw_exec_of(executor: &Arc<Executor>) -> RawExecDriver {
    let options = RawExecOptions { enabled: true, ..RawExecOptions::default() };
    RawExecDriver::new(Arc::clone(executor), options).unwrap()
}

/// A task's spec with its directories made.
pub fn spec_in(root: &Path, task: &str, config: Value) -> TaskSpec {
    use std::os::unix::fs::PermissionsExt;
    let alloc_dir = root.join("alloc-1");
    let (shared, task_dir) = (alloc_dir.join("alloc"), alloc_dir.join(task));
    let dirs = TaskDirs {
        local: task_dir.join("local"),
        secrets: task_dir.join("secrets"),
        logs: shared.join("logs"),
        alloc_dir,
        shared,
        task_dir,
    };
    for dir in [&dirs.shared.join("data"), &dirs.logs, &dirs.local, &dirs.secrets, &dirs.task_dir.join("tmp")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    for dir in [&dirs.shared.join("data"), &dirs.local, &dirs.task_dir.join("tmp")] {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    // Cgroups are named after it, and tests run side by side.
    let alloc_id = root.file_name().unwrap().to_string_lossy().into_owned();
    TaskSpec {
        key: Some(StartKey { alloc_id, task: task.into(), run: 0, attempt: 0 }),
        config,
        env: BTreeMap::from([
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
            ("COLOUR".into(), "green".into()),
        ]),
        dirs,
        resources: TaskResources { cpu_shares: 100, memory_mb: 64, ..TaskResources::default() },
        ..TaskSpec::default()
    }
}

/// A shell script as a task.
pub fn shell(script: &str) -> Value {
    json!({"command": "/bin/sh", "args": ["-c", script]})
}

impl Node {
    pub fn raw_exec(&self) -> RawExecDriver {
        raw_exec_of(&self.executor)
    }
    pub fn exec(&self) -> ExecDriver {
        ExecDriver::new(Arc::clone(&self.executor), ExecOptions::default()).unwrap()
    }
    pub fn spec(&self, task: &str, config: Value) -> TaskSpec {
        spec_in(self.dir.path(), task, config)
    }
    pub fn log(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.path().join("alloc-1/alloc/logs").join(file)).unwrap_or_default()
    }
    /// Starts a script and runs it to its end.
    pub async fn whole(&self, driver: &dyn Driver, task: &str, script: &str) -> ExitResult {
        let (handle, _) = driver.start(self.spec(task, shell(script))).await.unwrap();
        end(driver, &handle).await
    }
}

pub async fn end(driver: &dyn Driver, handle: &Handle) -> ExitResult {
    tokio::time::timeout(EVENTUALLY, driver.wait(handle)).await.expect("the task ends")
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
