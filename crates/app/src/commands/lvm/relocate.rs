//! `wattle lv move`: extents to other physical volumes, on members that are not in use or under
//! clients.

use wattle_control::members::MemberAccess;
use wattle_control::stack::{Purpose, StackOptions};
use wattle_control::{Code, Policy, Problem, Stack};
use wattle_server::groups;
use wattle_server::groups::relocate::{NO_UNDO, decide, moved};
use wattle_server::protocol::change::What;
use wattle_server::protocol::{ChangeReport, Order, SavingOrder};

use super::{order, work};
use crate::cli::MoveArgs;
use crate::members;
use crate::output::{self, Screen};
use crate::saving::Starts;
use crate::volumes;

/// Moves everything, on the members given or by the server of the group.
///
/// # Errors
/// What a step says; what moved before is where it is now, and the same command goes on.
pub fn run(access: &MemberAccess, args: &MoveArgs, screen: Screen) -> Result<(), Problem> {
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
    let mut done: Option<ChangeReport> = None;
    if change.members.is_empty() {
        loop {
            let step = order::give(what(done.is_some()), change)?;
            if is_over(&mut done, step, args, screen) {
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
        let scan = members::look(access, &change.members, &change.force)?;
        let (wanted, before) = members::run(&change.engine, work::CORES_MAX, async |core| {
            let stack = volumes::open(&core, scan, access, &change.force, Purpose::Look).await?;
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
        let scan = members::look(access, &change.members, &change.force)?;
        let moved = members::run(&change.engine, work::CORES_MAX, async |core| {
            let options = StackOptions {
                policy: Policy::from(forced),
                purpose,
                wanted: Some(wanted),
                keys: access.keys(),
            };
            let mut stack = Stack::open(&core, scan, options, &mut starts).await?;
            let moved = loop {
                match groups::obey(
                    &core,
                    &mut stack,
                    access,
                    (&order(done.is_some()), work::backups().as_deref()),
                    |_, _| Ok(None),
                    async |_| Ok(()),
                )
                .await
                {
                    Ok(step) => {
                        if is_over(&mut done, step, args, screen) {
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
fn is_over(done: &mut Option<ChangeReport>, step: ChangeReport, args: &MoveArgs, screen: Screen) -> bool {
    let report = match done.take() {
        None => step,
        Some(before) => before.and(step, |bytes| moved(&args.name, &args.from, bytes, screen.units)),
    };
    let left = report.left_bytes.unwrap_or(0);
    output::progress(Some(&format!("{}, {} left", report.result, screen.units.show(left))));
    let over = left == 0 || report.dry_run;
    *done = Some(report);
    over
}
