//! Cron expressions against a table of sequences and `runtime/cron.tsv`.

use herdsman_expr::cron::{Cron, Zone};

/// Rows: expression, zone, start, `ok` or `err`, launches (`-` = never again) or the error.
#[test]
fn sequences_and_errors_agree_with_the_table() {
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in include_str!("../data/cron.tsv").lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let (text, zone, from, want) = (cells[0], cells[1], cells[2], cells[4]);
        let got = match Cron::parse(text) {
            Err(error) => error.to_string(),
            Ok(cron) => {
                let ended = want.ends_with('-');
                let count = want.split(' ').count();
                let zone = Zone::named(zone).unwrap();
                let mut times: Vec<String> =
                    cron.next_times(from.parse().unwrap(), &zone, count).iter().map(ToString::to_string).collect();
                if ended && times.len() < count {
                    times.push("-".to_owned());
                }
                times.join(" ")
            }
        };
        if got != want {
            wrong.push(format!("{line}\n  got {got}"));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows > 500, "table is cut: {rows} rows");
}

fn unix(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_second()
}

/// Rows: expression, zone, next launch (`None` = never), date of the answer, error.
#[test]
fn the_reference_table_holds() {
    let table = crate::shared("compat/goldens/runtime/cron.tsv");
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in table.lines().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let (text, zone, want, date) = (cells[0], cells[1], cells[2], cells[3]);
        let now = jiff::fmt::rfc2822::parse(date).unwrap().timestamp().as_second();
        let got = match (Cron::parse(text), Zone::named(zone)) {
            (Err(error), _) => format!("Invalid cron spec {text:?}: {error}"),
            (_, Err(error)) => format!("Invalid time zone {zone:?}: {error}"),
            (Ok(cron), Ok(zone)) => match cron.next_in(now, &zone) {
                None => "None".to_owned(),
                Some(next) => next.to_string(),
            },
        };
        let right = match (cells.get(4).copied().unwrap_or_default(), want) {
            ("", "None") => got == "None",
            ("", want) => got == unix(want).to_string(),
            (error, _) => error.ends_with(&format!("* {got} ")),
        };
        if !right {
            wrong.push(format!("{line}\n  got {got}"));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows >= 71, "table is cut: {rows} rows");
}

fn launches(text: &str, zone: &str, from: &str, count: usize) -> Vec<i64> {
    let cron = Cron::parse(text).unwrap();
    cron.next_times(unix(from), &Zone::named(zone).unwrap(), count)
}

#[test]
fn nomad_5410_no_loop_at_a_daylight_saving_change() {
    let spring = launches("0 2 * * * *", "America/New_York", "2027-03-12T12:00:00Z", 3);
    let want = ["2027-03-13T02:00:00-05:00", "2027-03-15T02:00:00-04:00", "2027-03-16T02:00:00-04:00"];
    assert_eq!(spring, want.map(unix));
    let autumn = launches("0 1 * * *", "America/New_York", "2027-11-06T12:00:00Z", 3);
    let want = ["2027-11-07T01:00:00-04:00", "2027-11-07T01:00:00-05:00", "2027-11-08T01:00:00-05:00"];
    assert_eq!(autumn, want.map(unix));
    let autumn = launches("0 2 * * *", "America/New_York", "2027-11-06T12:00:00Z", 2);
    let want = ["2027-11-07T02:00:00-05:00", "2027-11-08T02:00:00-05:00"];
    assert_eq!(autumn, want.map(unix));
}

#[test]
fn nomad_2721_the_zone_decides_what_has_already_run() {
    // 09:00 in New York is 14:00 UTC: asked at 13:30 UTC it is still to come, at 14:00 it is not.
    let next = launches("0 9 * * *", "America/New_York", "2026-12-01T13:30:00Z", 1);
    assert_eq!(next, [unix("2026-12-01T14:00:00Z")]);
    let next = launches("0 9 * * *", "America/New_York", "2026-12-01T14:00:00Z", 1);
    assert_eq!(next, [unix("2026-12-02T14:00:00Z")]);
}

#[test]
fn nomad_23753_every_second_shows_in_the_next_five() {
    let next = launches("* * */4 * * * *", "UTC", "2026-12-01T00:59:58Z", 5);
    let want = ["00:59:59", "04:00:00", "04:00:01", "04:00:02", "04:00:03"];
    assert_eq!(next, want.map(|t| unix(&format!("2026-12-01T{t}Z"))));
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    const FIELD: &str =
        "(\\*|\\?|L|LW|[0-9]{1,2}|[0-9]{1,2}-[0-9]{1,2}|[0-9]W|[0-7]#[1-5]|[0-7]L|jan|MON)(/[0-9]{1,2})?(,[0-9]{1,2})?";
    const ZONES: [&str; 6] =
        ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata"];

    fn times() -> impl Strategy<Value = (Cron, i64, &'static str)> {
        let set = |high: u32| {
            prop_oneof![
                Just("*".to_owned()),
                (0..=high).prop_map(|v| v.to_string()),
                (1..=high).prop_map(|v| format!("*/{v}")),
                (0..=high, 0..=high).prop_map(|(a, b)| format!("{a},{b}")),
            ]
        };
        let day = prop_oneof![
            Just("*".to_owned()),
            Just("L".to_owned()),
            Just("LW".to_owned()),
            (1..=31u32).prop_map(|v| v.to_string()),
            (1..=31u32).prop_map(|v| format!("{v}W")),
        ];
        let week = prop_oneof![
            3 => Just("*".to_owned()), 1 => (0..=7u32).prop_map(|v| v.to_string()),
            1 => (0..=7u32, 1..=5u32).prop_map(|(d, n)| format!("{d}#{n}")),
            1 => (0..=7u32).prop_map(|v| format!("{v}L")),
        ];
        (set(59), set(59), set(23), day, week, 0i64..4_000_000_000, proptest::sample::select(&ZONES[..])).prop_map(
            |(s, m, h, d, w, after, zone)| (Cron::parse(&format!("{s} {m} {h} {d} * {w} *")).unwrap(), after, zone),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>(), zone in any::<String>()) {
            let _ = Cron::parse(&text);
            let _ = Zone::named(&zone);
        }

        #[test]
        fn near_text_never_panics(
            fields in proptest::collection::vec(FIELD, 4..9),
            after in any::<i64>(),
            zone in proptest::sample::select(&ZONES[..]),
        ) {
            if let Ok(cron) = Cron::parse(&fields.join(" ")) {
                let _ = cron.next(after, zone);
            }
        }

        /// The answer is later, does not depend on where before it one asks, and is reached from
        /// the second before.
        #[test]
        fn the_next_time_is_the_first_one((cron, after, zone) in times(), part in 0.0f64..1.0) {
            if let Some(next) = cron.next(after, zone) {
                prop_assert!(next > after);
                let between = after + ((next - 1 - after) as f64 * part) as i64;
                prop_assert_eq!(cron.next(between, zone), Some(next));
                prop_assert_eq!(cron.next(next - 1, zone), Some(next));
            }
        }
    }
}
