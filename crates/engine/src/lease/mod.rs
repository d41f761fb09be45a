//! Which task may change a stripe, or a range of copies: one at a time, on one core.
//!
//! `words` say which core may work on a class of stripes, `queue` is what waits for a stripe and
//! the task that works on it, `ranges` are ranges of copies that a task has to itself.

#[cfg(all(test, loom))]
mod interleavings;
pub(crate) mod queue;
pub(crate) mod ranges;
mod shard;
pub(crate) mod words;

pub(crate) use shard::{LeaseShard, UnderWay};
