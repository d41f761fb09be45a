//! Opening what an operator calls a member: a file, a block device, a drive across a network, or a
//! made-up drive.
//!
//! A member is opened once to be looked at, read-only and without a lock, and a second time by
//! [`Member::claim`] when it is about to be used: with a lock against a second owner, and for
//! writing only if the array will be written. Invariant: what is not going to be written is never
//! open for writing. With [`crate::overlay`] nothing is. How members are opened is a value that the
//! process makes once ([`MemberAccess`]).

mod access;
mod drive_id;
mod error;
mod keys;
mod loops;
mod near;
mod paths;
mod table;
mod ways;

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use wattle_format::crc32;
use wattle_format::partition::{Partition, PartitionTable};
use wattle_rt::{CoreHandle, Device, Direct, IoError, OpenError, OpenOptions, path_of_text};

pub use self::access::{MapChoice, MemberAccess, OpenRemote, TellNote};
pub use self::error::MemberError;
pub use self::keys::{AskPassphrase, GivenKey, KeyKind, Keyring};
pub(crate) use self::table::partitions_of;
pub use crate::claim::Claim;
use crate::overlay::Overlays;
use crate::size::parse_size;
use crate::unread::{CopyMap, guard};
use loops::Loops;
use ways::Ways;

/// Where a member is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberAddress {
    /// A file or a block device.
    Path(PathBuf),
    /// `mem:SIZE`: memory, all zeros at first, gone with the process.
    Mem {
        /// Its size.
        size_bytes: u64,
    },
    /// `null:SIZE`: reads as zeros and forgets what is written.
    Null {
        /// Its size.
        size_bytes: u64,
    },
    /// `model:DRIVE`: memory that takes as long as a real drive would. Code that makes these uses
    /// [`Member::made_up`].
    Model,
    /// `nbd://HOST/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`: a drive across a network, and several
    /// of them with `|` between them: one drive by several paths. Opened by what
    /// [`MemberAccess::with_remotes`] was given.
    Remote,
    /// `/dev/sdb|/dev/sdc`: a drive of this machine by several block devices.
    Paths(Vec<PathBuf>),
    /// A partition of another member ([`Member::part`]).
    Part,
    /// What lies on other members: an array, a logical volume ([`Member::layer`]).
    Layer,
}

impl FromStr for MemberAddress {
    type Err = MemberError;

    fn from_str(text: &str) -> Result<Self, MemberError> {
        let size = |size: &str| {
            parse_size(size).map_err(|source| MemberError::BadSize { name: text.to_owned(), source })
        };
        if let Some(rest) = text.strip_prefix("mem:") {
            return Ok(Self::Mem { size_bytes: size(rest)? });
        }
        if let Some(rest) = text.strip_prefix("null:") {
            return Ok(Self::Null { size_bytes: size(rest)? });
        }
        if text.starts_with("model:") {
            return Ok(Self::Model);
        }
        if ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"].iter().any(|scheme| text.starts_with(scheme))
        {
            return Ok(Self::Remote);
        }
        if text.is_empty() {
            return Err(MemberError::EmptyName);
        }
        let path = path_of_text(text);
        if text.contains('|') && !path.exists() {
            let path_of = |path: &str| path_of_text(path.trim()).into_owned();
            return Ok(Self::Paths(text.split('|').map(path_of).collect()));
        }
        Ok(Self::Path(path.into_owned()))
    }
}

impl MemberAddress {
    /// Whether an overlay can keep what is written to it.
    fn is_lasting(&self) -> bool {
        matches!(self, Self::Path(_) | Self::Paths(_) | Self::Remote)
    }

    /// When it was last written, as far as a file says: seconds since 1970 and nanoseconds.
    fn modified(&self) -> Option<(i64, u32)> {
        let Self::Path(path) = self else { return None };
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((metadata.mtime(), u32::try_from(metadata.mtime_nsec()).ok()?))
    }
}

/// What makes two names one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    /// A file, by its file system and inode.
    File { dev: u64, ino: u64 },
    /// A block device, by its number: several nodes may lead to it.
    Block { rdev: u64 },
    /// A made-up drive is only the same as itself.
    MadeUp,
    /// So is a layer: it is never given twice.
    Layer,
    /// Across a network: one drive is one open device.
    Remote,
}

