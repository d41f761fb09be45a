//! Planted bugs: mends that the simulator and tests take out again, to show that they find what
//! the mend is for.
//!
//! The product has none of this: without the feature `planted`, [`is`] is a constant `false` and
//! the old behaviour is not compiled. Only `wattle-sim` and tests ask for the feature, so
//! `cargo build` in the repository's root, which builds the product alone, leaves it out.
//!
//! **To make a mend removable**: add a line to the table below, and where the mend is, ask
//!
//! ```ignore
//! if planted::is(Bug::ZeroKeepsBadBlocks) { /* what it did before */ } else { /* the mend */ }
//! ```
//!
//! with as little of the old behaviour as shows the defect. `sim --mutant NAME` and
//! `crates/sim/tests/all/mutants.rs` have it from then on; a test plants it with [`plant`]:
//!
//! ```ignore
//! let _planted = planted::plant(&[Bug::ZeroKeepsBadBlocks]);
//! ```
//!
//! Bugs are planted for a thread. A simulated world runs on one, with all its cores; the runtime of
//! a machine does not, so there only what happens on the thread that planted them has them.

macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident = $name:literal,)+) => {
        /// A mend that can be taken out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Bug {
            $($(#[$doc])+ $bug,)+
        }

        impl Bug {
            /// Every bug, with its name on the simulator's command line.
            pub const ALL: &'static [(&'static str, Bug)] = &[$(($name, Bug::$bug)),+];
        }
    };
}

bugs! {
    /// The clean cache keeps pages when members fail and join, and over exclusive access.
    CacheKeepsOverChanges = "cache-keeps-over-changes",
    /// The clean cache keeps pages of a stripe that a job had to itself.
    CacheKeepsOverJobs = "cache-keeps-over-jobs",
    /// Stripes are leased to other cores although the clean cache holds pages of them.
    CacheLendsKept = "cache-lends-kept",
    /// A mapped volume changes its map core by core, and releases held ranges on each core as it
    /// does so.
    RemapCoreByCore = "remap-core-by-core",
    /// A lost write-back is known only to the flush that it was reported to, although other volumes
    /// share the open file description.
    LossReportedOnce = "loss-reported-once",
    /// Without redundancy, a failed forced write fails itself alone, and later flushes succeed.
    ForcedLossUncounted = "forced-loss-uncounted",
    /// A filled replacement takes its slot without a look at which member is in the seat by then,
    /// and how far that one is filled.
    UncheckedPromotion = "unchecked-promotion",
    /// A block that cannot be read has its readable neighbours in the request taken from
    /// redundancy, and rewritten.
    SpreadRecovery = "spread-recovery",
    /// Zeroing and discarding leave bad blocks in the list that they have overwritten.
    ZeroKeepsBadBlocks = "zero-keeps-bad-blocks",
    /// Cores begin to keep a new write-intent bitmap while writes are in flight that it does not
    /// know. The engine's tests of write intent have the world.
    IntentInFlight = "intent-in-flight",
    /// Receives and sends of clients take the room in flight of operations on drives.
    PeersInDrivesRoom = "peers-in-drives-room",
    /// Writes are not noted for recorded scrubs.
    SumsUnnoted = "sums-unnoted",
    /// Cores go on taking regions for noted that were opened for new sums.
    SumsOpenUntold = "sums-open-untold",
    /// Sums are taken for an array's whatever its superblocks say by now.
    SumsOfAnyState = "sums-of-any-state",
    /// What differs from its sum is rewritten without a look at whether what it gets has that sum.
    SumsUnproven = "sums-unproven",
    /// A member comes back by the bitmap only if it knows all members that are in sync by now: what
    /// was away beside another one and comes back after it does not.
    StrictWitnesses = "strict-witnesses",
    /// A core that took its event while it looked for completions sleeps all the same, with mail
    /// undelivered. Only a ring has an event: `backend::uring` has the test.
    EventSwallowed = "event-swallowed",
    /// A core that panicked keeps its tasks and its inbox, and its callers wait for ever. A
    /// simulated core has no thread that could panic alone: `rt/tests/panics.rs` has the test.
    PanickedCoreKeepsMail = "panicked-core-keeps-mail",
    /// Drives share the room of a core as it comes, so that one that hangs takes all of it. The
    /// engine's tests of troubles have the world.
    OneDriveTakesAll = "one-drive-takes-all",
    /// A message that a lease is released is believed whatever the word of the class says. A
    /// simulated world delivers mail before it polls the next task, so no task gives up and no
    /// lease begins while a message is on its way: `lease::words` of the engine has the test.
    LateReleaseBelieved = "late-release-believed",
}

/// Whether a bug is planted on this thread.
#[cfg(not(feature = "planted"))]
#[must_use]
#[inline(always)]
pub const fn is(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use enabled::{Planted, is, plant};

#[cfg(feature = "planted")]
mod enabled {
    use super::Bug;
    use std::cell::Cell;
    use std::marker::PhantomData;

    const _: () = assert!(Bug::ALL.len() <= u64::BITS as usize, "a set of bugs is a word");

    thread_local! {
        static PLANTED: Cell<u64> = const { Cell::new(0) };
    }

    /// Whether a bug is planted on this thread.
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        PLANTED.get() >> bug as u32 & 1 != 0
    }

    /// Plants bugs on this thread, and no others, until the answer is dropped.
    #[must_use = "they are gone when this is dropped"]
    pub fn plant(bugs: &[Bug]) -> Planted {
        let set = bugs.iter().fold(0, |set, &bug| set | 1 << bug as u32);
        Planted { before: PLANTED.replace(set), _thread: PhantomData }
    }

    /// Bugs are planted while this exists.
    #[derive(Debug)]
    pub struct Planted {
        before: u64,
        _thread: PhantomData<*const ()>,
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(self.before);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn bugs_are_planted_until_their_guard_is_dropped() {
            let (first, second) = (Bug::CacheLendsKept, Bug::ZeroKeepsBadBlocks);
            assert!(!is(first));
            let outer = plant(&[first]);
            {
                let _inner = plant(&[second]);
                assert!(is(second) && !is(first));
            }
            assert!(is(first) && !is(second));
            drop(outer);
            assert!(Bug::ALL.iter().all(|(_, bug)| !is(*bug)));
        }
    }
}
