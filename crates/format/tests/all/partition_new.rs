//! New partition tables: what is written is read back as it was planned, by other tools too, and
//! whatever a power cut leaves of it is no table or this one.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use proptest::prelude::*;
use wattle_format::partition::{
    Guid, NewPartition, NewTable, NewTableError, PartitionTable, PlacedBytes, TableKind, decode,
};

const MIB: u64 = 1 << 20;

/// A disk of zeros and what was written to it, by sector.
#[derive(Clone, Default)]
struct Disk {
    sectors: BTreeMap<u64, Vec<u8>>,
}

impl Disk {
    fn write(&mut self, piece: &PlacedBytes) {
        for (sector, bytes) in (piece.offset_bytes / 512..).zip(piece.bytes.chunks(512)) {
            self.sectors.insert(sector, bytes.to_vec());
        }
    }

    fn table(&self, table: &NewTable) -> Option<PartitionTable> {
        decode(table.size_bytes, table.sector_bytes, |at, len| {
            let sectors = at / 512..(at + len as u64) / 512;
            let bytes = sectors.flat_map(|at| self.sectors.get(&at).cloned().unwrap_or_else(|| vec![0; 512]));
            Some(bytes.collect())
        })
    }
}

fn id(number: u64) -> Guid {
    Guid::from_random(std::array::from_fn(|at| (number * 31 + at as u64) as u8))
}

/// Partitions one behind the other from 1 MiB on, so many MiB each, with gaps of so many between.
fn table(sector_bytes: u32, parts: &[(u64, u64)], tail_bytes: u64) -> NewTable {
    let mut at = MIB;
    let mut partitions = Vec::new();
    for (number, (gap, len)) in (1..).zip(parts) {
        at += gap * MIB;
        let name = format!("bänd {number}");
        let (start_bytes, len_bytes) = (at, len * MIB);
        partitions.push(NewPartition { number, start_bytes, len_bytes, id: id(number.into()), name });
        at += len * MIB;
    }
    NewTable { size_bytes: at + MIB + tail_bytes, sector_bytes, id: id(99), partitions }
}

