//! `wattle up`: runs what a configuration says, with the code of `wattle serve`.
//!
//! Order: read all files, wait for drives, serve. Until a file is understood and its drives are
//! there nothing is opened for writing, and what runs already is never touched.

mod check;
mod late;
mod read_only;
mod scan;
mod scrub;
mod several;
mod wait;

use std::process::ExitCode;
use std::rc::Rc;

use clap::{CommandFactory, Parser};
use wattle_control::members::MemberAccess;
use wattle_control::{Code, Problem, shell_word};
use wattle_operate::config::{ConfigFault, MissingPolicy, StackConfig, Stacks, stack_name};
use wattle_rt::Core;
use wattle_server::serving::Serving;
use wattle_server::socket::client::Servers;

use super::serve::{self, Beside};
use crate::cli::{Cli, CliCommand, ServeArgs, UpArgs};
use crate::environment::runtime_dir;
use crate::keys;
use crate::notify::Notifier;
use crate::output::{self, Screen};
use late::LateMembers;

/// # Errors
/// A file has faults, a stack runs already, its drives are missing, or it cannot be served.
pub fn run(access: &MemberAccess, args: &UpArgs, screen: Screen) -> Result<ExitCode, Problem> {
    if args.scan {
        return scan::run(access, args, screen);
    }
    // What is to start has more right than a file that came beside it, and what runs the most.
    let running = Servers::ask(&runtime_dir(args.runtime.runtime_dir.as_deref()));
    let running = running.reports().map(|server| server.server.clone());
    let first: Vec<String> = running.chain(args.names.iter().cloned()).collect();
    let stacks = Stacks::read_before(&args.config, &first)?;
    if args.check {
        return check::run(&stacks, args, screen);
    }
    let wanted = chosen(&stacks, &args.names, screen)?;
    if args.scrub {
        return scrub::run(&wanted, args, screen);
    }
    if args.scrub_overdue {
        return scrub::overdue(&wanted, args, screen);
    }
    match wanted.as_slice() {
        [stack] => one(access, args, stack, screen),
        stacks => several::run(args, stacks),
    }
}

/// The stacks of these names, or all. Of a file with faults every one is told.
fn chosen<'s>(stacks: &'s Stacks, names: &[String], screen: Screen) -> Result<Vec<&'s StackConfig>, Problem> {
    let found: Result<Vec<_>, _> = match names {
        [] => match stacks.faults.first() {
            Some(fault) => Err(fault.problem()),
            None if stacks.stacks.is_empty() => Err(no_stacks(stacks)),
            None => Ok(stacks.stacks.iter().collect()),
        },
        names => names.iter().map(|name| stacks.find(name)).collect(),
    };
    found.inspect_err(|first| {
        let meant = |fault: &&ConfigFault| names.is_empty() || names.contains(&stack_name(&fault.file));
        let others = stacks.faults.iter().filter(meant).map(ConfigFault::problem);
        for other in others.filter(|other| other != first) {
            output::report(&other, screen.style_err);
        }
    })
}

fn no_stacks(stacks: &Stacks) -> Problem {
    Problem::new(
        Code::NoSuchStack,
        format!("there is no stack in {}", stacks.place.display()),
        "a stack is a file NAME.toml",
        "write one of what is there: `wattle up --scan --to DIR`",
    )
}

/// Serves one stack in this process.
fn one(
    access: &MemberAccess,
    args: &UpArgs,
    stack: &StackConfig,
    screen: Screen,
) -> Result<ExitCode, Problem> {
    refuse_running(args, stack)?;
    // Everything that can be wrong with the command line that this becomes, before drives are
    // waited for.
    let checked = serve_args(args, stack, &["-".to_owned()])?;
    let access = &access.clone().with_keys(keys::keyring(&checked.maps.keys, false, access)?);
    let notifier = Notifier::from_environment();
    let found = wait::members(access, stack, &notifier)?;
    let serve = serve_args(args, stack, &found.members)?;
    let late = LateMembers::new(stack, found.seen, found.known);
    let for_late = access.clone();
    let once_ready = Box::new(move |core: &Core, serving: &Rc<Serving>| {
        core.spawn(late.watch(core.clone(), for_late, serving.clone()));
    });
    serve::run_beside(access, &serve, screen, Beside { notifier, once_ready })
}

fn refuse_running(args: &UpArgs, stack: &StackConfig) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    match servers.reports().find(|server| server.server == stack.name) {
        None => Ok(()),
        Some(server) => Err(Problem::new(
            Code::StackRuns,
            format!("{} is being served by process {}", stack.name, server.pid),
            "starting never stops or replaces what runs",
            format!(
                "`wattle status` shows it; to start anew: `wattle stop {}` first",
                shell_word(&stack.name)
            ),
        )),
    }
}

