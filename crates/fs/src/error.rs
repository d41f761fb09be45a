//! Why something cannot be read, and what is to be known of what can.

use std::fmt;
use std::io;

use thiserror::Error;

/// Why something of a file system cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// None of the file systems that are read here.
    #[error("no ext2, ext3, ext4, XFS, btrfs, FAT, exFAT, NTFS or HFS+ file system is here")]
    Unrecognised,
    /// What the file system is on returned an error.
    #[error("reading at byte {offset}: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// What it said.
        source: io::Error,
    },
    /// A structure points beyond the end of what the file system is on: it was cut off, or is
    /// damaged.
    #[error("byte {offset} is beyond the end, which is at {size}")]
    BeyondEnd {
        /// Where it points to.
        offset: u64,
        /// The size of what the file system is on.
        size: u64,
    },
    /// A structure is not what it must be.
    #[error("{structure} {at} is damaged: {what}")]
    Damaged {
        /// Which structure: `inode`, `block`.
        structure: &'static str,
        /// Its number.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A structure lies on a device of the file system that is not here, and nothing that is here
    /// has it too.
    #[error("{structure} {at} is on device {id} of the file system, which is not here")]
    DeviceMissing {
        /// Which structure.
        structure: &'static str,
        /// Its number.
        at: u64,
        /// The number of the device.
        id: u64,
    },
    /// Two devices of a file system, or two copies of one, were written apart from each other.
    #[error(
        "devices {one} and {other} of the file system say different things of its transaction {generation}: they were written apart \
         from each other, and which is meant is not known"
    )]
    DevicesDisagree {
        /// The number of one.
        one: u64,
        /// The number of the other; the same for two copies of a device.
        other: u64,
        /// The transaction.
        generation: u64,
    },
    /// A part of a file's map cannot be read or is damaged: where the data of these bytes of the
    /// file lies is not known.
    #[error("{why}")]
    MapPart {
        /// The byte behind the part, in the file.
        to: u64,
        /// What is wrong with it.
        why: Box<Error>,
    },
    /// Something that is known and not read here.
    #[error("{what}: not supported")]
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// Of NTFS, a reparse point whose meaning is not known, of a file that is not stored as a
    /// whole: what is missing may be kept elsewhere.
    #[error(
        "a file with a reparse point of unknown kind {tag:#010x} that is offline or has holes, so that its data may be kept elsewhere: not \
         supported"
    )]
    UnknownReparsePoint {
        /// Its tag.
        tag: u32,
    },
    /// Features that no version known here has: old rules may read them wrong.
    #[error("{file_system} with unknown features {bits:#x}: not supported")]
    UnknownFeatures {
        /// Of which file system.
        file_system: &'static str,
        /// The bits that are not known.
        bits: u64,
    },
    /// No entry of that name.
    #[error("no such file or directory")]
    NoSuchEntry,
    /// A directory was wanted.
    #[error("not a directory")]
    NotADirectory,
    /// A regular file was wanted.
    #[error("not a regular file")]
    NotAFile,
    /// A symbolic link was wanted.
    #[error("not a symbolic link")]
    NotALink,
    /// Links lead to links, perhaps in a circle.
    #[error("too many symbolic links on the way")]
    TooManyLinks,
    /// The reader wanted no more.
    #[error("stopped")]
    Stopped,
}

