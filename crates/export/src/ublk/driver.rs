//! What is asked of the driver, and why it may not do it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use wattle_engine::VolumeError;
use wattle_rt::ublk::{UblkCommand, UblkControl, UblkDevice, is_running, ublk_devices};
use wattle_rt::{BufMut, Core, IoError, race};

use super::claim::is_claimed;
use super::limits::{LOOK, PATIENCE};
use super::protocol::{
    DeviceInfo, DeviceState, INFO_BYTES, PARAMETER_BYTES, ToldDisk, command, feature, is_ours,
};

/// Why a volume has no device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UblkError {
    /// There is no control device.
    #[error("there is no /dev/ublk-control: this kernel has no ublk, or its module is not loaded")]
    Missing,
    /// The control device is not this user's, or the driver refuses.
    #[error("the driver does not let this user make devices")]
    Denied,
    /// The driver lacks what a device needs to outlive its server.
    #[error("this kernel's ublk is too old: Linux 6.5 or later has what is needed")]
    TooOld,
    /// The number belongs to a device of another program, or of another volume.
    #[error("ublk device {0} is in use")]
    NumberInUse(u32),
    /// Another process serves it.
    #[error("the volume is /dev/ublkb{number} already, served by process {pid}")]
    Served {
        /// The device.
        number: u32,
        /// The process.
        pid: u32,
    },
    /// A program may rely on what is not there any more.
    #[error(
        "/dev/ublkb{number} waits for this volume, and has {told_bytes} bytes where the volume has {size_bytes}"
    )]
    Smaller {
        /// The device.
        number: u32,
        /// What the kernel was told.
        told_bytes: u64,
        /// What there is.
        size_bytes: u64,
    },
    /// Writes may wait there, and would fail.
    #[error("/dev/ublkb{0} waits for this volume to be written to, and it is only read here")]
    ReadOnly(u32),
    /// The node by which requests are taken cannot be opened.
    #[error("{path} cannot be opened: {error}")]
    Node {
        /// Its path.
        path: String,
        /// Why.
        error: IoError,
    },
    /// There is no such device of wattle's.
    #[error("there is no ublk device {0} that wattle made, or this user may not look at it")]
    NotOurs(u32),
    /// Something has it mounted, swaps there, or lies on it.
    #[error("/dev/ublkb{0} is in use: it is mounted, swap, or below another device")]
    Claimed(u32),
    /// A link to the device cannot be made.
    #[error("{}: {why}", path.display())]
    Link {
        /// Its path.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The volume cannot be opened any more.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The driver or the kernel says no.
    #[error("{doing}: {error}")]
    Driver {
        /// What was asked of it.
        doing: &'static str,
        /// What it said.
        error: IoError,
    },
}

impl UblkError {
    /// Why the control device could not be opened.
    #[must_use]
    pub fn of_control(error: IoError) -> Self {
        match error.errno() {
            libc::ENOENT | libc::ENODEV | libc::ENXIO => Self::Missing,
            libc::EACCES | libc::EPERM => Self::Denied,
            _ => failed("opening /dev/ublk-control", error),
        }
    }
}

/// The driver.
pub(super) struct Driver {
    pub(super) core: Core,
    control: UblkControl,
    /// What devices can have; see [`feature`].
    features: u64,
    /// Devices of servers without root, as far as they were looked at: also root has to name their
    /// nodes.
    of_others: RefCell<BTreeSet<u32>>,
}

impl Driver {
    pub(super) async fn open(core: &Core, control: UblkControl) -> Result<Self, UblkError> {
        const NEEDED: u64 = feature::RECOVERY | feature::REISSUE | feature::ENCODED;
        let of_others = RefCell::default();
        let mut driver = Self { core: core.clone(), control, features: 0, of_others };
        let (asked, features) = driver.command(command::GET_FEATURES, u32::MAX, 0, &[0; 8]).await;
        match asked {
            Err(error) if error.errno() == libc::ENOSYS => return Err(failed("io_uring", error)),
            Err(_) => return Err(UblkError::TooOld),
            Ok(()) => driver.features = features.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
        }
        if driver.features & NEEDED == NEEDED { Ok(driver) } else { Err(UblkError::TooOld) }
    }

    /// Whether this process needs no permission of nodes.
    pub(super) fn is_privileged(&self) -> bool {
        self.control.is_privileged()
    }

    pub(super) fn can_grow(&self) -> bool {
        self.features & feature::UPDATE_SIZE != 0
    }

    /// Gives a command, whose argument is `body`; what came back. An unprivileged server names the
    /// node of the device, by whose permissions it is judged; the node of one that such a server
    /// made is named by every server.
    pub(super) async fn command(
        &self,
        (number, changes): (u8, bool),
        device: u32,
        data: u64,
        body: &[u8],
    ) -> (Result<(), IoError>, BufMut) {
        let of_any = !self.control.is_privileged() || self.of_others.borrow().contains(&device);
        let names_node = device != u32::MAX && of_any;
        let path = if names_node { UblkDevice::path(device) } else { String::new() };
        let payload = BufMut::copy_of(&[path.as_bytes(), body].concat());
        let path_bytes = path.len() as u16;
        let given = UblkCommand { number, changes, device, data, path_bytes };
        let (result, mut payload) = self.control.command(&self.core, given, payload).await;
        let body = payload.split_off(path.len().min(payload.len()));
        (result, body)
    }

