//! Text to [`Cron`].

use super::{Cron, CronError, MAX_CRON_BYTES, Set, YEARS};

/// Largest step that can be written in any field but the year.
const MAX_SMALL_NUMBER: u32 = 59;

const MACROS: [(&str, &str); 6] = [
    ("@annually", "0 0 0 1 1 * *"),
    ("@yearly", "0 0 0 1 1 * *"),
    ("@monthly", "0 0 0 1 * * *"),
    ("@weekly", "0 0 0 * * 0 *"),
    ("@daily", "0 0 0 * * * *"),
    ("@hourly", "0 0 * * * * *"),
];

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// What a field may hold.
struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    /// Widest step.
    max_step: u32,
    /// Names, the first of which stands for `first_name`.
    names: &'static [&'static str],
    first_name: u32,
}

const fn plain(name: &'static str, low: u32, high: u32) -> Field {
    Field { name, low, high, max_step: high, names: &[], first_name: 0 }
}

const SECOND: Field = plain("second", 0, 59);
const MINUTE: Field = plain("minute", 0, 59);
const HOUR: Field = plain("hour", 0, 23);
const DAY_OF_MONTH: Field = plain("day-of-month", 1, 31);
const MONTH: Field = Field { names: &MONTHS, first_name: 1, ..plain("month", 1, 12) };
const DAY_OF_WEEK: Field = Field { max_step: 6, names: &WEEKDAYS, ..plain("day-of-week", 0, 7) };
const YEAR: Field = plain("year", *YEARS.start() as u32, *YEARS.end() as u32);

/// One part of a comma list, as far as all fields have it in common.
enum Part<'t> {
    /// `*` or `?`
    Any,
    One(u32),
    Range {
        from: u32,
        to: u32,
        step: u32,
    },
    /// Something only the day fields may know.
    Other(&'t str),
}

pub(super) fn parse(text: &str) -> Result<Cron, CronError> {
    if text.len() > MAX_CRON_BYTES {
        return Err(CronError::TooLong(text.len()));
    }
    let mut expanded = text.to_owned();
    for (name, fields) in MACROS {
        if expanded.contains(name) {
            expanded = expanded.replace(name, fields);
        }
    }
    let mut fields: Vec<&str> = expanded.split_ascii_whitespace().collect();
    if fields.len() < 5 {
        return Err(CronError::MissingFields);
    }
    if fields.len() == 5 {
        fields.push("*");
    }
    if fields.len() == 6 {
        fields.insert(0, "0");
    }
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    let mut cron = Cron {
        seconds: simple(&SECOND, field(0))?,
        minutes: simple(&MINUTE, field(1))?,
        hours: simple(&HOUR, field(2))?,
        months: Set::default(),
        years: Vec::new(),
        any_day_of_month: false,
        days: Set::default(),
        last_day: false,
        last_workday: false,
        nearest_workdays: Set::default(),
        any_day_of_week: false,
        weekdays: Set::default(),
        nth_weekdays: Set::default(),
        last_weekdays: Set::default(),
    };
    day_of_month(&mut cron, field(3))?;
    cron.months = simple(&MONTH, field(4))?;
    day_of_week(&mut cron, field(5))?;
    cron.years = years(field(6))?;
    Ok(cron)
}

fn syntax(field: &Field, text: &str) -> CronError {
    CronError::Syntax { field: field.name, text: text.to_owned() }
}

/// The parts of a comma list; empty ones are skipped, but one must be there.
fn parts<'t>(field: &Field, text: &'t str) -> Result<impl Iterator<Item = &'t str>, CronError> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    if parts.clone().next().is_none() {
        return Err(CronError::MissingDirective(field.name));
    }
    Ok(parts)
}

/// One value: a number without superfluous zeros, or a name, whole or its first three letters.
fn value(field: &Field, text: &str) -> Option<u32> {
    if let Some(index) = field.names.iter().position(|name| {
        text.eq_ignore_ascii_case(name) || name.get(..3).is_some_and(|short| text.eq_ignore_ascii_case(short))
    }) {
        return u32::try_from(index).ok()?.checked_add(field.first_name);
    }
    let digits = if field.high > 99 { 4..=4 } else { 1..=2 };
    if !digits.contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = text.parse().ok()?;
    (field.low..=field.high).contains(&number).then_some(number)
}

