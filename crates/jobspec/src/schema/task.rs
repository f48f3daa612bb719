//! Tasks.

use super::group::{CONSUL, NETWORK, RESTART};
use super::job::{AFFINITY, CONSTRAINT, TASK_SCALING};
use super::service::SERVICE;
use super::{
    Form, Kind, Many, Spec, Zero, bool_or_null, boolean, duration, duration_or_null, free, int_or_null, key, label,
    many, map, one, ours, text, text_or_null, texts,
};

/// `task "name" { … }`
pub(super) static TASK: Spec = Spec {
    name: "Task",
    keys: &[
        label("Name", "the name, unique in the group"),
        text("driver", "Driver", "how it runs: exec, raw_exec, docker, …"),
        text("user", "User", "the user it runs as"),
        one("lifecycle", "Lifecycle", &LIFECYCLE, "when it runs, if it is not a main task"),
        free("config", "Config", Form::Block, "what the driver needs"),
        many("constraint", "Constraints", &CONSTRAINT, "what a node must be"),
        many("affinity", "Affinities", &AFFINITY, "what a node should be"),
        map("env", "Env", Form::Either, "environment variables"),
        many("service", "Services", &SERVICE, "a service to be found under a name"),
        one("resources", "Resources", &RESOURCES, "what it needs"),
        one("restart", "RestartPolicy", &RESTART, "when it starts again; what is left out is the group's"),
        map("meta", "Meta", Form::Either, "names and texts it sees as NOMAD_META_*"),
        duration_or_null("kill_timeout", "KillTimeout", "time between the signal to end and the kill"),
        text("kill_signal", "KillSignal", "the signal to end"),
        duration("shutdown_delay", "ShutdownDelay", "wait between leaving the services and the signal"),
        one("logs", "LogConfig", &LOGS, "how its output is kept"),
        many("artifact", "Artifacts", &ARTIFACT, "a file or archive fetched before it starts"),
        one("vault", "Vault", &VAULT, "access to secrets"),
        one("consul", "Consul", &CONSUL, "the service catalog"),
        many("template", "Templates", &TEMPLATE, "a file rendered from a template"),
        one("dispatch_payload", "DispatchPayload", &DISPATCH_PAYLOAD, "where the payload of a dispatch is written"),
        many("volume_mount", "VolumeMounts", &VOLUME_MOUNT, "where a volume of the group is mounted"),
        key("csi_plugin", "CSIPluginConfig", Kind::Block(&CSI_PLUGIN, Many::One), Zero::Omit, "it is a storage plugin"),
        boolean("leader", "Leader", "when it ends the others are stopped"),
        text("kind", "Kind", "set for tasks that are added by the server"),
        many("scaling", "ScalingPolicies", &TASK_SCALING, "bounds of its resources"),
        many("secret", "Secrets", &SECRET, "a secret read before it starts"),
        key(
            "identity",
            "Identities",
            Kind::Block(&IDENTITY, Many::List),
            Zero::Null,
            "a signed identity; the one without a name is the default",
        ),
        super::fixed("Identity", Zero::Null),
        many("action", "Actions", &ACTION, "a command people may run in it"),
        one("schedule", "Schedule", &SCHEDULE, "runs it at times only"),
        ours("max_run_duration", "MaxRunDuration", Kind::Duration, "longest run; killed then, and failed"),
    ],
};

static LIFECYCLE: Spec = Spec {
    name: "TaskLifecycle",
    keys: &[
        text("hook", "Hook", "prestart, poststart, poststop, or prestop").required(),
        boolean("sidecar", "Sidecar", "it runs along with the main tasks"),
        ours("when", "When", Kind::Text, "a poststop task runs always, on success or on failure"),
        ours("after", "After", Kind::Texts, "prestart tasks that must have succeeded before"),
        ours("wait_for", "WaitFor", Kind::Text, "healthy: main tasks wait for its checks"),
        ours("until", "Until", Kind::Text, "how long a sidecar lives: main or poststop"),
        ours("task", "Task", Kind::Text, "the task after which a poststop task runs"),
        ours("on_restart", "OnRestart", Kind::Bool, "also after each end that is followed by a restart"),
    ],
};

static LOGS: Spec = Spec {
    name: "LogConfig",
    keys: &[
        int_or_null("max_files", "MaxFiles", "files kept"),
        int_or_null("max_file_size", "MaxFileSizeMB", "size of each in MB"),
        bool_or_null("disabled", "Disabled", "keep no output"),
        bool_or_null("enabled", "Enabled", "old, without effect; use disabled"),
    ],
};

