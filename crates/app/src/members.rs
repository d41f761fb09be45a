//! What commands that work on members have in common: opening them, finding arrays on them, and the
//! runtime the work is done in.

use wattle_control::assemble::{Degraded, Policy};
use wattle_control::members::{Claim, Member, MemberAccess};
use wattle_control::{ArrayScan, Check, Claimed, Code, Forced, MemberError, Problem, Scan, scan};
use wattle_drives::{DriveError, ModelDrive};
use wattle_rt::{Core, Either, MemoryNodes, Placement, Processors, RuntimeConfig, race};
use wattle_server::why;

use crate::cli::{DegradedArg, Engine, Force};
use crate::output::{self, text::printable};

/// Opens members for reading and finds what is on them.
///
/// # Errors
/// One cannot be opened or read, or is given twice.
pub fn look(access: &MemberAccess, names: &[String], force: &Force) -> Result<Scan, Problem> {
    look_at(access.look_all(names)?, force)
}

/// Finds what is on members.
///
/// # Errors
/// One cannot be read.
pub fn look_at(members: Vec<Member>, force: &Force) -> Result<Scan, Problem> {
    scan::scan(members, forced(force)).map_err(unread)
}

/// The same members, open to be written and locked: what is looked at from now on stays so. None
/// for a dry run.
///
/// # Errors
/// Another process has one, or it cannot be written.
pub fn claim_unless(dry_run: bool, looked: &[Member]) -> Result<Vec<Member>, Problem> {
    let written = looked.iter().filter(|_| !dry_run);
    written.map(|member| Ok(member.claim(Claim::Write)?)).collect()
}

/// As [`look`], with what the operator wants to be so of arrays that are not whole.
///
/// # Errors
/// One cannot be opened or read, or is given twice.
pub fn look_to_serve(
    access: &MemberAccess,
    names: &[String],
    force: &Force,
    degraded: DegradedArg,
) -> Result<Scan, Problem> {
    let members = access.look_all(names)?;
    scan::scan(members, policy(force, degraded)).map_err(unread)
}

/// A member of which nothing can be told: what else is on the members may be used without it.
fn unread(error: MemberError) -> Problem {
    Problem::from(error).forced_by(Check::NewestSuperblock)
}

/// What the operator wants to be so of arrays that are not whole.
pub fn policy(force: &Force, degraded: DegradedArg) -> Policy {
    let degraded = match degraded {
        DegradedArg::Auto => Degraded::Auto,
        DegradedArg::Never => Degraded::Never,
    };
    Policy { forced: forced(force), degraded }
}

/// As [`look`], for commands that only show: those that can be opened and read, and why others
/// cannot be opened.
///
/// # Errors
/// One is given twice.
pub fn look_each(
    access: &MemberAccess,
    names: &[String],
    force: &Force,
) -> Result<(Scan, Vec<Problem>), Problem> {
    let (members, errors) = access.look_each(names)?;
    let unopened = errors.into_iter().map(Problem::from).collect();
    Ok((scan::scan_each(members, forced(force)), unopened))
}

/// From here on signals that ask for the end kill no more; whether there was one already. For what
/// says that it is ready before it waits for them.
pub async fn heed_signals(core: &Core) -> bool {
    // The first poll is what changes their meaning; the second future is ready at once.
    matches!(race(core.terminated(), async {}).await, Either::First(_))
}

/// The made-up drive `name`: as [`MemberAccess::look`], and `model:DRIVE`.
///
/// # Errors
/// There is no such drive. A file or device is opened like any.
pub fn look_made_up(access: &MemberAccess, name: &str) -> Result<Member, Problem> {
    if !name.starts_with("model:") {
        return Ok(access.look(name)?);
    }
    let ModelDrive { drive, .. } = name.parse().map_err(|error: DriveError| {
        Problem::new(
            Code::BadMember,
            format!("{name}: {error}"),
            "a modelled drive is model:DRIVE, with ,KEY=VALUE for every figure that is to be another",
            "write it like model:x25m or model:sata7200,size=10G,rpm=5400",
        )
        .of_member(name)
    })?;
    Ok(Member::made_up(name, wattle_modelled::drive::device(&drive, name)))
}

