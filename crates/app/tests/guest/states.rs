//! Every state that md leaves behind (guest/matrix-states.txt): wattle serves it, with every byte
//! right at once and for good, brings it back to full redundancy by itself or with the one command
//! that is needed, and md finds nothing wrong afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::Case;
use crate::history::History;
use crate::judge::{Facts, Slices};
use crate::pattern::Pattern;
use crate::server::Server;
use crate::shown;

/// Sectors of md's unit of writing to RAID 5.
const PAGE_SECTORS: u64 = 8;

/// What wattle does with one of them; returns the line by which md judges the result.
pub fn take_over(case: &Case, facts: &Facts, slices: &Slices, k: usize) -> String {
    let id = &case.id;
    let sectors: u64 = facts["array_sectors"].parse().expect("a number");
    let mut pattern = Pattern::parse(&facts["pattern"]);
    let members = slices.extract(k, case);
    shown::examined(id, &members);
    let dir = slices.dir(k);
    let torn = case.crashed() && !case.mirrored() && !case.logged();
    if torn && case.degraded_at_crash() {
        refused(id, &members, &dir);
        return format!("refused-{id} level=none members=1");
    }
    if case.crashed() && !case.degraded_at_crash() {
        let known = pattern.without_blocks_in_flight(PAGE_SECTORS, sectors);
        for out in 0..members.len() {
            let what = format!("{id} without {out}");
            let (rest, scratch) = without(&members, out, &dir);
            if torn && !case.only_parity(out) || case.only_log() == Some(out) {
                refused(&what, &rest, &scratch);
            } else {
                serve_degraded(&what, &rest, &scratch, &known);
            }
            std::fs::remove_dir_all(&scratch).expect("scratch space");
        }
    }

    let mut server = Server::start(&members, &dir, &[]);
    let mut disk = server.connect();
    assert_eq!(disk.sectors(), sectors, "{id}: size");
    pattern.check(&format!("{id} at once"), &disk.read_all());
    if !pattern.has_lost() {
        let writes = Pattern::scattered(3_000_000 + k as u64, sectors, case.chunk_sectors());
        disk.write_all(&writes.as_writes());
        pattern.extend(&writes);
    }
    server.settle(case.empty_slots_left());
    for away in case.must_be_added() {
        let path = members[away].to_str().expect("utf-8");
        server.ask(&["add", path, "--wait"]);
    }
    server.settle(case.empty_slots_in_the_end());
    if k.is_multiple_of(2) && !case.logged() {
        // Linux goes on with a bitmap that came while the array ran, and without one that went.
        server.ask(&["set", if case.has_bitmap() { "bitmap=none" } else { "bitmap=64K" }]);
        if !pattern.has_lost() {
            let writes = Pattern::scattered(4_000_000 + k as u64, sectors, case.chunk_sectors());
            disk.write_all(&writes.as_writes());
            pattern.extend(&writes);
        }
    }
    pattern.check(&format!("{id} in the end"), &disk.read_all());
    if !pattern.has_lost() && case.empty_slots_in_the_end() == 0 {
        let checked = server.tell(&["check", "--wait"]);
        let said = String::from_utf8_lossy(&checked.stderr);
        // What is listed as bad has nothing to be compared with, which is told.
        let is_as_listed = case.lists_bad() && said.contains("no mismatch") && said.contains("nothing left");
        assert!(checked.status.success() || is_as_listed, "{id}: {said}");
    }
    drop(disk);
    server.stop();
    let mut dies = None;
    if case.logged() {
        // The log is wattle's own now, and is needed at once.
        let mut history = History { k, sectors, pattern };
        history.write_and_kill(Server::start(&members, &dir, &[]));
        // With every other one the kernel must do without a member as well.
        dies = (k % 2 == 1 && !case.degraded_at_crash()).then_some(k / 2 % members.len());
        let certain = dies.is_none() && !case.degraded_at_crash();
        let known = history.pattern.without_blocks_in_flight(PAGE_SECTORS, sectors);
        pattern = if certain { history.pattern } else { known };
    }
    slices.put_back(k, case, &members);
    case.judged_whole(&pattern, sectors, dies)
}

/// What the kernel must have found in what wattle left.
pub fn check(case: &Case, verdict: &Facts) {
    let id = &case.id;
    if case.logged() {
        let moved = &verdict["moved"];
        assert!(
            moved.split(',').all(|slice| slice.starts_with("0/")),
            "{id}: a log was there, but moved {moved}"
        );
    }
    if Pattern::parse(&verdict["pattern"]).has_lost() {
        assert_ne!(verdict["found_bad"], "-", "{id}: bad blocks that nothing could heal are forgotten");
    }
}

/// Copies of the members but one, and the directory that they are in.
fn without(members: &[PathBuf], out: usize, dir: &Path) -> (Vec<PathBuf>, PathBuf) {
    let scratch = dir.join(format!("without-{out}"));
    std::fs::create_dir_all(&scratch).expect("scratch space");
    let rest = members.iter().enumerate().filter(|(member, _)| *member != out).map(|(_, path)| {
        let copy = scratch.join(path.file_name().expect("a file"));
        std::fs::copy(path, &copy).expect("scratch space");
        copy
    });
    (rest.collect(), scratch)
}

/// A crash tore its stripes and a member is missing: what was on that one cannot be told, and
/// wattle says so.
fn refused(what: &str, members: &[PathBuf], dir: &Path) {
    let before: Vec<Vec<u8>> = members.iter().map(|path| std::fs::read(path).expect("a member")).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_wattle"))
        .args(["serve", "--run", "true", "--runtime-dir"])
        .arg(dir.join("run"))
        .args(members)
        .output()
        .expect("wattle runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{what}: {errors}");
    assert!(errors.contains("dirty-degraded"), "{what}: {errors}");
    for (path, before) in members.iter().zip(before) {
        assert!(std::fs::read(path).expect("a member") == before, "{what}: {} changed", path.display());
    }
}

/// Torn stripes and a missing member: with copies, or with a log to replay, nothing is lost that
/// no write was in flight for.
fn serve_degraded(what: &str, members: &[PathBuf], dir: &Path, pattern: &Pattern) {
    let mut server = Server::start(members, dir, &[]);
    pattern.check(what, &server.connect().read_all());
    server.settle(1);
    server.stop();
    let server = Server::start(members, dir, &[]);
    pattern.check(&format!("{what}, started again"), &server.connect().read_all());
    server.stop();
}
