//! Loop devices: a file and the loop device over it lead to the same bytes, and the kernel takes
//! them for two. A lock on the file does not keep the device from being mounted, and exclusive use
//! of the device sets no lock on the file. Invariants, of what is claimed for writing:
//!
//! - No loop device over it is in use. Those that are idle are held exclusively, where this user
//!   may open them.
//! - If it is a loop device, or a partition of one, there is a lock on its part of the file, where
//!   this user may open that.
//!
//! Both for as long as the claim lasts. A loop device that is made later, over a file that is
//! claimed, is not seen. Only files on the file system of what is claimed are looked at: another
//! one, over a network for instance, may not answer.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use wattle_rt::fuse::{MountEntry, mounts_in};
use wattle_rt::{Device, Direct, Lock, LoopFile, OpenError, OpenOptions};

use super::error::holders;
use super::{Identity, identity_of};
use crate::claim::Claim;

/// What the kernel adds to the path of a file that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// Where the kernel tells of loop devices, and where their nodes are.
pub(super) struct Loops {
    sys: PathBuf,
    proc: PathBuf,
    dev: PathBuf,
}

/// What has a member by another way, as the operator is told.
type OtherOwner = String;

/// A loop device over what is claimed.
struct Over {
    name: OsString,
    node: PathBuf,
}

impl Over {
    fn in_use(&self, how: &str) -> OtherOwner {
        format!("{} is over it and {how}", self.node.display())
    }
}

