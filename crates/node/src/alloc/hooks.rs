//! What happens before a task starts: its allocation's directory, its own, payload, volumes, artifacts and templates; and
//! the specification that its driver gets.

use super::dir::{AllocDir, write_within};
use super::runner::Done;
use crate::env::{EnvSource, TaskEnv, TaskPaths};
use crate::node::Shared;
use base64::Engine;
use herdsman_drivers::{
    Capabilities, Dns, EventSink, FsIsolation, LogSettings, Mount, Port, Propagation, StartKey, TaskDirs,
    TaskResources, TaskSpec,
};
use herdsman_lifecycle::{Event, Key};
use herdsman_model::{Allocation, Job, Name, Task, TaskFact, TaskGroup};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// Largest payload of a dispatch, bytes.
const PAYLOAD_LIMIT: usize = 64 * 1024;

/// Prepares the allocation: waits for those it follows, then makes its directory.
pub async fn setup(shared: Arc<Shared>, dir: AllocDir, before: Vec<watch::Receiver<bool>>, gone: bool) -> Done {
    for mut earlier in before {
        // A sender that is gone belongs to an allocation that was removed.
        let _ = earlier.wait_for(|terminal| *terminal).await;
    }
    if gone {
        let error = format!("the allocation directory {} is gone", dir.root.display());
        return Done::Event(Event::SetupFailed { error, dir_built: false });
    }
    let made = shared.disk_work(move || dir.build().map_err(|error| format!("{}: {error}", dir.root.display()))).await;
    Done::Event(match made {
        Ok(()) => Event::SetupDone,
        Err(error) => Event::SetupFailed { error, dir_built: false },
    })
}

/// What the hooks of a task work on.
pub struct TaskHooks {
    pub shared: Arc<Shared>,
    pub dir: AllocDir,
    pub job: Arc<Job>,
    pub task: Arc<Task>,
    pub name: Name,
    pub key: Key,
    /// What artifacts and templates need, if there are any.
    pub files: Option<FileHooks>,
    /// Whether volumes can be mounted by the task's driver; none: the driver is not here.
    pub capabilities: Option<Capabilities>,
}

/// What artifacts and templates of a task need.
pub struct FileHooks {
    /// The environment as the task sees it.
    pub env: TaskEnv,
    /// The same with paths of the host.
    pub host: TaskEnv,
    /// Artifacts are to be fetched: it was not done before.
    pub fetch: bool,
    /// Templates are to be rendered; otherwise what is there counts.
    pub render: bool,
}

/// Runs the hooks of a task.
pub async fn prestart(hooks: TaskHooks) -> Done {
    let (task, key) = (Name::clone(&hooks.name), hooks.key);
    Done::Event(match prestart_steps(hooks).await {
        Ok(env) => return Done::Prepared { task, key, env },
        Err((fact, recoverable)) => Event::HooksFailed { task, key, fact, recoverable },
    })
}

pub(super) fn failed(hook: &str, error: impl Into<String>) -> TaskFact {
    TaskFact::HookFailed { hook: hook.into(), error: error.into() }
}

/// A failure, and whether another attempt may help.
pub type Failure = (TaskFact, bool);

