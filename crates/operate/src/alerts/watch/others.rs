//! Asks what may hang.

use std::sync::mpsc;
use std::time::Duration;

use super::beside;

/// What `ask` gives, if it gives it in this time. It runs on a thread of its own, which is left to
/// itself after that.
pub fn within<T: Send + 'static>(
    thread: &str,
    time_max: Duration,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, answer) = mpsc::channel();
    let work = move || {
        let _ = sender.send(ask());
    };
    beside::start(thread, work).then(|| answer.recv_timeout(time_max).ok()).flatten()
}

/// What `ask` gives; `None` if it panics.
pub fn unless_it_panics<T>(ask: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_or_panics_is_not_waited_for() {
        let (hold, held) = mpsc::channel::<()>();
        let hang = move || held.recv().is_err();
        assert_eq!(within("test", Duration::from_millis(20), hang), None);
        drop(hold);
        assert_eq!(within("test", Duration::from_secs(60), || panic!("a test")), None::<u8>);
        assert_eq!(within("test", Duration::from_secs(60), || 7), Some(7));
    }
}
