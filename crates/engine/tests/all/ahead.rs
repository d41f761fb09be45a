//! What is read ahead of a sequential reader: it comes sooner, and is never what was there
//! before.

use std::time::Duration;

use wattle_engine::CounterTotals;
use wattle_engine::geometry::Level;
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, Job, RepairSource, Volume};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, Device, DriveConfig, Durability, Rng, SimWorld, Unmap, WorldConfig, race,
};

use crate::support::drives::drives;
use crate::support::members::in_sync;
use crate::support::plain::plain;
use crate::support::run::run;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MEMBER_SECTORS: u64 = 16 << 11;

struct Fixture {
    world: SimWorld,
    drives: Vec<Device>,
    level: Level,
}

impl Fixture {
    fn new(level: Level, members: usize) -> Self {
        Self::with(level, members, &DriveConfig::default())
    }

    fn with(level: Level, members: usize, config: &DriveConfig) -> Self {
        let mut world = SimWorld::new(WorldConfig { seed: 11, cores: 2, ..WorldConfig::default() });
        let config = DriveConfig {
            size_bytes: MEMBER_SECTORS * 512,
            read_bytes_per_second: 200 << 20,
            ..config.clone()
        };
        let drives = drives(&mut world, members, &config);
        Self { world, drives, level }
    }

    fn spec(&self) -> ArraySpec {
        let geometry = plain(self.level, self.drives.len(), 128, MEMBER_SECTORS);
        ArraySpec::new("a", geometry, in_sync(&self.drives, Sector(0), &[]))
    }

    /// Runs `test` with the array over the drives.
    fn run(&mut self, test: impl AsyncFnOnce(Core, ArrayHandle, Volume) + 'static) {
        let spec = self.spec();
        run(&mut self.world, spec, async move |core, array, volume| {
            test(core.clone(), array.clone(), volume).await;
            array.stop(&core).await.unwrap();
            assert_eq!(core.ops_in_flight(), 0, "a stopped array leaves nothing behind");
        });
    }
}

const LEVELS: [(Level, usize); 5] =
    [(Level::Raid0, 4), (Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];

async fn read(volume: &Volume, at: u64, len: u64) -> BufMut {
    let (result, buf) = volume.read(at, BufMut::alloc(len as usize)).await;
    assert_eq!(result, Ok(()), "{at}+{len}");
    buf
}

/// Reads in sequence, and asserts that every byte is `byte`.
async fn expect(volume: &Volume, range: std::ops::Range<u64>, len: u64, byte: u8) {
    for at in range.step_by(len as usize) {
        let buf = read(volume, at, len).await;
        assert!(buf.iter().all(|&found| found == byte), "{at}: {} and not {byte}", buf[0]);
    }
}

async fn fill(volume: &Volume, at: u64, len: u64, byte: u8) {
    let buf = Buf::copy_of(&vec![byte; len as usize]);
    volume.write(at, buf, Durability::Cached).await.unwrap();
}

async fn counters(core: &Core, array: &ArrayHandle) -> CounterTotals {
    array.status(core).await.counters
}

/// Runs on the other core.
async fn elsewhere<F, Fut>(core: &Core, array: &ArrayHandle, f: F)
where
    F: FnOnce(Volume) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let handle = array.volume();
    core.call(CoreIx(1), move |core| async move { f(handle.open(&core).unwrap()).await }).await;
}

