//! Against metadata that mdadm 4.2 wrote, with shorter tables and all of it together: RAID 10 and
//! RAID 5 on four drives.

use super::*;

const DRIVE: &[u8] = include_bytes!("../../tests/data/ddf.bin");

fn decoded(drive: &[u8]) -> Option<Result<Ddf, DdfError>> {
    let mut read =
        |at: u64, len: usize| drive.get(usize::try_from(at).ok()?..)?.get(..len).map(<[u8]>::to_vec);
    find(drive.len() as u64, &mut read)
}

#[test]
fn what_mdadm_examine_says_is_read() {
    let ddf = decoded(DRIVE).unwrap().unwrap();
    assert_eq!((ddf.revision.as_str(), ddf.sequence, ddf.own), ("01.02.00", 17, 0xf6b8_1bb5));
    assert!(ddf.guid.starts_with(b"Linux-MD") && !ddf.is_open && !ddf.secondary);
    let disks: Vec<_> =
        ddf.disks.iter().map(|disk| (disk.reference, disk.state, disk.usable_sectors)).collect();
    let references = [0xf6b8_1bb5, 0x6ba6_f24e, 0xa73e_071f, 0x56fc_9377];
    assert_eq!(disks, references.map(|reference| (reference, 1, 32768)));
    let names: Vec<_> = ddf.volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
    assert!(ddf.volumes.iter().all(DdfVolume::is_consistent));
    let [five, ten] = &ddf.configs[..] else { panic!("{:?}", ddf.configs) };
    assert_eq!((five.level, five.qualifier, five.chunk_shift, five.parts), (5, 3, 7, 1));
    assert_eq!((five.component_sectors, five.size_sectors), (Some(2048), Some(6144)));
    let of_five: Vec<_> = five.members.iter().map(|member| member.reference.unwrap()).collect();
    assert_eq!(of_five, [0xf6b8_1bb5, 0xa73e_071f, 0x6ba6_f24e, 0x56fc_9377]);
    assert!(five.members.iter().all(|member| member.start_sector == 2048));
    assert_eq!((ten.level, ten.parts, ten.part, ten.part_level, ten.members.len()), (1, 2, 0, 3, 2));
}

/// A record that is damaged is not used; every other damage leaves nothing.
#[test]
fn every_flipped_bit_is_seen() {
    let whole = decoded(DRIVE).unwrap().unwrap();
    let mut random = 1_u64;
    for _ in 0..4000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (random >> 33) as usize % DRIVE.len();
        let mut damaged = DRIVE.to_vec();
        damaged[at] ^= 1 << (random >> 29 & 7);
        let Some(Ok(found)) = decoded(&damaged) else { continue };
        if found.damaged_configs > 0 {
            assert!(found.configs.len() < whole.configs.len(), "byte {at}");
        } else {
            // The controller's data and what is empty say nothing.
            let configs = found.configs.len() <= whole.configs.len();
            assert!(configs && found.disks == whole.disks && found.volumes == whole.volumes, "byte {at}");
        }
    }
}

#[test]
fn nothing_is_found_where_nothing_is() {
    for size in [0, 511, 512, 4096] {
        assert!(decoded(&vec![0; size]).is_none(), "{size}");
    }
    assert!(matches!(decoded(&DRIVE[DRIVE.len() - 512..]), Some(Err(DdfError::Headers { .. }))));
}
