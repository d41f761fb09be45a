//! Which files lie on the places that a scrub found: for commands, alerts and the page.
//!
//! What lies on the array is looked at through its server where the array itself is offered, else
//! on the members, read-only and without locks, as `wattle scan` does beside a server: partitions
//! and logical volumes on it, and the file systems there. What a client has in its page cache is
//! not on the array yet, so of files that are being written the answer may be old. Nothing here
//! keeps a scrub's result from being told.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use wattle_control::bcache::BcacheDevice;
use wattle_control::members::MemberAccess;
use wattle_control::scan::MemberOrigin;
use wattle_control::stack::{Purpose, Stack};
use wattle_control::{MemberId, Problem};
use wattle_format::lvm::{SegmentKind, Vg};
use wattle_fs::{FileKind, FileSystem, FilesAtPlaces, ReadAt};
use wattle_operate::scrub_files::{SCRUB_FILES_MAX, ScrubFile, ScrubFiles};
use wattle_rt::{BackendChoice, Core};
use wattle_server::protocol::report::{ArrayReport, RangeReport, ScrubReport};

use crate::cli::{Engine, Force};
use crate::commands::files::reader::{self, VolumeReader};
use crate::located;
use crate::members;
use crate::output::text::printable;
use crate::volumes;

/// Places of which files are looked up.
const PLACES_MAX: usize = 100;

/// Files and directories of one file system that are looked at.
const NODES_MAX: u64 = 2_000_000;

/// So long the files of one file system are read, to find those that cannot be: an alert waits.
const READING_MAX: Duration = Duration::from_secs(60);

/// Lines that a command shows.
const LINES_MAX: usize = 20;

const SECTOR: u64 = 512;

/// A line for each file on the places of a run, or why there is none.
pub fn lines(found: &ScrubFiles, array: &str) -> Vec<String> {
    let line = |file: &ScrubFile| {
        let bytes = file.bytes.map(|bytes| {
            format!(", bytes {}..{}", bytes.start_byte, bytes.start_byte.saturating_add(bytes.len_bytes))
        });
        format!("{}: {}{}", file.volume.as_deref().unwrap_or(array), file.path, bytes.unwrap_or_default())
    };
    let mut lines: Vec<String> = found.files.iter().take(LINES_MAX).map(line).collect();
    let more = found.files.len().saturating_sub(LINES_MAX) + found.more;
    if more > 0 {
        lines.push(format!("… and {more} more"));
    }
    lines.extend(found.notes.iter().cloned());
    lines.iter().map(|line| printable(line)).collect()
}

/// The files on the places of a run, of an array of the server `pid`. Takes as long as reading the
/// tree of each file system, and a minute for each more where sectors could not be compared.
pub fn of_run(access: &MemberAccess, pid: Option<u32>, array: &ArrayReport, run: &ScrubReport) -> ScrubFiles {
    let place = |found: &wattle_server::protocol::report::MismatchReport| {
        found.array_start_byte..found.array_start_byte.saturating_add(found.array_len_bytes)
    };
    let places = Places {
        bad: run.mismatches.iter().take(PLACES_MAX).map(place).collect(),
        // Where what could not be compared lies is not told: reading it shows.
        reads_all: run.unreadable_sectors > 0,
    };
    let mut found = ScrubFiles { run: run.run, ..ScrubFiles::default() };
    if places.bad.is_empty() && !places.reads_all {
        return found;
    }
    // What the server gives has members on it that another process may not look at.
    let through_it =
        volumes::way_in(&array.exports).map(|export| look(access, array, &[export], true, &places));
    let looked = match through_it {
        Some(Ok(looked)) if !looked.is_empty() => Ok(looked),
        through_it => {
            let names = array.members.iter().filter_map(|member| member.member.as_deref());
            let located = |name: &str| match pid {
                Some(pid) => located::of_server(pid, name),
                None => Ok(name.to_owned()),
            };
            let names: Result<Vec<String>, String> = names.map(located).collect();
            let looked = names.and_then(|names| {
                look(access, array, &names, false, &places).map_err(|problem| problem.what)
            });
            match (looked, through_it) {
                // Members that lie on layers have names that nothing opens.
                (Err(_), Some(Ok(none))) => Ok(none),
                (looked, _) => looked,
            }
        }
    };
    match looked {
        Ok(looked) if looked.is_empty() => {
            found
                .notes
                .push("files there cannot be named: no file system was found where they lie".to_owned());
        }
        Ok(looked) => looked.into_iter().for_each(|on| on.tell(&mut found)),
        Err(why) => found.notes.push(format!("files there cannot be named: {why}")),
    }
    if run.truncated || run.mismatches.len() > PLACES_MAX {
        found.notes.push("there are more places than are kept: more files may lie there".to_owned());
    }
    found
}

