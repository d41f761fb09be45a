//! `wattle status`: the arrays being served, whether they are well, and what they are doing.

mod mdstat;
pub mod scrubs;
mod smart;
pub mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use wattle_control::{Problem, shell_word};
use wattle_server::protocol::ErrorReport;
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::protocol::report::{ArrayReport, ServerReport, VolumeQosReport, VolumeReport};
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::{NamedServed, Servers};

use crate::cli::StatusArgs;
use crate::environment::runtime_dir;
use crate::output::{self, Screen};
use smart::{AskedDrives, MemberDrive};

/// `--check`: it cannot be told. mdadm's number.
const CANNOT_TELL: u8 = 4;

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    arrays: Vec<ServedArray<'a>>,
    /// What lies on arrays and drives and is offered in their stead.
    volumes: Vec<ServedVolume<'a>>,
    /// What limits and shares do to those of which any are set, or that waited for others.
    qos: Vec<ServedQos<'a>>,
    errors: Vec<ErrorReport>,
    /// Control sockets of servers that ended without being stopped.
    died: Vec<String>,
}

#[derive(Serialize)]
struct ServedArray<'a> {
    #[serde(flatten)]
    array: &'a ArrayReport,
    server: &'a str,
    pid: u32,
    /// With `--smart`: what the drives below its members say.
    #[serde(skip_serializing_if = "Option::is_none")]
    smart: Option<Vec<MemberDrive<'a>>>,
}

#[derive(Serialize)]
struct ServedVolume<'a> {
    #[serde(flatten)]
    volume: &'a VolumeReport,
    server: &'a str,
    pid: u32,
}

#[derive(Serialize)]
struct ServedQos<'a> {
    #[serde(flatten)]
    qos: &'a VolumeQosReport,
    server: &'a str,
}

/// What limits and shares do to what is shown: an array as a volume, or what lies on arrays.
fn served_qos<'a>(
    arrays: &[(&'a ServerReport, &'a ArrayReport)],
    volumes: &[(&'a ServerReport, &'a VolumeReport)],
) -> Vec<ServedQos<'a>> {
    let names = arrays.iter().map(|(server, array)| (*server, array.name.as_str()));
    let names = names.chain(volumes.iter().map(|(server, volume)| (*server, volume.name.as_str())));
    let mut all: Vec<ServedQos<'_>> = Vec::new();
    for (server, name) in names {
        let found = server.qos.iter().find(|qos| qos.volume == name);
        if let Some(qos) = found.filter(|qos| !all.iter().any(|other| std::ptr::eq(other.qos, *qos))) {
            all.push(ServedQos { qos, server: &server.server });
        }
    }
    all
}

/// What is shown of a server.
struct Shown<'a> {
    server: &'a ServerReport,
    arrays: Vec<&'a ArrayReport>,
    volumes: Vec<&'a VolumeReport>,
}

impl<'a> Shown<'a> {
    fn all(server: &'a ServerReport) -> Self {
        Self { server, arrays: server.arrays.iter().collect(), volumes: server.volumes.iter().collect() }
    }
}

impl<'a> From<NamedServed<'a>> for Shown<'a> {
    fn from(meant: NamedServed<'a>) -> Self {
        Self { server: meant.server, arrays: meant.arrays, volumes: meant.volumes }
    }
}

