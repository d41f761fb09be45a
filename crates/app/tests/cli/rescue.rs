//! Arrays whose superblocks are gone or wrong: found, opened in an overlay, and their members as
//! they were.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

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

/// A report says what is not known of the array, which slot has no member, and why the status is
/// what it is.
#[test]
fn a_report_says_what_is_not_found_again() {
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    for member in &members {
        fs::File::options().write(true).open(member).unwrap().write_all_at(&[0; 4096], 4096).unwrap();
    }
    // The drive of slot 3 is lost, and of that of slot 0 a part was not read.
    let members = &members[1..];
    crate::copied::lose(&members[0], std::slice::from_ref(&(9 << 20..(9 << 20) + 4096)));
    let (dir, json, text) = (room.name("try"), room.name("report.json"), room.name("report.txt"));
    let findings = with("rescue", members, &["--json"]).json()["findings"].clone();
    let lacks_one = |finding: &Value| finding["members"].as_array().unwrap().iter().any(Value::is_null);
    let pick = 1 + findings.as_array().unwrap().iter().position(lacks_one).unwrap();
    let picked = pick.to_string();
    let said =
        with("rescue", members, &["--to-overlay", &dir, "--pick", &picked, "--report", &json, "--json"]).ok();
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(said.json()["loss"], report);
    let slots = said.json()["findings"][pick - 1]["members"].as_array().unwrap().clone();
    let missing: Vec<_> = (0..slots.len()).filter(|&slot| slots[slot].is_null()).collect();
    assert!(!missing.is_empty(), "{report:#}");
    assert_eq!(report["array"]["missing_slots"], serde_json::json!(missing), "{report:#}");
    assert_eq!((&report["array"]["written"], &report["command"]), (&pick.into(), &"rescue".into()));
    assert_eq!((&report["exit"]["status"], &report["members"][0]["unread_bytes"]), (&0.into(), &4096.into()));
    // Nothing is written without being told which; the report says so.
    let dir = room.name("unsure");
    with("rescue", members, &["--to-overlay", &dir, "--report", &text]).failed(1, "WTL-0166", &["--pick"]);
    let report = fs::read_to_string(&text).unwrap();
    for words in ["exit status 1 (WTL-0166)", "no superblocks were written", "a write-intent bitmap"] {
        assert!(report.contains(words), "{words}: {report}");
    }
    // What is there is not written over.
    with("rescue", members, &["--to-overlay", &dir, "--report", &text]).failed(
        3,
        "WTL-0161",
        &["is there already"],
    );
    let said = with("rescue", members, &["--report", &room.name("none")]);
    assert!(said.status == 2 && said.stderr.contains("--to-overlay"), "{}", said.stderr);
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
