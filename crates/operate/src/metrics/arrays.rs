//! From reports to samples.

use std::sync::LazyLock;

use wattle_server::protocol::report::{
    ArrayReport, LATENCY_BOUNDS, LatencyReport, MemberReport, SeatState, ServerReport, SpareState,
    VolumeQosReport,
};
use wattle_server::qos::QosChange;
use wattle_server::settings::{self, SettingChange};

use super::drives::drive_samples;
use super::exposition::{Exposition, Family, Kind, Labels, TextFormat};
use super::names::{GivenNames, NamedKind, ServerNames, md_device_name};
use super::source::MachineReport;

const SECTOR_BYTES: u64 = 512;

/// The bounds of histograms, in seconds, as they are written.
static BOUNDS_SECS: LazyLock<[String; LATENCY_BOUNDS.len()]> =
    LazyLock::new(|| LATENCY_BOUNDS.map(|bound| bound.as_secs_f64().to_string()));

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, help }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Histogram, help }
}

/// Every family, in the order of the text. docs/metrics.md lists them; a test compares.
pub(super) const FAMILIES: &[Family] = &[
    gauge("node_md_state", "Indicates the state of md-device."),
    gauge("node_md_disks", "Number of active/failed/spare disks of device."),
    gauge("node_md_disks_required", "Total number of disks of device."),
    gauge("node_md_blocks", "Total number of blocks on device."),
    gauge("node_md_blocks_synced", "Number of blocks synced on device."),
    gauge("node_md_raid_disks", "Number of slots of device."),
    gauge("node_md_degraded", "Number of slots of device without a member in sync."),
    gauge("wattle_build_info", "The version of wattle that answers; 1."),
    gauge("wattle_server_up", "Whether the server answered."),
    counter("wattle_server_cpu_seconds", "Processor time of the server."),
    gauge("wattle_array_info", "What the array is; 1."),
    gauge("wattle_array_size_bytes", "What clients see."),
    gauge("wattle_array_degraded", "Whether a slot has no member in sync."),
    gauge("wattle_array_state", "What the array is fit for: one state is 1."),
    gauge(
        "wattle_array_redundancy_left",
        "Further members that can be lost, whichever they are, with all data still there.",
    ),
    gauge("wattle_array_read_only", "Whether nothing is written."),
    gauge("wattle_members", "Members of the array by state."),
    gauge("wattle_sync_position_bytes", "How far background work is."),
    gauge("wattle_sync_total_bytes", "Where background work ends."),
    gauge("wattle_sync_speed_bytes_per_second", "How fast background work is on each member."),
    gauge("wattle_sync_seconds_left", "How long background work will take at this speed."),
    gauge("wattle_sync_paused", "Whether background work is held until it is resumed."),
    gauge(
        "wattle_mismatch_sectors",
        "Sectors that did not agree, of the work under way or the last check or repair.",
    ),
    gauge(
        "wattle_last_scrub_timestamp_seconds",
        "When the last check or repair of the whole array was done.",
    ),
    gauge(
        "wattle_last_scrub_mismatch_sectors",
        "Sectors that did not agree in the last check or repair of the whole array that was done.",
    ),
    gauge("wattle_bitmap_regions_set", "Regions that a crash now would have resynced."),
    histogram("wattle_request_seconds", "How long clients' requests took."),
    counter("wattle_request_bytes", "Bytes that clients read and wrote."),
    counter("wattle_repaired_blocks", "Blocks that could not be read and were rewritten from redundancy."),
    counter("wattle_cache_hits", "Blocks that writes needed and found in the clean cache."),
    counter("wattle_cache_misses", "Blocks that writes needed and had to read."),
    gauge("wattle_member_state", "What the member is: one state is 1."),
    counter("wattle_member_read_errors", "Reads that failed, corrected or not."),
    gauge("wattle_member_bad_blocks", "Sectors that hold nothing that can be read."),
    gauge("wattle_member_slow", "Whether reads go around the member because it answers late."),
    gauge(
        "wattle_member_silent_seconds",
        "For how long something waits for the member that it does not answer; 0 below 15 s.",
    ),
    counter(
        "wattle_member_reads_overdue",
        "Reads that were served from redundancy because the member did not answer in time.",
    ),
    gauge("wattle_member_remote_away", "Whether the member across a network is given up, and tried again."),
    gauge("wattle_member_in_flight", "Requests under way on the member."),
    histogram("wattle_member_seconds", "How long the member's requests took."),
    counter("wattle_member_bytes", "Bytes read from and written to the member."),
    gauge("wattle_volume_size_bytes", "Size of a volume that clients are offered."),
    gauge("wattle_volume_limit", "What a volume is limited to, a second: requests or bytes."),
    gauge("wattle_volume_waiting", "Requests of a volume that are held back, by what."),
    counter("wattle_volume_held_requests", "Requests of a volume that were held back, by what."),
    counter("wattle_volume_held_seconds", "How long requests of a volume were held back, by what."),
    gauge("wattle_lv_size_bytes", "Size of a logical volume that clients are offered."),
    gauge("wattle_vg_size_bytes", "All extents of the volume group."),
    gauge("wattle_vg_free_bytes", "Extents of the volume group that new volumes can have."),
    gauge("wattle_alert_configured", "Whether there is a channel that alerts go to."),
    counter("wattle_alert_failed", "Deliveries of alerts that failed."),
    gauge("wattle_drive_info", "What the drive says that it is; 1."),
    gauge("wattle_drive_healthy", "The drive's own verdict: 0 if it expects to fail."),
    gauge("wattle_drive_temperature_celsius", "The drive's temperature."),
    gauge("wattle_drive_power_on_hours", "How long the drive has run."),
    gauge("wattle_drive_reallocated_sectors", "Sectors that the drive has replaced."),
    gauge(
        "wattle_drive_pending_sectors",
        "Sectors that the drive could not read and will replace once written.",
    ),
    gauge("wattle_drive_offline_uncorrectable_sectors", "Sectors that the drive's own scan could not read."),
    gauge("wattle_drive_crc_errors", "Transfers that arrived damaged: mostly the cable."),
    gauge("wattle_drive_uncorrected_errors", "Errors that the drive could not correct."),
    gauge("wattle_drive_spare_ratio", "What is left of the spare blocks of flash."),
    gauge("wattle_drive_used_ratio", "What is used of the life that the maker promises of flash."),
    gauge(
        "wattle_drive_erc_read_seconds",
        "How long the drive tries to read a sector before it gives up; 0 if it never does.",
    ),
    gauge("wattle_drive_asked_timestamp_seconds", "When the drive said this."),
];

