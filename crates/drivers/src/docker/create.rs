//! From a task to what the engine is asked to create.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::keys::ulimit;
use super::options::{DockerOptions, normal_cap};
use super::paths::{Pins, Source, source};
use crate::config::Config;
use crate::driver::StartError;
use crate::types::{Mount, Port, Propagation, TaskResources, TaskSpec};
use crate::users::glob;

/// The range of cpu weights the engine takes.
const CPU_SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;
/// The default of `cpu_cfs_period` in microseconds, and the least quota.
const CFS_PERIOD: u64 = 100_000;
const LEAST_QUOTA: u64 = 1_000;
/// Keys that are taken and told of, with what to do instead.
const WITHOUT_EFFECT: [(&str, &str); 2] = [
    ("cpuset_cpus", "reserve cores with resources { cores = N }"),
    ("isolation", "it chooses between ways of Windows; leave it out"),
];
/// How large a file named in `security_opt` may be.
const MAX_PROFILE: u64 = 4 << 20;
const MIB: u64 = 1 << 20;
/// What the engine gives containers by default.
const ENGINE_CAPS: [&str; 14] = [
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "net_raw",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
];
/// Log drivers whose output the engine gives back.
const READABLE_LOGS: [&str; 3] = ["json-file", "local", "journald"];

/// What to create.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The engine's request, without labels and image.
    pub body: Value,
    /// Sources that are mounted safely for the time of the start.
    pub pins: Pins,
    /// Place of each pinned source, and where the task sees it.
    pub pinned: Vec<(PathBuf, String)>,
    /// The log driver, and whether its output can be copied.
    pub log_driver: String,
    pub log_readable: bool,
}

/// Facts that are not in the task.
pub(crate) struct Facts<'a> {
    pub options: &'a DockerOptions,
    /// Version of the engine's API.
    pub api: (u32, u32),
    /// Processors of the engine.
    pub processors: u64,
    /// A directory of this start's own.
    pub pin_dir: PathBuf,
    /// Containers of this allocation: the peer's name of each to its id.
    pub siblings: &'a BTreeMap<String, String>,
}

fn fatal(text: impl std::fmt::Display) -> StartError {
    StartError::fatal(format!("Failed to create container configuration for image: {text}"))
}

/// Builds the request.
pub(crate) fn plan(spec: &TaskSpec, facts: &Facts<'_>) -> Result<Plan, StartError> {
    let config = Config::new(&spec.config);
    let mut builder = Builder {
        spec,
        config,
        facts,
        host: Map::new(),
        mounts: Vec::new(),
        binds: Vec::new(),
        pins: Pins::new(facts.pin_dir.clone()),
        pinned: Vec::new(),
    };
    let network_mode = builder.network_mode()?;
    builder.resources()?;
    builder.permissions()?;
    builder.namespaces(&network_mode)?;
    builder.own_mounts();
    builder.volumes()?;
    builder.mount_blocks()?;
    builder.devices();
    builder.names();
    let (log_driver, log_config) = builder.logging();
    builder.set("LogConfig", json!({ "Type": log_driver, "Config": log_config }));
    let (ports, exposed) = port_bindings(config, &spec.ports, &network_mode)?;
    builder.set("PortBindings", ports);
    builder.set("RestartPolicy", json!({ "Name": "no" }));
    let networking = builder.networking(&network_mode);
    let mut body = builder.process(&network_mode)?;
    let Builder { mut host, mounts, binds, pins, pinned, .. } = builder;
    host.insert("Mounts".to_owned(), Value::Array(mounts));
    host.insert("Binds".to_owned(), json!(binds));
    body.insert("ExposedPorts".to_owned(), exposed);
    body.insert("HostConfig".to_owned(), Value::Object(host));
    body.insert("NetworkingConfig".to_owned(), networking);
    let log_readable = READABLE_LOGS.contains(&log_driver.as_str());
    Ok(Plan { body: Value::Object(body), pins, pinned, log_driver, log_readable })
}

