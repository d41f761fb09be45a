//! The 0.90 superblock (0.91 while reshaping): docs/formats.md §1.4, checksum §1.3.
//!
//! 1024 words in the byte order of the machine that wrote them; the order is told by the magic and
//! kept on write. Active devices sit in the descriptor of their slot, others from raid_disks up, so
//! a device's number changes with its role: [`Fields0::put_role`] lays the table out anew and keeps
//! the counters that md derives from it.

use super::checksum;
use super::error::{SetError, SuperblockError};
use super::features::{DeviceFlags, DeviceRole, Features, Reshape, Timestamp};
use super::location::SUPERBLOCK_BYTES;
use super::superblock1::MAGIC;
use super::uuid::Uuid;
use crate::bytes::{be32, be64, le32, le64, put};

/// Descriptors in the table.
pub(crate) const MAX_DEVICES: u32 = 27;
const MINOR: u32 = 90;
const MINOR_RESHAPING: u32 = 91;
/// What word 43 holds when nothing is left to resync.
const CHECKPOINT_CLEAN: u32 = u32::MAX;

/// Bytes between the superblock and its bitmap.
pub(crate) const BITMAP_OFFSET_SECTORS: i32 = 8;

/// Word numbers.
pub(crate) mod word {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const MAJOR: usize = 1;
    pub(crate) const MINOR: usize = 2;
    pub(crate) const UUID: [usize; 4] = [5, 13, 14, 15];
    pub(crate) const CTIME: usize = 6;
    pub(crate) const LEVEL: usize = 7;
    pub(crate) const SIZE_KIB: usize = 8;
    pub(crate) const NR_DISKS: usize = 9;
    pub(crate) const RAID_DISKS: usize = 10;
    pub(crate) const MD_MINOR: usize = 11;
    pub(crate) const UTIME: usize = 32;
    pub(crate) const STATE: usize = 33;
    pub(crate) const ACTIVE_DISKS: usize = 34;
    pub(crate) const WORKING_DISKS: usize = 35;
    pub(crate) const FAILED_DISKS: usize = 36;
    pub(crate) const SPARE_DISKS: usize = 37;
    pub(crate) const CHECKSUM: usize = 38;
    pub(crate) const EVENTS: usize = 39;
    pub(crate) const CHECKPOINT_EVENTS: usize = 41;
    pub(crate) const CHECKPOINT: usize = 43;
    pub(crate) const RESHAPE_POSITION: usize = 44;
    pub(crate) const NEW_LEVEL: usize = 46;
    pub(crate) const DELTA_DISKS: usize = 47;
    pub(crate) const NEW_LAYOUT: usize = 48;
    pub(crate) const NEW_CHUNK_BYTES: usize = 49;
    pub(crate) const LAYOUT: usize = 64;
    pub(crate) const CHUNK_BYTES: usize = 65;
    pub(crate) const DISKS: usize = 128;
    pub(crate) const THIS_DISK: usize = 992;
    /// Words of one descriptor.
    pub(crate) const DESCRIPTOR: usize = 32;
}

const STATE_CLEAN: u32 = 1 << 0;
const STATE_CLUSTERED: u32 = 1 << 5;
const STATE_BITMAP: u32 = 1 << 8;

const DISK_FAULTY: u32 = 1 << 0;
const DISK_ACTIVE: u32 = 1 << 1;
const DISK_SYNC: u32 = 1 << 2;
const DISK_REMOVED: u32 = 1 << 3;
const DISK_WRITE_MOSTLY: u32 = 1 << 9;
const DISK_FAIL_FAST: u32 = 1 << 10;

/// Byte order of the machine that wrote a 0.90 superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Nearly always.
    Little,
    /// Written on a big-endian machine.
    Big,
}

impl ByteOrder {
    /// The order in which the first word is the md magic.
    pub(crate) fn of_magic(bytes: &[u8]) -> Option<ByteOrder> {
        match () {
            () if le32(bytes, 0) == MAGIC => Some(ByteOrder::Little),
            () if be32(bytes, 0) == MAGIC => Some(ByteOrder::Big),
            () => None,
        }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }
}

