//! A tree of files, from a file system into a directory.

mod attributes;
mod kept;
mod outcome;
mod salvage;
mod settle;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use rustix::fs::FileType;
use wattle_control::Problem;
use wattle_fs::{DirEntry, Error, FileKind, FileMetadata, FsNode};

use super::attributes::AttributesLeft;
use super::checksums::{Checksums, Sum};
use crate::commands::files::place::{OutputDirectory, device_of, dress, file_type, has_owners, is_name};
use crate::commands::files::{Failure, Opened, join, kind_name};
use crate::commands::loss::FileLoss;
use crate::output::{self, text::printable};
use kept::refuse_what_came_out;
use outcome::Stop;
pub use outcome::{ExtractCounts, Extracted};
use salvage::{Damage, PARTIAL};
use settle::{Draft, Made, Rest, Waiting};

/// Directories in directories that are followed. Each keeps a descriptor open, of which a process
/// has 1024 by default.
pub const DEPTH_MAX: usize = 500;

/// What becomes of what is there already.
#[derive(Debug, Clone, Copy)]
pub struct WhatIsThere {
    /// It is replaced, once what replaces it is whole.
    pub overwrite: bool,
    /// What is the same stays, and counts as having come out.
    pub resume: bool,
}

/// What of a file comes out.
#[derive(Debug, Clone, Copy)]
pub struct WhatComesOut {
    /// What can be read of damaged files, too.
    pub partial: bool,
    /// Extended attributes, too.
    pub attributes: bool,
}

/// What is under way.
pub struct Extraction<'a> {
    opened: &'a Opened,
    root: Rc<OutputDirectory>,
    checksums: Option<Checksums>,
    there: WhatIsThere,
    wanted: WhatComesOut,
    /// Whether all that came out is to be listed.
    lists_whole: bool,
    /// What came out, if that is to be listed, or has extended attributes, which did not.
    whole: Vec<FileLoss>,
    /// Extended attributes that were to come out and did not.
    attributes_left: RefCell<BTreeMap<FsNode, AttributesLeft>>,
    /// Why nothing more can be written, once that is so.
    full: Option<Problem>,
    /// What is read, and what else is written, by device and inode: it is not replaced.
    own: Vec<(u64, u64)>,
    /// What waits to be durable, and what of it are files, and how much.
    waiting: Vec<Waiting>,
    drafts: usize,
    draft_bytes: u64,
    /// Directories whose names are not durable yet.
    directories_to_sync: Vec<(Rc<OutputDirectory>, Vec<u8>)>,
    /// Directories that would keep out what is still to come, with what they are to have.
    locked: Vec<(Vec<u8>, FileMetadata)>,
    /// Whether something could not be written back, which was said.
    written_back_in_part: bool,
    /// Whether owners can be given.
    owner: bool,
    counts: ExtractCounts,
    failures: Vec<Failure>,
    /// What has an owner or group that is none.
    without_owner: BTreeSet<FsNode>,
    /// Directories that came out: in a damaged file system one may be in itself.
    directories: BTreeSet<FsNode>,
    /// What has several names and is no directory, and the first, part by part, with the sum.
    named: BTreeMap<FsNode, (Vec<Vec<u8>>, Option<String>)>,
    /// Where we are: the parts of the path.
    way: Vec<Vec<u8>>,
    /// Names in this directory that look like those of files that came out in part.
    taken: BTreeSet<Vec<u8>>,
    progress: ProgressBar,
}

impl<'a> Extraction<'a> {
    pub fn new(
        opened: &'a Opened,
        root: OutputDirectory,
        checksums: Option<Checksums>,
        there: WhatIsThere,
        wanted: WhatComesOut,
        lists_whole: bool,
        progress: ProgressBar,
    ) -> Self {
        Self {
            opened,
            root: Rc::new(root),
            checksums,
            there,
            wanted,
            lists_whole,
            whole: Vec::new(),
            attributes_left: RefCell::default(),
            full: None,
            own: Vec::new(),
            waiting: Vec::new(),
            drafts: 0,
            draft_bytes: 0,
            directories_to_sync: Vec::new(),
            locked: Vec::new(),
            written_back_in_part: false,
            owner: rustix::process::geteuid().is_root(),
            counts: ExtractCounts::default(),
            failures: Vec::new(),
            without_owner: BTreeSet::new(),
            directories: BTreeSet::new(),
            named: BTreeMap::new(),
            way: Vec::new(),
            taken: BTreeSet::new(),
            progress,
        }
    }