/// What the reader of a file system should know: it can be read, and is perhaps not what it was
/// last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// It was not unmounted; its journal was read, and what is shown is what a mount would show.
    JournalApplied {
        /// How many of its blocks are taken from the journal.
        blocks: u64,
    },
    /// It was not unmounted and its journal could not be used.
    JournalNotApplied {
        /// Why.
        why: &'static str,
    },
    /// It was not unmounted, and changes that follow its journal's last transaction are taken from
    /// fast commits.
    FastCommitsApplied {
        /// How many changes.
        changes: u64,
    },
    /// It was not unmounted, and its journal is used as far as it can be: what follows is missing.
    JournalCutShort {
        /// Why.
        why: &'static str,
    },
    /// A subvolume of btrfs is shown that is not the top level.
    DefaultSubvolume {
        /// Its number.
        id: u64,
        /// The number of the one that has all.
        top_level: u64,
    },
    /// It was not unmounted; its log was read, and what is shown is what a mount would show.
    LogApplied {
        /// How many transactions are taken from the log.
        transactions: u64,
    },
    /// It was not unmounted; its log trees were read, and what is shown is what a mount would show.
    LogTreesApplied {
        /// How many items they have.
        items: u64,
    },
    /// It was not unmounted, and its log is applied as far as it can be: what follows is missing.
    LogCutShort {
        /// How many transactions are taken from the log.
        transactions: u64,
        /// Why no more.
        why: &'static str,
    },
    /// It was not unmounted, and its log is applied; something that it began may end otherwise at a
    /// mount.
    LogLeftOpen {
        /// How many transactions are taken from the log.
        transactions: u64,
        /// What was begun.
        why: &'static str,
    },
    /// It was not unmounted, and its log is applied, which changes blocks of directories in parts
    /// that lie apart: Linux does not replay that.
    LogInParts {
        /// How many transactions are taken from the log.
        transactions: u64,
    },
    /// The log of XFS is on another device, which is not read.
    LogElsewhere,
    /// Of btrfs, the first superblock is not right, or older: a copy is used, and only the first
    /// one knows of what was flushed since the last transaction.
    SuperblockCopy {
        /// What is wrong with the first.
        why: &'static str,
    },
    /// Of HFS+, the volume header is not right: the alternate one at the end is used, which is
    /// brought up to date more seldom.
    HeaderCopy {
        /// What is wrong with the first.
        why: &'static str,
    },
    /// Of FAT, exFAT and NTFS, the first boot sector is not right: a copy of it is used, which may
    /// be left of what was there before another format.
    BootCopy {
        /// What is wrong with the first.
        why: &'static str,
    },
    /// Of ext2, ext3 and ext4, descriptors of groups are not right: copies of them are used, or
    /// they are used as far as the inodes' own checksums prove what they lead to.
    DescriptorCopy {
        /// What is wrong with one of them.
        why: &'static str,
    },
    /// Of FAT, a file goes on by a copy of the table where the first table ends it too soon or is
    /// damaged.
    TableCopy,
    /// It was not unmounted, and has no journal that would say what was being written.
    NoJournal,
    /// It says itself that something in it is wrong.
    MarkedDamaged,
    /// The same, and no kernel mounts it before it was repaired.
    NeedsRepair,
    /// A device of it is not here: what it had is taken from others, as far as they have it.
    DeviceMissing {
        /// Its number.
        id: u64,
        /// Its identifier.
        uuid: [u8; 16],
    },
    /// A device was away while others were written: what it has is used where it proves to be
    /// right, or where nothing else has it.
    DeviceStale {
        /// Its number.
        id: u64,
        /// The transaction that it was last written with.
        generation: u64,
        /// The newest one.
        newest: u64,
    },
    /// Data that has no checksum was read from a device that was away while others were written:
    /// nothing else has it, and it may be old.
    StaleDataRead {
        /// The number of the device.
        id: u64,
    },
    /// Superblocks of the newest transaction name different logs of what was flushed since: not
    /// every device took each flush.
    DeviceLogsDiffer {
        /// The number of the device whose log is applied.
        id: u64,
    },
    /// A device is given twice: the newer state of it is used.
    DeviceTwice {
        /// Its number.
        id: u64,
    },
    /// A device that was being filled to replace another one is not used: the other one still is
    /// part of the file system.
    DeviceReplacement,
    /// A device has the superblock of the file system, which does not list it any more.
    DeviceNotListed {
        /// Its number.
        id: u64,
    },
    /// A device ends before the file system says that it does.
    DeviceCutOff {
        /// Its number.
        id: u64,
        /// Its size in bytes.
        size_bytes: u64,
        /// What is there of it.
        there_bytes: u64,
    },
    /// It ends beyond the end of what it is on.
    CutOff {
        /// Its size in bytes.
        size_bytes: u64,
        /// What is there of it.
        there_bytes: u64,
    },
}

impl Note {
    /// Whether it says that what is shown is not what a mount would show, or may not be.
    #[must_use]
    pub fn differs_from_a_mount(self) -> bool {
        matches!(
            self,
            Self::JournalNotApplied { .. }
                | Self::JournalCutShort { .. }
                | Self::LogCutShort { .. }
                | Self::LogLeftOpen { .. }
                | Self::LogInParts { .. }
                | Self::LogElsewhere
                | Self::NeedsRepair
                | Self::StaleDataRead { .. }
                | Self::DeviceLogsDiffer { .. }
                | Self::SuperblockCopy { .. }
                | Self::HeaderCopy { .. }
                | Self::BootCopy { .. }
                | Self::DescriptorCopy { .. }
                | Self::TableCopy
        )
    }