/// The bytes of a 0.90 superblock and where they were found. See [`super::SuperblockFields`] for
/// the meaning of the getters.
#[derive(Clone, PartialEq, Eq)]
pub struct Fields0 {
    pub(super) order: ByteOrder,
    pub(super) found_at_sectors: u64,
    pub(super) bytes: Box<[u8; SUPERBLOCK_BYTES]>,
}

/// One entry of `disks[]`: which device, in which slot, in what state (bits as stored).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its own index, where one is written.
    pub number: u32,
    /// Device node, as of the last write.
    pub major: u32,
    /// Device node, as of the last write.
    pub minor: u32,
    /// Slot; for devices without one, their number.
    pub raid_disk: u32,
    /// Bits: 0 faulty, 1 active, 2 in sync, 3 removed, 9 write-mostly, 10 fail-fast.
    pub state: u32,
}

impl Descriptor {
    /// Whether a device stands behind this entry, rather than a missing slot or an unused index.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.state & DISK_REMOVED == 0 && (self.state != 0 || self.number != 0)
    }
}

impl Fields0 {
    /// Every load check the bytes fail. Empty means acceptable.
    pub(super) fn problems(&self) -> Vec<SuperblockError> {
        let mut problems = Vec::new();
        let mut check = |bad: bool, problem: SuperblockError| {
            if bad {
                problems.push(problem);
            }
        };
        let (stored, computed) = (self.checksum(), self.computed_checksum());
        check(
            checksum::fold16(stored) != checksum::fold16(computed),
            SuperblockError::BadChecksum { stored, computed },
        );
        let minor = self.word(word::MINOR);
        check(minor != MINOR && minor != MINOR_RESHAPING, SuperblockError::MinorVersion { found: minor });
        let raid_disks = self.raid_disks();
        check(raid_disks == 0, SuperblockError::NoRaidDisks);
        let too_many = SuperblockError::TooManyDevices { found: raid_disks, max: MAX_DEVICES };
        check(raid_disks > MAX_DEVICES, too_many);
        let number = self.dev_number();
        let outside = SuperblockError::DeviceNumber { found: number, max: MAX_DEVICES - 1 };
        check(number >= MAX_DEVICES, outside);
        if self.level() >= 1 {
            let (need, have) = (self.size_sectors(), self.found_at_sectors);
            check(need > have, SuperblockError::DeviceTooSmall { need, have });
        }
        problems
    }

    pub(super) fn computed_checksum(&self) -> u32 {
        let words = (0..SUPERBLOCK_BYTES / 4).map(|number| self.word(number));
        checksum::superblock0(words, word::CHECKSUM)
    }

    pub(super) fn seal(&mut self) {
        let computed = self.computed_checksum();
        self.put_word(word::CHECKSUM, computed);
    }

    pub(super) fn word(&self, number: usize) -> u32 {
        match self.order {
            ByteOrder::Little => le32(&self.bytes[..], 4 * number),
            ByteOrder::Big => be32(&self.bytes[..], 4 * number),
        }
    }

    pub(super) fn put_word(&mut self, number: usize, value: u32) {
        let value = self.order.u32(value);
        put(&mut self.bytes[..], 4 * number, &value);
    }

    /// Two words as the writer's u64: little-endian machines store the low half first, big-endian
    /// ones the high half.
    fn double(&self, number: usize) -> u64 {
        match self.order {
            ByteOrder::Little => le64(&self.bytes[..], 4 * number),
            ByteOrder::Big => be64(&self.bytes[..], 4 * number),
        }
    }

    fn put_double(&mut self, number: usize, value: u64) {
        let value = self.order.u64(value);
        put(&mut self.bytes[..], 4 * number, &value);
    }
}

/// Getters.
impl Fields0 {
    pub(super) fn features(&self) -> Features {
        let state = self.word(word::STATE);
        [
            (state & STATE_BITMAP != 0, Features::BITMAP),
            (state & STATE_CLUSTERED != 0, Features::CLUSTERED),
            (self.word(word::MINOR) == MINOR_RESHAPING, Features::RESHAPE),
        ]
        .into_iter()
        .filter(|&(on, _)| on)
        .fold(Features::default(), |all, (_, bit)| all | bit)
    }

    pub(super) fn set_uuid(&self) -> Uuid {
        Uuid::from_words(word::UUID.map(|number| self.word(number)))
    }

