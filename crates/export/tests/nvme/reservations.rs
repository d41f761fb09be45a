//! Reservations between hosts, over both paths.

use crate::host::{Host, MOMENT, with_target};
use crate::support::{pattern, within};
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
            (RELEASE, EXCLUSIVE_ACCESS, &[1, 0], 0x0f),
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
