//! Numbers: as Go writes constants, and as `%v` shows them.

use serde_json::{Number, Value};

/// Reads a constant: `42`, `-0x1F`, `0b101`, `0o17`, `1_000`, `1.5e3`. None when it is no number.
pub fn parse(text: &str) -> Option<Value> {
    let (negative, body) = match text.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !underscores_fit(body) {
        return None;
    }
    let plain = body.replace('_', "");
    if let Some(magnitude) = whole(&plain) {
        return sign(magnitude, negative);
    }
    if plain.contains(['x', 'X', 'p', 'P']) {
        return hex_float(&plain).and_then(|f| Number::from_f64(if negative { -f } else { f })).map(Value::Number);
    }
    if !plain.contains(['.', 'e', 'E']) || plain.contains(['n', 'i', 'N', 'I']) {
        return None;
    }
    let float: f64 = plain.parse().ok()?;
    let float = if negative { -float } else { float };
    // A constant like 1e3 is a whole number where one is wanted; Go decides by its value.
    Number::from_f64(float).map(Value::Number)
}

fn underscores_fit(body: &str) -> bool {
    !(body.starts_with('_') || body.ends_with('_') || body.contains("__"))
}

fn whole(plain: &str) -> Option<u64> {
    let lower = plain.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, lower.get(2..)?),
        Some("0b") => (2, lower.get(2..)?),
        Some("0o") => (8, lower.get(2..)?),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

fn sign(magnitude: u64, negative: bool) -> Option<Value> {
    if !negative {
        return Some(Value::from(magnitude));
    }
    let limit = 1_u64 << 63;
    if magnitude == limit {
        return Some(Value::from(i64::MIN));
    }
    i64::try_from(magnitude).ok().map(|n| Value::from(-n))
}

fn hex_float(plain: &str) -> Option<f64> {
    let lower = plain.to_ascii_lowercase();
    let (mantissa, exponent) = lower.strip_prefix("0x")?.split_once('p')?;
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let mut value = 0.0_f64;
    for c in whole.chars() {
        value = value * 16.0 + f64::from(c.to_digit(16)?);
    }
    let mut scale = 1.0 / 16.0;
    for c in part.chars() {
        value += f64::from(c.to_digit(16)?) * scale;
        scale /= 16.0;
    }
    let exponent: i32 = exponent.parse().ok()?;
    let result = value * 2.0_f64.powi(exponent);
    result.is_finite().then_some(result)
}

/// A number as `%v` shows it.
pub fn show(number: &Number) -> String {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(n), _, _) => n.to_string(),
        (_, Some(n), _) => n.to_string(),
        (_, _, Some(f)) => show_float(f),
        _ => number.to_string(),
    }
}

/// A float by the shortest digits: plain from 1e-4 to below 1e6, else with an exponent.
pub fn show_float(value: f64) -> String {
    shortest(value, 'e')
}

/// The exponent from which on it is written.
const CEILING: i32 = 6;

/// The shortest form, with an exponent where it is large or small.
pub fn shortest(value: f64, mark: char) -> String {
    if value.is_nan() {
        return "NaN".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_string();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_string();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific.as_str(), "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..CEILING).contains(&exponent) {
        return format!("{value}");
    }
    format!("{digits}{mark}{}", show_exponent(exponent))
}

/// An exponent with its sign and at least two digits.
pub fn show_exponent(exponent: i32) -> String {
    format!("{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn constants_are_read_as_go_reads_them() {
        for (text, value) in [
            ("42", json!(42)),
            ("-7", json!(-7)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("017", json!(15)),
            ("1_000", json!(1000)),
            ("1.5", json!(1.5)),
            ("-1e3", json!(-1000.0)),
            ("0x1p4", json!(16.0)),
            ("-9223372036854775808", json!(i64::MIN)),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        for text in ["", "1__0", "0x", "abc", "1e", "inf", "--1", "0b2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_shown_as_go_shows_them() {
        for (value, text) in
            [(1.5, "1.5"), (1e21, "1e+21"), (1e6, "1e+06"), (123456.0, "123456"), (0.00001, "1e-05"), (-0.0, "-0")]
        {
            assert_eq!(show_float(value), text);
        }
    }
}
