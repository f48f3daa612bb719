//! A filter held against a JSON value.

use serde_json::Value;

use super::{Binding, Expr, FilterError, MAX_FILTER_STEPS, Selector, Test, TestKind};

/// Fields of API objects whose JSON objects are maps with free keys, sorted.
pub const MAP_FIELDS: &[&str] = &[
    "Args",
    "Attributes",
    "CSIControllerPlugins",
    "CSINodePlugins",
    "CanaryMeta",
    "ClaimMappings",
    "ClassEligibility",
    "ClassExhausted",
    "ClassFiltered",
    "Config",
    "ConstraintFiltered",
    "Context",
    "Controllers",
    "DesiredTGUpdates",
    "Details",
    "DimensionExhausted",
    "DisplayLabels",
    "Drivers",
    "Env",
    "FailedTGAllocs",
    "GetterHeaders",
    "GetterOptions",
    "Header",
    "HostNetworks",
    "HostVolumes",
    "ListClaimMappings",
    "Meta",
    "Nodes",
    "NodesAvailable",
    "Parameters",
    "QueuedAllocations",
    "ReadAllocs",
    "ResourcesExhausted",
    "Scores",
    "Secrets",
    "Segments",
    "Summary",
    "TaggedAddresses",
    "TaskGroups",
    "TaskResources",
    "TaskStates",
    "Tasks",
    "VolumeContext",
    "Volumes",
    "WriteAllocs",
];

/// Which JSON objects are maps with free keys and which are records with fixed fields. A key that a
/// map lacks is simply not there; a field that a record lacks is the filter's mistake.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'s> {
    /// Names of the fields that hold maps.
    pub maps: &'s [&'s str],
}

impl Default for Shape<'_> {
    fn default() -> Self {
        Self { maps: MAP_FIELDS }
    }
}

/// A value on the way to or at the end of a selector.
#[derive(Debug, Clone, Copy)]
enum Node<'v> {
    Json {
        value: &'v Value,
        map: bool,
    },
    /// A key bound by `any` or `all`.
    Key(&'v str),
    /// A position bound by `any` or `all`.
    Position(usize),
}

impl Node<'_> {
    /// The kind in the words of the messages.
    fn kind(&self) -> &'static str {
        match self {
            Node::Json { value, map } => match value {
                Value::Null => "invalid",
                Value::Bool(_) => "bool",
                Value::Number(n) if n.is_f64() => "float64",
                Value::Number(_) => "int",
                Value::String(_) => "string",
                Value::Array(_) => "slice",
                Value::Object(_) if *map => "map",
                Value::Object(_) => "struct",
            },
            Node::Key(_) => "string",
            Node::Position(_) => "int",
        }
    }
}

/// A name bound by `any` or `all`.
struct Bound<'v> {
    name: &'v str,
    node: Node<'v>,
    /// Where it came from, for messages.
    path: Vec<String>,
}

struct Scope<'v, 's> {
    root: &'v Value,
    shape: &'s Shape<'s>,
    bound: Vec<Bound<'v>>,
    /// Steps that may still be done.
    steps: usize,
}

pub(super) fn eval<'v>(expr: &'v Expr, item: &'v Value, shape: &Shape<'_>) -> Result<bool, FilterError> {
    let mut scope = Scope { root: item, shape, bound: Vec::new(), steps: MAX_FILTER_STEPS };
    scope.eval(expr)
}

