//! What `ls` and `get` have in common: finding the volume, opening the file system on it, and what
//! is said about it.
//!
//! File systems are read by plain code that waits for its bytes; volumes are read by tasks. So the
//! command's work is done on a thread of its own (`Core::offload`), and its reads go to a task on
//! the core ([`reader`]).

mod came_out;
pub mod get;
pub mod ls;
mod place;
pub mod reader;

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use wattle_control::members::MemberAccess;

use serde::Serialize;
use wattle_control::{Code, Problem};
use wattle_fs::{Error, FileKind, FileSystem, FsNode, Note, ReadAt};

use crate::cli::FilesOn;
use crate::commands::loss::{FileLoss, FilePart, FileState, FileSystemLoss, FsDeviceReport, MemberLoss};
use crate::output::{self, text::printable};
use crate::volumes::{self, Meant};
use reader::VolumeReader;

/// Reads come one after the other.
const CORES_MAX: usize = 1;

/// The smallest part of a file that is told to be unreadable.
const BLOCK_BYTES: u64 = 4096;

/// Most of these that are looked at to tell how long a part is: 16 MiB.
const UNREADABLE_BLOCKS_MAX: u64 = 4096;

/// A file system that was opened, on its volume.
pub struct Opened {
    pub volume: String,
    pub fs: Box<dyn FileSystem>,
    /// What copies among the members lack.
    pub members: Vec<MemberLoss>,
    /// Of one that lies on several devices, these.
    pub devices: Vec<FsDeviceReport>,
}

/// Finds the volume, opens the file system on it, says what is to be known of it, and does the
/// work.
///
/// # Errors
/// There is no such volume, or no file system on it that can be read, or what `work` says.
pub fn with_file_system<T: Send + 'static>(
    access: &MemberAccess,
    on: &FilesOn,
    work: impl FnOnce(&Opened) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let engine = (&on.engine, CORES_MAX);
    let meant = Meant::Files(on.volume.as_deref());
    volumes::read_all(access, &on.members, meant, &on.force, engine, async |core, volumes, scan| {
        let members = MemberLoss::of_scan(scan);
        let (mut readers, mut all_serving): (Vec<(String, VolumeReader)>, Vec<_>) = Default::default();
        for volume in volumes {
            let (reader, serving) = reader::bridge(&core, volume.clone());
            readers.push((volume.name().to_owned(), reader));
            all_serving.push(core.spawn(serving));
        }
        let subvolume = on.subvolume;
        let done = core.offload(move || work(&open(readers, subvolume, members)?)).await;
        // The readers are gone with the work, and what served them ends.
        for serving in all_serving {
            serving.await;
        }
        done.map_err(Problem::no_thread)?
    })
}

fn open(
    readers: Vec<(String, VolumeReader)>,
    subvolume: Option<u64>,
    members: Vec<MemberLoss>,
) -> Result<Opened, Problem> {
    let (names, readers): (Vec<String>, Vec<VolumeReader>) = readers.into_iter().unzip();
    let volume = names.first().cloned().unwrap_or_default();
    let readers = readers.into_iter().map(|reader| Box::new(reader) as Box<dyn ReadAt>).collect();
    let fs = wattle_fs::open_devices(readers, subvolume).map_err(|error| not_opened(&volume, &error))?;
    for note in &fs.about().notes {
        output::note(&printable(&format!("{volume}: {}: {note}", fs.about().kind)));
    }
    let devices = match fs.devices() {
        [_] => Vec::new(),
        devices => devices.iter().map(|device| FsDeviceReport::of(device, &names)).collect(),
    };
    Ok(Opened { volume, fs, members, devices })
}

/// Why there are no files to be had from a volume.
fn not_opened(volume: &str, error: &Error) -> Problem {
    let what = format!("{volume}: {error}");
    match error {
        Error::DeviceMissing { .. } => Problem::new(
            Code::FsDeviceMissing,
            what,
            "what leads to the files is on devices that are not here, and no copy or parity of it is",
            "give the file system's other devices too; `wattle scan` tells which of them are here",
        ),
        Error::DevicesDisagree { .. } => Problem::new(
            Code::FsDevicesDisagree,
            what,
            "both were mounted without the other one since they were last together, or one is a copy that was written to: what is on \
             them is two states of the file system",
            "give the one whose state is wanted without the other one",
        ),
        _ => Problem::new(
            Code::NoFileSystem,
            what,
            "ext2, ext3, ext4, XFS, btrfs, NTFS, HFS+, exFAT and FAT are read without mounting them",
            "`wattle cat` and `wattle serve` give the volume's bytes to other tools",
        ),
    }
}

impl Opened {
    /// What a path names.
    fn resolve(&self, path: &OsStr) -> Result<FsNode, Problem> {
        wattle_fs::resolve(&*self.fs, path.as_bytes())
            .map_err(|error| self.unreadable(path.as_bytes(), &error))
    }

