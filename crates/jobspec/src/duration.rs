//! Durations as Go writes them: `1h30m`, `1.5s`, `-90m`, `100us`.

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Longest text of a duration, in bytes.
pub const MAX_DURATION_LEN: usize = 256;

/// Nanoseconds of a duration; the error is worded as clients know it (`time: unknown unit "d" in duration "1d"`).
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    if text.len() > MAX_DURATION_LEN {
        return Err(format!("time: invalid duration of {} bytes", text.len()));
    }
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
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_len);
        if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
            return Err(invalid());
        }
        let unit_len = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
        };
        let amount = scaled(number, *size).ok_or_else(invalid)?;
        total = total.checked_add(amount).ok_or_else(invalid)?;
        rest = after;
    }
    let total = if negative { -total } else { total };
    i64::try_from(total).map_err(|_| invalid())
}

/// `number * size`, the fraction cut off.
fn scaled(number: &str, size: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(size)?;
    let mut unit = size;
    for digit in fraction.bytes() {
        unit /= 10;
        total = total.checked_add(unit.checked_mul(i128::from(digit - b'0'))?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        assert_eq!(parse_duration("1h30m"), Ok(5_400_000_000_000));
        assert_eq!(parse_duration("1m30s500ms"), Ok(90_500_000_000));
        assert_eq!(parse_duration("1h0m0.25s"), Ok(3_600_250_000_000));
        assert_eq!(parse_duration("-0s"), Ok(0));
        assert_eq!(parse_duration("0"), Ok(0));
        assert_eq!(parse_duration("100us"), Ok(100_000));
        assert_eq!(parse_duration("1d"), Err("time: unknown unit \"d\" in duration \"1d\"".into()));
        assert_eq!(parse_duration("10"), Err("time: missing unit in duration \"10\"".into()));
        assert_eq!(
            parse_duration("10 minutes"),
            Err("time: unknown unit \" minutes\" in duration \"10 minutes\"".into())
        );
        assert_eq!(parse_duration(""), Err("time: invalid duration \"\"".into()));
        assert!(parse_duration("99999999999h").is_err());
    }
}
