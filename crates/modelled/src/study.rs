//! A load on an array of drives that have names, what that came to, what it could have come to, and
//! what lies between.

use std::fmt;

use wattle_advise::limits::{self, By, Demand, Limit, Scheme, UniformArray};
use wattle_drives::{Drive, Media};
use wattle_engine::CacheTuning;
use wattle_engine::geometry::{Geometry, Level};
use wattle_engine::units::{MemberIx, SECTOR_BYTES};
use wattle_rt::DriveConfig;

use crate::drive::config;
use crate::load::{Load, Rw};
use crate::measured::{Measured, MemberUse};
use crate::rebuild::{LoadBesideRebuild, rebuild_beside};
use crate::setup::{DATA_OFFSET, MeasureError, ModelledSetup, WriteHoleGuard};

/// A load on an array of named drives.
#[derive(Clone, Debug)]
pub struct Study {
    /// The array.
    pub setup: ModelledSetup,
    /// Its drives, one by slot.
    pub drives: Vec<Drive>,
    /// What is asked of it.
    pub load: Load,
}

/// What it came to.
#[derive(Clone, Debug)]
pub struct StudyResult {
    /// The array's map.
    pub geometry: Geometry,
    /// What was measured.
    pub measured: Measured,
    /// What the drives allow.
    pub limit: Limit,
    /// What keeps it from more.
    pub held_back: HeldBack,
}

/// What a load comes to while a member is filled, and how fast that goes.
#[derive(Clone, Debug)]
pub struct BesideRebuild {
    /// The load meanwhile.
    pub measured: Measured,
    /// Bytes per second of the member that is filled.
    pub bytes_per_second: f64,
    /// What its drive takes in sequence.
    pub takes_bytes_per_second: f64,
}

impl StudyResult {
    /// The part of the limit that was reached.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        self.measured.per_second() / self.limit.per_second
    }
}

/// Bytes of data that fit each of these drives.
#[must_use]
pub fn member_bytes_max(drives: &[Drive]) -> u64 {
    let smallest = drives.iter().map(|drive| drive.size_bytes).min().unwrap_or(0);
    smallest.saturating_sub(DATA_OFFSET.0 * SECTOR_BYTES)
}

/// The drive after hours of writing: there is no fast space left for more.
#[must_use]
pub fn used_up(mut drive: Drive) -> Drive {
    if let Media::Flash(flash) = &mut drive.model.media {
        flash.burst_bytes = 0;
    }
    drive
}

impl Study {
    /// Runs it.
    ///
    /// # Errors
    /// There is no such array, or the load does not fit it.
    pub fn run(&self) -> Result<StudyResult, MeasureError> {
        let geometry = self.setup.geometry()?;
        let measured = self.setup.measure(self.configs(), &self.load)?;
        let limit = self.limit()?;
        let held_back = HeldBack::of(self, &measured, &limit)?;
        Ok(StudyResult { geometry, measured, limit, held_back })
    }

    /// Runs it while the first of the members that are missing is filled.
    ///
    /// # Errors
    /// As [`Self::run`], or the member was filled too soon.
    ///
    /// # Panics
    /// If no member is missing.
    pub fn run_beside_rebuild(&self) -> Result<BesideRebuild, MeasureError> {
        let beside = rebuild_beside(&self.setup, self.configs(), &self.load)?;
        let filled = self.setup.lost()?.iter().next().expect("a member is missing");
        let takes_bytes_per_second = match &self.drives[filled.index()].model.media {
            Media::Flash(flash) if flash.burst_bytes > 0 => flash.burst_bytes_per_second as f64,
            Media::Flash(flash) => flash.write_bytes_per_second as f64,
            // It begins outside.
            Media::Disk(disk) => disk.outer_bytes_per_second as f64,
        };
        let LoadBesideRebuild { measured, bytes_per_second } = beside;
        Ok(BesideRebuild { measured, bytes_per_second, takes_bytes_per_second })
    }

    /// Its drives, new.
    #[must_use]
    pub fn configs(&self) -> Vec<DriveConfig> {
        let slots = self.drives.iter().zip(0..);
        slots.map(|(drive, slot)| config(drive, format!("slot{slot}"))).collect()
    }

    /// What the drives allow. An array runs at the pace of its slowest member, whatever it is
    /// slowest in; copies are read where that is fastest.
    ///
    /// # Errors
    /// There is no such array, or the load does not fit it.
    pub fn limit(&self) -> Result<Limit, MeasureError> {
        self.limit_of(self.load.read_part())
    }

