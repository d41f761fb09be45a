//! Carries out a batch of reads that need reconstruction on one stripe, and rewrites from
//! redundancy what could not be read.

use wattle_rt::{Buf, BufMut, Durability};

use super::buffers::Room;
use super::rows::{self, Grid, Row};
use super::transfer::{FetchFrom, Seats};
use super::unread::Unread;
use super::{Work, refusal};
use crate::lease::queue::ReadPiece;
use crate::member::{NoRoom, WriteCost};
use crate::model::error::VolumeError;
use crate::model::plan::{self, BlockSet, ReadPlan};
use crate::model::units::MemberSet;
use crate::state::sums;

impl Work<'_> {
    /// Fills the pieces' buffers.
    ///
    /// # Errors
    /// Nothing can be said of the buffers' contents then.
    pub(super) async fn read(&self, pieces: &mut [ReadPiece]) -> Result<(), VolumeError> {
        let segments = self.segments(pieces.iter().map(|piece| (piece.start, piece.buf.len())));
        let whole = rows::rows(&segments);
        let avoid = pieces.iter().fold(MemberSet::EMPTY, |all, piece| all.union(&piece.avoid));
        let slow: BlockSet = (0..self.blocks()).filter(|&block| avoid.contains(self.member(block))).collect();
        let mut unread = Unread::default();
        let mut room = Room::default();
        // Bounded as in `write`.
        for _attempt in 0..self.attempts_max() {
            let health = self.shard.members.health();
            let cut = self.cut_rows(&health, &whole, &unread);
            let rows = cut.as_ref().unwrap_or(&whole);
            let decide = |row: &Row| {
                let decide = |without: &BlockSet| {
                    plan::decide_read(&self.view(&health, row, without, BlockSet::EMPTY), &row.touched)
                };
                decide(&unread.avoided(row).union(&slow)).or_else(|_| decide(&unread.bad(row)))
            };
            let plans = rows.iter().map(decide).collect::<Result<Vec<_>, _>>().map_err(refusal)?;
            let blocks = |plan: &ReadPlan| plan.fetch.union(&plan.recover).len();
            let bytes = rows.iter().zip(&plans).map(|(row, plan)| row.len() * blocks(plan)).sum();
            if self.take_room(&mut room, bytes).await {
                continue;
            }
            let mut fetched =
                match self.fetch(rows, |row| plans[row].fetch, FetchFrom::Members, &unread).await {
                    Ok(fetched) => fetched,
                    Err(lost) => {
                        Box::pin(self.lose(lost, &mut unread)).await?;
                        continue;
                    }
                };
            for (row, plan) in plans.iter().enumerate().filter(|(_, plan)| !plan.recover.is_empty()) {
                self.recover(fetched.row_mut(row), rows[row].len());
                self.shard.state.counters.rows_recovered.add(1);
                debug_assert!(plan.recover.iter().all(|block| fetched.get(row, block).is_some()));
            }
            for segment in &segments {
                for row in rows::covered(rows, segment) {
                    let at = segment.at + (rows[row].bytes.start - segment.bytes.start) as usize;
                    let source =
                        fetched.get(row, segment.block).expect("every touched block was read or recovered");
                    pieces[segment.piece].buf[at..at + source.len()].copy_from_slice(source);
                }
            }
            // Whatever becomes of the rewrite, the data is right.
            if unread.has_bad() && !self.shard.fixed.read_only && !health.broken {
                let touched =
                    rows.first().map_or(0, |row| row.bytes.start)..rows.last().map_or(0, |row| row.bytes.end);
                // What redundancy says it had need not be what a scrub recorded.
                if sums::enter(&self.shard.state, self.sectors(touched)).await.is_err() {
                    return Ok(());
                }
                let mut repairs = self.repairs(rows, &unread, fetched);
                let outcome = self.store(&health, rows, &mut repairs, Seats::Slot, Durability::Cached).await;
                let settled = self.shard.state.settle(outcome, WriteCost::Sectors, NoRoom::Fails);
                let _ = Box::pin(settled).await;
            }
            return Ok(());
        }
        Err(VolumeError::Unreadable)
    }

    /// The recovered contents of blocks that failed by themselves.
    fn repairs(&self, rows: &[Row], unread: &Unread, mut fetched: Grid<BufMut>) -> Grid<Buf> {
        let mut repairs = Grid::new(rows.len(), self.blocks());
        for (number, row) in rows.iter().enumerate() {
            for block in unread.bad(row).iter().filter(|&block| block < self.data()) {
                if let Some(buf) = fetched.take(number, block) {
                    self.shard.state.counters.repaired.add(1);
                    repairs.set(number, block, buf.freeze());
                }
            }
        }
        repairs
    }
}
