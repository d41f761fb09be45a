//! The stripe path: requests that need a stripe to themselves, one task per active stripe.
//!
//! Requests for a stripe queue here. The first one starts the stripe's task (`workers`); what
//! arrives while it works leaves together as the next batch, so neighbours merge into fewer and
//! fuller rows, and a request alone never waits for others. A write that arrives on another core
//! than the stripe's leases the stripe, or is sent to the owner as a message (`messages`). What a
//! batch does to the members is the level's business ([`StripeLevel`]).
//!
//! Stripe tasks are never dropped: a stripe that was begun is finished, whatever becomes of the
//! client.

mod gather;
mod messages;
mod workers;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

use smallvec::{SmallVec, smallvec};
use wattle_rt::sync::OneshotSender;
use wattle_rt::{Buf, BufMut, CoreIx, Durability, oneshot};

use super::{LeaseShard, UnderWay};
use crate::hints::StreamHint;
use crate::model::error::VolumeError;
use crate::model::invariant::invariant;
use crate::model::stripe_hash::ByStripe;
use crate::model::units::{MemberSet, SECTOR_BYTES, StripeNo};
use crate::state::answer;
use gather::{Gather, Run};
use messages::StripeMessage;
pub(crate) use messages::{Away, release};
use workers::{Worker, Workers};

/// What carries out the batches of stripes: the level with parity.
pub(crate) trait StripeLevel: 'static {
    /// This core's part of the array's leases.
    fn leases(&self) -> &Rc<LeaseShard>;

    /// Writes pieces, which touch no byte twice, and returns when they may be acknowledged.
    async fn write(self: &Rc<Self>, stripe: StripeNo, pieces: &[WritePiece]) -> WriteResult;

    /// Fills the pieces' buffers.
    async fn read(self: &Rc<Self>, stripe: StripeNo, pieces: &mut [ReadPiece]) -> Result<(), VolumeError>;
}

/// Most requests in one batch.
const BATCH_MAX: usize = 1024;

/// A write of at most so many bytes is done by the core that it came in on, if that gets a lease of
/// the stripe. Larger ones gain more by going to where their neighbours gather.
const LEASED_WRITE_BYTES_MAX: usize = 16 << 10;

/// A task that is done with a stripe keeps so much room for waiting requests.
const QUEUE_KEPT: usize = 16;

/// A write inside one stripe.
pub(crate) struct WritePiece {
    /// First byte, counted through the stripe's data in array order.
    pub start: u64,
    pub buf: Buf,
    pub durability: Durability,
    /// From the core that it came in on.
    pub hint: StreamHint,
}

/// A read inside one stripe that needs the stripe to itself, because something has to be
/// reconstructed.
pub(crate) struct ReadPiece {
    /// First byte, counted through the stripe's data in array order.
    pub start: u64,
    pub buf: BufMut,
    /// Members not to ask as long as there is another way: they do not answer in time.
    pub avoid: MemberSet,
}

type ReadResult = (Result<(), VolumeError>, BufMut);

pub(crate) type WriteResult = Result<(), VolumeError>;

/// What waits for a write.
enum Writer {
    /// A task on this core.
    Here(Waiter),
    /// A task on another core, under its number there.
    Away(CoreIx, u32),
}

/// What waits for a write that came in on this core.
struct Waiter {
    sender: OneshotSender<WriteResult>,
    /// The client's write, where this is all of it.
    _under_way: Option<UnderWay>,
}

impl Waiter {
    /// The client may have gone; the write is done all the same.
    fn answer(self, result: WriteResult) {
        answer(self.sender, result);
    }
}

impl Writer {
    fn answer<L: StripeLevel>(self, leases: &LeaseShard, result: WriteResult, data: Buf) {
        match self {
            Self::Here(waiter) => waiter.answer(result),
            Self::Away(core, number) => StripeMessage::<L>::answer(leases, core, number, result, data),
        }
    }
}

enum Request {
    Write(WritePiece, Writer),
    Read(ReadPiece, OneshotSender<ReadResult>),
    Exclusive(OneshotSender<ExclusiveStripe>),
}

