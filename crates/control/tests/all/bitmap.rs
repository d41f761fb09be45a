//! The copies of a write-intent bitmap, with the power cut at every operation: what each copy that
//! counts as fresh says is true.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use wattle_control::ArrayId;
use wattle_control::bitmap::{
    BitmapBits, BitmapCopies, BitmapPlace, BitmapUnusable, FullReason, ReAddCost, re_add,
};
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{MemberKey, Regions};
use wattle_format::md::bitmap::{self, HEADER_BYTES, Header, NewBitmap};
use wattle_format::md::create::{self, NewArray};
use wattle_format::md::defaults::{self, WriteHoleRoom};
use wattle_format::md::{
    DeviceFields, DeviceFlags, DeviceRole, Features, Superblock, Timestamp, Uuid, Version,
};
use wattle_rt::{Core, Device, DriveConfig, Rng, RunOutcome, SimWorld, WorldConfig};

const UUID: [u8; 16] = [7; 16];
/// 12000 regions of 4 KiB: four blocks of 512 bytes.
const COVERED: Sector = Sector(96_000);
const REGION: Sector = Sector(8);
const OFFSET: u64 = 8192;

fn drives(world: &mut SimWorld, count: usize, sector_bytes: u32, events: u64) -> Vec<Device> {
    let new = NewBitmap {
        uuid: UUID,
        sync_size_sectors: COVERED.0,
        chunk_bytes: 4096,
        daemon_sleep_secs: 5,
        write_behind: 0,
    };
    let mut image = bitmap::new_image(&new, 8192).unwrap();
    let mut header = Header::decode(&image).unwrap();
    header.set_events(events);
    image[..HEADER_BYTES].copy_from_slice(header.bytes());
    image[HEADER_BYTES..].fill(0);
    let drive = |world: &mut SimWorld| {
        let config = DriveConfig { size_bytes: 1 << 16, sector_bytes, ..DriveConfig::default() };
        let device = world.add_drive(config);
        world.drive(&device).poke(OFFSET, &image);
        device
    };
    (0..count).map(|_| drive(world)).collect()
}

fn place(device: &Device) -> BitmapPlace {
    BitmapPlace { device: device.clone(), offset_bytes: OFFSET, room_bytes: 8192 }
}

fn in_use(count: usize) -> Vec<(MemberIx, MemberKey)> {
    (0..count).map(|ix| (MemberIx(ix as u16), MemberKey(ix as u32))).collect()
}

fn bits(set: &[u64], events_cleared: u64) -> BitmapBits {
    let mut regions = Regions::new(REGION, COVERED);
    set.iter().for_each(|&region| regions.insert(region));
    BitmapBits { regions, events_cleared, stale: false }
}

async fn open(core: &Core, devices: &[Device], bits: &BitmapBits) -> BitmapCopies {
    let members = (0..).zip(devices).map(|(key, device)| (MemberKey(key), Some(place(device)), true));
    BitmapCopies::open(core, members.collect(), &UUID, bits).await.unwrap()
}

/// A copy as the next start finds it.
fn copy(world: &SimWorld, device: &Device) -> (Header, BTreeSet<u64>) {
    let bytes = world.drive(device).peek(OFFSET, 8192);
    let header = Header::decode(&bytes).expect("a header is never torn");
    let set = bitmap::ones(&bytes[HEADER_BYTES..], header.bits().unwrap()).collect();
    (header, set)
}

/// What must hold whenever the power goes.
#[derive(Debug, Default, Clone)]
struct Truth {
    /// Marked, and not about to be cleared.
    set: BTreeSet<u64>,
    /// The generation that superblocks may have.
    events: u64,
    /// Regions that may be cleared, and the generation in which they were.
    cleared: Vec<(u64, u64)>,
}

async fn life(core: Core, devices: Vec<Device>, truth: Rc<RefCell<Truth>>, seed: u64) {
    let mut rng = Rng::new(seed);
    let copies = open(&core, &devices, &bits(&[], 3)).await;
    let members = in_use(devices.len());
    for _ in 0..12 {
        match rng.below(4) {
            0 => {
                let events = copies.bits().events_cleared.max(truth.borrow().events) + 1;
                assert_eq!(copies.commit(&members, events).await, Ok(()));
                truth.borrow_mut().events = events;
            }
            1 | 2 => {
                let regions: Vec<_> = (0..1 + rng.below(4)).map(|_| rng.below(12_000)).collect();
                assert_eq!(copies.mark(&members, &regions).await, Ok(()));
                truth.borrow_mut().set.extend(regions);
            }
            _ => {
                let mut regions: Vec<_> = truth.borrow().set.iter().copied().collect();
                regions.truncate(1 + rng.below(4) as usize);
                {
                    let mut truth = truth.borrow_mut();
                    let events = truth.events;
                    for region in &regions {
                        truth.set.remove(region);
                        truth.cleared.push((*region, events));
                    }
                }
                assert_eq!(copies.unmark(&members, &regions).await, Ok(()));
            }
        }
        assert_eq!(copies.bits().regions.iter().collect::<BTreeSet<_>>(), truth.borrow().set);
    }
}

