//! `wattle serve`: runs arrays and offers them to clients until it is told to stop.
//!
//! Order: find the arrays, claim their members, listen everywhere, start; so that what can go wrong
//! goes wrong before a core runs, and nothing is written to a member before the first client
//! writes. Volumes that lie on arrays are claimed with what is below them when that starts. At the
//! end clients are drained, then the arrays are flushed and recorded clean, then the command that
//! asked for the stop is told.

mod find;
mod pidfile;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tempfile::TempDir;
use wattle_control::members::MemberAccess;

use wattle_control::start::ClaimedMember;
use wattle_control::undo::UndoSite;
use wattle_control::{Code, Problem, Stack};
use wattle_engine::Volume;
use wattle_export::nvme::{NvmeSecrets, NvmeSubsystem, ReservationStore};
use wattle_export::{Address, NbdAddress};
use wattle_operate::http::HttpServer;
use wattle_rt::{Child, Core, IoError, Listener};
use wattle_rt::{Either, race};
use wattle_server::array::Served;
use wattle_server::exports::{
    Endpoint, ExportSettings, NbdSecurity, Offered, RunningExport, of_this_process, prepare,
};
use wattle_server::mkfs::mkfs as mkfs_commands;
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::reservations::ReservationFiles;
use wattle_server::saving::{ServerSaving, ServerStart};
use wattle_server::serving::Serving;
use wattle_server::serving::layers::{ArrayStarter, OpenedVolume};
use wattle_server::settings;
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::listen::ControlServer;
use wattle_server::tls_problem;
use wattle_tls::{ServerTls, TlsClients};
use zeroize::Zeroizing;

use crate::cli::{NbdArgs, ServeArgs};
use crate::commands::exporter;
use crate::environment::{MANAGER, RUNTIME_DIR, machine, runtime_dir, state_dir, typed};
use crate::notify::Notifier;
use crate::output::{self, Screen};
use crate::{members, notify};
use find::{Found, find};

/// Executors unless asked for more: beyond that, drives are the limit.
const CORES_MAX: usize = 8;

/// The command of `--run` has so long to end when it is asked to.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(10);

/// Signals within this time are one request to end: `timeout` and service managers send one to the
/// process and another to its group.
const ONE_REQUEST_TIME_MAX: Duration = Duration::from_secs(1);

/// Is called once clients can connect.
pub type OnceReady = dyn FnOnce(&Core, &Rc<Serving>);

/// What goes on beside serving.
pub struct Beside {
    /// What a service manager is told.
    pub notifier: Notifier,
    /// What begins then.
    pub once_ready: Box<OnceReady>,
}

/// # Errors
/// No array can be served as asked, or one could not be recorded clean in the end. The exit status
/// of `--run` is that of the command.
pub fn run(access: &MemberAccess, args: &ServeArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let beside = Beside { notifier: Notifier::from_environment(), once_ready: Box::new(|_, _| {}) };
    run_beside(access, args, screen, beside)
}

/// As [`run`], for what begins a server in another way.
///
/// # Errors
/// As [`run`].
pub fn run_beside(
    access: &MemberAccess,
    args: &ServeArgs,
    screen: Screen,
    beside: Beside,
) -> Result<ExitCode, Problem> {
    settings::parse_all(&args.settings())?;
    pidfile::check(args.pidfile.as_deref())?;
    let look = || members::look_to_serve(access, &args.members, &args.force, args.degraded);
    let found = patiently(|| find(access, args, look))?;
    let server = args.name.clone().unwrap_or_else(|| found.server_name());
    let (dir, private) = runtime_place(args)?;
    let control = patiently(|| listen_for_commands(&dir, &server))?;
    pidfile::forget(args.pidfile.as_deref());
    let endpoints = listen_for_clients(args, &dir, &server)?;
    let metrics = listen_for_metrics(args, &dir, &server, control.is_some())?;
    // Without the privilege it cannot be had, and is not needed unless a file system is mounted on
    // an export of this machine.
    let _ = wattle_rt::set_io_flusher();
    let engine = &args.engine;
    let _log = output::LogThread::start();
    let node = access.memory_node(&args.members);
    let status = members::run_near(node, engine, CORES_MAX, async |core| {
        let setup = Setup { server, found, dir, control, endpoints, metrics, beside };
        serve(&core, access, args, setup, screen).await
    });
    drop(private);
    status
}

