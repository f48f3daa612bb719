//! Go's `Sprintf`, for the values that JSON has.

use crate::number::{shortest, show_exponent, show_float};
use crate::show::{nested, type_name};
use serde_json::Value;

/// The widest padding and most digits that are honoured.
const MAX_WIDTH: usize = 10_000;

#[derive(Default, Clone, Copy)]
struct Flags {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// A text as Go quotes it.
pub fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_print(c) => out.push(c),
            c if u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Whether a character is shown as it is.
pub fn is_print(c: char) -> bool {
    c == ' '
        || !(c.is_control()
            || c.is_whitespace()
            || matches!(u32::from(c), 0xad | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb | 0xe000..=0xf8ff | 0xf_0000..))
}

/// Formats values by a text with verbs.
pub fn printf(format: &str, values: &[&Value]) -> String {
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    let mut next = 0;
    let mut reordered = false;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut flags = Flags::default();
        while let Some(c) = chars.peek().copied() {
            match c {
                '-' => flags.minus = true,
                '+' => flags.plus = true,
                '#' => flags.sharp = true,
                ' ' => flags.space = true,
                '0' => flags.zero = true,
                _ => break,
            }
            chars.next();
        }
        if let Some(at) = explicit_index(&mut chars) {
            next = at;
            reordered = true;
        }
        let mut faults = String::new();
        flags.width = size(&mut chars, values, &mut next, &mut flags.minus, &mut faults, "WIDTH");
        if chars.peek() == Some(&'.') {
            chars.next();
            let mut ignored = false;
            flags.precision = size(&mut chars, values, &mut next, &mut ignored, &mut faults, "PREC").or(Some(0));
        }
        if let Some(at) = explicit_index(&mut chars) {
            next = at;
            reordered = true;
        }
        out.push_str(&faults);
        let Some(verb) = chars.next() else {
            out.push_str("%!(NOVERB)");
            break;
        };
        if verb == '%' {
            out.push('%');
            continue;
        }
        match values.get(next) {
            Some(value) => out.push_str(&one(verb, value, flags)),
            None => out.push_str(
                &format!("%!{verb}(MISSING)").replace("(MISSING)", if reordered { "(BADINDEX)" } else { "(MISSING)" }),
            ),
        }
        next = next.saturating_add(1);
    }
    if !reordered && next < values.len() {
        let extra: Vec<String> = values
            .iter()
            .skip(next)
            .map(|v| if v.is_null() { "<nil>".to_string() } else { format!("{}={}", type_name(v), nested(v)) })
            .collect();
        out.push_str(&format!("%!(EXTRA {})", extra.join(", ")));
    }
    out
}

type Chars<'c> = std::iter::Peekable<std::str::Chars<'c>>;

/// `[2]`: the next value is the second. Places from 0.
fn explicit_index(chars: &mut Chars<'_>) -> Option<usize> {
    if chars.peek() != Some(&'[') {
        return None;
    }
    chars.next();
    let mut number = 0_usize;
    for c in chars.by_ref() {
        match c.to_digit(10) {
            Some(digit) => number = number.saturating_mul(10).saturating_add(usize::try_from(digit).unwrap_or(0)),
            None => break,
        }
    }
    // No such place: the verb says so.
    Some(number.checked_sub(1).unwrap_or(usize::MAX - 1))
}

fn size(
    chars: &mut Chars<'_>,
    values: &[&Value],
    next: &mut usize,
    minus: &mut bool,
    faults: &mut String,
    what: &str,
) -> Option<usize> {
    if chars.peek() == Some(&'*') {
        chars.next();
        let given = values.get(*next).and_then(|v| v.as_i64());
        *next = next.saturating_add(1);
        let Some(given) = given.filter(|n| n.unsigned_abs() <= 1_000_000) else {
            faults.push_str(&format!("%!(BAD{what})"));
            return None;
        };
        if given < 0 {
            if what == "PREC" {
                faults.push_str("%!(BADPREC)");
                return None;
            }
            *minus = true;
        }
        return Some(usize::try_from(given.unsigned_abs()).unwrap_or(0).min(MAX_WIDTH));
    }
    let mut number: Option<usize> = None;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        let digit = usize::try_from(digit).unwrap_or(0);
        number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit));
        chars.next();
    }
    number.map(|n| n.min(MAX_WIDTH))
}

