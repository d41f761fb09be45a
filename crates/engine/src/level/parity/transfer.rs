//! Member operations of a batch: for each block, neighbouring rows go as one vectored read or
//! write.

use std::ops::Range;

use smallvec::SmallVec;
use wattle_rt::{Buf, BufMut, Durability};

use super::Work;
use super::rows::{Grid, Row};
use super::unread::Unread;
use crate::member::{Bufs, Outcome, Patience, read_by_block};
use crate::model::health::Health;
use crate::model::plan::BlockSet;
use crate::model::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};

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
    /// On members that work otherwise.
    pub unread: Unread,
    /// Members that are to be failed.
    pub members: MemberSet,
}

/// The seats of a slot that a block is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seats {
    /// All that take writes.
    All,
    /// The slot's own, which could not read the block: what its replacement holds is left alone.
    Slot,
}

impl Work<'_> {
    /// Fetches the blocks `wanted` of each row; `unread` is what could not be read of them before.
    /// All operations are queued before the first is awaited.
    pub(super) async fn fetch(
        &self,
        rows: &[Row],
        wanted: impl Fn(usize) -> BlockSet,
        from: FetchFrom,
        unread: &Unread,
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
            self.shard.hints.cache.count(hits, misses);
            self.shard.state.counters.pre_reads.add(misses);
        }
        let mut reads: SmallVec<[_; 4]> = SmallVec::new();
        for (block, run) in runs(rows, &missing) {
            let buf = BufMut::alloc((rows[run.end - 1].bytes.end - rows[run.start].bytes.start) as usize);
            let read = self.shard.members.read_one(self.member(block), self.sector(&rows[run.start]), buf);
            reads.push((block, run, read));
        }
        let mut lost = Lost::default();
        for (block, run, read) in &mut reads {
            let (result, mut buf) = read.await;
            if let Err(error) = result {
                let (member, bytes) = (self.member(*block), rows[run.start].bytes.start);
                if self.shard.members.judge_read_error(member, error) {
                    lost.members.insert(member);
                    continue;
                }
                // A late block is asked for again only where there is no other way.
                let span = bytes..rows[run.end - 1].bytes.end;
                let late = unread.is_late(*block, &span);
                let patience = if late { Patience::ToTheEnd } else { Patience::Deadline };
                let start = self.sector(&rows[run.start]);
                let by_block = read_by_block(&self.shard.members, member, start, &mut buf, patience);
                let undelivered = Box::pin(by_block).await;
                if undelivered.gone {
                    lost.members.insert(member);
                } else {
                    lost.unread.add(*block, &undelivered, |sector| bytes + (sector - start).0 * SECTOR_BYTES);
                }
                if !undelivered.is_empty() {
                    continue;
                }
            }
            let (last, before) = rows[run.clone()].split_last().expect("a run has rows");
            for (row, place) in run.clone().zip(before) {
                grid.set(row, *block, buf.split_to(place.len()));
            }
            debug_assert_eq!(buf.len(), last.len());
            grid.set(run.end - 1, *block, buf);
        }
        if lost.unread.is_empty() && lost.members.is_empty() { Ok(grid) } else { Err(lost) }
    }

    /// Writes what `blocks` holds and takes it out, to the members that took writes in `health`, in
    /// which they were planned: what is left out must be recorded as left out. All operations are
    /// queued before the first is awaited.
    pub(super) async fn store(
        &self,
        health: &Health,
        rows: &[Row],
        blocks: &mut Grid<Buf>,
        to: Seats,
        durability: Durability,
    ) -> Outcome {
        let present: Sets = (0..rows.len()).map(|row| blocks.present(row)).collect();
        let mut writes: SmallVec<[_; 4]> = SmallVec::new();
        for (block, run) in runs(rows, &present) {
            let sectors = self.sectors(rows[run.start].bytes.start..rows[run.end - 1].bytes.end);
            self.forget(block, rows[run.start].bytes.start..rows[run.end - 1].bytes.end);
            let bufs: Bufs = run.filter_map(|row| blocks.take(row, block)).collect();
            let mut write = |seat, bufs| {
                let write = self.shard.members.write(seat, sectors.start, bufs, durability);
                writes.push((seat, sectors.clone(), write));
            };
            // Most slots have one seat that takes writes, which needs no copy.
            let slot = self.member(block);
            let seats: SmallVec<[MemberIx; 2]> =
                health.writable_for(slot).filter(|seat| to == Seats::All || *seat == slot).collect();
            if let Some((last, before)) = seats.split_last() {
                before.iter().for_each(|seat| write(*seat, bufs.clone()));
                write(*last, bufs);
            }
        }
        let mut outcome = Outcome::of(durability);
        for (seat, sectors, write) in &mut writes {
            let result = write.await;
            outcome.note(health, *seat, sectors.clone(), result);
        }
        outcome
    }

    fn sector(&self, row: &Row) -> Sector {
        Sector(self.map.member_sector.0 + row.bytes.start / SECTOR_BYTES)
    }
}

/// Sets of blocks by row: most batches have one row.
type Sets = SmallVec<[BlockSet; 1]>;

/// For each block, the longest runs of rows that follow one another without a gap and have the
/// block in their set.
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
