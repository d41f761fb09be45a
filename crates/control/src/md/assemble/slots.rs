//! Which member is in which slot, and the map that this makes.

use std::cmp::Reverse;
use std::ops::Range;

use wattle_engine::BadRanges;
use wattle_engine::geometry::{Geometry, GeometryError, Level, LevelKind, Params};
use wattle_engine::units::{MemberIx, MemberSet, Sector};

use super::reasons::Reasons;
use super::{Replacement, Slot};
use crate::md::facts::{Features, MemberFacts, SuperblockFacts};
use crate::md::reason::Reason;
use crate::md::verdict::Verdict;
use crate::problem::{Check, Forced};

/// Every member that is in a slot or being copied to.
#[derive(Debug)]
pub(super) struct Filled {
    pub slots: Vec<Slot>,
    pub replacements: Vec<Option<Replacement>>,
}

/// Gives each slot its member and its replacement: of several claimants of one place the fresher
/// one. A replacement whose original is not there is the member; so is one that is whole while the
/// original is not.
pub(super) fn fill_slots(
    members: &[MemberFacts],
    verdicts: &mut [Verdict],
    count: usize,
    reasons: &mut Reasons,
) -> Filled {
    let mut filled = Filled { slots: Vec::with_capacity(count), replacements: Vec::with_capacity(count) };
    for slot in 0..count as u16 {
        let original = settle(members, verdicts, slot, false, reasons);
        let copy = settle(members, verdicts, slot, true, reasons);
        let whole = |ix: usize| matches!(verdicts[ix], Verdict::Fresh { .. });
        let (in_slot, second) = match (original, copy) {
            (Some(original), Some(copy)) if whole(copy) && !whole(original) => {
                verdicts[original] = Verdict::Duplicate { slot, other: members[copy].name.clone() };
                (Some(copy), None)
            }
            (Some(original), second) => (Some(original), second),
            (None, copy) => (copy, None),
        };
        filled.slots.push(match in_slot {
            None => Slot::Missing,
            Some(member) => match valid_below(&verdicts[member]) {
                None => Slot::InSync { member },
                Some(valid_below_sectors) => Slot::Rebuilding {
                    member,
                    valid_below_sectors,
                    by_bitmap: members[member].superblock.has(Features::RECOVERY_BITMAP),
                },
            },
        });
        filled.replacements.push(second.map(|member| {
            let valid_below_sectors = valid_below(&verdicts[member]).unwrap_or(u64::MAX);
            verdicts[member] = Verdict::Replacement { slot, valid_below_sectors };
            Replacement { member, valid_below_sectors }
        }));
    }
    filled
}

impl Filled {
    /// A replacement and the member that it replaces are two copies, and what was in flight at a
    /// crash may be on one of them only. A resync makes them equal; a log knows of data and parity
    /// alone, and where the operator vouches for parity it is not looked at. There no copy is known
    /// to be one.
    pub fn copy_replacements_anew(&mut self, verdicts: &mut [Verdict]) {
        for (slot, replacement) in (0..).zip(&mut self.replacements) {
            if let Some(Replacement { member, valid_below_sectors }) = replacement {
                *valid_below_sectors = 0;
                verdicts[*member] = Verdict::Replacement { slot, valid_below_sectors: 0 };
            }
        }
    }
}

/// How far a member is rebuilt; `None` if it is whole.
fn valid_below(verdict: &Verdict) -> Option<u64> {
    match *verdict {
        Verdict::Rebuilding { valid_below_sectors, .. } => Some(valid_below_sectors),
        _ => None,
    }
}

/// The freshest of those that claim a slot as its member, or as the replacement of its member.
fn settle(
    members: &[MemberFacts],
    verdicts: &mut [Verdict],
    slot: u16,
    replacement: bool,
    reasons: &mut Reasons,
) -> Option<usize> {
    let claims = |&ix: &usize| {
        verdicts[ix].slot() == Some(slot) && members[ix].superblock.has(Features::REPLACEMENT) == replacement
    };
    let mut claimants: Vec<_> = (0..members.len()).filter(claims).collect();
    claimants.sort_by_key(|&ix| (Reverse(members[ix].superblock.events), ix));
    let [winner, losers @ ..] = claimants.as_slice() else { return None };
    for &loser in losers {
        let other = members[*winner].name.clone();
        if members[loser].superblock.events == members[*winner].superblock.events {
            let second = members[loser].name.clone();
            reasons.refuse(Reason::DuplicateRole { slot, first: other.clone(), second });
        }
        verdicts[loser] = Verdict::Duplicate { slot, other };
    }
    Some(*winner)
}

/// The layout word of a RAID 0 that the operator vouches for.
fn vouched_layout(forced: &Forced) -> Option<u32> {
    match (forced.has(Check::Raid0Original), forced.has(Check::Raid0Alternate)) {
        (true, false) => Some(1),
        (false, true) => Some(2),
        _ => None,
    }
}

