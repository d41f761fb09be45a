//! The same on simulated drives, with the power cut at every operation.

use std::sync::{Arc, Mutex};

use wattle_control::admit::{OfferedDevice, WantedSeat};
use wattle_control::assemble::{Access, Assembly, Slot, assemble};
use wattle_control::badblocks::in_data;
use wattle_control::bitmap::BitmapPlace;
use wattle_control::facts::{BadBlockEntry, CLEAN, MemberFacts, SuperblockFacts};
use wattle_control::running::Newcomer;
use wattle_control::start::{Claimed, ClaimedMember};
use wattle_engine::BadRanges;
use wattle_engine::metadata::{ArrayRecord, Metadata, RecordCause};
use wattle_engine::units::{MemberSet, Sector};
use wattle_format::md::badblocks::BadBlocks;
use wattle_format::md::create::{NewArray, superblock};
use wattle_format::md::{
    BadBlockArea, DeviceFields, DeviceFlags, DeviceRole, Features, Superblock, Timestamp, identify,
    super_offset_sectors,
};
use wattle_rt::{Device, DriveConfig, RunOutcome, SimWorld, WorldConfig};

use super::*;

const DRIVES: usize = 5;
const SECTORS: u64 = 1024;
const DATA_BYTES: usize = 64 << 10;
const BAD_BLOCKS: BadBlockArea = BadBlockArea { offset_sectors: 16, size_sectors: 8, shift: 0 };

/// Three members of a RAID 5, a spare, and a drive that belongs to no array; what is no member
/// holds garbage.
pub(super) fn drives(world: &mut SimWorld, version: Version) -> Vec<Device> {
    drives_of(world, version, 5)
}

/// Four drives of RAID 6, or three of RAID 5 and a spare; and one that is of no array.
pub(super) fn drives_of(world: &mut SimWorld, version: Version, level: i32) -> Vec<Device> {
    let fourth = if level == 6 { DeviceRole::Active(3) } else { DeviceRole::Spare };
    let roles = vec![DeviceRole::Active(0), DeviceRole::Active(1), DeviceRole::Active(2), fourth];
    let array = NewArray {
        version,
        set_uuid: Uuid([5; 16]),
        name: b"host:t".to_vec(),
        ctime: Timestamp { secs: 1000, micros: 0 },
        level,
        layout: 2,
        chunk_sectors: 16,
        raid_disks: if level == 6 { 4 } else { 3 },
        size_sectors: 256,
        resync_offset: CLEAN,
        roles,
        bitmap_offset_sectors: None,
        ppl: None,
        features: Features::default(),
        md_minor: 0,
        nodes: Vec::new(),
    };
    // Of 0.90 a power cut can tear a superblock that is longer than a block; where no member
    // can be spared, that is the end.
    let sector_bytes = if version == Version::V090 { 4096 } else { 512 };
    let config = DriveConfig { size_bytes: SECTORS * 512, sector_bytes, ..DriveConfig::default() };
    let devices: Vec<_> = (0..DRIVES).map(|_| world.add_drive(config.clone())).collect();
    let place = super_offset_sectors(version, SECTORS).unwrap();
    let (data_offset_sectors, data_size_sectors) =
        if version == Version::V12 { (64, 512) } else { (0, place.min(512)) };
    for (ix, device) in devices.iter().enumerate() {
        if ix >= 3 {
            world.drive(device).poke(data_offset_sectors * 512, &[0xa5; 256 * 512]);
        }
        if ix == 4 {
            continue;
        }
        let fields = DeviceFields {
            dev_number: ix as u32,
            device_uuid: Uuid([ix as u8 + 1; 16]),
            super_offset_sectors: place,
            data_offset_sectors,
            data_size_sectors,
            recovery_offset: None,
            replacement: false,
            bad_block_log: (version == Version::V12).then_some(BAD_BLOCKS),
            flags: DeviceFlags::default(),
        };
        world.drive(device).poke(place * 512, superblock(&array, &fields, SECTORS).unwrap().bytes());
    }
    devices
}

/// What a bad-block log says.
fn bad_blocks(world: &SimWorld, device: &Device, superblock: &Superblock) -> Vec<BadBlockEntry> {
    if !superblock.features().contains(Features::BAD_BLOCKS) {
        return Vec::new();
    }
    let listed = BadBlocks::decode(&world.drive(device).peek(24 * 512, 4096), 0).unwrap();
    let range = |range: &wattle_format::md::badblocks::BadRange| BadBlockEntry {
        start_sector: range.sector,
        len_sectors: range.sectors,
    };
    listed.ranges().iter().map(range).collect()
}

