//! Directories: blocks full of entries. The hash trees of large ones look like empty entries here,
//! and are passed over.

use crate::bytes::{le16, le32, u8_at};
use crate::error::Error;
use crate::ext::checksum::crc;
use crate::ext::inode::{Inode, InodeFlags};
use crate::ext::superblock::ExtFeatures;
use crate::ext::{Ext, inline};
use crate::{DirEntry, EachEntry, FsNode};

/// Of an entry, before its name.
const HEADER_BYTES: usize = 8;

/// The last entry of a block with a checksum: no inode, no name, this type.
const TAIL_BYTES: usize = 12;
const TAIL_TYPE: u8 = 0xde;

/// Calls `each` for every entry but `.` and `..`.
pub fn list(ext: &Ext, inode: &Inode, each: &mut EachEntry<'_>) -> Result<(), Error> {
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        return inline::entries(inode)?.iter().try_for_each(|bytes| entries(ext, inode, bytes, each));
    }
    let block_bytes = ext.superblock.block_bytes as u64;
    let end = inode.metadata.size_bytes.next_multiple_of(block_bytes);
    let (mut range, mut damage) = (0..end, None);
    loop {
        let listed = ext.runs(inode, &range, &mut |run| {
            let first = run.disk_offset / block_bytes;
            for block in first..first + run.len / block_bytes {
                let block = ext.block(block)?;
                check(ext, inode, &block)?;
                entries(ext, inode, &block, each)?;
            }
            Ok(())
        });
        match listed {
            // What lies behind a part of the map that is damaged is listed all the same.
            Err(Error::MapPart { to, why }) if range.start < to && to < end => {
                range.start = to;
                damage.get_or_insert(why);
            }
            listed => return damage.map_or(listed, |why| Err(*why)),
        }
    }
}

/// Leaves end in an entry with their checksum. The nodes of hash trees, which have no entries
/// behind it, have theirs elsewhere, and perhaps what is left of such a tail: what counts is that
/// the entries lead to it.
fn check(ext: &Ext, inode: &Inode, block: &[u8]) -> Result<(), Error> {
    if !ext.superblock.features.ro_compat.contains(ExtFeatures::METADATA_CHECKSUMS) {
        return Ok(());
    }
    let (bytes, tail) = block.split_at(block.len() - TAIL_BYTES);
    let mut at = 0;
    while at < bytes.len() {
        match entry_len(block, at) {
            Some(len) if len >= HEADER_BYTES => at += len,
            _ => break,
        }
    }
    let is_tail = le32(tail, 4) == Some(TAIL_BYTES as u32 | u32::from(TAIL_TYPE) << 24);
    if at == bytes.len() && is_tail && le32(tail, 8) != Some(crc(inode.seed, bytes)) {
        return Err(inode.damaged("the checksum of a block of the directory is wrong"));
    }
    Ok(())
}

/// Blocks of 64 KiB do not fit into the field.
fn entry_len(bytes: &[u8], at: usize) -> Option<usize> {
    match le16(bytes, at + 4)? {
        0 | 0xffff if bytes.len() - at == 64 << 10 => Some(64 << 10),
        len => Some(usize::from(len)),
    }
}

fn entries(ext: &Ext, inode: &Inode, mut bytes: &[u8], each: &mut EachEntry<'_>) -> Result<(), Error> {
    let damaged = || inode.damaged("an entry of the directory is none");
    // What is left at the end of inline entries may be too short for one.
    while bytes.len() >= HEADER_BYTES {
        let number = le32(bytes, 0).ok_or_else(damaged)?;
        let len = entry_len(bytes, 0).ok_or_else(damaged)?;
        let name_len = match ext.superblock.features.incompat.contains(ExtFeatures::FILETYPE) {
            true => u8_at(bytes, 6).map(usize::from),
            false => le16(bytes, 6).map(usize::from),
        };
        let name_len = name_len.ok_or_else(damaged)?;
        let (entry, rest) =
            bytes.split_at_checked(len).filter(|_| len >= HEADER_BYTES).ok_or_else(damaged)?;
        bytes = rest;
        if number == 0 {
            continue;
        }
        let name = entry.get(HEADER_BYTES..HEADER_BYTES + name_len).filter(|name| !name.is_empty());
        let name = name.ok_or_else(damaged)?;
        if name != b"." && name != b".." {
            each(DirEntry { name: name.to_vec(), node: FsNode { tree: 0, inode: u64::from(number) } })?;
        }
    }
    Ok(())
}
