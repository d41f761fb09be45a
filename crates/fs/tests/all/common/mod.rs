//! Trees of files, images made of them by the tools that make file systems, and what comes out
//! compared with what went in.

pub mod hfs;
pub mod hfs_parts;
pub mod pool;
pub mod work;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use wattle_fs::{DeviceNumber, FileKind, FileSystem, FsNode, ReadAt};

/// An image file that is read from.
pub struct Image(File);

impl ReadAt for Image {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }

    fn size_bytes(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }
}

impl Image {
    pub fn open(path: &Path) -> Self {
        Self(File::open(path).unwrap())
    }
}

/// Opens an image that must be one.
pub fn open(path: &Path) -> Box<dyn FileSystem> {
    wattle_fs::open(Box::new(Image::open(path)), None).unwrap()
}

/// Runs a command; `None`, said loudly, if this machine lacks it. In CI that is a failure.
pub fn run(command: &mut Command) -> Option<()> {
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Some(()),
        Ok(output) => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{command:?}: {error}");
            eprintln!("SKIPPED: {command:?}: {error}");
            None
        }
    }
}

/// A program that is in the directories of the administrator.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// A file of a size for an image.
pub fn image(dir: &TempDir, name: &str, size: u64) -> PathBuf {
    let path = dir.path().join(name);
    File::create(&path).unwrap().set_len(size).unwrap();
    path
}

/// Mounts an image, lets `change` work on it, and unmounts it. `None`, said loudly, where that is
/// not possible.
pub fn mounted(image: &Path, options: &str, change: impl FnOnce(&Path)) -> Option<()> {
    let dir = tempfile::tempdir().unwrap();
    let mount = program("mount").args(["-o", options]).arg(image).arg(dir.path()).output().ok()?;
    if !mount.status.success() {
        eprintln!("SKIPPED: mount: {}", String::from_utf8_lossy(&mount.stderr));
        return None;
    }
    /// Unmounts also if the test fails.
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            unmount(self.0);
        }
    }
    let unmount = Unmount(dir.path());
    change(dir.path());
    drop(unmount);
    Some(())
}

/// Whether it could be unmounted. Something that looks at every new mount may keep it busy for a
/// moment.
#[allow(clippy::disallowed_methods, reason = "what is waited for is another program")]
pub fn unmount(at: &Path) -> bool {
    (0..50).any(|_| {
        let output = program("umount").arg(at).output().unwrap();
        let done = output.status.success();
        if !done {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        done
    })
}

/// Bytes that repeat nowhere near.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// What a tree should have of everything.
#[derive(Clone, Copy)]
pub struct Size {
    /// Entries of the large directory.
    pub entries: usize,
    /// Pieces of the file with many extents.
    pub pieces: u64,
}

/// Makes a tree with every kind of thing that a directory holds.
pub fn make_tree(root: &Path, size: Size) {
    let file = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).unwrap();
    file("proof.txt", b"kept by linux\n");
    file("empty", b"");
    file("one", b"1");
    for (ix, len) in [59, 60, 100, 160, 4095, 4096, 4097, 50_000, 300_000, 3 << 20].into_iter().enumerate() {
        file(&format!("file-{len}"), &pattern(ix as u64, len));
    }
    file(&"n".repeat(255), b"a long name");
    fs::write(root.join(OsStr::from_bytes(b"not \xff utf-8 \n")), b"any bytes").unwrap();
    fs::hard_link(root.join("proof.txt"), root.join("proof-again.txt")).unwrap();
    for len in [1, 59, 60, 61, 200, 900] {
        symlink("t".repeat(len), root.join(format!("link-{len}"))).unwrap();
    }
    sparse(root, size.pieces);
    let mut deep = root.to_owned();
    for level in 0..40 {
        deep.push(format!("level-{level}"));
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("here"), level.to_string()).unwrap();
    }
    symlink("level-0/../proof.txt", root.join("to-proof")).unwrap();
    symlink("level-0/level-1/", root.join("to-level-1")).unwrap();
    for (name, entries) in [("small", 3), ("medium", 120), ("large", size.entries)] {
        let dir = root.join(name);
        fs::create_dir(&dir).unwrap();
        for ix in 0..entries {
            File::create(dir.join(format!("entry-{ix}-{}", "x".repeat(ix % 40)))).unwrap();
        }
    }
    attributes(root);
}

/// Holes at the start, in the middle and at the end, and a file in many pieces, none beside the
/// next.
fn sparse(root: &Path, pieces: u64) {
    let file = File::create(root.join("sparse")).unwrap();
    file.write_all_at(&pattern(77, 10_000), 5 << 20).unwrap();
    file.write_all_at(&pattern(78, 10), 40 << 20).unwrap();
    file.set_len(50 << 20).unwrap();
    let hole = File::create(root.join("only-a-hole")).unwrap();
    hole.set_len(1 << 20).unwrap();
    let file = File::create(root.join("pieces")).unwrap();
    for piece in 0..pieces {
        file.write_all_at(&pattern(piece, 4096), piece * 12_288).unwrap();
    }
}

