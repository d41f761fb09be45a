//! Maps of volumes against plain arrays of bytes: segments out of order, stripes over several
//! arrays, maps on maps, arrays on maps, growth under a client. Virtual time, fixed seeds.

use wattle_engine::geometry::Level;
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::volume::{Leg, MapSegment, SegmentTarget, StartMappedError, VolumeMapError};
use wattle_engine::{
    ArrayHandle, ArraySpec, MapSpec, MappedHandle, Volume, VolumeError, VolumeExtent, VolumeRef,
};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, Device, DriveConfig, Durability, Rng, RunOutcome, SimWorld, Unmap, WorldConfig,
};

use crate::support::members::in_sync;
use crate::support::plain::plain;

const MEMBER_SECTORS: u64 = 512;

fn spec(name: &str, level: Level, chunk: u64, members: &[Device]) -> ArraySpec {
    let geometry = plain(level, members.len(), chunk, members[0].size_bytes() / 512);
    ArraySpec::new(name, geometry, in_sync(members, Sector(0), &[]))
}

async fn start(core: &Core, spec: ArraySpec) -> ArrayHandle {
    ArrayHandle::start(core, spec, Box::new(NoMetadata)).await
}

/// Runs `main` with a RAID 5 of three drives and a RAID 1 of two.
fn with_arrays(cores: usize, seed: u64, main: impl AsyncFnOnce(Core, [ArrayHandle; 2]) + 'static) {
    let mut world = SimWorld::new(WorldConfig { seed, cores, ..WorldConfig::default() });
    let mut drive = |name: &str| {
        let (size_bytes, name) = (MEMBER_SECTORS * 512, name.to_owned());
        world.add_drive(DriveConfig { size_bytes, name, ..DriveConfig::default() })
    };
    let five = ["a0", "a1", "a2"].map(&mut drive);
    let one = ["b0", "b1"].map(&mut drive);
    let outcome = world.run(async move |core: Core| {
        let five = start(&core, spec("five", Level::Raid5, 8, &five)).await;
        let one = start(&core, spec("one", Level::Raid1, 0, &one)).await;
        main(core.clone(), [five.clone(), one.clone()]).await;
        five.stop(&core).await.unwrap();
        one.stop(&core).await.unwrap();
    });
    assert!(matches!(outcome, RunOutcome::Done(())), "{outcome:?}");
}

const K: u64 = 1024;

fn striped(len_bytes: u64, stripe_bytes: u64, legs: &[(usize, u64)]) -> MapSegment {
    let legs = legs.iter().map(|&(below, offset_bytes)| Leg { below, offset_bytes }).collect();
    MapSegment { len_bytes, target: SegmentTarget::Striped { stripe_bytes, legs } }
}

/// Two runs of the RAID 5 out of order, a striped one over both, and one of the RAID 1.
fn segments() -> Vec<MapSegment> {
    vec![
        MapSegment::linear(64 * K, 0, 100 * K),
        MapSegment::linear(32 * K, 0, 8 * K + 512),
        striped(96 * K, 4 * K, &[(0, 200 * K), (1, 16 * K), (1, 80 * K)]),
        MapSegment::linear(24 * K, 1, 160 * K),
    ]
}

/// Where byte `at` of [`segments`] is: written out, so that it can be seen to be right.
fn place(at: u64) -> (usize, u64) {
    match at {
        at if at < 64 * K => (0, 100 * K + at),
        at if at < 96 * K => (0, 8 * K + 512 + at - 64 * K),
        at if at < 192 * K => {
            let at = at - 96 * K;
            let (row, leg, within) = (at / (12 * K), at % (12 * K) / (4 * K), at % (4 * K));
            let (below, start) = [(0, 200 * K), (1, 16 * K), (1, 80 * K)][leg as usize];
            (below, start + row * 4 * K + within)
        }
        at => (1, 160 * K + at - 192 * K),
    }
}

