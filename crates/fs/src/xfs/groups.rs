//! Allocation groups: what their heads say, and the trees of inodes and of free space.

use std::ops::Range;

use crate::bytes::{be16, be32, be64};
use crate::error::Error;
use crate::source::ByteSource;
use crate::xfs::superblock::Superblock;
use crate::xfs::{Xfs, checksum_is_right};

const FREE_MAGIC: u32 = 0x5841_4746;
const INODE_MAGIC: u32 = 0x5841_4749;
const FREE_CHECKSUM_AT: usize = 216;
const INODE_CHECKSUM_AT: usize = 312;
/// What is read of a head: all fields, and no less than any sector.
const HEAD_FIELDS_BYTES: usize = 344;

/// Blocks of the trees: level, records, neighbours, and in version 5 where it is and whose.
const HEADER_V4_BYTES: usize = 16;
const HEADER_V5_BYTES: usize = 56;
const NODE_CHECKSUM_AT: usize = 52;
const NODE_OWNER_AT: usize = 48;

/// More levels than any group needs.
const LEVELS_MAX: u32 = 9;

/// Inodes of a record.
pub const INODES_PER_RECORD: u64 = 64;

/// What the heads of a group say.
#[derive(Debug, Clone, Copy)]
pub struct GroupHeads {
    pub number: u64,
    /// Inodes in use.
    pub inodes: u64,
    inode_tree: Tree,
    free_tree: Tree,
}

/// A tree within a group.
#[derive(Debug, Clone, Copy)]
struct Tree {
    what: TreeKind,
    root: u32,
    levels: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TreeKind {
    Inodes,
    /// Free space, by its place.
    Free,
}

impl TreeKind {
    fn magic(self, version5: bool) -> u32 {
        match (self, version5) {
            (Self::Inodes, false) => 0x4941_4254,
            (Self::Inodes, true) => 0x4941_4233,
            (Self::Free, false) => 0x4142_5442,
            (Self::Free, true) => 0x4142_3342,
        }
    }

    /// Bytes of a record, and of a key.
    fn sizes(self) -> (usize, usize) {
        match self {
            Self::Inodes => (16, 4),
            Self::Free => (8, 8),
        }
    }

    fn structure(self) -> &'static str {
        match self {
            Self::Inodes => "xfs tree of inodes",
            Self::Free => "xfs tree of free space",
        }
    }
}

/// 64 inodes.
#[derive(Debug, Clone, Copy)]
pub struct InodeRecord {
    /// The number of the first, with the group in the high bits.
    pub first: u64,
    /// A bit for each that is free, or not there.
    pub free: u64,
}

impl GroupHeads {
    /// Reads and checks them.
    pub fn read(xfs: &Xfs, number: u64) -> Result<Self, Error> {
        let free = head(&xfs.source, &xfs.superblock, number, 1, (FREE_MAGIC, FREE_CHECKSUM_AT))?;
        let inodes = head(&xfs.source, &xfs.superblock, number, 2, (INODE_MAGIC, INODE_CHECKSUM_AT))?;
        Self::decode(number, &free, &inodes).ok_or_else(|| damaged(number, "its head is too short"))
    }

    fn decode(number: u64, free: &[u8], inodes: &[u8]) -> Option<Self> {
        Some(Self {
            number,
            inodes: u64::from(be32(inodes, 16)?).saturating_sub(be32(inodes, 28)?.into()),
            inode_tree: Tree { what: TreeKind::Inodes, root: be32(inodes, 20)?, levels: be32(inodes, 24)? },
            free_tree: Tree { what: TreeKind::Free, root: be32(free, 16)?, levels: be32(free, 28)? },
        })
    }

    /// Calls `each` for the records of inodes, in order; `visit` for every block of the tree.
    pub fn inodes(
        &self,
        xfs: &Xfs,
        visit: &mut dyn FnMut() -> Result<(), Error>,
        each: &mut dyn FnMut(InodeRecord) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let group = self.number;
        walk(xfs, group, self.inode_tree, visit, &mut |record| {
            let (first, free) = be32(record, 0).zip(be64(record, 8)).unwrap_or((0, !0));
            let first_of_group = xfs.superblock.first_inode(group);
            each(InodeRecord { first: first_of_group | u64::from(first), free })?;
            Ok(u64::from(first)..u64::from(first) + INODES_PER_RECORD)
        })
    }

