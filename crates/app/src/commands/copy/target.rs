//! Where a copy goes: the file and its map, new or to be gone on with. Everything that must not be
//! written over is refused here.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use wattle_control::members::Member;
use wattle_control::{Code, Problem};
use wattle_format::rescue_map::{Phase, RescueMap, Status};
use wattle_rt::{BufMut, Core, Device, OpenError, OwnFile};

use crate::cli::{CopyArgs, choice};
use crate::commands::loss::is_same_place;

/// The largest map that is read: millions of areas.
const MAP_BYTES_MAX: u64 = 256 << 20;

/// Places of a copy that are compared with the source before it is gone on with, and how much of
/// each.
const SAMPLES: u64 = 16;
const SAMPLE_BYTES: u64 = 64 << 10;

/// Room that is kept for the map: tens of thousands of areas.
const MAP_ROOM_BYTES: u64 = 1 << 20;

/// A copy to be made or gone on with. The file is ours: locked against a second writer since before
/// its map was read, and until its map is written.
#[derive(Debug)]
pub struct CopyTarget {
    /// The file, as large as the source.
    pub output: Device,
    /// Where it is to be found in the end.
    pub place: OutputPlace,
    /// What was copied already.
    pub map: RescueMap,
    /// Where the map is kept.
    pub map_file: MapFile,
    /// Room for the map, given back before the map is written for the last time: the copy may take
    /// all that the file system has.
    pub map_room: File,
    /// Whether the file may hold something.
    pub resumed: bool,
}

/// Where the map is kept.
#[derive(Debug, Clone)]
pub struct MapFile(PathBuf);

impl MapFile {
    /// Where the map of a copy is, if nothing else is said: beside it.
    pub fn of(args: &CopyArgs) -> Self {
        let beside = || {
            let mut name = args.to.clone().into_os_string();
            name.push(".map");
            PathBuf::from(name)
        };
        let own = args.maps.iter().rfind(|map| choice(&args.members, map).is_none());
        Self(own.map_or_else(beside, PathBuf::from))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Written first, then put in the map's place: there is a whole one at any time.
    pub fn new_path(&self) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(".new");
        PathBuf::from(name)
    }

    /// Replaces the map, durably.
    pub fn write(&self, text: &str) -> Result<(), Problem> {
        let write = || {
            let mut file = self.draft()?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(self.new_path(), &self.0)?;
            sync_directory_of(&self.0)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(self.new_path());
            failed(&self.0, &error, "without its map a copy cannot be gone on with")
        })
    }

    /// A new draft. One that a crash left goes. A link that others put there is not followed.
    fn draft(&self) -> io::Result<File> {
        remove(&self.new_path())?;
        File::create_new(self.new_path())
    }

    /// A file without a name that takes the room of a map.
    fn keep_room(&self) -> Result<File, Problem> {
        let len_bytes = fs::metadata(&self.0).map_or(0, |map| 4 * map.len()).max(MAP_ROOM_BYTES);
        let keep = || {
            let mut file = self.draft()?;
            fs::remove_file(self.new_path())?;
            // Where room cannot be asked for it is taken by bytes.
            match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len_bytes) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.write_all(&vec![0xff; len_bytes as usize])?,
                kept => kept?,
            }
            file.sync_all()?;
            Ok(file)
        };
        keep().map_err(|error| {
            failed(
                &self.0,
                &error,
                "room for the map is kept before anything is read: what is copied has to be noted",
            )
        })
    }

    /// The map, if there is one.
    fn read(&self, size_bytes: u64) -> Result<Option<RescueMap>, Problem> {
        let mut text = String::new();
        let file = match File::open(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened,
        };
        let read = file.and_then(|file| file.take(MAP_BYTES_MAX).read_to_string(&mut text));
        read.map_err(|error| failed(&self.0, &error, "it is the map of this copy, or is in its place"))?;
        let map = RescueMap::parse(&text, size_bytes);
        map.map(Some).map_err(|error| {
            Problem::new(
                Code::NotThisCopy,
                format!("{}: {error}", self.0.display()),
                "it is in the place of this copy's map, and is none, or that of another source",
                "name another place with --map, or another copy with --to; nothing was written",
            )
        })
    }
}

