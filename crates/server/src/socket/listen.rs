//! The server's side: answers requests beside the data path, and bounds what a client can cost.
//!
//! A client has [`REQUEST_TIME_MAX`] for a request line and as much to take the answer.
//! [`CLIENTS_MAX`] are waited for at a time, for either; further ones wait in the socket's queue.
//! While they do, clients that have kept the server waiting for [`WAIT_TIME_MIN`] make way, the
//! longest first. So clients that ask for nothing, or ask and never read, hold back others only for
//! as long as it takes to see that. The work of an order itself is waited for without a bound, by
//! at most [`ORDERS_MAX`] clients; `status`, `why` and `stop` are answered also when there are as
//! many. Garbage is answered with an error and the connection closed. Only this user and root are
//! heard.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_rt::sync::{OneshotReceiver, OneshotSender};
use wattle_rt::{Buf, BufMut, Core, Either, Instant, ListenError, Listener, Notify, Stream, oneshot, race};

use super::directory::{check_socket_path, restrict};
use super::trust::is_trusted;
use crate::protocol::{
    ErrorReport, LINE_BYTES_MAX, REQUEST_BYTES_MAX, Response, ServerRequest, decode, encode,
};

/// For a client to send a request, and to take an answer.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// Clients that are waited for at a time.
const CLIENTS_MAX: usize = 64;

/// Orders that are carried out at a time, or wait for each other.
const ORDERS_MAX: usize = 256;

/// A client that has kept the server waiting this long makes way for others. Clients that mean to
/// ask do it at once, and take the answer at once.
const WAIT_TIME_MIN: Duration = Duration::from_millis(250);

/// At the end, clients have so long to take their answers.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// What answers requests.
type Handler = dyn Fn(ServerRequest) -> Pin<Box<dyn Future<Output = Response>>>;

/// Answers commands on the core it was started on.
pub struct ControlServer {
    state: Rc<State>,
}

struct State {
    handler: Box<Handler>,
    /// Clients that are waited for, the longest first.
    waits: RefCell<BTreeMap<u64, Wait>>,
    /// How many waits have begun.
    wait_count: Cell<u64>,
    one_wait_less: Notify,
    /// Requests whose answer is being made.
    orders: Cell<usize>,
    /// Requests that were received and whose answer is not sent yet.
    answering: Cell<usize>,
    answered: Notify,
}

/// A client that is to send a request or to take an answer.
struct Wait {
    since: Instant,
    /// Dropped to close the connection.
    _keep: OneshotSender<()>,
}

/// Says that a client is waited for; ends when dropped.
struct Waiting {
    state: Rc<State>,
    number: u64,
    /// Ends when the client has to make way.
    kept: OneshotReceiver<()>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.state.wait_ends(self.number);
    }
}

impl State {
    /// Begins to wait for a client, once there is room for another one.
    async fn wait(self: &Rc<Self>, core: &Core) -> Waiting {
        loop {
            if self.waits.borrow().len() < CLIENTS_MAX {
                let (keep, kept) = oneshot();
                let number = self.wait_count.replace(self.wait_count.get() + 1);
                self.waits.borrow_mut().insert(number, Wait { since: core.now(), _keep: keep });
                return Waiting { state: self.clone(), number, kept };
            }
            let first = self.waits.borrow().first_key_value().map(|(number, wait)| (*number, wait.since));
            let (number, since) = first.expect("as many as there may be");
            if since + WAIT_TIME_MIN <= core.now() {
                self.wait_ends(number);
                continue;
            }
            race(self.one_wait_less.wait(), core.sleep_until(since + WAIT_TIME_MIN)).await;
        }
    }

    fn wait_ends(&self, number: u64) {
        if self.waits.borrow_mut().remove(&number).is_some() {
            self.one_wait_less.notify_all();
        }
    }

    /// The answer to a request.
    async fn answer(&self, request: ServerRequest) -> Response {
        // Those that wait for events bound themselves: they wait for no order and hold back none.
        if matches!(request, ServerRequest::Events { .. }) {
            return (self.handler)(request).await;
        }
        let is_order = !matches!(
            request,
            ServerRequest::Status | ServerRequest::Why { .. } | ServerRequest::Stop { .. }
        );
        if is_order && self.orders.get() >= ORDERS_MAX {
            return error_response(&Problem::new(
                Code::ServerFailed,
                format!("{ORDERS_MAX} orders are being carried out or wait for others"),
                "the server takes no more at a time",
                "try again when some of them are done",
            ));
        }
        self.orders.set(self.orders.get() + 1);
        let response = (self.handler)(request).await;
        self.orders.set(self.orders.get() - 1);
        response
    }
}

