//! File systems that are cut off at any moment while a kernel writes to them: what comes out
//! without a word of what is missing is what Linux shows after its own replay.
//!
//! The image lies on an XFS whose files can be cloned. A clone is taken between two writes to the
//! image, whatever is under way above: it has all that was written before, and nothing after.
//!
//! `WATTLE_CUTS=N` takes N times as many images, as `make cuts` does.

#![allow(
    clippy::disallowed_methods,
    reason = "a panic is how a test fails, a skipped one says so, and cuts come at any time"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::work::{Dice, Work};
use crate::common::{image, mounted, open, pattern, program, run};
use wattle_fs::{FileKind, FileSystem, FsNode, Note};

/// How many times as many images as usual are cut.
fn times() -> u64 {
    std::env::var("WATTLE_CUTS").ok().map_or(1, |times| times.parse().unwrap())
}

/// A file system that is made, and how it is mounted.
struct Made {
    name: &'static str,
    make: &'static [&'static str],
    mount: &'static str,
    /// A mount that replays sets times of directories anew.
    times_of_directories: bool,
    /// Is worked on in more ways, and shut down as well as cut.
    varied: bool,
}

const fn made(name: &'static str, make: &'static [&'static str], mount: &'static str) -> Made {
    Made { name, make, mount, times_of_directories: true, varied: false }
}

const EXT: [Made; 11] = [
    made("ordered", &["mke2fs", "-qFtext4"], "commit=1"),
    made("ordered, late", &["mke2fs", "-qFtext4"], "commit=300"),
    made("data in the journal", &["mke2fs", "-qFtext4", "-Jsize=8"], "data=journal"),
    made("writeback", &["mke2fs", "-qFtext4"], "data=writeback,commit=1"),
    made("asynchronous", &["mke2fs", "-qFtext4", "-Jsize=4"], "data=writeback,journal_async_commit"),
    made("old", &["mke2fs", "-qFtext4", "-b1024", "-O^metadata_csum,^64bit"], "commit=1"),
    made("journal checksums", &["mke2fs", "-qFtext4", "-O^metadata_csum"], "journal_checksum,commit=1"),
    made("inline data", &["mke2fs", "-qFtext4", "-Oinline_data", "-I256"], "commit=1"),
    made("ext3", &["mke2fs", "-qFtext3"], "commit=1"),
    Made {
        times_of_directories: false,
        ..made("fast commits", &["mke2fs", "-qFtext4", "-Ofast_commit", "-Jsize=16"], "commit=5")
    },
    made("no journal", &["mke2fs", "-qFtext4", "-O^has_journal"], "noatime"),
];

const fn xfs(name: &'static str, make: &'static [&'static str], mount: &'static str) -> Made {
    Made { varied: true, ..made(name, make, mount) }
}

const XFS: [Made; 5] = [
    xfs("as it is made", &["mkfs.xfs", "-q"], "noatime"),
    xfs("small log", &["mkfs.xfs", "-q", "-bsize=1024", "-nsize=4096", "-lsize=64m"], "logbsize=32k"),
    xfs("without copies", &["mkfs.xfs", "-q", "-mreflink=0,rmapbt=0"], "logbsize=256k"),
    xfs("aligned", &["mkfs.xfs", "-q", "-dagcount=2,su=64k,sw=3", "-lsize=64m", "-isize=1024"], "noatime"),
    // Goes round the log.
    xfs("smallest log", &["mkfs.xfs", "-q", "--unsupported", "-lsize=13m", "-mrmapbt=1"], "logbsize=64k"),
];

const fn btrfs(name: &'static str, make: &'static [&'static str], mount: &'static str) -> Made {
    Made { times_of_directories: false, varied: true, ..made(name, make, mount) }
}

const BTRFS: [Made; 5] = [
    btrfs("as it is made", &["mkfs.btrfs", "-q"], "noatime,commit=300"),
    btrfs("compressed", &["mkfs.btrfs", "-q", "-Mn4096"], "compress-force=zstd,commit=2"),
    btrfs("with holes", &["mkfs.btrfs", "-q", "-O^no-holes"], "compress=lzo,commit=300"),
    btrfs("sha256", &["mkfs.btrfs", "-q", "--csum=sha256"], "noatime,commit=5"),
    btrfs("without checksums of data", &["mkfs.btrfs", "-q"], "nodatacow,commit=300"),
];

/// Text of what is at each path: kind, rights, owner, names, size, time, and content.
type Manifest = BTreeMap<Vec<u8>, String>;

/// What comes out; or why not all does.
fn what_comes_out(fs: &dyn FileSystem, times_of_directories: bool) -> Result<Manifest, wattle_fs::Error> {
    let mut manifest = Manifest::new();
    let mut open = vec![(Vec::new(), fs.root())];
    while let Some((path, directory)) = open.pop() {
        let mut entries: Vec<(Vec<u8>, FsNode)> = Vec::new();
        fs.list(directory, &mut |entry| {
            entries.push(([&path[..], b"/", &entry.name].concat(), entry.node));
            Ok(())
        })?;
        for (path, node) in entries.into_iter().filter(|(path, _)| path != b"/lost+found") {
            let metadata = fs.metadata(node)?;
            let content = match metadata.kind {
                FileKind::File => {
                    let mut data = vec![0; metadata.size_bytes as usize];
                    fs.read(node, 0..u64::MAX, &mut |offset, bytes| {
                        data[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
                        Ok(())
                    })?;
                    format!("{} {}", metadata.links, digest(&data))
                }
                FileKind::Symlink => format!("-> {}", String::from_utf8_lossy(&fs.link(node)?)),
                _ => {
                    open.push((path.clone(), node));
                    String::new()
                }
            };
            let time = match metadata.kind {
                FileKind::Directory if !times_of_directories => String::new(),
                _ => format!("{}.{:09}", metadata.modified.seconds, metadata.modified.nanoseconds),
            };
            let mut attributes = fs.attributes(node)?;
            attributes.sort();
            let content = content + &String::from_utf8_lossy(&attributes.join(&b' '));
            let size = if metadata.kind == FileKind::Directory { 0 } else { metadata.size_bytes };
            let (mode, uid, gid) = (metadata.mode, metadata.uid, metadata.gid);
            let kind = metadata.kind;
            assert!(
                manifest
                    .insert(path, format!("{kind:?} {mode:o} {uid}:{gid} {size} {time} {content}"))
                    .is_none()
            );
        }
    }
    Ok(manifest)
}

fn digest(data: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What Linux shows; what it cannot read is text that nothing else is.
fn what_linux_shows(root: &Path, times_of_directories: bool) -> Manifest {
    let mut manifest = Manifest::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(&directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let Ok(entries) = entries else {
            manifest.insert(directory.as_os_str().as_bytes().to_vec(), "unreadable".to_owned());
            continue;
        };
        for path in entries.into_iter().map(|entry| entry.path()) {
            let name = path.as_os_str().as_bytes()[root.as_os_str().len()..].to_vec();
            if name == b"/lost+found" {
                continue;
            }
            let shown = match shown_by_linux(&path, times_of_directories) {
                Ok(shown) => shown,
                Err(error) => format!("unreadable: {error}"),
            };
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            }
            manifest.insert(name, shown);
        }
    }
    manifest
}

fn shown_by_linux(path: &Path, times_of_directories: bool) -> std::io::Result<String> {
    let found = fs::symlink_metadata(path)?;
    let (kind, content) = match found.file_type() {
        kind if kind.is_file() => (FileKind::File, format!("{} {}", found.nlink(), digest(&fs::read(path)?))),
        kind if kind.is_symlink() => (FileKind::Symlink, format!("-> {}", fs::read_link(path)?.display())),
        _ => (FileKind::Directory, String::new()),
    };
    let mut list = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut list)?;
    let mut attributes: Vec<&[u8]> =
        list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    attributes.sort_unstable();
    let content = content + &String::from_utf8_lossy(&attributes.join(&b' '));
    let time = match kind {
        FileKind::Directory if !times_of_directories => String::new(),
        _ => format!("{}.{:09}", found.mtime(), found.mtime_nsec()),
    };
    let size = if kind == FileKind::Directory { 0 } else { found.len() };
    let (mode, uid, gid) = (found.mode() & 0o7777, found.uid(), found.gid());
    Ok(format!("{kind:?} {mode:o} {uid}:{gid} {size} {time} {content}"))
}

fn clone(from: &Path, to: &Path) {
    run(program("cp").arg("--reflink=always").arg(from).arg(to)).unwrap();
}

/// Images of one file system, cut at any time while it is worked on, one while it is frozen, and
/// one after it was unmounted.
struct Cut {
    name: String,
    image: PathBuf,
    /// Nothing was under way.
    is_quiet: bool,
}

fn cut(dir: &Path, made: &Made, size_bytes: u64, seed: u64, cuts: usize) -> Option<Vec<Cut>> {
    let image = dir.join("image");
    fs::File::create(&image).unwrap().set_len(size_bytes).unwrap();
    run(program(made.make[0]).args(&made.make[1..]).arg(&image))?;
    let mut taken = Vec::new();
    let mut take = |what: &str, is_quiet| {
        let to = dir.join(format!("cut-{}", taken.len()));
        clone(&image, &to);
        taken.push(Cut { name: format!("{}, seed {seed}, {what}", made.name), image: to, is_quiet });
    };
    let over = AtomicBool::new(false);
    mounted(&image, &format!("loop,{}", made.mount), |at| {
        thread::scope(|threads| {
            let worker = threads.spawn(|| {
                let mut work = if made.varied { Work::varied(at, seed) } else { Work::new(at, seed) };
                work.subvolumes = made.make[0] == "mkfs.btrfs";
                while !over.load(Ordering::Relaxed) {
                    (0..=work.dice.below(8)).for_each(|_| work.step());
                    work.sync();
                }
            });
            let mut dice = Dice::new(seed + 1000);
            for number in 0..cuts {
                thread::sleep(Duration::from_millis(50 + dice.below(400)));
                take(&format!("cut {number}"), false);
            }
            over.store(true, Ordering::Relaxed);
            worker.join().unwrap();
        });
        run(program("fsfreeze").arg("-f").arg(at)).unwrap();
        take("frozen", true);
        run(program("fsfreeze").arg("-u").arg(at)).unwrap();
    })?;
    take("unmounted", true);
    if made.make[0] == "mkfs.xfs" && made.varied {
        // It grows, and its superblock does not reach its place.
        fs::File::options().write(true).open(&image).unwrap().set_len(size_bytes + GROWTH_BYTES).unwrap();
        mounted(&image, &format!("loop,{}", made.mount), |at| {
            run(program("xfs_growfs").arg(at)).unwrap();
            fs::create_dir(at.join("grown")).unwrap();
            let mut work = Work::varied(&at.join("grown"), seed);
            (0..40).for_each(|ix| fs::create_dir(at.join(format!("grown/new-{ix}"))).unwrap());
            (0..100).for_each(|_| work.step());
            run(program("xfs_io").args(["-x", "-c", "shutdown -f"]).arg(at)).unwrap();
        })?;
        take("grown", false);
        for (how, flush) in [("shut down", "shutdown"), ("shut down with its log", "shutdown -f")] {
            mounted(&image, &format!("loop,{}", made.mount), |at| {
                fs::create_dir(at.join(how)).unwrap();
                let mut work = Work::varied(&at.join(how), seed);
                (0..100).for_each(|_| work.step());
                run(program("xfs_io").args(["-x", "-c", flush]).arg(at)).unwrap();
            })?;
            take(how, false);
        }
        let mut dice = Dice::new(seed + 2000);
        for torn in 0..TORN {
            let (before, after) =
                (&taken[taken.len() - 2 - torn].image, &taken[taken.len() - 1 - torn].image);
            let to = dir.join(format!("torn-{torn}"));
            clone(after, &to);
            match torn {
                0 => garble(before, &to, &mut dice),
                _ => tear(before, &to, &mut dice),
            }
            let name = format!("{}, seed {seed}, torn {torn}", made.name);
            taken.push(Cut { name, image: to, is_quiet: false });
        }
    }
    Some(taken)
}

/// By how much a file system grows.
const GROWTH_BYTES: u64 = 96 << 20;

/// Images whose log is torn, of each file system.
const TORN: usize = 3;

/// The log of an image, and how it was before: where it is, and the sectors that were written
/// since, each with its cycle, in the order in which they were written.
struct WrittenLog {
    image: fs::File,
    start: u64,
    old: Vec<u8>,
    new: Vec<u8>,
    written: Vec<(u32, usize)>,
}

impl WrittenLog {
    fn of(before: &Path, image: &Path) -> Self {
        let mut superblock = [0; 512];
        let before = fs::File::open(before).unwrap();
        let image = fs::File::options().read(true).write(true).open(image).unwrap();
        image.read_exact_at(&mut superblock, 0).unwrap();
        let number = |at: usize, len: usize| {
            superblock[at..at + len].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (start, group_log) = (number(48, 8), superblock[124]);
        let block = (start >> group_log) * number(84, 4) + (start & ((1 << group_log) - 1));
        let (start, len) = (block * number(4, 4), number(96, 4) * number(4, 4));
        let (mut old, mut new) = (vec![0; len as usize], vec![0; len as usize]);
        before.read_exact_at(&mut old, start).unwrap();
        image.read_exact_at(&mut new, start).unwrap();
        // A header has the cycle behind its magic number.
        let cycle = |sector: &[u8]| {
            let at = if sector.starts_with(&[0xfe, 0xed, 0xba, 0xbe]) { 4 } else { 0 };
            u32::from_be_bytes(sector[at..at + 4].try_into().unwrap())
        };
        let sectors = old.chunks(512).zip(new.chunks(512)).enumerate();
        let mut written: Vec<_> = sectors
            .filter(|(_, (old, new))| old != new && cycle(new) > cycle(old))
            .map(|(ix, (_, new))| (cycle(new), ix))
            .collect();
        written.sort_unstable();
        Self { image, start, old, new, written }
    }

    /// The last sectors that may have been under way at once: those of eight records.
    fn under_way(&self) -> usize {
        let is_header = |ix: usize| self.new[ix * 512..].starts_with(&[0xfe, 0xed, 0xba, 0xbe]);
        let headers = self.written.iter().rev().enumerate().filter(|(_, (_, ix))| is_header(*ix));
        headers.map(|(back, _)| back + 1).nth(7).unwrap_or(self.written.len())
    }

    fn write(&self, ix: usize, sector: &[u8]) {
        self.image.write_all_at(sector, self.start + ix as u64 * 512).unwrap();
    }
}

/// Takes back some of the last sectors that were written to the log of an image: records that were
/// under way when the power went.
fn tear(before: &Path, image: &Path, dice: &mut Dice) {
    let log = WrittenLog::of(before, image);
    let newest = log.written.last().map_or(0, |(cycle, _)| *cycle);
    let few = dice.below(2) == 0;
    let last = 1 + dice.below(if few { 8 } else { 2000 }) as usize;
    let last = last.min(log.under_way());
    for &(cycle, ix) in log.written.iter().rev().take(last) {
        if cycle == newest && dice.below(3) > 0 {
            log.write(ix, &log.old[ix * 512..][..512]);
        }
    }
}

/// Changes a byte in one of the last sectors that were written to the log: only a checksum tells.
fn garble(before: &Path, image: &Path, dice: &mut Dice) {
    let log = WrittenLog::of(before, image);
    let back = dice.below(log.written.len().min(20) as u64) as usize;
    let (_, ix) = log.written[log.written.len() - 1 - back];
    let mut sector = log.new[ix * 512..][..512].to_vec();
    sector[100] ^= 0xff;
    log.write(ix, &sector);
}

/// What was found of all images of a kind.
#[derive(Debug, Default)]
struct Found {
    images: u32,
    /// Came out without a word.
    silent: u32,
    /// Of these, how many had a log or a journal that was applied.
    applied: u32,
    /// Came out with a word, or not as a whole.
    told: u32,
    /// Of these, how many are not what Linux shows.
    told_and_differ: u32,
    refused_by_linux: u32,
}

/// Judges one; what is wrong with it, if anything.
fn judge(cut: &Cut, made: &Made, replayed: &Path, found: &mut Found) -> Option<String> {
    found.images += 1;
    clone(&cut.image, replayed);
    let fs = open(&cut.image);
    let notes = fs.not_as_mounted();
    let here = what_comes_out(&*fs, made.times_of_directories);
    let is_silent = notes.is_empty() && here.is_ok();
    if cut.is_quiet && !is_silent && made.name != "no journal" {
        return Some(format!("{}: nothing was under way: {notes:?}, {:?}", cut.name, here.err()));
    }
    let mut there = None;
    let mount = mounted(replayed, "loop", |at| there = Some(what_linux_shows(at, made.times_of_directories)));
    found.refused_by_linux += u32::from(mount.is_none());
    let differs = match (&here, &there) {
        (Ok(here), Some(there)) => difference(here, there),
        (Err(error), _) => Some(error.to_string()),
        (_, None) => None,
    };
    if is_silent {
        found.silent += 1;
        let is_applied = |note: &Note| {
            matches!(
                note,
                Note::LogApplied { .. } | Note::LogTreesApplied { .. } | Note::JournalApplied { .. }
            )
        };
        found.applied += u32::from(fs.about().notes.iter().any(is_applied));
        return differs.map(|differs| format!("{}: {differs}", cut.name));
    }
    eprintln!("{}: {notes:?}, {:?}", cut.name, here.as_ref().err());
    found.told += 1;
    found.told_and_differ += u32::from(differs.is_some());
    None
}

fn difference(here: &Manifest, there: &Manifest) -> Option<String> {
    let path = here.keys().chain(there.keys()).find(|path| here.get(*path) != there.get(*path))?;
    let (name, none) = (String::from_utf8_lossy(path), &"nothing".to_owned());
    Some(format!("{name}: {}, by Linux {}", here.get(path).unwrap_or(none), there.get(path).unwrap_or(none)))
}

/// Cuts and judges; nothing where this machine cannot.
fn sweep(kinds: &[Made], size_bytes: u64, cuts: usize) -> Option<Found> {
    let scratch = tempfile::TempDir::new_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let below = image(&scratch, "below", 8 << 30);
    run(program("mkfs.xfs").args(["-q", "-mreflink=1"]).arg(&below))?;
    let (mut found, mut wrong) = (Found::default(), Vec::new());
    let mut made_all = true;
    mounted(&below, "loop", |at| {
        for seed in 1..=times() {
            for made in kinds {
                let Some(taken) = cut(at, made, size_bytes, seed, cuts) else {
                    made_all = false;
                    return;
                };
                for cut in &taken {
                    wrong.extend(judge(cut, made, &at.join("replayed"), &mut found));
                }
            }
        }
    })?;
    eprintln!("{found:?}");
    assert!(wrong.is_empty(), "{} of {found:?}:\n{}", wrong.len(), wrong.join("\n"));
    made_all.then_some(found)
}

/// Sets the feature of version 5 that files may exchange ranges, which old mkfs.xfs does not know.
fn let_files_exchange_ranges(image: &Path) {
    let file = fs::File::options().read(true).write(true).open(image).unwrap();
    let mut superblock = [0; 512];
    file.read_exact_at(&mut superblock, 0).unwrap();
    superblock[219] |= 0x40;
    superblock[224..228].fill(0);
    let sum = crc32c::crc32c(&superblock);
    superblock[224..228].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&superblock, 0).unwrap();
}

/// A file in many pieces, with holes between them.
fn in_pieces(path: &Path, seed: u64, step: u64, pieces: u64) {
    let file = fs::File::create(path).unwrap();
    for piece in 0..pieces {
        file.write_all_at(&pattern(seed + piece, 4096), piece * step).unwrap();
        if piece % 16 == 0 {
            file.sync_data().unwrap();
        }
    }
    file.set_len(pieces * step).unwrap();
    file.sync_all().unwrap();
}

/// Clones a file over another and exchanges two without a pause, while something else has the log
/// written: it ends between the steps of either. Whether this machine can exchange them.
fn move_extents(at: &Path, over: &AtomicBool) -> bool {
    let exchange = r#"
        open(my $one, "+<", $ARGV[0]) or die; open(my $other, "+<", $ARGV[1]) or die;
        my $turn = 0;
        while (!-e $ARGV[2]) {
            # To the ends of both, and every other time only what is written.
            my $flags = 1 | ($turn++ % 2 ? 8 : 0);
            ioctl($one, 0x40285881, pack("lLQQQQ", fileno($other), 0, 0, 0, 0, $flags)) or exit 3;
        }"#;
    let mut perl = program("perl");
    perl.args(["-e", exchange]).args([at.join("one"), at.join("other"), at.join("over")]);
    thread::scope(|threads| {
        let cloning = threads.spawn(|| {
            let mut turn = 0;
            while !over.load(Ordering::Relaxed) {
                turn += 1;
                let from =
                    fs::File::open(at.join(if turn % 2 == 0 { "cloned" } else { "other-cloned" })).unwrap();
                let to = fs::File::options().write(true).open(at.join("clone")).unwrap();
                rustix::fs::ioctl_ficlone(&to, &from).unwrap();
                to.write_all_at(&pattern(turn, 100_000), 8192 * (turn % 40)).unwrap();
            }
        });
        let forcing = threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let file = fs::File::create(at.join("forces")).unwrap();
                file.write_all_at(b"the log", 0).unwrap();
                file.sync_all().unwrap();
            }
        });
        let exchanges = perl.status().is_ok_and(|status| status.success());
        cloning.join().unwrap();
        forcing.join().unwrap();
        exchanges
    })
}

