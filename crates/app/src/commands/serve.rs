//! `wattle serve`: runs arrays and offers them to clients until somebody says stop.
//!
//! Order: find the arrays, claim their members, listen everywhere, start; so that what can go wrong goes wrong before a core
//! runs, and nothing is written to a member before the first client writes. At the end clients are drained, then the arrays are
//! flushed and recorded clean, then whoever asked for the stop is told.

use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::rc::Rc;
use std::time::Duration;

use wattle_control::start::{self, Claimed};
use wattle_control::{ArrayScan, Code, Problem, Scan};
use wattle_export::{Address, NbdAddress};
use wattle_rt::{Core, IoError, ListenError, Listener};

use crate::cli::ServeArgs;
use crate::control_socket::RuntimeDir;
use crate::control_socket::server::ControlServer;
use crate::members;
use crate::output::{self, Screen};
use crate::serving::history::{History, StateDir};
use crate::serving::settings;
use crate::serving::{self, Endpoint, Facts, MadeUpArray, RunningExport, Served, Serving};
use wattle_rt::{Either, race};

/// Executors unless asked for more: beyond that, drives are the limit.
const CORES_MAX: usize = 8;

/// # Errors
/// No array can be served as asked, or one could not be recorded clean in the end. The exit status of `--run` is that of the
/// command.
pub fn run(args: &ServeArgs, screen: Screen) -> Result<ExitCode, Problem> {
    settings::parse_all(&args.settings)?;
    let arrays = patiently(|| find_arrays(args))?;
    let server = args.name.clone().unwrap_or_else(|| arrays[0].facts().name.clone());
    let dir = RuntimeDir::find(args.runtime.runtime_dir.as_deref());
    let control = patiently(|| listen_for_commands(&dir, &server))?;
    let endpoints = listen_for_clients(args, &dir, &server)?;
    // Without the privilege it cannot be had, and is not needed unless a file system is mounted on an export of this machine.
    let _ = wattle_rt::set_io_flusher();
    let engine = &args.engine;
    members::run(engine, CORES_MAX, async |core| {
        serve(&core, args, Setup { server, arrays, control, endpoints }, screen).await
    })
}

/// Everything that had to be there before the first core started.
struct Setup {
    server: String,
    arrays: Vec<Ready>,
    control: Option<Listener>,
    endpoints: Vec<Endpoint>,
}

/// An array that is ours and not started yet.
enum Ready {
    Claimed(Facts, Box<Claimed>),
    MadeUp(MadeUpArray),
}

impl Ready {
    fn facts(&self) -> &Facts {
        match self {
            Self::Claimed(facts, _) => facts,
            Self::MadeUp(array) => &array.facts,
        }
    }

    async fn start(
        self,
        core: &Core,
        exports: Vec<String>,
        state_dir: &StateDir,
    ) -> Result<Rc<Served>, Problem> {
        let facts = self.facts().clone();
        match self {
            Self::Claimed(_, claimed) => {
                let (history, problem) = History::open(state_dir, facts.uuid.as_deref());
                if let Some(problem) = problem {
                    output::note(&output::text::printable(&problem.what));
                }
                let started = claimed.launch(core).await?;
                Ok(Served::of_started(core, facts, started, exports, history).await)
            }
            Self::MadeUp(array) => {
                let handle = array.start(core).await;
                Ok(Served::of_made_up(core, facts, handle, exports).await)
            }
        }
    }
}

/// Tries again for a little while what a server that was just killed may still hold: the system takes a moment to give back its locks and
/// sockets, and whoever starts it again does so at once.
fn patiently<T>(try_once: impl Fn() -> Result<T, Problem>) -> Result<T, Problem> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(100);
    let held = |problem: &Problem| match problem.code {
        // It went while its members were looked at.
        Code::Locked | Code::Changed => true,
        Code::ListenFailed => problem.why == ListenError::InUse.to_string(),
        _ => false,
    };
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

