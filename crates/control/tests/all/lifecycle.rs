//! From `create` to a stopped array and back, on files and in memory, through the real engine.

use std::os::unix::fs::FileExt;

use crate::support::real::{create, files, looked, on_a_core, request};
use tempfile::TempDir;
use wattle_control::ArrayId;
use wattle_control::assemble::{Access, SyncState, Verdict};
use wattle_control::create::{Consistency, CreateRequest, inspect, plan};
use wattle_control::members::MemberAccess;
use wattle_control::scan::{Scan, scan};
use wattle_control::{Check, Claimed, Code, Forced, Problem, start};
use wattle_engine::ArrayHandle;
use wattle_engine::geometry::Level;
use wattle_engine::units::MemberIx;
use wattle_format::md::{self, Features, PplArea, Uuid, Version};
use wattle_rt::{Buf, BufMut, Core, Durability};

fn scan_of(names: &[String]) -> Scan {
    scan(MemberAccess::local().look_all(names).unwrap(), Forced::default()).unwrap()
}

async fn started(claimed: Claimed, core: &Core) -> ArrayHandle {
    claimed.launch(core).await.unwrap().handle
}

fn events(names: &[String]) -> Vec<u64> {
    scan_of(names)
        .members
        .iter()
        .map(|member| member.superblock().map_or(0, |superblock| superblock.events()))
        .collect()
}

const LEVELS: [(Level, usize); 7] = [
    (Level::Linear, 2),
    (Level::Raid0, 3),
    (Level::Raid1, 2),
    (Level::Raid4, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
];

#[test]
fn created_arrays_assemble_clean_at_every_level_and_version() {
    for (level, count) in LEVELS {
        for version in Version::ALL {
            let (_dir, names) = files(count, 8 << 20);
            let mut request = request(level, looked(&names));
            request.version = version;
            let plan = create(&request).unwrap();
            assert!(plan.clean, "{level} {version}: the members are holes");
            let found = scan_of(&names);
            let assembly = &found.arrays[ArrayId::nth(0)].assembly;
            assert_eq!(assembly.access, Access::ReadWrite, "{level} {version}");
            assert_eq!(assembly.degraded(), 0);
            assert_eq!(assembly.geometry.as_ref().unwrap().array_sectors(), plan.geometry.array_sectors());
        }
    }
}

#[test]
fn unknown_content_starts_dirty_and_missing_members_start_degraded() {
    let (_dir, names) = files(4, 8 << 20);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&names[1])
        .unwrap()
        .write_all_at(&[1; 4096], 4 << 20)
        .unwrap();
    assert!(!create(&request(Level::Raid5, looked(&names))).unwrap().clean);
    let found = scan_of(&names);
    assert_eq!(found.arrays[ArrayId::nth(0)].assembly.state, SyncState::Dirty);

    let (_dir, names) = files(3, 8 << 20);
    let mut members = looked(&names);
    members.insert(1, None);
    assert!(create(&request(Level::Raid5, members)).unwrap().clean);
    let found = scan_of(&names);
    assert_eq!(found.arrays[ArrayId::nth(0)].assembly.missing(), [1]);
    assert_eq!(found.arrays[ArrayId::nth(0)].assembly.access, Access::ReadWrite);
}

