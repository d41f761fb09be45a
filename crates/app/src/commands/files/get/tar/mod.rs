//! `wattle get --to -`: a tree of files as a tar archive on the standard output.
//!
//! Invariants:
//! - Nothing but the archive goes to the standard output, and it is a whole archive whatever cannot
//!   be read: every member has as many bytes as its header says.
//! - A file of up to [`HELD_BYTES`] has a header only once all of it was read, so under its name is
//!   the whole or nothing. What is longer is on its way before its end is known: if that cannot be
//!   read, zeros stand in its place, and a hard link NAME.partial follows, which says so.

mod header;
mod member;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use indicatif::ProgressBar;
use wattle_control::Problem;
use wattle_fs::{DirEntry, FileKind, FileMetadata, FsNode};

use super::attributes::{self, AttributesLeft};
use super::extract::{DEPTH_MAX, ExtractCounts};
use crate::commands::files::place::is_name;
use crate::commands::files::{Failure, Opened, hex_unless_text, join, shown};
use crate::commands::loss::FileLoss;
use crate::output::{self, text::printable};
use header::{BLOCK_BYTES, TarKind};

/// What a file that came out in part is called: its name and this.
const PARTIAL: &[u8] = b".partial";
/// How much of a file is held before its header goes out.
const HELD_BYTES: usize = 16 << 20;
/// Archives are a multiple of this, as tar(1) makes them.
const RECORD_BYTES: u64 = 20 * BLOCK_BYTES as u64;

/// Why something did not come out.
enum Stop {
    /// It alone.
    This(String),
    /// It came out in part, which was noted.
    Noted,
    /// Nothing more can be written.
    Output(io::Error),
}

impl From<wattle_fs::Error> for Stop {
    fn from(error: wattle_fs::Error) -> Self {
        Self::This(error.to_string())
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// What became of everything.
pub struct Archived {
    pub counts: ExtractCounts,
    pub whole: Vec<FileLoss>,
    pub failures: Vec<Failure>,
    /// Why the archive is not whole.
    pub stopped: Option<Problem>,
}

/// An archive under way.
pub struct TarStream<'a, W> {
    opened: &'a Opened,
    out: W,
    written: u64,
    partial: bool,
    xattrs: bool,
    lists_whole: bool,
    counts: ExtractCounts,
    whole: Vec<FileLoss>,
    /// Extended attributes that were to come out and did not.
    attributes_left: BTreeMap<FsNode, AttributesLeft>,
    failures: Vec<Failure>,
    /// Directories that came out: in a damaged file system one may be in itself.
    directories: BTreeSet<FsNode>,
    /// What has several names and is no directory, and the first.
    named: BTreeMap<FsNode, Vec<u8>>,
    /// Paths that are in the archive and look like those of files that came out in part.
    taken: BTreeSet<Vec<u8>>,
    depth: usize,
    /// What was on its way when nothing more could be written.
    stopped_at: Option<Vec<u8>>,
    progress: ProgressBar,
}

impl<'a, W: Write> TarStream<'a, W> {
    pub fn new(
        opened: &'a Opened,
        out: W,
        (partial, xattrs, lists_whole): (bool, bool, bool),
        progress: ProgressBar,
    ) -> Self {
        Self {
            opened,
            out,
            written: 0,
            partial,
            xattrs,
            lists_whole,
            counts: ExtractCounts::default(),
            whole: Vec::new(),
            attributes_left: BTreeMap::new(),
            failures: Vec::new(),
            directories: BTreeSet::new(),
            named: BTreeMap::new(),
            taken: BTreeSet::new(),
            depth: 0,
            stopped_at: None,
            progress,
        }
    }

    /// Puts a file, or a directory with all below, into the archive under `name`; without one what
    /// is in a directory. Then ends the archive.
    pub fn finish(mut self, name: Option<&[u8]>, node: FsNode) -> Archived {
        let made = match name {
            Some(name) => self.entry(b"", name, node),
            None => {
                self.directories.insert(node);
                self.entries(b"", node)
            }
        };
        let ended = made.and_then(|()| self.end());
        self.progress.finish_and_clear();
        let stopped = ended.err().map(|error| {
            let at = self.stopped_at.take().unwrap_or_else(|| b"/".to_vec());
            let reason =
                "the archive ends in the middle: this, all that would follow, and what was last before it";
            self.failed("not extracted", Failure::new(&at, reason.to_owned()));
            Problem {
                why: "the archive on the standard output ends in the middle".to_owned(),
                ..output::output_failed(&error)
            }
        });
        let counts = ExtractCounts { not_extracted: self.failures.len() as u64, ..self.counts };
        Archived { counts, whole: self.whole, failures: self.failures, stopped }
    }

