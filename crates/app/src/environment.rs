//! What the environment, the command line and the clock say: beside `cli`, the only place that
//! reads them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use wattle_control::create::shell_word;
use wattle_rt::WallTime;
use wattle_server::history::StateDir;
use wattle_server::socket::RuntimeDir;

fn from_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Names the runtime directory.
pub const RUNTIME_DIR: &str = "WATTLE_RUNTIME_DIR";

/// The runtime directory: the one asked for, `$WATTLE_RUNTIME_DIR`, `$XDG_RUNTIME_DIR/wattle` or
/// `/run/wattle`.
pub fn runtime_dir(asked: Option<&Path>) -> RuntimeDir {
    let asked = asked.map(Path::to_owned).or_else(|| from_env(RUNTIME_DIR));
    let asked_for = asked.is_some();
    let default = || from_env("XDG_RUNTIME_DIR").map(|dir| dir.join("wattle"));
    let path = asked.or_else(default).unwrap_or_else(|| PathBuf::from("/run/wattle"));
    RuntimeDir::new(path, asked_for)
}

/// The state directory: the one asked for, `$WATTLE_STATE_DIR`, as root `/var/lib/wattle`, else
/// `$XDG_STATE_HOME/wattle` or `~/.local/state/wattle`; none for a user without a home.
pub fn state_dir(asked: Option<&Path>) -> StateDir {
    let is_root = || fs::metadata("/proc/self").is_ok_and(|us| us.uid() == 0);
    let named = asked.map(Path::to_owned).or_else(|| from_env("WATTLE_STATE_DIR"));
    let of_xdg = || from_env("XDG_STATE_HOME").map(|dir| dir.join("wattle"));
    let of_root = || is_root().then(|| PathBuf::from("/var/lib/wattle"));
    let of_home = || from_env("HOME").map(|home| home.join(".local/state/wattle"));
    StateDir::new(named.or_else(of_xdg).or_else(of_root).or_else(of_home))
}

/// How wide the terminal is, if the environment says it.
pub fn columns() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0)
}

/// The command as it was typed.
pub fn typed() -> String {
    let words: Vec<_> = std::env::args().map(|word| shell_word(&word)).collect();
    words.join(" ")
}

#[allow(clippy::disallowed_methods, reason = "the time enters here; below, it is a value")]
pub fn now() -> WallTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime { secs: since_epoch.as_secs(), micros: since_epoch.subsec_micros() }
}
