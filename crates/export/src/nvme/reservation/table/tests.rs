use super::ReservationNotice::{RegistrationPreempted, ReservationPreempted, ReservationReleased};
use super::ReservationType as Type;
use super::*;

const TYPES: [Type; 6] = [
    Type::WriteExclusive,
    Type::ExclusiveAccess,
    Type::WriteExclusiveRegistrants,
    Type::ExclusiveAccessRegistrants,
    Type::WriteExclusiveAll,
    Type::ExclusiveAccessAll,
];

fn host(id: u8) -> Host {
    Host { nqn: format!("nqn.{id}"), id: [id; 16] }
}

/// A key that tells whose it is.
fn key(id: u8) -> u64 {
    0xa0 + u64::from(id)
}

fn keys(current: u64, new: u64) -> RegisterKeys {
    RegisterKeys { ignores_current: false, current, new, persists: None }
}

/// Hosts 1 and 2 are registered, 3 is not.
fn registered() -> ReservationTable {
    let mut table = ReservationTable::default();
    for id in [1, 2] {
        let order = ReservationOrder::Register(Register::Add, keys(0, key(id)));
        assert_eq!(table.apply(&host(id), &order), Ok(vec![]));
    }
    table
}

/// The same, and host 1 has reserved.
fn reserved(kind: Type) -> ReservationTable {
    let mut table = registered();
    assert_eq!(table.apply(&host(1), &ReservationOrder::Acquire(kind, key(1))), Ok(vec![]));
    table
}

const CONFLICT: Result<Notices, NvmeStatus> = Err(NvmeStatus::RESERVATION_CONFLICT);

/// The specification's table: what the holder, another registrant and another host may do.
#[test]
fn each_type_forbids_what_the_specification_says() {
    for (kind, registrant, stranger) in [
        (Type::WriteExclusive, (true, false), (true, false)),
        (Type::ExclusiveAccess, (false, false), (false, false)),
        (Type::WriteExclusiveRegistrants, (true, true), (true, false)),
        (Type::ExclusiveAccessRegistrants, (true, true), (false, false)),
        (Type::WriteExclusiveAll, (true, true), (true, false)),
        (Type::ExclusiveAccessAll, (true, true), (false, false)),
    ] {
        let table = reserved(kind);
        for (id, expected) in [(1, (true, true)), (2, registrant), (3, stranger)] {
            let may = |access| table.may(&host(id), access);
            assert_eq!((may(DataAccess::Read), may(DataAccess::Write)), expected, "{kind:?}, host {id}");
        }
        assert!(registered().may(&host(3), DataAccess::Write), "without a reservation everyone may");
    }
}

#[test]
fn a_key_is_registered_once_and_changed_with_the_one_before() {
    let mut table = registered();
    let register = |what, keys| ReservationOrder::Register(what, keys);
    for (id, what, keys, expected) in [
        (1, Register::Add, keys(0, key(1)), Ok(vec![])),
        (1, Register::Add, keys(0, 7), CONFLICT),
        (1, Register::Replace, keys(7, 8), CONFLICT),
        (1, Register::Replace, keys(key(1), 8), Ok(vec![])),
        (1, Register::Remove, keys(key(1), 0), CONFLICT),
        (1, Register::Remove, keys(8, 0), Ok(vec![])),
        (1, Register::Remove, keys(8, 0), CONFLICT),
        (3, Register::Replace, keys(0, 9), CONFLICT),
        (3, Register::Replace, RegisterKeys { ignores_current: true, ..keys(5, 9) }, Ok(vec![])),
        (3, Register::Add, RegisterKeys { ignores_current: true, ..keys(5, 10) }, Ok(vec![])),
        (3, Register::Remove, RegisterKeys { ignores_current: true, ..keys(5, 0) }, Ok(vec![])),
    ] {
        let before = table.clone();
        let done = table.apply(&host(id), &register(what, keys));
        assert_eq!(done, expected, "host {id}: {what:?} {keys:?}");
        assert_eq!(table != before, expected.is_ok(), "only what was done is counted");
    }
    assert_eq!(table.registrants, [(host(2), key(2))].into());
}

#[test]
fn one_that_is_not_registered_orders_nothing() {
    for order in [
        ReservationOrder::Acquire(Type::WriteExclusive, key(3)),
        ReservationOrder::Preempt(Type::WriteExclusive, key(3), key(1)),
        ReservationOrder::Release(1, key(3)),
        ReservationOrder::Clear(key(3)),
    ] {
        let mut table = reserved(Type::WriteExclusive);
        let before = table.clone();
        assert_eq!(table.apply(&host(3), &order), CONFLICT);
        // Nor does one that is, with the key of another.
        assert_eq!(table.apply(&host(2), &order), CONFLICT);
        assert_eq!(table, before);
    }
}

