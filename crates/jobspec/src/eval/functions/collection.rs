//! Functions of lists, sets, maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Answer, Args, CallFault, bad, failed};
use crate::eval::convert::{self, convert, unify, unify_values};
use crate::eval::value::{Type, Value};

const NOT_A_COLLECTION: &str = "collection must be a list, a map or a tuple";

pub(super) fn chunklist(args: &Args<'_>) -> Answer {
    let items = args.items(0);
    let size = match usize::try_from(args.int(1)?) {
        Ok(0) => items.len().max(1),
        Ok(size) => size,
        Err(_) => return failed("the size argument must be positive"),
    };
    let kind = unify_values(&items).unwrap_or(Type::Any);
    let chunks = items.chunks(size).map(|c| Value::list(kind.clone(), c.to_vec())).collect();
    Ok(Value::list(Type::List(Box::new(kind)), chunks))
}

pub(super) fn coalesce(args: &Args<'_>) -> Answer {
    let kind = match unify_values(args.all()) {
        Some(kind) if !args.all().is_empty() => kind,
        _ => return failed("all arguments must have the same type"),
    };
    match args.all().iter().find(|v| !v.is_null()) {
        Some(value) => convert(value, &kind).map_err(CallFault::Call),
        None => failed("no non-null arguments"),
    }
}

pub(super) fn coalescelist(args: &Args<'_>) -> Answer {
    if args.all().is_empty() {
        return failed("at least one argument is required");
    }
    for value in args.all() {
        match value.items() {
            Some(items) if !items.is_empty() => return Ok(value.clone()),
            Some(_) => {}
            None => return failed("coalescelist arguments must be lists or tuples"),
        }
    }
    failed("no non-null arguments")
}

pub(super) fn compact(args: &Args<'_>) -> Answer {
    let keep = |v: &&Value| matches!(v, Value::String(text) if !text.is_empty());
    Ok(Value::list(Type::String, args.items(0).iter().filter(keep).cloned().collect()))
}

pub(super) fn concat(args: &Args<'_>) -> Answer {
    if args.all().is_empty() {
        return failed("at least one argument is required");
    }
    let mut out = Vec::new();
    for (i, value) in args.all().iter().enumerate() {
        match value {
            Value::List(_, items) | Value::Tuple(items) => out.extend(items.iter().cloned()),
            other => {
                return bad(i, format!("all arguments must be lists or tuples; got {}", other.kind_name()));
            }
        }
    }
    let lists: Vec<Type> = args.all().iter().map(Value::kind).collect();
    match (lists.iter().all(|t| matches!(t, Type::List(_))), unify(&lists)) {
        (true, Some(kind @ Type::List(_))) => convert(&Value::tuple(out), &kind).map_err(CallFault::Call),
        _ => Ok(Value::tuple(out)),
    }
}

pub(super) fn contains(args: &Args<'_>) -> Answer {
    match args.value(0).items() {
        Some(items) => Ok(Value::Bool(items.iter().any(|v| v.equals(args.value(1))))),
        None => failed("argument must be list, tuple, or set"),
    }
}

pub(super) fn distinct(args: &Args<'_>) -> Answer {
    let items = args.items(0);
    let mut sorted: Vec<(usize, &Value)> = items.iter().enumerate().collect();
    sorted.sort_by(|a, b| a.1.order(b.1).then(a.0.cmp(&b.0)));
    sorted.dedup_by(|a, b| a.1.order(b.1).is_eq());
    sorted.sort_by_key(|(i, _)| *i);
    let kind = unify_values(&items).unwrap_or(Type::Any);
    Ok(Value::list(kind, sorted.into_iter().map(|(_, v)| v.clone()).collect()))
}

pub(super) fn element(args: &Args<'_>) -> Answer {
    let items = match args.value(0) {
        Value::List(_, items) | Value::Tuple(items) => items,
        other => return failed(format!("cannot read elements from {}", other.kind_name())),
    };
    let index = args.int(1)?;
    let Ok(count) = i64::try_from(items.len()) else { return failed("the list is too long") };
    if count == 0 {
        return failed("cannot use element function with an empty list");
    }
    let at = usize::try_from(index.rem_euclid(count)).unwrap_or(0);
    Ok(items.get(at).cloned().unwrap_or(Value::Null))
}

