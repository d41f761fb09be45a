//! Starts the cores of a real runtime, runs the main future on the first, and ends them all.

use crate::backend::{BackendChoice, BackendError};
use crate::core::Core;

/// How a runtime should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// How many executors, each on its own thread; the first on the caller's. At least 1.
    pub cores: usize,
    /// Which backend.
    pub backend: BackendChoice,
    /// Operations in flight per core before further ones queue in user space.
    pub queue_depth: u32,
    /// Threads per core that the plain system call backend may use for drives.
    pub io_threads: usize,
}

impl Default for RuntimeConfig {
    fn default() -> RuntimeConfig {
        RuntimeConfig { cores: 1, backend: BackendChoice::Auto, queue_depth: 1024, io_threads: 16 }
    }
}

/// Runs `main` on core 0, which is this thread, and returns its result. The other cores run on threads of their own;
/// when `main` ends they stop, and so does every task: operations in flight are waited for.
pub fn run<T, F>(config: RuntimeConfig, main: F) -> Result<T, BackendError>
where
    F: AsyncFnOnce(Core) -> T,
{
    let _ = (config, main);
    Err(BackendError::Resources { errno: libc::ENOSYS })
}
