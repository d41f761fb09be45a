//! One function per family of file systems that takes any bytes as an image and must return: the
//! targets in `fuzz/` and the smoke test call the same code.

use std::io;
use std::rc::Rc;

use crate::xfs::LogWords;
use crate::{CensusLimits, Error, FileKind, FileSystem, FsNode, ReadAt};

/// Entries that are looked at: enough to reach every structure, few enough for many images a
/// second.
const ENTRIES_MAX: usize = 200;

/// Opens an image and reads everything, within a bound: an image that is small can still describe
/// files without an end.
fn walk(data: Vec<u8>) {
    count(data.clone());
    if let Ok(usage) = crate::usage(Box::new(data.clone())) {
        assert!(usage.percent() <= 100, "{usage:?}");
    }
    if let Ok(fs) = crate::open(Box::new(data), None) {
        walk_files(&*fs);
    }
}

fn walk_files(fs: &dyn FileSystem) {
    let _ = format!("{:?}", fs.about());
    for note in &fs.about().notes {
        let _ = note.to_string();
    }
    let _ = fs.not_as_mounted();
    let _ = crate::resolve(fs, b"/a/../b/");
    let mut nodes = vec![fs.root()];
    let mut seen = 0;
    while let Some(node) = nodes.pop() {
        seen += 1;
        if seen > ENTRIES_MAX {
            return;
        }
        look(fs, node, &mut nodes);
    }
}

/// Takes a census, within a bound: its sums must fit together.
fn count(data: Vec<u8>) {
    let size = data.len() as u64;
    let limits = CensusLimits { inodes: 500, records: 20_000 };
    let Ok(census) = crate::census(Box::new(data), limits) else { return };
    let all = census.all();
    assert!(all.pieces <= all.extents && all.fragmented <= all.forks, "{census:?}");
    assert!(census.inodes_seen <= limits.inodes + size, "{census:?}");
    let classes = census.free.classes.values();
    assert_eq!(classes.map(|class| class.extents).sum::<u64>(), census.free.extents);
    assert_eq!(census.damage.is_some(), census.damaged > 0);
}

fn look(fs: &dyn FileSystem, node: FsNode, nodes: &mut Vec<FsNode>) {
    let Ok(metadata) = fs.metadata(node) else { return };
    assert!(metadata.modified.nanoseconds < 1_000_000_000);
    let mut listed = 0;
    let _ = fs.list(node, &mut |entry| {
        assert!(!entry.name.is_empty());
        nodes.push(entry.node);
        listed += 1;
        if listed > ENTRIES_MAX { Err(Error::Stopped) } else { Ok(()) }
    });
    let _ = fs.link(node);
    for name in fs.attributes(node).unwrap_or_default().iter().take(ENTRIES_MAX) {
        let _ = fs.attribute(node, name);
    }
    let mut runs = 0;
    let _ = fs.runs(node, &mut |_| {
        runs += 1;
        if runs > ENTRIES_MAX { Err(Error::Stopped) } else { Ok(()) }
    });
    for range in [0..u64::MAX, 4095..4097, u64::MAX - 1..u64::MAX] {
        let (mut at, mut pieces) = (range.start, 0);
        let end = range.end.min(metadata.size_bytes);
        let read = fs.read(node, range, &mut |offset, bytes| {
            assert!(offset >= at && !bytes.is_empty(), "in order, without empty pieces");
            at = offset + bytes.len() as u64;
            assert!(at <= end, "within the range and the file");
            pieces += 1;
            if pieces > ENTRIES_MAX { Err(Error::Stopped) } else { Ok(()) }
        });
        assert!(read.is_err() || metadata.kind == FileKind::File);
    }
}

/// What a block of a packed image is.
const BLOCK_BYTES: usize = 4096;
/// Blocks of the largest image that is unpacked: 32 MiB.
const BLOCKS_MAX: u32 = 8192;

/// An image without its empty blocks, as the fuzzer keeps and changes it: file systems are large
/// and hold little.
#[must_use]
pub fn pack(image: &[u8]) -> Vec<u8> {
    let blocks = image.len().div_ceil(BLOCK_BYTES) as u32;
    let mut packed = blocks.to_le_bytes().to_vec();
    for (number, block) in (0_u32..).zip(image.chunks(BLOCK_BYTES)) {
        if block.iter().any(|&byte| byte != 0) {
            packed.extend(number.to_le_bytes());
            packed.extend(block);
            packed.extend(std::iter::repeat_n(0, BLOCK_BYTES - block.len()));
        }
    }
    packed
}

