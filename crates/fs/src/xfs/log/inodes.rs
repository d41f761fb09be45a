//! Changed inodes, and chunks of new ones.
//!
//! The log has an inode in the order of bytes of the machine that wrote it, with the fields at the
//! places that they have on disk. What follows is one fork or both, as they are on disk, but roots
//! of trees, which have the header of a block and as much space as they need.

use std::collections::BTreeMap;

use crate::bytes::{be16, be32, be64};
use crate::source::ByteSource;
use crate::xfs::checksum_is_right;
use crate::xfs::log::buffers::{Cancelled, seal_at};
use crate::xfs::log::owners;
use crate::xfs::log::ring::SECTOR_BYTES;
use crate::xfs::log::transactions::LogItem;
use crate::xfs::log::words::LogWords;
use crate::xfs::log::{LogDamage, Lsn};
use crate::xfs::superblock::Superblock;

const MAGIC: u16 = 0x494e;
const CHECKSUM_AT: usize = 100;
const LSN_AT: usize = 112;
const NUMBER_AT: usize = 152;
const FLUSHED_AT: usize = 30;
const NEXT_UNLINKED: std::ops::Range<usize> = 96..100;

/// Where the forks start, in version 2 and version 3 of inodes; and what the log has of each.
const V2_BYTES: usize = 100;
const V2_LOGGED_BYTES: usize = 96;
const V3_BYTES: usize = 176;

/// Which parts of an inode are there: forks as data, as extents, as the root of a tree.
const DATA: u32 = 0x2 | 0x4;
const DATA_ROOT: u32 = 0x8;
const DEVICE: u32 = 0x10;
const ATTRIBUTES: u32 = 0x40 | 0x80;
const ATTRIBUTES_ROOT: u32 = 0x100;
/// Blocks of its trees have another owner now.
const OWNERS: u32 = 0x200 | 0x400;

/// The formats of a fork that is extents, and that is the root of a tree.
const EXTENTS: u8 = 2;
const TREE: u8 = 3;

/// Fields of an inode that are longer than a byte, but times and counts of extents, whose width
/// depends on features: in bytes, how long, and where.
const FIELDS: [(usize, &[usize]); 3] =
    [(2, &[0, 2, 6, 20, 22, 88, 90]), (4, &[8, 12, 16, 72, 84, 92, 128]), (8, &[56, 64, 104, 112, 120, 152])];
const TIMES: [usize; 4] = [32, 40, 48, 144];
const FLAGS2_AT: usize = 120;
const BIG_TIME: u64 = 0x8;
const WIDE_COUNTS: u64 = 0x10;

/// The description of a changed inode.
struct LoggedInode {
    regions: usize,
    fields: u32,
    device: u32,
    /// The buffer that it is in, in sectors, and its place there in bytes.
    sector: u64,
    sectors: u64,
    at: u64,
}

impl LoggedInode {
    fn decode(b: &[u8], words: LogWords) -> Option<Self> {
        // Systems of 32 bits that align integers of 64 bits to four bytes have no gap.
        let shift = match b.len() {
            52 => 0,
            _ => 4,
        };
        Some(Self {
            regions: words.u16(b, 2)?.into(),
            fields: words.u32(b, 4)?,
            device: words.u32(b, 20 + shift)?,
            sector: words.u64(b, 36 + shift)?,
            sectors: words.u32(b, 44 + shift)?.into(),
            at: words.u32(b, 48 + shift)?.into(),
        })
    }
}

/// Inodes whose checksums in their places are wrong, by place: whether the log had their data's
/// fork since, and that of the attributes. Linux makes the checksum right with the first change,
/// whatever it is of; but what is not of the log is damaged, and no file.
#[derive(Debug, Default)]
pub struct DamagedInodes(BTreeMap<u64, [bool; 2]>);

/// Applies a changed inode. Its place comes back if blocks of its trees have another owner now: the
/// roots that it has in the end lead to these, since what follows may change them.
///
/// # Errors
/// Its place cannot be read or has no inode, or the item says what none can be.
pub fn apply(
    source: &mut ByteSource,
    superblock: &Superblock,
    (cancelled, damaged): (&Cancelled, &mut DamagedInodes),
    item: &LogItem,
    (lsn, words): (Lsn, LogWords),
) -> Result<Option<u64>, LogDamage> {
    let none = "the description of a changed inode in it is none";
    let logged = item.region(0).and_then(|format| LoggedInode::decode(format, words)).ok_or(none)?;
    if cancelled.has(logged.sector, logged.sectors) {
        return Ok(None);
    }
    let offset = logged.sector.checked_mul(SECTOR_BYTES).and_then(|at| at.checked_add(logged.at));
    let bytes = offset.and_then(|offset| source.bytes(offset, superblock.inode_bytes).ok());
    let (mut bytes, offset) = bytes.zip(offset).ok_or("the place of a changed inode cannot be read")?;
    if be16(&bytes, 0) != Some(MAGIC) {
        return Err("where a changed inode belongs is none");
    }
    let core = item.region(1).ok_or(none)?;
    let owns = (logged.fields & OWNERS != 0).then_some(offset);
    if is_newer(&bytes, core, superblock.version5, lsn, words) {
        return Ok(owns);
    }
    let was_right = !superblock.version5 || checksum_is_right(&bytes, CHECKSUM_AT);
    change(&mut bytes, &logged, item, words, superblock.version5)
        .ok_or("a changed inode in it is not whole")?;
    if superblock.version5 {
        bytes[LSN_AT..LSN_AT + 8].copy_from_slice(&lsn.0.to_be_bytes());
        if was_right || damaged.is_mended(offset, &bytes, logged.fields) {
            seal_at(&mut bytes, CHECKSUM_AT);
        }
    }
    source.overlay(offset, &bytes)?;
    Ok(owns)
}

