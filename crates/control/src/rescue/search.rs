//! The search itself: which shapes could be, and which of them the members speak for.

use std::collections::BTreeSet;

use wattle_engine::geometry::Level;
use wattle_format::md::defaults::data_offset_sectors;
use wattle_format::md::{Role, Superblock, Version};

use super::candidate::{Candidate, Evidence, Hint, Score};
use super::landmarks::{self, Reader};
use super::sample::{Sample, Sum};
use super::shape::Shape;
use super::{MEMBERS_MAX, RescueError};
use crate::members::Member;
use crate::scan::superblocks_of;

/// Chunks of 4 KiB to 4 MiB.
const CHUNKS: std::ops::RangeInclusive<u32> = 3..=13;
/// Where data starts beside what mdadm would choose: with superblocks at the end, and what former versions of mdadm left.
const DATA_OFFSETS_SECTORS: [u64; 8] = [0, 16, 24, 272, 2048, 4096, 8192, 262_144];
/// Volumes that are looked for at most.
const STARTS_MAX: usize = 24;
/// Of so many shapes neighbours and Q are looked at.
const CLOSER: usize = 24;
/// Of a hundred rows that tell anything.
const MOST: usize = 90;
/// What the best one must have for itself, and before the second.
const CONTENT_MIN: f64 = 4.0;
const LEAD_MIN: f64 = 2.0;
/// Findings that are told.
const TOLD_MAX: usize = 8;

/// What the array could be.
#[derive(Debug, Clone)]
pub struct Finding {
    /// All but the order.
    pub shape: Shape,
    /// By slot: which of the members, or none of them.
    pub order: Vec<Option<usize>>,
    /// What speaks for it, in points.
    pub points: f64,
    /// Why, in words.
    pub reasons: Vec<String>,
}

/// All of them, the best first.
#[derive(Debug, Clone)]
pub struct Findings {
    /// Those with the most points.
    pub found: Vec<Finding>,
    /// The first one is told from every other one.
    pub certain: bool,
    /// What the sample says of all members.
    pub notes: Vec<String>,
}

/// Searches for the array that these members were.
///
/// # Errors
/// There are too few or too many members.
pub fn search(members: &[Member]) -> Result<Findings, RescueError> {
    if !(2..=MEMBERS_MAX).contains(&members.len()) {
        return Err(RescueError::Members { given: members.len() });
    }
    let size = members.iter().map(Member::size_sectors).min().unwrap_or(0);
    let sample = Sample::read(members);
    let hints = hints(members, size);
    let first_content = first_content(&sample);
    let evidence = Evidence::new(&sample, &hints, first_content, members.len());
    let reader = Reader::new(members);
    let (kinds, notes) = levels(&sample, members.len());
    let mut candidates: Vec<(f64, Vec<Option<usize>>, Candidate)> = Vec::new();
    for shape in shapes(&kinds, &sample, &hints, first_content, size) {
        let found = landmarks::find(&reader, &shape);
        let candidate = evidence.weigh(shape, found);
        let (order, points) = candidate.best_order();
        candidates.push((points, order, candidate));
    }
    candidates.sort_by(|one, other| other.0.total_cmp(&one.0));
    candidates.truncate(CLOSER);
    let mut all: Vec<(Score, Vec<Option<usize>>, &Candidate)> = Vec::new();
    for (_, order, candidate) in &candidates {
        all.extend(climb(&evidence, candidate, order.clone()));
    }
    all.sort_by(|one, other| other.0.total.total_cmp(&one.0.total));
    let lead = match &all[..] {
        [first, second, ..] => first.0.total - second.0.total,
        _ => f64::INFINITY,
    };
    let nothing = all.first().is_none_or(|first| first.0.content < CONTENT_MIN && first.0.superblocks == 0);
    if nothing {
        return Ok(Findings { found: Vec::new(), certain: false, notes });
    }
    let certain = all[0].0.content >= CONTENT_MIN && lead >= LEAD_MIN;
    let told = all.iter().take(TOLD_MAX).map(|(score, order, candidate)| Finding {
        shape: candidate.shape.clone(),
        order: order.clone(),
        points: score.total,
        reasons: reasons(score, candidate),
    });
    Ok(Findings { found: told.collect(), certain, notes })
}

/// Goes from an order to better ones by exchanging two members, and gives the best and the best of those beside it.
fn climb<'a>(
    evidence: &Evidence<'_>,
    candidate: &'a Candidate,
    mut order: Vec<Option<usize>>,
) -> Vec<(Score, Vec<Option<usize>>, &'a Candidate)> {
    let mut score = candidate.score(evidence, &order);
    // A mirror is the same in every order.
    if candidate.shape.level == Level::Raid1 {
        return vec![(score, order, candidate)];
    }
    loop {
        let mut beside: Vec<(Score, Vec<Option<usize>>)> = Vec::new();
        for one in 0..order.len() {
            for other in one + 1..order.len() {
                if order[one] != order[other] {
                    let mut exchanged = order.clone();
                    exchanged.swap(one, other);
                    beside.push((candidate.score(evidence, &exchanged), exchanged));
                }
            }
        }
        let best = beside.into_iter().max_by(|one, other| one.0.total.total_cmp(&other.0.total));
        match best {
            Some((better, exchanged)) if better.total > score.total + 1e-9 => {
                (score, order) = (better, exchanged);
            }
            Some((second, exchanged)) => {
                return vec![(score, order, candidate), (second, exchanged, candidate)];
            }
            None => return vec![(score, order, candidate)],
        }
    }
}

/// A level with its number of slots and the layouts that it may have.
type Frame = (Level, usize, Vec<u32>);

