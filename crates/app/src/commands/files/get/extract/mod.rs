//! A tree of files, from a file system into a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use rustix::fs::{FileType, Stat};
use serde::Serialize;
use wattle_control::Problem;
use wattle_fs::{DirEntry, Error, FileKind, FileMetadata, FsNode};

use super::checksums::{Checksums, Sum, sum_of_file};
use crate::commands::files::place::{OutputDirectory, dress, is_name};
use crate::commands::files::{Failure, Opened, hex_unless_text, join, kind_name, shown};
use crate::commands::loss::FileLoss;
use crate::output::{self, text::printable};

/// Directories in directories that are followed. Each keeps a descriptor open, of which a process
/// has 1024 by default.
pub const DEPTH_MAX: usize = 500;

/// What came out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExtractCounts {
    files: u64,
    directories: u64,
    symlinks: u64,
    /// Further names of files that came out.
    hard_links: u64,
    fifos: u64,
    /// Of files, holes included.
    bytes: u64,
    /// Of all these, how many were there already, and are the same.
    kept: u64,
    #[serde(skip)]
    pub not_extracted: u64,
}

impl fmt::Display for ExtractCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = self.symlinks + self.hard_links + self.fifos;
        write!(
            f,
            "{} files ({} bytes), {} directories, {links} links and pipes",
            self.files, self.bytes, self.directories
        )?;
        match self.kept {
            0 => Ok(()),
            kept => write!(f, " ({kept} of them from before)"),
        }
    }
}

impl ExtractCounts {
    /// All that came out.
    pub fn whole(self) -> u64 {
        self.files + self.directories + self.symlinks + self.hard_links + self.fifos
    }
}

/// What became of everything.
pub struct Extracted {
    pub counts: ExtractCounts,
    /// What came out, if that is listed or has extended attributes.
    pub whole: Vec<FileLoss>,
    pub failures: Vec<Failure>,
    /// Why nothing more could be written, if that ended it.
    pub full: Option<Problem>,
}

/// What is missing of a file that came out in part.
struct Damage {
    name: Vec<u8>,
    unreadable: Vec<Range<u64>>,
    reason: String,
}

/// Why one thing did not come out, or why nothing more will.
enum Stop {
    /// It cannot be read, or not be made.
    This(String),
    /// It cannot be read as a whole, and is there in part under another name.
    InPart(Damage),
    /// The output is full or gone.
    All(Problem),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::This(error.to_string())
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::All(problem)
    }
}

impl From<io::Error> for Stop {
    /// Whatever else is written then would fail, too.
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded | ReadOnlyFilesystem => {
                Self::All(Problem { what: error.to_string(), ..output::output_failed(&error) })
            }
            _ => Self::This(format!("not made: {error}")),
        }
    }
}

/// What becomes of what is there already.
#[derive(Debug, Clone, Copy)]
pub struct WhatIsThere {
    /// It is replaced, once what replaces it is whole.
    pub overwrite: bool,
    /// What is the same stays, and counts as having come out.
    pub resume: bool,
}

/// What a file that came out in part is called: its name and this.
const PARTIAL: &[u8] = b".partial";

/// What is under way.
pub struct Extraction<'a> {
    opened: &'a Opened,
    root: OutputDirectory,
    checksums: Option<Checksums>,
    there: WhatIsThere,
    /// Whether what can be read of damaged files comes out.
    partial: bool,
    /// Whether all that came out is to be listed.
    lists_whole: bool,
    /// What came out, if that is to be listed, or has extended attributes, which did not.
    whole: Vec<FileLoss>,
    /// Why nothing more can be written, once that is so.
    full: Option<Problem>,
    /// Whether owners can be given.
    owner: bool,
    counts: ExtractCounts,
    failures: Vec<Failure>,
    /// Directories that came out: in a damaged file system one may be in itself.
    directories: BTreeSet<FsNode>,
    /// Files with several names, and the first, part by part, with the sum.
    named: BTreeMap<FsNode, (Vec<Vec<u8>>, Option<String>)>,
    /// Where we are: the parts of the path.
    way: Vec<Vec<u8>>,
    progress: ProgressBar,
}

