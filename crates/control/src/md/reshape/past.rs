//! How far Linux ran past the position that it recorded, where data moves by an offset and there
//! are as many data members as before.
//!
//! Below Linux's place only the new copies count, and from there on only the old ones; of what it
//! moved last, for as long as the offset is, both do. The last of it may have reached the members
//! in any order: around both ends of that stretch are copies that are there, and copies that are
//! not.
//!
//! Invariant: as long as what was written out of order is less than half of the offset, every block
//! is read where its content is, or not at all.

use std::collections::BTreeSet;
use std::ops::Range;

/// Blocks of a sample.
const SAMPLE_BLOCKS: u64 = 16;
/// Blocks that are read in one go.
pub(super) const READ_BLOCKS: u64 = 256;
/// Blocks that cannot be read before the search is given up: each may take a drive seconds.
const UNREAD_BLOCKS_MAX: u64 = 4096;
/// Blocks of different content that agree at both places, before they count as moved.
const PROOF_BLOCKS: usize = 8;

/// How a block is at the two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    /// Different.
    Apart,
    /// Not to be read at one of them.
    Unread,
    /// The same, of one byte only: free space is like free space.
    Blank,
    /// The same, of content with this fingerprint.
    Same(u64),
}

/// The two places of what lies around the position.
pub(super) trait Places {
    /// Blocks beyond the position, counted from it in the direction of the reshape.
    async fn beyond(&self, blocks: Range<u64>) -> Vec<Compared>;
    /// Blocks before the position, counted back from it.
    async fn before(&self, blocks: Range<u64>) -> Vec<Compared>;
}

/// What is searched, in blocks.
pub(super) struct Extent {
    /// What lies before the position.
    pub before: u64,
    /// What lies beyond it.
    pub beyond: u64,
    /// What of that is looked at.
    pub searched: u64,
    /// By how much data moves.
    pub moved: u64,
    /// What Linux moves in one go.
    pub unit: u64,
}

/// How far Linux ran past what the old place still holds, in blocks beyond the position.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// Only the new place holds what is below `blocks`. Of blocks behind it that cannot be read at
    /// both places it is not known which one counts.
    Proved { blocks: u64, unread: Vec<Range<u64>> },
    /// Perhaps so.
    Possible(u64),
}

/// Where what was moved last is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// At both places, proved as far back as this, in blocks from the position.
    Both { reach: u64 },
    /// Some of it is at one place, and nothing behind that which is not blank at both.
    One,
    /// That cannot be told.
    Open,
}

/// A run of blocks that are the same at both places, as far as both can be read.
struct Run {
    blocks: Range<u64>,
    /// Fingerprints of what is not blank.
    proof: BTreeSet<u64>,
    /// From the first block that is not blank to the last one.
    proof_blocks: Option<Range<u64>>,
    /// Blocks that cannot be read at one of the places.
    unread: Vec<Range<u64>>,
    unread_blocks: u64,
}

