//! What speaks for a shape and an order.

use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::units::StripeNo;

use super::assign::{Weights, total};
use super::copies::Copies;
use super::landmarks::Landmarks;
use super::sample::{PAGE_BYTES, Row, Sample, Sum};
use super::shape::RescueShape;

/// What the whole of a kind of evidence counts at most.
const PARITY_POINTS: f64 = 12.0;
const SYNDROME_POINTS: f64 = 12.0;
const NEIGHBOUR_POINTS: f64 = 12.0;
const COPIES_POINTS: f64 = 12.0;
const MISSING_POINTS: f64 = 4.0;
/// So many structures that parity gives back show that a member is missing; or so much of what
/// chance leaves of the places that look like parity, from nothing to all.
const GIVEN_BACK: f64 = 2.0;
const MORE_PARITY: std::ops::Range<f64> = 0.3..0.7;
/// So many standard deviations the best one of all orders may have by chance.
const LUCK: f64 = 3.0;
/// What a member counts in a slot for which it has not the size.
const MISFIT_POINTS: f64 = -1000.0;
/// Of a hundred places that hold a copy, those that have to be one: a member that has fewer is not
/// of the same time as the others.
const COPIES_PERCENT_MIN: usize = 98;
/// What a structure counts that is where it has to be, or is not.
const LANDMARK_POINTS: f64 = 2.0;
/// What is left of it for another of the same kind, once there are many.
const LANDMARKS_MAX: f64 = 40.0;
/// What the first content being where the data starts counts, and content before it.
const START_POINTS: f64 = 2.0;
const BEFORE_POINTS: f64 = -8.0;
/// What a superblock counts that says the same: little, since a wrong one is what is to be found.
const SUPERBLOCK_POINTS: f64 = 0.4;
/// Pages of which one has so many bits per byte more than all others look like parity.
const MORE_ENTROPY: f32 = 0.25;
/// Of a structure that a member must have for its own, where only they tell that it is one.
const OWN_MIN: f64 = 0.3;
/// The share of places in which a parity that goes round is right: anything else would be in one
/// slot's share of them.
const ROUND_MIN: f64 = 0.75;
/// Fewer places in which a page looks like parity count less.
const ROWS_MIN: usize = 24;
/// Places in which a page looks like parity that are counted.
const VOTES_MAX: usize = 4096;
/// Pairs of neighbours that are compared, among the first so many.
const PAIRS_MAX: usize = 512;
const BORDERS_MAX: u64 = 8192;

/// What a member's superblock says, whatever that is worth.
#[derive(Debug, Clone)]
pub(super) struct Hint {
    pub member: usize,
    pub shape: RescueShape,
    pub slot: Option<usize>,
}

/// Where, and which members, each with so much of a vote.
type Votes = Vec<(u64, Vec<usize>, f64)>;

/// All that is known.
pub(super) struct Evidence<'a> {
    pub sample: &'a Sample,
    pub hints: &'a [Hint],
    /// Where the first rows with a common parity are.
    pub first_content: Option<u64>,
    /// How large they are, in sectors.
    pub sizes: &'a [u64],
    /// Members whose page looks like parity, by where; and those that prove to hold Q.
    votes: Votes,
    exact: Votes,
}

/// A shape with what speaks for each member in each slot.
pub(super) struct Candidate {
    pub shape: RescueShape,
    weights: Weights,
    constant: f64,
    /// Rows in which a page looks like parity.
    parity_rows: usize,
    /// The share of them that any order has right, and what one of few stripes may have beside
    /// that.
    chance: f64,
    luck: f64,
    parity: Weights,
    copies: Option<Copies>,
    pub landmarks: Landmarks,
}

/// The points of an order, by what they are for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Score {
    pub total: f64,
    /// Without what superblocks say.
    pub content: f64,
    /// Of the rows in which a page looks like parity, those in which it is the right one.
    pub parity: Option<(f64, usize)>,
    /// Rows in which Q is what these data make, of those looked at.
    pub syndrome: Option<(usize, usize)>,
    /// Places that are copies of others in this order, and those of them that hold the same.
    pub copies: Option<(usize, usize)>,
    /// Every member has something of its own that speaks for its slot, and none is older than the
    /// others.
    pub sound: bool,
    /// How much more alike neighbours are than any two pages: 0 to 1.
    pub neighbours: f64,
    pub superblocks: usize,
}

impl Score {
    /// What has to be the same is, or there is nothing of that kind.
    pub fn copies_agree(&self) -> bool {
        self.copies.is_none_or(|(compared, same)| same * 100 >= compared * COPIES_PERCENT_MIN)
    }
}

