//! The directory that files are put into. Every name is opened relative to its directory and no
//! link is followed, so that nothing that a damaged or hostile file system calls its files leads
//! out of it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
    chmodat, chownat, fchmod, fchown, fstat, fstatvfs, fsync, futimens, linkat, major, makedev, minor,
    mkdirat, mkfifoat, mknodat, openat, readlinkat, renameat, renameat_with, setxattr, statat, symlinkat,
    syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use wattle_fs::{DeviceNumber, FileKind, FileMetadata, FileTime};

use super::came_out::{CameOut, HasComeOut};

/// A directory below the one that files are put into, or that one.
pub struct OutputDirectory {
    fd: OwnedFd,
    came_out: RefCell<CameOut>,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Whether a name can be one of a file: nothing that leads elsewhere.
pub fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

impl OutputDirectory {
    /// The directory the user named, made if it is not there. This path is the user's own: links in
    /// it are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        match mkdirat(CWD, path, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self::at(openat(CWD, path, DIRECTORY, Mode::empty())?))
    }

    fn at(fd: OwnedFd) -> Self {
        Self { fd, came_out: RefCell::default() }
    }

    /// What is free on its file system: bytes, and files where their number is limited.
    pub fn room(&self) -> io::Result<(u64, Option<u64>)> {
        let free = fstatvfs(&self.fd)?;
        let files = (free.f_files > 0).then_some(free.f_favail);
        Ok((free.f_bavail.saturating_mul(free.f_frsize), files))
    }

    /// Goes into a directory that is there.
    pub fn enter(&self, name: &[u8]) -> io::Result<Self> {
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        Ok(Self::at(openat(&self.fd, OsStr::from_bytes(name), flags, Mode::empty())?))
    }

