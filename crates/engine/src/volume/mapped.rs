//! Volumes that lie on other volumes: a request is cut where the map says and goes straight to what
//! is below.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wattle_rt::sync::Latch;
use wattle_rt::{Buf, BufMut, Core, Durability, JoinHandle, Unmap};

use super::map::{Leg, Map, MapSegment, MapSpec, Piece, Place, SegmentTarget, VolumeMapError};
use super::{Volume, VolumeRef, gather};
use crate::cores::{self, on_every_core};
use crate::model::error::VolumeError;
use crate::planted::{self, Bug};

/// Largest `io_opt` that is passed on: what a layout of many different stripes works out to is of
/// no use.
const IO_OPT_BYTES_MAX: u64 = 64 << 20;

/// What never changes while a mapped volume runs; one copy for all cores.
#[derive(Debug)]
pub(super) struct MappedFixed {
    /// Key of its shards in each core's registry.
    pub key: u64,
    pub name: String,
    /// It may grow.
    pub size_bytes: AtomicU64,
}

/// A mapped volume that runs. Cheap to clone; may go to other cores.
#[derive(Debug, Clone)]
pub struct MappedHandle {
    fixed: Arc<MappedFixed>,
}

impl MappedHandle {
    /// Starts a volume on every core.
    ///
    /// # Errors
    /// [`VolumeMapError`] if the map cannot be; [`VolumeError::Stopped`] if what is below it is
    /// stopped.
    pub async fn start(
        core: &Core,
        name: impl Into<String>,
        spec: MapSpec,
    ) -> Result<Self, StartMappedError> {
        // Only tells volumes of one process apart; never shown, never ordered by. The keys of
        // arrays are others.
        static NEXT_KEY: AtomicU64 = AtomicU64::new(1 << 62);
        let map = Arc::new(Map::new(spec)?);
        let fixed = Arc::new(MappedFixed {
            key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            name: name.into(),
            size_bytes: AtomicU64::new(map.size_bytes),
        });
        let handle = Self { fixed };
        let set = handle.set_everywhere(core, &map).await;
        if set.is_err() {
            handle.stop(core).await;
        }
        set?;
        Ok(handle)
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> VolumeRef {
        VolumeRef::Mapped(self.clone())
    }

    /// Maps it anew: requests that come from now on go by the new map, those under way by the old
    /// one, and when this returns these have ended. For maps that agree on what they share: one
    /// that grew, or has a range elsewhere that was held back while it was copied.
    ///
    /// # Errors
    /// As [`Self::start`]; the old map is then still there, on every core.
    pub async fn remap(&self, core: &Core, spec: MapSpec) -> Result<(), StartMappedError> {
        let map = Arc::new(Map::new(spec)?);
        self.set_everywhere(core, &map).await?;
        self.fixed.size_bytes.store(map.size_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Holds changes of these bytes back until the volume is mapped anew, and returns when none of
    /// them is under way any more: they can be copied elsewhere then. Reads go on. One range at a
    /// time.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`] once it is stopped.
    pub async fn hold(&self, core: &Core, bytes: Range<u64>) -> Result<(), VolumeError> {
        // A core that holds back sooner than another only delays its clients.
        let key = self.fixed.key;
        let held = cores::each_until(core, move |core| {
            let bytes = bytes.clone();
            async move {
                let shard = core.local::<Shard>(key).ok_or(VolumeError::Stopped)?;
                let before = shard.opened()?;
                let held = Some(Held { bytes, released: Rc::new(Latch::new()) });
                let (map, below) = (before.map.clone(), before.below.clone());
                drop(before);
                shard.release();
                shard.replace(Some(Opened::new(map, below, held))).await;
                Ok::<(), VolumeError>(())
            }
        });
        held.await.map(drop)
    }

    /// Forgets it; clients get [`VolumeError::Stopped`] from now on. What is below goes on.
    pub async fn stop(&self, core: &Core) {
        let key = self.fixed.key;
        // A client of a core that is not stopped yet gets what it would have got a moment before.
        cores::each(core, move |core| async move {
            if let Some(shard) = core.take_local::<Shard>(key) {
                shard.release();
                shard.replace(None).await;
            }
        })
        .await;
    }

    pub(super) fn fixed(&self) -> &MappedFixed {
        &self.fixed
    }

    pub(super) fn open(&self, core: &Core) -> Result<MappedVolume, VolumeError> {
        let shard = core.local::<Shard>(self.fixed.key).ok_or(VolumeError::Stopped)?;
        Ok(MappedVolume { shard })
    }

    /// Gives every core a map, in three phases, each of them on every core before the next begins.
    /// What can fail comes first, so that cores never end with different maps. A range that is held
    /// stays so until no core goes by the old map any more: a write to it that is let through on
    /// one core is what all cores read and flush.
    async fn set_everywhere(&self, core: &Core, map: &Arc<Map>) -> Result<(), VolumeError> {
        let (key, fixed, map) = (self.fixed.key, self.fixed.clone(), map.clone());
        let prepared = cores::each_until(core, move |core| {
            let (fixed, map) = (fixed.clone(), map.clone());
            async move { prepare_here(&core, &fixed, map) }
        });
        if let Err(error) = prepared.await {
            on_every_core(core, key, |shard: Rc<Shard>| async move { drop(shard.next.take()) }).await;
            return Err(error);
        }
        on_every_core(core, key, |shard: Rc<Shard>| async move { shard.switch().await }).await;
        on_every_core(core, key, |shard: Rc<Shard>| async move { shard.release() }).await;
        Ok(())
    }
}

/// Opens what a map lies on. The map is not gone by yet.
fn prepare_here(core: &Core, fixed: &Arc<MappedFixed>, map: Arc<Map>) -> Result<(), VolumeError> {
    let below = map.below.iter().map(|below| below.open(core)).collect::<Result<_, _>>()?;
    let shard = core.local::<Shard>(fixed.key).unwrap_or_else(|| {
        let shard = Rc::new(Shard {
            core: core.clone(),
            opened: RefCell::default(),
            next: RefCell::default(),
            fixed: fixed.clone(),
        });
        core.put_local(fixed.key, shard.clone());
        shard
    });
    shard.next.replace(Some((map, below)));
    Ok(())
}

/// Why a mapped volume was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartMappedError {
    /// The map cannot be.
    #[error(transparent)]
    Map(#[from] VolumeMapError),
    /// What is below cannot be opened.
    #[error(transparent)]
    Below(#[from] VolumeError),
}

/// A mapped volume on one core.
struct Shard {
    core: Core,
    fixed: Arc<MappedFixed>,
    /// `None` before it is started, and once it is stopped.
    opened: RefCell<Option<Rc<Opened>>>,
    /// The map to come, with what is below it.
    next: RefCell<Option<(Arc<Map>, Vec<Volume>)>>,
}

impl Shard {
    fn opened(&self) -> Result<Rc<Opened>, VolumeError> {
        self.opened.borrow().clone().ok_or(VolumeError::Stopped)
    }

    /// Requests from now on go by the map to come, and those that go by the old one end. What is
    /// held stays held.
    async fn switch(&self) {
        let Some((map, below)) = self.next.take() else { return };
        if planted::is(Bug::RemapCoreByCore) {
            self.release();
        }
        let held = self.opened.borrow().as_ref().and_then(|before| before.held.clone());
        self.replace(Some(Opened::new(map, below, held))).await;
    }

    /// Lets through what is held back: it looks again at what it goes by.
    fn release(&self) {
        if let Some(held) = self.opened.borrow().as_ref().and_then(|opened| opened.held.as_ref()) {
            held.released.set();
        }
    }

    /// Requests from now on go by this, and those under way are waited for.
    async fn replace(&self, opened: Option<Rc<Opened>>) {
        let Some(before) = self.opened.replace(opened) else { return };
        let ended = before.ended.clone();
        drop(before);
        ended.wait().await;
    }
}

/// A map with what is below it open on this core. Every request under way holds the one it goes by.
pub(super) struct Opened {
    pub(super) map: Arc<Map>,
    pub(super) below: Vec<Volume>,
    held: Option<Held>,
    /// Set when no request uses it any more.
    ended: Rc<Latch>,
}

impl Opened {
    fn new(map: Arc<Map>, below: Vec<Volume>, held: Option<Held>) -> Rc<Self> {
        Rc::new(Self { map, below, held, ended: Rc::default() })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.ended.set();
    }
}

/// A range whose changes have to wait.
#[derive(Clone)]
struct Held {
    bytes: Range<u64>,
    released: Rc<Latch>,
}

/// A mapped volume, open on one core.
#[derive(Clone)]
pub struct MappedVolume {
    shard: Rc<Shard>,
}

impl MappedVolume {
    pub(super) fn name(&self) -> &str {
        &self.shard.fixed.name
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.shard.fixed.size_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn read_only(&self) -> bool {
        self.opened().is_ok_and(|opened| opened.map.read_only || opened.below.iter().any(Volume::read_only))
    }

    pub(super) fn block_bytes(&self) -> u32 {
        self.opened().map_or(512, |opened| opened.below.iter().map(Volume::block_bytes).max().unwrap_or(512))
    }

    pub(super) fn io_min_bytes(&self) -> u32 {
        self.opened().map_or(512, |opened| topology(&opened).0)
    }

    pub(super) fn io_opt_bytes(&self) -> u32 {
        self.opened().map_or(0, |opened| topology(&opened).1)
    }

    /// Up to where what lies behind a byte may take as long as that byte.
    pub(super) fn alike_until(&self, offset_bytes: u64) -> u64 {
        self.opened().map_or(u64::MAX, |opened| opened.map.alike_until(offset_bytes))
    }

    pub(super) async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        let len = buf.len() as u64;
        let opened = match self.opened_for(offset_bytes, len) {
            Ok(opened) => opened,
            Err(error) => return (Err(error), buf),
        };
        if let Some(piece) = opened.only_piece(offset_bytes, len) {
            return opened.read_piece(piece, buf).await;
        }
        let mut parts = Vec::new();
        for piece in opened.map.pieces(offset_bytes, len) {
            let part = buf.split_to(piece.len_bytes as usize);
            let opened = opened.clone();
            parts.push(self.shard.core.spawn(async move { opened.read_piece(piece, part).await }));
        }
        gather(buf, parts).await
    }

    pub(super) async fn write(
        &self,
        offset_bytes: u64,
        buf: Buf,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let len = buf.len() as u64;
        let opened = self.opened_to_change(offset_bytes, len).await?;
        if let Some(Piece { to: Place::Below(leg), .. }) = opened.only_piece(offset_bytes, len) {
            return opened.below[leg.below].write(leg.offset_bytes, buf, durability).await;
        }
        let mut rest = buf;
        self.each_piece(&opened, offset_bytes, len, |below, at, len| {
            let part = rest.slice(..len as usize);
            rest = rest.slice(len as usize..);
            async move { below.write(at, part, durability).await }
        })
        .await
    }

    pub(super) async fn flush(&self) -> Result<(), VolumeError> {
        let opened = self.opened()?;
        let flushes: Vec<_> = opened
            .below
            .iter()
            .cloned()
            .map(|below| self.shard.core.spawn(async move { below.flush().await }))
            .collect();
        join(flushes).await
    }

    pub(super) async fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), VolumeError> {
        let opened = self.opened_to_change(offset_bytes, len_bytes).await?;
        self.each_piece(&opened, offset_bytes, len_bytes, |below, at, len| async move {
            below.discard(at, len).await
        })
        .await
    }

    pub(super) async fn write_zeroes(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        unmap: Unmap,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let opened = self.opened_to_change(offset_bytes, len_bytes).await?;
        self.each_piece(&opened, offset_bytes, len_bytes, |below, at, len| async move {
            below.write_zeroes(at, len, unmap, durability).await
        })
        .await
    }

    /// Runs `f` for every piece at once; the first error wins, but every piece ends first.
    async fn each_piece<F, Fut>(
        &self,
        opened: &Opened,
        offset_bytes: u64,
        len_bytes: u64,
        mut f: F,
    ) -> Result<(), VolumeError>
    where
        F: FnMut(Volume, u64, u64) -> Fut,
        Fut: Future<Output = Result<(), VolumeError>> + 'static,
    {
        // Nothing of a request that cannot be done whole is begun.
        if opened.map.pieces(offset_bytes, len_bytes).any(|piece| piece.to == Place::Missing) {
            return Err(VolumeError::Missing);
        }
        let tasks = opened.map.pieces(offset_bytes, len_bytes).filter_map(|piece| match piece.to {
            Place::Below(Leg { below, offset_bytes }) => {
                let work = f(opened.below[below].clone(), offset_bytes, piece.len_bytes);
                Some(self.shard.core.spawn(work))
            }
            Place::Zero | Place::Missing => None,
        });
        join(tasks.collect()).await
    }

    fn opened(&self) -> Result<Rc<Opened>, VolumeError> {
        self.shard.opened()
    }

    pub(super) fn opened_for(&self, offset_bytes: u64, len_bytes: u64) -> Result<Rc<Opened>, VolumeError> {
        let opened = self.opened()?;
        let end = offset_bytes.checked_add(len_bytes).ok_or(VolumeError::OutOfRange)?;
        if end <= opened.map.size_bytes { Ok(opened) } else { Err(VolumeError::OutOfRange) }
    }

    /// Waits while the range is held back, by a map that is not kept meanwhile.
    async fn opened_to_change(&self, offset_bytes: u64, len_bytes: u64) -> Result<Rc<Opened>, VolumeError> {
        loop {
            let opened = self.opened_for(offset_bytes, len_bytes)?;
            if opened.map.read_only {
                return Err(VolumeError::ReadOnly);
            }
            let range = offset_bytes..offset_bytes + len_bytes;
            let overlaps = |held: &&Held| {
                let overlaps = held.bytes.start < range.end && range.start < held.bytes.end;
                overlaps && !held.released.is_set()
            };
            let Some(held) = opened.held.as_ref().filter(overlaps) else { return Ok(opened) };
            let released = held.released.clone();
            drop(opened);
            released.wait().await;
        }
    }
}

impl Opened {
    /// The piece that a request is, if it is a single one: most are.
    fn only_piece(&self, offset_bytes: u64, len_bytes: u64) -> Option<Piece> {
        self.map.pieces(offset_bytes, len_bytes).next().filter(|piece| piece.len_bytes == len_bytes)
    }

    async fn read_piece(&self, piece: Piece, mut buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        match piece.to {
            Place::Below(leg) => self.below[leg.below].read(leg.offset_bytes, buf).await,
            Place::Zero => {
                buf.fill(0);
                (Ok(()), buf)
            }
            Place::Missing => (Err(VolumeError::Missing), buf),
        }
    }
}

async fn join(tasks: Vec<JoinHandle<Result<(), VolumeError>>>) -> Result<(), VolumeError> {
    let mut result = Ok(());
    for task in tasks {
        result = result.and(task.await);
    }
    result
}

/// `io_min` and `io_opt` in bytes. A layer hands on what is below it where it is aligned to that,
/// and nothing where it is not: requests of that size and alignment would not be what the array
/// below likes.
fn topology(opened: &Opened) -> (u32, u32) {
    let (mut io_min, mut io_opt) = (512_u64, None);
    for (start, segment) in opened.map.segments() {
        let (legs, stripe) = match &segment.target {
            SegmentTarget::Linear(leg) => (std::slice::from_ref(leg), None),
            SegmentTarget::Striped { stripe_bytes, legs } => (&legs[..], Some(*stripe_bytes)),
            SegmentTarget::Zero | SegmentTarget::Missing => continue,
        };
        for leg in legs {
            let below = &opened.below[leg.below];
            let (min, opt) = (u64::from(below.io_min_bytes()), u64::from(below.io_opt_bytes()));
            let aligned =
                |unit: u64| unit == 0 || (leg.offset_bytes + unit - start % unit).is_multiple_of(unit);
            io_min = io_min.max(if aligned(min) { min } else { 512 });
            let opt = match stripe {
                // A part below gets whole stripes of its own only if one stripe here is a number of
                // them.
                Some(stripe) if opt > 0 && stripe.is_multiple_of(opt) && aligned(opt) => {
                    stripe * legs.len() as u64
                }
                Some(stripe) if opt == 0 || min == opt => stripe * legs.len() as u64,
                Some(_) => 0,
                None if aligned(opt) => opt,
                None => 0,
            };
            io_opt = Some(io_opt.map_or(opt, |other: u64| if other == opt { opt } else { 0 }));
        }
        if let Some(stripe) = stripe {
            io_min = io_min.max(stripe);
        }
    }
    let narrow = |bytes: u64| u32::try_from(bytes.min(IO_OPT_BYTES_MAX)).unwrap_or(u32::MAX);
    (narrow(io_min), narrow(io_opt.unwrap_or(0)))
}

impl MapSegment {
    /// A segment in one piece.
    #[must_use]
    pub fn linear(len_bytes: u64, below: usize, offset_bytes: u64) -> Self {
        Self { len_bytes, target: SegmentTarget::Linear(Leg { below, offset_bytes }) }
    }
}
