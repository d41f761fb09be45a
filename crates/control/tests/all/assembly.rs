//! The assembly decision, one row for each way an array can be found: members described by hand,
//! verdicts and access expected.

use wattle_control::assemble::{Access, Assembly, Slot, SyncState, Verdict, assemble};
use wattle_control::facts::{
    BadBlockEntry, CLEAN, DeviceRole, Features, JournalEnd, JournalFacts, MemberFacts, SuperblockFacts, Uuid,
};
use wattle_control::reason::Reason;
use wattle_control::{Check, Code, Forced};

use crate::support::{EVENTS, array, decide, each, rebuilding, refusals, without};

fn words(assembly: &Assembly) -> Vec<&'static str> {
    assembly.verdicts.iter().map(Verdict::word).collect()
}

fn read_only(assembly: &Assembly) -> Vec<Code> {
    match &assembly.access {
        Access::ReadOnly(reasons) => reasons.iter().map(Reason::code).collect(),
        other => panic!("expected read-only access, found {other:?}"),
    }
}

#[test]
fn no_member_is_no_array() {
    assert!(assemble(&[], Forced::default()).is_none());
}

#[test]
fn healthy_arrays_of_every_level_in_any_order() {
    for (level, n) in [(-1, 2), (0, 4), (1, 2), (1, 3), (4, 3), (5, 4), (6, 6), (10, 3), (10, 4)] {
        let mut members = array(level, n);
        members.reverse();
        let assembly = decide(&members);
        assert_eq!(assembly.access, Access::ReadWrite, "level {level}");
        assert_eq!(assembly.degraded(), 0);
        assert_eq!(assembly.state, SyncState::Clean);
        assert_eq!(assembly.synced_below_sectors, CLEAN);
        assert_eq!(assembly.name(), "data");
        for (slot, place) in assembly.slots.iter().enumerate() {
            assert_eq!(*place, Slot::InSync { member: usize::from(n) - 1 - slot });
        }
    }
}

/// Every combination of missing members: readable exactly when no more are missing than the level
/// covers.
#[test]
fn missing_members_up_to_redundancy() {
    for (level, n, covers) in [(0, 3, 0), (-1, 3, 0), (1, 3, 2), (4, 4, 1), (5, 4, 1), (6, 5, 2)] {
        for lost in 1u32..(1 << n) - 1 {
            let slots: Vec<usize> = (0..usize::from(n)).filter(|slot| lost >> slot & 1 == 1).collect();
            let assembly = decide(&without(array(level, n), &slots));
            assert_eq!(assembly.missing().len(), slots.len());
            if slots.len() <= covers {
                assert_eq!(assembly.access, Access::ReadWrite, "level {level} without {slots:?}");
            } else {
                assert_eq!(refusals(&assembly), [Code::NotEnoughMembers], "level {level} without {slots:?}");
                let problem = assembly.refusal().unwrap();
                assert_eq!(problem.exit_code(), 1);
                assert!(problem.what.contains(&slots[0].to_string()), "{}", problem.what);
            }
        }
    }
}

#[test]
fn raid10_survives_what_its_copies_survive() {
    assert_eq!(decide(&without(array(10, 4), &[0, 2])).access, Access::ReadWrite);
    assert_eq!(refusals(&decide(&without(array(10, 4), &[0, 1]))), [Code::NotEnoughMembers]);
}

#[test]
fn one_event_behind_is_current_if_the_freshest_says_so() {
    let mut members = array(5, 4);
    members[1].superblock.events -= 1;
    let assembly = decide(&members);
    assert_eq!(assembly.verdicts[1], Verdict::Fresh { slot: 1, one_behind: true });
    assert_eq!(assembly.access, Access::ReadWrite);
}