fn pad(text: String, flags: Flags) -> String {
    let width = flags.width.unwrap_or(0);
    let gap = width.saturating_sub(text.chars().count());
    if gap == 0 {
        return text;
    }
    if flags.minus {
        return text + &" ".repeat(gap);
    }
    if flags.zero {
        let (sign, digits) = match text.strip_prefix(['-', '+', ' ']) {
            Some(rest) => (text.get(..text.len() - rest.len()).unwrap_or_default(), rest),
            None => ("", text.as_str()),
        };
        return format!("{sign}{}{digits}", "0".repeat(gap));
    }
    " ".repeat(gap) + &text
}

fn bad(verb: char, value: &Value) -> String {
    match value {
        Value::Null => format!("%!{verb}(<nil>)"),
        value => format!("%!{verb}({}={})", type_name(value), nested(value)),
    }
}

/// One value by one verb.
fn one(verb: char, value: &Value, flags: Flags) -> String {
    match (verb, value) {
        ('T', Value::Null) => pad("<nil>".to_string(), flags),
        ('T', value) => pad(type_name(value).to_string(), Flags { zero: false, ..flags }),
        ('v', Value::Null) => pad("<nil>".to_string(), Flags { zero: false, ..flags }),
        (_, Value::Null) => bad(verb, value),
        ('v', Value::String(text)) if flags.sharp => pad(quote(text), flags),
        ('v', Value::Array(items)) => sequence(items, flags, verb),
        ('v', Value::Object(_)) if flags.sharp => go_syntax(value),
        (_, Value::Array(items)) => sequence(items, flags, verb),
        (_, Value::Object(members)) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            let shown: Vec<String> = sorted
                .into_iter()
                .map(|(k, v)| format!("{}:{}", one(verb, &Value::String(k.clone()), flags), one(verb, v, flags)))
                .collect();
            format!("map[{}]", shown.join(" "))
        }
        ('v', Value::Bool(_)) | ('t', Value::Bool(_)) => pad(nested(value), Flags { zero: false, ..flags }),
        (_, Value::Bool(_)) => bad(verb, value),
        (_, Value::String(text)) => string(verb, text, flags).unwrap_or_else(|| bad(verb, value)),
        (_, Value::Number(n)) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), _, _) => integer(verb, n < 0, n.unsigned_abs(), flags),
            (_, Some(n), _) => integer(verb, false, n, flags),
            (_, _, Some(f)) => float(verb, f, flags),
            _ => None,
        }
        .unwrap_or_else(|| bad(verb, value)),
    }
}

fn sequence(items: &[Value], flags: Flags, verb: char) -> String {
    if verb == 'v' && flags.sharp {
        return go_syntax(&Value::Array(items.to_vec()));
    }
    let shown: Vec<String> = items.iter().map(|item| one(verb, item, flags)).collect();
    format!("[{}]", shown.join(" "))
}

/// `%#v` of lists and maps.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let shown: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", shown.join(", "))
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            let shown: Vec<String> =
                sorted.into_iter().map(|(k, v)| format!("{}:{}", quote(k), go_syntax(v))).collect();
            format!("map[string]interface {{}}{{{}}}", shown.join(", "))
        }
        other => nested(other),
    }
}

fn string(verb: char, text: &str, flags: Flags) -> Option<String> {
    let cut: String = match flags.precision {
        Some(count) => text.chars().take(count).collect(),
        None => text.to_string(),
    };
    let hex = |upper: bool| {
        let bytes = flags.precision.map_or(text.as_bytes(), |n| text.as_bytes().get(..n).unwrap_or(text.as_bytes()));
        let gap = if flags.space { " " } else { "" };
        let mark = if flags.sharp { if upper { "0X" } else { "0x" } } else { "" };
        let shown: Vec<String> = bytes
            .iter()
            .enumerate()
            .map(|(at, b)| {
                let mark = if at == 0 || flags.space { mark } else { "" };
                if upper { format!("{mark}{b:02X}") } else { format!("{mark}{b:02x}") }
            })
            .collect();
        shown.join(gap)
    };
    Some(match verb {
        'v' | 's' => pad(cut, flags),
        'q' if flags.sharp && !cut.contains('`') && cut.chars().all(|c| is_print(c) || c == '\t') => {
            pad(format!("`{cut}`"), flags)
        }
        'q' if flags.plus => pad(quote_ascii(&cut), flags),
        'q' => pad(quote(&cut), flags),
        'x' => pad(hex(false), flags),
        'X' => pad(hex(true), flags),
        _ => return None,
    })
}

fn quote_ascii(text: &str) -> String {
    let mut out = String::new();
    for c in quote(text).chars() {
        match u32::from(c) {
            code if code < 0x80 => out.push(c),
            code if code < 0x1_0000 => out.push_str(&format!("\\u{code:04x}")),
            code => out.push_str(&format!("\\U{code:08x}")),
        }
    }
    out
}

