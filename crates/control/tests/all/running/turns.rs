//! A write-intent bitmap that is put on an array that runs, and taken off.

use std::sync::{Arc, Mutex};

use wattle_control::assemble::MemberRecovery;
use wattle_control::events::Filling;
use wattle_control::running::BitmapChoice;
use wattle_control::start::Claimed;
use wattle_engine::{ArrayHandle, VolumeRef};
use wattle_rt::{RunOutcome, SimWorld, WorldConfig};

use super::crashes::{drives, found, superblock_of};
use super::*;

const DATA_BYTES: usize = 32 << 10;
const ON: [BitmapChoice; 3] = [
    BitmapChoice::Internal { chunk_bytes: Some(4096), sweep_secs: None },
    BitmapChoice::Internal { chunk_bytes: None, sweep_secs: None },
    BitmapChoice::Internal { chunk_bytes: Some(16384), sweep_secs: Some(1) },
];

fn bytes(seed: u8) -> Vec<u8> {
    (0..DATA_BYTES).map(|i| (i / 509) as u8 ^ seed.wrapping_mul(37)).collect()
}

/// Writes here and there behind what is looked at, so that something is always in flight.
async fn scribble(core: Core, volume: VolumeRef, seed: u64) {
    let Ok(volume) = volume.open(&core) else { return };
    let (first, sectors) = (DATA_BYTES as u64 / 512, volume.size_bytes() / 512 - DATA_BYTES as u64 / 512);
    for nth in 0.. {
        let at = first + (seed + nth * 7919) % (sectors - 3);
        let buf = Buf::copy_of(&[nth as u8; 3 * 512]);
        if volume.write(at * 512, buf, Durability::Cached).await.is_err() {
            return;
        }
        if nth % 4 == 3 {
            core.sleep(Duration::from_millis(900)).await;
        }
    }
}

/// `told` is what was written for certain, and what was under way.
async fn life(core: Core, claimed: Claimed, told: Arc<Mutex<(u8, u8)>>, seed: u64) {
    let array = RunningArray::new(&core, &MemberAccess::local(), "t", claimed.launch(&core).await.unwrap());
    let volume = array.handle().volume().open(&core).unwrap();
    core.spawn(scribble(core.clone(), array.handle().volume(), seed));
    for nth in 1..=6_u8 {
        told.lock().unwrap().1 = nth;
        volume.write(0, Buf::copy_of(&bytes(nth)), Durability::Fua).await.unwrap();
        *told.lock().unwrap() = (nth, nth);
        let choice = if nth % 2 == 1 { ON[usize::from(nth / 2)] } else { BitmapChoice::Off };
        array.set_bitmap(choice).await.unwrap();
        assert_eq!(array.set_bitmap(choice).await, Ok(()), "it has it");
        if nth % 2 == 1 {
            // Sweeps come and clear bits.
            core.sleep(Duration::from_secs(11)).await;
        }
    }
    array.set_bitmap(ON[0]).await.unwrap();
    array.handle().stop(&core).await.unwrap();
}

async fn whole_then_checked(core: &Core, array: &ArrayHandle) -> u64 {
    for _ in 0..10_000 {
        let status = array.status(core).await;
        if status.sync.is_none() && status.synced_below.0 == u64::MAX {
            break;
        }
        core.sleep(Duration::from_millis(10)).await;
    }
    array.start_job(core, Job::Check { range: None }).await.unwrap();
    loop {
        let status = array.status(core).await;
        if let Some(last) = status.last.filter(|last| last.action == JobKind::Check) {
            return last.mismatch_sectors;
        }
        core.sleep(Duration::from_millis(10)).await;
    }
}

