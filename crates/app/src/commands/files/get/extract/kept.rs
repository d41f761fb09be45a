//! What is there already: what of it stays, what is replaced, and what never is.

use rustix::fs::{FileType, Stat};
use wattle_fs::{FileMetadata, FsNode};

use super::{Extraction, Stop, in_the_way};
use crate::commands::files::get::checksums::sum_of_file;
use crate::commands::files::place::{OutputDirectory, dress};

impl Extraction<'_> {
    /// Gives a file one more name; whether it has it already.
    pub(super) fn link(&self, place: &OutputDirectory, name: &[u8], first: &[Vec<u8>]) -> Result<bool, Stop> {
        let Some((from_name, parts)) = first.split_last() else { return Ok(false) };
        let mut from = self.root.enter(b".")?;
        for part in parts {
            from = from.enter(part)?;
        }
        let first = from.look(from_name)?;
        let is_first = |found: &Stat| {
            first.is_some_and(|first| (first.st_dev, first.st_ino) == (found.st_dev, found.st_ino))
        };
        if let Some(found) = place.look(name)?.filter(|found| self.there.resume && is_first(found)) {
            place.note_came_out(name, &found);
            return Ok(true);
        }
        // What else has the name is not the same.
        self.is_kept(place, name, FileType::RegularFile, |_| Ok(false))?;
        self.draft(place, name, |draft| place.make_link(draft, &from, from_name), |_| Ok(()))?;
        Ok(false)
    }

    /// The file that is there under this name, if it is the same: by its size and time, or by its
    /// content where sums are wanted. With its sum.
    pub(super) fn kept_file(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<Option<Option<String>>, Stop> {
        let time = (metadata.modified.seconds, u64::from(metadata.modified.nanoseconds));
        let mut sum = None;
        let is_same = |found: &Stat| {
            if u64::try_from(found.st_size) != Ok(metadata.size_bytes) {
                return Ok(false);
            }
            if self.checksums.is_none() {
                return Ok(is_time((found.st_mtime, found.st_mtime_nsec), time));
            }
            let wanted = self.sum_of(node, metadata)?;
            let same = wanted == sum_of_file(&place.open_file(name)?, metadata.size_bytes)?;
            sum = Some(wanted);
            Ok(same)
        };
        let kept = self.is_kept(place, name, FileType::RegularFile, is_same)?;
        Ok(kept.then_some(sum))
    }

    /// Gives what is there already, and is the same, its owner, permissions and times, if it has
    /// others: a former run was perhaps another user's.
    pub(super) fn dress_kept(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<(), Stop> {
        const SPECIAL: u32 = 0o6000;
        let Some(found) = place.look(name)? else { return Ok(()) };
        let mode = if self.owner { metadata.mode } else { metadata.mode & !SPECIAL };
        let time = (metadata.modified.seconds, u64::from(metadata.modified.nanoseconds));
        let is_dressed = found.st_mode & 0o7777 == mode
            && (!self.owner || (found.st_uid, found.st_gid) == (metadata.uid, metadata.gid))
            && is_time((found.st_mtime, found.st_mtime_nsec), time);
        if !is_dressed {
            dress(place.open_file(name)?, metadata, self.owner)?;
        }
        if self.wanted.attributes {
            self.attach(&place.open_file(name)?, node);
        }
        place.note_came_out(name, &found);
        Ok(())
    }

    /// Whether what has the name stays as it is: it is of this kind, and the same. Something else
    /// that has the name is in the way, unless it is to be replaced.
    pub(super) fn is_kept(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        kind: FileType,
        is_same: impl FnOnce(&Stat) -> Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        let Some(found) = place.look(name)? else { return Ok(false) };
        self.refuse_own(&found)?;
        refuse_what_came_out(place, name, &found)?;
        if !self.there.resume {
            return if self.there.overwrite { Ok(false) } else { Err(in_the_way()) };
        }
        let same = FileType::from_raw_mode(found.st_mode) == kind && is_same(&found)?;
        match same || self.there.overwrite {
            true => Ok(same),
            false => Err(Stop::This("what has its name already is not the same".to_owned())),
        }
    }

    /// Refuses to replace what this run reads, or writes beside the files.
    pub(super) fn refuse_own(&self, found: &Stat) -> Result<(), Stop> {
        let why = "what has its name is read by this command, or written otherwise: it is not replaced";
        match self.own.contains(&(found.st_dev, found.st_ino)) {
            true => Err(Stop::This(why.to_owned())),
            false => Ok(()),
        }
    }
}

/// Refuses a name that something has which came out in this run.
pub(super) fn refuse_what_came_out(place: &OutputDirectory, name: &[u8], found: &Stat) -> Result<(), Stop> {
    match place.has_come_out(name, found)? {
        true => Err(Stop::This("something of that name came out already".to_owned())),
        false => Ok(()),
    }
}

/// Whether a time is the wanted one, as far as the file system there keeps times: to a nanosecond,
/// 100 of them (NTFS), a microsecond, 10 ms (exFAT), a second (ext3) or two (FAT).
pub(super) fn is_time(found: (i64, u64), wanted: (i64, u64)) -> bool {
    const STEPS: [i128; 6] = [1, 100, 1_000, 10_000_000, 1_000_000_000, 2_000_000_000];
    let nanoseconds = |(seconds, below): (i64, u64)| i128::from(seconds) * 1_000_000_000 + i128::from(below);
    let (found, wanted) = (nanoseconds(found), nanoseconds(wanted));
    STEPS.iter().any(|step| wanted.div_euclid(*step) * step == found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared_as_far_as_they_are_kept() {
        let wanted = (1_700_000_001, 123_456_789);
        let kept = [
            wanted,
            (1_700_000_001, 123_456_700),
            (1_700_000_001, 123_456_000),
            (1_700_000_001, 120_000_000),
        ];
        for found in kept.into_iter().chain([(1_700_000_001, 0), (1_700_000_000, 0)]) {
            assert!(is_time(found, wanted), "{found:?}");
        }
        for found in
            [(1_700_000_001, 123_456_788), (1_700_000_002, 0), (1_699_999_999, 0), (1_700_000_001, 1)]
        {
            assert!(!is_time(found, wanted), "{found:?}");
        }
        // Before 1970 seconds are rounded down, too.
        assert!(is_time((-2, 0), (-2, 5)) && is_time((-2, 0), (-1, 0)));
    }
}
