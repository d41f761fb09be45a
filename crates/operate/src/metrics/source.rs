//! Where reports come from: the control sockets of one server, or of all of a machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
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
    asked: Arc<Mutex<BTreeMap<PathBuf, Question>>>,
    time_max: Duration,
    /// Asks one socket.
    how: fn(&Path) -> Option<ServerReport>,
}

/// What a socket has to say, if it says something.
type Answer = (PathBuf, Option<ServerReport>);

/// A question that is not answered yet.
#[derive(Debug)]
struct Question {
    since: Instant,
    /// The scrapes that wait for the answer.
    tell: Vec<mpsc::Sender<Answer>>,
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
        Self::of(SourcePlace::All(dir))
    }

    /// The server of this control socket.
    #[must_use]
    pub fn one(socket: PathBuf) -> Self {
        Self::of(SourcePlace::One(socket))
    }

    fn of(place: SourcePlace) -> Self {
        let how = |socket: &Path| status(socket).ok().flatten();
        Self { place, asked: Arc::default(), time_max: TIME_MAX, how }
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
        let mut answers = BTreeMap::new();
        let deadline = Instant::now() + self.time_max;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
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

    /// One that hangs keeps one thread, until its connection times out. A scrape that comes while a
    /// socket is asked waits for the same answer, unless that takes too long already.
    fn ask(&self, socket: &Path, tell: &mpsc::Sender<Answer>) {
        let now = Instant::now();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(question) = asked.get_mut(socket) {
            if now - question.since < self.time_max {
                question.tell.push(tell.clone());
            }
            return;
        }
        asked.insert(socket.to_owned(), Question { since: now, tell: vec![tell.clone()] });
        let (waiting, place, how) = (self.asked.clone(), socket.to_owned(), self.how);
        let work = move || {
            let report = how(&place);
            let question = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
            for tell in question.into_iter().flat_map(|question| question.tell) {
                // A scrape that is over does not wait any more.
                let _ = tell.send((place.clone(), report.clone()));
            }
        };
        if wattle_rt::helper_thread("wattle-ask", work).is_err() {
            asked.remove(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// A server that tells nothing but that it is there, once its end of the connection is closed.
    fn source(socket: &Path, time_max: Duration) -> Arc<ReportSource> {
        let how = |socket: &Path| {
            let mut stream = UnixStream::connect(socket).ok()?;
            stream.read_to_end(&mut Vec::new()).ok()?;
            Some(ServerReport {
                server: "data".to_owned(),
                pid: 1,
                arrays: Vec::new(),
                volumes: Vec::new(),
                groups: Vec::new(),
                threads: Vec::new(),
                cpu_ms: None,
                qos: Vec::new(),
                checkpoints: Vec::new(),
                reservations: Vec::new(),
                sole_array: None,
                stopped: Vec::new(),
            })
        };
        Arc::new(ReportSource { time_max, how, ..ReportSource::one(socket.to_owned()) })
    }

    /// Two Prometheus ask at once.
    #[test]
    fn a_scrape_beside_another_one_has_the_same_answer() {
        let temp = tempfile::tempdir().unwrap();
        let socket = temp.path().join("data.sock");
        let server = UnixListener::bind(&socket).unwrap();
        let source = source(&socket, Duration::from_secs(600));
        let scrape = || {
            let source = source.clone();
            wattle_rt::helper_thread("scrape", move || source.look()).unwrap()
        };
        let first = scrape();
        let (asked, _) = server.accept().unwrap();
        let second = scrape();
        while source.asked.lock().unwrap()[&socket].tell.len() < 2 {
            assert!(!second.is_finished(), "it does not wait for the answer");
            std::thread::yield_now();
        }
        drop(asked);
        for scrape in [first, second] {
            assert!(scrape.join().unwrap()[0].report.is_some());
        }
        server.set_nonblocking(true).unwrap();
        assert!(server.accept().is_err(), "it was asked once");
        assert!(source.asked.lock().unwrap().is_empty());
    }

    #[test]
    fn a_server_that_hangs_is_not_asked_again() {
        let temp = tempfile::tempdir().unwrap();
        let socket = temp.path().join("data.sock");
        let server = UnixListener::bind(&socket).unwrap();
        let source = source(&socket, Duration::from_millis(1));
        assert!(source.look()[0].report.is_none());
        let (asked, _) = server.accept().unwrap();
        for _ in 0..3 {
            assert!(source.look()[0].report.is_none());
        }
        server.set_nonblocking(true).unwrap();
        assert!(server.accept().is_err(), "threads do not pile up");
        drop(asked);
    }
}