/// A stripe to oneself, until this is dropped.
pub(crate) struct ExclusiveStripe {
    _done: OneshotSender<()>,
}

/// Requests that are carried out together; most are alone.
enum Batch {
    Exclusive(OneshotSender<ExclusiveStripe>),
    Writes(SmallVec<[WritePiece; 1]>, SmallVec<[Writer; 1]>),
    Reads(Vec<(ReadPiece, OneshotSender<ReadResult>)>),
}

/// The stripes of one core that have work, each with its task. An entry exists while the task works
/// on the stripe.
#[derive(Default)]
pub(crate) struct StripeTable {
    active: RefCell<ByStripe<Rc<Active>>>,
    gather: Gather,
    workers: Workers,
}

/// A stripe that a task works on, or the place for one while the task has none.
#[derive(Default)]
struct Active {
    waiting: RefCell<VecDeque<Request>>,
    run: RefCell<Run>,
    /// The task waits for more writes.
    held: Cell<bool>,
    worker: Worker,
}

/// The core that owns a stripe. Neighbouring stripes go to different cores, so a sequential stream
/// uses all of them.
pub(crate) fn owner(stripe: StripeNo, cores: usize) -> CoreIx {
    let cores = cores as u64;
    // Divisions take longer than most of what follows.
    CoreIx(if cores.is_power_of_two() { stripe.0 & (cores - 1) } else { stripe.0 % cores } as usize)
}

/// Writes a piece, whichever core owns the stripe. The caller holds a permit, or hands over the
/// client's write with its own: then the piece is written also if this future is dropped.
pub(crate) async fn write<L: StripeLevel>(
    level: &Rc<L>,
    stripe: StripeNo,
    piece: WritePiece,
    under_way: Option<UnderWay>,
) -> WriteResult {
    let (sender, receiver) = oneshot();
    let waiter = Waiter { sender, _under_way: under_way };
    let leases = &**level.leases();
    let owner = owner(stripe, leases.core.cores());
    let away = owner != leases.core.index();
    let stream = away && goes_on(leases, stripe, piece.range());
    // Streams are gathered by owners.
    if !away || (!stream && piece.buf.len() <= LEASED_WRITE_BYTES_MAX) {
        leases.words.is_coming(owner, stripe);
        leases.hints.cache.row_is_coming(stripe, leases.hints.cache.row_of(piece.start));
        enqueue(level, stripe, Request::Write(piece, Writer::Here(waiter)));
    } else {
        let recurs = stream && piece.start > 0;
        StripeMessage::<L>::write(leases, owner, stripe, recurs, piece, waiter);
    }
    receiver.await.unwrap_or(Err(VolumeError::Stopped))
}

/// Whether a write of a range of a stripe's data goes on where one before it ended, on this core.
pub(crate) fn goes_on(leases: &LeaseShard, stripe: StripeNo, range: Range<u64>) -> bool {
    let first = stripe.0 * leases.fixed.geometry.stripe_data_sectors().0 * SECTOR_BYTES;
    leases.hints.streams.goes_on(first + range.start..first + range.end)
}

/// Reads a piece with reconstruction; this core owns the stripe and the caller holds a permit.
pub(crate) async fn read<L: StripeLevel>(level: &Rc<L>, stripe: StripeNo, piece: ReadPiece) -> ReadResult {
    let (sender, receiver) = oneshot();
    enqueue(level, stripe, Request::Read(piece, sender));
    receiver.await.unwrap_or_else(|| (Err(VolumeError::Stopped), BufMut::alloc(0)))
}

/// Waits until the stripe is free and keeps it: for a resync, a rebuild or a scrub. This core owns
/// the stripe and the caller holds a background permit. `None` once the array is stopped.
pub(crate) async fn exclusively<L: StripeLevel>(level: &Rc<L>, stripe: StripeNo) -> Option<ExclusiveStripe> {
    let (sender, receiver) = oneshot();
    enqueue(level, stripe, Request::Exclusive(sender));
    receiver.await
}

