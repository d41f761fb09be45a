//! The superblock, of which there are up to three copies: the newest that is whole counts.

use crate::About;
use crate::btrfs::checksum::{BYTES_MAX, Checksum};
use crate::btrfs::tree::TreeRoot;
use crate::bytes::{label, le16, le32, le64, u8_at, uuid_at};
use crate::error::{Error, Note};
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
    pub device: u64,
    /// Chunks that are needed to read the chunk tree: keys and items.
    pub chunks: Vec<u8>,
    /// Changes since the last transaction that were flushed one by one.
    pub log_tree: Option<TreeRoot>,
    /// Why it is not the first copy, if it is not.
    copied: Option<&'static str>,
    generation: u64,
    size_bytes: u64,
    used_bytes: u64,
    label: Vec<u8>,
    uuid: [u8; 16],
}

/// Where the first copy is.
pub fn place() -> std::ops::Range<usize> {
    OFFSETS[0] as usize..OFFSETS[0] as usize + BYTES
}

/// Whether the signature is there, at any of its places.
pub fn is_here(source: &ByteSource) -> Result<bool, Error> {
    for offset in OFFSETS.into_iter().filter(|offset| offset + BYTES as u64 <= source.size()) {
        // One that cannot be read may have others.
        if source.bytes(offset, BYTES).is_ok_and(|bytes| bytes[MAGIC_AT..].starts_with(MAGIC)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn damaged(what: &'static str) -> Error {
    Error::Damaged { structure: "btrfs superblock", at: 0, what }
}

impl Superblock {
    /// The newest that is whole; else what is wrong with the last. Linux writes the copies with a
    /// transaction, the first one also when something is flushed, and mounts by the first alone.
    pub fn read(source: &ByteSource) -> Result<Self, Error> {
        let mut newest: Option<Self> = None;
        let mut wrong = damaged("there is none");
        let mut first = None;
        for offset in OFFSETS.into_iter().filter(|offset| offset + BYTES as u64 <= source.size()) {
            match source.bytes(offset, BYTES).and_then(|bytes| Self::decode(&bytes, offset)) {
                Ok(found) if newest.as_ref().is_none_or(|newest| found.generation > newest.generation) => {
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
        newest.ok_or(wrong)
    }

    /// How full it is: what is in use is counted once, however many copies of it there are.
    pub fn usage(&self) -> FileSystemUsage {
        let used_bytes = self.used_bytes.min(self.size_bytes);
        FileSystemUsage { kind: "btrfs", used_bytes, free_bytes: self.size_bytes - used_bytes }
    }

    fn decode(b: &[u8], offset: u64) -> Result<Self, Error> {
        if !b[MAGIC_AT..].starts_with(MAGIC) || le64(b, 48) != Some(offset) {
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
        if le64(b, 136)? != 1 {
            return Some(Err(Error::Unsupported { what: "btrfs on several devices" }));
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
            device: le64(b, 201)?,
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
        }))
    }

    /// What there is to say about the file system.
    pub fn about(&self, source: &ByteSource) -> About {
        About {
            kind: "btrfs",
            label: self.label.clone(),
            uuid: self.uuid,
            size_bytes: self.size_bytes,
            notes: source
                .cut_off(self.size_bytes)
                .into_iter()
                .chain(self.copied.map(|why| Note::SuperblockCopy { why }))
                .collect(),
        }
    }
}
