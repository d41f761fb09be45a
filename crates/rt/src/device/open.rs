//! Opening a file or a block device.
//!
//! What a path names may change between two looks at it. So the descriptor that was opened decides
//! what the drive is and how it is used, never the path.

use crate::base::error::IoError;
use crate::base::path_text::text_of_path;
use crate::device::lock::{Lock, lock_fd};
use crate::device::{BlockGeometry, Device, DeviceInner, Direct, Kind, OpenError, OpenOptions};
use crate::memory::buf::BUF_ALIGN_BYTES;
use std::ffi::CString;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// So often a path may come to name something else while it is opened.
const ATTEMPTS: u32 = 8;

impl Device {
    /// Opens a file or a block device. Blocks for as long as the file system does, and as `options`
    /// says for its lock.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Device, OpenError> {
        patiently(options.patience, || open(path.as_ref(), options))
    }

    /// Whether it has all of the size that it had when it was opened: a drive that was pulled out
    /// has none, a file may have been cut off. What is neither counts as unchanged.
    #[must_use]
    pub fn keeps_its_size(&self) -> bool {
        match &self.0.kind {
            Kind::File { fd, .. } => size_of_fd(fd).is_ok_and(|size_bytes| size_bytes >= self.0.size_bytes),
            Kind::Part { whole, .. } => whole.keeps_its_size(),
            Kind::Mem(_) | Kind::Null | Kind::Hosted(_) => true,
        }
    }

    /// Whether these bytes are a hole of a file, on a file system that is known to tell them
    /// exactly: then they read as zeros. Others (over a network, FUSE, those that count later than
    /// they write) may tell of holes where there is data.
    #[must_use]
    pub fn is_hole(&self, bytes: Range<u64>) -> bool {
        let Kind::File { fd, is_block_device: false, .. } = &self.0.kind else { return false };
        knows_holes(fd) && !has_data(fd, bytes)
    }

    /// The number of the block device that is open, whatever its name leads to by now.
    pub fn block_device_number(&self) -> Option<u64> {
        let Kind::File { fd, is_block_device: true, .. } = &self.0.kind else { return None };
        let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the descriptor is open, and `found` has room for what the kernel says of it.
        if unsafe { libc::fstat(fd.as_raw_fd(), found.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the kernel has filled it.
        Some(unsafe { found.assume_init() }.st_rdev)
    }
}

/// A file that is locked before anything is known of it, its size included: one that is to become a
/// drive. The lock is held until this and the drives made of it are gone.
#[derive(Debug)]
pub struct OwnFile {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl OwnFile {
    /// Opens a regular file for writing, or makes it, and locks it as [`Lock::Exclusive`] does;
    /// blocks as [`Device::open`] does.
    pub fn open(path: impl AsRef<Path>, patience: Duration) -> Result<OwnFile, OpenError> {
        let path = path.as_ref();
        for _ in 0..ATTEMPTS {
            if let Some(own) = patiently(patience, || OwnFile::open_once(path))? {
                return Ok(own);
            }
        }
        Err(OpenError::NotFound)
    }

    /// `None` if an earlier owner removed the file before its lock was given back.
    fn open_once(path: &Path) -> Result<Option<OwnFile>, OpenError> {
        let from_io = |error: std::io::Error| OpenError::from_io(IoError::from_std(&error));
        let options = || {
            let mut options = File::options();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
            options
        };
        let (file, is_new) = match options().create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => match options().open(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                opened => (opened.map_err(from_io)?, false),
            },
            Err(error) => return Err(from_io(error)),
        };
        let found = file.metadata().map_err(from_io)?;
        if FileKind::of(found.mode())? != FileKind::Regular {
            return Err(OpenError::NotAFileOrBlockDevice);
        }
        let fd = OwnedFd::from(file);
        set_flags(&fd, |flags| flags & !libc::O_NONBLOCK).map_err(OpenError::from_io)?;
        lock_fd(&fd, Lock::Exclusive)?;
        let is_there =
            std::fs::metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (found.dev(), found.ino()));
        Ok(is_there.then(|| OwnFile { path: path.to_owned(), file: File::from(fd), is_new }))
    }

    /// Whether it was made just now.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// As a drive of the size that it has now, through the page cache.
    pub fn device(&self) -> Result<Device, OpenError> {
        let fd = self.file.try_clone().map_err(|error| OpenError::from_io(IoError::from_std(&error)))?;
        let options = OpenOptions { write: true, direct: Direct::Never, ..OpenOptions::default() };
        device_of(&self.path, fd.into(), false, options)
    }
}

