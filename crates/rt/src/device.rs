//! A member drive as the runtime sees it: a file, a block device, memory, nothing, a modelled or simulated drive; a part of one of
//! these; or what tasks serve.

use crate::buf::{BUF_ALIGN_BYTES, Buf, BufMut};
use crate::core::Core;
use crate::error::IoError;
use crate::lock::{Lock, lock_fd};
use crate::mem::{MemDrive, Memory};
use crate::model::Model;
use crate::modelled::ModelledDrive;
use crate::serve::{Serve, Served};
use crate::sim::DriveHandle;
use std::ffi::CString;
use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A handle of an open drive, cheap to clone; the last clone closes it and releases its lock.
///
/// Clones count in the same place, which cores that clone a lot would fight over: see [`Device::for_core`].
#[derive(Clone)]
#[expect(clippy::redundant_allocation, reason = "the outer count is one core's, the inner one everybody's")]
pub struct Device(pub(crate) Arc<Arc<DeviceInner>>);

pub(crate) struct DeviceInner {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) geometry: BlockGeometry,
    pub(crate) writable: bool,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    File {
        fd: OwnedFd,
        direct: bool,
        is_block_device: bool,
    },
    Mem(MemDrive),
    Null,
    Modelled(Box<ModelledDrive>),
    Sim(DriveHandle),
    /// Tasks carry out its operations.
    Served(Served),
    /// A part of another device, which is none itself.
    Part {
        whole: Device,
        start: u64,
    },
}

/// What a drive says about its blocks, in bytes, and how it comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockGeometry {
    pub(crate) logical: u32,
    pub(crate) physical: u32,
    pub(crate) io_min: u32,
    pub(crate) io_opt: u32,
    /// It has a head that moves.
    pub(crate) rotational: bool,
}

impl BlockGeometry {
    const PLAIN: BlockGeometry = BlockGeometry::of_sectors(512);

    /// A drive that says nothing but how large its sectors are.
    pub(crate) const fn of_sectors(bytes: u32) -> BlockGeometry {
        BlockGeometry { logical: bytes, physical: bytes, io_min: bytes, io_opt: 0, rotational: false }
    }
}

/// How to open a drive. The default reads only, takes no lock, and bypasses the page cache where it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open for writing too.
    pub write: bool,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Protection against a second owner.
    pub lock: Lock,
    /// How long to wait, on this thread, for a lock that another holds. The system gives back those of a process that was killed only
    /// when its last operation is over, a moment after the process is gone.
    pub patience: Duration,
}

/// Whether to bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// `O_DIRECT` on block devices, and on files whose file system takes 512-byte offsets.
    #[default]
    Auto,
    /// Through the page cache.
    Never,
}

/// Why a drive could not be opened. Whoever asked knows the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing at the path.
    #[error("no such file or device")]
    NotFound,
    /// This user may not.
    #[error("permission denied")]
    PermissionDenied,
    /// A directory.
    #[error("it is a directory")]
    IsDirectory,
    /// A pipe, socket or character device.
    #[error("it is neither a file nor a block device")]
    NotAFileOrBlockDevice,
    /// Nothing in it: zero bytes.
    #[error("it is empty (0 bytes)")]
    Empty,
    /// It can be read but not written.
    #[error("it is read-only")]
    ReadOnly,
    /// Somebody else holds it: another process, QEMU's included, a mount, or the kernel's md or dm.
    #[error("it is in use by another process or mounted")]
    Locked,
    /// The operating system refused.
    #[error("{}", IoError::from_errno(*.errno))]
    Other {
        /// Its errno.
        errno: i32,
    },
}

impl OpenError {
    pub(crate) fn from_io(error: IoError) -> OpenError {
        match error.errno() {
            libc::ENOENT | libc::ENOTDIR => OpenError::NotFound,
            libc::EACCES | libc::EPERM => OpenError::PermissionDenied,
            libc::EISDIR => OpenError::IsDirectory,
            libc::EROFS => OpenError::ReadOnly,
            libc::EBUSY | libc::EWOULDBLOCK => OpenError::Locked,
            errno => OpenError::Other { errno },
        }
    }
}

