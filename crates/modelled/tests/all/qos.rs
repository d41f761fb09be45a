//! Quality of service in virtual time, on models of real drives: exact figures.
//!
//! `cargo test -p wattle-modelled --test all qos:: -- --nocapture` prints them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_drives::Preset;
use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::volume::MapSegment;
use wattle_engine::volume::qos::{QosClient, QosLimits, QosRate, QosRates, QosScope, QosSite, QosUnit};
use wattle_engine::{
    ArrayHandle, ArraySpec, MapSpec, MappedHandle, MemberSpec, Volume, VolumeError, VolumeRef,
};
use wattle_modelled::drive;
use wattle_rt::{Buf, BufMut, Core, CoreIx, Device, Durability, Instant, Rng, SimWorld, WorldConfig};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
const VOLUME_BYTES: u64 = 4 << 30;
/// So much of it is used: simulated drives keep what was written.
const USED_BYTES: u64 = 256 << 20;

/// Volumes side by side on one RAID 5 of four drives, under one site.
pub(super) struct House {
    pub(super) volumes: Vec<VolumeRef>,
    pub(super) array: ArrayHandle,
}

impl House {
    pub(super) async fn build(core: &Core, drives: Vec<Device>, volumes: u64) -> House {
        let component_size = Sector(8 << 21);
        let geometry = Geometry::new(&Params {
            level: Level::Raid5,
            layout: 2,
            chunk: Sector(128),
            raid_disks: drives.len() as u32,
            component_size,
            member_sizes: vec![component_size; drives.len()],
        });
        let members = drives.into_iter().map(|drive| MemberSpec::in_sync(drive, Sector(0))).collect();
        let spec = ArraySpec::new("array", geometry.unwrap(), members);
        let array = ArrayHandle::start(core, spec, Box::new(NoMetadata)).await;
        let (site, mut governed) = (QosSite::new(core.cores()), Vec::new());
        for at in 0..volumes {
            let spec = MapSpec {
                below: vec![array.volume()],
                segments: vec![MapSegment::linear(VOLUME_BYTES, 0, at * VOLUME_BYTES)],
                read_only: false,
            };
            let volume = MappedHandle::start(core, format!("volume {at}"), spec).await.unwrap();
            governed.push(site.govern(volume.volume()));
        }
        House { volumes: governed, array }
    }

    pub(super) async fn set(&self, core: &Core, volume: usize, limits: QosLimits) {
        self.volumes[volume].governed().unwrap().set(core, limits).await;
    }