/// Refuses maps of which it cannot be told what they are of.
///
/// # Errors
/// The copy has two, or one is named for what is no member.
pub fn check_maps(args: &CopyArgs) -> Result<(), Problem> {
    let of_copy: Vec<_> = args.maps.iter().filter(|map| choice(&args.members, map).is_none()).collect();
    let is_path = |map: &[u8]| map.starts_with(b"/") || map.starts_with(b"./") || map.starts_with(b"../");
    let for_none = of_copy.iter().find(|map| map.as_bytes().contains(&b'=') && !is_path(map.as_bytes()));
    let (what, why) = match (for_none, &of_copy[..]) {
        (Some(map), _) => (map, "what stands before the = is none of the members given"),
        (None, [_, second, ..]) => (second, "the copy has one map, and another one is named for it"),
        _ => return Ok(()),
    };
    Err(Problem::new(
        Code::Usage,
        format!("--map {}", what.display()),
        why,
        "write MEMBER=FILE for the map of a member as it is given; the map of the copy is --map FILE (./FILE if there is a = in it)",
    ))
}

/// Refuses what must never be written to: members, directories, devices.
///
/// # Errors
/// The copy or its map would be written there.
pub fn check(args: &CopyArgs, members: &[Member]) -> Result<(), Problem> {
    let map = MapFile::of(args);
    for path in [&args.to, &map.0, &map.new_path()] {
        if let Some(member) = members.iter().find(|member| member.is_at(path)) {
            return Err(Problem::new(
                Code::OutputExists,
                format!("{} is the member {}", path.display(), member.name),
                "members are only read",
                "name a file that is none of them",
            ));
        }
        let is_map = |member: &&Member| {
            let maps = member.copy_map().zip(path.canonicalize().ok());
            maps.is_some_and(|(map, path)| map.path() == path)
        };
        if let Some(member) = members.iter().find(is_map) {
            return Err(Problem::new(
                Code::OutputExists,
                format!("{} is the map of the member {}", path.display(), member.name),
                "it says what of the member was read, and is only read",
                "name another file; the map of a member is --map MEMBER=FILE",
            ));
        }
    }
    if is_same_place(&args.to, &map.0) {
        return Err(Problem::new(
            Code::Usage,
            format!("--to and --map are both {}", args.to.display()),
            "the map is a file of its own",
            "leave --map out: then it is beside the copy",
        ));
    }
    if is_same_place(&args.to, &map.new_path()) {
        return Err(Problem::new(
            Code::Usage,
            format!("--to is {}, where --map is written before it is put in its place", args.to.display()),
            "the copy would be replaced by the map, and gone",
            "leave --map out: then it is beside the copy",
        ));
    }
    for path in [&args.to, &map.0] {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(Problem::new(
                    Code::IsDirectory,
                    format!("{}: it is a directory", path.display()),
                    "a copy is one file, and so is its map",
                    format!("name the file: {}", path.join("copy.img").display()),
                ));
            }
            Ok(metadata) if !metadata.is_file() => {
                return Err(Problem::new(
                    Code::OutputExists,
                    format!("{}: it is not a file", path.display()),
                    "a device or pipe has no holes, and may be a drive in use",
                    "copy to a file; `wattle cat` writes a volume to anything",
                ));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(path, &error, "the copy goes there")),
        }
    }
    Ok(())
}

impl CopyTarget {
    /// Opens or makes the file and its map. What is there is compared with the source before
    /// anything changes.
    ///
    /// # Errors
    /// There is something that is no copy of this source to be gone on with, or it cannot be made.
    pub async fn open(args: &CopyArgs, core: &Core, source: &Device) -> Result<Self, Problem> {
        // Before the map is read: another run may be writing both, and its last map says more.
        let mut file = own(&args.to)?;
        let opened = Self::of_file(args, core, source, &mut file).await;
        if opened.is_err() && file.is_new() {
            let _ = fs::remove_file(&args.to);
        }
        opened
    }

