//! How files and free space lie: from the census of a file system to facts, and from figures to
//! what is shown; and the drives that reading is reckoned with.

use serde::Serialize;
use wattle_advise::audit::FileSystemFigures;
use wattle_advise::audit::fragments::{
    ExtentCounts, FragmentFacts, FreeSpaceFacts, PieceBefore, PieceFacts, ReadFigures, ReadModels,
};
use wattle_control::{Code, Problem};
use wattle_drives::{Drive, DriveError, Media, ModelDrive, Preset, SeekCurve};
use wattle_fs::{ExtentTally, FileSystemCensus, PieceClass};

use crate::output::Screen;
use crate::output::text::printable;

pub fn facts(census: &FileSystemCensus) -> FragmentFacts {
    let piece = |class: &PieceClass, after| PieceFacts {
        count: class.pieces,
        bytes: class.bytes,
        gaps: class.distance,
        after,
    };
    let anywhere = |class: &PieceClass| piece(class, PieceBefore::Anywhere);
    let reading = &census.reading;
    let jumps = reading
        .jumps
        .iter()
        .map(|(jump, class)| piece(class, if jump.back { PieceBefore::Above } else { PieceBefore::Below }));
    let free = &census.free;
    FragmentFacts {
        inodes: census.inodes,
        inodes_seen: census.inodes_seen,
        complete: census.complete,
        damaged: census.damaged,
        files: counts(&census.files),
        all: counts(&census.all()),
        free: FreeSpaceFacts {
            extents: free.extents,
            bytes: free.bytes,
            smallest: free.smallest,
            largest: free.largest,
            classes: free.classes.iter().map(|(log, class)| (1 << log, class.extents, class.bytes)).collect(),
            complete: free.complete,
        },
        groups_used: census.groups_used.clone(),
        whole: reading.files.values().map(anywhere).collect(),
        pieces: reading.firsts.values().map(anywhere).chain(jumps).collect(),
    }
}

fn counts(tally: &ExtentTally) -> ExtentCounts {
    ExtentCounts {
        files: tally.forks,
        fragmented: tally.fragmented,
        extents: tally.extents,
        ideal: tally.ideal,
        pieces: tally.pieces,
        bytes: tally.bytes,
    }
}

/// The drives to reckon with; `given` instead of all others.
///
/// # Errors
/// There is no such drive.
pub fn models(given: Option<&str>) -> Result<ReadModels, Problem> {
    let preset = |name: &str| {
        let drive = Preset::named(name).map(Preset::drive).expect("the name of a preset");
        figures(name, &drive)
    };
    let named = |text: &str| {
        let model: ModelDrive = text.parse().map_err(|error: DriveError| {
            Problem::new(
                Code::Usage,
                format!("--drive {text}: {error}"),
                "what reading costs is reckoned with the figures of a drive",
                "write it like --drive sata7200 or --drive nvme; `wattle simulate --help` has the names",
            )
        })?;
        Ok::<_, Problem>(figures(text, &model.drive))
    };
    Ok(ReadModels {
        disk: preset("sata7200"),
        flash: preset("sata-ssd"),
        nvme: preset("nvme"),
        given: given.map(named).transpose()?,
    })
}

fn figures(name: &str, drive: &Drive) -> ReadFigures {
    let name = name.to_owned();
    match &drive.model.media {
        Media::Flash(flash) => {
            // With many requests in flight.
            let nanos = 1_000_000_000 / flash.reads_per_second.max(1);
            let bytes_per_second = flash.read_bytes_per_second;
            ReadFigures { name, bytes_per_second, anywhere_nanos: nanos, jump_nanos: vec![nanos] }
        }
        Media::Disk(disk) => {
            let half_turn = 30_000_000_000 / u64::from(disk.turns_per_minute.max(1));
            let besides = half_turn + disk.command.as_nanos() as u64;
            let size = drive.size_bytes.max(1);
            let seek = SeekCurve::new(disk);
            let jump = |log: u32| besides + seek.nanos((1_u64 << log).min(size), size);
            ReadFigures {
                name,
                bytes_per_second: disk.outer_bytes_per_second.midpoint(disk.inner_bytes_per_second),
                anywhere_nanos: besides + disk.seek_average.as_nanos() as u64,
                jump_nanos: (0..64).map(jump).collect(),
            }
        }
    }
}

/// A file system in figures, for programs. Sizes are bytes, times seconds.
#[derive(Serialize)]
pub struct FragmentsReport<'a> {
    device: &'a str,
    kind: &'a str,
    inodes: u64,
    inodes_seen: u64,
    complete: bool,
    files: ExtentsReport,
    /// With directories and attributes: what `xfs_db -c frag` counts.
    all: ExtentsReport,
    free: FreeReport,
    reading: Option<ReadingReport<'a>>,
    groups: GroupsReport<'a>,
}

#[derive(Serialize)]
struct ExtentsReport {
    files: u64,
    fragmented: u64,
    extents: u64,
    ideal: u64,
    pieces: u64,
    bytes: u64,
    factor_percent: f64,
}

#[derive(Serialize)]
struct FreeReport {
    extents: u64,
    bytes: u64,
    smallest: u64,
    average: u64,
    largest: u64,
    classes: Vec<FreeClassReport>,
    complete: bool,
}

