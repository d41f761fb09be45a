//! Reservations between hosts, over both paths.

use super::host::{Host, MOMENT, with_target};
use crate::support::{pattern, within};
use std::time::Duration;
use wattle_engine::volume::qos::{QosLimits, QosRate, QosRates, QosScope, QosUnit};
use wattle_export::nbd::Limits;
use wattle_export::nvme::DISCOVERY_NQN;

const CONFLICT: u16 = 0x83;
const REGISTER: u8 = 0x0d;
const ACQUIRE: u8 = 0x11;
const RELEASE: u8 = 0x15;
const WRITE_EXCLUSIVE_REGISTRANTS: u32 = 3 << 8;
const EXCLUSIVE_ACCESS: u32 = 2 << 8;

#[test]
fn one_that_is_fenced_writes_nothing_more_on_any_path() {
    with_target(2, Limits::default(), async |rig| {
        let (mut admin, mut victim) = rig.other_host(0, 1).await;
        let (_other_admin, mut other_path) = rig.other_host(1, 1).await;
        let (_admin_of_second, mut second) = rig.other_host(1, 2).await;
        let identified = admin.identify(0, admin.nsid).await.unwrap();
        assert_eq!(identified[31], 0xfe, "all types, and none that outlasts this server");
        let data = pattern(1, 4096);

        victim.reserve(REGISTER, 0, &[0, 0x11]).await.unwrap();
        second.reserve(REGISTER, 0, &[0, 0x22]).await.unwrap();
        victim.reserve(ACQUIRE, WRITE_EXCLUSIVE_REGISTRANTS, &[0x11, 0]).await.unwrap();
        for host in [&mut victim, &mut other_path, &mut second] {
            host.write(0, &data).await.unwrap();
        }
        let (_admin_of_third, mut stranger) = rig.other_host(0, 3).await;
        assert_eq!(stranger.write(0, &data).await.unwrap_err() & 0xfff, CONFLICT);
        assert_eq!(stranger.read(0, 4096).await.unwrap(), data);

        // A write whose data is on its way when its host is preempted.
        let entry = victim.io(1, 100, 1 << 20, 0x5a);
        victim.submit(&entry, &[]).await;
        let ready = victim.receive().await.unwrap();
        assert_eq!(ready.kind, 9);
        second.reserve(ACQUIRE, EXCLUSIVE_ACCESS | 2, &[0x22, 0x11]).await.unwrap();
        victim.send_part(&ready, 0, &pattern(9, 1 << 20), true).await;
        assert_eq!(victim.answer().await.unwrap_err() & 0xfff, CONFLICT);
        assert_eq!(second.read(100, 1 << 20).await.unwrap(), vec![0; 1 << 20]);
        for host in [&mut victim, &mut other_path] {
            assert_eq!(host.write(0, &pattern(2, 4096)).await.unwrap_err() & 0xfff, CONFLICT);
            assert_eq!(host.read(0, 4096).await.unwrap_err() & 0xfff, CONFLICT);
            let flush = host.pdu_flush();
            host.submit(&flush, &[]).await;
            assert_eq!(host.answer().await.unwrap_err() & 0xfff, CONFLICT);
        }
        assert_eq!(second.read(0, 4096).await.unwrap(), data);

        // It is told, once it asks: an event, and the log page that says what.
        let request = admin.command(0x0c);
        admin.submit(&request, &[]).await;
        let (_, event) = admin.answer().await.unwrap();
        assert_eq!(event, 0x0080_0006);
        let log = admin.log(0x80, 64).await.unwrap();
        assert_eq!((log[0], log[8], log[9]), (1, 1, 0), "its registration was preempted");
        assert_eq!(log[12..16], admin.nsid.to_le_bytes());
        assert_eq!(admin.log(0x80, 64).await.unwrap()[8], 0, "that was all");

        let report = stranger.reservations(128, 1).await.unwrap();
        assert_eq!((report[4], report[5], report[64 + 2], report[64 + 8]), (2, 1, 1, 0x22));
        assert_eq!(report[64 + 16..64 + 32], [2; 16]);
        assert_eq!(stranger.reservations(128, 0).await.unwrap_err() & 0xfff, 0x18);
        assert_eq!(stranger.reservations(8192, 1).await.unwrap()[128..], [0; 8192 - 128]);
        second.reserve(RELEASE, EXCLUSIVE_ACCESS, &[0x22]).await.unwrap();
        victim.write(0, &pattern(2, 4096)).await.unwrap();
    });
}