/// An open member.
#[derive(Debug, Clone)]
pub struct Member {
    /// As the operator named it; a path as its text ([`wattle_rt::text_of_path`]).
    pub name: String,
    /// Where it is.
    pub address: MemberAddress,
    /// The open drive.
    pub device: Device,
    /// The drive itself, where `device` is what it looks like with what was written over it.
    below: Device,
    identity: Identity,
    part: Option<Part>,
    /// Of a copy, what is in it. Without that, `below` is what it is on.
    copy: Option<Copied>,
    /// Where what is written to it is kept instead.
    overlays: Option<Arc<Overlays>>,
    /// By which ways it was found, if there are several.
    ways: Option<Arc<Ways>>,
    /// Where it was found, with every link followed, if it has a path.
    linux_path: Option<PathBuf>,
}

/// Text of any length, in eight letters.
fn short(text: &str) -> String {
    format!("{:08x}", crc32::register(!0, text.as_bytes()))
}

/// A copy of a drive; and the core that answers threads for it, if it lacks something.
#[derive(Clone)]
struct Copied {
    map: Arc<CopyMap>,
    core: Option<CoreHandle>,
}

impl fmt::Debug for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copied").field("map", &self.map).finish_non_exhaustive()
    }
}

impl Copied {
    /// What the copy is on, without what is not in the copy.
    fn guard(&self, name: &str, on: Device) -> Result<Device, MemberError> {
        let Some(core) = &self.core else { return Ok(on) };
        guard(core, &on, &self.map).map_err(|source| MemberError::of_map(name, &source))
    }

    /// How the file that it is on is opened: with gaps, reads begin and end at any byte.
    fn options(copy: Option<&Self>, options: OpenOptions) -> OpenOptions {
        let gaps = copy.is_some_and(|copy| copy.core.is_some());
        OpenOptions { direct: if gaps { Direct::Never } else { options.direct }, ..options }
    }
}

/// Which part of what.
#[derive(Debug, Clone)]
struct Part {
    whole: Arc<Whole>,
    start_bytes: u64,
    len_bytes: u64,
    /// It may begin elsewhere: it is not known what its table counts in.
    is_in_doubt: bool,
}

/// A member that is used in parts. It is claimed once for all of them: a lock is for the whole.
#[derive(Debug)]
pub(crate) struct Whole {
    member: Member,
    claimed: OnceLock<Device>,
}

impl Whole {
    pub(crate) fn new(member: Member) -> Arc<Self> {
        Arc::new(Self { member, claimed: OnceLock::new() })
    }

    fn claim(&self, claim: Claim) -> Result<Device, MemberError> {
        if let Some(device) = self.claimed.get() {
            return Ok(device.clone());
        }
        let device = self.member.claim(claim)?.device;
        Ok(self.claimed.get_or_init(|| device).clone())
    }
}

impl Member {
    /// A part of a member, a partition for instance: so many sectors from `start_sectors` on.
    ///
    /// # Errors
    /// [`MemberError::Read`]: it would reach beyond the end.
    pub(crate) fn part(
        whole: &Arc<Whole>,
        name: String,
        start_sectors: u64,
        len_sectors: u64,
    ) -> Result<Self, MemberError> {
        let (start_bytes, len_bytes) = (start_sectors.saturating_mul(512), len_sectors.saturating_mul(512));
        let part = whole.member.device.part(&name, start_bytes, len_bytes);
        let device = part.map_err(|source| MemberError::Read {
            name: name.clone(),
            offset_bytes: start_bytes,
            len_bytes,
            source,
        })?;
        let part = Part { whole: whole.clone(), start_bytes, len_bytes, is_in_doubt: false };
        Ok(Self { part: Some(part), address: MemberAddress::Part, ..Self::layer(name, device) })
    }

    /// A partition of a member, of this table of it.
    ///
    /// # Errors
    /// As [`Self::part`].
    pub(crate) fn partition(
        whole: &Arc<Whole>,
        name: String,
        table: &PartitionTable,
        partition: &Partition,
    ) -> Result<Self, MemberError> {
        let mut part = Self::part(whole, name, partition.start_sectors, partition.len_sectors)?;
        if let Some(of) = &mut part.part {
            of.is_in_doubt = table.is_in_doubt();
        }
        Ok(part)
    }

    /// Where Linux has it, with every link followed: as it was when it was opened, since to look
    /// again may take as long as its file system.
    #[must_use]
    pub fn linux_path(&self) -> Option<&Path> {
        self.linux_path.as_deref()
    }

