//! One device: made, or taken over from a server that is gone; served on every core, and given
//! back.
//!
//! Invariants:
//! 1. A device is taken over only for the volume whose mark it has, and never for one that is
//!    smaller than what the kernel was told, or takes no writes where the kernel was told that it
//!    does: writes that wait there would fail. It goes on waiting then.
//! 2. The block device is opened and closed on threads of their own, never on a core: the kernel
//!    may make either wait for a request that the core has to answer.
//! 3. What a server needs to go on with a device, it has before it takes the device over: the
//!    driver forgets the old queues then, and a device of which no queue is opened again can only
//!    be removed.
//! 4. A device that is claimed (mounted, in swap, below another one) when its server ends orderly
//!    stays, as after a crash: its requests wait for the next server. One of a server without root
//!    cannot: the driver ends it with its server, whatever was asked of it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use wattle_engine::volume::Remains;
use wattle_engine::{Volume, VolumeError, VolumeRef};
use wattle_rt::ublk::{BlockClaim, UblkControl, UblkDevice, UblkQueue, UblkSlots};
use wattle_rt::{Core, CoreIx, Instant, IoError, JoinHandle};

use super::claim::{claim, give_up, may_be_claimed, sync};
use super::driver::{Driver, UblkError, failed};
use super::limits::{
    DEPTH, HURRIED_RANGE_SECTORS_MAX, LAST_LOOK, LOOK, PATIENCE, QUEUES_MAX, RANGE_SECTORS_MAX,
    REQUEST_BYTES_MAX,
};
use super::protocol::{DeviceInfo, DeviceState, DiskParameters, ToldDisk, command, feature, mark_of};
use super::queue::DeviceShard;

/// How a new device is numbered.
#[derive(Clone, Copy)]
pub(super) struct Numbering<'a> {
    /// By the first number from this one on that no volume of the server has; else by the kernel.
    pub first: Option<u32>,
    /// The marks of the server's volumes.
    pub own_marks: &'a BTreeSet<u64>,
}

/// Added to a device's key: what a core has for it before its queues are opened.
const READY: u64 = 1;

/// The volume, and the queues that are to be opened.
type Ready = Cell<Option<(Volume, Vec<(u16, UblkSlots)>)>>;

/// A device that is being served.
pub(super) struct Device {
    driver: Rc<Driver>,
    info: DeviceInfo,
    node: Option<UblkDevice>,
    /// What its shards are named by on each core: the address, which nothing else has as long as
    /// this lives.
    key: Arc<u64>,
    sessions: Vec<JoinHandle<()>>,
    /// The kernel was told before: by a server that is gone.
    pub(super) taken_over: bool,
    /// It goes on without this server, until another one has it.
    pub(super) outlives: bool,
    told_bytes: u64,
    block_bytes: u64,
    /// The kernel could not be told of this size, and that was said.
    refused_bytes: u64,
    /// The device is out of view: nothing can claim it.
    pub(super) claim: Option<BlockClaim>,
}

impl Device {
    /// The block device's path.
    pub(super) fn path(&self) -> PathBuf {
        block_path(self.info.number).into()
    }

    /// Offers a volume as the device that waits for it, or as a new one.
    pub(super) async fn start(
        driver: &Rc<Driver>,
        volume: &VolumeRef,
        identity: &str,
        numbering: Numbering<'_>,
    ) -> Result<Self, UblkError> {
        let disk = parameters(&driver.core, volume)?;
        let mut device = match Self::left(driver, &disk, identity).await? {
            Some(device) => device,
            None => Self::make(driver, &disk, identity, numbering).await?,
        };
        match device.begin(volume).await {
            Ok(()) => Ok(device),
            Err(error) => {
                device.end_sessions().await;
                drop(device.node.take());
                if !device.taken_over {
                    // The first error is the one that matters.
                    let _ = driver.delete(device.info.number).await;
                }
                Err(error)
            }
        }
    }

