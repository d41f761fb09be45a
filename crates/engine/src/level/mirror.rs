//! RAID 1 and RAID 10: copies.
//!
//! Writes to one range go one after the other, so that copies agree whatever clients do; reads go
//! to the copy that is nearest or least busy. A sector that one copy cannot read comes from another
//! and is rewritten.

use std::ops::Range;
use std::rc::Rc;

use wattle_rt::{Buf, BufMut, CoreIx, Device, Durability};

use crate::lease::{queue, ranges};
use crate::level::ArrayShard;
use crate::level::plain::{Runs, sectors};
use crate::member::{NoRoom, Outcome, Patience, WriteCost, in_time, read_by_block};
use crate::model::bad_ranges::BadRanges;
use crate::model::error::VolumeError;
use crate::model::geometry::{Copies, Copy, MemberRun};
use crate::model::health::Health;
use crate::model::units::{MemberSet, SECTOR_BYTES, Sector, StripeNo};
use crate::state::metadata::FailCause;
use crate::state::{intent, sums};

/// Mirrors without chunks (RAID 1) are dealt out to cores in ranges of this size: 1 MiB.
const REGION: Sector = Sector(2048);

/// A read is dealt out to the copies in parts of at most this size: 256 KiB.
const READ_UNIT: Sector = Sector(512);

/// How many bytes a member reads in the time that it needs for turning to another place, about: so
/// many more wait for another copy before a stream turns to this one.
const DETOUR_BYTES: u64 = 128 << 10;

/// The same where a head has to move. What a stream leaves to others passes under the head in vain,
/// unless that is long.
const HEAD_DETOUR_BYTES: u64 = 4 << 20;

/// Cuts a range where the copies' places or the owning core change.
pub(crate) fn pieces(shard: &ArrayShard, lba: Sector, len: Sector) -> impl Iterator<Item = (Sector, Sector)> {
    cut(lba, len, unit(shard))
}

/// Within what the copies' places and the owning core do not change.
fn unit(shard: &ArrayShard) -> Sector {
    let chunk = shard.fixed.geometry.chunk();
    if chunk > Sector(0) { chunk } else { REGION }
}

fn cut(lba: Sector, len: Sector, unit: Sector) -> impl Iterator<Item = (Sector, Sector)> {
    let end = lba + len;
    std::iter::successors(Some(lba), move |at| Some(Sector((at.0 / unit.0 + 1) * unit.0)))
        .take_while(move |&at| at < end)
        .map(move |at| (at, Sector((at.0 / unit.0 + 1) * unit.0).min(end) - at))
}

/// The core that orders changes of the piece at `lba`.
pub(crate) fn owner(shard: &ArrayShard, lba: Sector) -> CoreIx {
    queue::owner(StripeNo(lba.0 / unit(shard).0), shard.core.cores())
}

/// A range that this core has leased from its owner; the lease is released by its drop.
pub(crate) struct LeasedRange<'a> {
    shard: &'a Rc<ArrayShard>,
    owner: CoreIx,
    block: StripeNo,
}

impl Drop for LeasedRange<'_> {
    fn drop(&mut self) {
        queue::release::<ArrayShard>(&self.shard.leases, self.owner, self.block);
    }
}

/// Leases a piece from the core that owns it, to write it here. Not of a stream: each of its
/// writes would wait for the one before.
pub(crate) fn lease(shard: &Rc<ArrayShard>, lba: Sector, len: Sector) -> Option<LeasedRange<'_>> {
    if shard.core.cores() == 1 {
        return None;
    }
    let goes_on = shard.hints.streams.goes_on(lba.0 * SECTOR_BYTES..(lba + len).0 * SECTOR_BYTES);
    let owner = owner(shard, lba);
    let block = ranges::only_block(lba, lba + len)?;
    let away = owner != shard.core.index();
    (away && !goes_on && shard.leases.words.lease(owner, block)).then(|| LeasedRange { shard, owner, block })
}

