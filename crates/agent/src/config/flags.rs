//! The flags of the agent, and the keys of the configuration they set. Source: `compat/cli.tsv`, row `agent`.

use herdsman_cli::flags::{Flag, Kind, Parsed};
use serde_json::{Map, Value, json};

/// One flag that sets one key.
struct KeyFlag {
    flag: Flag,
    /// Dotted path of the key.
    path: &'static str,
}

macro_rules! key_flags {
    ($($name:literal $kind:ident $value:literal => $path:literal),+ $(,)?) => {
        const KEY_FLAGS: &[KeyFlag] = &[$(KeyFlag {
            flag: Flag { name: $name, kind: Kind::$kind, value: $value, help: concat!("Sets ", $path, ".") },
            path: $path,
        }),+];

        /// All flags of the agent.
        pub const FLAGS: &[Flag] = &[
            DEV,
            CONFIG,
            SERVERS,
            META,
            $(Flag { name: $name, kind: Kind::$kind, value: $value, help: concat!("Sets ", $path, ".") }),+
        ];
    };
}

/// Flags that set no single key.
const DEV: Flag = Flag::switch(
    "dev",
    "Development mode: server and node in one process on 127.0.0.1, a temporary data directory that is removed at the end, raw_exec on.",
);
const CONFIG: Flag = Flag::texts(
    "config",
    "<path>",
    "A configuration file (HCL or JSON), or a folder of them; may be given several times, later ones win.",
);
const SERVERS: Flag =
    Flag::text("servers", "<addresses>", "Servers a node dials, separated by commas. Sets client.servers.");
const META: Flag =
    Flag::texts("meta", "<key=value>", "Metadata of the node; may be given several times. Adds to client.meta.");

key_flags! {
    "server" Bool "" => "server.enabled",
    "client" Bool "" => "client.enabled",
    "bootstrap-expect" Number "<n>" => "server.bootstrap_expect",
    "encrypt" Text "<key>" => "server.encrypt",
    "raft-protocol" Number "<n>" => "server.raft_protocol",
    "rejoin" Bool "" => "server.rejoin_after_leave",
    "join" Texts "<address>" => "server.server_join.start_join",
    "retry-join" Texts "<address>" => "server.server_join.retry_join",
    "retry-max" Number "<n>" => "server.server_join.retry_max",
    "retry-interval" Duration "<duration>" => "server.server_join.retry_interval",
    "state-dir" Text "<path>" => "client.state_dir",
    "alloc-dir" Text "<path>" => "client.alloc_dir",
    "alloc-mounts-dir" Text "<path>" => "client.alloc_mounts_dir",
    "host-volumes-dir" Text "<path>" => "client.host_volumes_dir",
    "host-volume-plugin-dir" Text "<path>" => "client.host_volume_plugin_dir",
    "node-class" Text "<class>" => "client.node_class",
    "node-pool" Text "<pool>" => "client.node_pool",
    "network-interface" Text "<name>" => "client.network_interface",
    "preferred-address-family" Text "<ipv4|ipv6>" => "client.preferred_address_family",
    "network-speed" Number "<mbit/s>" => "client.network_speed",
    "bind" Text "<address>" => "bind_addr",
    "region" Text "<region>" => "region",
    "data-dir" Text "<path>" => "data_dir",
    "plugin-dir" Text "<path>" => "plugin_dir",
    "dc" Text "<datacenter>" => "datacenter",
    "log-level" Text "<level>" => "log_level",
    "log-json" Bool "" => "log_json",
    "log-include-location" Bool "" => "log_include_location",
    "node" Text "<name>" => "name",
    "acl-enabled" Bool "" => "acl.enabled",
    "acl-replication-token" Text "<token>" => "acl.replication_token",
    "consul-address" Text "<address>" => "consul.address",
    "consul-auth" Text "<user:password>" => "consul.auth",
    "consul-token" Text "<token>" => "consul.token",
    "consul-ssl" Bool "" => "consul.ssl",
    "consul-verify-ssl" Bool "" => "consul.verify_ssl",
    "consul-ca-file" Text "<path>" => "consul.ca_file",
    "consul-cert-file" Text "<path>" => "consul.cert_file",
    "consul-key-file" Text "<path>" => "consul.key_file",
    "consul-auto-advertise" Bool "" => "consul.auto_advertise",
    "consul-checks-use-advertise" Bool "" => "consul.checks_use_advertise",
    "consul-client-auto-join" Bool "" => "consul.client_auto_join",
    "consul-client-service-name" Text "<name>" => "consul.client_service_name",
    "consul-client-http-check-name" Text "<name>" => "consul.client_http_check_name",
    "consul-client-failures-before-critical" Number "<n>" => "consul.client_failures_before_critical",
    "consul-client-failures-before-warning" Number "<n>" => "consul.client_failures_before_warning",
    "consul-server-auto-join" Bool "" => "consul.server_auto_join",
    "consul-server-service-name" Text "<name>" => "consul.server_service_name",
    "consul-server-http-check-name" Text "<name>" => "consul.server_http_check_name",
    "consul-server-serf-check-name" Text "<name>" => "consul.server_serf_check_name",
    "consul-server-rpc-check-name" Text "<name>" => "consul.server_rpc_check_name",
    "consul-server-failures-before-critical" Number "<n>" => "consul.server_failures_before_critical",
    "consul-server-failures-before-warning" Number "<n>" => "consul.server_failures_before_warning",
    "vault-enabled" Bool "" => "vault.enabled",
    "vault-address" Text "<url>" => "vault.address",
    "vault-namespace" Text "<namespace>" => "vault.namespace",
    "vault-create-from-role" Text "<role>" => "vault.create_from_role",
    "vault-ca-file" Text "<path>" => "vault.ca_file",
    "vault-ca-path" Text "<path>" => "vault.ca_path",
    "vault-cert-file" Text "<path>" => "vault.cert_file",
    "vault-key-file" Text "<path>" => "vault.key_file",
    "vault-tls-skip-verify" Bool "" => "vault.tls_skip_verify",
    "vault-tls-server-name" Text "<name>" => "vault.tls_server_name",
}

