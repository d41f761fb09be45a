//! The journal (jbd2) of a file system that was not unmounted: which blocks it holds newer. Nothing
//! is written; they are read from where they are in the log.
//!
//! The log is a ring of blocks. A transaction is descriptor blocks, each followed by the blocks it
//! names, revoke blocks, and a commit block; without the commit it never was. A block that a
//! transaction revokes is not to be taken from it or an earlier one, since it has become something
//! else.
//!
//! The log ends where a block is not the next one: it has no magic or another number. A block whose
//! number is right and whose checksum is not is damage, and so says Linux, if a commit follows that
//! is newer than what came before: then all was written once. Without one it was never finished.
//! The same commit tells that a block which is not the next one was, too; there Linux says nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bytes::{be16, be32, be64, uuid_at};
use crate::ext::Ext;
use crate::ext::checksum::{crc, crc_big_endian, crc_without};
use crate::ext::fast::{self, FastChange};
use crate::ext::inode::Inode;
use crate::source::FileRun;

const MAGIC: u32 = 0xc03b_3998;
const HEADER_BYTES: usize = 12;

/// Types of blocks.
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK_V1: u32 = 3;
const SUPERBLOCK_V2: u32 = 4;
const REVOKE: u32 = 5;

/// Features: the first is one that old versions may ignore.
const CHECKSUM_V1: u32 = 0x1;
const WIDE: u32 = 0x2;
const ASYNC_COMMIT: u32 = 0x4;
const CHECKSUM_V2: u32 = 0x8;
const CHECKSUM_V3: u32 = 0x10;
const FAST_COMMIT: u32 = 0x20;
const KNOWN: u32 = 0x3f;

/// Flags of tags.
const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

/// Of a commit: the checksum, with its type and size before it in version 1, and when it was made.
const CHECKSUM_AT: usize = 0x10;
const CHECKSUM_KIND_AT: usize = 0xc;
const CRC32_OF_4_BYTES: u16 = 0x104;
const SECONDS_AT: usize = 0x30;
const NANOSECONDS_AT: usize = 0x38;

/// Fewer blocks than that are all for transactions.
const RING_BLOCKS_MIN: u64 = 1024;
const FAST_BLOCKS_DEFAULT: u64 = 256;

/// A block that the log holds newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newer {
    /// Where it is.
    pub block: u64,
    /// It starts with the log's own magic, in place of which the log has zeros.
    escaped: bool,
}

impl Newer {
    /// Makes the block what it was before it went into the log.
    pub fn unescape(self, block: &mut [u8]) {
        if self.escaped && block.len() >= 4 {
            block[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
    }
}

/// The blocks that the log holds newer.
#[derive(Debug, Default)]
pub struct JournalBlocks {
    blocks: BTreeMap<u64, Newer>,
}

impl JournalBlocks {
    pub fn get(&self, block: u64) -> Option<Newer> {
        self.blocks.get(&block).copied()
    }

    pub fn holds_any(&self, blocks: Range<u64>) -> bool {
        !self.blocks.is_empty() && self.blocks.range(blocks).next().is_some()
    }

    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }
}

/// Why a journal, or a part of it, cannot be used.
pub type Refusal = &'static str;

/// What a journal has.
#[derive(Debug)]
pub struct LoadedJournal {
    pub blocks: JournalBlocks,
    /// Why what follows these blocks cannot be used, if something follows.
    pub damage: Option<Refusal>,
    /// The changes that follow the last transaction.
    pub fast: Result<Vec<FastChange>, Refusal>,
}

/// Reads the log.
pub fn load(ext: &Ext) -> Result<LoadedJournal, Refusal> {
    if ext.superblock.journal_inode == 0 {
        return Err("it is on a device of its own");
    }
    let inode = Inode::read(ext, ext.superblock.journal_inode).map_err(|_| "its inode is damaged")?;
    let log = Log::open(ext, &inode)?;
    let empty = LoadedJournal { blocks: JournalBlocks::default(), damage: None, fast: Ok(Vec::new()) };
    log.map_or(Ok(empty), |log| log.replay())
}

/// A log that is not empty.
struct Log<'a> {
    ext: &'a Ext,
    /// Where it lies: runs of blocks, in order.
    runs: Vec<FileRun>,
    /// The ring, in blocks of the log.
    ring: Range<u64>,
    /// Blocks of the log that are for fast commits.
    fast: Range<u64>,
    start: u64,
    sequence: u32,
    features: u32,
    /// Commits have a checksum of the whole transaction.
    checksum_v1: bool,
    seed: u32,
}

