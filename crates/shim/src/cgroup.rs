//! The host's cgroup hierarchies, version 1, version 2, or both (hybrid), and
//! plans of cgroups for tasks.
//!
//! Everything lives below one parent (default `herdsman.slice`) at the top of
//! each hierarchy, outside the agent's own cgroup: `<parent>/shim` for zygotes
//! and shims, `<parent>/<key>.scope` for each run of a task.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::messages::{CgroupPlan, CgroupWrite};

/// Parent of all cgroups unless configured.
pub const DEFAULT_PARENT: &str = "herdsman.slice";
/// Largest weight of version 2 and its smallest.
const WEIGHT_RANGE: (u64, u64) = (1, 10_000);
/// Range of shares of version 1.
const SHARES_RANGE: (u64, u64) = (2, 262_144);
/// Bytes in the megabyte of job files.
const MIB: u64 = 1 << 20;

/// Which kind of hierarchies a host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// None mounted, or none writable.
    Off,
    /// Version 1 controllers (a unified tree without controllers may be there).
    V1,
    /// Version 2 only.
    V2,
}

/// What a task may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Relative processor time, in the MHz of job files; 0 for no setting.
    pub cpu_shares: u64,
    /// Processor numbers reserved for it.
    pub cores: Vec<u16>,
    /// Megabytes it may not exceed; 0 for no limit.
    pub memory_max_mb: u64,
    /// Megabytes kept for it when memory is short; 0 for none.
    pub memory_low_mb: u64,
}

/// The hierarchies tasks can be put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    mode: Mode,
    /// Version 1: controller to the parent directory in its hierarchy.
    v1: BTreeMap<String, PathBuf>,
    /// Parent directory in the unified hierarchy.
    v2: Option<PathBuf>,
    /// Controllers of version 2 that the parent's children have.
    v2_controllers: Vec<String>,
    /// Control files by which a process enters the shims' cgroup.
    shim_files: Vec<PathBuf>,
}

/// A mounted hierarchy.
struct Mount {
    point: PathBuf,
    v2: bool,
    controllers: Vec<String>,
}

/// Reads `/proc/self/mountinfo`.
fn mounts(text: &str) -> Vec<Mount> {
    let mut out: Vec<Mount> = Vec::new();
    for line in text.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let Some(point) = before.split(' ').nth(4) else { continue };
        let mut after = after.split(' ');
        let (kind, options) = (after.next().unwrap_or_default(), after.nth(1).unwrap_or_default());
        let point = PathBuf::from(point.replace("\\040", " "));
        if !matches!(kind, "cgroup" | "cgroup2") || out.iter().any(|m| m.point == point) {
            continue;
        }
        let known = ["cpu", "cpuacct", "cpuset", "memory", "pids", "freezer", "devices", "blkio", "name=systemd"];
        let mut controllers: Vec<String> =
            options.split(',').filter(|o| known.contains(o)).map(str::to_owned).collect();
        if kind == "cgroup" && controllers.is_empty() {
            controllers.push(options.to_owned()); // hugetlb, net_cls and the like.
        }
        out.push(Mount { point, v2: kind == "cgroup2", controllers });
    }
    out
}

fn make(dir: &Path) -> bool {
    fs::create_dir_all(dir).is_ok()
}

/// Copies what a new cpuset lacks from the directory above; without it no
/// process can enter.
fn fill_cpuset(dir: &Path) {
    let Some(above) = dir.parent() else { return };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = fs::read_to_string(dir.join(file)).unwrap_or_default();
        if own.trim().is_empty() {
            let value = fs::read_to_string(above.join(file)).unwrap_or_default();
            let _ = fs::write(dir.join(file), value.trim());
        }
    }
}

