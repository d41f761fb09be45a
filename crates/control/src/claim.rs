//! How a member is used: read or written, and what that locks.

use std::time::Duration;

use wattle_rt::{Direct, Lock, OpenOptions};

/// How a member is going to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Read, while no other process may write: a shared lock.
    Read,
    /// Written: an exclusive lock.
    Write,
}

impl Claim {
    /// How a drive is opened for it.
    pub(crate) fn options(self) -> OpenOptions {
        let (write, lock) = match self {
            Self::Read => (false, Lock::Shared),
            Self::Write => (true, Lock::Exclusive),
        };
        // The successor of a server that was just killed starts at once, and waits for its locks.
        OpenOptions { write, direct: Direct::Auto, lock, patience: Duration::from_secs(2) }
    }
}
