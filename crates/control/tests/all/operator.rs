//! What an operator orders at the wrong time, or of the wrong device, while an array runs on files.

use crate::support::real;
use std::sync::Arc;
use std::time::Duration;

use crate::support::real::{files, looked, on_a_core, request, run};
use wattle_control::ArrayId;
use wattle_control::create::{Consistency, CreateRequest};
use wattle_control::members::MemberAccess;
use wattle_control::running::RunningArray;
use wattle_control::scan::scan;
use wattle_control::spares::keep;
use wattle_control::{Claim, Code, Forced, admit::Seat, start};
use wattle_engine::geometry::Level;
use wattle_engine::metadata::{ArrayRecord, Metadata, RecordCause};
use wattle_engine::units::{MemberSet, Sector};
use wattle_format::md::Uuid;
use wattle_rt::{Buf, BufMut, Core, Durability, Either, race};

const SIZE: u64 = 8 << 20;
const BITMAP: Consistency = Consistency::Bitmap { chunk_bytes: None };

fn create(level: Level, consistency: Consistency, members: &[String], spares: &[String]) {
    let spares = MemberAccess::local().look_all(spares).unwrap();
    real::create(&CreateRequest { consistency, spares, ..request(level, looked(members)) }).unwrap();
}

/// A random id.
fn uuid(seed: u8) -> Uuid {
    Uuid([seed; 16])
}

async fn whole(core: &Core, array: &RunningArray) {
    for _ in 0..2000 {
        if array.handle().status(core).await.degraded == 0 {
            return;
        }
        core.sleep(Duration::from_millis(10)).await;
    }
    panic!("it is not whole after 20 s: {:?}", array.handle().status(core).await);
}

/// Writes into the first MiB.
async fn write(core: &Core, array: &RunningArray, byte: u8) {
    let volume = array.handle().volume().open(core).unwrap();
    volume.write(0, Buf::copy_of(&[byte; 1 << 20]), Durability::Fua).await.unwrap();
}

/// An array whose member in `slot` has bad sectors, as a drive leaves them that does not take
/// writes there.
fn with_bad_sectors(names: &[String], slot: usize) {
    let names = names.to_vec();
    on_a_core(async move |core| {
        let found = scan(MemberAccess::local().look_all(&names).unwrap(), Forced::default()).unwrap();
        let claimed = start::claim(&found, found.find(None).unwrap(), false).unwrap();
        let started = claimed.launch(&core).await.unwrap();
        let books = started.books.unwrap();
        let mut seats = books.state().seats().to_vec();
        seats[slot].bad = Arc::new([Sector(8)..Sector(24)].into_iter().collect());
        let failed = MemberSet::EMPTY;
        let record = ArrayRecord {
            change: RecordCause::Members,
            dirty: false,
            synced_below: Sector::MAX,
            failed,
            seats,
        };
        books.commit(&record).await.unwrap();
    });
}

/// What must not take long.
async fn in_time<T>(core: &Core, what: impl Future<Output = T>) -> T {
    match race(what, core.sleep(Duration::from_secs(20))).await {
        Either::First(result) => result,
        Either::Second(()) => panic!("it hangs"),
    }
}

/// While a repair of bad sectors rests, members come and go and the array stops: only that repair
/// waits.
#[test]
fn a_repair_of_bad_sectors_keeps_nobody_waiting() {
    let (_dir, names) = files(4, SIZE);
    create(Level::Raid6, Consistency::Resync, &names, &[]);
    with_bad_sectors(&names, 1);
    on_a_core(async move |core| {
        let array = run(&core, &names).await;
        array.handle().pause(&core, true).await;
        let repair = core.spawn({
            let array = array.clone();
            async move { array.clear_bad_blocks("1", || true, || ()).await }
        });
        core.sleep(Duration::from_millis(100)).await;
        in_time(&core, array.fail("3")).await.unwrap();
        in_time(&core, array.remove(&names[3])).await.unwrap();
        in_time(&core, array.stop()).await.unwrap();
        in_time(&core, repair).await.unwrap();
    });
}

