//! What the agent needs to know, typed, every default filled in. Defaults: `compat/agent-config.tsv`.

use crate::config::tree::{as_bool, as_duration, as_float, as_int};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Everything an agent is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub dev: bool,
    pub region: String,
    pub datacenter: String,
    /// Empty: the host's name.
    pub name: String,
    /// None only in development mode, which makes a temporary one.
    pub data_dir: Option<PathBuf>,
    pub log: LogSettings,
    pub bind_addr: String,
    pub ports: Ports,
    pub addresses: Addresses,
    pub advertise: Addresses,
    pub response_headers: BTreeMap<String, String>,
    pub leave_on_interrupt: bool,
    pub leave_on_terminate: bool,
    pub server: Option<ServerSettings>,
    pub client: Option<ClientSettings>,
    /// Metrics may be read in the text form of Prometheus.
    pub prometheus: bool,
    /// The configuration of drivers by name.
    pub plugins: BTreeMap<String, Value>,
}

/// Where logs go and how they look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// TRACE, DEBUG, INFO, WARN, ERROR or OFF.
    pub level: String,
    pub json: bool,
    pub file: Option<PathBuf>,
    pub rotate_after: Duration,
    /// 0: not by size.
    pub rotate_bytes: u64,
    /// 0: all are kept.
    pub keep_files: u64,
    pub location: bool,
}

/// Ports the agent listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    pub http: u16,
    pub rpc: u16,
    pub serf: u16,
}

/// Addresses per protocol; empty: the general one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    pub http: String,
    pub rpc: String,
}

/// What a server is told.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSettings {
    pub data_dir: Option<PathBuf>,
    pub bootstrap_expect: u64,
    /// 0: one per processor.
    pub schedulers: u64,
    pub node_gc_threshold: Duration,
    pub job_gc_interval: Duration,
    pub job_gc_threshold: Duration,
    pub eval_gc_threshold: Duration,
    pub batch_eval_gc_threshold: Duration,
    pub deployment_gc_threshold: Duration,
    pub heartbeat_grace: Duration,
    pub min_heartbeat_ttl: Duration,
    pub max_heartbeats_per_second: f64,
    pub job_default_priority: i64,
    pub job_max_priority: i64,
    pub job_max_count: i64,
    /// Bytes.
    pub job_max_source_size: u64,
    pub job_tracked_versions: u64,
    pub scheduler_algorithm: String,
    pub memory_oversubscription: bool,
    /// System, sysbatch, batch, service.
    pub preemption: [bool; 4],
    pub snapshot_threshold: u64,
    pub segment_mb: u64,
}

/// What a node is told.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientSettings {
    pub state_dir: Option<PathBuf>,
    pub alloc_dir: Option<PathBuf>,
    /// Addresses of servers, with or without a port.
    pub servers: Vec<String>,
    pub node_class: String,
    pub node_pool: String,
    pub options: BTreeMap<String, String>,
    pub meta: BTreeMap<String, String>,
    pub chroot_env: BTreeMap<String, String>,
    pub network_interface: String,
    pub cpu_total_compute: i64,
    pub memory_total_mb: i64,
    pub disk_total_mb: i64,
    pub max_kill_timeout: Duration,
    pub dynamic_ports: (i64, i64),
    pub reserved_cpu: i64,
    pub reserved_cores: String,
    pub reservable_cores: String,
    pub reserved_memory: i64,
    pub reserved_disk: i64,
    pub reserved_ports: String,
    pub gc_interval: Duration,
    pub gc_max_allocs: u64,
    pub gc_disk_percent: f64,
    pub gc_inode_percent: f64,
    pub gc_parallel: u64,
    pub disable_remote_exec: bool,
    pub node_max_allocs: i64,
    pub default_ineligible: bool,
    pub service_discovery: bool,
    pub cgroup_parent: String,
    pub host_volumes: Vec<HostVolumeSettings>,
    pub drain_on_shutdown: Option<DrainSettings>,
}

/// A host directory offered as a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVolumeSettings {
    pub name: String,
    pub path: PathBuf,
    pub read_only: bool,
}

