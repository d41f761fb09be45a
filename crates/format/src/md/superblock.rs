//! One view over all superblock versions, in two trusts.
//!
//! [`RawSuperblock`] is what the bytes say, with the list of load checks they fail. [`Superblock`]
//! has passed all of them. Both read through [`SuperblockFields`]; only a `Superblock` can be
//! changed. Setters patch the original bytes and renew the checksum, so what this crate does not
//! understand survives: encoding what was decoded gives the same bytes, and setting one field
//! changes that field and the checksum only.

use std::fmt;
use std::ops::Deref;

use super::error::{SetError, SuperblockError};
use super::features::{BadBlockArea, DeviceFlags, DeviceRole, Features, PplArea, Reshape, Timestamp};
use super::fields::SuperblockFields;
use super::location::{SUPERBLOCK_BYTES, Version, super_offset_sectors};
use super::superblock0::{self, ByteOrder, Fields0, word};
use super::superblock1::{Fields1, field};
use super::uuid::Uuid;
use crate::bytes::{be32, le32};

/// Looks for a superblock of `version` in the bytes read from its place on a component of
/// `size_sectors`.
///
/// `Ok(None)`: no superblock of this version here. `Err`: there is one and it failed its load
/// checks, see [`RawSuperblock::problems`].
///
/// # Errors
/// The superblock is damaged or of a kind that must not be loaded.
pub fn identify(
    version: Version,
    bytes: &[u8],
    size_sectors: u64,
) -> Result<Option<Superblock>, RawSuperblock> {
    read(version, bytes, size_sectors).map(RawSuperblock::validate).transpose()
}

/// Reads whatever carries the magic at the place of `version`, and runs the load checks. `None`:
/// nothing there, the component is too small, or what is there belongs to the other major version.
#[must_use]
pub fn read(version: Version, bytes: &[u8], size_sectors: u64) -> Option<RawSuperblock> {
    let found_at_sectors = super_offset_sectors(version, size_sectors)?;
    let mut block = Box::new([0; SUPERBLOCK_BYTES]);
    let got = bytes.len().min(SUPERBLOCK_BYTES);
    block[..got].copy_from_slice(&bytes[..got]);

    let order = ByteOrder::of_magic(&block[..])?;
    let major = match order {
        ByteOrder::Little => le32(&block[..], field::MAJOR_VERSION),
        ByteOrder::Big => be32(&block[..], field::MAJOR_VERSION),
    };
    let (fields, own_major) = match version {
        Version::V090 => (SuperblockFields::V0(Fields0 { order, found_at_sectors, bytes: block }), 0),
        _ if order == ByteOrder::Big => return None,
        _ => (SuperblockFields::V1(Fields1 { version, found_at_sectors, bytes: block }), 1),
    };
    let mut problems = Vec::new();
    if got < SUPERBLOCK_BYTES {
        problems.push(SuperblockError::Truncated { need: SUPERBLOCK_BYTES, got });
    }
    match major {
        _ if major == own_major => problems.extend(fields.problems(size_sectors)),
        0 | 1 => return None,
        found => problems.push(SuperblockError::MajorVersion { found }),
    }
    Some(RawSuperblock { fields, problems })
}

/// What the bytes of a superblock say, believed or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSuperblock {
    fields: SuperblockFields,
    problems: Vec<SuperblockError>,
}

impl RawSuperblock {
    /// The fields, to show to a person. Nothing may be decided from them while there are problems.
    #[must_use]
    pub fn fields(&self) -> &SuperblockFields {
        &self.fields
    }

    /// The failed load checks; empty when the superblock can be loaded.
    #[must_use]
    pub fn problems(&self) -> &[SuperblockError] {
        &self.problems
    }

    /// The trusted superblock, when all checks passed.
    ///
    /// # Errors
    /// Gives the untrusted one back when a check failed.
    pub fn validate(self) -> Result<Superblock, RawSuperblock> {
        if self.problems.is_empty() { Ok(Superblock { fields: self.fields }) } else { Err(self) }
    }
}

impl fmt::Display for RawSuperblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "md {} superblock at sector {}", self.fields.version(), self.fields.found_at_sectors())?;
        for (i, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for RawSuperblock {}

/// A superblock that passed the load checks. Reads through [`SuperblockFields`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    fields: SuperblockFields,
}