/// One that is told to end ends as a whole, and says what is left.
#[test]
fn a_repair_of_bad_sectors_can_be_ended() {
    let (_dir, names) = files(4, SIZE);
    create(Level::Raid6, Consistency::Resync, &names, &[]);
    with_bad_sectors(&names, 1);
    on_a_core(async move |core| {
        let array = run(&core, &names).await;
        array.handle().pause(&core, true).await;
        let repair = core.spawn({
            let array = array.clone();
            async move { array.clear_bad_blocks("1", || true, || ()).await }
        });
        core.sleep(Duration::from_millis(100)).await;
        array.handle().abort_job(&core).await;
        assert_eq!(in_time(&core, repair).await.unwrap(), 16);
        array.handle().pause(&core, false).await;
        assert_eq!(in_time(&core, array.clear_bad_blocks("1", || false, || ())).await.unwrap(), 16);
        assert_eq!(in_time(&core, array.clear_bad_blocks("1", || true, || ())).await.unwrap(), 0);
        array.stop().await.unwrap();
    });
}

/// Where another member is bad, the one that is not holds the last good copy, even if every slot is
/// in sync.
#[test]
fn who_makes_up_for_bad_sectors_of_another_is_not_failed() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 4)] {
        let (_dir, names) = files(count, SIZE);
        create(level, Consistency::Resync, &names, &[]);
        with_bad_sectors(&names, 1);
        on_a_core(async move |core| {
            let array = run(&core, &names).await;
            assert_eq!(array.fail("0").await.unwrap_err().code, Code::LastCopy, "{level}");
            assert_eq!(array.handle().status(&core).await.degraded, 0);
            assert_eq!(array.clear_bad_blocks("1", || true, || ()).await.unwrap(), 0, "{level}");
            array.fail("0").await.unwrap();
            array.stop().await.unwrap();
        });
    }
    // Three are enough for one to be bad and one to go; and a bad member may always go.
    for (level, count, goes) in [(Level::Raid1, 3, "0"), (Level::Raid6, 4, "0"), (Level::Raid5, 3, "1")] {
        let (_dir, names) = files(count, SIZE);
        create(level, Consistency::Resync, &names, &[]);
        with_bad_sectors(&names, 1);
        on_a_core(async move |core| {
            let array = run(&core, &names).await;
            array.fail(goes).await.unwrap();
            array.stop().await.unwrap();
        });
    }
}

/// What a member that failed holds may be all there is: nothing is written on it for an array that
/// cannot take it.
#[test]
fn a_broken_array_writes_on_nobody() {
    let (dir, names) = files(3, SIZE);
    create(Level::Raid5, Consistency::Ppl, &names, &[]);
    let again = dir.path().join("again").to_str().unwrap().to_owned();
    on_a_core(async move |core| {
        let array = run(&core, &names).await;
        write(&core, &array, 1).await;
        array.fail("2").await.unwrap();
        // The same drive, as the system finds it again.
        std::fs::copy(&names[2], &again).unwrap();
        let before = std::fs::read(&again).unwrap();
        std::fs::File::options().write(true).open(&names[1]).unwrap().set_len(4096).unwrap();
        let volume = array.handle().volume().open(&core).unwrap();
        for at in (0..volume.size_bytes()).step_by(1 << 20) {
            let (_, _) = volume.read(at, BufMut::alloc(65536)).await;
        }
        assert!(array.handle().status(&core).await.broken);
        assert_eq!(array.add(&again, uuid(9), Forced::default()).await.unwrap_err().code, Code::VolumeFailed);
        assert!(std::fs::read(&again).unwrap() == before, "something was written on it");
    });
}

