//! How a scenario is drawn from its seed.
//!
//! Swarm testing: most options are off in most scenarios, so that what is on can show.

use std::ops::Range;
use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, LevelKind, Params};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{Job, RepairSource};
use wattle_format::md::Version;
use wattle_rt::{DriveConfig, Rng};

use super::{End, InjectedFault, Lifetime, Mix, Scenario};
use crate::metadata::{MetadataModel, md, tiny};

const RAID6_LAYOUTS: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];
const RAID10_LAYOUTS: [u32; 9] = [0x102, 0x102, 0x103, 0x201, 0x301, 0x10201, 0x10301, 0x202, 0x40201];
const VERSIONS: [Version; 6] =
    [Version::V12, Version::V12, Version::V12, Version::V11, Version::V10, Version::V090];

/// Smallest data area of a member: superblocks claim at least 10 sectors.
const SIZE_MIN: u64 = 16;

/// One of `options`.
pub(super) fn one_of<T: Copy>(rng: &mut Rng, options: &[T]) -> T {
    options[rng.below(options.len() as u64) as usize]
}

/// True in one case of `n`.
pub(super) fn one_in(rng: &mut Rng, n: u64) -> bool {
    rng.below(n) == 0
}

/// From 1 to `max`, small numbers as likely as large ones.
pub(super) fn logarithmic(rng: &mut Rng, max: u64) -> u64 {
    let bits = rng.below(u64::from(64 - max.leading_zeros())) + 1;
    (1 + rng.below(1 << bits)).min(max)
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed ^ 0x5ce9_a710);
        let rng = &mut rng;
        let (params, geometry) = loop {
            if let Some(found) = array(rng) {
                break found;
            }
        };
        let striped = geometry.kind() == LevelKind::Striped;
        let sector_bytes = if one_in(rng, 4) { 4096 } else { 512 };
        let metadata =
            if one_in(rng, 3) { MetadataModel::Tiny } else { MetadataModel::Md(one_of(rng, &VERSIONS)) };
        let metadata = match metadata {
            // 0.90 keeps no sizes of single members and has no room for RAID 0's layout. And it
            // covers eight sectors of 512 bytes, so that there a power cut can tear it: a member
            // more is lost than faults explain (docs/media.md).
            MetadataModel::Md(Version::V090) if striped || sector_bytes == 512 => {
                MetadataModel::Md(Version::V12)
            }
            metadata => metadata,
        };
        let latency = |rng: &mut Rng| {
            let from = one_of(rng, &[1, 50, 50, 400]);
            Duration::from_micros(from)..Duration::from_micros(from + one_of(rng, &[1, 20, 100, 3000]))
        };
        let (read_latency, write_latency, flush_latency) = (latency(rng), latency(rng), latency(rng));
        let drive = DriveConfig {
            size_bytes: 0,
            sector_bytes,
            read_latency,
            write_latency,
            flush_latency,
            volatile_cache: !one_in(rng, 6),
            ..DriveConfig::default()
        };
        let beyond = one_in(rng, 4);
        let victims = victims(rng, &geometry, beyond);
        let latent = !beyond && !striped && one_in(rng, 4);
        let victims = if latent { MemberSet::EMPTY } else { victims };
        let torn_unreadable_ppm = if beyond && one_in(rng, 3) { 200_000 } else { 0 };
        let size = geometry.array_sectors().0;
        let chunk = if params.level == Level::Raid1 { 16 } else { params.chunk.0.max(8) };
        let request_max = one_of(rng, &[1, 8, chunk, chunk * 2, chunk * 4]).min(size);
        let mix = mix(rng);
        let clients = logarithmic(rng, 16) as usize;
        let clean_delay = Duration::from_millis(one_of(rng, &[1, 5, 200]));
        let count = 1 + rng.below(3) as usize;
        let mut bad = Vec::new();
        let mut lifetimes: Vec<_> = (0..count)
            .map(|_| {
                let bad = latent.then_some(&mut bad);
                lifetime(rng, &geometry, &victims, beyond, bad, sector_bytes, clients, clean_delay)
            })
            .collect();
        lifetimes.push(Lifetime {
            requests: 0,
            end: End::Stop,
            faults: Vec::new(),
            withheld: withheld(rng, &victims),
            resynced: false,
        });
        // A second stream: what was drawn above means the same whatever is added here.
        let rng2 = &mut Rng::new(seed ^ 0x0bad_5ec7);
        let redundant = geometry.redundancy() > 0;
        let areas = matches!(metadata, MetadataModel::Md(version) if md::has_areas(version));
        let operated = redundant && !one_in(rng2, 3) && (areas || metadata == MetadataModel::Tiny);
        let spares = if operated { rng2.below(3) as usize } else { 0 };
        if operated {
            for life in lifetimes.iter_mut().filter(|life| life.requests > 0) {
                operate(rng2, &geometry, &victims, spares, life);
            }
        }
        // What a crash left is as often made good by the array itself as by another program.
        lifetimes.iter_mut().for_each(|life| life.resynced &= one_in(rng2, 2));
        // A third one.
        let rng3 = &mut Rng::new(seed ^ 0x0a5c_ab1e);
        if redundant && one_in(rng3, 3) {
            for life in lifetimes.iter_mut().filter(|life| life.requests > 0) {
                let after = Duration::from_micros(logarithmic(rng3, 60_000));
                life.faults.push((after, InjectedFault::Ask(job(rng3, &geometry))));
            }
        }
        let silent = if redundant && one_in(rng3, 3) { 1 + rng3.below(3) as usize } else { 0 };
        let region = (redundant && rng2.coin()).then(|| one_of(rng2, &[8, 8, 16, 64, 256]));
        let log = areas && params.level == Level::Raid5 && params.raid_disks >= 3 && rng2.coin();
        // A fourth one.
        let rng4 = &mut Rng::new(seed ^ 0x5e91_e4ce);
        let readers = if one_in(rng4, 3) { 1 + rng4.below(2) as usize } else { 0 };
        let part_bytes = one_of(rng4, &[4096, 4096, 16384]);
        let read_deadline = Duration::from_micros(one_of(rng2, &[300, 5_000, 2_000_000, 2_000_000]));
        // A fifth one.
        let rng5 = &mut Rng::new(seed ^ 0x7475_726e);
        if redundant && areas && !log && one_in(rng5, 3) {
            for life in lifetimes.iter_mut().filter(|life| life.requests > 0) {
                turn(rng5, life);
            }
        }
        Scenario {
            seed,
            metadata,
            drive,
            cores: 1 + rng.below(3) as usize,
            stripes_active_max: one_of(rng, &[2, 2, 3, 8, 256]),
            clean_delay,
            // Where latent errors are spread over members, failing a member for them would be one
            // loss too many.
            read_errors_max: if latent { u32::MAX / 2 } else { one_of(rng, &[0, 20, 20]) },
            read_deadline,
            slow_jobs: one_in(&mut Rng::new(seed ^ 0xa_3260_30b5), 2),
            region: if !log && (areas || metadata == MetadataModel::Tiny) { region } else { None },
            log,
            bad_entries_max: match metadata {
                MetadataModel::Tiny if rng2.coin() => tiny::BAD_ENTRIES_MAX,
                MetadataModel::Md(_) if areas && rng2.coin() => 512,
                _ => 0,
            },
            spares,
            clients,
            readers,
            part_bytes,
            request_max,
            reach: if one_in(rng, 3) { size } else { one_of(rng, &[chunk, chunk * 3, chunk * 8]).min(size) },
            mix,
            torn_unreadable_ppm,
            no_write_zeroes: one_in(rng, 4),
            victims,
            remote: MemberSet::EMPTY,
            silent,
            beyond,
            lifetimes,
            params,
        }
    }
}

