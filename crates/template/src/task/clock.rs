//! Times by Go's layouts, in UTC.

use super::failure;
use crate::builtin::CallError;
use herdsman_expr::calendar::{MONTHS, WEEKDAYS, civil, weekday};
use serde_json::Value;

/// The layout of a time without one.
pub(super) const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
/// Longest layout, bytes.
const MAX_LAYOUT: usize = 4096;

pub(super) fn timestamp(now: i64, layout: &str) -> Result<Value, CallError> {
    if layout.len() > MAX_LAYOUT {
        return Err(failure(format!("timestamp: the layout has more than {MAX_LAYOUT} bytes")));
    }
    if layout == "unix" {
        return Ok(now.div_euclid(1_000_000_000).to_string().into());
    }
    Ok(Time::new(now).format(layout).into())
}

struct Time {
    year: i64,
    month: u32,
    day: u32,
    weekday: usize,
    seconds: i64,
    nanos: i64,
}

impl Time {
    fn new(now: i64) -> Time {
        let (seconds, nanos) = (now.div_euclid(1_000_000_000), now.rem_euclid(1_000_000_000));
        let days = seconds.div_euclid(86_400);
        let (year, month, day) = civil(days);
        Time { year, month, day, weekday: weekday(days), seconds: seconds.rem_euclid(86_400), nanos }
    }

    fn format(&self, layout: &str) -> String {
        let mut out = String::new();
        let mut rest = layout;
        'next: while let Some(c) = rest.chars().next() {
            for token in TOKENS {
                if let Some(after) = rest.strip_prefix(token) {
                    out.push_str(&self.part(token));
                    rest = after;
                    continue 'next;
                }
            }
            if matches!(c, '.' | ',') {
                let digits = rest.get(1..).unwrap_or_default();
                let zeros = digits.len() - digits.trim_start_matches('0').len();
                let nines = digits.len() - digits.trim_start_matches('9').len();
                let count = zeros.max(nines);
                let ended = digits.get(count..).is_some_and(|d| !d.starts_with(|c: char| c.is_ascii_digit()));
                if (1..=9).contains(&count) && ended {
                    out.push_str(&self.fraction(c, count, nines > 0));
                    rest = digits.get(count..).unwrap_or_default();
                    continue;
                }
            }
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
        out
    }

    fn fraction(&self, mark: char, count: usize, trimmed: bool) -> String {
        let digits = format!("{:09}", self.nanos);
        let digits = digits.get(..count).unwrap_or_default();
        let digits = if trimmed { digits.trim_end_matches('0') } else { digits };
        if digits.is_empty() { String::new() } else { format!("{mark}{digits}") }
    }

    fn part(&self, token: &str) -> String {
        let month = MONTHS.get(self.month.saturating_sub(1) as usize).copied().unwrap_or_default();
        let weekday = WEEKDAYS.get(self.weekday).copied().unwrap_or_default();
        let (hour, minute, second) = (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        let half = if hour % 12 == 0 { 12 } else { hour % 12 };
        match token {
            "January" => month.to_string(),
            "Jan" => month.chars().take(3).collect(),
            "Monday" => weekday.to_string(),
            "Mon" => weekday.chars().take(3).collect(),
            "2006" => format!("{:04}", self.year),
            "06" => format!("{:02}", self.year.rem_euclid(100)),
            "01" => format!("{:02}", self.month),
            "1" => self.month.to_string(),
            "02" => format!("{:02}", self.day),
            "_2" => format!("{:2}", self.day),
            "2" => self.day.to_string(),
            "15" => format!("{hour:02}"),
            "03" => format!("{half:02}"),
            "3" => half.to_string(),
            "04" => format!("{minute:02}"),
            "4" => minute.to_string(),
            "05" => format!("{second:02}"),
            "5" => second.to_string(),
            "PM" => if hour >= 12 { "PM" } else { "AM" }.to_string(),
            "pm" => if hour >= 12 { "pm" } else { "am" }.to_string(),
            "MST" => "UTC".to_string(),
            "Z07:00" | "Z0700" => "Z".to_string(),
            "-07:00" => "+00:00".to_string(),
            "-0700" => "+0000".to_string(),
            "-07" => "+00".to_string(),
            _ => token.to_string(),
        }
    }
}

/// Longer ones before those they begin with.
const TOKENS: &[&str] = &[
    "January", "Jan", "Monday", "Mon", "MST", "2006", "Z07:00", "Z0700", "-07:00", "-0700", "-07", "_2", "01", "02",
    "03", "04", "05", "06", "15", "PM", "pm", "1", "2", "3", "4", "5",
];
