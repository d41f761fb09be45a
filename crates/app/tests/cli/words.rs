//! Names that every command understands, and messages that are said once and only where they fit.

use std::fs;

use crate::harness::{Room, Serve, require, run, said, tool, wattle};

/// A RAID 5 called `data` with the group `tank` and its volume `tank/home` on it.
fn group(room: &Room) -> Vec<String> {
    let members = room.array("5", 3);
    for words in ["vg create tank -s 1M", "lv create tank/home -l 10"] {
        let words = words.split(' ').map(str::to_owned);
        run(words.chain(members.clone()).chain(["--no-undo".to_owned()])).ok();
    }
    members
}

#[test]
fn status_stop_why_check_and_top_understand_the_same_names() {
    let room = Room::new();
    let members = group(&room);
    let serve = Serve::start(&room, &["--name", "both"], &members);
    let uuid = serve.array()["uuid"].as_str().unwrap().to_owned();
    for name in ["data", "tank", "tank/home", "both", &uuid] {
        let status = serve.command(&["status", name]).ok();
        assert!(status.text().starts_with("data  raid5"), "{name}: {}", status.text());
        let volume = !["data", &uuid].contains(&name);
        assert_eq!(
            status.text().contains("\ntank/home  10 MiB, read-write"),
            volume,
            "{name}: {}",
            status.text()
        );
        assert_eq!(serve.command(&["status", name, "--check"]).status, 0, "{name}");
        let why = serve.command(&["why", name]).ok();
        assert!(why.text().starts_with(&format!("data  {uuid}")), "{name}: {}", why.text());
        let slow = serve.command(&["why", name, "--slow", "--interval", "0.1"]).ok();
        assert!(slow.text().starts_with("data\n"), "{name}: {}", slow.text());
        let top = serve.command(&["top", name, "--count", "1", "--interval", "0.1"]).ok();
        assert!(top.text().contains("\ndata  raid5 [UUU]\n"), "{name}: {}", top.text());
        let check = serve.command(&["check", name, "--wait", "--json"]).ok().json();
        assert_eq!(check["array"]["name"], "data", "{name}");
        let set = serve.command(&["set", name, "sync_speed_max=1G"]).ok();
        assert!(set.stderr.contains("data: sync_speed_max is 1G"), "{name}: {}", set.stderr);
    }
    for name in ["tan", "tank/", "tank/hom", "data:p1", "tank/home:p1"] {
        for command in ["status", "why", "check", "stop", "top"] {
            let words = ["is being served", "data, tank/home"];
            serve.command(&[command, name]).failed(1, "WTL-0100", &words);
        }
    }
    serve.command(&["stop", "tank"]).ok();
}

/// A name that stands for several arrays is not guessed.
#[test]
fn a_group_on_two_arrays_has_no_one_array() {
    let room = Room::new();
    let make = |name: &str| -> Vec<String> {
        let members: Vec<_> = ["a", "b"].map(|m| room.device(&format!("{name}-{m}"), 16 << 20)).into();
        let words = ["create", name, "--level", "1", "--no-undo"].map(str::to_owned);
        run(words.into_iter().chain(members.clone())).ok();
        members
    };
    let members = [make("one"), make("two")].concat();
    let words = ["vg", "create", "tank", "--no-undo", "--on", "one", "--on", "two"].map(str::to_owned);
    run(words.into_iter().chain(members.clone())).ok();
    let words = ["lv", "create", "tank/home", "-l", "100%FREE", "--no-undo"].map(str::to_owned);
    run(words.into_iter().chain(members.clone())).ok();
    let serve = Serve::start(&room, &[], &members);
    serve.command(&["check", "tank"]).failed(2, "WTL-0007", &["tank lies on 2 arrays", "one, two"]);
    let why = serve.command(&["why", "tank/home"]).ok();
    assert!(why.text().contains("one  ") && why.text().contains("\ntwo  "), "{}", why.text());
    let status = serve.command(&["status", "tank"]).ok();
    assert!(
        status.text().contains("one  raid1") && status.text().contains("two  raid1"),
        "{}",
        status.text()
    );
    serve.command(&["stop", "one"]).ok();
}