impl<'a> Extraction<'a> {
    pub fn new(
        opened: &'a Opened,
        root: OutputDirectory,
        checksums: Option<Checksums>,
        there: WhatIsThere,
        partial: bool,
        lists_whole: bool,
        progress: ProgressBar,
    ) -> Self {
        Self {
            opened,
            root,
            checksums,
            there,
            partial,
            lists_whole,
            whole: Vec::new(),
            full: None,
            owner: rustix::process::geteuid().is_root(),
            counts: ExtractCounts::default(),
            failures: Vec::new(),
            directories: BTreeSet::new(),
            named: BTreeMap::new(),
            way: Vec::new(),
            progress,
        }
    }

    /// Puts one file, or a directory with all below, into the directory.
    ///
    /// # Errors
    /// The directory cannot be entered.
    pub fn one(&mut self, name: &[u8], node: FsNode) -> Result<(), Problem> {
        let root = self.root.enter(b".").map_err(|error| output::output_failed(&error))?;
        self.entry(&root, name, node);
        Ok(())
    }

    /// Puts what is in a directory into the directory.
    ///
    /// # Errors
    /// The directory cannot be entered.
    pub fn content(&mut self, directory: FsNode) -> Result<(), Problem> {
        self.directories.insert(directory);
        let root = self.root.enter(b".").map_err(|error| output::output_failed(&error))?;
        self.entries(&root, directory);
        Ok(())
    }

