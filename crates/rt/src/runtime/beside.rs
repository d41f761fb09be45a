//! A core on a thread of its own, beside whatever runtime there is or is not, for what outlives
//! them and is asked from all of them: connections to drives across a network, which are looked at
//! before a runtime starts and used within it.

use std::sync::mpsc;

use crate::backend::BackendError;
use crate::base::system::SignalMask;
use crate::executor::handle::CoreHandle;
use crate::placement;
use crate::runtime::{RuntimeConfig, run};

/// Starts a core on a thread of its own, which lives as long as the process.
///
/// # Errors
/// The system gives no thread, or the backend none of what it needs.
pub fn beside() -> Result<CoreHandle, BackendError> {
    let (tell, told) = mpsc::sync_channel(1);
    let failed = tell.clone();
    let live = move || {
        SignalMask::block_all();
        placement::leave();
        let lived = run(RuntimeConfig::default(), async |core| {
            // The thread that started the core waits for this.
            let _ = tell.send(Ok(core.handle()));
            std::future::pending::<()>().await;
        });
        if let Err(error) = lived {
            let _ = failed.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name("wattle-beside".to_owned()).spawn(live);
    thread.map_err(|error| BackendError::Resources { errno: error.raw_os_error().unwrap_or(0) })?;
    told.recv().unwrap_or(Err(BackendError::Resources { errno: libc::ESHUTDOWN }))
}