struct Builder<'a> {
    spec: &'a TaskSpec,
    config: Config<'a>,
    facts: &'a Facts<'a>,
    host: Map<String, Value>,
    mounts: Vec<Value>,
    binds: Vec<String>,
    pins: Pins,
    pinned: Vec<(PathBuf, String)>,
}

impl Builder<'_> {
    fn set(&mut self, key: &str, value: Value) {
        self.host.insert(key.to_owned(), value);
    }

    /// What runs in the container.
    fn process(&self, network_mode: &str) -> Result<Map<String, Value>, StartError> {
        let (spec, config) = (self.spec, self.config);
        let env: Vec<String> = spec.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let mut body = Map::new();
        let mut set = |key: &str, value: Value| body.insert(key.to_owned(), value);
        set("Env", json!(env));
        set("Tty", json!(config.flag("tty").unwrap_or(false)));
        set("OpenStdin", json!(config.flag("interactive").unwrap_or(false)));
        set("AttachStdin", json!(false));
        if !spec.user.is_empty() {
            set("User", json!(spec.user));
        }
        let work_dir = config.text_or_empty("work_dir");
        if !work_dir.is_empty() {
            set("WorkingDir", json!(work_dir));
        }
        let command = config.text_or_empty("command");
        let words: Vec<String> = [command].into_iter().filter(|c| !c.is_empty()).chain(config.list("args")).collect();
        if !words.is_empty() {
            set("Cmd", json!(words));
        }
        let entrypoint = config.list("entrypoint");
        if !entrypoint.is_empty() {
            set("Entrypoint", json!(entrypoint));
        }
        if config.blocks("healthchecks").iter().any(|h| h.flag("disable") == Some(true)) {
            set("Healthcheck", json!({ "Test": ["NONE"] }));
        }
        let own_hostname = config.text_or_empty("hostname");
        let shared = network_mode.starts_with("container:");
        if shared && !own_hostname.is_empty() {
            return Err(fatal(format!("hostname {own_hostname:?} cannot be set in the network of another container")));
        }
        let hostname = if own_hostname.is_empty() { spec.hostname.clone() } else { own_hostname };
        if !hostname.is_empty() && !shared {
            set("Hostname", json!(hostname));
        }
        if self.facts.api < (1, 44) && !config.text_or_empty("mac_address").is_empty() {
            set("MacAddress", json!(config.text_or_empty("mac_address")));
        }
        Ok(body)
    }

    /// Processor, memory and the like.
    fn resources(&mut self) -> Result<(), StartError> {
        let (resources, config) = (&self.spec.resources, self.config);
        let (limit, reservation) = memory(resources, config);
        self.set("Memory", json!(limit * MIB));
        self.set("MemorySwap", json!(limit * MIB));
        self.set("MemoryReservation", json!(reservation * MIB));
        self.set("CpuShares", json!(cpu_shares(resources)));
        if !resources.cores.is_empty() {
            let cores: Vec<String> = resources.cores.iter().map(u16::to_string).collect();
            self.set("CpusetCpus", json!(cores.join(",")));
        }
        for (key, why) in WITHOUT_EFFECT {
            let value = config.text_or_empty(key);
            if !value.is_empty() {
                self.spec.events.tell(&format!("{key} has no effect: {why}"), &[(key, &value)]);
            }
        }
        if config.flag("cpu_hard_limit") == Some(true) {
            let period = config.number("cpu_cfs_period").and_then(|p| u64::try_from(p).ok()).filter(|p| *p > 0);
            let period = period.unwrap_or(CFS_PERIOD);
            let total = resources.node_cpu_mhz;
            if total == 0 {
                return Err(fatal("cpu_hard_limit: the compute of this node is not known"));
            }
            let quota = u128::from(resources.cpu_shares) * u128::from(period) * u128::from(self.facts.processors);
            let quota = u64::try_from(quota / u128::from(total)).unwrap_or(u64::MAX);
            self.set("CpuPeriod", json!(period));
            self.set("CpuQuota", json!(quota.max(LEAST_QUOTA)));
        }
        let most = self.facts.options.pids_limit;
        let pids = config.number("pids_limit").unwrap_or(0);
        if most > 0 && pids > most {
            return Err(fatal(format!("pids_limit {pids} cannot be greater than the agent's pids_limit {most}")));
        }
        let pids = if pids > 0 { pids } else { most };
        if pids > 0 {
            self.set("PidsLimit", json!(pids));
        }
        let oom_score = config.number("oom_score_adj").unwrap_or(self.facts.options.oom_score_adj);
        self.set("OomScoreAdj", json!(oom_score));
        if let Some(size) = config.number("shm_size").filter(|s| *s > 0) {
            self.set("ShmSize", json!(size));
        }
        let limits: Vec<Value> = config
            .map("ulimit")
            .into_iter()
            .filter_map(|(name, text)| {
                ulimit(&text).map(|(soft, hard)| json!({ "Name": name, "Soft": soft, "Hard": hard }))
            })
            .collect();
        self.set("Ulimits", Value::Array(limits));
        self.set("Sysctls", json!(config.map("sysctl")));
        self.set("StorageOpt", json!(config.map("storage_opt")));
        Ok(())
    }

    /// Privilege, capabilities, runtime, profiles.
    fn permissions(&mut self) -> Result<(), StartError> {
        let (config, options) = (self.config, self.facts.options);
        let privileged = config.flag("privileged") == Some(true);
        if privileged && !options.allow_privileged {
            return Err(fatal(
                "privileged: Docker privileged mode is disabled on this agent (allow_privileged = false)",
            ));
        }
        self.set("Privileged", json!(privileged));
        let caps =
            capabilities(&config.list("cap_add"), &config.list("cap_drop"), &options.allow_caps).map_err(fatal)?;
        self.set("CapDrop", json!(["ALL"]));
        self.set("CapAdd", json!(caps));
        let runtime = config.text_or_empty("runtime");
        if !runtime.is_empty() {
            if !options.allow_runtimes.contains(&runtime) {
                return Err(fatal(format!("requested runtime {runtime:?} is not allowed (allow_runtimes)")));
            }
            self.set("Runtime", json!(runtime));
        }
        self.set("ReadonlyRootfs", json!(config.flag("readonly_rootfs").unwrap_or(false)));
        if config.flag("init") == Some(true) {
            self.set("Init", json!(true));
        }
        self.set("GroupAdd", json!(config.list("group_add")));
        let security =
            config.list("security_opt").iter().map(|o| self.security_option(o)).collect::<Result<Vec<_>, _>>()?;
        self.set("SecurityOpt", json!(security));
        Ok(())
    }

    /// The engine wants the profile itself, people name its file.
    fn security_option(&self, option: &str) -> Result<String, StartError> {
        let Some(file) = option.strip_prefix("seccomp=").or_else(|| option.strip_prefix("seccomp:")) else {
            return Ok(option.to_owned());
        };
        if file == "unconfined" || file == "builtin" || file.starts_with('{') {
            return Ok(option.to_owned());
        }
        let path = self.spec.dirs.task_dir.join(file);
        let failed = |why: &str| fatal(format!("security_opt: seccomp profile {file:?}: {why}"));
        let meta = std::fs::metadata(&path).map_err(|e| failed(&e.to_string()))?;
        if !meta.is_file() || meta.len() > MAX_PROFILE {
            return Err(failed("not a file, or too large"));
        }
        let text = std::fs::read(&path).map_err(|e| failed(&e.to_string()))?;
        // Its content is told to nobody: it may be any file of the host.
        let profile: Map<String, Value> = serde_json::from_slice(&text).map_err(|_| failed("not a JSON object"))?;
        Ok(format!("seccomp={}", Value::Object(profile)))
    }

    /// Namespaces shared with others.
    fn namespaces(&mut self, network_mode: &str) -> Result<(), StartError> {
        for (kind, key, name) in [
            ("pid", "pid_mode", "PidMode"),
            ("ipc", "ipc_mode", "IpcMode"),
            ("userns", "userns_mode", "UsernsMode"),
            ("uts", "uts_mode", "UTSMode"),
        ] {
            let mode = self.config.text_or_empty(key);
            if mode.is_empty() {
                continue;
            }
            let (mode, sibling) = self.sibling(&mode);
            let options = self.facts.options;
            let harmless = sibling || ["none", "private", "shareable"].contains(&mode.as_str());
            let allowed =
                options.allow_privileged || options.allowed_modes.get(kind).is_some_and(|m| m.contains(&mode));
            if !harmless && !allowed {
                return Err(fatal(format!(
                    "{key} {mode:?} is not allowed on this agent; it needs allow_privileged or allowed_modes.{kind}"
                )));
            }
            self.set(name, json!(mode));
        }
        let cgroupns = self.config.text_or_empty("cgroupns");
        if !cgroupns.is_empty() {
            self.set("CgroupnsMode", json!(cgroupns));
        }
        self.set("NetworkMode", json!(network_mode));
        Ok(())
    }

    /// `container:<name>` with the peer's name of a container of this
    /// allocation, put into our terms.
    fn sibling(&self, mode: &str) -> (String, bool) {
        let known = mode.strip_prefix("container:").and_then(|name| self.facts.siblings.get(name));
        known.map_or_else(|| (mode.to_owned(), false), |id| (format!("container:{id}"), true))
    }

    fn network_mode(&self) -> Result<String, StartError> {
        let mode = self.config.text_or_empty("network_mode");
        if !mode.is_empty() {
            return Ok(self.sibling(&mode).0);
        }
        if self.spec.network_namespace.is_some() {
            return Err(fatal(
                "the container engine cannot join the group's network namespace yet; \
                 set network_mode in the task, or the group's network mode to \"host\"",
            ));
        }
        Ok("bridge".to_owned())
    }

    /// Settings of the one network.
    fn networking(&self, network_mode: &str) -> Value {
        let config = self.config;
        let own = !["bridge", "default", "host", "none"].contains(&network_mode) && !network_mode.contains(':');
        let (v4, v6) = (config.text_or_empty("ipv4_address"), config.text_or_empty("ipv6_address"));
        let (aliases, mac) = (config.list("network_aliases"), config.text_or_empty("mac_address"));
        let mut endpoint = Map::new();
        if own && !aliases.is_empty() {
            endpoint.insert("Aliases".to_owned(), json!(aliases));
        }
        if !v4.is_empty() || !v6.is_empty() {
            endpoint.insert("IPAMConfig".to_owned(), json!({ "IPv4Address": v4, "IPv6Address": v6 }));
        }
        if self.facts.api >= (1, 44) && !mac.is_empty() {
            endpoint.insert("MacAddress".to_owned(), json!(mac));
        }
        if endpoint.is_empty() {
            return Value::Null;
        }
        json!({ "EndpointsConfig": { network_mode: endpoint } })
    }

    /// Name resolution.
    fn names(&mut self) {
        let dns = self.spec.dns.clone().unwrap_or_default();
        for (key, name, group) in [
            ("dns_servers", "Dns", dns.servers),
            ("dns_search_domains", "DnsSearch", dns.searches),
            ("dns_options", "DnsOptions", dns.options),
        ] {
            let own = self.config.list(key);
            self.set(name, json!(if own.is_empty() { group } else { own }));
        }
        let hosts = self.config.list("extra_hosts");
        self.set("ExtraHosts", json!(hosts));
    }

    fn logging(&self) -> (String, BTreeMap<String, String>) {
        let options = self.facts.options;
        let blocks = self.config.blocks("logging");
        let Some(own) = blocks.first() else { return (options.logging_type.clone(), options.logging_config.clone()) };
        let kind = [own.text_or_empty("type"), own.text_or_empty("driver")].into_iter().find(|k| !k.is_empty());
        let kind = kind.unwrap_or_else(|| options.logging_type.clone());
        let mut settings = own.map("config");
        if settings.is_empty() && kind == options.logging_type {
            settings = options.logging_config.clone();
        }
        (kind, settings)
    }

    /// Mounts a path as it is. Text that the engine's short form would take
    /// apart needs the long one, which knows no label.
    fn bind(&mut self, path: &str, target: &str, readonly: bool, propagation: &str) {
        let label = &self.facts.options.selinux_label;
        if label.is_empty() || path.contains(':') || target.contains(':') {
            let options = if propagation.is_empty() { json!({}) } else { json!({ "Propagation": propagation }) };
            self.mounts.push(json!({
                "Type": "bind", "Source": path, "Target": target, "ReadOnly": readonly, "BindOptions": options,
            }));
            return;
        }
        let access = if readonly { "ro" } else { "rw" };
        let rest = if propagation.is_empty() { String::new() } else { format!(",{propagation}") };
        self.binds.push(format!("{path}:{target}:{access},{label}{rest}"));
    }

    /// The task's directories and volumes.
    fn own_mounts(&mut self) {
        let dirs = self.spec.dirs.clone();
        for (path, target, readonly) in [
            (&dirs.shared, "/alloc", false),
            (&dirs.logs, "/alloc/logs", true),
            (&dirs.local, "/local", false),
            (&dirs.secrets, "/secrets", false),
        ] {
            if !path.as_os_str().is_empty() {
                self.bind(&path.to_string_lossy(), target, readonly, "");
            }
        }
        for Mount { host_path, task_path, readonly, propagation } in self.spec.mounts.clone() {
            let propagation = match propagation {
                Propagation::Private => "rprivate",
                Propagation::HostToTask => "rslave",
                Propagation::Bidirectional => "rshared",
            };
            self.bind(&host_path.to_string_lossy(), &task_path, readonly, propagation);
        }
    }

    /// The path the engine is given for a source.
    fn place(&mut self, text: &str, target: &str) -> Result<String, StartError> {
        let decided = source(text, &self.spec.dirs, self.facts.options.volumes_enabled).map_err(fatal)?;
        Ok(match decided {
            Source::Host(path) => path.to_string_lossy().into_owned(),
            Source::Confined(inside) => {
                let place = self.pins.pin(&self.spec.dirs.alloc_dir, &inside).map_err(fatal)?;
                self.pinned.push((place.clone(), target.to_owned()));
                place.to_string_lossy().into_owned()
            }
        })
    }

    /// `source:target[:mode]`.
    fn volumes(&mut self) -> Result<(), StartError> {
        let driver = self.config.text_or_empty("volume_driver");
        let enabled = self.facts.options.volumes_enabled;
        if !driver.is_empty() && !enabled {
            return Err(fatal("volume_driver: volumes are not enabled (volumes.enabled)"));
        }
        for volume in self.config.list("volumes") {
            let parts: Vec<&str> = volume.split(':').collect();
            let (Some(from), Some(target)) = (parts.first(), parts.get(1)) else {
                return Err(fatal(format!("invalid docker volume {volume:?}: expected source:target[:mode]")));
            };
            let mode = parts.get(2).copied().unwrap_or("");
            let named = !driver.is_empty() && !from.contains('/');
            let path = if named { (*from).to_owned() } else { self.place(from, target)? };
            let label = &self.facts.options.selinux_label;
            let words = [mode, label].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(",");
            let rest = if words.is_empty() { String::new() } else { format!(":{words}") };
            self.binds.push(format!("{path}:{target}{rest}"));
        }
        if !driver.is_empty() {
            self.set("VolumeDriver", json!(driver));
        }
        Ok(())
    }

    /// `mount` and `mounts`.
    fn mount_blocks(&mut self) -> Result<(), StartError> {
        let blocks = [self.config.blocks("mount"), self.config.blocks("mounts")].concat();
        for block in blocks {
            let kind = block.text("type").unwrap_or_else(|| "volume".to_owned());
            let (target, from) = (block.text_or_empty("target"), block.text_or_empty("source"));
            let readonly = block.flag("readonly").unwrap_or(false);
            if kind == "bind" {
                let path = self.place(&from, &target)?;
                let options = block.blocks("bind_options");
                let propagation = options.first().map(|o| o.text_or_empty("propagation")).unwrap_or_default();
                let enabled = self.facts.options.volumes_enabled;
                if !enabled && !["", "private", "rprivate"].contains(&propagation.as_str()) {
                    return Err(fatal(format!("mount {target:?}: propagation {propagation:?} needs volumes.enabled")));
                }
                self.bind(&path, &target, readonly, &propagation);
                continue;
            }
            let mut mount = json!({ "Type": kind, "Source": from, "Target": target, "ReadOnly": readonly });
            if let Some(options) = block.blocks("tmpfs_options").first() {
                let (size, mode) = (options.number("size").unwrap_or(0), options.number("mode").unwrap_or(0));
                set_in(&mut mount, "TmpfsOptions", json!({ "SizeBytes": size, "Mode": mode }));
            }
            if let Some(options) = block.blocks("volume_options").first() {
                set_in(&mut mount, "VolumeOptions", self.volume_options(*options, &target)?);
            }
            self.mounts.push(mount);
        }
        Ok(())
    }

    fn volume_options(&self, options: Config<'_>, target: &str) -> Result<Value, StartError> {
        let mut out = json!({ "NoCopy": options.flag("no_copy").unwrap_or(false), "Labels": options.map("labels") });
        if let Some(driver) = options.blocks("driver_config").first() {
            // The default driver mounts any host path if its options say so.
            if !self.facts.options.volumes_enabled {
                return Err(fatal(format!("mount {target:?}: driver_config needs volumes.enabled")));
            }
            let driver = json!({ "Name": driver.text_or_empty("name"), "Options": driver.map("options") });
            set_in(&mut out, "DriverConfig", driver);
        }
        Ok(out)
    }

    fn devices(&mut self) {
        let device = |host: &str, task: &str, permissions: &str| {
            let task = if task.is_empty() { host } else { task };
            let permissions = if permissions.is_empty() { "rwm" } else { permissions };
            json!({ "PathOnHost": host, "PathInContainer": task, "CgroupPermissions": permissions })
        };
        let text = |block: &Config<'_>, key: &str| block.text_or_empty(key);
        let mut devices: Vec<Value> = self
            .config
            .blocks("devices")
            .iter()
            .map(|b| device(&text(b, "host_path"), &text(b, "container_path"), &text(b, "cgroup_permissions")))
            .collect();
        devices.extend(self.spec.devices.iter().map(|d| device(&d.host_path, &d.task_path, &d.permissions)));
        self.set("Devices", Value::Array(devices));
    }
}

