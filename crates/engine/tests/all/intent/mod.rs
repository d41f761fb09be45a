//! Write intent: whatever happens, a region whose sectors may differ between members, or from their
//! parity, has its bit set on every member in use; and bits cost next to nothing.

mod turns;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::ArrayTuning;
use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::intent::IntentSpec;
use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata};
use wattle_engine::units::{MemberIx, MemberSet, Sector, StripeNo};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, MemberState, Regions, VolumeRef};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, Device, DriveConfig, DriveControl, Durability, IoError, Rng, SimWorld, Unmap,
    WorldConfig,
};

use crate::support::case::{Case, case};
use crate::support::drives::drives;
use crate::support::members::in_sync;

/// Data sectors of a member.
const MEMBER_SECTORS: u64 = 256;
/// Where the data starts; in front of it a superblock and the bitmap, a sector each.
const DATA: Sector = Sector(16);
const SUPERBLOCK: u64 = 0;
const BITMAP: u64 = 512;
const REGION: Sector = Sector(16);
const SWEEP: Duration = Duration::from_millis(2);

const CASES: [Case; 5] = [
    case(Level::Raid1, 0, 3, 0),
    // Regions smaller and larger than a chunk.
    case(Level::Raid5, 2, 4, 8),
    case(Level::Raid5, 2, 3, 64),
    case(Level::Raid6, 2, 5, 16),
    case(Level::Raid10, 0x102, 4, 8),
];

/// What a broken engine, or broken metadata, would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// Nothing wrong.
    No,
    /// Data is written before its bit is durable.
    MarkLater,
    /// Bits are forced to one member only.
    MarkOne,
    /// Bits are cleared before what was written there is durable: flushes do nothing.
    ClearEarly,
    /// Superblocks say that there is a new bitmap, and what is there is an old one.
    TurnWithout,
}

/// What the metadata was asked for, over all of its life.
#[derive(Default)]
struct Records {
    marks: Cell<usize>,
    unmarks: Cell<usize>,
    /// Seats that a record counted out, from the moment it was given.
    failed: Cell<MemberSet>,
    /// How often another bitmap, or none, was recorded.
    pub turns: Cell<usize>,
}

/// A superblock and a bitmap of one sector each on every member.
struct SectorBitmap {
    core: Core,
    devices: Vec<Device>,
    controls: Vec<DriveControl>,
    bits: RefCell<Vec<u8>>,
    /// What the superblock says of the bitmap: 0 for none, or which it is.
    kept: Cell<u8>,
    /// There is another one than the members have.
    turned: Cell<bool>,
    records: Rc<Records>,
    mutant: Mutant,
}

/// Which bitmap is kept after so many changes; two take turns.
fn kept_after(turns: usize) -> u8 {
    (turns / 2 % 2) as u8 + 1
}

/// Sectors of a region of the bitmap that a superblock names.
fn region_of(kept: u8) -> Sector {
    if kept == 2 { Sector(REGION.0 / 4) } else { REGION }
}

