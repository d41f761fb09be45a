//! Member operations of a batch: for each block, neighbouring rows go as one vectored read or write.

use std::ops::Range;

use smallvec::SmallVec;
use wattle_rt::{Buf, BufMut, Durability, IoErrorKind};

use super::Work;
use super::rows::{Grid, Row};
use crate::array::{Bufs, Health, WriteLoss};
use crate::plan::BlockSet;
use crate::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};

/// Most rows, so buffers, in one vectored operation, below Linux' IOV_MAX of 1024.
const VECTOR_MAX: usize = 512;

/// Where blocks are fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchFrom {
    Members,
    CacheOrMembers,
}

/// What could not be read.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Blocks with sectors that could not be read, on members that work otherwise.
    pub unreadable: BlockSet,
    /// Members that are to be failed.
    pub members: MemberSet,
}

/// What came of writes.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Seats on which a write failed.
    pub failed: MemberSet,
    pub no_space: bool,
    /// The writes that failed.
    pub losses: Vec<WriteLoss>,
    /// Sectors that were known to be bad, and hold something now.
    pub mended: Vec<(MemberIx, Range<Sector>)>,
}

impl Work<'_> {
    /// Fetches the blocks `wanted` of each row. All operations are queued before the first is awaited.
    pub(super) async fn fetch(
        &self,
        rows: &[Row],
        wanted: impl Fn(usize) -> BlockSet,
        from: FetchFrom,
    ) -> Result<Grid<BufMut>, Lost> {
        let mut grid = Grid::new(rows.len(), self.blocks());
        // By row: what has to be read.
        let mut missing: Sets = (0..rows.len()).map(wanted).collect();
        if from == FetchFrom::CacheOrMembers {
            let (mut hits, mut misses) = (0, 0);
            for (number, row) in rows.iter().enumerate() {
                for block in missing[number].iter() {
                    let Some(buf) = self.kept(row, block) else { continue };
                    grid.set(number, block, buf);
                    missing[number].remove(block);
                    hits += 1;
                }
                misses += missing[number].len() as u64;
            }
            self.shard.cache.count(hits, misses);
            self.shard.counters.pre_reads.add(misses);
        }
        let mut reads: SmallVec<[_; 4]> = SmallVec::new();
        for (block, run) in runs(rows, &missing) {
            let buf = BufMut::alloc((rows[run.end - 1].bytes.end - rows[run.start].bytes.start) as usize);
            let read = self.shard.read_one(self.member(block), self.sector(&rows[run.start]), buf);
            reads.push((block, run, read));
        }
        let mut lost = Lost::default();
        for (block, run, read) in &mut reads {
            let (result, mut buf) = read.await;
            if let Err(error) = result {
                let member = self.member(*block);
                if self.shard.judge_read_error(member, error) {
                    lost.members.insert(member);
                } else {
                    lost.unreadable.insert(*block);
                }
                continue;
            }
            let (last, before) = rows[run.clone()].split_last().expect("a run has rows");
            for (row, place) in run.clone().zip(before) {
                grid.set(row, *block, buf.split_to(place.len()));
            }
            debug_assert_eq!(buf.len(), last.len());
            grid.set(run.end - 1, *block, buf);
        }
        if lost.unreadable.is_empty() && lost.members.is_empty() { Ok(grid) } else { Err(lost) }
    }

    /// Writes what `blocks` holds and takes it out, to the members that took writes in `health`, in which they were planned: what is
    /// left out must be recorded as left out. All operations are queued before the first is awaited.
    pub(super) async fn store(
        &self,
        health: &Health,
        rows: &[Row],
        blocks: &mut Grid<Buf>,
        durability: Durability,
    ) -> Stored {
        let present: Sets = (0..rows.len()).map(|row| blocks.present(row)).collect();
        let mut writes: SmallVec<[_; 4]> = SmallVec::new();
        for (block, run) in runs(rows, &present) {
            let sectors = self.sectors(rows[run.start].bytes.start..rows[run.end - 1].bytes.end);
            self.forget(block, rows[run.start].bytes.start..rows[run.end - 1].bytes.end);
            let bufs: Bufs = run.filter_map(|row| blocks.take(row, block)).collect();
            let mut write = |seat, bufs| {
                let write = self.shard.write(seat, sectors.start, bufs, durability);
                writes.push((seat, sectors.clone(), write));
            };
            // Most slots have one seat that takes writes, which needs no copy.
            let seats: SmallVec<[MemberIx; 2]> = health.writable_for(self.member(block)).collect();
            if let Some((last, before)) = seats.split_last() {
                before.iter().for_each(|seat| write(*seat, bufs.clone()));
                write(*last, bufs);
            }
        }
        let mut stored = Stored::default();
        for (seat, sectors, write) in &mut writes {
            let (seat, sectors) = (*seat, sectors.clone());
            match write.await {
                Ok(()) if health.seats[seat.index()].bad.overlaps(sectors.clone()) => {
                    stored.mended.push((seat, sectors));
                }
                Ok(()) => {}
                Err(error) => {
                    stored.failed.insert(seat);
                    stored.no_space |= error.kind() == IoErrorKind::NoSpace;
                    stored.losses.push(WriteLoss { seat, sectors, error });
                }
            }
        }
        stored
    }

    fn sector(&self, row: &Row) -> Sector {
        Sector(self.map.member_sector.0 + row.bytes.start / SECTOR_BYTES)
    }
}

/// Sets of blocks by row: most batches have one row.
type Sets = SmallVec<[BlockSet; 1]>;

/// For each block, the longest runs of rows that follow one another without a gap and have the block in their set.
fn runs(rows: &[Row], sets: &[BlockSet]) -> SmallVec<[(usize, Range<usize>); 4]> {
    if let [only] = sets {
        return only.iter().map(|block| (block, 0..1)).collect();
    }
    let mut runs: SmallVec<[(usize, Range<usize>); 4]> = SmallVec::new();
    for block in sets.iter().fold(BlockSet::EMPTY, |all, set| all.union(set)).iter() {
        let first = runs.len();
        for row in (0..rows.len()).filter(|&row| sets[row].contains(block)) {
            match runs[first..].last_mut() {
                Some((_, run))
                    if run.end == row
                        && rows[row - 1].bytes.end == rows[row].bytes.start
                        && run.len() < VECTOR_MAX =>
                {
                    run.end += 1;
                }
                _ => runs.push((block, row..row + 1)),
            }
        }
    }
    runs
}
