//! Member operations of a batch: for each block, neighbouring rows go as one vectored read or write.

use std::ops::Range;

use wattle_rt::{Buf, BufMut, Durability, IoErrorKind};

use super::Work;
use super::rows::{Grid, Row};
use crate::array::Health;
use crate::plan::BlockSet;
use crate::units::{MemberSet, SECTOR_BYTES, Sector};

/// What could not be read.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Blocks with sectors that could not be read, on members that work otherwise.
    pub unreadable: BlockSet,
    /// Members that are to be failed.
    pub members: MemberSet,
}

/// What could not be written.
#[derive(Debug, Default)]
pub(super) struct StoreLoss {
    pub members: MemberSet,
    pub no_space: bool,
}

impl Work<'_> {
    /// Reads the blocks `wanted` of each row. All operations are queued before the first is awaited.
    pub(super) async fn fetch(
        &self,
        rows: &[Row],
        wanted: impl Fn(usize) -> BlockSet,
    ) -> Result<Grid<BufMut>, Lost> {
        let mut grid = Grid::new(rows.len(), self.blocks());
        let mut reads = Vec::new();
        for (block, run) in runs(rows, self.blocks(), wanted) {
            let buf = BufMut::alloc((rows[run.end - 1].bytes.end - rows[run.start].bytes.start) as usize);
            let read = self.shard.read(self.member(block), self.sector(&rows[run.start]), vec![buf]);
            reads.push((block, run, read));
        }
        let mut lost = Lost::default();
        for (block, run, read) in reads {
            let (result, mut bufs) = read.await;
            if let Err(error) = result {
                let member = self.member(block);
                if self.shard.judge_read_error(member, error) {
                    lost.members.insert(member);
                } else {
                    lost.unreadable.insert(block);
                }
                continue;
            }
            let mut rest = bufs.pop().expect("the buffer that was passed comes back");
            for row in run {
                grid.set(row, block, rest.split_to(rows[row].len()));
            }
        }
        if lost.unreadable.is_empty() && lost.members.is_empty() { Ok(grid) } else { Err(lost) }
    }

    /// Writes the blocks that `blocks` holds, to the members that took writes in `health`, in which they were planned: what is
    /// left out must be recorded as left out. All operations are queued before the first is awaited.
    pub(super) async fn store(
        &self,
        health: &Health,
        rows: &[Row],
        mut blocks: Grid<Buf>,
        durability: Durability,
    ) -> StoreLoss {
        let present = |row: usize| {
            blocks
                .row(row)
                .iter()
                .enumerate()
                .filter(|(_, cell)| cell.is_some())
                .map(|(block, _)| block)
                .collect()
        };
        let runs: Vec<_> = runs(rows, self.blocks(), present).collect();
        let mut writes = Vec::with_capacity(runs.len());
        for (block, run) in runs {
            let start = self.sector(&rows[run.start]);
            let bufs: Vec<Buf> = run.filter_map(|row| blocks.take(row, block)).collect();
            for seat in health.writable_for(self.member(block)) {
                writes.push((seat, self.shard.write(seat, start, bufs.clone(), durability)));
            }
        }
        let mut loss = StoreLoss::default();
        for (member, write) in writes {
            if let Err(error) = write.await {
                loss.members.insert(member);
                loss.no_space |= error.kind() == IoErrorKind::NoSpace;
            }
        }
        loss
    }

    fn sector(&self, row: &Row) -> Sector {
        Sector(self.map.member_sector.0 + row.bytes.start / SECTOR_BYTES)
    }
}

/// For each block, the longest runs of rows that follow one another without a gap and have the block in their set.
fn runs(
    rows: &[Row],
    blocks: usize,
    set: impl Fn(usize) -> BlockSet,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let sets: Vec<BlockSet> = (0..rows.len()).map(set).collect();
    (0..blocks).flat_map(move |block| {
        let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
        for row in (0..rows.len()).filter(|&row| sets[row].contains(block)) {
            match runs.last_mut() {
                Some((_, run)) if run.end == row && rows[row - 1].bytes.end == rows[row].bytes.start => {
                    run.end += 1;
                }
                _ => runs.push((block, row..row + 1)),
            }
        }
        runs
    })
}
