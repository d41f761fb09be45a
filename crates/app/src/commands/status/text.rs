//! An array for people: what it is, whether it is well, what it is doing and what limits that, what
//! was found.

use wattle_control::units::Units;
use wattle_engine::volume::qos::QosLimits;
use wattle_server::events::{scrub_end, sectors};
use wattle_server::mkfs::mkfs;
use wattle_server::protocol::report::{
    ArrayReport, CacheReport, Health, JobStatus, MemberReport, RemoteState, SeatState, ServerReport,
    SpareState, VolumeQosReport, VolumeReport,
};
use wattle_server::protocol::reservations::ReservationReport;
use wattle_server::time::duration;

use super::scrubs::{places, style_scrub};
use crate::output::Screen;
use crate::output::progress::mdstat_line;
use crate::output::text::{printable, table};

/// Checks and repairs that are listed.
const SCRUBS_SHOWN: usize = 3;

/// Events that are listed.
const EVENTS_SHOWN: usize = 5;

/// Ranges of bad blocks that are listed for each member.
const RANGES_SHOWN: usize = 4;

/// Everything that is known of it. `drives` are lines on the drives below its members.
pub fn render(server: &ServerReport, array: &ArrayReport, drives: &[String], screen: Screen) -> String {
    let Screen { units, style, .. } = screen;
    let mut what = vec![array.level.clone()];
    what.extend(array.layout.clone());
    what.extend(array.chunk_bytes.map(|bytes| format!("chunk {}", units.show(bytes))));
    what.push(units.show_capacity(array.size_bytes));
    let mut text = format!("{}  {}\n", style.bold(&printable(&array.name)), what.join(", "));
    text.push_str(&table("  ", &facts(server, array, screen)));
    text.push_str(&table("  ", &members(array, screen)));
    drives.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    for line in array.members.iter().chain(&array.replacements).flat_map(remote) {
        text.push_str(&format!("  {line}\n"));
    }
    for line in bad_blocks(array) {
        text.push_str(&format!("  {line}\n"));
    }
    for (ix, scrub) in array.scrubs.iter().take(SCRUBS_SHOWN).enumerate() {
        text.push_str(&format!("  {}\n", style_scrub(scrub, screen)));
        // Where it was is told of the last one only: earlier ones are for comparing numbers.
        if ix == 0 {
            places(array, scrub).iter().for_each(|line| text.push_str(&format!("    {line}\n")));
        }
    }
    // What a check found is above.
    let shown: Vec<_> = array.scrubs.iter().take(SCRUBS_SHOWN).map(scrub_end).collect();
    let events = array.events.iter().filter(|event| !shown.contains(&event.what));
    for event in events.take(EVENTS_SHOWN) {
        text.push_str(&format!("  {}  {}\n", event.time, printable(&event.what)));
    }
    let c = &array.counters;
    text.push_str(&format!(
        "  since start: {} reads ({}), {} writes ({}), {} flushes\n",
        c.reads,
        units.show(c.read_bytes),
        c.writes,
        units.show(c.write_bytes),
        c.flushes,
    ));
    if let Some(cache) = array.cache.filter(|cache| cache.hits + cache.misses > 0) {
        text.push_str(&style_cache(&cache, units));
    }
    text.push_str(&volume_lines(server, &array.name));
    let r = &array.requests;
    for (what, latency) in [("read", r.reads), ("write", r.writes), ("flush", r.flushes)] {
        if latency.count > 0 {
            text.push_str(&format!(
                "  {what} latency: {} us half of them, {} us 99 of 100, {} us 999 of 1000\n",
                latency.p50_us, latency.p99_us, latency.p99_9_us
            ));
        }
    }
    text
}

/// A volume that lies on arrays or drives.
pub fn volume(server: &ServerReport, volume: &VolumeReport, screen: Screen) -> String {
    let name = screen.style.bold(&printable(&volume.name));
    let ways: Vec<_> = volume.exports.iter().map(|way| printable(way)).collect();
    let access = if volume.read_only { "read-only" } else { "read-write" };
    let size = screen.units.show_capacity(volume.size_bytes);
    let mkfs = if volume.blank { mkfs(volume.io_min_bytes, volume.io_opt_bytes) } else { Vec::new() };
    let mkfs = mkfs.into_iter().map(|mkfs| format!("  mkfs  {mkfs}\n"));
    let qos = volume_lines(server, &volume.name);
    format!("{name}  {size}, {access}, {}\n{}{qos}", ways.join(" "), mkfs.collect::<String>())
}

