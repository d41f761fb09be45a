//! The runtime directory: where servers put their sockets and commands look for them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use wattle_control::{Code, Problem};
use wattle_rt::Listener;

use super::trust::{self, PathFault, Unsafe};

/// Control sockets end in this.
const SUFFIX: &str = "sock";

/// Where servers are found.
#[derive(Debug, Clone)]
pub struct RuntimeDir {
    path: PathBuf,
    /// It was named on the command line, so it has to work.
    pub asked_for: bool,
}

impl RuntimeDir {
    /// At this path; `asked_for` if an operator named it, so that it has to work.
    pub fn new(path: PathBuf, asked_for: bool) -> Self {
        Self { path, asked_for }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it if it is not there, and checks that no other user could replace what is in it.
    ///
    /// # Errors
    /// It cannot be made, or is not safe.
    pub fn make(&self) -> Result<(), Problem> {
        let shown = self.path.display();
        let failed = |error: io::Error| {
            Problem::new(
                Code::ListenFailed,
                format!("the runtime directory {shown} cannot be made: {error}"),
                "the socket that `wattle status`, `fail` and `stop` use goes there",
                "name a directory of yours: --runtime-dir DIR, or WATTLE_RUNTIME_DIR",
            )
        };
        self.check_safe(Code::ListenFailed)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(failed)?;
        self.check_safe(Code::ListenFailed)
    }

    /// Checks that only this user and root can have made what is in it. A directory that is not
    /// there is safe.
    fn check_safe(&self, code: Code) -> Result<(), Problem> {
        let shown = self.path.display();
        let us = wattle_rt::effective_user();
        let found = trust::unsafety(&self.path, us).map_err(|error| {
            Problem::new(
                Code::PermissionDenied,
                format!("the runtime directory {shown} cannot be looked at: {error}"),
                "servers of another user may be there, and this user cannot tell",
                "ask as the user that serves, or name another directory: --runtime-dir DIR",
            )
        })?;
        let Some(Unsafe { place, fault }) = found else { return Ok(()) };
        let what = match place == self.path {
            true => format!("the runtime directory {shown} {fault}"),
            false => format!("the runtime directory {shown} is not safe: {} {fault}", place.display()),
        };
        let own = match (&fault, self.asked_for) {
            (PathFault::Mode(_), _) => format!("chmod go-w {}, or name another one", place.display()),
            (PathFault::Owner(owner), true) => {
                format!("run it as that user (sudo -u '#{owner}'), or name a directory of yours")
            }
            (_, true) => "name a directory of yours".to_owned(),
            // What `sudo -E` and `su` leave behind.
            (_, false) => "unset XDG_RUNTIME_DIR, which names it, or name a directory of yours".to_owned(),
        };
        Err(Problem::new(
            code,
            what,
            format!("a user that can replace the control socket can pretend to be the server of user {us}"),
            format!("{own}: --runtime-dir DIR"),
        ))
    }

    /// Where the server of this name listens for commands.
    pub fn control_socket(&self, server: &str) -> PathBuf {
        self.path.join(format!("{}.{SUFFIX}", file_name(server)))
    }

    /// Where the server of this name listens for NBD clients if nothing else is said.
    pub fn nbd_socket(&self, server: &str) -> PathBuf {
        self.path.join(format!("{}.nbd", file_name(server)))
    }

    /// Whether this user can make sockets in it, once it is there and safe: its owner can, and
    /// root.
    pub fn is_ours(&self) -> bool {
        let us = wattle_rt::effective_user();
        // Where that cannot be told, trying will.
        fs::metadata(&self.path).map_or(true, |metadata| us == 0 || us == metadata.uid())
    }

    /// Checks whether its sockets can be listed and trusted: an error is not the same as no
    /// sockets.
    ///
    /// # Errors
    /// Why not; a directory that is not there has no sockets.
    pub fn check(&self) -> Result<(), Problem> {
        self.check_safe(Code::PermissionDenied)?;
        match fs::read_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Problem::new(
                Code::PermissionDenied,
                format!("the runtime directory {} cannot be read: {error}", self.path.display()),
                "servers of another user may be there, and cannot be seen",
                "ask as the user that serves, or name another directory: --runtime-dir DIR",
            )),
            _ => Ok(()),
        }
    }

    /// Control sockets that are there, dead ones included, sorted.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let is_socket = |path: &PathBuf| {
            path.extension().is_some_and(|suffix| suffix == SUFFIX)
                && fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
        };
        let mut sockets: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_socket).collect();
        sockets.sort();
        sockets
    }

    /// Removes the sockets of a server that ended without taking them away. Until then it counts as
    /// dead: other servers leave what tells of it alone.
    pub fn forget(&self, server: &str) {
        for socket in [self.control_socket(server), self.nbd_socket(server)] {
            Listener::remove_dead(&socket);
        }
    }
}

