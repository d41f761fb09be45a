//! The journal of a cache device: which of its entries count.

use std::collections::BTreeMap;
use std::ops::Bound;

use wattle_format::bcache::{BcacheJournalEntry, CacheDamage, CacheLayout, JournalPlace};

use super::fault::{CacheFault, CachePart, TornEntry};
use super::set::ReadCache;

/// Damaged entries that are remembered, those with the highest numbers: enough to name one.
const DAMAGED_MAX: usize = 1024;

/// How often a journal is summed at most: entries that are whole lie one behind the other, and of
/// those that are not a few claim what others have.
const SUMS_MAX: u64 = 4;

/// What is in the journal of a cache device. Every block of it is looked at: what lies behind a
/// damaged entry is found all the same, and that something is missing with it.
pub(super) struct CacheJournal<'a> {
    layout: &'a CacheLayout,
    read: ReadCache<'a>,
    /// Where whole entries are, bytes, by their numbers.
    whole: BTreeMap<u64, u64>,
    damaged: BTreeMap<u64, (u64, CacheDamage)>,
}

impl<'a> CacheJournal<'a> {
    /// Reads all of it, a bucket at a time.
    pub fn read(layout: &'a CacheLayout, read: ReadCache<'a>) -> Result<Self, CacheFault> {
        let mut journal = Self { layout, read, whole: BTreeMap::new(), damaged: BTreeMap::new() };
        let budget = SUMS_MAX * u64::from(layout.journal_buckets) * layout.bucket_bytes() as u64;
        let mut summed = 0;
        for nth in 0..u64::from(layout.journal_buckets) {
            let base = journal.bucket_at_bytes(nth);
            let bytes = read(base, layout.bucket_bytes())?;
            let mut at = 0;
            while at < bytes.len() {
                let claimed = JournalPlace::len_bytes(layout, &bytes[at..]).unwrap_or(0);
                summed += claimed.min(bytes.len() - at) as u64;
                if summed > budget {
                    let (part, at_bytes) = (CachePart::Journal, base + at as u64);
                    let what = "has more entries that lie over each other than Linux writes";
                    return Err(CacheFault::Impossible { part, at_bytes, what });
                }
                // An entry that is the only one of its bucket may have nothing beside it that tells
                // of it.
                let found = match at {
                    0 => JournalPlace::look_closely(layout, &bytes),
                    _ => JournalPlace::look(layout, &bytes[at..]),
                };
                at += journal.note(base + at as u64, found).next_multiple_of(layout.block_bytes);
            }
        }
        Ok(journal)
    }

    /// Notes what was found at a place; how far it reaches, bytes.
    fn note(&mut self, at_bytes: u64, found: JournalPlace) -> usize {
        match found {
            JournalPlace::Nothing => {}
            JournalPlace::Whole(entry) => {
                self.whole.entry(entry.seq).or_insert(at_bytes);
                return entry.len_bytes;
            }
            JournalPlace::Damaged { seq, damage } => {
                self.damaged.insert(seq, (at_bytes, damage));
                if self.damaged.len() > DAMAGED_MAX {
                    self.damaged.pop_first();
                }
            }
        }
        1
    }

    fn bucket_at_bytes(&self, nth: u64) -> u64 {
        (self.layout.first_bucket + nth) * self.layout.bucket_bytes() as u64
    }

