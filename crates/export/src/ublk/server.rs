//! All devices of a server.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;

use wattle_engine::{VolumeError, VolumeRef};
use wattle_rt::sync::Semaphore;
use wattle_rt::ublk::UblkControl;
use wattle_rt::{Core, IoError};

use super::claim::{claim, give_up, may_be_claimed};
use super::device::{Device, Numbering};
use super::driver::{Driver, UblkError};
use super::links::UblkLinks;
use super::protocol::{DeviceState, mark_of};

/// A volume to be offered.
#[derive(Clone)]
pub struct UblkVolume {
    /// The volume.
    pub volume: VolumeRef,
    /// What tells it from every other, whatever it is called: a later server takes its device over
    /// by this.
    pub identity: String,
}

/// What an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UblkNote {
    /// A volume is a new device.
    Made(PathBuf),
    /// A volume is a new device, which ends with its server, in use or not: its server is not root.
    MadeForServer(PathBuf),
    /// A server that is gone had left the device; its requests go on.
    TakenOver(PathBuf),
    /// The volume has grown while the device waited, and the kernel cannot be told.
    KeepsSize(PathBuf, IoError),
    /// The device is in use; it waits for the next server.
    Left(PathBuf),
    /// The device was in use, and ends with its server.
    EndedInUse(PathBuf),
    /// Not all that programs wrote to the device reached the volume before it was removed.
    NotWritten(PathBuf, IoError),
    /// The device could not be removed.
    Stays(PathBuf, IoError),
    /// A device of a wattle server that is gone, and of none of these volumes.
    Orphan(PathBuf),
}

/// What hears of devices, with the volume's name.
type NoteListener = Box<dyn Fn(&str, &UblkNote)>;

/// Offers volumes as block devices. Clones are one server.
#[derive(Clone)]
pub struct UblkServer(Rc<Server>);

struct Server {
    driver: Rc<Driver>,
    /// The number of the first device, if it was said.
    first: Option<u32>,
    /// Of all its volumes, before they have their devices too.
    marks: RefCell<BTreeSet<u64>>,
    links: UblkLinks,
    /// One change at a time has the devices.
    changing: Semaphore,
    stopped: Cell<bool>,
    devices: RefCell<BTreeMap<String, Device>>,
    tell: NoteListener,
}

impl UblkServer {
    /// Offers volumes as devices, from number `first` on or as the kernel chooses; `tell` hears of
    /// each, by the volume's name.
    ///
    /// # Errors
    /// One of them cannot be had. None is offered then; a device that waited for its volume goes on
    /// waiting.
    pub async fn start(
        core: &Core,
        control: UblkControl,
        first: Option<u32>,
        links: UblkLinks,
        volumes: Vec<UblkVolume>,
        tell: impl Fn(&str, &UblkNote) + 'static,
    ) -> Result<Self, UblkError> {
        let driver = Rc::new(Driver::open(core, control).await?);
        let marks: BTreeSet<_> = volumes.iter().map(|volume| mark_of(&volume.identity)).collect();
        for info in driver.ours().await? {
            if info.state == DeviceState::Quiesced && !marks.contains(&info.mark) {
                tell("", &UblkNote::Orphan(format!("/dev/ublkb{}", info.number).into()));
            }
        }
        let server = Self(Rc::new(Server {
            driver,
            first,
            marks: RefCell::new(marks),
            links,
            changing: Semaphore::new(1),
            stopped: Cell::new(false),
            devices: RefCell::default(),
            tell: Box::new(tell),
        }));
        for volume in volumes {
            if let Err(error) = server.add(volume).await {
                // What waited for its volume goes on waiting, whatever has it open.
                server.end(async |device: &mut Device| device.taken_over || !device.hide().await).await;
                return Err(error);
            }
        }
        Ok(server)
    }