async fn contents(volume: &Volume) -> Vec<u8> {
    let (result, buf) = volume.read(0, BufMut::alloc(volume.size_bytes() as usize)).await;
    assert_eq!(result, Ok(()));
    buf.to_vec()
}

async fn scribble(core: &Core, volume: &Volume, model: &mut [u8], rng: &mut Rng, requests: usize) {
    let size = model.len() as u64;
    for _ in 0..requests {
        let block = if rng.below(8) == 0 { 1 } else { 512 };
        let start = rng.below(size / block) * block;
        let len = ((1 + rng.below(60)) * block).min(size - start);
        let range = start as usize..(start + len) as usize;
        match rng.below(10) {
            0..4 => {
                let (result, buf) = volume.read(start, BufMut::alloc(len as usize)).await;
                assert_eq!(result, Ok(()));
                assert!(buf[..] == model[range.clone()], "read of {range:?} differs");
            }
            4..8 => {
                let mut buf = BufMut::alloc(len as usize);
                rng.fill(&mut buf);
                model[range].copy_from_slice(&buf);
                let fua = if rng.coin() { Durability::Fua } else { Durability::Cached };
                assert_eq!(volume.write(start, buf.freeze(), fua).await, Ok(()));
            }
            8 => {
                model[range].fill(0);
                let zeroed = volume.write_zeroes(start, len, Unmap::Yes, Durability::Cached).await;
                assert_eq!(zeroed, Ok(()));
            }
            _ => assert_eq!(volume.flush().await, Ok(())),
        }
        core.yield_now().await;
    }
}

async fn mapped(core: &Core, below: Vec<VolumeRef>, segments: Vec<MapSegment>) -> MappedHandle {
    let spec = MapSpec { below, segments, read_only: false };
    MappedHandle::start(core, "lv", spec).await.unwrap()
}

#[test]
fn every_byte_is_where_the_map_says() {
    for seed in 0..6 {
        with_arrays(1 + seed as usize % 3, seed, async move |core, arrays| {
            let mut rng = Rng::new(seed);
            let mut below = Vec::new();
            for array in &arrays {
                let volume = array.volume().open(&core).unwrap();
                let mut bytes = BufMut::alloc(volume.size_bytes() as usize);
                rng.fill(&mut bytes);
                below.push(bytes.to_vec());
                volume.write(0, bytes.freeze(), Durability::Cached).await.unwrap();
            }
            let lv = mapped(&core, arrays.iter().map(ArrayHandle::volume).collect(), segments()).await;
            let volume = lv.volume().open(&core).unwrap();
            assert_eq!(volume.size_bytes(), 216 * K);
            let expected = |below: &[Vec<u8>]| -> Vec<u8> {
                (0..216 * K).map(place).map(|(which, at)| below[which][at as usize]).collect()
            };
            let mut model = expected(&below);
            assert!(contents(&volume).await == model);
            scribble(&core, &volume, &mut model, &mut rng, 150).await;
            assert!(contents(&volume).await == model);
            // Below, exactly those bytes changed.
            for at in 0..216 * K {
                let (which, place) = place(at);
                below[which][place as usize] = model[at as usize];
            }
            for (array, bytes) in arrays.iter().zip(&below) {
                assert!(contents(&array.volume().open(&core).unwrap()).await == *bytes);
            }
            lv.stop(&core).await;
            let (after, _) = volume.read(0, BufMut::alloc(512)).await;
            assert_eq!(after, Err(VolumeError::Stopped));
            assert!(matches!(lv.volume().open(&core), Err(VolumeError::Stopped)));
        });
    }
}

