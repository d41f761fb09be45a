//! Two looks at a server, and what its arrays did between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use wattle_advise::limiter::{self, Flow, Interval, MemberFlow};
use wattle_control::{Code, Problem};
use wattle_server::protocol::report::{
    ArrayReport, LatencyReport, MemberReport, ServerReport, ThreadReport, TrafficReport, VolumeQosReport,
    below,
};
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::{Servers, on_no_array};

/// The servers at one moment.
pub struct Snapshot {
    servers: Servers,
    at: Instant,
}

impl Snapshot {
    /// Asks every server that there is.
    #[allow(
        clippy::disallowed_methods,
        reason = "a command without a core measures between two of its own looks"
    )]
    pub fn now(dir: &RuntimeDir) -> Self {
        // A server that hangs is waited for, and the others answer at once.
        let at = Instant::now();
        Self { servers: Servers::ask(dir), at }
    }

    /// Looks again when `interval` has passed since this look.
    #[allow(clippy::disallowed_methods, reason = "a command without a core has nothing to await on")]
    pub fn after(&self, dir: &RuntimeDir, interval: Duration) -> Self {
        std::thread::sleep(interval.saturating_sub(self.at.elapsed()));
        Self::now(dir)
    }

    /// The arrays, with what they did since an earlier look: all, or those that a name stands for.
    ///
    /// # Errors
    /// There is no array of that name.
    pub fn since(
        &self,
        before: &Snapshot,
        dir: &RuntimeDir,
        name: Option<&str>,
    ) -> Result<Vec<ArrayInterval>, Problem> {
        let meant = name.map(|name| self.servers.meant(dir, name)).transpose()?;
        let wanted = |array: &ArrayReport| {
            let is_it = |other: &&ArrayReport| std::ptr::eq(*other, array);
            meant.as_ref().is_none_or(|meant| meant.arrays.iter().any(is_it))
        };
        let mut all = Vec::new();
        for (socket, server) in &self.servers.answered {
            let earlier = before.server(socket, server.pid);
            for array in server.arrays.iter().filter(|array| wanted(array)) {
                let was =
                    earlier.and_then(|(_, server)| server.arrays.iter().find(|was| was.name == array.name));
                let seconds = (self.at - before.at).as_secs_f64();
                let cores = earlier.map_or(Vec::new(), |(_, earlier)| cores(server, earlier, seconds));
                all.push(done(array, was.unwrap_or(array), cores, seconds));
            }
        }
        Ok(all)
    }

    /// What limits and shares did to volumes since an earlier look: of all, or of what a name
    /// stands for.
    pub fn volumes_since(
        &self,
        before: &Snapshot,
        dir: &RuntimeDir,
        name: Option<&str>,
    ) -> Vec<VolumeInterval> {
        let meant = name.and_then(|name| self.servers.meant(dir, name).ok());
        let wanted = |server: &ServerReport, volume: &str| {
            meant.as_ref().is_none_or(|meant| {
                let of_it = meant.volumes.iter().any(|other| other.name == volume);
                let below = below(&server.groups, volume);
                let array = meant.arrays.iter().any(|array| {
                    array.name == volume
                        || below.iter().any(|id| *id == array.name || Some(id) == array.uuid.as_ref())
                });
                meant.server.server == server.server && (of_it || meant.volumes.is_empty() && array)
            })
        };
        let mut all = Vec::new();
        for (socket, server) in &self.servers.answered {
            let earlier = before.server(socket, server.pid);
            for now in server.qos.iter().filter(|qos| wanted(server, &qos.volume)) {
                let was =
                    earlier.and_then(|(_, server)| server.qos.iter().find(|was| was.volume == now.volume));
                all.push(held(now, was, (self.at - before.at).as_secs_f64()));
            }
        }
        all
    }

    /// Why servers did not answer.
    pub fn silent(&self) -> &[Problem] {
        &self.servers.silent
    }

    /// The volumes that are served from drives as they are: all, or those that a name stands for.
    ///
    /// # Errors
    /// No array is served, and no volume; or the server that may serve them does not answer.
    pub fn volumes_alone(&self, dir: &RuntimeDir, name: Option<&str>) -> Result<Vec<String>, Problem> {
        let volumes = match name {
            Some(name) => self.servers.meant(dir, name)?.volumes,
            None => self.servers.reports().flat_map(|server| &server.volumes).collect(),
        };
        if volumes.is_empty() {
            return Err(match (name, self.servers.silent.first()) {
                (Some(name), _) => on_no_array(name),
                (None, Some(silent)) => silent.clone(),
                (None, None) => Problem::new(
                    Code::ServerNotFound,
                    "nothing is being served",
                    format!("no server listens in {}", dir.path().display()),
                    "a server started with another --runtime-dir is found with the same one",
                ),
            });
        }
        Ok(volumes.iter().map(|volume| volume.name.clone()).collect())
    }

    fn server(&self, socket: &Path, pid: u32) -> Option<&(PathBuf, ServerReport)> {
        self.servers.answered.iter().find(|(other, server)| other == socket && server.pid == pid)
    }
}

