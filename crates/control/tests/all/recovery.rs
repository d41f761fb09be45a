//! What assembly makes of arrays that were not stopped cleanly, of members that were away, and of
//! those being made: one row for each way they can be found.

use wattle_control::assemble::{
    Access, Assembly, BitmapDistrust, Degraded, MemberRecovery, Needs, Policy, ReAddCandidate, Replacement,
    Slot, SyncState, Verdict, assemble,
};
use wattle_control::facts::{
    BitmapContent, BitmapFacts, CLEAN, DeviceRole, Features, MemberFacts, PplFacts, PplNewest,
    SuperblockFacts, Uuid, Version,
};
use wattle_control::reason::Reason;
use wattle_control::{Check, Code, Forced};

use crate::support::{EVENTS, array, bits_of, decide, each, rebuilding, refusals, with_bitmap, without};

fn dirty(level: i32, n: u16) -> Vec<MemberFacts> {
    let mut members = array(level, n);
    each(&mut members, |superblock| superblock.resync_offset = 0);
    members
}

fn regions(assembly: &Assembly) -> Vec<u64> {
    match &assembly.needs {
        Needs::Regions(regions) => regions.iter().collect(),
        other => panic!("expected regions, found {other:?}"),
    }
}

fn bitmap_of(member: &mut MemberFacts) -> &mut BitmapContent {
    member.bitmap_content.as_mut().unwrap()
}

#[test]
fn without_a_bitmap_everything_above_the_checkpoint_is_resynced() {
    for level in [1, 4, 5, 6, 10] {
        for (offset, needs) in
            [(CLEAN, Needs::Nothing), (0, Needs::Everything), (4096, Needs::Above { below_sectors: 4096 })]
        {
            let mut members = array(level, 4);
            each(&mut members, |superblock| superblock.resync_offset = offset);
            let assembly = decide(&members);
            assert_eq!((&assembly.needs, assembly.synced_below_sectors), (&needs, offset), "level {level}");
            assert_eq!(assembly.access, Access::ReadWrite);
            assert!(assembly.bitmap.is_none() && !assembly.replay_log);
        }
    }
}

#[test]
fn with_a_bitmap_only_its_bits_are_resynced() {
    for level in [1, 4, 5, 6, 10] {
        let mut members = dirty(level, 4);
        with_bitmap(&mut members, EVENTS, &[3, 50]);
        let assembly = decide(&members);
        assert_eq!((regions(&assembly), assembly.synced_below_sectors), (vec![3, 50], 0), "level {level}");
        assert!(!assembly.synced() && assembly.unsynced_note().unwrap().contains("resyncs"));
        assert_eq!(assembly.access, Access::ReadWrite);
        let bitmap = assembly.bitmap.as_ref().unwrap();
        assert_eq!((bitmap.distrust, bitmap.events_cleared, bitmap.sweep_secs), (None, EVENTS, 5));
        assert_eq!(bitmap.set.size().0, 128);

        // Nothing was in flight: there is nothing to do.
        with_bitmap(&mut members, EVENTS, &[]);
        let assembly = decide(&members);
        assert_eq!((&assembly.needs, assembly.synced_below_sectors), (&Needs::Nothing, CLEAN));
        assert_eq!((assembly.state, assembly.unsynced_note()), (SyncState::Dirty, None));
    }
}

/// Bits below a checkpoint belong to what the resync has done already; those that it cuts through
/// do not.
#[test]
fn a_checkpoint_hides_the_bits_below_it_unless_somebody_was_away() {
    let mut members = array(6, 4);
    each(&mut members, |superblock| superblock.resync_offset = 300);
    with_bitmap(&mut members, EVENTS, &[0, 1, 2, 9]);
    let assembly = decide(&members);
    assert_eq!((regions(&assembly), assembly.synced_below_sectors), (vec![2, 9], 300));

    let forced = assemble(&without(members.clone(), &[3]), Forced::default()).unwrap();
    let refused = Access::Refused(vec![Reason::DirtyDegraded {
        missing: vec![3],
        ppl: false,
        regions: Some((4, 112)),
    }]);
    assert_eq!((regions(&forced), forced.access), (vec![0, 1, 2, 9], refused));
}