/// The map, or the reason why there is none.
pub(super) fn build_geometry(
    members: &[MemberFacts],
    slots: &[Slot],
    fresh: &MemberFacts,
    reasons: &mut Reasons,
) -> Option<Geometry> {
    let array = &fresh.superblock;
    let level = Level::from_md(array.level)?;
    let sizes = slots.iter().map(|slot| Some(Sector(members[slot.member()?].superblock.data_size_sectors)));
    let sizes: Option<Vec<_>> = sizes.collect();
    let member_sizes = match (level.kind(), sizes) {
        (LevelKind::Striped, Some(sizes)) => sizes,
        (LevelKind::Striped, None) => {
            reasons.refuse(Reason::NotEnoughMembers {
                missing: not_in_sync(slots),
                raid_disks: array.raid_disks,
            });
            return None;
        }
        _ => Vec::new(),
    };
    let raid0_unstated = level == Level::Raid0 && !array.has(Features::RAID0_LAYOUT);
    let mut params = Params {
        level,
        layout: if raid0_unstated { 0 } else { array.layout },
        chunk: Sector(u64::from(array.chunk_sectors)),
        raid_disks: array.raid_disks,
        component_size: Sector(array.size_sectors),
        member_sizes,
    };
    let mut geometry = Geometry::new(&params);
    if let (Err(GeometryError::Raid0LayoutUnknown { .. }), Some(layout)) =
        (&geometry, vouched_layout(&reasons.policy.forced))
    {
        // Written, a mistake would destroy what the other layout reads.
        reasons.read_only(Reason::Raid0Layout);
        params.layout = layout;
        geometry = Geometry::new(&params);
    }
    match geometry {
        Ok(geometry) => {
            if geometry.hazard().is_some() {
                reasons.read_only(Reason::CollidingLayout { layout: array.layout });
            }
            Some(geometry)
        }
        Err(GeometryError::Raid0LayoutUnknown { .. }) => {
            reasons.refuse(Reason::Raid0Layout);
            None
        }
        Err(source) => {
            reasons.refuse(Reason::Geometry { member: fresh.name.clone(), source });
            None
        }
    }
}

/// Counts members out whose list of bad blocks cannot be read, as if they were not there: any of
/// their sectors may be lost. Refuses the array where the others are not enough.
pub(super) fn exclude_unknown_bad_blocks(
    members: &[MemberFacts],
    verdicts: &mut [Verdict],
    filled: &mut Filled,
    geometry: &Geometry,
    reasons: &mut Reasons,
) {
    let unknown = |member: usize| bad_in_data(&members[member]).is_none();
    for (slot, replacement) in (0..).zip(&mut filled.replacements) {
        if let Some(member) = replacement.map(|replacement| replacement.member).filter(|&ix| unknown(ix)) {
            verdicts[member] = Verdict::BadBlocks { slot };
            *replacement = None;
        }
    }
    for slot in 0..filled.slots.len() {
        let Some(member) = filled.slots[slot].member().filter(|&ix| unknown(ix)) else { continue };
        let kept = std::mem::replace(&mut filled.slots[slot], Slot::Missing);
        if geometry.survives(&lost(&filled.slots)) {
            verdicts[member] = Verdict::BadBlocks { slot: slot as u16 };
        } else {
            filled.slots[slot] = kept;
            reasons.refuse(Reason::BadBlocks { member: members[member].name.clone() });
        }
    }
}

/// The recorded bad ranges of a member, cut to its data, in sectors of that; `None` if there are
/// some and it is not known which.
pub(super) fn bad_in_data(member: &MemberFacts) -> Option<Vec<Range<u64>>> {
    let own = &member.superblock;
    bad_in(member, own.data_offset_sectors..own.data_offset_sectors.saturating_add(own.data_size_sectors))
}

/// The recorded bad ranges of a member in these sectors of it, counted from the first of them.
/// Those of a list that cannot be read are none: such a member is left out where it can be.
pub(super) fn bad_within(member: &MemberFacts, data: Range<u64>) -> BadRanges {
    let sectors = |range: Range<u64>| Sector(range.start)..Sector(range.end);
    bad_in(member, data).into_iter().flatten().map(sectors).collect()
}

fn bad_in(member: &MemberFacts, data: Range<u64>) -> Option<Vec<Range<u64>>> {
    if !member.superblock.has(Features::BAD_BLOCKS) {
        return Some(Vec::new());
    }
    let ranges = member.bad_blocks.as_ref()?.iter().map(|bad| {
        let end = bad.start_sector.saturating_add(bad.len_sectors).min(data.end);
        let start = bad.start_sector.max(data.start).min(end.max(data.start));
        start - data.start..end.max(start) - data.start
    });
    Some(ranges.filter(|range| !range.is_empty()).collect())
}

/// Refuses an array that is missing more than it can do without; whether it is not.
pub(super) fn check_enough(
    slots: &[Slot],
    geometry: &Geometry,
    array: &SuperblockFacts,
    reasons: &mut Reasons,
) -> bool {
    let enough = geometry.survives(&lost(slots));
    if !enough {
        let missing = not_in_sync(slots);
        reasons.refuse(Reason::NotEnoughMembers { missing, raid_disks: array.raid_disks });
    }
    enough
}

/// Refuses an array that is not whole where the operator wants whole ones only.
pub(super) fn check_degraded(slots: &[Slot], reasons: &mut Reasons) {
    let missing = not_in_sync(slots);
    if reasons.policy.degraded == super::Degraded::Never && !missing.is_empty() {
        reasons.refuse(Reason::DegradedNotAllowed { missing });
    }
}

pub(super) fn not_in_sync(slots: &[Slot]) -> Vec<u16> {
    (0..).zip(slots).filter(|(_, slot)| !matches!(slot, Slot::InSync { .. })).map(|(ix, _)| ix).collect()
}

/// Slots that cannot be relied on for all of their data.
pub(super) fn lost(slots: &[Slot]) -> MemberSet {
    not_in_sync(slots).into_iter().map(MemberIx).collect()
}