/// Hazard: the update that failed a member is the one it missed, so it is exactly one event behind
/// and thinks it is fine.
#[test]
fn one_event_behind_is_not_current_if_that_event_failed_it() {
    let mut members = array(5, 4);
    each(&mut members, |superblock| superblock.roles[2] = DeviceRole::Faulty);
    members[2].superblock.events -= 1;
    members[2].superblock.roles[2] = DeviceRole::Active(2);
    let assembly = decide(&members);
    assert_eq!(assembly.verdicts[2], Verdict::Faulty { according_to: "m0".to_owned() });
    assert_eq!(assembly.missing(), [2]);
    assert_eq!(assembly.access, Access::ReadWrite);
}

#[test]
fn two_events_behind_is_stale() {
    let mut members = array(5, 4);
    members[3].superblock.events -= 2;
    members[3].superblock.utime_secs = 1500;
    let assembly = decide(&members);
    assert_eq!(assembly.verdicts[3], Verdict::Stale { slot: Some(3), events_behind: 2, utime_secs: 1500 });
    assert_eq!(words(&assembly), ["fresh", "fresh", "fresh", "stale"]);
    assert_eq!(assembly.degraded(), 1);
    assert_eq!(assembly.access, Access::ReadWrite);
}

/// The count of events goes back when an array turns clean, so that images of a member from two
/// days have one count.
#[test]
fn a_copy_of_an_earlier_state_is_not_used_although_its_count_has_come_again() {
    let earlier = |members: &mut [MemberFacts], which: &[usize]| {
        which.iter().for_each(|&ix| members[ix].superblock.utime_secs = 1500);
    };
    for level in [1, 5] {
        let mut members = array(level, 3);
        earlier(&mut members, &[1]);
        let assembly = decide(&members);
        assert_eq!(
            assembly.verdicts[1],
            Verdict::Stale { slot: Some(1), events_behind: 0, utime_secs: 1500 },
            "level {level}"
        );
        assert!(
            assembly.verdicts[1]
                .explanation()
                .unwrap()
                .contains("an earlier state of the member in slot 1, last written 1970")
        );
        assert_eq!((assembly.missing(), assembly.access), (vec![1], Access::ReadWrite));
    }
    // Two of three are of the same earlier time; and nothing is without redundancy.
    for level in [0, 5] {
        let mut members = array(level, 3);
        earlier(&mut members, &[0, 1]);
        assert_eq!(refusals(&decide(&members)), [Code::NotEnoughMembers], "level {level}");
    }
    // The one that was written last describes the array, although it knows one member more: a
    // failed one was replaced since.
    let mut members = array(1, 3);
    earlier(&mut members, &[0]);
    members[0].superblock.roles[2] = DeviceRole::Faulty;
    assert_eq!(words(&decide(&members)), ["stale", "fresh", "fresh"]);
    // The journal says nothing about it, whatever it is given as.
    let mut members = array(5, 4);
    each(&mut members, |superblock| superblock.roles[3] = DeviceRole::Journal);
    each(&mut members, |superblock| superblock.raid_disks = 3);
    earlier(&mut members, &[1]);
    members.rotate_right(1);
    assert_eq!(words(&decide(&members)), ["journal", "fresh", "stale", "fresh"]);
    // What power cut off is one event apart, and its time says nothing.
    let mut members = array(5, 3);
    earlier(&mut members, &[1]);
    members[1].superblock.events -= 1;
    assert_eq!(decide(&members).verdicts[1], Verdict::Fresh { slot: 1, one_behind: true });
}

#[test]
fn too_many_stale_members_are_not_used_to_fill_up() {
    let mut members = array(5, 4);
    members[2].superblock.events -= 5;
    members[3].superblock.events -= 9;
    assert_eq!(refusals(&decide(&members)), [Code::NotEnoughMembers]);
}

#[test]
fn spares_wait_however_old_they_are() {
    let mut members = array(5, 3);
    let mut spare = members[0].clone();
    spare.superblock.dev_number = 5;
    spare.superblock.events = 2;
    members.push(spare);
    let assembly = decide(&members);
    assert_eq!(assembly.verdicts[3], Verdict::Spare);
    assert_eq!(assembly.spares, [3]);
    assert_eq!(assembly.access, Access::ReadWrite);
}

