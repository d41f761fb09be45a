//! How a core notes what clients change.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use wattle_rt::Notify;

use super::changes::{Change, Changes};

/// The notes of one core.
#[derive(Default)]
pub(crate) struct Notes {
    on: Cell<bool>,
    /// Writes under way that are noted.
    under_way: Cell<usize>,
    /// Signalled when one ends that is not.
    ended: Notify,
}

impl Notes {
    /// A client's write of a range of bytes begins; it is noted as long as the answer lives.
    pub fn note(&self, changes: &Arc<Changes>, range: Range<u64>) -> Option<Box<Change>> {
        self.on.get().then(|| {
            self.under_way.update(|writes| writes + 1);
            Box::new(changes.begin(range))
        })
    }

    /// A client's write has ended that was noted, or not.
    pub fn ended(&self, noted: bool) {
        if noted {
            self.under_way.update(|writes| writes - 1);
        } else if self.on.get() {
            self.ended.notify_all();
        }
    }

    /// Notes changes from here on; returns when, of all writes under way, none is not noted.
    pub async fn begin(&self, writes: &Cell<usize>) {
        self.on.set(true);
        while writes.get() > self.under_way.get() {
            self.ended.wait().await;
        }
    }

    /// Whether changes are noted.
    pub fn are_on(&self) -> bool {
        self.on.get()
    }

    /// No core reads ahead any more.
    pub fn end(&self) {
        self.on.set(false);
    }
}