    /// Keeps these files, by device and inode, from being replaced: members, and what is written
    /// beside the files.
    pub fn spare(&mut self, own: Vec<(u64, u64)>) {
        self.own = own;
    }

    /// Puts one file, or a directory with all below, into the directory.
    pub fn one(&mut self, name: &[u8], node: FsNode) {
        self.entry(&self.root.clone(), name, node);
    }

    /// Puts what is in a directory into the directory.
    pub fn content(&mut self, directory: FsNode) {
        self.directories.insert(directory);
        self.entries(&self.root.clone(), directory);
    }

    /// How much came out, what of it if that is listed, and what did not; and why nothing more
    /// could be written, if that ended it.
    pub fn finish(mut self) -> Extracted {
        self.settle_all();
        self.progress.finish_and_clear();
        let summed = self.checksums.map_or(Ok(()), Checksums::finish);
        let counts = ExtractCounts { not_extracted: self.failures.len() as u64, ..self.counts };
        Extracted { counts, whole: self.whole, failures: self.failures, full: self.full, summed }
    }

    fn failed(&mut self, name: &[u8], reason: String) {
        let failure = Failure::new(&self.path_of(name), reason);
        self.note_failure("not extracted", failure);
    }

    fn note_failure(&mut self, what: &str, failure: Failure) {
        let line = printable(&format!("{what}: {}: {}", failure.path, failure.reason));
        self.progress.suspend(|| output::note(&line));
        self.failures.push(failure);
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        join(&self.way.join(&b'/'), name)
    }

    fn parts_of(&self, name: &[u8]) -> Vec<Vec<u8>> {
        self.way.iter().cloned().chain([name.to_vec()]).collect()
    }

    /// Names what cannot come out any more, with everything below.
    fn missing(&mut self, name: &[u8], node: FsNode) {
        let why = self.full.as_ref().map_or(String::new(), |problem| problem.what.clone());
        self.failed(name, format!("not made: {why}"));
        let is_directory =
            self.opened.fs.metadata(node).is_ok_and(|metadata| metadata.kind == FileKind::Directory);
        let is_new = is_directory && !self.opened.fs.is_stub(node) && self.directories.insert(node);
        if !is_new || self.way.len() >= DEPTH_MAX {
            return;
        }
        self.way.push(name.to_vec());
        for entry in self.listed(node) {
            self.missing(&entry.name, entry.node);
        }
        self.way.pop();
    }

    fn listed(&mut self, directory: FsNode) -> Vec<DirEntry> {
        let mut entries = Vec::new();
        let listed = self.opened.fs.list(directory, &mut |entry| {
            entries.push(entry);
            Ok(())
        });
        if let Err(error) = listed {
            self.settle();
            self.failed(b"", format!("entries may be missing: {error}"));
        }
        entries
    }

    fn entries(&mut self, place: &Rc<OutputDirectory>, directory: FsNode) {
        let entries = self.listed(directory);
        let looks_partial = |entry: &&DirEntry| entry.name.ends_with(PARTIAL);
        let taken = entries.iter().filter(looks_partial).map(|entry| entry.name.clone()).collect();
        let above = std::mem::replace(&mut self.taken, taken);
        for entry in entries {
            self.entry(place, &entry.name, entry.node);
        }
        self.taken = above;
    }

