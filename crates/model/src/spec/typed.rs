//! From the canonical JSON form to the typed job.

use super::normalize::{SpecError, SpecErrors};
use super::schema::{Kind, Shape};
use super::table;
use crate::job::Job;
use serde_json::{Map, Value};

impl Job {
    /// The typed job of a canonical specification ([`super::normalize()`], then [`super::canonicalize()`]).
    ///
    /// # Errors
    /// A job type or lifecycle hook that does not exist (with the peer's validation text), or a value that the typed form
    /// cannot hold.
    pub fn from_spec(spec: &Value) -> Result<Job, SpecErrors> {
        let mut spec = spec.clone();
        let errors = unknown_words(&spec);
        if !errors.is_empty() {
            return Err(SpecErrors(errors));
        }
        if let Some(job) = spec.as_object_mut() {
            task_scaling_defaults(job);
            if !matches!(job.get("Status").and_then(Value::as_str), Some("pending" | "running" | "dead")) {
                job.remove("Status");
            }
            strip(&table::JOB, job);
        }
        serde_json::from_value(spec).map_err(|e| {
            SpecErrors(vec![SpecError { path: "Job".to_string(), message: format!("job cannot be read: {e}") }])
        })
    }
}

/// Leaves absent fields out, so that the typed form puts its zero values; free values keep their nulls.
fn strip(shape: &'static Shape, block: &mut Map<String, Value>) {
    block.retain(|_, value| !value.is_null());
    for field in shape.fields {
        // The typed form keeps these as they are.
        if matches!(field.wire, "Connect" | "Multiregion" | "Schedule") {
            continue;
        }
        let Some(value) = block.get_mut(field.wire) else { continue };
        match (field.kind, value) {
            (Kind::Block(inner), Value::Object(b)) => strip(inner, b),
            (Kind::Blocks(inner), Value::Array(items)) => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(|b| strip(inner, b));
            }
            (Kind::BlockMap(inner), Value::Object(map)) => {
                map.values_mut().filter_map(Value::as_object_mut).for_each(|b| strip(inner, b));
            }
            _ => {}
        }
    }
    // The typed link spells its key as the servers answer it.
    if shape.name == "JobUILink"
        && let Some(url) = block.remove("URL")
    {
        block.insert("Url".to_string(), url);
    }
}

/// Task scaling policies are enabled unless they say otherwise; the canonical form leaves that to the servers.
fn task_scaling_defaults(job: &mut Map<String, Value>) {
    for task in tasks_mut(job) {
        let policies = task.get_mut("ScalingPolicies").and_then(Value::as_array_mut).into_iter().flatten();
        for policy in policies.filter_map(Value::as_object_mut) {
            let enabled = policy.entry("Enabled").or_insert(Value::Null);
            if enabled.is_null() {
                *enabled = Value::Bool(true);
            }
        }
    }
}

fn tasks_mut(job: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let groups = job.get_mut("TaskGroups").and_then(Value::as_array_mut).into_iter().flatten();
    let tasks = groups.filter_map(|g| g.get_mut("Tasks")).filter_map(Value::as_array_mut).flatten();
    tasks.filter_map(Value::as_object_mut)
}

fn unknown_words(job: &Value) -> Vec<SpecError> {
    let mut errors = Vec::new();
    let kind = job.get("Type").and_then(Value::as_str).unwrap_or("service");
    if !matches!(kind, "service" | "batch" | "system" | "sysbatch" | "_core") {
        let message =
            if kind.is_empty() { "Missing job type".to_string() } else { format!("Invalid job type: {kind:?}") };
        errors.push(SpecError { path: "Job.Type".into(), message });
    }
    let list = |v: &Value, key: &str| v.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |v: &Value| v.get("Name").and_then(Value::as_str).unwrap_or_default().to_string();
    for (gi, group) in list(job, "TaskGroups").iter().enumerate() {
        for (ti, task) in list(group, "Tasks").iter().enumerate() {
            let hook = task.get("Lifecycle").and_then(|l| l.get("Hook")).and_then(Value::as_str);
            let Some(hook) = hook.filter(|h| !matches!(*h, "prestart" | "poststart" | "poststop")) else { continue };
            let text = if hook.is_empty() {
                "Lifecycle validation failed: no lifecycle hook provided".to_string()
            } else {
                format!("Lifecycle validation failed: invalid hook: {hook}")
            };
            let task_text =
                format!("Task {} validation failed: {}", name(task), crate::validate::multi([text.as_str()]));
            let message = format!(
                "Task group {} validation failed: {}",
                name(group),
                crate::validate::multi([task_text.as_str()])
            );
            errors.push(SpecError { path: format!("Job.TaskGroups[{gi}].Tasks[{ti}].Lifecycle.Hook"), message });
        }
    }
    errors
}
