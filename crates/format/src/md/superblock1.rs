//! The 1.x superblock (versions 1.0, 1.1, 1.2): docs/formats.md §1.2, §1.3, load checks §1.5,
//! §10.1.
//!
//! [`Fields1`] is the 4096 bytes as read plus where they were found. Getters never panic, whatever
//! the bytes; setters patch one field. Nothing is ever re-encoded from parsed values, which is how
//! unknown and reserved bytes survive.

use super::checksum;
use super::error::{SetError, SuperblockError};
use super::features::{BadBlockArea, DeviceFlags, DeviceRole, Features, PplArea, Reshape, Timestamp};
use super::location::{SUPERBLOCK_BYTES, Version};
use super::uuid::Uuid;
use crate::bytes::{array, first_nonzero, le16, le32, le64, put, put_le16, put_le32, put_le64};

/// Magic of every md superblock.
pub(crate) const MAGIC: u32 = 0xa92b_4efc;
/// Most entries dev_roles can have.
pub(crate) const MAX_DEVICES: u32 = 1920;
/// Smallest data area the kernel accepts.
const MIN_DATA_SECTORS: u64 = 10;
/// Longest bad block log the kernel accepts.
const MAX_BAD_BLOCK_LOG_SECTORS: u16 = 8;

/// Byte offsets.
pub(crate) mod field {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const MAJOR_VERSION: usize = 4;
    pub(crate) const FEATURE_MAP: usize = 8;
    pub(crate) const PAD0: usize = 12;
    pub(crate) const SET_UUID: usize = 16;
    pub(crate) const SET_NAME: usize = 32;
    pub(crate) const SET_NAME_LEN: usize = 32;
    pub(crate) const CTIME: usize = 64;
    pub(crate) const LEVEL: usize = 72;
    pub(crate) const LAYOUT: usize = 76;
    pub(crate) const SIZE: usize = 80;
    pub(crate) const CHUNK: usize = 88;
    pub(crate) const RAID_DISKS: usize = 92;
    pub(crate) const BITMAP_OFFSET: usize = 96;
    pub(crate) const PPL_SIZE: usize = 98;
    pub(crate) const NEW_LEVEL: usize = 100;
    pub(crate) const RESHAPE_POSITION: usize = 104;
    pub(crate) const DELTA_DISKS: usize = 112;
    pub(crate) const NEW_LAYOUT: usize = 116;
    pub(crate) const NEW_CHUNK: usize = 120;
    pub(crate) const NEW_OFFSET: usize = 124;
    pub(crate) const DATA_OFFSET: usize = 128;
    pub(crate) const DATA_SIZE: usize = 136;
    pub(crate) const SUPER_OFFSET: usize = 144;
    pub(crate) const RECOVERY_OFFSET: usize = 152;
    pub(crate) const DEV_NUMBER: usize = 160;
    pub(crate) const CORRECTED_READS: usize = 164;
    pub(crate) const DEVICE_UUID: usize = 168;
    pub(crate) const DEVFLAGS: usize = 184;
    pub(crate) const BBLOG_SHIFT: usize = 185;
    pub(crate) const BBLOG_SIZE: usize = 186;
    pub(crate) const BBLOG_OFFSET: usize = 188;
    pub(crate) const UTIME: usize = 192;
    pub(crate) const EVENTS: usize = 200;
    pub(crate) const RESYNC_OFFSET: usize = 208;
    pub(crate) const CHECKSUM: usize = 216;
    pub(crate) const MAX_DEV: usize = 220;
    pub(crate) const LOGICAL_BLOCK_SIZE: usize = 224;
    pub(crate) const PAD3: usize = 228;
    pub(crate) const DEV_ROLES: usize = 256;
}

/// The bytes of a 1.x superblock and where they were found. See [`super::SuperblockFields`] for the
/// meaning of the getters.
#[derive(Clone, PartialEq, Eq)]
pub struct Fields1 {
    pub(super) version: Version,
    pub(super) found_at_sectors: u64,
    pub(super) bytes: Box<[u8; SUPERBLOCK_BYTES]>,
}

impl Fields1 {
    /// Every load check the bytes fail, on a component of `size_sectors`. Empty means acceptable.
    pub(super) fn problems(&self, size_sectors: u64) -> Vec<SuperblockError> {
        let mut problems = self.problems_of_bytes();
        let (data_offset, data_size) = (self.data_offset_sectors(), self.data_size_sectors());
        let room = match self.version {
            Version::V10 => self.super_offset_sectors(),
            _ => size_sectors.saturating_sub(data_offset),
        };
        if data_size > room {
            problems.push(SuperblockError::DeviceTooSmall { need: data_size, have: room });
        }
        let moved = i128::from(data_offset) + i128::from(self.new_offset().unwrap_or(0));
        let lowest = moved.min(i128::from(data_offset));
        let superblock_end = self.found_at_sectors.saturating_add((self.covered_len() as u64).div_ceil(512));
        if self.version != Version::V10 && lowest < i128::from(superblock_end) {
            problems.push(SuperblockError::DataOverSuperblock { data_offset: lowest, superblock_end });
        }
        problems
    }

