//! What allocations use of a node, and whether that fits: the one definition that planner, linter and plan applier share.
//!
//! A client-terminal allocation uses nothing; one that the servers stopped uses its share until the node says that it has
//! ended. Tasks that never run at the same time share: an allocation uses, per dimension, the largest of what its main
//! phase, its prestart phase and its poststop phase use. Reserved cores are held for the whole life.

use herdsman_model::{AllocatedPort, AllocatedResources, Allocation, Hook, NetworkResource, Node, TaskLifecycle};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Lowest dynamic port of a node that names none.
pub const DEFAULT_MIN_DYNAMIC_PORT: i64 = 20_000;
/// Highest dynamic port of a node that names none.
pub const DEFAULT_MAX_DYNAMIC_PORT: i64 = 32_000;

/// The host network of a port that names none.
pub const DEFAULT_HOST_NETWORK: &str = "default";

/// What a node has too little of; the text that metrics and refused plans show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dimension(pub Cow<'static, str>);

impl Dimension {
    pub const CPU: Dimension = Dimension(Cow::Borrowed("cpu"));
    pub const CORES: Dimension = Dimension(Cow::Borrowed("cores"));
    pub const MEMORY: Dimension = Dimension(Cow::Borrowed("memory"));
    pub const DISK: Dimension = Dimension(Cow::Borrowed("disk"));
    pub const MAX_ALLOCS: Dimension = Dimension(Cow::Borrowed("max allocation exceeded"));
    pub const DEVICES: Dimension = Dimension(Cow::Borrowed("devices"));

    /// A host port that is taken already.
    pub fn port_collision(label: &str, port: i64) -> Dimension {
        let name = if label.is_empty() { String::new() } else { format!("{label}=") };
        Dimension(Cow::Owned(format!("network: reserved port collision {name}{port}")))
    }
    /// The node has no address on the host network that a port is to be on.
    pub fn no_address(host_network: &str) -> Dimension {
        let name = if host_network.is_empty() { DEFAULT_HOST_NETWORK } else { host_network };
        Dimension(Cow::Owned(format!("network: no addresses available for \"{name}\" network")))
    }
    /// No dynamic port is left.
    pub fn no_dynamic_port() -> Dimension {
        Dimension(Cow::Borrowed("network: dynamic port selection failed"))
    }
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Amounts of what can be added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Megahertz.
    pub cpu: i64,
    pub memory_mb: i64,
    pub disk_mb: i64,
}

impl Usage {
    /// The sum; amounts saturate.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_add(other.cpu),
            memory_mb: self.memory_mb.saturating_add(other.memory_mb),
            disk_mb: self.disk_mb.saturating_add(other.disk_mb),
        }
    }

    /// What is left; amounts saturate.
    #[must_use]
    pub fn minus(self, other: Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory_mb: self.memory_mb.saturating_sub(other.memory_mb),
            disk_mb: self.disk_mb.saturating_sub(other.disk_mb),
        }
    }
}

/// The phase of an allocation's life in which a task uses its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Main,
    Prestart,
    /// A prestart sidecar: runs with the prestart tasks and with the main ones.
    PrestartAndMain,
    Poststop,
}

fn phase(lifecycle: Option<&TaskLifecycle>) -> Phase {
    match lifecycle.map(|l| (l.hook, l.sidecar)) {
        None | Some((Hook::Poststart, _)) => Phase::Main,
        Some((Hook::Prestart, false)) => Phase::Prestart,
        Some((Hook::Prestart, true)) => Phase::PrestartAndMain,
        Some((Hook::Poststop, _)) => Phase::Poststop,
    }
}

/// Adds up tasks by phase.
#[derive(Debug, Clone, Copy, Default)]
pub struct PhaseSum {
    main: (i64, i64),
    prestart: (i64, i64),
    poststop: (i64, i64),
    cores_cpu: i64,
}

impl PhaseSum {
    /// Adds one task. The bandwidth of reserved cores counts for the whole life of the allocation.
    pub fn add(&mut self, lifecycle: Option<&TaskLifecycle>, cpu: i64, memory_mb: i64, reserves_cores: bool) {
        let cpu = if reserves_cores {
            self.cores_cpu = self.cores_cpu.saturating_add(cpu);
            0
        } else {
            cpu
        };
        let add = |sum: &mut (i64, i64)| {
            sum.0 = sum.0.saturating_add(cpu);
            sum.1 = sum.1.saturating_add(memory_mb);
        };
        match phase(lifecycle) {
            Phase::Main => add(&mut self.main),
            Phase::Prestart => add(&mut self.prestart),
            Phase::PrestartAndMain => {
                add(&mut self.main);
                add(&mut self.prestart);
            }
            Phase::Poststop => add(&mut self.poststop),
        }
    }