    /// A load that begins now, on a core.
    pub(super) fn load(
        &self,
        core: &Core,
        on: usize,
        volume: usize,
        load: Load,
    ) -> impl Future<Output = Seen> + use<> {
        let volume = self.volumes[volume].clone();
        let work = core.call(CoreIx(on), move |core| async move {
            let opened = volume.open(&core).unwrap();
            let opened = if load.client { opened.for_client(QosClient::new()) } else { opened };
            let seen = Rc::new(RefCell::default());
            let begin = |task| core.spawn(client(core.clone(), opened.clone(), load, task, seen.clone()));
            for task in (0..load.depth).map(begin).collect::<Vec<_>>() {
                task.await;
            }
            seen.take()
        });
        core.spawn(work)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Load {
    depth: u64,
    bytes: u64,
    writes: bool,
    time: Duration,
    /// A client of its own.
    client: bool,
}

pub(super) const fn reads(depth: u64, time: Duration) -> Load {
    Load { depth, bytes: 4096, writes: false, time, client: false }
}

const fn writes(depth: u64, time: Duration) -> Load {
    Load { writes: true, ..reads(depth, time) }
}

/// How many requests were answered in each millisecond; of loads that are not deep, when each was
/// and how long it took.
#[derive(Debug, Default)]
pub(super) struct Seen {
    by_millisecond: Vec<u32>,
    pub(super) each: Vec<(Instant, Duration)>,
}

impl Seen {
    fn answered(&mut self, load: &Load, at: Instant, took: Duration) {
        let place = (at.as_nanos() / 1_000_000) as usize;
        if self.by_millisecond.len() <= place {
            self.by_millisecond.resize(place + 1, 0);
        }
        self.by_millisecond[place] += 1;
        if load.depth <= 64 {
            self.each.push((at, took));
        }
    }

    fn per_second(&self, from: Instant, to: Instant) -> f64 {
        let place = |at: Instant| ((at.as_nanos() / 1_000_000) as usize).min(self.by_millisecond.len());
        let within: u32 = self.by_millisecond[place(from)..place(to)].iter().sum();
        f64::from(within) / (to - from).as_secs_f64()
    }

    pub(super) fn p99(&self, from: Instant) -> Duration {
        let mut took: Vec<_> =
            self.each.iter().filter(|(at, _)| *at >= from).map(|(_, took)| *took).collect();
        took.sort_unstable();
        took[took.len() * 99 / 100]
    }
}

async fn client(core: Core, volume: Volume, load: Load, task: u64, seen: Rc<RefCell<Seen>>) {
    let mut rng = Rng::new(7 + task + 1000 * load.depth + u64::from(load.writes));
    let end = core.now() + load.time;
    let data = BufMut::zeroed(load.bytes as usize).freeze();
    while core.now() < end {
        let (at, began) = (rng.below(USED_BYTES / load.bytes) * load.bytes, core.now());
        let result = match load.writes {
            true => volume.write(at, data.clone(), Durability::Cached).await,
            false => volume.read(at, BufMut::alloc(load.bytes as usize)).await.0,
        };
        result.unwrap();
        seen.borrow_mut().answered(&load, core.now(), core.now() - began);
    }
}

fn limits(rates: &[(QosUnit, QosScope, u64)]) -> QosRates {
    let mut set = QosRates::default();
    for (unit, scope, rate) in rates {
        set.0[QosRate { unit: *unit, scope: *scope }.index()] = Some(*rate);
    }
    set
}

fn iops(rate: u64) -> QosLimits {
    QosLimits { volume: limits(&[(QosUnit::Requests, QosScope::All, rate)]), ..QosLimits::default() }
}

pub(super) fn on_drives<T: 'static>(
    preset: &str,
    cores: usize,
    run: impl AsyncFnOnce(Core, Vec<Device>) -> T + 'static,
) -> T {
    let mut world = SimWorld::new(WorldConfig { seed: 3, cores, ..WorldConfig::default() });
    let facts = Preset::named(preset).unwrap().drive();
    let drives = (0..4).map(|at| world.add_drive(drive::config(&facts, format!("{preset}-{at}")))).collect();
    world.run(async move |core: Core| run(core, drives).await).expect_done()
}

fn close(what: &str, is: f64, should: f64, part: f64) {
    eprintln!("{what}: {is:.1}, should be {should:.1}");
    assert!((is / should - 1.0).abs() <= part, "{what}: {is} instead of {should}");
}

#[test]
fn a_limit_is_kept_exactly_over_all_cores() {
    on_drives("nvme", 2, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        for rate in [100, 5_000, 20_000] {
            house.set(&core, 0, iops(rate)).await;
            let from = core.now() + SECOND;
            let one = house.load(&core, 0, 0, reads(32, 4 * SECOND));
            let other = house.load(&core, 1, 0, reads(32, 4 * SECOND));
            let (one, other) = (one.await, other.await);
            let (to, both) = (from + 3 * SECOND, |seen: &Seen, to| seen.per_second(from, to));
            close("requests a second", both(&one, to) + both(&other, to), rate as f64, 0.02);
            close("of these on core 0", both(&one, to), rate as f64 / 2.0, 0.1);
        }
    });
}