/// How the node is drained when the agent is told to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSettings {
    pub deadline: Duration,
    pub ignore_system_jobs: bool,
    pub force: bool,
}

/// A setting whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} = {value}: {expected}")]
pub struct BadSetting {
    pub path: String,
    pub value: String,
    /// What would be right.
    pub expected: String,
}

/// A block of the tree, for reading with defaults.
struct Block<'a> {
    path: &'a str,
    fields: Option<&'a Map<String, Value>>,
}

const SECOND: u64 = 1;
const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

impl<'a> Block<'a> {
    fn of(tree: &'a Map<String, Value>, path: &'a str) -> Block<'a> {
        let mut fields = Some(tree);
        for name in path.split('.').filter(|n| !n.is_empty()) {
            fields = fields.and_then(|f| f.get(name)).and_then(Value::as_object);
        }
        Block { path, fields }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.and_then(|f| f.get(name)).filter(|v| !v.is_null())
    }

    fn bad(&self, name: &str, value: &Value, expected: &str) -> BadSetting {
        let path = if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) };
        BadSetting { path, value: value.to_string(), expected: expected.to_string() }
    }

    fn text(&self, name: &str, default: &str) -> String {
        match self.get(name) {
            None => default.to_string(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    fn path_of(&self, name: &str) -> Option<PathBuf> {
        Some(self.text(name, "")).filter(|t| !t.is_empty()).map(PathBuf::from)
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.get(name).and_then(as_bool).unwrap_or(default)
    }

    fn int(&self, name: &str, default: i64, least: i64, most: i64) -> Result<i64, BadSetting> {
        let Some(value) = self.get(name) else { return Ok(default) };
        match as_int(value) {
            Some(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(self.bad(name, value, &format!("a whole number from {least} to {most} is needed"))),
        }
    }

    fn count(&self, name: &str, default: u64) -> Result<u64, BadSetting> {
        let default = i64::try_from(default).unwrap_or(i64::MAX);
        Ok(u64::try_from(self.int(name, default, 0, i64::MAX)?).unwrap_or(0))
    }

    fn port(&self, name: &str, default: u16) -> Result<u16, BadSetting> {
        let number = self.int(name, i64::from(default), 0, 65535)?;
        Ok(u16::try_from(number).unwrap_or(default))
    }

    fn float(&self, name: &str, default: f64) -> f64 {
        self.get(name).and_then(as_float).unwrap_or(default)
    }

    fn duration(&self, name: &str, default_seconds: u64) -> Result<Duration, BadSetting> {
        let Some(value) = self.get(name) else { return Ok(Duration::from_secs(default_seconds)) };
        match as_duration(value).and_then(|n| u64::try_from(n).ok()) {
            Some(nanos) => Ok(Duration::from_nanos(nanos)),
            None => Err(self.bad(name, value, "a duration that is not negative is needed, such as \"10s\"")),
        }
    }

    fn list(&self, name: &str) -> Vec<String> {
        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_string);
        match self.get(name) {
            Some(Value::Array(items)) => items.iter().map(text).collect(),
            Some(one) => vec![text(one)],
            None => Vec::new(),
        }
    }

    fn map(&self, name: &str) -> BTreeMap<String, String> {
        let Some(Value::Object(fields)) = self.get(name) else { return BTreeMap::new() };
        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_string);
        fields.iter().map(|(n, v)| (n.clone(), text(v))).collect()
    }
}

impl Settings {
    /// Reads a checked tree.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub fn read(tree: &Map<String, Value>, dev: bool) -> Result<Settings, BadSetting> {
        let top = Block::of(tree, "");
        let ports = Block::of(tree, "ports");
        let addresses = |path| {
            let block = Block::of(tree, path);
            Addresses { http: block.text("http", ""), rpc: block.text("rpc", "") }
        };
        let plugins = match tree.get("plugin") {
            Some(Value::Object(all)) => {
                all.iter().map(|(n, p)| (n.clone(), p.get("config").cloned().unwrap_or_default())).collect()
            }
            _ => BTreeMap::new(),
        };
        let server_on = dev || Block::of(tree, "server").flag("enabled", false);
        let client_on = dev || Block::of(tree, "client").flag("enabled", false);
        Ok(Settings {
            dev,
            region: top.text("region", "global"),
            datacenter: top.text("datacenter", "dc1"),
            name: top.text("name", ""),
            data_dir: top.path_of("data_dir"),
            log: LogSettings::read(&top, dev)?,
            bind_addr: top.text("bind_addr", if dev { "127.0.0.1" } else { "0.0.0.0" }),
            ports: Ports {
                http: ports.port("http", 4646)?,
                rpc: ports.port("rpc", 4647)?,
                serf: ports.port("serf", 4648)?,
            },
            addresses: addresses("addresses"),
            advertise: addresses("advertise"),
            response_headers: top.map("http_api_response_headers"),
            leave_on_interrupt: top.flag("leave_on_interrupt", false),
            leave_on_terminate: top.flag("leave_on_terminate", false),
            server: server_on.then(|| ServerSettings::read(tree)).transpose()?,
            client: client_on.then(|| ClientSettings::read(tree, dev)).transpose()?,
            prometheus: Block::of(tree, "telemetry").flag("prometheus_metrics", dev),
            plugins,
        })
    }
}

