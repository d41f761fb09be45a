//! Partition tables: what every kind is read as, and what is said about damaged ones.

use crate::common::disk::{Disk, Range};
use proptest::prelude::*;
use wattle_format::partition::{
    ChainError, GptHeaderError, Partition, PartitionFault, PartitionTable, PartitionType, TableKind,
    TableProblem, decode,
};

const SECTORS: usize = 2000;

fn read(disk: &Disk, sector_bytes: u32) -> Option<PartitionTable> {
    decode(disk.bytes.len() as u64, sector_bytes, |at, len| {
        disk.bytes.get(at as usize..at as usize + len).map(<[u8]>::to_vec)
    })
}

fn table(disk: &Disk) -> PartitionTable {
    read(disk, 512).unwrap()
}

/// Number, start, length and whether it is usable.
fn places(table: &PartitionTable) -> Vec<(u32, u64, u64, bool)> {
    let place = |part: &Partition| (part.number, part.start_sectors, part.len_sectors, part.is_usable());
    table.partitions.iter().map(place).collect()
}

fn gpt(partitions: &[Range]) -> Disk {
    let mut disk = Disk::new(SECTORS, 512);
    disk.gpt(partitions);
    disk
}

#[test]
fn no_table() {
    assert_eq!(read(&Disk::new(0, 512), 512), None);
    assert_eq!(read(&Disk::new(1, 512), 512), None);
    assert_eq!(read(&Disk::new(SECTORS, 512), 512), None);
    let mut boot_code = Disk::new(SECTORS, 512);
    boot_code.put(510, &[0x55, 0xaa]);
    assert_eq!(read(&boot_code, 512), None, "boot code without partitions");
    let mut fat = Disk::new(SECTORS, 512);
    fat.mbr_entry(0, 0, 0x83, 100, 100);
    fat.put(54, b"FAT16   ");
    assert_eq!(read(&fat, 512), None, "a file system's boot sector");
}

#[test]
fn a_gpt_in_full() {
    let disk = gpt(&[(40, 49), (100, 199)]);
    let table = table(&disk);
    assert_eq!((table.kind, table.sector_bytes), (TableKind::Gpt, 512));
    assert_eq!(table.uuid.as_deref(), Some("d1d1d1d1-d1d1-d1d1-d1d1-d1d1d1d1d1d1"));
    assert_eq!(table.problems, []);
    assert_eq!(places(&table), [(1, 40, 10, true), (2, 100, 100, true)]);
    let second = &table.partitions[1];
    assert_eq!(second.name.as_deref(), Some("part é 1"));
    assert_eq!(second.uuid.as_deref(), Some("02020202-0202-0202-0202-020202020202"));
    assert_eq!((second.kind.to_string().as_str(), second.flags), ("Linux RAID", 4));
}

/// A drive with sectors of 4096 bytes, read from its image: a file, whose sectors have 512.
#[test]
fn a_gpt_of_large_sectors_is_found_from_either_side() {
    let mut disk = Disk::new(SECTORS, 4096);
    disk.gpt(&[(40, 49)]);
    let native = read(&disk, 4096).unwrap();
    assert_eq!((places(&native), native.problems.len()), (vec![(1, 320, 80, true)], 0));
    let image = read(&disk, 512).unwrap();
    assert_eq!((image.sector_bytes, places(&image)), (4096, places(&native)));
    assert_eq!(image.problems, [TableProblem::SectorSize { table_bytes: 4096, device_bytes: 512 }]);
    let small = read(&gpt(&[(40, 49)]), 4096).unwrap();
    assert_eq!((small.sector_bytes, places(&small)), (512, vec![(1, 40, 10, true)]));
}

