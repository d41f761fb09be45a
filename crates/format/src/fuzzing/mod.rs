//! One function per decoder family that takes any bytes and must return: the targets in `fuzz/` and
//! the smoke test call the same code. Beyond "no panic" each asserts what must hold for whatever
//! was accepted.

mod bcache;
mod containers;

pub use bcache::fuzz_bcache;
pub use containers::{fuzz_ddf, fuzz_imsm};

use crate::dm::{self, ArrayWalk, Walk, cache, raid, snapshot, thin, writecache};
use sha2::{Digest, Sha256};

use crate::bytes::put;
use crate::integrity::{IntegrityLayout, IntegritySuperblock, JournalRing, JournalSection};
use crate::luks;
use crate::lvm::area::Header;
use crate::lvm::label::{Area, SCAN_BYTES};
use crate::lvm::text::Section;
use crate::lvm::{Label, Stamp, Vg};
use crate::md::badblocks::BadBlocks;
use crate::md::{
    DeviceRole, JournalChecksum, Superblock, SuperblockFields, Version, backup, bitmap, identify, journal,
    ppl, read,
};
use crate::overlay;
use crate::rescue_map::{CompleteMap, Phase, RescueMap, Status};
use crate::undo;
use crate::{crc32, partition, probe};

/// Superblocks of every version: reads every field of whatever has the magic, round-trips and
/// changes what is valid. The first 8 bytes give the component's size.
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