impl LogSettings {
    fn read(top: &Block<'_>, dev: bool) -> Result<LogSettings, BadSetting> {
        let level = top.text("log_level", if dev { "DEBUG" } else { "INFO" }).to_uppercase();
        if !matches!(level.as_str(), "TRACE" | "DEBUG" | "INFO" | "WARN" | "ERROR" | "OFF") {
            return Err(top.bad("log_level", &Value::String(level), "one of TRACE, DEBUG, INFO, WARN, ERROR, OFF"));
        }
        Ok(LogSettings {
            level,
            json: top.flag("log_json", false),
            file: top.path_of("log_file"),
            rotate_after: top.duration("log_rotate_duration", 24 * HOUR)?,
            rotate_bytes: top.count("log_rotate_bytes", 0)?,
            keep_files: top.count("log_rotate_max_files", 0)?,
            location: top.flag("log_include_location", false),
        })
    }
}

impl ServerSettings {
    fn read(tree: &Map<String, Value>) -> Result<ServerSettings, BadSetting> {
        let server = Block::of(tree, "server");
        let scheduler = Block::of(tree, "server.default_scheduler_config");
        let preemption = Block::of(tree, "server.default_scheduler_config.preemption_config");
        let algorithm = scheduler.text("scheduler_algorithm", "binpack");
        if !matches!(algorithm.as_str(), "binpack" | "spread") {
            return Err(scheduler.bad("scheduler_algorithm", &Value::String(algorithm), "binpack or spread"));
        }
        let expected = server.count("bootstrap_expect", 1)?;
        if expected > 1 {
            let wanted = "1: a cluster of several servers is not possible yet";
            return Err(server.bad("bootstrap_expect", &Value::from(expected), wanted));
        }
        let max_priority = server.int("job_max_priority", 100, 100, 32766)?;
        Ok(ServerSettings {
            data_dir: server.path_of("data_dir"),
            bootstrap_expect: expected,
            schedulers: server.count("num_schedulers", 0)?,
            node_gc_threshold: server.duration("node_gc_threshold", 24 * HOUR)?,
            job_gc_interval: server.duration("job_gc_interval", 5 * MINUTE)?,
            job_gc_threshold: server.duration("job_gc_threshold", 4 * HOUR)?,
            eval_gc_threshold: server.duration("eval_gc_threshold", HOUR)?,
            batch_eval_gc_threshold: server.duration("batch_eval_gc_threshold", 24 * HOUR)?,
            deployment_gc_threshold: server.duration("deployment_gc_threshold", HOUR)?,
            heartbeat_grace: server.duration("heartbeat_grace", 10 * SECOND)?,
            min_heartbeat_ttl: server.duration("min_heartbeat_ttl", 10 * SECOND)?,
            max_heartbeats_per_second: server.float("max_heartbeats_per_second", 50.0),
            job_default_priority: server.int("job_default_priority", 50, 50, max_priority)?,
            job_max_priority: max_priority,
            job_max_count: server.int("job_max_count", 50_000, 0, i64::MAX)?,
            job_max_source_size: read_size(&server, "job_max_source_size", 1_000_000)?,
            job_tracked_versions: u64::try_from(server.int("job_tracked_versions", 6, 1, 1_000)?).unwrap_or(6),
            scheduler_algorithm: algorithm,
            memory_oversubscription: scheduler.flag("memory_oversubscription_enabled", false),
            preemption: [
                // True only when the block is absent. Source: `compat/agent-config.tsv`.
                preemption.flag("system_scheduler_enabled", preemption.fields.is_none()),
                preemption.flag("sysbatch_scheduler_enabled", false),
                preemption.flag("batch_scheduler_enabled", false),
                preemption.flag("service_scheduler_enabled", false),
            ],
            snapshot_threshold: server.count("raft_snapshot_threshold", 8192)?,
            segment_mb: Block::of(tree, "server.raft_logstore.wal").count("segment_size_mb", 64)?,
        })
    }
}