    async fn of_file(
        args: &CopyArgs,
        core: &Core,
        source: &Device,
        file: &mut OwnFile,
    ) -> Result<Self, Problem> {
        let size_bytes = source.size_bytes();
        let map_file = MapFile::of(args);
        let mut map = map_file.read(size_bytes)?;
        if args.overwrite {
            // The map first: it must not outlive what it is about.
            for path in [map_file.path(), &args.to].into_iter().take(if file.is_new() { 1 } else { 2 }) {
                let removed = remove(path).and_then(|()| sync_directory_of(path));
                removed.map_err(|error| failed(path, &error, "it is to be overwritten"))?;
            }
            if !file.is_new() {
                *file = own(&args.to)?;
            }
            map = None;
        }
        let as_copy =
            |error: io::Error| failed(&args.to, &error, "the copy goes there, and gets the source's size");
        let len_bytes = file.file().metadata().map_err(as_copy)?.len();
        // An empty file has nothing to lose: it may be a copy that ended before it had a map.
        let resumed = len_bytes > 0;
        let map = match map {
            Some(map) if file.is_new() && map.bytes(Status::NonTried) < size_bytes => {
                return Err(gone(&args.to, &map_file));
            }
            Some(map) => map,
            None if resumed => return Err(exists_already(&args.to, &map_file)),
            None => {
                // Before the copy has a size: a file without a map would not be taken for a copy.
                let map = RescueMap::new(size_bytes);
                map_file.write(&map.render(Phase::Copying, 0))?;
                map
            }
        };
        check_len(&args.to, len_bytes, &map)?;
        let device = || file.device().map_err(|error| open_failed(&args.to, error));
        if resumed {
            compare(&map, core, source, &device()?).await?;
        }
        let map_room = map_file.keep_room()?;
        let sized = file.file().set_len(size_bytes).and_then(|()| file.file().sync_all());
        sized.and_then(|()| sync_directory_of(&args.to)).map_err(as_copy)?;
        let place = OutputPlace::of(&args.to, file.file()).map_err(as_copy)?;
        Ok(Self { output: device()?, place, map, map_file, map_room, resumed })
    }
}

/// Where the copy is found when it is done.
#[derive(Debug, Clone)]
pub struct OutputPlace {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl OutputPlace {
    fn of(path: &Path, file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self { path: path.to_owned(), device_and_inode: (found.dev(), found.ino()) })
    }

    /// What was copied is lost where its file was removed meanwhile, or has another name.
    ///
    /// # Errors
    /// The file that was written is not there.
    pub fn check(&self) -> Result<(), Problem> {
        let now = fs::metadata(&self.path).map(|found| (found.dev(), found.ino()));
        if now.is_ok_and(|now| now == self.device_and_inode) {
            return Ok(());
        }
        Err(Problem::new(
            Code::OutputFailed,
            format!("{} is not there any more", self.path.display()),
            "it was removed or renamed while it was written: what was copied is in a file without this name, or in none",
            "if it has another name now, give it this one again; else copy again with --overwrite",
        ))
    }
}

