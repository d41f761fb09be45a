//! What checks and repairs of an array found, kept in a file of JSON lines per array UUID so that
//! it survives a restart: drives that go bad show in how these numbers change, not in one of them.
//!
//! A run is written when it starts and again when it ends; the last line of a run counts. A run
//! that has no end was interrupted. The file is shortened to the last [`RUNS_MAX`] runs when it is
//! opened. A file that cannot be read or written costs the history and nothing else.
//!
//! **Invariant.** No core waits for the file: it may lie on what the same core serves. What is told
//! comes from memory; threads write, one after the other, in the order of what happened.

use std::cell::RefCell;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wattle_control::{Code, Problem};
use wattle_rt::{Core, Semaphore};

use crate::protocol::SCHEMA_VERSION;
use crate::protocol::report::{ScrubReport, last_done, last_found};

/// Runs that are kept, the last ones, and those that [`stand`].
const RUNS_MAX: usize = 50;

/// Runs that `status` tells, the last ones, and those that [`stand`].
const RUNS_TOLD: usize = 10;

/// More is no history of ours: a run of 1000 places takes some 200 KB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Runs whose places are kept; of earlier ones, but for those that [`stand`], only the numbers are.
const RUNS_WITH_PLACES: usize = 10;

/// The directory that histories are in.
#[derive(Debug, Clone)]
pub struct StateDir(Option<PathBuf>);

impl StateDir {
    /// This one; `None` for a user without a home, whose history is not kept.
    pub fn new(dir: Option<PathBuf>) -> Self {
        Self(dir)
    }

    /// Where it is.
    pub fn dir(&self) -> Option<&Path> {
        self.0.as_deref()
    }
}

/// Whether a check or repair of the array with this UUID is known to have gone through. Writes
/// nothing.
pub fn was_checked(dir: &StateDir, uuid: &str) -> bool {
    let runs = dir.0.as_ref().and_then(|dir| read(&file_of(dir, uuid)).ok());
    runs.is_some_and(|(runs, _)| runs.iter().any(ScrubReport::is_whole))
}

/// The history of one array.
pub struct History {
    /// `None`: kept in memory only.
    file: Option<PathBuf>,
    runs: RefCell<Vec<ScrubReport>>,
    /// Lines that the file does not have yet.
    unwritten: RefCell<Vec<u8>>,
    /// Held by the one that writes.
    writing: Semaphore,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "History({:?})", self.file)
    }
}

impl Default for History {
    fn default() -> Self {
        Self::of(None, Vec::new())
    }
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line<T> {
    schema_version: u32,
    #[serde(flatten)]
    run: T,
}

impl History {
    /// The history of the array with this UUID. Lines that cannot be read or understood are left
    /// out, with a problem to tell.
    ///
    /// # Errors
    /// There is no thread to look at it.
    pub async fn open(
        core: &Core,
        dir: &StateDir,
        uuid: Option<&str>,
    ) -> Result<(Self, Option<Problem>), Problem> {
        let (Some(dir), Some(uuid)) = (&dir.0, uuid) else { return Ok((Self::default(), None)) };
        let file = file_of(dir, uuid);
        let (file, runs, problem) = core.offload(move || load(file)).await.map_err(Problem::no_thread)?;
        Ok((Self::of(file, runs), problem))
    }

    fn of(file: Option<PathBuf>, runs: Vec<ScrubReport>) -> Self {
        let (runs, unwritten) = (RefCell::new(runs), RefCell::default());
        Self { file, runs, unwritten, writing: Semaphore::new(1) }
    }

    /// Adds a run, or tells more of it. [`Self::write`] brings it to the file.
    pub fn record(&self, run: &ScrubReport) {
        let mut runs = self.runs.borrow_mut();
        match runs.iter_mut().find(|known| known.run == run.run) {
            Some(known) => *known = run.clone(),
            None => runs.push(run.clone()),
        }
        shorten(&mut runs);
        if self.file.is_some() {
            self.unwritten.borrow_mut().extend(line(run));
        }
    }