#[test]
fn bandwidth_reads_and_writes_have_limits_of_their_own() {
    on_drives("nvme", 1, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        let rates = [(QosUnit::Bytes, QosScope::Reads, 50 << 20), (QosUnit::Requests, QosScope::Writes, 300)];
        house.set(&core, 0, QosLimits { volume: limits(&rates), ..QosLimits::default() }).await;
        let (from, to) = (core.now() + SECOND, core.now() + 4 * SECOND);
        let read = house.load(&core, 0, 0, Load { bytes: 64 << 10, ..reads(16, 4 * SECOND) });
        let written = house.load(&core, 0, 0, writes(16, 4 * SECOND));
        close("reads of 64 KiB", read.await.per_second(from, to), 800.0, 0.02);
        close("writes", written.await.per_second(from, to), 300.0, 0.02);
    });
}

#[test]
fn a_limit_of_writes_holds_back_no_reads_by_way_of_a_limit_of_all() {
    let run = |rates: &'static [(QosUnit, QosScope, u64)]| {
        on_drives("nvme", 1, async move |core, drives| {
            let house = House::build(&core, drives, 1).await;
            house.set(&core, 0, QosLimits { volume: limits(rates), ..QosLimits::default() }).await;
            let written = house.load(&core, 0, 0, Load { bytes: 4 << 20, ..writes(2, 10 * SECOND) });
            let read = house.load(&core, 0, 0, reads(1, 10 * SECOND)).await;
            assert!(written.await.each.len() >= 3);
            read.p99(Instant::START).as_secs_f64()
        })
    };
    const WRITES: (QosUnit, QosScope, u64) = (QosUnit::Bytes, QosScope::Writes, 1 << 20);
    let alone = run(&[WRITES]);
    for all in [(QosUnit::Requests, QosScope::All, 100_000), (QosUnit::Bytes, QosScope::All, 1 << 30)] {
        let all: &'static [_] = Box::leak(Box::new([all, WRITES]));
        close("p99 of reads", run(all), alone, 0.05);
    }
}

#[test]
fn each_client_of_a_volume_has_its_own_limit() {
    on_drives("nvme", 2, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        let client = limits(&[(QosUnit::Requests, QosScope::All, 1000)]);
        house.set(&core, 0, QosLimits { client, ..iops(2500) }).await;
        let (from, to) = (core.now() + SECOND, core.now() + 4 * SECOND);
        let of = |depth| Load { client: true, ..reads(depth, 4 * SECOND) };
        let (one, other) = (house.load(&core, 0, 0, of(8)), house.load(&core, 1, 0, of(64)));
        let (one, other) = (one.await, other.await);
        close("a client", one.per_second(from, to), 1000.0, 0.02);
        close("a greedy one", other.per_second(from, to), 1000.0, 0.02);
        let (from, to) = (core.now() + SECOND, core.now() + 4 * SECOND);
        let clients: Vec<_> = (0..5).map(|at| house.load(&core, at % 2, 0, of(8))).collect();
        let mut sum = 0.0;
        for client in clients {
            sum += client.await.per_second(from, to);
        }
        close("five of them", sum, 2500.0, 0.02);
    });
}

#[test]
fn a_burst_is_what_was_not_used_and_no_more() {
    on_drives("nvme", 1, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        house.set(&core, 0, QosLimits { burst: 2 * SECOND, ..iops(1000) }).await;
        for _ in 0..2 {
            core.sleep(5 * SECOND).await;
            let from = core.now();
            let seen = house.load(&core, 0, 0, reads(64, 3 * SECOND)).await;
            let within = seen.each.iter().filter(|(at, _)| *at <= from + SECOND / 2).count();
            assert!((2490..=2510).contains(&within), "{within} in half a second");
            close("afterwards", seen.per_second(from + SECOND, from + 3 * SECOND), 1000.0, 0.01);
        }
    });
}

