//! IMSM: the metadata of Intel's firmware RAID (Intel Matrix Storage, Rapid Storage, VROC).
//!
//! A drive has its metadata at its end: the anchor is the second-to-last sector, and what does not
//! fit into it lies in the sectors before it. All members of a container have the same bytes; they
//! list every drive by its serial number, and nothing in them says which drive they are on. A spare
//! has metadata of its own, with itself alone in it.
//!
//! Source: experiments with mdadm 4.2 and Linux 6.12; docs/formats.md §10.4 has every byte.
//!
//! Invariant: what is returned is bounded by the bytes read, and every index in it is in range.

mod map;
#[cfg(test)]
mod tests;

use crate::bytes::{le16, le32};
use crate::text::printable;
pub use map::{ImsmLevel, ImsmMap, ImsmMapState, ImsmSlot};

/// What stripes of a volume hold may differ from its size by so much of each member: sizes are
/// rounded to MiB.
const EXPANDED_FROM_SECTORS: u64 = 2048;

/// What every anchor begins with.
pub const SIGNATURE: &[u8; 24] = b"Intel Raid ISM Cfg Sig. ";
/// The largest metadata that is read. Firmware reserves some 1 MiB; a few volumes on a few dozen
/// drives take less than 8 KiB.
pub const METADATA_BYTES_MAX: u32 = 256 << 10;

const VERSION_AT: usize = 0x18;
const CHECKSUM_AT: usize = 0x20;
const SIZE_AT: usize = 0x24;
const FAMILY_AT: usize = 0x28;
const GENERATION_AT: usize = 0x2c;
const ATTRIBUTES_AT: usize = 0x34;
const DISKS_AT: usize = 0x38;
const VOLUMES_AT: usize = 0x39;
const ORIG_FAMILY_AT: usize = 0x40;
const BAD_BLOCKS_AT: usize = 0x48;
const CREATED_AT: usize = 0x50;
/// Where the table of drives begins.
const TABLE_AT: usize = 0xd8;
const DISK_BYTES: usize = 48;
/// Of a volume, before its first map.
const VOLUME_BYTES: usize = 112;
const SERIAL_BYTES: usize = 16;
/// Bit of a volume's status: a verification makes right what it finds. mdadm stores a resync after
/// a crash in this way, so that until it ends nothing says that parity and copies agree.
const VERIFY_AND_FIX: u32 = 0x80;
/// The bad-block log: magic, count, entries.
const BAD_LOG_MAGIC: u32 = 0xabad_b10c;
const BAD_LOG_HEADER_BYTES: usize = 8;

/// Why an anchor is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImsmError {
    /// The drive does not give the sectors that it names.
    #[error("its metadata of {bytes} bytes at the end of the drive cannot be read")]
    Unread {
        /// Bytes of metadata, as the anchor says.
        bytes: u32,
    },
    /// A size that no metadata has.
    #[error("the anchor says that the metadata has {found} bytes")]
    Size {
        /// What it says.
        found: u32,
    },
    /// Damaged, or torn.
    #[error("checksum is {stored:08x}, the bytes add up to {computed:08x}")]
    Checksum {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Something lies beyond the end of the metadata.
    #[error("its {what} do not fit into {bytes} bytes")]
    Short {
        /// What does not fit.
        what: &'static str,
        /// Bytes of metadata.
        bytes: u32,
    },
    /// A map names a drive that is not in the table.
    #[error("volume `{volume}` names drive {disk} of {disks}")]
    Disk {
        /// The volume.
        volume: String,
        /// The index of the drive.
        disk: u32,
        /// How many there are.
        disks: usize,
    },
    /// A number that has no meaning here.
    #[error("volume `{volume}`: {field} is {found}")]
    Field {
        /// The volume.
        volume: String,
        /// The field.
        field: &'static str,
        /// What it says.
        found: u64,
    },
}

/// What the metadata of a drive says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imsm {
    /// Version of the format: `1.3.00`.
    pub version: String,
    /// The container. Changes when drives take part in it no more.
    pub family: u32,
    /// The container, as it was created; 0 in the metadata of a spare.
    pub orig_family: u32,
    /// Grows with each change.
    pub generation: u32,
    /// Feature bits.
    pub attributes: u32,
    /// When it was created, seconds since the epoch; 0 if that was not recorded.
    pub created_secs: u64,
    /// Bytes of the sectors that everything is counted in on the drive. Here all is in sectors of
    /// 512 bytes.
    pub sector_bytes: u32,
    /// The drives.
    pub disks: Vec<ImsmDisk>,
    /// The volumes.
    pub volumes: Vec<ImsmVolume>,
    /// Blocks that are known to be lost.
    pub bad_blocks: Vec<ImsmBadBlocks>,
}