    /// The newest entry; and what was begun after it and is not whole. Whether that was
    /// acknowledged cannot be told.
    pub fn newest(&self) -> Result<(BcacheJournalEntry, Option<TornEntry>), CacheFault> {
        let (&seq, &at) = self.whole.last_key_value().ok_or(CacheFault::NoJournal)?;
        let newest = self.entry(seq, at)?;
        let later = (Bound::Excluded(seq), Bound::Unbounded);
        if let Some((&seq, (at_bytes, damage))) = self.damaged.range(later).next() {
            return Ok((newest, Some(TornEntry { seq, at_bytes: *at_bytes, damage: damage.clone() })));
        }
        // One that does not even look like one can only be where the next one would be.
        let bucket_bytes = self.layout.bucket_bytes() as u64;
        let behind = at + newest.len_bytes.next_multiple_of(self.layout.block_bytes) as u64;
        let nth = at / bucket_bytes - self.layout.first_bucket;
        let next = self.bucket_at_bytes((nth + 1) % u64::from(self.layout.journal_buckets));
        let places = [behind, next].map(|at| (at, (bucket_bytes - at % bucket_bytes) as usize));
        for (at_bytes, room) in places.into_iter().filter(|(at, _)| *at == next || at % bucket_bytes > 0) {
            let bytes = (self.read)(at_bytes, room)?;
            if let JournalPlace::Damaged { seq, damage } = JournalPlace::look_closely(self.layout, &bytes) {
                return Ok((newest, Some(TornEntry { seq, at_bytes, damage })));
            }
        }
        Ok((newest, None))
    }

    /// Gives every entry that is still needed beside and before the newest, and that itself, in
    /// their order.
    pub fn replay(
        &self,
        newest: &BcacheJournalEntry,
        mut apply: impl FnMut(u64, BcacheJournalEntry) -> Result<(), CacheFault>,
    ) -> Result<(), CacheFault> {
        if newest.last_seq > newest.seq {
            let at_bytes = self.whole.get(&newest.seq).copied().unwrap_or_default();
            let (part, what) = (CachePart::Entry(newest.seq), "needs entries that are newer than it");
            return Err(CacheFault::Impossible { part, at_bytes, what });
        }
        let mut due = newest.last_seq;
        // Where buckets are discarded, that may have come to pass before it was written down that
        // their entries are not needed any more: whole buckets, and nothing of them is left.
        if self.layout.discards {
            let first = self.whole.range(due..).next();
            let at_start = first.filter(|(_, at)| **at % self.layout.bucket_bytes() as u64 == 0);
            let is_left = |first: u64| self.damaged.range(due..first).next().is_some();
            due = at_start.map(|(&first, _)| first).filter(|&first| !is_left(first)).unwrap_or(due);
        }
        for (&seq, &at_bytes) in self.whole.range(due..=newest.seq) {
            if seq != due {
                return Err(self.missing(due, newest.seq));
            }
            apply(at_bytes, self.entry(seq, at_bytes)?)?;
            due = seq.saturating_add(1);
        }
        if due <= newest.seq { Err(self.missing(due, newest.seq)) } else { Ok(()) }
    }

    fn missing(&self, seq: u64, newest: u64) -> CacheFault {
        match self.damaged.get(&seq) {
            None => CacheFault::MissingEntry { seq, newest },
            Some((at_bytes, damage)) => CacheFault::Damaged {
                part: CachePart::Entry(seq),
                at_bytes: *at_bytes,
                damage: damage.clone(),
            },
        }
    }

    /// Reads an entry again.
    fn entry(&self, seq: u64, at_bytes: u64) -> Result<BcacheJournalEntry, CacheFault> {
        let changed = CacheFault::Impossible {
            part: CachePart::Entry(seq),
            at_bytes,
            what: "changes while it is read",
        };
        let head = (self.read)(at_bytes, JournalPlace::HEAD_BYTES.next_multiple_of(self.layout.block_bytes))?;
        let room = self.layout.bucket_bytes() - (at_bytes % self.layout.bucket_bytes() as u64) as usize;
        let Some(len) = JournalPlace::len_bytes(self.layout, &head).filter(|len| *len <= room) else {
            return Err(changed);
        };
        let bytes = (self.read)(at_bytes, len.next_multiple_of(self.layout.block_bytes))?;
        match JournalPlace::look(self.layout, &bytes) {
            JournalPlace::Whole(entry) if entry.seq == seq => Ok(*entry),
            _ => Err(changed),
        }
    }
}