#[derive(Serialize)]
struct FreeClassReport {
    from: u64,
    extents: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct ReadingReport<'a> {
    drive: &'a str,
    drive_assumed: bool,
    drives: u64,
    seconds: f64,
    seconds_whole: f64,
    gain_seconds: f64,
    longer_percent: u64,
}

#[derive(Serialize)]
struct GroupsReport<'a> {
    count: u64,
    size: u64,
    used: usize,
    starts: Vec<GroupStartReport<'a>>,
}

#[derive(Serialize)]
struct GroupStartReport<'a> {
    slot: u16,
    member: Option<&'a str>,
    groups: u64,
    used: u64,
}

pub fn report(figures: &FileSystemFigures) -> FragmentsReport<'_> {
    let fragments = &figures.fragments;
    let free = &fragments.free;
    let seconds = |micros: u64| micros as f64 / 1e6;
    let class = |&(from, extents, bytes): &(u64, u64, u64)| FreeClassReport { from, extents, bytes };
    FragmentsReport {
        device: &figures.device,
        kind: &figures.kind,
        inodes: fragments.inodes,
        inodes_seen: fragments.inodes_seen,
        complete: fragments.complete,
        files: extents(&fragments.files),
        all: extents(&fragments.all),
        free: FreeReport {
            extents: free.extents,
            bytes: free.bytes,
            smallest: free.smallest,
            average: free.bytes / free.extents.max(1),
            largest: free.largest,
            classes: free.classes.iter().map(class).collect(),
            complete: free.complete,
        },
        reading: figures.reading.as_ref().map(|cost| ReadingReport {
            drive: &cost.drive,
            drive_assumed: cost.assumed,
            drives: cost.drives,
            seconds: seconds(cost.micros),
            seconds_whole: seconds(cost.whole_micros),
            gain_seconds: seconds(cost.gain_micros()),
            longer_percent: cost.percent(),
        }),
        groups: GroupsReport {
            count: figures.groups,
            size: figures.group_size,
            used: figures.groups_used(),
            starts: figures
                .starts
                .iter()
                .map(|start| GroupStartReport {
                    slot: start.slot,
                    member: start.member.as_deref(),
                    groups: start.groups,
                    used: start.used,
                })
                .collect(),
        },
    }
}

fn extents(counts: &ExtentCounts) -> ExtentsReport {
    let ExtentCounts { files, fragmented, extents, ideal, pieces, bytes } = *counts;
    let factor_percent = counts.factor() as f64 / 100.0;
    ExtentsReport { files, fragmented, extents, ideal, pieces, bytes, factor_percent }
}

/// For people: a paragraph for each file system.
pub fn render(all: &[FileSystemFigures], screen: Screen) -> String {
    all.iter().map(|figures| paragraph(figures, screen)).collect()
}

fn paragraph(figures: &FileSystemFigures, screen: Screen) -> String {
    let size = |size: u64| screen.units.show(size);
    let fragments = &figures.fragments;
    let (files, free) = (&fragments.files, &fragments.free);
    let factor = fragments.all.factor();
    let mut lines = vec![format!("{}: {}", printable(&figures.device), figures.kind)];
    let seen = match fragments.complete {
        true => String::new(),
        false => format!(" ({} of {} inodes looked at)", fragments.inodes_seen, fragments.inodes),
    };
    lines.push(format!(
        "files: {}, {} fragmented; {} extents, {} would do; {} pieces{seen}",
        files.files, files.fragmented, files.extents, files.ideal, files.pieces
    ));
    lines.push(format!(
        "with directories: {} extents, {} would do, fragmentation factor {}.{:02} %",
        fragments.all.extents,
        fragments.all.ideal,
        factor / 100,
        factor % 100
    ));
    lines.push(format!(
        "free: {} in {} runs, {} on average, the largest {}",
        size(free.bytes),
        free.extents,
        size(free.bytes / free.extents.max(1)),
        size(free.largest)
    ));
    lines.extend(free.classes.iter().map(|&(from, extents, bytes)| {
        let percent = bytes as f64 * 100.0 / free.bytes.max(1) as f64;
        format!("  from {}: {extents} runs, {}, {percent:.2} %", size(from), size(bytes))
    }));
    if let Some(cost) = &figures.reading {
        lines.push(format!(
            "reading each file once: {:.1} s as they lie, {:.1} s whole, {} % longer; {} x {}{}",
            cost.micros as f64 / 1e6,
            cost.whole_micros as f64 / 1e6,
            cost.percent(),
            cost.drives,
            printable(&cost.drive),
            if cost.assumed { ", assumed" } else { "" }
        ));
    }
    lines.push(format!(
        "groups: {} of {} hold files, {} each",
        figures.groups_used(),
        figures.groups,
        size(figures.group_size)
    ));
    lines.extend(figures.starts.iter().map(|start| {
        let member = start.member.as_deref().map_or("a missing member".to_owned(), printable);
        format!(
            "  slot {}, {member}: {} groups start there, {} of them used",
            start.slot, start.groups, start.used
        )
    }));
    lines.join("\n  ") + "\n"
}
