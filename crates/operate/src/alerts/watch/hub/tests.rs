//! What is decided of a server that hangs, and of settings that are being written.

use std::fs;

use wattle_server::fixtures::array;
use wattle_server::socket::RuntimeDir;

use super::super::AlertSources;
use super::*;

struct Unasked;

impl AlertSources for Unasked {}

struct Room {
    dir: tempfile::TempDir,
    options: WatchOptions,
    notes: Arc<std::sync::Mutex<Vec<WatchNote>>>,
}

impl Room {
    fn new(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let notes: Arc<std::sync::Mutex<Vec<WatchNote>>> = Arc::default();
        let keep = notes.clone();
        let options = WatchOptions {
            runtime_dir: RuntimeDir::new(dir.path().join("run"), false),
            state_dir: dir.path().join("state"),
            settings: dir.path().join("alerts.toml"),
            sources: Arc::new(Unasked),
            note: Arc::new(move |note| keep.lock().unwrap().push(note)),
            stop: Arc::default(),
        };
        let room = Self { dir, options, notes };
        room.write(settings);
        room
    }

    fn write(&self, settings: &str) {
        fs::write(&self.options.settings, format!("mdadm_conf = \"none\"\n{settings}")).unwrap();
    }

    fn hub(&self) -> Hub<'_> {
        let settings = AlertSettings::read(&self.options.settings).unwrap();
        let journal = Arc::new(Journal::open(&self.options.state_dir).unwrap());
        Hub::new(&self.options, settings, journal).unwrap()
    }
}

#[test]
fn what_others_say_does_not_bring_a_server_back_that_hangs() {
    let room = Room::new("");
    let mut hub = room.hub();
    let socket = room.dir.path().join("data.sock");
    let status = ServerReport {
        server: "data".to_owned(),
        pid: 1,
        arrays: vec![array("data", "raid1", &["a", "b"])],
        volumes: Vec::new(),
        groups: Vec::new(),
        threads: Vec::new(),
    };
    let id = status.arrays[0].uuid.clone().unwrap();
    hub.look("data", None, &status, None, None).unwrap();
    hub.known.insert(socket.clone(), Known { status, asked: None });
    hub.followed.insert(socket.clone());
    hub.take(&socket, ServerFound::Gone(Gone::Silent)).unwrap();
    hub.take_others(Others::Files { array: id, run: 1, files: Vec::new() }).unwrap();
    let state = hub.journal.read().unwrap();
    let raised: Vec<_> = state.alerts.iter().map(|alert| alert.key.kind.name()).collect();
    assert_eq!(raised, ["DeviceDisappeared"]);
    assert!(state.servers["data"].died && hub.followed.contains(&socket), "it is still followed");
}

const TWO: &str = "[[program]]\npath = \"/nowhere/a\"\n[[program]]\npath = \"/nowhere/b\"\n";

fn names(hub: &Hub<'_>) -> Vec<String> {
    hub.settings.channels.iter().map(|channel| channel.name.clone()).collect()
}

#[test]
fn settings_that_are_away_or_half_written_take_no_channel() {
    let room = Room::new(TWO);
    let mut hub = room.hub();
    hub.journal.update(|state| state.keep_channels(&["program", "program-2"])).unwrap();
    fs::remove_file(&room.options.settings).unwrap();
    for _ in 0..4 {
        hub.read_settings_again().unwrap();
    }
    assert_eq!(names(&hub), ["program", "program-2"]);
    let is_gone =
        |note: &&WatchNote| matches!(note, WatchNote::Note(text) if text.contains("is gone or empty"));
    assert_eq!(room.notes.lock().unwrap().iter().filter(is_gone).count(), 1);
    // The first lines of it are there for less than a tick.
    room.write("[[program]]\npath = \"/nowhere/a\"\n");
    hub.read_settings_again().unwrap();
    room.write(&format!("{TWO}[[program]]\npath = \"/nowhere/c\"\n"));
    hub.read_settings_again().unwrap();
    assert_eq!(names(&hub), ["program", "program-2"]);
    hub.read_settings_again().unwrap();
    assert_eq!(names(&hub), ["program", "program-2", "program-3"]);
    hub.couriers.store(true, Ordering::Relaxed);
}

#[test]
fn an_mdadm_conf_that_cannot_be_read_takes_no_channel() {
    let room = Room::new("");
    let conf = room.dir.path().join("mdadm.conf");
    fs::write(&conf, "PROGRAM /nowhere/a\n").unwrap();
    let settings = |more: &str| {
        let text = format!("mdadm_conf = {conf:?}\n{more}");
        fs::write(&room.options.settings, text).unwrap();
    };
    settings("");
    let mut hub = room.hub();
    assert_eq!(names(&hub), ["mdadm.conf-program"]);
    // A directory: root can read everything else.
    fs::remove_file(&conf).unwrap();
    fs::create_dir(&conf).unwrap();
    settings("volume_full = 80\n");
    hub.read_settings_again().unwrap();
    hub.read_settings_again().unwrap();
    assert_eq!(names(&hub), ["mdadm.conf-program"]);
    fs::remove_dir(&conf).unwrap();
    settings("volume_full = 8\n");
    hub.read_settings_again().unwrap();
    hub.read_settings_again().unwrap();
    assert_eq!(names(&hub), [""; 0]);
    hub.couriers.store(true, Ordering::Relaxed);
}
