//! The seam: everything above it, the executor included, is the same code over io_uring, over plain
//! system calls and over simulated drives in virtual time.

mod iov;
pub(crate) mod lanes;
pub(crate) mod syscall;
pub(crate) mod uring;

use crate::base::time::{Instant, WallTime};
use crate::op::{Completion, Op, OpKey};

/// How long a reap may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until something completes, another core wakes this one, or the given time (`None`: no
    /// limit).
    Until(Option<Instant>),
}

/// Executes operations for one core.
pub trait Backend {
    /// Takes every operation out of `batch` and starts it, now or as soon as there is room. Each
    /// comes back exactly once through [`Backend::reap`], possibly after a short transfer; the core
    /// then submits the rest.
    fn submit(&mut self, batch: &mut Vec<(OpKey, Op)>);

    /// Appends what has completed to `done`; true if anything was appended.
    fn reap(&mut self, done: &mut Vec<Completion>, wait: Wait) -> bool;

    /// The outcome of `key` is no longer wanted. It still comes back through [`Backend::reap`],
    /// soon. Only called for operations that wait on a peer.
    fn cancel(&mut self, key: OpKey);

    /// The outcome of `key`, a read of a drive, is no longer wanted: if it waits for room it comes
    /// back at once, and need not begin.
    fn withdraw(&mut self, key: OpKey);

    /// The time.
    fn now(&self) -> Instant;

    /// The wall clock.
    fn wall_clock(&self) -> WallTime;

    /// Whether there is no machine underneath: no signals, no children, no descriptors.
    fn is_simulated(&self) -> bool {
        false
    }

    /// Which of `ready` runnable tasks runs next. A simulation permutes; a machine takes the
    /// oldest.
    fn pick(&mut self, ready: usize) -> usize {
        let _ = ready;
        0
    }
}

/// Which backend a runtime should use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// io_uring where the kernel allows it, else plain system calls.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Plain system calls.
    Syscall,
}

/// How a ring of io_uring delivers completions. A kernel that lacks a mode that is asked for by
/// name makes the runtime answer [`BackendError::UringForbidden`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RingMode {
    /// The cheapest that this kernel has.
    #[default]
    Best,
    /// Since Linux 6.1: one thread submits, and completions are posted only when that thread asks
    /// (`SINGLE_ISSUER`, `DEFER_TASKRUN`).
    Deferred,
    /// Since Linux 5.19: no interrupt delivers a completion; it comes with the next system call
    /// (`COOP_TASKRUN`).
    Cooperative,
    /// A ring as on Linux 5.11: completions come at any time, and no memory is registered.
    Plain,
}

/// Why a runtime could not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// This machine or sandbox forbids io_uring, or does not have it: seccomp, the sysctl
    /// `kernel.io_uring_disabled`, the memlock limit, or an old kernel.
    #[error("io_uring is not available here: {}", std::io::Error::from_raw_os_error(*.errno))]
    UringForbidden {
        /// What `io_uring_setup` answered.
        errno: i32,
    },
    /// A core may use none of the processors that it was to run on.
    #[error("a core cannot be placed: {}", std::io::Error::from_raw_os_error(*.errno))]
    Place {
        /// What the system call answered.
        errno: i32,
    },
    /// The kernel did not give us an event descriptor, a thread or memory.
    #[error("the runtime could not start: {}", std::io::Error::from_raw_os_error(*.errno))]
    Resources {
        /// What the system call answered.
        errno: i32,
    },
}
