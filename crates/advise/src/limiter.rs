//! What holds an array back, from what it and its members did in some time.
//!
//! Mean numbers of requests under way come from Little's law: the time that requests took, added
//! up, divided by the time in which they were answered. So nothing has to be sampled.

/// Requests of one kind that were answered in some time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flow {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long they took, added up, in seconds.
    pub took_seconds: f64,
}

impl Flow {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            took_seconds: self.took_seconds + other.took_seconds,
        }
    }

    /// How long one took, in seconds.
    #[must_use]
    pub fn mean_seconds(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.took_seconds / self.count as f64 }
    }
}

/// What a member did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemberFlow {
    /// What people call it.
    pub name: String,
    /// Reads.
    pub reads: Flow,
    /// Writes.
    pub writes: Flow,
}

impl MemberFlow {
    fn all(&self) -> Flow {
        self.reads.plus(self.writes)
    }
}

/// What an array did in some time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interval {
    /// How long.
    pub seconds: f64,
    /// Clients' reads.
    pub reads: Flow,
    /// Clients' writes.
    pub writes: Flow,
    /// Clients' flushes.
    pub flushes: Flow,
    /// Requests whose edges were not on blocks.
    pub unaligned: u64,
    /// Blocks read before writes.
    pub pre_reads: u64,
    /// Blocks that writes needed and the cache had.
    pub cache_hits: u64,
    /// The members in use.
    pub members: Vec<MemberFlow>,
    /// The part of the time that each core was at work.
    pub cores: Vec<f64>,
    /// A resync, rebuild, check or repair ran.
    pub background: Option<String>,
}

/// What holds an array back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limiter {
    /// Clients ask for nothing.
    Idle,
    /// Requests that are not on blocks.
    Misalignment,
    /// One member is slower than the others.
    Member,
    /// A core is busy all the time.
    Cpu,
    /// Clients wait for flushes.
    Flushes,
    /// Clients keep too few requests under way to keep the members busy.
    QueueDepth,
    /// All members are busy.
    Members,
}

impl Limiter {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Misalignment => "misalignment",
            Self::Member => "member",
            Self::Cpu => "cpu",
            Self::Flushes => "flushes",
            Self::QueueDepth => "queue_depth",
            Self::Members => "members",
        }
    }
}

/// A limiter, the figures that show it, and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimiterFinding {
    /// What it is.
    pub limiter: Limiter,
    /// In words, with the figures.
    pub evidence: String,
    /// What would change it.
    pub help: String,
}

/// Part of the requests that may be unaligned before that is what matters: each write of them stops
/// all others.
const UNALIGNED_PART: f64 = 0.02;
/// A core that is busy for this part of the time has no time left.
const CORE_BUSY_PART: f64 = 0.9;
/// So many times what the other members have under way is more than chance.
const MEMBER_FACTOR: f64 = 2.0;
/// Fewer under way on a member say nothing.
const MEMBER_QUEUE_MIN: f64 = 2.0;
/// Part of the clients' waiting that may be for flushes.
const FLUSH_PART: f64 = 0.5;

/// What holds the array back, the first being what to change first. There is always one.
#[must_use]
pub fn limiters(interval: &Interval) -> Vec<LimiterFinding> {
    let requests = interval.reads.plus(interval.writes);
    if requests.count + interval.flushes.count == 0 {
        let help = interval.background.as_ref().map_or_else(
            || "ask again while there is load".to_owned(),
            |work| format!("only a {work} runs; `wattle status` says what limits that"),
        );
        let evidence = format!("clients asked for nothing in {:.1} s", interval.seconds);
        return vec![LimiterFinding { limiter: Limiter::Idle, evidence, help }];
    }
    let found: Vec<LimiterFinding> =
        [misalignment(interval), flushes(interval), one_member(interval), cpu(interval)]
            .into_iter()
            .flatten()
            .collect();
    if found.is_empty() { vec![depth_or_members(interval)] } else { found }
}

