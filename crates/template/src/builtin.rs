//! The functions that every template has.

use crate::MAX_OUTPUT_BYTES;
use crate::printf;
use crate::show::{nested, truth, type_name};
use serde_json::Value;
use std::cmp::Ordering;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// It is used the wrong way.
    Usage(String),
    /// It was tried.
    Failed(String),
}

const NAMES: &[&str] = &[
    "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice", "printf", "print", "println",
    "html", "js", "urlquery", "call",
];

/// Whether there is such a function.
pub fn has(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Calls a function; `and` and `or` are the renderer's.
pub fn call(name: &str, arguments: &[&Value]) -> Result<Value, CallError> {
    match (name, arguments) {
        ("not", [value]) => Ok(Value::Bool(!truth(value))),
        ("len", [value]) => length(value),
        ("not" | "len", _) => Err(count(name, "1", arguments.len())),
        ("eq", [first, rest @ ..]) if !rest.is_empty() => {
            for other in rest {
                if equal(first, other)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        ("eq", [_]) => Err(CallError::Failed("missing argument for comparison".to_string())),
        ("eq", []) => Err(count(name, "at least 1", 0)),
        ("ne", [a, b]) => Ok(Value::Bool(!equal(a, b)?)),
        ("lt", [a, b]) => Ok(Value::Bool(order(a, b)? == Ordering::Less)),
        ("le", [a, b]) => Ok(Value::Bool(order(a, b)? != Ordering::Greater)),
        ("gt", [a, b]) => Ok(Value::Bool(order(a, b)? == Ordering::Greater)),
        ("ge", [a, b]) => Ok(Value::Bool(order(a, b)? != Ordering::Less)),
        ("ne" | "lt" | "le" | "gt" | "ge", _) => Err(count(name, "2", arguments.len())),
        ("index", [first, keys @ ..]) => index(first, keys),
        ("slice", [first, bounds @ ..]) => slice(first, bounds),
        ("printf", [Value::String(format), rest @ ..]) => Ok(Value::String(limit(printf::printf(format, rest))?)),
        ("printf", [other, ..]) => {
            Err(CallError::Usage(format!("wrong type for value; expected string; got {}", type_name(other))))
        }
        ("index" | "slice" | "printf" | "call", []) => Err(count(name, "at least 1", 0)),
        ("print", all) => Ok(Value::String(limit(print(all))?)),
        ("println", all) => {
            let words: Vec<String> = all.iter().map(|v| nested(v)).collect();
            Ok(Value::String(limit(words.join(" ") + "\n")?))
        }
        ("html", all) => Ok(Value::String(limit(html(&joined(all)))?)),
        ("js", all) => Ok(Value::String(limit(js(&joined(all)))?)),
        ("urlquery", all) => Ok(Value::String(limit(urlquery(&joined(all)))?)),
        ("call", [other, ..]) => Err(CallError::Failed(match other {
            Value::Null => "call of nil".to_string(),
            other => format!("non-function {} of type {}", nested(other), type_name(other)),
        })),
        _ => Err(CallError::Usage(format!("{name:?} is not a defined function"))),
    }
}

fn count(name: &str, want: &str, got: usize) -> CallError {
    CallError::Usage(format!("wrong number of args for {name}: want {want} got {got}"))
}

fn limit(text: String) -> Result<String, CallError> {
    if text.len() > MAX_OUTPUT_BYTES {
        return Err(CallError::Failed(format!("more than {MAX_OUTPUT_BYTES} bytes of output")));
    }
    Ok(text)
}

fn incompatible<T>(a: &Value, b: &Value) -> Result<T, CallError> {
    failed(format!("incompatible types for comparison: {} and {}", type_name(a), type_name(b)))
}

fn failed<T>(why: impl Into<String>) -> Result<T, CallError> {
    Err(CallError::Failed(why.into()))
}

fn length(value: &Value) -> Result<Value, CallError> {
    match value {
        Value::String(text) => Ok(Value::from(text.len())),
        Value::Array(items) => Ok(Value::from(items.len())),
        Value::Object(members) => Ok(Value::from(members.len())),
        Value::Null => failed("len of nil pointer"),
        other => failed(format!("len of type {}", type_name(other))),
    }
}

/// The kinds that can be compared.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Basic {
    Bool,
    Int,
    Float,
    Text,
}

fn basic(value: &Value) -> Result<Basic, CallError> {
    match value {
        Value::Bool(_) => Ok(Basic::Bool),
        Value::Number(n) if n.is_f64() => Ok(Basic::Float),
        Value::Number(_) => Ok(Basic::Int),
        Value::String(_) => Ok(Basic::Text),
        _ => failed("invalid type for comparison"),
    }
}

fn equal(a: &Value, b: &Value) -> Result<bool, CallError> {
    if a.is_null() || b.is_null() {
        return Ok(a.is_null() && b.is_null());
    }
    let (Ok(x), Ok(y)) = (basic(a), basic(b)) else {
        return match (basic(a), basic(b)) {
            (Err(_), Err(_)) => failed(format!("non-comparable type {}: {}", nested(a), type_name(a))),
            _ => incompatible(a, b),
        };
    };
    if x != y {
        return incompatible(a, b);
    }
    Ok(match (a.as_i64(), b.as_i64()) {
        (Some(m), Some(n)) => m == n,
        _ => a == b,
    })
}

fn order(a: &Value, b: &Value) -> Result<Ordering, CallError> {
    let (x, y) = (basic(a)?, basic(b)?);
    if x != y {
        return incompatible(a, b);
    }
    match (a, b) {
        (Value::String(m), Value::String(n)) => Ok(m.cmp(n)),
        (Value::Number(m), Value::Number(n)) => match (m.as_i64(), n.as_i64(), m.as_u64(), n.as_u64()) {
            (Some(m), Some(n), _, _) => Ok(m.cmp(&n)),
            (_, _, Some(m), Some(n)) => Ok(m.cmp(&n)),
            (Some(_), None, _, Some(_)) => Ok(Ordering::Less),
            (None, Some(_), Some(_), _) => Ok(Ordering::Greater),
            _ => Ok(m.as_f64().partial_cmp(&n.as_f64()).unwrap_or(Ordering::Equal)),
        },
        _ => failed("invalid type for comparison"),
    }
}

/// What is indexed.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Kind {
    List,
    Text,
    /// The bound of a slice.
    Bound,
}

impl Kind {
    fn name(self) -> &'static str {
        if self == Kind::Text { "string" } else { "slice" }
    }
}

