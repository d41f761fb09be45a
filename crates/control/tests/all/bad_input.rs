//! What an operator gets wrong, and what drives do to their data: one clear error each, and no byte
//! changed.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use tempfile::TempDir;
use wattle_control::ArrayId;
use wattle_control::create::{Consistency, CreateRequest, inspect, plan};
use wattle_control::facts::BitmapFacts;
use wattle_control::members::MemberAccess;
use wattle_control::scan::scan;
use wattle_control::{Access, Check, Claim, Code, Forced, Problem, start};
use wattle_engine::geometry::Level;
use wattle_format::md::{Uuid, Version};
use wattle_rt::WallTime;

/// A directory with the members of a RAID 5.
struct World {
    dir: TempDir,
    names: Vec<String>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut world = Self { dir, names: Vec::new() };
        world.names = (0..4).map(|ix| world.file(&format!("d{ix}"), 4 << 20)).collect();
        create(Level::Raid5, &world.names, None).unwrap();
        world
    }

    fn file(&self, name: &str, size_bytes: u64) -> String {
        let path = self.dir.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(size_bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, offset_bytes: u64, bytes: &[u8]) {
        let path = self.dir.path().join(name);
        std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .write_all_at(bytes, offset_bytes)
            .unwrap();
    }

    /// Patches a field of every member's superblock and makes the checksum right again.
    fn patch(&self, offset_in_superblock: usize, bytes: &[u8]) {
        for name in &self.names {
            let mut block = std::fs::read(name).unwrap()[4096..8192].to_vec();
            block[offset_in_superblock..offset_in_superblock + bytes.len()].copy_from_slice(bytes);
            block[216..220].fill(0);
            let max_dev = u32::from_le_bytes(block[220..224].try_into().unwrap()).min(1920) as usize;
            let words = block[..256 + 2 * max_dev].chunks_exact(4);
            let sum: u64 = words.map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
            let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
            block[216..220].copy_from_slice(&sum.to_le_bytes());
            self.write(Path::new(name).file_name().unwrap().to_str().unwrap(), 4096, &block);
        }
    }

    /// Every byte of every file.
    fn bytes(&self) -> Vec<(std::ffi::OsString, Vec<u8>)> {
        let mut all: Vec<_> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(Result::unwrap)
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
            .collect();
        all.sort();
        all
    }

    /// Runs what must fail, and checks that nothing changed.
    #[track_caller]
    fn refuses(
        &self,
        code: Code,
        exit_code: u8,
        mentions: &[&str],
        job: impl FnOnce() -> Result<(), Problem>,
    ) {
        let before = self.bytes();
        let problem = job().expect_err("this must be refused");
        assert!(before == self.bytes(), "{problem}: a member changed");
        assert_eq!((problem.code, problem.exit_code()), (code, exit_code), "{problem}");
        for word in mentions {
            assert!(
                problem.what.contains(word) || problem.why.contains(word),
                "`{word}` is not in: {problem}"
            );
        }
        assert!(!problem.next.is_empty(), "{problem} says what to do");
    }
}

fn request(level: Level, names: &[String], size_bytes: Option<u64>) -> Result<CreateRequest, Problem> {
    Ok(CreateRequest {
        bitmap_sweep_secs: None,
        write_mostly: Vec::new(),
        name: "t".to_owned(),
        level,
        members: MemberAccess::local().look_all(names)?.into_iter().map(Some).collect(),
        spares: Vec::new(),
        version: Version::V12,
        chunk_bytes: Some(65536),
        layout: None,
        data_offset_bytes: None,
        size_bytes,
        assume_clean: false,
        consistency: Consistency::Resync,
        forced: Forced::default(),
        set_uuid: Uuid([3; 16]),
        now: WallTime { secs: 1_700_000_000, micros: 0 },
    })
}

fn create(level: Level, names: &[String], size_bytes: Option<u64>) -> Result<(), Problem> {
    let request = request(level, names, size_bytes)?;
    let states: Vec<_> = request.members.iter().flatten().map(inspect).collect::<Result<_, _>>()?;
    let plan = plan(&request, &states)?;
    plan.execute(&plan.claim(&states)?)?;
    Ok(())
}