fn set_in(value: &mut Value, key: &str, to: Value) {
    if let Some(map) = value.as_object_mut() {
        map.insert(key.to_owned(), to);
    }
}

/// The hard limit and the reservation in megabytes, 0 for none.
fn memory(resources: &TaskResources, config: Config<'_>) -> (u64, u64) {
    let base = resources.memory_mb;
    let Ok(max) = u64::try_from(resources.memory_max_mb) else { return (0, base) };
    let hard = config.number("memory_hard_limit").and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let high = hard.max(max);
    if high == 0 || high == base { (base, 0) } else { (high, base) }
}

/// The weight of a task. On hosts with more compute than there are weights it
/// is scaled down.
fn cpu_shares(resources: &TaskResources) -> u64 {
    let (least, most) = (*CPU_SHARES.start(), *CPU_SHARES.end());
    let mut shares = resources.cpu_shares;
    if resources.node_cpu_mhz >= most {
        let scaled = u128::from(shares) * u128::from(most) / u128::from(resources.node_cpu_mhz);
        shares = u64::try_from(scaled).unwrap_or(most);
    }
    shares.clamp(least, most)
}

/// The capabilities of a task, in the engine's spelling.
fn capabilities(add: &[String], drop: &[String], allowed: &BTreeSet<String>) -> Result<Vec<String>, String> {
    let any = allowed.contains("all");
    let permitted = |cap: &str| any || allowed.contains(cap);
    let mut caps: BTreeSet<String> = ENGINE_CAPS.iter().filter(|c| permitted(c)).map(|c| (*c).to_owned()).collect();
    let drop: BTreeSet<String> = drop.iter().map(|c| normal_cap(c)).collect();
    if drop.contains("all") {
        caps.clear();
    }
    caps.retain(|cap| !drop.contains(cap));
    for cap in add.iter().map(|c| normal_cap(c)) {
        if cap == "all" && !any {
            caps.extend(allowed.iter().cloned());
        } else if permitted(&cap) {
            caps.insert(cap);
        } else {
            return Err(format!("cap_add: {cap} is not allowed on this agent (allow_caps)"));
        }
    }
    if caps.contains("all") {
        return Ok(vec!["ALL".to_owned()]);
    }
    Ok(caps.iter().map(|c| c.to_ascii_uppercase()).collect())
}