    /// Offers another volume; the link to its device.
    ///
    /// # Errors
    /// There is no device for it, or the server has been stopped.
    pub async fn add(&self, volume: UblkVolume) -> Result<PathBuf, UblkError> {
        let Server { driver, links, .. } = &*self.0;
        let _alone = self.0.changing.acquire(1).await;
        if self.0.stopped.get() {
            return Err(VolumeError::Stopped.into());
        }
        let UblkVolume { volume, identity } = volume;
        self.0.marks.borrow_mut().insert(mark_of(&identity));
        let marks = self.0.marks.borrow().clone();
        let numbering = Numbering { first: self.0.first, own_marks: &marks };
        let mut device = Device::start(driver, &volume, &identity, numbering).await?;
        let (name, path) = (volume.name().to_owned(), device.path());
        if let Err((link, error)) = links.make(&name, &path) {
            if device.taken_over {
                // What was in use before goes on waiting.
                device.leave().await;
            } else {
                // The first error is the one that matters.
                let _ = device.remove(false).await;
            }
            return Err(UblkError::Link { path: link, why: error.to_string() });
        }
        let note = match (device.taken_over, device.outlives) {
            (true, _) => UblkNote::TakenOver(path),
            (false, true) => UblkNote::Made(path),
            (false, false) => UblkNote::MadeForServer(path),
        };
        (self.0.tell)(&name, &note);
        // Of a device that waited the kernel knows the size that its volume had.
        if let Err(error) = device.resize(volume.size_bytes()).await {
            (self.0.tell)(&name, &UblkNote::KeepsSize(device.path(), error));
        }
        self.0.devices.borrow_mut().insert(name.clone(), device);
        Ok(links.of(&name))
    }

    /// Where a volume's device is found.
    #[must_use]
    pub fn link_of(&self, volume: &str) -> PathBuf {
        self.0.links.of(volume)
    }

    /// From now on nothing can claim a volume's device, until it is shown or removed; `false` if
    /// something has.
    pub async fn hide(&self, volume: &str) -> bool {
        let _alone = self.0.changing.acquire(1).await;
        let Some(number) = self.visible_number(volume) else { return true };
        match claim(&self.0.driver.core, number).await {
            Ok(claim) => {
                self.0.devices.borrow_mut().get_mut(volume).expect("it is not changing").claim = Some(claim);
                true
            }
            Err(error) => !may_be_claimed(error),
        }
    }

    /// Lets a volume's device be claimed again.
    pub async fn show(&self, volume: &str) {
        let _alone = self.0.changing.acquire(1).await;
        let claim = self.0.devices.borrow_mut().get_mut(volume).and_then(|device| device.claim.take());
        give_up(&self.0.driver.core, claim).await;
    }

    /// The number of a volume's device, if it has one that is in view.
    fn visible_number(&self, volume: &str) -> Option<u32> {
        let devices = self.0.devices.borrow();
        devices.get(volume).filter(|device| device.claim.is_none()).map(Device::number)
    }

    /// Takes a volume away: what uses its device gets errors from now on.
    pub async fn remove(&self, volume: &str) {
        let _alone = self.0.changing.acquire(1).await;
        let device = self.0.devices.borrow_mut().remove(volume);
        if let Some(device) = device {
            self.remove_device(volume, device, false).await;
        }
    }

    async fn remove_device(&self, volume: &str, mut device: Device, in_use: bool) {
        let path = device.path();
        self.0.links.remove(volume, &path);
        if let Err(error) = device.sync().await {
            (self.0.tell)(volume, &UblkNote::NotWritten(path.clone(), error));
        }
        match device.remove(in_use).await {
            _ if in_use => (self.0.tell)(volume, &UblkNote::EndedInUse(path)),
            Ok(()) => {}
            Err(error) => (self.0.tell)(volume, &UblkNote::Stays(path, error)),
        }
    }

    /// Tells the kernel of a volume's size.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the volume grew and this kernel's devices cannot; what the driver says
    /// otherwise. Once for each size.
    pub async fn resize(&self, volume: &str, size_bytes: u64) -> Result<(), IoError> {
        let _alone = self.0.changing.acquire(1).await;
        let taken = self.0.devices.borrow_mut().remove(volume);
        let Some(mut device) = taken else { return Ok(()) };
        let resized = device.resize(size_bytes).await;
        self.0.devices.borrow_mut().insert(volume.to_owned(), device);
        resized
    }

    /// Lets every request that was taken finish, and removes the devices; one that is claimed waits
    /// for the next server instead, where the driver lets it. The volumes stay open.
    pub async fn stop(&self) {
        // What is not in use stays so until it is stopped.
        self.end(async |device: &mut Device| !device.hide().await).await;
    }

    /// Ends all devices; those that are named wait for the next server.
    async fn end(&self, waits: impl AsyncFn(&mut Device) -> bool) {
        let _alone = self.0.changing.acquire(1).await;
        self.0.stopped.set(true);
        let devices = self.0.devices.take();
        for (volume, mut device) in devices {
            let waits = waits(&mut device).await;
            if waits && device.outlives {
                let path = device.path();
                device.leave().await;
                (self.0.tell)(&volume, &UblkNote::Left(path));
            } else {
                self.remove_device(&volume, device, waits).await;
            }
        }
    }
}