impl Loops {
    /// Those of this machine.
    pub(super) fn of_this_machine() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into() }
    }

    /// Keeps other owners away from what was opened for writing at `path`, by the loop devices over
    /// it and by the file below it, until `device` is closed.
    pub(super) fn protect(&self, path: &Path, device: &Device) -> Result<(), OtherOwner> {
        let held = self.over(path).into_iter().filter_map(|over| self.hold(&over).transpose());
        let mut held: Vec<_> = held.collect::<Result<_, _>>()?;
        held.extend(self.lock_below(device)?);
        device.hold(held);
        Ok(())
    }

    /// The loop devices over a file or block device.
    fn over(&self, path: &Path) -> Vec<Over> {
        let is_loop = |name: &OsString| name.as_bytes().starts_with(b"loop");
        let names = names_in(&self.sys.join("block")).into_iter().filter(is_loop);
        // Most machines have none.
        let loops: Vec<_> = names.filter_map(|name| Some((self.backing(&name)?, name))).collect();
        let (Ok(metadata), Ok(path)) = (fs::metadata(path), path.canonicalize()) else {
            return Vec::new();
        };
        if loops.is_empty() {
            return Vec::new();
        }
        let mounts = self.mounts();
        let (own, identity) = (file_system(&mounts, &path), identity_of(&metadata));
        let is_it = |path: &PathBuf| {
            file_system(&mounts, path) == own
                && fs::metadata(path).is_ok_and(|found| identity_of(&found) == identity)
        };
        let over = loops.into_iter().filter(|(paths, _)| paths.iter().any(is_it));
        // In another mount namespace that path may lead to another file.
        let is_over = |over: &Over| match (identity, self.file_below(&over.node)) {
            (Identity::File { dev, ino }, Some(file)) => (file.dev, file.ino) == (dev, ino),
            _ => true,
        };
        over.map(|(_, name)| Over { node: self.dev.join(&name), name }).filter(is_over).collect()
    }

    fn file_below(&self, node: &Path) -> Option<LoopFile> {
        let look = OpenOptions { direct: Direct::Never, ..OpenOptions::default() };
        Device::open(node, look).ok()?.loop_file()
    }

    /// Holds an idle loop device; `None` if this user may not open it.
    fn hold(&self, over: &Over) -> Result<Option<Device>, OtherOwner> {
        if let Some(how) = self.user(over) {
            return Err(over.in_use(&how));
        }
        let exclusive = OpenOptions { write: false, direct: Direct::Never, ..Claim::Write.options() };
        match Device::open(&over.node, exclusive) {
            Ok(device) => Ok(Some(device)),
            Err(OpenError::Locked) => Err(over.in_use("mounted elsewhere or held by another process")),
            Err(_) => Ok(None),
        }
    }

    /// How a loop device or a partition of it is used, as far as this process sees.
    fn user(&self, Over { name, node }: &Over) -> Option<String> {
        let mounts = self.mounts();
        let whole = self.sys.join("block").join(name);
        let parts = names_in(&whole).into_iter().filter(|part| part.as_bytes().starts_with(name.as_bytes()));
        let parts = parts.map(|part| (whole.join(&part), self.dev.join(&part)));
        let swaps = fs::read_to_string(self.proc.join("swaps")).unwrap_or_default();
        std::iter::once((whole.clone(), node.clone())).chain(parts).find_map(|(dir, node)| {
            let number = fs::read_to_string(dir.join("dev")).unwrap_or_default();
            // Some file systems have a number of their own, and name the device.
            let is_its = |mount: &&MountEntry| {
                let (major, minor) = mount.number;
                format!("{major}:{minor}") == number.trim() || mount.source == node
            };
            if let Some(mount) = mounts.iter().find(is_its) {
                return Some(format!("mounted on {}", mount.dir.display()));
            }
            if swaps.lines().any(|line| line.split_whitespace().next().map(Path::new) == Some(&node)) {
                return Some("used for swap".to_owned());
            }
            let holder = names_in(&dir.join("holders")).into_iter().next()?;
            Some(format!("part of {}", holder.display()))
        })
    }

    /// Locks the part of a file that `device` is, if it is a loop device. What uses this part by
    /// another loop device has no lock, and is in use.
    fn lock_below(&self, device: &Device) -> Result<Option<Device>, OtherOwner> {
        let Some((name, in_loop)) = device.block_device_number().and_then(|rdev| self.place(rdev)) else {
            return Ok(None);
        };
        let (Some(paths), Some(file)) = (self.backing(&name), device.loop_file()) else { return Ok(None) };
        let is_it = |path: &&PathBuf| {
            fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (file.dev, file.ino))
        };
        let Some(path) = paths.iter().find(is_it) else { return Ok(None) };
        let start_bytes = self.part(&name).start.saturating_add(in_loop);
        let len_bytes = device.size_bytes();
        let bytes = start_bytes..start_bytes.saturating_add(len_bytes);
        let shares = |other: &Over| {
            let part = self.part(&other.name);
            other.name != name && part.start < bytes.end && bytes.start < part.end
        };
        let others = self.over(path).into_iter().filter(shares);
        let user = others.filter_map(|other| Some(other.in_use(&self.user(&other)?))).next();
        if let Some(user) = user {
            return Err(format!("it is over {}, and {user}", path.display()));
        }
        let lock = Lock::Part { start_bytes, len_bytes };
        match Device::open(path, OpenOptions { direct: Direct::Never, lock, ..Claim::Write.options() }) {
            Ok(file) => Ok(Some(file)),
            Err(OpenError::Locked) => {
                let has = match &holders(path)[..] {
                    [] => "which another process has".to_owned(),
                    holders => format!("which {} has open", holders.join(", ")),
                };
                Err(format!("it is over {}, {has}", path.display()))
            }
            Err(_) => Ok(None),
        }
    }

    /// The name of the block device with this number, or of the one that it is a partition of, and
    /// at which byte of that it starts.
    fn place(&self, rdev: u64) -> Option<(OsString, u64)> {
        let number = format!("{}:{}", major(rdev), minor(rdev));
        let dir = self.sys.join("dev/block").join(number).canonicalize().ok()?;
        if !dir.join("partition").exists() {
            return Some((dir.file_name()?.to_owned(), 0));
        }
        let start_sectors = number_in(&dir.join("start"))?;
        Some((dir.parent()?.file_name()?.to_owned(), start_sectors.saturating_mul(512)))
    }

    /// Which bytes of its file a loop device is.
    fn part(&self, name: &OsString) -> Range<u64> {
        let dir = self.sys.join("block").join(name);
        let start_bytes = number_in(&dir.join("loop/offset")).unwrap_or(0);
        let sectors = number_in(&dir.join("size")).unwrap_or(u64::MAX);
        start_bytes..start_bytes.saturating_add(sectors.saturating_mul(512))
    }

    fn mounts(&self) -> Vec<MountEntry> {
        mounts_in(&fs::read(self.proc.join("self/mountinfo")).unwrap_or_default())
    }

    /// The paths that the file below a loop device may have; `None` if it has none below it.
    fn backing(&self, name: impl AsRef<Path>) -> Option<Vec<PathBuf>> {
        let mut told = fs::read(self.sys.join("block").join(name).join("loop/backing_file")).ok()?;
        told.pop_if(|last| *last == b'\n');
        // Another link to it may have taken the place of the one that was removed.
        let before = told.strip_suffix(REMOVED).map(<[u8]>::to_vec);
        Some([Some(told), before].into_iter().flatten().map(|path| OsString::from_vec(path).into()).collect())
    }
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn names_in(dir: &Path) -> Vec<OsString> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}

