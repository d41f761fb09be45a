//! What the page shows, as one value: made from reports, told to viewers as changes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use wattle_server::protocol::report::{
    ArrayReport, EventReport, GroupReport, JobStatus, MemberReport, RangeReport, RemoteReport, ScrubReport,
    SeatState, SpareReport, TunedReport, VolumeReport,
};
use wattle_server::protocol::why::DecisionReport;
use wattle_server::protocol::{ErrorReport, SCHEMA_VERSION};
use wattle_server::socket::client::Servers;

use super::rates::MemberRates;
use super::verdict::{self, ArrayVerdict, JudgedArray, MachineStanding, MachineVerdict};
use crate::scrub_files::{ScrubFiles, to_be_named};

/// Ranges of bad blocks that are shown of each member.
const RANGES_MAX: usize = 8;

/// Checks and repairs that are shown.
const SCRUBS_MAX: usize = 20;

/// Events and decisions that are shown.
const EVENTS_MAX: usize = 50;

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineView {
    /// Of the document.
    pub schema_version: u32,
    /// The version of wattle that shows it.
    pub version: &'static str,
    /// One verdict for all.
    pub verdict: MachineVerdict,
    /// The worst first.
    pub arrays: Vec<ArrayView>,
    /// What lies on arrays and drives.
    pub volumes: Vec<VolumeView>,
    /// The volume groups that are open.
    pub groups: Vec<GroupReport>,
    /// How alerts are.
    pub alerts: AlertsView,
    /// Orders can be given, with the token.
    pub takes_orders: bool,
    /// Servers that do not answer.
    pub problems: Vec<ErrorReport>,
    /// Servers that ended without being stopped.
    pub died: Vec<String>,
}

/// Whether alerts reach their channels, as far as that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AlertsView {
    /// It is known; without, nothing else here means anything.
    pub is_known: bool,
    /// There are channels that alerts go through.
    pub configured: bool,
    /// A process watches and sends them.
    pub watched: bool,
    /// When one last arrived, RFC 3339.
    pub last_delivered: Option<String>,
    /// Notifications that channels did not take yet.
    pub owed: usize,
}

/// What a drive says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DriveView {
    /// Its model.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// `passed`, `failing`, or what else there is to say; absent if it is not known.
    pub smart: Option<String>,
    /// It says that it is failing.
    pub is_failing: bool,
    /// Degrees Celsius.
    pub celsius: Option<i64>,
}

/// Since when something is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SinceView {
    /// RFC 3339.
    pub time: String,
    /// It was so already when this was first looked at.
    pub or_earlier: bool,
}

/// An array.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArrayView {
    /// Tells it from all others: its UUID, or its server and name.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Its UUID; absent without metadata.
    pub uuid: Option<String>,
    /// Its server.
    pub server: String,
    /// `raid5`.
    pub level: String,
    /// Absent where the level has no choice.
    pub layout: Option<String>,
    /// Absent where the level has none.
    pub chunk_bytes: Option<u64>,
    /// What clients see.
    pub size_bytes: u64,
    /// What it uses of each member.
    pub member_bytes: Option<u64>,
    /// `[UU_U]`.
    pub slots: String,
    /// `clean`, `active`, ….
    pub state: String,
    /// Nothing is written.
    pub read_only: bool,
    /// In words.
    pub verdict: ArrayVerdict,
    /// Since when it stands so.
    pub since: Option<SinceView>,
    /// The one next command, where there is one.
    pub next: Option<String>,
    /// Background work.
    pub job: Option<JobStatus>,
    /// Background work is held.
    pub paused: bool,
    /// By slot, replacements after the member that they replace.
    pub members: Vec<MemberView>,
    /// Members without a slot.
    pub spares: Vec<SpareReport>,
    /// The last first.
    pub scrubs: Vec<ScrubReport>,
    /// The files where the last one that was done found something; absent if it found nothing, or
    /// while they are not known.
    pub scrub_files: Option<ScrubFiles>,
    /// They are being looked for.
    pub naming: bool,
    /// The last first.
    pub events: Vec<EventReport>,
    /// Why it is as it is.
    pub decisions: Vec<DecisionReport>,
    /// What it decided about its speed, the latest last.
    pub tuning: Vec<TunedReport>,
    /// Where clients connect.
    pub exports: Vec<String>,
    /// Why it is read-only or not redundant.
    pub notes: Vec<String>,
}