/// The image of any packed bytes.
#[must_use]
pub fn unpack(packed: &[u8]) -> Vec<u8> {
    let Some((blocks, mut rest)) = packed.split_first_chunk::<4>() else { return Vec::new() };
    let blocks = u32::from_le_bytes(*blocks).clamp(1, BLOCKS_MAX);
    let mut image = vec![0; blocks as usize * BLOCK_BYTES];
    while let Some((number, after)) = rest.split_first_chunk::<4>() {
        let (block, after) = after.split_at(after.len().min(BLOCK_BYTES));
        let at = (u32::from_le_bytes(*number) % blocks) as usize * BLOCK_BYTES;
        image[at..at + block.len()].copy_from_slice(block);
        rest = after;
    }
    image
}

/// An image of ext2, ext3 or ext4. The checksums of fast commits are made right first.
pub fn fuzz_ext(data: &[u8]) {
    let mut data = data.to_vec();
    crate::ext::seal(&mut data);
    walk(data);
}

/// An image of XFS. The checksums of the records of its log are made right first.
pub fn fuzz_xfs(data: &[u8]) {
    let mut data = data.to_vec();
    crate::xfs::seal(&mut data);
    walk(data);
}

/// Operations of a record in the log of an XFS that has nothing else; the first byte says in which
/// order of bytes.
pub fn fuzz_xfs_log(data: &[u8]) {
    let Some((order, operations)) = data.split_first() else { return };
    let words = if order & 1 == 0 { LogWords::Little } else { LogWords::Big };
    walk(crate::xfs::with_log_of(operations, words));
}

/// Operations that make a directory and a file, as [`fuzz_xfs_log`] takes them.
#[must_use]
pub fn xfs_log_example() -> Vec<u8> {
    [vec![0], crate::xfs::example(LogWords::Little)].concat()
}

/// An image of btrfs. Checksums are of everything: those of blocks that look like one of a tree,
/// and of the superblock, are made right first, or nothing would get past them.
pub fn fuzz_btrfs(data: &[u8]) {
    let mut data = data.to_vec();
    crate::btrfs::seal(&mut data);
    walk(data);
}

/// An image of FAT or exFAT. The checksums of exFAT's boot region and of its entries are made right
/// first.
pub fn fuzz_fat(data: &[u8]) {
    let mut data = data.to_vec();
    crate::fat::seal(&mut data);
    walk(data);
}

/// An image of NTFS.
pub fn fuzz_ntfs(data: &[u8]) {
    walk(data.to_vec());
}

/// An image of HFS+. The checksums of its journal are made right first.
pub fn fuzz_hfs(data: &[u8]) {
    let mut data = data.to_vec();
    crate::hfs::seal(&mut data);
    walk(data);
}

/// A device that is read by several.
struct Shared(Rc<Vec<u8>>);

impl ReadAt for Shared {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, into)
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
}

/// Devices of a btrfs, one behind the other and of one size. The first byte says how many, the bits
/// of the second which are not given, and the third from which on they are given.
pub fn fuzz_btrfs_devices(data: &[u8]) {
    let Some((&[count, missing, first], data)) = data.split_first_chunk::<3>() else { return };
    let count = usize::from(count % 6) + 1;
    let mut devices: Vec<Vec<u8>> =
        data.chunks_exact((data.len() / count).max(1)).take(count).map(<[u8]>::to_vec).collect();
    for device in &mut devices {
        crate::btrfs::seal(device);
    }
    let numbers = (0..devices.len()).map(|ix| (ix + usize::from(first)) % devices.len());
    let numbers: Vec<usize> = numbers.filter(|ix| missing >> ix & 1 == 0).collect();
    let devices: Vec<Rc<Vec<u8>>> = devices.into_iter().map(Rc::new).collect();
    let readers =
        || numbers.iter().map(|&ix| Box::new(Shared(devices[ix].clone())) as Box<dyn ReadAt>).collect();
    for found in crate::on_several_devices(readers()) {
        assert!(found.lost_bytes <= found.allocated_bytes, "{found:?}");
        let _ = format!("{found:?}");
    }
    if let Ok(fs) = crate::open_devices(readers(), None) {
        walk_files(&*fs);
    }
}

/// Takes any bytes and returns, or the decoder has a bug.
pub type FuzzTarget = fn(&[u8]);

/// All of them, by the name of their file in `fuzz/`.
pub const ALL: [(&str, FuzzTarget); 8] = [
    ("ext", fuzz_ext),
    ("xfs", fuzz_xfs),
    ("xfs_log", fuzz_xfs_log),
    ("btrfs", fuzz_btrfs),
    ("btrfs_devices", fuzz_btrfs_devices),
    ("fat", fuzz_fat),
    ("ntfs", fuzz_ntfs),
    ("hfs", fuzz_hfs),
];
