//! Reading of submitted JSON: keys of any case, unknown keys left out, null as absent, wrong types refused by name.

use super::schema::{Field, Kind, Presence, Shape};
use serde_json::{Map, Value};
use std::fmt;

/// Deepest nesting of free values (driver configuration and the like) in a submitted job.
pub const MAX_DEPTH: usize = 64;
/// Most values, of whatever kind, in a submitted job.
pub const MAX_VALUES: usize = 1_000_000;

/// One thing wrong with a submitted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    /// Where: `Job.TaskGroups[0].Count`.
    pub path: String,
    /// What, in full, without the path where the peer's text has it already.
    pub message: String,
}

/// Everything wrong with a submitted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecErrors(pub Vec<SpecError>);

impl fmt::Display for SpecErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(&one.message),
            many => f.write_str(&crate::validate::multi(many.iter().map(|e| e.message.as_str()))),
        }
    }
}

impl std::error::Error for SpecErrors {}

/// Brings a submitted job into the full form: canonical key spelling, unknown keys left out, absent ones present as null or
/// zero.
///
/// # Errors
/// Values of a wrong type or out of range, each named; nesting or size beyond the limits.
pub fn normalize(job: Value) -> Result<Value, SpecErrors> {
    let mut reader = Reader { errors: Vec::new(), values: 0, full: false };
    let value = reader.block(&super::table::JOB, job, &Path::root("Job"));
    if reader.errors.is_empty() { Ok(value) } else { Err(SpecErrors(reader.errors)) }
}

/// The full form of a block with nothing set.
pub(super) fn empty_block(shape: &'static Shape) -> Value {
    let absent = |f: &Field| (f.presence != Presence::LeftOut).then(|| (f.wire.to_string(), absent(f)));
    Value::Object(shape.fields.iter().filter_map(absent).collect())
}

fn absent(field: &Field) -> Value {
    match (field.presence, field.kind) {
        (Presence::Zero, Kind::Text | Kind::Bytes) => Value::from(""),
        (Presence::Zero, Kind::Flag) => Value::from(false),
        (Presence::Zero, Kind::Number { .. }) => Value::from(0),
        _ => Value::Null,
    }
}

/// Where the reader stands: a chain on the stack, written out only for an error.
struct Path<'a> {
    outer: Option<&'a Path<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    fn root(name: &'a str) -> Self {
        Path { outer: None, step: Step::Key(name) }
    }
    fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { outer: Some(self), step: Step::Key(key) }
    }
    fn index(&'a self, index: usize) -> Path<'a> {
        Path { outer: Some(self), step: Step::Index(index) }
    }
    fn write(&self, indexes: bool, out: &mut String) {
        if let Some(outer) = self.outer {
            outer.write(indexes, out);
        }
        match self.step {
            Step::Key(key) if out.is_empty() => out.push_str(key),
            Step::Key(key) => {
                out.push('.');
                out.push_str(key);
            }
            Step::Index(index) if indexes => out.push_str(&format!("[{index}]")),
            Step::Index(_) => {}
        }
    }
    fn text(&self, indexes: bool) -> String {
        let mut out = String::new();
        self.write(indexes, &mut out);
        out
    }
}

struct Reader {
    errors: Vec<SpecError>,
    values: usize,
    /// The size limit was passed and said so.
    full: bool,
}

fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What clients are told of a value of another type than its field has, in the peer's words.
pub fn wrong_type(owner: &str, field: &str, value: &Value, wanted: &str) -> String {
    let what = match value {
        Value::Number(n) if wanted != "string" && wanted != "bool" => format!("number {n}"),
        other => kind_name(other).to_string(),
    };
    format!("json: cannot unmarshal {what} into Go struct field {owner}.{field} of type {wanted}")
}

impl Reader {
    fn error(&mut self, path: &Path<'_>, message: String) {
        self.errors.push(SpecError { path: path.text(true), message });
    }

    fn wrong(&mut self, owner: &str, path: &Path<'_>, value: &Value, wanted: &str) -> Value {
        self.error(path, wrong_type(owner, &path.text(false), value, wanted));
        Value::Null
    }

    fn count(&mut self, path: &Path<'_>) -> bool {
        self.values += 1;
        if self.values > MAX_VALUES && !self.full {
            self.full = true;
            self.error(path, format!("job has more than {MAX_VALUES} values; split it into several jobs"));
        }
        !self.full
    }

    fn block(&mut self, shape: &'static Shape, value: Value, path: &Path<'_>) -> Value {
        let Value::Object(mut given) = value else {
            return self.wrong("Job", path, &value, shape.name);
        };
        // Exact spellings win over others.
        let others: Vec<String> =
            given.keys().filter(|k| !shape.fields.iter().any(|f| f.wire == k.as_str())).cloned().collect();
        for key in others {
            let Some(value) = given.remove(&key) else { continue };
            if let Some(field) = shape.field(&key) {
                given.entry(field.wire).or_insert(value);
            }
        }
        let mut out = Map::new();
        for field in shape.fields {
            let at = path.key(field.wire);
            let value = match given.remove(field.wire) {
                None | Some(Value::Null) => absent(field),
                Some(value) => self.field(shape, field, value, &at),
            };
            if field.presence != Presence::LeftOut || !value.is_null() {
                out.insert(field.wire.to_string(), value);
            }
        }
        Value::Object(out)
    }