/// Two spares of one number: the second was added while the first was away, and nothing said that
/// the number was taken.
#[test]
fn spares_of_one_number_fill_two_slots() {
    let (_dir, names) = files(6, SIZE);
    create(Level::Raid6, Consistency::Resync, &names[..4], &names[4..5]);
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all[..4]).await;
        assert_eq!(array.add(&all[5], uuid(9), Forced::default()).await.unwrap().seat, Seat::Spare);
        write(&core, &array, 1).await;
        array.stop().await.unwrap();
    });
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all).await;
        assert_eq!(array.spares().len(), 2);
        core.spawn(keep(array.clone()));
        array.fail("0").await.unwrap();
        whole(&core, &array).await;
        array.fail("1").await.unwrap();
        whole(&core, &array).await;
        array.stop().await.unwrap();
    });
    on_a_core(async move |core| {
        let array = run(&core, &names[2..]).await;
        assert_eq!(array.handle().status(&core).await.degraded, 0);
        array.stop().await.unwrap();
    });
}

/// A spare from before the array had a bitmap has no place for one in its superblock, and gets one
/// with its slot.
#[test]
fn a_spare_that_knows_no_bitmap_takes_a_slot_all_the_same() {
    let (_dir, names) = files(4, SIZE);
    create(Level::Raid5, Consistency::Resync, &names[..3], &names[3..]);
    for name in &names[..3] {
        std::fs::File::create(name).unwrap().set_len(SIZE).unwrap();
    }
    create(Level::Raid5, BITMAP, &names[..3], &[]);
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all).await;
        assert_eq!(array.spares().len(), 1);
        core.spawn(keep(array.clone()));
        write(&core, &array, 1).await;
        array.fail("0").await.unwrap();
        whole(&core, &array).await;
        array.stop().await.unwrap();
    });
    let found = scan(MemberAccess::local().look_all(&names[1..]).unwrap(), Forced::default()).unwrap();
    let assembly = &found.arrays[ArrayId::nth(0)].assembly;
    assert_eq!((assembly.degraded(), assembly.bitmap.as_ref().unwrap().distrust), (0, None));
}

#[test]
fn drives_that_are_not_there_are_no_members() {
    let (_dir, names) = files(2, SIZE);
    create(Level::Raid1, Consistency::Resync, &names, &[]);
    on_a_core(async move |core| {
        let array = run(&core, &names).await;
        for made_up in ["null:8M", "mem:8M"] {
            let added = array.add(made_up, uuid(9), Forced::default()).await;
            assert_eq!(added.unwrap_err().code, Code::BadMember, "{made_up}");
            let replaced = array.replace("0", Some(made_up), uuid(9), Forced::default()).await;
            assert_eq!(replaced.unwrap_err().code, Code::BadMember, "{made_up}");
        }
        array.stop().await.unwrap();
    });
}

/// A member that waits for the operator is taken back by order, or sent away and free for others
/// then.
#[test]
fn a_member_that_may_come_back_is_taken_or_let_go_of() {
    let (dir, names) = files(3, SIZE);
    create(Level::Raid5, Consistency::Resync, &names, &[]);
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all[..2]).await;
        write(&core, &array, 1).await;
        array.stop().await.unwrap();
    });
    // By whatever path, relative ones included.
    let link = dir.path().join("link").to_str().unwrap().to_owned();
    std::os::unix::fs::symlink(&names[2], &link).unwrap();
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all).await;
        assert_eq!(array.add(&link, uuid(9), Forced::default()).await.unwrap().seat, Seat::Slot(2));
        whole(&core, &array).await;
        let again = array.add(&link, uuid(9), Forced::default()).await;
        assert_eq!(again.unwrap_err().code, Code::GivenTwice);
        array.fail("2").await.unwrap();
        array.stop().await.unwrap();
    });
    on_a_core(async move |core| {
        let array = run(&core, &names).await;
        assert_eq!(array.returning().len(), 1);
        array.remove("d2").await.unwrap();
        assert!(array.returning().is_empty());
        let member = MemberAccess::local().look(&names[2]).unwrap();
        assert!(member.claim(Claim::Write).is_ok(), "it is still locked");
        assert_eq!(array.remove("d2").await.unwrap_err().code, Code::BadMember);
        array.stop().await.unwrap();
    });
}
