//! FAT and exFAT: what is damaged or as large as can be in tables and directories.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::common::{image, pattern, program, run};
use wattle_fs::{Error, FileKind, FileSystem};

/// A sector of zeros in a directory, as a copy has it where a drive could not be read, is told, and
/// hides no entry of another sector. `marker` is in the sector that is zeroed.
pub fn zeros_in_a_directory_hide_nothing(mut bytes: Vec<u8>, directory: &[u8], marker: &[u8]) {
    let names = |bytes: &[u8]| {
        let fs = wattle_fs::open(Box::new(bytes.to_vec()), None).unwrap();
        let mut names = BTreeMap::new();
        let directory = wattle_fs::resolve(&*fs, directory).unwrap();
        let listed = fs.list(directory, &mut |entry| {
            names.insert(entry.name, entry.node.inode as usize);
            Ok(())
        });
        (names, listed)
    };
    let (mut all, listed) = names(&bytes);
    listed.unwrap();
    assert!(all.len() >= 300);
    let sector = bytes.windows(marker.len()).position(|part| part == marker).unwrap() / 512 * 512;
    bytes[sector..sector + 512].fill(0);
    let (left, listed) = names(&bytes);
    assert!(matches!(listed, Err(Error::Damaged { .. })), "{listed:?}");
    // An entry that goes over the border of a sector has another name, or none.
    let places: Vec<usize> = left.values().copied().collect();
    all.retain(|_, at| *at < sector.saturating_sub(1024) || *at >= sector + 1024);
    assert!(all.values().all(|at| places.contains(at)), "{} of {}", left.len(), all.len());
}

/// What is not known of a chain is told behind what is: of a file in one piece, too.
#[test]
#[allow(clippy::disallowed_methods, reason = "what took minutes is told by the time it takes")]
fn long_chains_are_followed_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, "long", 60 << 20);
    if run(program("mkfs.vfat").args(["-F", "32", "-s", "1"]).arg(&path)).is_none() {
        return;
    }
    let content = dir.path().join("content");
    fs::write(&content, pattern(1, 40 << 20)).unwrap();
    if run(Command::new("mcopy").arg("-i").arg(&path).arg(&content).arg("::/F")).is_none() {
        return;
    }
    let mut bytes = fs::read(&path).unwrap();
    // Every second cluster changes places with its neighbour in the chain: no two lie side by side.
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let table = usize::from(u16::from_le_bytes([bytes[14], bytes[15]])) * 512;
    let table_bytes = number(&bytes, 36) as usize * 512;
    let first = 3;
    assert_eq!(number(&bytes, table + first * 4), first as u32 + 1);
    let clusters = (40 << 20) / 512;
    let order: Vec<usize> = (0..clusters).map(|ix| first + (ix ^ 1)).collect();
    for pair in order.windows(2) {
        bytes[table + pair[0] * 4..][..4].copy_from_slice(&(pair[1] as u32).to_le_bytes());
    }
    let damaged = order[clusters - 100];
    bytes[table + order[clusters - 1] * 4..][..4].copy_from_slice(&0x0fff_ffff_u32.to_le_bytes());
    bytes[table + damaged * 4..][..4].fill(0);
    let entry = bytes.windows(11).position(|part| part == b"F          ").unwrap();
    bytes[entry + 26..entry + 28].copy_from_slice(&(order[0] as u16).to_le_bytes());
    assert!(table_bytes > clusters * 4);
    // The tables are copies of each other.
    bytes.copy_within(table..table + table_bytes, table + table_bytes);
    let fs = wattle_fs::open(Box::new(bytes), None).unwrap();
    let file = wattle_fs::resolve(&*fs, b"/F").unwrap();
    let began = std::time::Instant::now();
    for block in 0..2000 {
        let at = (40 << 20) - (100 << 10) - block * 512;
        fs.read(file, at..at + 512, &mut |_, part| {
            assert_eq!(part.len(), 512);
            Ok(())
        })
        .unwrap();
        let behind = fs.read(file, (40 << 20) - 512..40 << 20, &mut |_, _| Ok(()));
        assert!(matches!(behind, Err(Error::Damaged { structure: "cluster", .. })), "{behind:?}");
    }
    // It took minutes when each read began at the start of the chain.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

