//! The stripe path against what the drives allow: drives like the X25-M, chunks of 64 KiB, nothing
//! tuned.

use std::time::Duration;

use wattle_engine::MemberSpec;
use wattle_engine::geometry::Level;
use wattle_engine::metadata::NoMetadata;
use wattle_modelled::Measured;

use super::limits;
use super::load::{AccessPattern, FigureLoad};
use super::site::FigureSetup;
use super::tables::{aligned, busy, micros, percent, row};

/// Requests in flight per member that count as deep.
const DEEP: usize = 41;

/// A load, what drives allow of it, and how much of that is to be reached.
#[derive(Clone, Debug)]
pub struct PathCase {
    /// What it is, in a few words.
    pub name: String,
    /// The array.
    pub setup: FigureSetup,
    /// What clients do.
    pub load: FigureLoad,
    /// So many of the last slots are empty.
    pub missing: usize,
    /// Requests per second that the drives allow.
    pub limit_per_second: f64,
    /// Part of it that must be reached.
    pub bound: f64,
}

impl PathCase {
    fn new(
        name: impl Into<String>,
        setup: FigureSetup,
        load: FigureLoad,
        limit_per_second: f64,
        bound: f64,
    ) -> PathCase {
        PathCase { name: name.into(), setup, load, missing: 0, limit_per_second, bound }
    }

    fn random_write(name: &str, setup: FigureSetup, depth: usize, bound: f64) -> PathCase {
        let name = format!("{name} over {}, 4 KiB random write", setup.members);
        PathCase::new(
            name,
            setup,
            FigureLoad::random_writes(depth),
            limits::random_writes_per_second(&setup, 4096),
            bound,
        )
    }

    fn sequential(
        name: &str,
        setup: FigureSetup,
        reads_percent: u32,
        request_bytes: u64,
        depth: usize,
        bytes_per_second: f64,
        bound: f64,
    ) -> PathCase {
        let load = FigureLoad {
            reads_percent,
            request_bytes,
            access: AccessPattern::Sequential,
            warm_up: Duration::from_millis(100),
            window: Duration::from_millis(500),
            ..FigureLoad::random_writes(depth)
        };
        let what = if reads_percent == 0 { "write" } else { "read" };
        let name = format!("{name} over {}, {} KiB sequential {what}", setup.members, request_bytes >> 10);
        PathCase::new(name, setup, load, bytes_per_second / request_bytes as f64, bound)
    }

    /// Measures it.
    #[must_use]
    pub fn measure(&self) -> Measured {
        let degrade = |mut spec: wattle_engine::ArraySpec| {
            spec.members.iter_mut().rev().take(self.missing).for_each(|slot| *slot = MemberSpec::missing());
            spec
        };
        self.setup.measure_with(&self.load, degrade, |_, _| Box::new(NoMetadata))
    }

    /// The part of the limit that `measured` is.
    #[must_use]
    pub fn reached(&self, measured: &Measured) -> f64 {
        measured.per_second() / self.limit_per_second
    }
}

/// RAID 5, random writes: few members and one queue, many members and a deep queue for each.
#[must_use]
pub fn raid5() -> Vec<PathCase> {
    let few = (3..=6).map(|members| PathCase::random_write("RAID 5", FigureSetup::x25m(members), 248, 0.97));
    let many = [3, 4, 5, 6, 8, 10, 12, 16, 20, 24].into_iter().map(|members| {
        PathCase::random_write("RAID 5", FigureSetup::x25m(members), DEEP * members as usize, 0.97)
    });
    few.chain(many).collect()
}

/// The same on RAID 6.
#[must_use]
pub fn raid6() -> Vec<PathCase> {
    let raid6 = |members| FigureSetup { level: Level::Raid6, ..FigureSetup::x25m(members) };
    let few = (4..=6).map(|members| PathCase::random_write("RAID 6", raid6(members), 248, 0.95));
    let many = [4, 5, 6, 8, 10, 12, 16, 20, 24]
        .into_iter()
        .map(|members| PathCase::random_write("RAID 6", raid6(members), DEEP * members as usize, 0.95));
    few.chain(many).collect()
}

/// One write at a time: a read and a write.
#[must_use]
pub fn alone() -> Vec<PathCase> {
    let setups = [
        ("RAID 5", FigureSetup::x25m(3)),
        ("RAID 5", FigureSetup::x25m(6)),
        ("RAID 6", FigureSetup { level: Level::Raid6, ..FigureSetup::x25m(6) }),
        ("RAID 10 near", FigureSetup { level: Level::Raid10, layout: 0x102, ..FigureSetup::x25m(6) }),
    ];
    let case = |(name, setup): (&str, FigureSetup)| {
        let limit = 1.0 / limits::write_alone_seconds(&setup, 4096);
        PathCase { limit_per_second: limit, ..PathCase::random_write(name, setup, 1, 1.0 / 1.10) }
    };
    setups.into_iter().map(case).collect()
}

