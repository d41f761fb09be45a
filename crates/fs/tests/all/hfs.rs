//! HFS+ as TN1150 describes it: volumes that are made here, since no tool on Linux makes wrappers,
//! links of folders, compressed files or a journal that is not empty. What Linux itself writes is
//! judged in the guest (crates/app/tests/guest/hfs.rs).

use std::collections::BTreeMap;

use crate::common::hfs::{ROOT, TIME, Volume, be32, wrapped};
use crate::common::hfs_parts::{Journal, private, stored_zlib, zlib_in_resource};
use crate::common::pattern;
use wattle_fs::{DeviceNumber, Error, FileKind, FileSystem, FsNode, Note};

const BLOCK: usize = 4096;

fn open(image: Vec<u8>) -> Box<dyn FileSystem> {
    wattle_fs::open(Box::new(image), None).unwrap()
}

fn listed(fs: &dyn FileSystem, directory: FsNode) -> BTreeMap<String, FsNode> {
    let mut found = BTreeMap::new();
    fs.list(directory, &mut |entry| {
        let twice = found.insert(String::from_utf8(entry.name).unwrap(), entry.node);
        assert_eq!(twice, None);
        Ok(())
    })
    .unwrap();
    found
}

fn names(fs: &dyn FileSystem, path: &str) -> Vec<String> {
    listed(fs, at(fs, path)).into_keys().collect()
}

fn at(fs: &dyn FileSystem, path: &str) -> FsNode {
    wattle_fs::resolve(fs, path.as_bytes()).unwrap()
}

