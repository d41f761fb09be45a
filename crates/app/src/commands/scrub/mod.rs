//! `wattle check` and `wattle repair`.

pub mod files;

use std::process::ExitCode;

use wattle_control::members::MemberAccess;
use wattle_control::{Code, Problem};
use wattle_server::protocol::{RepairChoice, ServerRequest};
use wattle_server::socket::client::request;

use super::order_report::OrderReport;
use super::status::scrubs::{places, scrub_line};
use crate::cli::{CheckArgs, RepairArgs, Runtime, Scrub};
use crate::output;
use crate::target::ServedTarget;

/// Something did not agree, or it did not come to its end.
const FOUND: u8 = 1;

/// # Errors
/// No such array, or something else runs. What it finds is an exit status.
pub fn check(access: &MemberAccess, args: &CheckArgs) -> Result<ExitCode, Problem> {
    scrub(access, &args.name, &args.scrub, &args.runtime, |array, _| {
        Ok(match &args.bad_blocks {
            Some(member) => ServerRequest::ClearBadBlocks { array, member: member.clone() },
            None if args.record => ServerRequest::Record { array, repair: false },
            None => ServerRequest::Check { array },
        })
    })
}

/// # Errors
/// As [`check`], or the source is not stated or is none for this level.
pub fn repair(access: &MemberAccess, args: &RepairArgs) -> Result<ExitCode, Problem> {
    scrub(access, &args.name, &args.scrub, &args.runtime, |array, level| {
        let source = source(level, args.source.as_deref())?;
        if args.record && source != RepairChoice::Record {
            return Err(Problem::new(
                Code::RecordsWhole,
                "--record goes with --source record only",
                "what a repair from another source writes is not what was there",
                "repair first; then `wattle check --record`",
            ));
        }
        if args.record {
            return Ok(ServerRequest::Record { array, repair: true });
        }
        Ok(ServerRequest::Repair { array, source })
    })
}

fn scrub(
    access: &MemberAccess,
    name: &str,
    args: &Scrub,
    runtime: &Runtime,
    start: impl FnOnce(String, &str) -> Result<ServerRequest, Problem>,
) -> Result<ExitCode, Problem> {
    let target = ServedTarget::find(runtime.runtime_dir.as_deref(), name)?;
    let array = target.id().to_owned();
    let order = match (args.abort, args.pause, args.resume) {
        (true, ..) => ServerRequest::Abort { array },
        (_, true, _) | (_, _, true) => ServerRequest::Pause { array, paused: args.pause },
        _ => start(array, &target.array().level)?,
    };
    let mut report = OrderReport::new();
    report.answer(request(target.socket(), &order)?);
    if !args.wait {
        return report.finish(&args.json).map(|()| ExitCode::SUCCESS);
    }
    let array = target.wait_for_scrub()?;
    report.ended(array.clone());
    report.finish(&args.json)?;
    let Some(run) = array.scrubs.first() else { return Ok(ExitCode::from(FOUND)) };
    output::note(&scrub_line(run));
    places(&array, run).iter().for_each(|line| output::note(&format!("  {line}")));
    let found = files::of_run(access, target.server_pid(), &array, run);
    files::lines(&found, &array.name).iter().for_each(|line| output::note(&format!("  {line}")));
    let wanted = matches!(order, ServerRequest::Record { .. });
    let not_recorded = wanted && !run.record.is_some_and(|record| record.recorded);
    if not_recorded {
        output::note("  it is not recorded: the record could not be written; `wattle explain WTL-0275`");
    }
    Ok(if run.outcome == "done" && run.left().total() == 0 && !not_recorded {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

/// What is right where parity or copies do not agree. Nothing is guessed: the wrong source makes
/// damage permanent.
fn source(level: &str, stated: Option<&str>) -> Result<RepairChoice, Problem> {
    let bad = |what: String| {
        let next = match level {
            "raid6" => {
                "state it: --source data (parity is made to fit the data), or --source proof (the member that P and Q prove wrong)"
            }
            "raid1" | "raid10" => {
                "state it: --source MEMBER (its copy goes to the others; `wattle status` lists them), or --source majority"
            }
            _ => "state it: --source data (parity is made to fit the data)",
        };
        Problem::new(
            Code::Usage,
            what,
            "a repair makes what does not agree fit what is said to be right; with the wrong source, damage becomes permanent",
            next,
        )
    };
    let mirror = matches!(level, "raid1" | "raid10");
    match stated {
        None => Err(bad("the source of the repair is not stated".to_owned())),
        Some("record") => Ok(RepairChoice::Record),
        Some("data") if !mirror => Ok(RepairChoice::Data),
        Some("proof") if level == "raid6" => Ok(RepairChoice::Proof),
        Some("majority") if mirror => Ok(RepairChoice::Majority),
        Some(other @ ("data" | "proof" | "majority")) => {
            Err(bad(format!("--source {other}: {level} has no such source")))
        }
        Some(member) if mirror => Ok(RepairChoice::Member(member.to_owned())),
        Some(other) => Err(bad(format!("--source {other}: {level} has no such source"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_its_sources() {
        let rows = [
            ("raid5", "data", Some(RepairChoice::Data)),
            ("raid4", "data", Some(RepairChoice::Data)),
            ("raid6", "data", Some(RepairChoice::Data)),
            ("raid6", "proof", Some(RepairChoice::Proof)),
            ("raid1", "a.img", Some(RepairChoice::Member("a.img".to_owned()))),
            ("raid10", "2", Some(RepairChoice::Member("2".to_owned()))),
            ("raid1", "majority", Some(RepairChoice::Majority)),
            ("raid5", "record", Some(RepairChoice::Record)),
            ("raid1", "record", Some(RepairChoice::Record)),
            ("raid6", "majority", None),
            ("raid5", "proof", None),
            ("raid5", "a.img", None),
            ("raid1", "data", None),
            ("raid1", "proof", None),
        ];
        for (level, stated, expected) in rows {
            assert_eq!(source(level, Some(stated)).ok(), expected, "{level} {stated}");
        }
        for level in ["raid1", "raid4", "raid5", "raid6", "raid10"] {
            let problem = source(level, None).unwrap_err();
            assert!(problem.exit_code() == 2 && problem.next.contains("--source"), "{level}");
        }
    }
}