/// Where the server's sockets go, and what takes the directory away at the end: where none was
/// asked for and the usual one is not this user's, a private one that lasts as long as the command
/// of `--run`.
fn runtime_place(args: &ServeArgs) -> Result<(RuntimeDir, Option<TempDir>), Problem> {
    let usual = runtime_dir(args.runtime.runtime_dir.as_deref());
    if usual.asked_for || args.run.is_none() || usual.make().is_ok() && usual.is_ours() {
        return Ok((usual, None));
    }
    let owner_only = std::fs::Permissions::from_mode(0o700);
    let private = tempfile::Builder::new().prefix("wattle-").permissions(owner_only).tempdir();
    let private = private.map_err(|error| {
        Problem::new(
            Code::ListenFailed,
            format!("no temporary directory can be made: {error}"),
            format!("the server's sockets go there, since {} cannot be used", usual.path().display()),
            "name a directory of yours: --runtime-dir DIR, or TMPDIR",
        )
    })?;
    Ok((RuntimeDir::new(private.path().to_owned(), true), Some(private)))
}

/// Everything that had to be there before the first core started.
struct Setup {
    server: String,
    found: Found,
    /// Where its sockets are.
    dir: RuntimeDir,
    control: Option<Listener>,
    endpoints: Vec<Endpoint>,
    metrics: Option<HttpServer>,
    beside: Beside,
}

/// What was started.
struct Started {
    served: Vec<Rc<Served>>,
    offered: Vec<Offered>,
    /// These are all volumes that there are.
    all: bool,
    /// What lies on arrays and drives.
    stack: Option<Stack>,
}

/// Tries again for a little while what a server that was just killed may still hold: the system
/// takes a moment to give back its sockets, and a service manager starts it again at once.
fn patiently<T>(try_once: impl Fn() -> Result<T, Problem>) -> Result<T, Problem> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(100);
    // `Changed`: it went while its members were looked at.
    let held = |problem: &Problem| problem.is_transient || problem.code == Code::Changed;
    for _ in 1..TRIES {
        match try_once() {
            Err(problem) if held(&problem) => pause(PAUSE),
            result => return result,
        }
    }
    try_once()
}

#[allow(clippy::disallowed_methods, reason = "there is no core yet to await on")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// `None`, with a note, where there is no runtime directory and none was asked for: serving
/// matters more.
fn listen_for_commands(dir: &RuntimeDir, server: &str) -> Result<Option<Listener>, Problem> {
    match dir.make() {
        Err(problem) if dir.asked_for => return Err(problem),
        Err(problem) => {
            output::note(&format!("{}: status, fail and stop will not find this server", problem.what));
            return Ok(None);
        }
        Ok(()) => {}
    }
    match ControlServer::listen(&dir.control_socket(server)) {
        // The directory is another user's: the same as none.
        Err(problem) if !dir.asked_for && !dir.is_ours() => {
            output::note(&format!("{}: status, fail and stop will not find this server", problem.what));
            Ok(None)
        }
        listening => listening.map(Some),
    }
}

fn listen_for_clients(args: &ServeArgs, dir: &RuntimeDir, server: &str) -> Result<Vec<Endpoint>, Problem> {
    let security = nbd_security(args)?;
    // One subsystem, whatever number of paths lead to it; the same after a restart.
    let identity = format!("{}/{server}", machine());
    let kept = state_dir(args.state_dir.as_deref()).dir().map(|dir| {
        let files: Arc<dyn ReservationStore> = Arc::new(ReservationFiles::new(dir, output::note));
        files
    });
    let subsystem = NvmeSubsystem::keeping(&identity, nvme_secrets(args)?, kept);
    let settings = ExportSettings {
        read_only: args.read_only,
        security: &security,
        subsystem: &subsystem,
        runtime_dir: dir.path(),
        log: &output::log(),
    };
    let prepare = |address| patiently(|| prepare(address, &settings));
    if !args.exports.is_empty() {
        return args.exports.iter().map(prepare).collect();
    }
    dir.make()?;
    if !dir.is_ours() {
        return Err(Problem::new(
            Code::ListenFailed,
            format!("the runtime directory {} belongs to another user", dir.path().display()),
            "without --export, clients connect to a socket there",
            "name a directory of yours: --runtime-dir DIR, or a socket: --export nbd=unix:PATH",
        ));
    }
    let default = Address::Nbd(NbdAddress::Unix(dir.nbd_socket(server)));
    Ok(vec![prepare(&default)?])
}

