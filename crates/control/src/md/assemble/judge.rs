//! What each member is: by itself, beside the freshest one, and against the others.

use std::cmp::Reverse;

use wattle_engine::geometry::Level;

use super::reasons::Reasons;
use super::sync::{bits_of_array, bits_on};
use crate::md::facts::{DeviceRole, MemberFacts, SuperblockFacts, Version};
use crate::md::lineage::{SeatedMember, Standing, numbers_tell, own_bits, standing, went_apart};
use crate::md::reason::Reason;
use crate::md::verdict::Verdict;

/// The member whose superblock describes the array. Of equal events, which should say the same, the
/// one written last; then one that has a slot; then one that is whole; then the one that knows
/// fewer working members went on without the others; then the order given. Only spares and failed
/// members are left to describe an array that has nothing else.
pub(super) fn freshest(members: &[MemberFacts]) -> Option<usize> {
    let rank = |ix: &usize| {
        let superblock = &members[*ix].superblock;
        let has_slot = matches!(superblock.own_role(), DeviceRole::Active(_));
        let in_use = has_slot || superblock.own_role() == DeviceRole::Journal;
        let working = superblock.roles.iter().filter(|role| matches!(role, DeviceRole::Active(_))).count();
        let whole = superblock.recovery_offset.is_none();
        let written = (superblock.events, superblock.utime_secs);
        (in_use, written, has_slot, whole, Reverse(working), Reverse(*ix))
    };
    (0..members.len()).max_by_key(rank)
}

/// What a member is by itself and beside the freshest one. Slots with two claimants are settled
/// later.
pub(super) fn judge(member: &MemberFacts, fresh: &MemberFacts) -> Verdict {
    let (own, array) = (&member.superblock, &fresh.superblock);
    if let Some((field, expected, found)) = difference(own, array) {
        return Verdict::Foreign { field, expected, found };
    }
    let end = own.data_offset_sectors.saturating_add(own.data_size_sectors);
    if end > member.size_sectors {
        return Verdict::Truncated { expected_sectors: end, found_sectors: member.size_sectors };
    }
    if array.size_sectors > own.data_size_sectors && own.own_role().slot().is_some() {
        let (expected, found) = (array.size_sectors.cast_signed(), own.data_size_sectors.cast_signed());
        return Verdict::Foreign { field: "data_size", expected, found };
    }
    let behind = array.events.saturating_sub(own.events);
    // Also at equal events: an update that its writer gave up for failed may have reached this one,
    // and the array went on from the update before, without it.
    let role = if behind <= 1 { array.role_of(own.dev_number) } else { own.own_role() };
    let stale = |slot| Verdict::Stale { slot, events_behind: behind, utime_secs: own.utime_secs };
    match (own.own_role(), role) {
        (_, DeviceRole::Faulty | DeviceRole::Unknown(_)) => {
            Verdict::Faulty { according_to: fresh.name.clone() }
        }
        // It was whole in a slot, and the freshest table has nothing of it: the array let it go
        // just now, or was run without it. What it holds is not a spare's to write over.
        (DeviceRole::Active(slot), DeviceRole::Spare)
            if behind <= 1 && is_whole(own) && numbers_tell(own) =>
        {
            stale(Some(slot))
        }
        (_, DeviceRole::Spare) if behind <= 1 => Verdict::Spare,
        // Spares need not be written when nothing about them changes, so they may lag.
        (DeviceRole::Spare, _) if behind > 1 => match array.role_of(own.dev_number) {
            DeviceRole::Active(slot) => stale(Some(slot)),
            _ => Verdict::Spare,
        },
        (DeviceRole::Active(slot), _) if behind > 1 => stale(Some(slot)),
        (_, _) if behind > 1 => stale(None),
        (DeviceRole::Active(slot), DeviceRole::Active(_)) if is_of_another_time(own, array) => {
            stale(Some(slot))
        }
        (_, DeviceRole::Journal) => Verdict::Journal,
        (_, DeviceRole::Active(slot)) if u32::from(slot) >= array.slot_count() => Verdict::Spare,
        // Its slot was given to it by the very update it missed: nothing has been rebuilt on it
        // yet.
        (DeviceRole::Spare, DeviceRole::Active(slot)) => Verdict::Rebuilding { slot, valid_below_sectors: 0 },
        (_, DeviceRole::Active(slot)) => match own.recovery_offset {
            Some(valid_below_sectors) => Verdict::Rebuilding { slot, valid_below_sectors },
            None => Verdict::Fresh { slot, one_behind: behind == 1 },
        },
        (_, DeviceRole::Spare) => Verdict::Spare,
    }
}

/// Whether nothing of a member's data is missing.
fn is_whole(own: &SuperblockFacts) -> bool {
    own.recovery_offset.is_none()
}

/// Whether a member has the count of events of another time: it is a copy of an earlier state. The
/// count goes back when an array turns clean, so that it comes again and again. All members in use
/// are written with one time, by Linux too; what was cut off by power is one event apart. Firmware
/// keeps its times otherwise.
fn is_of_another_time(own: &SuperblockFacts, array: &SuperblockFacts) -> bool {
    let is_in_use = matches!(array.own_role(), DeviceRole::Active(_));
    is_in_use && own.container.is_none() && own.events == array.events && own.utime_secs != array.utime_secs
}

