//! What a thread asks of the system for itself: signal masks, exact sleeps, locked memory.

/// Miri has neither signals nor masks of them.
const NO_SIGNALS: bool = cfg!(miri);

/// The two signals that ask the process to end.
pub(crate) fn termination_set() -> libc::sigset_t {
    // SAFETY: a sigset is plain integers, and sigemptyset makes it valid before the signals are
    // added.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        set
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
#[derive(Debug)]
pub(crate) struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Remembers the mask of this thread.
    pub(crate) fn keep() -> SignalMask {
        SignalMask(change_mask(libc::SIG_BLOCK, &empty_set()))
    }

    /// Blocks every signal in this thread, a helper: signals belong to the first core's thread.
    pub(crate) fn block_all() {
        if NO_SIGNALS {
            return;
        }
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

/// Signals that would end the process reach this thread only once this is dropped: what it changed
/// outside the process can be put back first.
#[derive(Debug)]
pub struct HeldSignals {
    /// Lets them through when it is dropped.
    _mask: SignalMask,
}

impl HeldSignals {
    /// Holds back `SIGTERM`, `SIGINT`, `SIGHUP` and `SIGQUIT`.
    #[must_use]
    pub fn hold() -> HeldSignals {
        let mut set = termination_set();
        // SAFETY: the set is live and valid.
        unsafe {
            libc::sigaddset(&raw mut set, libc::SIGHUP);
            libc::sigaddset(&raw mut set, libc::SIGQUIT);
        }
        HeldSignals { _mask: SignalMask(change_mask(libc::SIG_BLOCK, &set)) }
    }

    /// Whether one of them was sent and waits to be let through.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        // SAFETY: sigpending fills the set, which is live; the numbers are those of signals.
        unsafe {
            let mut pending = empty_set();
            libc::sigpending(&raw mut pending) == 0
                && [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT]
                    .iter()
                    .any(|&signal| libc::sigismember(&raw const pending, signal) == 1)
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
