//! What the engine reports, as the control socket and `wattle status` show it.

use std::collections::BTreeMap;
use std::time::Duration;

use wattle_control::assemble::{MemberRecovery, ReAddCandidate};
use wattle_control::bitmap::BitmapCopies;
use wattle_control::events::slots_view;
use wattle_control::running::remote::RemoteMember;
use wattle_control::sums::ScrubSums;
use wattle_engine::geometry::LevelKind;
use wattle_engine::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};
use wattle_engine::{ArrayStatus, MemberStatus};
use wattle_engine::{MemberState, Regions, SeatRecord};
use wattle_format::md::Superblock;
use wattle_rt::{Latencies, LinkPath, PathState, TrafficTotals};

use super::ServedFacts;
use crate::protocol::report::{
    ArrayReport, BitmapReport, CacheGrowthReport, CachePauseReport, CacheReport, Counters, Health,
    LATENCY_BOUNDS, LatencyReport, MemberReport, PathReport, RangeReport, RecordStateReport, RecordedReport,
    RemoteReport, RemoteState, RequestsReport, SeatState, TrafficReport,
};
use crate::settings::cache_entry_bytes;
use crate::time::rfc3339;

/// A request that has waited for longer is worth telling.
const LATE: Duration = Duration::from_millis(500);

/// Ranges of bad blocks that are told of each member.
const RANGES_MAX: usize = 64;

/// What the last recorded scrub still says something about; `None` if there is none.
pub fn record_state(sums: &ScrubSums) -> Option<RecordStateReport> {
    let (written_regions, regions) = sums.written()?;
    Some(RecordStateReport {
        recorded: rfc3339(sums.taken_secs()?).unwrap_or_default(),
        written_regions,
        regions,
        file_bytes: sums.file_bytes(),
    })
}

/// The report of an array, as far as the engine knows.
pub fn array_report(facts: &ServedFacts, status: &ArrayStatus) -> ArrayReport {
    let synced = status.synced_below == Sector::MAX;
    let states: Vec<_> = status.members.iter().map(|member| member.state).collect();
    let replacements = (0..).zip(&status.replacements).filter(|(_, member)| member.device.is_some());
    let joined = facts.joined.as_deref();
    let degraded = status.degraded + joined.map_or(0, |joined| joined.degraded);
    ArrayReport {
        name: facts.name.clone(),
        uuid: facts.uuid.clone(),
        level: joined.map_or_else(|| status.level.to_string(), |joined| joined.level.clone()),
        layout: facts.layout(),
        layout_code: facts.layout().map(|_| facts.geometry.layout()),
        chunk_bytes: facts.chunk_bytes(),
        size_bytes: bytes(status.size),
        io_min_bytes: facts.geometry.io_min_bytes().into(),
        io_opt_bytes: facts.geometry.io_opt_bytes().into(),
        health: match (status.broken, degraded) {
            (true, _) => Health::Unusable,
            (false, 0) => Health::Good,
            (false, _) => Health::Degraded,
        },
        slots: joined.map_or_else(|| slots_view(&states), |joined| joined.slots.clone()),
        state: state(status.dirty, synced).to_owned(),
        synced,
        read_only: status.read_only,
        blank: facts.is_blank && status.counters.writes == 0,
        exports: Vec::new(),
        notes: facts.notes.clone(),
        degraded,
        redundancy_left: Some(redundancy_left(facts, status, synced)),
        members: (0..).zip(&status.members).map(|(slot, member)| member_report(slot, member)).collect(),
        replacements: replacements.map(|(slot, member)| member_report(slot, member)).collect(),
        spares: Vec::new(),
        metadata: facts.metadata.clone(),
        member_bytes: facts.member_bytes(),
        consistency: Some(facts.consistency.to_owned()),
        bitmap: None,
        record: None,
        sync: None,
        paused: false,
        scrubs: Vec::new(),
        settings: BTreeMap::new(),
        events: Vec::new(),
        counters: counters(status),
        requests: RequestsReport {
            reads: latency(&status.requests.reads),
            writes: latency(&status.requests.writes),
            flushes: latency(&status.requests.flushes),
        },
        cache: (status.cache.ceiling_bytes > 0).then(|| cache(status)),
        tuning: Vec::new(),
        recorded: facts.recorded.as_deref().cloned(),
    }
}

/// What superblocks say, of the devices of these names: the newest one for all. Of devices that
/// failed the superblocks are as old as their failure. Nothing if there are none.
pub fn recorded<'a>(superblocks: impl Iterator<Item = (&'a str, &'a Superblock)>) -> Option<RecordedReport> {
    let all: Vec<_> = superblocks.collect();
    let (_, newest) = all.iter().max_by_key(|(_, superblock)| superblock.events())?;
    Some(RecordedReport {
        name: newest.name(),
        created: rfc3339(newest.ctime().secs),
        updated: rfc3339(newest.utime().secs),
        events: newest.events(),
        preferred_minor: newest.md_minor(),
        member_bytes: bytes(Sector(newest.size_sectors())),
        numbers: all.iter().map(|(name, superblock)| ((*name).to_owned(), superblock.dev_number())).collect(),
    })
}

