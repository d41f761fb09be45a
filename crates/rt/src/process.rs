//! Signals, children and the promise to the kernel that this process is part of the block path.

use crate::core::Core;
use crate::error::IoError;
use std::process::{Command, ExitStatus};

/// Which signal asked the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `SIGTERM`.
    Terminate,
    /// `SIGINT`: Ctrl-C.
    Interrupt,
}

/// A child process.
pub struct Child {
    child: std::process::Child,
}

impl Child {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for it to end.
    pub async fn wait(&mut self, core: &Core) -> Result<ExitStatus, IoError> {
        let _ = core;
        self.child.wait().map_err(|error| IoError::from_std(&error))
    }

    /// Sends a signal (`libc::SIGTERM`...).
    pub fn signal(&mut self, signal: i32) {
        let _ = signal;
    }
}

impl Core {
    /// Waits for `SIGTERM` or `SIGINT`.
    pub async fn terminated(&self) -> Result<Signal, IoError> {
        std::future::pending().await
    }

    /// Starts a child process.
    pub fn spawn_child(&self, mut command: Command) -> Result<Child, IoError> {
        command.spawn().map(|child| Child { child }).map_err(|error| IoError::from_std(&error))
    }
}

/// Tells the kernel that this process writes back other processes' data.
pub fn set_io_flusher() -> Result<(), IoError> {
    Err(IoError::UNSUPPORTED)
}
