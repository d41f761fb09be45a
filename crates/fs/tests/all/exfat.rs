//! exFAT: what is damaged in tables and directories, in volumes that are filled here, so that no
//! driver is needed.

use std::fs;

use crate::common::{image, pattern, program, run};
use wattle_fs::{Error, FileSystem, FsNode, resolve};

const CLUSTER: usize = 4096;
const END: u32 = 0xffff_ffff;
/// Entries of a file: file, stream and name.
const SET: usize = 96;

/// A volume of 8 MiB, of which all clusters from 100 on are free.
#[derive(Clone)]
struct Volume {
    bytes: Vec<u8>,
    table: usize,
    heap: usize,
    root: u32,
    /// Where the next entries of the root go.
    next: usize,
}

impl Volume {
    /// `None`, said loudly, where there is no mkfs.exfat.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, "exfat", 8 << 20);
        run(program("mkfs.exfat").args(["-c", "4K"]).arg(&path))?;
        let bytes = fs::read(&path).unwrap();
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (table, heap) = ((number(80) as usize) << bytes[108], (number(88) as usize) << bytes[108]);
        let root = number(96);
        assert!(root < 100);
        let mut volume = Self { bytes, table, heap, root, next: 0 };
        volume.next = volume.at(root);
        while volume.bytes[volume.next] != 0 {
            volume.next += 32;
        }
        Some(volume)
    }

    fn at(&self, cluster: u32) -> usize {
        self.heap + (cluster as usize - 2) * CLUSTER
    }

    fn link(&mut self, cluster: u32, to: u32) {
        let at = self.table + cluster as usize * 4;
        self.bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
    }

    fn chain(&mut self, clusters: &[u32]) {
        for pair in clusters.windows(2) {
            self.link(pair[0], pair[1]);
        }
        self.link(clusters[clusters.len() - 1], END);
    }

    /// An entry of the root for what lies in these clusters, and its content.
    fn add(&mut self, name: &str, is_directory: bool, clusters: &[u32], content: &[u8]) -> usize {
        self.chain(clusters);
        for (cluster, part) in clusters.iter().zip(content.chunks(CLUSTER)) {
            let at = self.at(*cluster);
            self.bytes[at..at + part.len()].copy_from_slice(part);
        }
        let set = set(name, is_directory, clusters[0], content.len());
        let at = self.next;
        self.bytes[at..at + SET].copy_from_slice(&set);
        self.next += SET;
        at
    }

    fn open(&self) -> Box<dyn FileSystem> {
        wattle_fs::open(Box::new(self.bytes.clone()), None).unwrap()
    }
}