/// A drive of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImsmDisk {
    /// Its serial number: 16 bytes at most, the last ones of a longer number. One that failed has
    /// `:0` behind it.
    pub serial: String,
    /// Its size.
    pub total_sectors: u64,
    /// Bits: 1 spare, 2 configured, 4 failed.
    pub status: u32,
}

impl ImsmDisk {
    /// It waits for a failure.
    pub const SPARE: u32 = 1;
    /// It has parts of volumes.
    pub const CONFIGURED: u32 = 2;
    /// It failed.
    pub const FAILED: u32 = 4;

    /// Whether it failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.status & Self::FAILED != 0
    }

    /// Its serial number without the mark of a failure.
    #[must_use]
    pub fn own_serial(&self) -> &str {
        let unmarked = self.serial.strip_suffix(":0").filter(|_| self.has_failed());
        unmarked.unwrap_or(&self.serial)
    }
}

/// What is being done to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImsmMigration {
    /// Parity or copies are made for the first time.
    Initialize,
    /// A drive is being filled.
    Rebuild,
    /// Parity or copies are compared.
    Verify,
    /// Data is moved into another layout.
    General,
    /// The state of a map changes.
    StateChange,
    /// Parity or copies are compared and made right.
    Repair,
    /// Something else.
    Unknown(u8),
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImsmVolume {
    /// Its name.
    pub name: String,
    /// What it holds, sectors.
    pub size_sectors: u64,
    /// Status bits.
    pub status: u32,
    /// What is done about the write hole: 1, 3 and 4 are partial parity logs, 6 a bitmap.
    pub rwh_policy: u8,
    /// Writes were in flight.
    pub dirty: bool,
    /// What is being done to it.
    pub migration: Option<ImsmMigration>,
    /// How far that has come, in its own units: [`Self::rebuilt_sectors`].
    pub current_unit: u64,
    /// The map that counts; while something is being done, the one that comes.
    pub map: ImsmMap,
    /// The map as it was before.
    pub old_map: Option<ImsmMap>,
}

/// Blocks of a drive that are known to be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImsmBadBlocks {
    /// The drive's index in the table.
    pub disk: u8,
    /// Where they are on the drive, sectors.
    pub start_sector: u64,
    /// How many.
    pub len_sectors: u64,
}

/// Reads so many bytes at an offset (bytes); `None` where that cannot be.
pub type ImsmRead<'a> = dyn FnMut(u64, usize) -> Option<Vec<u8>> + 'a;

/// Where the anchor of a drive of this size may be, and bytes of a sector there.
#[must_use]
pub fn anchors(size_bytes: u64) -> Vec<(u64, u32)> {
    let places = [512_u32, 4096].map(|sector| (size_bytes.checked_sub(2 * u64::from(sector)), sector));
    places.into_iter().filter_map(|(at, sector)| Some((at?, sector))).collect()
}

/// What a drive's metadata says; `None` if it has none.
#[must_use]
pub fn find(size_bytes: u64, read: &mut ImsmRead<'_>) -> Option<Result<Imsm, ImsmError>> {
    anchors(size_bytes).into_iter().find_map(|(at, sector)| {
        let anchor = read(at, sector as usize).filter(|bytes| bytes.starts_with(SIGNATURE))?;
        Some(whole(&anchor, at, sector, read).and_then(|bytes| Imsm::decode(&bytes, sector)))
    })
}

/// All of the metadata in order: the anchor's sector, then those before it.
fn whole(anchor: &[u8], anchor_at: u64, sector: u32, read: &mut ImsmRead<'_>) -> Result<Vec<u8>, ImsmError> {
    let bytes = le32(anchor, SIZE_AT);
    if bytes > METADATA_BYTES_MAX || (bytes as usize) < TABLE_AT || !bytes.is_multiple_of(4) {
        return Err(ImsmError::Size { found: bytes });
    }
    let rest = (bytes as usize).saturating_sub(sector as usize).next_multiple_of(sector as usize);
    let mut all = anchor.to_vec();
    if rest > 0 {
        let start = anchor_at.checked_sub(rest as u64);
        let before = start.and_then(|start| read(start, rest)).ok_or(ImsmError::Unread { bytes })?;
        all.extend(before);
    }
    all.truncate(bytes as usize);
    Ok(all)
}