/// A spare that was given a slot by the update it missed has nothing of the data yet. Taking it as
/// in sync would serve garbage.
#[test]
fn a_spare_that_missed_its_own_promotion_is_empty() {
    let mut members = array(5, 3);
    each(&mut members, |superblock| superblock.roles[4] = DeviceRole::Active(2));
    members[2].superblock.dev_number = 4;
    members[2].superblock.roles[4] = DeviceRole::Spare;
    members[2].superblock.events -= 1;
    each(&mut members, |superblock| superblock.roles[2] = DeviceRole::Spare);
    let assembly = decide(&members);
    assert_eq!(assembly.verdicts[2], Verdict::Rebuilding { slot: 2, valid_below_sectors: 0 });
    assert_eq!(assembly.slots[2], rebuilding(2, 0));
}

#[test]
fn a_member_that_is_being_rebuilt_counts_as_degraded() {
    let mut members = array(5, 4);
    members[3].superblock.features = Features::RECOVERY_OFFSET;
    members[3].superblock.recovery_offset = Some(4096);
    let assembly = decide(&members);
    assert_eq!(assembly.slots[3], rebuilding(3, 4096));
    assert_eq!(assembly.degraded(), 1);
    assert_eq!(assembly.access, Access::ReadWrite);
    let rest = decide(&without(members, &[0]));
    assert_eq!(refusals(&rest), [Code::NotEnoughMembers], "it cannot stand in for another missing member");
}

#[test]
fn foreign_members_are_told_by_the_field_that_differs() {
    for (field, change) in [
        ("level", (|superblock: &mut SuperblockFacts| superblock.level = 6) as fn(&mut SuperblockFacts)),
        ("layout", |superblock| superblock.layout = 0),
        ("chunksize", |superblock| superblock.chunk_sectors = 64),
        ("data_size", |superblock| superblock.data_size_sectors = 14335),
    ] {
        let mut members = array(5, 4);
        change(&mut members[2].superblock);
        let assembly = decide(&members);
        assert!(
            matches!(assembly.verdicts[2], Verdict::Foreign { field: found, .. } if found == field),
            "{field}"
        );
        assert_eq!(assembly.missing(), [2]);
    }
}

#[test]
fn a_shortened_member_is_not_used() {
    let mut members = array(5, 4);
    members[1].size_sectors = 16383;
    let assembly = decide(&members);
    assert_eq!(assembly.verdicts[1], Verdict::Truncated { expected_sectors: 16384, found_sectors: 16383 });
    assert_eq!(assembly.missing(), [1]);
}

/// An image beside the disk it was taken from: it cannot be told which one went on.
#[test]
fn two_equally_fresh_members_of_one_slot_are_refused() {
    let mut members = array(5, 4);
    members.push(MemberFacts { name: "copy".to_owned(), ..members[1].clone() });
    let assembly = decide(&members);
    assert_eq!(refusals(&assembly), [Code::DuplicateRole]);
    let problem = assembly.refusal().unwrap();
    assert!(problem.what.contains("m1") && problem.what.contains("copy") && problem.exit_code() == 3);
}

#[test]
fn of_two_members_of_one_slot_the_fresher_one_is_used() {
    let mut members = array(5, 4);
    members.push(MemberFacts { name: "copy".to_owned(), ..members[1].clone() });
    members[1].superblock.events -= 1;
    let assembly = decide(&members);
    assert_eq!(assembly.slots[1], Slot::InSync { member: 4 });
    assert_eq!(assembly.verdicts[1], Verdict::Duplicate { slot: 1, other: "copy".to_owned() });
    assert_eq!(assembly.access, Access::ReadWrite);
}