fn touch(fields: &SuperblockFields) {
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
        (0, DeviceRole::Faulty),
        (3, DeviceRole::Active(1)),
        (26, DeviceRole::Spare),
        (1919, DeviceRole::Active(0)),
        (u32::MAX, DeviceRole::Spare),
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

/// The header of a reshape's backup file.
pub fn fuzz_backup(data: &[u8]) {
    let Ok(header) = backup::ReshapeBackup::decode(data) else { return };
    assert!(backup::is_reshape_backup(data) && header.parts.len() <= 2);
    for part in header.parts {
        let end = |start: u64| start.checked_add(part.len_sectors).and_then(|end| end.checked_mul(512));
        assert!(end(part.at_sectors).is_some() && end(part.array_start_sectors).is_some(), "counts in bytes");
    }
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
    let shape = ppl::PplShape { raid_disks: 4, chunk_sectors: 128, array_sectors: 1 << 30 };
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

/// Partition tables of a device whose start and end are the input, the middle zeros; with sectors
/// of either size. A GPT's checksums are repaired first.
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

/// Makes the checksums of the entries and of the header at `at` right, where there is one and its
/// entries are in `bytes`.
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

/// PV labels. The sector number and the checksum of a label in the first sector are repaired.
pub fn fuzz_lvm_label(data: &[u8]) {
    let _ = Label::find(data);
    let mut head = data.to_vec();
    head.resize(SCAN_BYTES, 0);
    head[..16].copy_from_slice(b"LABELONE\0\0\0\0\0\0\0\0");
    head[24..32].copy_from_slice(b"LVM2 001");
    let sum = crate::lvm::crc(&head[20..512]);
    head[16..20].copy_from_slice(&sum.to_le_bytes());
    if let Ok(Some(label)) = Label::find(&head) {
        assert_eq!(label.encode().expect("what came out of a sector fits")[..], head[..512], "lossless");
        let _ = (label.pe_count(8192), label.pe_count(0));
    }
}

/// Headers of metadata areas: whatever their slots say, a commit stays inside the area and off the
/// old text.
pub fn fuzz_lvm_area(data: &[u8]) {
    let Some((start, rest)) = data.split_first_chunk::<8>() else { return };
    let mut bytes = rest.to_vec();
    bytes.resize(512, 0);
    let area = Area { offset_bytes: u64::from_le_bytes(*start) & !511, size_bytes: 1 << 20 };
    bytes[4..24].copy_from_slice(b" LVM2 x[5A%r0N*>\x01\0\0\0");
    bytes[24..32].copy_from_slice(&area.offset_bytes.to_le_bytes());
    bytes[32..40].copy_from_slice(&area.size_bytes.to_le_bytes());
    let sum = crate::lvm::crc(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    let Ok(header) = Header::decode(&bytes, area) else { return };
    let inside =
        |at: u64, len: u64| at >= area.offset_bytes + 512 && at - area.offset_bytes + len <= area.size_bytes;
    let _ = header.precommitted().map(|location| header.ranges(&location));
    let old = header.committed().and_then(|location| header.ranges(&location).ok()).unwrap_or_default();
    assert!(old.iter().all(|range| inside(range.offset_bytes, range.size_bytes)));
    let Ok(commit) = header.commit(rest) else { return };
    for (at, bytes) in &commit.texts {
        let end = at + bytes.len() as u64;
        assert!(inside(*at, bytes.len() as u64));
        assert!(old.iter().all(|old| end <= old.offset_bytes || old.offset_bytes + old.size_bytes <= *at));
    }
}

/// The grammar, and VGs in it.
pub fn fuzz_lvm_text(data: &[u8]) {
    if let Ok(section) = Section::parse(data) {
        assert_eq!(Section::parse(&section.write()), Ok(section), "what was written reads back");
    }
    let Ok(vg) = Vg::parse(data) else { return };
    let problems = vg.problems();
    let _ = (problems.len(), vg.pvs.iter().map(|pv| vg.free_extents(&pv.name).len()).sum::<usize>());
    let stamp = Stamp { description: String::new(), host: String::new(), time: 0 };
    let text = vg.to_text(&stamp);
    let again = Vg::parse(&text).expect("what was written reads back");
    assert_eq!((again.to_text(&stamp), again.problems()), (text, problems));
}

/// Trees, arrays and superblocks of thin and cache metadata. Checksums are repaired, and blocks say
/// what number they have.
pub fn fuzz_dm_blocks(data: &[u8]) {
    let blocks = data.chunks(dm::BLOCK_BYTES).take(16);
    let sealed = |salt: u32, number_at: usize| {
        let seal = move |(number, block): (u64, &[u8])| {
            let mut bytes = [0; dm::BLOCK_BYTES];
            bytes[..block.len()].copy_from_slice(block);
            bytes[number_at..number_at + 8].copy_from_slice(&number.to_le_bytes());
            dm::reseal(&mut bytes, salt);
            bytes
        };
        (0..).zip(blocks.clone()).map(seal).collect::<Vec<_>>()
    };
    let (nodes, arrays) = (sealed(dm::NODE_SALT, 8), sealed(dm::ARRAY_SALT, 16));
    let count = nodes.len() as u64;
    let mut walk = Walk::<8>::new(0, 0..=u64::MAX, count);
    let mut last = None;
    while let Some(node) = walk.wants().and_then(|block| nodes.get(block as usize)) {
        for (key, _) in walk.give(node).unwrap_or_default() {
            assert!(last < Some(key), "keys ascend, so a walk ends");
            last = Some(key);
        }
    }
    let mut array = ArrayWalk::<8>::new(0, 1 << 20, count);
    // Which kind of block it wants is not told: it refuses the other.
    while let Some(block) = array.wants().map(|block| block as usize).filter(|&block| block < nodes.len()) {
        if array.give(&nodes[block]).is_err() && array.wants() == Some(block as u64) {
            let _ = array.give(&arrays[block]);
        }
    }
    if let Some(block) = sealed(thin::SALT, 8).first() {
        let pool = thin::Superblock::decode(block);
        let _ = pool.map(|pool| (pool.devices(), pool.mapping((0, [255; 8]))));
    }
    if let Some(block) = sealed(cache::SALT, 8).first() {
        let cache = cache::Superblock::decode(block);
        let _ = cache.map(|cache| (cache.mappings(), cache.dirty()));
    }
}

/// Stores of old snapshots, superblocks of dm-raid, lists of writecaches.
pub fn fuzz_dm_tables(data: &[u8]) {
    if let Ok(header) = snapshot::Header::decode(data) {
        let mut exceptions = snapshot::Exceptions::new(header, data.len() as u64 / 512);
        while let Some(chunk) = exceptions.wants() {
            let at = chunk as usize * header.chunk_sectors as usize * 512;
            if exceptions.give(&data[at.min(data.len())..]).is_err() {
                break;
            }
        }
        assert!(exceptions.iter().all(|(_, store)| store > 1 && store < data.len() as u64 / 512));
    }
    if let Ok(header) = writecache::Header::decode(data) {
        let end_bytes = header.end_bytes().expect("it was checked");
        assert!(header.data_offset_bytes() >= writecache::HEADER_BYTES as u64 + header.entries_bytes());
        assert!(header.data_offset_bytes() <= end_bytes);
        for bytes in data[writecache::HEADER_BYTES..].as_chunks().0 {
            let entry = header.entry(bytes);
            assert!(entry.is_none_or(|entry| entry.sequence < header.sequence));
        }
    }
    if let Ok(Some(mut superblock)) = raid::Superblock::decode(data) {
        assert_eq!(superblock.bytes()[..], data[..raid::SUPERBLOCK_BYTES], "lossless");
        let _ = (superblock.shape(), superblock.is_reshaping(), superblock.data_offsets());
        for position in [0, 64, 255, 256, u32::MAX] {
            superblock.set_failed(position, true);
            let _ = superblock.is_failed(position);
        }
    }
}

/// Maps of copies, of a source as large as they say or smaller.
pub fn fuzz_rescue_map(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for size_bytes in [0, 4096, u64::MAX] {
        let Ok(map) = RescueMap::parse(&text, size_bytes) else { continue };
        assert_eq!(
            RescueMap::parse(&map.render(Phase::Copying, 0), size_bytes),
            Ok(map),
            "what was written reads back"
        );
    }
}

/// Maps of copies, which say themselves how large the drive was: a byte counts as read only if a
/// line of the text says so, or it was written; and what was noted of writes reads back.
pub fn fuzz_copy_map(data: &[u8]) {
    let Some((numbers, text)) = data.split_first_chunk::<16>() else { return };
    let text = String::from_utf8_lossy(text);
    let Ok(mut copy) = CompleteMap::parse(&text) else { return };
    let size_bytes = copy.map.size_bytes();
    let number = |word: &str| match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse::<u64>().ok(),
    };
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, len) = (number(words.next()?)?, number(words.next()?)?);
        (words.next() == Some("+")).then_some(start..start.saturating_add(len))
    };
    let said: Vec<_> = text.lines().filter_map(line).collect();
    for (area, status) in copy.map.areas() {
        // Each end of a finished area lies in what some line says.
        for at in [area.start, area.end - 1].into_iter().filter(|_| status == Status::Finished) {
            assert!(said.iter().any(|range| range.contains(&at)), "byte {at} is read by no line");
        }
    }
    let missing = copy.map.missing();
    let unread: u64 = missing.iter().map(|run| run.end - run.start).sum();
    assert_eq!(unread + copy.map.bytes(Status::Finished), size_bytes, "every byte is one or the other");
    assert!(missing.iter().all(|run| !copy.map.is_finished(run.clone())));

    let word = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
    let start = word(0) % size_bytes.max(1);
    let end = start + word(8) % (size_bytes - start).max(1);
    copy.map.set(start..end, Status::Finished);
    assert!(start == end || copy.map.is_finished(start..end));
    for run in &missing {
        for outside in [run.start..run.end.min(start), run.start.max(end)..run.end] {
            assert!(outside.is_empty() || !copy.map.is_finished(outside), "only what was written is read");
        }
    }
    assert_eq!(CompleteMap::parse(&copy.render()), Ok(copy), "what was written reads back");
}

