//! One function per decoder family that takes any bytes and must return: the targets in `fuzz/` and the smoke test
//! call the same code. Beyond "no panic" each asserts what must hold for whatever was accepted.

use crate::md::badblocks::BadBlocks;
use crate::md::{Fields, JournalChecksum, Role, Superblock, Version, bitmap, identify, journal, ppl, read};
use crate::{crc32, partition, probe};

/// Superblocks of every version: reads every field of whatever has the magic, round-trips and changes what is valid.
/// The first 8 bytes give the component's size.
pub fn fuzz_superblock(data: &[u8]) {
    let Some((size, bytes)) = data.split_first_chunk::<8>() else { return };
    let size_sectors = u64::from_le_bytes(*size);
    for version in Version::ALL {
        if let Some(raw) = read(version, bytes, size_sectors) {
            touch(raw.fields());
            let _ = raw.to_string();
        }
        if let Ok(Some(superblock)) = identify(version, bytes, size_sectors) {
            assert_eq!(superblock.bytes()[..], bytes[..superblock.bytes().len()], "lossless");
            change(superblock, size_sectors);
        }
    }
}

fn touch(fields: &Fields) {
    let _ = format!("{fields:?} {} {}", fields.name(), fields.features());
    let _ = (fields.set_uuid(), fields.stored_uuid(), fields.ctime(), fields.utime(), fields.layout());
    let _ = (fields.size_sectors(), fields.chunk_sectors(), fields.reshape(), fields.resync_offset());
    let _ = (fields.data_offset_sectors(), fields.data_size_sectors(), fields.super_offset_sectors());
    let _ = (fields.recovery_offset(), fields.journal_tail(), fields.device_uuid(), fields.device_flags());
    let _ = (fields.bad_block_log(), fields.ppl(), fields.logical_block_size(), fields.computed_checksum());
    let _ = (fields.bitmap_offset_sectors(), fields.sector_from_superblock(i32::MIN), fields.md_minor());
    assert!(fields.roles().count() <= 1920);
    let _ = (fields.role_of(u32::MAX), fields.descriptor(u32::MAX), fields.descriptor(0));
}

fn change(mut superblock: Superblock, size_sectors: u64) {
    for (dev_number, role) in [
        (0, Role::Faulty),
        (3, Role::Active(1)),
        (26, Role::Spare),
        (1919, Role::Active(0)),
        (u32::MAX, Role::Spare),
    ] {
        let _ = superblock.set_role(dev_number, role);
    }
    let _ = superblock.remove_device(1);
    superblock.set_events(u64::MAX);
    superblock.set_resync_offset(u64::MAX - 1);
    superblock.set_reshape_position(1);
    let _ = superblock.set_recovery_offset(Some(5));
    assert_eq!(superblock.checksum(), superblock.computed_checksum(), "sealed after every change");
    let _ = superblock.check(size_sectors);
}

/// Bitmap header and bits.
pub fn fuzz_bitmap(data: &[u8]) {
    let Ok(header) = bitmap::Header::decode(data) else { return };
    assert_eq!(header.bytes()[..], data[..bitmap::HEADER_BYTES], "lossless");
    let _ = (header.kind(), header.image_bytes(), header.freshness(&[0; 16], 1));
    let bits = header.bits().unwrap_or(0);
    let bytes = &data[bitmap::HEADER_BYTES..];
    let counted = bitmap::count_ones(bytes, bits);
    assert!(counted <= bits);
    assert_eq!(counted, bitmap::ones(bytes, bits).count() as u64);
}

/// Bad block log; the first byte is the shift.
pub fn fuzz_badblocks(data: &[u8]) {
    let Some((&shift, area)) = data.split_first() else { return };
    let Ok(blocks) = BadBlocks::decode(area, shift) else { return };
    if let Ok(encoded) = blocks.encode(area.len(), shift) {
        assert_eq!(BadBlocks::decode(&encoded, shift), Ok(blocks), "what was written reads back");
    }
}

/// PPL area, headers and entries. The checksum is repaired first, or nothing would get past it.
pub fn fuzz_ppl(data: &[u8]) {
    let uuid = [0; 16];
    let _ = ppl::newest(data, &uuid);
    let mut area = data.to_vec();
    if area.len() >= ppl::HEADER_BYTES {
        area[512..516].copy_from_slice(&crate::md::ppl_signature(&uuid).to_le_bytes());
        area[532..536].fill(0);
        let sum = crate::md::crc(&area[..ppl::HEADER_BYTES]);
        area[532..536].copy_from_slice(&sum.to_le_bytes());
    }
    let Some(newest) = ppl::newest(&area, &uuid) else { return };
    let shape = ppl::Shape { raid_disks: 4, chunk_sectors: 128, array_sectors: 1 << 30 };
    for work in newest.header.entries.iter().filter_map(|entry| entry.work(&shape).ok()) {
        assert!(work.rows * work.row_sectors <= 128 && work.data_disks <= 3);
    }
    let encoded = newest.header.encode(&uuid);
    assert_eq!(ppl::Header::decode(&encoded[..], &uuid), Ok(newest.header));
}

