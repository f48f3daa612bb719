//! What `raw_exec` and `exec` share as drivers: they say what to start, the [`Executor`] does the rest.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use herdsman_shim::messages::StartRequest;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use tokio::sync::mpsc;

use crate::driver::{Capabilities, Driver, DriverError, ExecError, Fingerprint, RecoverError, StartError};
use crate::executor::{Executor, key_of, stop_signal};
use crate::schema::ConfigError;
use crate::signals;
use crate::stats::TaskStats;
use crate::streams::{ExecInput, ExecOutput, ExecSpec};
use crate::types::{DriverNetwork, ExitResult, Handle, StartKey, TaskSpec};

/// A driver whose tasks are processes under shims.
#[async_trait]
pub trait ProcessDriver: Send + Sync {
    /// Its name in job files.
    const NAME: &'static str;
    /// What it can do.
    const CAPABILITIES: Capabilities;

    /// Where its processes run.
    fn executor(&self) -> &Executor;

    /// Looks at the host.
    async fn fingerprint(&self) -> Fingerprint;

    /// Checks a task's `config` block; see [`Driver::check_config`].
    ///
    /// # Errors
    /// Every unknown key, missing key and wrong type.
    fn check_config(&self, config: &serde_json::Value) -> Result<(), ConfigError>;

    /// Refuses where the driver cannot run tasks at all.
    ///
    /// # Errors
    /// Why it cannot.
    fn check_node(&self) -> Result<(), StartError>;

    /// What the shim is to start for a task whose configuration is valid.
    ///
    /// # Errors
    /// What the task asks for and cannot have.
    async fn plan(&self, spec: &TaskSpec, key: &StartKey) -> Result<StartRequest, StartError>;
}

#[async_trait]
impl<T: ProcessDriver> Driver for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn capabilities(&self) -> Capabilities {
        T::CAPABILITIES
    }

    async fn fingerprint(&self) -> Fingerprint {
        ProcessDriver::fingerprint(self).await
    }

    fn check_config(&self, config: &serde_json::Value) -> Result<(), ConfigError> {
        ProcessDriver::check_config(self, config)
    }

    async fn start(&self, spec: TaskSpec) -> Result<(Handle, Option<DriverNetwork>), StartError> {
        self.check_node()?;
        ProcessDriver::check_config(self, &spec.config).map_err(|e| StartError::fatal(e.to_string()))?;
        let key = key_of(&spec)?;
        let request = self.plan(&spec, &key).await?;
        let handle = self.executor().start(T::NAME, &key, &request).await?;
        Ok((handle, None))
    }

    async fn recover(&self, handle: &Handle) -> Result<(), RecoverError> {
        self.executor().recover(handle).await
    }

    async fn wait(&self, handle: &Handle) -> ExitResult {
        self.executor().wait(handle).await
    }

    async fn stop(&self, handle: &Handle, timeout: Duration, signal: &str) -> Result<(), DriverError> {
        self.executor().stop(handle, timeout, stop_signal(signal, signals::number_or_interrupt("SIGINT"))).await
    }

    async fn signal(&self, handle: &Handle, signal: &str) -> Result<(), DriverError> {
        self.executor().signal(handle, signals::number_or_interrupt(signal)).await
    }

    async fn destroy(&self, handle: &Handle, force: bool) -> Result<(), DriverError> {
        self.executor().destroy(handle, force).await
    }

    async fn stats(&self, handle: &Handle) -> Result<TaskStats, DriverError> {
        self.executor().stats(handle).await
    }

    async fn exec(
        &self,
        handle: &Handle,
        spec: ExecSpec,
        input: mpsc::Receiver<ExecInput>,
        output: mpsc::Sender<ExecOutput>,
    ) -> Result<i32, ExecError> {
        self.executor().exec(handle, &spec, input, output).await
    }
}

/// Makes a program of the allocation executable: one that was downloaded or rendered often lacks the permission. The path is
/// one below `root`; tasks can write there, so nothing leads out and no link is followed.
pub(crate) fn make_executable(root: &Path, path: &Path) {
    let open = |dir, path: &Path, flags| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty(), resolve)
    };
    let Ok(root) = std::fs::File::open(root) else { return };
    let Ok(file) = open(&root, path, OFlags::RDONLY) else { return };
    let Ok(stat) = rustix::fs::fstat(&file) else { return };
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 == 0 {
        // Without it the start fails and says why.
        let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode | 0o111));
    }
}
