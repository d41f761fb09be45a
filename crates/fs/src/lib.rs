//! Files: reads file systems out of anything that can be read at an offset. Nothing here writes.
//!
//! [`open`] recognises ext2, ext3, ext4, XFS, btrfs, FAT, exFAT, NTFS and HFS+, and gives a
//! [`FileSystem`]: directories are listed, attributes read, and the data of files delivered in
//! order, holes left out. What is damaged is an error that names the structure; what is not
//! supported is an error that names the feature. What can be read but is not the newest state is a
//! [`Note`].
//!
//! Every byte of a file system is untrusted: no decoder here panics, allocates by a number it
//! read without a bound, or goes round in a circle. The bound is nearly always the size of what is
//! read: a structure of a file system occupies blocks of it.
//!
//! Reading order: [`FileSystem`], then `source` (how bytes are read), then one directory per
//! family.

mod acl;
mod btrfs;
mod bytes;
mod census;
mod devices;
mod error;
mod ext;
mod fat;
pub mod fuzzing;
mod hfs;
mod layout;
mod names;
mod ntfs;
mod owners;
mod path;
mod recognise;
mod source;
mod usage;
mod xfs;

use std::ops::Range;
use std::rc::Rc;

pub use bytes::uuid_text;
pub use census::{
    CensusLimits, ExtentTally, FileSystemCensus, FreeClass, FreeTally, JumpClass, PieceClass, ReadPattern,
};
pub use devices::{FsDevice, FsDeviceState, FsDevices};
pub use error::{Error, Note};
pub use layout::FileSystemLayout;
pub use owners::{FileAtPlace, FilesAtPlaces, files_at};
pub use path::resolve;
pub use source::{FileRun, ReadAt};
pub use usage::FileSystemUsage;

use recognise::FileSystemFamily;
use source::{ByteSource, GivenSource};

/// Opens the file system in `reader`: the one that was formatted last, if another one left traces.
/// Of btrfs the subvolume of that number, which also means that one, or else the one that a mount
/// would show.
///
/// # Errors
/// [`Error::Unrecognised`] if there is none that is known here; else what is wrong with it or not
/// supported.
pub fn open(reader: Box<dyn ReadAt>, subvolume: Option<u64>) -> Result<Box<dyn FileSystem>, Error> {
    open_source(ByteSource::new(reader), subvolume)
}

fn open_source(source: ByteSource, subvolume: Option<u64>) -> Result<Box<dyn FileSystem>, Error> {
    Ok(match recognise::family_with(&source, subvolume)? {
        FileSystemFamily::Ext => Box::new(ext::Ext::open(source)?),
        FileSystemFamily::Xfs => Box::new(xfs::Xfs::open(source)?),
        FileSystemFamily::Btrfs => Box::new(btrfs::Btrfs::open(source, subvolume)?),
        FileSystemFamily::Ntfs => Box::new(ntfs::Ntfs::open(source)?),
        FileSystemFamily::Fat => Box::new(fat::Fat::open(source)?),
        FileSystemFamily::Hfs => Box::new(hfs::Hfs::open(source)?),
    })
}

/// Opens the file system that the first of these devices belongs to, with those of the others that
/// are its own, if it is one that lies on several: a btrfs. Else as [`open`].
///
/// What a device lacks or has wrong is taken from the others, as far as there are copies or parity.
/// [`FileSystem::devices`] tells which are here.
///
/// # Errors
/// As [`open`]; of a btrfs also that devices contradict each other, or that too many are missing.
pub fn open_devices(
    readers: Vec<Box<dyn ReadAt>>,
    subvolume: Option<u64>,
) -> Result<Box<dyn FileSystem>, Error> {
    let mut sources = sources(readers);
    let (_, first) = sources.first().ok_or(Error::Unrecognised)?;
    match recognise::family_with(first, subvolume)? {
        FileSystemFamily::Btrfs => {
            if subvolume.is_none() {
                sources.retain(is_btrfs);
            }
            Ok(Box::new(btrfs::Btrfs::open_devices(&sources, subvolume)?))
        }
        _ => {
            let (_, first) = sources.swap_remove(0);
            open_source(Rc::into_inner(first).ok_or(Error::Unrecognised)?, subvolume)
        }
    }
}

/// The file systems that lie on several devices, some of which are among these; what they hold
/// otherwise is passed over.
#[must_use]
pub fn on_several_devices(readers: Vec<Box<dyn ReadAt>>) -> Vec<FsDevices> {
    let mut sources = sources(readers);
    sources.retain(is_btrfs);
    btrfs::on_several(&sources)
}

/// Whether a device was not formatted as something else since it was one of a btrfs.
fn is_btrfs((_, source): &GivenSource) -> bool {
    matches!(recognise::family(source), Ok(FileSystemFamily::Btrfs))
}

