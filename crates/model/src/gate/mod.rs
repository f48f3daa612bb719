//! The gate: what a job asks for that is not acted on yet. A promise (isolation, secrets, a kept volume) is refused, what
//! does no harm is warned of by name; nothing accepted is silently without effect.
//!
//! The decisions stand in one file, `gate.tsv`, one row per key of job files. The gate looks at the canonical job, before the
//! servers add to it.

use crate::job::Job;
use crate::spec::{Field, FieldDefault, Kind, Shape};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// How much a setting without effect matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The job runs as it is; the user is told.
    Warn,
    /// The job does not run: the setting is a promise.
    Refuse,
}

/// A setting that is not acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateIssue {
    /// Where, as a JSON pointer into the job: `/TaskGroups/0/Tasks/1/Vault`.
    pub pointer: String,
    /// Its path in job files: `job.group.task.vault`.
    pub key: String,
    /// What is said: which group and task, which key, why, and what to do.
    pub reason: String,
    pub severity: Severity,
}

/// What is decided about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Acts,
    Warns,
    Refuses,
    /// Belongs to a block that is decided as a whole.
    Inside,
}

type Table = BTreeMap<&'static str, (Decision, &'static str)>;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let rows = include_str!("gate.tsv").lines().filter(|l| !l.starts_with('#'));
    rows.filter_map(|line| {
        let mut cells = line.split('\t');
        let (path, word, reason) = (cells.next()?, cells.next()?, cells.next().unwrap_or_default());
        let decision = match word {
            "acts" => Decision::Acts,
            "warns" => Decision::Warns,
            "inside" => Decision::Inside,
            // A word that is none of these must not let a promise through.
            _ => Decision::Refuses,
        };
        Some((path, (decision, reason)))
    })
    .collect()
});

/// What is decided about a key of job files, by its path. None: no such key.
pub fn decision(path: &str) -> Option<Decision> {
    TABLE.get(path).map(|row| row.0)
}

/// Every row of the table: path, decision, what is told.
pub fn decisions() -> impl Iterator<Item = (&'static str, Decision, &'static str)> {
    TABLE.iter().map(|(path, (decision, reason))| (*path, *decision, *reason))
}

/// What of a canonical job is not acted on. Keys that the typed form does not hold are seen only by [`gate_spec`].
pub fn gate(job: &Job) -> Vec<GateIssue> {
    gate_spec(&serde_json::to_value(job).unwrap_or_default())
}

/// What of a canonical specification ([`crate::spec::canonicalize()`]) is not acted on.
pub fn gate_spec(spec: &Value) -> Vec<GateIssue> {
    let mut walk = Walk { issues: Vec::new() };
    walk.block(&crate::spec::JOB, spec, &Place { pointer: String::new(), path: "job".to_string(), who: String::new() });
    walk.issues
}

/// The issues as one text, for answers that refuse: empty when nothing is refused.
pub fn refusal(issues: &[GateIssue]) -> String {
    let refused: Vec<&str> =
        issues.iter().filter(|i| i.severity == Severity::Refuse).map(|i| i.reason.as_str()).collect();
    if refused.is_empty() { String::new() } else { crate::validate::multi(refused) }
}

/// The warnings among the issues.
pub fn warnings(issues: &[GateIssue]) -> Vec<String> {
    issues.iter().filter(|i| i.severity == Severity::Warn).map(|i| i.reason.clone()).collect()
}

struct Place {
    pointer: String,
    path: String,
    /// ` group "g" task "t"`.
    who: String,
}

impl Place {
    fn inside(&self, wire: &str, key: &str) -> Place {
        Place {
            pointer: format!("{}/{wire}", self.pointer),
            path: format!("{}.{key}", self.path),
            who: self.who.clone(),
        }
    }

    fn item(&self, step: &str, block: &Value) -> Place {
        let name = ["Name", "Volume", "DestPath"]
            .into_iter()
            .find_map(|k| block.get(k))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let kind = self.path.rsplit('.').next().unwrap_or_default();
        let escaped = step.replace('~', "~0").replace('/', "~1");
        let who = if name.is_empty() { self.who.clone() } else { format!("{} {kind} {name:?}", self.who) };
        Place { pointer: format!("{}/{escaped}", self.pointer), path: self.path.clone(), who }
    }
}