impl Imsm {
    /// The metadata from its bytes, in order; sectors of the drive have `sector_bytes`.
    ///
    /// # Errors
    /// [`ImsmError`]: it is damaged, or says what cannot be.
    pub fn decode(bytes: &[u8], sector_bytes: u32) -> Result<Self, ImsmError> {
        let size = u32::try_from(bytes.len()).map_err(|_| ImsmError::Size { found: u32::MAX })?;
        if bytes.len() < TABLE_AT || le32(bytes, SIZE_AT) != size || !size.is_multiple_of(4) {
            return Err(ImsmError::Size { found: size });
        }
        let (stored, computed) = (le32(bytes, CHECKSUM_AT), checksum(bytes));
        if stored != computed {
            return Err(ImsmError::Checksum { stored, computed });
        }
        let scale = u64::from(sector_bytes / 512).max(1);
        let short = |what| ImsmError::Short { what, bytes: size };
        let mut at = TABLE_AT;
        let mut disks = Vec::new();
        for _ in 0..bytes[DISKS_AT] {
            let entry = bytes.get(at..at + DISK_BYTES).ok_or_else(|| short("drives"))?;
            disks.push(ImsmDisk {
                serial: text(&entry[..SERIAL_BYTES]),
                total_sectors: (u64::from(le32(entry, 16)) | u64::from(le32(entry, 32)) << 32)
                    .saturating_mul(scale),
                status: le32(entry, 24),
            });
            at += DISK_BYTES;
        }
        let mut volumes = Vec::new();
        for _ in 0..bytes[VOLUMES_AT] {
            let (volume, len) = ImsmVolume::decode(&bytes[at..], disks.len(), scale)
                .transpose()?
                .ok_or_else(|| short("volumes"))?;
            volumes.push(volume);
            at += len;
        }
        let log_bytes = le32(bytes, BAD_BLOCKS_AT) as usize;
        let log = bytes.len().checked_sub(log_bytes).filter(|start| *start >= at || log_bytes == 0);
        let log = &bytes[log.ok_or_else(|| short("bad blocks"))?..];
        Ok(Self {
            version: text(&bytes[VERSION_AT..CHECKSUM_AT]),
            family: le32(bytes, FAMILY_AT),
            orig_family: le32(bytes, ORIG_FAMILY_AT),
            generation: le32(bytes, GENERATION_AT),
            attributes: le32(bytes, ATTRIBUTES_AT),
            created_secs: u64::from(le32(bytes, CREATED_AT)),
            sector_bytes,
            disks,
            volumes,
            bad_blocks: bad_blocks(log, scale).ok_or_else(|| short("bad blocks"))?,
        })
    }

    /// The container: its family as it was created.
    #[must_use]
    pub fn container(&self) -> u32 {
        if self.orig_family == 0 { self.family } else { self.orig_family }
    }

    /// Whether the drive is a spare, that has itself alone in its metadata.
    #[must_use]
    pub fn is_spare(&self) -> bool {
        self.volumes.is_empty() && matches!(&self.disks[..], [disk] if disk.status & ImsmDisk::SPARE != 0)
    }
}

impl ImsmVolume {
    /// What of each drive holds data, parity and copies included; `None` if that is more than a
    /// number holds. A volume that was expanded keeps the count of stripes that it had: where its
    /// size is more than that, it is the size that counts, if each drive has the room reserved.
    #[must_use]
    pub fn component_sectors(&self) -> Option<u64> {
        let counted = self.map.counted_sectors()?;
        let Some(members) = self.map.data_members() else { return Some(counted) };
        let slack = EXPANDED_FROM_SECTORS.saturating_mul(members);
        let is_expanded = self.size_sectors.saturating_sub(counted.saturating_mul(members)) > slack;
        let sized = self.size_sectors.div_ceil(members);
        let sized = sized.checked_next_multiple_of(u64::from(self.map.strip_sectors).max(1));
        Some(sized.filter(|&sized| is_expanded && sized <= self.map.member_sectors).unwrap_or(counted))
    }

