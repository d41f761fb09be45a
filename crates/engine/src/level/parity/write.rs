//! Carries out a batch of writes on one stripe.

use smallvec::SmallVec;
use wattle_rt::{Buf, BufMut, Durability};

use super::buffers::Room;
use super::rows::{self, Grid, Row, Segment};
use super::transfer::{FetchFrom, Lost, Seats};
use super::unread::Unread;
use super::{Work, refusal};
use crate::lease::queue::{WritePiece, goes_on};
use crate::member::Outcome;
use crate::model::error::VolumeError;
use crate::model::health::{Health, MemberState};
use crate::model::plan::{self, BlockSet, Method, WritePlan};
use crate::model::units::MemberIx;
use crate::state::intent;
use crate::state::metadata::FailCause;
use crate::state::ppl::{self, LogError};

impl Work<'_> {
    /// Writes the pieces, which touch no byte twice, and returns when they may be acknowledged: at
    /// once, or as the partial parity log has it, part after part.
    ///
    /// # Errors
    /// Nothing is acknowledged; which sectors hold new data is then unknown.
    pub(super) async fn write(&self, pieces: &[WritePiece]) -> Result<(), VolumeError> {
        let Some(mut left) = self.write_at_once(pieces).await? else { return Ok(()) };
        while let Some(round) = left.pop() {
            if let Some(parts) = self.write_at_once(&round).await? {
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
        let whole = rows::rows(&segments);
        let fua = pieces.iter().any(|piece| piece.durability == Durability::Fua);
        let durability = if fua { Durability::Fua } else { Durability::Cached };
        let mut unread = Unread::default();
        let touched =
            whole.first().map_or(0, |row| row.bytes.start)..whole.last().map_or(0, |row| row.bytes.end);
        let _intent = intent::enter(&self.shard.state, self.sectors(touched)).await?;
        let mut room = Room::default();
        let from = pieces.iter().map(|piece| piece.start).min().unwrap_or(0);
        let to = pieces.iter().map(|piece| piece.start + piece.buf.len() as u64).max().unwrap_or(0);
        // A stream that comes to a new stripe may well write all of it.
        let again = pieces.iter().any(|piece| piece.hint.recurs)
            || (!self.is_leased() && goes_on(&self.shard.leases, self.map.stripe, from..to) && from > 0);
        // Each attempt that does not end loses a member, or blocks of one, that those before had,
        // or waits for more room for that reason, so there are few of them.
        for _attempt in 0..self.attempts_max() {
            let health = self.shard.members.health();
            if health.broken {
                return Err(VolumeError::Broken);
            }
            let cut = self.cut_rows(&health, &whole, &unread);
            let rows: &[Row] = cut.as_ref().unwrap_or(&whole);
            let mut plans: SmallVec<[WritePlan; 1]> = SmallVec::new();
            for row in rows {
                let decide = |without: &BlockSet| {
                    plan::decide_write(&self.view(&health, row, without, self.cached(row)), &row.touched)
                };
                let plan = match unread.is_empty() {
                    true => decide(&BlockSet::EMPTY),
                    false => decide(&unread.avoided(row)).or_else(|_| decide(&unread.bad(row))),
                };
                plans.push(plan.map_err(refusal)?);
            }
            if self.take_room(&mut room, self.write_bytes(rows, &plans)).await {
                continue;
            }
            let logged = ppl::usable(&self.shard.state, &health, self.map.p());
            if logged && let Some(parts) = self.parts(&health, rows, &segments, pieces) {
                return Ok(Some(parts));
            }
            let wanted = |row: usize| plans[row].fetch;
            let mut fetched = match self.fetch(rows, wanted, FetchFrom::CacheOrMembers, &unread).await {
                Ok(fetched) => fetched,
                Err(lost) => {
                    Box::pin(self.lose(lost, &mut unread)).await?;
                    continue;
                }
            };
            self.count(&plans);
            let mut blocks = self.fill(rows, &segments, pieces, &plans, &mut fetched, &unread);
            let left = self.leaves(rows, &plans, &mut fetched, &blocks, again);
            let ticket = if logged {
                match ppl::append(
                    &self.shard.state,
                    self.map.p(),
                    self.entries(rows, &segments, pieces, &blocks),
                )
                .await
                {
                    // Entries are cut so that they can be followed without a member that is lost
                    // (`ppl::cut`): where one was lost while they waited, they are cut anew.
                    Ok(ticket) if self.has_lost_data_since(&health) => {
                        ticket.release(&self.shard.state, true);
                        continue;
                    }
                    Ok(ticket) => Some(ticket),
                    Err(LogError::NoParity) => continue,
                    Err(LogError::Ended(error)) => return Err(error),
                }
            } else {
                ppl::unlogged(&self.shard.state, &health).await?;
                None
            };
            let outcome = self.store(&health, rows, &mut blocks, Seats::All, durability).await;
            let whole = outcome.is_whole();
            let result = self.settle(&health, &segments, outcome).await;
            if whole && result.is_ok() {
                self.keep(&health, rows, left);
            }
            if let Some(ticket) = ticket {
                // All writes have ended, and what a member missed is recorded, or else the array is
                // broken: a write that is refused for another reason left the row as it is logged.
                let well = result.is_ok() || !self.shard.members.is_broken();
                ticket.release(&self.shard.state, well);
            }
            return result.map(|()| None);
        }
        Err(VolumeError::Unreadable)
    }

    /// Whether a data member of this stripe that was in sync in `health` is no more.
    fn has_lost_data_since(&self, health: &Health) -> bool {
        let now = self.shard.members.health();
        let lost = |slot: MemberIx| {
            health.state(slot) == MemberState::InSync && now.state(slot) != MemberState::InSync
        };
        now.epoch != health.epoch
            && (0..self.map.data_blocks()).any(|block| lost(self.map.data_member(block)))
    }

    /// How often a batch is tried: a bound that only members are beyond which fail more and more.
    pub(super) fn attempts_max(&self) -> usize {
        8 * self.blocks()
    }

    /// Whether what was stored may be acknowledged: what could not be stored is recorded as
    /// missing.
    async fn settle(
        &self,
        health: &Health,
        segments: &[Segment],
        outcome: Outcome,
    ) -> Result<(), VolumeError> {
        if outcome.is_whole() {
            return self.shard.state.settle_change(health, outcome).await;
        }
        let (failed, beyond) = (outcome.failed(), outcome.error());
        self.shard.state.settle_change(health, outcome).await?;
        // A block that only parity holds now is there if parity can be trusted.
        let holds = |segment: &Segment| !failed.contains(self.member(segment.block));
        if self.trusted(health) || segments.iter().all(holds) { Ok(()) } else { Err(beyond) }
    }

    /// Takes a failed fetch into account before the next attempt.
    pub(super) async fn lose(&self, lost: Lost, unread: &mut Unread) -> Result<(), VolumeError> {
        unread.join(lost.unread);
        if lost.members.is_empty() {
            Ok(())
        } else {
            self.shard.state.fail(lost.members, FailCause::Read).await
        }
    }

    /// The blocks to store: the requests' own buffers, parity made from them and what was fetched,
    /// and blocks that were recovered on the way where the member could not read them.
    fn fill(
        &self,
        rows: &[Row],
        segments: &[Segment],
        pieces: &[WritePiece],
        plans: &[WritePlan],
        fetched: &mut Grid<BufMut>,
        unread: &Unread,
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
            let bad = if plan.method == Method::Recover { unread.bad(&rows[row]) } else { BlockSet::EMPTY };
            let new = blocks.row_mut(row);
            match plan.method {
                Method::DataOnly => {}
                Method::ReadModify => self.update_parity(old, new, plan),
                Method::Reconstruct | Method::Recover => self.encode_parity(old, new, plan, len),
            }
            for block in 0..self.data() {
                if bad.contains(block) && new[block].is_none() {
                    new[block] = old[block].take().map(BufMut::freeze);
                } else if !plan.store.contains(block) {
                    new[block] = None;
                }
            }
        }
        blocks
    }

    fn count(&self, plans: &[WritePlan]) {
        let counters = &self.shard.state.counters;
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