fn position(value: &Value, length: usize, kind: Kind) -> Result<usize, CallError> {
    let Some(at) = value.as_i64().filter(|_| value.is_i64() || value.is_u64()) else {
        return match value {
            Value::Null => failed("cannot index slice/array with nil"),
            other => failed(format!("cannot index slice/array with type {}", type_name(other))),
        };
    };
    match usize::try_from(at) {
        Ok(place) if place < length => Ok(place),
        // Go lets the length itself through its own check, and fails one step later.
        Ok(place) if place == length && kind != Kind::Bound => {
            failed(format!("reflect: {} index out of range", kind.name()))
        }
        _ => failed(format!("index out of range: {at}")),
    }
}

fn index(first: &Value, keys: &[&Value]) -> Result<Value, CallError> {
    let mut now = first.clone();
    for (depth, key) in keys.iter().enumerate() {
        now = match &now {
            Value::Null if depth == 0 => return failed("index of untyped nil"),
            Value::Null => return failed("index of nil pointer"),
            Value::Array(items) => {
                let at = position(key, items.len(), Kind::List)?;
                items.get(at).cloned().unwrap_or(Value::Null)
            }
            Value::String(text) => {
                let at = position(key, text.len(), Kind::Text)?;
                Value::from(text.as_bytes().get(at).copied().unwrap_or(0))
            }
            Value::Object(members) => match key {
                Value::String(name) => members.get(name).cloned().unwrap_or(Value::Null),
                Value::Null => return failed("value is nil; should be of type string"),
                other => return failed(format!("value has type {}; should be string", type_name(other))),
            },
            other => return failed(format!("can't index item of type {}", type_name(other))),
        };
    }
    Ok(now)
}

fn slice(first: &Value, bounds: &[&Value]) -> Result<Value, CallError> {
    let length = match first {
        Value::String(text) => {
            if bounds.len() > 2 {
                return failed("cannot 3-index slice a string");
            }
            text.len()
        }
        Value::Array(items) => items.len(),
        Value::Null => return failed("slice of untyped nil"),
        other => return failed(format!("can't slice item of type {}", type_name(other))),
    };
    if bounds.len() > 3 {
        return failed(format!("too many slice indexes: {}", bounds.len()));
    }
    let mut places = Vec::new();
    for bound in bounds {
        places.push(position(bound, length.saturating_add(1), Kind::Bound)?);
    }
    let (from, to) = (places.first().copied().unwrap_or(0), places.get(1).copied().unwrap_or(length));
    if from > to {
        return failed(format!("invalid slice index: {from} > {to}"));
    }
    if let Some(cap) = places.get(2).filter(|cap| to > **cap) {
        return failed(format!("invalid slice index: {to} > {cap}"));
    }
    Ok(match first {
        Value::String(text) => {
            let bytes = text.as_bytes().get(from..to).unwrap_or_default();
            Value::String(String::from_utf8_lossy(bytes).into_owned())
        }
        Value::Array(items) => Value::Array(items.get(from..to).unwrap_or_default().to_vec()),
        _ => Value::Null,
    })
}

/// Go's `Sprint`: blanks only between two values that are no texts.
fn print(all: &[&Value]) -> String {
    let mut out = String::new();
    let mut before_text = true;
    for (at, value) in all.iter().enumerate() {
        let text = value.is_string();
        if at > 0 && !text && !before_text {
            out.push(' ');
        }
        out.push_str(&nested(value));
        before_text = text;
    }
    out
}

fn joined(all: &[&Value]) -> String {
    match all {
        [Value::String(text)] => text.clone(),
        all => print(all),
    }
}

fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

fn js(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<' => out.push_str("\\u003C"),
            '>' => out.push_str("\\u003E"),
            '&' => out.push_str("\\u0026"),
            '=' => out.push_str("\\u003D"),
            c if c < ' ' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if c.is_ascii() || printf::is_print(c) => out.push(c),
            c => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    out
}

fn urlquery(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~') => out.push(char::from(b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}