    pub(super) fn stored_uuid(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (target, number) in bytes.chunks_exact_mut(4).zip(word::UUID) {
            target.copy_from_slice(&self.bytes[4 * number..4 * number + 4]);
        }
        bytes
    }

    pub(super) fn name_bytes(&self) -> &[u8] {
        &[]
    }

    pub(super) fn ctime(&self) -> Timestamp {
        Timestamp { secs: u64::from(self.word(word::CTIME)), micros: 0 }
    }

    pub(super) fn utime(&self) -> Timestamp {
        Timestamp { secs: u64::from(self.word(word::UTIME)), micros: 0 }
    }

    pub(super) fn level(&self) -> i32 {
        self.word(word::LEVEL) as i32
    }

    pub(super) fn layout(&self) -> u32 {
        self.word(word::LAYOUT)
    }

    pub(super) fn size_sectors(&self) -> u64 {
        2 * u64::from(self.word(word::SIZE_KIB))
    }

    pub(super) fn chunk_sectors(&self) -> u32 {
        self.word(word::CHUNK_BYTES) / 512
    }

    pub(super) fn raid_disks(&self) -> u32 {
        self.word(word::RAID_DISKS)
    }

    pub(super) fn md_minor(&self) -> u32 {
        self.word(word::MD_MINOR)
    }

    pub(super) fn bitmap_offset_sectors(&self) -> Option<i32> {
        self.features().contains(Features::BITMAP).then_some(BITMAP_OFFSET_SECTORS)
    }

    pub(super) fn reshape(&self) -> Option<Reshape> {
        if self.word(word::MINOR) != MINOR_RESHAPING {
            return None;
        }
        let delta_disks = self.word(word::DELTA_DISKS) as i32;
        Some(Reshape {
            position: self.double(word::RESHAPE_POSITION),
            new_level: self.word(word::NEW_LEVEL) as i32,
            delta_disks,
            new_layout: self.word(word::NEW_LAYOUT),
            new_chunk_sectors: self.word(word::NEW_CHUNK_BYTES) / 512,
            backwards: delta_disks < 0,
            new_offset_sectors: None,
        })
    }

    pub(super) fn is_filled_by_reshape(&self) -> bool {
        let own = self.descriptor(self.dev_number()).map_or(DISK_SYNC, |own| own.state);
        self.word(word::MINOR) == MINOR_RESHAPING && own & (DISK_ACTIVE | DISK_SYNC) == DISK_ACTIVE
    }

    pub(super) fn dev_number(&self) -> u32 {
        self.word(word::THIS_DISK)
    }

    pub(super) fn events(&self) -> u64 {
        self.double(word::EVENTS)
    }

    /// Clean → MAX; else the checkpoint when it belongs to this very generation, else 0. A
    /// checkpoint of "clean" in a superblock that is not clean is nothing md writes; starting over
    /// is the answer that cannot lose data.
    pub(super) fn resync_offset(&self) -> u64 {
        if self.word(word::STATE) & STATE_CLEAN != 0 {
            return u64::MAX;
        }
        match self.word(word::CHECKPOINT) {
            CHECKPOINT_CLEAN => 0,
            checkpoint if self.double(word::CHECKPOINT_EVENTS) == self.events() => u64::from(checkpoint),
            _ => 0,
        }
    }

    pub(super) fn checksum(&self) -> u32 {
        self.word(word::CHECKSUM)
    }

    /// The descriptor at an index of the table; `None` past its end.
    pub(super) fn descriptor(&self, index: u32) -> Option<Descriptor> {
        (index < MAX_DEVICES).then(|| self.descriptor_at(word::DISKS + word::DESCRIPTOR * index as usize))
    }

    fn descriptor_at(&self, first: usize) -> Descriptor {
        Descriptor {
            number: self.word(first),
            major: self.word(first + 1),
            minor: self.word(first + 2),
            raid_disk: self.word(first + 3),
            state: self.word(first + 4),
        }
    }

    pub(super) fn role_of(&self, dev_number: u32) -> DeviceRole {
        self.descriptor(dev_number).map_or(DeviceRole::Spare, |descriptor| self.role_in(&descriptor))
    }

