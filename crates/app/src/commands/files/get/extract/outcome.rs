//! What came out, and why something did not.

use std::fmt;
use std::io;

use serde::Serialize;
use wattle_control::Problem;
use wattle_fs::{Error, FileKind};

use super::salvage::Damage;
use crate::commands::files::Failure;
use crate::commands::loss::FileLoss;
use crate::output;

/// What came out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExtractCounts {
    pub(in crate::commands::files::get) files: u64,
    pub(in crate::commands::files::get) directories: u64,
    pub(in crate::commands::files::get) symlinks: u64,
    /// Further names of files that came out.
    pub(in crate::commands::files::get) hard_links: u64,
    pub(in crate::commands::files::get) fifos: u64,
    pub(in crate::commands::files::get) devices: u64,
    /// Of files, holes included.
    pub(in crate::commands::files::get) bytes: u64,
    /// Of all these, how many were there already, and are the same.
    pub(in crate::commands::files::get) kept: u64,
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
        if self.devices > 0 {
            write!(f, ", {} device files", self.devices)?;
        }
        match self.kept {
            0 => Ok(()),
            kept => write!(f, " ({kept} of them from before)"),
        }
    }
}

impl ExtractCounts {
    /// All that came out.
    pub fn whole(self) -> u64 {
        self.files + self.directories + self.symlinks + self.hard_links + self.fifos + self.devices
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
    /// Whether the checksums were written.
    pub summed: Result<(), Problem>,
}

/// Why one thing did not come out, or why nothing more will.
pub(super) enum Stop {
    /// It cannot be read, or not be made.
    This(String),
    /// It cannot be read as a whole, and is there in part under another name.
    InPart(Damage),
    /// The output is full or gone.
    All(Problem),
}

impl Stop {
    /// What was written could not be made durable.
    pub(super) fn not_durable(error: io::Error) -> Self {
        match Self::from(error) {
            Self::This(reason) => Self::This(format!("what was written is not durable ({reason})")),
            stop => stop,
        }
    }
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

impl std::ops::AddAssign for ExtractCounts {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.hard_links += other.hard_links;
        self.fifos += other.fifos;
        self.devices += other.devices;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.kept += other.kept;
        self.not_extracted += other.not_extracted;
    }
}

impl ExtractCounts {
    /// Of one thing of a kind.
    pub(in crate::commands::files::get) fn one(kind: FileKind, kept: bool) -> Self {
        let one = |is: bool| u64::from(is);
        Self {
            files: one(kind == FileKind::File),
            directories: one(kind == FileKind::Directory),
            symlinks: one(kind == FileKind::Symlink),
            fifos: one(kind == FileKind::Fifo),
            devices: one(kind.is_device()),
            kept: one(kept),
            ..Self::default()
        }
    }
}
