//! The small typed values of superblocks: feature bits, roles, times, device flags, reshape state.
//! Source: docs/formats.md §1.2, §9.1.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// The feature_map of a 1.x superblock. For 0.90 the equivalent bits are derived from its state and
/// minor version.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u32);

impl Features {
    /// bitmap_offset is valid.
    pub const BITMAP: Features = Features(0x1);
    /// This device is only rebuilt below recovery_offset.
    pub const RECOVERY_OFFSET: Features = Features(0x2);
    /// The reshape fields are valid.
    pub const RESHAPE: Features = Features(0x4);
    /// The bad block log is not empty.
    pub const BAD_BLOCKS: Features = Features(0x8);
    /// This device replaces the other one that holds the same slot.
    pub const REPLACEMENT: Features = Features(0x10);
    /// The reshape goes downwards (written only when delta_disks is 0).
    pub const RESHAPE_BACKWARDS: Features = Features(0x20);
    /// new_offset is valid.
    pub const NEW_OFFSET: Features = Features(0x40);
    /// The recovery in progress is guided by the bitmap.
    pub const RECOVERY_BITMAP: Features = Features(0x80);
    /// The array is shared by a cluster.
    pub const CLUSTERED: Features = Features(0x100);
    /// The array has, or had, a RAID 5 journal.
    pub const JOURNAL: Features = Features(0x200);
    /// Partial parity log, one log per area.
    pub const PPL: Features = Features(0x400);
    /// Partial parity log, a ring of logs per area.
    pub const MULTIPLE_PPLS: Features = Features(0x800);
    /// `layout` is valid for level 0.
    pub const RAID0_LAYOUT: Features = Features(0x1000);

    /// Every bit with a known meaning.
    pub const KNOWN: Features = Features(0x1fff);
    /// Bits that describe this device, not the array.
    pub const OF_DEVICE: Features = Features(0x2 | 0x8 | 0x10 | 0x40 | 0x80);

    const NAMES: [&'static str; 13] = [
        "bitmap",
        "recovery-offset",
        "reshape",
        "bad-blocks",
        "replacement",
        "reshape-backwards",
        "new-offset",
        "recovery-bitmap",
        "clustered",
        "journal",
        "ppl",
        "multiple-ppls",
        "raid0-layout",
    ];

    /// Whether all bits of `other` are set.
    #[must_use]
    pub fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[must_use]
    pub fn intersects(self, other: Features) -> bool {
        self.0 & other.0 != 0
    }

    /// Without the bits of `other`.
    #[must_use]
    pub fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }

    /// The unknown bits.
    #[must_use]
    pub fn unknown(self) -> u32 {
        self.without(Self::KNOWN).0
    }

    /// The conflicting bits, when bits exclude one another: PPL with bitmap or journal, journal
    /// with bitmap, both forms of PPL at once.
    #[must_use]
    pub fn conflict(self) -> Option<Features> {
        let ppl = Self::PPL | Self::MULTIPLE_PPLS;
        let guards = [self.intersects(ppl), self.contains(Self::BITMAP), self.contains(Self::JOURNAL)];
        if self.contains(ppl) || guards.into_iter().filter(|&guard| guard).count() > 1 {
            return Some(Features(self.0 & (ppl | Self::BITMAP | Self::JOURNAL).0));
        }
        None
    }

    /// Names of the known bits that are set, in bit order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 == 1)
            .map(|(_, name)| name)
    }
}

impl BitOr for Features {
    type Output = Features;
    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl BitOrAssign for Features {
    fn bitor_assign(&mut self, other: Features) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)?;
        for (i, name) in self.names().enumerate() {
            write!(f, "{}{name}", if i == 0 { " " } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({self})")
    }
}

/// What a superblock says a device is to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceRole {
    /// Holds this slot. Two devices may name the same slot: the second is a replacement.
    Active(u16),
    /// Spare, or an unused entry.
    Spare,
    /// Failed: not to be used.
    Faulty,
    /// The RAID 5 journal.
    Journal,
    /// A value between the slots and the named roles. No known writer makes it; treat the device as
    /// faulty.
    Unknown(u16),
}

impl DeviceRole {
    /// The largest slot number.
    pub const MAX_SLOT: u16 = 0xfeff;

