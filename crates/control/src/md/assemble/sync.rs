//! Where parity and copies may disagree, and what can be known of it: checkpoints, bitmaps, partial
//! parity logs.
//!
//! - A **clean** array agrees everywhere; bits that are set in its bitmap only say what an absent
//!   member lacks.
//! - A **dirty** one agrees below its checkpoint, and where its bitmap has no bit, if the bitmap is
//!   trusted: as new as the superblocks (docs/formats.md §2.2). Otherwise nothing is known, and
//!   everything is resynced.
//! - The bits that count are those of every copy that is trusted together. Each alone is complete,
//!   since a bit is durable on all members before what it stands for is written; together they are
//!   so even if that rule was broken.
//! - Where nothing is redundant any more there is nothing to disagree.
//! - Dirty, with a slot not in sync, is refused for levels with parity: data of the slot is
//!   computed from parity that may not fit it. Not so if only parity is in these slots, or the
//!   bitmap says that nothing was in flight, or every member's partial parity log tells what was;
//!   with a log, its replay has the last word.

use std::cmp::Reverse;

use wattle_engine::Regions;
use wattle_engine::geometry::{Geometry, LevelKind};
use wattle_engine::units::{MemberIx, Sector, StripeNo};

use super::reasons::Reasons;
use super::slots::{Filled, not_in_sync};
use super::{Bitmap, BitmapDistrust, MemberRecovery, Needs, ReAddCandidate, Slot, SyncState};
use crate::md::bitmap::BitmapBits;
use crate::md::facts::{
    BitmapContent, BitmapFacts, CLEAN, DeviceRole, Features, MemberFacts, PplNewest, SuperblockFacts,
};
use crate::md::lineage::{SeatedMember, knows_all, own_bits};
use crate::md::reason::Reason;
use crate::md::verdict::Verdict;
use crate::problem::Check;

/// What is known of parity and copies.
#[derive(Debug)]
pub(super) struct Sync {
    pub state: SyncState,
    pub needs: Needs,
    pub synced_below_sectors: u64,
}

/// How far parity and copies agree: the least that a current member says. Those of one generation
/// agree except when a crash cut an update in two.
pub(super) fn resync_offset(members: &[MemberFacts], verdicts: &[Verdict], array: &SuperblockFacts) -> u64 {
    let current = members
        .iter()
        .zip(verdicts)
        .filter(|(member, verdict)| verdict.slot().is_some() && member.superblock.events == array.events);
    current
        .map(|(member, _)| member.superblock.resync_offset)
        .min()
        .unwrap_or(array.resync_offset)
        .min(array.resync_offset)
}

/// The array's bitmap; `None` if it has none that a writer could keep, for a reason in `reasons`.
pub(super) fn bitmap(
    members: &[MemberFacts],
    verdicts: &[Verdict],
    array: &SuperblockFacts,
    geometry: &Geometry,
    reasons: &mut Reasons,
) -> Option<Bitmap> {
    if !array.has(Features::BITMAP) {
        return None;
    }
    let used = || members.iter().zip(verdicts).filter(|(_, verdict)| verdict.slot().is_some());
    let foreign = used().find_map(|(member, _)| match member.bitmap {
        BitmapFacts::Version(3 | 4) | BitmapFacts::Unreadable => None,
        BitmapFacts::Version(version) => Some(Reason::BitmapVersion { member: member.name.clone(), version }),
        // It was not reached when the bitmap was put on, and knows nothing of it.
        BitmapFacts::None if !member.superblock.has(Features::BITMAP) => None,
        BitmapFacts::None | BitmapFacts::Invalid => {
            Some(Reason::BitmapInvalid { member: member.name.clone() })
        }
    });
    if let Some(reason) = foreign {
        reasons.read_only(reason);
        return None;
    }
    // Only members that are in sync are known to have been written to all the time.
    let whole = used().filter(|(_, verdict)| matches!(verdict, Verdict::Fresh { .. }));
    let total = geometry.sync_sectors();
    let covers = |content: &&BitmapContent| content.region_sectors > 0 && content.covered_sectors >= total.0;
    let copies: Vec<_> =
        whole.filter_map(|(member, _)| member.bitmap_content.as_ref()).filter(covers).collect();
    let Some(newest) = copies.iter().max_by_key(|content| content.events) else {
        let member = used().next().map_or_else(String::new, |(member, _)| member.name.clone());
        reasons.read_only(Reason::BitmapUnreadable { member });
        return None;
    };
    let current = |content: &&&BitmapContent| content.events >= array.events && !content.stale;
    let trusted: Vec<_> = copies.iter().filter(current).collect();
    let distrust = match trusted.as_slice() {
        [] if newest.events < array.events => {
            Some(BitmapDistrust::Behind { events: newest.events, array_events: array.events })
        }
        [] => Some(BitmapDistrust::SaysSo),
        [first, rest @ ..] if rest.iter().any(|other| other.region_sectors != first.region_sectors) => {
            Some(BitmapDistrust::Disagree)
        }
        _ => None,
    };
    let size = Sector(newest.region_sectors);
    let mut set = if distrust.is_some() { Regions::full(size, total) } else { Regions::new(size, total) };
    if distrust.is_none() {
        trusted.iter().flat_map(|content| content.set()).for_each(|region| set.insert(region));
    }
    let events_cleared = match distrust {
        // As the kernel does with a stale one: no member lacks only what is set.
        Some(_) => array.events,
        None => trusted.iter().map(|content| content.events_cleared).max().unwrap_or(array.events),
    };
    Some(Bitmap { distrust, set, events_cleared, sweep_secs: newest.sweep_secs })
}

