//! What the node is and has: attributes, resources and networks, read from the host.
//!
//! Everything here is a read of a few files and takes well under a millisecond. What takes longer (drivers, cloud
//! metadata) is added later by whoever finds it and never delays the node.

mod class;
mod cpu;
mod network;

pub use class::computed_class;

use crate::config::NodeConfig;
use crate::identity::Identity;
use herdsman_model::{Eligibility, Name, Node, NodeResources, NodeStatus, SecretText};
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes in a megabyte as resources count them.
const MB: u64 = 1024 * 1024;

/// Metadata that every node has unless it sets its own.
const DEFAULT_META: [(&str, &str); 6] = [
    ("connect.gateway_image", "docker.io/envoyproxy/envoy:v${NOMAD_envoy_version}"),
    ("connect.log_level", "info"),
    ("connect.proxy_concurrency", "1"),
    ("connect.sidecar_image", "docker.io/envoyproxy/envoy:v${NOMAD_envoy_version}"),
    ("connect.transparent_proxy.default_outbound_port", "15001"),
    ("connect.transparent_proxy.default_uid", "101"),
];

/// Signals that tasks can be sent, as `os.signals` lists them.
const SIGNALS: &str = "SIGABRT,SIGALRM,SIGBUS,SIGCONT,SIGFPE,SIGHUP,SIGILL,SIGINT,SIGIO,SIGIOT,SIGKILL,SIGPIPE,\
SIGPROF,SIGQUIT,SIGSEGV,SIGSTOP,SIGSYS,SIGTERM,SIGTRAP,SIGTSTP,SIGTTIN,SIGTTOU,SIGUSR1,SIGUSR2,SIGWINCH,SIGXCPU,SIGXFSZ";

/// The node as it is without drivers.
pub fn node(config: &NodeConfig, identity: &Identity) -> Node {
    let mut attributes = BTreeMap::new();
    let mut resources = NodeResources {
        min_dynamic_port: config.min_dynamic_port,
        max_dynamic_port: config.max_dynamic_port,
        ..NodeResources::default()
    };
    let hostname = hostname();
    cpu::fingerprint(config, &mut attributes, &mut resources);
    memory(config, &mut attributes, &mut resources);
    storage(config, &mut attributes, &mut resources);
    system(&hostname, &mut attributes);
    network::fingerprint(config, &mut attributes, &mut resources);
    attributes.insert("nomad.version".into(), config.version.clone());
    attributes.insert("nomad.revision".into(), config.revision.clone());
    if config.service_discovery {
        attributes.insert("nomad.service_discovery".into(), "true".into());
    }
    attributes.insert("nomad.bridge.hairpin_mode".into(), "false".into());
    let name = if config.name.is_empty() { &hostname } else { &config.name };
    let mut node = Node {
        id: identity.id,
        secret_id: SecretText(identity.secret.to_string()),
        name: Name::from(name.as_str()),
        datacenter: config.datacenter.clone(),
        node_pool: config.node_pool.clone(),
        node_class: config.node_class.clone(),
        attributes,
        meta: static_meta(config),
        resources,
        reserved: config.reserved.clone(),
        host_volumes: config.host_volumes.clone(),
        host_networks: config.host_networks.clone(),
        http_addr: config.http_addr.clone(),
        cgroup_parent: config.cgroup_parent.clone(),
        node_max_allocs: config.node_max_allocs,
        status: NodeStatus::Initializing,
        eligibility: if config.default_ineligible { Eligibility::Ineligible } else { Eligibility::Eligible },
        ..Node::default()
    };
    node.computed_class = computed_class(&node);
    node
}

/// Static metadata: the defaults, then what the configuration sets.
pub fn static_meta(config: &NodeConfig) -> BTreeMap<String, String> {
    let defaults = DEFAULT_META.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string()));
    defaults.chain(config.meta.clone()).collect()
}

/// The content of a small file, trimmed; empty when it cannot be read.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default()
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn memory(config: &NodeConfig, attributes: &mut BTreeMap<String, String>, resources: &mut NodeResources) {
    let line = |key: &str| {
        let text = read("/proc/meminfo");
        let line = text.lines().find_map(|line| line.strip_prefix(key).map(str::to_string))?;
        line.trim().split(' ').next()?.parse::<u64>().ok()
    };
    let bytes = match config.memory_total_mb {
        mb if mb > 0 => mb.unsigned_abs().saturating_mul(MB),
        _ => line("MemTotal:").unwrap_or(0).saturating_mul(1024),
    };
    attributes.insert("memory.totalbytes".into(), bytes.to_string());
    resources.memory_mb = i64::try_from(bytes / MB).unwrap_or(i64::MAX);
}