/// A chain of transactions moves extents between files; what was begun is finished by a mount.
#[test]
fn extents_that_are_being_moved_are_where_linux_has_them() {
    let scratch = tempfile::TempDir::new_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let below = image(&scratch, "below", 8 << 30);
    if run(program("mkfs.xfs").args(["-q", "-mreflink=1"]).arg(&below)).is_none() {
        return;
    }
    let made = xfs("moving", &[], "");
    let (mut found, mut wrong, mut exchanges) = (Found::default(), Vec::new(), false);
    mounted(&below, "loop", |dir| {
        let image = dir.join("image");
        fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let make = || run(program("mkfs.xfs").args(["-q", "-f", "-mreflink=1"]).arg(&image)).unwrap();
        make();
        let_files_exchange_ranges(&image);
        if mounted(&image, "loop", |_| ()).is_none() {
            // A kernel that cannot do that: extents only move to clones.
            make();
        }
        let mut taken = Vec::new();
        mounted(&image, "loop", |at| {
            for (name, seed, step) in [
                ("cloned", 1, 8192),
                ("other-cloned", 1000, 12_288),
                ("one", 2000, 8192),
                ("other", 3000, 20_480),
            ] {
                in_pieces(&at.join(name), seed, step, 300);
            }
            in_pieces(&at.join("clone"), 4000, 16_384, 200);
            let over = AtomicBool::new(false);
            thread::scope(|threads| {
                let moving = threads.spawn(|| move_extents(at, &over));
                let mut dice = Dice::new(7);
                for number in 0..12 * times() {
                    thread::sleep(Duration::from_millis(20 + dice.below(60)));
                    let to = dir.join(format!("cut-{number}"));
                    clone(&image, &to);
                    taken.push(Cut { name: format!("moving, cut {number}"), image: to, is_quiet: false });
                }
                over.store(true, Ordering::Relaxed);
                fs::write(at.join("over"), "").unwrap();
                exchanges = moving.join().unwrap();
            });
        })
        .unwrap();
        for cut in &taken {
            wrong.extend(judge(cut, &made, &dir.join("replayed"), &mut found));
        }
    });
    eprintln!("{found:?}, with exchanges: {exchanges}");
    assert!(wrong.is_empty(), "{} of {found:?}:\n{}", wrong.len(), wrong.join("\n"));
    // Where two files of different sizes were being exchanged, Linux may lose data; that is told.
    assert!(found.applied == found.silent && found.told_and_differ * 4 <= found.images, "{found:?}");
}

#[test]
fn what_comes_out_of_a_cut_ext_is_what_linux_shows() {
    let Some(found) = sweep(&EXT, 64 << 20, 2) else { return };
    // A journal is applied; where there is none, what is torn may be told.
    assert!(found.silent * 10 >= found.images * 9, "{found:?}");
    assert!(found.refused_by_linux * 10 <= found.images, "{found:?}");
}

#[test]
fn what_comes_out_of_a_cut_xfs_without_a_word_is_what_linux_shows() {
    let Some(found) = sweep(&XFS, 512 << 20, 2) else { return };
    // A log is applied.
    assert_eq!(found.silent, found.images, "{found:?}");
    assert!(found.applied * 2 > found.images, "{found:?}");
    // Linux does not mount all whose forks were swapped and then changed further.
    assert!(found.refused_by_linux * 10 <= found.images, "{found:?}");
}

#[test]
fn what_comes_out_of_a_cut_btrfs_is_what_linux_shows() {
    let Some(found) = sweep(&BTRFS, 512 << 20, 4) else { return };
    assert_eq!(found.silent, found.images, "{found:?}");
    assert!(found.applied * 3 > found.images && found.refused_by_linux == 0, "{found:?}");
}