/// A directory of FAT has 65,536 entries at most, and may have all of them.
#[test]
fn a_directory_of_fat_that_is_full_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, "full", 40 << 20);
    if run(program("mkfs.vfat").args(["-F", "32", "-s", "1"]).arg(&path)).is_none()
        || run(Command::new("mmd").arg("-i").arg(&path).arg("::/FULL")).is_none()
    {
        return;
    }
    let mut bytes = fs::read(&path).unwrap();
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (reserved, tables) =
        (usize::from(u16::from_le_bytes([bytes[14], bytes[15]])), usize::from(bytes[16]));
    let (table, heap) = (reserved * 512, (reserved + tables * number(36)) * 512);
    let tables = [table, table + number(36) * 512];
    // It has cluster 3, and gets those that follow.
    let clusters = 65_536 / 16;
    for ix in 0..clusters as u32 {
        let next = if ix + 1 == clusters as u32 { 0x0fff_ffff } else { ix + 4 };
        for table in tables {
            bytes[table + (ix as usize + 3) * 4..][..4].copy_from_slice(&next.to_le_bytes());
        }
    }
    for ix in 2..65_536 {
        let entry = &mut bytes[heap + 512 + ix * 32..][..32];
        entry[..11].copy_from_slice(format!("F{ix:<10}").as_bytes());
        entry[11] = 0x20;
    }
    let fs = wattle_fs::open(Box::new(bytes), None).unwrap();
    let mut names = 0;
    fs.list(wattle_fs::resolve(&*fs, b"/FULL").unwrap(), &mut |_| {
        names += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(names, 65_534);
}

/// A root directory of exFAT whose entries are made here, so that no driver is needed.
#[test]
fn zeros_in_a_directory_of_exfat_hide_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, "exfat", 40 << 20);
    if run(program("mkfs.exfat").args(["-c", "128K"]).arg(&path)).is_none() {
        return;
    }
    let mut bytes = fs::read(&path).unwrap();
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let root = (number(88) << bytes[108]) + (number(96) - 2) * (128 << 10);
    let end = root + bytes[root..].chunks(32).position(|entry| entry[0] == 0).unwrap() * 32;
    for ix in 0..300 {
        let mut set = [0; 96];
        (set[0], set[1], set[32], set[64]) = (0x85, 2, 0xc0, 0xc1);
        let name: Vec<u8> = format!("file {ix:03}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        set[35] = 8;
        set[66..82].copy_from_slice(&name);
        let summed = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = summed.fold(0_u16, |sum, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
        set[2..4].copy_from_slice(&sum.to_le_bytes());
        bytes[end + ix * 96..][..96].copy_from_slice(&set);
    }
    let name: Vec<u8> = "file 100".encode_utf16().flat_map(u16::to_le_bytes).collect();
    zeros_in_a_directory_hide_nothing(bytes, b"/", &name);
}

/// A volume of FAT with this file, whose clusters are the first ones, side by side.
fn with_file(bits: &str, name: &str, content: &[u8]) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, "volume", if bits == "12" { 4 << 20 } else { 40 << 20 });
    let from = dir.path().join("content");
    fs::write(&from, content).unwrap();
    run(program("mkfs.vfat").args(["-F", bits, "-s", "2"]).arg(&path))?;
    run(Command::new("mcopy").arg("-i").arg(&path).arg(&from).arg(format!("::/{name}")))?;
    Some(fs::read(&path).unwrap())
}

/// Where the tables of a volume are, and how long each is.
fn tables(bytes: &[u8]) -> (Vec<usize>, usize) {
    let short = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let long = u32::from_le_bytes(bytes[36..40].try_into().unwrap()) as usize;
    let len = 512 * if short(22) == 0 { long } else { short(22) };
    ((0..usize::from(bytes[16])).map(|table| 512 * short(14) + table * len).collect(), len)
}

/// A file whose chain leads back comes out once, and is told.
#[test]
fn a_chain_that_goes_round_in_a_circle_is_told() {
    let content = pattern(1, 20 * 1024);
    let Some(mut bytes) = with_file("16", "VIDEO.BIN", &content) else { return };
    for table in tables(&bytes).0 {
        assert_eq!(bytes[table + 20..table + 22], [11, 0]);
        bytes[table + 20..table + 22].copy_from_slice(&[5, 0]);
    }
    let fs = wattle_fs::open(Box::new(bytes), None).unwrap();
    let file = wattle_fs::resolve(&*fs, b"/VIDEO.BIN").unwrap();
    // Again, and a part of it alone.
    for from in [0, 0, 5000] {
        let mut read = Vec::new();
        let told = fs.read(file, from..u64::MAX, &mut |_, part| {
            read.extend_from_slice(part);
            Ok(())
        });
        assert!(matches!(told, Err(Error::Damaged { structure: "cluster", .. })), "{told:?}");
        assert!(content[from as usize..].starts_with(&read), "nothing comes twice");
    }
}