/// Both halves of a mirror were run alone. The one with fewer events looks stale; its changes would
/// be lost silently.
#[test]
fn a_mirror_run_in_two_halves_is_refused() {
    for events_of_the_other in [EVENTS, EVENTS - 1, EVENTS - 7] {
        let mut members = array(1, 2);
        members[0].superblock.roles[1] = DeviceRole::Spare;
        members[1].superblock.roles[0] = DeviceRole::Faulty;
        members[1].superblock.events = events_of_the_other;
        members[1].superblock.utime_secs = 1900;
        let assembly = decide(&members);
        assert_eq!(refusals(&assembly), [Code::SplitBrain], "{events_of_the_other}");
        assert_eq!(assembly.refusal().unwrap().force, Some(Check::SplitBrain));

        let forced = assemble(&members, Forced::default().with(Check::SplitBrain)).unwrap();
        assert_eq!(forced.access, Access::ReadWrite);
        assert_eq!(forced.slots, [Slot::InSync { member: 0 }, Slot::Missing]);
        assert_eq!(forced.overridden.len(), 1);
    }
}

/// The halves of an array got devices for the members of the other half: each then has a member in
/// every slot, also in that of a member of the other half.
#[test]
fn halves_that_went_on_with_other_devices_are_refused() {
    let given = |level: i32, n: u16, halves: &[&[(u32, u16)]], events: &[u64]| {
        let template = array(level, n).remove(0);
        let half = |(half, &events): (&&[(u32, u16)], &u64)| {
            let mut roles = vec![DeviceRole::Spare; 128];
            half.iter().for_each(|&(number, slot)| roles[number as usize] = DeviceRole::Active(slot));
            let member = |&(number, _): &(u32, u16)| {
                let mut member = template.clone();
                member.name = format!("{events}-{number}");
                let own = &mut member.superblock;
                own.dev_number = number;
                // Each half gives the same numbers to what joins.
                own.device_uuid =
                    Some(Uuid([number as u8 + 1 + if number < 4 { 0 } else { events as u8 }; 16]));
                (own.events, own.roles, own.utime_secs) = (events, roles.clone(), 2000 + events);
                member
            };
            half.iter().map(member).collect::<Vec<_>>()
        };
        halves.iter().zip(events).flat_map(half).collect::<Vec<_>>()
    };
    let split = |members: &[MemberFacts]| {
        let assembly = decide(members);
        let code = |reason: &Reason| matches!(reason, Reason::SplitBrain { .. });
        matches!(&assembly.access, Access::Refused(reasons) if reasons.iter().any(code))
    };
    let (a, b): (&[_], &[_]) = (&[(0, 0)], &[(1, 1)]);
    let (a_and, b_and): (&[_], &[_]) = (&[(0, 0), (4, 1)], &[(1, 1), (4, 0)]);
    for events in [[20, 8], [8, 20], [20, 19], [20, 20]] {
        for halves in [[a, b], [a, b_and], [a_and, b], [a_and, b_and]] {
            assert!(split(&given(1, 2, &halves, &events)), "{halves:?} {events:?}");
        }
        let (ab, cd): (&[_], &[_]) = (&[(0, 0), (1, 1)], &[(2, 2), (3, 3), (4, 0), (5, 1)]);
        assert!(split(&given(6, 4, &[ab, cd], &events)), "{events:?}");
    }
    // Without its new partner it is one all the same.
    let mut alone = given(1, 2, &[a, b_and], &[20, 8]);
    alone.pop();
    assert!(split(&alone));

    // The same where the members that each half began with had joined, so that the other half never
    // says of them that they are out: with as many events, or one less, they would be known.
    let (c, d): (&[_], &[_]) = (&[(4, 0)], &[(5, 1)]);
    let (c_and, d_and): (&[_], &[_]) = (&[(4, 0), (6, 1)], &[(5, 1), (6, 0)]);
    for events in [[20, 20], [20, 19], [19, 20]] {
        for halves in [[c, d], [c, d_and], [c_and, d], [c_and, d_and]] {
            let members = given(1, 2, &halves, &events);
            assert!(split(&members), "{halves:?} {events:?}");
            let forced = assemble(&members, Forced::default().with(Check::SplitBrain)).unwrap();
            assert_eq!(forced.spares, [0_usize; 0], "{halves:?} {events:?}: what they hold is no spare's");
        }
    }

    // All members were replaced one by one: an old one is just stale.
    let (old, new): (&[_], &[_]) = (&[(0, 0), (1, 1)], &[(4, 0), (5, 1)]);
    let assembly = decide(&given(1, 2, &[new, old], &[20, 8]));
    assert_eq!(
        (words(&assembly), assembly.access),
        (vec!["fresh", "fresh", "stale", "stale"], Access::ReadWrite)
    );
    let mut members = given(1, 2, &[&[(0, 0), (4, 1)], old], &[20, 8]);
    let (left, new) = (members.remove(3), members.remove(1));
    assert_eq!(decide(&[left, new]).access, Access::ReadWrite, "it left before the new one came");
    // An earlier state of the only member that is left.
    let mut copy = given(1, 2, &[&[(1, 1)], &[(1, 1)]], &[20, 8]);
    assert_eq!(decide(&copy).access, Access::ReadWrite);
    copy[1].superblock.device_uuid = Some(Uuid([9; 16]));
    assert!(split(&copy), "another device with its number went on by itself");
}