impl Deref for Superblock {
    type Target = SuperblockFields;
    fn deref(&self) -> &SuperblockFields {
        &self.fields
    }
}

/// What differs between the superblocks of one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFields {
    /// Index in the role table.
    pub dev_number: u32,
    /// Id of the device (1.x).
    pub device_uuid: Uuid,
    /// Place of the superblock, in sectors.
    pub super_offset_sectors: u64,
    /// First data sector (1.x).
    pub data_offset_sectors: u64,
    /// Sectors usable for data (1.x).
    pub data_size_sectors: u64,
    /// The device is valid below this only; sets [`Features::RECOVERY_OFFSET`] (1.x).
    pub recovery_offset: Option<u64>,
    /// The second holder of its slot (1.x).
    pub replacement: bool,
    /// Bad block log (1.x).
    pub bad_block_log: Option<BadBlockArea>,
    /// Flags.
    pub flags: DeviceFlags,
}

/// A setter for a field that only 1.x has.
macro_rules! only_1x {
    ($self:ident, $field:literal, $fields:ident => $change:expr) => {{
        let version = $self.version();
        let SuperblockFields::V1($fields) = &mut $self.fields else {
            return Err(SetError::NotInVersion { version, field: $field });
        };
        $change;
        $self.seal();
        Ok(())
    }};
}

/// Setters of what changes while an array runs. After each the checksum is right.
impl Superblock {
    /// Wraps fields built by `create`, sealing them.
    pub(super) fn from_fields(fields: SuperblockFields) -> Self {
        let mut superblock = Superblock { fields };
        superblock.seal();
        superblock
    }

    /// The load checks again, for a component of `size_sectors`: to be asked before writing, since
    /// setters can combine what must not be combined.
    #[must_use]
    pub fn check(&self, size_sectors: u64) -> Vec<SuperblockError> {
        self.fields.problems(size_sectors)
    }