/// Levels that could be, each with its number of slots and layouts, and what that rests on.
fn levels(sample: &Sample, members: usize) -> (Vec<Frame>, Vec<String>) {
    let rotating = || vec![2, 0, 3, 1];
    let (told, zero) = sample.share(|sum| sum == Sum::Zero);
    let (_, one) = sample.share(|sum| matches!(sum, Sum::One(_)));
    let mostly = |count: usize, of: usize| of > 0 && count * 100 >= of * MOST;
    let said = |count, of, what: &str| vec![format!("in {count} of {of} places that tell anything {what}")];
    if sample.filled > 0 && mostly(sample.alike, sample.filled) {
        let note = said(sample.alike, sample.filled, "all members hold the same");
        return (vec![(Level::Raid1, members, vec![0])], note);
    }
    if members > 2 && sample.is_mirrored() {
        let note = "each member holds the same as another one, as in a RAID 10, whose order is not searched";
        return (Vec::new(), vec![note.to_owned()]);
    }
    if mostly(zero, told) {
        let note = said(zero, told, "the XOR of all members is zero: they are all members of a RAID 5 or 4");
        return (vec![(Level::Raid5, members, rotating()), (Level::Raid4, members, vec![0])], note);
    }
    if members >= 4 && mostly(one + zero, told) {
        let note =
            said(one + zero, told, "one member is the XOR of all others: they are all members of a RAID 6");
        return (vec![(Level::Raid6, members, rotating())], note);
    }
    let mut kinds = vec![(Level::Raid0, members, vec![0]), (Level::Raid5, members + 1, rotating())];
    kinds.push((Level::Raid4, members + 1, vec![0]));
    if members >= 2 {
        kinds.push((Level::Raid6, members + 2, rotating()));
    }
    if members >= 3 {
        kinds.push((Level::Raid6, members + 1, rotating()));
    }
    let note = "the members have no common parity: one is missing, or the array had none";
    (kinds, vec![note.to_owned()])
}

fn shapes(
    kinds: &[Frame],
    sample: &Sample,
    hints: &[Hint],
    first_content: Option<u64>,
    size: u64,
) -> Vec<Shape> {
    let default = |chunk| data_offset_sectors(Version::V12, size, chunk, false);
    let starts = sample.starts.iter().take(STARTS_MAX).chain(&first_content).map(|byte| byte / 512);
    let offsets: BTreeSet<u64> = DATA_OFFSETS_SECTORS
        .into_iter()
        .chain([128, 1024, 8192].map(default))
        .chain(starts)
        .chain(hints.iter().map(|hint| hint.shape.data_offset_sectors))
        .filter(|offset| offset.is_multiple_of(8))
        .collect();
    let chunks: BTreeSet<u64> =
        CHUNKS.map(|power| 1 << power).chain(hints.iter().map(|hint| hint.shape.chunk_sectors)).collect();
    let mut shapes = Vec::new();
    for (level, slots, layouts) in kinds {
        let chunks = if *level == Level::Raid1 { BTreeSet::from([0]) } else { chunks.clone() };
        for (&chunk, &offset) in
            chunks.iter().flat_map(|chunk| offsets.iter().map(move |offset| (chunk, offset)))
        {
            let of = |layout: &u32| Shape::new(*level, *layout, chunk, offset, *slots, size);
            shapes.extend(layouts.iter().filter_map(of));
        }
    }
    shapes
}

/// Where the first page is that members with a common parity have, if they have one.
fn first_content(sample: &Sample) -> Option<u64> {
    let common = |sum| matches!(sum, Sum::Zero | Sum::One(_));
    let (told, common_rows) = sample.share(common);
    let first = sample.rows.iter().find(|row| common(row.sum));
    first.filter(|_| common_rows * 100 >= told * MOST).map(|row| row.offset)
}

fn hints(members: &[Member], size: u64) -> Vec<Hint> {
    let of = |(member, superblock): (usize, Superblock)| {
        let level = Level::from_md(superblock.level())?;
        let layout = if level == Level::Raid0 { 0 } else { superblock.layout() };
        let slots = superblock.raid_disks() as usize;
        let chunk = if level == Level::Raid1 { 0 } else { u64::from(superblock.chunk_sectors()) };
        let shape = Shape::new(level, layout, chunk, superblock.data_offset_sectors(), slots, size)?;
        let slot = match superblock.role() {
            Role::Active(slot) if usize::from(slot) < slots => Some(usize::from(slot)),
            _ => None,
        };
        Some(Hint { member, shape, slot })
    };
    let found = members.iter().enumerate().flat_map(|(ix, member)| {
        superblocks_of(member).valid.into_iter().map(move |superblock| (ix, superblock))
    });
    found.filter_map(of).collect()
}

fn reasons(score: &Score, candidate: &Candidate) -> Vec<String> {
    let mut reasons = Vec::new();
    let marks = &candidate.landmarks;
    if marks.found > 0 {
        let kinds = marks.kinds.join(", ");
        let missed = match marks.missed {
            0 => "none is missing".to_owned(),
            missed => format!("{missed} are not where they should be"),
        };
        reasons.push(format!(
            "{} structures that say themselves where they are, are there ({kinds}); {missed}",
            marks.found
        ));
    }
    if let Some((right, rows)) = score.parity {
        let share = (100.0 * right / rows as f64).round();
        reasons.push(format!(
            "of {rows} places in which one block looks like parity, {share} % have it where this order does"
        ));
    }
    if let Some((right, looked)) = score.syndrome {
        reasons.push(format!("in {right} of {looked} places Q is what these data blocks make in this order"));
    }
    if score.neighbours > 0.02 {
        let share = (100.0 * score.neighbours).round();
        reasons.push(format!("chunks that follow one another differ {share} % less than others"));
    }
    if score.superblocks > 0 {
        reasons.push(format!("{} superblocks say the same", score.superblocks));
    }
    reasons
}
