//! The one table of what a job is made of in its submitted form: per block the wire name of each field, its key in job files,
//! its kind, whether it may be absent (null on the wire), and its default in the canonical form.
//!
//! Generic code in this module reads it: reading JSON, filling in defaults, telling which keys exist.

use super::schema::Default::{
    AsIs, AtLeastOne, EmptyList, EmptyMap, Filled, Flag as IsFlag, Int, NotNegative, NullIfEmpty, Own, Text as IsText,
};
use super::schema::Kind::{Block, BlockMap, Blocks, Bytes, Flag, JsonMap, Text, TextMap, Texts, TextsMap};
use super::schema::{DURATION, INT8, INT64, Shape, UINT8, UINT64, omit_empty, opt, val};
use super::table_mesh::CONSUL_CONNECT;

/// Job.
pub static JOB: Shape = Shape {
    name: "Job",
    fields: &[
        opt("Region", "region", Text, IsText("global")),
        opt("Namespace", "namespace", Text, IsText("default")),
        opt("ID", "id", Text, IsText("")),
        opt("Name", "name", Text, Own),
        opt("Type", "type", Text, IsText("service")),
        opt("Priority", "priority", INT64, Int(50)),
        opt("AllAtOnce", "all_at_once", Flag, IsFlag(false)),
        opt("Datacenters", "datacenters", Texts, Own),
        opt("NodePool", "node_pool", Text, IsText("")),
        opt("Constraints", "constraint", Blocks(&CONSTRAINT), Own),
        opt("Affinities", "affinity", Blocks(&AFFINITY), Own),
        opt("TaskGroups", "group", Blocks(&TASK_GROUP), Own),
        opt("Update", "update", Block(&UPDATE_STRATEGY), Own),
        opt("Multiregion", "multiregion", Block(&MULTIREGION), Own),
        opt("Spreads", "spread", Blocks(&SPREAD), Own),
        opt("Periodic", "periodic", Block(&PERIODIC_CONFIG), Own),
        opt("ParameterizedJob", "parameterized", Block(&PARAMETERIZED_JOB_CONFIG), Own),
        opt("Reschedule", "reschedule", Block(&RESCHEDULE_POLICY), AsIs),
        opt("Migrate", "migrate", Block(&MIGRATE_STRATEGY), AsIs),
        opt("Meta", "meta", TextMap, Own),
        opt("UI", "ui", Block(&JOB_UI), Own),
        opt("Stop", "", Flag, IsFlag(false)),
        opt("ParentID", "", Text, IsText("")),
        val("Dispatched", "", Flag, Own),
        opt("DispatchIdempotencyToken", "", Text, Own),
        opt("Payload", "", Bytes, Own),
        opt("ConsulNamespace", "", Text, IsText("")),
        opt("VaultNamespace", "", Text, IsText("")),
        opt("NomadTokenID", "", Text, IsText("")),
        opt("Status", "", Text, IsText("")),
        opt("StatusDescription", "", Text, IsText("")),
        opt("Stable", "", Flag, IsFlag(false)),
        opt("Version", "", UINT64, Int(0)),
        opt("SubmitTime", "", INT64, Own),
        opt("CreateIndex", "", UINT64, Int(0)),
        opt("ModifyIndex", "", UINT64, Int(0)),
        opt("JobModifyIndex", "", UINT64, Int(0)),
        opt("VersionTag", "", Block(&JOB_VERSION_TAG), Own),
    ],
};

/// JobVersionTag.
pub static JOB_VERSION_TAG: Shape = Shape {
    name: "JobVersionTag",
    fields: &[val("Name", "", Text, Own), val("Description", "", Text, Own), val("TaggedTime", "", INT64, Own)],
};

/// JobUIConfig.
pub static JOB_UI: Shape = Shape {
    name: "JobUIConfig",
    fields: &[val("Description", "description", Text, Own), opt("Links", "link", Blocks(&JOB_LINK), NullIfEmpty)],
};

