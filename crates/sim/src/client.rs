//! Clients of a volume: they ask, and compare every answer with the model.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use wattle_engine::geometry::LevelKind;
use wattle_engine::{Volume, VolumeError};
use wattle_rt::{BufMut, Core, Durability, Rng, Unmap};

use crate::lock::lock;
use crate::model::{Content, SECTOR, SectorView, VolumeHistory};
use crate::scenario::{self, Mix};

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Lifetimes that were started.
    pub lifetimes: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Programs killed.
    pub kills: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Requests answered with an error that faults excuse.
    pub errors: u64,
    /// Lifetimes with fewer members than slots.
    pub degraded: u64,
    /// Lifetimes with fewer members than slots after a power cut, recorded clean.
    pub clean_degraded: u64,
    /// Lifetimes that began with parity or copies that may disagree.
    pub unsynced: u64,
    /// Arrays refused for dirty and degraded parity.
    pub write_hole_refusals: u64,
    /// Arrays refused for missing members, beyond redundancy.
    pub not_enough: u64,
    /// Records committed.
    pub commits: u64,
    /// Checks and repairs that came to an end.
    pub audits: u64,
    /// Drives that got something wrong, and a check saw it.
    pub seen: u64,
    /// Operations that the drives saw.
    pub operations: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.lifetimes += other.lifetimes;
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.requests += other.requests;
        self.errors += other.errors;
        self.degraded += other.degraded;
        self.clean_degraded += other.clean_degraded;
        self.unsynced += other.unsynced;
        self.write_hole_refusals += other.write_hole_refusals;
        self.not_enough += other.not_enough;
        self.commits += other.commits;
        self.audits += other.audits;
        self.seen += other.seen;
        self.operations += other.operations;
    }
}

/// What clients and checkers share.
pub struct Truth {
    /// What may be read.
    pub model: VolumeHistory,
    /// What is known besides.
    pub view: SectorView,
    /// The kind of the array.
    pub kind: LevelKind,
    /// Parity and copies agreed when the array was started.
    pub synced: bool,
    /// Parity and copies did not agree for certain at some start so far.
    pub ever_unsynced: bool,
    /// A member was missing when the array was started.
    pub degraded: bool,
    /// Something but the power failed, ever.
    pub faults: bool,
    /// Faults may exceed redundancy.
    pub beyond: bool,
    /// First data sector of the drives, in their own sectors.
    pub data_offset_units: u64,
    /// The first thing that must not happen.
    pub wrong: Option<String>,
    /// Counts.
    pub stats: Stats,
    /// What happened, if it is to be told.
    pub log: Option<Vec<String>>,
}

/// Shared between the tasks of a world and the checker.
pub type SharedHistory = Arc<Mutex<Truth>>;

impl Truth {
    /// Records a violation.
    pub fn accuse(&mut self, what: impl Into<String>) {
        if self.wrong.is_none() {
            self.wrong = Some(what.into());
        }
    }

    /// Notes an event, if events are to be told.
    pub fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(what());
        }
    }

    /// Something failed; members that are read may change.
    pub fn fault(&mut self) {
        self.faults = true;
        self.view.copy_lost = true;
    }

    /// Whether faults explain that a request failed.
    pub fn excused(&self) -> bool {
        match self.kind {
            _ if self.beyond => self.faults,
            LevelKind::Striped => self.faults,
            LevelKind::Mirrored => false,
            // Parity that cannot be trusted recovers nothing.
            // What could not be read while it could not be trusted stays lost.
            LevelKind::Parity => self.faults && self.ever_unsynced,
        }
    }

    fn judge(&mut self, what: impl FnOnce() -> String, result: Result<(), VolumeError>) {
        self.stats.requests += 1;
        let Err(error) = result else { return };
        self.stats.errors += 1;
        let expected =
            !matches!(error, VolumeError::OutOfRange | VolumeError::ReadOnly | VolumeError::Stopped);
        if !(expected && self.excused()) {
            self.accuse(format!("{}: {error} ({error:?}), though faults do not explain it", what()));
        }
    }
}

