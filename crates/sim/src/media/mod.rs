//! Media: sectors that cannot be read, or are listed as bad, beside parity or copies that are
//! silently wrong.
//!
//! One client uses one array, one request at a time, so that it is known exactly what each sector
//! holds. Then parity and further copies get wrong contents without a word, sectors become
//! unreadable, and a member fails. What holds ([`oracle`] has it in detail):
//!
//! - A sector that can be read where its data is keeps its own content, whatever its neighbours,
//!   the other copies or parity hold.
//! - What was written or zeroed with success can be read as long as redundancy covers what fails.

mod oracle;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, LevelKind, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, Volume, VolumeError};
use wattle_rt::{
    Buf, BufMut, Core, Device, DriveConfig, DriveControl, Durability, Rng, RunOutcome, SimWorld, Unmap,
    WorldConfig,
};

use crate::client::Stats;
use crate::lock::lock;
use crate::run::{RunOptions, ScenarioReport};
use oracle::{Expected, Oracle};

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct MediaScenario {
    /// The seed.
    pub seed: u64,
    /// What the array is made of.
    pub params: Params,
    /// The drives' atomic unit.
    pub sector_bytes: u32,
    /// Parts of members that are listed as bad.
    pub listed: Vec<(MemberIx, u64, u64)>,
    /// Copies are not known to agree when the array is started.
    pub unsynced: bool,
    /// Drives cannot zero ranges by themselves.
    pub no_write_zeroes: bool,
    /// Requests between one misfortune and the next.
    pub requests: u64,
    /// A member that fails in the end.
    pub fails: Option<MemberIx>,
}

fn one_of<T: Copy>(rng: &mut Rng, options: &[T]) -> T {
    options[rng.below(options.len() as u64) as usize]
}

impl MediaScenario {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64) -> MediaScenario {
        use Level::{Raid1, Raid4, Raid5, Raid6, Raid10};
        let rng = &mut Rng::new(seed ^ 0x3ed1_a000);
        let level = one_of(rng, &[Raid1, Raid1, Raid10, Raid4, Raid5, Raid5, Raid6]);
        let raid_disks = match level {
            Raid1 => 2 + rng.below(2),
            Raid6 => 4 + rng.below(2),
            _ => 3 + rng.below(2),
        };
        let chunk = one_of(rng, &[8, 16, 32]);
        let params = Params {
            level,
            layout: match level {
                Raid5 | Raid6 => 2,
                Raid10 => 0x102,
                _ => 0,
            },
            chunk: Sector(if level == Raid1 { 0 } else { chunk }),
            raid_disks: raid_disks as u32,
            component_size: Sector(chunk * (2 + rng.below(3))),
            member_sizes: Vec::new(),
        };
        let sector_bytes = one_of(rng, &[512, 512, 4096]);
        let blocks = params.component_size.0 / 8;
        let listed = (0..rng.below(3)).map(|_| {
            let at = rng.below(blocks) * 8;
            (MemberIx(rng.below(raid_disks) as u16), at, 8)
        });
        let listed = listed.collect();
        let mirrored = matches!(level, Raid1 | Raid10);
        MediaScenario {
            seed,
            params,
            sector_bytes,
            listed,
            unsynced: mirrored && rng.below(4) == 0,
            no_write_zeroes: rng.below(4) == 0,
            requests: 2 + rng.below(10),
            fails: rng.coin().then(|| MemberIx(rng.below(raid_disks) as u16)),
        }
    }

    fn geometry(&self) -> Geometry {
        Geometry::new(&self.params).expect("these are arrays")
    }
}