pub(super) fn flatten(args: &Args<'_>) -> Answer {
    fn add(items: &[Value], out: &mut Vec<Value>) {
        for item in items {
            match item.items() {
                Some(inner) => add(inner, out),
                None => out.push(item.clone()),
            }
        }
    }
    let Some(items) = args.value(0).items() else { return failed("can only flatten lists, sets and tuples") };
    let mut out = Vec::new();
    add(items, &mut out);
    Ok(Value::tuple(out))
}

pub(super) fn index(args: &Args<'_>) -> Answer {
    let key = args.value(1);
    match args.value(0) {
        value @ (Value::List(_, items) | Value::Tuple(items)) => {
            let Value::Number(number) = key else {
                let what = if matches!(value, Value::Tuple(_)) { "tuple" } else { "list" };
                return failed(format!("key for {what} must be number"));
            };
            match number.to_i64().and_then(|i| usize::try_from(i).ok()).and_then(|i| items.get(i)) {
                Some(item) => Ok(item.clone()),
                None => failed(format!("key must be between 0 and {} inclusive", items.len())),
            }
        }
        Value::Map(_, members) => match key {
            Value::String(name) => match members.get(&**name) {
                Some(value) => Ok(value.clone()),
                None => failed("the given key does not identify an element in this collection value"),
            },
            _ => failed("key for map must be string"),
        },
        _ => failed(NOT_A_COLLECTION),
    }
}

pub(super) fn keys(args: &Args<'_>) -> Answer {
    let value = args.value(0);
    let Some(members) = value.members() else { return bad(0, "must have map or object type") };
    let names = members.keys().map(Value::string).collect();
    Ok(if matches!(value, Value::Map(..)) { Value::list(Type::String, names) } else { Value::tuple(names) })
}

pub(super) fn length(args: &Args<'_>) -> Answer {
    match args.value(0) {
        Value::List(_, items) | Value::Set(_, items) | Value::Tuple(items) => Ok(Value::count(items.len())),
        Value::Map(_, members) => Ok(Value::count(members.len())),
        _ => failed(NOT_A_COLLECTION),
    }
}

pub(super) fn lookup(args: &Args<'_>) -> Answer {
    let value = args.value(0);
    let Some(members) = value.members() else {
        return bad(0, "lookup() requires a map as the first argument");
    };
    match (members.get(args.text(1)), value) {
        (Some(found), _) => Ok(found.clone()),
        (None, Value::Map(kind, _)) => convert(args.value(2), kind).or_else(|why| bad(2, why)),
        (None, _) => Ok(args.value(2).clone()),
    }
}

pub(super) fn merge(args: &Args<'_>) -> Answer {
    let mut out = BTreeMap::new();
    for value in args.all().iter().filter(|v| !v.is_null()) {
        let Some(members) = value.members() else {
            return failed(format!("arguments must be maps or objects, got {:?}", value.kind_name()));
        };
        out.extend(members.iter().map(|(k, v)| (k.clone(), v.clone())));
    }
    let maps: Vec<Type> = args.all().iter().map(Value::kind).collect();
    match maps.first() {
        Some(Type::Map(kind)) if maps.iter().all(|m| m == &Type::Map(kind.clone())) => {
            Ok(Value::Map((**kind).clone(), Arc::new(out)))
        }
        _ => Ok(Value::object(out)),
    }
}

/// All sets with elements of one type.
fn same_sets(args: &Args<'_>) -> Result<(Type, Vec<Vec<Value>>), CallFault> {
    let kinds: Vec<Type> = args
        .all()
        .iter()
        .filter_map(|v| match v {
            Value::Set(kind, _) => Some(kind.clone()),
            _ => None,
        })
        .collect();
    let Some(kind) = unify(&kinds) else {
        return failed("all sets must have the same element type");
    };
    let mut sets = Vec::new();
    for value in args.all() {
        let items = value.items().cloned().unwrap_or_default();
        let items: Result<Vec<Value>, String> = items.iter().map(|v| convert(v, &kind)).collect();
        sets.push(items.map_err(CallFault::Call)?);
    }
    Ok((kind, sets))
}

