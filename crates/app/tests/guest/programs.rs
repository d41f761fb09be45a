//! Programs of this machine that jobs of the guest run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wattle under test and `others`, with what they are linked to.
pub fn programs(scratch: &Path, others: &[&str]) -> Vec<PathBuf> {
    let ours = scratch.join("wattle");
    // Symbols are most of it, and all of it goes through an emulated machine's memory.
    let stripped = Command::new("strip").arg("-o").arg(&ours).arg(env!("CARGO_BIN_EXE_wattle")).status();
    assert!(stripped.expect("strip runs").success());
    let programs: Vec<PathBuf> = others.iter().map(PathBuf::from).chain([ours]).collect();
    let libraries: BTreeSet<PathBuf> = programs.iter().flat_map(|program| libraries(program)).collect();
    programs.into_iter().chain(libraries).collect()
}

/// The libraries that a program is linked to, but for the loader, which the guest has.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let said = Command::new("ldd").arg(program).output().expect("ldd runs").stdout;
    let said = String::from_utf8(said).expect("paths are text");
    let paths = said.split_whitespace().filter(|word| word.starts_with('/') && !word.contains("ld-linux"));
    paths.map(PathBuf::from).collect()
}