    /// The largest phase, per dimension.
    pub fn total(&self, disk_mb: i64) -> Usage {
        Usage {
            cpu: self.main.0.max(self.prestart.0).max(self.poststop.0).saturating_add(self.cores_cpu),
            memory_mb: self.main.1.max(self.prestart.1).max(self.poststop.1),
            disk_mb,
        }
    }
}

/// What was granted to an allocation, added up.
pub fn usage_of(resources: &AllocatedResources) -> Usage {
    let mut sum = PhaseSum::default();
    for (name, task) in &resources.tasks {
        let lifecycle = resources.task_lifecycles.get(name).and_then(Option::as_ref);
        sum.add(lifecycle, task.cpu.cpu_shares, task.memory.memory_mb, !task.cpu.reserved_cores.is_empty());
    }
    sum.total(resources.shared.disk_mb)
}

/// The host ports an allocation holds, with the address each is on.
fn for_each_port(resources: &AllocatedResources, visit: &mut dyn FnMut(&str, i64, &str, bool)) {
    let port = |p: &AllocatedPort, visit: &mut dyn FnMut(&str, i64, &str, bool)| {
        visit(&p.host_ip, p.value, &p.label, p.ignore_collision);
    };
    if resources.shared.ports.is_empty() {
        resources.shared.networks.iter().for_each(|n| network_ports(n, visit));
    } else {
        resources.shared.ports.iter().for_each(|p| port(p, visit));
    }
    for task in resources.tasks.values() {
        task.networks.iter().for_each(|n| network_ports(n, visit));
    }
}

fn network_ports(network: &NetworkResource, visit: &mut dyn FnMut(&str, i64, &str, bool)) {
    for port in network.reserved_ports.iter().chain(network.dynamic_ports.iter()) {
        if port.value > 0 {
            visit(&network.ip, port.value, &port.label, port.ignore_collision);
        }
    }
}

/// What a node offers to allocations: everything less what it keeps for itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Capacity {
    pub usage: Usage,
    pub cores: BTreeSet<u16>,
    /// Megahertz of one core.
    pub core_speed: i64,
    /// No more than this many allocations; 0: no limit.
    pub max_allocs: i64,
    /// Ports kept by the node on every address.
    reserved_ports: BTreeSet<i64>,
    /// Ports kept by the node on one address.
    reserved_by_address: BTreeMap<String, BTreeSet<i64>>,
    pub dynamic_ports: (i64, i64),
    /// Healthy instances, by (vendor, type, name).
    devices: BTreeMap<(String, String, String), BTreeSet<String>>,
}

impl Capacity {
    /// What `node` offers.
    pub fn of(node: &Node) -> Capacity {
        let kept: BTreeSet<u16> = node.reserved.cores.iter().copied().collect();
        let cores = i64::from(node.resources.total_cores).max(1);
        let mut reserved_by_address: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        for network in &node.resources.node_networks {
            for address in &network.addresses {
                let ports = parse_ports(&address.reserved_ports);
                if !ports.is_empty() {
                    reserved_by_address.entry(address.address.clone()).or_default().extend(ports);
                }
            }
        }
        let or_default = |value: i64, default: i64| if value > 0 { value } else { default };
        Capacity {
            usage: Usage {
                cpu: node.resources.cpu_shares.saturating_sub(node.reserved.cpu_shares),
                memory_mb: node.resources.memory_mb.saturating_sub(node.reserved.memory_mb),
                disk_mb: node.resources.disk_mb.saturating_sub(node.reserved.disk_mb),
            },
            cores: node.resources.reservable_cores.iter().copied().filter(|c| !kept.contains(c)).collect(),
            core_speed: or_default(node.resources.core_speed_mhz, node.resources.cpu_shares / cores),
            max_allocs: node.node_max_allocs,
            reserved_ports: parse_ports(&node.reserved.ports),
            reserved_by_address,
            dynamic_ports: (
                or_default(node.resources.min_dynamic_port, DEFAULT_MIN_DYNAMIC_PORT),
                or_default(node.resources.max_dynamic_port, DEFAULT_MAX_DYNAMIC_PORT),
            ),
            devices: healthy_devices(node),
        }
    }

    /// Whether the node keeps this port for itself.
    pub fn port_reserved(&self, address: &str, port: i64) -> bool {
        self.reserved_ports.contains(&port) || self.reserved_by_address.get(address).is_some_and(|s| s.contains(&port))
    }
}

