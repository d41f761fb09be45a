//! What is kept of alerts, durably: one file of JSON in the state directory, replaced as a whole.
//!
//! Every change is made under a lock to what the file holds by then, so that the process that
//! watches and a command that acknowledges do not undo each other. One process watches at a time:
//! it holds another lock for as long as it runs. A lock that another process does not release costs
//! the durability for that long, not the alert; a write to the file that hangs holds up all.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use wattle_control::{Code, Problem};

use super::beside::{self, wall_secs};
use super::state::{AlertsState, SCHEMA_VERSION};

/// Far more than is kept of as many alerts as may be.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The file.
const FILE: &str = "alerts.json";

/// The lock of a change.
const LOCK: &str = "alerts.lock";

/// So long a change waits for that of another process, which takes as long as a file is written.
const LOCK_MAX: Duration = Duration::from_secs(5);

/// Between two attempts to lock.
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// The lock of the process that watches.
const WATCH_LOCK: &str = "alerts.watch.lock";

/// What is kept of alerts.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    /// What could not be written the last time.
    unsaved: Mutex<Option<Unsaved>>,
    /// What the file held when it was read or written last: it is asked for twice a second.
    known: Mutex<Option<Known>>,
}

/// A file that was read or written.
#[derive(Debug)]
struct Known {
    #[allow(dead_code, reason = "while it is open no other file gets its number")]
    file: File,
    stamp: Stamp,
    state: AlertsState,
}

/// Which file it is, its length, and when it was written: changes replace it, and an editor may
/// write over it.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// What could not be written.
#[derive(Debug)]
struct Unsaved {
    state: AlertsState,
    /// The file as it was read last: what others have changed in it since is theirs.
    file: AlertsState,
}

/// What the file holds.
enum Kept {
    /// There is none.
    Absent,
    /// What was written.
    State(Box<AlertsState>),
    /// Something else, for this reason.
    Damaged(String),
}

/// Held by the process that watches.
#[derive(Debug)]
pub struct WatchLock(#[allow(dead_code, reason = "the lock is held as long as the file is open")] File);

/// What came of a change.
#[derive(Debug)]
pub struct Updated<T> {
    /// What the change gave.
    pub value: T,
    /// Why it is not durable.
    pub unsaved: Option<Problem>,
    /// What was kept before was damaged: what of it was put aside.
    pub damaged: Option<Problem>,
}

impl<T> Updated<T> {
    /// What is to be said of it.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.damaged.iter().chain(&self.unsaved)
    }
}

