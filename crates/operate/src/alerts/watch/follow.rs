//! Follows one server: its events as they come, and its status after each.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use wattle_control::Problem;
use wattle_server::events::FeedPosition;
use wattle_server::protocol::events::EventsReport;
use wattle_server::protocol::report::ServerReport;
use wattle_server::socket::client::{connect, events, status};

use super::super::beside;
use super::super::rules::Gone;

/// While background work runs, how far it is is looked at so often.
const LOOK_AT_JOB: Duration = Duration::from_secs(5);

/// Between two attempts to reach a server that does not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// So long a server may be silent before that is told.
const SILENT: Duration = Duration::from_secs(20);

/// The longest wait for an event: what does not answer then is told after [`SILENT`].
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Between two looks whether a server has ended.
const ENDING: Duration = Duration::from_millis(100);

/// So long a server may take to end before that is told: longer than its service manager waits
/// until it kills it.
pub const STOPPING_MAX: Duration = Duration::from_secs(360);

/// So long a connection may take: a server that hangs accepts none.
const CONNECT_MAX: Duration = Duration::from_millis(100);

/// So long a socket that no process listens at is looked at: a server that ends takes its own away.
const LEFT: Duration = Duration::from_millis(300);

/// What was found out of a server.
pub enum ServerFound {
    /// It answers.
    Seen {
        /// What happened since.
        events: Box<EventsReport>,
        /// What it is and does now.
        status: Box<ServerReport>,
    },
    /// It is not there any more, or does not answer. One that hangs ([`Gone::is_there`]) is still
    /// followed.
    Gone(Gone),
}

/// What was found out of the server of a socket.
pub type FollowNews = (PathBuf, ServerFound);

/// A server that is followed.
pub struct Followed {
    /// Its socket.
    pub socket: PathBuf,
    /// What is known of it.
    pub position: FeedPosition,
    /// How often it is looked at when nothing happens.
    pub look: Duration,
    /// So long it may take to end before that is told.
    pub stopping_max: Duration,
    /// Takes what is found out.
    pub found: Sender<FollowNews>,
}

impl Followed {
    fn tell(&self, found: ServerFound) -> bool {
        self.found.send((self.socket.clone(), found)).is_ok()
    }

    /// Follows it until it is gone, or nothing takes what is found out.
    pub fn run(mut self) {
        let (mut wait, mut heard, mut silent) = (Duration::ZERO, beside::now(), false);
        loop {
            let answer = events(&self.socket, &self.position, wait).and_then(|events| {
                let status = events.as_ref().map(|_| status(&self.socket)).transpose()?.flatten();
                Ok(events.zip(status))
            });
            match answer {
                Ok(Some((events, status))) => {
                    (heard, silent) = (beside::now(), false);
                    self.position = FeedPosition { epoch: Some(events.epoch.clone()), after: events.last };
                    let busy = status.arrays.iter().any(|array| array.sync.is_some());
                    wait = self.look.min(if busy { LOOK_AT_JOB } else { WAIT_MAX });
                    let ending = events.ending;
                    if !self.tell(ServerFound::Seen { events: Box::new(events), status: Box::new(status) }) {
                        return;
                    }
                    if ending {
                        if self.is_gone_at_the_end() {
                            return;
                        }
                        wait = Duration::ZERO;
                    }
                }
                // It ended between the two, or while it was waited for.
                Ok(None) | Err(_) if let Some(gone) = how_gone(&self.socket) => {
                    self.tell(ServerFound::Gone(gone));
                    return;
                }
                Ok(None) => beside::sleep(ENDING),
                Err(problem) => {
                    wait = Duration::ZERO;
                    if !silent && is_silence(&problem) && beside::now() - heard >= SILENT {
                        silent = true;
                        if !self.tell(ServerFound::Gone(Gone::Silent)) {
                            return;
                        }
                    }
                    beside::sleep(AGAIN);
                }
            }
        }
    }