fn array(rng: &mut Rng) -> Option<(Params, Geometry)> {
    use Level::{Linear, Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
    let level = one_of(
        rng,
        &[
            Linear, Raid0, Raid1, Raid1, Raid4, Raid5, Raid5, Raid5, Raid6, Raid6, Raid6, Raid10, Raid10,
            Raid10,
        ],
    );
    let raid_disks = 2 + logarithmic(rng, 7) as u32 - 1;
    let chunk = one_of(rng, &[8, 8, 8, 8, 16, 16, 32, 64, 128]);
    let layout = match level {
        Raid0 => 1 + rng.below(2) as u32,
        Raid5 => rng.below(6) as u32,
        Raid6 => one_of(rng, &RAID6_LAYOUTS),
        Raid10 => one_of(rng, &RAID10_LAYOUTS),
        _ => 0,
    };
    let rows = 1 + rng.below(5);
    let component = match level {
        // Long enough for two of the ranges that mirrors without chunks deal out to cores.
        Raid1 if one_in(rng, 24) => 2048 + 64,
        Raid1 => 8 * (2 + rng.below(24)),
        _ => (chunk * rows).max(SIZE_MIN),
    };
    let member_sizes = (0..raid_disks).map(|_| Sector((chunk * (1 + rng.below(4))).max(SIZE_MIN))).collect();
    let params = Params {
        level,
        layout,
        chunk: Sector(if level == Raid1 { 0 } else { chunk }),
        raid_disks,
        component_size: Sector(component),
        member_sizes,
    };
    let geometry = Geometry::new(&params).ok()?;
    (geometry.hazard().is_none()).then_some((params, geometry))
}

/// Members that faults may hit: within redundancy unless `beyond`.
fn victims(rng: &mut Rng, geometry: &Geometry, beyond: bool) -> MemberSet {
    let members = geometry.raid_disks() as u64;
    let mut victims = MemberSet::EMPTY;
    let wanted = match beyond {
        true => 1 + rng.below(3),
        false => rng.below(geometry.redundancy() as u64 + 2),
    };
    for _ in 0..wanted {
        let mut more = victims;
        more.insert(MemberIx(rng.below(members) as u16));
        if beyond || geometry.survives(&more) {
            victims = more;
        }
    }
    victims
}

fn mix(rng: &mut Rng) -> Mix {
    let mut weight = |options: &[u64]| one_of(rng, options);
    Mix {
        read: weight(&[0, 2, 10]),
        write: weight(&[5, 10, 20]),
        unaligned: weight(&[0, 0, 0, 1]),
        flush: weight(&[0, 1, 3]),
        discard: weight(&[0, 0, 0, 1]),
        zero: weight(&[0, 0, 0, 1]),
        pause: weight(&[0, 0, 1, 3]),
        forced_percent: weight(&[0, 0, 10, 50, 100]),
    }
}

#[expect(clippy::too_many_arguments, reason = "all of it is needed to choose")]
fn lifetime(
    rng: &mut Rng,
    geometry: &Geometry,
    victims: &MemberSet,
    beyond: bool,
    latent: Option<&mut Vec<(MemberIx, u64)>>,
    sector_bytes: u32,
    clients: usize,
    clean_delay: Duration,
) -> Lifetime {
    let requests = logarithmic(rng, 24) as usize;
    let operations = (clients * requests * 4) as u64 + 20;
    let moment = |rng: &mut Rng| {
        Duration::from_micros(logarithmic(rng, 40_000)) + Duration::from_micros(rng.below(200))
    };
    let mut faults = Vec::new();
    for slot in victims.iter() {
        if one_in(rng, 3) {
            continue;
        }
        let fault = match rng.below(if beyond { 6 } else { 7 }) {
            0 | 1 => InjectedFault::Gone(slot),
            2 => InjectedFault::GoneAfterOps(slot, logarithmic(rng, operations)),
            3 => InjectedFault::FailWrites(slot, 1 + rng.below(2)),
            4 => InjectedFault::FailFlush(slot),
            5 => InjectedFault::FailReads(slot, 1 + rng.below(3)),
            _ => InjectedFault::Operator(slot),
        };
        faults.push((moment(rng), fault));
    }
    if let Some(bad) = latent {
        let new = latent_sectors(rng, geometry, sector_bytes, bad);
        if !new.is_empty() {
            faults.push((if rng.coin() { Duration::ZERO } else { moment(rng) }, InjectedFault::Latent(new)));
        }
    }
    if one_in(rng, 8) {
        let slot = MemberIx(rng.below(geometry.raid_disks() as u64) as u16);
        let fault = match rng.coin() {
            true => InjectedFault::Stall(slot, moment(rng)),
            false => InjectedFault::Slow(slot, 2 + rng.below(20) as u32),
        };
        faults.push((moment(rng), fault));
    }
    let end = match rng.below(8) {
        0 | 1 => End::Stop,
        2 => End::Kill(moment(rng)),
        3 => End::CutAfter(moment(rng)),
        // Around the moment when an idle array is recorded clean.
        4 => End::CutAfter(clean_delay + moment(rng)),
        _ => End::CutAfterOps(logarithmic(rng, operations * 2)),
    };
    Lifetime { requests, end, faults, withheld: withheld(rng, victims), resynced: one_in(rng, 3) }
}

/// What an operator does in a lifetime: takes drives back, adds spares, replaces members, removes
/// failed ones.
fn operate(rng: &mut Rng, geometry: &Geometry, victims: &MemberSet, spares: usize, life: &mut Lifetime) {
    let slots = geometry.raid_disks() as u64;
    let moment = |rng: &mut Rng| Duration::from_micros(logarithmic(rng, 60_000));
    for slot in victims.iter() {
        for _ in 0..rng.below(3) {
            let fault = match rng.below(4) {
                0 | 1 => InjectedFault::Return(slot),
                2 if spares > 0 => {
                    InjectedFault::Spare(slot, MemberIx((slots + rng.below(spares as u64)) as u16))
                }
                _ => InjectedFault::Remove(slot),
            };
            life.faults.push((moment(rng), fault));
        }
    }
    if spares > 0 && rng.coin() {
        let slot = MemberIx(rng.below(slots) as u16);
        let spare = MemberIx((slots + rng.below(spares as u64)) as u16);
        life.faults.push((moment(rng), InjectedFault::Replace(slot, spare)));
        if rng.coin() {
            life.faults.push((moment(rng), InjectedFault::Remove(MemberIx(slot.0 + slots as u16))));
        }
    }
}

/// A bitmap comes and goes.
fn turn(rng: &mut Rng, life: &mut Lifetime) {
    for _ in 0..1 + rng.below(4) {
        let region = (!one_in(rng, 3)).then(|| one_of(rng, &[8, 8, 16, 64]));
        life.faults.push((Duration::from_micros(logarithmic(rng, 60_000)), InjectedFault::Turn(region)));
    }
}

/// A check, or a repair from any source that the array has.
fn job(rng: &mut Rng, geometry: &Geometry) -> Job {
    if rng.coin() {
        return Job::Check { range: None };
    }
    let slot = MemberIx(rng.below(geometry.raid_disks() as u64) as u16);
    let source = match geometry.level() {
        Level::Raid6 if rng.coin() => Some(RepairSource::Raid6Culprit),
        Level::Raid6 => Some(RepairSource::ParityFromData),
        Level::Raid1 | Level::Raid10 if geometry.redundancy() < 2 || rng.coin() => {
            Some(RepairSource::CopyFrom(slot))
        }
        _ => None,
    };
    Job::Repair { range: None, source }
}

/// Victims that stay away.
fn withheld(rng: &mut Rng, victims: &MemberSet) -> MemberSet {
    victims.iter().filter(|_| one_in(rng, 4)).collect()
}

/// More sectors that may be lost together with those in `bad`, where they are added: in no row (or
/// copied sector) more than redundancy covers.
fn latent_sectors(
    rng: &mut Rng,
    geometry: &Geometry,
    sector_bytes: u32,
    bad: &mut Vec<(MemberIx, u64)>,
) -> Vec<(MemberIx, u64)> {
    let unit = u64::from(sector_bytes) / 512;
    let known = bad.len();
    for _ in 0..=rng.below(3) {
        let slot = MemberIx(rng.below(geometry.raid_disks() as u64) as u16);
        let sectors = geometry.member_sectors(slot).0 / unit;
        if sectors == 0 {
            continue;
        }
        bad.push((slot, rng.below(sectors)));
        if !recoverable(geometry, bad, unit) {
            bad.pop();
        }
    }
    bad[known..].to_vec()
}

/// Whether every sector can be had without those in `bad`.
fn recoverable(geometry: &Geometry, bad: &[(MemberIx, u64)], unit: u64) -> bool {
    let lost = |member: MemberIx, sector: u64| bad.contains(&(member, sector / unit));
    match geometry.kind() {
        LevelKind::Striped => false,
        LevelKind::Parity => bad
            .iter()
            .all(|(_, at)| bad.iter().filter(|(_, other)| other == at).count() <= geometry.redundancy()),
        LevelKind::Mirrored => (0..geometry.array_sectors().0)
            .all(|lba| geometry.copies(Sector(lba)).iter().any(|copy| !lost(copy.member, copy.sector.0))),
    }
}

/// A random range of at most `max` sectors below `reach`, as often aligned to `unit` sectors as
/// not.
pub(crate) fn range(rng: &mut Rng, reach: u64, max: u64, unit: u64) -> Range<u64> {
    let start = rng.below(reach);
    let len = match rng.below(3) {
        0 => max,
        1 => 1,
        _ => 1 + rng.below(max),
    };
    if rng.coin() {
        let start = start / unit * unit;
        return start..(start + len.next_multiple_of(unit)).min(reach).max(start + 1);
    }
    start..(start + len).min(reach)
}
