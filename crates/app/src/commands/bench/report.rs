//! What is told of a benchmark: in JSON with the names that fio gives its figures.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use wattle_modelled::{Histogram, Load, Yardstick};
use wattle_server::array::ServedFacts;
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::protocol::report as served;

use super::condition::Condition;
use super::{Round, Warmed};
use crate::commands::plans::RowPlanReport;
use crate::output::Screen;
use crate::output::text::{printable, table};

/// The whole report.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    pub schema_version: u32,
    pub array: BenchedArrayReport,
    /// How the array was meanwhile.
    pub condition: Condition,
    /// One, with all rounds together: fio's shape.
    pub jobs: Vec<JobReport>,
    pub rounds: Vec<RoundReport>,
    /// Whether the load was steady before it was measured; absent if a fixed ramp was asked for.
    pub steady: Option<bool>,
    pub ramp_secs: f64,
    /// `updates`: read-modify-writes in the processor's cache per second. `parity`: bytes per
    /// second of data of which parity is made in memory.
    pub yardstick: &'static str,
    /// Requests, or bytes, per second as a part of that: the median round.
    pub yardstick_ratio: f64,
    /// How rows of stripes were written, ramp included; absent without parity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plans: Option<RowPlanReport>,
}

#[derive(Debug, Serialize)]
pub struct BenchedArrayReport {
    pub name: String,
    pub level: String,
    pub layout: Option<String>,
    pub chunk_bytes: Option<u64>,
    pub members: Vec<String>,
    pub consistency: String,
    /// Of this process: a served array has its own.
    pub cores: usize,
    /// It was reached over NBD.
    pub served: bool,
}

impl BenchedArrayReport {
    /// Of an array that is served.
    pub fn of_served(array: &served::ArrayReport, cores: usize) -> Self {
        let name = |member: &served::MemberReport| member.member.clone().unwrap_or("missing".to_owned());
        Self {
            name: array.name.clone(),
            level: array.level.clone(),
            layout: array.layout.clone(),
            chunk_bytes: array.chunk_bytes,
            members: array.members.iter().map(name).collect(),
            consistency: array.consistency.clone().unwrap_or_default(),
            cores,
            served: true,
        }
    }

    pub fn new(facts: &ServedFacts, members: &[String], cores: usize) -> Self {
        Self {
            name: facts.name.clone(),
            level: facts.geometry.level().to_string(),
            layout: facts.layout(),
            chunk_bytes: facts.chunk_bytes(),
            members: members.to_vec(),
            consistency: facts.consistency.to_owned(),
            cores,
            served: false,
        }
    }
}

/// fio's `jobs[]`.
#[derive(Debug, Serialize)]
pub struct JobReport {
    pub jobname: &'static str,
    pub error: u32,
    #[serde(rename = "job options")]
    pub options: BTreeMap<&'static str, String>,
    pub read: Direction,
    pub write: Direction,
    pub job_runtime: u64,
}

/// fio's `read` and `write`.
#[derive(Debug, Serialize)]
pub struct Direction {
    pub io_bytes: u64,
    /// Bytes per second.
    pub bw_bytes: u64,
    /// KiB per second.
    pub bw: u64,
    pub iops: f64,
    /// Milliseconds.
    pub runtime: u64,
    pub total_ios: u64,
    pub lat_ns: Nanos,
    pub clat_ns: Nanos,
}

#[derive(Debug, Clone, Serialize)]
pub struct Nanos {
    pub max: u64,
    pub mean: u64,
    #[serde(rename = "N")]
    pub count: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub percentile: BTreeMap<String, u64>,
}

/// What one round came to.
#[derive(Debug, Serialize)]
pub struct RoundReport {
    pub iops: f64,
    /// Requests for each second of processor time.
    pub per_cpu_second: Option<f64>,
    /// Updates of parity per second, just after it.
    pub yardstick: f64,
}

impl BenchReport {
    pub fn new(
        array: BenchedArrayReport,
        condition: Condition,
        load: &Load,
        yardstick: Yardstick,
        warmed: &Warmed,
        rounds: &[Round],
        plans: Option<RowPlanReport>,
    ) -> Self {
        let (mut reads, mut writes) = (Histogram::default(), Histogram::default());
        let mut time = Duration::ZERO;
        for round in rounds {
            reads.add(&round.counts.reads);
            writes.add(&round.counts.writes);
            time += round.time;
        }
        let job = JobReport {
            jobname: "wattle",
            error: 0,
            options: options(load),
            read: direction(&reads, load.bs_bytes, time),
            write: direction(&writes, load.bs_bytes, time),
            job_runtime: millis(time),
        };
        let rounds: Vec<_> = rounds.iter().map(RoundReport::new).collect();
        let (name, unit) = match yardstick {
            Yardstick::Updates => ("updates", 1),
            Yardstick::Parity { .. } => ("parity", load.bs_bytes),
        };
        let ratios = rounds.iter().map(|round| round.iops * unit as f64 / round.yardstick.max(1.0)).collect();
        Self {
            schema_version: SCHEMA_VERSION,
            array,
            condition,
            jobs: vec![job],
            yardstick: name,
            yardstick_ratio: median(ratios),
            rounds,
            steady: warmed.steady,
            ramp_secs: warmed.took.as_secs_f64(),
            plans,
        }
    }

