//! The version-independent view of a superblock's fields, trusted or not.

use std::fmt;

use super::error::SuperblockError;
use super::features::{BadBlockArea, DeviceFlags, DeviceRole, Features, PplArea, Reshape, Timestamp};
use super::location::{SUPERBLOCK_BYTES, Version};
use super::superblock0::{self, ByteOrder, Descriptor, Fields0};
use super::superblock1::Fields1;
use super::uuid::Uuid;

/// The fields of a superblock of any version. No getter panics, whatever the bytes.
#[derive(Clone, PartialEq, Eq)]
pub enum SuperblockFields {
    /// 0.90.
    V0(Fields0),
    /// 1.0, 1.1, 1.2.
    V1(Fields1),
}

/// Getters that both versions answer themselves.
macro_rules! both {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty)?) -> $answer:ty;)*) => {
        impl SuperblockFields {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(&self $(, $arg: $type)?) -> $answer {
                match self {
                    SuperblockFields::V0(fields) => fields.$name($($arg)?),
                    SuperblockFields::V1(fields) => fields.$name($($arg)?),
                }
            }
        )*}
    };
}

both! {
    /// Id of the array, in printed order: equal ids print equal in every version.
    set_uuid() -> Uuid;
    /// Id of the array as stored, which is what its bitmap carries and its PPL and journal
    /// checksums start from.
    stored_uuid() -> [u8; 16];
    /// Name of the array up to its padding, usually `host:name`. Empty for 0.90.
    name_bytes() -> &[u8];
    /// When the array was made.
    ctime() -> Timestamp;
    /// When the superblock was last updated.
    utime() -> Timestamp;
    /// RAID level: -1 linear, 0, 1, 4, 5, 6, 10 (-4 multipath, -5 faulty).
    level() -> i32;
    /// Layout word of the level. For level 0 valid only with [`Features::RAID0_LAYOUT`]. The old
    /// one in a reshape.
    layout() -> u32;
    /// Sectors used of each component; 0 for linear and RAID 0 (1.x), where each uses its own
    /// data_size.
    size_sectors() -> u64;
    /// Chunk in sectors; 0 for RAID 1. The old one in a reshape.
    chunk_sectors() -> u32;
    /// Slots. The new number in a reshape.
    raid_disks() -> u32;
    /// Feature bits; for 0.90 those its state and minor version stand for.
    features() -> Features;
    /// From the superblock to the bitmap, in sectors, when there is one.
    bitmap_offset_sectors() -> Option<i32>;
    /// The reshape in progress.
    reshape() -> Option<Reshape>;
    /// Number of this device: its index in the role table. In 0.90 it follows the role.
    dev_number() -> u32;
    /// Generation of the superblock.
    events() -> u64;
    /// `u64::MAX`: in sync and no write in flight. Else everything below is in sync, and 0 means
    /// dirty. Component sectors, array sectors for RAID 10 (docs/formats.md §1.6).
    resync_offset() -> u64;
    /// Stored checksum.
    checksum() -> u32;
    /// What a device is to the array. Numbers past the table are spares (§1.5).
    role_of(dev_number: u32) -> DeviceRole;
    /// Flags of this device.
    device_flags() -> DeviceFlags;
}