/// Which NVMe hosts may connect, if not all.
fn nvme_secrets(args: &ServeArgs) -> Result<Option<NvmeSecrets>, Problem> {
    let Some(path) = &args.nvme_secrets else { return Ok(None) };
    let usage = |why: String, next: &str| {
        Problem::new(Code::Usage, format!("--nvme-secrets {}", path.display()), why, next)
    };
    if !args.exports.iter().any(|export| matches!(export, Address::NvmeTcp(_))) {
        let why = "nothing is exported to NVMe hosts".to_owned();
        return Err(usage(why, "export nvme-tcp=HOST:PORT, or leave --nvme-secrets out"));
    }
    let unreadable =
        |error: std::io::Error| usage(error.to_string(), "name a file of hosts and their secrets");
    let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!("others than its owner can use it (mode {mode:04o})");
        return Err(usage(why, "chmod 600 FILE, and make new secrets if others could read it"));
    }
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(unreadable)?);
    NvmeSecrets::parse(&text).map(Some).map_err(|error| {
        usage(
            error.to_string(),
            "each line is `HOSTNQN SECRET [CONTROLLER-SECRET]`; `nvme gen-dhchap-key` makes secrets",
        )
    })
}

/// How NBD over TCP is protected.
fn nbd_security(args: &ServeArgs) -> Result<NbdSecurity, Problem> {
    let NbdArgs { tls_certificates, tls_any_client } = &args.nbd;
    let insecure = args.http.insecure;
    let Some(dir) = tls_certificates else { return Ok(NbdSecurity { tls: None, insecure }) };
    if !args.exports.iter().any(|export| matches!(export, Address::Nbd(NbdAddress::Tcp { .. }))) {
        return Err(Problem::new(
            Code::Usage,
            format!("--tls-certificates {}, and nothing that speaks TLS", dir.display()),
            "TLS is for NBD over TCP; a Unix socket is guarded by its permissions",
            "export nbd=tcp:HOST:PORT, or leave --tls-certificates out",
        ));
    }
    let clients = if *tls_any_client { TlsClients::Any } else { TlsClients::Certified };
    let tls = ServerTls::open(dir, clients).map_err(|error| tls_problem(&error))?;
    Ok(NbdSecurity { tls: Some(Arc::new(tls)), insecure })
}

/// Metrics come from the control socket, as everything else that is told of arrays.
fn listen_for_metrics(
    args: &ServeArgs,
    dir: &RuntimeDir,
    server: &str,
    has_control: bool,
) -> Result<Option<HttpServer>, Problem> {
    let Some(address) = &args.metrics else { return Ok(None) };
    if !has_control {
        return Err(Problem::new(
            Code::ListenFailed,
            "there is no control socket to take metrics from",
            format!("the runtime directory {} cannot be used", dir.path().display()),
            "name a directory of yours: --runtime-dir DIR, or WATTLE_RUNTIME_DIR",
        ));
    }
    exporter::of_server(address, &args.http, dir.control_socket(server)).map(Some)
}

