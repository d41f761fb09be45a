//! Carries out a batch of reads that need reconstruction on one stripe, and rewrites from redundancy what could not be read.

use wattle_rt::{Buf, BufMut, Durability};

use super::buffers::Room;
use super::rows::{self, Grid};
use super::transfer::FetchFrom;
use super::{ReadPiece, Work, refusal};
use crate::error::VolumeError;
use crate::plan::{self, BlockSet, ReadPlan};
use crate::units::MemberSet;

impl Work<'_> {
    /// Fills the pieces' buffers.
    ///
    /// # Errors
    /// Nothing can be said of the buffers' contents then.
    pub(super) async fn read(&self, pieces: &mut [ReadPiece]) -> Result<(), VolumeError> {
        let segments = self.segments(pieces.iter().map(|piece| (piece.start, piece.buf.len())));
        let rows = rows::rows(&segments);
        let avoid = pieces.iter().fold(MemberSet::EMPTY, |all, piece| all.union(&piece.avoid));
        let slow: BlockSet = (0..self.blocks()).filter(|&block| avoid.contains(self.member(block))).collect();
        let mut unreadable = BlockSet::EMPTY;
        let mut room = Room::default();
        // Bounded as in `write`.
        for _turn in 0..=4 * self.blocks() {
            let health = self.shard.health();
            let decide = |without: &BlockSet| {
                let plan =
                    |row| plan::decide_read(&self.view(&health, row, without, BlockSet::EMPTY), &row.touched);
                rows.iter().map(plan).collect::<Result<Vec<_>, _>>()
            };
            let plans = decide(&unreadable.union(&slow)).or_else(|_| decide(&unreadable)).map_err(refusal)?;
            let blocks = |plan: &ReadPlan| plan.fetch.union(&plan.recover).len();
            let bytes = rows.iter().zip(&plans).map(|(row, plan)| row.len() * blocks(plan)).sum();
            if self.take_room(&mut room, bytes).await {
                continue;
            }
            let mut fetched = match self.fetch(&rows, |row| plans[row].fetch, FetchFrom::Members).await {
                Ok(fetched) => fetched,
                Err(lost) => {
                    self.lose(lost, &mut unreadable).await?;
                    continue;
                }
            };
            for (row, plan) in plans.iter().enumerate().filter(|(_, plan)| !plan.recover.is_empty()) {
                self.recover(fetched.row_mut(row), rows[row].len());
                self.shard.counters.rows_recovered.add(1);
                debug_assert!(plan.recover.iter().all(|block| fetched.get(row, block).is_some()));
            }
            for segment in &segments {
                for row in rows::covered(&rows, segment) {
                    let at = segment.at + (rows[row].bytes.start - segment.bytes.start) as usize;
                    let source =
                        fetched.get(row, segment.block).expect("every touched block was read or recovered");
                    pieces[segment.piece].buf[at..at + source.len()].copy_from_slice(source);
                }
            }
            // Whatever becomes of the rewrite, the data is right.
            if !unreadable.is_empty() && !self.shard.fixed.read_only && !health.broken {
                let mut repairs = self.repairs(&rows, &unreadable, fetched);
                let stored = self.store(&health, &rows, &mut repairs, Durability::Cached).await;
                let _ = self.shard.bury(stored.losses).await;
            }
            return Ok(());
        }
        unreachable!("a stripe of {} blocks lost more than all of them", self.blocks())
    }

    /// The recovered contents of blocks that could not be read.
    fn repairs(&self, rows: &[rows::Row], unreadable: &BlockSet, mut fetched: Grid<BufMut>) -> Grid<Buf> {
        let mut repairs = Grid::new(rows.len(), self.blocks());
        for row in 0..rows.len() {
            for block in unreadable.iter().filter(|&block| block < self.data()) {
                if let Some(buf) = fetched.take(row, block) {
                    self.shard.counters.repaired.add(1);
                    repairs.set(row, block, buf.freeze());
                }
            }
        }
        repairs
    }
}
