//! `wattle status`: the arrays being served, and whether they are well.

use std::process::ExitCode;

use serde::Serialize;
use wattle_control::Problem;

use crate::cli::StatusArgs;
use crate::control_socket::RuntimeDir;
use crate::control_socket::client::Servers;
use crate::control_socket::protocol::{ArrayReport, Health, MemberReport, ServerReport};
use crate::output::text::{printable, table};
use crate::output::{self, ErrorReport, SCHEMA_VERSION, Screen};

/// `--check`: nobody can tell. mdadm's number.
const CANNOT_TELL: u8 = 4;

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    arrays: Vec<ServedArray<'a>>,
    errors: Vec<ErrorReport>,
}

#[derive(Serialize)]
struct ServedArray<'a> {
    #[serde(flatten)]
    array: &'a ArrayReport,
    server: &'a str,
    pid: u32,
}

/// # Errors
/// The array asked for is not being served, or a server does not answer. With `--check` that is a status and no error.
pub fn run(args: &StatusArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let dir = RuntimeDir::find(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let shown = match &args.name {
        None => Ok(servers
            .answered
            .iter()
            .flat_map(|(_, server)| server.arrays.iter().map(move |a| (server, a)))
            .collect()),
        Some(name) => servers.find(&dir, name).map(|(socket, array)| {
            let (_, server) =
                servers.answered.iter().find(|(s, _)| s == socket).expect("it was found among them");
            vec![(server, array)]
        }),
    };
    let shown = match shown {
        Ok(shown) => shown,
        Err(problem) if args.check => {
            output::report(&problem, screen.style_err);
            return Ok(ExitCode::from(CANNOT_TELL));
        }
        Err(problem) => return Err(problem),
    };
    // With a name, what other servers do is of no concern.
    let silent = if args.name.is_some() { &[] } else { &servers.silent[..] };
    if args.json.json {
        let arrays = shown.iter().map(|(server, array)| served(server, array)).collect();
        let errors = silent.iter().map(ErrorReport::from).collect();
        output::print_json(&Report { schema_version: SCHEMA_VERSION, arrays, errors })?;
    } else {
        output::print(&render_all(&shown, screen))?;
    }
    let mut failed = None;
    for problem in silent {
        failed = Some(output::report(problem, screen.style_err));
    }
    if shown.is_empty() && failed.is_none() {
        output::note(&format!("nothing is being served (looked in {})", dir.path().display()));
    }
    match (args.check, failed) {
        (true, failed) => {
            Ok(ExitCode::from(check_status(shown.iter().map(|(_, a)| a.check_status()), failed.is_some())))
        }
        (false, Some(failed)) => Ok(failed),
        (false, None) => Ok(ExitCode::SUCCESS),
    }
}

/// The worst array counts; a server that does not answer may hide a worse one.
fn check_status(arrays: impl Iterator<Item = u8>, silent: bool) -> u8 {
    match arrays.max() {
        Some(worst) if !silent => worst,
        _ => CANNOT_TELL,
    }
}

fn served<'a>(server: &'a ServerReport, array: &'a ArrayReport) -> ServedArray<'a> {
    ServedArray { array, server: &server.server, pid: server.pid }
}

fn render_all(shown: &[(&ServerReport, &ArrayReport)], screen: Screen) -> String {
    let parts: Vec<_> = shown.iter().map(|(server, array)| render(server, array, screen)).collect();
    parts.join("\n")
}

fn render(server: &ServerReport, array: &ArrayReport, screen: Screen) -> String {
    let Screen { units, style, .. } = screen;
    let mut what = vec![array.level.clone()];
    what.extend(array.layout.clone());
    what.extend(array.chunk_bytes.map(|bytes| format!("chunk {}", units.show(bytes))));
    what.push(units.show_capacity(array.size_bytes));
    let mut text = format!("{}  {}\n", style.bold(&printable(&array.name)), what.join(", "));

    let health = format!("{} {}", array.slots, array.health.word(array.synced));
    let health = match array.health {
        Health::Good if array.synced => style.green(&health),
        Health::Good | Health::Degraded => style.yellow(&health),
        Health::Unusable => style.red(&health),
    };
    let access = if array.read_only { "read-only" } else { "read-write" };
    let mut facts = vec![
        vec!["health".to_owned(), health],
        vec!["state".to_owned(), format!("{}, {access}", array.state)],
    ];
    facts.extend(array.uuid.iter().map(|uuid| vec!["uuid".to_owned(), uuid.clone()]));
    facts.push(vec!["server".to_owned(), format!("{} (pid {})", printable(&server.server), server.pid)]);
    facts.extend(array.exports.iter().map(|export| vec!["export".to_owned(), printable(export)]));
    facts.extend(array.notes.iter().map(|note| vec!["note".to_owned(), printable(note)]));
    text.push_str(&table("  ", &facts));

    let mut rows = vec![["slot", "state", "errors", "member"].map(str::to_owned).to_vec()];
    rows.extend(array.members.iter().map(|member| member_row(member, screen)));
    text.push_str(&table("  ", &rows));
    let c = &array.counters;
    text.push_str(&format!(
        "  since start: {} reads ({}), {} writes ({}), {} flushes\n",
        c.reads,
        units.show(c.read_bytes),
        c.writes,
        units.show(c.write_bytes),
        c.flushes,
    ));
    text
}

fn member_row(member: &MemberReport, screen: Screen) -> Vec<String> {
    let state = match (member.state.as_str(), member.valid_below_bytes) {
        ("rebuilding", Some(bytes)) => format!("rebuilding, current below {}", screen.units.show(bytes)),
        (state, _) => state.replace('_', " "),
    };
    let state = match member.state.as_str() {
        "in_sync" => state,
        "faulty" => screen.style.red(&state),
        _ => screen.style.yellow(&state),
    };
    let name = member.member.as_deref().map_or("-".to_owned(), printable);
    vec![member.slot.to_string(), state, member.read_errors.to_string(), name]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_array_counts_and_silence_is_not_good() {
        assert_eq!(check_status([0, 0].into_iter(), false), 0);
        assert_eq!(check_status([0, 1].into_iter(), false), 1);
        assert_eq!(check_status([2, 1].into_iter(), false), 2);
        assert_eq!(check_status([].into_iter(), false), 4);
        assert_eq!(check_status([0].into_iter(), true), 4);
    }
}