fn sources(readers: Vec<Box<dyn ReadAt>>) -> Vec<GivenSource> {
    let count = readers.len();
    readers.into_iter().map(|reader| Rc::new(ByteSource::one_of(reader, count))).enumerate().collect()
}

/// The layout of the ext2, ext3, ext4 or XFS in `reader`.
///
/// # Errors
/// [`Error::Unrecognised`] if it is none of these; or its superblock cannot be read, is damaged, or
/// asks for what is not supported.
pub fn layout(reader: Box<dyn ReadAt>) -> Result<FileSystemLayout, Error> {
    let source = ByteSource::new(reader);
    match recognise::family(&source)? {
        FileSystemFamily::Ext => ext::layout(&source),
        FileSystemFamily::Xfs => xfs::layout(&source),
        _ => Err(Error::Unrecognised),
    }
}

/// How files and free space of the ext2, ext3, ext4 or XFS in `reader` lie on it.
///
/// # Errors
/// [`Error::Unrecognised`] if it is none of these; or it cannot be opened. What is damaged within
/// is counted instead.
pub fn census(reader: Box<dyn ReadAt>, limits: CensusLimits) -> Result<FileSystemCensus, Error> {
    let source = ByteSource::new(reader);
    match recognise::family(&source)? {
        FileSystemFamily::Ext => ext::census::take(source, limits),
        FileSystemFamily::Xfs => xfs::census::take(source, limits),
        _ => Err(Error::Unrecognised),
    }
}

/// How full the ext2, ext3, ext4, XFS or btrfs in `reader` is: a few reads, whatever is on it.
///
/// # Errors
/// [`Error::Unrecognised`] if it is none of these; or what counts cannot be read, is damaged, or
/// asks for what is not supported.
pub fn usage(reader: Box<dyn ReadAt>) -> Result<FileSystemUsage, Error> {
    let source = ByteSource::new(reader);
    match recognise::family(&source)? {
        FileSystemFamily::Ext => ext::usage(&source),
        FileSystemFamily::Xfs => xfs::usage(&source),
        FileSystemFamily::Btrfs => btrfs::usage(&source),
        _ => Err(Error::Unrecognised),
    }
}

/// A file system that can be read.
pub trait FileSystem {
    /// What it is.
    fn about(&self) -> &About;

    /// Why what is shown is not what a mount would show, or may not be: a log that is not empty and
    /// not applied, wholly or in part. Empty if it is the same.
    fn not_as_mounted(&self) -> Vec<Note> {
        self.about().notes.iter().copied().filter(|note| note.differs_from_a_mount()).collect()
    }

    /// Why there may be more than what is shown, though a mount would show the same: it is marked
    /// as damaged, or what is shown is one subvolume of several that was not asked for.
    fn left_out(&self) -> Vec<Note> {
        self.about().notes.iter().copied().filter(|note| note.leaves_out()).collect()
    }

    /// The devices of one that lies on several, here or not; of a btrfs on one device that one.
    /// Empty for what knows of no devices.
    fn devices(&self) -> &[FsDevice] {
        &[]
    }

    /// The root directory.
    fn root(&self) -> FsNode;

    /// Whether a directory is an empty one that stands for a subvolume that is elsewhere. There may
    /// be several in a tree, with one number: a second place that leads to it is no damage.
    fn is_stub(&self, directory: FsNode) -> bool {
        let _ = directory;
        false
    }

    /// The attributes of a file, directory or anything else.
    ///
    /// # Errors
    /// They cannot be read, or are damaged.
    fn metadata(&self, node: FsNode) -> Result<FileMetadata, Error>;