#[test]
fn the_bits_of_all_current_copies_count_together() {
    let mut members = dirty(1, 3);
    with_bitmap(&mut members, EVENTS, &[]);
    bitmap_of(&mut members[0]).bits = bits_of(&[1]);
    bitmap_of(&mut members[2]).bits = bits_of(&[7]);
    assert_eq!(regions(&decide(&members)), [1, 7]);
    // A copy that is behind, or that cannot be read, does not spoil the others.
    bitmap_of(&mut members[2]).events -= 1;
    assert_eq!(regions(&decide(&members)), [1]);
    members[1].bitmap = BitmapFacts::Unreadable;
    members[1].bitmap_content = None;
    assert_eq!(regions(&decide(&members)), [1]);
    // Bits behind the end, which fresh bitmaps have, are none.
    bitmap_of(&mut members[0]).bits = [bits_of(&[1, 111]), vec![0xff; 8]].concat();
    assert_eq!(regions(&decide(&members)), [1, 111]);
}

/// Hazard: a host that ran the array without keeping the bitmap leaves it as it was, with too few
/// bits.
#[test]
fn a_bitmap_that_was_not_kept_is_not_believed() {
    type Change = fn(&mut BitmapContent);
    let rows: [(Change, BitmapDistrust); 3] = [
        (|bitmap| bitmap.events -= 1, BitmapDistrust::Behind { events: EVENTS - 1, array_events: EVENTS }),
        (|bitmap| bitmap.stale = true, BitmapDistrust::SaysSo),
        (
            |bitmap| bitmap.region_sectors <<= u64::from(bitmap.bits == bits_of(&[3])),
            BitmapDistrust::Disagree,
        ),
    ];
    for (change, distrust) in rows {
        let mut members = dirty(5, 4);
        with_bitmap(&mut members, EVENTS - 5, &[3]);
        bitmap_of(&mut members[1]).bits = bits_of(&[4]);
        members.iter_mut().map(bitmap_of).for_each(change);
        members[2].superblock.events -= 4;
        let assembly = decide(&members);
        let bitmap = assembly.bitmap.as_ref().unwrap();
        assert_eq!(bitmap.distrust, Some(distrust));
        assert_eq!(bitmap.set.len(), bitmap.set.count(), "every bit counts as set");
        assert_eq!((&assembly.needs, assembly.stale_regions()), (&Needs::Everything, None));
        assert_eq!(assembly.re_addable[0].recovery, MemberRecovery::Full, "{distrust:?}");
    }
}

#[test]
fn bitmaps_that_a_writer_cannot_keep_cost_writing() {
    let with = |bitmap, content: bool, covered_sectors| {
        let mut members = array(1, 2);
        with_bitmap(&mut members, EVENTS, &[]);
        for member in &mut members {
            bitmap_of(member).covered_sectors = covered_sectors;
            member.bitmap = bitmap;
            member.bitmap_content = member.bitmap_content.take().filter(|_| content);
        }
        let assembly = decide(&members);
        match &assembly.access {
            Access::ReadWrite => None,
            Access::ReadOnly(reasons) => Some(reasons[0].code()),
            Access::Refused(_) => panic!("{:?}", assembly.access),
        }
    };
    assert_eq!(with(BitmapFacts::Version(4), true, 14336), None);
    assert_eq!(with(BitmapFacts::Version(3), true, 14400), None);
    assert_eq!(with(BitmapFacts::Version(4), true, 14335), Some(Code::ReadFailed), "it ends before the data");
    assert_eq!(with(BitmapFacts::Version(4), false, 14336), Some(Code::ReadFailed));
    assert_eq!(with(BitmapFacts::Unreadable, false, 14336), Some(Code::ReadFailed));
    for bitmap in [BitmapFacts::Version(5), BitmapFacts::Version(6), BitmapFacts::Invalid, BitmapFacts::None]
    {
        assert_eq!(with(bitmap, false, 14336), Some(Code::ForeignBitmap), "{bitmap:?}");
    }
}

/// Bits of a clean array say what a member lacks that is not there.
#[test]
fn a_clean_array_with_bits_set_needs_nothing() {
    for lost in [&[][..], &[1]] {
        let mut members = array(5, 4);
        with_bitmap(&mut members, 7, &[3]);
        let assembly = decide(&without(members, lost));
        assert_eq!((&assembly.needs, assembly.access.clone()), (&Needs::Nothing, Access::ReadWrite));
        assert_eq!(assembly.stale_regions().unwrap().iter().collect::<Vec<_>>(), [3]);
    }
}