    /// The checks that need nothing but the superblock and its place.
    fn problems_of_bytes(&self) -> Vec<SuperblockError> {
        let mut problems = Vec::new();
        let mut check = |bad: bool, problem: SuperblockError| {
            if bad {
                problems.push(problem);
            }
        };
        let max_dev = self.raw_max_devices();
        check(max_dev > MAX_DEVICES, SuperblockError::TooManyDevices { found: max_dev, max: MAX_DEVICES });
        let (stored, computed) = (self.checksum(), self.computed_checksum());
        check(stored != computed, SuperblockError::BadChecksum { stored, computed });
        let (stored, found_at) = (self.super_offset_sectors(), self.found_at_sectors);
        check(stored != found_at, SuperblockError::WrongOffset { stored, found_at });
        let features = self.features();
        check(features.unknown() != 0, SuperblockError::UnknownFeatures(features.unknown()));
        if let Some(conflict) = features.conflict() {
            check(true, SuperblockError::ConflictingFeatures(conflict));
        }
        let level = self.level();
        check(
            features.contains(Features::RAID0_LAYOUT) && level != 0,
            SuperblockError::Raid0LayoutOnLevel { level },
        );
        let data_size = self.data_size_sectors();
        check(data_size < MIN_DATA_SECTORS, SuperblockError::DataTooSmall { found: data_size });
        for (start, end) in [(field::PAD0, field::SET_UUID), (field::PAD3, field::DEV_ROLES)] {
            if let Some(at) = first_nonzero(&self.bytes[start..end]) {
                check(true, SuperblockError::ReservedNotZero { offset: start + at });
            }
        }
        // Hazard 5: Linux 6.19 gave this reserved word a meaning; refusing it would lock newer
        // arrays out.
        let block = le32(&self.bytes[..], field::LOGICAL_BLOCK_SIZE);
        check(
            block != 0 && (block < 512 || !block.is_power_of_two()),
            SuperblockError::LogicalBlockSize { found: block },
        );
        let bblog_size = le16(&self.bytes[..], field::BBLOG_SIZE);
        check(bblog_size > MAX_BAD_BLOCK_LOG_SECTORS, SuperblockError::BadBlockLogSize { found: bblog_size });
        let shift = self.bytes[field::BBLOG_SHIFT];
        check(shift >= 64, SuperblockError::BadBlockShift { found: shift });
        problems
    }

    /// Bytes under the checksum; a max_dev beyond the limit covers the whole block.
    fn covered_len(&self) -> usize {
        field::DEV_ROLES + 2 * self.max_devices() as usize
    }

    pub(super) fn computed_checksum(&self) -> u32 {
        checksum::superblock1(&self.bytes[..self.covered_len()], field::CHECKSUM)
    }

    pub(super) fn seal(&mut self) {
        let computed = self.computed_checksum();
        put_le32(&mut self.bytes[..], field::CHECKSUM, computed);
    }

    fn i32_at(&self, at: usize) -> i32 {
        i32::from_le_bytes(array(&self.bytes[..], at))
    }

    fn raw_max_devices(&self) -> u32 {
        le32(&self.bytes[..], field::MAX_DEV)
    }

    fn new_offset(&self) -> Option<i32> {
        self.features().contains(Features::NEW_OFFSET).then(|| self.i32_at(field::NEW_OFFSET))
    }
}

/// Getters, in the order of the bytes.
impl Fields1 {
    pub(super) fn features(&self) -> Features {
        Features(le32(&self.bytes[..], field::FEATURE_MAP))
    }

    pub(super) fn set_uuid(&self) -> Uuid {
        Uuid(array(&self.bytes[..], field::SET_UUID))
    }

    pub(super) fn stored_uuid(&self) -> [u8; 16] {
        self.set_uuid().0
    }

    pub(super) fn name_bytes(&self) -> &[u8] {
        let name = &self.bytes[field::SET_NAME..field::SET_NAME + field::SET_NAME_LEN];
        name.split(|&byte| byte == 0).next().unwrap_or(name)
    }

    pub(super) fn ctime(&self) -> Timestamp {
        Timestamp::from_raw(le64(&self.bytes[..], field::CTIME))
    }

    pub(super) fn level(&self) -> i32 {
        self.i32_at(field::LEVEL)
    }

    pub(super) fn layout(&self) -> u32 {
        le32(&self.bytes[..], field::LAYOUT)
    }

    pub(super) fn size_sectors(&self) -> u64 {
        le64(&self.bytes[..], field::SIZE)
    }

