//! FAT12, FAT16, FAT32 and exFAT, as Microsoft's "FAT: General Overview of On-Disk Format" and
//! "exFAT file system specification" describe them.
//!
//! Our own reader: the crates there are want to write, read through a seeking stream whose errors
//! name no place, or know only one of the family.
//!
//! There are no inodes: a file is known by the place of its entry in a directory, and what its
//! entry says is kept once it was listed. A file has an entry of its own, so there is no second
//! name for it.

mod boot;
mod chain;
mod entries;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Error;
use crate::source::{ByteSource, FileRun};
use crate::{
    About, DirEntry, EachData, EachEntry, EachRun, FileKind, FileMetadata, FileSystem, FileTime, FsNode, Note,
};

use boot::{FatBoot, FatKind, FatRoot};
use chain::Chain;
use entries::{ENTRY_BYTES, ExFatSet, LongName, Step};

/// The number of the root directory, which has no entry.
const ROOT: u64 = 0;
/// The most bytes of a directory: 65,536 entries of FAT, and what exFAT allows.
const DIRECTORY_BYTES_MAX: u64 = 2 << 20;
const EXFAT_DIRECTORY_BYTES_MAX: u64 = 256 << 20;
/// Runs of a file that are kept at most: 40 MiB. What is behind them is followed again each time.
const RUNS_MAX: usize = 1 << 20;
/// A directory is read in pieces of at most that.
const PIECE_BYTES: u64 = 64 << 10;

/// Without the blanks at its end.
fn trimmed(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|&byte| byte != b' ' && byte != 0).map_or(0, |last| last + 1);
    &name[..end]
}

/// Whether the first boot sector proves that a FAT or exFAT was formatted there.
///
/// # Errors
/// It cannot be read.
pub fn is_formatted(source: &ByteSource) -> Result<bool, Error> {
    boot::is_formatted(source)
}

/// Whether a FAT or exFAT is there, or a copy of its boot sector.
///
/// # Errors
/// The first cannot be read, and there is no copy.
pub fn is_here(source: &ByteSource) -> Result<bool, Error> {
    boot::is_here(source)
}

/// Makes checksums right, for fuzzing.
pub fn seal(image: &mut [u8]) {
    boot::seal(image);
    if image.get(3..11) == Some(b"EXFAT   ") {
        entries::seal(image);
    }
}

/// What an entry of a directory says.
#[derive(Debug, Clone)]
struct FatEntry {
    is_directory: bool,
    is_read_only: bool,
    /// The number of its first cluster; 0 if it has none.
    first: u32,
    /// Its clusters lie side by side, and the table does not count.
    in_one_piece: bool,
    size: u64,
    /// What lies behind that many bytes was never written, and reads as zeros.
    valid: u64,
    accessed: FileTime,
    modified: FileTime,
    created: FileTime,
}

/// A FAT or exFAT file system.
pub struct Fat {
    source: ByteSource,
    boot: FatBoot,
    about: About,
    /// Entries that were listed, by their places; `None` where the checksum of one is wrong.
    listed: RefCell<BTreeMap<u64, Option<FatEntry>>>,
    /// What is known of the file that was read last: a chain is followed from its start on.
    last: RefCell<Option<FollowedFile>>,
    /// Whether a file went on by another copy of the table than the first.
    is_copied: Cell<bool>,
}

/// A file whose chain was followed up to somewhere.
struct FollowedFile {
    file: u64,
    /// From its start on without a gap.
    runs: Vec<FileRun>,
    /// What is behind the runs.
    chain: Chain,
}

impl Fat {
    /// Reads its boot sector and looks for its label.
    ///
    /// # Errors
    /// The boot sector cannot be read or is damaged.
    pub fn open(source: ByteSource) -> Result<Self, Error> {
        let boot = boot::read(&source)?;
        let mut notes: Vec<Note> = source.cut_off(boot.size_bytes).into_iter().collect();
        notes.extend(boot.copied.map(|why| Note::BootCopy { why }));
        notes.extend(boot.is_dirty.then_some(Note::NoJournal));
        notes.extend(boot.had_errors.then_some(Note::MarkedDamaged));
        let kind = if boot.kind == FatKind::ExFat { "exfat" } else { "vfat" };
        let mut uuid = [0; 16];
        uuid[..4].copy_from_slice(&boot.serial.to_be_bytes());
        let about = About { kind, label: boot.label.clone(), uuid, size_bytes: boot.size_bytes, notes };
        let (listed, last, is_copied) = Default::default();
        let mut fat = Self { source, boot, about, listed, last, is_copied };
        // It is not worth an error.
        if let Ok(Some(label)) = fat.label() {
            fat.about.label = label;
        }
        Ok(fat)
    }

