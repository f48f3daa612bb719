//! The part of the table of fields that describes the service mesh.

use super::schema::Default::{Filled, Int, NullIfEmpty, Own, Text as IsText};
use super::schema::Kind::{Block, BlockMap, Blocks, Flag, JsonMap, Ports, Text, TextMap, Texts};
use super::schema::{DURATION, INT64, Shape, UINT16, UINT32, opt, val};
use super::table::{LOG_CONFIG, RESOURCES, VOLUME_MOUNT, WORKLOAD_IDENTITY};

/// ConsulConnect.
pub static CONSUL_CONNECT: Shape = Shape {
    name: "ConsulConnect",
    fields: &[
        val("Native", "native", Flag, Own),
        opt("Gateway", "gateway", Block(&CONSUL_GATEWAY), Own),
        opt("SidecarService", "sidecar_service", Block(&CONSUL_SIDECAR_SERVICE), Own),
        opt("SidecarTask", "sidecar_task", Block(&SIDECAR_TASK), Own),
    ],
};

/// SidecarTask.
pub static SIDECAR_TASK: Shape = Shape {
    name: "SidecarTask",
    fields: &[
        val("Name", "name", Text, Own),
        val("Driver", "driver", Text, Own),
        val("User", "user", Text, Own),
        opt("Config", "config", JsonMap, NullIfEmpty),
        opt("Env", "env", TextMap, NullIfEmpty),
        opt("Resources", "resources", Block(&RESOURCES), Filled),
        opt("Meta", "meta", TextMap, NullIfEmpty),
        opt("KillTimeout", "kill_timeout", DURATION, Int(5000000000)),
        opt("LogConfig", "logs", Block(&LOG_CONFIG), Filled),
        opt("ShutdownDelay", "shutdown_delay", DURATION, Int(0)),
        val("KillSignal", "kill_signal", Text, Own),
        opt("VolumeMounts", "volume_mount", Blocks(&VOLUME_MOUNT), Own),
        opt("Identities", "identity", Blocks(&WORKLOAD_IDENTITY), Own),
    ],
};

/// ConsulSidecarService.
pub static CONSUL_SIDECAR_SERVICE: Shape = Shape {
    name: "ConsulSidecarService",
    fields: &[
        opt("Tags", "tags", Texts, NullIfEmpty),
        val("Port", "port", Text, Own),
        opt("Proxy", "proxy", Block(&CONSUL_PROXY), Own),
        val("DisableDefaultTCPCheck", "disable_default_tcp_check", Flag, Own),
        opt("Meta", "meta", TextMap, NullIfEmpty),
    ],
};

/// ConsulProxy.
pub static CONSUL_PROXY: Shape = Shape {
    name: "ConsulProxy",
    fields: &[
        val("LocalServiceAddress", "local_service_address", Text, Own),
        val("LocalServicePort", "local_service_port", INT64, Own),
        opt("Expose", "expose", Block(&CONSUL_EXPOSE_CONFIG), Own),
        opt("ExposeConfig", "", Block(&CONSUL_EXPOSE_CONFIG), Own),
        opt("Upstreams", "upstreams", Blocks(&CONSUL_UPSTREAM), NullIfEmpty),
        opt("TransparentProxy", "transparent_proxy", Block(&CONSUL_TRANSPARENT_PROXY), Own),
        opt("Config", "config", JsonMap, NullIfEmpty),
    ],
};

/// ConsulTransparentProxy.
pub static CONSUL_TRANSPARENT_PROXY: Shape = Shape {
    name: "ConsulTransparentProxy",
    fields: &[
        val("UID", "uid", Text, Own),
        val("OutboundPort", "outbound_port", UINT16, Own),
        opt("ExcludeInboundPorts", "exclude_inbound_ports", Texts, NullIfEmpty),
        opt("ExcludeOutboundPorts", "exclude_outbound_ports", Ports, NullIfEmpty),
        opt("ExcludeOutboundCIDRs", "exclude_outbound_cidrs", Texts, NullIfEmpty),
        opt("ExcludeUIDs", "exclude_uids", Texts, NullIfEmpty),
        val("NoDNS", "no_dns", Flag, Own),
    ],
};

