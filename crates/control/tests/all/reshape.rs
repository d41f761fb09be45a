//! Arrays in the middle of a reshape, decided from made-up superblocks: which geometry is where,
//! with which members, and what is refused. Reading them is tested on arrays that a kernel wrote.

use crate::support::{EVENTS, array, decide, each, refusals, without};
use wattle_control::assemble::{Access, Assembly, ReshapeAssembly, Slot, Verdict, assemble};
use wattle_control::facts::{BitmapFacts, DeviceRole, Features, MemberFacts, Reshape};
use wattle_control::reason::Reason;
use wattle_control::{Check, Code, Forced};

/// 112 rows of chunks of 128 sectors on each member.
const COMPONENT: u64 = 14336;

/// Members of a RAID 5 or 6 that goes from `old` to `new` slots and has come to `position`.
fn reshaping(level: i32, old: u16, new: u16, position: u64, moves: i32) -> Vec<MemberFacts> {
    let mut members = array(level, old.max(new));
    let reshape = Reshape {
        position,
        new_level: level,
        delta_disks: i32::from(new) - i32::from(old),
        new_layout: members[0].superblock.layout,
        new_chunk_sectors: 128,
        backwards: new < old,
        new_offset_sectors: (moves != 0).then_some(moves),
    };
    each(&mut members, |superblock| {
        superblock.raid_disks = u32::from(new);
        superblock.features = Features::RESHAPE;
        superblock.reshape = Some(reshape);
    });
    members.iter_mut().for_each(|member| member.size_sectors = 32768);
    members
}

fn change(members: &mut [MemberFacts], change: impl Fn(&mut Reshape)) {
    each(members, |superblock| change(superblock.reshape.as_mut().unwrap()));
}

#[track_caller]
fn read(assembly: &Assembly) -> &ReshapeAssembly {
    assert!(matches!(assembly.access, Access::ReadOnly(_)), "{:?}", assembly.access);
    assembly.reshape.as_ref().unwrap()
}

#[test]
fn forwards_the_new_geometry_is_below_the_position() {
    let assembly = decide(&reshaping(5, 4, 5, 20480, -256));
    let reshape = read(&assembly);
    assert_eq!((reshape.new.sectors.clone(), reshape.old.sectors.clone()), (0..20480, 20480..3 * COMPONENT));
    assert_eq!((reshape.old.geometry.raid_disks(), reshape.new.geometry.raid_disks()), (4, 5));
    assert_eq!((reshape.size_sectors, assembly.size_sectors()), (3 * COMPONENT, Some(3 * COMPONENT)));
    assert_eq!(reshape.percent_done(), 20480 * 100 / (3 * COMPONENT));
    assert_eq!(reshape.old.data_offsets[0], Some(2048));
    assert_eq!(reshape.new.data_offsets[0], Some(1792));
    assert_eq!((assembly.slots.len(), reshape.old.slots.len()), (5, 4));
}

#[test]
fn backwards_the_old_geometry_is_below_the_position() {
    let assembly = decide(&reshaping(5, 5, 4, 30720, 256));
    let reshape = read(&assembly);
    assert_eq!((reshape.old.sectors.clone(), reshape.new.sectors.clone()), (0..30720, 30720..3 * COMPONENT));
    assert_eq!(assembly.slots, (0..5).map(|member| Slot::InSync { member }).collect::<Vec<_>>());
    let sides: Vec<_> = reshape.sides().map(|side| side.sectors.clone()).collect();
    assert_eq!(sides, [0..30720, 30720..3 * COMPONENT]);
}

#[test]
fn each_side_has_to_have_enough_members_where_it_holds_something() {
    let members = reshaping(5, 4, 5, 20480, -256);
    for out in 0..5 {
        read(&decide(&without(members.clone(), &[out])));
    }
    assert_eq!(refusals(&decide(&without(members, &[0, 4]))), [Code::NotEnoughMembers, Code::Reshaping]);
    // Nothing has been moved yet: the new member is not needed.
    let begun = without(reshaping(5, 4, 5, 0, -256), &[0, 4]);
    assert_eq!(read(&decide(&begun)).sides().count(), 1);
}

