//! The stripe path: requests that need a stripe to themselves, one task per active stripe.
//!
//! Requests for a stripe queue here. The first one starts the stripe's task; what arrives while it works leaves together as
//! the next batch, so neighbours merge into fewer and fuller rows, and a request alone never waits for company. A batch is
//! cut into rows (`rows`), each row gets a plan ([`crate::plan`]), and the batch is carried out (`write`, `read`) with as few
//! member operations as the rows allow (`transfer`).
//!
//! Stripe tasks (`workers`) are never dropped: a stripe that was begun is finished, whatever becomes of the client.

mod buffers;
mod cached;
mod compute;
mod gather;
mod logged;
mod read;
mod remote;
mod rows;
mod transfer;
mod workers;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::rc::Rc;

use smallvec::{SmallVec, smallvec};
use wattle_rt::sync::OneshotSender;
use wattle_rt::{Buf, BufMut, CoreIx, Durability, oneshot};

use crate::array::{Health, Shard, UnderWay, answer};
use crate::error::VolumeError;
use crate::geometry::StripeMap;
use crate::plan::{BlockSet, Refusal, View};
use crate::spread::ByStripe;
use crate::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector, StripeNo};
use gather::{Gather, Run};
use remote::Letter;
pub(crate) use remote::{Away, give_back};
use rows::{Row, Segments};
use workers::{Worker, Workers};

/// Most requests in one batch.
const BATCH_MAX: usize = 1024;

/// A write of at most so many bytes is done by the core that it came in on, if that can borrow the stripe. Larger ones gain more by
/// going to where their neighbours gather.
const BORROWER_BYTES_MAX: usize = 16 << 10;

/// So much room for waiting requests stays with a task that is done with a stripe.
const QUEUE_KEPT: usize = 16;

/// A write inside one stripe.
pub(crate) struct WritePiece {
    /// First byte, counted through the stripe's data in array order.
    pub start: u64,
    pub buf: Buf,
    pub durability: Durability,
    /// How many writes were under way on the core that it came from, itself included; 0 if that is the stripe's own.
    pub company: usize,
    /// It goes on where another ended, or comes from a core that has seen its row before: what it leaves on the members is worth keeping.
    pub again: bool,
}

/// A read inside one stripe that needs the stripe to itself, because something has to be reconstructed.
pub(crate) struct ReadPiece {
    /// First byte, counted through the stripe's data in array order.
    pub start: u64,
    pub buf: BufMut,
    /// Members not to ask as long as there is another way: they do not answer in time.
    pub avoid: MemberSet,
}

type ReadResult = (Result<(), VolumeError>, BufMut);

type WriteResult = Result<(), VolumeError>;

/// Who waits for a write.
enum Writer {
    /// Somebody on this core.
    Here(Waiter),
    /// Somebody on another core, under a number that is his there.
    Away(CoreIx, u32),
}

/// Who waits for a write that came in on this core.
struct Waiter {
    sender: OneshotSender<WriteResult>,
    /// The client's write, where this is all of it.
    _under_way: Option<UnderWay>,
}

impl Waiter {
    /// Whoever asked may have gone; the write is done all the same.
    fn answer(self, result: WriteResult) {
        answer(self.sender, result);
    }
}

impl Writer {
    fn answer(self, shard: &Shard, result: WriteResult, data: Buf) {
        match self {
            Self::Here(waiter) => waiter.answer(result),
            Self::Away(core, number) => Letter::answer(shard, core, number, result, data),
        }
    }
}

enum Request {
    Write(WritePiece, Writer),
    Read(ReadPiece, OneshotSender<ReadResult>),
    Turn(OneshotSender<Turn>),
}

/// A stripe to oneself, until this is dropped.
pub(crate) struct Turn {
    _done: OneshotSender<()>,
}