#[test]
fn a_reservation_is_one_hosts_or_every_registrants() {
    for kind in TYPES {
        let mut table = reserved(kind);
        let of_all = kind as u8 >= 5;
        for other in TYPES {
            let again = table.apply(&host(1), &ReservationOrder::Acquire(other, key(1)));
            assert_eq!(again, if other == kind { Ok(vec![]) } else { CONFLICT });
        }
        let second = table.apply(&host(2), &ReservationOrder::Acquire(kind, key(2)));
        assert_eq!(second, if of_all { Ok(vec![]) } else { CONFLICT });
        // A release by one that does not hold it changes nothing.
        let released = table.apply(&host(2), &ReservationOrder::Release(kind as u8, key(2)));
        let told = if of_all { vec![(host(1), ReservationReleased)] } else { vec![] };
        assert_eq!((released, table.held.is_none()), (Ok(told), of_all));
        if of_all {
            continue;
        }
        let wrong = ReservationOrder::Release(kind as u8 + 1, key(1));
        assert_eq!(table.apply(&host(1), &wrong), Err(NvmeStatus::INVALID_FIELD));
        let released = table.apply(&host(1), &ReservationOrder::Release(kind as u8, key(1)));
        let told = if kind.lets_registrants() { vec![(host(2), ReservationReleased)] } else { vec![] };
        assert_eq!((released, table.held), (Ok(told), None), "{kind:?}");
    }
}

#[test]
fn a_reservation_ends_with_the_registration_of_its_last_holder() {
    for kind in TYPES {
        let mut table = reserved(kind);
        let leave = |id| ReservationOrder::Register(Register::Remove, keys(key(id), 0));
        table.apply(&host(1), &leave(1)).unwrap();
        assert_eq!(table.held.is_some(), kind as u8 >= 5, "{kind:?}");
        table.apply(&host(2), &leave(2)).unwrap();
        assert_eq!(table.held, None);
    }
}

#[test]
fn preempting_takes_the_reservation_and_ends_registrations() {
    for kind in TYPES.into_iter().filter(|kind| (*kind as u8) < 5) {
        let mut table = reserved(kind);
        let order = ReservationOrder::Preempt(Type::ExclusiveAccess, key(2), key(1));
        assert_eq!(table.apply(&host(2), &order), Ok(vec![(host(1), RegistrationPreempted)]), "{kind:?}");
        let held = Held { kind: Type::ExclusiveAccess, holder: Some(host(2)) };
        assert_eq!((table.held.clone(), table.registrants.len()), (Some(held), 1));
        assert!(!table.may(&host(1), DataAccess::Read));
        // The one that lost its registration orders nothing any more.
        assert_eq!(table.apply(&host(1), &ReservationOrder::Clear(key(1))), CONFLICT);
        // The holder may take it from itself, for another type.
        let order = ReservationOrder::Preempt(Type::WriteExclusive, key(2), key(2));
        assert_eq!(table.apply(&host(2), &order), Ok(vec![]));
        assert!(table.registrants.contains_key(&host(2)) && table.may(&host(1), DataAccess::Read));
    }
    // A registration alone: the reservation stays.
    let mut table = reserved(Type::WriteExclusiveRegistrants);
    let order = ReservationOrder::Preempt(Type::WriteExclusive, key(1), key(2));
    assert_eq!(table.apply(&host(1), &order), Ok(vec![(host(2), RegistrationPreempted)]));
    assert_eq!(table.held.as_ref().map(|held| held.kind), Some(Type::WriteExclusiveRegistrants));
    assert_eq!(table.apply(&host(1), &order), CONFLICT, "no registrant has that key any more");
    let nobody = ReservationOrder::Preempt(Type::WriteExclusive, key(1), 0);
    assert_eq!(table.apply(&host(1), &nobody), Err(NvmeStatus::INVALID_FIELD));
    // Every registrant's is taken with the key 0.
    let mut table = reserved(Type::ExclusiveAccessAll);
    let order = ReservationOrder::Preempt(Type::WriteExclusive, key(2), 0);
    assert_eq!(table.apply(&host(2), &order), Ok(vec![(host(1), RegistrationPreempted)]));
    assert_eq!(table.held, Some(Held { kind: Type::WriteExclusive, holder: Some(host(2)) }));
}

