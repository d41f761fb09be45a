//! ublk: block devices of the kernel whose requests this process answers (Linux 6.5 and later).
//!
//! Only the way to the driver is here: commands to its control device, and a queue of a device for
//! the thread that serves it. What the commands and requests mean is the export's concern. Numbers
//! and layouts are those of `linux/ublk_cmd.h`.

mod queue;

use crate::base::error::IoError;
use crate::commands::{COMMAND_BYTES, CommandRing, DriverCommand};
use crate::executor::core::Core;
use crate::memory::buf::BufMut;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

pub use queue::{UblkQueue, UblkRequest, UblkSlots};

const CONTROL: &str = "/dev/ublk-control";
/// `struct ublksrv_ctrl_cmd`.
const CONTROL_BYTES: u32 = 32;
const CLASS: &str = "/sys/class/ublk-char";

/// The control device.
#[derive(Clone)]
pub struct UblkControl {
    file: Arc<OwnedFd>,
    /// This process may do everything with every device; else the permissions of nodes decide.
    privileged: bool,
}

/// A command to the control device: `struct ublksrv_ctrl_cmd` without its address and length, which
/// are those of the payload.
#[derive(Clone, Copy, Debug)]
pub struct UblkCommand {
    /// Its plain number.
    pub number: u8,
    /// It changes something, as its number as an ioctl says too.
    pub changes: bool,
    /// Of the device; all bits set for none.
    pub device: u32,
    /// The first of the words that belong to the command.
    pub data: u64,
    /// So many bytes at the beginning of the payload are the path of the device's character node.
    pub path_bytes: u16,
}

impl UblkControl {
    /// Opens the control device.
    ///
    /// # Errors
    /// What the system says: `ENOENT` and `ENODEV` without the driver, `EACCES` and `EPERM` without
    /// the right.
    pub fn open() -> Result<UblkControl, IoError> {
        let file = Arc::new(open(CONTROL)?);
        Ok(UblkControl { file, privileged: is_administrator() })
    }

    /// Whether this process needs no permission of nodes.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// Gives a command to the driver, which reads and fills `payload`. It may take as long as the
    /// driver waits for what it needs.
    ///
    /// # Errors
    /// What the driver says.
    pub async fn command(
        &self,
        core: &Core,
        command: UblkCommand,
        payload: BufMut,
    ) -> (Result<(), IoError>, BufMut) {
        let ring = match CommandRing::new(1) {
            Ok(ring) => ring,
            Err(error) => return (Err(error), payload),
        };
        let mut call = Call { ring, control: self.clone(), payload: Some(payload) };
        let result = call.carry_out(core, command).await;
        let payload = call.payload.take_if(|_| !call.ring.is_lent(0));
        (result, payload.unwrap_or_else(|| BufMut::zeroed(0)))
    }
}

/// A command under way.
struct Call {
    ring: CommandRing,
    control: UblkControl,
    payload: Option<BufMut>,
}

impl Call {
    async fn carry_out(&mut self, core: &Core, command: UblkCommand) -> Result<(), IoError> {
        let payload = self.payload.as_mut().expect("it is taken at the end");
        // dev_id, queue_id, len, addr, data[0], dev_path_len.
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0..4].copy_from_slice(&command.device.to_ne_bytes());
        bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        let len = u16::try_from(payload.len()).map_err(|_| IoError::INVALID)?;
        bytes[6..8].copy_from_slice(&len.to_ne_bytes());
        let address = if payload.is_empty() { 0 } else { payload.as_mut_ptr().expose_provenance() as u64 };
        bytes[8..16].copy_from_slice(&address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&command.data.to_ne_bytes());
        bytes[24..26].copy_from_slice(&command.path_bytes.to_ne_bytes());
        let device = self.control.file.as_raw_fd();
        let number = driver_number(command.number, command.changes, CONTROL_BYTES);
        // SAFETY: the payload stays in `self` until the completion is taken, and is leaked where
        // that never happens.
        unsafe { self.ring.push(0, &DriverCommand { device, number, bytes, memory: None }) };
        loop {
            let mut answer = None;
            self.ring.turn(|_, result| answer = Some(result))?;
            match answer {
                Some(0..) => return Ok(()),
                Some(error) => return Err(IoError::from_errno(-error)),
                None => core.readable(&self.ring.as_fd()).await?,
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.ring.is_lent(0) {
            // The driver may still read or fill it.
            std::mem::forget(self.payload.take());
        }
    }
}

/// The character node of a device, by which its server takes the requests. One process has it at a
/// time.
#[derive(Clone)]
pub struct UblkDevice {
    file: Arc<OwnedFd>,
}

impl UblkDevice {
    /// The path of a device's character node.
    #[must_use]
    pub fn path(number: u32) -> String {
        format!("/dev/ublkc{number}")
    }

