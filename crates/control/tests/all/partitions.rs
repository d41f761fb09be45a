//! Members in partitions: arrays that a real kernel wrote, put into partitions of disks, are found
//! there and nowhere else.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use wattle_control::ArrayId;
use wattle_control::members::MemberAccess;
use wattle_control::scan::{MemberOrigin, Scan, scan};
use wattle_control::why::why;
use wattle_control::{Claim, Code, Forced, start};

const START_SECTORS: u64 = 2048;

/// The members of a fixture; `None` (loudly, and never in CI) if there is no `zstd`.
fn unpack(case: &str) -> Option<Vec<Vec<u8>>> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(case);
    let mut packed: Vec<_> = std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()).collect();
    packed.retain(|path| path.extension().is_some_and(|extension| extension == "zst"));
    packed.sort();
    let unpack = |path| match Command::new("zstd").arg("-dqc").arg(path).output() {
        Ok(output) => Some(output.stdout),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {case} needs zstd: {error}");
            None
        }
        Err(error) => panic!("{case} needs zstd: {error}"),
    };
    packed.iter().map(unpack).collect()
}

/// Disks with one partition each (type `fd`), and what is in it.
struct Disks {
    dir: tempfile::TempDir,
    names: Vec<String>,
}

impl Disks {
    /// The partition ends so many sectors before the disk does.
    fn of(contents: &[Vec<u8>], rest_sectors: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        for (ix, content) in contents.iter().enumerate() {
            let path = dir.path().join(format!("disk{ix}.img"));
            let mut disk = File::create(&path).unwrap();
            let sectors = content.len() as u64 / 512;
            disk.set_len((START_SECTORS + sectors + rest_sectors) * 512).unwrap();
            let mut mbr = [0_u8; 512];
            mbr[446 + 4] = 0xFD;
            mbr[446 + 8..][..4].copy_from_slice(&(START_SECTORS as u32).to_le_bytes());
            mbr[446 + 12..][..4].copy_from_slice(&(sectors as u32).to_le_bytes());
            mbr[510..].copy_from_slice(&[0x55, 0xAA]);
            disk.write_all(&mbr).unwrap();
            disk.seek(SeekFrom::Start(START_SECTORS * 512)).unwrap();
            disk.write_all(content).unwrap();
            names.push(path.to_str().unwrap().to_owned());
        }
        Self { dir, names }
    }

    fn scan(&self) -> Scan {
        scan(MemberAccess::local().look_all(&self.names).unwrap(), Forced::default()).unwrap()
    }
}

fn whole(scan: &Scan) -> bool {
    let [array] = scan.arrays.iter().collect::<Vec<_>>()[..] else { panic!("{} arrays", scan.arrays.len()) };
    array.assembly.degraded() == 0 && array.assembly.refusal().is_none()
}

/// A disk of 64 MiB with an MBR of these entries (start and length as they are written), and swap's
/// mark in what begins at these bytes.
fn counted_disk(entries: &[(u32, u32)], swap_at: &[u64]) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let disk = File::create(&path).unwrap();
    disk.set_len(64 << 20).unwrap();
    let mut mbr = [0_u8; 512];
    for (ix, (start, len)) in entries.iter().enumerate() {
        let entry = &mut mbr[446 + 16 * ix..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&len.to_le_bytes());
    }
    mbr[510..].copy_from_slice(&[0x55, 0xAA]);
    disk.write_all_at(&mbr, 0).unwrap();
    for at in swap_at {
        disk.write_all_at(b"SWAPSPACE2", at + 4086).unwrap();
    }
    (dir, path.to_str().unwrap().to_owned())
}

/// Entries; where swap space is; what the first entry and the table count in; whether partitions
/// are written.
type CountedRow = (&'static [(u32, u32)], &'static [u64], u64, u32, bool);

