//! Extended attributes: small ones within the tree, large ones in blocks of their own.
//!
//! TN1150 reserves the tree; what is in it is in Apple's `hfs_format.h`.

use crate::ATTRIBUTE_BYTES_MAX;
use crate::bytes::be32;
use crate::error::Error;
use crate::hfs::catalog::name;
use crate::hfs::fork::{HfsFork, HfsForkMap, extents};
use crate::hfs::volume::HfsVolume;

/// Types of records.
mod types {
    pub const INLINE: u32 = 0x10;
    pub const FORK: u32 = 0x20;
    pub const EXTENTS: u32 = 0x30;
}

/// The attribute that says that a file is compressed.
pub const COMPRESSION: &str = "com.apple.decmpfs";
/// Of what a catalog record has, as macOS names it.
pub const FINDER: &str = "com.apple.FinderInfo";
pub const RESOURCE: &str = "com.apple.ResourceFork";

/// Where the first block of a value's extents is, in a key.
const FIRST_AT: usize = 6;
const NAME_AT: usize = 10;

/// The names of a file's attributes.
///
/// # Errors
/// They cannot be read, or are damaged.
pub fn names(volume: &HfsVolume, number: u32) -> Result<Vec<Vec<u16>>, Error> {
    let mut names = Vec::new();
    let Some(tree) = volume.attributes()? else { return Ok(names) };
    let mut damage = None;
    tree.visit(volume, number, &mut |_, record| {
        match (be32(record.data, 0), name(record.key, NAME_AT)) {
            (Some(types::INLINE | types::FORK), Some(name)) => names.push(name),
            (Some(types::EXTENTS), Some(_)) => {}
            _ => damage = Some(damaged(number, "a record of its attributes")),
        }
        Ok(())
    })?;
    damage.map_or(Ok(names), Err)
}

/// The value of an attribute; `None` if there is none of that name.
///
/// # Errors
/// It cannot be read, is damaged, or longer than Linux hands on.
pub fn value(volume: &HfsVolume, number: u32, wanted: &[u16]) -> Result<Option<Vec<u8>>, Error> {
    let Some(tree) = volume.attributes()? else { return Ok(None) };
    let (mut inline, mut fork, mut further) = (None, None, Vec::new());
    tree.visit(volume, number, &mut |_, record| {
        if name(record.key, NAME_AT).is_none_or(|name| name != wanted) {
            return Ok(());
        }
        let cut = || damaged(number, "an attribute that is cut off");
        match be32(record.data, 0).ok_or_else(cut)? {
            types::INLINE => {
                let len = be32(record.data, 12).ok_or_else(cut)? as usize;
                inline =
                    Some(record.data.get(16..).and_then(|data| data.get(..len)).ok_or_else(cut)?.to_vec());
            }
            types::FORK => fork = Some(HfsFork::decode(record.data, 8).ok_or_else(cut)?),
            types::EXTENTS => {
                let first = be32(record.key, FIRST_AT).ok_or_else(cut)?;
                further.push((first, extents(record.data, 8).ok_or_else(cut)?));
            }
            _ => return Err(damaged(number, "an attribute of an unknown kind")),
        }
        Ok(())
    })?;
    let Some(fork) = fork else { return Ok(inline) };
    let mut map = HfsForkMap::new(number, &fork);
    for (first, extents) in further {
        map.push_all(first.into(), &extents);
    }
    whole(volume, &map).map(Some)
}

/// All of a fork that is small enough to be the value of an attribute.
///
/// # Errors
/// It is not, or cannot be read.
pub fn whole(volume: &HfsVolume, map: &HfsForkMap) -> Result<Vec<u8>, Error> {
    let len = usize::try_from(map.logical_bytes).ok().filter(|len| *len <= ATTRIBUTE_BYTES_MAX);
    let len = len.ok_or(Error::Unsupported {
        what: "an attribute or resource fork of HFS+ of more than 64 KiB, which Linux hands on as no attribute",
    })?;
    let mut bytes = vec![0; len];
    map.read(volume, 0, &mut bytes)?;
    Ok(bytes)
}

fn damaged(number: u32, what: &'static str) -> Error {
    Error::Damaged { structure: "HFS+ file", at: number.into(), what }
}
