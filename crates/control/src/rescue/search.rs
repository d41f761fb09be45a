//! The search itself: which shapes could be, and which of them the members speak for.

use wattle_engine::geometry::Level;
use wattle_format::md::{DeviceRole, Superblock, Version};

use super::candidate::{Candidate, Evidence, Hint, Score};
use super::copies;
use super::frames::{self, Frames};
use super::landmarks::{self, Landmarks, Reader};
use super::sample::Sample;
use super::shape::RescueShape;
use super::{MEMBERS_MAX, RescueError};
use crate::md::superblocks::superblocks_of;
use crate::members::Member;

/// Of so many shapes neighbours and Q are looked at.
const CLOSER: usize = 24;
/// What the best one must have for itself, and before the second.
const CONTENT_MIN: f64 = 4.0;
const LEAD_MIN: f64 = 2.0;
/// Findings that are reported.
const FINDINGS_MAX: usize = 8;
/// Sets of members that are searched beside all of them.
const SETS_MAX: usize = 4;
/// Two members that have so many places with content, and the same in all of them, are one.
const SAME_MIN: usize = 16;

/// What it means when members do not agree.
const OLDER: &str = "one of them is older than the others, or was written to since; rescue without each of them in turn and compare";

/// What the array could be.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// All but the order.
    pub shape: RescueShape,
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
    pub found: Vec<Explanation>,
    /// The first one is told from every other one.
    pub certain: bool,
    /// What the sample says of all members.
    pub notes: Vec<String>,
}

/// A finding with what decides whether it is one.
struct Ranked {
    finding: Explanation,
    score: Score,
}

/// Searches for the array that these members were.
///
/// # Errors
/// There are too few or too many members.
pub fn search(members: &[Member]) -> Result<Findings, RescueError> {
    if !(2..=MEMBERS_MAX).contains(&members.len()) {
        return Err(RescueError::Members { given: members.len() });
    }
    let mut sample = Sample::read(members);
    let frames = Frames::of(&sample);
    if !frames.is_certain {
        sample.read_far(members);
    }
    let mut notes = vec![frames.note.clone()];
    let mut all = search_among(members, &sample, &frames, &mut notes);
    for (set, why) in sets(&sample, &frames, members) {
        let some: Vec<_> = set.iter().map(|&who| members[who].clone()).collect();
        let part = sample.only(&set);
        let frames = Frames::of(&part);
        let mut others = search_among(&some, &part, &frames, &mut notes);
        for ranked in &mut others {
            ranked.finding.order.iter_mut().for_each(|who| *who = who.map(|who| set[who]));
            ranked.finding.reasons.insert(0, why.clone());
        }
        notes.push(why);
        all.append(&mut others);
    }
    all.sort_by(|one, other| other.score.total.total_cmp(&one.score.total));
    // Superblocks may be the wrong ones: they put a finding first, and do not make it certain.
    let others = all.iter().skip(1).map(|ranked| ranked.score.content).reduce(f64::max);
    let lead = all.first().zip(others).map_or(f64::INFINITY, |(first, other)| first.score.content - other);
    notes.dedup();
    let Some(first) =
        all.first().filter(|first| first.score.content >= CONTENT_MIN || first.score.superblocks > 0)
    else {
        return Ok(Findings { found: Vec::new(), certain: false, notes });
    };
    let certain = first.score.sound && first.score.content >= CONTENT_MIN && lead >= LEAD_MIN;
    let found = all.into_iter().take(FINDINGS_MAX).map(|ranked| ranked.finding).collect();
    Ok(Findings { found, certain, notes })
}

/// Members that may be an array without the others, and why.
fn sets(sample: &Sample, frames: &Frames, members: &[Member]) -> Vec<(Vec<usize>, String)> {
    let all = 0..sample.members();
    let names =
        |set: &[usize]| set.iter().map(|&who| members[who].name.as_str()).collect::<Vec<_>>().join(", ");
    let without = |left_out: &[usize]| all.clone().filter(|who| !left_out.contains(who)).collect::<Vec<_>>();
    let mut sets: Vec<(Vec<usize>, String)> = Vec::new();
    let blank = sample.blank();
    if !blank.is_empty() {
        let why = format!("nothing is on {}: a spare, or it is empty for another reason", names(&blank));
        sets.push((without(&blank), why));
    }
    // Two pairs of copies have a sum too.
    let sums = if sample.is_mirrored() { Vec::new() } else { sample.sets() };
    for set in sums {
        let rest = without(&set);
        let why = format!("{} have a common parity by themselves, without {}", names(&set), names(&rest));
        sets.push((set, why));
    }
    if !frames.is_certain {
        for one in all.clone() {
            if let Some(twin) = (one + 1..all.end).find(|&other| sample.is_one(one, other, SAME_MIN)) {
                let why = format!(
                    "{} and {} hold the same: two copies, or one was given twice",
                    names(&[one]),
                    names(&[twin])
                );
                sets.push((without(&[twin]), why));
            }
            let rest = without(&[one]);
            if rest.len() > 1 && Frames::of(&sample.only(&rest)).is_certain {
                let why =
                    format!("{} has nothing in common with the others, which have without it", names(&[one]));
                sets.push((rest, why));
            }
        }
    }
    sets.retain(|(set, _)| set.len() > 1);
    sets.sort_by_key(|(set, _)| std::cmp::Reverse(set.len()));
    sets.dedup_by(|one, other| one.0 == other.0);
    sets.truncate(SETS_MAX);
    sets
}