impl SectorBitmap {
    async fn write(&self, at: u64, bytes: Vec<u8>, durability: Durability) -> Result<(), MemberSet> {
        let used =
            (0..).zip(&self.devices).filter(|(seat, _)| !self.records.failed.get().contains(MemberIx(*seat)));
        let writes: Vec<(u16, _)> = used
            .map(|(seat, device)| {
                let forced = self.mutant != Mutant::MarkOne || seat == 0;
                let durability = if forced { durability } else { Durability::Cached };
                (seat, self.core.write(device, at, BufMut::copy_of(&bytes).freeze(), durability))
            })
            .collect();
        let mut failed = MemberSet::EMPTY;
        for (seat, write) in writes {
            let written: Result<(), IoError> = write.await;
            if written.is_err() {
                failed.insert(MemberIx(seat));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    async fn write_turned(&self) -> Result<(), MemberSet> {
        if self.turned.get() && self.kept.get() > 0 && self.mutant != Mutant::TurnWithout {
            let bits = self.bits.borrow().clone();
            self.write(BITMAP, bits, Durability::Fua).await?;
        }
        self.turned.set(false);
        Ok(())
    }

    fn change(&self, regions: &[u64], on: bool) -> Vec<u8> {
        let mut bits = self.bits.borrow_mut();
        for region in regions {
            let (byte, bit) = ((region / 8) as usize, 1 << (region % 8));
            if on { bits[byte] |= bit } else { bits[byte] &= !bit }
        }
        bits.clone()
    }

    fn lie(&self, lying: bool) {
        self.controls.iter().for_each(|drive| drive.lying_flush(lying && self.mutant == Mutant::ClearEarly));
    }
}

impl Metadata for SectorBitmap {
    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            self.records.failed.set(record.failed);
            let mut failed = MemberSet::EMPTY;
            for (seat, device) in (0..).map(MemberIx).zip(&self.devices) {
                if !record.failed.contains(seat) && self.core.flush(device).await.is_err() {
                    failed.insert(seat);
                }
            }
            if !failed.is_empty() {
                return Err(failed);
            }
            self.write_turned().await?;
            let mut superblock = vec![0; 512];
            superblock[..2].copy_from_slice(&[u8::from(record.dirty), self.kept.get()]);
            self.write(SUPERBLOCK, superblock, Durability::Fua).await
        })
    }

    fn turn_intent(&self, on: bool) {
        let turns = self.records.turns.get();
        self.records.turns.set(turns + 1);
        self.kept.set(if on { kept_after(turns) } else { 0 });
        self.turned.set(true);
        *self.bits.borrow_mut() = vec![if on { 0xff } else { 0 }; 512];
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            assert!(!regions.is_empty(), "nothing is marked for nothing");
            self.records.marks.update(|marks| marks + 1);
            let bits = self.change(regions, true);
            if self.mutant == Mutant::MarkLater {
                let (core, devices) = (self.core.clone(), self.devices.clone());
                self.core.spawn(async move {
                    core.sleep(Duration::from_micros(100)).await;
                    for device in devices {
                        let _ = core
                            .write(&device, BITMAP, BufMut::copy_of(&bits).freeze(), Durability::Fua)
                            .await;
                    }
                });
                return Ok(());
            }
            self.lie(false);
            let written = self.write(BITMAP, bits, Durability::Fua).await;
            self.lie(true);
            written
        })
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            assert!(!regions.is_empty(), "nothing is cleared for nothing");
            self.records.unmarks.update(|unmarks| unmarks + 1);
            let bits = self.change(regions, false);
            self.write(BITMAP, bits, Durability::Cached).await
        })
    }
}

struct Fixture {
    world: SimWorld,
    devices: Vec<Device>,
    case: Case,
    records: Rc<Records>,
    mutant: Mutant,
    marked: Regions,
    /// After a crash: what is marked has to be resynced.
    dirty: bool,
}

impl Fixture {
    fn new(case: Case, seed: u64, cores: usize) -> Self {
        let mut world = SimWorld::new(WorldConfig { seed, cores, ..WorldConfig::default() });
        let size_bytes = (MEMBER_SECTORS + DATA.0) * 512;
        let config = DriveConfig { size_bytes, ..DriveConfig::default() };
        let devices = drives(&mut world, case.members, &config);
        let marked = Regions::new(REGION, case.geometry(MEMBER_SECTORS).sync_sectors());
        Self { world, devices, case, records: Rc::default(), mutant: Mutant::No, marked, dirty: false }
    }

    fn drive(&self, slot: usize) -> DriveControl {
        self.world.drive(&self.devices[slot])
    }

    fn drives(&self) -> Vec<DriveControl> {
        (0..self.case.members).map(|slot| self.drive(slot)).collect()
    }