/// What the copies say that are as new as the superblocks, whatever the geometry is: for what they
/// tell of members that left. `None` if no copy is, or they are laid out differently.
pub(super) fn bits_of_array(
    members: &[MemberFacts],
    verdicts: &[Verdict],
    array: &SuperblockFacts,
) -> Option<BitmapBits> {
    let whole = members.iter().zip(verdicts).filter(|(_, verdict)| matches!(verdict, Verdict::Fresh { .. }));
    let mut copies = whole
        .filter_map(|(member, _)| bits_on(member))
        .filter(|content| content.events >= array.events && !content.stale && content.region_sectors > 0);
    let first = copies.next()?;
    let mut regions = Regions::new(Sector(first.region_sectors), Sector(first.covered_sectors));
    let mut events_cleared = 0;
    for content in [first].into_iter().chain(copies) {
        if !content.is_laid_out_as(&regions) {
            return None;
        }
        content.set().for_each(|region| regions.insert(region));
        events_cleared = events_cleared.max(content.events_cleared);
    }
    Some(BitmapBits { regions, events_cleared, stale: false })
}

/// A member's copy of a bitmap with one bit for each region.
pub(super) fn bits_on(member: &MemberFacts) -> Option<&BitmapContent> {
    let has_bits = matches!(member.bitmap, BitmapFacts::Version(3 | 4));
    member.bitmap_content.as_ref().filter(|_| has_bits)
}

/// Where an array with a lockless bitmap (version 6) need not agree, whatever its superblocks say:
/// Linux syncs what was never written, or was being written in a crash, when it is used. `None` for
/// an array without one.
pub(super) fn lockless(
    members: &[MemberFacts],
    verdicts: &[Verdict],
    geometry: &Geometry,
) -> Option<Regions> {
    if !has_lockless(members, verdicts) {
        return None;
    }
    let used = || members.iter().zip(verdicts).filter(|(_, verdict)| verdict.slot().is_some());
    let total = geometry.sync_sectors();
    let newest = used().map(|(member, _)| member.superblock.events).max().unwrap_or(0);
    let trusted = used().filter(|(_, verdict)| matches!(verdict, Verdict::Fresh { .. }));
    let trusted = trusted.filter_map(|(member, _)| {
        let content = member.bitmap_content.as_ref().filter(|_| member.bitmap == BitmapFacts::Version(6))?;
        let is_right = content.events >= newest && !content.stale && content.covered_sectors >= total.0;
        is_right.then_some(content)
    });
    let copies: Vec<_> = trusted.collect();
    let Some(size) = copies.first().map(|content| content.region_sectors) else {
        return Some(Regions::full(Sector(total.0.max(1)), total));
    };
    if copies.iter().any(|content| content.region_sectors != size) {
        return Some(Regions::full(Sector(size), total));
    }
    let mut set = Regions::new(Sector(size), total);
    copies.iter().flat_map(|content| content.set()).for_each(|region| set.insert(region));
    Some(set)
}

