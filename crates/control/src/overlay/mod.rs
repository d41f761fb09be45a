//! Members that stay as they are: whatever is written to one goes to a sparse file of its own in a
//! directory ([`MemberAccess::keep_writes_in`](crate::members::MemberAccess::keep_writes_in)), and
//! is there again when the member is used with that directory the next time.
//!
//! Invariant: no file, device or remote drive that is looked at with overlays is opened for
//! writing.

mod device;
pub(crate) mod memory;

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use wattle_format::overlay::{
    Difference, Header, OverlayHeaderError, OverlayLayout, PAGE_BYTES, PLACES_INSIDE_MAX,
    places_in_partition, sample, sample_bytes, sample_places,
};
use wattle_format::partition;
use wattle_rt::{BackendError, CoreHandle, Device, IoError, OpenError, OpenOptions, beside};

pub use device::device;

use crate::claim::Claim;
use crate::problem::{Code, Problem};

const SECTOR_BYTES: u64 = 512;

/// What the file of a member is called: the member's name and this.
const SUFFIX: &str = ".overlay";

/// Where writes go.
pub(crate) struct Overlays {
    dir: PathBuf,
    core: CoreHandle,
}

impl fmt::Debug for Overlays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlays").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// What is in a directory of overlays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverlayFiles {
    /// Files.
    pub files: usize,
    /// What they take, in bytes: what was written, and a little.
    pub bytes: u64,
}

/// Why a member cannot be used with its overlay.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OverlayError {
    /// The file cannot be made.
    #[error("{path}: {reason}")]
    Make {
        /// The overlay.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// The file cannot be opened.
    #[error("{path}: {source}")]
    Open {
        /// The overlay.
        path: String,
        /// Why.
        source: OpenError,
    },
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The overlay.
        path: String,
        /// Why.
        source: IoError,
    },
    /// It is another file, or damaged.
    #[error("{path}: {source}")]
    Header {
        /// The overlay.
        path: String,
        /// What is wrong.
        source: OverlayHeaderError,
    },
    /// It is shorter than it must be.
    #[error("{path}: it is cut off")]
    Short {
        /// The overlay.
        path: String,
    },
    /// It is of another member, or the member is not what it was.
    #[error("{path} is the overlay of another member, {name}: {source}")]
    Other {
        /// The overlay.
        path: String,
        /// What its member was called.
        name: String,
        /// How that is known.
        source: Difference,
    },
    /// Nothing serves it.
    #[error("{path}: {source}")]
    Core {
        /// The overlay.
        path: String,
        /// Why.
        source: IoError,
    },
}

impl OverlayError {
    /// As an operator is told of it.
    #[must_use]
    pub fn problem(&self, member: &str) -> Problem {
        let what = format!("{member}: {self}");
        let problem = match self {
            Self::Make { .. } | Self::Read { .. } | Self::Core { .. } => Problem::new(
                Code::OverlayFailed,
                what,
                "what is written to the member is to be kept there",
                "name a directory of yours, on a file system with room for what is going to be written",
            ),
            Self::Open { source: OpenError::Locked, .. } => Problem::new(
                Code::Locked,
                what,
                "two owners of one overlay destroy it",
                "stop the other owner first (`wattle status`, `fuser`), or name another directory",
            ),
            Self::Open { .. } => Problem::new(
                Code::OverlayFailed,
                what,
                "what was written to the member is kept there",
                "make it readable and writable for this user, or name another directory",
            ),
            Self::Header { .. } | Self::Short { .. } => Problem::new(
                Code::OverlayMismatch,
                what,
                "without its header and all of its map it is not known what was written; it may have been interrupted while it was made, or \
                 cut off by a copy",
                "if nothing in it is needed, remove the file; or name another directory",
            ),
            Self::Other { .. } => Problem::new(
                Code::OverlayMismatch,
                what,
                "what was written over one drive makes no sense over another, nor over the same one after it was changed",
                "name another directory; to start over, remove the file; two members with one file name need two names",
            ),
        };
        problem.of_member(member)
    }
}