/// Hazard: the MBR of a drive from a USB enclosure counts in sectors of 4096, and its image is
/// written at an eighth of where its partitions are.
#[test]
fn an_mbr_counts_in_what_fits_with_what_is_at_the_places() {
    const MIB: u64 = 1 << 20;
    const SMALL: [(u32, u32); 1] = [(256, 1024)];
    const TWO: [(u32, u32); 2] = [(256, 1024), (4096, 2048)];
    let rows: [CountedRow; 11] = [
        // Something is where the entries lead to in one of the two sizes.
        (&SMALL, &[MIB], 4096, 4096, true),
        (&TWO, &[MIB, 16 * MIB], 4096, 4096, true),
        (&SMALL, &[MIB / 8], 512, 512, true),
        (&[(2048, 1024)], &[MIB], 512, 512, true),
        // More is where they lead to in the other size, and not everywhere, or something in the
        // device's: one remnant is enough for that.
        (&TWO, &[MIB / 8, MIB, 16 * MIB], 4096, 4096, false),
        (&TWO, &[MIB], 4096, 4096, false),
        (&TWO, &[16 * MIB], 4096, 4096, false),
        // Nothing is, or as much in either.
        (&SMALL, &[], 512, 512, false),
        (&SMALL, &[MIB / 8, MIB], 512, 512, false),
        // In sectors of 4096 it does not fit.
        (&[(2048, 16384)], &[], 512, 512, true),
        (&[(2048, 16384)], &[8 * MIB], 512, 512, true),
    ];
    for (entries, swap_at, unit_bytes, table_bytes, is_written) in rows {
        let (_dir, name) = counted_disk(entries, swap_at);
        let scan = scan(MemberAccess::local().look_all(&[name]).unwrap(), Forced::default()).unwrap();
        let mut members = scan.members.iter();
        let table = members.next().unwrap().table.clone().unwrap();
        assert_eq!(
            (table.sector_bytes, table.is_in_doubt()),
            (table_bytes, !is_written),
            "{entries:?} {swap_at:?}"
        );
        let start = u64::from(entries[0].0) * unit_bytes / 512;
        assert_eq!(table.partitions[0].start_sectors, start, "{entries:?} {swap_at:?}");
        let part = &members.next().unwrap().member;
        assert!(part.claim(Claim::Read).is_ok());
        let problem = part.claim(Claim::Write).map_err(wattle_control::Problem::from).map(|_| ());
        let written = problem.map_err(|problem| problem.code);
        assert_eq!(
            written,
            if is_written { Ok(()) } else { Err(Code::ReadOnlyMember) },
            "{entries:?} {swap_at:?}"
        );
    }
}

/// What begins with the superblock of an ext4 at its place, of this group of blocks.
fn put_ext4(name: &str, at: u64, group: u16) {
    let disk = OpenOptions::new().write(true).open(name).unwrap();
    let mut superblock = [0_u8; 256];
    superblock[56..58].copy_from_slice(&[0x53, 0xef]);
    superblock[90..92].copy_from_slice(&group.to_le_bytes());
    superblock[96] = 0x40;
    disk.write_all_at(&superblock, at + 1024).unwrap();
}

/// A copy of a superblock, as ext4 has them everywhere, and an image in a file begin no partition.
#[test]
fn what_lies_in_a_file_system_tells_nothing_of_a_table() {
    const KIB: u64 = 1 << 10;
    // In sectors of 512 from 256 KiB on for 2 MiB, of 4096 from 2 MiB on.
    let entries = [(512, 4096)];
    let rows = [
        (&[(2048 * KIB, 0)][..], 4096, true),
        (&[(2048 * KIB, 1)], 512, false),
        (&[(256 * KIB, 0), (2048 * KIB, 0)], 512, true),
        (&[(256 * KIB, 0), (2048 * KIB, 7)], 512, true),
    ];
    for (superblocks, table_bytes, is_written) in rows {
        let (_dir, name) = counted_disk(&entries, &[]);
        superblocks.iter().for_each(|&(at, group)| put_ext4(&name, at, group));
        let scan = scan(MemberAccess::local().look_all(&[name]).unwrap(), Forced::default()).unwrap();
        let table = scan.members.iter().next().unwrap().table.clone().unwrap();
        assert_eq!((table.sector_bytes, !table.is_in_doubt()), (table_bytes, is_written), "{superblocks:?}");
    }
}