/// Reads sectors and compares them.
pub async fn read(volume: &Volume, truth: &SharedHistory, first: u64, sectors: u64) -> bool {
    let reading = lock(truth).model.begin_read(first);
    let (result, buf) = volume.read(first * SECTOR as u64, BufMut::alloc(sectors as usize * SECTOR)).await;
    let truth = &mut *lock(truth);
    truth.tell(|| format!("read {first}+{sectors}: {result:?}"));
    match result {
        Ok(()) => {
            if let Err(wrong) = truth.model.end_read(&reading, &buf, truth.view) {
                truth.accuse(format!("read of {sectors} sectors at {first}: {wrong}"));
            }
        }
        Err(_) => truth.model.cancel_read(&reading),
    }
    truth.judge(|| format!("read of {sectors} sectors at {first}"), result);
    result.is_ok()
}

/// Reads the whole volume and compares it; what cannot be read in large pieces is read in small
/// ones.
pub async fn verify(volume: &Volume, truth: &SharedHistory) {
    const PIECE: u64 = 256;
    let size = volume.size_bytes() / SECTOR as u64;
    for first in (0..size).step_by(PIECE as usize) {
        let len = PIECE.min(size - first);
        if !read(volume, truth, first, len).await {
            for first in (first..first + len).step_by(8) {
                read(volume, truth, first, 8.min(size - first)).await;
            }
        }
        if lock(truth).wrong.is_some() {
            return;
        }
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Requests.
    pub requests: usize,
    /// Longest request in sectors.
    pub request_max: u64,
    /// Sectors of the volume that are used.
    pub reach: u64,
    /// Requests.
    pub mix: Mix,
    /// Blocks that requests are often aligned to, in sectors.
    pub unit: u64,
    /// Idle time before the array is recorded clean.
    pub clean_delay: Duration,
    /// A planted bug: "forced" is dropped from writes.
    pub drops_forced: bool,
}

/// One client, one request at a time.
pub async fn client(core: Core, volume: Volume, truth: SharedHistory, mut rng: Rng, habits: Habits) {
    let mix = habits.mix;
    let weights = [mix.read, mix.write, mix.unaligned, mix.flush, mix.discard, mix.zero, mix.pause];
    for _ in 0..habits.requests {
        if lock(&truth).wrong.is_some() {
            return;
        }
        let sectors = scenario::range(&mut rng, habits.reach, habits.request_max, habits.unit);
        let forced = rng.below(100) < mix.forced_percent;
        let mut at = rng.below(weights.iter().sum());
        let kind = weights.iter().position(|&weight| {
            let here = at < weight;
            at = at.wrapping_sub(weight);
            here
        });
        let request = Request { volume: &volume, truth: &truth, drops_forced: habits.drops_forced, forced };
        let (first, len) = (sectors.start, sectors.end - sectors.start);
        match kind.unwrap_or(1) {
            0 => drop(read(&volume, &truth, first, len).await),
            1 => request.write(first, len).await,
            2 => {
                let start = first * SECTOR as u64 + rng.below(SECTOR as u64);
                let len = (1 + rng.below(3 * SECTOR as u64)).min(volume.size_bytes() - start);
                request.splice(start, len).await;
            }
            3 => request.flush().await,
            4 => request.discard(first, len).await,
            5 => request.zero(first, len).await,
            _ => core.sleep(habits.clean_delay * rng.below(250) as u32 / 100).await,
        }
    }
}

/// One client that reads in sequence, again and again from somewhere.
pub async fn reader(core: Core, volume: Volume, truth: SharedHistory, mut rng: Rng, habits: Habits) {
    let mut left = 4 * habits.requests as u64;
    while left > 0 {
        let len = 1 + rng.below(2 * habits.unit);
        let mut first = rng.below(habits.reach);
        let times = (2 + rng.below(16)).min(left);
        left -= times;
        for _ in 0..times {
            if first + len > volume.size_bytes() / SECTOR as u64 || lock(&truth).wrong.is_some() {
                break;
            }
            read(&volume, &truth, first, len).await;
            first += len;
            if rng.below(8) == 0 {
                core.sleep(Duration::from_micros(1 + rng.below(400))).await;
            }
        }
        if rng.below(4) == 0 {
            core.sleep(habits.clean_delay).await;
        }
    }
}

/// Writes sectors and notes what they hold.
pub async fn write(volume: &Volume, truth: &SharedHistory, first: u64, sectors: u64) {
    Request { volume, truth, drops_forced: false, forced: false }.write(first, sectors).await;
}

/// Zeroes sectors and notes that.
pub async fn zero(volume: &Volume, truth: &SharedHistory, first: u64, sectors: u64) {
    Request { volume, truth, drops_forced: false, forced: false }.zero(first, sectors).await;
}

struct Request<'a> {
    volume: &'a Volume,
    truth: &'a SharedHistory,
    drops_forced: bool,
    forced: bool,
}