#[test]
fn either_copy_is_enough() {
    let whole = gpt(&[(40, 49)]);
    let last = (SECTORS - 1) * 512;
    let mut primary_gone = whole.clone();
    primary_gone.put(512, &[0; 512]);
    let found = table(&primary_gone);
    assert_eq!(places(&found), [(1, 40, 10, true)]);
    assert_eq!(found.problems, [TableProblem::Primary(GptHeaderError::NoSignature)]);

    let mut entries_torn = whole.clone();
    entries_torn.put(1024 + 32, &[41]);
    let found = table(&entries_torn);
    assert_eq!(places(&found), [(1, 40, 10, true)]);
    assert!(matches!(found.problems[..], [TableProblem::Primary(GptHeaderError::EntriesChecksum { .. })]));

    let mut backup_gone = whole.clone();
    backup_gone.put(last + 60, &[0]);
    let found = table(&backup_gone);
    assert_eq!(places(&found), [(1, 40, 10, true)]);
    assert!(matches!(found.problems[..], [TableProblem::Backup(GptHeaderError::HeaderChecksum { .. })]));

    let mut nothing_left = backup_gone;
    nothing_left.put(512 + 60, &[0]);
    let found = table(&nothing_left);
    assert_eq!((found.kind, found.uuid, found.partitions), (TableKind::Gpt, None, vec![]));
    assert_eq!(found.problems.len(), 2);
    nothing_left.put(0, &[0; 512]);
    assert_eq!(read(&nothing_left, 512), None, "neither announced nor intact");

    let mut start_zeroed = whole;
    start_zeroed.put(0, &[0; 34 * 512]);
    let found = table(&start_zeroed);
    assert_eq!(places(&found), [(1, 40, 10, true)]);
    assert_eq!(
        found.problems,
        [TableProblem::Primary(GptHeaderError::NoSignature), TableProblem::NoProtectiveMbr]
    );
}

/// The first sectors of a dying drive are the ones most written to.
#[test]
fn sectors_that_cannot_be_read_leave_the_other_copy() {
    let disk = gpt(&[(40, 49)]);
    let found = decode(disk.bytes.len() as u64, 512, |at, len| {
        (at >= 1024).then(|| disk.bytes[at as usize..at as usize + len].to_vec())
    });
    let found = found.unwrap();
    assert_eq!(places(&found), [(1, 40, 10, true)]);
    assert_eq!(
        found.problems,
        [TableProblem::Primary(GptHeaderError::Unreadable), TableProblem::NoProtectiveMbr]
    );
}

#[test]
fn copies_that_differ() {
    let mut disk = gpt(&[(40, 49)]);
    let last = disk.sectors() - 1;
    disk.gpt_copy(last, last - 32, 1, &[(40, 59)], 128);
    let found = table(&disk);
    assert_eq!((places(&found), found.problems), (vec![(1, 40, 10, true)], vec![TableProblem::CopiesDiffer]));
}

#[test]
fn disks_that_grew_or_were_cut_off() {
    let mut grown = gpt(&[(40, 49)]);
    grown.bytes.resize(3 * SECTORS * 512, 0);
    let found = table(&grown);
    let (at_bytes, size_bytes) = ((SECTORS as u64 - 1) * 512, grown.bytes.len() as u64);
    assert_eq!(places(&found), [(1, 40, 10, true)]);
    assert_eq!(found.problems, [TableProblem::BackupNotAtEnd { at_bytes, size_bytes }]);
    grown.put(1024, &[9]);
    let found = table(&grown);
    assert_eq!(places(&found), [(1, 40, 10, true)], "the primary's header still tells where the backup is");

    let mut cut = gpt(&[(40, 49), (1000, 1800)]);
    cut.bytes.truncate(1500 * 512);
    let found = table(&cut);
    assert_eq!(places(&found), [(1, 40, 10, true), (2, 1000, 801, false)]);
    let fault = PartitionFault::BeyondDevice { end_sectors: 1801, device_sectors: 1500 };
    assert_eq!(found.partitions[1].fault, Some(fault));
    let (table_bytes, size_bytes) = (SECTORS as u64 * 512, 1500 * 512);
    assert_eq!(found.problems, [TableProblem::DeviceShorter { table_bytes, size_bytes }]);
}

#[test]
fn entries_of_other_sizes() {
    for entry_bytes in [128, 136, 256, 512] {
        let mut disk = gpt(&[]);
        let last = disk.sectors() - 1;
        disk.gpt_copy(1, 100, last, &[(1000, 1099), (1200, 1200)], entry_bytes);
        let found = table(&disk);
        assert_eq!(places(&found), [(1, 1000, 100, true), (2, 1200, 1, true)], "{entry_bytes}");
    }
    let mut disk = gpt(&[]);
    let last = disk.sectors() - 1;
    disk.gpt_copy(1, 100, last, &[(1000, 1099)], 132);
    let error = GptHeaderError::Entries { count: 128, bytes: 132 };
    assert_eq!(table(&disk).problems, [TableProblem::Primary(error)]);
}

