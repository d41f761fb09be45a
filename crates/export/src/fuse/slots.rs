//! One core's queues over io_uring: requests come in slots of memory that the kernel knows, and
//! their answers go back there.
//!
//! The ring is turned at most once per turn of the executor, while requests come or answers leave,
//! and waited for only when there is nothing else.
//!
//! Invariant: a slot that came with a request is answered exactly once, for only that gives it
//! back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wattle_rt::fuse::Ring;
use wattle_rt::sync::Notify;
use wattle_rt::{Buf, Core, Either, race};

use super::execute::{Reply, Shard, execute};
use super::protocol::{FuseErrno, HEADER_BYTES, Header, Out, reply_header};
use super::request::{FuseCommand, FuseRequest, FuseStep, decide};
use crate::OUT_OF_DESCRIPTORS_PAUSE;

struct Slots {
    core: Core,
    shard: Rc<Shard>,
    ring: RefCell<Ring>,
    /// Requests whose volume is at work.
    requests: Cell<usize>,
    answered: Notify,
}

/// Serves a registered ring until the mount is gone or it is told to stop, and then until
/// everything is answered. `came` has what came already.
pub(super) async fn serve(core: Core, shard: Rc<Shard>, ring: Ring, came: Vec<usize>) {
    let slots = Rc::new(Slots {
        core,
        shard: shard.clone(),
        ring: RefCell::new(ring),
        requests: Cell::new(0),
        answered: Notify::new(),
    });
    race(turn(&slots, came), shard.stopping.wait()).await;
    while slots.requests.get() > 0 {
        slots.answered.wait().await;
    }
    // Answers leave with a turn; that nothing more comes is known.
    let _ = slots.ring.borrow_mut().turn(&mut Vec::new());
}

/// Turns the ring until the mount is gone.
async fn turn(slots: &Rc<Slots>, mut came: Vec<usize>) {
    let mut readable = None;
    loop {
        if !came.is_empty() {
            came.drain(..).for_each(|ix| start(slots, ix));
            slots.core.yield_now().await;
        }
        if slots.ring.borrow_mut().turn(&mut came).is_err() {
            return;
        }
        if came.is_empty() {
            // An answer that comes while we wait must leave; the wait for the ring goes on then.
            let waiting = readable.get_or_insert_with(|| slots.core.readable(&*slots.ring.borrow()));
            match race(waiting, slots.answered.wait()).await {
                Either::First(Ok(())) => readable = None,
                // It takes a descriptor, of which there may be none just now. That the mount is
                // gone, a turn says.
                Either::First(Err(_)) => {
                    readable = None;
                    slots.core.sleep(OUT_OF_DESCRIPTORS_PAUSE).await;
                }
                Either::Second(()) => {}
            }
        }
    }
}

/// Answers what a slot asks for, at once or by a task.
fn start(slots: &Rc<Slots>, ix: usize) {
    let (unique, step, data) = {
        let ring = slots.ring.borrow();
        let request = ring.request(ix);
        let header = Header::decode(
            request.header.first_chunk::<HEADER_BYTES>().expect("slots have room for headers"),
        );
        let step = decide(
            &slots.shard.tree.borrow(),
            &FuseRequest { header, args: request.args, rest: request.payload },
        );
        let data = match step {
            Ok(FuseStep::Job(job)) if matches!(job.command, FuseCommand::Write(_)) => {
                Buf::copy_of(request.payload)
            }
            _ => Buf::zeros(0),
        };
        (header.unique, step, data)
    };
    let job = match step {
        Ok(FuseStep::Job(job)) => job,
        Ok(FuseStep::Answer(out)) => return slots.answer(ix, unique, &Ok(Reply::Structure(out))),
        Ok(FuseStep::Silence) => return slots.answer(ix, unique, &Ok(Reply::Structure(Out::default()))),
        Err(errno) => return slots.answer(ix, unique, &Err(errno)),
    };
    slots.requests.set(slots.requests.get() + 1);
    let slots = slots.clone();
    slots.core.clone().spawn(async move {
        let reply = execute(&slots.core, &slots.shard, job, data).await;
        slots.answer(ix, unique, &reply);
        slots.requests.set(slots.requests.get() - 1);
        slots.answered.notify_all();
    });
}

impl Slots {
    fn answer(&self, ix: usize, unique: u64, reply: &Result<Reply, FuseErrno>) {
        let data: Result<&[u8], FuseErrno> = match reply {
            Ok(Reply::Structure(out)) => Ok(&out.0),
            Ok(Reply::Data(data)) => Ok(data),
            Err(errno) => Err(*errno),
        };
        let header = reply_header(unique, data.map(<[u8]>::len));
        self.ring.borrow_mut().answer(ix, &header, data.unwrap_or_default());
    }
}