impl<'v> Scope<'v, '_> {
    /// Recursion is bounded by the depth the parser lets through.
    fn eval(&mut self, expr: &'v Expr) -> Result<bool, FilterError> {
        self.steps = self.steps.checked_sub(1).ok_or(FilterError::TooCostly)?;
        match expr {
            Expr::And(terms) => {
                for term in terms {
                    if !self.eval(term)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expr::Or(terms) => {
                for term in terms {
                    if self.eval(term)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expr::Not(inner) => Ok(!self.eval(inner)?),
            Expr::Match { selector, test } => {
                let (node, _) = self.find(selector)?;
                let weight = node.map_or(0, weight);
                self.steps = self.steps.checked_sub(weight).ok_or(FilterError::TooCostly)?;
                Ok(holds(test, node, selector)? != test.negated)
            }
            Expr::Collection { all, selector, binding, inner } => self.collection(*all, selector, binding, inner),
        }
    }

    fn collection(
        &mut self,
        all: bool,
        selector: &'v Selector,
        binding: &'v Binding,
        inner: &'v Expr,
    ) -> Result<bool, FilterError> {
        let (node, path) = self.find(selector)?;
        let value = match node {
            None => return Ok(all),
            Some(Node::Json { value, .. }) => value,
            // A bound key or position holds nothing.
            Some(_) => &Value::Bool(false),
        };
        let shape = self.shape;
        match value {
            Value::Null => Ok(all),
            Value::Array(items) => {
                for (position, value) in items.iter().enumerate() {
                    let key = (Node::Position(position), position.to_string());
                    let node = Node::Json { value, map: false };
                    if self.round(binding, inner, &path, key, node, true)? != all {
                        return Ok(!all);
                    }
                }
                Ok(all)
            }
            Value::Object(items) => {
                for (key, value) in items {
                    let map = shape.maps.contains(&key.as_str());
                    let node = Node::Json { value, map };
                    let key = (Node::Key(key), key.clone());
                    if self.round(binding, inner, &path, key, node, false)? != all {
                        return Ok(!all);
                    }
                }
                Ok(all)
            }
            _ => Err(FilterError::Type(format!("{} is not a list or a map", selector.shown()))),
        }
    }

    /// One member of a collection: binds the names, asks, and unbinds them.
    fn round(
        &mut self,
        binding: &'v Binding,
        inner: &'v Expr,
        path: &[String],
        (key, part): (Node<'v>, String),
        value: Node<'v>,
        list: bool,
    ) -> Result<bool, FilterError> {
        let depth = self.bound.len();
        let mut member = path.to_vec();
        member.push(part);
        let mut bind = |name: &'v str, node| {
            self.bound.push(Bound { name, node, path: member.clone() });
        };
        match binding {
            Binding::Default(name) if list => bind(name, value),
            Binding::Default(name) | Binding::Index(name) => bind(name, key),
            Binding::Value(name) => bind(name, value),
            Binding::Both { index, value: name } => {
                bind(index, key);
                bind(name, value);
            }
        }
        let result = self.eval(inner);
        self.bound.truncate(depth);
        result
    }

    /// What a selector leads to, `None` for a key its map lacks, and the path from the item's root.
    fn find(&self, selector: &Selector) -> Result<(Option<Node<'v>>, Vec<String>), FilterError> {
        let Some((first, below)) = selector.path.split_first() else {
            let text = "/ at part 0: couldn't find key: struct field with name \"\"";
            return Err(FilterError::NotFound(text.to_owned()));
        };
        let bound = (!selector.pointer).then(|| self.bound.iter().rev().find(|bound| bound.name == first)).flatten();
        let root = Node::Json { value: self.root, map: false };
        let (mut node, mut path, parts) = match bound {
            Some(bound) => (bound.node, bound.path.clone(), below),
            None => (root, Vec::new(), selector.path.as_slice()),
        };
        let start = path.len();
        path.extend(parts.iter().cloned());
        for (index, part) in parts.iter().enumerate() {
            let last = index + 1 == parts.len();
            match self.descend(node, part, last) {
                Ok(Some(next)) => node = next,
                Ok(None) => return Ok((None, path)),
                Err(miss) => {
                    let (path, at) = (path.join("/"), start + index);
                    return Err(FilterError::NotFound(match miss {
                        Miss::Part(what) => format!("/{path} at part {at}: {what}"),
                        Miss::Kind(kind) => {
                            format!("/{path}: at part {at}, invalid value kind: {kind}")
                        }
                    }));
                }
            }
        }
        Ok((Some(node), path))
    }

    fn descend(&self, node: Node<'v>, part: &str, last: bool) -> Result<Option<Node<'v>>, Miss> {
        let Node::Json { value, map } = node else {
            return Err(Miss::Kind(node.kind()));
        };
        let absent = || match last {
            true => Ok(None),
            false => Err(Miss::Part(format!("couldn't find key {part:?}"))),
        };
        match value {
            Value::Object(members) => match members.get(part) {
                Some(value) => {
                    let map = self.shape.maps.contains(&part);
                    Ok(Some(Node::Json { value, map }))
                }
                None if map => absent(),
                None => Err(Miss::Part(format!("couldn't find key: struct field with name {part:?}"))),
            },
            Value::Null if map => absent(),
            Value::Array(items) => {
                let Some(index) = part.parse::<usize>().ok().filter(|i| *i <= MAX_INDEX) else {
                    return Err(Miss::Part(format!("couldn't convert value {part:?} to type int")));
                };
                let value = items.get(index).ok_or_else(|| {
                    let length = items.len();
                    Miss::Part(format!("index {index} is out of range (length = {length})"))
                })?;
                Ok(Some(Node::Json { value, map: false }))
            }
            _ => Err(Miss::Kind(node.kind())),
        }
    }
}

/// How many steps looking through a value counts for.
fn weight(node: Node<'_>) -> usize {
    match node {
        Node::Json { value: Value::Array(items), .. } => items.len(),
        Node::Json { value: Value::String(text), .. } => text.len() / 64,
        _ => 0,
    }
}

/// Largest list position that can be written.
const MAX_INDEX: usize = isize::MAX as usize;

enum Miss {
    Part(String),
    Kind(&'static str),
}

/// Whether the test holds before its negation; a value which is not there equals, contains and
/// matches nothing, and is empty and nil.
fn holds(test: &Test, node: Option<Node<'_>>, selector: &Selector) -> Result<bool, FilterError> {
    let Some(node) = node else {
        return Ok(matches!(test.kind, TestKind::Empty | TestKind::Nil));
    };
    match &test.kind {
        TestKind::Equal(wanted) => equal(node, wanted)?.ok_or_else(|| {
            let text = "unable to find suitable primitive comparison function for matching";
            FilterError::Type(text.to_owned())
        }),
        TestKind::Contains(wanted) => contains(node, wanted, selector),
        TestKind::Matches { text, pattern } => {
            let subject = match node {
                Node::Json { value: Value::String(subject), .. } => subject,
                Node::Key(key) => key,
                other => {
                    let kind = match other.kind() {
                        "slice" => "[]string",
                        kind => kind,
                    };
                    let message = format!("value of type {kind} is not convertible to []byte");
                    return Err(FilterError::Type(message));
                }
            };
            match pattern {
                Ok(pattern) => Ok(pattern.is_match(subject)),
                Err(cause) => Err(FilterError::Pattern { text: text.clone(), cause: cause.clone() }),
            }
        }
        TestKind::Empty => match node {
            Node::Key(key) => Ok(key.is_empty()),
            Node::Json { value, map } => match value {
                Value::Null => Ok(true),
                Value::String(text) => Ok(text.is_empty()),
                Value::Array(items) => Ok(items.is_empty()),
                Value::Object(members) if map => Ok(members.is_empty()),
                _ => Err(misfit("is-empty", node, selector)),
            },
            Node::Position(_) => Err(misfit("is-empty", node, selector)),
        },
        TestKind::Nil => match node {
            Node::Json { value, .. } if value.is_null() => Ok(true),
            Node::Json { value, .. } if value.is_array() || value.is_object() => Ok(false),
            _ => Err(misfit("is-nil", node, selector)),
        },
    }
}

fn misfit(operation: &str, node: Node<'_>, selector: &Selector) -> FilterError {
    let (kind, shown) = (node.kind(), selector.shown());
    FilterError::Type(format!("cannot perform {operation} operations on type {kind} for selector: {shown:?}"))
}

fn contains(node: Node<'_>, wanted: &str, selector: &Selector) -> Result<bool, FilterError> {
    let value = match node {
        Node::Key(key) => return Ok(key.contains(wanted)),
        Node::Position(_) => return Err(misfit("in/contains", node, selector)),
        Node::Json { value, .. } => value,
    };
    match (value, node) {
        (Value::Null, _) => Ok(false),
        (Value::String(text), _) => Ok(text.contains(wanted)),
        (Value::Object(members), Node::Json { map: true, .. }) => Ok(members.contains_key(wanted)),
        (Value::Array(items), _) => {
            for value in items {
                let item = Node::Json { value, map: false };
                let found = equal(item, wanted)?.ok_or_else(|| {
                    FilterError::Type(
                        "unable to find suitable primitive comparison function for \"in\" comparison".to_owned(),
                    )
                })?;
                if found {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => {
            // A value that is none of the field's type is reported before the operator.
            equal(node, wanted)?;
            Err(misfit("in/contains", node, selector))
        }
    }
}

/// Whether a value is the one written; `None` if it is no single value.
fn equal(node: Node<'_>, wanted: &str) -> Result<Option<bool>, FilterError> {
    let value = match node {
        Node::Key(key) => return Ok(Some(key == wanted)),
        Node::Position(position) => {
            let position = u64::try_from(position).unwrap_or(u64::MAX);
            return equal_integer(i128::from(position), wanted).map(Some);
        }
        Node::Json { value, .. } => value,
    };
    Ok(Some(match value {
        Value::String(text) => text == wanted,
        Value::Bool(flag) => *flag == boolean(wanted)?,
        Value::Number(number) => {
            let integer = number.as_i64().map(i128::from);
            match integer.or_else(|| number.as_u64().map(i128::from)) {
                Some(integer) => equal_integer(integer, wanted)?,
                None => number.as_f64() == Some(float(wanted)?),
            }
        }
        Value::Null | Value::Array(_) | Value::Object(_) => return Ok(None),
    }))
}

fn value_error(parser: &'static str, text: &str, cause: &'static str) -> FilterError {
    FilterError::Value { parser, text: text.to_owned(), cause }
}

fn boolean(text: &str) -> Result<bool, FilterError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(value_error("ParseBool", text, "invalid syntax")),
    }
}

fn float(text: &str) -> Result<f64, FilterError> {
    text.parse().map_err(|_| value_error("ParseFloat", text, "invalid syntax"))
}

/// JSON does not say whether `3` is a whole number by type or by chance, so a fraction is compared
/// as well.
fn equal_integer(value: i128, wanted: &str) -> Result<bool, FilterError> {
    match integer(wanted) {
        Ok(wanted) => Ok(value == wanted),
        Err(error) => match wanted.parse::<f64>() {
            Ok(wanted) if wanted.is_finite() && !matches!(error, FilterError::Value { cause: OUT_OF_RANGE, .. }) => {
                Ok(value as f64 == wanted)
            }
            _ => Err(error),
        },
    }
}

const OUT_OF_RANGE: &str = "value out of range";

/// An integer in Go's notation: `0x`, `0o`, `0b`, a leading 0 for octal, `_` between digits.
fn integer(text: &str) -> Result<i128, FilterError> {
    let bad = |cause| value_error("ParseInt", text, cause);
    let (negative, body) = match text.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = body.to_ascii_lowercase();
    let (radix, digits) = match (lower.get(..2), lower.get(2..)) {
        (Some("0x"), Some(digits)) => (16, digits),
        (Some("0o"), Some(digits)) => (8, digits),
        (Some("0b"), Some(digits)) => (2, digits),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, lower.get(1..).unwrap_or_default()),
        _ => (10, lower.as_str()),
    };
    let prefixed = radix != 10;
    let digits = match prefixed {
        true => digits.strip_prefix('_').unwrap_or(digits),
        false => digits,
    };
    let valid =
        !digits.is_empty() && digits.split('_').all(|run| !run.is_empty() && run.chars().all(|c| c.is_digit(radix)));
    if !valid {
        return Err(bad("invalid syntax"));
    }
    let magnitude = u64::from_str_radix(&digits.replace('_', ""), radix).map_err(|_| bad(OUT_OF_RANGE))?;
    let value = i128::from(magnitude);
    let value = if negative { -value } else { value };
    if value < i128::from(i64::MIN) {
        return Err(bad(OUT_OF_RANGE));
    }
    Ok(value)
}
