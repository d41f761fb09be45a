//! The page of a machine's arrays.
//!
//! [`Console::start`] begins to look at all servers; [`Console::site`] is what answers over
//! [`crate::http`]. The page (`page/`) is plain modules of JavaScript without a build chain. What
//! it says of arrays is decided here ([`verdict`], [`view`]) and only shown there.
//!
//! **Invariants.**
//! 1. One look serves all viewers; without viewers there is a look every five seconds.
//! 2. What is kept is bounded: an hour of history of at most 64 arrays, a few pieces for each
//!    viewer. A viewer that takes none is dropped.
//! 3. Nothing is changed without the token and the repeated command; no request names a path.
//! 4. What is not known is said to be not known.

mod assets;
mod diff;
mod documents;
mod files;
mod history;
mod locate;
mod orders;
mod poller;
mod rates;
mod routes;
pub mod verdict;
pub mod view;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use wattle_control::{Code, Problem};
use wattle_server::socket::RuntimeDir;

pub use documents::ConsoleDocuments;
pub use orders::{ConsoleOrder, OrderKind, OrderOutcome};
pub use routes::ConsoleSite;

use crate::http::HttpLimits;
use poller::Looker;

/// Pages that may be open at a time.
const VIEWERS_MAX: usize = 256;

/// What is looked at and shown, until it is dropped.
#[derive(Debug)]
pub struct Console {
    known: Arc<Looker>,
    takes_orders: bool,
    thread: Option<JoinHandle<()>>,
}

impl Console {
    /// Begins to look at all servers of a runtime directory.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        dir: RuntimeDir,
        documents: Arc<dyn ConsoleDocuments>,
        takes_orders: bool,
    ) -> Result<Self, Problem> {
        let known = Arc::new(Looker::new(dir, documents, takes_orders));
        // So that the first page that is asked for says something.
        let (polled, memory) = (known.clone(), known.first());
        let thread =
            wattle_rt::helper_thread("wattle-look", move || polled.poll(memory)).map_err(|error| {
                Problem::new(
                    Code::ConsoleFailed,
                    format!("a thread to look at servers with: {error}"),
                    "the system gives no more threads",
                    "raise the limit of processes (`ulimit -u`)",
                )
            })?;
        Ok(Self { known, takes_orders, thread: Some(thread) })
    }

    /// What answers requests.
    #[must_use]
    pub fn site(&self) -> ConsoleSite {
        ConsoleSite::new(self.known.clone(), self.takes_orders, PathBuf::from("/sys"))
    }

    /// What viewers may cost.
    #[must_use]
    pub fn limits() -> HttpLimits {
        HttpLimits { connections: VIEWERS_MAX + 64, streams: VIEWERS_MAX, ..HttpLimits::default() }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.known.end();
        if let Some(thread) = self.thread.take() {
            // A panic there was said on standard error already.
            let _ = thread.join();
        }
    }
}
