//! The log: what it holds that is not in its place yet is applied in memory, as a mount would.
//!
//! Which records count is found first ([`ring`]); their operations are put together to transactions
//! ([`transactions`]), and the items of these change buffers ([`buffers`]) and inodes ([`inodes`])
//! in an overlay of the source. Intents without a done are finished last ([`intents`]).
//!
//! Invariants:
//!
//! 1. Nothing is written: every change is in the overlay, which every read goes through.
//! 2. Transactions are applied in the order of their commits. The first that cannot be applied is
//!    the last; that is said.
//! 3. A place that is newer than a transaction keeps what it has. In version 5 the place says of
//!    which transaction it is; what was freed later is found before anything is applied.
//! 4. What a transaction changed has a right checksum at once: readers see no other. But an inode
//!    whose checksum in its place was wrong gets none before all of it came from the log. A block
//!    of a directory whose parts lie apart gets none: which parts it has only its reader knows.
//! 5. Memory is bounded: by the size of a record, of what is open, and of the overlay. Where a
//!    bound is met, that is said, and what was applied before stays.
//!
//! After "XFS Algorithms & Data Structures", chapter "Journaling Log", and experiments on what
//! Linux makes of logs that are cut.

mod buffers;
mod inodes;
pub mod intents;
mod owners;
pub mod record;
mod ring;
mod transactions;
pub mod words;

use std::collections::BTreeSet;

use crate::bytes::be64;
use crate::error::Note;
use crate::source::ByteSource;
use crate::xfs::superblock::Superblock;

pub use buffers::seal_at;
use buffers::{BufferState, Cancelled, LoggedBuffer};
use inodes::DamagedInodes;
use intents::Intents;
use record::LogRecord;
use ring::LogRing;
use transactions::{Committed, LogItem, OpenTransactions, kind_of};
use words::LogWords;

/// What is wrong with the log.
pub type LogDamage = &'static str;

/// Where a record is: the cycle, and the sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(pub u64);

/// Kinds of items.
const INODE: u16 = 0x123b;
const BUFFER: u16 = 0x123c;
const INODES_CREATED: u16 = 0x123f;
/// Unlinked inodes, quotas, quotas that end: nothing of these is shown.
const UNSEEN: [u16; 3] = [0x1238, 0x123d, 0x123e];

/// What the log came to.
#[derive(Debug, Default)]
pub struct LogReplay {
    /// Transactions that changed more than the superblock, whose counters nothing that is shown
    /// depends on.
    pub transactions: u64,
    /// What was begun and is to be finished.
    pub intents: Intents,
    /// There is a log on another device, which is not read.
    elsewhere: bool,
    /// A block that is changed in part was torn or damaged before.
    torn: bool,
    /// Where parts of blocks of directories start that lie apart and are changed: the checksum of
    /// such a block is not right.
    pub directory_parts: BTreeSet<u64>,
    /// Why not all was applied.
    damage: Option<LogDamage>,
}

impl LogReplay {
    /// What to say, where an intent may be left that cannot be finished; nothing if the log changes
    /// nothing.
    pub fn note(&self, left: Option<LogDamage>) -> Option<Note> {
        let transactions = self.transactions;
        let torn =
            "a block that the log changes in part had a wrong checksum before: it was torn, or is damaged";
        match (self.damage, left.or(self.torn.then_some(torn))) {
            _ if self.elsewhere => Some(Note::LogElsewhere),
            (Some(why), _) => Some(Note::LogCutShort { transactions, why }),
            (None, Some(why)) => Some(Note::LogLeftOpen { transactions, why }),
            (None, None) if !self.directory_parts.is_empty() => Some(Note::LogInParts { transactions }),
            (None, None) => (transactions > 0).then_some(Note::LogApplied { transactions }),
        }
    }
}

