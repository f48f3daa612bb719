//! Lists and maps.

use super::{failure, list_of, text_of, whole};
use crate::builtin::CallError;
use crate::show::{nested, type_name};
use crate::{MAX_OUTPUT_BYTES, MAX_STEPS};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub(super) fn call(name: &str, a: &[Value]) -> Option<Result<Value, CallError>> {
    Some(match (name, a) {
        ("contains", [value, within]) | ("in", [within, value]) => contains(within, value).map(Value::Bool),
        ("containsAll", [wanted, list]) => every(wanted, list, true).map(Value::Bool),
        ("containsNotAll", [wanted, list]) => every(wanted, list, true).map(|all| Value::Bool(!all)),
        ("containsAny", [wanted, list]) => every(wanted, list, false).map(|none| Value::Bool(!none)),
        ("containsNone", [wanted, list]) => every(wanted, list, false).map(Value::Bool),
        ("split", [by, text]) => split(by, text),
        ("splitToMap", [items, pair, text]) => split_to_map(items, pair, text),
        ("join", [by, list]) | ("sprig_join", [by, list]) => join(by, list),
        ("loop", [end]) => whole(end).and_then(|end| numbers(0, end)),
        ("loop", [start, end]) => whole(start).and_then(|start| numbers(start, whole(end)?)),
        ("byTag", [services]) => by_tag(services),
        ("explodeMap", [map]) => explode(map),
        ("mergeMap", [over, base]) => merge(base, over, false),
        ("mergeMapWithOverride", [over, base]) => merge(base, over, true),
        ("sprig_list", all) => Ok(Value::Array(all.to_vec())),
        ("sprig_dict", all) => Ok(dict(all)),
        ("sprig_first", [list]) => list_of(list).map(|l| l.first().cloned().unwrap_or(Value::Null)),
        ("sprig_last", [list]) => list_of(list).map(|l| l.last().cloned().unwrap_or(Value::Null)),
        _ => return None,
    })
}

fn contains(within: &Value, value: &Value) -> Result<bool, CallError> {
    match within {
        Value::String(text) => Ok(text.contains(text_of(value)?)),
        Value::Array(items) => Ok(items.contains(value)),
        Value::Object(map) => Ok(map.contains_key(text_of(value)?)),
        Value::Null => Ok(false),
        other => Err(failure(format!("{} is no list", type_name(other)))),
    }
}

/// Whether each wanted item is, or is not, in the list.
fn every(wanted: &Value, list: &Value, there: bool) -> Result<bool, CallError> {
    let list = list_of(list)?;
    Ok(list_of(wanted)?.iter().all(|item| list.contains(item) == there))
}

fn split(by: &Value, text: &Value) -> Result<Value, CallError> {
    let (by, text) = (text_of(by)?, text_of(text)?.trim());
    Ok(Value::Array(match (by, text) {
        (_, "") => Vec::new(),
        ("", text) => text.chars().map(|c| c.to_string().into()).collect(),
        (by, text) => text.split(by).map(Into::into).collect(),
    }))
}

fn split_to_map(items: &Value, pair: &Value, text: &Value) -> Result<Value, CallError> {
    let (items, pair, text) = (text_of(items)?, text_of(pair)?, text_of(text)?.trim());
    let mut map = Map::new();
    for item in text.split(items).filter(|item| !item.is_empty()) {
        let (key, value) = item.split_once(pair).unwrap_or((item, ""));
        map.insert(key.to_string(), value.into());
    }
    Ok(Value::Object(map))
}

fn join(by: &Value, list: &Value) -> Result<Value, CallError> {
    let by = text_of(by)?;
    let mut out = String::new();
    for (at, item) in list_of(list)?.iter().enumerate() {
        if at > 0 {
            out.push_str(by);
        }
        out.push_str(&nested(item));
        if out.len() > MAX_OUTPUT_BYTES {
            return Err(failure(format!("more than {MAX_OUTPUT_BYTES} bytes")));
        }
    }
    Ok(out.into())
}

fn numbers(start: i64, end: i64) -> Result<Value, CallError> {
    if usize::try_from(end.saturating_sub(start)).unwrap_or(0) > MAX_STEPS / 10 {
        return Err(failure(format!("loop: more than {} rounds", MAX_STEPS / 10)));
    }
    Ok((start..end).map(Value::from).collect())
}

fn by_tag(services: &Value) -> Result<Value, CallError> {
    let mut groups: Map<String, Value> = Map::new();
    for service in list_of(services)? {
        for tag in service.get("Tags").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            let group = groups.entry(tag).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(group) = group {
                group.push(service.clone());
            }
        }
    }
    Ok(Value::Object(groups))
}

fn object(value: &Value) -> Result<&Map<String, Value>, CallError> {
    value.as_object().ok_or_else(|| failure(format!("{} is no map", type_name(value))))
}

/// `{"a/b": 1}` to `{"a": {"b": 1}}`.
fn explode(map: &Value) -> Result<Value, CallError> {
    /// Levels that a key may have.
    const DEEPEST: usize = 64;
    let mut out = Map::new();
    for (key, value) in object(map)? {
        let mut parts: Vec<&str> = key.split('/').collect();
        if parts.len() > DEEPEST {
            return Err(failure(format!("explodeMap: {key:?} has more than {DEEPEST} levels")));
        }
        let last = parts.pop().unwrap_or_default();
        let mut at = &mut out;
        for part in parts {
            let inner = at.entry(part).or_insert_with(|| Value::Object(Map::new()));
            at = inner
                .as_object_mut()
                .ok_or_else(|| failure(format!("explodeMap: not a map: {part:?} has a value already")))?;
        }
        at.insert(last.to_string(), value.clone());
    }
    Ok(Value::Object(out))
}

fn merge(base: &Value, over: &Value, override_: bool) -> Result<Value, CallError> {
    let mut out = object(base)?.clone();
    for (key, value) in object(over)? {
        if override_ || !out.contains_key(key) {
            out.insert(key.clone(), value.clone());
        }
    }
    Ok(Value::Object(out))
}

fn dict(all: &[Value]) -> Value {
    let mut out = Map::new();
    for pair in all.chunks(2) {
        if let Some(key) = pair.first() {
            out.insert(nested(key), pair.get(1).cloned().unwrap_or_else(|| "".into()));
        }
    }
    Value::Object(out)
}

/// So many instances, the same ones for the same key (rendezvous hashing).
pub(super) fn chosen(all: Vec<Value>, number: usize, key: &str) -> Vec<Value> {
    let mut ranked: Vec<_> = all
        .into_iter()
        .map(|instance| {
            let id = instance.get("ID").and_then(Value::as_str).unwrap_or_default();
            let rank: [u8; 32] = Sha256::digest(format!("{key}\0{id}")).into();
            (rank, instance)
        })
        .collect();
    ranked.sort_by_key(|ranked| ranked.0);
    ranked.into_iter().take(number).map(|(_, instance)| instance).collect()
}
