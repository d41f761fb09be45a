//! How files and free space lie: what reading every file costs as it is, against whole files.
//!
//! The model of a reader: it takes one file after the other, each from its start to its end, with
//! enough read ahead that all drives of a stripe work side by side. Each drive moves its head once
//! for each piece that it has a part of, and reads its part at its speed; over a gap that takes
//! less time than moving the head it reads on. Whole files cost one such movement each.

use super::facts::{AuditFacts, DeviceFacts, DeviceOrigin, FileSystemFacts};
use super::{AuditReport, FindingCode, Size, word};

/// Reading takes so many percent longer before it is worth a finding,
const SLOWER_PERCENT: u64 = 10;

/// and so many microseconds.
const SLOWER_MICROS: u64 = 1_000_000;

/// Free runs below that are small: a drive with a head needs as long to reach one as to read it.
const SMALL_RUN: u64 = 1 << 20;

/// Less free space than that is a matter of its own.
const FREE_TELLING: u64 = 64 << 20;

/// How the files and the free space of a file system lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FragmentFacts {
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that were looked at.
    pub inodes_seen: u64,
    /// Whether every inode was looked at.
    pub complete: bool,
    /// Structures that could not be read.
    pub damaged: u64,
    /// Regular files.
    pub files: ExtentCounts,
    /// Files, directories and the rest.
    pub all: ExtentCounts,
    /// Free space.
    pub free: FreeSpaceFacts,
    /// Groups that hold data of files.
    pub groups_used: Vec<bool>,
    /// Files by their size, each read as one piece.
    pub whole: Vec<PieceFacts>,
    /// Pieces of files as they lie.
    pub pieces: Vec<PieceFacts>,
}

/// Extents of some files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentCounts {
    /// Files with extents.
    pub files: u64,
    /// Those with more than they need.
    pub fragmented: u64,
    /// Extents there are.
    pub extents: u64,
    /// Extents that would do.
    pub ideal: u64,
    /// Pieces that do not follow one another on the volume.
    pub pieces: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl ExtentCounts {
    /// `xfs_db`'s fragmentation factor, in hundredths of a percent: extents that need not be, of
    /// those there are.
    #[must_use]
    pub fn factor(&self) -> u64 {
        let spare = u128::from(self.extents.saturating_sub(self.ideal));
        // Rounded, as a number with two digits is printed.
        (spare * 20_000 / u128::from(self.extents.max(1))).div_ceil(2) as u64
    }
}

/// Free space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeSpaceFacts {
    /// Runs of free blocks.
    pub extents: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// The smallest.
    pub smallest: u64,
    /// The largest.
    pub largest: u64,
    /// By size: from so many bytes up to twice that, how many, and their bytes.
    pub classes: Vec<(u64, u64, u64)>,
    /// Whether all of it was looked at.
    pub complete: bool,
}

/// Pieces of about one size, after gaps of about one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceFacts {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What lies between each and the piece before it, together.
    pub gaps: u64,
    /// Where the piece before lies.
    pub after: PieceBefore,
}

/// Where the piece before another one lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PieceBefore {
    /// In another file: anywhere.
    #[default]
    Anywhere,
    /// Before it on the volume.
    Below,
    /// Behind it.
    Above,
}

/// Drives to reckon with, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadModels {
    /// A drive with a head.
    pub disk: ReadFigures,
    /// One without.
    pub flash: ReadFigures,
    /// One without, on PCIe.
    pub nvme: ReadFigures,
    /// What was named instead of all of these.
    pub given: Option<ReadFigures>,
}

/// What a drive is like to a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFigures {
    /// What the drive is called.
    pub name: String,
    /// What it reads in sequence.
    pub bytes_per_second: u64,
    /// Nanoseconds to a place anywhere.
    pub anywhere_nanos: u64,
    /// Nanoseconds to a place `1 << index` bytes away.
    pub jump_nanos: Vec<u64>,
}

/// What reading every file once comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadCost {
    /// The drive that it is reckoned with.
    pub drive: String,
    /// Whether that is a guess, since it is not known what the drives are.
    pub assumed: bool,
    /// How many of them work side by side.
    pub drives: u64,
    /// As the files lie.
    pub micros: u64,
    /// If each were whole.
    pub whole_micros: u64,
}

impl ReadCost {
    /// What a defragmentation would gain each time.
    #[must_use]
    pub fn gain_micros(&self) -> u64 {
        self.micros.saturating_sub(self.whole_micros)
    }

    /// How many percent longer it takes.
    #[must_use]
    pub fn percent(&self) -> u64 {
        (u128::from(self.gain_micros()) * 100 / u128::from(self.whole_micros.max(1))) as u64
    }
}