    /// The same for another part of reads: chance draws not exactly the part that is asked for.
    ///
    /// # Errors
    /// As [`Self::limit`].
    pub fn limit_of(&self, read_part: f64) -> Result<Limit, MeasureError> {
        let setup = &self.setup;
        let array = UniformArray {
            members: setup.members,
            scheme: scheme(setup),
            chunk_bytes: if setup.level == Level::Linear { 0 } else { setup.chunk_bytes },
            missing: setup.missing,
        };
        let asked = Demand {
            random: self.load.rw.random(),
            read_part,
            bytes: self.load.bs_bytes,
            depth: self.load.depth() as u64,
        };
        let mut known: Vec<(&Drive, limits::DriveRates)> = Vec::new();
        let mut all = Vec::new();
        for drive in &self.drives {
            let rates = match known.iter().find(|(other, _)| *other == drive) {
                Some((_, rates)) => *rates,
                None => self.rates(drive, &array, &asked)?,
            };
            known.push((drive, rates));
            all.push(rates);
        }
        let mut rates = all.iter().copied().reduce(limits::DriveRates::slower).expect("an array has drives");
        if let Scheme::Mirrored { .. } = array.scheme {
            let mean =
                |of: fn(&limits::DriveRates) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
            rates.reads_per_second = mean(|rates| rates.reads_per_second);
            rates.read_bytes_per_second = mean(|rates| rates.read_bytes_per_second);
            rates.read_seconds = all.iter().map(|rates| rates.read_seconds).fold(f64::INFINITY, f64::min);
        }
        let known = self.known_part(&array)?;
        if known < KNOWN_MIN || asked.read_part > 0.0 || !asked.random {
            return Ok(limits::of(&array, &rates, &asked));
        }
        let rates = limits::DriveRates {
            reads_per_second: rates.reads_per_second / (1.0 - known),
            read_bytes_per_second: rates.read_bytes_per_second / (1.0 - known),
            read_seconds: rates.read_seconds * (1.0 - known),
            ..rates
        };
        let limit = limits::of(&array, &rates, &asked);
        let formula =
            format!("{}; {:.0} % of what is read first is in the clean cache", limit.formula, known * 100.0);
        Ok(Limit { formula, ..limit })
    }

    /// The part of what the load covers, parity included, that the clean cache may hold.
    fn known_part(&self, array: &UniformArray) -> Result<f64, MeasureError> {
        let Scheme::Parity { parities } = array.scheme else { return Ok(0.0) };
        let array_bytes = self.setup.geometry()?.array_sectors().0 * SECTOR_BYTES;
        let last = self.load.reach(self.load.numjobs - 1, array_bytes)?;
        let used = last.end - self.load.offset_bytes.min(last.start);
        let data = f64::from(self.setup.members.saturating_sub(parities).max(1));
        let covered = used as f64 * f64::from(self.setup.members) / data;
        let cache = self.setup.cache_bytes.unwrap_or(CacheTuning::default().bytes_max);
        Ok((cache as f64 / covered.max(1.0)).min(1.0))
    }

    /// How far a member's head has to go: the part of the member that is the load's part of the
    /// array.
    fn span_bytes(&self) -> Result<u64, MeasureError> {
        let array_bytes = self.setup.geometry()?.array_sectors().0 * SECTOR_BYTES;
        let last = self.load.reach(self.load.numjobs - 1, array_bytes)?;
        let used = last.end - self.load.offset_bytes.min(last.start);
        let part = u128::from(self.setup.member_bytes) * u128::from(used) / u128::from(array_bytes);
        Ok((part as u64).max(self.load.bs_bytes))
    }

