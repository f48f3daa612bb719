//! What a group asks of a node, and the exact cores, ports and devices it is given there.

use crate::load::{Capacity, DEFAULT_HOST_NETWORK, Dimension, Load, PhaseSum, Usage};
use crate::random::Random;
use crate::rules::{NodeKeys, device_matches, device_score};
use herdsman_expr::interpolate::interpolate;
use herdsman_model::{
    AllocatedCpu, AllocatedDevice, AllocatedMemory, AllocatedPort, AllocatedResources, AllocatedSharedResources,
    AllocatedTaskResources, List, NetworkResource, Node, RequestedDevice, Resources, Task, TaskGroup,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Random probes for a dynamic port before the range is searched from its start.
const PORT_PROBES: u32 = 20;

/// The address of a host network on a node: its first one.
pub(crate) fn host_address<'n>(node: &'n Node, host_network: &str) -> Option<&'n str> {
    let wanted = if host_network.is_empty() { DEFAULT_HOST_NETWORK } else { host_network };
    let addresses = node.resources.node_networks.iter().flat_map(|n| n.addresses.iter());
    let found = addresses.into_iter().find(|a| a.alias == wanted && !a.address.is_empty()).map(|a| a.address.as_str());
    found.or_else(|| {
        let first = node.resources.networks.iter().find(|n| !n.ip.is_empty());
        first.filter(|_| wanted == DEFAULT_HOST_NETWORK).map(|n| n.ip.as_str())
    })
}

/// What one group asks for, read once per evaluation.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    group: Arc<TaskGroup>,
    /// What is asked for without reserved cores, whose speed is the node's.
    sum: PhaseSum,
    cores: i64,
    oversubscription: bool,
    /// The grant where it is the same on every node, shared by all allocations.
    fixed: Option<Arc<AllocatedResources>>,
    has_ports: bool,
    has_devices: bool,
}

impl Ask {
    pub(crate) fn of(group: &Arc<TaskGroup>, oversubscription: bool) -> Ask {
        let mut sum = PhaseSum::default();
        let mut cores = 0i64;
        for task in &group.tasks {
            let asked = &task.resources;
            let cpu = if asked.cores > 0 { 0 } else { asked.cpu };
            sum.add(task.lifecycle.as_ref(), cpu, memory_ask(asked), asked.cores > 0);
            cores = cores.saturating_add(asked.cores.max(0));
        }
        let has_networks = !group.networks.is_empty() || group.tasks.iter().any(|t| !t.resources.networks.is_empty());
        let has_devices = group.tasks.iter().any(|t| !t.resources.devices.is_empty());
        let mut ask = Ask {
            group: Arc::clone(group),
            sum,
            cores,
            oversubscription,
            fixed: None,
            has_ports: has_networks,
            has_devices,
        };
        if cores == 0 && !has_networks && !has_devices {
            let mut none = Grant::default();
            let no_node = Node::default();
            let same = ask.build(&no_node, &Capacity::default(), &Load::default(), &mut Random::new(0), &mut none);
            ask.fixed = same.ok().map(Arc::new);
        }
        ask
    }

    /// What can be added up, on a node whose cores have this speed.
    pub(crate) fn usage(&self, capacity: &Capacity) -> Usage {
        let mut total = self.sum.total(self.group.ephemeral_disk.size_mb);
        total.cpu = total.cpu.saturating_add(self.cores.saturating_mul(capacity.core_speed));
        total
    }

    /// Whether the group fits beside the load.
    ///
    /// # Errors
    /// The first dimension in which it does not.
    pub(crate) fn fits(&self, node: &Node, capacity: &Capacity, load: &Load) -> Result<Usage, Dimension> {
        if self.has_ports {
            self.ports_fit(node, capacity, load)?;
        }
        if self.has_devices {
            self.devices_fit(node, load)?;
        }
        let usage = self.usage(capacity);
        load.fits(capacity, usage, 1)?;
        if self.cores > 0 {
            let free = capacity.cores.iter().filter(|c| !load.core_used(**c)).count();
            if i64::try_from(free).unwrap_or(i64::MAX) < self.cores {
                return Err(Dimension::CORES);
            }
        }
        Ok(usage)
    }

    fn networks(&self) -> impl Iterator<Item = &NetworkResource> {
        self.group.networks.iter().chain(self.group.tasks.iter().flat_map(|t| t.resources.networks.iter()))
    }

