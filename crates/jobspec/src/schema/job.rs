//! The job and what stands directly in it.

use super::group::{GROUP, MIGRATE, RESCHEDULE, UPDATE};
use super::task::{SECRET, TASK, VAULT};
use super::{
    Form, Kind, Spec, Zero, bool_or_null, boolean, fixed, int_or_null, key, label, many, map, one, text, text_or_null,
    texts,
};

/// `job "name" { … }`
pub static JOB: Spec = Spec {
    name: "Job",
    keys: &[
        label("", "the id, and the name, unless id or name say otherwise"),
        text_or_null("id", "ID", "the id, instead of the label"),
        text_or_null("name", "Name", "the name people see, instead of the label"),
        text_or_null("region", "Region", "the region it runs in"),
        text_or_null("namespace", "Namespace", "the namespace it belongs to"),
        text_or_null("type", "Type", "service, batch, system or sysbatch"),
        int_or_null("priority", "Priority", "1 to 100, higher goes first"),
        bool_or_null("all_at_once", "AllAtOnce", "place all of it or nothing"),
        texts("datacenters", "Datacenters", "datacenters it may run in, with * as a wildcard"),
        text_or_null("node_pool", "NodePool", "the pool of nodes it runs on"),
        many("constraint", "Constraints", &CONSTRAINT, "what a node must be"),
        many("affinity", "Affinities", &AFFINITY, "what a node should be"),
        many("spread", "Spreads", &SPREAD, "what allocations are spread over"),
        many("group", "TaskGroups", &GROUP, "tasks that run together on one node"),
        many("task", "", &TASK, "a group of one task, in short"),
        one("update", "Update", &UPDATE, "how a new version is rolled out"),
        one("reschedule", "Reschedule", &RESCHEDULE, "when a failed allocation moves to another node"),
        one("migrate", "Migrate", &MIGRATE, "how allocations leave a draining node"),
        map("meta", "Meta", Form::Either, "names and texts that tasks see as NOMAD_META_*"),
        one("vault", "", &VAULT, "access to secrets, for tasks that have no vault block"),
        many("secret", "", &SECRET, "secrets of every task"),
        one("periodic", "Periodic", &PERIODIC, "starts the job at times"),
        one("parameterized", "ParameterizedJob", &PARAMETERIZED, "starts the job on demand, with a payload"),
        one("multiregion", "Multiregion", &MULTIREGION, "deployment over several regions"),
        one("ui", "UI", &UI, "what the web pages show"),
        fixed("ConsulNamespace", Zero::Null),
        fixed("CreateIndex", Zero::Null),
        fixed("DispatchIdempotencyToken", Zero::Null),
        fixed("Dispatched", Zero::Bool(false)),
        fixed("JobModifyIndex", Zero::Null),
        fixed("ModifyIndex", Zero::Null),
        fixed("NomadTokenID", Zero::Null),
        fixed("ParentID", Zero::Null),
        fixed("Payload", Zero::Null),
        fixed("Stable", Zero::Null),
        fixed("Status", Zero::Null),
        fixed("StatusDescription", Zero::Null),
        fixed("Stop", Zero::Null),
        fixed("SubmitTime", Zero::Null),
        fixed("VaultNamespace", Zero::Null),
        fixed("Version", Zero::Null),
        fixed("VersionTag", Zero::Null),
    ],
};

/// `constraint { … }`; the short keys become operator and value.
pub(super) static CONSTRAINT: Spec = Spec {
    name: "Constraint",
    keys: &[
        text("attribute", "LTarget", "what is compared, such as ${attr.kernel.name}"),
        text("value", "RTarget", "what it is compared with"),
        key("operator", "Operand", Kind::Text, Zero::Text("="), "how they are compared"),
        text("version", "", "a version constraint the attribute must fulfil"),
        text("semver", "", "a strict semantic version constraint the attribute must fulfil"),
        text("regexp", "", "a regular expression the attribute must match"),
        text("set_contains", "", "values the attribute's list must all hold"),
        text("set_contains_all", "", "values the attribute's list must all hold"),
        text("set_contains_any", "", "values of which the attribute's list must hold one"),
        boolean("is_set", "", "whether the attribute must be there"),
        boolean("is_not_set", "", "whether the attribute must be absent"),
        boolean("distinct_hosts", "", "allocations on different nodes"),
        text("distinct_property", "", "allocations on nodes that differ in this attribute"),
    ],
};