impl Request<'_> {
    fn durability(&self) -> Durability {
        if self.forced && !self.drops_forced { Durability::Fua } else { Durability::Cached }
    }

    async fn write(&self, first: u64, len: u64) {
        let (content, writing) = {
            let mut truth = lock(self.truth);
            let content = truth.model.next_version();
            let writing = truth.model.begin_write(first..first + len, &content);
            truth.tell(|| {
                format!("write {first}+{len} {content:?}{} begins", if self.forced { " forced" } else { "" })
            });
            (content, writing)
        };
        let Some(writing) = writing else { return };
        let mut buf = BufMut::alloc(len as usize * SECTOR);
        for (sector, bytes) in (first..).zip(buf.chunks_exact_mut(SECTOR)) {
            content.fill(sector, bytes);
        }
        let result = self.volume.write(first * SECTOR as u64, buf.freeze(), self.durability()).await;
        let truth = &mut *lock(self.truth);
        truth.model.end_write(&writing, result.is_ok(), self.forced);
        truth.tell(|| format!("write {first}+{len} {content:?}: {result:?}"));
        truth.judge(|| format!("write of {len} sectors at {first}"), result);
    }

    async fn splice(&self, start: u64, len: u64) {
        let splice = {
            let mut truth = lock(self.truth);
            let content = truth.model.next_version();
            truth.model.begin_splice(start, &content, len)
        };
        let Some((writing, bytes)) = splice else { return };
        let buf = BufMut::copy_of(&bytes).freeze();
        let result = self.volume.write(start, buf, self.durability()).await;
        let truth = &mut *lock(self.truth);
        truth.model.end_write(&writing, result.is_ok(), self.forced);
        truth.tell(|| format!("write of {len} bytes at byte {start}: {result:?}"));
        truth.judge(|| format!("write of {len} bytes at byte {start}"), result);
    }

    async fn flush(&self) {
        let began = lock(self.truth).model.begin_flush();
        let result = self.volume.flush().await;
        let truth = &mut *lock(self.truth);
        if result.is_ok() {
            truth.model.end_flush(began, true);
        }
        truth.tell(|| format!("flush: {result:?}"));
        truth.judge(|| "flush".to_owned(), result);
    }

    async fn discard(&self, first: u64, len: u64) {
        let Some(writing) = lock(self.truth).model.begin_write(first..first + len, &Content::Zeros) else {
            return;
        };
        let result = self.volume.discard(first * SECTOR as u64, len * SECTOR as u64).await;
        let truth = &mut *lock(self.truth);
        // A discard promises nothing: each sector is as before, or zeros.
        truth.model.end_write(&writing, false, false);
        truth.tell(|| format!("discard {first}+{len}: {result:?}"));
        truth.judge(|| format!("discard of {len} sectors at {first}"), result);
    }

    async fn zero(&self, first: u64, len: u64) {
        let Some(writing) = lock(self.truth).model.begin_write(first..first + len, &Content::Zeros) else {
            return;
        };
        let (start, bytes) = (first * SECTOR as u64, len * SECTOR as u64);
        let result = self.volume.write_zeroes(start, bytes, Unmap::Yes, self.durability()).await;
        let truth = &mut *lock(self.truth);
        truth.model.end_write(&writing, result.is_ok(), self.forced);
        truth.tell(|| format!("zero {first}+{len}: {result:?}"));
        truth.judge(|| format!("zeroing of {len} sectors at {first}"), result);
    }
}