/// What an array did in some time. Also the shape of `wattle top --json`.
#[derive(Debug, Clone, Serialize)]
pub struct ArrayInterval {
    /// Its name.
    pub array: String,
    /// Its level.
    pub level: String,
    /// `[UU_U]`.
    pub slots: String,
    /// In how long.
    pub seconds: f64,
    /// Clients' requests.
    pub reads: Rate,
    /// Clients' requests.
    pub writes: Rate,
    /// Clients' requests.
    pub flushes: Rate,
    /// How rows were written, each second.
    pub plans: Plans,
    /// Each member.
    pub members: Vec<MemberDone>,
    /// The part of the time that each core of the server worked.
    pub cores: Vec<f64>,
    /// What holds the array back, the first being what to change first.
    pub limited_by: Vec<LimiterReport>,
}

/// What limits and shares did to a volume in some time.
#[derive(Debug, Clone, Serialize)]
pub struct VolumeInterval {
    /// Its name.
    pub volume: String,
    /// What is set, as it is typed.
    pub settings: BTreeMap<String, String>,
    /// Requests that passed, each second.
    pub per_second: f64,
    /// Their bytes, each second.
    pub bytes_per_second: f64,
    /// Requests that its own limits held back, each second.
    pub limited_per_second: f64,
    /// How long, on average.
    pub limited_mean_us: f64,
    /// Held back by them now.
    pub waiting_limited: u64,
    /// Requests that waited for other volumes, each second.
    pub shared_per_second: f64,
    /// How long, on average.
    pub shared_mean_us: f64,
    /// Waiting for them now.
    pub waiting_shared: u64,
}

fn held(now: &VolumeQosReport, was: Option<&VolumeQosReport>, seconds: f64) -> VolumeInterval {
    let done = |of: fn(&VolumeQosReport) -> u64| of(now).saturating_sub(was.map_or(0, of)) as f64;
    let mean = |sum: f64, count: f64| if count > 0.0 { sum / count } else { 0.0 };
    let (limited, shared) = (done(|qos| qos.limited), done(|qos| qos.shared));
    VolumeInterval {
        volume: now.volume.clone(),
        settings: now.settings.clone(),
        per_second: done(|qos| qos.requests) / seconds,
        bytes_per_second: done(|qos| qos.bytes) / seconds,
        limited_per_second: limited / seconds,
        limited_mean_us: mean(done(|qos| qos.limited_us), limited),
        waiting_limited: now.waiting_limited,
        shared_per_second: shared / seconds,
        shared_mean_us: mean(done(|qos| qos.shared_us), shared),
        waiting_shared: now.waiting_shared,
    }
}

