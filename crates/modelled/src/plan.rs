//! Plans on modelled drives: what each candidate comes to, and which is best.
//!
//! An answer is wanted within seconds, so that runs are short: limits sort out what cannot win, a
//! short run of each that is left finds the fastest few, and longer ones of these decide. What
//! chance does to a run it does to all of them, which have the same seeds; of those that are close
//! together it is averaged out over several.

use std::cell::Cell;
use std::cmp::Ordering;
use std::time::Duration;

use wattle_advise::limits::{self, Demand, UniformArray};
use wattle_advise::plan::{ArrayPlan, Candidate, DataPlacement, PlanLevel, PlanShape, PowerCutCover, Wish};
use wattle_drives::{Drive, Media};
use wattle_engine::geometry::{Level, default_layout, parse_layout};
use wattle_engine::units::{SECTOR_BYTES, Sector};
use wattle_format::md::{Version, defaults};
use wattle_rt::DriveConfig;

use crate::drive::config;
use crate::load::Load;
use crate::measured::Measured;
use crate::ramp::{Ramp, Steady};
use crate::rebuild::rebuild_beside;
use crate::setup::{DATA_OFFSET, MeasureError, ModelledSetup, WriteHoleGuard};
use crate::study::used_up;

/// Candidates whose rates differ by less are equally fast; of those that ran for all seeds chance
/// accounts for a part of this only.
pub const EQUAL: f64 = 0.025;
/// Those that are so close to the fastest run for all seeds: one run has been off by half of it.
const CLOSE: f64 = 0.05;
/// How many seeds these are.
const SEEDS: u64 = 3;
/// What is so far below the best limit is not tried.
const HOPELESS: f64 = 0.5;
/// After the first round, which is over before drives collect garbage, what is so far behind is not
/// looked at again.
const BEHIND: f64 = 0.5;
/// So many are looked at again.
const FINALISTS: usize = 8;
/// Volatile cache of a disk in short runs: what there really is would take in all that is written.
const SHORT_CACHE_BYTES: u64 = 4 << 20;
/// Writes of each disk that have to wait before it begins to put them in order.
const WAITING_WRITES: u64 = 64;

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLength {
    /// A first look.
    Glance,
    /// What a plan is decided by.
    Look,
    /// What is told of an array with a member missing: nothing is decided by it, and each request
    /// costs several times as many.
    Hurt,
    /// Until it is steady, for judging plans.
    Exhaustive,
}

impl RunLength {
    /// The load with windows of so many requests on these drives, of which ten are counted.
    fn load(self, load: &Load, drives: &[&Drive]) -> Load {
        let caches = drives.iter().filter_map(|drive| match drive.model.media {
            Media::Disk(_) => Some(drive.model.cache_bytes),
            Media::Flash(_) => None,
        });
        let (bytes, most) = match self {
            RunLength::Glance => (8 << 20, 100),
            RunLength::Look | RunLength::Hurt => (48 << 20, 600),
            RunLength::Exhaustive => return load.clone().until_steady(),
        };
        let requests = (bytes / load.bs_bytes).clamp(10, most);
        let warm = match load.rw.random() {
            true => caches.count() as u64 * WAITING_WRITES,
            false => caches.count() as u64 * SHORT_CACHE_BYTES / load.bs_bytes,
        };
        let mut steady = Steady {
            window: Duration::from_micros(200),
            requests,
            windows: 2.max((warm / requests) as usize).min(8),
            within: 0.10,
            at_most: Duration::from_secs(3600),
            requests_at_most: (4 * requests.max(load.depth() as u64)).max(2 * warm),
        };
        if matches!(self, RunLength::Look | RunLength::Hurt) && !load.rw.random() {
            // Streams take a while to fall into step with stripes. Large stripes wait for whichever
            // drive collects garbage: that is seen once before anything is counted.
            let between = drives.iter().map(|drive| collects_every(drive)).max().unwrap_or_default();
            steady.windows = 8;
            steady.window = steady.window.max(between / 8);
            let each = if self == RunLength::Look { 128 } else { 32 };
            steady.requests_at_most = steady.requests_at_most.max(drives.len() as u64 * each);
        }
        Load { ramp: Ramp::UntilSteady(steady), ..load.clone() }
    }
}

/// How long a drive writes from one time that it collects garbage to the next.
fn collects_every(drive: &Drive) -> Duration {
    match &drive.model.media {
        Media::Flash(flash) if flash.collection_share_ppm > 0 => {
            flash.collection_pause * (1_000_000 / flash.collection_share_ppm)
        }
        _ => Duration::ZERO,
    }
}

/// What a candidate came to.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Requests per second of the whole volume.
    pub per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// The median latency.
    pub p50: Duration,
    /// Of a hundred requests all but one are faster.
    pub p99: Duration,
}

