//! Fields that the API leaves out when they are empty, put back for `-json` and `-t`: scripts read them by name.

use serde_json::{Map, Value, json};

/// How an absent field looks.
#[derive(Clone, Copy)]
pub enum Empty {
    Null,
    Text,
    Number,
    False,
}

/// Fields of a noun and how they look when absent.
pub type Shape = &'static [(&'static str, Empty)];

use Empty::{False, Null, Number, Text};

/// An allocation. Source: `goldens/cli/267-alloc-status-json-keys.txt`.
pub const ALLOCATION: Shape = &[
    ("AllocModifyIndex", Number),
    ("AllocatedResources", Null),
    ("ClientDescription", Text),
    ("ClientStatus", Text),
    ("CreateIndex", Number),
    ("CreateTime", Number),
    ("DeploymentID", Text),
    ("DeploymentStatus", Null),
    ("DesiredDescription", Text),
    ("DesiredStatus", Text),
    ("DesiredTransition", Null),
    ("EvalID", Text),
    ("FollowupEvalID", Text),
    ("ID", Text),
    ("Job", Null),
    ("JobID", Text),
    ("Metrics", Null),
    ("ModifyIndex", Number),
    ("ModifyTime", Number),
    ("Name", Text),
    ("Namespace", Text),
    ("NetworkStatus", Null),
    ("NextAllocation", Text),
    ("NodeID", Text),
    ("NodeName", Text),
    ("PreemptedAllocations", Null),
    ("PreemptedByAllocation", Text),
    ("PreviousAllocation", Text),
    ("RescheduleTracker", Null),
    ("Resources", Null),
    ("Services", Null),
    ("TaskGroup", Text),
    ("TaskResources", Null),
    ("TaskStates", Null),
];

/// An evaluation. Source: `goldens/cli/057-job-status-json.txt`.
pub const EVALUATION: Shape = &[
    ("AnnotatePlan", False),
    ("BlockedEval", Text),
    ("ClassEligibility", Null),
    ("CreateIndex", Number),
    ("CreateTime", Number),
    ("DeploymentID", Text),
    ("EscapedComputedClass", False),
    ("FailedTGAllocs", Null),
    ("ID", Text),
    ("JobID", Text),
    ("JobModifyIndex", Number),
    ("MissingNonNodeResources", Null),
    ("ModifyIndex", Number),
    ("ModifyTime", Number),
    ("Namespace", Text),
    ("NextEval", Text),
    ("NodeID", Text),
    ("NodeModifyIndex", Number),
    ("PlanAnnotations", Null),
    ("PreviousEval", Text),
    ("Priority", Number),
    ("QueuedAllocations", Null),
    ("QuotaLimitReached", Text),
    ("RelatedEvals", Null),
    ("SnapshotIndex", Number),
    ("Status", Text),
    ("StatusDescription", Text),
    ("TriggeredBy", Text),
    ("Type", Text),
    ("Wait", Number),
    ("WaitUntil", Null),
];

/// A job, as far as the API leaves fields out. Source: `goldens/cli/065-job-inspect.txt`.
pub const JOB: Shape = &[("Migrate", Null), ("Reschedule", Null), ("UI", Null), ("Update", Null), ("VersionTag", Null)];

/// One noun with every field of its shape.
pub fn one(value: &Value, shape: Shape) -> Value {
    let Some(object) = value.as_object() else { return value.clone() };
    let mut whole: Map<String, Value> = shape
        .iter()
        .map(|(name, empty)| {
            let value = match empty {
                Null => Value::Null,
                Text => json!(""),
                Number => json!(0),
                False => json!(false),
            };
            ((*name).to_string(), value)
        })
        .collect();
    whole.extend(object.clone());
    Value::Object(whole)
}

/// Each noun of a list.
pub fn all(list: &Value, shape: Shape) -> Value {
    match list.as_array() {
        Some(items) => Value::Array(items.iter().map(|v| one(v, shape)).collect()),
        None => list.clone(),
    }
}