fn attributes(root: &Path) {
    let set =
        |name: &str, mode| fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    set("one", 0o4711);
    set("empty", 0o000);
    set("small", 0o1777);
    let _ = program("chown").args(["1234:567890"]).arg(root.join("one")).status();
    let touch = |time: &str, name: &str| {
        run(program("touch").args(["-h", "-d", time]).arg(root.join(name))).unwrap();
    };
    touch("1969-07-20 20:17:40.123456789 UTC", "file-4095");
    touch("2038-01-19 03:14:08 UTC", "file-4096");
    touch("2001-09-09 01:46:40.987654321 UTC", "link-1");
    run(program("mkfifo").arg(root.join("fifo"))).unwrap();
    drop(std::os::unix::net::UnixListener::bind(root.join("socket")));
    devices(root);
}

/// Device files, which only root can make: with numbers that fit into 16 bits, and the largest of
/// XFS.
fn devices(root: &Path) {
    for (name, kind, major, minor) in [
        ("null", "c", "1", "3"),
        ("disk", "b", "8", "17"),
        ("wide", "b", "259", "300"),
        ("most", "c", "511", "262143"),
    ] {
        let made = program("mknod").arg(root.join(name)).args([kind, major, minor]).status();
        assert!(made.is_ok_and(|made| made.success()) || !rustix::process::geteuid().is_root(), "{name}");
    }
}

/// What need not be the same.
#[derive(Clone, Copy, Default)]
pub struct Except {
    /// The tool keeps 32 bits of seconds only.
    pub short_times: bool,
    /// Times end in 2038.
    pub beyond_2038: bool,
    /// The tool does not keep times, or not as they were.
    pub times: bool,
    /// The tool writes zeros in place of holes.
    pub holes: bool,
    /// Those of directories, which a mount that replays a log sets anew.
    pub times_of_directories: bool,
    /// The name of a file that was changed since.
    pub times_of: Option<&'static str>,
    /// The tool does not keep hard links.
    pub links: bool,
}

/// Compares all that is below a directory with all that the file system has, byte by byte and
/// attribute by attribute.
pub fn assert_same(fs: &dyn FileSystem, root: &Path, except: Except) {
    assert_same_at_least(fs, root, except, 101);
}

/// As [`assert_same`], with so many things at least.
pub fn assert_same_at_least(fs: &dyn FileSystem, root: &Path, except: Except, count: usize) {
    let mut inodes = BTreeMap::new();
    let compared = same_directory(fs, fs.root(), root, except, &mut inodes);
    assert!(compared >= count, "only {compared} things were compared");
}

/// The entries of a directory, sorted.
pub fn entries(fs: &dyn FileSystem, node: FsNode) -> BTreeMap<Vec<u8>, FsNode> {
    let mut entries = BTreeMap::new();
    fs.list(node, &mut |entry| {
        assert!(entries.insert(entry.name.clone(), entry.node).is_none(), "twice: {entry:?}");
        Ok(())
    })
    .unwrap();
    entries
}

fn same_directory(
    fs: &dyn FileSystem,
    node: FsNode,
    path: &Path,
    except: Except,
    inodes: &mut BTreeMap<u64, FsNode>,
) -> usize {
    let mut there: BTreeMap<Vec<u8>, PathBuf> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().as_bytes().to_vec(), path))
        .collect();
    let mut here = entries(fs, node);
    there.remove(&b"lost+found"[..]);
    here.remove(&b"lost+found"[..]);
    assert_eq!(here.keys().collect::<Vec<_>>(), there.keys().collect::<Vec<_>>(), "{}", path.display());
    let mut compared = 0;
    for (name, node) in here {
        compared += same(fs, node, &there[&name], except, inodes);
    }
    compared
}