/// Things that were done in some time.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Rate {
    /// Each second.
    pub per_second: f64,
    /// Each second.
    pub bytes_per_second: f64,
    /// How long one took, on average.
    pub mean_us: f64,
    /// How many were under way, on average.
    pub under_way: f64,
}

/// How requests were carried out, each second.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Plans {
    pub full: f64,
    pub reconstruct: f64,
    pub read_modify: f64,
    pub degraded: f64,
    /// Blocks read first.
    pub pre_reads: f64,
    /// Requests that left with another of the same stripe.
    pub merged: f64,
    /// Reads answered with what had been read ahead.
    pub ahead_reads: f64,
}

/// What a member did.
#[derive(Debug, Clone, Serialize)]
pub struct MemberDone {
    pub slot: u16,
    pub member: Option<String>,
    pub reads: Rate,
    pub writes: Rate,
    pub slow: bool,
}

/// A limiter.
#[derive(Debug, Clone, Serialize)]
pub struct LimiterReport {
    pub kind: &'static str,
    pub evidence: String,
    pub help: String,
}

/// The part of the time that each core of a server worked, by its thread: the first of the process,
/// and those of the other cores. Other threads come and go.
fn cores(now: &ServerReport, was: &ServerReport, seconds: f64) -> Vec<f64> {
    let is_core = |thread: &&ThreadReport| thread.tid == now.pid || thread.name.starts_with("wattle-core-");
    let worked = |thread: &ThreadReport| {
        let was = was.threads.iter().find(|was| was.tid == thread.tid && was.name == thread.name)?;
        Some(thread.cpu_ms.saturating_sub(was.cpu_ms) as f64 / 1000.0 / seconds)
    };
    now.threads.iter().filter(is_core).filter_map(worked).collect()
}

fn done(now: &ArrayReport, was: &ArrayReport, cores: Vec<f64>, seconds: f64) -> ArrayInterval {
    let (c, before) = (&now.counters, &was.counters);
    let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let reads = flow(now.requests.reads, was.requests.reads, c.read_bytes.saturating_sub(before.read_bytes));
    let writes =
        flow(now.requests.writes, was.requests.writes, c.write_bytes.saturating_sub(before.write_bytes));
    let flushes = flow(now.requests.flushes, was.requests.flushes, 0);
    let members: Vec<(&MemberReport, MemberFlow)> = now
        .members
        .iter()
        .filter(|member| member.member.is_some())
        .map(|member| {
            let was = was.members.iter().find(|was| was.slot == member.slot && was.member == member.member);
            (member, member_flow(member, was.map_or(TrafficReport::default(), |was| was.traffic)))
        })
        .collect();
    let interval = Interval {
        seconds,
        reads,
        writes,
        flushes,
        unaligned: c.unaligned.saturating_sub(before.unaligned),
        pre_reads: c.pre_reads.saturating_sub(before.pre_reads),
        cache_hits: hits(now).saturating_sub(hits(was)),
        members: members.iter().map(|(_, flow)| flow.clone()).collect(),
        cores,
        background: now.sync.as_ref().map(|sync| sync.action.clone()),
    };
    let limited_by = limiter::limiters(&interval).into_iter().map(|found| LimiterReport {
        kind: found.limiter.name(),
        evidence: found.evidence,
        help: found.help,
    });
    let rate = |flow| rate(flow, seconds);
    ArrayInterval {
        array: now.name.clone(),
        level: now.level.clone(),
        slots: now.slots.clone(),
        seconds,
        reads: rate(reads),
        writes: rate(writes),
        flushes: rate(flushes),
        plans: Plans {
            full: per_second(c.rows_full, before.rows_full),
            reconstruct: per_second(c.rows_reconstruct, before.rows_reconstruct),
            read_modify: per_second(c.rows_read_modify, before.rows_read_modify),
            degraded: per_second(c.rows_degraded, before.rows_degraded),
            pre_reads: per_second(c.pre_reads, before.pre_reads),
            merged: per_second(c.merged, before.merged),
            ahead_reads: per_second(c.ahead_reads, before.ahead_reads),
        },
        members: members
            .iter()
            .map(|(member, flow)| MemberDone {
                slot: member.slot,
                member: member.member.clone(),
                reads: rate(flow.reads),
                writes: rate(flow.writes),
                slow: member.slow,
            })
            .collect(),
        limited_by: limited_by.collect(),
        cores: interval.cores,
    }
}

