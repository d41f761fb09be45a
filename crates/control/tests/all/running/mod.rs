//! Members that come, go and are replaced while an array runs: on files, through the real engine,
//! as an operator has it.

mod apart;
mod crashes;
mod far;
mod foreign;
mod halves;
mod silent;
mod turns;
mod undo;

use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::support::real::{self, files, looked, on_a_core, request, run};
use wattle_control::create::{Consistency, CreateRequest};
use wattle_control::events::ArrayEvent;
use wattle_control::members::MemberAccess;
use wattle_control::running::RunningArray;
use wattle_control::scan::scan;
use wattle_control::spares::keep;
use wattle_control::{Check, Code, Forced, admit::Seat, start};
use wattle_engine::geometry::Level;
use wattle_engine::job::JobKind;
use wattle_engine::units::MemberIx;
use wattle_engine::{FailCause, Job, MemberState, RepairSource};
use wattle_format::md::{Uuid, Version};
use wattle_rt::{Buf, BufMut, Core, Device, Durability, Lock, OpenOptions, WallTime};

const SIZE: u64 = 8 << 20;
const UUID: Uuid = Uuid(*b"a device's own  ");

fn create(level: Level, version: Version, consistency: Consistency, members: &[String], spares: &[String]) {
    let spares = if spares.is_empty() { Vec::new() } else { MemberAccess::local().look_all(spares).unwrap() };
    let request = CreateRequest { version, consistency, spares, ..request(level, looked(members)) };
    real::create(&request).unwrap();
}

fn data(seed: usize) -> Vec<u8> {
    (0..1 << 20).map(|i: usize| (i / 251 + i * seed) as u8).collect()
}

async fn write(core: &Core, array: &RunningArray, bytes: &[u8]) {
    let volume = array.handle().volume().open(core).unwrap();
    volume.write(0, Buf::copy_of(bytes), Durability::Fua).await.unwrap();
}

async fn read(core: &Core, array: &RunningArray) -> Vec<u8> {
    let volume = array.handle().volume().open(core).unwrap();
    let (result, buf) = volume.read(0, BufMut::alloc(1 << 20)).await;
    result.unwrap();
    buf.to_vec()
}

/// Waits until every slot is in sync and no member is being replaced.
async fn whole(core: &Core, array: &RunningArray) {
    for _ in 0..2000 {
        let status = array.handle().status(core).await;
        let replacing = status.replacements.iter().any(|who| who.state.writable());
        if status.degraded == 0 && !replacing {
            return;
        }
        core.sleep(Duration::from_millis(10)).await;
    }
    panic!("it is not whole after 20 s: {:?}", array.handle().status(core).await);
}

/// Waits until this slot is in sync.
async fn filled(core: &Core, array: &RunningArray, slot: usize) {
    while array.handle().status(core).await.members[slot].state != MemberState::InSync {
        core.sleep(Duration::from_millis(10)).await;
    }
}

/// Reads what was written without the members in `without`, in a new start.
fn read_without(names: &[String], without: &[usize]) -> Vec<u8> {
    let names: Vec<_> =
        (0..names.len()).filter(|ix| !without.contains(ix)).map(|ix| names[ix].clone()).collect();
    on_a_core(async move |core| {
        let found = scan(MemberAccess::local().look_all(&names).unwrap(), Forced::default()).unwrap();
        let claimed = start::claim(&found, found.find(None).unwrap(), true).unwrap();
        let array =
            RunningArray::new(&core, &MemberAccess::local(), "t", claimed.launch(&core).await.unwrap());
        let bytes = read(&core, &array).await;
        array.handle().stop(&core).await.unwrap();
        bytes
    })
}