struct Walk {
    issues: Vec<GateIssue>,
}

impl Walk {
    fn block(&mut self, shape: &'static Shape, block: &Value, place: &Place) {
        for field in shape.fields.iter().filter(|f| !f.key.is_empty()) {
            let wire = field.wire;
            let Some(value) = block.get(wire).filter(|v| is_set(field, v)) else { continue };
            let at = place.inside(wire, field.key);
            if let Some(text) = value.as_str().filter(|_| matches!(field.kind, Kind::Text)) {
                self.value(text, &at);
            }
            match TABLE.get(at.path.as_str()) {
                Some((Decision::Warns, reason)) => self.each(field, value, &at, Severity::Warn, reason),
                Some((Decision::Refuses, reason)) => self.each(field, value, &at, Severity::Refuse, reason),
                Some((Decision::Acts, _)) | None => self.inner(field, value, &at),
                Some((Decision::Inside, _)) => {}
            }
        }
    }

    /// A row about one value of a key.
    fn value(&mut self, text: &str, at: &Place) {
        let prefix = format!("{}=", at.path);
        let rows = TABLE.range(prefix.as_str()..).take_while(|(path, _)| path.starts_with(&prefix));
        for (path, (decision, reason)) in rows {
            let wanted = path.get(prefix.len()..).unwrap_or_default();
            let fits = match wanted.strip_suffix('*') {
                Some(start) => text.starts_with(start),
                None => text == wanted,
            };
            let severity = match decision {
                Decision::Refuses => Severity::Refuse,
                Decision::Warns => Severity::Warn,
                Decision::Acts | Decision::Inside => continue,
            };
            if fits {
                self.issue(at, severity, reason, Some(text));
            }
        }
    }

    fn each(&mut self, field: &Field, value: &Value, at: &Place, severity: Severity, reason: &'static str) {
        match (field.kind, value) {
            (Kind::Blocks(_), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.issue(&at.item(&index.to_string(), item), severity, reason, None);
                }
            }
            (Kind::BlockMap(_), Value::Object(map)) => {
                for (name, item) in map {
                    self.issue(&at.item(name, item), severity, reason, None);
                }
            }
            _ => self.issue(at, severity, reason, None),
        }
    }

    fn inner(&mut self, field: &Field, value: &Value, at: &Place) {
        match (field.kind, value) {
            (Kind::Block(shape), block) => self.block(shape, block, at),
            (Kind::Blocks(shape), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.block(shape, item, &at.item(&index.to_string(), item));
                }
            }
            (Kind::BlockMap(shape), Value::Object(map)) => {
                for (name, item) in map {
                    self.block(shape, item, &at.item(name, item));
                }
            }
            _ => {}
        }
    }

    fn issue(&mut self, at: &Place, severity: Severity, reason: &str, value: Option<&str>) {
        let key = at.path.rsplit('.').next().unwrap_or_default();
        let what = match value {
            Some(value) => format!("{key} = {value:?}"),
            None => key.to_string(),
        };
        let verb = match severity {
            Severity::Refuse => "cannot be honoured",
            Severity::Warn => "has no effect",
        };
        let who = at.who.trim_start();
        let who = if who.is_empty() { "job".to_string() } else { who.to_string() };
        self.issues.push(GateIssue {
            pointer: at.pointer.clone(),
            key: at.path.clone(),
            reason: format!("{who}: {what} {verb}: {reason}"),
            severity,
        });
    }
}

/// Whether a field says something: it is there, and not just its default.
fn is_set(field: &Field, value: &Value) -> bool {
    let zero = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(s) => s.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && !matches!(field.kind, Kind::Block(_)),
        Value::Bool(true) => false,
    };
    let default = match field.default {
        FieldDefault::Text(text) => value.as_str() == Some(text) && !has_value_rows(field.wire),
        FieldDefault::Int(number) => value.as_i64() == Some(number),
        FieldDefault::Flag(flag) => value.as_bool() == Some(flag),
        _ => false,
    };
    !zero && !default
}

/// The default provider of services is one that has a row of its own.
fn has_value_rows(wire: &str) -> bool {
    wire == "Provider"
}