fn healthy_devices(node: &Node) -> BTreeMap<(String, String, String), BTreeSet<String>> {
    node.resources
        .devices
        .iter()
        .map(|group| {
            let key = (group.vendor.clone(), group.kind.clone(), group.name.clone());
            (key, group.instances.iter().filter(|i| i.healthy).map(|i| i.id.clone()).collect())
        })
        .collect()
}

/// Most ports that one list of reserved ports may name; a list is what an operator wrote.
const MAX_PORT: i64 = 65_535;

/// Reads "22,80,8000-8010". What is no port is passed over: the agent has checked the text before it got here.
fn parse_ports(text: &str) -> BTreeSet<i64> {
    let mut ports = BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(low), Ok(high)) = (low.trim().parse::<i64>(), high.trim().parse::<i64>()) {
            ports.extend(low.max(1)..=high.min(MAX_PORT));
        }
    }
    ports
}

/// What allocations use of one node. Kept up to date by adding and removing, never added up anew.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    pub usage: Usage,
    pub allocs: i64,
    /// How many hold each core.
    cores: BTreeMap<u16, u32>,
    /// How many hold each port, by address.
    ports: BTreeMap<String, BTreeMap<i64, u32>>,
    /// How many hold each device instance, by its id within (vendor, type, name).
    devices: BTreeMap<(String, String, String), BTreeMap<String, u32>>,
}

fn raise<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    let count = counts.entry(key).or_insert(0);
    *count = count.saturating_add(1);
}

fn lower<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Load {
    /// The load of the allocations that are not client-terminal.
    pub fn of<'a>(allocs: impl IntoIterator<Item = &'a Arc<Allocation>>) -> Load {
        let mut load = Load::default();
        for alloc in allocs {
            if !alloc.client_terminal() {
                load.add(&alloc.resources);
            }
        }
        load
    }

    /// Adds one allocation.
    pub fn add(&mut self, resources: &AllocatedResources) {
        self.add_with(resources, usage_of(resources));
    }

    /// Adds one allocation whose usage is known.
    pub fn add_with(&mut self, resources: &AllocatedResources, usage: Usage) {
        self.usage = self.usage.plus(usage);
        self.allocs = self.allocs.saturating_add(1);
        for_each_port(resources, &mut |address, port, _, ignore| {
            if ignore {
                return;
            }
            match self.ports.get_mut(address) {
                Some(ports) => raise(ports, port),
                None => raise(self.ports.entry(address.to_owned()).or_default(), port),
            }
        });
        for task in resources.tasks.values() {
            task.cpu.reserved_cores.iter().for_each(|c| raise(&mut self.cores, *c));
            for device in &task.devices {
                let key = (device.vendor.clone(), device.kind.clone(), device.name.clone());
                let held = self.devices.entry(key).or_default();
                device.device_ids.iter().for_each(|id| raise(held, id.clone()));
            }
        }
    }

    /// Removes one allocation that was added.
    pub fn remove(&mut self, resources: &AllocatedResources) {
        self.usage = self.usage.minus(usage_of(resources));
        self.allocs = self.allocs.saturating_sub(1);
        for_each_port(resources, &mut |address, port, _, ignore| {
            if let (false, Some(ports)) = (ignore, self.ports.get_mut(address)) {
                lower(ports, &port);
            }
        });
        for task in resources.tasks.values() {
            task.cpu.reserved_cores.iter().for_each(|c| lower(&mut self.cores, c));
            for device in &task.devices {
                let key = (device.vendor.clone(), device.kind.clone(), device.name.clone());
                if let Some(held) = self.devices.get_mut(&key) {
                    device.device_ids.iter().for_each(|id| lower(held, id));
                }
            }
        }
    }

    /// Whether some allocation holds this port on this address.
    pub fn port_used(&self, address: &str, port: i64) -> bool {
        self.ports.get(address).is_some_and(|p| p.contains_key(&port))
    }

    /// Dynamic ports held on this address.
    pub fn dynamic_ports_used(&self, address: &str, range: (i64, i64)) -> i64 {
        if range.0 > range.1 {
            return 0;
        }
        let used = self.ports.get(address).map_or(0, |p| p.range(range.0..=range.1).count());
        i64::try_from(used).unwrap_or(i64::MAX)
    }

    /// Whether some allocation holds this core.
    pub fn core_used(&self, core: u16) -> bool {
        self.cores.contains_key(&core)
    }

    /// Cores held.
    pub fn cores_used(&self) -> usize {
        self.cores.len()
    }

    /// Whether some allocation holds this device instance.
    pub fn device_used(&self, vendor: &str, kind: &str, name: &str, id: &str) -> bool {
        let key = (vendor.to_owned(), kind.to_owned(), name.to_owned());
        self.devices.get(&key).is_some_and(|held| held.contains_key(id))
    }

    /// What the load holds of that which only one can hold and `other` holds too.
    fn clash(&self, other: &AllocatedResources) -> Option<Dimension> {
        let mut found = None;
        for_each_port(other, &mut |address, port, label, ignore| {
            if !ignore && self.port_used(address, port) {
                found = Some(Dimension::port_collision(label, port));
            }
        });
        for task in other.tasks.values() {
            if task.cpu.reserved_cores.iter().any(|c| self.core_used(*c)) {
                found = Some(Dimension::CORES);
            }
            let held = |d: &herdsman_model::AllocatedDevice| {
                d.device_ids.iter().any(|id| self.device_used(&d.vendor, &d.kind, &d.name, id))
            };
            if task.devices.iter().any(held) {
                found = Some(Dimension::DEVICES);
            }
        }
        found
    }

    /// Whether `more` fits beside the load, in what can be added up.
    ///
    /// # Errors
    /// The first dimension that is exceeded.
    pub fn fits(&self, capacity: &Capacity, more: Usage, allocs: i64) -> Result<(), Dimension> {
        let total = self.usage.plus(more);
        if total.cpu > capacity.usage.cpu {
            return Err(Dimension::CPU);
        }
        if total.memory_mb > capacity.usage.memory_mb {
            return Err(Dimension::MEMORY);
        }
        if total.disk_mb > capacity.usage.disk_mb {
            return Err(Dimension::DISK);
        }
        if capacity.max_allocs > 0 && self.allocs.saturating_add(allocs) > capacity.max_allocs {
            return Err(Dimension::MAX_ALLOCS);
        }
        Ok(())
    }

    /// Whether the load as a whole is one that the node can carry.
    ///
    /// # Errors
    /// The first dimension that is exceeded, or held twice.
    pub fn check(&self, capacity: &Capacity) -> Result<(), Dimension> {
        self.fits(capacity, Usage::default(), 0)?;
        if self.cores.iter().any(|(core, count)| *count > 1 || !capacity.cores.contains(core)) {
            return Err(Dimension::CORES);
        }
        for (address, ports) in &self.ports {
            for (port, count) in ports {
                if *count > 1 || capacity.port_reserved(address, *port) {
                    return Err(Dimension::port_collision("", *port));
                }
            }
        }
        for (key, held) in &self.devices {
            let offered = capacity.devices.get(key);
            if held.iter().any(|(id, count)| *count > 1 || !offered.is_some_and(|o| o.contains(id))) {
                return Err(Dimension::DEVICES);
            }
        }
        Ok(())
    }
}