/// JobUILink.
pub static JOB_LINK: Shape =
    Shape { name: "JobUILink", fields: &[val("Label", "label", Text, Own), val("URL", "url", Text, Own)] };

/// ParameterizedJobConfig.
pub static PARAMETERIZED_JOB_CONFIG: Shape = Shape {
    name: "ParameterizedJobConfig",
    fields: &[
        val("Payload", "payload", Text, Own),
        opt("MetaRequired", "meta_required", Texts, Own),
        opt("MetaOptional", "meta_optional", Texts, Own),
    ],
};

/// PeriodicConfig.
pub static PERIODIC_CONFIG: Shape = Shape {
    name: "PeriodicConfig",
    fields: &[
        opt("Enabled", "enabled", Flag, IsFlag(true)),
        opt("Spec", "cron", Text, IsText("")),
        opt("Specs", "crons", Texts, EmptyList),
        opt("SpecType", "", Text, IsText("cron")),
        opt("ProhibitOverlap", "prohibit_overlap", Flag, IsFlag(false)),
        opt("TimeZone", "time_zone", Text, IsText("UTC")),
    ],
};

/// Multiregion.
pub static MULTIREGION: Shape = Shape {
    name: "Multiregion",
    fields: &[
        opt("Strategy", "strategy", Block(&MULTIREGION_STRATEGY), Filled),
        opt("Regions", "region", Blocks(&MULTIREGION_REGION), EmptyList),
    ],
};

/// MultiregionRegion.
pub static MULTIREGION_REGION: Shape = Shape {
    name: "MultiregionRegion",
    fields: &[
        val("Name", "name", Text, Own),
        opt("Count", "count", INT64, Int(1)),
        opt("Datacenters", "datacenters", Texts, EmptyList),
        val("NodePool", "node_pool", Text, Own),
        opt("Meta", "meta", TextMap, EmptyMap),
    ],
};

/// MultiregionStrategy.
pub static MULTIREGION_STRATEGY: Shape = Shape {
    name: "MultiregionStrategy",
    fields: &[opt("MaxParallel", "max_parallel", INT64, Int(0)), opt("OnFailure", "on_failure", Text, IsText(""))],
};

/// TaskGroup.
pub static TASK_GROUP: Shape = Shape {
    name: "TaskGroup",
    fields: &[
        opt("Name", "name", Text, IsText("")),
        opt("Count", "count", INT64, Own),
        opt("Constraints", "constraint", Blocks(&CONSTRAINT), Own),
        opt("Affinities", "affinity", Blocks(&AFFINITY), Own),
        opt("Tasks", "task", Blocks(&TASK), Own),
        opt("Spreads", "spread", Blocks(&SPREAD), Own),
        opt("Volumes", "volume", BlockMap(&VOLUME_REQUEST), Own),
        opt("RestartPolicy", "restart", Block(&RESTART_POLICY), Own),
        opt("Disconnect", "disconnect", Block(&DISCONNECT_STRATEGY), Own),
        opt("ReschedulePolicy", "reschedule", Block(&RESCHEDULE_POLICY), Own),
        opt("EphemeralDisk", "ephemeral_disk", Block(&EPHEMERAL_DISK), Filled),
        opt("Update", "update", Block(&UPDATE_STRATEGY), Own),
        opt("Migrate", "migrate", Block(&MIGRATE_STRATEGY), Own),
        opt("Networks", "network", Blocks(&NETWORK_RESOURCE), Own),
        opt("Meta", "meta", TextMap, Own),
        opt("Services", "service", Blocks(&SERVICE), Own),
        opt("ShutdownDelay", "shutdown_delay", DURATION, Own),
        opt("MaxRunDuration", "max_run_duration", DURATION, Own),
        opt("StopAfterClientDisconnect", "stop_after_client_disconnect", DURATION, Own),
        opt("MaxClientDisconnect", "max_client_disconnect", DURATION, Own),
        opt("Scaling", "scaling", Block(&SCALING_POLICY), Own),
        opt("Consul", "consul", Block(&CONSUL), Own),
        opt("PreventRescheduleOnLost", "prevent_reschedule_on_lost", Flag, Own),
    ],
};

