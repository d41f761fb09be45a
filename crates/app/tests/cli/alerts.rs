//! Alerts from the failure of a member to what receivers have: a web server, a program, and mail
//! through msmtp to a mail server.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::alert_sinks::{Behaviour, Sink};
use crate::harness::{Room, Said, Serve, require, said, wattle};

/// From the failure to every receiver.
const IN_TIME: Duration = Duration::from_secs(2);

/// A `wattle alerts watch` of a room, killed at its end.
struct Watch(Child);

impl Watch {
    fn start(room: &Room) -> Self {
        let watch = Self::start_anew(room);
        wait_until("it watches", || alerts(room, &["list", "--json"]).json()["watched"] == true);
        watch
    }

    /// The same, where what is kept cannot be listed yet.
    fn start_anew(room: &Room) -> Self {
        let log = fs::File::options().create(true).append(true).open(room.path("watch.log")).unwrap();
        let mut command = wattle();
        command.args(["alerts", "watch", "--config", &room.name("alerts.toml")]);
        command.arg("--runtime-dir").arg(room.path("run")).env("WATTLE_STATE_DIR", room.path("state"));
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self(child)
    }

    /// As `kill -9` does it.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn alerts(room: &Room, args: &[&str]) -> Said {
    let mut command = wattle();
    command.arg("alerts").args(args).env("WATTLE_STATE_DIR", room.path("state"));
    if args[0] == "test" || args[0] == "watch" {
        command.arg("--config").arg(room.path("alerts.toml"));
    }
    said(command.output().unwrap())
}

fn raised(room: &Room) -> Vec<(u64, String)> {
    let list = alerts(room, &["list", "--json"]).ok().json();
    let alerts = list["alerts"].as_array().unwrap().iter();
    alerts.map(|alert| (alert["id"].as_u64().unwrap(), alert["kind"].as_str().unwrap().to_owned())).collect()
}

#[track_caller]
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < until, "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn script(room: &Room, name: &str, text: &str) -> PathBuf {
    let path = room.path(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn configure(room: &Room, channels: &str) {
    fs::write(room.path("alerts.toml"), format!("mdadm_conf = \"none\"\nhost = \"nas\"\n{channels}"))
        .unwrap();
}

fn webhook(sink: &Sink) -> String {
    format!("[[webhook]]\nurl = \"http://127.0.0.1:{}/hook\"\nat_least = \"info\"\n", sink.port)
}

/// A program that notes its arguments.
fn program(room: &Room) -> String {
    let told = room.name("told");
    let path = script(room, "program", &format!("#!/bin/sh\necho \"$# $*\" >> {told}\n"));
    format!("[[program]]\npath = \"{}\"\n", path.display())
}

fn told(room: &Room) -> String {
    fs::read_to_string(room.path("told")).unwrap_or_default()
}

/// msmtp as sendmail, to this mail server.
fn mail(room: &Room, sink: &Sink) -> String {
    let conf = format!("account default\nhost 127.0.0.1\nport {}\nfrom wattle@example.org\n", sink.port);
    fs::write(room.path("msmtprc"), conf).unwrap();
    let text = format!("#!/bin/sh\nexec msmtp -C {} \"$@\"\n", room.name("msmtprc"));
    let path = script(room, "sendmail", &text);
    format!(
        "[[mail]]\nto = [\"admin@example.org\"]\nfrom = \"wattle@example.org\"\nsendmail = \"{}\"\n",
        path.display()
    )
}

/// Every channel has the failure of a member in time, so many times; beside other tests some may be
/// late.
fn failures_arrive_in_time(runs: usize, may_be_late: usize) {
    if !require("msmtp") {
        return;
    }
    let mut times = Vec::new();
    for _ in 0..runs {
        let (room, web, post) = (Room::new(), Sink::web(Behaviour::Takes), Sink::mail());
        configure(&room, &[webhook(&web), program(&room), mail(&room, &post)].concat());
        let members = room.array("1", 2);
        let serve = Serve::start(&room, &[], &members);
        let _watch = Watch::start(&room);
        web.wait_for("NewArray");
        let failed = Instant::now();
        serve.command(&["fail", "data", "1"]).ok();
        let came = [web.wait_for("\"event\":\"Fail\"").at, post.wait_for("Subject: Fail: data on nas").at];
        wait_until("the program ran", || {
            told(&room).contains(&format!("3 Fail /dev/md/data {}", members[1]))
        });
        let came = came.into_iter().chain([Instant::now()]).map(|at| at - failed).max().unwrap();
        times.push(came);
        serve.stop();
    }
    times.sort_unstable();
    let longest = times[runs - 1 - may_be_late];
    assert!(longest < IN_TIME, "it took {times:?}");
    eprintln!("{runs} failures of a member reached web server, program and mail server within {longest:?}");
}

#[test]
fn a_failure_reaches_every_channel_within_two_seconds() {
    failures_arrive_in_time(5, 2);
}

/// `make alerts`.
#[test]
#[ignore = "minutes"]
fn fifty_failures_reach_every_channel_within_two_seconds() {
    failures_arrive_in_time(50, 0);
}

/// Receivers that are down, slow or answer 500 for so long get each alert once.
fn receivers_in_trouble(trouble: Duration) {
    let room = Room::new();
    let kinds = [Behaviour::Closes, Behaviour::TakesLate(trouble), Behaviour::Answers500, Behaviour::Takes];
    let sinks = kinds.map(Sink::web);
    configure(&room, &sinks.each_ref().map(webhook).concat());
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &[], &members);
    let _watch = Watch::start(&room);
    sinks[3].wait_for("NewArray");
    let failed = Instant::now();
    serve.command(&["fail", "data", "1"]).ok();
    // The one that is well is not held back.
    let well = sinks[3].wait_for("\"event\":\"Fail\"").at - failed;
    assert!(well < IN_TIME, "it took {well:?}");
    thread::sleep(trouble.saturating_sub(failed.elapsed()));
    sinks.iter().for_each(|sink| sink.behave(Behaviour::Takes));
    for sink in &sinks {
        sink.wait_for("\"event\":\"Fail\"");
    }
    assert!(sinks[0].attempts() > 1 && sinks[2].attempts() > 1, "they were tried again");
    // Nothing comes a second time.
    thread::sleep(Duration::from_secs(3));
    for sink in &sinks {
        let events: Vec<Value> =
            sink.taken().iter().map(|received| serde_json::from_str(&received.body).unwrap()).collect();
        let count = |event: &str| events.iter().filter(|value| value["event"] == event).count();
        assert_eq!((count("NewArray"), count("Fail")), (1, 1), "{events:#?}");
    }
    let list = alerts(&room, &["list", "--json"]).ok().json();
    for channel in list["channels"].as_array().unwrap() {
        assert_eq!(channel["owed"], 0, "{channel:#}");
    }
    serve.stop();
}