#[test]
fn dirty_and_degraded_starts_where_the_bitmap_says_that_nothing_was_in_flight() {
    for level in [4, 5, 6] {
        for (set, refused) in [(&[][..], false), (&[3, 4], true)] {
            let mut members = dirty(level, 4);
            with_bitmap(&mut members, EVENTS, set);
            let members = without(members, &[0]);
            let assembly = decide(&members);
            if !refused {
                assert_eq!((&assembly.access, &assembly.needs), (&Access::ReadWrite, &Needs::Nothing));
                continue;
            }
            assert_eq!(refusals(&assembly), [Code::DirtyDegraded]);
            let problem = assembly.refusal().unwrap();
            assert!(problem.what.contains("2 of 112 regions"), "{problem}");
            let forced = assemble(&members, Forced::default().with(Check::DirtyDegraded)).unwrap();
            assert_eq!(
                (&forced.needs, forced.synced()),
                (&Needs::Nothing, true),
                "the operator vouches for it"
            );
        }
    }
}

/// Data is computed from parity only for slots that hold data.
#[test]
fn a_dirty_array_that_lacks_only_parity_starts() {
    // RAID 4 has its parity last; layouts 4 and 5 of RAID 5 first and last; layout 18 of RAID 6 has
    // Q last.
    let rows = [
        (4, 0, 3, Some(Needs::Nothing)),
        (4, 0, 1, None),
        (5, 4, 0, Some(Needs::Nothing)),
        (5, 5, 3, Some(Needs::Nothing)),
        (5, 5, 0, None),
        (5, 2, 3, None),
        (6, 18, 3, Some(Needs::Everything)),
        (6, 18, 0, None),
    ];
    for (level, layout, lost, expected) in rows {
        let mut members = dirty(level, 4);
        each(&mut members, |superblock| superblock.layout = layout);
        let assembly = decide(&without(members, &[lost]));
        match expected {
            Some(needs) => {
                assert_eq!((assembly.access, assembly.needs), (Access::ReadWrite, needs), "{level} {layout}");
            }
            None => assert_eq!(refusals(&assembly), [Code::DirtyDegraded], "{level} {layout} {lost}"),
        }
    }
}

#[test]
fn a_single_copy_has_nothing_to_disagree_with() {
    assert_eq!(decide(&without(dirty(1, 3), &[0, 2])).needs, Needs::Nothing);
    assert_eq!(decide(&without(dirty(1, 3), &[0])).needs, Needs::Everything);
    assert_eq!(decide(&without(dirty(10, 4), &[0])).needs, Needs::Everything);
    // A copy that is being made has parts that may disagree.
    let mut members = dirty(1, 2);
    members[1].superblock.features = Features::RECOVERY_OFFSET;
    members[1].superblock.recovery_offset = Some(64);
    assert_eq!(decide(&members).needs, Needs::Everything);
}

#[test]
fn degraded_arrays_are_refused_on_request() {
    let never = Policy { forced: Forced::default(), degraded: Degraded::Never };
    let refused = assemble(&without(array(5, 4), &[2]), never).unwrap();
    assert_eq!(refusals(&refused), [Code::Degraded]);
    let problem = refused.refusal().unwrap();
    assert_eq!((problem.exit_code(), problem.force), (3, None));
    assert!(problem.what.contains("slot 2") && problem.next.contains("--degraded=auto"), "{problem}");
    assert_eq!(assemble(&array(5, 4), never).unwrap().access, Access::ReadWrite);

    let mut members = array(1, 2);
    members[1].superblock.features = Features::RECOVERY_OFFSET;
    members[1].superblock.recovery_offset = Some(4096);
    assert_eq!(refusals(&assemble(&members, never).unwrap()), [Code::Degraded], "being rebuilt is not whole");
    let too_few = assemble(&without(array(5, 4), &[1, 2]), never).unwrap();
    assert_eq!(refusals(&too_few), [Code::NotEnoughMembers], "the worse of the two, alone");
}

fn logged(features: Features, newest: [PplNewest; 4]) -> Vec<MemberFacts> {
    let mut members = dirty(5, 4);
    each(&mut members, |superblock| superblock.features = features);
    for (member, newest) in members.iter_mut().zip(newest) {
        member.ppl = Some(PplFacts { start_sector: 16, len_sectors: 1024, newest });
    }
    members
}

