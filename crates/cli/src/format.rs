//! How times, spans, sizes and ids are shown.

use crate::command::Environment;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Characters of a shortened id.
pub const SHORT_ID: usize = 8;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const MONTH: i64 = 30 * DAY;
const YEAR: i64 = 365 * DAY;

/// Shows times in the user's zone and relative to now.
#[derive(Clone)]
pub struct Times {
    zone: TimeZone,
    environment: Environment,
}

impl Times {
    /// The zone that `TZ` or the system names; UTC when neither is understood.
    pub fn of(environment: &Environment) -> Times {
        let name = match environment.get("TZ") {
            Some(name) => Some(name.trim_start_matches(':').to_string()),
            None => system_zone(),
        };
        let zone = name.and_then(|n| TimeZone::get(&n).ok()).unwrap_or(TimeZone::UTC);
        Times { zone, environment: environment.clone() }
    }

    /// Nanoseconds since 1970.
    pub fn now(&self) -> i64 {
        self.environment.now()
    }

    /// Now, as `2006-01-02T15:04:05Z`.
    pub fn stamp(&self) -> String {
        self.show(self.now())
    }

    /// Nanoseconds since 1970 as `2006-01-02T15:04:05Z`; 0 is `N/A`.
    pub fn show(&self, nanoseconds: i64) -> String {
        if nanoseconds == 0 {
            return "N/A".to_string();
        }
        match Timestamp::from_nanosecond(i128::from(nanoseconds)) {
            Ok(time) => write(time, self.zone.clone()),
            Err(_) => nanoseconds.to_string(),
        }
    }

    /// A time in RFC 3339 in the user's zone, without fractions; absent and zero times are `N/A`.
    pub fn shown(&self, text: &str) -> String {
        match nanoseconds_of(text) {
            0 => "N/A".to_string(),
            known => self.show(known),
        }
    }

    /// A time in the named zone; in the user's when there is none of that name.
    pub fn in_zone(&self, zone: &str, nanoseconds: i64) -> String {
        match (TimeZone::get(zone), Timestamp::from_nanosecond(i128::from(nanoseconds))) {
            (Ok(zone), Ok(time)) => write(time, zone),
            _ => self.show(nanoseconds),
        }
    }
    /// How long ago, such as `1m15s ago`; `<none>` for 0.
    pub fn ago(&self, nanoseconds: i64) -> String {
        if nanoseconds == 0 {
            return "<none>".to_string();
        }
        let seconds = self.now().saturating_sub(nanoseconds) / SECOND;
        if seconds < 0 {
            return format!("{} from now", span(seconds.saturating_neg()));
        }
        format!("{} ago", span(seconds))
    }

    /// A time, full when asked for, else relative.
    pub fn when(&self, nanoseconds: i64, full: bool) -> String {
        if full { self.show(nanoseconds) } else { self.ago(nanoseconds) }
    }
}

fn write(time: Timestamp, zone: TimeZone) -> String {
    let zoned = time.to_zoned(zone);
    let seconds = zoned.offset().seconds();
    let offset = if seconds == 0 {
        "Z".to_string()
    } else {
        let (sign, seconds) = if seconds < 0 { ('-', -seconds) } else { ('+', seconds) };
        format!("{sign}{:02}:{:02}", seconds / 3600, seconds % 3600 / 60)
    };
    format!("{}{offset}", zoned.strftime("%Y-%m-%dT%H:%M:%S"))
}

/// Nanoseconds since 1970 of a time in RFC 3339; 0 for none and for years before 1970.
pub fn nanoseconds_of(text: &str) -> i64 {
    let time: Timestamp = match text.parse() {
        Ok(time) => time,
        Err(_) => return 0,
    };
    i64::try_from(time.as_nanosecond()).unwrap_or(0).max(0)
}

fn system_zone() -> Option<String> {
    let target = std::fs::read_link("/etc/localtime").ok()?;
    let text = target.to_str()?;
    text.split_once("zoneinfo/").map(|(_, name)| name.to_string())
}

/// A span by its two largest units, such as `1m15s`, `2d3h`, `1y2mo`.
pub fn span(seconds: i64) -> String {
    const UNITS: [(i64, &str); 6] = [(YEAR, "y"), (MONTH, "mo"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s")];
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (size, name) in UNITS {
        let count = rest / size;
        rest %= size;
        if count > 0 {
            parts.push(format!("{count}{name}"));
        } else if !parts.is_empty() {
            break;
        }
        if parts.len() == 2 {
            break;
        }
    }
    if parts.is_empty() { "0s".to_string() } else { parts.concat() }
}

/// Bytes with binary units, such as `3.1 MiB`.
pub fn bytes(count: i64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 10 {
        return format!("{count} B");
    }
    #[allow(clippy::cast_precision_loss)]
    let mut size = count as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let size = (size * 10.0 + 0.5).floor() / 10.0;
    let name = UNITS.get(unit).copied().unwrap_or("B");
    if size < 10.0 { format!("{size:.1} {name}") } else { format!("{size:.0} {name}") }
}

/// Mebibytes as [`bytes`] shows them.
pub fn mebibytes(count: i64) -> String {
    bytes(count.saturating_mul(1024 * 1024))
}

/// An id, shortened unless all of it is wanted.
pub fn id(text: &str, full: bool) -> &str {
    if full { text } else { text.get(..SHORT_ID).unwrap_or(text) }
}

/// A prefix of an id with a whole number of bytes, as the API wants it.
pub fn id_prefix(text: &str) -> String {
    let digits = text.chars().filter(|c| *c != '-').count();
    let mut text = text.to_string();
    if digits % 2 == 1 {
        text.truncate(text.trim_end_matches('-').len());
        text.pop();
    }
    text.truncate(text.trim_end_matches('-').len());
    text
}

/// A number with the fewest digits that tell it apart, at most three significant ones.
pub fn short_number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    let magnitude = value.abs().log10().floor();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let decimals = (2.0 - magnitude).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_read_as_the_peers() {
        assert_eq!(span(35), "35s");
        assert_eq!(span(75), "1m15s");
        assert_eq!(span(3600 * 25 + 5), "1d1h");
        assert_eq!(span(86400), "1d");
        assert_eq!(span(0), "0s");
        assert_eq!(bytes(8), "8 B");
        assert_eq!(bytes(4096), "4.0 KiB");
        assert_eq!(bytes(3_250_585), "3.1 MiB");
        assert_eq!(bytes(25_276_510_208), "24 GiB");
        assert_eq!(mebibytes(300), "300 MiB");
        assert_eq!(id("6dd06d6f-7f78", false), "6dd06d6f");
        assert_eq!(id_prefix("6dd06d6f-7"), "6dd06d6f");
        assert_eq!(short_number(0.0487), "0.0487");
        assert_eq!(short_number(-0.476), "-0.476");
        assert_eq!(short_number(-1.0), "-1");
    }

    #[test]
    fn times_stand_in_the_zone_of_the_user() {
        let berlin = Environment::of([("TZ".to_string(), "Europe/Berlin".to_string())]).at_time(60 * SECOND);
        let times = Times::of(&berlin);
        assert_eq!(times.stamp(), "1970-01-01T01:01:00+01:00");
        assert_eq!(times.shown("1970-01-01T00:00:05.5Z"), "1970-01-01T01:00:05+01:00");
        assert_eq!(times.shown("0001-01-01T00:00:00Z"), "N/A");
        assert_eq!(times.ago(25 * SECOND), "35s ago");
        assert_eq!(times.show(0), "N/A");
    }
}
