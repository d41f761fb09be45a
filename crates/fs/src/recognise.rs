//! What a volume is formatted as, where what was there before left traces of its own.
//!
//! A format of btrfs wipes the first and the last megabytes of a device, btrfs writes nothing below
//! 64 KiB, and no format of another file system wipes all its superblocks. Therefore the heads of
//! others are newer than a btrfs beside them, and so are copies of these heads, where they are
//! gone, compared with copies of a superblock. What cannot be read answers no question: another
//! place may.

use crate::error::Error;
use crate::source::ByteSource;
use crate::{btrfs, ext, fat, hfs, ntfs, xfs};

/// What has a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemFamily {
    Ext,
    Xfs,
    Ntfs,
    Fat,
    Hfs,
    Btrfs,
}

type Question = fn(&ByteSource) -> Result<bool, Error>;

/// In this order: first what is at its first place and in order, then what is damaged, or has only
/// a copy left.
const QUESTIONS: [(FileSystemFamily, Question); 10] = [
    (FileSystemFamily::Ext, ext::is_here),
    (FileSystemFamily::Xfs, xfs::is_here),
    (FileSystemFamily::Ntfs, ntfs::is_formatted),
    (FileSystemFamily::Fat, fat::is_formatted),
    (FileSystemFamily::Hfs, hfs::is_formatted),
    (FileSystemFamily::Btrfs, btrfs::is_formatted),
    (FileSystemFamily::Fat, fat::is_here),
    (FileSystemFamily::Hfs, hfs::is_here),
    (FileSystemFamily::Ntfs, ntfs::is_here),
    (FileSystemFamily::Btrfs, btrfs::is_here),
];

/// What is there.
///
/// # Errors
/// [`Error::Unrecognised`] if there is nothing that is known here, or why that cannot be told.
pub fn family(source: &ByteSource) -> Result<FileSystemFamily, Error> {
    let mut unread = None;
    for (family, is_here) in QUESTIONS {
        match is_here(source) {
            Ok(true) => return Ok(family),
            Ok(false) => {}
            Err(error) => _ = unread.get_or_insert(error),
        }
    }
    Err(unread.unwrap_or(Error::Unrecognised))
}

/// The same; a subvolume means a btrfs, whatever is in front of it.
///
/// # Errors
/// As [`family`], or what is there has no subvolumes.
pub fn family_with(source: &ByteSource, subvolume: Option<u64>) -> Result<FileSystemFamily, Error> {
    match (family(source), subvolume) {
        (found, None) => found,
        (Ok(FileSystemFamily::Ext | FileSystemFamily::Xfs), Some(_)) => {
            Err(Error::Unsupported { what: "a subvolume of ext or XFS, which have none" })
        }
        (found, Some(_)) => match btrfs::is_here(source)? {
            true => Ok(FileSystemFamily::Btrfs),
            false => found.and(Err(Error::Unrecognised)),
        },
    }
}