#[test]
fn partial_parity_logs_are_replayed_and_stand_in_for_a_resync() {
    const EMPTY: PplNewest = PplNewest::Header { generation: 0, entries: 0 };
    const BEGUN: PplNewest = PplNewest::Header { generation: 1, entries: 0 };
    const FULL: PplNewest = PplNewest::Header { generation: 9, entries: 2 };
    for features in [Features::PPL, Features::MULTIPLE_PPLS] {
        let rows = [
            ([EMPTY, FULL, EMPTY, FULL], true),
            // Nothing says what was in flight: perhaps the array was never synchronised.
            ([EMPTY; 4], false),
            // What was in flight was logged on the member that is missing, or nothing was.
            ([FULL, BEGUN, BEGUN, BEGUN], true),
            ([FULL, EMPTY, EMPTY, EMPTY], false),
            ([FULL, FULL, PplNewest::Missing, FULL], false),
            ([FULL, FULL, PplNewest::Unreadable, FULL], false),
        ];
        for (newest, starts_degraded) in rows {
            let members = logged(features, newest);
            let whole = decide(&members);
            assert_eq!((&whole.access, &whole.needs), (&Access::ReadWrite, &Needs::Everything));
            assert!(whole.replay_log && whole.unsynced_note().unwrap().contains("logs, in memory"));
            let members = without(members, &[0]);
            let degraded = decide(&members);
            assert!(degraded.replay_log);
            // An operator that vouches for parity is not asked again when logs turn out not to be
            // what they look like.
            let forced = assemble(&members, Forced::default().with(Check::DirtyDegraded)).unwrap();
            assert_eq!((forced.access, forced.needs), (Access::ReadWrite, Needs::Nothing), "{newest:?}");
            if starts_degraded {
                assert_eq!(degraded.access, Access::ReadWrite, "{newest:?}");
                assert_eq!(degraded.needs, Needs::Everything, "{newest:?}");
            } else {
                assert_eq!(refusals(&degraded), [Code::DirtyDegraded], "{newest:?}");
                assert!(degraded.refusal().unwrap().why.contains("partial parity log"));
            }
        }
        // The log of a member that is not there, or still being built, tells of stripes whose
        // parity is gone anyway.
        let members = logged(features, [PplNewest::Missing, FULL, FULL, FULL]);
        assert_eq!(decide(&without(members, &[0])).access, Access::ReadWrite);
        // A checkpoint comes from a resync, about which the logs say nothing.
        let mut members = logged(features, [FULL; 4]);
        each(&mut members, |superblock| superblock.resync_offset = 128);
        assert!(!decide(&members).replay_log);
        assert_eq!(refusals(&decide(&without(members, &[0]))), [Code::DirtyDegraded]);
    }
}

#[test]
fn a_recovery_by_bitmap_goes_on_with_the_bits_that_are_set() {
    let by_bitmap = |distrusted: bool| {
        let mut members = array(5, 4);
        with_bitmap(&mut members, 7, &[3, 9]);
        let own = &mut members[2].superblock;
        own.features = own.features | Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP;
        own.recovery_offset = Some(256);
        // What the member's own copy says counts for nothing: it was away.
        bitmap_of(&mut members[2]).bits = bits_of(&[50]);
        if distrusted {
            members.iter_mut().for_each(|member| bitmap_of(member).events = 1);
        }
        decide(&members)
    };
    let assembly = by_bitmap(false);
    assert_eq!(assembly.slots[2], Slot::Rebuilding { member: 2, valid_below_sectors: 256, by_bitmap: true });
    assert_eq!(assembly.stale_regions().unwrap().iter().collect::<Vec<_>>(), [3, 9]);
    assert_eq!(assembly.degraded(), 1);
    assert_eq!(by_bitmap(true).slots[2], rebuilding(2, 256), "only what was rebuilt is known to be right");
}

/// Members 0 and 1 of slots 0 and 1, and a third one that is made to replace the second.
fn replacing(valid_below_sectors: Option<u64>) -> Vec<MemberFacts> {
    let mut members = array(1, 2);
    let mut copy = members[1].clone();
    copy.name = "copy".to_owned();
    copy.superblock.dev_number = 2;
    copy.superblock.recovery_offset = valid_below_sectors;
    copy.superblock.features = match valid_below_sectors {
        Some(_) => Features::REPLACEMENT | Features::RECOVERY_OFFSET,
        None => Features::REPLACEMENT,
    };
    members.push(copy);
    each(&mut members, |superblock| superblock.roles[2] = DeviceRole::Active(1));
    members
}

