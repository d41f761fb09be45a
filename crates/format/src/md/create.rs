//! New superblocks as mdadm writes them: docs/formats.md §1.2, §1.4, §1.8. Where things go is
//! decided by [`super::defaults`]; this module only turns the decisions into bytes. The companion
//! areas start as [`super::bitmap::new_image`], [`super::badblocks::empty_area`],
//! [`super::ppl::empty_area`] and [`super::journal::MetaBlock::empty`].

use super::error::{SetError, SuperblockError};
use super::features::{DeviceFlags, DeviceRole, Features, PplArea, Timestamp};
use super::fields::SuperblockFields;
use super::location::{SUPERBLOCK_BYTES, Version};
use super::superblock::{DeviceFields, Superblock, put_device};
use super::superblock0::{self, ByteOrder, Fields0, word};
use super::superblock1::{self, Fields1, MAGIC, field};
use super::uuid::Uuid;

/// What the superblocks of a new array share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewArray {
    /// Metadata version.
    pub version: Version,
    /// Random id.
    pub set_uuid: Uuid,
    /// At most 32 bytes, `host:name`; not stored by 0.90.
    pub name: Vec<u8>,
    /// Now; also the first update time.
    pub ctime: Timestamp,
    /// RAID level.
    pub level: i32,
    /// Layout word of the level.
    pub layout: u32,
    /// Chunk in sectors, 0 for RAID 1.
    pub chunk_sectors: u32,
    /// Slots.
    pub raid_disks: u32,
    /// [`super::defaults::component_size_sectors`].
    pub size_sectors: u64,
    /// `u64::MAX` for an array that starts in sync, 0 for one to be resynced.
    pub resync_offset: u64,
    /// Roles by device number; entries past the end are unused. For 0.90 active devices come first,
    /// at their slots.
    pub roles: Vec<DeviceRole>,
    /// From the superblock to the bitmap, in sectors; sets the feature bit. 0.90 allows only 8.
    pub bitmap_offset_sectors: Option<i32>,
    /// PPL area; sets the one-log feature bit, as mdadm does.
    pub ppl: Option<PplArea>,
    /// Further feature bits: journal, raid0-layout.
    pub features: Features,
    /// Preferred md minor number (0.90).
    pub md_minor: u32,
    /// Device node numbers by device number (0.90 only, informative).
    pub nodes: Vec<(u32, u32)>,
}

/// Why no superblock can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// A value does not fit this version.
    #[error(transparent)]
    DoesNotFit(#[from] SetError),
    /// The result would be refused by any reader.
    #[error("the superblock would not load: {0}")]
    WouldNotLoad(SuperblockError),
}

/// The superblock of one member of a new array, on a component of `size_sectors`. It has passed the
/// load checks.
///
/// # Errors
/// Values that do not fit the version, or a combination that no reader accepts.
pub fn superblock(
    array: &NewArray,
    device: &DeviceFields,
    size_sectors: u64,
) -> Result<Superblock, CreateError> {
    let mut superblock = match array.version {
        Version::V090 => version_0(array, device)?,
        _ => version_1(array, device)?,
    };
    superblock.set_events(first_events(array.version));
    superblock.set_resync_offset(array.resync_offset);
    superblock.set_utime(array.ctime);
    superblock.set_chunk_sectors(array.chunk_sectors)?;
    superblock.set_size_sectors(array.size_sectors)?;
    match superblock.check(size_sectors).into_iter().next() {
        Some(problem) => Err(CreateError::WouldNotLoad(problem)),
        None => Ok(superblock),
    }
}

/// mdadm starts 0.90 arrays at generation 1, others at 0.
#[must_use]
pub fn first_events(version: Version) -> u64 {
    if version.is_1x() { 0 } else { 1 }
}

