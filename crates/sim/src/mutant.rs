//! Planted bugs: a simulator that never fails is unproven.
//!
//! Some are planted from outside, in the metadata, the drives or the clients. The others are mends
//! of the product that are taken out again ([`wattle_engine::planted`], which says how).

use std::rc::Rc;
use std::time::Duration;

use wattle_engine::MemberKey;
use wattle_engine::metadata::{ArrayRecord, FailCause, LocalBoxFuture, Metadata, RecordCause};
use wattle_engine::planted::Bug;
use wattle_engine::units::{MemberIx, MemberSet};
use wattle_rt::{Core, Instant};

use crate::metadata::Lenient;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Metadata that does not record the array dirty before the first write.
    SkipDirty,
    /// Metadata that says that a failure is recorded before it is.
    EarlyFailure,
    /// Drives that acknowledge flushes and forced writes and keep everything in their cache.
    LyingFlush,
    /// An export that drops "forced" from writes.
    DropForced,
    /// Metadata that does not set bits in the write-intent bitmap.
    SkipMark,
    /// Assembly that takes stale members for current.
    AcceptStale,
    /// Assembly that starts dirty and degraded arrays with parity trusted.
    AcceptDirtyDegraded,
    /// A server across a network that is taken for done with what it was sent before it is.
    HastyReopen,
    /// An operator's order to fail a member that is not remembered as one.
    ForgottenOrder,
    /// A mend of the product is taken out.
    Planted(Bug),
}

impl Mutant {
    /// Those planted from outside, with their names on the command line.
    const OUTSIDE: [(&'static str, Mutant); 9] = [
        ("skip-dirty", Mutant::SkipDirty),
        ("early-failure", Mutant::EarlyFailure),
        ("lying-flush", Mutant::LyingFlush),
        ("drop-forced", Mutant::DropForced),
        ("skip-mark", Mutant::SkipMark),
        ("accept-stale", Mutant::AcceptStale),
        ("accept-dirty-degraded", Mutant::AcceptDirtyDegraded),
        ("hasty-reopen", Mutant::HastyReopen),
        ("forgotten-order", Mutant::ForgottenOrder),
    ];

    /// All of them, with their names on the command line.
    pub fn all() -> impl Iterator<Item = (&'static str, Mutant)> {
        let inside = Bug::ALL.iter().map(|&(name, bug)| (name, Mutant::Planted(bug)));
        Mutant::OUTSIDE.into_iter().chain(inside)
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Mutant> {
        Mutant::all().find_map(|(known, mutant)| (known == name).then_some(mutant))
    }

    /// The mend that it takes out.
    #[must_use]
    pub fn bug(self) -> Option<Bug> {
        if let Mutant::Planted(bug) = self { Some(bug) } else { None }
    }

    /// How assembly is bent.
    #[must_use]
    pub fn lenient(self) -> Lenient {
        Lenient { stale: self == Mutant::AcceptStale, dirty_degraded: self == Mutant::AcceptDirtyDegraded }
    }
}

/// Metadata with a planted bug; any other mutant leaves it alone.
pub struct Mutated {
    /// The honest one.
    pub inner: Rc<dyn Metadata>,
    /// The bug.
    pub mutant: Option<Mutant>,
    /// Where unfinished work goes on.
    pub core: Core,
}

impl Metadata for Mutated {
    fn failed(&self, members: &[(MemberIx, Option<MemberKey>)], cause: FailCause) {
        self.inner.failed(members, cause);
    }

    fn waits_since(&self, member: MemberKey) -> Option<Instant> {
        self.inner.waits_since(member)
    }

    fn give_up(&self, member: MemberKey) {
        self.inner.give_up(member);
    }

    fn turn_intent(&self, on: bool) {
        self.inner.turn_intent(on);
    }

    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        match (self.mutant, record.change) {
            (Some(Mutant::SkipDirty), RecordCause::Activate) => Box::pin(std::future::ready(Ok(()))),
            (Some(Mutant::EarlyFailure), RecordCause::Members) => {
                let (inner, record, core) = (self.inner.clone(), record.clone(), self.core.clone());
                self.core.spawn(async move {
                    core.sleep(Duration::from_millis(5)).await;
                    inner.commit(&record).await
                });
                Box::pin(std::future::ready(Ok(())))
            }
            _ => self.inner.commit(record),
        }
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        match self.mutant {
            Some(Mutant::SkipMark) => Box::pin(std::future::ready(Ok(()))),
            _ => self.inner.mark(regions),
        }
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.inner.unmark(regions)
    }
}