/// A file system in figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemFigures {
    /// Its device.
    pub device: String,
    /// `xfs`, `ext4`.
    pub kind: String,
    /// How its files and its free space lie.
    pub fragments: FragmentFacts,
    /// What reading costs.
    pub reading: Option<ReadCost>,
    /// How many groups it has.
    pub groups: u64,
    /// How large each is.
    pub group_size: u64,
    /// On which members its groups start; empty if what is below is not cut into chunks.
    pub starts: Vec<GroupStarts>,
}

impl FileSystemFigures {
    /// Groups that hold data of files.
    #[must_use]
    pub fn groups_used(&self) -> usize {
        self.fragments.groups_used.iter().filter(|used| **used).count()
    }
}

/// Groups that start on one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStarts {
    /// The slot.
    pub slot: u16,
    /// The member in it, if there is one.
    pub member: Option<String>,
    /// How many start there.
    pub groups: u64,
    /// How many of them hold data of files.
    pub used: u64,
}

pub(super) fn rules(facts: &AuditFacts, report: &mut AuditReport) {
    for (ix, device) in facts.devices.iter().enumerate() {
        let Some(file_system) = &device.file_system else { continue };
        let Some(fragments) = &file_system.fragments else { continue };
        let reading = cost(facts, ix, fragments);
        if let Some(cost) = &reading {
            files(device, file_system, fragments, cost, report);
        }
        free_space(device, file_system, fragments, report);
        unchecked(device, file_system, fragments, report);
        report.file_systems.push(FileSystemFigures {
            device: device.name.clone(),
            kind: file_system.kind.clone(),
            fragments: fragments.clone(),
            reading,
            groups: file_system.groups,
            group_size: file_system.group_size,
            starts: starts(file_system, fragments),
        });
    }
}

fn files(
    device: &DeviceFacts,
    file_system: &FileSystemFacts,
    fragments: &FragmentFacts,
    cost: &ReadCost,
    report: &mut AuditReport,
) {
    if cost.gain_micros() < SLOWER_MICROS || cost.percent() < SLOWER_PERCENT {
        return;
    }
    let counts = &fragments.files;
    let factor = counts.factor();
    let evidence = format!(
        "{} of {} files{} have {} extents where {} would do (fragmentation factor {}.{:02} %)",
        counts.fragmented,
        counts.files,
        if fragments.complete { "" } else { " looked at" },
        counts.extents,
        counts.ideal,
        factor / 100,
        factor % 100
    );
    let costs = format!(
        "reading each file once takes {} instead of {}, {} % longer, by the figures of {}{}",
        Span(cost.micros),
        Span(cost.whole_micros),
        cost.percent(),
        drives(cost),
        if cost.assumed { " (what the drives are is not known)" } else { "" },
    );
    let (gain, largest) = (Span(cost.gain_micros()), Size(fragments.free.largest));
    let whole = format!("the largest free run is {largest}: longer files stay in pieces");
    let fix = match file_system.kind.as_str() {
        "xfs" => format!("mounted: xfs_fsr {}, which gains up to {gain}; {whole}", word(&device.node())),
        "ext4" => format!("mounted: e4defrag {}, which gains up to {gain}; {whole}", word(&device.node())),
        _ => format!("copy the files to another file system and back, which gains up to {gain}; {whole}"),
    };
    report.find(FindingCode::FragmentedFiles, &device.name, [evidence, costs, fix]);
}

/// `4 x sata7200`.
fn drives(cost: &ReadCost) -> String {
    match cost.drives {
        0 | 1 => cost.drive.clone(),
        drives => format!("{drives} x {}", cost.drive),
    }
}

fn free_space(
    device: &DeviceFacts,
    file_system: &FileSystemFacts,
    fragments: &FragmentFacts,
    report: &mut AuditReport,
) {
    let free = &fragments.free;
    let small = free.classes.iter().filter(|(from, ..)| *from < SMALL_RUN);
    let small: u64 = small.map(|(.., bytes)| bytes).sum();
    if free.bytes < FREE_TELLING || small < free.bytes / 2 {
        return;
    }
    let evidence = format!(
        "{} are free in {} runs, {} of it in runs below {}; the largest is {}",
        Size(free.bytes),
        free.extents,
        Size(small),
        Size(SMALL_RUN),
        Size(free.largest)
    );
    let cost = "large files that are written from now on are in pieces from the start".to_owned();
    let tool = if file_system.kind == "xfs" { "xfs_fsr" } else { "e4defrag" };
    let fix = format!(
        "keep more of it free, or move what is large away and back; {tool} makes files whole, not free space"
    );
    report.find(FindingCode::FragmentedSpace, &device.name, [evidence, cost, fix]);
}

