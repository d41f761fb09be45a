//! Why a member cannot be used, and what an operator is told of it.

use std::path::Path;

use thiserror::Error;
use wattle_rt::{IoError, OpenError};

use super::MemberAddress;
use crate::overlay::OverlayError;
use crate::problem::{Code, Problem, shell_word};
use crate::size::SizeError;
use crate::unread::CopyMapError;

/// Why a member cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemberError {
    /// The operating system or the runtime did not open it.
    #[error("{name}: {source}")]
    Open {
        /// The member.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// A loop device leads to the same bytes, and something has one or the other.
    #[error("{name}: it is in use: {by}")]
    InUse {
        /// The member.
        name: String,
        /// What has it, and by which way.
        by: String,
    },
    /// It lies on others that are only read, and is to be written.
    #[error("{name}: what lies there is only read")]
    LayerReadOnly {
        /// The member.
        name: String,
    },
    /// A partition of a table of which it is not known what it counts in, and it is to be written.
    #[error(
        "{name}: its table counts in sectors of 512 bytes or of 4096, and what is at the places does not tell"
    )]
    PartitionInDoubt {
        /// The partition.
        name: String,
    },
    /// `mem:` and `null:` need a size.
    #[error("{name}: {source}")]
    BadSize {
        /// The member.
        name: String,
        /// What is there instead.
        source: SizeError,
    },
    /// An empty argument.
    #[error("a member's name is empty")]
    EmptyName,
    /// A kind of member that this version cannot open.
    #[error("{name}: members of the kind `{scheme}` are not supported yet")]
    NotSupportedYet {
        /// The member.
        name: String,
        /// Its kind.
        scheme: &'static str,
    },
    /// A drive across a network that cannot be had.
    #[error("{problem}")]
    Remote {
        /// Why.
        problem: Box<Problem>,
    },
    /// A modelled drive where only files and devices will do.
    #[error("{name}: a modelled drive is only a member of arrays without metadata")]
    OnlyMadeUp {
        /// The member.
        name: String,
    },
    /// `DRIVE:pN` where there is no such partition.
    #[error("{name}: there is no such partition on {whole}")]
    NoPartition {
        /// The partition.
        name: String,
        /// The drive.
        whole: String,
    },
    /// `DRIVE:pN` where the partition table is the content of an array that the drive is a member
    /// of.
    #[error("{name}: {whole} is a member of an array as a whole, by its superblock")]
    PartitionOfArray {
        /// The partition.
        name: String,
        /// The drive.
        whole: String,
    },
    /// Two names lead to one drive.
    #[error("{name} and {first} are the same file or device")]
    GivenTwice {
        /// The second name.
        name: String,
        /// The first name.
        first: String,
    },
    /// Two block devices are two ways to one drive.
    #[error("{name} and {first} are two ways to one drive: both tell the number {id} and show the same")]
    SameDrive {
        /// The second name.
        name: String,
        /// The first name.
        first: String,
        /// What the drive tells of itself.
        id: String,
    },
    /// Several paths with `|` between them, and it cannot be known that they lead to one drive.
    #[error("{name}: it is not known that these are paths to one drive: {why}")]
    PathsUnknown {
        /// The member.
        name: String,
        /// What is missing.
        why: String,
    },
    /// A path leads to something else than the first one.
    #[error("{name}: {path} leads to another drive")]
    PathsDiffer {
        /// The member.
        name: String,
        /// The path.
        path: String,
    },
    /// What serves it needs a thread of its own.
    #[error("{name}: {source}")]
    NoThread {
        /// The member.
        name: String,
        /// Why there is none.
        source: IoError,
    },
    /// Another file is there now, or its size or superblock changed.
    #[error("{name} changed while it was being opened")]
    Changed {
        /// The member.
        name: String,
    },
    /// What is written to it cannot be kept, or what was cannot be had.
    #[error("{problem}")]
    Overlay {
        /// Why.
        problem: Box<Problem>,
    },
    /// It is a copy of a drive, and the map of the copy cannot be used.
    #[error("{problem}")]
    CopyMap {
        /// Why.
        problem: Box<Problem>,
    },
    /// A named map is for something that has none: a made-up drive.
    #[error("{name}: a made-up drive is no copy and has no map")]
    NoCopy {
        /// The member.
        name: String,
    },
    /// It is a copy of a drive, and metadata is where the drive could not be read.
    #[error(
        "{name}: {len_bytes} bytes at byte {offset_bytes} are not all in this copy of a drive, by its map {map}"
    )]
    NotCopied {
        /// The member.
        name: String,
        /// Where.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
        /// The map.
        map: String,
    },
    /// A read of metadata failed.
    #[error("{name}: reading {len_bytes} bytes at byte {offset_bytes}: {source}")]
    Read {
        /// The member.
        name: String,
        /// Where.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
        /// Why.
        source: IoError,
    },
}