/// Tries again for so long while another holds the lock.
fn patiently<T>(mut patience: Duration, open: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    const PAUSE: Duration = Duration::from_millis(20);
    loop {
        match open() {
            Err(OpenError::Locked) if !patience.is_zero() => pause(PAUSE),
            opened => return opened,
        }
        patience = patience.saturating_sub(PAUSE);
    }
}

#[expect(clippy::disallowed_methods, reason = "opening blocks; there may be no core to await on")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

fn open(path: &Path, options: OpenOptions) -> Result<Device, OpenError> {
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| OpenError::NotFound)?;
    let mut opened = None;
    for _ in 0..ATTEMPTS {
        let metadata =
            std::fs::metadata(path).map_err(|error| OpenError::from_io(IoError::from_std(&error)))?;
        let kind = FileKind::of(metadata.mode())?;
        opened = open_as(&c_path, kind, options)?.map(|fd| (fd, kind == FileKind::BlockDevice));
        if opened.is_some() {
            break;
        }
    }
    let (fd, is_block_device) = opened.ok_or(OpenError::NotAFileOrBlockDevice)?;
    lock_fd(&fd, options.lock)?;

    device_of(path, fd, is_block_device, options)
}

/// What is open and locked, as a drive.
fn device_of(
    path: &Path,
    fd: OwnedFd,
    is_block_device: bool,
    options: OpenOptions,
) -> Result<Device, OpenError> {
    // A block device that takes no writes is opened for them all the same, and each one fails.
    if is_block_device && options.write && is_set_read_only(&fd) {
        return Err(OpenError::ReadOnly);
    }
    let geometry = if is_block_device { block_geometry(&fd)? } else { BlockGeometry::PLAIN };
    let direct = match options.direct {
        Direct::Never => false,
        Direct::Auto => set_direct(&fd, is_block_device),
    };
    let size_bytes = size_of_fd(&fd)?;
    if size_bytes == 0 {
        return Err(OpenError::Empty);
    }
    let is_elsewhere = !is_block_device && !file_system(&fd).is_some_and(is_local);
    let kind = Kind::File { fd: fd.into(), direct, is_block_device, is_elsewhere };
    let name = text_of_path(path);
    let (writable, losses, held) = (options.write, Arc::default(), OnceLock::new());
    Ok(Device::of_inner(DeviceInner { name, size_bytes, geometry, writable, kind, losses, held }))
}

/// What can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Regular,
    BlockDevice,
}

impl FileKind {
    fn of(mode: u32) -> Result<FileKind, OpenError> {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Ok(FileKind::Regular),
            libc::S_IFBLK => Ok(FileKind::BlockDevice),
            libc::S_IFDIR => Err(OpenError::IsDirectory),
            _ => Err(OpenError::NotAFileOrBlockDevice),
        }
    }
}

/// Opens what was of this kind when it was looked at; `None` if something of another kind is there
/// by now. The flags differ by kind: a block device of which another is the owner must be refused,
/// and a pipe that took the place of a file must not be waited for.
fn open_as(path: &CString, kind: FileKind, options: OpenOptions) -> Result<Option<OwnedFd>, OpenError> {
    let access = if options.write { libc::O_RDWR } else { libc::O_RDONLY };
    let by_kind = match kind {
        FileKind::Regular => libc::O_NONBLOCK,
        FileKind::BlockDevice if options.lock == Lock::Exclusive => libc::O_EXCL,
        FileKind::BlockDevice => 0,
    };
    let file = File::from(open_fd(path, libc::O_CLOEXEC | access | by_kind)?);
    let metadata = file.metadata().map_err(|error| OpenError::from_io(IoError::from_std(&error)))?;
    if FileKind::of(metadata.mode()) != Ok(kind) {
        return Ok(None);
    }
    let fd = OwnedFd::from(file);
    if kind == FileKind::Regular {
        set_flags(&fd, |flags| flags & !libc::O_NONBLOCK).map_err(OpenError::from_io)?;
    }
    Ok(Some(fd))
}

fn open_fd(path: &CString, flags: i32) -> Result<OwnedFd, OpenError> {
    // SAFETY: `path` is a live C string; the flags create nothing, so no mode is needed.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    if fd < 0 {
        return Err(OpenError::from_io(IoError::last_os()));
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Changes the status flags of an open file.
fn set_flags(fd: &OwnedFd, change: impl FnOnce(i32) -> i32) -> Result<(), IoError> {
    // SAFETY: F_GETFL and F_SETFL only take integers.
    let rc = unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        if flags < 0 { flags } else { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, change(flags)) }
    };
    if rc < 0 { Err(IoError::last_os()) } else { Ok(()) }
}