#[track_caller]
fn assert_is(found: &PartitionTable, table: &NewTable) {
    assert_eq!((found.kind, found.sector_bytes), (TableKind::Gpt, table.sector_bytes));
    assert_eq!(found.uuid.as_deref(), Some(&*table.id.to_string()));
    assert_eq!(found.partitions.len(), table.partitions.len());
    for (found, planned) in found.partitions.iter().zip(&table.partitions) {
        assert!(found.is_usable() && found.number == planned.number, "{found:?}");
        assert_eq!(found.start_sectors * 512, planned.start_bytes);
        assert_eq!(found.len_sectors * 512, planned.len_bytes);
        assert_eq!(found.uuid.as_deref(), Some(&*planned.id.to_string()));
        assert_eq!((found.name.as_deref(), found.kind.name()), (Some(&*planned.name), Some("Linux RAID")));
    }
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(
        large in any::<bool>(),
        parts in proptest::collection::vec((0..3_u64, 1..9_000_000_u64), 1..20),
        tail_bytes in 0..100_000_u64,
    ) {
        let table = table(if large { 4096 } else { 512 }, &parts, tail_bytes);
        let steps = table.steps().unwrap();
        let mut disk = Disk::default();
        for piece in steps.iter().flatten() {
            disk.write(piece);
            let sectors = piece.offset_bytes / 512..(piece.offset_bytes + piece.bytes.len() as u64) / 512;
            for part in &table.partitions {
                let part = part.start_bytes / 512..(part.start_bytes + part.len_bytes) / 512;
                prop_assert!(part.end <= sectors.start || sectors.end <= part.start, "on a partition");
            }
        }
        let found = disk.table(&table).unwrap();
        prop_assert_eq!(&found.problems, &[]);
        assert_is(&found, &table);
        // Either copy is enough.
        for lost in &steps[..2] {
            let mut one = disk.clone();
            for piece in lost {
                one.write(&PlacedBytes { bytes: vec![0; piece.bytes.len()], ..piece.clone() });
            }
            assert_is(&one.table(&table).unwrap(), &table);
        }
    }

    /// Within a step any of its sectors may be there; those of the steps before it are.
    #[test]
    fn a_power_cut_leaves_no_table_or_this_one(
        large in any::<bool>(),
        step in 0..3_usize,
        arrived in proptest::collection::vec(any::<bool>(), 80),
    ) {
        let table = table(if large { 4096 } else { 512 }, &[(0, 5), (1, 7)], 0);
        let steps = table.steps().unwrap();
        let mut disk = Disk::default();
        steps[..step].iter().flatten().for_each(|piece| disk.write(piece));
        let before = disk.table(&table);
        let mut arrived = arrived.into_iter().cycle();
        for piece in &steps[step] {
            for (ix, bytes) in piece.bytes.chunks(512).enumerate() {
                if arrived.next().unwrap() {
                    let offset_bytes = piece.offset_bytes + ix as u64 * 512;
                    disk.write(&PlacedBytes { what: piece.what, offset_bytes, bytes: bytes.to_vec() });
                }
            }
        }
        match disk.table(&table) {
            Some(found) => assert_is(&found, &table),
            None => prop_assert!(step == 0 && before.is_none()),
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let fails = |change: fn(&mut NewTable)| {
        let mut table = table(512, &[(0, 1), (0, 1)], 0);
        change(&mut table);
        table.steps().unwrap_err()
    };
    assert_eq!(fails(|table| table.sector_bytes = 2048), NewTableError::Sector(2048));
    assert_eq!(fails(|table| table.size_bytes = 67 * 512), NewTableError::NoRoom { size_bytes: 67 * 512 });
    assert_eq!(fails(|table| table.partitions.clear()), NewTableError::Empty);
    for number in [0, 1, 129] {
        let mut table = table(512, &[(0, 1), (0, 1)], 0);
        table.partitions[1].number = number;
        assert_eq!(table.steps().unwrap_err(), NewTableError::Number(number));
    }
    let refused = fails(|table| table.partitions[1].start_bytes += 100);
    assert!(matches!(refused, NewTableError::Sectors { number: 2, .. }), "{refused}");
    let refused = fails(|table| table.partitions[0].len_bytes = 0);
    assert!(matches!(refused, NewTableError::Sectors { number: 1, .. }), "{refused}");
    assert_eq!(fails(|table| table.partitions[1].start_bytes -= 512), NewTableError::Overlap(1, 2));
    let refused = fails(|table| table.partitions[0].start_bytes = 33 * 512);
    assert!(matches!(refused, NewTableError::Place { number: 1, .. }), "{refused}");
    let refused = fails(|table| table.partitions[1].len_bytes = u64::MAX / 512 * 512);
    assert!(matches!(refused, NewTableError::Place { number: 2, .. }), "{refused}");
    // From the first sector to the last that are free.
    let (first, last) = (34, 10_000 - 33);
    let part = NewPartition {
        number: 128,
        start_bytes: first * 512,
        len_bytes: (last - first) * 512,
        id: id(1),
        name: String::new(),
    };
    let full = NewTable { size_bytes: 10_000 * 512, sector_bytes: 512, id: id(9), partitions: vec![part] };
    full.steps().unwrap();
}

/// sgdisk and sfdisk verify it and find the same partitions.
#[test]
fn other_tools_find_nothing_wrong() {
    let table = table(512, &[(0, 100), (0, 50), (2, 30)], 12_345);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let file = File::create(&path).unwrap();
    file.set_len(table.size_bytes).unwrap();
    for piece in table.steps().unwrap().iter().flatten() {
        file.write_all_at(&piece.bytes, piece.offset_bytes).unwrap();
    }
    let run = |line: &str| {
        let mut words = line.split(' ');
        let tool = words.next().unwrap();
        let mut command = Command::new(tool);
        command.args(words).arg(&path).env("LC_ALL", "C.UTF-8");
        let search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let Ok(output) = command.env("PATH", search).output() else {
            assert!(std::env::var_os("CI").is_none(), "{tool} is not installed, and this is CI");
            eprintln!("{tool} is not installed: skipped");
            return None;
        };
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        Some(said.into_owned())
    };
    if let Some(said) = run("sgdisk --verify") {
        assert!(said.contains("No problems found") && !said.contains("Caution"), "{said}");
    }
    if let Some(said) = run("sfdisk --verify") {
        assert!(said.contains("No errors detected"), "{said}");
    }
    if let Some(said) = run("sfdisk --json") {
        let found: serde_json::Value = serde_json::from_str(&said).unwrap();
        let parts = found["partitiontable"]["partitions"].as_array().unwrap();
        assert_eq!(parts.len(), 3);
        for (found, planned) in parts.iter().zip(&table.partitions) {
            assert_eq!(found["start"], planned.start_bytes / 512);
            assert_eq!(found["size"], planned.len_bytes / 512);
            assert_eq!(found["uuid"], planned.id.to_string().to_uppercase());
            assert_eq!(found["type"], "A19D880F-05FC-4D3B-A006-743F0F84911E");
            assert_eq!(found["name"], *planned.name);
        }
    }
    if let Some(said) = run("parted --script --machine") {
        assert!(!said.contains("Error") && !said.contains("Warning"), "{said}");
    }
}
