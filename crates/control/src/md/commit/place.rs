//! Where a superblock is written, and whether a power cut can tear it.

use wattle_engine::units::SECTOR_BYTES;
use wattle_format::md::{SUPERBLOCK_BYTES, Superblock, Version};
use wattle_rt::{Buf, BufMut, Device};

/// Where a superblock is written.
#[derive(Debug, Clone)]
pub struct SuperblockPlace {
    /// The member, open for writing and ours alone.
    pub device: Device,
}

impl SuperblockPlace {
    /// Bytes to write at a time: the member's logical block.
    pub(super) fn block_bytes(&self) -> usize {
        self.device.logical_block_bytes().max(SECTOR_BYTES as u32) as usize
    }

    /// Whether a power cut can leave a superblock that is neither of the two: they differ behind
    /// the first block.
    pub(super) fn may_tear(&self, before: Option<&Superblock>, after: &Superblock) -> bool {
        let behind_first = |superblock: &Superblock| {
            self.encode(superblock).get(self.block_bytes()..).unwrap_or_default().to_vec()
        };
        before.map(behind_first).unwrap_or_default() != behind_first(after)
    }

    /// The superblock's blocks, whole: with logical blocks of 4 KiB what follows the superblock is
    /// written back as it was.
    pub(super) fn encode(&self, superblock: &Superblock) -> Buf {
        let bytes = superblock.bytes();
        let len = own_bytes(superblock).next_multiple_of(self.block_bytes()).min(bytes.len());
        BufMut::copy_of(&bytes[..len]).freeze()
    }
}