fn try_read(fs: &dyn FileSystem, node: FsNode) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    fs.read(node, 0..u64::MAX, &mut |at, part| {
        assert_eq!(at, bytes.len() as u64, "HFS+ has no holes");
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    Ok(bytes)
}

fn bytes_of(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let node = at(fs, path);
    let bytes = try_read(fs, node).unwrap();
    assert_eq!(fs.metadata(node).unwrap().size_bytes, bytes.len() as u64, "{path}");
    // A part alone is the same.
    let (from, to) = (bytes.len() / 3, bytes.len() / 3 + bytes.len() / 2);
    let mut part = Vec::new();
    fs.read(node, from as u64..to as u64, &mut |_, bytes| {
        part.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    assert!(part == bytes[from..to], "{path}: a part");
    bytes
}

#[test]
fn files_and_folders_of_every_shape() {
    let mut volume = Volume::new(6000, BLOCK);
    let sizes = [0, 1, 4095, 4096, 4097, 300_000];
    for size in sizes {
        volume.file(ROOT, &format!("file {size}"), &pattern(size as u64, size));
    }
    // More pieces than fit into a record of the overflow file.
    volume.fragmented(ROOT, "in pieces", &pattern(7, 100 * BLOCK - 5), 100);
    let folder = volume.folder(ROOT, "folder/with a slash");
    volume.file(folder, "zero\0in it", b"zero");
    volume.file(folder, "größe 🦀", b"letters");
    volume.file(folder, "de\u{301}compose\u{301}", b"marks");
    let many = volume.folder(ROOT, "many");
    for number in 0..3000 {
        volume.file(many, &format!("number {number}"), b"");
    }
    let link = volume.file(ROOT, "link", "folder:with a slash/größe 🦀".as_bytes());
    volume.mode(link, 0o120_777);
    let device = volume.file(ROOT, "device", b"");
    volume.mode(device, 0o060_600);
    volume.set(device, 44, &(8_u32 << 20 | 17).to_be_bytes());
    let pipe = volume.file(ROOT, "pipe", b"");
    volume.mode(pipe, 0o010_644);
    let old = volume.file(ROOT, "of Mac OS 9", b"old");
    volume.mode(old, 0);
    volume.set(old, 16, &[0; 4]);
    let fs = open(volume.build());
    assert_eq!(fs.about().kind, "hfsplus");
    assert_eq!(fs.about().label, b"made");
    assert_eq!(fs.about().notes, []);
    assert_eq!(fs.about().size_bytes, 6000 * BLOCK as u64);
    for size in sizes {
        assert!(bytes_of(&*fs, &format!("file {size}")) == pattern(size as u64, size));
    }
    assert!(bytes_of(&*fs, "in pieces") == pattern(7, 100 * BLOCK - 5));
    assert_eq!(names(&*fs, "many").len(), 3000);
    assert_eq!(names(&*fs, "folder:with a slash"), ["décomposé", "größe 🦀", "zero\u{2400}in it"]);
    for typed in ["décomposé", "de\u{301}compose\u{301}"] {
        assert_eq!(bytes_of(&*fs, &format!("folder:with a slash/{typed}")), b"marks");
    }
    let target = fs.link(at(&*fs, "link")).unwrap();
    assert_eq!(bytes_of(&*fs, str::from_utf8(&target).unwrap()), b"letters");
    let metadata = |path: &str| fs.metadata(at(&*fs, path)).unwrap();
    assert_eq!(metadata("device").kind, FileKind::BlockDevice);
    assert_eq!(metadata("device").device, Some(DeviceNumber { major: 8, minor: 17 }));
    assert_eq!(metadata("pipe").kind, FileKind::Fifo);
    let found = metadata("file 1");
    assert_eq!((found.uid, found.gid, found.mode, found.links), (501, 20, 0o640, 1));
    assert_eq!(found.modified.seconds, i64::from(TIME) - 2_082_844_800);
    assert_eq!((metadata("of Mac OS 9").mode, metadata("of Mac OS 9").modified.seconds), (0o644, 0));
}

#[test]
fn a_number_leads_to_one_record_whatever_else_has_it() {
    let mut volume = Volume::new(1000, BLOCK);
    let folder = volume.folder(ROOT, "folder");
    let inside = volume.file(folder, "inside", b"of the file");
    let other = volume.file(ROOT, "other", b"of the other");
    volume.set(inside, 8, &folder.to_be_bytes());
    volume.set(other, 8, &inside.to_be_bytes());
    let fs = open(volume.build());
    let node = at(&*fs, "folder");
    let before = fs.metadata(node).unwrap();
    let listed = fs.list(node, &mut |entry| panic!("{:?}", entry.name));
    assert!(listed.unwrap_err().to_string().contains("another record has its number"));
    // It is still what it was.
    assert_eq!(fs.metadata(node).unwrap().kind, before.kind);
    // Whatever else was found meanwhile is whole.
    assert_eq!(bytes_of(&*fs, "other"), b"of the other");
}

#[test]
fn hard_links_lead_to_one_file_or_folder() {
    let mut volume = Volume::new(1000, BLOCK);
    let (files, folders) = private(&mut volume);
    let kept = volume.file(files, "iNode77", b"linked");
    volume.set(kept, 44, &be32(2));
    let below = volume.folder(ROOT, "below");
    volume.link(ROOT, "one", 77);
    volume.link(below, "two", 77);
    volume.link(ROOT, "leads nowhere", 78);
    let alike = volume.link(ROOT, "not made with the links", 77);
    volume.set(alike, 12, &be32(5));
    let folder = volume.folder(folders, "dir_9");
    volume.file(folder, "within", b"a folder with two names");
    volume.link_of_folder(ROOT, "here", 9);
    volume.link_of_folder(below, "there", 9);
    let fs = open(volume.build());
    let found = listed(&*fs, fs.root());
    let expected = ["below", "here", "leads nowhere", "not made with the links", "one"];
    assert_eq!(found.keys().collect::<Vec<_>>(), expected, "private folders are not listed");
    assert_eq!(at(&*fs, "one"), at(&*fs, "below/two"));
    assert_eq!(bytes_of(&*fs, "below/two"), b"linked");
    assert_eq!(fs.metadata(found["one"]).unwrap().links, 2);
    assert_eq!(bytes_of(&*fs, "here/within"), b"a folder with two names");
    assert_eq!(at(&*fs, "here"), at(&*fs, "below/there"));
    let error = fs.metadata(found["leads nowhere"]).unwrap_err();
    assert!(error.to_string().contains("hard link"), "{error}");
    assert_eq!(bytes_of(&*fs, "not made with the links"), b"");
}

#[test]
fn attributes_and_resource_forks() {
    let mut volume = Volume::new(2000, BLOCK);
    let file = volume.file(ROOT, "file", b"data");
    let other = volume.file(ROOT, "other", b"data");
    let (large, fork) = (pattern(3, 50_000), pattern(4, 60_000));
    volume.attribute(file, "com.apple.quarantine", b"0081");
    volume.attribute(file, "user.of Linux", b"");
    volume.large_attribute(file, "large", &large, 12);
    volume.large_attribute(file, "too large", &pattern(5, 70_000), 1);
    volume.resource(file, &fork, 13);
    volume.resource(other, &pattern(6, 65_537), 1);
    volume.set(file, 48, b"TEXTttxt");
    // What macOS keeps there for itself, and Linux writes everywhere, is nothing of the user.
    volume.set(other, 64, &[1, 2, 3, 4, 5, 6, 7, 8]);
    volume.set(other, 48, b"????????");
    let fs = open(volume.build());
    let node = at(&*fs, "file");
    let names: Vec<_> =
        fs.attributes(node).unwrap().into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    let expected = ["com.apple.quarantine", "large", "too large", "of Linux", "com.apple.FinderInfo"];
    let expected: Vec<_> = expected.iter().map(|name| format!("user.{name}")).collect();
    assert_eq!(names[..5], expected);
    assert_eq!(names[5..], ["user.com.apple.ResourceFork"]);
    let value = |name: &str| fs.attribute(node, name.as_bytes());
    assert_eq!(value("user.com.apple.quarantine").unwrap(), b"0081");
    assert_eq!(value("user.of Linux").unwrap(), b"");
    assert!(value("user.large").unwrap() == large);
    assert!(value("user.com.apple.ResourceFork").unwrap() == fork);
    assert!(value("user.com.apple.FinderInfo").unwrap().starts_with(b"TEXTttxt\0"));
    assert!(matches!(value("user.too large"), Err(Error::Unsupported { .. })));
    assert!(matches!(value("user.none"), Err(Error::NoSuchEntry)));
    let other = at(&*fs, "other");
    assert_eq!(fs.attributes(other).unwrap(), [b"user.com.apple.ResourceFork"]);
    let fork = fs.attribute(other, b"user.com.apple.ResourceFork");
    assert!(matches!(fork, Err(Error::Unsupported { .. })));
}

#[test]
fn compressed_files_of_every_method() {
    let plain = [b"again and again ".repeat(9000), pattern(1, 5000)].concat();
    let mut volume = Volume::new(2000, BLOCK);
    let inline = |volume: &mut Volume, name: &str, method, size, bytes: &[u8]| {
        let file = volume.file(ROOT, name, b"");
        volume.compressed(file, method, size, bytes);
        file
    };
    inline(&mut volume, "as it is", 1, 5, b"plain");
    inline(&mut volume, "zlib", 3, 10, &stored_zlib(b"ten letter"));
    inline(&mut volume, "zlib, not smaller", 3, 3, b"\xffabc");
    inline(&mut volume, "lzvn", 7, 7, &[0xe3, b'a', b'b', b'c', 0x00, 3, 0xe1, b'x', 0x06]);
    inline(&mut volume, "lzvn, not smaller", 7, 3, b"\x06abc");
    inline(&mut volume, "short", 3, 11, &stored_zlib(b"ten letter"));
    inline(&mut volume, "lzfse", 12, 100, b"");
    zlib_in_resource(&mut volume, "large", &plain);
    // Of LZVN a table of where pieces begin and the last one ends comes first.
    let mut fork = Vec::new();
    let packed: Vec<_> = plain.chunks(64 << 10).map(|piece| [b"\x06", piece].concat()).collect();
    let mut offset = 4 * (packed.len() as u32 + 1);
    for piece in packed.iter().map(Vec::len).chain([0]) {
        fork.extend(offset.to_le_bytes());
        offset += piece as u32;
    }
    fork.extend(packed.concat());
    let large = inline(&mut volume, "large lzvn", 8, plain.len() as u64, b"");
    volume.resource(large, &fork, 2);
    let not = volume.file(ROOT, "marked, and not compressed", b"data");
    volume.set(not, 41, &[0x20]);
    let fs = open(volume.build());
    assert_eq!(bytes_of(&*fs, "as it is"), b"plain");
    assert_eq!(bytes_of(&*fs, "zlib"), b"ten letter");
    assert_eq!(bytes_of(&*fs, "zlib, not smaller"), b"abc");
    assert_eq!(bytes_of(&*fs, "lzvn"), b"abcabcx");
    assert_eq!(bytes_of(&*fs, "lzvn, not smaller"), b"abc");
    assert!(bytes_of(&*fs, "large") == plain);
    assert!(bytes_of(&*fs, "large lzvn") == plain);
    assert_eq!(bytes_of(&*fs, "marked, and not compressed"), b"data");
    assert!(matches!(try_read(&*fs, at(&*fs, "short")), Err(Error::Damaged { .. })));
    let refused = try_read(&*fs, at(&*fs, "lzfse")).unwrap_err();
    assert!(refused.to_string().contains("LZFSE"), "{refused}");
    for name in ["zlib", "large", "large lzvn"] {
        assert_eq!(fs.attributes(at(&*fs, name)).unwrap(), Vec::<Vec<u8>>::new(), "{name}");
    }
    let mut stored = 0;
    fs.runs(at(&*fs, "large"), &mut |run| {
        assert!(run.unpacked_len.is_some());
        stored += run.len;
        Ok(())
    })
    .unwrap();
    assert!(stored > plain.len() as u64, "nothing got smaller here");
}

/// Where a block belongs, and what it is.
type Block = (usize, Vec<u8>);

/// The state before, and what the blocks of the state after are that differ.
fn states(flags: u32) -> (Vec<u8>, usize, Vec<Block>, Vec<u8>) {
    let make = |is_after: bool| {
        let mut volume = Volume::new(1000, BLOCK);
        let ring = volume.journal(RING);
        volume.file(ROOT, "first", b"there before");
        if is_after {
            let folder = volume.folder(ROOT, "folder");
            volume.file(folder, "second", &pattern(9, 9000));
        }
        volume.flags(flags, 0x100);
        (volume.build(), ring)
    };
    let ((before, ring), (after, _)) = (make(false), make(true));
    let blocks =
        (0..before.len()).step_by(BLOCK).filter(|&at| before[at..at + BLOCK] != after[at..at + BLOCK]);
    let blocks: Vec<_> = blocks.map(|at| (at, after[at..at + BLOCK].to_vec())).collect();
    (before, ring, blocks, after)
}

const RING: usize = 256 << 10;

fn shows_after(fs: &dyn FileSystem) -> bool {
    listed(fs, fs.root()).contains_key("folder") && bytes_of(fs, "folder/second") == pattern(9, 9000)
}

#[test]
fn a_journal_is_applied_as_macos_would() {
    let (before, ring, blocks, _) = states(0);
    let half = blocks.len() / 2;
    let transactions = [blocks[..half].to_vec(), blocks[half..].to_vec()];
    for (is_little, is_new, start, named) in [
        (true, true, 512, 2),
        (false, true, 512, 2),
        (true, false, 512, 2),
        (false, false, RING - 1024, 2),
        // Around the end, in the middle of a list; and with one that is not in its header yet.
        (true, true, RING - 512, 2),
        (true, true, RING - 2048, 1),
    ] {
        let mut image = before.clone();
        Journal { is_little, is_new, start, named }.write(&mut image, ring, RING, &transactions);
        let fs = open(image);
        assert!(shows_after(&*fs), "{is_little} {is_new} {start}");
        assert_eq!(fs.about().notes, [Note::JournalApplied { blocks: blocks.len() as u64 }]);
        assert_eq!(fs.not_as_mounted(), []);
    }
    // Without numbers nothing is known of what lies behind the end.
    let mut image = before.clone();
    Journal { is_little: true, is_new: false, start: 512, named: 0 }.write(
        &mut image,
        ring,
        RING,
        &transactions,
    );
    let fs = open(image);
    assert_eq!((fs.about().notes.len(), listed(&*fs, fs.root()).len()), (0, 1));
}

#[test]
fn a_journal_that_is_damaged_is_applied_as_far_as_it_is_whole() {
    let (before, ring, blocks, after) = states(0);
    let older = vec![(blocks[0].0, vec![0x55; BLOCK])];
    let journal = Journal { is_little: true, is_new: true, start: 512, named: 2 };
    // All that is new in the first; the second would destroy it.
    let mut image = before.clone();
    journal.write(&mut image, ring, RING, &[blocks.clone(), older]);
    let second = ring + 512 + 1024 + blocks.len() * BLOCK;
    let damaged_at = |at: usize| {
        let mut image = image.clone();
        image[at] ^= 1;
        open(image)
    };
    let fs = damaged_at(second + 1024 + 77);
    assert!(shows_after(&*fs));
    assert!(matches!(fs.about().notes[..], [Note::JournalCutShort { .. }]), "{:?}", fs.about().notes);
    // Where the head of a list is damaged, it may belong to the transaction before.
    for at in [ring + 8, ring + 512 + 1, ring + 512 + 1024, second + 1] {
        let fs = damaged_at(at);
        assert_eq!(listed(&*fs, fs.root()).len(), 1, "nothing is applied");
        assert!(matches!(fs.about().notes[..], [Note::JournalNotApplied { .. }]), "{:?}", fs.about().notes);
        assert_eq!(fs.not_as_mounted().len(), 1);
    }
    // Linux was there last, and does not keep the journal.
    let mut image = after;
    journal.write(&mut image, ring, RING, &[vec![(blocks[0].0, vec![0x55; BLOCK])]]);
    let end = image.len();
    for at in [1024 + 8, end - 1024 + 8] {
        image[at..at + 4].copy_from_slice(b"H+Lx");
    }
    let fs = open(image);
    assert!(shows_after(&*fs));
    assert!(matches!(fs.about().notes[..], [Note::JournalNotApplied { .. }]), "{:?}", fs.about().notes);
}

#[test]
fn what_was_not_unmounted_or_is_marked_is_told() {
    let notes = |set, cleared| {
        let mut volume = Volume::new(300, BLOCK);
        volume.flags(set, cleared);
        open(volume.build()).about().notes.clone()
    };
    assert_eq!(notes(0, 0), []);
    assert_eq!(notes(0, 0x100), [Note::NoJournal]);
    assert_eq!(notes(0x800, 0), [Note::NoJournal], "as Linux marks it");
    assert_eq!(notes(0x4000, 0), [Note::MarkedDamaged]);
}

/// A reader of which some bytes cannot be read.
struct Holed(Vec<u8>, std::ops::Range<u64>);

impl wattle_fs::ReadAt for Holed {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        match offset < self.1.end && self.1.start < offset + into.len() as u64 {
            true => Err(std::io::ErrorKind::InvalidData.into()),
            false => self.0.read_at(offset, into),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
}

#[test]
fn the_alternate_header_is_used_where_the_first_is_damaged() {
    let mut volume = Volume::new(300, BLOCK);
    volume.file(ROOT, "file", b"data");
    let image = volume.build();
    let check = |fs: &dyn FileSystem| {
        assert_eq!(bytes_of(fs, "file"), b"data");
        assert!(matches!(fs.about().notes[..], [Note::HeaderCopy { .. }]));
        assert_eq!(fs.not_as_mounted().len(), 1);
    };
    for at in [1024, 1024 + 43, 1024 + 44] {
        let mut image = image.clone();
        image[at..at + 4].fill(0xff);
        check(&*open(image));
    }
    check(&*wattle_fs::open(Box::new(Holed(image.clone(), 1024..1536)), None).unwrap());
    // The end of a larger disk may have one of another volume.
    let mut image = [vec![0; 64 << 20], image].concat();
    image[1024..1536].fill(0);
    assert!(matches!(wattle_fs::open(Box::new(image), None), Err(Error::Unrecognised)));
}

#[test]
fn a_volume_in_a_wrapper_is_read() {
    let mut volume = Volume::new(500, BLOCK);
    volume.fragmented(ROOT, "file", &pattern(2, 60_000), 12);
    let mut image = wrapped(&volume.build());
    let fs = open(image.clone());
    assert!(bytes_of(&*fs, "file") == pattern(2, 60_000));
    fs.runs(at(&*fs, "file"), &mut |run| {
        let (place, file) = (run.disk_offset as usize, run.file_offset as usize);
        assert!(image[place..place + 100] == pattern(2, 60_000)[file..file + 100], "where it lies");
        Ok(())
    })
    .unwrap();
    image[1024 + 124..1024 + 126].fill(0);
    let refused = wattle_fs::open(Box::new(image), None).err().unwrap();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
}

/// The nodes of the catalog, by their kind and height.
fn nodes(image: &[u8], kind: u8, height: u8) -> Vec<usize> {
    let word = |at: usize| u32::from_be_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let (start, count) = (word(1024 + 272 + 16) * BLOCK, word(1024 + 272 + 20));
    let nodes = (0..count).map(|node| start + node * BLOCK);
    nodes.filter(|&at| image[at + 8] == kind && image[at + 9] == height && word(at + 10) > 0).collect()
}

#[test]
fn what_is_damaged_hides_nothing_else() {
    let mut volume = Volume::new(2000, BLOCK);
    let many = volume.folder(ROOT, "many");
    for number in 0..900 {
        volume.file(many, &format!("number {number:03}"), b"");
    }
    let pieces = volume.fragmented(ROOT, "pieces", &pattern(1, 40 * BLOCK), 40);
    let image = volume.build();
    let list = |fs: &dyn FileSystem| {
        let mut found = Vec::new();
        let damage = fs.list(at(fs, "many"), &mut |entry| {
            fs.metadata(entry.node).unwrap();
            found.push(entry.name);
            Ok(())
        });
        (found.len(), damage.err().map(|error| error.to_string()))
    };
    assert_eq!(list(&*open(image.clone())), (900, None));
    // Without an index all leaves are looked at, and that is said.
    for height in [2, 3] {
        for at in nodes(&image, 0, height) {
            let mut image = image.clone();
            image[at + 8] = 7;
            let (count, damage) = list(&*open(image));
            assert_eq!(count, 900);
            assert!(height == 2 || damage.unwrap().contains("HFS+ catalog node"));
        }
    }
    let leaves = nodes(&image, 0xff, 1);
    assert!(leaves.len() > 20);
    let at_leaf = leaves[leaves.len() / 2];
    let mut damaged = image.clone();
    damaged[at_leaf + 8] = 7;
    let (count, damage) = list(&*open(damaged));
    assert!((850..900).contains(&count), "{count}");
    let number = (at_leaf - (leaves[0] - BLOCK)) / BLOCK;
    assert!(damage.unwrap().contains(&format!("HFS+ catalog node {number}")));
    let mut damaged = image.clone();
    damaged[at_leaf + BLOCK - 6..at_leaf + BLOCK - 4].fill(0xff);
    let (count, damage) = list(&*open(damaged));
    assert!((895..900).contains(&count) && damage.is_some(), "two records at most: {count}");
    // Of a file whose further extents are gone, the first eight are there.
    let mut damaged = image;
    let word = u32::from_be_bytes(damaged[1024 + 192 + 16..][..4].try_into().unwrap()) as usize;
    damaged[word * BLOCK + BLOCK + 8] = 7;
    let fs = open(damaged);
    let node = FsNode { tree: 0, inode: pieces.into() };
    let mut read = 0;
    let error = fs.read(node, 0..u64::MAX, &mut |_, bytes| {
        read += bytes.len();
        Ok(())
    });
    assert!(matches!(error, Err(Error::MapPart { to, .. }) if to == 40 * BLOCK as u64), "{error:?}");
    assert_eq!(read, 8 * BLOCK);
}

/// A volume that macOS wrote (fixtures/README.md).
#[test]
fn what_macos_wrote_is_read() {
    let packed = std::fs::read("../../fixtures/hfsplus/macos.img.zst").unwrap();
    let mut image = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&packed[..]).unwrap();
    std::io::Read::read_to_end(&mut decoder, &mut image).unwrap();
    let fs = open(image);
    assert_eq!(fs.about().label, b"hfsplus_test");
    assert_eq!(fs.about().notes, []);
    assert_eq!(names(&*fs, "/"), [".fseventsd", "a_directory", "a_link", "passwords.txt"]);
    assert_eq!(bytes_of(&*fs, "passwords.txt").len(), 116);
    assert_eq!(bytes_of(&*fs, "a_directory/another_file"), b"This is another file.\n");
    assert_eq!(fs.link(at(&*fs, "a_link")).unwrap(), b"a_directory/another_file");
    let attribute = |path, name: &str| fs.attribute(at(&*fs, path), name.as_bytes()).unwrap();
    assert_eq!(attribute("a_directory/a_file", "user.myxattr"), b"My extended attribute");
    let fork = attribute("a_directory/a_resourcefork", "user.com.apple.ResourceFork");
    assert_eq!(fork, b"My resource fork\n");
    let found = fs.metadata(at(&*fs, "passwords.txt")).unwrap();
    assert_eq!((found.mode, found.uid, found.gid, found.modified.seconds), (0o644, 501, 20, 1_642_144_782));
}

/// Paths and contents.
type Files = Vec<(String, Vec<u8>)>;

/// All that there is, and whether something was told.
fn all_of(image: Vec<u8>) -> Option<(Files, bool)> {
    let fs = wattle_fs::open(Box::new(image), None).ok()?;
    let (mut found, mut told, mut left) = (Vec::new(), false, vec![(String::new(), fs.root())]);
    while let Some((path, node)) = left.pop() {
        let Ok(metadata) = fs.metadata(node) else {
            told = true;
            continue;
        };
        let mut bytes = Vec::new();
        if metadata.kind == FileKind::Directory {
            let listed = fs.list(node, &mut |entry| {
                left.push((format!("{path}/{}", String::from_utf8_lossy(&entry.name)), entry.node));
                Ok(())
            });
            told |= listed.is_err();
        } else {
            let read = fs.read(node, 0..u64::MAX, &mut |_, part| {
                bytes.extend_from_slice(part);
                Ok(())
            });
            told |= read.is_err();
        }
        found.push((path, bytes));
    }
    Some((found, told || !fs.not_as_mounted().is_empty()))
}

/// A bit of a key of the catalog: an item is not missing in silence.
#[test]
fn an_item_that_is_not_found_in_its_folder_is_told() {
    let mut volume = Volume::new(300, BLOCK);
    for name in ["first", "second"] {
        let folder = volume.folder(ROOT, name);
        for number in 0..3 {
            volume.file(folder, &format!("{name} {number}"), format!("{name} {number} has it").as_bytes());
        }
    }
    let image = volume.build();
    let (expected, told) = all_of(image.clone()).unwrap();
    assert_eq!((expected.len(), told), (9, false));
    let contents = |of: &[(String, Vec<u8>)]| {
        let mut contents: Vec<_> = of.iter().map(|(_, bytes)| bytes.clone()).collect();
        contents.sort();
        contents
    };
    let leaves = nodes(&image, 0xff, 1);
    let mut told_of = 0;
    for leaf in leaves {
        let word = |at: usize| usize::from(u16::from_be_bytes([image[at], image[at + 1]]));
        for record in 0..word(leaf + 10) {
            let key = leaf + word(leaf + BLOCK - 2 * (record + 1));
            for bit in 0..8 * (2 + word(key)) {
                let mut image = image.clone();
                image[key + bit / 8] ^= 1 << (bit % 8);
                let Some((found, told)) = all_of(image) else { continue };
                told_of += u32::from(told);
                assert!(told || contents(&found) == contents(&expected), "{record}, bit {bit}: {found:?}");
            }
        }
    }
    assert!(told_of > 100, "{told_of}");
}
