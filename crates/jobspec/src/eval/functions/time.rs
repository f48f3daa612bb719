//! Functions of times written as RFC 3339.

use super::{Answer, Args, bad, failed};
use crate::duration::parse_duration;
use crate::eval::value::Value;
use herdsman_expr::calendar::{MONTHS, WEEKDAYS, civil, day_number, weekday};

/// A point in time as it was written.
struct Time {
    year: i64,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    nanos: u32,
    /// Minutes east of UTC.
    offset: i64,
}

fn leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: u32) -> u32 {
    match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Takes `len` digits off the front.
fn digits<'a>(rest: &mut &'a str, len: usize, what: &str) -> Result<u32, String> {
    let text: &'a str = rest;
    match text.get(..len).filter(|t| t.bytes().all(|b| b.is_ascii_digit())) {
        Some(found) => {
            *rest = text.get(len..).unwrap_or("");
            found.parse().map_err(|_| format!("cannot use {found:?} as {what}"))
        }
        None => {
            let end = text.find(['-', ':', 'T']).filter(|e| *e > 0).unwrap_or(text.len());
            Err(format!("cannot use {:?} as {what}", text.get(..end).unwrap_or(text)))
        }
    }
}

fn expect(rest: &mut &str, c: char) -> Result<(), String> {
    match rest.strip_prefix(c) {
        Some(after) => {
            *rest = after;
            Ok(())
        }
        None => Err(format!("missing {c:?} before {rest:?}")),
    }
}

fn parse(text: &str) -> Result<Time, String> {
    let fail = |why: String| format!("not a valid RFC3339 timestamp: {why}");
    parse_parts(text).map_err(fail)
}

fn parse_parts(text: &str) -> Result<Time, String> {
    let mut rest = text;
    let year = i64::from(digits(&mut rest, 4, "year")?);
    expect(&mut rest, '-')?;
    let month = digits(&mut rest, 2, "month")?;
    expect(&mut rest, '-')?;
    let day = digits(&mut rest, 2, "day of month")?;
    expect(&mut rest, 'T')?;
    let hour = digits(&mut rest, 2, "hour")?;
    expect(&mut rest, ':')?;
    let minute = digits(&mut rest, 2, "minute")?;
    expect(&mut rest, ':')?;
    let second = digits(&mut rest, 2, "second")?;
    let mut nanos = 0;
    if let Some(after) = rest.strip_prefix('.') {
        let len = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        if len == 0 || len > 9 {
            return Err(format!("cannot use {after:?} as fractional seconds"));
        }
        let fraction: String = format!("{:0<9}", after.get(..len).unwrap_or("0"));
        nanos = fraction.parse().map_err(|_| "cannot read fractional seconds".to_owned())?;
        rest = after.get(len..).unwrap_or("");
    }
    let offset = parse_offset(rest)?;
    let valid =
        (1..=12).contains(&month) && day >= 1 && day <= days_in(year, month) && hour < 24 && minute < 60 && second < 60;
    if !valid {
        return Err(format!("{text:?} is not a time of the calendar"));
    }
    Ok(Time { year, month, day, hour, minute, second, nanos, offset })
}

fn parse_offset(text: &str) -> Result<i64, String> {
    let (sign, mut rest) = match text.split_at_checked(1) {
        Some(("Z", "")) => return Ok(0),
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => return Err(format!("cannot use {text:?} as UTC offset")),
    };
    let hours = i64::from(digits(&mut rest, 2, "UTC offset")?);
    expect(&mut rest, ':')?;
    let minutes = i64::from(digits(&mut rest, 2, "UTC offset")?);
    if !rest.is_empty() || hours > 23 || minutes > 59 {
        return Err(format!("cannot use {text:?} as UTC offset"));
    }
    Ok(sign * (hours * 60 + minutes))
}

fn offset_text(minutes: i64, colon: &str) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    let size = minutes.abs();
    format!("{sign}{:02}{colon}{:02}", size / 60, size % 60)
}