/// What the transactions that are not committed yet, and those that are, come to.
#[derive(Default)]
struct Replayed {
    committed: BTreeMap<u64, Newer>,
    pending: BTreeMap<u64, Newer>,
    revoked: Vec<u64>,
    /// A block of the transaction is not what it was written as.
    broken: bool,
    /// Of the descriptors of the transaction and the blocks they name, in version 1.
    sum: u32,
    /// When the last commit was made.
    committed_at: (u64, u32),
}

impl Replayed {
    fn new() -> Self {
        Self { sum: !0, ..Self::default() }
    }

    fn commit(&mut self, at: (u64, u32)) {
        for block in self.revoked.drain(..) {
            self.committed.remove(&block);
            self.pending.remove(&block);
        }
        self.committed.append(&mut self.pending);
        (self.sum, self.committed_at) = (!0, at);
    }
}

/// What a block of the log turned out to be.
enum Step {
    /// So many blocks belong together.
    Used(u64),
    /// The log ends before it.
    End,
    /// It was written once and is not that any more.
    Damaged(Refusal),
}

impl<'a> Log<'a> {
    /// `None` if it is empty.
    fn open(ext: &'a Ext, inode: &Inode) -> Result<Option<Self>, Refusal> {
        let mut runs = Vec::new();
        let whole = 0..inode.metadata.size_bytes;
        ext.runs(inode, &whole, &mut |run| {
            runs.push(run);
            Ok(())
        })
        .map_err(|_| "its map is damaged")?;
        let mut log = Self {
            ext,
            runs,
            ring: 0..0,
            fast: 0..0,
            start: 0,
            sequence: 0,
            features: 0,
            checksum_v1: false,
            seed: 0,
        };
        let superblock = log.block(0).map_err(|_| "its superblock cannot be read")?;
        let empty = log.decode(&superblock).ok_or("its superblock is too short")??;
        Ok((!empty).then_some(log))
    }

    /// Whether it is empty.
    fn decode(&mut self, bytes: &[u8]) -> Option<Result<bool, Refusal>> {
        let kind = be32(bytes, 4)?;
        if be32(bytes, 0)? != MAGIC || !matches!(kind, SUPERBLOCK_V1 | SUPERBLOCK_V2) {
            return Some(Err("its superblock is damaged"));
        }
        if be32(bytes, 0xc)? as usize != self.ext.superblock.block_bytes {
            return Some(Err("its blocks have another size"));
        }
        self.features = if kind == SUPERBLOCK_V2 { be32(bytes, 0x28)? } else { 0 };
        if self.features & !KNOWN != 0 {
            return Some(Err("it has unknown features"));
        }
        self.checksum_v1 = kind == SUPERBLOCK_V2 && be32(bytes, 0x24)? & CHECKSUM_V1 != 0;
        self.seed = crc(!0, &uuid_at(bytes, 0x30)?);
        if self.has_tails() && crc_without(!0, bytes.get(..1024)?, 0xfc, 4) != be32(bytes, 0xfc)? {
            return Some(Err("its superblock's checksum is wrong"));
        }
        (self.sequence, self.start) = (be32(bytes, 0x18)?, u64::from(be32(bytes, 0x1c)?));
        // The last blocks of the log are for fast commits; the first of these is not used.
        let (blocks, fast) = (u64::from(be32(bytes, 0x10)?), u64::from(be32(bytes, 0x54)?));
        let fast = if fast == 0 { FAST_BLOCKS_DEFAULT } else { fast };
        let ring_end = match self.features & FAST_COMMIT != 0 {
            true => blocks.checked_sub(fast).filter(|end| *end >= RING_BLOCKS_MIN).unwrap_or(blocks),
            false => blocks,
        };
        self.ring = u64::from(be32(bytes, 0x14)?)..ring_end;
        self.fast = ring_end.saturating_add(1).min(blocks)..blocks;
        if self.start == 0 {
            return Some(Ok(true));
        }
        if !self.ring.contains(&self.start) {
            return Some(Err("its superblock is damaged"));
        }
        Some(Ok(false))
    }

    fn place_of(&self, ix: u64) -> Result<u64, Refusal> {
        let block_bytes = self.ext.superblock.block_bytes as u64;
        let offset = ix * block_bytes;
        let run = self.runs.partition_point(|run| run.file_offset + run.len <= offset);
        let run = self.runs.get(run).filter(|run| run.file_offset <= offset).ok_or("it has a hole")?;
        Ok((run.disk_offset + (offset - run.file_offset)) / block_bytes)
    }

    fn block(&self, ix: u64) -> Result<Vec<u8>, Refusal> {
        self.ext.block(self.place_of(ix)?).map_err(|_| "a block of it cannot be read")
    }