fn same(
    fs: &dyn FileSystem,
    node: FsNode,
    path: &Path,
    except: Except,
    inodes: &mut BTreeMap<u64, FsNode>,
) -> usize {
    let (here, there) = (fs.metadata(node).unwrap(), fs::symlink_metadata(path).unwrap());
    let name = path.display();
    let kind = there.file_type();
    let expected = match kind {
        _ if kind.is_file() => FileKind::File,
        _ if kind.is_dir() => FileKind::Directory,
        _ if kind.is_symlink() => FileKind::Symlink,
        _ if kind.is_fifo() => FileKind::Fifo,
        _ if kind.is_socket() => FileKind::Socket,
        _ if kind.is_char_device() => FileKind::CharDevice,
        _ if kind.is_block_device() => FileKind::BlockDevice,
        _ => panic!("{name}: {kind:?} is in no tree here"),
    };
    assert_eq!(here.kind, expected, "{name}");
    let number = |rdev| DeviceNumber { major: rustix::fs::major(rdev), minor: rustix::fs::minor(rdev) };
    let device = here.kind.is_device().then(|| number(there.rdev()));
    assert_eq!(here.device, device, "{name}");
    assert_eq!((here.mode, here.uid, here.gid), (there.mode() & 0o7777, there.uid(), there.gid()), "{name}");
    let kept = (!except.beyond_2038 || there.mtime() <= i64::from(i32::MAX))
        && except.times_of.is_none_or(|name| !path.ends_with(name));
    let kept = kept && !(except.times_of_directories && kind.is_dir());
    if kept && !except.times {
        let nanoseconds = if except.short_times { 0 } else { there.mtime_nsec() as u32 };
        let seconds = if except.short_times { i64::from(there.mtime() as i32) } else { there.mtime() };
        assert_eq!(here.modified.seconds, seconds, "{name}");
        assert_eq!(here.modified.nanoseconds, nanoseconds, "{name}");
    }
    match here.kind {
        FileKind::Directory => return 1 + same_directory(fs, node, path, except, inodes),
        FileKind::Symlink => {
            let target = fs::read_link(path).unwrap();
            assert_eq!(fs.link(node).unwrap(), target.as_os_str().as_bytes(), "{name}");
            assert_eq!(here.size_bytes, there.size(), "{name}");
        }
        FileKind::File => {
            assert_eq!(here.size_bytes, there.size(), "{name}");
            same_data(fs, node, path, except);
            // Exact only where nothing is preallocated.
            let stored = here.stored_bytes;
            assert!(except.holes || !path.ends_with("sparse") || stored < 1 << 20, "{name}: {stored}");
            assert!(!path.ends_with("file-300000") || stored >= 300_000, "{name}: {stored}");
            if !except.links {
                assert_eq!(u64::from(here.links), there.nlink(), "{name}");
                assert_eq!(
                    *inodes.entry(there.ino()).or_insert(node),
                    node,
                    "{name}: one file of several names"
                );
            }
        }
        _ => {}
    }
    1
}

/// The bytes, whole and in ranges, and holes where there are some.
fn same_data(fs: &dyn FileSystem, node: FsNode, path: &Path, except: Except) {
    let expected = fs::read(path).unwrap();
    let (data, delivered) = read(fs, node, 0..u64::MAX, expected.len());
    assert!(data == expected, "{}: the data differs", path.display());
    let allocated = fs::metadata(path).unwrap().blocks() * 512;
    assert!(
        except.holes || delivered <= (allocated + (64 << 10)).min(expected.len() as u64),
        "{}: {delivered} bytes were delivered of {allocated} that are there",
        path.display()
    );
    for (start, end) in [(1, 5), (4_090, 4_100), (12_287, 70_001), (100_000, 2_000_003)] {
        let (start, end) = (start.min(expected.len()), end.min(expected.len()));
        let (part, _) = read(fs, node, start as u64..end as u64, expected.len());
        assert!(part[start..end] == expected[start..end], "{}: {start}..{end}", path.display());
    }
}

/// Data of a file, with zeros in its holes, and how much was delivered.
pub fn read(fs: &dyn FileSystem, node: FsNode, range: std::ops::Range<u64>, len: usize) -> (Vec<u8>, u64) {
    let (mut data, mut delivered, mut at) = (vec![0; len], 0, range.start);
    fs.read(node, range.clone(), &mut |offset, bytes| {
        assert!(offset >= at, "in order");
        at = offset + bytes.len() as u64;
        assert!(at <= range.end, "within the range");
        data[offset as usize..at as usize].copy_from_slice(bytes);
        delivered += bytes.len() as u64;
        Ok(())
    })
    .unwrap();
    (data, delivered)
}

/// Paths lead where they lead, through links too.
pub fn assert_paths(fs: &dyn FileSystem) {
    let find = |path: &str| wattle_fs::resolve(fs, path.as_bytes());
    let proof = find("/proof.txt").unwrap();
    assert_eq!(read(fs, proof, 0..u64::MAX, 14).0, b"kept by linux\n");
    for path in
        ["proof.txt", "//proof.txt", "/level-0/../proof.txt", "/../proof.txt", "/to-level-1/../../proof.txt"]
    {
        assert_eq!(find(path).unwrap(), proof, "{path}");
    }
    assert_eq!(fs.metadata(find("/to-level-1").unwrap()).unwrap().kind, FileKind::Symlink);
    assert_eq!(find("/to-level-1/").unwrap(), find("/level-0/level-1").unwrap());
    assert_eq!(find("/").unwrap(), fs.root());
    for (path, message) in [
        ("/nothing", "no such file or directory"),
        ("/nothing/more", "no such file or directory"),
        ("/proof.txt/more", "not a directory"),
        ("/proof.txt/", "not a directory"),
        ("/proof.txt/..", "not a directory"),
        ("/link-1/more", "no such file or directory"),
    ] {
        assert_eq!(find(path).unwrap_err().to_string(), message, "{path}");
    }
}
