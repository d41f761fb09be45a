//! What can be read of a file that cannot be read as a whole.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::FileType;
use wattle_fs::{Error, FileMetadata, FsNode};

use super::kept::is_time;
use super::{Extraction, Stop, in_the_way};
use crate::commands::files::place::OutputDirectory;

/// What a file that came out in part is called: its name and this.
pub(super) const PARTIAL: &[u8] = b".partial";

/// More than what is stored of a file and this cannot be unreadable block by block: its map is
/// damaged, and the size may be any.
const BEYOND_STORED_BYTES: u64 = 256 << 20;

/// What is missing of a file that came out in part.
pub(super) struct Damage {
    /// What it is called.
    pub name: Vec<u8>,
    pub unreadable: Vec<Range<u64>>,
    pub reason: String,
}

impl Extraction<'_> {
    /// Writes a part of a file's data; `false` if it cannot be read, or not all of it.
    fn copy_part(&self, file: &File, node: FsNode, part: Range<u64>) -> Result<bool, Stop> {
        let mut failed = None;
        let read = self.opened.fs.read(node, part, &mut |offset, bytes| {
            file.write_all_at(bytes, offset).map_err(|error| {
                failed = Some(error);
                Error::Stopped
            })
        });
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(read.is_ok()),
        }
    }

    /// Writes what can be read of a file that cannot be read as a whole; the rest stays a hole.
    pub(super) fn salvage(
        &self,
        file: &File,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
        reason: &str,
    ) -> Result<Damage, Stop> {
        let (mut at, size_bytes) = (0, metadata.size_bytes);
        let stored_bytes = metadata.stored_bytes.min(self.opened.fs.about().size_bytes);
        let mut unreadable: Vec<Range<u64>> = Vec::new();
        let mut missing = 0_u64;
        while at < size_bytes {
            if self.copy_part(file, node, at..size_bytes)? {
                break;
            }
            // It cannot be read in one go, and each block can: nothing tells what is right.
            let rest = at..size_bytes;
            let mut part = self.opened.first_unreadable(node, at, size_bytes).unwrap_or(rest);
            if at < part.start && !self.copy_part(file, node, at..part.start)? {
                part.start = at;
            }
            // So that a size that is nonsense ends: from here on in steps that double.
            if missing > stored_bytes.saturating_add(BEYOND_STORED_BYTES) {
                part.end = part.end.saturating_add(missing).min(size_bytes);
            }
            missing += part.end - part.start;
            at = part.end;
            match unreadable.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => unreadable.push(part),
            }
        }
        let name = self.partial_name(name);
        let (shown, places) = (String::from_utf8_lossy(&name), unreadable.len());
        let reason =
            format!("{missing} of its {size_bytes} bytes are zeros in {shown} (places: {places}); {reason}");
        Ok(Damage { name, unreadable, reason })
    }

    /// A name that no other file of the directory has, of those that come out.
    fn partial_name(&self, name: &[u8]) -> Vec<u8> {
        let mut name = [name, PARTIAL].concat();
        while self.taken.contains(&name) {
            name.extend_from_slice(PARTIAL);
        }
        name
    }

    /// Whether what has the name of a file in part is replaced by it: a former run left it, by its
    /// size and time, or all that is there is replaced.
    ///
    /// # Errors
    /// It is something else, and in the way.
    pub(super) fn is_replaced(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        metadata: &FileMetadata,
    ) -> Result<bool, Stop> {
        let Some(found) = place.look(name)? else { return Ok(false) };
        self.refuse_own(&found)?;
        let time = (metadata.modified.seconds, u64::from(metadata.modified.nanoseconds));
        let is_former = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && u64::try_from(found.st_size) == Ok(metadata.size_bytes)
            && is_time((found.st_mtime, found.st_mtime_nsec), time);
        match self.there.overwrite || self.there.resume && is_former {
            true => Ok(true),
            false => Err(in_the_way()),
        }
    }
}
