//! Maps as TOML.

use super::{failure, json};
use crate::builtin::CallError;
use crate::show::type_name;
use serde_json::{Map, Value};

pub(super) fn call(name: &str, a: &[Value]) -> Option<Result<Value, CallError>> {
    match (name, a) {
        ("toTOML", [Value::Object(map)]) => {
            let mut out = String::new();
            Some(table(&mut out, map, &mut Vec::new()).map(|()| out.trim_end_matches('\n').into()))
        }
        ("toTOML", [other]) => Some(Err(failure(format!("toTOML: {} is no map", type_name(other))))),
        _ => None,
    }
}

fn tables(value: &Value) -> bool {
    matches!(value, Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_object))
}

/// Plain values first, then the tables within.
fn table(out: &mut String, map: &Map<String, Value>, path: &mut Vec<String>) -> Result<(), CallError> {
    let mut sorted: Vec<_> = map.iter().filter(|(_, v)| !v.is_null()).collect();
    sorted.sort_by(|a, b| a.0.cmp(b.0));
    let nested = |value: &Value| value.is_object() || tables(value);
    for (key, value) in sorted.iter().filter(|(_, v)| !nested(v)) {
        out.push_str(&format!("{} = ", name(key)));
        plain(out, value)?;
        out.push('\n');
    }
    for (key, value) in sorted.into_iter().filter(|(_, v)| nested(v)) {
        path.push(name(key));
        match value {
            Value::Object(inner) => {
                head(out, &format!("[{}]", path.join(".")));
                table(out, inner, path)?;
            }
            Value::Array(items) => {
                for inner in items.iter().filter_map(Value::as_object) {
                    head(out, &format!("[[{}]]", path.join(".")));
                    table(out, inner, path)?;
                }
            }
            _ => {}
        }
        path.pop();
    }
    Ok(())
}

fn head(out: &mut String, text: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(text);
    out.push('\n');
}

fn name(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.to_string() } else { quoted(key) }
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    herdsman_expr::json::quote(&mut out, text, false);
    out
}

fn plain(out: &mut String, value: &Value) -> Result<(), CallError> {
    match value {
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => {
            let text = json::number(n);
            let whole = n.is_f64() && !text.contains(['.', 'e']);
            out.push_str(&text);
            if whole {
                out.push_str(".0");
            }
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                plain(out, item)?;
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut sorted: Vec<_> = map.iter().filter(|(_, v)| !v.is_null()).collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (at, (key, item)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                out.push_str(&format!("{} = ", name(key)));
                plain(out, item)?;
            }
            out.push('}');
        }
        Value::Null => return Err(failure("toTOML: a list cannot hold nothing")),
    }
    Ok(())
}
