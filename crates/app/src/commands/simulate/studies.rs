//! Published studies of Linux md arrays, as they were set up, beside what was measured then.

use serde::Serialize;
use wattle_advise::limits;
use wattle_control::Problem;
use wattle_drives::{Drive, Media, Preset};
use wattle_engine::units::{SECTOR_BYTES, Sector};
use wattle_modelled::{ModelledSetup, Rw, drive, rebuild};
use wattle_server::protocol::SCHEMA_VERSION;

use super::case::SimulatedCase;
use super::report::RunReport;
use super::text::percent;
use super::{measure, usage};
use crate::cli::{PresetArg, SimulateArgs, Size};
use crate::output::plot::{Axis, Chart, Panel, Series};
use crate::output::text::table;

/// A study, done again.
pub struct FinishedStudy {
    pub report: serde_json::Value,
    pub text: String,
    pub chart: Chart,
}

/// Does a study again.
///
/// # Errors
/// One of its arrays cannot be measured.
pub fn run(preset: PresetArg, args: &SimulateArgs) -> Result<FinishedStudy, Problem> {
    match preset {
        PresetArg::FieldNotesA => random_writes(args),
        PresetArg::FieldNotesC => rebuilds(args),
        PresetArg::FieldNotesE => layouts(args),
    }
}

/// What a figure is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Of {
    #[serde(rename = "iops")]
    Iops,
    #[serde(rename = "bandwidth")]
    Bandwidth,
}

/// One array under one load, and what others measured.
#[derive(Debug, Serialize)]
struct StudyRun {
    name: String,
    /// What the published figures are of.
    of: Of,
    /// What md did as it was.
    published: Option<f64>,
    /// What it did when tuned by hand.
    published_tuned: Option<f64>,
    #[serde(flatten)]
    run: RunReport,
}

#[derive(Serialize)]
struct Report<'a, R> {
    schema_version: u32,
    study: &'a str,
    runs: &'a [R],
}

impl StudyRun {
    fn value(&self) -> f64 {
        match self.of {
            Of::Iops => self.run.iops,
            Of::Bandwidth => self.run.bandwidth,
        }
    }

    fn limit(&self) -> f64 {
        match self.of {
            Of::Iops => self.run.limit_iops,
            Of::Bandwidth => self.run.limit_iops * self.run.workload.bs as f64,
        }
    }

    fn show(&self, value: f64) -> String {
        match self.of {
            Of::Iops => format!("{value:.0} IOPS"),
            Of::Bandwidth => format!("{:.1} MB/s", value / 1e6),
        }
    }

    fn row(&self) -> Vec<String> {
        let show = |value: Option<f64>| value.map_or(String::new(), |value| self.show(value));
        vec![
            self.name.clone(),
            show(self.published),
            show(self.published_tuned),
            self.show(self.value()),
            self.show(self.limit()),
            percent(self.run.efficiency),
            self.run.held_back_by.to_owned(),
        ]
    }
}

/// What is measured, and what others measured: as md was, and tuned.
struct Plan {
    name: String,
    args: SimulateArgs,
    of: Of,
    published: Option<f64>,
    tuned: Option<f64>,
}

fn measured(plans: Vec<Plan>) -> Result<Vec<StudyRun>, Problem> {
    let cases = plans.iter().map(|plan| SimulatedCase::new(&plan.args)).collect::<Result<Vec<_>, _>>()?;
    let runs = measure(&cases)?;
    let with = |(plan, run): (Plan, RunReport)| StudyRun {
        name: plan.name,
        of: plan.of,
        published: plan.published,
        published_tuned: plan.tuned,
        run,
    };
    Ok(plans.into_iter().zip(runs).map(with).collect())
}