#[test]
fn members_in_partitions_are_members() {
    for case in ["raid5-4d-64k", "raid1-2d-v10", "raid6-6d-64k"] {
        let Some(contents) = unpack(case) else { return };
        let disks = Disks::of(&contents, 4096);
        let scan = disks.scan();
        let nth = |at: usize| scan.members.ids().nth(at).unwrap();
        assert!(whole(&scan), "{case}");
        let parts = scan.arrays[ArrayId::nth(0)].members.iter().map(|&ix| &scan.members[ix]);
        for (disk, part) in parts.enumerate() {
            assert_eq!(part.origin, MemberOrigin::Partition { of: nth(2 * disk), number: 1 });
            assert_eq!(part.member.name, format!("{}:p1", disks.names[disk]));
            assert!(
                scan.members[nth(2 * disk)].facts.is_none() && scan.members[nth(2 * disk)].table.is_some()
            );
        }
    }
}

/// A superblock at the end of the last partition is at the end of the disk too.
#[test]
fn a_superblock_at_the_end_of_disk_and_partition_is_the_partitions() {
    let Some(contents) = unpack("raid1-2d-v10") else { return };
    let disks = Disks::of(&contents, 0);
    let scan = disks.scan();
    let nth = |at: usize| scan.members.ids().nth(at).unwrap();
    assert!(whole(&scan), "the array's members are the partitions alone");
    for disk in [0, 2] {
        let member = &scan.members[nth(disk)];
        assert!(member.facts.is_none() && member.problem.is_none(), "{:?}", member.problem);
        assert!(member.note.as_ref().is_some_and(|note| note.contains("partition 1")), "{:?}", member.note);
        assert_eq!(scan.arrays[ArrayId::nth(0)].members[disk / 2], nth(disk + 1));
    }
}

/// What the array holds is not the disk's: a partitioned RAID 1 with its superblock at the end.
#[test]
fn a_table_inside_an_array_is_not_the_members() {
    let Some(mut contents) = unpack("raid1-2d-v10") else { return };
    for content in &mut contents {
        content[446 + 4] = 0x83;
        content[446 + 8..][..4].copy_from_slice(&8_u32.to_le_bytes());
        content[446 + 12..][..4].copy_from_slice(&64_u32.to_le_bytes());
        content[510..512].copy_from_slice(&[0x55, 0xAA]);
    }
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..2)
        .map(|ix| {
            let path = dir.path().join(format!("{ix}.img"));
            std::fs::write(&path, &contents[ix]).unwrap();
            path.to_str().unwrap().to_owned()
        })
        .collect();
    let scan = scan(MemberAccess::local().look_all(&names).unwrap(), Forced::default()).unwrap();
    assert!(whole(&scan));
    assert_eq!(scan.members.len(), 2, "the members' own tables have no partitions");
    assert!(scan.members.iter().all(|member| member.table.is_none() && member.facts.is_some()));
}

/// Bands: two arrays on partitions of the same disks, claimed and written by one owner, which keeps
/// every other out.
#[test]
fn arrays_share_their_disks_but_not_with_another_owner() {
    let (Some(one), Some(five)) = (unpack("raid1-2d-v10"), unpack("raid5-4d-64k")) else { return };
    let disks = Disks::of(&five, 0);
    // The first two disks get a second partition behind the first.
    for (name, content) in disks.names.iter().zip(&one) {
        let mut disk = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let end = disk.metadata().unwrap().len();
        disk.set_len(end + content.len() as u64 + 8192).unwrap();
        let mut mbr = [0; 512];
        disk.read_exact(&mut mbr).unwrap();
        mbr[462 + 4] = 0xFD;
        mbr[462 + 8..][..4].copy_from_slice(&((end / 512) as u32).to_le_bytes());
        mbr[462 + 12..][..4].copy_from_slice(&(content.len() as u32 / 512).to_le_bytes());
        disk.seek(SeekFrom::Start(0)).unwrap();
        disk.write_all(&mbr).unwrap();
        disk.seek(SeekFrom::Start(end)).unwrap();
        disk.write_all(content).unwrap();
    }
    let found = disks.scan();
    assert_eq!(found.arrays.len(), 2);
    let claimed: Vec<_> =
        found.arrays.iter().map(|array| start::claim(&found, array, false).unwrap()).collect();
    assert!(claimed.iter().all(|claimed| !claimed.read_only()));
    let again = disks.scan();
    for array in &again.arrays {
        assert_eq!(start::claim(&again, array, false).unwrap_err().code, Code::Locked);
    }
    let other = MemberAccess::local().look(&disks.names[0]).unwrap().claim(Claim::Write);
    assert_eq!(wattle_control::Problem::from(other.unwrap_err()).code, Code::Locked);
    drop((claimed, found));
    let read_only: Vec<_> =
        again.arrays.iter().map(|array| patiently(|| start::claim(&again, array, true))).collect();
    let third = disks.scan();
    assert!(start::claim(&third, &third.arrays[ArrayId::nth(0)], true).is_ok(), "readers share");
    drop((read_only, disks.dir));
}