/// A member in a slot, or on its way into one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemberView {
    /// Which slot.
    pub slot: u16,
    /// It will replace the slot's member.
    pub replacement: bool,
    /// As it was named; absent if nothing is there.
    pub member: Option<String>,
    /// What it is.
    pub state: SeatState,
    /// The part of it that is current, in thousandths, while it is being filled.
    pub filled: Option<u64>,
    /// Since the start.
    pub read_errors: u64,
    /// What of it cannot be read.
    pub bad_bytes: u64,
    /// Where: the first of them.
    pub bad_blocks: Vec<RangeReport>,
    /// Reads go around it.
    pub slow: bool,
    /// How many did.
    pub reads_overdue: u64,
    /// For how long it has answered nothing.
    pub silent_seconds: u64,
    /// Its copies are read only where no other one can be.
    pub write_mostly: bool,
    /// Its connection, if it lies across a network.
    pub remote: Option<RemoteReport>,
    /// 99 of a hundred reads took at most this long.
    pub read_p99_us: u64,
    /// 99 of a hundred writes took at most this long.
    pub write_p99_us: u64,
    /// Under way now.
    pub in_flight: u64,
    /// What it does now.
    pub rates: MemberRates,
    /// What it says of itself; absent if that is not known.
    pub drive: Option<DriveView>,
}

/// What clients are offered beside arrays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeView {
    /// The volume.
    #[serde(flatten)]
    pub volume: VolumeReport,
    /// Its server.
    pub server: String,
}

/// What is known beside the reports.
#[derive(Debug, Default)]
pub struct KnownBeside {
    /// By array: since when, and in which standing.
    pub since: BTreeMap<String, (MachineStanding, SinceView)>,
    /// By array.
    pub decisions: BTreeMap<String, Vec<DecisionReport>>,
    /// By the name of the member.
    pub drives: BTreeMap<String, DriveView>,
    /// Of alerts.
    pub alerts: AlertsView,
    /// By array: of the last run whose files were looked for.
    pub files: BTreeMap<String, ScrubFiles>,
}

impl KnownBeside {
    /// The files of the last check or repair of an array, if they were looked for.
    #[must_use]
    pub fn scrub_files(&self, key: &str, array: &ArrayReport) -> Option<&ScrubFiles> {
        let run = to_be_named(array)?.run;
        self.files.get(key).filter(|found| found.run == run)
    }
}

/// What tells an array from all others.
#[must_use]
pub fn key(server: &str, array: &ArrayReport) -> String {
    array.uuid.clone().unwrap_or_else(|| format!("{server}/{}", array.name))
}

/// What the page shows of what the servers told. `before` is the look before and how many
/// milliseconds ago it was.
#[must_use]
pub fn machine(
    servers: &Servers,
    before: Option<(&Servers, u64)>,
    beside: &KnownBeside,
    takes_orders: bool,
) -> MachineView {
    let mut arrays: Vec<ArrayView> = servers
        .answered
        .iter()
        .flat_map(|(socket, server)| {
            let before =
                before.and_then(|(before, millis)| Some((earlier(before, socket, server.pid)?, millis)));
            server.arrays.iter().map(move |array| {
                let was = before.and_then(|(server, millis)| {
                    Some((server.iter().find(|was| was.name == array.name)?, millis))
                });
                array_view(&server.server, array, was, beside)
            })
        })
        .collect();
    arrays.sort_by_key(|array| std::cmp::Reverse(array.verdict.standing));
    let judged: Vec<_> =
        arrays.iter().map(|array| JudgedArray { name: &array.name, verdict: &array.verdict }).collect();
    let volumes: Vec<VolumeView> = servers
        .reports()
        .flat_map(|server| {
            server
                .volumes
                .iter()
                .map(|volume| VolumeView { volume: volume.clone(), server: server.server.clone() })
        })
        .collect();
    MachineView {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        verdict: verdict::of_machine(&judged, servers.silent.len(), servers.dead.len(), volumes.len()),
        arrays,
        volumes,
        groups: servers.reports().flat_map(|server| server.groups.clone()).collect(),
        alerts: beside.alerts.clone(),
        takes_orders,
        problems: servers.silent.iter().map(ErrorReport::from).collect(),
        died: servers.dead.iter().map(|socket| socket.display().to_string()).collect(),
    }
}