/// `affinity { … }`
pub(super) static AFFINITY: Spec = Spec {
    name: "Affinity",
    keys: &[
        text("attribute", "LTarget", "what is compared"),
        text("value", "RTarget", "what it is compared with"),
        key("operator", "Operand", Kind::Text, Zero::Text("="), "how they are compared"),
        key("weight", "Weight", Kind::Int8Wrapping, Zero::Null, "-100 to 100, not 0"),
        text("version", "", "a version constraint"),
        text("semver", "", "a strict semantic version constraint"),
        text("regexp", "", "a regular expression"),
        text("set_contains", "", "values the attribute's list must all hold"),
        text("set_contains_all", "", "values the attribute's list must all hold"),
        text("set_contains_any", "", "values of which the attribute's list must hold one"),
    ],
};

/// `spread { … }`
pub(super) static SPREAD: Spec = Spec {
    name: "Spread",
    keys: &[
        text("attribute", "Attribute", "what allocations are spread over"),
        key("weight", "Weight", Kind::Int(-128, 127), Zero::Null, "1 to 100"),
        many("target", "SpreadTarget", &SPREAD_TARGET, "the share of one value"),
    ],
};

static SPREAD_TARGET: Spec = Spec {
    name: "SpreadTarget",
    keys: &[
        label("Value", "the value of the attribute"),
        key("percent", "Percent", Kind::Int(0, 255), Zero::Int(0), "its share of the allocations"),
    ],
};

static PERIODIC: Spec = Spec {
    name: "PeriodicConfig",
    keys: &[
        bool_or_null("enabled", "Enabled", "whether it starts by itself"),
        text_or_null("cron", "Spec", "when, as one cron expression; deprecated, use crons"),
        texts("crons", "Specs", "when, as cron expressions"),
        bool_or_null("prohibit_overlap", "ProhibitOverlap", "no start while the last one still runs"),
        text_or_null("time_zone", "TimeZone", "the time zone the expressions mean"),
        fixed("SpecType", Zero::Text("cron")),
    ],
};

static PARAMETERIZED: Spec = Spec {
    name: "ParameterizedJobConfig",
    keys: &[
        text("payload", "Payload", "optional, required or forbidden"),
        texts("meta_required", "MetaRequired", "meta names a dispatch must give"),
        texts("meta_optional", "MetaOptional", "meta names a dispatch may give"),
    ],
};

static MULTIREGION: Spec = Spec {
    name: "Multiregion",
    keys: &[
        one("strategy", "Strategy", &STRATEGY, "how regions follow each other"),
        many("region", "Regions", &REGION, "one region"),
    ],
};

static STRATEGY: Spec = Spec {
    name: "MultiregionStrategy",
    keys: &[
        int_or_null("max_parallel", "MaxParallel", "regions at a time"),
        text_or_null("on_failure", "OnFailure", "what a failure in one region does to the others"),
    ],
};

static REGION: Spec = Spec {
    name: "MultiregionRegion",
    keys: &[
        label("Name", "the region"),
        int_or_null("count", "Count", "allocations of groups without a count"),
        texts("datacenters", "Datacenters", "its datacenters"),
        text("node_pool", "NodePool", "its node pool"),
        map("meta", "Meta", Form::Block, "its meta"),
    ],
};

static UI: Spec = Spec {
    name: "JobUIConfig",
    keys: &[text("description", "Description", "a text in markdown"), many("link", "Links", &LINK, "a link")],
};

static LINK: Spec =
    Spec { name: "JobUILink", keys: &[text("label", "Label", "its text"), text("url", "URL", "its address")] };

/// `scaling { … }` of a group, and of a task with a label.
pub(super) static SCALING: Spec = Spec {
    name: "ScalingPolicy",
    keys: &[
        bool_or_null("enabled", "Enabled", "whether the policy is in force"),
        int_or_null("min", "Min", "fewest allocations"),
        int_or_null("max", "Max", "most allocations").required(),
        key("type", "Type", Kind::Text, Zero::Text("horizontal"), "horizontal"),
        super::free("policy", "Policy", Form::Block, "content for the autoscaler"),
        fixed("CreateIndex", Zero::Int(0)),
        fixed("ID", Zero::Text("")),
        fixed("ModifyIndex", Zero::Int(0)),
        fixed("Namespace", Zero::Text("")),
        fixed("Target", Zero::Null),
    ],
};

/// `scaling "cpu" { … }` of a task.
pub(super) static TASK_SCALING: Spec = Spec {
    name: "TaskScalingPolicy",
    keys: &[
        label("Type", "cpu or mem"),
        bool_or_null("enabled", "Enabled", "whether the policy is in force"),
        int_or_null("min", "Min", "least"),
        int_or_null("max", "Max", "most").required(),
        super::free("policy", "Policy", Form::Block, "content for the autoscaler"),
        fixed("CreateIndex", Zero::Int(0)),
        fixed("ID", Zero::Text("")),
        fixed("ModifyIndex", Zero::Int(0)),
        fixed("Namespace", Zero::Text("")),
        fixed("Target", Zero::Null),
    ],
};
