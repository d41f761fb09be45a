//! RAID 1 and RAID 10: copies.
//!
//! Writes to one range go one after the other, so that copies agree whatever clients do; reads go to the copy that is nearest
//! or least busy. What one copy cannot read comes from another and is rewritten.

use std::ops::Range;
use std::rc::Rc;

use wattle_rt::{Buf, BufMut, CoreIx, Device, Durability, IoErrorKind};

use crate::array::{Health, Shard, WriteLoss};
use crate::error::VolumeError;
use crate::geometry::{Copy, Run};
use crate::intent;
use crate::striped::{FailedRun, read_runs, sectors};
use crate::units::{MemberSet, SECTOR_BYTES, Sector, StripeNo};
use crate::{range_lock, stripe};

/// Mirrors without chunks (RAID 1) are dealt out to cores in ranges of this size: 1 MiB.
const REGION: Sector = Sector(2048);

/// A read is dealt out to the copies in parts of at most this size: 256 KiB.
const READ_UNIT: Sector = Sector(512);

/// How many bytes a member reads in the time that it needs for turning to another place, about: so many more wait for another copy
/// before a stream turns to this one.
const DETOUR_BYTES: u64 = 128 << 10;

/// The same where a head has to move. What a stream leaves to others passes under the head in vain, unless that is long.
const HEAD_DETOUR_BYTES: u64 = 4 << 20;

/// Cuts a range where the copies' places or the owning core change.
pub(crate) fn pieces(shard: &Shard, lba: Sector, len: Sector) -> impl Iterator<Item = (Sector, Sector)> {
    cut(lba, len, unit(shard))
}

/// Within what the copies' places and the owning core do not change.
fn unit(shard: &Shard) -> Sector {
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
pub(crate) fn owner(shard: &Shard, lba: Sector) -> CoreIx {
    stripe::owner(StripeNo(lba.0 / unit(shard).0), shard.core.cores())
}

/// A range that this core has borrowed from its owner; giving it back is its drop.
pub(crate) struct Borrowed<'a> {
    shard: &'a Rc<Shard>,
    owner: CoreIx,
    block: StripeNo,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        stripe::give_back(self.shard, self.owner, self.block);
    }
}

/// Borrows a piece from the core that owns it, to write it here. Not of a stream: each of its writes would wait for the one before.
pub(crate) fn borrow(shard: &Rc<Shard>, lba: Sector, len: Sector) -> Option<Borrowed<'_>> {
    if shard.core.cores() == 1 {
        return None;
    }
    let goes_on = shard.streams.goes_on(lba.0 * SECTOR_BYTES..(lba + len).0 * SECTOR_BYTES);
    let owner = owner(shard, lba);
    let block = range_lock::only_block(lba, lba + len)?;
    let away = owner != shard.core.index();
    (away && !goes_on && shard.fixed.loans.borrow(owner, block)).then(|| Borrowed { shard, owner, block })
}

/// Writes one piece to every copy, but for those that the filling of their member will yet come to: it would only be slower for being
/// sent what it gets anyway. Only the owner knows how far that is, so where the piece is `borrowed` they get it. This core owns it otherwise,
/// and the caller holds a pass.
pub(crate) async fn write(
    shard: &Rc<Shard>,
    borrowed: Option<Borrowed<'_>>,
    lba: Sector,
    buf: Buf,
    durability: Durability,
) -> Result<(), VolumeError> {
    let len = sectors(buf.len());
    let _lock = match borrowed {
        Some(_) => None,
        None => Some(shard.ranges.lock(lba, lba + len).await),
    };
    let _intent = intent::enter(shard, lba..lba + len).await?;
    let health = shard.health();
    if health.broken {
        return Err(VolumeError::Broken);
    }
    let copies = shard.fixed.geometry.copies(lba);
    let writes: Vec<_> = copies
        .iter()
        .flat_map(|copy| health.writable_for(copy.member).map(|seat| (seat, copy.sector)))
        .filter(|(seat, sector)| borrowed.is_some() || !shard.filled_later(&health, *seat, *sector))
        .map(|(seat, sector)| {
            (seat, sector..sector + len, shard.write(seat, sector, vec![buf.clone()], durability))
        })
        .collect();
    if writes.is_empty() {
        return Err(VolumeError::Broken);
    }
    let mut failed = MemberSet::default();
    let mut mended = Vec::new();
    let mut beyond = VolumeError::WriteFailed;
    for (seat, sectors, write) in writes {
        match write.await {
            Ok(()) if health.seats[seat.index()].bad.overlaps(sectors.clone()) => {
                mended.push((seat, sectors));
            }
            Ok(()) => {}
            Err(error) => {
                failed.insert(seat);
                if error.kind() == IoErrorKind::NoSpace {
                    beyond = VolumeError::NoSpace;
                }
            }
        }
    }
    // First who did not take the write: he must not be read, whatever comes of the rest.
    if !failed.is_empty() {
        shard.fail(failed).await.map_err(|_| beyond)?;
    }
    shard.mend(mended).await?;
    shard.recorded(health.epoch).await
}

/// Reads each piece from the best copy; returns what failed.
pub(crate) async fn read(
    shard: &Rc<Shard>,
    lba: Sector,
    buf: BufMut,
) -> (Result<Vec<FailedRun>, VolumeError>, BufMut) {
    match deal(shard, lba, sectors(buf.len())) {
        Some(runs) => {
            let (failed, buf) = read_runs(shard, &runs, buf).await;
            (Ok(failed), buf)
        }
        None => (Err(VolumeError::Unreadable), buf),
    }
}

