//! The environment of a task, and what `${…}` means in it.
//!
//! Later entries win: built-in variables, metadata, the task's own `env`, what its templates gave. Host variables (where the driver passes them
//! on) are added where nothing else set them, and `${…}` does not see them. Rules: `compat/lifecycle.md` section 13.

use herdsman_expr::interpolate::{self, Lookup};
use herdsman_model::{AllocatedPort, Allocation, Job, Node, Task, TaskGroup};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Host variables that never reach a task.
const DENIED: [&str; 16] = [
    "CONSUL_TOKEN",
    "CONSUL_HTTP_TOKEN",
    "CONSUL_HTTP_TOKEN_FILE",
    "NOMAD_TOKEN",
    "VAULT_TOKEN",
    "CONSUL_LICENSE",
    "NOMAD_LICENSE",
    "VAULT_LICENSE",
    "CONSUL_LICENSE_PATH",
    "NOMAD_LICENSE_PATH",
    "VAULT_LICENSE_PATH",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_METADATA_URL",
    "GOOGLE_APPLICATION_CREDENTIALS",
];
/// What a service manager tells the agent about its own service. It is nobody else's, whatever the option says: a task
/// that reports to it would speak for the agent.
const SERVICE_MANAGERS: [&str; 21] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "FDSTORE",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MAINPID",
    "MANAGERPID",
    "SYSTEMD_EXEC_PID",
    "CREDENTIALS_DIRECTORY",
    "RUNTIME_DIRECTORY",
    "STATE_DIRECTORY",
    "CACHE_DIRECTORY",
    "LOGS_DIRECTORY",
    "CONFIGURATION_DIRECTORY",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    "PIDFILE",
];
/// The client option that replaces the first list above.
const DENYLIST_OPTION: &str = "env.denylist";

/// Where a task sees its directories: host paths, or paths inside its own root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPaths {
    pub alloc: PathBuf,
    pub local: PathBuf,
    pub secrets: PathBuf,
}

/// What an environment is made from.
pub struct EnvSource<'a> {
    pub alloc: &'a Allocation,
    pub job: &'a Job,
    pub group: &'a TaskGroup,
    pub task: &'a Task,
    pub node: &'a Node,
    /// [`node_keys`] of the node.
    pub node_keys: Arc<BTreeMap<String, String>>,
    pub region: &'a str,
    pub paths: TaskPaths,
    /// Host variables are passed on (drivers without an image).
    pub host_env: bool,
    /// Variables that the task's templates gave.
    pub rendered: Option<&'a BTreeMap<String, String>>,
    pub options: &'a BTreeMap<String, String>,
    pub cgroup_parent: &'a str,
}

/// The environment of a task.
#[derive(Debug, Clone, Default)]
pub struct TaskEnv {
    pub vars: BTreeMap<String, String>,
    /// `node.*`, `attr.*` and `meta.*` keys.
    node: Arc<BTreeMap<String, String>>,
}

impl Lookup for TaskEnv {
    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        let key = interpolate::env_name(key).unwrap_or(key);
        self.node.get(key).or_else(|| self.vars.get(key)).map(|value| Cow::Borrowed(value.as_str()))
    }
}

impl TaskEnv {
    /// Builds the environment.
    pub fn build(source: &EnvSource) -> TaskEnv {
        let mut env = TaskEnv { vars: BTreeMap::new(), node: Arc::clone(&source.node_keys) };
        env.builtin(source);
        env.resources(source);
        env.ports(source);
        env.metadata(source);
        let own: BTreeMap<_, _> = source.task.env.iter().map(|(key, value)| (env.fill(key), env.fill(value))).collect();
        // A variable may refer to another of the same block.
        let mut with_own = env.clone();
        with_own.vars.extend(own.iter().map(|(k, v)| (k.clone(), v.clone())));
        for (key, value) in own {
            let value = with_own.fill(&value);
            env.vars.insert(key, value);
        }
        for (key, value) in source.rendered.into_iter().flatten() {
            env.vars.insert(key.clone(), value.clone());
        }
        if source.host_env {
            env.host(source.options);
        }
        env
    }

    /// Replaces the references this environment knows.
    pub fn fill(&self, text: &str) -> String {
        interpolate::interpolate(text, self).into_owned()
    }

