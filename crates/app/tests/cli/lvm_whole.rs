//! Volume groups in states that others leave: resized by LVM2, on devices that became smaller,
//! changed by a dozen commands at once, half-made.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use crate::harness::{Room, require, run, said, wattle};
use crate::lvm::{judge, lvm};

fn cut(file: &str, size_bytes: u64) {
    File::options().write(true).open(file).unwrap().set_len(size_bytes).unwrap();
}

fn shown(kind: &str, fields: &str, members: &[String]) -> String {
    let args = [kind, "list", "--noheadings", "--units", "b", "--nosuffix", "-o", fields].map(str::to_owned);
    let text = run(args.into_iter().chain(members.iter().cloned())).ok();
    text.text().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// It records the device's size without what is before the extents, so that these end past it at
/// some sizes.
#[test]
fn a_group_that_pvresize_touched_is_used_at_every_size() {
    if !require("lvm") || !require("losetup") {
        return;
    }
    let room = Room::new();
    let conf = room.path("lvm");
    std::fs::create_dir(&conf).unwrap();
    for size in (33..=64_u64).step_by(4) {
        let files = [room.device("a", 32 << 20)];
        lvm(&room, "vg create vg", &files).ok();
        cut(&files[0], size << 20);
        if judge(&conf, &files, &format!("pvresize {}", files[0])).is_none() {
            return;
        }
        let extents = (size - 1) / 4;
        assert_eq!(shown("pv", "pv_pe_count,dev_size", &files), format!("{extents} {}", size << 20));
        lvm(&room, "lv create vg/all -l 100%FREE", &files).ok();
        assert_eq!(shown("lv", "lv_size", &files), (extents << 22).to_string(), "{size} MiB");
    }
}

#[test]
fn what_is_past_the_end_of_a_smaller_device_is_missing_alone() {
    let room = Room::new();
    let files = [room.device("a", 32 << 20)];
    lvm(&room, "vg create vg -s 1M", &files).ok();
    lvm(&room, "lv create vg/first -l 10", &files).ok();
    lvm(&room, "lv create vg/second -l 20", &files).ok();
    cut(&files[0], 16 << 20);
    let cat = |volume: &str| run(["cat", "-V", volume, &files[0]]);
    assert_eq!(cat("vg/first").ok().stdout.len(), 10 << 20);
    assert_eq!(cat("vg/second").stdout.len(), 4 << 20);
    let told = ["vg/second", "from byte 16777216 on", "reading bytes 4194304 to"];
    cat("vg/second").failed(1, "WTL-0104", &told);
    let serve = ["serve", "-V", "vg/second", "--export", "nbd=tcp:127.0.0.1:0", &files[0]];
    run(serve).failed(1, "WTL-0123", &["vg/second", "copy again what was cut short"]);
    room.untouched(|| lvm(&room, "lv create vg/x -l 1", &files)).failed(1, "WTL-0186", &["pv resize"]);
    room.untouched(|| lvm(&room, "pv resize", &files)).failed(3, "WTL-0132", &[]);
    cut(&files[0], 32 << 20);
    assert_eq!(cat("vg/second").ok().stdout.len(), 20 << 20);
    lvm(&room, "lv remove vg/second", &files).ok();
    cut(&files[0], 16 << 20);
    lvm(&room, "pv resize", &files).ok();
    assert_eq!(shown("pv", "pv_pe_count,dev_size", &files), "15 16777216");
    lvm(&room, "lv create vg/x -l 5", &files).ok();
    lvm(&room, "lv remove vg/x", &files).ok();
    lvm(&room, "lv remove vg/first", &files).ok();
    cut(&files[0], (1 << 20) + 4096);
    room.untouched(|| lvm(&room, "pv resize", &files)).failed(1, "WTL-0081", &["no extent"]);
}

#[test]
fn a_dozen_commands_at_once_all_make_their_volume() {
    let room = Room::new();
    let files = room.blank(2, 32 << 20);
    lvm(&room, "vg create vg -s 1M", &files).ok();
    let start = |n| {
        let mut command = wattle();
        command.args(["lv", "create", &format!("vg/v{n}"), "-l", "2", "--no-undo"]);
        command.args(["--backup-dir", &room.name("backups")]).args(&files);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<_> = (0..12).map(start).collect();
    let mut made = 0;
    for child in started {
        let said = said(child.wait_with_output().unwrap());
        // Past its patience a command says which process has a member.
        let waited = said.stderr.contains("WTL-0026") && said.stderr.contains("(wattle) has it open");
        assert!(said.status == 0 || waited, "{}", said.stderr);
        made += u64::from(said.status == 0);
    }
    assert!(made > 0);
    let expected = format!("{made} {}", 62 - 2 * made);
    assert_eq!(shown("vg", "lv_count,vg_free_count", &files), expected);
}

#[test]
fn what_was_half_made_is_completed_by_the_same_command() {
    let room = Room::new();
    let files = room.blank(3, 32 << 20);
    // One was made when the command was killed, the next one was not.
    lvm(&room, "pv create", &files[..1]).ok();
    lvm(&room, "pv create", &files[..2]).ok();
    let second = room.untouched(|| lvm(&room, "pv create", &files[..2])).ok();
    assert!(second.text().contains("unused physical volume already"), "{}", second.text());
    lvm(&room, "vg create vg -s 1M", &files[..2]).ok();
    let before: Vec<_> = files.iter().map(|file| head(file)).collect();
    let extend = format!("vg extend vg --on {}", files[2]);
    lvm(&room, &extend, &files).ok();
    // As if it had been killed when only the first device had the new text.
    for (file, head) in files[1..2].iter().zip(&before[1..2]) {
        File::options().write(true).open(file).unwrap().write_all_at(head, 0).unwrap();
    }
    let again = lvm(&room, &extend, &files).ok();
    assert!(again.text().contains("is complete now"), "{}", again.text());
    assert_eq!(shown("vg", "pv_count,vg_seqno", &files), "3 3");
    lvm(&room, &extend, &files).failed(2, "WTL-0006", &[]);
    // And when it had only made the new physical volume.
    let fresh = Room::new();
    let files = fresh.blank(2, 32 << 20);
    lvm(&fresh, "vg create vg -s 1M", &files[..1]).ok();
    lvm(&fresh, "pv create", &files[1..]).ok();
    lvm(&fresh, "vg extend vg", &files).ok();
    assert_eq!(shown("vg", "pv_count", &files), "2");
}

fn head(file: &str) -> Vec<u8> {
    let mut head = vec![0; 1 << 20];
    File::open(file).unwrap().read_exact_at(&mut head, 0).unwrap();
    head
}