/// Undo logs: as they are, and with checksums, lengths and numbers that are right.
pub fn fuzz_undo(data: &[u8]) {
    let _ = undo::UndoLog::decode(data);
    let Some((header, rest)) = data.split_first_chunk::<64>() else { return };
    let (mut bytes, mut rest, mut entries) = (header.to_vec(), rest, 0_u32);
    while let Some((head, payload)) = rest.split_first_chunk::<12>() {
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]).min(payload.len() as u32);
        let head = [&head[..4], &len.to_le_bytes()].concat();
        let (payload, behind) = payload.split_at(len as usize);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head), payload);
        bytes.extend([&head[..], &sum.to_le_bytes(), payload].concat());
        (rest, entries) = (behind, entries + 1);
    }
    let len = bytes.len() as u64;
    bytes[..16].copy_from_slice(b"wattle undo log\0");
    bytes[16..24].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    bytes[24..32].copy_from_slice(&len.to_le_bytes());
    bytes[44..48].copy_from_slice(&entries.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..64]);
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    let Ok(log) = undo::UndoLog::decode(&bytes) else { return };
    assert_eq!(undo::UndoLog::decode(&log.encode()), Ok(log.clone()), "what was written reads back");
    for range in &log.ranges {
        let end = range.sector + u64::from(range.sectors);
        assert!(end <= log.targets[range.target as usize].sectors);
        for sector in 0..range.sectors as usize {
            let _ = range.is_written(sector, range.before(sector));
        }
    }
}

/// Headers of overlays. Magic, version and checksum are made right first.
pub fn fuzz_overlay(data: &[u8]) {
    let _ = overlay::Header::decode(data);
    let Some(bytes) = data.first_chunk::<{ overlay::PAGE_BYTES as usize }>() else { return };
    let mut bytes = *bytes;
    overlay::reseal(&mut bytes);
    let Ok(header) = overlay::Header::decode(&bytes) else { return };
    assert_eq!(overlay::Header::decode(&header.encode()), Ok(header.clone()), "what was written reads back");
    assert!(overlay::OverlayLayout { sectors: header.sectors }.file_bytes() >= overlay::PAGE_BYTES);
    assert_eq!(header.check(&header), Ok(()));
}