/// A size in bytes such as `1M`, `100KB` or `4096`.
fn read_size(block: &Block<'_>, name: &str, default: u64) -> Result<u64, BadSetting> {
    let Some(value) = block.get(name) else { return Ok(default) };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string).to_uppercase();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text.get(digits.len()..).unwrap_or_default().trim() {
        "" | "B" => Some(1),
        "K" | "KB" => Some(1_000),
        "M" | "MB" => Some(1_000_000),
        "G" | "GB" => Some(1_000_000_000),
        "KIB" => Some(1 << 10),
        "MIB" => Some(1 << 20),
        "GIB" => Some(1 << 30),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    unit.zip(number)
        .and_then(|(unit, number): (u64, u64)| number.checked_mul(unit))
        .ok_or_else(|| block.bad(name, value, "a size is needed, such as \"1M\" or \"500KB\""))
}

impl ClientSettings {
    fn read(tree: &Map<String, Value>, dev: bool) -> Result<ClientSettings, BadSetting> {
        let client = Block::of(tree, "client");
        let reserved = Block::of(tree, "client.reserved");
        let mut servers = client.list("servers");
        servers.extend(Block::of(tree, "client.server_join").list("retry_join"));
        let pool = client.text("node_pool", "default");
        if pool == "all" {
            return Err(client.bad(
                "node_pool",
                &Value::String(pool),
                "the pool \"all\" stands for every pool; name one",
            ));
        }
        let low = client.int("min_dynamic_port", 20_000, 1, 65_535)?;
        let high = client.int("max_dynamic_port", 32_000, low, 65_535)?;
        Ok(ClientSettings {
            state_dir: client.path_of("state_dir"),
            alloc_dir: client.path_of("alloc_dir"),
            servers,
            node_class: client.text("node_class", ""),
            node_pool: pool,
            options: client.map("options"),
            meta: client.map("meta"),
            chroot_env: client.map("chroot_env"),
            network_interface: client.text("network_interface", if dev { "lo" } else { "" }),
            cpu_total_compute: client.int("cpu_total_compute", 0, 0, i64::MAX)?,
            memory_total_mb: client.int("memory_total_mb", 0, 0, i64::MAX)?,
            disk_total_mb: client.int("disk_total_mb", 0, 0, i64::MAX)?,
            max_kill_timeout: client.duration("max_kill_timeout", 30)?,
            dynamic_ports: (low, high),
            reserved_cpu: reserved.int("cpu", 0, 0, i64::MAX)?,
            reserved_cores: reserved.text("cores", ""),
            reservable_cores: client.text("reservable_cores", ""),
            reserved_memory: reserved.int("memory", 0, 0, i64::MAX)?,
            reserved_disk: reserved.int("disk", 0, 0, i64::MAX)?,
            reserved_ports: reserved.text("reserved_ports", ""),
            gc_interval: client.duration("gc_interval", if dev { 10 * MINUTE } else { MINUTE })?,
            gc_max_allocs: client.count("gc_max_allocs", 50)?,
            gc_disk_percent: client.float("gc_disk_usage_threshold", if dev { 99.0 } else { 80.0 }),
            gc_inode_percent: client.float("gc_inode_usage_threshold", if dev { 99.0 } else { 70.0 }),
            gc_parallel: client.count("gc_parallel_destroys", 2)?,
            disable_remote_exec: client.flag("disable_remote_exec", false),
            node_max_allocs: client.int("node_max_allocs", 0, 0, i64::MAX)?,
            default_ineligible: client.flag("default_ineligible", false),
            service_discovery: client.flag("nomad_service_discovery", true),
            cgroup_parent: client.text("cgroup_parent", ""),
            host_volumes: read_volumes(tree)?,
            drain_on_shutdown: read_drain(tree)?,
        })
    }
}

