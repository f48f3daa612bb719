//! Views of nodes: the whole one, and the stub of lists.

use super::Time;
use crate::ids::NodeId;
use crate::node::{
    DeviceGroup, DrainStrategy, DriverInfo, Eligibility, HostNetwork, HostVolume, LastDrain, Node, NodeEvent,
    NodeNetwork, NodeStatus,
};
use crate::resources::NetworkResource;
use crate::values::{List, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;

type Texts = BTreeMap<String, String>;

fn some_map<K, V>(map: &BTreeMap<K, V>) -> Option<&BTreeMap<K, V>> {
    (!map.is_empty()).then_some(map)
}

/// A node as the API shows it: without its secret, with the old `Drain` flag.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeView<'a> {
    #[serde(rename = "ID")]
    pub id: NodeId,
    #[serde(rename = "SecretID")]
    pub secret_id: &'static str,
    pub name: &'a str,
    pub datacenter: &'a str,
    pub node_pool: &'a str,
    pub node_class: &'a str,
    pub computed_class: &'a str,
    pub attributes: &'a Texts,
    pub meta: &'a Texts,
    pub links: &'a Texts,
    pub node_resources: NodeResourcesView<'a>,
    pub reserved_resources: ReservedView<'a>,
    pub drivers: BTreeMap<&'a str, DriverView<'a>>,
    pub host_volumes: Option<&'a BTreeMap<String, HostVolume>>,
    pub host_networks: Option<&'a BTreeMap<String, HostNetwork>>,
    #[serde(rename = "CSIControllerPlugins")]
    pub csi_controller_plugins: BTreeMap<String, ()>,
    #[serde(rename = "CSINodePlugins")]
    pub csi_node_plugins: BTreeMap<String, ()>,
    #[serde(rename = "HTTPAddr")]
    pub http_addr: &'a str,
    #[serde(rename = "TLSEnabled")]
    pub tls_enabled: bool,
    pub cgroup_parent: &'a str,
    pub node_max_allocs: i64,
    #[serde(rename = "GCVolumesOnNodeGC")]
    pub gc_volumes_on_node_gc: bool,
    #[serde(rename = "IdentitySigningKeyID")]
    pub identity_signing_key_id: &'a str,
    pub status: NodeStatus,
    pub status_description: &'a str,
    pub status_updated_at: i64,
    pub scheduling_eligibility: Eligibility,
    pub drain: bool,
    pub drain_strategy: Option<DrainView>,
    pub last_drain: Option<LastDrainView<'a>>,
    pub events: Option<Vec<NodeEventView<'a>>>,
    pub last_missed_heartbeat_index: u64,
    pub last_alloc_update_index: u64,
    pub create_index: u64,
    pub modify_index: u64,
}

/// What a node has.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeResourcesView<'a> {
    pub cpu: NodeCpuView<'a>,
    pub memory: MemoryView,
    pub disk: DiskView,
    pub networks: &'a List<NetworkResource>,
    pub node_networks: Option<&'a [NodeNetwork]>,
    pub devices: Option<&'a [DeviceGroup]>,
    pub min_dynamic_port: i64,
    pub max_dynamic_port: i64,
    pub processors: ProcessorsView,
}

/// Processor shares and cores of a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeCpuView<'a> {
    pub cpu_shares: i64,
    pub total_cpu_cores: u16,
    pub reservable_cpu_cores: Option<&'a [u16]>,
}

#[derive(Debug, Serialize)]
pub struct MemoryView {
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
}

#[derive(Debug, Serialize)]
pub struct DiskView {
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
}

/// The processors one by one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ProcessorsView {
    pub topology: TopologyView,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TopologyView {
    pub cores: Option<Vec<CoreView>>,
    pub distances: Option<()>,
    pub nodes: [u8; 1],
    pub override_total_compute: i64,
    pub override_withold_compute: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CoreView {
    #[serde(rename = "ID")]
    pub id: u16,
    #[serde(rename = "NodeID")]
    pub node_id: u8,
    #[serde(rename = "SocketID")]
    pub socket_id: u8,
    pub grade: bool,
    pub disable: bool,
    pub base_speed: i64,
    pub max_speed: i64,
    pub guess_speed: i64,
}

/// What a node keeps for itself.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReservedView<'a> {
    pub cpu: ReservedCpuView<'a>,
    pub memory: MemoryView,
    pub disk: DiskView,
    pub networks: ReservedPortsView<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReservedCpuView<'a> {
    pub cpu_shares: i64,
    pub reserved_cpu_cores: Option<&'a [u16]>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReservedPortsView<'a> {
    pub reserved_host_ports: &'a str,
}

/// What a driver said of itself.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DriverView<'a> {
    pub attributes: Option<&'a Texts>,
    pub detected: bool,
    pub healthy: bool,
    pub health_description: &'a str,
    pub update_time: Time,
}