/// What a member says.
pub(super) fn superblock_of(world: &SimWorld, device: &Device, version: Version) -> Superblock {
    let place = super_offset_sectors(version, SECTORS).unwrap();
    identify(version, &world.drive(device).peek(place * 512, 4096), SECTORS).unwrap().unwrap()
}

/// The array as the next start finds it.
pub(super) fn found(world: &SimWorld, devices: &[Device], version: Version) -> Result<Claimed, String> {
    let (assembly, seats, spares) = parts(world, devices, version)?;
    Ok(Claimed::of(assembly, seats, spares, Vec::new(), false))
}

type Parts = (Assembly, Vec<Option<ClaimedMember>>, Vec<ClaimedMember>);

/// What it is made of: its seats, and its spares.
pub(super) fn parts(world: &SimWorld, devices: &[Device], version: Version) -> Result<Parts, String> {
    let place = super_offset_sectors(version, SECTORS).unwrap();
    let read = |device: &Device| {
        let superblock: Option<Superblock> =
            identify(version, &world.drive(device).peek(place * 512, 4096), SECTORS).ok().flatten();
        superblock.map(|superblock| (device.clone(), superblock))
    };
    let there: Vec<_> = devices.iter().filter_map(read).collect();
    let facts: Vec<_> = (0..)
        .zip(&there)
        .map(|(ix, (_, superblock)): (u32, _)| {
            let mut facts = MemberFacts::new(format!("m{ix}"), SECTORS, SuperblockFacts::of(superblock));
            let device = &there[ix as usize].0;
            facts.bad_blocks = Some(bad_blocks(world, device, superblock));
            if let Some(place) = BitmapPlace::of(device, superblock) {
                let len = place.room_bytes.min(4096) as usize;
                let image = world.drive(device).peek(place.offset_bytes, len);
                facts.set_bitmap(&image, &superblock.stored_uuid());
            }
            facts
        })
        .collect();
    let assembly = assemble(&facts, Forced::default()).ok_or("no array")?;
    if assembly.access != Access::ReadWrite {
        return Err(format!("{:?}: {:?}", assembly.access, assembly.verdicts));
    }
    let bad = assembly.bad.clone();
    let member = |ix: usize| ClaimedMember {
        name: format!("drive of {:?}", there[ix].1.device_uuid()),
        device: there[ix].0.clone(),
        superblock: Some(there[ix].1.clone()),
        bad: bad[ix].clone(),
    };
    let slots = assembly.slots.iter().map(|slot: &Slot| slot.member().map(member));
    let replacements = assembly.replacements.iter().map(|who| who.map(|who| member(who.member)));
    let seats = slots.chain(replacements).collect();
    let spares = assembly.spares.iter().map(|&ix| member(ix)).collect();
    Ok((assembly, seats, spares))
}

fn bytes(seed: u8) -> Vec<u8> {
    (0..DATA_BYTES).map(|i| (i / 509) as u8 ^ seed).collect()
}

/// A life: writes, a member that fails, a spare that takes its slot, a replacement, a removal.
/// `told` is what was written for certain, and whether more was under way.
async fn life(core: Core, claimed: Claimed, blank: Device, told: Arc<Mutex<(u8, u8)>>, old: bool) {
    let array = RunningArray::new(&core, &MemberAccess::local(), "t", claimed.launch(&core).await.unwrap());
    core.spawn(keep(array.clone()));
    let volume = array.handle().volume().open(&core).unwrap();
    let put = async |seed: u8| {
        told.lock().unwrap().1 = seed;
        volume.write(0, Buf::copy_of(&bytes(seed)), Durability::Fua).await.unwrap();
        *told.lock().unwrap() = (seed, seed);
    };
    put(1).await;
    array.fail("1").await.unwrap();
    put(2).await;
    whole(&core, &array).await;
    if !old {
        let offer = OfferedDevice {
            name: "blank".to_owned(),
            size_sectors: SECTORS,
            logical_block_bytes: 512,
            superblocks: Vec::new(),
            damaged: Vec::new(),
            signatures: Vec::new(),
            bitmap: None,
        };
        let newcomer = Newcomer { offer, device: blank, device_uuid: UUID };
        let replaced = array.names()[0].clone().unwrap();
        array.take(newcomer, WantedSeat::Replace(0), Forced::default()).await.unwrap();
        put(3).await;
        whole(&core, &array).await;
        array.remove(&replaced).await.unwrap();
    }
    put(4).await;
    array.handle().stop(&core).await.unwrap();
}

