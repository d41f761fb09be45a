//! `wattle examine --format`: what mdadm prints of these members.

use std::process::ExitCode;

use wattle_control::scan::MemberScan;
use wattle_control::{Code, Problem, Scan};
use wattle_format::md::Features;
use wattle_format::md::{self, ByteOrder, SuperblockFields, Version, bitmap};

use super::fields::bytes;
use crate::cli::ExamineFormat;
use crate::environment::local_time;
use crate::output::mdadm::{self, Examined, FoundBitmap, Surroundings};
use crate::output::text::printable;
use crate::output::{self, Screen};
use wattle_server::ids::host_name;

/// Where mdadm looks for partitions.
const SECTOR_BYTES: usize = 512;

/// Prints what there is, and says of each other member why there is nothing.
///
/// # Errors
/// Nothing can be printed.
pub fn run(
    scan: &Scan,
    asked: &[String],
    unopened: &[Problem],
    format: ExamineFormat,
    screen: Screen,
) -> Result<ExitCode, Problem> {
    let host = host_name();
    let here = Surroundings { host: &host, time_of: local_time };
    // mdadm looks at what it is given, and not at partitions on it.
    let given = scan.members.iter().filter(|member| asked.contains(&member.member.name));
    let chosen: Vec<_> = given.map(|member| (member, Chosen::of(member))).collect();
    let names: Vec<_> = chosen.iter().map(|(member, _)| printable(&member.member.name)).collect();
    let found = |index: usize| {
        let (member, chosen) = &chosen[index];
        chosen.as_ref().map(|chosen| chosen.examined(member, &names[index]))
    };
    let mut problems: Vec<Problem> = unopened.to_vec();
    let mut text = String::new();
    match format {
        ExamineFormat::Scan | ExamineFormat::ScanVerbose => {
            let all: Vec<_> = (0..chosen.len()).filter_map(found).collect();
            text = mdadm::examine_scan(&all, format == ExamineFormat::ScanVerbose);
            // mdadm is silent about what is no member.
        }
        ExamineFormat::Mdadm | ExamineFormat::Export => {
            for (index, (member, _)) in chosen.iter().enumerate() {
                match (found(index), format) {
                    (Some(found), ExamineFormat::Export) => text += &mdadm::examine_export(&found),
                    (Some(found), _) => text += &mdadm::examine(&found, here),
                    (None, _) => match partitions(member, &names[index]) {
                        Some(list) if format == ExamineFormat::Mdadm => text += &list,
                        Some(_) => {}
                        None => problems.push(no_superblock(member)),
                    },
                }
            }
        }
    }
    output::print(&text)?;
    let mut status = ExitCode::SUCCESS;
    for problem in &problems {
        status = output::report(problem, screen.style_err);
    }
    Ok(status)
}

fn no_superblock(scan: &MemberScan) -> Problem {
    let name = &scan.member.name;
    scan.problem.clone().unwrap_or_else(|| {
        Problem::new(
            Code::NoSuperblock,
            format!("{name}: no md superblock"),
            "mdadm shows only what has one",
            format!("see what is on it: `wattle examine {name}`"),
        )
        .of_member(name)
    })
}

fn partitions(scan: &MemberScan, name: &str) -> Option<String> {
    if scan.member.device.size_bytes() < SECTOR_BYTES as u64 {
        return None;
    }
    mdadm::partitions(name, &scan.member.read(0, SECTOR_BYTES).ok()?)
}

/// The superblock that mdadm would show, as it would show it.
struct Chosen {
    fields: SuperblockFields,
    bitmap: Option<FoundBitmap>,
}

impl Chosen {
    /// Of several superblocks the one whose array was made last; of damaged ones also those that
    /// fail checks, as long as they lie where they say.
    fn of(scan: &MemberScan) -> Option<Self> {
        let valid = scan.superblocks.iter().map(|superblock| &**superblock);
        let damaged = scan.damaged.iter().map(md::RawSuperblock::fields);
        let mut all: Vec<&SuperblockFields> =
            valid.chain(damaged).filter(|fields| is_shown(fields)).collect();
        all.sort_by_key(|fields| fields.version());
        let newer =
            |best: &'_ SuperblockFields, other: &SuperblockFields| best.ctime().secs < other.ctime().secs;
        let best = all.into_iter().reduce(|best, other| if newer(best, other) { other } else { best })?;
        let bitmap = bitmap_of(scan, best);
        let fields = match bitmap {
            None => without_bitmap(best, scan.member.size_sectors()),
            Some(_) => best.clone(),
        };
        Some(Self { fields, bitmap })
    }

    fn examined<'a>(&'a self, scan: &MemberScan, name: &'a str) -> Examined<'a> {
        Examined { name, fields: &self.fields, size_sectors: scan.member.size_sectors(), bitmap: self.bitmap }
    }
}

fn is_shown(fields: &SuperblockFields) -> bool {
    fields.byte_order() == ByteOrder::Little && fields.super_offset_sectors() == fields.found_at_sectors()
}

/// The bitmap that is where the superblock says, if it is this array's.
fn bitmap_of(scan: &MemberScan, fields: &SuperblockFields) -> Option<FoundBitmap> {
    let at = bytes(fields.sector_from_superblock(fields.bitmap_offset_sectors()?)?);
    if at.saturating_add(bitmap::HEADER_BYTES as u64) > scan.member.device.size_bytes() {
        return None;
    }
    let header = bitmap::Header::decode(&scan.member.read(at, bitmap::HEADER_BYTES).ok()?).ok()?;
    let own = header.uuid() == fields.stored_uuid();
    own.then(|| FoundBitmap {
        covers_sectors: header.sync_size_sectors(),
        chunk_bytes: header.chunk_field().into(),
    })
}

/// The same superblock without the bit that says that there is a bitmap: mdadm takes it out where
/// there is none, and then finds the checksum wrong.
fn without_bitmap(fields: &SuperblockFields, size_sectors: u64) -> SuperblockFields {
    let mut bytes = *fields.bytes();
    match fields.version() {
        // Bit 8 of the state (docs/formats.md §1.4).
        Version::V090 => bytes[4 * 33 + 1] &= !1,
        _ => bytes[8] &= !(Features::BITMAP.0 as u8),
    }
    let read = md::read(fields.version(), &bytes, size_sectors);
    read.map_or_else(|| fields.clone(), |raw| raw.fields().clone())
}
