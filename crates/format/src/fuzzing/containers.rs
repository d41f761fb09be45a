//! Metadata of firmware RAID: the bytes are a whole drive. Checksums are made right first, or
//! nothing would get past them.

use crate::bytes::{be32, be64, le32, put, put_le32};
use crate::{ddf, imsm};

/// A drive of IMSM.
pub fn fuzz_imsm(data: &[u8]) {
    let mut drive = data.to_vec();
    check_imsm(&drive);
    let places: Vec<_> = imsm::anchors(drive.len() as u64).into_iter().map(|(at, _)| at as usize).collect();
    for at in places {
        let Some(anchor) = drive.get(at..at + 512).filter(|bytes| bytes.starts_with(imsm::SIGNATURE)) else {
            continue;
        };
        // Only what lies in one or two sectors of 512 bytes is made right.
        let size = le32(anchor, 0x24).clamp(0xd8, 1024) as usize & !3;
        if at < 512 {
            continue;
        }
        put_le32(&mut drive, at + 0x24, size as u32);
        let order = [&drive[at..at + 512], &drive[at - 512..at]].concat();
        let words = (0..size / 4).map(|word| le32(&order, 4 * word));
        let sum = words.fold(0_u32, u32::wrapping_add).wrapping_sub(le32(&order, 0x20));
        put_le32(&mut drive, at + 0x20, sum);
    }
    check_imsm(&drive);
}

fn check_imsm(drive: &[u8]) {
    let mut read =
        |at: u64, len: usize| drive.get(usize::try_from(at).ok()?..)?.get(..len).map(<[u8]>::to_vec);
    let Some(Ok(found)) = imsm::find(drive.len() as u64, &mut read) else { return };
    let _ = (format!("{found:?}"), found.container(), found.is_spare());
    for volume in &found.volumes {
        let _ = (volume.rebuilt_sectors(), volume.component_sectors(), volume.map.level());
        let slots = volume.map.slots.iter().chain(volume.old_map.iter().flat_map(|map| &map.slots));
        assert!(slots.into_iter().all(|slot| (slot.disk as usize) < found.disks.len()), "an index in range");
        assert_eq!(volume.old_map.is_some(), volume.migration.is_some());
    }
}

/// A drive of DDF.
pub fn fuzz_ddf(data: &[u8]) {
    let mut drive = data.to_vec();
    check_ddf(&drive);
    let Some(at) = drive.len().checked_sub(512) else { return };
    if be32(&drive, at) != ddf::MAGIC {
        return;
    }
    let header = be64(&drive, at + 96);
    if let Some(header) = header.checked_mul(512).and_then(|at| usize::try_from(at).ok()) {
        seal_sections(&mut drive, header);
    }
    seal(&mut drive, at, 512);
    check_ddf(&drive);
}

fn seal_sections(drive: &mut [u8], header: usize) {
    if drive.get(header..).is_none_or(|rest| rest.len() < 512) {
        return;
    }
    for at in [200, 208, 224, 232] {
        let (start, len) = (be32(drive, header + at) as usize, be32(drive, header + at + 4) as usize);
        if start < 1 << 20 && len < 1 << 12 {
            seal(drive, header + 512 * start, 512 * len);
        }
    }
    let record = usize::from(u16::from_be_bytes([drive[header + 134], drive[header + 135]])) * 512;
    let (start, len) = (be32(drive, header + 216) as usize, be32(drive, header + 220) as usize);
    if record > 0 && start < 1 << 20 && len < 1 << 12 {
        (0..512 * len / record).for_each(|ix| seal(drive, header + 512 * start + ix * record, record));
    }
    seal(drive, header, 512);
}

fn seal(drive: &mut [u8], at: usize, len: usize) {
    if len < 512 || drive.get(at..).is_none_or(|rest| rest.len() < len) {
        return;
    }
    let sum = ddf::checksum(&drive[at..at + len]);
    put(drive, at + 4, &sum.to_be_bytes());
}

fn check_ddf(drive: &[u8]) {
    let mut read =
        |at: u64, len: usize| drive.get(usize::try_from(at).ok()?..)?.get(..len).map(<[u8]>::to_vec);
    let Some(Ok(found)) = ddf::find(drive.len() as u64, &mut read) else { return };
    let _ = format!("{found:?}");
    for config in &found.configs {
        assert!(!config.members.is_empty() && config.members.len() <= ddf::MEMBERS_MAX);
        assert!(config.parts > 0);
    }
    let volumes = found.volumes.iter().filter(|volume| volume.is_consistent() && volume.is_morphing());
    let _ = (volumes.count(), found.disks.iter().filter(|disk| disk.has_failed()).count());
}