/// Whenever the power goes, the array comes up with everything that was acknowledged, and
/// nothing that was never written.
#[test]
fn no_power_cut_loses_what_was_acknowledged_or_brings_up_garbage() {
    for version in [Version::V12, Version::V090] {
        let (mut cut, mut cuts, mut refused) = (1, 0, 0);
        for seed in 0.. {
            let mut world = SimWorld::new(WorldConfig { seed, cores: 1, ..WorldConfig::default() });
            let devices = drives(&mut world, version);
            let told = Arc::new(Mutex::new((0, 0)));
            let (claimed, blank) = (found(&world, &devices, version).unwrap(), devices[4].clone());
            world.power_cut_after_ops(cut);
            let outcome = world.run({
                let told = told.clone();
                move |core| life(core, claimed, blank, told, version == Version::V090)
            });
            world.cancel_power_cut();
            let done = match outcome {
                RunOutcome::PowerCut => false,
                outcome => {
                    outcome.expect_done();
                    true
                }
            };
            let (sure, begun) = *told.lock().unwrap();
            match found(&world, &devices, version) {
                // Dirty, degraded and without a log: the policy refuses.
                Err(why) => {
                    let policy = why.contains("DirtyDegraded") && !why.contains("SplitBrain");
                    assert!(policy, "{version}, cut at {cut}: {why}");
                    refused += 1;
                }
                Ok(claimed) => {
                    let read = world.run(move |core| async move {
                        let started = claimed.launch(&core).await.unwrap();
                        let volume = started.handle.volume().open(&core).unwrap();
                        let (result, buf) = volume.read(0, BufMut::alloc(DATA_BYTES)).await;
                        result.map(|()| buf.to_vec())
                    });
                    let read =
                        read.expect_done().unwrap_or_else(|error| panic!("{version}, cut at {cut}: {error}"));
                    for (sector, found) in read.chunks(512).enumerate() {
                        let of = |seed: u8| match seed {
                            0 => vec![0; 512],
                            seed => bytes(seed)[512 * sector..512 * (sector + 1)].to_vec(),
                        };
                        let right = found == of(sure) || found == of(begun);
                        assert!(
                            right,
                            "{version}, cut at {cut}: sector {sector}, {sure} or {begun}: {found:?}"
                        );
                    }
                }
            }
            if done {
                break;
            }
            cuts += 1;
            // Four worlds for each operation.
            cut += u64::from(seed % 4 == 3);
        }
        assert!(cuts > 200 && 2 * refused < cuts, "{version}: {cuts} cuts, {refused} refused");
    }
}

/// What was known to be bad when the power went, and not on its way to be good again, is known
/// to be bad at the next start; and nothing is called bad that never was.
#[test]
fn no_power_cut_forgets_a_bad_sector() {
    let ranges = |ranges: &[std::ops::Range<u64>]| -> BadRanges {
        ranges.iter().map(|range| Sector(range.start)..Sector(range.end)).collect()
    };
    let many: Vec<_> = (0..70).map(|i| 2 * i..2 * i + 1).collect();
    let steps = [
        ranges(&[8..12, 12..16]),
        ranges(&[8..16, 100..101]),
        ranges(&many),
        ranges(&many[3..]),
        ranges(&[]),
    ];
    for cut in 1.. {
        let mut world = SimWorld::new(WorldConfig { seed: cut, cores: 1, ..WorldConfig::default() });
        let devices = drives(&mut world, Version::V12);
        let claimed = found(&world, &devices, Version::V12).unwrap();
        let told = Arc::new(Mutex::new((BadRanges::NONE, BadRanges::NONE)));
        world.power_cut_after_ops(cut);
        let outcome = world.run({
            let (told, steps) = (told.clone(), steps.clone());
            async move |core: Core| {
                let books = claimed.launch(&core).await.unwrap().books.unwrap();
                for step in steps {
                    told.lock().unwrap().1 = step.clone();
                    let mut seats = books.state().seats().to_vec();
                    seats[1].bad = Arc::new(step.clone());
                    let record = ArrayRecord {
                        change: RecordCause::Members,
                        dirty: false,
                        synced_below: Sector::MAX,
                        failed: MemberSet::EMPTY,
                        seats,
                    };
                    books.commit(&record).await.unwrap();
                    *told.lock().unwrap() = (step.clone(), step);
                }
            }
        });
        let superblock =
            identify(Version::V12, &world.drive(&devices[1]).peek(4096, 4096), SECTORS).unwrap().unwrap();
        let area = world.drive(&devices[1]).peek(24 * 512, 4096);
        let listed = match superblock.features().contains(Features::BAD_BLOCKS) {
            true => in_data(&BadBlocks::decode(&area, 0).unwrap(), &(64..576)),
            false => BadRanges::NONE,
        };
        let (sure, begun) = told.lock().unwrap().clone();
        for sector in 0..512 {
            let is = |bad: &BadRanges| bad.overlaps(Sector(sector)..Sector(sector + 1));
            assert!(!(is(&sure) && is(&begun)) || is(&listed), "cut at {cut}: {sector} is forgotten");
            assert!(is(&sure) || is(&begun) || !is(&listed), "cut at {cut}: {sector} was never bad");
        }
        if outcome != RunOutcome::PowerCut {
            assert!(cut > 20 && listed.is_empty());
            return;
        }
    }
}