/// Where files are looked for.
#[derive(Debug, Clone)]
struct Places {
    bad: Vec<Range<u64>>,
    reads_all: bool,
}

/// What was found on one volume.
struct OnVolume {
    /// None if it is the array's own.
    volume: Option<String>,
    name: String,
    places: usize,
    /// Whether files are read to find those that cannot be.
    reads_all: bool,
    found: Result<Found, wattle_fs::Error>,
}

/// What was found in one file system.
struct Found {
    at: FilesAtPlaces,
    /// Files and directories that turned out to be touched when they were read.
    read: Vec<String>,
    /// Whether all were read that had to be.
    all_read: bool,
}

impl OnVolume {
    fn tell(self, all: &mut ScrubFiles) {
        let name = &self.name;
        let Found { at, read, all_read } = match self.found {
            Ok(found) => found,
            Err(error) => {
                all.notes.push(format!("{name}: files there cannot be named: {error}"));
                return;
            }
        };
        let mut push = |path: String, bytes: Option<RangeReport>| {
            if all.files.len() >= SCRUB_FILES_MAX {
                all.more += 1;
                return;
            }
            all.files.push(ScrubFile { volume: self.volume.clone(), path, bytes });
        };
        let named: BTreeSet<usize> = at.files.iter().map(|file| file.place).collect();
        let paths: BTreeSet<String> =
            at.files.iter().map(|file| String::from_utf8_lossy(&file.path).into_owned()).collect();
        for file in &at.files {
            let bytes = RangeReport {
                start_byte: file.bytes.start,
                len_bytes: file.bytes.end.saturating_sub(file.bytes.start),
            };
            push(printable(&String::from_utf8_lossy(&file.path)), Some(bytes));
        }
        let read: Vec<_> = read.into_iter().filter(|path| !paths.contains(path)).collect();
        let directories = read.iter().any(|path| path.ends_with('/'));
        read.into_iter().for_each(|path| push(printable(&path), None));
        if self.reads_all && !all_read {
            let what = "not all files were read to find those that cannot be: there may be more";
            all.notes.push(format!("{name}: {what}"));
        }
        let what = match (self.places.saturating_sub(named.len()), at.complete && all_read) {
            (0, _) => return,
            (rest, true) if directories => format!("{rest} places of no file: of directories, or free"),
            (rest, true) => format!("{rest} places of no file: free, or the file system's own"),
            (rest, false) => format!("{rest} places whose file was not found; not all was looked at"),
        };
        all.notes.push(format!("{name}: {what}"));
    }
}

/// What lies on the array that is given by its members, or as it is (`is_itself`).
fn look(
    access: &MemberAccess,
    array: &ArrayReport,
    names: &[String],
    is_itself: bool,
    places: &Places,
) -> Result<Vec<OnVolume>, Problem> {
    let force = Force { checks: Vec::new() };
    let scan = members::look(access, names, &force)?;
    members::run(&Engine::small(BackendChoice::Auto), 1, async |core| {
        let mut stack = volumes::open(&core, scan, access, &force, Purpose::Look).await?;
        let is_it = |origin: &MemberOrigin| match origin {
            MemberOrigin::Given => is_itself,
            MemberOrigin::Array(on) if !is_itself => {
                let known = stack.scan.arrays[*on].assembly.array.set_uuid.to_string();
                array.uuid.as_deref().is_none_or(|uuid| known == uuid)
            }
            _ => false,
        };
        let its: Vec<MemberId> =
            stack.scan.members.entries().filter(|(_, seen)| is_it(&seen.origin)).map(|(id, _)| id).collect();
        let found = of_stack(&core, &mut stack, array, &its, places).await;
        // Nothing was written.
        let _ = stack.close(&core).await;
        found
    })
}

async fn of_stack(
    core: &Core,
    stack: &mut Stack,
    array: &ArrayReport,
    its: &[MemberId],
    places: &Places,
) -> Result<Vec<OnVolume>, Problem> {
    let above = above(stack, its, places);
    let mut all = Vec::new();
    for (volume, _) in stack.file_systems() {
        let Ok(member) = volume.member else { continue };
        let Some(bad) = above.get(&member) else { continue };
        let places = Places { bad: bad.clone(), ..places.clone() };
        let on = stack.volume(core, member).await?;
        let is_own = its.contains(&member);
        let (reader, serving) = reader::bridge(core, on);
        let serving = core.spawn(serving);
        let (count, reads_all) = (places.bad.len(), places.reads_all);
        let found = core.offload(move || find(reader, places)).await.map_err(Problem::no_thread)?;
        serving.await;
        let name = if is_own { array.name.clone() } else { printable(&volume.name) };
        all.push(OnVolume { volume: (!is_own).then(|| name.clone()), name, places: count, reads_all, found });
    }
    Ok(all)
}