impl Device {
    /// Opens a file or a block device. Blocks for as long as the file system does, and as `options` says for its lock.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Device, OpenError> {
        const PAUSE: Duration = Duration::from_millis(20);
        let mut patience = options.patience;
        loop {
            match open(path.as_ref(), options) {
                Err(OpenError::Locked) if !patience.is_zero() => pause(PAUSE),
                opened => return opened,
            }
            patience = patience.saturating_sub(PAUSE);
        }
    }

    /// A drive in memory of `size_bytes` zeros; only what is written takes space.
    pub fn mem(size_bytes: u64) -> Device {
        Device::of(format!("mem:{size_bytes}"), size_bytes, Kind::Mem(MemDrive::new(size_bytes)))
    }

    /// A drive that reads as zeros and forgets what is written.
    pub fn null(size_bytes: u64) -> Device {
        Device::of(format!("null:{size_bytes}"), size_bytes, Kind::Null)
    }

    /// A drive in memory of zeros that takes as long as `model` says, in real time; only what is written takes space.
    /// Panics if the size is not whole sectors of 512 or 4096 bytes.
    pub fn modelled(name: impl Into<String>, size_bytes: u64, sector_bytes: u32, model: &Model) -> Device {
        assert!(matches!(sector_bytes, 512 | 4096), "sectors are 512 or 4096 bytes");
        assert!(size_bytes.is_multiple_of(u64::from(sector_bytes)), "a drive is whole sectors");
        let geometry =
            BlockGeometry { rotational: model.rotational(), ..BlockGeometry::of_sectors(sector_bytes) };
        let drive = ModelledDrive::new(size_bytes, sector_bytes, model);
        Device::with_kind(name.into(), size_bytes, geometry, Kind::Modelled(Box::new(drive)))
    }

    /// A device whose operations `server` carries out, on the core that asks. `block_bytes` is the unit offsets and lengths must be
    /// multiples of. Threads outside the executors ask `core`, and can only while it runs.
    pub fn served(
        name: impl Into<String>,
        size_bytes: u64,
        block_bytes: u32,
        writable: bool,
        core: &Core,
        server: Arc<dyn Serve>,
    ) -> Device {
        let geometry = BlockGeometry::of_sectors(block_bytes);
        let kind = Kind::Served(Served { server, home: core.handle() });
        Device::of_inner(DeviceInner { name: name.into(), size_bytes, geometry, writable, kind })
    }

    /// A part of this device, a partition for instance: `len_bytes` from `start_bytes` on. It is written if the whole is, and shares
    /// its lock.
    ///
    /// # Errors
    /// [`IoError::END_OF_DEVICE`] if it reaches beyond the end.
    pub fn part(&self, name: impl Into<String>, start_bytes: u64, len_bytes: u64) -> Result<Device, IoError> {
        self.check_range(start_bytes, len_bytes, false)?;
        let (whole, start) = self.place(start_bytes);
        let whole = whole.clone();
        let inner = DeviceInner {
            name: name.into(),
            size_bytes: len_bytes,
            geometry: self.0.geometry,
            writable: self.0.writable,
            kind: Kind::Part { whole, start },
        };
        Ok(Device::of_inner(inner))
    }

    /// The device that holds `offset` of this one, and where.
    pub(crate) fn place(&self, offset: u64) -> (&Device, u64) {
        match &self.0.kind {
            Kind::Part { whole, start } => (whole, start + offset),
            _ => (self, offset),
        }
    }

    fn of(name: String, size_bytes: u64, kind: Kind) -> Device {
        Device::with_kind(name, size_bytes, BlockGeometry::PLAIN, kind)
    }

    pub(crate) fn with_kind(name: String, size_bytes: u64, geometry: BlockGeometry, kind: Kind) -> Device {
        Device::of_inner(DeviceInner { name, size_bytes, geometry, writable: true, kind })
    }

    /// The size when it was opened, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// The unit offsets and lengths must be multiples of, in bytes. 512 for files in the page cache, which in truth
    /// take any offset.
    pub fn logical_block_bytes(&self) -> u32 {
        self.0.geometry.logical
    }

    /// The unit the drive writes without reading first, in bytes.
    pub fn physical_block_bytes(&self) -> u32 {
        self.0.geometry.physical
    }

    /// The smallest transfer the drive likes, in bytes (`minimum_io_size`).
    pub fn io_min_bytes(&self) -> u32 {
        self.0.geometry.io_min
    }

    /// The transfer the drive likes best, in bytes (`optimal_io_size`), 0 if it does not say.
    pub fn io_opt_bytes(&self) -> u32 {
        self.0.geometry.io_opt
    }

    /// Whether it has a head that moves, as far as it says: what does not follow the last request takes a while to get to.
    pub fn rotational(&self) -> bool {
        self.0.geometry.rotational
    }

    /// Whether it is a block device of the kernel.
    pub fn is_block_device(&self) -> bool {
        matches!(self.0.kind, Kind::File { is_block_device: true, .. })
    }

    /// Whether it was opened for writing.
    pub fn writable(&self) -> bool {
        self.0.writable
    }

    /// Whether transfers bypass the page cache.
    pub fn direct(&self) -> bool {
        if let Kind::Part { whole, .. } = &self.0.kind {
            return whole.direct();
        }
        matches!(self.0.kind, Kind::File { direct: true, .. })
    }

    /// What to call it in messages: the path it was opened with, `mem:SIZE`, or the simulated drive's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn of_inner(inner: DeviceInner) -> Device {
        Device(Arc::new(Arc::new(inner)))
    }

    /// A handle of the same open whose clones count in a place of their own.
    pub fn for_core(&self) -> Device {
        Device(Arc::new(Arc::clone(&self.0)))
    }

    /// Whether both are handles of the same open.
    pub fn same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&*self.0, &*other.0)
    }

    /// Fills `bytes` from `offset` (bytes), at once and on this thread: for scans and small tools, never beside an
    /// executor's work. Any offset and length is good. Simulated drives answer `Unsupported`: they live in virtual
    /// time.
    pub fn read_blocking(&self, offset: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        self.check_range(offset, bytes.len() as u64, false)?;
        match &self.0.kind {
            Kind::Mem(drive) => drive.read(offset, bytes),
            Kind::Null => bytes.fill(0),
            Kind::Modelled(drive) => drive.peek(offset, bytes),
            Kind::Sim(_) => return Err(IoError::UNSUPPORTED),
            Kind::Served(served) => served.read_blocking(offset, bytes)?,
            Kind::Part { whole, start } => whole.read_blocking(start + offset, bytes)?,
            Kind::File { fd, direct: false, .. } => pread_all(fd, offset, bytes)?,
            Kind::File { fd, direct: true, .. } => {
                let block = u64::from(self.0.geometry.logical);
                let from = offset / block * block;
                let to = (offset + bytes.len() as u64).next_multiple_of(block);
                let skip = (offset - from) as usize;
                let mut bounce = BufMut::alloc((to - from) as usize);
                // The last block may lie beyond the end of a file of odd size.
                pread_at_least(fd, from, &mut bounce, skip + bytes.len())?;
                bytes.copy_from_slice(&bounce[skip..skip + bytes.len()]);
            }
        }
        Ok(())
    }

    /// Writes `bytes` at `offset` (bytes), at once and on this thread; see [`Device::read_blocking`]. On a direct
    /// device offset and length must be multiples of the logical block.
    pub fn write_blocking(&self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.check_range(offset, bytes.len() as u64, true)?;
        match &self.0.kind {
            Kind::Mem(drive) => drive.write(offset, &Buf::copy_of(bytes)),
            Kind::Null => {}
            Kind::Modelled(drive) => drive.poke(offset, bytes),
            Kind::Sim(_) => return Err(IoError::UNSUPPORTED),
            Kind::Served(served) => served.write_blocking(offset, bytes)?,
            Kind::Part { whole, start } => whole.write_blocking(start + offset, bytes)?,
            Kind::File { fd, direct: false, .. } => pwrite_all(fd, offset, bytes)?,
            Kind::File { fd, direct: true, .. } => pwrite_all(fd, offset, &BufMut::copy_of(bytes))?,
        }
        Ok(())
    }

    /// Makes completed writes durable, at once and on this thread.
    pub fn sync_blocking(&self) -> Result<(), IoError> {
        match &self.0.kind {
            Kind::Mem(_) | Kind::Null | Kind::Modelled(_) => Ok(()),
            Kind::Sim(_) => Err(IoError::UNSUPPORTED),
            Kind::Served(served) => served.sync_blocking(),
            Kind::Part { whole, .. } => whole.sync_blocking(),
            Kind::File { fd, .. } => {
                // SAFETY: fdatasync only takes a descriptor, which `fd` keeps open.
                let rc = unsafe { libc::fdatasync(fd.as_raw_fd()) };
                if rc == 0 { Ok(()) } else { Err(IoError::last_os()) }
            }
        }
    }

    /// Refuses what lies beyond the end, and writes to what was opened for reading. Without this a write past the
    /// end of a member file would grow it.
    pub(crate) fn check_range(&self, offset: u64, len: u64, write: bool) -> Result<(), IoError> {
        if write && !self.0.writable {
            return Err(IoError::READ_ONLY);
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.0.size_bytes => Ok(()),
            _ if write => Err(IoError::NO_SPACE),
            _ => Err(IoError::END_OF_DEVICE),
        }
    }

    /// Who carries out its operations, if tasks do.
    pub(crate) fn as_served(&self) -> Option<&Served> {
        match &self.0.kind {
            Kind::Served(served) => Some(served),
            _ => None,
        }
    }

    /// The memory it is, if it is memory; a part of such a drive has its [place](Device::place) there.
    pub(crate) fn as_memory(&self) -> Option<Memory<'_>> {
        match &self.0.kind {
            Kind::Mem(drive) => Some(Memory::Pages(drive)),
            Kind::Null => Some(Memory::Nothing),
            _ => None,
        }
    }

    /// The model behind it that takes its time, on the machine's clock.
    pub(crate) fn as_modelled(&self) -> Option<&ModelledDrive> {
        match &self.0.kind {
            Kind::Modelled(drive) => Some(drive),
            _ => None,
        }
    }

    /// The descriptor of a real file or block device.
    pub(crate) fn raw_fd(&self) -> Option<i32> {
        match &self.0.kind {
            Kind::File { fd, .. } => Some(fd.as_raw_fd()),
            _ => None,
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {} bytes)", self.0.name, self.0.size_bytes)
    }
}