/// The configuration that the flags of a call set; it is laid over all files.
///
/// # Errors
/// A `-meta` that is no `key=value`.
pub fn tree(parsed: &Parsed) -> Result<Map<String, Value>, String> {
    let mut tree = Map::new();
    for key in KEY_FLAGS.iter().filter(|k| parsed.given(k.flag.name)) {
        let value = match key.flag.kind {
            Kind::Bool => json!(parsed.on(key.flag.name)),
            Kind::Number => json!(parsed.number(key.flag.name)),
            Kind::Texts => json!(parsed.texts(key.flag.name)),
            Kind::Text | Kind::Duration => json!(parsed.text(key.flag.name)),
        };
        set(&mut tree, key.path, value);
    }
    if let Some(servers) = parsed.text("servers") {
        let list: Vec<&str> = servers.split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
        set(&mut tree, "client.servers", json!(list));
    }
    for pair in parsed.texts("meta") {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(format!("-meta {pair:?}: it takes the form key=value"));
        };
        set(&mut tree, "client.meta", json!({ key: value }));
    }
    Ok(tree)
}

/// Sets the value at a dotted path, making the blocks on the way.
fn set(tree: &mut Map<String, Value>, path: &str, value: Value) {
    let nested = path.rsplit('.').fold(value, |inner, name| json!({ name: inner }));
    if let Value::Object(fields) = nested {
        crate::config::tree::merge(tree, fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tree;

    #[test]
    fn every_flag_sets_a_known_key() {
        for key in KEY_FLAGS {
            assert!(tree::lookup(key.path).is_some(), "{}", key.path);
        }
    }

    #[test]
    fn flags_make_a_tree() {
        let words: Vec<String> = ["-server", "-dc=dc2", "-meta", "a=b", "-meta", "c=d=e", "-servers", "x:1, y"]
            .iter()
            .map(ToString::to_string)
            .collect();
        let parsed = herdsman_cli::flags::parse(FLAGS, &words).unwrap();
        assert_eq!(
            Value::Object(super::tree(&parsed).unwrap()),
            json!({
                "server": {"enabled": true},
                "datacenter": "dc2",
                "client": {"servers": ["x:1", "y"], "meta": {"a": "b", "c": "d=e"}},
            })
        );
    }
}
