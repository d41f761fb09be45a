//! The file of sums in a state directory.

use std::fs::{DirBuilder, OpenOptions as FileOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use wattle_engine::model::sums::SumSpec;
use wattle_rt::{Device, Direct, Lock, OpenOptions};

use super::shape;
use crate::problem::{Code, Problem};

/// Where the sums of the array with this UUID are.
#[must_use]
pub fn sums_file(dir: &Path, uuid: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = uuid.chars().map(plain).take(64).collect();
    dir.join(format!("scrub-{name}.sums"))
}

/// Opens the file of an array's sums, made anew where there is none of the right size. It has
/// holes where no scrub was recorded.
///
/// # Errors
/// There is no place for it, or another server has it.
pub fn open_sums_file(dir: &Path, uuid: &str, spec: &SumSpec) -> Result<Device, Problem> {
    let path = sums_file(dir, uuid);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir).and_then(|()| make(&path, spec));
    made.map_err(|error| problem(&path, &error.to_string()))?;
    let options = OpenOptions {
        write: true,
        direct: Direct::Never,
        lock: Lock::Exclusive,
        patience: std::time::Duration::from_secs(2),
    };
    Device::open(&path, options).map_err(|error| problem(&path, &error.to_string()))
}

fn make(path: &Path, spec: &SumSpec) -> io::Result<()> {
    let mut options = FileOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(path)?;
    let bytes = shape(spec).file_bytes();
    if file.metadata()?.len() != bytes {
        // Of another array, or another shape of this one: nothing of it counts.
        file.set_len(0)?;
        file.set_len(bytes)?;
    }
    Ok(())
}

fn problem(path: &Path, error: &str) -> Problem {
    Problem::new(
        Code::SumsNotKept,
        format!("what scrubs record cannot be kept in {}: {error}", path.display()),
        "checks and repairs are as without it",
        "name a directory of yours: --state-dir DIR, or WATTLE_STATE_DIR",
    )
}
