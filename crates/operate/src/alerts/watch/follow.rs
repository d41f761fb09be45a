//! Follows one server: its events as they come, and its status after each.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use wattle_control::Problem;
use wattle_server::events::FeedPosition;
use wattle_server::protocol::events::EventsReport;
use wattle_server::protocol::report::ServerReport;
use wattle_server::socket::client::{events, status};

use super::super::beside;
use super::super::rules::Gone;

/// While background work runs, how far it is is looked at so often.
const LOOK_AT_JOB: Duration = Duration::from_secs(5);

/// Between two attempts to reach a server that does not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// So long a server may be silent before that is told.
const SILENT: Duration = Duration::from_secs(20);

/// Between two looks whether a server has ended.
const ENDING: Duration = Duration::from_millis(100);

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
    /// It is not there any more, or does not answer. After [`Gone::Silent`] it is still followed.
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
                    wait = if busy { self.look.min(LOOK_AT_JOB) } else { self.look };
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
        while how_gone(&self.socket).is_none() {
            let answer = events(&self.socket, &self.position, Duration::ZERO);
            if matches!(answer, Ok(Some(events)) if self.position.epoch.as_ref() != Some(&events.epoch)) {
                return false;
            }
            beside::sleep(ENDING);
        }
        self.tell(ServerFound::Gone(Gone::GoodBye));
        true
    }
}

/// A server that says that it cannot is not silent.
fn is_silence(problem: &Problem) -> bool {
    !problem.is_transient
}

/// Whether a process listens at a socket now.
pub fn listens(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Whether and how a server is gone: one that ends takes its socket away, one that dies leaves it.
pub fn how_gone(socket: &Path) -> Option<Gone> {
    let until = beside::now() + LEFT;
    loop {
        match UnixStream::connect(socket).map_err(|error| error.kind()) {
            Err(io::ErrorKind::NotFound) => return Some(Gone::GoodBye),
            Err(io::ErrorKind::ConnectionRefused) if beside::now() >= until => return Some(Gone::Died),
            Err(io::ErrorKind::ConnectionRefused) => beside::sleep(Duration::from_millis(20)),
            _ => return None,
        }
    }
}