    /// The block behind, round the ring.
    fn after(&self, ix: u64) -> u64 {
        if ix + 1 < self.ring.end { ix + 1 } else { self.ring.start }
    }

    fn replay(&self) -> Result<LoadedJournal, Refusal> {
        let (mut at, mut sequence) = (self.start, self.sequence);
        let (mut replayed, mut damage) = (Replayed::new(), None);
        let mut left = self.ring.end - self.ring.start;
        while left > 0 {
            let block = self.block(at)?;
            let step = match be32(&block, 0) == Some(MAGIC) && be32(&block, 8) == Some(sequence) {
                true => self.step(&block, at, sequence, &mut replayed)?,
                false => Step::End,
            };
            let used = match step {
                Step::Used(used) => used,
                Step::End => {
                    damage = self.goes_on(at, sequence, &replayed)?;
                    break;
                }
                Step::Damaged(why) => {
                    damage = Some(why);
                    break;
                }
            };
            sequence = sequence.wrapping_add(u32::from(be32(&block, 4) == Some(COMMIT)));
            left = left.saturating_sub(used);
            for _ in 0..used.min(self.ring.end) {
                at = self.after(at);
            }
        }
        let fast = match damage {
            Some(_) => Ok(Vec::new()),
            None => fast::scan(self.fast.clone().map(|ix| self.block(ix)), sequence),
        };
        Ok(LoadedJournal { blocks: JournalBlocks { blocks: replayed.committed }, damage, fast })
    }

    fn step(&self, block: &[u8], at: u64, sequence: u32, into: &mut Replayed) -> Result<Step, Refusal> {
        match be32(block, 4) {
            Some(DESCRIPTOR) if self.tail_is_right(block) => {
                if let Some(used) = self.descriptor(block, at, sequence, into)? {
                    return Ok(Step::Used(used));
                }
                self.end_or_damage(at, sequence, into, "a descriptor in it is damaged")
            }
            Some(REVOKE) if self.tail_is_right(block) => {
                self.revoke(block, into);
                Ok(Step::Used(1))
            }
            Some(DESCRIPTOR | REVOKE) => {
                self.end_or_damage(at, sequence, into, "the checksum of a descriptor in it is wrong")
            }
            Some(COMMIT) => self.commit(block, at, sequence, into),
            _ => Ok(Step::End),
        }
    }

    fn commit(&self, block: &[u8], at: u64, sequence: u32, into: &mut Replayed) -> Result<Step, Refusal> {
        let made = committed_at(block);
        let wrong = "the checksum of a transaction in it is wrong";
        if !self.commit_is_right(block) || !self.sum_is_right(block, into.sum) {
            return match self.features & ASYNC_COMMIT != 0 {
                // Such a commit may have reached the drive before its transaction.
                true => self.end_or_damage(self.after(at), sequence.wrapping_add(1), into, wrong),
                // One that is older is left of a former use of the place.
                false if made < into.committed_at => Ok(Step::End),
                false => Ok(Step::Damaged(wrong)),
            };
        }
        if into.broken {
            return Ok(Step::Damaged("the checksum of a block in it is wrong"));
        }
        into.commit(made);
        Ok(Step::Used(1))
    }

    /// Why the log must have gone on behind its end, if it must. A commit that may be written
    /// before its transaction says nothing of that one.
    fn goes_on(&self, at: u64, sequence: u32, replayed: &Replayed) -> Result<Option<Refusal>, Refusal> {
        let sequence = sequence.wrapping_add(u32::from(self.features & ASYNC_COMMIT != 0));
        let why = "it ends early: newer transactions lie behind its end";
        Ok(match self.end_or_damage(self.after(at), sequence, replayed, why)? {
            Step::Damaged(why) => Some(why),
            Step::Used(_) | Step::End => None,
        })
    }

    /// What a block is whose number is the next one and whose content is not as it was written:
    /// damage if a commit of that transaction or a later one is there.
    fn end_or_damage(
        &self,
        mut at: u64,
        sequence: u32,
        replayed: &Replayed,
        why: Refusal,
    ) -> Result<Step, Refusal> {
        for _ in self.ring.clone() {
            let block = self.block(at)?;
            let ahead = be32(&block, 8).map(|found| u64::from(found.wrapping_sub(sequence)));
            if be32(&block, 0) == Some(MAGIC)
                && be32(&block, 4) == Some(COMMIT)
                && ahead.is_some_and(|ahead| ahead < self.ring.end)
                && committed_at(&block) >= replayed.committed_at
                && self.commit_is_right(&block)
            {
                return Ok(Step::Damaged(why));
            }
            at = self.after(at);
        }
        Ok(Step::End)
    }

