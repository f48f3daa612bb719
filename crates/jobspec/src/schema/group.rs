//! Groups: policies, network, volumes.

use super::job::{AFFINITY, CONSTRAINT, SCALING, SPREAD};
use super::service::SERVICE;
use super::task::{SECRET, TASK, VAULT};
use super::{
    Form, Kind, Many, Spec, Zero, bool_or_null, boolean, duration_or_null, int, int_or_null, key, label, many, map,
    one, text, text_or_null, texts,
};

/// `group "name" { … }`
pub(super) static GROUP: Spec = Spec {
    name: "TaskGroup",
    keys: &[
        label("Name", "the name, unique in the job"),
        int_or_null("count", "Count", "how many allocations run"),
        many("task", "Tasks", &TASK, "what runs"),
        many("constraint", "Constraints", &CONSTRAINT, "what a node must be"),
        many("affinity", "Affinities", &AFFINITY, "what a node should be"),
        many("spread", "Spreads", &SPREAD, "what allocations are spread over"),
        key("volume", "Volumes", Kind::Block(&VOLUME, Many::Map), Zero::Null, "a volume tasks may mount"),
        one("restart", "RestartPolicy", &RESTART, "when a failed task starts again on its node"),
        one("disconnect", "Disconnect", &DISCONNECT, "what a lost connection to the node means"),
        one("reschedule", "ReschedulePolicy", &RESCHEDULE, "when a failed allocation moves to another node"),
        one("ephemeral_disk", "EphemeralDisk", &EPHEMERAL_DISK, "the disk tasks share"),
        one("update", "Update", &UPDATE, "how a new version is rolled out"),
        one("migrate", "Migrate", &MIGRATE, "how allocations leave a draining node"),
        many("network", "Networks", &NETWORK, "the network and its ports"),
        map("meta", "Meta", Form::Either, "names and texts that tasks see as NOMAD_META_*"),
        many("service", "Services", &SERVICE, "a service to be found under a name"),
        one("vault", "", &VAULT, "access to secrets, for tasks that have no vault block"),
        many("secret", "", &SECRET, "secrets of every task"),
        duration_or_null("shutdown_delay", "ShutdownDelay", "wait between leaving the services and the first kill"),
        duration_or_null("max_run_duration", "MaxRunDuration", "longest life of an allocation of a batch job"),
        duration_or_null("stop_after_client_disconnect", "StopAfterClientDisconnect", "without effect; use disconnect"),
        duration_or_null("max_client_disconnect", "MaxClientDisconnect", "without effect; use disconnect"),
        bool_or_null("prevent_reschedule_on_lost", "PreventRescheduleOnLost", "without effect; use disconnect"),
        one("scaling", "Scaling", &SCALING, "bounds of the count, and a policy for the autoscaler"),
        one("consul", "Consul", &CONSUL, "the service catalog"),
    ],
};

/// `consul { … }`
pub(super) static CONSUL: Spec = Spec {
    name: "Consul",
    keys: &[
        text("namespace", "Namespace", "its namespace"),
        text("cluster", "Cluster", "which of several"),
        text("partition", "Partition", "its partition"),
    ],
};

/// `update { … }`
pub(super) static UPDATE: Spec = Spec {
    name: "UpdateStrategy",
    keys: &[
        duration_or_null("stagger", "Stagger", "pause between nodes of a system job"),
        int_or_null("max_parallel", "MaxParallel", "how many change at a time; 0 changes all without a deployment"),
        text_or_null("health_check", "HealthCheck", "checks, task_states or manual"),
        duration_or_null("min_healthy_time", "MinHealthyTime", "how long it must be healthy"),
        duration_or_null("healthy_deadline", "HealthyDeadline", "how long it may take to get healthy"),
        duration_or_null("progress_deadline", "ProgressDeadline", "longest time without progress"),
        bool_or_null("auto_revert", "AutoRevert", "go back to the last good version on failure"),
        bool_or_null("auto_promote", "AutoPromote", "promote canaries once they are healthy"),
        int_or_null("canary", "Canary", "allocations of the new version beside the old one"),
    ],
};

/// `reschedule { … }`
pub(super) static RESCHEDULE: Spec = Spec {
    name: "ReschedulePolicy",
    keys: &[
        int_or_null("attempts", "Attempts", "how often in the interval"),
        duration_or_null("interval", "Interval", "the interval"),
        duration_or_null("delay", "Delay", "wait before the first"),
        text_or_null("delay_function", "DelayFunction", "constant, exponential or fibonacci"),
        duration_or_null("max_delay", "MaxDelay", "longest wait"),
        bool_or_null("unlimited", "Unlimited", "without a number of attempts"),
    ],
};