/// What the kernel does (docs/formats.md §1.5): created 0, first write 1, clean 2, write 3,
/// clean 2.
#[test]
fn events_go_as_the_kernel_counts_them() {
    let (_dir, names) = files(3, 8 << 20);
    create(&request(Level::Raid5, looked(&names))).unwrap();
    assert_eq!(events(&names), [0; 3]);
    for (dirty, clean) in [(1, 2), (3, 2), (3, 2)] {
        let found = scan_of(&names);
        let claimed = start::claim(&found, &found.arrays[ArrayId::nth(0)], false).unwrap();
        drop(found);
        let looked_at = names.clone();
        on_a_core(async move |core| {
            let array = started(claimed, &core).await;
            let volume = array.volume().open(&core).unwrap();
            volume.write(4096, Buf::copy_of(&[7; 4096]), Durability::Cached).await.unwrap();
            assert_eq!(events(&looked_at), [dirty; 3]);
            let looked = scan_of(&looked_at);
            assert_eq!(looked.arrays[ArrayId::nth(0)].assembly.state, SyncState::Dirty);
            array.stop(&core).await.unwrap();
        });
        assert_eq!(events(&names), [clean; 3]);
        assert_eq!(scan_of(&names).arrays[ArrayId::nth(0)].assembly.state, SyncState::Clean);
    }
}

#[test]
fn what_was_written_is_read_without_any_one_member_and_a_failed_member_stays_out() {
    for version in Version::ALL {
        let (_dir, names) = files(4, 8 << 20);
        let mut request = request(Level::Raid5, looked(&names));
        request.version = version;
        create(&request).unwrap();
        let data: Vec<u8> = (0..1 << 20).map(|i| (i / 251) as u8).collect();
        let found = scan_of(&names);
        let claimed = start::claim(&found, &found.arrays[ArrayId::nth(0)], false).unwrap();
        drop(found);
        let written = data.clone();
        on_a_core(async move |core| {
            let array = started(claimed, &core).await;
            let volume = array.volume().open(&core).unwrap();
            volume.write(0, Buf::copy_of(&written[..1 << 19]), Durability::Cached).await.unwrap();
            array.fail(&core, MemberIx(2)).await.unwrap();
            volume.write(1 << 19, Buf::copy_of(&written[1 << 19..]), Durability::Cached).await.unwrap();
            array.stop(&core).await.unwrap();
        });
        let found = scan_of(&names);
        let assembly = &found.arrays[ArrayId::nth(0)].assembly;
        assert_eq!(assembly.missing(), [2], "{version}");
        assert!(
            matches!(assembly.verdicts[2], Verdict::Stale { .. } | Verdict::Faulty { .. }),
            "{}",
            assembly.verdicts[2]
        );
        let events = events(&names);
        assert!(events[2] + 2 <= events[0], "the failed member is left behind: {events:?}");
        let claimed = start::claim(&found, &found.arrays[ArrayId::nth(0)], true).unwrap();
        let read = on_a_core(async move |core| {
            let array = started(claimed, &core).await;
            let (result, buf) = array.volume().open(&core).unwrap().read(0, BufMut::alloc(1 << 20)).await;
            result.unwrap();
            array.stop(&core).await.unwrap();
            buf.to_vec()
        });
        assert!(read == data, "{version}: the data is not what was written");
    }
}

/// A member that was absent must not come back as current when the array stops one event later (a
/// crash right after the first dirty round).
#[test]
fn an_absent_member_is_counted_out_by_the_first_round() {
    let (_dir, names) = files(4, 8 << 20);
    create(&request(Level::Raid5, looked(&names))).unwrap();
    let found = scan_of(&names[..3]);
    let claimed = start::claim(&found, &found.arrays[ArrayId::nth(0)], false).unwrap();
    let all = names.clone();
    on_a_core(async move |core| {
        let array = started(claimed, &core).await;
        array.volume().open(&core).unwrap().write(0, Buf::copy_of(&[1; 512]), Durability::Fua).await.unwrap();
        let crashed = scan_of(&all);
        let assembly = &crashed.arrays[ArrayId::nth(0)].assembly;
        let verdict = &assembly.verdicts[3];
        assert!(matches!(verdict, Verdict::Stale { slot: Some(3), events_behind: 1, .. }), "{verdict:?}");
        array.stop(&core).await.unwrap();
    });
}