/// Random reads of 4 KiB, all members there and as many missing as the level bears.
#[must_use]
pub fn reads() -> Vec<PathCase> {
    let setups = [
        ("RAID 5", FigureSetup::x25m(3)),
        ("RAID 5", FigureSetup::x25m(6)),
        ("RAID 5", FigureSetup::x25m(24)),
        ("RAID 6", FigureSetup { level: Level::Raid6, ..FigureSetup::x25m(4) }),
        ("RAID 6", FigureSetup { level: Level::Raid6, ..FigureSetup::x25m(6) }),
        ("RAID 6", FigureSetup { level: Level::Raid6, ..FigureSetup::x25m(24) }),
        ("RAID 10 near", FigureSetup { level: Level::Raid10, layout: 0x102, ..FigureSetup::x25m(6) }),
        ("RAID 10 far", FigureSetup { level: Level::Raid10, layout: 0x201, ..FigureSetup::x25m(6) }),
    ];
    let mut cases = Vec::new();
    for (name, setup) in setups {
        let load =
            FigureLoad { reads_percent: 100, ..FigureLoad::random_writes(DEEP * setup.members as usize) };
        let name = format!("{name} over {}, 4 KiB random read", setup.members);
        let whole = limits::random_reads_per_second(&setup, 4096);
        cases.push(PathCase::new(name.clone(), setup, load.clone(), whole, 0.98));
        let bearable: &[_] = match setup.level {
            Level::Raid5 => &[(1, "one")],
            Level::Raid6 => &[(1, "one"), (2, "two")],
            _ => &[],
        };
        for &(missing, how_many) in bearable {
            let limit = limits::degraded_reads_per_second(&setup, missing as u32, 4096);
            let case = PathCase::new(format!("{name}, {how_many} missing"), setup, load.clone(), limit, 0.95);
            cases.push(PathCase { missing, ..case });
        }
    }
    cases
}

/// Sequential writes, from large requests to many small ones.
#[must_use]
pub fn sequential() -> Vec<PathCase> {
    let raid6 = FigureSetup { level: Level::Raid6, ..FigureSetup::x25m(6) };
    let mut cases = Vec::new();
    for (name, setup) in [
        ("RAID 5", FigureSetup::x25m(3)),
        ("RAID 5", FigureSetup::x25m(6)),
        ("RAID 5", FigureSetup::x25m(24)),
        ("RAID 6", raid6),
    ] {
        let limit = limits::sequential_write_bytes_per_second(&setup);
        let data = limit / setup.model.write_bytes_per_second as f64;
        let stripe = data as u64 * setup.chunk_bytes;
        let mut add = |request_bytes, depth, bound| {
            let gathered = limits::whole_stripes_bytes_per_second(&setup, request_bytes * depth as u64);
            let limit = if request_bytes < stripe && bound > 0.0 { limit.min(gathered) } else { limit };
            cases.push(PathCase::sequential(name, setup, 0, request_bytes, depth, limit, bound));
        };
        add(4 * stripe, 8, 0.97);
        add(1 << 20, 32, 0.97);
        add(64 << 10, 32, 0.97);
        add(16 << 10, 64, 0.0);
        add(4 << 10, 128, 0.0);
        for depth in [1, 2, 4, 8, 16] {
            add(64 << 10, depth, 0.0);
        }
    }
    cases
}

/// What the clean cache saves: hot sets that are written at random, and small sequential writes,
/// against what the drives allow if nothing were read. A set beyond its ceiling and writes anywhere
/// are what it must not do harm to.
#[must_use]
pub fn cache() -> Vec<PathCase> {
    let mut cases = Vec::new();
    for members in [3, 6] {
        let setup = FigureSetup::x25m(members);
        let (writes, alone) = (setup.model.write_seconds(4096), setup.model.write_latency.as_secs_f64());
        let limit = f64::from(members) / (2.0 * writes);
        // The smallest set is parity on every member equally often, over three as over six: the
        // limit takes that for granted.
        for (what, bytes, bound) in
            [("3.75 MiB", 15 << 18, 0.95), ("32 MiB", 32 << 20, 0.0), ("1 GiB", 1 << 30, 0.0)]
        {
            let load = FigureLoad {
                reach: 0..bytes,
                warm_up: Duration::from_secs(10),
                ..FigureLoad::random_writes(64)
            };
            cases.push(PathCase::new(
                format!("RAID 5 over {members}, 4 KiB random write to {what}"),
                setup,
                load,
                limit,
                bound,
            ));
        }
        let bytes_per_second = 4096.0 / (writes + alone);
        cases.push(PathCase::sequential("RAID 5", setup, 0, 4096, 1, bytes_per_second, 0.0));
    }
    cases
}

