//! FAT, exFAT and NTFS, made and filled by the tools for them: every name and every byte.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{image, open, pattern, program, run, unmount};
use tempfile::TempDir;
use wattle_fs::{DeviceNumber, Error, FileKind, FileSystem, FsNode, Note};

/// A file's bytes, or what else it is.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Directory,
    File { bytes: Vec<u8>, seconds: i64 },
    Link(Vec<u8>),
}

/// All that a file system shows, by path.
fn shown(fs: &dyn FileSystem) -> BTreeMap<PathBuf, Found> {
    let mut found = BTreeMap::new();
    let mut left = vec![(PathBuf::new(), fs.root())];
    while let Some((path, node)) = left.pop() {
        let metadata = fs.metadata(node).unwrap();
        match metadata.kind {
            FileKind::Directory => {
                let mut entries = Vec::new();
                fs.list(node, &mut |entry| {
                    entries.push(entry);
                    Ok(())
                })
                .unwrap();
                for entry in entries {
                    left.push((path.join(OsStr::from_bytes(&entry.name)), entry.node));
                }
                found.insert(path, Found::Directory);
            }
            FileKind::Symlink => _ = found.insert(path, Found::Link(fs.link(node).unwrap())),
            _ => {
                let seconds = metadata.modified.seconds;
                found.insert(path, Found::File { bytes: bytes_of(fs, node), seconds });
            }
        }
    }
    found.remove(Path::new(""));
    found
}

fn bytes_of(fs: &dyn FileSystem, node: FsNode) -> Vec<u8> {
    let mut bytes = vec![0; fs.metadata(node).unwrap().size_bytes as usize];
    fs.read(node, 0..u64::MAX, &mut |at, part| {
        bytes[at as usize..at as usize + part.len()].copy_from_slice(part);
        Ok(())
    })
    .unwrap();
    // A part alone is the same.
    let middle = bytes.len() as u64 / 3..bytes.len() as u64 / 2;
    fs.read(node, middle.clone(), &mut |at, part| {
        assert!(middle.start <= at && at + part.len() as u64 <= middle.end);
        assert_eq!(part, &bytes[at as usize..at as usize + part.len()]);
        Ok(())
    })
    .unwrap();
    bytes
}

/// The same of a directory of this machine.
fn there(root: &Path) -> BTreeMap<PathBuf, Found> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let (path, kind) = (entry.as_ref().unwrap().path(), entry.unwrap().file_type().unwrap());
            let name = path.strip_prefix(root).unwrap().to_owned();
            if kind.is_dir() {
                found.insert(name, Found::Directory);
                left.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.insert(name, Found::Link(target.as_os_str().as_bytes().to_vec()));
            } else {
                let (bytes, seconds) = (fs::read(&path).unwrap(), path.metadata().unwrap().mtime());
                found.insert(name, Found::File { bytes, seconds });
            }
        }
    }
    found
}

/// The same names and bytes; times within so many seconds.
fn assert_same(fs: &dyn FileSystem, expected: &BTreeMap<PathBuf, Found>, seconds_off: i64) {
    let shown = shown(fs);
    let lacking: Vec<_> = expected.keys().filter(|path| !shown.contains_key(*path)).collect();
    let more: Vec<_> = shown.keys().filter(|path| !expected.contains_key(*path)).collect();
    assert!(lacking.is_empty() && more.is_empty(), "lacking {lacking:?}, more {more:?}");
    for (path, found) in &shown {
        match (found, &expected[path]) {
            (Found::File { bytes, seconds }, Found::File { bytes: right, seconds: at }) => {
                assert!(bytes == right, "{}: other bytes", path.display());
                assert!((seconds - at).abs() <= seconds_off, "{}: {seconds} for {at}", path.display());
            }
            (found, right) => assert_eq!(found, right, "{}", path.display()),
        }
    }
}