async fn prestart_steps(hooks: TaskHooks) -> Result<BTreeMap<String, String>, Failure> {
    let TaskHooks { shared, dir, job, task, capabilities, files, .. } = hooks;
    if let Some(capabilities) = capabilities
        && !task.volume_mounts.is_empty()
        && !capabilities.mounts
    {
        let (driver, name) = (&task.driver, &task.name);
        let text = format!("task driver {driver:?} for {name:?} does not support host volumes");
        return Err((failed("volumes", text), false));
    }
    let payload = payload(&job, &task).map_err(|error| (failed("dispatch_payload", error), false))?;
    let name = task.name.clone();
    let secrets_mb = task.resources.secrets_mb;
    let alloc_dir = dir.clone();
    let made = shared
        .disk_work(move || {
            dir.build_task(&name, secrets_mb).map_err(|error| ("task_dir", error.to_string()))?;
            if let Some((file, bytes)) = payload {
                let local = dir.task(&name).join("local");
                write_within(&local, &file, &bytes, 0o777).map_err(|error| ("dispatch_payload", error.to_string()))?;
            }
            Ok(())
        })
        .await;
    made.map_err(|(hook, error)| (failed(hook, error), true))?;
    let Some(files) = files else { return Ok(BTreeMap::new()) };
    if files.fetch {
        super::artifacts::fetch_all(&alloc_dir, &task, &files).await?;
    }
    let now = shared.world.clock.now().0;
    let rendered =
        tokio::task::spawn_blocking(move || super::templates::render_all(&alloc_dir, &task, &files, now)).await;
    rendered.unwrap_or_else(|error| Err((failed("template", error.to_string()), true)))
}

/// The file that a dispatch payload goes to, if there are both.
fn payload(job: &Job, task: &Task) -> Result<Option<(String, Vec<u8>)>, String> {
    let (Some(target), Some(text)) = (&task.dispatch_payload, &job.payload) else { return Ok(None) };
    if target.file.is_empty() || text.is_empty() {
        return Ok(None);
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).map_err(|error| format!("payload: {error}"))?;
    if bytes.len() > PAYLOAD_LIMIT {
        return Err(format!("payload has {} bytes, more than the {PAYLOAD_LIMIT} allowed", bytes.len()));
    }
    Ok(Some((target.file.clone(), bytes)))
}

/// What a specification is made from.
pub struct SpecSource<'a> {
    pub shared: &'a Shared,
    pub dir: &'a AllocDir,
    pub alloc: &'a Allocation,
    pub job: &'a Job,
    pub group: &'a TaskGroup,
    pub task: &'a Task,
    /// Variables that the task's templates gave.
    pub rendered: Option<&'a BTreeMap<String, String>>,
}

/// The environment of a task, with paths as it sees them.
pub fn environment(source: &SpecSource, isolation: FsIsolation) -> TaskEnv {
    let task_dir = source.dir.task(&source.task.name);
    let paths = match isolation {
        FsIsolation::None => {
            TaskPaths { alloc: source.dir.shared(), local: task_dir.join("local"), secrets: task_dir.join("secrets") }
        }
        FsIsolation::Chroot | FsIsolation::Image => {
            TaskPaths { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() }
        }
    };
    TaskEnv::build(&EnvSource {
        alloc: source.alloc,
        job: source.job,
        group: source.group,
        task: source.task,
        node: &source.shared.node(),
        node_keys: source.shared.node_keys(),
        region: &source.shared.config.region,
        paths,
        host_env: isolation != FsIsolation::Image,
        rendered: source.rendered,
        options: &source.shared.config.options,
        cgroup_parent: &source.shared.config.cgroup_parent,
    })
}

