//! JSON as Go reads and writes it: numbers are floating ones, `<`, `>` and `&` are escaped unless asked otherwise.

use super::{failure, text_of};
use crate::builtin::CallError;
use serde_json::{Map, Number, Value};

pub(super) fn call(name: &str, a: &[Value]) -> Option<Result<Value, CallError>> {
    let [value] = a else { return None };
    Some(match name {
        "parseJSON" => text_of(value).and_then(parse),
        "toJSON" => Ok(written(value, true, false)),
        "toJSONPretty" => Ok(written(value, true, true)),
        "toUnescapedJSON" => Ok(written(value, false, false)),
        "toUnescapedJSONPretty" => Ok(written(value, false, true)),
        _ => return None,
    })
}

fn parse(text: &str) -> Result<Value, CallError> {
    if text.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    serde_json::from_str(text).map(floats).map_err(|error| failure(go_error(text, &error)))
}

/// The words of Go's reader where they are certain.
fn go_error(text: &str, error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_string();
    }
    let line = text.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let found = line.get(error.column().saturating_sub(1)..).and_then(|rest| rest.chars().next());
    match found {
        Some(c) if error.to_string().starts_with("key must be a string") => {
            format!("invalid character '{c}' looking for beginning of object key string")
        }
        Some(c) if error.to_string().starts_with("expected value") => {
            format!("invalid character '{c}' looking for beginning of value")
        }
        _ => error.to_string(),
    }
}

/// Every number of the value as a floating one.
pub(super) fn floats(value: Value) -> Value {
    match value {
        Value::Number(n) => n.as_f64().and_then(Number::from_f64).map_or(Value::Number(n), Value::Number),
        Value::Array(items) => items.into_iter().map(floats).collect(),
        Value::Object(map) => Value::Object(map.into_iter().map(|(k, v)| (k, floats(v))).collect()),
        other => other,
    }
}

fn written(value: &Value, escape: bool, pretty: bool) -> Value {
    let mut out = String::new();
    write(&mut out, value, escape, pretty.then_some(0));
    out.into()
}

fn newline(out: &mut String, depth: Option<usize>) {
    if let Some(depth) = depth {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    }
}

fn write(out: &mut String, value: &Value, escape: bool, depth: Option<usize>) {
    let inner = depth.map(|depth| depth.saturating_add(1));
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                newline(out, inner);
                write(out, item, escape, inner);
            }
            newline(out, depth);
            out.push(']');
        }
        Value::Object(map) if !map.is_empty() => {
            let mut sorted: Vec<_> = map.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (at, (key, item)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                newline(out, inner);
                herdsman_expr::json::quote(out, key, escape);
                out.push_str(if depth.is_some() { ": " } else { ":" });
                write(out, item, escape, inner);
            }
            newline(out, depth);
            out.push('}');
        }
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        Value::String(text) => herdsman_expr::json::quote(out, text, escape),
        Value::Number(n) => out.push_str(&number(n)),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Null => out.push_str("null"),
    }
}

/// A number as Go's encoder writes it.
pub(super) fn number(n: &Number) -> String {
    match n.as_f64().filter(|_| n.is_f64()) {
        Some(f) if f == 0.0 || (1e-6..1e21).contains(&f.abs()) => {
            let text = format!("{f}");
            text.strip_suffix(".0").map(str::to_string).unwrap_or(text)
        }
        Some(f) => {
            let text = format!("{f:e}");
            match text.split_once('e') {
                Some((m, e)) if !e.starts_with('-') => format!("{m}e+{e}"),
                _ => text,
            }
        }
        None => n.to_string(),
    }
}