/// All files by path, those that cannot be read left out, and whether something was told.
pub fn shown(fs: &dyn FileSystem) -> (BTreeMap<Vec<u8>, Vec<u8>>, bool) {
    let (mut files, mut told, mut left) = (BTreeMap::new(), false, vec![(Vec::new(), fs.root())]);
    while let Some((path, node)) = left.pop() {
        let Ok(metadata) = fs.metadata(node) else {
            told = true;
            continue;
        };
        if metadata.kind == FileKind::Directory {
            let listed = fs.list(node, &mut |entry| {
                left.push(([&path[..], b"/", &entry.name].concat(), entry.node));
                Ok(())
            });
            told |= listed.is_err();
            continue;
        }
        // What an entry that is none says of its size may be anything.
        let mut bytes = vec![0; metadata.size_bytes.min(1 << 20) as usize];
        let read = fs.read(node, 0..1 << 20, &mut |at, part| {
            bytes[at as usize..at as usize + part.len()].copy_from_slice(part);
            Ok(())
        });
        match read {
            Ok(()) => _ = files.insert(path, bytes),
            Err(_) => told = true,
        }
    }
    (files, told || !fs.not_as_mounted().is_empty())
}

/// A sector of ones, as flash memory returns what it lost, in a directory or a table of clusters.
#[test]
fn erased_sectors_hide_nothing_in_silence() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in ["e", "f"] {
        fs::create_dir(tree.path().join(folder)).unwrap();
        for number in 0..60 {
            let file = tree.path().join(folder).join(format!("file number {number}"));
            fs::write(file, pattern(number, 700 + number as usize * 20)).unwrap();
        }
    }
    fs::write(tree.path().join("large"), pattern(99, 200_000)).unwrap();
    for (bits, size) in [("12", 2 << 20), ("16", 8 << 20), ("32", 40 << 20)] {
        let path = image(&dir, bits, size);
        if run(program("mkfs.vfat").args(["-F", bits, "-s", "1", "-n", "STICK"]).arg(&path)).is_none() {
            return;
        }
        let all = fs::read_dir(tree.path()).unwrap().map(|entry| entry.unwrap().path());
        if run(Command::new("mcopy").arg("-i").arg(&path).arg("-s").args(all).arg("::/")).is_none() {
            return;
        }
        let whole = fs::read(&path).unwrap();
        let erased = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at..at + 512].fill(0xff);
            shown(&*wattle_fs::open(Box::new(bytes), None).unwrap())
        };
        let fs = wattle_fs::open(Box::new(whole.clone()), None).unwrap();
        let (expected, told) = shown(&*fs);
        assert_eq!((expected.len(), told), (121, false));
        let mut sectors = std::collections::BTreeSet::new();
        for directory in [&b"/"[..], b"/e", b"/f"] {
            let directory = wattle_fs::resolve(&*fs, directory).unwrap();
            fs.list(directory, &mut |entry| {
                sectors.insert(entry.node.inode as usize / 512 * 512);
                Ok(())
            })
            .unwrap();
        }
        assert!(sectors.len() >= 10);
        for sector in sectors {
            let (found, told) = erased(sector);
            assert!(told || found == expected, "FAT{bits}, directory, {sector}");
        }
        let (tables, _) = tables(&whole);
        let used = (0..600 * bits.parse::<usize>().unwrap() / 8).step_by(512);
        for (table, at) in tables.iter().flat_map(|table| used.clone().map(move |at| (*table, table + at))) {
            let (found, told) = erased(at);
            // An entry of 12 bits may lie in two sectors: then half of it names another cluster.
            let lacking = expected.len() - found.len();
            assert!(lacking <= usize::from(bits == "12" && told), "FAT{bits}, table at {table}, {at}");
            assert!(found.iter().all(|(path, bytes)| expected[path] == *bytes), "FAT{bits}, {table}, {at}");
            assert!(told || table != tables[0] || at == tables[0], "FAT{bits}, {at}: a mount shows less");
        }
        // In both tables: nothing tells what was there.
        for at in used {
            let mut bytes = whole.clone();
            for table in &tables {
                bytes[table + at..][..512].fill(0xff);
            }
            let (found, told) = shown(&*wattle_fs::open(Box::new(bytes), None).unwrap());
            assert!(told || found == expected || bits != "32", "FAT{bits}, both tables, {at}");
        }
    }
}
