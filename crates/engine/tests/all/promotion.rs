//! A member that fails as the sweep that filled it ends, and another one that takes its seat before
//! the promotion is applied.

use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_engine::job::Pace;
use wattle_engine::metadata::ArrayRecord;
use wattle_engine::planted::{self, Bug};
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, MemberState};
use wattle_rt::{Buf, Core, DriveConfig, Durability, SimWorld, WorldConfig};

use crate::support::commits::OnCommit;
use crate::support::plain::plain;

const SIZE: u64 = 256 << 10;
const MS: Duration = Duration::from_millis(1);

/// A RAID 1 of `a`, `c`, and in slot 1 a spare that is being filled; `filled` is filled beside it,
/// as the replacement of slot 0 or in slot 2. It fails a client's write when the sweep is done and
/// its end waits for a flush. The operator puts an empty drive into the seat. Whether that drive
/// counts as whole, and whether the members that were whole still do.
fn after_the_pass(replaces: bool) -> (bool, bool) {
    let second = Duration::from_secs(1);
    let mut world = SimWorld::new(WorldConfig { seed: 3, cores: 1, ..WorldConfig::default() });
    let mut drive = |name: &str| {
        world.add_drive(DriveConfig {
            name: name.to_owned(),
            size_bytes: SIZE,
            flush_latency: second..second,
            ..DriveConfig::default()
        })
    };
    let (a, spare, c, filled, empty) =
        (drive("a"), drive("spare"), drive("c"), drive("filled"), drive("empty"));
    for whole in [&a, &c] {
        world.drive(whole).poke(0, &vec![0xda; SIZE as usize]);
    }
    let (filled_control, spare_control) = (world.drive(&filled), world.drive(&spare));
    let outcome = world.run(async move |core: Core| {
        let geometry = plain(Level::Raid1, if replaces { 3 } else { 4 }, 0, SIZE / 512);
        let blank = |device| MemberSpec::blank(device, Sector(0));
        let mut members = vec![MemberSpec::in_sync(a, Sector(0)), blank(spare)];
        let mut replacements = Vec::new();
        if replaces {
            replacements = vec![blank(filled), MemberSpec::missing(), MemberSpec::missing()];
        } else {
            members.push(blank(filled));
        }
        members.push(MemberSpec::in_sync(c, Sector(0)));
        let mut spec = ArraySpec::new("t", geometry, members);
        spec.replacements = replacements;
        spec.tuning.clean_delay = 1000 * second;
        spec.tuning.sync.step_bytes = 4096;
        spec.tuning.sync.step_beside_clients_bytes = 4096;
        spec.tuning.sync.pace = Pace { min_bytes_per_second: SIZE, max_bytes_per_second: SIZE };
        let late = core.clone();
        // Records take 100 ms.
        let slow = OnCommit(async move |_: &ArrayRecord| late.sleep(100 * MS).await);
        let array = ArrayHandle::start(&core, spec, Box::new(slow)).await;
        let volume = array.volume().open(&core).unwrap();
        // Dirty from here on, so that later writes need no record.
        volume.write(0, Buf::copy_of(&[0xda; 4096]), Durability::Cached).await.unwrap();
        let nearly =
            |control: &wattle_rt::DriveControl| (0..63).all(|block| control.peek(block * 4096, 1)[0] == 0xda);
        while !(nearly(&spare_control) && nearly(&filled_control)) {
            core.sleep(MS / 4).await;
        }
        let flusher = array.volume().open(&core).unwrap();
        let flush = core.spawn(async move { flusher.flush().await });
        core.sleep(MS / 10).await;
        filled_control.fail_next_writes(1);
        let write =
            core.spawn(async move { volume.write(0, Buf::copy_of(&[0xda; 4096]), Durability::Cached).await });
        let of_filled = |status: &wattle_engine::ArrayStatus| {
            if replaces { status.replacements[0].clone() } else { status.members[2].clone() }
        };
        while of_filled(&array.status(&core).await).state != MemberState::Faulty {
            core.sleep(MS).await;
        }
        if replaces {
            array.replace(&core, MemberIx(0), blank(empty)).await.unwrap();
        } else {
            array.add(&core, MemberIx(2), blank(empty)).await.unwrap();
        }
        flush.await.unwrap();
        write.await.unwrap();
        core.sleep(400 * MS).await;
        let status = array.status(&core).await;
        let in_sync = |name: &str| {
            let mut members = status.members.iter();
            members
                .any(|member| member.device.as_deref() == Some(name) && member.state == MemberState::InSync)
        };
        (in_sync("empty"), in_sync("a") && in_sync("c"))
    });
    outcome.expect_done()
}

#[test]
fn a_drive_that_takes_the_seat_of_a_replacement_that_failed_is_not_promoted_empty() {
    assert_eq!(after_the_pass(true), (false, true));
}

#[test]
fn a_drive_that_takes_the_slot_of_a_spare_that_failed_is_not_promoted_empty() {
    assert_eq!(after_the_pass(false), (false, true));
}

#[test]
fn an_unchecked_promotion_would_be_noticed() {
    let _planted = planted::plant(&[Bug::UncheckedPromotion]);
    assert_eq!(after_the_pass(true), (true, false));
}