/// Whether a member in use has a lockless bitmap.
pub(super) fn has_lockless(members: &[MemberFacts], verdicts: &[Verdict]) -> bool {
    let mut used = members.iter().zip(verdicts).filter(|(_, verdict)| verdict.slot().is_some());
    used.any(|(member, _)| member.bitmap == BitmapFacts::Version(6))
}

/// What of it has to be synced before copies and parity are trusted.
pub(super) fn lockless_needs(
    state: SyncState,
    filled: &Filled,
    regions: Regions,
    geometry: &Geometry,
) -> Sync {
    if regions.is_empty() || nothing_is_redundant(geometry, filled) {
        return Sync { state, needs: Needs::Nothing, synced_below_sectors: CLEAN };
    }
    Sync { state, needs: Needs::Regions(regions), synced_below_sectors: 0 }
}

/// What has to be resynced, given what the superblocks say.
pub(super) fn needs(
    state: SyncState,
    filled: &Filled,
    bitmap: Option<&Bitmap>,
    geometry: Option<&Geometry>,
) -> Sync {
    let below = match state {
        SyncState::Clean => CLEAN,
        SyncState::Dirty => 0,
        SyncState::Resyncing { below_sectors } => below_sectors,
    };
    let nothing = Sync { state, needs: Needs::Nothing, synced_below_sectors: CLEAN };
    if below == CLEAN || geometry.is_some_and(|geometry| nothing_is_redundant(geometry, filled)) {
        return nothing;
    }
    let Some(bitmap) = bitmap.filter(|bitmap| bitmap.distrust.is_none()) else {
        let needs = if below == 0 { Needs::Everything } else { Needs::Above { below_sectors: below } };
        return Sync { state, needs, synced_below_sectors: below };
    };
    // While a member was absent bits were kept for it, also below the checkpoint: they are not told
    // apart.
    let below = if not_in_sync(&filled.slots).is_empty() { below } else { 0 };
    let mut regions = bitmap.set.clone();
    let agreed: Vec<_> =
        regions.iter().take_while(|&region| regions.range_of(region).end.0 <= below).collect();
    agreed.into_iter().for_each(|region| regions.remove(region));
    if regions.is_empty() {
        return nothing;
    }
    Sync { state, needs: Needs::Regions(regions), synced_below_sectors: below }
}

/// Whether so much is missing that nothing is left which could disagree: of mirrors but one copy;
/// all of the parity.
fn nothing_is_redundant(geometry: &Geometry, filled: &Filled) -> bool {
    let missing: Vec<_> = not_in_sync(&filled.slots);
    let absent = |&slot: &u16| filled.slots[usize::from(slot)] == Slot::Missing;
    if missing.is_empty() || !missing.iter().all(absent) || filled.replacements.iter().any(Option::is_some) {
        return false;
    }
    match geometry.kind() {
        LevelKind::Striped => true,
        LevelKind::Mirrored => missing.len() + 1 == filled.slots.len(),
        LevelKind::Parity => missing.len() == geometry.redundancy() && holds_only_parity(geometry, &missing),
    }
}

/// Whether these slots hold parity in every stripe, as with RAID 4 and the layouts of RAID 5 and 6
/// that do not rotate.
fn holds_only_parity(geometry: &Geometry, slots: &[u16]) -> bool {
    // Every layout repeats after as many stripes as there are slots.
    let stripes = geometry.stripes().min(geometry.raid_disks() as u64);
    (0..stripes).all(|stripe| {
        let map = geometry.stripe(StripeNo(stripe));
        slots.iter().all(|&slot| map.p() == MemberIx(slot) || map.q() == Some(MemberIx(slot)))
    })
}

/// Whether partial parity logs are to be replayed before anything else: RAID 5, dirty.
pub(super) fn replays_log(state: SyncState, array: &SuperblockFacts) -> bool {
    array.level == 5
        && state == SyncState::Dirty
        && array.features.intersects(Features::PPL | Features::MULTIPLE_PPLS)
}

