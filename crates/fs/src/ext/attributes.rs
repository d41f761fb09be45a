//! Extended attributes: some behind the fields of the inode, more in a block of their own.

use crate::bytes::{le16, le32, u8_at};
use crate::error::Error;
use crate::ext::Ext;
use crate::ext::checksum::{crc, crc_without};
use crate::ext::inode::Inode;
use crate::ext::superblock::ExtFeatures;
use crate::{ATTRIBUTE_BYTES_MAX, FsNode, acl};

const MAGIC: u32 = 0xea02_0000;
const BLOCK_HEADER_BYTES: usize = 32;
const CHECKSUM_AT: usize = 16;
const ENTRY_BYTES: usize = 16;

/// Where an inode has the number of the block of its attributes: 32 bits, and 16 more.
const BLOCK_AT: usize = 0x68;
const BLOCK_HIGH_AT: usize = 0x76;
const GENERATION_AT: usize = 0x64;

/// In place of a prefix: `system.`, of which `system.data` is data that is kept in the inode.
const SYSTEM: u8 = 7;

/// An attribute, and where its value is.
struct Entry {
    name: Vec<u8>,
    value: Value,
}

enum Value {
    Here(Vec<u8>),
    /// The data of an inode of its own.
    Inode {
        number: u32,
        len: usize,
    },
}

/// The names of all, as Linux shows them.
pub fn names(ext: &Ext, inode: &Inode) -> Result<Vec<Vec<u8>>, Error> {
    Ok(entries(ext, inode)?.into_iter().map(|entry| entry.name).collect())
}

/// The value of one, as Linux hands it on.
pub fn value(ext: &Ext, inode: &Inode, name: &[u8]) -> Result<Vec<u8>, Error> {
    let found = entries(ext, inode)?.into_iter().find(|entry| entry.name == name);
    let value = match found.ok_or(Error::NoSuchEntry)?.value {
        Value::Here(value) => value,
        Value::Inode { number, len } if len <= ATTRIBUTE_BYTES_MAX => {
            let mut value = vec![0; len];
            let holder = ext.inode(FsNode { tree: 0, inode: number.into() })?;
            if holder.metadata.size_bytes != len as u64 {
                return Err(inode.damaged("an attribute and the inode that has its value differ in size"));
            }
            ext.read_inode(&holder, &(0..len as u64), &mut |at, bytes| {
                value[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
                Ok(())
            })?;
            if !is_value_of(ext, inode, &holder, &value) {
                return Err(
                    inode.damaged("the checksum of an attribute that has an inode of its own is wrong")
                );
            }
            value
        }
        Value::Inode { .. } => return Err(inode.damaged("an attribute that is longer than it can be")),
    };
    match name.starts_with(b"system.posix_acl_") {
        true => acl::of_ext(&value).ok_or_else(|| inode.damaged("its access control list is none")),
        false => Ok(value),
    }
}

/// The block of the attributes of an inode; 0 if it has none.
pub fn block_of(inode: &Inode) -> u64 {
    let block = le32(&inode.bytes, BLOCK_AT).zip(le16(&inode.bytes, BLOCK_HIGH_AT));
    block.map_or(0, |(low, high)| u64::from(low) | u64::from(high) << 32)
}

fn entries(ext: &Ext, inode: &Inode) -> Result<Vec<Entry>, Error> {
    let mut found = Vec::new();
    let damaged = || inode.damaged("its extended attributes are none");
    let within = &inode.bytes[inode.extra_at..];
    if le32(within, 0) == Some(MAGIC) {
        collect(&within[4..], 0, &mut found).ok_or_else(damaged)?;
    }
    let block = block_of(inode);
    if block != 0 {
        let bytes = ext.block(block)?;
        if le32(&bytes, 0) != Some(MAGIC) {
            return Err(damaged());
        }
        if ext.superblock.features.ro_compat.contains(ExtFeatures::METADATA_CHECKSUMS)
            && le32(&bytes, CHECKSUM_AT) != Some(block_sum(ext, block, &bytes))
        {
            return Err(inode.damaged("the checksum of the block of its extended attributes is wrong"));
        }
        collect(&bytes, BLOCK_HEADER_BYTES, &mut found).ok_or_else(damaged)?;
    }
    Ok(found)
}

/// Whether an inode says that checksum of what it holds: it stands in place of the time of the last
/// access. Those that Lustre made have none, but their parent's number as the time of the last
/// change, and its generation.
fn is_value_of(ext: &Ext, parent: &Inode, holder: &Inode, value: &[u8]) -> bool {
    let generation = |inode: &Inode| le32(&inode.bytes, GENERATION_AT);
    let is_of_lustre = holder.metadata.modified.seconds as u32 == parent.number as u32
        && generation(holder) == generation(parent);
    is_of_lustre || holder.metadata.accessed.seconds as u32 == crc(ext.superblock.seed, value)
}

/// The checksum of a block, which is of its number too: the block is shared by inodes.
fn block_sum(ext: &Ext, block: u64, bytes: &[u8]) -> u32 {
    let seed = crc(ext.superblock.seed, &block.to_le_bytes());
    crc_without(seed, bytes, CHECKSUM_AT, 4)
}

/// Entries from `at` on, up to one that is zeros, or up to the end; values are counted from the
/// start. `None` if one ends beyond it.
fn collect(bytes: &[u8], mut at: usize, found: &mut Vec<Entry>) -> Option<()> {
    while le32(bytes, at).is_some_and(|entry| entry != 0) {
        let name_len = usize::from(u8_at(bytes, at)?);
        let name = bytes.get(at + ENTRY_BYTES..)?.get(..name_len)?;
        let index = u8_at(bytes, at + 1)?;
        let (value_at, len) = (usize::from(le16(bytes, at + 2)?), le32(bytes, at + 8)? as usize);
        let value = match le32(bytes, at + 4)? {
            0 => Value::Here(bytes.get(value_at..value_at.checked_add(len)?)?.to_vec()),
            number => Value::Inode { number, len },
        };
        if (index, name) != (SYSTEM, b"data") {
            found.push(Entry { name: [prefix(index), name].concat(), value });
        }
        at += (ENTRY_BYTES + name_len).next_multiple_of(4);
    }
    Some(())
}

fn prefix(index: u8) -> &'static [u8] {
    match index {
        1 => b"user.",
        2 => b"system.posix_acl_access",
        3 => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        SYSTEM => b"system.",
        8 => b"system.richacl",
        9 => b"encryption.",
        _ => b"unknown.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_ends_beyond_its_place_is_none() {
        let mut found = Vec::new();
        let mut entry = [0; 24];
        (entry[0], entry[1], entry[2], entry[8]) = (4, 1, 20, 2);
        entry[16..].copy_from_slice(b"nameok\0\0");
        assert_eq!(collect(&entry[..22], 0, &mut found), Some(()));
        assert_eq!(found[0].name, b"user.name");
        assert!(matches!(&found[0].value, Value::Here(value) if value == b"ok"));
        entry[8] = 5;
        assert_eq!(collect(&entry, 0, &mut found), None, "its value");
        (entry[0], entry[8]) = (9, 0);
        assert_eq!(collect(&entry, 0, &mut found), None, "its name");
    }
}