    /// Starts the array on the core it is given.
    fn starter(&self) -> impl AsyncFnOnce(&Core) -> ArrayHandle + 'static {
        let members = in_sync(&self.devices, DATA, &[]);
        let clean_delay = SWEEP * 2;
        let mut spec = ArraySpec::new("a", self.case.geometry(MEMBER_SECTORS), members);
        spec.tuning = ArrayTuning { clean_delay, ..ArrayTuning::default() };
        if self.dirty {
            spec.synced_below = Sector(0);
            spec.needs = Some(self.marked.clone());
        }
        spec.intent = Some(IntentSpec { marked: self.marked.clone(), sweep: SWEEP });
        let mut bits = vec![0; 512];
        self.marked.iter().for_each(|region| bits[(region / 8) as usize] |= 1 << (region % 8));
        self.drives().iter().for_each(|drive| {
            drive.poke(BITMAP, &bits);
            drive.poke(SUPERBLOCK, &[u8::from(self.dirty), 1]);
        });
        let (devices, controls, records) = (self.devices.clone(), self.drives(), self.records.clone());
        let mutant = self.mutant;
        async move |core: &Core| {
            let bits = RefCell::new(bits);
            let (kept, turned) = (Cell::new(1), Cell::new(false));
            let core_of = core.clone();
            let metadata =
                SectorBitmap { core: core_of, devices, controls, bits, kept, turned, records, mutant };
            ArrayHandle::start(core, spec, Box::new(metadata)).await
        }
    }

    /// The bits that are set on a member.
    fn set(&self, slot: usize) -> BTreeSet<u64> {
        let bits = self.drive(slot).peek(BITMAP, 512);
        (0..512 * 8)
            .filter(|region| bits[*region / 8] >> (region % 8) & 1 == 1)
            .map(|region| region as u64)
            .collect()
    }

    /// Every member that is in use has the bits of all regions that differ, if it has a bitmap.
    fn check(&self, what: &str) {
        for slot in
            (0..self.case.members).filter(|slot| !self.records.failed.get().contains(MemberIx(*slot as u16)))
        {
            let Some((differing, set)) = self.lacking(slot) else { continue };
            assert!(
                differing.is_subset(&set),
                "{:?} {what}: regions {differing:?} differ, and on drive {slot} only {set:?} are marked",
                self.case
            );
        }
    }

    /// What differs, and the bits that are set on a member; `None` if that has no bitmap.
    fn lacking(&self, slot: usize) -> Option<(BTreeSet<u64>, BTreeSet<u64>)> {
        let kept = self.drive(slot).peek(SUPERBLOCK, 2)[1];
        (kept > 0).then(|| (self.differing_by(region_of(kept)), self.set(slot)))
    }

    fn differing(&self) -> BTreeSet<u64> {
        self.differing_by(REGION)
    }

    /// The regions with a sector in which members differ, or differ from their parity.
    fn differing_by(&self, region: Sector) -> BTreeSet<u64> {
        let geometry = self.case.geometry(MEMBER_SECTORS);
        let data: Vec<_> = self
            .drives()
            .iter()
            .map(|drive| drive.peek(DATA.0 * 512, MEMBER_SECTORS as usize * 512))
            .collect();
        let sector = |member: MemberIx, at: u64| &data[member.index()][at as usize * 512..][..512];
        let mut differing = BTreeSet::new();
        match geometry.kind() {
            LevelKind::Mirrored => {
                for lba in 0..geometry.array_sectors().0 {
                    let copies = geometry.copies(Sector(lba));
                    let mut contents = copies.iter().map(|copy| sector(copy.member, copy.sector.0));
                    let first = contents.next().unwrap();
                    if contents.any(|other| other != first) {
                        differing.insert(lba / region.0);
                    }
                }
            }
            _ => {
                for stripe in 0..geometry.stripes() {
                    let map = geometry.stripe(StripeNo(stripe));
                    for at in map.member_sector.0..map.member_sector.0 + geometry.chunk().0 {
                        let mut sum = sector(map.p(), at).to_vec();
                        for block in 0..map.data_blocks() {
                            sum.iter_mut()
                                .zip(sector(map.data_member(block), at))
                                .for_each(|(sum, byte)| *sum ^= byte);
                        }
                        if sum.iter().any(|&byte| byte != 0) {
                            differing.insert(at / region.0);
                        }
                    }
                }
            }
        }
        differing
    }
}

