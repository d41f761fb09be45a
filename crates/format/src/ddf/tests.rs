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

/// The drive with a log of bad blocks where its empty configuration records are.
fn with_log(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    const LOG: usize = 25 * 512;
    let mut drive = DRIVE.to_vec();
    put_section(&mut drive, 0, |header| {
        header[232..236].copy_from_slice(&25_u32.to_be_bytes());
        header[236..240].copy_from_slice(&1_u32.to_be_bytes());
    });
    put_section(&mut drive, LOG, |log| {
        log.fill(0xff);
        log[..4].copy_from_slice(&0xabad_b10c_u32.to_be_bytes());
        log[8..32].fill(0);
        log[9] = 2;
        for (entry, (start, count)) in log[32..].chunks_exact_mut(16).zip([(2052_u64, 3_u16), (40_000, 1)]) {
            entry[..8].copy_from_slice(&start.to_be_bytes());
            entry[12..14].copy_from_slice(&count.to_be_bytes());
        }
    });
    change(&mut drive[LOG..LOG + 512]);
    drive
}

fn put_section(drive: &mut [u8], at: usize, change: impl FnOnce(&mut [u8])) {
    let section = &mut drive[at..at + 512];
    change(section);
    let sum = checksum(section);
    section[4..8].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn the_bad_block_log_is_read() {
    let log = |drive: &[u8]| decoded(drive).unwrap().unwrap().bad_blocks;
    let listed = [(2052, 3), (40_000, 1)];
    let listed = listed.map(|(start_sector, len_sectors)| DdfBadBlocks { start_sector, len_sectors });
    let listed = DdfBadBlockLog::Listed(listed.to_vec());
    assert_eq!(log(DRIVE), DdfBadBlockLog::Absent);
    assert_eq!(log(&with_log(|_| ())), listed);
    // Some describe the count as a number of four bytes.
    let wide = with_log(|log| {
        log[8..12].copy_from_slice(&2_u32.to_be_bytes());
        put_section(log, 0, |_| ());
    });
    assert_eq!(log(&wide), listed);
    assert_eq!(log(&with_log(|log| log[40] ^= 1)), DdfBadBlockLog::Damaged, "its checksum does not hold");
    let longer = with_log(|log| put_section(log, 0, |log| log[9] = 31));
    assert_eq!(log(&longer), DdfBadBlockLog::Damaged, "more entries than fit");
    assert_eq!(log(&with_log(|log| log.fill(0))), DdfBadBlockLog::Absent, "never written");
    assert_eq!(log(&with_log(|log| log[0] = 1)), DdfBadBlockLog::Foreign);
    let mut outside = DRIVE.to_vec();
    put_section(&mut outside, 0, |header| header[232..240].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 1]));
    assert_eq!(log(&outside), DdfBadBlockLog::Damaged, "it cannot be read");
}