impl Overlays {
    /// Overlays in `dir`, which is made if it is not there; and what is in it already.
    ///
    /// # Errors
    /// It is no directory and cannot be made, or there is no thread to serve from.
    pub(crate) fn open(dir: &Path) -> Result<(Self, OverlayFiles), Problem> {
        let failed = |error: &dyn std::fmt::Display| {
            Problem::new(
                Code::OverlayFailed,
                format!("--overlay {}: {error}", dir.display()),
                "what is written to members is to be kept in a directory",
                "name a directory of yours, on a file system with room for what is going to be written",
            )
        };
        std::fs::create_dir_all(dir).map_err(|error| failed(&error))?;
        let mut kept = OverlayFiles::default();
        for entry in std::fs::read_dir(dir).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            if entry.file_name().to_string_lossy().ends_with(SUFFIX) {
                kept.files += 1;
                kept.bytes += entry.metadata().map_or(0, |metadata| metadata.blocks() * SECTOR_BYTES);
            }
        }
        let core = beside().map_err(|error: BackendError| failed(&error))?;
        Ok((Self { dir: dir.to_owned(), core }, kept))
    }

    /// The member called `name`, open as `below`, for looking at it: with what was written before,
    /// if anything was.
    pub(crate) fn look(
        &self,
        name: &str,
        below: &Device,
        modified: Option<(i64, u32)>,
    ) -> Result<Device, OverlayError> {
        self.device(name, below, modified, None)
    }

    /// The same for using it, with a lock on the overlay: its file is made if it is to be written.
    pub(crate) fn claim(
        &self,
        name: &str,
        below: &Device,
        modified: Option<(i64, u32)>,
        claim: Claim,
    ) -> Result<Device, OverlayError> {
        self.device(name, below, modified, Some(claim))
    }

    fn device(
        &self,
        name: &str,
        below: &Device,
        modified: Option<(i64, u32)>,
        claim: Option<Claim>,
    ) -> Result<Device, OverlayError> {
        let file = self.dir.join(file_name(name));
        let path = file.display().to_string();
        let layout = OverlayLayout { sectors: below.size_bytes() / SECTOR_BYTES };
        let options = claim.map_or_else(OpenOptions::default, Claim::options);
        let mut header = None;
        let mut of_member = || header.get_or_insert_with(|| describe(name, below, modified)).clone();
        if claim == Some(Claim::Write) {
            make(&file, layout, &mut of_member)
                .map_err(|error| OverlayError::Make { path: path.clone(), reason: error.to_string() })?;
        }
        let opened = match Device::open(&file, options) {
            Err(OpenError::NotFound) => return Ok(below.clone()),
            // It may be held by this very process, for another member of that file name.
            Err(OpenError::Locked) => {
                if let Some(found) = held_for(&file)
                    && let Err(source) = found.check(&of_member())
                {
                    return Err(OverlayError::Other { path, name: found.name, source });
                }
                return Err(OverlayError::Open { path, source: OpenError::Locked });
            }
            Err(source) => return Err(OverlayError::Open { path, source }),
            Ok(opened) => opened,
        };
        let mut bytes = vec![0; PAGE_BYTES as usize];
        if opened.size_bytes() < PAGE_BYTES {
            return Err(OverlayError::Header { path, source: OverlayHeaderError::Magic });
        }
        let read = opened.read_blocking(0, &mut bytes);
        read.map_err(|source| OverlayError::Read { path: path.clone(), source })?;
        let found =
            Header::decode(&bytes).map_err(|source| OverlayError::Header { path: path.clone(), source })?;
        if let Err(source) = found.check(&of_member()) {
            return Err(OverlayError::Other { path, name: found.name, source });
        }
        if opened.size_bytes() < layout.file_bytes() {
            return Err(OverlayError::Short { path });
        }
        let (named, below) = (name.to_owned(), below.clone());
        let served = self.core.call_blocking(async move |core| device::device(&core, &named, below, opened));
        served.map_err(|source| OverlayError::Core { path, source })
    }
}

/// Whose overlay a file is that is in use.
fn held_for(file: &Path) -> Option<Header> {
    let held = Device::open(file, OpenOptions::default()).ok()?;
    let mut bytes = vec![0; PAGE_BYTES as usize];
    held.read_blocking(0, &mut bytes).ok()?;
    Header::decode(&bytes).ok()
}

