//! `exec`: a process in a root of its own, made from host directories, with
//! its own process ids, IPC names and mounts, without privilege.
//!
//! Nothing is copied: the host's directories are bound read-only into the
//! task directory, inside the task's own mount namespace. Device nodes open
//! only in `/dev`, which holds the harmless ones and is read-only, so that
//! `CAP_MKNOD` of the default set is no way to the host's disks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use herdsman_shim::cgroup::Mode;
use herdsman_shim::messages::{Isolation, MountStep, StartRequest};

use crate::config::Config;
use crate::driver::{Capabilities, Fingerprint, FsIsolation, StartError};
use crate::executor::{Executor, bytes};
use crate::process::{ProcessDriver, make_executable};
use crate::raw_exec::check_ids;
use crate::schema::{self, ConfigError, Key, Kind, key, required};
use crate::types::{Propagation, StartKey, TaskSpec};
use crate::users::IdRanges;

const KEYS: &[Key] = &[
    required("command", Kind::Str),
    key("args", Kind::StrList),
    key("pid_mode", Kind::Str),
    key("ipc_mode", Kind::Str),
    key("cap_add", Kind::StrList),
    key("cap_drop", Kind::StrList),
    key("work_dir", Kind::Str),
];

/// Capabilities of Linux in the order of their numbers.
const CAPABILITIES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];
/// What tasks have, and may have, unless configured.
pub(crate) const DEFAULT_CAPS: [&str; 13] = [
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
];
/// Host directories a task sees unless `chroot_env` names others.
const DEFAULT_CHROOT: [&str; 9] =
    ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/run/resolvconf", "/run/systemd/resolve", "/sbin", "/usr"];

const MS_RDONLY: u64 = 1;
const MS_NOSUID: u64 = 2;
const MS_NODEV: u64 = 4;
const MS_NOEXEC: u64 = 8;
const MS_REMOUNT: u64 = 32;
const MS_SLAVE: u64 = 1 << 19;
const CAP_SYS_ADMIN: u32 = 21;

/// Settings of the driver.
#[derive(Debug, Clone, Default)]
pub struct ExecOptions {
    /// Use `chroot` where `pivot_root` cannot work (a root on a ramdisk).
    pub no_pivot_root: bool,
    /// `private` (also when empty) or `host`.
    pub default_pid_mode: String,
    /// `private` (also when empty) or `host`.
    pub default_ipc_mode: String,
    /// Capabilities tasks may ask for; none for the default set, `all` known.
    pub allow_caps: Option<Vec<String>>,
    /// User ids tasks may not have, such as `0,100-200`.
    pub denied_host_uids: String,
    /// Group ids tasks may not have.
    pub denied_host_gids: String,
    /// Host path to path in the task; empty for the default.
    pub chroot_env: BTreeMap<String, String>,
}

/// The driver.
#[derive(Debug)]
pub struct ExecDriver {
    executor: Arc<Executor>,
    options: ExecOptions,
    uids: IdRanges,
    gids: IdRanges,
    allowed: u64,
}

/// One bit per named capability.
fn capability_set(names: &[String]) -> Result<u64, String> {
    let mut set = 0;
    for name in names {
        let plain = name.to_lowercase();
        let plain = plain.strip_prefix("cap_").unwrap_or(&plain);
        if plain == "all" {
            set |= (1 << CAPABILITIES.len()) - 1;
            continue;
        }
        let bit = CAPABILITIES.iter().position(|c| *c == plain);
        set |= 1 << bit.ok_or_else(|| format!("unknown capability {name:?}"))?;
    }
    Ok(set)
}

fn default_set() -> u64 {
    CAPABILITIES.iter().enumerate().filter(|(_, name)| DEFAULT_CAPS.contains(name)).map(|(bit, _)| 1 << bit).sum()
}