    pub(super) async fn order(&self, what: (u8, bool), device: u32, data: u64) -> Result<(), IoError> {
        self.command(what, device, data, &[]).await.0
    }

    pub(super) async fn info(&self, device: u32) -> Result<DeviceInfo, IoError> {
        self.of_others.borrow_mut().remove(&device);
        let ask = async |what| self.command(what, device, 0, &[0; INFO_BYTES]).await;
        let (result, info) = match self.control.is_privileged() {
            false => ask(command::GET_INFO_BY_NODE).await,
            true => match ask(command::GET_INFO).await {
                // What the driver says where a node has to be named and is not.
                (Err(error), _) if error.errno() == libc::EINVAL => {
                    self.of_others.borrow_mut().insert(device);
                    ask(command::GET_INFO_BY_NODE).await
                }
                asked => asked,
            },
        };
        result?;
        info.first_chunk().map(DeviceInfo::decode).ok_or(IoError::INVALID)
    }

    pub(super) async fn told(&self, device: u32) -> Result<ToldDisk, IoError> {
        let mut ask = [0; PARAMETER_BYTES];
        ask[..4].copy_from_slice(&(PARAMETER_BYTES as u32).to_ne_bytes());
        let (result, parameters) = self.command(command::GET_PARAMETERS, device, 0, &ask).await;
        result?;
        parameters.first_chunk().map(ToldDisk::decode).ok_or(IoError::INVALID)
    }

    /// The devices that some wattle server made, and that this process may look at. What cannot be
    /// looked at for want of something is an error: the device that waits for a volume may be
    /// among it, and the volume must not get another one meanwhile.
    pub(super) async fn ours(&self) -> Result<Vec<DeviceInfo>, UblkError> {
        let looking = |error| failed("looking at devices", error);
        let mut ours = Vec::new();
        for number in ublk_devices().map_err(looking)? {
            match self.info(number).await {
                Ok(info) if is_ours(info.mark) => ours.push(info),
                Err(error) if is_short(error) => return Err(looking(error)),
                // Another program's, another user's, or gone.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(ours)
    }

    /// Removes a device that has no server.
    pub(super) async fn delete(&self, device: u32) -> Result<(), IoError> {
        self.delete_within(device, PATIENCE).await
    }

    /// The same, waiting for so long until nothing has the device open any more. It goes then, also
    /// if this has ended before.
    pub(super) async fn delete_within(&self, device: u32, time: Duration) -> Result<(), IoError> {
        let deleted = race(self.order(command::DELETE, device, 0), self.core.sleep(time)).await;
        match deleted {
            wattle_rt::Either::First(result) => result,
            wattle_rt::Either::Second(()) => Err(IoError::from_errno(libc::EBUSY)),
        }
    }

    /// Makes a device; its facts as the driver has settled them.
    pub(super) async fn add(&self, info: &DeviceInfo) -> (Result<(), IoError>, BufMut) {
        let (number, changes) = command::ADD;
        let payload = BufMut::copy_of(&info.encode());
        // There is no node yet that could be named.
        let given = UblkCommand { number, changes, device: info.number, data: 0, path_bytes: 0 };
        self.control.command(&self.core, given, payload).await
    }
}

/// Removes a device that a server has left. With `in_use` also one that is claimed: what waits for
/// it, and whatever is asked of it later, fails.
///
/// # Errors
/// [`UblkError::NotOurs`], [`UblkError::Served`] for a device that has a server, and
/// [`UblkError::Claimed`]; it stays then.
pub async fn remove_left(
    core: &Core,
    control: UblkControl,
    number: u32,
    in_use: bool,
) -> Result<(), UblkError> {
    let driver = Driver::open(core, control).await?;
    let ours = async || driver.info(number).await.ok().filter(|info| is_ours(info.mark));
    let mut info = ours().await.ok_or(UblkError::NotOurs(number))?;
    let deadline = core.now() + PATIENCE;
    // The driver needs a moment to see that a server is gone.
    while info.state == DeviceState::Live {
        if is_running(info.pid) || core.now() >= deadline {
            return Err(UblkError::Served { number, pid: info.pid });
        }
        core.sleep(LOOK).await;
        info = ours().await.ok_or(UblkError::NotOurs(number))?;
    }
    if !in_use && is_claimed(core, number).await {
        return Err(UblkError::Claimed(number));
    }
    driver.delete(number).await.map_err(|error| failed("removing the device", error))
}

/// Whether this machine lacks something just now.
fn is_short(error: IoError) -> bool {
    matches!(error.errno(), libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::EINTR)
}

pub(super) fn failed(doing: &'static str, error: IoError) -> UblkError {
    UblkError::Driver { doing, error }
}
