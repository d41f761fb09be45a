//! The NVMe/TCP target against a host that does exactly what a test says, down to the byte.

mod bounds;
mod host;
mod proof;
mod reservations;

use std::net::SocketAddr;
use std::time::Duration;

use crate::left_behind::limited;
use crate::support::held::holding_volume;
use crate::support::{MIB, pattern, volume, within};
use host::{HOST, Host, LOCAL, MOMENT, SECRET, with_guarded_target, with_target, with_target_of};
use wattle_engine::volume::qos::QosLimits;
use wattle_export::nbd::Limits;
use wattle_export::nvme::{DISCOVERY_NQN, NvmeNamespaces, NvmeSecrets, NvmeVolume};
use wattle_rt::Core;

#[test]
fn data_survives_with_and_without_digests_in_the_capsule_and_when_asked_for() {
    with_target(2, Limits::default(), async |rig| {
        for digests in 0..4 {
            let admin = rig.admin(0, digests).await;
            for flags in [0, 4] {
                let mut queue = rig.queue(0, admin.controller, 1 + u16::from(flags), digests, flags).await;
                for (seed, length) in [(1, 512), (2, 4096), (3, 100 << 10), (4, 256 << 10)] {
                    let data = pattern(seed + u64::from(digests) * 8, length);
                    queue.write(seed * 4096, &data).await.unwrap();
                    assert!(queue.read(seed * 4096, length).await.unwrap() == data, "{length}");
                }
                for (seed, length, parts) in
                    [(5, 4096, 1), (6, 1 << 20, 1), (7, 1 << 20, 4), (8, 1 << 20, 16)]
                {
                    let data = pattern(seed, length);
                    queue.write_when_asked(seed * 4096, &data, parts).await.unwrap();
                    assert!(queue.read(seed * 4096, length).await.unwrap() == data, "{length}");
                }
                queue.submit(&queue.pdu_flush(), &[]).await;
                queue.answer().await.unwrap();
            }
        }
    });
}

#[test]
fn zeroes_are_written_and_ranges_discarded() {
    with_target(1, Limits::default(), async |rig| {
        let admin = rig.admin(0, 0).await;
        let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
        queue.write(0, &pattern(1, 8192)).await.unwrap();
        let mut zeroes = queue.io(8, 8, 4096, 0);
        zeroes[32..40].fill(0);
        queue.submit(&zeroes, &[]).await;
        queue.answer().await.unwrap();
        assert!(queue.read(0, 4096).await.unwrap() == pattern(1, 8192)[..4096]);
        assert!(queue.read(8, 4096).await.unwrap() == vec![0; 4096]);
        let mut discard = queue.command(9);
        discard[32..36].copy_from_slice(&4096_u32.to_le_bytes());
        discard[39] = 1;
        discard[40] = 1;
        discard[44] = 4;
        let mut ranges = vec![0; 4096];
        ranges[4..8].copy_from_slice(&2048_u32.to_le_bytes());
        ranges[24..32].copy_from_slice(&(64 * MIB / 512).to_le_bytes());
        queue.submit(&discard, &ranges).await;
        assert_eq!(queue.answer().await.err(), None, "a range without blocks ends at the end");
        ranges[20] = 1;
        discard[2] = 200;
        queue.submit(&discard, &ranges).await;
        assert_eq!(queue.answer().await.unwrap_err() & 0xfff, 0x80);
    });
}

/// A host may have data in the capsule, and may have it asked for, whatever the command.
#[test]
fn ranges_to_discard_may_have_to_be_asked_for() {
    with_target(1, Limits::default(), async |rig| {
        let admin = rig.admin(0, 0).await;
        let mut queue = rig.queue(0, admin.controller, 1, 2, 0).await;
        queue.write(0, &pattern(1, 8192)).await.unwrap();
        let mut discard = queue.command(9);
        discard[32..36].copy_from_slice(&32_u32.to_le_bytes());
        discard[39] = 0x5a;
        discard[40] = 1;
        discard[44] = 4;
        let mut ranges = vec![0; 32];
        ranges[4..8].copy_from_slice(&8_u32.to_le_bytes());
        ranges[24..32].copy_from_slice(&(64 * MIB / 512).to_le_bytes());
        queue.submit_when_asked(&discard, &ranges).await.unwrap();
        ranges[20] = 1;
        discard[2] = 200;
        assert_eq!(queue.submit_when_asked(&discard, &ranges).await.unwrap_err() & 0xfff, 0x80);
        for length in [31_u32, (1 << 20) + 16] {
            discard[32..36].copy_from_slice(&length.to_le_bytes());
            queue.submit(&discard, &[]).await;
            assert_eq!(queue.answer().await.unwrap_err() & 0xfff, 0x0f, "{length}");
        }
        assert!(queue.read(8, 4096).await.unwrap() == pattern(1, 8192)[4096..]);
    });
}

