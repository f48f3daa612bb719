//! Conversions between types, and the type that several values have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::value::{Type, Value};
use crate::number::Number;

/// Converts a value; the error says what is required.
pub fn convert(value: &Value, wanted: &Type) -> Result<Value, String> {
    match (value, wanted) {
        (_, Type::Any) | (Value::Null, _) => Ok(value.clone()),
        (Value::Bool(_), Type::Bool) | (Value::Number(_), Type::Number) | (Value::String(_), Type::String) => {
            Ok(value.clone())
        }
        (_, Type::String) => to_string(value).map(Value::String),
        (_, Type::Number) => to_number(value).map(Value::Number),
        (_, Type::Bool) => to_bool(value).map(Value::Bool),
        (_, Type::List(element)) => {
            let items = elements(value, wanted)?;
            let (kind, items) = convert_all(&items, element)?;
            Ok(Value::list(kind, items))
        }
        (_, Type::Set(element)) => {
            let items = elements(value, wanted)?;
            let (kind, items) = convert_all(&items, element)?;
            Ok(Value::set(kind, items))
        }
        (_, Type::Map(element)) => {
            let members = value.members().ok_or_else(|| mismatch(value, wanted))?;
            let values: Vec<Value> = members.values().cloned().collect();
            let (kind, values) = convert_all(&values, element)?;
            Ok(Value::Map(kind, Arc::new(members.keys().cloned().zip(values).collect())))
        }
        (_, Type::Tuple(kinds)) => {
            let items = elements(value, wanted)?;
            if items.len() != kinds.len() {
                return Err(format!("tuple of {} elements required", kinds.len()));
            }
            let items = items.iter().zip(kinds).enumerate();
            let converted = items
                .map(|(i, (item, kind))| convert(item, kind).map_err(|e| format!("element {i}: {e}")))
                .collect::<Result<_, _>>()?;
            Ok(Value::tuple(converted))
        }
        (_, Type::Object(kinds)) => to_object(value, kinds, wanted),
    }
}

fn to_object(value: &Value, kinds: &BTreeMap<String, Type>, wanted: &Type) -> Result<Value, String> {
    let members = value.members().ok_or_else(|| mismatch(value, wanted))?;
    let mut out = BTreeMap::new();
    for (name, kind) in kinds {
        let Some(member) = members.get(name) else {
            return Err(format!("attribute {name:?} is required"));
        };
        out.insert(name.clone(), convert(member, kind).map_err(|e| format!("attribute {name:?}: {e}"))?);
    }
    Ok(Value::object(out))
}

fn elements(value: &Value, wanted: &Type) -> Result<Arc<Vec<Value>>, String> {
    value.items().cloned().ok_or_else(|| mismatch(value, wanted))
}

fn mismatch(value: &Value, wanted: &Type) -> String {
    format!("{} required, but have {}", wanted.name(), value.kind_name())
}

/// Converts all to one element type; `Any` means the type they have in common.
fn convert_all(items: &[Value], element: &Type) -> Result<(Type, Vec<Value>), String> {
    let kind = match element {
        Type::Any => unify_values(items).ok_or("all elements must have the same type")?,
        other => other.clone(),
    };
    let items = items
        .iter()
        .enumerate()
        .map(|(i, item)| convert(item, &kind).map_err(|e| format!("element {i}: {e}")))
        .collect::<Result<_, _>>()?;
    Ok((kind, items))
}

/// The text of a primitive value.
pub fn to_string(value: &Value) -> Result<Arc<str>, String> {
    match value {
        Value::String(text) => Ok(Arc::clone(text)),
        Value::Number(number) => Ok(number.to_string().into()),
        Value::Bool(true) => Ok("true".into()),
        Value::Bool(false) => Ok("false".into()),
        other => Err(format!("string required, but have {}", other.kind_name())),
    }
}