impl<'a> Evidence<'a> {
    pub fn new(sample: &'a Sample, hints: &'a [Hint], first_content: Option<u64>, sizes: &'a [u64]) -> Self {
        let members = sizes.len();
        let speaks = |row: &&Row| row.sum != Sum::Silent;
        let looks = |row: &Row| {
            let most = row.entropy.iter().copied().fold(0.0, f32::max);
            let like = (0..members).filter(|&who| row.entropy[who] > most - MORE_ENTROPY);
            let like: Vec<_> = like.collect();
            // A block and its copy, alone in their stripe: one of the two is the parity, for sure.
            let alone = (0..members).all(|who| like.contains(&who) || row.entropy[who] == 0.0);
            let vote = if alone && like.len() == 2 { 1.0 } else { 1.0 / like.len() as f64 };
            (like.len() * 2 <= members).then_some((row.offset, like, vote))
        };
        let holds = |row: &Row| match row.sum {
            Sum::One(Some(who)) => Some((row.offset, vec![who], 1.0)),
            _ => None,
        };
        let some = |votes: Votes| {
            let step = votes.len().div_ceil(VOTES_MAX).max(1);
            votes.into_iter().step_by(step).collect()
        };
        let votes = some(sample.rows.iter().filter(speaks).filter_map(looks).collect());
        let exact = some(sample.rows.iter().filter_map(holds).collect());
        Self { sample, hints, first_content, sizes, votes, exact }
    }

    pub fn weigh(&self, shape: RescueShape, landmarks: Landmarks) -> Candidate {
        let columns = self.sizes.len() + 1;
        let mut parity = vec![vec![0.0; columns]; shape.slots];
        let (mut rows, mut stripes, mut last) = (0, 0, None);
        let exact = shape.level == Level::Raid6 && shape.slots == self.sizes.len();
        if shape.geometry.kind() == LevelKind::Parity {
            for (offset, like, vote) in if exact { &self.exact } else { &self.votes } {
                let Some((p, q)) = shape.parity_slots(*offset) else { continue };
                rows += 1;
                // Places of one stripe say one thing.
                let stripe = Some(offset / (shape.chunk_sectors * 512));
                stripes += u32::from(last != stripe);
                last = stripe;
                let slots = match q {
                    Some(q) if exact => vec![q],
                    Some(q) => vec![p, q],
                    None => vec![p],
                };
                for &slot in &slots {
                    for &who in like {
                        parity[slot][who] += vote;
                    }
                }
            }
        }
        let mut weights = parity.clone();
        let scale = PARITY_POINTS / rows.max(ROWS_MIN) as f64;
        weights.iter_mut().flatten().for_each(|weight| *weight *= scale);
        let many = (landmarks.found + landmarks.missed) as f64 * LANDMARK_POINTS;
        let each = LANDMARK_POINTS * (LANDMARKS_MAX / many.max(LANDMARKS_MAX));
        for (slot, votes) in landmarks.votes.iter().enumerate() {
            for (who, vote) in votes.iter().enumerate() {
                weights[slot][who] += vote * each;
            }
        }
        for (slot, size) in shape.sizes.iter().flatten().enumerate() {
            for (who, own) in self.sizes.iter().enumerate() {
                weights[slot][who] += if own == size { 0.0 } else { MISFIT_POINTS };
            }
        }
        let mut constant = -(landmarks.missed as f64) * each;
        // It was looked for copies, and there are some; in which order is not known yet.
        if shape.level == Level::Raid10 {
            constant += COPIES_POINTS;
            // With one more that is missing there is less that could speak against it.
            constant -= MISSING_POINTS * (shape.slots - self.sizes.len()) as f64;
        }
        // What pure chance would give.
        let chance = parity_chance(&shape, exact);
        let luck = LUCK * (chance * (1.0 - chance) / f64::from(stripes.max(1))).sqrt();
        constant -= PARITY_POINTS * (rows as f64 / rows.max(ROWS_MIN) as f64) * chance;
        if let Some(first) = self.first_content {
            let start = shape.data_offset_sectors * 512;
            constant += match start.cmp(&first) {
                std::cmp::Ordering::Equal => START_POINTS,
                std::cmp::Ordering::Greater => BEFORE_POINTS,
                std::cmp::Ordering::Less => 0.0,
            };
        }
        for hint in self.hints.iter().filter(|hint| hint.shape.is_same(&shape)) {
            if let Some(slot) = hint.slot {
                weights[slot][hint.member] += SUPERBLOCK_POINTS;
            }
        }
        Candidate {
            shape,
            weights,
            constant,
            parity_rows: rows,
            chance,
            luck,
            parity,
            copies: None,
            landmarks,
        }
    }
}