/// In every version: a member fails, the spare takes its slot by itself, is filled, and holds the
/// data alone at the next start.
#[test]
fn a_spare_takes_the_slot_of_a_failed_member_by_itself() {
    for version in Version::ALL {
        let (_dir, names) = files(4, SIZE);
        create(Level::Raid5, version, Consistency::Resync, &names[..3], &names[3..]);
        let (all, written) = (names.clone(), data(1));
        on_a_core(async move |core| {
            let array = run(&core, &all).await;
            core.spawn(keep(array.clone()));
            write(&core, &array, &written).await;
            array.fail(&all[1]).await.unwrap();
            whole(&core, &array).await;
            assert_eq!(array.names()[1].as_deref(), Some(all[3].as_str()), "{version}");
            assert!(array.spares().is_empty());
            let events: Vec<_> = array.events(0).into_iter().map(|recorded| recorded.event).collect();
            assert!(events.iter().any(|event| event.to_string().contains("joined in slot 1")));
            // The cause comes first, of the member that it is about.
            let failed = events.iter().position(|event| {
                let ArrayEvent::Failed { member, cause, .. } = event else { return false };
                member.name == all[1] && member.key.is_some() && *cause == Some(FailCause::Order)
            });
            let joined = events.iter().position(
                |event| matches!(event, ArrayEvent::Joined { member, .. } if member.name == all[3]),
            );
            assert!(failed.is_some() && failed < joined, "{events:?}");
            array.handle().stop(&core).await.unwrap();
        });
        assert!(read_without(&names, &[1, 0]) == data(1), "{version}: the spare was not filled");
    }
}

#[test]
fn a_member_is_replaced_while_it_works_and_can_be_removed_then() {
    for (level, count) in [(Level::Raid5, 3), (Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid6, 4)] {
        let (_dir, names) = files(count + 1, SIZE);
        create(level, Version::V12, Consistency::Resync, &names[..count], &[]);
        let (all, written) = (names.clone(), data(2));
        on_a_core(async move |core| {
            let array = run(&core, &all[..count]).await;
            write(&core, &array, &written).await;
            let seat = array.replace(&all[0], Some(&all[count]), UUID, Forced::default()).await.unwrap().seat;
            assert_eq!(seat, Seat::Replacement(0));
            whole(&core, &array).await;
            assert_eq!(array.names()[0].as_deref(), Some(all[count].as_str()), "{level}");
            // The old one is out, and free once it is removed.
            array.remove(&all[0]).await.unwrap();
            assert!(array.names().iter().flatten().all(|name| *name != all[0]));
            array.handle().stop(&core).await.unwrap();
        });
        assert!(read_without(&names, &[0, 1]) == data(2), "{level}: the replacement is not whole");
    }
}

/// With a bitmap, a member that was away comes back by itself and gets what it missed.
#[test]
fn a_member_that_was_away_comes_back_by_its_bitmap() {
    let (_dir, names) = files(3, SIZE);
    create(Level::Raid5, Version::V12, Consistency::Bitmap { chunk_bytes: None }, &names, &[]);
    for (present, seed) in [(3, 3), (2, 4)] {
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all[..present]).await;
            write(&core, &array, &data(seed)).await;
            array.handle().stop(&core).await.unwrap();
        });
    }
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all).await;
        core.spawn(keep(array.clone()));
        whole(&core, &array).await;
        array.handle().stop(&core).await.unwrap();
        let told: Vec<_> = array.events(0).into_iter().map(|recorded| recorded.event.to_string()).collect();
        assert!(told.iter().any(|what| what.contains("it gets what it missed")), "{told:?}");
    });
    assert!(read_without(&names, &[0]) == data(4), "it is current again");
}

/// Hazard: the bitmap says what was not written to a member that failed, and nothing of what it
/// holds. At a start it waits for the operator, also if it was let go of in the meantime.
#[test]
fn a_member_that_failed_stays_out_at_a_start() {
    for version in [Version::V12, Version::V090] {
        for is_removed in [false, true] {
            let (_dir, names) = files(3, SIZE);
            create(Level::Raid5, version, Consistency::Bitmap { chunk_bytes: None }, &names, &[]);
            let all = names.clone();
            on_a_core(async move |core| {
                let array = run(&core, &all).await;
                write(&core, &array, &data(3)).await;
                array.fail(&all[1]).await.unwrap();
                write(&core, &array, &data(4)).await;
                if is_removed {
                    array.remove(&all[1]).await.unwrap();
                }
                write(&core, &array, &data(5)).await;
                array.stop().await.unwrap();
            });
            on_a_core(async move |core| {
                let array = run(&core, &names).await;
                core.spawn(keep(array.clone()));
                core.sleep(Duration::from_millis(300)).await;
                assert_eq!(array.handle().status(&core).await.degraded, 1, "{version} {is_removed}");
                let returning = array.returning();
                let [(name, who)] = &returning[..] else { panic!("{returning:?}") };
                assert!(*name == names[1] && who.failed && who.slot == 1, "{returning:?}");
                assert_eq!(array.add(&names[1], UUID, Forced::default()).await.unwrap().seat, Seat::Slot(1));
                whole(&core, &array).await;
                array.stop().await.unwrap();
            });
        }
    }
}