/// As from RAID 5 to 6: the new member has nothing of the old geometry, and of the new one what its
/// superblock says.
#[test]
fn a_member_that_the_reshape_fills_counts_for_what_it_has_been_given() {
    let mut members = reshaping(6, 5, 5, 3 * 2048, -256);
    change(&mut members, |reshape| reshape.new_layout = 2);
    each(&mut members, |superblock| superblock.layout = 18);
    members[4].superblock.recovery_offset = Some(2048);
    let assembly = decide(&members);
    let reshape = read(&assembly);
    assert_eq!(reshape.old.slots[4], Slot::Missing);
    assert_eq!(reshape.new.slots[4], Slot::InSync { member: 4 });
    // One row less is not enough.
    members[4].superblock.recovery_offset = Some(2047);
    assert_eq!(read(&decide(&members)).new.slots[4], Slot::Missing);
}

#[test]
fn the_freshest_position_counts_and_a_cut_update_is_no_reason_to_refuse() {
    let mut members = reshaping(5, 4, 5, 20480, -256);
    for member in &mut members[2..] {
        member.superblock.events = EVENTS - 1;
        member.superblock.reshape.as_mut().unwrap().position = 10240;
    }
    assert_eq!(read(&decide(&members)).position_sectors, 20480);
    // Of one update they say the same of everything else.
    members[1].superblock.reshape.as_mut().unwrap().new_layout = 3;
    assert_eq!(refusals(&decide(&members)), [Code::Ambiguous, Code::Reshaping]);
}

/// It was written last before the reshape began, or with the reshape that has ended since.
#[test]
fn a_member_that_missed_the_first_or_last_update_is_not_read_where_its_data_was_not() {
    let mut members = reshaping(5, 4, 5, 20480, -256);
    members[1].superblock.events = EVENTS - 1;
    members[1].superblock.reshape = None;
    members[1].superblock.features = Features::default();
    let assembly = decide(&members);
    let reshape = read(&assembly);
    assert_eq!((reshape.old.slots[1], reshape.new.slots[1]), (Slot::InSync { member: 1 }, Slot::Missing));

    let mut ended = array(5, 5);
    ended[1].superblock = members[0].superblock.clone();
    ended[1].superblock.events = EVENTS - 1;
    ended[1].superblock.dev_number = 1;
    ended[1].size_sectors = 32768;
    let assembly = decide(&ended);
    assert!(matches!(assembly.verdicts[1], Verdict::Foreign { field: "new_offset", .. }), "{assembly:?}");
    assert_eq!(assembly.missing(), [1]);
}

#[test]
fn dirty_and_degraded_is_refused_here_too() {
    let mut members = reshaping(5, 4, 5, 20480, -256);
    each(&mut members, |superblock| superblock.resync_offset = 0);
    read(&decide(&members));
    assert_eq!(refusals(&decide(&without(members, &[2]))), [Code::DirtyDegraded, Code::Reshaping]);
}

/// On the side of the old layout every member has data.
#[test]
fn a_member_that_will_hold_parity_alone_does_not_yet() {
    let mut members = reshaping(5, 4, 4, 3 * 2048, -256);
    // Parity on the last member.
    change(&mut members, |reshape| reshape.new_layout = 5);
    each(&mut members, |superblock| superblock.resync_offset = 0);
    assert_eq!(refusals(&decide(&without(members, &[3]))), [Code::DirtyDegraded, Code::Reshaping]);
}

#[test]
fn where_linux_may_have_run_on_the_way_to_read_it_is_named() {
    let assembly = decide(&reshaping(5, 4, 4, 3 * 2048, -256));
    assert!(read(&assembly).moved_sectors.is_some());
    let problem = &assembly.problems()[0];
    assert!(problem.what.contains(&format!("from byte {} on", 3 * 2048 * 512)), "{}", problem.what);
    assert!(problem.next.contains("--force=reshape-position"), "{}", problem.next);
}

/// Superblocks of such arrays say clean where parity was never made.
#[test]
fn a_lockless_bitmap_is_not_forgotten_in_a_reshape() {
    let mut members = reshaping(5, 4, 5, 20480, -256);
    read(&decide(&without(members.clone(), &[2])));
    members.iter_mut().for_each(|member| member.bitmap = BitmapFacts::Version(6));
    assert_eq!(refusals(&decide(&without(members, &[2]))), [Code::DirtyDegraded, Code::Reshaping]);
}