/// Everything the driver needs. The error is a fact for the task, which no further attempt would change.
pub fn task_spec(
    source: &SpecSource,
    capabilities: Capabilities,
    key: Key,
    events: EventSink,
) -> Result<TaskSpec, TaskFact> {
    let SpecSource { shared, dir, alloc, job, group, task, .. } = source;
    let env = environment(source, capabilities.fs_isolation);
    let node = shared.node();
    let network = alloc.resources.shared.networks.first().or_else(|| group.networks.first());
    let ports = alloc.resources.shared.ports.iter().map(|port| Port {
        label: port.label.clone(),
        host_ip: port.host_ip.clone(),
        host_port: u16::try_from(port.value).unwrap_or(0),
        to: u16::try_from(port.to).unwrap_or(0),
    });
    let config: serde_json::Map<_, _> = task.config.iter().map(|(k, v)| (k.clone(), env.fill_value(v))).collect();
    let mounts = volumes(source, &env).map_err(|error| failed("volumes", error))?;
    Ok(TaskSpec {
        key: Some(start_key(alloc, &task.name, key)),
        alloc_name: alloc.name.clone(),
        job_id: job.id.clone(),
        job_name: job.name.clone(),
        namespace: alloc.namespace.to_string(),
        group: group.name.clone(),
        node_id: node.id.to_string(),
        node_name: node.name.to_string(),
        config: serde_json::Value::Object(config),
        user: env.fill(&task.user),
        dirs: directories(dir, &task.name),
        resources: resources(alloc, task, node.resources.cpu_shares),
        log: LogSettings {
            max_files: u32::try_from(task.log_config.max_files).unwrap_or(u32::MAX),
            max_file_size_mb: u32::try_from(task.log_config.max_file_size_mb).unwrap_or(u32::MAX),
            disabled: task.log_config.disabled,
        },
        kill_signal: task.kill_signal.clone(),
        mounts,
        devices: Vec::new(),
        ports: ports.collect(),
        dns: network.and_then(|network| network.dns.as_ref()).map(|dns| Dns {
            servers: dns.servers.0.clone(),
            searches: dns.searches.0.clone(),
            options: dns.options.0.clone(),
        }),
        network_namespace: None,
        hostname: network.map(|network| env.fill(&network.hostname)).unwrap_or_default(),
        deadline: None,
        events,
        env: env.vars,
    })
}

/// Names one start for the driver.
pub fn start_key(alloc: &Allocation, task: &str, key: Key) -> StartKey {
    StartKey { alloc_id: alloc.id.to_string(), task: task.to_string(), run: key.run, attempt: key.attempt }
}

fn directories(dir: &AllocDir, task: &str) -> TaskDirs {
    let task_dir = dir.task(task);
    TaskDirs {
        alloc_dir: dir.root.clone(),
        shared: dir.shared(),
        local: task_dir.join("local"),
        secrets: task_dir.join("secrets"),
        task_dir,
        logs: dir.logs(),
    }
}

/// What was granted, or what was asked for where the servers granted nothing by name.
fn resources(alloc: &Allocation, task: &Task, node_cpu_mhz: i64) -> TaskResources {
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let node_cpu_mhz = positive(node_cpu_mhz);
    match alloc.resources.tasks.get(&task.name) {
        Some(granted) => TaskResources {
            cpu_shares: positive(granted.cpu.cpu_shares),
            cores: granted.cpu.reserved_cores.0.clone(),
            memory_mb: positive(granted.memory.memory_mb),
            memory_max_mb: granted.memory.memory_max_mb,
            node_cpu_mhz,
        },
        None => TaskResources {
            cpu_shares: positive(task.resources.cpu),
            cores: Vec::new(),
            memory_mb: positive(task.resources.memory_mb),
            memory_max_mb: task.resources.memory_max_mb,
            node_cpu_mhz,
        },
    }
}

/// The host directories behind the task's volume mounts.
fn volumes(source: &SpecSource, env: &TaskEnv) -> Result<Vec<Mount>, String> {
    let node = source.shared.node();
    let mounts = source.task.volume_mounts.iter().map(|mount| {
        let name = &mount.volume;
        let request = source.group.volumes.get(name).ok_or_else(|| format!("the group has no volume {name:?}"))?;
        if request.kind != "host" {
            return Err(format!("volume {name:?} is of type {:?}; this version mounts host volumes", request.kind));
        }
        let mut wanted = env.fill(&request.source);
        if request.per_alloc {
            wanted = format!("{wanted}[{}]", source.alloc.index().unwrap_or(0));
        }
        let volume = node.host_volumes.get(&wanted).ok_or_else(|| {
            format!("the node has no host volume {wanted:?}; add host_volume {wanted:?} to its client configuration")
        })?;
        Ok(Mount {
            host_path: PathBuf::from(&volume.path),
            task_path: env.fill(&mount.destination),
            readonly: mount.read_only || request.read_only || volume.read_only,
            propagation: Propagation::from_mode(&mount.propagation_mode),
        })
    });
    mounts.collect()
}