    /// The first part of a file that cannot be read, at `from` or behind it: whole blocks, and no
    /// more of them than are looked at in a moment. `None` if all of it can be read by now.
    fn first_unreadable(&self, file: FsNode, from: u64, size_bytes: u64) -> Option<Range<u64>> {
        let reads = |range: Range<u64>| self.fs.read(file, range, &mut |_, _| Ok(())).is_ok();
        let (mut start, mut window) = (from / BLOCK_BYTES * BLOCK_BYTES, BLOCK_BYTES);
        while start < size_bytes && reads(start..start + window) {
            (start, window) = (start + window, window * 2);
        }
        if start >= size_bytes {
            return None;
        }
        // It is somewhere in the window.
        while window > BLOCK_BYTES {
            window /= 2;
            if reads(start..start + window) {
                start += window;
            }
        }
        // Of a damaged part of its map it is known how far it reaches.
        let why = self.fs.read(file, start..start + BLOCK_BYTES, &mut |_, _| Ok(())).err();
        if let Some(Error::MapPart { to, .. }) = why {
            return Some(
                start..to.clamp(start + BLOCK_BYTES, size_bytes.max(start + BLOCK_BYTES)).min(size_bytes),
            );
        }
        let blocks = (1..UNREADABLE_BLOCKS_MAX).map(|block| start + block * BLOCK_BYTES);
        let mut further = blocks.take_while(|&at| at < size_bytes && !reads(at..at + BLOCK_BYTES));
        let last = further.by_ref().last().unwrap_or(start);
        Some(start..(last + BLOCK_BYTES).min(size_bytes))
    }

    /// Why a file cannot be read, with the place in it.
    fn unreadable_part(&self, file: FsNode, from: u64, size_bytes: u64, error: &Error) -> String {
        match self.first_unreadable(file, from, size_bytes) {
            Some(part) => format!("bytes {} to {} of it: {error}", part.start, part.end - 1),
            None => error.to_string(),
        }
    }

    /// Ends a command that did all it could: what it showed is perhaps not what a mount would show.
    fn check_as_mounted(&self, showed: &str) -> Result<(), Problem> {
        let notes = self.fs.not_as_mounted();
        if notes.is_empty() {
            return Ok(());
        }
        let all = |is: fn(&Note) -> bool| notes.iter().all(is);
        let stale = all(|note| matches!(note, Note::StaleDataRead { .. }));
        let in_parts = all(|note| matches!(note, Note::LogInParts { .. }));
        let copies = all(|note| matches!(note, Note::DescriptorCopy { .. } | Note::TableCopy));
        let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
        Err(Problem::new(
            Code::NotAsMounted,
            format!("{}: {showed} is not what a mount would show, or may not be", self.volume),
            printable(&notes.join("; ")),
            match (stale, copies, in_parts) {
                (true, ..) => {
                    "give the file system's other devices too, if they are to be had: what they have is newer"
                }
                (_, true, _) => {
                    "no mount shows more; compare what matters with another copy, if there is one"
                }
                (.., true) => {
                    "take the files from here (`wattle get`): no mount replays this log, and `xfs_repair -L` throws it away"
                }
                _ => {
                    "mount the volume over a layer (`wattle mount --overlay DIR`): that replays the log and changes no member"
                }
            },
        ))
    }

    /// Ends a command that was to bring out all that is there: perhaps it is not all.
    fn check_left_out(&self) -> Result<(), Problem> {
        let notes = self.fs.left_out();
        if notes.is_empty() {
            return Ok(());
        }
        let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
        Err(Problem::new(
            Code::LeftOut,
            format!("{}: there may be more than what came out", self.volume),
            printable(&notes.join("; ")),
            "of several subvolumes, --subvolume 5 shows all; of one, --subvolume ID says that it is meant",
        ))
    }

    /// The names of a file's extended attributes; that there may be some if they cannot be read.
    fn attributes_of(&self, node: FsNode) -> Vec<String> {
        match self.fs.attributes(node) {
            Ok(names) => names.iter().map(|name| shown(name)).collect(),
            Err(error) => vec![format!("(cannot be read: {error})")],
        }
    }

    /// What of the file system is not shown as it may be.
    fn loss(&self) -> FileSystemLoss {
        let report = FileSystemReport::of(self);
        FileSystemLoss {
            volume: self.volume.clone(),
            kind: report.kind.to_owned(),
            uuid: report.uuid,
            not_as_mounted: report.not_as_mounted,
            left_out: report.left_out,
            devices: report.devices,
        }
    }

    /// The problem of a path that cannot be read.
    fn unreadable(&self, path: &[u8], error: &Error) -> Problem {
        self.unreadable_as(path, error, &error.to_string())
    }