    /// Calls `each` with the blocks of every run of free space, in order.
    pub fn free(
        &self,
        xfs: &Xfs,
        visit: &mut dyn FnMut() -> Result<(), Error>,
        each: &mut dyn FnMut(u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        walk(xfs, self.number, self.free_tree, visit, &mut |record| {
            let (first, blocks) = be32(record, 0).zip(be32(record, 4)).unwrap_or((0, 0));
            let (first, blocks) = (u64::from(first), u64::from(blocks));
            if blocks == 0 || first + blocks > xfs.superblock.group_blocks() {
                return Err(damaged(self.number, "a run of free space that ends beyond it"));
            }
            each(blocks)?;
            Ok(first..first + blocks)
        })
    }
}

fn damaged(group: u64, what: &'static str) -> Error {
    Error::Damaged { structure: "xfs group", at: group, what }
}

/// A head: the sector of that number in the group.
/// Free blocks of a group: in its tree of free space, and kept for that tree to grow.
///
/// # Errors
/// Its head cannot be read, or is damaged.
pub fn free_blocks(source: &ByteSource, superblock: &Superblock, group: u64) -> Result<u64, Error> {
    let bytes = head(source, superblock, group, 1, (FREE_MAGIC, FREE_CHECKSUM_AT))?;
    let counts = be32(&bytes, 52).zip(be32(&bytes, 48));
    let (free, kept) = counts.ok_or_else(|| damaged(group, "its head is too short"))?;
    Ok(u64::from(free) + u64::from(kept))
}

fn head(
    source: &ByteSource,
    superblock: &Superblock,
    group: u64,
    sector: u64,
    (magic, checksum_at): (u32, usize),
) -> Result<Vec<u8>, Error> {
    let sector_bytes = superblock.sector_bytes;
    let start = superblock.group_offset(group)?;
    let len = sector_bytes.max(HEAD_FIELDS_BYTES);
    let bytes = source.bytes(start + sector * sector_bytes as u64, len)?;
    if be32(&bytes, 0) != Some(magic) || be32(&bytes, 8).map(u64::from) != Some(group) {
        return Err(damaged(group, "one of its heads is none"));
    }
    if superblock.version5 && !checksum_is_right(&bytes, checksum_at) {
        return Err(damaged(group, "the checksum of one of its heads is wrong"));
    }
    Ok(bytes)
}

/// Takes a record of a tree, and says what it covers.
type EachTreeRecord<'a> = dyn FnMut(&[u8]) -> Result<Range<u64>, Error> + 'a;

struct Walk<'a> {
    xfs: &'a Xfs,
    group: u64,
    tree: Tree,
    visit: &'a mut dyn FnMut() -> Result<(), Error>,
    each: &'a mut EachTreeRecord<'a>,
    /// What has not been passed: records are in order, so that no tree is endless.
    next: u64,
    /// Blocks of the tree that may still come: each has one owner.
    left: u64,
}

fn walk(
    xfs: &Xfs,
    group: u64,
    tree: Tree,
    visit: &mut dyn FnMut() -> Result<(), Error>,
    each: &mut EachTreeRecord<'_>,
) -> Result<(), Error> {
    if !(1..=LEVELS_MAX).contains(&tree.levels) {
        return Err(damaged(group, "a tree with an impossible number of levels"));
    }
    let mut walk = Walk { xfs, group, tree, visit, each, next: 0, left: xfs.blocks_max() };
    walk.node(tree.root, tree.levels - 1)
}

impl Walk<'_> {
    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { structure: self.tree.what.structure(), at: self.group, what }
    }

    fn node(&mut self, block: u32, level: u32) -> Result<(), Error> {
        (self.visit)()?;
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| self.damaged("it has more blocks than the file system"))?;
        let superblock = &self.xfs.superblock;
        let offset = superblock.offset_in_group(self.group, block)?;
        let bytes = self.xfs.source.bytes(offset, superblock.block_bytes)?;
        let version5 = superblock.version5;
        let header = if version5 { HEADER_V5_BYTES } else { HEADER_V4_BYTES };
        let is_one = be32(&bytes, 0) == Some(self.tree.what.magic(version5))
            && be16(&bytes, 4).map(u32::from) == Some(level);
        if !is_one {
            return Err(self.damaged("a block of it is none"));
        }
        let owned = be32(&bytes, NODE_OWNER_AT).map(u64::from) == Some(self.group);
        if version5 && (!checksum_is_right(&bytes, NODE_CHECKSUM_AT) || !owned) {
            return Err(self.damaged("the checksum or owner of a block of it is wrong"));
        }
        let records = usize::from(be16(&bytes, 6).unwrap_or(0));
        let (record_bytes, key_bytes) = self.tree.what.sizes();
        let body = &bytes[header..];
        if level > 0 {
            // As many keys as there is space for, then the pointers.
            let most = body.len() / (key_bytes + 4);
            if records > most {
                return Err(self.damaged("a block of it has more records than it has space for"));
            }
            for ix in 0..records {
                let child = be32(body, most * key_bytes + ix * 4);
                let child = child.ok_or_else(|| self.damaged("a block of it is too short"))?;
                self.node(child, level - 1)?;
            }
            return Ok(());
        }
        let body = body.get(..records * record_bytes);
        let body =
            body.ok_or_else(|| self.damaged("a block of it has more records than it has space for"))?;
        for record in body.chunks_exact(record_bytes) {
            let first = be32(record, 0).map_or(0, u64::from);
            if first < self.next {
                return Err(self.damaged("its records are not in order"));
            }
            self.next = (self.each)(record)?.end;
        }
        Ok(())
    }
}