/// The command line of `serve` that does what the file says: one way to serve, and one definition
/// of what can be said.
fn serve_args(args: &UpArgs, stack: &StackConfig, members: &[String]) -> Result<ServeArgs, Problem> {
    let mut words = vec!["wattle".to_owned(), "serve".to_owned(), format!("--name={}", stack.name)];
    words.extend(stack.volumes.iter().map(|volume| format!("--volume={}", volume.value)));
    words.extend(stack.exports.iter().map(|export| format!("--export={}", export.value)));
    words.extend(stack.tls_certificates.iter().map(|dir| format!("--tls-certificates={}", dir.value)));
    words.extend(stack.tls_any_client.then(|| "--tls-any-client".to_owned()));
    words.extend(stack.insecure.then(|| "--insecure".to_owned()));
    words.extend(stack.passphrase_files.iter().map(|file| format!("--passphrase-file={}", file.value)));
    words.extend(stack.key_files.iter().map(|file| format!("--key-file={}", file.value)));
    words.extend(stack.settings.iter().map(|setting| format!("--set={setting}")));
    words.extend(stack.read_only.then(|| "--read-only".to_owned()));
    words.extend((stack.wait.missing == MissingPolicy::Refuse).then(|| "--degraded=never".to_owned()));
    words.extend(stack.state_dir.iter().map(|dir| format!("--state-dir={dir}")));
    words.extend(stack.processors.iter().map(|list| format!("--processors={}", list.value)));
    words.extend(stack.undo_dir.iter().map(|dir| format!("--undo={dir}")));
    if let Some(metrics) = &stack.metrics {
        if !serve_knows("metrics") {
            return Err(Problem::new(
                Code::NotSupportedYet,
                format!("{}:{}: metrics", stack.file.display(), metrics.line),
                "this version of `wattle serve` offers no metrics",
                "remove the line",
            ));
        }
        words.push(format!("--metrics={}", metrics.value));
    }
    words.push("--".to_owned());
    words.extend(members.iter().cloned());
    let typed = Cli::try_parse_from(words).map_err(|error| not_understood(stack, &error.to_string()))?;
    let CliCommand::Serve(mut serve) = typed.command else { unreachable!("the first word is serve") };
    serve.runtime = args.runtime.clone();
    let processors = serve.engine.processors.take();
    serve.engine = args.engine.clone();
    serve.engine.cores = args.engine.cores.or(stack.cores);
    serve.engine.processors = args.engine.processors.clone().or(processors);
    Ok(*serve)
}

fn serve_knows(option: &str) -> bool {
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("it is one of the commands");
    serve.get_arguments().any(|argument| argument.get_long() == Some(option))
}

fn not_understood(stack: &StackConfig, error: &str) -> Problem {
    let first = error.lines().next().unwrap_or_default().trim_start_matches("error: ");
    Problem::new(
        Code::ConfigBadValue,
        format!("{}: {first}", stack.file.display()),
        "`wattle serve` does not take what the file says",
        "correct the file; `wattle serve --help` tells what can be said",
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn up(words: &[&str]) -> Box<UpArgs> {
        let CliCommand::Up(args) = Cli::parse_from([&["wattle", "up"], words].concat()).command else {
            panic!("not up")
        };
        args
    }

    #[test]
    fn a_file_says_what_a_command_line_would() {
        let text = "arrays = ['data']\nexports = ['nbd=unix:/tmp/x.sock']\nvolumes = ['vg/lv']\nread-only = true\n\
                    cores = 3\nprocessors = '4-6'\nundo-dir = '/u'\n[wait]\nmissing = 'refuse'\n[set]\nread_deadline = '2s'\n";
        let stack = StackConfig::parse(Path::new("data.toml"), text).unwrap();
        let members = ["-odd".to_owned(), "/dev/sdb".to_owned()];
        let serve = serve_args(&up(&["data"]), &stack, &members).unwrap();
        assert_eq!(serve.members, members);
        assert_eq!(serve.name.as_deref(), Some("data"));
        assert_eq!(serve.exports[0].to_string(), "nbd=unix:/tmp/x.sock");
        assert_eq!(serve.volumes, ["vg/lv"]);
        assert_eq!(serve.settings(), ["read_deadline=2s"]);
        assert!(serve.read_only && serve.degraded == crate::cli::DegradedArg::Never);
        assert_eq!(serve.engine.cores, Some(3));
        assert_eq!(serve.engine.processors, "4-6".parse().ok());
        assert_eq!(serve.saving.dir.as_deref(), Some(Path::new("/u")));
        // What was typed counts more.
        let typed = ["data", "--cores", "1", "--processors", "0"];
        let serve = serve_args(&up(&typed), &stack, &members).unwrap();
        assert_eq!(serve.engine.cores, Some(1));
        assert_eq!(serve.engine.processors, "0".parse().ok());
    }
}
