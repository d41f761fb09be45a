//! What drives said, kept and renewed beside whatever reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use wattle_control::Problem;
use wattle_server::protocol::report::ServerReport;

use super::DriveHealth;
use super::query::{SmartSettings, ask_all};

/// A drive that was not asked for so many periods is forgotten: no server has it any more.
const KEPT_PERIODS: u32 = 4;

/// Asks the drives below members now and then, on a thread of its own.
pub struct DriveWatch {
    settings: SmartSettings,
    state: Arc<Mutex<WatchState>>,
    tell: Arc<dyn Fn(&Problem) + Send + Sync>,
}

#[derive(Default)]
struct WatchState {
    known: BTreeMap<String, Known>,
    /// Drives to ask, with those that are being asked.
    due: BTreeSet<String>,
    /// Drives are being asked.
    is_asking: bool,
    /// That one of those that were asked last cannot be was said.
    is_told: bool,
}

struct Known {
    asked: Instant,
    /// The last that it said; a drive that sleeps, or cannot be asked now, keeps it.
    health: Option<DriveHealth>,
}

impl WatchState {
    /// Keeps answers. Returns what is to be told: a failure after answers without one.
    fn take(&mut self, answers: BTreeMap<String, Result<DriveHealth, Problem>>) -> Option<Problem> {
        let mut failure = None;
        for (drive, answer) in answers {
            self.due.remove(&drive);
            let known =
                self.known.entry(drive).or_insert_with(|| Known { asked: Instant::now(), health: None });
            known.asked = Instant::now();
            match answer {
                Ok(health) => known.health = Some(health),
                Err(problem) => failure = failure.or(Some(problem)),
            }
        }
        let was_told = std::mem::replace(&mut self.is_told, failure.is_some());
        failure.filter(|_| !was_told)
    }
}

impl DriveWatch {
    /// Asks as the settings say; the first failure is told, and the next one after all answered.
    #[must_use]
    pub fn new(settings: SmartSettings, tell: impl Fn(&Problem) + Send + Sync + 'static) -> Self {
        Self { settings, state: Arc::default(), tell: Arc::new(tell) }
    }

    /// What is known of the drives below the members of these servers. Those that were not asked
    /// for a while are asked now, which this does not wait for.
    #[must_use]
    pub fn known<'a>(&self, servers: impl Iterator<Item = &'a ServerReport>) -> Vec<DriveHealth> {
        let arrays = servers.flat_map(|report| &report.arrays);
        let members = arrays.flat_map(|array| array.members.iter().chain(&array.replacements));
        let names = members.filter_map(|member| member.member.as_deref());
        self.of(&names.filter_map(drive_below).collect())
    }

    /// The same by member, of those whose drive is known by now.
    #[must_use]
    pub fn by_member<'a>(&self, members: impl Iterator<Item = &'a str>) -> BTreeMap<String, DriveHealth> {
        self.of_members(&below(members))
    }

    /// The same, of drives that are all asked now. Blocks until the last of them has answered, or
    /// its time is over.
    #[must_use]
    pub fn ask_by_member<'a>(&self, members: impl Iterator<Item = &'a str>) -> BTreeMap<String, DriveHealth> {
        let below = below(members);
        let answers = ask_all(&self.settings, &below.values().cloned().collect());
        let failure = lock(&self.state).take(answers);
        failure.iter().for_each(|problem| (self.tell)(problem));
        self.of_members(&below)
    }

    fn of_members(&self, below: &BTreeMap<&str, String>) -> BTreeMap<String, DriveHealth> {
        let known = self.of(&below.values().cloned().collect());
        let of = |drive: &String| known.iter().find(|health| health.drive == *drive).cloned();
        below.iter().filter_map(|(member, drive)| Some(((*member).to_owned(), of(drive)?))).collect()
    }

    /// The same of drives by name.
    #[must_use]
    pub fn of(&self, drives: &BTreeSet<String>) -> Vec<DriveHealth> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let period = self.settings.period;
        let age = |known: &Known| now.duration_since(known.asked);
        // Each server asks for its own drives: those of the others are kept.
        state.known.retain(|drive, known| drives.contains(drive) || age(known) < period * KEPT_PERIODS);
        let is_due = |drive: &&String| state.known.get(*drive).is_none_or(|known| age(known) >= period);
        let due: Vec<String> = drives.iter().filter(is_due).cloned().collect();
        state.due.extend(due);
        if !state.due.is_empty() && !state.is_asking {
            state.is_asking = true;
            self.ask_due(&mut state);
        }
        drives.iter().filter_map(|drive| state.known.get(drive)?.health.clone()).collect()
    }

    fn ask_due(&self, state: &mut WatchState) {
        let (settings, shared, tell) = (self.settings.clone(), self.state.clone(), self.tell.clone());
        let work = move || {
            loop {
                let mut state = lock(&shared);
                if state.due.is_empty() {
                    state.is_asking = false;
                    return;
                }
                let due = state.due.clone();
                drop(state);
                let answers = ask_all(&settings, &due);
                let failure = lock(&shared).take(answers);
                failure.iter().for_each(|problem| tell(problem));
            }
        };
        if wattle_rt::helper_thread("wattle-smart", work).is_err() {
            state.is_asking = false;
            state.due.clear();
        }
    }
}

