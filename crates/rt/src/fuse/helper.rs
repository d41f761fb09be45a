//! `fusermount3`: mounts and unmounts for users without the right to do so. It opens the device,
//! mounts it, and hands the descriptor over a socket whose number it finds in the environment.

use super::{MountError, UnmountError, device_error};
use crate::base::error::IoError;
use crate::stream::Stream;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const HELPER: &str = "fusermount3";
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

pub(super) fn mount(dir: &Path, read_only: bool) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = UnixStream::pair().map_err(|error| IoError::from_std(&error))?;
    let access = if read_only { "ro" } else { "rw" };
    let options = format!("fsname=wattle,subtype=wattle,default_permissions,nosuid,nodev,noexec,{access}");
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(options).arg("--").arg(dir);
    command.env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string()).stdin(Stdio::null());
    let theirs_fd = theirs.as_raw_fd();
    // SAFETY: between fork and exec only fcntl is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            // The child inherits its end, everything else of ours closes itself.
            if libc::fcntl(theirs_fd, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    };
    let status = command.status().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper,
        _ => IoError::from_std(&error).into(),
    })?;
    drop(theirs);
    if !status.success() {
        return Err(MountError::HelperRefused);
    }
    let session = take_descriptor(ours).map_err(device_error)?;
    // SAFETY: fcntl only takes integers; the descriptor is ours and open.
    let rc = unsafe { libc::fcntl(session.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    if rc == 0 { Ok(session) } else { Err(IoError::last_os().into()) }
}

pub(super) fn unmount(dir: &Path, lazily: bool) -> Result<(), UnmountError> {
    let mut command = Command::new(HELPER);
    command.args(["-u", "-q"]).args(lazily.then_some("-z")).arg("--").arg(dir);
    let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        // It has one status for everything; what is left mounted is mostly in use.
        Ok(_) if super::mount_at(dir).is_some() => Err(UnmountError::Busy),
        Ok(_) => Err(UnmountError::NotMounted),
        Err(error) => Err(IoError::from_std(&error).into()),
    }
}

/// The descriptor that was sent along with a byte.
fn take_descriptor(socket: UnixStream) -> Result<OwnedFd, IoError> {
    // The program has ended: what it sent is here.
    let (_, mut descriptors) = Stream::from(socket).try_receive_along(&mut [0])?;
    descriptors.pop().ok_or(IoError::INVALID)
}