pub(super) fn timeadd(args: &Args<'_>) -> Answer {
    let time = match parse(args.text(0)) {
        Ok(time) => time,
        Err(why) => return failed(why),
    };
    let nanos = match parse_duration(args.text(1)) {
        Ok(nanos) => nanos,
        Err(why) => return failed(why),
    };
    let seconds = day_number(time.year, time.month, time.day) * 86_400
        + i64::from(time.hour * 3600 + time.minute * 60 + time.second);
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(time.nanos) + i128::from(nanos);
    let Ok(seconds) = i64::try_from(total.div_euclid(1_000_000_000)) else {
        return failed("the time is out of range");
    };
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let zone = if time.offset == 0 { "Z".to_owned() } else { offset_text(time.offset, ":") };
    Ok(Value::string(format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}{zone}",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )))
}

pub(super) fn formatdate(args: &Args<'_>) -> Answer {
    let time = match parse(args.text(1)) {
        Ok(time) => time,
        Err(why) => return bad(1, why),
    };
    let mut out = String::new();
    let mut rest = args.text(0);
    while let Some(c) = rest.chars().next() {
        if c == '\'' {
            match literal(rest, &mut out) {
                Some(after) => rest = after,
                None => return bad(0, "unterminated literal '"),
            }
            continue;
        }
        if !c.is_ascii_alphabetic() {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or("");
            continue;
        }
        let len = rest.find(|d| d != c).unwrap_or(rest.len());
        let verb = rest.get(..len).unwrap_or("");
        match expand(verb, &time) {
            Some(text) => out.push_str(&text),
            None => return bad(0, format!("invalid date format verb {verb:?}")),
        }
        rest = rest.get(len..).unwrap_or("");
    }
    Ok(Value::string(out))
}

/// `'text'`, with `''` for a quote; what follows it.
fn literal<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    let mut rest = text.strip_prefix('\'')?;
    loop {
        let (part, after) = rest.split_once('\'')?;
        out.push_str(part);
        match after.strip_prefix('\'') {
            Some(more) => {
                out.push('\'');
                rest = more;
            }
            None => return Some(after),
        }
    }
}

fn expand(verb: &str, t: &Time) -> Option<String> {
    let month = MONTHS.get(t.month as usize - 1).copied().unwrap_or("");
    let weekday = WEEKDAYS.get(weekday(day_number(t.year, t.month, t.day))).copied().unwrap_or("");
    let short = |name: &str| name.get(..3).unwrap_or(name).to_owned();
    let half = (t.hour + 11) % 12 + 1;
    Some(match verb {
        "YYYY" => format!("{:04}", t.year),
        "YY" => format!("{:02}", t.year % 100),
        "MMMM" => month.to_owned(),
        "MMM" => short(month),
        "MM" => format!("{:02}", t.month),
        "M" => t.month.to_string(),
        "DD" => format!("{:02}", t.day),
        "D" => t.day.to_string(),
        "EEEE" => weekday.to_owned(),
        "EEE" => short(weekday),
        "hh" => format!("{:02}", t.hour),
        "h" => t.hour.to_string(),
        "HH" => format!("{half:02}"),
        "H" => half.to_string(),
        "AA" => if t.hour < 12 { "AM" } else { "PM" }.to_owned(),
        "aa" => if t.hour < 12 { "am" } else { "pm" }.to_owned(),
        "mm" => format!("{:02}", t.minute),
        "m" => t.minute.to_string(),
        "ss" => format!("{:02}", t.second),
        "s" => t.second.to_string(),
        "ZZZZZ" => offset_text(t.offset, ":"),
        "ZZZZ" => offset_text(t.offset, ""),
        "ZZZ" if t.offset == 0 => "UTC".to_owned(),
        "ZZZ" => offset_text(t.offset, ""),
        "Z" if t.offset == 0 => "Z".to_owned(),
        "Z" => offset_text(t.offset, ":"),
        _ => return None,
    })
}