/// A Compare and a Write that are to be one: without the first the second must not be carried out.
#[test]
fn half_of_a_fused_pair_is_not_carried_out() {
    with_target(1, Limits::default(), async |rig| {
        let admin = rig.admin(0, 0).await;
        let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
        queue.write(0, &[b'A'; 4096]).await.unwrap();
        for (opcode, half) in [(5, 1), (1, 2), (1, 3), (0, 1)] {
            let mut entry = queue.io(opcode, 0, 4096, 1);
            entry[1] = half;
            queue.submit(&entry, &[b'B'; 4096]).await;
            assert_eq!(queue.answer().await.unwrap_err() & 0xfff, 0x02, "{opcode} {half}");
        }
        assert_eq!(queue.read(0, 4096).await.unwrap(), [b'A'; 4096]);
    });
}

/// A host whose connection breaks sends a write again by another path, and goes on there.
#[test]
fn what_a_path_left_behind_is_not_carried_out_over_what_another_one_writes() {
    let kept = std::sync::OnceLock::new();
    let holding = async |core: &Core| {
        let (volume, held) = holding_volume(core, "data").await;
        assert!(kept.set(held).is_ok());
        volume
    };
    with_target_of(2, Limits::default(), None, holding, async |rig| {
        let held = kept.get().unwrap();
        let (admin, other) = (rig.admin(0, 0).await, rig.admin(1, 0).await);
        let mut first = rig.queue(0, admin.controller, 1, 0, 0).await;
        let mut sibling = rig.queue(1, other.controller, 1, 0, 0).await;
        assert_eq!(sibling.read(0, 4096).await.unwrap(), [0; 4096], "it has begun long ago");
        let entry = first.io(1, 8, 4096, 1);
        first.submit(&entry, &[b'A'; 4096]).await;
        while !held.has_come() {
            rig.core.sleep(Duration::from_millis(1)).await;
        }
        first.stream.shutdown();
        rig.core.sleep(Duration::from_millis(300)).await;
        sibling.write(0, &[1; 4096]).await.expect("beside it");
        let writes = within(&rig.core, Duration::from_millis(300), sibling.write(8, &[b'B'; 4096])).await;
        assert_eq!(writes, None, "the old one may come over it");
        held.release();
        sibling.answer().await.unwrap();
        assert_eq!(sibling.read(8, 4096).await.unwrap(), [b'B'; 4096]);
    });
}

#[test]
fn two_addresses_are_two_paths_to_one_namespace() {
    with_target(2, Limits::default(), async |rig| {
        let (mut one, mut other) = (rig.admin(0, 0).await, rig.admin(1, 0).await);
        assert_ne!(one.controller, other.controller);
        let nsid = rig.nsid(0, 0).await;
        assert_eq!(rig.nsid(1, 0).await, nsid);
        let described = one.identify(3, nsid).await.unwrap();
        assert_eq!(other.identify(3, nsid).await.unwrap(), described);
        assert_eq!(one.identify(0, nsid).await.unwrap()[..4], (64 * MIB as u32 / 512).to_le_bytes());
        let ana = one.log(0x0c, 52).await.unwrap();
        assert_eq!((ana[8], ana[32]), (1, 1));
        assert_eq!(ana[48..52], nsid.to_le_bytes());
        // What is written by one path is read by the other.
        let mut queue = rig.queue(0, one.controller, 1, 0, 0).await;
        queue.write(0, &pattern(3, 4096)).await.unwrap();
        let mut queue = rig.queue(1, other.controller, 1, 0, 0).await;
        assert!(queue.read(0, 4096).await.unwrap() == pattern(3, 4096));
        // Both are found at each.
        let mut discovery = Host::dial(&rig.core, rig.ports[1], 0).await;
        discovery.connect(0, u16::MAX, DISCOVERY_NQN, 31, 0).await.unwrap();
        discovery.enable().await;
        let log = discovery.log(0x70, 4096).await.unwrap();
        assert_eq!(log[8], 3);
        for (entry, port) in [(2, rig.ports[0]), (3, rig.ports[1])] {
            let text = format!("{port:<32}");
            assert_eq!(&log[entry * 1024 + 32..entry * 1024 + 64], text.as_bytes());
        }
    });
}