fn misalignment(interval: &Interval) -> Option<LimiterFinding> {
    let requests = interval.reads.count + interval.writes.count;
    let part = interval.unaligned as f64 / requests.max(1) as f64;
    (part > UNALIGNED_PART).then(|| LimiterFinding {
        limiter: Limiter::Misalignment,
        evidence: format!(
            "{} of {requests} requests do not begin and end on blocks: each such read reads more, each such write reads its edges \
             and has the array to itself meanwhile",
            interval.unaligned
        ),
        help: "let the file system or program use the block size that the export announces, and align partitions".to_owned(),
    })
}

fn flushes(interval: &Interval) -> Option<LimiterFinding> {
    let waited = interval.writes.plus(interval.flushes);
    let part = interval.flushes.took_seconds / waited.took_seconds.max(f64::MIN_POSITIVE);
    (interval.flushes.count > 0 && part > FLUSH_PART).then(|| LimiterFinding {
        limiter: Limiter::Flushes,
        evidence: format!(
            "{} flushes of {} each: {:.0} % of the time that clients waited for writes and flushes",
            interval.flushes.count,
            millis(interval.flushes.mean_seconds()),
            100.0 * part
        ),
        help: "drives with power-loss protection flush at once; several clients that flush together share one flush".to_owned(),
    })
}

/// The mean number of operations under way on a member.
fn queue(member: &MemberFlow, seconds: f64) -> f64 {
    member.all().took_seconds / seconds
}

fn one_member(interval: &Interval) -> Option<LimiterFinding> {
    let seconds = interval.seconds;
    let (slowest, worst) = interval
        .members
        .iter()
        .map(|member| (member, queue(member, seconds)))
        .max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let mut others: Vec<f64> = interval
        .members
        .iter()
        .filter(|member| !std::ptr::eq(*member, slowest))
        .map(|member| queue(member, seconds))
        .collect();
    others.sort_by(f64::total_cmp);
    let usual = *others.get(others.len() / 2)?;
    let mean = |flow: Flow, of: &dyn Fn(&MemberFlow) -> Flow| {
        let all = interval.members.iter().map(of).fold(Flow::default(), Flow::plus);
        flow.count > 0 && flow.mean_seconds() > 1.3 * all.mean_seconds()
    };
    let slower = mean(slowest.reads, &|member| member.reads) || mean(slowest.writes, &|member| member.writes);
    (worst >= MEMBER_QUEUE_MIN && worst > MEMBER_FACTOR * usual && slower).then(|| LimiterFinding {
        limiter: Limiter::Member,
        evidence: format!(
            "{} has {worst:.0} requests queued on average, the others {usual:.0}; it takes {} for a read and {} for a write",
            slowest.name,
            millis(slowest.reads.mean_seconds()),
            millis(slowest.writes.mean_seconds())
        ),
        help: "an array runs at the pace of its slowest member: look at that drive, its cable and its port, or replace it with \
               `wattle replace`"
            .to_owned(),
    })
}

fn cpu(interval: &Interval) -> Option<LimiterFinding> {
    let busy = interval.cores.iter().copied().fold(0.0, f64::max);
    (busy > CORE_BUSY_PART).then(|| LimiterFinding {
        limiter: Limiter::Cpu,
        evidence: format!(
            "the busiest of {} cores worked {:.0} % of the time",
            interval.cores.len(),
            100.0 * busy
        ),
        help: "more cores (`wattle serve --cores`), more connections of clients, or larger requests"
            .to_owned(),
    })
}

