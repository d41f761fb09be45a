//! Carries out a batch of writes on one stripe.

use smallvec::SmallVec;
use wattle_rt::{Buf, BufMut, Durability};

use super::buffers::Room;
use super::rows::{self, Grid, Row, Segment};
use super::transfer::{FetchFrom, Lost, Stored};
use super::{ReadPiece, Work, WritePiece, goes_on, refusal};
use crate::array::Health;
use crate::error::VolumeError;
use crate::intent;
use crate::log::{self, LogError};
use crate::plan::{self, BlockSet, Method, WritePlan};
use crate::units::MemberSet;

impl Work<'_> {
    /// Writes the pieces, which touch no byte twice, and returns when they may be acknowledged.
    ///
    /// Where sectors of several members cannot be read, the batch as a whole may be beyond redundancy although none of its
    /// blocks is: then block by block.
    ///
    /// # Errors
    /// Nothing is acknowledged; which sectors hold new data is then unknown.
    pub(super) async fn write(&self, pieces: &[WritePiece]) -> Result<(), VolumeError> {
        let result = self.write_in_passes(pieces).await;
        let block = self.shard.fixed.block_bytes as usize;
        // With a partial parity log, blocks are larger than what can be read by itself.
        let finest = self.shard.fixed.member_block_bytes as usize;
        let len = pieces.iter().map(|piece| piece.buf.len()).sum::<usize>();
        if result != Err(VolumeError::Unreadable) || len <= finest {
            return result;
        }
        for piece in pieces {
            for at in (0..piece.buf.len()).step_by(block) {
                let buf = piece.buf.slice(at..(at + block).min(piece.buf.len()));
                let start = piece.start + at as u64;
                let piece =
                    [WritePiece { start, buf, durability: piece.durability, company: 0, again: piece.again }];
                match self.write_in_passes(&piece).await {
                    Err(VolumeError::Unreadable) if finest < block => {
                        self.give_back(start, block, finest).await;
                        self.write_in_passes(&piece).await?;
                    }
                    result => result?,
                }
            }
        }
        Ok(())
    }

    /// Gives sectors that cannot be read their content back, one by one, in every data block beside the `block` bytes from `start` on.
    async fn give_back(&self, start: u64, block: usize, finest: usize) {
        let within = start % self.chunk_bytes / block as u64 * block as u64;
        for k in 0..self.data() as u64 {
            for at in (within..within + block as u64).step_by(finest) {
                let start = k * self.chunk_bytes + at;
                let piece = ReadPiece { start, buf: BufMut::alloc(finest), avoid: MemberSet::EMPTY };
                // What is beyond redundancy stays so.
                let _ = self.read(&mut [piece]).await;
            }
        }
    }

    /// Writes the pieces at once, or as the partial parity log has it: part after part.
    async fn write_in_passes(&self, pieces: &[WritePiece]) -> Result<(), VolumeError> {
        let Some(mut left) = self.write_at_once(pieces).await? else { return Ok(()) };
        while let Some(pass) = left.pop() {
            if let Some(parts) = self.write_at_once(&pass).await? {
                left.extend(parts);
            }
        }
        Ok(())
    }

    /// Writes the pieces, or says in which parts they have to be written, the last one first.
    async fn write_at_once(
        &self,
        pieces: &[WritePiece],
    ) -> Result<Option<Vec<Vec<WritePiece>>>, VolumeError> {
        let segments = self.segments(pieces.iter().map(|piece| (piece.start, piece.buf.len())));
        let rows = rows::rows(&segments);
        let fua = pieces.iter().any(|piece| piece.durability == Durability::Fua);
        let durability = if fua { Durability::Fua } else { Durability::Cached };
        let mut unreadable = BlockSet::EMPTY;
        let touched =
            rows.first().map_or(0, |row| row.bytes.start)..rows.last().map_or(0, |row| row.bytes.end);
        let _intent = intent::enter(self.shard, self.sectors(touched)).await?;
        let mut room = Room::default();
        let from = pieces.iter().map(|piece| piece.start).min().unwrap_or(0);
        let to = pieces.iter().map(|piece| piece.start + piece.buf.len() as u64).max().unwrap_or(0);
        // A stream that comes to a new stripe may well write all of it.
        let again = pieces.iter().any(|piece| piece.again)
            || (!self.borrowed() && goes_on(self.shard, self.map.stripe, from..to) && from > 0);
        // Each turn that does not end loses a member or a block that the turns before had, or waits for more room for that
        // reason, so there are few of them.
        for _turn in 0..=4 * self.blocks() {
            let health = self.shard.health();
            if health.broken {
                return Err(VolumeError::Broken);
            }
            let mut plans: SmallVec<[WritePlan; 1]> = SmallVec::new();
            for row in &rows {
                let view = self.view(&health, row, &unreadable, self.cached(row));
                plans.push(plan::decide_write(&view, &row.touched).map_err(refusal)?);
            }
            if self.take_room(&mut room, self.write_bytes(&rows, &plans)).await {
                continue;
            }
            let logged = log::usable(self.shard, &health, self.map.p());
            if logged && let Some(parts) = self.parts(&health, &rows, &segments, pieces) {
                return Ok(Some(parts));
            }
            let mut fetched = match self.fetch(&rows, |row| plans[row].fetch, FetchFrom::CacheOrMembers).await
            {
                Ok(fetched) => fetched,
                Err(lost) => {
                    self.lose(lost, &mut unreadable).await?;
                    continue;
                }
            };
            self.count(&plans);
            let mut blocks = self.fill(&rows, &segments, pieces, &plans, &mut fetched, &unreadable);
            let left = self.leaves(&rows, &plans, &mut fetched, &blocks, again);
            let ticket = if logged {
                match log::append(self.shard, self.map.p(), self.entries(&rows, &segments, pieces, &blocks))
                    .await
                {
                    Ok(ticket) => Some(ticket),
                    Err(LogError::NoParity) => continue,
                    Err(LogError::Ended(error)) => return Err(error),
                }
            } else {
                log::unlogged(self.shard, &health).await?;
                None
            };
            let stored = self.store(&health, &rows, &mut blocks, durability).await;
            let whole = stored.failed.is_empty();
            let result = self.settle(&health, &segments, stored).await;
            if whole && result.is_ok() {
                self.keep(&health, &rows, left);
            }
            if let Some(ticket) = ticket {
                ticket.release(self.shard, result.is_ok());
            }
            return result.map(|()| None);
        }
        unreachable!("a stripe of {} blocks lost more than all of them", self.blocks())
    }

    /// Whether what was stored may be acknowledged: what could not be stored is recorded as missing.
    async fn settle(&self, health: &Health, segments: &[Segment], stored: Stored) -> Result<(), VolumeError> {
        let beyond = if stored.no_space { VolumeError::NoSpace } else { VolumeError::WriteFailed };
        // First who did not take the write: he must not be read, whatever comes of the rest.
        if !stored.failed.is_empty() {
            self.shard.fail(stored.failed).await.map_err(|_| beyond)?;
        }
        self.shard.mend(stored.mended).await?;
        self.shard.recorded(health.epoch).await?;
        // What only parity holds now is there if parity can be trusted.
        let holds = |segment: &Segment| !stored.failed.contains(self.member(segment.block));
        if self.trusted(health) || segments.iter().all(holds) { Ok(()) } else { Err(beyond) }
    }

    /// Takes a failed fetch into account before the next turn.
    pub(super) async fn lose(&self, lost: Lost, unreadable: &mut BlockSet) -> Result<(), VolumeError> {
        *unreadable = unreadable.union(&lost.unreadable);
        if lost.members.is_empty() { Ok(()) } else { self.shard.fail(lost.members).await }
    }

    /// The blocks to store: the requests' own buffers, parity made from them and what was fetched, and blocks that were
    /// recovered on the way where the member could not read them.
    fn fill(
        &self,
        rows: &[Row],
        segments: &[Segment],
        pieces: &[WritePiece],
        plans: &[WritePlan],
        fetched: &mut Grid<BufMut>,
        unreadable: &BlockSet,
    ) -> Grid<Buf> {
        let mut blocks = Grid::new(rows.len(), self.blocks());
        for segment in segments {
            for row in rows::covered(rows, segment) {
                let at = segment.at + (rows[row].bytes.start - segment.bytes.start) as usize;
                blocks.set(row, segment.block, pieces[segment.piece].buf.slice(at..at + rows[row].len()));
            }
        }
        for (row, plan) in plans.iter().enumerate() {
            let len = rows[row].len();
            let old = fetched.row_mut(row);
            if plan.method == Method::Recover {
                self.recover(old, len);
            }
            let new = blocks.row_mut(row);
            match plan.method {
                Method::DataOnly => {}
                Method::ReadModify => self.update_parity(old, new, plan),
                Method::Reconstruct | Method::Recover => self.encode_parity(old, new, plan, len),
            }
            for block in 0..self.data() {
                let repaired =
                    plan.method == Method::Recover && unreadable.contains(block) && new[block].is_none();
                if repaired {
                    new[block] = old[block].take().map(BufMut::freeze);
                } else if !plan.store.contains(block) {
                    new[block] = None;
                }
            }
        }
        blocks
    }

    fn count(&self, plans: &[WritePlan]) {
        let counters = &self.shard.counters;
        for plan in plans {
            match plan.method {
                Method::Reconstruct if plan.fetch.is_empty() => counters.rows_full.add(1),
                Method::Reconstruct => counters.rows_reconstruct.add(1),
                Method::ReadModify => counters.rows_read_modify.add(1),
                Method::DataOnly | Method::Recover => counters.rows_degraded.add(1),
            }
        }
    }
}