/// `resources { … }`
pub(super) static RESOURCES: Spec = Spec {
    name: "Resources",
    keys: &[
        int_or_null("cpu", "CPU", "MHz"),
        int_or_null("cores", "Cores", "whole cores of its own"),
        int_or_null("memory", "MemoryMB", "MB"),
        int_or_null("memory_max", "MemoryMaxMB", "most MB; -1 has no limit"),
        int_or_null("secrets", "SecretsMB", "size of the secrets directory in MB"),
        int_or_null("disk", "DiskMB", "must be 0"),
        int_or_null("iops", "IOPS", "deprecated, without effect"),
        many("network", "Networks", &NETWORK, "deprecated; use the network of the group"),
        many("device", "Devices", &DEVICE, "devices such as GPUs"),
        one("numa", "NUMA", &NUMA, "placement on memory nodes"),
        ours(
            "semaphore",
            "Semaphores",
            Kind::Block(&SEMAPHORE, Many::List),
            "at most so many at a time in the cluster",
        ),
    ],
};

static SEMAPHORE: Spec = Spec {
    name: "Semaphore",
    keys: &[
        text("name", "Name", "the name shared by all who hold it").required(),
        int_or_null("slots", "Slots", "how many there are"),
        int_or_null("consume", "Consume", "how many this task takes"),
        duration_or_null("lease_timeout", "LeaseTimeout", "how long a lost holder keeps it"),
    ],
};

static DEVICE: Spec = Spec {
    name: "RequestedDevice",
    keys: &[
        label("Name", "type, vendor/type or vendor/type/model"),
        int_or_null("count", "Count", "how many"),
        many("constraint", "Constraints", &CONSTRAINT, "what a device must be"),
        many("affinity", "Affinities", &AFFINITY, "what a device should be"),
    ],
};

static NUMA: Spec = Spec {
    name: "NUMAResource",
    keys: &[
        text("affinity", "Affinity", "none, prefer or require"),
        texts("devices", "Devices", "devices that should be near"),
    ],
};

static ARTIFACT: Spec = Spec {
    name: "TaskArtifact",
    keys: &[
        text_or_null("source", "GetterSource", "where it is"),
        map("options", "GetterOptions", Form::Block, "options of the download, such as checksum"),
        map("headers", "GetterHeaders", Form::Block, "headers of the request"),
        text_or_null("mode", "GetterMode", "any, file or dir"),
        bool_or_null("insecure", "GetterInsecure", "do not check certificates"),
        text_or_null("destination", "RelativeDest", "where it goes"),
        boolean("chown", "Chown", "give it to the user of the task"),
        ours("upload", "Upload", Kind::Bool, "send it away after the main tasks instead"),
        ours("when", "When", Kind::Text, "upload always, on success or on failure"),
    ],
};

static TEMPLATE: Spec = Spec {
    name: "Template",
    keys: &[
        text_or_null("source", "SourcePath", "the file of the template"),
        text_or_null("data", "EmbeddedTmpl", "the text of the template"),
        text_or_null("destination", "DestPath", "where the result goes"),
        key(
            "change_mode",
            "ChangeMode",
            Kind::Text,
            Zero::Text("restart"),
            "on a change: noop, restart, signal or script",
        )
        .nullable(),
        text_or_null("change_signal", "ChangeSignal", "the signal"),
        one("change_script", "ChangeScript", &CHANGE_SCRIPT, "the script"),
        bool_or_null("once", "Once", "render it once only"),
        key("splay", "Splay", Kind::Duration, Zero::Int(5_000_000_000), "longest random wait before the change acts")
            .nullable(),
        key("perms", "Perms", Kind::Text, Zero::Text("0644"), "permissions of the file").nullable(),
        int_or_null("uid", "Uid", "owner of the file"),
        int_or_null("gid", "Gid", "group of the file"),
        text_or_null("left_delimiter", "LeftDelim", "what opens an action"),
        text_or_null("right_delimiter", "RightDelim", "what closes an action"),
        bool_or_null("env", "Envvars", "the result holds environment variables"),
        key("error_on_missing_key", "ErrMissingKey", Kind::Bool, Zero::Bool(false), "fail on a missing key").nullable(),
        one("wait", "Wait", &WAIT, "how long changes are collected"),
        duration_or_null("vault_grace", "VaultGrace", "deprecated, without effect"),
    ],
};

static WAIT: Spec = Spec {
    name: "WaitConfig",
    keys: &[duration_or_null("min", "Min", "least"), duration_or_null("max", "Max", "most")],
};