/// Deals a range out to the copies; `None` if there is none to read of some part.
fn deal(shard: &Shard, lba: Sector, len: Sector) -> Option<Vec<Run>> {
    let health = shard.health();
    let mut runs: Vec<Run> = Vec::new();
    let parts = cut(lba, len, unit(shard).min(READ_UNIT));
    let whole = parts.map(|(at, len)| {
        let copies = shard.fixed.geometry.copies(at);
        let readable = copies.iter().filter(|copy| readable(&health, copy, at, len)).copied();
        let copy = choose(shard, &health, readable, at..at + len)?;
        let load = shard.load(copy.member);
        load.last_read_end.set(copy.sector + len);
        load.dealt.update(|dealt| dealt + len);
        match runs.last_mut() {
            Some(run) if run.member == copy.member && run.sector + run.len == copy.sector => {
                run.len += len;
            }
            _ => runs.push(Run { member: copy.member, sector: copy.sector, len }),
        }
        Some(())
    });
    let whole = whole.collect::<Option<()>>();
    // From here on it counts as what is under way.
    runs.iter().for_each(|run| shard.load(run.member).dealt.set(Sector(0)));
    whole.map(|()| runs)
}

/// Reads a piece that a copy could not deliver from another, and rewrites the copies that failed. This core owns the piece
/// and the caller holds a pass.
pub(crate) async fn read_and_repair(
    shard: &Rc<Shard>,
    lba: Sector,
    mut buf: BufMut,
) -> (Result<(), VolumeError>, BufMut) {
    let len = sectors(buf.len());
    let _lock = shard.ranges.lock(lba, lba + len).await;
    let copies = shard.fixed.geometry.copies(lba);
    let mut bad: Vec<Copy> = Vec::new();
    let mut order: Vec<&Copy> = copies.iter().collect();
    if shard.health().trust.covers(lba..lba + len) {
        // A stable order: slow members last. Where copies may differ, always the first that can be read.
        order.sort_by_key(|copy| shard.is_slow(copy.member));
    }
    for copy in order {
        // Asked anew for each copy: an earlier one may have been failed meanwhile.
        if !readable(&shard.health(), copy, lba, len) {
            continue;
        }
        let (result, mut bufs) = shard.read(copy.member, copy.sector, vec![buf]).await;
        buf = bufs.pop().expect("the buffer that was passed comes back");
        let Err(error) = result else {
            let buf = buf.freeze();
            rewrite(shard, &bad, lba, &buf).await;
            return (Ok(()), buf.try_into_mut().unwrap_or_else(|shared| BufMut::copy_of(&shared)));
        };
        if shard.judge_read_error(copy.member, error) {
            if let Err(error) = shard.fail([copy.member].into_iter().collect()).await {
                // Broken: other copies may still be readable.
                let _ = error;
            }
        } else {
            bad.push(*copy);
        }
    }
    (Err(VolumeError::Unreadable), buf)
}

/// Gives copies that could not be read their content back. Whatever becomes of that, the data is right.
async fn rewrite(shard: &Rc<Shard>, bad: &[Copy], lba: Sector, buf: &Buf) {
    if shard.fixed.read_only || shard.health().broken {
        return;
    }
    // Copies that did not agree before do now.
    let (from, len) = (lba.0 * SECTOR_BYTES, buf.len() as u64);
    let _change = (!bad.is_empty()).then(|| shard.fixed.changes.begin(from..from + len));
    for copy in bad {
        shard.counters.repaired.add(1);
        let (seat, sectors) = (copy.member, copy.sector..copy.sector + sectors(buf.len()));
        let write = shard.write(seat, copy.sector, vec![buf.clone()], Durability::Cached);
        if let Err(error) = write.await {
            let _ = shard.bury(vec![WriteLoss { seat, sectors, error }]).await;
        }
    }
}

fn readable(health: &Health, copy: &Copy, lba: Sector, len: Sector) -> bool {
    health.readable_at(copy.member, copy.sector..copy.sector + len, lba..lba + len)
}

/// The copy to read from. Where copies may differ (after a crash, before a resync; after the write that broke the array)
/// always the first, so that the same sector never shows two contents in turn; else the one that is there first: what waits for its
/// member is in the way, and so is a detour, unless the member read just before it. Of equals the one whose head has the shortest way.
fn choose(
    shard: &Shard,
    health: &Health,
    mut copies: impl Iterator<Item = Copy>,
    range: Range<Sector>,
) -> Option<Copy> {
    if health.broken || !health.trust.covers(range) {
        return copies.next();
    }
    copies.min_by_key(|copy| {
        let load = shard.load(copy.member);
        let way = load.last_read_end.get().0.abs_diff(copy.sector.0);
        let rotational = health.seats[copy.member.index()].device.as_ref().is_some_and(Device::rotational);
        let detour = match (way, rotational) {
            (0, _) => 0,
            (_, false) => DETOUR_BYTES,
            (_, true) => HEAD_DETOUR_BYTES,
        };
        let waits = shard.queued_bytes(copy.member) + load.dealt.get().0 * SECTOR_BYTES + detour;
        (shard.is_slow(copy.member), waits, way)
    })
}

/// Bytes of a piece.
pub(crate) fn bytes(len: Sector) -> usize {
    (len.0 * SECTOR_BYTES) as usize
}