    /// What a drive does by itself: as its facts have it, or, where that depends on how far its
    /// head has to go, as it does alone, asked for what this array would ask it for.
    fn rates(
        &self,
        drive: &Drive,
        array: &UniformArray,
        asked: &Demand,
    ) -> Result<limits::DriveRates, MeasureError> {
        let disk = match &drive.model.media {
            Media::Flash(flash) => {
                let fast = flash.burst_bytes > 0;
                let writes = if fast { flash.burst_writes_per_second } else { flash.writes_per_second };
                let bytes = if fast { flash.burst_bytes_per_second } else { flash.write_bytes_per_second };
                return Ok(limits::DriveRates {
                    reads_per_second: flash.reads_per_second as f64,
                    writes_per_second: writes as f64,
                    read_bytes_per_second: flash.read_bytes_per_second as f64,
                    write_bytes_per_second: bytes as f64,
                    read_seconds: flash.read_latency.as_secs_f64(),
                    write_seconds: flash.write_latency.as_secs_f64(),
                    // The fast space collects nothing.
                    deferred_part: if fast { 0.0 } else { f64::from(flash.collection_share_ppm) / 1e6 },
                    rotational: false,
                    turn: None,
                });
            }
            Media::Disk(disk) => disk,
        };
        let bandwidth = disk.outer_bytes_per_second as f64;
        let drive_at = |per_second, read_seconds, write_seconds| limits::DriveRates {
            reads_per_second: per_second,
            writes_per_second: per_second,
            read_bytes_per_second: bandwidth,
            write_bytes_per_second: bandwidth,
            read_seconds,
            write_seconds,
            deferred_part: 0.0,
            rotational: true,
            turn: Some(limits::PlatterTurn {
                seconds: 60.0 / f64::from(disk.turns_per_minute.max(1)),
                seek_seconds: disk.seek_track.as_secs_f64(),
            }),
        };
        if !self.load.rw.random() {
            // Only bandwidth counts.
            let seconds = (disk.seek_average + disk.command).as_secs_f64();
            return Ok(drive_at(1.0 / seconds, seconds, seconds));
        }
        let work = limits::random_work(array, asked);
        let operations = work.reads + work.writes;
        let read_part = work.reads / operations;
        // Whole blocks, rather too small than too large.
        let bytes = ((work.read_bytes + work.write_bytes) / operations / 4096.0).max(1.0) as u64 * 4096;
        let copies = match array.scheme {
            Scheme::Mirrored { copies, .. } if read_part > 0.0 => u64::from(copies),
            _ => 1,
        };
        // Of several copies the nearest head goes. From k heads, wherever they are, it is at least
        // 1/4k of the span to a place that chance draws, as to the next place in 3/4k of it.
        let span_bytes = match copies {
            1 => self.span_bytes()?,
            copies => self.span_bytes()? / (4 * copies) * 3,
        };
        let span_bytes = span_bytes.max(bytes);
        let alone = |rw, iodepth, rwmixread| -> Result<f64, MeasureError> {
            let setup = ModelledSetup {
                level: Level::Linear,
                members: 1,
                missing: 0,
                guard: WriteHoleGuard::None,
                ..self.setup
            };
            let load = Load {
                size_bytes: Some(span_bytes),
                rw,
                iodepth,
                rwmixread,
                bs_bytes: bytes,
                norandommap: true,
                ..Load::new()
            }
            .until_steady();
            Ok(setup.measure(vec![config(drive, "alone")], &load)?.per_second())
        };
        // Stated for 4 KiB, like everything in limits.
        let more = (bytes - 4096) as f64 / bandwidth;
        let small = |per_second: f64| (1.0 / per_second - more).max(1e-6);
        let mix = match read_part {
            0.0 => alone(Rw::RandWrite, ALONE_DEPTH, 0)?,
            1.0 => alone(Rw::RandRead, ALONE_DEPTH, 100)?,
            part => alone(Rw::RandRw, ALONE_DEPTH, ((part * 100.0).round() as u32).clamp(1, 99))?,
        };
        // A volatile cache answers before the head has moved.
        let write_seconds = match drive.model.cache_bytes {
            0 => 1.0 / alone(Rw::RandWrite, 1, 0)?,
            _ => disk.command.as_secs_f64() + 4096.0 / disk.link_bytes_per_second as f64,
        };
        let read_seconds = match read_part {
            0.0 => disk.command.as_secs_f64(),
            _ => small(alone(Rw::RandRead, 1, 100)?),
        };
        Ok(drive_at(SURELY / small(mix), read_seconds / SURELY, write_seconds))
    }
}

/// What is measured is known to 0.4 %; so much more is beyond what chance makes of it, and a bound.
const SURELY: f64 = 1.01;
/// A clean cache that holds less of what a load covers changes its limit by less than chance does.
const KNOWN_MIN: f64 = 0.05;
/// More requests than a disk can put in order.
const ALONE_DEPTH: usize = 64;

fn scheme(setup: &ModelledSetup) -> Scheme {
    let layout = setup.layout;
    match setup.level {
        Level::Linear | Level::Raid0 => Scheme::Striped,
        Level::Raid1 => Scheme::Mirrored { copies: setup.members, far: false },
        // md's layout word: near copies, and far copies, which may be offset.
        Level::Raid10 => {
            Scheme::Mirrored { copies: (layout & 0xff) * (layout >> 8 & 0xff), far: layout >> 8 & 0xff > 1 }
        }
        Level::Raid4 | Level::Raid5 => Scheme::Parity { parities: 1 },
        Level::Raid6 => Scheme::Parity { parities: 2 },
    }
}

/// What keeps an array from more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeldBack {
    /// Most members are busy: the least and the busiest, as parts of the time.
    Drives {
        /// The least busy.
        least: f64,
        /// The busiest.
        most: f64,
    },
    /// Every member is busy, partly with reads that whole stripes would not have needed.
    PreReads {
        /// Blocks read before something was written, for each write request.
        per_write: f64,
    },
    /// One member is slower than the others, and they wait for it.
    SlowMember(QueueUse),
    /// One member, no slower than the others, has more to do.
    Uneven(QueueUse),
    /// Too few requests are in flight.
    Depth {
        /// So many.
        in_flight: usize,
        /// How busy the members are.
        busy: f64,
    },
    /// Flushes take this part of the clients' time.
    Flushes {
        /// The part.
        part: f64,
    },
    /// Writes wait until their log entries are durable.
    Log {
        /// How busy the members are.
        busy: f64,
    },
    /// Requests wait for one another, not for drives.
    Order {
        /// How busy the members are.
        busy: f64,
    },
}

