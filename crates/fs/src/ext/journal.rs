//! The journal (jbd2) of a file system that was not unmounted: which blocks it holds newer. Nothing
//! is written; they are read from where they are in the log.
//!
//! The log is a ring of blocks. A transaction is descriptor blocks, each followed by the blocks it
//! names, revoke blocks, and a commit block; without the commit it never was. A block that a
//! transaction revokes is not to be taken from it or an earlier one, since it has become something
//! else.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bytes::{be16, be32, le16, le32, uuid_at};
use crate::ext::Ext;
use crate::ext::checksum::{crc, crc_without};
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

/// Features.
const WIDE: u32 = 0x2;
const CHECKSUM_V2: u32 = 0x8;
const CHECKSUM_V3: u32 = 0x10;
const FAST_COMMIT: u32 = 0x20;
const KNOWN: u32 = 0x37;

/// Flags of tags.
const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

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
    /// Changes that followed, in another form, which is not read here.
    pub fast_commits: bool,
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

/// Why a journal cannot be used.
type Refusal = &'static str;

/// Reads the log.
pub fn load(ext: &Ext) -> Result<JournalBlocks, Refusal> {
    if ext.superblock.journal_inode == 0 {
        return Err("it is on a device of its own");
    }
    let inode = Inode::read(ext, ext.superblock.journal_inode).map_err(|_| "its inode is damaged")?;
    let log = Log::open(ext, &inode)?;
    log.map_or(Ok(JournalBlocks::default()), |log| log.replay())
}

/// A log that is not empty.
struct Log<'a> {
    ext: &'a Ext,
    /// Where it lies: runs of blocks, in order.
    runs: Vec<FileRun>,
    /// The ring, in blocks of the log.
    ring: Range<u64>,
    start: u64,
    sequence: u32,
    features: u32,
    seed: u32,
}

/// What the transactions that are not committed yet, and those that are, come to.
#[derive(Default)]
struct Replayed {
    committed: BTreeMap<u64, Newer>,
    pending: BTreeMap<u64, Newer>,
    revoked: Vec<u64>,
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
        let mut log = Self { ext, runs, ring: 0..0, start: 0, sequence: 0, features: 0, seed: 0 };
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
        if self.features & CHECKSUM_V2 != 0 {
            return Some(Err("its checksums are of version 2, which only Linux 3.5 to 3.17 wrote"));
        }
        if self.features & !KNOWN != 0 {
            return Some(Err("it has unknown features"));
        }
        self.seed = crc(!0, &uuid_at(bytes, 0x30)?);
        if self.features & CHECKSUM_V3 != 0
            && crc_without(!0, bytes.get(..1024)?, 0xfc, 4) != be32(bytes, 0xfc)?
        {
            return Some(Err("its superblock's checksum is wrong"));
        }
        (self.sequence, self.start) = (be32(bytes, 0x18)?, u64::from(be32(bytes, 0x1c)?));
        // The last blocks of the log are for fast commits.
        let fast = match (self.features & FAST_COMMIT != 0, be32(bytes, 0x54)?) {
            (false, _) => 0,
            (true, 0) => 256,
            (true, blocks) => u64::from(blocks),
        };
        let blocks = u64::from(be32(bytes, 0x10)?);
        self.ring = u64::from(be32(bytes, 0x14)?)..blocks.saturating_sub(fast);
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

    fn replay(&self) -> Result<JournalBlocks, Refusal> {
        let (mut at, mut sequence) = (self.start, self.sequence);
        let mut replayed = Replayed::default();
        let mut left = self.ring.end - self.ring.start;
        while left > 0 {
            let block = self.block(at)?;
            if be32(&block, 0) != Some(MAGIC) || be32(&block, 8) != Some(sequence) {
                break;
            }
            // A block whose checksum is wrong is where the log ends, as one that was never written.
            let used = match be32(&block, 4) {
                Some(DESCRIPTOR) if self.tail_is_right(&block) => {
                    self.descriptor(&block, at, sequence, &mut replayed)?
                }
                Some(REVOKE) if self.tail_is_right(&block) => {
                    self.revoke(&block, &mut replayed);
                    Some(1)
                }
                Some(COMMIT) if self.commit_is_right(&block) => {
                    for block in replayed.revoked.drain(..) {
                        replayed.committed.remove(&block);
                        replayed.pending.remove(&block);
                    }
                    replayed.committed.append(&mut replayed.pending);
                    sequence = sequence.wrapping_add(1);
                    Some(1)
                }
                _ => None,
            };
            let Some(used) = used else { break };
            left = left.saturating_sub(used);
            for _ in 0..used.min(self.ring.end) {
                at = self.after(at);
            }
        }
        Ok(JournalBlocks { blocks: replayed.committed, fast_commits: self.has_fast_commits(sequence) })
    }

    /// Whether fast commits follow the last transaction. Their area is not emptied; its first tag
    /// says which record they follow.
    fn has_fast_commits(&self, sequence: u32) -> bool {
        const TAG_HEAD: u16 = 9;
        let area = (self.features & FAST_COMMIT != 0).then(|| self.block(self.ring.end).ok()).flatten();
        area.is_some_and(|area| le16(&area, 0) == Some(TAG_HEAD) && le32(&area, 8) == Some(sequence))
    }

    /// Takes what a descriptor names. The blocks used, or `None` if the content of one is not what
    /// it was written as.
    fn descriptor(
        &self,
        block: &[u8],
        at: u64,
        sequence: u32,
        into: &mut Replayed,
    ) -> Result<Option<u64>, Refusal> {
        let end = block.len() - if self.features & CHECKSUM_V3 != 0 { 4 } else { 0 };
        let (mut tag_at, mut data_at, mut used) = (HEADER_BYTES, at, 1);
        loop {
            let Some(tag) = self.tag(&block[..end], tag_at) else { return Ok(None) };
            data_at = self.after(data_at);
            used += 1;
            if used > self.ring.end {
                return Ok(None);
            }
            if let Some(checksum) = tag.checksum {
                let seed = crc(self.seed, &sequence.to_be_bytes());
                if crc(seed, &self.block(data_at)?) != checksum {
                    return Ok(None);
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
        let (flags, checksum, len) = match self.features & CHECKSUM_V3 != 0 {
            true => (be32(bytes, at + 4)?, Some(be32(bytes, at + 12)?), 16),
            false => (u32::from(be16(bytes, at + 6)?), None, if wide { 12 } else { 8 }),
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

    /// Descriptors and revokes have their checksum at their end.
    fn tail_is_right(&self, block: &[u8]) -> bool {
        let at = block.len() - 4;
        self.features & CHECKSUM_V3 == 0 || be32(block, at) == Some(crc_without(self.seed, block, at, 4))
    }

    fn commit_is_right(&self, block: &[u8]) -> bool {
        const CHECKSUM_AT: usize = 0x10;
        self.features & CHECKSUM_V3 == 0
            || be32(block, CHECKSUM_AT) == Some(crc_without(self.seed, block, CHECKSUM_AT, 4))
    }
}

struct Tag {
    block: u64,
    flags: u32,
    checksum: Option<u32>,
    len: usize,
}
