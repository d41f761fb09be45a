//! Follows the logs of a dirty array: reads what their entries name, makes parity of it, and writes
//! that.

use wattle_engine::BadRanges;
use wattle_engine::geometry::Geometry;
use wattle_engine::state::ppl::LogArea;
use wattle_engine::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};
use wattle_rt::{Buf, BufMut, Core, Device, Durability};

use super::plan::{self, Area, LogDistrust, Parity, ParityKnowledge};

/// A member whose log is followed: one that is in its slot, also if it is still being rebuilt.
#[derive(Debug, Clone)]
pub struct LogMember {
    /// Open for reading, and for writing if [`apply`] is to be called.
    pub device: Device,
    /// Where its data starts.
    pub data_offset: Sector,
    /// Its data is current below; [`Sector::MAX`] everywhere.
    pub valid_below: Sector,
    /// Data sectors that hold nothing that can be read.
    pub bad: BadRanges,
    /// Where its log is; `None` if it has none (see [`super::area`]).
    pub log: Option<LogArea>,
}

impl LogMember {
    fn holds(&self, sector: Sector, len: Sector) -> bool {
        sector + len <= self.valid_below && !self.bad.overlaps(sector..sector + len)
    }

    fn offset(&self, sector: Sector) -> u64 {
        (self.data_offset + sector).0 * SECTOR_BYTES
    }
}

/// Parity as it has to be.
#[derive(Debug, Clone)]
pub struct Patch {
    /// The slot of the member.
    pub slot: MemberIx,
    /// Data sector of the member.
    pub sector: Sector,
    /// Its content.
    pub bytes: Buf,
}

/// What came of the logs. Nothing has been written.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Parity to write. It is right whatever the outcome is.
    pub patches: Vec<Patch>,
    /// What is known of parity once that is written.
    pub outcome: ParityKnowledge,
    /// Entries of the newest logs.
    pub entries: usize,
    /// Ranges of parity that are left as they are because data they need is on no member: a member
    /// that died in the crash took along what was being written to it, and nothing else.
    pub skipped: usize,
}

/// Follows the logs of a dirty RAID 5. `members` by slot, those that are missing or stale as
/// `None`; `stored_uuid` as the superblocks store it. Reads only.
pub async fn replay(
    core: &Core,
    geometry: &Geometry,
    members: &[Option<LogMember>],
    stored_uuid: &[u8; 16],
) -> Replay {
    let areas = read_areas(core, members).await;
    let given: Vec<Area<'_>> = members
        .iter()
        .zip(&areas)
        .map(|(member, area)| match (member, area) {
            (None, _) => Area::Absent,
            (Some(LogMember { log: None, .. }), _) => Area::None,
            (Some(_), None) => Area::Unreadable,
            (Some(_), Some(bytes)) => Area::Bytes(bytes),
        })
        .collect();
    let plan = plan::plan(geometry, stored_uuid, &given);
    let mut replay = Replay { patches: Vec::new(), outcome: plan.outcome, entries: plan.entries, skipped: 0 };
    for parity in plan.parities.iter().flat_map(|parity| parts(members, parity)) {
        let Some(Some(area)) = areas.get(parity.slot.index()) else { continue };
        match make(core, members, &parity, area).await {
            Ok(Some(patch)) => replay.patches.push(patch),
            Ok(None) => replay.skipped += 1,
            Err(source_slot) => {
                replay.outcome.distrust(LogDistrust::DataUnreadable { slot: parity.slot, source_slot });
            }
        }
    }
    replay
}

/// The log areas, by slot; `None` where there is none or it cannot be read.
async fn read_areas(core: &Core, members: &[Option<LogMember>]) -> Vec<Option<BufMut>> {
    let reads: Vec<_> = members
        .iter()
        .map(|member| {
            let member = member.as_ref()?;
            let area = member.log?;
            let buf = BufMut::alloc(usize::try_from(area.size_bytes).ok()?);
            Some(core.read(&member.device, area.offset_bytes, buf))
        })
        .collect();
    let mut areas = Vec::with_capacity(reads.len());
    for read in reads {
        areas.push(match read {
            Some(read) => {
                let (result, buf) = read.await;
                result.is_ok().then_some(buf)
            }
            None => None,
        });
    }
    areas
}

/// Cuts a range of parity so that each part is as a whole on a member, or as a whole not, of all
/// that have to do with it.
fn parts(members: &[Option<LogMember>], parity: &Parity) -> Vec<Parity> {
    let (start, end) = (parity.sector, parity.sector + parity.len);
    let mut edges = vec![start, end];
    let slots = parity.sources.iter().chain([&parity.slot]);
    for member in slots.filter_map(|slot| members.get(slot.index())?.as_ref()) {
        edges.push(member.valid_below);
        edges.extend(member.bad.iter().flat_map(|bad| [bad.start, bad.end]));
    }
    edges.retain(|edge| (start..=end).contains(edge));
    edges.sort_unstable();
    edges.dedup();
    let part = |edge: &[Sector]| {
        let at = |sector: Sector| parity.partial.start + ((sector - start).0 * SECTOR_BYTES) as usize;
        let partial = if parity.partial.is_empty() { 0..0 } else { at(edge[0])..at(edge[1]) };
        Parity { sector: edge[0], len: edge[1] - edge[0], partial, ..parity.clone() }
    };
    edges.windows(2).map(part).collect()
}

