//! Which nodes may take a group at all: constraints, drivers, devices, networks and volumes.

use crate::ask::host_address;
use herdsman_expr::constraint::{Cache, Constraint, Target, check, distinct_count, distinct_hosts_enabled, is_unique};
use herdsman_expr::interpolate::{Lookup, interpolate};
use herdsman_model as model;
use herdsman_model::{DeviceGroup, Job, Node, RequestedDevice, TaskGroup};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The network mode of a group that names none.
const DEFAULT_NETWORK_MODE: &str = "host";

/// What constraints can see of a node, by key.
pub(crate) struct NodeKeys<'n>(pub(crate) &'n Node);

impl Lookup for NodeKeys<'_> {
    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        let node = self.0;
        let text = match key {
            "node.unique.id" => return Some(Cow::Owned(node.id.to_string())),
            "node.datacenter" => node.datacenter.as_str(),
            "node.unique.name" => &node.name,
            "node.class" => node.node_class.as_str(),
            "node.pool" => node.node_pool.as_str(),
            _ => {
                return if let Some(name) = key.strip_prefix("attr.") {
                    node.attributes.get(name).map(|v| Cow::Borrowed(v.as_str()))
                } else {
                    node.meta.get(key.strip_prefix("meta.")?).map(|v| Cow::Borrowed(v.as_str()))
                };
            }
        };
        Some(Cow::Borrowed(text))
    }
}

/// What device constraints can see of a device group.
struct DeviceKeys<'d>(&'d DeviceGroup);

impl Lookup for DeviceKeys<'_> {
    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        let group = self.0;
        Some(Cow::Borrowed(match key {
            "device.vendor" => group.vendor.as_str(),
            "device.type" => group.kind.as_str(),
            "device.model" => group.name.as_str(),
            "device.ids" => {
                let ids: Vec<&str> = group.instances.iter().map(|i| i.id.as_str()).collect();
                return Some(Cow::Owned(ids.join(",")));
            }
            _ => group.attributes.get(key.strip_prefix("device.attr.")?)?.as_str(),
        }))
    }
}

/// One condition on a node's attributes, compiled where its right side is a literal.
#[derive(Debug)]
pub(crate) struct Condition {
    left: String,
    operator: String,
    right: String,
    compiled: Option<Constraint>,
    /// The right side differs from node to node.
    right_is_reference: bool,
    pub(crate) text: String,
}

impl Condition {
    pub(crate) fn new(left: &str, operator: &str, right: &str) -> Condition {
        let right_is_reference = !matches!(Target::parse(right), Target::Literal(_));
        let compiled = if right_is_reference { None } else { Constraint::compile(operator, right).ok() };
        let text = format!("{left} {operator} {right}").trim().to_owned();
        let (left, operator, right) = (left.to_owned(), operator.to_owned(), right.to_owned());
        Condition { left, operator, right, compiled, right_is_reference, text }
    }

    pub(crate) fn holds(&self, node: &Node, cache: &mut Cache) -> bool {
        let keys = NodeKeys(node);
        let left = Target::parse(&self.left).resolve(&keys);
        if self.right_is_reference {
            let right = Target::parse(&self.right).resolve(&keys);
            return check(&self.operator, left.as_deref(), right.as_deref(), cache);
        }
        self.compiled.as_ref().is_some_and(|c| c.matches(left.as_deref()))
    }

    /// Holds or not by what is unique to a node.
    fn unique(&self) -> bool {
        is_unique(&self.left) || is_unique(&self.right)
    }
}

/// At most so many allocations per value of an attribute.
#[derive(Debug, Clone)]
pub(crate) struct DistinctProperty {
    pub(crate) attribute: String,
    pub(crate) allowed: u64,
}

