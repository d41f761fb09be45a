//! One core's queue of the device: requests as they come, each a task on this core, each answered
//! on the queue it came from.
//!
//! The queue is emptied, a batch at a time; all answers of a turn leave in one system call. Only
//! when nothing came does the core wait for the queue.
//!
//! Invariants:
//! 1. A message that was received is answered, unless the kernel has given up on it.
//! 2. Requests that were read and not answered hold [`CORE_BYTES_MAX`] at most, and what one batch
//!    may bring on top.

use std::cell::Cell;
use std::rc::Rc;

use wattle_rt::sync::Notify;
use wattle_rt::{BUF_ALIGN_BYTES, Buf, BufMut, Core, Either, IoError, Stream, race};

use super::execute::{Reply, Shard, execute};
use super::limits::{COPY_BYTES_MAX, CORE_BYTES_MAX, MESSAGES_AT_ONCE_MAX, REQUEST_BYTES_MAX};
use super::protocol::{FuseErrno, HEAD_BYTES, reply_header};
use super::request::{FuseCommand, FuseStep, decide, parse};
use crate::OUT_OF_DESCRIPTORS_PAUSE;

/// One core's queue.
pub(super) struct Session {
    core: Core,
    shard: Rc<Shard>,
    queue: Stream,
    held_bytes: Cell<usize>,
    requests: Cell<usize>,
    released: Notify,
}

/// What a message is received into.
struct Buffers {
    head: BufMut,
    body: BufMut,
}

impl Buffers {
    fn new() -> Self {
        Self { head: BufMut::alloc(HEAD_BYTES), body: BufMut::alloc(REQUEST_BYTES_MAX) }
    }
}

/// Serves the queue until the mount is gone or it is told to stop, and then until everything is
/// answered. Whether the mount is gone.
pub(super) async fn serve(core: Core, shard: Rc<Shard>, queue: Stream) -> bool {
    let session = Rc::new(Session {
        core,
        shard: shard.clone(),
        queue,
        held_bytes: Cell::new(0),
        requests: Cell::new(0),
        released: Notify::new(),
    });
    let ended = race(receive(&session), shard.stopping.wait()).await;
    while session.requests.get() > 0 {
        session.released.wait().await;
    }
    matches!(ended, Either::First(()))
}

/// Takes messages until the mount is gone.
async fn receive(session: &Rc<Session>) {
    let mut buffers = Buffers::new();
    loop {
        while session.held_bytes.get() > CORE_BYTES_MAX {
            session.released.wait().await;
        }
        let mut came = 0;
        let ended = loop {
            match session.queue.try_receive(&mut buffers.head, &mut buffers.body) {
                Ok(length) => start(session, &mut buffers, length),
                Err(error) => break Some(error),
            }
            came += 1;
            if came == MESSAGES_AT_ONCE_MAX {
                break None;
            }
        };
        match ended {
            Some(error) if is_gone(error) => return,
            // What came is done first; mostly the answers bring the next requests.
            _ if came > 0 => session.core.yield_now().await,
            _ => {
                // It takes a descriptor, of which there may be none just now.
                if session.core.readable(&session.queue).await.is_err() {
                    session.core.sleep(OUT_OF_DESCRIPTORS_PAUSE).await;
                }
            }
        }
    }
}

/// Whether nothing more comes. A request may vanish between being announced and being read, which
/// is no end.
fn is_gone(error: IoError) -> bool {
    !matches!(error.errno(), libc::EAGAIN | libc::EINTR | libc::ENOENT)
}

/// Starts what a message asks for. The buffers are free for the next one then.
fn start(session: &Rc<Session>, buffers: &mut Buffers, length: usize) {
    let mut joined = Vec::new();
    let Ok(request) = parse(&buffers.head, &buffers.body, length, &mut joined) else {
        debug_assert!(false, "the kernel sends whole messages");
        return;
    };
    let (unique, data_bytes) = (request.header.unique, request.rest.len());
    let job = match decide(&session.shard.tree.borrow(), &request) {
        Ok(FuseStep::Silence) => return,
        Ok(FuseStep::Answer(out)) => {
            begin(session, 0, unique, async move |_, _| Ok(Reply::Structure(out)));
            return;
        }
        Err(errno) => {
            begin(session, 0, unique, async move |_, _| Err(errno));
            return;
        }
        Ok(FuseStep::Job(job)) => job,
    };
    let data = match job.command {
        FuseCommand::Write(_) if data_bytes <= COPY_BYTES_MAX => Buf::copy_of(&buffers.body[..data_bytes]),
        FuseCommand::Write(_) => {
            std::mem::replace(&mut buffers.body, BufMut::alloc(REQUEST_BYTES_MAX)).freeze()
        }
        _ => Buf::zeros(0),
    };
    let held_bytes = match job.command {
        FuseCommand::Read => (job.length_bytes as usize).next_power_of_two().max(BUF_ALIGN_BYTES),
        FuseCommand::Write(_) => data.capacity_bytes(),
        _ => 0,
    };
    begin(session, held_bytes, unique, async move |core, shard| execute(&core, &shard, job, data).await);
}

/// Starts a task that does the work and answers.
fn begin<F>(session: &Rc<Session>, held_bytes: usize, unique: u64, work: F)
where
    F: AsyncFnOnce(Core, Rc<Shard>) -> Result<Reply, FuseErrno> + 'static,
{
    session.held_bytes.set(session.held_bytes.get() + held_bytes);
    session.requests.set(session.requests.get() + 1);
    let session = session.clone();
    session.core.clone().spawn(async move {
        let reply = work(session.core.clone(), session.shard.clone()).await;
        session.answer(unique, reply).await;
        session.held_bytes.set(session.held_bytes.get() - held_bytes);
        session.requests.set(session.requests.get() - 1);
        session.released.notify_all();
    });
}

impl Session {
    async fn answer(&self, unique: u64, reply: Result<Reply, FuseErrno>) {
        let data = match reply {
            Ok(Reply::Structure(out)) if out.0.is_empty() => Ok(None),
            Ok(Reply::Structure(out)) => Ok(Some(Buf::copy_of(&out.0))),
            Ok(Reply::Data(data)) => Ok(Some(data)),
            Err(errno) => Err(errno),
        };
        let length = data.as_ref().map(|data| data.as_ref().map_or(0, |data| data.len()));
        let header = Buf::copy_of(&reply_header(unique, length.map_err(|errno| *errno)));
        let slices = std::iter::once(header).chain(data.ok().flatten()).collect();
        // An error says that this answer is not waited for any more: its caller was killed, or the
        // mount is gone.
        let _ = self.core.send(&self.queue, slices).await;
    }
}