/// Looks, decides and claims, as `serve` does.
fn serve<S: AsRef<str>>(names: &[S]) -> Result<(), Problem> {
    let found = scan(MemberAccess::local().look_all(names)?, Forced::default())?;
    start::claim(&found, found.find(None)?, false)?;
    Ok(())
}

#[test]
fn a_missing_file() {
    let world = World::new();
    let name = world.dir.path().join("nothing");
    world.refuses(Code::NotFound, 1, &["nothing"], || serve(&[name.to_str().unwrap()]));
}

#[test]
fn a_directory() {
    let world = World::new();
    world.refuses(Code::IsDirectory, 1, &["directory"], || serve(&[world.dir.path().to_str().unwrap()]));
}

#[test]
fn an_empty_file() {
    let world = World::new();
    let name = world.file("empty", 0);
    world.refuses(Code::EmptyMember, 1, &["empty"], || serve(&[&name]));
}

#[test]
fn a_character_device() {
    let world = World::new();
    world.refuses(Code::NotADrive, 1, &["/dev/zero"], || serve(&["/dev/zero"]));
}

#[test]
fn a_size_that_is_none() {
    let world = World::new();
    world.refuses(Code::BadSize, 2, &["mem:1X"], || serve(&["mem:1X"]));
    world.refuses(Code::BadMember, 2, &[], || serve(&[""]));
    world.refuses(Code::NotSupportedYet, 1, &["nbd://"], || serve(&["nbd://host/export"]));
}

#[test]
fn a_member_given_twice_by_any_name() {
    let world = World::new();
    let link = world.dir.path().join("link");
    std::os::unix::fs::symlink(&world.names[0], &link).unwrap();
    let hard = world.dir.path().join("hard");
    std::fs::hard_link(&world.names[0], &hard).unwrap();
    for other in [Path::new(&world.names[0]), &link, &hard] {
        let names = [world.names[0].as_str(), other.to_str().unwrap()];
        world.refuses(Code::GivenTwice, 2, &["d0"], || serve(&names));
        world.refuses(Code::GivenTwice, 2, &["d0"], || create(Level::Raid1, &names.map(str::to_owned), None));
    }
}

#[test]
fn a_member_that_is_being_served() {
    let world = World::new();
    let _served = MemberAccess::local().look(&world.names[2]).unwrap().claim(Claim::Write).unwrap();
    world.refuses(Code::Locked, 3, &["d2"], || serve(&world.names));
    // Looking is always allowed.
    assert_eq!(
        scan(MemberAccess::local().look_all(&world.names).unwrap(), Forced::default()).unwrap().arrays.len(),
        1
    );
}

#[test]
fn readers_share_and_keep_writers_out() {
    let world = World::new();
    let _first = MemberAccess::local().look(&world.names[0]).unwrap().claim(Claim::Read).unwrap();
    let _second = MemberAccess::local().look(&world.names[0]).unwrap().claim(Claim::Read).unwrap();
    world.refuses(Code::Locked, 3, &["d0"], || serve(&world.names));
}

/// Root may write anything, so this is only seen by other users.
#[test]
fn a_read_only_file_and_no_permission() {
    let world = World::new();
    let set =
        |mode| std::fs::set_permissions(&world.names[1], std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o444);
    let may_all = std::fs::OpenOptions::new().write(true).open(&world.names[1]).is_ok();
    if may_all {
        eprintln!("SKIPPED: this user may write everything");
    } else {
        world.refuses(Code::ReadOnlyMember, 1, &["d1"], || serve(&world.names));
        set(0o000);
        let problem = serve(&world.names).unwrap_err();
        assert_eq!((problem.code, problem.exit_code()), (Code::PermissionDenied, 1));
    }
    set(0o644);
}

#[test]
fn a_member_that_was_changed_after_the_look() {
    let world = World::new();
    let found = scan(MemberAccess::local().look_all(&world.names).unwrap(), Forced::default()).unwrap();
    world.patch(200, &9u64.to_le_bytes());
    world.refuses(Code::Changed, 3, &["d0"], || start::claim(&found, found.find(None)?, false).map(drop));
}

#[test]
fn nothing_on_any_member() {
    let world = World::new();
    let name = world.file("zeros", 1 << 20);
    world.refuses(Code::NoArray, 1, &["zeros"], || serve(&[&name]));
    let tiny = world.file("tiny", 513);
    world.refuses(Code::NoArray, 1, &["tiny"], || serve(&[&tiny]));
}