impl MemberError {
    pub(super) fn overlaid(name: &str, source: &OverlayError) -> Self {
        Self::Overlay { problem: Box::new(source.problem(name)) }
    }

    pub(super) fn of_map(name: &str, source: &CopyMapError) -> Self {
        Self::CopyMap { problem: Box::new(source.problem(name)) }
    }
}

impl From<MemberError> for Problem {
    fn from(error: MemberError) -> Self {
        let what = error.to_string();
        match error {
            MemberError::Open { name, source } => open_problem(&name, what, source),
            MemberError::InUse { name, .. } => Self::new(
                Code::Locked,
                what,
                TWO_OWNERS,
                "stop the other owner first (`wattle status`, `lsblk`, `losetup --list`, `fuser`)",
            )
            .of_member(name),
            MemberError::BadSize { name, source } => {
                let Problem { why, next, code, .. } = source.into();
                Self::new(code, what, why, next).of_member(name)
            }
            MemberError::EmptyName => Self::new(
                Code::BadMember,
                what,
                "an unset variable in a script often expands to an empty argument",
                "name a file, a block device, mem:SIZE or null:SIZE",
            ),
            MemberError::LayerReadOnly { name } => Self::new(
                Code::ReadOnlyMember,
                what,
                "what it lies on is of a kind that is never written here (data of bcache, volumes that are only read), or a note says why",
                "use --read-only where the command has it",
            )
            .of_member(name),
            MemberError::PartitionInDoubt { name } => Self::new(
                Code::ReadOnlyMember,
                what,
                "it fits the drive either way, and a write at the wrong place would go over something else",
                "read it (--read-only), or write to an overlay (--overlay DIR); a GPT, into which `gdisk` turns an MBR, says what it counts in",
            )
            .of_member(name),
            MemberError::NotSupportedYet { name, .. } => Self::new(
                Code::NotSupportedYet,
                what,
                "nothing here opens drives across a network",
                "connect the device with the system's own client (`nbd-client`) and give its node, or copy it to a file",
            )
            .of_member(name),
            MemberError::Remote { problem }
            | MemberError::Overlay { problem }
            | MemberError::CopyMap { problem } => *problem,
            MemberError::NoCopy { name } => Self::new(
                Code::Usage,
                what,
                "a map says what was read from a drive when it was copied",
                format!("leave `--map {name}=…` out"),
            )
            .of_member(name),
            MemberError::OnlyMadeUp { name } => Self::new(
                Code::BadMember,
                what,
                "it is memory, gone with the process that made it",
                "use `wattle serve` with --level for an array over made-up drives, or name files or devices",
            )
            .of_member(name),
            MemberError::NoPartition { name, whole } => Self::new(
                Code::BadMember,
                what,
                "its partition table has none of this number that can be used, or it has no table",
                format!("see `wattle scan {}`", shell_word(&whole)),
            )
            .of_member(name),
            MemberError::PartitionOfArray { name, whole } => Self::new(
                Code::PartitionUnusable,
                what,
                "its partition table is what the array holds: what is written past the array its other members do not have",
                format!(
                    "give {whole}, and the array's other members: `wattle scan` lists the partitions on it; a superblock that is only left over \
                     goes first (`wipefs`)"
                ),
            )
            .of_member(name),
            MemberError::GivenTwice { name, .. } => Self::new(
                Code::GivenTwice,
                what,
                "a member counted twice is redundancy that is not there",
                "give each member once",
            )
            .of_member(name),
            MemberError::SameDrive { name, .. } => Self::new(
                Code::SameDrive,
                what,
                "a drive counted twice is redundancy that is not there, and writing by both ways at once destroys it",
                "give one of them; the system's own multipath (`multipathd`) makes one device of both. If they are two \
                 drives whose enclosures give one number, put something on one first, a partition table for example",
            )
            .of_member(name),
            MemberError::PathsUnknown { name, .. } => Self::new(
                Code::PathsUnknown,
                what,
                "written by two ways as one drive, two drives would destroy each other",
                "give several paths to a block device that tells its WWID or serial number like '/dev/sdb|/dev/sdc', and \
                 to NBD servers like 'nbd://a/disk0|nbd://b/disk0'; else name one path",
            )
            .of_member(name),
            MemberError::PathsDiffer { name, .. } => Self::new(
                Code::PathsDiffer,
                what,
                "paths to one drive tell one number, and show the same size and the same superblocks",
                "look at each by itself (`wattle examine`), and name two drives as two members",
            )
            .of_member(name),
            MemberError::NoThread { name, .. } => Self::new(
                Code::BackendUnavailable,
                what,
                "a drive by several paths has a thread of its own, and it cannot be had",
                "free resources of this machine",
            )
            .of_member(name),
            MemberError::Changed { name } => Self::new(
                Code::Changed,
                what,
                "another file is at this path now, or its size or superblock is another than a moment ago",
                "find the process that is writing it, and try again",
            )
            .of_member(name),
            MemberError::NotCopied { name, map, .. } => Self::new(
                Code::ReadFailed,
                what,
                "without its metadata a member cannot be judged, and what was not read is not made up",
                format!(
                    "leave the member out if the others are enough, or try once more to read what is missing (`wattle copy --raw --retries 3` \
                     or ddrescue, with {map}); if it is certain that it is no member of an array, --force=newest-superblock takes what else \
                     is found on it for all that is there"
                ),
            )
            .of_member(name),
            MemberError::Read { name, .. } => Self::new(
                Code::ReadFailed,
                what,
                "without its metadata a member cannot be judged",
                "leave the member out if the others are enough, or copy the drive first (ddrescue) and give the copy",
            )
            .of_member(name),
        }
    }
}

