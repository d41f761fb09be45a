//! A tree of files, from a file system into a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use wattle_control::Problem;
use wattle_fs::{Error, FileKind, FileMetadata, FsNode};

use super::checksums::{Checksums, Sum};
use crate::commands::files::place::{OutputDirectory, dress, is_name};
use crate::commands::files::{Failure, Opened, join, kind_name};
use crate::output::{self, text::printable};

/// Directories in directories that are followed. Each keeps a descriptor open, of which a process
/// has 1024 by default.
const DEPTH_MAX: usize = 500;

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
        )
    }
}

/// Why one thing did not come out, or why nothing more will.
enum Stop {
    /// It cannot be read, or not be made.
    This(String),
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
            StorageFull | QuotaExceeded | ReadOnlyFilesystem => Self::All(output::output_failed(&error)),
            _ => Self::This(format!("not made: {error}")),
        }
    }
}

/// What is under way.
pub struct Extraction<'a> {
    opened: &'a Opened,
    root: OutputDirectory,
    checksums: Option<Checksums>,
    overwrite: bool,
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
        overwrite: bool,
    ) -> Self {
        const TEMPLATE: &str = "{spinner} {bytes} {bytes_per_sec} {wide_msg}";
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a constant");
        let progress = ProgressBar::new_spinner().with_style(style);
        progress.enable_steady_tick(Duration::from_millis(200));
        Self {
            opened,
            root,
            checksums,
            overwrite,
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
    /// The output is full or gone.
    pub fn one(&mut self, name: &[u8], node: FsNode) -> Result<(), Problem> {
        let root = self.root.enter(b".").map_err(|error| output::output_failed(&error))?;
        self.entry(&root, name, node)
    }

    /// Puts what is in a directory into the directory.
    ///
    /// # Errors
    /// The output is full or gone.
    pub fn content(&mut self, directory: FsNode) -> Result<(), Problem> {
        self.directories.insert(directory);
        let root = self.root.enter(b".").map_err(|error| output::output_failed(&error))?;
        self.entries(&root, directory)
    }

    /// What came out, and what did not.
    ///
    /// # Errors
    /// The checksums cannot be written.
    pub fn finish(self) -> Result<(ExtractCounts, Vec<Failure>), Problem> {
        self.progress.finish_and_clear();
        self.checksums.map_or(Ok(()), Checksums::finish)?;
        Ok((ExtractCounts { not_extracted: self.failures.len() as u64, ..self.counts }, self.failures))
    }

    fn failed(&mut self, name: &[u8], reason: String) {
        let failure = Failure::new(&join(&self.way.join(&b'/'), name), reason);
        let line = printable(&format!("not extracted: {}: {}", failure.path, failure.reason));
        self.progress.suspend(|| output::note(&line));
        self.failures.push(failure);
    }

    fn entries(&mut self, place: &OutputDirectory, directory: FsNode) -> Result<(), Problem> {
        let mut entries = Vec::new();
        let listed = self.opened.fs.list(directory, &mut |entry| {
            entries.push(entry);
            Ok(())
        });
        if let Err(error) = listed {
            self.failed(b"", format!("entries may be missing: {error}"));
        }
        for entry in entries {
            self.entry(place, &entry.name, entry.node)?;
        }
        Ok(())
    }

    fn entry(&mut self, place: &OutputDirectory, name: &[u8], node: FsNode) -> Result<(), Problem> {
        match self.extract(place, name, node) {
            Ok(()) => Ok(()),
            Err(Stop::This(reason)) => {
                self.failed(name, reason);
                Ok(())
            }
            Err(Stop::All(problem)) => Err(problem),
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
                self.make(place, name, |place| place.make_symlink(name, &target))?;
                self.counts.symlinks += 1;
                Ok(place.dress_name(name, &metadata, self.owner)?)
            }
            FileKind::Fifo => {
                self.make(place, name, |place| place.make_fifo(name))?;
                self.counts.fifos += 1;
                Ok(place.dress_name(name, &metadata, self.owner)?)
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
        let inner = self.make(place, name, |place| place.make_directory(name))?;
        self.counts.directories += 1;
        self.way.push(name.to_vec());
        let done = self.entries(&inner, node);
        self.way.pop();
        done?;
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
            self.make(place, name, |place| place.make_link(name, &from, &from_name[0]))?;
            self.counts.hard_links += 1;
            let sum = sum.clone();
            return self.note_sum(name, sum.as_deref());
        }
        let mut file = self.make(place, name, |place| place.make_file(name))?;
        self.progress.set_message(printable(&String::from_utf8_lossy(name)));
        let sum = match self.fill(&mut file, node, metadata) {
            Ok(sum) => sum,
            Err(stop) => {
                // Half a file under its name would pass for the whole.
                drop(file);
                place.remove(name)?;
                return Err(stop);
            }
        };
        dress(&file, metadata, self.owner)?;
        self.counts.files += 1;
        self.counts.bytes += metadata.size_bytes;
        self.note_sum(name, sum.as_deref())?;
        if metadata.links > 1 {
            let parts = self.way.iter().cloned().chain([name.to_vec()]).collect();
            self.named.insert(node, (parts, sum));
        }
        Ok(())
    }

    /// Writes a file's data where it is; what is not written is a hole.
    fn fill(
        &mut self,
        file: &mut File,
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<Option<String>, Stop> {
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

    /// Makes something; what has the name already is replaced only if that was asked for, and never
    /// a directory.
    fn make<T>(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        make: impl Fn(&OutputDirectory) -> io::Result<T>,
    ) -> Result<T, Stop> {
        let there = || Stop::This("something of that name is there already".to_owned());
        match make(place) {
            Err(error) if is_there(&error) && self.overwrite => {
                place.remove(name).map_err(|_| there())?;
                Ok(make(place)?)
            }
            Err(error) if is_there(&error) => Err(there()),
            made => Ok(made?),
        }
    }
}

/// Also: a directory was to be made where something else is.
fn is_there(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, NotADirectory};
    matches!(error.kind(), AlreadyExists | NotADirectory)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}
