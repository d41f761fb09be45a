//! What a thread asks of the system for itself: signal masks, exact sleeps, locked memory.

use std::sync::atomic::{AtomicI32, Ordering};

/// Miri has neither signals nor masks of them.
const NO_SIGNALS: bool = cfg!(miri);

/// The signals that ask the process to end. `SIGHUP` does not where it is ignored, as under
/// `nohup`: once it is blocked, a signalfd would be given it all the same.
pub(crate) fn termination_set() -> libc::sigset_t {
    let hangs_up = action_of(libc::SIGHUP).is_some_and(|action| action.sa_sigaction != libc::SIG_IGN);
    // SAFETY: a sigset is plain integers, and sigemptyset makes it valid before the signals are
    // added.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        if hangs_up {
            libc::sigaddset(&raw mut set, libc::SIGHUP);
        }
        set
    }
}

/// What the process does when it is sent this signal.
fn action_of(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: an action is plain integers; the call only writes the live `action`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action)
    }
}

pub(crate) fn empty_set() -> libc::sigset_t {
    // SAFETY: a sigset is plain integers, and sigemptyset makes it valid.
    unsafe {
        let mut set = std::mem::zeroed();
        if !NO_SIGNALS {
            libc::sigemptyset(&raw mut set);
        }
        set
    }
}

/// Changes this thread's signal mask and returns the old one.
pub(crate) fn change_mask(how: i32, set: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: both sets are live; a zeroed set is a valid place for the old mask.
    unsafe {
        let mut old = std::mem::zeroed();
        if !NO_SIGNALS {
            libc::pthread_sigmask(how, set, &raw mut old);
        }
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
    /// What the thread itself did wrong is told to itself.
    pub(crate) fn block_all() {
        if NO_SIGNALS {
            return;
        }
        // SAFETY: sigfillset makes the set valid.
        let all = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigfillset(&raw mut set);
            for own in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL] {
                libc::sigdelset(&raw mut set, own);
            }
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

/// Whether a write beyond what a file of this process may be (`ulimit -f`) ends the process, or is
/// a failed write like any.
pub(crate) fn end_at_file_limit(ends: bool) {
    let action = if ends { libc::SIG_DFL } else { libc::SIG_IGN };
    // SAFETY: neither action is a function that could be called. It is async-signal-safe.
    unsafe { libc::signal(libc::SIGXFSZ, action) };
}

/// The signals that end a process, unless it says otherwise, and that an operator sends.
const ENDING: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// The last of them that came while they were held; 0 for none.
static HELD: AtomicI32 = AtomicI32::new(0);

/// Signals that would end the process do so only once this is dropped: what it changed outside of
/// itself can be put back first. They are held for all threads, since any of them may get one.
pub struct HeldSignals {
    before: [Option<libc::sigaction>; ENDING.len()],
}

impl HeldSignals {
    /// Holds back `SIGTERM`, `SIGINT`, `SIGHUP` and `SIGQUIT`, as far as they are not ignored.
    #[must_use]
    pub fn hold() -> HeldSignals {
        extern "C" fn note(signal: libc::c_int) {
            HELD.store(signal, Ordering::Relaxed);
        }
        let before = ENDING.map(|signal| {
            let before = action_of(signal).filter(|before| before.sa_sigaction != libc::SIG_IGN)?;
            // SAFETY: an action is plain integers; zeros are a valid one, with an empty mask. What
            // it calls only stores to an atomic, which a handler may.
            unsafe {
                let mut held: libc::sigaction = std::mem::zeroed();
                held.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
                (libc::sigaction(signal, &raw const held, std::ptr::null_mut()) == 0).then_some(before)
            }
        });
        HeldSignals { before }
    }

    /// Whether one of them came and waits to be let through.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        HELD.load(Ordering::Relaxed) != 0
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        for (signal, before) in ENDING.into_iter().zip(&self.before) {
            if let Some(before) = before {
                // SAFETY: the action is the one that was there before.
                unsafe { libc::sigaction(signal, &raw const *before, std::ptr::null_mut()) };
            }
        }
        let signal = HELD.swap(0, Ordering::Relaxed);
        if signal != 0 {
            // SAFETY: it sends a signal to this process, and takes only integers.
            unsafe { libc::kill(libc::getpid(), signal) };
        }
    }
}

/// This thread's sleeps end when they should, not up to 50 µs later (`PR_SET_TIMERSLACK`).
pub(crate) fn sleep_exactly() {
    if cfg!(miri) {
        return; // It does not know this call.
    }
    // SAFETY: this prctl only takes integers. It cannot fail for the caller's own thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// A limit that no account has by accident.
const LOCKED_BYTES_MIN: u64 = 1 << 30;

/// Whether this process may lock memory without it being counted: with `CAP_IPC_LOCK` where that
/// counts, or with a limit that amounts to none.
pub(crate) fn may_lock_memory() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let caps = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let caps = caps.and_then(|caps| u64::from_str_radix(caps.trim(), 16).ok()).unwrap_or(0);
    // A capability that holds only in a user namespace does not lift the limit.
    let everywhere = read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    if everywhere && caps >> CAP_IPC_LOCK & 1 == 1 {
        return true;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit fills in the live `limit`.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    rc == 0 && limit.rlim_cur >= LOCKED_BYTES_MIN
}