/// Names and sizes of every kind that these file systems know.
fn tree(entries: usize) -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let write = |name: &str, seed, len| fs::write(tree.path().join(name), pattern(seed, len)).unwrap();
    for (seed, len) in [0, 1, 511, 512, 513, 4095, 4096, 4097, 70_000, 1 << 20].into_iter().enumerate() {
        write(&format!("file-{len}.bin"), seed as u64, len);
    }
    write("SHORT.TXT", 20, 100);
    write("lower.txt", 21, 100);
    // mtools knows no letters beyond the first plane.
    write("Größe und ein langer Name mit 漢字.txt", 22, 5000);
    write(&"n".repeat(120), 23, 10);
    write("blank at.the end.tar.gz", 24, 10);
    let mut deep = tree.path().to_owned();
    for level in 0..12 {
        deep.push(format!("level {level}"));
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("here"), level.to_string()).unwrap();
    }
    let many = tree.path().join("many");
    fs::create_dir(&many).unwrap();
    for ix in 0..entries {
        fs::write(many.join(format!("entry number {ix}")), ix.to_string()).unwrap();
    }
    run(program("touch").args(["-d", "2003-04-05 06:07:08 UTC"]).arg(tree.path().join("lower.txt"))).unwrap();
    tree
}

#[test]
fn fat_of_every_width_comes_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree(300));
    for (bits, size, cluster) in
        [("12", 7 << 20, "4"), ("16", 40 << 20, "2"), ("32", 80 << 20, "1"), ("16", 64 << 20, "8")]
    {
        let path = image(&dir, &format!("fat{bits}-{cluster}"), size);
        let make = ["-F", bits, "-s", cluster, "-n", "STICK", "-i", "1234ABCD"];
        if run(program("mkfs.vfat").args(make).arg(&path)).is_none() {
            return;
        }
        let mtool = |name: &str| {
            let mut command = Command::new(name);
            command
                .env("MTOOLS_SKIP_CHECK", "1")
                .env("TZ", "UTC")
                .env("LC_ALL", "C.UTF-8")
                .arg("-i")
                .arg(&path);
            command
        };
        // What comes and goes before leaves gaps, and deleted entries.
        let gap = dir.path().join("gap");
        for ix in 0..30 {
            fs::write(&gap, pattern(ix, 20_000)).unwrap();
            if run(mtool("mcopy").arg(&gap).arg(format!("::/gap {ix}"))).is_none() {
                return;
            }
        }
        for ix in (0..30).step_by(2) {
            run(mtool("mdel").arg(format!("::/gap {ix}"))).unwrap();
        }
        let mut expected = there(tree.path());
        for ix in (1..30).step_by(2) {
            let seconds = fs::metadata(&gap).unwrap().mtime();
            expected.insert(format!("gap {ix}").into(), Found::File { bytes: pattern(ix, 20_000), seconds });
        }
        let all = fs::read_dir(tree.path()).unwrap().map(|entry| entry.unwrap().path());
        run(mtool("mcopy").args(["-s", "-m", "-Q"]).args(all).arg("::/")).unwrap();

        let fs = open(&path);
        let about = fs.about();
        assert_eq!(
            (about.kind, &about.label[..], &about.id_text()[..]),
            ("vfat", &b"STICK"[..], "1234-ABCD")
        );
        assert_eq!((about.size_bytes, &about.notes[..]), (size, &[][..]));
        assert_same(&*fs, &expected, 60);
        let lower = wattle_fs::resolve(&*fs, b"/lower.txt").unwrap();
        assert_eq!(fs.metadata(lower).unwrap().modified.seconds, 1_049_522_828);
        what_os2_keeps_is_no_cluster(&path, bits, &expected);
        crate::fat::zeros_in_a_directory_hide_nothing(fs::read(&path).unwrap(), b"/many", b"ENTRYN~1   ");
        cut_off_chains_are_told(&path, bits);
    }
}

/// The two bytes that are the high half of a cluster's number on FAT32 are none on the others,
/// where OS/2 has its own there.
fn what_os2_keeps_is_no_cluster(path: &Path, bits: &str, expected: &BTreeMap<PathBuf, Found>) {
    if bits == "32" {
        return;
    }
    let mut bytes = fs::read(path).unwrap();
    let entry = bytes.windows(11).position(|part| part == b"SHORT   TXT").unwrap();
    bytes[entry + 20..entry + 22].copy_from_slice(&[7, 1]);
    let fs = wattle_fs::open(Box::new(bytes), None).unwrap();
    let file = wattle_fs::resolve(&*fs, b"/SHORT.TXT").unwrap();
    let Found::File { bytes, .. } = &expected[Path::new("SHORT.TXT")] else { panic!("it is a file") };
    assert!(bytes_of(&*fs, file) == *bytes);
}