/// Journal meta block. Magic, version, size, position and checksum are repaired first.
pub fn fuzz_journal(data: &[u8]) {
    let checksum = JournalChecksum::new(&[0; 16]);
    let _ = journal::MetaBlock::decode(data, checksum, 0, None);
    let Some(block) = data.first_chunk::<{ journal::BLOCK_BYTES }>() else { return };
    let mut block = *block;
    block[..4].copy_from_slice(&[0x09, 0xc5, 0x33, 0x64]);
    block[4..8].fill(0);
    block[8] = 1;
    block[14..16].fill(0);
    block[13] &= 0x0f;
    block[24..32].fill(0);
    let sum = checksum.of(&block);
    block[4..8].copy_from_slice(&sum.to_le_bytes());
    let Ok(meta) = journal::MetaBlock::decode(&block, checksum, 0, None) else { return };
    let encoded = meta.encode(checksum).expect("what came out of a block fits into one");
    assert_eq!(journal::MetaBlock::decode(&encoded[..], checksum, 0, None), Ok(meta));
}

/// Signatures, with the bytes at the start, in the middle and at the end of a device.
pub fn fuzz_probe(data: &[u8]) {
    let size = data.len() as u64;
    let _ = probe::identify(size, &[(0, data)]);
    let _ = probe::identify(u64::MAX, &[(u64::MAX - size, data), (65536, data), (128 << 10, data)]);
    let _ = probe::identify(0, &[(0, data)]);
}

/// Partition tables of a device whose start and end are the input, the middle zeros; with sectors of either size. A GPT's
/// checksums are repaired first.
pub fn fuzz_partition(data: &[u8]) {
    const SIZE_BYTES: u64 = 1 << 30;
    let mut head = data.to_vec();
    for header in [512, 4096] {
        reseal_gpt(&mut head, header);
    }
    let end_bytes = SIZE_BYTES - head.len() as u64;
    for sector_bytes in [512, 4096] {
        let mut reads = 0;
        let table = partition::decode(SIZE_BYTES, sector_bytes, |offset_bytes, len_bytes| {
            assert!(len_bytes as u64 <= partition::ENTRIES_BYTES_MAX);
            reads += 1;
            let byte = |at: u64| match at.checked_sub(end_bytes) {
                Some(at) => head[at as usize],
                None => head.get(at as usize).copied().unwrap_or(0),
            };
            Some((offset_bytes..offset_bytes + len_bytes as u64).map(byte).collect())
        });
        assert!(reads < 300, "a bounded number of times");
        let Some(table) = table else { continue };
        let usable: Vec<_> = table.partitions.iter().filter(|partition| partition.is_usable()).collect();
        for (at, one) in usable.iter().enumerate() {
            let end_sectors = one.start_sectors + one.len_sectors;
            assert!(
                0 < one.start_sectors && one.start_sectors < end_sectors && end_sectors <= SIZE_BYTES / 512
            );
            let apart = |other: &&partition::Partition| {
                end_sectors <= other.start_sectors
                    || other.start_sectors + other.len_sectors <= one.start_sectors
            };
            assert!(usable[..at].iter().all(apart), "usable partitions share no sector");
        }
        let _ = table.problems.iter().map(ToString::to_string).count();
    }
}

/// Makes the checksums of the entries and of the header at `at` right, where there is one and its entries are in `bytes`.
fn reseal_gpt(bytes: &mut [u8], at: usize) {
    let Some(header) = bytes.get(at..at + 512).filter(|header| header.starts_with(b"EFI PART")) else {
        return;
    };
    let field = |at: usize| crate::bytes::le32(header, at) as usize;
    let (covered, start, len) =
        (field(12), field(72).saturating_mul(at), field(80).saturating_mul(field(84)));
    if let Some(entries) = bytes.get(start..start.saturating_add(len)) {
        let sum = crc32::checksum(entries);
        bytes[at + 88..at + 92].copy_from_slice(&sum.to_le_bytes());
    }
    if (92..=512).contains(&covered) {
        bytes[at + 16..at + 20].fill(0);
        let sum = crc32::checksum(&bytes[at..at + covered]);
        bytes[at + 16..at + 20].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Takes any bytes and returns, or the decoder has a bug.
pub type Target = fn(&[u8]);

/// All of them, by the name of their file in `fuzz/`.
pub const ALL: [(&str, Target); 7] = [
    ("superblock", fuzz_superblock),
    ("bitmap", fuzz_bitmap),
    ("badblocks", fuzz_badblocks),
    ("ppl", fuzz_ppl),
    ("journal", fuzz_journal),
    ("partition", fuzz_partition),
    ("probe", fuzz_probe),
];