#[test]
fn replacements_are_beside_their_original_or_in_its_place() {
    for (recovery, valid_below_sectors) in [(Some(640), 640), (None, u64::MAX)] {
        let members = replacing(recovery);
        let both = decide(&members);
        assert_eq!(both.verdicts[2], Verdict::Replacement { slot: 1, valid_below_sectors });
        assert_eq!(both.replacements, [None, Some(Replacement { member: 2, valid_below_sectors })]);
        assert_eq!((both.slots[1], both.access.clone()), (Slot::InSync { member: 1 }, Access::ReadWrite));
        assert_eq!(both.degraded(), 0);

        let alone = decide(&without(members, &[1]));
        let expected = recovery.map_or(Slot::InSync { member: 1 }, |below| rebuilding(1, below));
        assert_eq!((alone.slots[1], &alone.replacements), (expected, &vec![None, None]));
        assert_eq!(
            (alone.access.clone(), alone.degraded()),
            (Access::ReadWrite, usize::from(recovery.is_some()))
        );
    }
    // The original is no longer current: the one that is whole is the member.
    let mut members = replacing(None);
    members[1].superblock.features = Features::RECOVERY_OFFSET;
    members[1].superblock.recovery_offset = Some(64);
    let swapped = decide(&members);
    assert_eq!((swapped.slots[1], swapped.replacements[1]), (Slot::InSync { member: 2 }, None));
    assert_eq!(swapped.verdicts[1], Verdict::Duplicate { slot: 1, other: "copy".to_owned() });

    let mut members = replacing(Some(0));
    members.push(MemberFacts { name: "other".to_owned(), ..members[2].clone() });
    assert_eq!(refusals(&decide(&members)), [Code::DuplicateRole], "two equally fresh replacements");
    // One whose list of bad sectors is not known is no replacement of anything.
    let mut members = replacing(None);
    members[2].superblock.features = Features::REPLACEMENT | Features::BAD_BLOCKS;
    members[2].bad_blocks = None;
    let unknown = decide(&members);
    assert_eq!((unknown.replacements[1], unknown.degraded()), (None, 0));
    assert_eq!(unknown.verdicts[2], Verdict::BadBlocks { slot: 1 });
}

/// Hazard: data in flight at a crash is on the member and not on its replacement, or the other way
/// round. A resync compares them; a log that is followed instead, or an order that vouches for
/// parity, does not, and what is read would change when the replacement takes over, without its
/// parity.
#[test]
fn replacements_are_copied_anew_where_no_resync_compares_them() {
    let replacing = |change: fn(&mut SuperblockFacts), features: Features| {
        let mut members = array(5, 4);
        let mut copy = members[1].clone();
        (copy.name, copy.superblock.dev_number) = ("copy".to_owned(), 4);
        copy.superblock.recovery_offset = Some(640);
        copy.superblock.features = Features::REPLACEMENT | Features::RECOVERY_OFFSET;
        members.push(copy);
        for member in &mut members {
            let newest = PplNewest::Header { generation: 9, entries: 1 };
            member.ppl = Some(PplFacts { start_sector: 16, len_sectors: 1024, newest });
        }
        each(&mut members, |superblock| {
            superblock.roles[4] = DeviceRole::Active(1);
            superblock.features |= features;
            change(superblock);
        });
        members
    };
    let dirty: fn(&mut SuperblockFacts) = |superblock| superblock.resync_offset = 0;
    let valid_below = |assembly: &Assembly| {
        let valid_below_sectors = assembly.replacements[1].unwrap().valid_below_sectors;
        assert_eq!(assembly.verdicts[4], Verdict::Replacement { slot: 1, valid_below_sectors });
        valid_below_sectors
    };
    for log in [Features::PPL, Features::MULTIPLE_PPLS] {
        assert_eq!(valid_below(&decide(&replacing(dirty, log))), 0);
        assert_eq!(valid_below(&decide(&replacing(|_| (), log))), 640, "it was stopped in good order");
    }
    let resynced = replacing(dirty, Features::default());
    assert_eq!(valid_below(&decide(&resynced)), 640);
    let forced = Forced::default().with(Check::DirtyDegraded);
    let vouched = assemble(&without(resynced, &[3]), forced).unwrap();
    assert_eq!(vouched.needs, Needs::Nothing);
    assert_eq!(vouched.replacements[1].unwrap().valid_below_sectors, 0);
}