/// The update before the array went on without a member reached that one, although it failed: as
/// many events, and it knows nothing.
#[test]
fn a_member_is_out_that_an_equally_fresh_one_went_on_without() {
    let written = |utime_secs| {
        let mut members = array(1, 2);
        members[1].superblock.roles[0] = DeviceRole::Faulty;
        members[0].superblock.utime_secs = 2000;
        members[1].superblock.utime_secs = utime_secs;
        decide(&members)
    };
    for utime_secs in [2000, 2100] {
        let assembly = written(utime_secs);
        assert_eq!(words(&assembly), ["faulty", "fresh"], "{utime_secs}");
        assert_eq!(assembly.slots, [Slot::Missing, Slot::InSync { member: 1 }]);
    }
    // The clock was set back in between, or they are of two days: which of them is the array is not
    // guessed.
    assert_eq!(refusals(&written(1900)), [Code::SplitBrain]);
}

/// A crash while a member was taken in: some know it, and others do not yet.
#[test]
fn a_member_that_is_being_filled_splits_nothing() {
    for behind in [&[3][..], &[1, 2, 3]] {
        let mut members = array(5, 4);
        members[0].superblock.recovery_offset = Some(0);
        for &member in behind {
            members[member].superblock.events -= 1;
            members[member].superblock.roles[0] = DeviceRole::Spare;
        }
        let assembly = decide(&members);
        assert_eq!(assembly.access, Access::ReadWrite, "{behind:?}");
        assert_eq!(assembly.slots[0], rebuilding(0, 0));
        assert_eq!(assembly.missing(), [0_u16; 0]);
    }
}

/// It was let go of by the update that it missed: it comes back as what it is, and is no spare.
#[test]
fn a_member_that_just_left_is_not_taken_for_a_spare() {
    let mut members = array(1, 3);
    each(&mut members, |superblock| superblock.roles[2] = DeviceRole::Spare);
    members[2].superblock.events -= 1;
    members[2].superblock.roles[2] = DeviceRole::Active(2);
    let assembly = decide(&members);
    assert_eq!((words(&assembly), &assembly.spares), (vec!["fresh", "fresh", "stale"], &vec![]));
    // Where it was being filled it holds nothing of its own.
    members[2].superblock.recovery_offset = Some(0);
    assert_eq!(words(&decide(&members)), ["fresh", "fresh", "spare"]);
}

/// A member that failed and was left behind knows the others as they were: that is no split.
#[test]
fn a_member_left_behind_is_no_split_brain() {
    let mut members = array(1, 3);
    each(&mut members, |superblock| superblock.roles[2] = DeviceRole::Faulty);
    members[2].superblock.events -= 4;
    members[2].superblock.roles[2] = DeviceRole::Active(2);
    // When it left, another slot was empty, which has been rebuilt since.
    members[2].superblock.roles[0] = DeviceRole::Faulty;
    let assembly = decide(&members);
    assert_eq!(words(&assembly), ["fresh", "fresh", "stale"]);
    assert_eq!(assembly.access, Access::ReadWrite);
}