/// Files whose data lies there; and where that names none, or places are not told, what cannot be
/// read if they cannot.
fn find(volume: VolumeReader, places: Places) -> Result<Found, wattle_fs::Error> {
    let volume = Rc::new(volume);
    let fs = wattle_fs::open(Box::new(Shared(volume.clone())), None)?;
    let mut at = match places.bad.is_empty() {
        true => FilesAtPlaces { files: Vec::new(), complete: true },
        false => wattle_fs::files_at(&*fs, &places.bad, NODES_MAX),
    };
    // Of several subvolumes one is shown; and what is not the newest state may lie elsewhere.
    at.complete &= fs.left_out().is_empty() && fs.not_as_mounted().is_empty();
    let named: BTreeSet<usize> = at.files.iter().map(|file| file.place).collect();
    let is_all = named.len() == places.bad.len() && !places.reads_all;
    let (read, all_read) = if is_all { (Vec::new(), true) } else { read_all(Marked { volume, places }) };
    Ok(Found { at, read, all_read })
}

struct Shared(Rc<VolumeReader>);

impl ReadAt for Shared {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, into)
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
}

impl Places {
    fn touches(&self, place: &Range<u64>) -> bool {
        self.bad.iter().any(|bad| bad.start < place.end && place.start < bad.end)
    }
}

/// A volume on which those places cannot be read, and on which no other data has to be.
struct Marked {
    volume: Rc<VolumeReader>,
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

#[allow(clippy::disallowed_methods, reason = "it runs on a thread beside the cores, and must end")]
fn read_all(volume: Marked) -> (Vec<String>, bool) {
    let until = std::time::Instant::now() + READING_MAX;
    match wattle_fs::open(Box::new(volume), None) {
        Ok(fs) => touched(&*fs, || std::time::Instant::now() >= until),
        Err(_) => (Vec::new(), false),
    }
}

/// Paths of what cannot be read, and whether all was read. What is being read when the time is over
/// is none of them.
fn touched(fs: &dyn FileSystem, is_over: impl Fn() -> bool) -> (Vec<String>, bool) {
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
            Err(wattle_fs::Error::Stopped) => return (found, false),
            Err(_) => found.push(format!("{path}/")),
            Ok(()) => {}
        }
        for entry in entries {
            if found.len() >= SCRUB_FILES_MAX || seen.len() >= NODES_MAX as usize || is_over() {
                return (found, false);
            }
            let name = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let Ok(metadata) = fs.metadata(entry.node) else {
                found.push(name);
                continue;
            };
            match metadata.kind {
                FileKind::Directory if seen.insert(entry.node) => waiting.push((name, entry.node)),
                FileKind::File => match fs.read(entry.node, 0..metadata.size_bytes, &mut |_, _| goes_on()) {
                    Err(wattle_fs::Error::Stopped) => return (found, false),
                    Err(_) => found.push(name),
                    Ok(()) => {}
                },
                _ => {}
            }
        }
    }
    (found, true)
}

