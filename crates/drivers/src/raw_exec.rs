//! `raw_exec`: a process of the host, without isolation.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use herdsman_shim::messages::{CgroupPlan, StartRequest};

use crate::config::Config;
use crate::driver::{Capabilities, Fingerprint, FsIsolation, StartError};
use crate::executor::{Executor, bytes};
use crate::process::{ProcessDriver, make_executable};
use crate::schema::{self, ConfigError, Key, Kind, key, required};
use crate::types::{StartKey, TaskSpec};
use crate::users::{IdRanges, User, glob};

const KEYS: &[Key] = &[
    required("command", Kind::Str),
    key("args", Kind::StrList),
    key("cgroup_v2_override", Kind::Str),
    key("cgroup_v1_override", Kind::StrMap),
    key("oom_score_adj", Kind::Num),
    key("work_dir", Kind::Str),
    key("denied_envvars", Kind::StrList),
];

/// The highest `oom_score_adj`.
const MAX_OOM_SCORE: i64 = 1000;

/// Settings of the driver.
#[derive(Debug, Clone, Default)]
pub struct RawExecOptions {
    /// Off unless set: tasks of this driver can do whatever the agent can.
    pub enabled: bool,
    /// User ids tasks may not have, such as `0,100-200`.
    pub denied_host_uids: String,
    /// Group ids tasks may not have.
    pub denied_host_gids: String,
    /// Patterns of variables removed from every task's environment.
    pub denied_envvars: Vec<String>,
}

/// The driver.
#[derive(Debug)]
pub struct RawExecDriver {
    executor: Arc<Executor>,
    options: RawExecOptions,
    uids: IdRanges,
    gids: IdRanges,
}

impl RawExecDriver {
    /// Makes the driver.
    ///
    /// # Errors
    /// A range of ids that is none.
    pub fn new(executor: Arc<Executor>, options: RawExecOptions) -> Result<RawExecDriver, String> {
        let uids = IdRanges::parse(&options.denied_host_uids).map_err(|e| format!("denied_host_uids: {e}"))?;
        let gids = IdRanges::parse(&options.denied_host_gids).map_err(|e| format!("denied_host_gids: {e}"))?;
        Ok(RawExecDriver { executor, options, uids, gids })
    }

    /// The task's own cgroups, or the ones its configuration names.
    fn cgroups(&self, spec: &TaskSpec, config: Config<'_>, name: &str) -> Vec<CgroupPlan> {
        let foreign = |dir: PathBuf, v2| CgroupPlan { dir: bytes(&dir), v2, ..CgroupPlan::default() };
        let base = Path::new("/sys/fs/cgroup");
        let v2 = config.text_or_empty("cgroup_v2_override");
        if !v2.is_empty() {
            return vec![foreign(base.join(v2), true)]; // An absolute path replaces the base.
        }
        let v1 = config.map("cgroup_v1_override");
        if !v1.is_empty() {
            let below = |(controller, path): (&String, &String)| {
                foreign(base.join(controller).join(path.trim_start_matches('/')), false)
            };
            return v1.iter().map(below).collect();
        }
        self.executor.host().cgroups().plan(name, &Executor::limits(&spec.resources))
    }
}

/// Refuses users and groups the operator excluded.
pub(crate) fn check_ids(user: &User, uids: &IdRanges, gids: &IdRanges) -> Result<(), StartError> {
    let refused =
        |what, id| StartError::fatal(format!("failed driver config validation: running as {what} {id} is disallowed"));
    if uids.contains(user.uid) {
        return Err(refused("uid", user.uid));
    }
    match user.groups.iter().chain([&user.gid]).find(|g| gids.contains(**g)) {
        Some(gid) => Err(refused("gid", *gid)),
        None => Ok(()),
    }
}

/// The environment without the variables that match one of the patterns.
pub(crate) fn allowed_env(env: &BTreeMap<String, String>, denied: &[String]) -> Vec<Vec<u8>> {
    let kept = env.iter().filter(|(name, _)| !denied.iter().any(|pattern| glob(pattern, name)));
    kept.map(|(name, value)| format!("{name}={value}").into_bytes()).collect()
}

