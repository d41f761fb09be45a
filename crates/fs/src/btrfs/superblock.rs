//! The superblock, of which each device has up to three copies: the newest that is whole counts.

use crate::btrfs::checksum::{BYTES_MAX, Checksum};
use crate::btrfs::tree::TreeRoot;
use crate::bytes::{label, le16, le32, le64, u8_at, uuid_at};
use crate::error::Error;
use crate::source::ByteSource;
use crate::usage::FileSystemUsage;

const OFFSETS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"_BHRfS_M";
const MAGIC_AT: usize = 64;
const CHUNKS_AT: usize = 811;
const CHUNKS_BYTES_MAX: usize = 2048;

/// Mixed backrefs, default subvolume, mixed groups, lzo, zstd, big metadata, extended irefs, RAID 5
/// and 6, skinny metadata, no holes, metadata UUID, RAID 1 with 3 and 4 copies, simple quota.
const KNOWN: u64 = 0x1_0fff;
/// Known, and laid out otherwise.
const REFUSED: [(u64, &str); 3] = [
    (0x1000, "btrfs on zones (zoned)"),
    (0x2000, "btrfs with extent trees of version 2"),
    (0x4000, "btrfs with a tree of stripes (raid-stripe-tree)"),
];

/// The identifier in the headers of tree blocks is another one than the file system's.
const METADATA_UUID: u64 = 0x400;

/// Flags: the device is a seed; the identifier is being changed in every block.
const SEEDING: u64 = 1 << 32;
const CHANGING_UUID: u64 = 1 << 35;

/// What a file system on zones has in place of a superblock that is written over: a log of them,
/// from the start of the first zone on.
const ZONED_OFFSET: u64 = 0;

/// What is needed of the superblock, checked.
#[derive(Debug, Clone)]
pub struct Superblock {
    pub checksum: Checksum,
    pub sector_bytes: usize,
    pub node_bytes: usize,
    pub root_tree: TreeRoot,
    pub chunk_tree: TreeRoot,
    /// The directory in the tree of trees that has the entry of the default subvolume.
    pub root_directory: u64,
    /// The device that it is on.
    pub device: DeviceItem,
    /// How many devices the file system has, by its own account.
    pub devices: u64,
    /// Chunks that are needed to read the chunk tree: keys and items.
    pub chunks: Vec<u8>,
    /// Changes since the last transaction that were flushed one by one.
    pub log_tree: Option<TreeRoot>,
    /// Why it is not the first copy, if it is not.
    pub copied: Option<&'static str>,
    /// The transaction that it was written with.
    pub generation: u64,
    pub size_bytes: u64,
    used_bytes: u64,
    pub label: Vec<u8>,
    /// The file system's.
    pub uuid: [u8; 16],
    /// The one in the headers of tree blocks, and in what is said of devices.
    pub metadata_uuid: [u8; 16],
    /// It is a seed: read only, and part of another file system once devices were added to it.
    pub is_seed: bool,
}

/// What the file system says of one of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceItem {
    pub id: u64,
    pub size_bytes: u64,
    pub uuid: [u8; 16],
}

impl DeviceItem {
    /// Bytes of one.
    const BYTES: usize = 98;

    /// As the chunk tree and superblocks have it.
    pub fn decode(item: &[u8]) -> Option<Self> {
        let item = item.get(..Self::BYTES)?;
        Some(Self { id: le64(item, 0)?, size_bytes: le64(item, 8)?, uuid: uuid_at(item, 66)? })
    }
}

/// Where the first copy is.
pub fn place() -> std::ops::Range<usize> {
    OFFSETS[0] as usize..OFFSETS[0] as usize + BYTES
}

/// Whether the signature is there, at any of its places.
pub fn is_here(source: &ByteSource) -> Result<bool, Error> {
    Ok(has_first(source) || offsets(source).any(|offset| has_magic(source, offset)))
}

/// Whether the signature is at the place of the first superblock, or of the log of them on zones.
pub fn has_first(source: &ByteSource) -> bool {
    has_magic(source, OFFSETS[0]) || has_magic(source, ZONED_OFFSET)
}

/// One that cannot be read has none: it may have copies.
fn has_magic(source: &ByteSource, offset: u64) -> bool {
    source.bytes(offset, BYTES).is_ok_and(|bytes| is_magic(&bytes))
}

fn is_magic(bytes: &[u8]) -> bool {
    bytes[MAGIC_AT..].starts_with(MAGIC)
}

/// The places of superblocks that are on the device.
fn offsets(source: &ByteSource) -> impl Iterator<Item = u64> + use<> {
    let size = source.size();
    OFFSETS.into_iter().filter(move |offset| offset + BYTES as u64 <= size)
}

fn damaged(what: &'static str) -> Error {
    Error::Damaged { structure: "btrfs superblock", at: 0, what }
}