/// The made-up drives of these names, as [`look_made_up`].
///
/// # Errors
/// There is no such drive.
pub fn look_made_up_all(access: &MemberAccess, names: &[String]) -> Result<Vec<Member>, Problem> {
    names.iter().map(|name| look_made_up(access, name)).collect()
}

/// The checks that the operator overrides.
pub fn forced(force: &Force) -> Forced {
    force.checks.iter().copied().collect()
}

/// Tells, before an array is used without some of the members given, which and why.
pub fn note_unused(scan: &Scan, array: &ArrayScan) {
    why::unused(scan, array).iter().for_each(|line| output::note(&printable(line)));
}

/// Tells which members given an array does without because they may only be read.
pub fn note_left_out(claimed: &Claimed) {
    let name = claimed.assembly().name();
    for problem in claimed.left_out() {
        output::note(&printable(&format!("{}; {name} does without it", problem.what)));
    }
}

/// Tells, before an array is read, that it is in the middle of a reshape, and what of it is an
/// error; what of it comes from a journal; and what the operator has overridden of that.
pub fn note_state(array: &ArrayScan) {
    let problems = array.assembly.problems().into_iter();
    let told = problems.filter(|problem| matches!(problem.code, Code::Reshaping | Code::JournalNotEmpty));
    told.for_each(|problem| output::note(&printable(&problem.what)));
    for reason in array.assembly.overridden.iter().filter(|reason| reason.check() == Some(Check::Journal)) {
        let problem = reason.problem(array.assembly.name());
        output::note(&printable(&format!("{}; --force={}: {}", problem.what, Check::Journal, problem.why)));
    }
}

/// Runs `main` on as many cores as asked for, or else as there are, up to `cores_max`.
///
/// # Errors
/// The backend cannot be had here, the processors asked for are not ours, or what `main` says.
pub fn run<T>(
    engine: &Engine,
    cores_max: usize,
    main: impl AsyncFnOnce(Core) -> Result<T, Problem>,
) -> Result<T, Problem> {
    run_near(None, engine, cores_max, main)
}

/// As [`run`], if the machine has several memory nodes best on this one.
///
/// # Errors
/// As [`run`].
pub fn run_near<T>(
    node: Option<usize>,
    engine: &Engine,
    cores_max: usize,
    main: impl AsyncFnOnce(Core) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let processors = match &engine.processors {
        Some(asked) => asked.count(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let cores = engine.cores.map_or(processors.min(cores_max), usize::from);
    let placement = match &engine.processors {
        Some(asked) => pinned(asked, cores)?,
        None => {
            let nodes = MemoryNodes::look();
            nodes.place(cores, node.or_else(|| nodes.here())).unwrap_or_default()
        }
    };
    let config = RuntimeConfig { cores, backend: engine.backend, ..RuntimeConfig::default() };
    wattle_rt::run_at(config, &placement, main).map_err(|error| {
        Problem::new(
            Code::BackendUnavailable,
            error.to_string(),
            format!("{cores} executors with the backend `{:?}` were asked for", engine.backend),
            "use --backend auto or syscall, or fewer --cores",
        )
    })?
}

/// A processor for each core.
fn pinned(asked: &Processors, cores: usize) -> Result<Placement, Problem> {
    let allowed = Processors::allowed().unwrap_or_else(|_| asked.clone());
    let ours = asked.of_both(&allowed);
    if ours != *asked {
        return Err(Problem::new(
            Code::BackendUnavailable,
            format!("--processors {asked}: not all of them are there for this process"),
            format!("it may run on {allowed}: the others are not in this machine, off, or another's"),
            "name some of these",
        ));
    }
    if cores > asked.count() {
        return Err(Problem::new(
            Code::BackendUnavailable,
            format!("--processors {asked}: {} for {cores} threads", asked.count()),
            "with --processors each thread has one of its own",
            "name as many as --cores says, or leave --cores out",
        ));
    }
    Ok(Placement::pinned(asked, cores))
}