    fn entry(&mut self, place: &Rc<OutputDirectory>, name: &[u8], node: FsNode) {
        if self.full.is_some() {
            return self.missing(name, node);
        }
        let mut made = self.extract(place, name, node);
        if matches!(made, Err(Stop::All(_))) && self.drafts > 0 && !self.directories.contains(&node) {
            // What waits takes the place of what it replaces, and that is room.
            self.settle();
            if self.full.is_none() {
                made = self.extract(place, name, node);
            }
        }
        match made {
            Err(Stop::All(problem)) => {
                self.settle();
                self.full.get_or_insert(problem);
                self.missing(name, node);
            }
            made => {
                let path = self.path_of(name);
                self.wait(Waiting { path, node, made });
            }
        }
    }

    fn extract(&mut self, place: &Rc<OutputDirectory>, name: &[u8], node: FsNode) -> Result<Made, Stop> {
        if !is_name(name) {
            return Err(Stop::This("its name is not one that a file can have".to_owned()));
        }
        let metadata = self.opened.fs.metadata(node)?;
        if self.owner && !has_owners(&metadata) {
            self.without_owner.insert(node);
        }
        // Its first name is perhaps not there yet.
        if metadata.links > 1 && self.waits(node) {
            self.settle();
        }
        if let Some((first, sum)) = self.named.get(&node) {
            let kept = self.link(place, name, first)?;
            let counts = ExtractCounts { hard_links: 1, kept: kept.into(), ..ExtractCounts::default() };
            return Ok(Made { sum: sum.clone(), ..Made::done(counts) });
        }
        let kept = match metadata.kind {
            FileKind::Directory => return self.directory(place, name, node, &metadata),
            FileKind::File => return self.file(place, name, node, &metadata),
            FileKind::Symlink => {
                let target = self.opened.fs.link(node)?;
                let kept =
                    self.is_kept(place, name, FileType::Symlink, |_| Ok(place.read_link(name)? == target))?;
                if !kept {
                    let dress = |draft: &[u8]| self.dress_name(place, draft, node, &metadata);
                    self.draft(place, name, |draft| place.make_symlink(draft, &target), dress)?;
                }
                kept
            }
            FileKind::Fifo => {
                let kept = self.is_kept(place, name, FileType::Fifo, |_| Ok(true))?;
                if !kept {
                    let dress = |draft: &[u8]| self.dress_name(place, draft, node, &metadata);
                    self.draft(place, name, |draft| place.make_fifo(draft), dress)?;
                }
                kept
            }
            kind @ (FileKind::CharDevice | FileKind::BlockDevice) => {
                let Some(device) = metadata.device.filter(|_| self.owner) else {
                    return Err(Stop::This(format!("a {} is made by root alone", kind_name(kind))));
                };
                let of_kind = file_type(kind);
                let kept = self.is_kept(place, name, of_kind, |found| Ok(device_of(found) == device))?;
                if !kept {
                    let dress = |draft: &[u8]| self.dress_name(place, draft, node, &metadata);
                    self.draft(place, name, |draft| place.make_device(draft, of_kind, device), dress)?;
                }
                kept
            }
            FileKind::Socket => return Err(Stop::This("a socket is not made".to_owned())),
        };
        if kept && let Some(found) = place.look(name)? {
            place.note_came_out(name, &found);
        }
        if metadata.links > 1 {
            self.named.insert(node, (self.parts_of(name), None));
        }
        Ok(Made::done(ExtractCounts::one(metadata.kind, kept)))
    }

