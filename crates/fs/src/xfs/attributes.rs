//! Extended attributes: in the inode, or in leaves of a tree that lies in the attributes'
//! fork. Leaves lead to one another.

use std::collections::BTreeSet;

use crate::bytes::{be16, be32, be64, u8_at};
use crate::error::Error;
use crate::xfs::fork::{self, Extent};
use crate::xfs::inode::{Format, Inode};
use crate::xfs::{Xfs, checksum_is_right};
use crate::{ATTRIBUTE_BYTES_MAX, acl};

const LEAF_V4: u16 = 0xfbee;
const LEAF_V5: u16 = 0x3bee;
const NODE_V4: u16 = 0xfebe;
const NODE_V5: u16 = 0x3ebe;
const LEAF_HEADER_V4_BYTES: usize = 32;
const LEAF_HEADER_V5_BYTES: usize = 80;
const NODE_HEADER_V4_BYTES: usize = 16;
const NODE_HEADER_V5_BYTES: usize = 64;
const ENTRY_BYTES: usize = 8;

/// Where version 5 has the checksum of a node or leaf, and of a block of a value, and the inode
/// that a node or leaf belongs to.
const CHECKSUM_AT: usize = 12;
const OWNER_AT: usize = 48;

/// The value is beside the name.
const LOCAL: u8 = 0x01;
const TRUSTED: u8 = 0x02;
const SECURE: u8 = 0x04;
/// The directory that a file is in, which is no attribute that programs see.
const PARENT: u8 = 0x08;
/// It was being made, and is not there.
const INCOMPLETE: u8 = 0x80;

/// Names of one file take at most that much: Linux lists 64 KiB of them.
const NAMES_BYTES_MAX: usize = 1 << 20;

/// An attribute, and where its value is.
struct Entry {
    name: Vec<u8>,
    value: Value,
}

enum Value {
    Here(Vec<u8>),
    /// From that block of the fork on.
    Blocks {
        first: u32,
        len: usize,
    },
}

/// The names of all, as Linux shows them.
pub fn names(xfs: &Xfs, inode: &Inode) -> Result<Vec<Vec<u8>>, Error> {
    Ok(entries(xfs, inode)?.0.into_iter().map(|entry| entry.name).collect())
}

/// The value of one, as Linux hands it on.
pub fn value(xfs: &Xfs, inode: &Inode, name: &[u8]) -> Result<Vec<u8>, Error> {
    let (found, extents) = entries(xfs, inode)?;
    let found = found.into_iter().find(|entry| entry.name == name);
    let value = match found.ok_or(Error::NoSuchEntry)?.value {
        Value::Here(value) => value,
        Value::Blocks { first, len } if len <= ATTRIBUTE_BYTES_MAX => {
            remote(xfs, inode, &extents, first, len)?
        }
        Value::Blocks { .. } => return Err(inode.damaged("an attribute that is longer than it can be")),
    };
    match name.starts_with(b"system.posix_acl_") {
        true => acl::of_xfs(&value).ok_or_else(|| inode.damaged("its access control list is none")),
        false => Ok(value),
    }
}

/// A value in blocks of its own: of version 5 each has a header.
fn remote(xfs: &Xfs, inode: &Inode, extents: &[Extent], first: u32, len: usize) -> Result<Vec<u8>, Error> {
    const MAGIC: u32 = 0x5841_524d;
    const HEADER_BYTES: usize = 56;
    const OFFSET_AT: usize = 4;
    const LEN_AT: usize = 8;
    const VALUE_OWNER_AT: usize = 32;
    let damaged = || inode.damaged("the value of an attribute is not where it is to be");
    let mut value = Vec::with_capacity(len);
    let mut block = first;
    while value.len() < len {
        let bytes = read(xfs, extents, block).ok_or_else(damaged)??;
        let header = if xfs.superblock.version5 { HEADER_BYTES } else { 0 };
        let part = bytes.get(header..).ok_or_else(damaged)?;
        let part = &part[..part.len().min(len - value.len())];
        let is_it = || {
            be32(&bytes, 0) == Some(MAGIC)
                && checksum_is_right(&bytes, CHECKSUM_AT)
                && be64(&bytes, VALUE_OWNER_AT) == Some(inode.number)
                && be32(&bytes, OFFSET_AT) == Some(value.len() as u32)
                && be32(&bytes, LEN_AT) == Some(part.len() as u32)
        };
        if header > 0 && !is_it() {
            return Err(damaged());
        }
        value.extend(part);
        block = block.checked_add(1).ok_or_else(damaged)?;
    }
    Ok(value)
}

/// All of them, and where their fork lies.
fn entries(xfs: &Xfs, inode: &Inode) -> Result<(Vec<Entry>, Vec<Extent>), Error> {
    let Some(fork) = inode.attribute_fork() else { return Ok((Vec::new(), Vec::new())) };
    let mut names = Vec::new();
    let mut extents: Vec<Extent> = Vec::new();
    let damaged = || inode.damaged("its extended attributes are none");
    match fork.format {
        Format::Device => {}
        Format::Local => short(fork.bytes, &mut names).ok_or_else(damaged)?,
        Format::Extents | Format::Btree => {
            fork::extents(xfs, inode, fork, &(0..u64::MAX), &mut |extent| {
                extents.push(*extent);
                Ok(())
            })?;
            if !extents.is_empty() {
                leaves(xfs, inode, &extents, &mut names)?;
            }
        }
    }
    Ok((names, extents))
}

