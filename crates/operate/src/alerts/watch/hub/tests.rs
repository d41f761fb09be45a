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
