//! What clients that have gone left behind: requests that are not answered yet.
//!
//! A client that comes back repeats what was not answered and goes on from there; another one takes
//! over, or goes on over a connection that it had beside the one that broke. None of them knows of
//! what was left behind, and none of that may be carried out over what they write. Invariant, which
//! fronts keep: a request that is known to touch some bytes ([`RequestExtent`]) begins only when
//! all that was left behind before it came is answered, as far as one of the two could undo the
//! other or be seen by it, through whichever front both came. A front that does not see requests
//! one by one begins when all that clients left behind is answered.
//!
//! What waits has come after what it waits for, so none waits for itself, nor two for each other.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wattle_rt::Core;

/// How often a request that waits looks.
const LOOK: Duration = Duration::from_millis(5);

/// What a request touches of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestExtent {
    /// Where.
    pub bytes: Range<u64>,
    /// It makes other bytes of them; what does not only sees them.
    pub changes: bool,
}

impl RequestExtent {
    /// It changes anything of the volume, or all of it.
    pub const ALL: Self = Self { bytes: 0..u64::MAX, changes: true };
    /// It touches no byte: a flush makes durable what was answered, and nothing of the rest.
    pub const NONE: Self = Self { bytes: 0..0, changes: false };

    /// It sees these bytes.
    #[must_use]
    pub fn read(offset_bytes: u64, length_bytes: u64) -> Self {
        Self { bytes: offset_bytes..offset_bytes.saturating_add(length_bytes), changes: false }
    }

    /// It changes these bytes.
    #[must_use]
    pub fn change(offset_bytes: u64, length_bytes: u64) -> Self {
        Self { changes: true, ..Self::read(offset_bytes, length_bytes) }
    }

    /// Whether it makes a difference which of the two is first.
    fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end;
        overlap && (self.changes || other.changes)
    }
}

/// What clients of one volume left behind.
#[derive(Debug, Default)]
pub struct Remains {
    /// Clients that have gone with requests under way.
    clients: AtomicUsize,
    requests: Mutex<LeftRequests>,
}

#[derive(Debug, Default)]
struct LeftRequests {
    /// So many were ever left behind.
    count: u64,
    /// Those that are not answered, each with its number.
    open: BTreeMap<u64, RequestExtent>,
}

/// A client that has gone; its last request is answered when this is dropped.
#[derive(Debug)]
pub struct Remain {
    of: Arc<Remains>,
    /// Where its requests are not known one by one.
    _all: Option<RemainingRequest>,
}

/// A request that was left behind; it is answered when this is dropped.
#[derive(Debug)]
pub struct RemainingRequest {
    of: Arc<Remains>,
    number: u64,
}

/// What one request has to wait for.
#[derive(Debug)]
pub struct LeftBefore {
    of: Arc<Remains>,
    numbers: Vec<u64>,
}

impl Remains {
    /// A client goes, of whose requests it is not known what they touch.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Remain {
        self.clients.fetch_add(1, Ordering::SeqCst);
        Remain { of: self.clone(), _all: Some(self.leave(RequestExtent::ALL)) }
    }

    /// A client goes whose requests are left behind one by one ([`Self::leave`]).
    #[must_use]
    pub fn hold_known(self: &Arc<Self>) -> Remain {
        self.clients.fetch_add(1, Ordering::SeqCst);
        Remain { of: self.clone(), _all: None }
    }

    /// A request of a client that goes.
    #[must_use]
    pub fn leave(self: &Arc<Self>, extent: RequestExtent) -> RemainingRequest {
        let mut requests = self.requests();
        requests.count += 1;
        let number = requests.count;
        requests.open.insert(number, extent);
        RemainingRequest { of: self.clone(), number }
    }

    /// How many clients have gone with requests under way.
    #[must_use]
    pub fn count(&self) -> usize {
        self.clients.load(Ordering::SeqCst)
    }

    /// Waits until there is none. It may be on any core, and is rare: this looks again and again.
    pub async fn none(&self, core: &Core) {
        while self.count() > 0 {
            core.sleep(LOOK).await;
        }
    }

    /// What a request that comes now has to wait for, if there is anything. As long as no client
    /// has gone this looks at a counter, and no more.
    #[must_use]
    pub fn before(self: &Arc<Self>, extent: &RequestExtent) -> Option<LeftBefore> {
        if self.count() == 0 {
            return None;
        }
        let requests = self.requests();
        let conflicting = requests.open.iter().filter(|(_, left)| left.conflicts(extent));
        let numbers: Vec<u64> = conflicting.map(|(number, _)| *number).collect();
        (!numbers.is_empty()).then(|| LeftBefore { of: self.clone(), numbers })
    }

    fn requests(&self) -> MutexGuard<'_, LeftRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeftBefore {
    /// Waits until all of it is answered. It may be on any core, and is rare: this looks again and
    /// again.
    pub async fn answered(self, core: &Core) {
        let open = |number: &u64| self.of.requests().open.contains_key(number);
        for number in &self.numbers {
            while open(number) {
                core.sleep(LOOK).await;
            }
        }
    }
}

impl Drop for Remain {
    fn drop(&mut self) {
        self.of.clients.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for RemainingRequest {
    fn drop(&mut self) {
        self.of.requests().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use wattle_rt::{Either, SimWorld, WorldConfig, race};

    use super::*;

    #[test]
    fn a_request_waits_for_what_was_left_behind_of_its_bytes() {
        let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
        let test = async move |core: Core| {
            let remains = Arc::new(Remains::default());
            let client = remains.hold_known();
            let write = remains.leave(RequestExtent::change(4096, 4096));
            let read = remains.leave(RequestExtent::read(16384, 4096));
            let waits = async |before: Option<LeftBefore>| match before {
                Some(before) => {
                    let answered = race(before.answered(&core), core.sleep(3 * LOOK)).await;
                    matches!(answered, Either::Second(()))
                }
                None => false,
            };
            let may_begin = async |extent: RequestExtent| !waits(remains.before(&extent)).await;
            for (extent, begins) in [
                (RequestExtent::change(0, 4096), true),
                (RequestExtent::change(8192, 4096), true),
                (RequestExtent::change(8191, 1), false),
                (RequestExtent::read(0, 4097), false),
                (RequestExtent::read(16384, 4096), true),
                (RequestExtent::change(16384, 512), false),
                (RequestExtent::NONE, true),
                (RequestExtent::ALL, false),
            ] {
                assert_eq!(may_begin(extent.clone()).await, begins, "{extent:?}");
            }
            // It waits for what was there when it came, and for nothing else.
            let extent = RequestExtent::change(4096, 512);
            let before = remains.before(&extent);
            let later = remains.leave(extent.clone());
            drop(write);
            assert!(!waits(before).await);
            assert!(!may_begin(extent).await);
            drop((later, read, client));
            assert_eq!(remains.count(), 0);
            let all = remains.hold();
            assert!(!may_begin(RequestExtent::read(1 << 40, 1)).await);
            drop(all);
            assert!(may_begin(RequestExtent::ALL).await);
        };
        world.run(test).expect_done();
    }
}