#[test]
fn in_place_what_is_beyond_the_position_is_doubtful_unless_by_force() {
    // As many data members: all of it.
    let members = reshaping(5, 4, 4, 3 * 2048, 0);
    let assembly = decide(&members);
    assert_eq!(read(&assembly).doubtful, Some(3 * 2048..3 * COMPONENT));
    let problem = &assembly.problems()[0];
    let (start, end) = (3 * 2048 * 512, 3 * COMPONENT * 512);
    assert!(problem.what.contains(&format!("bytes {start} to {end}")), "{}", problem.what);
    assert!(problem.next.contains("--backup-file"));
    let forced = assemble(&members, Forced::default().with(Check::ReshapePosition)).unwrap();
    assert!(read(&forced).forced && !forced.problems()[0].what.contains("bytes"));
    // More of them: only at the start, until the new rows lie well before the old ones.
    let grow = |position| read(&decide(&reshaping(5, 4, 5, position, 0))).doubtful.clone();
    assert_eq!((grow(0), grow(2048), grow(3072), grow(20480)), (Some(0..3072), Some(2048..3072), None, None));
    // With an offset too: Linux looks at it only once it has recorded a position, behind 3072.
    let moved = |position| read(&decide(&reshaping(5, 4, 5, position, -256))).doubtful.clone();
    assert_eq!((moved(0), moved(3584)), (Some(0..1920), None));
    // Fewer: only close to it. An offset makes room.
    let shrink = |position, moves| read(&decide(&reshaping(5, 5, 4, position, moves))).doubtful.clone();
    assert_eq!((shrink(30720, 0), shrink(1536, 0)), (None, Some(0..1536)));
    assert_eq!(shrink(1536, 256), None);
}

#[test]
fn an_offset_in_front_of_which_linux_may_have_run_is_looked_at() {
    let moved = |members: &[MemberFacts]| read(&decide(members)).moved_sectors;
    assert_eq!(moved(&reshaping(5, 4, 4, 3 * 2048, -256)), Some(3 * 256));
    assert_eq!(moved(&reshaping(5, 4, 5, 20480, -256)), None, "Linux looks at the rows itself");
}

#[test]
fn what_md_does_not_write_is_refused() {
    type Break = fn(&mut [MemberFacts]);
    let rows: [(Break, &str); 6] = [
        (|members| change(members, |reshape| reshape.new_level = 6), "new_level"),
        (|members| change(members, |reshape| reshape.delta_disks = 5), "delta_disks"),
        (|members| change(members, |reshape| reshape.position = 20481), "reshape_position"),
        (|members| change(members, |reshape| reshape.new_offset_sectors = Some(-4096)), "new_offset"),
        (|members| change(members, |reshape| reshape.new_offset_sectors = Some(1 << 20)), "new_offset"),
        (|members| each(members, |superblock| superblock.level = 1), "level"),
    ];
    for (damage, field) in rows {
        let mut members = reshaping(5, 4, 5, 20480, -256);
        damage(&mut members);
        let assembly = decide(&members);
        let Access::Refused(reasons) = &assembly.access else { panic!("{field}: {:?}", assembly.access) };
        let found = reasons
            .iter()
            .any(|reason| matches!(reason, Reason::BadNumber { field: it, .. } if *it == field));
        assert!(found, "{field}: {reasons:?}");
    }
    let mut wide = reshaping(5, 4, 5, 20480, -256);
    change(&mut wide, |reshape| reshape.delta_disks = i32::MIN);
    refusals(&decide(&wide));
    let mut logged = reshaping(5, 4, 5, 20480, -256);
    each(&mut logged, |superblock| superblock.features = Features::RESHAPE | Features::PPL);
    assert_eq!(refusals(&decide(&logged)), [Code::Reshaping]);
    let mut layout = reshaping(10, 4, 4, 2048, -256);
    change(&mut layout, |reshape| reshape.new_layout = 0x10201);
    assert!(refusals(&decide(&layout)).contains(&Code::ImpossibleGeometry));
    let mut spares_only = reshaping(5, 4, 5, 20480, -256);
    each(&mut spares_only, |superblock| superblock.roles = vec![DeviceRole::Spare; 128]);
    assert!(refusals(&decide(&spares_only)).contains(&Code::NotEnoughMembers));
}