    pub(super) fn chunk_sectors(&self) -> u32 {
        le32(&self.bytes[..], field::CHUNK)
    }

    pub(super) fn raid_disks(&self) -> u32 {
        le32(&self.bytes[..], field::RAID_DISKS)
    }

    pub(super) fn bitmap_offset_sectors(&self) -> Option<i32> {
        self.features().contains(Features::BITMAP).then(|| self.i32_at(field::BITMAP_OFFSET))
    }

    pub(super) fn ppl(&self) -> Option<PplArea> {
        self.features().intersects(Features::PPL | Features::MULTIPLE_PPLS).then(|| PplArea {
            offset_sectors: i16::from_le_bytes(array(&self.bytes[..], field::BITMAP_OFFSET)),
            size_sectors: le16(&self.bytes[..], field::PPL_SIZE),
        })
    }

    pub(super) fn reshape(&self) -> Option<Reshape> {
        let features = self.features();
        if !features.contains(Features::RESHAPE) {
            return None;
        }
        let delta_disks = self.i32_at(field::DELTA_DISKS);
        Some(Reshape {
            position: le64(&self.bytes[..], field::RESHAPE_POSITION),
            new_level: self.i32_at(field::NEW_LEVEL),
            delta_disks,
            new_layout: le32(&self.bytes[..], field::NEW_LAYOUT),
            new_chunk_sectors: le32(&self.bytes[..], field::NEW_CHUNK),
            backwards: delta_disks < 0 || delta_disks == 0 && features.contains(Features::RESHAPE_BACKWARDS),
            new_offset_sectors: self.new_offset(),
        })
    }

    pub(super) fn data_offset_sectors(&self) -> u64 {
        le64(&self.bytes[..], field::DATA_OFFSET)
    }

    pub(super) fn data_size_sectors(&self) -> u64 {
        le64(&self.bytes[..], field::DATA_SIZE)
    }

    pub(super) fn super_offset_sectors(&self) -> u64 {
        le64(&self.bytes[..], field::SUPER_OFFSET)
    }

    pub(super) fn recovery_offset(&self) -> Option<u64> {
        (self.features().contains(Features::RECOVERY_OFFSET) && self.role() != DeviceRole::Journal)
            .then(|| le64(&self.bytes[..], field::RECOVERY_OFFSET))
    }

    pub(super) fn journal_tail(&self) -> Option<u64> {
        (self.role() == DeviceRole::Journal).then(|| le64(&self.bytes[..], field::RECOVERY_OFFSET))
    }

    pub(super) fn dev_number(&self) -> u32 {
        le32(&self.bytes[..], field::DEV_NUMBER)
    }

    pub(super) fn corrected_reads(&self) -> u32 {
        le32(&self.bytes[..], field::CORRECTED_READS)
    }

    pub(super) fn device_uuid(&self) -> Option<Uuid> {
        Some(Uuid(array(&self.bytes[..], field::DEVICE_UUID)))
    }

    pub(super) fn device_flags(&self) -> DeviceFlags {
        DeviceFlags(self.bytes[field::DEVFLAGS])
    }

    pub(super) fn bad_block_log(&self) -> Option<BadBlockArea> {
        let offset_sectors = self.i32_at(field::BBLOG_OFFSET);
        (offset_sectors != 0).then(|| BadBlockArea {
            offset_sectors,
            size_sectors: le16(&self.bytes[..], field::BBLOG_SIZE),
            shift: self.bytes[field::BBLOG_SHIFT],
        })
    }

    pub(super) fn utime(&self) -> Timestamp {
        Timestamp::from_raw(le64(&self.bytes[..], field::UTIME))
    }

    pub(super) fn events(&self) -> u64 {
        le64(&self.bytes[..], field::EVENTS)
    }

    pub(super) fn resync_offset(&self) -> u64 {
        le64(&self.bytes[..], field::RESYNC_OFFSET)
    }

    pub(super) fn checksum(&self) -> u32 {
        le32(&self.bytes[..], field::CHECKSUM)
    }

    pub(super) fn max_devices(&self) -> u32 {
        self.raw_max_devices().min(MAX_DEVICES)
    }

    pub(super) fn logical_block_size(&self) -> Option<u32> {
        Some(le32(&self.bytes[..], field::LOGICAL_BLOCK_SIZE)).filter(|&bytes| bytes != 0)
    }

    pub(super) fn role_of(&self, dev_number: u32) -> DeviceRole {
        if dev_number >= self.max_devices() {
            return DeviceRole::Spare;
        }
        DeviceRole::from_raw(le16(&self.bytes[..], field::DEV_ROLES + 2 * dev_number as usize))
    }

    fn role(&self) -> DeviceRole {
        self.role_of(self.dev_number())
    }
}

