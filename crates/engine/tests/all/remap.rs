//! A volume's map that changes while clients on several cores use the volume.

use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_engine::metadata::NoMetadata;
use wattle_engine::planted::{self, Bug};
use wattle_engine::units::Sector;
use wattle_engine::volume::MapSegment;
use wattle_engine::{ArrayHandle, ArraySpec, MapSpec, MappedHandle, MemberSpec, VolumeError};
use wattle_rt::{Buf, BufMut, Core, CoreIx, Device, DriveConfig, Durability, SimWorld, WorldConfig};

use crate::support::plain::plain;

const K: u64 = 1024;
const MS: Duration = Duration::from_millis(1);

async fn bare(core: &Core, name: &str, device: Device) -> ArrayHandle {
    let geometry = plain(Level::Linear, 1, 0, device.size_bytes() / 512);
    let spec = ArraySpec::new(name, geometry, vec![MemberSpec::in_sync(device, Sector(0))]);
    ArrayHandle::start(core, spec, Box::new(NoMetadata)).await
}

/// 64 KiB on `first`, then 64 KiB on `second`.
fn map(first: &ArrayHandle, second: &ArrayHandle) -> MapSpec {
    MapSpec {
        below: vec![first.volume(), second.volume()],
        segments: vec![MapSegment::linear(64 * K, 0, 0), MapSegment::linear(64 * K, 1, 0)],
        read_only: false,
    }
}

/// The first byte of the volume, as a client on `core` reads it.
async fn first_byte(core: &Core, on: usize, lv: &MappedHandle) -> Result<char, VolumeError> {
    let volume = lv.volume();
    let read = core.call(CoreIx(on), move |core| async move {
        let (result, bytes) = volume.open(&core)?.read(0, BufMut::alloc(4096)).await;
        result.map(|()| bytes[0] as char)
    });
    read.await
}

async fn write(core: &Core, to: &MappedHandle, byte: u8, durability: Durability) {
    let volume = to.volume().open(core).unwrap();
    volume.write(0, Buf::copy_of(&[byte; 4096]), durability).await.unwrap();
}

/// The first half of a volume moves from `p` to `q` as `Stack::move_extents` does it, while a slow
/// read on core 0 still goes by the old map. A write to that half is acknowledged on core 0. Then
/// what core 1 reads there, and what a flush on core 1 leaves unflushed on `q`.
fn seen_elsewhere(seed: u64) -> (char, usize) {
    let mut world = SimWorld::new(WorldConfig { seed, cores: 2, ..WorldConfig::default() });
    let mut drive =
        |name: &str| world.add_drive(DriveConfig { name: name.to_owned(), ..DriveConfig::default() });
    let (p, q, z) = (drive("p"), drive("q"), drive("z"));
    let (q_control, z_control) = (world.drive(&q), world.drive(&z));
    let outcome = world.run(async move |core: Core| {
        let (p, q, z) = (bare(&core, "p", p).await, bare(&core, "q", q).await, bare(&core, "z", z).await);
        let lv = MappedHandle::start(&core, "lv", map(&p, &z)).await.unwrap();
        write(&core, &lv, b'A', Durability::Fua).await;
        // Hold, copy, flush, (commit the text), map anew.
        lv.hold(&core, 0..64 * K).await.unwrap();
        let (result, bytes) = p.volume().open(&core).unwrap().read(0, BufMut::alloc(64 << 10)).await;
        result.unwrap();
        let copy = q.volume().open(&core).unwrap();
        copy.write(0, bytes.freeze(), Durability::Cached).await.unwrap();
        copy.flush().await.unwrap();
        z_control.stall(300 * MS);
        let slow = lv.volume().open(&core).unwrap();
        let slow = core.spawn(async move { slow.read(96 * K, BufMut::alloc(4096)).await.0 });
        core.sleep(MS).await;
        let (handle, new, on) = (lv.clone(), map(&q, &z), core.clone());
        let remap = core.spawn(async move { handle.remap(&on, new).await });
        core.sleep(10 * MS).await;
        write(&core, &lv, b'B', Durability::Cached).await;
        let seen = first_byte(&core, 1, &lv).await.unwrap();
        let other = lv.volume();
        let flush = core.call(CoreIx(1), move |core| async move { other.open(&core)?.flush().await });
        flush.await.unwrap();
        let unflushed = q_control.unflushed_sectors();
        slow.await.unwrap();
        remap.await.unwrap();
        (seen, unflushed)
    });
    outcome.expect_done()
}

#[test]
fn a_write_acknowledged_on_one_core_is_read_and_flushed_on_another() {
    for seed in 1..20 {
        assert_eq!(seen_elsewhere(seed), ('B', 0), "seed {seed}");
    }
}

#[test]
fn a_map_that_changes_core_by_core_would_be_noticed() {
    let _planted = planted::plant(&[Bug::RemapCoreByCore]);
    assert_eq!(seen_elsewhere(1), ('A', 8));
}

/// A volume of the new map stops while the map is being changed: it can be opened on some cores and
/// not on others.
#[test]
fn a_change_that_fails_half_way_leaves_all_cores_with_the_old_map() {
    let mut failed = 0;
    for seed in 0..300 {
        let mut world = SimWorld::new(WorldConfig { seed, cores: 3, ..WorldConfig::default() });
        let mut drive =
            |name: &str| world.add_drive(DriveConfig { name: name.to_owned(), ..DriveConfig::default() });
        let (p, q, z) = (drive("p"), drive("q"), drive("z"));
        let q_control = world.drive(&q);
        let outcome = world.run(async move |core: Core| {
            let (p, q, z) = (bare(&core, "p", p).await, bare(&core, "q", q).await, bare(&core, "z", z).await);
            let lv = MappedHandle::start(&core, "lv", map(&p, &z)).await.unwrap();
            write(&core, &lv, b'A', Durability::Fua).await;
            q_control.poke(0, &[b'A'; 4096]);
            let above_q = MappedHandle::start(&core, "above q", map(&q, &z)).await.unwrap();
            let (handle, mut new) = (lv.clone(), map(&q, &z));
            new.below[0] = above_q.volume();
            let on = core.clone();
            let stop = core.spawn(async move { above_q.stop(&on).await });
            // From the core that the stop comes to last.
            let remap =
                core.call(CoreIx(2), move |core| async move { handle.remap(&core, new).await.is_ok() });
            let remapped = remap.await;
            stop.await;
            if !remapped {
                for on in 0..3 {
                    assert_eq!(first_byte(&core, on, &lv).await, Ok('A'), "core {on}, seed {seed}");
                }
                write(&core, &lv, b'B', Durability::Cached).await;
                assert_eq!(first_byte(&core, 2, &lv).await, Ok('B'));
            }
            !remapped
        });
        failed += u32::from(outcome.expect_done());
    }
    assert!(failed > 20, "the stop comes in between: {failed}");
}

#[test]
fn a_volume_that_cannot_be_opened_on_every_core_is_nowhere() {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 2, ..WorldConfig::default() });
    let (p, z) = (world.add_drive(DriveConfig::default()), world.add_drive(DriveConfig::default()));
    let outcome = world.run(async move |core: Core| {
        let (p, z) = (bare(&core, "p", p).await, bare(&core, "z", z).await);
        z.stop(&core).await.unwrap();
        MappedHandle::start(&core, "lv", map(&p, &z)).await.is_err()
    });
    assert!(outcome.expect_done());
}
