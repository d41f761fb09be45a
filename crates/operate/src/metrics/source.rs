//! Where reports come from: the control sockets of one server, or of all of a machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wattle_server::protocol::report::ServerReport;
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::status;

use crate::smart::DriveHealth;

/// A server that does not answer within this time counts as one that is down, for this scrape.
const TIME_MAX: Duration = Duration::from_secs(2);

/// What there is to tell of a machine.
#[derive(Debug, Clone, Default)]
pub struct MachineReport {
    /// Its servers.
    pub servers: Vec<ServerSight>,
    /// What is known of alerts; none where no alerts are kept.
    pub alerts: Option<AlertFigures>,
    /// What drives said of themselves.
    pub drives: Vec<DriveHealth>,
}

/// One server.
#[derive(Debug, Clone)]
pub struct ServerSight {
    /// Its name, from its socket.
    pub name: String,
    /// What it told; none if it did not answer.
    pub report: Option<ServerReport>,
}

/// What is known of alerts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlertFigures {
    /// There is a channel that they go to.
    pub configured: bool,
    /// Deliveries that failed since the start.
    pub failed: u64,
}

/// Asks servers.
#[derive(Debug)]
pub struct ReportSource {
    place: SourcePlace,
    /// Sockets that have not answered since they were asked: they are not asked again meanwhile.
    asked: Arc<Mutex<BTreeSet<PathBuf>>>,
    time_max: Duration,
}

#[derive(Debug)]
enum SourcePlace {
    All(RuntimeDir),
    One(PathBuf),
}

impl ReportSource {
    /// Every server that has its socket in this directory.
    #[must_use]
    pub fn all(dir: RuntimeDir) -> Self {
        Self { place: SourcePlace::All(dir), asked: Arc::default(), time_max: TIME_MAX }
    }

    /// The server of this control socket.
    #[must_use]
    pub fn one(socket: PathBuf) -> Self {
        Self { place: SourcePlace::One(socket), asked: Arc::default(), time_max: TIME_MAX }
    }

    /// Asks all of them at once and waits for a bounded time.
    #[must_use]
    pub fn look(&self) -> Vec<ServerSight> {
        let sockets = match &self.place {
            SourcePlace::All(dir) if dir.check().is_ok() => dir.sockets(),
            SourcePlace::All(_) => Vec::new(),
            SourcePlace::One(socket) => vec![socket.clone()],
        };
        let (tell, told) = mpsc::channel();
        for socket in &sockets {
            self.ask(socket, &tell);
        }
        drop(tell);
        let mut answers = std::collections::BTreeMap::new();
        let deadline = tokio::time::Instant::now() + self.time_max;
        loop {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            match told.recv_timeout(left) {
                Ok((socket, report)) => _ = answers.insert(socket, report),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => break,
            }
        }
        let sight = |socket: PathBuf| {
            let name = socket.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            ServerSight { name, report: answers.remove(&socket).flatten() }
        };
        sockets.into_iter().map(sight).collect()
    }

    /// One that hangs keeps one thread, until its connection times out.
    fn ask(&self, socket: &Path, tell: &mpsc::Sender<(PathBuf, Option<ServerReport>)>) {
        if !self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(socket.to_owned()) {
            return;
        }
        let (asked, tell, place) = (self.asked.clone(), tell.clone(), socket.to_owned());
        let work = move || {
            let report = status(&place).ok().flatten();
            asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
            // A scrape that is over does not wait any more.
            let _ = tell.send((place, report));
        };
        if wattle_rt::helper_thread("wattle-ask", work).is_err() {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(socket);
        }
    }
}