#[test]
fn an_order_that_cannot_be_leaves_the_connection_as_it_was() {
    with_target(1, Limits::default(), async |rig| {
        let (_admin, mut host) = rig.other_host(0, 1).await;
        for (opcode, word, keys, status) in [
            (REGISTER, 3 << 30, &[0, 1][..], 0x02),
            (REGISTER, 7, &[0, 1], 0x02),
            (REGISTER, 0, &[0], 0x0f),
            (ACQUIRE, WRITE_EXCLUSIVE_REGISTRANTS, &[1, 0], CONFLICT),
            (ACQUIRE, 0, &[1, 0], 0x02),
            (RELEASE, EXCLUSIVE_ACCESS, &[], 0x0f),
        ] {
            assert_eq!(host.reserve(opcode, word, keys).await.unwrap_err() & 0xfff, status, "{opcode:x}");
        }
        host.nsid += 1;
        assert_eq!(host.reserve(REGISTER, 0, &[0, 1]).await.unwrap_err() & 0xfff, 0x0b);
        host.nsid -= 1;
        let alive = within(&rig.core, MOMENT, host.write(0, &pattern(1, 4096))).await;
        assert_eq!(alive, Some(Ok(())));
    });
}

/// Linux before 6.13 sends 16 bytes with each order, whatever it needs; and whether data is in the
/// capsule or is asked for is up to the host.
#[test]
fn an_order_may_have_more_data_than_it_needs_and_have_it_asked_for() {
    with_target(1, Limits::default(), async |rig| {
        let (_admin, mut host) = rig.other_host(0, 1).await;
        for clears in [0, 1] {
            host.reserve_when_asked(REGISTER, 0, &[0, 0x11, 7]).await.unwrap();
            host.reserve_when_asked(ACQUIRE, EXCLUSIVE_ACCESS, &[0x11, 0]).await.unwrap();
            host.reserve(RELEASE, EXCLUSIVE_ACCESS | clears, &[0x11, 0]).await.unwrap();
            let report = host.reservations(128, 1).await.unwrap();
            assert_eq!((report[4], report[5]), (0, 1 - clears as u8), "clears: {clears}");
        }
        host.reserve(REGISTER, 0, &[0, 0x11]).await.unwrap();
        host.reserve_when_asked(RELEASE, 1, &[0x11]).await.unwrap();
        // Too little, and more than any command has.
        for length in [7_u32, (1 << 20) + 1] {
            let mut entry = host.command(RELEASE);
            entry[32..36].copy_from_slice(&length.to_le_bytes());
            entry[39] = 0x5a;
            host.submit(&entry, &[]).await;
            assert_eq!(host.answer().await.unwrap_err() & 0xfff, 0x0f, "{length}");
        }
    });
}

#[test]
fn a_stranger_that_only_discovers_neither_sees_nor_changes_what_is_of_namespaces() {
    const INVALID_FIELD: u16 = 0x02;
    with_target(1, Limits::default(), async |rig| {
        let (admin, mut queue) = rig.other_host(0, 1).await;
        queue.reserve(REGISTER, 0, &[0, 0x11]).await.unwrap();
        let mut stranger = Host::dial(&rig.core, rig.ports[0], 0).await;
        stranger.connect(0, u16::MAX, DISCOVERY_NQN, 31, 0).await.unwrap();
        stranger.enable().await;
        for nsid in [admin.nsid, u32::MAX] {
            stranger.nsid = nsid;
            for (opcode, feature) in [(9, 0x83), (9, 0x82), (0x0a, 0x83), (0x0a, 0x82)] {
                let done = stranger.feature(opcode, feature, 0).await;
                assert_eq!(done.map_err(|status| status & 0xfff), Err(INVALID_FIELD), "{opcode} {feature:x}");
            }
        }
        // What it is there for.
        stranger.set_feature(0x0f, 120_000).await.unwrap();
        assert_eq!(stranger.log(0x70, 4096).await.unwrap()[8], 3);
    });
}