#[expect(clippy::disallowed_methods, reason = "opening blocks; there may be no core to await on")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

fn open(path: &Path, options: OpenOptions) -> Result<Device, OpenError> {
    let file_type = std::fs::metadata(path).map_err(|error| OpenError::from_io(IoError::from_std(&error)))?;
    let is_block_device = match file_kind(&file_type) {
        libc::S_IFREG => false,
        libc::S_IFBLK => true,
        libc::S_IFDIR => return Err(OpenError::IsDirectory),
        _ => return Err(OpenError::NotAFileOrBlockDevice),
    };
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| OpenError::NotFound)?;
    let mut flags = libc::O_CLOEXEC | if options.write { libc::O_RDWR } else { libc::O_RDONLY };
    if is_block_device && options.lock == Lock::Exclusive {
        flags |= libc::O_EXCL;
    }
    let fd = open_fd(&c_path, flags)?;
    lock_fd(&fd, options.lock)?;

    let geometry = if is_block_device { block_geometry(&fd)? } else { BlockGeometry::PLAIN };
    let direct = match options.direct {
        Direct::Never => false,
        Direct::Auto => set_direct(&fd, is_block_device, &c_path),
    };
    let size_bytes = size_of_fd(&fd)?;
    if size_bytes == 0 {
        return Err(OpenError::Empty);
    }
    let kind = Kind::File { fd, direct, is_block_device };
    let name = path.to_string_lossy().into_owned();
    Ok(Device::of_inner(DeviceInner { name, size_bytes, geometry, writable: options.write, kind }))
}

