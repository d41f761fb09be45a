//! Requests that are not answered, and whether the server is late with them.
//!
//! A line that is slow is no server that is away: what is under way at once takes its time. So a
//! request may take longer for every byte that was under way when it was sent, itself included.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use wattle_rt::Instant;

/// A line that carries less than this is too slow to wait for.
const BYTES_PER_SECOND_MIN: u64 = 8 << 20;

#[derive(Default)]
pub(super) struct Pending {
    begun: u64,
    requests: BTreeMap<u64, Request>,
    /// Bytes written by them.
    bytes: u64,
}

struct Request {
    at: Instant,
    bytes: u64,
    allowance: Duration,
}

/// A request's place among them; its drop says that it is answered.
pub(super) struct Begun<'a> {
    pending: &'a RefCell<Pending>,
    number: u64,
    /// What it may take longer for what was under way.
    pub(super) allowance: Duration,
}

impl Pending {
    pub(super) fn begin(pending: &RefCell<Self>, at: Instant, bytes: u64) -> Begun<'_> {
        let mut all = pending.borrow_mut();
        all.begun += 1;
        all.bytes += bytes;
        let number = all.begun;
        let allowance = Duration::from_millis(all.bytes * 1000 / BYTES_PER_SECOND_MIN);
        all.requests.insert(number, Request { at, bytes, allowance });
        Begun { pending, number, allowance }
    }

    /// How long the latest request has waited beyond what it may take for the bytes under way.
    pub(super) fn overdue(&self, now: Instant) -> Duration {
        let overdue = |request: &Request| (now - request.at).saturating_sub(request.allowance);
        self.requests.values().map(overdue).max().unwrap_or_default()
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut all = self.pending.borrow_mut();
        if let Some(request) = all.requests.remove(&self.number) {
            all.bytes -= request.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_gives_a_request_more_time() {
        let at = |millis| Instant::default() + Duration::from_millis(millis);
        let pending = RefCell::<Pending>::default();
        let overdue = |now| pending.borrow().overdue(at(now)).as_millis();
        let large = Pending::begin(&pending, at(0), 16 << 20);
        let small = Pending::begin(&pending, at(100), 4096);
        assert_eq!((overdue(1000), overdue(2500)), (0, 500), "16 MiB take two seconds");
        drop(large);
        assert_eq!((overdue(2100), overdue(2200)), (0, 100), "it was behind the other one");
        drop(small);
        let alone = Pending::begin(&pending, at(3000), 0);
        assert_eq!(overdue(3700), 700);
        drop(alone);
        assert_eq!(overdue(9000), 0);
    }
}