#[test]
fn receivers_that_are_down_slow_or_answer_500_get_each_alert_once() {
    receivers_in_trouble(Duration::from_secs(4));
}

/// `make alerts`.
#[test]
#[ignore = "minutes"]
fn receivers_in_trouble_for_a_minute_get_each_alert_once() {
    receivers_in_trouble(Duration::from_secs(60));
}

/// Between the record and the delivery, the process that watches is killed.
#[test]
fn what_is_owed_survives_a_kill_and_arrives_once() {
    let (room, sink) = (Room::new(), Sink::web(Behaviour::Answers500));
    configure(&room, &webhook(&sink));
    let members = room.array("1", 2);
    let serve = Serve::start(&room, &[], &members);
    let watch = Watch::start(&room);
    wait_until("it is tried", || sink.attempts() > 0);
    serve.command(&["fail", "data", "1"]).ok();
    wait_until("it is recorded", || raised(&room).iter().any(|(_, kind)| kind == "Fail"));
    watch.kill();
    sink.behave(Behaviour::Takes);
    let _watch = Watch::start(&room);
    sink.wait_for("\"event\":\"Fail\"");
    thread::sleep(Duration::from_secs(1));
    let count = |text: &str| sink.taken().iter().filter(|received| received.body.contains(text)).count();
    assert_eq!((count("\"NewArray\""), count("\"event\":\"Fail\"")), (1, 1));
    // Started again, it says nothing that it said before.
    drop(_watch);
    let _watch = Watch::start(&room);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(sink.taken().len(), 2, "{:#?}", sink.taken());
    serve.stop();
}

