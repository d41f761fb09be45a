//! Writes that came in on one core and belong to a stripe of another, which they could not or should not borrow ([`crate::loan`]): they go
//! there as messages, and so do the answers.

use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Drain;

use wattle_rt::{Buf, Core, CoreIx, Message};

use super::{Request, Waiter, WritePiece, WriteResult, Writer, enqueue};
use crate::array::Shard;
use crate::loan;
use crate::units::StripeNo;

/// The writes of one core that others carry out.
#[derive(Default)]
pub(crate) struct Away {
    waiters: RefCell<Waiters>,
}

/// Those who wait, each under the number of its place.
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

/// Gives back a stripe, or a range of copies, that this core has borrowed.
pub(crate) fn give_back(shard: &Shard, owner: CoreIx, stripe: StripeNo) {
    if shard.fixed.loans.give_back(owner, stripe) {
        let text = Text::Returned { class: loan::class(stripe) };
        shard.core.post(owner, Letter { key: shard.fixed.key, text });
    }
}

/// What the shards of an array on two cores send each other.
pub(super) struct Letter {
    /// The array.
    key: u64,
    text: Text,
}

enum Text {
    /// Somebody waits on core `from` under `number`.
    Write { stripe: StripeNo, piece: WritePiece, from: CoreIx, number: u32 },
    /// With what was written, if nobody here keeps it: its handle is dropped where it was made.
    Written { number: u32, result: WriteResult, data: Option<Buf> },
    /// What was borrowed of a class is back, and its owner waits for that.
    Returned { class: usize },
}

impl Letter {
    /// Sends a write to the core that owns its stripe.
    pub fn write(shard: &Shard, owner: CoreIx, stripe: StripeNo, piece: WritePiece, waiter: Waiter) {
        let piece = WritePiece { company: shard.writes.get().max(1), ..piece };
        let number = shard.away.put(waiter);
        let text = Text::Write { stripe, piece, from: shard.core.index(), number };
        shard.core.post(owner, Letter { key: shard.fixed.key, text });
    }

    /// Sends the answer back.
    pub fn answer(shard: &Shard, to: CoreIx, number: u32, result: WriteResult, data: Buf) {
        let text = Text::Written { number, result, data: data.give_back() };
        shard.core.post(to, Letter { key: shard.fixed.key, text });
    }

    fn open(self, shard: &Rc<Shard>) {
        match self.text {
            Text::Write { stripe, piece, from, number } => {
                let piece = WritePiece { buf: piece.buf.adopt(), ..piece };
                enqueue(shard, stripe, Request::Write(piece, Writer::Away(from, number)));
            }
            Text::Written { number, result, data } => {
                drop(data);
                shard.away.take(number).answer(result);
            }
            Text::Returned { class } => shard.lender.returned(class),
        }
    }
}

impl Message for Letter {
    fn deliver(letters: Drain<'_, Letter>, core: &Core) {
        let mut known: Option<Rc<Shard>> = None;
        for letter in letters {
            // Nearly always they are all of one array.
            let shard = known.take().filter(|shard| shard.fixed.key == letter.key).unwrap_or_else(|| {
                // The pass of whoever waits keeps the array running, and with it every core's shard.
                core.local::<Shard>(letter.key).expect("a running array has a shard on every core")
            });
            letter.open(&shard);
            known = Some(shard);
        }
    }
}