/// The drives below members.
fn below<'a>(members: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, String> {
    members.filter_map(|member| Some((member, drive_below(member)?))).collect()
}

fn lock(state: &Mutex<WatchState>) -> MutexGuard<'_, WatchState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The drive that a member lies on, if it is a block device: of a partition, the whole of it.
#[must_use]
pub fn drive_below(member: &str) -> Option<String> {
    let device = member.split(':').next()?.split('|').next()?;
    if !device.starts_with("/dev/") {
        return None;
    }
    let path = std::fs::canonicalize(device).ok()?;
    let name = path.file_name()?.to_str()?;
    let node = std::fs::canonicalize(Path::new("/sys/class/block").join(name)).ok()?;
    let whole = if node.join("partition").exists() { node.parent()?.to_owned() } else { node };
    // Only what has a device behind it is a drive: loop, dm and md devices have none.
    whole.join("device").exists().then_some(())?;
    Some(format!("/dev/{}", whole.file_name()?.to_str()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    fn smartctl(script: &str) -> (tempfile::TempDir, SmartSettings) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("smartctl");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let settings = SmartSettings {
            smartctl: path,
            time_max: Duration::from_millis(500),
            period: Duration::from_secs(60),
        };
        (dir, settings)
    }

    fn drives() -> BTreeSet<String> {
        ["/dev/sdx", "/dev/sdy"].map(str::to_owned).into()
    }

    #[allow(clippy::disallowed_methods, reason = "the test waits for a thread")]
    fn until<T>(look: impl Fn() -> Option<T>) -> T {
        for _ in 0..500 {
            if let Some(found) = look() {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not come")
    }

    #[test]
    fn drives_are_asked_once_in_a_while_and_the_reader_does_not_wait() {
        let (dir, settings) = smartctl(
            r#"sleep 0.1; echo "$@" >> "$0.log"; echo '{"model_name":"m","smart_status":{"passed":true}}'"#,
        );
        let watch = DriveWatch::new(settings, |problem| panic!("{problem}"));
        assert_eq!(watch.of(&drives()), []);
        let known = until(|| Some(watch.of(&drives())).filter(|known| known.len() == 2));
        assert_eq!((known[1].drive.as_str(), known[1].is_healthy), ("/dev/sdy", Some(true)));
        for _ in 0..20 {
            let _ = watch.of(&drives());
        }
        let log = std::fs::read_to_string(dir.path().join("smartctl.log")).unwrap();
        assert_eq!(log.lines().count(), 2, "{log}");
        assert!(log.contains("-j -a -l scterc -n standby -- /dev/sdx\n"), "{log}");
        assert_eq!(watch.of(&BTreeSet::new()), []);
    }

    /// An alert once came of what a drive had said when it was asked before: ten minutes late.
    #[test]
    #[allow(clippy::print_stderr, reason = "what is skipped is said loudly")]
    fn what_is_asked_now_is_answered_now() {
        let (dir, settings) = smartctl(r#"cat "$0.says""#);
        let says = |passed: bool| {
            let said = format!("{{\"smart_status\":{{\"passed\":{passed}}}}}");
            std::fs::write(dir.path().join("smartctl.says"), said).unwrap();
        };
        let watch = DriveWatch::new(settings, |problem| panic!("{problem}"));
        let Some(member) =
            ["/dev/vda", "/dev/sda", "/dev/nvme0n1"].iter().find(|at| drive_below(at).is_some())
        else {
            return eprintln!("SKIPPED, NOT TESTED: no drive here");
        };
        for passed in [true, false, true] {
            says(passed);
            let told = watch.ask_by_member([*member].into_iter());
            assert_eq!(told[*member].is_healthy, Some(passed));
        }
    }

    /// One watch is asked by every server in turn.
    #[test]
    fn drives_of_one_server_do_not_push_out_those_of_another() {
        let (dir, settings) = smartctl(
            r#"sleep 0.1; echo "$@" >> "$0.log"; echo '{"model_name":"m","smart_status":{"passed":true}}'"#,
        );
        let watch = DriveWatch::new(settings, |problem| panic!("{problem}"));
        let servers = ["/dev/sdx", "/dev/sdy"].map(|drive| BTreeSet::from([drive.to_owned()]));
        until(|| servers.iter().map(|drives| watch.of(drives).len()).eq([1, 1]).then_some(()));
        for _ in 0..20 {
            for drives in &servers {
                let known: Vec<_> = watch.of(drives).into_iter().map(|health| health.drive).collect();
                assert_eq!(known, drives.iter().cloned().collect::<Vec<_>>());
            }
        }
        let log = std::fs::read_to_string(dir.path().join("smartctl.log")).unwrap();
        assert_eq!(log.lines().count(), 2, "{log}");
    }

    /// One that hangs takes the time of none but itself.
    #[test]
    fn drives_that_are_asked_at_once_answer_each_by_itself() {
        let script =
            "case \"$*\" in *sdx*) exec sleep 60;; esac; echo '{\"smart_status\":{\"passed\":false}}'";
        let (_dir, settings) = smartctl(script);
        let began = Instant::now();
        let all: BTreeSet<String> =
            (b'a'..=b'z').map(|letter| format!("/dev/sd{}", char::from(letter))).collect();
        let told =
            crate::smart::ask_all(&SmartSettings { time_max: Duration::from_secs(5), ..settings }, &all);
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
        assert_eq!(told.len(), 26);
        for (drive, answer) in told {
            match answer {
                Ok(health) => assert_eq!((health.is_healthy, drive == "/dev/sdx"), (Some(false), false)),
                Err(problem) => assert!(drive == "/dev/sdx" && problem.why.contains("longer"), "{problem}"),
            }
        }
    }

    #[test]
    fn a_smartctl_that_is_absent_or_hangs_is_said_once() {
        for (script, word) in [(Some("exec sleep 60"), "took longer"), (None, "No such file")] {
            let (dir, settings) = smartctl(script.unwrap_or_default());
            if script.is_none() {
                std::fs::remove_file(dir.path().join("smartctl")).unwrap();
            }
            let told = Arc::new(Mutex::new(Vec::new()));
            let keep = told.clone();
            let watch =
                DriveWatch::new(settings, move |problem| keep.lock().unwrap().push(problem.why.clone()));
            let _ = watch.of(&drives());
            until(|| (!lock(&watch.state).is_asking).then_some(()));
            assert_eq!(watch.of(&drives()), []);
            let told = told.lock().unwrap().clone();
            assert!(told.len() == 1 && told[0].contains(word), "{told:?}");
        }
    }
}
