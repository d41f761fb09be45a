//! The superblock: geometry and features, and from numbers of inodes and blocks to bytes.

use crate::About;
use crate::bytes::{be16, be32, be64, label, u8_at, uuid_at};
use crate::error::{Error, Note};
use crate::layout::FileSystemLayout;
use crate::source::{ByteSource, SIZE_MAX};
use crate::xfs::checksum_is_right;

const MAGIC: u32 = 0x5846_5342;
/// The part with fields; the sector may be larger, and the checksum is of the sector.
const FIELDS_BYTES: usize = 512;
const CHECKSUM_AT: usize = 224;

/// Features that reading must know, in version 5.
const FTYPE: u32 = 0x1;
const META_UUID: u32 = 0x4;
const NEEDS_REPAIR: u32 = 0x10;
/// ftype, sparse inodes, meta_uuid, bigtime, needsrepair, nrext64, exchange range, parent pointers.
const KNOWN: u32 = 0xff;
/// Known, and laid out otherwise.
const REFUSED: [(u32, &str); 3] = [
    (0x100, "XFS with a tree of metadata directories (metadir)"),
    (0x200, "XFS on zones (zoned)"),
    (0x400, "XFS on zones with gaps (zone gaps)"),
];

/// Of version 4: the type of files in directories.
const FEATURES2_FTYPE: u32 = 0x200;
/// Of version 4: directories of version 2, which all have had since 2000.
const VERSION_DIRV2: u16 = 0x2000;

/// What is needed of the superblock, checked.
#[derive(Debug, Clone)]
pub struct Superblock {
    pub version5: bool,
    pub block_bytes: usize,
    pub blocks: u64,
    pub inode_bytes: usize,
    pub root_inode: u64,
    /// Entries of directories have the type of what they name.
    pub ftype: bool,
    pub directory_block_bytes: usize,
    pub sector_bytes: usize,
    /// Files that it keeps for itself: realtime bitmaps and quotas.
    pub own_inodes: [u64; 5],
    /// Where the log is, in bytes, and its size; no place if it is on a device of its own.
    pub log: Option<(u64, u64)>,
    block_log: u32,
    group_blocks: u64,
    groups: u64,
    group_log: u32,
    inodes_per_block_log: u32,
    needs_repair: bool,
    /// In blocks; 0 if it was told of none.
    stripe_unit: u64,
    stripe_width: u64,
    /// The unit of its log in bytes; 0 or 1 if it was told of none.
    log_unit_bytes: u64,
    label: Vec<u8>,
    uuid: [u8; 16],
    /// What structures have as the UUID, if another was given to the file system since.
    meta_uuid: Option<[u8; 16]>,
    /// In blocks: at what multiples chunks of inodes start.
    inode_alignment: u64,
}

/// Whether the signature is there.
pub fn is_here(source: &ByteSource) -> Result<bool, Error> {
    Ok(source.size() >= FIELDS_BYTES as u64 && be32(&source.bytes(0, FIELDS_BYTES)?, 0) == Some(MAGIC))
}

fn damaged(what: &'static str) -> Error {
    Error::Damaged { structure: "xfs superblock", at: 0, what }
}

impl Superblock {
    pub fn read(source: &ByteSource) -> Result<Self, Error> {
        let bytes = source.bytes(0, FIELDS_BYTES)?;
        let version5 = be16(&bytes, 100).map(|version| version & 0xf) == Some(5);
        if version5 {
            let sector_bytes =
                be16(&bytes, 102).map(usize::from).filter(|bytes| (512..=32768).contains(bytes));
            let sector =
                source.bytes(0, sector_bytes.ok_or_else(|| damaged("an impossible size of sectors"))?)?;
            if !checksum_is_right(&sector, CHECKSUM_AT) {
                return Err(damaged("its checksum is wrong"));
            }
        }
        Self::decode(&bytes).ok_or_else(|| damaged("it is too short"))?
    }

