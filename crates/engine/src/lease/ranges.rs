//! Ranges of copies: a write, a repair or a step of a job has its range to itself on the core that
//! owns it, and waits for what that core has leased to others ([`crate::lease::words`]).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use wattle_rt::Notify;

use crate::lease::words::OwnLeases;
use crate::model::invariant::invariant;
use crate::model::units::{Sector, StripeNo};

/// What is leased at once, so that few writes meet in it: 64 KiB.
const LEASE_BLOCK: Sector = Sector(128);

/// Ranges of array sectors that are being written, repaired or filled on this core, and those that
/// wait for it: in the order in which they came, so that none waits for ever.
#[derive(Clone)]
pub(crate) struct RangeLocks {
    state: Rc<LockState>,
}

struct LockState {
    /// In no order: what comes first has the lower ticket.
    entries: RefCell<Vec<LockEntry>>,
    next: Cell<u64>,
    freed: Notify,
    own: Rc<OwnLeases>,
}

struct LockEntry {
    ticket: u64,
    start: Sector,
    end: Sector,
}

/// A range that a task has to itself, or the task's place in the queue; it is released by its drop.
pub(crate) struct RangeLock {
    state: Rc<LockState>,
    ticket: u64,
    /// Not leased as long as this is here.
    blocks: Range<u64>,
}

/// The blocks that a range touches.
fn blocks(start: Sector, end: Sector) -> Range<u64> {
    start.0 / LEASE_BLOCK.0..end.0.div_ceil(LEASE_BLOCK.0)
}

/// The block that all of a range lies in, if it is a single one. Blocks are leased as stripes are.
pub(crate) fn only_block(start: Sector, end: Sector) -> Option<StripeNo> {
    let blocks = blocks(start, end);
    (blocks.end - blocks.start == 1).then_some(StripeNo(blocks.start))
}

impl RangeLocks {
    pub(crate) fn new(own: Rc<OwnLeases>) -> Self {
        let state = LockState { entries: RefCell::default(), next: Cell::new(0), freed: Notify::new(), own };
        Self { state: Rc::new(state) }
    }

    pub(crate) async fn lock(&self, start: Sector, end: Sector) -> RangeLock {
        let state = &self.state;
        let ticket = state.next.get();
        state.next.set(ticket + 1);
        state.entries.borrow_mut().push(LockEntry { ticket, start, end });
        let all = blocks(start, end);
        let mut lock = RangeLock { state: state.clone(), ticket, blocks: all.start..all.start };
        for block in all {
            let back = state.own.enter(StripeNo(block));
            lock.blocks.end = block + 1;
            if let Some(back) = back {
                back.await.expect("a lease is returned by a message");
            }
        }
        loop {
            let free = state
                .entries
                .borrow()
                .iter()
                .all(|entry| entry.end <= start || end <= entry.start || entry.ticket >= ticket);
            if free {
                let with_owner = |block| state.own.has(StripeNo(block));
                invariant!(4, lock.blocks.clone().all(with_owner));
                return lock;
            }
            state.freed.wait().await;
        }
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        let mut entries = self.state.entries.borrow_mut();
        let at = entries.iter().position(|entry| entry.ticket == self.ticket);
        entries.swap_remove(at.expect("it is there until this is dropped"));
        drop(entries);
        self.blocks.clone().for_each(|block| self.state.own.leave(StripeNo(block)));
        self.state.freed.notify_all();
    }
}