impl Cgroups {
    /// Looks at the host and makes the parents. Hierarchies that are not
    /// writable are left out.
    pub fn prepare(parent: &str) -> Cgroups {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut out = Cgroups {
            mode: Mode::Off,
            v1: BTreeMap::new(),
            v2: None,
            v2_controllers: Vec::new(),
            shim_files: Vec::new(),
        };
        for mount in mounts(&text) {
            let dir = mount.point.join(parent);
            if !make(&dir) {
                continue;
            }
            if mount.v2 {
                enable_controllers(&mount.point);
                enable_controllers(&dir);
                let enabled = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
                out.v2_controllers = enabled.split_ascii_whitespace().map(str::to_owned).collect();
                out.v2 = Some(dir.clone());
            } else if mount.controllers.iter().any(|c| c == "cpuset") {
                fill_cpuset(&dir);
            }
            let shim = dir.join("shim");
            if !make(&shim) {
                continue;
            }
            if mount.controllers.iter().any(|c| c == "cpuset") {
                fill_cpuset(&shim);
            }
            out.shim_files.push(shim.join(if mount.v2 { "cgroup.procs" } else { "tasks" }));
            out.v1.extend(mount.controllers.into_iter().map(|c| (c, dir.clone())));
        }
        out.mode = if out.v1.contains_key("memory") || out.v1.contains_key("cpu") {
            Mode::V1
        } else if out.v2.is_some() {
            Mode::V2
        } else {
            Mode::Off
        };
        out
    }

    /// Which kind there is.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Files by which the zygote enters the shims' cgroup.
    pub(crate) fn shim_control_files(&self) -> Vec<PathBuf> {
        self.shim_files.clone()
    }

    /// True when memory of a task can be limited.
    pub fn limits_memory(&self) -> bool {
        self.has("memory")
    }

    /// Whether tasks can be given limits of this controller.
    fn has(&self, controller: &str) -> bool {
        match self.mode {
            Mode::Off => false,
            Mode::V1 => self.v1.contains_key(controller),
            Mode::V2 => self.v2_controllers.iter().any(|c| c == controller),
        }
    }

    /// Controllers that this host does not give: what a job says of them has
    /// no effect here.
    pub fn missing(&self) -> Vec<&'static str> {
        ["cpu", "cpuset", "memory"].into_iter().filter(|c| !self.has(c)).collect()
    }

    /// Cgroups for one run, named after its key: as few as the limits need, and
    /// one that tells which processes belong to it.
    pub fn plan(&self, name: &str, limits: &Limits) -> Vec<CgroupPlan> {
        let scope = format!("{name}.scope");
        match self.mode {
            Mode::Off => Vec::new(),
            Mode::V2 => self.v2.iter().map(|dir| plan(&dir.join(&scope), true, self.v2_writes(limits))).collect(),
            Mode::V1 => self.v1_plans(&scope, limits),
        }
    }

    /// Adds a cgroup of a version 1 controller, if the host has it. Controllers
    /// mounted together share the directory.
    fn add_v1(&self, out: &mut Vec<CgroupPlan>, scope: &str, controller: &str, writes: Vec<CgroupWrite>) {
        let Some(dir) = self.v1.get(controller).map(|d| d.join(scope)) else { return };
        match out.iter_mut().find(|p| p.dir == dir.as_os_str().as_bytes()) {
            Some(plan) => plan.writes.extend(writes),
            None => out.push(plan(&dir, false, writes)),
        }
    }

    /// Limits as far as this host has their controllers.
    fn v2_writes(&self, limits: &Limits) -> Vec<CgroupWrite> {
        let mut out = Vec::new();
        let memory = self.has("memory");
        if memory && limits.memory_max_mb > 0 {
            out.push(write("memory.max", limits.memory_max_mb.saturating_mul(MIB).to_string(), false));
            out.push(write("memory.swap.max", "0".to_owned(), true));
        }
        if memory && limits.memory_low_mb > 0 {
            out.push(write("memory.low", limits.memory_low_mb.saturating_mul(MIB).to_string(), false));
        }
        if self.has("cpu") && limits.cpu_shares > 0 {
            out.push(write("cpu.weight", weight(limits.cpu_shares).to_string(), false));
        }
        if self.has("cpuset") && !limits.cores.is_empty() {
            out.push(write("cpuset.cpus", core_list(&limits.cores), false));
        }
        out
    }

    fn v1_plans(&self, scope: &str, limits: &Limits) -> Vec<CgroupPlan> {
        let mut out: Vec<CgroupPlan> = Vec::new();
        if limits.memory_max_mb > 0 || limits.memory_low_mb > 0 {
            self.add_v1(&mut out, scope, "memory", v1_memory_writes(limits));
        }
        if limits.cpu_shares > 0 {
            let shares = limits.cpu_shares.clamp(SHARES_RANGE.0, SHARES_RANGE.1);
            self.add_v1(&mut out, scope, "cpu", vec![write("cpu.shares", shares.to_string(), false)]);
        }
        if !limits.cores.is_empty() {
            let mems = self.v1.get("cpuset").map(|d| fs::read_to_string(d.join("cpuset.mems")).unwrap_or_default());
            self.add_v1(
                &mut out,
                scope,
                "cpuset",
                vec![
                    write("cpuset.mems", mems.unwrap_or_default().trim().to_owned(), false),
                    write("cpuset.cpus", core_list(&limits.cores), false),
                ],
            );
        }
        if out.is_empty() {
            // Something has to tell which processes are the task's.
            match &self.v2 {
                Some(dir) => out.push(plan(&dir.join(scope), true, Vec::new())),
                None => self.add_v1(&mut out, scope, "pids", Vec::new()),
            }
        }
        out
    }
}