#[test]
fn a_limit_that_is_changed_holds_at_once_for_what_waits() {
    on_drives("nvme", 1, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        house.set(&core, 0, iops(1)).await;
        let began = core.now();
        let seen = house.load(&core, 0, 0, reads(32, 3 * SECOND));
        core.sleep(SECOND).await;
        let status = house.volumes[0].governed().unwrap().status(&core).await;
        assert_eq!(status.totals.waiting_limited, 32, "one went, and its client asked again");
        house.set(&core, 0, iops(1000)).await;
        core.sleep(SECOND).await;
        house.set(&core, 0, QosLimits::default()).await;
        let (seen, at) = (seen.await, |seconds| began + seconds * SECOND);
        let slow = seen.each.iter().filter(|(when, _)| *when < at(1)).count();
        assert!(slow <= 2, "{slow}");
        close("raised", seen.per_second(at(1), at(2)), 1000.0, 0.11);
        let free = seen.per_second(at(2), at(3));
        assert!(free > 50_000.0, "removed: {free}");
        let totals = house.volumes[0].governed().unwrap().status(&core).await.totals;
        assert_eq!(totals.waiting_limited, 0);
        assert!(totals.limited > 900 && totals.limited_time > 40 * SECOND, "{totals:?}");
    });
}

#[test]
fn a_volume_stops_while_requests_wait_and_all_of_them_are_answered() {
    on_drives("nvme", 2, async |core, drives| {
        let house = House::build(&core, drives, 2).await;
        house.set(&core, 0, iops(1)).await;
        let mut waiting = Vec::new();
        for at in 0..64 {
            let volume = house.volumes[0].clone();
            let write = core.call(CoreIx(at % 2), move |core| async move {
                let volume = volume.open(&core)?;
                volume.write(at as u64 * 4096, Buf::copy_of(&[7; 4096]), Durability::Cached).await
            });
            waiting.push(core.spawn(write));
        }
        core.sleep(100 * MS).await;
        let began = core.now();
        house.volumes[0].governed().unwrap().release(&core).await;
        let mut done = 0;
        for write in waiting {
            done += usize::from(write.await == Ok(()));
        }
        assert_eq!(done, 64, "what was begun is answered");
        assert!(core.now() - began < SECOND, "without waiting for the limit");
        house.volumes[0].stop(&core).await.unwrap();
        house.volumes[0].governed().unwrap().end(&core).await;
        assert!(matches!(house.volumes[0].open(&core).map(drop), Err(VolumeError::Stopped)));
        // The other one goes on, without a neighbour.
        assert!(!house.load(&core, 0, 1, reads(4, 10 * MS)).await.each.is_empty());
        house.volumes[1].stop(&core).await.unwrap();
        house.array.stop(&core).await.unwrap();
    });
}

#[test]
fn many_sites_are_in_the_way_of_no_array() {
    on_drives("nvme", 2, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        for _ in 0..8 {
            let governed = QosSite::new(core.cores()).govern(house.array.volume());
            let volume = governed.open(&core).unwrap();
            // The array is recorded clean in between, and its home is asked again.
            core.sleep(SECOND).await;
            volume.write(0, Buf::copy_of(&[7; 4096]), Durability::Cached).await.unwrap();
            volume.flush().await.unwrap();
        }
    });
}

#[test]
fn a_task_that_goes_while_it_waits_takes_nothing_with_it() {
    on_drives("nvme", 1, async |core, drives| {
        let house = House::build(&core, drives, 2).await;
        house.set(&core, 0, iops(10)).await;
        let noise = house.load(&core, 0, 1, reads(256, 2 * SECOND));
        for _ in 0..50 {
            let volume = house.volumes[0].open(&core).unwrap();
            let _ = wattle_rt::race(volume.read(0, BufMut::alloc(4096)), core.sleep(3 * MS)).await;
            let volume = house.volumes[1].open(&core).unwrap();
            let _ = wattle_rt::race(volume.read(0, BufMut::alloc(4096)), core.yield_now()).await;
        }
        noise.await;
        house.set(&core, 0, QosLimits::default()).await;
        for volume in &house.volumes {
            let totals = volume.governed().unwrap().status(&core).await.totals;
            assert_eq!((totals.waiting_limited, totals.waiting_shared), (0, 0));
        }
        assert!(house.load(&core, 0, 0, reads(4, 100 * MS)).await.each.len() > 100);
    });
}

