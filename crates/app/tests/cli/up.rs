//! `wattle up`: configurations, drives that come late, and what a service manager is told.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Room, Said, run, said, tool, wattle};
use crate::nbd::Client;

/// Far more than anything here takes, for machines that are busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `wattle up`, killed when the test is done with it.
pub struct Up {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub said: String,
    runtime: PathBuf,
}

impl Up {
    pub fn start(room: &Room, args: &[&str], env: &[(&str, String)]) -> Self {
        let runtime = room.path("run");
        let mut command = wattle();
        command.arg("up").args(args).arg("--config").arg(room.path("etc"));
        command.arg("--runtime-dir").arg(&runtime).env("WATTLE_STATE_DIR", room.path("state"));
        command.envs(env.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr, said: String::new(), runtime }
    }

    /// Reads on until a line holds `word`.
    #[track_caller]
    pub fn until(&mut self, word: &str) -> &str {
        loop {
            let start = self.said.len();
            assert!(self.stderr.read_line(&mut self.said).unwrap() > 0, "no `{word}`: {}", self.said);
            if self.said[start..].contains(word) {
                return &self.said[start..];
            }
        }
    }

    pub fn command(&self, args: &[&str]) -> Said {
        said(wattle().args(args).arg("--runtime-dir").arg(&self.runtime).output().unwrap())
    }

    #[track_caller]
    pub fn array(&self, name: &str) -> Value {
        self.command(&["status", name, "--json"]).ok().json()["arrays"][0].clone()
    }

