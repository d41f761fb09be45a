//! Which parts of a volume clients have changed since a checkpoint, for backups of what changed. In
//! memory: a checkpoint ends with its server.
//!
//! Invariants:
//! 1. A change that began or ended while a checkpoint is kept is in its map before it is
//!    acknowledged. It is noted when it begins and when it ends: it may have begun before the
//!    checkpoint, and be on the members only after a client has read there.
//! 2. The map of a checkpoint that was given up says so: nothing is noted in it any more.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use wattle_rt::WallTime;

/// The smallest part that is told apart, in bytes.
const GRANULE_BYTES_MIN: u64 = 64 << 10;
/// A map has at most so many granules: 16 MiB of memory.
const GRANULES_MAX: u64 = 1 << 27;
/// Granules of one word.
const WORD_GRANULES: u64 = u64::BITS as u64;
/// Words that one answer looks at: with as many checkpoints as there may be, far less than a
/// millisecond. At the smallest granules they are 64 GiB.
const WORDS_AT_ONCE_MAX: u64 = 1 << 14;
/// Checkpoints of one volume.
pub const CHECKPOINTS_MAX: usize = 32;

/// What has changed since a checkpoint.
#[derive(Debug)]
pub struct ChangeMap {
    name: String,
    since: WallTime,
    /// Of the volume when the checkpoint was made: what it has grown by since counts as changed.
    size_bytes: u64,
    granule_bytes: u64,
    granules: Box<[AtomicU64]>,
    /// How many of them have changed: a status that is asked for often does not count them.
    changed: AtomicU64,
    ended: AtomicBool,
}

