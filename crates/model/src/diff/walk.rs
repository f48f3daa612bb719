//! The walk over two values by a shape.

use super::shape::{Nest, Shape};
use super::{DiffType, FieldDiff, ObjectDiff};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Fields and blocks that differ (or are shown for context).
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub fields: Vec<FieldDiff>,
    pub objects: Vec<ObjectDiff>,
    changed: bool,
}

impl Parts {
    pub fn is_empty(&self) -> bool {
        !self.changed
    }

    fn object(&mut self, object: Option<ObjectDiff>) {
        if let Some(object) = object {
            self.changed |= object.kind != DiffType::None;
            self.objects.push(object);
        }
    }
}

/// What became of a thing that is `a` before and `b` after.
pub(super) fn kind(a: Option<&Value>, b: Option<&Value>, changed: bool) -> DiffType {
    match (a, b) {
        (None, Some(_)) => DiffType::Added,
        (Some(_), None) => DiffType::Deleted,
        _ if changed => DiffType::Edited,
        _ => DiffType::None,
    }
}

/// What differs of a block.
pub(super) fn block(shape: &Shape, a: Option<&Value>, b: Option<&Value>, contextual: bool) -> Parts {
    let mut parts = Parts::default();
    let shown = contextual && shape.context;
    let both = a.is_some() && b.is_some();
    let edits = shape.edits_only.iter().filter(|_| both);
    for name in shape.fields.iter().chain(edits) {
        let text = |block: Option<&Value>| {
            block.and_then(|v| scalar(v.get(*name), shape.nil.contains(name)).or_else(|| left_out(v, name)))
        };
        field(&mut parts, name, text(a), text(b), shown);
    }
    for map in shape.maps {
        let (old, new) = (flat(a.and_then(|v| v.get(*map)), map), flat(b.and_then(|v| v.get(*map)), map));
        fields_of(&mut parts, &old, &new, shown);
    }
    parts.fields.sort_by(|x, y| (&x.name, &x.old, &x.new).cmp(&(&y.name, &y.old, &y.new)));
    for (key, how) in shape.nests {
        let inner = |v: Option<&'_ Value>| v.and_then(|v| v.get(*key)).filter(|v| !v.is_null()).cloned();
        nest(&mut parts, key, how, inner(a), inner(b), contextual, shown);
    }
    parts
}

