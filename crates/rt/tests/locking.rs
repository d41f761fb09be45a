//! Which owners may open a member beside which others: us, and QEMU with its image locks.
//!
//! QEMU's tools that are not installed skip their test, loudly; with `CI` in the environment they
//! fail it.
#![allow(unsafe_code, reason = "locks as QEMU takes them, by hand")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "waits for another process")]

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wattle_rt::{Device, Lock, OpenError, OpenOptions};

/// A child that a test starts has for a moment, until its `exec`, the descriptors of all tests, and
/// with them their locks. So one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn member() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    file
}

fn open(path: &Path, lock: Lock) -> Result<Device, OpenError> {
    Device::open(path, OpenOptions { write: lock == Lock::Exclusive, lock, ..OpenOptions::default() })
}

/// What each lock gets, opened one after the other.
fn opens(path: &Path) -> [Result<(), OpenError>; 3] {
    [Lock::None, Lock::Shared, Lock::Exclusive].map(|lock| open(path, lock).map(drop))
}

const LOCKED: Result<(), OpenError> = Err(OpenError::Locked);

/// Another open of `path` that holds a lock of `kind` on each of `bytes`.
fn locked_by_hand(path: &Path, kind: i32, bytes: &[i64]) -> File {
    let file = File::options().read(true).write(true).open(path).unwrap();
    for &byte in bytes {
        let request = libc::flock {
            l_type: kind as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: byte,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: F_OFD_SETLK reads one flock structure, which lives on our stack.
        let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const request) };
        assert_eq!(rc, 0, "byte {byte}: {}", std::io::Error::last_os_error());
    }
    file
}

#[test]
fn our_own_opens_conflict_as_with_flock_alone() {
    let _alone = alone();
    let member = member();
    let exclusive = open(member.path(), Lock::Exclusive).unwrap();
    assert_eq!(opens(member.path()), [Ok(()), LOCKED, LOCKED]);
    drop(exclusive);
    let shared = open(member.path(), Lock::Shared).unwrap();
    assert_eq!(opens(member.path()), [Ok(()), Ok(()), LOCKED]);
    drop(shared);
    assert_eq!(opens(member.path()), [Ok(()); 3]);
    let _none = open(member.path(), Lock::None).unwrap();
    assert_eq!(opens(member.path()), [Ok(()); 3]);
}

#[test]
fn qemus_claims_are_respected() {
    let _alone = alone();
    let (none, readers, all) = ([Ok(()), LOCKED, LOCKED], [Ok(()), Ok(()), LOCKED], [Ok(()); 3]);
    for (who, bytes, expected) in [
        ("a virtual machine", &[100, 101, 201][..], none),
        ("a virtual machine, share-rw=on", &[100, 101], none),
        ("qemu-nbd", &[100, 101, 203], none),
        ("a resizing owner", &[103], none),
        ("an owner that lets nobody read", &[200], none),
        ("a reader that shares nothing but read", &[100, 201, 202, 203], readers),
        ("a virtual machine, readonly=on", &[100, 201], readers),
        ("a copy on read", &[100, 102], readers),
        ("qemu-nbd --read-only, which does not mind writers", &[100, 203], all),
        ("qemu-io -r, which does not mind writers", &[100], all),
        ("nobody: bytes beside those of the protocol", &[99, 104, 199, 204], all),
    ] {
        let member = member();
        let qemu = locked_by_hand(member.path(), libc::F_RDLCK, bytes);
        assert_eq!(opens(member.path()), expected, "{who}");
        drop(qemu);
        assert_eq!(opens(member.path()), all, "{who}, gone");
    }
}

#[test]
fn a_program_that_write_locks_whole_files_is_noticed() {
    let _alone = alone();
    let member = member();
    let _other = locked_by_hand(member.path(), libc::F_WRLCK, &[100]);
    assert_eq!(opens(member.path()), [Ok(()), LOCKED, LOCKED]);
}