#[test]
fn an_alert_lasts_until_it_is_over_and_comes_again_with_a_degraded_start() {
    let room = Room::new();
    configure(&room, &program(&room));
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &[], &members);
    let watch = Watch::start(&room);
    wait_until("it is seen", || told(&room).contains("2 NewArray /dev/md/data"));
    // A second one waits.
    let mut second = wattle();
    second.args(["alerts", "watch", "--json", "--config", &room.name("alerts.toml")]);
    second.arg("--runtime-dir").arg(room.path("run")).env("WATTLE_STATE_DIR", room.path("state"));
    let mut second = Watch(second.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    let stdout = second.0.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["what"], "standby");
    second.kill();
    serve.command(&["fail", "data", "1"]).ok();
    wait_until("it fails", || told(&room).contains(&format!("3 Fail /dev/md/data {}", members[1])));
    let (id, _) = raised(&room)[0].clone();
    alerts(&room, &["ack", &id.to_string()]).ok();
    alerts(&room, &["ack", "4711"]).failed(2, "WTL-0239", &["there is no alert 4711"]);
    // A degraded start is told, whatever was acknowledged.
    serve.stop();
    let serve = Serve::start(&room, &[], &[members[0].clone(), members[2].clone()]);
    wait_until("it starts", || told(&room).contains("2 DegradedArray /dev/md/data"));
    let list = alerts(&room, &["list"]).ok();
    assert!(list.text().contains("critical Fail: acknowledged"), "{}", list.text());
    assert!(list.text().contains("data [U_U] is degraded, found when its server started"), "{}", list.text());
    assert!(list.text().contains("  why: no redundancy is left"), "{}", list.text());
    // What was told before is not told again by another watch, once it is recorded that it arrived.
    wait_until("it is recorded", || !alerts(&room, &["list"]).ok().text().contains("owed 1"));
    watch.kill();
    let before = told(&room);
    let watch = Watch::start(&room);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(told(&room), before);
    let new = room.device("new", 16 << 20);
    serve.command(&["add", "data", &new, "--wait"]).ok();
    wait_until("it is over", || told(&room).contains("Recovered /dev/md/data"));
    assert!(raised(&room).is_empty(), "{:?}", raised(&room));
    assert!(alerts(&room, &["list", "--all"]).ok().text().contains("critical DegradedArray: over since"));
    serve.stop();
    drop(watch);
}

#[test]
fn a_server_that_is_killed_is_told_and_one_that_is_stopped_is_not() {
    let room = Room::new();
    configure(&room, &program(&room));
    let members = room.array("1", 2);
    let serve = Serve::start(&room, &[], &members);
    let _watch = Watch::start(&room);
    wait_until("it is seen", || told(&room).contains("NewArray"));
    let killed = Instant::now();
    serve.kill();
    wait_until("it is told", || told(&room).contains("2 DeviceDisappeared /dev/md/data"));
    assert!(killed.elapsed() < IN_TIME, "it took {:?}", killed.elapsed());
    let serve = Serve::start(&room, &[], &members);
    wait_until("it is over", || told(&room).contains("Recovered"));
    let before = told(&room);
    serve.stop();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(told(&room), before, "it said good-bye");
}

/// A mirror with a file system on it, of whose file `/home/struck` one member has other bytes.
pub fn struck(room: &Room) -> Vec<String> {
    let members = room.array("1", 2);
    // A file system whose one large file holds a word that is found on the member.
    let (tree, image) = (room.path("tree"), room.path("image"));
    fs::create_dir_all(tree.join("home")).unwrap();
    fs::write(tree.join("home/struck"), b"WHERE-IT-LIES ".repeat(60_000)).unwrap();
    fs::write(tree.join("home/spared"), b"elsewhere ".repeat(60_000)).unwrap();
    let serve = Serve::start(room, &[], &members);
    let size = serve.array()["size_bytes"].as_u64().unwrap();
    fs::File::create(&image).unwrap().set_len(size).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-d"]).arg(&tree).arg(&image).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut client = crate::nbd::Client::connect(&serve.uri).unwrap();
    let bytes = fs::read(&image).unwrap();
    for (ix, part) in bytes.chunks(1 << 20).enumerate() {
        client.write((ix << 20) as u64, part).unwrap();
    }
    client.flush().unwrap();
    drop(client);
    serve.stop();
    let member = fs::read(&members[1]).unwrap();
    let word = b"WHERE-IT-LIES ";
    let lies = member.windows(word.len()).position(|window| window == word).unwrap();
    let file = fs::File::options().write(true).open(&members[1]).unwrap();
    file.write_all_at(&[0x5a; 512], (lies + 100_000) as u64).unwrap();
    members
}

