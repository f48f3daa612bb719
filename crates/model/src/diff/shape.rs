//! What of each block is compared, and under which names it is shown.

/// What is compared of a block.
pub(super) struct Shape {
    /// Scalars, by name.
    pub fields: &'static [&'static str],
    /// Scalars shown only when both versions have the block.
    pub edits_only: &'static [&'static str],
    /// Absent ones of these are shown as `nil`.
    pub nil: &'static [&'static str],
    /// Maps of text, shown as fields `Name[key]`.
    pub maps: &'static [&'static str],
    /// Blocks inside, in the order they are shown.
    pub nests: &'static [(&'static str, Nest)],
    /// Unchanged fields of a changed block are shown when asked for.
    pub context: bool,
}

/// How a block inside is compared.
pub(super) enum Nest {
    /// Texts without order; shown under the key's own name.
    Texts,
    /// At most one block, shown under this name.
    One(&'static str, &'static Shape),
    /// Blocks matched by these fields.
    Keyed(&'static str, &'static Shape, &'static [&'static str]),
    /// Blocks that are the same or not; shown as added and deleted.
    Whole(&'static str, &'static Shape),
    /// Named blocks.
    Named(&'static str, &'static Shape),
    /// A free value, shown flat.
    Free(&'static str, bool),
}

const NOTHING: Shape = Shape { fields: &[], edits_only: &[], nil: &[], maps: &[], nests: &[], context: true };

pub(super) static JOB: Shape = Shape {
    fields: &[
        "AllAtOnce",
        "ConsulNamespace",
        "DispatchIdempotencyToken",
        "Dispatched",
        "Name",
        "Namespace",
        "NodePool",
        "ParentID",
        "Priority",
        "Region",
        "Stop",
        "Type",
        "VaultNamespace",
    ],
    maps: &["Meta"],
    nests: &[
        ("Datacenters", Nest::Texts),
        ("Constraints", Nest::Whole("Constraint", &CONSTRAINT)),
        ("Affinities", Nest::Whole("Affinity", &AFFINITY)),
        ("Spreads", Nest::Whole("Spread", &SPREAD)),
        ("Periodic", Nest::One("Periodic", &PERIODIC)),
        ("ParameterizedJob", Nest::One("ParameterizedJob", &PARAMETERIZED)),
        ("Multiregion", Nest::Free("Multiregion", true)),
        ("UI", Nest::One("UI", &UI)),
    ],
    context: false,
    ..NOTHING
};

pub(super) static GROUP: Shape = Shape {
    fields: &["Count", "PreventRescheduleOnLost"],
    edits_only: &["MaxClientDisconnect", "MaxRunDuration", "ShutdownDelay", "StopAfterClientDisconnect"],
    maps: &["Meta"],
    nests: &[
        ("Constraints", Nest::Whole("Constraint", &CONSTRAINT)),
        ("Affinities", Nest::Whole("Affinity", &AFFINITY)),
        ("Spreads", Nest::Whole("Spread", &SPREAD)),
        ("RestartPolicy", Nest::One("RestartPolicy", &RESTART)),
        ("Migrate", Nest::One("Migrate", &MIGRATE)),
        ("Disconnect", Nest::One("Disconnect", &DISCONNECT)),
        ("ReschedulePolicy", Nest::One("ReschedulePolicy", &RESCHEDULE)),
        ("EphemeralDisk", Nest::One("EphemeralDisk", &DISK)),
        ("Update", Nest::One("Update", &UPDATE)),
        ("Consul", Nest::One("Consul", &CONSUL)),
        ("Networks", Nest::Whole("Network", &NETWORK)),
        ("Scaling", Nest::One("Scaling", &SCALING)),
        ("Services", Nest::Keyed("Service", &SERVICE, &["Name", "PortLabel"])),
        ("Volumes", Nest::Named("Volume", &VOLUME)),
    ],
    context: false,
    ..NOTHING
};