async fn write(core: &Core, volume: &VolumeRef, sector: u64, sectors: u64, fill: u8) {
    let volume = volume.open(core).unwrap();
    let mut buf = BufMut::alloc(sectors as usize * 512);
    buf.fill(fill);
    volume.write(sector * 512, buf.freeze(), Durability::Cached).await.unwrap();
}

/// Writes here and there, with pauses in which regions fall idle, until the power goes.
async fn scribble(core: Core, volume: VolumeRef, seed: u64) {
    let mut rng = Rng::new(seed);
    let Ok(volume) = volume.open(&core) else { return };
    let sectors = volume.size_bytes() / 512;
    for _ in 0..12 {
        let start = rng.below(sectors);
        let len = (1 + rng.below(40)).min(sectors - start);
        let mut buf = BufMut::alloc(len as usize * 512);
        rng.fill(&mut buf);
        let (at, bytes) = (start * 512, len * 512);
        // Beyond redundancy, writes may fail: what is on the members is right all the same.
        let _ = match rng.below(16) {
            0 => volume.write_zeroes(at, bytes, Unmap::Yes, Durability::Cached).await,
            1 => volume.discard(at, bytes).await,
            2 => volume.write(at, Buf::zeros(bytes as usize), Durability::Fua).await,
            3 => volume.flush().await,
            _ => volume.write(at, buf.freeze(), Durability::Cached).await,
        };
        if rng.below(3) == 0 {
            core.sleep(Duration::from_micros(rng.below(8000))).await;
        }
    }
}

/// One life of an array, ended by a power cut after `cut` operations; the fixture as the next start
/// finds it.
fn life(case: Case, seed: u64, cut: u64, mutant: Mutant, fault: bool) -> Fixture {
    life_with(case, seed, cut, mutant, fault, false)
}

/// As [`life`]; perhaps the bitmap goes, comes back and becomes another one meanwhile.
fn life_with(case: Case, seed: u64, cut: u64, mutant: Mutant, fault: bool, turns: bool) -> Fixture {
    let cores = 1 + (seed % 3) as usize;
    let mut fixture = Fixture::new(case, seed, cores);
    fixture.mutant = mutant;
    if fault {
        let mut rng = Rng::new(seed ^ cut);
        let drive = fixture.drive(rng.below(case.members as u64) as usize);
        match rng.below(3) {
            0 => drive.gone_after_ops(rng.below(100)),
            1 => drive.fail_next_writes(1),
            _ => drive.fail_next_flushes(1),
        }
    }
    let start = fixture.starter();
    let (records, drives, total) = (fixture.records.clone(), fixture.drives(), fixture.marked.total());
    fixture.world.power_cut_after_ops(cut);
    let _ = fixture.world.run(async move |core: Core| {
        let array = start(&core).await;
        if turns {
            core.spawn(turns::turn(core.clone(), array.clone(), (records, drives), total, seed));
        }
        let writers: Vec<_> = (0..2 * cores)
            .map(|writer| {
                let (volume, seed) = (array.volume(), seed * 31 + writer as u64);
                let at = CoreIx(writer % cores);
                core.spawn(core.call(at, move |core| scribble(core, volume, seed)))
            })
            .collect();
        for writer in writers {
            writer.await;
        }
        core.sleep(SWEEP * 4).await;
        let _ = array.stop(&core).await;
    });
    fixture.world.cancel_power_cut();
    fixture
}