    /// Finds the device of an earlier server of this volume, waiting until that has ended.
    async fn left(
        driver: &Rc<Driver>,
        disk: &DiskParameters,
        identity: &str,
    ) -> Result<Option<Self>, UblkError> {
        let mark = mark_of(identity);
        let Some(mut info) = driver.ours().await?.into_iter().find(|info| info.mark == mark) else {
            return Ok(None);
        };
        let (number, deadline) = (info.number, driver.core.now() + PATIENCE);
        while info.state == DeviceState::Live {
            if driver.core.now() >= deadline {
                return Err(UblkError::Served { number, pid: info.pid });
            }
            driver.core.sleep(LOOK).await;
            info = driver.info(number).await.map_err(|error| failed("looking at its device", error))?;
        }
        if info.state != DeviceState::Quiesced {
            // Its server ended before it began, or while it ended it.
            driver.delete(number).await.map_err(|error| failed("removing its old device", error))?;
            return Ok(None);
        }
        let told = driver.told(number).await.map_err(|error| failed("looking at its device", error))?;
        can_be(number, told, disk)?;
        Ok(Some(Self {
            driver: driver.clone(),
            info,
            node: None,
            key: Arc::new(mark),
            sessions: Vec::new(),
            taken_over: true,
            outlives: true,
            told_bytes: told.size_bytes,
            block_bytes: disk.told_block_bytes().into(),
            refused_bytes: 0,
            claim: None,
        }))
    }

    async fn make(
        driver: &Rc<Driver>,
        disk: &DiskParameters,
        identity: &str,
        Numbering { first, own_marks }: Numbering<'_>,
    ) -> Result<Self, UblkError> {
        let mut wanted = feature::RECOVERY | feature::REISSUE | feature::ENCODED;
        if !driver.is_privileged() {
            wanted |= feature::UNPRIVILEGED;
        }
        let mark = mark_of(identity);
        let mut info = DeviceInfo {
            queues: driver.core.cores().min(QUEUES_MAX) as u16,
            depth: DEPTH,
            state: DeviceState::Dead,
            request_bytes_max: REQUEST_BYTES_MAX,
            number: first.unwrap_or(u32::MAX),
            pid: std::process::id(),
            features: wanted,
            mark,
        };
        let answer = loop {
            let (added, answer) = driver.add(&info).await;
            match added.map_err(IoError::errno) {
                Ok(()) => break answer,
                Err(libc::EEXIST | libc::EBUSY) if first.is_some() => {
                    // Another volume of this server kept its number from before.
                    let other = driver.info(info.number).await.ok();
                    if !other.is_some_and(|other| own_marks.contains(&other.mark)) {
                        return Err(UblkError::NumberInUse(info.number));
                    }
                    info.number += 1;
                }
                Err(libc::EPERM | libc::EACCES) => return Err(UblkError::Denied),
                Err(errno) => return Err(failed("making the device", IoError::from_errno(errno))),
            }
        };
        let info = answer.first_chunk().map_or(info, DeviceInfo::decode);
        // Asked for or not: a server without root does not get it.
        let outlives = info.features & feature::RECOVERY != 0;
        let made = async {
            let is_hurried = info.features & feature::UNPRIVILEGED != 0;
            let range = if is_hurried { HURRIED_RANGE_SECTORS_MAX } else { RANGE_SECTORS_MAX };
            let parameters = disk.encode(info.request_bytes_max, range);
            // For an unprivileged server that needs the node, which udev has to give it.
            let node = Self::open_node(driver, info.number).await?;
            let (set, _) = driver.command(command::SET_PARAMETERS, info.number, 0, &parameters).await;
            set.map_err(|error| failed("telling the kernel of the disk", error))?;
            Ok(node)
        };
        match made.await {
            Ok(node) => Ok(Self {
                driver: driver.clone(),
                info,
                node: Some(node),
                key: Arc::new(mark),
                sessions: Vec::new(),
                taken_over: false,
                outlives,
                told_bytes: disk.size_bytes,
                block_bytes: disk.told_block_bytes().into(),
                refused_bytes: 0,
                claim: None,
            }),
            Err(error) => {
                // The first error is the one that matters.
                let _ = driver.delete(info.number).await;
                Err(error)
            }
        }
    }

    async fn open_node(driver: &Driver, number: u32) -> Result<UblkDevice, UblkError> {
        let deadline = driver.core.now() + PATIENCE;
        let opened = Self::until(driver, deadline, || std::future::ready(UblkDevice::open(number))).await;
        opened.map_err(|error| UblkError::Node { path: UblkDevice::path(number), error })
    }

    /// Tries again while the node is not ready, or an earlier server has not quite ended.
    async fn until<T, Fut>(
        driver: &Driver,
        deadline: Instant,
        mut attempt: impl FnMut() -> Fut,
    ) -> Result<T, IoError>
    where
        Fut: Future<Output = Result<T, IoError>>,
    {
        loop {
            match attempt().await {
                Err(error) if driver.core.now() < deadline && is_passing(error) => {
                    driver.core.sleep(LOOK).await;
                }
                result => return result,
            }
        }
    }

