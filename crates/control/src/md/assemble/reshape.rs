//! An array in the middle of a reshape: two geometries over the same members, joined at a position
//! (docs/formats.md §9.1).
//!
//! Each side is an ordinary array, and is read by the rules of its own: its members, its parity.
//! What lies at the position is decided here:
//!
//! - The position of the freshest superblock counts. md makes what it has moved durable before a
//!   superblock says so, and writes over the old place of nothing beyond it before every superblock
//!   does. So members of one update that was cut in two are both right.
//! - A member that the reshape fills holds nothing of the old geometry, and as much of the new one
//!   as its `recovery_offset` says.
//! - A member whose superblock was last written before the reshape began does not say where its
//!   data moves to. It is not used on the new side.

use std::ops::Range;

use wattle_engine::BadRanges;
use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::units::{MemberIx, Sector};

use super::reasons::Reasons;
use super::sync::Sync;
use super::{Slot, slots, sync};
use crate::md::facts::{Features, MemberFacts, Reshape, SuperblockFacts, Version};
use crate::md::reason::Reason;
use crate::problem::Check;

/// A reshape that is not finished, as far as reading needs it.
#[derive(Debug, Clone)]
pub struct ReshapeAssembly {
    /// Where the two geometries meet, in array sectors, at most `size_sectors`.
    pub position_sectors: u64,
    /// The new geometry is above the position, not below it.
    pub backwards: bool,
    /// Before the reshape.
    pub old: ReshapeSide,
    /// After it.
    pub new: ReshapeSide,
    /// What lies beyond the position and may have been moved already, in array sectors, where
    /// nothing on the members tells: it is read only where a backup file does.
    pub doubtful: Option<Range<u64>>,
    /// By how much, in array sectors, data moves on the members, where Linux may have run further
    /// past the position than that: what is beyond it is looked at.
    pub moved_sectors: Option<u64>,
    /// The operator says that Linux did not run past the position.
    pub forced: bool,
    /// What the array holds, in sectors: what both geometries have room for, as Linux has it until
    /// the end of the reshape.
    pub size_sectors: u64,
}

/// One of the two geometries.
#[derive(Debug, Clone)]
pub struct ReshapeSide {
    /// Its map.
    pub geometry: Geometry,
    /// By slot of this geometry.
    pub slots: Vec<Slot>,
    /// Where data starts on each member given, in their order, in sectors; `None` where that is not
    /// known.
    pub data_offsets: Vec<Option<u64>>,
    /// The bad ranges of each member given, in their order, in sectors of its data.
    pub bad: Vec<BadRanges>,
    /// The array sectors that are read by it.
    pub sectors: Range<u64>,
}

impl ReshapeAssembly {
    /// The side with more slots: its slots are the array's.
    #[must_use]
    pub fn wider(&self) -> &Geometry {
        let (old, new) = (&self.old.geometry, &self.new.geometry);
        if old.raid_disks() > new.raid_disks() { old } else { new }
    }

    /// How much of the array has the new geometry, in percent.
    #[must_use]
    pub fn percent_done(&self) -> u64 {
        let done = self.new.sectors.end - self.new.sectors.start;
        u64::try_from(u128::from(done) * 100 / u128::from(self.size_sectors.max(1))).unwrap_or(100)
    }

    /// What the reshape moves in one go, in array sectors: whole stripes of both chunks.
    #[must_use]
    pub fn unit_sectors(&self) -> u64 {
        let (old, new) = (&self.old.geometry, &self.new.geometry);
        old.chunk().max(new.chunk()).0 * old.data_disks().max(new.data_disks()).max(1) as u64
    }

    /// The sides that hold something, in the order of the array.
    pub fn sides(&self) -> impl Iterator<Item = &ReshapeSide> {
        let (first, second) = if self.backwards { (&self.old, &self.new) } else { (&self.new, &self.old) };
        [first, second].into_iter().filter(|side| !side.sectors.is_empty())
    }
}

