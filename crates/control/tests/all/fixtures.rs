//! Arrays that a real kernel wrote, as they are in the repository's fixtures: every member gets the
//! verdict that the case's story tells.

use std::path::{Path, PathBuf};
use std::process::Command;

use wattle_control::ArrayId;
use wattle_control::assemble::{Access, Needs, SyncState, Verdict};
use wattle_control::create::{Consistency, CreateRequest, inspect, plan};
use wattle_control::facts::JournalFacts;
use wattle_control::members::MemberAccess;
use wattle_control::reason::Reason;
use wattle_control::scan::{Scan, scan};
use wattle_control::{Forced, start};
use wattle_engine::geometry::{Level, layout_name};
use wattle_format::md::{self, Features, Version};
use wattle_rt::WallTime;

/// Unpacks a case; `None` (loudly, and never in CI) if there is no `zstd`.
fn unpack(case: &str) -> Option<(tempfile::TempDir, Vec<String>)> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(case);
    let mut packed: Vec<PathBuf> = std::fs::read_dir(from).ok()?.map(|entry| entry.unwrap().path()).collect();
    packed.retain(|path| path.extension().is_some_and(|extension| extension == "zst"));
    packed.sort();
    let into = tempfile::tempdir().unwrap();
    let mut images = Vec::new();
    for path in packed {
        let image = into.path().join(path.file_stem().unwrap());
        let done = Command::new("zstd").args(["-dq", "-o"]).arg(&image).arg(&path).status();
        match done {
            Ok(status) => assert!(status.success(), "zstd cannot unpack {}", path.display()),
            Err(error) if std::env::var_os("CI").is_none() => {
                eprintln!("SKIPPED: {case} needs zstd: {error}");
                return None;
            }
            Err(error) => panic!("{case} needs zstd: {error}"),
        }
        images.push(image.to_str().unwrap().to_owned());
    }
    Some((into, images))
}

fn scan_of(images: &[String]) -> Scan {
    scan(MemberAccess::local().look_all(images).unwrap(), Forced::default()).unwrap()
}

const HEALTHY: [&str; 10] = [
    "lvm-linear-on-raid5",
    "raid0-4d-64k",
    "raid1-2d-v10",
    "raid10-3d-o2",
    "raid10-4d-f2",
    "raid10-4d-n2",
    "raid5-4d-64k",
    "raid5-4d-bitmap",
    "raid5-5d-256k",
    "raid6-6d-64k",
];

#[test]
fn healthy_arrays_assemble_in_any_order_and_scanning_writes_nothing() {
    for case in HEALTHY {
        let Some((_dir, mut images)) = unpack(case) else { continue };
        images.reverse();
        let before: Vec<_> = images.iter().map(|image| std::fs::read(image).unwrap()).collect();
        let found = scan_of(&images);
        let [array] = found.arrays.iter().collect::<Vec<_>>()[..] else {
            panic!("{case}: {:?}", found.find(None).err())
        };
        let assembly = &array.assembly;
        assert_eq!(assembly.access, Access::ReadWrite, "{case}");
        assert_eq!((assembly.degraded(), assembly.state), (0, SyncState::Clean), "{case}");
        let last = images.len() - 1;
        for (ix, verdict) in assembly.verdicts.iter().enumerate() {
            assert_eq!(verdict.slot(), Some((last - ix) as u16), "{case}: {verdict}");
        }
        if let Some(sectors) = expected_sectors(case) {
            assert_eq!(assembly.geometry.as_ref().unwrap().array_sectors().0, sectors, "{case}");
        }
        let claimed = start::claim(&found, array, true).unwrap();
        assert!(claimed.read_only());
        let after: Vec<_> = images.iter().map(|image| std::fs::read(image).unwrap()).collect();
        assert!(before == after, "{case}: scanning and claiming for reading changed a member");
    }
}

/// `"array_sectors": N` of the case; the one with LVM on top says how large its volume is instead.
fn expected_sectors(case: &str) -> Option<u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(case).join("case.json");
    let json = std::fs::read_to_string(path).unwrap();
    let (_, rest) = json.split_once("\"array_sectors\": ").filter(|_| !case.starts_with("lvm"))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[test]
