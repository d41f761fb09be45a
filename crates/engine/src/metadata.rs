//! The engine's only view of metadata: a state to be made durable.
//!
//! The engine decides *when* a state must be durable (invariants 1-3 of the crate), its owner decides *how*: which
//! superblocks, which event counts, which bitmap. Nothing in the engine knows a format.

use std::future::Future;
use std::pin::Pin;

use crate::units::MemberSet;

/// A future on one core.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Why a record is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Clean to dirty: a write waits for it.
    Activate,
    /// Dirty to clean: nothing is in flight and every member was flushed.
    Deactivate,
    /// Members failed. Acknowledgements wait for it.
    MembersFailed,
}

/// The state of an array that must be durable when [`Metadata::commit`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What changed since the last record.
    pub change: Change,
    /// Writes may be in flight, or parity and copies are not known to agree.
    pub dirty: bool,
    /// Slots whose member failed since the array was started; they are never written again.
    pub failed: MemberSet,
}

/// Makes records durable on the members. One per array, used on its home core by one task at a time.
pub trait Metadata {
    /// Writes `record` to every member that is still part of the array and returns when it is durable on all of them.
    ///
    /// # Errors
    /// The slots on which it could not be made durable. The engine fails these members and commits again, so each call
    /// that fails shrinks the array; a record is only relied on after an `Ok`.
    fn commit<'a>(&'a self, record: &'a Record) -> LocalBoxFuture<'a, Result<(), MemberSet>>;
}

/// For arrays without superblocks to write: levels without redundancy, read-only arrays, tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMetadata;

impl Metadata for NoMetadata {
    fn commit<'a>(&'a self, _record: &'a Record) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