    /// The label in the root directory, which is newer than the one in the boot sector.
    fn label(&self) -> Result<Option<Vec<u8>>, Error> {
        let mut found = None;
        self.steps(ROOT, &mut |_, step| match step {
            Step::Label(label) => {
                found = Some(label);
                Err(Error::Stopped)
            }
            _ => Ok(()),
        })
        .or_else(|error| if matches!(error, Error::Stopped) { Ok(()) } else { Err(error) })?;
        Ok(found)
    }

    fn entry(&self, node: FsNode) -> Result<FatEntry, Error> {
        if node.inode == ROOT {
            return Ok(FatEntry {
                is_directory: true,
                is_read_only: false,
                first: if let FatRoot::Cluster(first) = self.boot.root { first } else { 0 },
                in_one_piece: false,
                size: 0,
                valid: 0,
                accessed: FileTime::default(),
                modified: FileTime::default(),
                created: FileTime::default(),
            });
        }
        let listed = self.listed.borrow().get(&node.inode).cloned().ok_or(Error::NoSuchEntry)?;
        listed.ok_or_else(|| damaged(node.inode, "the checksum of its entries is wrong"))
    }

    /// Calls `each` for the parts of a directory: where they are, and how long.
    fn parts(&self, directory: u64, each: &mut EachData<'_>) -> Result<(), Error> {
        let mut deliver = |offset: u64, len: u64| {
            let mut done = 0;
            while done < len {
                let part = (len - done).min(PIECE_BYTES);
                let bytes = self.source.bytes(offset + done, part as usize)?;
                each(offset + done, &bytes)?;
                done += part;
            }
            Ok(())
        };
        let fixed = match self.boot.root {
            FatRoot::Fixed { offset, len } => Some((offset, len)),
            FatRoot::Cluster(_) => None,
        };
        if let Some((offset, len)) = fixed.filter(|_| directory == ROOT) {
            return deliver(offset, len);
        }
        let entry = self.entry(FsNode { tree: 0, inode: directory })?;
        if !entry.is_directory {
            return Err(Error::NotADirectory);
        }
        let most = match self.boot.kind {
            FatKind::ExFat if entry.size > 0 => entry.size.min(EXFAT_DIRECTORY_BYTES_MAX),
            // The end of one that is full is told behind its last cluster.
            FatKind::ExFat => EXFAT_DIRECTORY_BYTES_MAX + 1,
            _ => DIRECTORY_BYTES_MAX + 1,
        };
        let mut chain = Chain::new(&self.boot, &entry, most);
        let mut delivered = 0_u64;
        while let Some(run) = chain.run(&self.source, &self.boot)? {
            deliver(run.offset, run.len)?;
            delivered = delivered.saturating_add(run.len);
        }
        match entry.size {
            0 if !chain.has_ended() => Err(damaged(directory, "a directory that does not end")),
            size if delivered < size => Err(damaged(directory, "its clusters end before it does")),
            _ => chain.check(),
        }
    }

