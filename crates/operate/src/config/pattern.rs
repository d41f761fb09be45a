//! Names of members: patterns of paths, and the drives of this machine.

use std::fs;
use std::path::{Path, PathBuf};

/// Kinds of block devices that no member is on, or that servers make: one whose server is gone
/// answers nothing until the next one, which may be the one that looks, has taken it over.
const NO_DRIVES: [&str; 5] = ["ram", "zram", "sr", "fd", "ublkb"];

/// Whether a name stands for however many paths there are.
pub fn is_pattern(name: &str) -> bool {
    !is_remote(name) && name.contains(['*', '?', '['])
}

/// Whether it is no path: a drive across a network or a made-up one.
fn is_remote(name: &str) -> bool {
    let scheme = |c: char| c.is_ascii_lowercase() || c == '+';
    name.split_once(':').is_some_and(|(before, _)| !before.is_empty() && before.chars().all(scheme))
}

/// The paths that a pattern stands for, sorted; a name that is no pattern is itself, there or not.
///
/// `*` and `?` stand for any characters but `/`, `[a-c]` for one of those. A name that begins with
/// a dot has to be named so.
pub fn expand(pattern: &str) -> Vec<String> {
    if !is_pattern(pattern) {
        return vec![pattern.to_owned()];
    }
    let absolute = pattern.starts_with('/');
    let mut found = vec![PathBuf::from(if absolute { "/" } else { "" })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = found.iter().flat_map(|dir| step(dir, part)).collect();
    }
    let mut names: Vec<_> = found.into_iter().filter_map(|path| path.to_str().map(str::to_owned)).collect();
    names.sort();
    names
}

fn step(dir: &Path, part: &str) -> Vec<PathBuf> {
    if !part.contains(['*', '?', '[']) {
        let path = dir.join(part);
        return if path.symlink_metadata().is_ok() { vec![path] } else { Vec::new() };
    }
    let listed = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let Ok(entries) = fs::read_dir(listed) else { return Vec::new() };
    let fits = |name: &str| matches(part.as_bytes(), name.as_bytes());
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| (!name.starts_with('.') || part.starts_with('.')) && fits(name))
        .map(|name| dir.join(name))
        .collect()
}

/// Whether a name fits a part of a pattern. Only the last `*` is tried at further places, so that
/// the time is the product of the lengths at most.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match one(&pattern[p..], name[n]) {
            Some(len) => (p, n) = (p + len, n + 1),
            None if pattern.get(p) == Some(&b'*') => {
                star = Some((p, n));
                p += 1;
            }
            None => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, n) = (at + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// How much of the pattern stands for this one character, if it fits.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern.first()? {
        b'*' => None,
        b'?' => Some(1),
        b'[' => {
            let close = pattern.iter().skip(2).position(|byte| *byte == b']').map(|at| at + 2);
            let Some(close) = close else { return (byte == b'[').then_some(1) };
            let (negated, set) = match &pattern[1..close] {
                [b'!' | b'^', rest @ ..] => (true, rest),
                set => (false, set),
            };
            (in_set(set, byte) != negated).then_some(close + 1)
        }
        literal => (*literal == byte).then_some(1),
    }
}

fn in_set(mut set: &[u8], byte: u8) -> bool {
    while let [first, rest @ ..] = set {
        if let [b'-', last, after @ ..] = rest {
            if (*first..=*last).contains(&byte) {
                return true;
            }
            set = after;
        } else {
            if *first == byte {
                return true;
            }
            set = rest;
        }
    }
    false
}

