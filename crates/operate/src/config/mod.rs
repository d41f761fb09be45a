//! What a service shall run: one file of TOML for each stack.
//!
//! [`Stacks::read`] reads a directory or a single file and finds every fault, each with its file
//! and line; [`StackConfig`] is what a file says, and [`clash`] what several of them cannot say at
//! once. [`pattern`] finds the members that a file names by patterns, and the drives of this
//! machine where it names none. [`text`] writes a first file.
//!
//! **Invariants.**
//! 1. A key that is not known is a fault: a slip of the pen is never passed over.
//! 2. A file with a fault gives no configuration at all.

mod clash;
mod fault;
pub mod pattern;
mod places;
mod read;
pub mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_rt::Processors;
use wattle_server::exports::Address;

use crate::http::HttpAddress;

pub use fault::ConfigFault;

/// Where configurations are unless another place is named.
pub const CONFIG_DIR: &str = "/etc/wattle";

/// Files in the directory that are no stacks.
const NO_STACKS: [&str; 1] = ["alerts"];

/// A value and the line it stands in, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Its line.
    pub line: usize,
}

/// What happens to a stack of which drives are missing when the time-out is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingPolicy {
    /// It starts, as far as redundancy goes.
    Degraded,
    /// It does not start.
    Refuse,
}

/// How drives are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitPolicy {
    /// For how long.
    pub timeout: Duration,
    /// And then.
    pub missing: MissingPolicy,
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), missing: MissingPolicy::Degraded }
    }
}

/// How often the arrays of a stack are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubPolicy {
    /// A check is due so long after the last one began; `None`: never.
    pub every: Option<Duration>,
    /// It is overdue after this.
    pub overdue: Option<Duration>,
}

impl Default for ScrubPolicy {
    fn default() -> Self {
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        Self { every: days(30), overdue: days(45) }
    }
}

/// What one file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackConfig {
    /// The stack's name: the file's, without `.toml`.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// The arrays that it serves, by UUID or name; empty for all that are on the members.
    pub arrays: Vec<Placed<String>>,
    /// Where members are looked for: paths, patterns, URIs; empty for all drives.
    pub members: Vec<Placed<String>>,
    /// The volumes that it serves; empty for all.
    pub volumes: Vec<Placed<String>>,
    /// Where clients find them; empty for a socket in the runtime directory.
    pub exports: Vec<Placed<Address>>,
    /// The certificates that NBD over TCP is protected with.
    pub tls_certificates: Option<Placed<String>>,
    /// Clients without a certificate are heard too.
    pub tls_any_client: bool,
    /// Listen beyond this machine also without TLS and authentication.
    pub insecure: bool,
    /// Files with passphrases of encrypted devices, each with a passphrase as its first line.
    pub passphrase_files: Vec<Placed<String>>,
    /// Key files of encrypted devices.
    pub key_files: Vec<Placed<String>>,
    /// Drives that become spares: paths or patterns.
    pub spares: Vec<Placed<String>>,
    /// What `wattle set` sets, as `KEY=VALUE`.
    pub settings: Vec<String>,
    /// Nothing is written to members.
    pub read_only: bool,
    /// Where metrics are served.
    pub metrics: Option<Placed<HttpAddress>>,
    /// The directory of scrub histories.
    pub state_dir: Option<String>,
    /// The directory of undo logs.
    pub undo_dir: Option<String>,
    /// The number of cores.
    pub cores: Option<u16>,
    /// The processors that they run on.
    pub processors: Option<Placed<Processors>>,
    /// How drives are waited for.
    pub wait: WaitPolicy,
    /// How often its arrays are checked.
    pub scrub: ScrubPolicy,
}

/// All files of a configuration.
#[derive(Debug)]
pub struct Stacks {
    /// The good ones, by name.
    pub stacks: Vec<StackConfig>,
    /// Everything that is wrong, by file and line.
    pub faults: Vec<ConfigFault>,
    /// Where they were looked for.
    pub place: PathBuf,
}

impl Stacks {
    /// Reads all stacks of a directory, or one file.
    ///
    /// # Errors
    /// The directory or the file cannot be read. What is wrong *in* files is found in the result.
    pub fn read(place: &Path) -> Result<Self, Problem> {
        Self::read_before(place, &[])
    }