#[test]
fn what_is_read_in_sequence_comes_sooner_and_is_what_is_there() {
    for (level, members) in LEVELS {
        Fixture::new(level, members).run(async move |core, array, volume| {
            for at in (0..8 * MIB).step_by(MIB as usize) {
                let bytes: Vec<u8> = (at..at + MIB).map(|byte| (byte / 512 * 7 + byte % 251) as u8).collect();
                volume.write(at, Buf::copy_of(&bytes), Durability::Cached).await.unwrap();
            }
            // A sector is not a block of anything, and a stream may begin anywhere.
            for (start, len) in [(0, 4 * KIB), (512, 1536), (3 * KIB, 100 * KIB), (0, 3 * MIB)] {
                let (began, mut at) = (core.now(), start);
                while at + len <= 8 * MIB {
                    let buf = read(&volume, at, len).await;
                    let right = (at..at + len)
                        .zip(&buf[..])
                        .all(|(byte, &found)| found == (byte / 512 * 7 + byte % 251) as u8);
                    assert!(right, "{level:?} {at}+{len}");
                    at += len;
                }
                let seconds = (core.now() - began).as_secs_f64();
                let rate = (at - start) as f64 / seconds / f64::from(200 << 20);
                if len < MIB {
                    assert!(rate > 0.6 * members as f64, "{level:?} {len}: {rate:.2} times a member");
                }
            }
            let counters = counters(&core, &array).await;
            assert!(counters.ahead_reads * 10 > counters.reads * 8, "{level:?}: {counters:?}");
        });
    }
}

/// The end of the volume is where reading ahead ends.
#[test]
fn nothing_is_read_beyond_the_end() {
    Fixture::new(Level::Raid5, 3).run(async |core, array, volume| {
        let size = volume.size_bytes();
        expect(&volume, size - MIB..size, 4 * KIB, 0).await;
        let counters = counters(&core, &array).await;
        assert!((MIB - 64 * KIB..=MIB).contains(&counters.ahead_bytes), "{counters:?}");
    });
}

/// A client that reads anywhere, or keeps the members busy by itself, is not read ahead of; no
/// client is, if an operator says so.
#[test]
fn only_those_who_read_in_sequence_are_read_ahead_of() {
    Fixture::new(Level::Raid5, 4).run(async |core, array, volume| {
        for number in 0..2000 {
            read(&volume, number * 7919 % 4000 * 8 * KIB, 4 * KIB).await;
        }
        let size = volume.size_bytes();
        expect(&volume, 0..size, 2 * MIB, 0).await;
        array.set_read_ahead_bytes(&core, 0).await;
        expect(&volume, 0..MIB, 4 * KIB, 0).await;
        let before = counters(&core, &array).await;
        assert_eq!((before.ahead_bytes, before.ahead_reads), (0, 0));
        array.set_read_ahead_bytes(&core, array.read_ahead_bytes()).await;
        expect(&volume, 0..MIB, 4 * KIB, 0).await;
        assert!(counters(&core, &array).await.ahead_reads > 200);
    });
}

/// Several that take turns are all read ahead of, and what is held for them is bounded.
#[test]
fn readers_share_what_may_be_held() {
    let mut fixture = Fixture::new(Level::Raid0, 4);
    let mut spec = fixture.spec();
    spec.tuning.ahead.bytes_max = 2 << 20;
    run(&mut fixture.world, spec, async move |core, array, volume| {
        for at in (0..4 * MIB).step_by(4 << 10) {
            for reader in 0..4 {
                read(&volume, reader * 8 * MIB + at, 4 * KIB).await;
            }
            let counters = counters(&core, &array).await;
            let held = counters.ahead_bytes.saturating_sub(counters.ahead_reads * 4 * KIB);
            assert!(held <= 3 * MIB, "{counters:?}");
        }
        let counters = counters(&core, &array).await;
        assert!(counters.ahead_reads * 10 > counters.reads * 7, "{counters:?}");
        array.stop(&core).await.unwrap();
    });
}