/// A file whose chain in the table leads nowhere is an error, and what lies before it comes out.
fn cut_off_chains_are_told(path: &Path, bits: &str) {
    let mut bytes = fs::read(path).unwrap();
    let number = |at: usize, len: usize| {
        bytes[at..at + len].iter().rev().fold(0, |n, &byte| n << 8 | usize::from(byte))
    };
    let (reserved, tables) = (number(14, 2) * 512, number(16, 1));
    let len = if bits == "32" { number(36, 4) * 512 } else { number(22, 2) * 512 };
    // Everything behind the first 64 clusters is free now, in every copy.
    for table in 0..tables {
        bytes[reserved + table * len + 256..reserved + (table + 1) * len].fill(0);
    }
    let fs = wattle_fs::open(Box::new(bytes), None).unwrap();
    let mut damaged = 0;
    let mut nodes = vec![fs.root()];
    while let Some(node) = nodes.pop() {
        if fs.metadata(node).unwrap().kind == FileKind::Directory {
            let _ = fs.list(node, &mut |entry| {
                nodes.push(entry.node);
                Ok(())
            });
        } else if let Err(error) = fs.read(node, 0..u64::MAX, &mut |_, _| Ok(())) {
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            damaged += 1;
        }
    }
    assert!(damaged > 0);
}

/// Mounts by a program of FUSE, and lets `work` work on it; `None`, said loudly, where that cannot
/// be.
fn by_fuse(mount: &mut Command, at: &Path, work: impl FnOnce()) -> Option<()> {
    run(mount)?;
    work();
    assert!(unmount(at));
    // The program ends on its own, once everything is written.
    let runs = || Command::new("pgrep").arg("-f").arg(at).output().unwrap().status.success();
    for _ in 0..1500 {
        if !runs() {
            return Some(());
        }
        #[allow(clippy::disallowed_methods, reason = "what is waited for is another program")]
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it does not end");
}

fn copy_into(tree: &Path, at: &Path) {
    run(program("cp").args(["-r", "--preserve=timestamps"]).arg(tree.join(".")).arg(at)).unwrap();
}

#[test]
fn exfat_comes_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree(400));
    let at = dir.path().join("at");
    fs::create_dir(&at).unwrap();
    for cluster in ["512", "4K", "128K"] {
        let path = image(&dir, &format!("exfat-{cluster}"), 120 << 20);
        if run(program("mkfs.exfat").args(["-c", cluster, "-L", "Größe"]).arg(&path)).is_none() {
            return;
        }
        let mut expected = BTreeMap::new();
        // It takes a block device only.
        let looped = Command::new("losetup").args(["-f", "--show"]).arg(&path).output().unwrap();
        if !looped.status.success() {
            eprintln!("SKIPPED: losetup: {}", String::from_utf8_lossy(&looped.stderr));
            assert!(std::env::var_os("CI").is_none());
            return;
        }
        let device = String::from_utf8(looped.stdout).unwrap().trim().to_owned();
        let worked = by_fuse(program("mount.exfat-fuse").arg(&device).arg(&at), &at, || {
            for ix in 0..20 {
                fs::write(at.join(format!("gap {ix}")), pattern(ix, 200_000)).unwrap();
            }
            for ix in (0..20).step_by(2) {
                fs::remove_file(at.join(format!("gap {ix}"))).unwrap();
            }
            copy_into(tree.path(), &at);
            // Written behind a part that never was.
            let file = fs::File::create(at.join("late")).unwrap();
            file.write_all_at(b"end", 300_000).unwrap();
            file.set_len(500_000).unwrap();
            drop(file);
            expected = there(&at);
        });
        run(program("losetup").arg("-d").arg(&device)).unwrap();
        if worked.is_none() {
            return;
        }
        let fs = open(&path);
        assert_eq!((fs.about().kind, &fs.about().label[..]), ("exfat", "Größe".as_bytes()));
        assert_eq!(fs.about().notes, []);
        assert_same(&*fs, &expected, 2);
        // The first boot region is damaged: its copy is used.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[200] ^= 1;
        bytes[92..96].fill(0xff);
        assert_same(&*wattle_fs::open(Box::new(bytes), None).unwrap(), &expected, 2);
        damaged_sets_are_told(&path);
    }
}