    /// Serves it on every core, and lets the kernel's requests come.
    async fn begin(&mut self, volume: &VolumeRef) -> Result<(), UblkError> {
        for ix in 0..self.driver.core.cores() {
            self.prepare_on(CoreIx(ix), volume.clone()).await?;
        }
        if self.taken_over {
            self.take_over().await?;
        }
        for ix in 0..self.driver.core.cores() {
            self.serve_on(CoreIx(ix), volume.remains()).await?;
        }
        let (what, doing) = match self.taken_over {
            true => (command::END_RECOVERY, "going on with its device"),
            false => (command::START, "starting the device"),
        };
        let pid = u64::from(std::process::id());
        self.driver.order(what, self.info.number, pid).await.map_err(|error| failed(doing, error))
    }

    /// Lets a core have what it needs to serve its queues. The kernel has other numbers of queues
    /// than there are cores where an earlier server had other cores.
    async fn prepare_on(&self, ix: CoreIx, volume: VolumeRef) -> Result<(), UblkError> {
        let core = &self.driver.core;
        let (info, key) = (self.info, self.key());
        let queues: Vec<_> = (0..info.queues).skip(ix.0).step_by(core.cores()).collect();
        let prepare = move |core: Core| async move {
            let volume = volume.open(&core)?;
            let slots = |number| {
                let slots = UblkSlots::new(info.depth, info.request_bytes_max as usize);
                slots.map(|slots| (number, slots))
            };
            let queues = queues.into_iter().map(slots).collect::<Result<Vec<_>, _>>();
            let queues = queues.map_err(|error| failed("making a queue", error))?;
            core.put_local::<Ready>(key + READY, Rc::new(Cell::new(Some((volume, queues)))));
            Ok::<(), UblkError>(())
        };
        core.call(ix, prepare).await
    }

    /// Takes the device over from a server that is gone, and opens its node.
    async fn take_over(&mut self) -> Result<(), UblkError> {
        let (driver, number) = (&self.driver, self.info.number);
        let deadline = driver.core.now() + PATIENCE;
        // There is a descriptor for the node then.
        let room = UblkControl::open().map_err(UblkError::of_control)?;
        Self::until(driver, deadline, || driver.order(command::START_RECOVERY, number, 0))
            .await
            .map_err(|error| failed("taking its device over", error))?;
        drop(room);
        self.node = Some(Self::open_node(driver, number).await?);
        Ok(())
    }

    /// Opens a core's queues, and begins to serve them.
    async fn serve_on(&mut self, ix: CoreIx, remains: Arc<Remains>) -> Result<(), UblkError> {
        let core = &self.driver.core;
        let (bytes, key) = (self.info.request_bytes_max, self.key());
        let node = self.node.clone().expect("it is open while the device is served");
        let open = move |core: Core| async move {
            let ready = core.take_local::<Ready>(key + READY).and_then(|ready| ready.take());
            let (volume, queues) = ready.expect("the core was prepared");
            let mut shards = Vec::new();
            for (number, slots) in queues {
                let queue =
                    UblkQueue::new(&node, number, slots).and_then(|mut queue| queue.fetch().map(|()| queue));
                let queue = queue.map_err(|error| failed("opening a queue", error))?;
                let volume = (volume.clone(), remains.clone());
                shards.push(Rc::new(DeviceShard::new(&core, volume, queue, bytes)));
            }
            core.put_local(key, Rc::new(shards));
            Ok::<(), UblkError>(())
        };
        core.call(ix, open).await?;
        let session = core.call(ix, move |core| async move {
            let shards = core.local::<Vec<Rc<DeviceShard>>>(key).expect("it was put there");
            let tasks: Vec<_> = shards.iter().map(|shard| core.spawn(shard.clone().serve())).collect();
            for task in tasks {
                task.await;
            }
            // The node stays open as long as a queue of it is there.
            drop((shards, core.take_local::<Vec<Rc<DeviceShard>>>(key)));
        });
        self.sessions.push(core.spawn(session));
        Ok(())
    }

    fn key(&self) -> u64 {
        Arc::as_ptr(&self.key).addr() as u64
    }

    pub(super) fn number(&self) -> u32 {
        self.info.number
    }

    /// From now on nothing can claim the device, until it is removed; `false` if something has.
    pub(super) async fn hide(&mut self) -> bool {
        if self.claim.is_some() {
            return true;
        }
        let claimed = claim(&self.driver.core, self.info.number).await;
        let is_free = claimed.as_ref().err().is_none_or(|error| !may_be_claimed(*error));
        self.claim = claimed.ok();
        is_free
    }