/// Whatever changes the array, on whichever core and however, a reader in the middle of what was
/// read ahead of sees it.
#[test]
fn what_was_read_ahead_is_not_what_was_there_before_a_change() {
    const FROM: u64 = 512 * KIB;
    for (level, members) in LEVELS {
        for change in 0..6 {
            Fixture::new(level, members).run(async move |core, array, volume| {
                fill(&volume, 0, MIB, 1).await;
                expect(&volume, 0..256 * KIB, 4 * KIB, 1).await;
                // This is read ahead by now.
                core.sleep(Duration::from_millis(100)).await;
                let byte = match change {
                    0 => {
                        fill(&volume, FROM, 256 * KIB, 2).await;
                        2
                    }
                    1 => {
                        elsewhere(&core, &array, async |volume| fill(&volume, FROM, 256 * KIB, 2).await)
                            .await;
                        2
                    }
                    2 => {
                        // Not in whole sectors.
                        elsewhere(&core, &array, async |volume| {
                            fill(&volume, FROM - 1, 256 * KIB + 2, 2).await;
                        })
                        .await;
                        2
                    }
                    3 => {
                        elsewhere(&core, &array, async |volume| {
                            for at in (FROM..FROM + 256 * KIB).step_by(4 << 10) {
                                fill(&volume, at, 4 * KIB, 2).await;
                            }
                        })
                        .await;
                        2
                    }
                    4 => {
                        volume.write_zeroes(FROM, 256 * KIB, Unmap::Yes, Durability::Cached).await.unwrap();
                        0
                    }
                    _ => {
                        // No task waits for it; it is written all the same, before or after what
                        // follows.
                        race(fill(&volume, FROM, 256 * KIB, 2), core.yield_now()).await;
                        core.sleep(Duration::from_millis(100)).await;
                        2
                    }
                };
                expect(&volume, 256 * KIB..FROM - 4 * KIB, 4 * KIB, 1).await;
                expect(&volume, FROM..FROM + 256 * KIB, 4 * KIB, byte).await;
                expect(&volume, FROM + 260 * KIB..MIB, 4 * KIB, 1).await;
            });
        }
    }
}

/// What is read while it is being written is neither old nor new: it is not kept. Changes are noted
/// from some time on, and a write that began before counts as well.
#[test]
fn what_is_read_ahead_during_a_write_is_not_kept() {
    for (delay, noted) in (0..40).flat_map(|delay| [(delay, false), (delay, true)]) {
        let write_latency = Duration::from_millis(5)..Duration::from_millis(6);
        let slow = DriveConfig { write_latency, ..DriveConfig::default() };
        Fixture::with(Level::Raid1, 2, &slow).run(async move |core, array, volume| {
            fill(&volume, 0, MIB, 1).await;
            if noted {
                expect(&volume, 8 * MIB..9 * MIB, 4 * KIB, 0).await;
            }
            let writes = core.spawn({
                let (core, array) = (core.clone(), array.clone());
                async move {
                    core.sleep(Duration::from_micros(10 * delay)).await;
                    elsewhere(&core, &array, async |volume| fill(&volume, 20 * KIB, 4 * KIB, 2).await).await;
                }
            });
            expect(&volume, 0..16 * KIB, 4 * KIB, 1).await;
            writes.await;
            expect(&volume, 16 * KIB..20 * KIB, 4 * KIB, 1).await;
            expect(&volume, 20 * KIB..24 * KIB, 4 * KIB, 2).await;
            expect(&volume, 24 * KIB..64 * KIB, 4 * KIB, 1).await;
        });
    }
}

/// Copies that differ silently: after a repair every reader sees the copy that was
/// chosen.
#[test]
fn what_was_read_ahead_is_not_what_a_repair_has_replaced() {
    for chosen in [0, 1] {
        let mut fixture = Fixture::new(Level::Raid1, 2);
        let other = fixture.world.drive(&fixture.drives[1 - chosen]);
        fixture.run(async move |core, array, volume| {
            fill(&volume, 0, MIB, 1).await;
            volume.flush().await.unwrap();
            (0..2048).for_each(|sector| other.poke(sector * 512, &[9; 512]));
            for at in (0..256 * KIB).step_by(4 << 10) {
                read(&volume, at, 4 * KIB).await;
            }
            let source = Some(RepairSource::CopyFrom(MemberIx(chosen as u16)));
            let range = Some(Sector(0)..Sector(2048));
            array.start_job(&core, Job::Repair { range, source }).await.unwrap();
            while array.report(&core).await.is_none() {
                core.sleep(Duration::from_micros(100)).await;
            }
            expect(&volume, 256 * KIB..MIB, 4 * KIB, 1).await;
        });
    }
}

