//! Carries out a batch of reads that need reconstruction on one stripe, and rewrites from redundancy what could not be read.

use wattle_rt::{Buf, BufMut, Durability};

use super::rows::{self, Grid};
use super::{ReadPiece, Work, refusal};
use crate::error::VolumeError;
use crate::plan::{self, BlockSet};

impl Work<'_> {
    /// Fills the pieces' buffers.
    ///
    /// # Errors
    /// Nothing can be said of the buffers' contents then.
    pub(super) async fn read(&self, pieces: &mut [ReadPiece]) -> Result<(), VolumeError> {
        let segments = self.segments(pieces.iter().map(|piece| (piece.start, piece.buf.len())));
        let rows = rows::rows(&segments);
        let mut unreadable = BlockSet::EMPTY;
        // Bounded as in `write`.
        for _turn in 0..=2 * self.blocks() {
            let health = self.shard.health();
            let plans = rows
                .iter()
                .map(|row| plan::decide_read(&self.view(&health, row, &unreadable), &row.touched))
                .collect::<Result<Vec<_>, _>>()
                .map_err(refusal)?;
            let mut fetched = match self.fetch(&rows, |row| plans[row].fetch).await {
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
            // A member that takes the rewrite keeps its place; one that does not is failed like after any failed write.
            // Either way the data is right.
            if !unreadable.is_empty() && !self.shard.fixed.read_only && !health.broken {
                let repairs = self.repairs(&rows, &unreadable, fetched);
                let loss = self.store(&health, &rows, repairs, Durability::Cached).await;
                if !loss.members.is_empty() {
                    let _ = self.shard.fail(loss.members).await;
                }
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