    /// Calls `each` for what the entries of a directory come to, and where they are. Damaged ones
    /// do not end it, and neither does what says that there are no more: a sector that could not be
    /// copied may have zeros in its place, and Linux passes them over.
    fn steps(
        &self,
        directory: u64,
        each: &mut dyn FnMut(u64, Step) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut long, mut set, mut first) = (LongName::default(), ExFatSet::default(), 0);
        let mut has_ended = false;
        self.parts(directory, &mut |offset, bytes| {
            for (at, entry) in (offset..).step_by(ENTRY_BYTES).zip(bytes.chunks_exact(ENTRY_BYTES)) {
                let step = match self.boot.kind {
                    FatKind::ExFat => {
                        first = if set.is_begun() { first } else { at };
                        if let Some(what) = set.broken_by(entry) {
                            each(first, Step::Damaged(what))?;
                        }
                        first = if ExFatSet::is_first(entry) { at } else { first };
                        set.take(entry, directory == ROOT)
                    }
                    kind => {
                        first = at;
                        entries::fat(entry, kind == FatKind::Fat32, directory == ROOT, &mut long)
                    }
                };
                match step {
                    Step::Skip => {}
                    Step::End => has_ended = true,
                    step => {
                        if std::mem::take(&mut has_ended) {
                            each(first, Step::Damaged("entries follow the end of its directory"))?;
                        }
                        each(first, step)?;
                    }
                }
            }
            Ok(())
        })?;
        // The directory ends in the middle of one.
        const NOTHING: [u8; ENTRY_BYTES] = [0; ENTRY_BYTES];
        set.broken_by(&NOTHING).map_or(Ok(()), |what| each(first, Step::Damaged(what)))
    }

    /// Calls `each` for the parts of a file that were written.
    fn file_runs(
        &self,
        file: FsNode,
        range: &Range<u64>,
        each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let entry = self.entry(file)?;
        if entry.is_directory {
            return Err(Error::NotAFile);
        }
        let end = entry.valid.min(entry.size);
        let last = self.last.take().filter(|last| last.file == file.inode);
        let mut followed = last.unwrap_or_else(|| FollowedFile {
            file: file.inode,
            runs: Vec::new(),
            chain: Chain::new(&self.boot, &entry, end),
        });
        let done = self.follow(&mut followed, end, range, each);
        self.last.replace(Some(followed));
        done
    }

    /// The same of a file with data up to `end` that was followed up to somewhere.
    fn follow(
        &self,
        followed: &mut FollowedFile,
        end: u64,
        range: &Range<u64>,
        each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let behind = |run: &FileRun| run.file_offset + run.len;
        let known = followed.runs.partition_point(|run| behind(run) <= range.start);
        for run in followed.runs[known..].iter().map_while(|run| run.within(range)) {
            each(run)?;
        }
        let mut at = followed.runs.last().map_or(0, behind);
        // Behind the runs that are kept.
        let mut further = None;
        while at < end.min(range.end) {
            let is_kept = followed.runs.len() < RUNS_MAX;
            let chain = match is_kept {
                true => &mut followed.chain,
                false => further.get_or_insert_with(|| followed.chain.clone()),
            };
            let Some(run) = chain.run(&self.source, &self.boot)? else {
                return Err(damaged(followed.file, "its clusters end before it does"));
            };
            if chain.is_copied() {
                self.is_copied.set(true);
            }
            let run = run.of_file(at, end);
            at += run.len;
            if is_kept {
                followed.runs.push(run);
            }
            if let Some(run) = run.within(range) {
                each(run)?;
            }
        }
        Ok(())
    }
}

fn damaged(at: u64, what: &'static str) -> Error {
    Error::Damaged { structure: "the file whose entry is at byte", at, what }
}

impl FileSystem for Fat {
    fn about(&self) -> &About {
        &self.about
    }

    fn not_as_mounted(&self) -> Vec<Note> {
        let told = self.about.notes.iter().copied().filter(|note| note.differs_from_a_mount());
        told.chain(self.is_copied.get().then_some(Note::TableCopy)).collect()
    }

    fn root(&self) -> FsNode {
        FsNode { tree: 0, inode: ROOT }
    }

    fn metadata(&self, node: FsNode) -> Result<FileMetadata, Error> {
        let entry = self.entry(node)?;
        let (kind, mode) = match entry.is_directory {
            true => (FileKind::Directory, 0o755),
            false if entry.is_read_only => (FileKind::File, 0o444),
            false => (FileKind::File, 0o644),
        };
        let size_bytes = if entry.is_directory { 0 } else { entry.size };
        Ok(FileMetadata {
            kind,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            size_bytes,
            stored_bytes: entry
                .valid
                .div_ceil(self.boot.cluster_bytes)
                .saturating_mul(self.boot.cluster_bytes),
            accessed: entry.accessed,
            modified: entry.modified,
            changed: entry.modified,
            created: Some(entry.created),
            device: None,
        })
    }

    fn list(&self, directory: FsNode, each: &mut EachEntry<'_>) -> Result<(), Error> {
        let mut damage = None;
        self.steps(directory.inode, &mut |at, step| match step {
            Step::Found(name, entry) => {
                self.listed.borrow_mut().insert(at, entry.map(|entry| *entry));
                each(DirEntry { name, node: FsNode { tree: 0, inode: at } })
            }
            Step::Damaged(what) => {
                damage.get_or_insert_with(|| damaged(at, what));
                Ok(())
            }
            _ => Ok(()),
        })?;
        damage.map_or(Ok(()), Err)
    }

    fn link(&self, _link: FsNode) -> Result<Vec<u8>, Error> {
        Err(Error::NotALink)
    }

    fn read(&self, file: FsNode, range: Range<u64>, each: &mut EachData<'_>) -> Result<(), Error> {
        self.file_runs(file, &range, &mut |run| self.source.deliver(run, each))
    }

    fn runs(&self, file: FsNode, each: &mut EachRun<'_>) -> Result<(), Error> {
        self.file_runs(file, &(0..u64::MAX), each)
    }

    fn attributes(&self, node: FsNode) -> Result<Vec<Vec<u8>>, Error> {
        self.entry(node).map(|_| Vec::new())
    }

    fn attribute(&self, _node: FsNode, _name: &[u8]) -> Result<Vec<u8>, Error> {
        Err(Error::NoSuchEntry)
    }
}
