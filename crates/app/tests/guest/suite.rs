//! A few of mdadm's own tests, run against wattle by scripts/mdadm-tests, which fetches them
//! (docs/mdadm-tests.md). `make mdadm-tests` runs all that apply.

#![allow(clippy::print_stderr, reason = "what is skipped is said loudly")]

use std::process::Command;

use crate::judge::{Guest, root};

/// The exit status of scripts/mdadm-tests where the source package cannot be had.
const NO_SOURCE: i32 = 77;
/// Short ones, in which arrays are made, shown, assembled, lose members, get new ones and a bitmap.
const TESTS: [&str; 3] = ["06name", "01r5fail", "05r1-grow-internal"];

pub fn run(_guest: &Guest) {
    let output = Command::new(root().join("scripts/mdadm-tests"))
        .arg("--together")
        .args(TESTS)
        .env("WATTLE", env!("CARGO_BIN_EXE_wattle"))
        .output()
        .expect("scripts/mdadm-tests runs");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(NO_SOURCE) {
        assert!(std::env::var_os("CI").is_none(), "in CI nothing is skipped: {errors}");
        eprintln!("SKIPPED, NOT TESTED: {errors}");
        return;
    }
    assert!(output.status.success(), "{text}\n{errors}");
    for test in TESTS {
        let passed = |line: &str| line.starts_with(&format!("RESULT {test} ok=yes "));
        assert!(text.lines().any(passed), "{test} did not pass: {text}");
    }
}