/// Requests that are carried out together; most are alone.
enum Batch {
    Turn(OneshotSender<Turn>),
    Writes(SmallVec<[WritePiece; 1]>, SmallVec<[Writer; 1]>),
    Reads(Vec<(ReadPiece, OneshotSender<ReadResult>)>),
}

/// The stripes of one core that have work, each with its task. An entry exists while the task works on the stripe.
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

/// The core that owns a stripe. Neighbouring stripes go to different cores, so a sequential stream uses all of them.
pub(crate) fn owner(stripe: StripeNo, cores: usize) -> CoreIx {
    let cores = cores as u64;
    // Divisions take longer than most of what follows.
    CoreIx(if cores.is_power_of_two() { stripe.0 & (cores - 1) } else { stripe.0 % cores } as usize)
}

/// Writes a piece, whichever core owns the stripe. The caller holds a pass, or hands over the client's write with its own: then
/// the piece is written also if this future is dropped.
pub(crate) async fn write(
    shard: &Rc<Shard>,
    stripe: StripeNo,
    piece: WritePiece,
    under_way: Option<UnderWay>,
) -> WriteResult {
    let (sender, receiver) = oneshot();
    let waiter = Waiter { sender, _under_way: under_way };
    let owner = owner(stripe, shard.core.cores());
    let away = owner != shard.core.index();
    let stream = away && goes_on(shard, stripe, piece.range());
    // Streams are gathered by owners.
    if !away || (!stream && piece.buf.len() <= BORROWER_BYTES_MAX) {
        shard.fixed.loans.is_coming(owner, stripe);
        shard.cache.row_is_coming(stripe, shard.cache.row_of(piece.start));
        enqueue(shard, stripe, Request::Write(piece, Writer::Here(waiter)));
    } else {
        let again = stream && piece.start > 0;
        Letter::write(shard, owner, stripe, WritePiece { again, ..piece }, waiter);
    }
    receiver.await.unwrap_or(Err(VolumeError::Stopped))
}

/// Whether a write of a range of a stripe's data goes on where one before it ended, on this core.
fn goes_on(shard: &Shard, stripe: StripeNo, range: Range<u64>) -> bool {
    let first = stripe.0 * shard.fixed.geometry.stripe_data_sectors().0 * SECTOR_BYTES;
    shard.streams.goes_on(first + range.start..first + range.end)
}

/// Reads a piece with reconstruction; this core owns the stripe and the caller holds a pass.
pub(crate) async fn read(shard: &Rc<Shard>, stripe: StripeNo, piece: ReadPiece) -> ReadResult {
    let (sender, receiver) = oneshot();
    enqueue(shard, stripe, Request::Read(piece, sender));
    receiver.await.unwrap_or_else(|| (Err(VolumeError::Stopped), BufMut::alloc(0)))
}

/// Waits until the stripe is free and keeps it: for a resync, a rebuild or a scrub. This core owns the stripe and the caller
/// holds a background pass. `None` once the array is stopped.
pub(crate) async fn turn(shard: &Rc<Shard>, stripe: StripeNo) -> Option<Turn> {
    let (sender, receiver) = oneshot();
    enqueue(shard, stripe, Request::Turn(sender));
    receiver.await
}

/// Queues a request on a stripe that this core owns, or is going to borrow.
fn enqueue(shard: &Rc<Shard>, stripe: StripeNo, request: Request) {
    let table = &shard.stripes;
    let (active, idle) = match table.active.borrow_mut().entry(stripe) {
        Entry::Occupied(entry) => (entry.get().clone(), false),
        Entry::Vacant(entry) => (entry.insert(table.workers.take()).clone(), true),
    };
    if let Request::Write(piece, _) = &request {
        let new = idle && table.gather.follows(stripe);
        active.run.borrow_mut().add(piece, new);
    }
    active.waiting.borrow_mut().push_back(request);
    table.gather.arrived(shard, stripe, &active);
    if idle {
        workers::start(shard, stripe, active);
    }
}

