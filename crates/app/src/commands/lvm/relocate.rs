//! `wattle lv move`: extents to other physical volumes, step after step, on members that nobody uses or under clients.

use wattle_control::lvm::edit::State;
use wattle_control::lvm::plan::Plan;
use wattle_control::lvm::relocate::{Wanted, next_step};
use wattle_control::stack::{Options, Purpose};
use wattle_control::{Code, Policy, Problem, Stack};

use super::look;
use super::order::{self, Order, What};
use super::work::{self, Change, Report};
use crate::cli::MoveArgs;
use crate::members;
use crate::output::{self, Screen, Units};
use crate::saving::{SavingOrder, Starts};
use crate::volumes;

/// What a step moves at most: so long writes to it wait.
const STEP_BYTES: u64 = 32 << 20;

/// Why a move is not undone.
const NO_UNDO: &str = "no undo log: what is written from now on is in the new places, and the old text would lead to the old ones; to take it \
                       back, move it back (`wattle lv move NAME --from NEW --on OLD`)";

/// The next step off `from`.
///
/// # Errors
/// The group must not be changed, a volume cannot be moved, or there is no room.
pub fn decide(
    stack: &Stack,
    name: &str,
    (from, begun): (&str, bool),
    on: &[String],
    units: Units,
) -> Result<Change, Problem> {
    let (group, volume) = match name.split_once('/') {
        Some(_) => look::split(name).map(|(group, volume)| (group, Some(volume)))?,
        None => (name, None),
    };
    let group = look::group(stack, group, State::Here)?;
    let from_name = look::physical(stack, group, &[from.to_owned()])?.swap_remove(0);
    let on = look::physical(stack, group, on)?;
    let extent_bytes = group.vg.extent_sectors.saturating_mul(512).max(1);
    let extents_max = (STEP_BYTES / extent_bytes).max(1);
    let step = next_step(&group.vg, Wanted { from: &from_name, volume, on: &on, extents_max })?;
    let Some(step) = step else { return Err(nothing(name, from, begun)) };
    let moved_bytes = step.extents.saturating_mul(extent_bytes);
    let of = volume.map_or(String::new(), |volume| format!(" -n {volume}"));
    Ok(Change {
        action: format!("lv move {name} --from {from}"),
        result: format!("{name}, off {from}: {} moved", units.show(moved_bytes)),
        plan: Plan::change(&stack.scan, group, step.after.clone())?,
        commands: vec![format!("pvmove{of} {from}")],
        // The old text would lead to what volumes held once: only moving back is safe.
        notes: (!begun).then(|| NO_UNDO.to_owned()).into_iter().collect(),
        step: Some(step),
    })
}

fn nothing(name: &str, from: &str, begun: bool) -> Problem {
    let why = match begun {
        true => "somebody else moved or removed the rest meanwhile",
        false => "none of its extents are there",
    };
    Problem::new(
        Code::BadVolume,
        format!("nothing of {name} is on {from}"),
        why,
        "see `wattle lv list -o +devices`",
    )
}

/// Moves everything, on the members given or by the server of the group.
///
/// # Errors
/// What a step says; what moved before is where it is now, and the same command goes on.
pub fn run(args: &MoveArgs, screen: Screen) -> Result<(), Problem> {
    let change = &args.change;
    // Only what the start of an array that is forced writes over is saved.
    let may_save = !change.members.is_empty() && !change.force.checks.is_empty();
    if change.saving.dir.is_some() && !may_save {
        return Err(Problem::new(
            Code::Usage,
            "--undo: there is no undo log of `lv move`",
            NO_UNDO,
            "leave it out",
        ));
    }
    let what = |begun| What::Move { name: args.name.clone(), from: args.from.clone(), begun };
    let mut done: Option<Report> = None;
    if change.members.is_empty() {
        loop {
            let step = order::give(what(done.is_some()), change)?;
            if is_over(&mut done, step, screen) {
                break;
            }
        }
    } else {
        let order = |begun| Order {
            what: what(begun),
            on: change.on.clone(),
            dry_run: change.dry_run,
            backup_dir: change.backup_dir.clone(),
            force: Vec::new(),
            undo: SavingOrder::default(),
        };
        // What has to run is found without touching anything; then that is claimed.
        let scan = members::look(&change.members, &change.force)?;
        let (wanted, before) = members::run(&change.engine, work::CORES_MAX, async |core| {
            let stack = volumes::open(&core, scan, &change.force, Purpose::Look).await?;
            let decided = decide(&stack, &args.name, (&args.from, false), &change.on, screen.units);
            let found = decided.map(|decided| {
                let members: Vec<_> = decided.plan.places.iter().map(|place| place.member).collect();
                let (mut wanted, before) = (stack.below(&members).wanted, decided.plan.before);
                wanted.groups.extend(before.iter().map(|before| before.id));
                (wanted, before)
            });
            // Nothing was written, so there is nothing that could fail.
            let _ = stack.close(&core).await;
            found
        })?;
        let purpose = if change.dry_run { Purpose::Look } else { Purpose::Write };
        let forced = members::forced(&change.force);
        let action = format!("lv move {}", args.name);
        let mut starts = Starts::new(&change.saving, &action, &change.members, forced);
        let scan = members::look(&change.members, &change.force)?;
        let moved = members::run(&change.engine, work::CORES_MAX, async |core| {
            let options = Options { policy: Policy::from(forced), purpose, wanted: Some(wanted) };
            let mut stack = Stack::open(&core, scan, options, &mut starts).await?;
            let moved = loop {
                match order::obey(
                    &core,
                    &mut stack,
                    &order(done.is_some()),
                    |_, _| Ok(None),
                    async |_| Ok(()),
                )
                .await
                {
                    Ok(step) => {
                        if is_over(&mut done, step, screen) {
                            break Ok(());
                        }
                    }
                    Err(problem) => break Err(stack.blocked_by().cloned().unwrap_or(problem)),
                }
            };
            moved.and(stack.close(&core).await)
        });
        moved.map_err(|problem| work::of_a_server(change, before.as_ref(), problem))?;
        done.iter_mut().for_each(|report| report.start_undo_logs = starts.logs.clone());
    }
    output::progress(None);
    done.map_or(Ok(()), |report| work::show(&report, &change.json, screen))
}

/// Takes a step's report to those before it, and says whether it was the last.
fn is_over(done: &mut Option<Report>, step: Report, screen: Screen) -> bool {
    let report = match done.take() {
        None => step,
        Some(before) => before.and(step, |moved| format!("{} moved", screen.units.show(moved))),
    };
    let left = report.left_bytes.unwrap_or(0);
    output::progress(Some(&format!("{}, {} left", report.result, screen.units.show(left))));
    let over = left == 0 || report.dry_run;
    *done = Some(report);
    over
}