#[test]
fn a_wrong_checksum() {
    let world = World::new();
    world.write("d1", 4096 + 36, b"x");
    world.refuses(Code::DamagedSuperblock, 1, &["d1", "checksum"], || serve(&world.names[1..2]));
    serve(&world.names).expect("the others are enough");
    let found = scan(MemberAccess::local().look_all(&world.names).unwrap(), Forced::default()).unwrap();
    assert!(found.arrays[ArrayId::nth(0)].unused.iter().copied().eq(found.members.ids().nth(1)));
}

#[test]
fn a_truncated_member() {
    let world = World::new();
    let file = std::fs::OpenOptions::new().write(true).open(&world.names[3]).unwrap();
    file.set_len((4 << 20) - 4096).unwrap();
    world.refuses(Code::Truncated, 1, &["d3", "sectors"], || {
        let found = scan(MemberAccess::local().look_all(&world.names)?, Forced::default())?;
        Err(found.members.iter().nth(3).unwrap().problem.clone().expect("its problem"))
    });
    let found = scan(MemberAccess::local().look_all(&world.names).unwrap(), Forced::default()).unwrap();
    assert_eq!(found.arrays[ArrayId::nth(0)].assembly.verdicts[3].word(), "truncated");
    world.refuses(Code::NotEnoughMembers, 1, &["slots 2, 3"], || {
        serve(&[&world.names[0], &world.names[1], &world.names[3]])
    });
}

#[test]
fn impossible_geometry() {
    let rows: [(usize, Vec<u8>, &str); 4] = [
        (88, vec![0; 4], "chunk"),
        (92, 300u32.to_le_bytes().to_vec(), "raid_disks"),
        (80, (1u64 << 50).to_le_bytes().to_vec(), "size"),
        (76, 99u32.to_le_bytes().to_vec(), "layout"),
    ];
    for (offset, bytes, field) in rows {
        let world = World::new();
        world.patch(offset, &bytes);
        world.refuses(Code::ImpossibleGeometry, 1, &[field], || serve(&world.names));
    }
}

#[test]
fn unknown_features() {
    let world = World::new();
    world.patch(8, &0x8000u32.to_le_bytes());
    world.refuses(Code::UnknownFeature, 3, &["0x8000"], || serve(&world.names));
}

#[test]
fn two_members_in_one_role() {
    let world = World::new();
    let copy = world.file("copy", 4 << 20);
    world.write("copy", 0, &std::fs::read(&world.names[1]).unwrap());
    let mut names = world.names.clone();
    names.push(copy);
    world.refuses(Code::DuplicateRole, 3, &["d1", "copy", "slot 1"], || serve(&names));
}

#[test]
fn too_few_members() {
    let world = World::new();
    world.refuses(Code::NotEnoughMembers, 1, &["slots 1, 3"], || serve(&[&world.names[0], &world.names[2]]));
}

#[test]
fn create_over_something_or_on_too_little() {
    let world = World::new();
    world.refuses(Code::SignatureFound, 3, &["d0", "md 1.2 superblock"], || {
        create(Level::Raid5, &world.names, None)
    });
    let swap = world.file("swap", 4 << 20);
    world.write("swap", 4086, b"SWAPSPACE2");
    world.write("swap", 1024, &1u32.to_le_bytes());
    let plain = world.file("plain", 4 << 20);
    world.refuses(Code::SignatureFound, 3, &["swap"], || {
        create(Level::Raid5, &[plain.clone(), swap.clone()], None)
    });
    let (small, other) = (world.file("small", 1 << 20), world.file("other", 4 << 20));
    world.refuses(Code::TooSmall, 1, &["small"], || {
        create(Level::Raid5, &[plain.clone(), small.clone(), other.clone()], None)
    });
    let two = [plain.clone(), other.clone()];
    world.refuses(Code::TooSmall, 1, &["plain"], || create(Level::Raid5, &two, Some(1 << 30)));
    world.refuses(Code::BadRequest, 2, &["raid_disks"], || create(Level::Raid6, &two, None));
}

#[test]
fn create_on_a_locked_member_writes_to_none() {
    let world = World::new();
    let names: Vec<_> = (0..3).map(|ix| world.file(&format!("n{ix}"), 4 << 20)).collect();
    let _taken = MemberAccess::local().look(&names[2]).unwrap().claim(Claim::Read).unwrap();
    world.refuses(Code::Locked, 3, &["n2"], || create(Level::Raid5, &names, None));
}