    /// Writes what was recorded until now, on a thread beside the core.
    ///
    /// # Cancellation
    /// Not safe: what is under way goes on, and may overtake what is written next.
    ///
    /// # Errors
    /// The file cannot be written; the runs are in the history all the same, until the server ends,
    /// and are written with the next ones.
    pub async fn write(&self, core: &Core) -> Result<(), Problem> {
        let _turn = self.writing.acquire(1).await;
        let Some((path, lines)) = self.owed() else { return Ok(()) };
        let count = lines.len();
        let written = core.offload(move || append(&path, lines).map_err(|error| (path, error))).await;
        written.map_err(Problem::no_thread)?.map_err(|(path, error)| {
            let why = "what was found is shown until the server ends, and lost then unless a later run can be written";
            problem(&path, &error, why)
        })?;
        self.settle(count);
        Ok(())
    }

    /// The file, and what it lacks.
    fn owed(&self) -> Option<(PathBuf, Vec<u8>)> {
        let lines = self.unwritten.borrow().clone();
        self.file.clone().filter(|_| !lines.is_empty()).map(|path| (path, lines))
    }

    /// So many bytes of what it lacked are in the file. What was recorded meanwhile lies behind
    /// them.
    fn settle(&self, count: usize) {
        self.unwritten.borrow_mut().drain(..count);
    }

    /// The number of the next run.
    pub fn next_run(&self) -> u64 {
        self.runs.borrow().iter().map(|run| run.run).max().map_or(1, |run| run.saturating_add(1))
    }

    /// The last runs, the last first. Places are told where they are asked for: of the last run,
    /// and of those that stand.
    pub fn last(&self) -> Vec<ScrubReport> {
        let runs = self.runs.borrow();
        let stand = stand(&runs);
        let mut told = Vec::new();
        for (ix, run) in runs.iter().rev().enumerate() {
            let stands = stand.contains(&run.run);
            if ix < RUNS_TOLD || stands {
                told.push(if ix == 0 || stands { run.clone() } else { without_places(run) });
            }
        }
        told
    }
}

/// The runs that count however many came after them, by their numbers: the last one that went over
/// the whole array, and the one whose findings stand. Runs that were ended early say nothing of the
/// rest of the array.
fn stand(runs: &[ScrubReport]) -> Vec<u64> {
    let runs = runs.iter().rev();
    last_done(runs.clone()).into_iter().chain(last_found(runs)).map(|run| run.run).collect()
}

/// Leaves what is kept.
fn shorten(runs: &mut Vec<ScrubReport>) {
    let (count, stand) = (runs.len(), stand(runs));
    let mut ix = 0;
    runs.retain_mut(|run| {
        ix += 1;
        let (from_last, stands) = (count - ix, stand.contains(&run.run));
        if from_last >= RUNS_WITH_PLACES && !stands && !run.mismatches.is_empty() {
            *run = without_places(run);
        }
        from_last < RUNS_MAX || stands
    });
}

fn without_places(run: &ScrubReport) -> ScrubReport {
    let truncated = run.truncated || !run.mismatches.is_empty();
    ScrubReport { truncated, mismatches: Vec::new(), ..run.clone() }
}

/// A file if lines may be added to it, its runs, and what is wrong with it.
fn load(file: PathBuf) -> (Option<PathBuf>, Vec<ScrubReport>, Option<Problem>) {
    match read(&file) {
        Ok((runs, untidy)) => {
            let problem = untidy.then(|| rewrite(&file, &runs).err()).flatten();
            (Some(file), runs, problem)
        }
        // Whatever is there, it is not ours to write over.
        Err(error) => {
            let problem = problem(&file, &error, "it stays as it is, and nothing is added to it");
            (None, Vec::new(), Some(problem))
        }
    }
}

/// Replaces a file by one with the runs that are kept.
fn rewrite(path: &Path, runs: &[ScrubReport]) -> Result<(), Problem> {
    let lines: Vec<u8> = runs.iter().flat_map(line).collect();
    let new = path.with_extension("new");
    fs::write(&new, lines)
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| problem(path, &error, "it is not shortened"))
}

fn problem(path: &Path, error: &io::Error, why: &str) -> Problem {
    Problem::new(
        Code::OutputFailed,
        format!("the history of checks {} cannot be kept: {error}", path.display()),
        why,
        "name a directory of yours: --state-dir DIR, or WATTLE_STATE_DIR",
    )
}

/// UUIDs are from drives and may hold anything.
fn file_of(dir: &Path, uuid: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = uuid.chars().map(plain).take(64).collect();
    dir.join(format!("scrub-{name}.jsonl"))
}

fn line(run: &ScrubReport) -> Vec<u8> {
    let line = Line { schema_version: SCHEMA_VERSION, run };
    let mut line = serde_json::to_vec(&line).expect("runs have string keys and integers only");
    line.push(b'\n');
    line
}