fn integer(verb: char, negative: bool, magnitude: u64, flags: Flags) -> Option<String> {
    let (digits, mark) = match verb {
        'v' | 'd' => (magnitude.to_string(), ""),
        'b' => (format!("{magnitude:b}"), if flags.sharp { "0b" } else { "" }),
        'o' => (format!("{magnitude:o}"), if flags.sharp { "0" } else { "" }),
        'O' => (format!("{magnitude:o}"), "0o"),
        'x' => (format!("{magnitude:x}"), if flags.sharp { "0x" } else { "" }),
        'X' => (format!("{magnitude:X}"), if flags.sharp { "0X" } else { "" }),
        'c' => {
            let shown = u32::try_from(magnitude).ok().filter(|_| !negative).and_then(char::from_u32);
            return Some(pad(shown.unwrap_or('\u{fffd}').to_string(), flags));
        }
        'q' => {
            let shown =
                u32::try_from(magnitude).ok().filter(|_| !negative).and_then(char::from_u32).unwrap_or('\u{fffd}');
            let text = quote(&shown.to_string());
            let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
            let inner = match shown {
                '\'' => "\\'".to_string(),
                '"' => "\"".to_string(),
                _ => inner.to_string(),
            };
            return Some(pad(format!("'{inner}'"), flags));
        }
        'U' => {
            let mut text = format!("U+{magnitude:04X}");
            if let Some(c) =
                char::from_u32(u32::try_from(magnitude).unwrap_or(u32::MAX)).filter(|c| flags.sharp && is_print(*c))
            {
                text.push_str(&format!(" '{c}'"));
            }
            return Some(pad(text, Flags { zero: false, ..flags }));
        }
        _ => return None,
    };
    let sign = if negative {
        "-"
    } else if flags.plus {
        "+"
    } else if flags.space {
        " "
    } else {
        ""
    };
    let mut digits = digits;
    let mut flags = flags;
    if let Some(least) = flags.precision {
        flags.zero = false;
        if least == 0 && magnitude == 0 {
            return Some(pad(String::new(), flags));
        }
        digits = "0".repeat(least.saturating_sub(digits.len())) + &digits;
    } else if flags.zero && !flags.minus {
        let width = flags.width.unwrap_or(0).saturating_sub(sign.len());
        digits = "0".repeat(width.saturating_sub(digits.len())) + &digits;
    }
    Some(pad(format!("{sign}{mark}{digits}"), Flags { zero: false, ..flags }))
}

fn float(verb: char, value: f64, flags: Flags) -> Option<String> {
    let text = match (verb, flags.precision) {
        ('v', None) => show_float(value),
        ('g', None) => shortest(value, 'e'),
        ('G', None) => shortest(value, 'E'),
        ('v' | 'g', Some(digits)) => significant(value, digits, 'e'),
        ('G', Some(digits)) => significant(value, digits, 'E'),
        ('f' | 'F', digits) => format!("{value:.*}", digits.unwrap_or(6)),
        ('e', digits) => scientific(value, digits.unwrap_or(6), 'e'),
        ('E', digits) => scientific(value, digits.unwrap_or(6), 'E'),
        _ => return None,
    };
    let text = match (text.starts_with(['-', '+']), flags.plus, flags.space) {
        (false, true, _) => format!("+{text}"),
        (false, false, true) => format!(" {text}"),
        _ => text,
    };
    Some(pad(text, flags))
}

fn scientific(value: f64, digits: usize, mark: char) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => format!("{digits}{mark}{}", show_exponent(exponent.parse().unwrap_or(0))),
        None => text,
    }
}

/// A number of significant digits, as `%.3g` has it.
fn significant(value: f64, digits: usize, mark: char) -> String {
    if value == 0.0 || !value.is_finite() {
        return show_float(value);
    }
    let digits = digits.max(1);
    let text = format!("{value:.*e}", digits - 1);
    let exponent: i32 = text.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let limit = i32::try_from(digits).unwrap_or(i32::MAX);
    let trim = |text: String| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    };
    if exponent < -4 || exponent >= limit {
        let mantissa = trim(text.split_once('e').map(|(m, _)| m.to_string()).unwrap_or_default());
        return format!("{mantissa}{mark}{}", show_exponent(exponent));
    }
    let decimals = usize::try_from(limit - 1 - exponent).unwrap_or(0);
    trim(format!("{value:.decimals$}"))
}
