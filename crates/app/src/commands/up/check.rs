//! `wattle up --check`: what is wrong in the files.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use wattle_control::Problem;
use wattle_operate::config::{ConfigFault, StackConfig, Stacks, stack_name};
use wattle_server::protocol::{ErrorReport, SCHEMA_VERSION};

use crate::cli::UpArgs;
use crate::output::{self, Screen};

/// The exit status where a file has a fault, of whatever kind.
const FAULTY: u8 = 2;

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    /// The stacks that can be started.
    stacks: Vec<&'a str>,
    errors: Vec<FaultReport<'a>>,
}

#[derive(Serialize)]
struct FaultReport<'a> {
    file: &'a Path,
    line: usize,
    #[serde(flatten)]
    error: ErrorReport,
}

impl<'a> From<&'a ConfigFault> for FaultReport<'a> {
    fn from(fault: &'a ConfigFault) -> Self {
        Self { file: &fault.file, line: fault.line, error: (&fault.problem()).into() }
    }
}

/// # Errors
/// A stack that was named is not there.
pub fn run(stacks: &Stacks, args: &UpArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let named = |name: &str| args.names.is_empty() || args.names.iter().any(|named| named == name);
    let missing = stacks.stacks.iter().flat_map(StackConfig::missing).collect::<Vec<_>>();
    let all = stacks.faults.iter().chain(&missing);
    let faults: Vec<_> = all.filter(|fault| named(&stack_name(&fault.file))).collect();
    let faulty = |name: &str| faults.iter().any(|fault| stack_name(&fault.file) == name);
    for name in args.names.iter().filter(|name| !faulty(name)) {
        stacks.find(name)?;
    }
    let good =
        stacks.stacks.iter().map(|stack| stack.name.as_str()).filter(|name| named(name) && !faulty(name));
    let good: Vec<_> = good.collect();
    if args.json.json {
        let errors = faults.iter().map(|fault| FaultReport::from(*fault)).collect();
        output::print_json(&Report { schema_version: SCHEMA_VERSION, stacks: good.clone(), errors })?;
    }
    for fault in &faults {
        output::report(&fault.problem(), screen.style_err);
    }
    if faults.is_empty() {
        let place = stacks.place.display();
        output::note(&match good.as_slice() {
            [] => format!("no stack in {place}"),
            good => format!("no fault in {place}: {}", good.join(", ")),
        });
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAULTY) })
}