impl Trial {
    fn of(measured: &Measured, groups: u32) -> Trial {
        let all = measured.all();
        Trial {
            per_second: measured.per_second() * f64::from(groups),
            bytes_per_second: measured.bytes_per_second() * f64::from(groups),
            p50: all.percentile(50.0),
            p99: all.percentile(99.0),
        }
    }

    /// What several came to on average.
    fn mean(trials: &[Trial]) -> Trial {
        let runs = trials.len() as u32;
        let mean = |of: fn(&Trial) -> f64| trials.iter().map(of).sum::<f64>() / f64::from(runs);
        Trial {
            per_second: mean(|trial| trial.per_second),
            bytes_per_second: mean(|trial| trial.bytes_per_second),
            p50: trials.iter().map(|trial| trial.p50).sum::<Duration>() / runs,
            p99: trials.iter().map(|trial| trial.p99).sum::<Duration>() / runs,
        }
    }
}

/// The same with a member missing, and while it is filled.
#[derive(Clone, Debug)]
pub struct Hurt {
    /// With as many missing as leave nothing to spare.
    pub degraded: Trial,
    /// While one member is filled.
    pub rebuilding: Trial,
}

/// A candidate and what is known of it.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// It.
    pub candidate: Candidate,
    /// What its drives allow, in requests per second.
    pub limit: f64,
    /// What it came to; `None` for what the limit ruled out.
    pub trial: Option<Trial>,
    /// It was looked at long enough to be compared.
    pub decided: bool,
}

/// Candidates on drives, under a load.
#[derive(Clone, Copy, Debug)]
pub struct Trials<'a> {
    /// What is wanted.
    pub wish: &'a Wish,
    /// The drives, as the wish has their sizes.
    pub drives: &'a [Drive],
    /// The load.
    pub load: &'a Load,
}

/// Where metadata 1.2 lets data lie: as mdadm places it.
#[must_use]
pub fn place_of(level: PlanLevel, member_bytes: u64, chunk_bytes: u64, ppl: bool) -> DataPlacement {
    if level == PlanLevel::None {
        return DataPlacement { data_offset_bytes: 0, data_bytes: member_bytes };
    }
    let chunk_sectors = (chunk_bytes / SECTOR_BYTES) as u32;
    let sectors = member_bytes / SECTOR_BYTES;
    let offset = defaults::data_offset_sectors(Version::V12, sectors, chunk_sectors, ppl);
    let usable = defaults::usable_sectors(Version::V12, sectors, offset, ppl);
    // RAID 0 stores none, and uses whole chunks all the same.
    let md_level = if level == PlanLevel::Raid1 { 1 } else { 5 };
    let data = defaults::component_size_sectors(Version::V12, md_level, usable, chunk_sectors);
    DataPlacement { data_offset_bytes: offset * SECTOR_BYTES, data_bytes: data * SECTOR_BYTES }
}

/// The engine's level and layout.
#[must_use]
pub fn level_of(shape: PlanShape, members: u32) -> (Level, u32) {
    let level = match shape {
        PlanShape::Plain | PlanShape::Raid0 => Level::Raid0,
        PlanShape::Raid1 => Level::Raid1,
        PlanShape::Raid5 => Level::Raid5,
        PlanShape::Raid6 => Level::Raid6,
        PlanShape::Near(_) | PlanShape::Far(_) | PlanShape::Offset(_) => Level::Raid10,
    };
    let layout = match level {
        Level::Raid10 => shape.layout().and_then(|name| parse_layout(level, members, &name).ok()),
        _ => None,
    };
    (level, layout.unwrap_or_else(|| default_layout(level)))
}