/// Lets only the owner connect.
///
/// # Errors
/// The operating system's.
pub fn restrict(socket: &Path) -> io::Result<()> {
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))
}

/// Whether a socket can have this path: the system's own message for one that is too long says
/// nothing.
///
/// # Errors
/// Why it cannot.
pub fn check_socket_path(path: &Path) -> Result<(), String> {
    /// `sun_path` has 108 bytes, the last one a zero.
    const LEN_MAX: usize = 107;
    match path.as_os_str().len() {
        ..=LEN_MAX => Ok(()),
        len => Err(format!("the path has {len} bytes, and that of a socket at most {LEN_MAX}")),
    }
}

/// A server's name as a file name: array names come from drives and may hold anything.
fn file_name(server: &str) -> String {
    /// Far below the 108 bytes that the path of a socket may have.
    const LEN_MAX: usize = 40;
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_+@".contains(c) { c } else { '_' };
    server.chars().map(safe).take(LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_name_from_a_drive_stays_inside_the_directory() {
        let dir = RuntimeDir { path: PathBuf::from("/run/wattle"), asked_for: false };
        assert_eq!(dir.control_socket("../../etc/x"), Path::new("/run/wattle/______etc_x.sock"));
        assert_eq!(dir.nbd_socket("data"), Path::new("/run/wattle/data.nbd"));
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_said_to_be() {
        let path = |len: usize| PathBuf::from("x".repeat(len));
        assert_eq!(check_socket_path(&path(107)), Ok(()));
        assert!(check_socket_path(&path(108)).unwrap_err().contains("108"));
        let temp = tempfile::tempdir().unwrap();
        let longest = temp.path().join("x".repeat(107 - temp.path().as_os_str().len() - 1));
        assert!(UnixListener::bind(&longest).is_ok());
    }

    #[test]
    fn only_dead_sockets_are_forgotten() {
        let temp = tempfile::tempdir().unwrap();
        let dir = RuntimeDir { path: temp.path().to_owned(), asked_for: true };
        let live = UnixListener::bind(dir.control_socket("live")).unwrap();
        drop(UnixListener::bind(dir.control_socket("dead")).unwrap());
        fs::write(temp.path().join("file.sock"), "not a socket").unwrap();
        assert_eq!(dir.sockets().len(), 2);
        dir.forget("live");
        assert_eq!(dir.sockets().len(), 2, "it serves, and the other one was not named");
        dir.forget("dead");
        dir.forget("file");
        assert_eq!(dir.sockets(), [dir.control_socket("live")]);
        assert!(temp.path().join("file.sock").exists());
        drop(live);
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = RuntimeDir { path: temp.path().join("a/b"), asked_for: true };
        dir.make().unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(dir.make().unwrap_err().code, Code::ListenFailed);
        assert_eq!(dir.check().unwrap_err().code, Code::PermissionDenied);
    }

    #[test]
    fn one_in_the_directory_of_another_user_is_not_made() {
        let temp = tempfile::tempdir().unwrap();
        if std::os::unix::fs::chown(temp.path(), Some(12345), None).is_err() {
            return; // Only root can give it away.
        }
        let dir = RuntimeDir { path: temp.path().join("wattle"), asked_for: false };
        let refused = dir.make().unwrap_err();
        assert_eq!(refused.code, Code::ListenFailed);
        assert!(refused.what.contains("belongs to user 12345"), "{}", refused.what);
        assert!(refused.next.contains("XDG_RUNTIME_DIR"), "{}", refused.next);
        assert!(!dir.path().exists());
        assert_eq!(dir.check().unwrap_err().code, Code::PermissionDenied);
    }
}