/// A client that times out and connects again keeps others out no longer than it is there.
#[test]
fn a_request_that_goes_while_it_waits_for_a_limit_is_not_paid_for() {
    const LARGE: usize = 4 << 20;
    on_drives("nvme", 2, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        let rates = [(QosUnit::Bytes, QosScope::All, 1 << 20), (QosUnit::Requests, QosScope::All, 1000)];
        house.set(&core, 0, QosLimits { volume: limits(&rates), ..QosLimits::default() }).await;
        let volume = house.volumes[0].open(&core).unwrap();
        let large = || volume.write(0, BufMut::zeroed(LARGE).freeze(), Durability::Cached);
        large().await.unwrap();
        let began = core.now();
        for _ in 0..5 {
            let attempts: Vec<_> = (0..2)
                .map(|on| {
                    let volume = house.volumes[0].clone();
                    core.spawn(core.call(CoreIx(on), move |core| async move {
                        let volume = volume.open(&core).unwrap();
                        let write = volume.write(0, BufMut::zeroed(LARGE).freeze(), Durability::Cached);
                        matches!(
                            wattle_rt::race(write, core.sleep(300 * MS)).await,
                            wattle_rt::Either::First(_)
                        )
                    }))
                })
                .collect();
            for attempt in attempts {
                assert!(!attempt.await, "it waits for the first one");
            }
        }
        assert!(core.now() - began < 2 * SECOND);
        volume.write(0, BufMut::zeroed(4096).freeze(), Durability::Cached).await.unwrap();
        close("seconds", (core.now() - began).as_secs_f64(), 3.9, 0.02);
        // The limit holds as before.
        large().await.unwrap();
        let began = core.now();
        large().await.unwrap();
        close("seconds", (core.now() - began).as_secs_f64(), 4.0, 0.02);
    });
}

#[test]
fn a_weight_that_is_set_forgives_no_debt() {
    on_drives("nvme", 1, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        let rates =
            QosLimits { volume: limits(&[(QosUnit::Bytes, QosScope::All, 1 << 20)]), ..QosLimits::default() };
        house.set(&core, 0, rates).await;
        let volume = house.volumes[0].open(&core).unwrap();
        let large = || volume.write(0, BufMut::zeroed(4 << 20).freeze(), Durability::Cached);
        large().await.unwrap();
        let began = core.now();
        let sets = async {
            for weight in [101, 102, 103] {
                core.sleep(SECOND).await;
                house.set(&core, 0, QosLimits { weight, ..rates }).await;
            }
            std::future::pending::<()>().await;
        };
        wattle_rt::race(large(), sets).await;
        close("seconds", (core.now() - began).as_secs_f64(), 4.0, 0.02);
    });
}

/// Two volumes that both ask for more than there is.
fn shares(preset: &'static str, weights: (u32, u32), on: usize, seconds: u32) -> (f64, f64) {
    on_drives(preset, 2, async move |core, drives| {
        let house = House::build(&core, drives, 2).await;
        house.set(&core, 0, QosLimits { weight: weights.0, ..QosLimits::default() }).await;
        house.set(&core, 1, QosLimits { weight: weights.1, ..QosLimits::default() }).await;
        let (from, to) = (core.now() + SECOND, core.now() + seconds * SECOND);
        let one = house.load(&core, 0, 0, writes(256, seconds * SECOND));
        let other = house.load(&core, on, 1, writes(256, seconds * SECOND));
        (one.await.per_second(from, to), other.await.per_second(from, to))
    })
}

#[test]
fn volumes_on_one_core_share_by_weight() {
    for (one, other) in [(100, 100), (300, 100), (100, 1000)] {
        let (first, second) = shares("sata-ssd", (one, other), 0, 3);
        close("share", first / second, f64::from(one) / f64::from(other), 0.05);
    }
}