/// The bitmap's own count is that of the superblocks, or its next reader takes every bit as set
/// (docs/formats.md §2.2).
#[test]
fn a_bitmap_is_kept_as_new_as_the_superblocks() {
    let (_dir, names) = files(2, 8 << 20);
    let mut request = request(Level::Raid1, looked(&names));
    request.consistency = Consistency::Bitmap { chunk_bytes: None };
    create(&request).unwrap();
    let member = MemberAccess::local().look(&names[0]).unwrap();
    let header = || wattle_format::md::bitmap::Header::decode(&member.read(8192, 4096).unwrap()).unwrap();
    for expected in [2, 4, 6] {
        let found = scan_of(&names);
        assert_eq!(found.arrays[ArrayId::nth(0)].assembly.bitmap.as_ref().unwrap().distrust, None);
        let claimed = start::claim(&found, &found.arrays[ArrayId::nth(0)], false).unwrap();
        drop(found);
        on_a_core(async move |core| {
            let array = started(claimed, &core).await;
            array
                .volume()
                .open(&core)
                .unwrap()
                .write(0, Buf::copy_of(&[1; 512]), Durability::Cached)
                .await
                .unwrap();
            array.stop(&core).await.unwrap();
        });
        assert_eq!(events(&names), [expected; 2], "counts never go back with a bitmap");
        assert_eq!(header().events(), expected);
    }
}

/// The process that ran the array may have died between the look and the lock, with superblocks as
/// they were seen and bits that were not: a resync would pass over what it was writing.
#[test]
fn bits_that_were_set_after_the_look_are_not_overlooked() {
    let (_dir, names) = files(2, 8 << 20);
    let mut request = request(Level::Raid1, looked(&names));
    request.consistency = Consistency::Bitmap { chunk_bytes: None };
    create(&request).unwrap();
    let found = scan_of(&names);
    let file = std::fs::File::options().read(true).write(true).open(&names[1]).unwrap();
    let mut bits = [0];
    file.read_exact_at(&mut bits, 8192 + 256).unwrap();
    file.write_all_at(&[bits[0] ^ 1], 8192 + 256).unwrap();
    let problem = start::claim(&found, &found.arrays[ArrayId::nth(0)], false).unwrap_err();
    assert_eq!(problem.code, Code::Changed, "{problem}");
    assert!(start::claim(&scan_of(&names), &scan_of(&names).arrays[ArrayId::nth(0)], false).is_ok());
}

/// What an operator gave up was one array, and another one is in its place by now.
#[test]
fn create_does_not_write_over_an_array_that_was_made_since_the_look() {
    let (_dir, names) = files(2, 8 << 20);
    create(&request(Level::Raid1, looked(&names))).unwrap();
    let members = looked(&names);
    let states: Vec<_> = members.iter().flatten().map(|member| inspect(member).unwrap()).collect();
    let forced = Forced::default().with(Check::Signature);
    let plan = plan(&CreateRequest { forced, ..request(Level::Raid1, members) }, &states).unwrap();
    create(&CreateRequest { forced, set_uuid: Uuid([9; 16]), ..request(Level::Raid1, looked(&names)) })
        .unwrap();
    let refused = Problem::from(plan.claim(&states).unwrap_err());
    assert_eq!(refused.code, Code::Changed, "{refused}");
}

#[test]
fn create_refuses_what_is_there_and_wipes_it_when_told() {
    let (_dir, names) = files(2, 8 << 20);
    let mut old = request(Level::Raid1, looked(&names));
    old.version = Version::V090;
    create(&old).unwrap();
    let new = request(Level::Raid1, looked(&names));
    let before: Vec<_> = names.iter().map(|name| std::fs::read(name).unwrap()).collect();
    let problem = create(&new).unwrap_err();
    assert_eq!(
        (problem.code, problem.exit_code(), problem.force),
        (Code::SignatureFound, 3, Some(Check::Signature))
    );
    assert!(problem.what.contains("md 0.90 superblock at byte 8323072"), "{}", problem.what);
    assert!(before == names.iter().map(|name| std::fs::read(name).unwrap()).collect::<Vec<_>>());

    let forced = CreateRequest { forced: Forced::default().with(Check::Signature), ..new };
    let plan = create(&forced).unwrap();
    assert_eq!(plan.overridden.len(), 2);
    let found = scan_of(&names);
    assert!(found.members.iter().all(|member| member.superblocks.len() == 1), "the old superblocks are gone");
    assert_eq!(found.arrays[ArrayId::nth(0)].assembly.array.version, Version::V12);
}