    fn role_in(&self, descriptor: &Descriptor) -> DeviceRole {
        // During a reshape every device that holds a slot is recorded active, in sync or not
        // (§1.4).
        let reshaping = self.word(word::MINOR) == MINOR_RESHAPING;
        let holds_slot = DISK_SYNC | if reshaping { DISK_ACTIVE } else { 0 };
        match descriptor.state {
            state if state & (DISK_FAULTY | DISK_REMOVED) != 0 => DeviceRole::Faulty,
            state if state & holds_slot != 0 => u16::try_from(descriptor.raid_disk)
                .ok()
                .filter(|&slot| slot <= DeviceRole::MAX_SLOT)
                .map_or(DeviceRole::Unknown(0xff00), DeviceRole::Active),
            _ => DeviceRole::Spare,
        }
    }

    pub(super) fn device_flags(&self) -> DeviceFlags {
        let state = self.descriptor(self.dev_number()).map_or(0, |descriptor| descriptor.state);
        let write_mostly = if state & DISK_WRITE_MOSTLY != 0 { DeviceFlags::WRITE_MOSTLY.0 } else { 0 };
        let fail_fast = if state & DISK_FAIL_FAST != 0 { DeviceFlags::FAIL_FAST.0 } else { 0 };
        DeviceFlags(write_mostly | fail_fast)
    }
}

/// Setters. None of them seals; [`super::Superblock`] does that once per call.
impl Fields0 {
    /// A checkpoint belongs to the generation whose number it carries, so it moves along with
    /// events.
    pub(super) fn put_events(&mut self, events: u64) {
        if self.double(word::CHECKPOINT_EVENTS) == self.events() {
            self.put_double(word::CHECKPOINT_EVENTS, events);
        }
        self.put_double(word::EVENTS, events);
    }

    /// Checkpoints past 2^32−2 sectors are stored as that: less than is known to be in sync, never
    /// more.
    pub(super) fn put_resync_offset(&mut self, offset: u64) {
        let clean = offset == u64::MAX;
        let state = self.word(word::STATE) & !STATE_CLEAN | if clean { STATE_CLEAN } else { 0 };
        let checkpoint = match u32::try_from(offset) {
            _ if clean => CHECKPOINT_CLEAN,
            Ok(offset) if offset != CHECKPOINT_CLEAN => offset,
            _ => CHECKPOINT_CLEAN - 1,
        };
        let events = self.events();
        self.put_word(word::STATE, state);
        self.put_word(word::CHECKPOINT, checkpoint);
        self.put_double(word::CHECKPOINT_EVENTS, events);
    }

    pub(super) fn put_bitmap(&mut self, on: bool) {
        let state = self.word(word::STATE) & !STATE_BITMAP | if on { STATE_BITMAP } else { 0 };
        self.put_word(word::STATE, state);
    }

    pub(super) fn put_uuid(&mut self, uuid: Uuid) {
        for (number, value) in word::UUID.into_iter().zip(uuid.words()) {
            self.put_word(number, value);
        }
    }

    pub(super) fn put_reshape(&mut self, reshape: Option<Reshape>) -> Result<(), SetError> {
        let Some(reshape) = reshape else {
            self.put_word(word::MINOR, MINOR);
            (word::RESHAPE_POSITION..=word::NEW_CHUNK_BYTES).for_each(|number| self.put_word(number, 0));
            return Ok(());
        };
        let new_chunk_bytes = bytes_of_sectors("new_chunk_sectors", u64::from(reshape.new_chunk_sectors))?;
        self.put_word(word::MINOR, MINOR_RESHAPING);
        self.put_double(word::RESHAPE_POSITION, reshape.position);
        self.put_word(word::NEW_LEVEL, reshape.new_level as u32);
        self.put_word(word::DELTA_DISKS, reshape.delta_disks as u32);
        self.put_word(word::NEW_LAYOUT, reshape.new_layout);
        self.put_word(word::NEW_CHUNK_BYTES, new_chunk_bytes);
        Ok(())
    }

    pub(super) fn put_chunk_sectors(&mut self, sectors: u32) -> Result<(), SetError> {
        let bytes = bytes_of_sectors("chunk_sectors", u64::from(sectors))?;
        self.put_word(word::CHUNK_BYTES, bytes);
        Ok(())
    }

