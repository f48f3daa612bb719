//! Durations as Go writes them: `1h30m`, `1.5s`, `-90m`, `100us`.

/// Longest text of a duration, in bytes.
pub const MAX_DURATION_LEN: usize = 256;

/// Nanoseconds of a duration; the error is worded as clients know it (`time: unknown unit "d" in duration "1d"`).
pub fn parse_duration(text: &str) -> Result<i64, String> {
    if text.len() > MAX_DURATION_LEN {
        return Err(format!("time: invalid duration of {} bytes", text.len()));
    }
    herdsman_expr::duration::parse(text).map_err(|error| error.to_string())
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
