//! Reads of a range of which a member could not read everything: block by block, so that what it
//! can read comes from it.
//!
//! **Invariant**: a block is taken from redundancy, and written again, only if its member failed to
//! read this block by itself, or lists it as bad, or is not current there. The outcome of a block
//! does not depend on the blocks that are read with it.

use std::collections::VecDeque;
use std::ops::Range;

use wattle_rt::{BufMut, Instant, IoErrorKind};

use super::Members;
use super::deadline::in_time;
use crate::model::bad_ranges::BadRanges;
use crate::model::units::{MemberIx, SECTOR_BYTES, Sector};
use crate::planted::{self, Bug};

/// A range that failed is cut into so many parts. Two would find a block with the fewest reads, but
/// where each takes a drive seconds to fail, few rounds count.
const FAN_OUT: u64 = 16;

/// Most of these reads in flight at once.
const IN_FLIGHT_MAX: usize = 32;

/// How long a member is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until the array's deadline for reads is over: redundancy answers then.
    Deadline,
    /// Until it has answered for every block: there is no other way.
    ToTheEnd,
}

/// What a member did not deliver of a range: member sectors.
#[derive(Debug, Default)]
pub(crate) struct Undelivered {
    /// Blocks that fail by themselves.
    pub bad: BadRanges,
    /// Blocks that were not asked for, or not answered in time.
    pub late: BadRanges,
    /// The member is to be failed.
    pub gone: bool,
}

impl Undelivered {
    /// Whether it delivered everything.
    pub fn is_empty(&self) -> bool {
        self.bad.is_empty() && self.late.is_empty() && !self.gone
    }
}

/// Fills `buf` from `start` on, after reading all of it at once failed with a medium error. Several
/// parts are in flight at once; those that fail are cut further until they are single blocks.
pub(crate) async fn read_by_block(
    members: &Members,
    member: MemberIx,
    start: Sector,
    buf: &mut [u8],
    patience: Patience,
) -> Undelivered {
    let block = members.member_block();
    let all = start..start + Sector(buf.len() as u64 / SECTOR_BYTES);
    let mut undelivered = Undelivered::default();
    if all.end - all.start <= block || planted::is(Bug::SpreadRecovery) {
        undelivered.bad.insert(all);
        return undelivered;
    }
    let limited = patience == Patience::Deadline && members.fixed.geometry.redundancy() > 0;
    let until: Instant = members.core.now() + members.deadlines.after();
    let mut waiting: VecDeque<Range<Sector>> = cut(&all, block).collect();
    let mut in_flight = VecDeque::new();
    loop {
        while in_flight.len() < IN_FLIGHT_MAX
            && let Some(part) = waiting.pop_front()
        {
            let len = ((part.end - part.start).0 * SECTOR_BYTES) as usize;
            let read = members.read_one(member, part.start, BufMut::alloc(len));
            in_flight.push_back((part, read));
        }
        let Some((part, read)) = in_flight.pop_front() else { return undelivered };
        let answer = match limited {
            true => in_time(members, read).await,
            false => Some(read.await),
        };
        let over = match answer {
            Some((Ok(()), content)) => {
                let at = ((part.start - start).0 * SECTOR_BYTES) as usize;
                buf[at..at + content.len()].copy_from_slice(&content);
                continue;
            }
            Some((Err(error), _)) if error.kind() == IoErrorKind::Medium => {
                if part.end - part.start <= block {
                    undelivered.bad.insert(part);
                } else {
                    cut(&part, block).rev().for_each(|part| waiting.push_front(part));
                }
                limited && members.core.now() >= until
            }
            Some((Err(_), _)) => {
                undelivered.gone = true;
                undelivered.late.insert(part);
                true
            }
            None => {
                // The member still has the buffer.
                members.note_late(member);
                undelivered.late.insert(part);
                true
            }
        };
        if over {
            let rest = waiting.into_iter().chain(in_flight.into_iter().map(|(part, _)| part));
            rest.for_each(|part| undelivered.late.insert(part));
            return undelivered;
        }
    }
}

/// Parts of a range of blocks, of about the same size, in whole blocks.
fn cut(range: &Range<Sector>, block: Sector) -> impl DoubleEndedIterator<Item = Range<Sector>> + use<> {
    let (start, end) = (range.start, range.end);
    let blocks = (end - start).0.div_ceil(block.0);
    let step = blocks.div_ceil(FAN_OUT) * block.0;
    (0..(end - start).0.div_ceil(step)).map(move |number| {
        let from = start + Sector(number * step);
        from..(from + Sector(step)).min(end)
    })
}