/// Makes a range of parity; `None` if data it needs is on no member.
///
/// # Errors
/// The slot whose data cannot be read although it should be there.
async fn make(
    core: &Core,
    members: &[Option<LogMember>],
    parity: &Parity,
    area: &[u8],
) -> Result<Option<Patch>, MemberIx> {
    let member = |slot: MemberIx| {
        let member = members.get(slot.index())?.as_ref();
        member.filter(|member| member.holds(parity.sector, parity.len))
    };
    if member(parity.slot).is_none() {
        return Ok(None);
    }
    // Nothing is read before all of it is there: a read without a waiting task would outlive the
    // replay.
    let source = |&slot: &MemberIx| Some((slot, member(slot)?));
    let Some(sources) = parity.sources.iter().map(source).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let len = (parity.len.0 * SECTOR_BYTES) as usize;
    let read = |(slot, source): (MemberIx, &LogMember)| {
        (slot, core.read(&source.device, source.offset(parity.sector), BufMut::alloc(len)))
    };
    let reads: Vec<_> = sources.into_iter().map(read).collect();
    let mut sum = BufMut::zeroed(len);
    if let Some(partial) = area.get(parity.partial.clone()).filter(|partial| !partial.is_empty()) {
        sum.copy_from_slice(partial);
    }
    let mut unreadable = None;
    for (slot, read) in reads {
        let (result, block) = read.await;
        if result.is_err() {
            unreadable = Some(slot);
        }
        sum.iter_mut().zip(block.iter()).for_each(|(sum, byte)| *sum ^= byte);
    }
    match unreadable {
        Some(slot) => Err(slot),
        None => Ok(Some(Patch { slot: parity.slot, sector: parity.sector, bytes: sum.freeze() })),
    }
}

/// Writes the parity of a replay and makes it durable, together with everything that reached the
/// members before the crash: what the logs do not name is on them, but maybe still in their caches.
/// Can be repeated from the start after a crash at any point, as long as nothing else is written
/// and the logs stay.
///
/// # Errors
/// The slots whose member did not take it; the array must not be used with them.
pub async fn apply(core: &Core, members: &[Option<LogMember>], replay: &Replay) -> Result<(), MemberSet> {
    let mut failed = MemberSet::EMPTY;
    let mut writes = Vec::with_capacity(replay.patches.len());
    for patch in &replay.patches {
        let Some(Some(member)) = members.get(patch.slot.index()) else { continue };
        let (at, bytes) = (member.offset(patch.sector), patch.bytes.clone());
        writes.push((patch.slot, core.write(&member.device, at, bytes, Durability::Cached)));
    }
    for (slot, write) in writes {
        if write.await.is_err() {
            failed.insert(slot);
        }
    }
    let present =
        (0..).map(MemberIx).zip(members).filter_map(|(slot, member)| Some((slot, member.as_ref()?)));
    let flushes: Vec<_> = present.map(|(slot, member)| (slot, core.flush(&member.device))).collect();
    for (slot, flush) in flushes {
        if flush.await.is_err() {
            failed.insert(slot);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_is_cut_where_a_member_begins_or_ends_to_hold_it() {
        let member = |valid_below, bad: &[(u64, u64)]| {
            let mut ranges = BadRanges::NONE;
            bad.iter().for_each(|&(from, to)| ranges.insert(Sector(from)..Sector(to)));
            let device = Device::null(1 << 20);
            Some(LogMember {
                device,
                data_offset: Sector(0),
                valid_below: Sector(valid_below),
                bad: ranges,
                log: None,
            })
        };
        let members = [member(48, &[]), member(u64::MAX, &[(40, 41), (90, 99)]), member(50, &[]), None];
        let whole = Parity {
            slot: MemberIx(0),
            sector: Sector(32),
            len: Sector(32),
            sources: vec![MemberIx(1), MemberIx(3)],
            partial: 4096..4096 + 32 * 512,
        };
        let of = |parity: &Parity| (parity.sector.0, parity.len.0, parity.partial.clone());
        let cut: Vec<_> = parts(&members, &whole).iter().map(of).collect();
        let at = |sector: usize| 4096 + (sector - 32) * 512;
        let part = |from: usize, to: usize| (from as u64, (to - from) as u64, at(from)..at(to));
        assert_eq!(cut, [part(32, 40), part(40, 41), part(41, 48), part(48, 64)]);
        let full = Parity { partial: 0..0, ..whole };
        assert!(parts(&members, &full).iter().all(|part| part.partial == (0..0)));
    }
}
