//! The map of one copy: what is known of it, what was written since, and how that gets to disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wattle_format::rescue_map::{CompleteMap, RescueMap, Status};

use super::CopyMapError;

/// The largest map that is read: millions of areas.
const MAP_BYTES_MAX: u64 = 256 << 20;

/// The map of a member.
#[derive(Debug)]
pub struct CopyMap {
    path: PathBuf,
    file_bytes: u64,
    size_bytes: u64,
    finished: bool,
    unread: Vec<Range<u64>>,
    state: Mutex<State>,
    recorded: Mutex<Recorded>,
}

/// What can be read now.
#[derive(Debug)]
struct State {
    map: RescueMap,
    /// Written over what was unread, and not on disk in the map yet; each with a number that grows.
    written: Vec<(u64, Range<u64>)>,
    next: u64,
}

/// What is on disk.
#[derive(Debug)]
struct Recorded {
    text: String,
    map: CompleteMap,
}

/// What was written over unread parts when a flush began.
pub(super) struct Written(Vec<(u64, Range<u64>)>);

impl Written {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl CopyMap {
    /// The map at `path`, of a file of `file_bytes`; or of a drive, on which the copy may end
    /// before it does.
    pub(crate) fn read(path: &Path, file_bytes: u64, is_file: bool) -> Result<Self, CopyMapError> {
        let shown = || path.display().to_string();
        let text = read_text(path).map_err(|reason| CopyMapError::Open { path: shown(), reason })?;
        let map =
            CompleteMap::parse(&text).map_err(|source| CopyMapError::Format { path: shown(), source })?;
        let map_bytes = map.map.size_bytes();
        if map_bytes < file_bytes && is_file {
            return Err(CopyMapError::Smaller { path: shown(), map_bytes, file_bytes });
        }
        let copied = map.map.areas().filter(|(_, status)| *status == Status::Finished);
        let copied_to = copied.map(|(area, _)| area.end).max().unwrap_or(0);
        if copied_to > file_bytes {
            return Err(CopyMapError::Beyond { path: shown(), copied_to, file_bytes });
        }
        Ok(Self {
            // A link leads to its map, which is what is replaced.
            path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            file_bytes,
            size_bytes: map_bytes,
            finished: map.finished,
            unread: map.map.missing(),
            state: Mutex::new(State { map: map.map.clone(), written: Vec::new(), next: 0 }),
            recorded: Mutex::new(Recorded { text, map }),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the drive that was copied, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The size of the file or the drive that the copy is on, in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Whether the copy was finished, as far as it could be.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// What was not read when the map was.
    #[must_use]
    pub fn unread(&self) -> &[Range<u64>] {
        &self.unread
    }

    /// The same in bytes.
    #[must_use]
    pub fn unread_bytes(&self) -> u64 {
        self.unread.iter().map(|run| run.end - run.start).sum()
    }

    /// What is to be said of it; nothing of a copy that has everything.
    pub(crate) fn note(&self, member: &str) -> Option<String> {
        if self.unread.is_empty() && self.finished {
            return None;
        }
        let (path, size_bytes) = (self.path.display(), self.size_bytes);
        let mut note = format!(
            "{member} is a copy; by its map {path}, {} of {size_bytes} bytes were not read from the drive (places: {}): they come from \
             redundancy, or reading them is an error",
            self.unread_bytes(),
            self.unread.len()
        );
        if self.file_bytes < size_bytes {
            note.push_str(&format!("; the file ends at byte {}", self.file_bytes));
        }
        if !self.finished {
            note.push_str("; the copy was not finished, and must not be written to while it goes on");
        }
        Some(note)
    }

    /// Whether every byte of a range can be read.
    pub(crate) fn is_read(&self, range: Range<u64>) -> bool {
        range.is_empty() || self.state().map.is_finished(range)
    }

    /// Notes a write that is done: what it covers can be read from now on.
    pub(super) fn wrote(&self, range: Range<u64>) {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.map.set(range.clone(), Status::Finished);
        state.written.push((number, range));
    }

    /// What a flush that begins now covers.
    pub(super) fn written(&self) -> Written {
        Written(self.state().written.clone())
    }

    /// Notes on disk, durably, what was made durable in the file. Returns once everything of it is
    /// there, whichever call wrote it.
    pub(super) fn record(&self, written: &Written) -> Result<(), CopyMapError> {
        let Some((last, _)) = written.0.last() else { return Ok(()) };
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut map = recorded.map.clone();
        written.0.iter().for_each(|(_, range)| map.map.set(range.clone(), Status::Finished));
        if map != recorded.map {
            self.check_unchanged(&recorded)?;
            let text = map.render();
            let written = self.replace(&text);
            written.map_err(|error| self.not_writable(&error))?;
            *recorded = Recorded { text, map };
        }
        self.state().written.retain(|(number, _)| number > last);
        Ok(())
    }

    /// Before the file is used: the map is still the same, and can be written if the file will be.
    pub(crate) fn check_use(&self, write: bool) -> Result<(), CopyMapError> {
        self.check_unchanged(&self.recorded.lock().unwrap_or_else(PoisonError::into_inner))?;
        if !write || self.unread.is_empty() {
            return Ok(());
        }
        if self.file_bytes < self.size_bytes {
            return Err(CopyMapError::Short { file_bytes: self.file_bytes, map_bytes: self.size_bytes });
        }
        let made = self.make_draft().and_then(|_| fs::remove_file(self.draft()));
        made.map_err(|error| self.not_writable(&error))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_unchanged(&self, recorded: &Recorded) -> Result<(), CopyMapError> {
        match read_text(&self.path) {
            Ok(text) if text == recorded.text => Ok(()),
            _ => Err(CopyMapError::Changed { path: self.path.display().to_string() }),
        }
    }

    fn not_writable(&self, error: &io::Error) -> CopyMapError {
        CopyMapError::NotWritable { path: self.path.display().to_string(), reason: error.to_string() }
    }

    fn draft(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".wattle-new");
        PathBuf::from(name)
    }

    /// One that a crash left goes. What others put there is never followed, nor written to.
    fn make_draft(&self) -> io::Result<File> {
        let draft = self.draft();
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        File::create_new(&draft)
    }

    /// Written first, then put in the map's place: there is a whole one at any time.
    fn replace(&self, text: &str) -> io::Result<()> {
        let was = fs::metadata(&self.path)?;
        let mut file = self.make_draft()?;
        file.set_permissions(was.permissions())?;
        // Only root can give it to another user.
        let _ = std::os::unix::fs::fchown(&file, Some(was.uid()), Some(was.gid()));
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(self.draft(), &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no file".to_owned());
    }
    if metadata.len() > MAP_BYTES_MAX {
        return Err(format!("it has {} bytes, more than any map", metadata.len()));
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAP_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn map(dir: &Path, text: &str) -> CopyMap {
        let path = dir.join("a.map");
        fs::write(&path, text).unwrap();
        CopyMap::read(&path, 8192, true).unwrap()
    }

    #[test]
    fn what_is_written_can_be_read_and_is_noted_once_it_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let map = map(dir.path(), "# mine\n0x0 + 1\n0 4096 +\n4096 4096 -\n");
        assert!(map.is_read(0..4096) && !map.is_read(4095..4097) && !map.is_read(8191..8192));
        map.wrote(4096..5120);
        assert!(map.is_read(0..5120) && !map.is_read(5119..5121));
        let before = map.written();
        map.wrote(7680..8192);
        map.record(&before).unwrap();
        let on_disk = || fs::read_to_string(dir.path().join("a.map")).unwrap();
        let first = "# mine\n0x0 + 1\n0x00000000  0x00001400  +\n0x00001400  0x00000C00  -\n";
        assert_eq!(on_disk(), first, "what was written after the flush began is not in it");
        map.record(&map.written()).unwrap();
        assert!(
            on_disk().ends_with("0x00001400  0x00000A00  -\n0x00001E00  0x00000200  +\n"),
            "{}",
            on_disk()
        );
        assert!(map.written().0.is_empty());
    }

    #[test]
    fn a_link_where_the_draft_goes_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let map = map(dir.path(), "0x0 + 1\n0 4096 +\n4096 4096 -\n");
        let victim = dir.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        let link = || std::os::unix::fs::symlink(&victim, map.draft()).unwrap();
        link();
        map.check_use(true).unwrap();
        link();
        map.wrote(4096..8192);
        map.record(&map.written()).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert!(!map.path().symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn a_map_that_another_program_writes_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let map = map(dir.path(), "0x0 + 1\n0 4096 +\n4096 4096 -\n");
        map.check_use(true).unwrap();
        let theirs = "0x0 ? 1\n0 4096 +\n4096 4096 *\n";
        fs::write(dir.path().join("a.map"), theirs).unwrap();
        assert!(matches!(map.check_use(false), Err(CopyMapError::Changed { .. })));
        map.wrote(4096..8192);
        assert!(matches!(map.record(&map.written()), Err(CopyMapError::Changed { .. })));
        assert_eq!(fs::read_to_string(dir.path().join("a.map")).unwrap(), theirs);
        assert!(!map.written().0.is_empty(), "it is tried again");
    }
}