/// ConsulUpstream.
pub static CONSUL_UPSTREAM: Shape = Shape {
    name: "ConsulUpstream",
    fields: &[
        val("DestinationName", "destination_name", Text, Own),
        val("DestinationNamespace", "destination_namespace", Text, Own),
        val("DestinationPeer", "destination_peer", Text, Own),
        val("DestinationPartition", "destination_partition", Text, Own),
        val("DestinationType", "destination_type", Text, Own),
        val("LocalBindPort", "local_bind_port", INT64, Own),
        val("Datacenter", "datacenter", Text, Own),
        val("LocalBindAddress", "local_bind_address", Text, Own),
        val("LocalBindSocketPath", "local_bind_socket_path", Text, Own),
        val("LocalBindSocketMode", "local_bind_socket_mode", Text, Own),
        opt("MeshGateway", "mesh_gateway", Block(&CONSUL_MESH_GATEWAY), Own),
        opt("Config", "config", JsonMap, NullIfEmpty),
    ],
};

/// ConsulMeshGateway.
pub static CONSUL_MESH_GATEWAY: Shape = Shape { name: "ConsulMeshGateway", fields: &[val("Mode", "mode", Text, Own)] };

/// ConsulExposeConfig.
pub static CONSUL_EXPOSE_CONFIG: Shape = Shape {
    name: "ConsulExposeConfig",
    fields: &[
        opt("Paths", "path", Blocks(&CONSUL_EXPOSE_PATH), NullIfEmpty),
        opt("Path", "", Blocks(&CONSUL_EXPOSE_PATH), NullIfEmpty),
    ],
};

/// ConsulExposePath.
pub static CONSUL_EXPOSE_PATH: Shape = Shape {
    name: "ConsulExposePath",
    fields: &[
        val("Path", "path", Text, Own),
        val("Protocol", "protocol", Text, Own),
        val("LocalPathPort", "local_path_port", INT64, Own),
        val("ListenerPort", "listener_port", Text, Own),
    ],
};

/// ConsulGateway.
pub static CONSUL_GATEWAY: Shape = Shape {
    name: "ConsulGateway",
    fields: &[
        opt("Proxy", "proxy", Block(&CONSUL_GATEWAY_PROXY), Own),
        opt("Ingress", "ingress", Block(&CONSUL_INGRESS_CONFIG_ENTRY), Own),
        opt("Terminating", "terminating", Block(&CONSUL_TERMINATING_CONFIG_ENTRY), Own),
        opt("Mesh", "mesh", Block(&CONSUL_MESH_CONFIG_ENTRY), Own),
    ],
};

/// ConsulMeshConfigEntry.
pub static CONSUL_MESH_CONFIG_ENTRY: Shape = Shape { name: "ConsulMeshConfigEntry", fields: &[] };

/// ConsulTerminatingConfigEntry.
pub static CONSUL_TERMINATING_CONFIG_ENTRY: Shape = Shape {
    name: "ConsulTerminatingConfigEntry",
    fields: &[opt("Services", "service", Blocks(&CONSUL_LINKED_SERVICE), NullIfEmpty)],
};

/// ConsulLinkedService.
pub static CONSUL_LINKED_SERVICE: Shape = Shape {
    name: "ConsulLinkedService",
    fields: &[
        val("Name", "name", Text, Own),
        val("CAFile", "ca_file", Text, Own),
        val("CertFile", "cert_file", Text, Own),
        val("KeyFile", "key_file", Text, Own),
        val("SNI", "sni", Text, Own),
    ],
};

/// ConsulIngressConfigEntry.
pub static CONSUL_INGRESS_CONFIG_ENTRY: Shape = Shape {
    name: "ConsulIngressConfigEntry",
    fields: &[
        opt("TLS", "tls", Block(&CONSUL_GATEWAY_TLSCONFIG), Own),
        opt("Listeners", "listener", Blocks(&CONSUL_INGRESS_LISTENER), NullIfEmpty),
    ],
};