/// The names of a set, for messages.
fn names(set: u64) -> String {
    let named = CAPABILITIES.iter().enumerate().filter(|(bit, _)| set & (1 << bit) != 0);
    named.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

impl ExecDriver {
    /// Makes the driver.
    ///
    /// # Errors
    /// A setting with an impossible value.
    pub fn new(executor: Arc<Executor>, options: ExecOptions) -> Result<ExecDriver, String> {
        let uids = IdRanges::parse(&options.denied_host_uids).map_err(|e| format!("denied_host_uids: {e}"))?;
        let gids = IdRanges::parse(&options.denied_host_gids).map_err(|e| format!("denied_host_gids: {e}"))?;
        let allowed = match &options.allow_caps {
            None => default_set(),
            Some(names) => capability_set(names).map_err(|e| format!("allow_caps: {e}"))?,
        };
        for (key, mode) in
            [("default_pid_mode", &options.default_pid_mode), ("default_ipc_mode", &options.default_ipc_mode)]
        {
            if !matches!(mode.as_str(), "" | "private" | "host") {
                return Err(format!("{key} must be \"private\" or \"host\", got {mode:?}"));
            }
        }
        Ok(ExecDriver { executor, options, uids, gids, allowed })
    }

    /// The capabilities of a task, and those it asked for by name.
    fn capabilities_of(&self, config: Config<'_>) -> Result<(u64, u64), String> {
        let add = capability_set(&config.list("cap_add"))?;
        let drop = capability_set(&config.list("cap_drop"))?;
        let refused = add & !self.allowed;
        // "all" asks for whatever is allowed.
        let all = config.list("cap_add").iter().any(|c| c.eq_ignore_ascii_case("all"));
        if refused != 0 && !all {
            return Err(format!("driver does not allow the following capabilities: {}", names(refused)));
        }
        let add = add & self.allowed;
        Ok((((default_set() & self.allowed) & !drop) | add, add))
    }

    /// How the host falls short of isolating, if it does.
    fn shortcoming(&self) -> Option<Fingerprint> {
        if !cfg!(target_os = "linux") {
            return Some(Fingerprint::undetected("exec driver unsupported on client OS"));
        }
        if !self.executor.is_root() {
            return Some(Fingerprint::undetected("Driver must run as root"));
        }
        if !may_administer() {
            let why = "the agent may not make namespaces: it lacks the capability CAP_SYS_ADMIN";
            return Some(Fingerprint::undetected(why));
        }
        for ns in ["pid", "ipc", "mnt"] {
            if !Path::new("/proc/self/ns").join(ns).exists() {
                return Some(Fingerprint::undetected(format!("the kernel has no {ns} namespaces")));
            }
        }
        let cgroups = self.executor.host().cgroups();
        if cgroups.mode() == Mode::Off || !cgroups.limits_memory() {
            return Some(Fingerprint::unhealthy("no cgroup mount point: cgroups are not mounted or not writable"));
        }
        None
    }

    fn isolation(&self, spec: &TaskSpec, config: Config<'_>) -> Result<Isolation, StartError> {
        let private = |key: &str, default: &str| {
            let mode = config.text_or_empty(key);
            let mode = if mode.is_empty() { default } else { &mode };
            mode != "host"
        };
        let mut steps = self.chroot_steps();
        steps.extend(kernel_steps());
        steps.extend(directory_steps(spec));
        steps.extend(volume_steps(spec)?);
        steps.extend(hiding_steps());
        Ok(Isolation {
            root: bytes(&spec.dirs.task_dir),
            pid: private("pid_mode", &self.options.default_pid_mode),
            ipc: private("ipc_mode", &self.options.default_ipc_mode),
            hostname: spec.hostname.clone().into_bytes(),
            no_pivot: self.options.no_pivot_root,
            steps,
        })
    }

    /// The host's directories, read-only. Links are made anew, so that a merged
    /// `/usr` looks as it does on the host.
    fn chroot_steps(&self) -> Vec<MountStep> {
        let default: BTreeMap<String, String> = DEFAULT_CHROOT.map(|p| (p.to_owned(), p.to_owned())).into();
        let wanted = if self.options.chroot_env.is_empty() { &default } else { &self.options.chroot_env };
        let step = |(source, target): (&String, &String)| match std::fs::read_link(source) {
            Ok(link) => MountStep::Symlink { content: bytes(&link), target: target.clone().into_bytes() },
            Err(_) => MountStep::Bind {
                source: source.clone().into_bytes(),
                target: target.clone().into_bytes(),
                readonly: true,
                devices: false,
                propagation: 0,
                optional: true,
            },
        };
        wanted.iter().map(step).collect()
    }
}

/// True when this process has CAP_SYS_ADMIN.
fn may_administer() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok()).unwrap_or(0);
    set & (1 << CAP_SYS_ADMIN) != 0
}

fn fs(fstype: &str, target: &str, flags: u64, data: &str, optional: bool) -> MountStep {
    let [fstype, target, data] = [fstype, target, data].map(|t| t.as_bytes().to_vec());
    MountStep::Fs { fstype, target, flags, data, optional }
}

