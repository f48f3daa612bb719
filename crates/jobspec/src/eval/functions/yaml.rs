//! YAML, as far as values of the language go.

use std::collections::BTreeMap;

use yaml_rust2::parser::{Event, MarkedEventReceiver, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};

use super::{Answer, Args, check_len, failed};
use crate::eval::value::Value;
use crate::number::Number;

/// Deepest nesting of a document.
const MAX_DEPTH: usize = 64;

/// A collection being read.
enum Open {
    List(Vec<Value>, usize),
    Map(BTreeMap<String, Value>, Option<String>, usize),
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: BTreeMap<usize, Value>,
    root: Option<Value>,
    documents: usize,
    weight: usize,
    fault: Option<String>,
}

impl Builder {
    fn fail(&mut self, why: impl Into<String>) {
        self.fault.get_or_insert(why.into());
    }

    fn add(&mut self, value: Value, anchor: usize) {
        // Aliases can repeat a large value many times.
        self.weight = self.weight.saturating_add(crate::eval::weigh(&value).unwrap_or(usize::MAX));
        if self.weight > crate::eval::MAX_VALUE_WEIGHT * 4 {
            return self.fail("the document is too large");
        }
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open::List(items, _)) => items.push(value),
            Some(Open::Map(members, key @ None, _)) => match crate::eval::convert::to_string(&value) {
                Ok(name) => {
                    if members.contains_key(&*name) {
                        let why = format!("mapping key {name:?} is defined twice");
                        return self.fail(why);
                    }
                    *key = Some(name.to_string());
                }
                Err(_) if value.is_null() => *key = Some("null".to_owned()),
                Err(_) => self.fail("a mapping key must be a string, number or boolean"),
            },
            Some(Open::Map(members, key, _)) => {
                let Some(name) = key.take() else { return };
                match value.members() {
                    // The merge key: what the mapping has itself wins.
                    Some(merged) if name == "<<" => {
                        for (k, v) in merged.iter() {
                            members.entry(k.clone()).or_insert_with(|| v.clone());
                        }
                    }
                    _ => {
                        members.insert(name, value);
                    }
                }
            }
        }
    }

    fn open(&mut self, open: Open) {
        if self.open.len() >= MAX_DEPTH {
            return self.fail(format!("at most {MAX_DEPTH} levels may be nested"));
        }
        self.open.push(open);
    }
}

impl MarkedEventReceiver for Builder {
    fn on_event(&mut self, event: Event, _: Marker) {
        if self.fault.is_some() {
            return;
        }
        match event {
            Event::DocumentStart => {
                self.documents += 1;
                if self.documents > 1 {
                    self.fail("unexpected extra content after value");
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|t| t.suffix);
                let value = if style == TScalarStyle::Plain && tag.as_deref() != Some("str") {
                    plain(&text)
                } else {
                    Value::string(text)
                };
                self.add(value, anchor);
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(value) => self.add(value, 0),
                None => self.fail("an alias refers to a value that is not complete"),
            },
            Event::SequenceStart(anchor, _) => self.open(Open::List(Vec::new(), anchor)),
            Event::MappingStart(anchor, _) => self.open(Open::Map(BTreeMap::new(), None, anchor)),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(items, anchor)) => self.add(Value::tuple(items), anchor),
                Some(Open::Map(members, _, anchor)) => self.add(Value::object(members), anchor),
                None => {}
            },
            _ => {}
        }
    }
}

/// What a scalar without quotes means.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Value::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" => {
            return Number::from_f64(f64::INFINITY).map_or(Value::Null, Value::Number);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Number::from_f64(f64::NEG_INFINITY).map_or(Value::Null, Value::Number),
        _ => {}
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = digits.strip_prefix(prefix)
            && let Ok(value) = i64::from_str_radix(digits, radix)
        {
            return Value::int(sign * value);
        }
    }
    if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.chars().any(|c| c.is_ascii_digit())
        && let Some(number) = Number::parse(text)
    {
        return Value::Number(number);
    }
    match date(text) {
        Some(time) => Value::string(time),
        None => Value::string(text),
    }
}

