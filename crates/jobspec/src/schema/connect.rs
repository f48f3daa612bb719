//! The service mesh. Everything here is a promise to others, so the job is refused until it is kept.

use super::task::{IDENTITY, RESOURCES, VOLUME_MOUNT};
use super::{
    Form, Key, Kind, Many, Spec, Zero, boolean, duration_or_null, fixed, free, int, int_or_null, key, label, many, map,
    one, text, texts,
};

/// `connect { … }`
pub(super) static CONNECT: Spec = Spec {
    name: "ConsulConnect",
    keys: &[
        boolean("native", "Native", "the task speaks the mesh itself").refuses(),
        one("sidecar_service", "SidecarService", &SIDECAR_SERVICE, "the proxy as a service").refuses(),
        one("sidecar_task", "SidecarTask", &SIDECAR_TASK, "the proxy as a task").refuses(),
        one("gateway", "Gateway", &GATEWAY, "a gateway").refuses(),
    ],
};

static SIDECAR_SERVICE: Spec = Spec {
    name: "ConsulSidecarService",
    keys: &[
        texts("tags", "Tags", "its tags").refuses(),
        text("port", "Port", "its port").refuses(),
        one("proxy", "Proxy", &PROXY, "the proxy").refuses(),
        boolean("disable_default_tcp_check", "DisableDefaultTCPCheck", "no check of its own").refuses(),
        map("meta", "Meta", Form::Block, "names and texts").refuses(),
    ],
};

static PROXY: Spec = Spec {
    name: "ConsulProxy",
    keys: &[
        text("local_service_address", "LocalServiceAddress", "where the service is").refuses(),
        int("local_service_port", "LocalServicePort", "its port").refuses(),
        one("expose", "Expose", &EXPOSE, "paths that are open").refuses(),
        many("upstreams", "Upstreams", &UPSTREAM, "a service it talks to").refuses(),
        one("transparent_proxy", "TransparentProxy", &TRANSPARENT_PROXY, "all traffic through the proxy").refuses(),
        free("config", "Config", Form::Either, "content for the proxy").refuses(),
        fixed("ExposeConfig", Zero::Null),
    ],
};

static EXPOSE: Spec = Spec {
    name: "ConsulExposeConfig",
    keys: &[many("path", "Paths", &EXPOSE_PATH, "a path").refuses(), fixed("Path", Zero::Null)],
};

static EXPOSE_PATH: Spec = Spec {
    name: "ConsulExposePath",
    keys: &[
        text("path", "Path", "the path").refuses(),
        text("protocol", "Protocol", "http or http2").refuses(),
        int("local_path_port", "LocalPathPort", "the port of the service").refuses(),
        text("listener_port", "ListenerPort", "the port of the proxy").refuses(),
    ],
};

static UPSTREAM: Spec = Spec {
    name: "ConsulUpstream",
    keys: &[
        text("destination_name", "DestinationName", "its name").refuses(),
        text("destination_namespace", "DestinationNamespace", "its namespace").refuses(),
        text("destination_peer", "DestinationPeer", "its cluster").refuses(),
        text("destination_partition", "DestinationPartition", "its partition").refuses(),
        text("destination_type", "DestinationType", "its kind").refuses(),
        int("local_bind_port", "LocalBindPort", "the port it is reached by").refuses(),
        text("local_bind_address", "LocalBindAddress", "the address it is reached by").refuses(),
        text("local_bind_socket_path", "LocalBindSocketPath", "the socket it is reached by").refuses(),
        text("local_bind_socket_mode", "LocalBindSocketMode", "permissions of the socket").refuses(),
        text("datacenter", "Datacenter", "its datacenter").refuses(),
        one("mesh_gateway", "MeshGateway", &MESH_GATEWAY, "the way there").refuses(),
        free("config", "Config", Form::Either, "content for the proxy").refuses(),
    ],
};

static MESH_GATEWAY: Spec =
    Spec { name: "ConsulMeshGateway", keys: &[text("mode", "Mode", "local, remote or none").refuses()] };

static TRANSPARENT_PROXY: Spec = Spec {
    name: "ConsulTransparentProxy",
    keys: &[
        text("uid", "UID", "the user of the proxy").refuses(),
        key("outbound_port", "OutboundPort", Kind::Int(0, 65535), Zero::Int(0), "the port of the proxy").refuses(),
        texts("exclude_inbound_ports", "ExcludeInboundPorts", "ports that go past it").refuses(),
        key("exclude_outbound_ports", "ExcludeOutboundPorts", Kind::Ints, Zero::Null, "ports that go past it")
            .refuses(),
        texts("exclude_outbound_cidrs", "ExcludeOutboundCIDRs", "networks that go past it").refuses(),
        texts("exclude_uids", "ExcludeUIDs", "users that go past it").refuses(),
        boolean("no_dns", "NoDNS", "name resolution goes past it").refuses(),
    ],
};

static SIDECAR_TASK: Spec = Spec {
    name: "SidecarTask",
    keys: &[
        text("name", "Name", "the name").refuses(),
        text("driver", "Driver", "how it runs").refuses(),
        text("user", "User", "the user it runs as").refuses(),
        free("config", "Config", Form::Block, "what the driver needs").refuses(),
        map("env", "Env", Form::Either, "environment variables").refuses(),
        one("resources", "Resources", &RESOURCES, "what it needs").refuses(),
        map("meta", "Meta", Form::Either, "names and texts").refuses(),
        duration_or_null("kill_timeout", "KillTimeout", "time to end").refuses(),
        one("logs", "LogConfig", &SIDECAR_LOGS, "how its output is kept").refuses(),
        duration_or_null("shutdown_delay", "ShutdownDelay", "wait before the end").refuses(),
        text("kill_signal", "KillSignal", "the signal to end").refuses(),
        many("volume_mount", "VolumeMounts", &VOLUME_MOUNT, "where a volume is mounted").refuses(),
        many("identity", "Identities", &IDENTITY, "a signed identity").refuses(),
    ],
};

