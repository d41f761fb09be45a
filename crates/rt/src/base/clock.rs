//! The machine's clocks.

use crate::base::time::{Instant, WallTime, nanos};
use std::time::SystemTime;

/// Counts from the start of the runtime; the same for all its cores.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    began: std::time::Instant,
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clocks")]
impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { began: std::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Instant {
        Instant::START + self.began.elapsed()
    }

    pub(crate) fn wall() -> WallTime {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        WallTime { secs: since.as_secs(), micros: since.subsec_micros() }
    }

    /// Until `deadline`, zero if it has passed, as the kernel takes it.
    pub(crate) fn timespec_until(self, deadline: Instant) -> libc::timespec {
        let left = nanos(deadline - self.now());
        libc::timespec {
            tv_sec: (left / 1_000_000_000).cast_signed(),
            tv_nsec: (left % 1_000_000_000).cast_signed(),
        }
    }
}