/// Hazard: each half of a mirror was run, and one got a drive for the member of the other half. By
/// the bitmap it would lack nothing that the other half wrote, and keep what it wrote itself.
#[test]
fn a_half_that_went_on_with_another_drive_does_not_come_back() {
    let (_dir, names) = files(3, SIZE);
    create(Level::Raid1, Version::V12, Consistency::Bitmap { chunk_bytes: None }, &names[..2], &[]);
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all[..2]).await;
        whole(&core, &array).await;
        array.stop().await.unwrap();
    });
    for (half, new) in [(0, None), (1, Some(2))] {
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all[half..=half]).await;
            write(&core, &array, &data(half)).await;
            if let Some(new) = new {
                array.add(&all[new], UUID, Forced::default()).await.unwrap();
                whole(&core, &array).await;
            }
            array.stop().await.unwrap();
        });
    }
    for given in [&names[..2], &names[..]] {
        let found = scan(MemberAccess::local().look_all(given).unwrap(), Forced::default()).unwrap();
        let problem = found.find(None).unwrap().assembly.refusal();
        assert_eq!(problem.map(|problem| problem.code), Some(Code::SplitBrain), "{given:?}");
    }
    // Either half runs, and does not take the other in unasked.
    for (half, others) in [(&names[..1], &names[1..]), (&names[1..], &names[..1])] {
        let (half, others) = (half.to_vec(), others.to_vec());
        on_a_core(async move |core| {
            let array = run(&core, &half).await;
            for other in &others {
                let problem = array.add(other, UUID, Forced::default()).await.unwrap_err();
                assert_eq!(problem.code, Code::SplitBrain, "{problem}");
            }
            array.stop().await.unwrap();
        });
    }
}

/// Hazard: what a repair chose is not on a member that was away meanwhile.
#[test]
fn a_member_that_was_away_gets_what_was_repaired() {
    for consistency in [Consistency::Resync, Consistency::Bitmap { chunk_bytes: None }] {
        let (_dir, names) = files(3, SIZE);
        let has_bitmap = consistency != Consistency::Resync;
        create(Level::Raid1, Version::V12, consistency, &names, &[]);
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all).await;
            whole(&core, &array).await;
            array.stop().await.unwrap();
        });
        let at = 5 << 20;
        std::fs::File::options()
            .write(true)
            .open(&names[1])
            .unwrap()
            .write_all_at(&[0x77; 16384], at)
            .unwrap();
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all[..2]).await;
            let job = Job::Repair { range: None, source: Some(RepairSource::CopyFrom(MemberIx(1))) };
            array.handle().start_job(&core, job).await.unwrap();
            while array.handle().report(&core).await.is_none_or(|job| job.action != JobKind::Repair) {
                core.sleep(Duration::from_millis(1)).await;
            }
            array.stop().await.unwrap();
        });
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all).await;
            if has_bitmap {
                core.spawn(keep(array.clone()));
            } else {
                assert_eq!(array.handle().status(&core).await.degraded, 1, "it is not in sync");
                array.add(&all[2], UUID, Forced::default()).await.unwrap();
            }
            whole(&core, &array).await;
            array.stop().await.unwrap();
        });
        let held = |name: &String| std::fs::read(name).unwrap()[at as usize..][..16384].to_vec();
        assert!(names.iter().all(|name| held(name) == [0x77; 16384]), "bitmap: {has_bitmap}");
    }
}