    /// `None` cannot be: the buffer has its length.
    fn decode(b: &[u8]) -> Option<Result<Self, Error>> {
        let version = be16(b, 100)?;
        let version5 = version & 0xf == 5;
        let incompat = if version5 { be32(b, 216)? } else { 0 };
        if let Some(refusal) = refusal(version, incompat) {
            return Some(Err(refusal));
        }
        let log2 = |at: usize| u8_at(b, at).map(u32::from);
        let (block_log, inode_log, directory_log) = (log2(120)?, log2(122)?, log2(192)?);
        let (inodes_per_block_log, group_log) = (log2(123)?, log2(124)?);
        let impossible = !(9..=16).contains(&block_log)
            || !(8..=11).contains(&inode_log)
            || inode_log > block_log
            || inodes_per_block_log != block_log - inode_log
            || block_log + directory_log > 16
            || group_log > 31;
        let (group_blocks, groups) = (u64::from(be32(b, 84)?), u64::from(be32(b, 88)?));
        if impossible || be32(b, 4)? != 1 << block_log || group_blocks == 0 || group_blocks > 1 << group_log {
            return Some(Err(damaged("impossible sizes of blocks, inodes or groups")));
        }
        let mut superblock = Self {
            version5,
            block_bytes: 1 << block_log,
            blocks: be64(b, 8)?,
            inode_bytes: 1 << inode_log,
            root_inode: be64(b, 56)?,
            ftype: if version5 { incompat & FTYPE != 0 } else { be32(b, 200)? & FEATURES2_FTYPE != 0 },
            directory_block_bytes: 1 << (block_log + directory_log),
            sector_bytes: 1 << log2(121)?.clamp(9, 15),
            own_inodes: [be64(b, 64)?, be64(b, 72)?, be64(b, 160)?, be64(b, 168)?, be64(b, 232)?],
            log: None,
            block_log,
            group_blocks,
            groups,
            group_log,
            inodes_per_block_log,
            needs_repair: incompat & NEEDS_REPAIR != 0,
            stripe_unit: be32(b, 184)?.into(),
            stripe_width: be32(b, 188)?.into(),
            log_unit_bytes: be32(b, 196)?.into(),
            label: label(b.get(108..120)?),
            uuid: uuid_at(b, 32)?,
            meta_uuid: if incompat & META_UUID != 0 { Some(uuid_at(b, 248)?) } else { None },
            inode_alignment: be32(b, 180)?.into(),
        };
        if superblock.blocks > group_blocks.saturating_mul(groups).min(SIZE_MAX >> block_log) {
            return Some(Err(damaged("more blocks than its groups have")));
        }
        let (start, len) = (be64(b, 48)?, u64::from(be32(b, 96)?) << block_log);
        superblock.log =
            if start == 0 { None } else { superblock.offset_of(start).ok().map(|start| (start, len)) };
        Some(Ok(superblock))
    }

    /// What there is to say about the file system.
    pub fn about(&self, source: &ByteSource) -> About {
        let size_bytes = self.blocks.saturating_mul(self.block_bytes as u64);
        let repair = self.needs_repair.then_some(Note::NeedsRepair);
        About {
            kind: "xfs",
            label: self.label.clone(),
            uuid: self.uuid,
            size_bytes,
            notes: repair.into_iter().chain(source.cut_off(size_bytes)).collect(),
        }
    }

    /// How it is laid out.
    pub fn layout(&self) -> FileSystemLayout {
        let bytes = |blocks: u64| blocks.saturating_mul(self.block_bytes as u64);
        FileSystemLayout {
            kind: "xfs",
            version: if self.version5 { 5 } else { 4 },
            size_bytes: bytes(self.blocks),
            block_bytes: self.block_bytes as u64,
            stripe_unit_bytes: Some(bytes(self.stripe_unit)).filter(|unit| *unit > 0),
            stripe_width_bytes: Some(bytes(self.stripe_width)).filter(|width| *width > 0),
            groups: self.groups,
            group_bytes: bytes(self.group_blocks),
            log_unit_bytes: Some(self.log_unit_bytes).filter(|unit| *unit > 1),
        }
    }

