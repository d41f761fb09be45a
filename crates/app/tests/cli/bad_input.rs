//! Bad members: each gives one clear error that names the member, what is wrong, what was expected
//! and what to do, with its exit status, and no byte changes.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::Command;

use crate::harness::{Room, Said, run, said};

/// Where a 1.2 superblock is.
const SUPERBLOCK: u64 = 4096;

fn patch(member: &str, offset: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(member).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Changes a field of a 1.2 superblock and makes its checksum right again (docs/formats.md §1.3).
fn patch_field(member: &str, offset: u64, bytes: &[u8]) {
    const CHECKSUM: usize = 216;
    patch(member, SUPERBLOCK + offset, bytes);
    let mut superblock = vec![0; 4096];
    fs::File::open(member).unwrap().read_exact_at(&mut superblock, SUPERBLOCK).unwrap();
    superblock[CHECKSUM..CHECKSUM + 4].fill(0);
    let max_dev = u32::from_le_bytes(superblock[220..224].try_into().unwrap()) as usize;
    let words = superblock[..256 + 2 * max_dev].chunks(4);
    let sum: u64 = words.map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))).sum();
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    patch(member, SUPERBLOCK + CHECKSUM as u64, &folded.to_le_bytes());
}

fn with(command: &str, members: &[String]) -> Said {
    run([command.to_owned()].into_iter().chain(members.iter().cloned()))
}

/// Serving, which would write. Ends at once if it starts.
fn serve(room: &Room, members: &[String]) -> Said {
    let runtime_dir = room.name("run");
    let options = ["serve", "--run", "true", "--runtime-dir", &runtime_dir].map(str::to_owned);
    run(options.into_iter().chain(members.iter().cloned()))
}

/// Every command that reads arrays says the same.
#[track_caller]
fn all_fail(room: &Room, members: &[String], status: i32, code: &str, words: &[&str]) {
    room.untouched(|| {
        for command in ["scan", "cat"] {
            let said = with(command, members).failed(status, code, words);
            assert!(command == "scan" || said.stdout.is_empty());
        }
        serve(room, members).failed(status, code, words);
    });
}

#[test]
fn no_member_at_all() {
    let room = Room::new();
    let directory = room.name("folder");
    fs::create_dir(&directory).unwrap();
    let empty = room.blank(1, 0).remove(0);
    all_fail(&room, std::slice::from_ref(&directory), 1, "WTL-0022", &[&directory]);
    all_fail(&room, std::slice::from_ref(&empty), 1, "WTL-0024", &[&empty]);
    all_fail(&room, &["/dev/null".to_owned()], 1, "WTL-0023", &["/dev/null"]);
    all_fail(&room, &[String::new()], 2, "WTL-0003", &["empty"]);
    all_fail(&room, &["nbds://host/x?tls=1".to_owned()], 2, "WTL-0003", &["nbds://host/x"]);
    all_fail(&room, &["mem:lots".to_owned()], 2, "WTL-0002", &["mem:lots"]);
}

#[test]
fn nothing_on_a_member() {
    let room = Room::new();
    let members = room.blank(1, 1 << 20);
    room.untouched(|| {
        with("scan", &members).ok();
        with("cat", &members).failed(1, "WTL-0040", &[&members[0]]);
        serve(&room, &members).failed(1, "WTL-0040", &[&members[0]]);
    });
}

#[test]
fn a_member_given_twice() {
    let room = Room::new();
    let members = room.array("1", 2);
    let link = room.name("link");
    symlink(&members[0], &link).unwrap();
    let hard_link = room.name("hard-link");
    fs::hard_link(&members[0], &hard_link).unwrap();
    for twin in [&members[0], &link, &hard_link, &format!("{}/./member-0", room.dir.path().display())] {
        all_fail(&room, &[members[0].clone(), twin.clone()], 2, "WTL-0004", &[twin, &members[0]]);
    }
}

#[test]
fn members_of_two_arrays() {
    let (room, other) = (Room::new(), Room::new());
    let mut members = room.array("5", 3);
    members.extend(other.array("1", 2));
    room.untouched(|| with("cat", &members)).failed(2, "WTL-0007", &["-V", "data"]);
    members.extend(["-V", "nonsense"].map(str::to_owned));
    room.untouched(|| with("cat", &members)).failed(2, "WTL-0006", &["nonsense", "data"]);
    serve(&room, &members[..5]).failed(2, "WTL-0007", &["data"]);
}

