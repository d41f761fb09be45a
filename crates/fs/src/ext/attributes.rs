//! Names of extended attributes: some behind the fields of the inode, more in a block of their own.

use crate::bytes::{le16, le32, u8_at};
use crate::error::Error;
use crate::ext::Ext;
use crate::ext::inode::Inode;

const MAGIC: u32 = 0xea02_0000;
const BLOCK_HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;

/// Where an inode has the number of the block of its attributes: 32 bits, and 16 more.
const BLOCK_AT: usize = 0x68;
const BLOCK_HIGH_AT: usize = 0x76;

/// In place of a prefix: `system.`, of which `system.data` is data that is kept in the inode.
const SYSTEM: u8 = 7;

/// The names of all, as Linux shows them.
pub fn names(ext: &Ext, inode: &Inode) -> Result<Vec<Vec<u8>>, Error> {
    let mut names = Vec::new();
    let damaged = || inode.damaged("its extended attributes are none");
    let within = &inode.bytes[inode.extra_at..];
    if le32(within, 0) == Some(MAGIC) {
        collect(&within[4..], &mut names).ok_or_else(damaged)?;
    }
    let block = le32(&inode.bytes, BLOCK_AT).zip(le16(&inode.bytes, BLOCK_HIGH_AT));
    let block = block.map_or(0, |(low, high)| u64::from(low) | u64::from(high) << 32);
    if block != 0 {
        let bytes = ext.block(block)?;
        if le32(&bytes, 0) != Some(MAGIC) {
            return Err(damaged());
        }
        collect(&bytes[BLOCK_HEADER_BYTES..], &mut names).ok_or_else(damaged)?;
    }
    Ok(names)
}

/// Entries up to one that is zeros, or up to the end; `None` if one ends beyond it.
fn collect(entries: &[u8], names: &mut Vec<Vec<u8>>) -> Option<()> {
    let mut at = 0;
    while le32(entries, at).is_some_and(|entry| entry != 0) {
        let name_len = usize::from(u8_at(entries, at)?);
        let name = entries.get(at + ENTRY_BYTES..)?.get(..name_len)?;
        let index = u8_at(entries, at + 1)?;
        if (index, name) != (SYSTEM, b"data") {
            names.push([prefix(index), name].concat());
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
        let mut names = Vec::new();
        let mut entry = [0; 20];
        (entry[0], entry[1]) = (4, 1);
        entry[16..].copy_from_slice(b"name");
        assert_eq!(collect(&entry, &mut names), Some(()));
        assert_eq!(names, [b"user.name"]);
        entry[0] = 5;
        assert_eq!(collect(&entry, &mut names), None);
    }
}