/// Writes one piece to every copy, but for those that the filling of their member will yet come to:
/// it would only be slower for being sent what it gets anyway. Only the owner knows how far that
/// is, so where the piece is `leased` they get it. This core owns it otherwise, and the caller
/// holds a permit.
pub(crate) async fn write(
    shard: &Rc<ArrayShard>,
    leased: Option<LeasedRange<'_>>,
    lba: Sector,
    buf: Buf,
    durability: Durability,
) -> Result<(), VolumeError> {
    let len = sectors(buf.len());
    let _lock = match leased {
        Some(_) => None,
        None => Some(shard.leases.ranges.lock(lba, lba + len).await),
    };
    let _intent = intent::enter(&shard.state, lba..lba + len).await?;
    let health = shard.members.health();
    if health.broken {
        return Err(VolumeError::Broken);
    }
    let copies = shard.fixed.geometry.copies(lba);
    let writes: Vec<_> = copies
        .iter()
        .flat_map(|copy| health.writable_for(copy.member).map(|seat| (seat, copy.sector)))
        .filter(|(seat, sector)| leased.is_some() || !shard.members.filled_later(&health, *seat, *sector))
        .map(|(seat, sector)| {
            (seat, sector..sector + len, shard.members.write(seat, sector, vec![buf.clone()], durability))
        })
        .collect();
    if writes.is_empty() {
        return Err(VolumeError::Broken);
    }
    let mut outcome = Outcome::of(durability);
    for (seat, sectors, write) in writes {
        outcome.note(&health, seat, sectors, write.await);
    }
    shard.state.settle_change(&health, outcome).await
}

/// Deals a range out to the copies; `None` if there is none to read of some part.
pub(crate) fn deal(shard: &ArrayShard, lba: Sector, len: Sector) -> Option<Runs> {
    let health = shard.members.health();
    let mut runs = Runs::new();
    let parts = cut(lba, len, unit(shard).min(READ_UNIT));
    let dealt = parts.map(|(at, len)| {
        let (mut at, end) = (at, at + len);
        while at < end {
            let copies = shard.fixed.geometry.copies(at);
            let len = alike(shard, &health, &copies, at, end - at);
            let readable = copies.iter().filter(|copy| readable(&health, copy, at, len)).copied();
            let copy = choose(shard, &health, readable, at..at + len)?;
            let load = shard.members.load(copy.member);
            load.last_read_end.set(copy.sector + len);
            load.dealt.update(|dealt| dealt + len);
            match runs.last_mut() {
                Some(run) if run.member == copy.member && run.sector + run.len == copy.sector => {
                    run.len += len;
                }
                _ => runs.push(MemberRun { member: copy.member, sector: copy.sector, len }),
            }
            at += len;
        }
        Some(())
    });
    let whole = dealt.collect::<Option<()>>();
    // From here on it counts as what is under way.
    runs.iter().for_each(|run| shard.members.load(run.member).dealt.set(Sector(0)));
    whole.map(|()| runs)
}

/// How far the copies of a part stay as they are at its start: readable, or not, as far as is
/// known.
fn alike(shard: &ArrayShard, health: &Health, copies: &Copies, at: Sector, len: Sector) -> Sector {
    if health.optimal {
        return len;
    }
    let same = |copy: &Copy| {
        let sectors = copy.sector..copy.sector + len;
        health.first_part(copy.member, sectors, at, shard.members.member_block()).1 - copy.sector
    };
    copies.iter().map(same).min().unwrap_or(len)
}

/// What is left to be read of a piece, and what is known of its copies by then. All ranges are of
/// array sectors.
struct Rest {
    needed: BadRanges,
    /// Blocks that failed by themselves, by copy.
    bad: Vec<(Copy, BadRanges)>,
    /// Some copy did not answer in time.
    late: bool,
}

