//! What is told of a run.

use serde::Serialize;
use wattle_engine::geometry::layout_name;
use wattle_engine::units::SECTOR_BYTES;
use wattle_modelled::{BesideRebuild, Histogram, MemberUse, StudyResult, WriteHoleGuard};
use wattle_server::protocol::SCHEMA_VERSION;

use super::case::SimulatedCase;
use crate::commands::plans::RowPlanReport;

/// The whole report.
#[derive(Debug, Serialize)]
pub struct SimulateReport {
    pub schema_version: u32,
    pub runs: Vec<RunReport>,
}

impl SimulateReport {
    pub fn new(runs: Vec<RunReport>) -> Self {
        Self { schema_version: SCHEMA_VERSION, runs }
    }
}

/// One array under one load.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// Keys and values that differ between runs.
    #[serde(skip)]
    pub swept: Vec<(String, String)>,
    pub array: SimulatedArrayReport,
    pub workload: WorkloadReport,
    pub iops: f64,
    pub read_iops: f64,
    pub write_iops: f64,
    pub limit_iops: f64,
    pub limit_formula: String,
    /// `iops` as a part of `limit_iops`.
    pub efficiency: f64,
    /// Bytes per second.
    pub bandwidth: f64,
    pub lat_us: SimulatedLatencyReport,
    pub read_lat_us: SimulatedLatencyReport,
    pub write_lat_us: SimulatedLatencyReport,
    pub members: Vec<SimulatedMemberReport>,
    /// drives, pre-reads, slow-member, uneven, depth, flushes, log or order.
    pub held_back_by: &'static str,
    /// The same in words.
    pub held_back: String,
    /// Whether the load was steady before it was measured; absent if a fixed ramp was asked for.
    pub steady: Option<bool>,
    pub ramp_secs: f64,
    pub runtime_secs: f64,
    pub plans: RowPlanReport,
    /// How it is while a member is rebuilt, if that was asked for. All else is of the same array
    /// with nothing being done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<RebuildReport>,
}

/// A load while a member is rebuilt.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RebuildReport {
    /// Bytes per second of the member that is filled.
    pub bandwidth: f64,
    /// That, as a part of what its drive takes in sequence.
    pub share: f64,
    pub iops: f64,
    /// `iops`, as a part of that without.
    pub iops_ratio: f64,
    pub lat_us: SimulatedLatencyReport,
    /// The 99th percentile, as a multiple of that without.
    pub p99_ratio: f64,
    pub steady: Option<bool>,
}

#[derive(Debug, Clone, Serialize)]
pub struct SimulatedArrayReport {
    pub level: String,
    pub layout: Option<String>,
    pub members: u32,
    pub missing: u32,
    pub chunk_bytes: Option<u64>,
    pub member_bytes: u64,
    pub size_bytes: u64,
    /// resync, bitmap or ppl.
    pub consistency: &'static str,
    pub drives: Vec<String>,
    pub cores: usize,
    /// Ceiling of the clean cache; absent if it is the engine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<usize>,
}

#[derive(Debug, Clone, Serialize)]
pub struct WorkloadReport {
    pub rw: &'static str,
    pub bs: u64,
    pub iodepth: usize,
    pub numjobs: usize,
    pub rwmixread: u32,
    pub offset: u64,
    pub offset_increment: u64,
    pub size: Option<u64>,
    pub norandommap: bool,
    pub fsync: u64,
    pub randseed: u64,
}

/// Of the requests counted, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SimulatedLatencyReport {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub max: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct SimulatedMemberReport {
    pub slot: usize,
    pub drive: String,
    /// Part of the time it was at work.
    pub util: f64,
    /// Operations in flight, on average.
    pub queue_depth: f64,
    pub reads_per_sec: f64,
    pub writes_per_sec: f64,
    pub read_bytes_per_sec: f64,
    pub written_bytes_per_sec: f64,
}