#[test]
fn clearing_ends_everything() {
    let mut table = reserved(Type::ExclusiveAccess);
    let generation = table.generation;
    let cleared = table.apply(&host(2), &ReservationOrder::Clear(key(2)));
    assert_eq!(cleared, Ok(vec![(host(1), ReservationPreempted)]));
    assert_eq!((table.held, table.registrants.len()), (None, 0));
    assert_eq!(table.generation, generation + 1);
}

#[test]
fn an_operator_forgets_everyone_and_everyone_is_told() {
    for kind in TYPES {
        let mut table = reserved(kind);
        let before = table.generation;
        let told = table.forget(None);
        assert_eq!(told, [1, 2].map(|id| (host(id), ReservationPreempted)));
        assert_eq!((table.held.clone(), table.registrants.len()), (None, 0));
        assert_eq!(table.generation, before + 1);
        assert!((1..4).all(|id| table.may(&host(id), DataAccess::Write)));
        // There is nothing more to forget.
        assert_eq!((table.forget(None), table.generation), (vec![], before + 1));
    }
}

#[test]
fn registrants_are_bounded() {
    let mut table = ReservationTable::default();
    let add = ReservationOrder::Register(Register::Add, keys(0, 1));
    for number in 0..REGISTRANTS_MAX {
        let host = Host { nqn: number.to_string(), id: [0; 16] };
        table.apply(&host, &add).unwrap();
    }
    assert_eq!(table.apply(&host(1), &add), Err(NvmeStatus::CAPACITY));
}

#[test]
fn the_report_names_holders_and_keys() {
    let report = reserved(Type::WriteExclusive).report();
    assert_eq!((report.len(), report[0], report[4], report[5], report[9]), (64 + 128, 2, 1, 2, 0));
    let first = &report[64..128];
    assert_eq!((first[2], first[8], &first[16..32]), (1, 0xa1, &[1; 16][..]));
    assert_eq!((report[128 + 2], report[128 + 8]), (0, 0xa2));
    let report = reserved(Type::ExclusiveAccessAll).report();
    assert_eq!((report[64 + 2], report[128 + 2]), (1, 1));
}

#[test]
fn orders_are_what_their_bytes_say() {
    let decode = |opcode: u8, word: u32, data: &[u8]| {
        let mut entry = [0; 64];
        entry[0] = opcode;
        entry[40..44].copy_from_slice(&word.to_le_bytes());
        ReservationOrder::decode(&NvmeCommand(entry), data)
    };
    let data = [1_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat();
    let registering = RegisterKeys { ignores_current: true, persists: Some(true), ..keys(1, 2) };
    let expected = ReservationOrder::Register(Register::Replace, registering);
    assert_eq!(decode(0x0d, 3 << 30 | 1 << 3 | 2, &data), Ok(expected));
    for action in [1, 2] {
        let expected = ReservationOrder::Preempt(Type::ExclusiveAccess, 1, 2);
        assert_eq!(decode(0x11, 2 << 8 | action, &data), Ok(expected));
    }
    assert_eq!(decode(0x15, 3 << 8, &data[..8]), Ok(ReservationOrder::Release(3, 1)));
    assert_eq!(decode(0x15, 1, &data[..8]), Ok(ReservationOrder::Clear(1)));
    assert_eq!(decode(0x15, 1, &data), Ok(ReservationOrder::Clear(1)), "what follows means nothing");
    assert_eq!(decode(0x15, 1, &data[..7]), Err(NvmeStatus::INVALID_LENGTH));
    for (opcode, word) in
        [(0x0d, 3), (0x0d, 1 << 30), (0x11, 0), (0x11, 7 << 8), (0x11, 1 << 8 | 3), (0x11, 1 << 8 | 8)]
    {
        assert_eq!(decode(opcode, word, &data), Err(NvmeStatus::INVALID_FIELD), "{opcode:x} {word:x}");
    }
    assert_eq!(decode(0x0d, 0, &data[..15]), Err(NvmeStatus::INVALID_LENGTH));
}

#[test]
fn what_registered_hosts_rely_on_no_other_host_changes() {
    let mut table = ReservationTable::default();
    assert_eq!(table.apply(&host(3), &ReservationOrder::Persist(true)), Ok(vec![]), "no host relies on it");
    for (mut table, name) in [(registered(), "registered"), (reserved(Type::WriteExclusive), "reserved")] {
        assert_eq!(table.apply(&host(2), &ReservationOrder::Persist(true)), Ok(vec![]), "{name}");
        assert_eq!(table.apply(&host(3), &ReservationOrder::Persist(false)), CONFLICT, "{name}");
        assert!(table.persists);
    }
}
