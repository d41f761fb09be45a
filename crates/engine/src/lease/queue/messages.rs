//! Writes that came in on one core and belong to a stripe of another, which they could not or
//! should not lease ([`crate::lease::words`]): they go there as messages, and so do the answers.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::vec::Drain;

use wattle_rt::{Buf, Core, CoreIx, Message};

use super::{Request, StripeLevel, Waiter, WritePiece, WriteResult, Writer, enqueue};
use crate::hints::StreamHint;
use crate::lease::LeaseShard;
use crate::model::stripe_hash;
use crate::model::units::StripeNo;

/// The writes of one core that others carry out.
#[derive(Default)]
pub(crate) struct Away {
    waiters: RefCell<Waiters>,
}

/// The waiting requests, each under the number of its place.
#[derive(Default)]
struct Waiters {
    places: Vec<Option<Waiter>>,
    free: Vec<u32>,
}

impl Away {
    fn put(&self, waiter: Waiter) -> u32 {
        let Waiters { places, free } = &mut *self.waiters.borrow_mut();
        let number = free.pop().unwrap_or_else(|| {
            places.push(None);
            u32::try_from(places.len() - 1).expect("fewer writes than memory")
        });
        places[number as usize] = Some(waiter);
        number
    }

    fn take(&self, number: u32) -> Waiter {
        let mut waiters = self.waiters.borrow_mut();
        waiters.free.push(number);
        waiters.places[number as usize].take().expect("a write is answered once")
    }
}

/// Releases this core's lease of a stripe, or of a range of copies.
pub(crate) fn release<L: StripeLevel>(leases: &LeaseShard, owner: CoreIx, stripe: StripeNo) {
    if leases.words.release(owner, stripe) {
        let text = Text::Returned { class: stripe_hash::class(stripe) };
        leases.core.post(owner, StripeMessage::<L>::new(leases, text));
    }
}

/// What the shards of an array on two cores send each other.
pub(super) struct StripeMessage<L> {
    /// The array.
    key: u64,
    text: Text,
    /// The level that opens them.
    level: PhantomData<fn() -> L>,
}

enum Text {
    /// A task waits on core `from` under `number`.
    Write { stripe: StripeNo, piece: WritePiece, from: CoreIx, number: u32 },
    /// With what was written, if this core does not keep it: its handle is dropped where it was
    /// made.
    Written { number: u32, result: WriteResult, data: Option<Buf> },
    /// The lease of a class is released, and its owner waits for that.
    Returned { class: usize },
}

impl<L: StripeLevel> StripeMessage<L> {
    fn new(leases: &LeaseShard, text: Text) -> Self {
        Self { key: leases.fixed.key, text, level: PhantomData }
    }

    /// Sends a write to the core that owns its stripe, with what this one knows of it.
    pub fn write(
        leases: &LeaseShard,
        owner: CoreIx,
        stripe: StripeNo,
        recurs: bool,
        piece: WritePiece,
        waiter: Waiter,
    ) {
        let hint = StreamHint { under_way: leases.hints.writes.get().max(1), recurs };
        let piece = WritePiece { hint, ..piece };
        let number = leases.away.put(waiter);
        let text = Text::Write { stripe, piece, from: leases.core.index(), number };
        leases.core.post(owner, StripeMessage::<L>::new(leases, text));
    }

    /// Sends the answer back.
    pub fn answer(leases: &LeaseShard, to: CoreIx, number: u32, result: WriteResult, data: Buf) {
        let text = Text::Written { number, result, data: data.into_adopted() };
        leases.core.post(to, Self::new(leases, text));
    }

    fn open(self, level: &Rc<L>) {
        match self.text {
            Text::Write { stripe, piece, from, number } => {
                let piece = WritePiece { buf: piece.buf.adopt(), ..piece };
                enqueue(level, stripe, Request::Write(piece, Writer::Away(from, number)));
            }
            Text::Written { number, result, data } => {
                drop(data);
                level.leases().away.take(number).answer(result);
            }
            Text::Returned { class } => level.leases().own.returned(class),
        }
    }
}

impl<L: StripeLevel> Message for StripeMessage<L> {
    fn deliver(messages: Drain<'_, Self>, core: &Core) {
        let mut known: Option<Rc<L>> = None;
        for message in messages {
            // Nearly always they are all of one array.
            let level =
                known.take().filter(|level| level.leases().fixed.key == message.key).unwrap_or_else(|| {
                    // The permit of the waiting write keeps the array running, and with it every
                    // core's shard.
                    core.local::<L>(message.key).expect("a running array has a shard on every core")
                });
            message.open(&level);
            known = Some(level);
        }
    }
}