/// How many blocks beyond the position only the new place holds.
pub(super) async fn ran_past(places: &impl Places, extent: &Extent) -> Past {
    let Extent { moved, unit, .. } = *extent;
    let end = extent.searched.min(extent.beyond);
    // Any stretch that is long enough has a sample in it.
    let stride = (moved / 2).max(1);
    let enough = moved.saturating_sub(2 * unit).max(stride);
    let (mut at, mut possible, mut unread, mut rival_to) = (0, 0, 0, None);
    // What agrees before the position was not written over, and so nothing behind it was.
    let (behind, agrees) = behind(places, extent).await;
    if agrees >= stride {
        rival_to = Some(0);
    }
    if let Behind::Both { reach } = behind {
        if reach < stride {
            let run = run_around(places, 0, end).await;
            possible = rival(places, &run, extent).await;
        }
        if possible == 0 {
            return Past::Proved { blocks: 0, unread: Vec::new() };
        }
    }
    while at < end {
        let sample = places.beyond(at..(at + SAMPLE_BLOCKS.min(stride)).min(end)).await;
        let Some(hit) = sample.iter().position(|block| *block != Compared::Apart) else {
            at += stride;
            continue;
        };
        let run = run_around(places, at + hit as u64, end).await;
        unread += run.unread_blocks;
        if unread > UNREAD_BLOCKS_MAX {
            return Past::Possible(extent.beyond);
        }
        let (start, is_proof) = (run.blocks.start, run.proof.len() >= PROOF_BLOCKS);
        let len = run.blocks.end - start + if start == 0 { agrees } else { 0 };
        // At the position itself it may be shorter: Linux has not come further yet.
        if is_proof && (len >= enough || start == 0) {
            let proved = run.proof_blocks.as_ref().map_or(0, |blocks| blocks.end - blocks.start);
            let other = match proved >= stride {
                true => 0,
                // The stretch may be what agrees close before it.
                false if start > 0 && rival_to.is_some_and(|end| start - end < stride) => start,
                false => rival(places, &run, extent).await,
            };
            if other == 0 {
                return Past::Proved { blocks: start, unread: run.unread };
            }
            possible = possible.max(other);
        } else if is_proof {
            possible = possible.max(run.blocks.end);
        } else if len >= stride {
            // Blank, and perhaps the stretch all the same.
            possible = possible.max(start);
        }
        if is_proof || len >= stride {
            rival_to = Some(run.blocks.end);
        }
        // What agrees may have been longer than what can be read of it, and begin here.
        if let Some(last) = run.unread.last() {
            possible = possible.max(last.end);
        }
        at = run.blocks.end.max(at + 1);
    }
    // Somewhere both places agree. Where that is not found, although there is content that only
    // one of them has, or more than was looked at, nothing says where Linux is.
    let is_all = end == extent.beyond && behind != Behind::One;
    Past::Possible(if is_all { possible } else { extent.beyond })
}

/// Where what lies before the position is, as far as data moves; and how far back both places
/// agree, of which what would lie before the array's start counts as well.
async fn behind(places: &impl Places, extent: &Extent) -> (Behind, u64) {
    let (mut proof, mut reach, mut is_apart, mut at) = (BTreeSet::new(), 0, false, 0);
    let mut agrees = extent.moved;
    let end = extent.moved.min(extent.before);
    while at < end && !is_apart {
        let to = (at + READ_BLOCKS).min(end);
        for (block, number) in places.before(at..to).await.into_iter().zip(at..) {
            match block {
                Compared::Same(content) => {
                    proof.insert(content);
                    reach = number + 1;
                }
                // What agrees before this does so by chance: it was written over first.
                Compared::Apart => {
                    (is_apart, agrees) = (true, number);
                    break;
                }
                Compared::Blank | Compared::Unread => {}
            }
        }
        at = to;
    }
    let behind = match proof.len() {
        PROOF_BLOCKS.. => Behind::Both { reach },
        0 if is_apart => Behind::One,
        _ => Behind::Open,
    };
    (behind, agrees)
}

/// Where what Linux moved last may begin instead of in a run whose proof is short: that may have
/// been left by writes that were lost, and then the stretch is close behind it. 0 if nothing agrees
/// there but pieces that were moved out of order, right behind the run.
async fn rival(places: &impl Places, run: &Run, extent: &Extent) -> u64 {
    let slack = (2 * extent.unit).min(extent.moved / 4);
    let mut at = run.blocks.end.saturating_add(slack).min(extent.beyond);
    let end = at.saturating_add(extent.moved).min(extent.beyond);
    let enough = (extent.moved / 2).saturating_sub(slack).max(1);
    let (mut proof, mut same_to, mut agrees_from, mut longest_from) = (BTreeSet::new(), 0, at, 0);
    while at < end {
        let to = (at + READ_BLOCKS).min(end);
        for (block, number) in places.beyond(at..to).await.into_iter().zip(at..) {
            match block {
                Compared::Apart => agrees_from = number + 1,
                Compared::Same(content) => {
                    proof.insert(content);
                    same_to = number + 1;
                }
                Compared::Blank | Compared::Unread => {}
            }
            if number + 1 - agrees_from >= enough {
                longest_from = agrees_from;
            }
        }
        at = to;
    }
    if proof.len() >= PROOF_BLOCKS { same_to.max(longest_from) } else { longest_from }
}