    fn ports_fit(&self, node: &Node, capacity: &Capacity, load: &Load) -> Result<(), Dimension> {
        for network in self.networks() {
            for port in &network.reserved_ports {
                let name = interpolate(&port.host_network, &NodeKeys(node));
                let address = host_address(node, &name).ok_or_else(|| Dimension::no_address(&name))?;
                let taken = load.port_used(address, port.value) || capacity.port_reserved(address, port.value);
                if taken && !port.ignore_collision {
                    return Err(Dimension::port_collision(&port.label, port.value));
                }
            }
            let Some(first) = network.dynamic_ports.first() else { continue };
            let name = interpolate(&first.host_network, &NodeKeys(node));
            let address = host_address(node, &name).ok_or_else(|| Dimension::no_address(&name))?;
            let (low, high) = capacity.dynamic_ports;
            let free =
                high.saturating_sub(low).saturating_add(1) - load.dynamic_ports_used(address, capacity.dynamic_ports);
            if free < i64::try_from(network.dynamic_ports.len()).unwrap_or(i64::MAX) {
                return Err(Dimension::no_dynamic_port());
            }
        }
        Ok(())
    }

    /// The static ports asked for, each with its address on a node.
    pub(crate) fn static_ports(&self, node: &Node) -> Vec<(String, i64)> {
        let ports = self.networks().flat_map(|n| n.reserved_ports.iter());
        let place = |p: &herdsman_model::Port| {
            let name = interpolate(&p.host_network, &NodeKeys(node));
            host_address(node, &name).map(|a| (a.to_owned(), p.value))
        };
        ports.filter_map(place).collect()
    }

    fn devices_fit(&self, node: &Node, load: &Load) -> Result<(), Dimension> {
        let mut taken = BTreeSet::new();
        for request in self.group.tasks.iter().flat_map(|t| t.resources.devices.iter()) {
            pick_devices(node, load, request, &mut taken).ok_or(Dimension::DEVICES)?;
        }
        Ok(())
    }

    /// The exact cores, ports and devices on a node, shared with every equal grant where nothing depends on the node.
    ///
    /// # Errors
    /// The dimension of which too little is left.
    pub(crate) fn grant(
        &self,
        node: &Node,
        capacity: &Capacity,
        load: &Load,
        random: &mut Random,
    ) -> Result<Arc<AllocatedResources>, Dimension> {
        if let Some(fixed) = &self.fixed {
            return Ok(Arc::clone(fixed));
        }
        self.build(node, capacity, load, random, &mut Grant::default()).map(Arc::new)
    }

    fn build(
        &self,
        node: &Node,
        capacity: &Capacity,
        load: &Load,
        random: &mut Random,
        grant: &mut Grant,
    ) -> Result<AllocatedResources, Dimension> {
        let mut given = AllocatedResources::default();
        given.shared.disk_mb = self.group.ephemeral_disk.size_mb;
        let at = Place { node, capacity, load };
        given.shared = self.shared(&at, random, grant)?;
        for task in &self.group.tasks {
            let granted = self.task(task, &at, random, grant)?;
            given.tasks.insert(task.name.clone(), granted);
            given.task_lifecycles.insert(task.name.clone(), task.lifecycle.clone());
        }
        Ok(given)
    }

    fn shared(
        &self,
        at: &Place<'_>,
        random: &mut Random,
        grant: &mut Grant,
    ) -> Result<AllocatedSharedResources, Dimension> {
        let mut shared = AllocatedSharedResources { disk_mb: self.group.ephemeral_disk.size_mb, ..Default::default() };
        for network in &self.group.networks {
            let (granted, ports) = grant_network(network, at, random, grant)?;
            shared.networks.0.push(granted);
            shared.ports.0.extend(ports);
        }
        Ok(shared)
    }

    fn task(
        &self,
        task: &Task,
        at: &Place<'_>,
        random: &mut Random,
        grant: &mut Grant,
    ) -> Result<AllocatedTaskResources, Dimension> {
        let asked = &task.resources;
        let mut given = AllocatedTaskResources {
            cpu: AllocatedCpu { cpu_shares: asked.cpu, reserved_cores: List::default() },
            memory: AllocatedMemory {
                memory_mb: memory_ask(asked),
                memory_max_mb: if self.oversubscription { asked.memory_max_mb } else { 0 },
            },
            ..Default::default()
        };
        if asked.cores > 0 {
            given.cpu = grant_cores(asked.cores, at, grant)?;
        }
        for network in &asked.networks {
            given.networks.0.push(grant_network(network, at, random, grant)?.0);
        }
        for request in &asked.devices {
            given
                .devices
                .0
                .push(pick_devices(at.node, at.load, request, &mut grant.devices).ok_or(Dimension::DEVICES)?);
        }
        Ok(given)
    }
}

/// Memory for the task itself and for its secrets directory.
fn memory_ask(asked: &Resources) -> i64 {
    asked.memory_mb.saturating_add(asked.secrets_mb)
}

/// Where a grant is made.
struct Place<'p> {
    node: &'p Node,
    capacity: &'p Capacity,
    load: &'p Load,
}