    /// The same for people.
    pub fn text(&self, screen: Screen) -> String {
        let (array, units) = (&self.array, screen.units);
        let mut what = vec![array.level.clone()];
        what.extend(array.layout.clone());
        what.extend(array.chunk_bytes.map(|bytes| format!("chunk {}", units.show(bytes))));
        what.push(format!("{} members", array.members.len()));
        what.push(match array.served {
            true => format!("served, {} cores here", array.cores),
            false => format!("{} cores", array.cores),
        });
        let name = screen.style.bold(&printable(&array.name));
        let mut text = format!("{name}  {}\n", what.join(", "));
        if let Some(warning) = self.condition.warning() {
            text.push_str(&format!("  {warning}\n"));
        }
        let job = &self.jobs[0];
        let mut rows =
            vec![["", "iops", "bandwidth", "mean", "p50", "p99", "p99.9"].map(str::to_owned).to_vec()];
        for (way, direction) in [("read", &job.read), ("write", &job.write)] {
            if direction.total_ios > 0 {
                rows.push(direction.row(way, &units.show(direction.bw_bytes)));
            }
        }
        text.push_str(&table("  ", &rows));
        let steady = match self.steady {
            Some(true) => format!("steady after {:.1} s", self.ramp_secs),
            Some(false) => format!("NOT steady after {:.1} s: what follows may not last", self.ramp_secs),
            None => format!("measured after {:.1} s, steady or not", self.ramp_secs),
        };
        text.push_str(&format!("  {steady}\n"));
        let each: Vec<_> = self.rounds.iter().map(|round| format!("{:.0}", round.iops)).collect();
        text.push_str(&format!("  rounds: {} per second\n", each.join(", ")));
        let cpu = median(self.rounds.iter().filter_map(|round| round.per_cpu_second).collect());
        if cpu > 0.0 {
            text.push_str(&format!("  {cpu:.0} requests for each second of processor time\n"));
        }
        let yardstick = median(self.rounds.iter().map(|round| round.yardstick).collect());
        let yardstick = match self.yardstick {
            "parity" => format!("makes parity of in memory: {}/s", units.show(yardstick as u64)),
            _ => format!("updates of parity in its cache: {:.2} M per second", yardstick / 1e6),
        };
        text.push_str(&format!(
            "  {:.1} % of what the processor {yardstick}\n",
            100.0 * self.yardstick_ratio
        ));
        text
    }
}

impl Direction {
    fn row(&self, way: &str, bandwidth: &str) -> Vec<String> {
        let micros = |nanos: u64| format!("{:.1} us", nanos as f64 / 1000.0);
        let percentile =
            |name: &str| self.clat_ns.percentile.get(name).map_or("-".to_owned(), |nanos| micros(*nanos));
        vec![
            way.to_owned(),
            format!("{:.0}", self.iops),
            format!("{bandwidth}/s"),
            micros(self.clat_ns.mean),
            percentile("50.000000"),
            percentile("99.000000"),
            percentile("99.900000"),
        ]
    }
}

impl RoundReport {
    fn new(round: &Round) -> Self {
        let count = (round.counts.reads.count() + round.counts.writes.count()) as f64;
        Self {
            iops: count / round.time.as_secs_f64(),
            per_cpu_second: (!round.cpu.is_zero()).then(|| count / round.cpu.as_secs_f64()),
            yardstick: round.yardstick,
        }
    }
}

fn options(load: &Load) -> BTreeMap<&'static str, String> {
    let mut options = BTreeMap::from([
        ("rw", load.rw.name().to_owned()),
        ("bs", load.bs_bytes.to_string()),
        ("iodepth", load.iodepth.to_string()),
        ("numjobs", load.numjobs.to_string()),
        ("rwmixread", load.rwmixread.to_string()),
        ("offset", load.offset_bytes.to_string()),
        ("fsync", load.fsync.to_string()),
        ("randseed", load.seed.to_string()),
    ]);
    if load.norandommap {
        options.insert("norandommap", "1".to_owned());
    }
    if let Some(size) = load.size_bytes {
        options.insert("size", size.to_string());
    }
    options
}

fn direction(histogram: &Histogram, bs_bytes: u64, time: Duration) -> Direction {
    let (count, seconds) = (histogram.count(), time.as_secs_f64());
    let io_bytes = count * bs_bytes;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let lat_ns = Nanos {
        max: nanos(histogram.max()),
        mean: nanos(histogram.mean()),
        count,
        percentile: BTreeMap::new(),
    };
    // fio's names, which sort as numbers do up to 99.99.
    let percentiles = [1.0, 5.0, 10.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99];
    let percentile = match count {
        0 => BTreeMap::new(),
        _ => percentiles
            .iter()
            .map(|percent| (format!("{percent:.6}"), nanos(histogram.percentile(*percent))))
            .collect(),
    };
    Direction {
        io_bytes,
        bw_bytes: (io_bytes as f64 / seconds) as u64,
        bw: (io_bytes as f64 / seconds / 1024.0) as u64,
        iops: count as f64 / seconds,
        runtime: millis(time),
        total_ios: count,
        clat_ns: Nanos { percentile, ..lat_ns.clone() },
        lat_ns,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!((median(vec![]), median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0])), (0.0, 2.0, 2.5));
    }

    #[test]
    fn figures_have_the_names_that_fio_gives_them() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        let json = serde_json::to_value(direction(&histogram, 4096, Duration::from_secs(2))).unwrap();
        assert_eq!((json["total_ios"].as_u64(), json["iops"].as_f64()), (Some(100), Some(50.0)));
        assert_eq!((json["bw_bytes"].as_u64(), json["bw"].as_u64()), (Some(204_800), Some(200)));
        let p99 = json["clat_ns"]["percentile"]["99.000000"].as_u64().unwrap();
        assert!((99_000..100_000).contains(&p99), "{p99}");
    }
}
