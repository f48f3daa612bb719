//! The drivers of a node, set up from the `plugin` blocks and the older client options.
//! Source: `compat/drivers.tsv`, rows of plugin configuration.

use crate::config::settings::{ClientSettings, Settings};
use crate::config::tree::as_bool;
use herdsman_drivers::{
    DockerDriver, DockerOptions, Drivers, ExecDriver, ExecOptions, Executor, MockDriver, RawExecDriver, RawExecOptions,
};
use herdsman_model::NodeId;
use herdsman_shim::{ShimConfig, ShimHost};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the directories of run files are called before the node's own part of the name.
pub const RUN_PREFIX: &str = "run-";

/// The directory of a node's run files. ext4 takes its place on the disk from its name: one name for all nodes would put all
/// of them into the same crowded corner.
fn run_root(state: &Path, node: NodeId) -> PathBuf {
    let own: String = node.to_string().chars().take(8).collect();
    state.join(format!("{RUN_PREFIX}{own}"))
}

/// Every driver that the settings turn on. The shim host keeps its run directories below `state`.
///
/// # Errors
/// A setting of a driver cannot be used, or the shim cannot be started.
pub async fn all(
    settings: &Settings,
    client: &ClientSettings,
    state: &Path,
    node_id: NodeId,
) -> Result<(Drivers, Arc<ShimHost>), String> {
    let shim = ShimConfig { run_root: run_root(state, node_id), cgroup_parent: cgroup_parent(client) };
    let host = Arc::new(ShimHost::open(shim).await.map_err(|e| e.to_string())?);
    for note in host.notes() {
        tracing::info!(target: "client.shim", "{note}");
    }
    if has_own_mounts() {
        tracing::warn!(target: "client", "this agent has mounts of its own (PrivateTmp=, ProtectSystem= or the like of its service): tasks see them too, and after a restart others than new tasks; remove these settings");
    }
    let missing = host.cgroups().missing().join(", ");
    if !missing.is_empty() {
        tracing::warn!(target: "client.shim", missing, "this host gives no such cgroup controllers: limits of tasks that need them have no effect");
    }
    let executor = Arc::new(Executor::new(Arc::clone(&host)));
    let wanted = Wanted::of(client);
    let mut drivers = Drivers::new();
    if wanted.takes("raw_exec") {
        let plugin = Plugin::of(settings, "raw_exec");
        let by_option = client.options.get("driver.raw_exec.enable").is_some_and(|v| v == "1" || v == "true");
        let options = RawExecOptions {
            enabled: plugin.flag("enabled", settings.dev || by_option),
            denied_host_uids: plugin.text("denied_host_uids"),
            denied_host_gids: plugin.text("denied_host_gids"),
            denied_envvars: plugin.list("denied_envvars"),
        };
        plugin.refuse_unknown(&["enabled", "denied_host_uids", "denied_host_gids", "denied_envvars", "no_cgroups"])?;
        drivers.add(Arc::new(RawExecDriver::new(Arc::clone(&executor), options)?));
    }
    if wanted.takes("exec") {
        let plugin = Plugin::of(settings, "exec");
        let options = ExecOptions {
            no_pivot_root: plugin.flag("no_pivot_root", false),
            default_pid_mode: plugin.text("default_pid_mode"),
            default_ipc_mode: plugin.text("default_ipc_mode"),
            allow_caps: plugin.given("allow_caps").then(|| plugin.list("allow_caps")),
            denied_host_uids: plugin.text("denied_host_uids"),
            denied_host_gids: plugin.text("denied_host_gids"),
            chroot_env: client.chroot_env.clone(),
        };
        plugin.refuse_unknown(&[
            "no_pivot_root",
            "default_pid_mode",
            "default_ipc_mode",
            "allow_caps",
            "denied_host_uids",
            "denied_host_gids",
        ])?;
        drivers.add(Arc::new(ExecDriver::new(Arc::clone(&executor), options)?));
    }
    if wanted.takes("docker") {
        let options = DockerOptions::new(node_id.to_string(), state.to_path_buf(), state.join("docker"));
        let options = match settings.plugins.get("docker").filter(|c| c.is_object()) {
            Some(config) => options.with_config(config).map_err(|e| format!("plugin \"docker\": {e}"))?,
            None => options,
        };
        drivers.add(Arc::new(DockerDriver::new(options)?));
    }
    if settings.dev || client.options.contains_key("driver.mock_driver.enable") {
        drivers.add(Arc::new(MockDriver::new()));
    }
    if let Some(name) = settings.plugins.keys().find(|n| !KNOWN.contains(&n.as_str())) {
        return Err(format!("plugin {name:?}: there is no such driver here; known are {}", KNOWN.join(", ")));
    }
    Ok((drivers, host))
}