/// MigrateStrategy.
pub static MIGRATE_STRATEGY: Shape = Shape {
    name: "MigrateStrategy",
    fields: &[
        opt("MaxParallel", "max_parallel", INT64, Int(1)),
        opt("HealthCheck", "health_check", Text, IsText("checks")),
        opt("MinHealthyTime", "min_healthy_time", DURATION, Int(10000000000)),
        opt("HealthyDeadline", "healthy_deadline", DURATION, Int(300000000000)),
    ],
};

/// UpdateStrategy.
pub static UPDATE_STRATEGY: Shape = Shape {
    name: "UpdateStrategy",
    fields: &[
        opt("Stagger", "stagger", DURATION, Int(30000000000)),
        opt("MaxParallel", "max_parallel", INT64, Int(1)),
        opt("HealthCheck", "health_check", Text, IsText("checks")),
        opt("MinHealthyTime", "min_healthy_time", DURATION, Int(10000000000)),
        opt("HealthyDeadline", "healthy_deadline", DURATION, Int(300000000000)),
        opt("ProgressDeadline", "progress_deadline", DURATION, Int(600000000000)),
        opt("Canary", "canary", INT64, Int(0)),
        opt("AutoRevert", "auto_revert", Flag, IsFlag(false)),
        opt("AutoPromote", "auto_promote", Flag, IsFlag(false)),
    ],
};

/// EphemeralDisk.
pub static EPHEMERAL_DISK: Shape = Shape {
    name: "EphemeralDisk",
    fields: &[
        opt("Sticky", "sticky", Flag, IsFlag(false)),
        opt("Migrate", "migrate", Flag, IsFlag(false)),
        opt("SizeMB", "size", INT64, Int(300)),
    ],
};

/// ReschedulePolicy.
pub static RESCHEDULE_POLICY: Shape = Shape {
    name: "ReschedulePolicy",
    fields: &[
        opt("Attempts", "attempts", INT64, Own),
        opt("Interval", "interval", DURATION, Own),
        opt("Delay", "delay", DURATION, Own),
        opt("DelayFunction", "delay_function", Text, Own),
        opt("MaxDelay", "max_delay", DURATION, Own),
        opt("Unlimited", "unlimited", Flag, Own),
    ],
};

/// DisconnectStrategy.
pub static DISCONNECT_STRATEGY: Shape = Shape {
    name: "DisconnectStrategy",
    fields: &[
        opt("LostAfter", "lost_after", DURATION, Own),
        opt("StopOnClientAfter", "stop_on_client_after", DURATION, Own),
        opt("Replace", "replace", Flag, IsFlag(true)),
        opt("Reconcile", "reconcile", Text, IsText("best_score")),
    ],
};

/// VolumeRequest.
pub static VOLUME_REQUEST: Shape = Shape {
    name: "VolumeRequest",
    fields: &[
        val("Name", "name", Text, Own),
        val("Type", "type", Text, Own),
        val("Source", "source", Text, Own),
        val("ReadOnly", "read_only", Flag, Own),
        val("Sticky", "sticky", Flag, Own),
        val("AccessMode", "access_mode", Text, Own),
        val("AttachmentMode", "attachment_mode", Text, Own),
        opt("MountOptions", "mount_options", Block(&CSIMOUNT_OPTIONS), Own),
        val("PerAlloc", "per_alloc", Flag, Own),
    ],
};

/// CSIMountOptions.
pub static CSIMOUNT_OPTIONS: Shape = Shape {
    name: "CSIMountOptions",
    fields: &[val("FSType", "fs_type", Text, Own), opt("MountFlags", "mount_flags", Texts, Own)],
};