#[test]
fn whenever_the_power_goes_what_differs_is_marked() {
    let (mut differing, mut cleared) = (0, 0);
    for (case, seed) in CASES.into_iter().flat_map(|case| (0..40).map(move |seed| (case, seed))) {
        let cut = 1 + Rng::new(seed * 977).below(900);
        let fixture = life(case, seed, cut, Mutant::No, false);
        fixture.check(&format!("seed {seed} cut {cut}"));
        differing += fixture.differing().len();
        cleared += fixture.records.unmarks.get();
    }
    assert!(
        differing > 100 && cleared > 100,
        "{differing} regions differ, bits were cleared {cleared} times"
    );
}

/// Also what a member that failed lacks: the bits are what it has to be given when it comes back.
#[test]
fn whenever_the_power_goes_what_a_failed_member_lacks_is_marked() {
    let mut lacking = 0;
    for (case, seed) in CASES.into_iter().flat_map(|case| (100..140).map(move |seed| (case, seed))) {
        // Some lives end by themselves: then all that differs is what the failed member lacks.
        let cut = 1 + Rng::new(seed * 977).below(1500);
        let fixture = life(case, seed, cut, Mutant::No, true);
        fixture.check(&format!("seed {seed} cut {cut}"));
        lacking += usize::from(!fixture.records.failed.get().is_empty() && !fixture.differing().is_empty());
    }
    assert!(lacking > 50, "only {lacking} lives in which a failed member lacks something");
}

#[test]
fn mutants_are_caught() {
    for mutant in [Mutant::MarkLater, Mutant::MarkOne, Mutant::ClearEarly] {
        let caught =
            CASES.into_iter().flat_map(|case| (0..40).map(move |seed| (case, seed))).any(|(case, seed)| {
                let fixture = life(case, seed, 1 + Rng::new(seed * 977).below(900), mutant, false);
                let differing = fixture.differing();
                (0..case.members).any(|slot| !differing.is_subset(&fixture.set(slot)))
            });
        assert!(caught, "nobody notices {mutant:?}");
    }
}

#[test]
fn rewriting_a_marked_region_writes_no_bitmap() {
    for case in CASES {
        let mut fixture = Fixture::new(case, 1, 2);
        let (start, records, drives) = (fixture.starter(), fixture.records.clone(), fixture.drives());
        fixture
            .world
            .run(async move |core: Core| {
                let array = start(&core).await;
                write(&core, &array.volume(), 0, 1, 1).await;
                assert_eq!(records.marks.get(), 1);
                drives.iter().for_each(DriveControl::record_writes);
                for fill in 0..50 {
                    write(&core, &array.volume(), 0, 8, fill).await;
                }
                assert_eq!((records.marks.get(), records.unmarks.get()), (1, 0), "{case:?}");
                let bitmap = |drive: &DriveControl| {
                    drive.take_write_log().iter().any(|write| write.offset_bytes == BITMAP)
                };
                assert!(!drives.iter().any(bitmap), "{case:?}: the bitmap was written");
            })
            .expect_done();
    }
}

#[test]
fn marks_that_arrive_together_are_one_write() {
    let mut fixture = Fixture::new(CASES[0], 1, 3);
    let (start, records) = (fixture.starter(), fixture.records.clone());
    fixture
        .world
        .run(async move |core: Core| {
            let array = start(&core).await;
            write(&core, &array.volume(), 0, 1, 1).await;
            let writes = (1..16).map(|region| {
                let volume = array.volume();
                core.spawn(core.call(CoreIx(region % 3), move |core| async move {
                    write(&core, &volume, region as u64 * REGION.0, 1, 1).await;
                }))
            });
            for write in writes.collect::<Vec<_>>() {
                write.await;
            }
            let marks = records.marks.get();
            assert!((2..=4).contains(&marks), "{marks} writes of the bitmap for 16 regions");
            array.stop(&core).await.unwrap();
        })
        .expect_done();
}

