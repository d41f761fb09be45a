//! Signals, children, and the promise to the kernel that this process is part of the block path.
//!
//! Signals: helper threads block `SIGTERM` and `SIGINT` from the start, the first core's thread only once somebody
//! awaits [`Core::terminated`]. So a program that never asks dies of Ctrl-C as any other, and one that asks gets to
//! put its arrays to rest.

use crate::core::{Core, CoreIx};
use crate::error::IoError;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};

/// Which signal asked the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `SIGTERM`.
    Terminate,
    /// `SIGINT`: Ctrl-C.
    Interrupt,
}

/// The two signals that ask the process to end.
fn termination_set() -> libc::sigset_t {
    // SAFETY: a sigset is plain integers, and sigemptyset makes it valid before the signals are added.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        set
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a sigset is plain integers, and sigemptyset makes it valid.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        set
    }
}

/// Changes this thread's signal mask and returns the old one.
fn change_mask(how: i32, set: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: both sets are live; a zeroed set is a valid place for the old mask.
    unsafe {
        let mut old = std::mem::zeroed();
        libc::pthread_sigmask(how, set, &raw mut old);
        old
    }
}

/// Puts this thread's signal mask back when dropped.
pub(crate) struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Remembers the mask of this thread.
    pub(crate) fn keep() -> SignalMask {
        SignalMask(change_mask(libc::SIG_BLOCK, &empty_set()))
    }

    /// Blocks every signal in this thread, a helper: signals belong to the first core's thread.
    pub(crate) fn block_all() {
        // SAFETY: sigfillset makes the set valid.
        let all = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigfillset(&raw mut set);
            set
        };
        change_mask(libc::SIG_BLOCK, &all);
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, &self.0);
    }
}

impl Core {
    /// Waits for `SIGTERM` or `SIGINT`. From the first poll on they no longer kill the process, and each one sent
    /// ends one wait: a second Ctrl-C can be awaited by calling this again. A simulated world has no signals: there
    /// this waits for ever.
    ///
    /// # Cancellation
    /// Dropping the future loses no signal that the next call would not see; the signals stay blocked until the
    /// runtime ends.
    pub async fn terminated(&self) -> Result<Signal, IoError> {
        if self.is_simulated() {
            std::future::pending::<()>().await;
        }
        self.call(CoreIx(0), |core| async move { wait_for_signal(&core).await }).await
    }

    /// Starts a child process. It gets an open signal mask, whatever this process blocks. A simulated
    /// world has no processes and answers `Unsupported`.
    pub fn spawn_child(&self, mut command: Command) -> Result<Child, IoError> {
        if self.is_simulated() {
            return Err(IoError::UNSUPPORTED);
        }
        let open = empty_set();
        // SAFETY: between fork and exec only pthread_sigmask is called, which is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                change_mask(libc::SIG_SETMASK, &open);
                Ok(())
            })
        };
        let child = command.spawn().map_err(|error| IoError::from_std(&error))?;
        let pidfd = open_pidfd(child.id())?;
        Ok(Child { child, pidfd })
    }
}

async fn wait_for_signal(core: &Core) -> Result<Signal, IoError> {
    let set = termination_set();
    change_mask(libc::SIG_BLOCK, &set);
    // SAFETY: the set is live; the kernel makes a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(IoError::last_os());
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    loop {
        core.readable(&fd).await?;
        // SAFETY: the record is plain integers and as large as what a signalfd gives.
        let (count, record) = unsafe {
            let mut record: libc::signalfd_siginfo = std::mem::zeroed();
            let len = size_of::<libc::signalfd_siginfo>();
            (libc::read(fd.as_raw_fd(), (&raw mut record).cast(), len), record)
        };
        // Somebody else may have been faster.
        if count > 0 {
            let terminate = record.ssi_signo == libc::SIGTERM.cast_unsigned();
            return Ok(if terminate { Signal::Terminate } else { Signal::Interrupt });
        }
    }
}

fn open_pidfd(pid: u32) -> Result<OwnedFd, IoError> {
    // SAFETY: pidfd_open only takes integers. The child has not been waited for, so the id is still its.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(IoError::last_os());
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A child process. Dropping it leaves it running.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    pidfd: OwnedFd,
}

impl Child {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for it to end.
    ///
    /// # Cancellation
    /// Dropping the future only stops the waiting.
    pub async fn wait(&mut self, core: &Core) -> Result<ExitStatus, IoError> {
        loop {
            if let Some(status) = self.child.try_wait().map_err(|error| IoError::from_std(&error))? {
                return Ok(status);
            }
            core.readable(&self.pidfd).await?;
        }
    }

    /// Sends it a signal, such as `libc::SIGTERM` (15). One that has ended takes none, which is fine.
    pub fn signal(&self, signal: i32) {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo is allowed; the descriptor names this very child, whatever became of its id.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), signal, nothing, 0) };
    }
}

/// Tells the kernel that this process writes back other processes' data, so that its own memory requests never wait
/// for that very writeback (`PR_SET_IO_FLUSHER`, Linux 5.6). Needs `CAP_SYS_RESOURCE`: without it the answer is
/// `EPERM`, which only means that a file system on our own export may deadlock when memory is short.
pub fn set_io_flusher() -> Result<(), IoError> {
    const PR_SET_IO_FLUSHER: i32 = 57;
    // SAFETY: this prctl only takes integers.
    let rc = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    if rc == 0 { Ok(()) } else { Err(IoError::last_os()) }
}

/// This thread's sleeps end when they should, not up to 50 µs later (`PR_SET_TIMERSLACK`).
pub(crate) fn sleep_exactly() {
    // SAFETY: this prctl only takes integers. It cannot fail for the caller's own thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// A limit that nobody has by accident.
const LOCKED_BYTES_MIN: u64 = 1 << 30;

/// Whether this process may lock memory, and nobody is to count it: with `CAP_IPC_LOCK` where that counts, or a limit that is none.
pub(crate) fn may_lock_memory() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let caps = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let caps = caps.and_then(|caps| u64::from_str_radix(caps.trim(), 16).ok()).unwrap_or(0);
    // Who is somebody only in a user namespace of his own has a limit all the same.
    let everywhere = read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    if everywhere && caps >> CAP_IPC_LOCK & 1 == 1 {
        return true;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit fills in the live `limit`.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    rc == 0 && limit.rlim_cur >= LOCKED_BYTES_MIN
}