#[test]
fn a_mismatch_names_the_files_that_lie_there() {
    if !require("mkfs.ext4") {
        return;
    }
    let room = Room::new();
    configure(&room, &webhook(&Sink::web(Behaviour::Takes)));
    let sink = Sink::web(Behaviour::Takes);
    configure(&room, &webhook(&sink));
    let members = struck(&room);
    let serve = Serve::start(&room, &[], &members);
    let _watch = Watch::start(&room);
    serve.command(&["check", "data", "--wait"]);
    let told: Value = serde_json::from_str(&sink.wait_for("\"event\":\"MismatchFound\"").body).unwrap();
    assert_eq!(told["files"], serde_json::json!(["/home/struck"]), "{told:#}");
    assert!(told["why"].as_str().unwrap().contains("/home/struck"), "{told:#}");
    serve.stop();
}

/// Of file systems that no mount of this machine shows, on an array and on a logical volume.
#[test]
fn a_volume_that_is_nearly_full_is_told() {
    if !require("mkfs.ext4") {
        return;
    }
    let room = Room::new();
    let sink = Sink::web(Behaviour::Takes);
    configure(&room, &webhook(&sink));
    let (tree, image) = (room.path("tree"), room.path("image"));
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("large"), vec![7; 28 << 20]).unwrap();
    let made = |size: u64| {
        fs::File::create(&image).unwrap().set_len(size).unwrap();
        let mut make = Command::new("mkfs.ext4");
        let made =
            make.args(["-q", "-m", "0", "-O", "^has_journal", "-d"]).arg(&tree).arg(&image).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    };
    let members = room.blank(2, 48 << 20);
    let words = |words: &str| words.split(' ').map(str::to_owned).chain(members.clone()).collect::<Vec<_>>();
    for command in [
        "create data --level 1 --assume-clean",
        "vg create tank -s 4M --no-undo",
        "lv create tank/home -L 32M --no-undo",
        "lv create tank/empty -L 8M --no-undo",
    ] {
        crate::harness::run(words(command)).ok();
    }
    let serve = Serve::start(&room, &["-V", "tank/home", "-V", "tank/empty"], &members);
    let export = |name: &str| {
        let status = serve.command(&["status", "--json"]).ok().json();
        let volumes = status["volumes"].as_array().unwrap().clone();
        let volume = volumes.into_iter().find(|volume| volume["name"] == name).unwrap();
        volume["exports"][0].as_str().unwrap().to_owned()
    };
    made(32 << 20);
    crate::harness::tool("nbdcopy", ["--flush", image.to_str().unwrap(), &export("tank/home")]);
    let _watch = Watch::start(&room);
    let told: Value = serde_json::from_str(&sink.wait_for("\"event\":\"VolumeFull\"").body).unwrap();
    let what = told["what"].as_str().unwrap();
    assert!(what.starts_with("tank/home: the file system on it is 9"), "{told:#}");
    assert!(!alerts(&room, &["list", "--json"]).ok().text().contains("tank/empty"));
    serve.stop();
}

#[test]
fn a_test_says_what_arrived_and_what_did_not() {
    let (room, sink) = (Room::new(), Sink::web(Behaviour::Takes));
    configure(&room, &[webhook(&sink), program(&room)].concat());
    let good = alerts(&room, &["test", "--json"]).ok().json();
    assert!(
        good["channels"].as_array().unwrap().iter().all(|channel| channel["arrived"] == true),
        "{good:#}"
    );
    sink.wait_for("TestMessage");
    assert!(told(&room).contains("2 TestMessage /dev/md/nas"), "{}", told(&room));
    sink.behave(Behaviour::Answers500);
    let bad = alerts(&room, &["test"]).failed(1, "WTL-0237", &["1 of 2 channels", "the server answered 500"]);
    assert!(bad.text().contains("program") && bad.text().contains("took it"), "{}", bad.text());
    configure(&room, "");
    alerts(&room, &["test"]).failed(2, "WTL-0240", &["no channel"]);
}

#[test]
fn settings_that_are_wrong_are_named_with_their_line() {
    let room = Room::new();
    for (channels, line) in
        [("[[webhook]]\nurl = \"not a url\"\n", "line 4"), ("repeats = \"1d\"\n", "line 3")]
    {
        configure(&room, channels);
        alerts(&room, &["test"]).failed(2, "WTL-0235", &[line]);
        alerts(&room, &["watch"]).failed(2, "WTL-0235", &[line]);
    }
    // A name with a slip of the pen is no file without channels.
    fs::remove_file(room.path("alerts.toml")).unwrap();
    for command in ["test", "watch"] {
        alerts(&room, &[command]).failed(2, "WTL-0235", &["alerts.toml", "no such file"]);
    }
}