pub(super) static TASK: Shape = Shape {
    fields: &["Driver", "KillSignal", "KillTimeout", "Kind", "Leader", "ShutdownDelay", "User"],
    maps: &["Env", "Meta"],
    nests: &[
        ("Constraints", Nest::Whole("Constraint", &CONSTRAINT)),
        ("Affinities", Nest::Whole("Affinity", &AFFINITY)),
        ("Config", Nest::Free("Config", true)),
        ("Resources", Nest::One("Resources", &RESOURCES)),
        ("Lifecycle", Nest::One("Lifecycle", &LIFECYCLE)),
        ("LogConfig", Nest::One("LogConfig", &LOGS)),
        ("DispatchPayload", Nest::One("DispatchPayload", &PAYLOAD)),
        ("Artifacts", Nest::Whole("Artifact", &ARTIFACT)),
        ("Services", Nest::Keyed("Service", &SERVICE, &["Name", "PortLabel"])),
        ("Vault", Nest::One("Vault", &VAULT)),
        ("Consul", Nest::One("Consul", &CONSUL)),
        ("Templates", Nest::Keyed("Template", &TEMPLATE, &["DestPath"])),
        ("Secrets", Nest::Keyed("Secret", &SECRET, &["Name"])),
        ("Identity", Nest::One("Identity", &IDENTITY)),
        ("Identities", Nest::Keyed("Identity", &IDENTITY, &["Name"])),
        ("Actions", Nest::Keyed("Action", &ACTION, &["Name"])),
        ("VolumeMounts", Nest::Whole("VolumeMount", &MOUNT)),
        ("CSIPluginConfig", Nest::One("CSIPluginConfig", &CSI_PLUGIN)),
        ("ScalingPolicies", Nest::Keyed("Scaling", &SCALING, &["Type"])),
        ("Schedule", Nest::Free("Schedule", true)),
    ],
    context: false,
    ..NOTHING
};

static CONSTRAINT: Shape = Shape { fields: &["LTarget", "Operand", "RTarget"], ..NOTHING };
static AFFINITY: Shape = Shape { fields: &["LTarget", "Operand", "RTarget", "Weight"], ..NOTHING };
static SPREAD: Shape = Shape {
    fields: &["Attribute", "Weight"],
    nests: &[("SpreadTarget", Nest::Whole("SpreadTarget", &SPREAD_TARGET))],
    ..NOTHING
};
static SPREAD_TARGET: Shape = Shape { fields: &["Percent", "Value"], ..NOTHING };
static PERIODIC: Shape = Shape {
    fields: &["Enabled", "ProhibitOverlap", "Spec", "SpecType", "TimeZone"],
    nests: &[("Specs", Nest::Texts)],
    ..NOTHING
};
static PARAMETERIZED: Shape =
    Shape { fields: &["Payload"], nests: &[("MetaOptional", Nest::Texts), ("MetaRequired", Nest::Texts)], ..NOTHING };
static UI: Shape = Shape { fields: &["Description"], nests: &[("Links", Nest::Whole("Link", &LINK))], ..NOTHING };
static LINK: Shape = Shape { fields: &["Label", "Url"], ..NOTHING };
static RESTART: Shape = Shape { fields: &["Attempts", "Delay", "Interval", "Mode", "RenderTemplates"], ..NOTHING };
static MIGRATE: Shape =
    Shape { fields: &["HealthCheck", "HealthyDeadline", "MaxParallel", "MinHealthyTime"], ..NOTHING };
static DISCONNECT: Shape = Shape {
    fields: &["LostAfter", "Reconcile", "Replace", "StopOnClientAfter"],
    nil: &["StopOnClientAfter"],
    ..NOTHING
};
static RESCHEDULE: Shape =
    Shape { fields: &["Attempts", "Delay", "DelayFunction", "Interval", "MaxDelay", "Unlimited"], ..NOTHING };