#[test]
fn a_fence_does_not_wait_for_what_limits_hold_back_and_holds_for_it() {
    const WRITES: u64 = 8;
    const BYTES: usize = 64 << 10;
    with_target(1, Limits::default(), async |rig| {
        let (_admin, mut victim) = rig.other_host(0, 1).await;
        let (_admin_of_second, mut second) = rig.other_host(1, 2).await;
        victim.reserve(REGISTER, 0, &[0, 0x11]).await.unwrap();
        second.reserve(REGISTER, 0, &[0, 0x22]).await.unwrap();
        victim.reserve(ACQUIRE, WRITE_EXCLUSIVE_REGISTRANTS, &[0x11, 0]).await.unwrap();
        let governed = rig.volume.governed().unwrap();
        // A write each second.
        let mut client = QosRates::default();
        client.0[QosRate { unit: QosUnit::Requests, scope: QosScope::Writes }.index()] = Some(1);
        governed.set(&rig.core, QosLimits { client, ..QosLimits::default() }).await;
        for nth in 0..WRITES {
            let entry = victim.io(1, nth * BYTES as u64 / 512, BYTES, 1);
            victim.submit(&entry, &pattern(nth, BYTES)).await;
        }
        while governed.status(&rig.core).await.totals.waiting_limited < WRITES - 2 {
            rig.core.sleep(Duration::from_millis(1)).await;
        }
        let preempt = second.reserve(ACQUIRE, EXCLUSIVE_ACCESS | 1, &[0x22, 0x11]);
        let preempted = within(&rig.core, Duration::from_secs(2), preempt).await;
        assert_eq!(preempted, Some(Ok(())), "it waited for writes that wait for their turn");
        governed.release(&rig.core).await;
        let mut refused = 0;
        for _ in 0..WRITES {
            match victim.answer().await {
                Ok(_) => {}
                Err(status) => {
                    assert_eq!(status & 0xfff, CONFLICT);
                    refused += 1;
                }
            }
        }
        // One or two had their turn before it, and some while it was under way.
        assert!(refused >= WRITES - 5, "{refused} of {WRITES} were refused");
        let last = second.read((WRITES - 1) * BYTES as u64 / 512, BYTES).await.unwrap();
        assert!(last == vec![0; BYTES], "it was written after its host was fenced");
    });
}

#[test]
fn what_an_operator_clears_keeps_none_out_and_all_that_had_it_are_told() {
    const RESERVATION_PREEMPTED: u8 = 3;
    with_target(2, Limits::default(), async |rig| {
        let (holder_admin, mut holder) = rig.other_host(0, 1).await;
        let (second_admin, mut second) = rig.other_host(1, 2).await;
        let (_admin, mut stranger) = rig.other_host(0, 3).await;
        holder.reserve(REGISTER, 0, &[0, 0x11]).await.unwrap();
        second.reserve(REGISTER, 0, &[0, 0x22]).await.unwrap();
        holder.reserve(ACQUIRE, EXCLUSIVE_ACCESS, &[0x11, 0]).await.unwrap();
        for host in [&mut second, &mut stranger] {
            assert_eq!(host.write(0, &pattern(1, 4096)).await.unwrap_err() & 0xfff, CONFLICT);
        }
        assert!(rig.subsystem.clear_reservations(&rig.core, "data's uuid").await);
        for host in [&mut second, &mut stranger] {
            host.write(0, &pattern(1, 4096)).await.unwrap();
            assert_eq!(host.read(0, 4096).await.unwrap(), pattern(1, 4096));
        }
        for mut admin in [holder_admin, second_admin] {
            let request = admin.command(0x0c);
            admin.submit(&request, &[]).await;
            assert_eq!(admin.answer().await.unwrap().1, 0x0080_0006);
            assert_eq!(admin.log(0x80, 64).await.unwrap()[8], RESERVATION_PREEMPTED);
        }
        let report = stranger.reservations(128, 1).await.unwrap();
        assert_eq!((report[4], report[5]), (0, 0), "none holds it, and none is registered");
    });
}