static CHANGE_SCRIPT: Spec = Spec {
    name: "ChangeScript",
    keys: &[
        text_or_null("command", "Command", "the program"),
        key("args", "Args", Kind::Texts, Zero::EmptyList, "its arguments").nullable(),
        key("timeout", "Timeout", Kind::Duration, Zero::Int(5_000_000_000), "how long it may take").nullable(),
        key("fail_on_error", "FailOnError", Kind::Bool, Zero::Bool(false), "its failure fails the task").nullable(),
        key("run_on_first_render", "RunOnFirstRender", Kind::Bool, Zero::Bool(false), "also the first time").nullable(),
    ],
};

/// `vault { … }`
pub(super) static VAULT: Spec = Spec {
    name: "Vault",
    keys: &[
        texts("policies", "Policies", "policies of the token"),
        text("role", "Role", "role of the token"),
        text_or_null("namespace", "Namespace", "its namespace"),
        text("cluster", "Cluster", "which of several"),
        key("env", "Env", Kind::Bool, Zero::Bool(true), "the token as VAULT_TOKEN").nullable(),
        key("disable_file", "DisableFile", Kind::Bool, Zero::Bool(false), "no file with the token").nullable(),
        key("change_mode", "ChangeMode", Kind::Text, Zero::Text("restart"), "on a new token: noop, restart or signal")
            .nullable(),
        text_or_null("change_signal", "ChangeSignal", "the signal"),
        bool_or_null("allow_token_expiration", "AllowTokenExpiration", "do not renew"),
    ],
};

/// `identity { … }`
pub(super) static IDENTITY: Spec = Spec {
    name: "WorkloadIdentity",
    keys: &[
        text("name", "Name", "the name; none is the default identity"),
        texts("aud", "Audience", "who it is for"),
        text("change_mode", "ChangeMode", "on renewal: noop, restart or signal"),
        text("change_signal", "ChangeSignal", "the signal"),
        boolean("env", "Env", "as an environment variable"),
        boolean("file", "File", "as a file"),
        text("filepath", "Filepath", "where the file is"),
        text("service_name", "ServiceName", "the service it stands for"),
        duration("ttl", "TTL", "how long it is valid"),
        texts("extra_claims", "ExtraClaims", "further claims"),
    ],
};

/// `secret "name" { … }`
pub(super) static SECRET: Spec = Spec {
    name: "Secret",
    keys: &[
        label("Name", "the name, as in ${secret.<name>.<key>}"),
        text("provider", "Provider", "nomad, vault or a plugin"),
        text("path", "Path", "where it is"),
        free("config", "Config", Form::Block, "what the provider needs"),
        map("env", "Env", Form::Block, "environment of a plugin"),
    ],
};

static ACTION: Spec = Spec {
    name: "Action",
    keys: &[
        label("Name", "the name"),
        text("command", "Command", "the program").required(),
        texts("args", "Args", "its arguments"),
    ],
};

static SCHEDULE: Spec =
    Spec { name: "TaskSchedule", keys: &[one("cron", "Cron", &SCHEDULE_CRON, "when it starts and ends")] };

static SCHEDULE_CRON: Spec = Spec {
    name: "TaskScheduleCron",
    keys: &[
        text("start", "Start", "when it starts"),
        text("end", "End", "when it ends"),
        text("timezone", "Timezone", "the time zone"),
    ],
};

static DISPATCH_PAYLOAD: Spec =
    Spec { name: "DispatchPayloadConfig", keys: &[text("file", "File", "the file, in local/")] };

/// `volume_mount { … }`
pub(super) static VOLUME_MOUNT: Spec = Spec {
    name: "VolumeMount",
    keys: &[
        text_or_null("volume", "Volume", "the volume of the group"),
        text_or_null("destination", "Destination", "the path in the task"),
        bool_or_null("read_only", "ReadOnly", "it may not write"),
        text_or_null("propagation_mode", "PropagationMode", "private, host-to-task or bidirectional"),
        text_or_null("selinux_label", "SELinuxLabel", "z or Z"),
    ],
};

static CSI_PLUGIN: Spec = Spec {
    name: "TaskCSIPluginConfig",
    keys: &[
        text("id", "ID", "the name of the plugin"),
        text("type", "Type", "node, controller or monolith"),
        text("mount_dir", "MountDir", "where its socket is"),
        text("stage_publish_base_dir", "StagePublishBaseDir", "where volumes are staged"),
        duration("health_timeout", "HealthTimeout", "how long it may take to answer"),
    ],
};