    /// Generation.
    pub fn set_events(&mut self, events: u64) {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_events(events),
            SuperblockFields::V1(fields) => fields.put_u64(field::EVENTS, events),
        }
        self.seal();
    }

    /// See [`SuperblockFields::resync_offset`]. 0.90 stores at most 2^32−2; more is stored as that.
    pub fn set_resync_offset(&mut self, offset: u64) {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_resync_offset(offset),
            SuperblockFields::V1(fields) => fields.put_u64(field::RESYNC_OFFSET, offset),
        }
        self.seal();
    }

    /// Time of the last update.
    #[must_use]
    pub fn utime(&self) -> Timestamp {
        match &self.fields {
            SuperblockFields::V0(fields) => fields.utime(),
            SuperblockFields::V1(fields) => fields.utime(),
        }
    }

    /// Time of the update.
    pub fn set_utime(&mut self, time: Timestamp) {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_word(word::UTIME, time.secs as u32),
            SuperblockFields::V1(fields) => fields.put_u64(field::UTIME, time.to_raw()),
        }
        self.seal();
    }

    /// Gives a device a role and returns the number it has afterwards. In 1.x that is `dev_number`
    /// and the table grows as needed. In 0.90 numbers follow roles: an active device moves to the
    /// descriptor of its slot, a failed or spare one behind the slots; states, counters and
    /// `this_disk` follow as md keeps them.
    ///
    /// # Errors
    /// The table has no such entry and cannot grow, or 0.90 cannot express the role.
    pub fn set_role(&mut self, dev_number: u32, role: DeviceRole) -> Result<u32, SetError> {
        let number = match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_role(dev_number, Some(role))?.unwrap_or(dev_number),
            SuperblockFields::V1(fields) => fields.put_role(dev_number, role).map(|()| dev_number)?,
        };
        self.seal();
        Ok(number)
    }

    /// Forgets a device: its entry becomes unused.
    ///
    /// # Errors
    /// As [`Superblock::set_role`].
    pub fn remove_device(&mut self, dev_number: u32) -> Result<(), SetError> {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_role(dev_number, None).map(|_| ())?,
            SuperblockFields::V1(fields) if dev_number >= fields.max_devices() => {}
            SuperblockFields::V1(fields) => fields.put_role(dev_number, DeviceRole::Spare)?,
        }
        self.seal();
        Ok(())
    }

    /// Sets feature bits. 0.90 knows only [`Features::BITMAP`].
    ///
    /// # Errors
    /// 0.90 has no such bit.
    pub fn add_features(&mut self, bits: Features) -> Result<(), SetError> {
        self.put_features(bits, true)
    }

    /// Clears feature bits. Clearing what 0.90 does not have is no error.
    pub fn clear_features(&mut self, bits: Features) {
        let bits = if self.version().is_1x() { bits } else { Features(bits.0 & Features::BITMAP.0) };
        self.put_features(bits, false).expect("clearing bits that exist fails in no version");
    }

    fn put_features(&mut self, bits: Features, on: bool) -> Result<(), SetError> {
        match &mut self.fields {
            SuperblockFields::V1(fields) => fields.put_feature(bits, on),
            SuperblockFields::V0(fields) if bits == Features::BITMAP => fields.put_bitmap(on),
            SuperblockFields::V0(_) if bits == Features::default() => {}
            SuperblockFields::V0(_) => {
                return Err(SetError::NotInVersion { version: Version::V090, field: "feature bits" });
            }
        }
        self.seal();
        Ok(())
    }

    /// How far this device is rebuilt, with its feature bit; `None` when it is whole.
    ///
    /// # Errors
    /// 0.90 has no such field: a half-rebuilt device starts over.
    pub fn set_recovery_offset(&mut self, offset: Option<u64>) -> Result<(), SetError> {
        only_1x!(self, "recovery_offset", fields => {
            fields.put_feature(Features::RECOVERY_OFFSET, offset.is_some());
            fields.put_u64(field::RECOVERY_OFFSET, offset.unwrap_or(0));
        })
    }

    /// Ring position of the oldest journal block needed.
    ///
    /// # Errors
    /// 0.90 has no journal.
    pub fn set_journal_tail(&mut self, position_sectors: u64) -> Result<(), SetError> {
        only_1x!(self, "journal_tail", fields => fields.put_u64(field::RECOVERY_OFFSET, position_sectors))
    }

    /// Read errors mended so far.
    ///
    /// # Errors
    /// 0.90 does not count them.
    pub fn set_corrected_reads(&mut self, count: u32) -> Result<(), SetError> {
        only_1x!(self, "corrected_reads", fields => fields.put_u32(field::CORRECTED_READS, count))
    }

    /// Flags of this device.
    pub fn set_device_flags(&mut self, flags: DeviceFlags) {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_device_flags(flags),
            SuperblockFields::V1(fields) => fields.put_bytes(field::DEVFLAGS, &[flags.0]),
        }
        self.seal();
    }

    /// Name of the array, at most 32 bytes.
    ///
    /// # Errors
    /// Too long, or 0.90.
    pub fn set_name(&mut self, name: &[u8]) -> Result<(), SetError> {
        only_1x!(self, "the array name", fields => fields.put_name(name)?)
    }

    /// Id of the array. Its bitmap, PPL and journal carry the id too and must be rewritten.
    pub fn set_set_uuid(&mut self, uuid: Uuid) {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_uuid(uuid),
            SuperblockFields::V1(fields) => fields.put_bytes(field::SET_UUID, &uuid.0),
        }
        self.seal();
    }

    fn seal(&mut self) {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.seal(),
            SuperblockFields::V1(fields) => fields.seal(),
        }
    }
}

/// Setters of the array's shape: reshape, takeover, grow.
impl Superblock {
    /// Level.
    pub fn set_level(&mut self, level: i32) {
        self.put_either(word::LEVEL, field::LEVEL, level as u32);
    }

    /// Layout word.
    pub fn set_layout(&mut self, layout: u32) {
        self.put_either(word::LAYOUT, field::LAYOUT, layout);
    }

    /// Slots. Roles are not touched.
    pub fn set_raid_disks(&mut self, raid_disks: u32) {
        self.put_either(word::RAID_DISKS, field::RAID_DISKS, raid_disks);
    }