#[test]
fn an_array_on_maps_on_a_map() {
    with_arrays(2, 7, async |core, [five, one]| {
        let outer = mapped(&core, vec![five.volume(), one.volume()], segments()).await;
        let halves = [0, 96 * K].map(|at| vec![MapSegment::linear(96 * K, 0, at)]);
        let mut members = Vec::new();
        for segments in halves {
            let half = mapped(&core, vec![outer.volume()], segments).await;
            members.push(half.volume().device(&core, "half").unwrap());
        }
        let nested = start(&core, spec("nested", Level::Raid1, 0, &members)).await;
        let volume = nested.volume().open(&core).unwrap();
        let mut model = vec![0; volume.size_bytes() as usize];
        scribble(&core, &volume, &mut model, &mut Rng::new(1), 100).await;
        assert!(contents(&volume).await == model);
        nested.stop(&core).await.unwrap();
        // Both copies are there, through the map.
        let outer = contents(&outer.volume().open(&core).unwrap()).await;
        let len = model.len();
        assert!(outer[..len] == model && outer[96 * K as usize..][..len] == model);
    });
}

#[test]
fn a_volume_grows_under_its_clients_on_every_core() {
    with_arrays(3, 9, async |core, [five, one]| {
        let below = || vec![five.volume(), one.volume()];
        let small = segments()[..2].to_vec();
        let lv = mapped(&core, below(), small.clone()).await;
        let volume = lv.volume().open(&core).unwrap();
        let beyond = volume.write(96 * K, Buf::zeros(512), Durability::Cached).await;
        assert_eq!(beyond, Err(VolumeError::OutOfRange));
        // One that cannot be changes nothing.
        let mut wrong = segments();
        wrong.push(MapSegment::linear(K, 1, 1 << 40));
        let refused = lv.remap(&core, MapSpec { below: below(), segments: wrong, read_only: false }).await;
        assert_eq!(refused, Err(StartMappedError::Map(VolumeMapError::Beyond { segment: 4 })));
        assert_eq!(volume.size_bytes(), 96 * K);
        let spec = MapSpec { below: below(), segments: segments(), read_only: false };
        lv.remap(&core, spec).await.unwrap();
        assert_eq!(volume.size_bytes(), 216 * K);
        for ix in (0..core.cores()).map(CoreIx) {
            let lv = lv.volume();
            let written = core.call(ix, move |core| async move {
                let at = (100 + ix.0 as u64) * K;
                lv.open(&core).unwrap().write(at, Buf::copy_of(&[7; 1024]), Durability::Cached).await
            });
            assert_eq!(written.await, Ok(()));
        }
        assert!(contents(&volume).await[100 * K as usize..103 * K as usize].iter().all(|&byte| byte == 7));
    });
}

/// A copy of what is at one place below goes to another, as it is done for a range that is held
/// back.
async fn copy(core: &Core, (from, from_at): (&VolumeRef, u64), (to, to_at): (&VolumeRef, u64), len: u64) {
    let (from, to) = (from.open(core).unwrap(), to.open(core).unwrap());
    let (result, bytes) = from.read(from_at, BufMut::alloc(len as usize)).await;
    assert_eq!(result, Ok(()));
    to.write(to_at, bytes.freeze(), Durability::Cached).await.unwrap();
}

