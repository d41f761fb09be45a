//! `wattle stop`: ends the serving of an array, or of what lies on arrays.

use wattle_control::{Code, Problem};
use wattle_server::protocol::ServerRequest;
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::{Servers, request};

use super::order_report::OrderReport;
use crate::cli::StopArgs;
use crate::environment::runtime_dir;

/// # Errors
/// No such array is being served, or its server could not record it clean.
pub fn run(args: &StopArgs) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let meant = match args.server {
        true => servers.server(&dir, &args.name),
        false => servers.meant(&dir, &args.name),
    };
    let meant = match meant {
        Ok(meant) => meant,
        Err(_) if servers.is_dead(&dir, &args.name) => return Err(forget(&dir, &args.name)),
        Err(problem) => return Err(problem),
    };
    let mut report = OrderReport::new();
    let array = match (&meant.arrays[..], meant.is_server || !meant.volumes.is_empty()) {
        // Whatever else comes to have its name meanwhile.
        ([array], false) => array.id().to_owned(),
        _ => args.name.clone(),
    };
    report.answer(request(meant.socket, &ServerRequest::Stop { array, server: meant.is_server })?);
    report.finish(&args.json)
}

/// A server that died needs no stop, but its array does: the operator has seen it, and `status
/// --check` counts it no longer.
fn forget(dir: &RuntimeDir, name: &str) -> Problem {
    dir.forget(name);
    Problem::new(
        Code::ServerNotFound,
        format!("{name} was not stopped: its server had ended before, without being stopped"),
        "it was killed, or it crashed; what it had in flight is not recorded as done",
        "serve the same members again and stop that: it recovers; the old server is forgotten now",
    )
}
