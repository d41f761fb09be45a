//! Halves of an array of which members were replaced before: what joins one half may have the
//! number and the slot of a member of the other half, which then looks like one that was there.

use super::*;

/// Ids of devices that join, which their numbers are chosen by: those of one class are offered the
/// same number by every half.
fn id(class: u8, of: u8) -> Uuid {
    let mut uuid = [class; 16];
    uuid[15] = of;
    Uuid(uuid)
}

fn create_swept(level: Level, members: &[String], spares: &[String]) {
    let spares = if spares.is_empty() { Vec::new() } else { MemberAccess::local().look_all(spares).unwrap() };
    let request = CreateRequest {
        consistency: Consistency::Bitmap { chunk_bytes: Some(65536) },
        bitmap_sweep_secs: Some(1),
        spares,
        ..request(level, looked(members))
    };
    real::create(&request).unwrap();
}

/// Writes 64 KiB at a multiple of that.
async fn write_at(core: &Core, array: &RunningArray, region: u64, byte: u8) {
    let volume = array.handle().volume().open(core).unwrap();
    volume.write(region << 16, Buf::copy_of(&[byte; 1 << 16]), Durability::Fua).await.unwrap();
}

/// Long enough for bits to be cleared.
async fn rest(core: &Core) {
    core.sleep(Duration::from_millis(3500)).await;
}

/// The last half, run so often that it is ahead of the other.
fn run_ahead(names: &[String]) {
    for nth in 0..8 {
        let names = names.to_vec();
        on_a_core(async move |core| {
            let array = run(&core, &names).await;
            write_at(&core, &array, 8 + nth % 2, 0xB0 | nth as u8).await;
            array.stop().await.unwrap();
        });
    }
}

#[track_caller]
fn refused_with(given: &[&String]) {
    let given: Vec<_> = given.iter().map(|name| (*name).clone()).collect();
    let found = scan(MemberAccess::local().look_all(&given).unwrap(), Forced::default()).unwrap();
    let problem = found.find(None).unwrap().assembly.refusal();
    assert_eq!(problem.map(|problem| problem.code), Some(Code::SplitBrain), "{given:?}");
}

/// A running half does not take these in, unless it is told to give up what they hold.
fn does_not_add(half: &[String], others: &[&String]) {
    let half = half.to_vec();
    let others: Vec<_> = others.iter().map(|name| (*name).clone()).collect();
    on_a_core(async move |core| {
        let array = run(&core, &half).await;
        for other in &others {
            let problem = array.add(other, UUID, Forced::default()).await.unwrap_err();
            assert_eq!(problem.code, Code::SplitBrain, "{other}: {problem}");
        }
        array.stop().await.unwrap();
    });
}

#[test]
fn a_half_whose_new_partner_has_the_number_of_the_other_half_is_known_by_its_bits() {
    for rests in [false, true] {
        let (_dir, names) = files(4, SIZE);
        let [a, b, x, z] = names.clone().try_into().unwrap();
        create_swept(Level::Raid1, &names[..2], &[]);
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all[..2]).await;
            whole(&core, &array).await;
            array.fail(&b).await.unwrap();
            array.remove(&b).await.unwrap();
            array.add(&all[2], id(1, 1), Forced::default()).await.unwrap();
            whole(&core, &array).await;
            write(&core, &array, &data(1)).await;
            rest(&core).await;
            array.stop().await.unwrap();
        });
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all[..1]).await;
            write_at(&core, &array, 1, 0xA1).await;
            array.add(&all[3], id(1, 2), Forced::default()).await.unwrap();
            whole(&core, &array).await;
            write_at(&core, &array, 2, 0xA2).await;
            if rests {
                rest(&core).await;
            }
            array.stop().await.unwrap();
        });
        run_ahead(std::slice::from_ref(&x));
        refused_with(&[&a, &x]);
        refused_with(&[&z, &a, &x]);
        does_not_add(&[x], &[&a]);
    }
}

#[test]
fn half_of_a_raid6_whose_new_members_have_the_numbers_of_the_other_half_is_known_by_its_bits() {
    let (_dir, names) = files(8, SIZE);
    create_swept(Level::Raid6, &names[..4], &[]);
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all[..4]).await;
        whole(&core, &array).await;
        for (old, new, class) in [(2, 4, 1), (3, 5, 2)] {
            array.fail(&all[old]).await.unwrap();
            array.remove(&all[old]).await.unwrap();
            array.add(&all[new], id(class, 1), Forced::default()).await.unwrap();
            whole(&core, &array).await;
        }
        write(&core, &array, &data(1)).await;
        rest(&core).await;
        array.stop().await.unwrap();
    });
    let all = names.clone();
    on_a_core(async move |core| {
        let array = run(&core, &all[..2]).await;
        write_at(&core, &array, 1, 0xA1).await;
        for (new, class) in [(6, 1), (7, 2)] {
            array.add(&all[new], id(class, 2), Forced::default()).await.unwrap();
        }
        whole(&core, &array).await;
        array.stop().await.unwrap();
    });
    run_ahead(&names[4..6]);
    refused_with(&[&names[4], &names[5], &names[0], &names[1]]);
    refused_with(&[&names[4], &names[5], &names[0]]);
    does_not_add(&names[4..6], &[&names[0], &names[1]]);
}

/// All members of the other half joined later, so that this one may not know them because it is
/// old; what it did without them its bits tell, or it is not known and the operator is asked.
#[test]
fn a_half_that_knows_none_of_the_others_is_not_taken_in_unasked() {
    for has_bitmap in [true, false] {
        let (_dir, names) = files(4, SIZE);
        let [a, b, x, s] = names.clone().try_into().unwrap();
        if has_bitmap {
            create_swept(Level::Raid1, &names[..2], &[]);
        } else {
            create(Level::Raid1, Version::V12, Consistency::Resync, &names[..2], &[]);
        }
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all[..2]).await;
            whole(&core, &array).await;
            array.fail(&b).await.unwrap();
            array.remove(&b).await.unwrap();
            array.add(&all[2], id(1, 1), Forced::default()).await.unwrap();
            whole(&core, &array).await;
            array.add(&all[3], id(2, 1), Forced::default()).await.unwrap();
            array.stop().await.unwrap();
        });
        let half = [a.clone(), s.clone()];
        on_a_core(async move |core| {
            let array = run(&core, &half).await;
            core.spawn(keep(array.clone()));
            whole(&core, &array).await;
            write_at(&core, &array, 1, 0xA1).await;
            if has_bitmap {
                rest(&core).await;
            }
            array.stop().await.unwrap();
        });
        run_ahead(std::slice::from_ref(&x));
        if has_bitmap {
            refused_with(&[&x, &a, &s]);
            refused_with(&[&x, &a]);
        }
        does_not_add(std::slice::from_ref(&x), &[&a]);
    }
}
