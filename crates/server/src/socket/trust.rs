//! Which directories and which peers are trusted with a control socket.
//!
//! A user that can replace a socket can pretend to be the server: name files that `wattle mount`
//! then mounts as root, or take orders and lose them. So every directory on the way to the socket,
//! and every link, belongs to this user or to root; none can be written by others, but that in a
//! sticky one (`/tmp`) the entries of this user are safe; and the last can be written by its owner
//! alone. Between a check and the use of the path, then, only this user and root can change
//! anything. The process at the other end of a socket runs as this user or as root.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

const ROOT: u32 = 0;

/// What makes a directory unsafe.
#[derive(Debug, PartialEq, Eq)]
pub struct Unsafe {
    /// The directory itself, one that it lies in, or a link on the way.
    pub place: PathBuf,
    /// What is wrong with it.
    pub fault: PathFault,
}

/// What is wrong with a directory or link.
#[derive(Debug, PartialEq, Eq)]
pub enum PathFault {
    /// Its owner is neither this user nor root.
    Owner(u32),
    /// Others may write to it; the mode.
    Mode(u32),
    /// Links lead round in a circle.
    Circle,
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(owner) => write!(f, "belongs to user {owner}"),
            Self::Mode(mode) => write!(f, "can be written by others (mode {mode:04o})"),
            Self::Circle => f.write_str("leads through too many links"),
        }
    }
}

/// Whether a process of this user may be believed: it is this user's, or root's.
pub fn is_trusted(user: u32) -> bool {
    user == ROOT || user == wattle_rt::effective_user()
}

/// What makes `dir` unsafe for the sockets of user `us`. What is not there yet is not looked at:
/// only those users may make it that may write to what is there.
///
/// # Errors
/// It cannot be looked at.
pub fn unsafety(dir: &Path, us: u32) -> io::Result<Option<Unsafe>> {
    /// The same number as the kernel follows.
    const LINKS_MAX: u32 = 40;
    let mut links = 0;
    let mut at = PathBuf::from("/");
    let mut parts: VecDeque<OsString> = names(&std::path::absolute(dir)?).collect();
    if let Some(fault) = fault_of(&fs::symlink_metadata(&at)?, us, parts.is_empty()) {
        return Ok(Some(Unsafe { place: at, fault }));
    }
    while let Some(part) = parts.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(part);
        let metadata = match fs::symlink_metadata(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata?,
        };
        let is_link = metadata.is_symlink();
        links += u32::from(is_link);
        let circle = (links > LINKS_MAX).then_some(PathFault::Circle);
        if let Some(fault) = circle.or_else(|| fault_of(&metadata, us, parts.is_empty())) {
            return Ok(Some(Unsafe { place: next, fault }));
        }
        if !is_link {
            at = next;
            continue;
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
            parts.push_front(name);
        }
    }
    Ok(None)
}

/// The parts of a path that lead on; `..` among them.
fn names(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn fault_of(metadata: &Metadata, us: u32, is_last: bool) -> Option<PathFault> {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let (owner, mode) = (metadata.uid(), metadata.mode());
    // A user that this namespace does not have may or may not be root: that cannot be known. Such a
    // one may own what is on the way, such as `/` in a sandbox, but not the place itself.
    if owner != us && owner != ROOT && (is_last || Some(owner) != user_from_outside()) {
        return Some(PathFault::Owner(owner));
    }
    let open = !metadata.is_symlink() && mode & OTHERS_WRITE != 0 && (is_last || mode & STICKY == 0);
    open.then_some(PathFault::Mode(mode & 0o7777))
}

/// The id that stands for users outside of this process's user namespace, if it is in one that
/// lacks some.
fn user_from_outside() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    if map.split_whitespace().eq(["0", "0", "4294967295"]) {
        return None;
    }
    fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn made(path: PathBuf, mode: u32) -> PathBuf {
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn others_write_neither_to_the_directory_nor_on_the_way_there() {
        let temp = tempfile::tempdir().unwrap();
        let us = wattle_rt::effective_user();
        let fault = |dir: &Path| unsafety(dir, us).unwrap();
        let sticky = made(temp.path().join("sticky"), 0o1777);
        let open = made(temp.path().join("open"), 0o777);
        let closed = made(sticky.join("closed"), 0o755);
        assert_eq!(fault(&closed), None);
        assert_eq!(fault(&closed.join("not/there")), None);
        let mode =
            |place: &Path, mode| Some(Unsafe { place: place.to_owned(), fault: PathFault::Mode(mode) });
        assert_eq!(fault(&sticky), mode(&sticky, 0o1777));
        assert_eq!(fault(&made(open.join("in"), 0o700)), mode(&open, 0o777));
        assert_eq!(fault(&closed.join("../../open/in")), mode(&open, 0o777));
        let group = made(temp.path().join("group"), 0o770);
        assert_eq!(fault(&group), mode(&group, 0o770));
    }

    #[test]
    fn links_are_followed_as_the_kernel_follows_them() {
        let temp = tempfile::tempdir().unwrap();
        let fault = |name: &str| unsafety(&temp.path().join(name), wattle_rt::effective_user()).unwrap();
        let open = made(temp.path().join("open"), 0o777);
        made(open.join("in"), 0o700);
        made(temp.path().join("closed"), 0o700);
        symlink("closed", temp.path().join("good")).unwrap();
        symlink(open.join("in"), temp.path().join("bad")).unwrap();
        symlink("circle", temp.path().join("circle")).unwrap();
        assert_eq!(fault("good"), None);
        assert_eq!(fault("bad").unwrap().place, open);
        assert_eq!(fault("circle").unwrap().fault, PathFault::Circle);
    }

    #[test]
    fn what_another_user_owns_is_unsafe_also_for_root() {
        let temp = tempfile::tempdir().unwrap();
        let dir = made(temp.path().join("dir"), 0o700);
        let owner = fs::metadata(&dir).unwrap().uid();
        // As a user other than root would see it.
        let seen = unsafety(&dir, owner + 1).unwrap();
        assert_eq!(seen.is_some(), owner != ROOT);
        if std::os::unix::fs::chown(&dir, Some(12345), None).is_ok() {
            let place = Unsafe { place: dir.clone(), fault: PathFault::Owner(12345) };
            assert_eq!(unsafety(&dir.join("wattle"), owner).unwrap(), Some(place));
            assert_eq!(unsafety(&dir, 12345).unwrap(), None);
        }
    }
}