/// Spread.
pub static SPREAD: Shape = Shape {
    name: "Spread",
    fields: &[
        val("Attribute", "attribute", Text, Own),
        opt("Weight", "weight", INT8, Int(50)),
        opt("SpreadTarget", "target", Blocks(&SPREAD_TARGET), Own),
    ],
};

/// SpreadTarget.
pub static SPREAD_TARGET: Shape =
    Shape { name: "SpreadTarget", fields: &[val("Value", "value", Text, Own), val("Percent", "percent", UINT8, Own)] };

/// Task.
pub static TASK: Shape = Shape {
    name: "Task",
    fields: &[
        val("Name", "name", Text, Own),
        val("Driver", "driver", Text, Own),
        val("User", "user", Text, Own),
        opt("Lifecycle", "lifecycle", Block(&TASK_LIFECYCLE), Own),
        opt("Config", "config", JsonMap, Own),
        opt("Constraints", "constraint", Blocks(&CONSTRAINT), Own),
        opt("Affinities", "affinity", Blocks(&AFFINITY), Own),
        opt("Env", "env", TextMap, Own),
        opt("Services", "service", Blocks(&SERVICE), Own),
        opt("Resources", "resources", Block(&RESOURCES), Filled),
        opt("RestartPolicy", "restart", Block(&RESTART_POLICY), Own),
        opt("Meta", "meta", TextMap, Own),
        opt("KillTimeout", "kill_timeout", DURATION, Int(5000000000)),
        opt("LogConfig", "logs", Block(&LOG_CONFIG), Filled),
        opt("Artifacts", "artifact", Blocks(&TASK_ARTIFACT), Own),
        opt("Vault", "vault", Block(&VAULT), Own),
        opt("Consul", "consul", Block(&CONSUL), Own),
        opt("Templates", "template", Blocks(&TEMPLATE), Own),
        opt("DispatchPayload", "dispatch_payload", Block(&DISPATCH_PAYLOAD_CONFIG), Own),
        opt("VolumeMounts", "volume_mount", Blocks(&VOLUME_MOUNT), Own),
        omit_empty("CSIPluginConfig", "csi_plugin", Block(&CSI_PLUGIN), Own),
        val("Leader", "leader", Flag, Own),
        val("ShutdownDelay", "shutdown_delay", DURATION, Own),
        val("KillSignal", "kill_signal", Text, Own),
        val("Kind", "kind", Text, Own),
        opt("ScalingPolicies", "scaling", Blocks(&SCALING_POLICY), AsIs),
        opt("Secrets", "secret", Blocks(&SECRET), Own),
        opt("Identity", "", Block(&WORKLOAD_IDENTITY), Own),
        opt("Identities", "identity", Blocks(&WORKLOAD_IDENTITY), Own),
        opt("Actions", "action", Blocks(&ACTION), Own),
        opt("Schedule", "schedule", Block(&TASK_SCHEDULE), Own),
        // The peer does not know this.
        omit_empty("MaxRunDuration", "max_run_duration", DURATION, Own),
    ],
};

/// TaskSchedule.
pub static TASK_SCHEDULE: Shape =
    Shape { name: "TaskSchedule", fields: &[opt("Cron", "cron", Block(&TASK_SCHEDULE_CRON), Own)] };

/// TaskScheduleCron.
pub static TASK_SCHEDULE_CRON: Shape = Shape {
    name: "TaskScheduleCron",
    fields: &[val("Start", "start", Text, Own), val("End", "end", Text, Own), val("Timezone", "timezone", Text, Own)],
};

/// Action.
pub static ACTION: Shape = Shape {
    name: "Action",
    fields: &[val("Name", "name", Text, Own), val("Command", "command", Text, Own), opt("Args", "args", Texts, Own)],
};

/// Secret.
pub static SECRET: Shape = Shape {
    name: "Secret",
    fields: &[
        val("Name", "name", Text, Own),
        val("Provider", "provider", Text, Own),
        val("Path", "path", Text, Own),
        opt("Config", "config", JsonMap, NullIfEmpty),
        opt("Env", "env", TextMap, NullIfEmpty),
    ],
};