    /// Makes a directory and goes into it. One that is there already will do.
    pub fn make_directory(&self, name: &[u8]) -> io::Result<Self> {
        match mkdirat(&self.fd, OsStr::from_bytes(name), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.enter(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets a directory of this user that is there be entered and written to: in one that keeps its
    /// owner out nothing can be gone on with.
    pub fn unlock(&self, name: &[u8]) -> io::Result<()> {
        let held = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(held) = openat(&self.fd, OsStr::from_bytes(name), held, Mode::empty()) else { return Ok(()) };
        let found = fstat(&held)?;
        let mode = found.st_mode & 0o7777;
        if found.st_uid != geteuid().as_raw() || mode & 0o700 == 0o700 {
            return Ok(());
        }
        let path = format!("/proc/self/fd/{}", held.as_raw_fd());
        Ok(chmodat(CWD, path, Mode::from_raw_mode(mode | 0o700), AtFlags::empty())?)
    }

    /// Has everything on its file system written back.
    pub fn sync_file_system(&self) -> io::Result<()> {
        Ok(syncfs(&self.fd)?)
    }

    /// Makes the names in it durable. A file system that cannot be asked has nothing to say.
    pub fn sync(&self) -> io::Result<()> {
        match fsync(&self.fd) {
            Err(Errno::INVAL) => Ok(()),
            synced => Ok(synced?),
        }
    }

    /// Makes a file that is not there.
    pub fn make_file(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.fd, OsStr::from_bytes(name), flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Makes a file that has no name yet, where the file system has such files: a run that is
    /// killed leaves nothing of it.
    pub fn make_unnamed(&self) -> io::Result<Option<File>> {
        // It gets its name through what the kernel calls the descriptor.
        if !Path::new("/proc/self/fd").exists() {
            return Ok(None);
        }
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match openat(&self.fd, ".", flags, Mode::RUSR | Mode::WUSR) {
            // Linux before 3.11 takes it for an attempt to write to the directory.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS | Errno::INVAL) => Ok(None),
            made => Ok(Some(made?.into())),
        }
    }

    /// Gives a file without a name one that nothing has.
    pub fn name_file(&self, file: &File, name: &[u8]) -> io::Result<()> {
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, from, &self.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Makes a symbolic link. Where it leads is not looked at.
    pub fn make_symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        Ok(symlinkat(OsStr::from_bytes(target), &self.fd, OsStr::from_bytes(name))?)
    }

    /// Makes a named pipe.
    pub fn make_fifo(&self, name: &[u8]) -> io::Result<()> {
        Ok(mkfifoat(&self.fd, OsStr::from_bytes(name), Mode::RUSR | Mode::WUSR)?)
    }

    /// Makes a device file.
    pub fn make_device(&self, name: &[u8], kind: FileType, device: DeviceNumber) -> io::Result<()> {
        let number = makedev(device.major, device.minor);
        Ok(mknodat(&self.fd, OsStr::from_bytes(name), kind, Mode::RUSR | Mode::WUSR, number)?)
    }

    /// Gives a file of another directory one more name here.
    pub fn make_link(&self, name: &[u8], from: &Self, from_name: &[u8]) -> io::Result<()> {
        let (from_name, name) = (OsStr::from_bytes(from_name), OsStr::from_bytes(name));
        Ok(linkat(&from.fd, from_name, &self.fd, name, AtFlags::empty())?)
    }

    /// Gives what was made under a temporary name its own. What has that name already is replaced
    /// only if `replace` says so, and never a directory.
    pub fn publish(&self, draft: &[u8], name: &[u8], replace: bool) -> io::Result<()> {
        let (from, to) = (OsStr::from_bytes(draft), OsStr::from_bytes(name));
        let made = statat(&self.fd, from, AtFlags::SYMLINK_NOFOLLOW)?;
        let renamed = match replace {
            true => renameat(&self.fd, from, &self.fd, to),
            false => match renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
                // A file system that cannot: it has links.
                Err(Errno::INVAL | Errno::NOSYS) => linkat(&self.fd, from, &self.fd, to, AtFlags::empty()),
                renamed => renamed,
            },
        };
        // It is still there if it was linked, if the name leads to the same file, and if it failed.
        let _ = unlinkat(&self.fd, from, AtFlags::empty());
        renamed?;
        self.note_came_out(name, &made);
        Ok(())
    }

    /// Notes what came out, or stays as what came out: nothing of this run replaces it.
    pub fn note_came_out(&self, name: &[u8], made: &Stat) {
        self.came_out.borrow_mut().note(name, made);
    }

    /// Whether what is found under a name came out in this run, under that name or under one that
    /// is the same here.
    pub fn has_come_out(&self, name: &[u8], found: &Stat) -> io::Result<bool> {
        match self.came_out.borrow().has(name, found) {
            HasComeOut::Yes => Ok(true),
            HasComeOut::No => Ok(false),
            HasComeOut::UnlessListed => Ok(!self.lists(name)?),
        }
    }

    /// Whether it has an entry with exactly that name.
    fn lists(&self, name: &[u8]) -> io::Result<bool> {
        for entry in Dir::read_from(&self.fd)? {
            if entry?.file_name().to_bytes() == name {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What it is itself.
    pub fn found(&self) -> io::Result<Stat> {
        Ok(fstat(&self.fd)?)
    }

    /// What has that name, if anything has: links are not followed.
    pub fn look(&self, name: &[u8]) -> io::Result<Option<Stat>> {
        match statat(&self.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Where a symbolic link leads.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.fd, OsStr::from_bytes(name), Vec::new())?.into_bytes())
    }

    /// Opens a file that is there, to read it.
    pub fn open_file(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.fd, OsStr::from_bytes(name), flags, Mode::empty())?.into())
    }

    /// Takes a name away that is no directory's.
    pub fn remove(&self, name: &[u8]) -> io::Result<()> {
        Ok(unlinkat(&self.fd, OsStr::from_bytes(name), AtFlags::empty())?)
    }

    /// Gives this directory its attributes, once everything is in it.
    pub fn dress(&self, metadata: &FileMetadata, owner: bool) -> io::Result<()> {
        dress(&self.fd, metadata, owner)
    }

    /// Gives a link, pipe or device file that was just made its owner and times, and all but a link
    /// its permissions.
    /// In a directory that others may write to, another file may have its name by now, such as a
    /// second name of one that matters: so what has the name is held first, and refused if it
    /// cannot be what was made.
    pub fn dress_name(&self, name: &[u8], metadata: &FileMetadata, owner: bool) -> io::Result<MadeName> {
        let held = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = openat(&self.fd, OsStr::from_bytes(name), held, Mode::empty())?;
        let found = fstat(&held)?;
        let is_ours = FileType::from_raw_mode(found.st_mode) == file_type(metadata.kind)
            && found.st_uid == geteuid().as_raw()
            && found.st_nlink == 1;
        if !is_ours {
            return Err(io::Error::other("another file has taken its name meanwhile"));
        }
        if owner {
            let (uid, gid) = owners(metadata);
            chownat(&held, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        // The name that the kernel has for the descriptor.
        let path = format!("/proc/self/fd/{}", held.as_raw_fd());
        if metadata.kind != FileKind::Symlink {
            // A link has no permissions of its own.
            chmodat(CWD, &path, permissions(metadata, owner), AtFlags::empty())?;
        }
        match utimensat(&held, "", &times(metadata), AtFlags::EMPTY_PATH) {
            // Before Linux 5.8 that name has to do.
            Err(Errno::INVAL) => {
                utimensat(CWD, path, &times(metadata), AtFlags::empty())?;
            }
            set => set?,
        }
        Ok(MadeName(held))
    }
}

impl AsFd for OutputDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What a file of a kind is here.
pub fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    }
}

/// Which device a device file that is there stands for.
pub fn device_of(found: &Stat) -> DeviceNumber {
    DeviceNumber { major: major(found.st_rdev), minor: minor(found.st_rdev) }
}

/// A link, pipe or device file that was just made, held.
pub struct MadeName(OwnedFd);

impl MadeName {
    /// Gives it an extended attribute.
    pub fn attach(&self, name: &OsStr, value: &[u8]) -> io::Result<()> {
        // It is held by what stands for it, which takes no attributes: the name that the kernel has
        // for that leads to itself.
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        Ok(setxattr(path, name, value, XattrFlags::empty())?)
    }
}

/// Gives an open file or directory its owner, permissions and times, in this order: a new owner
/// takes set-user-ID away, and every change changes times. Without its owner, a file is not given
/// the right to act as that owner.
pub fn dress(fd: impl AsFd, metadata: &FileMetadata, owner: bool) -> io::Result<()> {
    if owner {
        let (uid, gid) = owners(metadata);
        fchown(&fd, uid, gid)?;
    }
    fchmod(&fd, permissions(metadata, owner))?;
    Ok(futimens(&fd, &times(metadata))?)
}

/// Whether owner and group are some that a file can have. A number of ones is none: it asks
/// chown(2) to leave what is there.
pub fn has_owners(metadata: &FileMetadata) -> bool {
    metadata.uid != u32::MAX && metadata.gid != u32::MAX
}

/// Those that can be given.
fn owners(metadata: &FileMetadata) -> (Option<Uid>, Option<Gid>) {
    let is_one = |id: &u32| *id != u32::MAX;
    (
        Some(metadata.uid).filter(is_one).map(Uid::from_raw),
        Some(metadata.gid).filter(is_one).map(Gid::from_raw),
    )
}

/// Without its owner a file does not act in an owner's name.
fn permissions(metadata: &FileMetadata, owner: bool) -> Mode {
    const SPECIAL: u32 = 0o6000;
    let owner = owner && has_owners(metadata);
    Mode::from_raw_mode(if owner { metadata.mode } else { metadata.mode & !SPECIAL })
}

fn times(metadata: &FileMetadata) -> Timestamps {
    let time = |at: FileTime| Timespec { tv_sec: at.seconds, tv_nsec: at.nanoseconds.into() };
    Timestamps { last_access: time(metadata.accessed), last_modification: time(metadata.modified) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for name in [&b""[..], b".", b"..", b"/", b"a/b", b"/etc/passwd", b"a\0b"] {
            assert!(!is_name(name), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b" ", b"\xff\n"] {
            assert!(is_name(name), "{name:?}");
        }
    }

    #[test]
    fn no_link_is_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = OutputDirectory::open(dir.path()).unwrap();
        place.make_symlink(b"planted", outside.path().as_os_str().as_bytes()).unwrap();
        assert!(place.make_directory(b"planted").is_err());
        assert!(place.enter(b"planted").is_err());
        assert_eq!(place.make_file(b"planted").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(std::fs::read_dir(outside.path()).unwrap().next().is_none());
    }

    #[test]
    fn a_file_without_a_name_leaves_nothing_until_it_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let place = OutputDirectory::open(dir.path()).unwrap();
        let there = || std::fs::read_dir(dir.path()).unwrap().count();
        let Some(file) = place.make_unnamed().unwrap() else {
            eprintln!("SKIPPED: {} is on a file system where every file has a name", dir.path().display());
            return;
        };
        io::Write::write_all(&mut &file, b"whole").unwrap();
        assert_eq!(there(), 0);
        place.name_file(&file, b"first").unwrap();
        assert_eq!(std::fs::read(dir.path().join("first")).unwrap(), b"whole");
        let other = place.make_unnamed().unwrap().unwrap();
        let refused = place.name_file(&other, b"first").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        drop(other);
        assert_eq!(there(), 1);
        assert_eq!(std::fs::read(dir.path().join("first")).unwrap(), b"whole");
    }

    /// Of this user, as of a time long ago.
    fn metadata(kind: FileKind, mode: u32) -> FileMetadata {
        let long_ago = FileTime { seconds: 1_000_000, nanoseconds: 5 };
        FileMetadata {
            kind,
            mode,
            uid: geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            size_bytes: 0,
            stored_bytes: 0,
            links: 1,
            accessed: long_ago,
            modified: long_ago,
            changed: long_ago,
            created: None,
            device: None,
        }
    }

    #[test]
    fn without_its_owner_a_file_may_not_act_as_one() {
        let temp = tempfile::tempdir().unwrap();
        let file = File::create(temp.path().join("program")).unwrap();
        let mode = || fstat(&file).unwrap().st_mode & 0o7777;
        let program = metadata(FileKind::File, 0o6755);
        dress(&file, &program, false).unwrap();
        assert_eq!(mode(), 0o755);
        dress(&file, &program, true).unwrap();
        assert_eq!(mode(), 0o6755);
        let dir = OutputDirectory::open(temp.path()).unwrap();
        dir.dress(&metadata(FileKind::Directory, 0o3777), false).unwrap();
        assert_eq!(fstat(&dir.fd).unwrap().st_mode & 0o7777, 0o1777, "names stay protected");
    }

    /// As a damaged file system may say it: the owner stays, and a program does not act as that.
    #[test]
    fn an_owner_that_is_none_is_not_given() {
        let temp = tempfile::tempdir().unwrap();
        let file = File::create(temp.path().join("program")).unwrap();
        for (uid, gid) in [(true, false), (false, true), (true, true)] {
            let mut program = metadata(FileKind::File, 0o6755);
            program.uid = if uid { u32::MAX } else { program.uid };
            program.gid = if gid { u32::MAX } else { program.gid };
            dress(&file, &program, true).unwrap();
            let found = fstat(&file).unwrap();
            assert_eq!((found.st_mode & 0o7777, found.st_uid), (0o755, geteuid().as_raw()));
            let place = OutputDirectory::open(temp.path()).unwrap();
            place.make_fifo(b"pipe").unwrap();
            program.kind = FileKind::Fifo;
            place.dress_name(b"pipe", &program, true).unwrap();
            place.remove(b"pipe").unwrap();
        }
    }

    #[test]
    fn only_what_was_made_is_given_an_owner_and_times() {
        let dir = tempfile::tempdir().unwrap();
        let place = OutputDirectory::open(dir.path()).unwrap();
        let metadata = |kind| metadata(kind, 0o777);
        let seconds = |name: &str| {
            use std::os::unix::fs::MetadataExt;
            std::fs::symlink_metadata(dir.path().join(name)).unwrap().mtime()
        };
        place.make_symlink(b"link", b"nowhere").unwrap();
        place.dress_name(b"link", &metadata(FileKind::Symlink), true).unwrap();
        place.make_fifo(b"pipe").unwrap();
        place.dress_name(b"pipe", &metadata(FileKind::Fifo), true).unwrap();
        assert_eq!((seconds("link"), seconds("pipe")), (1_000_000, 1_000_000));

        // Another user was faster: the name is now that of a file which matters.
        std::fs::write(dir.path().join("precious"), "").unwrap();
        place.make_symlink(b"swapped", b"nowhere").unwrap();
        place.remove(b"swapped").unwrap();
        std::fs::hard_link(dir.path().join("precious"), dir.path().join("swapped")).unwrap();
        assert!(place.dress_name(b"swapped", &metadata(FileKind::Symlink), true).is_err());
        // Also where it is a link or a pipe itself.
        place.make_fifo(b"first").unwrap();
        std::fs::hard_link(dir.path().join("first"), dir.path().join("second")).unwrap();
        assert!(place.dress_name(b"second", &metadata(FileKind::Fifo), true).is_err());
        assert!(seconds("precious") > 1_000_000 && seconds("first") > 1_000_000);
    }
}