/// The two geometries, or the reason why there are none.
pub(super) fn build(
    members: &[MemberFacts],
    filled: &[Slot],
    fresh: &MemberFacts,
    reasons: &mut Reasons,
) -> Option<ReshapeAssembly> {
    let array = &fresh.superblock;
    let reshape = array.reshape?;
    let used: Vec<_> = filled.iter().filter_map(|slot| members.get(slot.member()?)).collect();
    let geometries = check(&used, fresh, &reshape)
        .and_then(|level| Ok((build_side(fresh, level, None)?, build_side(fresh, level, Some(&reshape))?)));
    let (old, new) = match geometries {
        Ok(both) => both,
        Err(reason) => {
            reasons.refuse(reason);
            return None;
        }
    };
    if old.hazard().is_some() || new.hazard().is_some() {
        reasons.read_only(Reason::CollidingLayout { layout: array.layout });
    }
    let size_sectors = old.array_sectors().min(new.array_sectors()).0;
    let position = reshape.position.min(size_sectors);
    let forced = reasons.policy.forced.has(Check::ReshapePosition);
    let (doubtful, moved_sectors) = match risk(&used, &old, &new, &reshape) {
        Risk::None => (None, None),
        Risk::Below(bound) if reshape.backwards => ((position < bound).then_some(0..position), None),
        Risk::Below(bound) => (Some(position..bound.min(size_sectors)), None),
        Risk::Moved(_) if forced => (None, None),
        Risk::Moved(sectors) => (None, Some(sectors)),
    };
    let doubtful = doubtful.filter(|range| !range.is_empty());
    let (below, above) = (0..position, position..size_sectors);
    let (of_old, of_new) = if reshape.backwards { (below, above) } else { (above, below) };
    // Rows of the new geometry that are filled; a reshape that goes down fills the last ones first.
    let rows = if reshape.backwards { u64::MAX } else { rows_below(&new, position) };
    let new_slot = |slot: &Slot| new_slot(members, slot, rows, &reshape);
    let new_slots = filled.iter().take(new.raid_disks()).map(new_slot).collect();
    let old_slots = filled.iter().take(old.raid_disks()).map(old_slot).collect();
    let bad = |offsets: &[Option<u64>]| {
        let ranges = |(member, offset): (&MemberFacts, &Option<u64>)| {
            let own = &member.superblock;
            let start = offset.unwrap_or(own.data_offset_sectors);
            slots::bad_within(member, start..start.saturating_add(array.size_sectors))
        };
        members.iter().zip(offsets).map(ranges).collect()
    };
    let old_offsets: Vec<_> =
        members.iter().map(|member| Some(member.superblock.data_offset_sectors)).collect();
    let new_offsets: Vec<_> = members.iter().map(|member| new_offset(&member.superblock)).collect();
    Some(ReshapeAssembly {
        position_sectors: position,
        backwards: reshape.backwards,
        doubtful,
        moved_sectors,
        forced,
        old: ReshapeSide {
            geometry: old,
            slots: old_slots,
            bad: bad(&old_offsets),
            data_offsets: old_offsets,
            sectors: of_old,
        },
        new: ReshapeSide {
            geometry: new,
            slots: new_slots,
            bad: bad(&new_offsets),
            data_offsets: new_offsets,
            sectors: of_new,
        },
        size_sectors,
    })
}

/// Refuses what md does not write: reshapes of other levels, from one level to another (md changes
/// the level before a reshape or behind it), and what differs between superblocks of one update.
fn check(used: &[&MemberFacts], fresh: &MemberFacts, reshape: &Reshape) -> Result<Level, Reason> {
    let array = &fresh.superblock;
    let bad = |field, found: i64, expected| Reason::BadNumber {
        member: fresh.name.clone(),
        field,
        found: found.unsigned_abs(),
        expected,
    };
    if array.features.intersects(Features::JOURNAL | Features::PPL | Features::MULTIPLE_PPLS) {
        // md reshapes no array that has a log.
        return Err(Reason::ReshapeUnknown);
    }
    let level = Level::from_md(array.level)
        .filter(|level| matches!(level, Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10))
        .ok_or_else(|| bad("level", i64::from(array.level), "4, 5, 6 or 10: others are not reshaped"))?;
    if reshape.new_level != array.level {
        return Err(bad(
            "new_level",
            i64::from(reshape.new_level),
            "the level: md changes that before a reshape or behind it",
        ));
    }
    if level == Level::Raid10 && reshape.new_layout != array.layout {
        return Err(bad(
            "new_layout",
            i64::from(reshape.new_layout),
            "the layout: Linux fails members and loses data where it changes that of a RAID 10",
        ));
    }
    if array.old_raid_disks() < 1 {
        return Err(bad("delta_disks", i64::from(reshape.delta_disks), "less than raid_disks"));
    }
    for member in used {
        let own = &member.superblock;
        let Some(theirs) = own.reshape.filter(|_| own.events == array.events) else { continue };
        let fields = [
            ("delta_disks", i64::from(reshape.delta_disks), i64::from(theirs.delta_disks)),
            ("new_layout", i64::from(reshape.new_layout), i64::from(theirs.new_layout)),
            ("new_chunk", i64::from(reshape.new_chunk_sectors), i64::from(theirs.new_chunk_sectors)),
            ("reshape_backwards", i64::from(reshape.backwards), i64::from(theirs.backwards)),
        ];
        if let Some((field, expected, found)) =
            fields.into_iter().find(|(_, expected, found)| expected != found)
        {
            let (expected, found) = (expected.unsigned_abs(), found.unsigned_abs());
            return Err(Reason::Ambiguous { field, expected, member: member.name.clone(), found });
        }
    }
    let moved_out = |member: &&MemberFacts| {
        let own = &member.superblock;
        own.reshape.is_some()
            && new_offset(own)
                .and_then(|start| start.checked_add(array.size_sectors))
                .is_none_or(|end| end > member.size_sectors)
    };
    if let Some(member) = used.iter().copied().find(moved_out) {
        let moves = member.superblock.reshape.and_then(|reshape| reshape.new_offset_sectors).unwrap_or(0);
        return Err(Reason::BadNumber {
            member: member.name.clone(),
            field: "new_offset",
            found: u64::from(moves.unsigned_abs()),
            expected: "a move after which the data still lies on the member",
        });
    }
    Ok(level)
}