    fn put_either(&mut self, word: usize, at: usize, value: u32) {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_word(word, value),
            SuperblockFields::V1(fields) => fields.put_u32(at, value),
        }
        self.seal();
    }

    /// Chunk, in sectors.
    ///
    /// # Errors
    /// 0.90 counts bytes in 32 bits.
    pub fn set_chunk_sectors(&mut self, sectors: u32) -> Result<(), SetError> {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_chunk_sectors(sectors)?,
            SuperblockFields::V1(fields) => fields.put_u32(field::CHUNK, sectors),
        }
        self.seal();
        Ok(())
    }

    /// Sectors used of each component. 0.90 counts KiB and drops an odd sector.
    ///
    /// # Errors
    /// 0.90 counts KiB in 32 bits.
    pub fn set_size_sectors(&mut self, sectors: u64) -> Result<(), SetError> {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_size_sectors(sectors)?,
            SuperblockFields::V1(fields) => fields.put_u64(field::SIZE, sectors),
        }
        self.seal();
        Ok(())
    }

    /// Where this device's data starts and how much fits. Entries of a bad block log stay as they
    /// are: they count from the start of the device.
    ///
    /// # Errors
    /// 0.90 data starts at sector 0 and ends at the superblock.
    pub fn set_data_area(&mut self, offset_sectors: u64, size_sectors: u64) -> Result<(), SetError> {
        only_1x!(self, "data_offset", fields => {
            fields.put_u64(field::DATA_OFFSET, offset_sectors);
            fields.put_u64(field::DATA_SIZE, size_sectors);
        })
    }

    /// The reshape in progress, with its feature bits (0.90: with minor version 91).
    ///
    /// # Errors
    /// 0.90 counts the new chunk as bytes in 32 bits.
    pub fn set_reshape(&mut self, reshape: Option<Reshape>) -> Result<(), SetError> {
        match &mut self.fields {
            SuperblockFields::V0(fields) => fields.put_reshape(reshape)?,
            SuperblockFields::V1(fields) => fields.put_reshape(reshape),
        }
        self.seal();
        Ok(())
    }

    /// Position of the reshape in progress, in array sectors; nothing else changes.
    pub fn set_reshape_position(&mut self, position: u64) {
        if let Some(reshape) = self.reshape() {
            self.set_reshape(Some(Reshape { position, ..reshape }))
                .expect("a reshape read from a superblock fits back");
        }
    }

    /// Where the bitmap is, with its feature bit; `None` removes both. For 0.90 the place is fixed
    /// (8 sectors on).
    ///
    /// # Errors
    /// 0.90 and another place.
    pub fn set_bitmap_offset(&mut self, offset_sectors: Option<i32>) -> Result<(), SetError> {
        match &mut self.fields {
            SuperblockFields::V0(fields) => match offset_sectors {
                None => fields.put_bitmap(false),
                Some(superblock0::BITMAP_OFFSET_SECTORS) => fields.put_bitmap(true),
                Some(_) => {
                    return Err(SetError::NotInVersion {
                        version: Version::V090,
                        field: "a bitmap at another place than 8 sectors after the superblock",
                    });
                }
            },
            SuperblockFields::V1(fields) => {
                fields.put_feature(Features::BITMAP, offset_sectors.is_some());
                fields.put_u32(field::BITMAP_OFFSET, offset_sectors.unwrap_or(0) as u32);
            }
        }
        self.seal();
        Ok(())
    }

    /// The PPL area. Which of the two feature bits says so is the caller's
    /// ([`Superblock::add_features`]).
    ///
    /// # Errors
    /// 0.90 has none.
    pub fn set_ppl_area(&mut self, area: PplArea) -> Result<(), SetError> {
        only_1x!(self, "ppl_offset", fields => fields.put_ppl(area))
    }

    /// The bad block log's place. [`Features::BAD_BLOCKS`] is separate: it says that the log holds
    /// entries.
    ///
    /// # Errors
    /// 0.90 has none.
    pub fn set_bad_block_log(&mut self, area: Option<BadBlockArea>) -> Result<(), SetError> {
        only_1x!(self, "bblog_offset", fields => fields.put_bad_block_log(area))
    }

    /// Logical block size (§10.1). Only on an explicit wish: kernels up to 6.18 then refuse the
    /// array.
    ///
    /// # Errors
    /// 0.90 has no place for it.
    pub fn set_logical_block_size(&mut self, bytes: Option<u32>) -> Result<(), SetError> {
        only_1x!(self, "logical_block_size", fields => {
            fields.put_u32(field::LOGICAL_BLOCK_SIZE, bytes.unwrap_or(0));
        })
    }
}