/// Reads a piece that a copy could not deliver, block by block where that is necessary: each block
/// from the first copy that has it. Rewrites the blocks that failed. This core owns the piece and
/// the caller holds a permit. Copies on members that were slow where the read came from, `avoid`,
/// are asked last.
pub(crate) async fn read_and_repair(
    shard: &Rc<ArrayShard>,
    lba: Sector,
    mut buf: BufMut,
    avoid: MemberSet,
) -> (Result<(), VolumeError>, BufMut) {
    let len = sectors(buf.len());
    let _lock = shard.leases.ranges.lock(lba, lba + len).await;
    let copies = shard.fixed.geometry.copies(lba);
    let mut order: Vec<&Copy> = copies.iter().collect();
    let trusted = shard.members.health().trust.covers(lba..lba + len);
    if trusted {
        // A stable order: slow members last, write-mostly ones before them. Where copies may
        // differ, always the first that can be read, however long that takes.
        let health = shard.members.health();
        order.sort_by_key(|copy| {
            let slow = avoid.contains(copy.member) || shard.members.is_slow(copy.member);
            (slow, health.seats[copy.member.index()].write_mostly)
        });
    }
    let needed = std::iter::once(lba..lba + len).collect();
    let mut rest = Rest { needed, bad: Vec::new(), late: false };
    let patience = if trusted { Patience::Deadline } else { Patience::ToTheEnd };
    for patience in [patience, Patience::ToTheEnd] {
        for copy in &order {
            if !rest.needed.is_empty() {
                read_copy(shard, copy, lba, &mut buf, &mut rest, patience).await;
            }
        }
        if !std::mem::take(&mut rest.late) {
            break;
        }
    }
    let buf = buf.freeze();
    rewrite(shard, &rest, lba, &buf).await;
    let result = if rest.needed.is_empty() { Ok(()) } else { Err(VolumeError::Unreadable) };
    (result, buf.try_into_mut().unwrap_or_else(|shared| BufMut::copy_of(&shared)))
}

/// Reads of a copy what is needed of the piece at `lba` and can be read there.
async fn read_copy(
    shard: &Rc<ArrayShard>,
    copy: &Copy,
    lba: Sector,
    buf: &mut [u8],
    rest: &mut Rest,
    patience: Patience,
) {
    let place = |at: Sector| copy.sector + (at - lba);
    let array = |at: Sector| lba + (at - copy.sector);
    let mut failed = BadRanges::NONE;
    let known = rest.bad.iter().find(|(other, _)| other.member == copy.member);
    let mut wanted = rest.needed.clone();
    known.iter().flat_map(|(_, bad)| bad.iter()).for_each(|range| wanted.remove(range));
    'wanted: for range in wanted.iter() {
        let mut at = range.start;
        while at < range.end {
            // Asked anew for each part: the member may have been failed meanwhile.
            let health = shard.members.health();
            let sectors = place(at)..place(range.end);
            let (readable, end) = health.first_part(copy.member, sectors, at, shard.members.member_block());
            let part = at..array(end);
            at = part.end;
            if !readable {
                continue;
            }
            let len = part.end - part.start;
            let read = shard.members.read_one(copy.member, place(part.start), BufMut::alloc(bytes(len)));
            let answer = match patience {
                Patience::Deadline => in_time(&shard.members, read).await,
                Patience::ToTheEnd => Some(read.await),
            };
            let Some((result, content)) = answer else {
                // The member still has the buffer. What is left is asked of another copy.
                shard.members.note_late(copy.member);
                rest.late = true;
                break 'wanted;
            };
            let into = &mut buf[bytes(part.start - lba)..][..bytes(len)];
            rest.needed.remove(part.clone());
            let Err(error) = result else {
                into.copy_from_slice(&content);
                continue;
            };
            let mut gone = shard.members.judge_read_error(copy.member, error);
            if gone {
                rest.needed.insert(part);
            } else {
                let undelivered =
                    read_by_block(&shard.members, copy.member, place(part.start), into, patience).await;
                let of_array = |range: Range<Sector>| array(range.start)..array(range.end);
                undelivered.bad.iter().map(of_array).for_each(|range| failed.insert(range));
                rest.late |= !undelivered.late.is_empty();
                let missing = undelivered.bad.iter().chain(undelivered.late.iter()).map(of_array);
                missing.for_each(|range| rest.needed.insert(range));
                gone = undelivered.gone;
            }
            if gone {
                // An array that breaks may still have other copies that can be read.
                let _ = shard.state.fail([copy.member].into_iter().collect(), FailCause::Read).await;
                return;
            }
        }
    }
    if !failed.is_empty() {
        rest.bad.push((*copy, failed));
    }
}

