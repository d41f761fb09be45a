//! LVM2's lock of a volume group: a file of the group's name that its commands lock while they
//! change the group. They do not need the drives for themselves, so nothing else keeps them out.
//!
//! What was seen of LVM2 2.03.16: `V_GROUP` is locked exclusively (flock) by what changes a group,
//! and before it `P_global` by what makes or takes away physical volumes and names; several groups
//! in the order of their names. The file is created where there is none, and unlinked under the
//! lock by what gives it up: it is held by a file that still has that name.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use wattle_format::lvm::{Vg, check_vg_name};
use wattle_rt::Core;

use super::commit::CommitRole;
use super::plan::{From, GroupPlan};
use crate::problem::{Code, Problem};

/// LVM2's `locking_dir`, unless lvm.conf names another one.
const DIR: &str = "/run/lock/lvm";
/// How long a command of LVM2's is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// What keeps LVM2's commands from a group until it is dropped; nothing where LVM2 cannot have it.
#[derive(Debug, Default)]
pub struct GroupLock {
    _held: Vec<Held>,
}

/// What is to be locked.
#[derive(Debug, Default)]
pub struct LockedGroups {
    /// What physical volumes and groups there are.
    pub global: bool,
    /// Groups by these names, whether there are any or not.
    pub groups: BTreeSet<String>,
}

#[derive(Debug)]
struct Held {
    path: PathBuf,
    _file: File,
}

impl Drop for Held {
    fn drop(&mut self) {
        // While the file is locked no other process gives the name to another one.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl GroupLock {
    /// For what LVM2 does not see: files, and drives across a network.
    #[must_use]
    pub fn not_needed() -> Self {
        Self::default()
    }

    /// The lock that a change on block devices needs. None where this is not root, or LVM2's
    /// directory cannot be written or made: LVM2 could not lock anything there either.
    ///
    /// # Errors
    /// A [`Problem`]: a command of LVM2's has the group, for longer than it is waited for.
    pub async fn take(core: &Core, locked: &LockedGroups) -> Result<Self, Problem> {
        let files = locked.files();
        if files.is_empty() {
            return Ok(Self::not_needed());
        }
        match directory(Path::new(DIR)) {
            Some(dir) => Self::take_in(core, dir, &files, PATIENCE).await,
            None => Ok(Self::not_needed()),
        }
    }

    async fn take_in(core: &Core, dir: &Path, names: &[String], patience: Duration) -> Result<Self, Problem> {
        let deadline = core.now() + patience;
        let mut held = Vec::new();
        for name in names {
            let path = dir.join(name);
            loop {
                match try_lock(&path) {
                    Ok(Some(file)) => {
                        held.push(Held { path, _file: file });
                        break;
                    }
                    Ok(None) if core.now() < deadline => core.sleep(PAUSE).await,
                    Ok(None) => return Err(is_locked(&path)),
                    Err(error) => return Err(not_lockable(&path, &error)),
                }
            }
        }
        Ok(Self { _held: held })
    }
}

/// `None` if another process has it.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .append(true)
        .create(true)
        .mode(0o700)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (ours, named) = (file.metadata()?, std::fs::symlink_metadata(path));
    // One that was unlinked meanwhile locks nothing: the next file of that name does.
    let is_named = named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()));
    Ok(is_named.then_some(file))
}

/// The directory, where this process can lock what LVM2 does: it is root, and nothing but root
/// writes there.
fn directory(dir: &Path) -> Option<&Path> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let made = DirBuilder::new().mode(0o700).create(dir);
    let found = made.is_ok() || dir.is_dir();
    let found = found.then(|| std::fs::symlink_metadata(dir).ok()).flatten()?;
    let is_roots = found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0;
    (is_roots && rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()).then_some(dir)
}

