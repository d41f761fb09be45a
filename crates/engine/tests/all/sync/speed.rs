//! How fast, in virtual time: what is late is late for a reason.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberState, Volume};
use wattle_rt::{BufMut, Core, DriveConfig, Durability, Rng, SimWorld, WorldConfig};

use crate::support::case::{Case, case};
use crate::support::drives::drives;
use crate::support::members::in_sync;

const BANDWIDTH: u64 = 500_000_000;

/// On NVMe-like drives whose contents do not matter.
fn array(case: Case, member_sectors: u64, cores: usize) -> (SimWorld, ArraySpec) {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores, ..WorldConfig::default() });
    world.keep_order();
    let latency = Duration::from_micros(80)..Duration::from_micros(80);
    let config = DriveConfig {
        size_bytes: member_sectors * 512,
        read_latency: latency.clone(),
        write_latency: latency.clone(),
        flush_latency: latency,
        read_bytes_per_second: BANDWIDTH,
        write_bytes_per_second: BANDWIDTH,
        kept_bytes: 0..0,
        ..DriveConfig::default()
    };
    let drives = drives(&mut world, case.members, &config);
    (world, ArraySpec::new("a", case.geometry(member_sectors), in_sync(&drives, Sector(0), &[])))
}

#[test]
fn a_recovery_and_a_resync_reach_the_members_bandwidth() {
    let cases = [
        (Level::Raid5, 2, 4, 1024),
        (Level::Raid5, 2, 4, 128),
        (Level::Raid6, 2, 6, 1024),
        (Level::Raid6, 2, 6, 128),
        (Level::Raid1, 0, 2, 0),
        (Level::Raid10, 0x102, 4, 1024),
        (Level::Raid10, 0x102, 4, 128),
        (Level::Raid10, 0x201, 4, 128),
    ];
    for (level, layout, members, chunk) in cases {
        let case = case(level, layout, members, chunk);
        for recover in [true, false] {
            let member_bytes: u64 = 256 << 20;
            let (mut world, mut spec) = array(case, member_bytes / 512, 2);
            if recover {
                spec.members[1].state = MemberState::Rebuilding { valid_below: Sector(0) };
            } else {
                spec.synced_below = Sector(0);
            }
            let took = world
                .run(async move |core: Core| {
                    let before = core.now();
                    let array =
                        ArrayHandle::start(&core, spec, Box::new(wattle_engine::metadata::NoMetadata)).await;
                    while array.status(&core).await.last.is_none() {
                        core.sleep(Duration::from_millis(1)).await;
                    }
                    let took = core.now() - before;
                    array.stop(&core).await.expect("it stops");
                    took
                })
                .expect_done();
            // A resync of near copies reads every member once, of far ones too.
            let ideal = member_bytes as f64 / BANDWIDTH as f64;
            let share = ideal / took.as_secs_f64();
            println!("{case:?} recover {recover}: {share:.3} of the bandwidth");
            assert!(share >= 0.95, "{case:?} recover {recover}: {share:.3} of the bandwidth, {took:?}");
        }
    }
}

#[test]
fn the_last_copy_of_a_mirror_is_not_read_for_a_resync() {
    for (members, reads) in [(2, false), (3, true)] {
        let (mut world, mut spec) = array(case(Level::Raid1, 0, members, 0), (256 << 20) / 512, 2);
        spec.members[0].state = MemberState::Missing;
        spec.synced_below = Sector(0);
        let took = world.run(async move |core: Core| {
            let before = core.now();
            let array = ArrayHandle::start(&core, spec, Box::new(wattle_engine::metadata::NoMetadata)).await;
            while array.status(&core).await.last.is_none() {
                core.sleep(Duration::from_millis(1)).await;
            }
            let took = core.now() - before;
            assert!(array.status(&core).await.synced_below > Sector(0), "it counts as in sync");
            array.stop(&core).await.expect("it stops");
            took
        });
        let took = took.expect_done();
        assert_eq!(took > Duration::from_millis(400), reads, "{members} members: {took:?}");
    }
}