    /// Replaces references in every text of a driver's configuration.
    pub fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(k, v)| (self.fill(k), self.fill_value(v))).collect())
            }
            other => other.clone(),
        }
    }

    fn set(&mut self, key: &str, value: impl Into<String>) {
        self.vars.insert(format!("NOMAD_{key}"), value.into());
    }

    fn builtin(&mut self, source: &EnvSource) {
        let alloc = source.alloc;
        let paths = &source.paths;
        self.set("ALLOC_DIR", paths.alloc.to_string_lossy());
        self.set("TASK_DIR", paths.local.to_string_lossy());
        self.set("SECRETS_DIR", paths.secrets.to_string_lossy());
        self.set("ALLOC_ID", alloc.id.to_string());
        self.set("SHORT_ALLOC_ID", alloc.id.short());
        self.set("ALLOC_NAME", alloc.name.as_str());
        self.set("ALLOC_INDEX", alloc.index().unwrap_or(0).to_string());
        self.set("TASK_NAME", source.task.name.as_str());
        self.set("GROUP_NAME", source.group.name.as_str());
        self.set("JOB_ID", source.job.id.as_str());
        self.set("JOB_NAME", source.job.name.as_str());
        if !source.job.parent_id.is_empty() {
            self.set("JOB_PARENT_ID", source.job.parent_id.as_str());
        }
        self.set("NAMESPACE", &*alloc.namespace);
        self.set("REGION", source.region);
        self.set("DC", source.node.datacenter.as_str());
        self.set("PARENT_CGROUP", source.cgroup_parent);
    }

    fn resources(&mut self, source: &EnvSource) {
        let Some(granted) = source.alloc.resources.tasks.get(&source.task.name) else { return };
        self.set("CPU_LIMIT", granted.cpu.cpu_shares.to_string());
        let cores: Vec<_> = granted.cpu.reserved_cores.iter().map(u16::to_string).collect();
        self.set("CPU_CORES", cores.join(","));
        self.set("MEMORY_LIMIT", granted.memory.memory_mb.to_string());
        if granted.memory.memory_max_mb > 0 {
            self.set("MEMORY_MAX_LIMIT", granted.memory.memory_max_mb.to_string());
        }
    }

    fn ports(&mut self, source: &EnvSource) {
        for port in source.alloc.resources.shared.ports.iter() {
            self.port(port);
        }
        for (task, granted) in &source.alloc.resources.tasks {
            for network in granted.networks.iter() {
                for port in network.reserved_ports.iter().chain(network.dynamic_ports.iter()) {
                    let label = clean(&port.label);
                    let prefix = if *task == source.task.name { label } else { format!("{}_{label}", clean(task)) };
                    self.address(&prefix, &network.ip, port.value);
                }
            }
        }
    }

    /// A group port. The port inside differs from the host's when it is mapped.
    fn port(&mut self, port: &AllocatedPort) {
        let label = clean(&port.label);
        let inside = if port.to > 0 { port.to } else { port.value };
        let host = join(&port.host_ip, port.value);
        self.set(&format!("IP_{label}"), port.host_ip.as_str());
        self.set(&format!("PORT_{label}"), inside.to_string());
        self.set(&format!("ADDR_{label}"), host.as_str());
        self.set(&format!("HOST_IP_{label}"), port.host_ip.as_str());
        self.set(&format!("HOST_PORT_{label}"), port.value.to_string());
        self.set(&format!("HOST_ADDR_{label}"), host);
        self.set(&format!("ALLOC_PORT_{label}"), inside.to_string());
    }

    fn address(&mut self, label: &str, ip: &str, port: i64) {
        self.set(&format!("IP_{label}"), ip);
        self.set(&format!("PORT_{label}"), port.to_string());
        self.set(&format!("ADDR_{label}"), join(ip, port));
    }

    /// Metadata of job, group and task, the nearer one winning, under the key as written and in upper case.
    fn metadata(&mut self, source: &EnvSource) {
        let layers = [&source.job.meta, &source.group.meta, &source.task.meta];
        let merged: BTreeMap<_, _> = layers.into_iter().flat_map(|meta| meta.iter()).collect();
        for (key, value) in merged {
            let value = self.fill(value);
            let key = clean(key);
            self.set(&format!("META_{}", key.to_uppercase()), value.as_str());
            self.set(&format!("META_{key}"), value);
        }
    }

    fn host(&mut self, options: &BTreeMap<String, String>) {
        let set: Option<Vec<&str>> = options.get(DENYLIST_OPTION).map(|list| list.split(',').map(str::trim).collect());
        let denied = |key: &str| match &set {
            Some(list) => list.contains(&key),
            None => DENIED.contains(&key) || key == "GOOGLE_OAUTH_ACCESS_TOKEN",
        };
        for (key, value) in std::env::vars_os() {
            let (Ok(key), Ok(value)) = (key.into_string(), value.into_string()) else { continue };
            if !denied(&key) && !SERVICE_MANAGERS.contains(&key.as_str()) {
                self.vars.entry(key).or_insert(value);
            }
        }
    }
}

/// `host:port`, with brackets round an IPv6 address.
pub(crate) fn join(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// A name as part of a variable's: everything but letters, digits and `_` becomes `_`.
pub(crate) fn clean(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

/// The references that name the node.
pub fn node_keys(node: &Node, region: &str) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::from([
        ("node.unique.id".to_string(), node.id.to_string()),
        ("node.unique.name".to_string(), node.name.to_string()),
        ("node.datacenter".to_string(), node.datacenter.clone()),
        ("node.class".to_string(), node.node_class.clone()),
        ("node.pool".to_string(), node.node_pool.clone()),
        ("node.region".to_string(), region.to_string()),
    ]);
    keys.extend(node.attributes.iter().map(|(key, value)| (format!("attr.{key}"), value.clone())));
    keys.extend(node.meta.iter().map(|(key, value)| (format!("meta.{key}"), value.clone())));
    keys
}