#[test]
fn two_superblocks_on_a_member_are_not_guessed_between() {
    let (_dir, names) = files(2, 8 << 20);
    create(&request(Level::Raid1, looked(&names))).unwrap();
    let kept: Vec<_> = names.iter().map(|name| std::fs::read(name).unwrap()).collect();
    let mut old = request(Level::Raid1, looked(&names));
    old.version = Version::V090;
    old.forced = Forced::default().with(Check::Signature);
    old.set_uuid = Uuid([9; 16]);
    old.now.secs -= 1000;
    create(&old).unwrap();
    for (name, bytes) in names.iter().zip(&kept) {
        let file = std::fs::OpenOptions::new().write(true).open(name).unwrap();
        file.write_all_at(&bytes[4096..8192], 4096).unwrap();
    }
    let problem = scan_of(&names).find(None).unwrap_err();
    assert_eq!((problem.code, problem.exit_code()), (Code::SeveralSuperblocks, 3), "{problem}");
    let found = scan(
        MemberAccess::local().look_all(&names).unwrap(),
        Forced::default().with(Check::NewestSuperblock),
    )
    .unwrap();
    assert_eq!(found.find(None).unwrap().assembly.array.version, Version::V12, "the newer one");
}

/// Whatever the guard and the sizes, a data offset is refused or leaves room for all that is kept
/// beside the data.
#[test]
fn nothing_that_create_writes_lies_in_the_data() {
    let bitmap = |chunk_bytes| Consistency::Bitmap { chunk_bytes };
    let guards = [Consistency::Resync, bitmap(None), bitmap(Some(64 << 10)), Consistency::Ppl];
    for (size, guard) in ["64M", "20G", "300G"].into_iter().flat_map(|size| guards.map(|guard| (size, guard)))
    {
        let members = || MemberAccess::local().look_all(&vec![format!("null:{size}"); 3]).unwrap();
        let states: Vec<_> = members().iter().map(|member| inspect(member).unwrap()).collect();
        for (version, kib) in [Version::V11, Version::V12].into_iter().flat_map(|version| {
            let offsets = (0..40).map(|page| 4 * page).chain([512, 1028, 1032, 1036, 1040, 1048, 2048]);
            offsets.map(move |kib| (version, kib))
        }) {
            let case = format!("{size} {version} {guard:?} {kib}K");
            let mut request = request(Level::Raid5, members().into_iter().map(Some).collect());
            (request.version, request.consistency) = (version, guard);
            request.data_offset_bytes = Some(kib << 10);
            let plan = match plan(&request, &states) {
                Ok(plan) => plan,
                Err(problem) => {
                    assert_eq!(problem.code, Code::BadRequest, "{case}: {problem}");
                    // No bitmap of 300 GiB has chunks of 64 KiB.
                    assert!(kib < 2048 || (size, guard) == ("300G", guards[2]), "{case}: {problem}");
                    continue;
                }
            };
            for device in &plan.devices {
                let mut at = 0;
                let mut writes = device.writes.clone();
                writes.sort_by_key(|write| write.offset_bytes);
                for write in &writes {
                    assert!(at <= write.offset_bytes, "{case}: two areas meet at the {}", write.what);
                    at = write.offset_bytes + write.bytes.len() as u64;
                }
                assert!(at <= kib << 10, "{case}: written until {at}");
            }
        }
    }
}