/// The type of the file system that holds a file, as `statfs` names it.
fn file_system(fd: &OwnedFd) -> Option<u32> {
    // SAFETY: a statfs is plain integers, for which all zeros is a value.
    let mut statfs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `statfs` is a live buffer of the right type, and the descriptor is open.
    let rc = unsafe { libc::fstatfs(fd.as_raw_fd(), &raw mut statfs) };
    // The field's width and sign differ between architectures; the numbers have 32 bits.
    (rc == 0).then_some(statfs.f_type as u32)
}

/// Whether the holes of a file can be believed.
pub(super) fn knows_holes(fd: &OwnedFd) -> bool {
    file_system(fd).is_some_and(tells_holes_exactly)
}

/// Whether a file on this file system has holes only where it holds no data, also data that the
/// page cache has not written yet and data kept within the inode.
fn tells_holes_exactly(file_system: u32) -> bool {
    is_local(file_system)
}

/// Whether it lies on drives or in memory of this machine, and the kernel itself reads it.
fn is_local(file_system: u32) -> bool {
    const EXT2_TO_4: u32 = 0xef53;
    const XFS: u32 = 0x5846_5342;
    const BTRFS: u32 = 0x9123_683e;
    const TMPFS: u32 = 0x0102_1994;
    matches!(file_system, EXT2_TO_4 | XFS | BTRFS | TMPFS)
}

/// Whether any of these bytes is data, or that cannot be told.
fn has_data(fd: &OwnedFd, bytes: Range<u64>) -> bool {
    let Ok(start) = libc::off_t::try_from(bytes.start) else { return true };
    // SAFETY: lseek only takes integers; the file position is not used.
    let data = unsafe { libc::lseek(fd.as_raw_fd(), start, libc::SEEK_DATA) };
    match u64::try_from(data) {
        Ok(data) => data < bytes.end,
        // Only holes up to the end of the file.
        Err(_) => IoError::last_os().errno() != libc::ENXIO,
    }
}

/// The size by seeking to the end, which works for files and block devices alike.
fn size_of_fd(fd: &OwnedFd) -> Result<u64, OpenError> {
    // SAFETY: lseek only takes integers; the file position is not used.
    let end = unsafe { libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_END) };
    u64::try_from(end).map_err(|_| OpenError::from_io(IoError::last_os()))
}

/// `_IO(0x12, n)` of linux/fs.h, which libc does not define everywhere.
const BLKIOMIN: libc::Ioctl = 0x1278;
const BLKIOOPT: libc::Ioctl = 0x1279;
const BLKROTATIONAL: libc::Ioctl = 0x127E;
const BLKPBSZGET: libc::Ioctl = 0x127B;
const BLKSSZGET: libc::Ioctl = 0x1268;
const BLKROGET: libc::Ioctl = 0x125E;

/// Whether a block device takes no writes: it was set so, or is write-protected.
pub(super) fn is_set_read_only(fd: &OwnedFd) -> bool {
    ask(fd, BLKROGET).is_ok_and(|value| value != 0)
}

/// What a block device answers to one of these.
fn ask(fd: &OwnedFd, request: libc::Ioctl) -> Result<libc::c_uint, OpenError> {
    let mut value: libc::c_uint = 0;
    // SAFETY: all these requests write one integer of at most 32 bits to the live `value`.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut value) };
    if rc == 0 { Ok(value) } else { Err(OpenError::from_io(IoError::last_os())) }
}

fn block_geometry(fd: &OwnedFd) -> Result<BlockGeometry, OpenError> {
    let ask = |request| ask(fd, request);
    let logical = ask(BLKSSZGET)?;
    // Old drivers know only the logical size; the others then say nothing more.
    Ok(BlockGeometry {
        logical,
        physical: ask(BLKPBSZGET).unwrap_or(logical),
        io_min: ask(BLKIOMIN).unwrap_or(logical),
        io_opt: ask(BLKIOOPT).unwrap_or(0),
        rotational: ask(BLKROTATIONAL).is_ok_and(|value| value != 0),
    })
}

/// Turns `O_DIRECT` on if the device takes it with our memory alignment (and, for files, with
/// 512-byte offsets, as metadata of md and LVM2 is addressed in those). False means the page cache
/// is used.
fn set_direct(fd: &OwnedFd, is_block_device: bool) -> bool {
    let alignment = direct_alignment(fd);
    let fits = match alignment {
        Some((memory, offset)) => {
            memory as usize <= BUF_ALIGN_BYTES && (is_block_device || (1..=512).contains(&offset))
        }
        // Kernels before 6.1 do not say; block devices take their logical block.
        None => is_block_device,
    };
    if !fits {
        return false;
    }
    set_flags(fd, |flags| flags | libc::O_DIRECT).is_ok()
}

