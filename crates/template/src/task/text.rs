//! Texts.

use super::{failure, text_of, whole};
use crate::MAX_OUTPUT_BYTES;
use crate::builtin::CallError;
use crate::show::{nested, truth};
use regex::Regex;
use serde_json::Value;

pub(super) fn call(name: &str, a: &[Value]) -> Option<Result<Value, CallError>> {
    Some(match (name, a) {
        ("toLower" | "sprig_lower", [s]) => text_of(s).map(|s| s.to_lowercase().into()),
        ("toUpper" | "sprig_upper", [s]) => text_of(s).map(|s| s.to_uppercase().into()),
        ("toTitle", [s]) => text_of(s).map(|s| title(s).into()),
        ("trimSpace" | "sprig_trim", [s]) => text_of(s).map(|s| s.trim().into()),
        ("trim", [set, s]) => two(set, s, |set, s| s.trim_matches(|c| set.contains(c)).into()),
        ("trimPrefix", [p, s]) => two(p, s, |p, s| s.strip_prefix(p).unwrap_or(s).into()),
        ("trimSuffix", [p, s]) => two(p, s, |p, s| s.strip_suffix(p).unwrap_or(s).into()),
        ("replaceAll" | "sprig_replace", [from, to, s]) => replaced(from, to, s),
        ("regexMatch", [re, s]) => pattern(re).and_then(|re| Ok(re.is_match(text_of(s)?).into())),
        ("regexReplaceAll", [re, to, s]) => regex_replaced(re, to, s),
        ("indent", [spaces, s]) => indent(spaces, s),
        ("parseBool", [s]) => text_of(s).and_then(parse_bool),
        ("parseInt", [s]) => text_of(s).and_then(|s| number(s, "parseInt", "ParseInt", s.parse::<i64>())),
        ("parseUint", [s]) => text_of(s).and_then(|s| number(s, "parseUint", "ParseUint", s.parse::<u64>())),
        ("parseFloat", [s]) => text_of(s).and_then(|s| number(s, "parseFloat", "ParseFloat", s.parse::<f64>())),
        ("sprig_default", [_, value]) if truth(value) => Ok(value.clone()),
        ("sprig_default", [other, ..]) => Ok(other.clone()),
        ("sprig_ternary", [yes, no, test]) => Ok(if truth(test) { yes.clone() } else { no.clone() }),
        ("sprig_trunc", [length, s]) => truncated(length, s),
        ("sprig_quote", all) => Ok(each(all, crate::printf::quote)),
        ("sprig_squote", all) => Ok(each(all, |s| format!("'{s}'"))),
        _ => return None,
    })
}

fn two(a: &Value, b: &Value, f: impl FnOnce(&str, &str) -> Value) -> Result<Value, CallError> {
    Ok(f(text_of(a)?, text_of(b)?))
}

fn each(all: &[Value], f: impl Fn(&str) -> String) -> Value {
    let words: Vec<String> = all.iter().filter(|v| !v.is_null()).map(|v| f(&nested(v))).collect();
    words.join(" ").into()
}

/// The first letter of each word large.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.push(c)
        } else {
            out.extend(c.to_uppercase())
        }
        inside = c.is_alphanumeric() || c == '_' || c == '\'';
    }
    out
}

fn replaced(from: &Value, to: &Value, text: &Value) -> Result<Value, CallError> {
    let (from, to, text) = (text_of(from)?, text_of(to)?, text_of(text)?);
    let places = if from.is_empty() { text.chars().count().saturating_add(1) } else { text.matches(from).count() };
    if text.len().saturating_add(places.saturating_mul(to.len())) > MAX_OUTPUT_BYTES {
        return Err(failure(format!("more than {MAX_OUTPUT_BYTES} bytes")));
    }
    Ok(text.replace(from, to).into())
}

fn pattern(re: &Value) -> Result<Regex, CallError> {
    Regex::new(text_of(re)?).map_err(|error| failure(format!("error parsing regexp: {error}")))
}

fn regex_replaced(re: &Value, to: &Value, text: &Value) -> Result<Value, CallError> {
    let (re, to, text) = (pattern(re)?, text_of(to)?, text_of(text)?);
    let mut out = String::new();
    let mut last = 0;
    for found in re.captures_iter(text) {
        let Some(all) = found.get(0) else { continue };
        out.push_str(text.get(last..all.start()).unwrap_or_default());
        found.expand(to, &mut out);
        last = all.end();
        if out.len() > MAX_OUTPUT_BYTES {
            return Err(failure(format!("more than {MAX_OUTPUT_BYTES} bytes")));
        }
    }
    out.push_str(text.get(last..).unwrap_or_default());
    Ok(out.into())
}

fn indent(spaces: &Value, text: &Value) -> Result<Value, CallError> {
    let (spaces, text) = (whole(spaces)?, text_of(text)?);
    let spaces = usize::try_from(spaces).map_err(|_| failure("indent value must be a positive integer"))?;
    let lines = text.matches('\n').count().saturating_add(1);
    if text.len().saturating_add(lines.saturating_mul(spaces)) > MAX_OUTPUT_BYTES {
        return Err(failure(format!("more than {MAX_OUTPUT_BYTES} bytes")));
    }
    let pad = " ".repeat(spaces);
    let out: Vec<String> =
        text.split('\n').map(|line| if line.is_empty() { String::new() } else { format!("{pad}{line}") }).collect();
    Ok(out.join("\n").into())
}

fn truncated(length: &Value, text: &Value) -> Result<Value, CallError> {
    let (length, text) = (whole(length)?, text_of(text)?);
    let all = text.chars().count();
    let keep = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
    Ok(if length < 0 {
        text.chars().skip(all.saturating_sub(keep)).collect::<String>().into()
    } else {
        text.chars().take(keep).collect::<String>().into()
    })
}

fn parse_bool(text: &str) -> Result<Value, CallError> {
    match text {
        "" => Ok(false.into()),
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true.into()),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false.into()),
        other => Err(failure(format!("parseBool: strconv.ParseBool: parsing {other:?}: invalid syntax"))),
    }
}

fn number<N: Into<Value>, E>(text: &str, name: &str, go: &str, parsed: Result<N, E>) -> Result<Value, CallError> {
    if text.is_empty() {
        return Ok(0.into());
    }
    let digits = text.trim_start_matches(['-', '+']);
    let why = if !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && !(go == "ParseUint" && text.starts_with('-'))
    {
        "value out of range"
    } else {
        "invalid syntax"
    };
    parsed.map(Into::into).map_err(|_| failure(format!("{name}: strconv.{go}: parsing {text:?}: {why}")))
}