/// Takes as many descriptors as the system lets it have, up to what a service gets: a shell's limit
/// is low for the sake of programs that know no better, and clients have one each.
fn allow_descriptors() {
    const WANTED: u64 = 65_536;
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(WANTED).min(WANTED);
    if limit.current.is_some_and(|current| current < most) {
        // Where it may not, it goes on with what there is.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    }
}

async fn serve(
    core: &Core,
    access: &MemberAccess,
    args: &ServeArgs,
    setup: Setup,
    screen: Screen,
) -> Result<ExitCode, Problem> {
    allow_descriptors();
    let Setup { server, found, dir, control, endpoints, metrics, beside } = setup;
    let saving = saving(args);
    let Started { served, offered, all, stack } =
        start(core, access, args, found, &endpoints, &saving).await?;
    let mut serving = Serving::new(core, access, server, served, (offered, all), stack, saving);
    let set = serving.set_at_start(&args.settings()).await;
    let serving = Rc::new(serving);
    serving.follow_repairs();
    obey_signals(core, &serving).await;
    let control = control.map(|listener| {
        let serving = serving.clone();
        ControlServer::start(core, listener, move |request| {
            let serving = serving.clone();
            Box::pin(async move { serving.answer(request).await })
        })
    });
    let child_env = child_env(core, &serving, &endpoints, &dir);
    let (mut exports, mut told) = (Vec::new(), None);
    // As soon as one export runs there are writes that were acknowledged: what fails from here on
    // ends the server as a request to end does.
    let begun = async {
        set?;
        start_exports(core, &serving, endpoints, &mut exports).await?;
        told = metrics.map(exporter::announce).transpose()?;
        announce(core, &serving, screen, args.json).await?;
        pidfile::write(args.pidfile.as_deref())
    };
    let begun = begun.await;
    let has_pidfile = begun.is_ok();
    let notifier = Rc::new(beside.notifier);
    let ended = match begun {
        Ok(()) => {
            notify::ready(core, &serving, &notifier).await;
            (beside.once_ready)(core, &serving);
            wait_for_end(core, &serving, args, child_env).await
        }
        Err(problem) => Err(problem),
    };
    notifier.stopping();
    let finished = match race(finish(core, &serving, exports), terminated_again(core)).await {
        Either::First(result) => result,
        Either::Second(()) => Err(interrupted()),
    };
    drop(told);
    serving.tell_end(&finished);
    if let Some(control) = control {
        control.drain(core).await;
    }
    if let Some(pidfile) = args.pidfile.as_ref().filter(|_| has_pidfile) {
        // Best effort: a stale pidfile names a process that is gone.
        let _ = std::fs::remove_file(pidfile);
    }
    match (finished, ended) {
        (Err(second), Err(first)) => {
            output::note(&format!("{}: {}", second.what, second.why));
            Err(first)
        }
        (finished, ended) => finished.and(ended),
    }
}

/// Where the server saves what it overwrites.
fn saving(args: &ServeArgs) -> ServerSaving {
    let start = ServerStart {
        saving: args.saving.clone().into(),
        state: state_dir(args.state_dir.as_deref()).dir().map(Path::to_owned),
        overlaid: args.overlay.dir.is_some(),
        forced: members::forced(&args.force),
        given: args.members.clone(),
        command: typed(),
    };
    ServerSaving::new(start, output::log())
}

async fn start(
    core: &Core,
    access: &MemberAccess,
    args: &ServeArgs,
    found: Found,
    endpoints: &[Endpoint],
    saving: &ServerSaving,
) -> Result<Started, Problem> {
    let state_dir = state_dir(args.state_dir.as_deref());
    let settings = args.settings();
    let mut starter = ArrayStarter::new(access, &state_dir, &settings, saving, &output::log());
    let ways = |name: &str, count| endpoints.iter().map(|endpoint| endpoint.way(name, count)).collect();
    let (served, stack) = match found {
        Found::Layers(layers) => {
            let look = || members::look_to_serve(access, &args.members, &args.force, args.degraded);
            let how = (members::policy(&args.force, args.degraded), args.read_only);
            let (stack, volumes) = layers.start(core, look, how, &mut starter).await?;
            let (count, logical) = (volumes.len(), stack.logical_volumes());
            let offer = |OpenedVolume { name, volume, identity, is_blank }| {
                let lv = logical.iter().find(|logical| logical.volume.is(&volume)).map(|logical| logical.id);
                Offered {
                    exports: ways(&name, count),
                    description: String::new(),
                    identity,
                    lv,
                    is_default: count == 1,
                    name,
                    volume,
                    is_blank,
                }
            };
            let offered = volumes.into_iter().map(offer).collect();
            return Ok(Started { served: starter.served, offered, all: layers.all, stack: Some(stack) });
        }
        Found::Claimed(arrays) => {
            let count = arrays.len();
            for (facts, claimed) in arrays {
                let exports = ways(&facts.name, count);
                let site = |_, member: &ClaimedMember| UndoSite::named(&member.name, &member.device);
                starter.keep(core, facts, claimed, site, exports).await?;
            }
            (starter.served, None)
        }
        Found::MadeUp(array) => {
            let (facts, exports) = (array.facts.clone(), ways(&array.facts.name, 1));
            let handle = array.start(core).await;
            let served = Served::of_made_up(core, facts, handle, exports, &output::log()).await;
            for (key, value) in settings::parse_all(&settings)? {
                served.set(key, value).await?;
            }
            (vec![served], None)
        }
    };
    let offer = |served: &Rc<Served>| Offered {
        name: served.facts.name.clone(),
        volume: served.handle.volume(),
        description: served.facts.uuid.iter().map(|uuid| format!("md array {uuid}")).collect(),
        exports: served.exports.clone(),
        identity: served.facts.uuid.clone().unwrap_or_else(|| of_this_process(&served.facts.name)),
        lv: None,
        is_default: false,
        is_blank: served.facts.is_blank,
    };
    Ok(Started { offered: served.iter().map(offer).collect(), all: true, served, stack })
}

/// From here on a signal is a request to end, not death: before, nothing was there that needed an
/// orderly end.
async fn obey_signals(core: &Core, serving: &Serving) {
    if members::heed_signals(core).await {
        serving.last_stop.set();
    }
}

async fn start_exports(
    core: &Core,
    serving: &Serving,
    endpoints: Vec<Endpoint>,
    running: &mut Vec<RunningExport>,
) -> Result<(), Problem> {
    for endpoint in endpoints {
        let (export, place) = endpoint.start(core, &serving.offered(), &output::log()).await?;
        serving.offers(place);
        running.push(export);
    }
    Ok(())
}

/// How file systems are made on a volume.
fn mkfs(core: &Core, offered: &Offered) -> Vec<String> {
    let opened = offered.volume.open(core);
    let of = |volume: Volume| mkfs_commands(volume.io_min_bytes().into(), volume.io_opt_bytes().into());
    opened.map(of).unwrap_or_default()
}

/// That clients can connect, for programs.
#[derive(Serialize)]
struct Ready<'a> {
    schema_version: u32,
    event: &'static str,
    pid: u32,
    volumes: Vec<ReadyVolume<'a>>,
}