fn find_arrays(args: &ServeArgs) -> Result<Vec<Ready>, Problem> {
    if let Some(level) = &args.made_up.level {
        let name = args.name.as_deref().unwrap_or("array");
        let array = MadeUpArray::new(name, &args.members, level, &args.made_up, args.read_only)?;
        return Ok(vec![Ready::MadeUp(array)]);
    }
    let scan = members::look_to_serve(&args.members, &args.force, args.degraded)?;
    let chosen = choose(&scan, &args.volumes)?;
    refuse_same_names(&chosen)?;
    chosen.into_iter().map(|array| claim(&scan, array, args.read_only)).collect()
}

/// The arrays named, or all there are.
fn choose<'a>(scan: &'a Scan, volumes: &[String]) -> Result<Vec<&'a ArrayScan>, Problem> {
    if !volumes.is_empty() {
        return volumes.iter().map(|name| scan.find(Some(name))).collect();
    }
    match scan.arrays.len() {
        // Explains why there is none.
        0 => scan.find(None).map(|array| vec![array]),
        _ => Ok(scan.arrays.iter().collect()),
    }
}

/// Clients and commands find arrays by name.
fn refuse_same_names(arrays: &[&ArrayScan]) -> Result<(), Problem> {
    for (ix, array) in arrays.iter().enumerate() {
        let name = array.assembly.name();
        if arrays[..ix].iter().any(|other| other.assembly.name() == name) {
            return Err(Problem::new(
                Code::SeveralVolumes,
                format!("two of the arrays are called {name}, or one is named twice"),
                "clients ask for an array by its name",
                "serve them with two servers: -V with the UUID, and --name for each",
            ));
        }
    }
    Ok(())
}

fn claim(scan: &Scan, array: &ArrayScan, read_only: bool) -> Result<Ready, Problem> {
    let claimed = start::claim(scan, array, read_only)?;
    members::note_unused(scan, array);
    let decisions = serving::why::of_scan(scan, array).decisions;
    Ok(Ready::Claimed(Facts { decisions, ..Facts::of_claimed(&claimed) }, Box::new(claimed)))
}

/// `None`, with a note, where there is no runtime directory and nobody asked for one: serving matters more.
fn listen_for_commands(dir: &RuntimeDir, server: &str) -> Result<Option<Listener>, Problem> {
    match dir.make() {
        Err(problem) if dir.asked_for => return Err(problem),
        Err(problem) => {
            output::note(&format!("{}: status, fail and stop will not find this server", problem.what));
            return Ok(None);
        }
        Ok(()) => {}
    }
    dir.sweep();
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
    if !args.exports.is_empty() {
        return args
            .exports
            .iter()
            .map(|address| patiently(|| serving::prepare(address, args.read_only)))
            .collect();
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
    Ok(vec![patiently(|| serving::prepare(&default, args.read_only))?])
}

async fn serve(core: &Core, args: &ServeArgs, setup: Setup, screen: Screen) -> Result<ExitCode, Problem> {
    let Setup { server, arrays, control, endpoints } = setup;
    let count = arrays.len();
    let state_dir = StateDir::find(args.state_dir.as_deref());
    let mut served = Vec::new();
    for array in arrays {
        let name = &array.facts().name;
        let exports = endpoints.iter().map(|endpoint| endpoint.way(name, count)).collect();
        let array = array.start(core, exports, &state_dir).await?;
        for (key, value) in settings::parse_all(&args.settings)? {
            array.set(key, value).await?;
        }
        served.push(array);
    }
    let serving = Rc::new(Serving::new(core, server, served));
    obey_signals(core, &serving).await;
    let control = control.map(|listener| {
        let serving = serving.clone();
        ControlServer::start(core, listener, move |request| {
            let serving = serving.clone();
            Box::pin(async move { serving.answer(request).await })
        })
    });
    let child_env = child_env(&serving, &endpoints);
    let exports = start_exports(core, &serving, endpoints).await?;
    announce(&serving, screen).await;
    write_pidfile(args.pidfile.as_deref())?;

    let ended = wait_for_end(core, &serving, args.run.as_deref(), child_env).await;
    let finished = match race(finish(core, &serving, exports), terminated_again(core)).await {
        Either::First(result) => result,
        Either::Second(()) => Err(interrupted()),
    };
    serving.tell_end(&finished);
    if let Some(control) = control {
        control.drain().await;
    }
    if let Some(pidfile) = &args.pidfile {
        // Best effort: a stale pidfile names a process that is gone.
        let _ = std::fs::remove_file(pidfile);
    }
    finished.and(ended)
}

/// From here on a signal is a request to end, not death: before, nothing was there that needed an orderly end.
async fn obey_signals(core: &Core, serving: &Serving) {
    // The first poll is what changes their meaning; the second future is ready at once.
    if let Either::First(_) = race(core.terminated(), async {}).await {
        serving.last_stop.set();
    }
}

async fn start_exports(
    core: &Core,
    serving: &Serving,
    endpoints: Vec<Endpoint>,
) -> Result<Vec<RunningExport>, Problem> {
    let mut running = Vec::new();
    for endpoint in endpoints {
        running.push(endpoint.start(core, serving).await?);
    }
    Ok(running)
}

async fn announce(serving: &Serving, screen: Screen) {
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
    let uris: Vec<_> = serving.arrays().iter().flat_map(|served| served.exports.clone()).collect();
    output::note(&format!("ready: {}", uris.join(" ")));
}

fn write_pidfile(path: Option<&Path>) -> Result<(), Problem> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, format!("{}\n", std::process::id())).map_err(|error| {
        Problem::new(
            Code::OutputFailed,
            format!("--pidfile {}: {error}", path.display()),
            "whoever waits for the file would wait for ever",
            "name a path that this user can write",
        )
    })
}

