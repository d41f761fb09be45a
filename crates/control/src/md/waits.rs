//! How long a member leaves writes of the metadata unanswered, and that nothing waits for one that
//! is given up. The engine knows only its own operations; where an array was idle, the first one
//! that a drive hangs on is of the superblock, or a bit of the bitmap.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wattle_engine::MemberKey;
use wattle_rt::{BufMut, Core, Instant, IoError, OpFuture, Traffic, UntilGivenUp};

/// By member.
#[derive(Debug, Default)]
pub(super) struct Waits(RefCell<BTreeMap<MemberKey, Rc<Traffic>>>);

/// A write or flush of the metadata.
pub(super) type Writing = UntilGivenUp<Result<(), IoError>, fn() -> Result<(), IoError>>;

/// A read of the metadata.
pub(super) type Reading = UntilGivenUp<Read, fn() -> Read>;

type Read = (Result<(), IoError>, BufMut);

impl Waits {
    /// Watches a read of a member.
    pub(super) fn watch_read(&self, key: MemberKey, operation: OpFuture<Read>) -> Reading {
        operation.count_in(self.0.borrow_mut().entry(key).or_default(), 0);
        operation.until_given_up(|| (Err(IoError::GONE), BufMut::alloc(0)))
    }

    /// Watches a write or flush of a member.
    pub(super) fn watch(&self, key: MemberKey, operation: OpFuture<Result<(), IoError>>) -> Writing {
        operation.count_in(self.0.borrow_mut().entry(key).or_default(), 0);
        operation.until_given_up(|| Err(IoError::GONE))
    }

    /// Since when the oldest one waits.
    pub(super) fn since(&self, core: &Core, key: MemberKey) -> Option<Instant> {
        core.waits_since(self.0.borrow().get(&key)?)
    }

    /// What waits for the member is answered that it is gone.
    pub(super) fn give_up(&self, core: &Core, key: MemberKey) {
        core.give_up(&self.0.borrow_mut().entry(key).or_default().clone());
    }

    pub(super) fn forget(&self, key: MemberKey) {
        self.0.borrow_mut().remove(&key);
    }
}