/// The whole text of what a machine's servers told. `names` are those of the scrape before.
#[must_use]
pub fn render(machine: &MachineReport, names: &mut GivenNames, format: TextFormat) -> String {
    let mut all = Exposition::new(format, FAMILIES);
    all.add("wattle_build_info", &Labels::new().with("version", env!("CARGO_PKG_VERSION")), 1);
    names.keep(&machine.servers);
    for sight in &machine.servers {
        let server = Labels::new().with("server", &sight.name);
        all.add("wattle_server_up", &server, u8::from(sight.report.is_some()));
        if let Some(report) = &sight.report {
            of_server(&mut all, report, &server, names.of(&sight.name));
        }
    }
    if let Some(alerts) = machine.alerts {
        all.add("wattle_alert_configured", &Labels::new(), u8::from(alerts.configured));
        all.add("wattle_alert_failed", &Labels::new(), alerts.failed);
    }
    drive_samples(&mut all, &machine.drives);
    all.finish()
}

fn of_server(all: &mut Exposition, report: &ServerReport, server: &Labels, mut names: ServerNames<'_>) {
    // The sum over threads goes down when one ends, and is no counter.
    if let Some(cpu_ms) = report.cpu_ms {
        all.add("wattle_server_cpu_seconds", server, seconds(cpu_ms * 1000));
    }
    for array in &report.arrays {
        let device = names.unique(NamedKind::Device, &array.name, md_device_name(&array.name));
        as_node_exporter(all, array, &device);
        let labels =
            Labels::new().with("array", names.unique(NamedKind::Array, &array.name, array.name.clone()));
        of_array(all, array, &labels, &device, &report.server);
    }
    for group in &report.groups {
        let labels =
            Labels::new().with("vg", names.unique(NamedKind::Group, &group.name, group.name.clone()));
        if group.size_bytes > 0 {
            // An older server does not tell.
            all.add("wattle_vg_size_bytes", &labels, group.size_bytes);
            all.add("wattle_vg_free_bytes", &labels, group.free_bytes);
        }
    }
    report.qos.iter().for_each(|volume| of_volume(all, volume, &report.server));
    for volume in &report.volumes {
        let name = names.unique(NamedKind::Volume, &volume.name, volume.name.clone());
        match volume.name.split_once('/').zip(name.split_once('/')) {
            Some(((group, _), (_, lv))) if report.groups.iter().any(|known| known.name == group) => {
                let labels = Labels::new().with("vg", group).with("lv", lv);
                all.add("wattle_lv_size_bytes", &labels, volume.size_bytes);
            }
            _ => all.add("wattle_volume_size_bytes", &Labels::new().with("volume", name), volume.size_bytes),
        }
    }
}