/// How a node is being drained.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DrainView {
    pub deadline: Nanos,
    pub force_deadline: Time,
    pub ignore_system_jobs: bool,
    pub started_at: Time,
}

/// The last drain of a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct LastDrainView<'a> {
    pub started_at: Time,
    pub updated_at: Time,
    pub status: &'a str,
    #[serde(rename = "AccessorID")]
    pub accessor_id: &'a str,
    pub meta: Option<&'a Texts>,
}

/// Something that happened to a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeEventView<'a> {
    pub message: &'a str,
    pub subsystem: &'a str,
    pub details: Option<&'a Texts>,
    pub timestamp: Time,
    pub create_index: u64,
}

fn some_rows<T>(rows: &[T]) -> Option<&[T]> {
    (!rows.is_empty()).then_some(rows)
}

fn driver(info: &DriverInfo) -> DriverView<'_> {
    DriverView {
        attributes: some_map(&info.attributes),
        detected: info.detected,
        healthy: info.healthy,
        health_description: &info.health_description,
        update_time: set_time(info.update_time),
    }
}

fn set_time(nanos: Nanos) -> Time {
    Time((nanos != 0).then_some(nanos))
}

fn drain(strategy: &DrainStrategy) -> DrainView {
    DrainView {
        deadline: strategy.deadline,
        force_deadline: Time(strategy.force_deadline),
        ignore_system_jobs: strategy.ignore_system_jobs,
        started_at: set_time(strategy.started_at),
    }
}

fn last_drain(last: &LastDrain) -> LastDrainView<'_> {
    LastDrainView {
        started_at: set_time(last.started_at),
        updated_at: set_time(last.updated_at),
        status: &last.status,
        accessor_id: &last.accessor_id,
        meta: some_map(&last.meta),
    }
}

/// An event of a node as the API shows it.
pub fn node_event(event: &NodeEvent) -> NodeEventView<'_> {
    NodeEventView {
        message: &event.message,
        subsystem: &event.subsystem,
        details: some_map(&event.details),
        timestamp: set_time(event.timestamp),
        create_index: event.create_index,
    }
}

/// What a node has, as the API shows it.
pub fn node_resources(node: &Node) -> NodeResourcesView<'_> {
    let r = &node.resources;
    let core = |id: u16| CoreView {
        id,
        node_id: 0,
        socket_id: 0,
        grade: true,
        disable: node.reserved.cores.contains(&id),
        base_speed: r.core_speed_mhz,
        max_speed: 0,
        guess_speed: 0,
    };
    let cores: Vec<CoreView> = (0..r.total_cores).map(core).collect();
    NodeResourcesView {
        cpu: NodeCpuView {
            cpu_shares: r.cpu_shares,
            total_cpu_cores: r.total_cores,
            reservable_cpu_cores: some_rows(&r.reservable_cores),
        },
        memory: MemoryView { memory_mb: r.memory_mb },
        disk: DiskView { disk_mb: r.disk_mb },
        networks: &r.networks,
        node_networks: some_rows(&r.node_networks),
        devices: some_rows(&r.devices),
        min_dynamic_port: r.min_dynamic_port,
        max_dynamic_port: r.max_dynamic_port,
        processors: ProcessorsView {
            topology: TopologyView {
                cores: (!cores.is_empty()).then_some(cores),
                distances: None,
                nodes: [0],
                override_total_compute: 0,
                override_withold_compute: 0,
            },
        },
    }
}