/// Lets the children of a version 2 cgroup be limited; what the kernel lacks
/// or will not give is left out.
fn enable_controllers(dir: &Path) {
    for controller in ["cpu", "memory", "cpuset", "pids", "io"] {
        let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

fn plan(dir: &Path, v2: bool, writes: Vec<CgroupWrite>) -> CgroupPlan {
    CgroupPlan { dir: dir.as_os_str().as_bytes().to_vec(), v2, own: true, optional: false, writes }
}

fn write(file: &str, value: String, optional: bool) -> CgroupWrite {
    CgroupWrite { file: file.as_bytes().to_vec(), value: value.into_bytes(), optional }
}

fn core_list(cores: &[u16]) -> String {
    cores.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

/// Version 1 shares (2 to 262144) as a version 2 weight (1 to 10000), by the
/// kernel documentation's linear rule.
fn weight(shares: u64) -> u64 {
    let shares = shares.clamp(SHARES_RANGE.0, SHARES_RANGE.1);
    (1 + (shares - 2) * 9999 / 262_142).clamp(WEIGHT_RANGE.0, WEIGHT_RANGE.1)
}

fn v1_memory_writes(limits: &Limits) -> Vec<CgroupWrite> {
    let mut out = Vec::new();
    if limits.memory_max_mb > 0 {
        let bytes = limits.memory_max_mb.saturating_mul(MIB).to_string();
        out.push(write("memory.limit_in_bytes", bytes, false));
        out.push(write("memory.swappiness", "0".to_owned(), true));
    }
    if limits.memory_low_mb > 0 {
        let bytes = limits.memory_low_mb.saturating_mul(MIB).to_string();
        out.push(write("memory.soft_limit_in_bytes", bytes, true));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_of_a_hybrid_host() {
        let text = "25 24 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
            27 25 0:24 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            28 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = mounts(text);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].controllers, ["cpu", "cpuacct"]);
        assert_eq!(found[1].controllers, ["name=systemd"]);
        assert!(found[2].v2);
        assert_eq!(found[2].point, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn nomad_26081_tiny_cpu_is_a_legal_weight() {
        assert_eq!(weight(1), 1);
        assert_eq!(weight(u64::MAX), 10_000);
        assert_eq!(weight(1024), 39);
        let host = Cgroups {
            mode: Mode::V1,
            v1: BTreeMap::from([("cpu".to_owned(), PathBuf::from("/c"))]),
            v2: None,
            v2_controllers: Vec::new(),
            shim_files: Vec::new(),
        };
        let plans = host.plan("k", &Limits { cpu_shares: 1, ..Limits::default() });
        assert_eq!(plans[0].writes[0].value, b"2");
        assert_eq!(host.missing(), ["cpuset", "memory"]);
    }

    #[test]
    fn limits_without_a_controller_are_left_out() {
        let host = Cgroups {
            mode: Mode::V2,
            v1: BTreeMap::new(),
            v2: Some(PathBuf::from("/u")),
            v2_controllers: vec!["cpu".to_owned()],
            shim_files: Vec::new(),
        };
        let plans = host.plan("k", &Limits { cpu_shares: 1024, memory_max_mb: 1, ..Limits::default() });
        let files: Vec<_> = plans[0].writes.iter().map(|w| w.file.clone()).collect();
        assert_eq!(files, [b"cpu.weight".to_vec()]);
        assert_eq!(host.missing(), ["cpuset", "memory"]);
        assert!(!host.limits_memory());
    }
}