#[test]
fn whenever_the_power_goes_every_copy_has_the_bits_and_knows_what_it_forgot() {
    let mut cuts = 0;
    for seed in 0..30 {
        for cut in 1.. {
            let sector_bytes = if seed % 3 == 0 { 4096 } else { 512 };
            let mut world = SimWorld::new(WorldConfig { seed, ..WorldConfig::default() });
            let devices = drives(&mut world, 3, sector_bytes, 3);
            let truth = Rc::new(RefCell::new(Truth { events: 3, ..Truth::default() }));
            let (ours, of_life) = (devices.clone(), truth.clone());
            world.power_cut_after_ops(cut);
            let ended = world.run(async move |core: Core| life(core, ours, of_life, seed).await);
            let truth = truth.borrow();
            for device in &devices {
                let (header, set) = copy(&world, device);
                assert!(
                    header.is_fresh(truth.events),
                    "seed {seed} cut {cut}: {header:?} is stale: {truth:?}"
                );
                let lost: Vec<_> = truth.set.difference(&set).collect();
                assert!(lost.is_empty(), "seed {seed} cut {cut}: bits {lost:?} are lost");
                for (region, events) in &truth.cleared {
                    // Marked once more since, or not cleared here yet; else a member that left
                    // before must not be taken for whole.
                    let known = set.contains(region) || header.events_cleared() >= *events;
                    assert!(known, "seed {seed} cut {cut}: {region} was cleared at {events} in {header:?}");
                }
            }
            if ended == RunOutcome::Done(()) {
                break;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 1000, "{cuts} cuts");
}

/// A copy that is behind, or all of them after the bitmap was found stale, is written whole, and
/// counts as fresh only then.
#[test]
fn a_copy_that_is_made_level_is_stale_until_it_is_whole() {
    for seed in 0..40 {
        for cut in 1.. {
            let mut world = SimWorld::new(WorldConfig { seed, ..WorldConfig::default() });
            let devices = drives(&mut world, 2, 512, 3);
            // The second one is as a spare's: a header of long ago, and no bits.
            world.power_cut_after_ops(cut);
            let ours = devices.clone();
            let stale =
                BitmapBits { regions: Regions::full(REGION, COVERED), events_cleared: 9, stale: true };
            let ended = world.run(async move |core: Core| {
                let copies = open(&core, &ours, &stale).await;
                copies.commit(&in_use(2), 10).await
            });
            for device in &devices {
                let (header, set) = copy(&world, device);
                let whole = set.len() as u64 == 12_000 && header.events_cleared() == 9;
                assert!(
                    !header.is_fresh(9) || whole,
                    "seed {seed} cut {cut}: {} bits in {header:?}",
                    set.len()
                );
                assert!(ended == RunOutcome::PowerCut || header.is_fresh(10));
            }
            if ended == RunOutcome::Done(Ok(())) {
                break;
            }
            assert_eq!(ended, RunOutcome::PowerCut);
        }
    }
}

#[test]
fn a_member_that_was_not_in_use_gets_all_of_it_when_it_is() {
    let mut world = SimWorld::new(WorldConfig::default());
    let devices = drives(&mut world, 3, 512, 3);
    let (ours, spare) = (devices.clone(), world.drive(&devices[2]));
    spare.poke(OFFSET, &[0xee; 8192]);
    world
        .run(async move |core: Core| {
            let copies = open(&core, &ours[..2], &bits(&[1, 5000], 2)).await;
            copies.commit(&in_use(2), 4).await.unwrap();
            copies.mark(&in_use(2), &[11_999]).await.unwrap();
            assert_eq!(
                copies.commit(&in_use(3), 5).await,
                Err([MemberIx(2)].into_iter().collect()),
                "nobody said where its bitmap is"
            );
            copies.add(MemberKey(2), place(&ours[2])).unwrap();
            copies.commit(&in_use(3), 6).await.unwrap();
            // Out of use and back again: it missed a bit.
            copies.mark(&in_use(2), &[77]).await.unwrap();
            copies.mark(&in_use(3), &[78]).await.unwrap();
        })
        .expect_done();
    let first = copy(&world, &devices[0]);
    assert_eq!(first.1, BTreeSet::from([1, 77, 78, 5000, 11_999]));
    assert_eq!((first.0.events(), first.0.events_cleared()), (6, 2));
    assert!(devices.iter().all(|device| copy(&world, device) == first));
    let tail = |device: &Device| world.drive(device).peek(OFFSET + HEADER_BYTES as u64 + 1500, 30);
    assert_eq!(tail(&devices[2]), vec![0xff; 30], "ones behind the last bit, as mdadm leaves them");
}

/// Nothing is written that need not be: one block for one bit, nothing at all for a generation that
/// is there already.
#[test]
fn one_bit_is_one_block() {
    for (sector_bytes, block) in [(512, 512), (4096, 4096)] {
        let mut world = SimWorld::new(WorldConfig::default());
        let devices = drives(&mut world, 2, sector_bytes, 3);
        let controls: Vec<_> = devices.iter().map(|device| world.drive(device)).collect();
        controls.iter().for_each(wattle_rt::DriveControl::record_writes);
        let logs = move || {
            let of = |control: &wattle_rt::DriveControl| {
                control.take_write_log().iter().map(|w| (w.offset_bytes, w.len_bytes)).collect::<Vec<_>>()
            };
            let [first, second] = [of(&controls[0]), of(&controls[1])];
            assert_eq!(first, second, "copies are alike");
            first
        };
        world
            .run(async move |core: Core| {
                let copies = open(&core, &devices, &bits(&[], 0)).await;
                copies.commit(&in_use(2), 3).await.unwrap();
                assert_eq!(logs(), [], "as it is on the members");
                copies.commit(&in_use(2), 4).await.unwrap();
                assert_eq!(logs(), [(OFFSET, block)], "the header's block");
                copies.mark(&in_use(2), &[11_000]).await.unwrap();
                let at = OFFSET + (HEADER_BYTES as u64 + 11_000 / 8) / block * block;
                assert_eq!(logs(), [(at, block)]);
                copies.unmark(&in_use(2), &[11_000]).await.unwrap();
                let expected =
                    if at == OFFSET { vec![(at, block)] } else { vec![(OFFSET, block), (at, block)] };
                assert_eq!(logs(), expected, "first what was forgotten, unless one block says both");
            })
            .expect_done();
    }
}

#[test]
fn members_that_cannot_be_written_are_named() {
    let mut world = SimWorld::new(WorldConfig::default());
    let devices = drives(&mut world, 3, 512, 3);
    let control = world.drive(&devices[1]);
    world
        .run(async move |core: Core| {
            let copies = open(&core, &devices, &bits(&[], 0)).await;
            control.fail_next_writes(1);
            let second = Err([MemberIx(1)].into_iter().collect());
            assert_eq!(copies.mark(&in_use(3), &[9]).await, second);
            control.fail_next_writes(1);
            assert_eq!(copies.commit(&in_use(3), 4).await, second);
            assert_eq!(copies.commit(&in_use(3), 4).await, Ok(()), "and written whole when it is used again");
        })
        .expect_done();
}

#[test]
fn a_bitmap_without_a_copy_or_without_room_is_not_kept() {
    let mut world = SimWorld::new(WorldConfig::default());
    let devices = drives(&mut world, 2, 512, 3);
    world
        .run(async move |core: Core| {
            let open = |uuid: [u8; 16], room_bytes: u64, in_sync: bool| {
                let place = BitmapPlace { room_bytes, ..place(&devices[0]) };
                let members = vec![(MemberKey(0), Some(place), in_sync)];
                let core = core.clone();
                async move {
                    BitmapCopies::open(&core, members, &uuid, &bits(&[], 0))
                        .await
                        .map(|copies| copies.spec().sweep)
                }
            };
            assert_eq!(open(UUID, 8192, true).await, Ok(std::time::Duration::from_secs(5)));
            assert_eq!(open([8; 16], 8192, true).await, Err(BitmapUnusable::NoCopy), "another array's");
            assert_eq!(open(UUID, 8192, false).await, Err(BitmapUnusable::NoCopy), "nobody in sync has one");
            let no_room = BitmapUnusable::NoRoom { need_bytes: 256 + 1500, room_bytes: 1024 };
            assert_eq!(open(UUID, 1024, true).await, Err(no_room));
        })
        .expect_done();
}

fn member(version: Version, slot: u16, events: u64) -> (Superblock, u64) {
    let sectors = 1 << 21;
    let data_offset_sectors = defaults::data_offset_sectors(version, sectors, 0, false);
    let usable = defaults::usable_sectors(version, sectors, data_offset_sectors, false);
    let size_sectors = defaults::component_size_sectors(version, 1, usable, 0);
    let room = if version == Version::V090 { 120 } else { defaults::bitmap_space_sectors(size_sectors) };
    let chunk = defaults::smallest_bitmap_chunk_bytes(size_sectors, room).unwrap();
    let guard = WriteHoleRoom::Bitmap { bytes: defaults::bitmap_bytes(size_sectors, chunk) };
    let areas = defaults::areas(version, sectors, size_sectors, guard).unwrap();
    let array = NewArray {
        version,
        set_uuid: Uuid(UUID),
        name: b"host:t".to_vec(),
        ctime: Timestamp { secs: 1000, micros: 0 },
        level: 1,
        layout: 0,
        chunk_sectors: 0,
        raid_disks: 2,
        size_sectors,
        resync_offset: u64::MAX,
        roles: vec![DeviceRole::Active(0), DeviceRole::Active(1)],
        bitmap_offset_sectors: areas.bitmap_offset_sectors,
        ppl: None,
        features: Features::default(),
        md_minor: 0,
        nodes: Vec::new(),
    };
    let device = DeviceFields {
        dev_number: u32::from(slot),
        device_uuid: Uuid([1; 16]),
        super_offset_sectors: areas.super_offset_sectors,
        data_offset_sectors,
        data_size_sectors: usable,
        recovery_offset: None,
        replacement: false,
        bad_block_log: areas.bad_block_log,
        flags: DeviceFlags::default(),
    };
    let mut superblock = create::superblock(&array, &device, sectors).unwrap();
    superblock.set_events(events);
    (superblock, defaults::bitmap_bytes(size_sectors, chunk))
}

/// Every version's superblock names a place that holds the finest bitmap mdadm would make there,
/// and that ends before anything else begins.
#[test]
fn places_of_every_version() {
    let device = Device::mem(1 << 30);
    for version in Version::ALL {
        let (superblock, bytes) = member(version, 0, 1);
        let place = BitmapPlace::of(&device, &superblock).unwrap_or_else(|| panic!("{version} has a place"));
        assert!(place.room_bytes >= bytes, "{version}: {place:?} for {bytes}");
        let end = (place.offset_bytes + place.room_bytes) / 512;
        let log =
            superblock.bad_block_log().map(|area| superblock.sector_from_superblock(area.offset_sectors));
        let start = place.offset_bytes / 512;
        for other in [log.flatten(), Some(superblock.found_at_sectors())].into_iter().flatten() {
            assert!(other < start || end <= other, "{version}: {start}..{end} reaches {other}");
        }
        assert!(
            superblock.data_offset_sectors() >= end || start >= superblock.data_size_sectors(),
            "{version}"
        );
    }
    let (mut inside, _) = member(Version::V12, 0, 1);
    inside.set_bitmap_offset(Some(inside.data_offset_sectors() as i32)).unwrap();
    assert!(BitmapPlace::of(&device, &inside).is_none(), "in the data");
    let (mut none, _) = member(Version::V12, 0, 1);
    none.set_bitmap_offset(None).unwrap();
    assert!(BitmapPlace::of(&device, &none).is_none());
}

/// docs/formats.md §2.5.
#[test]
fn who_comes_back_with_what() {
    let known = bits(&[3, 4], 20);
    let back = |superblock: &Superblock, bits: &BitmapBits| re_add(superblock, 1, 30, bits);
    for events in [20, 25, 30] {
        let (member, _) = member(Version::V12, 1, events);
        assert_eq!(back(&member, &known), ReAddCost::Regions(known.regions.clone()), "event {events}");
    }
    let (old, _) = member(Version::V12, 1, 19);
    assert_eq!(back(&old, &known), ReAddCost::Full(FullReason::Forgotten { events: 19, events_cleared: 20 }));
    let (ahead, _) = member(Version::V12, 1, 31);
    assert_eq!(back(&ahead, &known), ReAddCost::Full(FullReason::Ahead { events: 31, array_events: 30 }));
    let (other, _) = member(Version::V12, 0, 30);
    assert_eq!(back(&other, &known), ReAddCost::Full(FullReason::OtherSlot));
    let (whole, _) = member(Version::V12, 1, 30);
    assert_eq!(
        back(&whole, &BitmapBits { stale: true, ..known.clone() }),
        ReAddCost::Full(FullReason::Stale)
    );
    let mut partial = whole;
    partial.set_recovery_offset(Some(800)).unwrap();
    assert_eq!(back(&partial, &known), ReAddCost::Full(FullReason::Partial));
    partial.add_features(Features::RECOVERY_BITMAP).unwrap();
    assert_eq!(
        back(&partial, &known),
        ReAddCost::Regions(known.regions.clone()),
        "it was coming back by the bitmap"
    );
}

/// Creates an array with a bitmap on files, keeps it as a running array does, and finds what was
/// kept.
#[test]
fn what_is_created_is_kept_and_found_again() {
    use wattle_control::create::{Consistency, CreateRequest, inspect, plan};
    use wattle_control::members::MemberAccess;
    use wattle_control::{Claim, Forced, scan::scan};
    use wattle_engine::geometry::Level;
    use wattle_rt::{RuntimeConfig, WallTime};

    let levels = [(Level::Raid1, 2_u32), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4)];
    for (version, (level, count)) in
        Version::ALL.into_iter().flat_map(|version| levels.into_iter().map(move |level| (version, level)))
    {
        for chunk_bytes in [None, Some(8192)] {
            let what = format!("{level} {version} {chunk_bytes:?}");
            let dir = tempfile::tempdir().unwrap();
            let file = |ix| {
                let path = dir.path().join(format!("d{ix}"));
                std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
                path.to_str().unwrap().to_owned()
            };
            let names: Vec<_> = (0..count).map(file).collect();
            let request = CreateRequest {
                bitmap_sweep_secs: None,
                write_mostly: Vec::new(),
                name: "host:t".to_owned(),
                level,
                members: MemberAccess::local().look_all(&names).unwrap().into_iter().map(Some).collect(),
                spares: Vec::new(),
                version,
                chunk_bytes: (level != Level::Raid1).then_some(65536),
                layout: None,
                data_offset_bytes: None,
                size_bytes: None,
                assume_clean: false,
                consistency: Consistency::Bitmap { chunk_bytes },
                forced: Forced::default(),
                set_uuid: Uuid(UUID),
                now: WallTime { secs: 1_700_000_000, micros: 0 },
            };
            let states: Vec<_> =
                request.members.iter().flatten().map(|member| inspect(member).unwrap()).collect();
            let plan = plan(&request, &states).unwrap();
            plan.execute(&plan.claim(&states).unwrap()).unwrap();

            let found = scan(MemberAccess::local().look_all(&names).unwrap(), Forced::default()).unwrap();
            let bitmap = found.arrays[ArrayId::nth(0)]
                .assembly
                .bitmap
                .clone()
                .unwrap_or_else(|| panic!("{what}: no bitmap"));
            let region_sectors = chunk_bytes.unwrap_or(64 << 20) / 512;
            assert_eq!(bitmap.set.size(), Sector(region_sectors), "{what}");
            // As mdadm makes it, the bitmap of 0.90 is one event behind from the start; with all
            // ones that says nothing new.
            assert_eq!(bitmap.distrust.is_some(), version == Version::V090, "{what}");
            assert_eq!(bitmap.set.len(), bitmap.set.count(), "{what}: a new bitmap is all ones");

            let members: Vec<_> = (0..)
                .zip(&found.members)
                .map(|(key, member)| {
                    let device = member.member.claim(Claim::Write).unwrap().device;
                    let place = BitmapPlace::of(&device, member.superblock().unwrap());
                    assert!(place.is_some(), "{what}: no place");
                    (MemberKey(key), place, true)
                })
                .collect();
            let uuid = found.members.iter().next().unwrap().superblock().unwrap().stored_uuid();
            let (before, bits) =
                (found.arrays[ArrayId::nth(0)].assembly.array.events, BitmapBits::from(&bitmap));
            let in_use = in_use(members.len());
            let last = bits.regions.count() - 1;
            wattle_rt::run(RuntimeConfig::default(), move |core| async move {
                let copies = BitmapCopies::open(&core, members, &uuid, &bits).await.unwrap();
                assert_eq!(copies.spec().marked, bits.regions);
                copies.commit(&in_use, before + 1).await.unwrap();
                copies.unmark(&in_use, &bits.regions.iter().collect::<Vec<_>>()).await.unwrap();
                copies.mark(&in_use, &[last]).await.unwrap();
            })
            .unwrap();
            let found = scan(MemberAccess::local().look_all(&names).unwrap(), Forced::default()).unwrap();
            let bitmap = found.arrays[ArrayId::nth(0)].assembly.bitmap.clone().unwrap();
            assert_eq!(bitmap.set.iter().collect::<Vec<_>>(), [last], "{what}");
            assert_eq!((bitmap.distrust, bitmap.events_cleared), (None, before + 1), "{what}");
        }
    }
}
