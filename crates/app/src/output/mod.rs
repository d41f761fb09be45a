//! How things are shown: stdout carries data, stderr everything else.
//!
//! Commands render to a `String` (pure, testable) and hand it over here; only this module and `cat`
//! write to stdout.

pub mod blocks;
mod log;
pub mod mdadm;
pub mod plot;
mod problem;
pub mod progress;
pub mod style;
pub mod text;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use wattle_control::units::Units;
use wattle_control::{Code, Problem};
use wattle_rt::text_of_path;
use wattle_server::log::ServerLog;
use wattle_server::protocol::{ErrorReport, SCHEMA_VERSION};

use crate::cli::OutputArgs;
pub use log::LogThread;
pub use style::Style;

/// How output looks, decided.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Units of sizes.
    pub units: Units,
    /// Colours on stdout.
    pub style: Style,
    /// Colours on stderr.
    pub style_err: Style,
}

impl Screen {
    /// From the command line, the environment and the terminal.
    pub fn new(look: &OutputArgs) -> Self {
        Self {
            units: look.units,
            style: Style::decide(look.color, &io::stdout()),
            style_err: Style::decide(look.color, &io::stderr()),
        }
    }
}

/// Whether stdout has been written to: it is the process's, and so is this.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// Whether what reads stdout has closed its end.
static READER_GONE: AtomicBool = AtomicBool::new(false);

/// Whether nothing reads stdout any more: what tells more and more has nothing left to do.
pub fn reader_is_gone() -> bool {
    READER_GONE.load(Ordering::Relaxed)
}

/// Writes a report to stdout. A reader that closed its end early has what it wanted: that is not an
/// error.
///
/// # Errors
/// The output cannot be written.
pub fn print(text: &str) -> Result<(), Problem> {
    WRITTEN.store(true, Ordering::Relaxed);
    let mut stdout = io::stdout().lock();
    wrote(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// What came of writing to stdout.
fn wrote(written: io::Result<()>) -> Result<(), Problem> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            READER_GONE.store(true, Ordering::Relaxed);
            Ok(())
        }
        written => written.map_err(|error| output_failed(&error)),
    }
}

/// Columns and rows of the terminal that stdout is; `None` elsewhere, where lines stay whole.
/// `COLUMNS` overrides the first, also of a terminal that tells no size.
pub fn terminal_size() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let told = terminal_size::terminal_size_of(io::stdout());
    let told = told.map(|(columns, rows)| (usize::from(columns.0), usize::from(rows.0)));
    let columns = crate::environment::columns().or(told.map(|(columns, _)| columns))?;
    Some((columns, told.map_or(usize::MAX, |(_, rows)| rows))).filter(|_| columns > 0)
}

/// As [`print`], with long lines broken between words where stdout is a terminal.
///
/// # Errors
/// The output cannot be written.
pub fn print_fitted(text: &str) -> Result<(), Problem> {
    match terminal_size() {
        Some((columns, _)) => print(&text::fit(text, columns)),
        None => print(text),
    }
}

/// Writes a report to stdout as one JSON document, piece by piece: its text may be larger than what
/// it is made from.
///
/// # Errors
/// The output cannot be written.
pub fn print_json(report: &impl Serialize) -> Result<(), Problem> {
    WRITTEN.store(true, Ordering::Relaxed);
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut stdout, report).map_err(io::Error::from);
    wrote(written.and_then(|()| stdout.write_all(b"\n")).and_then(|()| stdout.flush()))
}

/// A report as JSON, for people too.
pub fn json_text(report: &impl Serialize) -> String {
    let text =
        serde_json::to_string_pretty(report).expect("reports have string keys and finite numbers only");
    text + "\n"
}

/// Writes a report to stdout as JSON on one line, for readers that take a line at a time.
///
/// # Errors
/// The output cannot be written.
pub fn print_json_line(report: &impl Serialize) -> Result<(), Problem> {
    let text = serde_json::to_string(report).expect("reports have string keys and finite numbers only");
    print(&(text + "\n"))
}

/// What every note begins with.
const NOTE: &str = "wattle: ";

