//! One file per command.

mod cat;
mod create;
mod examine;
mod explain;
mod fail;
mod scan;
mod serve;
mod status;
mod stop;

use std::process::ExitCode;

use wattle_control::Problem;

use crate::cli::{Cli, Command};
use crate::output::{self, Screen};

/// Does what was asked and says how it ended.
pub fn run(cli: Cli) -> ExitCode {
    let screen = Screen::new(&cli.look);
    let done = |result: Result<(), Problem>| result.map(|()| ExitCode::SUCCESS);
    let result = match cli.command {
        Command::Scan(args) => done(scan::run(&args, screen)),
        Command::Examine(args) => done(examine::run(&args, screen)),
        Command::Create(args) => done(create::run(&args, screen)),
        Command::Cat(args) => done(cat::run(&args)),
        Command::Serve(args) => serve::run(&args, screen),
        Command::Status(args) => status::run(&args, screen),
        Command::Stop(args) => done(stop::run(&args)),
        Command::Fail(args) => done(fail::run(&args)),
        Command::Explain(args) => done(explain::run(&args)),
    };
    result.unwrap_or_else(|problem| output::report(&problem, screen.style_err))
}
