//! A core as threads and cores of other runtimes ask it.

use std::future::Future;
use std::panic::Location;
use std::sync::{Arc, mpsc};

use crate::base::error::IoError;
use crate::executor::core::{Answer, Core};
use crate::executor::deliver::deliver;
use crate::executor::shared::CoreShared;

/// A core that any thread and any other core may ask.
#[derive(Clone)]
pub struct CoreHandle(Arc<CoreShared>);

impl CoreHandle {
    pub(crate) fn of(core: Arc<CoreShared>) -> Self {
        Self(core)
    }

    /// Runs `f` and its future there, asked from core `from`, and brings the result back; `None` if
    /// the runtime there has ended. Within one runtime this is [`Core::call`].
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
    #[track_caller]
    pub fn call_blocking<T, F, Fut>(&self, f: F) -> Result<T, IoError>
    where
        F: FnOnce(Core) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        if crate::executor::is_core_of_runtime(&self.0) {
            return Err(IoError::UNSUPPORTED);
        }
        let spawned = Location::caller();
        let (answer, answered) = mpsc::sync_channel(1);
        self.0.send(Box::new(move |core: Core| {
            let work = f(core.clone());
            // No caller waits for the task, and the one that asked may be gone: both are as good as
            // an answer.
            core.spawn_at(deliver(work, move |output| drop(answer.send(output))), spawned);
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
            core.spawn_at(deliver(work, move |output| asked.put(output)), spawned);
        }));
        answer
    }
}

/// The answer that a task owes: dropped without one, it reports that there is none.
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