impl ControlServer {
    /// Listens at `socket`, for its owner only.
    ///
    /// # Errors
    /// Another process listens there, or the system refuses.
    pub fn listen(socket: &Path) -> Result<Listener, Problem> {
        let failed = |why: String, next: &str| {
            let what = format!("cannot listen for commands at {}", socket.display());
            Problem::new(Code::ListenFailed, what, why, next)
        };
        let elsewhere = "name a directory of yours: --runtime-dir DIR, or WATTLE_RUNTIME_DIR";
        check_socket_path(socket).map_err(|why| failed(why, elsewhere))?;
        let not_bound = |error: ListenError| match error {
            ListenError::InUse => {
                let next = "stop the other server, or give this one a name of its own: --name";
                failed(error.to_string(), next).transient(true)
            }
            _ => failed(error.to_string(), elsewhere),
        };
        let listener = Listener::unix(socket).map_err(not_bound)?.reserved();
        restrict(socket).map_err(|error| failed(error.to_string(), elsewhere))?;
        Ok(listener)
    }

    /// Answers every client that connects, until the runtime ends.
    pub fn start(
        core: &Core,
        listener: Listener,
        handler: impl Fn(ServerRequest) -> Pin<Box<dyn Future<Output = Response>>> + 'static,
    ) -> Self {
        let state = Rc::new(State {
            handler: Box::new(handler),
            waits: RefCell::default(),
            wait_count: Cell::new(0),
            one_wait_less: Notify::new(),
            orders: Cell::new(0),
            answering: Cell::new(0),
            answered: Notify::new(),
        });
        core.spawn(accept(core.clone(), listener, state.clone()));
        Self { state }
    }

    /// Waits until no request is left half answered, but not for clients that do not take their
    /// answers.
    pub async fn drain(&self, core: &Core) {
        let answered = async {
            while self.state.answering.get() > 0 {
                self.state.answered.wait().await;
            }
        };
        race(answered, core.sleep(DRAIN_TIME_MAX)).await;
    }
}

async fn accept(core: Core, listener: Listener, state: Rc<State>) {
    /// A failing accept mostly means that descriptors are short: connections that end free some.
    const PAUSE: Duration = Duration::from_millis(100);
    loop {
        match core.accept(&listener).await {
            Ok(stream) => {
                let waiting = state.wait(&core).await;
                let (task, state) = (core.clone(), state.clone());
                core.spawn(async move {
                    // A client that vanishes or dawdles is its own concern.
                    let _ = converse(&task, &stream, &state, waiting).await;
                    stream.shutdown();
                });
            }
            Err(_) => core.sleep(PAUSE).await,
        }
    }
}

/// The client is gone, or too slow.
struct Lost;

async fn converse(core: &Core, stream: &Stream, state: &Rc<State>, mut waiting: Waiting) -> Result<(), Lost> {
    if let Some(user) = stream.peer_uid().filter(|user| !is_trusted(*user)) {
        let stranger = Problem::new(
            Code::PermissionDenied,
            format!("user {user} asks"),
            "a server obeys its own user and root",
            "ask as the user that serves",
        );
        return send(core, stream, &error_response(&stranger)).await;
    }
    let mut pending = Vec::new();
    loop {
        let line = race(receive_line(core, stream, &mut pending), &mut waiting.kept).await;
        drop(waiting);
        // A request that came in the last moment is answered.
        let Either::First(line) = line else { return Err(Lost) };
        let request = match line? {
            Line::End => return Ok(()),
            Line::Complete(line) => decode::<ServerRequest>(&line),
            Line::TooLong => Err(Problem::new(
                Code::ServerFailed,
                format!("a request is longer than {REQUEST_BYTES_MAX} bytes"),
                "requests are one JSON object per line",
                "use the same version of wattle for both",
            )),
        };
        state.answering.set(state.answering.get() + 1);
        let (response, understood) = match request {
            Ok(request) => (state.answer(request).await, true),
            Err(problem) => (error_response(&problem), false),
        };
        waiting = state.wait(core).await;
        let sent = race(send(core, stream, &response), &mut waiting.kept).await;
        state.answering.set(state.answering.get() - 1);
        state.answered.notify_all();
        match sent {
            Either::First(sent) => sent?,
            Either::Second(_) => return Err(Lost),
        }
        drop(waiting);
        if !understood {
            return Ok(());
        }
        waiting = state.wait(core).await;
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

/// What no client would take to its end is told as that.
fn line_of(response: &Response) -> Vec<u8> {
    let line = encode(response);
    if line.len() <= LINE_BYTES_MAX {
        return line;
    }
    encode(&error_response(&Problem::new(
        Code::ServerFailed,
        format!("the answer would be {} bytes long", line.len()),
        format!("{LINE_BYTES_MAX} bytes are the most that clients take"),
        "serve what it serves with several servers",
    )))
}

async fn send(core: &Core, stream: &Stream, response: &Response) -> Result<(), Lost> {
    let bytes = vec![Buf::copy_of(&line_of(response))];
    match race(core.send(stream, bytes), core.sleep(REQUEST_TIME_MAX)).await {
        Either::First(Ok(())) => Ok(()),
        Either::First(Err(_)) | Either::Second(()) => Err(Lost),
    }
}
