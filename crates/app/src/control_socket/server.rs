//! The server's side: answers requests beside the data path, and bounds what a client can cost.
//!
//! A client has [`REQUEST_TIME_MAX`] for a request line and as much to take the answer; [`CLIENTS_MAX`] are served at a time and
//! further ones wait in the socket's queue. Garbage is answered with an error and the connection closed.

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_rt::{Buf, BufMut, Core, Listener, Notify, Semaphore, Stream};

use super::directory::{check_socket_path, restrict};
use super::protocol::{REQUEST_BYTES_MAX, Request, Response, decode, encode};
use crate::output::ErrorReport;
use wattle_rt::{Either, race};

/// For a client to send a request, and to take an answer.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// Connections at a time.
const CLIENTS_MAX: usize = 16;

/// What answers requests.
type Handler = dyn Fn(Request) -> Pin<Box<dyn Future<Output = Response>>>;

/// Answers commands on the core it was started on.
pub struct ControlServer {
    state: Rc<State>,
}

struct State {
    handler: Box<Handler>,
    clients: Semaphore,
    /// Requests that were received and whose answer is not sent yet.
    answering: Cell<usize>,
    answered: Notify,
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
        state.clients.acquire(1).await.forget();
        match core.accept(&listener).await {
            Ok(stream) => {
                let (task, state) = (core.clone(), state.clone());
                core.spawn(async move {
                    // A client that vanishes or dawdles is its own concern.
                    let _ = converse(&task, &stream, &state).await;
                    stream.shutdown();
                    state.clients.add(1);
                });
            }
            Err(_) => {
                state.clients.add(1);
                core.sleep(PAUSE).await;
            }
        }
    }
}

/// The client is gone, or too slow.
struct Lost;

async fn converse(core: &Core, stream: &Stream, state: &State) -> Result<(), Lost> {
    let mut pending = Vec::new();
    loop {
        let request = match receive_line(core, stream, &mut pending).await? {
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