/// Every way in which these members, all of them, could be an array, the best first.
fn search_among(
    members: &[Member],
    sample: &Sample,
    frames: &Frames,
    notes: &mut Vec<String>,
) -> Vec<Ranked> {
    let sizes: Vec<u64> = members.iter().map(Member::size_sectors).collect();
    let hints = hints(members, &sizes);
    let first_content = frames::first_content(sample);
    let evidence = Evidence::new(sample, &hints, first_content, &sizes);
    let reader = Reader::new(members);
    let (shapes, note) = frames::shapes(frames, sample, &hints, first_content, &sizes);
    notes.extend(note);
    let mut candidates: Vec<(f64, Candidate)> = Vec::new();
    for shape in shapes {
        // Without copies it is no RAID 10.
        if shape.level == Level::Raid10 && copies::are_there(sample, &shape) != Some(true) {
            continue;
        }
        let found = landmarks::find(&reader, &shape);
        let candidate = evidence.weigh(shape, found);
        let candidate = in_some_order(&evidence, &reader, &candidate).unwrap_or(candidate);
        candidates.push((candidate.best_order().1, candidate));
    }
    candidates.sort_by(|one, other| other.0.total_cmp(&one.0));
    candidates.truncate(CLOSER);
    let mut all = Vec::new();
    for (_, mut candidate) in candidates {
        for (score, order) in climb(&evidence, &reader, &mut candidate) {
            if let Some(more) = in_order(&evidence, &reader, &candidate.shape, &order) {
                all.push(ranked(score, order, &more, sample));
                continue;
            }
            match of_their_sizes(&evidence, &reader, &candidate, &order) {
                None => all.push(ranked(score, order, &candidate, sample)),
                Some(longer) => all.extend(longer.iter().map(|candidate| {
                    ranked(candidate.score(&evidence, &order), order.clone(), candidate, sample)
                })),
            }
        }
    }
    all.sort_by(|one: &Ranked, other| other.score.total.total_cmp(&one.score.total));
    all.truncate(2 * FINDINGS_MAX);
    all
}

fn ranked(mut score: Score, order: Vec<Option<usize>>, candidate: &Candidate, sample: &Sample) -> Ranked {
    let mut reasons = reasons(&score, candidate);
    if let Some((of, agree)) = frames::disagree(sample, &candidate.shape) {
        score.sound = false;
        reasons.push(format!("in only {agree} of {of} places the members agree as they had to: {OLDER}"));
    }
    let finding = Explanation { shape: candidate.shape.clone(), order, points: score.total, reasons };
    Ranked { finding, score }
}

/// A RAID 6 that lacks members, in the better one of two orders. Where the rest of a stripe is
/// empty, P and Q look like a structure too and speak for a wrong one; where they go round does not
/// depend on that.
fn in_some_order(evidence: &Evidence<'_>, reader: &Reader<'_>, candidate: &Candidate) -> Option<Candidate> {
    if candidate.shape.level != Level::Raid6 {
        return None;
    }
    let by_parity = evidence.weigh(candidate.shape.clone(), Landmarks::default());
    let orders = [candidate.best_order().0, by_parity.best_order().0];
    let all = orders.iter().filter_map(|order| in_order(evidence, reader, &candidate.shape, order));
    all.max_by(|one, other| one.best_order().1.total_cmp(&other.best_order().1))
}

/// The same in this order: what P and Q make of the blocks of those that are missing speaks as
/// well.
fn in_order(
    evidence: &Evidence<'_>,
    reader: &Reader<'_>,
    shape: &RescueShape,
    order: &[Option<usize>],
) -> Option<Candidate> {
    let lacks = shape.level == Level::Raid6 && order.iter().any(Option::is_none);
    lacks.then(|| evidence.weigh(shape.clone(), landmarks::find_in_order(reader, shape, order)))
}

