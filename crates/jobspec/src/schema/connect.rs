//! The service mesh.

use super::task::{IDENTITY, RESOURCES, VOLUME_MOUNT};
use super::{
    Form, Key, Kind, Many, Spec, Zero, boolean, duration_or_null, fixed, free, int, int_or_null, key, label, many, map,
    one, text, texts,
};

/// `connect { … }`
pub(super) static CONNECT: Spec = Spec {
    name: "ConsulConnect",
    keys: &[
        boolean("native", "Native", "the task speaks the mesh itself"),
        one("sidecar_service", "SidecarService", &SIDECAR_SERVICE, "the proxy as a service"),
        one("sidecar_task", "SidecarTask", &SIDECAR_TASK, "the proxy as a task"),
        one("gateway", "Gateway", &GATEWAY, "a gateway"),
    ],
};

static SIDECAR_SERVICE: Spec = Spec {
    name: "ConsulSidecarService",
    keys: &[
        texts("tags", "Tags", "its tags"),
        text("port", "Port", "its port"),
        one("proxy", "Proxy", &PROXY, "the proxy"),
        boolean("disable_default_tcp_check", "DisableDefaultTCPCheck", "no check of its own"),
        map("meta", "Meta", Form::Block, "names and texts"),
    ],
};

static PROXY: Spec = Spec {
    name: "ConsulProxy",
    keys: &[
        text("local_service_address", "LocalServiceAddress", "where the service is"),
        int("local_service_port", "LocalServicePort", "its port"),
        one("expose", "Expose", &EXPOSE, "paths that are open"),
        many("upstreams", "Upstreams", &UPSTREAM, "a service it talks to"),
        one("transparent_proxy", "TransparentProxy", &TRANSPARENT_PROXY, "all traffic through the proxy"),
        free("config", "Config", Form::Either, "content for the proxy"),
        fixed("ExposeConfig", Zero::Null),
    ],
};

static EXPOSE: Spec = Spec {
    name: "ConsulExposeConfig",
    keys: &[many("path", "Paths", &EXPOSE_PATH, "a path"), fixed("Path", Zero::Null)],
};

static EXPOSE_PATH: Spec = Spec {
    name: "ConsulExposePath",
    keys: &[
        text("path", "Path", "the path"),
        text("protocol", "Protocol", "http or http2"),
        int("local_path_port", "LocalPathPort", "the port of the service"),
        text("listener_port", "ListenerPort", "the port of the proxy"),
    ],
};

static UPSTREAM: Spec = Spec {
    name: "ConsulUpstream",
    keys: &[
        text("destination_name", "DestinationName", "its name"),
        text("destination_namespace", "DestinationNamespace", "its namespace"),
        text("destination_peer", "DestinationPeer", "its cluster"),
        text("destination_partition", "DestinationPartition", "its partition"),
        text("destination_type", "DestinationType", "its kind"),
        int("local_bind_port", "LocalBindPort", "the port it is reached by"),
        text("local_bind_address", "LocalBindAddress", "the address it is reached by"),
        text("local_bind_socket_path", "LocalBindSocketPath", "the socket it is reached by"),
        text("local_bind_socket_mode", "LocalBindSocketMode", "permissions of the socket"),
        text("datacenter", "Datacenter", "its datacenter"),
        one("mesh_gateway", "MeshGateway", &MESH_GATEWAY, "the way there"),
        free("config", "Config", Form::Either, "content for the proxy"),
    ],
};

static MESH_GATEWAY: Spec = Spec { name: "ConsulMeshGateway", keys: &[text("mode", "Mode", "local, remote or none")] };

static TRANSPARENT_PROXY: Spec = Spec {
    name: "ConsulTransparentProxy",
    keys: &[
        text("uid", "UID", "the user of the proxy"),
        key("outbound_port", "OutboundPort", Kind::Int(0, 65535), Zero::Int(0), "the port of the proxy"),
        texts("exclude_inbound_ports", "ExcludeInboundPorts", "ports that go past it"),
        key("exclude_outbound_ports", "ExcludeOutboundPorts", Kind::Ints, Zero::Null, "ports that go past it"),
        texts("exclude_outbound_cidrs", "ExcludeOutboundCIDRs", "networks that go past it"),
        texts("exclude_uids", "ExcludeUIDs", "users that go past it"),
        boolean("no_dns", "NoDNS", "name resolution goes past it"),
    ],
};

static SIDECAR_TASK: Spec = Spec {
    name: "SidecarTask",
    keys: &[
        text("name", "Name", "the name"),
        text("driver", "Driver", "how it runs"),
        text("user", "User", "the user it runs as"),
        free("config", "Config", Form::Block, "what the driver needs"),
        map("env", "Env", Form::Either, "environment variables"),
        one("resources", "Resources", &RESOURCES, "what it needs"),
        map("meta", "Meta", Form::Either, "names and texts"),
        duration_or_null("kill_timeout", "KillTimeout", "time to end"),
        one("logs", "LogConfig", &SIDECAR_LOGS, "how its output is kept"),
        duration_or_null("shutdown_delay", "ShutdownDelay", "wait before the end"),
        text("kill_signal", "KillSignal", "the signal to end"),
        many("volume_mount", "VolumeMounts", &VOLUME_MOUNT, "where a volume is mounted"),
        many("identity", "Identities", &IDENTITY, "a signed identity"),
    ],
};