    /// Takes what a descriptor names. The blocks used, or `None` if it names none.
    fn descriptor(
        &self,
        block: &[u8],
        at: u64,
        sequence: u32,
        into: &mut Replayed,
    ) -> Result<Option<u64>, Refusal> {
        let end = block.len() - if self.has_tails() { 4 } else { 0 };
        let seed = crc(self.seed, &sequence.to_be_bytes());
        if self.checksum_v1 {
            into.sum = crc_big_endian(into.sum, block);
        }
        let (mut tag_at, mut data_at, mut used) = (HEADER_BYTES, at, 1);
        loop {
            let Some(tag) = self.tag(&block[..end], tag_at) else { return Ok(None) };
            data_at = self.after(data_at);
            used += 1;
            if used > self.ring.end {
                return Ok(None);
            }
            if self.has_tails() || self.checksum_v1 {
                let content = self.block(data_at)?;
                into.broken |= tag.checksum.is_some_and(|checksum| !checksum.is_of(crc(seed, &content)));
                if self.checksum_v1 {
                    into.sum = crc_big_endian(into.sum, &content);
                }
            }
            into.pending.insert(
                tag.block,
                Newer { block: self.place_of(data_at)?, escaped: tag.flags & ESCAPED != 0 },
            );
            if tag.flags & LAST != 0 {
                return Ok(Some(used));
            }
            tag_at += tag.len;
        }
    }

    fn tag(&self, bytes: &[u8], at: usize) -> Option<Tag> {
        let wide = self.features & WIDE != 0;
        let low = u64::from(be32(bytes, at)?);
        let short = if wide { 12 } else { 8 };
        let (flags, checksum, len) = match self.features & (CHECKSUM_V2 | CHECKSUM_V3) {
            0 => (u32::from(be16(bytes, at + 6)?), None, short),
            CHECKSUM_V2 => {
                let checksum = TagChecksum::Low(be16(bytes, at + 4)?);
                (u32::from(be16(bytes, at + 6)?), Some(checksum), short + 2)
            }
            _ => (be32(bytes, at + 4)?, Some(TagChecksum::Whole(be32(bytes, at + 12)?)), 16),
        };
        let high = if wide { u64::from(be32(bytes, at + 8)?) } else { 0 };
        let len = len + if flags & SAME_UUID == 0 { 16 } else { 0 };
        Some(Tag { block: low | high << 32, flags, checksum, len })
    }

    fn revoke(&self, block: &[u8], into: &mut Replayed) {
        let used = be32(block, 0xc).unwrap_or(0) as usize;
        let len = if self.features & WIDE != 0 { 8 } else { 4 };
        let numbers = block.get(16..used.min(block.len())).unwrap_or_default();
        into.revoked.extend(
            numbers
                .chunks_exact(len)
                .map(|number| number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
        );
    }

    /// Whether descriptors and revokes have their checksum at their end, and commits theirs.
    fn has_tails(&self) -> bool {
        self.features & (CHECKSUM_V2 | CHECKSUM_V3) != 0
    }

    fn tail_is_right(&self, block: &[u8]) -> bool {
        let at = block.len() - 4;
        !self.has_tails() || be32(block, at) == Some(crc_without(self.seed, block, at, 4))
    }

    fn commit_is_right(&self, block: &[u8]) -> bool {
        !self.has_tails() || be32(block, CHECKSUM_AT) == Some(crc_without(self.seed, block, CHECKSUM_AT, 4))
    }

    /// Version 1: of all that the transaction wrote before. A commit may have none.
    fn sum_is_right(&self, block: &[u8], sum: u32) -> bool {
        let stored = be16(block, CHECKSUM_KIND_AT).zip(be32(block, CHECKSUM_AT));
        !self.checksum_v1 || matches!(stored, Some((0, 0))) || stored == Some((CRC32_OF_4_BYTES, sum))
    }
}

/// When a commit was made: seconds and nanoseconds.
fn committed_at(commit: &[u8]) -> (u64, u32) {
    (be64(commit, SECONDS_AT).unwrap_or(0), be32(commit, NANOSECONDS_AT).unwrap_or(0))
}

struct Tag {
    block: u64,
    flags: u32,
    checksum: Option<TagChecksum>,
    len: usize,
}

/// Of the block a tag names: in version 2 there was space for half of it.
enum TagChecksum {
    Low(u16),
    Whole(u32),
}

impl TagChecksum {
    fn is_of(&self, sum: u32) -> bool {
        match self {
            Self::Low(low) => u32::from(*low) == sum & 0xffff,
            Self::Whole(whole) => *whole == sum,
        }
    }
}