/// Entries of a file that are not what their checksum says are an error where the file is read, and
/// those that are not whole one where the directory is listed; all others come out.
fn damaged_sets_are_told(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let names = |fs: &dyn FileSystem| {
        let mut names = Vec::new();
        let listed = fs.list(fs.root(), &mut |entry| {
            names.push(entry.name);
            Ok(())
        });
        names.sort();
        (names, listed)
    };
    let (all, listed) = names(&*open(path));
    listed.unwrap();
    let mut others = all.clone();
    others.retain(|name| name != b"SHORT.TXT");
    assert_eq!(others.len() + 1, all.len());
    // Entries of 32 bytes: file, stream, name.
    let name: Vec<u8> = "SHORT.TXT".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let name = bytes.windows(name.len()).position(|part| part == name).unwrap() - 2;
    let (file, stream) = (name - 64, name - 32);
    assert_eq!((bytes[file], bytes[stream], bytes[name]), (0x85, 0xc0, 0xc1));
    let opened = |at: usize, mask: u8| {
        let mut bytes = bytes.clone();
        bytes[at] ^= mask;
        wattle_fs::open(Box::new(bytes), None).unwrap()
    };
    // Its first cluster, its size, a time, the checksum.
    for at in [stream + 20, stream + 24, file + 12, file + 2] {
        let fs = opened(at, 1);
        let (names, listed) = names(&*fs);
        listed.unwrap();
        assert_eq!(names, all, "{at}");
        let found = wattle_fs::resolve(&*fs, b"/SHORT.TXT").and_then(|node| fs.metadata(node).map(|_| ()));
        assert!(matches!(found, Err(Error::Damaged { what, .. }) if what.contains("checksum")), "{found:?}");
        assert_eq!(bytes_of(&*fs, wattle_fs::resolve(&*fs, b"/late").unwrap()).len(), 500_000);
    }
    // Of a set one is marked as deleted, or is another one; and more than there are belong to it.
    for (at, mask) in [(name, 0x80), (stream, 0x80), (file, 0x80), (name, 0x44), (file + 1, 4)] {
        let fs = opened(at, mask);
        let (names, listed) = names(&*fs);
        assert!(matches!(listed, Err(Error::Damaged { .. })), "{at}, {mask}: {listed:?}");
        assert_eq!(names, others, "{at}, {mask}");
    }
    // The end of the directory comes in the middle of one.
    let fs = opened(stream, 0xc0);
    let (names, listed) = names(&*fs);
    assert!(matches!(listed, Err(Error::Damaged { .. })), "{listed:?}");
    assert_eq!(names, others);
}

#[test]
fn ntfs_comes_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree(1500));
    let at = dir.path().join("at");
    fs::create_dir(&at).unwrap();
    for (cluster, size) in [("4096", 100 << 20), ("512", 40 << 20), ("65536", 160 << 20)] {
        let path = image(&dir, &format!("ntfs-{cluster}"), size);
        if run(program("mkntfs").args(["-q", "-F", "-Q", "-c", cluster, "-L", "Größe"]).arg(&path)).is_none()
        {
            return;
        }
        let mut expected = BTreeMap::new();
        let mut mount = program("ntfs-3g");
        mount.args(["-o", "compression,streams_interface=xattr,big_writes"]).arg(&path).arg(&at);
        let worked = by_fuse(&mut mount, &at, || {
            copy_into(tree.path(), &at);
            std::os::unix::fs::symlink("many/../lower.txt", at.join("a link")).unwrap();
            fs::hard_link(at.join("lower.txt"), at.join("its second name")).unwrap();
            sparse_and_in_pieces(&at);
            compressed(&at);
            let stream = ["-n", "user.stream", "-v", "kept beside"];
            run(program("setfattr").args(stream).arg(at.join("lower.txt"))).unwrap();
            let large = "x".repeat(30_000);
            let stream = ["-n", "user.large stream", "-v", &large];
            run(program("setfattr").args(stream).arg(at.join("SHORT.TXT"))).unwrap();
            expected = there(&at);
        });
        if worked.is_none() {
            return;
        }
        let fs = open(&path);
        assert_eq!((fs.about().kind, &fs.about().label[..]), ("ntfs", "Größe".as_bytes()));
        assert_eq!(fs.about().notes, [], "{cluster}");
        assert_same(&*fs, &expected, 0);
        let node = |name: &[u8]| wattle_fs::resolve(&*fs, name).unwrap();
        let lower = fs.metadata(node(b"lower.txt")).unwrap();
        assert_eq!((lower.modified.seconds, lower.links), (1_049_522_828, 2));
        assert_eq!(node(b"lower.txt"), node(b"its second name"));
        assert_eq!(fs.attributes(node(b"lower.txt")).unwrap(), [b"user.stream".to_vec()]);
        assert!(fs.metadata(node(b"sparse")).unwrap().stored_bytes < 1 << 20);
        streams_end_where_they_were_written(&path);
        if cluster == "4096" {
            let zeros = fs.metadata(node(b"packed/text")).unwrap();
            assert!(zeros.stored_bytes < zeros.size_bytes / 2, "it is compressed: {zeros:?}");
            damage_is_told(&path);
        }
    }
}

