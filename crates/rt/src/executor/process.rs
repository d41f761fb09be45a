//! Signals, children, and the promise to the kernel that this process is part of the block path.
//!
//! Signals: helper threads block those that ask a process to end from the start, the first core's
//! thread only once a task awaits [`Core::terminated`]. So a program that never asks dies of Ctrl-C
//! as any other, and one that asks gets to put its arrays to rest.

use crate::base::error::IoError;
use crate::base::system::{change_mask, empty_set, end_at_file_limit, termination_set};
use crate::executor::core::{Core, CoreIx};
use crate::placement;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// Which signal asked the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `SIGTERM`.
    Terminate,
    /// `SIGINT`: Ctrl-C.
    Interrupt,
    /// `SIGHUP`: its terminal is gone.
    Hangup,
}

impl Core {
    /// Waits for `SIGTERM`, `SIGINT` or, unless the process ignores it, `SIGHUP`. From the first
    /// poll on they no longer kill the process, and each one sent ends one wait: a second Ctrl-C
    /// can be awaited by calling this again. A simulated world has no signals: there this waits for
    /// ever.
    ///
    /// # Cancellation
    /// Dropping the future loses no signal that the next call would not see; the signals stay
    /// blocked until the runtime ends.
    pub async fn terminated(&self) -> Result<Signal, IoError> {
        if self.is_simulated() {
            std::future::pending::<()>().await;
        }
        self.call(CoreIx(0), |core| async move { wait_for_signal(&core).await }).await
    }

    /// Starts a child process. It gets an open signal mask, whatever this process blocks, and is no
    /// I/O flusher, whatever this process is, and goes where this process could go before its cores
    /// were placed. It leads a process group of its own, so that signals
    /// reach what it starts; but where this process is a terminal's foreground job the child has to
    /// stay part of that, or it could not read from the terminal. A simulated world has no
    /// processes and answers `Unsupported`.
    pub fn spawn_child(&self, mut command: Command) -> Result<Child, IoError> {
        if self.is_simulated() {
            return Err(IoError::UNSUPPORTED);
        }
        let open = empty_set();
        let leads_group = !is_foreground_job();
        if leads_group {
            command.process_group(0);
        }
        // SAFETY: between fork and exec only pthread_sigmask, prctl, sched_setaffinity and signal
        // are called, which are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                change_mask(libc::SIG_SETMASK, &open);
                // Without the privilege this process is none, and neither is the child.
                let _ = change_io_flusher(false);
                placement::leave();
                end_at_file_limit(true);
                Ok(())
            })
        };
        let mut child = command.spawn().map_err(|error| IoError::from_std(&error))?;
        let pidfd = open_pidfd(child.id()).inspect_err(|_| {
            // What cannot be watched is not left to itself.
            let _ = child.kill();
            let _ = child.wait();
        })?;
        Ok(Child { child, pidfd, leads_group, has_ended: false })
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
    // SAFETY: the kernel just returned this descriptor, and nothing else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    loop {
        core.readable(&fd).await?;
        // SAFETY: the record is plain integers and as large as what a signalfd gives.
        let (count, record) = unsafe {
            let mut record: libc::signalfd_siginfo = std::mem::zeroed();
            let len = size_of::<libc::signalfd_siginfo>();
            (libc::read(fd.as_raw_fd(), (&raw mut record).cast(), len), record)
        };
        // Another task may have been faster.
        if count > 0 {
            return Ok(match record.ssi_signo.cast_signed() {
                libc::SIGTERM => Signal::Terminate,
                libc::SIGHUP => Signal::Hangup,
                _ => Signal::Interrupt,
            });
        }
    }
}

/// Whether this process belongs to the job that its terminal, if it has one, listens to.
fn is_foreground_job() -> bool {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    // SAFETY: both only take integers; `terminal` keeps the descriptor open.
    unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) == libc::getpgrp() }
}

/// The user id that the kernel checks this process's rights by.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

fn open_pidfd(pid: u32) -> Result<OwnedFd, IoError> {
    // SAFETY: pidfd_open only takes integers. The child has not been waited for, so the id is still
    // its.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(IoError::last_os());
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A child process. Dropping it leaves it running.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    pidfd: OwnedFd,
    /// Signals go to its process group.
    leads_group: bool,
    /// It was waited for: its id may be another process's.
    has_ended: bool,
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
                self.has_ended = true;
                return Ok(status);
            }
            core.readable(&self.pidfd).await?;
        }
    }

    /// Sends it, and what it has started in its group, a signal, such as `libc::SIGTERM` (15). A
    /// child that has ended takes none, which is fine.
    pub fn signal(&self, signal: i32) {
        if self.leads_group && !self.has_ended {
            // SAFETY: kill only takes integers. The child has not been waited for, so the id is
            // still its own, and that of its group.
            unsafe { libc::kill(-self.child.id().cast_signed(), signal) };
            return;
        }
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo is allowed; the descriptor names this very child, whatever became
        // of its id.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), signal, nothing, 0) };
    }
}

/// Tells the kernel that this process writes back other processes' data, so that its own memory
/// requests never wait for that very writeback (`PR_SET_IO_FLUSHER`, Linux 5.6). Needs
/// `CAP_SYS_RESOURCE`: without it the answer is `EPERM`, which only means that a file system on our
/// own export may deadlock when memory is short.
pub fn set_io_flusher() -> Result<(), IoError> {
    change_io_flusher(true)
}

/// Lets other processes go first, servers above all: this one, and what it starts from now on, only
/// watches, and must not be felt by clients. It still gets a tenth of what a busy process does
/// (nice 10), so it goes on on a machine that has no idle processor, and it does not interrupt what
/// runs (`SCHED_BATCH`). Call it before threads are started. A system that refuses changes nothing.
pub fn stand_back() {
    const NICE: libc::c_int = 10;
    // SAFETY: integers, of which musl has more than glibc, and of all of which zero is a value.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the calls take integers and a live struct that is only read; 0 is this thread.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters);
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}

fn change_io_flusher(on: bool) -> Result<(), IoError> {
    const PR_SET_IO_FLUSHER: i32 = 57;
    // SAFETY: this prctl only takes integers.
    let rc = unsafe { libc::prctl(PR_SET_IO_FLUSHER, libc::c_ulong::from(on), 0, 0, 0) };
    if rc == 0 { Ok(()) } else { Err(IoError::last_os()) }
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime only writes the timespec, which lives until it returns. A thread always
    // has this clock, so it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