/// Whether a node can carry all of `allocs` at once. Client-terminal ones use nothing.
///
/// An allocation that the servers have stopped still uses its share, but what it alone can hold (ports, cores, devices) may
/// have been handed on: one that is committed already (its create index is set) took it rightly, and one that is not may
/// take it only as its successor or as the one it made room for, because those wait for its end.
///
/// # Errors
/// The dimension that the node has too little of.
pub fn allocs_fit<'a>(node: &Node, allocs: impl IntoIterator<Item = &'a Arc<Allocation>>) -> Result<Usage, Dimension> {
    let capacity = Capacity::of(node);
    let (mut live, mut stopping) = (Vec::new(), Vec::new());
    for alloc in allocs.into_iter().filter(|a| !a.client_terminal()) {
        if alloc.server_terminal() { stopping.push(alloc) } else { live.push(alloc) }
    }
    let load = Load::of(live.iter().copied());
    load.check(&capacity)?;
    let mut total = load.clone();
    for alloc in &stopping {
        total.add(&alloc.resources);
    }
    total.fits(&capacity, Usage::default(), 0)?;
    for alloc in stopping {
        if load.clash(&alloc.resources).is_none() {
            continue;
        }
        let takes_over = |new: &Allocation| {
            new.create_index > 0
                || new.previous_allocation == Some(alloc.id)
                || new.preempted_allocations.contains(&alloc.id)
        };
        for new in live.iter().filter(|a| !takes_over(a)) {
            let mut one = Load::default();
            one.add(&new.resources);
            if let Some(dimension) = one.clash(&alloc.resources) {
                return Err(dimension);
            }
        }
    }
    Ok(total.usage)
}
