//! `wattle generate`: man pages and completions, from the definition that parsing comes from.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use wattle_control::{Code, Problem};

use crate::cli::{Cli, GenerateArgs, Generated};

/// The tour of the first page.
const TOUR: &str = include_str!("tour.roff");

/// What the generator calls the part of a command's help that is examples here.
const EXTRA: &str = ".SH EXTRA\n";

/// # Errors
/// A file cannot be written.
pub fn run(args: &GenerateArgs) -> Result<(), Problem> {
    let written = fs::create_dir_all(&args.dir).and_then(|()| match args.what {
        Generated::Man => man(&args.dir),
        Generated::Completions => completions(&args.dir),
    });
    written.map_err(|error| {
        Problem::new(
            Code::OutputFailed,
            format!("{}: {error}", args.dir.display()),
            "not everything was written",
            "name a directory of yours with room in it",
        )
    })
}

fn man(dir: &Path) -> io::Result<()> {
    // The display names, `wattle-lv-create`, are there once it is built.
    let mut whole = Cli::command();
    whole.build();
    pages(&whole, dir)
}

fn pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        pages(inner, dir)?;
    }
    let is_first = command.get_name() == "wattle";
    let man =
        Man::new(command.clone()).manual("wattle").source(format!("wattle {}", env!("CARGO_PKG_VERSION")));
    let file = dir.join(man.get_filename());
    let mut text = Vec::new();
    man.render(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    fs::write(file, with_examples(&text, if is_first { TOUR } else { "" }))
}

/// The page with its examples as they are typed, a line each, and with `more` behind them.
fn with_examples(page: &str, more: &str) -> String {
    let Some((before, rest)) = page.split_once(EXTRA) else { return page.to_owned() + more };
    let (extra, after) = rest.split_at(rest.find("\n.SH ").map_or(rest.len(), |at| at + 1));
    let (notes, examples) = extra.split_once("Examples:\n").unwrap_or(("", extra));
    let notes = if notes.is_empty() { String::new() } else { format!(".SH NOTES\n.nf\n{notes}.fi\n") };
    format!("{before}{notes}.SH EXAMPLES\n.nf\n{examples}.fi\n{more}{after}")
}

fn completions(dir: &Path) -> io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "wattle", dir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let dir = tempfile::tempdir().unwrap();
        man(dir.path()).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = read(&format!("wattle-{}.1", command.get_name()));
            let example = format!("wattle {}", command.get_name());
            let (_, examples) = page.split_once(".SH EXAMPLES\n.nf\n").expect("examples");
            assert!(examples.contains(&example.replace('-', "\\-")) || examples.contains(&example), "{page}");
            assert!(!page.contains("EXTRA"), "{page}");
        }
        assert!(read("wattle-lv-create.1").contains(".SH EXAMPLES"));
        assert!(read("wattle.1").contains(".SH TOUR"));
        assert!(!dir.path().join("wattle-generate.1").exists());
    }

    #[test]
    fn three_shells_complete() {
        let dir = tempfile::tempdir().unwrap();
        completions(dir.path()).unwrap();
        for name in ["wattle.bash", "_wattle", "wattle.fish"] {
            let text = fs::read_to_string(dir.path().join(name)).unwrap();
            assert!(text.contains("scrub-overdue"), "{name}");
        }
    }
}