/// A drive that opens and does not read.
#[test]
fn a_member_that_cannot_be_read_does_not_hide_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["a", "b"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    for name in &names {
        std::fs::File::create(name).unwrap().set_len(1 << 20).unwrap();
    }
    let (members, errors) = MemberAccess::local().look_each(&names).unwrap();
    assert!(errors.is_empty());
    // Reads behind the end fail as those of a broken drive do.
    std::fs::File::options().write(true).open(&names[0]).unwrap().set_len(0).unwrap();
    assert!(wattle_control::scan::scan(members.clone(), Forced::default()).is_err());
    let found = wattle_control::scan::scan_each(members, Forced::default());
    let codes: Vec<_> = found.members.iter().map(|m| m.problem.as_ref().map(|p| p.code)).collect();
    assert_eq!(codes, [Some(wattle_control::Code::ReadFailed), None]);
}

/// A drive that gives one place and not another: everything that can be told from what it gives is
/// told.
#[test]
fn a_place_that_cannot_be_read_hides_only_what_is_there() {
    let world = World::new();
    let members = MemberAccess::local().look_all(&world.names).unwrap();
    // Reads behind the new end fail as those of a broken drive do: the 1.2 superblock can be read,
    // the places of the others, at the end, cannot.
    std::fs::File::options().write(true).open(&world.names[0]).unwrap().set_len(8192).unwrap();
    let found = scan(members.clone(), Forced::default()).unwrap();
    assert!(
        !found.members.iter().next().unwrap().unreadable.is_empty()
            && found.members.iter().next().unwrap().problem.is_none()
    );
    let assembly = &found.find(None).unwrap().assembly;
    assert_eq!((assembly.degraded(), assembly.verdicts[0].word()), (0, "fresh"));
    let told = wattle_control::why::why(&found, &found.arrays[ArrayId::nth(0)]);
    assert!(told.decisions.iter().any(|decision| decision.what.contains("not all of it could be read")));

    // No other member names that array: what was found may be left over from an older one.
    let alone = scan(members[..1].to_vec(), Forced::default()).unwrap();
    let problem = alone.find(None).unwrap_err();
    assert_eq!((problem.code, problem.force), (Code::ReadFailed, Some(Check::NewestSuperblock)), "{problem}");
    let forced = scan(members[..1].to_vec(), Forced::default().with(Check::NewestSuperblock)).unwrap();
    assert_eq!(forced.arrays[ArrayId::nth(0)].assembly.verdicts[0].word(), "fresh");
}

/// The bitmap behind the superblock is not given by one drive: the copies of the others say the
/// same.
#[test]
fn an_area_that_cannot_be_read_does_not_end_the_scan() {
    let world = World::new();
    let names: Vec<_> = (0..3).map(|ix| world.file(&format!("m{ix}"), 4 << 20)).collect();
    let mut request = request(Level::Raid1, &names, None).unwrap();
    request.chunk_bytes = None;
    request.consistency = Consistency::Bitmap { chunk_bytes: None };
    let states: Vec<_> = request.members.iter().flatten().map(inspect).collect::<Result<_, _>>().unwrap();
    let plan = plan(&request, &states).unwrap();
    plan.execute(&plan.claim(&states).unwrap()).unwrap();
    let members = MemberAccess::local().look_all(&names).unwrap();
    std::fs::File::options().write(true).open(&names[1]).unwrap().set_len(8192).unwrap();
    let found = scan(members, Forced::default()).unwrap();
    let facts = |ix: usize| found.members.iter().nth(ix).unwrap().facts.as_ref().unwrap();
    assert_eq!((facts(1).bitmap, &facts(1).bitmap_content), (BitmapFacts::Unreadable, &None));
    assert_eq!((facts(0).bitmap, facts(0).bitmap_content.is_some()), (BitmapFacts::Version(4), true));
    let assembly = &found.find(None).unwrap().assembly;
    assert_eq!((&assembly.access, assembly.degraded()), (&Access::ReadWrite, 0));
    assert!(assembly.bitmap.as_ref().is_some_and(|bitmap| bitmap.distrust.is_none()));
}
