//! Durations as people read them.

use herdsman_model::Nanos;
use std::fmt::Write;

/// A duration the way the peer prints it: `1h0m0s`, `5m0s`, `1.157369613s`, `250ms`, `0s`.
pub fn go_duration(nanos: Nanos) -> String {
    const MICRO: u64 = 1_000;
    const MILLI: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;
    let (sign, n) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    match n {
        0 => "0s".into(),
        1..MICRO => format!("{sign}{n}ns"),
        MICRO..MILLI => format!("{sign}{}µs", decimal(n, MICRO)),
        MILLI..SECOND => format!("{sign}{}ms", decimal(n, MILLI)),
        _ => {
            let (minutes, rest) = (n / (60 * SECOND), n % (60 * SECOND));
            let mut text = String::from(sign);
            // Writing to a String cannot fail.
            if minutes >= 60 {
                let _ = write!(text, "{}h", minutes / 60);
            }
            if minutes > 0 {
                let _ = write!(text, "{}m", minutes % 60);
            }
            let _ = write!(text, "{}s", decimal(rest, SECOND));
            text
        }
    }
}

/// `n / unit` with as many decimals as needed.
fn decimal(n: u64, unit: u64) -> String {
    let (whole, part) = (n / unit, n % unit);
    if part == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{part:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_the_peer_prints_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (250_000_000, "250ms"),
            (1_157_369_613, "1.157369613s"),
            (2_000_000_000, "2s"),
            (300_000_000_000, "5m0s"),
            (1_800_000_000_000, "30m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (86_400_000_000_000, "24h0m0s"),
            (-1_500_000_000, "-1.5s"),
        ] {
            assert_eq!(go_duration(nanos), text);
        }
    }
}