/// Size and free space of the file system that allocations live on.
pub fn space(path: &Path) -> Option<Space> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let block = stat.f_frsize.max(1);
    Some(Space {
        total: stat.f_blocks.saturating_mul(block),
        free: stat.f_bavail.saturating_mul(block),
        used: stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(block),
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
    })
}

/// A file system's room, bytes and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
    pub used: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

impl Space {
    /// Used space in percent, as `df` counts it.
    pub fn used_percent(&self) -> f64 {
        percent(self.used, self.used.saturating_add(self.free))
    }

    /// Used inodes in percent.
    pub fn inodes_used_percent(&self) -> f64 {
        percent(self.inodes.saturating_sub(self.inodes_free), self.inodes)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a percentage needs no more than 52 bits")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn storage(config: &NodeConfig, attributes: &mut BTreeMap<String, String>, resources: &mut NodeResources) {
    let Some(space) = space(&config.alloc_dir) else { return };
    let set = |mb: i64, measured: u64| if mb > 0 { mb.unsigned_abs().saturating_mul(MB) } else { measured };
    let total = set(config.disk_total_mb, space.total);
    let free = set(config.disk_free_mb, space.free);
    attributes.insert("unique.storage.bytestotal".into(), total.to_string());
    attributes.insert("unique.storage.bytesfree".into(), free.to_string());
    attributes.insert("unique.storage.volume".into(), volume(&config.alloc_dir));
    resources.disk_mb = i64::try_from(free / MB).unwrap_or(i64::MAX);
}

/// The device behind a path: the longest mount point that holds it.
fn volume(path: &Path) -> String {
    let mounts = read("/proc/self/mounts");
    let found = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, point) = (words.next()?, words.next()?);
        path.starts_with(point).then_some((point.len(), device))
    });
    found.max_by_key(|(length, _)| *length).map(|(_, device)| device.to_string()).unwrap_or_default()
}

fn system(hostname: &str, attributes: &mut BTreeMap<String, String>) {
    let uname = rustix::system::uname();
    let release = read("/etc/os-release");
    let field = |key: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.map(|v| v.trim_matches('"').to_string())
    };
    let mut set = |key: &str, value: String| drop(attributes.insert(key.into(), value));
    set("kernel.name", uname.sysname().to_string_lossy().to_lowercase());
    set("kernel.version", uname.release().to_string_lossy().into_owned());
    set("kernel.arch", uname.machine().to_string_lossy().into_owned());
    set("os.name", field("ID").unwrap_or_else(|| "linux".into()));
    set("os.version", field("VERSION_ID").unwrap_or_default());
    set("os.signals", SIGNALS.into());
    set("unique.hostname", hostname.into());
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    set("os.cgroups.version", if unified { "2" } else { "1" }.into());
    let modules = read("/sys/kernel/security/lsm");
    if modules.split(',').any(|m| m == "landlock") {
        set("kernel.landlock", "true".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_what_jobs_constrain_on() {
        let config =
            NodeConfig { alloc_dir: "/".into(), name: "n".into(), version: "2.0.5".into(), ..NodeConfig::default() };
        let identity = Identity { id: Default::default(), secret: Default::default() };
        let node = node(&config, &identity);
        for key in [
            "cpu.arch",
            "cpu.numcores",
            "cpu.totalcompute",
            "memory.totalbytes",
            "kernel.name",
            "kernel.version",
            "os.name",
            "os.signals",
            "unique.hostname",
            "unique.network.ip-address",
            "unique.storage.bytestotal",
            "nomad.version",
        ] {
            assert!(node.attributes.get(key).is_some_and(|v| !v.is_empty()), "{key}");
        }
        assert!(node.resources.cpu_shares > 0 && node.resources.memory_mb > 0 && node.resources.disk_mb > 0);
        assert!(!node.resources.node_networks.is_empty());
        assert_eq!(node.meta["connect.log_level"], "info");
        assert!(node.computed_class.starts_with("v1:"));
    }

    #[test]
    fn set_sizes_win_over_measured_ones() {
        let config = NodeConfig {
            alloc_dir: "/".into(),
            cpu_total_compute: 4321,
            memory_total_mb: 77,
            disk_free_mb: 5,
            ..NodeConfig::default()
        };
        let node = node(&config, &Identity { id: Default::default(), secret: Default::default() });
        assert_eq!((node.resources.cpu_shares, node.resources.memory_mb, node.resources.disk_mb), (4321, 77, 5));
    }
}