/// Plays the world of a seed.
#[must_use]
pub fn run(media: &MediaScenario, options: RunOptions) -> ScenarioReport {
    let _planted = options.plant();
    let mut world = SimWorld::new(WorldConfig {
        seed: media.seed,
        cores: 2,
        time_limit: Duration::from_secs(600),
        poll_limit: 3_000_000,
        ..WorldConfig::default()
    });
    let config = |slot| DriveConfig {
        size_bytes: media.params.component_size.0 * 512,
        sector_bytes: media.sector_bytes,
        name: format!("drive{slot}"),
        ..DriveConfig::default()
    };
    let drives: Vec<_> = (0..media.params.raid_disks).map(|slot| world.add_drive(config(slot))).collect();
    let controls: Vec<_> = drives.iter().map(|drive| world.drive(drive)).collect();
    let oracle =
        Oracle::new(media.geometry(), controls.clone(), media.sector_bytes, &media.listed, options.verbose);
    let oracle = Arc::new(Mutex::new(oracle));
    let client = Client {
        media: media.clone(),
        geometry: media.geometry(),
        controls,
        oracle: oracle.clone(),
        rng: Rng::new(media.seed ^ 0x0c11_e274),
    };
    match world.run(async move |core: Core| client.live(&core, drives).await) {
        RunOutcome::Done(()) => {}
        outcome => lock(&oracle).accuse(format!("it does not end: {outcome:?}")),
    }
    let oracle = &mut *lock(&oracle);
    let (operations, trace) = (world.ops_submitted(), world.trace_hash());
    let stats = Stats { requests: oracle.requests, errors: oracle.errors, operations, ..Stats::default() };
    ScenarioReport { wrong: oracle.wrong.take(), stats, trace, log: oracle.log.take().unwrap_or_default() }
}

struct Client {
    media: MediaScenario,
    geometry: Geometry,
    controls: Vec<DriveControl>,
    oracle: Arc<Mutex<Oracle>>,
    rng: Rng,
}

impl Client {
    async fn live(mut self, core: &Core, drives: Vec<Device>) {
        for &(member, at, len) in &self.media.listed {
            let mut bytes = vec![0; (len * 512) as usize];
            self.rng.fill(&mut bytes);
            self.controls[member.index()].poke(at * 512, &bytes);
        }
        if self.media.unsynced {
            self.spoil();
        }
        self.controls.iter().for_each(|control| control.no_write_zeroes(self.media.no_write_zeroes));
        let mut members: Vec<_> =
            drives.into_iter().map(|drive| MemberSpec::in_sync(drive, Sector(0))).collect();
        for &(member, at, len) in &self.media.listed {
            members[member.index()].bad.insert(Sector(at)..Sector(at + len));
        }
        let mut spec = ArraySpec::new("media", self.geometry.clone(), members);
        if self.media.unsynced {
            spec.synced_below = Sector(0);
        }
        spec.tuning.read_errors_max = u32::MAX / 2;
        let array = ArrayHandle::start(core, spec, Box::new(NoMetadata)).await;
        let Ok(volume) = array.volume().open(core) else {
            return lock(&self.oracle).accuse("it has no volume");
        };
        for round in 0..3 {
            self.use_it(&volume).await;
            if round > 0 || self.rng.coin() {
                // Copies that are known to agree are read as load has it, any of them.
                if self.geometry.kind() == LevelKind::Parity {
                    self.spoil();
                }
                self.make_unreadable();
                self.use_it(&volume).await;
            }
            self.look_at_all(&volume).await;
        }
        if let Some(member) = self.media.fails {
            let failed = array.fail(core, member).await;
            lock(&self.oracle).tell(|| format!("member {member} fails: {failed:?}"));
            if failed.is_ok() {
                lock(&self.oracle).fail(member);
            }
            self.look_at_all(&volume).await;
            self.use_it(&volume).await;
            self.look_at_all(&volume).await;
        }
        let stopped = array.stop(core).await;
        lock(&self.oracle).tell(|| format!("stop: {stopped:?}"));
    }

    /// Some parity, or some further copies, hold something else.
    fn spoil(&mut self) {
        let unit = u64::from(self.media.sector_bytes) / 512;
        let units = self.media.params.component_size.0 / unit;
        for _ in 0..self.rng.below(3) {
            let member = MemberIx(self.rng.below(self.controls.len() as u64) as u16);
            let at = self.rng.below(units) * unit;
            let oracle = &mut *lock(&self.oracle);
            if (at..at + unit).all(|sector| oracle.may_spoil(member, sector)) {
                let mut bytes = vec![0; (unit * 512) as usize];
                self.rng.fill(&mut bytes);
                self.controls[member.index()].poke(at * 512, &bytes);
                (at..at + unit).for_each(|sector| oracle.spoilt(member, sector));
                oracle.tell(|| format!("member {member} is silently wrong at {at}+{unit}"));
            }
        }
    }