/// RAID 10: random writes, and sequential reads against RAID 0. Enough in flight uses every copy,
/// whatever the layout.
#[must_use]
pub fn copies() -> Vec<PathCase> {
    let raid10 = |layout| FigureSetup { level: Level::Raid10, layout, ..FigureSetup::x25m(6) };
    let mut cases: Vec<PathCase> = [("near", 0x102), ("far", 0x201), ("offset", 0x10201)]
        .into_iter()
        .map(|(name, layout)| {
            PathCase::random_write(&format!("RAID 10 {name}"), raid10(layout), 6 * DEEP, 0.97)
        })
        .collect();
    let raid0 = FigureSetup { level: Level::Raid0, layout: 0, ..FigureSetup::x25m(6) };
    for (request_bytes, depth) in
        [(2 << 20, 4), (1 << 20, 8), (256 << 10, 16), (64 << 10, 32), (64 << 10, 4), (64 << 10, 1)]
    {
        let bound = if depth * request_bytes as usize >= 2 << 20 { 0.97 } else { 0.0 };
        for (name, setup) in [
            ("RAID 0", raid0),
            ("RAID 10 far", raid10(0x201)),
            ("RAID 10 near", raid10(0x102)),
            ("RAID 10 offset", raid10(0x10201)),
        ] {
            let limit = limits::sequential_read_bytes_per_second(&raid0);
            cases.push(PathCase::sequential(name, setup, 100, request_bytes, depth, limit, bound));
        }
    }
    cases
}

/// Reads in sequence, one at a time: what is read ahead keeps every member busy.
#[must_use]
pub fn ahead() -> Vec<PathCase> {
    let of = |level, layout, members| FigureSetup { level, layout, ..FigureSetup::x25m(members) };
    let setups = [
        ("RAID 0", of(Level::Raid0, 0, 6)),
        ("RAID 1", FigureSetup { chunk_bytes: 0, ..of(Level::Raid1, 0, 2) }),
        ("RAID 5", FigureSetup::x25m(3)),
        ("RAID 5", FigureSetup::x25m(6)),
        ("RAID 5", FigureSetup { chunk_bytes: 512 << 10, ..FigureSetup::x25m(24) }),
        ("RAID 6", of(Level::Raid6, 2, 6)),
        ("RAID 10 near", of(Level::Raid10, 0x102, 6)),
        ("RAID 10 far", of(Level::Raid10, 0x201, 6)),
    ];
    let sizes = [4 << 10, 64 << 10, 1 << 20];
    let cases = setups.into_iter().flat_map(|(name, setup)| {
        let limit = limits::sequential_read_bytes_per_second(&setup);
        sizes.map(|bytes| PathCase::sequential(name, setup, 100, bytes, 1, limit, 0.92))
    });
    cases.collect()
}

/// Measures every case.
#[must_use]
pub fn table(cases: &[PathCase]) -> String {
    let mut rows = vec![row(&[
        &"",
        &"QD",
        &"per second",
        &"limit",
        &"of it",
        &"bound",
        &"p50 us",
        &"p99 us",
        &"members busy",
        &"their QD",
        &"reads",
        &"writes",
    ])];
    for case in cases {
        let measured = case.measure();
        let uses = measured.uses();
        let (least, most) = uses.iter().fold((f64::MAX, 0.0f64), |(least, most), member| {
            (least.min(member.depth), most.max(member.depth))
        });
        let requests = measured.all().count() as f64;
        let each = |count: u64| format!("{:.2}", count as f64 / requests);
        rows.push(row(&[
            &case.name,
            &case.load.depth,
            &format!("{:.0}", measured.per_second()),
            &format!("{:.0}", case.limit_per_second),
            &percent(case.reached(&measured)),
            &if case.bound > 0.0 { percent(case.bound) } else { String::new() },
            &micros(&measured, 50.0),
            &micros(&measured, 99.0),
            &busy(&measured),
            &format!("{least:.0}-{most:.0}"),
            &each(measured.members.iter().map(|member| member.reads).sum()),
            &each(measured.members.iter().map(|member| member.writes).sum()),
        ]));
    }
    aligned(&rows)
}