/// ScalingPolicy.
pub static SCALING_POLICY: Shape = Shape {
    name: "ScalingPolicy",
    fields: &[
        opt("Min", "min", INT64, Own),
        opt("Max", "max", INT64, Own),
        opt("Policy", "policy", JsonMap, Own),
        opt("Enabled", "enabled", Flag, IsFlag(true)),
        val("Type", "type", Text, IsText("horizontal")),
        val("ID", "", Text, Own),
        val("Namespace", "", Text, Own),
        opt("Target", "", TextMap, Own),
        val("CreateIndex", "", UINT64, Own),
        val("ModifyIndex", "", UINT64, Own),
    ],
};

/// TaskCSIPluginConfig.
pub static CSI_PLUGIN: Shape = Shape {
    name: "TaskCSIPluginConfig",
    fields: &[
        val("ID", "id", Text, Own),
        val("Type", "type", Text, Own),
        val("MountDir", "mount_dir", Text, IsText("/csi")),
        val("StagePublishBaseDir", "stage_publish_base_dir", Text, IsText("/local/csi")),
        val("HealthTimeout", "health_timeout", DURATION, Int(30000000000)),
    ],
};

/// DispatchPayloadConfig.
pub static DISPATCH_PAYLOAD_CONFIG: Shape =
    Shape { name: "DispatchPayloadConfig", fields: &[val("File", "file", Text, Own)] };

/// Template.
pub static TEMPLATE: Shape = Shape {
    name: "Template",
    fields: &[
        opt("SourcePath", "source", Text, IsText("")),
        opt("DestPath", "destination", Text, IsText("")),
        opt("EmbeddedTmpl", "data", Text, IsText("")),
        opt("ChangeMode", "change_mode", Text, IsText("restart")),
        opt("ChangeScript", "change_script", Block(&CHANGE_SCRIPT), Own),
        opt("ChangeSignal", "change_signal", Text, Own),
        opt("Once", "once", Flag, IsFlag(false)),
        opt("Splay", "splay", DURATION, Int(5000000000)),
        opt("Perms", "perms", Text, IsText("0644")),
        opt("Uid", "uid", INT64, Own),
        opt("Gid", "gid", INT64, Own),
        opt("LeftDelim", "left_delimiter", Text, IsText("{{")),
        opt("RightDelim", "right_delimiter", Text, IsText("}}")),
        opt("Envvars", "env", Flag, IsFlag(false)),
        opt("VaultGrace", "vault_grace", DURATION, Int(0)),
        opt("Wait", "wait", Block(&WAIT_CONFIG), Own),
        opt("ErrMissingKey", "error_on_missing_key", Flag, IsFlag(false)),
    ],
};

/// WaitConfig.
pub static WAIT_CONFIG: Shape =
    Shape { name: "WaitConfig", fields: &[opt("Min", "min", DURATION, Own), opt("Max", "max", DURATION, Own)] };

/// ChangeScript.
pub static CHANGE_SCRIPT: Shape = Shape {
    name: "ChangeScript",
    fields: &[
        opt("Command", "command", Text, IsText("")),
        opt("Args", "args", Texts, EmptyList),
        opt("Timeout", "timeout", DURATION, Int(5000000000)),
        opt("FailOnError", "fail_on_error", Flag, IsFlag(false)),
        opt("RunOnFirstRender", "run_on_first_render", Flag, IsFlag(false)),
    ],
};

/// Consul.
pub static CONSUL: Shape = Shape {
    name: "Consul",
    fields: &[
        val("Namespace", "namespace", Text, Own),
        val("Cluster", "cluster", Text, IsText("default")),
        val("Partition", "partition", Text, Own),
    ],
};

