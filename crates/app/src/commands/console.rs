//! `wattle console`: the page of what is served.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use wattle_advise::audit::Unchecked;
use wattle_control::members::MemberAccess;
use wattle_control::{Code, Problem};
use wattle_operate::alerts;
use wattle_operate::console::view::{AlertsView, DriveView};
use wattle_operate::console::{Console, ConsoleDocuments};
use wattle_operate::http::{HttpAddress, HttpServer, HttpSettings, Token};
use wattle_operate::scrub_files::ScrubFiles;
use wattle_operate::smart::{DriveHealth, DriveWatch};
use wattle_rt::BackendChoice;
use wattle_server::protocol::report::{ArrayReport, ScrubReport, ServerReport};
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::Servers;
use wattle_server::time::rfc3339;

use super::{audit, exporter, scrub, status, why};
use crate::cli::{ConsoleArgs, Engine};
use crate::environment::{alerts_file, runtime_dir, state_dir};
use crate::{located, members, output};

/// The documents of the other commands.
struct Documents {
    access: MemberAccess,
    dir: RuntimeDir,
    drives: Option<Arc<DriveWatch>>,
}

impl Documents {
    /// Where the members of an array are. All of them, or an array with a member that cannot be
    /// looked at would count as one that lacks it.
    ///
    /// # Errors
    /// Why one cannot be looked at.
    fn members_of(&self, pid: u32, array: &ArrayReport) -> Result<Vec<String>, String> {
        let names = array.members.iter().filter_map(|member| member.member.as_deref());
        let looked = names.map(|name| {
            let there = located::on_this_machine(pid, name)?;
            match self.access.look(&there) {
                Ok(_) => Ok(there),
                Err(error) => Err(Problem::from(error).what),
            }
        });
        let looked: Result<_, String> = looked.collect();
        looked.map_err(|why| format!("not all of its members can be looked at by another process: {why}"))
    }
}

impl ConsoleDocuments for Documents {
    fn status(&self) -> Value {
        status::document(&self.dir)
    }

    fn why(&self, array: Option<&str>) -> Result<Value, Problem> {
        why::document(&self.dir, array)
    }

    /// Of this machine, and of the members of what is served.
    fn audit(&self) -> Result<Value, Problem> {
        let servers = Servers::ask(&self.dir);
        let mut names: Vec<String> = Vec::new();
        let mut unchecked = Vec::new();
        for server in servers.reports() {
            for array in &server.arrays {
                match self.members_of(server.pid, array) {
                    Ok(members) => names.extend(members),
                    Err(why) => unchecked.push(Unchecked { what: array.name.clone(), why }),
                }
            }
        }
        names.sort();
        names.dedup();
        audit::document(&self.access, &servers, &names, unchecked)
    }

    fn files(&self, server: &ServerReport, array: &ArrayReport, run: &ScrubReport) -> ScrubFiles {
        scrub::files::of_run(&self.access, Some(server.pid), array, run)
    }

    fn drives(&self, members: &[String]) -> BTreeMap<String, DriveView> {
        let Some(drives) = &self.drives else { return BTreeMap::new() };
        let known = drives.by_member(members.iter().map(String::as_str));
        known.into_iter().map(|(member, health)| (member, drive_view(health))).collect()
    }

    fn alerts(&self) -> AlertsView {
        let state_dir = state_dir(None);
        let Some(state_dir) = state_dir.dir() else { return AlertsView::default() };
        let summary = alerts::summary(&alerts_file(None), Path::new(state_dir));
        AlertsView {
            is_known: true,
            configured: summary.configured,
            watched: summary.watched,
            last_delivered: summary.last_delivered_secs.and_then(rfc3339),
            owed: summary.owed,
        }
    }
}

fn drive_view(health: DriveHealth) -> DriveView {
    let verdict = health.is_healthy.map(|is_healthy| if is_healthy { "passed" } else { "failing" });
    DriveView {
        model: health.model,
        serial: health.serial,
        smart: verdict.map(str::to_owned),
        is_failing: health.is_healthy == Some(false),
        celsius: health.temperature_celsius,
    }
}

/// # Errors
/// It cannot listen, or the token cannot be used.
pub fn run(access: &MemberAccess, args: &ConsoleArgs) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let address: HttpAddress = args.listen.parse()?;
    let token = args.token_file.as_deref().map(Token::read).transpose()?;
    if !address.is_local() {
        return Err(Problem::new(
            Code::ListenUnprotected,
            format!("{address} can be reached from other machines"),
            "the page speaks no TLS, so what it shows and the token could be read on the way",
            "listen at 127.0.0.1 and forward the port: `ssh -L 8288:127.0.0.1:8288 HOST`",
        ));
    }
    wattle_rt::stand_back();
    let drives = exporter::drives(Path::new("smartctl"));
    let documents = Documents { access: access.clone(), dir: dir.clone(), drives };
    let console = Console::start(dir, Arc::new(documents), token.is_some())?;
    let settings = HttpSettings {
        token,
        names: args.hosts.clone(),
        limits: Console::limits(),
        ..HttpSettings::at(address)
    };
    let engine = Engine::small(BackendChoice::Syscall);
    let server = HttpServer::listen(settings, console.site())?;
    members::run(&engine, 1, async |core| {
        let is_ended = members::heed_signals(&core).await;
        let running = server.start()?;
        output::ready(&[match running.address() {
            HttpAddress::Tcp(address) => format!("http://{address}/"),
            unix => unix.to_string(),
        }]);
        let ended = if is_ended { Ok(()) } else { core.terminated().await.map(drop) };
        // Viewers' replies end first: the server waits for what is being answered.
        drop(console);
        running.stop();
        ended.map_err(|error| {
            Problem::new(
                Code::ConsoleFailed,
                format!("signals cannot be waited for: {error}"),
                "without them there is no orderly end",
                "the system's limits say why",
            )
        })
    })
}