/// How many further members can be lost, whichever they are. Parity that is not trusted is no
/// redundancy; a copy is one, whichever of two contents of a write that was under way it has.
fn redundancy_left(facts: &ServedFacts, status: &ArrayStatus, synced: bool) -> usize {
    if status.broken || !synced && facts.geometry.kind() == LevelKind::Parity {
        return 0;
    }
    let geometry = &facts.geometry;
    let sure = geometry.redundancy().saturating_sub(status.degraded);
    if sure > 0 || status.degraded == 0 || geometry.redundancy() == 0 {
        return sure;
    }
    // Of copies more can be lost than of parity, depending on which are gone.
    let is_lost = |member: &MemberStatus| member.state != MemberState::InSync;
    let lost =
        || (0..).zip(&status.members).filter(|(_, member)| is_lost(member)).map(|(ix, _)| MemberIx(ix));
    let survives = |more: u16| geometry.survives(&lost().chain([MemberIx(more)]).collect::<MemberSet>());
    let left = (0..).zip(&status.members).filter(|(_, member)| !is_lost(member));
    usize::from(left.into_iter().all(|(ix, _)| survives(ix)))
}

/// A bitmap whose set bits are these.
pub fn bitmap_report(set: &Regions) -> BitmapReport {
    BitmapReport { chunk_bytes: bytes(set.size()), bits: set.count(), bits_set: set.len() }
}

/// Adds the bad-block logs of the members in these seats.
pub fn bad_blocks(report: &mut ArrayReport, seats: &[SeatRecord]) {
    let slots = report.members.len();
    for member in &mut report.members {
        member.bad_blocks = ranges(seats.get(usize::from(member.slot)));
    }
    for member in &mut report.replacements {
        member.bad_blocks = ranges(seats.get(slots + usize::from(member.slot)));
    }
}

/// Adds what is known of the connections of members across a network.
pub fn remotes(report: &mut ArrayReport, remotes: Vec<RemoteMember>) {
    let slots = report.members.len();
    for remote in remotes {
        let seat = remote.seat.index();
        let member = match seat.checked_sub(slots) {
            None => report.members.get_mut(seat),
            Some(slot) => report.replacements.iter_mut().find(|member| usize::from(member.slot) == slot),
        };
        if let Some(member) = member {
            member.remote = Some(remote_report(&remote));
        }
    }
}

/// Why a member that may come back into its slot waits for an order.
pub fn why_it_waits(who: &ReAddCandidate) -> &'static str {
    if who.apart {
        return "it lies on a volume and no member in use does, or the other way around: it may be a copy";
    }
    match (who.failed, who.recovery) {
        (true, MemberRecovery::Regions) => {
            "the superblocks record that it failed: a bitmap says what was not written to it since, and nothing of \
             what it holds; to have all of it written anew, remove and erase it first"
        }
        (true, MemberRecovery::Full) => {
            "the superblocks record that it failed, and no bitmap says what it missed: all of it would be written over"
        }
        (false, MemberRecovery::Full) => {
            "it was away, and no bitmap says what it missed, so all of it would be written over"
        }
        (false, MemberRecovery::Regions) => "it was away, and could not be taken back (see the events)",
    }
}

fn remote_report(remote: &RemoteMember) -> RemoteReport {
    let state = match (&remote.away, remote.link.ended) {
        (Some(_), _) | (None, Some(_)) => RemoteState::Away,
        (None, None) if remote.link.overdue > LATE => RemoteState::Waiting,
        (None, None) => RemoteState::Connected,
    };
    let path = |path: &LinkPath| PathReport {
        path: path.name.clone(),
        state: match path.state {
            PathState::InUse => "in_use",
            PathState::Ready => "ready",
            PathState::Failed => "failed",
        }
        .to_owned(),
        failures: path.failures,
    };
    let away = remote.away.as_ref();
    RemoteReport {
        state,
        away_since: away.and_then(|away| rfc3339(away.since.secs)),
        attempts: away.map_or(0, |away| away.attempts),
        reason: away.and_then(|away| away.reason.as_ref()).map(|problem| problem.what.clone()),
        reason_code: away.and_then(|away| away.reason.as_ref()).map(|problem| problem.code.id()),
        paths: remote.link.paths.iter().map(path).collect(),
    }
}