    /// Where a block is, in bytes. Its number has the group in the high bits.
    pub fn offset_of(&self, block: u64) -> Result<u64, Error> {
        let (group, within) = (block >> self.group_log, block & ((1 << self.group_log) - 1));
        let linear =
            (within < self.group_blocks && group < self.groups).then(|| group * self.group_blocks + within);
        match linear.filter(|linear| *linear < self.blocks) {
            Some(linear) => Ok(linear << self.block_log),
            None => {
                let what = "it lies beyond the end of the file system";
                Err(Error::Damaged { structure: "xfs block", at: block, what })
            }
        }
    }

    /// Blocks of a group; the last may have fewer.
    pub fn group_blocks(&self) -> u64 {
        self.group_blocks
    }

    /// How many groups it has.
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// Where a group starts, in bytes.
    pub fn group_offset(&self, group: u64) -> Result<u64, Error> {
        self.offset_of(group << self.group_log)
    }

    /// Where a block of a group is, in bytes.
    pub fn offset_in_group(&self, group: u64, block: u32) -> Result<u64, Error> {
        if u64::from(block) >= self.group_blocks {
            let what = "it lies beyond the end of its group";
            return Err(Error::Damaged { structure: "xfs block", at: block.into(), what });
        }
        self.offset_of(group << self.group_log | u64::from(block))
    }

    /// The number that the first inode of a group would have.
    pub fn first_inode(&self, group: u64) -> u64 {
        group << (self.group_log + self.inodes_per_block_log)
    }

    /// The number that the first inode in a block of a group has.
    pub fn inode_of_block(&self, group: u64, block: u32) -> u64 {
        self.first_inode(group) | u64::from(block) << self.inodes_per_block_log
    }

    /// Blocks of a buffer of inodes: 8 KiB of inodes of 256 bytes, as many of larger ones if chunks
    /// are aligned to that, and never less than a block.
    pub fn inode_cluster_blocks(&self) -> u64 {
        const BYTES: u64 = 8192;
        let scaled = (BYTES * (self.inode_bytes as u64 / 256)) >> self.block_log;
        match self.version5 && self.inode_alignment >= scaled {
            true => scaled.max(1),
            false => (BYTES >> self.block_log).max(1),
        }
    }

    /// Its UUID, as users see it.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The UUID in its structures.
    pub fn own_uuid(&self) -> [u8; 16] {
        self.meta_uuid.unwrap_or(self.uuid)
    }

    /// Where an inode is, in bytes. Its number is that of its block and its place in it.
    pub fn inode_offset(&self, inode: u64) -> Result<u64, Error> {
        let block = self.offset_of(inode >> self.inodes_per_block_log);
        let block = block.map_err(|_| Error::Damaged {
            structure: "xfs inode",
            at: inode,
            what: "its number is beyond the last",
        })?;
        Ok(block + (inode & ((1 << self.inodes_per_block_log) - 1)) * self.inode_bytes as u64)
    }
}

fn refusal(version: u16, incompat: u32) -> Option<Error> {
    match version & 0xf {
        5 => {}
        4 if version & VERSION_DIRV2 != 0 => return None,
        4 => return Some(Error::Unsupported { what: "XFS with directories of version 1, of IRIX" }),
        1..=3 => return Some(Error::Unsupported { what: "XFS of a version before 4, of IRIX" }),
        _ => return Some(Error::Unsupported { what: "XFS of a version after 5" }),
    }
    if let Some((_, what)) = REFUSED.into_iter().find(|(bit, _)| incompat & bit != 0) {
        return Some(Error::Unsupported { what });
    }
    let unknown = incompat & !KNOWN;
    (unknown != 0).then_some(Error::UnknownFeatures { file_system: "XFS", bits: u64::from(unknown) })
}