/// The arrays of the same server, in an earlier look.
pub fn earlier<'a>(before: &'a Servers, socket: &PathBuf, pid: u32) -> Option<&'a [ArrayReport]> {
    let server = before.answered.iter().find(|(other, server)| other == socket && server.pid == pid);
    server.map(|(_, server)| &server.arrays[..])
}

fn array_view(
    server: &str,
    array: &ArrayReport,
    before: Option<(&ArrayReport, u64)>,
    beside: &KnownBeside,
) -> ArrayView {
    let key = key(server, array);
    let drive = |member: &MemberReport| beside.drives.get(member.member.as_deref()?);
    let drives = array.members.iter().filter_map(|member| {
        let failing = drive(member).filter(|drive| drive.is_failing)?;
        let name = verdict::short(member.member.as_deref()?);
        Some(format!("{name} says that it is failing: {}.", failing.smart.as_deref().unwrap_or("SMART")))
    });
    let verdict = verdict::of_array(array, drives.collect());
    let mut members = Vec::new();
    for member in &array.members {
        let was = before.and_then(|(before, millis)| {
            let same = |was: &&MemberReport| was.slot == member.slot && was.member == member.member;
            Some((before.members.iter().find(same)?, millis))
        });
        members.push(member_view(array, member, was, false, drive(member)));
        let replacements = array.replacements.iter().filter(|other| other.slot == member.slot);
        members.extend(replacements.map(|other| member_view(array, other, None, true, drive(other))));
    }
    let decisions = beside.decisions.get(&key).cloned().unwrap_or_default();
    let next = match verdict.standing {
        MachineStanding::Good => None,
        _ => decisions.iter().find_map(|decision| decision.next.clone()),
    };
    let since = beside.since.get(&key).map(|(_, since)| since.clone());
    ArrayView {
        name: array.name.clone(),
        uuid: array.uuid.clone(),
        server: server.to_owned(),
        level: array.level.clone(),
        layout: array.layout.clone(),
        chunk_bytes: array.chunk_bytes,
        size_bytes: array.size_bytes,
        member_bytes: array.member_bytes,
        slots: array.slots.clone(),
        state: array.state.clone(),
        read_only: array.read_only,
        verdict,
        since,
        next,
        job: array.sync.clone(),
        paused: array.paused,
        members,
        spares: array.spares.clone(),
        scrubs: array.scrubs.iter().take(SCRUBS_MAX).cloned().collect(),
        naming: to_be_named(array).is_some() && beside.scrub_files(&key, array).is_none(),
        scrub_files: beside.scrub_files(&key, array).cloned(),
        events: array.events.iter().take(EVENTS_MAX).cloned().collect(),
        decisions,
        tuning: array.tuning.iter().rev().take(EVENTS_MAX).rev().cloned().collect(),
        exports: array.exports.clone(),
        notes: array.notes.clone(),
        key,
    }
}