    pub(super) fn put_size_sectors(&mut self, sectors: u64) -> Result<(), SetError> {
        let kib = u32::try_from(sectors / 2).map_err(|_| SetError::TooLarge {
            field: "size_sectors",
            value: sectors,
            max: 2 * u64::from(u32::MAX) + 1,
        })?;
        self.put_word(word::SIZE_KIB, kib);
        Ok(())
    }

    pub(super) fn put_device_flags(&mut self, flags: DeviceFlags) {
        let mut wanted = 0;
        if flags.contains(DeviceFlags::WRITE_MOSTLY) {
            wanted |= DISK_WRITE_MOSTLY;
        }
        if flags.contains(DeviceFlags::FAIL_FAST) {
            wanted |= DISK_FAIL_FAST;
        }
        let own = self.dev_number();
        let Some(descriptor) = self.descriptor(own) else { return };
        let state = descriptor.state & !(DISK_WRITE_MOSTLY | DISK_FAIL_FAST) | wanted;
        self.put_word(word::DISKS + word::DESCRIPTOR * own as usize + 4, state);
        self.put_word(word::THIS_DISK + 4, state);
    }

    /// The device node numbers of a descriptor, which only `mdadm` output reads.
    pub(super) fn put_node(&mut self, index: u32, major: u32, minor: u32) {
        let first = word::DISKS + word::DESCRIPTOR * index.min(MAX_DEVICES - 1) as usize;
        for first in
            [Some(first), (index == self.dev_number()).then_some(word::THIS_DISK)].into_iter().flatten()
        {
            self.put_word(first + 1, major);
            self.put_word(first + 2, minor);
        }
    }
}

fn bytes_of_sectors(field: &'static str, sectors: u64) -> Result<u32, SetError> {
    let max = u64::from(u32::MAX / 512);
    u32::try_from(sectors * 512).map_err(|_| SetError::TooLarge { field, value: sectors, max })
}

/// The descriptor table.
impl Fields0 {
    /// Gives a device a role (`None` drops it from the table), lays the table out anew and
    /// recounts. Returns the number the device has afterwards: its slot when active, an index from
    /// raid_disks up otherwise.
    pub(super) fn put_role(
        &mut self,
        dev_number: u32,
        role: Option<DeviceRole>,
    ) -> Result<Option<u32>, SetError> {
        if matches!(role, Some(DeviceRole::Journal)) {
            return Err(SetError::NotInVersion { version: super::Version::V090, field: "the journal role" });
        }
        let before = self.clone();
        let own = self.dev_number();
        let mut devices: Vec<Device> = (0..MAX_DEVICES)
            .filter(|&index| index != dev_number && self.descriptor(index).is_some_and(|d| d.is_present()))
            .map(|index| Device { index, role: self.role_of(index), words: self.descriptor_words(index) })
            .collect();
        if let Some(role) = role {
            let words = match self.descriptor(dev_number) {
                Some(descriptor) if descriptor.is_present() => self.descriptor_words(dev_number),
                _ => [0; word::DESCRIPTOR],
            };
            // Last, so that a device given a slot takes it from the device that held it: that one
            // becomes faulty below.
            devices.push(Device { index: dev_number, role, words });
        }
        match self.lay_out(&devices, own) {
            Ok(numbers) => Ok(numbers.into_iter().find(|&(old, _)| old == dev_number).map(|(_, new)| new)),
            Err(error) => {
                *self = before;
                Err(error)
            }
        }
    }

    fn descriptor_words(&self, index: u32) -> [u32; word::DESCRIPTOR] {
        let first = word::DISKS + word::DESCRIPTOR * index as usize;
        std::array::from_fn(|i| self.word(first + i))
    }

