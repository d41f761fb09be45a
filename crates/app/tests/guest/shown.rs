//! What mdadm shows, and what wattle shows in mdadm's formats: of members that the kernel left
//! behind (`--examine`), and of arrays that run (`--detail`, in the guest).

#![allow(clippy::print_stderr, reason = "what is skipped is said loudly")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::Case;
use crate::judge::{Guest, Slices};
use crate::server::Server;
use crate::wattle;

/// What is asked of mdadm, and the format of the same.
const EXAMINED: [(&[&str], &str); 3] = [
    (&["--examine"], "mdadm"),
    (&["--examine", "--export"], "export"),
    (&["--examine", "--scan", "-v"], "scan-verbose"),
];

const DETAILS: [(&str, &str); 4] = [
    ("--detail", "mdadm"),
    ("--detail--export", "export"),
    ("--detail--scan", "scan"),
    ("--detail--scan-v", "scan-verbose"),
];

/// Compares what is printed of members, byte by byte, with the mdadm of this machine.
pub fn examined(id: &str, members: &[PathBuf]) {
    for (asked, format) in EXAMINED {
        let theirs = Command::new("mdadm").args(asked).args(members).output();
        let Ok(theirs) = theirs else {
            assert!(std::env::var_os("CI").is_none(), "mdadm is not installed: run scripts/deps");
            eprintln!("SKIPPED: mdadm is not installed; scripts/deps installs it");
            return;
        };
        let ours = wattle(&["examine", "--format", format], members);
        let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
        assert_eq!(theirs, String::from_utf8_lossy(&ours), "{id}: {format}");
    }
}

/// What mdadm printed in the guest, by case, moment and view.
type Shown = BTreeMap<(String, String, String), String>;

fn shown(text: &str) -> Shown {
    let mut shown = Shown::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("SHOW ")) {
        let (head, line) = line.split_once('|').expect("a line of what is shown");
        let mut words = head.split(' ').map(str::to_owned);
        let mut word = || words.next().expect("case, moment, view");
        let text = shown.entry((word(), word(), word())).or_default();
        text.push_str(line);
        text.push('\n');
    }
    shown
}

/// What cannot be the same is left out: which node the array and its members have, what this
/// machine is called, when superblocks were written last and how often. Of `made` by wattle also
/// what each made for itself.
fn masked(view: &str, text: &str, made: bool) -> String {
    let mut lines: Vec<String> = text.lines().map(|line| masked_line(view, line, made)).collect();
    if view == "export" {
        // mdadm goes by the order of a directory, and names a member by its node.
        let at = lines.iter().position(|line| line.starts_with("MD_DEVICE_")).unwrap_or(lines.len());
        let pairs = lines.split_off(at);
        let mut pairs: Vec<String> = pairs.chunks(2).map(|pair| pair.join(" ")).collect();
        pairs.sort_by_key(|pair| pair.rsplit_once('=').map(|(_, name)| name.to_owned()));
        lines.extend(pairs);
    }
    lines.join("\n")
}

fn masked_line(view: &str, line: &str, made: bool) -> String {
    let here = line.find(" (local to host ").map_or(line, |at| line[..at].trim_end());
    // The file name of a member.
    let line = here.split(' ').map(|word| match word.rsplit_once("/member") {
        Some((_, name)) if !word.contains(',') => {
            let head = word.split_once('=').map(|(key, _)| format!("{key}=")).unwrap_or_default();
            format!("{head}member{name}")
        }
        _ if word.starts_with("devices=") => {
            let names =
                word["devices=".len()..].split(',').map(|name| name.rsplit('/').next().unwrap_or(name));
            format!("devices={}", names.collect::<Vec<_>>().join(","))
        }
        _ => word.to_owned(),
    });
    let line = line.collect::<Vec<_>>().join(" ");
    let (key, value) = line.split_once(" : ").unwrap_or((&line, ""));
    let name = key.trim_start();
    match name {
        "Update Time" | "Events" => return format!("{key} : -"),
        "Creation Time" | "UUID" | "Name" if made => return format!("{key} : -"),
        "Rebuild Status" | "Check Status" | "Resync Status" => {
            assert!(value.ends_with("% complete"), "{line}");
            return format!("{key} : -% complete");
        }
        _ => {}
    }
    match view {
        "mdadm" if line.starts_with("/dev/md") => "/dev/md:".to_owned(),
        // A row: the number is wattle's own where wattle made the array, the node never the same.
        "mdadm" if line.len() > 28 && line[..8].trim().parse::<u32>().is_ok() => {
            let number = if made { "       -" } else { &line[..8] };
            format!("{number}   -    -{}", &line[28 - 1..])
        }
        "export" if line.starts_with("MD_DEVICE_") => {
            let kind = if line.contains("_ROLE=") { "ROLE" } else { "DEV" };
            format!("MD_DEVICE_{kind}={}", line.split_once('=').expect("a value").1)
        }
        "export" if made && (line.starts_with("MD_UUID=") || line.starts_with("MD_NAME=")) => {
            line[..8].to_owned()
        }
        "scan" | "scan-verbose" if line.starts_with("ARRAY ") => {
            let words = line.split(' ').enumerate().map(|(index, word)| match word {
                _ if index == 1 => "/dev/md",
                _ if made && (word.starts_with("UUID=") || word.starts_with("name=")) => &word[..5],
                _ => word,
            });
            words.collect::<Vec<_>>().join(" ")
        }
        _ => line,
    }
}