#[test]
fn two_members_in_one_slot() {
    let room = Room::new();
    let mut members = room.array("5", 3);
    let copy = room.name("copy-of-1");
    fs::copy(&members[1], &copy).unwrap();
    members.push(copy.clone());
    all_fail(&room, &members, 3, "WTL-0045", &["slot 1", &copy, &members[1]]);
}

#[test]
fn a_truncated_member() {
    let room = Room::new();
    let members = room.array("0", 2);
    fs::File::options().write(true).open(&members[1]).unwrap().set_len(9 << 20).unwrap();
    room.untouched(|| {
        with("scan", &members).failed(1, "WTL-0043", &[&members[1]]);
        // Its array lacks it, which is what keeps it from being read.
        let said = with("cat", &members);
        assert!(
            said.status == 1 && said.stdout.is_empty() && said.stderr.contains("error[WTL-004"),
            "{}",
            said.stderr
        );
    });
    let redundant = Room::new();
    let members = redundant.array("5", 3);
    fs::File::options().write(true).open(&members[1]).unwrap().set_len(9 << 20).unwrap();
    redundant.untouched(|| {
        with("scan", &members).failed(1, "WTL-0043", &[&members[1]]);
        let said = with("cat", &members).ok();
        assert_eq!(said.stdout.len(), 30 << 20);
        assert!(said.stderr.contains(&members[1]), "the member left out is named: {}", said.stderr);
    });
}

#[test]
fn a_member_that_grew_is_used_as_far_as_it_was() {
    let room = Room::new();
    let members = room.array("5", 3);
    fs::File::options().write(true).open(&members[1]).unwrap().set_len(17 << 20).unwrap();
    assert_eq!(room.untouched(|| with("cat", &members)).ok().stdout.len(), 30 << 20);
}

#[test]
fn a_wrong_checksum() {
    let room = Room::new();
    let members = room.array("0", 2);
    patch(&members[1], SUPERBLOCK + 200, &[7]);
    room.untouched(|| {
        with("scan", &members).failed(1, "WTL-0041", &[&members[1], "checksum"]);
        with("examine", &members).failed(1, "WTL-0041", &[&members[1], "checksum"]);
        let said = with("cat", &members);
        assert!(said.status == 1 && said.stdout.is_empty(), "{}", said.stderr);
    });
}

#[test]
fn impossible_numbers_with_a_right_checksum() {
    // field, its offset, its value, the words that name it
    let cases: [(&str, u64, Vec<u8>, &str); 6] = [
        ("5", 88, 0u32.to_le_bytes().to_vec(), "chunk"),
        ("5", 88, 7u32.to_le_bytes().to_vec(), "chunk"),
        ("5", 92, 300u32.to_le_bytes().to_vec(), "raid_disks"),
        ("5", 76, 99u32.to_le_bytes().to_vec(), "layout"),
        ("5", 72, 17u32.to_le_bytes().to_vec(), "level"),
        ("5", 80, (1u64 << 60).to_le_bytes().to_vec(), "size"),
    ];
    for (level, offset, value, word) in cases {
        let room = Room::new();
        let members = room.array(level, 3);
        members.iter().for_each(|member| patch_field(member, offset, &value));
        let said = room.untouched(|| with("cat", &members));
        assert!([1, 3].contains(&said.status) && said.stdout.is_empty(), "{word}: {}", said.stderr);
        assert!(
            said.stderr.contains("error[WTL-00") && said.stderr.contains(word),
            "{word}: {}",
            said.stderr
        );
        let scan = room.untouched(|| with("scan", &members));
        assert_eq!(scan.status, said.status, "{word}: {}", scan.stderr);
        assert_eq!(room.untouched(|| serve(&room, &members)).status, said.status);
    }
}

#[test]
fn a_data_area_beyond_the_end_of_the_file() {
    let room = Room::new();
    let members = room.array("0", 2);
    patch_field(&members[0], 136, &(1u64 << 40).to_le_bytes());
    room.untouched(|| with("scan", &members)).failed(1, "WTL-0043", &[&members[0]]);
}