fn member_view(
    array: &ArrayReport,
    member: &MemberReport,
    before: Option<(&MemberReport, u64)>,
    replacement: bool,
    drive: Option<&DriveView>,
) -> MemberView {
    let all = array.member_bytes.unwrap_or(0);
    let filled = member.valid_below_bytes.filter(|_| member.state == SeatState::Rebuilding);
    MemberView {
        slot: member.slot,
        replacement,
        member: member.member.clone(),
        state: member.state,
        filled: filled
            .and_then(|bytes| bytes.saturating_mul(1000).checked_div(all))
            .map(|filled| filled.min(1000)),
        read_errors: member.read_errors,
        bad_bytes: member.bad_bytes,
        bad_blocks: member.bad_blocks.iter().take(RANGES_MAX).copied().collect(),
        slow: member.slow,
        reads_overdue: member.reads_overdue,
        silent_seconds: member.silent_seconds,
        write_mostly: member.write_mostly,
        remote: member.remote.clone(),
        read_p99_us: member.traffic.reads.p99_us,
        write_p99_us: member.traffic.writes.p99_us,
        in_flight: member.traffic.in_flight,
        rates: before
            .map(|(before, millis)| MemberRates::between(before, member, millis))
            .unwrap_or_default(),
        drive: drive.cloned(),
    }
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::array;
    use wattle_server::protocol::report::{Health, ServerReport};

    use super::*;

    fn servers(arrays: Vec<ArrayReport>) -> Servers {
        let server = ServerReport {
            server: "data".to_owned(),
            pid: 7,
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
        };
        Servers { answered: vec![(PathBuf::from("/run/data.sock"), server)], ..Servers::default() }
    }

    #[test]
    fn the_worst_array_comes_first_with_its_next_command_and_since_when() {
        let mut bad = array("bad", "raid5", &["a", "b", "c"]);
        bad.uuid = None;
        bad.health = Health::Degraded;
        bad.members[1].state = SeatState::Faulty;
        let mut beside = KnownBeside::default();
        let decision = |next: &str| DecisionReport {
            member: None,
            what: "what".to_owned(),
            why: String::new(),
            next: Some(next.to_owned()),
        };
        let uuid = array("good", "raid1", &["x"]).uuid.unwrap();
        for key in ["data/bad", uuid.as_str()] {
            beside.decisions.insert(key.to_owned(), vec![decision("wattle add bad DEVICE")]);
        }
        let since = SinceView { time: "2026-11-24T12:00:00Z".to_owned(), or_earlier: true };
        beside.since.insert("data/bad".to_owned(), (MachineStanding::Degraded, since.clone()));
        let view = machine(&servers(vec![array("good", "raid1", &["x", "y"]), bad]), None, &beside, false);
        assert_eq!(view.arrays[0].name, "bad");
        assert_eq!(view.arrays[0].next.as_deref(), Some("wattle add bad DEVICE"));
        assert_eq!(view.arrays[0].since, Some(since));
        assert_eq!(view.arrays[1].next, None, "what is whole needs nothing");
        assert_eq!(view.verdict.headline, "bad is degraded");
    }

    #[test]
    fn a_failing_drive_of_a_whole_array_is_told() {
        let mut beside = KnownBeside::default();
        let drive = DriveView { is_failing: true, smart: Some("failing".to_owned()), ..DriveView::default() };
        beside.drives.insert("/dev/sdb".to_owned(), drive.clone());
        let view =
            machine(&servers(vec![array("data", "raid1", &["/dev/sda", "/dev/sdb"])]), None, &beside, false);
        assert_eq!(view.verdict.standing, MachineStanding::Attention);
        assert_eq!(view.arrays[0].members[1].drive, Some(drive));
        assert_eq!(view.arrays[0].verdict.remarks, ["sdb says that it is failing: failing."]);
    }

    #[test]
    fn rates_are_of_the_same_server_only() {
        let (was, mut now) = (array("data", "raid1", &["a", "b"]), array("data", "raid1", &["a", "b"]));
        now.members[0].traffic.read_bytes = 1000;
        let (was, now) = (servers(vec![was]), servers(vec![now]));
        let of = |before: &Servers| {
            machine(&now, Some((before, 500)), &KnownBeside::default(), false).arrays[0].members[0]
                .rates
                .read_bytes
        };
        assert_eq!(of(&was), 2000);
        let mut other = was;
        other.answered[0].1.pid = 8;
        assert_eq!(of(&other), 0);
    }
}