/// Vault.
pub static VAULT: Shape = Shape {
    name: "Vault",
    fields: &[
        opt("Policies", "policies", Texts, Own),
        val("Role", "role", Text, Own),
        opt("Namespace", "namespace", Text, IsText("")),
        val("Cluster", "cluster", Text, IsText("default")),
        opt("Env", "env", Flag, IsFlag(true)),
        opt("DisableFile", "disable_file", Flag, IsFlag(false)),
        opt("ChangeMode", "change_mode", Text, IsText("restart")),
        opt("ChangeSignal", "change_signal", Text, IsText("SIGHUP")),
        opt("AllowTokenExpiration", "allow_token_expiration", Flag, IsFlag(false)),
    ],
};

/// TaskArtifact.
pub static TASK_ARTIFACT: Shape = Shape {
    name: "TaskArtifact",
    fields: &[
        opt("GetterSource", "source", Text, IsText("")),
        opt("GetterOptions", "options", TextMap, NullIfEmpty),
        opt("GetterHeaders", "headers", TextMap, NullIfEmpty),
        opt("GetterMode", "mode", Text, IsText("any")),
        opt("GetterInsecure", "insecure", Flag, IsFlag(false)),
        opt("RelativeDest", "destination", Text, Own),
        val("Chown", "chown", Flag, Own),
        // The peer does not know these.
        omit_empty("Upload", "upload", Flag, Own),
        omit_empty("When", "when", Text, Own),
    ],
};

/// RestartPolicy.
pub static RESTART_POLICY: Shape = Shape {
    name: "RestartPolicy",
    fields: &[
        opt("Interval", "interval", DURATION, Own),
        opt("Attempts", "attempts", INT64, Own),
        opt("Delay", "delay", DURATION, Own),
        opt("Mode", "mode", Text, Own),
        opt("RenderTemplates", "render_templates", Flag, Own),
    ],
};

/// Service.
pub static SERVICE: Shape = Shape {
    name: "Service",
    fields: &[
        val("Name", "name", Text, Own),
        opt("Tags", "tags", Texts, Own),
        opt("CanaryTags", "canary_tags", Texts, Own),
        val("EnableTagOverride", "enable_tag_override", Flag, Own),
        val("PortLabel", "port", Text, Own),
        val("AddressMode", "address_mode", Text, IsText("auto")),
        val("Address", "address", Text, Own),
        opt("Checks", "check", Blocks(&SERVICE_CHECK), Own),
        opt("CheckRestart", "check_restart", Block(&CHECK_RESTART), Own),
        opt("Connect", "connect", Block(&CONSUL_CONNECT), Own),
        opt("Meta", "meta", TextMap, NullIfEmpty),
        opt("CanaryMeta", "canary_meta", TextMap, NullIfEmpty),
        opt("TaggedAddresses", "tagged_addresses", TextMap, NullIfEmpty),
        val("TaskName", "task", Text, Own),
        val("OnUpdate", "on_update", Text, IsText("require_healthy")),
        opt("Identity", "identity", Block(&WORKLOAD_IDENTITY), Own),
        opt("Weights", "weights", Block(&SERVICE_WEIGHTS), Own),
        val("Provider", "provider", Text, IsText("consul")),
        val("Cluster", "cluster", Text, IsText("default")),
        val("Kind", "kind", Text, Own),
    ],
};

/// ServiceWeights.
pub static SERVICE_WEIGHTS: Shape = Shape {
    name: "ServiceWeights",
    fields: &[val("Passing", "passing", INT64, AtLeastOne), val("Warning", "warning", INT64, AtLeastOne)],
};

/// WorkloadIdentity.
pub static WORKLOAD_IDENTITY: Shape = Shape {
    name: "WorkloadIdentity",
    fields: &[
        val("Name", "name", Text, Own),
        opt("Audience", "aud", Texts, Own),
        val("ChangeMode", "change_mode", Text, Own),
        val("ChangeSignal", "change_signal", Text, Own),
        val("Env", "env", Flag, Own),
        val("File", "file", Flag, Own),
        val("Filepath", "filepath", Text, Own),
        val("ServiceName", "service_name", Text, Own),
        val("TTL", "ttl", DURATION, Own),
        opt("ExtraClaims", "extra_claims", Texts, Own),
    ],
};

