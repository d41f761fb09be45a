//! What changes while any core reads ahead: a word for each part of the array, which all cores
//! share.
//!
//! A change is noted before the first member is written to and until the last one has ended. So
//! what was read of a part while nothing changed it, and before anything began to, is what the part
//! holds.

use std::ops::Range;
use std::sync::Arc;

use wattle_rt::atomics::{AtomicU64, Ordering};

/// Parts that lie further apart than so many share words: what was read ahead of one is thrown away
/// with a change of another. Models (`--cfg loom`) have few, each costs them time.
const WORDS: usize = if cfg!(loom) { 2 } else { 4096 };

/// Changes that are under way, in the lower bits: fewer than requests that memory has room for.
const UNDER_WAY: u64 = 1;
const ALL_UNDER_WAY: u64 = (1 << 24) - 1;
/// Changes that have begun, in the upper bits.
const BEGUN: u64 = 1 << 24;

/// The words of an array.
pub(crate) struct Changes {
    part_bytes: u64,
    words: Box<[AtomicU64]>,
}

/// A change of a range of bytes that others can see; its end is its drop.
pub(crate) struct Change {
    changes: Arc<Changes>,
    range: Range<u64>,
}

impl Changes {
    /// The words of an array in parts of so many bytes.
    pub fn new(part_bytes: u64) -> Self {
        Self { part_bytes, words: (0..WORDS).map(|_| AtomicU64::new(0)).collect() }
    }

    pub fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// A change of a range begins, on any core.
    pub fn begin(self: &Arc<Self>, range: Range<u64>) -> Change {
        for word in self.words_of(&range) {
            word.fetch_add(BEGUN + UNDER_WAY, Ordering::SeqCst);
        }
        Change { changes: self.clone(), range }
    }

    /// The state of the part at a byte, if nothing changes it now.
    pub fn quiet(&self, at: u64) -> Option<u64> {
        let state = self.word(at / self.part_bytes).load(Ordering::SeqCst);
        (state & ALL_UNDER_WAY == 0).then_some(state)
    }

    /// Whether no change of the part has begun since it was [quiet](Self::quiet).
    pub fn unchanged(&self, at: u64, state: u64) -> bool {
        self.quiet(at) == Some(state)
    }

    fn word(&self, part: u64) -> &AtomicU64 {
        &self.words[(part % WORDS as u64) as usize]
    }

    fn words_of(&self, range: &Range<u64>) -> impl Iterator<Item = &AtomicU64> {
        (range.start / self.part_bytes..range.end.div_ceil(self.part_bytes)).map(|part| self.word(part))
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        for word in self.changes.words_of(&self.range) {
            word.fetch_sub(UNDER_WAY, Ordering::SeqCst);
        }
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Changes(parts of {})", self.part_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_unchanged_until_a_change_of_it_begins() {
        let changes = Arc::new(Changes::new(4096));
        let before = changes.quiet(0).expect("nothing changes it");
        drop(changes.begin(4096..8192));
        assert!(changes.unchanged(0, before) && changes.unchanged(4095, before));
        let change = changes.begin(4000..4097);
        assert!(!changes.unchanged(0, before) && changes.quiet(0).is_none() && changes.quiet(4096).is_none());
        let other = changes.begin(0..1);
        drop(change);
        assert!(changes.quiet(0).is_none() && changes.quiet(4096).is_some(), "another one is under way");
        drop(other);
        assert!(changes.quiet(0).is_some_and(|now| now != before), "it has changed for good");
    }

    /// A change that is larger than what there are words for counts more than once in some of them.
    #[test]
    fn a_change_ends_as_often_as_it_begins() {
        let changes = Arc::new(Changes::new(512));
        drop(changes.begin(0..512 * (WORDS as u64 + 3)));
        assert!((0..WORDS as u64).all(|part| changes.quiet(512 * part).is_some()));
    }
}

/// Every interleaving of cores that change a part and one that reads ahead: `scripts/checkers
/// loom`.
#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::thread;

    /// A part of two blocks on a member: a read that meets a write comes after the write was sent.
    struct Held {
        changes: Arc<Changes>,
        blocks: [AtomicU64; 2],
        /// How many writes of this part clients have an answer to, by core.
        acknowledged: [AtomicU64; 2],
    }

    impl Held {
        fn new() -> Arc<Self> {
            let zeros = || [AtomicU64::new(0), AtomicU64::new(0)];
            Arc::new(Self { changes: Arc::new(Changes::new(4096)), blocks: zeros(), acknowledged: zeros() })
        }

        /// A write of a core: each core changes its own half of both blocks.
        fn write(&self, core: usize) {
            let change = self.changes.begin(0..1);
            for block in &self.blocks {
                block.fetch_add(1 << (32 * core), Ordering::AcqRel);
            }
            drop(change);
            self.acknowledged[core].fetch_add(1, Ordering::Release);
        }

        /// Reads ahead, and answers a request with that if it is still what the part holds.
        fn read(&self) {
            let Some(state) = self.changes.quiet(0) else { return };
            let read = [0, 1].map(|block| self.blocks[block].load(Ordering::Acquire));
            let acknowledged = [0, 1].map(|core| self.acknowledged[core].load(Ordering::Acquire));
            if self.changes.unchanged(0, state) {
                assert_eq!(read[0], read[1], "half of a write was read");
                for (core, acknowledged) in acknowledged.into_iter().enumerate() {
                    assert!(read[0] >> (32 * core) & 0xffff >= acknowledged, "a write is not seen");
                }
            }
        }
    }

    /// The invariant: what was read of a part while nothing changed it, and before anything began
    /// to, is what the part holds. Fails with `Relaxed` in the drop of a change or in `quiet`, if
    /// a change begins after its first write or ends before its last one, if `quiet` does not look
    /// at what is under way, and if a change is not counted as begun. The order in `begin` cannot
    /// be missed here: the write to a member that follows brings it along.
    #[test]
    fn what_was_read_ahead_is_what_the_part_holds() {
        loom::model(|| {
            let held = Held::new();
            let writes = thread::spawn({
                let held = held.clone();
                move || {
                    held.write(0);
                    held.write(0);
                }
            });
            held.read();
            writes.join().expect("it ends well");
            assert!(held.changes.quiet(0).is_some());
        });
    }

    /// Changes of two cores that overlap.
    #[test]
    fn changes_of_two_cores_are_both_seen() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let held = Held::new();
            let writes = [0, 1].map(|core| {
                let held = held.clone();
                thread::spawn(move || held.write(core))
            });
            held.read();
            writes.into_iter().for_each(|writes| writes.join().expect("it ends well"));
            assert!(held.changes.quiet(0).is_some());
        });
    }
}
