//! From the canonical JSON form to the typed job.

use super::normalize::{SpecError, SpecErrors};
use super::schema::{Kind, Shape};
use super::table;
use crate::job::Job;
use serde_json::{Map, Value};

/// Words of a specification that the typed form cannot hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownWords {
    /// The job type, if it is none.
    pub job_type: Option<String>,
    /// Lifecycle hooks that are none: position of group and task, word.
    pub hooks: Vec<(usize, usize, String)>,
}

impl UnknownWords {
    /// Every word is known.
    pub fn is_empty(&self) -> bool {
        self.job_type.is_none() && self.hooks.is_empty()
    }

    /// The unknown hooks of one group, by position of the task.
    pub fn hooks_of(&self, group: usize) -> std::collections::BTreeMap<usize, &str> {
        self.hooks.iter().filter(|h| h.0 == group).map(|h| (h.1, h.2.as_str())).collect()
    }
}

impl Job {
    /// The typed job of a canonical specification ([`super::normalize()`], then [`super::canonicalize()`]).
    ///
    /// # Errors
    /// A job type or lifecycle hook that does not exist (with the peer's validation text), or a value that the typed form
    /// cannot hold.
    pub fn from_spec(spec: &Value) -> Result<Job, SpecErrors> {
        let (job, words) = Job::from_spec_with_words(spec)?;
        if words.is_empty() {
            return Ok(job);
        }
        let all = crate::validate::validate_words(&job, &words, &crate::validate::Limits::default());
        let words_only = |e: &&String| e.contains("job type") || e.contains("Lifecycle validation failed");
        let errors = all.errors.iter().filter(words_only);
        Err(SpecErrors(errors.map(|e| SpecError { path: "Job".into(), message: e.clone() }).collect()))
    }

    /// As [`Job::from_spec`], but unknown words are put aside for validation, so that it can show all errors at once.
    ///
    /// # Errors
    /// A value that the typed form cannot hold.
    pub fn from_spec_with_words(spec: &Value) -> Result<(Job, UnknownWords), SpecErrors> {
        let mut spec = spec.clone();
        let mut words = UnknownWords::default();
        if let Some(job) = spec.as_object_mut() {
            words = take_unknown_words(job);
            scaling_defaults(job);
            if !matches!(job.get("Status").and_then(Value::as_str), Some("pending" | "running" | "dead")) {
                job.remove("Status");
            }
            strip(&table::JOB, job);
        }
        let job = serde_json::from_value(spec).map_err(|e| {
            SpecErrors(vec![SpecError { path: "Job".to_string(), message: format!("job cannot be read: {e}") }])
        })?;
        Ok((job, words))
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

/// Task scaling policies are enabled unless they say otherwise; the canonical form leaves that to the servers. A policy
/// without a maximum gets one that validation refuses.
fn scaling_defaults(job: &mut Map<String, Value>) {
    for group in blocks_mut(job, "TaskGroups") {
        if let Some(policy) = group.get_mut("Scaling").and_then(Value::as_object_mut) {
            put_if_null(policy, "Max", Value::from(-1));
        }
        for task in blocks_mut(group, "Tasks") {
            for policy in blocks_mut(task, "ScalingPolicies") {
                put_if_null(policy, "Enabled", Value::Bool(true));
            }
        }
    }
}

fn put_if_null(block: &mut Map<String, Value>, key: &str, value: Value) {
    let slot = block.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value;
    }
}

fn blocks_mut<'a>(block: &'a mut Map<String, Value>, key: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    block.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Takes out the words that the typed form cannot hold, so that reading goes on.
fn take_unknown_words(job: &mut Map<String, Value>) -> UnknownWords {
    let mut words = UnknownWords::default();
    if let Some(kind) = job.get("Type").and_then(Value::as_str)
        && !matches!(kind, "service" | "batch" | "system" | "sysbatch" | "_core")
    {
        words.job_type = Some(kind.to_string());
        job.remove("Type");
    }
    for (gi, group) in blocks_mut(job, "TaskGroups").enumerate() {
        for (ti, task) in blocks_mut(group, "Tasks").enumerate() {
            let hook = task.get("Lifecycle").and_then(|l| l.get("Hook")).and_then(Value::as_str);
            if let Some(hook) = hook.filter(|h| !matches!(*h, "prestart" | "poststart" | "poststop")) {
                words.hooks.push((gi, ti, hook.to_string()));
                task.remove("Lifecycle");
            }
        }
    }
    words
}