    /// Two empty blocks, and as many more as make a record.
    fn end(&mut self) -> io::Result<()> {
        let end = (self.written + 2 * BLOCK_BYTES as u64).next_multiple_of(RECORD_BYTES);
        self.zeros(end - self.written)?;
        self.out.flush()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn zeros(&mut self, len: u64) -> io::Result<()> {
        super::zeros(&mut self.out, len)?;
        self.written += len;
        Ok(())
    }

    fn failed(&mut self, what: &str, failure: Failure) {
        let line = printable(&format!("{what}: {}: {}", failure.path, failure.reason));
        self.progress.suspend(|| output::note(&line));
        self.failures.push(failure);
    }

    fn entries(&mut self, above: &[u8], directory: FsNode) -> io::Result<()> {
        let mut entries: Vec<DirEntry> = Vec::new();
        let listed = self.opened.fs.list(directory, &mut |entry| {
            entries.push(entry);
            Ok(())
        });
        if let Err(error) = listed {
            self.failed("not extracted", Failure::new(above, format!("entries may be missing: {error}")));
        }
        let partial = entries.iter().filter(|entry| entry.name.ends_with(PARTIAL));
        self.taken = partial.map(|entry| join(above, &entry.name)).collect();
        let taken = std::mem::take(&mut self.taken);
        let mut names = BTreeSet::new();
        for entry in entries {
            // What unpacks the archive would replace the first by the second.
            if !names.insert(entry.name.clone()) {
                let reason = "something of that name came out already".to_owned();
                self.failed("not extracted", Failure::new(&join(above, &entry.name), reason));
                continue;
            }
            self.taken.clone_from(&taken);
            self.entry(above, &entry.name, entry.node)?;
        }
        Ok(())
    }

    fn entry(&mut self, above: &[u8], name: &[u8], node: FsNode) -> io::Result<()> {
        let path = join(above, name);
        match self.member(&path, name, node) {
            Ok(()) => self.note_whole(&path, node),
            Err(Stop::Noted) => {}
            Err(Stop::This(reason)) => self.failed("not extracted", Failure::new(&path, reason)),
            Err(Stop::Output(error)) => {
                self.stopped_at.get_or_insert(path);
                return Err(error);
            }
        }
        Ok(())
    }

    fn note_whole(&mut self, path: &[u8], node: FsNode) {
        let left = self.attributes_left(node);
        if let Some(failure) = left.failure(path) {
            self.failed("not extracted as a whole", failure);
        }
        if self.lists_whole || !left.is_empty() {
            self.whole.push(FileLoss::whole(shown(path), hex_unless_text(path), left.all));
        }
    }

    /// The extended attributes that something came out without.
    fn attributes_left(&self, node: FsNode) -> AttributesLeft {
        match self.xattrs {
            true => self.attributes_left.get(&node).cloned().unwrap_or_default(),
            false => AttributesLeft::not_asked_for(self.opened, node),
        }
    }

    fn member(&mut self, path: &[u8], name: &[u8], node: FsNode) -> Result<(), Stop> {
        if !is_name(name) {
            return Err(Stop::This("its name is not one that a file can have".to_owned()));
        }
        let metadata = self.opened.fs.metadata(node)?;
        self.progress.set_message(printable(&String::from_utf8_lossy(name)));
        if let Some(first) = self.named.get(&node).cloned() {
            self.head(path, TarKind::HardLink(&first), node, &metadata)?;
            self.counts += ExtractCounts { hard_links: 1, ..ExtractCounts::default() };
            return Ok(());
        }
        match metadata.kind {
            FileKind::Directory => return self.directory(path, node, &metadata),
            FileKind::File => return self.file(path, node, &metadata),
            FileKind::Symlink => {
                let target = self.opened.fs.link(node)?;
                self.head(path, TarKind::Symlink(&target), node, &metadata)?;
            }
            FileKind::Fifo => self.head(path, TarKind::Fifo, node, &metadata)?,
            FileKind::CharDevice => self.head(path, TarKind::CharDevice, node, &metadata)?,
            FileKind::BlockDevice => self.head(path, TarKind::BlockDevice, node, &metadata)?,
            FileKind::Socket => return Err(Stop::This("a socket is not made".to_owned())),
        }
        if metadata.links > 1 {
            self.named.insert(node, path.to_vec());
        }
        self.counts += ExtractCounts::one(metadata.kind, false);
        Ok(())
    }

    fn directory(&mut self, path: &[u8], node: FsNode, metadata: &FileMetadata) -> Result<(), Stop> {
        if !self.opened.fs.is_stub(node) && !self.directories.insert(node) {
            return Err(Stop::This("the directory came out already, elsewhere".to_owned()));
        }
        if self.depth >= DEPTH_MAX {
            return Err(Stop::This(format!("it is below {DEPTH_MAX} directories")));
        }
        self.head(path, TarKind::Directory, node, metadata)?;
        self.counts += ExtractCounts::one(FileKind::Directory, false);
        self.depth += 1;
        let made = self.entries(path, node);
        self.depth -= 1;
        Ok(made?)
    }

    /// Writes the headers of a member, with its extended attributes if they are to come out.
    fn head(
        &mut self,
        path: &[u8],
        kind: TarKind<'_>,
        node: FsNode,
        metadata: &FileMetadata,
    ) -> Result<(), Stop> {
        let mut attributes = Vec::new();
        if self.xattrs && !matches!(kind, TarKind::HardLink(_)) {
            let (read, left) = attributes::read(self.opened, node);
            attributes = read;
            if !left.is_empty() {
                self.attributes_left.insert(node, left);
            }
        }
        Ok(self.put(&header::member(path, kind, metadata, &attributes))?)
    }
}