#[test]
fn partitions_of_a_gpt_that_cannot_be() {
    let found = table(&gpt(&[(40, 49), (60, 50), (5, 36), (1900, 2100), (70, 79), (79, 90), (0, u64::MAX)]));
    let faults: Vec<_> = found.partitions.iter().map(|partition| partition.fault).collect();
    let overlaps = |number| Some(PartitionFault::Overlaps { number });
    assert_eq!(faults[1], Some(PartitionFault::Reversed));
    assert_eq!(faults[2], Some(PartitionFault::OverTable));
    assert_eq!(
        faults[3],
        Some(PartitionFault::BeyondDevice { end_sectors: 2101, device_sectors: SECTORS as u64 })
    );
    assert_eq!(faults[6], Some(PartitionFault::OverTable));
    assert_eq!((faults[4], faults[5]), (overlaps(7), overlaps(7)), "of one that covers everything");
    let found = table(&gpt(&[(40, 49), (70, 79), (79, 90), (91, 95)]));
    let faults: Vec<_> = found.partitions.iter().map(|partition| partition.fault).collect();
    assert_eq!(faults, [None, overlaps(3), overlaps(2), None]);
}

#[test]
fn hybrid_and_stale() {
    let mut hybrid = gpt(&[(40, 49)]);
    hybrid.mbr_entry(0, 1, 0x83, 60, 10);
    let found = table(&hybrid);
    assert_eq!((found.kind, places(&found)), (TableKind::Gpt, vec![(1, 40, 10, true)]));
    assert_eq!(found.problems, [TableProblem::Hybrid { partitions: 1 }]);

    let mut stale = hybrid;
    stale.mbr_entry(0, 0, 0, 0, 0);
    let found = table(&stale);
    assert_eq!((found.kind, places(&found)), (TableKind::Mbr, vec![(2, 60, 10, true)]));
    assert_eq!(found.problems, [TableProblem::StaleGpt]);
}

/// Primary 1 and 3, an extended partition 2 with a chain of logical ones.
fn mbr(sector_bytes: usize) -> Disk {
    let mut disk = Disk::new(SECTORS, sector_bytes);
    disk.put(440, &0x1234_abcd_u32.to_le_bytes());
    disk.mbr_entry(0, 0, 0xfd, 100, 100);
    disk.mbr_entry(0, 1, 0x0f, 400, 600);
    disk.mbr_entry(0, 2, 0x83, 200, 50);
    disk.mbr_entry(400, 0, 0x8e, 10, 90);
    disk.mbr_entry(400, 1, 0x05, 200, 100);
    disk.mbr_entry(600, 0, 0x83, 1, 99);
    disk.mbr_entry(600, 1, 0x05, 100, 100);
    disk.mbr_entry(500, 0, 0x82, 5, 10);
    disk
}

#[test]
fn an_mbr_in_full() {
    let found = table(&mbr(512));
    assert_eq!((found.kind, found.uuid.as_deref()), (TableKind::Mbr, Some("1234abcd")));
    assert_eq!(found.problems, []);
    let expected = [
        (1, 100, 100, true),
        (2, 400, 600, false),
        (3, 200, 50, true),
        (5, 410, 90, true),
        (6, 601, 99, true),
        (7, 505, 10, true),
    ];
    assert_eq!(places(&found), expected);
    assert_eq!(found.partitions[3].kind, PartitionType::Mbr(0x8e));
    assert_eq!(found.partitions[3].uuid.as_deref(), Some("1234abcd-05"));

    let large = read(&mbr(4096), 4096).unwrap();
    let scaled = expected.map(|(number, start, len, usable)| (number, 8 * start, 8 * len, usable));
    assert_eq!((places(&large), large.problems), (scaled.to_vec(), vec![]));
}