#[test]
fn a_host_hears_of_namespaces_that_come_and_go() {
    with_target(2, Limits::default(), async |rig| {
        let mut admin = rig.admin(0, 0).await;
        admin.set_feature(0x0b, 1 << 8).await.unwrap();
        let request = admin.command(0x0c);
        admin.submit(&request, &[]).await;
        let namespaces: NvmeNamespaces = rig.servers[0].namespaces();
        let more = volume(&rig.core, "more", 16 * MIB, true).await;
        namespaces.add(&rig.core, NvmeVolume { volume: more, identity: "more's".to_owned() }).await.unwrap();
        let (_, result) = admin.answer().await.unwrap();
        assert_eq!(result, 0x04_0002);
        let changed = admin.log(4, 4096).await.unwrap();
        let list = admin.identify(2, 0).await.unwrap();
        let nsids: Vec<u32> =
            list.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).take(3).collect();
        let new = u32::from_le_bytes(changed[..4].try_into().unwrap());
        assert!(nsids.contains(&new) && nsids[1] > 0 && nsids[2] == 0, "{nsids:?} {new}");
        // It is only read.
        let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
        queue.nsid = new;
        assert_eq!(queue.write(0, &[1; 512]).await.unwrap_err() & 0xfff, 0x20);
        let request = admin.command(0x0c);
        admin.submit(&request, &[]).await;
        assert_eq!(namespaces.hide(&rig.core, "more").await, 1, "one host has it");
        queue.read(0, 512).await.expect("it goes on using it");
        namespaces.remove(&rig.core, "more").await;
        admin.answer().await.unwrap();
        assert_eq!(queue.read(0, 512).await.unwrap_err() & 0xfff, 0x0b);
        assert!(rig.volume.open(&rig.core).is_ok());
    });
}

#[test]
fn what_is_no_protocol_ends_the_connection_and_no_other() {
    with_target(2, Limits::default(), async |rig| {
        let admin = rig.admin(0, 0).await;
        let mut good = rig.queue(0, admin.controller, 1, 0, 0).await;
        let dial = async || Host::dial(&rig.core, rig.ports[0], 0).await;
        // Another kind, a wrong length of the header, data beyond all bounds, a second beginning.
        for (bytes, status) in [
            ([9, 0, 24, 0, 24, 0, 0, 0], 1),
            ([4, 0, 71, 0, 72, 0, 0, 0], 1),
            ([4, 0, 72, 72, 0xff, 0xff, 0xff, 0x7f], 5),
            ([4, 0, 72, 0, 8, 0, 0, 0], 1),
        ] {
            let mut host = dial().await;
            host.send(&bytes).await;
            host.is_ended(status).await;
        }
        let mut host = dial().await;
        let mut again = vec![0; 128];
        again[2] = 128;
        again[4] = 128;
        host.send(&again).await;
        host.is_ended(2).await;
        // Data that none asked for; data beyond what was asked for; out of its order.
        let mut queue = rig.queue(0, admin.controller, 2, 0, 0).await;
        queue.send(&queue.pdu(6, 4, &[1, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0], &[0; 512])).await;
        queue.is_ended(1).await;
        for (offset, length, last) in [(0, 8192, true), (512, 512, false), (0, 4096, false), (0, 512, true)] {
            let mut queue = rig.queue(0, admin.controller, 3, 0, 0).await;
            let entry = queue.io(1, 0, 4096, 0x5a);
            queue.submit(&entry, &[]).await;
            let ready = queue.receive().await.unwrap();
            queue.send_part(&ready, offset, &vec![0; length], last).await;
            queue.is_ended(4).await;
            drop(queue);
            rig.core.sleep(Duration::from_millis(20)).await;
        }
        good.write(0, &[1; 4096]).await.unwrap();
        // A queue of a controller that there is not; a second one of the same number.
        assert_eq!(dial().await.connect(1, 7, rig.subsystem.nqn(), 63, 0).await.unwrap_err() & 0xfff, 0x182);
        let taken = dial().await.connect(1, admin.controller, rig.subsystem.nqn(), 63, 0).await;
        assert_eq!(taken.unwrap_err(), 0x181);
        assert_eq!(dial().await.connect(0, u16::MAX, "nqn.other", 31, 0).await.unwrap_err() & 0xfff, 0x182);
        // More commands than the queue has entries.
        let mut host = dial().await;
        host.connect(0, u16::MAX, rig.subsystem.nqn(), 1, 0).await.unwrap();
        host.enable().await;
        for _ in 0..3 {
            let request = host.command(0x0c);
            host.submit(&request, &[]).await;
        }
        host.is_ended(5).await;
        good.read(0, 4096).await.unwrap();
    });
}