/// The run around a block.
async fn run_around(places: &impl Places, at: u64, end: u64) -> Run {
    let mut run = Run {
        blocks: at..at,
        proof: BTreeSet::new(),
        proof_blocks: None,
        unread: Vec::new(),
        unread_blocks: 0,
    };
    'left: while run.blocks.start > 0 && run.unread_blocks <= UNREAD_BLOCKS_MAX {
        let from = run.blocks.start.saturating_sub(READ_BLOCKS);
        for block in places.beyond(from..run.blocks.start).await.into_iter().rev() {
            if !run.takes(run.blocks.start - 1, block) {
                break 'left;
            }
            run.blocks.start -= 1;
        }
    }
    'right: while run.blocks.end < end && run.unread_blocks <= UNREAD_BLOCKS_MAX {
        let to = (run.blocks.end + READ_BLOCKS).min(end);
        for block in places.beyond(run.blocks.end..to).await {
            if !run.takes(run.blocks.end, block) {
                break 'right;
            }
            run.blocks.end += 1;
        }
    }
    run.unread.sort_by_key(|blocks| blocks.start);
    run
}

impl Run {
    /// Whether a block belongs to it; what it proves is kept. Blocks that cannot be read do not end
    /// it: they may be part of it.
    fn takes(&mut self, number: u64, block: Compared) -> bool {
        match block {
            Compared::Apart => return false,
            Compared::Unread => {
                self.unread_blocks += 1;
                match self.unread.last_mut() {
                    Some(last) if last.start == number + 1 => last.start = number,
                    Some(last) if last.end == number => last.end += 1,
                    _ => self.unread.push(number..number + 1),
                }
            }
            Compared::Same(content) => {
                if self.proof.len() < PROOF_BLOCKS {
                    self.proof.insert(content);
                }
                let proved = self.proof_blocks.get_or_insert(number..number + 1);
                *proved = proved.start.min(number)..proved.end.max(number + 1);
            }
            Compared::Blank => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// An array on one line of blocks: content `x` is at `x + moved` before the reshape, at `x`
    /// after it. 0 is blank.
    struct Model {
        content: Vec<u64>,
        line: Vec<u64>,
        moved: usize,
        position: usize,
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, below: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % below.max(1)
        }
    }

    impl Model {
        fn new(content: Vec<u64>, moved: usize) -> Self {
            let line = [vec![u64::MAX; moved], content.clone()].concat();
            Self { content, line, moved, position: 0 }
        }

        fn moves(&mut self, blocks: Range<usize>) {
            self.line[blocks.clone()].copy_from_slice(&self.content[blocks]);
        }

        fn compare(&self, block: usize) -> Compared {
            match (self.line[block], self.line[block + self.moved]) {
                (new, old) if new != old => Compared::Apart,
                (0, _) => Compared::Blank,
                (content, _) => Compared::Same(content),
            }
        }

        fn decide(&self, unit: usize, searched: usize) -> Past {
            let beyond = (self.content.len() - self.position) as u64;
            let extent = Extent {
                before: self.position as u64,
                beyond,
                searched: searched as u64,
                moved: self.moved as u64,
                unit: unit as u64,
            };
            let future = pin!(ran_past(self, &extent));
            let Poll::Ready(past) = future.poll(&mut Context::from_waker(Waker::noop())) else { panic!() };
            past
        }

        /// How many blocks are refused; panics if one is read that is wrong.
        fn refused(&self, past: &Past, what: &str) -> u64 {
            let (proved, refused) = match past {
                Past::Proved { blocks, unread } => {
                    assert!(unread.is_empty());
                    (*blocks as usize, 0)
                }
                Past::Possible(blocks) => (0, *blocks as usize),
            };
            for block in self.position..self.content.len() {
                let number = block - self.position;
                let is_right = match number {
                    _ if number < refused => true,
                    _ if number < proved => self.line[block] == self.content[block],
                    _ => self.line[block + self.moved] == self.content[block],
                };
                assert!(is_right, "{what}: block {number} beyond the position, {past:?}");
            }
            refused as u64
        }
    }

    impl Places for Model {
        async fn beyond(&self, blocks: Range<u64>) -> Vec<Compared> {
            blocks.map(|block| self.compare(self.position + block as usize)).collect()
        }

        async fn before(&self, blocks: Range<u64>) -> Vec<Compared> {
            blocks.map(|block| self.compare(self.position - 1 - block as usize)).collect()
        }
    }

    /// Content of which no two blocks are the same but blank ones, of which there are runs.
    fn content(random: &mut Random, blocks: usize, blank_in_8: usize) -> Vec<u64> {
        let mut content: Vec<u64> = (1..=blocks as u64).collect();
        let mut at = 0;
        while at < blocks {
            let end = (at + 1 + random.below(blocks / 4)).min(blocks);
            if random.below(8) < blank_in_8 {
                content[at..end].fill(0);
            }
            at = end;
        }
        content
    }

    /// Linux came to any place, had recorded any position before, and the last units that it moved
    /// reached the members in any order, or some of them not.
    #[test]
    fn what_is_read_is_right_wherever_linux_was_and_whatever_it_lost() {
        let mut random = Random(1);
        let (mut proved, mut blank) = (0, 0);
        for round in 0..20_000 {
            let unit = 1 + random.below(12);
            let moved = unit * (2 + random.below(8)) + random.below(unit);
            let blocks = moved * (2 + random.below(8));
            let blank_in_8 = [0, 0, 3, 6][round % 4];
            let mut model = Model::new(content(&mut random, blocks, blank_in_8), moved);
            let came_to = unit * random.below(blocks / unit);
            model.position = [0, unit * random.below(came_to / unit + 1)][random.below(2)];
            let position = model.position;
            let torn = [0, unit, moved / 2 - 1][random.below(3)].min(came_to - position);
            model.moves(0..came_to - torn);
            let by = [1, unit][random.below(2)];
            let mut at = came_to - torn;
            while at < came_to {
                let end = (at + by).min(came_to);
                if random.below(2) == 0 {
                    model.moves(at..end);
                }
                at = end;
            }
            let past = model.decide(unit, blocks);
            let what = format!(
                "{round}: unit {unit}, moved {moved}, recorded {position}, came to {came_to}, torn {torn} by {by}"
            );
            let refused = model.refused(&past, &what);
            if blank_in_8 == 0 && torn == 0 && moved >= 16 {
                assert_eq!(refused, 0, "{what}: {past:?}");
                proved += 1;
            }
            blank += u64::from(blank_in_8 > 0 && refused == 0);
        }
        assert!(proved > 1000 && blank > 1000, "{proved} {blank}");
    }

    #[test]
    fn a_short_proof_and_a_search_that_ended_early_prove_nothing() {
        let mut model = Model::new((1..=4000).collect(), 96);
        model.moves(0..2000);
        assert_eq!(model.decide(12, 4000), Past::Proved { blocks: 1904, unread: Vec::new() });
        assert_eq!(model.decide(12, 1000), Past::Possible(4000), "Linux is further than was looked");
        // Of what was moved last, a part was lost and what came behind it was not.
        model.line[1930..1970].copy_from_slice(&model.content[1930 - 96..1970 - 96]);
        let past = model.decide(12, 4000);
        assert!(matches!(past, Past::Possible(1970..=2000)), "{past:?}");
        model.refused(&past, "torn");
    }

    /// What agrees farther before the position does so by chance: it was written over first.
    #[test]
    fn what_agrees_before_the_position_reaches_up_to_it() {
        let mut model = Model::new((1..=4000).collect(), 96);
        model.content[500..596].fill(7);
        for at in 0..16 {
            (model.content[500 + at], model.content[596 + at]) = (9000 + at as u64, 9000 + at as u64);
        }
        model.line[96..].copy_from_slice(&model.content);
        model.moves(0..1000);
        model.position = 590;
        let past = model.decide(12, 4000);
        assert_eq!(past, Past::Proved { blocks: 1000 - 96 - 590, unread: Vec::new() });
        assert_eq!(model.refused(&past, "by chance"), 0);
    }
}