/// The alignments `O_DIRECT` needs, as (memory, offset) in bytes; `None` where the kernel does not
/// say.
fn direct_alignment(fd: &OwnedFd) -> Option<(u32, u32)> {
    // SAFETY: a statx is plain integers, for which all zeros is a value.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, empty, mask) = (fd.as_raw_fd(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: the path is a live C string and `stat` a live buffer of the right type.
    let rc = unsafe { libc::statx(fd, c"".as_ptr(), empty, mask, &raw mut stat) };
    let known = rc == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
    known.then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn path_of(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    /// The descriptor decides what the drive is, whatever the path was when it was looked at.
    #[test]
    #[cfg_attr(miri, ignore = "files of the system")]
    fn what_takes_the_place_of_a_file_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, pipe) = (dir.path().join("file"), dir.path().join("pipe"));
        std::fs::write(&file, [1; 4096]).unwrap();
        // SAFETY: the path is a live C string.
        assert_eq!(unsafe { libc::mkfifo(path_of(&pipe).as_ptr(), 0o600) }, 0);
        let exclusive = OpenOptions { lock: Lock::Exclusive, ..OpenOptions::default() };
        let open = |path, kind| open_as(&path_of(path), kind, exclusive);

        assert!(open(&file, FileKind::Regular).unwrap().is_some());
        assert!(open(&file, FileKind::BlockDevice).unwrap().is_none(), "a file where a device was");
        // A pipe without a writer: opening it for reading waits, unless told not to.
        assert!(open(&pipe, FileKind::Regular).unwrap().is_none(), "a pipe where a file was");
        assert!(open(dir.path(), FileKind::Regular).unwrap().is_none(), "a directory where a file was");
        if let Ok(opened) = open(Path::new("/dev/loop0"), FileKind::Regular) {
            assert!(opened.is_none(), "a device where a file was: it would have no owner");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "files of the system")]
    fn a_file_that_is_owned_is_the_one_that_has_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let first = OwnFile::open(&path, Duration::ZERO).unwrap();
        assert!(first.is_new());
        assert_eq!(first.device().unwrap_err(), OpenError::Empty);
        first.file().set_len(4096).unwrap();
        let drive = first.device().unwrap();
        assert_eq!((drive.size_bytes(), drive.keeps_its_size()), (4096, true));
        first.file().set_len(512).unwrap();
        assert!(!drive.keeps_its_size());
        drop(first);
        let open = || OwnFile::open(&path, Duration::ZERO);
        assert_eq!(open().unwrap_err(), OpenError::Locked, "the drive has the lock");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| OwnFile::open(&path, Duration::from_secs(5)).unwrap());
            pause(Duration::from_millis(100));
            std::fs::remove_file(&path).unwrap();
            drop(drive);
            let second = second.join().unwrap();
            assert!(second.is_new(), "not the file that was removed");
            assert_eq!(open().unwrap_err(), OpenError::Locked);
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "files of the system")]
    fn an_open_file_is_in_blocking_mode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let fd = open_as(&path_of(file.path()), FileKind::Regular, OpenOptions::default()).unwrap().unwrap();
        // SAFETY: F_GETFL only takes integers.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & libc::O_NONBLOCK, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "files of the system")]
    fn holes_are_zeros_only_where_they_are_told_exactly() {
        // NFS, FUSE, SMB, 9p, overlayfs (which may lie over any), ZFS (which counts after it has
        // written).
        for magic in [0x6969, 0x6573_5546, 0xff53_4d42, 0x0102_1997, 0x794c_7630, 0x2fc1_2fc1] {
            assert!(!tells_holes_exactly(magic), "{magic:#x}");
        }
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let open = |path| Device::open(path, OpenOptions::default()).unwrap();
        assert!(open(file.path()).is_hole(0..1 << 20), "a hole on tmpfs");
        file.as_file().write_all_at(&[0; 4096], 64 << 10).unwrap();
        let device = open(file.path());
        for (bytes, is_hole) in [
            (0..1 << 20, false),
            (0..64 << 10, true),
            (0..(64 << 10) + 1, false),
            (64 << 10..68 << 10, false),
            (68 << 10..1 << 20, true),
        ] {
            assert_eq!(device.is_hole(bytes.clone()), is_hole, "{bytes:?}");
        }
        assert!(!Device::mem(1 << 20).is_hole(0..4096), "no file at all");
    }
}
