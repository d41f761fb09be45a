//! What is asked of others than servers while alerts are watched: which files lie where a check
//! found something, and how full file systems are.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use wattle_control::members::MemberAccess;
use wattle_fs::{Error, FileSystemUsage};
use wattle_operate::alerts::rules::{Asked, DriveFault, Fullness};
use wattle_operate::alerts::watch::AlertSources;
use wattle_operate::scrub_files::ScrubFiles;
use wattle_operate::smart::{DriveHealth, DriveWatch};
use wattle_server::protocol::report::{ArrayReport, ScrubReport, ServerReport, below};

use crate::commands::files::reader::MemberReader;
use crate::commands::{exporter, scrub};
use crate::volumes;

/// Asks the file systems on volumes.
pub struct Sources {
    access: MemberAccess,
    drives: Option<Arc<DriveWatch>>,
    /// By server and volume.
    known: Mutex<BTreeMap<(String, String), Known>>,
}

impl Sources {
    /// Volumes are opened like members.
    pub fn new(access: &MemberAccess) -> Self {
        Self {
            access: access.clone(),
            drives: exporter::drives(Path::new("smartctl")),
            known: Mutex::default(),
        }
    }
}

impl Sources {
    /// How full the file system on an offered volume is, by what its groups count. Nothing is read
    /// while nothing is written, so that drives may sleep. What is written is counted for arrays: a
    /// volume that lies on other drives is read each time.
    fn by_counts(
        &self,
        server: &ServerReport,
        name: &str,
        exports: &[String],
        written: &Written,
    ) -> Result<Option<Fullness>, Uncounted> {
        let key = (server.server.clone(), name.to_owned());
        let before = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some((then, full)) = &before
            && then == written
            && is_counted(server, name)
        {
            return Ok(full.clone());
        }
        let full = match counted(&self.access, name, exports) {
            Ok(full) => full,
            // A count may be half written while it is read: what was known holds until then.
            Err(Uncounted) => return before.map(|(_, full)| full).ok_or(Uncounted),
        };
        let known = (written.clone(), full.clone());
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, known);
        Ok(full)
    }
}

/// What counts could not be read, or was damaged.
struct Uncounted;

/// How full a file system was, and what had been written by then.
type Known = (Written, Option<Fullness>);

/// What clients have written to a server's arrays since it started: which start, and bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Written {
    pid: u32,
    bytes: u64,
}

impl Written {
    fn of(server: &ServerReport) -> Self {
        let bytes = server.arrays.iter().map(|array| array.counters.write_bytes).fold(0, u64::wrapping_add);
        Self { pid: server.pid, bytes }
    }
}

/// Whether what clients write to a volume shows in what its server's arrays count.
fn is_counted(server: &ServerReport, name: &str) -> bool {
    let lies_on = below(&server.groups, name);
    let is_below = |id: &String, array: &ArrayReport| *id == array.name || Some(id) == array.uuid.as_ref();
    server.arrays.iter().any(|array| array.name == name || lies_on.iter().any(|id| is_below(id, array)))
}

/// What clients are offered, and where.
fn offered(server: &ServerReport) -> impl Iterator<Item = (&String, &[String])> {
    let arrays = server.arrays.iter().map(|array| (&array.name, &array.exports[..]));
    arrays.chain(server.volumes.iter().map(|volume| (&volume.name, &volume.exports[..])))
}

impl AlertSources for Sources {
    fn files_at(&self, server: &ServerReport, array: &ArrayReport, run: &ScrubReport) -> ScrubFiles {
        scrub::files::of_run(&self.access, Some(server.pid), array, run)
    }

    fn fullness(&self, server: &ServerReport) -> Option<Asked<Fullness>> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounted = mounts.lines().filter_map(|line| mounted_here(server, line));
        let mut asked: Asked<_> = mounted.map(|(name, full)| (name.to_owned(), Some(full))).collect();
        let written = Written::of(server);
        for (name, exports) in offered(server) {
            if matches!(asked.get(name), Some(Some(_))) {
                continue;
            }
            if let Ok(full) = self.by_counts(server, name, exports, &written) {
                asked.insert(name.clone(), full);
            }
        }
        // What is not served any more is forgotten.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, name), _| {
            *of != server.server || self::offered(server).any(|(offered, _)| offered == name)
        });
        Some(asked)
    }

    fn drives(&self, server: &ServerReport) -> Option<Asked<DriveFault>> {
        let members = server.arrays.iter().flat_map(|array| array.members.iter().chain(&array.replacements));
        let known =
            self.drives.as_ref()?.ask_by_member(members.filter_map(|member| member.member.as_deref()));
        let verdict = |(member, health): (String, DriveHealth)| {
            // One that sleeps or does not answer says nothing.
            let fails = !health.is_healthy?;
            let what = "its own verdict (SMART) is that it is failing".to_owned();
            let fault = fails.then(|| DriveFault { member: member.clone(), what });
            Some((member, fault))
        };
        Some(known.into_iter().filter_map(verdict).collect())
    }
}

/// The device of a line of `mountinfo`, as its numbers, and the directory.
fn mount(line: &str) -> Option<(&str, String)> {
    let mut fields = line.split(' ');
    let device = fields.nth(2)?;
    let place = fields.nth(1)?;
    let unescaped = place.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
    Some((device, unescaped))
}