/// What holds a volume's requests back. Names of volumes may repeat on other servers.
fn of_volume(all: &mut Exposition, volume: &VolumeQosReport, server: &str) {
    let labels = Labels::new().with("volume", volume.volume.as_str()).with("server", server);
    for (key, value) in &volume.settings {
        if let Ok(SettingChange::Qos(
            _,
            QosChange::Volume(_, Some(limit)) | QosChange::Client(_, Some(limit)),
        )) = settings::parse(key, value)
        {
            all.add("wattle_volume_limit", &labels.with("limit", key.as_str()), limit);
        }
    }
    for (by, waiting, count, micros) in [
        ("limit", volume.waiting_limited, volume.limited, volume.limited_us),
        ("share", volume.waiting_shared, volume.shared, volume.shared_us),
    ] {
        let labels = labels.with("by", by);
        all.add("wattle_volume_waiting", &labels, waiting);
        all.add("wattle_volume_held_requests", &labels, count);
        all.add("wattle_volume_held_seconds", &labels, seconds(micros));
    }
}

/// As node_exporter has it of an array of the kernel's.
fn as_node_exporter(all: &mut Exposition, array: &ArrayReport, device: &str) {
    let labels = Labels::new().with("device", device);
    let action = array.sync.as_ref().map(|job| job.action.as_str());
    let pending = array.sync.is_none() && !array.synced && array.is_redundant();
    let state = match action {
        Some("recovery") => "recovering",
        Some("check") => "check",
        Some(_) => "resync",
        None if pending => "resync",
        None => "active",
    };
    for one in ["active", "inactive", "recovering", "resync", "check"] {
        all.add("node_md_state", &labels.with("state", one), u8::from(one == state));
    }
    let slots = array.members.len();
    let has_state =
        |wanted: SeatState| move |member: &&MemberReport| member.member.is_some() && member.state == wanted;
    let faulty_members = array.members.iter().filter(has_state(SeatState::Faulty)).count();
    let spares = |state: SpareState| array.spares.iter().filter(move |spare| spare.state == state).count();
    let failed = faulty_members + spares(SpareState::Faulty);
    let active = if array.is_redundant() { slots.saturating_sub(array.degraded) } else { slots };
    for (state, count) in [("active", active), ("failed", failed), ("spare", spares(SpareState::Spare))] {
        all.add("node_md_disks", &labels.with("state", state), count);
    }
    all.add("node_md_disks_required", &labels, slots);
    let blocks = array.size_bytes / 1024;
    all.add("node_md_blocks", &labels, blocks);
    let synced = match &array.sync {
        Some(job) => job.done_bytes / 1024,
        None if pending => 0,
        None => blocks,
    };
    all.add("node_md_blocks_synced", &labels, synced);
    all.add("node_md_raid_disks", &labels, slots);
    all.add("node_md_degraded", &labels, array.degraded);
}

