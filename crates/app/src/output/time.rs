//! Times for people and programs: RFC 3339, in UTC.

use std::time::{Duration, UNIX_EPOCH};

/// Seconds since the epoch as `2026-11-21T07:40:01Z`; `None` beyond the year 9999, which no drive has seen but a damaged
/// superblock may claim.
pub fn rfc3339(secs: u64) -> Option<String> {
    /// 9999-12-31T23:59:59Z, the last second that RFC 3339 can write.
    const LAST_SECS: u64 = 253_402_300_799;
    (secs <= LAST_SECS)
        .then(|| humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(secs)).to_string())
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
    }
}