impl DamagedInodes {
    /// Whether all of an inode that was damaged in its place is of the log, after a change of these
    /// fields.
    fn is_mended(&mut self, offset: u64, inode: &[u8], fields: u32) -> bool {
        let parts = [DATA | DATA_ROOT | DEVICE, ATTRIBUTES | ATTRIBUTES_ROOT];
        let mended = self.0.entry(offset).or_default();
        for (mended, (parts, is_empty)) in mended.iter_mut().zip(parts.into_iter().zip(empty_forks(inode))) {
            *mended |= is_empty || fields & parts != 0;
        }
        let whole = *mended == [true; 2];
        if whole {
            self.0.remove(&offset);
        }
        whole
    }
}

/// Whether the forks of an inode of version 3, of data and of attributes, have nothing that an
/// inode stores: none, or no extents.
fn empty_forks(inode: &[u8]) -> [bool; 2] {
    let wide = be64(inode, FLAGS2_AT).is_some_and(|flags| flags & WIDE_COUNTS != 0);
    let [data, attributes] = match wide {
        true => [be64(inode, 24), be32(inode, 76).map(u64::from)],
        false => [be32(inode, 76).map(u64::from), be16(inode, 80).map(u64::from)],
    };
    let is_empty =
        |format_at: usize, extents: Option<u64>| inode.get(format_at) == Some(&EXTENTS) && extents == Some(0);
    // Without permissions and a type it is free.
    let is_free = be16(inode, 2) == Some(0);
    let no_attributes = inode.get(82) == Some(&0);
    [is_free || is_empty(5, data), is_free || no_attributes || is_empty(83, attributes)]
}

/// Makes the inode there, if it is in use, the owner of what is below the roots that it has.
///
/// # Errors
/// One of its trees cannot be read, or is damaged.
pub fn own_trees(source: &mut ByteSource, superblock: &Superblock, offset: u64) -> Result<(), LogDamage> {
    let none = "a file whose extents were exchanged is damaged";
    let inode = source.bytes(offset, superblock.inode_bytes).map_err(|_| none)?;
    let (number, mode) = be64(&inode, NUMBER_AT).zip(be16(&inode, 2)).ok_or(none)?;
    let attributes_at = attributes_at(&inode, V3_BYTES).ok_or(none)?;
    let forks = [(5, V3_BYTES..attributes_at), (83, attributes_at..inode.len())];
    for (format_at, fork) in forks {
        if mode != 0 && inode.get(format_at) == Some(&TREE) {
            owners::change(source, superblock, &inode[fork], number)?;
        }
    }
    Ok(())
}

/// Where the attributes' fork starts, which is the end if there is none; `None` if beyond that.
fn attributes_at(inode: &[u8], fork_at: usize) -> Option<usize> {
    let at = match usize::from(*inode.get(82)?) {
        0 => inode.len(),
        offset => fork_at + offset * 8,
    };
    (at <= inode.len()).then_some(at)
}

/// Whether the inode in its place is newer than the one in the log.
fn is_newer(bytes: &[u8], core: &[u8], version5: bool, lsn: Lsn, words: LogWords) -> bool {
    if version5 {
        return be64(bytes, LSN_AT).is_some_and(|own| own != u64::MAX && Lsn(own) > lsn);
    }
    // How often it was written to its place, which starts anew behind the largest number.
    let (Some(own), Some(new)) = (be16(bytes, FLUSHED_AT), words.u16(core, FLUSHED_AT)) else {
        return false;
    };
    new < own && !(own == u16::MAX && new < u16::MAX >> 1)
}

/// `None` if it does not fit.
fn change(
    bytes: &mut [u8],
    logged: &LoggedInode,
    item: &LogItem,
    words: LogWords,
    version5: bool,
) -> Option<()> {
    core(bytes, item.region(1)?, words, version5)?;
    let fork_at = if version5 { V3_BYTES } else { V2_BYTES };
    let attributes_at = attributes_at(bytes, fork_at)?;
    let header = if version5 { 72 } else { 24 };
    if logged.fields & DEVICE != 0 {
        bytes.get_mut(fork_at..fork_at + 4)?.copy_from_slice(&logged.device.to_be_bytes());
    }
    let mut region = 2;
    let forks = [
        (DATA, DATA_ROOT, fork_at, attributes_at),
        (ATTRIBUTES, ATTRIBUTES_ROOT, attributes_at, bytes.len()),
    ];
    for (plain, root, start, end) in forks {
        if logged.fields & (plain | root) == 0 {
            continue;
        }
        // Nothing is left of what the fork had.
        if region >= logged.regions {
            break;
        }
        let (new, place) = (item.region(region)?, bytes.get_mut(start..end)?);
        region += 1;
        match logged.fields & root != 0 {
            true => tree_root(new, header, place)?,
            false => place.get_mut(..new.len())?.copy_from_slice(new),
        }
    }
    Some(())
}