fn hits(array: &ArrayReport) -> u64 {
    array.cache.map_or(0, |cache| cache.hits)
}

fn member_flow(member: &MemberReport, was: TrafficReport) -> MemberFlow {
    let (now, bytes) = (&member.traffic, |now: u64, was: u64| now.saturating_sub(was));
    MemberFlow {
        name: member.member.clone().unwrap_or_default(),
        reads: flow(now.reads, was.reads, bytes(now.read_bytes, was.read_bytes)),
        writes: flow(now.writes, was.writes, bytes(now.written_bytes, was.written_bytes)),
    }
}

fn flow(now: LatencyReport, was: LatencyReport, bytes: u64) -> Flow {
    Flow {
        count: now.count.saturating_sub(was.count),
        bytes,
        took_seconds: now.sum_us.saturating_sub(was.sum_us) as f64 / 1e6,
    }
}

fn rate(flow: Flow, seconds: f64) -> Rate {
    Rate {
        per_second: flow.count as f64 / seconds,
        bytes_per_second: flow.bytes as f64 / seconds,
        mean_us: flow.mean_seconds() * 1e6,
        under_way: flow.took_seconds / seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_server::fixtures::array;

    #[test]
    fn rates_come_from_two_looks() {
        let mut was = array("data", "raid5", &["a", "b", "c"]);
        was.requests.writes = LatencyReport { count: 100, sum_us: 50_000, ..LatencyReport::default() };
        let mut now = was.clone();
        now.requests.writes = LatencyReport { count: 2100, sum_us: 1_050_000, ..LatencyReport::default() };
        now.counters.write_bytes += 2000 * 4096;
        now.counters.rows_read_modify += 2000;
        now.members[1].traffic.reads =
            LatencyReport { count: 1000, sum_us: 500_000, ..LatencyReport::default() };
        let done = done(&now, &was, vec![0.5], 2.0);
        assert_eq!(
            (done.writes.per_second, done.writes.mean_us, done.writes.under_way),
            (1000.0, 500.0, 0.5)
        );
        assert_eq!((done.writes.bytes_per_second, done.plans.read_modify), (4_096_000.0, 1000.0));
        assert_eq!((done.members[1].reads.per_second, done.members[1].reads.under_way), (500.0, 0.25));
        assert_eq!(done.cores, [0.5]);
        assert_eq!(done.limited_by[0].kind, "queue_depth");
    }

    /// Threads end, and others are in their place in the list.
    #[test]
    fn a_core_is_compared_with_itself_and_other_threads_are_none() {
        let at = |threads: &[(&str, u32, u64)]| {
            let report =
                |&(name, tid, cpu_ms): &(&str, u32, u64)| ThreadReport { name: name.to_owned(), tid, cpu_ms };
            ServerReport {
                server: "data".to_owned(),
                pid: 7,
                arrays: Vec::new(),
                volumes: Vec::new(),
                groups: Vec::new(),
                threads: threads.iter().map(report).collect(),
                cpu_ms: None,
                qos: Vec::new(),
                checkpoints: Vec::new(),
                reservations: Vec::new(),
                sole_array: None,
                stopped: Vec::new(),
            }
        };
        let was = at(&[("wattle", 7, 1000), ("iou-wrk-7", 8, 0), ("wattle-core-1", 9, 90_000)]);
        let now = at(&[("wattle", 7, 1500), ("wattle-core-1", 9, 90_100), ("wattle-offload", 10, 800)]);
        assert_eq!(cores(&now, &was, 1.0), [0.5, 0.1]);
    }
}
