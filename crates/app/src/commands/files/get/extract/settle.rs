//! What was made waits until it is durable, and then gets its name: a file that has its name, size
//! and time passes for the whole, with `--resume` also after a power cut.
//!
//! Making each file durable by itself costs a commit of the file system there for each: with small
//! files 8 (ext4), 12 (XFS) and 20 times (btrfs) as long as not doing so, where waiting for each
//! other takes 2 to 4 times. So everything on that file system is written back at once, and then
//! each file is asked by itself, which is fast by then and the only way to hear that the data of
//! this file could not be written. A file system that is asked as a whole does not say which file
//! it was, before Linux 5.8 not even that there was one, and some only write back and do not make
//! durable.
//!
//! What does not wait for a disk, such as links, takes its place in the order all the same: what is
//! listed comes in the order of the walk, and a directory gets its times after everything in it.

use std::fs::File;
use std::io;
use std::mem;
use std::rc::Rc;

use wattle_fs::{FileMetadata, FsNode};

use super::{Damage, ExtractCounts, Extraction, Stop, publish, publish_unnamed};
use crate::commands::files::place::OutputDirectory;
use crate::commands::files::{Failure, hex_unless_text, shown};
use crate::commands::loss::FileLoss;
use crate::output;

/// What waits at most: files and directories keep a descriptor open each. More gain little.
const WAITING_MAX: usize = 64;

/// Bytes of files that wait: more is under way to the disk anyhow.
const BYTES_MAX: u64 = 64 << 20;

/// What was made, or found, and is to count once it is durable.
pub(super) struct Made {
    pub counts: ExtractCounts,
    pub sum: Option<String>,
    pub rest: Rest,
}

/// What is still to be done.
pub(super) enum Rest {
    Nothing,
    /// It is to be durable, and then to get its name.
    File(Draft),
    /// It is to get its attributes, now that everything is in it.
    Directory(Rc<OutputDirectory>, FileMetadata),
}

/// A file that is whole, or all that there is of it, before it has its name.
pub(super) struct Draft {
    pub place: Rc<OutputDirectory>,
    pub file: File,
    /// Its temporary name, on a file system where every file has one.
    pub draft: Option<Vec<u8>>,
    pub name: Vec<u8>,
    /// Whether what has its name is replaced.
    pub replace: bool,
    pub size_bytes: u64,
    /// The parts of its path, if it has more names.
    pub named: Option<Vec<Vec<u8>>>,
    /// What is missing of it.
    pub damage: Option<Damage>,
}

/// Something of the tree, in the order of the walk.
pub(super) struct Waiting {
    /// The path from the root of what comes out.
    pub path: Vec<u8>,
    pub node: FsNode,
    pub made: Result<Made, Stop>,
}

impl Made {
    pub fn done(counts: ExtractCounts) -> Self {
        Self { counts, sum: None, rest: Rest::Nothing }
    }
}

impl Draft {
    /// Makes it durable, and gives it its name.
    fn finish(&self) -> Result<(), Stop> {
        let finished = sync(&self.file).map_err(Stop::not_durable).and_then(|()| match &self.draft {
            Some(draft) => publish(&self.place, draft, &self.name, self.replace),
            None => publish_unnamed(&self.place, &self.file, &self.name, self.replace),
        });
        if finished.is_err() {
            self.remove();
        }
        finished
    }

    /// Takes its temporary name away. It is gone already if it could not get its own.
    fn remove(&self) {
        if let Some(draft) = &self.draft {
            let _ = self.place.remove(draft);
        }
    }
}