    /// From a dev_roles entry.
    #[must_use]
    pub fn from_raw(raw: u16) -> DeviceRole {
        match raw {
            0..=Self::MAX_SLOT => DeviceRole::Active(raw),
            0xfffd => DeviceRole::Journal,
            0xfffe => DeviceRole::Faulty,
            0xffff => DeviceRole::Spare,
            _ => DeviceRole::Unknown(raw),
        }
    }

    /// As a dev_roles entry.
    #[must_use]
    pub fn to_raw(self) -> u16 {
        match self {
            DeviceRole::Active(slot) => slot,
            DeviceRole::Journal => 0xfffd,
            DeviceRole::Faulty => 0xfffe,
            DeviceRole::Spare => 0xffff,
            DeviceRole::Unknown(raw) => raw,
        }
    }

    /// The slot of an active role.
    #[must_use]
    pub fn slot(self) -> Option<u16> {
        match self {
            DeviceRole::Active(slot) => Some(slot),
            _ => None,
        }
    }
}

/// Seconds since the epoch and microseconds, as 1.x packs them into 40 + 24 bits. 0.90 has seconds
/// only (32 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970 (the low 40 bits are stored).
    pub secs: u64,
    /// Microseconds (the low 24 bits are stored; a hostile superblock may hold a million or more).
    pub micros: u32,
}

impl Timestamp {
    pub(crate) fn from_raw(raw: u64) -> Self {
        Timestamp { secs: raw & 0xff_ffff_ffff, micros: (raw >> 40) as u32 }
    }

    pub(crate) fn to_raw(self) -> u64 {
        self.secs & 0xff_ffff_ffff | u64::from(self.micros) << 40
    }
}

/// Per-device flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFlags(pub u8);

impl DeviceFlags {
    /// Read from this device only when no other holds the data.
    pub const WRITE_MOSTLY: DeviceFlags = DeviceFlags(1);
    /// Fail fast: do not retry I/O for long.
    pub const FAIL_FAST: DeviceFlags = DeviceFlags(2);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub fn contains(self, other: DeviceFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A reshape in progress (§9.1). The superblock's plain level, layout and chunk are the old ones;
/// raid_disks is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// How far it has come, in array sectors.
    pub position: u64,
    /// Level afterwards.
    pub new_level: i32,
    /// New minus old number of slots.
    pub delta_disks: i32,
    /// Layout afterwards.
    pub new_layout: u32,
    /// Chunk afterwards, in sectors.
    pub new_chunk_sectors: u32,
    /// Moves from the end of the array to its start; implied when `delta_disks` is negative.
    pub backwards: bool,
    /// What this device adds to data_offset for the new geometry, in sectors; `None` when it does
    /// not move.
    pub new_offset_sectors: Option<i32>,
}

/// The bad block log a superblock reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlockArea {
    /// From the superblock, in sectors.
    pub offset_sectors: i32,
    /// Length, in sectors (8 in practice).
    pub size_sectors: u16,
    /// Entries count in units of 2^shift sectors (0 in practice).
    pub shift: u8,
}

/// The partial parity log area of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplArea {
    /// From the superblock, in sectors.
    pub offset_sectors: i16,
    /// Length, in sectors.
    pub size_sectors: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_raw_role_survives() {
        for raw in 0..=u16::MAX {
            assert_eq!(DeviceRole::from_raw(raw).to_raw(), raw);
        }
        assert_eq!(DeviceRole::from_raw(0xfeff), DeviceRole::Active(0xfeff));
        assert_eq!(DeviceRole::from_raw(0xff00), DeviceRole::Unknown(0xff00));
    }

    #[test]
    fn conflicts_are_exactly_two_guards_or_two_kinds_of_ppl() {
        for raw in 0..=0x1fff_u32 {
            let has = |bit: u32| raw & bit != 0;
            let guards = u32::from(has(0x1)) + u32::from(has(0x200)) + u32::from(has(0xc00));
            let conflict = guards > 1 || raw & 0xc00 == 0xc00;
            assert_eq!(Features(raw).conflict().is_some(), conflict, "{raw:#x}");
        }
    }

    #[test]
    fn names() {
        let features = Features::BITMAP | Features::RAID0_LAYOUT | Features(0x8000_0000);
        assert_eq!(features.to_string(), "0x80001001 bitmap,raid0-layout");
        assert_eq!(features.unknown(), 0x8000_0000);
    }
}
