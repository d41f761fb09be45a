//! Which files lie on the places that a scrub found.
//!
//! The members are looked at a second time, read-only and without locks, as `wattle scan` does
//! beside a server: the array, partitions and logical volumes on it, and the file systems there.
//! What a client has in its page cache is not on the members yet, so of files that are being
//! written the answer may be old. Nothing here keeps a scrub's result from being told.

use std::collections::BTreeMap;
use std::ops::Range;

use wattle_control::members::MemberAccess;
use wattle_control::scan::MemberOrigin;
use wattle_control::stack::{Purpose, Stack};
use wattle_control::{MemberId, Problem};
use wattle_format::lvm::{SegmentKind, Vg};
use wattle_fs::FilesAtPlaces;
use wattle_rt::{BackendChoice, Core};
use wattle_server::protocol::report::{ArrayReport, ScrubReport};

use crate::cli::{Engine, Force};
use crate::commands::files::reader;
use crate::members;
use crate::output::text::printable;
use crate::volumes;

/// Places of which files are looked up.
const PLACES_MAX: usize = 100;

/// Files and directories of one file system that are looked at.
const NODES_MAX: u64 = 2_000_000;

/// Lines that are shown.
const LINES_MAX: usize = 20;

const SECTOR: u64 = 512;

/// A line for each file on the places of a run, or why there is none.
pub fn on_places(array: &ArrayReport, run: &ScrubReport) -> Vec<String> {
    let places: Vec<Range<u64>> = run
        .mismatches
        .iter()
        .take(PLACES_MAX)
        .map(|place| place.array_start_byte..place.array_start_byte.saturating_add(place.array_len_bytes))
        .collect();
    if places.is_empty() {
        return Vec::new();
    }
    match look(array, &places) {
        Ok(lines) => lines,
        Err(problem) => vec![format!("files there cannot be named: {}", problem.what)],
    }
}

fn look(array: &ArrayReport, places: &[Range<u64>]) -> Result<Vec<String>, Problem> {
    let names: Vec<String> = array.members.iter().filter_map(|member| member.member.clone()).collect();
    let force = Force { checks: Vec::new() };
    let access = MemberAccess::local();
    let scan = members::look(&access, &names, &force)?;
    members::run(&Engine { cores: None, backend: BackendChoice::Auto }, 1, async |core| {
        let mut stack = volumes::open(&core, scan, &access, &force, Purpose::Look).await?;
        let lines = of_stack(&core, &mut stack, array.uuid.as_deref(), places).await;
        // Nothing was written.
        let _ = stack.close(&core).await;
        lines
    })
}

async fn of_stack(
    core: &Core,
    stack: &mut Stack,
    uuid: Option<&str>,
    places: &[Range<u64>],
) -> Result<Vec<String>, Problem> {
    let above = above(stack, uuid, places);
    let mut lines = Vec::new();
    for (volume, _) in stack.file_systems() {
        let Ok(member) = volume.member else { continue };
        let Some(places) = above.get(&member) else { continue };
        let on = stack.volume(core, member).await?;
        let (reader, serving) = reader::bridge(core, on);
        let serving = core.spawn(serving);
        let wanted = places.clone();
        let found = core.offload(move || {
            let fs = wattle_fs::open(Box::new(reader), None)?;
            Ok::<FilesAtPlaces, wattle_fs::Error>(wattle_fs::files_at(&*fs, &wanted, NODES_MAX))
        });
        let found = found.await.map_err(Problem::no_thread)?;
        serving.await;
        lines.extend(told(&volume.name, found, places.len()));
    }
    if lines.len() > LINES_MAX {
        lines.truncate(LINES_MAX);
        lines.push("… and more files".to_owned());
    }
    Ok(lines)
}

fn told(volume: &str, found: Result<FilesAtPlaces, wattle_fs::Error>, places: usize) -> Vec<String> {
    let found = match found {
        Ok(found) => found,
        Err(error) => return vec![printable(&format!("{volume}: files there cannot be named: {error}"))],
    };
    let mut lines: Vec<String> = found
        .files
        .iter()
        .map(|file| {
            let path = String::from_utf8_lossy(&file.path);
            printable(&format!("{volume}: {path}, bytes {}..{}", file.bytes.start, file.bytes.end))
        })
        .collect();
    let named: std::collections::BTreeSet<usize> = found.files.iter().map(|file| file.place).collect();
    match places - named.len() {
        0 => {}
        rest if found.complete => {
            lines.push(format!("{volume}: {rest} places of no file: free, or the file system's own"));
        }
        rest => {
            lines.push(format!("{volume}: {rest} places whose file was not found; not all was looked at"));
        }
    }
    lines
}

/// Where places of an array are on what lies on it, however many layers above.
fn above(stack: &Stack, uuid: Option<&str>, places: &[Range<u64>]) -> BTreeMap<MemberId, Vec<Range<u64>>> {
    let mut all: BTreeMap<MemberId, Vec<Range<u64>>> = BTreeMap::new();
    let is_it = |origin: &MemberOrigin| match origin {
        MemberOrigin::Array(array) => {
            let known = stack.scan.arrays[*array].assembly.array.set_uuid.to_string();
            uuid.is_none_or(|uuid| known == uuid)
        }
        _ => false,
    };
    let mut next: Vec<MemberId> =
        stack.scan.members.entries().filter(|(_, seen)| is_it(&seen.origin)).map(|(id, _)| id).collect();
    next.iter().for_each(|id| drop(all.insert(*id, places.to_vec())));
    while let Some(below) = next.pop() {
        let places = all.get(&below).cloned().unwrap_or_default();
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
                    found.extend(part.map(|part| (id, within(&places, &part))));
                }
                MemberOrigin::Decrypted { of } if of == below => {
                    let encryption = stack.scan.members[of].encryption.as_ref();
                    let segment = encryption.and_then(|found| found.header.segments.first());
                    let from = segment.map_or(0, |segment| segment.offset_bytes);
                    found.push((id, within(&places, &(from..from + seen.member.device.size_bytes()))));
                }
                MemberOrigin::Logical { group, volume } => {
                    let group = &stack.groups[group];
                    let on =
                        |(pv, device): (usize, &Option<MemberId>)| (*device == Some(below)).then_some(pv);
                    let pvs = group.devices.iter().enumerate().filter_map(on);
                    for pv in pvs {
                        let lv = group.lv(volume);
                        found.push((id, in_volume(&group.vg, lv, pv, &places)));
                    }
                }
                _ => {}
            }
        }
        for (id, places) in found.into_iter().filter(|(_, places)| !places.is_empty()) {
            all.entry(id).or_default().extend(places);
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
}
