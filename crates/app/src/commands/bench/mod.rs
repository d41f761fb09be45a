//! `wattle bench`: the loads of `wattle simulate` in real time, on real members, or on an array
//! that is served.

mod condition;
mod report;
mod served;

use std::time::Duration;
use wattle_control::members::MemberAccess;

use wattle_control::{Check, Code, Problem, start};
use wattle_engine::ArrayHandle;
use wattle_engine::CounterTotals;
use wattle_engine::geometry::{Geometry, LevelKind};
use wattle_engine::units::SECTOR_BYTES;
use wattle_modelled::{Load, LoadError, LoadTarget as Goal, Ramp, RequestCounts, Rw, Steady, Yardstick};
use wattle_rt::Core;
use wattle_server::array::{MadeUpArray, ServedFacts};

use super::plans::RowPlanReport;
use super::simulate::load_of;
use crate::cli::BenchArgs;
use crate::members;
use crate::output::{self, Screen};
use crate::target::ServedTarget;
use condition::Condition;
use report::{BenchReport, BenchedArrayReport};

/// Executors unless asked for more.
const CORES_MAX: usize = 8;
/// Time in which requests are counted, all rounds together, unless asked for more.
const RUNTIME: Duration = Duration::from_secs(6);
/// Before a round after the first: the load comes up again.
const COME_UP: Duration = Duration::from_millis(200);
/// How long the yardstick is held to.
const YARDSTICK: Duration = Duration::from_millis(200);
/// Why the forced start of an array that is going to be written all over is not saved.
const NO_UNDO: &str = "no undo log of the forced start: what the array holds is written over, and superblocks of before would only tell of \
                       data that is gone";
/// In real time: four windows of a quarter of a second within five of a hundred.
const STEADY: Steady = Steady {
    window: Duration::from_millis(250),
    requests: 16,
    windows: 4,
    within: 0.05,
    at_most: Duration::from_secs(30),
    requests_at_most: u64::MAX,
};

/// What a round came to.
struct Round {
    counts: RequestCounts,
    /// How long requests were counted.
    time: Duration,
    /// Processor time of the process in it.
    cpu: Duration,
    /// What the processor did in a second, just after it.
    yardstick: f64,
}

/// How the first round came to be steady.
struct Warmed {
    took: Duration,
    steady: Option<bool>,
}

/// # Errors
/// There is no such array, it would be written over, or a request failed.
pub fn run(access: &MemberAccess, args: &BenchArgs, screen: Screen) -> Result<(), Problem> {
    let mut load = load_of(&args.load)?;
    load.ramp = match (args.load.ramp_time, args.steady_within, load.runtime) {
        (Some(time), ..) => Ramp::For(time.0),
        // A time that was given is kept to, as fio keeps to it.
        (None, None, Some(_)) => Ramp::For(COME_UP),
        (None, within, _) => {
            let at_most = within.map_or(STEADY.at_most, |time| time.0);
            Ramp::UntilSteady(Steady { at_most, ..STEADY })
        }
    };
    output::note(&takes(args, &load));
    let report = match (&args.made_up.level, served(args)?) {
        (None, Some(target)) => served::run(args, &load, &target)?,
        (Some(level), _) => {
            let array = MadeUpArray::new(
                "bench",
                members::look_made_up_all(access, &args.members)?,
                args.made_up.shape(level),
                false,
            )?;
            let facts = array.facts.clone();
            members::run(&args.engine, CORES_MAX, async |core| {
                let handle = array.start(&core).await;
                measure(&core, args, &facts, &handle, &load).await
            })?
        }
        (None, None) => {
            let scan = members::look(access, &args.members, &args.force)?;
            let array = scan.find(args.volume.as_deref())?;
            let writes = load.read_part() < 1.0;
            let claimed = start::claim(&scan, array, !writes)?;
            let facts = ServedFacts::of_claimed(&claimed);
            if writes {
                check_may_write(args, &facts.name, claimed.read_only())?;
                if claimed.is_forced(members::forced(&args.force)) {
                    output::note(NO_UNDO);
                }
            }
            members::note_unused(&scan, array);
            drop(scan);
            members::run(&args.engine, CORES_MAX, async |core| {
                let handle = claimed.launch(&core).await?.handle;
                measure(&core, args, &facts, &handle, &load).await
            })?
        }
    };
    if args.json.json { output::print_json(&report) } else { output::print(&report.text(screen)) }
}

/// How long it is going to take, before it begins.
fn takes(args: &BenchArgs, load: &Load) -> String {
    let counted = load.runtime.unwrap_or(RUNTIME);
    // Between rounds the load comes up again; behind each is the yardstick.
    let rest = COME_UP * (args.rounds - 1) + YARDSTICK * args.rounds;
    let (ramp, ready) = match &load.ramp {
        Ramp::For(time) => (*time, String::new()),
        _ => {
            let at_most = args.steady_within.map_or(STEADY.at_most, |time| time.0);
            let at_most = format!(" after it is steady, which may take {:.0} s", at_most.as_secs_f64());
            (Duration::ZERO, at_most)
        }
    };
    format!(
        "{} of {:.1} s in all, {:.1} s with what comes before and between{ready}",
        if args.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", args.rounds) },
        counted.as_secs_f64(),
        (counted + rest + ramp).as_secs_f64()
    )
}