/// Requests of one block, one at a time, for `time`; returns how long each took.
async fn requests(core: Core, volume: Volume, time: Duration, latencies: Rc<RefCell<Vec<Duration>>>) {
    let mut rng = Rng::new(core.now().as_nanos());
    let end = core.now() + time;
    while core.now() < end {
        let at = rng.below(volume.size_bytes() / 4096) * 4096;
        let before = core.now();
        if rng.below(10) < 7 {
            assert_eq!(volume.read(at, BufMut::alloc(4096)).await.0, Ok(()));
        } else {
            assert_eq!(volume.write(at, BufMut::zeroed(4096).freeze(), Durability::Cached).await, Ok(()));
        }
        latencies.borrow_mut().push(core.now() - before);
        core.sleep(Duration::from_micros(200 + rng.below(400))).await;
    }
}

/// The latency that 99 of 100 requests keep, and the bytes of a member that a recovery went over
/// meanwhile.
fn beside(case: Case, recover: bool) -> (Duration, f64) {
    let (mut world, mut spec) = array(case, (8 << 30) / 512, 1);
    if recover {
        spec.members[1].state = MemberState::Rebuilding { valid_below: Sector(0) };
    }
    world
        .run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(wattle_engine::metadata::NoMetadata)).await;
            let latencies = Rc::new(RefCell::new(Vec::new()));
            core.sleep(Duration::from_millis(300)).await;
            let position =
                |status: wattle_engine::ArrayStatus| status.sync.map_or(0, |sync| sync.position.0 * 512);
            let volume = array.volume().open(&core).expect("it runs");
            // The first moments are those in which the job notices.
            requests(core.clone(), volume.clone(), Duration::from_millis(400), Rc::default()).await;
            let before = position(array.status(&core).await);
            let time = Duration::from_secs(2);
            let tasks: Vec<_> = (0..2)
                .map(|_| core.spawn(requests(core.clone(), volume.clone(), time, latencies.clone())))
                .collect();
            for task in tasks {
                task.await;
            }
            let done = position(array.status(&core).await) - before;
            array.stop(&core).await.expect("it stops");
            let mut all = latencies.borrow().clone();
            all.sort_unstable();
            (all[all.len() * 99 / 100], done as f64 / time.as_secs_f64() / BANDWIDTH as f64)
        })
        .expect_done()
}

#[test]
fn clients_and_a_recovery_share_the_members() {
    for case in [
        case(Level::Raid1, 0, 2, 0),
        case(Level::Raid10, 0x102, 4, 1024),
        case(Level::Raid5, 2, 4, 128),
        case(Level::Raid5, 2, 4, 1024),
        case(Level::Raid6, 2, 6, 128),
    ] {
        // A degraded array alone is what a recovering one is compared to.
        let (alone, _) = {
            let mut calm = case;
            calm.members = case.members;
            beside_frozen(calm)
        };
        let (p99, share) = beside(case, true);
        println!("{case:?}: p99 {alone:?} alone, {p99:?} beside a recovery at {share:.2} of the bandwidth");
        assert!(share >= 0.30, "{case:?}: {share:.2} of the bandwidth");
        assert!(p99 <= 2 * alone, "{case:?}: {p99:?}, alone {alone:?}");
    }
}

/// As `beside`, with the recovery frozen.
fn beside_frozen(case: Case) -> (Duration, f64) {
    let (mut world, mut spec) = array(case, (8 << 30) / 512, 1);
    spec.members[1].state = MemberState::Rebuilding { valid_below: Sector(0) };
    spec.tuning.sync.frozen = true;
    world
        .run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(wattle_engine::metadata::NoMetadata)).await;
            let latencies = Rc::new(RefCell::new(Vec::new()));
            let volume = array.volume().open(&core).expect("it runs");
            let time = Duration::from_secs(2);
            let tasks: Vec<_> = (0..2)
                .map(|_| core.spawn(requests(core.clone(), volume.clone(), time, latencies.clone())))
                .collect();
            for task in tasks {
                task.await;
            }
            array.stop(&core).await.expect("it stops");
            let mut all = latencies.borrow().clone();
            all.sort_unstable();
            (all[all.len() * 99 / 100], 0.0)
        })
        .expect_done()
}
