//! `wattle stop`: ends the serving of an array, or of what lies on arrays.

use wattle_control::Problem;
use wattle_server::protocol::ServerRequest;
use wattle_server::socket::client::{Servers, request};

use crate::cli::StopArgs;
use crate::environment::runtime_dir;
use crate::output;

/// # Errors
/// No such array is being served, or its server could not record it clean.
pub fn run(args: &StopArgs) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let socket = match servers.find(&dir, &args.name) {
        Ok((socket, _)) => socket,
        Err(problem) => servers.of_volume(&args.name).ok_or(problem)?,
    };
    output::note(&request(socket, &ServerRequest::Stop { array: args.name.clone() })?.message);
    Ok(())
}
