//! btrfs on several devices, as `guest/jobs/make-btrfs` had Linux write it: `scan`, `ls` and `get`
//! with devices missing, left behind and given twice. What the file system itself may look like is
//! tested in `crates/fs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::harness::{Room, Said, fixtures, require, run, tool};

/// The devices of a fixture, by name; `None` if they cannot be unpacked.
fn unpacked(room: &Room, fixture: &str, names: &[&str]) -> Option<Vec<String>> {
    if !require("zstd") {
        return None;
    }
    let unpack = |name: &&str| {
        let packed = fixtures().join(format!("btrfs/{fixture}/{name}.img.zst"));
        let image = room.name(name);
        tool("zstd", ["-dq", packed.to_str().unwrap(), "-o", &image]);
        image
    };
    Some(names.iter().map(unpack).collect())
}

fn files(command: &[&str], members: &[&str]) -> Said {
    run(command.iter().chain(members).copied())
}

/// What Linux showed: sums by path.
fn sums(path: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap();
    let line = |line: &str| line.split_once("  ").map(|(sum, path)| (path.to_owned(), sum.to_owned()));
    text.lines().map(|found| line(found).unwrap()).collect()
}

fn expected(fixture: &str, name: &str) -> BTreeMap<String, String> {
    sums(&fixtures().join(format!("btrfs/{fixture}/{name}.sha256")))
}

/// Gets everything, which has to come out, and returns what it said and the sums of the files.
fn got(room: &Room, to: &str, members: &[&str]) -> (Said, BTreeMap<String, String>) {
    let (out, list) = (room.name(to), room.name(&format!("{to}.sha256")));
    let said = files(&["get", "--to", &out, "--checksums", &list], members).ok();
    (said, sums(Path::new(&list)))
}

