//! Cron expressions with seconds, years, `L`, `W`, `#` and time zones.
//!
//! Five fields are minute, hour, day of month, month, day of week; six add a year; seven begin with
//! seconds; what follows the seventh is ignored. `@hourly`, `@daily`, `@weekly`, `@monthly`,
//! `@yearly` and `@annually` stand for their fields.
//!
//! Traits of the language that jobs rely on: if both day fields are restricted, either is enough; a
//! range that runs backwards (`22-2`) holds nothing; within a range, 7 is no Sunday, though it is
//! one alone; a year is within 1970 to 2099.
//!
//! An expression holds in every second whose wall clock reads one of its times. So a time which
//! daylight saving skips does not happen on that day, and one which the clock shows twice happens
//! twice.

mod next;
mod parse;

use std::sync::LazyLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Longest expression taken, in bytes.
pub const MAX_CRON_BYTES: usize = 1024;

/// First and last year an expression can name.
const YEARS: std::ops::RangeInclusive<u16> = 1970..=2099;

/// Why an expression or a time zone is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Fewer than five fields.
    #[error("missing field(s)")]
    MissingFields,
    /// A part of a field that is none.
    #[error("syntax error in {field} field: '{text}'")]
    Syntax {
        /// Name of the field.
        field: &'static str,
        /// The part.
        text: String,
    },
    /// A field of nothing but commas.
    #[error("{0} field: missing directive")]
    MissingDirective(&'static str),
    /// A step of 0, or one wider than the field.
    #[error("invalid interval {0}")]
    Interval(String),
    /// Longer than [`MAX_CRON_BYTES`].
    #[error("expression has {0} bytes, at most {MAX_CRON_BYTES} are taken")]
    TooLong(usize),
    /// No such zone in the time zone database.
    #[error("unknown time zone {0}")]
    UnknownZone(String),
}

/// The compiled-in database. The library's own default may look at files if another crate of the
/// program turns that on.
static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone from the compiled-in database.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The zone of an IANA name. `UTC` and the empty name are UTC. `Local` is UTC too, because this
    /// crate does not look at the machine: who wants the machine's zone passes its IANA name.
    ///
    /// # Errors
    /// A name the database does not have.
    pub fn named(name: &str) -> Result<Self, CronError> {
        match name {
            "" | "UTC" | "Local" => Ok(Self::utc()),
            _ => DATABASE.get(name).map(Self).map_err(|_| CronError::UnknownZone(name.to_owned())),
        }
    }
}

/// A set of small numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn insert(&mut self, value: u32) {
        self.0 |= 1u64.checked_shl(value).unwrap_or(0);
    }

    fn contains(self, value: u32) -> bool {
        self.0 & 1u64.checked_shl(value).unwrap_or(0) != 0
    }

    /// The smallest member that is at least `from`.
    fn at_least(self, from: u32) -> Option<u32> {
        let rest = self.0 & u64::MAX.checked_shl(from).unwrap_or(0);
        (rest != 0).then(|| rest.trailing_zeros())
    }
}

/// A parsed expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    seconds: Set,
    minutes: Set,
    hours: Set,
    months: Set,
    /// Members of [`YEARS`], sorted.
    years: Vec<u16>,
    /// Whether the day of month field was `*` or `?`.
    any_day_of_month: bool,
    days: Set,
    last_day: bool,
    last_workday: bool,
    /// Days with a `W`.
    nearest_workdays: Set,
    /// Whether the day of week field was `*` or `?`.
    any_day_of_week: bool,
    weekdays: Set,
    /// `5#3` as bit `5 * 8 + 3`.
    nth_weekdays: Set,
    /// `5L`.
    last_weekdays: Set,
}

impl Cron {
    /// Parses an expression.
    ///
    /// # Errors
    /// Malformed text; the error names the field and the part.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        parse::parse(text)
    }

    /// The first second after `after` (Unix time) in which the expression holds in `zone`; `None`
    /// if there is none before the year 2100.
    #[must_use]
    pub fn next_in(&self, after: i64, zone: &Zone) -> Option<i64> {
        next::next(self, after, &zone.0)
    }

    /// [`Cron::next_in`] by the zone's name; also `None` if there is no such zone, so ask
    /// [`Zone::named`] first where that matters.
    #[must_use]
    pub fn next(&self, after: i64, zone: &str) -> Option<i64> {
        self.next_in(after, &Zone::named(zone).ok()?)
    }

    /// The next `count` launches, fewer if the expression runs out.
    #[must_use]
    pub fn next_times(&self, after: i64, zone: &Zone, count: usize) -> Vec<i64> {
        std::iter::successors(self.next_in(after, zone), |t| self.next_in(*t, zone)).take(count).collect()
    }
}