/// The number of the file system that a path leads into, without asking it.
fn file_system(mounts: &[MountEntry], path: &Path) -> Option<(u32, u32)> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.dir));
    above.max_by_key(|mount| mount.dir.components().count()).map(|mount| mount.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up machine, and a file in it.
    struct Machine {
        loops: Loops,
        file: PathBuf,
        room: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Self {
            let room = tempfile::tempdir().unwrap();
            let at = |name: &str| room.path().join(name);
            let loops = Loops { sys: at("sys"), proc: at("proc"), dev: at("dev") };
            let machine = Self { loops, file: at("file"), room };
            fs::write(&machine.file, [0; 4096]).unwrap();
            machine.put("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n");
            machine
        }

        fn put(&self, name: &str, text: &str) {
            let path = self.room.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn put_loop(&self, name: &str, number: &str, file: &Path) {
            self.put(&format!("sys/block/{name}/dev"), number);
            self.put(&format!("sys/block/{name}/loop/backing_file"), &format!("{}\n", file.display()));
        }

        fn mount(&self, line: &str) {
            let root = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
            self.put("proc/self/mountinfo", &format!("{root}{line}\n"));
        }

        fn refused(&self, word: &str) {
            let over = self.loops.over(&self.file);
            let told = over.iter().find_map(|over| self.loops.hold(over).err());
            assert!(told.as_ref().is_some_and(|told| told.contains(word)), "{told:?}");
        }

        fn free(&self) {
            let over = self.loops.over(&self.file);
            assert_eq!(over.iter().find_map(|over| self.loops.hold(over).err()), None);
        }
    }

    #[test]
    fn a_file_is_in_use_with_the_loop_device_over_it() {
        let machine = Machine::new();
        machine.free();
        machine.put_loop("loop1", "7:1", &machine.room.path().join("other"));
        machine.mount("2 1 7:1 / /other rw - ext4 /dev/loop1 rw");
        machine.free();

        // By another name of the file, and by one that was removed.
        let link = machine.room.path().join("link");
        fs::hard_link(&machine.file, &link).unwrap();
        machine.put_loop("loop0", "7:0", &link);
        machine.free();
        machine.mount("2 1 7:0 / /mnt/data rw - ext4 /dev/loop0 rw");
        machine.refused("loop0 is over it and mounted on /mnt/data");
        machine.put_loop("loop0", "7:0", Path::new(&format!("{} (deleted)", link.display())));
        machine.refused("mounted on /mnt/data");

        let node = machine.loops.dev.join("loop0");
        machine.mount(&format!("2 1 0:44 / /mnt/data rw - btrfs {} rw", node.display()));
        machine.refused("mounted on /mnt/data");
        machine.mount("");
        machine.free();
        machine.put("proc/swaps", &format!("Filename Type\n{}  partition 100 0 -2\n", node.display()));
        machine.refused("used for swap");
        machine.put("proc/swaps", "Filename Type\n");
        machine.free();
        machine.put("sys/block/loop0/holders/dm-3", "");
        machine.refused("part of dm-3");
    }

    #[test]
    fn a_file_is_in_use_with_a_partition_of_the_loop_device_over_it() {
        let machine = Machine::new();
        machine.put_loop("loop0", "7:0", &machine.file);
        machine.put("sys/block/loop0/loop0p2/dev", "259:5\n");
        machine.put("sys/block/loop0/loop0p2/holders/.keep", "");
        fs::remove_file(machine.room.path().join("sys/block/loop0/loop0p2/holders/.keep")).unwrap();
        machine.free();
        machine.mount("2 1 259:5 / /mnt/part rw - xfs /dev/loop0p2 rw");
        machine.refused("mounted on /mnt/part");
        machine.mount("");
        machine.put("sys/block/loop0/loop0p2/holders/md0", "");
        machine.refused("part of md0");
    }

    /// It may be gone, or be the same file system's mount in another namespace.
    #[test]
    fn a_file_on_another_file_system_is_not_asked() {
        let machine = Machine::new();
        machine.put_loop("loop0", "7:0", &machine.file);
        machine.put("sys/block/loop0/holders/dm-0", "");
        machine.refused("dm-0");
        // The file is given by a link from another one.
        let remote = machine.room.path().join("remote");
        fs::create_dir(&remote).unwrap();
        let there = remote.join("file");
        fs::hard_link(&machine.file, &there).unwrap();
        machine.put_loop("loop0", "7:0", &there);
        machine.refused("dm-0");
        machine
            .mount(&format!("2 1 0:50 / {} rw - nfs server:/ rw", remote.canonicalize().unwrap().display()));
        machine.free();
    }
}
