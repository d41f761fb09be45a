//! The server's side: answers requests beside the data path, and bounds what a client can cost.
//!
//! A client has [`REQUEST_TIME_MAX`] for a request line and as much to take the answer; [`CLIENTS_MAX`] are served at a time and
//! further ones wait in the socket's queue: while some of those who are served ask for nothing, no longer than it takes to see
//! that ([`IDLE_TIME_MIN`]). Garbage is answered with an error and the connection closed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_rt::sync::{OneshotReceiver, OneshotSender};
use wattle_rt::{Buf, BufMut, Core, Instant, Listener, Notify, Semaphore, Stream, oneshot};

use super::directory::{check_socket_path, restrict};
use super::protocol::{REQUEST_BYTES_MAX, Request, Response, decode, encode};
use crate::output::ErrorReport;
use wattle_rt::{Either, race};

/// For a client to send a request, and to take an answer.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// Connections at a time.
const CLIENTS_MAX: usize = 16;

/// A client that has not asked for anything this long makes way for others. Those that mean to ask do it at once.
const IDLE_TIME_MIN: Duration = Duration::from_millis(250);

/// What answers requests.
type Handler = dyn Fn(Request) -> Pin<Box<dyn Future<Output = Response>>>;

/// Answers commands on the core it was started on.
pub struct ControlServer {
    state: Rc<State>,
}

struct State {
    handler: Box<Handler>,
    clients: Semaphore,
    /// Clients that are to send a request, the idlest first.
    idle: RefCell<BTreeMap<u64, Idle>>,
    /// How many times a client began to be idle.
    idle_count: Cell<u64>,
    /// Requests that were received and whose answer is not sent yet.
    answering: Cell<usize>,
    answered: Notify,
}

/// A client that is to send a request.
struct Idle {
    since: Instant,
    /// Dropped to close the connection.
    _keep: OneshotSender<()>,
}

impl State {
    /// Counts a client as idle: by this number, until [`State::not_idle`]. The receiver ends when the client has to make way.
    fn idle(&self, since: Instant) -> (u64, OneshotReceiver<()>) {
        let (keep, kept) = oneshot();
        let number = self.idle_count.get();
        self.idle_count.set(number + 1);
        self.idle.borrow_mut().insert(number, Idle { since, _keep: keep });
        (number, kept)
    }

    fn not_idle(&self, number: u64) {
        self.idle.borrow_mut().remove(&number);
    }

    /// Waits until another client can be served. While one is idle for long enough, that one goes.
    async fn room(&self, core: &Core) {
        loop {
            let idle_since = self.idle.borrow().first_key_value().map(|(_, idle)| idle.since);
            let look_at = idle_since.unwrap_or(core.now()) + IDLE_TIME_MIN;
            match race(self.clients.acquire(1), core.sleep_until(look_at)).await {
                Either::First(permit) => return permit.forget(),
                Either::Second(()) => {}
            }
            let first = self.idle.borrow().first_key_value().map(|(number, idle)| (*number, idle.since));
            if let Some((number, since)) = first
                && since + IDLE_TIME_MIN <= core.now()
            {
                self.not_idle(number);
                return self.clients.acquire(1).await.forget();
            }
        }
    }
}

impl ControlServer {
    /// Listens at `socket`, for its owner only.
    ///
    /// # Errors
    /// Another process listens there, or the system refuses.
    pub fn listen(socket: &Path) -> Result<Listener, Problem> {
        let failed = |why: String| {
            Problem::new(
                Code::ListenFailed,
                format!("cannot listen for commands at {}", socket.display()),
                why,
                "stop the other server, or give this one a name of its own: --name",
            )
        };
        check_socket_path(socket).map_err(failed)?;
        let listener = Listener::unix(socket).map_err(|error| failed(error.to_string()))?;
        restrict(socket).map_err(|error| failed(error.to_string()))?;
        Ok(listener)
    }