    /// Whether it says that there may be more than what is shown, though a mount would show the
    /// same.
    #[must_use]
    pub fn leaves_out(self) -> bool {
        matches!(self, Self::MarkedDamaged | Self::DefaultSubvolume { .. })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JournalApplied { blocks } => {
                write!(
                    f,
                    "it was not unmounted; {blocks} blocks are taken from its journal, as a mount would"
                )
            }
            Self::JournalNotApplied { why } => write!(
                f,
                "it was not unmounted and its journal is not applied ({why}): the last changes, of the seconds before the crash, may be \
                 missing, and names or sizes may not fit their files"
            ),
            Self::FastCommitsApplied { changes } => {
                write!(
                    f,
                    "{changes} changes are taken from the fast commits of its journal, as a mount would"
                )
            }
            Self::JournalCutShort { why } => write!(
                f,
                "it was not unmounted and the last part of its journal is not applied ({why}): the changes of that part are missing, \
                 the earlier ones are there"
            ),
            Self::DefaultSubvolume { id, top_level } => write!(
                f,
                "its default subvolume, {id}, is shown, as a mount would; subvolume {top_level} has all others"
            ),
            Self::LogApplied { transactions } => write!(
                f,
                "it was not unmounted; {transactions} transactions of its log are applied in memory, as a mount would"
            ),
            Self::LogTreesApplied { items } => {
                write!(f, "it was not unmounted; {items} items of its log are applied in memory, as a mount would")
            }
            Self::LogCutShort { transactions, why } => write!(
                f,
                "it was not unmounted, and {transactions} transactions of its log are applied in memory and no more ({why}): the \
                 changes that follow are missing, and names or sizes may not fit their files"
            ),
            Self::LogLeftOpen { transactions, why } => write!(
                f,
                "it was not unmounted; {transactions} transactions of its log are applied in memory, and something that was not \
                 finished may end otherwise at a mount ({why})"
            ),
            Self::LogInParts { transactions } => write!(
                f,
                "it was not unmounted; {transactions} transactions of its log are applied in memory; they change blocks of directories \
                 in parts that lie apart, which no checksum proves and Linux does not replay: it refuses the mount"
            ),
            Self::LogElsewhere => f.write_str(
                "its log is on another device, so that it is not applied and whether it was unmounted cannot be told: the last changes, \
                 of the seconds before a crash, may be missing, and names or sizes may not fit their files; a mount with both devices, \
                 which applies it, shows the newest state",
            ),
            Self::SuperblockCopy { why } => write!(
                f,
                "its first superblock is not used ({why}), but a copy of it, which does not know of what was flushed since the last \
                 transaction: files of the last seconds before a crash may be missing or older; a mount reads the first one only"
            ),
            Self::HeaderCopy { why } => write!(
                f,
                "its volume header is not used ({why}), but the alternate one at its end, which is written only when one of the \
                 volume's own files grows: whether it was unmounted is not known; Linux mounts no volume without the first"
            ),
            Self::BootCopy { why } => write!(
                f,
                "its boot sector is not used ({why}), but a copy of it: if something else was formatted there since, this is what was \
                 there before; nothing mounts it without the first"
            ),
            Self::DescriptorCopy { why } => write!(
                f,
                "descriptors of its block groups are not right (of one {why}): copies of them are used, or, where none is right, what \
                 checksums of inodes prove; no kernel mounts it before e2fsck was run"
            ),
            Self::TableCopy => f.write_str(
                "its first table of clusters is not right everywhere: files that it ends too soon are read by another copy of it, which \
                 a mount does not do",
            ),
            Self::NoJournal => f.write_str(
                "it was not unmounted and has no journal: what was written last, in the seconds before the crash, may be torn; a mount \
                 shows the same",
            ),
            Self::NeedsRepair => f.write_str(
                "it is marked as in need of repair: what is found is shown, files may be missing, and no kernel mounts it before \
                 xfs_repair was run",
            ),
            Self::MarkedDamaged => {
                f.write_str("it is marked as damaged: what is found is shown, and files may be missing")
            }
            Self::DeviceMissing { id, uuid } => {
                let uuid = crate::bytes::uuid_text(*uuid);
                write!(f, "its device {id} ({uuid}) is not here: what it had is taken from copies and parity, as far as there are some")
            }
            Self::DeviceStale { id, generation, newest } => write!(
                f,
                "its device {id} was last written with transaction {generation}, others with {newest}: it was away meanwhile, and what it \
                 has is used only where checksums prove it, or where nothing else has it"
            ),
            Self::StaleDataRead { id } => write!(
                f,
                "data without checksums was read from device {id}, which was away while others were written: nothing else that is here \
                 has it, and it may be old"
            ),
            Self::DeviceLogsDiffer { id } => write!(
                f,
                "its devices have different logs, or some have none: that of device {id} is applied, and what was flushed last, in the \
                 seconds before a crash, may be in another one; a mount takes that of the device with the lowest number"
            ),
            Self::DeviceTwice { id } => {
                write!(f, "its device {id} is given twice: the state that is newer, or was given first, is used")
            }
            Self::DeviceReplacement => f.write_str(
                "a device that was being filled to replace another one is not used: the other one still is part of the file system",
            ),
            Self::DeviceNotListed { id } => {
                write!(f, "a device {id} has its superblock and is not one of its devices any more: it is not used")
            }
            Self::DeviceCutOff { id, size_bytes, there_bytes } => write!(
                f,
                "its device {id} has {size_bytes} bytes and only {there_bytes} of them are here: what lies beyond is taken from copies and \
                 parity, as far as there are some"
            ),
            Self::CutOff { size_bytes, there_bytes } => write!(
                f,
                "it has {size_bytes} bytes and only {there_bytes} of them are here: what lies beyond cannot be read"
            ),
        }
    }
}