/// VolumeMount.
pub static VOLUME_MOUNT: Shape = Shape {
    name: "VolumeMount",
    fields: &[
        opt("Volume", "volume", Text, Own),
        opt("Destination", "destination", Text, Own),
        opt("ReadOnly", "read_only", Flag, IsFlag(false)),
        opt("PropagationMode", "propagation_mode", Text, IsText("private")),
        opt("SELinuxLabel", "selinux_label", Text, IsText("")),
    ],
};

/// LogConfig.
pub static LOG_CONFIG: Shape = Shape {
    name: "LogConfig",
    fields: &[
        opt("MaxFiles", "max_files", INT64, Int(10)),
        opt("MaxFileSizeMB", "max_file_size", INT64, Int(10)),
        opt("Enabled", "enabled", Flag, Own),
        opt("Disabled", "disabled", Flag, IsFlag(false)),
    ],
};

/// Resources.
pub static RESOURCES: Shape = Shape {
    name: "Resources",
    fields: &[
        opt("CPU", "cpu", INT64, Own),
        opt("Cores", "cores", INT64, Own),
        opt("MemoryMB", "memory", INT64, Int(300)),
        opt("MemoryMaxMB", "memory_max", INT64, Own),
        opt("DiskMB", "disk", INT64, Own),
        opt("Networks", "network", Blocks(&NETWORK_RESOURCE), Own),
        opt("Devices", "device", Blocks(&REQUESTED_DEVICE), Own),
        opt("NUMA", "numa", Block(&NUMARESOURCE), Own),
        opt("SecretsMB", "secrets", INT64, Own),
        opt("IOPS", "iops", INT64, Own),
        // The peer does not know this.
        omit_empty("Semaphores", "semaphore", Blocks(&SEMAPHORE), Own),
    ],
};

/// Semaphore: an extension.
pub static SEMAPHORE: Shape = Shape {
    name: "Semaphore",
    fields: &[
        val("Name", "name", Text, Own),
        opt("Slots", "slots", INT64, Own),
        opt("Consume", "consume", INT64, Own),
        opt("LeaseTimeout", "lease_timeout", DURATION, Own),
    ],
};

/// NUMAResource.
pub static NUMARESOURCE: Shape = Shape {
    name: "NUMAResource",
    fields: &[val("Affinity", "affinity", Text, IsText("none")), opt("Devices", "devices", Texts, NullIfEmpty)],
};

/// RequestedDevice.
pub static REQUESTED_DEVICE: Shape = Shape {
    name: "RequestedDevice",
    fields: &[
        val("Name", "name", Text, Own),
        opt("Count", "count", UINT64, Int(1)),
        opt("Constraints", "constraint", Blocks(&CONSTRAINT), Own),
        opt("Affinities", "affinity", Blocks(&AFFINITY), Own),
    ],
};

/// NetworkResource.
pub static NETWORK_RESOURCE: Shape = Shape {
    name: "NetworkResource",
    fields: &[
        val("Mode", "mode", Text, Own),
        val("Device", "device", Text, Own),
        val("CIDR", "cidr", Text, Own),
        val("IP", "ip", Text, Own),
        opt("DNS", "dns", Block(&DNSCONFIG), Own),
        opt("ReservedPorts", "reserved_ports", Blocks(&PORT), Own),
        opt("DynamicPorts", "port", Blocks(&PORT), Own),
        val("Hostname", "hostname", Text, Own),
        opt("MBits", "mbits", INT64, Own),
        opt("CNI", "cni", Block(&CNICONFIG), Own),
    ],
};

/// CNIConfig.
pub static CNICONFIG: Shape = Shape { name: "CNIConfig", fields: &[opt("Args", "args", TextMap, Own)] };