    /// Answers whoever connects, until the runtime ends.
    pub fn start(
        core: &Core,
        listener: Listener,
        handler: impl Fn(Request) -> Pin<Box<dyn Future<Output = Response>>> + 'static,
    ) -> Self {
        let state = Rc::new(State {
            handler: Box::new(handler),
            clients: Semaphore::new(CLIENTS_MAX),
            idle: RefCell::default(),
            idle_count: Cell::new(0),
            answering: Cell::new(0),
            answered: Notify::new(),
        });
        core.spawn(accept(core.clone(), listener, state.clone()));
        Self { state }
    }

    /// Waits until no request is left half answered. Takes at most the time that a client has to take its answer.
    pub async fn drain(&self) {
        while self.state.answering.get() > 0 {
            self.state.answered.wait().await;
        }
    }
}

async fn accept(core: Core, listener: Listener, state: Rc<State>) {
    /// A failing accept mostly means that descriptors are short: connections that end free some.
    const PAUSE: Duration = Duration::from_millis(100);
    loop {
        match core.accept(&listener).await {
            Ok(stream) => {
                state.room(&core).await;
                let (task, state) = (core.clone(), state.clone());
                core.spawn(async move {
                    // A client that vanishes or dawdles is its own concern.
                    let _ = converse(&task, &stream, &state).await;
                    stream.shutdown();
                    state.clients.add(1);
                });
            }
            Err(_) => core.sleep(PAUSE).await,
        }
    }
}

/// The client is gone, or too slow.
struct Lost;

async fn converse(core: &Core, stream: &Stream, state: &State) -> Result<(), Lost> {
    let mut pending = Vec::new();
    loop {
        let (number, kept) = state.idle(core.now());
        let line = race(receive_line(core, stream, &mut pending), kept).await;
        state.not_idle(number);
        // Whoever asked in the last moment is answered.
        let Either::First(line) = line else { return Err(Lost) };
        let request = match line? {
            Line::End => return Ok(()),
            Line::Complete(line) => decode::<Request>(&line),
            Line::TooLong => Err(Problem::new(
                Code::ServerFailed,
                format!("a request is longer than {REQUEST_BYTES_MAX} bytes"),
                "requests are one JSON object per line",
                "use the same version of wattle for both",
            )),
        };
        state.answering.set(state.answering.get() + 1);
        let (response, understood) = match request {
            Ok(request) => ((state.handler)(request).await, true),
            Err(problem) => (error_response(&problem), false),
        };
        let sent = send(core, stream, &response).await;
        state.answering.set(state.answering.get() - 1);
        state.answered.notify_all();
        sent?;
        if !understood {
            return Ok(());
        }
    }
}

/// A problem as an answer.
pub fn error_response(problem: &Problem) -> Response {
    Response::Error(ErrorReport::from(problem))
}

enum Line {
    Complete(Vec<u8>),
    End,
    TooLong,
}

/// The next line; what came behind it stays in `pending`.
async fn receive_line(core: &Core, stream: &Stream, pending: &mut Vec<u8>) -> Result<Line, Lost> {
    let deadline = core.now() + REQUEST_TIME_MAX;
    loop {
        if let Some(at) = pending.iter().position(|byte| *byte == b'\n') {
            let rest = pending.split_off(at + 1);
            return Ok(Line::Complete(std::mem::replace(pending, rest)));
        }
        if pending.len() >= REQUEST_BYTES_MAX {
            return Ok(Line::TooLong);
        }
        let buf = BufMut::alloc(REQUEST_BYTES_MAX - pending.len());
        match race(core.recv(stream, buf), core.sleep_until(deadline)).await {
            Either::First((Ok(0), _)) => return Ok(Line::End),
            Either::First((Ok(len), buf)) => pending.extend_from_slice(&buf[..len]),
            Either::First((Err(_), _)) | Either::Second(()) => return Err(Lost),
        }
    }
}

async fn send(core: &Core, stream: &Stream, response: &Response) -> Result<(), Lost> {
    let bytes = vec![Buf::copy_of(&encode(response))];
    match race(core.send(stream, bytes), core.sleep(REQUEST_TIME_MAX)).await {
        Either::First(Ok(())) => Ok(()),
        Either::First(Err(_)) | Either::Second(()) => Err(Lost),
    }
}