fn version_1(array: &NewArray, device: &DeviceFields) -> Result<Superblock, CreateError> {
    let mut fields = Fields1 {
        version: array.version,
        found_at_sectors: device.super_offset_sectors,
        bytes: Box::new([0; SUPERBLOCK_BYTES]),
    };
    fields.put_u32(field::MAGIC, MAGIC);
    fields.put_u32(field::MAJOR_VERSION, 1);
    fields.put_bytes(field::SET_UUID, &array.set_uuid.0);
    fields.put_name(&array.name)?;
    fields.put_u64(field::CTIME, array.ctime.to_raw());
    fields.put_u32(field::LEVEL, array.level as u32);
    fields.put_u32(field::LAYOUT, array.layout);
    fields.put_u32(field::RAID_DISKS, array.raid_disks);
    put_device(&mut fields, device);
    fields.put_feature(array.features, true);
    if let Some(offset_sectors) = array.bitmap_offset_sectors {
        fields.put_feature(Features::BITMAP, true);
        fields.put_u32(field::BITMAP_OFFSET, offset_sectors as u32);
    }
    if let Some(area) = array.ppl {
        fields.put_feature(Features::PPL, true);
        fields.put_ppl(area);
    }

    let devices = u32::try_from(array.roles.len()).unwrap_or(u32::MAX).max(array.raid_disks);
    if devices > superblock1::MAX_DEVICES {
        let (value, max) = (u64::from(devices), u64::from(superblock1::MAX_DEVICES));
        return Err(SetError::TooLarge { field: "devices", value, max }.into());
    }
    let entries = superblock1::table_entries(devices);
    fields.put_u32(field::MAX_DEV, entries);
    fields.bytes[field::DEV_ROLES..field::DEV_ROLES + 2 * entries as usize].fill(0xff);
    for (dev_number, role) in (0..).zip(&array.roles) {
        fields.put_role(dev_number, *role)?;
    }
    Ok(Superblock::from_fields(SuperblockFields::V1(fields)))
}

fn version_0(array: &NewArray, device: &DeviceFields) -> Result<Superblock, CreateError> {
    let max = superblock0::MAX_DEVICES;
    if array.raid_disks > max {
        let value = u64::from(array.raid_disks);
        return Err(SetError::TooLarge { field: "raid_disks", value, max: u64::from(max) }.into());
    }
    let unsupported = |field| CreateError::from(SetError::NotInVersion { version: Version::V090, field });
    if array.features != Features::default() {
        return Err(unsupported("feature bits"));
    }
    if array.ppl.is_some() {
        return Err(unsupported("a partial parity log"));
    }
    let mut fields = Fields0 {
        order: ByteOrder::Little,
        found_at_sectors: device.super_offset_sectors,
        bytes: Box::new([0; SUPERBLOCK_BYTES]),
    };
    fields.put_word(word::MAGIC, MAGIC);
    fields.put_word(word::MAJOR, 0);
    fields.put_word(word::MINOR, 90);
    fields.put_uuid(array.set_uuid);
    fields.put_word(word::CTIME, array.ctime.secs as u32);
    fields.put_word(word::LEVEL, array.level as u32);
    fields.put_word(word::LAYOUT, array.layout);
    fields.put_word(word::RAID_DISKS, array.raid_disks);
    fields.put_word(word::MD_MINOR, array.md_minor);
    for (dev_number, role) in (0..).zip(&array.roles) {
        // An unused index below raid_disks is a missing slot, which the table shows by itself.
        if *role == DeviceRole::Spare && dev_number < array.raid_disks {
            continue;
        }
        let number = fields.put_role(dev_number, Some(*role))?;
        if let (Some(number), Some(&(major, minor))) = (number, array.nodes.get(dev_number as usize)) {
            fields.put_node(number, major, minor);
        }
    }
    fields.put_dev_number(device.dev_number)?;
    fields.put_device_flags(DeviceFlags(device.flags.0));
    let mut superblock = Superblock::from_fields(SuperblockFields::V0(fields));
    superblock.set_bitmap_offset(array.bitmap_offset_sectors)?;
    Ok(superblock)
}
