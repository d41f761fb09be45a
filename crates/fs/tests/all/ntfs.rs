//! NTFS: what is damaged, or stands for what is elsewhere, is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::common::{image, pattern, program, run, unmount};
use crate::fat::shown;
use tempfile::TempDir;
use wattle_fs::{Error, FileSystem, ReadAt, resolve};

/// An image that ntfs-3g filled. `None`, said loudly, where that cannot be.
fn filled(dir: &TempDir, work: impl FnOnce(&Path)) -> Option<PathBuf> {
    let at = dir.path().join("at");
    fs::create_dir(&at).unwrap();
    let path = image(dir, "ntfs", 40 << 20);
    run(program("mkntfs").args(["-q", "-F", "-Q"]).arg(&path))?;
    run(program("ntfs-3g").args(["-o", "compression,streams_interface=xattr"]).arg(&path).arg(&at))?;
    work(&at);
    assert!(unmount(&at));
    // The program ends on its own, once everything is written.
    let runs = || program("pgrep").arg("-f").arg(&at).output().unwrap().status.success();
    for _ in 0..1500 {
        if !runs() {
            return Some(path);
        }
        #[allow(clippy::disallowed_methods, reason = "what is waited for is another program")]
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it does not end");
}

fn opened(bytes: Vec<u8>) -> Box<dyn FileSystem> {
    wattle_fs::open(Box::new(bytes), None).unwrap()
}

/// What comes of reading all of a file.
fn read(fs: &dyn FileSystem, path: &str) -> Result<Vec<u8>, Error> {
    let node = resolve(fs, path.as_bytes())?;
    let mut bytes = vec![0; fs.metadata(node)?.size_bytes as usize];
    fs.read(node, 0..u64::MAX, &mut |at, part| {
        bytes[at as usize..at as usize + part.len()].copy_from_slice(part);
        Ok(())
    })?;
    Ok(bytes)
}

/// Gives a file a reparse point: that of Microsoft's tags has no GUID.
fn reparse(file: &Path, tag: u32) {
    let guid: &[u8] = if tag & 0x8000_0000 == 0 { &[7; 16] } else { &[] };
    let value = [&tag.to_le_bytes(), &[4, 0, 0, 0][..], guid, &[1, 0, 0, 0]].concat();
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    let attribute = ["-h", "-n", "system.ntfs_reparse_data", "-v", &format!("0x{hex}")];
    run(program("setfattr").args(attribute).arg(file)).unwrap();
}

/// A file that stands for data elsewhere is an error, and never the zeros that are in its place.
#[test]
fn data_that_is_elsewhere_is_never_zeros() {
    const KNOWN: [u32; 11] = [
        0x8000_0006,
        0x8000_0007,
        0x8000_0013,
        0x8000_0017,
        0x8000_0018,
        0x8000_001e,
        0x8000_0021,
        0x9000_001c,
        0x9000_1018,
        0x9000_601a,
        0xc000_0004,
    ];
    const UNKNOWN: [u32; 3] = [0x12, 0x8000_0fff, 0x9000_0fff];
    let dir = tempfile::tempdir().unwrap();
    let whole = pattern(3, 100_000);
    let made = filled(&dir, |at| {
        for tag in KNOWN.into_iter().chain(UNKNOWN) {
            let file = at.join(format!("sparse {tag:08x}"));
            fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
            reparse(&file, tag);
        }
        for tag in UNKNOWN {
            let file = at.join(format!("whole {tag:08x}"));
            fs::write(&file, &whole).unwrap();
            reparse(&file, tag);
            let file = at.join(format!("offline {tag:08x}"));
            fs::write(&file, &whole).unwrap();
            reparse(&file, tag);
            let offline = ["-h", "-n", "system.ntfs_attrib_be", "-v", "0x00001020"];
            run(program("setfattr").args(offline).arg(&file)).unwrap();
        }
    });
    let Some(path) = made else { return };
    let fs = opened(fs::read(path).unwrap());
    for tag in KNOWN {
        let found = read(&*fs, &format!("/sparse {tag:08x}"));
        assert!(matches!(found, Err(Error::Unsupported { .. })), "{tag:08x}: {found:?}");
    }
    for tag in UNKNOWN {
        for kind in ["sparse", "offline"] {
            let found = read(&*fs, &format!("/{kind} {tag:08x}")).unwrap_err();
            assert!(found.to_string().contains(&format!("{tag:#010x}")), "{kind} {tag:08x}: {found}");
        }
        assert!(read(&*fs, &format!("/whole {tag:08x}")).unwrap() == whole, "{tag:08x}");
    }
}

/// An image with some bytes in another form.
struct Patched(Rc<Vec<u8>>, usize, Vec<u8>);

impl ReadAt for Patched {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, into)?;
        for (at, byte) in (self.1..).zip(&self.2) {
            if let Some(at) = at.checked_sub(offset as usize).filter(|at| *at < into.len()) {
                into[at] = *byte;
            }
        }
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// Where attributes of this kind are, in records of users' files. None of them crosses a sector's
/// end there.
fn attributes_of(image: &[u8], kind: usize) -> Vec<usize> {
    let table = number(image, 48, 8) * number(image, 11, 2) * usize::from(image[13]);
    let records = (table + 24 * 1024..image.len() - 1024).step_by(1024);
    let mut found = Vec::new();
    for record in records.take_while(|at| image[*at..].starts_with(b"FILE")) {
        let mut at = record + number(image, record + 20, 2);
        while at < record + 1000 && number(image, at, 4) != 0xffff_ffff {
            let len = number(image, at + 4, 4);
            found.extend((number(image, at, 4) == kind).then_some(at));
            at += len.max(8);
        }
    }
    found
}

fn shown_with(image: &Rc<Vec<u8>>, at: usize, bytes: &[u8]) -> (BTreeMap<Vec<u8>, Vec<u8>>, bool) {
    let patched = Patched(image.clone(), at, bytes.to_vec());
    shown(&*wattle_fs::open(Box::new(patched), None).unwrap())
}

/// A list of clusters that ends early, or counts others than there are, makes no zeros in silence:
/// of files, compressed or not, and of directories.
#[test]
fn clusters_that_are_not_all_there_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let made = filled(&dir, |at| {
        let packed = at.join("packed");
        fs::create_dir(&packed).unwrap();
        let attribute = ["-h", "-n", "system.ntfs_attrib_be", "-v", "0x00000810"];
        run(program("setfattr").args(attribute).arg(&packed)).unwrap();
        let text = b"the same again, and again. ".repeat(4000);
        let mixed = [&text[..], &pattern(6, 100_000), &vec![0; 100_000], b"end"].concat();
        fs::write(packed.join("mixed"), mixed).unwrap();
        // Two that grow in turn lie in pieces, with holes.
        let files = [0, 1].map(|ix| fs::File::create(at.join(format!("pieces {ix}"))).unwrap());
        for piece in 0..20_u64 {
            for (ix, file) in files.iter().enumerate() {
                file.write_all_at(&pattern(piece * 2 + ix as u64, 4096), piece * 12_288).unwrap();
            }
        }
        let many = at.join("many");
        fs::create_dir(&many).unwrap();
        for ix in 0..200 {
            fs::write(many.join(format!("entry number {ix}")), ix.to_string()).unwrap();
        }
    });
    let Some(path) = made else { return };
    let image = Rc::new(fs::read(path).unwrap());
    let (expected, told) = shown_with(&image, 0, &[]);
    assert_eq!((expected.len(), told), (203, false));
    let mut changed = 0;
    for attribute in [0x80, 0xa0].into_iter().flat_map(|kind| attributes_of(&image, kind)) {
        if image[attribute + 8] == 0 {
            continue;
        }
        let mut pair = attribute + number(&image, attribute + 32, 2);
        while image[pair] != 0 {
            let more = [image[pair + 1].wrapping_add(1)];
            for (at, bytes) in [(pair, &[0][..]), (pair + 1, &more)] {
                if at % 512 >= 510 {
                    continue;
                }
                let (found, told) = shown_with(&image, at, bytes);
                assert!(told, "the pair at {pair}, byte {at}: {} of {}", found.len(), expected.len());
                // All other files come out.
                assert!(found.len() >= if number(&image, attribute, 4) == 0x80 { 202 } else { 3 });
                changed += 1;
            }
            pair += 1 + usize::from(image[pair] & 0xf) + usize::from(image[pair] >> 4);
        }
    }
    assert!(changed > 40, "{changed}");
}