/// A RAID 0 of members of different sizes in this order: its first part is like that of equal ones,
/// and of the rest there are two kinds.
fn of_their_sizes(
    evidence: &Evidence<'_>,
    reader: &Reader<'_>,
    candidate: &Candidate,
    order: &[Option<usize>],
) -> Option<Vec<Candidate>> {
    let shape = &candidate.shape;
    let sizes: Vec<u64> = order.iter().flatten().map(|&who| evidence.sizes[who]).collect();
    if shape.level != Level::Raid0 || shape.sizes.is_some() {
        return None;
    }
    let of = |layout: u32| {
        RescueShape::of_sizes(
            shape.level,
            layout,
            shape.chunk_sectors,
            shape.data_offset_sectors,
            shape.version,
            &sizes,
        )
    };
    let (original, alternate) = (of(1)?, of(2)?);
    if original.geometry.array_sectors() == shape.geometry.array_sectors() {
        return None;
    }
    let mut kinds = vec![original];
    if !alternate.maps_like(&kinds[0]) {
        kinds.push(alternate);
    }
    let weigh = |shape: RescueShape| {
        let found = landmarks::find(reader, &shape);
        evidence.weigh(shape, found)
    };
    Some(kinds.into_iter().map(weigh).collect())
}

/// Goes from the best of some orders to better ones by exchanging two members, and gives the best
/// and the best of those beside it.
fn climb(
    evidence: &Evidence<'_>,
    reader: &Reader<'_>,
    candidate: &mut Candidate,
) -> Vec<(Score, Vec<Option<usize>>)> {
    let starts = candidate.starts(evidence);
    let candidate = &*candidate;
    let score = |order: &[Option<usize>]| match in_order(evidence, reader, &candidate.shape, order) {
        Some(in_order) => in_order.score(evidence, order),
        None => candidate.score(evidence, order),
    };
    let scored = starts.into_iter().map(|order| (score(&order), order));
    let Some((mut best_score, mut order)) = scored.max_by(|one, other| one.0.total.total_cmp(&other.0.total))
    else {
        return Vec::new();
    };
    loop {
        let mut beside: Vec<(Score, Vec<Option<usize>>)> = Vec::new();
        for one in 0..order.len() {
            for other in one + 1..order.len() {
                if order[one] != order[other] && !candidate.shape.are_twins(one, other) {
                    let mut exchanged = order.clone();
                    exchanged.swap(one, other);
                    beside.push((score(&exchanged), exchanged));
                }
            }
        }
        let best = beside.into_iter().max_by(|one, other| one.0.total.total_cmp(&other.0.total));
        match best {
            Some((better, exchanged)) if better.total > best_score.total + 1e-9 => {
                (best_score, order) = (better, exchanged);
            }
            Some((second, exchanged)) => return vec![(best_score, order), (second, exchanged)],
            None => return vec![(best_score, order)],
        }
    }
}

fn hints(members: &[Member], sizes: &[u64]) -> Vec<Hint> {
    let size = sizes.iter().copied().min().unwrap_or(0);
    let of = |(member, superblock): (usize, Superblock)| {
        let level = Level::from_md(superblock.level())?;
        let layout = if level == Level::Raid0 { 0 } else { superblock.layout() };
        let slots = superblock.raid_disks() as usize;
        let chunk = if level == Level::Raid1 { 0 } else { u64::from(superblock.chunk_sectors()) };
        let offset = superblock.data_offset_sectors();
        let version = if offset == 0 { superblock.version() } else { Version::V12 };
        let shape = RescueShape::new(level, layout, chunk, offset, slots, version, size)?;
        let slot = match superblock.role() {
            DeviceRole::Active(slot) if usize::from(slot) < slots => Some(usize::from(slot)),
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
    if let Some((compared, same)) = score.copies {
        reasons.push(format!(
            "of {compared} places that are copies of others in this order {same} hold the same"
        ));
    }
    if score.neighbours > 0.02 {
        let share = (100.0 * score.neighbours).round();
        reasons.push(format!("chunks that follow one another differ {share} % less than others"));
    }
    if !score.copies_agree() {
        reasons.push(format!("elsewhere copies differ: {OLDER}"));
    } else if !score.sound {
        reasons.push("not all of the members have something that speaks for their being there".to_owned());
    }
    if score.superblocks > 0 {
        reasons.push(format!("{} superblocks say the same", score.superblocks));
    }
    reasons
}
