//! The pages' examples: every command in them is run, in the order of the page, and says what is
//! written there.
//!
//! A page is one session of a shell that begins in the repository. A block (indented by four) whose
//! lines begin with `$ ` shows commands and what they say; any other block is a script, which has
//! to succeed. `…` stands for lines that are left out, or for the middle or the rest of one. Times,
//! UUIDs, process ids and names of hosts are compared as such, directories of the page's session as
//! they are called there. Comments in a page's source, each before the blocks it is for:
//!
//! - `<!-- prologue: SCRIPT -->` is run and not shown.
//! - `<!-- not run: REASON -->` leaves out the block that follows. How many a page has is asserted
//!   here.
//!
//! What runs in the background has until its lines are there; it is ended with the page.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Room, require, run, said, wattle};

/// Stands for what is left out.
const LEFT_OUT: &str = "…";

/// What is shown of a command that is allowed to fail: an error, a problem, a finding, a doubt, or
/// whichever of two things was in time.
const MAY_FAIL: [&str; 5] = ["error[", "WTL-", "warning[", "NOT TOLD APART", "…wattle…"];

/// Something that the session does.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It has to succeed.
    Script(String),
    /// It says these lines, or more if the first begins with [`LEFT_OUT`].
    Command(String, Vec<String>),
}

/// What is in a page, and how many blocks are not run.
fn steps(text: &str) -> (Vec<Step>, usize) {
    let (mut steps, mut not_run, mut skip) = (Vec::new(), 0, false);
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if line.trim_start().starts_with("<!-- not run: ") {
            skip = true;
        } else if let Some(first) = line.trim_start().strip_prefix("<!-- prologue:") {
            let mut script = String::new();
            let mut rest = first;
            while !rest.trim_end().ends_with("-->") {
                writeln!(script, "{rest}").unwrap();
                at += 1;
                rest = lines[at];
            }
            script.push_str(rest.trim_end().trim_end_matches("-->"));
            steps.push(Step::Script(script));
        } else if line.starts_with("    ") && (at == 0 || lines[at - 1].is_empty()) {
            let start = at;
            while at < lines.len() && (lines[at].starts_with("    ") || lines[at].is_empty()) {
                at += 1;
            }
            if std::mem::take(&mut skip) {
                not_run += 1;
            } else {
                block(&lines[start..at], &mut steps);
            }
            continue;
        }
        at += 1;
    }
    (steps, not_run)
}

fn block(lines: &[&str], steps: &mut Vec<Step>) {
    let indent = lines[0].len() - lines[0].trim_start().len();
    let mut lines: Vec<&str> = lines.iter().map(|line| line.get(indent..).unwrap_or_default()).collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    if !lines[0].starts_with("$ ") {
        return steps.push(Step::Script(lines.join("\n")));
    }
    for line in lines {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step::Command(command.to_owned(), Vec::new())),
            (None, Some(Step::Command(_, expected))) => expected.push(line.to_owned()),
            (None, _) => unreachable!("the first line of the block is a command"),
        }
    }
}

/// The first expected line that is not found, in order.
pub fn missing<'a>(expected: &'a [String], found: &[&str]) -> Option<&'a str> {
    let mut at = 0;
    let mut may_skip = false;
    for line in expected {
        if line.trim() == LEFT_OUT {
            may_skip = true;
            continue;
        }
        let next = found[at..].iter().position(|found| fits(line, found));
        let Some(skipped) = next.filter(|skipped| may_skip || *skipped == 0) else { return Some(line) };
        at += skipped + 1;
        may_skip = false;
    }
    None
}

/// Whether a line is as expected, but for what [`LEFT_OUT`] stands for.
fn fits(expected: &str, found: &str) -> bool {
    let parts: Vec<&str> = expected.trim_end().split(LEFT_OUT).collect();
    let [first, middle @ .., last] = &parts[..] else { return expected.trim_end() == found.trim_end() };
    let Some(mut rest) = found.strip_prefix(first.trim_end_matches(' ')) else { return false };
    for part in middle {
        let Some(at) = rest.find(part.trim()) else { return false };
        rest = &rest[at + part.trim().len()..];
    }
    rest.trim_end().ends_with(last.trim())
}

