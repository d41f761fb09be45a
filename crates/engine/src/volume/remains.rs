//! What clients that have gone left behind: requests that are not answered yet.
//!
//! A client that comes back repeats what was not answered and goes on from there; another one takes
//! over. Neither knows of what the first one left behind, and none of that may be carried out over
//! what they write. Invariant, which fronts keep: a request of a client begins only when all that
//! was under way for clients that had gone when it came is answered, through whichever front they
//! came.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use wattle_rt::Core;

/// How often a client that comes looks.
const LOOK: Duration = Duration::from_millis(5);

/// How many clients of one volume have gone with requests under way.
#[derive(Debug, Default)]
pub struct Remains(AtomicUsize);

/// One of them; its last request is answered when this is dropped.
#[derive(Debug)]
pub struct Remain(Arc<Remains>);

impl Remains {
    /// A client goes.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Remain {
        self.0.fetch_add(1, Ordering::SeqCst);
        Remain(self.clone())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until there is none. It may be on any core, and is rare: this looks again and again.
    pub async fn none(&self, core: &Core) {
        while self.count() > 0 {
            core.sleep(LOOK).await;
        }
    }
}

impl Drop for Remain {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
