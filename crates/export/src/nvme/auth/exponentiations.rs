//! Where exponentiations are computed, and how many at a time.
//!
//! A host that has proved nothing can make the target compute: two powers for each connection. They
//! are computed on threads beside the cores, [`EXPONENTIATIONS_MAX`] at a time for the subsystem,
//! whatever number of addresses and cores it has; the others wait in the order in which they came.
//! What waits is bounded by the connections that have proved nothing
//! ([`UNPROVED_MAX`][super::super::limits::UNPROVED_MAX] for each address), each of which waits for
//! one, and leaves the queue when it ends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wattle_rt::{Core, Sender, mailbox};
use zeroize::Zeroizing;

use super::group::Exponentiation;
use crate::nvme::limits::EXPONENTIATIONS_MAX;

/// The exponentiations of one subsystem, whatever core asks.
pub struct Exponentiations(Mutex<ExponentiationQueue>);

struct ExponentiationQueue {
    free: usize,
    waiting: VecDeque<Sender<ExponentiationPermit>>,
}

impl Default for Exponentiations {
    fn default() -> Self {
        Self(Mutex::new(ExponentiationQueue { free: EXPONENTIATIONS_MAX, waiting: VecDeque::new() }))
    }
}

impl Exponentiations {
    /// Computes a power on a thread of its own, when its turn has come; `None` if there can be no
    /// thread.
    ///
    /// # Cancellation
    /// Dropping the future leaves the queue; what is being computed counts until it ends.
    pub async fn compute(self: &Arc<Self>, core: &Core, power: Exponentiation) -> Option<Zeroizing<Vec<u8>>> {
        let permit = self.permit().await;
        let computed = core.offload(move || {
            let value = power.compute();
            drop(permit);
            value
        });
        computed.await.ok()
    }

    async fn permit(self: &Arc<Self>) -> ExponentiationPermit {
        let mut granted = {
            let mut queue = self.queue();
            if queue.free > 0 {
                queue.free -= 1;
                return ExponentiationPermit(Some(self.clone()));
            }
            let (grant, granted) = mailbox();
            queue.waiting.push_back(grant);
            granted
        };
        granted.recv().await.expect("a permit that is given back goes to the next one that waits")
    }

    fn queue(&self) -> MutexGuard<'_, ExponentiationQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One exponentiation may be computed. Goes to the next one that waits when it is dropped.
struct ExponentiationPermit(Option<Arc<Exponentiations>>);

impl Drop for ExponentiationPermit {
    fn drop(&mut self) {
        let Some(of) = self.0.take() else { return };
        loop {
            let next = {
                let mut queue = of.queue();
                let Some(next) = queue.waiting.pop_front() else {
                    queue.free += 1;
                    return;
                };
                next
            };
            match next.send(Self(Some(of.clone()))) {
                Ok(()) => return,
                // Its connection has ended.
                Err(mut refused) => refused.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_rt::{Either, SimWorld, WorldConfig, race};

    #[test]
    fn as_many_as_there_are_permits_and_then_in_turn() {
        let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
        let run = async move |core: Core| {
            let all = Arc::new(Exponentiations::default());
            let mut held = Vec::new();
            for _ in 0..EXPONENTIATIONS_MAX {
                held.push(all.permit().await);
            }
            // One waits and its connection ends; another one waits.
            let none = race(all.permit(), core.yield_now()).await;
            assert!(matches!(none, Either::Second(())));
            let mut second = std::pin::pin!(all.permit());
            assert!(matches!(race(second.as_mut(), core.yield_now()).await, Either::Second(())));
            held.pop();
            // The permit of the first one goes to the second.
            let granted = second.await;
            assert_eq!(all.queue().free, 0);
            // A permit that was sent to a connection that ends meanwhile is not lost.
            {
                let mut third = std::pin::pin!(all.permit());
                assert!(matches!(race(third.as_mut(), core.yield_now()).await, Either::Second(())));
                drop(granted);
            }
            assert_eq!(all.queue().free, 1);
            held.clear();
            assert_eq!(all.queue().free, EXPONENTIATIONS_MAX);
        };
        world.run(run).expect_done();
    }
}
