//! Days and dates of the proleptic Gregorian calendar, for years far beyond what calendar libraries take.

/// Names of the months.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Names of the days of a week.
pub const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Days from 0000-03-01 to 1970-01-01.
const SHIFT: i64 = 719_468;
/// Days of 400 years, after which leap years repeat.
const ERA: i64 = 146_097;

/// The day of a date, counted from 1970-01-01.
#[must_use]
pub fn day_number(year: i64, month: u32, day: u32) -> i64 {
    // Years that begin in March, so that the leap day ends one.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (i64::from(month) + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    era * ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - SHIFT
}

/// Year, month and day of a day counted from 1970-01-01.
#[must_use]
pub fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + SHIFT;
    let (era, day_of_era) = (shifted.div_euclid(ERA), shifted.rem_euclid(ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The day of the week of a day counted from 1970-01-01, a place in [`WEEKDAYS`].
#[must_use]
pub fn weekday(days: i64) -> usize {
    (days + 4).rem_euclid(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_are_each_others_inverse() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(-1), (1969, 12, 31));
        assert_eq!(civil(20_788), (2026, 12, 1));
        assert_eq!((civil(11_016), civil(11_017)), ((2000, 2, 29), (2000, 3, 1)));
        assert_eq!((weekday(0), weekday(-1), weekday(20_788)), (4, 3, 2));
        for days in (-1_000_000..4_000_000).step_by(997) {
            let (year, month, day) = civil(days);
            assert_eq!(day_number(year, month, day), days);
        }
    }
}