#[test]
fn ranges_move_under_a_client_on_every_core() {
    for seed in 20..26 {
        with_arrays(2, seed, async move |core, [five, one]| {
            let below = [five.volume(), one.volume()];
            let lv = mapped(&core, below.to_vec(), segments()).await;
            let clients: Vec<_> = (0..2)
                .map(|ix| {
                    let lv = lv.volume();
                    // Each has a volume of its own to write: half of this one, by a map on it.
                    core.call(CoreIx(ix), move |core| async move {
                        let half = vec![MapSegment::linear(108 * K, 0, ix as u64 * 108 * K)];
                        let half = mapped(&core, vec![lv], half).await;
                        let volume = half.volume().open(&core).unwrap();
                        let mut model = vec![0; 108 * 1024];
                        volume.write_zeroes(0, 108 * K, Unmap::No, Durability::Cached).await.unwrap();
                        scribble(&core, &volume, &mut model, &mut Rng::new(seed * 2 + ix as u64), 400).await;
                        model
                    })
                })
                .collect();
            let clients: Vec<_> = clients.into_iter().map(|client| core.spawn(client)).collect();
            // The last segment and the first 4 KiB of the first one go there and back.
            let bytes = [192 * K..216 * K, 0..4 * K];
            let homes = [[(1, 160 * K), (0, 44 * K)], [(0, 100 * K), (1, 0)]];
            let mut at = [homes[0][0], homes[1][0]];
            for (round, part) in (1..=12).flat_map(|round| [(round, 0), (round, 1)]) {
                let (from, to) = (at[part], homes[part][round % 2]);
                lv.hold(&core, bytes[part].clone()).await.unwrap();
                let len = bytes[part].end - bytes[part].start;
                copy(&core, (&below[from.0], from.1), (&below[to.0], to.1), len).await;
                at[part] = to;
                let mut map = segments();
                map[3] = MapSegment::linear(24 * K, at[0].0, at[0].1);
                map[0] = MapSegment::linear(60 * K, 0, 104 * K);
                map.insert(0, MapSegment::linear(4 * K, at[1].0, at[1].1));
                lv.remap(&core, MapSpec { below: below.to_vec(), segments: map, read_only: false })
                    .await
                    .unwrap();
            }
            let mut model = Vec::new();
            for client in clients {
                model.extend(client.await);
            }
            assert!(contents(&lv.volume().open(&core).unwrap()).await == model, "seed {seed}");
        });
    }
}

#[test]
fn what_is_missing_is_refused_and_nothing_else() {
    with_arrays(1, 11, async |core, [five, _]| {
        let missing = MapSegment { len_bytes: 8 * K, target: SegmentTarget::Missing };
        let spec = MapSpec {
            below: vec![five.volume()],
            segments: vec![MapSegment::linear(8 * K, 0, 0), missing, MapSegment::linear(8 * K, 0, 8 * K)],
            read_only: false,
        };
        let lv = MappedHandle::start(&core, "partial", spec).await.unwrap();
        let volume = lv.volume().open(&core).unwrap();
        assert_eq!(volume.write(4 * K, Buf::copy_of(&[1; 4096]), Durability::Cached).await, Ok(()));
        // Neither half of a request across the gap is done.
        let across = volume.write(4 * K, Buf::copy_of(&[2; 8192]), Durability::Cached).await;
        assert_eq!(across, Err(VolumeError::Missing));
        let (there, buf) = volume.read(4 * K, BufMut::alloc(4096)).await;
        assert!(there == Ok(()) && buf.iter().all(|&byte| byte == 1));
        assert_eq!(volume.read(7 * K, BufMut::alloc(2048)).await.0, Err(VolumeError::Missing));
        assert_eq!(volume.read(16 * K, BufMut::alloc(8192)).await.0, Ok(()));
        assert_eq!(volume.discard(8 * K, K).await, Err(VolumeError::Missing));
    });
}

#[test]
fn what_is_nowhere_is_known_to_be_zeros() {
    with_arrays(2, 14, async |core, [five, _]| {
        let zero = MapSegment { len_bytes: 8 * K, target: SegmentTarget::Zero };
        let segments =
            vec![MapSegment::linear(4 * K, 0, 0), zero.clone(), zero, MapSegment::linear(4 * K, 0, 4 * K)];
        let spec = MapSpec { below: vec![five.volume()], segments, read_only: true };
        let handle = MappedHandle::start(&core, "thin", spec).await.unwrap();
        let volume = handle.volume().open(&core).unwrap();
        let run = |len_bytes, is_zero| VolumeExtent { len_bytes, is_zero };
        let whole = vec![run(4 * K, false), run(16 * K, true), run(4 * K, false)];
        assert_eq!(volume.extents(0, 24 * K).await, Ok(whole));
        assert_eq!(volume.extents(5 * K, 512).await, Ok(vec![run(512, true)]));
        assert_eq!(volume.extents(4 * K - 100, 200).await, Ok(vec![run(100, false), run(100, true)]));
        for (offset, len) in [(0, 0), (24 * K, 1), (u64::MAX, 2)] {
            assert_eq!(volume.extents(offset, len).await, Err(VolumeError::OutOfRange));
        }
        handle.stop(&core).await;
        assert_eq!(volume.extents(0, 512).await, Err(VolumeError::Stopped));
    });
}