/// Applies the log to the overlay of the source.
pub fn apply(source: &mut ByteSource, superblock: &Superblock) -> LogReplay {
    let mut result = LogReplay::default();
    let Some((start, len)) = superblock.log.filter(|(_, len)| *len >= ring::SECTOR_BYTES) else {
        result.elsewhere = true;
        return result;
    };
    let place = Place { start, sectors: len / ring::SECTOR_BYTES };
    let active = match place.ring(source, superblock).active() {
        Ok(active) => active,
        Err(why) => {
            result.damage = Some(why);
            return result;
        }
    };
    let early = active.early.or_else(|| ahead(source, superblock, active.end));
    let Some((tail, head)) = active.records else {
        result.damage = early;
        return result;
    };
    let mut replay = Replay::new(superblock.clone());
    // First what was freed, then what was changed. Damage that ends the first ends the second, too.
    let found = place.each(source, superblock, tail, head, &mut |_, committed| replay.look(&committed));
    let applied =
        place.each(source, superblock, tail, head, &mut |source, committed| replay.apply(source, &committed));
    let mut owners = replay.owners.iter();
    let owned = owners.try_for_each(|&inode| inodes::own_trees(source, &replay.superblock, inode));
    LogReplay {
        transactions: replay.changed,
        intents: replay.intents,
        elsewhere: false,
        torn: replay.torn,
        directory_parts: replay.directory_parts,
        damage: found.and(applied).and(owned).err().or(early),
    }
}

/// Groups whose heads are looked at for [`ahead`].
const GROUPS_MAX: u64 = 64;

/// Where the superblock of version 5 and the heads of a group say of which record their last change
/// is: the sector, the magic number, the place.
const HEADS: [(u64, &[u8; 4], usize); 4] =
    [(0, b"XFSB", 240), (1, b"XAGF", 208), (2, b"XAGI", 320), (3, b"XAFL", 24)];

/// What reached its place was in the log before: if that is of a record behind the end, the log was
/// longer. Linux does not mount that.
fn ahead(source: &ByteSource, superblock: &Superblock, end: Lsn) -> Option<LogDamage> {
    if !superblock.version5 {
        return None;
    }
    for group in 0..superblock.groups().min(GROUPS_MAX) {
        let start = superblock.group_offset(group).ok()?;
        for (sector, magic, lsn_at) in HEADS {
            let sector_bytes = superblock.sector_bytes;
            let Ok(head) = source.bytes(start + sector * sector_bytes as u64, sector_bytes) else { continue };
            let lsn = be64(&head, lsn_at).filter(|lsn| *lsn != u64::MAX);
            if head.starts_with(magic) && lsn.is_some_and(|lsn| Lsn(lsn) > end) {
                return Some("it ends early: what is in its place is newer than its end");
            }
        }
    }
    None
}

/// Where the log is.
#[derive(Clone, Copy)]
struct Place {
    start: u64,
    sectors: u64,
}

/// Takes committed transactions, and what they change.
type EachChange<'a> = dyn FnMut(&mut ByteSource, Committed) -> Result<(), LogDamage> + 'a;

impl Place {
    fn ring<'a>(self, source: &'a ByteSource, superblock: &Superblock) -> LogRing<'a> {
        let Self { start, sectors } = self;
        LogRing { source, start, sectors, uuid: superblock.uuid(), strict: superblock.version5 }
    }

    /// Calls `each` for the transactions that are committed in the records from the tail to the
    /// head.
    fn each(
        self,
        source: &mut ByteSource,
        superblock: &Superblock,
        tail: u64,
        head: u64,
        each: &mut EachChange<'_>,
    ) -> Result<(), LogDamage> {
        let (mut at, mut open) = (tail, OpenTransactions::default());
        while at != head {
            let ring = self.ring(source, superblock);
            let record = LogRecord::read(&ring, at)?;
            if record.sectors() > ring.distance(at, head) {
                return Err("a record in it does not end where the next one starts");
            }
            let (data, is_right) = record.data(&ring)?;
            // Old kernels wrote version 4 without them.
            if !is_right && (ring.strict || !record.is_unchecked()) {
                return Err("the checksum of a record in it is wrong");
            }
            at = (at + record.sectors()) % ring.sectors;
            open.take(&record, &data, &mut |committed| each(source, committed))?;
        }
        Ok(())
    }
}