#[test]
fn damaged_data_is_not_written_and_a_damaged_header_ends_the_connection() {
    with_target(1, Limits::default(), async |rig| {
        let admin = rig.admin(0, 3).await;
        let mut queue = rig.queue(0, admin.controller, 1, 3, 0).await;
        queue.write(0, &[1; 4096]).await.unwrap();
        let entry = queue.io(1, 0, 4096, 1);
        let mut bytes = queue.pdu(4, 0, &entry, &[2; 4096]);
        bytes[1000] ^= 1;
        queue.send(&bytes).await;
        assert_eq!(queue.answer().await.unwrap_err(), 0x22);
        assert!(queue.read(0, 4096).await.unwrap() == [1; 4096]);
        let entry = queue.io(2, 0, 4096, 0x5a);
        let mut bytes = queue.pdu(4, 0, &entry, &[]);
        bytes[50] ^= 1;
        queue.send(&bytes).await;
        queue.is_ended(3).await;
    });
}

#[test]
fn a_controller_ends_with_its_admin_queue_and_when_its_host_is_silent() {
    with_target(2, Limits::default(), async |rig| {
        let admin = rig.admin(0, 0).await;
        let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
        queue.write(0, &[1; 512]).await.unwrap();
        admin.stream.shutdown();
        drop(admin);
        assert!(within(&rig.core, MOMENT, queue.receive()).await.expect("it is closed").is_none());
        // One second, rounded up by one.
        let mut admin = rig.admin(0, 0).await;
        admin.set_feature(0x0f, 1).await.unwrap();
        let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
        rig.core.sleep(Duration::from_millis(1200)).await;
        let alive = admin.command(0x18);
        admin.submit(&alive, &[]).await;
        admin.answer().await.unwrap();
        rig.core.sleep(Duration::from_millis(1200)).await;
        queue.read(0, 512).await.unwrap();
        assert!(within(&rig.core, MOMENT, queue.receive()).await.expect("it is closed").is_none());
        assert!(within(&rig.core, MOMENT, admin.receive()).await.expect("it is closed").is_none());
    });
}

/// What limits hold back is not done when its queue has ended, whichever way: a host that comes
/// back repeats it, and goes on.
#[test]
fn commands_of_a_queue_that_ended_are_not_done_behind_the_next_ones() {
    with_target(2, Limits::default(), async |rig| {
        let governed = rig.volume.governed().unwrap();
        for is_reset in [true, false] {
            governed.set(&rig.core, limited()).await;
            let mut admin = rig.admin(0, 0).await;
            let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
            for block in 1..=25 {
                let entry = queue.io(1, block * 2048, 1 << 18, 1);
                queue.submit(&entry, &vec![b'A'; 1 << 18]).await;
            }
            let entry = queue.io(1, 0, 4096, 1);
            queue.submit(&entry, &[b'A'; 4096]).await;
            rig.core.sleep(Duration::from_millis(300)).await;
            if is_reset {
                admin.set_property(0x14, 0x0046_0000).await.unwrap();
                let is_off = async { while admin.property(0x1c).await.unwrap() & 1 == 1 {} };
                within(&rig.core, MOMENT, is_off).await.expect("it is reset");
                admin.enable().await;
            } else {
                queue.stream.shutdown();
                drop(admin);
                admin = rig.admin(1, 0).await;
            }
            let mut next = rig.queue(usize::from(!is_reset), admin.controller, 1, 0, 0).await;
            next.write(0, &[b'B'; 4096]).await.unwrap();
            governed.set(&rig.core, QosLimits::default()).await;
            rig.core.sleep(Duration::from_millis(300)).await;
            assert_eq!(next.read(0, 4096).await.unwrap(), [b'B'; 4096], "reset: {is_reset}");
        }
    });
}

/// A host without a secret can connect too, and ask what there is.
#[test]
fn hosts_that_proved_nothing_make_way() {
    with_target(2, Limits::default(), async |rig| {
        let mut crowd = Vec::new();
        for _ in 0..300 {
            let mut stranger = Host::dial(&rig.core, rig.ports[0], 0).await;
            stranger.connect(0, u16::MAX, DISCOVERY_NQN, 31, 0).await.unwrap();
            crowd.push(stranger);
        }
        let mut admin = rig.admin(0, 0).await;
        rig.queue(0, admin.controller, 1, 0, 0).await.write(0, &[1; 512]).await.unwrap();
        assert!(admin.identify(1, 0).await.is_ok());
        // The last ones are there.
        crowd.last_mut().unwrap().enable().await;
    });
}

