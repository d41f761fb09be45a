//! Records of the catalog: folders, files, and threads, which lead from a number to a name.
//!
//! TN1150, "Catalog File".

use crate::FileTime;
use crate::bytes::{be16, be32, u8_at};
use crate::hfs::fork::HfsFork;
use crate::hfs::node::HfsRecord;

/// Types of records.
mod types {
    pub const FOLDER: u16 = 1;
    pub const FILE: u16 = 2;
    pub const FOLDER_THREAD: u16 = 3;
    pub const FILE_THREAD: u16 = 4;
}

/// Bytes of the Finder's information.
pub const FINDER_BYTES: usize = 32;

const DATA_FORK_AT: usize = 88;
const RESOURCE_FORK_AT: usize = 168;

/// A folder or a file.
#[derive(Debug, Clone)]
pub struct HfsItem {
    /// Its number.
    pub number: u32,
    pub is_folder: bool,
    pub flags: u16,
    /// Of a folder, how many items are in it.
    pub valence: u32,
    pub created: u32,
    pub modified: u32,
    pub changed: u32,
    pub accessed: u32,
    pub uid: u32,
    pub gid: u32,
    /// Flags that its owner can change.
    pub owner_flags: u8,
    /// Its `st_mode`; 0 if nothing ever gave it one.
    pub mode: u16,
    /// Of a device its number, of a link what it leads to, of what links lead to how many.
    pub special: u32,
    pub finder: [u8; FINDER_BYTES],
    pub data: HfsFork,
    pub resource: HfsFork,
}

/// What a record says.
pub enum CatalogEntry {
    Item(Box<HfsItem>),
    /// In which folder the item of this number is.
    Thread {
        parent: u32,
        name: Vec<u16>,
    },
}

impl HfsItem {
    /// What kind of file the Finder takes it for, and of which program.
    pub fn finder_type(&self) -> (&[u8], &[u8]) {
        (&self.finder[..4], &self.finder[4..8])
    }

    fn decode(bytes: &[u8], is_folder: bool) -> Option<Self> {
        let fork = |at| match is_folder {
            true => Some(HfsFork::default()),
            false => HfsFork::decode(bytes, at),
        };
        let mut finder = [0; FINDER_BYTES];
        finder.copy_from_slice(bytes.get(48..48 + FINDER_BYTES)?);
        Some(Self {
            number: be32(bytes, 8)?,
            is_folder,
            flags: be16(bytes, 2)?,
            valence: if is_folder { be32(bytes, 4)? } else { 0 },
            created: be32(bytes, 12)?,
            modified: be32(bytes, 16)?,
            changed: be32(bytes, 20)?,
            accessed: be32(bytes, 24)?,
            uid: be32(bytes, 32)?,
            gid: be32(bytes, 36)?,
            owner_flags: u8_at(bytes, 41)?,
            mode: be16(bytes, 42)?,
            special: be32(bytes, 44)?,
            finder,
            data: fork(DATA_FORK_AT)?,
            resource: fork(RESOURCE_FORK_AT)?,
        })
    }
}

/// Decodes what a record of the catalog says.
pub fn decode(data: &[u8]) -> Option<CatalogEntry> {
    match be16(data, 0)? {
        types::FOLDER => Some(CatalogEntry::Item(Box::new(HfsItem::decode(data, true)?))),
        types::FILE => Some(CatalogEntry::Item(Box::new(HfsItem::decode(data, false)?))),
        types::FOLDER_THREAD | types::FILE_THREAD => {
            Some(CatalogEntry::Thread { parent: be32(data, 4)?, name: name(data, 8)? })
        }
        _ => None,
    }
}

/// The name in a key.
pub fn name_of(record: HfsRecord<'_>) -> Option<Vec<u16>> {
    name(record.key, 4)
}

/// A name: its length, and so many units.
pub fn name(bytes: &[u8], at: usize) -> Option<Vec<u16>> {
    let len = usize::from(be16(bytes, at)?);
    let units = bytes.get(at + 2..at + 2 + 2 * len)?;
    Some(units.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect())
}

/// Seconds since 1904, in UTC. What was never set is 0.
pub fn time(stamp: u32) -> FileTime {
    const TO_1970_SECONDS: i64 = 2_082_844_800;
    match stamp {
        0 => FileTime::default(),
        _ => FileTime::new(i64::from(stamp) - TO_1970_SECONDS, 0),
    }
}