#[test]
fn an_idle_arrays_bits_are_cleared_and_then_nothing_is_written() {
    for case in CASES {
        let mut fixture = Fixture::new(case, 1, 2);
        let (start, records, drives) = (fixture.starter(), fixture.records.clone(), fixture.drives());
        fixture
            .world
            .run(async move |core: Core| {
                let array = start(&core).await;
                write(&core, &array.volume(), 0, 40, 1).await;
                assert_eq!(records.unmarks.get(), 0);
                core.sleep(SWEEP * 5 + SWEEP / 2).await;
                assert_eq!(records.unmarks.get(), 1, "all at once");
                let ops = |drives: &[DriveControl]| drives.iter().map(DriveControl::ops).sum::<u64>();
                let before = ops(&drives);
                core.sleep(Duration::from_secs(3600)).await;
                assert_eq!(ops(&drives), before, "{case:?}: an idle array does nothing");
                assert!(drives.iter().all(|drive| drive.peek(BITMAP, 512) == [0; 512]));
                let marks = records.marks.get();
                write(&core, &array.volume(), 0, 1, 2).await;
                assert_eq!(records.marks.get(), marks + 1, "what was cleared is marked again");
                array.stop(&core).await.unwrap();
            })
            .expect_done();
        assert!((0..case.members).all(|slot| fixture.set(slot).is_empty()), "{case:?}: stopped with bits");
    }
}

#[test]
fn a_stop_clears_what_it_can_and_an_array_that_was_not_written_is_left_alone() {
    for written in [true, false] {
        let mut fixture = Fixture::new(CASES[1], 1, 2);
        fixture.marked.insert(7);
        let (start, drives) = (fixture.starter(), fixture.drives());
        drives.iter().for_each(DriveControl::record_writes);
        fixture
            .world
            .run(async move |core: Core| {
                let array = start(&core).await;
                if written {
                    write(&core, &array.volume(), 0, 1, 1).await;
                }
                array.stop(&core).await.unwrap();
            })
            .expect_done();
        let expected = if written { BTreeSet::new() } else { BTreeSet::from([7]) };
        assert!((0..4).all(|slot| fixture.set(slot) == expected));
        assert!(written || drives_untouched(&fixture), "bits were cleared in passing");
    }
}

fn drives_untouched(fixture: &Fixture) -> bool {
    fixture.drives().iter().all(|drive| drive.take_write_log().is_empty())
}

#[test]
fn a_degraded_array_clears_nothing() {
    for case in CASES {
        let mut fixture = Fixture::new(case, 1, 2);
        let (start, records) = (fixture.starter(), fixture.records.clone());
        fixture
            .world
            .run(async move |core: Core| {
                let array = start(&core).await;
                write(&core, &array.volume(), 0, 1, 1).await;
                array.fail(&core, MemberIx(1)).await.unwrap();
                core.sleep(SWEEP * 5).await;
                let far = array.volume().size_bytes() / 512 - 1;
                write(&core, &array.volume(), far, 1, 1).await;
                core.sleep(SWEEP * 5).await;
                // Idle regions were taken back; their bits are still set, so that using them again
                // writes nothing.
                let marks = records.marks.get();
                write(&core, &array.volume(), 0, 1, 2).await;
                assert_eq!(records.marks.get(), marks, "{case:?}");
                array.stop(&core).await.unwrap();
                assert_eq!(records.unmarks.get(), 0, "{case:?}");
            })
            .expect_done();
        assert!(fixture.set(0).len() >= 2, "{case:?}: both writes are remembered");
    }
}

#[test]
fn a_member_that_takes_no_mark_is_failed_and_the_write_goes_on() {
    for case in CASES {
        let mut fixture = Fixture::new(case, 1, 2);
        let (start, records, second) = (fixture.starter(), fixture.records.clone(), fixture.drive(1));
        fixture
            .world
            .run(async move |core: Core| {
                let array = start(&core).await;
                write(&core, &array.volume(), 0, 1, 1).await;
                second.fail_next_writes(1);
                write(&core, &array.volume(), 100, 1, 1).await;
                assert_eq!(records.failed.get(), [MemberIx(1)].into_iter().collect(), "{case:?}");
                array.stop(&core).await.unwrap();
            })
            .expect_done();
        fixture.check("a mark failed");
    }
}