/// Getters that one version answers for all, or that depend on the version.
impl SuperblockFields {
    /// Metadata version.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            SuperblockFields::V0(_) => Version::V090,
            SuperblockFields::V1(fields) => fields.version,
        }
    }

    /// The bytes as they are, or would be written: [`SUPERBLOCK_BYTES`] from the superblock's first
    /// sector.
    #[must_use]
    pub fn bytes(&self) -> &[u8; SUPERBLOCK_BYTES] {
        match self {
            SuperblockFields::V0(fields) => &fields.bytes,
            SuperblockFields::V1(fields) => &fields.bytes,
        }
    }

    /// Where the superblock is, in sectors. On a [`Superblock`](super::Superblock) the same as
    /// `super_offset_sectors`.
    #[must_use]
    pub fn found_at_sectors(&self) -> u64 {
        match self {
            SuperblockFields::V0(fields) => fields.found_at_sectors,
            SuperblockFields::V1(fields) => fields.found_at_sectors,
        }
    }

    /// Where the superblock says it is, in sectors. 0.90 does not say.
    #[must_use]
    pub fn super_offset_sectors(&self) -> u64 {
        match self {
            SuperblockFields::V0(fields) => fields.found_at_sectors,
            SuperblockFields::V1(fields) => fields.super_offset_sectors(),
        }
    }

    /// Byte order of a 0.90 superblock; 1.x is little-endian.
    #[must_use]
    pub fn byte_order(&self) -> ByteOrder {
        match self {
            SuperblockFields::V0(fields) => fields.order,
            SuperblockFields::V1(_) => ByteOrder::Little,
        }
    }

    /// Name of the array as text to show; what is not UTF-8 or could move a terminal's cursor is
    /// replaced.
    #[must_use]
    pub fn name(&self) -> String {
        let text = String::from_utf8_lossy(self.name_bytes());
        text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
    }

    /// First data sector of this device; 0 for 0.90.
    #[must_use]
    pub fn data_offset_sectors(&self) -> u64 {
        match self {
            SuperblockFields::V0(_) => 0,
            SuperblockFields::V1(fields) => fields.data_offset_sectors(),
        }
    }

    /// Sectors usable for data on this device; for 0.90 all before the superblock.
    #[must_use]
    pub fn data_size_sectors(&self) -> u64 {
        match self {
            SuperblockFields::V0(fields) => fields.found_at_sectors,
            SuperblockFields::V1(fields) => fields.data_size_sectors(),
        }
    }

    /// What this device is to the array, by its own superblock.
    #[must_use]
    pub fn role(&self) -> DeviceRole {
        self.role_of(self.dev_number())
    }

    /// Entries of the role table.
    #[must_use]
    pub fn max_devices(&self) -> u32 {
        match self {
            SuperblockFields::V0(_) => superblock0::MAX_DEVICES,
            SuperblockFields::V1(fields) => fields.max_devices(),
        }
    }

    /// All roles by device number.
    pub fn roles(&self) -> impl Iterator<Item = DeviceRole> + '_ {
        (0..self.max_devices()).map(|dev_number| self.role_of(dev_number))
    }

    /// This device's data is valid below this, in sectors from data_offset; `None`: everywhere.
    #[must_use]
    pub fn recovery_offset(&self) -> Option<u64> {
        match self {
            SuperblockFields::V0(_) => None,
            SuperblockFields::V1(fields) => fields.recovery_offset(),
        }
    }

    /// Whether the reshape in progress fills this device as it goes, so that it holds nothing of
    /// the old geometry. Of 0.90 only: 1.x has [`Self::recovery_offset`] for it.
    #[must_use]
    pub fn is_filled_by_reshape(&self) -> bool {
        match self {
            SuperblockFields::V0(fields) => fields.is_filled_by_reshape(),
            SuperblockFields::V1(_) => false,
        }
    }

    /// Ring position of the oldest journal block needed, in sectors from data_offset, when this is
    /// the journal.
    #[must_use]
    pub fn journal_tail(&self) -> Option<u64> {
        match self {
            SuperblockFields::V0(_) => None,
            SuperblockFields::V1(fields) => fields.journal_tail(),
        }
    }

    /// Id of this device; 0.90 has none.
    #[must_use]
    pub fn device_uuid(&self) -> Option<Uuid> {
        match self {
            SuperblockFields::V0(_) => None,
            SuperblockFields::V1(fields) => fields.device_uuid(),
        }
    }

    /// Read errors mended by rewriting.
    #[must_use]
    pub fn corrected_reads(&self) -> u32 {
        match self {
            SuperblockFields::V0(_) => 0,
            SuperblockFields::V1(fields) => fields.corrected_reads(),
        }
    }

    /// The bad block log's place. It holds entries only when [`Features::BAD_BLOCKS`] is set.
    #[must_use]
    pub fn bad_block_log(&self) -> Option<BadBlockArea> {
        match self {
            SuperblockFields::V0(_) => None,
            SuperblockFields::V1(fields) => fields.bad_block_log(),
        }
    }

    /// The partial parity log's place.
    #[must_use]
    pub fn ppl(&self) -> Option<PplArea> {
        match self {
            SuperblockFields::V0(_) => None,
            SuperblockFields::V1(fields) => fields.ppl(),
        }
    }

    /// Logical block size of the array in bytes, when stored (§10.1). Kept on write, never added.
    #[must_use]
    pub fn logical_block_size(&self) -> Option<u32> {
        match self {
            SuperblockFields::V0(_) => None,
            SuperblockFields::V1(fields) => fields.logical_block_size(),
        }
    }

    /// What the checksum should be.
    #[must_use]
    pub fn computed_checksum(&self) -> u32 {
        match self {
            SuperblockFields::V0(fields) => fields.computed_checksum(),
            SuperblockFields::V1(fields) => fields.computed_checksum(),
        }
    }

    /// Entry of the 0.90 descriptor table; `None` for 1.x and past its end.
    #[must_use]
    pub fn descriptor(&self, index: u32) -> Option<Descriptor> {
        match self {
            SuperblockFields::V0(fields) => fields.descriptor(index),
            SuperblockFields::V1(_) => None,
        }
    }

    /// Preferred md minor number; 1.x has none.
    #[must_use]
    pub fn md_minor(&self) -> Option<u32> {
        match self {
            SuperblockFields::V0(fields) => Some(fields.md_minor()),
            SuperblockFields::V1(_) => None,
        }
    }

    /// A device sector relative to the superblock; `None` when it lies before the device's start.
    #[must_use]
    pub fn sector_from_superblock(&self, offset_sectors: i32) -> Option<u64> {
        self.found_at_sectors().checked_add_signed(i64::from(offset_sectors))
    }

    /// The load checks that fail on a component of `size_sectors`.
    pub(super) fn problems(&self, size_sectors: u64) -> Vec<SuperblockError> {
        match self {
            SuperblockFields::V0(fields) => fields.problems(),
            SuperblockFields::V1(fields) => fields.problems(size_sectors),
        }
    }
}

impl fmt::Debug for SuperblockFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fields")
            .field("version", &self.version())
            .field("set_uuid", &self.set_uuid())
            .field("level", &self.level())
            .field("raid_disks", &self.raid_disks())
            .field("role", &self.role())
            .field("events", &self.events())
            .finish_non_exhaustive()
    }
}