fn link(content: &str, target: &str) -> MountStep {
    MountStep::Symlink { content: content.as_bytes().to_vec(), target: target.as_bytes().to_vec() }
}

/// `/proc`, `/sys` and `/dev`.
fn kernel_steps() -> Vec<MountStep> {
    let safe = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    let node = |name: &str, major, minor| MountStep::Node {
        target: format!("/dev/{name}").into_bytes(),
        mode: 0o666,
        major,
        minor,
    };
    vec![
        fs("proc", "/proc", safe, "", false),
        fs("sysfs", "/sys", safe | MS_RDONLY, "", true),
        fs("tmpfs", "/dev", MS_NOSUID | MS_NOEXEC, "mode=755,size=65536k", false),
        node("null", 1, 3),
        node("zero", 1, 5),
        node("full", 1, 7),
        node("random", 1, 8),
        node("urandom", 1, 9),
        node("tty", 5, 0),
        link("/proc/self/fd", "/dev/fd"),
        link("/proc/self/fd/0", "/dev/stdin"),
        link("/proc/self/fd/1", "/dev/stdout"),
        link("/proc/self/fd/2", "/dev/stderr"),
        link("pts/ptmx", "/dev/ptmx"),
        fs("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620", false),
        fs("tmpfs", "/dev/shm", safe, "mode=1777,size=65536k", false),
        fs("mqueue", "/dev/mqueue", safe, "", true),
    ]
}

fn bind(source: &Path, target: &str, readonly: bool) -> MountStep {
    MountStep::Bind {
        source: bytes(source),
        target: target.as_bytes().to_vec(),
        readonly,
        devices: false,
        propagation: 0,
        optional: false,
    }
}

/// The allocation's directories; `local` and `secrets` are in the root already.
fn directory_steps(spec: &TaskSpec) -> Vec<MountStep> {
    vec![
        bind(&spec.dirs.shared, "/alloc", false),
        // A task that could write there could make the agent read other files.
        bind(&spec.dirs.logs, "/alloc/logs", true),
    ]
}

fn volume_steps(spec: &TaskSpec) -> Result<Vec<MountStep>, StartError> {
    let mut out = Vec::new();
    for mount in &spec.mounts {
        let propagation = match mount.propagation {
            Propagation::Private => 0,
            Propagation::HostToTask => MS_SLAVE,
            Propagation::Bidirectional => {
                return Err(StartError::fatal(format!(
                    "volume {}: propagation_mode \"bidirectional\" is not supported by the exec driver; use \"host-to-task\"",
                    mount.task_path
                )));
            }
        };
        out.push(MountStep::Bind {
            source: bytes(&mount.host_path),
            target: mount.task_path.clone().into_bytes(),
            readonly: mount.readonly,
            devices: false,
            propagation,
            optional: false,
        });
    }
    for device in &spec.devices {
        let target = if device.task_path.is_empty() { &device.host_path } else { &device.task_path };
        out.push(MountStep::Bind {
            source: device.host_path.clone().into_bytes(),
            target: target.clone().into_bytes(),
            readonly: !device.permissions.is_empty() && !device.permissions.contains('w'),
            devices: true,
            propagation: 0,
            optional: false,
        });
    }
    Ok(out)
}

/// What is there but not for tasks.
fn hiding_steps() -> Vec<MountStep> {
    let mut out = vec![
        // No new nodes beside the harmless ones.
        fs("", "/dev", MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOEXEC, "", false),
    ];
    let masked = [
        "/private",
        "/proc/acpi",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/timer_stats",
        "/proc/sched_debug",
        "/proc/scsi",
        "/sys/firmware",
    ];
    let readonly = ["/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
    out.extend(masked.map(|p| MountStep::Mask { target: p.as_bytes().to_vec() }));
    out.extend(readonly.map(|p| MountStep::Readonly { target: p.as_bytes().to_vec() }));
    out
}

/// The group's name servers in place of the host's. The file is the agent's,
/// in a directory the task cannot write.
fn write_dns(spec: &TaskSpec, task: &str) -> Result<Option<MountStep>, StartError> {
    use std::os::unix::fs::PermissionsExt;
    let Some(dns) = &spec.dns else { return Ok(None) };
    let mut text = String::new();
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    let path = spec.dirs.alloc_dir.join(format!(".{task}.resolv.conf"));
    let written = std::fs::write(&path, text)
        .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)));
    match written {
        Ok(()) => Ok(Some(bind(&path, "/etc/resolv.conf", true))),
        Err(e) => Err(StartError::recoverable(format!("cannot write {}: {e}", path.display()))),
    }
}