/// The number a value is or spells.
pub fn to_number(value: &Value) -> Result<Number, String> {
    match value {
        Value::Number(number) => Ok(number.clone()),
        Value::String(text) => Number::parse(text).ok_or_else(|| Type::Number.wanted()),
        other => Err(format!("number required, but have {}", other.kind_name())),
    }
}

/// The boolean a value is or spells.
pub fn to_bool(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(b) => Ok(*b),
        Value::String(text) => match &**text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            "True" | "TRUE" => Err("a bool is required; to convert from string, use lowercase \"true\"".to_owned()),
            "False" | "FALSE" => Err("a bool is required; to convert from string, use lowercase \"false\"".to_owned()),
            _ => Err(Type::Bool.wanted()),
        },
        other => Err(format!("bool required, but have {}", other.kind_name())),
    }
}

/// The type that all values convert to, if there is one.
pub fn unify_values(values: &[Value]) -> Option<Type> {
    unify(&values.iter().map(Value::kind).collect::<Vec<_>>())
}

/// The type that all types convert to, if there is one.
pub fn unify(kinds: &[Type]) -> Option<Type> {
    let mut known = kinds.iter().filter(|k| **k != Type::Any);
    let Some(first) = known.next() else { return Some(Type::Any) };
    if kinds.iter().all(|k| k == first || *k == Type::Any) {
        return Some(first.clone());
    }
    let all: Vec<&Type> = kinds.iter().filter(|k| **k != Type::Any).collect();
    if all.iter().all(|k| matches!(k, Type::Bool | Type::Number | Type::String)) {
        // Numbers and booleans have only the text in common.
        return Some(Type::String);
    }
    let same_len = |n: usize| all.iter().all(|k| matches!(k, Type::Tuple(t) if t.len() == n));
    if let Type::Tuple(t) = first
        && same_len(t.len())
    {
        let columns = (0..t.len()).map(|i| {
            let column: Vec<Type> = all.iter().filter_map(|k| element_kind(k, i)).collect();
            unify(&column)
        });
        return columns.collect::<Option<Vec<_>>>().map(Type::Tuple);
    }
    if all.iter().all(|k| matches!(k, Type::List(_) | Type::Tuple(_))) {
        return unify(&all.iter().flat_map(|k| inner_kinds(k)).collect::<Vec<_>>()).map(|t| Type::List(Box::new(t)));
    }
    if all.iter().all(|k| matches!(k, Type::Set(_) | Type::List(_) | Type::Tuple(_))) {
        return unify(&all.iter().flat_map(|k| inner_kinds(k)).collect::<Vec<_>>()).map(|t| Type::Set(Box::new(t)));
    }
    unify_members(&all)
}

fn unify_members(all: &[&Type]) -> Option<Type> {
    if !all.iter().all(|k| matches!(k, Type::Map(_) | Type::Object(_))) {
        return None;
    }
    if let Some(Type::Object(first)) = all.first()
        && all.iter().all(|k| matches!(k, Type::Object(o) if o.keys().eq(first.keys())))
    {
        let mut out = BTreeMap::new();
        for name in first.keys() {
            let column: Vec<Type> = all
                .iter()
                .filter_map(|k| match k {
                    Type::Object(o) => o.get(name).cloned(),
                    _ => None,
                })
                .collect();
            out.insert(name.clone(), unify(&column)?);
        }
        return Some(Type::Object(out));
    }
    unify(&all.iter().flat_map(|k| inner_kinds(k)).collect::<Vec<_>>()).map(|t| Type::Map(Box::new(t)))
}

fn element_kind(kind: &Type, i: usize) -> Option<Type> {
    match kind {
        Type::Tuple(t) => t.get(i).cloned(),
        _ => None,
    }
}

fn inner_kinds(kind: &Type) -> Vec<Type> {
    match kind {
        Type::List(t) | Type::Set(t) | Type::Map(t) => vec![(**t).clone()],
        Type::Tuple(t) => t.clone(),
        Type::Object(o) => o.values().cloned().collect(),
        _ => Vec::new(),
    }
}