/// What a node keeps for itself, as the API shows it.
pub fn node_reserved(node: &Node) -> ReservedView<'_> {
    let r = &node.reserved;
    ReservedView {
        cpu: ReservedCpuView { cpu_shares: r.cpu_shares, reserved_cpu_cores: some_rows(&r.cores) },
        memory: MemoryView { memory_mb: r.memory_mb },
        disk: DiskView { disk_mb: r.disk_mb },
        networks: ReservedPortsView { reserved_host_ports: &r.ports },
    }
}

fn drivers(node: &Node) -> BTreeMap<&str, DriverView<'_>> {
    node.drivers.iter().map(|(name, info)| (name.as_str(), driver(info))).collect()
}

/// The whole of a node as the API shows it.
pub fn node(node: &Node) -> NodeView<'_> {
    let events: Vec<_> = node.events.iter().map(node_event).collect();
    NodeView {
        id: node.id,
        secret_id: "",
        name: &node.name,
        datacenter: &node.datacenter,
        node_pool: &node.node_pool,
        node_class: &node.node_class,
        computed_class: &node.computed_class,
        attributes: &node.attributes,
        meta: &node.meta,
        links: &node.links,
        node_resources: node_resources(node),
        reserved_resources: node_reserved(node),
        drivers: drivers(node),
        host_volumes: some_map(&node.host_volumes),
        host_networks: some_map(&node.host_networks),
        csi_controller_plugins: BTreeMap::new(),
        csi_node_plugins: BTreeMap::new(),
        http_addr: &node.http_addr,
        tls_enabled: node.tls_enabled,
        cgroup_parent: &node.cgroup_parent,
        node_max_allocs: node.node_max_allocs,
        gc_volumes_on_node_gc: false,
        identity_signing_key_id: "",
        status: node.status,
        status_description: &node.status_description,
        status_updated_at: node.status_updated_at,
        scheduling_eligibility: node.eligibility,
        drain: node.drain.is_some(),
        drain_strategy: node.drain.as_ref().map(drain),
        last_drain: node.last_drain.as_ref().map(last_drain),
        events: (!events.is_empty()).then_some(events),
        last_missed_heartbeat_index: node.last_missed_heartbeat_index,
        last_alloc_update_index: node.last_alloc_update_index,
        create_index: node.create_index,
        modify_index: node.modify_index,
    }
}

/// What a list of nodes shows beyond the plain stub.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeStubFields {
    /// `resources=true`.
    pub resources: bool,
    /// `os=true`.
    pub os: bool,
}

/// A node as lists show it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeStub<'a> {
    pub address: &'a str,
    #[serde(rename = "ID")]
    pub id: NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<BTreeMap<&'static str, &'a str>>,
    pub datacenter: &'a str,
    pub name: &'a str,
    pub node_pool: &'a str,
    pub node_class: &'a str,
    pub version: &'a str,
    pub drain: bool,
    pub scheduling_eligibility: Eligibility,
    pub status: NodeStatus,
    pub status_description: &'a str,
    pub drivers: BTreeMap<&'a str, DriverView<'a>>,
    pub host_volumes: Option<&'a BTreeMap<String, HostVolume>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_resources: Option<NodeResourcesView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_resources: Option<ReservedView<'a>>,
    pub last_drain: Option<LastDrainView<'a>>,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A node as lists show it. The address is the host part of the node's HTTP address, the version its attribute.
pub fn node_stub(node: &Node, fields: NodeStubFields) -> NodeStub<'_> {
    let attribute = |name: &str| node.attributes.get(name).map_or("", String::as_str);
    NodeStub {
        address: node.http_addr.rsplit_once(':').map_or(node.http_addr.as_str(), |(host, _)| host),
        id: node.id,
        attributes: fields.os.then(|| BTreeMap::from([("os.name", attribute("os.name"))])),
        datacenter: &node.datacenter,
        name: &node.name,
        node_pool: &node.node_pool,
        node_class: &node.node_class,
        version: attribute("nomad.version"),
        drain: node.drain.is_some(),
        scheduling_eligibility: node.eligibility,
        status: node.status,
        status_description: &node.status_description,
        drivers: drivers(node),
        host_volumes: some_map(&node.host_volumes),
        node_resources: fields.resources.then(|| node_resources(node)),
        reserved_resources: fields.resources.then(|| node_reserved(node)),
        last_drain: node.last_drain.as_ref().map(last_drain),
        create_index: node.create_index,
        modify_index: node.modify_index,
    }
}
