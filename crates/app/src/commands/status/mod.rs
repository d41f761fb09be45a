//! `wattle status`: the arrays being served, whether they are well, and what they are doing.

mod mdstat;
pub mod text;

use std::process::ExitCode;

use serde::Serialize;
use wattle_control::Problem;

use crate::cli::StatusArgs;
use crate::control_socket::RuntimeDir;
use crate::control_socket::client::Servers;
use crate::control_socket::report::{ArrayReport, ServerReport, VolumeReport};
use crate::output::{self, ErrorReport, SCHEMA_VERSION, Screen};

/// `--check`: nobody can tell. mdadm's number.
const CANNOT_TELL: u8 = 4;

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    arrays: Vec<ServedArray<'a>>,
    /// What lies on arrays and drives and is offered in their stead.
    volumes: Vec<ServedVolume<'a>>,
    errors: Vec<ErrorReport>,
}

#[derive(Serialize)]
struct ServedArray<'a> {
    #[serde(flatten)]
    array: &'a ArrayReport,
    server: &'a str,
    pid: u32,
}

#[derive(Serialize)]
struct ServedVolume<'a> {
    #[serde(flatten)]
    volume: &'a VolumeReport,
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
    let volumes = || -> Vec<_> {
        let servers = servers.answered.iter().filter(|_| args.name.is_none());
        servers.flat_map(|(_, server)| server.volumes.iter().map(move |volume| (server, volume))).collect()
    };
    let volumes = volumes();
    if args.json.json {
        let arrays = shown.iter().map(|(server, array)| served(server, array)).collect();
        let errors = silent.iter().map(ErrorReport::from).collect();
        let volumes = volumes.iter().map(|(server, volume)| ServedVolume {
            volume,
            server: &server.server,
            pid: server.pid,
        });
        let volumes = volumes.collect();
        output::print_json(&Report { schema_version: SCHEMA_VERSION, arrays, volumes, errors })?;
    } else if args.mdstat {
        output::print(&mdstat::render(shown.iter().map(|(_, array)| *array)))?;
    } else {
        let arrays = shown.iter().map(|(server, array)| text::render(server, array, screen));
        let volumes = volumes.iter().map(|(_, volume)| text::volume(volume, screen));
        output::print(&arrays.chain(volumes).collect::<Vec<_>>().join("\n"))?;
    }
    let mut failed = None;
    for problem in silent {
        failed = Some(output::report(problem, screen.style_err));
    }
    if shown.is_empty() && volumes.is_empty() && failed.is_none() {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::control_socket::report::{Counters, Health, MemberReport, RequestsReport};

    /// A whole array on members of these names.
    pub(crate) fn array(name: &str, level: &str, members: &[&str]) -> ArrayReport {
        let member = |(slot, name): (u16, &&str)| MemberReport {
            slot,
            member: Some((*name).to_owned()),
            state: "in_sync".to_owned(),
            ..MemberReport::default()
        };
        ArrayReport {
            name: name.to_owned(),
            uuid: Some("d4456855:878c1153:a132709f:86ddf6a8".to_owned()),
            level: level.to_owned(),
            layout: Some("left-symmetric".to_owned()),
            chunk_bytes: Some(64 << 10),
            size_bytes: 21 << 20,
            io_min_bytes: 0,
            io_opt_bytes: 0,
            health: Health::Good,
            slots: format!("[{}]", "U".repeat(members.len())),
            state: "clean".to_owned(),
            synced: true,
            read_only: false,
            exports: Vec::new(),
            notes: Vec::new(),
            degraded: 0,
            members: (0..).zip(members).map(member).collect(),
            replacements: Vec::new(),
            spares: Vec::new(),
            metadata: Some("1.2".to_owned()),
            layout_code: Some(2),
            member_bytes: Some(7 << 20),
            consistency: Some("bitmap".to_owned()),
            bitmap: None,
            sync: None,
            paused: false,
            scrubs: Vec::new(),
            settings: std::collections::BTreeMap::new(),
            events: Vec::new(),
            counters: Counters::default(),
            requests: RequestsReport::default(),
            cache: None,
            tuning: Vec::new(),
        }
    }

    #[test]
    fn the_worst_array_counts_and_silence_is_not_good() {
        assert_eq!(check_status([0, 0].into_iter(), false), 0);
        assert_eq!(check_status([0, 1].into_iter(), false), 1);
        assert_eq!(check_status([2, 1].into_iter(), false), 2);
        assert_eq!(check_status([].into_iter(), false), 4);
        assert_eq!(check_status([0].into_iter(), true), 4);
    }
}