fn done(study: &str, about: &str, runs: &[StudyRun], chart: Chart) -> FinishedStudy {
    let heading = ["", "md", "md, tuned", "wattle", "limit", "of it", "held back by"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(runs.iter().map(StudyRun::row));
    let report = Report { schema_version: SCHEMA_VERSION, study, runs };
    FinishedStudy {
        report: serde_json::to_value(report).expect("reports have string keys"),
        text: format!("{about}\n\n{}", table("  ", &rows)),
        chart,
    }
}

/// Bars side by side: what was published, what was measured, what the drives allow.
fn panel(name: &str, runs: &[&StudyRun], scale: f64) -> Panel {
    let series = |name: &str, value: &dyn Fn(&StudyRun) -> Option<f64>| Series {
        name: name.to_owned(),
        values: runs.iter().map(|run| value(run).map(|value| value / scale)).collect(),
        beside: None,
    };
    let mut all = vec![series("md", &|run| run.published)];
    if runs.iter().any(|run| run.published_tuned.is_some()) {
        all.push(series("md, tuned", &|run| run.published_tuned));
    }
    all.push(series("wattle", &|run| Some(run.value())));
    all.push(series("limit", &|run| Some(run.limit())));
    Panel { name: name.to_owned(), series: all }
}

// Random writes to RAID 5 over SSDs, 2013.

const ABOUT_RANDOM_WRITES: &str = "\
Random writes of 4 KiB to RAID 5 over 3 to 6 SSDs (Intel X25-M G2), 10 GB of each, chunks of 64 KiB, 248 requests in flight:
md reached half of what the drives allow, and 85 % with a stripe cache tuned by hand. RAID 6 was measured for a short time only,
on drives that were faster when they had rested.";

fn random_writes(args: &SimulateArgs) -> Result<FinishedStudy, Problem> {
    let base = |level: &str, members: u32| {
        let mut args = args.clone();
        args.level = Some(level.to_owned());
        args.members = Some(members);
        args.drives = vec!["x25m".to_owned()];
        args.chunk = Some(Size(64 << 10));
        args.member_size = Some(Size(10_000_000_000));
        args.load.rw = Rw::RandWrite;
        args.load.bs = Size(4096);
        args.load.iodepth = 248;
        args.load.norandommap = true;
        args
    };
    let plan = |name: String, args, published, tuned| Plan { name, args, of: Of::Iops, published, tuned };
    let published =
        [(3, 14_498.0, None), (4, 14_005.0, None), (5, 17_172.0, None), (6, 19_779.0, Some(33_936.0))];
    let mut plans: Vec<_> = published
        .into_iter()
        .map(|(n, md, tuned)| plan(format!("RAID 5 over {n}"), base("5", n), Some(md), tuned))
        .collect();
    let mut jobs = base("5", 6);
    (jobs.load.numjobs, jobs.load.iodepth) = (24, 16);
    plans.push(plan("RAID 5 over 6, 24 jobs x 16".to_owned(), jobs, None, Some(40_000.0)));
    plans.push(plan("RAID 6 over 6".to_owned(), base("6", 6), None, Some(32_526.0)));
    let runs = measured(plans)?;
    let names = ["3", "4", "5", "6", "6, 24 x 16", "6, RAID 6"].map(str::to_owned).to_vec();
    let chart = Chart {
        title: "Random writes of 4 KiB to RAID 5 over Intel X25-M G2".to_owned(),
        axis: Axis::Names { name: "members".to_owned(), names },
        panels: vec![panel("IOPS", &runs.iter().collect::<Vec<_>>(), 1.0)],
    };
    Ok(done("field-notes-a", ABOUT_RANDOM_WRITES, &runs, chart))
}

// Levels and layouts on small disks, 2015.

const ABOUT_LAYOUTS: &str = "\
Levels and layouts on small SATA disks of 73 to 95 MB/s: reading in sequence from three of them, writing in sequence to four, and
writing 4 KiB anywhere in a file of 1 GB on four. What was measured went through a page cache, which reads ahead and writes back:
here requests of 1 MiB, 8 in flight, and of 4 KiB, 128 in flight.";

/// Level, layout, name; then, published: reads of three in MB/s, writes and random writes of four
/// in KiB/s.
type LayoutRow = (&'static str, Option<&'static str>, &'static str, [f64; 3]);

const LAYOUTS: [LayoutRow; 5] = [
    ("0", None, "RAID 0", [253.0, 256_000.0, 17_029.0]),
    ("5", None, "RAID 5", [180.0, 124_000.0, 6_000.0]),
    ("10", Some("n2"), "RAID 10 n2", [137.0, 130_000.0, 7_990.0]),
    ("10", Some("o2"), "RAID 10 o2", [135.0, 133_000.0, 8_075.0]),
    ("10", Some("f2"), "RAID 10 f2", [232.0, 120_000.0, 6_574.0]),
];

fn layouts(args: &SimulateArgs) -> Result<FinishedStudy, Problem> {
    let base = |(level, layout, ..): &LayoutRow, members: u32, rw, bs, iodepth| {
        let mut args = args.clone();
        args.level = Some((*level).to_owned());
        args.layout = layout.map(str::to_owned);
        args.members = Some(members);
        args.drives = vec!["sata7200-small".to_owned()];
        args.load.rw = rw;
        args.load.bs = Size(bs);
        args.load.iodepth = iodepth;
        args.load.size = Some(Size(1 << 30));
        args
    };
    let mut plans = Vec::new();
    for (kind, members, rw, bs, depth, unit) in [
        ("read", 3, Rw::Read, 1 << 20, 8, 1e6),
        ("write", 4, Rw::Write, 1 << 20, 8, 1024.0),
        ("random write", 4, Rw::RandWrite, 4096, 128, 1024.0),
    ] {
        for row in &LAYOUTS {
            let place = plans.len() / LAYOUTS.len();
            plans.push(Plan {
                name: format!("{kind}, {} over {members}", row.2),
                args: base(row, members, rw, bs, depth),
                of: Of::Bandwidth,
                published: Some(row.3[place] * unit),
                tuned: None,
            });
        }
    }
    let runs = measured(plans)?;
    let part =
        |number: usize| runs.iter().skip(number * LAYOUTS.len()).take(LAYOUTS.len()).collect::<Vec<_>>();
    let chart = Chart {
        title: "Levels and layouts on small SATA disks".to_owned(),
        axis: Axis::Names {
            name: "level".to_owned(),
            names: LAYOUTS.iter().map(|row| row.2.to_owned()).collect(),
        },
        panels: vec![
            panel("read in sequence, 3 disks, MB/s", &part(0), 1e6),
            panel("written in sequence, 4 disks, MB/s", &part(1), 1e6),
            panel("written anywhere in 1 GiB, 4 disks, MB/s", &part(2), 1e6),
        ],
    };
    Ok(done("field-notes-e", ABOUT_LAYOUTS, &runs, chart))
}

// Rebuilding large disks, 2013.

const ABOUT_REBUILDS: &str = "\
Rebuilding one of seven disks of 3 TB, with nothing beside. md did 50 MB/s per disk, over 10 hours; 90, 105 and 120 MB/s with a stripe
cache of 4096, 8192 and 16384 entries, 5 hours. A disk is faster outside than inside: here a part of each disk is rebuilt at five
places between its beginning and its end.";

/// Bytes of each member that are rebuilt at each place.
const PART_BYTES: u64 = 256 << 20;
/// Where, in quarters of the disk.
const QUARTERS: u64 = 4;

#[derive(Debug, Serialize)]
struct RebuildRun {
    name: String,
    /// Part of the disk that lies before.
    place: f64,
    /// Bytes per second and member.
    bandwidth: f64,
    limit_bandwidth: f64,
    limit_formula: String,
    efficiency: f64,
    members: Vec<RebuildMember>,
}

#[derive(Debug, Serialize)]
struct RebuildMember {
    slot: usize,
    util: f64,
    queue_depth: f64,
}

fn rebuilds(args: &SimulateArgs) -> Result<FinishedStudy, Problem> {
    let mut args = args.clone();
    args.level = Some("5".to_owned());
    args.members = Some(7);
    args.drives = vec!["sata7200".to_owned()];
    let case = SimulatedCase::new(&args)?;
    let drive = Preset::named("sata7200").expect("it is one of the presets").drive();
    let runs =
        (0..=QUARTERS).map(|quarter| rebuilt(&case, &drive, quarter)).collect::<Result<Vec<_>, _>>()?;
    // Each place stands for the part of the disk around it; the ends for half as much.
    let weight = |quarter: usize| if quarter == 0 || quarter == QUARTERS as usize { 0.5 } else { 1.0 };
    let seconds_per_byte: f64 =
        runs.iter().enumerate().map(|(quarter, run)| weight(quarter) / run.bandwidth).sum::<f64>()
            / QUARTERS as f64;
    let hours = seconds_per_byte * drive.size_bytes as f64 / 3600.0;
    let megabytes = |value: f64| format!("{:.0}", value / 1e6);
    let mut rows = vec![
        ["place", "MB/s per disk", "limit", "of it", "source at work", "target at work"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for run in &runs {
        let work = |slot: usize| percent(run.members[slot].util);
        rows.push(vec![
            run.name.clone(),
            megabytes(run.bandwidth),
            megabytes(run.limit_bandwidth),
            percent(run.efficiency),
            work(0),
            work(6),
        ]);
    }
    let text = format!(
        "{ABOUT_REBUILDS}\n\n{}\n  all of it: {} MB/s per disk, {hours:.1} h; md 50 MB/s and over 10 h, tuned 120 MB/s and 5 h\n",
        table("  ", &rows),
        megabytes(1.0 / seconds_per_byte)
    );
    let series = |name: &str, value: &dyn Fn(&RebuildRun) -> f64| Series {
        name: name.to_owned(),
        values: runs.iter().map(|run| Some(value(run) / 1e6)).collect(),
        beside: None,
    };
    let panel = Panel {
        name: "MB/s per disk".to_owned(),
        series: vec![
            series("md", &|_| 50e6),
            series("md, tuned", &|_| 120e6),
            series("wattle", &|run| run.bandwidth),
            series("limit", &|run| run.limit_bandwidth),
        ],
    };
    let chart = Chart {
        title: "Rebuilding one of seven disks of 3 TB".to_owned(),
        axis: Axis::Names {
            name: "place on the disk".to_owned(),
            names: runs.iter().map(|run| run.name.clone()).collect(),
        },
        panels: vec![panel],
    };
    let report = Report { schema_version: SCHEMA_VERSION, study: "field-notes-c", runs: &runs };
    Ok(FinishedStudy { report: serde_json::to_value(report).expect("reports have string keys"), text, chart })
}

fn rebuilt(case: &SimulatedCase, drive: &Drive, quarter: u64) -> Result<RebuildRun, Problem> {
    let setup = case.study.setup;
    let last = setup.member_bytes - PART_BYTES;
    let at = last / QUARTERS * quarter / (1 << 20);
    let setup = ModelledSetup {
        member_bytes: PART_BYTES,
        data_offset: Sector(setup.data_offset.0 + at * (1 << 20) / SECTOR_BYTES),
        ..setup
    };
    let drives = (0..setup.members).map(|slot| drive::config(drive, format!("slot{slot}")));
    let rebuilt = rebuild(&setup, drives.collect()).map_err(|error| usage(error.to_string()))?;
    let place = quarter as f64 / QUARTERS as f64;
    let limit = limits::rebuild(&at_place(drive, place));
    Ok(RebuildRun {
        name: format!("{:.0} %", place * 100.0),
        place,
        bandwidth: rebuilt.bytes_per_second(),
        limit_bandwidth: limit.per_second,
        limit_formula: limit.formula,
        efficiency: rebuilt.bytes_per_second() / limit.per_second,
        members: rebuilt
            .uses()
            .into_iter()
            .enumerate()
            .map(|(slot, used)| RebuildMember { slot, util: used.busy, queue_depth: used.depth })
            .collect(),
    })
}

/// What counts for a rebuild: bandwidth, which falls from the outer to the inner tracks.
fn at_place(drive: &Drive, place: f64) -> limits::DriveRates {
    let bandwidth = match &drive.model.media {
        Media::Disk(disk) => {
            let (outer, inner) = (disk.outer_bytes_per_second as f64, disk.inner_bytes_per_second as f64);
            outer + (inner - outer) * place
        }
        Media::Flash(flash) => flash.write_bytes_per_second as f64,
    };
    limits::DriveRates {
        reads_per_second: 0.0,
        writes_per_second: 0.0,
        read_bytes_per_second: bandwidth,
        write_bytes_per_second: bandwidth,
        read_seconds: 0.0,
        write_seconds: 0.0,
        deferred_part: 0.0,
        rotational: true,
        turn: None,
    }
}
