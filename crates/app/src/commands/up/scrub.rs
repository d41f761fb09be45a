//! `wattle up --scrub` and `--scrub-overdue`: what files say of checks, against what arrays
//! remember.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use wattle_control::{Code, Problem, shell_word};
use wattle_operate::config::StackConfig;
use wattle_server::protocol::report::{ArrayReport, ScrubReport};
use wattle_server::protocol::{ErrorReport, SCHEMA_VERSION, ServerRequest};
use wattle_server::socket::client::{Servers, request};
use wattle_server::time::{duration, secs_since};

use crate::cli::UpArgs;
use crate::commands::status::scrubs::scrub_line;
use crate::environment::{now, runtime_dir};
use crate::output::text::printable;
use crate::output::{self, Screen};
use crate::target::ServedTarget;

/// Something did not agree, a check did not come to its end, or one is overdue.
const FOUND: u8 = 1;

#[derive(Serialize)]
struct OverdueReport {
    schema_version: u32,
    /// Of each array the last check or repair that was done; absent if there was none.
    arrays: Vec<ScrubbedArray>,
    errors: Vec<ErrorReport>,
}

#[derive(Serialize)]
struct ChecksReport {
    schema_version: u32,
    arrays: Vec<CheckedArray>,
    errors: Vec<ErrorReport>,
}

#[derive(Serialize)]
struct CheckedArray {
    stack: String,
    name: String,
    uuid: Option<String>,
    /// Whether a check was due, so that one was run.
    due: bool,
    /// How that check ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    scrub: Option<ScrubReport>,
}

impl CheckedArray {
    /// Whether there is nothing to tell of it.
    fn is_clean(&self) -> bool {
        let clean = |run: &ScrubReport| run.outcome == "done" && run.left().total() == 0;
        !self.due || self.scrub.as_ref().is_some_and(clean)
    }
}

#[derive(Serialize)]
struct ScrubbedArray {
    stack: String,
    name: String,
    uuid: Option<String>,
    last_scrub: Option<String>,
    overdue: bool,
}

/// The arrays of a stack that can be checked.
///
/// # Errors
/// It does not run.
fn arrays(servers: &Servers, stack: &StackConfig) -> Result<Vec<ArrayReport>, Problem> {
    let server = servers.reports().find(|server| server.server == stack.name).ok_or_else(|| {
        Problem::new(
            Code::ServerNotFound,
            format!("the stack {} does not run", stack.name),
            "arrays are checked while they are served",
            format!(
                "start it: systemctl start {}, or `wattle up {}`",
                shell_word(&format!("wattle@{}", stack.name)),
                shell_word(&stack.name)
            ),
        )
    })?;
    let can = |array: &&ArrayReport| array.uuid.is_some() && array.is_redundant();
    Ok(server.arrays.iter().filter(can).cloned().collect())
}

/// When the last check or repair that was done began.
fn last_done(array: &ArrayReport) -> Option<&str> {
    array.last_done().map(|run| run.started.as_str())
}

/// Whether so much time has gone by since the last one.
fn is_older(array: &ArrayReport, than: Duration, now_secs: u64) -> bool {
    let secs = array.last_done().and_then(ScrubReport::started_secs);
    secs_since(secs, now_secs).is_none_or(|secs| secs >= than.as_secs())
}

