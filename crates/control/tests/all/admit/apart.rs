//! Members that left, and may have been run without the others since.

use super::*;

/// Its table knows every member, but so would it with others that have their numbers.
#[test]
fn a_member_whose_bits_tell_of_another_history_is_not_taken_back_silently() {
    let kind = Kind { bitmap: true, ..RAID5 };
    let offer =
        |bitmap: Option<BitmapContent>| OfferedDevice { bitmap, ..offer(SECTORS, vec![former(kind, 2)]) };
    let recovery = |bitmap| {
        let admission = ask(&offer(bitmap), &running(kind), WantedSeat::Any);
        admission.map(|admission| admission.recovery).map_err(|problem| problem.code)
    };
    assert_eq!(recovery(Some(bitmap(15, &[1]))), Ok(MemberRecovery::Regions));
    assert_eq!(recovery(Some(bitmap(17, &[]))), Err(Code::SplitBrain), "it cleared what the array did not");
    assert_eq!(recovery(Some(bitmap(14, &[1]))), Err(Code::SplitBrain), "the array did, and without it");
    assert_eq!(recovery(Some(bitmap(15, &[1, 2]))), Err(Code::SplitBrain), "it wrote what the array did not");
    assert_eq!(recovery(None), Ok(MemberRecovery::Full), "nothing is known");
    // As this array left it, whatever it says.
    let left = ArrayNow { left_with: vec![former(kind, 2)], ..running(kind) };
    let admission = ask(&offer(Some(bitmap(15, &[1, 2]))), &left, WantedSeat::Any).unwrap();
    assert_eq!(admission.recovery, MemberRecovery::Regions);
}

/// Member 0 had failed when member 2 left, and came back before it.
#[test]
fn members_that_were_away_at_once_come_back_one_after_the_other() {
    let kind = Kind { bitmap: true, ..RAID5 };
    let running = running(kind);
    let mut second = former(kind, 2);
    second.set_role(0, DeviceRole::Faulty).unwrap();
    let recovery = |own: &Superblock, running: &ArrayNow| {
        ask(&offer(SECTORS, vec![own.clone()]), running, WantedSeat::Any).map(|admission| admission.recovery)
    };
    let left = ArrayNow { left_with: vec![second.clone()], ..running.clone() };
    assert_eq!(recovery(&second, &left), Ok(MemberRecovery::Regions), "it is as the array left it");
    let since = ArrayNow { in_sync_at_start: seated(kind, &[1, 2]), ..running.clone() };
    assert_eq!(recovery(&second, &since), Ok(MemberRecovery::Regions), "member 0 came back after the start");
    // Something else wrote on it meanwhile.
    let changes: [fn(&mut Superblock); 3] = [
        |own| own.set_events(own.events() + 1),
        |own| own.set_utime(Timestamp { secs: 5, micros: 5 }),
        |own| own.set_role(1, DeviceRole::Faulty).map(drop).unwrap(),
    ];
    for change in changes {
        let mut other = second.clone();
        change(&mut other);
        assert_eq!(recovery(&other, &left), Ok(MemberRecovery::Full));
    }

    // Nothing that is in sync now was there when it left, and still it is as the array left it.
    let mut last = former(kind, 2);
    [0, 1].into_iter().for_each(|ix| last.set_role(ix, DeviceRole::Faulty).map(drop).unwrap());
    let alone = ArrayNow { in_sync: seated(kind, &[0, 1]), ..running.clone() };
    assert_eq!(recovery(&last, &alone).map_err(|problem| problem.code), Err(Code::SplitBrain));
    let left = ArrayNow { left_with: vec![last.clone()], ..alone };
    assert_eq!(recovery(&last, &left), Ok(MemberRecovery::Regions));
}

#[test]
fn a_member_that_went_on_alone_is_not_taken_back_silently() {
    let kind = Kind { bitmap: true, ..RAID5 };
    let running = running(kind);
    let mut ahead = former(kind, 0);
    ahead.set_events(21);
    let mut alone = former(kind, 3);
    (0..3).for_each(|ix| alone.set_role(ix, DeviceRole::Faulty).map(drop).unwrap());
    for own in [ahead, alone] {
        let back = offer(SECTORS, vec![own]);
        let problem = refuses(ask(&back, &running, WantedSeat::Any), Code::SplitBrain, "changes of its own");
        assert_eq!((problem.exit_code(), problem.force), (3, Some(Check::SplitBrain)));
        let forced = Forced::default().with(Check::SplitBrain);
        let admission = admit(&back, &running, WantedSeat::Any, NEW_UUID, forced).unwrap();
        assert_eq!((admission.recovery, admission.overridden.len()), (MemberRecovery::Full, 1));
        // What was run with it knows number 3, and must not take it for that device.
        assert_eq!(admission.dev_number, 4);
    }
}

/// A slot says nothing of what was run with what: each half of an array may have got other devices
/// for the members of the other half.
#[test]
fn a_member_that_went_on_with_other_devices_is_known_by_their_numbers() {
    let refused = |own: &Superblock, running: &ArrayNow| {
        refuses(
            ask(&offer(SECTORS, vec![own.clone()]), running, WantedSeat::Any),
            Code::SplitBrain,
            "of its own",
        )
    };
    for version in [Version::V12, Version::V090] {
        let kind = Kind { bitmap: true, version, ..RAID5 };
        // The device was run without members 0 to 2, and then with others in their slots; the array
        // has another in the slot of the device.
        let mut alone = former(kind, 3);
        (0..3).for_each(|ix| alone.set_role(ix, DeviceRole::Spare).map(drop).unwrap());
        let with_another = ArrayNow {
            in_sync: [seated(kind, &[0, 1, 2]), vec![joined(3, 5)]].concat(),
            empty: Vec::new(),
            ..running(kind)
        };
        refused(&alone, &with_another);
        if version == Version::V090 {
            continue;
        }
        let mut filled = alone.clone();
        (0..3u16).for_each(|slot| {
            filled.set_role(6 + u32::from(slot), DeviceRole::Active(slot)).unwrap();
        });
        refused(&filled, &with_another);
        refused(&filled, &running(kind));
    }

    // One that left when members were there that others have replaced since may be just old: the
    // operator knows. What joined before it left its table has as a number that is free once it
    // goes on without that.
    let kind = Kind { bitmap: true, ..RAID5 };
    let renewed = ArrayNow {
        in_sync: vec![joined(0, 6), joined(1, 7), joined(2, 8)],
        in_sync_at_start: vec![joined(0, 6), joined(1, 7), joined(2, 8)],
        ..running(kind)
    };
    let old = former(kind, 3);
    let back = offer(SECTORS, vec![old.clone()]);
    refuses(ask(&back, &renewed, WantedSeat::Any), Code::SplitBrain, "may have been run without them");
    let forced = Forced::default().with(Check::SplitBrain);
    let taken = admit(&back, &renewed, WantedSeat::Any, NEW_UUID, forced).unwrap();
    assert_eq!((taken.seat, taken.recovery), (Seat::Slot(3), MemberRecovery::Full));
    let mut later = old;
    later.set_utime(Timestamp { secs: renewed.template.utime().secs + 1, micros: 0 });
    refused(&later, &renewed);
    // By the bitmap nothing comes back that knows all members, but was written after them.
    let taken = ask(&offer(SECTORS, vec![later]), &running(kind), WantedSeat::Any).unwrap();
    assert_eq!(taken.recovery, MemberRecovery::Full);
}
