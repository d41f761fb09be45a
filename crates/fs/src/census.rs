//! How a file system lies on its volume: into how many extents files and free space are cut, and
//! what a reader of all files in sequence has to jump over.
//!
//! Inodes are looked at one after the other and nothing of them is kept but sums, so that memory
//! does not depend on how many there are. Limits say when it stops early; what is damaged is
//! counted and passed over.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::source::FileRun;

/// Groups that are told apart as used or not.
const GROUPS_MAX: u64 = 1 << 20;

/// When a census stops early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CensusLimits {
    /// Inodes that are looked at. If more are in use, each group of inodes gives its share.
    pub inodes: u64,
    /// Extents of files, runs of free space and blocks of trees that are looked at.
    pub records: u64,
}

/// What a census found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileSystemCensus {
    /// Inodes in use, as the groups count them.
    pub inodes: u64,
    /// Inodes that were looked at.
    pub inodes_seen: u64,
    /// Whether every inode in use was looked at.
    pub complete: bool,
    /// Structures that could not be read, and were passed over.
    pub damaged: u64,
    /// What is wrong with the first of them.
    pub damage: Option<String>,
    /// Regular files.
    pub files: ExtentTally,
    /// Directories.
    pub directories: ExtentTally,
    /// Of XFS: attributes, links, and files of its own.
    pub others: ExtentTally,
    /// Free space.
    pub free: FreeTally,
    /// Groups that hold data of files: a place for each group, as far as there are that many.
    pub groups_used: Vec<bool>,
    /// What reading every file from start to end is like.
    pub reading: ReadPattern,
}

impl FileSystemCensus {
    /// Files, directories and the rest together: what `xfs_db -c frag` counts.
    #[must_use]
    pub fn all(&self) -> ExtentTally {
        let mut all = self.files;
        for other in [self.directories, self.others] {
            all.forks += other.forks;
            all.fragmented += other.fragmented;
            all.extents += other.extents;
            all.ideal += other.ideal;
            all.pieces += other.pieces;
            all.bytes += other.bytes;
        }
        all
    }
}

/// Maps of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtentTally {
    /// Those that have extents.
    pub forks: u64,
    /// Those that have more extents than they need.
    pub fragmented: u64,
    /// Extents as they are stored.
    pub extents: u64,
    /// Extents that would do. XFS, as `xfs_db` counts: one for each part without a hole, of 2^21 -
    /// 1 blocks at most. ext, as `e4defrag -c` counts: one for what a (flexible) block group holds.
    pub ideal: u64,
    /// Pieces that follow one another neither at once nor at the distance that they have in the
    /// file: what `filefrag` counts.
    pub pieces: u64,
    /// Bytes that the extents have, written or not.
    pub bytes: u64,
}

/// Free space.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeTally {
    /// Runs of free blocks.
    pub extents: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// The smallest, in bytes.
    pub smallest: u64,
    /// The largest.
    pub largest: u64,
    /// By size: runs of `1 << class` bytes or more, and less than twice that.
    pub classes: BTreeMap<u8, FreeClass>,
    /// Whether all of it was looked at.
    pub complete: bool,
}

/// Free runs of about one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreeClass {
    /// How many.
    pub extents: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl FreeTally {
    /// Counts a run.
    pub(crate) fn add(&mut self, bytes: u64) {
        let Some(class) = bytes.checked_ilog2() else { return };
        self.smallest = if self.extents == 0 { bytes } else { self.smallest.min(bytes) };
        self.largest = self.largest.max(bytes);
        self.extents += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let class = self.classes.entry(class as u8).or_default();
        class.extents += 1;
        class.bytes = class.bytes.saturating_add(bytes);
    }
}

/// What reading every file from start to end is like, written data only. Extents that follow one
/// another on the volume are one piece here, whatever lies between them in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadPattern {
    /// Files with data, by the logarithm of their bytes.
    pub files: BTreeMap<u8, PieceClass>,
    /// First pieces of files, by the logarithm of their bytes.
    pub firsts: BTreeMap<u8, PieceClass>,
    /// Pieces behind them.
    pub jumps: BTreeMap<JumpClass, PieceClass>,
}

/// Pieces of about one size after jumps of about one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JumpClass {
    /// The logarithm of the bytes of a piece.
    pub piece: u8,
    /// The logarithm of the distance from the end of the piece before.
    pub distance: u8,
    /// It lies before that.
    pub back: bool,
}

/// Pieces of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PieceClass {
    /// How many.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The distances to them, together.
    pub distance: u64,
}

impl PieceClass {
    fn add(&mut self, bytes: u64, distance: u64) {
        self.pieces += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.distance = self.distance.saturating_add(distance);
    }
}

/// An extent as it is stored, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredExtent {
    pub run: FileRun,
    pub unwritten: bool,
}

/// Whose extents are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForkKind {
    File,
    Directory,
    Other,
}

/// How many extents would do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ideal {
    /// One for each part of the file without a hole, of so many bytes at most.
    Parts(u64),
    /// One for each so many bytes.
    Bytes(u64),
}

/// The census while it is taken.
pub(crate) struct Counting {
    pub census: FileSystemCensus,
    pub limits: CensusLimits,
    ideal: Ideal,
    group_bytes: u64,
}

impl Counting {
    pub fn new(limits: CensusLimits, ideal: Ideal, groups: u64, group_bytes: u64) -> Self {
        let census = FileSystemCensus {
            complete: true,
            free: FreeTally { complete: true, ..FreeTally::default() },
            groups_used: vec![false; groups.min(GROUPS_MAX) as usize],
            ..FileSystemCensus::default()
        };
        Self { census, limits, ideal, group_bytes: group_bytes.max(1) }
    }

