//! YAML, read and written in block form.

use super::{failure, json, text_of};
use crate::MAX_DEPTH;
use crate::builtin::CallError;
use serde_json::{Map, Number, Value};
use yaml_rust2::parser::{Event, MarkedEventReceiver, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};

/// The longest YAML text that is read, bytes.
const MAX_TEXT: usize = 1024 * 1024;

pub(super) fn call(name: &str, a: &[Value]) -> Option<Result<Value, CallError>> {
    let [value] = a else { return None };
    Some(match name {
        "parseYAML" => text_of(value).and_then(parse),
        "toYAML" => {
            let mut out = String::new();
            write(&mut out, value, 0, false);
            Ok(out.trim_matches('\n').into())
        }
        _ => return None,
    })
}

enum Open {
    List(Vec<Value>),
    /// The key waits for its value.
    Map(Map<String, Value>, Option<String>),
}

#[derive(Default)]
struct Reader {
    open: Vec<Open>,
    root: Option<Value>,
    error: Option<String>,
}

impl Reader {
    fn fail(&mut self, why: String) {
        self.error.get_or_insert(why);
    }

    fn open(&mut self, open: Open) {
        if self.open.len() >= MAX_DEPTH {
            return self.fail(format!("parseYAML: more than {MAX_DEPTH} levels"));
        }
        self.open.push(open);
    }

    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map(_, key @ None)) => *key = Some(crate::show::nested(&value)),
            Some(Open::Map(map, key)) => {
                map.insert(key.take().unwrap_or_default(), value);
            }
        }
    }

    fn close(&mut self) {
        match self.open.pop() {
            Some(Open::List(items)) => self.put(Value::Array(items)),
            Some(Open::Map(map, _)) => self.put(Value::Object(map)),
            None => {}
        }
    }
}

impl MarkedEventReceiver for Reader {
    fn on_event(&mut self, event: Event, at: Marker) {
        if self.error.is_some() {
            return;
        }
        match event {
            Event::SequenceStart(..) => self.open(Open::List(Vec::new())),
            Event::MappingStart(..) => self.open(Open::Map(Map::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Scalar(text, style, ..) => {
                let plain = style == TScalarStyle::Plain;
                self.put(if plain { scalar(&text) } else { text.into() });
            }
            Event::Alias(_) => self.fail(format!("parseYAML: line {}: aliases are not followed", at.line())),
            _ => {}
        }
    }
}

/// Nesting in braces, brackets or by indentation that the reader would follow too deep is refused before.
fn too_deep(text: &str) -> bool {
    let mut depth = 0usize;
    let mut dashes = 0usize;
    for c in text.chars() {
        match c {
            '[' | '{' => depth = depth.saturating_add(1),
            ']' | '}' => depth = depth.saturating_sub(1),
            '-' | '?' | ':' => dashes = dashes.saturating_add(1),
            '\n' => dashes = 0,
            _ => {}
        }
        if depth > MAX_DEPTH || dashes > MAX_DEPTH * 4 {
            return true;
        }
    }
    text.lines().any(|line| line.len() - line.trim_start_matches(' ').len() > MAX_DEPTH * 8)
}

fn parse(text: &str) -> Result<Value, CallError> {
    if text.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    if text.len() > MAX_TEXT {
        return Err(failure(format!("parseYAML: more than {MAX_TEXT} bytes")));
    }
    if too_deep(text) {
        return Err(failure(format!("parseYAML: more than {MAX_DEPTH} levels")));
    }
    let mut reader = Reader::default();
    Parser::new_from_str(text).load(&mut reader, false).map_err(|error| failure(format!("yaml: {error}")))?;
    match reader.error {
        Some(error) => Err(failure(error)),
        None => Ok(reader.root.unwrap_or(Value::Null)),
    }
}

fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    match text.parse::<f64>().ok().filter(|_| numeric).and_then(Number::from_f64) {
        Some(number) => Value::Number(number),
        None => text.into(),
    }
}

fn pad(out: &mut String, depth: usize) {
    out.push_str(&"  ".repeat(depth));
}

/// `after_key`: the text so far ends in `key:` on this line.
fn write(out: &mut String, value: &Value, depth: usize, after_key: bool) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            let mut sorted: Vec<_> = map.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            for (at, (key, item)) in sorted.into_iter().enumerate() {
                if after_key || at > 0 {
                    out.push('\n');
                    pad(out, depth);
                }
                out.push_str(&word(key));
                out.push(':');
                // Lists stand under their key, maps are indented.
                let deeper = if item.is_array() { depth } else { depth.saturating_add(1) };
                write(out, item, deeper, true);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                if after_key || at > 0 {
                    out.push('\n');
                    pad(out, depth);
                }
                out.push_str("- ");
                write(out, item, depth.saturating_add(1), false);
            }
        }
        plain => {
            if after_key {
                out.push(' ');
            }
            match plain {
                Value::Object(_) => out.push_str("{}"),
                Value::Array(_) => out.push_str("[]"),
                Value::String(text) => out.push_str(&word(text)),
                Value::Number(n) => out.push_str(&json::number(n)),
                Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
                Value::Null => out.push_str("null"),
            }
        }
    }
}

/// A text, quoted where it would mean something else.
fn word(text: &str) -> String {
    let starts = |c: char| "-?:,[]{}#&*!|>'\"%@` =~".contains(c);
    let special = text.is_empty()
        || text.starts_with(starts)
        || text.ends_with([' ', ':'])
        || text.contains(": ")
        || text.contains(" #")
        || text.chars().any(char::is_control)
        || !matches!(scalar(text), Value::String(_))
        || matches!(text.to_ascii_lowercase().as_str(), "y" | "n" | "yes" | "no" | "on" | "off" | "<<");
    if !special {
        return text.to_string();
    }
    let mut out = String::new();
    herdsman_expr::json::quote(&mut out, text, false);
    out
}
