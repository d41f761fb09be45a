//! What every command keeps: help, usage errors, codes, JSON, colours, and hands off what it has no
//! business with.

use std::io::Write;
use std::process::Stdio;

use crate::harness::{Room, Serve, require, run, said, wattle};

const COMMANDS: [&str; 33] = [
    "scan",
    "examine",
    "create",
    "partition",
    "erase",
    "undo",
    "cat",
    "copy",
    "rescue",
    "ls",
    "get",
    "serve",
    "mount",
    "umount",
    "status",
    "top",
    "why",
    "stop",
    "fail",
    "remove",
    "add",
    "replace",
    "check",
    "repair",
    "set",
    "pv",
    "vg",
    "lv",
    "simulate",
    "bench",
    "plan",
    "audit",
    "explain",
];

/// The whole text, because it is the first thing that a user reads. Change it on purpose.
const HELP: &str = "\
Examples:
  wattle scan *.img                                  what is on these drives, and how it is
  wattle cat *.img > array.raw                       the array's bytes
  wattle serve *.img --export nbd=unix:/tmp/a.sock   the array for NBD clients, until Ctrl-C
  wattle serve mem:1G mem:1G mem:1G --level 5 --run 'nbdinfo \"$uri\"'
  truncate -s 1G a b c d && wattle create data a b c d --level 5
  wattle status
";

#[test]
fn every_command_has_help_that_ends_with_examples() {
    let help = run(["--help"]).ok();
    assert!(help.text().starts_with("Software RAID and volumes in user space"), "{}", help.text());
    assert!(help.text().ends_with(HELP), "{}", help.text());
    for command in COMMANDS {
        assert!(help.text().contains(&format!("\n  {command} ")), "{command} is not listed");
        for option in ["--help", "-h"] {
            let help = run([command, option]).ok();
            let (before, examples) = help.text().rsplit_once("\n\nExamples:\n").expect(command);
            assert!(before.contains("\nUsage: ") && !before.starts_with("Usage"), "{command}");
            assert!(examples.lines().all(|line| line.starts_with("  ")), "{command}: {examples}");
            assert!(help.stderr.is_empty());
        }
    }
}

#[test]
fn commands_that_do_not_work_yet_do_not_exist() {
    assert_eq!(run(["grow"]).status, 2);
}

#[test]
fn mistakes_on_the_command_line_are_status_2_and_say_so_on_stderr() {
    for command in COMMANDS {
        let said = run([command, "--no-such-option"]);
        assert_eq!(said.status, 2, "{command}");
        assert!(
            said.stdout.is_empty() && said.stderr.contains("--no-such-option"),
            "{command}: {}",
            said.stderr
        );
    }
    for args in [
        &["cat"][..],
        &["scan"],
        &["stop"],
        &["cat", "x", "--offset", "1.5"],
        &["cat", "x", "--force", "everything"],
        &["cat", "x", "--force"],
        &["serve", "x", "--export", "ublk=x"],
        &["serve", "x", "--cores", "0"],
        &["serve", "mem:1M", "--chunk", "4K"],
        &["create", "a", "b"],
        &["explain", "--units", "furlongs"],
    ] {
        assert_eq!(run(args).status, 2, "{args:?}");
    }
}

#[test]
fn a_member_that_is_not_there_is_named() {
    let room = Room::new();
    let missing = room.name("nowhere.img");
    for command in ["scan", "examine", "cat", "serve"] {
        room.untouched(|| run([command, &missing])).failed(1, "WTL-0020", &[&missing]);
    }
    let create = ["create", "data", &missing, &room.name("b"), "--level", "1"];
    room.untouched(|| run(create)).failed(1, "WTL-0020", &[&missing]);
}