/// What the file of a member is called.
fn file_name(name: &str) -> String {
    // A link leads to its drive; what is no path stays as it is.
    let path = wattle_rt::path_of_text(name).canonicalize().ok();
    let last = path.as_deref().and_then(Path::file_name).map(wattle_rt::text_of_path);
    last.unwrap_or_else(|| name.to_owned()).replace('/', "_") + SUFFIX
}

/// The member as it is now.
fn describe(name: &str, below: &Device, modified: Option<(i64, u32)>) -> Header {
    let sectors = below.size_bytes() / SECTOR_BYTES;
    let mut bytes = vec![0; sample_bytes(sectors)];
    let samples = sample_places(sectors)
        .map(|place| below.read_blocking(place, &mut bytes).is_ok().then(|| sample(&bytes)));
    let inside = match modified {
        Some(_) => Vec::new(),
        None => samples_in_partitions(below),
    };
    Header { name: name.to_owned(), sectors, modified, samples, inside }
}

/// What is where partitions of a drive begin and end: a drive does not say when it was written, and
/// its own ends do not change when what is in a partition is used.
fn samples_in_partitions(below: &Device) -> Vec<(u64, Option<u32>)> {
    let mut read = |offset_bytes, len_bytes| {
        let mut bytes = vec![0; len_bytes];
        below.read_blocking(offset_bytes, &mut bytes).is_ok().then_some(bytes)
    };
    let table = partition::decode(below.size_bytes(), below.logical_block_bytes(), &mut read);
    let partitions = table.map_or(Vec::new(), |table| table.partitions);
    let usable = partitions.iter().filter(|partition| partition.is_usable());
    let places = usable.flat_map(places_in_partition).take(PLACES_INSIDE_MAX);
    places.map(|place| (place, read(place, PAGE_BYTES as usize).map(|bytes| sample(&bytes)))).collect()
}

/// Makes the file, if it is not there: durable before anything is written to it, and under its name
/// only once it is whole, since others may look for it.
fn make(path: &Path, layout: OverlayLayout, header: &mut dyn FnMut() -> Header) -> std::io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.new", std::process::id()));
    let draft = PathBuf::from(draft);
    // One that a crash left may be the overlay itself by its other name: it goes, and is not
    // written to.
    let _ = std::fs::remove_file(&draft);
    let made = File::create_new(&draft).and_then(|mut file| {
        file.write_all(&header().encode())?;
        file.set_len(layout.file_bytes())?;
        file.sync_all()?;
        publish(&draft, path)
    });
    let _ = std::fs::remove_file(&draft);
    made?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Gives the draft its name, unless another was faster: then its file is as good.
fn publish(draft: &Path, path: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(draft, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // A file system without links.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
            publish_by_renaming(draft, path)
        }
        linked => linked,
    }
}

/// Never in the place of another file, which may hold what was written to an overlay already. A
/// file system that has neither links nor this is refused.
fn publish_by_renaming(draft: &Path, path: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, draft, CWD, path, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Err(std::io::Error::new(
            ErrorKind::Unsupported,
            "the file system cannot give a new file its name without replacing another one",
        )),
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn without_links_too_the_overlay_of_another_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (draft, path) = (dir.path().join("draft"), dir.path().join("a.overlay"));
        std::fs::write(&draft, "new").unwrap();
        publish_by_renaming(&draft, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        std::fs::write(&path, "what was written").unwrap();
        std::fs::write(&draft, "new").unwrap();
        publish_by_renaming(&draft, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"what was written");
    }

    #[test]
    fn an_overlay_that_a_crash_left_two_names_is_not_written_to_by_the_other_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("a.overlay"), dir.path().join("moved"));
        let layout = OverlayLayout { sectors: 2048 };
        let header = Header {
            name: "a".to_owned(),
            sectors: 2048,
            modified: None,
            samples: [None; 16],
            inside: Vec::new(),
        };
        std::fs::write(&moved, "what was written").unwrap();
        std::fs::hard_link(&moved, dir.path().join(format!("a.overlay.{}.new", std::process::id()))).unwrap();
        make(&path, layout, &mut || header.clone()).unwrap();
        assert_eq!(std::fs::read(&moved).unwrap(), b"what was written");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), layout.file_bytes());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "a draft is left");
    }
}