/// Superblocks made from other members' superblocks.
impl Superblock {
    /// The superblock of another device of this array: all that describes the array from here, the
    /// rest from `device`.
    ///
    /// # Errors
    /// 0.90 and a number past its table.
    pub fn for_device(&self, device: &DeviceFields) -> Result<Superblock, SetError> {
        let mut new = self.clone();
        match &mut new.fields {
            SuperblockFields::V0(fields) => {
                fields.found_at_sectors = device.super_offset_sectors;
                fields.put_dev_number(device.dev_number)?;
                fields.put_device_flags(device.flags);
            }
            SuperblockFields::V1(fields) => put_device(fields, device),
        }
        new.seal();
        Ok(new)
    }

    /// Takes over what `fresh`, a superblock of the same array and version, says about the array,
    /// keeping what describes this device. In 0.90 this device is then the one with the given
    /// number of the fresh table.
    ///
    /// # Errors
    /// The versions differ, or the number lies past the 0.90 table.
    pub fn follow(&mut self, fresh: &Superblock, dev_number: u32) -> Result<(), SetError> {
        let version = self.version();
        let next = match (&self.fields, &fresh.fields) {
            (SuperblockFields::V0(own), SuperblockFields::V0(_)) => {
                let mut next = fresh.clone();
                if let SuperblockFields::V0(fields) = &mut next.fields {
                    fields.found_at_sectors = own.found_at_sectors;
                    fields.put_dev_number(dev_number)?;
                }
                next
            }
            (SuperblockFields::V1(own), SuperblockFields::V1(other)) if own.version == other.version => {
                let mut next = own.clone();
                follow_1x(&mut next, other);
                next.put_u32(field::DEV_NUMBER, dev_number);
                Superblock { fields: SuperblockFields::V1(next) }
            }
            _ => return Err(SetError::NotInVersion { version, field: "another version's superblock" }),
        };
        *self = next;
        self.seal();
        Ok(())
    }
}

/// Byte ranges of a 1.x superblock that describe the array; feature_map is handled by its bits, and
/// new_offset, data area, recovery state, ids and the bad block log belong to the device.
const ARRAY_RANGES: [(usize, usize); 5] = [
    (field::SET_UUID, field::NEW_OFFSET),
    (field::UTIME, field::CHECKSUM),
    (field::MAX_DEV, field::LOGICAL_BLOCK_SIZE),
    (field::LOGICAL_BLOCK_SIZE, field::DEV_ROLES),
    (field::DEV_ROLES, SUPERBLOCK_BYTES),
];

fn follow_1x(own: &mut Fields1, fresh: &Fields1) {
    let device_bits = own.features().0 & Features::OF_DEVICE.0;
    let features = fresh.features().without(Features::OF_DEVICE) | Features(device_bits);
    own.put_u32(field::FEATURE_MAP, features.0);
    for (start, end) in ARRAY_RANGES {
        own.bytes[start..end].copy_from_slice(&fresh.bytes[start..end]);
    }
}

pub(super) fn put_device(fields: &mut Fields1, device: &DeviceFields) {
    fields.found_at_sectors = device.super_offset_sectors;
    fields.put_u64(field::SUPER_OFFSET, device.super_offset_sectors);
    fields.put_u64(field::DATA_OFFSET, device.data_offset_sectors);
    fields.put_u64(field::DATA_SIZE, device.data_size_sectors);
    fields.put_u64(field::RECOVERY_OFFSET, device.recovery_offset.unwrap_or(0));
    fields.put_u32(field::DEV_NUMBER, device.dev_number);
    fields.put_u32(field::CORRECTED_READS, 0);
    fields.put_bytes(field::DEVICE_UUID, &device.device_uuid.0);
    fields.put_bytes(field::DEVFLAGS, &[device.flags.0]);
    fields.put_u32(field::NEW_OFFSET, 0);
    fields.put_bad_block_log(device.bad_block_log);
    fields.put_feature(Features::OF_DEVICE, false);
    fields.put_feature(Features::RECOVERY_OFFSET, device.recovery_offset.is_some());
    fields.put_feature(Features::REPLACEMENT, device.replacement);
}