impl Trials<'_> {
    /// All candidates, the best first: those that can win measured, the others by their limits.
    /// What keeps less than what is wanted follows, measured the same way.
    ///
    /// # Errors
    /// The load does not fit what is to be built.
    pub fn rank(
        &self,
        candidates: Vec<Candidate>,
        progress: &dyn Fn(usize, usize),
    ) -> Result<Vec<Ranked>, MeasureError> {
        let (less, enough): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|candidate| candidate.keeps_less(self.wish));
        let runs = enough.len() + less.len() + FINALISTS;
        let done = Cell::new(0);
        let step = || {
            done.set((done.get() + 1).min(runs));
            progress(done.get(), runs);
        };
        let mut all = self.rank_alike(enough, &step)?;
        all.extend(self.rank_alike(less, &step)?);
        Ok(all)
    }

    /// Those that may be held against each other.
    fn rank_alike(&self, candidates: Vec<Candidate>, step: &dyn Fn()) -> Result<Vec<Ranked>, MeasureError> {
        let mut all: Vec<Ranked> = candidates
            .into_iter()
            .map(|candidate| Ranked { limit: self.limit(&candidate), trial: None, decided: false, candidate })
            .collect();
        let best_limit = all.iter().map(|ranked| ranked.limit).fold(0.0, f64::max);
        for ranked in &mut all {
            if ranked.limit >= HOPELESS * best_limit {
                ranked.trial = Some(self.measure(&ranked.candidate, RunLength::Glance)?);
            }
            step();
        }
        all.sort_by(faster);
        for ix in self.finalists(&all) {
            all[ix].trial = Some(self.measure(&all[ix].candidate, RunLength::Look)?);
            all[ix].decided = true;
            step();
        }
        let fastest = all.iter().filter(|ranked| ranked.decided).map(rate).fold(0.0, f64::max);
        // What goes one after the other leaves nothing to chance.
        let close = |ranked: &&mut Ranked| {
            self.load.rw.random() && ranked.decided && rate(ranked) >= (1.0 - CLOSE) * fastest
        };
        for ranked in all.iter_mut().filter(close) {
            let again = self.measure_again(&ranked.candidate)?;
            let trials: Vec<Trial> = ranked.trial.take().into_iter().chain(again).collect();
            ranked.trial = Some(Trial::mean(&trials));
        }
        all.sort_by(faster);
        let is_equal = |ranked: &&Ranked| ranked.decided && rate(ranked) >= (1.0 - EQUAL) * rate(&all[0]);
        let equal = all.iter().take_while(is_equal).count();
        all[..equal].sort_by_key(|ranked| ranked.candidate.taste(self.wish));
        Ok(all)
    }

    /// Of each kind that is near the top the fastest, and the one that would be preferred if it
    /// were as fast; then the fastest of the others.
    fn finalists(&self, fastest_first: &[Ranked]) -> Vec<usize> {
        let of = |ix: usize| &fastest_first[ix].candidate;
        let kind = |ix: usize| (of(ix).shape, of(ix).groups);
        let is_near = |ranked: &&Ranked| rate(ranked) >= BEHIND * rate(&fastest_first[0]);
        let near = fastest_first.iter().take_while(is_near).count();
        let mut found = Vec::new();
        for ix in 0..near {
            if found.iter().all(|known| kind(*known) != kind(ix)) {
                let alike = (ix..near).filter(|other| kind(*other) == kind(ix));
                let preferred = alike.min_by_key(|other| of(*other).taste(self.wish));
                found.push(ix);
                found.extend(preferred.filter(|other| *other != ix));
            }
        }
        let others: Vec<usize> = (0..near).filter(|ix| !found.contains(ix)).collect();
        found.extend(others);
        found.truncate(FINALISTS);
        found
    }

    /// What a candidate's drives allow, by what is known of them without a run.
    fn limit(&self, candidate: &Candidate) -> f64 {
        let array = candidate.measured();
        let members = array.drives.len() as u32;
        let slowest = self.slowest(array);
        let limit = limits::of(
            &UniformArray {
                members,
                scheme: array.shape.scheme(members),
                chunk_bytes: array.chunk_bytes.max(4096),
                missing: 0,
            },
            &slowest,
            &Demand {
                random: self.load.rw.random(),
                read_part: self.load.read_part(),
                bytes: self.load.bs_bytes,
                depth: (self.load.depth() as u64).div_ceil(u64::from(candidate.groups)),
            },
        );
        limit.per_second * f64::from(candidate.groups)
    }

    fn slowest(&self, array: &ArrayPlan) -> limits::DriveRates {
        let rates = array.drives.iter().map(|ix| rates(&self.drives[*ix]));
        rates.reduce(limits::DriveRates::slower).expect("an array has members")
    }

    /// Runs the load on a candidate in sync.
    ///
    /// # Errors
    /// The load does not fit it.
    pub fn measure(&self, candidate: &Candidate, effort: RunLength) -> Result<Trial, MeasureError> {
        let (setup, load) = (self.setup(candidate, 0), self.share(candidate, effort));
        Ok(Trial::of(&setup.measure(self.configs(candidate, effort), &load)?, candidate.groups))
    }

    /// The same for the other seeds.
    fn measure_again(&self, candidate: &Candidate) -> Result<Vec<Trial>, MeasureError> {
        let run = |more| {
            let load = Load { seed: self.load.seed.wrapping_add(more), ..self.load.clone() };
            Trials { load: &load, ..*self }.measure(candidate, RunLength::Look)
        };
        (1..SEEDS).map(run).collect()
    }

    /// Runs it with members missing and being filled; `None` for what survives no failure, or is
    /// filled too soon to be measured.
    ///
    /// # Errors
    /// The load does not fit it.
    pub fn measure_hurt(&self, candidate: &Candidate) -> Result<Option<Hurt>, MeasureError> {
        let array = candidate.measured();
        let survives = array.shape.survives(array.drives.len() as u32).min(self.wish.survive.max(1));
        if survives == 0 {
            return Ok(None);
        }
        let load = self.share(candidate, RunLength::Hurt);
        let configs = || self.configs(candidate, RunLength::Hurt);
        let degraded = self.setup(candidate, survives).measure(configs(), &load)?;
        let beside = match rebuild_beside(&self.setup(candidate, 1), configs(), &load) {
            // So small that it is filled in no time.
            Err(MeasureError::Filled) => return Ok(None),
            beside => beside?,
        };
        Ok(Some(Hurt {
            degraded: Trial::of(&degraded, candidate.groups),
            rebuilding: Trial::of(&beside.measured, candidate.groups),
        }))
    }

    /// One array's share of the load.
    fn share(&self, candidate: &Candidate, effort: RunLength) -> Load {
        let drives: Vec<_> = candidate.measured().drives.iter().map(|ix| &self.drives[*ix]).collect();
        let load = effort.load(self.load, &drives);
        Load { iodepth: load.iodepth.div_ceil(candidate.groups as usize), ..load }
    }

    fn setup(&self, candidate: &Candidate, missing: u32) -> ModelledSetup {
        let array = candidate.measured();
        let members = array.drives.len() as u32;
        let (level, layout) = level_of(array.shape, members);
        let data_offset = Sector((array.place.data_offset_bytes / SECTOR_BYTES).max(DATA_OFFSET.0));
        let start = array.part.as_ref().map_or(0, |(_, range)| range.start);
        ModelledSetup {
            level,
            layout,
            members,
            chunk_bytes: array.chunk_bytes.max(SECTOR_BYTES),
            member_bytes: array.place.data_bytes.min(array.member_bytes - data_offset.0 * SECTOR_BYTES),
            data_offset: Sector(data_offset.0 + start / SECTOR_BYTES),
            missing,
            guard: match array.cover {
                PowerCutCover::Resync => WriteHoleGuard::Resync,
                PowerCutCover::Bitmap => WriteHoleGuard::Bitmap,
                PowerCutCover::Ppl => WriteHoleGuard::Ppl,
            },
            cache_bytes: None,
            cores: 1,
            seed: self.load.seed,
        }
    }

    fn configs(&self, candidate: &Candidate, effort: RunLength) -> Vec<DriveConfig> {
        let used = |ix: &usize| {
            let mut drive = used_up(self.drives[*ix].clone());
            if effort != RunLength::Exhaustive && matches!(drive.model.media, Media::Disk(_)) {
                drive.model.cache_bytes = drive.model.cache_bytes.min(SHORT_CACHE_BYTES);
            }
            drive
        };
        let drives = candidate.measured().drives.iter().map(used);
        drives.zip(0..).map(|(drive, slot)| config(&drive, format!("slot{slot}"))).collect()
    }
}