    /// Opens the character node of a device.
    ///
    /// # Errors
    /// `ENOENT` and `EACCES` also for a node that udev has not made ready yet; `EBUSY` while an
    /// earlier server is still ending.
    pub fn open(number: u32) -> Result<UblkDevice, IoError> {
        open(&UblkDevice::path(number)).map(|file| UblkDevice { file: Arc::new(file) })
    }
}

impl AsFd for UblkDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The numbers of all devices that there are, whatever process they are of; none where the system
/// shows none.
///
/// # Errors
/// They cannot be listed: no descriptor is free, say.
pub fn ublk_devices() -> Result<Vec<u32>, IoError> {
    let number = |name: &str| name.strip_prefix("ublkc")?.parse::<u32>().ok();
    let mut numbers = Vec::new();
    let entries = match fs::read_dir(CLASS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(numbers),
        entries => entries.map_err(|error| IoError::from_std(&error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| IoError::from_std(&error))?;
        numbers.extend(entry.file_name().to_str().and_then(number));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Whether a process is there and has not ended: one that was not waited for has no program any
/// more. Of another user's only the first can be told.
#[must_use]
pub fn is_running(process: u32) -> bool {
    match fs::read_link(format!("/proc/{process}/exe")) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// An exclusive hold of a block device: while it lives nothing mounts the device, swaps there, or
/// lies on it.
///
/// Taking it and dropping it block, and wait for requests of the device: while another process
/// opens it the kernel reads partition tables, and the last close writes what is dirty. A thread
/// that answers such requests never does either.
#[derive(Debug)]
pub struct BlockClaim {
    file: fs::File,
}

impl BlockClaim {
    /// Claims the device at `path`. Blocking.
    ///
    /// # Errors
    /// `EBUSY` if something has claimed it: a mount, swap, or another device over it. What the
    /// system says otherwise.
    pub fn take(path: &str) -> Result<BlockClaim, IoError> {
        let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
        opened.map(|file| BlockClaim { file }).map_err(|error| IoError::from_std(&error))
    }

    /// Has the device answer all writes that the kernel has not sent it yet. Blocking.
    ///
    /// # Errors
    /// What one of these writes, or of those that went before, ended with.
    pub fn sync(&self) -> Result<(), IoError> {
        self.file.sync_all().map_err(|error| IoError::from_std(&error))
    }
}

/// Whether this process has `CAP_SYS_ADMIN`.
fn is_administrator() -> bool {
    const SYS_ADMIN: u32 = 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> SYS_ADMIN & 1 == 1)
}

/// The number of a command with an argument of so many bytes, as an ioctl's.
fn driver_number(number: u8, changes: bool, argument_bytes: u32) -> u32 {
    const READ: u32 = 2 << 30;
    const READ_WRITE: u32 = 3 << 30;
    let direction = if changes { READ_WRITE } else { READ };
    direction | argument_bytes << 16 | u32::from(b'u') << 8 | u32::from(number)
}

fn open(path: &str) -> Result<OwnedFd, IoError> {
    let opened: io::Result<fs::File> = fs::OpenOptions::new().read(true).write(true).open(path);
    opened.map(OwnedFd::from).map_err(|error| IoError::from_std(&error))
}
