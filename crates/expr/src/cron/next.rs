//! The next time of a [`Cron`] in a zone.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::TimeZone;

use super::{Cron, Set};

/// Most offset changes looked through for one answer; zones have about two a year.
const MAX_TRANSITIONS: usize = 1000;

/// Between two changes of the zone's offset the wall clock runs with the time, so there the next
/// wall clock time that fits is the next launch. The search goes from change to change.
pub(super) fn next(cron: &Cron, after: i64, zone: &TimeZone) -> Option<i64> {
    // Nothing can be named before 1970; the day before leaves room for any offset.
    let mut from = after.checked_add(1)?.max(-86_400);
    for _ in 0..MAX_TRANSITIONS {
        let start = Timestamp::from_second(from).ok()?;
        let offset = i64::from(zone.to_offset(start).seconds());
        let change = zone.following(start).next().map(|t| t.timestamp().as_second());
        let wall = civil(from.checked_add(offset)?)?;
        let found = next_wall(cron, wall).map(seconds);
        if let Some(found) = found {
            let launch = found.checked_sub(offset)?;
            if change.is_none_or(|change| launch < change) {
                return Some(launch);
            }
        }
        let change = change?;
        let Some(found) = found else {
            // Only a clock that is set back can show a time that fits once more.
            let later = i64::from(zone.to_offset(Timestamp::from_second(change).ok()?).seconds());
            if change.checked_add(later)? >= from.checked_add(offset)? {
                return None;
            }
            from = change;
            continue;
        };
        // No offset is larger than a day, so nothing is missed by going on two days before.
        from = change.max(found.checked_sub(2 * 86_400)?);
    }
    None
}

/// The wall clock that shows this many seconds since 1970.
fn civil(seconds: i64) -> Option<DateTime> {
    Some(TimeZone::UTC.to_datetime(Timestamp::from_second(seconds).ok()?))
}

fn seconds(wall: DateTime) -> i64 {
    let days = i64::from(days_since_epoch(wall.date()));
    let time = i64::from(wall.hour()) * 3600 + i64::from(wall.minute()) * 60;
    days * 86_400 + time + i64::from(wall.second())
}

fn days_since_epoch(date: Date) -> i32 {
    const EPOCH: Date = jiff::civil::date(1970, 1, 1);
    EPOCH.duration_until(date).as_hours().try_into().map_or(0, |hours: i32| hours / 24)
}

/// The first wall clock time at or after `from` that fits.
fn next_wall(cron: &Cron, from: DateTime) -> Option<DateTime> {
    let (hour, minute, second) = (number(from.hour()), number(from.minute()), number(from.second()));
    if let Some(days) = days_of(cron, from.date())
        && days.contains(number(from.day()))
        && let Some((hour, minute, second)) = next_time(cron, hour, minute, second)
    {
        return at(from.year(), from.month(), number(from.day()), hour, minute, second);
    }
    let first = next_time(cron, 0, 0, 0)?;
    let start = u16::try_from(from.year().max(0)).ok()?;
    for year in cron.years.iter().copied().filter(|year| *year >= start) {
        let year = i16::try_from(year).ok()?;
        let same_year = year == from.year();
        let mut month = if same_year { number(from.month()) } else { 1 };
        while let Some(found) = cron.months.at_least(month) {
            let month_start = Date::new(year, i8::try_from(found).ok()?, 1).ok()?;
            let same_month = same_year && found == number(from.month());
            let first_day = if same_month { number(from.day()) + 1 } else { 1 };
            let day = days_of(cron, month_start).and_then(|days| days.at_least(first_day));
            if let Some(day) = day {
                return at(year, month_start.month(), day, first.0, first.1, first.2);
            }
            month = found + 1;
        }
    }
    None
}

fn number(value: i8) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

fn at(year: i16, month: i8, day: u32, hour: u32, minute: u32, second: u32) -> Option<DateTime> {
    let small = |value: u32| i8::try_from(value).ok();
    DateTime::new(year, month, small(day)?, small(hour)?, small(minute)?, small(second)?, 0).ok()
}

/// The first time of day at or after the given one.
fn next_time(cron: &Cron, hour: u32, minute: u32, second: u32) -> Option<(u32, u32, u32)> {
    let first_minute = cron.minutes.at_least(0)?;
    let first_second = cron.seconds.at_least(0)?;
    if cron.hours.contains(hour) {
        if cron.minutes.contains(minute)
            && let Some(second) = cron.seconds.at_least(second)
        {
            return Some((hour, minute, second));
        }
        if let Some(minute) = cron.minutes.at_least(minute + 1) {
            return Some((hour, minute, first_second));
        }
    }
    let hour = cron.hours.at_least(hour + 1)?;
    Some((hour, first_minute, first_second))
}

/// The days of the month of `date` that fit; `None` if the year or month does not.
fn days_of(cron: &Cron, date: Date) -> Option<Set> {
    let year = u16::try_from(date.year()).ok()?;
    if cron.years.binary_search(&year).is_err() || !cron.months.contains(number(date.month())) {
        return None;
    }
    let first = date.first_of_month();
    let length = number(date.days_in_month());
    let start = weekday(first);
    let mut days = Set::default();
    // Restricted fields add their days; if neither is restricted every day fits.
    if cron.any_day_of_month && cron.any_day_of_week {
        (1..=length).for_each(|day| days.insert(day));
        return Some(days);
    }
    if !cron.any_day_of_month {
        add_month_days(cron, &mut days, start, length);
    }
    if !cron.any_day_of_week {
        add_week_days(cron, &mut days, start, length);
    }
    Some(days)
}

/// 0 is Sunday.
fn weekday(date: Date) -> u32 {
    match date.weekday() {
        Weekday::Sunday => 0,
        Weekday::Monday => 1,
        Weekday::Tuesday => 2,
        Weekday::Wednesday => 3,
        Weekday::Thursday => 4,
        Weekday::Friday => 5,
        Weekday::Saturday => 6,
    }
}

/// Adds what the day of month field names, in a month of `length` days that begins on `start`.
fn add_month_days(cron: &Cron, days: &mut Set, start: u32, length: u32) {
    for day in (1..=length).filter(|day| cron.days.contains(*day)) {
        days.insert(day);
    }
    if cron.last_day {
        days.insert(length);
    }
    if cron.last_workday {
        days.insert(nearest_workday(length, start, length));
    }
    for day in (1..=length).filter(|day| cron.nearest_workdays.contains(*day)) {
        days.insert(nearest_workday(day, start, length));
    }
}

/// The working day nearest to `day` within its month.
fn nearest_workday(day: u32, start: u32, length: u32) -> u32 {
    match (start + day - 1) % 7 {
        6 if day > 1 => day - 1,
        6 => day + 2,
        0 if day < length => day + 1,
        0 => day - 2,
        _ => day,
    }
}

/// Adds what the day of week field names.
fn add_week_days(cron: &Cron, days: &mut Set, start: u32, length: u32) {
    for day in 1..=length {
        let weekday = (start + day - 1) % 7;
        let nth = (day - 1) / 7 + 1;
        if cron.weekdays.contains(weekday)
            || cron.nth_weekdays.contains(weekday * 8 + nth)
            || (cron.last_weekdays.contains(weekday) && day + 7 > length)
        {
            days.insert(day);
        }
    }
}
