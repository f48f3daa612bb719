//! Base64, JSON, CSV, URL.

use herdsman_expr::json::quote;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Answer, Args, check_len, failed};
use crate::eval::value::{Type, Value};
use crate::hcl::{Json, JsonKind, read_json};

pub(super) fn base64encode(args: &Args<'_>) -> Answer {
    Ok(Value::string(STANDARD.encode(args.text(0))))
}

pub(super) fn base64decode(args: &Args<'_>) -> Answer {
    let text = args.text(0);
    let clean: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match STANDARD.decode(clean) {
        Err(_) => failed(format!("failed to decode base64 data '{text}'")),
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Value::string(text)),
            Err(_) => failed("the result of decoding the the provided string is not valid UTF-8"),
        },
    }
}

pub(super) fn urlencode(args: &Args<'_>) -> Answer {
    let mut out = String::new();
    for byte in args.text(0).bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    check_len(out.len())?;
    Ok(Value::string(out))
}

/// A value as JSON; the error says why it has none.
pub(crate) fn to_json(value: &Value, out: &mut String) -> Result<(), String> {
    if out.len() > crate::eval::MAX_STRING_BYTES {
        return Err(format!("the result would have more than {} bytes", crate::eval::MAX_STRING_BYTES));
    }
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) if !n.is_finite() => return Err("cannot serialize infinity as JSON".to_owned()),
        Value::Number(n) => out.push_str(&n.to_string()),
        Value::String(text) => quote(out, text, true),
        other => {
            if let Some(items) = other.items() {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    to_json(item, out)?;
                }
                out.push(']');
            } else if let Some(members) = other.members() {
                out.push('{');
                for (i, (name, member)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    quote(out, name, true);
                    out.push(':');
                    to_json(member, out)?;
                }
                out.push('}');
            }
        }
    }
    Ok(())
}

pub(super) fn jsonencode(args: &Args<'_>) -> Answer {
    let mut out = String::new();
    match to_json(args.value(0), &mut out) {
        Ok(()) => Ok(Value::string(out)),
        Err(why) => failed(why),
    }
}

fn from_json(json: &Json) -> Value {
    match &json.kind {
        JsonKind::Null => Value::Null,
        JsonKind::Bool(b) => Value::Bool(*b),
        JsonKind::Number(n) => Value::Number(n.clone()),
        JsonKind::String(text) => Value::String(text.clone()),
        JsonKind::Array(items) => Value::tuple(items.iter().map(from_json).collect()),
        JsonKind::Object(properties) => {
            Value::object(properties.iter().map(|p| (p.name.name.to_string(), from_json(&p.value))).collect())
        }
    }
}

pub(super) fn jsondecode(args: &Args<'_>) -> Answer {
    let text = args.text(0);
    match read_json(text) {
        Ok(json) => Ok(from_json(&json)),
        Err((_, why)) if why.starts_with("At most") => failed(why),
        Err((at, _)) => match text.get(at..).and_then(|rest| rest.chars().next()) {
            Some(c) => failed(format!("invalid character '{c}'")),
            None if text.trim().is_empty() => failed("EOF"),
            None => failed("unexpected EOF"),
        },
    }
}

/// Records of comma separated values: quotes may hold commas, quotes (doubled) and line breaks.
fn csv_records(text: &str) -> Result<Vec<(usize, Vec<String>)>, String> {
    let mut records = Vec::new();
    let mut record: Vec<String> = Vec::new();
    let mut field = String::new();
    let mut chars = text.chars().peekable();
    let (mut line, mut record_line) = (1, 1);
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if quoted => {
                quoted = false;
                if !matches!(chars.peek(), None | Some(',' | '\n' | '\r')) {
                    return Err(format!("CSV parse error on line {line}: extraneous or missing \" in quoted-field"));
                }
            }
            c if quoted => {
                line += usize::from(c == '\n');
                field.push(c);
            }
            '"' if field.is_empty() => quoted = true,
            '"' => return Err(format!("CSV parse error on line {line}: bare \" in non-quoted-field")),
            ',' => record.push(std::mem::take(&mut field)),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => {
                line += 1;
                if !(record.is_empty() && field.is_empty()) {
                    record.push(std::mem::take(&mut field));
                    records.push((record_line, std::mem::take(&mut record)));
                }
                record_line = line;
            }
            c => field.push(c),
        }
    }
    if quoted {
        return Err(format!("CSV parse error on line {line}: extraneous or missing \" in quoted-field"));
    }
    if !(record.is_empty() && field.is_empty()) {
        record.push(field);
        records.push((record_line, record));
    }
    Ok(records)
}

pub(super) fn csvdecode(args: &Args<'_>) -> Answer {
    let records = match csv_records(args.text(0)) {
        Ok(records) => records,
        Err(why) => return failed(why),
    };
    let mut records = records.into_iter();
    let Some((_, header)) = records.next() else { return failed("missing header line") };
    for (i, name) in header.iter().enumerate() {
        if header.iter().take(i).any(|n| n == name) {
            return failed(format!("duplicate column name {name:?}"));
        }
    }
    let kind = Type::Object(header.iter().map(|name| (name.clone(), Type::String)).collect());
    let mut rows = Vec::new();
    for (line, record) in records {
        if record.len() != header.len() {
            return failed(format!("CSV parse error on line {line}: wrong number of fields"));
        }
        let row: BTreeMap<String, Value> = header.iter().cloned().zip(record.iter().map(Value::string)).collect();
        rows.push(Value::object(row));
    }
    Ok(Value::list(kind, rows))
}