fn part<'t>(field: &Field, text: &'t str) -> Result<Part<'t>, CronError> {
    let (range, step) = match text.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (text, None),
    };
    let (from, to) = if range == "*" || (range == "?" && step.is_none()) {
        if step.is_none() {
            return Ok(Part::Any);
        }
        let high = if field.name == DAY_OF_WEEK.name { 6 } else { field.high };
        (field.low, high)
    } else if let Some((from, to)) = range.split_once('-') {
        match (value(field, from), value(field, to)) {
            (Some(from), Some(to)) => (from, to),
            _ => return Ok(Part::Other(text)),
        }
    } else {
        match (value(field, range), step) {
            (None, _) => return Ok(Part::Other(text)),
            (Some(one), None) => return Ok(Part::One(one)),
            (Some(one), Some(_)) if field.name == DAY_OF_WEEK.name => (one % 7, 6),
            (Some(one), Some(_)) => (one, field.high),
        }
    };
    let step = match step {
        None => 1,
        Some(step) if !step.is_empty() && step.bytes().all(|b| b.is_ascii_digit()) => {
            interval(field, step).ok_or_else(|| CronError::Interval(text.to_owned()))?
        }
        Some(_) => return Ok(Part::Other(text)),
    };
    Ok(Part::Range { from, to, step })
}

/// A step: a number that a field could hold as a value of some kind, above 0 and not over the
/// field's highest.
fn interval(field: &Field, digits: &str) -> Option<u32> {
    let number: u32 = digits.parse().ok()?;
    let known = number <= MAX_SMALL_NUMBER || (YEAR.low..=YEAR.high).contains(&number);
    (known && (1..=field.max_step).contains(&number)).then_some(number)
}

/// The members of a range; none if it runs backwards.
fn members(from: u32, to: u32, step: u32) -> impl Iterator<Item = u32> {
    (from..=to).step_by(usize::try_from(step).unwrap_or(usize::MAX).max(1))
}

fn simple(field: &Field, text: &str) -> Result<Set, CronError> {
    let mut set = Set::default();
    for text in parts(field, text)? {
        match part(field, text)? {
            Part::Any => members(field.low, field.high, 1).for_each(|v| set.insert(v)),
            Part::One(one) => set.insert(one),
            Part::Range { from, to, step } => members(from, to, step).for_each(|v| set.insert(v)),
            Part::Other(text) => return Err(syntax(field, text)),
        }
    }
    Ok(set)
}

fn years(text: &str) -> Result<Vec<u16>, CronError> {
    let mut years = std::collections::BTreeSet::new();
    for text in parts(&YEAR, text)? {
        let (from, to, step) = match part(&YEAR, text)? {
            Part::Any => (YEAR.low, YEAR.high, 1),
            Part::One(one) => (one, one, 1),
            Part::Range { from, to, step } => (from, to, step),
            Part::Other(text) => return Err(syntax(&YEAR, text)),
        };
        years.extend(members(from, to, step).filter_map(|v| u16::try_from(v).ok()));
    }
    Ok(years.into_iter().collect())
}

fn day_of_month(cron: &mut Cron, text: &str) -> Result<(), CronError> {
    let field = &DAY_OF_MONTH;
    for text in parts(field, text)? {
        match part(field, text)? {
            Part::Any => cron.any_day_of_month = true,
            Part::One(one) => cron.days.insert(one),
            Part::Range { from, to, step } => {
                members(from, to, step).for_each(|v| cron.days.insert(v));
            }
            Part::Other(other) if other.eq_ignore_ascii_case("L") => cron.last_day = true,
            Part::Other(other) if other.eq_ignore_ascii_case("LW") => cron.last_workday = true,
            Part::Other(other) => {
                let day = other
                    .strip_suffix(['W', 'w'])
                    .and_then(|day| value(field, day))
                    .ok_or_else(|| syntax(field, other))?;
                cron.nearest_workdays.insert(day);
            }
        }
    }
    Ok(())
}

fn day_of_week(cron: &mut Cron, text: &str) -> Result<(), CronError> {
    let field = &DAY_OF_WEEK;
    for text in parts(field, text)? {
        match part(field, text)? {
            Part::Any => cron.any_day_of_week = true,
            Part::One(one) => cron.weekdays.insert(one % 7),
            Part::Range { from, to, step } => {
                // 7 as the end of a range is never reached by any day.
                members(from, to.min(6), step).for_each(|v| cron.weekdays.insert(v));
            }
            Part::Other(other) => special_weekday(cron, field, other)?,
        }
    }
    Ok(())
}

/// `5L`, the last Friday, or `5#3`, the third one.
fn special_weekday(cron: &mut Cron, field: &Field, text: &str) -> Result<(), CronError> {
    if let Some(day) = text.strip_suffix(['L', 'l']).and_then(|day| value(field, day)) {
        cron.last_weekdays.insert(day % 7);
        return Ok(());
    }
    let nth = text.split_once('#').and_then(|(day, nth)| {
        let day = value(field, day)? % 7;
        let nth: u32 = (nth.len() == 1).then(|| nth.parse().ok()).flatten()?;
        (1..=5).contains(&nth).then_some(day * 8 + nth)
    });
    cron.nth_weekdays.insert(nth.ok_or_else(|| syntax(field, text))?);
    Ok(())
}