/// A RAID 5 whose member 3 was left behind `behind` events ago; its bitmap was last cleared at
/// event 10.
fn left_behind(behind: u64, role: DeviceRole) -> Vec<MemberFacts> {
    let mut members = array(5, 4);
    with_bitmap(&mut members, 10, &[5]);
    members[3].superblock.events -= behind;
    let own = members[3].superblock.roles.clone();
    each(&mut members, |superblock| superblock.roles[3] = role);
    members[3].superblock.roles = own;
    members
}

#[test]
fn members_that_were_away_may_come_back() {
    let re_add = |recovery, events_behind, failed| ReAddCandidate {
        member: 3,
        slot: 3,
        recovery,
        events_behind,
        failed,
        apart: false,
    };
    let rows = [
        (2, DeviceRole::Faulty, MemberRecovery::Regions, true),
        (10, DeviceRole::Spare, MemberRecovery::Regions, false),
        (11, DeviceRole::Spare, MemberRecovery::Full, false),
        // One behind: counted out by the very update it missed.
        (1, DeviceRole::Faulty, MemberRecovery::Regions, true),
        (1, DeviceRole::Spare, MemberRecovery::Regions, false),
    ];
    for (behind, role, recovery, failed) in rows {
        let members = left_behind(behind, role);
        let assembly = decide(&members);
        assert_eq!(assembly.re_addable, [re_add(recovery, behind, failed)], "{behind} {role:?}");
        assert_eq!((assembly.missing(), &assembly.spares), (vec![3], &vec![]), "{behind} {role:?}");
        assert_eq!(assembly.access, Access::ReadWrite);
    }

    type Change = fn(&mut [MemberFacts]);
    let full: [Change; 7] = [
        // It was not whole when it left.
        |members| {
            members[3].superblock.features = Features::BITMAP | Features::RECOVERY_OFFSET;
            members[3].superblock.recovery_offset = Some(0);
        },
        // It was in a run of the array that a present member was not in.
        |members| members[3].superblock.roles[0] = DeviceRole::Faulty,
        // And then another device was in the slot of that one.
        |members| {
            members[3].superblock.roles[0] = DeviceRole::Spare;
            members[3].superblock.roles[9] = DeviceRole::Active(0);
        },
        // It was written after all of them.
        |members| members[3].superblock.utime_secs += 1,
        // Its metadata does not tell which devices were in the slots.
        |members| each(members, |superblock| superblock.version = Version::V090),
        // The array got a slot meanwhile, and its data moved.
        |members| members[3].superblock.raid_disks = 3,
        // The bitmap was not kept.
        |members| members.iter_mut().for_each(|member| bitmap_of(member).stale = true),
    ];
    for change in full {
        let mut members = left_behind(4, DeviceRole::Faulty);
        change(&mut members);
        assert_eq!(decide(&members).re_addable, [re_add(MemberRecovery::Full, 4, true)]);
    }
    // Its count of events has come again since: it tells nothing.
    let mut members = left_behind(0, DeviceRole::Active(3));
    members[3].superblock.utime_secs -= 1;
    assert_eq!(decide(&members).re_addable, [re_add(MemberRecovery::Full, 0, false)]);
    let mut members = left_behind(4, DeviceRole::Faulty);
    each(&mut members, |superblock| superblock.features = Features::default());
    assert_eq!(decide(&members).re_addable, [re_add(MemberRecovery::Full, 4, true)], "there is no bitmap");
}

#[test]
fn nobody_comes_back_into_a_slot_that_is_taken_or_from_a_run_of_its_own() {
    let mut members = left_behind(4, DeviceRole::Spare);
    let mut other = members[0].clone();
    other.name = "other".to_owned();
    other.superblock.dev_number = 9;
    members.push(other);
    each(&mut members, |superblock| superblock.roles[9] = DeviceRole::Active(3));
    let assembly = decide(&members);
    assert_eq!((assembly.slots[3], assembly.re_addable), (Slot::InSync { member: 4 }, vec![]));

    let mut members = left_behind(4, DeviceRole::Spare);
    (0..3).for_each(|ix| members[3].superblock.roles[ix] = DeviceRole::Faulty);
    let assembly = decide(&members);
    assert_eq!((refusals(&assembly), assembly.re_addable), (vec![Code::SplitBrain], vec![]));
    assert_eq!(decide(&array(5, 4)).re_addable, []);
}