/// What the allocation in the making holds already.
#[derive(Debug, Default)]
struct Grant {
    ports: BTreeSet<(String, i64)>,
    cores: BTreeSet<u16>,
    devices: BTreeSet<(String, String, String, String)>,
}

fn grant_cores(count: i64, at: &Place<'_>, grant: &mut Grant) -> Result<AllocatedCpu, Dimension> {
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    let free = at.capacity.cores.iter().filter(|c| !at.load.core_used(**c) && !grant.cores.contains(c));
    let cores: Vec<u16> = free.copied().take(wanted).collect();
    if cores.len() < wanted {
        return Err(Dimension::CORES);
    }
    grant.cores.extend(cores.iter().copied());
    Ok(AllocatedCpu { cpu_shares: count.saturating_mul(at.capacity.core_speed), reserved_cores: cores.into() })
}

fn grant_network(
    asked: &NetworkResource,
    at: &Place<'_>,
    random: &mut Random,
    grant: &mut Grant,
) -> Result<(NetworkResource, Vec<AllocatedPort>), Dimension> {
    let mut granted = asked.clone();
    let mut ports = Vec::new();
    let no_address = host_address(at.node, DEFAULT_HOST_NETWORK).unwrap_or_default();
    let mut first_address = None;
    for port in
        granted.reserved_ports.iter_mut().map(|p| (p, true)).chain(granted.dynamic_ports.iter_mut().map(|p| (p, false)))
    {
        let (port, fixed) = port;
        let name = interpolate(&port.host_network, &NodeKeys(at.node));
        let address = host_address(at.node, &name).ok_or_else(|| Dimension::no_address(&name))?;
        let free = |value: i64, grant: &Grant| {
            !at.load.port_used(address, value)
                && !at.capacity.port_reserved(address, value)
                && !grant.ports.contains(&(address.to_owned(), value))
        };
        if fixed {
            if !port.ignore_collision && !free(port.value, grant) {
                return Err(Dimension::port_collision(&port.label, port.value));
            }
        } else {
            port.value = dynamic_port(at.capacity.dynamic_ports, random, |value| free(value, grant))?;
        }
        grant.ports.insert((address.to_owned(), port.value));
        first_address.get_or_insert_with(|| address.to_owned());
        // A wish of -1 means the same port inside as outside.
        let to = if port.to == -1 { port.value } else { port.to };
        ports.push(AllocatedPort {
            label: port.label.clone(),
            value: port.value,
            to,
            host_ip: address.to_owned(),
            ignore_collision: port.ignore_collision,
        });
    }
    granted.ip = first_address.unwrap_or_else(|| no_address.to_owned());
    Ok((granted, ports))
}

fn dynamic_port(range: (i64, i64), random: &mut Random, free: impl Fn(i64) -> bool) -> Result<i64, Dimension> {
    let (low, high) = range;
    let size = u64::try_from(high.saturating_sub(low).saturating_add(1)).unwrap_or(0);
    if size == 0 {
        return Err(Dimension::no_dynamic_port());
    }
    for _ in 0..PORT_PROBES {
        let port = low.saturating_add(i64::try_from(random.below(size)).unwrap_or(0));
        if free(port) {
            return Ok(port);
        }
    }
    (low..=high).find(|port| free(*port)).ok_or_else(Dimension::no_dynamic_port)
}

/// The instances of the best device group that can give as many as asked for.
fn pick_devices(
    node: &Node,
    load: &Load,
    request: &RequestedDevice,
    taken: &mut BTreeSet<(String, String, String, String)>,
) -> Option<AllocatedDevice> {
    let wanted = usize::try_from(request.count).ok()?;
    let mut best: Option<(f64, AllocatedDevice)> = None;
    for group in &node.resources.devices {
        if !device_matches(group, request) {
            continue;
        }
        let key = |id: &str| (group.vendor.clone(), group.kind.clone(), group.name.clone(), id.to_owned());
        let free = group.instances.iter().filter(|i| {
            i.healthy
                && !load.device_used(&group.vendor, &group.kind, &group.name, &i.id)
                && !taken.contains(&key(&i.id))
        });
        let ids: Vec<String> = free.map(|i| i.id.clone()).take(wanted).collect();
        if ids.len() < wanted {
            continue;
        }
        let score = device_score(group, request).map_or(0.0, |(matched, _)| matched);
        if best.as_ref().is_none_or(|(other, _)| score > *other) {
            let device = AllocatedDevice {
                vendor: group.vendor.clone(),
                kind: group.kind.clone(),
                name: group.name.clone(),
                device_ids: ids.into(),
            };
            best = Some((score, device));
        }
    }
    let (_, device) = best?;
    for id in &device.device_ids {
        taken.insert((device.vendor.clone(), device.kind.clone(), device.name.clone(), id.clone()));
    }
    Some(device)
}