impl LockedGroups {
    /// What a change needs.
    #[must_use]
    pub fn of(plan: &GroupPlan) -> Self {
        let before = plan.before.as_ref().map(|before| before.name.as_str());
        let after = plan.after.as_ref().map(|after| after.name.as_str());
        let known = plan.before.as_ref().and_then(|before| Vg::parse(&before.text).ok());
        let joins = known.is_none_or(|vg| plan.places.iter().any(|place| vg.pv_of(place.label.id).is_none()));
        let is_made = |from: &From| match from {
            From::New(_) => true,
            From::Physical(_) => false,
        };
        let changes =
            plan.places.iter().any(|place| is_made(&place.from) || place.role != CommitRole::Belongs);
        let groups = before.into_iter().chain(after).map(str::to_owned).collect();
        Self { global: joins || changes || before != after, groups }
    }

    /// The files in the order in which LVM2 locks them.
    fn files(&self) -> Vec<String> {
        let groups = self.groups.iter().filter(|name| check_vg_name(name).is_ok());
        let global = self.global.then(|| "P_global".to_owned());
        global.into_iter().chain(groups.map(|name| format!("V_{name}"))).collect()
    }
}

fn is_locked(path: &Path) -> Problem {
    Problem::new(
        Code::Locked,
        format!("{}: a command of LVM2's has locked the volume group", path.display()),
        "what both write would be neither's: nothing was changed",
        format!("let it end, and repeat the command (`fuser {}` tells which it is)", path.display()),
    )
}

fn not_lockable(path: &Path, error: &io::Error) -> Problem {
    Problem::new(
        Code::Locked,
        format!("{}: {error}", path.display()),
        "the volume group cannot be locked against LVM2's commands, which could change it at the same time; nothing was changed",
        "see to that directory, and repeat the command",
    )
}

#[cfg(test)]
mod tests {
    use wattle_rt::RuntimeConfig;

    use super::*;

    fn with_core(test: impl AsyncFnOnce(Core, PathBuf)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        wattle_rt::run(RuntimeConfig::default(), async |core| test(core, path).await).unwrap();
    }

    const SHORT: Duration = Duration::from_millis(100);

    #[test]
    fn a_lock_that_another_process_has_is_waited_for_and_then_refused() {
        with_core(async |core, dir| {
            let names = ["P_global".to_owned(), "V_vg".to_owned()];
            let theirs = try_lock(&dir.join("V_vg")).unwrap().unwrap();
            let refused = GroupLock::take_in(&core, &dir, &names, SHORT).await.unwrap_err();
            assert_eq!(refused.code, Code::Locked, "{refused:?}");
            assert!(!dir.join("P_global").exists(), "what was taken before is given up");
            drop(theirs);
            let ours = GroupLock::take_in(&core, &dir, &names, SHORT).await.unwrap();
            assert!(names.iter().all(|name| try_lock(&dir.join(name)).unwrap().is_none()));
            drop(ours);
            assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "files are left");
        });
    }

    #[test]
    fn a_file_that_was_unlinked_while_it_was_waited_for_locks_nothing() {
        with_core(async |core, dir| {
            let path = dir.join("V_vg");
            let theirs = GroupLock::take_in(&core, &dir, &["V_vg".to_owned()], SHORT).await.unwrap();
            let waiting = File::options().append(true).open(&path).unwrap();
            drop(theirs);
            waiting.try_lock().unwrap();
            let ours = GroupLock::take_in(&core, &dir, &["V_vg".to_owned()], SHORT).await.unwrap();
            assert!(try_lock(&path).unwrap().is_none());
            drop(ours);
        });
    }

    #[test]
    fn a_link_is_not_followed() {
        with_core(async |core, dir| {
            std::os::unix::fs::symlink(dir.join("elsewhere"), dir.join("V_vg")).unwrap();
            let refused = GroupLock::take_in(&core, &dir, &["V_vg".to_owned()], SHORT).await;
            assert_eq!(refused.unwrap_err().code, Code::Locked);
            assert!(!dir.join("elsewhere").exists());
        });
    }
}