#[test]
fn dirty_arrays_are_served_and_not_trusted() {
    for (offset, state) in [(0, SyncState::Dirty), (4096, SyncState::Resyncing { below_sectors: 4096 })] {
        let mut members = array(5, 4);
        each(&mut members, |superblock| superblock.resync_offset = offset);
        let assembly = decide(&members);
        assert_eq!(assembly.access, Access::ReadWrite);
        assert_eq!((assembly.state, assembly.synced_below_sectors), (state, offset));
    }
}

/// A crash between two members' dirty superblocks: the fresher one says dirty, and the array is.
#[test]
fn half_written_rounds_are_dirty() {
    let mut members = array(5, 4);
    members[2].superblock.events += 1;
    members[2].superblock.resync_offset = 0;
    let assembly = decide(&members);
    assert_eq!(assembly.state, SyncState::Dirty);
    assert_eq!(assembly.degraded(), 0, "the others are one behind and current");
}

#[test]
fn dirty_and_degraded_parity_is_refused_unless_forced() {
    for level in [4, 5, 6] {
        let mut members = array(level, 4);
        each(&mut members, |superblock| superblock.resync_offset = 0);
        let members = without(members, &[1]);
        let assembly = decide(&members);
        assert_eq!(refusals(&assembly), [Code::DirtyDegraded], "level {level}");
        let problem = assembly.refusal().unwrap();
        assert_eq!((problem.exit_code(), problem.force), (3, Some(Check::DirtyDegraded)));
        assert!(problem.next.contains("--force=dirty-degraded"));

        let forced = assemble(&members, Forced::default().with(Check::DirtyDegraded)).unwrap();
        assert_eq!(forced.access, Access::ReadWrite);
        assert_eq!(forced.synced_below_sectors, CLEAN, "the operator vouches for it");
        assert_eq!(forced.state, SyncState::Dirty);
    }
}

#[test]
fn dirty_and_degraded_mirrors_are_served() {
    for (level, n) in [(1, 2), (10, 4)] {
        let mut members = array(level, n);
        each(&mut members, |superblock| superblock.resync_offset = 0);
        assert_eq!(decide(&without(members, &[0])).access, Access::ReadWrite);
    }
}

#[test]
fn levels_without_redundancy_are_never_dirty() {
    let mut members = array(0, 3);
    each(&mut members, |superblock| superblock.resync_offset = 0);
    assert_eq!(decide(&members).state, SyncState::Clean);
}

#[test]
fn features_that_cost_access() {
    type Change = fn(&mut SuperblockFacts);
    let refused: [(Change, Code); 2] = [
        (|superblock| superblock.features = Features::RESHAPE, Code::Reshaping),
        (|superblock| superblock.features = Features(0x4000), Code::UnknownFeature),
    ];
    for (change, code) in refused {
        let mut members = array(5, 4);
        each(&mut members, change);
        assert_eq!(refusals(&decide(&members)), [code]);
    }
    let mut clustered = array(1, 2);
    each(&mut clustered, |superblock| superblock.features = Features::CLUSTERED);
    assert_eq!(read_only(&decide(&clustered)), [Code::Clustered]);

    let mut hazard = array(10, 5);
    each(&mut hazard, |superblock| superblock.layout = 0x10202);
    assert_eq!(read_only(&decide(&hazard)), [Code::CollidingLayout]);
}