    /// How much came out, what of it if that is listed, and what did not; and why nothing more
    /// could be written, if that ended it.
    ///
    /// # Errors
    /// The checksums cannot be written.
    pub fn finish(self) -> Result<Extracted, Problem> {
        self.progress.finish_and_clear();
        let summed = self.checksums.map_or(Ok(()), Checksums::finish);
        let counts = ExtractCounts { not_extracted: self.failures.len() as u64, ..self.counts };
        match (summed, self.full) {
            (Err(problem), None) => Err(problem),
            (_, full) => Ok(Extracted { counts, whole: self.whole, failures: self.failures, full }),
        }
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
            self.failed(b"", format!("entries may be missing: {error}"));
        }
        entries
    }

    fn entries(&mut self, place: &OutputDirectory, directory: FsNode) {
        for entry in self.listed(directory) {
            self.entry(place, &entry.name, entry.node);
        }
    }

    fn entry(&mut self, place: &OutputDirectory, name: &[u8], node: FsNode) {
        if self.full.is_some() {
            return self.missing(name, node);
        }
        match self.extract(place, name, node) {
            Ok(()) => {
                let attributes = self.opened.attributes_of(node);
                if self.lists_whole || !attributes.is_empty() {
                    let path = self.path_of(name);
                    self.whole.push(FileLoss::whole(shown(&path), hex_unless_text(&path), attributes));
                }
            }
            Err(Stop::This(reason)) => self.failed(name, reason),
            Err(Stop::InPart(Damage { name: partial, unreadable, reason })) => {
                let failure = Failure::new(&self.path_of(name), reason);
                let attributes = self.opened.attributes_of(node);
                let failure = failure.in_part(&self.path_of(&partial), &unreadable, attributes);
                self.note_failure("extracted in part", failure);
            }
            Err(Stop::All(problem)) => {
                self.full = Some(problem);
                self.missing(name, node);
            }
        }
    }

    fn extract(&mut self, place: &OutputDirectory, name: &[u8], node: FsNode) -> Result<(), Stop> {
        if !is_name(name) {
            return Err(Stop::This("its name is not one that a file can have".to_owned()));
        }
        let metadata = self.opened.fs.metadata(node)?;
        match metadata.kind {
            FileKind::Directory => self.directory(place, name, node, &metadata),
            FileKind::File => self.file(place, name, node, &metadata),
            FileKind::Symlink => {
                let target = self.opened.fs.link(node)?;
                let is_same = |_: &Stat| Ok(place.read_link(name)? == target);
                if self.is_kept(place, name, FileType::Symlink, is_same)? {
                    self.counts.kept += 1;
                } else {
                    self.draft(place, name, |place, draft| {
                        place.make_symlink(draft, &target)?;
                        place.dress_name(draft, &metadata, self.owner)
                    })?;
                }
                self.counts.symlinks += 1;
                Ok(())
            }
            FileKind::Fifo => {
                if self.is_kept(place, name, FileType::Fifo, |_| Ok(true))? {
                    self.counts.kept += 1;
                } else {
                    self.draft(place, name, |place, draft| {
                        place.make_fifo(draft)?;
                        place.dress_name(draft, &metadata, self.owner)
                    })?;
                }
                self.counts.fifos += 1;
                Ok(())
            }
            kind => Err(Stop::This(format!("a {} is not made", kind_name(kind)))),
        }
    }

    fn directory(
        &mut self,
        place: &OutputDirectory,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<(), Stop> {
        if !self.opened.fs.is_stub(node) && !self.directories.insert(node) {
            return Err(Stop::This("the directory came out already, elsewhere".to_owned()));
        }
        if self.way.len() >= DEPTH_MAX {
            return Err(Stop::This(format!("it is below {DEPTH_MAX} directories")));
        }
        let inner = self.make_directory(place, name)?;
        self.counts.directories += 1;
        self.way.push(name.to_vec());
        self.entries(&inner, node);
        self.way.pop();
        Ok(inner.dress(metadata, self.owner)?)
    }

    fn file(
        &mut self,
        place: &OutputDirectory,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<(), Stop> {
        if let Some((first, sum)) = self.named.get(&node) {
            let (parts, from_name) = first.split_at(first.len() - 1);
            let mut from = self.root.enter(b".")?;
            for part in parts {
                from = from.enter(part)?;
            }
            let first = from.look(&from_name[0])?;
            let is_same = |found: &Stat| {
                Ok(first.is_some_and(|first| (first.st_dev, first.st_ino) == (found.st_dev, found.st_ino)))
            };
            if self.is_kept(place, name, FileType::RegularFile, is_same)? {
                self.counts.kept += 1;
            } else {
                self.draft(place, name, |place, draft| place.make_link(draft, &from, &from_name[0]))?;
            }
            self.counts.hard_links += 1;
            let sum = sum.clone();
            return self.note_sum(name, sum.as_deref());
        }
        self.progress.set_message(printable(&String::from_utf8_lossy(name)));
        let sum = match self.kept_file(place, name, node, metadata)? {
            Some(sum) => {
                self.counts.kept += 1;
                self.progress.inc(metadata.stored_bytes.min(metadata.size_bytes));
                sum
            }
            None => self.new_file(place, name, node, metadata)?,
        };
        self.counts.files += 1;
        self.counts.bytes += metadata.size_bytes;
        self.note_sum(name, sum.as_deref())?;
        if metadata.links > 1 {
            let parts = self.way.iter().cloned().chain([name.to_vec()]).collect();
            self.named.insert(node, (parts, sum));
        }
        Ok(())
    }

    /// The file that is there under this name, if it is the same: by its size and time, or by its
    /// content where sums are wanted. With its sum.
    fn kept_file(
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
                return Ok((found.st_mtime, found.st_mtime_nsec) == time);
            }
            let wanted = self.sum_of(node, metadata)?;
            let same = wanted == sum_of_file(&place.open_file(name)?, metadata.size_bytes)?;
            sum = Some(wanted);
            Ok(same)
        };
        let kept = self.is_kept(place, name, FileType::RegularFile, is_same)?;
        Ok(kept.then_some(sum))
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

    /// Makes a file under a temporary name, and gives it its own once it is whole: half a file
    /// under its name would pass for the whole, and what has the name is lost before that.
    fn new_file(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<Option<String>, Stop> {
        let draft = draft_name();
        let mut file = place.make_file(&draft)?;
        let filled = match self.fill(&mut file, node, metadata) {
            Err(Stop::This(reason)) if self.partial => self.salvage(&file, name, node, metadata, &reason),
            filled => filled.map(Ok),
        };
        let dressed = filled.and_then(|filled| {
            dress(&file, metadata, self.owner)?;
            // Another file is given up for it.
            if self.there.overwrite {
                file.sync_all()?;
            }
            Ok(filled)
        });
        match dressed {
            Ok(Ok(sum)) => {
                self.publish(place, &draft, name, self.there.overwrite)?;
                Ok(sum)
            }
            // What came out in part before is of the same file.
            Ok(Err(damage)) => {
                let again = self.there.overwrite || self.there.resume;
                self.publish(place, &draft, &damage.name, again)?;
                Err(Stop::InPart(damage))
            }
            Err(stop) => {
                drop(file);
                place.remove(&draft)?;
                Err(stop)
            }
        }
    }

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
    fn salvage<T>(
        &self,
        file: &File,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
        reason: &str,
    ) -> Result<Result<T, Damage>, Stop> {
        let (mut at, size_bytes) = (0, metadata.size_bytes);
        let mut unreadable: Vec<Range<u64>> = Vec::new();
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
            at = part.end;
            match unreadable.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => unreadable.push(part),
            }
        }
        let missing: u64 = unreadable.iter().map(|part| part.end - part.start).sum();
        let name = [name, PARTIAL].concat();
        let (shown, places) = (String::from_utf8_lossy(&name), unreadable.len());
        let reason =
            format!("{missing} of its {size_bytes} bytes are zeros in {shown} (places: {places}); {reason}");
        Ok(Err(Damage { name, unreadable, reason }))
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

    fn note_sum(&mut self, name: &[u8], sum: Option<&str>) -> Result<(), Stop> {
        let path = join(&self.way.join(&b'/'), name);
        if let (Some(checksums), Some(sum)) = (&mut self.checksums, sum) {
            checksums.add(&path, sum)?;
        }
        Ok(())
    }

    /// Whether what has the name stays as it is: it is of this kind, and the same. Something else
    /// that has the name is in the way, unless it is to be replaced.
    fn is_kept(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        kind: FileType,
        is_same: impl FnOnce(&Stat) -> Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        let Some(found) = place.look(name)? else { return Ok(false) };
        if !self.there.resume {
            return if self.there.overwrite { Ok(false) } else { Err(in_the_way()) };
        }
        let same = FileType::from_raw_mode(found.st_mode) == kind && is_same(&found)?;
        match same || self.there.overwrite {
            true => Ok(same),
            false => Err(Stop::This("what has its name already is not the same".to_owned())),
        }
    }

    /// Makes something under a temporary name, and gives it its own.
    fn draft(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        make: impl FnOnce(&OutputDirectory, &[u8]) -> io::Result<()>,
    ) -> Result<(), Stop> {
        let draft = draft_name();
        if let Err(error) = make(place, &draft) {
            // It was perhaps not made at all.
            let _ = place.remove(&draft);
            return Err(error.into());
        }
        self.publish(place, &draft, name, self.there.overwrite)
    }

    fn publish(&self, place: &OutputDirectory, draft: &[u8], name: &[u8], replace: bool) -> Result<(), Stop> {
        match place.publish(draft, name, replace) {
            Err(error) if is_there(&error) => Err(in_the_way()),
            published => Ok(published?),
        }
    }

    /// Makes a directory, unless it is there; what else has the name is replaced only if that was
    /// asked for.
    fn make_directory(&self, place: &OutputDirectory, name: &[u8]) -> Result<OutputDirectory, Stop> {
        match place.make_directory(name) {
            Err(error) if is_there(&error) && self.there.overwrite => {
                place.remove(name).map_err(|_| in_the_way())?;
                Ok(place.make_directory(name)?)
            }
            Err(error) if is_there(&error) => Err(in_the_way()),
            made => Ok(made?),
        }
    }
}

fn in_the_way() -> Stop {
    Stop::This("something of that name is there already".to_owned())
}

/// A name that nothing has: of this process, and used once.
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