/// A bitmap that calls blocks of a directory's index free hides none that entries lead to; and a
/// block that is damaged hides no other.
#[test]
fn blocks_of_a_directory_that_entries_lead_to_are_read() {
    const FILES: usize = 2000;
    let dir = tempfile::tempdir().unwrap();
    let made = filled(&dir, |at| {
        for ix in 0..FILES {
            fs::write(at.join(format!("entry number {ix}")), "").unwrap();
        }
        let many = at.join("many");
        fs::create_dir(&many).unwrap();
        for ix in 0..FILES {
            fs::hard_link(at.join(format!("entry number {ix}")), many.join(format!("{ix} is its name")))
                .unwrap();
        }
    });
    let Some(path) = made else { return };
    let image = Rc::new(fs::read(path).unwrap());
    let listed = |at: usize, bytes: &[u8]| {
        let fs = wattle_fs::open(Box::new(Patched(image.clone(), at, bytes.to_vec())), None).unwrap();
        let (many, mut names) = (resolve(&*fs, b"/many").unwrap(), BTreeSet::new());
        let listed = fs.list(many, &mut |entry| {
            assert!(names.insert(entry.name), "none comes twice");
            Ok(())
        });
        (names.len(), listed)
    };
    assert!(matches!(listed(0, &[]), (FILES, Ok(()))));
    let bitmaps = attributes_of(&image, 0xb0);
    let [bitmap] = bitmaps[..] else { panic!("{} bitmaps", bitmaps.len()) };
    assert_eq!(image[bitmap + 8], 0, "it is in the record");
    let (value, len) = (bitmap + number(&image, bitmap + 20, 2), number(&image, bitmap + 16, 4));
    for (at, bytes) in [(value, vec![0; len]), (value, vec![0]), (value + 1, vec![0]), (value, vec![0xfb])] {
        let (found, told) = listed(at, &bytes);
        assert_eq!(found, FILES, "{bytes:?}");
        assert!(matches!(told, Err(Error::Damaged { .. })), "{bytes:?}: {told:?}");
    }
    // A block of the index that is torn.
    let name: Vec<u8> = "7 is its name".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let places = image.windows(name.len()).enumerate().filter(|(_, part)| *part == &name[..]);
    let block = places.map(|(at, _)| at / 4096 * 4096).find(|at| image[*at..].starts_with(b"INDX")).unwrap();
    let (found, told) = listed(block + 510, &[0xa5, 0x5a]);
    assert!(matches!(told, Err(Error::Damaged { .. })), "{told:?}");
    assert!((FILES - 100..FILES).contains(&found), "{found}");
}
