//! The computed class: equal for nodes that no constraint without `unique.` can tell apart.

use herdsman_model::Node;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Hash over what constraints can see of the node except what is unique to it.
pub fn computed_class(node: &Node) -> String {
    let mut hash = Sha256::new();
    let mut text = |tag: &str, value: &str| {
        for part in [tag, value] {
            hash.update(part.len().to_le_bytes());
            hash.update(part.as_bytes());
        }
    };
    text("datacenter", &node.datacenter);
    text("pool", &node.node_pool);
    text("class", &node.node_class);
    for (key, value) in shared(&node.attributes) {
        text(&format!("attr.{key}"), value);
    }
    for (key, value) in shared(&node.meta) {
        text(&format!("meta.{key}"), value);
    }
    for (name, driver) in &node.drivers {
        text(&format!("driver.{name}"), if driver.detected { "1" } else { "0" });
    }
    for (name, volume) in &node.host_volumes {
        text(&format!("volume.{name}"), if volume.read_only { "ro" } else { "rw" });
    }
    for group in &node.resources.devices {
        text("device", &format!("{}/{}/{}", group.vendor, group.kind, group.name));
        for (key, value) in group.attributes.iter() {
            text(&format!("device.{key}"), value);
        }
    }
    let digest = hash.finalize();
    let number = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    format!("v1:{number}")
}

/// Entries that are not unique to the node.
fn shared(map: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    map.iter().filter(|(key, _)| !key.starts_with("unique."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_properties_count() {
        let mut node = Node { datacenter: "dc1".into(), ..Node::default() };
        let first = computed_class(&node);
        node.attributes.insert("unique.hostname".into(), "a".into());
        assert_eq!(computed_class(&node), first);
        node.attributes.insert("kernel.name".into(), "linux".into());
        assert_ne!(computed_class(&node), first);
    }
}