/// The members that are read only where others cannot be, as `wattle set` takes them.
pub fn write_mostly(status: &ArrayStatus) -> String {
    let members = status.members.iter().filter(|member| member.write_mostly);
    let names: Vec<_> = members.filter_map(|member| member.device.clone()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// The bitmap that is kept, as `wattle set` takes it.
pub fn bitmap_setting(bitmap: Option<&BitmapCopies>) -> String {
    match bitmap.map(|bitmap| bitmap.bits().regions.size().0 * SECTOR_BYTES) {
        None => "none".to_owned(),
        Some(bytes) if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        Some(bytes) if bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        Some(bytes) => bytes.to_string(),
    }
}

fn ranges(seat: Option<&SeatRecord>) -> Vec<RangeReport> {
    let bad = seat.into_iter().flat_map(|seat| seat.bad.iter().take(RANGES_MAX));
    bad.map(|range| RangeReport { start_byte: bytes(range.start), len_bytes: bytes(range.end - range.start) })
        .collect()
}

fn state(dirty: bool, synced: bool) -> &'static str {
    match (dirty, synced) {
        (false, true) => "clean",
        (true, true) => "active",
        (false, false) => "clean, not synced",
        (true, false) => "active, not synced",
    }
}

fn member_report(slot: u16, member: &MemberStatus) -> MemberReport {
    let (state, valid_below_bytes) = match member.state {
        MemberState::InSync => (SeatState::InSync, None),
        MemberState::Rebuilding { valid_below } => (SeatState::Rebuilding, Some(bytes(valid_below))),
        MemberState::Missing => (SeatState::Missing, None),
        MemberState::Faulty => (SeatState::Faulty, None),
    };
    MemberReport {
        slot,
        member: member.device.clone(),
        state,
        valid_below_bytes,
        read_errors: member.read_errors,
        bad_blocks: Vec::new(),
        bad_bytes: member.bad_sectors * SECTOR_BYTES,
        slow: member.slow,
        silent_seconds: member.silent_for().map_or(0, |time| time.as_secs()),
        awaited: member.awaited,
        reads_overdue: member.late_reads,
        write_mostly: member.write_mostly,
        remote: None,
        traffic: traffic(&member.traffic),
    }
}

fn counters(status: &ArrayStatus) -> Counters {
    let c = &status.counters;
    Counters {
        reads: c.reads,
        read_bytes: c.read_bytes,
        writes: c.writes,
        write_bytes: c.write_bytes,
        flushes: c.flushes,
        rows_full: c.rows_full,
        rows_reconstruct: c.rows_reconstruct,
        rows_read_modify: c.rows_read_modify,
        rows_degraded: c.rows_degraded,
        rows_recovered: c.rows_recovered,
        pre_reads: c.pre_reads,
        merged: c.merged,
        repaired: c.repaired,
        ahead_bytes: c.ahead_bytes,
        ahead_reads: c.ahead_reads,
        unaligned: c.unaligned,
    }
}

/// The clean cache's ceiling as md counts it; each core has a whole number of bytes of that.
pub fn stripe_cache_size(status: &ArrayStatus) -> u64 {
    status.cache.ceiling_bytes.div_ceil(cache_entry_bytes(status.members.len()))
}

fn cache(status: &ArrayStatus) -> CacheReport {
    let cache = status.cache;
    CacheReport {
        stripe_cache_size: stripe_cache_size(status),
        stripe_cache_active: cache.active_bytes.div_ceil(cache_entry_bytes(status.members.len())),
        size_bytes: cache.size_bytes,
        ceiling_bytes: cache.ceiling_bytes,
        active_bytes: cache.active_bytes,
        hits: cache.hits,
        misses: cache.misses,
        evictions: cache.evictions,
        grown: cache.growth.map(|growth| CacheGrowthReport {
            from_bytes: growth.from_bytes,
            to_bytes: growth.to_bytes,
            rows: growth.rows,
            again: growth.again,
        }),
        paused: cache.pause.map(|pause| CachePauseReport {
            with_us: u64::try_from(pause.with.as_micros()).unwrap_or(u64::MAX),
            without_us: u64::try_from(pause.without.as_micros()).unwrap_or(u64::MAX),
        }),
    }
}

fn traffic(totals: &TrafficTotals) -> TrafficReport {
    TrafficReport {
        reads: latency(&totals.reads),
        read_bytes: totals.read_bytes,
        writes: latency(&totals.writes),
        written_bytes: totals.written_bytes,
        flushes: latency(&totals.flushes),
        in_flight: totals.in_flight,
    }
}

fn latency(latencies: &Latencies) -> LatencyReport {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let percentile = |ppm| micros(latencies.percentile_ppm(ppm));
    LatencyReport {
        count: latencies.count(),
        sum_us: micros(latencies.sum()),
        p50_us: percentile(500_000),
        p99_us: percentile(990_000),
        p99_9_us: percentile(999_000),
        below: LATENCY_BOUNDS.map(|bound| latencies.count_below(bound)),
    }
}

/// Saturates: "everywhere" is the largest sector.
fn bytes(sectors: Sector) -> u64 {
    sectors.0.saturating_mul(SECTOR_BYTES)
}