/// ConsulIngressListener.
pub static CONSUL_INGRESS_LISTENER: Shape = Shape {
    name: "ConsulIngressListener",
    fields: &[
        val("Port", "port", INT64, Own),
        val("Protocol", "protocol", Text, IsText("tcp")),
        opt("Services", "service", Blocks(&CONSUL_INGRESS_SERVICE), NullIfEmpty),
    ],
};

/// ConsulIngressService.
pub static CONSUL_INGRESS_SERVICE: Shape = Shape {
    name: "ConsulIngressService",
    fields: &[
        val("Name", "name", Text, Own),
        opt("Hosts", "hosts", Texts, NullIfEmpty),
        opt("TLS", "tls", Block(&CONSUL_GATEWAY_TLSCONFIG), Own),
        opt("RequestHeaders", "request_headers", Block(&CONSUL_HTTPHEADER_MODIFIERS), Own),
        opt("ResponseHeaders", "response_headers", Block(&CONSUL_HTTPHEADER_MODIFIERS), Own),
        opt("MaxConnections", "max_connections", UINT32, Own),
        opt("MaxPendingRequests", "max_pending_requests", UINT32, Own),
        opt("MaxConcurrentRequests", "max_concurrent_requests", UINT32, Own),
    ],
};

/// ConsulHTTPHeaderModifiers.
pub static CONSUL_HTTPHEADER_MODIFIERS: Shape = Shape {
    name: "ConsulHTTPHeaderModifiers",
    fields: &[
        opt("Add", "add", TextMap, NullIfEmpty),
        opt("Set", "set", TextMap, NullIfEmpty),
        opt("Remove", "remove", Texts, NullIfEmpty),
    ],
};

/// ConsulGatewayTLSConfig.
pub static CONSUL_GATEWAY_TLSCONFIG: Shape = Shape {
    name: "ConsulGatewayTLSConfig",
    fields: &[
        val("Enabled", "enabled", Flag, Own),
        val("TLSMinVersion", "tls_min_version", Text, Own),
        val("TLSMaxVersion", "tls_max_version", Text, Own),
        opt("CipherSuites", "cipher_suites", Texts, Own),
        opt("SDS", "sds", Block(&CONSUL_GATEWAY_TLSSDSCONFIG), Own),
    ],
};

/// ConsulGatewayTLSSDSConfig.
pub static CONSUL_GATEWAY_TLSSDSCONFIG: Shape = Shape {
    name: "ConsulGatewayTLSSDSConfig",
    fields: &[val("ClusterName", "cluster_name", Text, Own), val("CertResource", "cert_resource", Text, Own)],
};

/// ConsulGatewayProxy.
pub static CONSUL_GATEWAY_PROXY: Shape = Shape {
    name: "ConsulGatewayProxy",
    fields: &[
        opt("ConnectTimeout", "connect_timeout", DURATION, Int(5000000000)),
        val("EnvoyGatewayBindTaggedAddresses", "envoy_gateway_bind_tagged_addresses", Flag, Own),
        opt(
            "EnvoyGatewayBindAddresses",
            "envoy_gateway_bind_addresses",
            BlockMap(&CONSUL_GATEWAY_BIND_ADDRESS),
            NullIfEmpty,
        ),
        val("EnvoyGatewayNoDefaultBind", "envoy_gateway_no_default_bind", Flag, Own),
        val("EnvoyDNSDiscoveryType", "envoy_dns_discovery_type", Text, Own),
        opt("Config", "config", JsonMap, NullIfEmpty),
    ],
};

/// ConsulGatewayBindAddress.
pub static CONSUL_GATEWAY_BIND_ADDRESS: Shape = Shape {
    name: "ConsulGatewayBindAddress",
    fields: &[val("Name", "name", Text, Own), val("Address", "address", Text, Own), val("Port", "port", INT64, Own)],
};