    fn directory(
        &mut self,
        place: &OutputDirectory,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<Made, Stop> {
        if self.directories.contains(&node) {
            return Err(Stop::This("the directory came out already, elsewhere".to_owned()));
        }
        if self.way.len() >= DEPTH_MAX {
            return Err(Stop::This(format!("it is below {DEPTH_MAX} directories")));
        }
        let inner = Rc::new(self.make_directory(place, name)?);
        // One that there is no room for is still to come, with all below.
        if !self.opened.fs.is_stub(node) {
            self.directories.insert(node);
        }
        self.way.push(name.to_vec());
        self.entries(&inner, node);
        self.way.pop();
        let counts = ExtractCounts::one(FileKind::Directory, false);
        Ok(Made { counts, sum: None, rest: Rest::Directory(inner, *metadata) })
    }

    fn file(
        &mut self,
        place: &Rc<OutputDirectory>,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<Made, Stop> {
        self.progress.set_message(printable(&String::from_utf8_lossy(name)));
        let named = (metadata.links > 1).then(|| self.parts_of(name));
        let counts =
            |kept| ExtractCounts { bytes: metadata.size_bytes, ..ExtractCounts::one(FileKind::File, kept) };
        if let Some(sum) = self.kept_file(place, name, node, metadata)? {
            self.dress_kept(place, name, node, metadata)?;
            self.progress.inc(metadata.stored_bytes.min(metadata.size_bytes));
            if let Some(parts) = named {
                self.named.insert(node, (parts, sum.clone()));
            }
            return Ok(Made { sum, ..Made::done(counts(true)) });
        }
        let (draft, sum) = self.new_file(place, name, node, metadata)?;
        Ok(Made { counts: counts(false), sum, rest: Rest::File(Draft { named, ..draft }) })
    }

    /// The sum of a file as it is in the file system.
    fn sum_of(&self, node: FsNode, metadata: &FileMetadata) -> Result<String, Stop> {
        let (mut sum, mut at) = (Sum::new(), 0);
        let read = self.opened.fs.read(node, 0..u64::MAX, &mut |offset, bytes| {
            sum.data(offset, bytes);
            at = offset + bytes.len() as u64;
            Ok(())
        });
        read.map_err(|error| Stop::This(self.opened.unreadable_part(node, at, metadata.size_bytes, &error)))?;
        Ok(sum.finish(metadata.size_bytes))
    }

    /// Makes a file without a name, or under a temporary one; it gets its own once it is whole and
    /// durable: half a file under its name would pass for the whole, and what has the name is lost
    /// before that.
    fn new_file(
        &self,
        place: &Rc<OutputDirectory>,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<(Draft, Option<String>), Stop> {
        let (draft, mut file) = match place.make_unnamed()? {
            Some(file) => (None, file),
            None => {
                let (draft, file) = make_draft(|draft| place.make_file(draft))?;
                (Some(draft), file)
            }
        };
        let filled = match self.fill(&mut file, node, metadata) {
            Err(Stop::This(reason)) if self.wanted.partial => {
                self.salvage(&file, name, node, metadata, &reason).map(|damage| (None, Some(damage)))
            }
            filled => filled.map(|sum| (sum, None)),
        };
        let dressed = filled.and_then(|filled| {
            dress(&file, metadata, self.owner)?;
            self.attach(&file, node);
            let again = |damage: &Damage| self.is_replaced(place, &damage.name, metadata);
            Ok((filled.1.as_ref().map_or(Ok(self.there.overwrite), again)?, filled))
        });
        match dressed {
            Ok((replace, (sum, damage))) => {
                let name = damage.as_ref().map_or(name, |damage| &damage.name).to_vec();
                let size_bytes = metadata.stored_bytes.min(metadata.size_bytes);
                let place = place.clone();
                let named = None;
                Ok((Draft { place, file, draft, name, replace, size_bytes, named, damage }, sum))
            }
            Err(stop) => {
                drop(file);
                draft.map_or(Ok(()), |draft| place.remove(&draft))?;
                Err(stop)
            }
        }
    }

    /// Writes a file's data where it is; what is not written is a hole.
    fn fill(&self, file: &mut File, node: FsNode, metadata: &FileMetadata) -> Result<Option<String>, Stop> {
        file.set_len(metadata.size_bytes)?;
        let mut sum = self.checksums.is_some().then(Sum::new);
        let (mut at, mut failed) = (0, None);
        let progress = &self.progress;
        let read = self.opened.fs.read(node, 0..u64::MAX, &mut |offset, bytes| {
            if let Some(sum) = &mut sum {
                sum.data(offset, bytes);
            }
            progress.inc(bytes.len() as u64);
            at = offset + bytes.len() as u64;
            file.write_all_at(bytes, offset).map_err(|error| {
                failed = Some(error);
                Error::Stopped
            })
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        read.map_err(|error| Stop::This(self.opened.unreadable_part(node, at, metadata.size_bytes, &error)))?;
        Ok(sum.map(|sum| sum.finish(metadata.size_bytes)))
    }

    /// Makes something under a temporary name, dresses it, and gives it its own.
    fn draft(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        make: impl Fn(&[u8]) -> io::Result<()>,
        dress: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> Result<(), Stop> {
        let (draft, ()) = make_draft(make)?;
        let dressed = dress(&draft).map_err(Stop::from);
        let published = dressed.and_then(|()| publish(place, &draft, name, self.there.overwrite));
        if published.is_err() {
            // It is gone already if it could not get its name.
            let _ = place.remove(&draft);
        }
        published
    }

    /// Makes a directory, unless it is there; what else has the name is replaced only if that was
    /// asked for. One that came out in this run is another one's, and its files are not put among
    /// those of that.
    fn make_directory(&self, place: &OutputDirectory, name: &[u8]) -> Result<OutputDirectory, Stop> {
        if self.there.resume && !self.owner {
            // One that a former run made may be locked: it gets its permissions again.
            place.unlock(name)?;
        }
        let made = match place.make_directory(name) {
            Err(error) if is_there(&error) && self.there.overwrite => {
                if let Some(found) = place.look(name)? {
                    self.refuse_own(&found)?;
                    refuse_what_came_out(place, name, &found)?;
                }
                place.remove(name).map_err(|_| in_the_way())?;
                place.make_directory(name)?
            }
            Err(error) if is_there(&error) => return Err(in_the_way()),
            made => made?,
        };
        let found = made.found()?;
        refuse_what_came_out(place, name, &found)?;
        place.note_came_out(name, &found);
        Ok(made)
    }
}

/// Gives what was made under a temporary name its own. Whatever else it may replace, nothing of
/// this run is: what looked free when it was begun may have come out since.
fn publish(place: &OutputDirectory, draft: &[u8], name: &[u8], replace: bool) -> Result<(), Stop> {
    if let Some(found) = place.look(name)? {
        refuse_what_came_out(place, name, &found)?;
    }
    match place.publish(draft, name, replace) {
        Err(error) if is_there(&error) => Err(in_the_way()),
        published => Ok(published?),
    }
}

/// Gives a file without a name its own. What it replaces, if it may, is replaced by a name: so it
/// gets a temporary one first.
fn publish_unnamed(place: &OutputDirectory, file: &File, name: &[u8], replace: bool) -> Result<(), Stop> {
    match place.name_file(file, name) {
        Err(error) if is_there(&error) => {
            let (draft, ()) = make_draft(|draft| place.name_file(file, draft))?;
            let published = publish(place, &draft, name, replace);
            if published.is_err() {
                // It is gone already if it could not get its name.
                let _ = place.remove(&draft);
            }
            published
        }
        named => {
            named?;
            place.note_came_out(name, &rustix::fs::fstat(file).map_err(io::Error::from)?);
            Ok(())
        }
    }
}

fn in_the_way() -> Stop {
    Stop::This("something of that name is there already".to_owned())
}

/// Makes something under a name that nothing has. Numbers of processes come again, in containers
/// at once: what another run left, or works at, is passed over and stays.
fn make_draft<T>(make: impl Fn(&[u8]) -> io::Result<T>) -> io::Result<(Vec<u8>, T)> {
    const TRIES: usize = 1 << 16;
    for _ in 0..TRIES {
        let draft = draft_name();
        match make(&draft) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((draft, made?)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A name of this process, used once.
fn draft_name() -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".wattle-{}-{number}.part", std::process::id()).into_bytes()
}

/// Also: a directory was to be made where something else is.
fn is_there(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory};
    matches!(error.kind(), AlreadyExists | NotADirectory | IsADirectory)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_name_of_a_draft_is_passed_over() {
        let there = std::cell::Cell::new(3);
        let (_, made) = make_draft(|_| match there.replace(there.get() - 1) {
            0 => Ok(7),
            _ => Err(io::ErrorKind::AlreadyExists.into()),
        })
        .unwrap();
        assert_eq!(made, 7);
    }
}