#[derive(Serialize)]
struct ReadyVolume<'a> {
    name: &'a str,
    size_bytes: u64,
    /// The ways to it: URIs and paths.
    exports: &'a [String],
}

async fn announce(core: &Core, serving: &Serving, screen: Screen, json: bool) -> Result<(), Problem> {
    for served in serving.arrays() {
        let report = served.report().await;
        let access = if report.read_only { "read-only" } else { "read-write" };
        let size = screen.units.show_capacity(report.size_bytes);
        output::note(&format!(
            "{}: {} {} {}, {size}, {access}",
            output::text::printable(&report.name),
            report.level,
            report.slots,
            report.health.word(report.synced)
        ));
        report.notes.iter().for_each(|note| output::note(&output::text::printable(note)));
    }
    if serving.has_layers() {
        for offered in serving.offered().iter() {
            let size = screen.units.show_capacity(offered.volume.size_bytes());
            output::note(&format!("{}: {size}", output::text::printable(&offered.name)));
        }
    }
    for offered in serving.offered().iter() {
        let writable = offered.volume.open(core).is_ok_and(|volume| !volume.read_only());
        if let ([xfs, ..], true) = (&mkfs(core, offered)[..], writable && offered.is_blank) {
            let name = output::text::printable(&offered.name);
            output::note(&format!("{name}: a file system is told of the stripes by `{xfs} ...`"));
        }
    }
    let uris: Vec<_> = serving.offered().iter().flat_map(|offered| offered.exports.clone()).collect();
    output::ready(&uris);
    if !json {
        return Ok(());
    }
    let offered = serving.offered();
    let volumes = offered.iter().map(|offered| ReadyVolume {
        name: &offered.name,
        size_bytes: offered.volume.size_bytes(),
        exports: &offered.exports,
    });
    output::print_json_line(&Ready {
        schema_version: SCHEMA_VERSION,
        event: "ready",
        pid: std::process::id(),
        volumes: volumes.collect(),
    })
}

/// What `--run` commands are told: where this server is found, the ways to the first volume, the
/// first of each kind, and how file systems are made on it.
fn child_env(
    core: &Core,
    serving: &Serving,
    endpoints: &[Endpoint],
    dir: &RuntimeDir,
) -> Vec<(&'static str, String)> {
    let dir = std::path::absolute(dir.path()).unwrap_or_else(|_| dir.path().to_owned());
    let mut env = vec![(RUNTIME_DIR, dir.to_string_lossy().into_owned())];
    let offered = serving.offered();
    let Some(first) = offered.first() else { return env };
    let all = endpoints.iter().flat_map(|endpoint| endpoint.environment(&first.name, offered.len()));
    for (name, value) in all {
        if env.iter().all(|(earlier, _)| *earlier != name) {
            env.push((name, value));
        }
    }
    let mut mkfs = mkfs(core, first).into_iter();
    for (name, plain) in [("mkfs_xfs", "mkfs.xfs"), ("mkfs_ext4", "mkfs.ext4")] {
        env.push((name, mkfs.next().unwrap_or_else(|| plain.to_owned())));
    }
    env
}