/// Port.
pub static PORT: Shape = Shape {
    name: "Port",
    fields: &[
        val("Label", "label", Text, Own),
        val("Value", "static", INT64, Own),
        val("To", "to", INT64, Own),
        val("HostNetwork", "host_network", Text, Own),
        val("IgnoreCollision", "ignore_collision", Flag, Own),
    ],
};

/// DNSConfig.
pub static DNSCONFIG: Shape = Shape {
    name: "DNSConfig",
    fields: &[
        opt("Servers", "servers", Texts, Own),
        opt("Searches", "searches", Texts, Own),
        opt("Options", "options", Texts, Own),
    ],
};

/// ServiceCheck.
pub static SERVICE_CHECK: Shape = Shape {
    name: "ServiceCheck",
    fields: &[
        val("Name", "name", Text, Own),
        val("Type", "type", Text, Own),
        val("Command", "command", Text, Own),
        opt("Args", "args", Texts, Own),
        val("Path", "path", Text, Own),
        val("Protocol", "protocol", Text, Own),
        val("PortLabel", "port", Text, Own),
        val("Expose", "expose", Flag, Own),
        val("AddressMode", "address_mode", Text, Own),
        val("Advertise", "advertise", Text, Own),
        val("Interval", "interval", DURATION, Own),
        val("Timeout", "timeout", DURATION, Own),
        val("InitialStatus", "initial_status", Text, Own),
        val("Notes", "notes", Text, Own),
        val("TLSServerName", "tls_server_name", Text, Own),
        val("TLSSkipVerify", "tls_skip_verify", Flag, Own),
        opt("Header", "header", TextsMap, Own),
        val("Method", "method", Text, Own),
        opt("CheckRestart", "check_restart", Block(&CHECK_RESTART), Own),
        val("GRPCService", "grpc_service", Text, Own),
        val("GRPCUseTLS", "grpc_use_tls", Flag, Own),
        val("TaskName", "task", Text, Own),
        val("SuccessBeforePassing", "success_before_passing", INT64, NotNegative),
        val("FailuresBeforeCritical", "failures_before_critical", INT64, NotNegative),
        val("FailuresBeforeWarning", "failures_before_warning", INT64, NotNegative),
        val("Body", "body", Text, Own),
        val("OnUpdate", "on_update", Text, Own),
    ],
};

/// CheckRestart.
pub static CHECK_RESTART: Shape = Shape {
    name: "CheckRestart",
    fields: &[
        val("Limit", "limit", INT64, Own),
        opt("Grace", "grace", DURATION, Int(1000000000)),
        val("IgnoreWarnings", "ignore_warnings", Flag, Own),
    ],
};

/// TaskLifecycle.
pub static TASK_LIFECYCLE: Shape = Shape {
    name: "TaskLifecycle",
    fields: &[
        val("Hook", "hook", Text, Own),
        val("Sidecar", "sidecar", Flag, Own),
        // The peer does not know these.
        omit_empty("When", "when", Text, Own),
        omit_empty("After", "after", Texts, Own),
        omit_empty("WaitFor", "wait_for", Text, Own),
        omit_empty("Until", "until", Text, Own),
        omit_empty("Task", "task", Text, Own),
        omit_empty("OnRestart", "on_restart", Flag, Own),
    ],
};

/// Affinity.
pub static AFFINITY: Shape = Shape {
    name: "Affinity",
    fields: &[
        val("LTarget", "attribute", Text, Own),
        val("RTarget", "value", Text, Own),
        val("Operand", "operator", Text, Own),
        opt("Weight", "weight", INT8, Int(50)),
    ],
};

/// Constraint.
pub static CONSTRAINT: Shape = Shape {
    name: "Constraint",
    fields: &[
        val("LTarget", "attribute", Text, Own),
        val("RTarget", "value", Text, Own),
        val("Operand", "operator", Text, Own),
    ],
};
