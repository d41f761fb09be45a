//! What changes while any core reads ahead: a word for each part of the array, which all cores
//! share.
//!
//! A change is noted before the first member is written to and until the last one has ended. So
//! what was read of a part while nothing changed it, and before anything began to, is what the part
//! holds.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts that lie further apart than so many share words: what was read ahead of one is thrown away
/// with a change of another.
const WORDS: usize = 4096;

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