impl RunReport {
    pub fn new(case: &SimulatedCase, finding: &StudyResult, beside: Option<&BesideRebuild>) -> Self {
        let measured = &finding.measured;
        let seconds = measured.window.as_secs_f64();
        Self {
            swept: case.swept.clone(),
            array: array(case, finding),
            workload: workload(case),
            iops: measured.per_second(),
            read_iops: measured.reads.count() as f64 / seconds,
            write_iops: measured.writes.count() as f64 / seconds,
            limit_iops: finding.limit.per_second,
            limit_formula: finding.limit.formula.clone(),
            efficiency: finding.efficiency(),
            bandwidth: measured.bytes_per_second(),
            lat_us: latency(&measured.all()),
            read_lat_us: latency(&measured.reads),
            write_lat_us: latency(&measured.writes),
            members: measured
                .uses()
                .into_iter()
                .zip(&case.drives)
                .enumerate()
                .map(|(slot, (used, drive))| member(slot, drive, &used))
                .collect(),
            held_back_by: finding.held_back.name(),
            held_back: finding.held_back.to_string(),
            steady: measured.ramped.steady,
            ramp_secs: measured.ramped.took.as_secs_f64(),
            runtime_secs: seconds,
            plans: RowPlanReport::between(&measured.counters[0], &measured.counters[1]),
            rebuild: beside.map(|beside| rebuild(finding, beside)),
        }
    }
}

fn rebuild(without: &StudyResult, beside: &BesideRebuild) -> RebuildReport {
    let (with, without) = (&beside.measured, &without.measured);
    let (lat_us, before) = (latency(&with.all()), latency(&without.all()));
    RebuildReport {
        bandwidth: beside.bytes_per_second,
        share: beside.bytes_per_second / beside.takes_bytes_per_second,
        iops: with.per_second(),
        iops_ratio: with.per_second() / without.per_second(),
        lat_us,
        p99_ratio: lat_us.p99 / before.p99,
        steady: with.ramped.steady,
    }
}

fn array(case: &SimulatedCase, finding: &StudyResult) -> SimulatedArrayReport {
    let (setup, geometry) = (&case.study.setup, &finding.geometry);
    let chunk_bytes = geometry.chunk().0 * SECTOR_BYTES;
    SimulatedArrayReport {
        level: setup.level.to_string(),
        layout: layout_name(setup.level, setup.layout),
        members: setup.members,
        missing: setup.missing,
        chunk_bytes: (chunk_bytes > 0).then_some(chunk_bytes),
        member_bytes: setup.member_bytes,
        size_bytes: geometry.array_sectors().0 * SECTOR_BYTES,
        consistency: match setup.guard {
            WriteHoleGuard::None => "none",
            WriteHoleGuard::Resync => "resync",
            WriteHoleGuard::Bitmap => "bitmap",
            WriteHoleGuard::Ppl => "ppl",
        },
        drives: case.drives.clone(),
        cores: setup.cores,
        cache_bytes: setup.cache_bytes,
    }
}

fn workload(case: &SimulatedCase) -> WorkloadReport {
    let load = &case.study.load;
    WorkloadReport {
        rw: load.rw.name(),
        bs: load.bs_bytes,
        iodepth: load.iodepth,
        numjobs: load.numjobs,
        rwmixread: load.rwmixread,
        offset: load.offset_bytes,
        offset_increment: load.offset_increment_bytes,
        size: load.size_bytes,
        norandommap: load.norandommap,
        fsync: load.fsync,
        randseed: load.seed,
    }
}

fn latency(histogram: &Histogram) -> SimulatedLatencyReport {
    let micros = |time: std::time::Duration| time.as_nanos() as f64 / 1000.0;
    let percentile = |percent| micros(histogram.percentile(percent));
    SimulatedLatencyReport {
        mean: micros(histogram.mean()),
        p50: percentile(50.0),
        p99: percentile(99.0),
        p99_9: percentile(99.9),
        max: micros(histogram.max()),
    }
}

fn member(slot: usize, drive: &str, used: &MemberUse) -> SimulatedMemberReport {
    SimulatedMemberReport {
        slot,
        drive: drive.to_owned(),
        util: used.busy,
        queue_depth: used.depth,
        reads_per_sec: used.reads_per_second,
        writes_per_sec: used.writes_per_second,
        read_bytes_per_sec: used.read_bytes_per_second,
        written_bytes_per_sec: used.written_bytes_per_second,
    }
}
