//! What is to come out, before anything does: how much it is, and whether there is room for it.

use std::collections::BTreeSet;
use std::path::Path;

use indicatif::ProgressBar;
use rustix::fs::FileType;
use wattle_control::units::Units;
use wattle_control::{Check, Code, Problem};
use wattle_fs::{FileKind, FsNode};

use super::extract::DEPTH_MAX;
use crate::commands::files::Opened;
use crate::commands::files::place::OutputDirectory;

/// What a file or a directory takes at least, where it goes: a block.
const BLOCK_BYTES: u64 = 4096;

/// What is to come out. Damaged things are left out: they are told when they are to come out.
#[derive(Debug, Default)]
pub struct Survey {
    /// Data of all files, holes left out, as it is stored.
    pub data_bytes: u64,
    /// What has to be free for it, beside what is there already.
    needed_bytes: u64,
    /// The largest file of which something is there: for a moment both are, where it is replaced.
    largest_there: u64,
    /// Things to be made.
    needed_files: u64,
    directories: BTreeSet<FsNode>,
    /// Files with several names.
    named: BTreeSet<FsNode>,
}

/// Whether a file can have so much data: more than its file system holds is damage. What btrfs
/// compresses it counts as it was before.
fn can_hold(opened: &Opened, data_bytes: u64) -> bool {
    let about = opened.fs.about();
    data_bytes <= about.size_bytes || about.kind == "btrfs"
}

impl Survey {
    /// Of one thing with all below, which goes by this name into the directory.
    pub fn one(
        opened: &Opened,
        place: &OutputDirectory,
        name: &[u8],
        node: FsNode,
        shown: &ProgressBar,
    ) -> Self {
        let mut survey = Self::default();
        survey.entry(opened, Some(place), name, node, 0, shown);
        survey
    }

    /// Of what is in a directory, which goes into this one.
    pub fn content(opened: &Opened, place: &OutputDirectory, directory: FsNode, shown: &ProgressBar) -> Self {
        let mut survey = Self::default();
        survey.directories.insert(directory);
        survey.entries(opened, Some(place), directory, 0, shown);
        survey
    }

    fn entries(
        &mut self,
        opened: &Opened,
        place: Option<&OutputDirectory>,
        directory: FsNode,
        depth: usize,
        shown: &ProgressBar,
    ) {
        let mut entries = Vec::new();
        // What is there of a damaged one counts.
        let _ = opened.fs.list(directory, &mut |entry| {
            entries.push(entry);
            Ok(())
        });
        for entry in entries {
            self.entry(opened, place, &entry.name, entry.node, depth, shown);
        }
    }

    fn entry(
        &mut self,
        opened: &Opened,
        place: Option<&OutputDirectory>,
        name: &[u8],
        node: FsNode,
        depth: usize,
        shown: &ProgressBar,
    ) {
        let Ok(metadata) = opened.fs.metadata(node) else { return };
        let there = place.and_then(|place| place.look(name).ok()?);
        self.needed_files += u64::from(there.is_none());
        shown.tick();
        match metadata.kind {
            FileKind::Directory => {
                let is_new = opened.fs.is_stub(node) || self.directories.insert(node);
                if !is_new || depth >= DEPTH_MAX {
                    return;
                }
                self.needed_bytes += if there.is_none() { BLOCK_BYTES } else { 0 };
                let inner = there.and_then(|_| place?.enter(name).ok());
                self.entries(opened, inner.as_ref(), node, depth + 1, shown);
            }
            FileKind::File if metadata.links < 2 || self.named.insert(node) => {
                let data = metadata.stored_bytes.min(metadata.size_bytes);
                if !can_hold(opened, data) {
                    return;
                }
                // What is stored in an inode has no block of its own.
                let data = if data == 0 { metadata.size_bytes.min(BLOCK_BYTES) } else { data };
                let is_file = |found: &rustix::fs::Stat| {
                    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
                };
                let taken = there.filter(is_file).map_or(0, |found| found.st_blocks.cast_unsigned() * 512);
                self.data_bytes = self.data_bytes.saturating_add(data);
                if taken > 0 {
                    self.largest_there = self.largest_there.max(data);
                }
                let needed = data.next_multiple_of(BLOCK_BYTES).saturating_sub(taken);
                self.needed_bytes = self.needed_bytes.saturating_add(needed);
            }
            _ => {}
        }
    }

    /// Refuses what does not fit; `replaces` says whether files that are there are made anew.
    ///
    /// # Errors
    /// [`Code::NoRoom`], with both figures.
    pub fn check_room(
        &self,
        place: &OutputDirectory,
        to: &Path,
        units: Units,
        replaces: bool,
    ) -> Result<(), Problem> {
        // A file system that does not say what is free does not say that it is too little.
        let Ok((free_bytes, free_files)) = place.room() else { return Ok(()) };
        let moment = if replaces { self.largest_there } else { 0 };
        let needed_bytes = self.needed_bytes.saturating_add(moment);
        let (needed, free) = (units.show(needed_bytes), units.show(free_bytes));
        let (what, why) = match free_files.filter(|free| *free < self.needed_files) {
            _ if needed_bytes > free_bytes => (
                format!("{needed} are needed, and {free} are free"),
                "what is to come out, holes left out, is compared with what is free before anything is written; what is compressed \
                 comes out as it was before, and what is allocated and was never written counts",
            ),
            Some(free_files) => (
                format!("{} files are to be made, and {free_files} can be", self.needed_files),
                "the file system there has so many inodes and no more",
            ),
            None => return Ok(()),
        };
        Err(Problem::new(
            Code::NoRoom,
            format!("{}: {what}", to.display()),
            why,
            "make room, or take a part with --path; --force=space begins all the same, and --resume goes on where it stopped",
        )
        .forced_by(Check::Space))
    }
}