fn a_member_that_failed_is_stale_and_the_rest_is_degraded() {
    let Some((_dir, images)) = unpack("raid5-4d-one-failed") else { return };
    let found = scan_of(&images);
    let assembly = &found.arrays[ArrayId::nth(0)].assembly;
    assert!(
        matches!(assembly.verdicts[2], Verdict::Stale { slot: Some(2), events_behind: 2.., .. }),
        "{}",
        assembly.verdicts[2]
    );
    assert_eq!((assembly.missing(), assembly.access.clone()), (vec![2], Access::ReadWrite));
    for ix in [0, 1, 3] {
        assert_eq!(assembly.verdicts[ix], Verdict::Fresh { slot: ix as u16, one_behind: false });
    }
}

/// Linux leaves a clean array's log full of what the members have; refusing that refuses every
/// array with a journal. What the members do not have must be noticed, however little of it there
/// is.
#[test]
fn a_journal_is_read_over_if_the_members_have_all_of_it() {
    let Some((_dir, images)) = unpack("raid5-3d-journal") else { return };
    let before: Vec<_> = images.iter().map(|image| std::fs::read(image).unwrap()).collect();
    let found = scan_of(&images);
    let array = &found.arrays[ArrayId::nth(0)];
    let journal = |found: &Scan| found.members.iter().nth(3).unwrap().facts.as_ref().unwrap().journal;
    assert_eq!(journal(&found), Some(JournalFacts::NotEmpty), "the tail alone does not tell");
    assert!(
        matches!(&array.assembly.access, Access::ReadOnly(reasons) if reasons == &[Reason::JournalUnused])
    );
    assert_eq!((array.assembly.degraded(), array.assembly.state), (0, SyncState::Clean));
    assert_eq!(array.assembly.geometry.as_ref().unwrap().array_sectors().0, 28672);
    assert!(start::claim(&found, array, false).unwrap().read_only());

    let ahead = |found: &Scan| match &found.arrays[ArrayId::nth(0)].assembly.access {
        Access::ReadOnly(reasons) => reasons.iter().find_map(|reason| match reason {
            Reason::JournalReplayed { pages, is_cut_short: false } => Some(*pages),
            _ => None,
        }),
        access => panic!("{access:?}"),
    };
    // The log has seven pages of data for member 2 and their parity on member 0. Data of a member
    // that is missing is on the others, as long as they fit each other.
    let without = |left_out: usize| {
        let rest: Vec<_> = (0..4).filter(|&ix| ix != left_out).map(|ix| images[ix].clone()).collect();
        ahead(&scan_of(&rest))
    };
    assert_eq!([0, 1, 2].map(without), [None, None, None]);
    let places = logged_places(&before);
    assert_eq!([0, 1, 2].map(|member| places.iter().filter(|place| place.0 == member).count()), [7, 0, 7]);
    for &(member, at) in &places {
        let mut damaged = before[member].clone();
        damaged[at + 4095] ^= 1;
        std::fs::write(&images[member], &damaged).unwrap();
        assert_eq!(ahead(&scan_of(&images)), Some(1), "member {member} at {at}");
        // A member that is missing besides hides nothing: without member 2 its data is computed
        // from what is damaged here.
        for left_out in (0..3).filter(|&left_out| left_out != member) {
            let found = without(left_out);
            assert_eq!(found, Some(if (member, left_out) == (0, 2) { 2 } else { 1 }), "{member} {left_out}");
        }
        std::fs::write(&images[member], &before[member]).unwrap();
    }
    assert!(ahead(&scan_of(&images)).is_none());
    // A page of the log that is not what was logged, in its last block: it was cut short.
    let last = (LOG_TAIL_BYTES..before[3].len()).rev().find(|&at| before[3][at] != 0).unwrap();
    let mut damaged = before[3].clone();
    damaged[last] ^= 1;
    std::fs::write(&images[3], &damaged).unwrap();
    let found = scan_of(&images);
    let access = &found.arrays[ArrayId::nth(0)].assembly.access;
    let cut_short = Reason::JournalReplayed { pages: 0, is_cut_short: true };
    assert!(matches!(access, Access::ReadOnly(reasons) if reasons == &[cut_short]), "{access:?}");
}

