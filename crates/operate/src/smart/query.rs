//! Running smartctl, for a bounded time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use wattle_control::Problem;

use super::DriveHealth;
use super::json::{not_asked, parse};

/// What is read of its output; a drive with every log has 200 KiB.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// How drives are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmartSettings {
    /// The program: a path, or a name that is looked up.
    pub smartctl: PathBuf,
    /// A drive that takes longer is not asked any further.
    pub time_max: Duration,
    /// How old an answer may be before the drive is asked again.
    pub period: Duration,
}

impl Default for SmartSettings {
    fn default() -> Self {
        let smartctl = PathBuf::from("smartctl");
        Self { smartctl, time_max: Duration::from_secs(30), period: Duration::from_secs(600) }
    }
}

/// Asks a drive, and waits for it. Blocking: not for a core, nor for the thread of a server.
///
/// # Errors
/// There is no smartctl, it took too long, or the drive could not be asked.
pub fn ask(settings: &SmartSettings, drive: &str) -> Result<DriveHealth, Problem> {
    let runtime = crate::http::blocking_runtime()
        .ok_or_else(|| not_asked(drive, "the system gives no descriptors", "raise `ulimit -n`"))?;
    runtime.block_on(async {
        let asked = tokio::time::timeout(settings.time_max, run(settings, drive)).await;
        asked.unwrap_or_else(|_| {
            let why = format!("smartctl took longer than {} s and was ended", settings.time_max.as_secs());
            Err(not_asked(
                drive,
                why,
                "a drive that does not answer is often about to fail: look at the kernel's log",
            ))
        })
    })
}

/// Drives that are asked at the same time.
const ASKED_AT_ONCE: usize = 32;

/// Asks drives at once, each within its time, and waits for all.
#[must_use]
pub fn ask_all(
    settings: &SmartSettings,
    drives: &BTreeSet<String>,
) -> BTreeMap<String, Result<DriveHealth, Problem>> {
    let mut told = BTreeMap::new();
    for some in drives.iter().collect::<Vec<_>>().chunks(ASKED_AT_ONCE) {
        std::thread::scope(|scope| {
            let asked: Vec<_> =
                some.iter().map(|drive| (*drive, scope.spawn(|| ask(settings, drive)))).collect();
            for (drive, answer) in asked {
                let answer = answer.join().unwrap_or_else(|_| {
                    Err(not_asked(drive, "its answer could not be read", "try `smartctl -a` with the drive"))
                });
                told.insert(drive.clone(), answer);
            }
        });
    }
    told
}

async fn run(settings: &SmartSettings, drive: &str) -> Result<DriveHealth, Problem> {
    let shown = settings.smartctl.display();
    let mut child = Command::new(&settings.smartctl)
        .args(["-j", "-a", "-l", "scterc", "-n", "standby", "--", drive])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            not_asked(drive, format!("{shown}: {error}"), "install smartmontools, or name smartctl's path")
        })?;
    let mut text = Vec::new();
    if let Some(output) = child.stdout.take() {
        let read = output.take(OUTPUT_BYTES_MAX).read_to_end(&mut text).await;
        read.map_err(|error| not_asked(drive, format!("{shown}: {error}"), "try it by hand"))?;
    }
    // Its exit status is in the text too.
    let _ = child.wait().await;
    parse(drive, &text)
}