    /// Takes one record from what may be looked at; [`Error::Stopped`] if none is left.
    pub fn take(&mut self) -> Result<(), Error> {
        self.limits.records = self.limits.records.checked_sub(1).ok_or(Error::Stopped)?;
        Ok(())
    }

    /// What went wrong in one place is counted, and no reason not to go on.
    pub fn pass_over(&mut self, result: Result<(), Error>) {
        match result {
            Ok(()) => {}
            Err(Error::Stopped) => self.census.complete = false,
            Err(error) => {
                self.census.damaged += 1;
                self.census.damage.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// How many of a group's inodes are looked at, if `all` inodes are in use.
    pub fn share(&self, of_group: u64, all: u64) -> u64 {
        if all <= self.limits.inodes {
            return u64::MAX;
        }
        let share = u128::from(of_group) * u128::from(self.limits.inodes) / u128::from(all.max(1));
        share as u64
    }

    /// Counts the extents that `each` of `walk` is called with, also those before an error.
    pub fn fork(
        &mut self,
        kind: ForkKind,
        walk: impl FnOnce(&mut dyn FnMut(StoredExtent) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut fork = ForkCount::default();
        let result = walk(&mut |extent| {
            self.take()?;
            if kind == ForkKind::File {
                self.use_groups(&extent);
            }
            fork.add(extent, self.ideal, (kind == ForkKind::File).then_some(&mut self.census.reading));
            Ok(())
        });
        if kind == ForkKind::File {
            fork.end_of_file(&mut self.census.reading);
        }
        let tally = match kind {
            ForkKind::File => &mut self.census.files,
            ForkKind::Directory => &mut self.census.directories,
            ForkKind::Other => &mut self.census.others,
        };
        fork.end(self.ideal, tally);
        result
    }

    fn use_groups(&mut self, extent: &StoredExtent) {
        let (start, len) = (extent.run.disk_offset, extent.run.len.max(1));
        let (first, last) = (start / self.group_bytes, (start + len - 1) / self.group_bytes);
        let groups = &mut self.census.groups_used;
        let end = groups.len() as u64;
        for group in first.min(end)..(last + 1).min(end) {
            groups[group as usize] = true;
        }
    }
}

/// The extents of one fork while they come.
#[derive(Default)]
struct ForkCount {
    extents: u64,
    /// Extents that would do for the parts that are complete.
    ideal: u64,
    pieces: u64,
    bytes: u64,
    last: Option<FileRun>,
    /// Bytes of the part without a hole that is being passed.
    part: u64,
    /// The piece that is being read, and what lies between it and the one before: `None` for the
    /// first.
    piece: Option<(FileRun, Option<i128>)>,
    /// Bytes that are read of the file.
    read: u64,
}

impl ForkCount {
    fn add(&mut self, extent: StoredExtent, ideal: Ideal, reading: Option<&mut ReadPattern>) {
        let run = extent.run;
        self.extents += 1;
        self.bytes = self.bytes.saturating_add(run.len);
        // A hole may have its place on the volume or not.
        let moved = |last: FileRun| {
            let gap = run.file_offset.saturating_sub(last.file_offset);
            let places = [last.len, gap].map(|distance| last.disk_offset.saturating_add(distance));
            !places.contains(&run.disk_offset)
        };
        self.pieces += u64::from(self.last.is_none_or(moved));
        if self.last.is_none_or(|last| last.file_offset.saturating_add(last.len) != run.file_offset) {
            self.end_part(ideal);
        }
        self.part = self.part.saturating_add(run.len);
        self.last = Some(run);
        if let Some(reading) = reading.filter(|_| !extent.unwritten) {
            self.read_on(run, reading);
        }
    }

    fn end_part(&mut self, ideal: Ideal) {
        if let Ideal::Parts(most) = ideal {
            self.ideal += self.part.div_ceil(most.max(1));
        }
        self.part = 0;
    }

    fn read_on(&mut self, run: FileRun, reading: &mut ReadPattern) {
        self.read = self.read.saturating_add(run.len);
        let Some((piece, _)) = &mut self.piece else {
            self.piece = Some((run, None));
            return;
        };
        let end = piece.disk_offset + piece.len;
        if end == run.disk_offset {
            piece.len += run.len;
            return;
        }
        self.end_piece(reading);
        self.piece = Some((run, Some(i128::from(run.disk_offset) - i128::from(end))));
    }

    fn end_piece(&mut self, reading: &mut ReadPattern) {
        let Some((piece, jump)) = self.piece.take() else { return };
        let log = |bytes: u64| bytes.checked_ilog2().unwrap_or(0) as u8;
        match jump {
            None => reading.firsts.entry(log(piece.len)).or_default().add(piece.len, 0),
            Some(jump) => {
                let distance = u64::try_from(jump.unsigned_abs()).unwrap_or(u64::MAX);
                let class = JumpClass { piece: log(piece.len), distance: log(distance), back: jump < 0 };
                reading.jumps.entry(class).or_default().add(piece.len, distance);
            }
        }
    }

    fn end_of_file(&mut self, reading: &mut ReadPattern) {
        self.end_piece(reading);
        if let Some(log) = self.read.checked_ilog2() {
            reading.files.entry(log as u8).or_default().add(self.read, 0);
        }
    }

    fn end(mut self, ideal: Ideal, tally: &mut ExtentTally) {
        if self.extents == 0 {
            return;
        }
        self.end_part(ideal);
        if let Ideal::Bytes(most) = ideal {
            self.ideal = self.bytes.div_ceil(most.max(1));
        }
        tally.forks += 1;
        tally.fragmented += u64::from(self.extents > self.ideal);
        tally.extents += self.extents;
        tally.ideal += self.ideal;
        tally.pieces += self.pieces;
        tally.bytes = tally.bytes.saturating_add(self.bytes);
    }
}
