//! What is mounted where, from `/proc/self/mountinfo`. Asking the table never asks the server
//! behind a mount, so it answers for one that is gone or hangs.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Where.
    pub dir: PathBuf,
    /// The file system's type.
    pub kind: String,
    /// What is mounted: a device, or a name.
    pub source: PathBuf,
    /// The number of its device, which all mounts of one file system share.
    pub number: (u32, u32),
}

/// What is mounted at an absolute path: the uppermost.
pub fn mount_at(dir: &Path) -> Option<MountEntry> {
    all().into_iter().rfind(|mount| mount.dir == dir)
}

/// The mounts of a device or of a named source.
pub fn mounts_from(source: &Path) -> Vec<MountEntry> {
    all().into_iter().filter(|mount| mount.source == source).collect()
}

fn all() -> Vec<MountEntry> {
    mounts_in(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// The mounts of a table, in their order. Lines that are none are passed over.
pub fn mounts_in(table: &[u8]) -> Vec<MountEntry> {
    table.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

/// One line: `id parent major:minor root DIR options [optional...] - TYPE SOURCE super-options`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|&byte| byte == b' ');
    let (major, minor) = std::str::from_utf8(words.nth(2)?).ok()?.split_once(':')?;
    let number = (major.parse().ok()?, minor.parse().ok()?);
    let dir = unescape(words.nth(1)?);
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = String::from_utf8_lossy(words.next()?).into_owned();
    Some(MountEntry { dir, kind, source: unescape(words.next()?), number })
}

/// Blanks, line ends and backslashes are written as three octal digits.
fn unescape(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let code = match (first, tail.first_chunk::<3>()) {
            (b'\\', Some(digits)) => {
                std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 8).ok())
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_and_without_optional_fields() {
        let line =
            b"36 35 98:0 / /mnt/my\\040data\\134 rw,noatime master:1 - fuse.wattle wattle rw,errors=continue";
        let mount = parse(line).expect("a mount");
        assert_eq!(mount.dir, Path::new("/mnt/my data\\"));
        assert_eq!((mount.kind.as_str(), mount.source.as_path()), ("fuse.wattle", Path::new("wattle")));
        assert_eq!(mount.number, (98, 0));
        let plain = parse(b"36 35 7:0 / /m rw - xfs /dev/loop0 rw").expect("a mount");
        assert_eq!(plain.source, Path::new("/dev/loop0"));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 98:0 / /mnt rw"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "mounts of the system")]
    fn the_table_has_the_process_file_system() {
        assert_eq!(mount_at(Path::new("/proc")).expect("/proc is mounted").kind, "proc");
    }
}
