//! A member drive as the runtime sees it: a file, a block device, memory, nothing, a modelled or
//! simulated drive; a part of one of these; or what tasks serve.

mod descriptor;
mod holes;
pub(crate) mod lock;
mod loops;
mod losses;
pub(crate) mod mem;
mod open;
mod transfer;

use crate::base::error::IoError;
use crate::device::descriptor::DriveFd;
use crate::device::lock::Lock;
pub use crate::device::loops::LoopFile;
use crate::device::losses::Cursor;
pub(crate) use crate::device::losses::Losses;
use crate::device::mem::{MemDrive, Memory};
pub use crate::device::open::OwnFile;
use crate::device::transfer::{pread_all, pread_at_least, pwrite_all};
use crate::memory::buf::{Buf, BufMut};
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A handle of an open drive, cheap to clone; the last clone closes it and releases its lock.
///
/// Clones count in the same place, which cores that clone a lot would fight over: see
/// [`Device::for_core`].
#[derive(Clone)]
pub struct Device(pub(crate) Arc<Handle>);

/// One core's count of the handles of one user.
pub(crate) struct Handle {
    inner: Arc<DeviceInner>,
    /// How far that user has been told of losses.
    cursor: Arc<Cursor>,
}

impl Deref for Handle {
    type Target = DeviceInner;

    fn deref(&self) -> &DeviceInner {
        &self.inner
    }
}

pub(crate) struct DeviceInner {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) geometry: BlockGeometry,
    pub(crate) writable: bool,
    pub(crate) kind: Kind,
    /// What was lost; of a part, its whole counts.
    pub(crate) losses: Arc<Losses>,
    /// What stays open, and locked, as long as this is.
    pub(crate) held: OnceLock<Vec<Device>>,
}

/// What carries out the operations of a device that is neither a descriptor nor memory. The
/// executor or the backend that knows it takes them to it ([`Device::hosted`]); this is what
/// threads without an executor ask of it.
pub(crate) trait Hosted: Any + Send + Sync {
    /// See [`Device::read_blocking`]; the range was checked.
    fn read_blocking(&self, _offset: u64, _bytes: &mut [u8]) -> Result<(), IoError> {
        Err(IoError::UNSUPPORTED)
    }

    /// See [`Device::write_blocking`]; the range was checked.
    fn write_blocking(&self, _offset: u64, _bytes: &[u8]) -> Result<(), IoError> {
        Err(IoError::UNSUPPORTED)
    }

    /// See [`Device::sync_blocking`].
    fn sync_blocking(&self) -> Result<(), IoError> {
        Err(IoError::UNSUPPORTED)
    }

    /// See [`Device::loses_write_backs`].
    fn loses_write_backs(&self) -> bool {
        false
    }
}

pub(crate) enum Kind {
    File {
        fd: DriveFd,
        direct: bool,
        is_block_device: bool,
        /// Its file system is not known to be on this machine.
        is_elsewhere: bool,
    },
    Mem(MemDrive),
    Null,
    /// Something above carries out its operations: a model, a simulated world, tasks.
    Hosted(Box<dyn Hosted>),
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

/// How to open a drive. The default reads only, takes no lock, and bypasses the page cache where it
/// can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open for writing too.
    pub write: bool,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Protection against a second owner.
    pub lock: Lock,
    /// How long to wait, on this thread, for a lock that another holds. The system gives back those
    /// of a process that was killed only when its last operation is over, a moment after the
    /// process is gone.
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

/// Why a drive could not be opened. The caller knows the path.
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
    /// Another owner holds it: a process, QEMU's included, a mount, or the kernel's md or dm.
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
    /// A drive in memory of `size_bytes` zeros; only what is written takes space.
    pub fn mem(size_bytes: u64) -> Device {
        Device::of(format!("mem:{size_bytes}"), size_bytes, Kind::Mem(MemDrive::new(size_bytes)))
    }

