//! `inline_data`: what fits into an inode is kept in place of its map, the rest in an extended
//! attribute behind its fields.

use crate::bytes::{le16, le32, u8_at};
use crate::error::Error;
use crate::ext::inode::Inode;

const ATTRIBUTES_MAGIC: u32 = 0xea02_0000;
const ENTRY_BYTES: usize = 16;

/// The attribute: `system.data`.
const SYSTEM: u8 = 7;
const NAME: &[u8] = b"data";

/// All that is stored; at most as long as an inode.
pub fn data(inode: &Inode) -> Result<Vec<u8>, Error> {
    let mut data = inode.map.to_vec();
    data.extend_from_slice(attribute(inode)?);
    data.truncate(usize::try_from(inode.metadata.size_bytes).unwrap_or(usize::MAX));
    Ok(data)
}

/// The entries of a directory: behind the number of its parent, and in the attribute.
pub fn entries(inode: &Inode) -> Result<[&[u8]; 2], Error> {
    Ok([&inode.map[4..], attribute(inode)?])
}

fn attribute(inode: &Inode) -> Result<&[u8], Error> {
    let attributes = &inode.bytes[inode.extra_at..];
    if le32(attributes, 0) != Some(ATTRIBUTES_MAGIC) {
        return Ok(&[]);
    }
    // Offsets of values count from the first entry.
    let attributes = &attributes[4..];
    let mut at = 0;
    find(attributes, &mut at).ok_or_else(|| inode.damaged("its attributes, where its data is, are none"))
}

/// Empty if the attributes end without it.
fn find<'a>(attributes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    while le32(attributes, *at)? != 0 {
        let name_len = usize::from(u8_at(attributes, *at)?);
        let name = attributes.get(*at + ENTRY_BYTES..)?.get(..name_len)?;
        if u8_at(attributes, *at + 1)? == SYSTEM && name == NAME {
            let (offset, size) = (le16(attributes, *at + 2)?, le32(attributes, *at + 8)?);
            return attributes.get(usize::from(offset)..)?.get(..usize::try_from(size).ok()?);
        }
        *at += (ENTRY_BYTES + name_len).next_multiple_of(4);
    }
    Some(&[])
}
