//! What is told of which look.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use wattle_server::fixtures::{array, sync};
use wattle_server::protocol::events::{FeedEvent, FeedKind};
use wattle_server::protocol::report::{
    ArrayReport, Health, RemoteReport, RemoteState, ScrubRecordReport, ScrubReport, SeatState, ServerReport,
    SpareReport, SpareState,
};

use super::super::state::AlertState;
use super::*;
use crate::scrub_files::ScrubFile;

const HOUR: u64 = 3600;

/// What a server says that serves these arrays.
fn serving(arrays: Vec<ArrayReport>) -> ServerReport {
    ServerReport {
        server: "data".to_owned(),
        pid: 1,
        arrays,
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

/// A watched server, by steps.
struct World {
    state: AlertsState,
    rules: AlertRules,
    array: ArrayReport,
    events: Vec<FeedEvent>,
    secs: u64,
    is_first: bool,
    has_started: bool,
    lost: bool,
    epoch: Option<&'static str>,
    files: BTreeMap<String, ScrubFiles>,
    naming: BTreeSet<String>,
}

impl World {
    fn new(level: &str, members: &[&str]) -> Self {
        let mut world = Self {
            state: AlertsState::default(),
            rules: AlertRules { repeat_secs: Some(24 * HOUR), ..AlertRules::default() },
            array: array("data", level, members),
            events: Vec::new(),
            secs: 1_000_000_000,
            is_first: true,
            has_started: true,
            lost: false,
            epoch: None,
            files: BTreeMap::new(),
            naming: BTreeSet::new(),
        };
        assert_eq!(world.look(), ["NewArray"]);
        world
    }

    /// Looks, and names what is told.
    fn look(&mut self) -> Vec<String> {
        self.tell().into_iter().map(|told| told.event).collect()
    }

    fn tell(&mut self) -> Vec<Notification> {
        self.secs += 1;
        let mut told = Vec::new();
        let report = serving(vec![self.array.clone()]);
        let seen = Look {
            report: &report,
            events: &std::mem::take(&mut self.events),
            is_first: std::mem::take(&mut self.is_first),
            has_started: std::mem::take(&mut self.has_started),
            lost: std::mem::take(&mut self.lost),
            epoch: self.epoch,
            files: &self.files,
            naming: &self.naming,
            fullness: None,
            drives: None,
        };
        told.extend(look(&mut self.state, &self.rules, &seen, self.secs));
        let memory = ServerMemory {
            name: "data".to_owned(),
            arrays: vec![array_id(&self.array)],
            ..ServerMemory::default()
        };
        self.state.servers.insert("data".to_owned(), memory);
        told
    }

    fn set(&mut self, slot: usize, state: SeatState) {
        self.array.members[slot].state = state;
        self.array.degraded = self.array.members.iter().filter(|m| m.state != SeatState::InSync).count();
        let covered = if self.array.level == "raid6" { 2 } else { 1 };
        self.array.health = match self.array.degraded {
            0 => Health::Good,
            lacking if lacking <= covered => Health::Degraded,
            _ => Health::Unusable,
        };
    }

    fn event(&mut self, kind: FeedKind, member: &str, slot: u16, text: &str) {
        self.events.push(FeedEvent {
            sequence: 0,
            time: String::new(),
            array: "data".to_owned(),
            array_uuid: self.array.uuid.clone(),
            kind,
            member: Some(member.to_owned()),
            slot: Some(slot),
            replacement: false,
            cause: None,
            action: None,
            bytes: None,
            before_bytes: None,
            text: text.to_owned(),
        });
    }

    fn raised(&self) -> Vec<String> {
        self.state.alerts.iter().map(|alert| alert.key.kind.to_string()).collect()
    }
}

#[test]
fn a_member_fails_is_replaced_and_that_is_over() {
    let mut world = World::new("raid5", &["a", "b", "c"]);
    world.set(1, SeatState::Faulty);
    world.event(FeedKind::Failed, "b", 1, "b (slot 1) failed: a write to it failed");
    let told = world.tell();
    assert_eq!(told.iter().map(|told| told.event.as_str()).collect::<Vec<_>>(), ["Fail"]);
    assert_eq!((told[0].member.as_deref(), told[0].slot), (Some("b"), Some(1)));
    assert_eq!(told[0].text.what, "data: b (slot 1) failed: a write to it failed");
    assert_eq!(told[0].text.why, "no redundancy is left: a further failure loses data");
    assert_eq!(told[0].text.next, "wattle remove data b, then wattle add data DEVICE");
    assert_eq!(world.look(), [""; 0], "it is told once");
    // It goes, and another one comes: the array still lacks it.
    world.set(1, SeatState::Missing);
    world.array.members[1].member = None;
    assert_eq!(world.look(), [""; 0]);
    world.set(1, SeatState::Rebuilding);
    world.array.members[1].member = Some("d".to_owned());
    assert_eq!(world.look(), [""; 0]);
    world.set(1, SeatState::InSync);
    let told = world.tell();
    assert_eq!(
        (told[0].event.as_str(), told[0].over, told[0].alerts[0].kind),
        ("Recovered", true, AlertKind::Fail)
    );
    assert_eq!(told[0].urgency(), AlertSeverity::Critical, "it goes where the failure went");
    assert!(world.state.alerts.is_empty() && world.state.over[0].state == AlertState::Over);
}

/// A spare took the slot, and was in sync, before anything looked.
#[test]
fn a_failure_that_was_made_good_in_between_is_told_with_its_end() {
    let mut world = World::new("raid1", &["a", "b"]);
    world.event(FeedKind::Failed, "b", 1, "b (slot 1) failed");
    world.event(FeedKind::InSync, "c", 1, "c (slot 1) is in sync");
    world.array.members[1].member = Some("c".to_owned());
    assert_eq!(world.look(), ["Fail", "Recovered", "SpareActive"]);
    assert_eq!(world.look(), [""; 0]);
}

/// A server answers before its arrays run: the first look after its start shows none.
#[test]
fn an_array_that_shows_after_its_server_started_degraded_is_told() {
    let mut world = World::new("raid5", &["a", "b", "c"]);
    world.epoch = Some("one");
    assert_eq!(world.look(), [""; 0]);
    world.set(1, SeatState::Faulty);
    assert_eq!(world.look(), ["Fail"]);
    assert_eq!(world.state.acknowledge(|_| true), 1);
    world.epoch = Some("two");
    let told = world.tell();
    assert_eq!(told[0].event, "DegradedArray");
    assert_eq!(world.look(), [""; 0], "once for each start");
}

#[test]
fn what_a_server_starts_with_is_told_each_time() {
    let mut world = World::new("raid6", &["a", "b", "c", "d"]);
    world.set(1, SeatState::Missing);
    world.has_started = true;
    let told = world.tell();
    assert_eq!(told[0].event, "DegradedArray");
    assert_eq!(told[0].text.why, "one further member may fail without a loss");
    assert_eq!(world.state.acknowledge(|_| true), 1);
    assert_eq!(world.look(), [""; 0]);
    world.has_started = true;
    assert_eq!(world.look(), ["DegradedArray"], "also if it was acknowledged before");
    assert_eq!(world.state.alerts[0].state, AlertState::Raised);
    // It gets worse.
    assert_eq!(world.state.acknowledge(|_| true), 1);
    world.set(2, SeatState::Missing);
    assert_eq!(world.look(), ["DegradedArray"]);
    world.set(3, SeatState::Missing);
    assert_eq!(world.look(), ["DegradedArray"]);
    assert!(world.state.alerts[0].text.what.contains("unusable"), "{:?}", world.state.alerts[0].text);
}

/// What happened before a server was seen first is no news; what is wrong then is.
#[test]
fn a_server_that_is_met_is_judged_by_how_it_is() {
    let mut world = World::new("raid1", &["a", "b"]);
    (world.state, world.is_first) = (AlertsState::default(), true);
    world.event(FeedKind::Failed, "b", 1, "b failed last year");
    world.event(FeedKind::JobStarted, "b", 1, "recovery started");
    assert_eq!(world.look(), ["NewArray"]);
    (world.state, world.is_first) = (AlertsState::default(), true);
    world.set(0, SeatState::Faulty);
    assert_eq!(world.look(), ["NewArray", "Fail", "DegradedArray"]);
}

/// `remove` and `add` are refused there.
#[test]
fn a_failure_that_makes_an_array_unusable_advises_no_order() {
    let mut world = World::new("raid5", &["a", "b", "c"]);
    world.set(0, SeatState::Faulty);
    assert!(world.tell()[0].text.next.starts_with("wattle remove"));
    world.set(1, SeatState::Faulty);
    let told = world.tell();
    let failed = told.iter().find(|told| told.event == "Fail").unwrap();
    assert_eq!(failed.text.next, "wattle why data");
}

#[test]
fn a_failure_while_a_slot_is_filled_is_mdadms_failspare() {
    let mut world = World::new("raid1", &["a", "b"]);
    world.set(1, SeatState::Rebuilding);
    assert_eq!(world.look(), ["DegradedArray"]);
    world.set(1, SeatState::Faulty);
    assert_eq!(world.look(), ["FailSpare"]);
}

#[test]
fn a_member_across_a_network_goes_and_comes() {
    let mut world = World::new("raid1", &["a", "b"]);
    world.set(1, SeatState::Faulty);
    world.array.members[1].remote = Some(RemoteReport {
        state: RemoteState::Away,
        away_since: None,
        attempts: 1,
        reason: None,
        reason_code: None,
        paths: Vec::new(),
    });
    world.event(FeedKind::RemoteAway, "b", 1, "b (slot 1) is away");
    world.event(FeedKind::Failed, "b", 1, "b (slot 1) failed");
    assert_eq!(world.look(), ["RemoteAway"]);
    world.array.members[1].remote.as_mut().unwrap().state = RemoteState::Connected;
    world.set(1, SeatState::InSync);
    let told = world.tell();
    assert_eq!((told[0].event.as_str(), told[0].over), ("RemoteBack", true));
}

#[test]
fn states_of_members_and_of_the_array_are_alerts_while_they_last() {
    type Change = fn(&mut World);
    let rows: [(&str, Change, Change); 5] = [
        ("MemberSlow", |w| w.array.members[0].slow = true, |w| w.array.members[0].slow = false),
        ("BadBlocksGrew", |w| w.array.members[0].bad_bytes = 4096, |w| w.array.members[0].bad_bytes = 0),
        (
            "SparesMissing",
            |w| {
                w.rules.spares.insert(w.array.uuid.clone().unwrap(), 1);
            },
            |w| w.array.spares.push(spare(SpareState::Spare)),
        ),
        ("FailSpare", |w| w.array.spares = vec![spare(SpareState::Faulty)], |w| w.array.spares.clear()),
        (
            "ScrubOverdue",
            |w| w.rules.scrub_overdue_secs = Some(1),
            |w| w.array.scrubs = vec![scrub(1, 0, w.secs + 9)],
        ),
    ];
    for (kind, begin, end) in rows {
        let mut world = World::new("raid5", &["a", "b", "c"]);
        world.secs += 10;
        begin(&mut world);
        assert_eq!(world.look(), [kind]);
        assert_eq!(world.look(), [""; 0], "{kind}");
        end(&mut world);
        assert_eq!(world.look(), ["Recovered"], "{kind}");
    }
}

fn spare(state: SpareState) -> SpareReport {
    SpareReport { member: "s".to_owned(), state, why: None }
}

fn scrub(run: u64, mismatch_sectors: u64, secs: u64) -> ScrubReport {
    ScrubReport {
        run,
        action: "check".to_owned(),
        source: None,
        started: wattle_server::time::rfc3339(secs).unwrap(),
        duration_secs: Some(1),
        outcome: "done".to_owned(),
        error: None,
        covered: None,
        mismatch_sectors,
        repaired_sectors: 0,
        unreadable_sectors: 0,
        late_sectors: 0,
        alone_sectors: 0,
        rewritten_blocks: 0,
        mismatches: Vec::new(),
        truncated: false,
        record: None,
    }
}

#[test]
fn a_mismatch_is_told_with_its_files_until_a_check_finds_none() {
    let mut world = World::new("raid1", &["a", "b"]);
    let id = world.array.uuid.clone().unwrap();
    world.array.scrubs.insert(0, scrub(1, 8, world.secs));
    world.naming.insert(id.clone());
    assert_eq!(world.look(), [""; 0], "files are being named");
    world.naming.clear();
    let file = ScrubFile { volume: None, path: "/home/x".to_owned(), bytes: None };
    world.files.insert(id.clone(), ScrubFiles { run: 1, files: vec![file], ..ScrubFiles::default() });
    let told = world.tell();
    assert_eq!((told[0].event.as_str(), &told[0].files[..]), ("MismatchFound", &["/home/x".to_owned()][..]));
    assert!(told[0].text.why.contains("/home/x"), "{}", told[0].text.why);
    // A later check finds something else, which no file is known to lie at.
    world.array.scrubs.insert(0, scrub(2, 16, world.secs));
    let notes = vec!["files there cannot be named: d0: no such file or device".to_owned()];
    world.files.insert(id, ScrubFiles { run: 2, notes, ..ScrubFiles::default() });
    let told = world.tell();
    assert_eq!((told[0].event.as_str(), &told[0].files[..]), ("MismatchFound", &[][..]));
    assert!(told[0].text.why.ends_with("cannot be named: d0: no such file or device"), "{told:?}");
    world.array.scrubs.insert(0, scrub(3, 0, world.secs));
    assert_eq!(world.look(), ["Recovered"]);
}

/// Whatever a check leaves is told, and by what it is.
#[test]
fn what_was_not_compared_or_changed_alike_is_told_too() {
    let mut world = World::new("raid1", &["a", "b"]);
    let late = ScrubReport { late_sectors: 16, ..scrub(1, 0, world.secs) };
    world.array.scrubs.insert(0, late);
    assert!(world.tell()[0].text.what.ends_with("16 sectors could not be compared"));
    let mut world = World::new("raid1", &["a", "b"]);
    let record = ScrubRecordReport { unexplained_sectors: 128, ..ScrubRecordReport::default() };
    let alike = ScrubReport { record: Some(record), ..scrub(1, 0, world.secs) };
    world.array.scrubs.insert(0, alike);
    let told = world.tell();
    assert!(told[0].text.what.ends_with("128 sectors are not as recorded although redundancy agrees"));
    assert!(told[0].text.next.contains("--record"), "{}", told[0].text.next);
}

#[test]
fn background_work_is_told_as_mdadm_tells_it() {
    let mut world = World::new("raid5", &["a", "b", "c"]);
    let event = |world: &mut World, kind, text: &str| {
        world.event(kind, "c", 2, text);
        world.events[0].action = Some("check".to_owned());
    };
    event(&mut world, FeedKind::JobStarted, "check started");
    world.array.sync = Some(sync("check", 0, 100));
    assert_eq!(world.look(), ["RebuildStarted"]);
    for (done, expected) in
        [(10, None), (25, Some("Rebuild20")), (39, None), (85, Some("Rebuild80")), (99, None)]
    {
        world.array.sync = Some(sync("check", done, 100));
        assert_eq!(world.look(), Vec::from_iter(expected), "{done}");
    }
    world.array.sync = None;
    event(&mut world, FeedKind::Scrubbed, "check: done after 3 s: no mismatch");
    assert_eq!(world.look(), ["RebuildFinished", "ScrubFinished"]);
}

#[test]
fn a_degraded_array_that_is_written_without_a_log_is_at_risk() {
    let mut world = World::new("raid5", &["a", "b", "c"]);
    world.set(0, SeatState::Faulty);
    assert_eq!(world.look(), ["Fail"]);
    "active".clone_into(&mut world.array.state);
    assert_eq!(world.look(), [""; 0], "nothing was written");
    world.array.counters.writes = 1;
    assert_eq!(world.look(), ["WriteHoleRisk"]);
    "clean".clone_into(&mut world.array.state);
    assert_eq!(world.look(), [""; 0], "a pause is no end");
    let mut world = World::new("raid5", &["a", "b", "c"]);
    (world.array.consistency, world.array.counters.writes) = (Some("ppl".to_owned()), 1);
    "active".clone_into(&mut world.array.state);
    world.set(0, SeatState::Faulty);
    assert_eq!(world.look(), ["Fail"]);
}

#[test]
fn a_server_that_dies_is_told_and_one_that_says_good_bye_is_not() {
    let mut world = World::new("raid1", &["a", "b"]);
    let secs = world.secs;
    let told = gone(&mut world.state, "data", Gone::Died, secs);
    assert_eq!(told[0].event, "DeviceDisappeared");
    assert!(gone(&mut world.state, "data", Gone::Died, secs).is_empty(), "once");
    let memory = world.state.servers["data"].clone();
    assert_eq!(is_back(&mut world.state, &memory, secs)[0].event, "Recovered");
    assert!(gone(&mut world.state, "data", Gone::GoodBye, secs).is_empty());
    assert!(world.state.servers["data"].arrays.is_empty() && world.raised().is_empty());
    // What is forgotten is over too.
    world.look();
    gone(&mut world.state, "data", Gone::Died, secs);
    assert_eq!(gone(&mut world.state, "data", Gone::Forgotten, secs)[0].event, "Recovered");
}

/// More happened than the server keeps.
#[test]
fn what_the_report_shows_makes_up_for_events_that_are_lost() {
    let mut world = World::new("raid1", &["a", "b"]);
    world.set(1, SeatState::Rebuilding);
    world.array.sync = Some(sync("recovery", 10, 100));
    assert_eq!(world.look(), ["DegradedArray"]);
    world.set(1, SeatState::InSync);
    (world.array.sync, world.lost) = (None, true);
    assert_eq!(world.look(), ["Recovered", "SpareActive", "RebuildFinished"]);
    world.lost = true;
    assert_eq!(world.look(), [""; 0], "once");
}

/// What each level has left, as an alert says it.
#[test]
fn the_redundancy_that_is_left_is_said_as_it_is() {
    let said = |level: &str, layout: &str, members: usize, change: fn(&mut World)| {
        let names: Vec<String> = (0..members).map(|n| n.to_string()).collect();
        let mut world = World::new(level, &names.iter().map(String::as_str).collect::<Vec<_>>());
        world.array.layout = Some(layout.to_owned());
        change(&mut world);
        words::redundancy_left(&world.array)
    };
    let none = "no redundancy is left: a further failure loses data";
    let one = "one further member may fail without a loss";
    assert_eq!(said("raid0", "", 2, |_| ()), "it has no redundancy by design: any failure loses data");
    let unsynced = |world: &mut World| world.array.synced = false;
    assert!(said("raid5", "left-symmetric", 3, unsynced).starts_with("no redundancy until parity"));
    assert_eq!(said("raid1", "", 2, unsynced), one, "a copy is one");
    // Near and far copies together are four, and a number in a name of a layout is none.
    assert_eq!(said("raid10", "n2f2", 4, |_| ()), "3 further members may fail without a loss");
    assert_eq!(said("raid10", "n2", 4, |_| ()), one);
    assert_eq!(said("raid6", "left-symmetric-6", 5, |_| ()), "2 further members may fail without a loss");
    // Both copies of nothing are gone: each of what is left still has a second one.
    let of_one_pair = |world: &mut World| world.set(0, SeatState::Faulty);
    assert!(said("raid10", "n2", 4, of_one_pair).starts_with("no redundancy is left for some of the data"));
    assert_eq!(said("raid10", "n3", 6, of_one_pair), one);
    assert_eq!(said("raid1", "", 2, |world| world.set(1, SeatState::Faulty)), none);
}

/// wattle moves no spare by itself: an operator took it out of one array and added it to another
/// while nothing looked.
#[test]
fn a_spare_that_is_another_arrays_by_now_has_moved() {
    let mut state = AlertsState::default();
    let mut tell = |has: [bool; 2], is_first: bool| -> Vec<(String, Option<String>, Option<String>)> {
        let arrays = ["one", "two"].iter().zip(has).map(|(name, has)| {
            let mut array = array(name, "raid1", &["a", "b"]);
            array.uuid = None;
            array.spares.extend(has.then(|| spare(SpareState::Spare)));
            array
        });
        let report = serving(arrays.collect());
        let seen = Look {
            report: &report,
            events: &[],
            is_first,
            has_started: false,
            lost: false,
            epoch: None,
            files: &BTreeMap::new(),
            naming: &BTreeSet::new(),
            fullness: None,
            drives: None,
        };
        let told = look(&mut state, &AlertRules::default(), &seen, 1);
        told.into_iter().map(|told| (told.event, told.array.map(|array| array.name), told.member)).collect()
    };
    assert_eq!(tell([true, false], true).len(), 2, "two arrays are new");
    let moved = ("MoveSpare".to_owned(), Some("two".to_owned()), Some("s".to_owned()));
    assert_eq!(tell([false, true], false), [moved]);
    assert_eq!(tell([false, true], false), []);
    // Seen in between, it was taken out and it was added.
    assert_eq!(tell([false, false], false), []);
    assert_eq!(tell([true, false], false), []);
}

/// What drives and file systems say, of a server with these members and the volume "data".
fn others_say(
    world: &mut World,
    fullness: Option<&Asked<Fullness>>,
    drives: Option<&Asked<DriveFault>>,
) -> Vec<String> {
    let report = serving(vec![world.array.clone()]);
    world.rules.volume_full_percent = Some(90);
    let seen = Look {
        report: &report,
        events: &[],
        is_first: false,
        has_started: false,
        lost: false,
        epoch: None,
        files: &BTreeMap::new(),
        naming: &BTreeSet::new(),
        fullness,
        drives,
    };
    let told = look(&mut world.state, &world.rules, &seen, world.secs);
    told.into_iter().map(|told| told.event).collect()
}

fn full(percent: u8) -> Asked<Fullness> {
    [("data".to_owned(), Some(Fullness { volume: "data".to_owned(), percent, free_bytes: 1 }))].into()
}

fn verdict(member: &str, fails: bool) -> Asked<DriveFault> {
    let fault = DriveFault { member: member.to_owned(), what: "it fails".to_owned() };
    [(member.to_owned(), fails.then_some(fault))].into()
}

/// What only a server knows is not told again once it was stopped.
#[test]
fn drives_and_file_systems_of_a_server_that_was_stopped_are_not_told_again() {
    let mut world = World::new("raid1", &["a", "b"]);
    let secs = world.secs;
    let told = others_say(&mut world, Some(&full(95)), Some(&verdict("a", true)));
    assert_eq!(told, ["VolumeFull", "SmartFailing"]);
    assert_eq!(repeat(&mut world.state, &world.rules, secs + 24 * HOUR).len(), 2);
    gone(&mut world.state, "data", Gone::GoodBye, secs);
    assert!(repeat(&mut world.state, &world.rules, secs + 48 * HOUR).is_empty());
}

/// A drive that dies does not answer any more, and its neighbours do.
#[test]
fn what_does_not_answer_is_not_over() {
    let mut world = World::new("raid1", &["a", "b"]);
    assert_eq!(others_say(&mut world, Some(&full(95)), Some(&verdict("a", true))).len(), 2);
    for drives in [Asked::new(), verdict("b", false)] {
        assert_eq!(others_say(&mut world, Some(&Asked::new()), Some(&drives)), [""; 0]);
    }
    let fine = verdict("a", false);
    assert_eq!(others_say(&mut world, Some(&full(10)), Some(&fine)), ["Recovered", "Recovered"]);
    // A member that is not there any more is no member that fails.
    assert_eq!(others_say(&mut world, None, Some(&verdict("b", true))), ["SmartFailing"]);
    world.array.members[1].member = Some("c".to_owned());
    assert_eq!(others_say(&mut world, None, Some(&Asked::new())), ["Recovered"]);
}

/// It hung, and was stopped at last: nothing of that goes on.
#[test]
fn a_server_that_hung_and_then_ends_as_told_leaves_no_alert() {
    for hung in [Gone::Silent, Gone::Stopping] {
        let mut world = World::new("raid1", &["a", "b"]);
        let secs = world.secs;
        let told = gone(&mut world.state, "data", hung, secs);
        assert_eq!(told[0].event, "DeviceDisappeared");
        assert_eq!(gone(&mut world.state, "data", Gone::GoodBye, secs)[0].event, "Recovered");
        assert!(world.raised().is_empty() && !world.state.servers["data"].died, "{hung:?}");
        assert!(repeat(&mut world.state, &world.rules, secs + 48 * HOUR).is_empty());
    }
}

#[test]
fn what_is_not_handled_is_told_again_and_what_is_acknowledged_is_not() {
    let mut world = World::new("raid1", &["a", "b"]);
    world.set(1, SeatState::Faulty);
    world.look();
    let later = world.secs + 24 * HOUR;
    assert!(repeat(&mut world.state, &world.rules, later - 1).is_empty());
    let told = repeat(&mut world.state, &world.rules, later);
    assert_eq!((told[0].event.as_str(), told[0].repeated), ("Fail", true));
    assert!(repeat(&mut world.state, &world.rules, later + 1).is_empty());
    world.state.acknowledge(|_| true);
    assert!(repeat(&mut world.state, &world.rules, later + 48 * HOUR).is_empty());
    // Its array is stopped: nothing is said until it is served again.
    world.state.alerts[0].state = AlertState::Raised;
    gone(&mut world.state, "data", Gone::GoodBye, later);
    assert!(repeat(&mut world.state, &world.rules, later + 72 * HOUR).is_empty());
}

/// A clock that jumps tells nothing twice, and leaves nothing out for longer than once.
#[test]
fn a_clock_that_jumps_does_not_lose_the_next_time() {
    let mut world = World::new("raid1", &["a", "b"]);
    world.set(1, SeatState::Faulty);
    world.look();
    let back = world.secs - 10 * 365 * 24 * HOUR;
    assert!(repeat(&mut world.state, &world.rules, back).is_empty());
    assert_eq!(repeat(&mut world.state, &world.rules, back + 24 * HOUR).len(), 1);
    assert_eq!(repeat(&mut world.state, &world.rules, back + 10_000 * 24 * HOUR).len(), 1);
    assert!(repeat(&mut world.state, &world.rules, back + 10_000 * 24 * HOUR + 1).is_empty());
}

/// A member that failed, in a state by itself.
pub fn alert(state: &mut AlertsState, member: &str) -> crate::alerts::state::Alert {
    let mut world = World::new("raid1", &["a", "b"]);
    world.set(1, SeatState::Faulty);
    world.look();
    let mut alert = world.state.alerts.remove(0);
    (alert.id, alert.key.member) = (state.number(), Some(member.to_owned()));
    alert
}

fn seat() -> impl Strategy<Value = SeatState> {
    prop_oneof![
        Just(SeatState::InSync),
        Just(SeatState::Faulty),
        Just(SeatState::Missing),
        Just(SeatState::Rebuilding)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens: an array that lacks something has an alert, a whole one has none of it;
    /// no two alerts are the same; numbers are used once; and what does not change is told once.
    #[test]
    fn alerts_are_what_the_array_is(steps in prop::collection::vec((0..4_usize, seat(), any::<bool>(), any::<bool>()), 1..30)) {
        let mut world = World::new("raid6", &["a", "b", "c", "d"]);
        let mut numbers = BTreeSet::new();
        for (slot, state, slow, restart) in steps {
            world.set(slot, state);
            world.array.members[slot].slow = slow && state == SeatState::InSync;
            world.has_started = restart;
            for told in world.tell() {
                prop_assert!(numbers.insert(told.id), "a number twice");
                prop_assert!(!told.text.what.is_empty() && !told.text.why.is_empty() && !told.text.next.is_empty());
            }
            let raised = world.raised();
            let lacks = |kind: &str| matches!(kind, "Fail" | "FailSpare" | "DegradedArray");
            prop_assert_eq!(world.array.degraded > 0, raised.iter().any(|kind| lacks(kind)));
            let slow = world.array.members.iter().filter(|member| member.slow).count();
            prop_assert_eq!(raised.iter().filter(|kind| *kind == "MemberSlow").count(), slow);
            for (ix, alert) in world.state.alerts.iter().enumerate() {
                prop_assert!(!world.state.alerts[..ix].iter().any(|other| other.key.is(&alert.key)));
            }
            prop_assert_eq!(world.look(), Vec::<String>::new());
        }
    }
}