/// Finds the program: an absolute path, else in the task's `local`, the task
/// directory, the `PATH`.
fn find_command(command: &str, spec: &TaskSpec) -> Option<PathBuf> {
    let path = Path::new(command);
    let own_file = |path: &Path| {
        if let Ok(below) = path.strip_prefix(&spec.dirs.alloc_dir) {
            make_executable(&spec.dirs.alloc_dir, below);
        }
    };
    if path.is_absolute() {
        own_file(path);
        return path.is_file().then(|| path.to_owned());
    }
    let escapes = path.components().any(|c| matches!(c, Component::ParentDir));
    for dir in [&spec.dirs.local, &spec.dirs.task_dir] {
        let candidate = dir.join(path);
        if !escapes && candidate.is_file() {
            own_file(&candidate);
            return Some(candidate);
        }
    }
    if command.contains('/') {
        return None;
    }
    let own = std::env::var("PATH").unwrap_or_default();
    let search = spec.env.get("PATH").unwrap_or(&own);
    let usable = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    search.split(':').filter(|d| !d.is_empty()).map(|d| Path::new(d).join(path)).find(usable)
}

/// Checks of single values that a type cannot say.
fn check_values(config: &serde_json::Value) -> Result<(), ConfigError> {
    let config = Config::new(config);
    let command = config.text_or_empty("command");
    if command.trim() != command {
        return Err(ConfigError::one(format!("command {command:?} must not begin or end with blanks")));
    }
    if config.number("oom_score_adj").is_some_and(|n| !(0..=MAX_OOM_SCORE).contains(&n)) {
        return Err(ConfigError::one(format!("oom_score_adj must be between 0 and {MAX_OOM_SCORE}")));
    }
    let work_dir = config.text_or_empty("work_dir");
    if !work_dir.is_empty() && !work_dir.contains("${") && !Path::new(&work_dir).is_absolute() {
        return Err(ConfigError::one(format!("work_dir must be absolute but got {work_dir:?}")));
    }
    if !config.text_or_empty("cgroup_v2_override").is_empty() && config.get("cgroup_v1_override").is_some() {
        return Err(ConfigError::one("only one of cgroup_v1_override and cgroup_v2_override may be set"));
    }
    Ok(())
}

#[async_trait]
impl ProcessDriver for RawExecDriver {
    const NAME: &'static str = "raw_exec";
    const CAPABILITIES: Capabilities = Capabilities {
        send_signals: true,
        exec: true,
        fs_isolation: FsIsolation::None,
        mounts: false,
        initiates_network: false,
    };

    fn executor(&self) -> &Executor {
        &self.executor
    }

    async fn fingerprint(&self) -> Fingerprint {
        if self.options.enabled { Fingerprint::healthy("raw_exec") } else { Fingerprint::undetected("disabled") }
    }

    fn check_config(&self, config: &serde_json::Value) -> Result<(), ConfigError> {
        schema::check(KEYS, config)?;
        check_values(config)
    }

    fn check_node(&self) -> Result<(), StartError> {
        if self.options.enabled {
            return Ok(());
        }
        Err(StartError::fatal("the raw_exec driver is not enabled on this node"))
    }

    async fn plan(&self, spec: &TaskSpec, key: &StartKey) -> Result<StartRequest, StartError> {
        if !spec.mounts.is_empty() {
            return Err(StartError::fatal("task driver \"raw_exec\" does not support host volumes"));
        }
        let config = Config::new(&spec.config);
        let mut request = self.executor.request(spec, key);
        let user = self.executor.set_user(&mut request, &spec.user).await?;
        check_ids(&user, &self.uids, &self.gids)?;
        let command = config.text_or_empty("command");
        let exe = find_command(&command, spec).ok_or_else(|| {
            // As the peer puts it; people search for this text.
            StartError::fatal(format!(
                "failed to launch command with executor: rpc error: code = Unknown desc = binary {command:?} could not be found"
            ))
        })?;
        let denied = [&self.options.denied_envvars[..], &config.list("denied_envvars")[..]].concat();
        request.env = allowed_env(&spec.env, &denied);
        request.exe = bytes(&exe);
        request.argv =
            [bytes(&exe)].into_iter().chain(config.list("args").into_iter().map(String::into_bytes)).collect();
        let work_dir = config.text_or_empty("work_dir");
        request.cwd = if work_dir.is_empty() { bytes(&spec.dirs.task_dir) } else { work_dir.into_bytes() };
        request.oom_score_adj = i32::try_from(config.number("oom_score_adj").unwrap_or(0)).unwrap_or(0);
        request.cgroups = self.cgroups(spec, config, &key.file_name());
        Ok(request)
    }
}