/// Where the program is, as the task sees it.
fn program(command: &str, spec: &TaskSpec) -> String {
    if command.starts_with('/') || command.split('/').any(|part| part == "..") {
        return command.to_owned();
    }
    for (dir, seen) in [(&spec.dirs.local, "/local/"), (&spec.dirs.task_dir, "/")] {
        if dir.join(command).is_file() {
            return format!("{seen}{command}");
        }
    }
    command.to_owned() // Looked up in the task's PATH.
}

/// Makes the task's program executable if it is one of the allocation's files; `command` is a path as the task sees it.
fn permit(command: &str, spec: &TaskSpec) {
    let Some(path) = command.strip_prefix('/') else { return };
    match path.strip_prefix("alloc/") {
        Some(path) => make_executable(&spec.dirs.shared, Path::new(path)),
        None => make_executable(&spec.dirs.task_dir, Path::new(path)),
    }
}

fn check_values(config: &serde_json::Value) -> Result<(), ConfigError> {
    let config = Config::new(config);
    for key in ["pid_mode", "ipc_mode"] {
        let mode = config.text_or_empty(key);
        if !matches!(mode.as_str(), "" | "private" | "host") && !mode.contains("${") {
            return Err(ConfigError::one(format!("{key} must be \"private\" or \"host\", got {mode:?}")));
        }
    }
    for key in ["cap_add", "cap_drop"] {
        let plain: Vec<String> = config.list(key).into_iter().filter(|c| !c.contains("${")).collect();
        capability_set(&plain).map_err(|e| ConfigError::one(format!("{key}: {e}")))?;
    }
    let work_dir = config.text_or_empty("work_dir");
    if !work_dir.is_empty() && !work_dir.contains("${") && !work_dir.starts_with('/') {
        return Err(ConfigError::one(format!("work_dir must be absolute but got {work_dir:?}")));
    }
    Ok(())
}

#[async_trait]
impl ProcessDriver for ExecDriver {
    const NAME: &'static str = "exec";
    const CAPABILITIES: Capabilities = Capabilities {
        send_signals: true,
        exec: true,
        fs_isolation: FsIsolation::Chroot,
        mounts: true,
        initiates_network: false,
    };

    fn executor(&self) -> &Executor {
        &self.executor
    }

    async fn fingerprint(&self) -> Fingerprint {
        self.shortcoming().unwrap_or_else(|| Fingerprint::healthy("exec"))
    }

    fn check_config(&self, config: &serde_json::Value) -> Result<(), ConfigError> {
        schema::check(KEYS, config)?;
        check_values(config)
    }

    fn check_node(&self) -> Result<(), StartError> {
        match self.shortcoming() {
            None => Ok(()),
            Some(short) => {
                Err(StartError::fatal(format!("the exec driver cannot isolate tasks here: {}", short.description)))
            }
        }
    }

    async fn plan(&self, spec: &TaskSpec, key: &StartKey) -> Result<StartRequest, StartError> {
        let config = Config::new(&spec.config);
        let mut request = self.executor.request(spec, key);
        let name = if spec.user.is_empty() { "nobody" } else { &spec.user };
        let user = self.executor.set_user(&mut request, name).await?;
        check_ids(&user, &self.uids, &self.gids)?;
        let invalid = |why: String| StartError::fatal(format!("failed driver config validation: {why}"));
        let (bounding, added) = self.capabilities_of(config).map_err(invalid)?;
        request.cap_bounding = Some(bounding);
        request.cap_ambient = added;
        request.no_new_privs = true;
        let command = program(&config.text_or_empty("command"), spec);
        permit(&command, spec);
        request.exe = command.clone().into_bytes();
        request.argv = [command].into_iter().chain(config.list("args")).map(String::into_bytes).collect();
        let work_dir = config.text_or_empty("work_dir");
        request.cwd = if work_dir.is_empty() { b"/".to_vec() } else { work_dir.into_bytes() };
        request.cgroups = self.executor.host().cgroups().plan(&key.file_name(), &Executor::limits(&spec.resources));
        let mut isolation = self.isolation(spec, config)?;
        isolation.steps.extend(write_dns(spec, &key.task)?);
        request.isolation = Some(isolation);
        Ok(request)
    }
}