pub(super) fn setintersection(args: &Args<'_>) -> Answer {
    let (kind, sets) = same_sets(args)?;
    let sorted: Vec<Vec<Value>> = sets
        .iter()
        .skip(1)
        .map(|set| {
            let mut set = set.clone();
            set.sort_by(Value::order);
            set
        })
        .collect();
    let first = sets.into_iter().next().unwrap_or_default();
    let keep = |v: &Value| sorted.iter().all(|set| set.binary_search_by(|o| o.order(v)).is_ok());
    Ok(Value::set(kind, first.into_iter().filter(keep).collect()))
}

pub(super) fn setunion(args: &Args<'_>) -> Answer {
    let (kind, sets) = same_sets(args)?;
    Ok(Value::set(kind, sets.into_iter().flatten().collect()))
}

pub(super) fn setproduct(args: &Args<'_>) -> Answer {
    if args.all().len() < 2 {
        return failed("at least two arguments are required");
    }
    let mut sets = Vec::new();
    for (i, value) in args.all().iter().enumerate() {
        match value.items() {
            Some(items) => sets.push(Arc::clone(items)),
            None => return bad(i, "a set or a list is required"),
        }
    }
    let total = sets.iter().try_fold(1usize, |n, s| n.checked_mul(s.len()));
    let cells = total.and_then(|n| n.checked_mul(sets.len() + 1));
    if cells.is_none_or(|n| n > crate::eval::MAX_VALUE_WEIGHT) {
        return failed("the result would have too many elements");
    }
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for set in &sets {
        rows = rows
            .iter()
            .flat_map(|row| {
                set.iter().map(move |item| {
                    let mut row = row.clone();
                    row.push(item.clone());
                    row
                })
            })
            .collect();
    }
    let rows: Vec<Value> = rows.into_iter().map(Value::tuple).collect();
    let kind = unify_values(&rows).unwrap_or(Type::Any);
    if args.all().iter().all(|v| matches!(v, Value::Set(..))) {
        return Ok(Value::set(kind, rows));
    }
    Ok(Value::list(kind, rows))
}

pub(super) fn slice(args: &Args<'_>) -> Answer {
    let value = args.value(0);
    let items = match value {
        Value::List(_, items) | Value::Tuple(items) => items,
        Value::Set(..) => return bad(0, "cannot slice a set, because its elements do not have indices"),
        _ => return bad(0, "must be a list or tuple value"),
    };
    let (start, end) = (args.int(1)?, args.int(2)?);
    if start < 0 {
        return bad(1, "start index must not be less than zero");
    }
    let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
        return bad(2, "end index must not be less than zero");
    };
    if end > items.len() {
        return bad(2, "end index must not be greater than the length of the list");
    }
    if start > end {
        return bad(1, "start index must not be greater than end index");
    }
    let part = items.get(start..end).unwrap_or(&[]).to_vec();
    Ok(match value {
        Value::List(kind, _) => Value::list(kind.clone(), part),
        _ => Value::tuple(part),
    })
}

pub(super) fn sort(args: &Args<'_>) -> Answer {
    let items = args.items(0);
    if let Some(i) = items.iter().position(Value::is_null) {
        return failed(format!("given list element {i} is null; a null string cannot be sorted"));
    }
    let mut items = items.to_vec();
    items.sort_by(Value::order);
    Ok(Value::list(Type::String, items))
}

pub(super) fn values(args: &Args<'_>) -> Answer {
    match args.value(0) {
        Value::Map(kind, members) => Ok(Value::list(kind.clone(), members.values().cloned().collect())),
        Value::Object(members) => Ok(Value::tuple(members.values().cloned().collect())),
        _ => failed("values() requires a map as the first argument"),
    }
}

pub(super) fn zipmap(args: &Args<'_>) -> Answer {
    let names = args.items(0);
    let value = args.value(1);
    let items = match value {
        Value::List(_, items) | Value::Tuple(items) => items,
        _ => return bad(1, "values argument must be a list or tuple value"),
    };
    if names.len() != items.len() {
        return failed(format!("number of keys ({}) does not match number of values ({})", names.len(), items.len()));
    }
    let mut out = BTreeMap::new();
    for (name, item) in names.iter().zip(items.iter()) {
        match convert::to_string(name) {
            Ok(name) => out.insert(name.to_string(), item.clone()),
            Err(_) => return bad(0, "keys must not be null"),
        };
    }
    Ok(match value {
        Value::List(kind, _) => Value::Map(kind.clone(), Arc::new(out)),
        _ => Value::object(out),
    })
}
