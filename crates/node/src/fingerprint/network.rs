//! Addresses that ports are offered on.

use super::read;
use crate::config::NodeConfig;
use herdsman_model::{List, NetworkResource, NodeAddress, NodeNetwork, NodeResources};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Speed reported for an interface that does not tell, megabits per second.
const FALLBACK_SPEED: i64 = 1000;
/// Name of the host network that every node has.
const DEFAULT_NETWORK: &str = "default";

pub(super) fn fingerprint(
    config: &NodeConfig,
    attributes: &mut BTreeMap<String, String>,
    resources: &mut NodeResources,
) {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let device = chosen_device(config, &interfaces);
    let mut networks: BTreeMap<String, NodeNetwork> = BTreeMap::new();
    for interface in &interfaces {
        let ip = interface.ip();
        let aliases = aliases(config, &device, &interface.name, ip);
        if aliases.is_empty() {
            continue;
        }
        let network = networks.entry(interface.name.clone()).or_insert_with(|| NodeNetwork {
            mode: "host".into(),
            device: interface.name.clone(),
            mac_address: read(&format!("/sys/class/net/{}/address", interface.name)),
            speed: speed(&interface.name),
            addresses: List::default(),
        });
        for (alias, reserved_ports) in aliases {
            let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
            network.addresses.push(NodeAddress {
                family: family.into(),
                alias,
                address: ip.to_string(),
                gateway: String::new(),
                reserved_ports,
            });
        }
    }
    let addresses = interfaces.iter().filter(|i| i.name == device).map(|i| i.ip());
    let mut addresses: Vec<_> = addresses.filter(|ip| !is_link_local(*ip)).collect();
    addresses.sort_by_key(|ip| !ip.is_ipv4());
    for ip in &addresses {
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        resources.networks.push(NetworkResource {
            mode: "host".into(),
            device: device.clone(),
            ip: ip.to_string(),
            cidr: format!("{ip}/{bits}"),
            mbits: speed(&device),
            ..NetworkResource::default()
        });
    }
    if let Some(ip) = addresses.first() {
        attributes.insert("unique.network.ip-address".into(), ip.to_string());
    }
    resources.node_networks = networks.into_values().collect();
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// The interface that was set, or that of the default route, or loopback.
fn chosen_device(config: &NodeConfig, interfaces: &[if_addrs::Interface]) -> String {
    if !config.network_interface.is_empty() {
        return config.network_interface.clone();
    }
    let routes = read("/proc/net/route");
    let default = routes.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let (device, destination) = (words.next()?, words.next()?);
        (destination == "00000000").then(|| device.to_string())
    });
    let usable = |name: &String| interfaces.iter().any(|i| i.name == *name && i.ip().is_ipv4());
    let other = || interfaces.iter().find(|i| !i.is_loopback() && i.ip().is_ipv4()).map(|i| i.name.clone());
    default.filter(usable).or_else(other).unwrap_or_else(|| "lo".into())
}

/// The host networks that an address belongs to, with the ports reserved there.
fn aliases(config: &NodeConfig, device: &str, name: &str, ip: IpAddr) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if name == device && !is_link_local(ip) {
        found.push((DEFAULT_NETWORK.to_string(), String::new()));
    }
    for (alias, network) in &config.host_networks {
        let by_interface = network.interface.is_empty() || network.interface == name;
        let by_cidr = network.cidr.is_empty() || contains(&network.cidr, ip);
        let named = !network.interface.is_empty() || !network.cidr.is_empty();
        if named && by_interface && by_cidr {
            found.push((alias.clone(), network.reserved_ports.clone()));
        }
    }
    found
}

/// Whether a network in CIDR form holds an address.
fn contains(cidr: &str, ip: IpAddr) -> bool {
    let Some((network, bits)) = cidr.split_once('/') else { return false };
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            network.to_bits() & mask == ip.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            network.to_bits() & mask == ip.to_bits() & mask
        }
        _ => false,
    }
}

fn speed(device: &str) -> i64 {
    let path = format!("/sys/class/net/{device}/speed");
    read(&path).parse().ok().filter(|mbits: &i64| *mbits > 0).unwrap_or(FALLBACK_SPEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidr_membership() {
        for (cidr, ip, inside) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("0.0.0.0/0", "9.9.9.9", true),
            ("192.168.1.7/32", "192.168.1.7", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "10.0.0.1", false),
            ("10.0.0.0/99", "10.0.0.1", false),
            ("nonsense", "10.0.0.1", false),
        ] {
            assert_eq!(contains(cidr, ip.parse().unwrap()), inside, "{cidr} {ip}");
        }
    }
}