/// What checks find, and what keeps one from being run, is an exit status: the other arrays are
/// checked all the same.
///
/// # Errors
/// The report cannot be printed.
pub fn run(stacks: &[&StackConfig], args: &UpArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let dir = args.runtime.runtime_dir.as_deref();
    let servers = Servers::ask(&runtime_dir(dir));
    let (mut checked, mut errors) = (Vec::new(), Vec::new());
    for stack in stacks {
        let Some(every) = stack.scrub.every else { continue };
        let results = match arrays(&servers, stack) {
            Ok(arrays) => arrays.iter().map(|array| check(stack, array, every, dir)).collect(),
            Err(problem) => vec![Err(problem)],
        };
        for result in results {
            match result {
                Ok(array) => checked.push(array),
                Err(problem) => {
                    output::report(&problem, screen.style_err);
                    errors.push(ErrorReport::from(&problem));
                }
            }
        }
    }
    let all_clean = errors.is_empty() && checked.iter().all(CheckedArray::is_clean);
    if args.json.json {
        output::print_json(&ChecksReport { schema_version: SCHEMA_VERSION, arrays: checked, errors })?;
    }
    Ok(if all_clean { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

/// Checks an array if that is due.
fn check(
    stack: &StackConfig,
    array: &ArrayReport,
    every: Duration,
    dir: Option<&Path>,
) -> Result<CheckedArray, Problem> {
    let checked = |due, scrub| CheckedArray {
        stack: stack.name.clone(),
        name: array.name.clone(),
        uuid: array.uuid.clone(),
        due,
        scrub,
    };
    if !is_older(array, every, now().secs) {
        let last = last_done(array).unwrap_or_default();
        output::note(&format!("{}: not due, last done {last}", array.name));
        return Ok(checked(false, None));
    }
    let id = array.id();
    let target = ServedTarget::find(dir, id)?;
    // It may say that the check waits: background work is paused.
    let answer = request(target.socket(), &ServerRequest::Check { array: id.to_owned() })?;
    output::note(&printable(&answer.message));
    let end = target.wait_for_scrub()?;
    let run = end.scrubs.into_iter().next();
    run.iter().for_each(|run| output::note(&scrub_line(run)));
    Ok(checked(true, run))
}

/// # Errors
/// The report cannot be printed.
pub fn overdue(stacks: &[&StackConfig], args: &UpArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let servers = Servers::ask(&runtime_dir(args.runtime.runtime_dir.as_deref()));
    let (mut scrubbed, mut problems) = (Vec::new(), Vec::new());
    for stack in stacks {
        let Some(limit) = stack.scrub.overdue else { continue };
        let found = arrays(&servers, stack).unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        });
        for array in found {
            let overdue = is_older(&array, limit, now().secs);
            problems.extend(overdue.then(|| overdue_problem(&stack.name, &stack.file, &array, limit)));
            scrubbed.push(ScrubbedArray {
                stack: stack.name.clone(),
                last_scrub: last_done(&array).map(str::to_owned),
                name: array.name,
                uuid: array.uuid,
                overdue,
            });
        }
    }
    if args.json.json {
        let errors = problems.iter().map(ErrorReport::from).collect();
        output::print_json(&OverdueReport { schema_version: SCHEMA_VERSION, arrays: scrubbed, errors })?;
    }
    for problem in &problems {
        output::report(problem, screen.style_err);
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

fn overdue_problem(stack: &str, file: &Path, array: &ArrayReport, limit: Duration) -> Problem {
    // Without redundancy there is nothing to compare.
    let start = match array.degraded > 0 && array.redundancy_left == Some(0) {
        true => array.add_order("DEVICE").unwrap_or_else(|| "it has no redundancy left".to_owned()),
        false => format!("start one: `wattle check {}`", shell_word(&array.name)),
    };
    Problem::new(
        Code::ScrubOverdue,
        match last_done(array) {
            Some(last) => format!("{}: the last check or repair that was done began {last}", array.name),
            None => format!("{}: no check or repair was ever done", array.name),
        },
        format!(
            "{} allows {}: latent errors show only when everything is read",
            file.display(),
            duration(limit.as_secs())
        ),
        format!(
            "{start}; why none ran: systemctl status {}",
            shell_word(&format!("wattle-scrub@{stack}.timer"))
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overdue_says_by_how_much_and_what_to_type() {
        let overdue_problem = |array: &_, limit| overdue_problem("st", Path::new("st.toml"), array, limit);
        let mut array = wattle_server::fixtures::array("my data", "raid5", &["a", "b", "c"]);
        let told = overdue_problem(&array, Duration::from_secs(12 * 3600));
        assert!(told.why.contains("allows 12 h 0 min:"), "{told}");
        assert!(told.next.starts_with("start one: `wattle check 'my data'`; "), "{told}");
        (array.degraded, array.redundancy_left) = (1, Some(0));
        let told = overdue_problem(&array, Duration::from_secs(12 * 3600));
        assert!(told.next.starts_with("wattle add 'my data' DEVICE; "), "{told}");
    }

    #[test]
    fn only_a_run_that_was_done_counts() {
        let run = |started: &str, outcome: &str| -> ScrubReport {
            serde_json::from_value(serde_json::json!({
                "run": 1, "action": "check", "started": started, "outcome": outcome
            }))
            .unwrap()
        };
        let day = Duration::from_secs(86_400);
        let array = |runs: Vec<ScrubReport>| ArrayReport {
            scrubs: runs,
            ..wattle_server::fixtures::array("data", "raid5", &["a", "b"])
        };
        let at = |secs: u64| secs + 86_400 * 10;
        let done = array(vec![run("1970-01-12T00:00:00Z", "aborted"), run("1970-01-11T00:00:00Z", "done")]);
        assert!(!is_older(&done, day, at(86_399)));
        assert!(is_older(&done, day, at(86_400)));
        assert!(is_older(&array(vec![run("1970-01-11T00:00:00Z", "interrupted")]), day, at(1)));
        assert!(is_older(&array(vec![run("yesterday", "done")]), day, at(1)));
        assert!(is_older(&array(Vec::new()), day, at(1)));
        // A clock that was set back is not a reason to shout.
        assert!(!is_older(&done, day, at(0) - 3600));
        // One that was wrong by years says nothing.
        assert!(is_older(&array(vec![run("2040-11-28T00:00:00Z", "done")]), day, at(1)));
    }
}