impl Superblock {
    /// The newest that is whole; else what is wrong with the last. Copies that say another device
    /// than the first one that is whole are left over from what was there before. Linux writes the
    /// copies with a transaction, the first one also when something is flushed, and mounts by the
    /// first alone.
    pub fn read(source: &ByteSource) -> Result<Self, Error> {
        let mut newest: Option<Self> = None;
        let mut wrong = damaged("there is none");
        let mut first = None;
        for offset in offsets(source) {
            match source.bytes(offset, BYTES).and_then(|bytes| Self::decode(&bytes, offset)) {
                Ok(found) if newest.as_ref().is_none_or(|newest| found.follows(newest)) => {
                    let copied = if offset == OFFSETS[0] { None } else { first.or(Some("it is older")) };
                    newest = Some(Self { copied, ..found });
                }
                Ok(_) => {}
                Err(error) => {
                    if offset == OFFSETS[0] {
                        first = Some(match error {
                            Error::Damaged { what, .. } | Error::Unsupported { what } => what,
                            _ => "it cannot be read",
                        });
                    }
                    if newest.is_none() {
                        wrong = error;
                    }
                }
            }
        }
        let zoned = || source.bytes(ZONED_OFFSET, BYTES).is_ok_and(|bytes| is_magic(&bytes));
        match newest {
            None if zoned() => Err(Error::Unsupported { what: REFUSED[0].1 }),
            newest => newest.ok_or(wrong),
        }
    }

    fn follows(&self, other: &Self) -> bool {
        let place = |superblock: &Self| (superblock.uuid, superblock.device.uuid);
        place(self) == place(other) && self.generation > other.generation
    }

    /// Whether two say the same, but for what each says of its own device.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let state = |superblock: &Self| (superblock.generation, superblock.root_tree, superblock.chunk_tree);
        state(self) == state(other)
    }

    /// How full it is: what is in use is counted once, however many copies of it there are.
    ///
    /// # Errors
    /// It is on several devices: what else could be stored depends on how it is stored.
    pub fn usage(&self) -> Result<FileSystemUsage, Error> {
        if self.devices != 1 {
            return Err(Error::Unsupported { what: "how full a btrfs on several devices is" });
        }
        let used_bytes = self.used_bytes.min(self.size_bytes);
        Ok(FileSystemUsage { kind: "btrfs", used_bytes, free_bytes: self.size_bytes - used_bytes })
    }

    fn decode(b: &[u8], offset: u64) -> Result<Self, Error> {
        if !is_magic(b) || le64(b, 48) != Some(offset) {
            return Err(damaged("a copy of it is missing"));
        }
        Self::fields(b).ok_or_else(|| damaged("it is too short"))?
    }

    /// `None` cannot be: the buffer has its length.
    fn fields(b: &[u8]) -> Option<Result<Self, Error>> {
        let checksum = match Checksum::of_type(le16(b, 196)?) {
            Ok(checksum) => checksum,
            Err(error) => return Some(Err(error)),
        };
        if !checksum.is_right(&b[BYTES_MAX..], b) {
            return Some(Err(damaged("its checksum is wrong")));
        }
        let incompat = le64(b, 188)?;
        if let Some((_, what)) = REFUSED.into_iter().find(|(bit, _)| incompat & bit != 0) {
            return Some(Err(Error::Unsupported { what }));
        }
        if incompat & !KNOWN != 0 {
            return Some(Err(Error::UnknownFeatures { file_system: "btrfs", bits: incompat & !KNOWN }));
        }
        let flags = le64(b, 56)?;
        if flags & CHANGING_UUID != 0 {
            return Some(Err(Error::Unsupported { what: "btrfs whose UUID is being changed (btrfstune)" }));
        }
        let (sector_bytes, node_bytes) = (le32(b, 144)? as usize, le32(b, 148)? as usize);
        let is_size = |bytes: usize| bytes.is_power_of_two() && (4096..=65536).contains(&bytes);
        if !is_size(sector_bytes) || !is_size(node_bytes) {
            return Some(Err(damaged("impossible sizes of sectors or nodes")));
        }
        let chunks_bytes = (le32(b, 160)? as usize).min(CHUNKS_BYTES_MAX);
        let generation = le64(b, 72)?;
        Some(Ok(Self {
            checksum,
            sector_bytes,
            node_bytes,
            root_tree: TreeRoot { logical: le64(b, 80)?, level: u8_at(b, 198)?, generation },
            chunk_tree: TreeRoot { logical: le64(b, 88)?, level: u8_at(b, 199)?, generation: le64(b, 164)? },
            root_directory: le64(b, 128)?,
            device: DeviceItem::decode(b.get(201..)?)?,
            devices: le64(b, 136)?,
            chunks: b.get(CHUNKS_AT..CHUNKS_AT + chunks_bytes)?.to_vec(),
            log_tree: match le64(b, 96)? {
                0 => None,
                // It belongs to the transaction that was not finished.
                logical => {
                    Some(TreeRoot { logical, level: u8_at(b, 200)?, generation: generation.wrapping_add(1) })
                }
            },
            copied: None,
            generation,
            size_bytes: le64(b, 112)?,
            used_bytes: le64(b, 120)?,
            label: label(b.get(299..555)?),
            uuid: uuid_at(b, 32)?,
            metadata_uuid: uuid_at(b, if incompat & METADATA_UUID == 0 { 32 } else { 571 })?,
            is_seed: flags & SEEDING != 0,
        }))
    }
}