impl DistinctProperty {
    pub(crate) fn value<'n>(&self, keys: &'n NodeKeys<'n>) -> Option<Cow<'n, str>>
    where
        Self: 'n,
    {
        match Target::parse(&self.attribute) {
            Target::Node(key) => keys.get(key).map(|v| Cow::Owned(v.into_owned())),
            _ => None,
        }
    }
}

/// A list of constraints, sorted by kind.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) list: Vec<Condition>,
    pub(crate) distinct_hosts: bool,
    pub(crate) distinct_properties: Vec<DistinctProperty>,
    /// Some condition looks at what is unique to a node.
    pub(crate) escaped: bool,
}

impl Conditions {
    fn add(&mut self, constraints: &[model::Constraint]) {
        for c in constraints {
            match c.operand.as_str() {
                "distinct_hosts" => self.distinct_hosts |= distinct_hosts_enabled(&c.r_target),
                "distinct_property" => self.distinct_properties.push(DistinctProperty {
                    attribute: c.l_target.clone(),
                    allowed: distinct_count(&c.r_target).unwrap_or(1),
                }),
                _ => {
                    let condition = Condition::new(&c.l_target, &c.operand, &c.r_target);
                    self.escaped |= condition.unique();
                    self.list.push(condition);
                }
            }
        }
    }

    /// The constraints of the job itself.
    pub(crate) fn of_job(job: &Job) -> Conditions {
        let mut all = Conditions::default();
        all.add(&job.constraints);
        all
    }

    /// The constraints of a group and of its tasks.
    pub(crate) fn of_group(group: &TaskGroup) -> Conditions {
        let mut all = Conditions::default();
        all.add(&group.constraints);
        group.tasks.iter().for_each(|t| all.add(&t.constraints));
        all
    }

    /// The first condition the node does not meet.
    pub(crate) fn refused(&self, node: &Node, cache: &mut Cache) -> Option<&str> {
        self.list.iter().find(|c| !c.holds(node, cache)).map(|c| c.text.as_str())
    }
}

/// Everything a node must have for a group, whatever its load.
#[derive(Debug)]
pub(crate) struct GroupRules {
    drivers: BTreeSet<String>,
    pub(crate) conditions: Conditions,
    providers: BTreeSet<String>,
    group: std::sync::Arc<TaskGroup>,
}

impl GroupRules {
    pub(crate) fn of(group: &std::sync::Arc<TaskGroup>) -> GroupRules {
        GroupRules {
            drivers: group.tasks.iter().map(|t| t.driver.clone()).collect(),
            conditions: Conditions::of_group(group),
            providers: group.tasks.iter().flat_map(|t| t.secrets.iter()).map(|s| s.provider.clone()).collect(),
            group: std::sync::Arc::clone(group),
        }
    }

    /// Why nodes of this kind cannot take the group; equal for nodes of one computed class.
    pub(crate) fn refused(&self, node: &Node, cache: &mut Cache) -> Option<Cow<'_, str>> {
        if !self.drivers.iter().all(|d| has_driver(node, d)) {
            return Some(Cow::Borrowed("missing drivers"));
        }
        if let Some(text) = self.conditions.refused(node, cache) {
            return Some(Cow::Borrowed(text));
        }
        if !self.has_devices(node) {
            return Some(Cow::Borrowed("missing devices"));
        }
        if !has_networks(node, &self.group) {
            return Some(Cow::Borrowed("missing network"));
        }
        let provided = |p: &String| node.attributes.contains_key(&format!("plugins.secrets.{p}.version"));
        if !self.providers.iter().all(provided) {
            return Some(Cow::Borrowed("missing secrets provider"));
        }
        None
    }

    /// Why this one node cannot take the group's allocation of this index, by what differs within a class.
    pub(crate) fn unavailable(&self, node: &Node, index: u64) -> Option<&'static str> {
        for request in self.group.volumes.values() {
            if request.kind == "csi" {
                return Some("missing CSI plugins");
            }
            let found = if request.per_alloc {
                node.host_volumes.get(&format!("{}[{index}]", request.source))
            } else {
                node.host_volumes.get(&request.source)
            };
            match found {
                Some(volume) if !request.sticky && (request.read_only || !volume.read_only) => {}
                _ => return Some("missing compatible host volumes"),
            }
        }
        None
    }

    fn has_devices(&self, node: &Node) -> bool {
        self.group.tasks.iter().flat_map(|t| t.resources.devices.iter()).all(|request| {
            node.resources.devices.iter().any(|group| {
                let healthy = group.instances.iter().filter(|i| i.healthy).count();
                device_matches(group, request) && u64::try_from(healthy).is_ok_and(|h| h >= request.count)
            })
        })
    }
}