/// The first thing in which a member describes another array: members belong together when these
/// agree.
fn difference(own: &SuperblockFacts, array: &SuperblockFacts) -> Option<(&'static str, i64, i64)> {
    // A reshape ended with the very update that this one missed, and its data lies elsewhere now.
    let moved = own.reshape.filter(|_| array.reshape.is_none()).and_then(|ended| ended.new_offset_sectors);
    let fields = [
        ("level", i64::from(array.level), i64::from(own.level)),
        ("new_offset", 0, i64::from(moved.unwrap_or(0))),
        ("layout", i64::from(array.layout), i64::from(own.layout)),
        ("chunksize", i64::from(array.chunk_sectors), i64::from(own.chunk_sectors)),
    ];
    fields.into_iter().find(|(_, expected, found)| expected != found)
}

/// Numbers that the geometry does not see.
pub(super) fn check_numbers(fresh: &MemberFacts, reasons: &mut Reasons) {
    let array = &fresh.superblock;
    let slots_max = if array.version == Version::V090 { 27 } else { array.roles.len() as u64 };
    let mut bad = |field, found, expected| {
        reasons.refuse(Reason::BadNumber { member: fresh.name.clone(), field, found, expected });
    };
    if Level::from_md(array.level).is_none() {
        reasons.refuse(Reason::UnsupportedLevel { level: array.level });
    } else if u64::from(array.slot_count()) > slots_max {
        bad("raid_disks", u64::from(array.raid_disks), "at most one slot for each role in the superblock");
    } else if array.raid_disks == 0 {
        bad("raid_disks", 0, "at least 1");
    } else if array.events > u64::MAX / 2 {
        bad("events", array.events, "a count that was reached by counting, below 2^63");
    } else if array.own_role().slot().is_some() && array.size_sectors > array.data_size_sectors {
        bad("size", array.size_sectors, "at most data_size");
    }
}

/// Members of one generation say the same of the array; if they do not, something else wrote one of
/// them.
pub(super) fn check_agreement(
    members: &[MemberFacts],
    verdicts: &[Verdict],
    fresh: &MemberFacts,
    reasons: &mut Reasons,
) {
    let array = &fresh.superblock;
    for (member, verdict) in members.iter().zip(verdicts) {
        let own = &member.superblock;
        if verdict.slot().is_none() || own.events != array.events {
            continue;
        }
        let fields = [
            ("raid_disks", u64::from(array.raid_disks), u64::from(own.raid_disks)),
            ("size", array.size_sectors, own.size_sectors),
        ];
        if let Some((field, expected, found)) =
            fields.into_iter().find(|(_, expected, found)| expected != found)
        {
            reasons.refuse(Reason::Ambiguous { field, expected, member: member.name.clone(), found });
        }
    }
}

/// Finds members that went on without the freshest one, as in an array that was run in two halves.
///
/// A whole member of the same count of events, or of one less, was with the freshest one when that
/// was last written, or left it with that very update: so it knows that one, whatever became of
/// itself. If it does not, that one was written without it; unless that one is being filled, so
/// cannot have gone on by itself: then the member missed the update that took that one in. Nor is
/// another device with the number of the freshest one known: no number is given again within one
/// event. An older member is evidence only if it knows *no* current member, or if its bits say so
/// (see [`crate::md::lineage`]).
pub(super) fn check_split_brain(
    members: &[MemberFacts],
    verdicts: &mut [Verdict],
    fresh: &MemberFacts,
    reasons: &mut Reasons,
) {
    let array = &fresh.superblock;
    let DeviceRole::Active(fresh_slot) = array.own_role() else { return };
    let freshest = SeatedMember::new(array, fresh_slot);
    let seated = |(member, verdict): (&MemberFacts, &Verdict)| {
        Some(SeatedMember::new(&member.superblock, verdict.slot()?))
    };
    let current: Vec<_> = members.iter().zip(&*verdicts).filter_map(seated).collect();
    let bits = bits_of_array(members, verdicts, array);
    for (member, verdict) in members.iter().zip(verdicts) {
        let own = &member.superblock;
        let knows_freshest = || match standing(own, &freshest) {
            Standing::Working => true,
            Standing::InItsPlace => !numbers_tell(own),
            Standing::Out | Standing::Unknown => false,
        };
        let separate = match verdict {
            Verdict::Fresh { .. } | Verdict::Rebuilding { .. } => is_whole(array) && !knows_freshest(),
            Verdict::Faulty { .. } | Verdict::Stale { slot: Some(_), .. } | Verdict::Spare => {
                let was_with_it = array.events.saturating_sub(own.events) <= 1 && numbers_tell(own);
                let bits = own_bits(own, bits_on(member), bits.as_ref());
                matches!(own.own_role(), DeviceRole::Active(_))
                    && (was_with_it && is_whole(own) && is_whole(array) && !knows_freshest()
                        || went_apart(own, bits, &current, array.utime_secs))
            }
            _ => false,
        };
        if separate {
            *verdict = Verdict::SplitBrain { freshest: fresh.name.clone() };
            reasons.refuse(Reason::SplitBrain { member: member.name.clone(), freshest: fresh.name.clone() });
        }
    }
}