/// What is left in the third and fourth entry of a record gets no number, unless it lies where a
/// partition of that record can: so says Linux.
#[test]
fn leftovers_in_a_boot_record_get_no_number() {
    let expected = places(&table(&mbr(512)));
    // Beyond what the link covers, beyond the extended partition, and far from both.
    for (record, start, len) in [(600, 90, 11), (500, 50, 51), (400, 0x1234_5678, 0x9abc_def0)] {
        let mut disk = mbr(512);
        disk.mbr_entry(record, 2, 0x83, start, len);
        disk.mbr_entry(record, 3, 0x12, start, len);
        let found = table(&disk);
        assert_eq!((places(&found), found.problems), (expected.clone(), vec![]), "{record}");
    }
    let mut disk = mbr(512);
    disk.mbr_entry(600, 2, 0x83, 100, 0);
    disk.mbr_entry(500, 3, 0x83, 20, 30);
    assert_eq!(places(&table(&disk)).last(), Some(&(8, 520, 30, true)), "one that can be");
}

#[test]
fn chains_that_cannot_be_followed() {
    let chain = |change: &dyn Fn(&mut Disk)| {
        let mut disk = mbr(512);
        change(&mut disk);
        let found = table(&disk);
        let [TableProblem::Chain { after, error }] = found.problems[..] else {
            panic!("{:?}", found.problems)
        };
        assert_eq!(found.partitions.len() as u32, after - 1, "what came before is there");
        (after, error)
    };
    let circle = chain(&|disk| disk.mbr_entry(500, 1, 5, 200, 100));
    assert_eq!(circle, (7, ChainError::Circle { at_sectors: 600 }));
    let itself = chain(&|disk| disk.mbr_entry(500, 1, 5, 100, 100));
    assert_eq!(itself, (7, ChainError::Circle { at_sectors: 500 }));
    let outside = chain(&|disk| disk.mbr_entry(500, 1, 5, 600, 100));
    assert_eq!(outside, (7, ChainError::Outside { at_sectors: 1000 }));
    let unmarked = chain(&|disk| disk.put(500 * 512 + 510, &[0]));
    assert_eq!(unmarked, (6, ChainError::NoMark { at_sectors: 500 }));

    let mut cut = mbr(512);
    cut.bytes.truncate(450 * 512);
    let found = table(&cut);
    let error = ChainError::Unreadable { at_sectors: 600 };
    assert_eq!(found.problems, [TableProblem::Chain { after: 5, error }]);

    let mut long = Disk::new(SECTORS, 512);
    long.mbr_entry(0, 0, 5, 10, 1900);
    for at in 10..1000 {
        long.mbr_entry(at, 0, 5, at as u32 - 9, 1);
    }
    let error = ChainError::TooLong { max: 256 };
    assert_eq!(table(&long).problems, [TableProblem::Chain { after: 4, error }]);
}

#[test]
fn partitions_of_an_mbr_that_cannot_be() {
    let mut disk = mbr(512);
    disk.mbr_entry(0, 2, 0x83, 390, 11);
    disk.mbr_entry(0, 3, 0x83, 1990, 11);
    disk.mbr_entry(500, 0, 0x82, 450, 100);
    let found = table(&disk);
    let fault = |number| found.partitions.iter().find(|part| part.number == number).unwrap().fault;
    assert_eq!(fault(1), None);
    assert_eq!(fault(3), Some(PartitionFault::Overlaps { number: 2 }), "with the extended partition");
    assert_eq!(fault(4), Some(PartitionFault::BeyondDevice { end_sectors: 2001, device_sectors: 2000 }));
    assert_eq!(fault(7), Some(PartitionFault::OutsideExtended { number: 2 }));
    assert_eq!((fault(5), fault(6)), (None, None));
    disk.mbr_entry(600, 0, 0x83, 0, 99);
    let found = table(&disk);
    assert_eq!(found.partitions[5].fault, Some(PartitionFault::OverTable), "over its own record");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A partition that shares a sector with another is marked, and no other.
    #[test]
    fn overlaps_are_those_that_share_a_sector(ranges in proptest::collection::vec((40_u64..120, 0_u64..30), 0..12)) {
        let ranges: Vec<Range> = ranges.into_iter().map(|(start, len)| (start, start + len)).collect();
        let found = table(&gpt(&ranges));
        prop_assert_eq!(found.partitions.len(), ranges.len());
        for (ix, (first, last)) in ranges.iter().enumerate() {
            let shares = ranges.iter().enumerate().any(|(other, (f, l))| other != ix && first <= l && f <= last);
            prop_assert_eq!(found.partitions[ix].is_usable(), !shares, "{:?} of {:?}", (first, last), &ranges);
        }
    }
}