/// Compares samples of what was copied with the source: drives of one array are all of one size,
/// and a copy of two of them is worth nothing. Places that cannot be read any more say nothing.
async fn compare(map: &RescueMap, core: &Core, source: &Device, copy: &Device) -> Result<(), Problem> {
    for sample in samples(map, u64::from(source.logical_block_bytes())) {
        let len = (sample.end - sample.start) as usize;
        let (theirs, there) = core.read(source, sample.start, BufMut::alloc(len)).await;
        let (ours, here) = core.read(copy, sample.start, BufMut::alloc(len)).await;
        if theirs.is_ok() && ours.is_ok() && there[..] != here[..] {
            return Err(Problem::new(
                Code::NotThisCopy,
                format!("{} is not a copy of {}", copy.name(), source.name()),
                format!(
                    "it says that bytes {} to {} are copied, and they differ: it is of another source, or the source \
                     changed since",
                    sample.start, sample.end
                ),
                "name the right source, or another copy with --to; --overwrite starts this one again",
            ));
        }
    }
    Ok(())
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a file that cannot be what the map is about.
fn check_len(path: &Path, len_bytes: u64, map: &RescueMap) -> Result<(), Problem> {
    let copied = map.areas().filter(|(_, status)| *status == Status::Finished).map(|(area, _)| area.end);
    let copied_to = copied.max().unwrap_or(0);
    if (copied_to..=map.size_bytes()).contains(&len_bytes) {
        return Ok(());
    }
    Err(Problem::new(
        Code::NotThisCopy,
        format!("{} has {len_bytes} bytes, the source {}", path.display(), map.size_bytes()),
        format!("it cannot be the copy that its map is about, which was made up to byte {copied_to}"),
        "name the right source or another copy; --overwrite starts this one again",
    ))
}

/// Opens or makes the copy, which is ours then. A copy that was just killed may be continued at
/// once.
fn own(path: &Path) -> Result<OwnFile, Problem> {
    OwnFile::open(path, Duration::from_secs(2)).map_err(|error| open_failed(path, error))
}

/// Parts of what was copied, from its start to its end, in whole sectors.
pub fn samples(map: &RescueMap, sector_bytes: u64) -> Vec<Range<u64>> {
    let copied: Vec<_> =
        map.areas().filter(|(_, status)| *status == Status::Finished).map(|(area, _)| area).collect();
    let total = map.bytes(Status::Finished);
    let evenly = (0..SAMPLES).map(|ix| total / SAMPLES * ix);
    let mut samples = Vec::new();
    for mut skip in evenly.chain([total.saturating_sub(SAMPLE_BYTES)]) {
        for area in &copied {
            let len = area.end - area.start;
            if skip < len {
                let start = (area.start + skip).next_multiple_of(sector_bytes);
                let end = (start + SAMPLE_BYTES).min(area.end) / sector_bytes * sector_bytes;
                samples.push(start..end.max(start));
                break;
            }
            skip -= len;
        }
    }
    samples
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn exists_already(path: &Path, map_file: &MapFile) -> Problem {
    Problem::new(
        Code::OutputExists,
        format!("{} exists", path.display()),
        format!("it is no copy to go on with: there is no map {}", map_file.path().display()),
        "name another file, the map with --map if it is elsewhere, or --overwrite to replace it",
    )
}

fn gone(path: &Path, map_file: &MapFile) -> Problem {
    Problem::new(
        Code::NotThisCopy,
        format!("{} is not there", path.display()),
        format!("its map {} says that parts of it are copied", map_file.path().display()),
        "name the copy that the map is about; --overwrite starts again",
    )
}

fn open_failed(path: &Path, error: OpenError) -> Problem {
    let (code, why, next) = match error {
        OpenError::Locked => (
            Code::Locked,
            "the copy goes there, and no other process may be writing it",
            "end the process that uses it, or name another file",
        ),
        OpenError::PermissionDenied => (
            Code::PermissionDenied,
            "the copy goes there, and this user may not write it",
            "let it be written to, or name another file",
        ),
        OpenError::NotFound => (
            Code::OutputFailed,
            "the copy goes there, and the directory is not there",
            "make that directory, or name another file",
        ),
        _ => (Code::OutputFailed, "the copy goes there", "name another file"),
    };
    Problem::new(code, format!("{}: {error}", path.display()), why, next)
}

fn failed(path: &Path, error: &io::Error, why: &str) -> Problem {
    Problem::new(
        Code::OutputFailed,
        format!("{}: {error}", path.display()),
        why,
        "check the directory, its permissions and its space",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_was_removed_or_renamed_meanwhile_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copy.img");
        let place = OutputPlace::of(&path, &File::create_new(&path).unwrap()).unwrap();
        assert_eq!(place.check(), Ok(()));
        let other = dir.path().join("other.img");
        fs::rename(&path, &other).unwrap();
        assert_eq!(place.check().unwrap_err().code, Code::OutputFailed);
        fs::write(&path, b"another file").unwrap();
        assert_eq!(place.check().unwrap_err().code, Code::OutputFailed);
        fs::rename(&other, &path).unwrap();
        assert_eq!(place.check(), Ok(()));
    }

    #[test]
    fn samples_lie_in_what_was_copied() {
        let mut map = RescueMap::new(100 << 20);
        assert_eq!(samples(&map, 512), []);
        map.set(1000..2000, Status::Finished);
        map.set(3 << 20..90 << 20, Status::Finished);
        let found = samples(&map, 512);
        assert_eq!(found[0], 1024..1536, "whole sectors");
        assert_eq!(found.last().unwrap().end, 90 << 20);
        assert_eq!(found.len() as u64, SAMPLES + 1);
        let inside = |sample: &Range<u64>| {
            map.areas().any(|(area, status)| {
                status == Status::Finished && area.start <= sample.start && sample.end <= area.end
            })
        };
        assert!(found.iter().all(inside));
    }
}
