//! `wattle fail`: fails a member of an array that is being served.

use std::process::ExitCode;

use wattle_control::{Code, Kind, Problem};

use crate::cli::FailArgs;
use crate::control_socket::RuntimeDir;
use crate::control_socket::client::{Servers, request};
use crate::control_socket::protocol::Request;
use crate::output::{self, Screen};

/// # Errors
/// No such array or member, or it could not be recorded.
pub fn run(args: &FailArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let dir = RuntimeDir::find(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let (socket, _) = servers.find(&dir, &args.name)?;
    let fail = Request::Fail { array: args.name.clone(), member: args.member.clone() };
    match request(socket, &fail) {
        // Assembly fails for want of members; here the same want keeps the last copy safe, and that is a refusal.
        Err(problem) if problem.code == Code::NotEnoughMembers => {
            output::report(&problem, screen.style_err);
            Ok(ExitCode::from(Kind::Refused.exit_code()))
        }
        Err(problem) => Err(problem),
        Ok(message) => {
            output::note(&message);
            Ok(ExitCode::SUCCESS)
        }
    }
}
