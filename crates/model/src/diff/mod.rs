//! The difference of two versions of a job, as plans and version lists show it.
//!
//! What is compared and under which names stands in [`shape`]; the walk in [`walk`] is the same for every block.

mod annotate;
mod shape;
mod walk;

pub use annotate::annotate;

use crate::job::Job;
use crate::values::List;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What became of a thing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DiffType {
    #[default]
    None,
    Added,
    Deleted,
    Edited,
}

/// The difference of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobDiff {
    #[serde(rename = "Type")]
    pub kind: DiffType,
    #[serde(rename = "ID")]
    pub id: String,
    pub fields: List<FieldDiff>,
    pub objects: List<ObjectDiff>,
    pub task_groups: List<TaskGroupDiff>,
}

/// The difference of a group. `updates` counts what the scheduler would do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskGroupDiff {
    #[serde(rename = "Type")]
    pub kind: DiffType,
    pub name: String,
    pub fields: List<FieldDiff>,
    pub objects: List<ObjectDiff>,
    pub tasks: List<TaskDiff>,
    pub updates: Option<BTreeMap<String, u64>>,
}

/// The difference of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskDiff {
    #[serde(rename = "Type")]
    pub kind: DiffType,
    pub name: String,
    pub fields: List<FieldDiff>,
    pub objects: List<ObjectDiff>,
    pub annotations: List<String>,
}

/// The difference of a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ObjectDiff {
    #[serde(rename = "Type")]
    pub kind: DiffType,
    pub name: String,
    pub fields: List<FieldDiff>,
    pub objects: List<ObjectDiff>,
}

/// The difference of a field; absent values are the empty text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FieldDiff {
    #[serde(rename = "Type")]
    pub kind: DiffType,
    pub name: String,
    pub old: String,
    pub new: String,
    pub annotations: List<String>,
}

/// The difference from `old` to `new`; nothing stands for a job that is not there. `contextual` keeps unchanged fields of
/// changed blocks.
pub fn diff(old: Option<&Job>, new: Option<&Job>, contextual: bool) -> JobDiff {
    let (old_value, new_value) = (old.map(to_value), new.map(to_value));
    let (a, b) = (old_value.as_ref(), new_value.as_ref());
    let top = walk::block(&shape::JOB, a, b, contextual);
    let groups: Vec<TaskGroupDiff> = walk::pairs(list(a, "TaskGroups"), list(b, "TaskGroups"), &["Name"])
        .into_iter()
        .map(|(a, b)| group(a, b, contextual))
        .collect();
    let changed = !top.is_empty() || groups.iter().any(|g| g.kind != DiffType::None);
    JobDiff {
        kind: walk::kind(a, b, changed),
        id: new.or(old).map(|j| j.id.clone()).unwrap_or_default(),
        fields: top.fields.into(),
        objects: top.objects.into(),
        task_groups: groups.into(),
    }
}

fn group(a: Option<&Value>, b: Option<&Value>, contextual: bool) -> TaskGroupDiff {
    let own = walk::block(&shape::GROUP, a, b, contextual);
    let tasks: Vec<TaskDiff> = walk::pairs(list(a, "Tasks"), list(b, "Tasks"), &["Name"])
        .into_iter()
        .map(|(a, b)| task(a, b, contextual))
        .collect();
    let changed = !own.is_empty() || tasks.iter().any(|t| t.kind != DiffType::None);
    TaskGroupDiff {
        kind: walk::kind(a, b, changed),
        name: name(a, b),
        fields: own.fields.into(),
        objects: own.objects.into(),
        tasks: tasks.into(),
        updates: None,
    }
}

fn task(a: Option<&Value>, b: Option<&Value>, contextual: bool) -> TaskDiff {
    let own = walk::block(&shape::TASK, a, b, contextual);
    TaskDiff {
        kind: walk::kind(a, b, !own.is_empty()),
        name: name(a, b),
        fields: own.fields.into(),
        objects: own.objects.into(),
        annotations: List::default(),
    }
}

fn to_value(job: &Job) -> Value {
    serde_json::to_value(job).unwrap_or_default()
}

fn list<'a>(block: Option<&'a Value>, key: &str) -> &'a [Value] {
    block.and_then(|b| b.get(key)).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn name(a: Option<&Value>, b: Option<&Value>) -> String {
    b.or(a).and_then(|v| v.get("Name")).and_then(Value::as_str).unwrap_or_default().to_string()
}
