//! Go's duration text (`1h2m3.5s`), which job files, the agent configuration and the HTTP API use.
//!
//! Values are signed nanoseconds in an `i64`, as on the wire.

use std::fmt::Write as _;

/// Nanoseconds in a microsecond.
pub const MICROSECOND: i64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: i64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: i64 = 1_000_000_000;
/// Nanoseconds in a minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Nanoseconds in an hour.
pub const HOUR: i64 = 60 * MINUTE;

/// Magnitude of `i64::MIN`, the longest negative duration.
const MAX_MAGNITUDE: u64 = 1 << 63;

/// Why a text is no duration. The texts are those of Go's `time.ParseDuration`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a number, empty, or outside of what 64 bits of nanoseconds hold.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    /// A unit other than ns, us, µs, ms, s, m, h.
    #[error("time: unknown unit {} in duration {}", quote(unit), quote(text))]
    UnknownUnit {
        /// What stood where the unit belongs.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Parses a duration like `1h2m3.5s`, `-1.5h` or `0` into nanoseconds.
///
/// # Errors
/// Malformed text, an unknown unit, or a value which does not fit `i64` nanoseconds.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (part, after) = parse_component(text, rest)?;
        total = total.checked_add(part).filter(|sum| *sum <= MAX_MAGNITUDE).ok_or_else(invalid)?;
        rest = after;
    }
    if negative {
        // The magnitude 2^63 exists only on the negative side.
        return 0i64.checked_sub_unsigned(total).ok_or_else(invalid);
    }
    i64::try_from(total).map_err(|_| invalid())
}

/// Parses one number and its unit from the start of `rest`; returns nanoseconds and what follows.
fn parse_component<'a>(text: &str, rest: &'a str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (whole, after) = split_digits(rest);
    let mut number: u64 = 0;
    for digit in whole.bytes() {
        number = number
            .checked_mul(10)
            .and_then(|n| n.checked_add(u64::from(digit - b'0')))
            .filter(|n| *n <= MAX_MAGNITUDE)
            .ok_or_else(invalid)?;
    }
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => split_digits(after),
        None => ("", after),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
    let (unit, after) = after.split_at(end);
    if unit.is_empty() {
        return Err(DurationError::MissingUnit(text.to_owned()));
    }
    let Some(scale) = unit_nanoseconds(unit) else {
        return Err(DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() });
    };
    let value = number
        .checked_mul(scale)
        .and_then(|v| v.checked_add(fraction_of(fraction, scale)))
        .filter(|v| *v <= MAX_MAGNITUDE)
        .ok_or_else(invalid)?;
    Ok((value, after))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn unit_nanoseconds(unit: &str) -> Option<u64> {
    let value = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    };
    value.try_into().ok()
}

/// The whole nanoseconds in `0.<digits>` units of `scale` nanoseconds, cut like Go does it: digits
/// beyond 63 bits are not looked at, and the product is taken in floating point.
fn fraction_of(digits: &str, scale: u64) -> u64 {
    let mut value: u64 = 0;
    let mut divisor = 1.0f64;
    for digit in digits.bytes() {
        let Some(next) =
            value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0'))).filter(|v| *v < MAX_MAGNITUDE)
        else {
            break;
        };
        value = next;
        divisor *= 10.0;
    }
    (value as f64 * (scale as f64 / divisor)) as u64
}

/// Writes nanoseconds like Go's `Duration.String`: `1h2m3.5s`, `500ms`, `1µs`, `0s`.
#[must_use]
pub fn format(nanoseconds: i64) -> String {
    let magnitude = nanoseconds.unsigned_abs();
    let sign = if nanoseconds < 0 { "-" } else { "" };
    if magnitude == 0 {
        return "0s".to_owned();
    }
    if magnitude < SECOND as u64 {
        let (scale, unit) = match magnitude {
            m if m < MICROSECOND as u64 => (1, "ns"),
            m if m < MILLISECOND as u64 => (MICROSECOND as u64, "µs"),
            _ => (MILLISECOND as u64, "ms"),
        };
        return format!("{sign}{}{unit}", decimal(magnitude, scale));
    }
    let (hours, rest) = (magnitude / HOUR as u64, magnitude % HOUR as u64);
    let (minutes, rest) = (rest / MINUTE as u64, rest % MINUTE as u64);
    let mut out = String::from(sign);
    // Writing to a String cannot fail.
    if hours > 0 {
        let _ = write!(out, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(out, "{minutes}m");
    }
    let _ = write!(out, "{}s", decimal(rest, SECOND as u64));
    out
}

/// `value / scale` in decimal without trailing zeros; `scale` is a power of ten up to 10^9.
fn decimal(value: u64, scale: u64) -> String {
    let (whole, part) = (value / scale, value % scale);
    if part == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    let digits = format!("{part:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// Quotes like Go's time package: `"` and `\` escaped, control and non-ASCII bytes as `\xNN`.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' | 0x7f => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_go() {
        let table = include_str!("../tests/data/durations.tsv");
        let mut rows = 0;
        for line in table.lines() {
            let mut cells = line.split('\t');
            let (text, kind, shown) = (cells.next().unwrap(), cells.next().unwrap(), cells.next().unwrap());
            match parse(text) {
                Ok(value) => {
                    assert_eq!(value.to_string(), kind, "{text}");
                    assert_eq!(format(value), shown, "{text}");
                }
                Err(error) => {
                    assert_eq!("err", kind, "{text}: {error}");
                    assert_eq!(error.to_string(), shown, "{text}");
                }
            }
            rows += 1;
        }
        assert!(rows > 50, "table is cut: {rows} rows");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            let _ = parse(&text);
        }

        #[test]
        fn near_durations_never_panic(text in "[-+]?([0-9.]{0,22}(ns|us|µs|ms|s|m|h|d| )?){0,4}") {
            if let Ok(value) = parse(&text) {
                prop_assert_eq!(parse(&format(value)), Ok(value));
            }
        }

        #[test]
        fn round_trip(value in any::<i64>()) {
            prop_assert_eq!(parse(&format(value)), Ok(value));
        }

        #[test]
        fn round_trip_small(value in -10_000_000_000i64..10_000_000_000) {
            prop_assert_eq!(parse(&format(value)), Ok(value));
        }
    }
}
