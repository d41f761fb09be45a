//! Paths that are not UTF-8 are taken as they are: members, maps, and what is written.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Room, Said, Serve, require, run, tool};

/// Members whose names differ in bytes that are not UTF-8, and in nothing else.
fn members(room: &Room) -> Vec<PathBuf> {
    let name = |byte: u8| {
        let path = room.path("").join(OsStr::from_bytes(&[b'd', b' ', byte, 0xe9, b'\'', b'.', b'i']));
        fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
        path
    };
    [0xff, 0xfe, 0x80].into_iter().map(name).collect()
}

/// A name in JSON as the path that it stands for, as docs/operations.md says.
fn path_of(name: &Value) -> PathBuf {
    let mut bytes = Vec::new();
    for c in name.as_str().unwrap().chars() {
        match u32::from(c) {
            code @ 0xef80..=0xefff => bytes.push((code - 0xef00) as u8),
            _ => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn wattle<'a>(words: &str, more: impl IntoIterator<Item = &'a Path>) -> Said {
    let words = words.split_whitespace().map(OsString::from);
    run(words.chain(more.into_iter().map(|path| path.as_os_str().to_owned())))
}

fn paths(members: &[PathBuf]) -> impl Iterator<Item = &Path> {
    members.iter().map(PathBuf::as_path)
}

#[test]
fn an_array_on_members_of_any_name_is_made_served_shown_and_taken_back() {
    let room = Room::new();
    let (members, logs) = (members(&room), room.name("undo"));
    let bytes = |members: &[PathBuf]| members.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    let blank = bytes(&members);
    let create = format!("create data --level 5 --chunk 64K --undo {logs}");
    let created = wattle(&create, paths(&members)).ok();
    let shown = "d \\xff\\xe9'.i";
    let scan = wattle("scan", paths(&members)).ok();
    assert!(scan.text().contains(shown) && scan.text().contains("[UUU]"), "{}", scan.text());
    let scan = wattle("scan --json", paths(&members)).ok().json();
    let names: Vec<_> =
        scan["members"].as_array().unwrap().iter().map(|seen| path_of(&seen["member"])).collect();
    assert_eq!(names, members, "{scan:#}");
    wattle("examine --json", paths(&members)).ok();
    assert!(!wattle("cat", paths(&members)).ok().stdout.is_empty());
    wattle("why", paths(&members)).ok();

    let serve = Serve::start(&room, &[], &members);
    let served = serve.array();
    let served = served["members"].as_array().unwrap();
    let known: Vec<_> = served.iter().map(|member| path_of(&member["member"])).collect();
    assert_eq!(known, members, "{served:#?}");
    assert!(serve.command(&["status"]).ok().text().contains(shown));
    let order = |order: &str, member: &Path| {
        serve.command(&[OsStr::new(order), OsStr::new("data"), member.as_os_str()])
    };
    // Every option that takes a member.
    let member = members[0].as_os_str();
    let mostly = [OsStr::new("write_mostly="), member].join(OsStr::new(""));
    let options: [&[&OsStr]; 3] = [
        &["check".as_ref(), "data".as_ref(), "--bad-blocks".as_ref(), member],
        &["repair".as_ref(), "data".as_ref(), "--source".as_ref(), member],
        &["set".as_ref(), "data".as_ref(), &mostly],
    ];
    for words in options {
        let said = serve.command(words);
        assert!(!said.stderr.contains("UTF-8"), "{words:?}: {}", said.stderr);
    }
    let failed = order("fail", &members[1]).ok();
    assert!(failed.stderr.contains("d \\xfe\\xe9'.i"), "{}", failed.stderr);
    let array = serve.array();
    let states: Vec<_> = array["members"].as_array().unwrap().iter().map(|member| &member["state"]).collect();
    assert_ne!(states[1], states[0], "{array:#}");
    // One that is not there is another one, whose name differs in such a byte only.
    let other = room.path("").join(OsStr::from_bytes(b"d \xfd\xe9'.i"));
    let said = order("fail", &other);
    assert!(said.status != 0 && said.stderr.contains("d \\xfd\\xe9'.i"), "{}", said.stderr);
    order("remove", &members[1]).ok();
    // Its working directory is its own.
    order("add", &members[1]).ok();
    serve.wait_until_good();
    serve.stop();

    // By the names that the log has.
    fs::copy(&members[0], room.path("kept")).unwrap();
    wattle(&format!("erase --undo {logs}"), [members[0].as_path()]).ok();
    let listed = wattle(&format!("undo --json --undo {logs}"), []).ok().json();
    let log = &listed["logs"][0];
    assert_eq!(path_of(&log["members"][0]), members[0], "{log:#}");
    let undo = format!("undo {} --undo {logs}", log["log"].as_str().unwrap());
    wattle(&undo, []).ok();
    assert!(fs::read(&members[0]).unwrap() == fs::read(room.path("kept")).unwrap());
    let line =
        created.stderr.lines().find_map(|line| line.strip_prefix("wattle: to take this back: wattle undo "));
    let undo = format!("undo {} --force=written-since --no-undo", line.unwrap());
    let undone = wattle(&undo, []).ok();
    assert!(undone.text().contains(shown), "{}", undone.text());
    let scan = wattle("scan --json", paths(&members)).json();
    assert_eq!(scan["arrays"].as_array().unwrap().len(), 0, "{scan:#}");
    assert_eq!(bytes(&members)[0].len(), blank[0].len());
}

#[test]
fn files_come_out_of_members_of_any_name_and_copies_go_to_any_name() {
    let mke2fs = "/usr/sbin/mke2fs";
    if !Path::new(mke2fs).exists() && !require(mke2fs) {
        return;
    }
    let room = Room::new();
    let member = members(&room).remove(0);
    let tree = room.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "kept").unwrap();
    let args = ["-q", "-F", "-t", "ext4", "-d"].map(OsString::from).into_iter();
    tool(mke2fs, args.chain([tree.into_os_string(), member.clone().into_os_string()]));
    assert!(wattle("ls", [member.as_path()]).ok().text().contains("file"));
    let out = room.path("").join(OsStr::from_bytes(b"out-\xff"));
    let got = ["get".as_ref(), member.as_os_str(), "--to".as_ref(), out.as_os_str()];
    run(got).ok();
    assert_eq!(fs::read(out.join("file")).unwrap(), b"kept");
    // A report never goes over what is read, by whatever name.
    run([&got[..], &["--overwrite".as_ref(), "--report".as_ref(), member.as_os_str()]].concat()).failed(
        3,
        "WTL-0161",
        &["\\xff"],
    );
    let copy = room.path("").join(OsStr::from_bytes(b"copy-\xff"));
    run(["copy".as_ref(), "--raw".as_ref(), member.as_os_str(), "--to".as_ref(), copy.as_os_str()]).ok();
    assert!(fs::read(&copy).unwrap() == fs::read(&member).unwrap());
    // Its map is beside it, and is found there; or is named for it.
    let text = fs::read_to_string([copy.as_os_str(), OsStr::new(".map")].join(OsStr::new(""))).unwrap();
    let map = room.path("map");
    let whole = text.lines().rfind(|line| line.ends_with('+')).unwrap().to_owned();
    fs::write(&map, text.replace(&whole, "0x00000000  0x00001000  +\n0x00001000  0x00FFF000  -")).unwrap();
    let named = [copy.as_os_str(), OsStr::new("="), map.as_os_str()].join(OsStr::new(""));
    let said = run(["ls".as_ref(), copy.as_os_str(), "--map".as_ref(), named.as_os_str()]);
    assert!(said.status != 0 && said.stderr.contains("not read"), "{}", said.stderr);
    run(["ls".as_ref(), copy.as_os_str()]).ok();
}