/// Whether this process sees other mounts than the first one of the system, as a service does that was given some.
fn has_own_mounts() -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    match (namespace("self"), namespace("1")) {
        (Ok(own), Ok(system)) => own != system,
        // Without the right to look nothing can be said.
        _ => false,
    }
}

/// Drivers that may be configured.
const KNOWN: &[&str] = &["docker", "exec", "raw_exec"];

/// The cgroup that shims and tasks live below: outside the agent's own, so that they survive its service.
pub fn cgroup_parent(client: &ClientSettings) -> String {
    if client.cgroup_parent.is_empty() { "herdsman.slice".to_string() } else { client.cgroup_parent.clone() }
}

/// `driver.allowlist` and `driver.denylist` of the client options, their older names included.
struct Wanted {
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Wanted {
    fn of(client: &ClientSettings) -> Wanted {
        let words = |names: [&str; 2]| {
            let text = names.iter().find_map(|n| client.options.get(*n)).cloned().unwrap_or_default();
            text.split(',').map(|w| w.trim().to_string()).filter(|w| !w.is_empty()).collect()
        };
        Wanted {
            allow: words(["driver.allowlist", "driver.whitelist"]),
            deny: words(["driver.denylist", "driver.blacklist"]),
        }
    }

    fn takes(&self, driver: &str) -> bool {
        (self.allow.is_empty() || self.allow.iter().any(|d| d == driver)) && !self.deny.iter().any(|d| d == driver)
    }
}

/// The configuration of one driver.
struct Plugin<'a> {
    name: &'a str,
    config: Option<&'a Value>,
}

impl<'a> Plugin<'a> {
    fn of(settings: &'a Settings, name: &'a str) -> Plugin<'a> {
        Plugin { name, config: settings.plugins.get(name) }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.config.and_then(|c| c.get(key)).filter(|v| !v.is_null())
    }

    fn given(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn flag(&self, key: &str, default: bool) -> bool {
        self.get(key).and_then(as_bool).unwrap_or(default)
    }

    fn text(&self, key: &str) -> String {
        self.get(key).and_then(Value::as_str).unwrap_or_default().to_string()
    }

    fn list(&self, key: &str) -> Vec<String> {
        let items = self.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        items.iter().filter_map(Value::as_str).map(str::to_string).collect()
    }

    fn refuse_unknown(&self, known: &[&str]) -> Result<(), String> {
        let fields = self.config.and_then(Value::as_object);
        match fields.and_then(|f| f.keys().find(|k| !known.contains(&k.as_str()))) {
            Some(key) => {
                Err(format!("plugin {:?}: {key:?} is not a known key; known are {}", self.name, known.join(", ")))
            }
            None => Ok(()),
        }
    }
}

/// The cores of a text such as `0-3,5`; what cannot be understood names no core.
pub fn cores(text: &str) -> Vec<u16> {
    let mut all = std::collections::BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(low), Ok(high)) = (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
            all.extend(low..=high);
        }
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_sets_are_read() {
        assert_eq!(cores("0-2,5"), [0, 1, 2, 5]);
        assert!(cores("").is_empty());
        assert!(cores("x").is_empty());
    }
}