    /// Tells the kernel of a volume that has grown. That it could not be told is said once of a
    /// size.
    pub(super) async fn resize(&mut self, size_bytes: u64) -> Result<(), IoError> {
        let told = size_bytes / self.block_bytes * self.block_bytes;
        if told <= self.told_bytes.max(self.refused_bytes) {
            return Ok(());
        }
        let grown = match self.driver.can_grow() {
            true => self.driver.order(command::UPDATE_SIZE, self.info.number, told / 512).await,
            false => Err(IoError::UNSUPPORTED),
        };
        let size = if grown.is_ok() { &mut self.told_bytes } else { &mut self.refused_bytes };
        *size = told;
        grown
    }

    /// Has what programs wrote to a hidden device reach the volume. Once the device is stopped the
    /// kernel drops what it has not sent, and no program is told.
    ///
    /// # Errors
    /// Some of it did not.
    pub(super) async fn sync(&mut self) -> Result<(), IoError> {
        let Some(claim) = self.claim.take() else { return Ok(()) };
        let (claim, synced) = sync(&self.driver.core, claim).await;
        self.claim = claim;
        synced
    }

    /// Removes the device: what uses it gets errors from now on. One that is in use (`in_use`) is
    /// gone when nothing has it open any more, and that is not waited for.
    pub(super) async fn remove(mut self, in_use: bool) -> Result<(), IoError> {
        // Requests that were taken are answered meanwhile; then the queues end by themselves.
        let stopped = self.driver.order(command::STOP, self.info.number, 0).await;
        self.end_sessions().await;
        drop(self.node.take());
        // Not before: until the device is stopped nothing is to claim it.
        give_up(&self.driver.core, self.claim.take()).await;
        let time = if in_use { LAST_LOOK } else { PATIENCE };
        stopped.and(self.driver.delete_within(self.info.number, time).await)
    }

    /// Answers what was taken, and lets the device wait for the next server.
    pub(super) async fn leave(mut self) {
        // What the last close writes is answered still.
        give_up(&self.driver.core, self.claim.take()).await;
        self.end_sessions().await;
    }

    async fn end_sessions(&mut self) {
        let (core, key) = (&self.driver.core, self.key());
        for ix in 0..core.cores() {
            core.call(CoreIx(ix), move |core| async move {
                drop(core.take_local::<Ready>(key + READY));
                let shards = core.local::<Vec<Rc<DeviceShard>>>(key);
                shards.iter().flat_map(|shards| shards.iter()).for_each(|shard| shard.stopping.set());
            })
            .await;
        }
        for session in self.sessions.drain(..) {
            session.await;
        }
    }
}

/// Whether a disk does what the kernel was told of a device before.
fn can_be(number: u32, told: ToldDisk, disk: &DiskParameters) -> Result<(), UblkError> {
    let (told_bytes, size_bytes) = (told.size_bytes, disk.size_bytes);
    if told_bytes > size_bytes {
        return Err(UblkError::Smaller { number, told_bytes, size_bytes });
    }
    if disk.read_only && !told.read_only {
        return Err(UblkError::ReadOnly(number));
    }
    Ok(())
}

pub(super) fn block_path(number: u32) -> String {
    format!("/dev/ublkb{number}")
}

fn parameters(core: &Core, volume: &VolumeRef) -> Result<DiskParameters, VolumeError> {
    let opened = volume.open(core)?;
    Ok(DiskParameters {
        size_bytes: opened.size_bytes(),
        read_only: opened.read_only(),
        block_bytes: opened.block_bytes(),
        io_min_bytes: opened.io_min_bytes(),
        io_opt_bytes: opened.io_opt_bytes(),
    })
}

fn is_passing(error: IoError) -> bool {
    matches!(error.errno(), libc::ENOENT | libc::EACCES | libc::EPERM | libc::EBUSY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_goes_on_as_nothing_less_than_the_kernel_was_told() {
        let can_be = |told_bytes: u64, told_read_only: bool, read_only: bool| {
            let told = ToldDisk { size_bytes: told_bytes, read_only: told_read_only };
            let (block_bytes, io_min_bytes, io_opt_bytes) = (512, 4096, 0);
            let size_bytes = 1 << 20;
            let disk = DiskParameters { size_bytes, read_only, block_bytes, io_min_bytes, io_opt_bytes };
            can_be(3, told, &disk)
        };
        assert_eq!(can_be(1 << 20, false, true), Err(UblkError::ReadOnly(3)), "writes may wait");
        for (told_read_only, read_only) in [(false, false), (true, false), (true, true)] {
            assert_eq!(can_be(1 << 20, told_read_only, read_only), Ok(()));
        }
        let smaller = UblkError::Smaller { number: 3, told_bytes: 2 << 20, size_bytes: 1 << 20 };
        assert_eq!(can_be(2 << 20, false, false), Err(smaller));
    }
}