#[test]
fn the_files_come_out_with_any_device_missing() {
    let room = Room::new();
    let Some(devices) = unpacked(&room, "raid5-3d", &["device-1", "device-2", "device-3"]) else { return };
    let expected = expected("raid5-3d", "contents");
    let all: Vec<&str> = devices.iter().map(String::as_str).collect();
    let elsewhere = Room::new();
    let (said, found) = room.untouched(|| got(&elsewhere, "out-all", &[all[2], all[0], all[1]]));
    assert_eq!(found, expected);
    assert!(!said.stderr.contains("not here"), "{}", said.stderr);
    for missing in 0..3 {
        let here: Vec<&str> = (0..3).filter(|ix| *ix != missing).map(|ix| all[ix]).collect();
        let (said, found) = got(&room, &format!("out-{missing}"), &here);
        assert_eq!(found, expected);
        let told = format!("its device {} (", missing + 1);
        assert!(said.stderr.contains(&told) && said.stderr.contains("is not here"), "{}", said.stderr);
        let said = files(&["ls", "--json"], &here).ok().json();
        let states: Vec<_> = said["file_system"]["devices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|device| (device["id"].as_u64().unwrap(), device["state"].as_str().unwrap().to_owned()))
            .collect();
        let state = |ix: usize| if ix == missing { "missing" } else { "in use" };
        assert_eq!(states, (0..3).map(|ix| (ix as u64 + 1, state(ix).to_owned())).collect::<Vec<_>>());
    }
}

/// The file systems lie on what lies on the members: partitions, mirrors, what was created here.
#[test]
fn devices_that_are_volumes_on_members_are_found() {
    let room = Room::new();
    let Some(devices) = unpacked(&room, "raid5-3d", &["device-1", "device-2", "device-3"]) else { return };
    // A mirror whose members hold the device from their first byte on.
    let halves: Vec<String> = (0..2).map(|ix| room.device(&format!("half-{ix}"), 161 << 20)).collect();
    let args = ["create", "data", "--level", "1", "--metadata", "1.0", "--assume-clean"];
    run(args.into_iter().map(str::to_owned).chain(halves.clone())).ok();
    for half in &halves {
        tool(
            "dd",
            ["conv=notrunc", "status=none", "bs=1M", &format!("if={}", devices[1]), &format!("of={half}")],
        );
    }
    let members = [&*devices[0], &halves[0], &halves[1]];
    let (said, found) = got(&room, "out", &members);
    assert_eq!(found, expected("raid5-3d", "contents"));
    assert!(said.stderr.contains("its device 3 ("), "{}", said.stderr);
    let said = files(&["scan"], &members).ok();
    assert!(said.text().contains("btrfs photos  3 devices, 1 missing, uuid "), "{}", said.text());
    assert!(said.text().lines().any(|line| line.contains("2       in use") && line.ends_with("data")));
}

/// A device from before the others were written without it gives nothing old.
#[test]
fn a_device_that_was_away_is_told_and_gives_nothing_old() {
    let room = Room::new();
    let names = ["device-2-before", "device-1", "device-3"];
    let Some(devices) = unpacked(&room, "raid5-3d", &names) else { return };
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    let (said, found) = got(&room, "out", &devices);
    assert_eq!(found, expected("raid5-3d", "contents"));
    assert!(said.stderr.contains("its device 2 was last written with transaction "), "{}", said.stderr);
    let said = files(&["scan"], &devices).ok();
    assert!(said.text().contains("3 devices, 1 stale, "), "{}", said.text());
    // Alone it is what it was.
    files(&["get", "--to", &room.name("old")], &devices[..1]).failed(1, "WTL-0143", &["is on device"]);
    let old = expected("raid5-3d", "before");
    let notes = fs::read(room.path("old/note-7")).unwrap();
    assert_eq!(notes, b"note 7\n");
    assert!(old.contains_key("album/one") && !room.path("old/album/four").exists());
    // With the same device as it is now, that one is used.
    let now = unpacked(&room, "raid5-3d", &["device-2"]).unwrap();
    let (said, found) = got(&room, "both", &[devices[0], devices[1], &now[0]]);
    assert_eq!(found, expected("raid5-3d", "contents"));
    assert!(said.stderr.contains("its device 2 is given twice"), "{}", said.stderr);
}

/// Without one of two devices of a RAID 0 what is on the other comes out, and the rest is named
/// with its bytes; the report says which device is missing.
#[test]
fn beyond_redundancy_the_rest_is_named() {
    let room = Room::new();
    let Some(devices) = unpacked(&room, "raid0-2d", &["device-1", "device-2"]) else { return };
    let expected = expected("raid0-2d", "contents");
    let all: Vec<&str> = devices.iter().map(String::as_str).collect();
    assert_eq!(got(&room, "whole", &all).1, expected);
    for here in [0, 1] {
        let (to, report) = (room.name(&format!("out-{here}")), room.name(&format!("report-{here}.json")));
        let said =
            files(&["get", "--partial", "--to", &to, "--report", &report, "--json"], &all[here..=here]);
        let gone = format!("is on device {} of the file system, which is not here", 2 - here);
        let json = said.json();
        said.failed(1, "WTL-0143", &["extracted in part: large: ", &gone]);
        let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
        let device = &report["file_systems"][0]["devices"][1 - here];
        assert_eq!((&device["state"], &device["member"]), (&"missing".into(), &serde_json::Value::Null));
        assert_eq!(report["totals"]["partial"], json["not_extracted"].as_array().unwrap().len());
        let mut whole = 0;
        for (path, sum) in &expected {
            let out = Path::new(&to).join(path);
            let found = report["files"].as_array().unwrap().iter().find(|file| file["path"] == **path);
            match out.exists() {
                true => {
                    let said = tool("sha256sum", [out.to_str().unwrap()]);
                    assert!(said.starts_with(sum), "{path}");
                    whole += 1;
                }
                false => {
                    let parts = found.unwrap()["unreadable"].as_array().unwrap();
                    let partial = fs::read(Path::new(&to).join(format!("{path}.partial"))).unwrap();
                    assert!(!parts.is_empty(), "{path}");
                    for part in parts {
                        let [start, len] =
                            ["offset_bytes", "len_bytes"].map(|key| part[key].as_u64().unwrap() as usize);
                        assert!(partial[start..start + len].iter().all(|byte| *byte == 0), "{path}");
                    }
                }
            }
        }
        assert!(whole >= 9, "{whole} came out whole");
        let said = files(&["scan", "--json"], &all[here..=here]);
        assert_eq!(said.status, 1);
        let found = &said.json()["file_systems"][0];
        assert_eq!(found["problem"]["code"], "WTL-0310");
        assert!(found["lost_bytes"].as_u64().unwrap() > 0, "{found}");
    }
}

/// `scan` names both commands, and they are what works.
#[test]
fn scan_says_how_the_files_are_had() {
    let room = Room::new();
    let Some(devices) = unpacked(&room, "raid5-3d", &["device-1", "device-3"]) else { return };
    let stranger = room.device("stranger", 4 << 20);
    let members = [&*devices[0], &stranger, &devices[1]];
    let said = room.untouched(|| files(&["scan"], &members)).ok();
    let text = said.text();
    assert!(text.contains("btrfs photos  3 devices, 1 missing, uuid "), "{text}");
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with("2       missing  -") && line.contains(" uuid "))
    );
    let files_are = text.lines().find(|line| line.starts_with("Files are on btrfs photos (")).unwrap();
    let commands: Vec<&str> = files_are.split('`').skip(1).step_by(2).collect();
    let [ls, get] = commands[..] else { panic!("{files_are}") };
    assert_eq!(text.matches("Files are on").count(), 1, "{text}");
    let args = |command: &str| -> Vec<String> {
        let out = room.name("out");
        command
            .split(' ')
            .skip(1)
            .map(|word| if word == "DIR" { out.clone() } else { word.to_owned() })
            .collect()
    };
    let said = run(args(ls)).ok();
    assert!(said.text().contains("proof.txt\n"), "{}", said.text());
    run(args(get)).ok();
    assert_eq!(fs::read(room.path("out/proof.txt")).unwrap(), b"kept by linux\n");
}

/// Two halves of a mirror that were written apart are refused, and each is read alone.
#[test]
fn two_file_systems_of_several_devices_are_told_apart() {
    let room = Room::new();
    let Some(raid5) = unpacked(&room, "raid5-3d", &["device-3", "device-2-before"]) else { return };
    let raid0 = unpacked(&room, "raid0-2d", &["device-1", "device-2"]).unwrap();
    let members: Vec<&str> = [&raid0[0], &raid5[0], &raid0[1], &raid5[1]].map(String::as_str).to_vec();
    files(&["ls"], &members).failed(2, "WTL-0007", &["files are on"]);
    let said = files(&["ls", "-V", &raid0[1]], &members).ok();
    assert!(said.text().contains("large\n"), "{}", said.text());
    let said = files(&["ls", "-V", &raid5[0]], &members);
    assert!(said.text().contains("proof.txt\n"), "{}", said.stderr);
    let said = files(&["scan", "--json"], &members);
    assert_eq!(said.json()["file_systems"].as_array().unwrap().len(), 2);
}
