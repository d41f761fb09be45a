//! `wattle reservations`: what NVMe hosts have reserved of a volume that is being served.

use serde::Serialize;
use wattle_control::Problem;
use wattle_server::protocol::reservations::ReservationReport;
use wattle_server::protocol::{SCHEMA_VERSION, ServerRequest};
use wattle_server::socket::client::{Servers, request};

use super::order_report::OrderReport;
use crate::cli::ReservationsArgs;
use crate::environment::runtime_dir;
use crate::output;
use crate::output::text::{printable, table};

#[derive(Serialize)]
struct Listed<'a> {
    schema_version: u32,
    reservations: Vec<&'a ReservationReport>,
}

/// # Errors
/// No such volume, or one that is no namespace; what outlasts the server cannot be written.
pub fn run(args: &ReservationsArgs) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let meant = servers.meant(&dir, &args.volume)?;
    if args.clear {
        let volume = args.volume.clone();
        let mut report = OrderReport::new();
        report.answer(request(meant.socket, &ServerRequest::ClearReservations { volume })?);
        return report.finish(&args.json);
    }
    let names = meant.volume_names();
    let all = meant.server.reservations.iter();
    let found: Vec<_> = all.filter(|found| names.contains(&found.volume.as_str())).collect();
    if args.json.json {
        return output::print_json(&Listed { schema_version: SCHEMA_VERSION, reservations: found });
    }
    if found.is_empty() {
        return output::print("no host has registered or reserved anything\n");
    }
    found.into_iter().try_for_each(|found| output::print(&shown(found)))
}

fn shown(found: &ReservationReport) -> String {
    let volume = printable(&found.volume);
    if !found.readable {
        return format!(
            "{volume}: what was kept of its reservations cannot be read: no host reads or writes it\n"
        );
    }
    let kind = found
        .kind
        .as_deref()
        .map_or_else(|| "nothing is reserved".to_owned(), |kind| format!("reserved, {kind}"));
    let lasts = if found.persists { "outlasts the server" } else { "ends with the server" };
    let rows = found.hosts.iter().map(|host| {
        let holds = if host.holds { "holds the reservation" } else { "registered" };
        vec![
            printable(&host.nqn),
            format!("host id {}", host.id),
            format!("key {}", host.key),
            holds.to_owned(),
        ]
    });
    format!("{volume}: {kind}; {lasts}\n{}", table("  ", &rows.collect::<Vec<_>>()))
}