static DISK: Shape = Shape { fields: &["Migrate", "SizeMB", "Sticky"], ..NOTHING };
static UPDATE: Shape = Shape {
    fields: &[
        "AutoPromote",
        "AutoRevert",
        "Canary",
        "HealthCheck",
        "HealthyDeadline",
        "MaxParallel",
        "MinHealthyTime",
        "ProgressDeadline",
    ],
    ..NOTHING
};
static CONSUL: Shape = Shape { fields: &["Cluster", "Namespace", "Partition"], ..NOTHING };
static NETWORK: Shape = Shape {
    fields: &["Hostname", "Mode"],
    nests: &[
        ("ReservedPorts", Nest::Whole("Static Port", &STATIC_PORT)),
        ("DynamicPorts", Nest::Whole("Dynamic Port", &DYNAMIC_PORT)),
        ("DNS", Nest::One("DNS", &DNS)),
        ("CNI", Nest::One("CNIConfig", &CNI)),
    ],
    ..NOTHING
};
static STATIC_PORT: Shape = Shape { fields: &["HostNetwork", "IgnoreCollision", "Label", "To", "Value"], ..NOTHING };
static DYNAMIC_PORT: Shape = Shape { fields: &["HostNetwork", "Label", "To"], ..NOTHING };
static DNS: Shape =
    Shape { nests: &[("Options", Nest::Texts), ("Searches", Nest::Texts), ("Servers", Nest::Texts)], ..NOTHING };