#[test]
fn a_server_is_stopped_by_its_own_name() {
    let room = Room::new();
    let members = room.array("1", 2);
    let serve = Serve::start(&room, &["--name", "mine"], &members);
    let stop = serve.command(&["stop", "mine"]).ok();
    assert!(stop.stderr.contains("data is stopped"), "{}", stop.stderr);
}

/// `mkfs` is told of what holds nothing, and until something is written.
#[test]
fn a_file_system_is_suggested_only_where_nothing_is() {
    if !require("mkfs.ext4") || !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 3);
    let hint = "mkfs.xfs -d su=64k,sw=2";
    let serve = Serve::start(&room, &[], &members);
    assert!(serve.said.contains(hint), "{}", serve.said);
    assert!(serve.command(&["status"]).ok().text().contains(hint));
    let image = room.device("image", 30 << 20);
    tool("mkfs.ext4", ["-q", "-F", &image]);
    tool("nbdcopy", [&image, &serve.uri]);
    assert!(!serve.command(&["status"]).ok().text().contains("mkfs"));
    assert_eq!(serve.array()["blank"], false);
    serve.command(&["stop", "data"]).ok();
    drop(serve);
    let serve = Serve::start(&room, &[], &members);
    assert!(!serve.said.contains("mkfs"), "{}", serve.said);
    assert!(!serve.command(&["status"]).ok().text().contains("mkfs"));
}

/// What is being replaced did not fail, and a note that the command says is not said by the server
/// too.
#[test]
fn messages_are_said_once() {
    let room = Room::new();
    let members = room.array("5", 3);
    let (new, other) = (room.device("new", 16 << 20), room.device("other", 16 << 20));
    let mut serve = Serve::start(&room, &[], &members);
    let replaced = serve.command(&["replace", "data", "member-1", &new, "--wait"]).ok();
    assert!(replaced.stderr.contains("to take this back: wattle undo "), "{}", replaced.stderr);
    serve.command(&["fail", "data", "member-2"]).ok();
    serve.command(&["remove", "data", "member-2"]).ok();
    let added = serve.command(&["add", "data", &other, "--wait"]).ok();
    let checked = serve.command(&["check", "data", "--wait"]).ok();
    let status = serve.command(&["status"]).ok();
    assert_eq!(status.text().matches("check: done").count(), 1, "{}", status.text());
    let stopped = serve.command(&["stop", "data"]).ok();
    let server = serve.rest();
    let log: Vec<_> = server.lines().collect();
    let told = |what: &str| log.iter().filter(|line| line.contains(what)).count();
    assert_eq!(
        (told("member-1 (slot 1) was replaced"), told("member-1 (slot 1) failed")),
        (1, 0),
        "{server}"
    );
    assert_eq!((told("check started"), told("check: done"), told("check ended")), (1, 1, 0), "{server}");
    let clients = [replaced, added, checked, stopped].map(|said| said.stderr).concat();
    for line in clients.lines() {
        assert!(!log.contains(&line), "said twice: {line}\n{server}");
    }
}

/// Metadata 0.90 keeps the number of the device, and nothing else of a name.
#[test]
fn an_array_of_metadata_0_90_gets_the_number_it_is_named_by() {
    for (name, number, said) in [("1", 1, false), ("md7", 7, false), ("0", 0, false), ("data", 0, true)] {
        let room = Room::new();
        let members = room.blank(2, 16 << 20);
        let words = ["create", name, "--level", "1", "--metadata", "0.90", "--no-undo"].map(str::to_owned);
        let created = run(words.into_iter().chain(members.clone())).ok();
        assert!(created.text().starts_with(&format!("created md{number}  raid1")), "{}", created.text());
        assert_eq!(created.text().contains("keeps a number and no name"), said, "{}", created.text());
        let examined = run(["examine", "--json", &members[1]]).ok();
        assert!(examined.text().contains(&format!("\"md_minor\": {number}")), "{name}: {}", examined.text());
        let scanned = run(["scan".to_owned()].into_iter().chain(members)).ok();
        assert!(scanned.text().starts_with(&format!("md{number}  raid1")), "{}", scanned.text());
    }
}

