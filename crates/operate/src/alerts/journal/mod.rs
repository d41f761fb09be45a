//! What is kept of alerts, durably: one file of JSON in the state directory, replaced as a whole.
//!
//! Every change is made under a lock to what the file holds by then, so that the process that
//! watches and a command that acknowledges do not undo each other. One process watches at a time:
//! it holds another lock for as long as it runs. A lock that another process does not release costs
//! the durability for that long, not the alert; a write to the file that hangs holds up all.
//!
//! Invariants:
//! 1. Neither a file that cannot be written nor one that cannot be read ends the watch: changes go
//!    on in memory, from what is known. Only a file of a later version does.
//! 2. A number is given once with one origin. Numbers of a change that is not durable get an origin
//!    of their own: the file still has the number before them, with the origin before.
//! 3. What is in a file that was never read is not written over: it is put aside.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use wattle_control::{Code, Problem};

use super::beside;
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
    /// The file as it was read last: what others have changed in it since is theirs. `None` if it
    /// could not be read yet.
    file: Option<AlertsState>,
}

/// What the file holds.
enum Kept {
    /// There is none.
    Absent,
    /// What was written.
    State(Box<AlertsState>),
    /// Something else, for this reason.
    Damaged(String),
    /// Something that the system does not give.
    Unreadable(Problem),
}

/// Held by the process that watches.
#[derive(Debug)]
pub struct WatchLock(#[allow(dead_code, reason = "the lock is held as long as the file is open")] File);

/// What came of a change.
#[derive(Debug)]
pub struct Updated<T> {
    /// What the change gave.
    pub value: T,
    /// Tells the numbers that the change gave from those of others.
    pub origin: String,
    /// Why it is not durable.
    pub unsaved: Option<Problem>,
    /// What was kept before is not gone on from, and was put aside.
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

    /// What is kept: as it was known last, if the file cannot be read any more.
    ///
    /// # Errors
    /// The file cannot be read and never could, is damaged, or is a later version's.
    pub fn read(&self) -> Result<AlertsState, Problem> {
        if let Some(unsaved) = &*self.unsaved() {
            return Ok(unsaved.state.clone());
        }
        match self.load()? {
            Kept::Absent => Ok(AlertsState::default()),
            Kept::State(state) => Ok(*state),
            Kept::Unreadable(problem) => self.last_known().ok_or(problem),
            Kept::Damaged(why) => Err(Problem::new(
                Code::AlertJournal,
                format!("{}: what is kept of alerts is damaged", self.path().display()),
                why,
                "`wattle alerts watch` puts it aside and begins anew",
            )),
        }
    }

    /// Changes what is kept. A change that cannot be written is kept in memory, and written with
    /// the next one; so is one to a file that cannot be read. A file that is damaged is put aside.
    ///
    /// # Errors
    /// What is kept is a later version's.
    pub fn update<T>(&self, change: impl FnOnce(&mut AlertsState) -> T) -> Result<Updated<T>, Problem> {
        let mut unsaved = self.unsaved();
        let mut locked = self.lock();
        let mut damaged = None;
        let file = match self.load()? {
            Kept::Absent => Some(AlertsState::default()),
            // What this process has began without it, under other numbers.
            Kept::State(state) if matches!(&*unsaved, Some(Unsaved { file: None, .. })) => {
                self.put_aside(&mut locked);
                let is_aside = locked.is_ok();
                let why = "it could not be read when this process began";
                damaged = is_aside.then(|| self.lost("is not gone on from", why, is_aside));
                is_aside.then_some(*state)
            }
            Kept::State(state) => Some(*state),
            Kept::Damaged(why) => {
                self.put_aside(&mut locked);
                // If something is unsaved it is damaged still, which was said.
                let is_new = unsaved.is_none();
                damaged = is_new.then(|| self.lost("is damaged", &why, locked.is_ok()));
                Some(AlertsState::default())
            }
            Kept::Unreadable(problem) => {
                // What it holds is not known: nothing is written over it.
                locked = Err(problem);
                match &*unsaved {
                    Some(unsaved) => unsaved.file.clone(),
                    None => self.last_known(),
                }
            }
        };
        let was_saved = unsaved.is_none();
        let before = match unsaved.take() {
            Some(mut unsaved) => {
                match (&unsaved.file, &file) {
                    (Some(was), Some(is)) => unsaved.state.take_over(was, is),
                    (None, Some(is)) => unsaved.state.next_id = unsaved.state.next_id.max(is.next_id),
                    (_, None) => {}
                }
                unsaved.state
            }
            None => file.clone().unwrap_or_default(),
        };
        let mut state = before.clone();
        if state.origin.is_empty() {
            state.origin = new_origin();
        }
        let value = change(&mut state);
        state.stamp_origin(before.next_id);
        let is_in_file = was_saved && before.origin == state.origin;
        if is_in_file && state == before {
            return Ok(Updated { value, origin: state.origin, unsaved: None, damaged });
        }
        let problem = locked.and_then(|_lock| self.write(&state)).err();
        let mut origin = state.origin.clone();
        if problem.is_some() {
            if was_saved {
                state.origin = new_origin();
                state.stamp_origin(before.next_id);
                origin.clone_from(&state.origin);
            }
            *unsaved = Some(Unsaved { state, file });
        }
        Ok(Updated { value, origin, unsaved: problem, damaged })
    }

    /// Puts a file aside that is not gone on from; if that fails nothing is written over it.
    fn put_aside(&self, locked: &mut Result<File, Problem>) {
        if locked.is_ok()
            && let Err(error) = fs::rename(self.path(), self.aside())
        {
            *locked = Err(problem(&self.path(), &error.to_string()));
        }
    }

    /// What the file held when it was read or written last.
    fn last_known(&self) -> Option<AlertsState> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|known| known.state.clone())
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

    /// What was kept before is not gone on from.
    fn lost(&self, how: &str, why: &str, is_aside: bool) -> Problem {
        let place = match is_aside {
            true => format!("it is in {} now", self.aside().display()),
            false => "it cannot be put aside".to_owned(),
        };
        Problem::new(
            Code::AlertJournal,
            format!("{}: what was kept of alerts {how}", self.path().display()),
            format!("{why}; {place}, and what holds is told anew"),
            "messages that were owed are lost: look at `wattle status`",
        )
    }

    /// What the file holds.
    ///
    /// # Errors
    /// A later version wrote it, in whatever form.
    fn load(&self) -> Result<Kept, Problem> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let path = self.path();
        let unreadable = |error: io::Error| Kept::Unreadable(problem(&path, &error.to_string()));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::Absent),
            Err(error) => return Ok(unreadable(error)),
        };
        let now = match file.metadata() {
            Ok(metadata) => stamp(&metadata),
            Err(error) => return Ok(unreadable(error)),
        };
        if let Some(known) = &*known
            && known.stamp == now
        {
            return Ok(Kept::State(Box::new(known.state.clone())));
        }
        let mut text = Vec::new();
        if let Err(error) = (&file).take(FILE_BYTES_MAX).read_to_end(&mut text) {
            return Ok(unreadable(error));
        }
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

/// Tells numbers that are given from now on from all others: of other machines, and of the same
/// one where they are not durable.
fn new_origin() -> String {
    format!("{:x}-{:x}", beside::wall_nanos(), std::process::id())
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
mod tests;