impl ChangeMap {
    fn new(name: &str, since: WallTime, size_bytes: u64) -> Self {
        let least = size_bytes.div_ceil(GRANULES_MAX).next_power_of_two();
        let granule_bytes = least.max(GRANULE_BYTES_MIN);
        let words = size_bytes.div_ceil(granule_bytes).div_ceil(WORD_GRANULES);
        Self {
            name: name.to_owned(),
            since,
            size_bytes,
            granule_bytes,
            granules: (0..words).map(|_| AtomicU64::new(0)).collect(),
            changed: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// The checkpoint's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it was made.
    #[must_use]
    pub fn since(&self) -> WallTime {
        self.since
    }

    /// It was given up: what it says means nothing any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// How much has changed at most, in bytes.
    #[must_use]
    pub fn changed_bytes(&self) -> u64 {
        (self.changed.load(Ordering::Relaxed) * self.granule_bytes).min(self.size_bytes)
    }

    /// Runs that cover a range from its start on, in order: how long each is, in bytes, and whether
    /// it has changed; at most `count_max` of them, and at least one unless the range is empty.
    /// They may end before the range does also where there are fewer: a long range is answered in
    /// parts.
    #[must_use]
    pub fn runs(&self, range: Range<u64>, count_max: usize) -> Vec<(u64, bool)> {
        let mut runs: Vec<(u64, bool)> = Vec::new();
        let mut at = range.start;
        let looked_end = (at / self.granule_bytes / WORD_GRANULES).saturating_add(WORDS_AT_ONCE_MAX);
        while at < range.end {
            let is_new = at >= self.size_bytes;
            if !is_new && at / self.granule_bytes / WORD_GRANULES >= looked_end {
                break;
            }
            let (changed, end) = if is_new { (true, range.end) } else { self.run_in_word(at) };
            let end = end.min(range.end);
            let count = runs.len();
            match runs.last_mut() {
                Some((len, last)) if *last == changed => *len += end - at,
                _ if count == count_max => break,
                _ => runs.push((end - at, changed)),
            }
            at = end;
        }
        runs
    }

    /// Whether a byte of the checkpoint's volume has changed, and up to where as much as one word
    /// tells has changed as it has.
    fn run_in_word(&self, at: u64) -> (bool, u64) {
        let granule = at / self.granule_bytes;
        let word = self.granules[(granule / WORD_GRANULES) as usize].load(Ordering::SeqCst);
        let rest = word >> (granule % WORD_GRANULES);
        let changed = rest & 1 == 1;
        let alike = if changed { rest.trailing_ones() } else { rest.trailing_zeros() };
        let left = WORD_GRANULES - granule % WORD_GRANULES;
        let end = (granule + u64::from(alike).min(left)) * self.granule_bytes;
        (changed, end.min(self.size_bytes))
    }

    fn note(&self, range: &Range<u64>) {
        let end = range.end.min(self.size_bytes);
        if range.start >= end {
            return;
        }
        let granules = range.start / self.granule_bytes..end.div_ceil(self.granule_bytes);
        let mut changed = 0;
        for ix in granules.start / WORD_GRANULES..granules.end.div_ceil(WORD_GRANULES) {
            let first = granules.start.saturating_sub(ix * WORD_GRANULES);
            let after = (granules.end - ix * WORD_GRANULES).min(WORD_GRANULES);
            let mask = u64::MAX << first & u64::MAX >> (WORD_GRANULES - after);
            let word = &self.granules[ix as usize];
            // A word that other cores write too is only written where that changes it.
            if word.load(Ordering::SeqCst) & mask != mask {
                let before = word.fetch_or(mask, Ordering::SeqCst);
                changed += u64::from((mask & !before).count_ones());
            }
        }
        if changed > 0 {
            self.changed.fetch_add(changed, Ordering::Relaxed);
        }
    }
}

/// Why a checkpoint is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// There is one of this name.
    #[error("there is a checkpoint of this name")]
    Exists,
    /// There are as many as there may be.
    #[error("there are {CHECKPOINTS_MAX} checkpoints, which is all there may be")]
    TooMany,
}

/// The checkpoints of a volume, for all cores.
#[derive(Debug, Default)]
pub(super) struct Changes {
    any: AtomicBool,
    maps: RwLock<Vec<Arc<ChangeMap>>>,
}

impl Changes {
    pub fn begin(&self, name: &str, since: WallTime, size_bytes: u64) -> Result<(), CheckpointError> {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        if maps.iter().any(|map| map.name == name) {
            return Err(CheckpointError::Exists);
        }
        if maps.len() >= CHECKPOINTS_MAX {
            return Err(CheckpointError::TooMany);
        }
        maps.push(Arc::new(ChangeMap::new(name, since, size_bytes)));
        self.any.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Whether there was one of this name.
    pub fn end(&self, name: &str) -> bool {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = maps.iter().position(|map| map.name == name) else { return false };
        maps.remove(at).ended.store(true, Ordering::SeqCst);
        self.any.store(!maps.is_empty(), Ordering::SeqCst);
        true
    }

    pub fn maps(&self) -> Vec<Arc<ChangeMap>> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a change that begins; what is returned is held until it is answered.
    #[inline]
    pub fn change(&self, offset_bytes: u64, len_bytes: u64) -> Change<'_> {
        let range = offset_bytes..offset_bytes.saturating_add(len_bytes);
        self.note(&range);
        Change { changes: self, range }
    }

    /// Notes all there is as changed.
    pub fn note_all(&self) {
        self.note(&(0..u64::MAX));
    }

    #[inline]
    fn note(&self, range: &Range<u64>) {
        if self.any.load(Ordering::SeqCst) {
            self.maps.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|map| map.note(range));
        }
    }
}