/// Copies that may differ are read from the first as long as it can be read: then from another, and
/// that shows at once.
#[test]
fn copies_that_may_differ_are_not_read_ahead() {
    let mut fixture = Fixture::new(Level::Raid1, 2);
    let spec = ArraySpec { synced_below: Sector(0), unclean: true, read_only: true, ..fixture.spec() };
    run(&mut fixture.world, spec, async move |core, array, volume| {
        expect(&volume, 0..MIB, 4 * KIB, 0).await;
        assert_eq!(counters(&core, &array).await.ahead_bytes, 0);
        array.stop(&core).await.unwrap();
    });
}

/// A copy that cannot be read gets the content of another one. If the two did not agree, no reader
/// sees the old content any more.
#[test]
fn what_was_read_ahead_is_not_what_a_bad_copy_held() {
    const BLOCKS: [u64; 8] = [60, 100, 40, 33, 70, 90, 50, 80];
    for bad in [0, 1] {
        let mut fixture = Fixture::new(Level::Raid1, 2);
        let drives: Vec<_> = fixture.drives.iter().map(|drive| fixture.world.drive(drive)).collect();
        fixture.run(async move |core, array, volume| {
            fill(&volume, 0, MIB, 1).await;
            volume.flush().await.unwrap();
            (0..2048).for_each(|sector| drives[1 - bad].poke(sector * 512, &[9; 512]));
            for at in (0..128 * KIB).step_by(4 << 10) {
                read(&volume, at, 4 * KIB).await;
            }
            core.sleep(Duration::from_millis(50)).await;
            (256..2048).for_each(|sector| drives[bad].latent(sector));
            elsewhere(&core, &array, async |volume| {
                for block in BLOCKS.into_iter().flat_map(|block| [block; 4]) {
                    expect(&volume, block * 4 * KIB..(block + 1) * 4 * KIB, 4 * KIB, 9).await;
                }
            })
            .await;
            let rewritten = |block: &u64| !drives[bad].is_unreadable(block * 8);
            let rewritten: Vec<u64> = BLOCKS.into_iter().filter(rewritten).collect();
            for block in 32..128 {
                let buf = read(&volume, block * 4 * KIB, 4 * KIB).await;
                assert!(buf[0] == 9 || !rewritten.contains(&block), "block {block} holds {}", buf[0]);
            }
        });
    }
}

/// A client that reads close behind a writer, or where all write, is soon not read ahead of.
#[test]
fn what_is_of_no_use_is_not_read() {
    Fixture::new(Level::Raid5, 4).run(async |core, array, volume| {
        fill(&volume, 0, 16 * MIB, 1).await;
        for at in (0..16 * MIB).step_by(4 << 10) {
            fill(&volume, at + 16 * KIB, 4 * KIB, 1).await;
            read(&volume, at, 4 * KIB).await;
        }
        let counters = counters(&core, &array).await;
        assert!(counters.ahead_bytes < 2 * MIB, "{counters:?}");
    });
}

/// A few reads in a row, and then somewhere else: what would come next is not wanted.
#[test]
fn who_never_goes_on_is_soon_left_alone() {
    Fixture::new(Level::Raid5, 4).run(async |core, array, volume| {
        let mut rng = Rng::new(5);
        for _ in 0..2000 {
            let at = rng.below(1500) * 32 * KIB;
            expect(&volume, at..at + 16 * KIB, 4 * KIB, 0).await;
        }
        let counters = counters(&core, &array).await;
        assert!(counters.ahead_bytes < 4 * MIB, "{counters:?}");
    });
}