/// Where operations queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueUse {
    /// The slot of the member.
    pub slot: MemberIx,
    /// Operations queued on it.
    pub queue: f64,
    /// Operations queued on each of the others, in the middle.
    pub others: f64,
}

/// A member that is at work so much of the time is busy.
const BUSY: f64 = 0.9;

impl HeldBack {
    fn of(study: &Study, measured: &Measured, limit: &Limit) -> Result<HeldBack, MeasureError> {
        let (lost, load) = (study.setup.lost()?, &study.load);
        let reached = measured.per_second() / limit.per_second;
        let mut uses: Vec<(MemberIx, MemberUse)> =
            (0..).map(MemberIx).zip(measured.uses()).filter(|(slot, _)| !lost.contains(*slot)).collect();
        uses.sort_by(|(_, one), (_, other)| one.busy.total_cmp(&other.busy));
        let ((_, idlest), (slot, busiest)) = (uses[0], uses[uses.len() - 1]);
        let middle = uses[(uses.len() - 1) / 2].1;
        if measured.flushes.count() > 0 && reached < BUSY {
            let waited = measured.flushes.mean().as_secs_f64() * measured.flushes.count() as f64;
            let part = waited / (measured.window.as_secs_f64() * load.depth() as f64);
            return Ok(HeldBack::Flushes { part });
        }
        if busiest.busy >= BUSY && middle.busy < BUSY * busiest.busy {
            let crowd = QueueUse { slot, queue: busiest.depth, others: middle.depth };
            let drive = &study.drives[slot.index()];
            let alike = study.drives.iter().all(|other| other == drive);
            return Ok(if alike { HeldBack::Uneven(crowd) } else { HeldBack::SlowMember(crowd) });
        }
        if middle.busy >= BUSY {
            let pre_reads = measured.grew(|counters| counters.pre_reads);
            if !load.rw.random() && pre_reads > 0 && reached < BUSY {
                let per_write = pre_reads as f64 / measured.writes.count().max(1) as f64;
                return Ok(HeldBack::PreReads { per_write });
            }
            return Ok(HeldBack::Drives { least: idlest.busy, most: busiest.busy });
        }
        if study.setup.guard == WriteHoleGuard::Ppl && load.depth() > 1 {
            return Ok(HeldBack::Log { busy: middle.busy });
        }
        let few = limit.by == By::Depth || load.depth() < 2 * uses.len();
        Ok(match few {
            true => HeldBack::Depth { in_flight: load.depth(), busy: middle.busy },
            false => HeldBack::Order { busy: middle.busy },
        })
    }

    /// A word for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            HeldBack::Drives { .. } => "drives",
            HeldBack::PreReads { .. } => "pre-reads",
            HeldBack::SlowMember(_) => "slow-member",
            HeldBack::Uneven(_) => "uneven",
            HeldBack::Depth { .. } => "depth",
            HeldBack::Flushes { .. } => "flushes",
            HeldBack::Log { .. } => "log",
            HeldBack::Order { .. } => "order",
        }
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        match *self {
            HeldBack::Drives { least, most } => {
                let (least, most) = (percent(least), percent(most));
                write!(f, "the drives: members are at work {least} to {most} of the time")
            }
            HeldBack::PreReads { per_write } => write!(
                f,
                "reads before writes, {per_write:.1} blocks for each request: stripes are not written as a whole"
            ),
            HeldBack::SlowMember(QueueUse { slot, queue, others }) => write!(
                f,
                "the member in slot {slot}, slower than others: {queue:.0} operations are queued on it and {others:.0} on them; an \
                 array runs at the pace of its slowest member"
            ),
            HeldBack::Uneven(QueueUse { slot, queue, others }) => write!(
                f,
                "the member in slot {slot}, which has more to do than others: {queue:.0} operations are queued on it and \
                 {others:.0} on them"
            ),
            HeldBack::Depth { in_flight, busy } => {
                let busy = percent(busy);
                write!(
                    f,
                    "the queue depth: with {in_flight} in flight members are at work {busy} of the time"
                )
            }
            HeldBack::Flushes { part } => {
                write!(f, "flushes: clients wait for them {} of their time", percent(part))
            }
            HeldBack::Log { busy } => write!(
                f,
                "the partial parity log: writes wait until their entry is durable; members are at work {} of the time",
                percent(busy)
            ),
            HeldBack::Order { busy } => {
                let busy = percent(busy);
                write!(f, "requests that wait for one another: members are at work {busy} of the time")
            }
        }
    }
}