/// Whenever the power goes, the array comes up as it is, nothing acknowledged is lost, and after
/// the resync that its superblocks and bitmap ask for all parity is right.
#[test]
fn no_power_cut_leaves_a_bitmap_that_lies() {
    let mut mixed = 0;
    for version in [Version::V12, Version::V10, Version::V090] {
        let (mut cuts, mut by_bits) = (0, 0);
        for cut in 1.. {
            let mut world = SimWorld::new(WorldConfig { seed: cut, cores: 2, ..WorldConfig::default() });
            let devices = drives(&mut world, version);
            let told = Arc::new(Mutex::new((0, 0)));
            let claimed = found(&world, &devices, version).unwrap();
            // Most of it is writes: every operation near the changes, and some of the others.
            world.power_cut_after_ops(cut * 5 - cut % 5);
            let outcome = world.run({
                let told = told.clone();
                move |core| life(core, claimed, told, cut)
            });
            world.cancel_power_cut();
            let named = |device| superblock_of(&world, device, version).bitmap_offset_sectors().is_some();
            mixed += usize::from(devices[1..3].iter().any(|device| named(device) != named(&devices[0])));
            let claimed =
                found(&world, &devices, version).unwrap_or_else(|why| panic!("{version} {cut}: {why}"));
            let bitmap = claimed.assembly().bitmap.as_ref();
            by_bits += usize::from(bitmap.is_some_and(|bitmap| bitmap.distrust.is_none()));
            let (sure, begun) = *told.lock().unwrap();
            let (read, mismatches) = world
                .run(async move |core: Core| {
                    let started = claimed.launch(&core).await.unwrap();
                    let volume = started.handle.volume().open(&core).unwrap();
                    let (result, buf) = volume.read(0, BufMut::alloc(DATA_BYTES)).await;
                    result.unwrap();
                    let mismatches = whole_then_checked(&core, &started.handle).await;
                    started.handle.stop(&core).await.unwrap();
                    (buf.to_vec(), mismatches)
                })
                .expect_done();
            assert_eq!(mismatches, 0, "{version}, cut {cut}: not all that differed was resynced");
            for (sector, found) in read.chunks(512).enumerate() {
                let of = |seed: u8| match seed {
                    0 => vec![0; 512],
                    seed => bytes(seed)[512 * sector..][..512].to_vec(),
                };
                assert!(found == of(sure) || found == of(begun), "{version}, cut {cut}: sector {sector}");
            }
            // Now all of them say the same.
            let said: Vec<_> = devices[..3]
                .iter()
                .map(|device| superblock_of(&world, device, version).bitmap_offset_sectors())
                .collect();
            assert!(said.iter().all(|offset| *offset == said[0]), "{version}, cut {cut}: {said:?}");
            if outcome != RunOutcome::PowerCut {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 100 && by_bits > 20, "{version}: {cuts} cuts, {by_bits} by bits");
    }
    assert!(mixed > 3, "{mixed} cuts that some members were not reached before");
}

/// What a member does not take is no loss of what it holds: the order is refused, and nothing else
/// has changed.
#[test]
fn a_member_that_does_not_take_a_bitmap_stays_what_it_is() {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
    let devices = drives(&mut world, Version::V12);
    let (claimed, second) = (found(&world, &devices, Version::V12).unwrap(), world.drive(&devices[1]));
    let run = world.run(async move |core: Core| {
        let started = claimed.launch(&core).await.unwrap();
        let array = RunningArray::new(&core, &MemberAccess::local(), "t", started);
        let volume = array.handle().volume().open(&core).unwrap();
        second.fail_next_writes(1);
        let refused = array.set_bitmap(ON[0]).await.unwrap_err();
        assert_eq!(refused.code, Code::BitmapNotChanged);
        volume.write(0, Buf::copy_of(&bytes(1)), Durability::Fua).await.unwrap();
        volume.flush().await.unwrap();
        assert_eq!(array.handle().status(&core).await.degraded, 0);
        array.set_bitmap(ON[0]).await.unwrap();
        assert_eq!(array.handle().status(&core).await.degraded, 0);
        array.handle().stop(&core).await.unwrap();
    });
    run.expect_done();
}

/// How much of each member that joined was filled.
fn fillings(array: &RunningArray) -> Vec<Filling> {
    let told = array.events(0).into_iter();
    told.filter_map(|told| match told.event {
        ArrayEvent::Joined { filling, .. } => Some(filling),
        _ => None,
    })
    .collect()
}

/// On files, as an operator has it: a member that was away lacks only what was written meanwhile,
/// once there is a bitmap, and all of it without one.
#[test]
fn a_bitmap_that_was_put_on_says_what_a_member_missed() {
    for (version, level) in [
        (Version::V12, Level::Raid5),
        (Version::V11, Level::Raid10),
        (Version::V10, Level::Raid6),
        (Version::V12, Level::Raid1),
    ] {
        let (_dir, names) = files(4, SIZE);
        create(level, version, Consistency::Resync, &names, &[]);
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all).await;
            whole(&core, &array).await;
            write(&core, &array, &data(1)).await;
            array
                .set_bitmap(BitmapChoice::Internal { chunk_bytes: Some(64 << 10), sweep_secs: None })
                .await
                .unwrap();
            let other = array
                .set_bitmap(BitmapChoice::Internal { chunk_bytes: Some(1 << 20), sweep_secs: None })
                .await;
            assert_eq!(other.unwrap_err().code, Code::BitmapNotChanged);
            array.fail(&all[3]).await.unwrap();
            array.remove(&all[3]).await.unwrap();
            write(&core, &array, &data(2)[..4096]).await;
            array.add(&all[3], UUID, Forced::default()).await.unwrap();
            assert_eq!(fillings(&array), [Filling::Missed], "{version}");
            whole(&core, &array).await;
            array.set_bitmap(BitmapChoice::Off).await.unwrap();
            array.fail(&all[3]).await.unwrap();
            array.remove(&all[3]).await.unwrap();
            array.add(&all[3], UUID, Forced::default()).await.unwrap();
            assert_eq!(fillings(&array), [Filling::Missed, Filling::Full], "{version}");
            whole(&core, &array).await;
            array.set_bitmap(BitmapChoice::Internal { chunk_bytes: None, sweep_secs: None }).await.unwrap();
            assert_eq!(whole_then_checked(&core, array.handle()).await, 0);
            array.handle().stop(&core).await.unwrap();
        });
    }
}

/// A member that was away would get what it missed by itself; without the bitmap all of it would be
/// written over, which only an operator orders.
#[test]
fn without_the_bitmap_that_was_there_at_the_start_a_member_waits_for_the_operator() {
    let (_dir, names) = files(3, SIZE);
    create(Level::Raid1, Version::V12, Consistency::Bitmap { chunk_bytes: Some(65536) }, &names, &[]);
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all[..2]).await;
        write(&core, &array, &data(1)).await;
        array.stop().await.unwrap();
    });
    on_a_core(async move |core| {
        let array = run(&core, &names).await;
        assert!(matches!(&array.returning()[..], [(_, who)] if who.recovery == MemberRecovery::Regions));
        array.set_bitmap(BitmapChoice::Off).await.unwrap();
        core.spawn(keep(array.clone()));
        core.sleep(Duration::from_millis(200)).await;
        assert_eq!(array.handle().status(&core).await.degraded, 1);
        let stays = array.stays_away();
        let [(_, _, Some(problem))] = &stays[..] else { panic!("{stays:?}") };
        assert_eq!(problem.code, Code::RemoteMissesAll, "{problem}");
        array.add(&names[2], UUID, Forced::default()).await.unwrap();
        whole(&core, &array).await;
        array.stop().await.unwrap();
    });
}