fn file_kind(metadata: &std::fs::Metadata) -> u32 {
    use std::os::unix::fs::MetadataExt;
    metadata.mode() & libc::S_IFMT
}

fn open_fd(path: &CString, flags: i32) -> Result<OwnedFd, OpenError> {
    // SAFETY: `path` is a live C string; the flags create nothing, so no mode is needed.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    if fd < 0 {
        return Err(OpenError::from_io(IoError::last_os()));
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The size by seeking to the end, which works for files and block devices alike.
fn size_of_fd(fd: &OwnedFd) -> Result<u64, OpenError> {
    // SAFETY: lseek only takes integers; nobody uses the file position.
    let end = unsafe { libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_END) };
    u64::try_from(end).map_err(|_| OpenError::from_io(IoError::last_os()))
}

/// `_IO(0x12, n)` of linux/fs.h, which libc does not define everywhere.
const BLKIOMIN: libc::Ioctl = 0x1278;
const BLKIOOPT: libc::Ioctl = 0x1279;
const BLKROTATIONAL: libc::Ioctl = 0x127E;
const BLKPBSZGET: libc::Ioctl = 0x127B;
const BLKSSZGET: libc::Ioctl = 0x1268;

fn block_geometry(fd: &OwnedFd) -> Result<BlockGeometry, OpenError> {
    let ask = |request| {
        let mut value: libc::c_uint = 0;
        // SAFETY: all these requests write one integer of at most 32 bits to the live `value`.
        let rc = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut value) };
        if rc == 0 { Ok(value) } else { Err(OpenError::from_io(IoError::last_os())) }
    };
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

