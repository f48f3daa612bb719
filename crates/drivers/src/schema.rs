//! Which keys a driver's `config` block has, and what may stand there.

use std::fmt;

use serde_json::{Map, Value};

/// What a key holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Text; numbers and booleans are written out.
    Str,
    /// A number, also as text.
    Num,
    /// A boolean, also as text.
    Bool,
    /// Text such as `5m`.
    Duration,
    /// A list of texts.
    StrList,
    /// Text by name, or a list of such blocks.
    StrMap,
    /// Numbers by name, or a list of such blocks.
    #[allow(dead_code)] // For drivers with port maps.
    NumMap,
    /// Blocks with keys of their own.
    Blocks(&'static [Key]),
}

/// A key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
}

pub(crate) const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, required: false }
}

pub(crate) const fn required(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, required: true }
}

/// What is wrong with a `config` block, all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// One text each.
    pub problems: Vec<String>,
}

impl ConfigError {
    pub(crate) fn one(problem: impl Into<String>) -> ConfigError {
        ConfigError { problems: vec![problem.into()] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shape clients of the peer know.
        write!(f, "{} errors occurred:\n\t* failed to parse config: ", self.problems.len() + 1)?;
        for problem in &self.problems {
            write!(f, "\n\t* {problem}")?;
        }
        f.write_str("\n\n")
    }
}

impl std::error::Error for ConfigError {}

/// Blocks nest at most this deep in any schema here.
const MAX_DEPTH: usize = 8;

/// Checks `config` against `keys`.
pub(crate) fn check(keys: &[Key], config: &Value) -> Result<(), ConfigError> {
    let mut problems = Vec::new();
    match config {
        Value::Null => check_block(keys, &Map::new(), "", 0, &mut problems),
        Value::Object(map) => check_block(keys, map, "", 0, &mut problems),
        _ => problems.push("Incorrect type: config must be a block".to_owned()),
    }
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
}

fn check_block(keys: &[Key], map: &Map<String, Value>, at: &str, depth: usize, problems: &mut Vec<String>) {
    for key in keys.iter().filter(|k| k.required && map.get(k.name).is_none_or(Value::is_null)) {
        let name = key.name;
        problems.push(format!(
            "Missing required argument: The argument \"{at}{name}\" is required, but no definition was found."
        ));
    }
    for (name, value) in map {
        match keys.iter().find(|k| k.name == name) {
            Some(key) => check_value(key.kind, value, &format!("{at}{name}"), depth, problems),
            None => {
                let mut text = format!("Invalid label: No argument or block type is named \"{name}\".");
                if let Some(near) = nearest(name, keys) {
                    text.push_str(&format!(" Did you mean \"{near}\"?"));
                }
                problems.push(text);
            }
        }
    }
}

/// The key nearest in spelling, if it is near enough to be meant.
fn nearest<'a>(name: &str, keys: &'a [Key]) -> Option<&'a str> {
    let near = keys.iter().map(|k| (strsim::levenshtein(name, k.name), k.name)).min()?;
    (near.0 <= 2).then_some(near.1)
}

fn check_value(kind: Kind, value: &Value, at: &str, depth: usize, problems: &mut Vec<String>) {
    let mut wrong = |what: &str| problems.push(format!("Incorrect attribute value type: \"{at}\" must be {what}"));
    if value.is_null() || is_template(value) {
        return;
    }
    match kind {
        Kind::Str if as_text(value).is_some() => {}
        Kind::Str => wrong("a string"),
        Kind::Num if as_number(value).is_some() => {}
        Kind::Num => wrong("a number"),
        Kind::Bool if as_bool(value).is_some() => {}
        Kind::Bool => wrong("true or false"),
        Kind::Duration if value.as_str().is_some_and(|t| t.is_empty() || duration(t).is_some()) => {}
        Kind::Duration => wrong("a duration such as \"30s\""),
        Kind::StrList if value.as_array().is_some_and(|l| l.iter().all(|v| as_text(v).is_some())) => {}
        Kind::StrList => wrong("a list of strings"),
        Kind::StrMap if maps(value).is_some_and(|l| l.iter().all(|m| m.values().all(|v| as_text(v).is_some()))) => {}
        Kind::StrMap => wrong("a map of strings"),
        Kind::NumMap
            if maps(value)
                .is_some_and(|l| l.iter().all(|m| m.values().all(|v| as_number(v).is_some() || is_template(v)))) => {}
        Kind::NumMap => wrong("a map of numbers"),
        Kind::Blocks(keys) => match maps(value) {
            Some(list) if depth < MAX_DEPTH => {
                for map in list {
                    check_block(keys, map, &format!("{at}."), depth + 1, problems);
                }
            }
            _ => wrong("a block"),
        },
    }
}

/// Text that is still to be interpolated may become anything.
fn is_template(value: &Value) -> bool {
    value.as_str().is_some_and(|t| t.contains("${"))
}

/// A block or a list of blocks.
pub(crate) fn maps(value: &Value) -> Option<Vec<&Map<String, Value>>> {
    match value {
        Value::Object(map) => Some(vec![map]),
        Value::Array(list) => list.iter().map(Value::as_object).collect(),
        _ => None,
    }
}

/// The value as text.
pub(crate) fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

/// The value as a number.
pub(crate) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    }
}

/// The value as a boolean.
pub(crate) fn as_bool(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(b) => Some(*b),
        Value::String(s) => match s.as_str() {
            "true" | "1" => Some(true),
            "false" | "0" | "" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Reads a duration in the notation of job files: `1h30m`, `250ms`, `1.5s`.
pub(crate) fn duration(text: &str) -> Option<std::time::Duration> {
    const UNITS: [(&str, f64); 7] =
        [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("ns", 1e-9), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
    if text == "0" {
        return Some(std::time::Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at_checked(digits)?;
        let number: f64 = number.parse().ok()?;
        let (name, factor) = UNITS.iter().find(|(name, _)| unit.starts_with(name))?;
        seconds += number * factor;
        rest = unit.strip_prefix(name)?;
    }
    (!text.is_empty()).then(|| std::time::Duration::try_from_secs_f64(seconds).ok())?
}