    /// What lies on other members and is open already: an array, a logical volume.
    #[must_use]
    pub fn layer(name: impl Into<String>, device: Device) -> Self {
        let (name, below) = (name.into(), device.clone());
        Self {
            name,
            address: MemberAddress::Layer,
            device,
            below,
            identity: Identity::Layer,
            part: None,
            copy: None,
            overlays: None,
            ways: None,
            linux_path: None,
        }
    }

    /// A made-up drive that is open already.
    #[must_use]
    pub fn made_up(name: &str, device: Device) -> Self {
        let (address, identity, below) = (MemberAddress::Model, Identity::MadeUp, device.clone());
        Self {
            name: name.to_owned(),
            address,
            device,
            below,
            identity,
            part: None,
            copy: None,
            overlays: None,
            ways: None,
            linux_path: None,
        }
    }

    /// Opens the member again to use it, with a lock, and checks that it is still the same.
    ///
    /// # Errors
    /// [`MemberError`]: locked by another process, not writable, changed since it was looked at.
    pub fn claim(&self, claim: Claim) -> Result<Self, MemberError> {
        self.claim_within(claim, claim)
    }

    /// As [`Self::claim`]; of a part the whole is claimed as `whole` says: other parts of it may be
    /// needed for more than this one.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub fn claim_within(&self, claim: Claim, whole: Claim) -> Result<Self, MemberError> {
        if let Some(part) = &self.part {
            if part.is_in_doubt && claim == Claim::Write && !self.is_overlaid() {
                return Err(MemberError::PartitionInDoubt { name: self.name.clone() });
            }
            let device = part.whole.claim(whole)?.part(&self.name, part.start_bytes, part.len_bytes);
            let device = device.map_err(|_| MemberError::Changed { name: self.name.clone() })?;
            return Ok(Self { device, ..self.clone() });
        }
        // What is written goes elsewhere.
        let of_below = if self.overlays.is_some() { Claim::Read } else { claim };
        let below = match &self.address {
            MemberAddress::Path(path) => self.open_again(path, of_below)?,
            MemberAddress::Paths(_) => match &self.ways {
                Some(ways) => ways.claim(&self.name, of_below)?,
                None => self.below.clone(),
            },
            _ => self.below.clone(),
        };
        // Behind the lock: a copy that goes on writes its map for the last time before it gives its
        // own lock back.
        if let Some(copy) = &self.copy {
            let usable = copy.map.check_use(of_below == Claim::Write);
            usable.map_err(|source| MemberError::of_map(&self.name, &source))?;
        }
        if let Some(overlays) = &self.overlays {
            let device = overlays.claim(&self.name, &below, self.address.modified(), claim);
            let device = device.map_err(|source| MemberError::overlaid(&self.name, &source))?;
            return Ok(Self { device, below, ..self.clone() });
        }
        let read_only = claim == Claim::Write && !below.writable();
        match self.identity {
            Identity::Remote if read_only => Err(open_error(&self.name, OpenError::ReadOnly)),
            Identity::Layer if read_only => Err(MemberError::LayerReadOnly { name: self.name.clone() }),
            _ => Ok(Self { device: below.clone(), below, ..self.clone() }),
        }
    }

    /// Whether it takes writes, as far as that is known without opening it for them: with block
    /// devices that has others look at them.
    ///
    /// # Errors
    /// It may only be read.
    pub fn check_writable(&self) -> Result<(), MemberError> {
        if let Some(part) = &self.part {
            let name = self.name.clone();
            return part.whole.member.check_writable().map_err(|_| open_error(&name, OpenError::ReadOnly));
        }
        let is_read_only = match (&self.address, &self.identity) {
            _ if self.overlays.is_some() => false,
            (MemberAddress::Path(path), Identity::File { .. }) => {
                let opened = std::fs::OpenOptions::new().write(true).open(path);
                let kind = opened.err().map(|error| error.kind());
                matches!(kind, Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem))
            }
            (_, Identity::Remote) => !self.below.writable(),
            _ => self.below.is_set_read_only(),
        };
        if is_read_only { Err(open_error(&self.name, OpenError::ReadOnly)) } else { Ok(()) }
    }

    fn open_again(&self, path: &PathBuf, claim: Claim) -> Result<Device, MemberError> {
        let device = open(&self.name, path, Copied::options(self.copy.as_ref(), claim.options()))?;
        let metadata = std::fs::metadata(path).map_err(|_| open_error(&self.name, OpenError::NotFound))?;
        let size_bytes = self.copy.as_ref().map_or(self.below.size_bytes(), |copy| copy.map.file_bytes());
        if identity_of(&metadata) != self.identity || device.size_bytes() != size_bytes {
            return Err(MemberError::Changed { name: self.name.clone() });
        }
        if claim == Claim::Write {
            let protected = Loops::of_this_machine().protect(path, &device);
            protected.map_err(|by| MemberError::InUse { name: self.name.clone(), by })?;
        }
        self.copy.as_ref().map_or(Ok(device.clone()), |copy| copy.guard(&self.name, device))
    }

    /// Whole sectors of the member.
    #[must_use]
    pub fn size_sectors(&self) -> u64 {
        self.device.size_bytes() / 512
    }

    /// Reads `len_bytes` at `offset_bytes`, at once: for metadata, before anything runs on the
    /// member.
    ///
    /// # Errors
    /// [`MemberError::Read`].
    pub fn read(&self, offset_bytes: u64, len_bytes: usize) -> Result<Vec<u8>, MemberError> {
        let mut bytes = vec![0; len_bytes];
        let (name, len_bytes) = (self.name.clone(), len_bytes as u64);
        match self.device.read_blocking(offset_bytes, &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(IoError::NOT_COPIED) => {
                let map = self.copy_map().map_or(String::new(), |map| map.path().display().to_string());
                Err(MemberError::NotCopied { name, offset_bytes, len_bytes, map })
            }
            Err(source) => Err(MemberError::Read { name, offset_bytes, len_bytes, source }),
        }
    }

    /// Of a copy of a drive its map, or that of the drive it is a part of.
    #[must_use]
    pub fn copy_map(&self) -> Option<&CopyMap> {
        match &self.part {
            Some(part) => part.whole.member.copy_map(),
            None => self.copy.as_ref().map(|copy| &*copy.map),
        }
    }

    /// What of a copy was not read: parts of it in bytes from its own start.
    #[must_use]
    pub fn unread(&self) -> Vec<Range<u64>> {
        let all = self.copy_map().map_or(&[][..], CopyMap::unread);
        let (start, end) = match &self.part {
            Some(part) => (part.start_bytes, part.start_bytes + part.len_bytes),
            None => (0, u64::MAX),
        };
        let within = all.iter().map(|run| run.start.max(start)..run.end.min(end));
        within.filter(|run| !run.is_empty()).map(|run| run.start - start..run.end - start).collect()
    }

    /// The serial number that it tells of itself, if it is a whole drive of this machine. Of a loop
    /// device the file below may say it in its name.
    #[must_use]
    pub(crate) fn serial(&self) -> Option<String> {
        let Identity::Block { rdev } = self.identity else { return None };
        drive_id::serial(Path::new("/sys"), rdev)
    }

    /// Of a part of a member that was claimed, all of it.
    #[must_use]
    pub(crate) fn whole_of_part(&self) -> Option<Self> {
        let whole = &self.part.as_ref()?.whole;
        Some(Self { device: whole.claimed.get()?.clone(), ..whole.member.clone() })
    }

    /// Whether it is a drive in memory or none at all, which nothing else can have written before.
    #[must_use]
    pub fn is_made_up(&self) -> bool {
        self.identity == Identity::MadeUp
    }

    /// Whether what is written to it goes to an overlay, and the member itself stays as it is.
    #[must_use]
    pub fn is_overlaid(&self) -> bool {
        match &self.part {
            Some(part) => part.whole.member.is_overlaid(),
            None => self.overlays.is_some(),
        }
    }

    /// Whether `path` leads to it, by whatever name, or to the drive it is a part of.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        if let Some(part) = &self.part {
            return part.whole.member.is_at(path);
        }
        std::fs::metadata(path).is_ok_and(|metadata| identity_of(&metadata) == self.identity)
    }

    /// What tells it from every other drive and file, as well as this machine knows: the number
    /// that a drive tells of itself, the place of a file. `None` of what is made up, and of what
    /// lies on other members.
    pub(crate) fn machine_identity(&self) -> Option<String> {
        let sys = Path::new("/sys");
        Some(match (&self.ways, self.identity) {
            (Some(ways), _) => format!("drive {}", ways.id),
            (None, Identity::Block { rdev }) => match drive_id::drive_id(sys, rdev) {
                Some(id) => format!("drive {id}"),
                None => {
                    let made_of = drive_id::made_of(sys, rdev).unwrap_or_default();
                    format!("device {rdev:x} {}", short(&made_of))
                }
            },
            (None, Identity::File { dev, ino }) => {
                format!("file {dev:x} {ino} {}", short(&self.absolute_path()))
            }
            (None, Identity::Remote) => self.name.clone(),
            (None, Identity::MadeUp | Identity::Layer) => return None,
        })
    }

    /// Its path wherever it is used from, as text.
    fn absolute_path(&self) -> String {
        let path = path_of_text(&self.name).into_owned();
        std::path::absolute(path).map_or_else(|_| self.name.clone(), wattle_rt::text_of_path)
    }

    /// The number of the drive that it shares with another one, under two names that the kernel
    /// takes for two drives.
    fn same_drive(&self, other: &Self) -> Option<String> {
        let sys = Path::new("/sys");
        let id = |member: &Self| match (&member.ways, member.identity) {
            (Some(ways), _) => Some(ways.id.clone()),
            (None, Identity::Block { rdev }) => drive_id::drive_id(sys, rdev),
            _ => None,
        };
        let shared = id(self).filter(|own| id(other).as_ref() == Some(own))?;
        drive_id::show_the_same(self, other).then_some(shared)
    }

    /// Whether some of it is some of the other: one file or device by two names, or a partition and
    /// its drive.
    fn shares_with(&self, other: &Self) -> bool {
        let whole = |member: &'_ Self| member.part.as_ref().map(|part| part.whole.clone());
        let (mine, others) = (whole(self), whole(other));
        let (one, two) = (
            mine.as_ref().map_or(self, |whole| &whole.member),
            others.as_ref().map_or(other, |whole| &whole.member),
        );
        let same = match one.identity {
            Identity::MadeUp => false,
            Identity::Remote => two.below.same(&one.below),
            identity => two.identity == identity,
        };
        let range = |member: &Self| {
            member
                .part
                .as_ref()
                .map_or(0..u64::MAX, |part| part.start_bytes..part.start_bytes + part.len_bytes)
        };
        let (one, two) = (range(self), range(other));
        same && one.start < two.end && two.start < one.end
    }

    /// Whether it is a file, or a part of one, that is known to hold no data, so that all of it
    /// reads as zeros.
    #[must_use]
    pub fn is_hole(&self) -> bool {
        let (whole, bytes) = match &self.part {
            Some(part) => (&part.whole.member, part.start_bytes..part.start_bytes + part.len_bytes),
            None => (self, 0..self.device.size_bytes()),
        };
        matches!(whole.address, MemberAddress::Path(_))
            && whole.device.same(&whole.below)
            && whole.device.is_hole(bytes)
    }
}