#[test]
fn journals() {
    let members = |journal: Option<JournalFacts>| {
        let mut members = array(5, 3);
        each(&mut members, |superblock| {
            superblock.features = Features::JOURNAL;
            superblock.roles[3] = DeviceRole::Journal;
        });
        if let Some(log) = journal {
            let mut device = members[0].clone();
            device.superblock.dev_number = 3;
            device.journal = Some(log);
            members.push(device);
        }
        members
    };
    let journaled = |journal| decide(&members(journal));
    let forced = |journal| assemble(&members(journal), Forced::default().with(Check::Journal)).unwrap();
    assert_eq!(refusals(&journaled(None)), [Code::JournalMissing]);
    assert_eq!(read_only(&forced(None)), [Code::NotSupportedYet]);
    let empty = journaled(Some(JournalFacts::Empty));
    assert_eq!(empty.verdicts[3], Verdict::Journal);
    assert_eq!(read_only(&empty), [Code::NotSupportedYet]);
    assert_eq!(read_only(&journaled(Some(JournalFacts::Written { pages: 9 }))), [Code::NotSupportedYet]);
    assert_eq!(refusals(&journaled(Some(JournalFacts::NotEmpty))), [Code::JournalNotEmpty]);
    assert_eq!(read_only(&forced(Some(JournalFacts::NotEmpty))), [Code::NotSupportedYet]);
    let not_followed = [None, Some(JournalFacts::NotEmpty)].map(|journal| forced(journal).replay_journal);
    assert_eq!(not_followed, [None, None], "without the journal is without the journal");
    for (end, told) in [(JournalEnd::Whole, "3 pages"), (JournalEnd::CutShort, "cut short")] {
        let ahead = journaled(Some(JournalFacts::Ahead { pages: 3, end }));
        assert_eq!((read_only(&ahead), ahead.replay_journal), (vec![Code::JournalNotEmpty], Some(3)));
        assert!(ahead.problems()[0].what.contains(told), "{:?}", ahead.problems());
    }
    let damaged = Some(JournalFacts::Ahead { pages: 3, end: JournalEnd::Damaged });
    assert_eq!(refusals(&journaled(damaged))[..1], [Code::JournalDamaged]);
    assert_eq!(
        (read_only(&forced(damaged)), forced(damaged).replay_journal),
        (vec![Code::JournalNotEmpty], Some(3))
    );
}

/// A list of lost sectors that can be read is passed on, in sectors of the member's data. One that
/// cannot may say anything, so that its member counts as missing.
#[test]
fn bad_blocks_are_passed_on_and_unknown_ones_take_their_member_out() {
    let bad = |ranges: Option<&[(u64, u64)]>, lost: &[usize]| {
        let mut members = array(5, 4);
        members[1].superblock.features = Features::BAD_BLOCKS;
        let range = |&(start_sector, len_sectors): &(u64, u64)| BadBlockEntry { start_sector, len_sectors };
        members[1].bad_blocks = ranges.map(|ranges| ranges.iter().map(range).collect());
        decide(&without(members, lost))
    };
    let sectors = |assembly: &Assembly| -> Vec<(u64, u64)> {
        assembly.bad_in_slot(1).iter().map(|range| (range.start.0, range.end.0)).collect()
    };
    // The data is at sectors 2048 to 16383 of the device.
    type Ranges = &'static [(u64, u64)];
    let rows: [(Ranges, Ranges); 5] = [
        (&[(3000, 8)], &[(952, 960)]),
        (&[(100, 8)], &[]),
        (&[(2040, 16), (16380, 8)], &[(0, 8), (14332, 14336)]),
        (&[(0, u64::MAX)], &[(0, 14336)]),
        (&[(u64::MAX, 5), (16384, 1)], &[]),
    ];
    for (ranges, expected) in rows {
        for lost in [&[][..], &[3]] {
            let assembly = bad(Some(ranges), lost);
            assert_eq!(assembly.access, Access::ReadWrite, "{ranges:?}");
            assert_eq!((sectors(&assembly), assembly.missing().len()), (expected.to_vec(), lost.len()));
        }
    }
    let excluded = bad(None, &[]);
    assert_eq!(excluded.verdicts[1], Verdict::BadBlocks { slot: 1 });
    assert_eq!((excluded.access.clone(), excluded.missing()), (Access::ReadWrite, vec![1]));
    assert_eq!(refusals(&bad(None, &[3])), [Code::BadBlocks], "nobody could stand in for it");
}