/// Metadata 0.90 cannot say which of its two layouts a RAID 0 has.
#[test]
fn a_raid0_that_nothing_would_open_is_not_created() {
    let of = |sizes: &[u64], version| {
        let dir = TempDir::new().unwrap();
        let files = sizes.iter().enumerate().map(|(ix, size)| {
            let name = dir.path().join(ix.to_string());
            std::fs::File::create(&name).unwrap().set_len(size << 20).unwrap();
            name.to_str().unwrap().to_owned()
        });
        let names: Vec<_> = files.collect();
        let mut request = request(Level::Raid0, looked(&names));
        request.version = version;
        let created = create(&request).map(|_| ());
        created.map(|()| scan_of(&names).find(None).map(|array| array.assembly.access.clone()))
    };
    for (sizes, version) in
        [(&[8, 16][..], Version::V090), (&[8, 8, 16], Version::V090), (&[8, 16, 24], Version::V12)]
    {
        assert_eq!(of(sizes, version).unwrap().unwrap(), Access::ReadWrite, "{sizes:?} {version}");
    }
    let problem = of(&[8, 16, 24], Version::V090).unwrap_err();
    assert_eq!(problem.code, Code::BadRequest, "{problem}");
}

/// A log of before describes writes that are long done. Replayed after a crash of ours it would put
/// old parity back, so it is gone before the first dirty superblock, and stays untouched as long as
/// nothing is written.
#[test]
fn old_partial_parity_logs_are_gone_before_the_first_write() {
    const LOG_AT: u64 = 16 * 512;
    let (_dir, names) = files(3, 8 << 20);
    create(&request(Level::Raid5, looked(&names))).unwrap();
    let uuid = *b"0123456789abcdef";
    let old = md::ppl::Header { generation: 77, entries: Vec::new() }.encode(&uuid);
    for name in &names {
        let member = MemberAccess::local().look(name).unwrap();
        let block = member.read(4096, 4096).unwrap();
        let mut superblock = md::identify(Version::V12, &block, member.size_sectors()).unwrap().unwrap();
        superblock.add_features(Features::PPL).unwrap();
        superblock.set_ppl_area(PplArea { offset_sectors: 8, size_sectors: 1024 }).unwrap();
        superblock.set_bad_block_log(None).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(name).unwrap();
        file.write_all_at(superblock.bytes(), 4096).unwrap();
        file.write_all_at(&old[..], LOG_AT).unwrap();
    }
    let generations = || -> Vec<Option<u64>> {
        let log = |name: &String| {
            let area = MemberAccess::local().look(name).unwrap().read(LOG_AT, 1024 * 512).unwrap();
            md::ppl::newest(&area, &uuid).map(|newest| newest.header.generation)
        };
        names.iter().map(log).collect()
    };
    let run = |write: bool| {
        let found = scan_of(&names);
        let claimed = start::claim(&found, &found.arrays[ArrayId::nth(0)], false).unwrap();
        drop(found);
        on_a_core(async move |core| {
            let array = started(claimed, &core).await;
            if write {
                let volume = array.volume().open(&core).unwrap();
                volume.write(0, Buf::copy_of(&[1; 4096]), Durability::Cached).await.unwrap();
            }
            array.stop(&core).await.unwrap();
        });
    };
    run(false);
    assert_eq!(generations(), [Some(77); 3], "nothing was written, so nothing is touched");
    run(true);
    assert!(generations().iter().all(|generation| generation.is_some_and(|g| g < 77)), "{:?}", generations());
}