/// The array that is served under the only name that was given.
fn served(args: &BenchArgs) -> Result<Option<ServedTarget>, Problem> {
    let runtime_dir = args.runtime.runtime_dir.as_deref();
    match args.made_up.level {
        None => ServedTarget::if_served(runtime_dir, &args.members),
        Some(_) => Ok(None),
    }
}

/// A benchmark that writes leaves nothing of what was there.
fn check_may_write(args: &BenchArgs, name: &str, read_only: bool) -> Result<(), Problem> {
    if read_only {
        return Err(Problem::new(
            Code::BadRequest,
            format!("{name} cannot be written"),
            "it can only be served for reading just now",
            "`wattle scan` says why; --rw read or randread measures reads",
        ));
    }
    if members::forced(&args.force).has(Check::Overwrite) {
        return Ok(());
    }
    Err(Problem::new(
        Code::WouldOverwrite,
        format!("{name}: --rw {} writes over what it holds", args.load.rw.name()),
        "a benchmark writes all over the array, and nothing brings back what was there",
        "--rw randread or read measures without writing, and an array of mem:, null: or model: drives holds nothing; \
         --force=overwrite goes on all the same",
    )
    .forced_by(Check::Overwrite))
}

async fn measure(
    core: &Core,
    args: &BenchArgs,
    facts: &ServedFacts,
    handle: &ArrayHandle,
    load: &Load,
) -> Result<BenchReport, Problem> {
    let before = Condition::of_status(&handle.status(core).await);
    let yardstick = yardstick(&facts.geometry, load);
    let rounds = rounds(core, args, &handle.volume(), load, yardstick, true).await;
    let after = handle.status(core).await;
    let stopped = handle.stop(core).await;
    let (warmed, rounds) = rounds?;
    stopped.map_err(|error| failed(error.to_string()))?;
    let plans = (facts.geometry.kind() == LevelKind::Parity)
        .then(|| RowPlanReport::between(&CounterTotals::default(), &after.counters));
    let array = BenchedArrayReport::new(facts, &args.members, core.cores());
    let condition = before.and(Condition::of_status(&after));
    Ok(BenchReport::new(array, condition, load, yardstick, &warmed, &rounds, plans))
}

/// What a load is held against: what is written as whole stripes in sequence needs the parity of
/// what does not fit a cache.
fn yardstick(geometry: &Geometry, load: &Load) -> Yardstick {
    if geometry.kind() != LevelKind::Parity || load.rw != Rw::Write {
        return Yardstick::Updates;
    }
    let (stripe, chunk) = (geometry.stripe_data_sectors().0, geometry.chunk().0);
    if !load.bs_bytes.is_multiple_of(stripe * SECTOR_BYTES) {
        return Yardstick::Updates;
    }
    let data = (stripe / chunk) as usize;
    Yardstick::Parity { data, parities: geometry.raid_disks() - data }
}

/// Where the work is done by another process, processor time here says nothing.
async fn rounds(
    core: &Core,
    args: &BenchArgs,
    target: &impl Goal,
    load: &Load,
    yardstick: Yardstick,
    works_here: bool,
) -> Result<(Warmed, Vec<Round>), Problem> {
    let time = load.runtime.unwrap_or(RUNTIME) / args.rounds;
    let mut load = Load { runtime: Some(time), ..load.clone() };
    let mut warmed = None;
    let mut rounds = Vec::new();
    for number in 0..args.rounds {
        output::progress(Some(&format!("round {} of {}", number + 1, args.rounds)));
        let counted =
            load.run(core, target, async || if works_here { cpu_time() } else { Duration::ZERO }).await;
        output::progress(None);
        let counted = counted.map_err(ended)?;
        warmed.get_or_insert(Warmed { took: counted.ramped.took, steady: counted.ramped.steady });
        rounds.push(Round {
            counts: counted.counts,
            time: counted.runtime,
            cpu: counted.after.saturating_sub(counted.before),
            yardstick: yardstick.per_second(core, YARDSTICK).await,
        });
        // Another seed, so that no round finds what the one before left behind just so.
        load = Load { ramp: Ramp::For(COME_UP), seed: load.seed.wrapping_add(1), ..load };
    }
    let warmed = warmed.expect("there is a round");
    Ok((warmed, rounds))
}

/// Processor time of this process; zero where the system does not tell.
fn cpu_time() -> Duration {
    Duration::from_millis(wattle_server::serving::threads::process_cpu_ms().unwrap_or(0))
}

fn ended(error: LoadError) -> Problem {
    match error {
        LoadError::NoRoom { .. } => Problem::new(
            Code::Usage,
            "the load does not fit the array",
            error.to_string(),
            "ask for smaller requests (--bs) or a larger part (--size, --offset)",
        ),
        LoadError::Failed { .. } => failed(error.to_string()),
    }
}

fn failed(why: String) -> Problem {
    Problem::new(
        Code::VolumeFailed,
        "the benchmark ended early",
        why,
        "see how the members are: `wattle scan MEMBER...`",
    )
}