/// `migrate { … }`
pub(super) static MIGRATE: Spec = Spec {
    name: "MigrateStrategy",
    keys: &[
        int_or_null("max_parallel", "MaxParallel", "how many move at a time"),
        text_or_null("health_check", "HealthCheck", "checks or task_states"),
        duration_or_null("min_healthy_time", "MinHealthyTime", "how long the new one must be healthy"),
        duration_or_null("healthy_deadline", "HealthyDeadline", "how long it may take to get healthy"),
    ],
};

/// `restart { … }`
pub(super) static RESTART: Spec = Spec {
    name: "RestartPolicy",
    keys: &[
        int_or_null("attempts", "Attempts", "how often in the interval"),
        duration_or_null("interval", "Interval", "the interval"),
        duration_or_null("delay", "Delay", "wait before a restart"),
        text_or_null("mode", "Mode", "after the last attempt: fail, or delay until the interval ends"),
        bool_or_null("render_templates", "RenderTemplates", "render templates again"),
    ],
};

static DISCONNECT: Spec = Spec {
    name: "DisconnectStrategy",
    keys: &[
        duration_or_null("lost_after", "LostAfter", "how long an unreachable allocation is kept as unknown"),
        duration_or_null("stop_on_client_after", "StopOnClientAfter", "when the node stops it by itself"),
        bool_or_null("replace", "Replace", "whether a replacement runs meanwhile"),
        text_or_null("reconcile", "Reconcile", "which one stays after the return"),
    ],
};

static EPHEMERAL_DISK: Spec = Spec {
    name: "EphemeralDisk",
    keys: &[
        bool_or_null("sticky", "Sticky", "an update stays on the node, with its data"),
        bool_or_null("migrate", "Migrate", "data follows to another node"),
        int_or_null("size", "SizeMB", "size in MB"),
    ],
};

/// `network { … }`
pub(super) static NETWORK: Spec = Spec {
    name: "NetworkResource",
    keys: &[
        text("mode", "Mode", "host, bridge, none or cni/<name>"),
        text("device", "Device", "without effect"),
        text("cidr", "CIDR", "without effect"),
        text("ip", "IP", "without effect"),
        text("hostname", "Hostname", "the host name inside"),
        int_or_null("mbits", "MBits", "deprecated, without effect"),
        many("port", "DynamicPorts", &PORT, "a port; with static it goes to ReservedPorts"),
        many("reserved_ports", "ReservedPorts", &RESERVED_PORT, "a static port, in the old form"),
        one("dns", "DNS", &DNS, "name resolution inside"),
        one("cni", "CNI", &CNI, "arguments for the plugin"),
    ],
};

static PORT: Spec = Spec {
    name: "Port",
    keys: &[
        label("Label", "the name, as in NOMAD_PORT_<name>"),
        int("static", "Value", "the port of the node; 0 or none takes a free one"),
        int("to", "To", "the port inside; -1 is the same as outside"),
        text("host_network", "HostNetwork", "the network of the node"),
        boolean("ignore_collision", "IgnoreCollision", "several allocations may have it"),
    ],
};

static RESERVED_PORT: Spec = Spec {
    name: "ReservedPort",
    keys: &[
        key("", "Label", Kind::Label, Zero::Text(""), "the name"),
        int("static", "Value", "the port of the node"),
        int("to", "To", "the port inside"),
        text("host_network", "HostNetwork", "the network of the node"),
        boolean("ignore_collision", "IgnoreCollision", "several allocations may have it"),
    ],
};

static DNS: Spec = Spec {
    name: "DNSConfig",
    keys: &[
        texts("servers", "Servers", "addresses of servers"),
        texts("searches", "Searches", "domains tried for short names"),
        texts("options", "Options", "options of the resolver"),
    ],
};

static CNI: Spec =
    Spec { name: "CNIConfig", keys: &[map("args", "Args", Form::Either, "names and texts for the plugin")] };

static VOLUME: Spec = Spec {
    name: "VolumeRequest",
    keys: &[
        label("Name", "the name tasks mount it by"),
        text("type", "Type", "host or csi"),
        text("source", "Source", "the volume of the node or of the plugin"),
        boolean("read_only", "ReadOnly", "nobody may write"),
        boolean("sticky", "Sticky", "stay with the volume that was used first"),
        text("access_mode", "AccessMode", "who may read and write"),
        text("attachment_mode", "AttachmentMode", "file-system or block-device"),
        one("mount_options", "MountOptions", &MOUNT_OPTIONS, "how a CSI volume is mounted"),
        boolean("per_alloc", "PerAlloc", "a volume for each allocation: source[index]"),
    ],
};

static MOUNT_OPTIONS: Spec = Spec {
    name: "CSIMountOptions",
    keys: &[text("fs_type", "FSType", "the file system"), texts("mount_flags", "MountFlags", "flags of the mount")],
};