/// What the power leaves of the members of a RAID 5 with a partial parity log in the middle of a
/// write of its first block, whose parity is on the last of three members.
fn crashed_with_a_log() -> (TempDir, Vec<String>) {
    let (dir, names) = files(3, 8 << 20);
    create(&CreateRequest { consistency: Consistency::Ppl, ..request(Level::Raid5, looked(&names)) })
        .unwrap();
    let claimed = start::claim(&scan_of(&names), &scan_of(&names).arrays[ArrayId::nth(0)], false).unwrap();
    on_a_core(async move |core| {
        let array = started(claimed, &core).await;
        let volume = array.volume().open(&core).unwrap();
        volume.write(0, Buf::copy_of(&[7; 4096]), Durability::Fua).await.unwrap();
        for name in &names {
            std::fs::copy(name, format!("{name}.left")).unwrap();
        }
        array.stop(&core).await.unwrap();
        (dir, names.iter().map(|name| format!("{name}.left")).collect())
    })
}

/// Starts what there is of such an array, and reads its first block.
fn first_block(names: &[String], forced: Forced) -> Result<Vec<u8>, Problem> {
    let found = scan(MemberAccess::local().look_all(names).unwrap(), forced).unwrap();
    let array = found.find(None)?;
    assert_eq!((array.assembly.state, array.assembly.degraded()), (SyncState::Dirty, 3 - names.len()));
    let claimed = start::claim(&found, array, false)?;
    on_a_core(async move |core| {
        let array = claimed.launch(&core).await?.handle;
        let volume = array.volume().open(&core).unwrap();
        let (result, bytes) = volume.read(0, BufMut::alloc(4096)).await;
        result.unwrap();
        array.stop(&core).await.unwrap();
        Ok(bytes.to_vec())
    })
}

/// The missing member's log was the only one with entries. Those of the others say that every write
/// was logged, so nothing in flight needed parity that is still there.
#[test]
fn a_crash_that_costs_the_member_whose_log_was_in_use_costs_nothing_else() {
    for missing in 0..3 {
        let (_dir, mut names) = crashed_with_a_log();
        names.remove(missing);
        assert_eq!(first_block(&names, Forced::default()).unwrap(), [7; 4096], "without {missing}");
    }
}

/// That logs cannot be followed shows only when the array is started: what was forced then is as if
/// it had shown before.
#[test]
fn logs_that_cannot_be_followed_are_passed_over_by_force() {
    let (_dir, mut names) = crashed_with_a_log();
    let member = MemberAccess::local().look(&names[2]).unwrap();
    let superblock = md::identify(Version::V12, &member.read(4096, 4096).unwrap(), member.size_sectors());
    let superblock = superblock.unwrap().unwrap();
    let log_at = superblock.sector_from_superblock(superblock.ppl().unwrap().offset_sectors.into()).unwrap();
    let impossible =
        md::ppl::PplEntry { data_sector: 0, pp_bytes: 100, data_bytes: 100, parity_disk: 2, checksum: 0 };
    let header = md::ppl::Header { generation: 99, entries: vec![impossible] };
    let file = std::fs::OpenOptions::new().write(true).open(&names[2]).unwrap();
    file.write_all_at(&header.encode(&superblock.stored_uuid())[..], log_at * 512).unwrap();
    names.remove(0);
    let problem = first_block(&names, Forced::default()).unwrap_err();
    assert_eq!((problem.code, problem.force), (Code::DirtyDegraded, Some(Check::DirtyDegraded)), "{problem}");
    assert!(problem.next.contains("--force=dirty-degraded"), "{problem}");
    let forced = Forced::default().with(Check::DirtyDegraded);
    assert_eq!(first_block(&names, forced).unwrap(), [7; 4096], "the write had ended when the power went");
}

/// A drive in memory is created and served by one process.
#[test]
fn drives_in_memory() {
    let members = MemberAccess::local().look_all(&["mem:8M", "mem:8M", "mem:8M"]).unwrap();
    let plan = create(&request(Level::Raid5, members.iter().cloned().map(Some).collect())).unwrap();
    assert!(plan.clean);
    let found = scan(members, Forced::default()).unwrap();
    let claimed = start::claim(&found, found.find(Some("t")).unwrap(), false).unwrap();
    assert!(!claimed.read_only());
}