    /// The same with the reason in other words.
    fn unreadable_as(&self, path: &[u8], error: &Error, reason: &str) -> Problem {
        let what = printable(&format!("{}: {}: {reason}", self.volume, shown(path)));
        match error {
            Error::NoSuchEntry | Error::NotADirectory | Error::TooManyLinks => Problem::new(
                Code::NoSuchFile,
                what,
                "paths start at the root of the file system, whatever it was mounted on",
                "`wattle ls` shows what is there",
            ),
            Error::NotAFile => Problem::new(
                Code::FileUnreadable,
                what,
                "only a regular file has bytes for the standard output",
                "name a file, or a directory to put it into with --to",
            ),
            _ => Problem::new(
                Code::FileUnreadable,
                what,
                match error {
                    Error::DeviceMissing { .. } => {
                        "it lies on a device of the file system that is not among the members, and no copy or parity of it is here"
                    }
                    _ => "the file system is damaged there, or its volume cannot be read",
                },
                "the rest can be read: give another --path, or `wattle get` the directory above it",
            ),
        }
    }
}

/// Bytes as text: names need not be UTF-8.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// A path with one more part.
fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    match path {
        b"" => name.to_vec(),
        _ => [path, b"/", name].concat(),
    }
}

/// In JSON, what a file system says of itself.
#[derive(Debug, Serialize)]
struct FileSystemReport {
    kind: &'static str,
    label: String,
    uuid: String,
    size_bytes: u64,
    notes: Vec<String>,
    /// Those of the notes which say that what is shown is not what a mount would show, or may not
    /// be.
    not_as_mounted: Vec<String>,
    /// Those which say that there may be more than what is shown.
    left_out: Vec<String>,
    /// Of one that lies on several devices, these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<FsDeviceReport>,
}

impl FileSystemReport {
    fn of(opened: &Opened) -> Self {
        let fs = &opened.fs;
        let about = fs.about();
        Self {
            kind: about.kind,
            label: shown(&about.label),
            uuid: about.id_text(),
            size_bytes: about.size_bytes,
            notes: about.notes.iter().map(ToString::to_string).collect(),
            not_as_mounted: fs.not_as_mounted().iter().map(ToString::to_string).collect(),
            left_out: fs.left_out().iter().map(ToString::to_string).collect(),
            devices: opened.devices.clone(),
        }
    }
}

/// In JSON, what could not be read, and why.
#[derive(Debug, Serialize)]
struct Failure {
    path: String,
    /// Where it was: the path's bytes in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    reason: String,
    /// What came out of it all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<PartialFile>,
    /// Names of extended attributes that what came out of it does not have.
    #[serde(skip)]
    attributes: Vec<String>,
    /// It came out whole, but for extended attributes that are lost.
    #[serde(skip)]
    is_whole: bool,
}

/// In JSON, a file that came out in part.
#[derive(Debug, Serialize)]
struct PartialFile {
    /// What it is called.
    path: String,
    /// What of it could not be read, and is zeros.
    unreadable: Vec<FilePart>,
}

impl Failure {
    fn new(path: &[u8], reason: impl std::fmt::Display) -> Self {
        Self {
            path: shown(path),
            path_hex: hex_unless_text(path),
            reason: reason.to_string(),
            partial: None,
            attributes: Vec::new(),
            is_whole: false,
        }
    }

    /// The same of what came out whole, but for extended attributes.
    fn of_whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// The same of a file that came out in part, under the name `path`, without these extended
    /// attributes.
    fn in_part(self, path: &[u8], unreadable: &[Range<u64>], attributes: Vec<String>) -> Self {
        let part =
            |range: &Range<u64>| FilePart { offset_bytes: range.start, len_bytes: range.end - range.start };
        let unreadable = unreadable.iter().map(part).collect();
        Self { partial: Some(PartialFile { path: shown(path), unreadable }), attributes, ..self }
    }
}

impl From<&Failure> for FileLoss {
    fn from(failure: &Failure) -> Self {
        let part = failure.partial.as_ref();
        Self {
            path: failure.path.clone(),
            path_hex: failure.path_hex.clone(),
            state: if part.is_some() { FileState::Partial } else { FileState::Missing },
            reason: Some(failure.reason.clone()),
            unreadable: part.map_or(Vec::new(), |part| part.unreadable.clone()),
            cut_off: None,
            // Of what did not come out as a whole more is missing than these.
            attributes: failure.attributes.clone(),
        }
    }
}

fn hex_unless_text(path: &[u8]) -> Option<String> {
    std::str::from_utf8(path).is_err().then(|| path.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What an inode is, in words.
fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
        FileKind::Fifo => "named pipe",
        FileKind::Socket => "socket",
    }
}