    /// Some sectors cannot be read any more.
    fn make_unreadable(&mut self) {
        let unit = u64::from(self.media.sector_bytes) / 512;
        let units = self.media.params.component_size.0 / unit;
        for _ in 0..1 + self.rng.below(3) {
            let member = MemberIx(self.rng.below(self.controls.len() as u64) as u16);
            let at = self.rng.below(units);
            let oracle = &mut *lock(&self.oracle);
            if oracle.may_become_unreadable(member, at * unit, unit) {
                self.controls[member.index()].latent(at);
                oracle.tell(|| format!("member {member} is unreadable at {}+{unit}", at * unit));
            }
        }
    }

    /// A range, often one of whole stripes.
    fn range(&mut self) -> (u64, u64) {
        let size = self.geometry.array_sectors().0;
        let chunk = self.media.params.chunk.0.max(8);
        let stripe = match self.geometry.kind() {
            LevelKind::Parity => chunk * (self.controls.len() - self.geometry.redundancy()) as u64,
            _ => chunk,
        };
        let unit = one_of(&mut self.rng, &[1, 8, stripe, stripe]);
        let first = self.rng.below(size.div_ceil(unit)) * unit;
        let len = (1 + self.rng.below(64.max(unit)).div_ceil(unit)) * unit;
        (first, len.min(size - first))
    }

    async fn use_it(&mut self, volume: &Volume) {
        for _ in 0..self.media.requests {
            if lock(&self.oracle).wrong.is_some() {
                return;
            }
            let (first, len) = self.range();
            let (at, bytes) = (first * 512, len * 512);
            match self.rng.below(8) {
                0..=2 => self.read(volume, first, len).await,
                3..=4 => {
                    let version = lock(&self.oracle).next_version();
                    let data = BufMut::copy_of(&oracle::contents(version, first, len)).freeze();
                    let result = self.write(volume, at, data).await;
                    self.changed("write", first, len, Expected::Version(version), result);
                }
                5..=6 => {
                    let unmap = if self.rng.coin() { Unmap::Yes } else { Unmap::No };
                    let result = volume.write_zeroes(at, bytes, unmap, Durability::Cached).await;
                    self.changed("zeroing", first, len, Expected::Version(0), result);
                }
                _ => {
                    let result = volume.discard(at, bytes).await;
                    self.changed("discard", first, len, Expected::ZerosOr(0), result);
                }
            }
        }
    }

    async fn write(&mut self, volume: &Volume, at: u64, data: Buf) -> Result<(), VolumeError> {
        volume.write(at, data, Durability::Cached).await
    }

    fn changed(&self, what: &str, first: u64, len: u64, now: Expected, result: Result<(), VolumeError>) {
        let oracle = &mut *lock(&self.oracle);
        oracle.tell(|| format!("{what} of {first}+{len}: {result:?}"));
        oracle.changed(what, first, len, now, result);
    }

    async fn read(&self, volume: &Volume, first: u64, len: u64) {
        // What a read rewrites is looked at as it was when the read began.
        lock(&self.oracle).look();
        let (result, bytes) = volume.read(first * 512, BufMut::alloc((len * 512) as usize)).await;
        let oracle = &mut *lock(&self.oracle);
        oracle.tell(|| format!("read of {first}+{len}: {result:?}"));
        oracle.read(first, len, result, &bytes);
    }

    /// Reads everything in large pieces, and then in small ones.
    async fn look_at_all(&mut self, volume: &Volume) {
        let size = self.geometry.array_sectors().0;
        for piece in [8 + self.rng.below(120), 8] {
            for first in (0..size).step_by(piece as usize) {
                if lock(&self.oracle).wrong.is_some() {
                    return;
                }
                self.read(volume, first, piece.min(size - first)).await;
            }
        }
    }
}