fn nest(
    parts: &mut Parts,
    key: &str,
    how: &Nest,
    old: Option<Value>,
    new: Option<Value>,
    contextual: bool,
    shown: bool,
) {
    let (a, b) = (old.as_ref(), new.as_ref());
    match how {
        Nest::Texts => parts.object(texts(key, a, b, shown)),
        Nest::One(name, shape) => parts.object(object(name, shape, a, b, contextual)),
        Nest::Free(name, context) => parts.object(free(name, a, b, contextual && *context)),
        Nest::Whole(name, shape) => whole(parts, name, shape, a, b, contextual),
        Nest::Keyed(name, shape, keys) => {
            for (a, b) in pairs(items(a), items(b), keys) {
                parts.object(object(name, shape, a, b, contextual));
            }
        }
        Nest::Named(name, shape) => {
            let keys: BTreeSet<&String> =
                [a, b].into_iter().flatten().filter_map(Value::as_object).flat_map(|m| m.keys()).collect();
            for key in keys {
                let (a, b) = (a.and_then(|v| v.get(key)), b.and_then(|v| v.get(key)));
                parts.object(object(name, shape, a, b, contextual));
            }
        }
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A block of its own, if it differs.
fn object(name: &str, shape: &Shape, a: Option<&Value>, b: Option<&Value>, contextual: bool) -> Option<ObjectDiff> {
    let parts = block(shape, a, b, contextual);
    let kind = kind(a, b, !parts.is_empty());
    (kind != DiffType::None && (a.is_some() || b.is_some())).then(|| ObjectDiff {
        kind,
        name: name.to_string(),
        fields: parts.fields.into(),
        objects: parts.objects.into(),
    })
}

/// Blocks that are the same or not: those only after are added, those only before deleted.
fn whole(parts: &mut Parts, name: &str, shape: &Shape, a: Option<&Value>, b: Option<&Value>, contextual: bool) {
    let (old, new) = (items(a), items(b));
    for (index, item) in new.iter().enumerate() {
        if count(old, item) < count_to(new, item, index) {
            parts.object(object(name, shape, None, Some(item), contextual));
        }
    }
    for (index, item) in old.iter().enumerate() {
        if count(new, item) < count_to(old, item, index) {
            parts.object(object(name, shape, Some(item), None, contextual));
        }
    }
}

fn count(list: &[Value], item: &Value) -> usize {
    list.iter().filter(|other| *other == item).count()
}

/// How many of `item` there are up to and including this position.
fn count_to(list: &[Value], item: &Value, index: usize) -> usize {
    list.iter().take(index.saturating_add(1)).filter(|other| *other == item).count()
}

/// A pair of blocks, before and after.
type Pair<'a> = (Option<&'a Value>, Option<&'a Value>);

/// Blocks matched by key fields, sorted by key; equal keys are matched in order.
pub(super) fn pairs<'a>(old: &'a [Value], new: &'a [Value], keys: &[&str]) -> Vec<Pair<'a>> {
    let mut by_key: BTreeMap<(Vec<String>, usize), Pair<'a>> = BTreeMap::new();
    for (list, is_new) in [(old, false), (new, true)] {
        let mut seen: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for item in list {
            let key: Vec<String> = keys.iter().map(|k| scalar(item.get(*k), false).unwrap_or_default()).collect();
            let nth = seen.entry(key.clone()).or_default();
            let pair = by_key.entry((key, *nth)).or_default();
            *nth += 1;
            if is_new {
                pair.1 = Some(item);
            } else {
                pair.0 = Some(item);
            }
        }
    }
    by_key.into_values().collect()
}

/// Texts without order: what was added, deleted and (for context) kept.
fn texts(name: &str, a: Option<&Value>, b: Option<&Value>, shown: bool) -> Option<ObjectDiff> {
    let set =
        |v: Option<&Value>| -> BTreeSet<String> { items(v).iter().filter_map(|t| scalar(Some(t), false)).collect() };
    let (old, new) = (set(a), set(b));
    let diff = |kind, old: &str, new: &str| FieldDiff {
        kind,
        name: name.to_string(),
        old: old.to_string(),
        new: new.to_string(),
        annotations: Default::default(),
    };
    let mut fields: Vec<FieldDiff> = new.difference(&old).map(|t| diff(DiffType::Added, "", t)).collect();
    let added = !fields.is_empty();
    fields.extend(old.difference(&new).map(|t| diff(DiffType::Deleted, t, "")));
    let deleted = old.difference(&new).next().is_some();
    let kind = match (added, deleted) {
        (true, true) => DiffType::Edited,
        (true, false) => DiffType::Added,
        (false, true) => DiffType::Deleted,
        (false, false) => DiffType::None,
    };
    if kind != DiffType::None || shown {
        fields.extend(old.intersection(&new).map(|t| diff(DiffType::None, t, t)));
    }
    (!fields.is_empty()).then(|| ObjectDiff {
        kind,
        name: name.to_string(),
        fields: fields.into(),
        objects: Default::default(),
    })
}

/// A free value, shown flat.
fn free(name: &str, a: Option<&Value>, b: Option<&Value>, shown: bool) -> Option<ObjectDiff> {
    let (old, new) = (flat(a, ""), flat(b, ""));
    if old == new {
        return None;
    }
    let mut parts = Parts::default();
    fields_of(&mut parts, &old, &new, shown);
    let kind = kind(a, b, true);
    Some(ObjectDiff { kind, name: name.to_string(), fields: parts.fields.into(), objects: Default::default() })
}

fn fields_of(parts: &mut Parts, old: &BTreeMap<String, String>, new: &BTreeMap<String, String>, shown: bool) {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        field(parts, name, old.get(name).cloned(), new.get(name).cloned(), shown);
    }
}

/// A field; one that is empty before and after is unchanged, also where the block is new.
fn field(parts: &mut Parts, name: &str, old: Option<String>, new: Option<String>, shown: bool) {
    if old.is_none() && new.is_none() {
        return;
    }
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    let kind = match (old.is_empty(), new.is_empty()) {
        _ if old == new => DiffType::None,
        (true, _) => DiffType::Added,
        (_, true) => DiffType::Deleted,
        _ => DiffType::Edited,
    };
    parts.changed |= kind != DiffType::None;
    if kind != DiffType::None || shown {
        parts.fields.push(FieldDiff { kind, name: name.to_string(), old, new, annotations: Default::default() });
    }
}

/// The zero value of a field that networks and ports leave out.
fn left_out(block: &Value, name: &str) -> Option<String> {
    if block.get(name).is_some() {
        return None;
    }
    let zero = match name {
        "To" | "Value" => "0",
        "IgnoreCollision" => "false",
        "Hostname" | "Mode" | "HostNetwork" => "",
        _ => return None,
    };
    Some(zero.to_string())
}

/// The text of a scalar.
fn scalar(value: Option<&Value>, nil: bool) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Bool(flag)) => Some(flag.to_string()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(Value::Null) | None if nil => Some("nil".to_string()),
        _ => None,
    }
}

/// Every scalar of a free value under its path: `a[0][b]`.
fn flat(value: Option<&Value>, name: &str) -> BTreeMap<String, String> {
    fn go(value: &Value, path: String, out: &mut BTreeMap<String, String>) {
        let below = |key: &str| if path.is_empty() { key.to_string() } else { format!("{path}[{key}]") };
        match value {
            Value::Object(map) => map.iter().for_each(|(key, item)| go(item, below(key), out)),
            Value::Array(list) => list.iter().enumerate().for_each(|(i, item)| go(item, format!("{path}[{i}]"), out)),
            Value::Null => {}
            scalar_value => {
                if let Some(text) = scalar(Some(scalar_value), false) {
                    out.insert(path, text);
                }
            }
        }
    }
    let mut out = BTreeMap::new();
    if let Some(value) = value {
        go(value, name.to_string(), &mut out);
    }
    out
}