/// Turns `O_DIRECT` on if the device takes it with our memory alignment (and, for files, with 512-byte offsets, as
/// metadata of md and LVM2 is addressed in those). False means the page cache is used.
fn set_direct(fd: &OwnedFd, is_block_device: bool, path: &CString) -> bool {
    let alignment = direct_alignment(path);
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
    // SAFETY: F_GETFL and F_SETFL only take integers.
    unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT) == 0
    }
}

/// The alignments `O_DIRECT` needs, as (memory, offset) in bytes; `None` where the kernel does not say.
fn direct_alignment(path: &CString) -> Option<(u32, u32)> {
    // SAFETY: a statx is plain integers, for which all zeros is a value.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a live C string and `stat` a live buffer of the right type.
    let rc = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), 0, libc::STATX_DIOALIGN, &raw mut stat) };
    let known = rc == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
    known.then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
}

fn pread_all(fd: &OwnedFd, offset: u64, bytes: &mut [u8]) -> Result<(), IoError> {
    pread_at_least(fd, offset, bytes, bytes.len())
}

/// Reads until the first `needed` bytes are there.
fn pread_at_least(fd: &OwnedFd, offset: u64, bytes: &mut [u8], needed: usize) -> Result<(), IoError> {
    let mut count = 0;
    while count < needed {
        let (bytes, offset) = (&mut bytes[count..], offset + count as u64);
        // SAFETY: the pointer and length are those of a live slice.
        let n = unsafe {
            libc::pread(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), offset.cast_signed())
        };
        match usize::try_from(n) {
            Ok(0) => return Err(IoError::END_OF_DEVICE),
            Ok(n) => count += n,
            Err(_) if IoError::last_os().errno() == libc::EINTR => {}
            Err(_) => return Err(IoError::last_os()),
        }
    }
    Ok(())
}

fn pwrite_all(fd: &OwnedFd, mut offset: u64, mut bytes: &[u8]) -> Result<(), IoError> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and length are those of a live slice.
        let n =
            unsafe { libc::pwrite(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), offset.cast_signed()) };
        match usize::try_from(n) {
            Ok(0) => return Err(IoError::END_OF_DEVICE),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(_) if IoError::last_os().errno() == libc::EINTR => {}
            Err(_) => return Err(IoError::last_os()),
        }
    }
    Ok(())
}