/// `2024-01-01` means that midnight.
fn date(text: &str) -> Option<String> {
    let shape = |i: usize, b: u8| if i == 4 || i == 7 { b == b'-' } else { b.is_ascii_digit() };
    let fits = text.len() == 10 && text.bytes().enumerate().all(|(i, b)| shape(i, b));
    fits.then(|| format!("{text}T00:00:00Z"))
}

pub(super) fn yamldecode(args: &Args<'_>) -> Answer {
    let text = args.text(0);
    let mut builder = Builder::default();
    let mut parser = Parser::new(text.chars());
    // Event by event: the parser's own loop would nest as deeply as the text.
    loop {
        match parser.next_token() {
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, marker)) => builder.on_event(event, marker),
            Err(error) => return failed(error.info().to_owned()),
        }
        if let Some(fault) = builder.fault {
            return failed(fault);
        }
    }
    match builder.root {
        Some(value) if builder.documents > 0 => Ok(value),
        _ => failed("on line 1, column 1: missing start of document"),
    }
}

pub(super) fn yamlencode(args: &Args<'_>) -> Answer {
    let mut out = String::new();
    match write(args.value(0), 0, &mut out) {
        Ok(()) => Ok(Value::string(out)),
        Err(why) => failed(why),
    }
}

/// Writes a value that begins on the current line; ends with a line end.
fn write(value: &Value, indent: usize, out: &mut String) -> Result<(), String> {
    check_len(out.len()).map_err(|_| "the result is too large".to_owned())?;
    match (value.items(), value.members()) {
        (Some(items), _) if items.is_empty() => out.push_str("[]\n"),
        (_, Some(members)) if members.is_empty() => out.push_str("{}\n"),
        (Some(items), _) => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str("- ");
                write(item, indent + 2, out)?;
            }
        }
        (_, Some(members)) => {
            for (i, (name, member)) in members.iter().enumerate() {
                if i > 0 {
                    out.push_str(&" ".repeat(indent));
                }
                quoted(name, out);
                out.push(':');
                write_member(member, indent, out)?;
            }
        }
        _ => scalar(value, indent, out)?,
    }
    Ok(())
}

fn write_member(member: &Value, indent: usize, out: &mut String) -> Result<(), String> {
    let block = member.items().is_some_and(|v| !v.is_empty()) || member.members().is_some_and(|v| !v.is_empty());
    if !block {
        out.push(' ');
        return write(member, indent, out);
    }
    // Lists stand at the column of their name, mappings two further.
    let inner = if member.items().is_some() { indent } else { indent + 2 };
    out.push('\n');
    out.push_str(&" ".repeat(inner));
    write(member, inner, out)
}

fn scalar(value: &Value, indent: usize, out: &mut String) -> Result<(), String> {
    match value {
        Value::Null => out.push_str("null\n"),
        Value::Bool(b) => out.push_str(if *b { "true\n" } else { "false\n" }),
        Value::Number(n) if !n.is_finite() => out.push_str(if n.is_negative() { "-.inf\n" } else { ".inf\n" }),
        Value::Number(n) => {
            out.push_str(&n.to_string());
            out.push('\n');
        }
        Value::String(text) if as_block(text) => block(text, indent + 2, out),
        Value::String(text) => {
            quoted(text, out);
            out.push('\n');
        }
        _ => return Err("this value has no form in YAML".to_owned()),
    }
    Ok(())
}

/// Whether a text of several lines is written as lines.
fn as_block(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n')
        && !text.starts_with([' ', '\n'])
        && !text.contains(" \n")
        && text.chars().all(|c| c == '\n' || !c.is_control())
}

fn block(text: &str, indent: usize, out: &mut String) {
    let body = text.trim_end_matches('\n');
    out.push_str(match text.len() - body.len() {
        0 => "|-\n",
        1 => "|\n",
        _ => "|+\n",
    });
    let whole = if text.len() == body.len() { text } else { text.strip_suffix('\n').unwrap_or(text) };
    for line in whole.split('\n') {
        if !line.is_empty() {
            out.push_str(&" ".repeat(indent));
            out.push_str(line);
        }
        out.push('\n');
    }
}

fn quoted(text: &str, out: &mut String) {
    let mut json = String::new();
    herdsman_expr::json::quote(&mut json, text, true);
    out.push_str(&json.replace("\\u003c", "<").replace("\\u003e", ">").replace("\\u0026", "&"));
}
