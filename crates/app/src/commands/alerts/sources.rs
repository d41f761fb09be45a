//! What is asked of others than servers while alerts are watched: which files lie where a check
//! found something, and how full file systems are.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wattle_control::Problem;
use wattle_control::members::MemberAccess;
use wattle_fs::{FileKind, FileSystem, ReadAt};
use wattle_operate::alerts::rules::{DriveFault, Fullness};
use wattle_operate::alerts::watch::AlertSources;
use wattle_operate::smart::{DriveHealth, DriveWatch};
use wattle_rt::BackendChoice;
use wattle_server::protocol::report::{ArrayReport, MismatchReport, ScrubReport, ServerReport};

use crate::cli::{Engine, Force};
use crate::commands::exporter;
use crate::commands::files::reader::{self, VolumeReader};
use crate::output::text::printable;
use crate::volumes::{self, Meant};

/// Files that are named.
const FILES_MAX: usize = 100;

/// Files and directories that are looked at.
const LOOKED_AT_MAX: usize = 2_000_000;

/// So long files are looked at: an alert waits for it.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Asks the file systems on volumes.
pub struct Sources {
    access: MemberAccess,
    drives: Option<Arc<DriveWatch>>,
}

impl Sources {
    /// Volumes are opened like members.
    pub fn new(access: &MemberAccess) -> Self {
        Self { access: access.clone(), drives: exporter::drives(Path::new("smartctl")) }
    }
}

impl AlertSources for Sources {
    fn files_at(&self, _: &ServerReport, array: &ArrayReport, run: &ScrubReport) -> Vec<String> {
        let is_nbd = |export: &&String| export.starts_with("nbd");
        let Some(export) = array.exports.iter().find(is_nbd) else { return Vec::new() };
        let places = Places {
            bad: run.mismatches.iter().map(range).collect(),
            // Where what could not be compared lies is not told: reading it shows.
            reads_all: run.unreadable_sectors > 0,
        };
        let named = files_on(&self.access, export, array.size_bytes, places);
        named.unwrap_or_default().iter().map(|path| printable(path)).collect()
    }

    fn fullness(&self, server: &ServerReport) -> Option<Vec<Fullness>> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let arrays = server.arrays.iter().map(|array| (&array.name, &array.exports));
        let volumes = server.volumes.iter().map(|volume| (&volume.name, &volume.exports));
        let served: Vec<_> = arrays.chain(volumes).collect();
        let full = |line: &str| {
            let (device, place) = mount(line)?;
            let backing = fs::read_to_string(format!("/sys/dev/block/{device}/loop/backing_file")).ok()?;
            let backing = backing.trim_end_matches('\n');
            let (name, _) = served.iter().find(|(_, exports)| exports.iter().any(|way| way == backing))?;
            fullness(name, Path::new(&place))
        };
        Some(mounts.lines().filter_map(full).collect())
    }

    fn drives(&self, server: &ServerReport) -> Option<Vec<DriveFault>> {
        let members = server.arrays.iter().flat_map(|array| array.members.iter().chain(&array.replacements));
        let known = self.drives.as_ref()?.by_member(members.filter_map(|member| member.member.as_deref()));
        let says_fault = |(member, health): (&String, &DriveHealth)| {
            let what = "its own verdict (SMART) is that it is failing".to_owned();
            (health.is_healthy == Some(false)).then(|| DriveFault { member: member.clone(), what })
        };
        // Of what none was asked yet, nothing is known.
        (!known.is_empty()).then(|| known.iter().filter_map(says_fault).collect())
    }
}

fn range(found: &MismatchReport) -> Range<u64> {
    found.array_start_byte..found.array_start_byte.saturating_add(found.array_len_bytes)
}

/// The device of a line of `mountinfo`, as its numbers, and the directory.
fn mount(line: &str) -> Option<(&str, String)> {
    let mut fields = line.split(' ');
    let device = fields.nth(2)?;
    let place = fields.nth(1)?;
    let unescaped = place.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
    Some((device, unescaped))
}

