//! `wattle console`: the page of what is served.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use wattle_control::members::MemberAccess;
use wattle_control::{Code, Problem};
use wattle_operate::alerts;
use wattle_operate::console::view::{AlertsView, DriveView};
use wattle_operate::console::{Console, ConsoleDocuments};
use wattle_operate::http::{HttpAddress, HttpServer, HttpSettings, Token};
use wattle_operate::scrub_files::ScrubFiles;
use wattle_operate::smart::{DriveHealth, DriveWatch};
use wattle_rt::BackendChoice;
use wattle_server::protocol::report::{ArrayReport, ScrubReport};
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::Servers;
use wattle_server::time::rfc3339;

use super::{audit, exporter, scrub, status, why};
use crate::cli::{ConsoleArgs, Engine};
use crate::environment::{alerts_file, runtime_dir, state_dir};
use crate::{members, output};

/// The documents of the other commands.
struct Documents {
    access: MemberAccess,
    dir: RuntimeDir,
    drives: Option<Arc<DriveWatch>>,
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
        let members = servers.arrays().flat_map(|(_, array)| &array.members);
        // What is made up or lies across a network is no member that another process can look at.
        let local = members.filter_map(|member| member.member.clone()).filter(|name| name.starts_with('/'));
        audit::document(&self.access, &local.collect::<Vec<_>>())
    }

    fn files(&self, array: &ArrayReport, run: &ScrubReport) -> ScrubFiles {
        scrub::files::of_run(&self.access, array, run)
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