    /// Calls `each` for every entry of a directory, in the order they are stored, without `.` and
    /// `..`. Names are as they are stored: a damaged or hostile file system may have any bytes
    /// there.
    ///
    /// # Errors
    /// It is no directory or cannot be read, or what `each` says.
    fn list(&self, directory: FsNode, each: &mut EachEntry<'_>) -> Result<(), Error>;

    /// The name that [`Self::list`] would give what a part of a path means: another form of the
    /// same letters may be meant.
    fn name_of_part(&self, part: Vec<u8>) -> Vec<u8> {
        part
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// It is no link, or cannot be read.
    fn link(&self, link: FsNode) -> Result<Vec<u8>, Error>;

    /// Calls `each` with the data of a range of a file, from its start to its end, with the offset
    /// in the file. What it is not called for are holes: zeros that nothing is stored for. What
    /// lies beyond the end of the file does not exist.
    ///
    /// # Errors
    /// It is no file or cannot be read, or what `each` says.
    fn read(&self, file: FsNode, range: Range<u64>, each: &mut EachData<'_>) -> Result<(), Error>;

    /// Calls `each` for the places where a file's data is stored, in its order; of copies on one
    /// device for each. What is stored within an inode has no place of its own.
    ///
    /// # Errors
    /// It is no file, or where it is cannot be read, or what `each` says.
    fn runs(&self, file: FsNode, each: &mut EachRun<'_>) -> Result<(), Error>;

    /// The names of the extended attributes of a file, directory or anything else, as Linux shows
    /// them: access control lists, labels and capabilities are among them. Their values are not
    /// read.
    ///
    /// # Errors
    /// They cannot be read, or are damaged.
    fn attributes(&self, node: FsNode) -> Result<Vec<Vec<u8>>, Error>;

    /// The value of an extended attribute, as Linux hands it to programs: of an access control list
    /// the kernel's own form, whatever it is on the disk.
    ///
    /// # Errors
    /// There is none of that name, its value cannot be read, or is none that a program could have.
    fn attribute(&self, node: FsNode, name: &[u8]) -> Result<Vec<u8>, Error>;
}

/// The longest value of an extended attribute that Linux hands on, bytes.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// Takes places of a file's data. It ends the listing with [`Error::Stopped`].
pub type EachRun<'a> = dyn FnMut(FileRun) -> Result<(), Error> + 'a;

/// Takes entries of a directory. It ends the listing with [`Error::Stopped`].
pub type EachEntry<'a> = dyn FnMut(DirEntry) -> Result<(), Error> + 'a;

/// Takes data of a file: the offset, and the bytes. It ends the reading with [`Error::Stopped`].
pub type EachData<'a> = dyn FnMut(u64, &[u8]) -> Result<(), Error> + 'a;

/// A file, directory or anything else: its inode, and where a file system has several trees of
/// inodes, which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FsNode {
    /// The subvolume of btrfs; 0 elsewhere.
    pub tree: u64,
    /// The inode's number.
    pub inode: u64,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name: any bytes.
    pub name: Vec<u8>,
    /// What it names.
    pub node: FsNode,
}

/// What a file system says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// `ext2`, `ext3`, `ext4`, `xfs`, `btrfs`, `vfat`, `exfat`, `ntfs`, `hfsplus`.
    pub kind: &'static str,
    /// Its label: any bytes, none if it has no label.
    pub label: Vec<u8>,
    /// Its UUID; of what has a serial number instead that, in front of zeros.
    pub uuid: [u8; 16],
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What its reader should know.
    pub notes: Vec<Note>,
}

impl About {
    /// Its UUID or serial number, as blkid(8) writes it.
    #[must_use]
    pub fn id_text(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        match self.kind {
            "vfat" | "exfat" => [hex(&self.uuid[..2]), hex(&self.uuid[2..4])].join("-"),
            "ntfs" => hex(&self.uuid[..8]),
            _ => uuid_text(self.uuid),
        }
    }
}

/// A target, if it is one: a block that was never written has zeros in its place.
fn link_target(target: Vec<u8>, structure: &'static str, inode: u64) -> Result<Vec<u8>, Error> {
    let what = "a link's target with zero bytes in it";
    match target.contains(&0) {
        true => Err(Error::Damaged { structure, at: inode, what }),
        false => Ok(target),
    }
}

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileKind {
    /// It stands for a device.
    #[must_use]
    pub fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }

    /// From the type bits of `st_mode`, which all these file systems store.
    fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::File,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Below a second; less than a thousand million.
    pub nanoseconds: u32,
}

impl FileTime {
    /// A damaged number of nanoseconds is no time, and none is not worth an error.
    fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds, nanoseconds: if nanoseconds < 1_000_000_000 { nanoseconds } else { 0 } }
    }
}

/// The attributes of a file, directory or anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMetadata {
    /// What it is.
    pub kind: FileKind,
    /// Permissions, set-user-ID, set-group-ID and sticky: the low twelve bits of `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Names it has. Directories may count more than one.
    pub links: u32,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that are allocated for it, by its own account: what is smaller than its size has
    /// holes, what is larger has more than data, and a damaged one may say anything. Places that
    /// are allocated and never written count, and read as holes.
    pub stored_bytes: u64,
    /// Last read.
    pub accessed: FileTime,
    /// Data last changed.
    pub modified: FileTime,
    /// Attributes last changed.
    pub changed: FileTime,
    /// Made, where the file system keeps that.
    pub created: Option<FileTime>,
    /// Which device a character or block device stands for.
    pub device: Option<DeviceNumber>,
}

/// The number of a device, as Linux counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceNumber {
    /// The driver: 12 bits.
    pub major: u32,
    /// Which of its devices: 20 bits.
    pub minor: u32,
}