    /// It was told to end, and says so; what it has in flight takes its time. `false` if another
    /// one is there already, started so soon that the socket was never seen to be away.
    fn is_gone_at_the_end(&self) -> bool {
        let (begun, mut told) = (beside::now(), false);
        loop {
            if let Some(gone) = how_gone(&self.socket) {
                // Told to end, it may still be killed: what it had in flight is not recorded then.
                self.tell(ServerFound::Gone(gone));
                return true;
            }
            let answer = events(&self.socket, &self.position, Duration::ZERO);
            if matches!(answer, Ok(Some(events)) if self.position.epoch.as_ref() != Some(&events.epoch)) {
                return false;
            }
            if !told && beside::now() - begun >= self.stopping_max {
                told = true;
                if !self.tell(ServerFound::Gone(Gone::Stopping)) {
                    return true;
                }
            }
            beside::sleep(ENDING);
        }
    }
}

/// A server that says that it cannot is not silent.
fn is_silence(problem: &Problem) -> bool {
    !problem.is_transient
}

/// Whether a process listens at a socket now, also one that hangs.
pub fn listens(socket: &Path) -> bool {
    match connect(socket, CONNECT_MAX) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Whether and how a server is gone: one that ends takes its socket away, one that dies leaves it.
pub fn how_gone(socket: &Path) -> Option<Gone> {
    let until = beside::now() + LEFT;
    loop {
        match connect(socket, CONNECT_MAX).map_err(|error| error.kind()) {
            Err(io::ErrorKind::NotFound) => return Some(Gone::GoodBye),
            Err(io::ErrorKind::ConnectionRefused) if beside::now() >= until => return Some(Gone::Died),
            Err(io::ErrorKind::ConnectionRefused) => beside::sleep(Duration::from_millis(20)),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn gone(found: &Receiver<FollowNews>) -> Gone {
        match found.recv_timeout(Duration::from_secs(30)).unwrap().1 {
            ServerFound::Gone(gone) => gone,
            ServerFound::Seen { .. } => panic!("it says nothing"),
        }
    }

    /// A server whose queue of connections is full.
    #[test]
    fn a_server_that_hangs_is_there_and_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("data.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = UnixStream::connect(&socket).unwrap();
        let (sender, looked) = channel();
        let of = socket.clone();
        assert!(beside::start("test-look", move || {
            let _ = sender.send((listens(&of), how_gone(&of)));
        }));
        assert_eq!(looked.recv_timeout(Duration::from_secs(5)), Ok((true, None)));
        drop((listener, first));
        assert!(!listens(&socket));
        assert_eq!(how_gone(&socket), Some(Gone::Died));
        std::fs::remove_file(&socket).unwrap();
        assert_eq!(how_gone(&socket), Some(Gone::GoodBye));
    }

    /// It said that it ends, and hangs; then it is stopped for good, in order or by a kill.
    #[test]
    fn a_server_that_does_not_end_is_told_and_then_how_it_ends() {
        for end in [Gone::GoodBye, Gone::Died] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("data.sock");
            let listener = UnixListener::bind(&socket).unwrap();
            let (sender, found) = channel();
            let followed = Followed {
                socket: socket.clone(),
                position: FeedPosition::default(),
                look: Duration::ZERO,
                stopping_max: Duration::from_millis(50),
                found: sender,
            };
            let (ended, end_of) = channel();
            beside::start("test-follow", move || {
                let _ = ended.send(followed.is_gone_at_the_end());
            });
            let (stop, stopped) = channel::<()>();
            let hung = stopped;
            let (closed, is_closed) = channel();
            listener.set_nonblocking(true).unwrap();
            // It closes every connection without an answer.
            beside::start("test-server", move || {
                while hung.try_recv().is_err() {
                    drop(listener.accept());
                    beside::sleep(Duration::from_millis(5));
                }
                drop(listener);
                let _ = closed.send(());
            });
            assert_eq!(gone(&found), Gone::Stopping);
            if end == Gone::GoodBye {
                std::fs::remove_file(&socket).unwrap();
            }
            stop.send(()).unwrap();
            is_closed.recv().unwrap();
            assert_eq!(gone(&found), end, "and it is told once that it does not end");
            assert!(end_of.recv().unwrap());
        }
    }
}