/// Without a bitmap nothing is written over unasked.
#[test]
fn without_a_bitmap_who_was_away_waits_for_the_operator() {
    let (_dir, names) = files(3, SIZE);
    create(Level::Raid5, Version::V12, Consistency::Resync, &names, &[]);
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all[..2]).await;
        write(&core, &array, &data(5)).await;
        array.handle().stop(&core).await.unwrap();
    });
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all).await;
        core.spawn(keep(array.clone()));
        core.sleep(Duration::from_millis(100)).await;
        assert_eq!(array.handle().status(&core).await.degraded, 1);
        assert_eq!(array.returning().len(), 1);
        assert_eq!(array.add(&all[2], UUID, Forced::default()).await.unwrap().seat, Seat::Slot(2));
        whole(&core, &array).await;
        array.handle().stop(&core).await.unwrap();
    });
    assert!(read_without(&names, &[0]) == data(5));
}

/// What left while another member was out knows that one as out, which is filled and in use since.
/// Nothing ran apart.
#[test]
fn a_member_that_came_back_does_not_make_those_that_left_meanwhile_another_half() {
    let (_dir, names) = files(3, SIZE);
    create(Level::Raid1, Version::V12, Consistency::Resync, &names, &[]);
    let all = names.clone();
    on_a_core(async move |core| {
        let [a, b, c] = &all[..] else { unreachable!("three files") };
        let array = run(&core, &all).await;
        whole(&core, &array).await;
        for leaves in [b, a] {
            array.fail(leaves).await.unwrap();
            array.remove(leaves).await.unwrap();
        }
        array.add(b, UUID, Forced::default()).await.unwrap();
        filled(&core, &array, 1).await;
        array.fail(c).await.unwrap();
        array.remove(c).await.unwrap();
        write(&core, &array, &data(5)).await;
        array.stop().await.unwrap();
    });
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all).await;
        array.add(&all[2], UUID, Forced::default()).await.unwrap();
        filled(&core, &array, 2).await;
        // The first that left knows none of those that are in sync, if not that it ran apart.
        let problem = array.add(&all[0], UUID, Forced::default()).await.unwrap_err();
        assert!(problem.what.contains("may have been run without them"), "{problem}");
        let forced = Forced::default().with(Check::SplitBrain);
        array.add(&all[0], UUID, forced).await.unwrap();
        whole(&core, &array).await;
        array.stop().await.unwrap();
    });
    assert!(read_without(&names, &[1]) == data(5));
}

/// Of two with one file name the operator says which.
#[test]
fn what_may_come_back_is_let_go_of_by_a_name_that_only_it_has() {
    let (dir, mut names) = files(4, SIZE);
    for (at, place) in [(2, "p"), (3, "q")] {
        std::fs::create_dir(dir.path().join(place)).unwrap();
        let path = dir.path().join(place).join("b");
        std::fs::rename(&names[at], &path).unwrap();
        names[at] = path.to_str().unwrap().to_owned();
    }
    create(Level::Raid6, Version::V12, Consistency::Resync, &names, &[]);
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all[..2]).await;
        write(&core, &array, &data(5)).await;
        array.stop().await.unwrap();
    });
    on_a_core(async move |core| {
        let array = run(&core, &names).await;
        core.spawn(keep(array.clone()));
        core.sleep(Duration::from_millis(100)).await;
        let problem = array.remove("b").await.unwrap_err();
        assert_eq!((problem.code, array.returning().len()), (Code::Usage, 2), "{problem}");
        array.remove(&names[2]).await.unwrap();
        let left = array.returning();
        assert!(matches!(&left[..], [(name, _)] if *name == names[3]), "{left:?}");
        array.remove("b").await.unwrap();
        assert!(array.returning().is_empty());
        array.stop().await.unwrap();
    });
}