fn of_array(all: &mut Exposition, array: &ArrayReport, labels: &Labels, device: &str, server: &str) {
    let info = labels.with("device", device).with("server", server).with("level", &array.level);
    all.add("wattle_array_info", &info.with("uuid", array.uuid.as_deref().unwrap_or("")), 1);
    all.add("wattle_array_size_bytes", labels, array.size_bytes);
    all.add("wattle_array_degraded", labels, u8::from(array.degraded > 0));
    let state = array.health.word(array.synced).replace(' ', "_");
    for one in ["good", "not_synced", "degraded", "unusable"] {
        all.add("wattle_array_state", &labels.with("state", one), u8::from(one == state));
    }
    if let Some(left) = array.redundancy_left {
        all.add("wattle_array_redundancy_left", labels, left);
    }
    all.add("wattle_array_read_only", labels, u8::from(array.read_only));
    of_members_together(all, array, labels);
    of_work(all, array, labels);
    if let Some(bitmap) = &array.bitmap {
        all.add("wattle_bitmap_regions_set", labels, bitmap.bits_set);
    }
    let requests = &array.requests;
    for (op, latency) in
        [("read", &requests.reads), ("write", &requests.writes), ("flush", &requests.flushes)]
    {
        of_latency(all, "wattle_request_seconds", &labels.with("op", op), latency);
    }
    let counters = &array.counters;
    all.add("wattle_request_bytes", &labels.with("op", "read"), counters.read_bytes);
    all.add("wattle_request_bytes", &labels.with("op", "write"), counters.write_bytes);
    all.add("wattle_repaired_blocks", labels, counters.repaired);
    if let Some(cache) = &array.cache {
        all.add("wattle_cache_hits", labels, cache.hits);
        all.add("wattle_cache_misses", labels, cache.misses);
    }
    for member in &array.members {
        of_member(all, member, &labels.with("slot", member.slot), "slot");
    }
    for member in &array.replacements {
        of_member(all, member, &labels.with("slot", member.slot), "replacement");
    }
}

fn of_members_together(all: &mut Exposition, array: &ArrayReport, labels: &Labels) {
    let in_state = |state| array.members.iter().filter(|member| member.state == state).count();
    let spares = |state| array.spares.iter().filter(|spare| spare.state == state).count();
    for (state, count) in [
        ("in_sync", in_state(SeatState::InSync)),
        ("rebuilding", in_state(SeatState::Rebuilding) + array.replacements.len()),
        ("spare", spares(SpareState::Spare)),
        ("faulty", in_state(SeatState::Faulty) + spares(SpareState::Faulty)),
        ("missing", in_state(SeatState::Missing)),
        ("slow", array.members.iter().filter(|member| member.slow).count()),
    ] {
        all.add("wattle_members", &labels.with("state", state), count);
    }
}

fn of_work(all: &mut Exposition, array: &ArrayReport, labels: &Labels) {
    if let Some(job) = &array.sync {
        let labels = labels.with("action", &job.action);
        all.add("wattle_sync_position_bytes", &labels, job.done_bytes);
        all.add("wattle_sync_total_bytes", &labels, job.total_bytes);
        all.add("wattle_sync_speed_bytes_per_second", &labels, job.speed_bytes_per_sec);
        if let Some(left) = job.remaining_secs {
            all.add("wattle_sync_seconds_left", &labels, left);
        }
    }
    let paused = array.paused || array.sync.as_ref().is_some_and(|job| job.paused);
    all.add("wattle_sync_paused", labels, u8::from(paused));
    let ended = array.last_done();
    let now = array.sync.as_ref().map(|job| job.mismatch_sectors);
    if let Some(mismatches) = now.or(ended.map(|scrub| scrub.mismatch_sectors)) {
        all.add("wattle_mismatch_sectors", labels, mismatches);
    }
    if let Some(scrub) = ended {
        all.add("wattle_last_scrub_mismatch_sectors", labels, scrub.mismatch_sectors);
        if let Some(ended) = scrub.ended_secs() {
            all.add("wattle_last_scrub_timestamp_seconds", labels, ended);
        }
    }
}

