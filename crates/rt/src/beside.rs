//! A core on a thread of its own, beside whatever runtime there is or is not, for what outlives them and is asked from all of them:
//! connections to drives across a network, which are looked at before a runtime starts and used within it.

use std::future::Future;
use std::panic::Location;
use std::sync::{Arc, mpsc};

use crate::backend::BackendError;
use crate::core::{Answer, Core};
use crate::error::IoError;
use crate::process::SignalMask;
use crate::runtime::{RuntimeConfig, run};
use crate::shared::CoreShared;

/// A core that any thread and any other core may ask.
#[derive(Clone)]
pub struct CoreHandle(Arc<CoreShared>);

/// Starts a core on a thread of its own, which lives as long as the process.
///
/// # Errors
/// The system gives no thread, or the backend none of what it needs.
pub fn beside() -> Result<CoreHandle, BackendError> {
    let (tell, told) = mpsc::sync_channel(1);
    let failed = tell.clone();
    let live = move || {
        SignalMask::block_all();
        let lived = run(RuntimeConfig::default(), async |core| {
            // Whoever started it waits for this.
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

impl CoreHandle {
    pub(crate) fn of(core: Arc<CoreShared>) -> Self {
        Self(core)
    }

    /// Runs `f` and its future there, asked from core `from`, and brings the result back; `None` if the runtime there has ended. Within
    /// one runtime this is [`Core::call`].
    ///
    /// # Cancellation
    /// Dropping the future does not stop the work there.
    #[track_caller]
    pub fn call<T, F, Fut>(&self, from: &Core, f: F) -> impl Future<Output = Option<T>> + use<T, F, Fut>
    where
        F: FnOnce(Core) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let spawned = Location::caller();
        let (here, there) = match from.is_of_runtime(&self.0) {
            true => (Some(from.call(self.0.ix, f)), None),
            false => (None, Some(self.ask(f, spawned))),
        };
        async move {
            match (here, there) {
                (Some(here), _) => Some(here.await),
                (_, Some(answer)) => std::future::poll_fn(|context| answer.poll(context)).await,
                (None, None) => None,
            }
        }
    }

    /// The same from a thread that is no core: blocks it until the result is there.
    ///
    /// # Errors
    /// The runtime there has ended, or this thread is a core of it and would wait for itself.
    pub fn call_blocking<T, F, Fut>(&self, f: F) -> Result<T, IoError>
    where
        F: FnOnce(Core) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        if crate::executor::is_core_of_runtime(&self.0) {
            return Err(IoError::UNSUPPORTED);
        }
        let (answer, answered) = mpsc::sync_channel(1);
        self.0.send(Box::new(move |core: Core| {
            let work = f(core.clone());
            // Nobody waits for the task, and whoever asked may be gone: both are as good as an answer.
            drop(core.spawn(async move { drop(answer.send(work.await)) }));
        }));
        answered.recv().map_err(|_| IoError::from_errno(libc::ESHUTDOWN))
    }

    fn ask<T, F, Fut>(&self, f: F, spawned: &'static Location<'static>) -> Arc<Answer<Option<T>>>
    where
        F: FnOnce(Core) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let answer = Arc::new(Answer::new());
        let asked = Asked(Some(answer.clone()));
        self.0.send(Box::new(move |core: Core| {
            let work = f(core.clone());
            core.spawn_at(async move { asked.put(work.await) }, spawned);
        }));
        answer
    }
}

/// Who owes an answer: whoever drops it unanswered answers that there is none.
struct Asked<T: Send>(Option<Arc<Answer<Option<T>>>>);

impl<T: Send> Asked<T> {
    fn put(mut self, value: T) {
        if let Some(answer) = self.0.take() {
            answer.put(Some(value));
        }
    }
}

impl<T: Send> Drop for Asked<T> {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer.put(None);
        }
    }
}
