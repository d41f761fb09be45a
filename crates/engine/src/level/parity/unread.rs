//! What could not be read of a stripe just now, block of the members by block, and rows cut so that
//! each is the same from end to end.

use std::ops::Range;

use super::Work;
use super::rows::{self, Row, Rows};
use crate::member::Undelivered;
use crate::model::health::Health;
use crate::model::plan::BlockSet;
use crate::model::units::{SECTOR_BYTES, Sector};

/// Parts of a stripe's blocks: bytes inside the chunk.
type Parts = Vec<(usize, Range<u64>)>;

/// What could not be read of a stripe.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// Failed by themselves. They are made from redundancy, and written again.
    bad: Parts,
    /// Not answered in time. They are asked for only if redundancy does not have them, and left
    /// alone.
    late: Parts,
}

fn blocks(parts: &Parts, bytes: &Range<u64>) -> BlockSet {
    let touches = |part: &&(usize, Range<u64>)| part.1.start < bytes.end && bytes.start < part.1.end;
    parts.iter().filter(touches).map(|(block, _)| *block).collect()
}

impl Unread {
    pub fn is_empty(&self) -> bool {
        self.bad.is_empty() && self.late.is_empty()
    }

    /// Whether some block failed by itself.
    pub fn has_bad(&self) -> bool {
        !self.bad.is_empty()
    }

    /// The blocks of a row that failed by themselves.
    pub fn bad(&self, row: &Row) -> BlockSet {
        blocks(&self.bad, &row.bytes)
    }

    /// The blocks of a row that are not asked for as long as there is another way.
    pub fn avoided(&self, row: &Row) -> BlockSet {
        self.bad(row).union(&blocks(&self.late, &row.bytes))
    }

    /// Whether some of these bytes of a block were not answered in time.
    pub fn is_late(&self, block: usize, bytes: &Range<u64>) -> bool {
        blocks(&self.late, bytes).contains(block)
    }

    /// Takes note of what a block's member did not deliver; `at` is where in the chunk a sector is.
    pub fn add(&mut self, block: usize, undelivered: &Undelivered, at: impl Fn(Sector) -> u64) {
        let part = |range: Range<Sector>| (block, at(range.start)..at(range.end));
        self.bad.extend(undelivered.bad.iter().map(part));
        self.late.extend(undelivered.late.iter().map(part));
    }

    pub fn join(&mut self, other: Self) {
        self.bad.extend(other.bad);
        self.late.extend(other.late);
    }

    fn edges(&self) -> impl Iterator<Item = u64> + '_ {
        self.bad.iter().chain(&self.late).flat_map(|(_, bytes)| [bytes.start, bytes.end])
    }
}

impl Work<'_> {
    /// The rows cut where some block begins or ceases to be readable; `None` if they may stay as
    /// they are.
    pub(super) fn cut_rows(&self, health: &Health, rows: &[Row], unread: &Unread) -> Option<Rows> {
        if health.optimal && unread.is_empty() {
            return None;
        }
        let mut edges: Vec<u64> = unread.edges().collect();
        let block = self.shard.members.member_block();
        let base = self.map.member_sector;
        for row in rows {
            for member in (0..self.blocks()).map(|block| self.member(block)) {
                let sectors = self.sectors(row.bytes.clone());
                let parts = health.parts(member, sectors.clone(), sectors.start, block);
                edges.extend(parts.map(|(_, part)| (part.end - base).0 * SECTOR_BYTES));
            }
        }
        Some(rows::cut(rows, edges))
    }
}
