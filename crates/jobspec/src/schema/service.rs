//! Services and their checks.

use super::connect::CONNECT;
use super::task::IDENTITY;
use super::{Form, Kind, Spec, Zero, boolean, duration, int, key, many, map, one, text, texts};

/// `service { … }`
pub(super) static SERVICE: Spec = Spec {
    name: "Service",
    keys: &[
        text("name", "Name", "the name"),
        texts("tags", "Tags", "tags"),
        texts("canary_tags", "CanaryTags", "tags of a canary, instead"),
        boolean("enable_tag_override", "EnableTagOverride", "others may change the tags"),
        text("port", "PortLabel", "the label of a port, or a number"),
        text("address_mode", "AddressMode", "which address: auto, host, driver, alloc"),
        text("address", "Address", "an address of its own"),
        many("check", "Checks", &CHECK, "a check of its health"),
        one("check_restart", "CheckRestart", &CHECK_RESTART, "restarts the task when checks fail"),
        one("connect", "Connect", &CONNECT, "the service mesh"),
        map("meta", "Meta", Form::Block, "names and texts"),
        map("canary_meta", "CanaryMeta", Form::Block, "names and texts of a canary, instead"),
        map("tagged_addresses", "TaggedAddresses", Form::Block, "further addresses by name"),
        text("task", "TaskName", "the task it is about"),
        text("on_update", "OnUpdate", "what checks count for in a deployment"),
        one("identity", "Identity", &IDENTITY, "an identity for the catalog"),
        one("weights", "Weights", &WEIGHTS, "its share of the requests"),
        text("provider", "Provider", "nomad or consul"),
        text("cluster", "Cluster", "which of several catalogs"),
        text("kind", "Kind", "the kind in the catalog"),
    ],
};

static WEIGHTS: Spec = Spec {
    name: "ServiceWeights",
    keys: &[int("passing", "Passing", "while its checks pass"), int("warning", "Warning", "while they warn")],
};

static CHECK_RESTART: Spec = Spec {
    name: "CheckRestart",
    keys: &[
        int("limit", "Limit", "failures in a row; 0 is off"),
        key("grace", "Grace", Kind::Duration, Zero::Null, "wait after a start"),
        boolean("ignore_warnings", "IgnoreWarnings", "a warning is no failure"),
    ],
};

static CHECK: Spec = Spec {
    name: "ServiceCheck",
    keys: &[
        text("name", "Name", "the name"),
        text("type", "Type", "http, tcp, grpc or script"),
        text("command", "Command", "the program of a script check"),
        texts("args", "Args", "its arguments"),
        text("path", "Path", "the path of a request"),
        text("protocol", "Protocol", "http or https"),
        text("port", "PortLabel", "the port, if it is not the service's"),
        boolean("expose", "Expose", "through the mesh's proxy"),
        text("address_mode", "AddressMode", "which address"),
        text("advertise", "Advertise", "without effect"),
        duration("interval", "Interval", "time between two"),
        duration("timeout", "Timeout", "how long an answer may take"),
        text("initial_status", "InitialStatus", "what counts before the first"),
        text("notes", "Notes", "a text for people"),
        text("tls_server_name", "TLSServerName", "the name in the certificate"),
        boolean("tls_skip_verify", "TLSSkipVerify", "do not check certificates"),
        key("header", "Header", Kind::TextsMap, Zero::Null, "headers of a request"),
        text("method", "Method", "the method of a request"),
        text("body", "Body", "the body of a request"),
        one("check_restart", "CheckRestart", &CHECK_RESTART, "restarts the task when it fails"),
        text("grpc_service", "GRPCService", "the service asked"),
        boolean("grpc_use_tls", "GRPCUseTLS", "with TLS"),
        text("task", "TaskName", "the task a script runs in"),
        int("success_before_passing", "SuccessBeforePassing", "successes before it passes"),
        int("failures_before_critical", "FailuresBeforeCritical", "failures before it is critical"),
        int("failures_before_warning", "FailuresBeforeWarning", "failures before it warns"),
        text("on_update", "OnUpdate", "what it counts for in a deployment"),
    ],
};