#[test]
fn unknown_features() {
    let room = Room::new();
    let members = room.array("5", 3);
    members.iter().for_each(|member| patch_field(member, 8, &0x8000_0000_u32.to_le_bytes()));
    room.untouched(|| with("cat", &members)).failed(3, "WTL-0050", &[]);
    room.untouched(|| serve(&room, &members)).failed(3, "WTL-0050", &[]);
}

/// As a user other than root; `None` if root cannot become one.
fn as_nobody(command: &str, room: &Room, members: &[String]) -> Option<Said> {
    let mut run = Command::new("setpriv");
    run.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_wattle"), command])
        .args(members);
    if command == "serve" {
        run.args(["--run", "true", "--runtime-dir", &room.name("nobody")]);
    }
    let output = run.output().ok()?;
    let denied = String::from_utf8_lossy(&output.stderr).contains("setpriv: ");
    (!denied).then(|| said(output))
}

#[test]
fn no_permission() {
    let room = Room::new();
    fs::set_permissions(room.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let members = room.array("1", 2);
    fs::set_permissions(&members[0], fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&members[1], fs::Permissions::from_mode(0o666)).unwrap();
    let before = room.contents();
    let Some(scan) = as_nobody("scan", &room, &members) else {
        eprintln!("SKIPPED: cannot become another user");
        return;
    };
    scan.ok();
    let serve = as_nobody("serve", &room, &members).unwrap();
    serve.failed(1, "WTL-0025", &[&members[0], "--read-only"]);
    fs::set_permissions(&members[0], fs::Permissions::from_mode(0o000)).unwrap();
    for command in ["scan", "cat", "serve"] {
        as_nobody(command, &room, &members).unwrap().failed(1, "WTL-0021", &[&members[0]]);
    }
    assert!(room.contents() == before);
}

#[test]
fn create_refuses_what_cannot_be_or_would_destroy() {
    let room = Room::new();
    let blank = room.blank(4, 16 << 20);
    let small = room.name("small");
    fs::File::create(&small).unwrap().set_len(64 << 10).unwrap();
    let system = room.name("file-system");
    fs::copy(&blank[0], &system).unwrap();
    // The magic number of an ext4 superblock, with enough around it to be believed.
    patch(&system, 1024, &[0, 4, 0, 0, 0, 16, 0, 0]);
    patch(&system, 1024 + 56, &[0x53, 0xef, 1, 0, 1, 0]);
    let [a, b, c, d] = &blank[..] else { panic!() };
    let create = |level: &str, members: &[&String], options: &[&str]| {
        let fixed = ["create", "data", "--level", level].map(str::to_owned).into_iter();
        let members = members.iter().map(|member| (*member).clone());
        room.untouched(|| run(fixed.chain(members).chain(options.iter().map(|option| (*option).to_owned()))))
    };
    let missing = "missing".to_owned();
    create("7", &[a, b], &[]).failed(2, "WTL-0001", &["--level 7"]);
    create("5", &[a, b, a], &[]).failed(2, "WTL-0004", &[a]);
    create("6", &[a, b], &[]).failed(2, "WTL-0008", &[]);
    create("5", &[a, b, c], &["--chunk", "5000"]).failed(2, "WTL-0008", &["chunk"]);
    create("5", &[a, b, c], &["--layout", "sideways"]).failed(2, "WTL-0008", &["sideways"]);
    create("0", &[a, &missing], &[]).failed(2, "WTL-0008", &["missing"]);
    create("5", &[a, b, c, d], &["--spares", "4"]).failed(2, "WTL-0001", &["--spares"]);
    create("5", &[a, b, c], &["--consistency", "hope"]).failed(2, "WTL-0001", &["hope"]);
    create("5", &[a, b, c], &["--size", "1G"]).status_is_not_0();
    create("1", &[a, &small], &[]).failed(1, "WTL-0081", &[&small]);
    create("1", &[a, &system], &[]).failed(3, "WTL-0080", &[&system, "ext", "--force=signature"]);
    create("1", &[a, &"mem:16M".to_owned()], &[]).failed(2, "WTL-0003", &["mem:16M"]);
    create("1", &[a, b], &["--dry-run"]).ok();
}

impl Said {
    fn status_is_not_0(self) {
        assert!([1, 2, 3].contains(&self.status) && self.stderr.contains("error[WTL-"), "{}", self.stderr);
    }
}

#[test]
fn only_the_check_that_was_named_is_overridden() {
    let room = Room::new();
    let members = room.array("1", 2);
    let create = ["create", "again", "--level", "1"].map(str::to_owned);
    let create = |option: &str| run(create.iter().cloned().chain(members.clone()).chain([option.to_owned()]));
    room.untouched(|| create("--force=dirty-degraded")).failed(
        3,
        "WTL-0080",
        &[&members[0], "--force=signature"],
    );
    create("--force=signature").ok();
    let scan = run(["scan", "--json"].map(str::to_owned).into_iter().chain(members.clone())).ok().json();
    assert_eq!(scan["arrays"][0]["name"], "again");
}

/// The drives of a dead machine: some are dead too, and the others are what matters.
#[test]
fn members_that_cannot_be_opened_do_not_hide_the_others() {
    let room = Room::new();
    let mut members = room.array("5", 3);
    let (gone, folder) = (room.name("gone"), room.name("folder"));
    fs::create_dir(&folder).unwrap();
    members.splice(0..1, [gone.clone(), folder.clone()]);
    let shown = room.untouched(|| with("scan", &members)).failed(1, "WTL-0020", &[&gone]);
    for word in ["[_UU] degraded", &gone, &folder, "WTL-0020", "WTL-0022"] {
        assert!(shown.text().contains(word), "expected `{word}`: {}", shown.text());
    }
    let json = with("scan", &[members.clone(), vec!["--json".to_owned()]].concat()).json();
    assert_eq!(json["arrays"][0]["slots"], "[_UU]");
    let codes: Vec<_> = json["members"].as_array().unwrap().iter().map(|m| &m["problem"]["code"]).collect();
    assert_eq!(
        codes,
        [&serde_json::Value::Null, &serde_json::Value::Null, &"WTL-0020".into(), &"WTL-0022".into()]
    );
    let shown = with("examine", &members).failed(1, "WTL-0020", &[&gone]);
    assert!(shown.text().contains("superblock 1.2 at byte 4096") && shown.text().contains(&folder));
    // A member that is named for use is meant.
    with("cat", &members).failed(1, "WTL-0020", &[&gone]);
}

#[test]
fn create_refuses_names_that_no_device_node_could_have() {
    let room = Room::new();
    let members = room.blank(2, 16 << 20);
    for name in ["", "host:", "a/b", "../x", "a\nb", "\u{1b}[31m"] {
        let args = ["create", name, "--level", "1"].map(str::to_owned);
        room.untouched(|| run(args.into_iter().chain(members.clone()))).failed(2, "WTL-0008", &["the name"]);
    }
}

/// A bad option was answered with "use --force=signature", and forcing is not what the operator
/// needed.
#[test]
fn create_checks_what_was_asked_before_what_is_there() {
    let room = Room::new();
    let members = room.array("5", 3);
    let args = ["create", "again", "--level", "5", "--chunk", "5000"].map(str::to_owned);
    room.untouched(|| run(args.into_iter().chain(members.clone()))).failed(2, "WTL-0008", &["chunk"]);
}

#[test]
fn the_mdadm_command_can_be_pasted_whatever_members_are_called() {
    let room = Room::new();
    let members = ["a b", "c;d'e"].map(|name| room.name(name));
    for member in &members {
        fs::File::create(member).unwrap().set_len(16 << 20).unwrap();
    }
    let args = ["create", "my data", "--level", "1", "--dry-run", "--json"].map(str::to_owned);
    let json = run(args.into_iter().chain(members.clone())).ok().json();
    let script = format!("set -- {}; printf '%s\\n' \"$@\"", json["mdadm_command"].as_str().unwrap());
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    let words: Vec<_> = words.lines().collect();
    assert!(words.ends_with(&[&members[0], &members[1]]) && words.contains(&"/dev/md/my data"), "{words:?}");
}
