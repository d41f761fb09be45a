//! Points in time. `Instant` is monotonic and may be virtual; only a backend makes one.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A monotonic point in time: nanoseconds since the world began (the start of the runtime, or of
/// the simulation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The moment the world began.
    pub const START: Instant = Instant(0);

    /// The point `nanos` nanoseconds after the world began.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since the world began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Nanoseconds of a duration, pinned at the largest: 584 years outlive every world.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, after: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(after)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, after: Duration) {
        *self = *self + after;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    /// The time from `earlier` to `self`, zero if `earlier` is later (as in `std`).
    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_since(earlier)
    }
}

/// A wall-clock time since the Unix epoch, in UTC; what superblocks record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime {
    /// Whole seconds since 1970-01-01T00:00:00Z.
    pub secs: u64,
    /// Microseconds within the second, below 1,000,000.
    pub micros: u32,
}