/// An error that passed is no reason to leave the slot empty for good.
#[test]
fn a_spare_that_was_refused_says_why_and_is_tried_again() {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
    let devices = drives(&mut world, Version::V12);
    let spare = world.drive(&devices[3]);
    let claimed = found(&world, &devices[..4], Version::V12).unwrap();
    let run = world.run(async move |core: Core| {
        let started = claimed.launch(&core).await.unwrap();
        let array = RunningArray::new(&core, &MemberAccess::local(), "t", started);
        core.spawn(keep(array.clone()));
        let refused = || array.spares().into_iter().next().map(|(_, why)| why.is_some());
        assert_eq!(refused(), Some(false));
        spare.fail_next_reads(u64::MAX);
        array.fail("1").await.unwrap();
        core.sleep(Duration::from_secs(600)).await;
        assert_eq!((array.handle().status(&core).await.degraded, refused()), (1, Some(true)));
        let told = array.events(0).into_iter();
        let told = told.filter(|told| matches!(told.event, ArrayEvent::SpareRefused { .. })).count();
        assert_eq!(told, 1, "once for each reason");
        spare.fail_next_reads(0);
        core.sleep(Duration::from_secs(1200)).await;
        let degraded = array.handle().status(&core).await.degraded;
        assert_eq!((degraded, array.spares()), (0, Vec::new()));
        array.handle().stop(&core).await.unwrap();
    });
    run.expect_done();
}

/// The drive took the sectors back: what redundancy says was there is written, and nothing is
/// bad any more.
#[test]
fn bad_sectors_are_verified_and_cleared() {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
    let devices = drives(&mut world, Version::V12);
    let superblock_of = |world: &SimWorld| {
        identify(Version::V12, &world.drive(&devices[1]).peek(4096, 4096), SECTORS).unwrap().unwrap()
    };
    let claimed = found(&world, &devices, Version::V12).unwrap();
    let run = world.run(async move |core: Core| {
        let started = claimed.launch(&core).await.unwrap();
        let volume = started.handle.volume().open(&core).unwrap();
        volume.write(0, Buf::copy_of(&bytes(1)), Durability::Fua).await.unwrap();
        let books = started.books.unwrap();
        let mut seats = books.state().seats().to_vec();
        seats[1].bad = Arc::new([Sector(8)..Sector(24)].into_iter().collect());
        let record = ArrayRecord {
            change: RecordCause::Members,
            dirty: false,
            synced_below: Sector::MAX,
            failed: MemberSet::EMPTY,
            seats,
        };
        books.commit(&record).await.unwrap();
    });
    run.expect_done();
    world.drive(&devices[1]).poke((64 + 8) * 512, &[0xee; 16 * 512]);
    assert!(superblock_of(&world).features().contains(Features::BAD_BLOCKS));
    let claimed = found(&world, &devices, Version::V12).unwrap();
    let run = world.run(async move |core: Core| {
        let array =
            RunningArray::new(&core, &MemberAccess::local(), "t", claimed.launch(&core).await.unwrap());
        let before = array.handle().status(&core).await.members[1].bad_sectors;
        let left = array.clear_bad_blocks("1", || true, || ()).await.unwrap();
        let again = array.clear_bad_blocks("1", || true, || ()).await.unwrap();
        array.handle().stop(&core).await.unwrap();
        (before, left, again)
    });
    assert_eq!(run.expect_done(), (16, 0, 0));
    assert!(!superblock_of(&world).features().contains(Features::BAD_BLOCKS));
    assert_ne!(world.drive(&devices[1]).peek((64 + 8) * 512, 512), [0xee; 512]);
}
