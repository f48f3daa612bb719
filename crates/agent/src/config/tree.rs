//! Configuration as a tree of values: merging files, checking every key against the table.

use crate::config::keys::{Effect, KEYS, Key, Kind};
use herdsman_expr::duration;
use serde_json::{Map, Value};

/// Something the check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Dotted path of the key.
    pub path: String,
    pub severity: Severity,
    pub message: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The agent starts and says so.
    Warning,
    /// The agent refuses to start.
    Error,
}

/// Lays a later tree over an earlier one: blocks are merged, everything else is replaced.
pub fn merge(earlier: &mut Map<String, Value>, later: Map<String, Value>) {
    for (name, value) in later {
        match (earlier.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                earlier.insert(name, value);
            }
        }
    }
}

/// In JSON files a block may be written as a list of objects, as HCL1 did: they become one.
pub fn unfold(value: Value) -> Value {
    match value {
        Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_object) => {
            let mut all = Map::new();
            for item in items {
                if let Value::Object(fields) = unfold(item) {
                    merge(&mut all, fields);
                }
            }
            Value::Object(all)
        }
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(n, v)| (n, unfold(v))).collect()),
        other => other,
    }
}

/// Checks every key of a tree.
pub fn check(tree: &Map<String, Value>) -> Vec<Finding> {
    let mut findings = Vec::new();
    check_block("", tree, &mut findings);
    findings
}

fn check_block(prefix: &str, block: &Map<String, Value>, findings: &mut Vec<Finding>) {
    for (name, value) in block {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match lookup(&path) {
            Some(key) => check_value(key, path, value, findings),
            None if has_below(&path) => match value {
                Value::Object(inner) => check_block(&path, inner, findings),
                _ => findings.push(Finding {
                    message: format!("{path:?} is a block, not a value"),
                    path,
                    severity: Severity::Error,
                }),
            },
            None => findings.push(Finding {
                message: format!("{path:?} is not a known key{}", suggestion(&path)),
                path,
                severity: Severity::Error,
            }),
        }
    }
}

fn check_value(key: &Key, path: String, value: &Value, findings: &mut Vec<Finding>) {
    if let Err(expected) = fits(key.kind, value) {
        let message = format!("{path:?} takes {expected}, found {value}");
        findings.push(Finding { path, severity: Severity::Error, message });
        return;
    }
    let (severity, text) = match key.effect {
        Effect::Acts => return,
        _ if is_off(value) => return,
        Effect::Warns => (Severity::Warning, "has no effect in this version"),
        Effect::Refuses => (
            Severity::Error,
            "promises something this version does not do yet, so the agent does not start with it; remove it",
        ),
    };
    findings.push(Finding { message: format!("{path:?} {text}"), path, severity });
}

/// Whether a value leaves a feature off.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => matches!(text.as_str(), "" | "false"),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// The key of a path; labels match `*`.
pub fn lookup(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| matches(k.path, path, false))
}

fn has_below(path: &str) -> bool {
    KEYS.iter().any(|k| is_below(k, path))
}

/// Whether a key is in the block of this path.
pub fn is_below(key: &Key, path: &str) -> bool {
    matches(key.path, path, true)
}

/// Whether a path fits a key's path, or is the beginning of it.
fn matches(pattern: &str, path: &str, beginning: bool) -> bool {
    let mut pattern = pattern.split('.');
    for part in path.split('.') {
        match pattern.next() {
            Some("*") => {}
            Some(name) if name == part => {}
            _ => return false,
        }
    }
    pattern.next().is_some() == beginning
}

fn suggestion(path: &str) -> String {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let near = KEYS
        .iter()
        .filter_map(|k| {
            let (p, n) = k.path.rsplit_once('.').unwrap_or(("", k.path));
            (p == parent).then_some(n)
        })
        .chain(if parent.is_empty() {
            KEYS.iter().filter_map(|k| k.path.split('.').next()).collect()
        } else {
            Vec::new()
        })
        .map(|n| (strsim::levenshtein(n, name), n))
        .filter(|(d, n)| *d <= n.len() / 3 + 1)
        .min();
    near.map(|(_, n)| format!("; did you mean {n:?}?")).unwrap_or_default()
}

