//! What many TLS handshakes leave behind, in a process of its own: its memory is looked at.

use std::sync::Arc;
use std::time::Duration;

use crate::support::tls::{certificates, uri, whole};
use crate::support::{MIB, Rig, with_secured_server, within};
use wattle_export::nbd::{Client, Limits};
use wattle_rt::Stream;
use wattle_tls::{ServerTls, TlsClients};

const VOLUMES: &[(&str, u64, bool)] = &[("disk", MIB, false)];

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn a_thousand_handshakes_leave_nothing_behind() {
    let dir = whole();
    let tls = ServerTls::open(dir.path(), TlsClients::Certified).unwrap();
    with_secured_server(2, Limits::default(), VOLUMES, Some(Arc::new(tls)), async |rig: Rig| {
        let bare = certificates("ca.pem", None, None);
        let uri = uri(&rig.socket, &dir, "");
        let mut before = 0;
        for round in 0..250 {
            if round == 50 {
                // What the allocator keeps is there by now.
                before = resident_bytes();
            }
            let clients = (0..4).map(|ix| {
                let (core, socket) = (rig.core.clone(), rig.socket.clone());
                let (uri, bare) = (uri.clone(), self::uri(&socket, &bare, ""));
                rig.core.spawn(async move {
                    match (round + ix) % 4 {
                        0 => drop(Stream::connect_unix(&socket)),
                        1 => assert!(Client::connect_to_peer(&core, &bare).await.is_err()),
                        _ => drop(Client::connect_to_peer(&core, &uri).await.unwrap()),
                    }
                })
            });
            for client in clients.collect::<Vec<_>>() {
                client.await;
            }
        }
        let gone = async {
            while rig.server.connections() > 0 {
                rig.core.sleep(Duration::from_millis(50)).await;
            }
        };
        within(&rig.core, Duration::from_secs(20), gone).await.expect("connections go");
        let more = resident_bytes().saturating_sub(before);
        // Half a megabyte for each would be 400.
        assert!(more < 40 << 20, "{more} bytes more after 800 connections");
        Client::connect_to_peer(&rig.core, &uri).await.expect("the next one is served");
    });
}
