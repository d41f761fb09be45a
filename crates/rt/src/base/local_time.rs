//! What a clock on the wall shows, where this machine is.

unsafe extern "C" {
    // POSIX, and not in the `libc` crate: only with it does `localtime_r` look for the zone.
    fn tzset();
}

/// A time of the machine's time zone (`TZ`, or what the system has set).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// In full.
    pub year: i64,
    /// From 0.
    pub month: u8,
    /// From 1.
    pub day: u8,
    /// From 0, which is Sunday.
    pub weekday: u8,
    /// From 0.
    pub hour: u8,
    /// From 0.
    pub minute: u8,
    /// From 0; 60 in a leap second.
    pub second: u8,
}

impl LocalTime {
    /// The time so many seconds after 1970 began in UTC; `None` if the year cannot be told.
    pub fn of(secs: u64) -> Option<LocalTime> {
        // What `time_t` is on machines of 64 bits; musl's own name for it is deprecated in `libc`.
        let secs = i64::try_from(secs).ok()?;
        let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
        // SAFETY: takes nothing, and gives nothing that could be wrong.
        unsafe { tzset() };
        // SAFETY: both point to what lives until the call returns; a `tm` of zeros is one.
        let parts = unsafe {
            if libc::localtime_r(&raw const secs, parts.as_mut_ptr()).is_null() {
                return None;
            }
            parts.assume_init()
        };
        // The C library keeps these small.
        let small = |part: libc::c_int| part as u8;
        Some(LocalTime {
            year: i64::from(parts.tm_year) + 1900,
            month: small(parts.tm_mon),
            day: small(parts.tm_mday),
            weekday: small(parts.tm_wday),
            hour: small(parts.tm_hour),
            minute: small(parts.tm_min),
            second: small(parts.tm_sec),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The zone is the machine's, so only what all zones have in common: 46 of the 48 hours around.
    #[test]
    fn a_time_is_taken_apart() {
        let time = LocalTime::of(1_795_523_547).unwrap();
        assert_eq!((time.year, time.month, time.second), (2026, 10, 27));
        assert!((23..=25).contains(&time.day), "{time:?}");
        assert_eq!(LocalTime::of(u64::MAX), None);
    }
}