/// # Errors
/// What was asked for is not being served, or a server does not answer. With `--check` that is a
/// status and no error.
pub fn run(args: &StatusArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let shown = match &args.name {
        None => Ok(servers.reports().map(Shown::all).collect()),
        Some(name) => servers.meant(&dir, name).map(|meant| vec![Shown::from(meant)]),
    };
    let shown = match shown {
        Ok(shown) => shown,
        Err(problem) if args.check => {
            output::report_failure(&problem, screen.style_err, args.json.json);
            return Ok(ExitCode::from(CANNOT_TELL));
        }
        Err(problem) => return Err(problem),
    };
    // With a name, what other servers do is of no concern.
    let (silent, dead) = match args.name {
        Some(_) => (&[][..], &[][..]),
        None => (&servers.silent[..], &servers.dead[..]),
    };
    let volumes: Vec<_> =
        shown.iter().flat_map(|one| one.volumes.iter().map(|volume| (one.server, *volume))).collect();
    let shown: Vec<_> =
        shown.iter().flat_map(|one| one.arrays.iter().map(|array| (one.server, *array))).collect();
    let drives = args.smart.then(|| AskedDrives::below(shown.iter().map(|(_, array)| *array)));
    let printed = if args.json.json {
        output::print_json(&report(&shown, &volumes, silent, dead, drives.as_ref()))
    } else if args.mdstat {
        output::print(&mdstat::render(shown.iter().map(|(_, array)| *array)))
    } else {
        let asked = |array| drives.iter().flat_map(|drives| drives.lines(array, screen)).collect::<Vec<_>>();
        let arrays = shown.iter().map(|(server, array)| text::render(server, array, &asked(array), screen));
        let volumes = volumes.iter().map(|(server, volume)| text::volume(server, volume, screen));
        output::print_fitted(&arrays.chain(volumes).collect::<Vec<_>>().join("\n"))
    };
    match printed {
        // The status is of the arrays, whatever becomes of the text.
        Err(problem) if args.check => {
            output::report(&problem, screen.style_err);
        }
        printed => printed?,
    }
    let mut failed = None;
    for problem in silent {
        failed = Some(output::report(problem, screen.style_err));
    }
    for socket in dead {
        let name = socket.file_stem().unwrap_or_default().to_string_lossy();
        output::note(&format!(
            "the server {name} ended without being stopped: it was killed, or it crashed; serve its members again, which \
             recovers, or have it forgotten: `wattle stop {}`",
            shell_word(&name)
        ));
    }
    if shown.is_empty() && volumes.is_empty() && dead.is_empty() && failed.is_none() {
        output::note(&format!("nothing is being served (looked in {})", dir.path().display()));
    }
    match (args.check, failed) {
        (true, failed) => {
            let unknown = failed.is_some() || !dead.is_empty();
            // Volumes that lie on no array have no redundancy that could be missing.
            let of_volumes = volumes.iter().map(|_| 0);
            let all = shown.iter().map(|(_, array)| array.check_status()).chain(of_volumes);
            Ok(ExitCode::from(check_status(all, unknown)))
        }
        (false, Some(failed)) => Ok(failed),
        (false, None) => Ok(ExitCode::SUCCESS),
    }
}

/// What `--json` shows of everything that is served, as a value.
pub fn document(dir: &RuntimeDir) -> serde_json::Value {
    let servers = Servers::ask(dir);
    let arrays = servers.reports().flat_map(|server| server.arrays.iter().map(move |array| (server, array)));
    let volumes =
        servers.reports().flat_map(|server| server.volumes.iter().map(move |volume| (server, volume)));
    let (arrays, volumes): (Vec<_>, Vec<_>) = (arrays.collect(), volumes.collect());
    serde_json::to_value(report(&arrays, &volumes, &servers.silent, &servers.dead, None)).unwrap_or_default()
}

fn report<'a>(
    arrays: &[(&'a ServerReport, &'a ArrayReport)],
    volumes: &[(&'a ServerReport, &'a VolumeReport)],
    silent: &[Problem],
    dead: &[PathBuf],
    drives: Option<&'a AskedDrives>,
) -> Report<'a> {
    let volume = |(server, volume): &(&'a ServerReport, &'a VolumeReport)| ServedVolume {
        volume,
        server: &server.server,
        pid: server.pid,
    };
    Report {
        schema_version: SCHEMA_VERSION,
        arrays: arrays.iter().map(|(server, array)| served(server, array, drives)).collect(),
        volumes: volumes.iter().map(volume).collect(),
        qos: served_qos(arrays, volumes),
        errors: silent.iter().map(ErrorReport::from).collect(),
        died: dead.iter().map(|socket| socket.display().to_string()).collect(),
    }
}

/// The worst of what is served counts; a server that does not answer may hide a worse one.
fn check_status(served: impl Iterator<Item = u8>, silent: bool) -> u8 {
    match served.max() {
        Some(worst) if !silent => worst,
        _ => CANNOT_TELL,
    }
}

fn served<'a>(
    server: &'a ServerReport,
    array: &'a ArrayReport,
    drives: Option<&'a AskedDrives>,
) -> ServedArray<'a> {
    let smart = drives.map(|drives| drives.report(array));
    ServedArray { array, server: &server.server, pid: server.pid, smart }
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