impl Candidate {
    /// The order for which slots and members speak, and how much.
    pub fn best_order(&self) -> (Vec<Option<usize>>, f64) {
        let order = super::assign::best(&self.weights);
        let points = total(&self.weights, &order) + self.constant;
        (order, points)
    }

    /// Orders to start from.
    pub fn starts(&mut self, evidence: &Evidence<'_>) -> Vec<Vec<Option<usize>>> {
        self.copies = Copies::look(evidence.sample, &self.shape);
        let mut starts = self.copies.as_ref().map(Copies::chains).unwrap_or_default();
        starts.push(self.best_order().0);
        starts
    }

    /// Everything that speaks for an order.
    pub fn score(&self, evidence: &Evidence<'_>, order: &[Option<usize>]) -> Score {
        let mut score = Score { total: total(&self.weights, order) + self.constant, ..Score::default() };
        if self.parity_rows > 0 {
            let right = total(&self.parity, order);
            score.parity = Some((right, self.parity_rows));
        }
        score.total -= MISSING_POINTS * self.made_up(evidence, order, &score);
        if let Some((right, looked)) = self.syndrome(evidence, order) {
            let share = right as f64 / looked as f64;
            score.total += SYNDROME_POINTS * (2.0 * share - 1.0) * (looked as f64 / 16.0).min(1.0);
            score.syndrome = Some((right, looked));
        }
        if let Some(copies) = &self.copies {
            let (compared, same) = copies.count(order);
            let share = same as f64 / compared.max(1) as f64;
            score.total +=
                COPIES_POINTS * ((2.0 * share - 1.0) * (compared as f64 / ROWS_MIN as f64).min(1.0) - 1.0);
            score.copies = Some((compared, same));
        }
        score.sound = self.is_sound(evidence, order, &score);
        score.neighbours = self.neighbours(evidence, order).unwrap_or(0.0);
        score.total += NEIGHBOUR_POINTS * score.neighbours;
        let agrees = |hint: &&Hint| {
            hint.shape.is_same(&self.shape) && hint.slot.is_some_and(|slot| order[slot] == Some(hint.member))
        };
        score.superblocks = evidence.hints.iter().filter(agrees).count();
        score.content = score.total - SUPERBLOCK_POINTS * score.superblocks as f64;
        score
    }

    /// How many missing members are only supposed. An order with more slots than members has more
    /// ways to fit by chance; that there was a member is shown by blocks that look like parity
    /// where it would be, or by structures that parity gives back in its place.
    fn made_up(&self, evidence: &Evidence<'_>, order: &[Option<usize>], score: &Score) -> f64 {
        if self.shape.geometry.kind() != LevelKind::Parity {
            return 0.0;
        }
        let nobody = evidence.sizes.len();
        let missing = order.iter().enumerate().filter(|(_, who)| who.is_none());
        let given_back = |(slot, _): (usize, &Option<usize>)| {
            self.landmarks.votes.get(slot).map_or(0.0, |votes| votes[nobody])
        };
        let back: f64 = missing.clone().map(given_back).sum();
        let more = score.parity.map_or(0.0, |(right, rows)| {
            (right / rows as f64 - self.chance - self.luck) / (1.0 - self.chance)
        });
        let more = (more - MORE_PARITY.start) / (MORE_PARITY.end - MORE_PARITY.start);
        let shown = (back / GIVEN_BACK).max(more).clamp(0.0, 1.0);
        missing.count() as f64 * (1.0 - shown)
    }

    /// Where members have nothing in common, it has to be told of each of them that it is one: a
    /// drive of which nothing speaks for its slot may be anything. A parity that goes round is that
    /// of all of them.
    fn is_sound(&self, evidence: &Evidence<'_>, order: &[Option<usize>], score: &Score) -> bool {
        if let Some((compared, _)) = score.copies {
            return compared >= ROWS_MIN && score.copies_agree();
        }
        let has_parity = self.shape.geometry.kind() == LevelKind::Parity;
        if has_parity && self.shape.slots == evidence.sizes.len() {
            return true;
        }
        let rotates = matches!(self.shape.level, Level::Raid5 | Level::Raid6);
        let goes_round = |(right, rows): (f64, usize)| rows >= ROWS_MIN && right >= ROUND_MIN * rows as f64;
        let votes = &self.landmarks.votes;
        let has_own =
            |(slot, who): (usize, &Option<usize>)| who.is_none_or(|who| votes[slot][who] >= OWN_MIN);
        rotates && score.parity.is_some_and(goes_round) || order.iter().enumerate().all(has_own)
    }