/// Whatever is refused, the array is as it was, and so is the device.
#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let (dir, names) = files(4, SIZE);
    create(Level::Raid5, Version::V12, Consistency::Resync, &names[..3], &[]);
    let small = dir.path().join("small").to_str().unwrap().to_owned();
    std::fs::File::create(&small).unwrap().set_len(4 << 20).unwrap();
    let used = dir.path().join("used").to_str().unwrap().to_owned();
    let mut fs = vec![0; SIZE as usize];
    fs[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(&used, &fs).unwrap();
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all[..3]).await;
        let before = array.handle().status(&core).await.members;
        let none = Forced::default();
        let codes = [
            array.add(&all[0], UUID, none).await.unwrap_err().code,
            array.add(&small, UUID, none).await.unwrap_err().code,
            array.add(&used, UUID, none).await.unwrap_err().code,
            array.add("/nowhere/to/be/found", UUID, none).await.unwrap_err().code,
            array.replace(&all[0], Some(&all[0]), UUID, none).await.unwrap_err().code,
            array.replace(&all[0], None, UUID, none).await.unwrap_err().code,
            array.replace("nobody", Some(&all[3]), UUID, none).await.unwrap_err().code,
            array.remove(&all[0]).await.unwrap_err().code,
            array.remove("nobody").await.unwrap_err().code,
        ];
        assert_eq!(
            codes,
            [
                Code::GivenTwice,
                Code::TooSmall,
                Code::SignatureFound,
                Code::NotFound,
                Code::GivenTwice,
                Code::NoPlace,
                Code::BadMember,
                Code::MemberWorks,
                Code::BadMember,
            ]
        );
        assert_eq!(array.handle().status(&core).await.members, before);
        assert_eq!(std::fs::read(&used).unwrap(), fs, "not a byte was written on it");
        array.fail(&all[1]).await.unwrap();
        assert_eq!(array.fail(&all[0]).await.unwrap_err().code, Code::LastCopy);
        assert_eq!(array.fail(&all[1]).await.unwrap_err().code, Code::BadMember);
        array.handle().stop(&core).await.unwrap();
    });
}

/// Two commands at once: one after the other, and the second finds what the first left.
#[test]
fn commands_at_once_wait_for_each_other() {
    let (_dir, names) = files(5, SIZE);
    create(Level::Raid6, Version::V12, Consistency::Resync, &names[..4], &[]);
    let all = names;
    on_a_core(async move |core| {
        let array = run(&core, &all[..4]).await;
        array.fail(&all[3]).await.unwrap();
        let one = core.spawn({
            let (array, name) = (array.clone(), all[4].clone());
            async move { array.add(&name, UUID, Forced::default()).await }
        });
        let two = core.spawn({
            let (array, name) = (array.clone(), all[4].clone());
            async move { array.add(&name, UUID, Forced::default()).await }
        });
        assert_eq!(one.await.unwrap().seat, Seat::Slot(3));
        assert_eq!(two.await.unwrap_err().code, Code::GivenTwice);
        whole(&core, &array).await;
        assert_eq!(array.handle().status(&core).await.members[3].state, MemberState::InSync);
        array.handle().fail(&core, MemberIx(0)).await.unwrap();
        array.handle().stop(&core).await.unwrap();
    });
}

/// Stopping the array does not wait for a device that another owner holds, and the devices that
/// waited behind it do not join.
#[test]
fn nobody_comes_in_while_the_array_is_stopped() {
    let (_dir, names) = files(5, SIZE);
    create(Level::Raid5, Version::V12, Consistency::Resync, &names[..3], &[]);
    on_a_core(async move |core| {
        let array = run(&core, &names[..3]).await;
        let lock = OpenOptions { lock: Lock::Exclusive, ..OpenOptions::default() };
        let held = Device::open(&names[3], lock).unwrap();
        let add = |name: &String| {
            let (array, name) = (array.clone(), name.clone());
            core.spawn(async move { array.add(&name, UUID, Forced::default()).await })
        };
        let waiting = [add(&names[3]), add(&names[4])];
        core.sleep(Duration::from_millis(50)).await;
        let begun = core.now();
        array.stop().await.unwrap();
        assert!(core.now() - begun < Duration::from_secs(1), "the device is still held");
        for added in waiting {
            assert_eq!(added.await.unwrap_err().code, Code::ServerFailed);
        }
        drop(held);
        for name in &names[3..] {
            assert!(std::fs::read(name).unwrap().iter().all(|&byte| byte == 0), "{name} was written");
        }
    });
}