#[test]
fn hosts_that_go_in_the_middle_and_ones_that_take_nothing_hold_up_no_other() {
    let limits = Limits { drain_time_max: Duration::from_millis(200), ..Limits::default() };
    with_target(2, limits, async |rig| {
        let admin = rig.admin(0, 0).await;
        // In the middle of data; with a write that was asked for; with reads that are not taken.
        let mut cut = rig.queue(0, admin.controller, 1, 0, 0).await;
        let entry = cut.io(1, 0, 65536, 1);
        let bytes = cut.pdu(4, 0, &entry, &[9; 65536]);
        cut.send(&bytes[..30_000]).await;
        drop(cut);
        let mut asked = rig.queue(0, admin.controller, 2, 0, 0).await;
        for block in 0..16 {
            let entry = asked.io(1, block * 2048, 1 << 20, 0x5a);
            asked.submit(&entry, &[]).await;
        }
        let mut greedy = rig.queue(0, admin.controller, 3, 0, 0).await;
        for block in 0..60 {
            let entry = greedy.io(2, block * 2048, 1 << 20, 0x5a);
            greedy.submit(&entry, &[]).await;
        }
        let mut good = rig.queue(1, rig.admin_kept(1).await, 1, 0, 0).await;
        for block in 0..32 {
            good.write(block * 8, &pattern(block, 4096)).await.unwrap();
        }
        // Only as much is asked for as there is room for.
        let mut ready = 0;
        while let Some(Some(pdu)) = within(&rig.core, Duration::from_millis(100), asked.receive()).await {
            assert_eq!(pdu.kind, 9);
            ready += 1;
        }
        assert_eq!(ready, 4);
        drop(asked);
        for server in rig.servers {
            within(&rig.core, MOMENT, server.stop(&rig.core)).await.expect("it stops");
        }
        assert!(good.receive().await.is_none());
    });
}

#[test]
fn addresses_are_those_where_it_listens() {
    with_target(1, Limits::default(), async |rig| {
        let address: SocketAddr = format!("{LOCAL}:{}", rig.ports[0]).parse().unwrap();
        assert!(address.ip().is_loopback());
        assert_eq!(rig.servers[0].connections(), 0);
        let _admin = rig.admin(0, 0).await;
        assert_eq!(rig.servers[0].connections(), 1);
    });
}

#[test]
fn a_host_gets_nowhere_before_it_has_proved_who_it_is() {
    let secrets = NvmeSecrets::parse(&format!("{HOST} {SECRET}")).unwrap();
    let limits = Limits { handshake_time_max: Duration::from_secs(2), ..Limits::default() };
    with_guarded_target(2, limits, Some(secrets), async |rig| {
        let nqn = rig.subsystem.nqn();
        let dial = async || {
            let mut host = Host::dial(&rig.core, rig.ports[0], 0).await;
            host.connect(0, u16::MAX, nqn, 31, 0).await.unwrap();
            assert!(host.must_prove);
            host
        };
        let mut stranger = dial().await;
        assert_eq!(stranger.set_property(0x14, 0x0046_0001).await.unwrap_err() & 0xfff, 0x191);
        assert_eq!(stranger.identify(1, 0).await.unwrap_err() & 0xfff, 0x191);
        assert_eq!(stranger.prove(nqn, &[8; 32]).await, 0xf0);
        assert_eq!(stranger.identify(1, 0).await.unwrap_err() & 0xfff, 0x191);
        assert!(within(&rig.core, MOMENT, stranger.receive()).await.expect("it is closed").is_none());
        let mut admin = dial().await;
        assert_eq!(admin.prove(nqn, &[7; 32]).await, 3);
        admin.enable().await;
        let list = admin.identify(2, 0).await.unwrap();
        // Each queue for itself.
        let mut queue = Host::dial(&rig.core, rig.ports[0], 0).await;
        queue.connect(1, admin.controller, nqn, 63, 0).await.unwrap();
        queue.nsid = u32::from_le_bytes(list[..4].try_into().unwrap());
        assert_eq!(queue.read(0, 512).await.unwrap_err() & 0xfff, 0x191);
        assert_eq!(queue.prove(nqn, &[7; 32]).await, 3);
        queue.write(0, &[5; 512]).await.unwrap();
        assert!(queue.read(0, 512).await.unwrap() == [5; 512]);
        // Where the subsystem is, everybody may know.
        let mut discovery = Host::dial(&rig.core, rig.ports[1], 0).await;
        discovery.connect(0, u16::MAX, DISCOVERY_NQN, 31, 0).await.unwrap();
        assert!(!discovery.must_prove);
    });
}