    /// A volume and how many bytes it takes; `None` if they are not all there.
    fn decode(bytes: &[u8], disks: usize, scale: u64) -> Option<Result<(Self, usize), ImsmError>> {
        let head = bytes.get(..VOLUME_BYTES)?;
        let name = text(&head[..16]);
        let migration = match (head[88], head[89]) {
            (0, _) => None,
            (_, 0) => Some(ImsmMigration::Initialize),
            (_, 1) => Some(ImsmMigration::Rebuild),
            (_, 2) if le32(head, 24) & VERIFY_AND_FIX != 0 => Some(ImsmMigration::Repair),
            (_, 2) => Some(ImsmMigration::Verify),
            (_, 3) => Some(ImsmMigration::General),
            (_, 4) => Some(ImsmMigration::StateChange),
            (_, 5) => Some(ImsmMigration::Repair),
            (_, other) => Some(ImsmMigration::Unknown(other)),
        };
        let mut at = VOLUME_BYTES;
        let mut map = || {
            let map = ImsmMap::decode(bytes.get(at..)?, scale)?;
            at += map.len_bytes();
            Some(map)
        };
        let (map, old_map) = (map()?, if migration.is_some() { Some(map()?) } else { None });
        for slot in map.slots.iter().chain(old_map.iter().flat_map(|map| &map.slots)) {
            if slot.disk as usize >= disks {
                return Some(Err(ImsmError::Disk { volume: name, disk: slot.disk, disks }));
            }
        }
        let size = u64::from(le32(head, 16)) | u64::from(le32(head, 20)) << 32;
        let Some(size_sectors) = size.checked_mul(scale) else {
            return Some(Err(ImsmError::Field { volume: name, field: "size", found: size }));
        };
        Some(Ok((
            Self {
                name,
                size_sectors,
                status: le32(head, 24),
                rwh_policy: head[50],
                dirty: head[90] != 0,
                migration,
                current_unit: u64::from(le32(head, 80)) | u64::from(le32(head, 96)) << 32,
                map,
                old_map,
            },
            at,
        )))
    }

    /// How far a drive that is being filled is filled, in sectors of its part of the volume; `None`
    /// where nothing is being filled, or how far is not known.
    ///
    /// The unit was found by experiment (docs/formats.md §10.4): 512 sectors where data is
    /// mirrored, with parity whole strips of 128 sectors at least.
    #[must_use]
    pub fn rebuilt_sectors(&self) -> Option<u64> {
        let strip = u64::from(self.map.strip_sectors).max(1);
        let unit = match (self.migration?, self.map.level()) {
            (ImsmMigration::Rebuild, Some(ImsmLevel::Raid1 | ImsmLevel::Raid10)) => 512,
            (ImsmMigration::Rebuild, Some(ImsmLevel::Raid5)) => 128_u64.next_multiple_of(strip),
            _ => return None,
        };
        self.current_unit.checked_mul(unit)
    }
}

/// The sum of all words but the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    let words = (0..bytes.len() / 4).map(|word| le32(bytes, 4 * word));
    words.fold(0_u32, u32::wrapping_add).wrapping_sub(le32(bytes, CHECKSUM_AT))
}

fn bad_blocks(log: &[u8], scale: u64) -> Option<Vec<ImsmBadBlocks>> {
    if log.is_empty() {
        return Some(Vec::new());
    }
    if log.len() < BAD_LOG_HEADER_BYTES || le32(log, 0) != BAD_LOG_MAGIC {
        return None;
    }
    let count = le32(log, 4) as usize;
    let entries = log[BAD_LOG_HEADER_BYTES..].get(..count.checked_mul(8)?)?;
    let entry = |entry: &[u8]| {
        Some(ImsmBadBlocks {
            disk: entry[1],
            start_sector: (u64::from(le16(entry, 2)) | u64::from(le32(entry, 4)) << 16).checked_mul(scale)?,
            len_sectors: (u64::from(entry[0]) + 1).checked_mul(scale)?,
        })
    };
    entries.chunks_exact(8).map(entry).collect()
}

/// Text up to its padding, fit to be shown.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    printable(&String::from_utf8_lossy(&bytes[..end])).unwrap_or_default()
}
