//! What is decided of a server that hangs, and of settings that are being written.

use std::fs;
use std::sync::atomic::AtomicUsize;

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

fn report() -> ServerReport {
    ServerReport {
        server: "data".to_owned(),
        pid: 1,
        arrays: vec![array("data", "raid1", &["a", "b"])],
        volumes: Vec::new(),
        groups: Vec::new(),
        threads: Vec::new(),
        cpu_ms: None,
        qos: Vec::new(),
        checkpoints: Vec::new(),
        reservations: Vec::new(),
        sole_array: None,
        stopped: Vec::new(),
    }
}

#[test]
fn what_others_say_does_not_bring_a_server_back_that_hangs() {
    let room = Room::new("");
    let mut hub = room.hub();
    let socket = room.dir.path().join("data.sock");
    let status = report();
    let id = status.arrays[0].uuid.clone().unwrap();
    hub.look("data", None, &status, None, None).unwrap();
    hub.known.insert(socket.clone(), Known { status, asked: None });
    hub.followed.insert(socket.clone());
    hub.take(&socket, ServerFound::Gone(Gone::Silent)).unwrap();
    hub.take_others(Others::Files { array: id, run: 1, files: ScrubFiles::default() }).unwrap();
    let state = hub.journal.read().unwrap();
    let raised: Vec<_> = state.alerts.iter().map(|alert| alert.key.kind.name()).collect();
    assert_eq!(raised, ["DeviceDisappeared"]);
    assert!(state.servers["data"].died && hub.followed.contains(&socket), "it is still followed");
}

/// The runtime directory is empty after a start of the machine, whatever happened before.
#[test]
fn a_server_of_before_the_machine_was_started_is_waited_for_and_then_told() {
    for died in [false, true] {
        let room = Room::new("");
        room.options.runtime_dir.make().unwrap();
        let mut hub = room.hub();
        let socket = room.options.runtime_dir.control_socket("data");
        let boot = std::mem::replace(&mut hub.boot, "before".to_owned());
        hub.look("data", None, &report(), None, None).unwrap();
        if died {
            hub.take(&socket, ServerFound::Gone(Gone::Died)).unwrap();
        }
        hub.boot = boot;
        let raised = |hub: &mut Hub<'_>| {
            hub.find_servers().unwrap();
            let state = hub.state().unwrap();
            let kinds = state.alerts.iter().map(|alert| (alert.key.kind.name(), alert.told));
            (kinds.collect::<Vec<_>>(), state.over.len())
        };
        let told = vec![("DeviceDisappeared", 1)];
        assert_eq!(
            raised(&mut hub),
            (if died { told.clone() } else { Vec::new() }, 0),
            "drives may come late"
        );
        hub.back_until = beside::now();
        for _ in 0..3 {
            assert_eq!(raised(&mut hub), (told.clone(), 0), "once, and it is not over");
        }
        hub.look("data", None, &report(), None, None).unwrap();
        assert!(raised(&mut hub).0.is_empty());
        assert_eq!(hub.state().unwrap().over.len(), 1);
        // In this start of the machine a socket that is taken away is a good-bye.
        assert!(hub.state().unwrap().servers["data"].stopped);
    }
}

/// The file system that alerts are kept on gives errors: that is when they are needed.
#[test]
fn alerts_go_on_where_what_is_kept_cannot_be_read() {
    for is_known in [true, false] {
        let room = Room::new("");
        let mut hub = room.hub();
        if is_known {
            hub.look("data", None, &report(), None, None).unwrap();
            fs::remove_file(hub.journal.path()).unwrap();
        }
        std::os::unix::fs::symlink("alerts.json", hub.journal.path()).unwrap();
        hub.start_couriers().unwrap();
        hub.state().unwrap();
        let socket = room.dir.path().join("data.sock");
        hub.take(&socket, ServerFound::Gone(Gone::Died)).unwrap();
        let raised: Vec<_> = hub.state().unwrap().alerts.iter().map(|a| a.key.kind.name()).collect();
        assert_eq!(raised, ["DeviceDisappeared"], "{is_known}");
        hub.couriers.store(true, Ordering::Relaxed);
    }
}

/// A file system that hangs, below drives that answer.
struct Hangs {
    /// How often each was asked.
    drives: AtomicUsize,
    fullness: AtomicUsize,
    hold: Mutex<Receiver<()>>,
}