/// A file system that keeps nothing in memory has nothing to make durable.
fn sync(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

impl Extraction<'_> {
    /// Takes what was made, and has all that waits settled if it is much.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        if let Ok(Made { rest: Rest::File(draft), .. }) = &waiting.made {
            self.drafts += 1;
            self.draft_bytes = self.draft_bytes.saturating_add(draft.size_bytes);
        }
        self.waiting.push(waiting);
        if self.draft_bytes >= BYTES_MAX || self.waiting.len() >= WAITING_MAX {
            self.settle();
        }
    }

    /// Whether a file waits whose name is to come.
    pub(super) fn waits(&self, node: FsNode) -> bool {
        let is_draft = |made: &Result<Made, Stop>| matches!(made, Ok(Made { rest: Rest::File(_), .. }));
        self.waiting.iter().any(|waiting| waiting.node == node && is_draft(&waiting.made))
    }

    /// Makes durable what waits, and names what could not be.
    pub(super) fn settle(&mut self) {
        if self.drafts > 1 {
            self.write_back();
        }
        (self.drafts, self.draft_bytes) = (0, 0);
        for Waiting { path, node, made } in mem::take(&mut self.waiting) {
            let settled = made.and_then(|made| self.settle_one(&path, node, made));
            match settled {
                Ok(()) => self.note_whole(&path, node),
                Err(Stop::This(reason)) => {
                    self.note_failure("not extracted", Failure::new(&path, reason));
                }
                Err(Stop::InPart(Damage { name, unreadable, reason })) => {
                    let attributes = self.attributes_left(node).all;
                    let above = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
                    let partial = [&path[..above], &name].concat();
                    let failure = Failure::new(&path, reason).in_part(&partial, &unreadable, attributes);
                    self.note_failure("extracted in part", failure);
                }
                Err(Stop::All(problem)) => {
                    let reason = format!("not made: {}", problem.what);
                    self.full.get_or_insert(problem);
                    self.note_failure("not extracted", Failure::new(&path, reason));
                }
            }
        }
    }

    /// Has everything on that file system written back. An error is not about one file: it may be
    /// the file system's own blocks, of which no file is told any more.
    fn write_back(&mut self) {
        match self.root.sync_file_system() {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput && !self.written_back_in_part => {
                self.written_back_in_part = true;
                let reason = format!("not everything could be written back where it goes: {error}");
                self.note_failure("perhaps not durable", Failure::new(b".", reason));
            }
            _ => {}
        }
    }

    fn settle_one(&mut self, path: &[u8], node: FsNode, made: Made) -> Result<(), Stop> {
        let Made { counts, sum, rest } = made;
        match rest {
            Rest::Nothing => {}
            Rest::Directory(directory, metadata) => {
                self.dress_directory(path, &directory, &metadata)?;
                // Last: a default access list passes to whatever is made in a directory.
                self.attach(&*directory, node);
                self.directories_to_sync.push((directory, path.to_vec()));
                if self.directories_to_sync.len() >= WAITING_MAX {
                    self.sync_directories();
                }
            }
            Rest::File(draft) => {
                if let Some(problem) = &self.full {
                    draft.remove();
                    return Err(Stop::This(format!("not made: {}", problem.what)));
                }
                draft.finish()?;
                if let Some(damage) = draft.damage {
                    return Err(Stop::InPart(damage));
                }
                if let Some(parts) = draft.named {
                    self.named.insert(node, (parts, sum.clone()));
                }
            }
        }
        self.counts += counts;
        if let (Some(checksums), Some(sum)) = (&mut self.checksums, sum) {
            checksums.add(path, &sum)?;
        }
        Ok(())
    }

    fn note_whole(&mut self, path: &[u8], node: FsNode) {
        let left = self.attributes_left(node);
        if let Some(failure) = left.failure(path) {
            self.note_failure("not extracted as a whole", failure);
        }
        if self.without_owner.contains(&node) {
            let reason = format!("without its owner or group: {} is none", u32::MAX);
            self.note_failure("not extracted as a whole", Failure::new(path, reason).of_whole());
        }
        if self.lists_whole || !left.is_empty() {
            self.whole.push(FileLoss::whole(shown(path), hex_unless_text(path), left.all));
        }
    }

    /// Gives a directory its attributes; those that would lock it to what is still to come, last.
    fn dress_directory(
        &mut self,
        path: &[u8],
        directory: &OutputDirectory,
        metadata: &FileMetadata,
    ) -> Result<(), Stop> {
        const ENTER: u32 = 0o500;
        if self.owner || metadata.mode & ENTER == ENTER {
            return Ok(directory.dress(metadata, self.owner)?);
        }
        // A further name of a file in it may be to come.
        directory.dress(&FileMetadata { mode: metadata.mode | ENTER, ..*metadata }, false)?;
        self.locked.push((path.to_vec(), *metadata));
        Ok(())
    }

    /// Makes names durable.
    fn sync_directories(&mut self) {
        self.write_back();
        for (directory, path) in mem::take(&mut self.directories_to_sync) {
            if let Err(error) = directory.sync() {
                self.note_failure(
                    "perhaps not durable",
                    Failure::new(&path, format!("names in it are perhaps not durable: {error}")),
                );
            }
        }
    }

    /// Settles everything: what is said to have come out is durable.
    pub(super) fn settle_all(&mut self) {
        self.settle();
        // What is in a directory comes before it.
        for (path, metadata) in mem::take(&mut self.locked) {
            let enter = || {
                let parts = path.split(|byte| *byte == b'/');
                let mut directory = self.root.enter(b".")?;
                for part in parts {
                    directory = directory.enter(part)?;
                }
                directory.dress(&metadata, false)
            };
            if let Err(error) = enter() {
                self.note_failure("not extracted", Failure::new(&path, format!("its permissions: {error}")));
            }
        }
        self.sync_directories();
        if let Err(error) = self.root.sync() {
            let reason = format!("names in it are perhaps not durable: {error}");
            self.note_failure("perhaps not durable", Failure::new(b".", reason));
            self.full.get_or_insert(output::output_failed(&error));
        }
    }
}