/// Applies transactions.
struct Replay {
    /// As the transactions leave it that are applied by now: a file system that grew has new groups
    /// from then on, or a last one that is longer.
    superblock: Superblock,
    cancelled: Cancelled,
    intents: Intents,
    /// Places of inodes whose trees have blocks with another owner.
    owners: BTreeSet<u64>,
    /// Inodes that were damaged in their places.
    damaged: DamagedInodes,
    /// A block that is changed in part was torn or damaged before.
    torn: bool,
    directory_parts: BTreeSet<u64>,
    /// Transactions that changed more than the superblock.
    changed: u64,
}

impl Replay {
    fn new(superblock: Superblock) -> Self {
        let (cancelled, intents, owners, damaged, directory_parts) = Default::default();
        Self { superblock, cancelled, intents, owners, damaged, torn: false, directory_parts, changed: 0 }
    }

    /// Notes which buffers it frees.
    fn look(&mut self, committed: &Committed) -> Result<(), LogDamage> {
        for item in &committed.items {
            if kind_of(item, committed.words) == Some(BUFFER) {
                self.cancelled.note(&LoggedBuffer::of_item(item, committed.words)?)?;
            }
        }
        Ok(())
    }

    /// Buffers come before what lies in them, and what is freed comes last.
    fn apply(&mut self, source: &mut ByteSource, committed: &Committed) -> Result<(), LogDamage> {
        let Committed { lsn, words, items } = committed;
        let (mut others, mut freed) = (Vec::new(), Vec::new());
        let mut changes = false;
        for item in items {
            match kind_of(item, *words) {
                Some(BUFFER) => {
                    let buffer = LoggedBuffer::of_item(item, *words)?;
                    changes |= !buffer.is_superblock();
                    match buffer.is_freed() {
                        true => freed.push(buffer),
                        false => self.buffer(source, &buffer, *lsn)?,
                    }
                }
                Some(INODES_CREATED) => {
                    changes = true;
                    inodes::create(source, &self.superblock, &self.cancelled, item)?;
                }
                Some(kind) => {
                    changes = true;
                    others.push((kind, item));
                }
                None => return Err("an item in it is none"),
            }
        }
        for (kind, item) in others {
            self.other(source, (kind, item), *lsn, *words)?;
        }
        freed.iter().for_each(|buffer| self.cancelled.forget(buffer));
        self.changed += u64::from(changes);
        Ok(())
    }

    fn buffer(
        &mut self,
        source: &mut ByteSource,
        buffer: &LoggedBuffer<'_>,
        lsn: Lsn,
    ) -> Result<(), LogDamage> {
        match buffer.apply(source, &self.superblock, &self.cancelled, lsn)? {
            BufferState::Fine => {}
            BufferState::Torn => self.torn = true,
            BufferState::Part(offset) => drop(self.directory_parts.insert(offset)),
        }
        if buffer.is_superblock() {
            let new = Superblock::read(source);
            self.superblock = new.map_err(|_| "the superblock that it leaves is damaged")?;
        }
        Ok(())
    }

    fn other(
        &mut self,
        source: &mut ByteSource,
        (kind, item): (u16, &LogItem),
        lsn: Lsn,
        words: LogWords,
    ) -> Result<(), LogDamage> {
        match kind {
            INODE => {
                let Self { superblock, cancelled, damaged, .. } = self;
                let owns = inodes::apply(source, superblock, (cancelled, damaged), item, (lsn, words))?;
                self.owners.extend(owns);
                Ok(())
            }
            kind if UNSEEN.contains(&kind) => Ok(()),
            kind => self.intents.take(kind, item, words),
        }
    }
}