impl Journal {
    /// In this directory, which is made if need be.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(dir: &Path) -> Result<Self, Problem> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|error| problem(dir, &error.to_string()))?;
        Ok(Self::at(dir))
    }

    /// In this directory, if there is one: to look only.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), unsaved: Mutex::default(), known: Mutex::default() }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Takes the lock of the process that watches; `None` if another one has it. A file that cannot
    /// be written can be locked.
    ///
    /// # Errors
    /// The file is not there and cannot be made, or cannot be locked.
    pub fn lock_watch(&self) -> Result<Option<WatchLock>, Problem> {
        let file = self.lock_file(WATCH_LOCK);
        let file = file.or_else(|problem| File::open(self.dir.join(WATCH_LOCK)).map_err(|_| problem))?;
        match file.try_lock() {
            Ok(()) => {
                // For people: the lock is what counts.
                let _ = file.set_len(0);
                let _ = (&file).write_all(format!("{}\n", std::process::id()).as_bytes());
                Ok(Some(WatchLock(file)))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(problem(&self.dir, &error.to_string())),
        }
    }

    /// Whether a process watches.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        let file = File::open(self.dir.join(WATCH_LOCK));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn lock_file(&self, name: &str) -> Result<File, Problem> {
        let path = self.dir.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(&path).map_err(|error| problem(&path, &error.to_string()))
    }

    /// What is kept.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is a later version's.
    pub fn read(&self) -> Result<AlertsState, Problem> {
        if let Some(unsaved) = &*self.unsaved() {
            return Ok(unsaved.state.clone());
        }
        match self.load()? {
            Kept::Absent => Ok(AlertsState::default()),
            Kept::State(state) => Ok(*state),
            Kept::Damaged(why) => Err(Problem::new(
                Code::AlertJournal,
                format!("{}: what is kept of alerts is damaged", self.path().display()),
                why,
                "`wattle alerts watch` puts it aside and begins anew",
            )),
        }
    }

    /// Changes what is kept. A change that cannot be written is kept in memory, and written with
    /// the next one. A file that is damaged is put aside.
    ///
    /// # Errors
    /// What is kept cannot be read, or is a later version's.
    pub fn update<T>(&self, change: impl FnOnce(&mut AlertsState) -> T) -> Result<Updated<T>, Problem> {
        let mut unsaved = self.unsaved();
        let mut locked = self.lock();
        let (kept, mut damaged) = match self.load()? {
            Kept::Absent => (None, None),
            Kept::State(state) => (Some(*state), None),
            Kept::Damaged(why) => {
                if locked.is_ok()
                    && let Err(error) = fs::rename(self.path(), self.aside())
                {
                    // Nothing is written over it.
                    locked = Err(problem(&self.path(), &error.to_string()));
                }
                (None, Some(self.damaged(&why, locked.is_ok())))
            }
        };
        let untouched = kept.is_some() && unsaved.is_none();
        let file = kept.unwrap_or_default();
        let before = match unsaved.take() {
            Some(mut unsaved) => {
                unsaved.state.take_over(&unsaved.file, &file);
                // It is damaged still, which was said.
                damaged = None;
                unsaved.state
            }
            None => file.clone(),
        };
        let mut state = before.clone();
        if state.origin.is_empty() {
            state.origin = format!("{:x}-{:x}", wall_secs(), std::process::id());
        }
        let value = change(&mut state);
        if untouched && state == before {
            return Ok(Updated { value, unsaved: None, damaged });
        }
        let written = locked.and_then(|_lock| self.write(&state));
        let problem = written.err();
        if problem.is_some() {
            *unsaved = Some(Unsaved { state, file });
        }
        Ok(Updated { value, unsaved: problem, damaged })
    }

    /// Takes the lock of a change. What has it may have been stopped, and is not waited for.
    fn lock(&self) -> Result<File, Problem> {
        let file = self.lock_file(LOCK)?;
        let until = beside::now() + LOCK_MAX;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if beside::now() < until => beside::sleep(LOCK_AGAIN),
                Err(TryLockError::WouldBlock) => {
                    let path = self.dir.join(LOCK);
                    return Err(Problem {
                        next: format!("end the process that holds it: `fuser {}` names it", path.display()),
                        ..problem(&path, "another process holds the lock, and does not release it")
                    });
                }
                Err(TryLockError::Error(error)) => return Err(problem(&self.dir, &error.to_string())),
            }
        }
    }

    fn unsaved(&self) -> MutexGuard<'_, Option<Unsaved>> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn aside(&self) -> PathBuf {
        self.path().with_extension("json.damaged")
    }

    fn damaged(&self, why: &str, is_aside: bool) -> Problem {
        let place = match is_aside {
            true => format!("it is in {} now", self.aside().display()),
            false => "it cannot be put aside".to_owned(),
        };
        Problem::new(
            Code::AlertJournal,
            format!("{}: what was kept of alerts is damaged", self.path().display()),
            format!("{why}; {place}, and what holds is told anew"),
            "messages that were owed are lost: look at `wattle status`",
        )
    }

    /// What the file holds.
    ///
    /// # Errors
    /// It cannot be read, or a later version wrote it, in whatever form.
    fn load(&self) -> Result<Kept, Problem> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let path = self.path();
        let unreadable = |error: io::Error| problem(&path, &error.to_string());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::Absent),
            Err(error) => return Err(unreadable(error)),
        };
        let now = stamp(&file.metadata().map_err(unreadable)?);
        if let Some(known) = &*known
            && known.stamp == now
        {
            return Ok(Kept::State(Box::new(known.state.clone())));
        }
        let mut text = Vec::new();
        (&file).take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(unreadable)?;
        if let Ok(Version { schema_version }) = serde_json::from_slice(&text)
            && schema_version > SCHEMA_VERSION
        {
            return Err(Problem::new(
                Code::AlertJournal,
                format!("{}: what is kept of alerts cannot be used", path.display()),
                format!(
                    "a later version wrote it: it has schema_version {schema_version}, and this is {SCHEMA_VERSION}"
                ),
                "use that version, or name another directory: --state-dir DIR, or WATTLE_STATE_DIR",
            ));
        }
        Ok(match serde_json::from_slice::<AlertsState>(&text) {
            Ok(state) => {
                *known = Some(Known { file, stamp: now, state: state.clone() });
                Kept::State(Box::new(state))
            }
            Err(error) => Kept::Damaged(error.to_string()),
        })
    }

    fn write(&self, state: &AlertsState) -> Result<(), Problem> {
        let text = serde_json::to_vec_pretty(state).expect("keys are strings");
        let (path, new) = (self.path(), self.dir.join("alerts.json.new"));
        let replace = || {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            *known = None;
            let mut options = OpenOptions::new();
            let mut file =
                options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.dir)?.sync_all()?;
            let stamp = stamp(&file.metadata()?);
            // As it would be read: what is only said once is not in the file.
            let state = AlertsState { dropped: Vec::new(), forgotten: Vec::new(), ..state.clone() };
            *known = Some(Known { file, stamp, state });
            Ok(())
        };
        replace().map_err(|error: io::Error| problem(&path, &error.to_string()))
    }
}

