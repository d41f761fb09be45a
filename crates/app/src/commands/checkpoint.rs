//! `wattle checkpoint`: since when it is known what has changed on a volume that is being served.

use serde::Serialize;
use wattle_control::Problem;
use wattle_server::protocol::report::CheckpointReport;
use wattle_server::protocol::{SCHEMA_VERSION, ServerRequest};
use wattle_server::socket::client::{Servers, request};

use super::order_report::OrderReport;
use crate::cli::CheckpointArgs;
use crate::environment::runtime_dir;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};

#[derive(Serialize)]
struct Listed<'a> {
    schema_version: u32,
    checkpoints: Vec<&'a CheckpointReport>,
}

/// # Errors
/// No such volume; a checkpoint that is there already, or is not there.
pub fn run(args: &CheckpointArgs, screen: Screen) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let meant = servers.meant(&dir, &args.volume)?;
    if let Some(name) = &args.name {
        let (volume, name, remove) = (args.volume.clone(), name.clone(), args.remove);
        let mut report = OrderReport::new();
        report.answer(request(meant.socket, &ServerRequest::Checkpoint { volume, name, remove })?);
        return report.finish(&args.json);
    }
    let names = meant.volume_names();
    let all = meant.server.checkpoints.iter();
    let found: Vec<_> = all.filter(|found| names.contains(&found.volume.as_str())).collect();
    if args.json.json {
        return output::print_json(&Listed { schema_version: SCHEMA_VERSION, checkpoints: found });
    }
    let rows = found.iter().map(|found| {
        let changed = screen.units.show(found.changed_bytes);
        vec![printable(&found.name), found.since.clone(), format!("{changed} changed since")]
    });
    output::print(&table("", &rows.collect::<Vec<_>>()))
}