/// Where the log of `raid5-3d-journal` begins on member 3: 2280 sectors into its data.
const LOG_TAIL_BYTES: usize = (2048 + 2280) * 512;

/// Members' pages that are in the log too, found the naive way: by comparing every page with every
/// page.
fn logged_places(images: &[Vec<u8>]) -> Vec<(usize, usize)> {
    let data = 2048 * 512;
    let logged: std::collections::BTreeSet<&[u8]> = images[3][LOG_TAIL_BYTES..]
        .chunks_exact(4096)
        .filter(|page| page.iter().any(|&byte| byte != 0))
        .collect();
    let pages = |member: usize| {
        let pages = images[member][data..].chunks_exact(4096).enumerate();
        pages.map(move |(ix, page)| (member, data + ix * 4096, page))
    };
    (0..3)
        .flat_map(pages)
        .filter(|(_, _, page)| logged.contains(page))
        .map(|(member, at, _)| (member, at))
        .collect()
}

/// Linux's own bitmap, its bits and its counts, as a crash in the middle of writes leaves them; and
/// the same after writes without keeping it.
#[test]
fn a_bitmap_that_linux_wrote_says_what_to_resync() {
    let Some((_dir, images)) = unpack("raid5-4d-bitmap") else { return };
    let at = {
        let found = scan_of(&images);
        let superblock = found.members.iter().next().unwrap().superblock().unwrap();
        assert_eq!(found.arrays[ArrayId::nth(0)].assembly.needs, Needs::Nothing, "it was stopped cleanly");
        assert_eq!(
            found.arrays[ArrayId::nth(0)].assembly.bitmap.as_ref().unwrap().distrust,
            None,
            "Linux kept it"
        );
        superblock.sector_from_superblock(superblock.bitmap_offset_sectors().unwrap()).unwrap() as usize * 512
    };
    // Leaves only these bits, in every copy, and makes every superblock dirty and `events` newer
    // than the bitmap.
    let leave = |bits: &[u64], events: u64| {
        for image in &images {
            let mut bytes = std::fs::read(image).unwrap();
            let size_sectors = bytes.len() as u64 / 512;
            let mut superblock =
                md::identify(Version::V12, &bytes[4096..8192], size_sectors).unwrap().unwrap();
            superblock.set_resync_offset(0);
            let mut header = md::bitmap::Header::decode(&bytes[at..]).unwrap();
            header.set_events(superblock.events());
            superblock.set_events(superblock.events() + events);
            bytes[4096..8192].copy_from_slice(superblock.bytes());
            bytes[at..at + 256].copy_from_slice(header.bytes());
            bytes[at + 256..at + 4096].fill(0);
            for &bit in bits {
                bytes[at + 256 + bit as usize / 8] |= 1 << (bit % 8);
            }
            std::fs::write(image, &bytes).unwrap();
        }
        scan_of(&images).arrays.into_iter().next().unwrap().assembly
    };
    let crashed = leave(&[2, 5], 0);
    let Needs::Regions(regions) = &crashed.needs else { panic!("{:?}", crashed.needs) };
    assert_eq!(regions.iter().collect::<Vec<_>>(), [2, 5]);
    // Of each member's data, in the regions that --bitmap-chunk=64K asked for.
    assert_eq!((regions.total().0, regions.size().0), (14336, 128));
    assert_eq!(leave(&[], 0).needs, Needs::Nothing);
    assert_eq!(leave(&[2], 1).needs, Needs::Everything);
}