/// The geometry before the reshape, or with one the geometry after it. What of a member is not a
/// whole chunk of both is used by neither.
fn build_side(fresh: &MemberFacts, level: Level, reshape: Option<&Reshape>) -> Result<Geometry, Reason> {
    let array = &fresh.superblock;
    let largest = array.chunk_sectors.max(array.reshape.map_or(0, |reshape| reshape.new_chunk_sectors));
    let rounded = array.size_sectors / u64::from(largest.max(1)) * u64::from(largest.max(1));
    let (layout, chunk, raid_disks) = match reshape {
        None => (array.layout, array.chunk_sectors, u32::try_from(array.old_raid_disks()).unwrap_or(0)),
        Some(reshape) => (reshape.new_layout, reshape.new_chunk_sectors, array.raid_disks),
    };
    let geometry = Geometry::new(&Params {
        level,
        layout,
        chunk: Sector(u64::from(chunk)),
        raid_disks,
        component_size: Sector(rounded),
        member_sizes: Vec::new(),
    });
    let geometry = geometry.map_err(|source| Reason::Geometry { member: fresh.name.clone(), source })?;
    let Some(reshape) = reshape.filter(|_| level != Level::Raid10) else { return Ok(geometry) };
    // Linux moves whole stripes of both chunks.
    let unit = u64::from(largest) * geometry.data_disks() as u64;
    if reshape.position.is_multiple_of(unit.max(1)) {
        Ok(geometry)
    } else {
        Err(Reason::BadNumber {
            member: fresh.name.clone(),
            field: "reshape_position",
            found: reshape.position,
            expected: "whole stripes of the new geometry",
        })
    }
}

/// In which way Linux may have written over what the recorded position still needs.
enum Risk {
    /// In none.
    None,
    /// In place, as long as the position is below this array sector.
    Below(u64),
    /// By data that moves so many array sectors.
    Moved(u64),
}

/// What the recorded position is worth (docs/formats.md §9.3). RAID 10 is not reshaped where it
/// would have to be in place, and Linux looks at the offset there.
///
/// Of parity, new rows are written in front of old ones that are still needed. With more data
/// members than before the distance grows as the reshape comes along, with fewer it shrinks: close
/// to the array's start there is none, but for the offset. With as many there is nothing else.
fn risk(used: &[&MemberFacts], old: &Geometry, new: &Geometry, reshape: &Reshape) -> Risk {
    if new.level() == Level::Raid10 {
        return Risk::None;
    }
    let moves = used.iter().filter_map(|member| member.superblock.reshape);
    let moves = moves.map(|own| i64::from(own.new_offset_sectors.unwrap_or(0)));
    let away = moves.map(|moved| if reshape.backwards { moved } else { -moved }).min().unwrap_or(0);
    let (before, after) = (old.data_disks() as u64, new.data_disks() as u64);
    if before == after {
        let moved = u64::try_from(away).unwrap_or(0) * after;
        return if moved > 0 { Risk::Moved(moved) } else { Risk::Below(u64::MAX) };
    }
    let chunk = old.chunk().max(new.chunk()).0;
    let (fewer, more) = (before.min(after), before.max(after));
    let gap = (2 * chunk).saturating_sub_signed(away);
    let until = (gap * fewer * more).div_ceil(more - fewer);
    // On the way down the last position that is recorded may be the one before.
    let until = if reshape.backwards { until.saturating_mul(more).div_ceil(fewer) } else { until };
    let until = if gap == 0 { 0 } else { until.next_multiple_of(chunk * after) };
    let until = until.max(if reshape.backwards { 0 } else { first_record(old, new, away) });
    if until == 0 { Risk::None } else { Risk::Below(until) }
}