fn fullness(volume: &str, mounted_at: &Path) -> Option<Fullness> {
    let stat = rustix::fs::statvfs(mounted_at).ok()?;
    // As `df` has it: what only root may use is neither used nor free.
    let used = stat.f_blocks.saturating_sub(stat.f_bfree);
    let usable = used.saturating_add(stat.f_bavail);
    let percent = used.saturating_mul(100).div_ceil(usable.max(1));
    Some(Fullness {
        volume: volume.to_owned(),
        percent: u8::try_from(percent).unwrap_or(100).min(100),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// Where files are looked for.
struct Places {
    bad: Vec<Range<u64>>,
    reads_all: bool,
}

impl Places {
    fn touches(&self, place: &Range<u64>) -> bool {
        self.bad.iter().any(|bad| bad.start < place.end && place.start < bad.end)
    }
}

/// A volume on which those places cannot be read, and on which no other data has to be.
struct Marked {
    volume: VolumeReader,
    places: Places,
}

impl ReadAt for Marked {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self.places.touches(&(offset..offset + into.len() as u64)) {
            true => Err(io::Error::other("it lies there")),
            false => self.volume.read_at(offset, into),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.volume.size_bytes()
    }

    fn data_lies_at(&self, place: Range<u64>) -> Option<io::Result<()>> {
        match self.places.touches(&place) {
            true => Some(Err(io::Error::other("it lies there"))),
            false => (!self.places.reads_all).then_some(Ok(())),
        }
    }
}

/// The files of the file system on the volume at `export` that lie there. None where the file
/// system is not as large as the array: then it lies on something between them.
fn files_on(
    access: &MemberAccess,
    export: &str,
    size_bytes: u64,
    places: Places,
) -> Result<Vec<String>, Problem> {
    let engine = Engine { cores: Some(1), backend: BackendChoice::Auto };
    let names = [export.to_owned()];
    let force = Force { checks: Vec::new() };
    volumes::read(access, &names, Meant::Files(None), &force, (&engine, 1), async |core, volume, _| {
        if volume.size_bytes() != size_bytes {
            return Ok(Vec::new());
        }
        let (reader, serving) = reader::bridge(&core, volume.clone());
        let serving = core.spawn(serving);
        let named = core.offload(move || walk(Marked { volume: reader, places })).await;
        serving.await;
        named.map_err(Problem::no_thread)
    })
}

#[allow(clippy::disallowed_methods, reason = "it runs on a thread beside the cores, and must end")]
fn walk(volume: Marked) -> Vec<String> {
    let until = std::time::Instant::now() + TIME_MAX;
    match wattle_fs::open(Box::new(volume), None) {
        Ok(fs) => touched(&*fs, || std::time::Instant::now() >= until),
        Err(_) => Vec::new(),
    }
}

/// Paths of what cannot be read. What is being read when the time is over is none of them.
fn touched(fs: &dyn FileSystem, is_over: impl Fn() -> bool) -> Vec<String> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::from([fs.root()]));
    let mut waiting = vec![(String::new(), fs.root())];
    let goes_on = || if is_over() { Err(wattle_fs::Error::Stopped) } else { Ok(()) };
    while let Some((path, directory)) = waiting.pop() {
        let mut entries = Vec::new();
        let listed = fs.list(directory, &mut |entry| {
            entries.push(entry);
            goes_on()
        });
        match listed {
            Err(wattle_fs::Error::Stopped) => return found,
            Err(_) => found.push(format!("{path}/")),
            Ok(()) => {}
        }
        for entry in entries {
            if found.len() >= FILES_MAX || seen.len() >= LOOKED_AT_MAX || is_over() {
                return found;
            }
            let name = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let Ok(metadata) = fs.metadata(entry.node) else {
                found.push(name);
                continue;
            };
            match metadata.kind {
                FileKind::Directory if seen.insert(entry.node) => waiting.push((name, entry.node)),
                FileKind::File => match fs.read(entry.node, 0..metadata.size_bytes, &mut |_, _| goes_on()) {
                    Err(wattle_fs::Error::Stopped) => return found,
                    Err(_) => found.push(name),
                    Ok(()) => {}
                },
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_has_a_device_and_a_directory() {
        let line = "36 35 7:3 / /mnt/two\\040words rw,noatime master:1 - ext4 /dev/loop3 rw";
        assert_eq!(mount(line), Some(("7:3", "/mnt/two words".to_owned())));
        assert_eq!(mount(""), None);
    }

    #[test]
    fn a_place_is_touched_by_what_overlaps_it() {
        let places = Places { bad: std::iter::once(10..20).collect(), reads_all: false };
        for (place, touches) in
            [(0..10, false), (0..11, true), (19..30, true), (20..30, false), (12..13, true)]
        {
            assert_eq!(places.touches(&place), touches, "{place:?}");
        }
    }
}