/// Nor does a random reader near a sequential one pass for it.
#[test]
fn who_reads_near_by_is_somebody_else() {
    Fixture::new(Level::Raid5, 4).run(async |core, array, volume| {
        expect(&volume, 0..16 * MIB, 4 * KIB, 0).await;
        let before = counters(&core, &array).await;
        for number in 0..1000 {
            read(&volume, 16 * MIB + number * 7919 % 2000 * 4 * KIB, 4 * KIB).await;
        }
        let after = counters(&core, &array).await;
        assert!(after.ahead_bytes - before.ahead_bytes < 2 * MIB, "{after:?}");
    });
}

/// Those that are done make room, and a reader behind a writer spoils it for no other.
#[test]
fn who_comes_after_others_is_read_ahead_of_at_once() {
    Fixture::new(Level::Raid0, 4).run(async |core, _, volume| {
        for at in (0..8 * MIB).step_by(4 << 10) {
            fill(&volume, at + 16 * KIB, 4 * KIB, 1).await;
            read(&volume, at, 4 * KIB).await;
        }
        for file in 2..5 {
            expect(&volume, file * 8 * MIB..file * 8 * MIB + 7 * MIB, 64 * KIB, 0).await;
        }
        let began = core.now();
        expect(&volume, 40 * MIB..56 * MIB, 64 * KIB, 0).await;
        let rate = 16.0 / (core.now() - began).as_secs_f64() / 200.0;
        assert!(rate > 3.2, "{rate:.2} times a member");
    });
}

/// No task waits for what no client asked for.
#[test]
fn a_member_that_hangs_does_not_keep_the_array_from_stopping() {
    let mut fixture = Fixture::new(Level::Raid0, 4);
    let drive = fixture.world.drive(&fixture.drives[3]);
    let spec = ArraySpec { read_only: true, ..fixture.spec() };
    run(&mut fixture.world, spec, async move |core, array, volume| {
        expect(&volume, 0..64 * KIB, 4 * KIB, 0).await;
        drive.stall(Duration::from_secs(600));
        expect(&volume, 64 * KIB..128 * KIB, 4 * KIB, 0).await;
        let began = core.now();
        array.stop(&core).await.unwrap();
        assert!(core.now() - began < Duration::from_secs(10), "{:?}", core.now() - began);
    });
}

/// When no client reads in sequence any more, nothing is kept and nothing noted: what comes back
/// later is read ahead of again.
#[test]
fn readers_that_stay_away_are_forgotten() {
    Fixture::new(Level::Raid5, 4).run(async |core, array, volume| {
        for _ in 0..3 {
            expect(&volume, 0..MIB, 4 * KIB, 0).await;
            core.sleep(Duration::from_secs(5)).await;
            let before = counters(&core, &array).await;
            expect(&volume, MIB..MIB + 4 * KIB, 4 * KIB, 0).await;
            let after = counters(&core, &array).await;
            assert_eq!((before.ahead_reads, before.ahead_bytes), (after.ahead_reads, after.ahead_bytes));
        }
        fill(&volume, 0, MIB, 1).await;
        expect(&volume, 0..MIB, 4 * KIB, 1).await;
        let counters = counters(&core, &array).await;
        assert!(counters.ahead_reads * 10 > counters.reads * 9, "{counters:?}");
    });
}

/// Without a member too, and a member that fails under a reader costs it nothing.
#[test]
fn a_reader_does_not_notice_that_a_member_fails() {
    for (level, members) in &LEVELS[1..] {
        let mut fixture = Fixture::new(*level, *members);
        let drive = fixture.world.drive(&fixture.drives[1]);
        fixture.run(async move |core, array, volume| {
            fill(&volume, 0, 8 * MIB, 1).await;
            expect(&volume, 0..2 * MIB, 4 * KIB, 1).await;
            drive.gone_now();
            expect(&volume, 2 * MIB..8 * MIB, 4 * KIB, 1).await;
            let counters = counters(&core, &array).await;
            assert!(counters.ahead_reads * 10 > counters.reads * 9, "{counters:?}");
        });
    }
}