/// What tells whether two names lead to one file or device, as far as it is there.
pub fn real_name(name: &str) -> String {
    if is_remote(name) {
        return name.to_owned();
    }
    fs::canonicalize(name).map_or_else(|_| name.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// Whether a name is there: of one across a network that is only known when it is opened.
pub fn is_there(name: &str) -> bool {
    is_remote(name) || Path::new(name).exists()
}

/// The block devices of this machine that members may be on: drives, of a drive that the kernel
/// shows partitions of these, and no device that another one is made of.
pub fn drives() -> Vec<String> {
    drives_in(Path::new("/sys/block"))
}

fn drives_in(sys_block: &Path) -> Vec<String> {
    let mut drives = Vec::new();
    for drive in entries(sys_block) {
        let is_drive = !NO_DRIVES.iter().any(|kind| {
            drive.strip_prefix(kind).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        });
        let dir = sys_block.join(&drive);
        if !is_drive || is_empty(&dir) {
            continue;
        }
        let parts: Vec<_> =
            entries(&dir).into_iter().filter(|part| dir.join(part).join("partition").exists()).collect();
        match parts.as_slice() {
            [] => drives.extend((!is_held(&dir)).then_some(drive)),
            parts => drives.extend(parts.iter().filter(|part| !is_held(&dir.join(part))).cloned()),
        }
    }
    // The kernel writes `!` where a name has a slash.
    drives.iter().map(|name| format!("/dev/{}", name.replace('!', "/"))).collect()
}

fn entries(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// No medium, or a loop device without a file.
fn is_empty(dir: &Path) -> bool {
    fs::read_to_string(dir.join("size")).is_ok_and(|size| size.trim() == "0")
}

/// An array or a map of the kernel is made of it.
fn is_held(dir: &Path) -> bool {
    !entries(&dir.join("holders")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_shells() {
        let fits = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        for (pattern, name) in [
            ("sd[b-d]", "sdc"),
            ("sd?", "sda"),
            ("*", "anything"),
            ("ata-*_S3*", "ata-WD_S1_S3X"),
            ("[!a]b", "bb"),
            ("[a]]", "a]"),
            ("a[", "a["),
            ("nvme[0-9]n1", "nvme0n1"),
            ("[ab-]x", "-x"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("sd[b-d]", "sde"), ("sd?", "sdaa"), ("a*b", "abc"), ("[!a]b", "ab"), ("", "a"), ("?", "")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
        // Would take for ever if every star were tried at every place.
        assert!(!fits(&("a*".repeat(30) + "b"), &"a".repeat(200)));
    }

    #[test]
    fn what_is_there_is_found_in_order() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("drives");
        fs::create_dir(&dir).unwrap();
        for name in ["b.img", "a.img", ".hidden.img", "c.txt"] {
            fs::write(dir.join(name), "").unwrap();
        }
        let name = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        assert_eq!(expand(&name("*.img")), [name("a.img"), name("b.img")]);
        assert_eq!(expand(&name("no*")), [""; 0]);
        assert_eq!(expand(&name("not-there")), [name("not-there")]);
        assert_eq!(expand(&format!("{}/d*/[ac]*", room.path().display())), [name("a.img"), name("c.txt")]);
        assert_eq!(expand("nbd://host/[a]*"), ["nbd://host/[a]*"]);
    }

    #[test]
    fn drives_are_what_has_a_size_and_is_not_part_of_something() {
        let sys = tempfile::tempdir().unwrap();
        let make = |path: &str, size: &str| {
            let dir = sys.path().join(path);
            fs::create_dir_all(dir.join("holders")).unwrap();
            fs::write(dir.join("size"), format!("{size}\n")).unwrap();
            dir
        };
        make("sda", "100");
        fs::write(make("sdb/sdb1", "50").join("partition"), "1").unwrap();
        fs::write(sys.path().join("sdb/size"), "100").unwrap();
        fs::write(make("sdb/sdb2", "50").join("partition"), "2").unwrap();
        fs::create_dir(sys.path().join("sdb/sdb2/holders/dm-0")).unwrap();
        make("dm-0", "50");
        make("loop0", "0");
        make("sr0", "100");
        make("ram1", "100");
        make("ublkb0", "100");
        make("cciss!c0d0", "100");
        assert_eq!(drives_in(sys.path()), ["/dev/cciss/c0d0", "/dev/dm-0", "/dev/sda", "/dev/sdb1"]);
    }
}