/// The part of an inode before its forks.
fn core(bytes: &mut [u8], logged: &[u8], words: LogWords, version5: bool) -> Option<()> {
    let len = if version5 { V3_BYTES } else { V2_LOGGED_BYTES };
    let mut new = logged.get(..len)?.to_vec();
    if words.u16(&new, 0) != Some(MAGIC) {
        return None;
    }
    if words == LogWords::Little {
        let flags2 = if version5 { words.u64(&new, FLAGS2_AT)? } else { 0 };
        let mut turn = |at: usize, width: usize| {
            if let Some(field) = new.get_mut(at..at + width) {
                field.reverse();
            }
        };
        FIELDS.iter().for_each(|(width, places)| places.iter().for_each(|&at| turn(at, *width)));
        for at in TIMES {
            match flags2 & BIG_TIME {
                0 => (at..at + 8).step_by(4).for_each(|at| turn(at, 4)),
                _ => turn(at, 8),
            }
        }
        match flags2 & WIDE_COUNTS {
            0 => [(30, 2), (76, 4), (80, 2)].iter().for_each(|&(at, width)| turn(at, width)),
            _ => [(24, 8), (76, 4), (80, 2)].iter().for_each(|&(at, width)| turn(at, width)),
        }
    }
    // The list of unlinked inodes is logged with the buffer.
    let next = bytes.get(NEXT_UNLINKED)?.to_vec();
    bytes.get_mut(..len)?.copy_from_slice(&new);
    bytes.get_mut(NEXT_UNLINKED)?.copy_from_slice(&next);
    Some(())
}

/// The root of a tree: a block's header, keys, and pointers behind as many keys as the region has
/// space for; in the inode level and number, keys, and pointers behind as many as that has space
/// for.
fn tree_root(new: &[u8], header: usize, place: &mut [u8]) -> Option<()> {
    let (level, records) = (new.get(4..6)?, usize::from(be16(new, 6)?));
    let (here, there) = (new.len().checked_sub(header)? / 16, place.len().checked_sub(4)? / 16);
    if records > here || records > there {
        return None;
    }
    let keys = new.get(header..header + records * 8)?;
    let pointers_at = header + here * 8;
    let pointers = new.get(pointers_at..pointers_at + records * 8)?;
    place[..2].copy_from_slice(level);
    place[2..4].copy_from_slice(&(records as u16).to_be_bytes());
    place.get_mut(4..4 + records * 8)?.copy_from_slice(keys);
    place.get_mut(4 + there * 8..4 + (there + records) * 8)?.copy_from_slice(pointers);
    Some(())
}

/// Makes a chunk of new inodes, all of them free.
///
/// # Errors
/// The item says what none can be, or its place lies beyond the end.
pub fn create(
    source: &mut ByteSource,
    superblock: &Superblock,
    cancelled: &Cancelled,
    item: &LogItem,
) -> Result<(), LogDamage> {
    let none = "the description of new inodes in it is none";
    let field = |at| item.region(0).and_then(|format| be32(format, at)).ok_or(none);
    let (group, block, count, inode_bytes) = (field(4)?, field(8)?, field(12)?, field(16)?);
    let (blocks, generation) = (field(20)?, field(24)?);
    let block_bytes = superblock.block_bytes as u64;
    let is_chunk = inode_bytes as usize == superblock.inode_bytes
        && (1..=64).contains(&count)
        && u64::from(count) * u64::from(inode_bytes) == u64::from(blocks) * block_bytes;
    if !is_chunk {
        return Err(none);
    }
    let offset = superblock.offset_in_group(group.into(), block).map_err(|_| none)?;
    let cluster = superblock.inode_cluster_blocks();
    for first in (0..u64::from(blocks)).step_by(cluster as usize) {
        let sector = (offset + first * block_bytes) / SECTOR_BYTES;
        if cancelled.has(sector, cluster * block_bytes / SECTOR_BYTES) {
            return Ok(());
        }
    }
    let first = superblock.inode_of_block(group.into(), block);
    for ix in 0..u64::from(count) {
        let mut bytes = vec![0; superblock.inode_bytes];
        bytes[..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4] = if superblock.version5 { 3 } else { 2 };
        bytes[92..96].copy_from_slice(&generation.to_be_bytes());
        bytes[NEXT_UNLINKED].fill(0xff);
        if superblock.version5 {
            bytes[152..160].copy_from_slice(&(first + ix).to_be_bytes());
            bytes[160..176].copy_from_slice(&superblock.own_uuid());
            seal_at(&mut bytes, CHECKSUM_AT);
        }
        source.overlay(offset + ix * u64::from(inode_bytes), &bytes)?;
    }
    Ok(())
}
