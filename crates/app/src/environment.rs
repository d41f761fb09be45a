//! What the environment, the command line and the clock say: beside `cli`, the only place that
//! reads them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wattle_control::shell_word;
use wattle_rt::{LocalTime, WallTime, text_of_path};
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

/// Where certificates of NBD clients are looked for, as libnbd has it: below the home directory,
/// then in `/etc`.
pub fn certificate_dirs() -> Vec<PathBuf> {
    let home = from_env("HOME");
    let of_home =
        home.iter().flat_map(|home| [".pki/libnbd", ".config/pki/libnbd"].map(|dir| home.join(dir)));
    of_home.chain([PathBuf::from("/etc/pki/libnbd")]).collect()
}

/// What systemd, or what else started this process, wants to hear of it.
pub struct ManagerWish {
    /// Where it is told: a path, or a name behind `@`.
    pub socket: OsString,
    /// It takes the process for dead if it hears nothing for so long.
    pub watchdog: Option<Duration>,
}

/// Names the service manager's socket, and what else it says of it.
pub const MANAGER: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// What the service manager wants to hear; `None` where there is none.
pub fn manager() -> Option<ManagerWish> {
    let [socket, watchdog, pid] =
        MANAGER.map(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    let number = |value: Option<OsString>| value.and_then(|value| value.to_str()?.parse::<u64>().ok());
    // The variables are inherited; the watchdog is of the process that they name.
    let is_ours = pid.is_none() || number(pid) == Some(std::process::id().into());
    let watchdog = number(watchdog).filter(|_| is_ours).filter(|usec| *usec > 0);
    Some(ManagerWish { socket: socket?, watchdog: watchdog.map(Duration::from_micros) })
}

/// The settings of alerts: the file asked for, as root `/etc/wattle/alerts.toml`, else
/// `$XDG_CONFIG_HOME/wattle/alerts.toml` or `~/.config/wattle/alerts.toml`.
pub fn alerts_file(asked: Option<&Path>) -> PathBuf {
    let of_xdg = || from_env("XDG_CONFIG_HOME");
    let of_home = || from_env("HOME").map(|home| home.join(".config"));
    let of_user = || of_xdg().or_else(of_home).filter(|_| wattle_rt::effective_user() != 0);
    let name = |dir: PathBuf| dir.join("wattle/alerts.toml");
    asked.map_or_else(|| name(of_user().unwrap_or_else(|| PathBuf::from("/etc"))), Path::to_owned)
}

/// What tells this machine from others: its id, or else what it is called.
pub fn machine() -> String {
    const PLACES: [&str; 2] = ["/etc/machine-id", "/proc/sys/kernel/hostname"];
    let read = |place| std::fs::read_to_string(place).ok().map(|text: String| text.trim().to_owned());
    PLACES.into_iter().filter_map(read).find(|text| !text.is_empty()).unwrap_or_default()
}

/// How wide the terminal is, if the environment says it.
pub fn columns() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0)
}

/// The command as it was typed.
pub fn typed() -> String {
    let words: Vec<_> = std::env::args_os().map(|word| shell_word(&text_of_path(word))).collect();
    words.join(" ")
}

/// Whether an option of the command names a key, or has a passphrase asked for.
pub fn typed_keys() -> bool {
    const OPTIONS: [&str; 4] = ["--unlock", "--passphrase-file", "--key-file", "--volume-key-file"];
    let is_one = |word: String| OPTIONS.contains(&word.split('=').next().unwrap_or_default());
    std::env::args_os().map(text_of_path).any(is_one)
}

/// Seconds since 1970 as C's `ctime` has them in local time, 24 characters: `Tue Nov 24 12:32:27
/// 2026`.
pub fn local_time(secs: u64) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Some(time) = LocalTime::of(secs) else { return String::new() };
    let (day, month) = (DAYS[usize::from(time.weekday) % 7], MONTHS[usize::from(time.month) % 12]);
    let LocalTime { day: of_month, hour, minute, second, year, .. } = time;
    let mut text = format!("{day} {month} {of_month:2} {hour:02}:{minute:02}:{second:02} {year}");
    // A year of five digits, which only a damaged superblock has, is cut off like that by mdadm.
    text.truncate(24);
    text
}

/// A clock that is never set: at the start of a machine the other one may jump by years.
#[allow(clippy::disallowed_methods, reason = "the time enters here; below, it is a value")]
pub fn clock() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods, reason = "the time enters here; below, it is a value")]
pub fn now() -> WallTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime { secs: since_epoch.as_secs(), micros: since_epoch.subsec_micros() }
}