/// Compares what mdadm showed of a moment with what a server shows.
fn compare(shown: &Shown, id: &str, moment: &str, server: &mut Server, made: bool) {
    // Members that come and go are written to for a moment.
    server.wait_until_clean();
    for (view, format) in DETAILS {
        let theirs = &shown[&(id.to_owned(), moment.to_owned(), view.to_owned())];
        let ours = server.ask(&["detail", "--format", format]).stdout;
        let ours = masked(format, &String::from_utf8_lossy(&ours), made);
        assert_eq!(masked(format, theirs, made), ours, "{id}: {format}");
    }
}

/// mdadm shows arrays that the kernel runs; wattle serves what is on the disks afterwards, and
/// brings about the moments in between in arrays of its own.
pub fn judge(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let cases = Case::read("matrix-show.txt");
    let slices = Slices::new(scratch.path(), cases.len());
    // The job reads one name.
    let matrix = scratch.path().join("matrix.txt");
    std::fs::copy(crate::judge::root().join("guest/matrix-show.txt"), &matrix).expect("scratch space");
    let shown = shown(&guest.text_of("show-arrays", &[matrix], &slices));

    let mut compared = 0;
    for (k, case) in cases.iter().enumerate() {
        let id = &case.id;
        if !shown.contains_key(&(id.clone(), "end".to_owned(), "--detail".to_owned())) {
            continue;
        }
        let members = slices.extract(k, case);
        examined(id, &members);
        let mut server = Server::start(&members, &slices.dir(k), &[]);
        compare(&shown, id, "end", &mut server, false);
        server.stop();
        compared += 1;
    }
    assert_eq!(compared, 22, "cases that end");
    moments(&shown, scratch.path());
}

/// Work in the background that does not end before it is looked at: KiB each second.
const CRAWL: [&str; 4] = ["--set", "sync_speed_min=8", "--set", "sync_speed_max=8"];

fn moments(shown: &Shown, scratch: &Path) {
    let make = |id: &str, count: usize, args: &[&str]| -> (Vec<PathBuf>, PathBuf) {
        let dir = scratch.join(format!("moment-{id}"));
        std::fs::create_dir_all(&dir).expect("scratch space");
        let members: Vec<_> = (0..count).map(|member| dir.join(format!("member{member}.img"))).collect();
        for member in &members {
            let file = std::fs::File::create(member).expect("scratch space");
            file.set_len(crate::judge::SLICE_SECTORS * 512).expect("scratch space");
        }
        let create = ["create", "x"].iter().chain(args).copied().collect::<Vec<_>>();
        let state = dir.join("state");
        // One is added later.
        let given = if id == "rebuilding" { count - 1 } else { count };
        let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
        command.args(create).args(&members[..given]).env("WATTLE_STATE_DIR", &state);
        let made = command.output().expect("wattle runs");
        assert!(made.status.success(), "{id}: {}", String::from_utf8_lossy(&made.stderr));
        (members, dir)
    };
    let name = |member: &PathBuf| member.to_str().expect("utf-8").to_owned();
    let raid5 = ["--level", "5", "--chunk", "64K", "--bitmap", "none"];

    let (members, dir) = make("failed", 4, &raid5);
    let mut server = Server::start(&members, &dir, &[]);
    server.ask(&["fail", &name(&members[2])]);
    compare(shown, "failed", "failed", &mut server, true);
    server.stop();

    let raid1 = ["--level", "1", "--bitmap", "internal"];
    let (members, dir) = make("failed-mostly", 3, &raid1);
    let mut server = Server::start(&members, &dir, &[]);
    server.ask(&["set", &format!("write_mostly={}", name(&members[1]))]);
    server.ask(&["fail", &name(&members[1])]);
    compare(shown, "failed-mostly", "failed", &mut server, true);
    server.stop();

    let (members, dir) = make("rebuilding", 5, &raid5);
    let mut server = Server::start(&members[..4], &dir, &CRAWL);
    server.ask(&["fail", &name(&members[1])]);
    server.ask(&["remove", &name(&members[1])]);
    server.ask(&["add", &name(&members[4])]);
    server.wait_for_sync("recovery", 0);
    compare(shown, "rebuilding", "rebuilding", &mut server, true);
    server.stop();

    let args = ["--level", "6", "--chunk", "64K", "--bitmap", "none", "--spares", "1"];
    let (members, dir) = make("replacing", 5, &args);
    let mut server = Server::start(&members, &dir, &CRAWL);
    server.ask(&["replace", &name(&members[2])]);
    server.wait_for_sync("recovery", 0);
    compare(shown, "replacing", "replacing", &mut server, true);
    server.stop();

    let scrubs: [(&str, &[&str], &[&str], usize); 2] =
        [("checking", &["check"], &raid1, 2), ("repairing", &["repair", "--source", "data"], &raid5, 4)];
    for (id, scrub, args, count) in scrubs {
        let (members, dir) = make(id, count, args);
        let mut server = Server::start(&members, &dir, &CRAWL);
        server.ask(scrub);
        server.wait_for_sync(scrub[0], 0);
        compare(shown, id, id, &mut server, true);
        server.stop();
    }
}