fn short(fork: &[u8], names: &mut Vec<Entry>) -> Option<()> {
    let count = u8_at(fork, 2)?;
    let mut at = 4;
    for _ in 0..count {
        let (name_len, value_len) = (usize::from(u8_at(fork, at)?), usize::from(u8_at(fork, at + 1)?));
        let (name, behind) = (fork.get(at + 3..)?.get(..name_len)?, fork.get(at + 3 + name_len..)?);
        add(u8_at(fork, at + 2)?, name, Value::Here(behind.get(..value_len)?.to_vec()), names);
        at += 3 + name_len + value_len;
    }
    Some(())
}

/// Down to the first leaf, and from there to the last. Each has a block of its own.
fn leaves(xfs: &Xfs, inode: &Inode, extents: &[Extent], names: &mut Vec<Entry>) -> Result<(), Error> {
    let damaged = || inode.damaged("its extended attributes are none");
    let version5 = xfs.superblock.version5;
    let (mut block, mut seen) = (0, BTreeSet::new());
    // A block that comes a second time leads in a circle.
    while seen.insert(block) {
        let bytes = read(xfs, extents, block).ok_or_else(damaged)??;
        let header = match (version5, be16(&bytes, 8).ok_or_else(damaged)?) {
            (false, NODE_V4) => Err(NODE_HEADER_V4_BYTES),
            (true, NODE_V5) => Err(NODE_HEADER_V5_BYTES),
            (false, LEAF_V4) => Ok(LEAF_HEADER_V4_BYTES),
            (true, LEAF_V5) => Ok(LEAF_HEADER_V5_BYTES),
            _ => return Err(damaged()),
        };
        if version5
            && (!checksum_is_right(&bytes, CHECKSUM_AT) || be64(&bytes, OWNER_AT) != Some(inode.number))
        {
            return Err(inode.damaged("the checksum or owner of a block of its extended attributes is wrong"));
        }
        match header {
            Err(node) => block = be32(&bytes, node + 4).ok_or_else(damaged)?,
            Ok(header) => {
                leaf(&bytes, header, names).ok_or_else(damaged)?;
                // More than one file has.
                if names.iter().map(|entry| entry.name.len()).sum::<usize>() > NAMES_BYTES_MAX {
                    return Err(damaged());
                }
                block = be32(&bytes, 0).ok_or_else(damaged)?;
            }
        }
        if block == 0 {
            return Ok(());
        }
    }
    Err(damaged())
}

/// A block of the fork; `None` if there is none of that number.
fn read(xfs: &Xfs, extents: &[Extent], block: u32) -> Option<Result<Vec<u8>, Error>> {
    let block = u64::from(block);
    let extent =
        extents.iter().find(|extent| (extent.first..extent.first + extent.blocks).contains(&block))?;
    let offset = xfs.superblock.offset_of(extent.start + (block - extent.first));
    Some(offset.and_then(|offset| xfs.source.bytes(offset, xfs.superblock.block_bytes)))
}

/// `None` if it is not what it says.
fn leaf(bytes: &[u8], header: usize, names: &mut Vec<Entry>) -> Option<()> {
    let count = usize::from(be16(bytes, if header == LEAF_HEADER_V4_BYTES { 12 } else { 56 })?);
    for ix in 0..count {
        let entry = header + ix * ENTRY_BYTES;
        let (at, flags) = (usize::from(be16(bytes, entry + 4)?), u8_at(bytes, entry + 6)?);
        // Before a name are the lengths, and where the value is if it is elsewhere.
        let len_at = at + if flags & LOCAL != 0 { 2 } else { 8 };
        let name_len = usize::from(u8_at(bytes, len_at)?);
        let name_end = len_at + 1 + name_len;
        let value = match flags & LOCAL != 0 {
            true => {
                let len = usize::from(be16(bytes, at)?);
                Value::Here(bytes.get(name_end..name_end + len)?.to_vec())
            }
            false => Value::Blocks { first: be32(bytes, at)?, len: be32(bytes, at + 4)? as usize },
        };
        add(flags, bytes.get(len_at + 1..name_end)?, value, names);
    }
    Some(())
}

fn add(flags: u8, name: &[u8], value: Value, names: &mut Vec<Entry>) {
    if flags & (PARENT | INCOMPLETE) != 0 {
        return;
    }
    let name = match (flags & TRUSTED != 0, flags & SECURE != 0, name) {
        (true, _, b"SGI_ACL_FILE") => b"system.posix_acl_access".to_vec(),
        (true, _, b"SGI_ACL_DEFAULT") => b"system.posix_acl_default".to_vec(),
        (true, ..) => [b"trusted.", name].concat(),
        (_, true, _) => [b"security.", name].concat(),
        _ => [b"user.", name].concat(),
    };
    names.push(Entry { name, value });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_list_that_ends_too_soon_is_none() {
        let mut names = Vec::new();
        let list = [0, 0, 2, 0, 1, 1, 0, b'a', b'v', 1, 0, 0x04, b'b'];
        assert_eq!(short(&list, &mut names), Some(()));
        assert_eq!(
            names.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(),
            [&b"user.a"[..], b"security.b"]
        );
        assert!(matches!(&names[0].value, Value::Here(value) if value == b"v"));
        assert_eq!(short(&list[..12], &mut names), None);
    }
}
