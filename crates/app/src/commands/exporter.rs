//! `wattle exporter`, and the metrics of `wattle serve`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use wattle_control::{Code, Problem};
use wattle_operate::alerts;
use wattle_operate::http::tls::TlsFiles;
use wattle_operate::http::{HttpAddress, HttpServer, HttpSettings, RunningHttp, Token};
use wattle_operate::metrics::{AlertFigures, MetricsSite, ReportSource, metrics_server};
use wattle_operate::smart::{DriveWatch, SmartSettings};
use wattle_rt::{Core, RuntimeConfig};

use crate::cli::{ExporterArgs, HttpArgs};
use crate::environment::{alerts_file, runtime_dir, state_dir};
use crate::members;
use crate::output;
use crate::output::text::printable;

/// Serves until a signal.
///
/// # Errors
/// It cannot listen there, or not like that.
pub fn run(args: &ExporterArgs) -> Result<ExitCode, Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    dir.check()?;
    wattle_rt::stand_back();
    let site = MetricsSite::new(ReportSource::all(dir)).with_alerts(alert_figures);
    let site = match drives(&args.smartctl) {
        Some(drives) => site.with_drives(drives),
        None => site,
    };
    let server = metrics_server(settings(&args.listen, &args.security)?, site)?;
    let ended = wattle_rt::run(RuntimeConfig::default(), async |core| until_signal(&core, server).await);
    ended.map_err(|error| {
        let next = "`ulimit -a` shows the limits of this process";
        Problem::new(Code::BackendUnavailable, error.to_string(), "no core can be started", next)
    })?
}

async fn until_signal(core: &Core, server: HttpServer) -> Result<ExitCode, Problem> {
    let is_ended = members::heed_signals(core).await;
    let running = announce(server)?;
    let signal = if is_ended { Ok(()) } else { core.terminated().await.map(drop) };
    running.stop();
    signal.map(|()| ExitCode::SUCCESS).map_err(|error| {
        let why = "the operating system refused";
        Problem::new(Code::ServerFailed, format!("waiting for signals: {error}"), why, "see its log")
    })
}

/// Starts a server and says where.
///
/// # Errors
/// The system gives no thread.
pub fn announce(server: HttpServer) -> Result<RunningHttp, Problem> {
    server.notes().iter().for_each(|note| output::note(&printable(note)));
    let running = server.start()?;
    output::note(&printable(&format!("metrics at {}", shown(running.address()))));
    Ok(running)
}

fn shown(address: &HttpAddress) -> String {
    match address {
        HttpAddress::Unix(path) => format!("unix:{} (/metrics)", path.display()),
        HttpAddress::Tcp(address) => format!("http://{address}/metrics"),
    }
}

/// The metrics of the server of one control socket, which listen but do not answer yet.
///
/// # Errors
/// As [`run`].
pub fn of_server(address: &HttpAddress, security: &HttpArgs, socket: PathBuf) -> Result<HttpServer, Problem> {
    let site = MetricsSite::new(ReportSource::one(socket)).with_alerts(alert_figures);
    let site = match drives(Path::new("smartctl")) {
        Some(drives) => site.with_drives(drives),
        None => site,
    };
    metrics_server(settings(address, security)?, site)
}

/// Whether alerts would reach an operator: by the settings and state of `wattle alerts`.
fn alert_figures() -> AlertFigures {
    let state_dir = state_dir(None);
    let Some(state_dir) = state_dir.dir() else { return AlertFigures::default() };
    let summary = alerts::summary(&alerts_file(None), Path::new(state_dir));
    AlertFigures { configured: summary.configured, failed: summary.failed }
}

/// What asks drives about themselves; that smartctl is missing is said once.
pub fn drives(smartctl: &Path) -> Option<Arc<DriveWatch>> {
    if smartctl == Path::new("none") {
        return None;
    }
    let settings = SmartSettings { smartctl: smartctl.to_owned(), ..SmartSettings::default() };
    let tell = |problem: &Problem| {
        let line = format!("{}: {} (said once); next: {}", problem.what, problem.why, problem.next);
        output::note(&printable(&line));
    };
    Some(Arc::new(DriveWatch::new(settings, tell)))
}

/// What was asked for of a server of HTTP.
///
/// # Errors
/// The token's file cannot be used.
pub fn settings(address: &HttpAddress, args: &HttpArgs) -> Result<HttpSettings, Problem> {
    let files = args.tls_cert.clone().zip(args.tls_key.clone());
    let tls = files.map(|(cert, key)| TlsFiles {
        cert,
        key,
        client_ca: args.tls_client_ca.clone(),
        client_crl: None,
    });
    let token = args.token_file.as_deref().map(Token::read).transpose()?;
    Ok(HttpSettings {
        tls,
        token_on_reads: token.is_some(),
        token,
        insecure: args.insecure,
        names: args.hosts.clone(),
        ..HttpSettings::at(address.clone())
    })
}
