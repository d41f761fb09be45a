//! `wattle fail`: fails a member of an array that is being served.

use wattle_control::Problem;

use crate::cli::FailArgs;
use crate::control_socket::RuntimeDir;
use crate::control_socket::client::{Servers, request};
use crate::control_socket::protocol::Request;
use crate::output;

/// # Errors
/// No such array or member, nothing else holds its data, or it could not be recorded.
pub fn run(args: &FailArgs) -> Result<(), Problem> {
    let dir = RuntimeDir::find(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let (socket, _) = servers.find(&dir, &args.name)?;
    let fail = Request::Fail { array: args.name.clone(), member: args.member.clone() };
    output::note(&request(socket, &fail)?);
    Ok(())
}