/// Entries with a checksum; the clusters are a chain.
fn set(name: &str, is_directory: bool, first: u32, size: usize) -> [u8; SET] {
    let mut set = [0; SET];
    (set[0], set[1], set[32], set[64]) = (0x85, 2, 0xc0, 0xc1);
    set[4] = if is_directory { 0x10 } else { 0x20 };
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    set[35] = (name.len() / 2) as u8;
    set[66..66 + name.len()].copy_from_slice(&name);
    set[33] = 1;
    for at in [40, 56] {
        set[at..at + 8].copy_from_slice(&(size as u64).to_le_bytes());
    }
    set[52..56].copy_from_slice(&first.to_le_bytes());
    let summed = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
    let sum = summed.fold(0_u16, |sum, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
    set[2..4].copy_from_slice(&sum.to_le_bytes());
    set
}

/// Entries of so many empty files.
fn sets(count: usize) -> Vec<u8> {
    (0..count).flat_map(|number| set(&format!("file {number:03}"), false, 0, 0)).collect()
}

/// How many entries a directory has, and why these may not be all.
fn listed(fs: &dyn FileSystem, directory: FsNode) -> (usize, Result<(), Error>) {
    let mut found = 0;
    let listed = fs.list(directory, &mut |_| {
        found += 1;
        Ok(())
    });
    (found, listed)
}

/// No two side by side.
const CLUSTERS: [u32; 6] = [100, 102, 104, 106, 108, 110];
/// Entries that fill these.
const FILES: usize = CLUSTERS.len() * CLUSTER / SET;

#[test]
fn a_directory_whose_clusters_end_too_soon_is_told() {
    let Some(mut volume) = Volume::new() else { return };
    volume.add("big", true, &CLUSTERS, &sets(FILES));
    let fs = volume.open();
    let (found, told) = listed(&*fs, resolve(&*fs, b"/big").unwrap());
    told.unwrap();
    assert_eq!(found, FILES);
    for cut in 1..CLUSTERS.len() {
        let mut volume = volume.clone();
        volume.link(CLUSTERS[cut - 1], END);
        let fs = volume.open();
        let (found, told) = listed(&*fs, resolve(&*fs, b"/big").unwrap());
        assert!(matches!(told, Err(Error::Damaged { .. })), "{cut}: {told:?}");
        assert_eq!(found, cut * CLUSTER / SET, "what comes before comes out");
    }
}

/// What a circle leads back to does not come out again.
#[test]
fn a_chain_that_goes_round_in_a_circle_is_told() {
    let Some(mut volume) = Volume::new() else { return };
    let content = pattern(1, CLUSTERS.len() * CLUSTER);
    volume.add("file", false, &CLUSTERS, &content);
    let others = CLUSTERS.map(|cluster| cluster + 100);
    volume.add("big", true, &others, &sets(FILES));
    for (from, to) in [(2, 0), (4, 1), (3, 3)] {
        let mut volume = volume.clone();
        volume.link(CLUSTERS[from], CLUSTERS[to]);
        volume.link(others[from], others[to]);
        let fs = volume.open();
        let mut read = Vec::new();
        let told = fs.read(resolve(&*fs, b"/file").unwrap(), 0..u64::MAX, &mut |_, bytes| {
            read.extend_from_slice(bytes);
            Ok(())
        });
        assert!(matches!(told, Err(Error::Damaged { .. })), "{told:?}");
        assert!(read == content[..(from + 1) * CLUSTER], "{from} to {to}");
        let (found, told) = listed(&*fs, resolve(&*fs, b"/big").unwrap());
        assert!(matches!(told, Err(Error::Damaged { .. })), "{told:?}");
        assert_eq!(found, (from + 1) * CLUSTER / SET);
    }
}

/// A sector of the table that is all ones, as flash memory returns what it lost, ends no chain.
#[test]
fn an_erased_sector_of_the_table_is_told() {
    let Some(mut volume) = Volume::new() else { return };
    volume.add("first", false, &CLUSTERS, &pattern(1, CLUSTERS.len() * CLUSTER));
    let root = volume.root;
    // The root goes on in other clusters, in another sector of the table.
    volume.chain(&[root, 140, 142]);
    let more = sets(2 * CLUSTER / SET);
    let end = volume.at(root) + CLUSTER;
    for at in (volume.next..end).step_by(32) {
        // Deleted ones.
        volume.bytes[at] = 5;
    }
    for (cluster, part) in [140, 142].into_iter().zip(more.chunks(CLUSTER)) {
        let at = volume.at(cluster);
        volume.bytes[at..at + part.len()].copy_from_slice(part);
    }
    let fs = volume.open();
    let (found, told) = listed(&*fs, fs.root());
    told.unwrap();
    assert_eq!(found, 1 + 2 * CLUSTER / SET);
    // That of clusters 128 to 255.
    let sector = volume.table + 512;
    volume.bytes[sector..sector + 512].fill(0xff);
    let fs = volume.open();
    let (found, told) = listed(&*fs, fs.root());
    assert!(matches!(told, Err(Error::Damaged { structure: "cluster", .. })), "{told:?}");
    assert_eq!(found, 1 + CLUSTER / SET);
}

/// What makes an entry one of an unknown kind hides no file in silence; only what says that it may
/// be passed over is.
#[test]
fn an_entry_of_an_unknown_kind_is_told() {
    let Some(mut volume) = Volume::new() else { return };
    let first = volume.add("first", false, &CLUSTERS, b"");
    volume.add("second", false, &[120], b"");
    let fs = volume.open();
    assert!(matches!(listed(&*fs, fs.root()), (2, Ok(()))));
    // The file's own kind by one bit each, and others: 0x85 is the file.
    for kind in [0x84, 0x87, 0x81, 0x8d, 0x95, 0xa5, 0x80, 0x83] {
        let mut volume = volume.clone();
        volume.bytes[first] = kind;
        let fs = volume.open();
        let (found, told) = listed(&*fs, fs.root());
        assert!(matches!(told, Err(Error::Damaged { .. })), "{kind:#x}: {told:?}");
        assert_eq!(found, 1, "{kind:#x}");
    }
    // One that may be passed over, with what belongs to it.
    let at = volume.next;
    (volume.bytes[at], volume.bytes[at + 1], volume.bytes[at + 32]) = (0xa8, 1, 0xe1);
    let fs = volume.open();
    let (found, told) = listed(&*fs, fs.root());
    told.unwrap();
    assert_eq!(found, 2);
    // Those of the volume are in the root alone.
    let mut content = sets(2);
    content[..32].fill(0);
    content[0] = 0x81;
    volume.next += 64;
    volume.add("folder", true, &[122], &content);
    let fs = volume.open();
    let (_, told) = listed(&*fs, resolve(&*fs, b"/folder").unwrap());
    assert!(matches!(told, Err(Error::Damaged { .. })), "{told:?}");
}