/// How much of its place a superblock takes.
pub(crate) fn own_bytes(superblock: &Superblock) -> usize {
    match superblock.version() {
        Version::V090 => SUPERBLOCK_BYTES,
        _ => 256 + 2 * superblock.max_devices() as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::set_role;
    use super::*;
    use crate::md::badblocks;
    use crate::md::bitmap::BitmapPlace;
    use crate::md::ppl;
    use wattle_format::md::create::{self, NewArray};
    use wattle_format::md::{
        BadBlockArea, DeviceFields, DeviceFlags, DeviceRole, Features, PplArea, Reshape, Timestamp, Uuid,
        super_offset_sectors,
    };

    fn some_superblock(version: Version) -> Superblock {
        let sectors = 16384;
        let place = super_offset_sectors(version, sectors).unwrap();
        let array = NewArray {
            version,
            set_uuid: Uuid([5; 16]),
            name: b"host:t".to_vec(),
            ctime: Timestamp { secs: 1000, micros: 0 },
            level: 1,
            layout: 0,
            chunk_sectors: 0,
            raid_disks: 2,
            size_sectors: 8192,
            resync_offset: u64::MAX,
            roles: vec![DeviceRole::Active(0), DeviceRole::Active(1)],
            bitmap_offset_sectors: None,
            ppl: None,
            features: Features::default(),
            md_minor: 0,
            nodes: Vec::new(),
        };
        let (data_offset_sectors, data_size_sectors) =
            if version == Version::V090 { (0, place) } else { (2048, 8192) };
        let device = DeviceFields {
            dev_number: 0,
            device_uuid: Uuid([0; 16]),
            super_offset_sectors: place,
            data_offset_sectors,
            data_size_sectors,
            recovery_offset: None,
            replacement: false,
            bad_block_log: None,
            flags: DeviceFlags::default(),
        };
        create::superblock(&array, &device, sectors).unwrap()
    }

    #[test]
    fn a_member_has_room_for_as_many_bad_blocks_as_its_superblock_says() {
        let device = Device::mem(16384 * SECTOR_BYTES);
        let mut superblock = some_superblock(Version::V12);
        assert_eq!(badblocks::entries_max(&superblock, &device), 0, "it has no log");
        let area = BadBlockArea { offset_sectors: 8, size_sectors: 2, shift: 0 };
        superblock.set_bad_block_log(Some(area)).unwrap();
        assert_eq!(badblocks::entries_max(&superblock, &device), 128);
        assert_eq!(badblocks::entries_max(&some_superblock(Version::V090), &device), 0);
    }

    /// Superblocks of a small data offset may name such places, and a log that is written there
    /// destroys what the array holds. Linux refuses a partial parity log there.
    #[test]
    fn a_log_in_the_data_is_none() {
        let device = Device::mem(16384 * SECTOR_BYTES);
        let mut superblock = some_superblock(Version::V12);
        let entries = |superblock: &Superblock| badblocks::entries_max(superblock, &device);
        let log = |superblock: &Superblock| ppl::area(superblock, device.size_bytes());
        for (offset_sectors, is_kept) in
            [(2032, true), (2033, false), (5000, false), (10232, true), (4, false)]
        {
            let area = BadBlockArea { offset_sectors, size_sectors: 8, shift: 0 };
            superblock.set_bad_block_log(Some(area)).unwrap();
            assert_eq!(entries(&superblock) > 0, is_kept, "{offset_sectors}");
        }
        superblock.set_bad_block_log(None).unwrap();
        superblock.set_level(5);
        superblock.add_features(Features::PPL).unwrap();
        for (offset_sectors, size_sectors, is_kept) in
            [(8, 2032, true), (8, 2040, false), (3000, 2048, false), (10232, 2048, true)]
        {
            superblock.set_ppl_area(PplArea { offset_sectors, size_sectors }).unwrap();
            assert_eq!(log(&superblock).is_some(), is_kept, "{offset_sectors}");
        }
        let moved = Reshape {
            position: 0,
            new_level: 5,
            delta_disks: 1,
            new_layout: 0,
            new_chunk_sectors: 0,
            backwards: false,
            new_offset_sectors: Some(-1024),
        };
        superblock
            .set_bad_block_log(Some(BadBlockArea { offset_sectors: 1500, size_sectors: 8, shift: 0 }))
            .unwrap();
        assert!(entries(&superblock) > 0);
        superblock.set_reshape(Some(moved)).unwrap();
        assert_eq!(entries(&superblock), 0, "where a reshape moves the data to");
    }

    /// mdadm has the log of an array without redundancy where others have their bitmap, and there
    /// it stays when the array gets another level.
    #[test]
    fn a_new_bitmap_lies_beside_the_log_of_bad_blocks() {
        let device = Device::mem(16384 * SECTOR_BYTES);
        let mut superblock = some_superblock(Version::V12);
        assert_eq!(BitmapPlace::free(&device, &superblock), Some(8..2040));
        for (offset_sectors, free) in [(8, 16..2040), (16, 8..16), (12, 24..2040)] {
            let area = BadBlockArea { offset_sectors, size_sectors: 8, shift: 0 };
            superblock.set_bad_block_log(Some(area)).unwrap();
            assert_eq!(BitmapPlace::free(&device, &superblock), Some(free), "{offset_sectors}");
        }
        let area = BadBlockArea { offset_sectors: 8, size_sectors: 8, shift: 0 };
        superblock.set_bad_block_log(Some(area)).unwrap();
        superblock.set_bitmap_offset(Some(8)).unwrap();
        assert!(BitmapPlace::of(&device, &superblock).is_none(), "on the log");
        assert_eq!(BitmapPlace::free(&device, &some_superblock(Version::V090)), Some(8..128));
    }

    /// Waves cost a round trip each: turning clean and dirty must not pay it. It need not, as it
    /// changes only the first sector.
    #[test]
    fn only_changes_of_membership_in_a_long_superblock_can_tear_it() {
        let place = SuperblockPlace { device: Device::mem(16384 * SECTOR_BYTES) };
        assert_eq!(place.block_bytes(), 512);
        for version in [Version::V090, Version::V12] {
            let before = some_superblock(version);
            let mut flipped = before.clone();
            flipped.set_events(before.events() + 1);
            flipped.set_resync_offset(0);
            flipped.set_utime(Timestamp { secs: 2000, micros: 7 });
            assert!(!place.may_tear(Some(&before), &flipped), "{version}");
            let mut alone = flipped.clone();
            set_role(&mut alone, 1, DeviceRole::Faulty);
            assert_eq!(place.may_tear(Some(&before), &alone), version == Version::V090, "{version}");
        }
    }
}
