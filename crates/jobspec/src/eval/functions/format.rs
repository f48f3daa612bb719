//! `format` and `formatlist`.

use super::encoding::to_json;
use super::{Answer, Args, CallFault, bad, check_len, failed};
use crate::eval::convert;
use crate::eval::value::{Type, Value};

/// Largest width or precision.
const MAX_WIDTH: usize = 4096;

/// One `%…` of a format.
#[derive(Debug, Default)]
struct Verb<'a> {
    text: &'a str,
    offset: usize,
    verb: char,
    minus: bool,
    plus: bool,
    zero: bool,
    space: bool,
    sharp: bool,
    width: Option<usize>,
    precision: Option<usize>,
    /// From 1.
    argument: Option<usize>,
}

pub(super) fn format(args: &Args<'_>) -> Answer {
    expand(args.text(0), args.from(1)).map(Value::string)
}

pub(super) fn formatlist(args: &Args<'_>) -> Answer {
    let mut count: Option<(usize, usize)> = None;
    for (i, value) in args.from(1).iter().enumerate() {
        let Some(items) = value.items() else { continue };
        match count {
            Some((first, len)) if len != items.len() => {
                return bad(
                    i + 1,
                    format!(
                        "argument {} has length {}, which is inconsistent with argument {} of length {len}",
                        i + 1,
                        items.len(),
                        first + 1
                    ),
                );
            }
            Some(_) => {}
            None => count = Some((i, items.len())),
        }
    }
    let count = count.map_or(1, |(_, len)| len);
    let mut out = Vec::new();
    let mut size = 0usize;
    for i in 0..count {
        let row: Vec<Value> = args
            .from(1)
            .iter()
            .map(|v| match v.items() {
                Some(items) => items.get(i).cloned().unwrap_or(Value::Null),
                None => v.clone(),
            })
            .collect();
        let text = expand(args.text(0), &row)?;
        size = size.saturating_add(text.len());
        check_len(size)?;
        out.push(Value::string(text));
    }
    Ok(Value::list(Type::String, out))
}

fn expand(format: &str, args: &[Value]) -> Result<String, CallFault> {
    let mut out = String::new();
    let mut next = 1;
    let mut used = 0;
    let mut indexed = false;
    let mut at = 0;
    while let Some(found) = format.get(at..).and_then(|rest| rest.find('%')) {
        out.push_str(format.get(at..at + found).unwrap_or(""));
        let offset = at + found;
        let verb = parse(format, offset)?;
        at = offset + verb.text.len();
        check_len(out.len())?;
        if verb.verb == '%' {
            out.push('%');
            continue;
        }
        indexed |= verb.argument.is_some();
        let index = verb.argument.unwrap_or(next);
        next = index + 1;
        used = used.max(index);
        let Some(value) = index.checked_sub(1).and_then(|i| args.get(i)) else {
            return failed(format!(
                "not enough arguments for {:?} at {offset}: need index {index} but have {} total",
                verb.text,
                args.len()
            ));
        };
        one(&verb, value, &mut out)?;
    }
    out.push_str(format.get(at..).unwrap_or(""));
    check_len(out.len())?;
    if !indexed && used < args.len() {
        let why = if used == 0 {
            "too many arguments; no verbs in format string".to_owned()
        } else {
            format!("too many arguments; only {used} used by format string")
        };
        return bad(used + 1, why);
    }
    Ok(out)
}

fn parse(format: &str, offset: usize) -> Result<Verb<'_>, CallFault> {
    let rest = format.get(offset..).unwrap_or("");
    let mut verb = Verb { offset, ..Verb::default() };
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((_, c)) = chars.peek() {
        match c {
            '-' => verb.minus = true,
            '+' => verb.plus = true,
            '0' => verb.zero = true,
            ' ' => verb.space = true,
            '#' => verb.sharp = true,
            _ => break,
        }
        chars.next();
    }
    let number = |chars: &mut std::iter::Peekable<std::iter::Skip<std::str::CharIndices<'_>>>| {
        let mut value: Option<usize> = None;
        while let Some((_, c)) = chars.peek() {
            let Some(digit) = c.to_digit(10) else { break };
            value = Some(value.unwrap_or(0).saturating_mul(10).saturating_add(digit as usize));
            chars.next();
        }
        value
    };
    verb.width = number(&mut chars);
    if chars.next_if(|(_, c)| *c == '.').is_some() {
        verb.precision = Some(number(&mut chars).unwrap_or(0));
    }
    if chars.next_if(|(_, c)| *c == '[').is_some() {
        verb.argument = number(&mut chars);
        chars.next_if(|(_, c)| *c == ']');
    }
    let Some((end, c)) = chars.next() else {
        return failed(format!("unrecognized format character at end of string at offset {offset}"));
    };
    verb.verb = c;
    verb.text = rest.get(..end + c.len_utf8()).unwrap_or(rest);
    if verb.width.is_some_and(|w| w > MAX_WIDTH) || verb.precision.is_some_and(|p| p > MAX_WIDTH) {
        return failed(format!("width and precision may be at most {MAX_WIDTH} in {:?} at {offset}", verb.text));
    }
    Ok(verb)
}