    /// In how many of the rows that were kept Q is what it should be; a block that is missing is
    /// what P says.
    fn syndrome(&self, evidence: &Evidence<'_>, order: &[Option<usize>]) -> Option<(usize, usize)> {
        if self.shape.level != Level::Raid6 || order.iter().filter(|who| who.is_none()).count() > 1 {
            return None;
        }
        let (mut right, mut looked) = (0, 0);
        for (offset, pages) in &evidence.sample.kept {
            let Some(stripe) = (offset / 512)
                .checked_sub(self.shape.data_offset_sectors)
                .map(|sector| sector / self.shape.chunk_sectors)
                .filter(|&stripe| stripe < self.shape.geometry.stripes())
            else {
                continue;
            };
            let map = self.shape.geometry.stripe(StripeNo(stripe));
            let page = |slot: usize| order[slot].map(|who| &pages[who][..]);
            let Some(q) = map.q().and_then(|q| page(q.index())) else { continue };
            let slots: Vec<_> = (0..map.data_blocks()).map(|block| map.data_member(block).index()).collect();
            let mut blocks: Vec<Option<Vec<u8>>> =
                slots.iter().map(|&slot| page(slot).map(<[u8]>::to_vec)).collect();
            if let Some(lost) = blocks.iter().position(Option::is_none) {
                let Some(p) = page(map.p().index()) else { continue };
                let mut sum = p.to_vec();
                for block in blocks.iter().flatten() {
                    sum.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
                }
                blocks[lost] = Some(sum);
            }
            let mut made = vec![0_u8; PAGE_BYTES];
            // Horner's rule, from the highest exponent down.
            let mut by_exponent: Vec<_> = (0..blocks.len()).map(|ix| (map.exponent(ix), ix)).collect();
            by_exponent.sort_unstable();
            let highest = by_exponent.last().map_or(0, |(exponent, _)| *exponent);
            for exponent in (0..=highest).rev() {
                made.iter_mut().for_each(|byte| *byte = twice(*byte));
                for (_, ix) in by_exponent.iter().filter(|(own, _)| *own == exponent) {
                    let block = blocks[*ix].as_deref().unwrap_or(&[]);
                    made.iter_mut().zip(block).for_each(|(made, byte)| *made ^= byte);
                }
            }
            looked += 1;
            right += usize::from(made == q);
        }
        (looked > 0).then_some((right, looked))
    }

    /// How much more alike the end of a chunk and the start of the next one are than such pages are
    /// among each other, by their entropy. `None` where there is nothing to tell.
    fn neighbours(&self, evidence: &Evidence<'_>, order: &[Option<usize>]) -> Option<f64> {
        if self.shape.chunk_sectors == 0 {
            return None;
        }
        let row_at = |byte: u64| evidence.sample.row_at(byte).map(|row| &row.entropy);
        let chunk = self.shape.chunk_sectors * 512;
        let chunks = self.shape.geometry.array_sectors().0 * 512 / chunk;
        let (mut apart, mut base, mut pairs) = (0.0, 0.0, 0);
        for border in 1..chunks.min(BORDERS_MAX) {
            if pairs == PAIRS_MAX {
                break;
            }
            // Of a mirror any copy that is there.
            let place = |byte: u64| {
                let places = self.shape.places(byte)?.0;
                places.iter().find(|(slot, _)| order[*slot].is_some()).or(places.first()).copied()
            };
            let (Some(tail), Some(head)) = (place(border * chunk - PAGE_BYTES as u64), place(border * chunk))
            else {
                break;
            };
            let (Some(tails), Some(heads)) = (row_at(tail.1), row_at(head.1)) else { continue };
            let (Some(one), Some(other)) = (order[tail.0], order[head.0]) else { continue };
            apart += f64::from((tails[one] - heads[other]).abs());
            let all =
                tails.iter().flat_map(|tail| heads.iter().map(move |head| f64::from((tail - head).abs())));
            base += all.sum::<f64>() / (tails.len() * heads.len()) as f64;
            pairs += 1;
        }
        // Hardly anything differs: nothing is told.
        let differ = pairs >= 16 && base / f64::from(pairs as u32) > 0.05;
        let sure = (f64::from(pairs as u32) / 128.0).sqrt().min(1.0);
        differ.then(|| (1.0 - apart / base).clamp(-1.0, 1.0) * sure)
    }
}

/// The share of places in which a block that looks like parity is where a shape has one, in any
/// order: one slot, or with P and Q two.
fn parity_chance(shape: &RescueShape, exact: bool) -> f64 {
    let parities = if shape.level == Level::Raid6 && !exact { 2.0 } else { 1.0 };
    parities / shape.slots as f64
}

/// Times 2 in the field of Q.
fn twice(byte: u8) -> u8 {
    byte << 1 ^ if byte & 0x80 != 0 { 0x1D } else { 0 }
}