/// On the way up, the array sector below which old places may be gone before anything is recorded:
/// the run that began the reshape does not look at the offset, and first records a position one
/// unit behind what would be the critical section without it.
fn first_record(old: &Geometry, new: &Geometry, away: i64) -> u64 {
    let chunk = old.chunk().max(new.chunk()).0;
    let (before, after) = (old.data_disks() as u64, new.data_disks() as u64);
    let (fewer, more) = (before.min(after), before.max(after));
    let unit = chunk * after;
    let without = (2 * chunk * fewer * more).div_ceil(more - fewer).next_multiple_of(unit);
    let rows = ((without + unit) / after).saturating_sub_signed(away);
    (rows * before).next_multiple_of(old.chunk().0 * before)
}

/// Where data starts on a member in the new geometry, in sectors; `None` where its superblock knows
/// of no reshape, or the place is not on the member.
fn new_offset(own: &SuperblockFacts) -> Option<u64> {
    let moves = own.reshape?.new_offset_sectors.unwrap_or(0);
    own.data_offset_sectors.checked_add_signed(i64::from(moves))
}

/// How many sectors of a member the array has below a position, in this geometry.
fn rows_below(geometry: &Geometry, position: u64) -> u64 {
    match geometry.level() {
        // Copies of the last chunk may lie a row behind it.
        Level::Raid10 => {
            let last = position.min(geometry.array_sectors().0).checked_sub(1);
            let copies = last.map(|last| geometry.copies(Sector(last)));
            copies.map_or(0, |copies| copies.iter().map(|copy| copy.sector.0 + 1).max().unwrap_or(0))
        }
        _ => position / geometry.data_disks().max(1) as u64,
    }
}

/// What a slot has of the old geometry.
fn old_slot(slot: &Slot) -> Slot {
    match slot {
        Slot::InSync { member } => Slot::InSync { member: *member },
        Slot::Missing | Slot::Rebuilding { .. } => Slot::Missing,
    }
}

/// What a slot has of the new geometry below `rows` of a member's data.
fn new_slot(members: &[MemberFacts], slot: &Slot, rows: u64, reshape: &Reshape) -> Slot {
    let Some(member) = slot.member() else { return Slot::Missing };
    let own = &members[member].superblock;
    if new_offset(own).is_none() {
        return Slot::Missing;
    }
    match *slot {
        // 0.90 has no number for it: what a reshape fills is filled as far as that came.
        Slot::Rebuilding { .. } if own.version == Version::V090 && !reshape.backwards => {
            Slot::InSync { member }
        }
        Slot::Rebuilding { valid_below_sectors, .. } if valid_below_sectors >= rows => {
            Slot::InSync { member }
        }
        Slot::Rebuilding { .. } => Slot::Missing,
        other => other,
    }
}

impl ReshapeSide {
    /// Whether what is there is enough to read it; where it holds nothing, anything is.
    pub(super) fn is_enough(&self) -> bool {
        self.sectors.is_empty() || self.is_enough_alone()
    }

    /// Whether what is there is enough to read it, whether it holds something or not.
    #[must_use]
    pub fn is_enough_alone(&self) -> bool {
        self.geometry.survives(&slots::lost(&self.slots))
    }

    /// The member in a slot, and where its data starts in this geometry.
    #[must_use]
    pub fn member_in(&self, slot: MemberIx) -> Option<(usize, Sector)> {
        let member = self.slots.get(slot.index())?.member()?;
        Some((member, Sector((*self.data_offsets.get(member)?)?)))
    }
}

/// Refuses an array that is missing more than one of its sides can do without; whether it is not.
pub(super) fn check_enough(
    reshape: &ReshapeAssembly,
    filled: &[Slot],
    array: &SuperblockFacts,
    reasons: &mut Reasons,
) -> bool {
    let enough = reshape.sides().all(ReshapeSide::is_enough);
    if !enough {
        let missing = slots::not_in_sync(filled);
        reasons.refuse(Reason::NotEnoughMembers { missing, raid_disks: array.slot_count() });
    }
    enough
}

/// Refuses parity that cannot be trusted where data of a side would be computed from it. True if
/// the operator trusts it all the same.
pub(super) fn check_dirty_degraded(
    members: &[MemberFacts],
    reshape: &ReshapeAssembly,
    known: &Sync,
    array: &SuperblockFacts,
    reasons: &mut Reasons,
) -> bool {
    for side in reshape.sides() {
        let refused = reasons.refused.len();
        let map = Some(&side.geometry);
        let vouched = sync::check_dirty_degraded(members, &side.slots, known, array, map, reasons);
        if vouched || reasons.refused.len() > refused {
            return vouched;
        }
    }
    false
}