fn unsuitable<T>(verb: &Verb<'_>, why: &str) -> Result<T, CallFault> {
    failed(format!("unsupported value for {:?} at {}: {why}", verb.text, verb.offset))
}

fn one(verb: &Verb<'_>, value: &Value, out: &mut String) -> Result<(), CallFault> {
    let text = match verb.verb {
        'v' if verb.sharp => json(value)?,
        'v' => match value {
            Value::String(text) => text.to_string(),
            Value::Number(number) => signed(verb, number.to_string()),
            Value::Bool(b) => b.to_string(),
            other => json(other)?,
        },
        't' => match convert::to_bool(value) {
            Ok(b) => b.to_string(),
            Err(why) => return unsuitable(verb, &why),
        },
        's' | 'q' => string(verb, value)?,
        'b' | 'd' | 'o' | 'x' | 'X' => integer(verb, value)?,
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => float(verb, value)?,
        other => {
            return failed(format!("unsupported format verb {other:?} in {:?} at offset {}", verb.text, verb.offset));
        }
    };
    pad(verb, text, out);
    Ok(())
}

fn json(value: &Value) -> Result<String, CallFault> {
    let mut out = String::new();
    to_json(value, &mut out).map_err(CallFault::Call)?;
    Ok(out)
}

fn string(verb: &Verb<'_>, value: &Value) -> Result<String, CallFault> {
    if value.is_null() {
        return unsuitable(verb, "null value cannot be formatted");
    }
    let text = match convert::to_string(value) {
        Ok(text) => text,
        Err(why) => return unsuitable(verb, &why),
    };
    let text: String = match verb.precision {
        Some(precision) => text.chars().take(precision).collect(),
        None => text.to_string(),
    };
    if verb.verb == 'q' { json(&Value::string(text)) } else { Ok(text) }
}

fn number(verb: &Verb<'_>, value: &Value) -> Result<crate::number::Number, CallFault> {
    if value.is_null() {
        return unsuitable(verb, "null value cannot be formatted");
    }
    match convert::to_number(value) {
        Ok(number) => Ok(number),
        Err(why) => unsuitable(verb, &why),
    }
}

fn integer(verb: &Verb<'_>, value: &Value) -> Result<String, CallFault> {
    let number = number(verb, value)?;
    let Some(magnitude) = number.to_big() else { return unsuitable(verb, "an integer is required") };
    let (radix, prefix) = match verb.verb {
        'b' => (2, "0b"),
        'o' => (8, "0"),
        'x' => (16, "0x"),
        'X' => (16, "0X"),
        _ => (10, ""),
    };
    let mut text = magnitude.to_str_radix(radix);
    if verb.verb == 'X' {
        text = text.to_uppercase();
    }
    if let Some(precision) = verb.precision {
        text = format!("{}{text}", "0".repeat(precision.saturating_sub(text.len())));
    }
    if verb.sharp {
        text = format!("{prefix}{text}");
    }
    if number.is_negative() {
        text = format!("-{text}");
    }
    Ok(signed(verb, text))
}

fn float(verb: &Verb<'_>, value: &Value) -> Result<String, CallFault> {
    let number = number(verb, value)?;
    let precision = verb.precision.map(|p| p as u32);
    let text = match verb.verb {
        'e' | 'E' => number.to_scientific(Some(precision.unwrap_or(6)), verb.verb == 'E'),
        'f' | 'F' => number.to_fixed(precision.unwrap_or(6)),
        _ => general(&number, precision, verb.verb == 'G'),
    };
    Ok(signed(verb, text))
}

/// `%g`: plain unless the exponent is very small or large.
fn general(number: &crate::number::Number, precision: Option<u32>, upper: bool) -> String {
    let (exponent, digits) = number.shape();
    let limit = match precision {
        None => 21,
        Some(p) => i64::from(p.max(1)),
    };
    if exponent < -4 || exponent >= limit {
        return number.to_scientific(precision.map(|p| p.max(1) - 1), upper);
    }
    match precision {
        Some(p) if digits > p.max(1) as usize => {
            let places = i64::from(p.max(1)) - 1 - exponent;
            let text = number.to_fixed(u32::try_from(places).unwrap_or(0));
            if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
        }
        _ => number.to_string(),
    }
}

fn signed(verb: &Verb<'_>, text: String) -> String {
    match text.starts_with('-') {
        true => text,
        false if verb.plus => format!("+{text}"),
        false if verb.space => format!(" {text}"),
        false => text,
    }
}

fn pad(verb: &Verb<'_>, text: String, out: &mut String) {
    let missing = verb.width.unwrap_or(0).saturating_sub(text.chars().count());
    if verb.minus {
        out.push_str(&text);
        out.push_str(&" ".repeat(missing));
    } else if verb.zero && !matches!(verb.verb, 's' | 'q' | 't') {
        let (sign, digits) = match text.strip_prefix(['-', '+', ' ']) {
            Some(digits) => (text.get(..1).unwrap_or(""), digits),
            None => ("", text.as_str()),
        };
        out.push_str(sign);
        out.push_str(&"0".repeat(missing));
        out.push_str(digits);
    } else {
        let fill = if verb.zero { "0" } else { " " };
        out.push_str(&fill.repeat(missing));
        out.push_str(&text);
    }
}
