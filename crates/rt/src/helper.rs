//! Threads that are no cores.

use std::io;
use std::thread::JoinHandle;

use crate::base::system::SignalMask;
use crate::placement;

/// Starts a thread that is no core and waits as it likes: for clients of a page, for other
/// programs. Signals never reach it, nor the threads that it starts.
///
/// # Errors
/// The system gives no thread.
pub fn helper_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(|| {
        SignalMask::block_all();
        placement::leave();
        work()
    })
}