/// A driver that the node reports healthy; a node that reports none at all is asked by attribute.
fn has_driver(node: &Node, driver: &str) -> bool {
    if let Some(info) = node.drivers.get(driver) {
        return info.detected && info.healthy;
    }
    let attribute = node.attributes.get(&format!("driver.{driver}"));
    attribute.is_some_and(|v| matches!(v.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

fn has_networks(node: &Node, group: &TaskGroup) -> bool {
    group.networks.iter().all(|network| {
        let mode = if network.mode.is_empty() { DEFAULT_NETWORK_MODE } else { &network.mode };
        let offers = |m: &str| m == mode || (m.is_empty() && mode == DEFAULT_NETWORK_MODE);
        let has_mode = mode == "none"
            || node.resources.node_networks.iter().any(|n| offers(&n.mode))
            || node.resources.networks.iter().any(|n| offers(&n.mode));
        let mut ports = network.reserved_ports.iter().chain(network.dynamic_ports.iter());
        has_mode
            && ports.all(|port| {
                let name = interpolate(&port.host_network, &NodeKeys(node));
                host_address(node, &name).is_some()
            })
    })
}

/// Whether a device group is of the kind asked for: `type`, `vendor/type` or `vendor/type/model`, and meets the
/// constraints.
pub(crate) fn device_matches(group: &DeviceGroup, request: &RequestedDevice) -> bool {
    let parts: Vec<&str> = request.name.splitn(3, '/').collect();
    let named = match parts.as_slice() {
        [kind] => *kind == group.kind,
        [vendor, kind] => *vendor == group.vendor && *kind == group.kind,
        [vendor, kind, name] => *vendor == group.vendor && *kind == group.kind && *name == group.name,
        _ => false,
    };
    named && request.constraints.iter().all(|c| device_holds(group, &c.l_target, &c.operand, &c.r_target))
}

fn device_holds(group: &DeviceGroup, left: &str, operator: &str, right: &str) -> bool {
    let keys = DeviceKeys(group);
    let resolve = |side: &str| match Target::parse(side) {
        Target::Literal(text) => Some(text.to_owned()),
        Target::Device(key) => keys.get(key).map(Cow::into_owned),
        Target::Node(_) | Target::Unknown(_) => None,
    };
    let (left, right) = (resolve(left), resolve(right));
    if left.is_none() && right.is_none() {
        return false;
    }
    check(operator, left.as_deref(), right.as_deref(), &mut Cache::default())
}

/// Sum of the weights of the matching device affinities, and of all; none when the request has no affinity.
pub(crate) fn device_score(group: &DeviceGroup, request: &RequestedDevice) -> Option<(f64, f64)> {
    if request.affinities.is_empty() {
        return None;
    }
    let (mut matched, mut total) = (0.0, 0.0);
    for affinity in &request.affinities {
        total += weight(affinity.weight.saturating_abs());
        if device_holds(group, &affinity.l_target, &affinity.operand, &affinity.r_target) {
            matched += weight(affinity.weight);
        }
    }
    Some((matched, total))
}

/// Weights are at most 100, so they are exact as floats.
pub(crate) fn weight(value: i64) -> f64 {
    i32::try_from(value).map_or(0.0, f64::from)
}