/// Queues a request on a stripe that this core owns, or is going to lease.
fn enqueue<L: StripeLevel>(level: &Rc<L>, stripe: StripeNo, request: Request) {
    let leases = &**level.leases();
    let table = &leases.stripes;
    let (active, idle) = match table.active.borrow_mut().entry(stripe) {
        Entry::Occupied(entry) => (entry.get().clone(), false),
        Entry::Vacant(entry) => (entry.insert(table.workers.take()).clone(), true),
    };
    if let Request::Write(piece, _) = &request {
        let new = idle && table.gather.follows(stripe);
        active.run.borrow_mut().add(piece, new);
    }
    active.waiting.borrow_mut().push_back(request);
    table.gather.arrived(leases, stripe, &active);
    if idle {
        workers::start(level, stripe, active);
    }
}

/// Serves one stripe until nothing waits on it. The table guarantees one such task per stripe
/// (invariant 4).
async fn serve<L: StripeLevel>(level: &Rc<L>, stripe: StripeNo, active: &Active) {
    let leases = &**level.leases();
    let task = StripeTask::<L>::new(leases, stripe);
    if !task.begin(active).await {
        return;
    }
    let mut answered = false;
    loop {
        if !task.is_leased() {
            gather::wait(leases, active, answered).await;
        } else if answered {
            // It is leased for one batch: the owner may be waiting.
            task.send_on(active, false);
            return task.end();
        }
        let Some(batch) = leases.stripes.take_batch(stripe, active) else { return task.end() };
        invariant!(4, task.has_the_stripe());
        answered = matches!(batch, Batch::Writes(..));
        match batch {
            Batch::Exclusive(sender) => {
                leases.hints.cache.take_out_stripe(stripe);
                let (done, dropped) = oneshot();
                if sender.send(ExclusiveStripe { _done: done }).is_ok() {
                    let _ = dropped.await;
                }
            }
            Batch::Writes(pieces, writers) => {
                if pieces.len() > 1 {
                    leases.state.counters.merged.add(pieces.len() as u64 - 1);
                }
                let began = active.run.borrow().is_stream().then(|| leases.core.now());
                let result = level.write(stripe, &pieces).await;
                if let Some(began) = began {
                    leases.stripes.gather.took(leases.core.now() - began);
                }
                let shared = pieces.len() == 1 || result != Err(VolumeError::Unreadable);
                for (piece, writer) in pieces.into_iter().zip(writers) {
                    // What cannot be had is the error of the requests that need it, not of the
                    // others in the batch.
                    let result =
                        if shared { result } else { level.write(stripe, std::slice::from_ref(&piece)).await };
                    writer.answer::<L>(leases, result, piece.buf);
                }
            }
            Batch::Reads(batch) => {
                let (mut pieces, senders): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
                let result = level.read(stripe, &mut pieces).await;
                let shared = pieces.len() == 1 || result != Err(VolumeError::Unreadable);
                for (mut piece, sender) in pieces.into_iter().zip(senders) {
                    let one = std::slice::from_mut(&mut piece);
                    let result = if shared { result } else { level.read(stripe, one).await };
                    answer(sender, (result, piece.buf));
                }
            }
        }
    }
}

/// A task at work on one stripe.
struct StripeTask<'a, L> {
    leases: &'a LeaseShard,
    stripe: StripeNo,
    /// The core that owns the stripe.
    owner: CoreIx,
    level: PhantomData<L>,
}

impl<'a, L: StripeLevel> StripeTask<'a, L> {
    fn new(leases: &'a LeaseShard, stripe: StripeNo) -> Self {
        let owner = owner(stripe, leases.core.cores());
        Self { leases, stripe, owner, level: PhantomData }
    }

    /// Whether this core, and no other, may work on the stripe.
    fn has_the_stripe(&self) -> bool {
        let words = &self.leases.words;
        match self.is_leased() {
            true => words.is_leased(self.owner, self.stripe),
            false => words.is_with_owner(self.owner, self.stripe),
        }
    }

    fn is_leased(&self) -> bool {
        self.owner != self.leases.core.index()
    }

