//! `wattle simulate`: what an array of modelled drives would do.
//!
//! `case` makes one array and one load of what was typed, `sweep` many; the laboratory measures
//! each; `report` is what is told of it, `text` and `draw` how.

mod case;
mod draw;
mod report;
mod studies;
pub mod sweep;
mod text;

use wattle_control::{Code, Problem};
use wattle_modelled::MeasureError;

use crate::cli::SimulateArgs;
use crate::output::{self, Screen, blocks::width};
use case::SimulatedCase;
pub use case::load as load_of;
use report::{RunReport, SimulateReport};

/// # Errors
/// What was asked for cannot exist, or a plot cannot be written.
pub fn run(args: &SimulateArgs, screen: Screen) -> Result<(), Problem> {
    if let Some(preset) = args.preset {
        let done = studies::run(preset, args)?;
        draw::write(args, || Ok(done.chart))?;
        return if args.json.json {
            output::print_json(&done.report)
        } else {
            output::print_fitted(&done.text)
        };
    }
    let cases = sweep::cases(args)?;
    let swept = !args.sweep.is_empty();
    let runs = measure(&cases)?;
    draw::write(args, || draw::chart(&runs, args.latency))?;
    let report = SimulateReport::new(runs);
    match (args.json.json, swept) {
        (true, _) => output::print_json(&report),
        (false, true) => output::print_fitted(&text::table_of(&report.runs, screen, width())),
        (false, false) => output::print_fitted(&text::one(&report.runs[0], screen, width())),
    }
}

/// Measures one after the other.
///
/// # Errors
/// One cannot be measured.
fn measure(cases: &[SimulatedCase]) -> Result<Vec<RunReport>, Problem> {
    let mut runs = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let swept: Vec<_> = case.swept.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        let line = format!("simulating {} of {}{}", number + 1, cases.len(), swept.concat());
        output::progress(Some(&line));
        let finding = case.study.run();
        let beside = case.rebuild.then(|| case.study.run_beside_rebuild()).transpose();
        output::progress(None);
        let cannot = |error: MeasureError| usage(error.to_string());
        runs.push(RunReport::new(case, &finding.map_err(cannot)?, beside.map_err(cannot)?.as_ref()));
    }
    Ok(runs)
}

/// The problem of options that do not fit.
fn usage(what: String) -> Problem {
    Problem::new(Code::Usage, what, "the options have to fit together", "see `wattle simulate --help`")
}