fn unchecked(
    device: &DeviceFacts,
    file_system: &FileSystemFacts,
    fragments: &FragmentFacts,
    report: &mut AuditReport,
) {
    let FragmentFacts { inodes, inodes_seen, damaged, .. } = *fragments;
    let what = |what: &str| format!("{}: {what} of the {} on it", device.name, file_system.kind);
    if damaged > 0 {
        let why = format!("{damaged} structures cannot be read: it is in use, cut off or damaged");
        report.unknown(what("how some files lie"), why);
    }
    if !fragments.complete {
        let why = format!(
            "{inodes_seen} of {inodes} inodes were looked at, as many of each group as it has a share; --inodes looks at more"
        );
        report.unknown(what("how all files lie"), why);
    }
    if !fragments.free.complete {
        report.unknown(what("all free space"), "a part of its maps was not looked at, or cannot be read");
    }
}

/// Where groups start, slot by slot.
fn starts(file_system: &FileSystemFacts, fragments: &FragmentFacts) -> Vec<GroupStarts> {
    let mut starts: Vec<GroupStarts> = Vec::new();
    for (group, &slot) in file_system.group_slots.iter().enumerate() {
        let used = u64::from(fragments.groups_used.get(group).copied().unwrap_or(false));
        match starts.iter_mut().find(|start| start.slot == slot) {
            Some(start) => {
                start.groups += 1;
                start.used += used;
            }
            None => {
                let member = file_system.slot_members.iter().find(|(other, _)| *other == slot);
                let member = member.map(|(_, name)| name.clone());
                starts.push(GroupStarts { slot, member, groups: 1, used });
            }
        }
    }
    starts.sort_by_key(|start| start.slot);
    starts
}

/// `None` if no drive is there to reckon with.
fn cost(facts: &AuditFacts, device: usize, fragments: &FragmentFacts) -> Option<ReadCost> {
    let models = facts.read_models.as_ref()?;
    let (figures, assumed) = figures(facts, device, models);
    let (unit, drives) = match facts.place(device, 0) {
        Some((stripes, _)) => (stripes.unit.max(1), stripes.drives.max(1)),
        None => (u64::MAX, 1),
    };
    let micros = |pieces: &[PieceFacts]| micros(pieces, figures, unit, drives);
    Some(ReadCost {
        drive: figures.name.clone(),
        assumed,
        drives,
        micros: micros(&fragments.pieces),
        whole_micros: micros(&fragments.whole),
    })
}

/// Of the slowest kind of drive below, and whether that is a guess.
fn figures<'a>(facts: &AuditFacts, device: usize, models: &'a ReadModels) -> (&'a ReadFigures, bool) {
    if let Some(given) = &models.given {
        return (given, false);
    }
    let mut drives = Vec::new();
    below(facts, device, &mut drives);
    let rotational = |drive: &usize| facts.devices[*drive].queue.as_ref()?.rotational;
    let known: Option<Vec<bool>> = drives.iter().map(rotational).collect();
    match known.filter(|known| !known.is_empty()) {
        None => (&models.disk, true),
        Some(known) if known.contains(&true) => (&models.disk, false),
        Some(_) if drives.iter().all(|drive| facts.devices[*drive].name.starts_with("nvme")) => {
            (&models.nvme, false)
        }
        Some(_) => (&models.flash, false),
    }
}

/// The drives that a device lies on.
fn below(facts: &AuditFacts, device: usize, drives: &mut Vec<usize>) {
    match facts.devices[device].origin {
        DeviceOrigin::Drive => drives.push(device),
        // What lies below comes before.
        DeviceOrigin::Partition { of, .. } if of < device => below(facts, of, drives),
        DeviceOrigin::Partition { .. } => {}
        DeviceOrigin::Array(array) => {
            let members = facts.arrays[array].active().map(|member| member.device);
            members.filter(|member| *member < device).for_each(|member| below(facts, member, drives));
        }
        DeviceOrigin::Logical { group, volume } => {
            let group = &facts.groups[group];
            let areas = group.volumes[volume].segments.iter().flat_map(|segment| &segment.areas);
            let mut physical: Vec<_> =
                areas.filter_map(|(physical, _)| group.physical.get(*physical)?.device).collect();
            physical.sort_unstable();
            physical.dedup();
            physical.into_iter().filter(|below| *below < device).for_each(|of| below(facts, of, drives));
        }
    }
}

