//! Times for people and programs: RFC 3339, in UTC.

use std::time::{Duration, UNIX_EPOCH};

/// Seconds since the epoch as `2026-11-21T07:40:01Z`; `None` beyond the year 9999, which no drive
/// has seen but a damaged superblock may claim.
pub fn rfc3339(secs: u64) -> Option<String> {
    /// 9999-12-31T23:59:59Z, the last second that RFC 3339 can write.
    const LAST_SECS: u64 = 253_402_300_799;
    (secs <= LAST_SECS)
        .then(|| humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(secs)).to_string())
}

/// What [`rfc3339`] was made from.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(text).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// How many seconds ago something was, by the clock of then; `None` if that is not known. A clock
/// that was set back a little is none that was wrong by years.
pub fn secs_since(then_secs: Option<u64>, now_secs: u64) -> Option<u64> {
    const WRONG_BY_SECS: u64 = 86_400;
    let then = then_secs.filter(|then| *then <= now_secs.saturating_add(WRONG_BY_SECS));
    then.map(|then| now_secs.saturating_sub(then))
}

/// A number of seconds for people: `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`.
pub fn duration(secs: u64) -> String {
    let (min, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    match secs {
        0..=119 => format!("{secs} s"),
        120..=7_199 => format!("{min} min"),
        7_200..=172_799 => format!("{hours} h {} min", min % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_time_is_no_panic() {
        // The formatter panics past the year 9999, and 40 bits of seconds reach the year 36812.
        assert_eq!(rfc3339(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(rfc3339(253_402_300_799).as_deref(), Some("9999-12-31T23:59:59Z"));
        assert_eq!(rfc3339(253_402_300_800), None);
        assert_eq!(rfc3339(u64::MAX), None);
        for secs in [0, 1_795_523_547, 253_402_300_799] {
            assert_eq!(rfc3339(secs).as_deref().and_then(parse_rfc3339), Some(secs));
        }
        assert_eq!(parse_rfc3339("today"), None);
    }

    #[test]
    fn a_time_in_the_future_is_not_known() {
        assert_eq!(secs_since(Some(10), 15), Some(5));
        assert_eq!(secs_since(Some(3600), 15), Some(0), "the clock was set back");
        assert_eq!(secs_since(Some(14 * 365 * 86_400), 15), None);
        assert_eq!(secs_since(None, 15), None);
    }

    #[test]
    fn durations_have_two_figures_at_most() {
        let rows = [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_199, "119 min"),
            (12_000, "3 h 20 min"),
            (187_200, "2 d 4 h"),
        ];
        for (secs, text) in rows {
            assert_eq!(duration(secs), text);
        }
    }
}