fn read_volumes(tree: &Map<String, Value>) -> Result<Vec<HostVolumeSettings>, BadSetting> {
    let client = Block::of(tree, "client");
    let Some(Value::Object(volumes)) = client.get("host_volume") else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (name, fields) in volumes {
        let Some(path) = fields.get("path").and_then(Value::as_str).filter(|p| p.starts_with('/')) else {
            return Err(client.bad(&format!("host_volume.{name}.path"), fields, "an absolute path is needed"));
        };
        let read_only = fields.get("read_only").and_then(as_bool).unwrap_or(false);
        all.push(HostVolumeSettings { name: name.clone(), path: path.into(), read_only });
    }
    Ok(all)
}

fn read_drain(tree: &Map<String, Value>) -> Result<Option<DrainSettings>, BadSetting> {
    let drain = Block::of(tree, "client.drain_on_shutdown");
    if drain.fields.is_none() {
        return Ok(None);
    }
    Ok(Some(DrainSettings {
        deadline: drain.duration("deadline", HOUR)?,
        ignore_system_jobs: drain.flag("ignore_system_jobs", false),
        force: drain.flag("force", false),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value, dev: bool) -> Result<Settings, BadSetting> {
        match value {
            Value::Object(tree) => Settings::read(&tree, dev),
            _ => unreachable!("tests give objects"),
        }
    }

    #[test]
    fn defaults_are_the_peers() {
        let settings = read(json!({"server": {"enabled": true}, "client": {"enabled": "true"}}), false).unwrap();
        assert_eq!(settings.ports, Ports { http: 4646, rpc: 4647, serf: 4648 });
        assert_eq!(settings.bind_addr, "0.0.0.0");
        let server = settings.server.unwrap();
        assert_eq!(server.preemption, [true, false, false, false]);
        assert_eq!(server.job_max_source_size, 1_000_000);
        let client = settings.client.unwrap();
        assert_eq!(client.gc_interval, Duration::from_secs(60));
        assert_eq!(client.dynamic_ports, (20_000, 32_000));
        assert!(read(json!({}), false).unwrap().server.is_none());
        assert!(read(json!({}), true).unwrap().client.is_some());
    }

    #[test]
    fn quoted_values_are_understood_and_bad_ones_named() {
        let settings =
            read(json!({"ports": {"http": "5000"}, "server": {"enabled": true, "job_max_source_size": "2MiB"}}), false);
        let settings = settings.unwrap();
        assert_eq!(settings.ports.http, 5000);
        assert_eq!(settings.server.unwrap().job_max_source_size, 2 << 20);
        let error = read(json!({"ports": {"rpc": 70000}}), false).unwrap_err();
        assert_eq!(error.path, "ports.rpc");
        assert!(read(json!({"log_level": "loud"}), false).unwrap_err().to_string().contains("TRACE"));
        assert!(read(json!({"client": {"enabled": true, "node_pool": "all"}}), false).is_err());
        assert!(read(json!({"client": {"enabled": true, "host_volume": {"a": {"path": "x"}}}}), false).is_err());
    }
}