/// How long the drives need for these pieces.
fn micros(pieces: &[PieceFacts], figures: &ReadFigures, unit: u64, drives: u64) -> u64 {
    let nanos_of = |bytes: u128| bytes * 1_000_000_000 / u128::from(figures.bytes_per_second.max(1));
    let mut nanos = 0_u128;
    for piece in pieces.iter().filter(|piece| piece.count > 0) {
        let touched = (piece.bytes / piece.count).div_ceil(unit).clamp(1, drives);
        let gap = piece.gaps / piece.count / drives;
        let jump = match piece.after {
            PieceBefore::Anywhere => figures.anywhere_nanos.into(),
            PieceBefore::Above => jump(figures, gap),
            PieceBefore::Below => jump(figures, gap).min(nanos_of(gap.into())),
        };
        nanos += u128::from(piece.count) * u128::from(touched) * jump + nanos_of(piece.bytes.into());
    }
    u64::try_from(nanos / u128::from(drives) / 1000).unwrap_or(u64::MAX)
}

fn jump(figures: &ReadFigures, distance: u64) -> u128 {
    let log = distance.checked_ilog2().unwrap_or(0) as usize;
    let nanos = figures.jump_nanos.get(log).or(figures.jump_nanos.last());
    nanos.copied().unwrap_or(figures.anywhere_nanos).into()
}

/// A time as people read it.
struct Span(u64);

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0 / 1_000_000;
        match seconds {
            0..10 => write!(f, "{}.{} s", seconds, self.0 / 100_000 % 10),
            10..120 => write!(f, "{seconds} s"),
            120..7200 => write!(f, "{} min", seconds / 60),
            _ => write!(f, "{} h {} min", seconds / 3600, seconds / 60 % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> ReadFigures {
        ReadFigures {
            name: "disk".to_owned(),
            bytes_per_second: 100_000_000,
            anywhere_nanos: 12_000_000,
            jump_nanos: vec![10_000_000; 40],
        }
    }

    fn piece(count: u64, bytes: u64, gaps: u64, after: PieceBefore) -> PieceFacts {
        PieceFacts { count, bytes, gaps, after }
    }

    #[test]
    fn a_reader_moves_the_head_for_each_piece() {
        let whole = [piece(1, 100_000_000, 0, PieceBefore::Anywhere)];
        assert_eq!(micros(&whole, &disk(), u64::MAX, 1), 12_000 + 1_000_000);
        let far = piece(100, 50_000_000, 100 << 30, PieceBefore::Above);
        let cut = [piece(1, 50_000_000, 0, PieceBefore::Anywhere), far];
        assert_eq!(micros(&cut, &disk(), u64::MAX, 1), 12_000 + 100 * 10_000 + 1_000_000);
        // Over a small gap it reads on, and not backwards.
        let near = piece(10, 10_000_000, 100_000, PieceBefore::Below);
        assert_eq!(micros(&[near], &disk(), u64::MAX, 1), 100_000 + 10 * 100);
        let back = PieceFacts { after: PieceBefore::Above, ..near };
        assert_eq!(micros(&[back], &disk(), u64::MAX, 1), 100_000 + 10 * 10_000);
        assert_eq!(micros(&[piece(0, 0, 0, PieceBefore::Below)], &disk(), 1, 4), 0);
        let all = piece(u64::MAX, u64::MAX, u64::MAX, PieceBefore::Above);
        assert_eq!(micros(&[all; 3], &disk(), 1, 1), u64::MAX);
    }

    #[test]
    fn drives_of_a_stripe_share_the_work() {
        // Every piece is on all four drives, each of which moves its head.
        let wide = [piece(10, 400_000_000, 0, PieceBefore::Anywhere)];
        assert_eq!(micros(&wide, &disk(), 64 << 10, 4), 10 * 12_000 + 1_000_000);
        // Pieces of less than a chunk are on one each, and the four read four at a time.
        let small = [piece(400, 400 * 4096, 0, PieceBefore::Anywhere)];
        assert_eq!(micros(&small, &disk(), 64 << 10, 4), 100 * 12_000 + 400 * 4096 / 400);
    }

    #[test]
    fn the_factor_is_rounded_as_it_is_printed() {
        let counts = |extents, ideal| ExtentCounts { extents, ideal, ..ExtentCounts::default() };
        for (extents, ideal, factor) in [(108, 11, 8981), (57, 19, 6667), (0, 0, 0), (10, 10, 0), (5, 9, 0)] {
            assert_eq!(counts(extents, ideal).factor(), factor);
        }
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        for (micros, text) in
            [(0, "0.0 s"), (1_250_000, "1.2 s"), (61_000_000, "61 s"), (7_200_000_000, "2 h 0 min")]
        {
            assert_eq!(Span(micros).to_string(), text);
        }
    }
}