/// Writes a line to stderr, for people. What cannot be said there cannot be said anywhere.
pub fn note(line: &str) {
    if let Err(line) = log::take(format!("{NOTE}{line}\n")) {
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}

/// What a server's line begins with once clients can connect. Documented, and service managers wait
/// for it.
const READY: &str = "ready: ";

/// Writes the line of a server that clients can connect to now, with the ways to its volumes.
pub fn ready(ways: &[String]) {
    note(&format!("{READY}{}", ways.join(" ")));
}

/// Whether another of our processes has written [`ready`]'s line.
pub fn is_ready(line: &str) -> bool {
    line.strip_prefix(NOTE).is_some_and(|line| line.starts_with(READY))
}

/// Where a server's notes go: to stderr, as [`note`] does it.
pub fn log() -> ServerLog {
    ServerLog::new(|line| note(&text::printable(line)))
}

/// Hands on to stderr what another of our processes has said, as it is.
pub fn pass_on(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Shows how far something is that a command waits for, in place of what was shown before; `None`
/// takes it away. Only on terminals: a log wants no such lines.
pub fn progress(line: Option<&str>) {
    let mut stderr = io::stderr().lock();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{}", line.unwrap_or_default());
        let _ = stderr.flush();
    }
}

/// Writes a problem to stderr and returns its exit status.
pub fn report(problem: &Problem, style: Style) -> ExitCode {
    let _ = io::stderr().lock().write_all(problem::render(problem, style).as_bytes());
    ExitCode::from(problem.exit_code())
}

/// What a command that failed says where JSON is wanted.
#[derive(Serialize)]
struct Failure {
    schema_version: u32,
    errors: [ErrorReport; 1],
}

/// Writes the problem that a command ends with to stderr, and as JSON to stdout if that is wanted
/// and no report is there, which tells what is wrong itself. Returns the exit status.
pub fn report_failure(problem: &Problem, style: Style, json: bool) -> ExitCode {
    if json && !WRITTEN.load(Ordering::Relaxed) {
        // A failure to say so changes nothing about the first one.
        let _ = print_json(&Failure { schema_version: SCHEMA_VERSION, errors: [problem.into()] });
    }
    report(problem, style)
}

/// Shows what clap made of the command line: help and version on stdout, mistakes on stderr, and as
/// JSON on stdout if that is wanted.
pub fn usage(error: &clap::Error, json: bool) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    if !error.use_stderr() {
        return match printed {
            // The reader of a help text may leave early.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                report(&output_failed(&error), Style::PLAIN)
            }
            _ => ExitCode::SUCCESS,
        };
    }
    if json {
        let text = error.to_string();
        let what = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        let problem = Problem::new(
            Code::Usage,
            what,
            "the command line is not understood, and nothing was done",
            "`wattle COMMAND --help` tells what can be typed",
        );
        let _ = print_json(&Failure { schema_version: SCHEMA_VERSION, errors: [(&problem).into()] });
    }
    ExitCode::from(2)
}

/// The problem of a failed write to stdout.
pub fn output_failed(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(
        Code::OutputFailed,
        format!("standard output: {error}"),
        "the bytes could not be handed on; what was written before stays written",
        "free space where the output goes, or redirect it elsewhere",
    )
}

/// The problem of a file that cannot be made or written.
pub fn file_failed(path: &Path, error: &io::Error) -> Problem {
    let name = text_of_path(path);
    let what = format!("{name}: {error}");
    let (why, next) = match error.kind() {
        ErrorKind::AlreadyExists => {
            let (why, next) = ("what is there is not replaced", "name another file, or remove that one");
            return Problem::new(Code::OutputExists, format!("{name} is there already"), why, next);
        }
        ErrorKind::NotFound => {
            ("the directory that it is to be in is not there", "make that directory, or name another place")
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            ("something of another kind is there", "name another place")
        }
        ErrorKind::PermissionDenied => {
            ("this user may not write there", "let it be written to, or name another place")
        }
        _ => return Problem { what, ..output_failed(error) },
    };
    Problem::new(Code::OutputFailed, what, why, next)
}

/// Makes durable what went to the standard output, if that is a file.
///
/// # Errors
/// Some of it did not reach the disk.
pub fn sync_stdout() -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::fsync(io::stdout()) {
        // Of a pipe or a terminal nothing is durable.
        Err(Errno::INVAL | Errno::ROFS | Errno::OPNOTSUPP) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