fn problem(path: &Path, why: &str) -> Problem {
    Problem::new(
        Code::AlertJournal,
        format!("{}: what is kept of alerts cannot be used", path.display()),
        why,
        "make room, mend the directory, or name another one: --state-dir DIR, or WATTLE_STATE_DIR",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::Value;

    use super::*;

    /// What is known of the file counts only as long as it is that file.
    #[test]
    fn what_others_write_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let (one, other) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
        for round in 1..20 {
            assert_eq!(one.update(AlertsState::number).unwrap().value, 2 * round - 1);
            assert_eq!(other.read().unwrap().next_id, 2 * round);
            assert_eq!(other.update(AlertsState::number).unwrap().value, 2 * round);
            assert_eq!(one.read().unwrap(), other.read().unwrap());
        }
        fs::write(one.path(), "{").unwrap();
        assert!(one.read().is_err() && other.read().is_err());
        fs::remove_file(one.path()).unwrap();
        assert_eq!(one.read().unwrap(), AlertsState::default());
    }

    #[test]
    fn what_is_kept_survives_with_what_a_newer_version_added() {
        let temp = tempfile::tempdir().unwrap();
        let journal = Journal::open(&temp.path().join("not/there")).unwrap();
        assert!(journal.update(AlertsState::number).unwrap().unsaved.is_none());
        let mut text: Value = serde_json::from_slice(&fs::read(journal.path()).unwrap()).unwrap();
        text["later"] = Value::from(7);
        fs::write(journal.path(), text.to_string()).unwrap();
        let journal = Journal::open(journal.path().parent().unwrap()).unwrap();
        assert_eq!(journal.update(AlertsState::number).unwrap().value, 2);
        let kept = journal.read().unwrap();
        assert_eq!((kept.next_id, kept.extra["later"].clone()), (3, Value::from(7)));
        let mode = fs::metadata(journal.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn changes_of_two_do_not_undo_each_other() {
        let temp = tempfile::tempdir().unwrap();
        let (one, other) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
        for _ in 0..5 {
            one.update(AlertsState::number).unwrap();
            other.update(AlertsState::number).unwrap();
        }
        assert_eq!(one.read().unwrap().next_id, 11);
    }

    #[test]
    fn one_process_watches() {
        let temp = tempfile::tempdir().unwrap();
        let (one, other) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
        assert!(!one.is_watched());
        let lock = one.lock_watch().unwrap();
        assert!(lock.is_some() && other.lock_watch().unwrap().is_none() && other.is_watched());
        drop(lock);
        assert!(other.lock_watch().unwrap().is_some());
    }

    /// On a file system that is read-only.
    #[test]
    fn one_process_watches_also_where_nothing_can_be_written() {
        let temp = tempfile::tempdir().unwrap();
        let (one, other) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
        // It can be opened for reading and not for writing.
        fs::create_dir(temp.path().join(WATCH_LOCK)).unwrap();
        let lock = one.lock_watch().unwrap();
        assert!(lock.is_some() && other.lock_watch().unwrap().is_none() && other.is_watched());
        drop(lock);
        fs::remove_dir(temp.path().join(WATCH_LOCK)).unwrap();
        std::os::unix::fs::symlink("not/there", temp.path().join(WATCH_LOCK)).unwrap();
        assert_eq!(one.lock_watch().unwrap_err().code, Code::AlertJournal);
    }

    #[test]
    fn a_damaged_file_is_put_aside_by_the_next_change() {
        let temp = tempfile::tempdir().unwrap();
        let journal = Journal::open(temp.path()).unwrap();
        fs::write(journal.path(), "{\"schema").unwrap();
        assert!(journal.read().unwrap_err().what.contains("is damaged"));
        assert_eq!(fs::read_to_string(journal.path()).unwrap(), "{\"schema", "a look changes nothing");
        let updated = journal.update(AlertsState::number).unwrap();
        assert_eq!((updated.value, updated.unsaved.is_none()), (1, true));
        let damaged = updated.damaged.unwrap();
        assert!(damaged.why.contains("alerts.json.damaged now"), "{}", damaged.why);
        assert_eq!(fs::read_to_string(temp.path().join("alerts.json.damaged")).unwrap(), "{\"schema");
        assert!(journal.update(AlertsState::number).unwrap().damaged.is_none(), "it is said once");
    }

    /// Whatever form a later version gives it.
    #[test]
    fn a_file_of_a_later_version_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let journal = Journal::open(temp.path()).unwrap();
        for text in
            [r#"{"schema_version":99,"next_id":1}"#, r#"{"schema_version":2,"alerts":{"by":"array"}}"#]
        {
            fs::write(journal.path(), text).unwrap();
            let refused = journal.update(AlertsState::number).unwrap_err();
            assert!(refused.code == Code::AlertJournal && refused.why.contains("later version"), "{refused}");
            assert_eq!(journal.read().unwrap_err().code, Code::AlertJournal);
            assert_eq!(fs::read_to_string(journal.path()).unwrap(), text);
            assert!(!temp.path().join("alerts.json.damaged").exists());
        }
    }

    /// A full disk costs the durability, not the alert.
    #[test]
    fn what_cannot_be_written_is_kept_until_it_can() {
        let temp = tempfile::tempdir().unwrap();
        let journal = Journal::open(temp.path()).unwrap();
        journal.update(AlertsState::number).unwrap();
        // A directory in the way of the new file.
        let blocked = temp.path().join("alerts.json.new");
        fs::create_dir(&blocked).unwrap();
        assert_eq!(journal.update(AlertsState::number).unwrap().unsaved.unwrap().code, Code::AlertJournal);
        assert_eq!(journal.read().unwrap().next_id, 3);
        fs::remove_dir(&blocked).unwrap();
        assert!(journal.update(AlertsState::number).unwrap().unsaved.is_none());
        assert_eq!(Journal::open(temp.path()).unwrap().read().unwrap().next_id, 4);
    }

    /// `wattle alerts ack` that was stopped holds back no alert.
    #[test]
    fn a_lock_that_is_not_released_costs_the_durability_alone() {
        let temp = tempfile::tempdir().unwrap();
        let journal = Journal::open(temp.path()).unwrap();
        journal.update(AlertsState::number).unwrap();
        let held = journal.lock().unwrap();
        let updated = journal.update(AlertsState::number).unwrap();
        assert!(updated.value == 2 && updated.unsaved.unwrap().why.contains("does not release it"));
        assert_eq!(journal.read().unwrap().next_id, 3);
        drop(held);
        assert!(journal.update(AlertsState::number).unwrap().unsaved.is_none());
        assert_eq!(Journal::open(temp.path()).unwrap().read().unwrap().next_id, 4);
    }

    /// An operator acknowledges while what watches cannot write.
    #[test]
    fn what_others_wrote_meanwhile_is_not_undone() {
        let temp = tempfile::tempdir().unwrap();
        let (watch, operator) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
        let fail = |state: &mut AlertsState, member: &str| {
            let alert = crate::alerts::rules::tests::alert(state, member);
            state.add(alert);
        };
        watch.update(|state| fail(state, "a")).unwrap();
        // A directory in the way of the new file.
        let blocked = temp.path().join("alerts.json.new");
        fs::create_dir(&blocked).unwrap();
        assert!(watch.update(|state| fail(state, "b")).unwrap().unsaved.is_some());
        fs::remove_dir(&blocked).unwrap();
        assert_eq!(operator.update(|state| state.acknowledge(|_| true)).unwrap().value, 1);
        assert!(watch.update(AlertsState::number).unwrap().unsaved.is_none());
        let kept = operator.read().unwrap();
        let states: Vec<_> = kept.alerts.iter().map(|alert| alert.state.word()).collect();
        assert_eq!(states, ["acknowledged", "raised"], "one was acknowledged, and none is lost");
    }
}