/// Links and devices as ntfs-3g writes them, in a file's data: in its record or outside.
#[test]
fn what_linux_makes_on_ntfs_is_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("at");
    fs::create_dir(&at).unwrap();
    let path = image(&dir, "ntfs", 40 << 20);
    if run(program("mkntfs").args(["-q", "-F", "-Q"]).arg(&path)).is_none() {
        return;
    }
    let lengths = [1, 59, 400, 600, 4000];
    let worked = by_fuse(program("ntfs-3g").arg(&path).arg(&at), &at, || {
        for length in lengths {
            std::os::unix::fs::symlink("x".repeat(length), at.join(format!("link {length}"))).unwrap();
        }
        // Names leave less room in the record.
        std::os::unix::fs::symlink("y".repeat(300), at.join("named")).unwrap();
        for ix in 0..20 {
            fs::hard_link(at.join("named"), at.join(format!("a further name of it {ix}"))).unwrap();
        }
        run(program("mknod").arg(at.join("disk")).args(["b", "8", "300"])).unwrap();
        run(program("mknod").arg(at.join("null")).args(["c", "1", "3"])).unwrap();
        fs::write(at.join("text"), b"IntxLNK\x01but no file of the system").unwrap();
    });
    if worked.is_none() {
        return;
    }
    let fs = open(&path);
    let node = |name: &str| entry_of(&*fs, name);
    for length in lengths {
        let link = node(&format!("link {length}"));
        assert_eq!(fs.metadata(link).unwrap().kind, FileKind::Symlink, "{length}");
        assert!(fs.link(link).unwrap() == "x".repeat(length).into_bytes(), "{length}");
        assert!(matches!(fs.read(link, 0..1, &mut |_, _| Ok(())), Err(Error::NotAFile)));
    }
    assert!(fs.link(node("named")).unwrap() == "y".repeat(300).into_bytes());
    assert_eq!(node("named"), node("a further name of it 7"));
    for (name, kind, major, minor) in
        [("disk", FileKind::BlockDevice, 8, 300), ("null", FileKind::CharDevice, 1, 3)]
    {
        let metadata = fs.metadata(node(name)).unwrap();
        assert_eq!((metadata.kind, metadata.device), (kind, Some(DeviceNumber { major, minor })), "{name}");
    }
    assert_eq!(fs.metadata(node("text")).unwrap().kind, FileKind::File);
}

/// What lies behind what was ever written of a named stream is zeros, whatever the clusters have.
fn streams_end_where_they_were_written(path: &Path) {
    const ATTRIBUTE: &[u8] = b"user.large stream";
    let mut bytes = fs::read(path).unwrap();
    let value = |bytes: &[u8]| {
        let fs = wattle_fs::open(Box::new(bytes.to_vec()), None).unwrap();
        fs.attribute(wattle_fs::resolve(&*fs, b"SHORT.TXT").unwrap(), ATTRIBUTE).unwrap()
    };
    assert!(value(&bytes) == [b'x'; 30_000]);
    let name: Vec<u8> = "large stream".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let name = bytes.windows(name.len()).position(|part| part == name).unwrap();
    // The attribute begins with its kind, and says where in it its name is.
    let is_it =
        |at: &usize| bytes[*at..].starts_with(&[0x80, 0, 0, 0]) && at + usize::from(bytes[at + 10]) == name;
    let attribute = (name - 100..name).find(is_it).unwrap();
    bytes[attribute + 56..attribute + 64].copy_from_slice(&5000_u64.to_le_bytes());
    assert!(value(&bytes) == [vec![b'x'; 5000], vec![0; 25_000]].concat());
}

