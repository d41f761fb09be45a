//! Several stacks: a process for each, so that none can take others down.

use std::process::{Command, ExitCode};
use std::rc::Rc;

use wattle_control::{Code, Problem};
use wattle_operate::config::StackConfig;
use wattle_rt::{BackendChoice, Child, Core, Either, Latch, race};

use crate::cli::{Engine, UpArgs};
use crate::environment::MANAGER;
use crate::{members, output};

/// # Errors
/// One could not be started, or did not end well. The others go on.
pub fn run(args: &UpArgs, stacks: &[&StackConfig]) -> Result<ExitCode, Problem> {
    let engine = Engine { cores: Some(1), ..args.engine.clone() };
    members::run(&engine, 1, async |core| {
        let stop = Rc::new(Latch::new());
        let (mut waiting, mut failed) = (Vec::new(), Vec::new());
        for stack in stacks {
            // Those that run are waited for, whatever becomes of the others.
            let spawned = command(args, stack)
                .and_then(|command| core.spawn_child(command).map_err(|error| not_run(&stack.name, &error)));
            let child = match spawned {
                Ok(child) => child,
                Err(problem) => {
                    output::note(&format!("{}: {}", problem.what, problem.why));
                    failed.push(stack.name.clone());
                    continue;
                }
            };
            let (core_, name, stop) = (core.clone(), stack.name.clone(), stop.clone());
            waiting.push(core.spawn(async move { wait(&core_, child, &name, &stop).await }));
        }
        let (core_, all) = (core.clone(), stop.clone());
        core.spawn(async move {
            // Without signals the processes are stopped one by one: `wattle stop`.
            if core_.terminated().await.is_ok() {
                all.set();
            }
        });
        for waiting in waiting {
            failed.extend(waiting.await);
        }
        match failed.as_slice() {
            [] => Ok(ExitCode::SUCCESS),
            names => Err(Problem::new(
                Code::StackEnded,
                format!("{}: not started, or ended with an error", names.join(", ")),
                "what it said stands above; the other stacks went on",
                "`wattle up NAME` starts one by itself",
            )),
        }
    })
}

/// This program again, for one stack.
fn command(args: &UpArgs, stack: &StackConfig) -> Result<Command, Problem> {
    let program = std::env::current_exe().map_err(|error| not_run(&stack.name, &error))?;
    let mut command = Command::new(program);
    command.arg("up").arg(&stack.name).arg("--config").arg(&args.config);
    if let Some(dir) = &args.runtime.runtime_dir {
        command.arg("--runtime-dir").arg(dir);
    }
    if let Some(cores) = args.engine.cores {
        command.arg("--cores").arg(cores.to_string());
    }
    if let Some(processors) = &args.engine.processors {
        command.arg("--processors").arg(processors.to_string());
    }
    let backend = match args.engine.backend {
        BackendChoice::Auto => None,
        BackendChoice::Uring => Some("uring"),
        BackendChoice::Syscall => Some("syscall"),
    };
    if let Some(backend) = backend {
        command.arg("--backend").arg(backend);
    }
    for name in MANAGER {
        command.env_remove(name);
    }
    Ok(command)
}

/// Waits for the end of one; its name if that was no good one.
async fn wait(core: &Core, mut child: Child, name: &str, stop: &Latch) -> Option<String> {
    let ended = match race(child.wait(core), stop.wait()).await {
        Either::First(ended) => ended,
        Either::Second(()) => {
            child.signal(libc::SIGTERM);
            child.wait(core).await
        }
    };
    let good = ended.is_ok_and(|status| status.success());
    output::note(&format!("{name}: {}", if good { "ended" } else { "ended with an error" }));
    (!good).then(|| name.to_owned())
}

fn not_run(name: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(
        Code::StackEnded,
        format!("{name}: no process can be started: {error}"),
        "each stack has one of its own",
        "see the system's log",
    )
}
