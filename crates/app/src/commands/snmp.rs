//! `wattle snmp`: for an agent, on standard input and output.

use std::io;

use wattle_control::{Code, Problem};
use wattle_operate::metrics::ReportSource;
use wattle_operate::snmp::answer;

use crate::cli::SnmpArgs;
use crate::environment::runtime_dir;

/// Answers until the agent closes its end.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &SnmpArgs) -> Result<(), Problem> {
    let source = ReportSource::all(runtime_dir(args.runtime.runtime_dir.as_deref()));
    let ended = answer(&source, &args.base, &mut io::stdin().lock(), &mut io::stdout().lock());
    match ended {
        // The agent has ended.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended.map_err(|error| {
            Problem::new(
                Code::OutputFailed,
                format!("the agent cannot be answered: {error}"),
                "it reads what this command writes",
                "start it from snmpd.conf: `wattle snmp --help`",
            )
        }),
    }
}