/// What an entry of the root names: a link itself.
fn entry_of(fs: &dyn FileSystem, name: &str) -> FsNode {
    let mut found = None;
    fs.list(fs.root(), &mut |entry| {
        found = found.or((entry.name == name.as_bytes()).then_some(entry.node));
        Ok(())
    })
    .unwrap();
    found.unwrap_or_else(|| panic!("{name} is not there"))
}

fn sparse_and_in_pieces(at: &Path) {
    let file = fs::File::create(at.join("sparse")).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"end", 9 << 20).unwrap();
    // Two that grow in turn lie in pieces, more than a record has room for.
    let files =
        [fs::File::create(at.join("pieces 0")).unwrap(), fs::File::create(at.join("pieces 1")).unwrap()];
    for piece in 0..400_u64 {
        for (ix, file) in files.iter().enumerate() {
            file.write_all_at(&pattern(piece * 2 + ix as u64, 4096), piece * 12_288).unwrap();
        }
    }
}

/// A directory whose files are compressed: text, what cannot be packed, and both.
fn compressed(at: &Path) {
    let packed = at.join("packed");
    fs::create_dir(&packed).unwrap();
    run(program("setfattr").args(["-h", "-n", "system.ntfs_attrib_be", "-v", "0x00000810"]).arg(&packed))
        .unwrap();
    let text: Vec<u8> =
        (0..60_000_u32).flat_map(|line| format!("line {} of it\n", line / 3).into_bytes()).collect();
    fs::write(packed.join("text"), &text).unwrap();
    fs::write(packed.join("noise"), pattern(5, 200_000)).unwrap();
    fs::write(packed.join("zeros"), vec![0; 300_000]).unwrap();
    let mixed = [&text[..100_001], &pattern(6, 100_000), &vec![0; 100_000], b"end"].concat();
    fs::write(packed.join("mixed"), mixed).unwrap();
    fs::write(packed.join("small"), b"in the record").unwrap();
}

/// A log that was not closed, a volume that is marked, a torn record, a boot sector that is gone.
fn damage_is_told(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let opened = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        wattle_fs::open(Box::new(bytes), None)
    };
    let find = |what: &[u8], from: usize| {
        from + bytes[from..].windows(what.len()).position(|part| part == what).unwrap()
    };
    let copy = opened(&|bytes| bytes[11..80].fill(0)).unwrap();
    assert_eq!(copy.about().size_bytes, opened(&|_| ()).unwrap().about().size_bytes);

    let table = u64::from_le_bytes(bytes[48..56].try_into().unwrap()) as usize * 4096;
    let first = opened(&|bytes| bytes[table + 100] ^= 0xff);
    drop(first);
    let copy = opened(&|bytes| bytes[table..table + 4].fill(0)).unwrap();
    assert_eq!(copy.about().label, "Größe".as_bytes());

    // The record of the file is found by its name.
    let name: Vec<u8> = "SHORT.TXT".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let record = find(&name, table) / 1024 * 1024;
    let torn = opened(&|bytes| bytes[record + 1022] ^= 1).unwrap();
    let node = wattle_fs::resolve(&*torn, b"SHORT.TXT");
    assert!(matches!(node, Err(Error::Damaged { .. })), "{node:?}");
    let gone = opened(&|bytes| bytes[record + 16] ^= 1).unwrap();
    let node = wattle_fs::resolve(&*gone, b"SHORT.TXT");
    assert!(matches!(node, Err(Error::Damaged { what, .. }) if what.contains("another file")), "{node:?}");

    // The volume's own record, 3, has its flags in 0x70.
    let volume = table + 3 * 1024;
    let information = find(&[0x70, 0, 0, 0], volume);
    let value =
        information + usize::from(u16::from_le_bytes([bytes[information + 20], bytes[information + 21]]));
    let marked = opened(&|bytes| bytes[value + 10] |= 1).unwrap();
    assert_eq!(marked.about().notes, [Note::MarkedDamaged]);
    assert!(!marked.left_out().is_empty());

    // ntfs-3g wipes the log: what is not wiped was not closed.
    let log = find(&[0xff; 8192], table);
    let left_open = opened(&|bytes| bytes[log..log + 4].copy_from_slice(b"RSTR")).unwrap();
    assert!(
        matches!(left_open.about().notes[..], [Note::JournalNotApplied { .. }]),
        "{:?}",
        left_open.about().notes
    );
    assert!(!left_open.not_as_mounted().is_empty());
}