/// What is set for a volume, what waited for that, and what is noted of it.
fn volume_lines(server: &ServerReport, volume: &str) -> String {
    let noted = server.checkpoints.iter().filter(|found| found.volume == volume);
    let noted = noted.map(|found| format!("  checkpoint {}, of {}\n", printable(&found.name), found.since));
    let reserved = server.reservations.iter().filter(|found| found.volume == volume).map(reserved_line);
    limit_lines(server, volume) + &noted.chain(reserved).collect::<String>()
}

/// What NVMe hosts have reserved of it; `wattle reservations` tells more.
fn reserved_line(found: &ReservationReport) -> String {
    let holders: Vec<_> =
        found.hosts.iter().filter(|host| host.holds).map(|host| printable(&host.nqn)).collect();
    match &found.kind {
        _ if !found.readable => "  reservations of NVMe hosts cannot be read: none is let in\n".to_owned(),
        Some(kind) => format!("  reserved ({kind}) by {}\n", holders.join(", ")),
        None => format!("  NVMe hosts that are registered: {}\n", found.hosts.len()),
    }
}

fn limit_lines(server: &ServerReport, volume: &str) -> String {
    let Some(qos) = server.qos.iter().find(|qos| qos.volume == volume) else { return String::new() };
    let mut text = String::new();
    let set = qos_settings(qos);
    if !set.is_empty() {
        text.push_str(&format!("  quality of service: {set}\n"));
    }
    let mean = |sum_us: u64, count: u64| sum_us as f64 / 1e3 / count.max(1) as f64;
    for (why, count, sum_us, waiting) in [
        ("its own limits", qos.limited, qos.limited_us, qos.waiting_limited),
        ("other volumes", qos.shared, qos.shared_us, qos.waiting_shared),
    ] {
        if count + waiting > 0 {
            text.push_str(&format!(
                "  waited for {why}: {count} requests, {:.1} ms each; {waiting} wait now\n",
                mean(sum_us, count)
            ));
        }
    }
    text
}

