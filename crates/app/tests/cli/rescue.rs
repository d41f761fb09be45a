//! Arrays whose superblocks are gone or wrong: found, opened in an overlay, and their members as
//! they were.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::harness::{Room, Said, Serve, fixtures, require, run, tool};
use crate::nbd::Client;

/// The fixture's members in another order; `None`, loudly, where they cannot be unpacked.
fn unpack(room: &Room) -> Option<Vec<String>> {
    require("zstd").then(|| {
        let unpack = |ix| {
            let image = room.name(&format!("disk-{ix}.img"));
            let packed = fixtures().join(format!("lvm-linear-on-raid5/member-{ix}.img.zst"));
            tool("zstd", ["-dq", packed.to_str().unwrap(), "-o", &image]);
            image
        };
        [3, 0, 4, 2, 1].into_iter().map(unpack).collect()
    })
}

fn with(command: &str, members: &[String], more: &[&str]) -> Said {
    run([command].into_iter().chain(members.iter().map(String::as_str)).chain(more.iter().copied()))
}

/// The file that the real kernel wrote comes out through the overlay.
#[track_caller]
fn opens(room: &Room, members: &[String]) {
    let dir = room.name("try");
    let overlay = ["--overlay", dir.as_str()];
    let report = room.untouched(|| with("rescue", members, &["--to-overlay", &dir, "--pick", "1", "--json"]));
    let report = report.ok().json();
    let found = &report["findings"][0];
    assert_eq!(
        (&found["level"], &found["chunk_bytes"]),
        (&"raid5".into(), &(256 << 10).into()),
        "{report:#}"
    );
    assert!(found["mdadm"].as_str().unwrap().contains("--assume-clean"));
    let file = ["-V", "foxtrot/home", "--path", "/proof.txt", "--to", "-"];
    let proof = room.untouched(|| with("get", members, &[&overlay[..], &file].concat())).ok();
    assert_eq!(proof.text(), "kept by linux\n");
}

#[test]
fn an_array_without_superblocks_is_opened_in_an_overlay() {
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    for member in &members {
        fs::File::options().write(true).open(member).unwrap().write_all_at(&[0; 4096], 4096).unwrap();
    }
    assert_eq!(with("scan", &members, &["--json"]).json()["arrays"].as_array().unwrap().len(), 0);
    // What is on it is not enough to be sure, so that nothing is written without being told what.
    let dir = room.name("unsure");
    let unsure = room.untouched(|| with("rescue", &members, &["--to-overlay", &dir]));
    let unsure = unsure.failed(1, "WTL-0166", &["--pick"]);
    assert!(
        unsure.text().contains("NOT TOLD APART") && unsure.text().contains("WHICH WRITES TO THE MEMBERS")
    );
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    opens(&room, &members);
}

#[test]
fn an_array_that_was_created_over_wrongly_is_opened_in_an_overlay() {
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    let wrong = ["--level", "5", "--chunk", "64K", "--assume-clean", "--force=signature", "--yes"];
    with("create", &[&["wrong".to_owned()][..], &members].concat(), &wrong).ok();
    opens(&room, &members);
}

/// Of an encrypted RAID 5 nothing tells the order. A wrong one that all superblocks name is not the
/// right one for that.
#[test]
fn superblocks_alone_make_nothing_certain() {
    let room = Room::new();
    let members = room.array("5", 8);
    let serve = Serve::start(&room, &[], &members);
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    let mut content: Vec<u8> = (0..24 << 20).map(|_| random()).collect();
    content[..8].copy_from_slice(b"LUKS\xBA\xBE\0\x02");
    let mut client = Client::connect(&serve.uri).unwrap();
    for (ix, piece) in content.chunks(1 << 20).enumerate() {
        client.write((ix as u64) << 20, piece).unwrap();
    }
    client.flush().unwrap();
    drop(client);
    serve.stop();
    let reversed: Vec<_> = members.iter().rev().cloned().collect();
    let wrong = ["--level", "5", "--chunk", "64K", "--assume-clean", "--force=signature", "--yes"];
    with("create", &[&["wrong".to_owned()][..], &reversed].concat(), &wrong).ok();
    let said = room.untouched(|| with("rescue", &members, &[])).failed(1, "WTL-0166", &["--pick"]);
    assert!(said.text().contains("superblocks say the same"), "{}", said.text());
}

#[test]
fn what_was_no_array_is_none() {
    let room = Room::new();
    let members = room.blank(3, 8 << 20);
    room.untouched(|| with("rescue", &members, &[])).failed(1, "WTL-0165", &["nothing speaks for any order"]);
    room.untouched(|| with("rescue", &members[..1], &[])).failed(2, "WTL-0008", &["1 members are given"]);
}
