//! Against metadata that mdadm 4.2 wrote: the ends of drives, 2048 bytes.

use super::*;

/// RAID 10 of four drives, one of them being filled.
const REBUILD: &[u8] = include_bytes!("../../tests/data/imsm.bin");
/// RAID 10 and RAID 5 on four drives.
const TWO: &[u8] = include_bytes!("../../tests/data/imsm-two.bin");

fn decoded(drive: &[u8]) -> Option<Result<Imsm, ImsmError>> {
    let mut read =
        |at: u64, len: usize| drive.get(usize::try_from(at).ok()?..)?.get(..len).map(<[u8]>::to_vec);
    find(drive.len() as u64, &mut read)
}

#[test]
fn what_mdadm_examine_says_is_read() {
    let imsm = decoded(TWO).unwrap().unwrap();
    assert_eq!((imsm.version.as_str(), imsm.family, imsm.generation), ("1.3.00", 0xd71c_ae9c, 0x16));
    assert_eq!((imsm.container(), imsm.is_spare()), (imsm.orig_family, false));
    let serials: Vec<_> = imsm.disks.iter().map(|disk| disk.serial.as_str()).collect();
    assert_eq!(serials, ["/dev/dm-1", "/dev/dm-2", "/dev/dm-0", "/dev/dm-3"]);
    assert!(imsm.disks.iter().all(|disk| (disk.total_sectors, disk.status) == (49152, 2)));
    let [first, second] = &imsm.volumes[..] else { panic!("{:?}", imsm.volumes) };
    assert_eq!((first.name.as_str(), first.size_sectors), ("first", 4096));
    assert_eq!((first.map.level(), first.component_sectors()), (Some(ImsmLevel::Raid10), Some(2048)));
    assert_eq!((second.name.as_str(), second.size_sectors), ("second", 6144));
    assert_eq!((second.map.level(), second.map.start_sector), (Some(ImsmLevel::Raid5), 10240));
    assert_eq!((second.map.strip_sectors, second.component_sectors()), (128, Some(2048)));
    assert!(!first.dirty && first.migration.is_none() && first.old_map.is_none());
}

#[test]
fn a_rebuild_says_which_drive_is_filled_and_how_far() {
    let imsm = decoded(REBUILD).unwrap().unwrap();
    let [volume] = &imsm.volumes[..] else { panic!("{:?}", imsm.volumes) };
    assert_eq!(volume.migration, Some(ImsmMigration::Rebuild));
    assert_eq!((volume.current_unit, volume.rebuilt_sectors()), (4, Some(2048)));
    let old = volume.old_map.as_ref().unwrap();
    assert_eq!(old.state, ImsmMapState::Degraded);
    let stale: Vec<_> = old.slots.iter().map(|slot| slot.is_stale).collect();
    assert_eq!(stale, [false, true, false, false]);
    assert!(volume.map.slots.iter().all(|slot| !slot.is_stale));
}

#[test]
fn a_repair_is_stored_as_a_verification_that_fixes() {
    let map = {
        let mut map = vec![0_u8; 48 + 3 * 4];
        (map[15], map[16], map[17], map[18]) = (5, 3, 1, 255);
        (0..3_u8).for_each(|disk| map[48 + 4 * usize::from(disk)] = disk);
        map
    };
    for (status, is) in [(0, ImsmMigration::Verify), (0x80, ImsmMigration::Repair)] {
        let mut head = vec![0_u8; VOLUME_BYTES];
        (head[24], head[88], head[89]) = (status, 1, 2);
        let bytes = [head, map.clone(), map.clone()].concat();
        let (volume, _) = ImsmVolume::decode(&bytes, 3, 1).unwrap().unwrap();
        assert_eq!(volume.migration, Some(is));
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    for drive in [REBUILD, TWO] {
        let size = le32(&drive[1024..], SIZE_AT) as usize;
        let all = (1024..1536).chain(512..512 + size - 512);
        for at in all.filter(|at| !(1024..1024 + SIGNATURE.len()).contains(at)) {
            for bit in 0..8 {
                let mut damaged = drive.to_vec();
                damaged[at] ^= 1 << bit;
                assert!(decoded(&damaged).unwrap().is_err(), "byte {at} bit {bit}");
            }
        }
    }
}

#[test]
fn nothing_is_found_where_nothing_is() {
    for size in [0, 511, 512, 1024, 2048, 8192] {
        assert!(decoded(&vec![0; size]).is_none(), "{size}");
    }
    // Without the sectors before the anchor there is no metadata.
    assert_eq!(decoded(&TWO[1024..]), Some(Err(ImsmError::Unread { bytes: 760 })));
}

#[test]
fn the_bad_block_log_is_read() {
    // As Linux 6.12 and mdadm 4.2 wrote 9 lost sectors from 400 on of the second drive.
    let log = [0x0c, 0xb1, 0xad, 0xab, 1, 0, 0, 0, 8, 1, 0x90, 1, 0, 0, 0, 0];
    let entry = ImsmBadBlocks { disk: 1, start_sector: 400, len_sectors: 9 };
    assert_eq!(bad_blocks(&log, 1), Some(vec![entry]));
    assert_eq!(bad_blocks(&log[..15], 1), None, "an entry is cut off");
    assert_eq!(bad_blocks(&[1; 16], 1), None, "another magic");
}