    #[track_caller]
    pub fn wait_until_good(&self, name: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let array = self.array(name);
            if array["health"] == "good" && array["sync"].is_null() {
                return array;
            }
            assert!(Instant::now() < deadline, "not good: {array:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Its exit status.
    pub fn end(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }

    #[track_caller]
    pub fn stop(mut self) {
        tool("kill", ["-TERM", &self.child.id().to_string()]);
        assert_eq!(self.end(), 0);
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Mostly it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file of the configuration of a room.
pub fn config(room: &Room, name: &str, text: &str) {
    fs::create_dir_all(room.path("etc")).unwrap();
    fs::write(room.path("etc").join(name), text).unwrap();
}

fn check(room: &Room, args: &[&str]) -> Said {
    let etc = room.name("etc");
    run([&["up", "--check", "--config", &etc], args].concat())
}

/// An array called `data` and a file that says so, with these lines besides.
fn room(level: &str, count: usize, more: &str) -> (Room, Vec<String>) {
    let room = Room::new();
    let members = room.array(level, count);
    let pattern = room.name("member-*");
    config(&room, "data.toml", &format!("arrays = ['data']\nmembers = ['{pattern}']\n{more}"));
    (room, members)
}

#[test]
fn a_scan_writes_what_up_serves() {
    let room = Room::new();
    let members = room.array("5", 3);
    let etc = room.name("etc");
    let scanned: Vec<_> =
        ["up", "--scan"].iter().map(|&word| word.to_owned()).chain(members.clone()).collect();
    let text = run(scanned.clone()).ok();
    assert!(text.text().contains("# data: raid5 of 3 members"), "{}", text.text());
    let to: Vec<_> = scanned.iter().cloned().chain(["--to".to_owned(), etc.clone()]).collect();
    run(to.clone()).ok();
    let written = fs::read_to_string(room.path("etc/data.toml")).unwrap();
    assert!(text.text().ends_with(&written), "{written}");
    // Never over one that is there.
    fs::write(room.path("etc/data.toml"), "arrays = ['mine']").unwrap();
    run(to).failed(3, "WTL-0161", &["data.toml"]);
    assert_eq!(fs::read_to_string(room.path("etc/data.toml")).unwrap(), "arrays = ['mine']");
    fs::write(room.path("etc/data.toml"), written).unwrap();
    assert!(check(&room, &[]).ok().stderr.contains("no fault"));
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    assert_eq!(up.array("data")["server"], "data");
    up.stop();
}

/// A file that claims what a stack has: the stack runs, and starts again.
#[test]
fn a_new_file_does_not_keep_a_stack_from_starting_again() {
    let (room, _) = room("1", 2, "");
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    config(&room, "a.toml", "arrays = ['data']\n");
    let (etc, dir) = (room.name("etc"), room.name("run"));
    let other = run(["up", "a", "--config", &etc, "--runtime-dir", &dir]);
    other.failed(2, "WTL-0255", &["a.toml:1: the array data is named twice", "data.toml:1 has it already"]);
    up.stop();
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    up.stop();
}

#[test]
fn every_fault_is_told_with_its_place_and_nothing_starts() {
    let room = Room::new();
    config(&room, "a.toml", "arrays = ['a']\nsize = 1\n\n[set]\nsync_speed_max = 'quick'\n");
    config(&room, "b.toml", "arrays = ['b'\n");
    config(&room, "c.toml", "arrays = ['c']\nexports = ['nbd=tcp:127.0.0.1:7']\n");
    config(&room, "d.toml", "arrays = ['C']\n\nexports = ['nbd=tcp:127.0.0.1:7']\n");
    config(&room, "e.toml", "arrays = ['e']\n");
    let words = [
        "a.toml:2: ",
        "WTL-0252",
        "a.toml:5: ",
        "WTL-0253",
        "b.toml:",
        "WTL-0251",
        "d.toml:1: ",
        "d.toml:3: ",
    ];
    check(&room, &[]).failed(2, "WTL-0255", &words);
    let json = check(&room, &["--json"]).json();
    let places: Vec<_> =
        json["errors"].as_array().unwrap().iter().map(|fault| fault["line"].as_u64()).collect();
    assert!(places.contains(&Some(5)), "{json:#}");
    assert_eq!(json["stacks"], serde_json::json!(["c", "e"]));
    assert!(check(&room, &["e"]).ok().stderr.contains("no fault"));
    check(&room, &["nothing"]).failed(2, "WTL-0256", &["there are c, d, e"]);
    let etc = room.name("etc");
    run(["up", "a", "--config", &etc]).failed(2, "WTL-0252", &["a.toml:2: "]);
    run(["up", "--config", &etc]).failed(2, "WTL-0252", &["a.toml:5: "]);
    run(["up", "--config", "/nowhere"]).failed(1, "WTL-0250", &["--scan"]);
}

/// "Look first, and restart then" needs a look that finds what keeps the stack from starting.
#[test]
fn a_check_finds_what_starting_would() {
    let room = Room::new();
    let none = room.name("none");
    for (line, words) in [
        ("exports = ['nbd=tcp:0.0.0.0:10809']".to_owned(), "reached from other machines"),
        ("metrics = '0.0.0.0:1234'".to_owned(), "insecure = true"),
        ("processors = '5-2'".to_owned(), "a list like"),
        ("processors = '8000'".to_owned(), "none of them can be used here"),
        (format!("passphrase-files = ['{none}']"), "No such file"),
        (format!("exports = ['fuse={none}']"), "it is not there"),
        (format!("exports = ['nbd=unix:{none}/socket']"), "it is not there"),
        ("exports = ['nbd=udp:1']".to_owned(), "why: `"),
    ] {
        config(&room, "a.toml", &format!("arrays = ['a']\n{line}\n"));
        let said = check(&room, &[]);
        assert!(said.status == 2 && said.stderr.contains("a.toml:2: "), "{line}: {}", said.stderr);
        assert!(said.stderr.contains(words), "{line}: {}", said.stderr);
    }
}

#[test]
fn a_stack_that_runs_is_left_alone() {
    let (room, _) = room("1", 2, "");
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    let pid = up.array("data")["pid"].clone();
    let (etc, runtime) = (room.name("etc"), room.name("run"));
    let again = ["up", "data", "--config", &etc, "--runtime-dir", &runtime];
    run(again).failed(3, "WTL-0258", &["wattle stop data"]);
    config(&room, "data.toml", "arrays = [\n");
    run(again).failed(2, "WTL-0251", &["data.toml:"]);
    assert_eq!(up.array("data")["pid"], pid);
    up.stop();
}

#[test]
fn drives_that_come_late_are_waited_for() {
    let (room, members) = room("5", 3, "[wait]\ntimeout = '10m'\n");
    let away = room.name("away");
    fs::rename(&members[2], &away).unwrap();
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("waiting up to 600 s for 1 of 3 members of data");
    fs::rename(&away, &members[2]).unwrap();
    assert!(!up.until("ready: ").contains("degraded"));
    assert_eq!(up.array("data")["slots"], "[UUU]");
    up.stop();
}

#[test]
fn what_happens_without_a_drive_is_the_files_to_say() {
    let (room, members) = room("5", 3, "[wait]\ntimeout = '1s'\nmissing = 'refuse'\n");
    fs::remove_file(&members[2]).unwrap();
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("WTL-0257");
    assert_eq!(up.end(), 1);
    let pattern = room.name("member-*");
    config(
        &room,
        "data.toml",
        &format!("arrays = ['data']\nmembers = ['{pattern}']\n[wait]\ntimeout = '1s'\n"),
    );
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("not there after 1 s: starting without");
    up.until("ready: ");
    assert_eq!(up.array("data")["slots"], "[UU_]");
    // What is recorded as missing is not waited for the next time.
    Client::connect(up.array("data")["exports"][0].as_str().unwrap()).unwrap().write(0, &[7; 4096]).unwrap();
    up.stop();
    config(
        &room,
        "data.toml",
        &format!("arrays = ['data']\nmembers = ['{pattern}']\n[wait]\ntimeout = '10m'\n"),
    );
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    assert!(!up.said.contains("waiting"), "{}", up.said);
    up.stop();
}

/// A stack of two arrays, of which one is not there at all: redundancy makes up for members only.
#[test]
fn half_a_stack_is_not_started() {
    let (room, _) = room("5", 3, "");
    let pattern = room.name("member-*");
    let text = format!("arrays = ['data', 'more']\nmembers = ['{pattern}']\n[wait]\ntimeout = '1s'\n");
    config(&room, "data.toml", &text);
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("no redundancy makes up for a whole array");
    assert_eq!(up.end(), 1);
    assert!(
        up.said.contains("WTL-0257") && up.said.contains("the array more not there after 1 s"),
        "{}",
        up.said
    );
}

/// Servers that accept a connection and say nothing are no members for now, within the time that
/// the file gives.
#[test]
fn silent_servers_do_not_hold_up_the_start() {
    let (room, members) = room("6", 4, "");
    let silent = ["one", "two"].map(|name| room.path(name));
    let _listening = silent.each_ref().map(|path| UnixListener::bind(path).unwrap());
    let uris = silent.map(|path| format!("nbd+unix:///?socket={}", path.display()));
    let names = [&members[2], &members[3], &uris[0], &uris[1]].map(|name| format!("'{name}'")).join(", ");
    let text = format!("arrays = ['data']\nmembers = [{names}]\n[wait]\ntimeout = '1s'\n");
    config(&room, "data.toml", &text);
    let begun = Instant::now();
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(up.array("data")["degraded"], 2);
}

#[test]
fn a_member_that_comes_after_the_start_is_brought_up_to_date_by_the_bitmap() {
    let (room, members) = room("5", 3, "[wait]\ntimeout = '0s'\n");
    let away = room.name("away");
    fs::rename(&members[1], &away).unwrap();
    let mut up = Up::start(&room, &["data"], &[]);
    let ready = up.until("ready: ");
    let uri = ready.trim().split("ready: ").nth(1).unwrap().to_owned();
    let mut client = Client::connect(&uri).unwrap();
    client.write(0, &[7; 4096]).unwrap();
    client.flush().unwrap();
    fs::rename(&away, &members[1]).unwrap();
    up.until("being brought up to date");
    let array = up.wait_until_good("data");
    // 16 MiB of member, of which one region was written.
    let written = array["members"][1]["traffic"]["write_bytes"].as_u64();
    assert!(written.is_none_or(|bytes| bytes < 9 << 20), "{array:#}");
    assert_eq!(client.read(0, 4096).unwrap(), [7; 4096]);
    drop(client);
    up.stop();
    assert_eq!(
        run(["scan", "--json"].iter().map(|&w| w.to_owned()).chain(members)).ok().json()["arrays"][0]["health"],
        "good"
    );
}

/// Nothing was written yet: by the drives alone it never was away.
#[test]
fn a_member_that_comes_before_the_first_write_is_taken() {
    let (room, members) = room("5", 3, "[wait]\ntimeout = '0s'\n");
    let away = room.name("away");
    fs::rename(&members[1], &away).unwrap();
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    assert_eq!(up.array("data")["slots"], "[U_U]");
    fs::rename(&away, &members[1]).unwrap();
    up.until("being brought up to date");
    up.wait_until_good("data");
    up.stop();
}

/// What another process does with a drive for a moment, a backup or a probe, is no reason to leave
/// it out for good.
#[test]
fn a_member_that_is_in_use_when_it_comes_is_tried_again() {
    let (room, members) = room("5", 3, "[wait]\ntimeout = '0s'\n");
    let away = room.name("away");
    fs::rename(&members[1], &away).unwrap();
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    let held = fs::File::open(&away).unwrap();
    held.lock_shared().unwrap();
    fs::rename(&away, &members[1]).unwrap();
    up.until("was not added: ");
    drop(held);
    up.until("being brought up to date");
    assert_eq!(up.said.matches("was not added: ").count(), 1, "{}", up.said);
    up.wait_until_good("data");
    up.stop();
}

#[test]
fn a_member_that_failed_stays_out_when_it_comes_again() {
    let (room, members) = room("5", 3, "");
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    up.command(&["fail", "data", &members[1]]).ok();
    up.command(&["remove", "data", &members[1]]).ok();
    let away = room.name("away");
    fs::rename(&members[1], &away).unwrap();
    // It has to be seen as gone.
    std::thread::sleep(Duration::from_secs(5));
    fs::rename(&away, &members[1]).unwrap();
    up.until("it stays out");
    assert_eq!(up.array("data")["slots"], "[U_U]");
    up.command(&["add", "data", &members[1]]).ok();
    up.wait_until_good("data");
    up.stop();
}

#[test]
fn spares_that_the_file_names_are_added() {
    let room = Room::new();
    let members = room.array("5", 3);
    let spare = room.device("spare", 16 << 20);
    let used = room.device("used", 16 << 20);
    tool("mkfs.ext4", ["-q", &used]);
    let quoted: Vec<_> = members.iter().map(|member| format!("'{member}'")).collect();
    let text =
        format!("arrays = ['data']\nmembers = [{}]\nspares = ['{spare}', '{used}']\n", quoted.join(", "));
    config(&room, "data.toml", &text);
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    up.until(" and was not added: ");
    assert!(up.said.contains("is a spare of"), "{}", up.said);
    let array = up.array("data");
    assert_eq!(array["spares"].as_array().unwrap().len(), 1, "{array:#}");
    up.stop();
    // It is a member now, and found as one.
    let mut up = Up::start(&room, &["data"], &[]);
    up.until(" and was not added: ");
    assert_eq!(up.array("data")["spares"][0]["member"], *spare);
    up.stop();
}

#[test]
fn several_stacks_have_a_process_each() {
    let room = Room::new();
    for name in ["one", "two"] {
        let members = ["a", "b"].map(|member| room.device(&format!("{name}-{member}"), 16 << 20));
        run(["create", name, "--level", "1", &members[0], &members[1]]).ok();
        let pattern = room.name(&format!("{name}-*"));
        config(&room, &format!("{name}.toml"), &format!("arrays = ['{name}']\nmembers = ['{pattern}']\n"));
    }
    let mut up = Up::start(&room, &[], &[]);
    up.until("ready: ");
    up.until("ready: ");
    let (one, two) = (up.array("one"), up.array("two"));
    assert_eq!((one["server"].as_str(), two["server"].as_str()), (Some("one"), Some("two")));
    assert_ne!(one["pid"], two["pid"]);
    up.stop();
    // A fault in one starts none.
    config(&room, "two.toml", "nonsense");
    let mut up = Up::start(&room, &[], &[]);
    up.until("two.toml:1: ");
    assert_eq!(up.end(), 2);
    // One that cannot start leaves the others.
    config(&room, "two.toml", &format!("members = ['{}']\n[wait]\ntimeout = '0s'\n", room.name("nothing")));
    let mut up = Up::start(&room, &[], &[]);
    up.until("two: ended with an error");
    let deadline = Instant::now() + PATIENCE;
    while up.command(&["status", "one"]).status != 0 {
        assert!(Instant::now() < deadline, "one does not run");
        std::thread::sleep(Duration::from_millis(50));
    }
    tool("kill", ["-TERM", &up.child.id().to_string()]);
    up.until("WTL-0260");
    assert_eq!(up.end(), 1);
}

#[test]
fn an_address_in_use_is_told_and_nothing_is_left_half_started() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (room, members) = room("1", 2, &format!("exports = ['nbd=tcp:127.0.0.1:{port}']\n"));
    let before: Vec<_> = members.iter().map(|member| fs::read(member).unwrap()).collect();
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("error[WTL-");
    assert!(up.said.contains(&port.to_string()), "{}", up.said);
    assert_eq!(up.end(), 1);
    let after: Vec<_> = members.iter().map(|member| fs::read(member).unwrap()).collect();
    assert!(before == after);
}

#[test]
fn checks_are_started_when_they_are_due() {
    let (room, _) = room("1", 2, "[scrub]\nevery = '7d'\noverdue = '8d'\n");
    let (etc, runtime) = (room.name("etc"), room.name("run"));
    let scrub = |what| run(["up", what, "--config", &etc, "--runtime-dir", &runtime]);
    scrub("--scrub").failed(1, "WTL-0100", &["systemctl start wattle@data"]);
    let json = |status| {
        let said = run(["up", "--scrub", "--json", "--config", &etc, "--runtime-dir", &runtime]);
        assert_eq!(said.status, status, "{}", said.stderr);
        said.json()
    };
    assert_eq!(json(1)["errors"][0]["code"], "WTL-0100");
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    scrub("--scrub-overdue").failed(1, "WTL-0259", &["no check or repair was ever done"]);
    let checked = json(0);
    let [array] = &checked["arrays"].as_array().unwrap()[..] else { panic!("{checked}") };
    assert_eq!((&array["due"], &array["scrub"]["outcome"]), (&true.into(), &"done".into()), "{checked}");
    assert!(scrub("--scrub").ok().stderr.contains("not due"));
    assert_eq!(json(0)["arrays"][0]["due"], false);
    scrub("--scrub-overdue").ok();
    up.stop();
}

#[test]
fn an_array_that_refuses_a_check_keeps_no_other_from_its_own() {
    let (room, _) = room("1", 2, "[scrub]\nevery = '7d'\n");
    let other = ["more-0", "more-1"].map(|name| room.device(name, 16 << 20));
    run(["create", "more", "--level", "1"].map(str::to_owned).into_iter().chain(other)).ok();
    let pattern = room.name("more-*");
    config(
        &room,
        "more.toml",
        &format!("arrays = ['more']\nmembers = ['{pattern}']\n[scrub]\nevery = '7d'\n"),
    );
    config(&room, "absent.toml", "arrays = ['absent']\n[scrub]\nevery = '7d'\n");
    let (mut data, mut more) = (Up::start(&room, &["data"], &[]), Up::start(&room, &["more"], &[]));
    data.until("ready: ");
    more.until("ready: ");
    data.command(&["set", "data", "sync_action=frozen"]).ok();
    let (etc, runtime) = (room.name("etc"), room.name("run"));
    let scrub = run(["up", "--scrub", "--config", &etc, "--runtime-dir", &runtime]);
    let said = scrub.failed(1, "WTL-0100", &["data: the check was not started", "more: check started"]);
    assert!(said.stderr.contains("the stack absent does not run"), "{}", said.stderr);
    data.stop();
    more.stop();
}

/// Every command of a unit, with a name for what systemd puts in: a page of `--help` has to know
/// every option of it.
#[test]
fn what_units_run_can_be_typed() {
    let units = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/systemd")).unwrap();
    let mut seen = 0;
    for unit in units.map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&unit).unwrap();
        let commands = text.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/wattle "));
        for command in commands {
            let words: Vec<_> =
                command.split_whitespace().filter(|word| !word.starts_with(['$', '%'])).collect();
            let (options, names): (Vec<_>, Vec<_>) =
                words.into_iter().partition(|word| word.starts_with("--"));
            let help = run(names.into_iter().chain(["--help"]));
            // Made elsewhere, and not there in every build.
            if help.status != 0 && ["alerts", "exporter"].iter().any(|name| command.starts_with(name)) {
                continue;
            }
            let help = help.ok();
            assert!(
                options.iter().all(|option| help.text().contains(option)),
                "{}: {command}",
                unit.display()
            );
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen} commands");
}

/// `/run` is empty after a boot: what the page has in it, a unit makes.
#[test]
fn the_directory_of_the_mount_that_the_page_shows_is_made_at_each_start() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let read = |name: &str| fs::read_to_string(format!("{root}{name}")).unwrap();
    assert!(read("docs/service.md").contains("fuse=/run/wattle-data"));
    assert!(read("guest/service").contains("fuse=/run/wattle-data"));
    assert!(
        read("contrib/systemd/wattle-fuse.conf").contains("ExecStartPre=-/bin/mkdir -p /run/wattle-%i\n")
    );
}

/// What a service manager hears until a message holds `word`.
#[track_caller]
fn heard(manager: &UnixDatagram, word: &str) -> Vec<String> {
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let len = manager.recv(&mut buffer).unwrap_or_else(|error| panic!("no {word}: {error}: {heard:?}"));
        heard.push(String::from_utf8(buffer[..len].to_vec()).unwrap());
        if heard.last().unwrap().contains(word) {
            return heard;
        }
    }
}