impl AlertSources for Hangs {
    fn fullness(&self, _: &ServerReport) -> Option<Asked<Fullness>> {
        self.fullness.fetch_add(1, Ordering::Relaxed);
        let _ = self.hold.lock().unwrap().recv();
        panic!("a test")
    }

    fn drives(&self, _: &ServerReport) -> Option<Asked<DriveFault>> {
        self.drives.fetch_add(1, Ordering::Relaxed);
        let fault = DriveFault { member: "a".to_owned(), what: "it fails".to_owned() };
        Some([("a".to_owned(), Some(fault))].into())
    }
}

#[test]
fn a_file_system_that_hangs_holds_back_no_drive_and_is_asked_once() {
    let mut room = Room::new("");
    let (release, hold) = mpsc::channel();
    let sources = Arc::new(Hangs {
        drives: AtomicUsize::new(0),
        fullness: AtomicUsize::new(0),
        hold: Mutex::new(hold),
    });
    room.options.sources = sources.clone();
    let mut hub = room.hub();
    let socket = room.dir.path().join("data.sock");
    let status = report();
    hub.look("data", None, &status, None, None).unwrap();
    hub.known.insert(socket.clone(), Known { status, asked: None });
    // The time of the next question comes again and again, also for a server that came and went.
    for round in 1..4 {
        hub.known.get_mut(&socket).unwrap().asked = None;
        hub.ask_others();
        // What drives say, and that they were asked.
        for _ in 0..2 {
            let told = hub.others.1.recv_timeout(Duration::from_secs(30)).unwrap();
            hub.take_others(told).unwrap();
        }
        assert_eq!(sources.drives.load(Ordering::Relaxed), round);
    }
    let raised: Vec<_> = hub.state().unwrap().alerts.iter().map(|alert| alert.key.kind.name()).collect();
    assert_eq!(raised, ["SmartFailing"]);
    drop(release);
    let asked = hub.others.1.recv_timeout(Duration::from_secs(30)).unwrap();
    let is_it = |of: &Asking| *of == (socket.clone(), Question::Fullness);
    assert!(matches!(&asked, Others::Asked(of) if is_it(of)), "also after a panic");
    assert_eq!(sources.fullness.load(Ordering::Relaxed), 1, "questions do not pile up");
    hub.take_others(asked).unwrap();
    hub.known.get_mut(&socket).unwrap().asked = None;
    hub.ask_others();
    for _ in 0..3 {
        hub.others.1.recv_timeout(Duration::from_secs(30)).unwrap();
    }
    assert_eq!(sources.fullness.load(Ordering::Relaxed), 2);
}

#[test]
fn a_channel_that_cannot_deliver_now_keeps_no_other_from_it() {
    let room = Room::new(
        "[[webhook]]\nurl = \"https://h/\"\ntoken_file = \"/nowhere/token\"\n[[program]]\npath = \"/nowhere/a\"\n",
    );
    let mut hub = room.hub();
    hub.start_couriers().unwrap();
    assert_eq!(names(&hub), ["program", "webhook"]);
    let says =
        |note: &WatchNote| matches!(note, WatchNote::Note(text) if text.contains("line 4: the token file"));
    assert!(room.notes.lock().unwrap().iter().any(says), "{:?}", room.notes.lock().unwrap());
    hub.couriers.store(true, Ordering::Relaxed);
}

#[test]
fn messages_of_a_channel_that_goes_are_named() {
    let room = Room::new(TWO);
    let mut hub = room.hub();
    hub.look("data", None, &report(), None, None).unwrap();
    let owed = hub.state().unwrap().channels["program-2"].owed.clone();
    assert_eq!(owed.len(), 1);
    room.write("[[program]]\npath = \"/nowhere/a\"\n");
    hub.read_settings_again().unwrap();
    hub.read_settings_again().unwrap();
    let dropped = |note: &WatchNote| match note {
        WatchNote::Dropped(dropped) => Some((dropped.channel.clone(), dropped.id, dropped.event.clone())),
        _ => None,
    };
    let dropped: Vec<_> = room.notes.lock().unwrap().iter().filter_map(dropped).collect();
    assert_eq!(dropped, [("program-2".to_owned(), owed[0].notification, "NewArray".to_owned())]);
    hub.couriers.store(true, Ordering::Relaxed);
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