#[test]
fn volumes_on_two_cores_share_by_weight() {
    for (one, other) in [(100, 100), (300, 100)] {
        let (first, second) = shares("sata-ssd", (one, other), 1, 3);
        close("share over cores", first / second, f64::from(one) / f64::from(other), 0.2);
    }
}

/// The p99 of a volume with one read at a time, alone and beside a neighbour with 256 writes under
/// way, with a goal of an eighth above what it has alone; and what the neighbour has beside it and
/// alone.
fn quiet(preset: &'static str, on: usize, noise: Load) -> [f64; 4] {
    on_drives(preset, 2, async move |core, drives| {
        let house = House::build(&core, drives, 2).await;
        let time = noise.time;
        let alone = house.load(&core, 0, 0, reads(1, time)).await.p99(Instant::START);
        core.sleep(2 * SECOND).await;
        let (from, to) = (core.now() + time / 2, core.now() + time);
        let free = house.load(&core, on, 1, noise).await.per_second(from, to);
        core.sleep(2 * SECOND).await;
        house.set(&core, 0, QosLimits { goal: Some(alone * 9 / 8), ..QosLimits::default() }).await;
        let (from, to) = (core.now() + time / 2, core.now() + time);
        let noisy = house.load(&core, on, 1, noise);
        let beside = house.load(&core, 0, 0, reads(1, time)).await.p99(from);
        let left = noisy.await.per_second(from, to);
        let depth = house.volumes[0].governed().unwrap().status(&core).await.depth_thousandths;
        eprintln!(
            "{preset}: p99 {alone:?} alone, {beside:?} beside; neighbour {left:.0} of {free:.0} a second, depth {depth:?}"
        );
        [alone.as_secs_f64(), beside.as_secs_f64(), left, free]
    })
}

#[test]
fn a_noisy_neighbour_moves_the_p99_by_less_than_a_fifth() {
    for (preset, on, noise) in [
        ("sata-ssd", 0, writes(256, 2 * SECOND)),
        ("sata-ssd", 1, writes(256, 2 * SECOND)),
        ("x25m", 1, reads(256, 3 * SECOND)),
        ("sata7200", 1, reads(256, 400 * SECOND)),
    ] {
        let [alone, beside, left, _] = quiet(preset, on, noise);
        assert!(beside <= alone * 1.2, "{preset}: {beside} beside, {alone} alone");
        assert!(left > 0.0);
    }
}

#[test]
fn a_volume_alone_has_all_there_is() {
    for loads in [1, 2] {
        let run = |volumes| {
            on_drives("nvme", 2, async move |core, drives| {
                let house = House::build(&core, drives, volumes).await;
                if volumes > 1 {
                    house.set(&core, 1, QosLimits { weight: 101, ..QosLimits::default() }).await;
                }
                let (from, to) = (core.now() + 100 * MS, core.now() + 300 * MS);
                let loads: Vec<_> =
                    (0..loads).map(|on| house.load(&core, on, 0, reads(1024, 300 * MS))).collect();
                let mut all = 0.0;
                for load in loads {
                    all += load.await.per_second(from, to);
                }
                let held = house.volumes[0].governed().unwrap().status(&core).await.totals.shared;
                assert_eq!(held, 0, "nothing waits for a volume that is not used");
                all
            })
        };
        close("with an idle neighbour", run(2), run(1), 0.01);
    }
}

#[test]
fn volumes_of_which_nothing_is_set_have_all_there_is() {
    let run = |volumes: usize| {
        on_drives("nvme", 2, async move |core, drives| {
            let house = House::build(&core, drives, volumes as u64).await;
            let (from, to) = (core.now() + SECOND, core.now() + 3 * SECOND);
            let load = reads(1024 / volumes as u64, 3 * SECOND);
            let loads: Vec<_> = (0..volumes).map(|at| house.load(&core, at, at, load)).collect();
            let mut all = 0.0;
            for load in loads {
                all += load.await.per_second(from, to);
            }
            all
        })
    };
    close("of two volumes together", run(2), run(1), 0.02);
}