    /// Writes the table, `this_disk` and the counters. Returns each device's old and new number.
    fn lay_out(&mut self, devices: &[Device], own: u32) -> Result<Vec<(u32, u32)>, SetError> {
        let raid_disks = self.raid_disks();
        let max = u64::from(MAX_DEVICES) - 1;
        let mut table: [Option<(Device, DeviceRole)>; MAX_DEVICES as usize] = Default::default();

        for device in devices.iter().rev() {
            let Some(slot) = device.role.slot() else { continue };
            if u32::from(slot) >= raid_disks.min(MAX_DEVICES) {
                let (value, max) =
                    (u64::from(slot), u64::from(raid_disks.min(MAX_DEVICES)).saturating_sub(1));
                return Err(SetError::TooLarge { field: "slot", value, max });
            }
            let place = &mut table[usize::from(slot)];
            if place.is_none() {
                *place = Some((*device, device.role));
            }
        }
        let placed = |table: &[Option<(Device, DeviceRole)>], device: &Device| {
            table.iter().flatten().any(|(other, _)| other.index == device.index)
        };
        // Devices keep the number they have when it is past the slots and free; the rest fill the
        // gaps.
        for keep in [true, false] {
            for device in devices {
                if placed(&table, device) {
                    continue;
                }
                let role = if device.role.slot().is_some() { DeviceRole::Faulty } else { device.role };
                let free = |index: &u32| table[*index as usize].is_none();
                let mut choices = raid_disks..MAX_DEVICES;
                let index = if keep {
                    choices.find(|index| *index == device.index && free(index))
                } else {
                    choices.find(free)
                };
                match index {
                    Some(index) => table[index as usize] = Some((*device, role)),
                    None if keep => {}
                    None => {
                        let value = u64::from(device.index);
                        return Err(SetError::TooLarge { field: "dev_number", value, max });
                    }
                }
            }
        }
        Ok(self.write_table(&table, own))
    }

    fn write_table(&mut self, table: &[Option<(Device, DeviceRole)>], own: u32) -> Vec<(u32, u32)> {
        let raid_disks = self.raid_disks();
        let (mut active, mut spare, mut faulty, mut missing) = (0, 0, 0, 0);
        let mut numbers = Vec::new();
        let mut this_disk = None;
        for (index, entry) in (0..MAX_DEVICES).zip(table) {
            let mut words = [0; word::DESCRIPTOR];
            if let Some((device, role)) = entry {
                words = device.words;
                let kept = words[4] & !(DISK_FAULTY | DISK_ACTIVE | DISK_SYNC | DISK_REMOVED);
                let (count, state) = match role {
                    DeviceRole::Active(_) => (&mut active, DISK_ACTIVE | DISK_SYNC),
                    DeviceRole::Spare => (&mut spare, 0),
                    DeviceRole::Faulty | DeviceRole::Journal | DeviceRole::Unknown(_) => {
                        (&mut faulty, DISK_FAULTY)
                    }
                };
                *count += 1;
                (words[0], words[3], words[4]) = (index, index, kept | state);
                numbers.push((device.index, index));
                if device.index == own {
                    this_disk = Some(words);
                }
            } else if index < raid_disks {
                missing += 1;
                (words[0], words[3], words[4]) = (index, index, DISK_FAULTY | DISK_REMOVED);
            }
            self.put_words(word::DISKS + word::DESCRIPTOR * index as usize, &words);
        }
        if let Some(words) = this_disk {
            self.put_words(word::THIS_DISK, &words);
        }
        self.put_word(word::NR_DISKS, active + spare + faulty);
        self.put_word(word::ACTIVE_DISKS, active);
        self.put_word(word::WORKING_DISKS, active + spare);
        self.put_word(word::FAILED_DISKS, missing);
        self.put_word(word::SPARE_DISKS, spare);
        numbers
    }

    fn put_words(&mut self, first: usize, words: &[u32]) {
        for (number, &value) in (first..).zip(words) {
            self.put_word(number, value);
        }
    }

    /// Makes the superblock that of the device with this number.
    pub(super) fn put_dev_number(&mut self, dev_number: u32) -> Result<(), SetError> {
        let Some(_) = self.descriptor(dev_number) else {
            let (value, max) = (u64::from(dev_number), u64::from(MAX_DEVICES) - 1);
            return Err(SetError::TooLarge { field: "dev_number", value, max });
        };
        let mut words = self.descriptor_words(dev_number);
        words[0] = dev_number;
        self.put_words(word::THIS_DISK, &words);
        Ok(())
    }
}

/// A present device while the table is laid out: its old index, its role, all words of its
/// descriptor.
#[derive(Clone, Copy)]
struct Device {
    index: u32,
    role: DeviceRole,
    words: [u32; word::DESCRIPTOR],
}