const TWO_OWNERS: &str = "two owners of one member destroy the array";

fn open_problem(name: &str, what: String, source: OpenError) -> Problem {
    let holders = match name.parse() {
        Ok(MemberAddress::Path(path)) if source == OpenError::Locked => holders(&path),
        _ => Vec::new(),
    };
    let (code, why, next) = match source {
        OpenError::NotFound => {
            (Code::NotFound, "a member is a file or a block device that exists", "check the path")
        }
        OpenError::PermissionDenied => (
            Code::PermissionDenied,
            "this user may not open it",
            "change its permissions, join the group that owns it (often `disk`), or run as its owner",
        ),
        OpenError::IsDirectory => {
            (Code::IsDirectory, "a member is a file or a block device", "name the files in it: DIRECTORY/*")
        }
        OpenError::NotAFileOrBlockDevice => (
            Code::NotADrive,
            "a pipe, socket or character device has no sectors to go back to",
            "name a file or a block device",
        ),
        OpenError::Empty => (
            Code::EmptyMember,
            "a member needs room for a superblock and data",
            "check the copy or download it came from",
        ),
        OpenError::ReadOnly => (
            Code::ReadOnlyMember,
            "it must be written and the file, its file system or the device is read-only",
            "make it writable; where the others are enough, leave it out; or use --read-only where the command has it",
        ),
        OpenError::Locked => {
            (Code::Locked, TWO_OWNERS, "stop the other owner first (`wattle status`, `lsblk`, `fuser`)")
        }
        _ => (Code::OpenFailed, "the operating system refused", "see the system's error above and its log"),
    };
    let why = match &holders[..] {
        [] => why.to_owned(),
        holders => format!("{} has it open; {why}", holders.join(", ")),
    };
    Problem::new(code, what, why, next).of_member(name)
}

/// Which other processes have a file or device open, as far as this user may see.
pub(super) fn holders(path: &Path) -> Vec<String> {
    let Ok(path) = std::fs::canonicalize(path) else { return Vec::new() };
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut holders = Vec::new();
    for process in entries(Path::new("/proc")) {
        let id = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(id) = id.filter(|id| *id != std::process::id()) else { continue };
        let is_it = |fd: std::fs::DirEntry| std::fs::read_link(fd.path()).is_ok_and(|link| link == path);
        if entries(&process.path().join("fd")).any(is_it) {
            let command = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            holders.push(format!("process {id} ({})", command.trim()));
        }
    }
    holders
}