/// The fastest first. A glance is not held against a look: caches are not full yet, and chance is
/// larger.
fn faster(one: &Ranked, other: &Ranked) -> Ordering {
    let looks = other.decided.cmp(&one.decided);
    looks.then(rate(other).total_cmp(&rate(one))).then(other.limit.total_cmp(&one.limit))
}

fn rate(ranked: &Ranked) -> f64 {
    ranked.trial.as_ref().map_or(0.0, |trial| trial.per_second)
}

/// What a drive does by itself, after hours of writing.
fn rates(drive: &Drive) -> limits::DriveRates {
    match &drive.model.media {
        Media::Flash(flash) => limits::DriveRates {
            reads_per_second: flash.reads_per_second as f64,
            writes_per_second: flash.writes_per_second as f64,
            read_bytes_per_second: flash.read_bytes_per_second as f64,
            write_bytes_per_second: flash.write_bytes_per_second as f64,
            read_seconds: flash.read_latency.as_secs_f64(),
            write_seconds: flash.write_latency.as_secs_f64(),
            deferred_part: 0.0,
            rotational: false,
            turn: None,
        },
        Media::Disk(disk) => {
            let turn = 60.0 / f64::from(disk.turns_per_minute.max(1));
            let seconds = (disk.seek_average + disk.command).as_secs_f64() + turn / 2.0;
            let bandwidth = disk.outer_bytes_per_second as f64;
            limits::DriveRates {
                // With many requests in flight a disk serves them in an order that about halves its
                // ways.
                reads_per_second: 2.0 / seconds,
                writes_per_second: 2.0 / seconds,
                read_bytes_per_second: bandwidth,
                write_bytes_per_second: bandwidth,
                read_seconds: seconds,
                write_seconds: seconds,
                deferred_part: 0.0,
                rotational: true,
                turn: None,
            }
        }
    }
}
