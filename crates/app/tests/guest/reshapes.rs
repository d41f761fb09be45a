//! Arrays that Linux leaves in the middle of every kind of reshape (guest/matrix-reshape.txt), in
//! good order or dead: wattle reads every byte, whole and without any one member, and writes none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cases::Case;
use crate::judge::{Facts, Guest, Slices, root};
use crate::pattern::Pattern;

/// The kernel makes the cases that are `wanted`, and each is read.
pub fn judge(guest: &Guest, wanted: impl Fn(&str) -> bool) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let file = root().join("guest/matrix-reshape.txt");
    let lines = fs::read_to_string(file).expect("the guest's case files are there");
    let all = Case::read("matrix-reshape.txt");
    let kept: Vec<_> = all.into_iter().filter(|case| wanted(&case.id)).collect();
    let is_kept = |line: &&str| {
        let word = line.split_whitespace().next();
        word.is_some_and(|word| word == "slice" || kept.iter().any(|case| case.id == word))
    };
    let matrix = scratch.path().join("matrix.txt");
    let text: Vec<_> = lines.lines().filter(is_kept).collect();
    fs::write(&matrix, text.join("\n") + "\n").expect("scratch space");

    let slices = Slices::new(scratch.path(), kept.len());
    let facts = guest.make_arrays(&matrix, &slices);
    for (k, case) in kept.iter().enumerate() {
        let facts = facts.get(&case.id).unwrap_or_else(|| panic!("{}: the kernel made nothing", case.id));
        assert_eq!(facts["ok"], "yes", "{}", case.id);
        read(case, facts, &slices.extract(k, case));
    }
}

/// Reads one: whole, and without each member where that is tolerable.
pub fn read(case: &Case, facts: &Facts, members: &[PathBuf]) {
    let id = &case.id;
    let sectors: u64 = facts["array_sectors"].parse().expect("a number");
    let expected = Pattern::parse(&facts["pattern"]).bytes(sectors);
    let before = contents(members);
    if case.in_place() {
        in_place(id, facts, members, &expected);
    } else {
        crate::check_content(id, members, &expected);
        for out in 0..members.len() {
            let rest: Vec<_> =
                members.iter().enumerate().filter(|(m, _)| *m != out).map(|(_, path)| path.clone()).collect();
            let what = format!("{id} without {out}");
            if case.is_short() {
                right_or_refused(&what, &cat(&[], &rest), &expected);
            } else {
                crate::check_content(&what, &rest, &expected);
            }
        }
    }
    assert!(before == contents(members), "{id}: a member was written to");
}

/// Nothing tells how far Linux came: what lies beyond the position is an error.
fn in_place(id: &str, facts: &Facts, members: &[PathBuf], expected: &[u8]) {
    let position: usize = facts["reshape_position"].parse().expect("a number");
    let length = (position * 512).to_string();
    let below = cat(&["--length", &length], members);
    assert!(below.status.success() && below.stdout == expected[..position * 512], "{id}: below the position");
    let beyond = cat(&["--offset", &length], members);
    assert!(!beyond.status.success(), "{id}: beyond the position");
}

/// Where members are missing already, one more may be one too many.
fn right_or_refused(what: &str, output: &Output, expected: &[u8]) {
    if output.status.success() {
        assert!(output.stdout == expected, "{what}: reads back something else");
        return;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("WTL-0048") && output.stdout.is_empty(), "{what}: {errors}");
}

fn cat(args: &[&str], members: &[PathBuf]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wattle"))
        .arg("cat")
        .args(args)
        .args(members)
        .output()
        .expect("wattle runs")
}

fn contents(members: &[PathBuf]) -> BTreeMap<&Path, Vec<u8>> {
    members.iter().map(|path| (path.as_path(), fs::read(path).expect("a member"))).collect()
}