#[test]
fn members_of_two_arrays_and_a_stranger_are_told_apart() {
    let (Some((_a, one)), Some((_b, two))) = (unpack("raid5-4d-64k"), unpack("raid1-2d-v10")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let stranger = dir.path().join("stranger");
    std::fs::write(&stranger, vec![0; 1 << 20]).unwrap();
    let mixed: Vec<String> =
        [&two[1], &one[3], &one[0], stranger.to_str().unwrap(), &two[0], &one[2], &one[1]]
            .into_iter()
            .map(|name: &str| name.to_owned())
            .collect();
    let found = scan_of(&mixed);
    assert_eq!(found.arrays.len(), 2);
    let ids: Vec<_> = found.members.ids().collect();
    let members = [vec![0, 4], vec![1, 2, 5, 6]];
    let members = members.map(|places| places.into_iter().map(|at| ids[at]).collect::<Vec<_>>());
    assert_eq!(
        [&found.arrays[ArrayId::nth(0)].members, &found.arrays[ArrayId::nth(1)].members],
        [&members[0], &members[1]]
    );
    assert!(found.arrays.iter().all(|array| array.assembly.access == Access::ReadWrite));
    assert!(
        found.members.iter().nth(3).unwrap().facts.is_none()
            && found.members.iter().nth(3).unwrap().problem.is_none()
    );
    let problem = found.find(None).unwrap_err();
    assert_eq!(problem.exit_code(), 2, "{problem}");
    let uuid = found.arrays[ArrayId::nth(1)].assembly.uuid().to_string();
    assert_eq!(found.find(Some(&uuid)).unwrap().members.len(), 4);
}

/// `create` chooses what mdadm chose for the same members: places, sizes, tables.
#[test]
fn create_chooses_mdadms_numbers() {
    for case in HEALTHY {
        let Some((_dir, images)) = unpack(case) else { continue };
        let found = scan_of(&images);
        let mdadms = found.members.iter().next().unwrap().superblock().unwrap();
        let level = Level::from_md(mdadms.level()).unwrap();
        let members = images.iter().map(|image| {
            let size = std::fs::metadata(image).unwrap().len();
            Some(MemberAccess::local().look(&format!("mem:{size}")).unwrap())
        });
        let bitmap = mdadms.bitmap_offset_sectors().map(|offset| {
            let at = mdadms.sector_from_superblock(offset).unwrap() * 512;
            let bytes = found.members.iter().next().unwrap().member.read(at, 256).unwrap();
            u64::from(u32::from_le_bytes(bytes[52..56].try_into().unwrap()))
        });
        let request = CreateRequest {
            bitmap_sweep_secs: None,
            write_mostly: Vec::new(),
            name: mdadms.name(),
            level,
            members: members.collect(),
            spares: Vec::new(),
            version: mdadms.version(),
            chunk_bytes: (mdadms.chunk_sectors() > 0).then(|| u64::from(mdadms.chunk_sectors()) * 512),
            layout: layout_name(level, mdadms.layout())
                .map(|name| name.replace("offset=", "o").replace("far=", "f")),
            data_offset_bytes: None,
            size_bytes: None,
            assume_clean: false,
            consistency: bitmap
                .map_or(Consistency::Resync, |chunk| Consistency::Bitmap { chunk_bytes: Some(chunk) }),
            forced: Forced::default(),
            set_uuid: mdadms.set_uuid(),
            now: WallTime { secs: 0, micros: 0 },
        };
        let states: Vec<_> =
            request.members.iter().flatten().map(|member| inspect(member).unwrap()).collect();
        let plan = plan(&request, &states).unwrap();
        let ours = &plan.superblock;
        assert_eq!(ours.data_offset_sectors(), mdadms.data_offset_sectors(), "{case}");
        assert_eq!(ours.data_size_sectors(), mdadms.data_size_sectors(), "{case}");
        assert_eq!(ours.size_sectors(), mdadms.size_sectors(), "{case}");
        assert_eq!(ours.found_at_sectors(), mdadms.found_at_sectors(), "{case}");
        assert_eq!(ours.bitmap_offset_sectors(), mdadms.bitmap_offset_sectors(), "{case}");
        assert_eq!(ours.bad_block_log(), mdadms.bad_block_log(), "{case}");
        assert_eq!(ours.max_devices(), mdadms.max_devices(), "{case}");
        assert_eq!(ours.name_bytes(), mdadms.name_bytes(), "{case}");
        // mdadm 4.2 left the layout of RAID 0 unstated; later ones state it, and so do we.
        let stated = if level == Level::Raid0 { Features::RAID0_LAYOUT } else { Features::default() };
        assert_eq!(ours.features(), mdadms.features() | stated, "{case}");
        if level != Level::Raid0 {
            assert_eq!(ours.layout(), mdadms.layout(), "{case}");
        }
        assert!(mdadms.version() == Version::V12 || case == "raid1-2d-v10");
    }
}