    /// A drive that reads as zeros and forgets what is written.
    pub fn null(size_bytes: u64) -> Device {
        Device::of(format!("null:{size_bytes}"), size_bytes, Kind::Null)
    }

    /// A part of this device, a partition for instance: `len_bytes` from `start_bytes` on. It is
    /// written if the whole is, and shares its lock.
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
            losses: whole.0.losses.clone(),
            kind: Kind::Part { whole, start },
            held: OnceLock::new(),
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
        let (losses, held) = Default::default();
        Device::of_inner(DeviceInner { name, size_bytes, geometry, writable: true, kind, losses, held })
    }

    /// The size when it was opened, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// The unit offsets and lengths must be multiples of, in bytes. 512 for files in the page
    /// cache, which in truth take any offset.
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

    /// Whether it has a head that moves, as far as it says: what does not follow the last request
    /// takes a while to get to.
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

    /// Whether it is a block device that takes no writes, however it was opened.
    pub fn is_set_read_only(&self) -> bool {
        match &self.0.kind {
            Kind::File { fd, is_block_device: true, .. } => open::is_set_read_only(fd),
            _ => false,
        }
    }

    /// Whether transfers bypass the page cache.
    pub fn direct(&self) -> bool {
        if let Kind::Part { whole, .. } = &self.0.kind {
            return whole.direct();
        }
        matches!(self.0.kind, Kind::File { direct: true, .. })
    }

    /// Whether a cache above the drive may lose a write-back and tell a forced write of it.
    pub(crate) fn loses_write_backs(&self) -> bool {
        match &self.0.kind {
            Kind::File { direct, .. } => !direct,
            Kind::Hosted(hosted) => hosted.loses_write_backs(),
            Kind::Part { whole, .. } => whole.loses_write_backs(),
            Kind::Mem(_) | Kind::Null => false,
        }
    }

    /// Whether it is a file or block device behind the page cache.
    pub(crate) fn is_page_cached(&self) -> bool {
        matches!(self.0.kind, Kind::File { direct: false, .. })
    }

    /// What to call it in messages: the path it was opened with, `mem:SIZE`, or the simulated
    /// drive's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn of_inner(inner: DeviceInner) -> Device {
        Device::with_cursor(Arc::new(inner))
    }

    fn with_cursor(inner: Arc<DeviceInner>) -> Device {
        let cursor = Arc::new(inner.losses.cursor());
        Device(Arc::new(Handle { inner, cursor }))
    }

    /// A handle of the same open whose clones count in a place of their own.
    pub fn for_core(&self) -> Device {
        Device(Arc::new(Handle { inner: self.0.inner.clone(), cursor: self.0.cursor.clone() }))
    }

    /// A handle of the same open for a user of its own. A flush through it, or its clones, fails if
    /// anything was lost since the last one of these that failed: also if a flush or a forced write
    /// of another user, or of another part of the drive, took the drive's report of it.
    #[must_use]
    pub fn for_consumer(&self) -> Device {
        Device::with_cursor(self.0.inner.clone())
    }

    pub(crate) fn losses(&self) -> &Losses {
        &self.0.losses
    }

    pub(crate) fn cursor(&self) -> &Cursor {
        &self.0.cursor
    }

    /// Keeps other devices open, and their locks, until the last handle of this open is gone: what
    /// leads to the same bytes by another way. Once for each open; more is dropped at once.
    pub fn hold(&self, others: Vec<Device>) {
        let _ = self.0.held.set(others);
    }

    /// Whether both are handles of the same open.
    pub fn same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0.inner, &other.0.inner)
    }

    /// Whether nothing else holds what was opened: this is the only handle.
    pub fn is_only_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && Arc::strong_count(&self.0.inner) == 1
    }

    /// Fills `bytes` from `offset` (bytes), at once and on this thread: for scans and small tools,
    /// never beside an executor's work. Any offset and length is good. Simulated drives answer
    /// `Unsupported`: they live in virtual time.
    pub fn read_blocking(&self, offset: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        self.check_range(offset, bytes.len() as u64, false)?;
        match &self.0.kind {
            Kind::Mem(drive) => drive.read(offset, bytes),
            Kind::Null => bytes.fill(0),
            Kind::Hosted(host) => host.read_blocking(offset, bytes)?,
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

    /// Writes `bytes` at `offset` (bytes), at once and on this thread; see
    /// [`Device::read_blocking`]. On a direct device offset and length must be multiples of the
    /// logical block.
    pub fn write_blocking(&self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.check_range(offset, bytes.len() as u64, true)?;
        match &self.0.kind {
            Kind::Mem(drive) => drive.write(offset, &Buf::copy_of(bytes)),
            Kind::Null => {}
            Kind::Hosted(host) => host.write_blocking(offset, bytes)?,
            Kind::Part { whole, start } => whole.write_blocking(start + offset, bytes)?,
            Kind::File { fd, direct: false, .. } => pwrite_all(fd, offset, bytes)?,
            Kind::File { fd, direct: true, .. } => pwrite_all(fd, offset, &BufMut::copy_of(bytes))?,
        }
        Ok(())
    }

    /// Makes completed writes durable, at once and on this thread.
    pub fn sync_blocking(&self) -> Result<(), IoError> {
        let (losses, position) = (self.losses(), self.losses().position(self.cursor()));
        let number = losses.begin(true);
        let result = self.sync_drive();
        losses.end(number, result.is_err());
        // Operations that cores have in flight beside it are not waited for: they may need this
        // thread.
        if losses.since(self.cursor(), position) { result.and(Err(IoError::MEDIUM)) } else { result }
    }

    fn sync_drive(&self) -> Result<(), IoError> {
        match &self.0.kind {
            Kind::Mem(_) | Kind::Null => Ok(()),
            Kind::Hosted(host) => host.sync_blocking(),
            Kind::Part { whole, .. } => whole.sync_drive(),
            Kind::File { fd, .. } => {
                // SAFETY: fdatasync only takes a descriptor, which `fd` keeps open.
                let rc = unsafe { libc::fdatasync(fd.as_raw_fd()) };
                if rc == 0 { Ok(()) } else { Err(IoError::last_os()) }
            }
        }
    }

    /// Refuses what lies beyond the end, and writes to what was opened for reading. Without this a
    /// write past the end of a member file would grow it.
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

    /// The memory it is, if it is memory; a part of such a drive has its [place](Device::place)
    /// there.
    pub(crate) fn as_memory(&self) -> Option<Memory<'_>> {
        match &self.0.kind {
            Kind::Mem(drive) => Some(Memory::Pages(drive)),
            Kind::Null => Some(Memory::Nothing),
            _ => None,
        }
    }

    /// What carries out its operations, if that is a `T`.
    pub(crate) fn hosted<T: Hosted>(&self) -> Option<&T> {
        match &self.0.kind {
            Kind::Hosted(host) => (&**host as &dyn Any).downcast_ref(),
            _ => None,
        }
    }

    /// Whether something above the devices carries out its operations.
    pub(crate) fn is_hosted(&self) -> bool {
        matches!(self.0.kind, Kind::Hosted(_))
    }

    /// Tells it from the other drives that are open: its descriptor, or where it is in memory.
    pub(crate) fn number(&self) -> usize {
        let address = || Arc::as_ptr(&self.0.inner).addr();
        self.raw_fd().and_then(|fd| usize::try_from(fd).ok()).unwrap_or_else(address)
    }

    /// Whether a read may wait inside the system call that begins it: through the page cache of a
    /// file system that asks another process or machine, where the kernel reads ahead.
    pub(crate) fn waits_to_begin(&self) -> bool {
        matches!(self.0.kind, Kind::File { is_elsewhere: true, direct: false, .. })
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
