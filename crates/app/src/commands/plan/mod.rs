//! `wattle plan`: what to build of drives.
//!
//! `wish` makes of what was typed what is wanted, and lists what was not given; `advise` knows
//! every stack that keeps it, `modelled` which is fastest; `report` is what is told of it, with the
//! reasons (`reasons`) and what to type (`linux`, `ours`); `text` and `draw` show it, and `apply`
//! does it.

mod apply;
mod draw;
mod linux;
mod ours;
mod reasons;
mod report;
mod text;
pub mod wish;

use wattle_advise::plan::{FileSystemOptions, Loss, WishError, candidates};
use wattle_control::members::MemberAccess;
use wattle_control::size::Iec;
use wattle_control::{Code, Problem};
use wattle_modelled::MeasureError;
use wattle_modelled::plan::{Hurt, Ranked, Trials, place_of};

use crate::cli::PlanArgs;
use crate::output::{self, Screen, blocks::width};
use apply::Blueprint;
use report::{Names, PlanDocument, mean_bytes_per_second};
use wish::{PlanRequest, asked};

/// Kinds of arrays that are also looked at with a member missing.
const HURT_MAX: usize = 3;

/// A candidate, all that is known of it.
struct Known {
    ranked: Ranked,
    hurt: Option<Hurt>,
    loss: Option<Loss>,
}

/// # Errors
/// What is wanted cannot be, or makes no sense.
pub fn run(access: &MemberAccess, args: &PlanArgs, screen: Screen) -> Result<(), Problem> {
    apply::check(access, args)?;
    let asked = asked(access, args)?;
    let all = known(&asked)?;
    let stack = &all[0].ranked.candidate.stack;
    let names = Names { drives: asked.names.clone(), name: args.name.clone() };
    let file_system = FileSystemOptions::of(&asked.wish, stack);
    if let Some(path) = &args.svg {
        draw::write(path, &asked, stack, &names)?;
    }
    let blueprint = Blueprint { stack, file_system: &file_system, names: &names };
    let applied = args.apply.then(|| apply::run(access, &blueprint, args.mkfs, screen)).transpose()?;
    let report = PlanDocument::new(&asked, &all, (&names, &file_system), applied, screen.units);
    if args.json.json {
        output::print_json(&report)
    } else {
        output::print_fitted(&text::render(&report, screen, width()))
    }
}

/// Every candidate, the best first; the best of the first few kinds also while it is hurt.
fn known(asked: &PlanRequest) -> Result<Vec<Known>, Problem> {
    let candidates = candidates(&asked.wish, place_of).map_err(|error| impossible(&error))?;
    let trials = Trials { wish: &asked.wish, drives: &asked.drives, load: &asked.load };
    let count = candidates.len();
    let progress = |done, of| {
        output::progress(Some(&format!("simulating {count} candidates: run {done} of some {of}")));
    };
    let known = trials.rank(candidates, &progress).and_then(|ranked| with_hurt(asked, &trials, ranked));
    output::progress(None);
    known.map_err(|error| usage(error.to_string()))
}

fn with_hurt(
    asked: &PlanRequest,
    trials: &Trials<'_>,
    ranked: Vec<Ranked>,
) -> Result<Vec<Known>, MeasureError> {
    let mut kinds = Vec::new();
    let mut all = Vec::new();
    for ranked in ranked {
        let candidate = &ranked.candidate;
        let kind = (candidate.shape, candidate.groups, candidate.measured().cover);
        let looked_at = ranked.trial.is_some()
            && !kinds.contains(&kind)
            && (kinds.len() < HURT_MAX || candidate.keeps_less(&asked.wish));
        let hurt = if looked_at {
            kinds.push(kind);
            trials.measure_hurt(candidate)?
        } else {
            None
        };
        let loss = looked_at.then(|| {
            let filled = mean_bytes_per_second(&asked.drives) * asked.rebuild_share;
            Loss::of(&candidate.stack.arrays, filled, &asked.reliability)
        });
        all.push(Known { ranked, hurt, loss });
    }
    Ok(all)
}

fn impossible(error: &WishError) -> Problem {
    let next = match error {
        WishError::Capacity { .. } => "more or larger drives, fewer failures to survive, or less room",
        WishError::TooFewDrives { .. } | WishError::Members { .. } => {
            "more drives, or fewer failures to survive"
        }
        WishError::TooManyDrives { .. } => "fewer drives, a number that makes equal arrays, or another level",
        WishError::TooSmall { .. } => "use larger drives or smaller chunks",
        WishError::FileSystem { .. } => "use larger drives, or --fs ext4",
        WishError::SparesOfBands => "leave out --spares, or use drives of one size",
        WishError::Level { .. } | WishError::Copies { .. } => {
            "leave out --level and --layout to see what does"
        }
        WishError::Layout { .. } | WishError::Chunk(_) | WishError::Log(_) => "see `wattle plan --help`",
    };
    let what = match error {
        WishError::Capacity { wanted, most, survive, what } => format!(
            "{} are wanted, and the roomiest that survives {survive} failed drives, {what}, has {}",
            Iec(*wanted),
            Iec(*most)
        ),
        WishError::FileSystem { least, most } => {
            format!(
                "mkfs.xfs makes nothing smaller than {}, and the roomiest volume has {}",
                Iec(*least),
                Iec(*most)
            )
        }
        error => error.to_string(),
    };
    Problem::new(Code::BadRequest, what, "nothing that can be built of these drives keeps that", next)
}

/// The problem of options that do not fit.
fn usage(what: String) -> Problem {
    Problem::new(Code::Usage, what, "the options have to fit together", "see `wattle plan --help`")
}