/// The bits are what a resync needs to know: after it everything agrees, and nothing is marked any
/// more.
#[test]
fn after_a_power_cut_a_resync_of_what_is_marked_is_enough() {
    let mut healed = 0;
    for (case, seed) in CASES.into_iter().flat_map(|case| (200..220).map(move |seed| (case, seed))) {
        let mut fixture = life(case, seed, 1 + Rng::new(seed * 977).below(900), Mutant::No, false);
        healed += usize::from(!fixture.differing().is_empty());
        let set: BTreeSet<u64> = (0..case.members).flat_map(|slot| fixture.set(slot)).collect();
        set.iter().for_each(|&region| fixture.marked.insert(region));
        fixture.dirty = true;
        let start = fixture.starter();
        fixture
            .world
            .run(async move |core: Core| {
                let array = start(&core).await;
                core.sleep(Duration::from_secs(60)).await;
                array.stop(&core).await.unwrap();
            })
            .expect_done();
        assert_eq!(fixture.differing(), BTreeSet::new(), "{case:?} seed {seed}: not all of it was marked");
        assert!(
            (0..case.members).all(|slot| fixture.set(slot).is_empty()),
            "{case:?} seed {seed}: bits are left"
        );
    }
    assert!(healed > 30, "only {healed} lives left something to resync");
}

/// A member that comes back is given what is marked, also what was written after that was looked
/// up, and nothing else.
#[test]
fn a_member_that_comes_back_is_given_what_it_missed() {
    for case in CASES {
        let mut fixture = Fixture::new(case, 3, 2);
        let (start, records) = (fixture.starter(), fixture.records.clone());
        let device = fixture.devices[1].clone();
        let mut lacks = fixture.marked.clone();
        fixture
            .world
            .run(async move |core: Core| {
                let array = start(&core).await;
                let sectors = array.volume().size_bytes() / 512;
                let volume = array.volume().open(&core).unwrap();
                write(&core, &array.volume(), 0, sectors, 1).await;
                core.sleep(SWEEP * 5).await;
                array.fail(&core, MemberIx(1)).await.unwrap();
                write(&core, &array.volume(), 0, 1, 2).await;
                lacks.insert(0);
                // It is looked up what the member lacks, and then a client writes.
                write(&core, &array.volume(), sectors - 1, 1, 3).await;
                records.failed.set(MemberSet::EMPTY);
                let state = MemberState::Rebuilding { valid_below: Sector(0) };
                let who = MemberSpec { state, stale: Some(lacks), ..MemberSpec::in_sync(device, DATA) };
                array.add(&core, MemberIx(1), who).await.unwrap();
                let reads = (0..20).map(|_| {
                    let volume = volume.clone();
                    core.spawn(async move { volume.read((sectors - 1) * 512, BufMut::alloc(512)).await })
                });
                let reads: Vec<_> = reads.collect();
                for read in reads {
                    let (result, buf) = read.await;
                    assert_eq!(result, Ok(()));
                    assert!(buf.iter().all(|&byte| byte == 3), "{case:?}: what it missed was read from it");
                }
                core.sleep(Duration::from_secs(60)).await;
                let status = array.status(&core).await;
                assert_eq!(status.members[1].state, MemberState::InSync, "{case:?}");
                array.stop(&core).await.unwrap();
            })
            .expect_done();
        assert_eq!(fixture.differing(), BTreeSet::new(), "{case:?}");
        assert!((0..case.members).all(|slot| fixture.set(slot).is_empty()), "{case:?}: whole again, bits go");
    }
}