    /// Gets the stripe for this core: the owner waits until what it has leased out is back, another
    /// core gets a lease or `false`. Then the owner has been sent what waits here.
    async fn begin(&self, active: &Active) -> bool {
        let (leases, stripe) = (self.leases, self.stripe);
        if !self.is_leased() {
            if let Some(back) = leases.own.enter(stripe) {
                back.await.expect("a lease is returned by a message");
            }
            return true;
        }
        // Rows that come again belong into the owner's cache.
        let recurs = match active.waiting.borrow().front() {
            Some(Request::Write(piece, _)) => {
                leases.hints.cache.row_comes_again(stripe, leases.hints.cache.row_of(piece.start))
            }
            _ => false,
        };
        let leased = !recurs && leases.words.lease(self.owner, stripe);
        if !leased {
            self.send_on(active, recurs);
        }
        leased
    }

    /// Sends the owner what waits here, and ends the stripe's entry.
    fn send_on(&self, active: &Active, recurs: bool) {
        for request in self.leases.stripes.take_all(self.stripe, active) {
            match request {
                Request::Write(piece, Writer::Here(waiter)) => {
                    StripeMessage::<L>::write(self.leases, self.owner, self.stripe, recurs, piece, waiter);
                }
                _ => unreachable!("only writes of this core are queued on a stripe to lease"),
            }
        }
    }

    /// There is nothing more to do, and the stripe's entry is gone.
    fn end(&self) {
        match self.is_leased() {
            true => release::<L>(self.leases, self.owner, self.stripe),
            false => self.leases.own.leave(self.stripe),
        }
    }
}

impl StripeTable {
    /// The array is stopped and nothing is under way.
    pub fn end(&self) {
        self.workers.end();
    }

    /// Everything that waits, which ends the stripe's entry.
    fn take_all(&self, stripe: StripeNo, active: &Active) -> Vec<Request> {
        active.run.take();
        self.active.borrow_mut().remove(&stripe);
        active.waiting.borrow_mut().drain(..).collect()
    }

    /// The next requests of one kind, in the order they came, up to the first that touches the same
    /// bytes as one before it. Ends the stripe's entry when nothing waits.
    fn take_batch(&self, stripe: StripeNo, active: &Active) -> Option<Batch> {
        let mut queue = active.waiting.borrow_mut();
        let Some(first) = queue.pop_front() else {
            queue.shrink_to(QUEUE_KEPT);
            active.run.take();
            self.active.borrow_mut().remove(&stripe);
            return None;
        };
        Some(match first {
            Request::Exclusive(sender) => Batch::Exclusive(sender),
            Request::Read(piece, sender) => {
                let mut batch = vec![(piece, sender)];
                while batch.len() < BATCH_MAX
                    && let Some(Request::Read(piece, sender)) =
                        queue.pop_front_if(|next| matches!(next, Request::Read(..)))
                {
                    batch.push((piece, sender));
                }
                Batch::Reads(batch)
            }
            Request::Write(piece, writer) => {
                let mut taken = Taken(smallvec![piece.range()]);
                let (mut pieces, mut writers) = (smallvec![piece], smallvec![writer]);
                let joins = |next: &mut Request, taken: &Taken| matches!(next, Request::Write(next, _) if !taken.overlaps(&next.range()));
                while pieces.len() < BATCH_MAX
                    && let Some(Request::Write(piece, writer)) =
                        queue.pop_front_if(|next| joins(next, &taken))
                {
                    taken.add(piece.range());
                    pieces.push(piece);
                    writers.push(writer);
                }
                Batch::Writes(pieces, writers)
            }
        })
    }
}

/// Ranges of bytes, joined where they touch: those of a stream are one.
struct Taken(SmallVec<[Range<u64>; 1]>);

impl Taken {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.0.iter().any(|taken| taken.start < range.end && range.start < taken.end)
    }

    fn add(&mut self, range: Range<u64>) {
        let touches = |taken: &&mut Range<u64>| taken.end == range.start || range.end == taken.start;
        match self.0.iter_mut().find(touches) {
            Some(taken) => *taken = taken.start.min(range.start)..taken.end.max(range.end),
            None => self.0.push(range),
        }
    }
}

impl WritePiece {
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.buf.len() as u64
    }
}