    /// The same. Where two files claim the same, that is no fault of the stack that comes first in
    /// `first`: what runs, then what is to be started.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_before(place: &Path, first: &[String]) -> Result<Self, Problem> {
        let is_dir = fs::metadata(place).map_err(|error| unreadable(place, &error))?.is_dir();
        let files = if is_dir { files_in(place)? } else { vec![place.to_owned()] };
        let mut all = Self { stacks: Vec::new(), faults: Vec::new(), place: place.to_owned() };
        for file in files {
            let text = match fs::read_to_string(&file) {
                Ok(text) => text,
                // A file that is at fault is no stack, and the others are.
                Err(error) if is_dir => {
                    all.faults.push(ConfigFault::of_file(&file, &error));
                    continue;
                }
                Err(error) => return Err(unreadable(&file, &error)),
            };
            match StackConfig::parse(&file, &text) {
                Ok(stack) => all.stacks.push(stack),
                Err(faults) => all.faults.extend(faults),
            }
        }
        let rank = |stack: &&StackConfig| first.iter().position(|name| *name == stack.name);
        let mut by_right: Vec<&StackConfig> = all.stacks.iter().collect();
        by_right.sort_by_key(|stack| rank(stack).unwrap_or(first.len()));
        let clashes = clash::clashes(&by_right);
        all.faults.extend(clashes);
        all.faults.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        Ok(all)
    }

    /// The stack of this name, if its file and what it shares with others is in order.
    ///
    /// # Errors
    /// There is no such file, or the first fault of it.
    pub fn find(&self, name: &str) -> Result<&StackConfig, Problem> {
        let of_stack = |file: &Path| stack_name(file) == name;
        if let Some(fault) = self.faults.iter().find(|fault| of_stack(&fault.file)) {
            return Err(fault.problem());
        }
        self.stacks.iter().find(|stack| stack.name == name).ok_or_else(|| {
            let names: Vec<_> = self.stacks.iter().map(|stack| stack.name.as_str()).collect();
            let there = match names.as_slice() {
                [] => "there is none".to_owned(),
                names => format!("there are {}", names.join(", ")),
            };
            Problem::new(
                Code::NoSuchStack,
                format!("no stack {name} in {}", self.place.display()),
                format!("a stack is a file NAME.toml; {there}"),
                "name one of them, another place with --config, or write one: `wattle up --scan --to DIR`",
            )
        })
    }
}

impl StackConfig {
    /// What a file's text says.
    ///
    /// # Errors
    /// Everything that is wrong in it.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Vec<ConfigFault>> {
        read::parse(file, text)
    }
}

/// What the stack of a file is called.
pub fn stack_name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn files_in(dir: &Path) -> Result<Vec<PathBuf>, Problem> {
    let entries = fs::read_dir(dir).map_err(|error| unreadable(dir, &error))?;
    let is_stack = |path: &PathBuf| {
        let name = stack_name(path);
        path.extension().is_some_and(|suffix| suffix == "toml")
            && !name.starts_with('.')
            && !NO_STACKS.contains(&name.as_str())
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_stack).collect();
    files.sort();
    Ok(files)
}

fn unreadable(place: &Path, error: &std::io::Error) -> Problem {
    Problem::new(
        Code::ConfigUnreadable,
        format!("{}: {error}", place.display()),
        "what is to be served is said there",
        "write one with `wattle up --scan --to DIR`, or name another place: --config DIR or FILE",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        dir
    }

    #[test]
    fn a_file_that_cannot_be_read_stops_no_other_stack() {
        let dir = dir(&[("a.toml", "arrays = ['a']")]);
        std::os::unix::fs::symlink("nowhere", dir.path().join("b.toml")).unwrap();
        fs::create_dir(dir.path().join("c.toml")).unwrap();
        fs::write(dir.path().join("d.toml"), [0xff]).unwrap();
        let stacks = Stacks::read(dir.path()).unwrap();
        assert!(stacks.find("a").is_ok());
        let faults: Vec<_> = stacks.faults.iter().map(|fault| (fault.place(), fault.code)).collect();
        let of = |name: &str| (format!("{}:1", dir.path().join(name).display()), Code::ConfigUnreadable);
        assert_eq!(faults, [of("b.toml"), of("c.toml"), of("d.toml")]);
    }

    #[test]
    fn a_directory_has_a_stack_for_each_file() {
        let dir = dir(&[
            ("b.toml", "arrays = ['b']"),
            ("a.toml", "arrays = ['a']"),
            ("alerts.toml", "not = 'ours'"),
            ("a.toml.dpkg-new", "arrays = ['a']"),
            (".a.toml", "arrays = ['a']"),
        ]);
        let stacks = Stacks::read(dir.path()).unwrap();
        let names: Vec<_> = stacks.stacks.iter().map(|stack| stack.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(stacks.faults, []);
        assert_eq!(stacks.find("c").unwrap_err().code, Code::NoSuchStack);
        assert_eq!(Stacks::read(&dir.path().join("b.toml")).unwrap().stacks[0].name, "b");
        assert_eq!(Stacks::read(&dir.path().join("d.toml")).unwrap_err().code, Code::ConfigUnreadable);
    }

    /// A new file is no reason not to start again what ran.
    #[test]
    fn a_clash_is_no_fault_of_what_runs_or_is_to_start() {
        let dir = dir(&[("b.toml", "arrays = ['data']"), ("a.toml", "arrays = ['data']")]);
        let blamed = |first: &[&str]| {
            let first: Vec<String> = first.iter().map(|name| (*name).to_owned()).collect();
            let stacks = Stacks::read_before(dir.path(), &first).unwrap();
            stacks.faults.iter().map(|fault| stack_name(&fault.file)).collect::<Vec<_>>()
        };
        assert_eq!((blamed(&[]), blamed(&["b"])), (vec!["b".to_owned()], vec!["a".to_owned()]));
        assert_eq!(blamed(&["c", "a", "b"]), ["b"], "a runs");
    }

    #[test]
    fn a_faulty_file_is_no_stack_and_others_are() {
        let dir = dir(&[("a.toml", "arrays = ['a']"), ("b.toml", "arrays = ['b']\nsizes = 1\n")]);
        let stacks = Stacks::read(dir.path()).unwrap();
        assert!(stacks.find("a").is_ok());
        let problem = stacks.find("b").unwrap_err();
        assert_eq!(problem.code, Code::ConfigUnknownKey);
        assert!(problem.what.contains("b.toml:2: "), "{problem}");
    }
}