#[test]
fn maps_that_cannot_be_are_refused() {
    with_arrays(1, 13, async |core, [five, _]| {
        let size = five.volume().size_bytes();
        let zero = MapSegment { len_bytes: K, target: SegmentTarget::Zero };
        let cases = [
            (MapSegment::linear(0, 0, 0), VolumeMapError::Length { segment: 0 }),
            (MapSegment::linear(100, 0, 0), VolumeMapError::Length { segment: 0 }),
            (MapSegment::linear(K, 0, size), VolumeMapError::Beyond { segment: 0 }),
            (MapSegment::linear(K, 0, u64::MAX - 511), VolumeMapError::Beyond { segment: 0 }),
            (MapSegment::linear(K, 0, 100), VolumeMapError::Beyond { segment: 0 }),
            (MapSegment::linear(K, 1, 0), VolumeMapError::Beyond { segment: 0 }),
            (striped(12 * K, 4 * K, &[(0, 0), (0, 64 * K)]), VolumeMapError::Length { segment: 0 }),
            (striped(8 * K, 0, &[(0, 0)]), VolumeMapError::Length { segment: 0 }),
            (striped(8 * K, 4 * K, &[]), VolumeMapError::Length { segment: 0 }),
            (striped(8 * K, 1 << 63, &[(0, 0), (0, 0)]), VolumeMapError::Length { segment: 0 }),
            (striped(8 * K, 4 * K, &[(0, 0), (0, size - K)]), VolumeMapError::Beyond { segment: 0 }),
            (zero, VolumeMapError::Nowhere { segment: 0 }),
        ];
        for (segment, error) in cases {
            let spec =
                MapSpec { below: vec![five.volume()], segments: vec![segment.clone()], read_only: false };
            let refused = MappedHandle::start(&core, "no", spec).await.err();
            assert_eq!(refused, Some(StartMappedError::Map(error)), "{segment:?}");
        }
    });
}

#[test]
fn topology_follows_from_below_where_it_is_aligned() {
    with_arrays(1, 17, async |core, [five, one]| {
        let topology = async |segments: Vec<MapSegment>| {
            let lv = mapped(&core, vec![five.volume(), one.volume()], segments).await;
            let volume = lv.volume().open(&core).unwrap();
            (u64::from(volume.io_min_bytes()), u64::from(volume.io_opt_bytes()))
        };
        // The RAID 5 has chunks of 4 KiB and two data members.
        assert_eq!(topology(vec![MapSegment::linear(64 * K, 0, 8 * K)]).await, (4 * K, 8 * K));
        assert_eq!(topology(vec![MapSegment::linear(64 * K, 0, 12 * K)]).await, (4 * K, 0));
        assert_eq!(topology(vec![MapSegment::linear(64 * K, 0, 512)]).await, (512, 0));
        let two = vec![MapSegment::linear(64 * K, 0, 8 * K), MapSegment::linear(8 * K, 0, 128 * K)];
        assert_eq!(topology(two).await, (4 * K, 8 * K));
        let shifted = vec![MapSegment::linear(4 * K, 0, 8 * K), MapSegment::linear(8 * K, 0, 128 * K)];
        assert_eq!(topology(shifted).await, (4 * K, 0), "behind 4 KiB nothing is aligned to 8 KiB any more");
        let legs = [(0, 0), (0, 64 * K)];
        assert_eq!(topology(vec![striped(32 * K, 16 * K, &legs)]).await, (16 * K, 32 * K));
    });
}