/// Headers of LUKS: as they are; and as the JSON of a header of LUKS2 whose checksum is right.
pub fn fuzz_luks(data: &[u8]) {
    let parse = |device: &[u8]| {
        let slice = |at: u64, len: usize| {
            let start = usize::try_from(at).ok()?;
            device.get(start..start.checked_add(len)?).map(<[u8]>::to_vec)
        };
        luks::read(&mut { slice })
    };
    for header in [parse(data), parse(&luks_header(data))].into_iter().flatten() {
        for slot in &header.slots {
            let needed = u64::from(slot.key_bytes) * u64::from(slot.stripes);
            assert!(slot.area.end - slot.area.start >= needed, "a key fits its area");
            assert!(slot.kdf.memory_bytes() < 1 << 39);
        }
        assert!(header.slots.len() <= luks::limits::SLOTS as usize);
        assert!(header.segments.iter().all(|segment| segment.sector_bytes.is_power_of_two()));
    }
}

/// Superblocks of dm-integrity, where their layouts say things lie, and journals of those.
pub fn fuzz_integrity(data: &[u8]) {
    let Ok(superblock) = IntegritySuperblock::parse(data) else { return };
    let Ok(layout) = IntegrityLayout::of(&superblock) else { return };
    let per_block = 1 << superblock.log2_sectors_per_block;
    for sector in [0, superblock.provided_sectors / 2, superblock.provided_sectors - 1] {
        let sector = sector / per_block * per_block;
        assert!(superblock.is_apart() || layout.tag_at_bytes(sector) < layout.data_sector(sector) * 512);
        assert!(superblock.is_apart() || layout.run_sectors(sector) >= per_block);
    }
    let _ = (layout.bitmap(), layout.end_bytes(), superblock.tags_end_sector());
    let mut rounds = Vec::new();
    for section in 0..layout.sections.min(64) {
        let part = layout.section_at_bytes(section)..layout.section_at_bytes(section + 1);
        let Some(bytes) = data.get(part.start as usize..part.end as usize) else { break };
        let _ = JournalSection::is_unused(&layout, bytes);
        let Ok(found) = JournalSection::parse(&layout, section, bytes) else { continue };
        assert!(found.blocks.len() <= layout.section_entries as usize);
        rounds.push(found.rounds);
    }
    if let Ok(ring) = JournalRing::of(&rounds) {
        assert_eq!(ring.counted.len() + ring.unfinished.len(), rounds.len());
    }
}

/// A first header of LUKS2 of 16 KiB around this JSON.
#[must_use]
pub fn luks_header(json: &[u8]) -> Vec<u8> {
    const BYTES: usize = 0x4000;
    let mut header = vec![0; BYTES];
    put(&mut header, 0, &luks::MAGIC);
    put(&mut header, 6, &2_u16.to_be_bytes());
    put(&mut header, 8, &(BYTES as u64).to_be_bytes());
    put(&mut header, 72, b"sha256");
    let len = json.len().min(BYTES - 4096);
    put(&mut header, 4096, &json[..len]);
    let sum = Sha256::digest(&header);
    put(&mut header, 448, &sum);
    header
}

/// Takes any bytes and returns, or the decoder has a bug.
pub type FuzzTarget = fn(&[u8]);

/// All of them, by the name of their file in `fuzz/`.
pub const ALL: [(&str, FuzzTarget); 22] = [
    ("superblock", fuzz_superblock),
    ("bitmap", fuzz_bitmap),
    ("badblocks", fuzz_badblocks),
    ("ppl", fuzz_ppl),
    ("backup", fuzz_backup),
    ("journal", fuzz_journal),
    ("partition", fuzz_partition),
    ("probe", fuzz_probe),
    ("lvm_label", fuzz_lvm_label),
    ("lvm_area", fuzz_lvm_area),
    ("lvm_text", fuzz_lvm_text),
    ("dm_blocks", fuzz_dm_blocks),
    ("dm_tables", fuzz_dm_tables),
    ("rescue_map", fuzz_rescue_map),
    ("copy_map", fuzz_copy_map),
    ("overlay", fuzz_overlay),
    ("undo", fuzz_undo),
    ("luks", fuzz_luks),
    ("integrity", fuzz_integrity),
    ("bcache", fuzz_bcache),
    ("imsm", containers::fuzz_imsm),
    ("ddf", containers::fuzz_ddf),
];