fn append(path: &Path, mut text: Vec<u8>) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let mut file = File::options().read(true).append(true).create(true).open(path)?;
    if !ends_with_a_line(&file)? {
        text.insert(0, b'\n');
    }
    // One write: a line of two servers at once stays a line.
    file.write_all(&text)
}

/// False if a full file system took a part of the last line.
fn ends_with_a_line(file: &File) -> io::Result<bool> {
    let Some(at) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut last = [0];
    file.read_exact_at(&mut last, at)?;
    Ok(last == [b'\n'])
}

/// The runs of a file, in their order, and whether it is due for a rewrite.
fn read(path: &Path) -> io::Result<(Vec<ScrubReport>, bool)> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(FILE_BYTES_MAX).read_to_end(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), false)),
        Err(error) => return Err(error),
    };
    Ok(runs_in(&text))
}

/// The same, of what the file holds.
pub fn runs_in(text: &[u8]) -> (Vec<ScrubReport>, bool) {
    let mut runs: Vec<ScrubReport> = Vec::new();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for line in lines {
        // A line that a crash cut off, or of a later version: the others are still good.
        let Ok(Line { run, .. }) = serde_json::from_slice::<Line<ScrubReport>>(line) else { continue };
        match runs.iter_mut().find(|known| known.run == run.run) {
            Some(known) => *known = run,
            None => runs.push(run),
        }
    }
    let count = runs.len();
    shorten(&mut runs);
    // What is appended behind half a line would be lost with it.
    let untidy = runs.len() < count || text.last().is_some_and(|last| *last != b'\n');
    for run in &mut runs {
        if run.outcome == "running" {
            "interrupted".clone_into(&mut run.outcome);
        }
    }
    (runs, untidy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::report::MismatchReport;

    fn run(number: u64, outcome: &str) -> ScrubReport {
        ScrubReport {
            run: number,
            action: "check".to_owned(),
            source: None,
            started: "2026-11-21T12:00:00Z".to_owned(),
            duration_secs: (outcome != "running").then_some(3),
            outcome: outcome.to_owned(),
            error: None,
            covered: None,
            mismatch_sectors: number,
            repaired_sectors: 0,
            unreadable_sectors: 0,
            late_sectors: 0,
            alone_sectors: 0,
            rewritten_blocks: 0,
            mismatches: Vec::new(),
            truncated: false,
            record: None,
        }
    }

    fn open(dir: &Path) -> History {
        let (file, runs, problem) = load(file_of(dir, "a:b:c:d"));
        assert_eq!(problem, None);
        History::of(file, runs)
    }

    fn told(history: &History, run: &ScrubReport) -> Result<(), Problem> {
        history.record(run);
        let Some((path, lines)) = history.owed() else { return Ok(()) };
        let count = lines.len();
        append(&path, lines).map_err(|error| problem(&path, &error, ""))?;
        history.settle(count);
        Ok(())
    }

    fn recorded(history: &History, run: &ScrubReport) {
        told(history, run).unwrap();
    }

    #[test]
    fn runs_survive_a_restart_and_one_without_an_end_was_interrupted() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("not/yet/there");
        let history = open(&dir);
        assert_eq!((history.next_run(), history.last()), (1, Vec::new()));
        recorded(&history, &run(1, "running"));
        recorded(&history, &run(1, "done"));
        recorded(&history, &run(2, "running"));
        assert_eq!(history.last()[0].outcome, "running");
        drop(history);
        let known = StateDir(Some(dir.clone()));
        assert!(was_checked(&known, "a:b:c:d") && !was_checked(&known, "a:b:c:e"));
        let history = open(&dir);
        let outcomes: Vec<_> = history.last().into_iter().map(|run| (run.run, run.outcome)).collect();
        assert_eq!(outcomes, [(2, "interrupted".to_owned()), (1, "done".to_owned())]);
        assert_eq!(history.next_run(), 3);
        assert!(dir.join("scrub-a-b-c-d.jsonl").exists());
    }

    #[test]
    fn a_file_cut_off_by_a_crash_loses_a_line_and_a_long_one_its_beginning() {
        let temp = tempfile::tempdir().unwrap();
        let history = open(temp.path());
        (1..=RUNS_MAX as u64 + 7).for_each(|number| recorded(&history, &run(number, "done")));
        let path = temp.path().join("scrub-a-b-c-d.jsonl");
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"schema_version\":1,\"run\":99,\"act");
        fs::write(&path, text).unwrap();
        let history = open(temp.path());
        assert_eq!(history.last().len(), RUNS_TOLD);
        assert_eq!(history.last()[0].run, RUNS_MAX as u64 + 7);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), RUNS_MAX);
        recorded(&history, &run(100, "done"));
        assert_eq!(open(temp.path()).last()[0].run, 100);
        // The file is cut as a full disk does it, while the history is open.
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"schema_version\":1,\"run\":101,\"act");
        fs::write(&path, text).unwrap();
        recorded(&history, &run(102, "done"));
        let runs: Vec<_> = open(temp.path()).last().iter().take(2).map(|run| run.run).collect();
        assert_eq!(runs, [102, 100]);
    }

    /// A cron job that ends checks in the morning hides neither that one went through nor what it
    /// found; what was found since then stands as well.
    #[test]
    fn runs_that_were_ended_early_hide_none_that_stands() {
        let temp = tempfile::tempdir().unwrap();
        let history = open(temp.path());
        let aborted = |number, left| ScrubReport { mismatch_sectors: left, ..run(number, "aborted") };
        let places = |run: ScrubReport| ScrubReport { mismatches: vec![place(); 3], ..run };
        recorded(&history, &places(run(1, "done")));
        recorded(&history, &places(run(2, "done")));
        recorded(&history, &places(aborted(3, 8)));
        (4..=3 + RUNS_MAX as u64).for_each(|number| recorded(&history, &aborted(number, 0)));
        let check = |history: &History| {
            let told = history.last();
            let numbers: Vec<_> = told.iter().map(|run| run.run).collect();
            let last = (4..=3 + RUNS_MAX as u64).rev().take(RUNS_TOLD);
            assert_eq!(numbers, last.chain([3, 2]).collect::<Vec<_>>());
            assert_eq!(last_done(told.iter()).map(|run| run.run), Some(2));
            assert_eq!(last_found(told.iter()).map(|run| (run.run, run.mismatches.len())), Some((3, 3)));
        };
        check(&history);
        check(&open(temp.path()));
        // One that goes over everything stands alone.
        recorded(&history, &run(99, "done"));
        assert_eq!(history.last().len(), RUNS_TOLD);
    }

    #[test]
    fn places_are_told_of_the_last_run_and_of_those_that_stand() {
        let history = History::default();
        let places = |run: ScrubReport| ScrubReport { mismatches: vec![place(); 3], ..run };
        (1..=3).for_each(|number| history.record(&places(run(number, "done"))));
        (4..=5).for_each(|number| history.record(&places(run(number, "aborted"))));
        let told: Vec<_> = history.last().iter().map(|run| (run.mismatches.len(), run.truncated)).collect();
        assert_eq!(told, [(3, false), (0, true), (3, false), (0, true), (0, true)]);
    }

    fn place() -> MismatchReport {
        serde_json::from_value(serde_json::json!({
            "array_start_byte": 0, "array_len_bytes": 4096, "member_start_byte": 0,
            "member_len_bytes": 4096, "kind": "copies"
        }))
        .unwrap()
    }

    #[test]
    fn what_could_not_be_written_is_written_with_the_next_run() {
        let temp = tempfile::tempdir().unwrap();
        let history = open(temp.path());
        // A directory in the way of the file.
        let path = file_of(temp.path(), "a:b:c:d");
        fs::create_dir_all(&path).unwrap();
        assert!(told(&history, &run(1, "done")).is_err());
        fs::remove_dir(&path).unwrap();
        recorded(&history, &run(2, "done"));
        let runs: Vec<_> = open(temp.path()).last().iter().map(|run| run.run).collect();
        assert_eq!(runs, [2, 1]);
    }

    #[test]
    fn a_directory_that_cannot_be_written_costs_the_file_and_not_the_run() {
        let temp = tempfile::tempdir().unwrap();
        let blocked = temp.path().join("file");
        fs::write(&blocked, "not a directory").unwrap();
        let (file, runs, _) = load(file_of(&blocked.join("state"), "a"));
        let history = History::of(file, runs);
        assert!(told(&history, &run(1, "done")).is_err() || history.file.is_none());
        assert_eq!(history.last()[0].run, 1);
    }
}