#[test]
fn reports_in_json_have_a_version() {
    let room = Room::new();
    let members = room.array("5", 3);
    for command in [["scan", "--json"], ["examine", "--json"]] {
        let report =
            room.untouched(|| run(command.map(str::to_owned).into_iter().chain(members.clone()))).ok().json();
        assert_eq!(report["schema_version"], 1);
        assert!(report["members"][0]["size_bytes"].is_u64());
    }
    for command in [&["explain", "--json"][..], &["status", "--json", "--runtime-dir", "/nonexistent"]] {
        assert_eq!(run(command).ok().json()["schema_version"], 1, "{command:?}");
    }
    let dry =
        ["create", "data", "--level", "0", "--dry-run", "--json", "--force=signature"].map(str::to_owned);
    let plan = room.untouched(|| run(dry.into_iter().chain(members))).ok().json();
    assert_eq!((&plan["schema_version"], &plan["dry_run"]), (&1.into(), &true.into()));
    assert!(plan["members"][0]["writes"][0]["len_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn looking_changes_no_byte_and_no_colour_reaches_a_pipe() {
    let room = Room::new();
    let members = room.array("6", 4);
    room.untouched(|| {
        for command in ["scan", "examine", "cat"] {
            let said = run([command.to_owned()].into_iter().chain(members.clone())).ok();
            assert!(command == "cat" || !said.stdout.contains(&0x1b));
        }
        let coloured =
            run(["scan", "--color", "always"].map(str::to_owned).into_iter().chain(members.clone())).ok();
        assert!(coloured.stdout.contains(&0x1b));
    });
}

#[test]
fn units_are_the_ones_asked_for() {
    let room = Room::new();
    let members = room.array("1", 2);
    for (units, size) in [("b", "15728640 B"), ("iec", "15 MiB"), ("si", "15.72 MB")] {
        let said = run(["scan", "--units", units].map(str::to_owned).into_iter().chain(members.clone())).ok();
        assert!(said.text().contains(size), "{}", said.text());
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    // `wattle cat … | head` once ended with a panic about a broken pipe.
    let room = Room::new();
    let members = room.array("0", 2);
    for args in [&["cat"][..], &["examine"], &["explain"]] {
        let members = if args[0] == "explain" { &[][..] } else { &members };
        let mut child =
            wattle().args(args).args(members).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let said = said(child.wait_with_output().unwrap());
        assert_eq!((said.status, said.stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let room = Room::new();
    let members = room.array("0", 2);
    for args in [&["cat"][..], &["scan"], &["scan", "--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        said(wattle().args(args).args(&members).stdout(full).output().unwrap()).failed(
            1,
            "WTL-0105",
            &["No space left"],
        );
    }
}

#[test]
fn columns_count_where_the_terminal_tells_no_width() {
    if !require("script") {
        return;
    }
    let command = format!("{} explain WTL-0049", env!("CARGO_BIN_EXE_wattle"));
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("COLUMNS", "40").stdin(Stdio::null());
    let output = script.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let widest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
    assert!(text.starts_with("WTL-0049") && widest <= 40, "{widest}: {text}");
}

#[test]
fn help_is_a_word_too_and_has_to_arrive() {
    for (words, option) in
        [(&["help"][..], &["--help"][..]), (&["help", "lv", "create"], &["lv", "create", "--help"])]
    {
        assert_eq!(run(words).ok().text(), run(option).ok().text());
    }
    for option in ["--help", "--version"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        said(wattle().arg(option).stdout(full).output().unwrap()).failed(1, "WTL-0105", &["No space left"]);
    }
}

/// A monitor whose disk is full is told of the arrays all the same.
#[test]
fn the_status_of_a_check_is_of_the_arrays_whatever_becomes_of_its_text() {
    let room = Room::new();
    let serve = Serve::start(&room, &[], &room.array("1", 2));
    serve.wait_until_good();
    let dir = room.name("run");
    let check = |json: &[&str]| {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let words = [&["status", "data", "--check", "--runtime-dir", &dir][..], json].concat();
        let said = said(wattle().args(words).stdout(full).output().unwrap());
        assert!(said.stderr.contains("error[WTL-0105]"), "{}", said.stderr);
        said.status
    };
    assert_eq!([check(&[]), check(&["--json"])], [0, 0]);
    serve.stop();
}

#[test]
fn every_code_explains_itself() {
    let list = run(["explain"]).ok();
    for line in list.text().lines() {
        let (code, title) = line.split_once("  ").unwrap();
        let text = run(["explain", code]).ok();
        assert!(text.text().starts_with(&format!("{code}: {}\n\n", title.trim_start())), "{}", text.text());
    }
    run(["explain", "WTL-9999"]).failed(2, "WTL-0001", &["WTL-9999"]);
}

#[test]
fn nothing_served_is_told_apart_from_nothing_wrong() {
    let room = Room::new();
    let dir = room.name("run");
    let status = |args: &[&str]| run(["status"].iter().chain(args).copied().chain(["--runtime-dir", &dir]));
    assert!(status(&[]).ok().stdout.is_empty());
    assert_eq!(status(&["--check"]).status, 4);
    assert_eq!(status(&["--check", "data"]).status, 4);
    status(&["data"]).failed(1, "WTL-0100", &["data"]);
    run(["stop", "data", "--runtime-dir", &dir]).failed(1, "WTL-0100", &["data"]);
    for command in [
        &["fail", "data", "0"][..],
        &["remove", "data", "0"],
        &["add", "data", "d.img"],
        &["replace", "data", "0", "--with", "d.img"],
        &["check", "data"],
        &["check", "data", "--abort"],
        &["repair", "data", "--source", "data"],
        &["set", "data", "sync_speed_max=1000"],
    ] {
        let said = run(command.iter().copied().chain(["--runtime-dir", &dir]));
        said.failed(
            1,
            "WTL-0100",
            &["no array or volume called data is being served", "wattle serve MEMBER"],
        );
    }
    run(["why", "data", "--runtime-dir", &dir]).failed(1, "WTL-0100", &["nor is there a file"]);
    // A socket that a dead server left has no listener; a file that is no socket is no server.
    std::fs::create_dir(&dir).unwrap();
    drop(std::os::unix::net::UnixListener::bind(room.path("run/dead.sock")).unwrap());
    std::fs::File::create(room.path("run/file.sock")).unwrap().write_all(b"x").unwrap();
    assert_eq!(status(&["--check"]).status, 4);
}

/// Where JSON is wanted, a failure is JSON too, with the same three parts, and it is one document.
#[test]
fn failures_are_json_where_json_is_wanted() {
    let room = Room::new();
    let [member] = room.blank(1, 8 << 20).try_into().unwrap();
    let dir = room.name("run");
    let one_error = |args: &[&str], code: &str| {
        let said = run(args);
        let json = said.json();
        let errors = json["errors"].as_array().unwrap_or_else(|| panic!("{args:?}: {json}"));
        assert_eq!((json["schema_version"].as_u64(), errors.len()), (Some(1), 1), "{args:?}");
        assert_eq!(errors[0]["code"], code, "{args:?}: {json}");
        for part in ["what", "why", "next"] {
            assert!(errors[0][part].as_str().is_some_and(|text| !text.is_empty()), "{args:?}: {json}");
        }
        let shown = errors[0]["what"].as_str().unwrap();
        assert!(said.stderr.contains(shown) && said.status != 0, "{args:?}: {said:?}");
    };
    for (args, code) in [
        (&["ls", "--json", "nosuch"][..], "WTL-0020"),
        (&["get", "--json", &member, "--to", &room.name("out")], "WTL-0040"),
        (&["create", "data", "--level", "5", "--json", "nosuch"], "WTL-0020"),
        (&["status", "nosuch", "--json", "--runtime-dir", &dir], "WTL-0100"),
        (&["status", "nosuch", "--check", "--json", "--runtime-dir", &dir], "WTL-0100"),
        (&["lv", "list", "--json", "nosuch"], "WTL-0020"),
        (&["explain", "--json", "WTL-9999"], "WTL-0001"),
        (&["ls", "--json"], "WTL-0001"),
        (&["ls", "--json", "--nosuch", "x"], "WTL-0001"),
    ] {
        one_error(args, code);
    }
    // A report that tells what is wrong is the document, and none follows it.
    let scan = run(["scan", "--json", "nosuch"]);
    assert_eq!((scan.status, &scan.json()["members"][0]["problem"]["code"]), (1, &"WTL-0020".into()));
    // Nothing is said on the standard output where JSON is not wanted.
    assert!(run(["ls", "nosuch"]).stdout.is_empty());
    assert!(run(["ls", "--", "--json"]).stdout.is_empty());
}

/// Orders answer in JSON too, and a server tells when it is ready and where.
#[test]
fn orders_and_servers_speak_json() {
    let room = Room::new();
    let made_up = ["serve", "mem:8M", "mem:8M", "mem:8M", "--level", "5", "--json", "--run", "true"];
    let ready = run(made_up.iter().copied().chain(["--runtime-dir", &room.name("run")])).ok();
    assert_eq!(ready.text().lines().count(), 1, "{ready:?}");
    let ready = ready.json();
    assert_eq!((&ready["event"], ready["schema_version"].as_u64()), (&"ready".into(), Some(1)), "{ready}");
    let volume = &ready["volumes"][0];
    assert!(volume["size_bytes"].as_u64().unwrap() > 14 << 20, "{ready}");
    assert!(volume["exports"][0].as_str().unwrap().starts_with("nbd+unix://"), "{ready}");

    let serve = Serve::start(&room, &[], &room.array("5", 3));
    let order = |args: &[&str]| serve.command(&[args, &["--json"]].concat()).ok().json();
    let checked = order(&["check", "data", "--wait"]);
    assert_eq!(checked["array"]["scrubs"][0]["outcome"], "done", "{checked}");
    assert_eq!(order(&["set", "data"])["settings"]["read_deadline"], "2s");
    let said = |json: &serde_json::Value| json["messages"][0].as_str().unwrap().to_owned();
    assert!(said(&order(&["set", "data", "read_deadline=1s"])).contains("read_deadline"));
    assert!(said(&order(&["fail", "data", "2"])).contains("failed"));
    order(&["remove", "data", "2"]);
    let other = Room::new();
    let [new] = other.blank(1, 16 << 20).try_into().unwrap();
    let added = order(&["add", "data", &new, "--wait"]);
    assert_eq!(added["array"]["slots"], "[UUU]", "{added}");
    assert!(added["undo_log"].is_string(), "{added}");
    assert!(said(&order(&["stop", "data"])).contains("data"));
}