/// How full the file system of a line of `mountinfo` is, if it lies on a volume of the server by
/// way of a loop device.
fn mounted_here<'a>(server: &'a ServerReport, line: &str) -> Option<(&'a str, Fullness)> {
    let (device, place) = mount(line)?;
    let backing = fs::read_to_string(format!("/sys/dev/block/{device}/loop/backing_file")).ok()?;
    let backing = backing.trim_end_matches('\n');
    let (name, _) = offered(server).find(|(_, exports)| exports.iter().any(|way| way == backing))?;
    let stat = rustix::fs::statvfs(Path::new(&place)).ok()?;
    // As `df` has it: what only root may use is neither used nor free.
    let used = stat.f_blocks.saturating_sub(stat.f_bfree);
    let usable = used.saturating_add(stat.f_bavail);
    let percent = used.saturating_mul(100).div_ceil(usable.max(1));
    let full = Fullness {
        volume: name.clone(),
        percent: u8::try_from(percent).unwrap_or(100).min(100),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
    };
    Some((name, full))
}

/// The same of a volume that may be mounted anywhere, as far as it is on the array. None if no file
/// system that is known lies there.
fn counted(access: &MemberAccess, volume: &str, exports: &[String]) -> Result<Option<Fullness>, Uncounted> {
    let Some(export) = volumes::way_in(exports) else {
        return if exports.is_empty() { Ok(None) } else { Err(Uncounted) };
    };
    let member = access.look(&export).map_err(|_| Uncounted)?;
    let full = |usage: FileSystemUsage| Fullness {
        volume: volume.to_owned(),
        percent: usage.percent(),
        free_bytes: usage.free_bytes,
    };
    match wattle_fs::usage(Box::new(MemberReader(member))) {
        Ok(usage) => Ok(Some(full(usage))),
        Err(Error::Unrecognised | Error::Unsupported { .. } | Error::UnknownFeatures { .. }) => Ok(None),
        Err(_) => Err(Uncounted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_server::fixtures::array;

    /// An ext2 of 1 MiB in one group, of whose 1023 blocks so many are free.
    fn ext2(free: u16) -> Vec<u8> {
        let mut image = vec![0; 1 << 20];
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        for (at, value) in [(0x0, 128_u32), (0x4, 1024), (0x14, 1), (0x20, 8192), (0x28, 128)] {
            put(1024 + at, &value.to_le_bytes());
        }
        put(1024 + 0x38, &0xef53_u16.to_le_bytes());
        put(2048 + 0xc, &free.to_le_bytes());
        image
    }

    #[test]
    fn a_volume_is_read_again_only_after_something_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        let sources = Sources { access: MemberAccess::local(), drives: None, known: Mutex::default() };
        let mut data = array("data", "raid1", &["a", "b"]);
        data.exports = vec![file.display().to_string()];
        let mut server = ServerReport {
            server: "data".to_owned(),
            pid: 7,
            arrays: vec![data],
            volumes: Vec::new(),
            groups: Vec::new(),
            threads: Vec::new(),
            cpu_ms: None,
            qos: Vec::new(),
            checkpoints: Vec::new(),
            reservations: Vec::new(),
            sole_array: None,
            stopped: Vec::new(),
        };
        let percent = |server: &ServerReport| {
            let full = sources.fullness(server).unwrap().into_values().flatten().next()?;
            Some((full.volume, full.percent))
        };
        fs::write(&file, ext2(24)).unwrap();
        let nearly = Some(("data".to_owned(), 98));
        assert_eq!(percent(&server), nearly);
        fs::write(&file, ext2(1000)).unwrap();
        assert_eq!(percent(&server), nearly, "nothing was written since");
        server.arrays[0].counters.write_bytes += 4096;
        assert_eq!(percent(&server), Some(("data".to_owned(), 3)));
        // What cannot be read is as it was; what is none is forgotten.
        server.arrays[0].counters.write_bytes += 4096;
        fs::write(&file, &ext2(0)[..2048]).unwrap();
        assert_eq!(percent(&server), Some(("data".to_owned(), 3)));
        server.pid = 8;
        fs::write(&file, vec![0; 1 << 20]).unwrap();
        assert_eq!(percent(&server), None);
        server.arrays[0].exports.clear();
        assert_eq!(percent(&server), None);
        // Of what could never be read nothing is said, also not that there is nothing.
        server.arrays[0].exports = vec![file.display().to_string()];
        fs::remove_file(&file).unwrap();
        server.pid = 9;
        sources.known.lock().unwrap().clear();
        assert_eq!(sources.fullness(&server).unwrap(), Asked::new());
        server.arrays.clear();
        sources.fullness(&server);
        assert!(sources.known.lock().unwrap().is_empty());
    }

    /// No array counts what is written to it: its file system may have filled up at any time.
    #[test]
    fn a_volume_that_lies_on_no_array_is_read_at_every_look() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("home");
        let sources = Sources { access: MemberAccess::local(), drives: None, known: Mutex::default() };
        let server: ServerReport = serde_json::from_value(serde_json::json!({
            "server": "tank", "pid": 7, "arrays": [],
            "volumes": [{
                "name": "tank/home", "size_bytes": 1 << 20, "read_only": false,
                "exports": [file.display().to_string()],
            }],
            "groups": [{ "name": "tank", "uuid": "u" }],
        }))
        .unwrap();
        let percent = || sources.fullness(&server).unwrap()["tank/home"].as_ref().unwrap().percent;
        fs::write(&file, ext2(1000)).unwrap();
        assert_eq!(percent(), 3);
        fs::write(&file, ext2(24)).unwrap();
        assert_eq!(percent(), 98);
    }

    #[test]
    fn a_line_of_mountinfo_has_a_device_and_a_directory() {
        let line = "36 35 7:3 / /mnt/two\\040words rw,noatime master:1 - ext4 /dev/loop3 rw";
        assert_eq!(mount(line), Some(("7:3", "/mnt/two words".to_owned())));
        assert_eq!(mount(""), None);
    }
}