/// Until a signal, the last `wattle stop`, or the end of the command of `--run`, whose status it
/// then is.
async fn wait_for_end(
    core: &Core,
    serving: &Serving,
    args: &ServeArgs,
    env: Vec<(&'static str, String)>,
) -> Result<ExitCode, Problem> {
    let asked = async {
        let closed = async {
            match args.until_closed {
                true => closed(core, serving).await,
                false => std::future::pending().await,
            }
        };
        match race(core.terminated(), race(serving.last_stop.wait(), closed)).await {
            Either::First(Err(error)) => Err(run_problem("waiting for signals", error)),
            _ => Ok(()),
        }
    };
    let Some(command) = &args.run else { return asked.await.map(|()| ExitCode::SUCCESS) };
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).envs(env);
    // They speak of this process.
    for name in MANAGER {
        shell.env_remove(name);
    }
    let mut child =
        core.spawn_child(shell).map_err(|error| run_problem("starting the command of --run", error))?;
    let waited = match race(child.wait(core), asked).await {
        Either::First(status) => status,
        Either::Second(asked) => {
            asked?;
            end_command(core, &mut child).await
        }
    };
    waited.map(exit_code).map_err(|error| run_problem("waiting for the command of --run", error))
}

/// Ends the command of `--run`: it is asked to, and killed if it has not ended in
/// [`COMMAND_TIME_MAX`] or when a second signal comes. One that not even that ends, since the
/// system waits for something in its name, is left behind.
async fn end_command(core: &Core, child: &mut Child) -> Result<ExitStatus, IoError> {
    const KILLED_TIME_MAX: Duration = Duration::from_secs(5);
    child.signal(libc::SIGTERM);
    let impatient = async {
        match race(terminated_again(core), core.sleep(COMMAND_TIME_MAX)).await {
            Either::First(()) => "a second signal came".to_owned(),
            Either::Second(()) => format!("it was asked to {} s ago", COMMAND_TIME_MAX.as_secs()),
        }
    };
    let why = match race(child.wait(core), impatient).await {
        Either::First(status) => return status,
        Either::Second(why) => why,
    };
    output::note(&format!("the command of --run does not end: {why}, and it is killed"));
    child.signal(libc::SIGKILL);
    match race(child.wait(core), core.sleep(KILLED_TIME_MAX)).await {
        Either::First(status) => status,
        Either::Second(()) => {
            output::note("the command of --run is killed and has not ended: it is left behind");
            Ok(std::os::unix::process::ExitStatusExt::from_raw(libc::SIGKILL))
        }
    }
}

/// Waits until files were opened and none is open any more. The program that is to open them has a
/// while to do so.
async fn closed(core: &Core, serving: &Serving) {
    const LOOK: Duration = Duration::from_millis(50);
    const PATIENCE: Duration = Duration::from_secs(60);
    let deadline = core.now() + PATIENCE;
    while !serving.was_opened() && core.now() < deadline {
        core.sleep(LOOK).await;
    }
    while serving.opens() > 0 {
        core.sleep(LOOK).await;
    }
}

/// As a shell reports it: 128 and the signal for a command that was killed.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Drains the clients, then flushes the arrays and records them clean, then lets go of the members.
async fn finish(core: &Core, serving: &Serving, exports: Vec<RunningExport>) -> Result<(), Problem> {
    serving.release(None).await;
    serving.close().await;
    for export in exports {
        export.stop(core, &output::log()).await;
    }
    serving.end().await
}

/// A second signal while the first one is being obeyed. What comes within [`ONE_REQUEST_TIME_MAX`]
/// belongs to the first.
async fn terminated_again(core: &Core) {
    let first_is_over = core.now() + ONE_REQUEST_TIME_MAX;
    loop {
        if core.terminated().await.is_err() {
            // Without signals there is nothing that could cut the end short.
            std::future::pending::<()>().await;
        }
        if core.now() >= first_is_over {
            return;
        }
    }
}

fn interrupted() -> Problem {
    Problem::new(
        Code::ServerFailed,
        "ended by a second signal before the arrays were recorded clean",
        "acknowledged and flushed writes are safe; parity may not fit what was in flight",
        "the next start takes the arrays as not cleanly stopped",
    )
}

fn run_problem(what: &str, error: IoError) -> Problem {
    Problem::new(
        Code::ServerFailed,
        format!("{what}: {error}"),
        "the operating system refused",
        "see its log",
    )
}