#[test]
fn raid0_over_unequal_members_needs_a_layout() {
    let mut members = array(0, 3);
    each(&mut members, |superblock| superblock.features = Features::default());
    members[1..].iter_mut().for_each(|member| member.superblock.data_size_sectors = 7100);
    assert_eq!(decide(&members).access, Access::ReadWrite, "one larger member: both layouts are one");
    members[1].superblock.data_size_sectors = members[0].superblock.data_size_sectors;
    assert_eq!(refusals(&decide(&members)), [Code::Raid0Layout]);
    let (original, alternate) = (Check::Raid0Original, Check::Raid0Alternate);
    for checks in [&[original][..], &[alternate], &[original, alternate]] {
        let forced = checks.iter().fold(Forced::default(), |forced, check| forced.with(*check));
        let assembly = assemble(&members, forced).expect("there are members");
        match checks {
            [_] => assert!(matches!(assembly.access, Access::ReadOnly(_)), "{checks:?}"),
            _ => assert_eq!(refusals(&assembly), [Code::Raid0Layout], "it is one of the two"),
        }
    }
    each(&mut members, |superblock| superblock.features = Features::RAID0_LAYOUT);
    assert_eq!(decide(&members).access, Access::ReadWrite);
}

#[test]
fn impossible_numbers_name_their_field() {
    type Change = fn(&mut SuperblockFacts);
    let rows: [(&str, Change, Code); 8] = [
        ("events", |superblock| superblock.events = u64::MAX, Code::ImpossibleGeometry),
        ("chunk", |superblock| superblock.chunk_sectors = 0, Code::ImpossibleGeometry),
        ("chunk", |superblock| superblock.chunk_sectors = 7, Code::ImpossibleGeometry),
        ("raid_disks", |superblock| superblock.raid_disks = 300, Code::ImpossibleGeometry),
        ("raid_disks", |superblock| superblock.raid_disks = 0, Code::ImpossibleGeometry),
        ("component_size", |superblock| superblock.size_sectors = 0, Code::ImpossibleGeometry),
        ("layout", |superblock| superblock.layout = 77, Code::ImpossibleGeometry),
        ("level", |superblock| superblock.level = -4, Code::UnsupportedLevel),
    ];
    for (field, change, code) in rows {
        let mut members = array(5, 4);
        each(&mut members, change);
        let assembly = decide(&members);
        let problem = assembly.refusal().unwrap_or_else(|| panic!("{field} must be refused"));
        assert_eq!((problem.code, problem.exit_code()), (code, 1), "{field}");
        assert!(problem.what.contains(field), "{}", problem.what);
        assert!(!problem.next.is_empty() && !problem.why.is_empty());
    }
}

#[test]
fn a_size_beyond_the_data_area_is_refused() {
    let mut members = array(5, 4);
    each(&mut members, |superblock| superblock.size_sectors = 1 << 40);
    assert!(decide(&members).refusal().is_some());
}

#[test]
fn equally_fresh_members_that_disagree_are_refused() {
    let mut members = array(5, 4);
    members[3].superblock.size_sectors = 7168;
    assert_eq!(refusals(&decide(&members)), [Code::Ambiguous]);
}

#[test]
fn only_spares_make_no_array() {
    let mut members = array(5, 2);
    each(&mut members, |superblock| superblock.roles = vec![DeviceRole::Spare; 128]);
    assert_eq!(refusals(&decide(&members)), [Code::NotEnoughMembers]);
}

/// Every reason has words for what, why and what next, and refusals by safety checks exit with 3.
#[test]
fn whatever_is_found_is_explained() {
    let mut members = array(5, 4);
    each(&mut members, |superblock| {
        superblock.features = Features::JOURNAL | Features::RESHAPE | Features::CLUSTERED;
        superblock.resync_offset = 0;
    });
    let assembly = decide(&without(members, &[0]));
    let problems = assembly.problems();
    assert_eq!(problems.len(), 4);
    for problem in problems {
        assert!(problem.what.starts_with("array data: "), "{}", problem.what);
        assert!(problem.why.len() > 10 && problem.next.len() > 10);
        assert_eq!(problem.exit_code(), 3);
    }
    for verdict in &assembly.verdicts {
        assert!(verdict.to_string().starts_with(verdict.word()));
    }
}