/// Children of other tests that are being started hold every file of this process for a moment, and
/// its lock.
fn patiently<T>(mut claim: impl FnMut() -> Result<T, wattle_control::Problem>) -> T {
    for _ in 0..100 {
        match claim() {
            Err(problem) if problem.code == Code::Locked => sleep(),
            claimed => return claimed.unwrap(),
        }
    }
    claim().unwrap()
}

#[allow(clippy::disallowed_methods, reason = "a test may wait")]
fn sleep() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

/// A disk that ends in its last partition: the array knows what it lacks.
#[test]
fn a_member_in_a_partition_that_is_cut_off_is_truncated() {
    let Some(contents) = unpack("raid5-4d-64k") else { return };
    let disks = Disks::of(&contents, 4096);
    let disk = OpenOptions::new().write(true).open(&disks.names[1]).unwrap();
    disk.set_len(START_SECTORS * 512 + contents[1].len() as u64 / 2).unwrap();
    let scan = disks.scan();
    let [array] = scan.arrays.iter().collect::<Vec<_>>()[..] else { panic!("{:?}", scan.arrays) };
    let names: Vec<_> = array.members.iter().map(|&ix| scan.members[ix].member.name.clone()).collect();
    let cut = names.iter().position(|name| *name == format!("{}:p1", disks.names[1])).unwrap();
    assert_eq!(array.assembly.verdicts[cut].word(), "truncated");
    assert_eq!(scan.members[array.members[cut]].problem.as_ref().unwrap().code, Code::Truncated);
    assert_eq!((array.assembly.missing().len(), array.assembly.refusal().is_none()), (1, true));
    assert!(scan.members.iter().all(|member| member.unused_partitions.is_empty()));
    let decisions = why(&scan, array).decisions;
    let slot = decisions.iter().find(|decision| decision.what == "slot 1 is empty").unwrap();
    assert!(slot.why.contains("copy it again, whole") && slot.next.is_none(), "{slot:?}");
    // Cut off before it holds anything that is known, it is named with the reason.
    disk.set_len(START_SECTORS * 512 + 2048).unwrap();
    let scan = disks.scan();
    let unused: Vec<_> = scan.members.iter().flat_map(|member| &member.unused_partitions).collect();
    let [problem] = unused[..] else { panic!("{unused:?}") };
    assert_eq!((problem.code, problem.member.as_ref()), (Code::PartitionCutOff, Some(&disks.names[1])));
    assert!(problem.what.contains("partition 1") && problem.next.contains("copy the drive again"));
}

#[test]
fn partitions_that_overlap_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let mut mbr = vec![0_u8; 1 << 20];
    for (entry, start, len) in [(446, 64_u32, 512_u32), (462, 128, 1024)] {
        mbr[entry + 4] = 0x83;
        mbr[entry + 8..][..4].copy_from_slice(&start.to_le_bytes());
        mbr[entry + 12..][..4].copy_from_slice(&len.to_le_bytes());
    }
    mbr[510..512].copy_from_slice(&[0x55, 0xAA]);
    std::fs::write(&path, mbr).unwrap();
    let scan =
        scan(MemberAccess::local().look_all(&[path.to_str().unwrap()]).unwrap(), Forced::default()).unwrap();
    let told: Vec<_> = scan.members.iter().flat_map(|member| &member.unused_partitions).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|problem| problem.code == Code::PartitionUnusable), "{told:?}");
    assert!(told[0].what.contains("partition 1") && told[0].what.contains("overlaps partition 2"));
    assert_eq!(
        scan.find(None).unwrap_err().code,
        Code::PartitionUnusable,
        "and not only that there is no array"
    );
}
