//! Volume groups made and changed by wattle: on arrays and on bare members, refused where something
//! would be lost, and accepted by LVM2's own tools.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use wattle_format::lvm::area::Header;
use wattle_format::lvm::label::Extension;
use wattle_format::lvm::{Label, Vg};

use crate::harness::{Room, Said, require, run, tool};

/// Runs a command on members, with backups in the room.
pub fn lvm(room: &Room, words: &str, members: &[String]) -> Said {
    let backups = room.name("backups");
    let words = words.split_whitespace().map(str::to_owned).chain(["--backup-dir".to_owned(), backups]);
    run(words.chain(members.iter().cloned()))
}

fn list(kind: &str, members: &[String], options: &[&str]) -> Vec<Value> {
    let args = [kind, "list", "--json"].into_iter().chain(options.iter().copied()).map(str::to_owned);
    let report = run(args.chain(members.iter().cloned())).ok().json();
    let rows = report.as_object().unwrap().values().find(|value| value.is_array()).unwrap();
    rows.as_array().unwrap().clone()
}

fn backups(room: &Room) -> Vec<String> {
    let entries = fs::read_dir(room.path("backups")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_group_on_an_array_is_made_changed_and_put_back() {
    let room = Room::new();
    let members = room.array("5", 4);
    let dry = room.untouched(|| lvm(&room, "vg create tank -s 1M --dry-run --json", &members)).ok().json();
    assert_eq!((&dry["dry_run"], &dry["group"]), (&true.into(), &"tank".into()));
    assert!(dry["text"].as_str().unwrap().contains("extent_size = 2048"), "{}", dry["text"]);

    let made = lvm(&room, "vg create tank -s 1M", &members).ok();
    assert!(made.text().contains("1152 KiB, which is 6 stripes of 192 KiB"), "{}", made.text());
    let pvs = list("pv", &members, &[]);
    assert_eq!(pvs.len(), 1);
    assert_eq!((&pvs[0]["vg_name"], &pvs[0]["pe_start"]), (&"tank".into(), &(1152 << 10).into()));
    lvm(&room, "lv create tank/home -L 5M", &members).ok();
    lvm(&room, "lv create tank/rest -l 50%FREE", &members).ok();
    lvm(&room, "lv extend tank/home -L +1K", &members).ok();
    let sizes = |name: &str| {
        let rows = list("lv", &members, &["-S", &format!("name={name}")]);
        (rows[0]["lv_size"].as_u64().unwrap(), rows[0]["seg_count"].as_u64().unwrap())
    };
    assert_eq!(sizes("home"), (6 << 20, 2), "the other volume is right behind it");
    let home = run(["cat", "-V", "tank/home"].map(str::to_owned).into_iter().chain(members.clone())).ok();
    assert!(home.stdout.len() == 6 << 20 && home.stdout.iter().all(|&byte| byte == 0));
    lvm(&room, "lv reduce tank/home -l -1", &members).ok();
    lvm(&room, "lv rename tank/home tank/house", &members).ok();
    lvm(&room, "vg rename tank pool", &members).ok();
    let vgs = list("vg", &members, &[]);
    assert_eq!(
        (&vgs[0]["vg_name"], &vgs[0]["vg_seqno"], &vgs[0]["lv_count"]),
        (&"pool".into(), &7.into(), &2.into())
    );
    assert_eq!(sizes("house"), (5 << 20, 1));

    // Each text before the last one was saved; the one with which everything began is put back.
    let saved = backups(&room);
    assert_eq!(saved.len(), 6, "{saved:?}");
    let third = saved.iter().find(|name| name.starts_with("tank_00003")).unwrap();
    let file = room.path("backups").join(third);
    let wrong = format!("vg restore pool --file {}", file.display());
    room.untouched(|| lvm(&room, &wrong, &members)).failed(2, "WTL-0133", &["tank"]);
    lvm(&room, &format!("vg restore tank --file {}", file.display()), &members).ok();
    assert_eq!(sizes("home"), (5 << 20, 1));
    assert_eq!(list("vg", &members, &[])[0]["vg_seqno"], 8);

    // The array was stopped cleanly each time.
    let scan = run(["scan".to_owned(), "--json".to_owned()].into_iter().chain(members.clone())).ok().json();
    assert_eq!(
        (&scan["arrays"][0]["state"], &scan["arrays"][0]["health"]),
        (&"clean".into(), &"good".into())
    );
}

#[test]
fn an_array_without_one_member_holds_the_group_too() {
    let room = Room::new();
    let members = room.array("5", 4);
    lvm(&room, "vg create tank -s 1M", &members).ok();
    let create = "lv create tank/a -l 3";
    room.untouched(|| lvm(&room, create, &members[..3])).failed(3, "WTL-0061", &["slot 3"]);
    lvm(&room, &format!("{create} --force=missing-member"), &members[..3]).ok();
    assert_eq!(list("lv", &members[..3], &[]).len(), 1);
    // Nothing is made of too few.
    room.untouched(|| lvm(&room, "lv create tank/b -l 3", &members[..2])).failed(1, "WTL-0048", &[]);
    // The fourth one is stale now, and not believed.
    assert_eq!(list("lv", &members, &[]).len(), 1);
}

#[test]
fn physical_volumes_come_and_go() {
    let room = Room::new();
    let (a, b, c) = (room.device("a", 32 << 20), room.device("b", 32 << 20), room.device("c", 16 << 20));
    let all = [a.clone(), b.clone(), c.clone()];
    lvm(&room, "pv create", &all).ok();
    assert!(list("pv", &all, &[]).iter().all(|pv| pv["vg_name"] == ""));
    lvm(&room, "pv remove", &all[2..]).ok();
    assert_eq!(list("pv", &all, &[]).len(), 2);
    lvm(&room, "vg create vg -s 1M", &all[..2]).ok();
    lvm(&room, "vg extend vg", &all).ok();
    lvm(&room, "lv create vg/striped -i 2 -I 4K -l 7", &all).ok();
    let striped = &list("lv", &all, &[])[0];
    assert_eq!(
        (&striped["lv_size"], &striped["stripes"], &striped["stripe_size"]),
        (&(8 << 20).into(), &2.into(), &4096.into())
    );
    lvm(&room, &format!("lv create vg/here -l 100%FREE --on {c}"), &all).ok();
    let free =
        |name: &str| list("pv", &all, &["-S", &format!("pv_name={name}")])[0]["pv_free"].as_u64().unwrap();
    assert_eq!((free(&a), free(&c)), (27 << 20, 0));
    let reduce = format!("vg reduce vg --on {c}");
    room.untouched(|| lvm(&room, &reduce, &all)).failed(3, "WTL-0132", &["here"]);
    lvm(&room, "lv remove vg/here", &all).ok();
    lvm(&room, &reduce, &all).ok();
    assert_eq!(list("vg", &all[..2], &[])[0]["pv_count"], 2);
    File::options().write(true).open(&b).unwrap().set_len(40 << 20).unwrap();
    lvm(&room, &format!("pv resize --on {b}"), &all[..2]).ok();
    assert_eq!(free(&b), 35 << 20);
    room.untouched(|| lvm(&room, "vg remove vg", &all[..2])).failed(3, "WTL-0132", &["striped"]);
    lvm(&room, "lv remove vg/striped", &all[..2]).ok();
    lvm(&room, "vg export vg", &all[..2]).ok();
    room.untouched(|| lvm(&room, "lv create vg/x -l 1", &all[..2])).failed(3, "WTL-0130", &["exported"]);
    lvm(&room, "vg import vg", &all[..2]).ok();
    lvm(&room, "vg remove vg", &all[..2]).ok();
    lvm(&room, "pv remove", &all).ok();
    assert!(list("pv", &all, &[]).is_empty());
}

#[test]
fn what_would_lose_something_is_refused_and_nothing_is_written() {
    let room = Room::new();
    let (a, b) = (room.device("a", 32 << 20), room.device("b", 32 << 20));
    let both = [a.clone(), b.clone()];
    lvm(&room, "vg create vg -s 1M", &both).ok();
    lvm(&room, "lv create vg/home -l 40", &both).ok();
    let refused = |words: &str, members: &[String], status: i32, code: &str, named: &[&str]| {
        room.untouched(|| lvm(&room, words, members)).failed(status, code, named);
    };
    refused("lv create vg/x -l 1", &both[..1], 1, "WTL-0123", &["missing"]);
    // Wherever the missing part is: the volume's start cannot be read without the first one, its
    // end not without the second.
    for one in &both {
        let scan = room.untouched(|| run(["scan", one]));
        assert!(scan.text().contains("vg/home  40 MiB, linear, partly on missing"), "{}", scan.text());
        scan.failed(1, "WTL-0123", &["vg/home is partly on physical volumes that are missing"]);
    }
    refused(
        &format!("vg reduce vg --on {a}"),
        &both,
        3,
        "WTL-0132",
        &[&format!("{a} holds extents of home")],
    );
    refused("lv create vg/x -l 23", &both, 1, "WTL-0131", &["22 are free", "largest run has 22"]);
    refused("lv create vg/x -i 2 -l 2", &both, 1, "WTL-0131", &["1 physical volumes", "fewer stripes"]);
    refused("lv create vg/home -l 1", &both, 1, "WTL-0134", &["vg/home"]);
    refused("lv create vg/pvmove0 -l 1", &both, 2, "WTL-0133", &["pvmove0"]);
    refused("lv create vg/x -l 1 -i 2 -I 5K", &both, 2, "WTL-0133", &["power of two"]);
    refused("lv create other/x -l 1", &both, 2, "WTL-0006", &["other"]);
    refused("lv extend vg/home -l 40", &both, 2, "WTL-0133", &["40"]);
    refused("lv remove vg/nobody", &both, 2, "WTL-0006", &["home"]);
    refused("vg create vg", &both, 1, "WTL-0134", &["vg"]);
    refused("vg create other", &both, 3, "WTL-0132", &["belongs to vg"]);
    refused("pv create --force=signature", &both, 3, "WTL-0132", &["belongs to vg"]);
    refused("pv remove", &both, 3, "WTL-0132", &["belongs to vg"]);

    let put = |name: &str, at: u64, bytes: &[u8]| {
        File::options().write(true).open(name).unwrap().write_all_at(bytes, at).unwrap();
    };
    // An ext4 of 38 MiB at the start of the volume, which is at the start of the first device's
    // data.
    let superblock = 1024 + (1 << 20);
    put(&a, superblock + 4, &(38_u32 << 10).to_le_bytes());
    put(&a, superblock + 0x38, &[0x53, 0xEF, 1, 0, 1, 0, 0, 0]);
    put(&a, superblock + 0x4C, &[1, 0, 0, 0]);
    refused("lv reduce vg/home -l 37", &both, 3, "WTL-0135", &["ext", "39845888"]);
    refused("lv remove vg/home", &both, 3, "WTL-0080", &["ext"]);
    lvm(&room, "lv reduce vg/home -l 38", &both).ok();
    lvm(&room, "lv reduce vg/home -l 37 --force=file-system", &both).ok();

    refused("pv create", &[room.device("tiny", 1 << 20)], 1, "WTL-0081", &["tiny"]);
    refused("pv create", &["mem:64M".to_owned()], 2, "WTL-0003", &["mem:64M"]);
}

/// What is made of the text of a group that is not ours to change.
#[test]
fn groups_of_others_are_left_alone() {
    let room = Room::new();
    let members = room.blank(1, 32 << 20);
    lvm(&room, "vg create vg -s 1M", &members).ok();
    lvm(&room, "lv create vg/a -l 1", &members).ok();
    let saved = room.path("backups").join(&backups(&room)[0]);
    let text = fs::read_to_string(&saved).unwrap();
    let ours = fs::read(&members[0]).unwrap();
    for (from, to, words, may_restore) in [
        ("max_lv = 0", "system_id = \"elsewhere\"\nmax_lv = 0", "elsewhere", false),
        ("max_lv = 0", "lock_type = \"sanlock\"\nmax_lv = 0", "sanlock", false),
        ("\"READ\", \"WRITE\"]", "\"READ\"]", "read-only", true),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        fs::write(room.path("changed"), changed).unwrap();
        lvm(&room, &format!("vg restore vg --file {}", room.name("changed")), &members).ok();
        room.untouched(|| lvm(&room, "lv create vg/b -l 1", &members)).failed(3, "WTL-0130", &[words]);
        let back = format!("vg restore vg --file {}", saved.display());
        if may_restore {
            lvm(&room, &back, &members).ok();
        } else {
            room.untouched(|| lvm(&room, &back, &members)).failed(3, "WTL-0130", &[words]);
            fs::write(&members[0], &ours).unwrap();
        }
    }
    lvm(&room, "lv create vg/b -l 1", &members).ok();
}

/// A loop device, given back when the test ends.
pub struct Loop(pub String);

impl Loop {
    pub fn new(file: &str) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show", file]).output().ok()?;
        if !output.status.success() {
            eprintln!("SKIPPED: no loop device here (not root?)");
            return None;
        }
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Runs a command of LVM2's that sees only these files, as loop devices while it runs, also where
/// it names them; its lines.
pub fn judge(dir: &Path, files: &[String], words: &str) -> Option<Vec<String>> {
    let loops = files.iter().map(|file| Loop::new(file)).collect::<Option<Vec<_>>>()?;
    let filter: Vec<_> = loops.iter().map(|device| format!("\"a|^{}$|\"", device.0)).collect();
    let config = format!(
        "devices {{ filter=[{},\"r|.*|\"] use_devicesfile=0 obtain_device_list_from_udev=0 }}\n\
         global {{ locking_dir=\"{}\" use_lvmpolld=0 }}\nactivation {{ udev_sync=0 udev_rules=0 }}\n\
         backup {{ backup=0 archive=0 }}\n",
        filter.join(","),
        dir.join("lock").display()
    );
    fs::write(dir.join("lvm.conf"), config).unwrap();
    let place = |word| files.iter().position(|file| file == word).map_or(word, |ix| loops[ix].0.as_str());
    let mut command = Command::new("lvm");
    command
        .env("LVM_SYSTEM_DIR", dir)
        .env("LVM_SUPPRESS_FD_WARNINGS", "1")
        .args(words.split_whitespace().map(place));
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words}: {stdout}{stderr}");
    // What it says because nothing is activated, zeroed or backed up here.
    let usual = ["Activation disabled", "not zeroed", "NOT backed up", "Failed to check for active volumes"];
    let warned = stderr
        .lines()
        .find(|line| line.contains("WARNING") && !usual.iter().any(|usual| line.contains(usual)));
    assert_eq!(warned, None, "{words}: {stderr}");
    for device in &loops {
        tool("blockdev", ["--flushbufs", &device.0]);
    }
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines: Vec<_> = stdout.lines().map(squeeze).collect();
    for (device, file) in loops.iter().zip(files) {
        lines.iter_mut().for_each(|line| *line = line.replace(&device.0, &file[file.len() - 1..]));
    }
    lines.sort();
    Some(lines)
}

#[test]
fn lvm_goes_on_with_what_wattle_made_and_wattle_with_theirs() {
    if !require("lvm") || !require("losetup") {
        return;
    }
    let room = Room::new();
    let files = [room.device("a", 64 << 20), room.device("b", 64 << 20), room.device("c", 48 << 20)];
    let conf = room.path("lvm");
    fs::create_dir(&conf).unwrap();
    lvm(&room, "vg create vg", &files[..2]).ok();
    lvm(&room, "lv create vg/ours -L 24M", &files[..2]).ok();
    lvm(&room, "lv create vg/striped -i 2 -l 6", &files[..2]).ok();
    let judge = |files: &[String], words: &str| judge(&conf, files, words);
    let Some(vgs) =
        judge(&files[..2], "vgs --noheadings --units s -o vg_name,vg_seqno,vg_extent_count,vg_free_count")
    else {
        return;
    };
    assert_eq!(vgs, ["vg 3 30 18"]);
    let lvs = "lvs --noheadings -o lv_name,segtype,seg_size_pe,seg_pe_ranges";
    assert_eq!(judge(&files[..2], lvs).unwrap(), ["ours linear 6 a:0-5", "striped striped 6 a:6-8 b:0-2"]);
    judge(&files[..2], "vgck vg");
    let create = "lvcreate --driverloaded n -an -Zn -Wn -y -l 9 -n theirs vg";
    judge(&files[..2], create);
    let names = |members: &[String]| -> Vec<String> {
        list("lv", members, &[]).iter().map(|lv| lv["lv_name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&files[..2]), ["ours", "striped", "theirs"]);
    lvm(&room, "vg extend vg", &files).ok();
    lvm(&room, "lv extend vg/theirs -l +100%FREE", &files).ok();
    lvm(&room, "lv reduce vg/striped -l 3", &files).ok();
    lvm(&room, "lv rename vg/ours mine", &files).ok();
    judge(&files, "vgck vg");
    assert_eq!(judge(&files, "vgs --noheadings -o vg_name,vg_free_count,pv_count").unwrap(), ["vg 2 3"]);
    for file in &files {
        judge(std::slice::from_ref(file), &format!("pvck --dump headers {file}"));
    }
    lvm(&room, "vg export vg", &files).ok();
    assert_eq!(judge(&files, "vgs --noheadings -o vg_attr").unwrap(), ["wzx-n-"]);
    judge(&files, "vgimport vg");
    lvm(&room, "lv remove vg/theirs", &files).ok();
    lvm(&room, &format!("vg reduce vg --on {}", files[2]), &files).ok();
    judge(&files, "vgck vg");
    assert_eq!(judge(&files, "pvs --noheadings -o pv_name,vg_name").unwrap(), ["a vg", "b vg", "c"]);
    let sizes = ["pv_size", "pv_free", "dev_size", "pe_start"];
    let mut ours = list("pv", &files, &[])
        .iter()
        .map(|pv| sizes.map(|size| pv[size].to_string()).join(" "))
        .collect::<Vec<_>>();
    ours.sort();
    let theirs = format!("pvs --noheadings --units b --nosuffix -o {}", sizes.join(","));
    assert_eq!(judge(&files, &theirs).unwrap(), ours);
    // A backup of ours is one of theirs.
    let backup = backups(&room).into_iter().find(|name| name.starts_with("vg_00002")).unwrap();
    let backup = room.path("backups").join(backup);
    judge(&files[..2], &format!("vgcfgrestore --driverloaded n --file {} vg", backup.display()));
    assert_eq!(names(&files[..2]), ["ours"]);
}

#[test]
fn what_is_said_of_a_volume_is_heard_by_lvm_and_what_it_says_by_wattle() {
    if !require("lvm") || !require("losetup") {
        return;
    }
    let room = Room::new();
    let files = [room.device("a", 64 << 20)];
    let conf = room.path("lvm");
    fs::create_dir(&conf).unwrap();
    lvm(&room, "vg create vg", &files).ok();
    lvm(&room, "lv create vg/one -l 3", &files).ok();
    lvm(&room, "lv create vg/two -l 3", &files).ok();
    let refused = |words: &str, status: i32, code: &str, named: &[&str]| {
        room.untouched(|| lvm(&room, words, &files)).failed(status, code, named);
    };
    for (words, named) in
        [("lv activate-flags vg/one", "--permission"), ("lv activate-flags vg/one -p x", "rw")]
    {
        let wrong = lvm(&room, words, &files);
        assert!(wrong.status == 2 && wrong.stderr.contains(named), "{}", wrong.stderr);
    }
    refused("lv activate-flags vg/one -p rw -k n", 2, "WTL-0133", &["so already"]);
    refused("lv activate-flags vg/nobody -p r", 2, "WTL-0006", &["one, two"]);
    lvm(&room, "lv activate-flags vg/one -p r -k y --setautoactivation n", &files).ok();
    let lvs = "lvs --noheadings -o lv_name,lv_skip_activation,lv_autoactivation,lv_attr";
    let Some(lines) = judge(&conf, &files, lvs) else { return };
    assert_eq!(lines, ["one skip activation -ri-XX---k", "two enabled -wi-XX----"]);
    judge(&conf, &files, "vgck vg");
    judge(&conf, &files, "lvchange --driverloaded n -p rw -k n --setautoactivation y vg/one");
    judge(&conf, &files, "lvchange --driverloaded n -p r vg/two");
    judge(&conf, &files, "lvchange --driverloaded n -k y vg/two");
    let row = |name: &str| list("lv", &files, &["-S", &format!("name={name}")])[0].clone();
    let (one, two) = (row("one"), row("two"));
    assert_eq!((&one["lv_attr"], &two["lv_attr"]), (&"-wi-------".into(), &"-ri------k".into()));
    assert_eq!(two["lv_permissions"], "read-only");
    assert_eq!(
        (&one["lv_skip_activation"], &two["lv_skip_activation"]),
        (&"".into(), &"skip activation".into())
    );
    assert_eq!(
        (&one["lv_autoactivation"], &two["lv_autoactivation"]),
        (&"enabled".into(), &"enabled".into())
    );
}

/// The group that LVM2 made with a volume of every kind, on files.
fn every_kind(room: &Room) -> Vec<String> {
    let text = include_bytes!("../../../format/tests/data/lvm/every.vg");
    let vg = Vg::parse(text).unwrap();
    let members: Vec<_> = ["a", "b", "c", "d"].into_iter().map(|name| room.device(name, 160 << 20)).collect();
    for (pv, file) in vg.pvs.iter().zip(&members) {
        let mut label = Label::create(pv.id, 160 << 20, 0).unwrap();
        label.extension = Some(Extension::new(true));
        let area = label.metadata_areas[0];
        let commit = Header::new(area).unwrap().commit(text).unwrap();
        let file = File::options().write(true).open(file).unwrap();
        file.write_all_at(&label.encode().unwrap(), 512).unwrap();
        commit.texts.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        file.write_all_at(commit.commit.bytes(), area.offset_bytes).unwrap();
    }
    members
}

/// What LVM2 selects by these, wattle does.
const SELECTIONS: [&str; 16] = [
    "segtype=raid5",
    "lv_name=~^r",
    "name!~'[aeiou]|_'",
    "LVNAME=~'^(r|th)'",
    "lv_size>=0.001953125g&&lv_size<3072k",
    "lv_size=4194304b||lv_size!=2048k,stripes>1",
    "segtype=linear#segtype=striped&&stripes=2",
    "(segtype=linear#segtype=striped)&&stripes=2",
    "!(lv_size>2m)&&!(segtype=linear||lv_name=~mlog)",
    "pool_lv='pool'",
    "pool_lv=",
    "origin=~^slow",
    "lv_name=cp_cpool",
    "lv_tags=\"\"",
    "lv_tags!={}",
    "all",
];

#[test]
fn lists_show_what_lvm_shows() {
    let room = Room::new();
    let members = every_kind(&room);
    let fields = "lv_name,lv_attr,lv_size,pool_lv,origin,segtype,lv_skip_activation,stripes,stripe_size";
    let ours = |words: &str| {
        let words = format!("{words} --noheadings");
        let said = run(words.split(' ').map(str::to_owned).chain(members.clone())).ok();
        let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        said.text().lines().map(squeeze).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    let all = ours(&format!("lv list -a -o {fields} --units k"));
    assert!(all.len() > 70, "{}", all.len());
    for line in [
        "[r5_rimage_3] Iwi---r--- 1024.00k linear 1 0k",
        "r6 rwa---r--- 3072.00k raid6 5 64.00k",
        "[pool_tmeta] ewi------- 2048.00k linear 1 0k",
        "ths Vwi---tz-k 65536.00k pool th thin skip activation 0 0k",
        "slow Cwi---C--- 8192.00k [cp_cpool] [slow_corig] cache 1 0k",
    ] {
        assert!(all.iter().any(|found| found == line), "{line} is not among {all:#?}");
    }
    // Sorted as LVM2 sorts.
    let names = ours("lv list -a -o lv_name");
    let position = |name: &str| names.iter().position(|found| found == name).unwrap();
    assert!(position("a+b.c-d") < position("[cp_cpool]") && position("r10") < position("[r1_rimage_0]"));
    let sizes = ours("lv list -o size --units s --nosuffix -O -lv_size");
    let sizes: Vec<u64> = sizes.iter().map(|size| size.parse().unwrap()).collect();
    assert!(sizes.is_sorted_by(|one, other| one >= other) && sizes[0] == 131_072, "{sizes:?}");
    assert_eq!(ours("lv list -a -o name -S segtype=writecache"), ["slow3"]);
    run(["lv", "list", "-o", "colour"].map(str::to_owned).into_iter().chain(members.clone())).failed(
        2,
        "WTL-0001",
        &["lv_attr", "stripe_size"],
    );
    let select =
        |text: &str| ["lv", "list", "-S", text].map(str::to_owned).into_iter().chain(members.clone());
    run(select("lv_size>1M && (name=~^r")).failed(2, "WTL-0001", &["at its end", "closing parenthesis"]);
    run(select("lv_size>1M vg_name=x")).failed(2, "WTL-0001", &["character 12, `vg_name=x`"]);
    let wrong = run(["lv", "list", "--units", "x"].map(str::to_owned).into_iter().chain(members.clone()));
    assert!(wrong.status == 2 && wrong.stderr.contains("hHrR"), "{}", wrong.stderr);

    if !require("lvm") || !require("losetup") {
        return;
    }
    let conf = room.path("lvm");
    fs::create_dir(&conf).unwrap();
    for (words, mine) in [
        (format!("lvs -a -o {fields} --units k"), all),
        (format!("lvs -o {fields} --units H"), ours(&format!("lv list -o {fields} --units H"))),
        (
            "vgs -o vg_name,vg_size,vg_free,vg_extent_size --units m".to_owned(),
            ours("vg list -o vg_name,vg_size,vg_free,vg_extent_size --units m"),
        ),
    ]
    .into_iter()
    .chain(SELECTIONS.map(|select| {
        let words = format!("-a -o {fields} --units k -S {select}");
        (format!("lvs {words}"), ours(&format!("lv list {words}")))
    })) {
        let Some(theirs) = judge(&conf, &members, &format!("{words} --noheadings --driverloaded n")) else {
            return;
        };
        // Whether something is active is not known here, nor then whether RAID is in sync.
        let inactive = |line: &String| {
            let at = line.find(' ').map_or(0, |at| at + 1);
            match line.get(at..at + 10) {
                Some(attr) if line.get(at + 4..at + 6) == Some("XX") => {
                    let health = if &attr[8..9] == "X" { "-" } else { &attr[8..9] };
                    format!("{}--{}{health}{}", &line[..at + 4], &line[at + 6..at + 8], &line[at + 9..])
                }
                _ => line.clone(),
            }
        };
        let mut theirs: Vec<_> = theirs.iter().map(inactive).collect();
        let mut mine = mine;
        // LVM2 has a line for each segment where a field is of segments.
        theirs.sort();
        theirs.dedup();
        mine.sort();
        for (mine, theirs) in mine.iter().zip(&theirs) {
            assert_eq!(mine, theirs, "{words}");
        }
        assert_eq!(mine.len(), theirs.len(), "{words}");
    }
}

#[test]
fn amounts_are_rounded_as_lvm_rounds() {
    if !require("lvm") || !require("losetup") {
        return;
    }
    let room = Room::new();
    let conf = room.path("lvm");
    fs::create_dir(&conf).unwrap();
    let (ours, theirs) = ([room.device("a", 64 << 20)], [room.device("b", 64 << 20)]);
    for files in [&ours, &theirs] {
        lvm(&room, "vg create vg -s 64K", files).ok();
    }
    for (kind, amount) in [
        ("create", "33%VG"),
        ("create", "7%PVS"),
        ("create", "51%FREE"),
        ("extend", "+33%LV"),
        ("extend", "+7%FREE"),
        ("extend", "+3%PVS"),
        ("extend", "110%LV"),
        ("reduce", "-33%LV"),
        ("reduce", "71%LV"),
        ("reduce", "-3%VG"),
        ("reduce", "5%PVS"),
    ] {
        // The name says which amount made it.
        let name = if kind == "create" { amount.replace('%', "") } else { "33VG".to_owned() };
        lvm(&room, &format!("lv {kind} vg/{name} -l {amount}"), &ours).ok();
        let command = match kind {
            "create" => format!("lvcreate --driverloaded n -an -Zn -Wn -y -l {amount} -n {name} vg"),
            "extend" => format!("lvextend --driverloaded n -l {amount} vg/{name}"),
            _ => format!("lvreduce --driverloaded n -y -l {amount} vg/{name}"),
        };
        if judge(&conf, &theirs, &command).is_none() {
            return;
        }
        let sizes =
            |files: &[String]| judge(&conf, files, "lvs --noheadings -o lv_name,lv_size --units k").unwrap();
        assert_eq!(sizes(&ours), sizes(&theirs), "{kind} {amount}");
    }
    room.untouched(|| lvm(&room, "lv create vg/x -l 5%LV", &ours)).failed(2, "WTL-0002", &["5%LV"]);
    lvm(&room, "lv create vg/all -l 100%FREE", &ours).ok();
    room.untouched(|| lvm(&room, "lv create vg/x -l 50%FREE", &ours)).failed(
        1,
        "WTL-0131",
        &["no extent of vg"],
    );
    room.untouched(|| lvm(&room, "lv extend vg/all -l +100%FREE", &ours)).failed(
        1,
        "WTL-0131",
        &["no extent of vg"],
    );
    room.untouched(|| lvm(&room, "lv create vg/x -l 99999999999999999999", &ours)).failed(
        2,
        "WTL-0002",
        &["extents"],
    );
    room.untouched(|| lvm(&room, "lv create vg/x -L 16E", &ours)).failed(2, "WTL-0002", &[]);
    room.untouched(|| lvm(&room, "lv extend vg/all -l +18446744073709551615", &ours)).failed(
        1,
        "WTL-0131",
        &[],
    );
}

#[test]
fn a_restore_sends_away_who_joined_and_asks_for_force_where_there_are_pools() {
    let room = Room::new();
    let files = [room.device("a", 32 << 20), room.device("b", 32 << 20)];
    lvm(&room, "vg create vg -s 1M", &files[..1]).ok();
    lvm(&room, "lv create vg/home -l 5", &files[..1]).ok();
    lvm(&room, "vg extend vg", &files).ok();
    lvm(&room, "lv extend vg/home -l +20", &files).ok();
    let saved = backups(&room).into_iter().find(|name| name.contains("_00002")).unwrap();
    let file = room.path("backups").join(saved);
    let restored = lvm(&room, &format!("vg restore vg --file {}", file.display()), &files).ok();
    assert!(restored.text().contains("joined the group since"), "{}", restored.text());
    let pvs = list("pv", &files, &[]);
    assert_eq!((&pvs[0]["vg_name"], &pvs[1]["vg_name"]), (&"vg".into(), &"".into()));
    // It belongs to another group by now: it does not come back.
    let later = backups(&room).into_iter().find(|name| name.contains("_00003")).unwrap();
    let later = format!("vg restore vg --file {}", room.path("backups").join(later).display());
    lvm(&room, "vg create other", &files[1..]).ok();
    room.untouched(|| lvm(&room, &later, &files)).failed(3, "WTL-0132", &["other"]);
    lvm(&room, "vg remove other", &files[1..]).ok();
    lvm(&room, &later, &files).ok();
    assert_eq!(list("vg", &files, &[])[0]["pv_count"], 2);

    let other = Room::new();
    let members = every_kind(&other);
    let file = room.path("every.vg");
    fs::write(&file, include_bytes!("../../../format/tests/data/lvm/every.vg")).unwrap();
    let restore = format!("vg restore every --file {}", file.display());
    lvm(&room, &restore, &members).failed(3, "WTL-0138", &["pool", "cp_cpool"]);
    lvm(&room, &format!("{restore} --force=pool"), &members).ok();
    assert_eq!(list("vg", &members, &[])[0]["vg_seqno"], 71);
}
