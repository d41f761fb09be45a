//! How a volume lies on its drives.

use crate::bytes::{le16, le32};

const MAP_BYTES: usize = 48;
/// The bit of an entry in the table of slots that says that the drive does not have its data.
const REBUILD: u32 = 1 << 24;
const DISK_MASK: u32 = REBUILD - 1;

/// A RAID level, as the firmware knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImsmLevel {
    /// Striped.
    Raid0,
    /// Mirrored on two drives.
    Raid1,
    /// Striped over mirrors: neighbours are copies.
    Raid10,
    /// Rotating parity, left-asymmetric.
    Raid5,
}

/// What the firmware says of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImsmMapState {
    /// All is there.
    Normal,
    /// Parity or copies were never made.
    Uninitialized,
    /// A drive is missing.
    Degraded,
    /// Too many are.
    Failed,
    /// Something else.
    Unknown(u8),
}

/// What is in a slot of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImsmSlot {
    /// The drive's index in the table.
    pub disk: u32,
    /// It does not have its data: it failed, or is being filled.
    pub is_stale: bool,
}

/// A map of a volume. Sectors have 512 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImsmMap {
    /// Where the volume begins on each drive.
    pub start_sector: u64,
    /// What it reserves of each.
    pub member_sectors: u64,
    /// Stripes that hold data.
    pub data_stripes: u64,
    /// What lies on one drive before the next one follows.
    pub strip_sectors: u32,
    /// Its state.
    pub state: ImsmMapState,
    /// The level's number on the drive.
    pub raw_level: u8,
    /// Copies of everything where it is mirrored, 1 otherwise.
    pub domains: u8,
    /// The slot that failed; 255 if none did.
    pub failed_slot: u8,
    /// By slot.
    pub slots: Vec<ImsmSlot>,
}

impl ImsmMap {
    /// `None` if the bytes are not all there, or count more than there can be.
    pub(super) fn decode(bytes: &[u8], scale: u64) -> Option<Self> {
        let head = bytes.get(..MAP_BYTES)?;
        let wide = |low: usize, high: usize| u64::from(le32(head, low)) | u64::from(le32(head, high)) << 32;
        let members = usize::from(head[16]);
        let table = bytes.get(MAP_BYTES..MAP_BYTES + 4 * members)?;
        let slot = |entry: &[u8]| {
            let entry = le32(entry, 0);
            ImsmSlot { disk: entry & DISK_MASK, is_stale: entry & REBUILD != 0 }
        };
        Some(Self {
            start_sector: wide(0, 20).checked_mul(scale)?,
            member_sectors: wide(4, 24).checked_mul(scale)?,
            data_stripes: wide(8, 28),
            strip_sectors: u32::from(le16(head, 12)).checked_mul(u32::try_from(scale).ok()?)?,
            state: match head[14] {
                0 => ImsmMapState::Normal,
                1 => ImsmMapState::Uninitialized,
                2 => ImsmMapState::Degraded,
                3 => ImsmMapState::Failed,
                other => ImsmMapState::Unknown(other),
            },
            raw_level: head[15],
            domains: head[17],
            failed_slot: head[18],
            slots: table.chunks_exact(4).map(slot).collect(),
        })
    }

    /// Bytes that it takes.
    pub(super) fn len_bytes(&self) -> usize {
        MAP_BYTES + 4 * self.slots.len()
    }

    /// Its level; `None` if that is not known. RAID 10 has the number of RAID 1 and four drives.
    #[must_use]
    pub fn level(&self) -> Option<ImsmLevel> {
        match (self.raw_level, self.slots.len(), self.domains) {
            (0, 1.., 1) => Some(ImsmLevel::Raid0),
            (1, 2, 2) => Some(ImsmLevel::Raid1),
            (1, 4, 2) => Some(ImsmLevel::Raid10),
            (5, 3.., 1) => Some(ImsmLevel::Raid5),
            _ => None,
        }
    }

    /// Members whose parts add up to what the volume holds; `None` if its level is not known.
    #[must_use]
    pub fn data_members(&self) -> Option<u64> {
        let members = self.slots.len() as u64;
        Some(match self.level()? {
            ImsmLevel::Raid0 => members,
            ImsmLevel::Raid1 => 1,
            ImsmLevel::Raid10 => members / 2,
            ImsmLevel::Raid5 => members - 1,
        })
    }

    /// What of each drive holds data by the count of stripes, parity and copies included; `None` if
    /// that is more than a number holds.
    pub(super) fn counted_sectors(&self) -> Option<u64> {
        let strips = self.data_stripes.checked_mul(u64::from(self.strip_sectors))?;
        strips.checked_mul(u64::from(self.domains))
    }
}
