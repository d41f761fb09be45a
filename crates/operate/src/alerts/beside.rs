//! Clocks and threads: what watches servers and delivers runs beside every core.
#![allow(clippy::disallowed_methods, reason = "alerts are told by threads of their own, beside the cores")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seconds since 1970, by the clock of the day.
pub fn wall_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Nanoseconds since 1970, by the clock of the day.
pub fn wall_nanos() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// What tells this start of the machine from others (random(4)); empty where nothing does.
pub fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// A clock that nothing sets.
pub fn now() -> Instant {
    Instant::now()
}

/// Waits.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Starts a thread; `false` if the system has none.
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    // The system keeps 15 bytes of a name.
    let name: String = name.chars().take(15).collect();
    std::thread::Builder::new().name(name).spawn(work).is_ok()
}