/// Where places of an array are on what lies on it, however many layers above.
fn above(stack: &Stack, its: &[MemberId], places: &Places) -> BTreeMap<MemberId, Vec<Range<u64>>> {
    let mut all: BTreeMap<MemberId, Vec<Range<u64>>> = BTreeMap::new();
    let mut next = its.to_vec();
    next.iter().for_each(|id| drop(all.insert(*id, places.bad.clone())));
    while let Some(below) = next.pop() {
        let cut = all.get(&below).cloned().unwrap_or_default();
        let mut found: Vec<(MemberId, Vec<Range<u64>>)> = Vec::new();
        for (id, seen) in stack.scan.members.entries() {
            match seen.origin {
                MemberOrigin::Partition { of, number } if of == below => {
                    let table = stack.scan.members[of].table.as_ref();
                    let part = table
                        .and_then(|table| table.partitions.iter().find(|part| part.number == number))
                        .map(|part| {
                            part.start_sectors * SECTOR..(part.start_sectors + part.len_sectors) * SECTOR
                        });
                    found.extend(part.map(|part| (id, within(&cut, &part))));
                }
                MemberOrigin::Decrypted { of } if of == below => {
                    let encryption = stack.scan.members[of].encryption.as_ref();
                    let segment = encryption.and_then(|found| found.header.segments.first());
                    let from = segment.map_or(0, |segment| segment.offset_bytes);
                    found.push((id, within(&cut, &(from..from + seen.member.device.size_bytes()))));
                }
                MemberOrigin::Layered { of } if of == below => {
                    // Where tags lie between the data a place is not that of another by a distance.
                    let from = stack.scan.members[of].bcache.as_ref().and_then(BcacheDevice::data_at_bytes);
                    let size = seen.member.device.size_bytes();
                    found.extend(from.map(|from| (id, within(&cut, &(from..from + size)))));
                }
                MemberOrigin::Logical { group, volume } => {
                    let group = &stack.groups[group];
                    let on =
                        |(pv, device): (usize, &Option<MemberId>)| (*device == Some(below)).then_some(pv);
                    let pvs = group.devices.iter().enumerate().filter_map(on);
                    for pv in pvs {
                        let lv = group.lv(volume);
                        found.push((id, in_volume(&group.vg, lv, pv, &cut)));
                    }
                }
                _ => {}
            }
        }
        // Places that are not told may be anywhere.
        let is_there = |cut: &Vec<Range<u64>>| places.reads_all || !cut.is_empty();
        for (id, cut) in found.into_iter().filter(|(_, cut)| is_there(cut)) {
            all.entry(id).or_default().extend(cut);
            next.push(id);
        }
    }
    all
}

/// What of some places lies in a part, counted from its start.
fn within(places: &[Range<u64>], part: &Range<u64>) -> Vec<Range<u64>> {
    let cut = |place: &Range<u64>| place.start.max(part.start)..place.end.min(part.end);
    let cut = places.iter().map(cut).filter(|place| place.start < place.end);
    cut.map(|place| place.start - part.start..place.end - part.start).collect()
}

/// What of some places of a physical volume lies in a logical one that is linear or striped.
fn in_volume(vg: &Vg, lv: &wattle_format::lvm::Lv, pv: usize, places: &[Range<u64>]) -> Vec<Range<u64>> {
    let extent = vg.extent_sectors * SECTOR;
    let Some(pv) = vg.pvs.get(pv) else { return Vec::new() };
    let mut found = Vec::new();
    for segment in &lv.segments {
        let SegmentKind::Striped { stripe_sectors, stripes } = &segment.kind else { continue };
        let (start, count) = (segment.start_extent * extent, stripes.len().max(1) as u64);
        let each = segment.extents * extent / count;
        for (number, area) in (0..).zip(stripes).filter(|(_, area)| area.name == pv.name) {
            let from = pv.pe_start * SECTOR + area.extent * extent;
            for place in within(places, &(from..from + each)) {
                if count == 1 {
                    found.push(start + place.start..start + place.end);
                    continue;
                }
                // Piece by piece: neighbours on the physical volume are apart in the logical one.
                let stripe = (stripe_sectors * SECTOR).max(SECTOR);
                let mut at = place.start;
                while at < place.end {
                    let end = ((at / stripe + 1) * stripe).min(place.end);
                    let there = start + (at / stripe * count + number) * stripe + at % stripe;
                    found.push(there..there + (end - at));
                    at = end;
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_cut_to_the_part_and_counted_from_its_start() {
        let places = [0..10, 95..105, 150..160, 199..300];
        assert_eq!(within(&places, &(100..200)), [0..5, 50..60, 99..100]);
        assert_eq!(within(&places, &(300..400)), []);
    }

    /// A search that was cut off says so: an empty list is not taken for all of it.
    #[test]
    fn a_search_that_was_cut_off_is_told() {
        let told = |reads_all, all_read| {
            let mut found = ScrubFiles::default();
            let at = FilesAtPlaces { files: Vec::new(), complete: true };
            let on = OnVolume {
                volume: None,
                name: "array".to_owned(),
                places: 1,
                reads_all,
                found: Ok(Found { at, read: Vec::new(), all_read }),
            };
            on.tell(&mut found);
            found.notes.join("\n")
        };
        assert!(told(true, false).contains("not all files were read"));
        assert!(told(false, false).contains("not all was looked at"));
        for reads_all in [true, false] {
            let text = told(reads_all, true);
            assert!(!text.contains("not all") && text.contains("1 places of no file"), "{text}");
        }
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