/// The text with what differs from run to run made the same.
fn settled(text: &str) -> String {
    let mut all = text.to_owned();
    for (pattern, same) in [
        (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", "TIME"),
        (r"[0-9]{8}T[0-9]{6}Z", "TIME"),
        (r"\b[0-9a-f]{8}(:[0-9a-f]{8}){3}\b", "UUID"),
        (r"\(pid [0-9]+\)", "(pid N)"),
        (r"--homehost=\S+", "--homehost=HOST"),
        (r"(created?) \S+:", "$1 HOST:"),
        // The number of a device that joined is drawn.
        (r"\b([a-z]+)\[[0-9]+\]", "$1[N]"),
        (r"[0-9]+ ops; [0-9.:]+ sec \([^)]*\)", "OPS"),
    ] {
        all = regex_lite::Regex::new(pattern).unwrap().replace_all(&all, same).into_owned();
    }
    all
}

/// The script of a session: what each step says goes to a file of its number.
fn script(steps: &[Step]) -> String {
    let mut script = "\
wait_for() { for _ in $(seq 600); do grep -qF -- \"$2\" \"$1\" && return; sleep 0.05; done; }
trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT
cd \"$REPO\"
"
    .to_owned();
    let out = "\"$OUT\"";
    for (ix, step) in steps.iter().enumerate() {
        let (command, expected) = match step {
            Step::Script(script) => (script, None),
            Step::Command(command, expected) => (command, expected.last()),
        };
        writeln!(script, "{{ {command}\n}} > {out}/{ix} 2>&1\nrc=$?; echo $rc > {out}/{ix}.rc").unwrap();
        if let (Some(last), true) = (expected, command.ends_with('&')) {
            let until = last.split(LEFT_OUT).next().unwrap_or_default();
            let until = until.split("/tmp/").next().unwrap_or_default();
            writeln!(script, "wait_for {out}/{ix} '{until}'").unwrap();
        }
        writeln!(script, "(exit $rc)").unwrap();
    }
    script
}

/// Runs a page; `not_run` is how many of its blocks are not, `least` how many steps it has at
/// least.
fn run_page(page: &str, tools: &[&str], not_run: usize, least: usize) {
    if !tools.iter().all(|tool| require(tool)) {
        return;
    }
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap();
    let (steps, left_out) = steps(&text);
    assert_eq!(left_out, not_run, "{page}: blocks that are not run");
    assert!(steps.len() >= least, "{page}: {} steps", steps.len());
    let room = Room::new();
    let here = room.dir.path().to_str().unwrap();
    let out = room.name("out");
    fs::create_dir(&out).unwrap();
    // What a page has in /tmp, and its drives, are in the session's own directory.
    let drives = format!("{here}/dev");
    fs::create_dir(&drives).unwrap();
    let mut script = script(&steps);
    for (shown, mark) in
        [("/tmp/dev/", "\u{1}"), ("/dev/sd", "\u{1}sd"), ("/dev/nvme", "\u{1}nvme"), ("/tmp/", "\u{2}")]
    {
        script = script.replace(shown, mark);
    }
    for (mark, meant) in [("\u{1}", &drives), ("\u{2}", &here.to_owned())] {
        script = script.replace(mark, &format!("{meant}/"));
    }
    fs::write(room.path("session"), script).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_wattle")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.arg(room.path("session")).env("PATH", path).env("NO_COLOR", "1").env("TMPDIR", here);
    shell.env("OUT", &out).env("REPO", Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    shell.env("WATTLE_STATE_DIR", room.path("state")).env("WATTLE_RUNTIME_DIR", room.path("run"));
    let status = shell.stdin(Stdio::null()).status().unwrap();
    let mut wrong = String::new();
    for (ix, step) in steps.iter().enumerate() {
        let said = fs::read(format!("{out}/{ix}")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let said = said
            .replace(&room.name("state"), "/var/lib/wattle")
            .replace(&drives, "/dev")
            .replace(here, "/tmp");
        let rc = fs::read_to_string(format!("{out}/{ix}.rc")).unwrap_or_default();
        match step {
            Step::Script(script) if rc.trim() != "0" => {
                writeln!(wrong, "{script}\nended with {rc}{said}\n").unwrap();
            }
            Step::Script(_) => {}
            Step::Command(command, expected) => {
                let may_fail = expected.iter().any(|line| MAY_FAIL.iter().any(|sign| line.contains(sign)));
                let expected: Vec<_> = expected.iter().map(|line| settled(line)).collect();
                let found = settled(&said);
                if rc.trim() != "0" && !may_fail {
                    writeln!(wrong, "$ {command}\nended with {rc}{found}").unwrap();
                } else if let Some(line) = missing(&expected, &found.lines().collect::<Vec<_>>()) {
                    writeln!(wrong, "$ {command}\nnot said: {line}\n{found}").unwrap();
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{page} ({status}):\n{wrong}");
}

#[test]
fn the_readme_says_what_happens() {
    run_page("README.md", &["zstd", "nbdcopy", "nbdinfo", "qemu-io"], 4, 30);
}

#[test]
fn the_page_of_a_dead_nas_says_what_happens() {
    run_page("docs/rescue.md", &["zstd"], 9, 8);
}

#[test]
fn the_page_for_operators_says_what_happens() {
    run_page("docs/operations.md", &["nbdcopy", "qemu-img", "mkfs.ext4"], 13, 9);
}

#[test]
fn the_page_on_planning_says_what_happens() {
    run_page("docs/planning.md", &[], 3, 1);
}

#[test]
fn the_page_on_services_says_what_happens() {
    run_page("docs/service.md", &[], 2, 8);
}

#[test]
fn the_page_on_audits_says_what_happens() {
    run_page("docs/audit.md", &[], 1, 2);
}

#[test]
fn the_page_on_metrics_says_what_happens() {
    run_page("docs/metrics.md", &["curl"], 3, 3);
}

#[test]
fn the_page_for_containers_says_what_happens() {
    run_page("docs/containers.md", &["nbdcopy"], 2, 4);
}

#[test]
fn the_page_for_scripts_says_what_happens() {
    run_page("docs/scripts.md", &[], 0, 5);
}

#[test]
fn the_page_on_the_console_says_what_happens() {
    run_page("docs/console.md", &["curl", "jq"], 1, 9);
}

#[test]
fn the_examples_of_every_help_say_what_happens() {
    run_page("crates/app/tests/cli/examples.md", &["nbdcopy", "nbdinfo", "jq", "mkfs.ext4"], 10, 100);
}

/// Every command and every command in it.
fn commands_with_help() -> Vec<String> {
    let mut all = vec![String::new()];
    let mut at = 0;
    while let Some(command) = all.get(at).cloned() {
        at += 1;
        let said = run(command.split_whitespace().chain(["--help"])).ok();
        let listed = said.text().split_once("\nCommands:\n").map_or("", |(_, listed)| listed);
        let listed = listed.lines().take_while(|line| line.starts_with("  "));
        let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let names = names.filter(|name| !name.is_empty() && *name != "help");
        all.extend(names.map(|name| format!("{command} {name}").trim().to_owned()));
    }
    all
}

#[test]
fn every_example_of_help_is_among_those_that_are_run() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/examples.md")).unwrap();
    let typed = |line: &&str| line.starts_with("    $ ");
    let known: Vec<_> = page.lines().filter(typed).map(|line| &line[6..]).collect();
    let (mut missing, mut seen) = (String::new(), 0);
    for command in commands_with_help() {
        let mut help = wattle();
        help.args(command.split_whitespace()).arg("--help").env("COLUMNS", "1000");
        let said = said(help.output().unwrap()).ok();
        let examples = said.text().split_once("\nExamples:\n").map_or("", |(_, examples)| examples);
        // Long lines are broken: what does not begin with a command belongs to the line before.
        let mut lines: Vec<String> = Vec::new();
        for line in examples.lines().filter_map(|line| line.strip_prefix("  ")) {
            match lines.last_mut() {
                Some(last) if !["wattle ", "truncate "].iter().any(|start| line.starts_with(start)) => {
                    last.push(' ');
                    last.push_str(line);
                }
                _ => lines.push(line.to_owned()),
            }
        }
        for line in lines {
            // Behind two spaces comes a remark.
            let example = line.split("  ").next().unwrap();
            seen += 1;
            if !known.iter().any(|known| known.ends_with(example)) {
                writeln!(missing, "{command}: {example}").unwrap();
            }
        }
    }
    assert!(seen > 130, "{seen} examples");
    assert!(missing.is_empty(), "not in examples.md:\n{missing}");
}

#[test]
fn a_line_fits_with_something_left_out() {
    for (expected, found, fits_) in [
        ("a b", "a b", true),
        ("a b", "a b c", false),
        ("a …", "a b c", true),
        ("a … c", "a b c", true),
        ("a … d", "a b c", false),
        ("…c", "a b c", true),
        ("a … x … c", "a b c", false),
        ("a…b…c", "a1b2c", true),
    ] {
        assert_eq!(fits(expected, found), fits_, "{expected} / {found}");
    }
}

#[test]
fn scripts_commands_and_what_is_left_out_are_told_apart() {
    let text = "words\n\n    $ one\n    said\n    $ two\n\n<!-- prologue: three\nfour -->\n\n<!-- not run: why -->\n\n    five\n\n- item\n\n      six\n      seven\n";
    let command = |command: &str, said: &[&str]| {
        Step::Command(command.to_owned(), said.iter().map(|line| (*line).to_owned()).collect())
    };
    let script = |text: &str| Step::Script(text.to_owned());
    let expected =
        vec![command("one", &["said"]), command("two", &[]), script(" three\nfour "), script("six\nseven")];
    assert_eq!(steps(text), (expected, 1));
}