#[test]
fn a_service_manager_hears_how_it_goes() {
    let (room, members) = room("5", 3, "[wait]\ntimeout = '10m'\n");
    let manager = UnixDatagram::bind(room.path("notify")).unwrap();
    let away = room.name("away");
    fs::rename(&members[0], &away).unwrap();
    let env = [("NOTIFY_SOCKET", room.name("notify")), ("WATCHDOG_USEC", "300000".to_owned())];
    let mut up = Up::start(&room, &["data"], &env);
    let first = heard(&manager, "STATUS=waiting up to 600 s for 1 of 3 members of data");
    assert!(first.last().unwrap().contains("EXTEND_TIMEOUT_USEC="), "{first:?}");
    fs::rename(&away, &members[0]).unwrap();
    let ready = heard(&manager, "READY=1");
    assert_eq!(ready.last().unwrap(), "READY=1\nSTATUS=data raid5 [UUU] good");
    assert!(!ready.iter().any(|message| message.contains("WATCHDOG")), "{ready:?}");
    heard(&manager, "WATCHDOG=1");
    up.until("ready: ");
    up.command(&["fail", "data", "1"]).ok();
    heard(&manager, "STATUS=data raid5 [U_U] degraded");
    // One core that does not answer is enough for silence.
    let pid = up.child.id();
    tool("kill", ["-STOP", &pid.to_string()]);
    manager.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    while manager.recv(&mut [0; 64]).is_ok() {}
    tool("kill", ["-CONT", &pid.to_string()]);
    heard(&manager, "WATCHDOG=1");
    tool("kill", ["-TERM", &pid.to_string()]);
    heard(&manager, "STOPPING=1");
    assert_eq!(up.end(), 0);
}