/// What is set for a volume and is not the default, as it is typed.
pub fn qos_settings(qos: &VolumeQosReport) -> String {
    let default = wattle_server::qos::shown(&QosLimits::default());
    let set = qos.settings.iter().filter(|(key, value)| default.get(*key) != Some(value));
    set.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// How large the cache is, what for, and why.
fn style_cache(cache: &CacheReport, units: Units) -> String {
    let grown = cache.grown.map(|grown| {
        format!(
            "  cache grew from {} to {}: {} of {} rows that were written came again after they had made room for others\n",
            units.show(grown.from_bytes),
            units.show(grown.to_bytes),
            grown.again,
            grown.rows
        )
    });
    let paused = cache.paused.map(|paused| {
        format!(
            "  cache keeps nothing for now: 4096 rows took a core that never sleeps {:.1} ms without, {:.1} ms with it\n",
            paused.without_us as f64 / 1e3,
            paused.with_us as f64 / 1e3
        )
    });
    format!(
        "  cache: {} of {} used (at most {}, stripe_cache_size {}), {:.0} % of the blocks that writes needed\n{}{}",
        units.show(cache.active_bytes),
        units.show(cache.size_bytes),
        units.show(cache.ceiling_bytes),
        cache.stripe_cache_size,
        100.0 * cache.hits as f64 / (cache.hits + cache.misses) as f64,
        grown.unwrap_or_default(),
        paused.unwrap_or_default()
    )
}

fn facts(server: &ServerReport, array: &ArrayReport, screen: Screen) -> Vec<Vec<String>> {
    let style = screen.style;
    let health = format!("{} {}", array.slots, array.health.word(array.synced));
    let health = match array.health {
        Health::Good if array.synced => style.green(&health),
        Health::Good | Health::Degraded => style.yellow(&health),
        Health::Unusable => style.red(&health),
    };
    let access = if array.read_only { "read-only" } else { "read-write" };
    let mut facts = vec![("health", health), ("state", format!("{}, {access}", array.state))];
    if array.blank {
        facts.extend(mkfs(array.io_min_bytes, array.io_opt_bytes).into_iter().map(|mkfs| ("mkfs", mkfs)));
    }
    if let Some(sync) = &array.sync {
        let line = mdstat_line(sync, &sync.action);
        facts.push(("doing", if sync.paused { style.yellow(&line) } else { line }));
        facts.extend(doing(sync, screen).into_iter().map(|line| ("", line)));
    } else if array.paused {
        let held = format!("nothing in the background, until `{}`", printable(&array.resume_order()));
        facts.push(("doing", style.yellow(&held)));
    }
    facts.extend(array.uuid.iter().map(|uuid| ("uuid", uuid.clone())));
    facts.extend(after_crash(array, screen).map(|text| ("crash", text)));
    facts.push(("server", format!("{} (pid {})", printable(&server.server), server.pid)));
    facts.extend(array.exports.iter().map(|export| ("export", printable(export))));
    facts.extend(array.notes.iter().map(|note| ("note", printable(note))));
    facts.into_iter().map(|(label, value)| vec![label.to_owned(), value]).collect()
}

/// What the progress line of md does not tell: which member is filled, how long it takes, and what
/// would make it faster.
fn doing(sync: &JobStatus, screen: Screen) -> Vec<String> {
    let mut lines = Vec::new();
    let speed = format!("{}/s", screen.units.show(sync.speed_bytes_per_sec));
    let mut parts = Vec::new();
    if !sync.members.is_empty() {
        let names: Vec<_> = sync.members.iter().map(|member| printable(member)).collect();
        parts.push(format!("onto {}", names.join(", ")));
    }
    match (sync.paused, sync.remaining_secs) {
        (true, _) => parts.push("paused".to_owned()),
        (false, Some(secs)) => parts.push(format!("{} left at {speed}", duration(secs))),
        (false, None) => parts.push(speed),
    }
    if matches!(sync.action.as_str(), "check" | "repair") {
        parts.push(format!("{} so far", sectors(sync.mismatch_sectors)));
    }
    lines.push(parts.join(", "));
    lines.extend(sync.limited_by.iter().map(|limit| format!("limited by {}", printable(&limit.text))));
    lines
}

/// What a crash now would cost.
fn after_crash(array: &ArrayReport, screen: Screen) -> Option<String> {
    let units = screen.units;
    match (array.consistency.as_deref()?, &array.bitmap) {
        ("bitmap", Some(bitmap)) => Some(format!(
            "write-intent bitmap: {} of {} regions of {} would be resynced",
            bitmap.bits_set,
            bitmap.bits,
            units.show(bitmap.chunk_bytes)
        )),
        ("ppl", _) => {
            Some("partial parity log: only stripes in flight are recovered; no write hole".to_owned())
        }
        ("resync", _) => Some("everything would be resynced: no bitmap, no log".to_owned()),
        _ => None,
    }
}

fn members(array: &ArrayReport, screen: Screen) -> Vec<Vec<String>> {
    let mut rows = vec![["slot", "state", "queued", "errors", "bad", "member"].map(str::to_owned).to_vec()];
    for member in &array.members {
        rows.push(member_row(member, false, screen));
        let replacements = array.replacements.iter().filter(|other| other.slot == member.slot);
        rows.extend(replacements.map(|other| member_row(other, true, screen)));
    }
    for spare in &array.spares {
        let state = if matches!(spare.state, SpareState::Faulty | SpareState::Refused) {
            screen.style.red(spare.state.word())
        } else {
            spare.state.word().to_owned()
        };
        let dash = || "-".to_owned();
        rows.push(vec![dash(), state, dash(), dash(), dash(), printable(&spare.member)]);
    }
    rows
}

fn member_row(member: &MemberReport, replacement: bool, screen: Screen) -> Vec<String> {
    let current = member.valid_below_bytes.map(|bytes| screen.units.show(bytes));
    let mut state = match (member.state, current, replacement) {
        (SeatState::Rebuilding, Some(bytes), false) => format!("rebuilding, current below {bytes}"),
        (SeatState::Rebuilding, Some(bytes), true) => format!("replacement, current below {bytes}"),
        (state, _, _) => state.word().replace('_', " "),
    };
    if member.write_mostly {
        state.push_str(", write-mostly");
    }
    if member.slow {
        state.push_str(&format!(", slow ({} reads went around it)", member.reads_overdue));
    }
    if member.silent_seconds > 0 {
        state.push_str(&format!(", no answer for {} s", member.silent_seconds));
    }
    let state = match member.state {
        SeatState::InSync if !member.slow && member.silent_seconds == 0 => state,
        SeatState::Faulty => screen.style.red(&state),
        _ => screen.style.yellow(&state),
    };
    let name = member.member.as_deref().map_or("-".to_owned(), printable);
    let bad = if member.bad_bytes == 0 { "-".to_owned() } else { screen.units.show(member.bad_bytes) };
    let queued = member.traffic.in_flight.to_string();
    vec![member.slot.to_string(), state, queued, member.read_errors.to_string(), bad, name]
}

/// The bad-block logs, member by member.
fn bad_blocks(array: &ArrayReport) -> Vec<String> {
    let with_bad = array.members.iter().chain(&array.replacements).filter(|member| member.bad_bytes > 0);
    with_bad
        .map(|member| {
            let ranges = member.bad_blocks.iter().take(RANGES_SHOWN);
            let mut shown: Vec<_> = ranges
                .map(|range| format!("{}..{}", range.start_byte, range.start_byte + range.len_bytes))
                .collect();
            if member.bad_blocks.len() > RANGES_SHOWN {
                shown.push("…".to_owned());
            }
            let name = member.member.as_deref().map_or("-".to_owned(), printable);
            format!("bad blocks of {name}, bytes of its data: {}", shown.join(", "))
        })
        .collect()
}

/// A member across a network: whether it answers, how fast, and by which way.
fn remote(member: &MemberReport) -> Vec<String> {
    let Some(remote) = &member.remote else { return Vec::new() };
    let name = member.member.as_deref().map_or("-".to_owned(), printable);
    let state = match (remote.state, &remote.away_since) {
        (RemoteState::Connected, _) => "connected".to_owned(),
        (RemoteState::Waiting, _) => "waited for".to_owned(),
        (RemoteState::Away, Some(since)) => format!("away since {since}, tried {} times", remote.attempts),
        (RemoteState::Away, None) => "away".to_owned(),
    };
    let mut first = format!("{name}: {state}");
    if remote.state != RemoteState::Away {
        for (what, latency) in [("reads", member.traffic.reads), ("writes", member.traffic.writes)] {
            if latency.count > 0 {
                let (half, most) = (latency.p50_us, latency.p99_us);
                first.push_str(&format!("; {what} answered in {half} us half of them, {most} us 99 of 100"));
            }
        }
    }
    if let Some(reason) = &remote.reason {
        first.push_str(&format!("; {}", printable(reason)));
    }
    let paths = remote.paths.iter().filter(|_| remote.paths.len() > 1).map(|path| {
        let failures = match path.failures {
            0 => String::new(),
            count => format!(", failed {count} times"),
        };
        format!("  path {}: {}{failures}", printable(&path.path), path.state.replace('_', " "))
    });
    std::iter::once(first).chain(paths).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::status::scrubs::scrub_line;
    use crate::output::Style;
    use wattle_control::units::Units;
    use wattle_server::fixtures::array;
    use wattle_server::fixtures::sync;
    use wattle_server::protocol::report::{
        BitmapReport, CacheGrowthReport, EventReport, LimitReport, MismatchReport, RangeReport, ScrubReport,
        SpareReport,
    };

    const PLAIN: Screen = Screen { units: Units::Iec, style: Style::PLAIN, style_err: Style::PLAIN };

    fn shown(array: &ArrayReport) -> String {
        let server = ServerReport {
            server: "data".to_owned(),
            pid: 7,
            arrays: Vec::new(),
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
        render(&server, array, &[], PLAIN)
    }

    fn scrub() -> ScrubReport {
        ScrubReport {
            run: 1,
            action: "check".to_owned(),
            source: None,
            started: "2026-11-21T12:00:00Z".to_owned(),
            duration_secs: Some(3),
            outcome: "done".to_owned(),
            error: None,
            covered: None,
            mismatch_sectors: 0,
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

    fn mismatch(slot: Option<u16>) -> MismatchReport {
        MismatchReport {
            array_start_byte: 196_608,
            array_len_bytes: 12_288,
            member_start_byte: 65_536,
            member_len_bytes: 4096,
            slot,
            member: slot.map(|slot| format!("disk-{slot}")),
            kind: "parity".to_owned(),
            differ: Vec::new(),
            record: None,
        }
    }

    #[test]
    fn held_work_names_the_order_that_lets_it_go_on() {
        let mut data = array("my data", "raid5", &["a", "b", "c"]);
        data.paused = true;
        assert!(shown(&data).contains("until `wattle check 'my data' --resume`"), "{}", shown(&data));
        data.settings.insert("sync_action".to_owned(), "frozen".to_owned());
        assert!(shown(&data).contains("until `wattle set 'my data' sync_action=idle`"), "{}", shown(&data));
    }

    #[test]
    fn a_rebuild_says_how_far_how_fast_how_long_and_what_limits_it() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.slots = "[U_U]".to_owned();
        data.health = Health::Degraded;
        data.members[1].state = SeatState::Rebuilding;
        data.members[1].valid_below_bytes = Some(1 << 20);
        data.sync = Some(JobStatus {
            members: vec!["b".to_owned()],
            limited_by: Some(LimitReport {
                kind: "sync_speed_max".to_owned(),
                text: "sync_speed_max, 1000 KiB/s".to_owned(),
            }),
            ..sync("recovery", 126 << 10, 1000 << 10)
        });
        data.bitmap = Some(BitmapReport { chunk_bytes: 64 << 20, bits: 15, bits_set: 3 });
        (data.io_min_bytes, data.io_opt_bytes, data.blank) = (64 << 10, 128 << 10, true);
        let text = shown(&data);
        let expected = "\
data  raid5, left-symmetric, chunk 64 KiB, 21 MiB
  health  [U_U] degraded
  state   clean, read-write
  mkfs    mkfs.xfs -d su=64k,sw=2
  mkfs    mkfs.ext4 -E stride=16,stripe_width=32
  doing   [==>..................]  recovery = 12.6% (126/1000) finish=0.5min speed=26691K/sec
          onto b, 34 s left at 26.06 MiB/s
          limited by sync_speed_max, 1000 KiB/s
  uuid    d4456855:878c1153:a132709f:86ddf6a8
  crash   write-intent bitmap: 3 of 15 regions of 64 MiB would be resynced
  server  data (pid 7)
  slot  state                            queued  errors  bad  member
  0     in sync                          0       0       -    a
  1     rebuilding, current below 1 MiB  0       0       -    b
  2     in sync                          0       0       -    c
  since start: 0 reads (0 B), 0 writes (0 B), 0 flushes
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_slow_member_bad_blocks_a_replacement_and_a_spare_are_shown() {
        let mut data = array("data", "raid1", &["a", "b"]);
        data.members[0].slow = true;
        data.members[0].reads_overdue = 17;
        data.members[1].bad_bytes = 8192;
        data.members[1].bad_blocks =
            (0..6).map(|n| RangeReport { start_byte: n * 9000, len_bytes: 512 }).collect();
        data.replacements = vec![MemberReport {
            slot: 0,
            member: Some("new".to_owned()),
            state: SeatState::Rebuilding,
            valid_below_bytes: Some(0),
            ..MemberReport::default()
        }];
        data.spares = vec![SpareReport { member: "s".to_owned(), state: SpareState::Spare, why: None }];
        data.events = vec![EventReport {
            time: "2026-11-21T12:00:00Z".to_owned(),
            what: "a is \x1b[31mslow".to_owned(),
        }];
        let text = shown(&data);
        for line in [
            "  0     in sync, slow (17 reads went around it)  0       0       -      a\n",
            "  0     replacement, current below 0 B           0       0       -      new\n",
            "  1     in sync                                  0       0       8 KiB  b\n",
            "  -     spare                                    -       -       -      s\n",
            "  bad blocks of b, bytes of its data: 0..512, 9000..9512, 18000..18512, 27000..27512, …\n",
            "  2026-11-21T12:00:00Z  a is ?[31mslow\n",
        ] {
            assert!(text.contains(line), "expected {line:?} in\n{text}");
        }
    }

    #[test]
    fn the_history_says_how_each_ended() {
        let rows = [
            (scrub(), "done after 3 s: no mismatch"),
            (ScrubReport { mismatch_sectors: 8, ..scrub() }, "done after 3 s: 8 sectors do not agree"),
            (
                ScrubReport { unreadable_sectors: 8, ..scrub() },
                "done after 3 s: no mismatch, 8 sectors could not be compared",
            ),
            (
                ScrubReport { late_sectors: 2048, ..scrub() },
                "done after 3 s: no mismatch, 2048 sectors were not read in time",
            ),
            (
                ScrubReport { outcome: "aborted".to_owned(), ..scrub() },
                "aborted after 3 s: no mismatch until then",
            ),
            (
                ScrubReport { outcome: "interrupted".to_owned(), duration_secs: None, ..scrub() },
                "interrupted: the server ended first",
            ),
            (
                ScrubReport { outcome: "failed".to_owned(), error: Some("stopped".to_owned()), ..scrub() },
                "failed after 3 s: stopped",
            ),
        ];
        for (scrub, end) in rows {
            assert_eq!(scrub_line(&scrub), format!("2026-11-21T12:00:00Z check: {end}"));
        }
        let repair = ScrubReport {
            action: "repair".to_owned(),
            source: Some("data".to_owned()),
            mismatch_sectors: 8,
            repaired_sectors: 8,
            ..scrub()
        };
        assert!(
            scrub_line(&repair)
                .ends_with("repair from data: done after 3 s: 8 sectors do not agree, 8 repaired")
        );
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.scrubs = vec![repair, scrub(), scrub(), scrub()];
        assert_eq!(shown(&data).matches(" check: ").count(), SCRUBS_SHOWN - 1);
    }

    #[test]
    fn the_cache_says_how_large_it_is_what_it_gave_and_why_it_grew() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        let grown = CacheGrowthReport { from_bytes: 1 << 20, to_bytes: 2 << 20, rows: 4096, again: 1035 };
        let cache = CacheReport {
            stripe_cache_size: 4096,
            ceiling_bytes: 48 << 20,
            size_bytes: 2 << 20,
            active_bytes: 1 << 20,
            hits: 30,
            misses: 10,
            grown: Some(grown),
            ..CacheReport::default()
        };
        data.cache = Some(cache);
        let text = shown(&data);
        for words in [
            "1 MiB of 2 MiB used (at most 48 MiB, stripe_cache_size 4096), 75 % of the blocks",
            "grew from 1 MiB to 2 MiB: 1035 of 4096 rows",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_mismatch_is_placed_and_explained_by_level() {
        let rows = [
            ("raid5", None, "makes parity fit the data"),
            ("raid6", Some(2), "--source proof"),
            ("raid6", None, "--source data"),
            ("raid1", None, "--source MEMBER"),
            ("raid10", None, "--source MEMBER"),
        ];
        for (level, slot, next) in rows {
            let found = ScrubReport { mismatch_sectors: 8, mismatches: vec![mismatch(slot)], ..scrub() };
            let mut data = array("data", level, &["a", "b", "c"]);
            data.scrubs = vec![found];
            let text = shown(&data);
            assert!(text.contains("array bytes 196608..208896, members' data at 65536..69632: "), "{text}");
            assert!(text.contains(next) && text.contains("`wattle repair data"), "{level}: {text}");
            assert_eq!(text.contains("disk-2 (slot 2) is the odd one out"), slot.is_some());
        }
        // What was repaired is not explained away a second time.
        let repaired = ScrubReport {
            mismatch_sectors: 8,
            repaired_sectors: 8,
            mismatches: vec![mismatch(None)],
            ..scrub()
        };
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.scrubs = vec![repaired];
        assert!(!shown(&data).contains("means:"));
    }
}