static SIDECAR_LOGS: Spec = Spec {
    name: "SidecarLogConfig",
    keys: &[
        int_or_null("max_files", "MaxFiles", "files kept").refuses(),
        int_or_null("max_file_size", "MaxFileSizeMB", "size of each in MB").refuses(),
        super::bool_or_null("disabled", "Disabled", "keep no output").refuses(),
        super::bool_or_null("enabled", "Enabled", "old, without effect").refuses(),
    ],
};

static GATEWAY: Spec = Spec {
    name: "ConsulGateway",
    keys: &[
        one("proxy", "Proxy", &GATEWAY_PROXY, "the proxy").refuses(),
        one("ingress", "Ingress", &INGRESS, "from outside").refuses(),
        one("terminating", "Terminating", &TERMINATING, "to outside").refuses(),
        one("mesh", "Mesh", &MESH, "between meshes").refuses(),
    ],
};

static MESH: Spec = Spec { name: "ConsulMeshConfigEntry", keys: &[] };

static GATEWAY_PROXY: Spec = Spec {
    name: "ConsulGatewayProxy",
    keys: &[
        duration_or_null("connect_timeout", "ConnectTimeout", "time to connect").refuses(),
        boolean("envoy_gateway_bind_tagged_addresses", "EnvoyGatewayBindTaggedAddresses", "see the proxy").refuses(),
        key(
            "envoy_gateway_bind_addresses",
            "EnvoyGatewayBindAddresses",
            Kind::Block(&BIND_ADDRESS, Many::Map),
            Zero::Null,
            "see the proxy",
        )
        .refuses(),
        boolean("envoy_gateway_no_default_bind", "EnvoyGatewayNoDefaultBind", "see the proxy").refuses(),
        text("envoy_dns_discovery_type", "EnvoyDNSDiscoveryType", "see the proxy").refuses(),
        free("config", "Config", Form::Either, "content for the proxy").refuses(),
    ],
};

static BIND_ADDRESS: Spec = Spec {
    name: "ConsulGatewayBindAddress",
    keys: &[
        label("Name", "its name"),
        text("address", "Address", "the address").refuses(),
        int("port", "Port", "the port").refuses(),
    ],
};

static INGRESS: Spec = Spec {
    name: "ConsulIngressConfigEntry",
    keys: &[
        one("tls", "TLS", &TLS, "encryption").refuses(),
        many("listener", "Listeners", &LISTENER, "a port that is open").refuses(),
    ],
};

static TLS: Spec = Spec {
    name: "ConsulGatewayTLSConfig",
    keys: &[
        boolean("enabled", "Enabled", "whether it is on").refuses(),
        text("tls_min_version", "TLSMinVersion", "oldest version").refuses(),
        text("tls_max_version", "TLSMaxVersion", "newest version").refuses(),
        texts("cipher_suites", "CipherSuites", "ciphers").refuses(),
        one("sds", "SDS", &SDS, "where certificates come from").refuses(),
    ],
};

static SDS: Spec = Spec {
    name: "ConsulGatewayTLSSDSConfig",
    keys: &[
        text("cluster_name", "ClusterName", "the cluster").refuses(),
        text("cert_resource", "CertResource", "the certificate").refuses(),
    ],
};

static LISTENER: Spec = Spec {
    name: "ConsulIngressListener",
    keys: &[
        int("port", "Port", "the port").refuses(),
        text("protocol", "Protocol", "tcp, http, http2 or grpc").refuses(),
        many("service", "Services", &INGRESS_SERVICE, "a service behind it").refuses(),
    ],
};

const fn limit(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Int(0, u32::MAX as i64), Zero::Null, doc).refuses()
}

static INGRESS_SERVICE: Spec = Spec {
    name: "ConsulIngressService",
    keys: &[
        text("name", "Name", "its name").refuses(),
        texts("hosts", "Hosts", "host names it answers to").refuses(),
        one("tls", "TLS", &TLS, "encryption").refuses(),
        one("request_headers", "RequestHeaders", &HEADERS, "changes to requests").refuses(),
        one("response_headers", "ResponseHeaders", &HEADERS, "changes to answers").refuses(),
        limit("max_connections", "MaxConnections", "most connections"),
        limit("max_pending_requests", "MaxPendingRequests", "most waiting requests"),
        limit("max_concurrent_requests", "MaxConcurrentRequests", "most requests at a time"),
    ],
};

static HEADERS: Spec = Spec {
    name: "ConsulHTTPHeaderModifiers",
    keys: &[
        map("add", "Add", Form::Block, "headers added").refuses(),
        map("set", "Set", Form::Block, "headers set").refuses(),
        texts("remove", "Remove", "headers removed").refuses(),
    ],
};

static TERMINATING: Spec = Spec {
    name: "ConsulTerminatingConfigEntry",
    keys: &[many("service", "Services", &LINKED_SERVICE, "a service outside").refuses()],
};

static LINKED_SERVICE: Spec = Spec {
    name: "ConsulLinkedService",
    keys: &[
        text("name", "Name", "its name").refuses(),
        text("ca_file", "CAFile", "its authority").refuses(),
        text("cert_file", "CertFile", "the certificate shown to it").refuses(),
        text("key_file", "KeyFile", "the key of that").refuses(),
        text("sni", "SNI", "the name asked for").refuses(),
    ],
};