/// What `--run` commands are told: the ways to the first array, the first of each kind.
fn child_env(serving: &Serving, endpoints: &[Endpoint]) -> Vec<(&'static str, String)> {
    let arrays = serving.arrays();
    let Some(first) = arrays.first() else { return Vec::new() };
    let all = endpoints.iter().flat_map(|endpoint| endpoint.environment(&first.facts.name, arrays.len()));
    let mut env: Vec<(&'static str, String)> = Vec::new();
    for (name, value) in all {
        if env.iter().all(|(earlier, _)| *earlier != name) {
            env.push((name, value));
        }
    }
    env
}

/// Until a signal, the last `wattle stop`, or the end of the command of `--run`, whose status it then is.
async fn wait_for_end(
    core: &Core,
    serving: &Serving,
    command: Option<&str>,
    env: Vec<(&'static str, String)>,
) -> Result<ExitCode, Problem> {
    let asked = async {
        match race(core.terminated(), serving.last_stop.wait()).await {
            Either::First(Err(error)) => Err(run_problem("waiting for signals", error)),
            _ => Ok(()),
        }
    };
    let Some(command) = command else { return asked.await.map(|()| ExitCode::SUCCESS) };
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).envs(env);
    let mut child =
        core.spawn_child(shell).map_err(|error| run_problem("starting the command of --run", error))?;
    let waited = match race(child.wait(core), asked).await {
        Either::First(status) => status,
        Either::Second(asked) => {
            asked?;
            child.signal(libc::SIGTERM);
            child.wait(core).await
        }
    };
    waited.map(exit_code).map_err(|error| run_problem("waiting for the command of --run", error))
}

/// As a shell reports it: 128 and the signal for a command that was killed.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Drains the clients, then flushes the arrays and records them clean, then lets go of the members.
async fn finish(core: &Core, serving: &Serving, exports: Vec<RunningExport>) -> Result<(), Problem> {
    for export in exports {
        export.stop(core).await;
    }
    serving.end().await
}

/// A second signal while the first one is being obeyed.
async fn terminated_again(core: &Core) {
    if core.terminated().await.is_err() {
        // Without signals there is nothing that could cut the end short.
        std::future::pending::<()>().await;
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