/// Gives blocks of copies that could not be read their content back. Whatever becomes of that, the
/// data is right.
async fn rewrite(shard: &Rc<ArrayShard>, rest: &Rest, lba: Sector, buf: &Buf) {
    let health = shard.members.health();
    if rest.bad.is_empty() || shard.fixed.read_only || health.broken {
        return;
    }
    // What redundancy says it had need not be what a scrub recorded.
    if sums::enter(&shard.state, lba..lba + sectors(buf.len())).await.is_err() {
        return;
    }
    // Copies that did not agree before do now.
    let (from, len) = (lba.0 * SECTOR_BYTES, buf.len() as u64);
    let _change = shard.hints.changes.begin(from..from + len);
    let mut outcome = Outcome::default();
    for (copy, bad) in rest.bad.iter().filter(|(copy, _)| health.state(copy.member).writable()) {
        let mut known = bad.clone();
        rest.needed.iter().for_each(|range| known.remove(range));
        for range in known.iter() {
            shard.state.counters.repaired.add(1);
            let content = buf.slice(bytes(range.start - lba)..bytes(range.end - lba));
            let sectors = copy.sector + (range.start - lba)..copy.sector + (range.end - lba);
            let write = shard.members.write(copy.member, sectors.start, vec![content], Durability::Cached);
            outcome.note(&health, copy.member, sectors, write.await);
        }
    }
    let _ = shard.state.settle(outcome, WriteCost::Sectors, NoRoom::Fails).await;
}

fn readable(health: &Health, copy: &Copy, lba: Sector, len: Sector) -> bool {
    health.readable_at(copy.member, copy.sector..copy.sector + len, lba..lba + len)
}

/// The copy to read from. Where copies may differ (after a crash, before a resync; after the write
/// that broke the array) always the first, so that the same sector never shows two contents in
/// turn; else one that is not write-mostly; of these the one that is there first: what waits for
/// its member is in the way, and so is a detour, unless the member read just before it. Of equal
/// ones it is the one whose head has the shortest way.
fn choose(
    shard: &ArrayShard,
    health: &Health,
    mut copies: impl Iterator<Item = Copy>,
    range: Range<Sector>,
) -> Option<Copy> {
    if health.broken || !health.trust.covers(range) {
        return copies.next();
    }
    copies.min_by_key(|copy| {
        let load = shard.members.load(copy.member);
        let way = load.last_read_end.get().0.abs_diff(copy.sector.0);
        let rotational = health.seats[copy.member.index()].device.as_ref().is_some_and(Device::rotational);
        let detour = match (way, rotational) {
            (0, _) => 0,
            (_, false) => DETOUR_BYTES,
            (_, true) => HEAD_DETOUR_BYTES,
        };
        let waits = shard.members.queued_bytes(copy.member) + load.dealt.get().0 * SECTOR_BYTES + detour;
        let write_mostly = health.seats[copy.member.index()].write_mostly;
        (shard.members.is_slow(copy.member), write_mostly, waits, way)
    })
}

/// Bytes of a piece.
pub(crate) fn bytes(len: Sector) -> usize {
    (len.0 * SECTOR_BYTES) as usize
}