/// Refuses parity that cannot be trusted where data would be computed from it. True if the operator
/// trusts it all the same.
pub(super) fn check_dirty_degraded(
    members: &[MemberFacts],
    slots: &[Slot],
    sync: &Sync,
    array: &SuperblockFacts,
    geometry: Option<&Geometry>,
    reasons: &mut Reasons,
) -> bool {
    let missing = not_in_sync(slots);
    let Some(geometry) = geometry.filter(|geometry| geometry.kind() == LevelKind::Parity) else {
        return false;
    };
    if missing.is_empty() || sync.needs == Needs::Nothing || holds_only_parity(geometry, &missing) {
        return false;
    }
    let replays = replays_log(sync.state, array);
    if replays && logs_tell_all(members, slots) {
        // Whether they can be followed shows when they are. An operator that vouches for parity
        // does so whatever comes of that.
        return reasons.policy.forced.has(Check::DirtyDegraded);
    }
    let regions = match &sync.needs {
        Needs::Regions(regions) => Some((regions.len(), regions.count())),
        _ => None,
    };
    reasons.refuse(Reason::DirtyDegraded { missing, ppl: replays, regions })
}

/// Whether every member's log can be read, and one says that writes were logged: it is above
/// generation 0, at which logs are empty whatever parity is (see [`crate::md::ppl`]). It need not
/// have entries. All that was in flight may have been in stripes whose parity, and with it the log,
/// was on the member that is missing; there all data is on the others.
fn logs_tell_all(members: &[MemberFacts], slots: &[Slot]) -> bool {
    let logged =
        slots.iter().filter(|slot| matches!(slot, Slot::InSync { .. })).filter_map(|slot| slot.member());
    let generations = logged.map(|member| match members[member].ppl?.newest {
        PplNewest::Header { generation, .. } => Some(generation),
        PplNewest::Missing | PplNewest::Unreadable => None,
    });
    generations.collect::<Option<Vec<_>>>().is_some_and(|all| all.iter().any(|generation| *generation > 0))
}

/// Members that the array went on without and whose slot is empty, those with the most events
/// first. Such a member lacks only what the bitmap has bits for if it is as new as the bits' last
/// clearing, was whole when it left, knew every member that is in sync now, and its own bits say
/// the same: one that did not was in a run of the array that these members were not in (see
/// [`crate::md::lineage`]). Metadata 0.90 does not tell members from others that were in their
/// slots, so there it may lack anything.
pub(super) fn re_addable(
    members: &[MemberFacts],
    verdicts: &[Verdict],
    slots: &[Slot],
    bitmap: Option<&Bitmap>,
    array: &SuperblockFacts,
) -> Vec<ReAddCandidate> {
    let seated = |(at, slot): (u16, &Slot)| match slot {
        Slot::InSync { member } => Some(SeatedMember::new(&members[*member].superblock, at)),
        _ => None,
    };
    let in_sync: Vec<_> = (0..).zip(slots).filter_map(seated).collect();
    let trusted = bitmap.filter(|bitmap| bitmap.distrust.is_none());
    let bits = trusted.map(BitmapBits::from);
    let returning = (0..members.len()).filter_map(|member| {
        let own = &members[member].superblock;
        if !matches!(verdicts[member], Verdict::Stale { .. } | Verdict::Faulty { .. } | Verdict::Spare) {
            return None;
        }
        let DeviceRole::Active(slot) = own.own_role() else { return None };
        if slots.get(usize::from(slot)) != Some(&Slot::Missing) || own.has(Features::REPLACEMENT) {
            return None;
        }
        // Of another time, its count of events tells nothing about what it lacks.
        let is_copy = matches!(verdicts[member], Verdict::Stale { events_behind: 0, .. });
        let by_regions = !is_copy
            && trusted.is_some_and(|bitmap| own.events >= bitmap.events_cleared)
            && own.recovery_offset.is_none()
            // Bits say what was written, not what was moved when the array got more slots.
            && own.raid_disks == array.raid_disks
            && knows_all(own, own_bits(own, bits_on(&members[member]), bits.as_ref()), &in_sync, array.utime_secs);
        Some(ReAddCandidate {
            member,
            slot,
            recovery: if by_regions { MemberRecovery::Regions } else { MemberRecovery::Full },
            events_behind: array.events.saturating_sub(own.events),
            failed: array.role_of(own.dev_number) == DeviceRole::Faulty,
            apart: false,
        })
    });
    let mut returning: Vec<_> = returning.collect();
    returning.sort_by_key(|re_add| {
        (re_add.slot, Reverse(members[re_add.member].superblock.events), re_add.member)
    });
    returning
}