fn of_member(all: &mut Exposition, member: &MemberReport, labels: &Labels, seat: &str) {
    let labels = labels.with("seat", seat).with("member", member.member.as_deref().unwrap_or(""));
    for state in [SeatState::InSync, SeatState::Rebuilding, SeatState::Missing, SeatState::Faulty] {
        let is = u8::from(state == member.state);
        all.add("wattle_member_state", &labels.with("state", state.word()), is);
    }
    if member.member.is_none() {
        return;
    }
    all.add("wattle_member_read_errors", &labels, member.read_errors);
    all.add("wattle_member_bad_blocks", &labels, member.bad_bytes / SECTOR_BYTES);
    all.add("wattle_member_slow", &labels, u8::from(member.slow));
    all.add("wattle_member_silent_seconds", &labels, member.silent_seconds);
    all.add("wattle_member_reads_overdue", &labels, member.reads_overdue);
    if let Some(remote) = &member.remote {
        let away = remote.state == wattle_server::protocol::report::RemoteState::Away;
        all.add("wattle_member_remote_away", &labels, u8::from(away));
    }
    let traffic = &member.traffic;
    all.add("wattle_member_in_flight", &labels, traffic.in_flight);
    for (op, latency) in [("read", &traffic.reads), ("write", &traffic.writes), ("flush", &traffic.flushes)] {
        of_latency(all, "wattle_member_seconds", &labels.with("op", op), latency);
    }
    all.add("wattle_member_bytes", &labels.with("op", "read"), traffic.read_bytes);
    all.add("wattle_member_bytes", &labels.with("op", "write"), traffic.written_bytes);
}