    fn field(&mut self, shape: &'static Shape, field: &Field, value: Value, path: &Path<'_>) -> Value {
        if !self.count(path) {
            return Value::Null;
        }
        let owner = shape.name;
        match (field.kind, value) {
            (Kind::Text, v @ Value::String(_)) | (Kind::Flag, v @ Value::Bool(_)) => v,
            (Kind::Bytes, v @ Value::String(_)) => v,
            (Kind::Number { min, max, name }, v) => self.number(owner, v, min, max, name, path),
            (Kind::Texts, Value::Array(items)) => self.list(items, path, |r, v, p| r.text(owner, v, p)),
            (Kind::Ports, Value::Array(items)) => {
                self.list(items, path, |r, v, p| r.number(owner, v, 0, i128::from(u16::MAX), "uint16", p))
            }
            (Kind::TextMap, Value::Object(map)) => self.map(map, path, |r, v, p| r.text(owner, v, p)),
            (Kind::TextsMap, Value::Object(map)) => self.map(map, path, |r, v, p| match v {
                Value::Array(items) => r.list(items, p, |r, v, p| r.text(owner, v, p)),
                Value::Null => Value::Array(Vec::new()),
                other => r.wrong(owner, p, &other, "[]string"),
            }),
            (Kind::JsonMap, Value::Object(map)) => self.map(map, path, |r, v, p| r.free(v, p, 1)),
            (Kind::Block(inner), v) => self.block(inner, v, path),
            (Kind::Blocks(inner), Value::Array(items)) => self.list(items, path, |r, v, p| r.block(inner, v, p)),
            (Kind::BlockMap(inner), Value::Object(map)) => self.map(map, path, |r, v, p| r.block(inner, v, p)),
            (kind, v) => self.wrong(owner, path, &v, kind.go_name()),
        }
    }

    fn text(&mut self, owner: &str, value: Value, path: &Path<'_>) -> Value {
        match value {
            Value::String(_) => value,
            Value::Null => Value::from(""),
            other => self.wrong(owner, path, &other, "string"),
        }
    }

    fn number(&mut self, owner: &str, value: Value, min: i128, max: i128, name: &str, path: &Path<'_>) -> Value {
        let whole = match &value {
            Value::Number(n) => n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from)),
            _ => None,
        };
        match whole {
            Some(n) if n >= min && n <= max => value,
            _ => self.wrong(owner, path, &value, name),
        }
    }

    fn list(
        &mut self,
        items: Vec<Value>,
        path: &Path<'_>,
        mut read: impl FnMut(&mut Self, Value, &Path<'_>) -> Value,
    ) -> Value {
        let mut out = Vec::with_capacity(items.len().min(1024));
        for (index, item) in items.into_iter().enumerate() {
            let at = path.index(index);
            if !self.count(&at) {
                break;
            }
            out.push(read(self, item, &at));
        }
        Value::Array(out)
    }

    fn map(
        &mut self,
        map: Map<String, Value>,
        path: &Path<'_>,
        mut read: impl FnMut(&mut Self, Value, &Path<'_>) -> Value,
    ) -> Value {
        let mut out = Map::new();
        for (key, item) in map {
            let at = path.key(&key);
            if !self.count(&at) {
                break;
            }
            let item = read(self, item, &at);
            out.insert(key, item);
        }
        Value::Object(out)
    }

    fn free(&mut self, value: Value, path: &Path<'_>, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            self.error(path, format!("nested deeper than {MAX_DEPTH} levels"));
            return Value::Null;
        }
        match value {
            Value::Array(items) => self.list(items, path, |r, v, p| r.free(v, p, depth + 1)),
            Value::Object(map) => self.map(map, path, |r, v, p| r.free(v, p, depth + 1)),
            other => other,
        }
    }
}

impl Kind {
    /// The name of the type in the peer's error texts.
    fn go_name(self) -> &'static str {
        match self {
            Kind::Text => "string",
            Kind::Flag => "bool",
            Kind::Number { name, .. } => name,
            Kind::Bytes => "[]uint8",
            Kind::Texts => "[]string",
            Kind::TextMap => "map[string]string",
            Kind::JsonMap => "map[string]interface {}",
            Kind::TextsMap => "map[string][]string",
            Kind::Ports => "[]uint16",
            Kind::Block(shape) | Kind::Blocks(shape) | Kind::BlockMap(shape) => shape.name,
        }
    }
}