/// Setters. None of them seals; [`super::Superblock`] does that once per call.
impl Fields1 {
    pub(super) fn put_u32(&mut self, at: usize, value: u32) {
        put_le32(&mut self.bytes[..], at, value);
    }

    pub(super) fn put_u64(&mut self, at: usize, value: u64) {
        put_le64(&mut self.bytes[..], at, value);
    }

    pub(super) fn put_bytes(&mut self, at: usize, value: &[u8]) {
        put(&mut self.bytes[..], at, value);
    }

    pub(super) fn put_feature(&mut self, bits: Features, on: bool) {
        let features = if on { self.features() | bits } else { self.features().without(bits) };
        self.put_u32(field::FEATURE_MAP, features.0);
    }

    pub(super) fn put_name(&mut self, name: &[u8]) -> Result<(), SetError> {
        let mut padded = [0; field::SET_NAME_LEN];
        let Some(start) = padded.get_mut(..name.len()) else {
            let (value, max) = (name.len() as u64, field::SET_NAME_LEN as u64);
            return Err(SetError::TooLarge { field: "name length", value, max });
        };
        start.copy_from_slice(name);
        self.put_bytes(field::SET_NAME, &padded);
        Ok(())
    }

    pub(super) fn put_reshape(&mut self, reshape: Option<Reshape>) {
        let all = Features::RESHAPE | Features::RESHAPE_BACKWARDS | Features::NEW_OFFSET;
        self.put_feature(all, false);
        let reshape = match reshape {
            Some(reshape) => {
                self.put_feature(Features::RESHAPE, true);
                let down = reshape.backwards && reshape.delta_disks == 0;
                self.put_feature(Features::RESHAPE_BACKWARDS, down);
                self.put_feature(Features::NEW_OFFSET, reshape.new_offset_sectors.is_some());
                reshape
            }
            None => Reshape {
                position: 0,
                new_level: 0,
                delta_disks: 0,
                new_layout: 0,
                new_chunk_sectors: 0,
                backwards: false,
                new_offset_sectors: None,
            },
        };
        self.put_u32(field::NEW_LEVEL, reshape.new_level as u32);
        self.put_u64(field::RESHAPE_POSITION, reshape.position);
        self.put_u32(field::DELTA_DISKS, reshape.delta_disks as u32);
        self.put_u32(field::NEW_LAYOUT, reshape.new_layout);
        self.put_u32(field::NEW_CHUNK, reshape.new_chunk_sectors);
        self.put_u32(field::NEW_OFFSET, reshape.new_offset_sectors.unwrap_or(0) as u32);
    }

    pub(super) fn put_bad_block_log(&mut self, area: Option<BadBlockArea>) {
        let area = area.unwrap_or(BadBlockArea { offset_sectors: 0, size_sectors: 0, shift: 0 });
        self.bytes[field::BBLOG_SHIFT] = area.shift;
        put_le16(&mut self.bytes[..], field::BBLOG_SIZE, area.size_sectors);
        self.put_u32(field::BBLOG_OFFSET, area.offset_sectors as u32);
    }

    pub(super) fn put_ppl(&mut self, area: PplArea) {
        put(&mut self.bytes[..], field::BITMAP_OFFSET, &area.offset_sectors.to_le_bytes());
        put_le16(&mut self.bytes[..], field::PPL_SIZE, area.size_sectors);
    }

    /// Writes the role, growing the table by whole sectors of the superblock when it ends before
    /// `dev_number`.
    pub(super) fn put_role(&mut self, dev_number: u32, role: DeviceRole) -> Result<(), SetError> {
        if dev_number >= MAX_DEVICES {
            let (value, max) = (u64::from(dev_number), u64::from(MAX_DEVICES) - 1);
            return Err(SetError::TooLarge { field: "dev_number", value, max });
        }
        let old = self.max_devices();
        if dev_number >= old {
            let new = table_entries(dev_number + 1);
            let (start, end) = (field::DEV_ROLES + 2 * old as usize, field::DEV_ROLES + 2 * new as usize);
            self.bytes[start..end].fill(0xff);
            self.put_u32(field::MAX_DEV, new);
        }
        put_le16(&mut self.bytes[..], field::DEV_ROLES + 2 * dev_number as usize, role.to_raw());
        Ok(())
    }
}

/// Entries of the smallest role table that holds `devices` and fills its last sector: 128 for small
/// arrays (§1.8).
pub(crate) fn table_entries(devices: u32) -> u32 {
    let bytes = (field::DEV_ROLES as u32 + 2 * devices.min(MAX_DEVICES)).next_multiple_of(512);
    (bytes - field::DEV_ROLES as u32) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_table_sizes() {
        for (devices, entries) in
            [(1, 128), (128, 128), (129, 384), (384, 384), (1920, 1920), (u32::MAX, 1920)]
        {
            assert_eq!(table_entries(devices), entries, "{devices} devices");
        }
    }
}