/// Each half of an array may have got a device with the number and in the slot of one of the other
/// half: then the superblocks know each other, and only bits tell. They tell nothing where drives
/// lost what they had not written yet, or in a crash.
#[test]
fn bits_tell_a_half_that_went_on_from_a_member_that_just_left() {
    let bits = |member: &mut MemberFacts, events_cleared, set: &[u64]| {
        bitmap_of(member).events_cleared = events_cleared;
        bitmap_of(member).bits = bits_of(set);
    };
    let outcome = |behind, change: &dyn Fn(&mut MemberFacts)| {
        let mut members = left_behind(behind, DeviceRole::Spare);
        change(&mut members[3]);
        let assembly = decide(&members);
        match assembly.access {
            Access::Refused(_) => Err(refusals(&assembly)),
            _ => Ok(assembly.re_addable[0].recovery),
        }
    };
    let apart = || Err(vec![Code::SplitBrain]);
    assert_eq!(outcome(4, &|own| bits(own, 12, &[])), apart(), "it cleared what the array did not");
    assert_eq!(outcome(4, &|own| bits(own, 9, &[5])), apart(), "the array did so, and it was not there");
    assert_eq!(outcome(4, &|own| bits(own, 10, &[5, 6])), apart(), "it wrote what the array did not");
    assert_eq!(outcome(4, &|own| bits(own, 10, &[])), Ok(MemberRecovery::Regions), "it has missed that");

    // The generation in which it left is that of the last clearing, or Linux has taken one back.
    for behind in [10, 9] {
        for (events_cleared, set) in [(11, &[][..]), (4, &[5, 6, 7]), (10, &[5, 6])] {
            let recovery = outcome(behind, &|own| bits(own, events_cleared, set));
            assert_eq!(recovery, Ok(MemberRecovery::Regions), "{behind} {events_cleared} {set:?}");
        }
    }

    type Change = fn(&mut MemberFacts);
    let unclear: [Change; 6] = [
        // A crash, in which the bit came to this one only.
        |own| own.superblock.resync_offset = 0,
        // It was being filled, and mdadm had set every bit.
        |own| own.superblock.recovery_offset = Some(64),
        // Something ran it that did not keep the bitmap.
        |own| bitmap_of(own).events = own.superblock.events - 1,
        |own| bitmap_of(own).stale = true,
        // It has another one.
        |own| bitmap_of(own).region_sectors = 256,
        |own| own.bitmap_content = None,
    ];
    for (nth, change) in unclear.into_iter().enumerate() {
        let recovery = outcome(4, &|own| {
            bits(own, 10, &[5, 6]);
            change(own);
        });
        assert_eq!(recovery, Ok(MemberRecovery::Full), "{nth}");
    }
}

/// One event apart two devices have one number: no array gives one again so soon.
#[test]
fn another_device_with_the_number_of_the_freshest_is_of_another_half() {
    for behind in [0, 1] {
        let mut members = array(5, 4);
        let mut other = members[0].clone();
        other.name = "other".to_owned();
        other.superblock.device_uuid = Some(Uuid([0xdd; 16]));
        members.push(other);
        members[4].superblock.events -= behind;
        each(&mut members[1..4], |superblock| superblock.events -= 1);
        let codes = refusals(&decide(&members));
        assert!(codes.contains(&Code::SplitBrain), "{behind}: {codes:?}");
    }
}

/// Of two that were in the slot, the one that left later lacks less.
#[test]
fn the_one_with_the_most_events_comes_first() {
    let mut members = left_behind(9, DeviceRole::Faulty);
    let mut later = members[3].clone();
    later.name = "later".to_owned();
    later.superblock.dev_number = 8;
    later.superblock.roles[8] = DeviceRole::Active(3);
    later.superblock.events = EVENTS - 3;
    members.push(later);
    each(&mut members[..3], |superblock| superblock.roles[8] = DeviceRole::Faulty);
    let order: Vec<_> = decide(&members).re_addable.iter().map(|re_add| re_add.member).collect();
    assert_eq!(order, [4, 3]);
}