fn depth_or_members(interval: &Interval) -> LimiterFinding {
    let seconds = interval.seconds;
    let clients = interval.reads.plus(interval.writes).plus(interval.flushes).took_seconds / seconds;
    let queues: Vec<f64> = interval.members.iter().map(|member| queue(member, seconds)).collect();
    let per_member = queues.iter().sum::<f64>() / queues.len().max(1) as f64;
    let reads_first = match (interval.pre_reads, interval.writes.count) {
        (0, _) | (_, 0) => String::new(),
        (pre_reads, writes) => format!(
            "; each write reads {:.1} blocks first and finds {:.1} in the cache",
            pre_reads as f64 / writes as f64,
            interval.cache_hits as f64 / writes as f64
        ),
    };
    if per_member < 1.0 {
        return LimiterFinding {
            limiter: Limiter::QueueDepth,
            evidence: format!(
                "clients keep {clients:.1} requests under way, which keeps {per_member:.1} on each of {} members{reads_first}",
                queues.len()
            ),
            help: "more requests at a time (queue depth, jobs), or larger ones: drives that have nothing to do wait for clients"
                .to_owned(),
        };
    }
    let all = interval.members.iter().map(MemberFlow::all).fold(Flow::default(), Flow::plus);
    let background = interval.background.as_ref().map(|work| format!(", a {work} among them"));
    LimiterFinding {
        limiter: Limiter::Members,
        evidence: format!(
            "every member has work: {per_member:.1} requests on each, {} for one{}{reads_first}",
            millis(all.mean_seconds()),
            background.unwrap_or_default()
        ),
        help: "this is what the drives do; `wattle simulate` shows what more or other drives, or another level, would".to_owned(),
    }
}

fn millis(seconds: f64) -> String {
    if seconds < 0.001 { format!("{:.0} us", seconds * 1e6) } else { format!("{:.2} ms", seconds * 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(count: u64, each_seconds: f64) -> Flow {
        Flow { count, bytes: count * 4096, took_seconds: count as f64 * each_seconds }
    }

    /// Six members of which one, as in a study of six SSDs, has 136 requests queued where the
    /// others have 25.
    fn loaded() -> Interval {
        let member = |name: &str, each| MemberFlow {
            name: name.to_owned(),
            reads: flow(5000, each),
            writes: flow(5000, each),
        };
        Interval {
            seconds: 1.0,
            writes: flow(15_000, 0.016),
            pre_reads: 30_000,
            members: ["a", "b", "c", "d", "e", "f"].map(|name| member(name, 0.0025)).to_vec(),
            cores: vec![0.3],
            ..Interval::default()
        }
    }

    fn first(interval: &Interval) -> LimiterFinding {
        limiters(interval).remove(0)
    }

    #[test]
    fn a_slow_member_is_named_with_its_queue() {
        let mut interval = loaded();
        assert_eq!(first(&interval).limiter, Limiter::Members);
        interval.members[3].reads = flow(5000, 0.0136);
        interval.members[3].writes = flow(5000, 0.0136);
        let found = first(&interval);
        assert_eq!(found.limiter, Limiter::Member);
        assert!(
            found.evidence.starts_with("d has 136 requests queued on average, the others 25"),
            "{found:?}"
        );
    }

    #[test]
    fn each_limiter_is_found() {
        assert_eq!(first(&Interval { seconds: 1.0, ..Interval::default() }).limiter, Limiter::Idle);
        let mut interval = loaded();
        interval.unaligned = 5000;
        assert_eq!(first(&interval).limiter, Limiter::Misalignment);
        let mut interval = loaded();
        interval.cores = vec![0.2, 0.97];
        assert_eq!(first(&interval).limiter, Limiter::Cpu);
        let mut interval = loaded();
        interval.flushes = flow(900, 0.5);
        assert_eq!(first(&interval).limiter, Limiter::Flushes);
        let mut interval = loaded();
        interval.writes = flow(7000, 0.000_14);
        for member in &mut interval.members {
            (member.reads, member.writes) = (flow(2300, 0.000_07), flow(2300, 0.000_07));
        }
        let found = first(&interval);
        assert_eq!(found.limiter, Limiter::QueueDepth);
        assert!(found.evidence.contains("clients keep 1.0 requests under way"), "{found:?}");
    }
}
