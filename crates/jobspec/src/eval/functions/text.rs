//! Functions of texts.

use regex::{Regex, RegexBuilder};
use unicode_segmentation::UnicodeSegmentation;

use super::{Answer, Args, check_len, failed};
use crate::eval::value::{Type, Value};

/// Largest compiled form of a regular expression, in bytes.
const MAX_REGEX_BYTES: usize = 1 << 18;

pub(super) fn chomp(args: &Args<'_>) -> Answer {
    Ok(Value::string(args.text(0).trim_end_matches(['\r', '\n'])))
}

pub(super) fn indent(args: &Args<'_>) -> Answer {
    let text = args.text(1);
    let Ok(spaces) = usize::try_from(args.int(0)?) else {
        return failed("the number of spaces must not be negative");
    };
    let lines = text.matches('\n').count();
    check_len(lines.saturating_mul(spaces).saturating_add(text.len()))?;
    Ok(Value::string(text.replace('\n', &format!("\n{}", " ".repeat(if lines > 0 { spaces } else { 0 })))))
}

pub(super) fn join(args: &Args<'_>) -> Answer {
    let separator = args.text(0);
    let mut out = String::new();
    let mut first = true;
    for (n, list) in args.from(1).iter().enumerate() {
        for (i, item) in list.items().iter().flat_map(|items| items.iter()).enumerate() {
            let Value::String(text) = item else {
                return super::bad(n + 1, format!("element {i} is null; cannot concatenate null values"));
            };
            check_len(out.len() + separator.len() + text.len())?;
            if !std::mem::take(&mut first) {
                out.push_str(separator);
            }
            out.push_str(text);
        }
    }
    Ok(Value::string(out))
}

/// Maps each character to one character; what would become several stays as it is.
fn map_chars<I: Iterator<Item = char>>(text: &str, map: impl Fn(char) -> I) -> String {
    text.chars()
        .map(|c| {
            let mut mapped = map(c);
            match (mapped.next(), mapped.next()) {
                (Some(one), None) => one,
                _ => c,
            }
        })
        .collect()
}

pub(super) fn lower(args: &Args<'_>) -> Answer {
    Ok(Value::string(map_chars(args.text(0), char::to_lowercase)))
}

pub(super) fn upper(args: &Args<'_>) -> Answer {
    Ok(Value::string(map_chars(args.text(0), char::to_uppercase)))
}

pub(super) fn title(args: &Args<'_>) -> Answer {
    let mut inside = false;
    let mut out = String::new();
    for c in args.text(0).chars() {
        let word = c.is_alphanumeric() || c == '_';
        if word && !inside {
            out.push_str(&map_chars(&c.to_string(), char::to_uppercase));
        } else {
            out.push(c);
        }
        inside = word;
    }
    Ok(Value::string(out))
}

pub(super) fn replace(args: &Args<'_>) -> Answer {
    let (text, from, to) = (args.text(0), args.text(1), args.text(2));
    let count = text.matches(from).count();
    check_len(count.saturating_mul(to.len()).saturating_add(text.len()))?;
    Ok(Value::string(text.replace(from, to)))
}

/// The peer's classes are those of ASCII, ours would be those of all scripts.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
            Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
            Some('b') => out.push_str("(?-u:\\b)"),
            Some('z') => out.push_str("\\z"),
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
            None => out.push('\\'),
        }
    }
    out
}

/// Compiles a pattern; the error is worded as the peer words the common ones.
fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(&ascii_classes(pattern)).size_limit(MAX_REGEX_BYTES).build().map_err(|error| {
        let text = error.to_string();
        let what = if text.contains("unclosed group") {
            "missing closing )"
        } else if text.contains("unopened group") {
            "unexpected )"
        } else if text.contains("unclosed character class") {
            "missing closing ]"
        } else if text.contains("repetition operator missing expression") {
            "missing argument to repetition operator"
        } else if text.contains("size limit") || text.contains("too big") {
            "expression too large"
        } else {
            "invalid syntax"
        };
        format!("error parsing regexp: {what}: `{pattern}`")
    })
}

pub(super) fn regex_replace(args: &Args<'_>) -> Answer {
    let (text, to) = (args.text(0), args.text(2));
    let regex = match compile(args.text(1)) {
        Ok(regex) => regex,
        Err(why) => return failed(why),
    };
    let mut out = String::new();
    let mut last = 0;
    for captures in regex.captures_iter(text) {
        let Some(whole) = captures.get(0) else { continue };
        out.push_str(text.get(last..whole.start()).unwrap_or(""));
        // A template of references can only grow by what was matched, so this check bounds every step.
        check_len(out.len().saturating_add(to.len().saturating_mul(whole.len().max(1))))?;
        captures.expand(to, &mut out);
        last = whole.end();
    }
    out.push_str(text.get(last..).unwrap_or(""));
    check_len(out.len())?;
    Ok(Value::string(out))
}

pub(super) fn reverse(args: &Args<'_>) -> Answer {
    Ok(Value::string(args.text(0).graphemes(true).rev().collect::<String>()))
}

pub(super) fn split(args: &Args<'_>) -> Answer {
    let (separator, text) = (args.text(0), args.text(1));
    let parts: Vec<Value> = if separator.is_empty() {
        text.chars().map(|c| Value::string(c.to_string())).collect()
    } else {
        text.split(separator).map(Value::string).collect()
    };
    Ok(Value::list(Type::String, parts))
}

pub(super) fn strlen(args: &Args<'_>) -> Answer {
    Ok(Value::count(args.text(0).graphemes(true).count()))
}

pub(super) fn substr(args: &Args<'_>) -> Answer {
    let text = args.text(0);
    let (mut offset, length) = (args.int(1)?, args.int(2)?);
    if offset < 0 {
        let count = i64::try_from(text.graphemes(true).count()).unwrap_or(i64::MAX);
        offset = offset.saturating_add(count).max(0);
    }
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = text.graphemes(true).skip(start);
    let part: String = match usize::try_from(length) {
        Ok(length) => rest.take(length).collect(),
        Err(_) => rest.collect(),
    };
    Ok(Value::string(part))
}

pub(super) fn trim(args: &Args<'_>) -> Answer {
    let cut = args.text(1);
    Ok(Value::string(args.text(0).trim_matches(|c| cut.contains(c))))
}

pub(super) fn trimprefix(args: &Args<'_>) -> Answer {
    let text = args.text(0);
    Ok(Value::string(text.strip_prefix(args.text(1)).unwrap_or(text)))
}

pub(super) fn trimsuffix(args: &Args<'_>) -> Answer {
    let text = args.text(0);
    Ok(Value::string(text.strip_suffix(args.text(1)).unwrap_or(text)))
}

pub(super) fn trimspace(args: &Args<'_>) -> Answer {
    Ok(Value::string(args.text(0).trim()))
}