/// A token that is gone, or that others can read, is one channel's trouble.
#[test]
fn a_channel_without_its_token_keeps_no_other_from_delivering() {
    let room = Room::new();
    let webhook = "[[webhook]]\nurl = \"https://h/\"\ntoken_file = \"/nowhere/token\"\n";
    configure(&room, &[webhook, &program(&room)].concat());
    let said = alerts(&room, &["test"]).failed(1, "WTL-0237", &["1 of 2 channels", "line 5: the token file"]);
    assert!(said.text().contains("program") && said.text().contains("took it"), "{}", said.text());
    let _watch = Watch::start(&room);
    let serve = Serve::start(&room, &[], &room.array("1", 2));
    wait_until("it is told", || told(&room).contains("NewArray"));
    let log = fs::read_to_string(room.path("watch.log")).unwrap();
    assert!(log.contains("line 5: the token file /nowhere/token cannot be used"), "{log}");
    serve.stop();
}

/// What wrote it is a later version, or a disk that lost it.
#[test]
fn what_is_kept_is_left_alone_or_put_aside() {
    let room = Room::new();
    configure(&room, &program(&room));
    fs::create_dir_all(room.path("state")).unwrap();
    let kept = room.path("state").join("alerts.json");
    fs::write(&kept, r#"{"schema_version":99,"alerts":"in another form"}"#).unwrap();
    for args in [&["list"][..], &["ack", "ALL"], &["test"], &["watch"]] {
        alerts(&room, args).failed(1, "WTL-0238", &["a later version wrote it"]);
    }
    assert!(fs::read_to_string(&kept).unwrap().contains("in another form"));
    fs::write(&kept, r#"{"schema_version":1,"next"#).unwrap();
    alerts(&room, &["list"]).failed(1, "WTL-0238", &["is damaged"]);
    alerts(&room, &["ack", "ALL"]).failed(1, "WTL-0238", &["is damaged"]);
    assert_eq!(fs::read_to_string(&kept).unwrap(), r#"{"schema_version":1,"next"#);
    let _watch = Watch::start_anew(&room);
    let aside = room.path("state").join("alerts.json.damaged");
    wait_until("it is put aside", || aside.exists());
    let serve = Serve::start(&room, &[], &room.array("1", 2));
    wait_until("it is told", || told(&room).contains("NewArray"));
    let log = fs::read_to_string(room.path("watch.log")).unwrap();
    assert!(log.contains("what was kept of alerts is damaged"), "{log}");
    serve.stop();
}

/// Prometheus' own Alertmanager takes alerts, and takes them for over.
#[test]
fn an_alertmanager_has_what_is_raised_and_what_is_over() {
    if !require("prometheus-alertmanager") {
        return;
    }
    let room = Room::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fs::write(room.path("am.yml"), "route:\n  receiver: none\nreceivers:\n- name: none\n").unwrap();
    let mut manager = Command::new("prometheus-alertmanager");
    manager
        .arg(format!("--config.file={}", room.name("am.yml")))
        .arg(format!("--storage.path={}", room.name("am")));
    manager.arg(format!("--web.listen-address=127.0.0.1:{port}")).arg("--cluster.listen-address=");
    let manager = manager.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _manager = Watch(manager);
    let active = || -> Vec<String> {
        let Some(text) = get(port, "/api/v2/alerts?active=true") else { return Vec::new() };
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        let names = list
            .as_array()
            .into_iter()
            .flatten()
            .map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned());
        names.collect()
    };
    wait_until("it listens", || get(port, "/-/ready").is_some());
    configure(&room, &format!("[[webhook]]\npreset = \"alertmanager\"\nurl = \"http://127.0.0.1:{port}\"\n"));
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &[], &members);
    let _watch = Watch::start(&room);
    serve.command(&["fail", "data", "1"]).ok();
    wait_until("it is raised there", || active().contains(&"WattleFail".to_owned()));
    serve.command(&["remove", "data", "1"]).ok();
    let new = room.device("new", 16 << 20);
    serve.command(&["add", "data", &new, "--wait"]).ok();
    wait_until("it is over there", || !active().iter().any(|name| name.starts_with("Wattle")));
    serve.stop();
}

/// The body of a page, if it is there.
fn get(port: u16, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}