/// Serves one stripe until nothing waits on it. The table guarantees one such task per stripe (invariant 4).
async fn serve(shard: &Rc<Shard>, stripe: StripeNo, active: &Active) {
    let work = Work::new(shard, stripe);
    if !work.begin(active).await {
        return;
    }
    let mut answered = false;
    loop {
        if !work.borrowed() {
            gather::wait(shard, active, answered).await;
        } else if answered {
            // It is lent for one batch: the owner may be waiting.
            work.send_on(active, false);
            return work.end();
        }
        let Some(batch) = shard.stripes.take_batch(stripe, active) else { return work.end() };
        answered = matches!(batch, Batch::Writes(..));
        match batch {
            Batch::Turn(sender) => {
                shard.cache.take_out_stripe(stripe);
                let (done, dropped) = oneshot();
                if sender.send(Turn { _done: done }).is_ok() {
                    let _ = dropped.await;
                }
            }
            Batch::Writes(pieces, writers) => {
                if pieces.len() > 1 {
                    shard.counters.merged.add(pieces.len() as u64 - 1);
                }
                let began = active.run.borrow().is_stream().then(|| shard.core.now());
                let result = work.write(&pieces).await;
                if let Some(began) = began {
                    shard.stripes.gather.took(shard.core.now() - began);
                }
                let shared = pieces.len() == 1 || result != Err(VolumeError::Unreadable);
                for (piece, writer) in pieces.into_iter().zip(writers) {
                    // What cannot be had is the error of those who need it, not of those who came with them.
                    let result = if shared { result } else { work.write(std::slice::from_ref(&piece)).await };
                    writer.answer(shard, result, piece.buf);
                }
            }
            Batch::Reads(batch) => {
                let (mut pieces, senders): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
                let result = work.read(&mut pieces).await;
                let shared = pieces.len() == 1 || result != Err(VolumeError::Unreadable);
                for (mut piece, sender) in pieces.into_iter().zip(senders) {
                    let one = std::slice::from_mut(&mut piece);
                    let result = if shared { result } else { work.read(one).await };
                    answer(sender, (result, piece.buf));
                }
            }
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

    /// The next requests of one kind, in the order they came, up to the first that touches the same bytes as one before
    /// it. Ends the stripe's entry when nothing waits.
    fn take_batch(&self, stripe: StripeNo, active: &Active) -> Option<Batch> {
        let mut queue = active.waiting.borrow_mut();
        let Some(first) = queue.pop_front() else {
            queue.shrink_to(QUEUE_KEPT);
            active.run.take();
            self.active.borrow_mut().remove(&stripe);
            return None;
        };
        Some(match first {
            Request::Turn(sender) => Batch::Turn(sender),
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
    fn range(&self) -> Range<u64> {
        self.start..self.start + self.buf.len() as u64
    }
}

/// One stripe being worked on.
struct Work<'a> {
    shard: &'a Rc<Shard>,
    map: StripeMap,
    chunk_bytes: u64,
    /// Whose the stripe is.
    owner: CoreIx,
}

impl<'a> Work<'a> {
    fn new(shard: &'a Rc<Shard>, stripe: StripeNo) -> Self {
        let geometry = &shard.fixed.geometry;
        Self {
            shard,
            map: geometry.stripe(stripe),
            chunk_bytes: geometry.chunk().0 * SECTOR_BYTES,
            owner: owner(stripe, shard.core.cores()),
        }
    }

    fn borrowed(&self) -> bool {
        self.owner != self.shard.core.index()
    }

    /// Gets the stripe for this core: it waits for what it has lent; `false` if it could not borrow. Then the owner gets what is here.
    async fn begin(&self, active: &Active) -> bool {
        let (shard, stripe) = (self.shard, self.map.stripe);
        if !self.borrowed() {
            if let Some(back) = shard.lender.enter(stripe) {
                back.await.expect("whoever has borrowed it tells");
            }
            return true;
        }
        // Rows that come again belong into the owner's cache.
        let again = match active.waiting.borrow().front() {
            Some(Request::Write(piece, _)) => {
                shard.cache.row_comes_again(stripe, shard.cache.row_of(piece.start))
            }
            _ => false,
        };
        let borrowed = !again && shard.fixed.loans.borrow(self.owner, stripe);
        if !borrowed {
            self.send_on(active, again);
        }
        borrowed
    }

    /// Sends the owner what waits here, and ends the stripe's entry.
    fn send_on(&self, active: &Active, again: bool) {
        for request in self.shard.stripes.take_all(self.map.stripe, active) {
            match request {
                Request::Write(piece, Writer::Here(waiter)) => {
                    let piece = WritePiece { again: piece.again || again, ..piece };
                    Letter::write(self.shard, self.owner, self.map.stripe, piece, waiter);
                }
                _ => unreachable!("only writes of this core are queued on a stripe to borrow"),
            }
        }
    }

    /// There is nothing more to do, and the stripe's entry is gone.
    fn end(&self) {
        match self.borrowed() {
            true => give_back(self.shard, self.owner, self.map.stripe),
            false => self.shard.lender.leave(self.map.stripe),
        }
    }

    /// Parity agrees with the data in this stripe.
    fn trusted(&self, health: &Health) -> bool {
        // A broken array has writes that reached some members and not others, which nobody records as failed.
        !health.broken && health.trust.covers(self.sectors(0..self.chunk_bytes))
    }

    /// The member data sectors of a range of bytes in the stripe's chunks.
    fn sectors(&self, bytes: Range<u64>) -> Range<Sector> {
        let at = |byte| Sector(self.map.member_sector.0 + byte / SECTOR_BYTES);
        at(bytes.start)..at(bytes.end)
    }

    fn data(&self) -> usize {
        self.map.data_blocks()
    }

    fn blocks(&self) -> usize {
        self.data() + self.parities()
    }

    fn parities(&self) -> usize {
        1 + usize::from(self.map.q().is_some())
    }

    /// Exponent of a data block in Q; where there is no Q any order will do.
    fn exponent(&self, k: usize) -> u8 {
        if self.map.q().is_some() { self.map.exponent(k) } else { k as u8 }
    }

    /// The member that holds a block.
    fn member(&self, block: usize) -> MemberIx {
        match block.checked_sub(self.data()) {
            None => self.map.data_member(block),
            Some(0) => self.map.p(),
            Some(_) => self.map.q().expect("a second parity block exists only where there is a Q"),
        }
    }

    /// A row as `health` has it, without the blocks that could not be read just now.
    fn view(&self, health: &Health, row: &Row, unreadable: &BlockSet, cached: BlockSet) -> View {
        let sectors = self.sectors(row.bytes.clone());
        let all = BlockSet::range(0, self.blocks());
        let those = |takes: &dyn Fn(MemberIx) -> bool| match health.optimal {
            true => all,
            false => all.iter().filter(|&block| takes(self.member(block))).collect(),
        };
        View {
            data: self.data(),
            parities: self.parities(),
            readable: those(&|member| health.readable(member, sectors.clone())).without(unreadable),
            // The replacement of a member that failed takes its writes all the same.
            writable: those(&|member| health.writable_for(member).next().is_some()),
            cached,
            q_first: self
                .map
                .q()
                .is_some_and(|q| self.shard.queued_bytes(q) < self.shard.queued_bytes(self.map.p())),
            trusted: self.trusted(health),
        }
    }

    fn segments(&self, pieces: impl Iterator<Item = (u64, usize)>) -> Segments {
        rows::segments(pieces, self.chunk_bytes)
    }
}

/// What a client is told when there is no plan.
fn refusal(refusal: Refusal) -> VolumeError {
    match refusal {
        Refusal::BeyondRedundancy => VolumeError::Broken,
        Refusal::Unreadable | Refusal::Untrusted => VolumeError::Unreadable,
    }
}