/// Whether a value can be read as a kind; else what was expected. Quoted numbers and truth values are understood.
fn fits(kind: Kind, value: &Value) -> Result<(), &'static str> {
    let ok = match kind {
        Kind::Text => matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_)),
        Kind::Bool => as_bool(value).is_some(),
        Kind::Int => as_int(value).is_some(),
        Kind::Float => as_float(value).is_some(),
        Kind::Duration => as_duration(value).is_some(),
        Kind::List => matches!(value, Value::Array(items) if items.iter().all(|i| !i.is_object())) || value.is_string(),
        Kind::Map => value.is_object(),
    };
    let expected = match kind {
        Kind::Text => "text",
        Kind::Bool => "true or false",
        Kind::Int => "a whole number",
        Kind::Float => "a number",
        Kind::Duration => "a duration such as \"10s\" or \"1h30m\"",
        Kind::List => "a list",
        Kind::Map => "a block or map",
    };
    if ok { Ok(()) } else { Err(expected) }
}

/// A truth value, quoted or not.
pub fn as_bool(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(b) => Some(*b),
        Value::String(text) => match text.as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        },
        Value::Number(n) => match n.as_i64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
        _ => None,
    }
}

/// A whole number, quoted or not.
pub fn as_int(value: &Value) -> Option<i64> {
    match value {
        Value::Number(n) => n.as_i64().or_else(|| whole(n.as_f64()?)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A float that is a whole number within the range floats hold exactly.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    // In range and without a fraction, so the cast keeps the value.
    #[allow(clippy::cast_possible_truncation)]
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

/// A number, quoted or not.
pub fn as_float(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::String(text) => text.trim().parse().ok().filter(|f: &f64| f.is_finite()),
        _ => None,
    }
}

/// A duration in nanoseconds: Go duration text, or a number of nanoseconds.
pub fn as_duration(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => duration::parse(text.trim()).ok(),
        Value::Number(_) => as_int(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn findings(value: Value) -> Vec<(String, Severity)> {
        match unfold(value) {
            Value::Object(tree) => check(&tree).into_iter().map(|f| (f.path, f.severity)).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn known_keys_pass_and_unknown_ones_are_named() {
        assert_eq!(findings(json!({"ports": {"http": "4646"}, "server": [{"enabled": true}]})), []);
        assert_eq!(findings(json!({"bananas": 5})), [("bananas".to_string(), Severity::Error)]);
        assert_eq!(findings(json!({"server": {"enabeld": true}})), [("server.enabeld".to_string(), Severity::Error)]);
        assert!(suggestion("server.enabeld").contains("enabled"));
        assert!(suggestion("clinet").contains("client"));
    }

    #[test]
    fn promises_refuse_and_harmless_keys_warn() {
        assert_eq!(findings(json!({"acl": {"enabled": true}})), [("acl.enabled".to_string(), Severity::Error)]);
        assert_eq!(findings(json!({"acl": {"enabled": false}})), []);
        assert_eq!(
            findings(json!({"disable_update_check": true})),
            [("disable_update_check".to_string(), Severity::Warning)]
        );
        assert_eq!(
            findings(
                json!({"client": {"host_volume": {"data": {"path": "/srv"}}}, "plugin": {"raw_exec": {"config": {"enabled": true}}}})
            ),
            []
        );
    }

    #[test]
    fn every_key_of_the_table_is_found_and_judged() {
        for key in KEYS {
            let path = key.path.replace('*', "x");
            assert_eq!(lookup(&path), Some(key), "{path}");
            let value = match key.kind {
                Kind::Text => json!("word"),
                Kind::Bool => json!(true),
                Kind::Int | Kind::Float => json!(7),
                Kind::Duration => json!("7s"),
                Kind::List => json!(["a"]),
                Kind::Map => json!({"a": "b"}),
            };
            let tree = path.rsplit('.').fold(value, |inner, name| json!({ name: inner }));
            let expected: Vec<(String, Severity)> = match key.effect {
                Effect::Acts => vec![],
                Effect::Warns => vec![(path, Severity::Warning)],
                Effect::Refuses => vec![(path, Severity::Error)],
            };
            assert_eq!(findings(tree), expected);
        }
    }

    #[test]
    fn later_files_win() {
        let mut tree = Map::new();
        for part in [
            json!({"region": "a", "server": {"enabled": true}}),
            json!({"region": "b", "server": {"num_schedulers": 1}}),
        ] {
            if let Value::Object(fields) = part {
                merge(&mut tree, fields);
            }
        }
        assert_eq!(Value::Object(tree), json!({"region": "b", "server": {"enabled": true, "num_schedulers": 1}}));
    }
}