#[test]
fn the_real_qemu_nbd_keeps_us_out() {
    let _alone = alone();
    let Some(member) = qcow2_member() else { return };
    // A raw image's reader shares it with writers; one of qcow2 does not.
    for (args, expected) in [
        (&["--format=raw"][..], [Ok(()), LOCKED, LOCKED]),
        (&["--format=qcow2", "--read-only"], [Ok(()), Ok(()), LOCKED]),
        (&["--format=raw", "--read-only"], [Ok(()); 3]),
    ] {
        let Some(server) = QemuNbd::start(member.path(), args) else { return };
        assert_eq!(opens(member.path()), expected, "{args:?}");
        drop(server);
        assert_eq!(opens(member.path()), [Ok(()); 3], "{args:?}, gone");
    }
}

#[test]
fn the_real_qemu_io_is_kept_out_by_us() {
    let _alone = alone();
    let Some(member) = qcow2_member() else { return };
    // Whether it got to read or write, which it tells.
    let qemu_io = |args: &[&str]| {
        let output = tool("qemu-io")?.args(args).arg(member.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || stderr.contains("lock"), "failed for another reason: {stderr}");
        Some(output.status.success())
    };
    // Beyond the header of the image, which must stay one.
    let write = &["-f", "raw", "-c", "write 512k 512"][..];
    let read_qcow2 = &["-r", "-f", "qcow2", "-c", "read 0 512"][..];
    let read_sharing_all = &["-U", "-r", "-f", "qcow2", "-c", "read 0 512"][..];
    let who_may = || Some([qemu_io(write)?, qemu_io(read_qcow2)?, qemu_io(read_sharing_all)?]);

    let Some(at_first) = who_may() else { return };
    assert_eq!(at_first, [true; 3]);
    let exclusive = open(member.path(), Lock::Exclusive).unwrap();
    assert_eq!(who_may(), Some([false, false, true]));
    drop(exclusive);
    let shared = open(member.path(), Lock::Shared).unwrap();
    assert_eq!(who_may(), Some([false, true, true]));
    drop(shared);
    assert_eq!(who_may(), Some([true; 3]));
}

#[test]
fn a_lock_that_is_given_back_soon_is_waited_for() {
    let _alone = alone();
    let member = member();
    let path = member.path().to_owned();
    let first = open(&path, Lock::Exclusive).unwrap();
    let wait = |patience| {
        let path = path.clone();
        let options = OpenOptions { lock: Lock::Shared, patience, ..OpenOptions::default() };
        std::thread::spawn(move || Device::open(&path, options).map(drop))
    };
    assert_eq!(wait(Duration::from_millis(50)).join().unwrap(), LOCKED);
    let waiting = wait(Duration::from_mins(1));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    drop(first);
    assert_eq!(waiting.join().unwrap(), Ok(()));
}

/// A member that QEMU can open as qcow2 too.
fn qcow2_member() -> Option<tempfile::NamedTempFile> {
    let member = member();
    let status =
        tool("qemu-img")?.args(["create", "-q", "-f", "qcow2"]).arg(member.path()).arg("1M").status();
    assert!(status.unwrap().success());
    member.as_file().set_len(1 << 20).unwrap();
    Some(member)
}

/// The command, if the tool is there.
fn tool(name: &str) -> Option<Command> {
    match Command::new(name).arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => Some(Command::new(name)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{name} is not installed, and this is CI: {error}");
            eprintln!("SKIPPED: {name} is not installed: {error}");
            None
        }
    }
}

/// A server that has the file open, until it is dropped.
struct QemuNbd {
    child: Child,
    /// Connected until it is killed, lest it complains.
    client: Option<UnixStream>,
    _dir: tempfile::TempDir,
}

impl QemuNbd {
    fn start(file: &Path, args: &[&str]) -> Option<QemuNbd> {
        // In the short temporary directory: the path of a socket holds 108 bytes.
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nbd");
        let mut command = tool("qemu-nbd")?;
        let child =
            command.args(args).args(["--persistent", "--socket"]).arg(&socket).arg(file).spawn().unwrap();
        let mut server = QemuNbd { child, client: None, _dir: dir };
        // It greets a client only when it has opened the file.
        for _ in 0..1000 {
            assert_eq!(server.child.try_wait().unwrap(), None, "qemu-nbd gave up");
            if let Ok(mut stream) = UnixStream::connect(&socket) {
                let mut greeting = [0; 8];
                stream.read_exact(&mut greeting).unwrap();
                assert_eq!(&greeting, b"NBDMAGIC");
                server.client = Some(stream);
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("qemu-nbd does not listen");
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        // An error means it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