static CNI: Shape = Shape { maps: &["Args"], ..NOTHING };
static SCALING: Shape = Shape {
    fields: &["Enabled", "Max", "Min"],
    nests: &[("Policy", Nest::Free("Policy", false))],
    context: false,
    ..NOTHING
};
static SERVICE: Shape = Shape {
    fields: &[
        "Address",
        "AddressMode",
        "Cluster",
        "EnableTagOverride",
        "Kind",
        "Name",
        "Namespace",
        "OnUpdate",
        "PortLabel",
        "Provider",
        "TaskName",
    ],
    maps: &["CanaryMeta", "Meta", "TaggedAddresses"],
    nests: &[
        ("Tags", Nest::Texts),
        ("CanaryTags", Nest::Texts),
        ("Checks", Nest::Keyed("Check", &CHECK, &["Name"])),
        ("Connect", Nest::Free("ConsulConnect", true)),
        ("Identity", Nest::One("Identity", &IDENTITY)),
        ("Weights", Nest::One("Weights", &WEIGHTS)),
    ],
    ..NOTHING
};
static WEIGHTS: Shape = Shape { fields: &["Passing", "Warning"], ..NOTHING };
static CHECK: Shape = Shape {
    fields: &[
        "AddressMode",
        "Body",
        "Command",
        "Expose",
        "FailuresBeforeCritical",
        "FailuresBeforeWarning",
        "GRPCService",
        "GRPCUseTLS",
        "InitialStatus",
        "Interval",
        "Method",
        "Name",
        "Notes",
        "OnUpdate",
        "Path",
        "PortLabel",
        "Protocol",
        "SuccessBeforePassing",
        "TLSServerName",
        "TLSSkipVerify",
        "TaskName",
        "Timeout",
        "Type",
    ],
    nests: &[
        ("Args", Nest::Texts),
        ("Header", Nest::Free("Header", true)),
        ("CheckRestart", Nest::One("CheckRestart", &CHECK_RESTART)),
    ],
    ..NOTHING
};
static CHECK_RESTART: Shape = Shape { fields: &["Grace", "IgnoreWarnings", "Limit"], ..NOTHING };
static VOLUME: Shape = Shape {
    fields: &["AccessMode", "AttachmentMode", "Name", "PerAlloc", "ReadOnly", "Source", "Sticky", "Type"],
    nests: &[("MountOptions", Nest::One("MountOptions", &MOUNT_OPTIONS))],
    ..NOTHING
};
static MOUNT_OPTIONS: Shape = Shape { fields: &["FSType"], nests: &[("MountFlags", Nest::Texts)], ..NOTHING };
static RESOURCES: Shape = Shape {
    fields: &["CPU", "Cores", "DiskMB", "IOPS", "MemoryMB", "MemoryMaxMB", "SecretsMB"],
    nests: &[
        ("Networks", Nest::Whole("Network", &NETWORK)),
        ("Devices", Nest::Whole("Device", &DEVICE)),
        ("NUMA", Nest::One("NUMA", &NUMA)),
    ],
    ..NOTHING
};
static DEVICE: Shape = Shape {
    fields: &["Count", "Name"],
    nests: &[
        ("Constraints", Nest::Whole("Constraint", &CONSTRAINT)),
        ("Affinities", Nest::Whole("Affinity", &AFFINITY)),
    ],
    ..NOTHING
};
static NUMA: Shape = Shape { fields: &["Affinity"], nests: &[("Devices", Nest::Texts)], ..NOTHING };
static LIFECYCLE: Shape = Shape { fields: &["Hook", "Sidecar"], ..NOTHING };
static LOGS: Shape = Shape { fields: &["Disabled", "MaxFileSizeMB", "MaxFiles"], ..NOTHING };
static PAYLOAD: Shape = Shape { fields: &["File"], ..NOTHING };
static ARTIFACT: Shape = Shape {
    fields: &["Chown", "GetterInsecure", "GetterMode", "GetterSource", "RelativeDest"],
    maps: &["GetterHeaders", "GetterOptions"],
    ..NOTHING
};
static VAULT: Shape = Shape {
    fields: &[
        "AllowTokenExpiration",
        "ChangeMode",
        "ChangeSignal",
        "Cluster",
        "DisableFile",
        "Env",
        "Namespace",
        "Role",
    ],
    nests: &[("Policies", Nest::Texts)],
    ..NOTHING
};
static TEMPLATE: Shape = Shape {
    fields: &[
        "ChangeMode",
        "ChangeSignal",
        "DestPath",
        "EmbeddedTmpl",
        "Envvars",
        "ErrMissingKey",
        "Gid",
        "LeftDelim",
        "Once",
        "Perms",
        "RightDelim",
        "SourcePath",
        "Splay",
        "Uid",
        "VaultGrace",
    ],
    nests: &[("Wait", Nest::One("Template", &WAIT)), ("ChangeScript", Nest::One("ChangeScript", &CHANGE_SCRIPT))],
    ..NOTHING
};
static WAIT: Shape = Shape { fields: &["Max", "Min"], ..NOTHING };
static CHANGE_SCRIPT: Shape = Shape {
    fields: &["Command", "FailOnError", "RunOnFirstRender", "Timeout"],
    nests: &[("Args", Nest::Texts)],
    ..NOTHING
};
static SECRET: Shape = Shape {
    fields: &["Name", "Path", "Provider"],
    maps: &["Env"],
    nests: &[("Config", Nest::Free("Config", true))],
    ..NOTHING
};
static IDENTITY: Shape = Shape {
    fields: &["ChangeMode", "ChangeSignal", "Env", "File", "Filepath", "Name", "ServiceName", "TTL"],
    nests: &[("Audience", Nest::Texts), ("ExtraClaims", Nest::Texts)],
    ..NOTHING
};
static ACTION: Shape = Shape { fields: &["Command", "Name"], nests: &[("Args", Nest::Texts)], ..NOTHING };
static MOUNT: Shape =
    Shape { fields: &["Destination", "PropagationMode", "ReadOnly", "SELinuxLabel", "Volume"], ..NOTHING };
static CSI_PLUGIN: Shape =
    Shape { fields: &["HealthTimeout", "ID", "MountDir", "StagePublishBaseDir", "Type"], ..NOTHING };