/// Ports of the group that the task publishes.
fn port_bindings(config: Config<'_>, ports: &[Port], network_mode: &str) -> Result<(Value, Value), StartError> {
    if config.get("port_map").is_some() && !config.map("port_map").is_empty() {
        return Err(fatal(
            "port_map belongs to networks of tasks, which are no more: give the port of the group's network \"to\" and name it in \"ports\"",
        ));
    }
    let (mut bindings, mut exposed) = (Map::new(), Map::new());
    for label in config.list("ports") {
        let port = ports.iter().find(|p| p.label == label);
        let port = port.ok_or_else(|| fatal(format!("Port {label:?} not found, check network block")))?;
        if network_mode == "host" || network_mode == "none" || network_mode.starts_with("container:") {
            continue;
        }
        let inside = if port.to == 0 { port.host_port } else { port.to };
        for protocol in ["tcp", "udp"] {
            let name = format!("{inside}/{protocol}");
            // Several ports of the host may lead to one of the task.
            let binding = json!({ "HostIp": port.host_ip, "HostPort": port.host_port.to_string() });
            let list = bindings.entry(name.clone()).or_insert_with(|| Value::Array(Vec::new()));
            if let Some(list) = list.as_array_mut() {
                list.push(binding);
            }
            exposed.insert(name, json!({}));
        }
    }
    Ok((Value::Object(bindings), Value::Object(exposed)))
}

/// The peer's labels, for users' tools.
pub(crate) fn peer_labels(
    spec: &TaskSpec,
    alloc_id: &str,
    task: &str,
    patterns: &[String],
) -> BTreeMap<String, String> {
    const PREFIX: &str = "com.hashicorp.nomad.";
    let mut out = BTreeMap::from([(format!("{PREFIX}alloc_id"), alloc_id.to_owned())]);
    for (name, value) in [
        ("job_name", spec.job_name.as_str()),
        ("job_id", &spec.job_id),
        ("task_group_name", &spec.group),
        ("task_name", task),
        ("namespace", &spec.namespace),
        ("node_name", &spec.node_name),
        ("node_id", &spec.node_id),
    ] {
        if patterns.iter().any(|p| glob(p, name)) {
            out.insert(format!("{PREFIX}{name}"), value.to_owned());
        }
    }
    out
}

#[cfg(test)]
mod tests;