static SIDECAR_LOGS: Spec = Spec {
    name: "SidecarLogConfig",
    keys: &[
        int_or_null("max_files", "MaxFiles", "files kept"),
        int_or_null("max_file_size", "MaxFileSizeMB", "size of each in MB"),
        super::bool_or_null("disabled", "Disabled", "keep no output"),
        super::bool_or_null("enabled", "Enabled", "old, without effect"),
    ],
};

static GATEWAY: Spec = Spec {
    name: "ConsulGateway",
    keys: &[
        one("proxy", "Proxy", &GATEWAY_PROXY, "the proxy"),
        one("ingress", "Ingress", &INGRESS, "from outside"),
        one("terminating", "Terminating", &TERMINATING, "to outside"),
        one("mesh", "Mesh", &MESH, "between meshes"),
    ],
};

static MESH: Spec = Spec { name: "ConsulMeshConfigEntry", keys: &[] };

static GATEWAY_PROXY: Spec = Spec {
    name: "ConsulGatewayProxy",
    keys: &[
        duration_or_null("connect_timeout", "ConnectTimeout", "time to connect"),
        boolean("envoy_gateway_bind_tagged_addresses", "EnvoyGatewayBindTaggedAddresses", "see the proxy"),
        key(
            "envoy_gateway_bind_addresses",
            "EnvoyGatewayBindAddresses",
            Kind::Block(&BIND_ADDRESS, Many::Map),
            Zero::Null,
            "see the proxy",
        ),
        boolean("envoy_gateway_no_default_bind", "EnvoyGatewayNoDefaultBind", "see the proxy"),
        text("envoy_dns_discovery_type", "EnvoyDNSDiscoveryType", "see the proxy"),
        free("config", "Config", Form::Either, "content for the proxy"),
    ],
};

static BIND_ADDRESS: Spec = Spec {
    name: "ConsulGatewayBindAddress",
    keys: &[label("Name", "its name"), text("address", "Address", "the address"), int("port", "Port", "the port")],
};

static INGRESS: Spec = Spec {
    name: "ConsulIngressConfigEntry",
    keys: &[one("tls", "TLS", &TLS, "encryption"), many("listener", "Listeners", &LISTENER, "a port that is open")],
};

static TLS: Spec = Spec {
    name: "ConsulGatewayTLSConfig",
    keys: &[
        boolean("enabled", "Enabled", "whether it is on"),
        text("tls_min_version", "TLSMinVersion", "oldest version"),
        text("tls_max_version", "TLSMaxVersion", "newest version"),
        texts("cipher_suites", "CipherSuites", "ciphers"),
        one("sds", "SDS", &SDS, "where certificates come from"),
    ],
};

static SDS: Spec = Spec {
    name: "ConsulGatewayTLSSDSConfig",
    keys: &[
        text("cluster_name", "ClusterName", "the cluster"),
        text("cert_resource", "CertResource", "the certificate"),
    ],
};

static LISTENER: Spec = Spec {
    name: "ConsulIngressListener",
    keys: &[
        int("port", "Port", "the port"),
        text("protocol", "Protocol", "tcp, http, http2 or grpc"),
        many("service", "Services", &INGRESS_SERVICE, "a service behind it"),
    ],
};

const fn limit(hcl: &'static str, json: &'static str, doc: &'static str) -> Key {
    key(hcl, json, Kind::Int(0, u32::MAX as i64), Zero::Null, doc)
}

static INGRESS_SERVICE: Spec = Spec {
    name: "ConsulIngressService",
    keys: &[
        text("name", "Name", "its name"),
        texts("hosts", "Hosts", "host names it answers to"),
        one("tls", "TLS", &TLS, "encryption"),
        one("request_headers", "RequestHeaders", &HEADERS, "changes to requests"),
        one("response_headers", "ResponseHeaders", &HEADERS, "changes to answers"),
        limit("max_connections", "MaxConnections", "most connections"),
        limit("max_pending_requests", "MaxPendingRequests", "most waiting requests"),
        limit("max_concurrent_requests", "MaxConcurrentRequests", "most requests at a time"),
    ],
};

static HEADERS: Spec = Spec {
    name: "ConsulHTTPHeaderModifiers",
    keys: &[
        map("add", "Add", Form::Block, "headers added"),
        map("set", "Set", Form::Block, "headers set"),
        texts("remove", "Remove", "headers removed"),
    ],
};

static TERMINATING: Spec = Spec {
    name: "ConsulTerminatingConfigEntry",
    keys: &[many("service", "Services", &LINKED_SERVICE, "a service outside")],
};

static LINKED_SERVICE: Spec = Spec {
    name: "ConsulLinkedService",
    keys: &[
        text("name", "Name", "its name"),
        text("ca_file", "CAFile", "its authority"),
        text("cert_file", "CertFile", "the certificate shown to it"),
        text("key_file", "KeyFile", "the key of that"),
        text("sni", "SNI", "the name asked for"),
    ],
};