/// The drive and the number in `DRIVE:pN`, as `scan` names partitions, unless there is a file of
/// that whole name.
fn named_partition(name: &str) -> Option<(&str, u32)> {
    let (whole, number) = name.rsplit_once(":p")?;
    let number = number.parse().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()))?;
    (!path_of_text(name).exists() && path_of_text(whole).exists()).then_some((whole, number))
}

/// Whether two names lead to one file or device: relative and absolute, directly and by a link.
/// Waits for the file systems; not for a core.
pub(crate) fn same_place(one: &str, other: &str) -> bool {
    one == other || resolved(one).is_some_and(|path| resolved(other) == Some(path))
}

/// Where a name leads. Waits for the file system; not for a core.
pub(crate) fn resolved(name: &str) -> Option<PathBuf> {
    path_of_text(name).canonicalize().ok()
}

fn not_empty(name: &str, size_bytes: u64) -> Result<u64, MemberError> {
    if size_bytes == 0 { Err(open_error(name, OpenError::Empty)) } else { Ok(size_bytes) }
}

fn open(name: &str, path: &PathBuf, options: OpenOptions) -> Result<Device, MemberError> {
    Device::open(path, options).map_err(|source| match source {
        // Opened for writing, a read-only file answers "permission denied" to every user but root.
        OpenError::PermissionDenied if options.write => {
            MemberError::Open { name: name.to_owned(), source: OpenError::ReadOnly }
        }
        source => open_error(name, source),
    })
}

fn open_error(name: &str, source: OpenError) -> MemberError {
    MemberError::Open { name: name.to_owned(), source }
}

fn identity_of(metadata: &std::fs::Metadata) -> Identity {
    if metadata.file_type().is_block_device() {
        Identity::Block { rdev: metadata.rdev() }
    } else {
        Identity::File { dev: metadata.dev(), ino: metadata.ino() }
    }
}