fn of_latency(all: &mut Exposition, name: &'static str, labels: &Labels, latency: &LatencyReport) {
    if latency.count == 0 {
        // Most of what a machine could do it never did: that is no sample.
        return;
    }
    let below = BOUNDS_SECS.iter().map(String::as_str).zip(latency.below);
    all.add_histogram(name, labels, below, latency.count, seconds(latency.sum_us));
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::{array, sync};
    use wattle_server::protocol::report::{GroupReport, ScrubReport, VolumeQosReport, VolumeReport};

    use super::*;
    use crate::metrics::source::{AlertFigures, ServerSight};
    use crate::smart::DriveHealth;

    fn server(name: &str, arrays: Vec<ArrayReport>) -> ServerSight {
        let report = ServerReport {
            server: name.to_owned(),
            pid: 1,
            arrays,
            volumes: Vec::new(),
            groups: Vec::new(),
            threads: Vec::new(),
            cpu_ms: Some(1500),
            qos: Vec::new(),
            checkpoints: Vec::new(),
            reservations: Vec::new(),
            sole_array: None,
            stopped: Vec::new(),
        };
        ServerSight { name: name.to_owned(), report: Some(report) }
    }

    /// Something of everything.
    fn machine() -> MachineReport {
        let mut data = array("data", "raid5", &["/dev/a", "/dev/b", "/dev/c"]);
        data.sync = Some(sync("check", 1 << 20, 4 << 20));
        data.requests.reads.count = 1;
        data.members[1].traffic.writes.count = 1;
        data.cache = Some(wattle_server::protocol::report::CacheReport::default());
        data.bitmap =
            Some(wattle_server::protocol::report::BitmapReport { chunk_bytes: 1, bits: 9, bits_set: 4 });
        data.members[0].remote = Some(wattle_server::protocol::report::RemoteReport {
            state: wattle_server::protocol::report::RemoteState::Away,
            away_since: None,
            attempts: 3,
            reason: None,
            reason_code: None,
            paths: Vec::new(),
        });
        let scrub = r#"{"run":1,"action":"check","started":"2026-01-01T00:00:00Z","duration_secs":60,"outcome":"done","mismatch_sectors":8}"#;
        data.scrubs = vec![serde_json::from_str::<ScrubReport>(scrub).unwrap()];
        let mut sight = server("data", vec![data]);
        let report = sight.report.as_mut().unwrap();
        report.groups = vec![GroupReport {
            name: "vg".to_owned(),
            uuid: String::new(),
            arrays: Vec::new(),
            size_bytes: 100,
            free_bytes: 40,
        }];
        let limit = ("iops".to_owned(), "500".to_owned());
        report.qos = vec![VolumeQosReport {
            volume: "vg/home".to_owned(),
            settings: [limit].into(),
            requests: 9,
            bytes: 9 << 12,
            limited: 4,
            limited_us: 1000,
            waiting_limited: 1,
            shared: 2,
            shared_us: 50,
            waiting_shared: 0,
            depth_thousandths: None,
        }];
        let named = |name: &str| VolumeReport { name: name.to_owned(), ..volume() };
        report.volumes = vec![named("vg/home"), named("data:p1")];
        let drive = DriveHealth {
            drive: "/dev/sda".to_owned(),
            is_healthy: Some(false),
            temperature_celsius: Some(-5),
            power_on_hours: Some(1),
            reallocated: Some(2),
            pending: Some(3),
            offline_uncorrectable: Some(4),
            crc_errors: Some(5),
            uncorrected_errors: Some(6),
            spare_percent: Some(98),
            used_percent: Some(103),
            erc_read_deciseconds: Some(70),
            asked_secs: Some(7),
            ..DriveHealth::default()
        };
        let silent = ServerSight { name: "silent".to_owned(), report: None };
        let alerts = Some(AlertFigures { configured: true, failed: 2 });
        MachineReport { servers: vec![sight, silent], alerts, drives: vec![drive] }
    }

    #[test]
    fn every_family_is_told_and_documented() {
        let text = render(&machine(), &mut GivenNames::default(), TextFormat::Prometheus);
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(page).unwrap();
        for Family { name, kind, help } in FAMILIES {
            let total = if *kind == Kind::Counter { "_total" } else { "" };
            assert!(text.contains(&format!("# HELP {name}{total} {help}\n")), "{name} has no sample");
            let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            assert!(row.is_some_and(|row| row.contains(help)), "{name} is not in docs/metrics.md: {row:?}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, FAMILIES.len());
        for line in [
            "wattle_sync_position_bytes{array=\"data\",action=\"check\"} 1048576",
            "node_md_state{device=\"md_data\",state=\"check\"} 1",
            "node_md_blocks_synced{device=\"md_data\"} 1024",
            "wattle_last_scrub_timestamp_seconds{array=\"data\"} 1767225660",
            "wattle_lv_size_bytes{vg=\"vg\",lv=\"home\"} 60",
            "wattle_volume_size_bytes{volume=\"data:p1\"} 60",
            "wattle_vg_free_bytes{vg=\"vg\"} 40",
            "wattle_server_up{server=\"silent\"} 0",
            "wattle_server_cpu_seconds_total{server=\"data\"} 1.5",
            "wattle_alert_failed_total 2",
            "wattle_drive_used_ratio{drive=\"/dev/sda\"} 1.03",
            "wattle_drive_temperature_celsius{drive=\"/dev/sda\"} -5",
            "wattle_drive_erc_read_seconds{drive=\"/dev/sda\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn no_two_samples_are_one() {
        let evil = "a\"b\\c\nd";
        let arrays = || vec![array(evil, "raid1", &["x", "x"]), array(evil, "raid1", &["y"])];
        let servers = vec![server("a", arrays()), server("b", arrays())];
        for format in [TextFormat::Prometheus, TextFormat::OpenMetrics] {
            let machine = MachineReport { servers: servers.clone(), ..MachineReport::default() };
            let text = render(&machine, &mut GivenNames::default(), format);
            let mut seen = std::collections::BTreeSet::new();
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                assert!(seen.insert(line.rsplit_once(' ').unwrap().0), "{line}");
            }
        }
    }

    /// Counters of two arrays would be one series, and an alert would name the wrong array.
    #[test]
    fn an_array_keeps_its_name_while_another_server_does_not_answer() {
        let two = |name: &str| server(name, vec![array("data", "raid1", &["x", "y"])]);
        let silent = |name: &str| ServerSight { name: name.to_owned(), report: None };
        let mut names = GivenNames::default();
        let mut named = |servers: Vec<ServerSight>| {
            let machine = MachineReport { servers, ..MachineReport::default() };
            let text = render(&machine, &mut names, TextFormat::Prometheus);
            let info = text.lines().filter_map(|line| line.strip_prefix("wattle_array_info{array=\""));
            let named = |line: &str| {
                let (array, rest) = line.split_once('"')?;
                let server = rest.split_once("server=\"")?.1.split_once('"')?.0;
                Some(format!("{server}: {array}"))
            };
            info.filter_map(named).collect::<Vec<_>>()
        };
        assert_eq!(named(vec![two("b"), two("c")]), ["b: data", "c: data_2"]);
        assert_eq!(named(vec![silent("b"), two("c")]), ["c: data_2"]);
        // A server that is new, and comes first.
        assert_eq!(named(vec![two("a"), two("b"), two("c")]), ["a: data_3", "b: data", "c: data_2"]);
        // What is gone leaves its name to the next one.
        assert_eq!(named(vec![two("c"), two("d")]), ["c: data_2", "d: data"]);
        assert_eq!(named(vec![server("d", Vec::new()), two("e")]), ["e: data"]);
    }

    /// What a scrape of very much costs beside asking: `--ignored --nocapture`, in a release build.
    #[test]
    #[ignore = "a measurement"]
    fn a_scrape_of_a_thousand_volumes_is_measured() {
        let members: Vec<String> = (0..4).map(|ix| format!("/dev/sd{ix}")).collect();
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        let used = LatencyReport { count: 99, below: [9; 11], ..LatencyReport::default() };
        let busy = |ix: usize| {
            let mut array = array(&format!("array{ix}"), "raid5", &names);
            (array.requests.reads, array.requests.writes) = (used, used);
            for member in &mut array.members {
                (member.traffic.reads, member.traffic.writes) = (used, used);
            }
            array
        };
        let volumes =
            (0..1000).map(|ix| VolumeReport { name: format!("vg/volume{ix}"), ..volume() }).collect();
        let mut few = server("all", (0..4).map(busy).collect());
        few.report.as_mut().unwrap().volumes = volumes;
        measure("1,000 volumes on 4 arrays", few);
        measure("1,000 arrays of 4 members", server("all", (0..1000).map(busy).collect()));
    }

    fn volume() -> VolumeReport {
        let (name, exports) = (String::new(), Vec::new());
        let (size_bytes, io_min_bytes, io_opt_bytes) = (60, 0, 0);
        VolumeReport { name, size_bytes, io_min_bytes, io_opt_bytes, read_only: false, blank: false, exports }
    }

    #[allow(clippy::disallowed_methods, reason = "it measures")]
    fn measure(what: &str, sight: ServerSight) {
        let line = wattle_server::protocol::encode(&wattle_server::protocol::Response::Status(
            sight.report.unwrap(),
        ));
        let began = std::time::Instant::now();
        let decoded = wattle_server::protocol::decode::<wattle_server::protocol::Response>(&line).unwrap();
        let decoding = began.elapsed();
        let wattle_server::protocol::Response::Status(report) = decoded else { panic!("another answer") };
        let machine = MachineReport {
            servers: vec![ServerSight { name: "all".to_owned(), report: Some(report) }],
            ..MachineReport::default()
        };
        let began = std::time::Instant::now();
        let text = render(&machine, &mut GivenNames::default(), TextFormat::Prometheus);
        println!(
            "{what}: {} bytes of status: {decoding:?}; {} bytes of metrics: {:?}",
            line.len(),
            text.len(),
            began.elapsed()
        );
    }
}