/// A change under way.
pub(super) struct Change<'a> {
    changes: &'a Changes,
    range: Range<u64>,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.changes.note(&self.range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SINCE: WallTime = WallTime { secs: 0, micros: 0 };
    const K64: u64 = 64 << 10;

    #[test]
    fn a_change_that_began_before_a_checkpoint_and_ends_after_it_is_noted() {
        let changes = Changes::default();
        let early = changes.change(0, 1);
        drop(changes.change(10 * K64, 1));
        changes.begin("a", SINCE, 100 * K64).unwrap();
        let late = changes.change(20 * K64, K64 + 1);
        let runs = |name: &str| {
            let map = changes.maps().into_iter().find(|map| map.name() == name).unwrap();
            map.runs(0..100 * K64, 100)
        };
        let since_late = [(20 * K64, false), (2 * K64, true), (78 * K64, false)];
        assert_eq!(runs("a"), since_late, "one that has only begun is noted too");
        changes.begin("b", SINCE, 100 * K64).unwrap();
        assert_eq!(runs("b"), [(100 * K64, false)]);
        drop((early, late));
        let all = [(K64, true), (19 * K64, false), (2 * K64, true), (78 * K64, false)];
        assert_eq!((runs("a"), runs("b")), (all.to_vec(), all.to_vec()));
        assert_eq!(changes.begin("a", SINCE, 1), Err(CheckpointError::Exists));
        let given_up = changes.maps()[0].clone();
        assert!(changes.end("a") && !changes.end("a"));
        assert!(given_up.has_ended() && changes.maps().len() == 1);
        for number in 1..CHECKPOINTS_MAX {
            changes.begin(&number.to_string(), SINCE, 1).unwrap();
        }
        assert_eq!(changes.begin("more", SINCE, 1), Err(CheckpointError::TooMany));
    }

    #[test]
    fn what_a_volume_has_grown_by_counts_as_changed() {
        let changes = Changes::default();
        changes.begin("a", SINCE, 3 * K64 / 2).unwrap();
        let map = &changes.maps()[0];
        assert_eq!(map.runs(0..4 * K64, 9), [(3 * K64 / 2, false), (5 * K64 / 2, true)]);
        drop(changes.change(3 * K64, K64));
        assert_eq!((map.changed_bytes(), map.runs(0..0, 9)), (0, vec![]));
        assert_eq!(map.runs(0..4 * K64, 1), [(3 * K64 / 2, false)]);
        drop(changes.change(K64, 3 * K64));
        assert_eq!(map.runs(0..4 * K64, 9), [(K64, false), (3 * K64, true)]);
        changes.note_all();
        assert_eq!((map.changed_bytes(), map.runs(0..4 * K64, 9)), (3 * K64 / 2, vec![(4 * K64, true)]));
        // A volume of any size has a map of bounded size.
        let large = ChangeMap::new("large", SINCE, 1 << 50);
        assert!(large.granules.len() <= 1 << 21);
        large.note(&((1 << 50) - 1..1 << 50));
        assert_eq!(large.changed_bytes(), large.granule_bytes);
    }

    #[test]
    fn a_long_range_is_answered_in_parts() {
        const ONCE: u64 = WORDS_AT_ONCE_MAX * WORD_GRANULES * K64;
        let size = 3 * ONCE;
        let map = ChangeMap::new("large", SINCE, size);
        map.note(&(2 * ONCE - K64..size));
        assert_eq!(map.runs(0..size, 9), [(ONCE, false)]);
        assert_eq!(map.runs(ONCE..size, 9), [(ONCE - K64, false), (K64, true)]);
        assert_eq!(map.runs(2 * ONCE..2 * size, 9), [(ONCE + size, true)], "and what it has grown by");
        assert_eq!(map.changed_bytes(), ONCE + K64);
    }

    proptest! {
        /// Against a byte for each sector, over five words of which the last granule is cut.
        #[test]
        fn runs_cover_a_range_and_what_changed_in_it(
            changed in prop::collection::vec((0u64..40_000, prop_oneof![1u64..600, 1u64..30_000]), 0..12),
            asked in (0u64..40_000, 1u64..40_000),
        ) {
            const SECTORS: u64 = 40_000;
            let changes = Changes::default();
            changes.begin("a", SINCE, SECTORS * 512).unwrap();
            let mut dirty = vec![false; SECTORS as usize];
            for (start, len) in changed {
                let end = (start + len).min(SECTORS);
                drop(changes.change(start * 512, (end - start) * 512));
                let granules = start * 512 / K64 * (K64 / 512)..(end * 512).div_ceil(K64) * (K64 / 512);
                dirty[granules.start as usize..granules.end.min(SECTORS) as usize].fill(true);
            }
            let (start, end) = (asked.0, (asked.0 + asked.1).min(SECTORS));
            let runs = changes.maps()[0].runs(start * 512..end * 512, usize::MAX);
            let told: Vec<bool> =
                runs.iter().flat_map(|(len, changed)| vec![*changed; (len / 512) as usize]).collect();
            prop_assert_eq!(&told[..], &dirty[start as usize..end as usize]);
            prop_assert!(runs.windows(2).all(|pair| pair[0].1 != pair[1].1));
            let granules = dirty.chunks((K64 / 512) as usize).filter(|granule| granule[0]).count() as u64;
            prop_assert_eq!(changes.maps()[0].changed_bytes(), (granules * K64).min(SECTORS * 512));
        }
    }
}