/// A partition of a sparse file reads as zeros as the whole file does; one with a byte in it that
/// is not zero is not known to.
#[test]
fn an_array_on_sparse_partitions_is_clean() {
    let room = Room::new();
    // More than is read to find out.
    let disks = room.blank(3, 1 << 30);
    let words = ["partition", "--part", "1:1M+400M", "--no-undo"].map(str::to_owned);
    run(words.into_iter().chain(disks.clone())).ok();
    let create = |name: &str| {
        let members = disks.iter().map(|disk| format!("{disk}:p1"));
        let words = ["create", name, "--level", "5", "--dry-run", "--json"].map(str::to_owned);
        run(words.into_iter().chain(members)).ok().json()
    };
    assert_eq!(create("data")["clean"], true);
    let disk = fs::OpenOptions::new().write(true).open(&disks[1]).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&disk, b"x", 300 << 20).unwrap();
    assert_eq!(create("data")["clean"], false);
}

/// Where no directory is prepared the server has a private one, in which its command finds it.
#[test]
fn serve_run_needs_no_directory() {
    let room = Room::new();
    let tmp = room.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let mut command = wattle();
    // Nothing can be made there, by no user.
    command.env("XDG_RUNTIME_DIR", "/dev/null").env("TMPDIR", &tmp);
    let run = format!("{} status array --check && echo $uri", env!("CARGO_BIN_EXE_wattle"));
    command.args(["serve", "mem:16M", "mem:16M", "mem:16M", "--level", "5", "--run", &run]);
    let said = said(command.output().unwrap()).ok();
    assert!(said.text().contains(&format!("socket={}/wattle-", tmp.display())), "{}", said.text());
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "the directory is gone");
    assert!(!said.stderr.contains("will not find"), "{}", said.stderr);
}

/// An option that takes a name says which there are.
#[test]
fn help_lists_the_names_that_an_option_takes() {
    let help = |command: &str| {
        let said = run([command, "--help"]).ok();
        said.text().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let presets: Vec<&str> = wattle_drives::PRESETS.iter().map(|preset| preset.name).collect();
    let presets = match presets.split_last() {
        Some((last, others)) => format!("PRESET is {} or {last}.", others.join(", ")),
        None => unreachable!("there are drives"),
    };
    for command in ["plan", "simulate", "serve"] {
        assert!(help(command).contains(presets.trim_end_matches('.')), "{command}: {presets}");
    }
    assert!(help("plan").contains("mail, database, vm, media, backup or general"));
    for study in ["field-notes-a", "field-notes-c", "field-notes-e"] {
        assert!(help("simulate").contains(study), "{study}");
    }
    let keys = wattle_server::settings::KEYS.iter().map(|(key, ..)| *key).collect::<Vec<_>>().join(", ");
    assert!(help("set").contains(&keys), "{keys}");
}

#[test]
fn text_fits_the_terminal_and_stays_whole_elsewhere() {
    if !require("script") || !require("stty") {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 3);
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let whole = run(["scan", &members[0]]);
    let widest = |text: &str| text.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
    assert!(widest(whole.text()) > 90, "{}", whole.text());
    for columns in [60, 80, 100] {
        let command =
            format!("stty cols {columns} rows 50; {} scan {}", env!("CARGO_BIN_EXE_wattle"), members[0]);
        let mut terminal = std::process::Command::new("script");
        terminal.args(["-qec", &format!("{command} 2> /dev/null"), "/dev/null"]);
        terminal.env("NO_COLOR", "1").env_remove("COLUMNS").stdin(std::process::Stdio::null());
        let output = terminal.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap().replace('\r', "");
        assert!(widest(&text) <= columns, "{columns}: {text}");
        assert_eq!(words(&text), words(whole.text()), "{columns}: {text}");
    }
}
